"""`stormpsr decode` as a newcomer uses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stormpsr.data.detection_csv import read_detection_table
from stormpsr.data.labels import read_steps
from stormpsr.decoding.methods import decode
from stormpsr.evaluation.metrics import score
from stormpsr.procedure.model import Procedure

Call = Callable[..., Any]  # the fixtures `cli` and `write`
Arguments = tuple[str, ...]

HEADER = "recording,frame,class,confidence,x,y,w,h\n"
ROWS = "1_build,0,1,0.9,0,0,1,1\n1_build,5,2,0.9,0,0,1,1\n1_build,9,3,0.8,0,0,1,1\n"


@pytest.fixture
def command(write: Call, lamp_file: str) -> tuple[str, ...]:
    """Arguments that decode a recording in which foot and pole appear in frames 5 and 9."""
    write("detections/any.csv", HEADER + ROWS)
    return ("decode", "detections", "--procedure", lamp_file, "--method", "naive")


# ---------------------------------------------------------------------- results
def test_the_steps_are_printed_with_frame_seconds_and_name(cli: Call, command: Arguments) -> None:
    outcome = cli(*command)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("1_build: 2 steps (naive)\n")
    rows = [line.split() for line in outcome.out.splitlines() if "Install" in line]
    assert rows == [["5", "0.5", "0", "Install", "foot"], ["9", "0.9", "3", "Install", "pole"]]


def test_json_has_the_events_by_recording(cli: Call, command: Arguments) -> None:
    outcome = cli(*command, "--json")
    assert outcome.json == {
        "method": "naive",
        "events": {
            "1_build": [
                {"frame": 5, "step_id": 0, "confidence": 0.9},
                {"frame": 9, "step_id": 3, "confidence": 0.8},
            ]
        },
        "written": [],
    }


def test_out_writes_a_label_file_per_recording(cli: Call, command: Arguments) -> None:
    outcome = cli(*command, "--out", "new/predicted")
    assert outcome.out.endswith("written: 1 file in new/predicted\n")
    expected = "000005.jpg,0,Install foot,0.9000\n000009.jpg,3,Install pole,0.8000\n"
    assert Path("new/predicted/1_build.csv").read_text() == expected


def test_alarms_are_no_steps(cli: Call, command: Arguments, write: Call) -> None:
    """Detections that go back and forth hint at a foot that sits wrongly: the filter gives an alarm."""
    flicker = "".join(f"1_build,{frame},{1 + frame // 3 % 2},0.97,0,0,1,1\n" for frame in range(90))
    write("detections/any.csv", HEADER + flicker)
    outcome = cli(*command, "--method", "filter", "--out", "predicted")
    assert outcome.out.startswith("1_build: 0 steps (filter)")
    assert Path("predicted/1_build.csv").read_text() == ""


@pytest.mark.parametrize("protocol", ["paper", "industreal", "storm"])
@pytest.mark.parametrize("method", ["naive", "confidence", "expected"])
def test_decode_then_score_equals_the_library(
    cli: Call, car: Path, industreal: Procedure, method: str, protocol: str
) -> None:
    cli("decode", car / "detections", "-p", "industreal", "--method", method, "--threshold", "4", "--out", "predicted")
    outcome = cli("score", car / "recordings", "predicted", "-p", "industreal", "--protocol", protocol, "--json")
    for row in outcome.json["recordings"]:
        (detections,) = read_detection_table(car / "detections" / f"{row['name']}.csv", industreal).values()
        events = decode(detections, industreal, "assy", method, threshold=4.0)  # type: ignore[arg-type]
        labels = read_steps(car / "recordings" / row["name"] / "PSR_labels.csv", industreal)
        events.sort(key=lambda event: (event.frame, event.step_id))  # as a file has them
        direct = score(labels, events, procedure=industreal, protocol=protocol)  # type: ignore[arg-type]
        assert (row["pos"], row["f1"], row["delay_seconds"]) == (direct.pos, direct.f1, direct.delay_seconds)
        assert (row["true_positives"], row["false_positives"]) == (direct.true_positives, direct.false_positives)
    assert len(outcome.json["recordings"]) == 3


def test_the_variant_is_taken_from_the_name_unless_given(cli: Call, command: Arguments, write: Call) -> None:
    write("detections/any.csv", HEADER + "1_dismantle,3,3,1,0,0,1,1\n")
    expected = (*command[:-1], "expected", "--threshold", "0.5", "--json")
    assert [e["step_id"] for e in cli(*expected).json["events"]["1_dismantle"]] == [8]
    build = cli(*expected, "--variant", "build").json["events"]["1_dismantle"]
    assert [e["step_id"] for e in build] == [0, 3]
    assert cli(*expected[:-1], "--variant", "mend").is_refusal("has no variant 'mend'; it has: build, dismantle")


def test_settings_reach_the_decoder(cli: Call, command: Arguments) -> None:
    def n_events(*options: str) -> int:
        return len(cli(*command, *options, "--json").json["events"]["1_build"])

    assert n_events("--min-confidence", "0.85") == 1
    assert n_events("--method", "expected", "--threshold", "0.5") == 2
    # the foot has 0.9 in frame 5, three frames of rest, and 0.8 more in frame 9; the pole has 0.8
    assert n_events("--method", "expected", "--threshold", "1.1") == 1
    assert n_events("--method", "expected", "--threshold", "1.1", "--decay", "0.0") == 0


# ---------------------------------------------------------------------- empty and odd input
@pytest.mark.parametrize("content", ["", HEADER])
def test_a_file_without_rows_is_a_recording_without_steps(
    cli: Call, command: Arguments, write: Call, content: str
) -> None:
    write("detections/2_build.csv", content)
    outcome = cli(*command, "--out", "predicted")
    assert "2_build: 0 steps (naive) from 0 detections" in outcome.out
    assert Path("predicted/2_build.csv").read_text() == ""


def test_rows_out_of_order_are_noted(cli: Call, command: Arguments, write: Call) -> None:
    write("detections/any.csv", ROWS + "1_build,2,1,0.9\n")
    outcome = cli(*command)
    assert outcome.code == 0
    assert outcome.err == "note: detections/any.csv:4: frame 2 comes after frame 9, sorted\n"


# ---------------------------------------------------------------------- mistakes
def test_decoding_never_overwrites_the_detections(cli: Call, command: Arguments, write: Call) -> None:
    write("detections/1_build.csv", ROWS)
    Path("detections/any.csv").unlink()
    outcome = cli(*command, "--out", "detections")
    assert outcome.is_refusal("1_build.csv: this would overwrite the detections; choose another --out")
    assert Path("detections/1_build.csv").read_text() == ROWS


@pytest.mark.parametrize("name", ["../evil", "a/b", "a\\b", ".."])
def test_a_recording_cannot_name_a_place_outside_the_folder(
    cli: Call, command: Arguments, write: Call, name: str
) -> None:
    write("detections/any.csv", f"{name},5,1,0.9\n")
    assert cli(*command).code == 0
    assert cli(*command, "--out", "new").is_refusal("cannot be the name of a file; rename it")
    assert not Path("new").exists()


def test_a_recording_in_two_files_is_refused(cli: Call, command: Arguments, write: Call) -> None:
    write("detections/other.csv", ROWS)
    assert cli(*command).is_refusal("detections/other.csv: recording '1_build' is in detections/any.csv, too")


def test_a_file_in_place_of_the_folder_to_write_to_is_refused(cli: Call, command: Arguments, write: Call) -> None:
    write("predicted", "")
    assert cli(*command, "--out", "predicted").is_refusal("predicted: this is a file; give --out a folder")


def test_what_holds_no_detections_is_refused(cli: Call, command: Arguments, write: Call) -> None:
    assert cli("decode", "nowhere", *command[2:]).is_refusal("nowhere: there is no such file or folder")
    Path("empty").mkdir()
    assert cli("decode", "empty", *command[2:]).is_refusal("empty: there is no CSV file in it")
    write("labels/PSR_labels.csv", "000010.jpg,0,Install foot\n")
    assert cli("decode", "labels", *command[2:]).is_refusal("PSR_labels.csv:1: a row with 3 columns; the columns are")


def test_an_unknown_class_is_named_by_file_and_line(cli: Call, command: Arguments, write: Call) -> None:
    write("detections/any.csv", HEADER + "1_build,5,6,0.9\n")
    assert cli(*command).is_refusal("detections/any.csv:2: state class 6 does not exist in 'lamp'; its classes are 0")


@pytest.mark.parametrize(
    "options", [("--threshold", "-1"), ("--threshold", "nan"), ("--decay", "1.5"), ("--min-confidence", "2")]
)
def test_settings_out_of_range_are_refused(cli: Call, command: Arguments, options: tuple[str, str]) -> None:
    assert cli(*command, *options).is_refusal(options[0], "see 'stormpsr decode --help'")


def test_an_unknown_method_is_refused_with_the_known_ones(cli: Call, command: Arguments) -> None:
    assert cli(*command[:-1], "B3").is_refusal("unknown method 'B3'; choose one of: naive, confidence, expected")


def test_a_recording_with_a_name_too_long_for_a_file_is_refused_before_anything_is_written(
    cli: Call, command: Arguments, write: Call
) -> None:
    write("detections/any.csv", f"{ROWS}{'x' * 300},5,1,0.9\n")
    assert cli(*command, "--out", "new").is_refusal("xxx...' cannot be the name of a file; rename it")
    assert not Path("new").exists()
