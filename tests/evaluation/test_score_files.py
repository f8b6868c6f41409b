"""Scoring files on disk, and results as data."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from stormpsr.data.labels import Note, read_steps
from stormpsr.errors import InputError
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.score_files import score_files, summary_csv
from stormpsr.evaluation.summary import CURVE_SECONDS
from stormpsr.procedure.model import Procedure

LABELS = "000010.jpg,0,Install foot\n000020.jpg,3,Install pole\n000030.jpg,6,Install shade\n"
LATE = "000015.jpg,0,\n000025.jpg,3,\n000035.jpg,6,\n"
RAW = "0.jpg,0,0,0\n10.jpg,1,0,0\n20.jpg,1,1,0\n30.jpg,1,1,1\n"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two recordings with labels, and events for both: the first half a second late, the second not at all."""
    for name in ("1_build", "2_build"):
        write(tmp_path / "labels" / "test" / name / "PSR_labels.csv", LABELS)
    write(tmp_path / "events" / "1_build.csv", LATE)
    write(tmp_path / "events" / "2_build.csv", "")
    return tmp_path


# ---------------------------------------------------------------------- files and folders
def test_folders_are_scored_recording_by_recording(data: Path, lamp: Procedure) -> None:
    summary = score_files(data / "labels", data / "events", lamp)
    first, second = summary.recordings
    assert (first.name, first.scores.pos, first.scores.f1, first.scores.delay_seconds) == ("1_build", 1.0, 1.0, 0.5)
    assert (second.name, second.scores.pos, second.scores.f1, second.scores.delay_seconds) == ("2_build", 0, 0, None)


def test_two_files_are_scored_as_the_library_does(data: Path, lamp: Procedure) -> None:
    labels, events = data / "labels/test/1_build/PSR_labels.csv", data / "events/1_build.csv"
    (result,) = score_files(labels, events, lamp, protocol="storm", window=3).recordings
    expected = score(read_steps(labels), read_steps(events), procedure=lamp, protocol="storm", window=3)
    assert result.scores == expected


def test_frames_per_second_come_from_the_procedure_unless_given(data: Path, lamp: Procedure) -> None:
    slow = score_files(data / "labels", data / "events", lamp, fps=5).recordings[0]
    assert (slow.scores.delay_seconds, slow.fps) == (1.0, 5)


# ---------------------------------------------------------------------- recordings without events
def test_a_recording_without_a_file_of_events_is_an_error_by_default(data: Path, lamp: Procedure) -> None:
    (data / "events" / "2_build.csv").unlink()
    with pytest.raises(InputError, match=r"events: no file of events for recording '2_build'; .*--missing empty"):
        score_files(data / "labels", data / "events", lamp)


def test_a_missing_file_may_count_as_nothing_recognised(data: Path, lamp: Procedure) -> None:
    with_empty_file = score_files(data / "labels", data / "events", lamp)
    (data / "events" / "2_build.csv").unlink()
    assert score_files(data / "labels", data / "events", lamp, missing="empty") == with_empty_file


def test_a_missing_file_may_leave_the_recording_out(data: Path, lamp: Procedure) -> None:
    (data / "events" / "2_build.csv").unlink()
    summary = score_files(data / "labels", data / "events", lamp, missing="skip")
    assert [result.name for result in summary.recordings] == ["1_build"]


def test_if_all_are_left_out_that_is_an_error(data: Path, lamp: Procedure) -> None:
    for path in (data / "events").iterdir():
        path.unlink()
    with pytest.raises(InputError, match=r"not one recording has a file of events; .*NAME\.csv"):
        score_files(data / "labels", data / "events", lamp, missing="skip")


