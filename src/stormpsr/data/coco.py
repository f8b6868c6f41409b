"""COCO files: one strict reader, one writer.

`OD_labels.json` inside a recording has the state's class as category, as in IndustReal. `annotations.json` beside
single images, as `stormpsr synth states` writes it or an annotation tool exports it, has categories with names: a
category is a state of the procedure by its name if all names fit, else by its id. An annotation may carry the state of
every component (`"state": [1, 0, -1, ...]`), which tells which part is wrong in an image of the error class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stormpsr.data.boxes import Box, LabelledBox
from stormpsr.data.labels import parse_frame
from stormpsr.errors import InputError, errors_at
from stormpsr.files import read_json, write_json
from stormpsr.procedure.model import Procedure, StateBits, StateKind

COCO_FILE = "OD_labels.json"
ANNOTATIONS_FILE = "annotations.json"
UNLISTED = "unlisted"  # name of the category of states that no detector knows


@dataclass(frozen=True, slots=True)
class CocoImage:
    """An image of a COCO file; tools may leave its size out."""

    id: int
    file_name: str
    width: int | None = None
    height: int | None = None


@dataclass(frozen=True, slots=True)
class CocoBox:
    """An annotation of a COCO file."""

    image: CocoImage
    category_id: int
    box: Box
    state: Sequence[int] | None = None  # of every component
    where: str = ""  # what complaints call it


@dataclass(frozen=True)
class Coco:
    """What a COCO file says of images and boxes."""

    images: list[CocoImage] = field(default_factory=list)
    boxes: list[CocoBox] = field(default_factory=list)
    categories: Mapping[int, str] = field(default_factory=dict)  # names by id

    def to_dict(self, digits: int | None = 2) -> dict[str, Any]:
        """As COCO has it; boxes in pixels are rounded to so many digits."""
        annotations = []
        for number, box in enumerate(self.boxes, start=1):
            sides = [side if digits is None else round(side, digits) for side in box.box.to_xywh()]
            area = box.box.width * box.box.height
            entry = {"id": number, "image_id": box.image.id, "category_id": box.category_id, "bbox": sides}
            entry |= {"area": area if digits is None else round(area, digits), "iscrowd": 0}
            annotations.append(entry if box.state is None else {**entry, "state": list(box.state)})
        return {
            "images": [
                {"id": image.id, "file_name": image.file_name, "width": image.width, "height": image.height}
                for image in self.images
            ],
            "annotations": annotations,
            "categories": [{"id": number, "name": name} for number, name in self.categories.items()],
        }

    def write(self, path: Path) -> None:
        write_json(path, self.to_dict(), indent=1)


def state_categories(procedure: Procedure, first: int = 0) -> dict[int, str]:
    """The states that have boxes, as categories; `first` is added to their classes."""
    shown = [state for state in procedure.states if state.kind is not StateKind.BACKGROUND]
    return {state.state_class + first: state.name for state in shown}


# ---------------------------------------------------------------------- reading
def read_coco(path: str | Path) -> Coco:
    """A COCO file, every entry checked. 'categories' may be missing, and so may the sizes of images."""
    content = read_json(path)
    lists = [content.get(key) if isinstance(content, dict) else None for key in ("images", "annotations")]
    named = content.get("categories", []) if isinstance(content, dict) else []
    if not all(isinstance(entries, list) for entries in (*lists, named)):
        raise InputError("this is not a COCO file", path=path, cure="it needs the lists 'images' and 'annotations'")
    images: dict[int, CocoImage] = {}
    for entry in _entries(lists[0], "image", path):
        image = CocoImage(entry.whole("id"), entry.text("file_name"), entry.size("width"), entry.size("height"))
        if images.setdefault(image.id, image) is not image:
            raise InputError(f"{entry.where}: id {image.id} is there twice", path=path, cure="number images anew")
    categories = {entry.whole("id"): entry.text("name") for entry in _entries(named, "category", path)}
    boxes = []
    for entry in _entries(lists[1], "annotation", path):
        image_id, category_id = entry.whole("image_id"), entry.whole("category_id")
        if image_id not in images:
            raise InputError(f"{entry.where}: image {image_id} is not listed", path=path, cure="add it to 'images'")
        boxes.append(CocoBox(images[image_id], category_id, entry.box(), entry.state(), entry.where))
    return Coco(list(images.values()), boxes, categories)


@dataclass(frozen=True, slots=True)
class _Entry:
    """An object in one of the lists. JSON has no lines to name, so its place does."""

    record: Any
    where: str
    path: str | Path

    def value(self, key: str) -> Any:
        if not isinstance(self.record, dict) or key not in self.record:
            cure = "see the COCO format for object detection"
            raise InputError(f"{self.where} has no {key!r}", path=self.path, cure=cure)
        return self.record[key]

    def whole(self, key: str) -> int:
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(f"{self.where}: {key} is {value!r}, not a whole number", path=self.path)
        return value

    def size(self, key: str) -> int | None:
        if self.record.get(key) is None:
            return None
        pixels = self.whole(key)
        if pixels < 1:
            raise InputError(f"{self.where}: {key} is {pixels}", path=self.path, cure="write the image's pixels")
        return pixels

    def text(self, key: str) -> str:
        value = self.value(key)
        if not isinstance(value, str) or not value:
            raise InputError(f"{self.where}: {key} is {value!r}, not a text", path=self.path)
        return value

    def box(self) -> Box:
        sides = self.value("bbox")
        if not (isinstance(sides, list) and len(sides) == 4 and all(_is_finite(side) for side in sides)):
            cure = "write four numbers: x, y, width, height"
            raise InputError(f"{self.where}: bbox is {sides!r}", path=self.path, cure=cure)
        x, y, width, height = (float(side) for side in sides)
        if not (width > 0 and height > 0 and x + width > 0 and y + height > 0):
            cure = "x and y are the upper left corner in pixels, width and height are more than 0"
            raise InputError(
                f"{self.where}: a box outside the image or without size: {sides}", path=self.path, cure=cure
            )
        return Box.from_xywh(x, y, width, height)

    def state(self) -> Sequence[int] | None:
        bits = self.record.get("state")
        if bits is not None and not (isinstance(bits, list) and all(type(bit) is int for bit in bits)):
            cure = "write a number for each component: 1, 0 or -1"
            raise InputError(f"{self.where}: state is {bits!r}", path=self.path, cure=cure)
        return bits


def _entries(records: Any, what: str, path: str | Path) -> Iterable[_Entry]:
    return (_Entry(record, f"{what} {number} (counted from 0)", path) for number, record in enumerate(records))


def _is_finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e9 and math.isfinite(value)


# ---------------------------------------------------------------------- states
def read_coco_boxes(path: str | Path, procedure: Procedure) -> list[LabelledBox]:
    """The boxes of an `OD_labels.json`, by frame. Category ids are the procedure's state classes."""
    coco = read_coco(path)
    frame_of: dict[int, int] = {}
    for number, image in enumerate(coco.images):
        with errors_at(path, about=f"image {number} (counted from 0)"):
            frame_of[image.id] = parse_frame(image.file_name)
    for box in coco.boxes:
        if not 0 <= box.category_id < len(procedure.states):
            cure = f"the classes of {procedure.name!r} are 0 to {len(procedure.states) - 1}"
            raise InputError(f"{box.where}: category {box.category_id} is not a state class", path=path, cure=cure)
    boxes = [LabelledBox(frame_of[box.image.id], box.box, box.category_id) for box in coco.boxes]
    return sorted(boxes, key=lambda box: box.frame)


