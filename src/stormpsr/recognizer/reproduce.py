"""The paper's tables by name: a row is a change of settings, a cell a row with a seed, and all are scored alike.

    OUT/about.json           data, renders, detector, preset: a folder belongs to one of each, known by digests
    OUT/stages/KEY/STAGE     trained stages, by what decides their result: rows that agree in it share them
    OUT/cells/TABLE/         a file per row and seed: scores, events and settings; what is there is not made again
    OUT/cache                decoded frames, embeddings (by encoder) and detections
    OUT/TABLE.{md,tex,csv,json}

A table is a file in `stormpsr/tables`: rows with settings on top of a preset, the stage whose networks are scored,
the decoding method, and the paper's own figures. Thresholds are chosen on validation recordings, row by row; test
recordings are looked at once, in the end.

Shape legend: R recordings, S seeds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import FiniteFloat

from stormpsr.config import Config, dump_config, load_config
from stormpsr.data.annotated_frames import files_about
from stormpsr.data.dataset import Dataset
from stormpsr.data.events import completions
from stormpsr.data.frame_cache import FrameCache
from stormpsr.data.recording import Recording
from stormpsr.data.sources import Frame
from stormpsr.decoding.methods import METHODS, resolve_method
from stormpsr.decoding.predictions import Prediction, PredictionTable
from stormpsr.detectors.base import read_config
from stormpsr.errors import InputError
from stormpsr.evaluation.compare import (
    METRICS,
    Difference,
    difference_cell,
    latex_number,
    latex_text,
    paired_difference,
)
from stormpsr.evaluation.wording import number
from stormpsr.files import check_room, digest, read_json_object, write_csv, write_json, write_text
from stormpsr.models.checkpoint import encoder_digest, load_checkpoint
from stormpsr.models.stream import TorchStream
from stormpsr.procedure.writer import procedure_text
from stormpsr.recognizer.model_folder import (
    DETECTOR_FOLDER,
    RecognizerModel,
    load_model,
    pack_model,
    part_digest,
    settings_of_training,
)
from stormpsr.recognizer.networks import Networks
from stormpsr.recognizer.offline import LabelledPredictions, decode_table, predict_recording, predict_recordings
from stormpsr.recognizer.tuning import Part, Scored, choose, cross_fitted, learns_from, score_settings
from stormpsr.training.data import Renders, TrainingData, training_data_of
from stormpsr.training.fit import FitOptions, OnProgress, check_machine, ignore_progress
from stormpsr.training.plan import Clock, StagePlan, Timed, check_images, check_weights, plan_stage, renders_of
from stormpsr.training.stages import (
    Run,
    StageName,
    embed_recordings,
    stages_of,
    train_encoder,
    train_joint,
    train_locator,
    train_temporal,
)
from stormpsr.yaml_loader import STRICT_KEYS, Document, guess, read_yaml, validate

TunedBy = Literal["threshold", "all", "none"]
_DRAWS = 10_000
_MOST_THRESHOLD = 500.0  # no larger ones are tried
_PUBLISHED = "industreal"  # whose figures stand beside ours where the paper has none for a procedure
_KEPT_FROM: dict[StageName, tuple[str, ...]] = {  # what decides a stage's result, besides that of the stages before
    "locator": ("train_locator",),
    "encoder": ("key_frames", "train_encoder"),
    "temporal": ("temporal", "clips", "train_temporal"),
    "joint": ("train_joint",),
}
CellScores = dict[str, dict[str, float | None]]  # of each test recording, by metric
_NO_IMAGE = np.zeros((1, 1, 3), dtype=np.uint8)


# ---------------------------------------------------------------------- tables
@dataclass(frozen=True)
class Row:
    """A row: what is set, and how it is scored."""

    name: str
    set: tuple[str, ...] = ()  # overrides, `section.key=value`
    stage: Literal["temporal", "joint"] | None = None  # None: the table's
    method: str | None = None
    tune: TunedBy | None = None  # None: the experiment's way
    paper: Mapping[str, tuple[float, float, float | None]] = field(default_factory=dict)  # data set -> POS, F1, tau

    __pydantic_config__ = STRICT_KEYS


@dataclass(frozen=True)
class Table:
    """A table of the paper."""

    title: str
    rows: tuple[Row, ...]
    finding: str = ""  # what the paper says of it
    stage: Literal["temporal", "joint"] = "joint"
    method: str = "temporal"
    baseline: str | None = None  # the row that all others are compared with
    set: tuple[str, ...] = ()  # for all rows
    further_methods: bool = False  # also every method of the registry that no row has

    __pydantic_config__ = STRICT_KEYS

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        if len(frozenset(map(_slug, names))) < len(names):  # files are called after them
            raise InputError("two rows have the same name", cure="call them differently")
        if self.baseline is not None and self.baseline not in names:
            raise InputError(f"there is no row {self.baseline!r} to compare with", cure=f"rows: {', '.join(names)}")

    def all_rows(self, stage: Literal["temporal", "joint"] | None = None) -> list[Row]:
        """The rows, each with its method and its stage: its own, or the given one, or the table's."""
        natural = stage or self.stage
        rows = [replace(row, stage=row.stage or natural, method=row.method or self.method) for row in self.rows]
        known = {row.method for row in rows}
        if self.further_methods:
            rows += [Row(m.title, (), natural, m.name) for m in METHODS.values() if m.name not in known]
        return rows


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def shipped_tables() -> list[str]:
    folder = resources.files("stormpsr") / "tables"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_table(source: str) -> Table:
    """A shipped table by name, or a YAML file of one's own."""
    known = shipped_tables()
    path = Path(str(resources.files("stormpsr") / "tables" / f"{source}.yaml")) if source in known else Path(source)
    if not path.is_file():
        cure = guess(source, known, f"choose one of: {', '.join(known)}, or give a YAML file")
        raise InputError(f"there is no table {source!r}", cure=cure)
    return validate(Table, read_yaml(path))


