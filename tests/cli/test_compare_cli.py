"""`stormpsr compare`, tables of all recordings' events, and reports of any predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Call = Callable[..., Any]  # the fixtures `cli` and `write`

LABELS = "000010.jpg,0,Install foot\n000020.jpg,3,Install pole\n000030.jpg,6,Install shade\n"
TABLE = "1_build,15,0\n1_build,25,3\n1_build,35,6\n2_build,000030.jpg,0\n"


@pytest.fixture
def files(write: Call, lamp_file: str) -> list[str]:
    """Two recordings; a folder of events that are half a second late, and a table that has fewer and later ones."""
    for name in ("1_build", "2_build"):
        write(f"labels/test/{name}/PSR_labels.csv", LABELS)
        write(f"late/{name}.csv", "000015.jpg,0,\n000025.jpg,3,\n000035.jpg,6,\n")
    write("table.csv", TABLE)
    return ["--procedure", lamp_file]


# ---------------------------------------------------------------------- one table for all recordings
def test_a_table_of_all_recordings_is_scored(cli: Call, files: list[str]) -> None:
    outcome = cli("score", "labels", "table.csv", *files, "--json")
    assert [row["true_positives"] for row in outcome.json["recordings"]] == [3, 1]


@pytest.mark.parametrize(
    "table",
    [
        "recording,frame,step_id\n" + TABLE,
        "Recording,Frame,Step ID,confidence\n" + TABLE.replace("\n", ",0.9\n"),
        "step_id,frame,recording\n" + "\n".join(",".join(r.split(",")[::-1]) for r in TABLE.split()) + "\n",
    ],
)
def test_a_header_may_name_the_columns_in_any_order(cli: Call, write: Call, files: list[str], table: str) -> None:
    write("named.csv", table)
    one, other = (cli("score", "labels", name, *files, "--json").json for name in ("table.csv", "named.csv"))
    assert one == other


def test_a_recording_that_a_table_leaves_out_is_asked_for(cli: Call, write: Call, files: list[str]) -> None:
    write("half.csv", "1_build,15,0\n")
    assert cli("score", "labels", "half.csv", *files).is_refusal("half.csv: no row of recording '2_build'")
    outcome = cli("score", "labels", "half.csv", *files, "--missing", "empty", "--json")
    assert [row["f1"] for row in outcome.json["recordings"]] == [0.5, 0.0]


def test_a_table_of_its_header_alone_says_that_nothing_was_recognised(cli: Call, write: Call, files: list[str]) -> None:
    """`stormpsr reproduce` writes one where a row of a table recognises nothing."""
    write("none.csv", "recording,frame,step_id\n")
    outcome = cli("score", "labels", "none.csv", *files, "--json")
    assert [row["false_negatives"] for row in outcome.json["recordings"]] == [3, 3]
    compared = cli("compare", "labels", "late", "none.csv", *files, "--json").json["comparisons"]
    assert compared[0]["metrics"][1]["difference"] == -1.0


def test_an_empty_file_is_no_table(cli: Call, write: Call, files: list[str]) -> None:
    write("cut.csv", "")
    refused = cli("score", "labels", "cut.csv", *files)
    assert refused.is_refusal("cut.csv: no row of recording '1_build'; ", "a header alone", "--missing empty")


@pytest.mark.parametrize("table", [TABLE, "recording,frame,step_id\n" + TABLE, TABLE.replace("_build", "")])
def test_a_table_needs_a_folder_of_recordings(cli: Call, write: Call, files: list[str], table: str) -> None:
    write("all.csv", table)
    refused = cli("score", "labels/test/1_build/PSR_labels.csv", "all.csv", *files)
    assert refused.is_refusal("all.csv: this is a table of several recordings; ", "against the folder of all labels")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("3_build,15,0\n", "there is no recording '3_build'"),
        ("1_build,15,99\n", "wrong.csv:1:"),
        ("1_build,15,0\n1_build,abc,0\n", "wrong.csv:2: 'abc' is not a frame"),
        ("recording,frame,class\n1_build,1,2\n", "no column 'step_id'; these look like detections"),
        ("1_build,15\n", "2 columns and no header"),
    ],
)
def test_a_bad_table_is_refused_with_its_line(cli: Call, write: Call, files: list[str], table: str, words: str) -> None:
    write("wrong.csv", table)
    assert cli("score", "labels", "wrong.csv", *files).is_refusal(words)


# ---------------------------------------------------------------------- comparing
def test_two_sets_are_compared(cli: Call, files: list[str]) -> None:
    outcome = cli("compare", "labels", "late", "table.csv", *files, "--per-step")
    assert (outcome.code, outcome.err) == (0, "")
    assert "table less late" in outcome.out
    (row,) = [line.split() for line in outcome.out.splitlines() if "Install pole" in line]
    assert row == ["3", "Install", "pole", "2", "2", "1", "0", "0", "0.5", "0.5"]
    assert max(len(line.rstrip()) for line in outcome.out.splitlines()) <= 80


def test_json_has_the_scores_and_each_comparison_with_the_first(cli: Call, write: Call, files: list[str]) -> None:
    write("other/late/1_build.csv", "")
    write("other/late/2_build.csv", "")
    outcome = cli("compare", "labels", "late", "table.csv", "other/late", *files, "--json").json
    assert len(outcome["scores"]) == 3
    assert [found["names"][1].split("/")[-2:] for found in outcome["comparisons"]][1] == ["other", "late"]
    assert [found["metrics"][1]["difference"] for found in outcome["comparisons"]] == [-0.25, -1.0]


def test_latex_is_a_table_and_nothing_else(cli: Call, files: list[str]) -> None:
    out = cli("compare", "labels", "late", "table.csv", *files, "--latex").out
    assert out.startswith(r"\begin{tabular}")
    assert out.endswith("\\end{tabular}\n")


def test_latex_has_the_steps_too_if_they_are_asked_for(cli: Call, files: list[str]) -> None:
    out = cli("compare", "labels", "late", "table.csv", *files, "--latex", "--per-step").out
    assert (out.count(r"\begin{tabular}"), out.count(r"\end{tabular}")) == (2, 2)
    (row,) = [line for line in out.splitlines() if "Install pole" in line]
    assert row == r"3 & Install pole & 2 & 2 & 1 & 0 & 0 & 0.5 & 0.5 \\"
    (head,) = [line for line in out.splitlines() if "labels" in line]
    assert head.count("&") == row.count("&")


def test_one_set_or_the_same_one_twice_cannot_be_compared(cli: Call, files: list[str]) -> None:
    assert cli("compare", "labels", "late", *files).is_refusal("only one set", "stormpsr score")
    assert cli("compare", "labels", "late", "./late", *files).is_refusal("given twice")


# ---------------------------------------------------------------------- reports of predictions
def test_a_report_is_made_of_any_predictions(cli: Call, files: list[str], tmp_path: Any) -> None:
    outcome = cli("report", "late", "table.csv", "--labels", "labels", "--out", "page.html", *files)
    assert (outcome.code, outcome.err) == (0, "")
    page = (tmp_path / "page.html").read_text()
    for words in ("late", "table", "1_build", "Install shade"):
        assert words in page


def test_a_report_of_predictions_says_what_it_needs(cli: Call, files: list[str]) -> None:
    assert cli("report", "late", "--labels", "labels", *files).is_refusal("nobody says where the report goes")
    assert cli("report", "late", "--title", "x").is_refusal("--title is for predictions")
    assert cli("report", "late", "table.csv").is_refusal("a report is about one run")
