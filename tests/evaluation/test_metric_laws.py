"""Laws that hold for any labels and events under the definitions (protocol `paper`)."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stormpsr.data.events import StepEvent
from stormpsr.evaluation.metrics import Scores, score

step_ids = st.integers(0, 7)
# few steps and few frames, so that steps repeat and share frames all the time
rows = st.lists(st.builds(StepEvent, step_id=step_ids, frame=st.integers(0, 25)), max_size=9)
labels_alone_in_their_frames = st.lists(
    st.builds(StepEvent, step_id=step_ids, frame=st.integers(0, 25)), max_size=9, unique_by=lambda event: event.frame
)
renamings = st.permutations(range(8))
delays = st.integers(0, 40)


def scored(labels: Sequence[StepEvent], events: Sequence[StepEvent]) -> Scores:
    return score(labels, events, fps=10)


def later(events: Sequence[StepEvent], frames: int) -> list[StepEvent]:
    return [dataclasses.replace(event, frame=event.frame + frames) for event in events]


def renamed(events: Sequence[StepEvent], names: Sequence[int]) -> list[StepEvent]:
    return [dataclasses.replace(event, step_id=names[event.step_id]) for event in events]


# ---------------------------------------------------------------------- perfection
@given(rows)
def test_a_perfect_prediction_scores_one_one_zero(labels: list[StepEvent]) -> None:
    scores = scored(labels, labels)
    assert (scores.pos, scores.f1) == (1, 1)
    assert scores.delay_frames == (0 if labels else None)


@given(rows, delays)
def test_a_late_prediction_keeps_f1_and_has_its_lateness_as_delay(labels: list[StepEvent], delay: int) -> None:
    assume(labels)
    scores = scored(labels, later(labels, delay))
    assert (scores.f1, scores.delay_frames, scores.delay_seconds) == (1, delay, delay / 10)


@given(labels_alone_in_their_frames, delays)
def test_a_late_prediction_keeps_pos_where_labels_have_frames_of_their_own(labels: list[StepEvent], delay: int) -> None:
    assert scored(labels, later(labels, delay)).pos == 1


@given(rows, delays)
def test_a_late_prediction_keeps_pos_where_no_step_is_repeated_within_the_delay(
    labels: list[StepEvent], delay: int
) -> None:
    frames = {(label.step_id, label.frame) for label in labels}
    assume(not any(a[0] == b[0] and 0 < b[1] - a[1] <= delay for a in frames for b in frames))
    assert scored(labels, later(labels, delay)).pos == 1


def test_a_late_prediction_may_lose_pos_where_a_step_is_repeated_within_the_delay_in_company() -> None:
    # From frame 3 on, step 1 is predicted at 3 (for the label at 2) and step 0 at 4, so the labels of frame 3 stand
    # 1, 0; the events of frame 4 stand as their steps do first, 0, 1. The rule asks for no more than that.
    labels = [StepEvent(0, 0), StepEvent(1, 2), StepEvent(0, 3), StepEvent(1, 3)]
    assert scored(labels, later(labels, 1)).pos == 0.75


# ---------------------------------------------------------------------- names
@given(rows, rows, st.lists(st.integers(0, 500), min_size=8, max_size=8, unique=True).map(sorted))
def test_renaming_steps_in_order_changes_nothing(
    labels: list[StepEvent], events: list[StepEvent], names: list[int]
) -> None:
    before, after = scored(labels, events), scored(renamed(labels, names), renamed(events, names))
    assert (after.pos, after.f1, after.delay_frames) == (before.pos, before.f1, before.delay_frames)
    assert [(m.label_frame, m.event_frame) for m in after.matches] == [
        (m.label_frame, m.event_frame) for m in before.matches
    ]


@given(rows, rows, renamings)
def test_renaming_steps_in_any_way_changes_neither_f1_nor_delay(
    labels: list[StepEvent], events: list[StepEvent], names: list[int]
) -> None:
    before, after = scored(labels, events), scored(renamed(labels, names), renamed(events, names))
    for name in ("f1", "delay_frames", "true_positives", "false_positives", "false_negatives"):
        assert getattr(after, name) == getattr(before, name)


@given(labels_alone_in_their_frames, rows, renamings)
def test_renaming_steps_in_any_way_keeps_pos_where_labels_have_frames_of_their_own(
    labels: list[StepEvent], events: list[StepEvent], names: list[int]
) -> None:
    assert scored(renamed(labels, names), renamed(events, names)).pos == scored(labels, events).pos


def test_renaming_may_change_pos_where_labels_share_a_frame_and_are_predicted_only_before_it() -> None:
    # both were predicted too early, so the labels of frame 10 stand by id
    events = [StepEvent(0, 1), StepEvent(1, 2)]
    labels = [StepEvent(0, 10), StepEvent(1, 10)]
    assert scored(labels, events).pos == 1
    assert scored(renamed(labels, [1, 0]), renamed(events, [1, 0])).pos == 0.5


# ---------------------------------------------------------------------- rows
@given(rows, rows, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(
    labels: list[StepEvent], events: list[StepEvent], shuffler: random.Random
) -> None:
    before = scored(labels, events)
    labels, events = list(labels), list(events)
    shuffler.shuffle(labels)
    shuffler.shuffle(events)
    assert scored(labels, events) == before


@given(rows, rows, delays)
def test_only_differences_of_frames_matter(labels: list[StepEvent], events: list[StepEvent], start: int) -> None:
    before, after = scored(labels, events), scored(later(labels, start), later(events, start))
    assert (after.pos, after.f1, after.delay_frames) == (before.pos, before.f1, before.delay_frames)


@given(rows, rows, st.data())
def test_removing_an_unmatched_event_never_lowers_f1(
    labels: list[StepEvent], events: list[StepEvent], data: st.DataObject
) -> None:
    before = scored(labels, events)
    assume(before.unmatched_events)
    events = list(events)
    events.remove(data.draw(st.sampled_from(before.unmatched_events)))
    after = scored(labels, events)
    assert after.f1 >= before.f1
    assert after.matches == before.matches


@given(rows, rows)
def test_adding_the_right_event_for_a_missed_label_never_lowers_f1(
    labels: list[StepEvent], events: list[StepEvent]
) -> None:
    before = scored(labels, events)
    assume(before.unmatched_labels)
    missed = before.unmatched_labels[0]
    assert scored(labels, [*events, StepEvent(missed.step_id, missed.frame)]).f1 >= before.f1


# ---------------------------------------------------------------------- bounds and counts
@given(rows, rows)
def test_scores_stay_within_their_bounds(labels: list[StepEvent], events: list[StepEvent]) -> None:
    scores = scored(labels, events)
    assert 0 <= scores.pos <= 1
    assert 0 <= scores.f1 <= 1
    assert (scores.delay_frames is None) == (scores.true_positives == 0)
    assert all(match.delay_frames >= 0 for match in scores.matches)


@given(rows, rows)
def test_every_event_and_every_label_is_counted_once(labels: list[StepEvent], events: list[StepEvent]) -> None:
    scores = scored(labels, events)
    assert scores.true_positives + scores.false_positives == len(events)
    assert scores.true_positives + len(scores.unmatched_labels) == len(labels)
    assert len(scores.matches) == scores.true_positives
    assert len(scores.unmatched_events) == scores.false_positives
    assert scores.false_negatives <= len(scores.unmatched_labels)


@given(rows, rows)
def test_a_leftover_event_came_before_every_leftover_label_of_its_step(
    labels: list[StepEvent], events: list[StepEvent]
) -> None:
    scores = scored(labels, events)
    for event in scores.unmatched_events:
        for label in scores.unmatched_labels:
            assert event.step_id != label.step_id or event.frame < label.frame


@given(rows, rows)
def test_delay_and_f1_agree_with_the_matches(labels: list[StepEvent], events: list[StepEvent]) -> None:
    scores = scored(labels, events)
    assume(scores.matches)
    total = sum(match.event_frame - match.label_frame for match in scores.matches)
    assert scores.delay_frames == pytest.approx(total / len(scores.matches))
    assert scores.precision is not None
    assert scores.recall is not None
    harmonic = 2 * scores.precision * scores.recall / (scores.precision + scores.recall)
    assert scores.f1 == pytest.approx(harmonic)
