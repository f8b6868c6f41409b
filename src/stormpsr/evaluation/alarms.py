"""How good alarms are: parts that sit wrongly, and expected steps that were left out.

POS, F1 and tau speak of correct completions only, and so does the literature; these are figures of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stormpsr.data.events import StepEvent
from stormpsr.data.labels import StateTimeline
from stormpsr.procedure.model import Procedure, Variant


@dataclass(frozen=True, slots=True)
class Alarms:
    """Alarms of one recording, or of many."""

    seconds: float  # of video
    wrong_placements: int  # times that a part was put on wrongly
    wrong_found: int  # alarms that came while it sat there
    wrong_delays_seconds: tuple[float, ...]  # from the wrong placement to the alarm
    wrong_false: int  # alarms of parts that did not sit wrongly; a second alarm of the same placement is neither
    skipped_steps: int  # expected installations that never came
    skipped_found: int
    skipped_false: int  # alarms of steps that were completed, sooner or later

    @property
    def wrong_recall(self) -> float | None:
        return self.wrong_found / self.wrong_placements if self.wrong_placements else None

    @property
    def wrong_delay_seconds(self) -> float | None:
        delays = self.wrong_delays_seconds
        return sum(delays) / len(delays) if delays else None

    @property
    def skipped_recall(self) -> float | None:
        return self.skipped_found / self.skipped_steps if self.skipped_steps else None

    @property
    def wrong_false_per_hour(self) -> float:
        return 3600 * self.wrong_false / self.seconds if self.seconds else 0.0

    @property
    def skipped_false_per_hour(self) -> float:
        return 3600 * self.skipped_false / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, ready for JSON."""
        counted = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "wrong_delays_seconds"}
        derived = ("wrong_recall", "wrong_delay_seconds", "wrong_false_per_hour", "skipped_recall")
        return counted | {name: getattr(self, name) for name in (*derived, "skipped_false_per_hour")}


def score_alarms(
    events: Iterable[StepEvent],
    labels: Sequence[StepEvent],
    states: StateTimeline,
    procedure: Procedure,
    variant: Variant,
    *,
    fps: float,
    n_frames: int,
) -> Alarms:
    """The alarms among events, held against the labelled states and the steps that were completed."""
    wrong = _wrong_stretches(states, n_frames)
    found: dict[tuple[int, int], int] = {}  # a wrong placement, and when it was told first
    wrong_false = 0
    completed = {label.step_id for label in labels}
    skipped = {step for step in variant.expected if procedure.step(step).installs and step not in completed}
    told_skipped: set[int] = set()
    for event in sorted(events, key=lambda event: event.frame):
        if event.kind == "skipped":
            told_skipped.add(event.step_id)
        elif event.kind == "wrong":
            component = procedure.step(event.step_id).component_index
            during = [(k, begin) for k, begin, end in wrong if k == component and begin <= event.frame < end]
            if during:
                found.setdefault(during[0], event.frame)
            else:
                wrong_false += 1
    return Alarms(
        seconds=n_frames / fps,
        wrong_placements=len(wrong),
        wrong_found=len(found),
        wrong_delays_seconds=tuple((frame - begin) / fps for (_, begin), frame in found.items()),
        wrong_false=wrong_false,
        skipped_steps=len(skipped),
        skipped_found=len(skipped & told_skipped),
        skipped_false=len(told_skipped - skipped),
    )


def _wrong_stretches(states: StateTimeline, n_frames: int) -> list[tuple[int, int, int]]:
    """Component, first frame and one past the last frame of each time that a part sat wrongly."""
    found = []
    ends = [*states.frames[1:], n_frames]
    for k in range(len(states.states[0])):
        begin: int | None = None
        for frame, bits, end in zip(states.frames, states.states, ends, strict=True):
            if bits[k] == -1 and begin is None:
                begin = frame
            elif bits[k] != -1 and begin is not None:
                found.append((k, begin, frame))
                begin = None
            if begin is not None and end == n_frames:
                found.append((k, begin, n_frames))
    return found


def put_together(alarms: Sequence[Alarms]) -> Alarms:
    """The alarms of several recordings."""
    sums = {
        name: sum(getattr(one, name) for one in alarms)
        for name in Alarms.__dataclass_fields__
        if name != "wrong_delays_seconds"
    }
    return Alarms(**sums, wrong_delays_seconds=tuple(delay for one in alarms for delay in one.wrong_delays_seconds))
