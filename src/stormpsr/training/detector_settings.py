"""How a detector is trained, and what is reported while and after."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from stormpsr.detectors.calibration import Calibration
from stormpsr.errors import InputError
from stormpsr.training.augment_images import AugmentationSettings
from stormpsr.training.detector_batches import BatchSettings


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How long and how fast."""

    steps: int = 900
    learning_rate: float = 2e-3  # greatest, after the warm-up; falls to nothing along a cosine
    weight_decay: float = 0.02
    warmup_steps: int = 100
    clip_norm: float = 5.0  # gradients longer than this are shortened
    average: float = 0.995  # weights are averaged over steps with this memory; 0 takes the last ones
    validate_every: int = 300  # steps; 0 never
    validation_frames: int = 200  # at most, of either sort, while training
    calibration_frames: int = 1500  # at most, of either sort, afterwards
    pause_every: int = 200  # steps after which the state is kept for resuming
    seed: int = 0
    batch: BatchSettings = field(default_factory=BatchSettings)
    augmentation: AugmentationSettings = field(default_factory=AugmentationSettings)

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"{self.steps} training steps", cure="at least one")
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate is {self.learning_rate}", cure="it must be more than 0")
        if not 0 <= self.average < 1:
            raise InputError(f"average is {self.average}", cure="it lies between 0 and 1")
        if self.seed < 0:
            raise InputError(f"the seed is {self.seed}", cure="it must not be negative")

    def rate_at(self, step: int) -> float:
        """Share of the learning rate at a step."""
        warmup = min(self.warmup_steps, self.steps // 4)
        if step < warmup:
            return (step + 1) / (warmup + 1)
        done = (step - warmup) / max(self.steps - warmup, 1)
        return 0.5 * (1 + math.cos(math.pi * done)) * 0.99 + 0.01


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """Where training is."""

    step: int
    steps: int
    losses: dict[str, float]
    share_right: float | None = None  # of readable validation frames, where they were just looked at


@dataclass(frozen=True)
class TrainingResult:
    """What training did."""

    steps: int
    resumed_at: int
    history: tuple[TrainingProgress, ...]  # one entry per validation
    calibration: Calibration


OnTraining = Callable[[TrainingProgress], None]
