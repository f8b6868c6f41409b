"""Two sets of predictions of the same recordings."""

from __future__ import annotations

import numpy as np
import pytest

from stormpsr.data.events import StepEvent
from stormpsr.errors import InputError
from stormpsr.evaluation.compare import (
    Interval,
    compare,
    difference_cell,
    latex_table,
    latex_text,
    paired_difference,
)
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.summary import RecordingResult, Summary, summarise
from stormpsr.procedure.model import Procedure

LABELS = [StepEvent(0, 10), StepEvent(3, 20), StepEvent(6, 30)]


def summary(lamp: Procedure, **late: int | None) -> Summary:
    """Recordings in which every step is recognised so many frames late; None: nothing is."""
    results = []
    for name, frames in late.items():
        events = [] if frames is None else [StepEvent(e.step_id, e.frame + frames) for e in LABELS]
        results.append(RecordingResult(name, score(LABELS, events, procedure=lamp)))
    return summarise(results, lamp)


def test_the_difference_is_the_second_less_the_first(lamp: Procedure) -> None:
    found = compare(summary(lamp, a=20, b=40), summary(lamp, a=10, b=30), n_bootstrap=100)
    pos, f1, delay = found.metrics
    assert (pos.n_recordings, delay.n_recordings) == (2, 2)
    assert (pos.difference, f1.difference, delay.difference) == (0, 0, pytest.approx(-1.0))
    assert (delay.first, delay.second) == (pytest.approx(3.0), pytest.approx(2.0))


def test_what_is_better_in_every_recording_is_certain_however_much_recordings_differ(lamp: Procedure) -> None:
    hard = {f"r{k}": 30 * k for k in range(8)}
    found = compare(summary(lamp, **hard), summary(lamp, **{name: late + 5 for name, late in hard.items()}))
    delay = found.metrics[2]
    assert delay.interval is not None
    assert (delay.interval.low, delay.interval.high) == (pytest.approx(0.5), pytest.approx(0.5))
    assert delay.is_certain
    assert delay.share_better == 0  # later is worse


def test_equal_sets_are_better_in_half_of_the_draws_and_nothing_is_certain(lamp: Procedure) -> None:
    same = summary(lamp, a=1, b=2, c=3, d=4, e=5)
    for found in compare(same, same, n_bootstrap=100).metrics:
        assert (found.difference, found.share_better, found.is_certain) == (0, 0.5, False)


def test_recordings_without_a_match_have_no_delay_and_do_not_hide_that_of_others(lamp: Procedure) -> None:
    found = compare(summary(lamp, a=10, b=None), summary(lamp, a=20, b=20), n_bootstrap=200)
    delay = found.metrics[2]
    assert (delay.first, delay.second, delay.difference) == (1.0, 2.0, 1.0)
    nothing = compare(summary(lamp, a=None), summary(lamp, a=20), n_bootstrap=100).metrics[2]
    assert (nothing.first, nothing.difference, nothing.interval) == (None, None, None)


def test_a_delay_is_compared_where_both_have_one_and_not_with_that_of_another_recording() -> None:
    """The second is 2.1 s sooner in the only one that both have; the first is quick where the second finds nothing."""
    draws_KR = np.random.default_rng(0).integers(2, size=(500, 2))
    found = paired_difference("delay_seconds", np.array([0.0, 12.3]), np.array([np.nan, 10.2]), draws_KR)
    assert (found.first, found.second, found.difference) == (12.3, 10.2, pytest.approx(-2.1))
    assert (found.n_recordings, found.interval, found.share_better, found.is_certain) == (1, None, None, False)
    assert difference_cell(found) == "-2.1"


