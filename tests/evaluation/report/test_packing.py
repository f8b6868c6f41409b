"""Marks that must not lie on each other."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpsr.evaluation.report.packing import NARROWEST, Span, pack, time_ticks, width_needed

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
