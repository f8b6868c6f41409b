"""Where everything in the drawings of the page goes, as plain data: timelines, evidence and delays.

Places from left to right are shares of the width, so that a drawing fills a phone and a desk alike and its text keeps
its size; heights are pixels. Delays lie on an axis that is stretched near zero: most recognitions come within seconds,
a few after minutes.

Shape legend: G grid of every k-th frame, S steps, P points that are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.visibility import runs_of
from stormpsr.evaluation.metrics import Scores
from stormpsr.evaluation.report.content import Content, Method, RecordingView
from stormpsr.evaluation.wording import clock, counted, seconds

# ---------------------------------------------------------------------- marks that must not lie on each other
NARROWEST = 320  # pixels that a drawing has on a phone
_WIDEST = 1920
_STEPS_SECONDS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)

Extent = tuple[float, float, float]  # where it is (share of the width), pixels to its left, pixels to its right
Span = tuple[float, Extent]  # share at which a line to the mark begins, and the mark


def pack(spans: Sequence[Span], width: float) -> list[int]:
    """The row of each mark: the first one that is free, from left to right."""

    def left(span: Span) -> float:
        start, (place, to_the_left, _) = span
        return min(start * width, place * width - to_the_left)

    ends: list[float] = []
    rows = [0] * len(spans)
    for i in sorted(range(len(spans)), key=lambda i: (left(spans[i]), i)):
        place, _, to_the_right = spans[i][1]
        row = next((row for row, end in enumerate(ends) if end <= left(spans[i])), len(ends))
        if row == len(ends):
            ends.append(0.0)
        ends[row] = place * width + to_the_right
        rows[i] = row
    return rows


def width_needed(spans: Sequence[Span], most_rows: int) -> int:
    """Pixels that a drawing must have at least for its marks to fit into so many rows, or into as few as can be."""
    best, fewest = NARROWEST, len(spans) + 1
    for width in range(NARROWEST, _WIDEST + 1, 80):
        n_rows = max(pack(spans, width), default=0) + 1
        if n_rows <= most_rows:
            return width
        if n_rows < fewest:
            best, fewest = width, n_rows
    return best


def time_ticks(duration_seconds: float, most: int = 6) -> list[float]:
    """Round times from 0 to the end, not more than `most` of them."""
    step = next((step for step in _STEPS_SECONDS if duration_seconds / step < most), None)
    step = step or 3600 * math.ceil(duration_seconds / most / 3600)
    return [i * float(step) for i in range(int(duration_seconds / step) + 1)]


# ---------------------------------------------------------------------- evidence
OUTLINE_WIDTH, OUTLINE_HEIGHT = 1000, 100  # units of an outline: time, and evidence as a share of the threshold
_MOST_POINTS = 500  # more than a screen has columns for
_WORTH_DRAWING = 0.2  # steps that never come nearer to the threshold are left out
_SILENT = 0.02


@dataclass(frozen=True, slots=True)
class Outline:
    """One rise and fall of a step's evidence: few points, so that a page of many recordings stays small."""

    step_id: int
    path: str  # closed, in units of the outline, y downwards
    first: float  # share of the recording at which it begins
    last: float
    peak: float  # most evidence, 1 completes the step
    peak_at: float  # share of the recording


def outlines(evidence_GS: NDArray[np.floating]) -> list[Outline]:
    """Outlines of all steps that come near the threshold at some time."""
    if evidence_GS.ndim != 2 or not evidence_GS.size:
        return []
    levels_GS = np.nan_to_num(np.asarray(evidence_GS, dtype=np.float64), nan=0.0, posinf=1.0, neginf=0.0)
    size = -(-len(levels_GS) // _MOST_POINTS)  # the greatest of so many neighbours, so that no peak is lost
    levels_PS = np.maximum.reduceat(np.clip(levels_GS, 0.0, 1.0), np.arange(0, len(levels_GS), size), axis=0)
    n_points = len(levels_PS)
    found: list[Outline] = []
    for step_id in np.flatnonzero(levels_PS.max(axis=0) >= _WORTH_DRAWING).tolist():
        level_P = levels_PS[:, step_id]
        for first, end in runs_of(level_P > _SILENT):
            top = first + int(level_P[first:end].argmax())
            if level_P[top] >= _WORTH_DRAWING:
                path = _outline_path(level_P, first, end)
                begin, last, peak_at = (place / n_points for place in (first, end, top + 0.5))
                found.append(Outline(step_id, path, begin, last, float(level_P[top]), peak_at))
    return sorted(found, key=lambda outline: (outline.first, outline.step_id))


def _outline_path(level_P: NDArray[np.float64], first: int, end: int) -> str:
    """Up from the ground and back to it, without points that lie on the line between their neighbours."""
    scale = OUTLINE_WIDTH / len(level_P)
    points = [(round(first * scale, 1), OUTLINE_HEIGHT)]
    points += [(round((i + 0.5) * scale, 1), round(OUTLINE_HEIGHT * (1 - level_P[i]))) for i in range(first, end)]
    points.append((round(end * scale, 1), OUTLINE_HEIGHT))
    kept = [points[0]]
    for before, after in pairwise(points[1:]):
        (x0, y0), (x1, y1), (x2, y2) = kept[-1], before, after
        on_the_way = y0 + (y2 - y0) * (x1 - x0) / (x2 - x0) if x2 > x0 else y1
        if abs(on_the_way - y1) >= 1.5:
            kept.append(before)
    kept.append(points[-1])
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in kept) + "z"


