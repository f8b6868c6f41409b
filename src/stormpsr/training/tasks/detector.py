# mypy: disallow-subclassing-any=False
"""Training of a detector: the settings, batches by number, the task, and calibration afterwards.

Detectors are trained for a number of steps. The images of a step depend on the seed and the step alone, so interrupted
training goes on as if it had not stopped. What is kept is the moving average of the weights, not the best epoch: the
average is better than any single epoch, and a few validation frames are no ground to choose by.

Shape legend: B images, S pixels of a side, C components, P points of each.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_only
from numpy.typing import NDArray
from torch import Tensor
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import Dataset, Subset

from stormpsr.data.annotated_frames import AnnotatedFrame, FrameSet
from stormpsr.data.frame_cache import FrameCache, Frames
from stormpsr.data.images import Placement
from stormpsr.data.places import N_POINTS
from stormpsr.data.sampling import Shard
from stormpsr.data.sources import FrameSource
from stormpsr.detectors.base import (
    UNKNOWN,
    Batch,
    Calibration,
    StateDetector,
    StepTrainedDetector,
    TorchDetector,
)
from stormpsr.detectors.calibration import fit_calibration
from stormpsr.detectors.known_views import KnownViews
from stormpsr.detectors.predict import PredictedFrame, confidence_and_success, predict_frames
from stormpsr.errors import InputError
from stormpsr.files import only_user
from stormpsr.procedure.model import StateKind
from stormpsr.training.augment import ImageAugmentation, augment_image
from stormpsr.training.fit import FitOptions, OnProgress, Task, check_machine, fit, ignore_progress
from stormpsr.training.stage_folder import StageFolder
from stormpsr.yaml_loader import STRICT_KEYS, Document, guess, read_yaml, validate

UNFINISHED_FOLDER = "unfinished"  # inside the detector's: the stage folder, while it is trained
_MOST_EPOCHS = 10**6
_SEEDS_APART = 1_000_003  # random numbers of one step are not those of another seed's steps


# ---------------------------------------------------------------------- settings
@dataclass(frozen=True, slots=True)
class BatchSettings:
    """What a batch is made of."""

    batch_size: int = 32
    negative_ratio: float = 0.5  # frames without a readable state for each one with
    class_balance: float = 0.5  # 0: classes as frequent as in the data; 1: all equally frequent
    scene_balance: float = 0.5  # the same for the scenes of a recording, each a time without a change
    image_share: float = 0.4  # of those with a state, taken from single rendered images where there are any
    wrong_share: float = 0.4  # of each sort, in which a part is seen to be wrong, where there are any: else too rare

    __pydantic_config__ = STRICT_KEYS

    def __post_init__(self) -> None:
        if self.batch_size < 2:
            raise InputError(f"batch_size is {self.batch_size}", cure="at least 2")
        if not self.negative_ratio >= 0:
            raise InputError(f"negative_ratio is {self.negative_ratio}", cure="0 means: no frames without a state")
        for name in ("class_balance", "scene_balance", "image_share", "wrong_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}", cure="it lies between 0 and 1")

    @property
    def n_readable(self) -> int:
        return max(1, round(self.batch_size / (1 + self.negative_ratio)))


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How long and how fast."""

    steps: int = 900
    optimiser: Literal["adamw", "adam"] = "adamw"  # whether weights decay by themselves, or as a part of the gradient
    learning_rate: float = 2e-3  # greatest, after the warm-up; falls to nothing along a cosine
    weight_decay: float = 0.02
    warmup_steps: int = 100
    clip_norm: float = 5.0  # gradients longer than this are shortened
    average: float = 0.995  # weights are averaged over steps with this memory; 0 takes the last ones
    epoch_steps: int = 150  # steps after which validation frames are looked at and the state is kept for resuming
    validation_frames: int = 200  # at most, of either sort, while training
    calibration_frames: int = 1500  # at most, of either sort, afterwards
    seed: int = 0
    batch: BatchSettings = field(default_factory=BatchSettings)
    augmentation: ImageAugmentation = field(default_factory=ImageAugmentation)

    __pydantic_config__ = STRICT_KEYS

    def __post_init__(self) -> None:
        if self.steps < 1 or self.epoch_steps < 1:
            raise InputError(f"{self.steps} training steps, {self.epoch_steps} per epoch", cure="at least one")
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate is {self.learning_rate}", cure="it must be more than 0")
        if not 0 <= self.average < 1:
            raise InputError(f"average is {self.average}", cure="it lies between 0 and 1")
        if self.seed < 0:
            raise InputError(f"the seed is {self.seed}", cure="it must not be negative")

    @property
    def epochs(self) -> int:
        return math.ceil(self.steps / self.epoch_steps)

    def rate_at(self, step: int) -> float:
        """Share of the learning rate at a step."""
        warmup = min(self.warmup_steps, self.steps // 4)
        if step < warmup:
            return (step + 1) / (warmup + 1)
        done = (step - warmup) / max(self.steps - warmup, 1)
        return 0.5 * (1 + math.cos(math.pi * done)) * 0.99 + 0.01


@dataclass(frozen=True)
class DetectorPreset:
    """A way to train a detector, with a name: settings by section, and for how many epochs of all frames."""

    detector: str
    network: Mapping[str, Any] = field(default_factory=dict)  # as `--set` gives them
    training: Mapping[str, Any] = field(default_factory=dict)  # as TrainingSettings; or epochs, and warmup_epochs
    batch: Mapping[str, Any] = field(default_factory=dict)
    augmentation: Mapping[str, Any] = field(default_factory=dict)

    __pydantic_config__ = STRICT_KEYS

    def settings(self, n_frames: int, given: Mapping[str, Any], batch: Mapping[str, Any]) -> TrainingSettings:
        """Its settings for so many frames to train on; those that are given go before its own."""
        own = dict(self.training)
        sizes = BatchSettings(**{**self.batch, **batch})
        per_epoch = max(math.ceil(n_frames / sizes.batch_size), 1)
        if "epochs" in own:
            own["steps"] = math.ceil(own.pop("epochs") * per_epoch)
            own.setdefault("epoch_steps", per_epoch)
        if "warmup_epochs" in own:
            own["warmup_steps"] = math.ceil(own.pop("warmup_epochs") * per_epoch)
        return TrainingSettings(**{**own, **given}, batch=sizes, augmentation=ImageAugmentation(**self.augmentation))


def detector_presets() -> list[str]:
    """Names of the detectors' presets that come with the package."""
    folder = resources.files("stormpsr") / "presets" / "detectors"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_detector_preset(source: str) -> DetectorPreset:
    """A shipped preset by name, or a YAML file."""
    known = detector_presets()
    shipped = Path(str(resources.files("stormpsr") / "presets" / "detectors" / f"{source}.yaml"))
    path = shipped if source in known else Path(source)
    if not path.is_file():
        cure = guess(source, known, f"give a YAML file or one of: {', '.join(known)}")
        raise InputError(f"there is no preset {source!r} of a detector", cure=cure)
    document = read_yaml(path)
    preset = validate(DetectorPreset, document)
    _check_sections(document)
    return preset


def _check_sections(document: Document) -> None:
    """Refuse keys and values of a preset's sections that the settings do not have."""
    training = dict(document.data.get("training", {}))
    for name in ("epochs", "warmup_epochs"):
        value = training.pop(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST_EPOCHS:
            raise document.error(f"training.{name} is {value!r:.40}", ("training", name), "write a number from 0 on")
    for name in ("batch", "augmentation"):
        if name in training:
            cure = f"'{name}:' is a section of its own, beside 'training:'"
            raise document.error(f"there is no key 'training.{name}'", ("training", name), cure)
    document = replace(document, data={**document.data, "training": training})
    sections = {"training": TrainingSettings, "batch": BatchSettings, "augmentation": ImageAugmentation}
    for name, kind in sections.items():
        if name in document.data:
            validate(kind, document, at=(name,), strict=True)


# ---------------------------------------------------------------------- batches
class Batches(Dataset):
    """Training batches by the number of their step, drawn from a frame set. Each process loads its share of a batch."""

    def __init__(
        self,
        frames: FrameSet,
        cache: FrameCache,
        settings: TrainingSettings,
        on_progress: OnProgress = ignore_progress,
    ) -> None:
        if not frames.readable:
            raise InputError("no frames with boxes to train on")
        self.frames, self.settings, self.shard = frames, settings, Shard()
        groups = (frames.readable, frames.images, frames.unreadable)
        self._chances = {id(group): self._chance_of(group) for group in groups}
        self._size = cache.image_size
        self._squares = self._decode(cache, on_progress)

    def __len__(self) -> int:
        return self.settings.steps

    def of(self, shard: Shard) -> Batches:
        """The same for one of several processes."""
        share = copy(self)
        share.shard = shard
        return share

    def _chance_of(self, frames: Sequence[AnnotatedFrame]) -> NDArray[np.float64]:
        """How often each frame is drawn: rare classes more often than they occur, wrong parts a fixed share."""
        settings = self.settings.batch
        classes = [frame.state_class for frame in frames]
        # frames of one state in one recording are much the same image
        scenes = [(frame.recording, frame.bits or state) for frame, state in zip(frames, classes, strict=True)]
        in_scene = Counter(scenes)
        alike = np.array([in_scene[scene] ** -settings.scene_balance for scene in scenes])
        in_class: Counter[int] = Counter()
        for state_class, weight in zip(classes, alike, strict=True):
            in_class[state_class] += weight
        chance = alike * [in_class[state_class] ** -settings.class_balance for state_class in classes]
        wrong = np.array([self._shows_wrong_part(frame) for frame in frames], dtype=bool)
        if wrong.any() and not wrong.all():
            chance[wrong] *= settings.wrong_share / chance[wrong].sum()
            chance[~wrong] *= (1 - settings.wrong_share) / chance[~wrong].sum()
        return np.asarray(chance / max(chance.sum(), 1e-12))

    def _shows_wrong_part(self, frame: AnnotatedFrame) -> bool:
        if frame.bits is None or frame.told is None:
            return self.frames.procedure.states[frame.state_class].kind is StateKind.ERROR
        return any(bit == -1 and told for bit, told in zip(frame.bits, frame.told, strict=True))

    def _decode(self, cache: FrameCache, on_progress: OnProgress) -> dict[FrameSource, Frames]:
        """The images of all steps: those are known now, and often they are a small part of all frames."""
        drawn: dict[FrameSource, set[int]] = {}
        for step in range(self.settings.steps):
            for frame in self._draw_step(np.random.default_rng((self.settings.seed, step))):
                drawn.setdefault(frame.source, set()).add(frame.frame)
        return {
            source: cache.frames(source, sorted(numbers), partial(on_progress, f"decode {source.path.parent.name}"))
            for source, numbers in drawn.items()
        }

    def __getitem__(self, step: int) -> Batch:
        rng = np.random.default_rng((self.settings.seed, step))
        chosen = self._draw_step(rng)
        if self.shard.count > 1:
            chosen = chosen[self.shard.rank :: self.shard.count]
            rng = np.random.default_rng((self.settings.seed, step, self.shard.rank))
        return self._load(chosen, step, rng)

    def _draw_step(self, rng: np.random.Generator) -> list[AnnotatedFrame]:
        frames, settings = self.frames, self.settings.batch
        n_readable = settings.n_readable if frames.unreadable else settings.batch_size
        n_images = round(n_readable * settings.image_share) if frames.images else 0
        chosen = self._draw(frames.readable, n_readable - n_images, rng)
        chosen += self._draw(frames.images, n_images, rng)
        n_others = settings.batch_size - n_readable
        return chosen + self._draw(frames.unreadable, n_others, rng)

    def _draw(self, frames: Sequence[AnnotatedFrame], n: int, rng: np.random.Generator) -> list[AnnotatedFrame]:
        if not n:
            return []
        return [frames[row] for row in rng.choice(len(frames), n, p=self._chances[id(frames)])]

    def _load(self, chosen: list[AnnotatedFrame], step: int, rng: np.random.Generator) -> Batch:
        size, n_components = self._size, self.frames.procedure.n_components
        n = len(chosen)
        images = np.empty((n, size, size, 3), dtype=np.uint8)
        corners = np.zeros((n, 4), dtype=np.float32)
        classes = np.zeros(n, dtype=np.int64)
        bits, told = (np.full((n, n_components), UNKNOWN, dtype=np.int64) for _ in range(2))
        places = np.full((n, n_components, N_POINTS, 2), np.nan, dtype=np.float32)
        for i, frame in enumerate(chosen):
            square, box = self._squares[frame.source][frame.frame], None
            if frame.box is not None:
                box = Placement.of(*frame.size, size).into_square(frame.box).corners
            classes[i] = frame.state_class
            if frame.told is not None:
                told[i] = frame.told
            if frame.bits is not None:
                bits[i] = np.where(told[i] == 0, UNKNOWN, frame.bits)
            images[i], moved, matrix_23 = augment_image(square, box, self.settings.augmentation, rng)
            if frame.places_CP2 is not None:
                in_square = Placement.of(*frame.size, size).points_into_square(frame.places_CP2 * frame.size)
                places[i] = in_square @ matrix_23[:, :2].T + matrix_23[:, 2]
            if moved is not None:
                corners[i] = moved
        readable = np.array([frame.box is not None for frame in chosen])
        maybe_hidden = np.array([frame.maybe_hidden for frame in chosen])
        arrays = (images, readable, maybe_hidden, corners, classes, bits, told, places)
        return Batch._make([*map(torch.from_numpy, arrays), step])


# ---------------------------------------------------------------------- the task
class DetectorTask(Task):
    """Minimises the detector's own losses, and carries along the moving average of its weights."""

    keeps_best = False

    def __init__(
        self,
        detector: StepTrainedDetector,
        settings: TrainingSettings,
        batches: Batches,
        val: FrameSet,
    ) -> None:
        def make_dataset(epoch: int, shard: Shard) -> Dataset:
            begin = epoch * settings.epoch_steps
            return Subset(batches.of(shard), range(begin, min(begin + settings.epoch_steps, settings.steps)))

        about = {"kind": detector.kind, "network": detector.settings(), "training": asdict(settings)}
        super().__init__(json.loads(json.dumps(about)), settings.seed, make_dataset, [0])
        self.detector, self.training_settings = detector, settings
        self.network = detector.network
        self.average = AveragedModel(self.network, multi_avg_fn=_moving_average(settings.average), use_buffers=True)
        self.average.requires_grad_(False)
        self.average.update_parameters(self.network)  # the first update copies: the average begins where training does
        self.first_step: int | None = None
        self._val = val

    def n_batches(self, epochs: int) -> int:
        return self.training_settings.steps

    def configure_optimizers(self) -> Any:
        settings = self.training_settings
        groups = self.detector.parameter_groups(settings.learning_rate)
        kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
        optimiser = kind(groups, weight_decay=settings.weight_decay)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, settings.rate_at)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()
        self.network.train()

    def training_step(self, batch: Batch, index: int) -> Tensor:
        if self.first_step is None:
            self.first_step = batch.step
        # so that resumed training draws the same numbers
        torch.manual_seed((self.seed + self.trainer.global_rank * _SEEDS_APART) * _SEEDS_APART + batch.step)
        losses = self.detector.losses(batch)
        total = torch.stack(list(losses.values())).sum()
        if not torch.isfinite(total):
            cure = "lower the learning rate, or start again with another seed"
            raise InputError(f"training diverged: the loss of step {batch.step} is {float(total.detach())}", cure=cure)
        for name, loss in losses.items():
            self.log(f"train/{name}", loss, sync_dist=True)
        self._log_loss(total)
        return total

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.training_settings.clip_norm)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)
        self.average.update_parameters(self.network)

    def validation_step(self, number: int, index: int) -> None:
        """Nothing: detectors look at images of any size, and say so frame by frame."""

    def on_validation_epoch_end(self) -> None:
        most = self.training_settings.validation_frames
        readable = self._val.readable[:: max(1, math.ceil(len(self._val.readable) / most))]
        with self._averaged():
            seen = predict_frames(self.detector, readable, min_confidence=0.0)
        right = sum(frame.best is not None and frame.is_right(frame.best) for frame in seen)
        self.metrics = {"right": right / len(seen)}
        self.log("val/right", self.metrics["right"], rank_zero_only=False)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """A block in which the network has the averaged weights; it trains on with its own."""
        own = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
        self.take_average()
        try:
            yield
        finally:
            self.network.load_state_dict(own)
            self.network.train()

    def take_average(self) -> None:
        """Leave the averaged weights in the detector."""
        self.network.load_state_dict(self.average.module.state_dict())
        self.network.eval()