# ---------------------------------------------------------------------- an experiment
@dataclass(frozen=True)
class Experiment:
    """What tables are made from, and where everything is kept."""

    data: Dataset  # all splits
    out: Path
    preset: str
    renders: Renders | None = None
    detector: Path | None = None  # a trained one, for rows that need detections
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    stage: Literal["temporal", "joint"] | None = None  # instead of the table's; what a row says of its own stays
    tuned_by: TunedBy = "threshold"
    options: FitOptions = field(default_factory=FitOptions)
    on_progress: OnProgress = ignore_progress
    on_note: Callable[[str], None] = lambda note: None

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"the seeds are {list(self.seeds)}", cure="give each seed once")
        if self.tuned_by not in get_args(TunedBy):
            raise InputError(f"unknown way to tune {self.tuned_by!r}", cure=f"choose: {', '.join(get_args(TunedBy))}")

    @cached_property
    def training_data(self) -> TrainingData:
        return training_data_of(self.data)

    @cached_property
    def test(self) -> tuple[Recording, ...]:
        found = tuple(self.data.of_split("test").labelled)
        if not found:
            raise InputError("split 'test' has no labelled recordings", path=self.data.root)
        return found

    @property
    def cache(self) -> Path:
        return self.out / "cache"

    @property
    def packed_detector(self) -> Path:
        return self.out / "stages" / "detector"

    def about(self) -> dict[str, Any]:
        """What decides the results of all tables alike; of files their digests, since others may come to lie there."""
        config = load_config(self.preset, self.overrides)
        recordings = (*self.training_data.train, *self.training_data.val, *self.test)
        weights = Path(config.encoder.weights)  # or a word
        found = part_digest(weights) if weights.is_dir() else digest(weights) if weights.is_file() else None
        return {
            "data": str(self.data.root.resolve()),
            "procedure": hashlib.sha256(procedure_text(self.data.procedure).encode()).hexdigest()[:12],
            "recordings": {_key(recording): _content(recording) for recording in recordings},
            "renders": [str(source.path.resolve()) for source, _ in self.renders.sources] if self.renders else [],
            "render_images": self.renders.fingerprint() if self.renders else None,
            "detector": None if self.detector is None else str(self.detector.resolve()),
            "detector_files": None if self.detector is None else part_digest(self.detector),
            "encoder_weights": found,
            "preset": self.preset,
            "overrides": list(self.overrides),
            "settings": _digest(config),
            "stage": self.stage,
            "tuned_by": self.tuned_by,
            "precision": self.options.precision,
            "accumulate": self.options.accumulate_batches,
        }

    def check(self) -> dict[str, Any]:
        """Refuse the folder if it belongs to other data or settings: cells of others must not be mixed with ours."""
        if self.detector is not None:
            read_config(self.detector)  # complains if there is none
        ours, path = self.about(), self.out / "about.json"
        theirs = read_json_object(path, "description of an experiment") if path.is_file() else {}
        packed = self.packed_detector / DETECTOR_FOLDER
        if "detector_files" not in theirs and packed.is_dir():
            theirs["detector_files"] = part_digest(packed)
        unknown = [key for key in ours if theirs and key not in theirs]
        if unknown:
            self.on_note(f"{path} is of an older version: {', '.join(unknown)} are taken to be those of now")
        for key, now in ours.items():
            was = theirs.get(key, now)
            what, more = key, ""
            if isinstance(was, dict) and isinstance(now, dict):
                changed = [name for name in sorted({*was, *now}) if was.get(name) != now.get(name)]
                if not changed:
                    continue
                what, was, now = f"{key}: {changed[0]}", was.get(changed[0]), now.get(changed[0])
                more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            if was != now:
                problem = f"this folder belongs to another experiment: {what} was {was}, now {now}{more}"
                raise InputError(problem, path=path, cure=f"choose another --out, or delete {self.out}")
        return ours

    def claim(self) -> None:
        """Take the folder for these data and settings, or refuse it."""
        write_json(self.out / "about.json", self.check())

    def config(self, table: Table, row: Row, seed: int) -> Config:
        """The settings of a cell. Rows go before what the user has changed: they are what the table is about."""
        return load_config(self.preset, [*self.overrides, *table.set, *row.set, f"seed={seed}"])

    def run_of(self, config: Config, name: StageName) -> Run:
        """Where a stage is trained: a folder that all cells share whose settings lead to the same networks."""
        kept = stage_config(config, name)
        return Run(
            kept,
            self.training_data,
            self.out / "stages" / _digest(kept),
            renders=self.renders,
            options=replace(self.options, resume=True),
            on_progress=self.on_progress,
            cache_folder=self.cache,
        )