# ---------------------------------------------------------------------- a recording as lanes over time
EVIDENCE_PIXELS = 30
_LABEL_ROW, _METHOD_ROW = 13, 16  # pixels of a row of marks
_HEADER, _GAP, _AXIS = 20, 10, 20
_RADIUS = 4.5
_DIGIT = 6.6  # about how wide small digits are
_MOST_ROWS = 6
_OUT_OF_SIGHT = 0.25  # of the assembly
_NEARLY = 0.5  # of the threshold: worth a label although nothing was reported
_NEAR_MISSES_APART = 0.06  # of the width


@dataclass(frozen=True)
class Mark:
    """Something in a lane."""

    kind: str  # label, wrong, correct, false, missed
    step_id: int
    x: float
    since: float  # where the line to it begins: the label for what was recognised
    tip: str
    y: float = 0.0

    @property
    def span(self) -> Span:
        text = _DIGIT * len(str(self.step_id))
        left, right = (text / 2, text / 2 + 4) if self.kind in ("label", "wrong") else (_RADIUS + 2, 9 + text)
        return self.since, (self.x, left, right)


@dataclass(frozen=True)
class Lane:
    """The labels, or a method's events above the evidence for them."""

    title: str
    about: str
    look: str  # of the method; empty for the labels
    y: float
    top: float  # of the bed below the title
    bottom: float
    marks: Sequence[Mark]
    evidence: Sequence[Outline] = ()

    @property
    def guides(self) -> list[float]:
        """Where the labels are, in a method's lane."""
        return sorted({mark.since for mark in self.marks if mark.kind != "false"}) if self.look else []

    @property
    def near_misses(self) -> list[Outline]:
        """Which steps nearly came through, where nothing was reported."""
        reported = [mark for mark in self.marks if mark.kind != "missed"]
        chosen: list[Outline] = []
        for one in sorted(self.evidence, key=lambda outline: outline.peak_at):
            led = any(mark.step_id == one.step_id and one.first <= mark.x <= one.last + 0.01 for mark in reported)
            crowded = bool(chosen) and one.peak_at - chosen[-1].peak_at < _NEAR_MISSES_APART
            if not led and one.peak >= _NEARLY and not crowded:
                chosen.append(one)
        return chosen


@dataclass(frozen=True)
class Timeline:
    """The drawing of one recording."""

    alt: str
    width: int  # pixels that it needs at least
    lanes: Sequence[Lane]
    axis_y: float
    ticks: Sequence[tuple[float, str]]
    shades: dict[str, str]  # kind -> path in units of frames, one high: where the state could not be seen
    n_frames: int

    @property
    def height(self) -> float:
        return self.axis_y + _AXIS

    @property
    def scrolls(self) -> bool:
        return self.width > NARROWEST


def timeline(content: Content, view: RecordingView) -> Timeline:
    """A recording's labels, and what each method made of them."""
    methods = [method for method in content.methods if method.name in view.scores]
    marks_of = [_label_marks(content, view), *(_method_marks(content, view, method) for method in methods)]
    width = max(width_needed([mark.span for mark in marks], _MOST_ROWS) for marks in marks_of)
    lanes = [_label_lane(marks_of[0], width)]
    for method, marks in zip(methods, marks_of[1:], strict=True):
        lanes.append(_method_lane(view, method, marks, width, lanes[-1].bottom + _GAP))
    spoken = (f"{lane.title}: {lane.about}" for lane in lanes[1:])
    shades = {"hidden": view.hidden or [], "unseen": _out_of_sight(view)}
    return Timeline(
        alt=f"Timeline of {view.name}: {counted(len(view.run.labels), 'labelled step')}. {'. '.join(spoken)}",
        width=width,
        lanes=lanes,
        axis_y=lanes[-1].bottom + _GAP,
        ticks=[(at / view.seconds, clock(at)) for at in time_ticks(view.seconds)],
        shades={kind: "".join(f"M{a} 0H{b}V1H{a}z" for a, b in found) for kind, found in shades.items() if found},
        n_frames=view.run.n_frames,
    )


