"""COCO files: what is read, what is written, and what bad ones get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stormpsr.data.boxes import Box, LabelledBox
from stormpsr.data.coco import Coco, CocoBox, CocoImage, read_coco, read_coco_boxes
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure


def coco(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "OD_labels.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def coco_file(**changes: Any) -> dict[str, Any]:
    """A COCO file of one annotation, with some of its values changed."""
    annotation = {"id": 1, "image_id": 7, "category_id": 2, "bbox": [10, 20, 30, 40]} | changes
    return {"images": [{"id": 7, "file_name": "000150.jpg"}], "annotations": [annotation]}


# ---------------------------------------------------------------------- COCO
def test_a_coco_annotation_is_a_box_with_its_class(tmp_path: Path, lamp: Procedure) -> None:
    assert read_coco_boxes(coco(tmp_path, coco_file()), lamp) == [LabelledBox(150, Box(10, 20, 40, 60), 2)]


def test_coco_boxes_come_in_the_order_of_their_frames(tmp_path: Path, lamp: Procedure) -> None:
    images = [{"id": i, "file_name": f"rgb/{frame:06d}.jpg"} for i, frame in enumerate((30, 10, 20))]
    annotations = [{"image_id": i, "category_id": 1, "bbox": [0, 0, 1, 1]} for i in range(3)]
    path = coco(tmp_path, {"images": images, "annotations": annotations})
    assert [box.frame for box in read_coco_boxes(path, lamp)] == [10, 20, 30]


def test_a_coco_file_without_annotations_has_no_boxes(tmp_path: Path, lamp: Procedure) -> None:
    assert read_coco_boxes(coco(tmp_path, "\ufeff" + '{"images": [], "annotations": []}'), lamp) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_id": 8}, "annotations #1: image 8 is not listed; add it to 'images'"),
        ({"image_id": [7]}, "annotations #1.image_id is [7]: it should be a valid integer"),
        ({"category_id": 6}, "category 6 is not a state class; the classes of 'lamp' are 0 to 5"),
        ({"category_id": -1}, "category -1 is not a state class"),
        ({"category_id": "2"}, "category_id is '2': it should be a valid integer"),
        ({"category_id": True}, "category_id is True: it should be a valid integer"),
        ({"bbox": [1, 2, 3]}, "annotations #1.bbox has only 3 entries; an image has id"),
        ({"bbox": "1 2 3 4"}, "bbox must be a list"),
        ({"bbox": [1, 2, 3, "4"]}, "bbox #4 is '4': it should be a valid number"),
        ({"bbox": [1, 2, float("nan"), 4]}, "a number is too large or not finite: NaN"),
        ({"bbox": [1, 2, 10**400, 4]}, "bbox #3 is "),
        ({"state": "101"}, "annotations #1.state must be a list"),
        ({"bbox": [1, 2, 0, 4]}, "outside the image or without size"),
        ({"bbox": [1, 2, 3, -4]}, "outside the image or without size"),
        ({"bbox": [-50, 2, 30, 4]}, "outside the image or without size"),
    ],
)
def test_a_bad_annotation_is_refused_by_its_place(
    tmp_path: Path, lamp: Procedure, changes: dict[str, Any], message: str
) -> None:
    path = coco(tmp_path, coco_file(**changes))
    with pytest.raises(InputError) as caught:
        read_coco_boxes(path, lamp)
    assert caught.value.path == str(path)
    assert message in str(caught.value)


@pytest.mark.parametrize("key", ["image_id", "category_id", "bbox"])
def test_an_annotation_without_a_key_is_refused(tmp_path: Path, lamp: Procedure, key: str) -> None:
    content = coco_file()
    del content["annotations"][0][key]
    with pytest.raises(InputError, match=f"the key 'annotations #1.{key}' is missing"):
        read_coco_boxes(coco(tmp_path, content), lamp)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ({"id": 7}, "the key 'images #1.file_name' is missing"),
        ({"file_name": "1.jpg"}, "the key 'images #1.id' is missing"),
        ({"id": "7", "file_name": "1.jpg"}, "id is '7': it should be a valid integer"),
        ({"id": [7], "file_name": "1.jpg"}, "id is \\[7\\]: it should be a valid integer"),
        ({"id": 7, "file_name": 1}, "images #1.file_name must be a word"),
        ({"id": 7, "file_name": "1.jpg", "height": "480"}, "height is '480': it should be a valid integer"),
        ({"id": 7, "file_name": "1.jpg", "width": 0}, "images #1.width is 0: it should be greater than or equal to 1"),
        ({"id": 7, "file_name": "cover.jpg"}, "images #1: 'cover.jpg' is not a frame"),
        ({"id": 7, "file_name": "-1.jpg"}, "frame '-1.jpg' is negative"),
        ("000150.jpg", "images #1 must be a table"),
    ],
)
def test_a_bad_image_is_refused(tmp_path: Path, lamp: Procedure, image: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_coco_boxes(coco(tmp_path, {"images": [image], "annotations": []}), lamp)


@pytest.mark.parametrize("content", ["[]", "{}", '{"images": []}', '{"images": {}, "annotations": []}', "3", "null"])
def test_other_json_is_not_a_coco_file(tmp_path: Path, lamp: Procedure, content: str) -> None:
    with pytest.raises(InputError, match=r"OD_labels\.json: this is not a COCO file: "):
        read_coco_boxes(coco(tmp_path, content), lamp)


def test_an_error_in_the_json_is_named_by_line(tmp_path: Path, lamp: Procedure) -> None:
    with pytest.raises(InputError, match=r"OD_labels\.json:3: this is not JSON"):
        read_coco_boxes(coco(tmp_path, '{"images": [],\n"annotations": [\n}'), lamp)


def test_a_missing_coco_file_and_a_binary_one_are_refused(tmp_path: Path, lamp: Procedure) -> None:
    with pytest.raises(InputError, match=r"nowhere\.json: there is no such file"):
        read_coco_boxes(tmp_path / "nowhere.json", lamp)
    (tmp_path / "OD_labels.json").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(InputError, match="this is not text in UTF-8"):
        read_coco_boxes(tmp_path / "OD_labels.json", lamp)


def test_two_images_with_one_id_are_refused(tmp_path: Path) -> None:
    images = [{"id": 7, "file_name": "1.jpg"}, {"id": 7, "file_name": "2.jpg"}]
    with pytest.raises(InputError, match=r"images #2: id 7 is there twice"):
        read_coco(coco(tmp_path, {"images": images, "annotations": []}))


def test_a_path_of_windows_is_read_like_any_other(tmp_path: Path) -> None:
    image = {"id": 7, "file_name": "images\\deep\\1.jpg"}
    annotation = {"image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1]}
    found = read_coco(coco(tmp_path, {"images": [image], "annotations": [annotation]}))
    assert [found.images[0].file_name, found.boxes[0].image.file_name] == ["images/deep/1.jpg"] * 2


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    image = CocoImage(7, "000007.jpg", 64, 48)
    written = Coco([image], [CocoBox(image, 2, Box(1, 2, 11, 22), [1, 0, -1])], {2: "foot"})
    written.write(tmp_path / "boxes.json")
    again = read_coco(tmp_path / "boxes.json")
    assert (again.images, again.categories) == (written.images, written.categories)
    assert [(b.image, b.category_id) for b in again.boxes] == [(image, 2)]
    assert [(b.box, b.state) for b in again.boxes] == [(Box(1, 2, 11, 22), [1, 0, -1])]
    content = json.loads((tmp_path / "boxes.json").read_text())
    assert content["annotations"][0]["area"] == 200