def _digest(config: Config) -> str:
    return hashlib.sha256(dump_config(config).encode()).hexdigest()[:12]


def stage_config(config: Config, name: StageName) -> Config:
    """What decides a stage's networks; everything else has its default, so that equal stages have equal settings."""
    order = stages_of(config)
    sections = [section for stage in order[: order.index(name) + 1] for section in _KEPT_FROM[stage]]
    plain = Config(name="shared", procedure=config.procedure, seed=config.seed, encoder=config.encoder)
    # the training of both stages of clips is validated together with the temporal model
    return plain.model_copy(update={section: getattr(config, section) for section in sections})


# ---------------------------------------------------------------------- cells
@dataclass(frozen=True)
class Cell:
    """A row with a seed."""

    table: str
    row: Row
    seed: int
    config: Config

    @property
    def needs_detections(self) -> bool:
        return "detection" in self.streams

    @property
    def streams(self) -> tuple[str, ...]:
        return resolve_method(str(self.row.method)).streams or ("detection", "temporal")

    def path(self, out: Path) -> Path:
        return out / "cells" / self.table / f"{_slug(self.row.name)}-{self.seed}.json"

    @property
    def about(self) -> dict[str, Any]:
        """What its file must say: a row that was changed since is made again."""
        own = {"row": self.row.name, "seed": self.seed, "method": self.row.method, "stage": self.row.stage}
        return {**own, **({"tune": self.row.tune} if self.row.tune else {}), "config": _digest(self.config)}

    def is_done(self, out: Path) -> bool:
        path = self.path(out)
        if not path.is_file():
            return False
        content = read_json_object(path, "cell of a table", cure="delete it")
        return all(content.get(key) == value for key, value in self.about.items())

    def stages(self) -> list[StageName]:
        """What has to be trained for it."""
        if "temporal" not in self.streams:
            return []
        order = stages_of(self.config)
        return order[: order.index(self.row.stage or "joint") + 1]


