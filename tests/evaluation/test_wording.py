"""Numbers read well, and never say more than they should."""

from __future__ import annotations

import pytest

from stormpsr.evaluation.wording import clock, counted, listed, number, percent, seconds


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (0.0004, "0.1 %"),
        (0.004, "0.4 %"),
        (0.5, "50 %"),
        (0.996, "99.6 %"),
        (0.9999, "99.9 %"),
        (1, "100 %"),
        (None, "–"),
    ],
)
def test_a_share_is_never_rounded_to_all_or_nothing(share: float | None, text: str) -> None:
    assert percent(share).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(("time", "text"), [(0, "0:00"), (67.9, "1:07"), (3671, "1:01:11")])
def test_times_are_written_as_a_clock_shows_them(time: float, text: str) -> None:
    assert clock(time) == text


def test_numbers_and_lists_in_words() -> None:
    assert [counted(1, "step"), counted(2, "step")] == ["1 step", "2 steps"]
    assert [number(None, 2), number(0.125, 2), number(0.5)] == ["–", "0.12", "0.500"]
    assert [seconds(None), seconds(4.25)] == ["–", "4.2\N{NO-BREAK SPACE}s"]
    assert [listed(["a"]), listed(["a", "b", "c"])] == ["a", "a, b and c"]
