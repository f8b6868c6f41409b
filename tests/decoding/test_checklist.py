"""The work instruction with its ticks."""

from __future__ import annotations

from stormpsr.data.events import StepEvent
from stormpsr.decoding.checklist import Checklist
from stormpsr.procedure.model import Procedure


def ticks(checklist: Checklist) -> list[bool]:
    return [row.done is not None for row in checklist.rows()]


def test_expected_steps_are_ticked_off(lamp: Procedure) -> None:
    checklist = Checklist(lamp, "build")
    assert [row.step.description for row in checklist.rows()] == ["Install foot", "Install pole", "Install shade"]
    checklist.update([StepEvent(3, 12, 1.2)])
    assert ticks(checklist) == [False, True, False]
    assert checklist.rows()[1].done == StepEvent(3, 12, 1.2)
    checklist.reset()
    assert ticks(checklist) == [False, False, False]


def test_a_tick_goes_away_when_the_step_is_undone(lamp: Procedure) -> None:
    checklist = Checklist(lamp, "build")
    checklist.update([StepEvent(0, 1), StepEvent(2, 5)])
    assert ticks(checklist) == [False, False, False]
    assert checklist.unexpected == (StepEvent(2, 5),)
    checklist.update([StepEvent(0, 9)])
    assert ticks(checklist) == [True, False, False]


def test_a_wrong_placement_undoes_the_tick_too(lamp: Procedure) -> None:
    checklist = Checklist(lamp, "build")
    checklist.update([StepEvent(0, 1), StepEvent(1, 5)])
    assert ticks(checklist) == [False, False, False]


def test_a_row_shows_its_share_of_the_evidence(lamp: Procedure) -> None:
    share = [0.0] * 9
    share[6] = 0.5
    assert [row.share for row in Checklist(lamp, "build").rows(share)] == [0.0, 0.0, 0.5]


# ---------------------------------------------------------------------- alarms
def alarms(checklist: Checklist) -> list[str | None]:
    return [row.alarm.kind if row.alarm else None for row in checklist.rows()]


def test_a_wrong_part_takes_the_tick_away_and_raises_an_alarm(lamp: Procedure) -> None:
    checklist = Checklist(lamp, "build")
    checklist.update([StepEvent(3, 5), StepEvent(4, 9, kind="wrong")])
    assert ticks(checklist) == [False, False, False]
    assert alarms(checklist) == [None, "wrong", None]
    assert checklist.unexpected == ()  # it completes nothing


def test_a_step_that_was_left_out_is_marked_and_leaves_ticks_alone(lamp: Procedure) -> None:
    checklist = Checklist(lamp, "build")
    checklist.update([StepEvent(6, 5), StepEvent(3, 9, kind="skipped")])
    assert ticks(checklist) == [False, False, True]
    assert alarms(checklist) == [None, "skipped", None]


def test_an_alarm_ends_when_the_step_is_completed_or_the_part_is_taken_off(lamp: Procedure) -> None:
    checklist = Checklist(lamp, "build")
    checklist.update([StepEvent(1, 5, kind="wrong"), StepEvent(4, 6, kind="wrong")])
    checklist.update([StepEvent(0, 9), StepEvent(5, 9, kind="unexpected")])
    assert alarms(checklist) == [None, None, None]
    assert ticks(checklist) == [True, False, False]
    checklist.update([StepEvent(1, 12, kind="wrong")])
    checklist.reset()
    assert alarms(checklist) == [None, None, None]