def lane_summary(scores: Scores) -> str:
    """`9 of 10, 1 false, 4.2 s late`: short, because it must fit on a phone."""
    parts = [f"{len(scores.matches)} of {len(scores.matches) + len(scores.unmatched_labels)}"]
    if scores.unmatched_events:
        parts.append(f"{len(scores.unmatched_events)} false")
    if scores.delay_seconds is not None:
        parts.append(f"{seconds(scores.delay_seconds)} late")
    return ", ".join(parts)


def _label_lane(marks: Sequence[Mark], width: int) -> Lane:
    rows = pack([mark.span for mark in marks], width)
    n_rows = max(rows, default=0) + 1
    # from the highest row down, so that no number is crossed by the tick of another
    placed = [
        replace(mark, y=_HEADER + 11 + _LABEL_ROW * (n_rows - 1 - row))
        for row, mark in sorted(zip(rows, marks, strict=True), key=lambda pair: -pair[0])
    ]
    bottom = _HEADER + n_rows * _LABEL_ROW + 8
    return Lane("Labels", "when steps were completed", "", 0.0, _HEADER, bottom, placed)


def _method_lane(view: RecordingView, method: Method, marks: Sequence[Mark], width: int, y: float) -> Lane:
    rows = pack([mark.span for mark in marks], width)
    n_rows = max(rows, default=0) + 1
    evidence = outlines(view.run.evidence.get(method.name, np.zeros((0, 0), np.float16)))
    top = y + _HEADER
    # the first row is the lowest: marks stand on the threshold of the evidence that made them
    lowest = top + n_rows * _METHOD_ROW - _METHOD_ROW / 2
    placed = [replace(mark, y=lowest - _METHOD_ROW * row) for mark, row in zip(marks, rows, strict=True)]
    bottom = top + n_rows * _METHOD_ROW + 4 + (EVIDENCE_PIXELS if evidence else 0)
    about = lane_summary(view.scores[method.name])
    return Lane(method.title, about, method.look, y, top, bottom, placed, evidence)


def _label_marks(content: Content, view: RecordingView) -> list[Mark]:
    wrong = view.wrong_installs(content.procedure)
    return [
        *(_mark(content, view, "label", e.step_id, e.frame, ", completed at") for e in view.run.labels),
        *(_mark(content, view, "wrong", e.step_id, e.frame, ", at") for e in wrong),
    ]


def _method_marks(content: Content, view: RecordingView, method: Method) -> list[Mark]:
    scores = view.scores[method.name]
    marks = []
    for match in scores.matches:
        mark = _mark(content, view, "correct", match.step_id, match.event_frame, ": recognised at")
        tip = f"{mark.tip}, {seconds(view.time(match.delay_frames))} after completion"
        marks.append(replace(mark, since=_share(view, match.label_frame), tip=tip))
    marks += [
        _mark(content, view, "false", event.step_id, event.frame, ": false alarm at")
        for event in scores.unmatched_events
    ]
    marks += [
        _mark(content, view, "missed", label.step_id, label.frame, ": missed, completed at")
        for label in scores.unmatched_labels
    ]
    return marks


def _mark(content: Content, view: RecordingView, kind: str, step_id: int, frame: int, what: str) -> Mark:
    tip = f"{step_id} {content.step_name(step_id)}{what} {clock(view.time(frame))} (frame {frame})"
    return Mark(kind, step_id, _share(view, frame), _share(view, frame), tip)


def _share(view: RecordingView, frame: float) -> float:
    return min(max(frame / view.run.n_frames, 0.0), 1.0)


def _out_of_sight(view: RecordingView) -> list[tuple[int, int]]:
    stride = max(view.run.visible_stride, 1)
    found: list[tuple[int, int]] = []
    for i, share in enumerate(view.run.visible_share or ()):
        if share >= _OUT_OF_SIGHT:
            continue
        begin = found.pop()[0] if found and found[-1][1] == i * stride else i * stride
        found.append((begin, (i + 1) * stride))
    return found