def class_of_category(coco: Coco, procedure: Procedure, path: Path) -> dict[int, int | None]:
    """Category id -> state class, None for `unlisted` ones. Tools renumber categories, so names go before ids."""
    by_name = {state.name: state.state_class for state in procedure.states if state.kind is not StateKind.BACKGROUND}
    listed = {number: name for number, name in coco.categories.items() if name != UNLISTED}
    found: dict[int, int | None] = {number: None for number, name in coco.categories.items() if name == UNLISTED}
    if all(name in by_name for name in listed.values()):
        return found | {number: by_name[name] for number, name in listed.items()}
    known = set(by_name.values())
    used = {box.category_id for box in coco.boxes}
    for number, name in listed.items():
        if number in used and number not in known:
            cure = f"the states of {procedure.name!r} are called {', '.join(list(by_name)[:3])}, ..."
            raise InputError(f"category {name!r} is not a state", path=path, cure=cure)
    return found | {number: number for number in listed if number in known}


@dataclass(frozen=True, slots=True)
class StateImage:
    """A single image of a known state."""

    number: int
    file: Path
    width: int
    height: int
    box: Box
    state_class: int | None  # None for a state that no detector knows
    bits: StateBits | None  # None where nobody says which part is wrong


def read_state_images(path: Path, procedure: Procedure) -> list[StateImage]:
    """The boxes of a COCO file beside whose images it lies, or which names them from there."""
    coco = read_coco(path)
    classes = class_of_category(coco, procedure, path)
    found = []
    for box in coco.boxes:
        if box.category_id not in classes:
            raise InputError(f"{box.where}: category {box.category_id} is not listed", path=path)
        width, height = box.image.width, box.image.height
        if width is None or height is None:
            raise InputError(f"{box.where}: its image has no 'width' or no 'height'", path=path)
        state_class = classes[box.category_id]
        bits = None if state_class is None else procedure.states[state_class].bits
        with errors_at(path, about=box.where):
            bits = bits if box.state is None else procedure.check_bits(box.state)
            inside = box.box.inside(width, height)
        file = path.parent / box.image.file_name
        found.append(StateImage(box.image.id, file, width, height, inside, state_class, bits))
    return found
