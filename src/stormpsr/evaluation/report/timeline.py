"""A recording as lanes over time: its labels, and what each method made of them.

A lane shows a method's events above the evidence for them. Everything is placed in percent of the width, so that the
drawing fills a phone and a desk alike and its text keeps its size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stormpsr.evaluation.metrics import Scores
from stormpsr.evaluation.report.content import Content, Method, RecordingView
from stormpsr.evaluation.report.evidence import HEIGHT, WIDTH, Outline, outlines
from stormpsr.evaluation.report.markup import Html, clock, counted, element, join, seconds
from stormpsr.evaluation.report.packing import Span, pack, text_pixels, time_ticks, width_needed

_ROW = 16  # pixels of a row of marks
_EVIDENCE = 30
_HEADER = 20
_GAP = 10
_AXIS = 20
_RADIUS = 4.5
_MOST_ROWS = 6
_OUT_OF_SIGHT = 0.25  # of the assembly
_NEARLY = 0.5  # of the threshold: worth a label although nothing was reported


@dataclass(frozen=True)
class _Mark:
    """Something in a lane."""

    kind: str  # label, wrong, correct, false, missed
    step_id: int
    frame: int
    since: int  # where the line to it begins: the label's frame for what was recognised
    tip: str


def timeline(content: Content, view: RecordingView, number: int) -> Html:
    """The drawing of one recording; `number` keeps apart what it gives names to."""
    label_marks = _label_marks(content, view)
    lanes = [(method, _method_marks(content, view, method)) for method in content.methods if method.name in view.scores]
    rows = [_spans(view, marks) for marks in (label_marks, *(marks for _, marks in lanes))]
    width = max(width_needed(spans, _MOST_ROWS) for spans in rows)
    y = 0.0
    parts, body = [_hidden_paths(view, number)], Html("")
    body, y = _label_lane(view, label_marks, width, number, y)
    parts.append(body)
    for method, marks in lanes:
        body, y = _method_lane(view, method, marks, width, number, y)
        parts.append(body)
    parts.append(_axis(view, y))
    alt = f"Timeline of {view.name}: {counted(len(view.run.labels), 'labelled step')}. "
    alt += ". ".join(f"{method.title}: {lane_summary(view.scores[method.name])}" for method, _ in lanes)
    drawing = element(
        "svg",
        *parts,
        class_="timeline",
        role="img",
        aria_label=alt,
        height=y + _AXIS,
        style=f"min-width:{width}px" if width > 320 else None,
    )
    return element("div", drawing, class_="scroll", tabindex="0" if width > 320 else None)


def lane_summary(scores: Scores) -> str:
    """`9 of 10, 1 false, 4.2 s late`: short, because it must fit on a phone."""
    found = len(scores.matches)
    of = found + len(scores.unmatched_labels)
    parts = [f"{found} of {of}"]
    if scores.unmatched_events:
        parts.append(f"{len(scores.unmatched_events)} false")
    if scores.delay_seconds is not None:
        parts.append(f"{seconds(scores.delay_seconds)} late")
    return ", ".join(parts)


# ---------------------------------------------------------------------- marks
def _when(view: RecordingView, frame: int) -> str:
    return f"{clock(view.time(frame))} (frame {frame})"


def _label_marks(content: Content, view: RecordingView) -> list[_Mark]:
    def mark(kind: str, step_id: int, frame: int) -> _Mark:
        tip = f"{step_id} {content.step_name(step_id)}, completed at {_when(view, frame)}"
        return _Mark(kind, step_id, frame, frame, tip.replace("completed at", "at") if kind == "wrong" else tip)

    right = [mark("label", event.step_id, event.frame) for event in view.run.labels]
    wrong = [mark("wrong", event.step_id, event.frame) for event in view.wrong_installs(content.procedure)]
    return right + wrong


def _method_marks(content: Content, view: RecordingView, method: Method) -> list[_Mark]:
    scores = view.scores[method.name]
    marks = []
    for match in scores.matches:
        late = match.delay_frames / view.run.fps
        tip = f"{match.step_id} {content.step_name(match.step_id)}: recognised at {_when(view, match.event_frame)}"
        tip += f", {seconds(late)} after completion"
        marks.append(_Mark("correct", match.step_id, match.event_frame, match.label_frame, tip))
    for event in scores.unmatched_events:
        tip = f"{event.step_id} {content.step_name(event.step_id)}: false alarm at {_when(view, event.frame)}"
        marks.append(_Mark("false", event.step_id, event.frame, event.frame, tip))
    for label in scores.unmatched_labels:
        tip = f"{label.step_id} {content.step_name(label.step_id)}: missed, completed at {_when(view, label.frame)}"
        marks.append(_Mark("missed", label.step_id, label.frame, label.frame, tip))
    return marks


def _share(view: RecordingView, frame: float) -> float:
    return min(max(frame / view.run.n_frames, 0.0), 1.0)


def _x(view: RecordingView, frame: float) -> str:
    return f"{100 * _share(view, frame):.2f}%"


def _spans(view: RecordingView, marks: list[_Mark]) -> list[Span]:
    spans: list[Span] = []
    for mark in marks:
        text = text_pixels(str(mark.step_id))
        left, right = (text / 2, text / 2 + 4) if mark.kind in ("label", "wrong") else (_RADIUS + 2, 9 + text)
        spans.append((_share(view, mark.since), (_share(view, mark.frame), left, right)))
    return spans


# ---------------------------------------------------------------------- lanes
def _label_lane(view: RecordingView, marks: list[_Mark], width: int, number: int, y: float) -> tuple[Html, float]:
    rows = pack(_spans(view, marks), width)
    n_rows = max(rows, default=0) + 1
    bottom = y + _HEADER + n_rows * 13 + 8
    parts = [
        _header("Labels", "when steps were completed", "", y),
        _shades(view, number, y + _HEADER, bottom - y - _HEADER),
    ]
    # from the highest row down, so that no number is crossed by the tick of another
    for row, mark in sorted(zip(rows, marks, strict=True), key=lambda pair: -pair[0]):
        x, base = _x(view, mark.frame), y + _HEADER + 11 + 13 * (n_rows - 1 - row)
        tick = element("line", x1=x, x2=x, y1=base + 3, y2=bottom, class_=f"tick {mark.kind}")
        text = element("text", str(mark.step_id), x=x, y=base, class_=f"id {mark.kind}", text_anchor="middle")
        parts.append(element("g", element("title", mark.tip), tick, text))
    return join(parts), bottom + _GAP


def _method_lane(
    view: RecordingView, method: Method, marks: list[_Mark], width: int, number: int, y: float
) -> tuple[Html, float]:
    rows = pack(_spans(view, marks), width)
    n_rows = max(rows, default=0) + 1
    evidence = outlines(view.run.evidence.get(method.name, np.zeros((0, 0), np.float16)))
    top = y + _HEADER
    ground = top + n_rows * _ROW + 4 + (_EVIDENCE if evidence else 0)
    lines = {mark.since for mark in marks if mark.kind != "false"}
    guides = [element("line", x1=_x(view, f), x2=_x(view, f), y1=top, y2=ground, class_="guide") for f in sorted(lines)]
    parts = [
        _header(method.title, lane_summary(view.scores[method.name]), method.look, y),
        _shades(view, number, top, ground - top),
        *guides,
    ]
    if evidence:
        parts.append(_evidence(evidence, ground - _EVIDENCE))
        parts += _near_misses(view, evidence, marks, ground)
    # the first row is the lowest: marks stand on the threshold of the evidence that made them
    lowest = top + n_rows * _ROW - _ROW / 2
    parts += [_draw(view, mark, lowest - _ROW * row) for mark, row in zip(marks, rows, strict=True)]
    return element("g", *parts, class_=f"look-{method.look}"), ground + _GAP


def _header(title: str, about: str, look: str, y: float) -> Html:
    name = element("tspan", title, class_="lane-name")
    return element("text", name, element("tspan", about, dx="8"), x=0, y=y + 14, class_="lane")


def _draw(view: RecordingView, mark: _Mark, y: float) -> Html:
    x, parts = _x(view, mark.frame), [element("title", mark.tip)]
    if mark.kind == "correct":
        parts.append(element("line", x1=_x(view, mark.since), x2=x, y1=y, y2=y, class_="tail"))
        parts.append(element("circle", cx=x, cy=y, r=_RADIUS, class_="correct"))
    elif mark.kind == "missed":
        parts.append(element("circle", cx=x, cy=y, r=_RADIUS - 0.5, class_="missed"))
    else:
        parts.append(element("use", href="#cross", x=x, y=y, class_="false"))
    parts.append(element("text", str(mark.step_id), x=x, y=y + 4, dx="8", class_=f"id {mark.kind}"))
    return element("g", *parts)


def _stretched(content: str, y: float, height: float, units: str) -> Html:
    """Something drawn in its own units and stretched to the width."""
    return element(
        "svg", content, x=0, y=y, width="100%", height=height, viewBox=f"0 0 {units}", preserveAspectRatio="none"
    )


def _evidence(evidence: list[Outline], y: float) -> Html:
    paths = join(element("path", d=outline.path, class_="evidence") for outline in evidence)
    threshold = element("line", x1="0", x2="100%", y1=y, y2=y, class_="threshold")
    return join([_stretched(paths, y, _EVIDENCE, f"{WIDTH} {HEIGHT}"), threshold])


def _near_misses(view: RecordingView, evidence: list[Outline], marks: list[_Mark], ground: float) -> list[Html]:
    """Say which step it was that nearly came through, where nothing was reported."""
    reported = [(mark.step_id, _share(view, mark.frame)) for mark in marks if mark.kind != "missed"]
    drawn: list[Html] = []
    last = -1.0
    for outline in sorted(evidence, key=lambda outline: outline.peak_at):
        led = any(step == outline.step_id and outline.first <= at <= outline.last + 0.01 for step, at in reported)
        if led or outline.peak < _NEARLY or outline.peak_at - last < 0.06:
            continue
        x, y = f"{100 * outline.peak_at:.2f}%", ground - 3
        drawn.append(element("text", str(outline.step_id), x=x, y=y, class_="id nearly", text_anchor="middle"))
        last = outline.peak_at
    return drawn


def _axis(view: RecordingView, y: float) -> Html:
    parts = []
    for at in time_ticks(view.seconds):
        x = f"{100 * at / view.seconds:.2f}%"
        parts.append(element("line", x1=x, x2=x, y1=y - _GAP + 2, y2=y - _GAP + 6, class_="tick-axis"))
        anchor = "start" if at == 0 else "middle"
        parts.append(element("text", clock(at), x=x, y=y + 9, class_="axis", text_anchor=anchor))
    return join(parts)


# ---------------------------------------------------------------------- what could be seen
def hidden_stretches(view: RecordingView) -> list[tuple[int, int]] | None:
    """(first, one past the last) frames in which the state could not be read; None if nobody knows."""
    if view.run.readable is None:
        return None
    hidden, begin = [], 0
    for first, last in sorted(view.run.readable):
        if first > begin:
            hidden.append((begin, first))
        begin = max(begin, last + 1)
    if begin < view.run.n_frames:
        hidden.append((begin, view.run.n_frames))
    return hidden


def _out_of_sight(view: RecordingView) -> list[tuple[int, int]]:
    shares, stride = view.run.visible_share or (), max(view.run.visible_stride, 1)
    found: list[tuple[int, int]] = []
    for i, share in enumerate(shares):
        if share >= _OUT_OF_SIGHT:
            continue
        if found and found[-1][1] == i * stride:
            found[-1] = (found[-1][0], (i + 1) * stride)
        else:
            found.append((i * stride, (i + 1) * stride))
    return found


def _hidden_paths(view: RecordingView, number: int) -> Html:
    """Drawn once, used in every lane."""
    named = {"hidden": hidden_stretches(view) or [], "unseen": _out_of_sight(view)}
    paths = [
        element("path", d="".join(f"M{a} 0H{b}V1H{a}z" for a, b in stretches), id=f"{kind}-{number}", class_=kind)
        for kind, stretches in named.items()
        if stretches
    ]
    return element("defs", *paths)


def _shades(view: RecordingView, number: int, y: float, height: float) -> Html:
    paper = element("rect", x=0, y=y, width="100%", height=height, class_="bed")
    uses = []
    if hidden_stretches(view):
        uses.append(element("use", href=f"#hidden-{number}"))
    if _out_of_sight(view):
        uses.append(element("use", href=f"#unseen-{number}"))
    return join([paper, _stretched(join(uses), y, height, f"{view.run.n_frames} 1")] if uses else [paper])
