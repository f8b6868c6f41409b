"""Folder layouts: which recordings are found, in which split, and how long they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from stormpsr.data.layouts import RecordingFolder, find_recordings
from stormpsr.errors import InputError


def make(folder: Path, *files: str) -> Path:
    """A folder with empty files."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    return folder


def found(root: Path, split: str | None = None) -> list[tuple[str | None, str]]:
    return [(recording.split, recording.name) for recording in find_recordings(root, split)]


# ---------------------------------------------------------------------- layouts
@pytest.mark.parametrize("prefix", ["", "recordings/"])
def test_recordings_are_found_by_split_and_name(tmp_path: Path, prefix: str) -> None:
    for place in ("train/0002", "test/0009", "test/0008"):
        make(tmp_path / prefix / place, "PSR_labels.csv")
    assert found(tmp_path) == [("test", "0008"), ("test", "0009"), ("train", "0002")]
    assert found(tmp_path, "train") == [("train", "0002")]


def test_recordings_need_no_split(tmp_path: Path) -> None:
    make(tmp_path / "01_assy", "PSR_labels_raw.csv")
    make(tmp_path / "02_assy", "recording.json")
    assert found(tmp_path) == [(None, "01_assy"), (None, "02_assy")]


def test_one_recording_is_a_data_set_too(tmp_path: Path) -> None:
    assert found(make(tmp_path / "train" / "0001", "PSR_labels.csv")) == [("train", "0001")]


def test_a_folder_inside_a_split_counts_even_without_labels(tmp_path: Path) -> None:
    make(tmp_path / "test" / "0008", "PSR_labels.csv")
    make(tmp_path / "test" / "0009")
    assert found(tmp_path) == [("test", "0008"), ("test", "0009")]


def test_the_split_folder_itself_may_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "test" / "0008", "PSR_labels.csv")
    assert found(tmp_path / "test") == [("test", "0008")]
    monkeypatch.chdir(tmp_path / "test")
    assert found(Path()) == [("test", "0008")]
    monkeypatch.chdir(tmp_path / "test" / "0008")
    assert found(Path()) == [("test", "0008")]


def test_a_linked_recording_has_the_links_name_and_split_not_those_of_what_it_leads_to(tmp_path: Path) -> None:
    held_out = make(tmp_path / "all" / "train" / "0001", "PSR_labels.csv")
    (tmp_path / "folds" / "val").mkdir(parents=True)
    (tmp_path / "folds" / "val" / "first").symlink_to(held_out, target_is_directory=True)
    assert found(tmp_path / "folds") == [("val", "first")]


def test_a_data_set_that_lies_in_a_folder_called_test_is_not_a_recording(tmp_path: Path) -> None:
    root = tmp_path / "test" / "my_data"
    make(root / "train" / "0001", "PSR_labels.csv")
    assert found(root) == [("train", "0001")]


def test_hidden_folders_and_plain_files_are_no_recordings(tmp_path: Path) -> None:
    make(tmp_path / "test" / "0008", "PSR_labels.csv")
    make(tmp_path / "test" / ".cache")
    make(tmp_path / "test", "README.txt")
    assert found(tmp_path) == [("test", "0008")]


def test_a_recording_may_be_in_two_splits_and_is_then_there_twice(tmp_path: Path) -> None:
    for split in ("train", "test"):
        make(tmp_path / split / "0008", "PSR_labels.csv")
    assert found(tmp_path) == [("test", "0008"), ("train", "0008")]


# ---------------------------------------------------------------------- refusals
def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere: there is no such folder; give the folder"):
        find_recordings(tmp_path / "nowhere")


def test_a_file_is_not_a_folder_of_recordings(tmp_path: Path) -> None:
    make(tmp_path, "PSR_labels.csv")
    with pytest.raises(InputError, match=r"PSR_labels\.csv: this is a file; give the folder"):
        find_recordings(tmp_path / "PSR_labels.csv")


