"""The unit in work follows from its records alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stormpsr.data.events import StepEvent
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.station.alarms import Alarms, Durations
from stormpsr.station.records import Entry, Record, utc_text
from stormpsr.station.work import Work

FOOT, FOOT_WRONG, FOOT_OFF, POLE, POLE_OFF, SHADE = 0, 1, 2, 3, 5, 6


class Diary:
    """Keeps records in memory; every entry comes a second after the last."""

    def __init__(self, procedure: Procedure, variant: str = "build") -> None:
        self.work, self.alarms, self.seconds = Work(procedure), Alarms(), 0
        self.records: list[Record] = []
        self.write(Entry("unit_started", {"serial": "A-1", "variant": variant, "by": "operator"}, 1))

    @property
    def now(self) -> str:
        return utc_text(1_800_000_000 + self.seconds)

    def write(self, entry: Entry | None) -> None:
        if entry is None:
            return
        data = json.loads(json.dumps(entry.data))
        record = Record(len(self.records) + 1, self.now, entry.kind, entry.unit, "", data, "")
        self.records.append(record)
        self.work.apply(record)
        self.alarms.apply(record)

    def see(self, step_id: int, kind: str = "completed") -> None:
        self.seconds += 1
        event = StepEvent(step_id, self.seconds, confidence=0.9, kind=kind)  # type: ignore[arg-type]
        self.write(self.work.entry_of_event(event, self.now))

    def correct(self, step_id: int, status: str) -> None:
        self.seconds += 1
        self.write(self.work.entry_of_correction(step_id, status, self.now))

    def finish(self) -> None:
        for entry in list(self.work.entries_of_finish(self.now, "operator")):
            self.write(entry)

    def judge(self, camera: str = "ok", overdue: int | None = None) -> list[tuple[str, int | None]]:
        for entry in list(self.alarms.due(self.work, camera, overdue)):  # type: ignore[arg-type]
            self.write(entry)
        return [(alarm.kind, alarm.step_id) for alarm in self.alarms.open.values()]

    @property
    def statuses(self) -> list[str]:
        return [state.status for state in self.work.steps.values()]


@pytest.fixture
def diary(lamp: Procedure) -> Diary:
    return Diary(lamp)


@pytest.fixture
def ordered(lamp: Procedure) -> Diary:
    """The same lamp with an order: the pole needs the foot, the shade the pole."""
    order = {"pole": (("foot",),), "shade": (("pole",),)}
    return Diary(Procedure(lamp.name, lamp.components, lamp.states, lamp.variants, lamp.fps, order))


def test_steps_are_done_as_they_are_seen(diary: Diary) -> None:
    diary.see(FOOT)
    diary.see(POLE)
    assert diary.statuses == ["done", "done", "open"]
    assert diary.work.bits == [1, 1, 0]
    assert diary.work.steps[POLE].seconds == 1.0
    assert not diary.work.is_complete
    diary.see(SHADE)
    assert diary.work.is_complete
    assert diary.work.verdict() == "pass"


def test_a_step_that_is_seen_twice_is_recorded_once(diary: Diary) -> None:
    diary.see(FOOT)
    n = len(diary.records)
    diary.see(FOOT)
    assert len(diary.records) == n


def test_a_part_that_comes_off_is_removed_and_may_come_again(diary: Diary) -> None:
    diary.see(FOOT)
    diary.see(FOOT_OFF, "unexpected")
    assert (diary.statuses[0], diary.work.bits) == ("removed", [0, 0, 0])
    diary.see(FOOT)
    assert diary.statuses[0] == "done"


def test_a_part_that_sits_wrongly_makes_its_step_wrong_until_it_is_put_right(diary: Diary) -> None:
    diary.see(FOOT_WRONG, "wrong")
    assert (diary.statuses[0], diary.work.bits[0], diary.work.verdict()) == ("wrong", -1, "fail")
    assert diary.judge() == [("wrong", FOOT)]
    diary.see(FOOT)
    assert (diary.statuses[0], diary.work.bits[0]) == ("done", 1)
    assert diary.judge() == []


def test_a_step_that_a_later_one_needs_was_left_out(ordered: Diary) -> None:
    ordered.see(POLE)
    assert ordered.work.left_out() == [FOOT]
    ordered.see(FOOT, "skipped")
    assert ordered.statuses == ["skipped", "done", "open"]
    assert ordered.judge() == [("skipped", FOOT)]
    ordered.see(FOOT)
    assert ordered.statuses == ["done", "done", "open"]
    assert ordered.judge() == []


def test_the_steps_that_can_come_next_follow_from_the_order(ordered: Diary) -> None:
    assert ordered.work.next_steps() == [FOOT]
    ordered.see(FOOT)
    assert ordered.work.next_steps() == [POLE]


def test_removals_that_are_expected_are_steps(lamp: Procedure) -> None:
    diary = Diary(lamp, "dismantle")
    assert diary.work.bits == [1, 1, 1]
    diary.see(POLE_OFF)
    assert diary.statuses == ["open", "done", "open"]
    diary.see(POLE, "unexpected")
    assert (diary.statuses, diary.work.bits) == (["open", "removed", "open"], [1, 1, 1])


def test_a_correction_is_the_state_from_then_on_and_can_be_taken_back(diary: Diary) -> None:
    diary.see(FOOT)
    before = list(diary.work.steps.values())
    diary.correct(POLE, "done")
    diary.correct(FOOT, "open")
    assert (diary.statuses, diary.work.bits) == (["open", "done", "open"], [0, 1, 0])
    assert diary.work.steps[POLE].by == "operator"
    diary.write(diary.work.entry_of_undo())
    assert (diary.statuses, diary.work.bits) == (["done", "done", "open"], [1, 1, 0])
    diary.write(diary.work.entry_of_undo())
    assert list(diary.work.steps.values()) == before
    with pytest.raises(InputError, match="nothing to undo"):
        diary.work.entry_of_undo()


@pytest.mark.parametrize(
    ("step_id", "status", "complaint"),
    [(POLE, "perhaps", "cannot be set to 'perhaps'"), (POLE_OFF, "done", "not part of"), (99, "done", "not part of")],
)
def test_a_correction_that_makes_no_sense_is_refused(diary: Diary, step_id: int, status: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        diary.correct(step_id, status)


def test_what_is_missing_when_a_unit_is_finished_was_skipped(diary: Diary) -> None:
    diary.see(FOOT)
    diary.finish()
    assert diary.statuses == ["done", "skipped", "skipped"]
    last = diary.records[-1]
    assert (last.kind, last.data["status"], last.data["skipped"]) == ("unit_finished", "incomplete", 2)
    with pytest.raises(InputError, match="no unit is in work"):
        diary.correct(POLE, "done")


def test_the_same_records_give_the_same_state_again(ordered: Diary) -> None:
    ordered.see(FOOT)
    ordered.see(FOOT_WRONG, "wrong")
    ordered.correct(POLE, "done")
    ordered.write(ordered.work.entry_of_undo())
    ordered.see(SHADE)
    again = Work.of(ordered.work.procedure, ordered.records)
    assert again == ordered.work


def test_alarms_of_the_camera_end_with_their_cause(diary: Diary) -> None:
    assert diary.judge("lost") == [("camera_lost", None)]
    assert diary.judge("stalled") == [("camera_lost", None)], "the same alarm goes on"
    assert diary.judge("dark") == [("dark", None)]
    assert diary.judge("ok") == []


def test_a_wrong_part_stays_an_alarm_after_its_unit_until_somebody_acknowledges_it(diary: Diary) -> None:
    diary.see(FOOT_WRONG, "wrong")
    diary.judge()
    diary.finish()
    assert diary.judge() == [("wrong", FOOT)]
    diary.write(Entry("unit_started", {"serial": None, "variant": "build", "by": "operator"}, 2))
    assert diary.judge() == [("wrong", FOOT)]
    diary.see(FOOT_WRONG, "wrong")
    assert diary.judge() == [("wrong", FOOT), ("wrong", FOOT)], "the next unit has one of its own"
    first = min(diary.alarms.open)
    diary.write(Entry("acknowledged", {"alarm": first}))
    assert diary.judge() == [("wrong", FOOT)]


def test_how_long_a_step_may_take_is_learned_from_units_that_passed(lamp: Procedure) -> None:
    durations = Durations(least_units=2)
    for _ in range(2):
        diary = Diary(lamp)
        for step_id in (FOOT, POLE, SHADE):
            diary.seconds += 19  # and one more
            diary.see(step_id)
        diary.finish()
        durations.learn(diary.work)
    assert durations.usual("build", FOOT) == 20.0
    assert durations.bound("build", FOOT) == 60.0
    work = Diary(lamp).work
    assert durations.overdue(work, 59.0) == (set(), None)
    assert durations.overdue(work, 61.0) == ({FOOT, POLE, SHADE}, FOOT)
    assert Durations(fixed_for_all=5.0).overdue(work, 6.0)[1] == FOOT


def test_units_that_did_not_pass_teach_nothing(diary: Diary) -> None:
    durations = Durations(least_units=1)
    diary.see(FOOT)
    diary.finish()
    durations.learn(diary.work)
    assert durations.bound("build", FOOT) is None


def test_the_work_instruction_comes_in_the_order_of_the_procedure(tmp_path: Path) -> None:
    vehicle = Procedure.load(Path(__file__).parents[2] / "src" / "stormpsr" / "weights" / "vehicle" / "procedure.yaml")
    diary = Diary(vehicle, "main")
    texts = [row["text"] for row in diary.work.steps_json()]
    assert texts.index("Remove rear wheel assy") < texts.index("Remove rear chassis")
    assert texts.index("Remove rear chassis") < texts.index("Install short rear chassis")
    assert texts.index("Install short rear chassis") < texts.index("Install rear wheel assy")
