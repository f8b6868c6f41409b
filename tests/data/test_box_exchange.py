"""Boxes out to other tools and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from stormpsr.data.annotated_frames import FrameSet, read_frames, read_images
from stormpsr.data.box_exchange import (
    BoxFormat,
    chosen_negatives,
    export_boxes,
    read_exchange,
    write_recording_boxes,
)
from stormpsr.data.coco import read_coco_boxes
from stormpsr.data.images import read_image
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

FORMATS: list[BoxFormat] = ["coco", "yolo"]


@pytest.fixture
def splits(lamp_data: Path, lamp: Procedure) -> dict[str, FrameSet]:
    return {split: read_frames(lamp_data, split, lamp) for split in ("train", "val")}


@pytest.fixture
def exported(splits: dict[str, FrameSet], tmp_path: Path) -> Callable[[BoxFormat], Path]:
    def export(box_format: BoxFormat) -> Path:
        export_boxes(tmp_path / "out", splits, box_format, negative_ratio=0.2)
        return tmp_path / "out"

    return export


@pytest.mark.parametrize("box_format", FORMATS)
def test_boxes_come_back_as_they_went_out(
    exported: Callable[[BoxFormat], Path], box_format: BoxFormat, lamp_data: Path, lamp: Procedure
) -> None:
    folders = {path.name: path for path in (lamp_data / "recordings").glob("*/*")}
    path = folders["01_build_train"] / "OD_labels.json"
    before = read_coco_boxes(path, lamp)
    boxes = read_exchange(exported(box_format), lamp)
    assert write_recording_boxes(boxes, folders, replace=True) == {"01_build_train": 15, "01_build_val": 15}
    after = read_coco_boxes(path, lamp)
    assert [(b.frame, b.state_class) for b in after] == [(b.frame, b.state_class) for b in before]
    for old, new in zip(before, after, strict=True):
        assert new.box.corners == pytest.approx(old.box.corners, abs=0.02)


@pytest.mark.parametrize("box_format", FORMATS)
def test_images_are_links_or_copies(splits: dict[str, FrameSet], tmp_path: Path, box_format: BoxFormat) -> None:
    counts = export_boxes(tmp_path / "linked", splits, box_format, negative_ratio=0.2)
    assert counts["train"] == {"images": 18, "boxes": 15, "without_box": 3}
    export_boxes(tmp_path / "copied", splits, box_format, copy=True)
    linked, copied = (next((tmp_path / name / "images" / "train").iterdir()) for name in ("linked", "copied"))
    assert linked.is_symlink()
    assert linked.is_file()
    assert not copied.is_symlink()


@pytest.mark.parametrize("box_format", FORMATS)
def test_frames_of_a_video_go_out_as_images_and_come_back(
    write_lamp: Callable[..., Path], lamp: Procedure, tmp_path: Path, box_format: BoxFormat
) -> None:
    folder = write_lamp(video=True)
    frames = read_frames(tmp_path / "data", "train", lamp)
    export_boxes(tmp_path / "out", {"train": frames}, box_format)
    first = tmp_path / "out" / "images" / "train" / "01_build_000000.jpg"
    assert np.abs(read_image(first).astype(int) - frames.readable[0].read()).mean() < 6
    boxes = read_exchange(tmp_path / "out", lamp)
    assert write_recording_boxes(boxes, {"01_build": folder}, replace=True) == {"01_build": 15}


def test_the_description_of_a_yolo_set_names_every_class(
    exported: Callable[[BoxFormat], Path], lamp: Procedure
) -> None:
    content = yaml.safe_load((exported("yolo") / "data.yaml").read_text())
    assert content["names"] == {state.state_class: state.name for state in lamp.states}
    assert (content["train"], content["val"]) == ("images/train", "images/val")


def test_an_image_without_a_state_has_no_label_file(exported: Callable[[BoxFormat], Path]) -> None:
    folder = exported("yolo")
    names = [{path.stem for path in (folder / kind / "train").iterdir()} for kind in ("images", "labels")]
    assert len(names[0] - names[1]) == 3
    assert names[1] <= names[0]


def test_negatives_are_spread_over_the_recording(splits: dict[str, FrameSet]) -> None:
    assert [f.frame for f in chosen_negatives(splits["train"], 0.2)] == [3, 7, 15]
    assert len(chosen_negatives(splits["train"], 10)) == 5
    assert chosen_negatives(splits["train"], 0) == []


def test_names_that_a_tool_has_decorated_are_understood(exported: Callable[[BoxFormat], Path], lamp: Procedure) -> None:
    path = exported("coco") / "annotations" / "train.json"
    content = json.loads(path.read_text())
    for image in content["images"]:
        stem = Path(image["file_name"]).stem
        image["file_name"] = f"train/{stem}_jpg.rf.0a1b2c3d.jpg"
    for category in content["categories"]:  # tools number categories anew
        category["id"] += 100
    for annotation in content["annotations"]:
        annotation["category_id"] += 100
    path.write_text(json.dumps(content))
    found = read_exchange(path.parent.parent, lamp)["01_build_train"]
    assert (0, 1) in {(box.image.id, box.category_id) for box in found.boxes}


# ---------------------------------------------------------------------- what is refused
def test_a_category_that_is_no_state_is_refused(exported: Callable[[BoxFormat], Path], lamp: Procedure) -> None:
    path = exported("coco") / "annotations" / "train.json"
    content = json.loads(path.read_text())
    content["categories"][0] = {"id": 77, "name": "teapot"}
    content["annotations"][0]["category_id"] = 77
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="'teapot' is not a state") as caught:
        read_exchange(path.parent.parent, lamp)
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("2 0.5 0.5 0.1", "this is not a box"),
        ("2 0.5 0.5 0.1 x", "this is not a box"),
        ("66 0.5 0.5 0.1 0.1", "class 66 is not in data.yaml"),
        ("2 1.5 0.5 0.1 0.1", "outside the image"),
        ("2 0.5 0.5 0 0.1", "without size"),
    ],
)
def test_a_label_row_that_cannot_be_meant_is_refused(
    exported: Callable[[BoxFormat], Path], lamp: Procedure, row: str, complaint: str
) -> None:
    path = next((exported("yolo") / "labels" / "train").iterdir())
    path.write_text(row)
    with pytest.raises(InputError, match=complaint) as caught:
        read_exchange(path.parents[2], lamp)
    assert caught.value.path == str(path)


def test_boxes_that_are_there_are_replaced_only_on_request(
    exported: Callable[[BoxFormat], Path], lamp: Procedure, lamp_data: Path
) -> None:
    folders = {path.name: path for path in (lamp_data / "recordings").glob("*/*")}
    boxes = read_exchange(exported("coco"), lamp)
    with pytest.raises(InputError, match="there already"):
        write_recording_boxes(boxes, folders)
    with pytest.raises(InputError, match="no recording '01_build_train'"):
        write_recording_boxes(boxes, {})


def test_nothing_is_overwritten_and_nothing_is_left_of_a_failed_export(
    splits: dict[str, FrameSet], tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").touch()
    with pytest.raises(InputError, match="there already"):
        export_boxes(tmp_path / "full", splits, "coco")
    twice = {"train": FrameSet(splits["train"].procedure, splits["train"].readable * 2, ())}
    with pytest.raises(InputError, match="two images would be called"):
        export_boxes(tmp_path / "out", twice, "coco")
    assert not list(tmp_path.glob(".out*"))


def test_a_folder_without_boxes_is_refused(tmp_path: Path, lamp: Procedure) -> None:
    with pytest.raises(InputError, match="there are no boxes here"):
        read_exchange(tmp_path, lamp)


# ---------------------------------------------------------------------- single images
def test_single_images_know_their_state_even_if_a_part_is_wrong(
    lamp_data: Path, lamp: Procedure, tmp_path: Path
) -> None:
    images = sorted((lamp_data / "recordings/train/01_build_train/rgb").iterdir())
    content = {
        "images": [{"id": 7, "file_name": str(images[0]), "width": 64, "height": 64}],
        "annotations": [{"image_id": 7, "category_id": 5, "bbox": [0, 0, 32, 16], "state": [1, -1, 0]}],
        "categories": [{"id": 5, "name": "error"}],
    }
    (tmp_path / "annotations.json").write_text(json.dumps(content))
    picture = read_images(tmp_path, lamp)[0]
    assert picture.maybe_hidden
    assert picture.box is not None
    assert (picture.state_class, picture.bits, picture.box.width) == (5, (1, -1, 0), 32)
    content["annotations"][0]["state"] = [1, 0]
    (tmp_path / "annotations.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="has 3 components, this one has 2"):
        read_images(tmp_path, lamp)


def images_file(folder: Path, image: Path, **changes: object) -> Path:
    """A folder with one image of the lamp's class 3, some of it changed."""
    annotation = {"image_id": 7, "category_id": 3, "bbox": [0, 0, 32, 16], **changes}
    content = {
        "images": [{"id": 7, "file_name": str(image), "width": 64, "height": 64}],
        "annotations": [annotation, {**annotation, "category_id": 3, "bbox": [1, 1, 9, 9]}],
        "categories": [{"id": 3, "name": "state 3"}, {"id": 9, "name": "unlisted"}, {"id": 8, "name": "sofa"}],
    }
    path = folder / "annotations.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"bbox": [70, 0, 10, 10]}, "a box outside the image or without size"),
        ({"bbox": [10, 10, 0, 10]}, "a box outside the image or without size"),
        ({"bbox": "wide"}, "bbox must be a list"),
        ({"category_id": 8}, "category 'sofa' is not a state"),
        ({"category_id": 77}, "category 77 is not listed"),
        ({"image_id": 1}, "image 1 is not listed"),
    ],
)
def test_an_image_that_cannot_be_meant_is_refused_with_the_name_of_the_file(
    lamp_data: Path, lamp: Procedure, tmp_path: Path, changes: dict[str, object], complaint: str
) -> None:
    image = lamp_data / "recordings/train/01_build_train/rgb/000004.png"
    path = images_file(tmp_path, image, **changes)
    with pytest.raises(InputError, match=complaint) as caught:
        read_images(tmp_path, lamp)
    assert str(path) in str(caught.value)
    image.unlink()
    images_file(tmp_path, image)
    with pytest.raises(InputError, match="there is no image"):
        read_images(tmp_path, lamp)


def test_images_of_states_without_a_class_are_left_out(lamp_data: Path, lamp: Procedure, tmp_path: Path) -> None:
    images_file(tmp_path, lamp_data / "recordings/train/01_build_train/rgb/000004.png", category_id=9)
    assert [picture.state_class for picture in read_images(tmp_path, lamp)] == [3]
