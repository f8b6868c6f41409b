"""Boxes on top of each other."""

from __future__ import annotations

import numpy as np
import pytest

from stormpsr.data.boxes import box_iou, box_iou_xywh, nms


def test_overlap_is_the_common_area_over_the_area_of_both() -> None:
    assert box_iou_xywh((0, 0, 2, 2), (1, 1, 2, 2)) == pytest.approx(1 / 7)
    assert box_iou_xywh((0, 0, 2, 2), (0, 0, 2, 2)) == 1.0
    assert box_iou_xywh((0, 0, 2, 2), (2, 0, 2, 2)) == 0.0


def test_a_box_is_compared_with_each_of_others() -> None:
    found = box_iou(np.array([0.0, 0, 4, 4]), np.array([[0.0, 0, 4, 4], [0, 0, 4, 2], [9, 9, 10, 10]]))
    assert found.tolist() == [1.0, 0.5, 0.0]


def test_a_box_that_covers_a_better_one_is_dropped() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [1, 0, 11, 10], [20, 20, 30, 30], [0, 0, 10, 4]])
    assert nms(boxes) == [0, 2, 3]
    assert nms(np.zeros((0, 4))) == []