def cells_of(experiment: Experiment, name: str, table: Table) -> list[Cell]:
    """All cells, seeds last, without rows that need a detector, or more recordings to learn from than there are."""
    cells = []
    for row in table.all_rows(experiment.stage):
        method = resolve_method(str(row.method)).decoder_class
        if "detection" in Cell(name, row, 0, Config()).streams and experiment.detector is None:
            experiment.on_note(f"row {row.name!r} needs a detector: it is left out")
            continue
        if method.must_learn and len(experiment.training_data.val) < method.fewest_to_learn_from:
            needed = f"{method.fewest_to_learn_from} validation recordings"
            experiment.on_note(f"row {row.name!r} needs {needed} to learn from: it is left out")
            continue
        cells += [Cell(name, row, seed, experiment.config(table, row, seed)) for seed in experiment.seeds]
    if not cells:
        raise InputError("every row needs a detector", cure="give --detector DIR, or train one: stormpsr detect train")
    return cells


def train_stage(experiment: Experiment, config: Config, name: StageName) -> Path:
    """The folder of a stage's networks, trained first, after those before it, where it is not finished."""
    run = experiment.run_of(config, name)
    if run.stage(name).is_finished:
        return run.stage(name).best
    order = stages_of(config)
    before = None if name == order[0] else train_stage(experiment, config, order[order.index(name) - 1])
    experiment.on_note(f"{name}: {run.folder.name}")
    if name == "locator":
        return train_locator(run)
    if name == "encoder" or before is None:
        return train_encoder(run, before)
    return (train_temporal if name == "temporal" else train_joint)(run, before)


class _Predictions:
    """What the networks say of recordings; detections are kept on disk, embeddings by their encoder."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._latest: tuple[Path | None, dict[str, list[Prediction]]] = (None, {})  # of the stream that was last asked

    @cached_property
    def detector_model(self) -> RecognizerModel:
        folder = self._experiment.packed_detector
        assert self._experiment.detector is not None
        if not folder.is_dir():
            pack_model(folder, detector=self._experiment.detector)
        return load_model(folder, device=self._experiment.options.device)

    def detections(self, recordings: Sequence[Recording]) -> dict[str, PredictionTable]:
        cache = self._experiment.cache / "detections"
        tables = predict_recordings(self.detector_model, recordings, cache, on_progress=self._experiment.on_progress)
        return {_key(recording): table for recording, table in tables}

    def changes(
        self, model: RecognizerModel, folder: Path, recordings: Sequence[Recording]
    ) -> dict[str, list[Prediction]]:
        """What a stream says of recordings, from embeddings that every model with the same encoder shares."""
        if self._latest[0] != folder:
            self._latest = folder, {}
        known = self._latest[1]
        missing = [recording for recording in recordings if _key(recording) not in known]
        stream = model.networks.stream
        assert isinstance(stream, TorchStream)
        step = model.networks.schedule().encoder_stride
        encoder = encoder_digest(stream.encoder)
        stores = embed_recordings(
            stream.encoder,
            missing,
            store_folder=self._experiment.cache / "embeddings" / (encoder + (f"-{step}" if step > 1 else "")),
            cache_folder=self._experiment.cache,
            frame_step=step,
            on_progress=self._experiment.on_progress,
        )
        alone = Networks(
            fps=model.procedure.fps,
            settings=model.settings,
            stream=stream,
            config=load_checkpoint(folder).config,
        )
        for recording, store_FD in zip(missing, stores, strict=True):
            frames = (Frame(_NO_IMAGE, n, n / recording.fps) for n in recording.source.numbers())
            read = lambda numbers, store_FD=store_FD: np.asarray(store_FD[numbers // step], dtype=np.float32)  # noqa: E731
            known[_key(recording)] = list(predict_recording(alone, frames, read_embeddings=read))
        return {_key(recording): known[_key(recording)] for recording in recordings}


def _key(recording: Recording) -> str:
    return f"{recording.split}/{recording.name}"


def _content(recording: Recording) -> str:
    """What a recording shows, and what is said of it."""
    labels = digest(*files_about(recording.path))
    images = f"images {recording.fingerprint()}, {recording.n_frames} frames at {recording.fps:g} per second"
    return f"{images}, labels {labels}"


def _joined(detected: Prediction | None, said: Prediction | None) -> Prediction:
    """One prediction of what both streams said about a tick."""
    if detected is None or said is None:
        both = detected or said
        assert both is not None
        return both
    outputs = [part.outputs_CF for part in (detected, said) if part.outputs_CF is not None]
    outputs_CF = outputs[0] if len(outputs) == 1 else None
    if len(outputs) == 2:
        outputs_CF = np.where(np.isnan(outputs[1]), outputs[0], outputs[1])
    return replace(detected, change_C=said.change_C, outputs_CF=outputs_CF)


def evaluate_cell(experiment: Experiment, cell: Cell, predictions: _Predictions) -> dict[str, Any]:
    """Train what is missing, choose thresholds on validation recordings, score the test recordings."""
    stage = cell.stages()
    stream = train_stage(experiment, cell.config, stage[-1]) if stage else None
    model = _model_of(experiment, cell, stream, predictions)
    method = str(cell.row.method)
    tables = {
        split: _labelled(model, cell, stream, recordings, predictions)
        for split, recordings in (("val", experiment.training_data.val), ("test", experiment.test))
    }
    tuned_by = cell.row.tune or experiment.tuned_by
    settings = _tuned(experiment, model, method, tables["val"], tuned_by)
    model = replace(model, settings=model.settings.with_method(method, settings))
    scores: dict[str, Any] = {}
    events: list[tuple[str, int, int]] = []
    for labelled in tables["test"]:
        found = decode_table(model.decoder(method, labelled.variant), labelled.predictions)
        result = labelled.result(found, model.procedure)
        scores[labelled.name] = {name: getattr(result.scores, name) for name in _SCORED}
        events += [(labelled.name, event.frame, event.step_id) for event in completions(found)]
    path = cell.path(experiment.out)
    write_csv(path.with_suffix(".csv"), [("recording", "frame", "step_id"), *sorted(events)])
    content = {
        **cell.about,
        "networks": None if stream is None else str(stream),
        "settings": resolve_method(method).stored(settings),
        "scores": scores,
    }
    write_json(path, content)
    return content


_SCORED = ("pos", "f1", "delay_seconds", "true_positives", "false_positives", "false_negatives")


def _model_of(experiment: Experiment, cell: Cell, stream: Path | None, predictions: _Predictions) -> RecognizerModel:
    """A recogniser of a cell's networks; in its folder methods keep what they learn."""
    settings, folder = settings_of_training(cell.config), cell.path(experiment.out).with_suffix("")
    if stream is None:
        return replace(predictions.detector_model, path=folder, settings=settings)
    checkpoint = load_checkpoint(stream)
    detector = predictions.detector_model.networks.detector if cell.needs_detections else None
    networks = Networks(
        fps=checkpoint.procedure.fps,
        settings=settings,
        detector=detector,
        stream=TorchStream(checkpoint.stream(), experiment.options.torch_device),
        config=checkpoint.config,
    )
    return RecognizerModel(folder, checkpoint.procedure, settings, networks, {})


