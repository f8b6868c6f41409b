"""COCO files: one strict reader, one writer.

`OD_labels.json` inside a recording has the state's class as category, as in IndustReal. `annotations.json` beside
single images, as `stormpsr synth states` writes it or an annotation tool exports it, has categories with names: a
category is a state of the procedure by its name, and a name that is not a state's is refused: ids mean something else
in every program. An annotation may carry the state of
every component (`"state": [1, 0, -1, ...]`), which tells which part is wrong in an image of the error class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from stormpsr.data.boxes import Box, LabelledBox
from stormpsr.data.labels import parse_frame
from stormpsr.errors import InputError, errors_at
from stormpsr.files import read_json, write_json
from stormpsr.procedure.model import Procedure, StateBits, StateKind
from stormpsr.yaml_loader import Document, validate

COCO_FILE = "OD_labels.json"
ANNOTATIONS_FILE = "annotations.json"
UNLISTED = "unlisted"  # name of the category of states that no detector knows

Word = Annotated[str, Field(min_length=1)]
Size = Annotated[int, Field(ge=1, le=1_000_000)]
Pixel = Annotated[float, Field(gt=-1e9, lt=1e9)]


@dataclass(frozen=True, slots=True)
class CocoImage:
    """An image of a COCO file; tools may leave its size out."""

    id: int
    file_name: Word
    width: Size | None = None
    height: Size | None = None


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
@dataclass(frozen=True, slots=True)
class _Annotation:
    image_id: int
    category_id: int
    bbox: tuple[Pixel, Pixel, Pixel, Pixel]
    state: list[int] | None = None


@dataclass(frozen=True, slots=True)
class _Category:
    id: int
    name: Word


@dataclass(frozen=True, slots=True)
class _File:
    """What is read of a COCO file; whatever else it says is for others."""

    images: list[CocoImage]
    annotations: list[_Annotation]
    categories: list[_Category] = field(default_factory=list)


def read_coco(path: str | Path) -> Coco:
    """A COCO file, every entry checked. 'categories' may be missing, and so may the sizes of images."""
    content = read_json(path)
    try:
        file = validate(_File, Document(content), strict=True)
    except InputError as error:
        cure = "an image has id and file_name, an annotation image_id, category_id and bbox: [x, y, width, height]"
        raise InputError(f"this is not a COCO file: {error.problem}", path=path, cure=cure) from None
    # on Windows tools write `images\a.jpg`
    listed = [replace(image, file_name=image.file_name.replace("\\", "/")) for image in file.images]
    images: dict[int, CocoImage] = {}
    for number, image in enumerate(listed, start=1):
        if images.setdefault(image.id, image) is not image:
            raise InputError(f"images #{number}: id {image.id} is there twice", path=path, cure="number images anew")
    boxes = []
    for number, entry in enumerate(file.annotations, start=1):
        where = f"annotations #{number}"
        if entry.image_id not in images:
            raise InputError(f"{where}: image {entry.image_id} is not listed", path=path, cure="add it to 'images'")
        box = Box.from_xywh(*entry.bbox)
        if not (box.width > 0 and box.height > 0 and box.x1 > 0 and box.y1 > 0):
            cure = "x and y are the upper left corner in pixels, width and height are more than 0"
            problem = f"{where}: a box outside the image or without size: {list(entry.bbox)}"
            raise InputError(problem, path=path, cure=cure)
        boxes.append(CocoBox(images[entry.image_id], entry.category_id, box, entry.state, where))
    return Coco(listed, boxes, {category.id: category.name for category in file.categories})


# ---------------------------------------------------------------------- states
def read_coco_boxes(path: str | Path, procedure: Procedure) -> list[LabelledBox]:
    """The boxes of an `OD_labels.json`, by frame. Category ids are the procedure's state classes."""
    coco = read_coco(path)
    frame_of: dict[int, int] = {}
    for number, image in enumerate(coco.images, start=1):
        with errors_at(path, about=f"images #{number}"):
            frame_of[image.id] = parse_frame(image.file_name)
    for box in coco.boxes:
        if not 0 <= box.category_id < len(procedure.states):
            cure = f"the classes of {procedure.name!r} are 0 to {len(procedure.states) - 1}"
            raise InputError(f"{box.where}: category {box.category_id} is not a state class", path=path, cure=cure)
    boxes = [LabelledBox(frame_of[box.image.id], box.box, box.category_id) for box in coco.boxes]
    return sorted(boxes, key=lambda box: box.frame)


def class_of_category(coco: Coco, procedure: Procedure, path: Path) -> dict[int, int | None]:
    """Category id -> state class, None for `unlisted` ones. Tools renumber categories, so names count, not ids."""
    by_name = {state.name: state.state_class for state in procedure.states if state.kind is not StateKind.BACKGROUND}
    listed = {number: name for number, name in coco.categories.items() if name != UNLISTED}
    found: dict[int, int | None] = {number: None for number, name in coco.categories.items() if name == UNLISTED}
    used = {box.category_id for box in coco.boxes}
    for number, name in listed.items():
        if number in used and name not in by_name:
            named = f"the states of {procedure.name!r} are called {', '.join(list(by_name)[:3])}, ..."
            cure = f"{named}; 'stormpsr data renders --ids' says what ids of another program mean"
            raise InputError(f"category {name!r} is not a state", path=path, cure=cure)
    return found | {number: by_name[name] for number, name in listed.items() if name in by_name}


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
