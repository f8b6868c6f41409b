"""What the station makes of frames and of an operator's words, and that it goes on after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stormpsr.errors import InputError

CHASSIS, PIN, REAR, SCREW = 3, 6, 9, 24  # installations of the vehicle; + 1 wrong, + 2 removal


def status(bench: Any, step_id: int) -> str:
    return next(step["status"] for step in bench.station.snapshot()["steps"] if step["step_id"] == step_id)


def words(bench: Any) -> list[str]:
    return [word["key"] for word in bench.station.snapshot()["words"]]


def alarms(bench: Any) -> list[tuple[str, int | None]]:
    return [(alarm["kind"], alarm["step_id"]) for alarm in bench.station.snapshot()["alarms"]]


def test_without_a_unit_nothing_is_ticked(bench: Any) -> None:
    bench.see(done=[CHASSIS])
    assert bench.station.snapshot()["unit"] is None
    assert status(bench, CHASSIS) == "open"
    assert words(bench) == ["waiting_for_unit"]


def test_a_step_is_open_then_probable_then_done(bench: Any) -> None:
    bench.station.start_unit("A-17", None)
    bench.see()
    assert (status(bench, CHASSIS), words(bench)) == ("open", ["waiting_for"])
    bench.see(share={CHASSIS: 0.6})
    assert (status(bench, CHASSIS), words(bench)) == ("probable", ["probably"])
    bench.see(done=[CHASSIS])
    snapshot = bench.station.snapshot()
    (step,) = (step for step in snapshot["steps"] if step["step_id"] == CHASSIS)
    assert (step["status"], step["by"], step["confidence"]) == ("done", "camera", 0.93)
    assert bench.records.evidence_file(step["evidence"].rpartition("/")[2]) is not None
    assert (snapshot["unit"]["serial"], snapshot["unit"]["done"], snapshot["unit"]["total"]) == ("A-17", 1, 9)
    assert snapshot["log"][0]["kind"] == "completed"
    assert snapshot["box"] == [90.0, 100.0, 240.0, 230.0]


def test_it_says_that_it_does_not_know_what_it_is_shown(bench: Any) -> None:
    bench.station.start_unit(None, None)
    bench.recognizer.is_foreign = True
    bench.see(box=None)
    assert words(bench) == ["foreign_view"]
    bench.recognizer.is_foreign = False
    bench.see()
    assert words(bench) == ["waiting_for"]


def test_what_is_unseen_is_said_unless_evidence_grows(tmp_path: Path) -> None:
    from scripted_station import Scripted  # type: ignore[import-not-found]

    now = [0.0]
    bench = Scripted(tmp_path / "station", clock=lambda: now[0])
    bench.station.start_unit(None, None)
    bench.see(box=None)
    now[0] = 5.0
    bench.see(box=None)
    assert words(bench) == ["nothing_seen"]
    bench.see(box=None, share={CHASSIS: 0.6})
    assert words(bench) == ["probably"]
    now[0] = 12.0
    bench.see(box=None, share={CHASSIS: 0.6})
    assert words(bench) == ["nothing_seen", "probably"]
    bench.close()


def test_what_is_shown_was_recorded_before(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.station.start_unit(None, None)

    def full(*_: Any) -> None:
        raise InputError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(bench.records, "append", full)
        bench.see(done=[CHASSIS])
        assert status(bench, CHASSIS) == "open"
        assert bench.station.problem == "the disk is full"
    bench.see()
    assert bench.station.problem == ""
    assert status(bench, CHASSIS) == "done", "it is recorded as soon as there is room"


def test_an_operators_word_is_the_recognisers_state_from_then_on(bench: Any) -> None:
    bench.station.start_unit(None, None)
    bench.see(done=[CHASSIS])
    bench.station.correct_step(CHASSIS, "open")
    bench.station.correct_step(REAR, "done")
    assert (status(bench, CHASSIS), status(bench, REAR)) == ("open", "done")
    bench.see()
    assert bench.recognizer.told == [(1, 0), (3, 1)]
    bench.station.undo()
    bench.station.undo()
    bench.see()
    assert (status(bench, CHASSIS), status(bench, REAR)) == ("done", "open")
    assert bench.recognizer.told[2:] == [(3, 0), (1, 1)]


def test_for_a_while_the_camera_does_not_contradict_the_operator(tmp_path: Path) -> None:
    from scripted_station import Scripted  # type: ignore[import-not-found]

    now = [0.0]
    bench = Scripted(tmp_path, clock=lambda: now[0])
    bench.station.start_unit(None, None)
    bench.see(done=[CHASSIS])
    bench.station.correct_step(CHASSIS, "open")
    now[0] = 5.0
    bench.see(done=[CHASSIS])
    assert status(bench, CHASSIS) == "open"
    bench.see()
    assert bench.recognizer.told == [(1, 0), (1, 0)], "it is told again"
    now[0] = 30.0
    bench.see(done=[CHASSIS])
    assert status(bench, CHASSIS) == "done"
    bench.close()


def test_a_correction_while_the_networks_compute_wins(bench: Any) -> None:
    bench.station.start_unit(None, None)
    bench.see()
    bench.recognizer.while_looking = lambda: bench.station.correct_step(CHASSIS, "wrong")
    bench.see(done=[CHASSIS])
    assert status(bench, CHASSIS) == "wrong"


def test_a_unit_that_begins_while_the_networks_compute_gets_none_of_the_old_events(bench: Any) -> None:
    bench.station.start_unit(None, None)
    bench.see()
    bench.recognizer.while_looking = lambda: bench.station.start_unit("B-2", None)
    bench.see(done=[CHASSIS])
    bench.recognizer.while_looking = lambda: None
    assert (bench.station.snapshot()["unit"]["serial"], status(bench, CHASSIS)) == ("B-2", "open")
    bench.see(done=[REAR])
    assert status(bench, REAR) == "done"


def test_units_are_passed_failed_or_incomplete(bench: Any) -> None:
    steps = [step["step_id"] for step in bench.station.snapshot()["steps"]]
    bench.station.start_unit("A", None)
    bench.see(done=steps)
    bench.station.start_unit("B", None)
    assert bench.station.snapshot()["last_unit"]["status"] == "pass"
    bench.see(wrong=[CHASSIS])
    bench.station.finish_unit()
    assert bench.station.snapshot()["last_unit"]["status"] == "fail"
    bench.station.start_unit("C", "main")
    assert bench.station.snapshot()["station"]["variant"] == "main"
    bench.station.finish_unit()
    assert bench.station.snapshot()["last_unit"]["status"] == "incomplete"
    assert dict(bench.station.unit_counts) == {"pass": 1, "fail": 1, "incomplete": 1}
    with pytest.raises(InputError, match="no unit is in work"):
        bench.station.finish_unit()


def test_a_wrong_part_is_an_alarm_with_a_clip_that_is_complete(bench: Any) -> None:
    import av

    bench.station.start_unit(None, None)
    for _ in range(3):
        bench.see()
    bench.see(wrong=[CHASSIS])
    assert alarms(bench) == [("wrong", CHASSIS)]
    (due,) = bench.station.clips_due
    while bench.station.clips_due:
        bench.see()
    (clip,) = bench.records.find("kind = 'clip'")
    assert clip.data["alarm"] == due
    path = bench.records.evidence_file(clip.data["clip"])
    with av.open(str(path)) as container:
        assert sum(1 for _ in container.decode(video=0)) >= 2
    assert bench.station.snapshot()["alarms"][0]["clip"] == f"/api/evidence/{path.name}"
    bench.see(done=[CHASSIS])
    assert alarms(bench) == []


def test_a_wrong_part_that_is_taken_off_is_seen(bench: Any) -> None:
    bench.station.start_unit(None, None)
    bench.see(wrong=[CHASSIS])
    bench.recognizer.bits[1] = 0  # decoders tell of no step
    bench.see()
    assert (status(bench, CHASSIS), alarms(bench)) == ("removed", [])


def test_a_step_that_was_left_out_is_an_alarm(bench: Any) -> None:
    bench.station.start_unit(None, None)
    bench.see(done=[PIN])  # needs the chassis
    assert (status(bench, CHASSIS), alarms(bench)) == ("skipped", [("skipped", CHASSIS)])
    bench.station.correct_step(CHASSIS, "done")
    assert alarms(bench) == []


def test_a_part_that_does_not_belong_there_is_an_alarm_until_somebody_acknowledges_it(bench: Any) -> None:
    bench.station.start_unit(None, None)
    bench.see(unexpected=[12])  # the short rear chassis is of the other variant
    assert alarms(bench) == [("unexpected", 12)]
    bench.see()
    (alarm,) = bench.station.alarms.open
    bench.station.acknowledge(alarm)
    assert alarms(bench) == []


def test_a_camera_that_is_gone_is_an_alarm_until_it_is_back(bench: Any) -> None:
    bench.see()
    bench.camera("lost")
    snapshot = bench.station.snapshot()
    assert (snapshot["camera"]["status"], words(bench)) == ("lost", ["camera_lost"])
    assert alarms(bench) == [("camera_lost", None)]
    bench.see()
    assert (bench.station.snapshot()["camera"]["status"], alarms(bench)) == ("ok", [])


@pytest.mark.parametrize(("value", "kind"), [(0, "dark"), (99, "frozen")])
def test_an_image_that_is_dark_or_stands_still_is_an_alarm(bench: Any, value: int, kind: str) -> None:
    image = np.full((240, 320, 3), value, np.uint8)
    bench.see()
    for _ in range(10):
        bench.see(image=image, seconds=1.0)
    assert alarms(bench) == [(kind, None)]
    bench.see()
    assert alarms(bench) == []


def test_the_initial_state_begins_a_unit_when_none_is_in_work(bench: Any) -> None:
    for _ in range(8):
        bench.see(seconds=0.5)
    unit = bench.station.snapshot()["unit"]
    assert unit is not None
    assert bench.records.find("kind = 'unit_started'")[0].data["by"] == "camera"


def test_the_initial_state_begins_a_new_unit_only_when_the_last_one_is_complete(bench: Any) -> None:
    steps = [step["step_id"] for step in bench.station.snapshot()["steps"]]
    initial = bench.procedure.class_of_bits[bench.procedure.variant("assy").initial]
    bench.station.start_unit("A", None)
    bench.see(done=steps[:4])
    for _ in range(20):
        bench.see(seconds=0.5, state_class=initial)
    assert bench.station.snapshot()["unit"]["serial"] == "A"
    bench.see(done=steps[4:])
    # the next base comes into view: to a decoder, all parts come off
    bench.see(unexpected=[step_id + 2 for step_id in steps], state_class=initial)
    for _ in range(8):
        bench.see(seconds=0.5, state_class=initial)
    snapshot = bench.station.snapshot()
    assert (snapshot["unit"]["serial"], snapshot["unit"]["done"]) == (None, 0)
    assert (snapshot["last_unit"]["serial"], snapshot["last_unit"]["status"]) == ("A", "pass")


def test_a_part_that_comes_off_a_complete_unit_is_believed_after_a_while(bench: Any) -> None:
    steps = [step["step_id"] for step in bench.station.snapshot()["steps"]]
    bench.station.start_unit("A", None)
    bench.see(done=steps)
    bench.see(unexpected=[SCREW + 2])
    assert status(bench, SCREW) == "done"
    for _ in range(15):
        bench.see(seconds=0.5, box=None)
    assert status(bench, SCREW) == "removed"


def test_every_pass_through_a_recording_is_a_unit(tmp_path: Path) -> None:
    from scripted_station import Scripted

    bench = Scripted(tmp_path, is_recording=True)
    bench.see()
    bench.see(done=[CHASSIS])
    bench.index = 0  # it begins anew
    bench.see()
    snapshot = bench.station.snapshot()
    assert (snapshot["unit"]["id"], snapshot["unit"]["done"], snapshot["last_unit"]["status"]) == (2, 0, "incomplete")
    bench.close()


def test_after_a_restart_the_unit_goes_on_from_its_state(bench: Any) -> None:
    bench.station.start_unit("A-17", "main")
    bench.see(unexpected=[CHASSIS + 2])
    bench.station.correct_step(11, "done")  # removal of the rear chassis
    bench.see(wrong=[12])
    before = bench.station.snapshot()
    bench.close()
    bench.open()
    after = bench.station.snapshot()
    for name in ("steps", "alarms"):
        assert after[name] == before[name]
    assert {**after["unit"], "seconds": 0} == {**before["unit"], "seconds": 0}
    assert [line["id"] for line in after["log"]] == [line["id"] for line in before["log"]]
    assert bench.recognizer.variant.name == "main"
    assert bench.recognizer.state == tuple(bench.station.work.bits) == (1, 0, 1, 0, -1, 1, 1, 1, 1, 1, 1)
    bench.station.undo()
    assert status(bench, 11) == "open"


def test_what_an_operator_says_is_kept_with_its_image_for_training(bench: Any) -> None:
    bench.station.start_unit(None, None)
    bench.see()
    bench.station.correct_step(CHASSIS, "done")
    (kept,) = bench.records.find("kind = 'correction'")
    assert (kept.data["component"], kept.data["bit_before"], kept.data["bit"]) == (1, 0, 1)
    assert kept.data["state"] == [1, *[0] * 10]
    assert bench.records.evidence_file(kept.data["picture"]) is not None


@pytest.mark.parametrize("serial", ["x" * 81, "a\nb"])
def test_a_serial_number_must_be_one(bench: Any, serial: str) -> None:
    with pytest.raises(InputError, match="no serial number"):
        bench.station.start_unit(serial, None)
