"""`stormpsr oracle` as a newcomer uses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]  # the fixtures `cli` and `write`
Arguments = tuple[str, ...]


@pytest.fixture
def command(write: Call, lamp_file: str) -> tuple[str, ...]:
    """Two recordings, foot on at frame 10 and pole on at frame 20; boxes in frames 5, 15 and 30 of the first."""
    for split, name in (("test", "1_build"), ("train", "2_build")):
        write(f"psr/{split}/{name}/PSR_labels.csv", "10.jpg,0,\n20.jpg,3,\n")
        write(f"psr/{split}/{name}/PSR_labels_raw.csv", "0.jpg,0,0,0\n10.jpg,1,0,0\n20.jpg,1,1,0\n")
    write("boxes/1_build_GT.csv", "".join(f"{frame},1,0,0.5,0.5,0.2,0.2\n" for frame in (5, 15, 30)))
    return ("oracle", "--psr", "psr", "--boxes", "boxes", "--procedure", lamp_file)


def test_a_row_per_decoder_threshold_and_protocol(cli: Call, command: Arguments) -> None:
    content = cli(*command, "--json").json
    assert (content["split"], content["recordings"], content["without_boxes"]) == ("test", ["1_build"], [])
    rows = {(row["decoder"].split()[0], row["threshold"], row["protocol"]): row for row in content["rows"]}
    assert len(rows) == len(content["rows"]) == (1 + 3 + 3) * 3
    naive = rows["B1", None, "paper"]
    assert (naive["pos"], naive["f1"], naive["delay_seconds"], naive["delay_frames"]) == (1.0, 1.0, 0.75, 7.5)
    assert rows["B3", 1.0, "paper"]["f1"] == 0.0  # one box has a confidence of 0.9: not enough
    assert rows["B3", 8.0, "paper"]["delay_seconds"] is None


def test_the_bound_is_the_wait_for_the_next_box(cli: Call, command: Arguments) -> None:
    assert cli(*command, "--json").json["bound"] == {"mean_wait_seconds": 0.75, "n_followed": 2, "n_labels": 2}


def test_thresholds_and_protocols_can_be_chosen(cli: Call, command: Arguments) -> None:
    options = ("--threshold", "0.5", "--threshold", "2", "--protocol", "storm", "--protocol", "paper")
    rows = cli(*command, *options, "--json").json["rows"]
    assert {row["threshold"] for row in rows} == {None, 0.5, 2.0}
    assert {row["protocol"] for row in rows} == {"storm", "paper"}
    assert {row["f1"] for row in rows if row["threshold"] == 2.0} == {0.0}
    assert [row["f1"] for row in rows if (row["threshold"], row["protocol"]) == (0.5, "paper")] == [1.0, 1.0]


def test_the_table_names_the_ceiling_and_the_boxes(cli: Call, command: Arguments) -> None:
    outcome = cli(*command, "--protocol", "paper", "--threshold", "1")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("A perfect detector on 1 recording of 'lamp', split 'test'\n")
    rows = [line.split() for line in outcome.out.splitlines()]
    assert ["B1", "(naive)", "–", "paper", "1.000", "1.000", "0.8", "8"] in rows
    assert "3 boxes, 0 of them of states that the detector has no class for" in outcome.out
    assert outcome.out.splitlines()[-1].endswith("mean 0.8 s over 2 of 2 completions")


def test_all_splits_can_be_taken_and_recordings_without_boxes_are_named(cli: Call, command: Arguments) -> None:
    outcome = cli(*command, "--split", "all")
    assert "all splits" in outcome.out
    assert "left out, no boxes: 2_build" in outcome.out


# ---------------------------------------------------------------------- mistakes
def test_where_there_are_no_boxes_the_cure_says_what_to_give(cli: Call, command: Arguments) -> None:
    assert cli(*command, "--split", "train").is_refusal("boxes: no boxes for any recording", "NAME_GT.csv")
    without = (*command[:3], *command[5:])
    assert cli(*without).is_refusal("psr: no boxes for any recording", "give --boxes")
    assert cli(*without, "--boxes", "nowhere").is_refusal("nowhere: there is no such folder")


def test_a_split_without_recordings_is_refused(cli: Call, command: Arguments) -> None:
    assert cli(*command, "--split", "val").is_refusal("psr: no recordings in split 'val'; it has: test, train")


def test_swapped_folders_are_refused(cli: Call, command: Arguments) -> None:
    outcome = cli("oracle", "--psr", "boxes", "--boxes", "psr", *command[5:])
    assert outcome.is_refusal("boxes: no recordings found; it should hold recordings with PSR_labels.csv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--protocol", "mine"), "unknown protocol 'mine'; choose from: paper, industreal, storm"),
        (("--threshold", "-1"), "--threshold"),
        (("--confidence", "2"), "--confidence"),
        (("--decay", "-1"), "--decay"),
        (("--procedure", "lampe"), "no procedure 'lampe'"),
    ],
)
def test_bad_settings_are_refused(cli: Call, command: Arguments, options: tuple[str, str], message: str) -> None:
    assert cli(*command, *options).is_refusal(message)


def test_a_bad_box_is_named_by_file_and_line(cli: Call, command: Arguments, write: Call) -> None:
    write("boxes/1_build_GT.csv", "5,1,0,0.5,0.5,0.2,0.2\n6,1,0,0.5,0.5,0,0.2\n")
    assert cli(*command).is_refusal("boxes/1_build_GT.csv:2: a box outside the image or without size")


# ---------------------------------------------------------------------- MECCANO
def test_the_ceiling_on_meccano_is_what_the_published_programs_say(cli: Call, meccano_psr: Path) -> None:
    boxes = meccano_psr.with_name("meccano_asd")
    if not boxes.is_dir():
        pytest.skip(f"there are no MECCANO boxes at {boxes}")
    outcome = cli("oracle", "--psr", meccano_psr, "--boxes", boxes, "-p", "meccano", "--threshold", "4", "--json")
    rows = {(row["decoder"].split()[0], row["protocol"]): row for row in outcome.json["rows"]}
    for key, figures in {("B1", "industreal"): (0.513, 0.691, 1216), ("B3", "industreal"): (0.608, 0.837, 841)}.items():
        row = rows[key]
        assert (round(row["pos"], 3), round(row["f1"], 3), round(row["delay_frames"])) == figures