# ---------------------------------------------------------------------- bad settings and files
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 3}, "a window has no meaning for protocol 'paper'"),
        ({"fps": 0.0}, "fps is 0.0"),
        ({"fps": float("nan")}, "fps is nan"),
        ({"protocol": "mine"}, "unknown protocol 'mine'"),
        ({"variant": "mend"}, "has no variant 'mend'; it has: build, dismantle"),
    ],
)
def test_bad_settings_are_refused_before_any_file_is_blamed(
    data: Path, lamp: Procedure, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        score_files(data / "labels", data / "events", lamp, **settings)  # type: ignore[arg-type]
    assert caught.value.path is None


def test_a_bad_event_file_is_refused_with_its_line(data: Path, lamp: Procedure) -> None:
    write(data / "events" / "2_build.csv", "10.jpg,0,\n20.jpg,99,\n")
    with pytest.raises(InputError, match=r"2_build\.csv:2: step id 99 does not exist"):
        score_files(data / "labels", data / "events", lamp)


def test_detections_are_not_mistaken_for_events(data: Path, lamp: Procedure) -> None:
    write(data / "events" / "1_build.csv", "recording,frame,class,confidence,x,y,w,h\n1_build,5,1,0.9,0,0,1,1\n")
    with pytest.raises(InputError, match=r"1_build\.csv: this looks like detections, .*stormpsr decode"):
        score_files(data / "labels", data / "events", lamp)


def test_a_recording_without_labels_is_named_where_a_protocol_cannot_score_it(data: Path, lamp: Procedure) -> None:
    write(data / "labels/test/2_build/PSR_labels.csv", "")
    assert score_files(data / "labels", data / "events", lamp).recordings[1].scores.pos == 1.0
    with pytest.raises(InputError, match=r"2_build.PSR_labels\.csv: a recording without labels"):
        score_files(data / "labels", data / "events", lamp, protocol="storm")


def test_odd_rows_are_accepted_with_a_note(data: Path, lamp: Procedure) -> None:
    notes: list[Note] = []
    write(data / "events" / "1_build.csv", LATE + "000015.jpg,0,\n")
    summary = score_files(data / "labels", data / "events", lamp, on_note=notes.append)
    assert summary.recordings[0].scores.f1 == 1.0
    assert [(Path(note.path).name, note.line) for note in notes] == [("1_build.csv", 4)]


# ---------------------------------------------------------------------- execution errors
def test_whether_errors_were_made_is_unknown_without_the_other_label_files(data: Path, lamp: Procedure) -> None:
    assert score_files(data / "labels", data / "events", lamp).recordings[0].has_errors is None


def test_whether_errors_were_made_is_read_from_the_other_label_files(data: Path, lamp: Procedure) -> None:
    write(data / "labels/test/1_build/PSR_labels_raw.csv", RAW)
    write(data / "labels/test/2_build/PSR_labels_with_errors.csv", "5.jpg,1,\n" + LABELS)
    first, second = score_files(data / "labels", data / "events", lamp).recordings
    assert (first.has_errors, second.has_errors) == (False, True)
    dismantled = score_files(data / "labels", data / "events", lamp, variant="dismantle")
    assert dismantled.recordings[0].has_errors is True  # nothing of what that variant expects was done


# ---------------------------------------------------------------------- results as data
def test_the_json_has_everything_and_survives_a_round_trip(data: Path, lamp: Procedure) -> None:
    content = score_files(data / "labels", data / "events", lamp).to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["all"]["n_without_match"] == 1
    assert content["without_errors"] is None
    assert content["recordings"][0]["matches"][0] == {"step_id": 0, "label_frame": 10, "event_frame": 15}
    assert content["recordings"][1]["delay_seconds"] is None
    assert [entry["step_id"] for entry in content["steps"]] == [0, 3, 6]
    curve = [(entry["seconds"], entry["share"]) for entry in content["recognised_within_seconds"]]
    assert curve == [(t, 0.0 if t < 0.5 else 0.5) for t in CURVE_SECONDS]


def test_the_csv_has_a_row_per_recording(data: Path, lamp: Procedure) -> None:
    rows = list(csv.DictReader(io.StringIO(summary_csv(score_files(data / "labels", data / "events", lamp)))))
    assert rows[0] == {
        "recording": "1_build",
        "has_errors": "",
        "pos": "1.000000",
        "f1": "1.000000",
        "delay_seconds": "0.5000",
        "true_positives": "3",
        "false_positives": "0",
        "false_negatives": "0",
    }
    assert (rows[1]["recording"], rows[1]["delay_seconds"], rows[1]["false_negatives"]) == ("2_build", "", "3")
