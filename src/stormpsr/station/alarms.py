"""What a person must be told of: wrong and skipped steps, steps that take too long, a camera that sees nothing.

An alarm is open until its cause is gone. What was wrong with a unit when it was finished stays open until somebody
acknowledges it, or another unit has come and gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

import numpy as np

from stormpsr.data.images import Image
from stormpsr.station.records import Entry, Record
from stormpsr.station.work import Work, evidence_url

AlarmKind = Literal["wrong", "skipped", "too_long", "unexpected", "camera_lost", "dark", "frozen"]
CameraStatus = Literal["starting", "ok", "lost", "stalled", "dark", "frozen", "ended"]
_OF_CAMERA: Mapping[str, AlarmKind] = {
    "lost": "camera_lost",
    "stalled": "camera_lost",
    "dark": "dark",
    "frozen": "frozen",
}
_LASTING = ("wrong", "skipped", "unexpected")  # beyond the end of their unit


@dataclass
class Alarm:
    """Something that a person must be told of."""

    id: int  # of its record
    kind: AlarmKind
    time: str
    unit: int | None
    step_id: int | None
    text: str | None
    picture: str | None
    clip: str | None = None
    acknowledged: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("id", "kind", "unit", "step_id", "text", "time", "acknowledged")},
            "picture": evidence_url(self.picture),
            "clip": evidence_url(self.clip),
        }


@dataclass
class Alarms:
    """The open alarms, by the records."""

    open: dict[int, Alarm] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        data = record.data
        if record.kind == "alarm":
            own = (data["alarm"], record.time, record.unit, data["step_id"], data["text"], data["picture"])
            self.open[record.id] = Alarm(record.id, *own)
        elif record.kind == "alarm_closed":
            self.open.pop(data["alarm"], None)
        elif record.kind == "acknowledged" and data["alarm"] in self.open:
            self.open[data["alarm"]].acknowledged = True
        elif record.kind == "clip" and data["alarm"] in self.open:
            self.open[data["alarm"]].clip = data["clip"]

    def due(self, work: Work, camera: CameraStatus, overdue: int | None) -> Iterator[Entry]:
        """What is to be recorded now: alarms that begin and alarms that end. `overdue`: a step that takes too long."""
        unit = work.unit.id if work.unit else 0
        causes = {(kind, step_id): text for kind, step_id, text in _causes(work, camera, overdue)}
        there = set()
        for alarm in list(self.open.values()):
            cause = (alarm.kind, alarm.step_id)
            if cause in causes and alarm.unit in (None, unit):
                there.add(cause)
                continue
            lasts = alarm.kind in _LASTING and not (
                alarm.unit == unit and work.is_running and alarm.kind != "unexpected"
            )
            if not lasts or alarm.acknowledged or (alarm.unit or 0) < unit - 1:
                yield Entry("alarm_closed", {"alarm": alarm.id, "kind": alarm.kind}, alarm.unit)
        for (kind, step_id), text in causes.items():
            if (kind, step_id) not in there:
                data = {"alarm": kind, "step_id": step_id, "text": text, "picture": None}
                yield Entry("alarm", data, unit if step_id is not None else None)

    def to_json(self) -> list[dict[str, Any]]:
        return [alarm.to_json() for alarm in sorted(self.open.values(), key=lambda alarm: -alarm.id)]


def _causes(
    work: Work, camera: CameraStatus, overdue: int | None
) -> Iterator[tuple[AlarmKind, int | None, str | None]]:
    if camera in _OF_CAMERA:
        yield _OF_CAMERA[camera], None, None
    for step_id, state in work.steps.items() if work.is_running else ():
        text = work.procedure.step(step_id).description
        if state.status == "wrong":
            yield "wrong", step_id, text
        if state.status == "skipped":
            yield "skipped", step_id, text
        if step_id == overdue:
            yield "too_long", step_id, text


# ---------------------------------------------------------------------- how long steps take
@dataclass
class Durations:
    """How long each step took in units that passed; what is much longer takes too long."""

    fixed: Mapping[int, float] = field(default_factory=dict)  # bounds that somebody set, in seconds, by step
    fixed_for_all: float | None = None
    least_units: int = 5  # before that nothing is known
    seconds: dict[tuple[str, int], deque[float]] = field(default_factory=dict)  # by variant and step

    def learn(self, work: Work) -> None:
        """From a unit that is finished."""
        if work.unit is None or work.unit.status != "pass":
            return
        for step_id, state in work.steps.items():
            if state.seconds is not None:
                self.seconds.setdefault((work.unit.variant, step_id), deque(maxlen=200)).append(state.seconds)

    def usual(self, variant: str, step_id: int) -> float | None:
        known = self.seconds.get((variant, step_id), ())
        return round(median(known), 1) if len(known) >= self.least_units else None

    def bound(self, variant: str, step_id: int) -> float | None:
        """After how many seconds a step takes too long; None if nobody knows."""
        if step_id in self.fixed or self.fixed_for_all is not None:
            return self.fixed.get(step_id, self.fixed_for_all)
        known = sorted(self.seconds.get((variant, step_id), ()))
        if len(known) < self.least_units:
            return None
        return max(3 * median(known), 1.5 * known[int(0.9 * (len(known) - 1))], 10.0)

    def overdue(self, work: Work, waited_seconds: float) -> tuple[set[int], int | None]:
        """The steps that could have come and take too long; and the first of them if all that could come do."""
        if not work.is_running or work.unit is None:
            return set(), None
        bounds = {step_id: self.bound(work.unit.variant, step_id) for step_id in work.next_steps()}
        late = {step_id for step_id, bound in bounds.items() if bound is not None and waited_seconds > bound}
        return late, min(late) if late and len(late) == len(bounds) else None


# ---------------------------------------------------------------------- what the camera shows
class ImageWatch:
    """Feed it every image: is it too dark, or does it stand still? A camera's noise differs from image to image."""

    def __init__(self, dark_below: float = 12.0, dark_seconds: float = 3.0, frozen_seconds: float = 8.0) -> None:
        self._dark_below, self._dark_seconds, self._frozen_seconds = dark_below, dark_seconds, frozen_seconds
        self.reset()

    def reset(self) -> None:
        self._before: Image | None = None
        self._changed_at = self._bright_at = None

    _changed_at: float | None
    _bright_at: float | None

    def update(self, image: Image, seconds: float) -> Literal["ok", "dark", "frozen"]:
        rows, columns = (max(side // 64, 1) for side in image.shape[:2])
        small = image[::rows, ::columns]
        if self._before is None or small.shape != self._before.shape or not np.array_equal(small, self._before):
            self._before, self._changed_at = small.copy(), seconds
        if self._bright_at is None or float(np.percentile(small, 95)) >= self._dark_below:
            self._bright_at = seconds
        if seconds - self._bright_at >= self._dark_seconds:
            return "dark"
        return "frozen" if seconds - (self._changed_at or 0.0) >= self._frozen_seconds else "ok"


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Median and spread of durations; None of none."""
    if not values:
        return None
    p10, middle, p90 = np.percentile(values, [10, 50, 90])
    found = {"median": middle, "p10": p10, "p90": p90, "min": min(values), "max": max(values)}
    return {"n": len(values), **{name: round(float(value), 1) for name, value in found.items()}}
