"""What the page is about: the run with every recording's events matched to its labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from stormpsr.data.events import StepEvent
from stormpsr.decoding.methods import METHODS
from stormpsr.decoding.predictions import Decoder
from stormpsr.errors import InputError
from stormpsr.evaluation.metrics import Match, Scores, score
from stormpsr.evaluation.report.images import FrameReader
from stormpsr.evaluation.run_folder import MethodInfo, RecordingRun, Run, RunInfo
from stormpsr.procedure.model import Procedure, StepKind

LOOKS = ("square", "triangle", "circle", "diamond", "wedge", "plus")  # marks and dashes of the style sheet
_LOOK_OF = dict(zip(("detection", "temporal", "average", "released"), LOOKS, strict=False))


@dataclass(frozen=True)
class Method:
    """A method and how it looks on the page."""

    name: str
    title: str
    look: str  # one of LOOKS
    settings: Mapping[str, Any]
    colour: str = Decoder.colour
    dark_colour: str = Decoder.dark_colour


@dataclass(frozen=True, slots=True)
class Delay:
    """A step that was recognised, and how late."""

    recording: str
    step_id: int
    label_frame: int
    seconds: float


@dataclass(frozen=True)
class Figure:
    """A score with its interval; None where it is not known."""

    value: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class GroupMetrics:
    """The scores of a group of recordings, as the run has them."""

    n_recordings: int
    n_without_match: int
    pos: Figure
    f1: Figure
    delay: Figure  # seconds


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

    def match(self, method: Method, step_id: int, label_frame: int) -> Match | None:
        """What a method made of a label, if it recognised it."""
        found = self.scores[method.name].matches
        return next((m for m in found if (m.step_id, m.label_frame) == (step_id, label_frame)), None)

    def wrong_installs(self, procedure: Procedure) -> list[StepEvent]:
        """Where a part was put in wrong, if the labels say so."""
        full = self.run.labels_with_errors or ()
        return [event for event in full if procedure.step(event.step_id).kind is StepKind.INCORRECT]

    @cached_property
    def hidden(self) -> list[tuple[int, int]] | None:
        """(first, one past the last) frames in which the state could not be read; None if nobody knows."""
        if self.run.readable is None:
            return None
        hidden, begin = [], 0
        for first, last in sorted(self.run.readable):
            if first > begin:
                hidden.append((begin, first))
            begin = max(begin, last + 1)
        if begin < self.run.n_frames:
            hidden.append((begin, self.run.n_frames))
        return hidden

    @property
    def hidden_share(self) -> float:
        return sum(end - begin for begin, end in self.hidden or ()) / max(self.run.n_frames, 1)


@dataclass(frozen=True, eq=False)
class Content:
    """Everything that the page shows."""

    info: RunInfo
    procedure: Procedure
    methods: tuple[Method, ...]
    recordings: tuple[RecordingView, ...]
    frames: FrameReader = field(default_factory=lambda: FrameReader(Path()))

    @property
    def main(self) -> Method | None:
        """The method that the page is about: the model's own, else the fusion of the main table, else the last."""
        own = [method for method in self.methods if method.name == self.info.default_method]
        if own:
            return own[0]
        known = ((method, METHODS.get(method.name)) for method in self.methods)
        fusions = (method for method, entry in known if entry and entry.in_main_table and len(entry.streams) > 1)
        return next(fusions, self.methods[-1] if self.methods else None)

    @property
    def baseline(self) -> Method | None:
        """What the main method is compared with."""
        others = [method for method in self.methods if method is not self.main]
        known = (m for m in others if m.name in METHODS and METHODS[m.name].is_baseline)
        return next(known, others[0] if others else None)

    @cached_property
    def n_labels(self) -> int:
        return sum(len(view.run.labels) for view in self.recordings)

    def views_of(self, method: Method) -> list[RecordingView]:
        """The recordings that a method was run on."""
        return [view for view in self.recordings if method.name in view.scores]

    def n_labels_of(self, method: Method) -> int:
        return sum(len(view.run.labels) for view in self.views_of(method))

    def n_false_alarms(self, method: Method) -> int:
        return sum(len(view.scores[method.name].unmatched_events) for view in self.views_of(method))

    def delays(self, method: Method) -> list[Delay]:
        return [
            Delay(view.name, match.step_id, match.label_frame, view.time(match.delay_frames))
            for view in self.views_of(method)
            for match in view.scores[method.name].matches
        ]

    def step_name(self, step_id: int) -> str:
        return self.procedure.step(step_id).description

    def group(self, method: Method, name: str) -> GroupMetrics | None:
        """`all`, `without_errors` or `with_errors` of a method's summary."""
        summary = self.info.summary.get(method.name)
        group = summary.get(name) if isinstance(summary, Mapping) else None
        if not isinstance(group, Mapping):
            return None
        return GroupMetrics(
            n_recordings=int(finite(group.get("n_recordings")) or 0),
            n_without_match=int(finite(group.get("n_without_match")) or 0),
            pos=Figure(finite(group.get("pos")), _interval(group.get("pos_interval"))),
            f1=Figure(finite(group.get("f1")), _interval(group.get("f1_interval"))),
            delay=Figure(finite(group.get("delay_seconds")), _interval(group.get("delay_interval"))),
        )

    def alarms(self, method: Method) -> Mapping[str, float | None] | None:
        """How good a method's alarms of wrong parts and steps left out are, where it gives any."""
        summary = self.info.summary.get(method.name)
        alarms = summary.get("alarms") if isinstance(summary, Mapping) else None
        return {key: finite(value) for key, value in alarms.items()} if isinstance(alarms, Mapping) else None

    def recording_score(self, method: Method, name: str, key: str) -> float | None:
        """A recording's score by the protocol of the run; None where it is not known."""
        summary = self.info.summary.get(method.name)
        rows = summary.get("recordings") if isinstance(summary, Mapping) else None
        listed = rows if isinstance(rows, list) else ()
        known = (row for row in listed if isinstance(row, Mapping) and row.get("name") == name)
        return finite(next(known, {}).get(key))


def collect(run: Run, frames: FrameReader | None = None) -> Content:
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
    return Content(run.info, run.procedure, methods, tuple(views), frames or FrameReader(Path(run.info.data)))


def _looks(infos: Sequence[MethodInfo]) -> Iterator[Method]:
    """Methods with looks of their own. One that is not in the list is grey: a run must not make us import its class."""
    taken = {_LOOK_OF.get(info.name) for info in infos}
    free = [look for look in LOOKS if look not in taken]
    for info in infos:
        look = _LOOK_OF.get(info.name) or (free.pop() if free else LOOKS[-1])
        entry = METHODS.get(info.name, Decoder)
        yield Method(info.name, info.title, look, info.settings, entry.colour, entry.dark_colour)


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


def finite(value: Any) -> float | None:
    """A finite number of a summary, or None."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def _interval(value: Any) -> tuple[float, float] | None:
    if not isinstance(value, Mapping):
        return None
    low, high = finite(value.get("low")), finite(value.get("high"))
    return None if low is None or high is None else (low, high)