def _labelled(
    model: RecognizerModel,
    cell: Cell,
    stream: Path | None,
    recordings: Sequence[Recording],
    predictions: _Predictions,
) -> list[LabelledPredictions]:
    detected = predictions.detections(recordings) if cell.needs_detections else {}
    changes = predictions.changes(model, stream, recordings) if stream is not None else {}
    found = []
    for recording in recordings:
        by_tick: dict[int, list[Prediction | None]] = {}
        for place, part in enumerate((detected.get(_key(recording), ()), changes.get(_key(recording), ()))):
            for prediction in part:
                by_tick.setdefault(prediction.tick, [None, None])[place] = prediction
        joined = [_joined(*by_tick[tick]) for tick in sorted(by_tick)]
        table = PredictionTable.of(joined, model.procedure.n_components)
        found.append(LabelledPredictions.of(recording, table, model.procedure))
    return found


def _tuned(
    experiment: Experiment,
    model: RecognizerModel,
    method: str,
    labelled: Sequence[LabelledPredictions],
    tuned_by: TunedBy,
) -> Any:
    """A method's settings: those of the preset, or the best on validation recordings."""
    entry, start = resolve_method(method), model.settings.of_method(method)
    if tuned_by == "none" and not learns_from(method, labelled):
        return start
    with cross_fitted(model, method, labelled, experiment.on_note) as (parts, tried):
        if tuned_by == "threshold" and not learns_from(method, labelled) and "threshold" in entry.grid:
            return _best_threshold(parts, method, start, entry.grid["threshold"])
        best = choose(score_settings(parts, method, tried)).settings
    if not learns_from(method, labelled):
        return best
    model.path.mkdir(parents=True, exist_ok=True)
    return entry.decoder_class.fit(labelled, model.procedure, best, model.path)


