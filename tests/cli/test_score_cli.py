"""`stormpsr score` as a newcomer uses it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stormpsr.evaluation.score_files import score_files
from stormpsr.procedure.model import Procedure

Call = Callable[..., Any]  # the fixtures `cli` and `write`
Arguments = tuple[str, ...]

LABELS = "000010.jpg,0,Install foot\n000020.jpg,3,Install pole\n000030.jpg,6,Install shade\n"
LATE = "000015.jpg,0,\n000025.jpg,3,\n000035.jpg,6,\n"
RAW = "0.jpg,0,0,0\n10.jpg,1,0,0\n20.jpg,1,1,0\n30.jpg,1,1,1\n"


@pytest.fixture
def data(write: Call, lamp_file: str) -> tuple[str, ...]:
    """Arguments that score two recordings: all steps half a second late, and nothing recognised (with an error)."""
    for name in ("1_build", "2_build"):
        write(f"labels/test/{name}/PSR_labels.csv", LABELS)
        write(f"labels/test/{name}/PSR_labels_raw.csv", RAW if name == "1_build" else RAW + "40.jpg,-1,1,1\n")
    write("events/1_build.csv", LATE)
    write("events/2_build.csv", "")
    return ("score", "labels", "events", "--procedure", lamp_file)


def cells(text: str, first: str) -> list[str]:
    """The cells of the table row that starts with a word."""
    return next(line for line in text.splitlines() if line.split()[:1] == [first]).split()


# ---------------------------------------------------------------------- tables
def test_folders_are_scored_and_the_table_shows_each_recording_and_the_mean(cli: Call, data: Arguments) -> None:
    outcome = cli(*data)
    assert (outcome.code, outcome.err) == (0, "")
    assert cells(outcome.out, "1_build") == ["1_build", "1.000", "1.000", "0.5", "3", "0", "0", "no"]
    assert cells(outcome.out, "2_build") == ["2_build", "0.000", "0.000", "–", "0", "0", "3", "yes"]
    assert cells(outcome.out, "POS") == ["POS", "0.500", "(0.000–1.000)", "1.000", "0.000"]
    assert "tau leaves out 1 recording in which nothing was recognised" in outcome.out


def test_two_files_are_scored_without_a_table_of_recordings(cli: Call, data: Arguments) -> None:
    outcome = cli("score", "labels/test/1_build/PSR_labels.csv", "events/1_build.csv", *data[3:])
    assert outcome.code == 0
    assert "Recordings" not in outcome.out
    assert "one recording" in outcome.out
    assert cells(outcome.out, "POS") == ["POS", "1.000"]


def test_the_tables_fit_into_80_columns(cli: Call, data: Arguments, car: Path) -> None:
    assert cli("decode", car / "detections", "--procedure", "industreal", "--out", "predicted").code == 0
    outcome = cli("score", car / "recordings", "predicted", "--procedure", "industreal", "--per-step")
    assert max(len(line.rstrip()) for line in outcome.out.splitlines()) <= 80


def test_per_step_adds_a_table_of_the_steps(cli: Call, data: Arguments) -> None:
    assert "Install pole" not in cli(*data).out
    outcome = cli(*data, "--per-step")
    row = next(line for line in outcome.out.splitlines() if "Install pole" in line)
    assert row.split() == ["3", "Install", "pole", "2", "1", "1", "0", "0.5"]


# ---------------------------------------------------------------------- machines
def test_json_is_the_whole_summary_and_nothing_else(cli: Call, data: Arguments, lamp: Procedure) -> None:
    outcome = cli(*data, "--json")
    assert outcome.json == score_files(Path("labels"), Path("events"), lamp).to_dict()


def test_out_json_holds_what_json_prints(cli: Call, data: Arguments) -> None:
    printed = cli(*data, "--json", "--out", "results/new.json")
    assert json.loads(Path("results/new.json").read_text()) == printed.json


def test_out_csv_holds_a_row_per_recording(cli: Call, data: Arguments) -> None:
    outcome = cli(*data, "--out", "new.csv")
    assert "written: new.csv" in outcome.out
    rows = list(csv.DictReader(Path("new.csv").read_text().splitlines()))
    figures = [(row["recording"], row["has_errors"], row["pos"], row["delay_seconds"]) for row in rows]
    assert figures == [("1_build", "false", "1.000000", "0.5000"), ("2_build", "true", "0.000000", "")]


def test_plot_draws_an_image_that_is_not_blank(cli: Call, data: Arguments) -> None:
    from PIL import Image

    outcome = cli(*data, "--plot", "new/timeline.png")
    assert "written: new/timeline.png" in outcome.out
    with Image.open("new/timeline.png") as file:
        picture = np.asarray(file.convert("L"))
    assert picture.shape[0] > 500
    assert picture.shape[1] > 1000
    assert 0.01 < (picture < 128).mean() < 0.5


# ---------------------------------------------------------------------- options
def test_the_protocol_can_be_chosen(cli: Call, data: Arguments) -> None:
    assert cli(*data, "--protocol", "industreal", "--json").json["protocol"] == "industreal"


def test_a_window_works_with_storm_only_and_says_what_it_does(cli: Call, data: Arguments) -> None:
    assert cli(*data, "--window", "5").is_refusal("a window has no meaning for protocol 'paper'")
    outcome = cli(*data, "--window", "5", "--protocol", "storm")
    assert outcome.code == 0
    assert "for comparison only" in outcome.out


def test_only_the_chosen_split_is_scored(cli: Call, data: Arguments) -> None:
    assert len(cli(*data, "--split", "test", "--json").json["recordings"]) == 2
    assert cli(*data, "--split", "val").is_refusal("no recordings in split 'val'; it has: test")


def test_fps_changes_seconds(cli: Call, data: Arguments) -> None:
    assert cli(*data, "--fps", "5", "--json").json["recordings"][0]["delay_seconds"] == 1.0
    assert cli(*data, "--fps", "0").is_refusal("fps is 0.0, but it must be more than 0")


@pytest.mark.parametrize(("choice", "names"), [("empty", ["1_build", "2_build"]), ("skip", ["1_build"])])
def test_what_happens_to_recordings_without_events_can_be_chosen(
    cli: Call, data: Arguments, choice: str, names: list[str]
) -> None:
    Path("events/2_build.csv").unlink()
    assert cli(*data).is_refusal("no file of events for recording '2_build'", "--missing empty or --missing skip")
    outcome = cli(*data, "--missing", choice, "--json")
    assert [recording["name"] for recording in outcome.json["recordings"]] == names


# ---------------------------------------------------------------------- mistakes
def test_swapped_folders_are_noticed(cli: Call, data: Arguments) -> None:
    assert cli("score", "events", "labels", *data[3:]).is_refusal("did you swap events and labels?")


def test_detections_in_place_of_events_are_noticed(cli: Call, data: Arguments, write: Call) -> None:
    write("events/1_build.csv", "recording,frame,class,confidence,x,y,w,h\n1_build,5,1,0.9,0,0,1,1\n")
    assert cli(*data).is_refusal("events/1_build.csv: this looks like detections", "stormpsr decode")


def test_a_file_and_a_folder_are_refused(cli: Call, data: Arguments) -> None:
    outcome = cli("score", "labels/test/1_build/PSR_labels.csv", "events", *data[3:])
    assert outcome.is_refusal("give two files or two folders")


@pytest.mark.parametrize(
    ("option", "path", "message"),
    [
        ("--out", "scores.txt", "scores.txt: cannot write files that end in '.txt'; use one of: .json, .csv"),
        ("--out", "scores", "scores: cannot write a file whose name has no ending"),
        ("--plot", "scores.gif", "use one of: .png, .svg, .pdf"),
        ("--out", "events/1_build.csv", "this would overwrite what is to be scored"),
    ],
)
def test_results_that_cannot_be_written_are_refused_before_any_work(
    cli: Call, data: Arguments, option: str, path: str, message: str
) -> None:
    labels, events = "labels/test/1_build/PSR_labels.csv", "events/1_build.csv"
    assert cli("score", labels, events, *data[3:], option, path).is_refusal(message)
    assert Path(events).read_text() == LATE


def test_a_bad_row_is_named_by_file_and_line(cli: Call, data: Arguments, write: Call) -> None:
    write("events/2_build.csv", "10.jpg,0,\n\n20.jpg,99,\n")
    assert cli(*data).is_refusal("events/2_build.csv:3: step id 99 does not exist in procedure 'lamp'; its 3 comp")


def test_odd_rows_are_noted_on_the_error_stream(cli: Call, data: Arguments, write: Call) -> None:
    write("events/2_build.csv", "20.jpg,3,\n10.jpg,0,\n")
    outcome = cli(*data, "--json")
    assert outcome.code == 0
    assert outcome.err == "note: events/2_build.csv:2: frame 10 comes after frame 20, sorted\n"
    assert outcome.json["recordings"][1]["true_positives"] == 2


def test_many_notes_are_cut_short(cli: Call, data: Arguments, write: Call) -> None:
    write("events/2_build.csv", "".join(f"{frame}.jpg,0,\n" for frame in range(40, 10, -1)))
    lines = cli(*data).err.splitlines()
    assert len(lines) == 11
    assert lines[-1] == "note: and 19 more ('stormpsr labels check' lists all)"
