"""POS, F1 and delay by the definitions, sentence by sentence. Frames and steps are small enough to check by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from stormpsr.data.events import StepEvent
from stormpsr.data.labels import STEPS_FILE, STEPS_WITH_ERRORS_FILE, read_steps
from stormpsr.errors import InputError
from stormpsr.evaluation.metrics import Match, Scores, score
from stormpsr.procedure.model import Procedure

A, B, C, D = 0, 3, 6, 9  # step ids


def at(*rows: tuple[int, int]) -> list[StepEvent]:
    """Events from (frame, step id) rows."""
    return [StepEvent(step_id=step_id, frame=frame) for frame, step_id in rows]


def scored(labels: list[StepEvent], events: list[StepEvent]) -> Scores:
    return score(labels, events, fps=10)


def counts(scores: Scores) -> tuple[int, int, int]:
    return scores.true_positives, scores.false_positives, scores.false_negatives


# ---------------------------------------------------------------------- matching
def test_an_event_in_the_very_frame_of_its_label_is_a_true_positive_without_delay() -> None:
    scores = scored(at((10, A)), at((10, A)))
    assert counts(scores) == (1, 0, 0)
    assert scores.delay_frames == 0
    assert scores.matches == (Match(A, label_frame=10, event_frame=10),)


def test_an_event_after_its_label_is_a_true_positive_with_a_delay() -> None:
    scores = scored(at((10, A)), at((35, A)))
    assert counts(scores) == (1, 0, 0)
    assert scores.delay_frames == 25
    assert scores.delay_seconds == 2.5


def test_an_event_before_its_label_is_a_false_positive_and_no_false_negative_as_well() -> None:
    scores = scored(at((10, A)), at((9, A)))
    assert counts(scores) == (0, 1, 0)
    assert scores.unmatched_events == tuple(at((9, A)))
    assert scores.unmatched_labels == tuple(at((10, A)))


def test_a_step_that_is_never_predicted_is_a_false_negative() -> None:
    assert counts(scored(at((10, A), (20, B)), at((10, A)))) == (1, 0, 1)


def test_a_step_that_was_never_labelled_is_a_false_positive() -> None:
    assert counts(scored(at((10, A)), at((10, A), (20, B)))) == (1, 1, 0)


def test_labels_take_the_first_unused_event_in_time_order() -> None:
    # 10 takes 12, 20 takes 21; 15 came too early for 20 and is left over
    scores = scored(at((10, A), (20, A)), at((12, A), (15, A), (21, A)))
    assert [(m.label_frame, m.event_frame) for m in scores.matches] == [(10, 12), (20, 21)]
    assert counts(scores) == (2, 1, 0)
    assert scores.delay_frames == 1.5


def test_an_event_is_used_once() -> None:
    # both labels could take 30; the earlier does, and nothing is left for the later
    scores = scored(at((10, A), (20, A)), at((30, A)))
    assert counts(scores) == (1, 0, 1)
    assert scores.delay_frames == 20


def test_a_leftover_event_covers_one_missed_label_of_its_step_and_no_more() -> None:
    # 10 and 20 and 30 are missed, 5 is too early for all: one of them is covered, two are false negatives
    assert counts(scored(at((10, A), (20, A), (30, A)), at((5, A)))) == (0, 1, 2)


def test_a_leftover_event_does_not_cover_a_label_of_another_step() -> None:
    assert counts(scored(at((10, A)), at((5, B)))) == (0, 1, 1)


def test_the_surplus_of_early_events_covers_nothing() -> None:
    assert counts(scored(at((10, A)), at((3, A), (4, A), (5, A)))) == (0, 3, 0)


def test_an_early_event_does_not_spoil_the_right_one_after_it() -> None:
    assert counts(scored(at((10, A)), at((5, A), (11, A)))) == (1, 1, 0)


# ---------------------------------------------------------------------- F1 and delay
def test_f1_is_the_harmonic_mean_of_precision_and_recall() -> None:
    scores = scored(at((10, A), (20, B), (30, C)), at((10, A), (20, B), (25, D)))
    assert (scores.precision, scores.recall) == (2 / 3, 2 / 3)
    assert scores.f1 == pytest.approx(2 / 3)
    # 1 true positive, 0 false positives, 2 false negatives: 2 / (2 + 0 + 2)
    assert scored(at((10, A), (20, B), (30, C)), at((10, A))).f1 == 0.5


def test_the_delay_is_the_mean_over_true_positives_only() -> None:
    scores = scored(at((10, A), (20, B), (30, C)), at((14, A), (26, B), (29, C)))
    assert scores.delay_frames == 5  # (4 + 6) / 2; C came too early


def test_nothing_recognised_is_no_delay_rather_than_a_number() -> None:
    for events in ([], at((5, A)), at((50, B))):
        scores = scored(at((10, A)), events)
        assert scores.delay_frames is None
        assert scores.delay_seconds is None
        assert scores.f1 == 0


def test_seconds_follow_the_frames_per_second() -> None:
    labels, events = at((0, A)), at((60, A))
    assert score(labels, events, fps=12).delay_seconds == 5
    assert score(labels, events, fps=30).delay_seconds == 2
    assert score(labels, events, fps=0.5).delay_seconds == 120  # a frame every two seconds


# ---------------------------------------------------------------------- POS
@pytest.mark.parametrize(
    ("predicted", "pos"),
    [
        ((A, B, C, D), 1.0),
        ((A, B, C), 0.75),  # one deletion of four
        ((A, C, B, D), 0.75),  # one transposition
        ((A, B, C, D, D), 0.75),  # one insertion
        ((A, B, C, 12), 0.5),  # one substitution, which costs 2
        ((), 0.0),
    ],
)
def test_pos_is_one_minus_the_edits_per_label(predicted: tuple[int, ...], pos: float) -> None:
    labels = at((0, A), (10, B), (20, C), (30, D))
    events = [StepEvent(step_id, 100 + i) for i, step_id in enumerate(predicted)]
    assert scored(labels, events).pos == pos


def test_pos_does_not_fall_below_zero() -> None:
    assert scored(at((0, A)), at((1, B), (2, C), (3, D), (4, B))).pos == 0  # distance 5, one label


def test_pos_asks_for_the_order_only_not_for_the_time() -> None:
    assert scored(at((10, A), (20, B)), at((1, A), (2, B))).pos == 1


def test_a_step_id_may_be_as_large_as_it_likes() -> None:
    labels = at((0, 300), (10, 303), (20, 306))
    assert scored(labels, at((0, 300), (10, 303), (20, 306))).pos == 1
    assert scored(labels, at((0, 300), (10, 306), (20, 303))).pos == pytest.approx(2 / 3)


# ---------------------------------------------------------------------- steps completed in the same frame
def test_labels_of_one_frame_follow_the_order_in_which_they_are_predicted() -> None:
    labels = at((10, A), (10, B))
    assert scored(labels, at((11, A), (12, B))).pos == 1
    assert scored(labels, at((11, B), (12, A))).pos == 1


def test_labels_of_different_frames_keep_their_order() -> None:
    assert scored(at((10, A), (11, B)), at((12, B), (13, A))).pos == 0.5


def test_only_predictions_at_or_after_the_frame_order_its_labels() -> None:
    # B was predicted too early; from frame 10 on only A is, so the labels stand A, B and the events B, A
    assert scored(at((10, A), (10, B)), at((5, B), (11, A))).pos == 0.5
    # in the very frame counts
    assert scored(at((10, A), (10, B)), at((10, B), (11, A))).pos == 1


def test_labels_of_one_frame_that_are_never_predicted_after_it_come_last_by_id() -> None:
    # labels stand C (predicted), then A and B by id; events A, B, C: C has to be moved, by a deletion and an insertion
    assert scored(at((10, A), (10, B), (10, C)), at((1, A), (2, B), (11, C))).pos == pytest.approx(1 - 2 / 3)
    # the same with B before A: one transposition more than the deletion and the insertion
    assert scored(at((10, A), (10, B), (10, C)), at((1, B), (2, A), (11, C))).pos == pytest.approx(1 - 3 / 3)


def test_a_repeated_label_that_is_not_predicted_after_its_frame_also_comes_by_id() -> None:
    # D at 10 and again at 30, together with A; nothing is predicted from 30 on: the labels stand D, A, D
    assert scored(at((10, D), (30, A), (30, D)), at((11, D), (12, A), (13, D))).pos == 1


def test_events_of_one_frame_follow_the_labels() -> None:
    events = at((50, A), (50, B), (50, C))
    assert scored(at((10, A), (20, B), (30, C)), events).pos == 1
    assert scored(at((10, C), (20, B), (30, A)), events).pos == 1


def test_events_of_one_frame_without_a_label_come_last() -> None:
    # B has no label: the events of frame 50 stand A, C, B; only B has to go
    assert scored(at((10, A), (20, C)), at((50, A), (50, B), (50, C))).pos == 0.5


def test_a_step_repeated_together_with_others_in_one_frame_keeps_a_perfect_prediction_perfect() -> None:
    # D is put on, taken off (id 11), and put on again in the same frame as A and B, whose ids are smaller
    labels = at((10, D), (20, 11), (30, A), (30, B), (30, D))
    assert scored(labels, labels).pos == 1


def test_a_perfect_prediction_of_every_published_recording_is_perfect(meccano: Procedure, meccano_psr: Path) -> None:
    files = [path for name in (STEPS_FILE, STEPS_WITH_ERRORS_FILE) for path in sorted(meccano_psr.glob(f"*/*/{name}"))]
    assert len(files) == 40
    for path in files:
        labels = read_steps(path, meccano)
        scores = score(labels, labels, procedure=meccano)
        assert (scores.pos, scores.f1, scores.delay_frames) == (1, 1, 0), path


# ---------------------------------------------------------------------- nothing there
def test_nothing_to_recognise_and_nothing_reported_is_perfect() -> None:
    scores = scored([], [])
    assert (scores.pos, scores.f1, scores.delay_frames) == (1, 1, None)
    assert counts(scores) == (0, 0, 0)
    assert (scores.precision, scores.recall) == (None, None)


def test_reporting_something_where_there_is_nothing_scores_zero() -> None:
    scores = scored([], at((5, A), (6, B)))
    assert (scores.pos, scores.f1, scores.delay_frames) == (0, 0, None)
    assert counts(scores) == (0, 2, 0)


def test_reporting_nothing_scores_zero() -> None:
    scores = scored(at((5, A), (6, B)), [])
    assert (scores.pos, scores.f1, scores.delay_frames) == (0, 0, None)
    assert counts(scores) == (0, 0, 2)


# ---------------------------------------------------------------------- arguments
def test_frames_per_second_come_from_the_procedure_unless_they_are_given(lamp: Procedure) -> None:
    labels, events = at((0, A)), at((60, A))
    assert score(labels, events, procedure=lamp).delay_seconds == 6
    assert score(labels, events, procedure=lamp, fps=30).delay_seconds == 2
    with pytest.raises(InputError, match="frames per second are unknown; give fps= or procedure="):
        score(labels, events)


@pytest.mark.parametrize("fps", [0, -10, float("inf"), float("nan")])
def test_frames_per_second_must_be_a_positive_number(fps: float) -> None:
    with pytest.raises(InputError, match="fps is"):
        score(at((0, A)), [], fps=fps)


@pytest.mark.parametrize("where", ["labels", "events"])
def test_a_step_that_the_procedure_does_not_know_is_refused(lamp: Procedure, where: str) -> None:
    rows = {"labels": at((0, A)), "events": at((0, A)), where: at((0, 9))}
    with pytest.raises(InputError, match="step id 9 does not exist in procedure 'lamp'"):
        score(**rows, procedure=lamp)  # type: ignore[arg-type]


def test_an_unknown_protocol_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(InputError, match="unknown protocol 'fair'; choose one of: paper, industreal, storm"):
        score([], [], fps=10, protocol="fair")  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", ["paper", "industreal"])
def test_a_window_is_refused_where_it_has_no_meaning(protocol: str) -> None:
    with pytest.raises(InputError, match="a window has no meaning"):
        score(at((0, A)), [], fps=10, protocol=protocol, window=256)  # type: ignore[arg-type]


def test_a_window_has_at_least_one_frame() -> None:
    with pytest.raises(InputError, match="the window is 0 frames"):
        score(at((0, A)), [], fps=10, protocol="storm", window=0)


def test_labels_and_events_may_be_any_iterables() -> None:
    assert score(iter(at((0, A))), (event for event in at((0, A))), fps=10).f1 == 1