@pytest.mark.parametrize(("n", "has_interval"), [(4, False), (5, True)])
def test_fewer_than_five_pairs_of_delays_have_no_interval(n: int, has_interval: bool) -> None:
    one_R = np.array([3.0, 6.0, 9.0, 12.0, 15.0, 0.0, 90.0])
    two_R = np.where(np.arange(7) < n, one_R - 1, np.nan)
    draws_KR = np.random.default_rng(0).integers(7, size=(500, 7))
    found = paired_difference("delay_seconds", one_R, two_R, draws_KR)
    assert (found.n_recordings, found.difference) == (n, pytest.approx(-1))
    assert found.is_certain == has_interval
    if has_interval:  # the recordings that one of the two lacks are in no draw
        assert found.interval == Interval(pytest.approx(-1), pytest.approx(-1))


def test_seeds_are_paired_too() -> None:
    one_SR, two_SR = np.array([[10.0], [50.0]]), np.array([[9.0], [np.nan]])
    found = paired_difference("delay_seconds", one_SR, two_SR, np.zeros((10, 1), dtype=np.int64))
    assert (found.difference, found.n_recordings) == (-1, 1)


def test_the_interval_is_that_of_the_drawn_means() -> None:
    draws_KR = np.array([[0, 0], [0, 1], [1, 1]])
    found = paired_difference("f1", np.array([0.0, 0.0]), np.array([0.2, 0.6]), draws_KR, level=0.5)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (pytest.approx(0.3), pytest.approx(0.5))  # of .2, .4, .6


def test_steps_stand_side_by_side(lamp: Procedure) -> None:
    (one, *_) = compare(summary(lamp, a=None), summary(lamp, a=5), n_bootstrap=100).steps
    assert (one.step_id, one.description, one.n_labels) == (0, "Install foot", 1)
    assert (one.found, one.false, one.delay_seconds) == ((0, 1), (0, 0), (None, 0.5))


def test_sets_of_other_recordings_are_refused(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="recording 'b' is in one of the two only"):
        compare(summary(lamp, a=1), summary(lamp, a=1, b=1))


def test_the_latex_table_has_the_best_in_bold_and_no_commands_in_names(lamp: Procedure) -> None:
    sets = {"a_1": summary(lamp, a=10), "b": summary(lamp, a=5)}
    table = latex_table({name: found.all for name, found in sets.items()}, [compare(*sets.values(), ("a_1", "b"))])
    assert r"a\_1 & \textbf{1.000} & \textbf{1.000} & 1.0 \\" in table
    assert r"b & \textbf{1.000} & \textbf{1.000} & \textbf{0.5} \\" in table
    assert "$-$0.5 \\" in table  # of a single recording there is no interval
    assert latex_text("50 % & {x}") == r"50 \% \& \{x\}"


# ---------------------------------------------------------------------- words
def test_the_verdict_says_no_more_than_the_recordings_do() -> None:
    from stormpsr.evaluation.compare import Comparison, Difference, Interval, verdict

    def told(n: int, low: float, high: float) -> str:
        difference = Difference("f1", 0.5, 0.75, 0.25, Interval(low, high), 0.9, n)
        return verdict(Comparison(("old", "new"), "paper", n, 0.95, (difference,), ()))

    numbers = "F1 0.750 instead of 0.500 on 8 recordings, difference +0.250"
    assert told(8, 0.1, 0.4) == f"new is better: {numbers} (0.100 to 0.400)"
    assert told(8, -0.1, 0.4) == f"no difference can be told: {numbers} (-0.100 to 0.400)"
    assert told(5, 0.1, 0.4).startswith("too few recordings to tell which is better (6 are the least): F1 0.750")
    worse = Difference("f1", 0.75, 0.5, -0.25, Interval(-0.4, -0.1), 0.0, 8)
    assert verdict(Comparison(("old", "new"), "paper", 8, 0.95, (worse,), ())).startswith("old is better: F1 0.500")
    nothing = Difference("f1", None, None, None, None, None, 0)
    assert "cannot be compared" in verdict(Comparison(("old", "new"), "paper", 8, 0.95, (nothing,), ()))