def _best_threshold(parts: Sequence[Part], method: str, start: Any, thresholds: Sequence[float]) -> Any:
    """With the best threshold. Where that is the largest, larger ones are tried: a weak stream needs more evidence."""
    scored: list[Scored] = []
    while True:
        tried = [replace(start, threshold=threshold) for threshold in thresholds]
        scored += score_settings(parts, method, tried)
        best, largest = choose(scored).settings, max(thresholds)
        if best.threshold < largest or largest >= _MOST_THRESHOLD:
            return best
        thresholds = [1.5 * largest, 2 * largest]


# ---------------------------------------------------------------------- all of a table
def make_table(
    experiment: Experiment, name: str, table: Table, on_cell: Callable[[int, int], None] | None = None
) -> TableResult:
    """Make every cell that is not there, and put them together."""
    experiment.claim()
    cells = cells_of(experiment, name, table)
    predictions = _Predictions(experiment)
    # rows that share networks stand together, so that what these say is worked out once
    for done, cell in enumerate(
        sorted(cells, key=lambda cell: (cell.seed, str(cell.row.stage), cell.row.set)), start=1
    ):
        if not cell.is_done(experiment.out):
            evaluate_cell(experiment, cell, predictions)
        if on_cell:
            on_cell(done, len(cells))
    return read_result(experiment, name, table, cells)


@dataclass(frozen=True)
class RowResult:
    """A row: means over the seeds of means over the recordings, how far seeds are apart, and the difference."""

    name: str
    n_seeds: int
    means: Mapping[str, float | None]  # by `METRICS`
    deviations: Mapping[str, float | None]  # over seeds; None of a single one
    differences: tuple[Difference, ...]  # from the baseline, paired by recording; empty for the baseline itself
    paper: tuple[float, float, float | None] | None
    settings: tuple[str, ...]


@dataclass(frozen=True)
class TableResult:
    """A finished table."""

    name: str
    title: str
    finding: str
    about: Mapping[str, Any]
    baseline: str | None
    rows: tuple[RowResult, ...]


def read_result(experiment: Experiment, name: str, table: Table, cells: Sequence[Cell]) -> TableResult:
    """Put the cells of a table together."""
    by_row: dict[str, list[CellScores]] = {}
    recordings = sorted(recording.name for recording in experiment.test)
    for cell in cells:
        by_row.setdefault(cell.row.name, []).append(read_scores(cell.path(experiment.out), recordings))
    rows = {cell.row.name: cell.row for cell in cells}
    draws_KR = np.random.default_rng(0).integers(len(recordings), size=(_DRAWS, len(recordings)))
    values = {row: {metric: _values(found, recordings, metric) for metric in METRICS} for row, found in by_row.items()}
    procedure = experiment.data.procedure.name
    published = procedure if any(procedure in row.paper for row in rows.values()) else _PUBLISHED
    results = []
    for row, own in values.items():
        compared = values.get(table.baseline or "") if row != table.baseline else None
        results.append(
            RowResult(
                row,
                len(by_row[row]),
                {metric: _nan_mean(_nan_means(own[metric])) for metric in METRICS},
                {metric: _deviation(_nan_means(own[metric])) for metric in METRICS},
                ()
                if compared is None
                else tuple(paired_difference(metric, compared[metric], own[metric], draws_KR) for metric in METRICS),
                rows[row].paper.get(published),
                (*table.set, *rows[row].set),
            )
        )
    about = {
        "data": str(experiment.data.root),
        "procedure": procedure,
        "paper": published,
        "preset": experiment.preset,
        "overrides": list(experiment.overrides),
        "seeds": list(experiment.seeds),
        "tuned_by": experiment.tuned_by,
        "train": len(experiment.training_data.train),
        "val": len(experiment.training_data.val),
        "test": len(recordings),
    }
    return TableResult(name, table.title, table.finding, about, table.baseline, tuple(results))


def read_scores(path: Path, recordings: Sequence[str]) -> CellScores:
    """What a cell's file says of each test recording."""
    content = read_json_object(path, "cell of a table", cure="delete it")
    document = Document({"scores": content.get("scores")}, path)
    scores: CellScores = validate(dict[str, dict[str, FiniteFloat | None]], document, at=("scores",), strict=True)
    if sorted(scores) != list(recordings) or any(set(METRICS) - set(own) for own in scores.values()):
        raise InputError("the scores are not those of the test recordings", path=path, cure="delete it")
    return scores


