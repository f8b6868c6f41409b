"""What the page is about: the run with every recording's events matched to its labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stormpsr.data.events import StepEvent
from stormpsr.errors import InputError
from stormpsr.evaluation.metrics import Scores, score
from stormpsr.evaluation.run_folder import MethodInfo, RecordingRun, Run, RunInfo
from stormpsr.procedure.model import Procedure, StepKind

LOOKS = ("detection", "temporal", "average", "released", "spare1", "spare2")  # colours and marks of the style sheet


@dataclass(frozen=True)
class Method:
    """A method and how it looks on the page."""

    name: str
    title: str
    look: str  # one of LOOKS
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Delay:
    """A step that was recognised, and how late."""

    recording: str
    step_id: int
    label_frame: int
    seconds: float


@dataclass(frozen=True)
class GroupMetrics:
    """A row of the main table; None where a score is not known."""

    n_recordings: int
    pos: float | None
    f1: float | None
    delay_seconds: float | None
    pos_interval: tuple[float, float] | None
    f1_interval: tuple[float, float] | None
    delay_interval: tuple[float, float] | None
    n_without_match: int


@dataclass(frozen=True, eq=False)
class RecordingView:
    """A recording and how each method's events fit its labels, by the paper's matching."""

    run: RecordingRun
    scores: Mapping[str, Scores]  # by method; a method that was not run here is not there

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def seconds(self) -> float:
        return self.run.n_frames / self.run.fps

    def time(self, frame: int) -> float:
        return frame / self.run.fps

    def delays(self, method: str) -> Iterator[Delay]:
        for match in self.scores[method].matches if method in self.scores else ():
            late = match.delay_frames / self.run.fps
            yield Delay(self.name, match.step_id, match.label_frame, late)

    def event(self, method: str, step_id: int, frame: int) -> StepEvent:
        """The event that a match speaks of."""
        return next(e for e in self.run.events[method] if (e.step_id, e.frame) == (step_id, frame))

    def wrong_installs(self, procedure: Procedure) -> list[StepEvent]:
        """Where a part was put in wrong, if the labels say so."""
        full = self.run.labels_with_errors or ()
        return [event for event in full if procedure.step(event.step_id).kind is StepKind.INCORRECT]


@dataclass(frozen=True, eq=False)
class Content:
    """Everything that the page shows."""

    info: RunInfo
    procedure: Procedure
    methods: tuple[Method, ...]
    recordings: tuple[RecordingView, ...]

    @property
    def main(self) -> Method | None:
        """The method that the page is about: the fusion where there is one, else the last."""
        return next((m for m in self.methods if m.name == "average"), self.methods[-1] if self.methods else None)

    @property
    def baseline(self) -> Method | None:
        """What the main method is compared with."""
        others = [method for method in self.methods if method is not self.main]
        return next((m for m in others if m.name == "detection"), others[0] if others else None)

    @cached_property
    def n_labels(self) -> int:
        return sum(len(view.run.labels) for view in self.recordings)

    def n_labels_of(self, method: Method) -> int:
        """Labelled steps of the recordings that a method was run on."""
        return sum(len(view.run.labels) for view in self.recordings if method.name in view.scores)

    def delays(self, method: Method) -> list[Delay]:
        return [delay for view in self.recordings for delay in view.delays(method.name)]

    def step_name(self, step_id: int) -> str:
        return self.procedure.step(step_id).description

    def group(self, method: Method, name: str) -> GroupMetrics | None:
        """`all`, `without_errors` or `with_errors` of a method's summary."""
        summary = self.info.summary.get(method.name)
        group = summary.get(name) if isinstance(summary, Mapping) else None
        return _figures(group) if isinstance(group, Mapping) else None

    def recording_row(self, method: Method, name: str) -> Mapping[str, Any]:
        """A recording's scores by the protocol of the run; empty where they are not known."""
        summary = self.info.summary.get(method.name)
        rows = summary.get("recordings") if isinstance(summary, Mapping) else None
        return next((row for row in rows or () if row.get("name") == name), {})


def collect(run: Run) -> Content:
    """Read all recordings of a run and match their events."""
    if not run.names:
        raise InputError("the run has no recordings", path=run.path, cure="evaluate again")
    methods = tuple(_looks(run.info.methods))
    views = []
    for name in run.names:
        where = run.path / "recordings" / f"{name}.json"
        try:
            views.append(_view(run.recording(name), methods, run.procedure))
        except InputError as error:
            raise InputError(error.problem, path=error.path or where, cure=error.cure or "evaluate again") from None
    return Content(run.info, run.procedure, methods, tuple(views))


def _looks(infos: Sequence[MethodInfo]) -> Iterator[Method]:
    taken = {info.name for info in infos}
    free = [look for look in LOOKS if look not in taken]
    for info in infos:
        look = info.name if info.name in LOOKS else (free.pop(-1) if free else LOOKS[-1])
        yield Method(info.name, info.title, look, info.settings)


def _view(recording: RecordingRun, methods: Sequence[Method], procedure: Procedure) -> RecordingView:
    if recording.n_frames < 1:
        raise InputError(f"the recording has {recording.n_frames} frames")
    for event in recording.labels_with_errors or ():
        procedure.step(event.step_id)
    scores = {
        method.name: score(recording.labels, recording.events[method.name], procedure=procedure, fps=recording.fps)
        for method in methods
        if method.name in recording.events
    }
    return RecordingView(recording, scores)


def _figures(group: Mapping[str, Any]) -> GroupMetrics:
    return GroupMetrics(
        n_recordings=int(number(group.get("n_recordings")) or 0),
        pos=number(group.get("pos")),
        f1=number(group.get("f1")),
        delay_seconds=number(group.get("delay_seconds")),
        pos_interval=_interval(group.get("pos_interval")),
        f1_interval=_interval(group.get("f1_interval")),
        delay_interval=_interval(group.get("delay_interval")),
        n_without_match=int(number(group.get("n_without_match")) or 0),
    )


def number(value: Any) -> float | None:
    """A finite number of a summary, or None."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def _interval(value: Any) -> tuple[float, float] | None:
    if not isinstance(value, Mapping):
        return None
    low, high = number(value.get("low")), number(value.get("high"))
    return None if low is None or high is None else (low, high)
