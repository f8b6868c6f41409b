"""Boxes: one kind, corners in pixels, whatever a file or a network writes; and how far boxes overlap.

MECCANO's annotated boxes are read here: `<recording>_GT.csv`, rows of `frame, flag, track, x, y, w, h` with a
normalised centre box and no class (the class is the labelled state of the frame). COCO is read in `coco`.

Shape legend: R boxes, 4 corners (x0, y0, x1, y1).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.labels import OnNote, StateTimeline, parse_frame, parse_number, read_rows
from stormpsr.errors import InputError, errors_at
from stormpsr.procedure.model import Procedure

CENTRE_BOXES_SUFFIX = "_GT.csv"
_LEAST_INSIDE = 0.5  # share of a box's area; published boxes reach up to a seventh of the image beyond its border


@dataclass(frozen=True, slots=True)
class Box:
    """Left, top, right and bottom in pixels; in shares of the image where nobody knows its size."""

    x0: float
    y0: float
    x1: float
    y1: float

    @classmethod
    def from_xywh(cls, x: float, y: float, width: float, height: float) -> Box:
        """From the upper left corner, as COCO and our files of detections write it."""
        return cls(x, y, x + width, y + height)

    @classmethod
    def from_centre(
        cls, x: float, y: float, width: float, height: float, image_width: int = 1, image_height: int = 1
    ) -> Box:
        """From centre and size in shares of the image, as YOLO and MECCANO write it."""
        left, top = (x - width / 2) * image_width, (y - height / 2) * image_height
        return cls.from_xywh(left, top, width * image_width, height * image_height)

    @property
    def width(self) -> float:
        return self.x1 - self.x0

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def centre(self) -> tuple[float, float]:
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2

    @property
    def corners(self) -> tuple[float, float, float, float]:
        return self.x0, self.y0, self.x1, self.y1

    def to_xywh(self) -> tuple[float, float, float, float]:
        return self.x0, self.y0, self.width, self.height

    def iou(self, other: Box) -> float:
        return float(box_iou(np.array(self.corners), np.array([other.corners]))[0])

    def inside(self, image_width: float, image_height: float) -> Box:
        """The box cut at the border of its image; refused if hardly any of it is inside."""
        x0, y0 = max(self.x0, 0.0), max(self.y0, 0.0)
        x1, y1 = min(self.x1, float(image_width)), min(self.y1, float(image_height))
        area = max(x1 - x0, 0.0) * max(y1 - y0, 0.0)
        if not (self.width > 0 and self.height > 0 and area > 0 and area >= _LEAST_INSIDE * self.width * self.height):
            cure = f"the image has {image_width:g} x {image_height:g} pixels"
            raise InputError(f"a box outside the image or without size: {self.to_xywh()}", cure=cure)
        return Box(x0, y0, x1, y1)


@dataclass(frozen=True, slots=True)
class LabelledBox:
    """The box of a frame in which a person could read the state. `state_class` is None where the file names none."""

    frame: int
    box: Box
    state_class: int | None = None

    def class_in(self, timeline: StateTimeline, procedure: Procedure) -> int | None:
        """Its own class, or that of the labelled state of its frame; None where that state has none."""
        return self.state_class if self.state_class is not None else procedure.state_class(timeline.at(self.frame))


def read_centre_boxes(
    path: str | Path, image_width: int = 1, image_height: int = 1, *, on_note: OnNote | None = None
) -> list[LabelledBox]:
    """The boxes of a MECCANO `_GT.csv`, by frame; in shares of the image if its size is not given."""
    boxes: list[LabelledBox] = []
    for line, row in read_rows(path, on_note):
        if len(row) != 7:
            columns = "1 column" if len(row) == 1 else f"{len(row)} columns"
            named = "the columns are: frame, flag, track, x, y, w, h"
            raise InputError(f"a row with {columns}", path=path, line=line, cure=named)
        with errors_at(path, line):
            x, y, width, height = (parse_number(cell, what) for what, cell in zip("xywh", row[3:], strict=True))
            if not (0 <= x <= 1 and 0 <= y <= 1 and 0 < width <= 1 and 0 < height <= 1):
                cure = "x, y, w, h are shares of the image's width and height"
                raise InputError(f"a box outside the image or without size: {', '.join(row[3:])}", cure=cure)
            box = Box.from_centre(x, y, width, height, image_width, image_height)
            boxes.append(LabelledBox(parse_frame(row[0]), box))
    return sorted(boxes, key=lambda box: box.frame)


def centre_boxes_file(folder: Path, recording: str, split: str | None) -> Path | None:
    """The `NAME_GT.csv` of a recording somewhere below a folder, of the recording's own split if there are several."""
    if not folder.is_dir():
        raise InputError("there is no such folder", path=folder, cure="give the folder that holds NAME_GT.csv")
    name = f"{recording}{CENTRE_BOXES_SUFFIX}"
    found = sorted(path for path in folder.rglob(f"*{CENTRE_BOXES_SUFFIX}") if path.name == name)
    chosen = [path for path in found if path.parent.name.lower() == split] or found
    if len(chosen) > 1:
        listed = ", ".join(str(path.relative_to(folder)) for path in chosen)
        raise InputError(f"several files for recording {recording!r}: {listed}", path=folder)
    return chosen[0] if chosen else None


# ---------------------------------------------------------------------- overlap
def box_iou(one_4: NDArray[np.floating], others_R4: NDArray[np.floating]) -> NDArray[np.float64]:
    """Intersection over union of a box with each of others."""
    low = np.maximum(one_4[:2], others_R4[:, :2])
    high = np.minimum(one_4[2:], others_R4[:, 2:])
    common = np.prod(np.clip(high - low, 0, None), axis=1)
    own = np.prod(one_4[2:] - one_4[:2])
    theirs = np.prod(others_R4[:, 2:] - others_R4[:, :2], axis=1)
    return np.asarray(common / np.maximum(own + theirs - common, 1e-12), dtype=np.float64)


def nms(corners_R4: NDArray[np.floating], most: float = 0.5) -> list[int]:
    """Rows of the boxes to keep: the first, and each that overlaps no kept one by more than `most`."""
    kept: list[int] = []
    for row, box_4 in enumerate(corners_R4):
        if not kept or box_iou(box_4, corners_R4[kept]).max() <= most:
            kept.append(row)
    return kept
