"""Alarms held against what was true, worked out by hand."""

from __future__ import annotations

import json

import pytest

from stormpsr.data.events import EventKind, StepEvent
from stormpsr.data.labels import StateTimeline
from stormpsr.evaluation.alarms import Alarms, put_together, score_alarms
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.summary import RecordingResult, summarise
from stormpsr.procedure.model import Procedure

FPS, N_FRAMES = 10.0, 600  # a minute
WRONG_POLE = 4
# the foot goes on at 5 s; the pole sits wrongly from 10 s to 20 s and rightly from 30 s on; the shade never comes
STATES = StateTimeline((0, 50, 100, 200, 300), ((0, 0, 0), (1, 0, 0), (1, -1, 0), (1, 0, 0), (1, 1, 0)))
LABELS = (StepEvent(0, 50), StepEvent(3, 300))


def alarms_of(
    lamp: Procedure, *told: tuple[EventKind, int, int], states: StateTimeline = STATES, n_frames: int = N_FRAMES
) -> Alarms:
    """The score of alarms given as (kind, step id, frame)."""
    events = [StepEvent(step_id, frame, kind=kind) for kind, step_id, frame in told]
    return score_alarms(events, LABELS, states, lamp, lamp.variant("build"), fps=FPS, n_frames=n_frames)


# ---------------------------------------------------------------------- parts that sit wrongly
def test_a_wrong_part_is_found_while_it_sits_there(lamp: Procedure) -> None:
    alarms = alarms_of(lamp, ("wrong", WRONG_POLE, 125))
    assert (alarms.wrong_placements, alarms.wrong_found, alarms.wrong_false) == (1, 1, 0)
    assert alarms.wrong_delays_seconds == (2.5,)
    assert (alarms.wrong_recall, alarms.wrong_delay_seconds) == (1.0, 2.5)


@pytest.mark.parametrize(("frame", "found"), [(99, 0), (100, 1), (199, 1), (200, 0)])
def test_an_alarm_counts_from_the_wrong_placement_until_it_is_put_right(
    lamp: Procedure, frame: int, found: int
) -> None:
    alarms = alarms_of(lamp, ("wrong", WRONG_POLE, frame))
    assert (alarms.wrong_found, alarms.wrong_false) == (found, 1 - found)


def test_a_second_alarm_of_the_same_placement_is_neither_found_nor_false(lamp: Procedure) -> None:
    alarms = alarms_of(lamp, ("wrong", WRONG_POLE, 180), ("wrong", WRONG_POLE, 120))
    assert (alarms.wrong_found, alarms.wrong_false) == (1, 0)
    assert alarms.wrong_delays_seconds == (2.0,)  # the first one counts, in whatever order they come


def test_an_alarm_of_another_part_is_false(lamp: Procedure) -> None:
    alarms = alarms_of(lamp, ("wrong", 1, 150), ("wrong", 7, 150))
    assert (alarms.wrong_found, alarms.wrong_false) == (0, 2)
    assert alarms.wrong_false_per_hour == 2 * 60  # in a minute
    assert alarms.wrong_recall == 0.0
    assert alarms.wrong_delay_seconds is None


def test_a_part_that_is_wrong_twice_or_to_the_end_is_to_be_found_each_time(lamp: Procedure) -> None:
    on, wrong, off = (1, 1, 0), (1, -1, 0), (1, 0, 0)
    states = StateTimeline((0, 100, 200, 300, 400, 500), (off, wrong, off, wrong, on, (-1, 1, 0)))
    alarms = alarms_of(lamp, ("wrong", WRONG_POLE, 110), ("wrong", WRONG_POLE, 330), ("wrong", 1, 599), states=states)
    assert (alarms.wrong_placements, alarms.wrong_found, alarms.wrong_false) == (3, 3, 0)
    assert sorted(alarms.wrong_delays_seconds) == [1.0, 3.0, 9.9]


def test_what_happens_elsewhere_does_not_end_a_wrong_placement(lamp: Procedure) -> None:
    states = StateTimeline((0, 100, 200), ((0, 0, 0), (-1, 0, 0), (-1, 1, 0)))
    alarms = alarms_of(lamp, ("wrong", 1, 250), states=states)
    assert (alarms.wrong_placements, alarms.wrong_delays_seconds) == (1, (15.0,))


# ---------------------------------------------------------------------- steps that were left out
def test_a_step_that_never_came_is_found(lamp: Procedure) -> None:
    alarms = alarms_of(lamp, ("skipped", 6, 599))
    assert (alarms.skipped_steps, alarms.skipped_found, alarms.skipped_false) == (1, 1, 0)
    assert alarms.skipped_recall == 1.0


def test_a_step_that_came_sooner_or_later_was_not_left_out(lamp: Procedure) -> None:
    alarms = alarms_of(lamp, ("skipped", 3, 250), ("skipped", 3, 260), ("skipped", 0, 599))
    assert (alarms.skipped_found, alarms.skipped_false) == (0, 2)  # a step counts once
    assert alarms.skipped_false_per_hour == 2 * 60


def test_completions_are_no_alarms(lamp: Procedure) -> None:
    alarms = alarms_of(lamp, ("completed", 6, 150), ("unexpected", 5, 150))
    assert (alarms.wrong_false, alarms.skipped_found, alarms.skipped_false) == (0, 0, 0)


def test_only_installations_can_be_left_out(lamp: Procedure) -> None:
    variant = lamp.variant("dismantle")
    alarms = score_alarms([], [], STATES, lamp, variant, fps=FPS, n_frames=N_FRAMES)
    assert alarms.skipped_steps == 0
    assert alarms.skipped_recall is None


# ---------------------------------------------------------------------- several recordings
def test_recordings_are_put_together(lamp: Procedure) -> None:
    one = alarms_of(lamp, ("wrong", WRONG_POLE, 110), ("skipped", 6, 599))
    other = alarms_of(lamp, ("wrong", WRONG_POLE, 150), ("wrong", 1, 400), n_frames=3 * N_FRAMES)
    third = alarms_of(lamp)
    both = put_together([one, other, third])
    assert both.seconds == 60 + 180 + 60
    assert (both.wrong_placements, both.wrong_found, both.wrong_false) == (3, 2, 1)
    assert both.wrong_delay_seconds == (1.0 + 5.0) / 2  # over alarms, not over recordings
    assert both.wrong_false_per_hour == pytest.approx(12)  # one in five minutes
    assert (both.skipped_steps, both.skipped_found) == (3, 1)


def test_a_summary_carries_the_alarms_of_those_recordings_that_have_any(lamp: Procedure) -> None:
    alarms = alarms_of(lamp, ("wrong", WRONG_POLE, 110))
    scores = score(LABELS, LABELS, fps=FPS)
    summary = summarise([RecordingResult("a", scores, True, alarms), RecordingResult("b", scores, True)])
    assert summary.alarms == alarms
    plain = json.loads(json.dumps(summary.to_dict()))["alarms"]
    assert (plain["wrong_found"], plain["wrong_recall"], plain["wrong_delay_seconds"]) == (1, 1.0, 1.0)
    assert summarise([RecordingResult("b", scores, True)]).alarms is None


def test_nothing_that_can_be_found_has_no_recall(lamp: Procedure) -> None:
    right = StateTimeline((0,), ((0, 0, 0),))
    alarms = alarms_of(lamp, states=right, n_frames=0)
    assert (alarms.wrong_recall, alarms.wrong_delay_seconds) == (None, None)
    assert (alarms.wrong_false_per_hour, alarms.skipped_false_per_hour) == (0.0, 0.0)
