"""The drawings as data: marks that do not lie on each other, evidence as outlines, a recording over time, delays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpsr.data.events import StepEvent
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.report.content import Content, Method, RecordingView
from stormpsr.evaluation.report.drawing import (
    NARROWEST,
    OUTLINE_HEIGHT,
    OUTLINE_WIDTH,
    DelayAxis,
    Mark,
    Span,
    Timeline,
    curve_path,
    lane_summary,
    outlines,
    pack,
    share_within,
    strips,
    time_ticks,
    timeline,
    width_needed,
)
from stormpsr.evaluation.run_folder import RecordingRun, RunInfo
from stormpsr.procedure.model import Procedure

# ---------------------------------------------------------------------- marks that must not lie on each other
shares = st.floats(0, 1, allow_nan=False)
spans = st.lists(
    st.tuples(shares, st.tuples(shares, st.floats(0, 30), st.floats(1, 60))).map(
        lambda span: (min(span[0], span[1][0]), span[1])
    ),
    max_size=25,
)


def extent(span: Span, width: float) -> tuple[float, float]:
    start, (place, left, right) = span
    return min(start * width, place * width - left), place * width + right


@given(spans)
def test_marks_of_one_row_never_overlap(marks: list[Span]) -> None:
    rows = pack(marks, 320)
    for (a, row_a), (b, row_b) in combinations(zip(marks, rows, strict=True), 2):
        if row_a == row_b:
            (left_a, right_a), (left_b, right_b) = extent(a, 320), extent(b, 320)
            assert right_a <= left_b or right_b <= left_a


def test_marks_that_lie_apart_share_a_row() -> None:
    assert pack([(0.0, (0.1, 5, 20)), (0.5, (0.6, 5, 20)), (0.55, (0.9, 5, 20))], 320) == [0, 0, 1]


def test_a_crowd_needs_a_wider_drawing() -> None:
    crowd: list[Span] = [(i / 60, (i / 60, 6, 22)) for i in range(60)]
    assert width_needed(crowd[:3], 6) == NARROWEST
    width = width_needed(crowd, 2)
    assert width > NARROWEST
    assert max(pack(crowd, width)) < 2


def test_marks_at_one_place_cannot_be_kept_apart_by_any_width() -> None:
    assert width_needed([(0.5, (0.5, 6, 22))] * 9, 6) == NARROWEST


@pytest.mark.parametrize(
    ("seconds", "ticks"),
    [(0.5, [0]), (9, [0, 2, 4, 6, 8]), (163, [0, 30, 60, 90, 120, 150]), (7000, [0, 1800, 3600, 5400])],
)
def test_ticks_are_round_and_few(seconds: float, ticks: list[float]) -> None:
    assert time_ticks(seconds) == ticks


@given(st.floats(0.01, 1e6))
def test_there_are_never_too_many_ticks(seconds: float) -> None:
    ticks = time_ticks(seconds)
    assert 1 <= len(ticks) <= 7
    assert ticks[0] == 0
    assert ticks[-1] <= seconds


# ---------------------------------------------------------------------- evidence
def points(path: str) -> list[tuple[float, float]]:
    numbers = [float(text) for text in re.findall(r"[\d.]+", path)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_a_rise_is_one_outline_with_its_peak() -> None:
    evidence_GS = np.zeros((10, 3))
    evidence_GS[2:5, 1] = [0.5, 0.75, 1.0]
    (outline,) = outlines(evidence_GS)
    assert (outline.step_id, outline.first, outline.last, outline.peak, outline.peak_at) == (1, 0.2, 0.5, 1.0, 0.45)
    assert points(outline.path) == [(200, 100), (250, 50), (450, 0), (500, 100)]  # (350, 25) lies on the way


def test_two_rises_of_a_step_are_two_outlines_in_order() -> None:
    evidence_GS = np.zeros((10, 3))
    evidence_GS[[1, 7], 2] = 0.6
    evidence_GS[4, 0] = 0.9
    assert [outline.step_id for outline in outlines(evidence_GS)] == [2, 0, 2]


def test_what_never_comes_near_the_threshold_is_left_out() -> None:
    assert outlines(np.full((10, 3), 0.15)) == []


def test_a_single_peak_survives_a_long_recording() -> None:
    evidence_GS = np.zeros((20_003, 2), np.float16)
    evidence_GS[12_345, 1] = 0.8
    (outline,) = outlines(evidence_GS)
    assert outline.peak == pytest.approx(0.8, abs=1e-3)
    assert outline.peak_at == pytest.approx(12_345 / 20_003, abs=0.003)


def test_an_outline_stays_small_and_inside_whatever_the_evidence() -> None:
    noise_GS = np.random.default_rng(0).uniform(-1, 3, size=(50_000, 1))
    noise_GS[::97] = np.nan
    noise_GS[::89] = np.inf
    found = outlines(noise_GS)
    assert found
    assert sum(len(outline.path) for outline in found) < 20_000
    for outline in found:
        assert all(0 <= x <= OUTLINE_WIDTH and 0 <= y <= OUTLINE_HEIGHT for x, y in points(outline.path))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (5, 0), (4,)])
def test_no_evidence_has_no_outlines(shape: tuple[int, ...]) -> None:
    assert outlines(np.zeros(shape)) == []


# ---------------------------------------------------------------------- a recording over time
LABELS = (StepEvent(0, 100), StepEvent(3, 400), StepEvent(6, 700))
EVENTS = (StepEvent(0, 150), StepEvent(2, 300), StepEvent(3, 500))  # one late, one false, one later, one missed


def recording(**changes: object) -> RecordingRun:
    about = RecordingRun(
        name="r",
        variant="build",
        fps=10.0,
        n_frames=1000,
        has_errors=True,
        frames_path="",
        labels=LABELS,
        labels_with_errors=(StepEvent(4, 350), *LABELS),
        events={"average": EVENTS},
        readable=((0, 99), (200, 499), (450, 599)),
    )
    return replace(about, **changes)  # type: ignore[arg-type]


def content_of(procedure: Procedure, *runs: RecordingRun) -> Content:
    views = tuple(
        RecordingView(run, {name: score(run.labels, events, fps=10) for name, events in run.events.items()})
        for run in runs
    )
    methods = tuple(Method(name, name.title(), "circle", {}) for name in runs[0].events)
    return Content(RunInfo("", "", "", None, "paper", (), {}), procedure, methods, views)


def drawn(run: RecordingRun, procedure: Procedure) -> Timeline:
    content = content_of(procedure, run)
    return timeline(content, content.recordings[0])


def marks(found: Timeline, kind: str) -> list[Mark]:
    return [mark for lane in found.lanes for mark in lane.marks if mark.kind == kind]


def test_every_kind_of_mark_stands_where_it_belongs(lamp: Procedure) -> None:
    found = drawn(recording(), lamp)
    assert [mark.x for mark in marks(found, "label")] == [0.1, 0.4, 0.7]
    assert [mark.x for mark in marks(found, "wrong")] == [0.35]
    assert [(mark.since, mark.x) for mark in marks(found, "correct")] == [(0.1, 0.15), (0.4, 0.5)]
    assert [mark.x for mark in marks(found, "false")] == [0.3]
    assert [mark.x for mark in marks(found, "missed")] == [0.7]
    assert [lane.guides for lane in found.lanes] == [[], [0.1, 0.4, 0.7]]
    for lane in found.lanes:
        assert all(lane.top < mark.y < lane.bottom for mark in lane.marks)


def test_lanes_lie_below_each_other(lamp: Procedure) -> None:
    found = drawn(recording(events={"detection": EVENTS, "average": ()}), lamp)
    edges = [edge for lane in found.lanes for edge in (lane.y, lane.top, lane.bottom)]
    assert edges == sorted(edges)
    assert found.height > found.axis_y > edges[-1]


def test_every_mark_says_what_it_is(lamp: Procedure) -> None:
    found = drawn(recording(), lamp)
    tips = [mark.tip.replace("\N{NO-BREAK SPACE}", " ") for lane in found.lanes for mark in lane.marks]
    assert "0 Install foot, completed at 0:10 (frame 100)" in tips
    assert "4 Incorrectly installed pole, at 0:35 (frame 350)" in tips
    assert "3 Install pole: recognised at 0:50 (frame 500), 10.0 s after completion" in tips
    assert "2 Remove foot: false alarm at 0:30 (frame 300)" in tips
    assert "6 Install shade: missed, completed at 1:10 (frame 700)" in tips
    alt = found.alt.replace("\N{NO-BREAK SPACE}", " ")
    assert alt == "Timeline of r: 3 labelled steps. Average: 2 of 3, 1 false, 7.5 s late"


def test_events_of_one_frame_stand_in_different_rows(lamp: Procedure) -> None:
    together = tuple(StepEvent(step, 800) for step in (0, 3, 6))
    found = drawn(recording(events={"average": together}), lamp)
    assert len({mark.y for mark in marks(found, "correct")}) == 3


@pytest.mark.parametrize(
    ("readable", "hidden"),
    [
        (((0, 99), (200, 499), (450, 599)), [(100, 200), (600, 1000)]),
        ((), [(0, 1000)]),
        (((0, 999),), []),
        (None, None),
    ],
)
def test_what_is_not_readable_is_hidden(
    lamp: Procedure, readable: tuple[tuple[int, int], ...] | None, hidden: list[tuple[int, int]] | None
) -> None:
    view = RecordingView(recording(readable=readable), {})
    assert view.hidden == hidden
    assert RecordingView(replace(view.run, n_frames=0), {}).hidden_share >= 0
    path = "".join(f"M{a} 0H{b}V1H{a}z" for a, b in hidden or [])
    assert drawn(recording(readable=readable), lamp).shades == ({"hidden": path} if path else {})


def test_where_the_object_is_out_of_sight_the_shade_is_darker(lamp: Procedure) -> None:
    shares = tuple(0.1 if 20 <= i < 30 else 0.9 for i in range(100))
    found = drawn(recording(visible_share=shares, visible_stride=10), lamp)
    assert found.shades["unseen"] == "M200 0H300V1H200z"


def test_evidence_is_drawn_and_a_near_miss_is_named(lamp: Procedure) -> None:
    evidence_GS = np.zeros((250, 9), np.float16)
    evidence_GS[30:38, 0] = np.linspace(0.2, 1, 8)  # completes step 0 in frame 150
    evidence_GS[180:190, 6] = 0.7  # never comes through
    evidence_GS[100:110, 8] = 0.1
    lane = drawn(recording(evidence={"average": evidence_GS}, evidence_stride=4), lamp).lanes[1]
    assert [outline.step_id for outline in lane.evidence] == [0, 6]
    assert [outline.step_id for outline in lane.near_misses] == [6]


def test_a_recording_without_events_or_labels_can_be_drawn(lamp: Procedure) -> None:
    assert len(marks(drawn(recording(events={"average": ()}), lamp), "missed")) == 3
    empty = recording(labels=(), labels_with_errors=None, events={"average": ()}, n_frames=1)
    assert [lane.marks for lane in drawn(empty, lamp).lanes] == [[], []]


def test_a_crowded_recording_scrolls_instead_of_shrinking(lamp: Procedure) -> None:
    crowd = tuple(StepEvent(0, 10 * i) for i in range(1, 95))
    assert drawn(recording(labels=crowd, events={"average": crowd}), lamp).scrolls
    assert not drawn(recording(), lamp).scrolls


@pytest.mark.parametrize(
    ("events", "text"),
    [((), "0 of 3"), (EVENTS, "2 of 3, 1 false, 7.5 s late"), (LABELS, "3 of 3, 0.0 s late")],
)
def test_a_lane_is_summed_up_in_a_few_words(events: tuple[StepEvent, ...], text: str) -> None:
    assert lane_summary(score(LABELS, events, fps=10)).replace("\N{NO-BREAK SPACE}", " ") == text


# ---------------------------------------------------------------------- delays
def test_the_axis_of_delays_ends_at_a_round_time_and_is_stretched_near_zero(lamp: Procedure) -> None:
    axis = DelayAxis.of(content_of(lamp, recording()))  # delays of 5 and 10 seconds
    assert axis.limit_seconds == 10
    assert [axis.place(late) for late in (-1, 0, 2.5, 10, 99)] == [0, 0, 0.5, 1, 1]
    assert [text for _, text in axis.ticks] == ["0", "1", "2", "5", "10"]
    assert DelayAxis(300.0).ticks[-1] == (1.0, "5\N{NO-BREAK SPACE}min")


def test_the_curve_rises_by_a_step_at_every_delay_and_never_counts_the_missed(lamp: Procedure) -> None:
    content = content_of(lamp, recording(), recording(name="s", events={"average": ()}))
    (method,) = content.methods
    assert [share_within(content, method, t) for t in (0, 5, 10)] == [0, 1 / 6, 2 / 6]
    assert curve_path(content, method, DelayAxis(10.0)) == "M0 1000H707.1V833.3H1000.0V666.7H1000"


def test_a_strip_tells_delays_missed_steps_and_false_alarms(lamp: Procedure) -> None:
    late = (StepEvent(0, 120),)
    content = content_of(lamp, recording(), recording(name="s", events={"average": late}))
    found = {strip.step_id: strip for strip in strips(content, DelayAxis(10.0))}
    assert [(k, strip.n_labels) for k, strip in found.items()] == [(0, 2), (2, 0), (3, 2), (6, 2)]

    def figures(step_id: int) -> Sequence[object]:
        (line,) = found[step_id].lines
        return len(line.dots), line.median_seconds, line.missed, line.false

    assert [figures(k) for k in found] == [(2, 3.5, 0, 0), (0, None, 0, 1), (1, 10.0, 1, 0), (0, None, 2, 0)]
    assert found[0].alt == "Delays of step 0, Install foot; median: Average 3.5\N{NO-BREAK SPACE}s"
    assert found[6].alt.endswith("median: Average never")
    assert found[0].lines[0].dots[1][1].endswith("late in s, completed in frame 100")
