"""What an assembly state detector says about an image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StateDetection
from stormpsr.errors import InputError

DEFAULT_MIN_CONFIDENCE = 0.1  # weaker detections are left out; decoders weigh the rest by their confidence


@dataclass(frozen=True, eq=False)
class Detection:
    """An assembly in an image. The box is the upper left corner, width and height in pixels, as in COCO."""

    box: tuple[float, float, float, float]
    state_class: int
    confidence: float  # of the box and of the class together, 0..1
    parts_C3: NDArray[np.float32] | None = None  # per component: probability of absent, correct, wrong

    def __post_init__(self) -> None:
        if len(self.box) != 4 or not all(np.isfinite(side) for side in self.box):
            raise InputError(f"a box is four finite numbers, not {self.box}")
        if not 0.0 <= self.confidence <= 1.0:
            raise InputError(f"confidence is {self.confidence}, but it must lie between 0 and 1")

    def in_frame(self, frame: int) -> StateDetection:
        """The same as the decoders take it."""
        return StateDetection(frame, self.state_class, self.confidence, self.box)


def sorted_best(detections: list[Detection], min_confidence: float) -> list[Detection]:
    """The most confident first, without those below the bar."""
    kept = [detection for detection in detections if detection.confidence >= min_confidence]
    return sorted(kept, key=lambda detection: -detection.confidence)
