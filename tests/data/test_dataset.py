"""Data sets: which recordings they have, and which procedure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import stormpsr
from stormpsr.data.dataset import Dataset
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure


def test_recordings_come_in_order_with_frames_and_labels(lamp_data: Path, lamp: Procedure) -> None:
    dataset = stormpsr.Dataset.open(lamp_data)
    assert dataset.procedure == lamp
    assert len(dataset) == 3
    assert [(r.name, r.split, r.n_frames) for r in dataset] == [
        ("01_build_test", "test", 20),
        ("01_build_train", "train", 20),
        ("01_build_val", "val", 20),
    ]
    recording = dataset["01_build_val"]
    assert [step.step_id for step in recording.steps or ()] == [0, 3, 6]
    assert recording.states_FC[4].tolist() == [1, 0, 0]
    assert next(recording.frames()).image.shape == (64, 64, 3)


def test_a_recording_is_opened_when_it_is_needed_and_once(lamp_data: Path) -> None:
    (lamp_data / "recordings/val/01_build_val/PSR_labels.csv").write_text("not a label\n")
    dataset = Dataset.open(lamp_data)
    assert dataset["01_build_test"] is next(iter(dataset))
    with pytest.raises(InputError, match=r"01_build_val/PSR_labels\.csv"):
        list(dataset)


def test_a_split_and_those_with_labels_can_be_chosen(lamp_data: Path) -> None:
    assert Dataset.open(lamp_data, "val").names == ["01_build_val"]
    dataset = Dataset.open(lamp_data)
    assert dataset.of_split("train").names == ["01_build_train"]
    for name in ("PSR_labels.csv", "PSR_labels_raw.csv"):
        (lamp_data / "recordings/test/01_build_test" / name).unlink()
    assert Dataset.open(lamp_data).labelled.names == ["01_build_train", "01_build_val"]
    assert dataset["01_build_test"].steps is None


def test_an_unknown_name_and_one_that_is_there_twice_are_refused(
    write_lamp: Callable[..., Path], tmp_path: Path
) -> None:
    write_lamp("train", "a")
    write_lamp("val", "a")
    dataset = Dataset.open(tmp_path / "data")
    with pytest.raises(InputError, match="there is no recording 'b'; there are: a, a"):
        dataset["b"]
    with pytest.raises(InputError, match="recording 'a' is there more than once: train, val; open one split"):
        dataset["a"]


# ---------------------------------------------------------------------- procedures
def test_a_given_procedure_goes_before_that_of_the_folder_and_that_before_those_of_recordings(
    lamp_data: Path, lamp: Procedure
) -> None:
    other = replace(lamp, title="the folder's")
    other.save(lamp_data / "procedure.yaml")
    assert Dataset.open(lamp_data).procedure.title == "the folder's"
    assert Dataset.open(lamp_data, procedure=lamp).procedure is lamp
    assert Dataset.open(lamp_data, procedure="meccano").procedure.name == "meccano"


def test_recordings_of_two_procedures_are_no_data_set(lamp_data: Path, lamp: Procedure) -> None:
    replace(lamp, title="another").save(lamp_data / "recordings/val/01_build_val/procedure.yaml")
    with pytest.raises(InputError, match=r"01_build_val/procedure\.yaml: this is another procedure than in .*_test"):
        Dataset.open(lamp_data)
    assert Dataset.open(lamp_data, "val").procedure.title == "another"


def test_data_without_a_procedure_ask_for_one(lamp_data: Path) -> None:
    for path in lamp_data.rglob("procedure.yaml"):
        path.unlink()
    with pytest.raises(InputError, match=r"nobody says which procedure this is; give one, or put procedure\.yaml"):
        Dataset.open(lamp_data)


def test_a_model_may_look_at_every_procedure(lamp_data: Path, lamp: Procedure) -> None:
    path = lamp_data / "recordings/val/01_build_val/procedure.yaml"
    replace(lamp, title="another").save(path)
    seen: list[tuple[Path, str]] = []
    Dataset.open(lamp_data, procedure=lamp).check(lambda procedure, where: seen.append((where, procedure.title)))
    assert [title for _, title in seen] == ["", "another"]
    assert seen[1][0] == path
