"""Which file of events belongs to which recording."""

from __future__ import annotations

from pathlib import Path

import pytest

from stormpsr.errors import InputError
from stormpsr.evaluation.score_files import pair_files


def files(root: Path, *places: str) -> Path:
    for place in places:
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).touch()
    return root


def recordings(root: Path, *names: str) -> Path:
    return files(root, *(f"{name}/PSR_labels.csv" for name in names))


def paired(labels: Path, events: Path, split: str | None = None) -> dict[str, str | None]:
    return {
        pair.name: None if pair.events is None else pair.events.relative_to(events).as_posix()
        for pair in pair_files(labels, events, split)
    }


# ---------------------------------------------------------------------- two files
def test_two_files_are_a_pair_named_after_the_labels_folder(tmp_path: Path) -> None:
    files(tmp_path, "0008/PSR_labels.csv", "mine.csv")
    (pair,) = pair_files(tmp_path / "0008" / "PSR_labels.csv", tmp_path / "mine.csv")
    assert (pair.name, pair.labels.name, pair.events) == ("0008", "PSR_labels.csv", tmp_path / "mine.csv")


def test_a_label_file_with_a_name_of_its_own_names_the_recording(tmp_path: Path) -> None:
    files(tmp_path, "truth_7.csv", "mine.csv")
    (pair,) = pair_files(tmp_path / "truth_7.csv", tmp_path / "mine.csv")
    assert pair.name == "truth_7"


def test_a_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    files(tmp_path, "labels.csv", "events/0008.csv")
    with pytest.raises(InputError, match=r"labels\.csv is a file and .*events a folder; give two files or two folders"):
        pair_files(tmp_path / "labels.csv", tmp_path / "events")


@pytest.mark.parametrize("absent", ["labels", "events"])
def test_what_is_not_there_is_refused_by_name(tmp_path: Path, absent: str) -> None:
    recordings(tmp_path / "labels", "0008")
    files(tmp_path / "events", "0008.csv")
    places = {name: tmp_path / (f"no_{name}" if name == absent else name) for name in ("labels", "events")}
    with pytest.raises(InputError, match=f"no_{absent}: there is no such file or folder"):
        pair_files(places["labels"], places["events"])


# ---------------------------------------------------------------------- two folders
@pytest.mark.parametrize(
    "place", ["0008.csv", "test/0008.csv", "0008_events.csv", "0008/PSR_labels.csv", "test/0008/predicted.csv"]
)
def test_the_events_of_a_recording_are_found_by_its_name(tmp_path: Path, place: str) -> None:
    labels = recordings(tmp_path / "labels", "test/0008")
    assert paired(labels, files(tmp_path / "events", place, "notes.txt", "00081.csv")) == {"0008": place}


def test_the_most_telling_name_wins(tmp_path: Path) -> None:
    labels = recordings(tmp_path / "labels", "0008")
    events = files(tmp_path / "events", "0008/any.csv", "0008/PSR_labels.csv", "0008_x.csv", "0008.csv")
    for expected in ("0008.csv", "0008_x.csv", "0008/PSR_labels.csv", "0008/any.csv"):
        assert paired(labels, events) == {"0008": expected}
        (events / expected).unlink()
    assert paired(labels, events) == {"0008": None}


def test_a_file_of_a_longer_name_is_not_taken_for_the_shorter_one(tmp_path: Path) -> None:
    labels = recordings(tmp_path / "labels", "01", "01_2")
    events = files(tmp_path / "events", "01_2.csv")
    assert paired(labels, events) == {"01": None, "01_2": "01_2.csv"}
    (events / "01_2.csv").rename(events / "01_2_events.csv")
    assert paired(labels, events) == {"01": None, "01_2": "01_2_events.csv"}


def test_several_files_for_one_recording_are_refused(tmp_path: Path) -> None:
    labels = recordings(tmp_path / "labels", "0008")
    events = files(tmp_path / "events", "a/0008.csv", "b/0008.csv")
    with pytest.raises(InputError, match=r"several files for recording '0008': a.0008\.csv, b.0008\.csv; keep one"):
        pair_files(labels, events)


def test_only_the_split_that_is_asked_for_is_paired(tmp_path: Path) -> None:
    labels = recordings(tmp_path / "labels", "train/0001", "test/0008")
    events = files(tmp_path / "events", "0001.csv", "0008.csv")
    assert paired(labels, events, "test") == {"0008": "0008.csv"}


def test_a_recording_in_two_splits_is_refused_unless_one_is_chosen(tmp_path: Path) -> None:
    labels = recordings(tmp_path / "labels", "train/0008", "test/0008")
    events = files(tmp_path / "events", "0008.csv")
    with pytest.raises(
        InputError, match="recording '0008' is there more than once: test, train; choose one with --spl"
    ):
        pair_files(labels, events)
    assert paired(labels, events, "test") == {"0008": "0008.csv"}


def test_a_recording_without_step_labels_is_refused_with_a_cure(tmp_path: Path) -> None:
    labels = files(tmp_path / "labels", "0008/PSR_labels_raw.csv")
    events = files(tmp_path / "events", "0008.csv")
    with pytest.raises(InputError, match=r"recording '0008' has no PSR_labels\.csv; make one .* labels convert"):
        pair_files(labels, events)


def test_swapped_folders_are_noticed(tmp_path: Path) -> None:
    labels = recordings(tmp_path / "labels", "0008")
    events = files(tmp_path / "events", "0008.csv")
    with pytest.raises(InputError, match="labels come first, then events: did you swap"):
        pair_files(events, labels)
