"""Boxes: their corners and overlaps, and MECCANO's rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stormpsr.data.boxes import Box, LabelledBox, box_iou, nms, read_centre_boxes
from stormpsr.data.labels import StateTimeline
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure


def rows(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "0008_GT.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# ---------------------------------------------------------------------- corners
def test_a_box_is_the_same_in_every_notation() -> None:
    box = Box.from_xywh(10, 20, 30, 40)
    assert box == Box(10, 20, 40, 60) == Box.from_centre(0.25, 0.4, 0.3, 0.4, 100, 100)
    assert (box.width, box.height, box.centre, box.to_xywh()) == (30, 40, (25, 40), (10, 20, 30, 40))


def test_a_box_is_cut_at_the_border_of_its_image_unless_less_than_half_is_inside() -> None:
    assert Box(-8, 0, 24, 32).inside(64, 64) == Box(0, 0, 24, 32)
    assert Box(-16, 0, 16, 32).inside(64, 64) == Box(0, 0, 16, 32)
    for outside in (Box(-17, 0, 16, 32), Box(60, 60, 80, 80), Box(10, 10, 10, 20), Box(20, 10, 10, 20)):
        with pytest.raises(InputError, match=r"outside the image or without size: .*; the image has 64 x 64"):
            outside.inside(64, 64)


# ---------------------------------------------------------------------- overlap
def test_iou_is_the_common_area_over_the_area_of_both() -> None:
    assert Box(0, 0, 2, 2).iou(Box(1, 1, 3, 3)) == pytest.approx(1 / 7)
    assert Box(0, 0, 2, 2).iou(Box(0, 0, 2, 2)) == 1.0
    assert Box(0, 0, 2, 2).iou(Box(2, 0, 4, 2)) == 0.0


def test_a_box_is_compared_with_each_of_others() -> None:
    found = box_iou(np.array([0.0, 0, 4, 4]), np.array([[0.0, 0, 4, 4], [0, 0, 4, 2], [9, 9, 10, 10]]))
    assert found.tolist() == [1.0, 0.5, 0.0]


def test_a_box_that_covers_a_better_one_is_dropped() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [1, 0, 11, 10], [20, 20, 30, 30], [0, 0, 10, 4]])
    assert nms(boxes) == [0, 2, 3]
    assert nms(np.zeros((0, 4))) == []


# ---------------------------------------------------------------------- MECCANO's rows
def test_a_row_is_a_box_in_shares_of_the_image(tmp_path: Path) -> None:
    path = rows(tmp_path, "00150.jpg,1,0,0.5,0.25,0.5,0.25\n")
    assert read_centre_boxes(path) == [LabelledBox(150, Box(0.25, 0.125, 0.75, 0.375))]
    assert read_centre_boxes(path, 80, 40) == [LabelledBox(150, Box(20, 5, 60, 15))]


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
        ("5,1,0,nan,0.5,0.1,0.1", "x is 'nan', not a finite number"),
        ("5,1,0,0.5,inf,0.1,0.1", "y is 'inf', not a finite number"),
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


# ---------------------------------------------------------------------- classes
def test_a_box_without_a_class_shows_the_labelled_state_of_its_frame(lamp: Procedure) -> None:
    timeline = StateTimeline((0, 10, 20, 30), ((0, 0, 0), (1, 0, 0), (1, -1, 0), (0, 1, 0)))
    classes = [LabelledBox(frame, Box(0, 0, 1, 1)).class_in(timeline, lamp) for frame in (0, 9, 10, 25, 30)]
    assert classes == [1, 1, 2, 5, None]  # 5 is the error class; the pole alone has no class


def test_a_box_with_a_class_keeps_it(lamp: Procedure) -> None:
    timeline = StateTimeline((0,), ((0, 0, 0),))
    assert LabelledBox(0, Box(0, 0, 1, 1), 4).class_in(timeline, lamp) == 4
