"""`stormpsr labels` as a newcomer uses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]  # the fixtures `cli` and `write`

STEPS, FULL, RAW = "PSR_labels.csv", "PSR_labels_with_errors.csv", "PSR_labels_raw.csv"
GOOD = {
    STEPS: "00010.jpg,0,Install foot\n00030.jpg,3,Install pole\n",
    FULL: "00010.jpg,0,Install foot\n00020.jpg,4,Incorrectly installed pole\n00030.jpg,3,Install pole\n",
    RAW: "00000.jpg,0,0,0\n00010.jpg,1,0,0\n00020.jpg,1,-1,0\n00030.jpg,1,1,0\n",
}


@pytest.fixture
def folder(write: Call, lamp_file: str) -> Path:
    """A data set of two good recordings."""
    for name in ("1_build", "2_build"):
        for file, content in GOOD.items():
            write(f"data/train/{name}/{file}", content)
    return Path("data")


# ---------------------------------------------------------------------- check
def test_check_of_good_labels_says_what_it_saw(cli: Call, folder: Path) -> None:
    outcome = cli("labels", "check", folder, "--procedure", "lamp.yaml")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        "2 recordings, 6 files, 4 steps: 0 errors, 0 warnings",
        "frames beyond the end were not checked for 2 recordings without images and recording.json",
    ]


def test_check_takes_the_procedure_beside_the_data(cli: Call, folder: Path, lamp_file: str) -> None:
    Path(lamp_file).rename(folder / "procedure.yaml")
    assert "0 errors, 0 warnings" in cli("labels", "check", folder).out
    (folder / "procedure.yaml").unlink()
    assert cli("labels", "check", folder).is_refusal("which procedure")


def test_check_notices_a_video_that_the_labels_do_not_count(cli: Call, folder: Path, write: Call) -> None:
    import av
    import numpy as np

    place = folder / "train" / "1_build"
    with av.open(str(place / "rgb.mp4"), "w") as film:
        stream = film.add_stream("libx264", rate=25)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for _ in range(20):
            film.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")))
        film.mux(stream.encode())
    outcome = cli("labels", "check", folder, "-p", "lamp.yaml")
    assert outcome.code == 1
    assert f"{place / 'rgb.mp4'}: error: the video has 25 frames per second, but the labels count 10" in outcome.out
    assert f"{STEPS}:2: error: frame 30 lies beyond the end, the recording has 20 frames" in outcome.out
    write("data/train/1_build/recording.json", '{"fps": 25, "n_frames": 40}')
    outcome = cli("labels", "check", folder, "-p", "lamp.yaml")
    assert "per second" not in outcome.out
    assert f"{place / 'rgb.mp4'}: error: the video has 20 frames, but recording.json says 40" in outcome.out


def test_check_with_warnings_only_exits_with_0(cli: Call, folder: Path, write: Call) -> None:
    write(f"data/train/1_build/{STEPS}", GOOD[STEPS] + "00030.jpg,3,again\n")
    outcome = cli("labels", "check", folder, "--procedure", "lamp.yaml")
    assert outcome.code == 0
    assert outcome.out.startswith(f"data/train/1_build/{STEPS}:3: warning: frame 30, step 3 is there twice")
    assert "0 errors, 1 warning\n" in outcome.out


def test_check_with_errors_exits_with_1(cli: Call, folder: Path, write: Call) -> None:
    write(f"data/train/1_build/{STEPS}", "00010.jpg,99,\n")
    outcome = cli("labels", "check", folder, "--procedure", "lamp.yaml")
    assert (outcome.code, outcome.err) == (1, "")
    assert outcome.out.startswith(f"data/train/1_build/{STEPS}:1: error: step id 99 does not exist")
    assert "1 error, 0 warnings\n" in outcome.out


def test_check_as_json_has_every_finding(cli: Call, folder: Path, write: Call) -> None:
    write(f"data/train/1_build/{STEPS}", "00010.jpg,99,\n")
    outcome = cli("labels", "check", folder, "--procedure", "lamp.yaml", "--json")
    assert outcome.code == 1
    counts = {key: outcome.json[key] for key in ("recordings", "files", "steps", "errors", "unchecked_ends")}
    assert counts == {"recordings": 2, "files": 6, "steps": 2, "errors": 1, "unchecked_ends": 2}
    (finding,) = outcome.json["findings"]
    assert (finding["severity"], finding["line"]) == ("error", 1)
    assert finding["path"].endswith(STEPS)


@pytest.mark.parametrize(
    "layout",
    [
        {"expected.txt": "\ufeff1_build\r\n\r\n3_build\r\n"},
        {"expected/test/1_build_GT.csv": "", "expected/test/3_build_GT.csv": ""},
        {"expected/train/1_build/OD_labels.json": "{}", "expected/train/3_build/OD_labels.json": "{}"},
    ],
    ids=["text file", "boxes", "recordings"],
)
def test_check_finds_missing_recordings(cli: Call, folder: Path, write: Call, layout: dict[str, str]) -> None:
    for place, content in layout.items():
        write(place, content)
    source = "expected.txt" if "expected.txt" in layout else "expected"
    outcome = cli("labels", "check", folder, "--procedure", "lamp.yaml", "--expect", source)
    assert outcome.code == 1
    assert outcome.out.startswith("data: error: recording '3_build' is missing\n2 recordings")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff\xd8\xff", ":1: this is not text in UTF-8; name the"), (b"\n\n", ": the file is empty; name the")],
)
def test_check_refuses_a_bad_list_of_recordings(
    cli: Call, folder: Path, write: Call, content: bytes, message: str
) -> None:
    write("expected.txt", content)
    outcome = cli("labels", "check", folder, "--procedure", "lamp.yaml", "--expect", "expected.txt")
    assert outcome.is_refusal(f"expected.txt{message}")


def test_check_refuses_what_is_not_there(cli: Call, folder: Path) -> None:
    command = ("labels", "check", "--procedure", "lamp.yaml")
    assert cli(*command, "nowhere").is_refusal("nowhere: there is no such folder")
    assert cli(*command, f"data/train/1_build/{STEPS}").is_refusal("this is a file; give the folder")
    assert cli(*command, folder, "--expect", "nowhere").is_refusal("nowhere: there is no such file or folder")


def test_nothing_is_missing_in_the_published_meccano_labels(cli: Call, meccano_psr: Path) -> None:
    boxes = meccano_psr.with_name("meccano_asd")
    if not boxes.is_dir():
        pytest.skip(f"there are no MECCANO boxes at {boxes}")
    outcome = cli("labels", "check", meccano_psr, "--procedure", "meccano", "--expect", boxes, "--json")
    assert outcome.code == 1
    assert {Path(finding["path"]).parent.name for finding in outcome.json["findings"]} == {"0016"}
    assert (outcome.json["errors"], len(outcome.json["findings"])) == (10, 10)


# ---------------------------------------------------------------------- convert
def test_convert_makes_both_step_files_from_the_raw_one(cli: Call, folder: Path) -> None:
    outcome = cli("labels", "convert", folder, "--procedure", "lamp.yaml", "--out", "new")
    assert outcome.code == 0
    for name in ("1_build", "2_build"):
        for file in (STEPS, FULL):
            assert (Path("new/train") / name / file).read_text() == GOOD[file]
    assert f"new/train/1_build/{STEPS}: 2 steps" in outcome.out.replace("\\", "/")
    assert f"new/train/2_build/{FULL}: 3 steps" in outcome.out.replace("\\", "/")


def test_convert_of_one_file_writes_beside_it(cli: Call, write: Call, lamp_file: str) -> None:
    write(f"one/{RAW}", GOOD[RAW])
    outcome = cli("labels", "convert", f"one/{RAW}", "--procedure", lamp_file, "--json")
    assert [entry["steps"] for entry in outcome.json["written"]] == [2, 3]
    assert Path(f"one/{STEPS}").read_text() == GOOD[STEPS]


def test_frame_names_have_the_digits_of_the_raw_file_unless_told(cli: Call, write: Call, lamp_file: str) -> None:
    write(f"one/{RAW}", GOOD[RAW].replace("000", "rgb\\000000"))
    for options, start in (((), "00000010.jpg,0"), (("--digits", "4"), "0010.jpg,0")):
        assert cli("labels", "convert", "one", "-p", lamp_file, "--force", *options).code == 0
        assert Path(f"one/{STEPS}").read_text().startswith(start)


def test_convert_refuses_to_overwrite_unless_forced(cli: Call, folder: Path, write: Call) -> None:
    write(f"data/train/2_build/{FULL}", "mine")
    Path(f"data/train/1_build/{STEPS}").unlink()
    outcome = cli("labels", "convert", folder, "--procedure", "lamp.yaml")
    assert outcome.is_refusal("the file is there already; choose --out, or add --force")
    assert not Path(f"data/train/1_build/{STEPS}").exists(), "nothing may be written if anything is refused"
    assert Path(f"data/train/2_build/{FULL}").read_text() == "mine"
    assert cli("labels", "convert", folder, "--procedure", "lamp.yaml", "--force").code == 0
    assert Path(f"data/train/2_build/{FULL}").read_text() == GOOD[FULL]


def test_convert_writes_nothing_when_one_of_many_is_bad(cli: Call, folder: Path, write: Call) -> None:
    write(f"data/train/2_build/{RAW}", "00000.jpg,0,0,0\n00010.jpg,1,7,0\n")
    outcome = cli("labels", "convert", folder, "--procedure", "lamp.yaml", "--out", "new")
    assert outcome.is_refusal(f"2_build/{RAW}:2: a component's state is -1, 0 or 1, not 7")
    assert not Path("new").exists()


def test_convert_says_which_recordings_have_nothing_to_convert(cli: Call, folder: Path) -> None:
    Path(f"data/train/2_build/{RAW}").unlink()
    outcome = cli("labels", "convert", folder, "--procedure", "lamp.yaml", "--out", "new")
    assert outcome.code == 0
    assert outcome.out.splitlines()[-1].replace("\\", "/") == f"left out, no {RAW}: data/train/2_build"
    Path(f"data/train/1_build/{RAW}").unlink()
    assert cli("labels", "convert", folder, "--procedure", "lamp.yaml").is_refusal(f"there is no {RAW} in it")


def test_odd_rows_are_converted_with_a_note(cli: Call, write: Call, lamp_file: str) -> None:
    write(f"one/{RAW}", "\ufeff" + GOOD[RAW])
    outcome = cli("labels", "convert", "one", "--procedure", lamp_file)
    assert outcome.code == 0
    assert outcome.err == f"note: one/{RAW}:1: starts with a byte-order mark, ignored\n"


# ---------------------------------------------------------------------- compare
def test_compare_says_how_far_two_people_agree(cli: Call, folder: Path, write: Call) -> None:
    for file, content in GOOD.items():
        write(f"ben/1_build/{file}", content.replace("00030", "00034"))
    outcome = cli("labels", "compare", folder, "ben", "--procedure", "lamp.yaml", "--per-step")
    assert outcome.code == 0
    assert "only in data: 2_build" in outcome.err
    assert "largest distance (frames)" in outcome.out
    assert "Cohen's kappa" in outcome.out
    found = cli("labels", "compare", folder, "ben", "--procedure", "lamp.yaml", "--json").json
    assert [pair["distance"] for pair in found["completions"]["pairs"]] == [0, 4]
    assert 0 < found["states"]["components"]["pole"] < 1


def test_check_notices_images_that_the_description_does_not_count(cli: Call, folder: Path, write: Call) -> None:
    for number in range(40):
        write(f"data/train/1_build/rgb/{number:06d}.jpg", b"")
    write("data/train/1_build/recording.json", '{"fps": 10, "n_frames": 60}')
    outcome = cli("labels", "check", folder, "-p", "lamp.yaml")
    assert outcome.code == 1
    assert "the images go up to frame 39, but recording.json says 60 frames" in outcome.out
    write("data/train/1_build/recording.json", '{"fps": 10, "n_frames": 42, "frame_step": 4}')
    assert cli("labels", "check", folder, "-p", "lamp.yaml").code == 0
