"""Annotated boxes: MECCANO's rows, COCO files, and what bad ones get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stormpsr.data.boxes import Box, read_centre_boxes, read_coco_boxes, state_class_of
from stormpsr.data.labels import StateTimeline
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure


def rows(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "0008_GT.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def coco(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "OD_labels.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def coco_file(**changes: Any) -> dict[str, Any]:
    """A COCO file of one annotation, with some of its values changed."""
    annotation = {"id": 1, "image_id": 7, "category_id": 2, "bbox": [10, 20, 30, 40]} | changes
    return {"images": [{"id": 7, "file_name": "000150.jpg"}], "annotations": [annotation]}


# ---------------------------------------------------------------------- MECCANO's rows
def test_a_row_is_a_box_in_shares_of_the_image(tmp_path: Path) -> None:
    assert read_centre_boxes(rows(tmp_path, "00150.jpg,1,0,0.5,0.25,0.1,0.2\n")) == [Box(150, 0.5, 0.25, 0.1, 0.2)]


def test_boxes_come_in_the_order_of_their_frames(tmp_path: Path) -> None:
    path = rows(tmp_path, "\ufeff9,1,0,0.5,0.5,1,1\r\n\r\n3,1,0,0.5,0.5,1,1\r\nrgb\\5.jpg,1,0,0.5,0.5,1,1\r\n")
    assert [box.frame for box in read_centre_boxes(path)] == [3, 5, 9]


def test_an_empty_file_has_no_boxes(tmp_path: Path) -> None:
    assert read_centre_boxes(rows(tmp_path, "")) == []


def test_a_box_of_ten_by_ten_pixels_is_a_box(tmp_path: Path) -> None:
    assert len(read_centre_boxes(rows(tmp_path, "1,1,0,0.5,0.5,0.0052,0.0093\n"))) == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("5,1,0,0.5,0.5,0.1", "a row with 6 columns; the columns are: frame, flag, track, x, y, w, h"),
        ("5", "a row with 1 column;"),
        ("5,1,0,0.5,0.5,0.1,tall", "not a number"),
        ("5,1,0,nan,0.5,0.1,0.1", "a box outside the image or without size: nan"),
        ("5,1,0,0.5,inf,0.1,0.1", "a box outside the image"),
        ("5,1,0,1.2,0.5,0.1,0.1", "a box outside the image"),
        ("5,1,0,0.5,-0.1,0.1,0.1", "a box outside the image"),
        ("5,1,0,0.5,0.5,0,0.1", "without size"),
        ("5,1,0,0.5,0.5,0.1,-0.2", "without size"),
        ("5,1,0,960,540,100,80", "shares of the image's width and height"),
        ("-5,1,0,0.5,0.5,0.1,0.1", "frame '-5' is negative"),
        ("frame,flag,track,x,y,w,h", "not a number"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(tmp_path: Path, row: str, message: str) -> None:
    path = rows(tmp_path, f"1,1,0,0.5,0.5,1,1\n{row}\n")
    with pytest.raises(InputError) as caught:
        read_centre_boxes(path)
    assert (caught.value.path, caught.value.line) == (str(path), 2)
    assert message in str(caught.value)


def test_binary_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"0008_GT\.csv:1: this is not text in UTF-8"):
        read_centre_boxes(rows(tmp_path, b"\xff\xd8\xff\xe0"))


# ---------------------------------------------------------------------- COCO
def test_a_coco_annotation_is_a_box_with_its_class(tmp_path: Path, lamp: Procedure) -> None:
    assert read_coco_boxes(coco(tmp_path, coco_file()), lamp) == [Box(150, 10.0, 20.0, 30.0, 40.0, state_class=2)]


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
        ({"image_id": 8}, "annotation 0 (counted from 0): image 8 is not listed; add it to 'images'"),
        ({"image_id": [7]}, "image_id is [7], not a whole number"),
        ({"category_id": 6}, "category 6 is not a state class; the classes of 'lamp' are 0 to 5"),
        ({"category_id": -1}, "category -1 is not a state class"),
        ({"category_id": "2"}, "category_id is '2', not a whole number"),
        ({"category_id": True}, "category_id is True, not a whole number"),
        ({"bbox": [1, 2, 3]}, "bbox is [1, 2, 3]; write four numbers"),
        ({"bbox": "1 2 3 4"}, "bbox is '1 2 3 4'"),
        ({"bbox": [1, 2, 3, "4"]}, "write four numbers"),
        ({"bbox": [1, 2, float("nan"), 4]}, "write four numbers"),
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
    with pytest.raises(InputError, match=f"annotation 0 .* has no '{key}'"):
        read_coco_boxes(coco(tmp_path, content), lamp)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ({"id": 7}, "has no 'file_name'"),
        ({"file_name": "1.jpg"}, "has no 'id'"),
        ({"id": "7", "file_name": "1.jpg"}, "id is '7', not a whole number"),
        ({"id": 7, "file_name": "cover.jpg"}, "image 0 .*: 'cover.jpg' is not a frame"),
        ({"id": 7, "file_name": "-1.jpg"}, "frame '-1.jpg' is negative"),
        ("000150.jpg", "has no 'id'"),
    ],
)
def test_a_bad_image_is_refused(tmp_path: Path, lamp: Procedure, image: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_coco_boxes(coco(tmp_path, {"images": [image], "annotations": []}), lamp)


@pytest.mark.parametrize("content", ["[]", "{}", '{"images": []}', '{"images": {}, "annotations": []}', "3", "null"])
def test_other_json_is_not_a_coco_file(tmp_path: Path, lamp: Procedure, content: str) -> None:
    with pytest.raises(InputError, match=r"OD_labels\.json: this is not a COCO file; it needs the lists"):
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


# ---------------------------------------------------------------------- classes
def test_a_box_without_a_class_shows_the_labelled_state_of_its_frame(lamp: Procedure) -> None:
    timeline = StateTimeline((0, 10, 20, 30), ((0, 0, 0), (1, 0, 0), (1, -1, 0), (0, 1, 0)))
    classes = [state_class_of(Box(frame, 0.5, 0.5, 1, 1), timeline, lamp) for frame in (0, 9, 10, 25, 30)]
    assert classes == [1, 1, 2, 5, None]  # 5 is the error class; the pole alone has no class


def test_a_box_with_a_class_keeps_it(lamp: Procedure) -> None:
    timeline = StateTimeline((0,), ((0, 0, 0),))
    assert state_class_of(Box(0, 0.5, 0.5, 1, 1, state_class=4), timeline, lamp) == 4