def test_a_folder_without_recordings_is_refused_with_an_example(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no recordings found; .*test/0008/PSR_labels\.csv"):
        find_recordings(make(tmp_path / "empty"))


def test_an_unknown_split_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown split 'testing'; choose one of: train, val, test"):
        find_recordings(tmp_path, "testing")


def test_an_absent_split_is_refused_with_those_that_are_there(tmp_path: Path) -> None:
    make(tmp_path / "train" / "0001", "PSR_labels.csv")
    with pytest.raises(InputError, match="no recordings in split 'val'; it has: train"):
        find_recordings(tmp_path, "val")


def test_a_split_of_recordings_that_have_none_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "01_assy", "PSR_labels.csv")
    with pytest.raises(InputError, match="belong to no split"):
        find_recordings(tmp_path, "test")


# ---------------------------------------------------------------------- length
def test_the_length_is_what_recording_json_says(tmp_path: Path) -> None:
    (tmp_path / "recording.json").write_text('\ufeff{"n_frames": 250}', encoding="utf-8")
    assert RecordingFolder("r", None, tmp_path).n_frames() == 250


@pytest.mark.parametrize("folder", ["rgb", "RGB", "."])
def test_the_length_is_the_last_frames_number_plus_one_not_the_number_of_images(tmp_path: Path, folder: str) -> None:
    make(tmp_path / folder, "000000.jpg", "000007.png", "cover.jpg", "000099.txt")
    assert RecordingFolder("r", None, tmp_path).n_frames() == 8


def test_without_images_and_recording_json_the_length_is_unknown(tmp_path: Path) -> None:
    make(tmp_path, "PSR_labels.csv")
    recording = RecordingFolder("r", None, tmp_path)
    assert recording.frames_folder() is None
    assert recording.n_frames() is None


def test_a_recording_json_that_says_nothing_about_the_length_leaves_it_to_the_images(tmp_path: Path) -> None:
    make(tmp_path / "rgb", "000004.jpg")
    (tmp_path / "recording.json").write_text('{"fps": 10}')
    assert RecordingFolder("r", None, tmp_path).n_frames() == 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{\n"n_frames": 5\n"fps"}', r"recording\.json:3: this is not JSON"),
        (b"\xff\xfe", "this is not text in UTF-8"),
        (b'{"n_frames": -1}', "n_frames is -1; write the number of frames"),
        (b"[]", r"recording\.json:1: this is no description of a recording"),
        (b'{"fps": NaN}', "a number is too large or not finite: NaN"),
        (b'{"fps": 0}', "fps is 0"),
        (b'{"fps": 1e999}', "a number is too large or not finite: 1e999"),
        (b'{"fps": "10"}', "fps is '10'"),
        (b'{"n_frames": 2.5}', "n_frames is 2.5"),
        (b'{"n_frames": true}', "n_frames is True"),
        (b'{"n_frames": "many"}', "n_frames is 'many'"),
    ],
)
def test_a_bad_recording_json_is_refused_by_name(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "recording.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        RecordingFolder("r", None, tmp_path).n_frames()


def test_an_image_called_after_something_that_only_looks_like_a_number_is_not_counted(tmp_path: Path) -> None:
    for name in ("000004.jpg", "².jpg", "٣.jpg", "9999999999.jpg"):
        (tmp_path / name).touch()
    assert RecordingFolder("01", None, tmp_path).n_frames() == 5


@pytest.mark.parametrize("fps", ["1e-9", "0", "1e400", "NaN", "1001"])
def test_a_rate_that_cannot_be_meant_is_refused_by_name(tmp_path: Path, fps: str) -> None:
    (tmp_path / "recording.json").write_text(f'{{"fps": {fps}}}', encoding="utf-8")
    with pytest.raises(InputError, match=r"recording\.json"):
        RecordingFolder("01", None, tmp_path).n_frames()