def _moving_average(average: float) -> Callable[[Sequence[Tensor], Sequence[Tensor], Tensor], None]:
    """How `AveragedModel` follows the weights: with a short memory at first, when they move fast."""

    def update(kept: Sequence[Tensor], current: Sequence[Tensor], n_averaged: Tensor) -> None:
        step = int(n_averaged) - 1
        memory = min(average, (1 + step) / (10 + step))
        for ours, theirs in zip(kept, current, strict=True):
            if ours.is_floating_point():
                ours.lerp_(theirs, 1 - memory)
            else:
                ours.copy_(theirs)

    return update


# ---------------------------------------------------------------------- training from beginning to end
def train_detector(
    detector: StateDetector,
    train: FrameSet,
    val: FrameSet,
    settings: TrainingSettings,
    *,
    folder: Path | None = None,
    options: FitOptions | None = None,
    cache_folder: Path | None = None,
    on_progress: OnProgress = ignore_progress,
    note: Callable[[], Mapping[str, float]] = dict,
) -> dict[str, float] | None:
    """Train a detector, calibrate it on validation frames, and save it if a folder is given; the last metrics.

    With a folder, training that was stopped goes on from there; the same settings are required. Decoded frames are kept
    in `cache_folder`, or only until the training is done. note: what else is saved of the training, asked at its end.
    """
    options = options or FitOptions()
    detector.check_procedure(train.procedure)
    if not isinstance(detector, StepTrainedDetector):
        cure = "derive its class from StepTrainedDetector"
        raise InputError(f"a detector of kind {detector.kind!r} cannot be trained", cure=cure)
    if not detector.learns_parts:
        train = replace(train, images=tuple(image for image in train.images if image.state_class))
    if settings.batch.batch_size % options.processes:
        cure = f"change the batch size so that {options.processes} divides it, or --devices"
        raise InputError(f"a batch of {settings.batch.batch_size} cannot be shared equally", cure=cure)
    check_machine(options)
    with tempfile.TemporaryDirectory() as elsewhere, ExitStack() as alone:
        place = Path(elsewhere) if folder is None else folder / UNFINISHED_FOLDER
        if folder is not None and rank_zero_only.rank == 0:
            alone.enter_context(only_user(folder))
        cache = FrameCache(cache_folder or place / "cache", detector.image_size)
        batches = Batches(train, cache, settings, on_progress=on_progress)
        task = DetectorTask(detector, settings, batches, val)
        options = replace(options, resume=True)
        fit(task, epochs=settings.epochs, folder=StageFolder(place), procedure=train.procedure, options=options)
        task.take_average()
        metrics = {"resumed_at": float(task.first_step or 0), **task.metrics}
        if rank_zero_only.rank != 0:  # the first process does the rest
            return None
        detector.to(options.torch_device)
        detector.calibration = calibrate(detector, val, settings.calibration_frames)
        detector.known_views = known_views(detector, train, settings.calibration_frames)
        detector.to("cpu")
        if folder is not None:
            detector.metrics["training"] = {**asdict(settings), **metrics, **note()}
            detector.save(folder)
            shutil.rmtree(folder / UNFINISHED_FOLDER, ignore_errors=True)
    return metrics


def calibrate(detector: TorchDetector, val: FrameSet, most_frames: int) -> Calibration:
    """The calibration that fits validation frames; readable and other frames count as often as they occur."""
    kept, detector.calibration = detector.calibration, Calibration()
    try:
        return fit_calibration(*confidence_and_success(_predict_some(detector, val, 2 * most_frames)))
    finally:
        detector.calibration = kept


def known_views(detector: TorchDetector, train: FrameSet, most_frames: int) -> KnownViews | None:
    """What images of the work look like to the detector: training frames show most faults. None: it cannot tell."""
    if detector.reader_digest is None:
        return None
    seen = _predict_some(detector, train, 2 * most_frames)
    return KnownViews.fit([f.best.found_QD for f in seen if f.best is not None and f.best.found_QD is not None])


def _predict_some(detector: TorchDetector, frames: FrameSet, most: int) -> list[PredictedFrame]:
    total = len(frames.readable) + len(frames.unreadable)
    chosen = frames.thinned(max(1, math.ceil(total / most)))
    return predict_frames(detector, [*chosen.readable, *chosen.unreadable], min_confidence=0.0)
