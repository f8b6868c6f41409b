"""What the demo shows while it watches: a table that fills up, or lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from stormpsr.decoding.methods import title_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from stormpsr.cli.demo_world import DrawnRecording
    from stormpsr.data.events import StepEvent
    from stormpsr.data.sources import Frame


_REFRESHES = 4  # per second


@dataclass(frozen=True)
class BoardRow:
    """A step that was completed, or one that was reported though it was not. Times in seconds of the video."""

    step_id: int
    step: str
    completed: float | None  # None: it was not
    recognised: tuple[tuple[float, ...], ...]  # per method; a step is recognised once, but falsely reported any time
    kind: Literal["coming", "done", "too early", "not done"]


@dataclass(frozen=True)
class News:
    """What a frame brought."""

    seconds: float
    completed: tuple[StepEvent, ...]
    reported: Mapping[str, Sequence[StepEvent]]


class StepBoard:
    """Which steps were completed, and which method recognised them when. Matching is that of the scores."""

    def __init__(self, recording: DrawnRecording, methods: Sequence[str]) -> None:
        self.procedure, self.labels, self.fps = recording.procedure, recording.labels, recording.fps
        self.methods = tuple(methods)
        self.seconds = 0.0
        self.n_frames = 0
        self._first: float | None = None
        self._now = 0.0
        self._events: dict[str, list[StepEvent]] = {method: [] for method in methods}
        self._matched: dict[tuple[int, int], dict[str, float]] = {}
        self._false: dict[int, dict[str, tuple[float, ...]]] = {}

    @property
    def frames_per_second(self) -> float | None:
        """Watched so far, waiting included."""
        elapsed = self._now - (self._first or 0.0)
        return (self.n_frames - 1) / elapsed if elapsed > 0 else None

    def update(self, frame: Frame, events: Mapping[str, Sequence[StepEvent]]) -> News:
        self._now = time.perf_counter()
        self._first = self._now if self._first is None else self._first
        self.n_frames, self.seconds = self.n_frames + 1, frame.time_seconds
        reported = {method: found for method, found in events.items() if found}
        if reported:
            for method, found in reported.items():
                self._events[method] += found
            self._match()
        return News(self.seconds, tuple(label for label in self.labels if label.frame == frame.index), reported)

    def _match(self) -> None:
        from stormpsr.evaluation.metrics import score

        matched: dict[tuple[int, int], dict[str, float]] = {}
        false: dict[int, dict[str, tuple[float, ...]]] = {}
        for method, events in self._events.items():
            scores = score(self.labels, events, fps=self.fps)
            for match in scores.matches:
                matched.setdefault((match.step_id, match.label_frame), {})[method] = match.event_frame / self.fps
            for event in scores.unmatched_events:
                of_step = false.setdefault(event.step_id, {})
                of_step[method] = (*of_step.get(method, ()), event.frame / self.fps)
        self._matched, self._false = matched, false  # replaced at once: a display may be reading

    def delay(self, method: str, event: StepEvent) -> float | None:
        """How long after its completion a step was reported; None if it was not completed."""
        at = event.frame / self.fps
        frames = [
            frame for (step, frame), by in self._matched.items() if step == event.step_id and by.get(method) == at
        ]
        return at - frames[0] / self.fps if frames else None

    def rows(self) -> list[BoardRow]:
        """Completed steps and steps to come in their order, then false reports."""
        matched, false, now = self._matched, self._false, self.seconds
        rows = []
        for label in self.labels:
            by = matched.get((label.step_id, label.frame), {})
            at = label.frame / self.fps
            found = tuple((by[method],) if method in by else () for method in self.methods)
            kind: Literal["coming", "done"] = "done" if at <= now else "coming"
            rows.append(BoardRow(label.step_id, self._name(label.step_id), at, found, kind))
        for step_id, times in sorted(false.items(), key=lambda item: min(min(at) for at in item[1].values())):
            first = min(min(at) for at in times.values())
            later = any(label.step_id == step_id and label.frame / self.fps > first for label in self.labels)
            wrong = tuple(times.get(method, ()) for method in self.methods)
            rows.append(BoardRow(step_id, self._name(step_id), None, wrong, "too early" if later else "not done"))
        return rows

    def _name(self, step_id: int) -> str:
        return self.procedure.step(step_id).description

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {
                "step_id": row.step_id,
                "step": row.step,
                "completed": row.completed,
                "recognised": dict(zip(self.methods, map(list, row.recognised), strict=True)),
            }
            for row in self.rows()
        ]


# ---------------------------------------------------------------------- displays
def make_display(board: StepBoard, recording: DrawnRecording, *, as_json: bool) -> Display:
    """A table for people, lines for files, nothing for machines."""
    from stormpsr.cli.output import console

    if as_json:
        return Display()
    return LiveTable(board, recording) if console().is_terminal else Lines(board, recording)


class Display:
    """Shows nothing."""

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, news: News) -> None:
        """A frame was watched."""

    def say(self, what: str) -> None:
        """What happens after the last frame."""

    def conclude(self) -> None:
        """All frames were watched."""


class Lines(Display):
    """A line for every completion and every report, the table in the end."""

    def __init__(self, board: StepBoard, recording: DrawnRecording) -> None:
        self._board, self._recording = board, recording

    def show(self, news: News) -> None:
        for label in news.completed:
            self._line(news.seconds, "completed", self._board.procedure.step(label.step_id).description)
        for method, events in news.reported.items():
            for event in events:
                late = self._board.delay(method, event)
                words = "not completed" if late is None else f"{late:.1f} s after completion"
                step = self._board.procedure.step(event.step_id).description
                self._line(news.seconds, title_of(method), f"{step}, {words}")

    def _line(self, seconds: float, who: str, what: str) -> None:
        print(f"{seconds:8.1f} s  {who:<14}  {what}", flush=True)

    def conclude(self) -> None:
        from stormpsr.cli.output import console

        console().print(_table(self._board))


class LiveTable(Display):
    """The table, redrawn in place; it stays when the context ends."""

    def __init__(self, board: StepBoard, recording: DrawnRecording) -> None:
        self._board, self._recording = board, recording
        self._said: str | None = None
        self._live: Live | None = None

    def __enter__(self) -> Display:
        from rich.live import Live

        from stormpsr.cli.output import console

        self._live = Live(get_renderable=self._image, console=console(), refresh_per_second=_REFRESHES)
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._said = ""
        if self._live is not None:
            self._live.stop()

    def say(self, what: str) -> None:
        self._said = what

    def _image(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        return Group(_table(self._board), Text(self._progress(), style="dim"))

    def _progress(self) -> str:
        board, recording = self._board, self._recording
        if not board.n_frames:
            return f"  drawn {recording.drawn} of {recording.n_frames} frames"
        rate = "" if board.frames_per_second is None else f"   {board.frames_per_second:.0f} frames/s"
        video = f"  video {_clock(board.seconds)} of {_clock(recording.n_frames / recording.fps)}{rate}"
        drawing = recording.drawn < recording.n_frames
        tail = f"drawn {recording.drawn} of {recording.n_frames} frames" if drawing else self._said
        return f"{video}   {tail}" if tail else video


def heading(recording: DrawnRecording) -> str:
    """What will be seen."""
    procedure = recording.procedure
    length = _clock(recording.n_frames / recording.fps)
    text = f"{procedure.title or procedure.name}: an assembly that the model has not seen, {length} long"
    wrong = [
        f"{procedure.components[step.component_index].name} ({label.frame / recording.fps:.1f} s)"
        for label in recording.labels_with_errors
        if (step := procedure.step(label.step_id)).kind.name == "INCORRECT"
    ]
    return f"{text}. Put in wrong at some time: {', '.join(wrong)}" if wrong else text


def _table(board: StepBoard) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    # in a narrow terminal names wrap, but times do not
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("step")
    table.add_column("completed", justify="right", min_width=9)
    for method in board.methods:
        table.add_column(title_of(method).replace(" ", "\n"), justify="right", min_width=11)
    for row in board.rows():
        wrong = row.completed is None
        style = {"coming": "dim", "done": ""}.get(row.kind, "yellow")
        completed = row.kind if wrong else "" if row.kind == "coming" else f"{row.completed:.1f} s"
        cells = [Text(_cell(row, times), style="yellow" if wrong else "green") for times in row.recognised]
        table.add_row(Text(row.step, style=style), Text(completed, style=style), *cells)
    return table


def _cell(row: BoardRow, times: tuple[float, ...]) -> str:
    if not times:
        return "–" if row.kind == "done" else ""
    if row.completed is None:
        return ", ".join(f"{at:.1f}" for at in times)
    return f"{times[0]:.1f} +{times[0] - row.completed:.1f}"


def _clock(seconds: float) -> str:
    """75.25 as 1:15."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
