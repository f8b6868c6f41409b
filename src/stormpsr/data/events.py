"""The two small records that flow through everything: a state seen in a frame, and a step completed at a frame."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass

from stormpsr.errors import InputError


def _index(value: object, name: str) -> int:
    """A whole number that is not negative. numpy integers are welcome, True and 3.0 are not."""
    if isinstance(value, bool):
        raise InputError(f"{name} is {value!r}, not a whole number")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{name} is {value!r}, not a whole number") from None
    if number < 0:
        raise InputError(f"{name} is {number}, but it cannot be negative")
    return number


def _finite(value: object, name: str) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(f"{name} is {value!r}, not a number") from None
    if not math.isfinite(number):
        raise InputError(f"{name} is {number}, not a finite number")
    return number


@dataclass(frozen=True, slots=True)
class StepEvent:
    """A procedure step completed at a frame. Labels and predictions are both step events."""

    step_id: int  # 3 * component + 0 install, 1 incorrectly installed, 2 remove
    frame: int  # index of the first frame in which the step counts as completed
    time_seconds: float | None = None  # the frame's time stamp, where there is one
    confidence: float | None = None  # evidence at the moment of the event (may exceed 1: it is accumulated)
    source: str | None = None  # who says so: "naive", "expected", "label", ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "step_id", _index(self.step_id, "step_id"))
        object.__setattr__(self, "frame", _index(self.frame, "frame"))
        if self.time_seconds is not None:
            object.__setattr__(self, "time_seconds", _finite(self.time_seconds, "time_seconds"))
        if self.confidence is not None:
            object.__setattr__(self, "confidence", _finite(self.confidence, "confidence"))


@dataclass(frozen=True, slots=True)
class StateDetection:
    """A detector's word on one frame: which class of the procedure's state table it sees, and how surely."""

    frame: int
    state_class: int  # index into `Procedure.states`; 0 is usually the background
    confidence: float  # 0..1
    box: tuple[float, float, float, float] | None = None  # x, y, width, height, in the detector's own convention

    def __post_init__(self) -> None:
        object.__setattr__(self, "frame", _index(self.frame, "frame"))
        object.__setattr__(self, "state_class", _index(self.state_class, "state_class"))
        confidence = _finite(self.confidence, "confidence")
        if not 0.0 <= confidence <= 1.0:
            raise InputError(f"confidence is {confidence}, but it must lie between 0 and 1")
        object.__setattr__(self, "confidence", confidence)
        if self.box is not None:
            if len(self.box) != 4:
                raise InputError(f"a box has 4 numbers, this one has {len(self.box)}")
            object.__setattr__(self, "box", tuple(_finite(side, "a side of the box") for side in self.box))
