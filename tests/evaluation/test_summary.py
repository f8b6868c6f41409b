"""Scores over many recordings, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpsr.data.events import StepEvent
from stormpsr.data.labels import StateTimeline
from stormpsr.errors import InputError
from stormpsr.evaluation.metrics import Scores, score
from stormpsr.evaluation.summary import RecordingResult, contains_errors, recognised_within, summarise
from stormpsr.procedure.model import Procedure

FPS = 10.0


def events(*pairs: tuple[int, int]) -> tuple[StepEvent, ...]:
    """Step events from (step id, frame)."""
    return tuple(StepEvent(step_id, frame) for step_id, frame in pairs)


def result(
    name: str, labels: tuple[StepEvent, ...], predicted: tuple[StepEvent, ...], has_errors: bool | None = None
) -> RecordingResult:
    return RecordingResult(name, score(labels, predicted, fps=FPS), has_errors)


# everything found after 1 s and 3 s; half of it found after 5 s; nothing found
PERFECT = result("perfect", events((0, 0), (3, 100)), events((0, 10), (3, 130)), has_errors=False)
HALF = result("half", events((0, 0), (3, 100)), events((0, 50)), has_errors=True)
NOTHING = result("nothing", events((0, 0), (3, 100)), (), has_errors=True)


# ---------------------------------------------------------------------- means and pooled counts
def test_means_are_taken_over_recordings() -> None:
    group = summarise([PERFECT, HALF]).all
    assert group.n_recordings == 2
    assert group.pos == pytest.approx((1 + 0.5) / 2)
    assert group.f1 == pytest.approx((1 + 2 / 3) / 2)
    assert group.delay_seconds == pytest.approx((2.0 + 5.0) / 2)


def test_counts_are_pooled_over_steps() -> None:
    group = summarise([PERFECT, HALF]).all
    assert (group.true_positives, group.false_positives, group.false_negatives) == (3, 0, 1)
    assert group.pooled_f1 == pytest.approx(6 / 7)
    assert group.pooled_delay_seconds == pytest.approx((1.0 + 3.0 + 5.0) / 3)


def test_a_recording_without_a_match_has_no_delay_and_is_counted_not_averaged() -> None:
    group = summarise([PERFECT, NOTHING]).all
    assert group.delay_seconds == pytest.approx(2.0)
    assert group.n_without_match == 1
    assert group.pos == pytest.approx(0.5)


def test_the_interval_of_the_delay_leaves_out_recordings_without_a_match() -> None:
    interval = summarise([PERFECT, NOTHING, NOTHING]).all.delay_interval
    assert interval is not None
    assert (interval.low, interval.high) == (2.0, 2.0)


def test_where_nothing_was_ever_matched_there_is_no_delay_at_all() -> None:
    group = summarise([NOTHING, NOTHING]).all
    assert group.delay_seconds is None
    assert group.delay_interval is None
    assert group.pooled_delay_seconds is None
    assert group.n_without_match == 2
    assert group.pooled_f1 == 0.0


def test_recordings_with_and_without_errors_are_summarised_apart() -> None:
    summary = summarise([PERFECT, HALF, NOTHING])
    assert summary.without_errors is not None
    assert summary.with_errors is not None
    assert (summary.without_errors.n_recordings, summary.without_errors.pos) == (1, 1.0)
    assert (summary.with_errors.n_recordings, summary.with_errors.pos) == (2, 0.25)


def test_a_group_without_recordings_is_none() -> None:
    summary = summarise([PERFECT, replace(HALF, has_errors=None)])
    assert summary.with_errors is None
    assert summary.without_errors is not None
    assert summary.without_errors.n_recordings == 1


def test_recordings_keep_their_order() -> None:
    assert [entry.name for entry in summarise([HALF, PERFECT]).recordings] == ["half", "perfect"]


# ---------------------------------------------------------------------- intervals
def test_intervals_are_the_same_for_the_same_seed_and_differ_for_another() -> None:
    results = [PERFECT, HALF, NOTHING, PERFECT, HALF]
    first, again, other = (summarise(results, n_bootstrap=50, seed=seed).all for seed in (1, 1, 2))
    assert first == again
    assert first.pos_interval != other.pos_interval


def test_a_single_recording_has_an_interval_of_no_width() -> None:
    group = summarise([HALF]).all
    assert (group.pos_interval.low, group.pos_interval.high) == (0.5, 0.5)
    assert group.delay_interval is not None
    assert (group.delay_interval.low, group.delay_interval.high) == (5.0, 5.0)


def test_two_recordings_are_resampled_to_the_extremes() -> None:
    # a quarter of the draws takes the first twice, a quarter the second twice
    group = summarise([PERFECT, HALF]).all
    assert (group.pos_interval.low, group.pos_interval.high) == (0.5, 1.0)


def test_a_narrower_level_gives_a_narrower_interval() -> None:
    results = [PERFECT, HALF, NOTHING, PERFECT, HALF, NOTHING, PERFECT, HALF]
    wide, narrow = (summarise(results, level=level).all.f1_interval for level in (0.95, 0.5))
    assert wide.low < narrow.low < narrow.high < wide.high


def scored(pos: float, f1: float, delay: float | None) -> RecordingResult:
    """A recording with given figures, without any steps."""
    scores = Scores(pos, f1, None if delay is None else delay * FPS, delay, 0, 0, 0, ())
    return RecordingResult("r", replace(scores, fps=FPS))


FIGURES = st.floats(0, 1)
DELAYS = st.none() | st.floats(0, 1000)


@given(st.lists(st.builds(scored, FIGURES, FIGURES, DELAYS), min_size=1, max_size=12), st.integers(0, 99))
def test_intervals_contain_the_mean(results: list[RecordingResult], seed: int) -> None:
    group = summarise(results, n_bootstrap=300, seed=seed).all
    pairs = [(group.pos, group.pos_interval), (group.f1, group.f1_interval)]
    if group.delay_seconds is not None:
        assert group.delay_interval is not None
        pairs.append((group.delay_seconds, group.delay_interval))
    for mean, interval in pairs:
        assert interval.low - 1e-9 <= mean <= interval.high + 1e-9


# ---------------------------------------------------------------------- refusals
def test_no_recordings_cannot_be_summarised() -> None:
    with pytest.raises(InputError, match="there is no recording to summarise"):
        summarise([])


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, 95, float("nan")])
def test_a_confidence_level_lies_between_0_and_1(level: float) -> None:
    with pytest.raises(InputError, match="the confidence level is"):
        summarise([PERFECT], level=level)


def test_at_least_one_bootstrap_sample_is_needed() -> None:
    with pytest.raises(InputError, match="0 bootstrap samples"):
        summarise([PERFECT], n_bootstrap=0)


def test_scores_of_different_protocols_are_not_mixed() -> None:
    other = replace(HALF, scores=score(HALF.labels, HALF.events, fps=FPS, protocol="storm"))
    with pytest.raises(InputError, match="different protocols cannot be put together: paper, storm"):
        summarise([PERFECT, other])


# ---------------------------------------------------------------------- per step
def test_the_table_of_steps_counts_by_the_papers_matching(lamp: Procedure) -> None:
    spurious = result("spurious", events((0, 50)), events((0, 40), (0, 70), (6, 5)))
    table = {step.step_id: step for step in summarise([PERFECT, HALF, spurious], lamp).steps}
    assert list(table) == [0, 3, 6]
    foot, pole, shade = table.values()
    assert (foot.description, foot.n_labels, foot.true_positives, foot.false_positives, foot.missed) == (
        "Install foot",
        3,
        3,
        1,
        0,
    )
    assert foot.delay_seconds == pytest.approx((1.0 + 5.0 + 2.0) / 3)
    assert (pole.n_labels, pole.true_positives, pole.missed, pole.delay_seconds) == (2, 1, 1, 3.0)
    assert (shade.n_labels, shade.false_positives, shade.delay_seconds) == (0, 1, None)


def test_without_a_procedure_steps_are_named_by_number() -> None:
    assert [step.description for step in summarise([PERFECT]).steps] == ["step 0", "step 3"]


def test_the_table_of_steps_does_not_depend_on_the_protocol(lamp: Procedure) -> None:
    def under(protocol: str) -> list[RecordingResult]:
        return [
            replace(r, scores=score(r.labels, r.events, procedure=lamp, fps=FPS, protocol=protocol))  # type: ignore[arg-type]
            for r in (PERFECT, HALF)
        ]

    assert summarise(under("industreal"), lamp).steps == summarise(under("paper"), lamp).steps


# ---------------------------------------------------------------------- the curve
def test_the_share_recognised_within_a_time_counts_missed_steps_as_never() -> None:
    # delays 1 s, 3 s, 5 s, and one step missed
    assert recognised_within([PERFECT, HALF], [0, 0.9, 1, 3, 4.99, 5, 1000]) == [0, 0, 0.25, 0.5, 0.5, 0.75, 0.75]


def test_without_labels_there_is_nothing_left_to_recognise() -> None:
    assert recognised_within([result("empty", (), events((0, 5)))], [0, 10]) == [1.0, 1.0]


STEPS = st.lists(st.builds(StepEvent, step_id=st.integers(0, 4), frame=st.integers(0, 300)), max_size=10).map(tuple)


@given(st.lists(st.tuples(STEPS, STEPS), min_size=1, max_size=4), st.lists(st.floats(0, 40), min_size=2, max_size=20))
def test_the_curve_never_falls_and_ends_at_the_recall(
    pairs: list[tuple[tuple[StepEvent, ...], tuple[StepEvent, ...]]], seconds: list[float]
) -> None:
    results = [result(str(i), labels, predicted) for i, (labels, predicted) in enumerate(pairs)]
    curve = recognised_within(results, [*sorted(seconds), 1e9])
    assert curve == sorted(curve)
    n_labels = sum(len(entry.labels) for entry in results)
    recognised = sum(len(entry.scores.matches) for entry in results)
    assert curve[-1] == pytest.approx(recognised / n_labels if n_labels else 1.0)


# ---------------------------------------------------------------------- execution errors
def test_a_recording_has_errors_if_a_part_was_wrong(lamp: Procedure) -> None:
    complete = events((0, 10), (3, 20), (6, 30))
    wrong = StateTimeline((0, 5), ((0, 0, 0), (-1, 0, 0)))
    right = StateTimeline((0, 5), ((0, 0, 0), (1, 0, 0)))
    assert contains_errors(complete, lamp, variant="build", timeline=wrong)
    assert not contains_errors(complete, lamp, variant="build", timeline=right)
    assert contains_errors(complete, lamp, variant="build", labels_with_errors=events((1, 5)))
    assert not contains_errors(complete, lamp, variant="build", labels_with_errors=complete)


def test_a_recording_has_errors_if_an_expected_step_was_left_out(lamp: Procedure) -> None:
    incomplete = events((0, 10), (6, 30))
    assert contains_errors(incomplete, lamp, variant="build")
    assert not contains_errors(incomplete, lamp, variant=None)
