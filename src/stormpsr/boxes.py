"""Annotated boxes: frames in which a person could read the state of the whole assembly.

Two layouts are read: MECCANO's `<recording>_GT.csv`, rows of `frame, flag, track, x, y, w, h` with a normalised centre
box and no class (the class is the labelled state of the frame), and `OD_labels.json` inside a recording (COCO, with
the state's class as category), as in IndustReal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stormpsr.errors import InputError
from stormpsr.labels import OnNote, StateTimeline, parse_frame, read_rows
from stormpsr.procedure import Procedure

__all__ = ["Box", "read_centre_boxes", "read_coco_boxes", "state_class_of"]

COCO_FILE = "OD_labels.json"


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
            raise InputError(f"a row with {len(row)} columns", path=path, line=line, cure=cure)
        try:
            x, y, width, height = (float(cell) for cell in row[3:])
        except ValueError as error:
            raise InputError(f"not a number: {error}", path=path, line=line) from None
        if not (0 <= x <= 1 and 0 <= y <= 1 and 0 < width <= 1 and 0 < height <= 1):
            cure = "x, y, w, h are shares of the image's width and height"
            raise InputError(f"a box outside the image: {', '.join(row[3:])}", path=path, line=line, cure=cure)
        boxes.append(Box(parse_frame(row[0], path, line), x, y, width, height))
    return sorted(boxes, key=lambda box: box.frame)


def read_coco_boxes(path: str | Path, procedure: Procedure) -> list[Box]:
    """The boxes of an `OD_labels.json`, by frame. Category ids are the procedure's state classes."""
    try:
        content: Any = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        frame_of = {image["id"]: image["file_name"] for image in content["images"]}
        rows = [(entry["image_id"], entry["category_id"], *entry["bbox"]) for entry in content["annotations"]]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    except json.JSONDecodeError as error:
        raise InputError(f"this is not JSON: {error.msg}", path=path, line=error.lineno) from error
    except (KeyError, TypeError) as error:
        raise InputError(f"this is not a COCO file: {error} is missing or misplaced", path=path) from error
    boxes: list[Box] = []
    for image_id, state_class, x, y, width, height in rows:
        if image_id not in frame_of:
            raise InputError(f"an annotation of image {image_id}, which is not listed", path=path)
        if not 0 <= state_class < len(procedure.states):
            cure = f"the classes of {procedure.name!r} are 0 to {len(procedure.states) - 1}"
            raise InputError(f"category {state_class} is not a state class", path=path, cure=cure)
        boxes.append(Box(parse_frame(frame_of[image_id], path, 1), x, y, width, height, state_class))
    return sorted(boxes, key=lambda box: box.frame)


def state_class_of(box: Box, timeline: StateTimeline, procedure: Procedure) -> int | None:
    """The class of a box: its own, or that of the labelled state of its frame; None where that state has none."""
    return box.state_class if box.state_class is not None else procedure.state_class(timeline.at(box.frame))