def _values(found: Sequence[CellScores], recordings: Sequence[str], metric: str) -> NDArray[np.float64]:
    """(S, R), nan where nothing was matched."""
    return np.array([[scores[name][metric] for name in recordings] for scores in found], dtype=np.float64)


def _nan_means(values_SR: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each seed."""
    return np.array([_nan_mean(row) if _nan_mean(row) is not None else np.nan for row in values_SR], dtype=np.float64)


def _nan_mean(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _deviation(values_S: NDArray[np.float64]) -> float | None:
    known = values_S[~np.isnan(values_S)]
    return float(known.std(ddof=1)) if len(known) > 1 else None


# ---------------------------------------------------------------------- results as files
def write_results(result: TableResult, out: Path) -> list[Path]:
    """The table as Markdown, LaTeX, CSV and JSON."""
    paths = [out / f"{result.name}.{ending}" for ending in ("md", "tex", "csv", "json")]
    write_text(paths[0], markdown(result))
    write_text(paths[1], latex(result))
    write_csv(paths[2], _csv_rows(result))
    write_json(paths[3], asdict(result))
    return paths


def cells_of_row(row: RowResult) -> list[str]:
    """POS, F1 and tau: `0.812 ± 0.011`."""
    found = []
    for metric, (_, digits) in METRICS.items():
        deviation = row.deviations[metric]
        found.append(number(row.means[metric], digits) + ("" if deviation is None else f" ± {deviation:.{digits}f}"))
    return found


def markdown(result: TableResult) -> str:
    about = result.about
    titles = [title for title, _ in METRICS.values()]
    heads = ["", *titles, *(f"{title}, paper ({about['paper']})" for title in titles)]
    if result.baseline:
        heads += [f"{title} less {result.baseline}" for title in titles]
    lines = [
        f"# {result.title}",
        "",
        f"{about['procedure']}: {about['train']} recordings to train on, {about['val']} to choose by, {about['test']} "
        f"to test; preset `{about['preset']}`{_and_overrides(about['overrides'])}, seeds {_listed(about['seeds'])}, "
        f"thresholds: {about['tuned_by']}. Means over recordings and seeds, ± the standard deviation over seeds; "
        "differences with 95 % intervals of a paired bootstrap over recordings, * where they leave out 0; those of tau "
        "over recordings in which both rows recognise something, without an interval where these are fewer than five.",
        "",
        *([f"The paper's finding: {result.finding}", ""] if result.finding else []),
        "| " + " | ".join(heads) + " |",
        "|---" + "|--:" * (len(heads) - 1) + "|",
    ]
    for row in result.rows:
        figures = zip(row.paper or (None,) * len(METRICS), METRICS.values(), strict=True)
        paper = [number(value, digits) for value, (_, digits) in figures]
        cells = [row.name, *cells_of_row(row), *paper]
        if result.baseline:
            cells += [difference_cell(d) + (" *" if d.is_certain else "") for d in row.differences] or ["", "", ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _and_overrides(overrides: Sequence[str]) -> str:
    return "" if not overrides else f" with {', '.join(f'`{one}`' for one in overrides)}"


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def latex(result: TableResult) -> str:
    """For a paper (booktabs): ours and the paper's figures side by side, the best of ours in bold."""
    best: dict[str, float | None] = {}
    for metric in METRICS:
        known = [value for row in result.rows if (value := row.means[metric]) is not None]
        pick = min if metric == "delay_seconds" else max
        best[metric] = pick(known) if len(known) > 1 else None
    published = latex_text(result.about["paper"])
    names = r"POS $\uparrow$ & $F_1$ $\uparrow$ & $\tau$ [s] $\downarrow$"
    lines = [
        r"\begin{tabular}{l|c c c|c c c}",
        r"\toprule",
        rf" & \multicolumn{{3}}{{c|}}{{ours}} & \multicolumn{{3}}{{c}}{{paper ({published})}} \\",
        rf" & {names} & {names} \\",
        r"\midrule",
    ]
    for row in result.rows:
        cells = []
        for metric, (_, digits) in METRICS.items():
            deviation = row.deviations[metric]
            spread = "" if deviation is None else rf" {{\footnotesize $\pm$ {deviation:.{digits}f}}}"
            cells.append(latex_number(row.means[metric], digits, best[metric]) + spread)
        for value, (_, digits) in zip(row.paper or (None,) * 3, METRICS.values(), strict=True):
            cells.append(latex_number(value, digits))
        lines.append(" & ".join([latex_text(row.name), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _csv_rows(result: TableResult) -> Iterator[list[object]]:
    ends = ("difference", "low", "high")
    yield [
        "row",
        "seeds",
        *(f"{metric}{end}" for metric in METRICS for end in ("", "_deviation", "_paper")),
        *(f"{metric}_{end}" for metric in METRICS for end in ends),
    ]
    for row in result.rows:
        cells: list[object] = [row.name, row.n_seeds]
        for place, metric in enumerate(METRICS):
            cells += [row.means[metric], row.deviations[metric], None if row.paper is None else row.paper[place]]
        for found in row.differences or (None,) * len(METRICS):
            interval = None if found is None else found.interval
            cells += [None if found is None else found.difference]
            cells += [None, None] if interval is None else [interval.low, interval.high]
        yield ["" if cell is None else cell for cell in cells]


# ---------------------------------------------------------------------- before hours are spent
@dataclass(frozen=True)
class TablePlan:
    """What is left to do."""

    cells: int
    cells_done: int
    stages: tuple[tuple[str, StagePlan], ...]  # folder and plan of each stage that is to be trained
    cache_bytes: int  # decoded frames that are to be written
    embedding_bytes: int

    @property
    def minutes(self) -> float:
        return sum(plan.minutes for _, plan in self.stages)


def plan_table(experiment: Experiment, name: str, table: Table, clock: Clock) -> TablePlan:
    """Check the settings of every cell, and estimate time and disk of what is not there yet."""
    experiment.check()
    cells = cells_of(experiment, name, table)
    left = [cell for cell in cells if not cell.is_done(experiment.out)]
    stages: dict[str, tuple[StageName, Run]] = {}
    encoders: dict[str, int] = {}
    recordings = (*experiment.training_data.train, *experiment.training_data.val, *experiment.test)
    n_frames = sum(recording.n_frames for recording in recordings)
    for cell in left:
        for stage in cell.stages():
            run = experiment.run_of(cell.config, stage)
            if not run.stage(stage).is_finished:
                stages[f"{run.folder.name}/{stage}"] = stage, run
            if stage in ("encoder", "joint"):
                row_bytes = 2 * cell.config.encoder.embedding_dim
                encoders[f"{run.folder.name}-{cell.config.clips.frame_step}"] = (
                    n_frames // cell.config.clips.frame_step * row_bytes
                )
    frames = _check_left(experiment, left, list(stages.values()))
    timed: Timed = {}
    plans = []
    for done, (key, (stage, run)) in enumerate(stages.items(), start=1):
        plans.append((key, plan_stage(run, stage, clock, timed=timed)))
        experiment.on_progress("plan stages", done, len(stages))
    return TablePlan(len(cells), len(cells) - len(left), tuple(plans), frames, sum(encoders.values()))


def _check_left(experiment: Experiment, cells: Sequence[Cell], stages: Sequence[tuple[StageName, Run]]) -> int:
    """Complain of what would stop cells and stages that are left; how many bytes of decoded frames they will write."""
    if stages:
        check_machine(experiment.options)
    encoders = {repr(run.config.encoder): run.config.encoder for name, run in stages if name == "encoder"}
    for encoder in encoders.values():
        check_weights(encoder)
    recordings = (*experiment.training_data.train, *experiment.training_data.val, *experiment.test)
    n_bytes = 0
    for size in sorted({cell.config.encoder.image_size for cell in cells if cell.stages()}):
        cache = FrameCache(experiment.cache, size)
        drawn = (renders_of(run, [name]) for name, run in stages if run.config.encoder.image_size == size)
        images = next((found for found in drawn if found), ())
        n_bytes += cache.missing_bytes((recording.source for recording in recordings), images)
        check_room(cache.folder, n_bytes)
        for done, recording in enumerate(recordings, start=1):
            check_images([] if cache.is_filled(recording.source) else [recording])
            experiment.on_progress(f"check images, {size} pixels", done, len(recordings))
    return n_bytes
