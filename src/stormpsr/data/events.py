"""The two small records that flow through everything: a state seen in a frame, and a step completed at a frame."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

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


# unexpected: completed, though the variant does not ask for it. The other two are alarms, no completions: a part that
# sits wrongly, and an expected step that was left out
EventKind = Literal["completed", "unexpected", "wrong", "skipped"]


def completions(events: Iterable[StepEvent]) -> list[StepEvent]:
    """The steps that were completed, without alarms."""
    return [event for event in events if event.kind in ("completed", "unexpected")]


@dataclass(frozen=True, slots=True)
class StepEvent:
    """A procedure step completed at a frame. Labels and predictions are both step events."""

    step_id: int  # 3 * component + 0 install, 1 incorrectly installed, 2 remove
    frame: int  # index of the first frame in which the step counts as completed
    time_seconds: float | None = None  # the frame's time stamp, where there is one
    confidence: float | None = None  # evidence at the moment of the event (may exceed 1: it is accumulated)
    source: str | None = None  # who says so: "naive", "expected", "label", ...
    kind: EventKind = "completed"

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

    @classmethod
    def from_ultralytics(cls, result: Any, *, frame: int, class_offset: int = 1) -> list[StateDetection]:
        """The boxes of one ultralytics `Results`, most confident first.

        class_offset: added to its class numbers, because here class 0 is usually the background, which a network of
        ultralytics' own training does not have. Give 0 for one that was trained with all of the procedure's classes.
        """
        boxes = result.boxes
        if boxes is None:
            raise InputError("the result has no boxes", cure="detections come from a model that detects boxes")
        return cls._most_confident_first(boxes.xyxy, boxes.cls, boxes.conf, frame, class_offset)

    @classmethod
    def from_supervision(cls, detections: Any, *, frame: int, class_offset: int = 1) -> list[StateDetection]:
        """The boxes of a `supervision.Detections`, most confident first; `class_offset` as in `from_ultralytics`."""
        if len(detections.xyxy) and (detections.class_id is None or detections.confidence is None):
            raise InputError("the detections have no class_id or no confidence", cure="a detector gives both")
        classes, confidences = (() if v is None else v for v in (detections.class_id, detections.confidence))
        return cls._most_confident_first(detections.xyxy, classes, confidences, frame, class_offset)

    @classmethod
    def _most_confident_first(
        cls, corners: Iterable[Any], classes: Iterable[Any], confidences: Iterable[Any], frame: int, class_offset: int
    ) -> list[StateDetection]:
        """Rows of x0, y0, x1, y1 with class and confidence: arrays or tensors, which are read number by number."""
        found = []
        for row, number, confidence in zip(corners, classes, confidences, strict=True):
            x0, y0, x1, y1 = (float(side) for side in row)
            found.append(cls(frame, int(number) + class_offset, float(confidence), (x0, y0, x1 - x0, y1 - y0)))
        return sorted(found, key=lambda detection: -detection.confidence)
