"""From a model and labelled recordings to the next model: what `stormpsr learn` does, step by step.

Everything that is made on the way lies in one folder, and what is there is not made again:

    WORK/learning.json   data, start and settings: a folder belongs to one of each
    WORK/detector        the detector, which begins with that of the start
    WORK/encoder, temporal   the stream's stages, which begin with those of the start
    WORK/model           both, packed and tuned on validation recordings
    WORK/cache           decoded frames, embeddings and predictions

The test recordings are looked at once, in the end, by both models.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from stormpsr.config import Config, dump_config, load_config, parse_config
from stormpsr.data.annotated_frames import FrameSet, frames_in, read_images
from stormpsr.data.audit import audit_labels
from stormpsr.data.coco import COCO_FILE
from stormpsr.data.dataset import Dataset
from stormpsr.data.layouts import SPLITS, RecordingFolder
from stormpsr.data.places import N_POINTS
from stormpsr.detectors.base import UNKNOWN, Batch, StepTrainedDetector, read_config
from stormpsr.detectors.registry import begin_detector, make_detector
from stormpsr.errors import InputError
from stormpsr.evaluation.compare import Comparison, compare
from stormpsr.evaluation.summary import Summary
from stormpsr.evaluation.wording import counted
from stormpsr.files import digest, read_json_object, replacing_folder, write_json
from stormpsr.models.checkpoint import GRAPHS_FILE, Checkpoint, load_checkpoint
from stormpsr.models.stream import build_encoder
from stormpsr.procedure.model import Procedure
from stormpsr.recognizer.evaluate import evaluate_model, store_scores
from stormpsr.recognizer.model_folder import (
    DETECTOR_FOLDER,
    METRICS_FILE,
    STREAM_FOLDER,
    RecognizerModel,
    add_metrics,
    load_model,
    pack_model,
    procedure_difference,
    read_metrics,
)
from stormpsr.recognizer.offline import LabelledPredictions, predict_recording, predict_recordings
from stormpsr.recognizer.tuning import FEW_RECORDINGS, Objective, Tuned, default_of, store_tuned, tune_methods
from stormpsr.training.data import load_renders, training_data_of
from stormpsr.training.fit import FitOptions, OnProgress, ignore_progress
from stormpsr.training.plan import Clock, check_run, plan_stage
from stormpsr.training.stages import Run, StageName, train_encoder, train_locator, train_temporal
from stormpsr.training.tasks.detector import BatchSettings, TrainingSettings, train_detector

STAGES: tuple[StageName, ...] = ("encoder", "temporal")
FEWEST = {"train": 2, "val": 1, "test": 1}  # recordings without which nothing can be learned, chosen or compared
_RATE = 0.5  # share of the usual learning rate: what begins with trained networks is not to forget them at once
_OBJECTIVE: Objective = "f1+pos"
_AMONG = 20  # with few recordings the very best settings are best by chance
_TIMED_STEPS, _TIMED_IMAGES, _TIMED_FRAMES = 2, 8, 64


# ---------------------------------------------------------------------- recordings
def open_learning_data(root: Path, procedure: Procedure | str | None, on_note: Callable[[str], None]) -> Dataset:
    """The labelled recordings of a data set, each in a split, checked; in words what there is too little of.

    Recordings that belong to no split are shared out by their names: of five, three to learn from, one to choose by,
    one to compare on. The same names are always shared out alike.
    """
    found = Dataset.open(root, None, procedure)
    dataset = found.labelled
    if len(dataset) < len(found):
        on_note(f"{counted(len(found) - len(dataset), 'recording')} without labels are left alone")
    if all(folder.split is None for folder in dataset.folders):
        dataset = replace(dataset, folders=share_out(dataset.folders))
        said = "; ".join(f"{name}: {', '.join(dataset.of_split(name).names)}" for name in SPLITS)
        on_note(f"the recordings belong to no split, so they are shared out ({said})")
    counts = {name: len(dataset.of_split(name)) for name in SPLITS}
    for name, fewest in FEWEST.items():
        if counts[name] < fewest:
            needs = {"train": "to learn from", "val": "to choose by", "test": "to compare both models on"}[name]
            there = ", ".join(f"{count} in {split}" for split, count in counts.items())
            cure = f"label {fewest - counts[name]} more, or move some into {name}/ ({there})"
            raise InputError(f"too few labelled recordings {needs}: {counts[name]}", path=root, cure=cure)
    findings = audit_labels(root, dataset.procedure).findings
    ours = [folder.path for folder in dataset.folders]
    errors = [one for one in findings if one.severity == "error" and any(map(Path(one.path).is_relative_to, ours))]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        cure = f"'stormpsr labels check {root}' lists all"
        raise InputError(f"{errors[0].text}{more}", path=errors[0].path, line=errors[0].line, cure=cure)
    for name, purpose in (("val", "thresholds chosen"), ("test", "a difference measured")):
        if counts[name] < FEW_RECORDINGS:
            fewer = f"on fewer than {FEW_RECORDINGS} may hold for these alone"
            on_note(f"{counted(counts[name], 'recording')} in {name}: {purpose} {fewer}; see the intervals")
    return dataset


def share_out(folders: Sequence[RecordingFolder]) -> tuple[RecordingFolder, ...]:
    """Recordings with a split each: of five in the order of their names, the third for validation, the fifth for test.

    The last is for test where there are fewer than five.
    """
    ordered = sorted(folders, key=lambda folder: folder.name)
    splits = [{2: "val", 4: "test"}.get(number % 5, "train") for number in range(len(ordered))]
    if splits and "test" not in splits:
        splits[-1] = "test"
    return tuple(replace(folder, split=split) for folder, split in zip(ordered, splits, strict=True))


# ---------------------------------------------------------------------- where it starts
@dataclass(frozen=True)
class Start:
    """A model that another one begins with."""

    path: Path
    procedure: Procedure
    detector: Path | None
    stream: Checkpoint | None
    detector_stride: int

    @classmethod
    def of(cls, model: RecognizerModel) -> Start:
        detector, stream = model.path / DETECTOR_FOLDER, model.path / STREAM_FOLDER
        for part in (detector, stream):
            if (part / GRAPHS_FILE).is_file():
                cure = "start from the model that it was exported from"
                raise InputError("an exported model cannot be trained further", path=part, cure=cure)
        return cls(
            model.path,
            model.procedure,
            detector if detector.is_dir() else None,
            load_checkpoint(stream) if stream.is_dir() else None,
            model.settings.detector_stride,
        )

    def new_detector(self, procedure: Procedure, seed: int) -> StepTrainedDetector:
        """A detector of the same kind that begins with all tensors that fit; a compact one where there is none."""
        torch.manual_seed(seed)  # for the layers that begin with random numbers
        if self.detector is None:
            made = make_detector("compact", procedure)
        else:
            made = begin_detector(self.detector, procedure)
        if not isinstance(made, StepTrainedDetector):
            cure = "choose a model with a detector that can be trained: compact or yolox"
            raise InputError(f"a detector of kind {made.kind!r} cannot be trained", path=self.detector, cure=cure)
        return made

    @property
    def detector_kind(self) -> str:
        return "compact" if self.detector is None else read_config(self.detector)[0].kind

    def config(self, preset: str, overrides: Sequence[str], detector: Path, procedure: Procedure) -> Config:
        """The networks' settings of the start, and how they are trained by a preset, at a lower rate.

        detector: where the new one will be; an encoder that reads by queries begins with its reader and locator.
        """
        usual = load_config(preset)
        own: list[str] = []
        if self.stream is not None:
            networks = {name: getattr(self.stream.config, name) for name in ("encoder", "temporal", "clips")}
            usual = usual.model_copy(update=networks)
            rates = {name: getattr(usual, f"train_{name}").learning_rate for name in STAGES}
            own += [f"train_{name}.learning_rate={rate * _RATE}" for name, rate in rates.items()]
        if usual.temporal.kind != "states":  # others read no single frames, whatever the preset teaches
            own += ["train_temporal.frame_state_weight=0", "train_joint.frame_state_weight=0"]
        encoder = usual.encoder
        if encoder.n_queries and encoder.crop_size and self.detector_kind == "compact":
            # a query for each component and two for the whole, as the detector has them
            read = 2 + procedure.n_components
            n_queries = read if encoder.frozen_reader else max(encoder.n_queries, read)
            own += [f"encoder.weights={detector}", f"encoder.n_queries={n_queries}"]
        elif encoder.weights not in ("none", "package", "hub"):
            own += ["encoder.weights=none"]  # those of the start are put in their place
        return load_config_of(usual, [*own, *overrides])


def load_config_of(config: Config, overrides: Sequence[str]) -> Config:
    """Settings with single ones changed by `key=value`."""
    return parse_config(dump_config(config), where=config.name, overrides=overrides)


# ---------------------------------------------------------------------- learning
@dataclass(frozen=True)
class PlannedStep:
    """Something that is to be done, and about how long it takes."""

    name: str
    amount: str
    minutes: float


@dataclass(frozen=True)
class Outcome:
    """What was learned, and whether it is better."""

    tuned: dict[str, Tuned] | None  # None where it was tuned before
    method: str
    summary: Summary  # of the new model on the test recordings, with that method
    old_summary: Summary | None  # None where the start recognises another procedure
    comparison: Comparison | None


@dataclass(frozen=True)
class Learning:
    """One run of learning."""

    data: Dataset  # all splits
    start: Start
    work: Path
    preset: str = "synthetic"
    overrides: tuple[str, ...] = ()
    steps: int = 600  # of the detector
    batch_size: int = 32
    seed: int = 0
    images: tuple[Path, ...] = ()  # folders of renders
    options: FitOptions = field(default_factory=FitOptions)
    threads: int | None = None
    on_progress: OnProgress = ignore_progress
    on_note: Callable[[str], None] = lambda note: None

    # ------------------------------------------------------------------ what there is
    @property
    def procedure(self) -> Procedure:
        return self.data.procedure

    @property
    def difference(self) -> str | None:
        """What makes the start's procedure another one; None if both recognise the same."""
        return procedure_difference(self.start.procedure, self.procedure)

    @property
    def detector_folder(self) -> Path:
        return self.work / "detector"

    @property
    def model_folder(self) -> Path:
        return self.work / "model"

    @property
    def has_detector(self) -> bool:
        return (self.detector_folder / "config.yaml").is_file()

    def claim(self) -> None:
        """Take the folder for these data and settings, or refuse it: what others began must not be gone on with."""
        ours: dict[str, Any] = {
            "data": str(self.data.root.resolve()),
            "recordings": {folder.name: folder.split for folder in self.data.folders},
            "start": digest(self.start.path, without=[METRICS_FILE]),
            "preset": self.preset,
            "overrides": list(self.overrides),
            "steps": self.steps,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "images": [str(path.resolve()) for path in self.images],
        }
        path = self.work / "learning.json"
        if path.is_file():
            theirs = read_json_object(path, "description of learning", cure=f"delete {self.work}")
            for key, value in ours.items():
                if theirs.get(key) != value:
                    cure = f"use the same, or delete the folder {self.work}"
                    raise InputError(f"this was begun with another choice of {key!r}", path=path, cure=cure)
        write_json(path, ours)

    @cached_property
    def frames(self) -> tuple[FrameSet, FrameSet]:
        """Frames with boxes to train the detector on, and to calibrate it on."""
        sets = []
        for split in ("train", "val"):
            found = frames_in(self.data.of_split(split).folders, self.procedure)
            if not found.readable:
                cure = f"draw some: each recording that has any keeps them in {COCO_FILE}"
                raise InputError(f"no recording of split {split!r} has boxes", path=self.data.root, cure=cure)
            sets.append(found)
        images = tuple(image for folder in self.images for image in read_images(folder, self.procedure))
        return replace(sets[0], images=images), sets[1]

    @property
    def detector_settings(self) -> TrainingSettings:
        usual = TrainingSettings()
        rate = usual.learning_rate * (_RATE if self.start.detector else 1)
        batch = BatchSettings(batch_size=self.batch_size)
        return replace(usual, steps=self.steps, learning_rate=rate, seed=self.seed, batch=batch)

    @cached_property
    def config(self) -> Config:
        """The settings of the stream."""
        overrides = (*self.overrides, f"seed={self.seed}")
        config = self.start.config(self.preset, overrides, self.detector_folder, self.procedure)
        # settings may ask for renders, which are of use but not needed
        without = [] if self.images else ["key_frames.n_syn=0", "key_frames.n_more_renders=0"]
        return load_config_of(config, without)

    @property
    def stages(self) -> tuple[StageName, ...]:
        """Those of the stream; an encoder that looks at a crop needs a locator, if the detector brings none."""
        own = self.config.encoder
        located = not own.crop_size or own.weights == str(self.detector_folder)
        return STAGES if located else ("locator", *STAGES)

    @cached_property
    def run(self) -> Run:
        """The training of the stream."""
        return Run(
            self.config,
            training_data_of(self.data),
            self.work,
            renders=load_renders(self.images, self.procedure) if self.images else None,
            options=replace(self.options, resume=True),
            on_progress=self.on_progress,
            cache_folder=self.work / "cache",
            start=self.start.stream,
        )

    # ------------------------------------------------------------------ before
    def plan(self, clock: Clock, more_renders: int = 0) -> list[PlannedStep]:
        """What is left to be done, and how long it takes by a few steps of each, timed here and now.

        more_renders: how many are still to be drawn.
        """
        found: list[PlannedStep] = []
        if not self.has_detector:
            seconds = self._seconds_per_step(clock) * self.steps
            n = len(self.frames[0].readable) + len(self.frames[0].images) + more_renders
            found.append(PlannedStep("detector", f"{self.steps} steps, {n} images", seconds / 60))
        run = self.run
        if not self.has_detector:  # the encoder's size is that of a detector's, which is still to be trained
            run = replace(run, config=load_config_of(run.config, ["encoder.weights=none"]))
        for name in self.stages:
            if not run.stage(name).is_finished:
                plan = plan_stage(run, name, clock)
                amount, minutes = f"{plan.epochs} epochs of {plan.batches_per_epoch} batches", plan.minutes
                if name == "encoder" and more_renders and not self.images and plan.batch_size:
                    added = load_config(self.preset, self.overrides).key_frames.n_more_renders
                    minutes *= 1 + added / plan.batch_size
                found.append(PlannedStep(name, amount, minutes))
        frames = {name: sum(_n_images(r) for r in self.data.of_split(name)) for name in SPLITS}
        n_new = frames["train"] + 2 * frames["val"] + frames["test"]  # embedded, tuned on, compared on
        n = n_new + (0 if self.difference else frames["test"])
        seconds = self._seconds_per_frame(clock) * n
        return [*found, PlannedStep("recognising", f"{n} frames, to tune and to compare", seconds / 60)]

    def _seconds_per_step(self, clock: Clock) -> float:
        """Of the detector's training, on made-up images."""
        detector, n = self.start.new_detector(self.procedure, self.seed), min(self.batch_size, _TIMED_IMAGES)
        size, yes = detector.image_size, torch.ones(n, dtype=torch.bool)
        corners_B4 = torch.tensor([[0.2, 0.2, 0.8, 0.8]] * n) * size
        shown = next(s.state_class for s in self.procedure.states if s.bits is not None)
        classes_B, bits_BC = torch.full((n,), shown), torch.full((n, self.procedure.n_components), UNKNOWN)
        image_BSS3 = torch.zeros(n, size, size, 3, dtype=torch.uint8)
        nowhere_BCP2 = torch.full((*bits_BC.shape, N_POINTS, 2), torch.nan)
        batch = Batch(image_BSS3, yes, ~yes, corners_B4, classes_B, bits_BC, bits_BC, nowhere_BCP2, 0)
        detector.to(self.options.torch_device)
        moved = Batch._make([*(part.to(self.options.torch_device) for part in batch[:-1]), 0])
        detector.network.train()
        begin = 0.0
        for step in range(1 + _TIMED_STEPS):  # the first is slower
            begin = clock() if step == 1 else begin
            torch.stack(list(detector.losses(moved).values())).sum().backward()
        return (clock() - begin) / _TIMED_STEPS * self.batch_size / n

    def _seconds_per_frame(self, clock: Clock) -> float:
        """Of the start's networks, whose size is about that of the new ones, on the first frames of a recording."""
        model = load_model(self.start.path, device=self.options.device, threads=self.threads)
        frames = list(islice(self.data.of_split("val")[0].frames(), _TIMED_FRAMES))
        begin = clock()
        list(predict_recording(model.networks, frames))
        return (clock() - begin) / len(frames)

    def check(self) -> list[str]:
        """Complain now of all that would stop the work later; what is odd, in words."""
        self.frames  # noqa: B018  # reads all boxes
        if not self.has_detector and self.config.encoder.weights == str(self.detector_folder):
            with TemporaryDirectory() as folder:  # whether the encoder will be able to begin with the detector
                self.start.new_detector(self.procedure, self.seed).save(folder)
                build_encoder(self.config.encoder, weights=folder)
        notes = list(self.run.data.notes(self.run.config))
        if self.difference:
            name = self.start.path.name
            notes.append(
                f"{name!r} recognises another procedure ({self.difference}): its networks are begun with where they "
                "fit, and there is nothing to compare"
            )
        return notes

    # ------------------------------------------------------------------ the steps
    def train_detector(self, *callbacks: Any) -> None:
        if self.has_detector:
            return
        train, val = self.frames
        train_detector(
            self.start.new_detector(self.procedure, self.seed),
            train,
            val,
            self.detector_settings,
            folder=self.detector_folder,
            options=replace(self.options, callbacks=callbacks),
            cache_folder=self.work / "cache",
            on_progress=self.on_progress,
        )

    def train_stream(self, name: StageName, *callbacks: Any) -> None:
        """One stage; those before it must be there."""
        if name in check_run(self.run, [name], skip_finished=True):
            run = replace(self.run, options=replace(self.run.options, callbacks=callbacks))
            if name == "locator":
                train_locator(run)
            elif name == "encoder":
                train_encoder(run, run.stage("locator").best if "locator" in self.stages else None)
            else:
                train_temporal(run, run.stage("encoder").best)

    def tune(self) -> dict[str, Tuned] | None:
        """Pack both, and choose how they decide; None if that was done before."""
        if not self.model_folder.is_dir():
            pack_model(
                self.model_folder,
                stream=self.run.stage("temporal").best,
                detector=self.detector_folder,
                detector_stride=self.start.detector_stride,
            )
        if "tuning" in read_metrics(self.model_folder):
            return None
        model, val = self._model(), self.data.of_split("val")
        tables = predict_recordings(model, val, self._predictions, on_progress=self.on_progress)
        labelled = [LabelledPredictions.of(recording, table, model.procedure) for recording, table in tables]
        tuned = tune_methods(
            model,
            labelled,
            model.methods,
            objective=_OBJECTIVE,
            among=_AMONG,
            scratch=self._predictions / "fitting",
            on_note=self.on_note,
            on_progress=self.on_progress,
        )
        about = {"data": self.data.root.name, "split": "val", "objective": _OBJECTIVE, "among": _AMONG}
        chosen = {name: own.chosen for name, own in tuned.items()}
        default = default_of(model, tuned, _OBJECTIVE)
        store_tuned(model, chosen, {**about, "n_recordings": len(labelled)}, default)
        return tuned

    def compare(self, tuned: dict[str, Tuned] | None, names: tuple[str, str]) -> Outcome:
        """Both models on the test recordings, each with its own method and thresholds."""
        test, new = self.data.of_split("test"), self._model()
        summaries = evaluate_model(new, test, cache=self._predictions, on_progress=self.on_progress)
        store_scores(new, summaries, data=self.data.root.name, split="test")
        method = new.method_or_fallback(None)
        if self.difference:
            return Outcome(tuned, method, summaries[method], None, None)
        old = load_model(self.start.path, device=self.options.device, threads=self.threads)
        own = old.method_or_fallback(None)
        old_summary = evaluate_model(old, test, cache=self._predictions, methods=[own], on_progress=self.on_progress)[
            own
        ]
        comparison = compare(old_summary, summaries[method], names)
        add_metrics(new.path, "learning", {"start": names[0], "comparison": comparison.to_dict()})
        return Outcome(tuned, method, summaries[method], old_summary, comparison)

    def pack(self, out: Path) -> None:
        """The model in its place."""
        with replacing_folder(out) as draft:
            shutil.copytree(self.model_folder, draft, dirs_exist_ok=True)

    @property
    def _predictions(self) -> Path:
        return self.work / "cache" / "predictions"

    def _model(self) -> RecognizerModel:
        return load_model(self.model_folder, device=self.options.device, threads=self.threads)


def _n_images(recording: Any) -> int:
    return len(recording.source.numbers())