# ---------------------------------------------------------------------- how late steps are recognised
CURVE_UNITS = 1000  # of the curve, in both directions
_STRIP_LINE = 15  # pixels of a method's line in a strip
_DELAY_TICKS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0)


@dataclass(frozen=True)
class DelayAxis:
    """Seconds after completion, stretched near zero."""

    limit_seconds: float

    @classmethod
    def of(cls, content: Content) -> DelayAxis:
        """Up to a round time after the greatest delay of all methods."""
        longest = max((delay.seconds for method in content.methods for delay in content.delays(method)), default=0.0)
        return cls(next((tick for tick in _DELAY_TICKS[3:] if tick >= longest), longest))

    def place(self, late_seconds: float) -> float:
        return math.sqrt(min(max(late_seconds, 0.0), self.limit_seconds) / self.limit_seconds)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """(place, text) of those ticks that leave room for each other's text on a phone."""
        chosen = [self.limit_seconds]
        for tick in reversed([tick for tick in _DELAY_TICKS if tick < self.limit_seconds]):
            if self.place(chosen[-1]) - self.place(tick) >= 0.08:
                chosen.append(tick)
        return sorted(
            (self.place(tick), f"{tick:g}" if tick < 120 else f"{tick / 60:g}\N{NO-BREAK SPACE}min") for tick in chosen
        )


def share_within(content: Content, method: Method, limit_seconds: float = math.inf) -> float | None:
    """Share of the labelled steps that a method recognised within so many seconds, or ever."""
    n_labels = content.n_labels_of(method)
    return sum(delay.seconds <= limit_seconds for delay in content.delays(method)) / n_labels if n_labels else None


def curve_path(content: Content, method: Method, axis: DelayAxis) -> str:
    """Share of all labelled steps that were recognised within t seconds, as a stair."""
    n_labels = content.n_labels_of(method)
    path = f"M0 {CURVE_UNITS}"
    for count, late in enumerate(sorted(delay.seconds for delay in content.delays(method)), start=1):
        path += f"H{CURVE_UNITS * axis.place(late):.1f}V{CURVE_UNITS * (1 - count / n_labels):.1f}"
    return f"{path}H{CURVE_UNITS}"


@dataclass(frozen=True)
class StripLine:
    """How a method fares with one step."""

    method: Method
    y: float
    dots: Sequence[tuple[float, str]]  # place, tip
    median_seconds: float | None
    missed: int
    false: int


@dataclass(frozen=True)
class Strip:
    """A step, with a line of dots per method."""

    step_id: int
    name: str
    n_labels: int
    lines: Sequence[StripLine]

    @property
    def height(self) -> int:
        return _STRIP_LINE * len(self.lines) + 2

    @property
    def alt(self) -> str:
        spoken = (
            f"{line.method.title} {'never' if line.median_seconds is None else seconds(line.median_seconds)}"
            for line in self.lines
        )
        return f"Delays of step {self.step_id}, {self.name}; median: {', '.join(spoken)}"


def strips(content: Content, axis: DelayAxis) -> list[Strip]:
    """All steps that were labelled or reported, by id."""
    labelled = [event.step_id for view in content.recordings for event in view.run.labels]
    reported = {e.step_id for v in content.recordings for scores in v.scores.values() for e in scores.unmatched_events}
    return [
        Strip(
            step_id,
            content.step_name(step_id),
            labelled.count(step_id),
            [_strip_line(content, method, step_id, i, axis) for i, method in enumerate(content.methods)],
        )
        for step_id in sorted({*labelled, *reported})
    ]


def _strip_line(content: Content, method: Method, step_id: int, i: int, axis: DelayAxis) -> StripLine:
    delays = [delay for delay in content.delays(method) if delay.step_id == step_id]
    scores = [view.scores[method.name] for view in content.views_of(method)]
    dots = [
        (
            axis.place(d.seconds),
            f"{method.title}: {seconds(d.seconds)} late in {d.recording}, completed in frame {d.label_frame}",
        )
        for d in delays
    ]
    return StripLine(
        method=method,
        y=1 + _STRIP_LINE * (i + 0.5),
        dots=dots,
        median_seconds=median(d.seconds for d in delays) if delays else None,
        missed=sum(label.step_id == step_id for found in scores for label in found.unmatched_labels),
        false=sum(event.step_id == step_id for found in scores for event in found.unmatched_events),
    )
