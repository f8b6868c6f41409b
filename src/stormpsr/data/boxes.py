"""Annotated boxes: frames in which a person could read the state of the whole assembly.

Two layouts are read: MECCANO's `<recording>_GT.csv`, rows of `frame, flag, track, x, y, w, h` with a normalised centre
box and no class (the class is the labelled state of the frame), and `OD_labels.json` inside a recording (COCO, with
the state's class as category), as in IndustReal.

How much boxes box_iou. Shape legend: R boxes, 4 corners (x0, y0, x1, y1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.labels import OnNote, StateTimeline, parse_frame, read_rows
from stormpsr.errors import InputError
from stormpsr.files import read_json
from stormpsr.procedure.model import Procedure

COCO_FILE = "OD_labels.json"
_COCO_IDS = ("image_id", "category_id")


@dataclass(frozen=True, slots=True)
class Box:
    """An annotated box. `state_class` is None where the file names none."""

    frame: int
    x: float  # centre and size for MECCANO (shares of the image), corner and size in pixels for COCO
    y: float
    width: float
    height: float
    state_class: int | None = None


def read_centre_boxes(path: str | Path, *, on_note: OnNote | None = None) -> list[Box]:
    """The boxes of a MECCANO `_GT.csv`, by frame."""
    boxes: list[Box] = []
    for line, row in read_rows(path, on_note):
        if len(row) != 7:
            cure = "the columns are: frame, flag, track, x, y, w, h"
            columns = "1 column" if len(row) == 1 else f"{len(row)} columns"
            raise InputError(f"a row with {columns}", path=path, line=line, cure=cure)
        try:
            x, y, width, height = (float(cell) for cell in row[3:])
        except ValueError as error:
            cure = "x, y, w, h are shares of the image's width and height"
            raise InputError(f"not a number: {error}", path=path, line=line, cure=cure) from None
        if not (0 <= x <= 1 and 0 <= y <= 1 and 0 < width <= 1 and 0 < height <= 1):
            cure = "x, y, w, h are shares of the image's width and height"
            raise InputError(
                f"a box outside the image or without size: {', '.join(row[3:])}", path=path, line=line, cure=cure
            )
        boxes.append(Box(parse_frame(row[0], path, line), x, y, width, height))
    return sorted(boxes, key=lambda box: box.frame)


def read_coco_boxes(path: str | Path, procedure: Procedure) -> list[Box]:
    """The boxes of an `OD_labels.json`, by frame. Category ids are the procedure's state classes."""
    content = read_json(path)
    if not isinstance(content, dict) or not all(
        isinstance(content.get(key), list) for key in ("images", "annotations")
    ):
        raise InputError("this is not a COCO file", path=path, cure="it needs the lists 'images' and 'annotations'")
    frame_of: dict[Any, int] = {}
    for number, image in enumerate(content["images"]):
        where = f"image {number} (counted from 0)"
        image_id, name = (_field(image, key, where, path) for key in ("id", "file_name"))
        frame_of[_whole(image_id, f"{where}: id", path)] = _frame_in(name, where, path)
    boxes = [
        _coco_box(entry, f"annotation {number} (counted from 0)", frame_of, procedure, path)
        for number, entry in enumerate(content["annotations"])
    ]
    return sorted(boxes, key=lambda box: box.frame)


def _coco_box(entry: Any, where: str, frame_of: dict[Any, int], procedure: Procedure, path: str | Path) -> Box:
    image_id, state_class = (_whole(_field(entry, k, where, path), f"{where}: {k}", path) for k in _COCO_IDS)
    if image_id not in frame_of:
        raise InputError(f"{where}: image {image_id} is not listed", path=path, cure="add it to 'images'")
    if not 0 <= state_class < len(procedure.states):
        cure = f"the classes of {procedure.name!r} are 0 to {len(procedure.states) - 1}"
        raise InputError(f"{where}: category {state_class} is not a state class", path=path, cure=cure)
    box = _field(entry, "bbox", where, path)
    if not (isinstance(box, list) and len(box) == 4 and all(_is_finite(side) for side in box)):
        raise InputError(f"{where}: bbox is {box!r}", path=path, cure="write four numbers: x, y, width, height")
    x, y, width, height = (float(side) for side in box)
    if not (width > 0 and height > 0 and x + width > 0 and y + height > 0):
        cure = "x and y are the upper left corner in pixels, width and height are more than 0"
        raise InputError(f"{where}: a box outside the image or without size: {box}", path=path, cure=cure)
    return Box(frame_of[image_id], x, y, width, height, state_class)


def _field(record: Any, key: str, where: str, path: str | Path) -> Any:
    if not isinstance(record, dict) or key not in record:
        raise InputError(f"{where} has no {key!r}", path=path, cure="see the COCO format for object detection")
    return record[key]


def _whole(value: Any, what: str, path: str | Path) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{what} is {value!r}, not a whole number", path=path)
    return value


def _frame_in(name: Any, where: str, path: str | Path) -> int:
    """The frame that an image's file name speaks of; JSON has no lines to name, so `where` does."""
    try:
        return parse_frame(str(name), path, 1)
    except InputError as error:
        raise InputError(f"{where}: {error.problem}", path=path, cure=error.cure) from None


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def state_class_of(box: Box, timeline: StateTimeline, procedure: Procedure) -> int | None:
    """The class of a box: its own, or that of the labelled state of its frame; None where that state has none."""
    return box.state_class if box.state_class is not None else procedure.state_class(timeline.at(box.frame))


def box_iou(one_4: NDArray[np.floating], others_R4: NDArray[np.floating]) -> NDArray[np.float64]:
    """Intersection over union of a box with each of others."""
    low = np.maximum(one_4[:2], others_R4[:, :2])
    high = np.minimum(one_4[2:], others_R4[:, 2:])
    common = np.prod(np.clip(high - low, 0, None), axis=1)
    own = np.prod(one_4[2:] - one_4[:2])
    theirs = np.prod(others_R4[:, 2:] - others_R4[:, :2], axis=1)
    return np.asarray(common / np.maximum(own + theirs - common, 1e-12), dtype=np.float64)


def box_iou_xywh(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> float:
    """Intersection over union of two boxes given by corner, width and height."""
    corners = [np.array([x, y, x + width, y + height]) for x, y, width, height in (a, b)]
    return float(box_iou(corners[0], corners[1][None])[0])


def nms(corners_R4: NDArray[np.floating], most: float = 0.5) -> list[int]:
    """Rows of the boxes to keep: the first, and each that overlaps no kept one by more than `most`."""
    kept: list[int] = []
    for row, box_4 in enumerate(corners_R4):
        if not kept or box_iou(box_4, corners_R4[kept]).max() <= most:
            kept.append(row)
    return kept
