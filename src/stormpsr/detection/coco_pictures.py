"""Single pictures with boxes from a COCO file: rendered states, or what an annotation tool has exported.

A category is a state of the procedure by its name if the names fit, else by its id. An annotation may carry the state
of every component (`"state": [1, 0, -1, ...]`), which tells which part is wrong in a picture of the error class.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stormpsr.detection.frames import AnnotatedFrame, StateBox
from stormpsr.errors import InputError
from stormpsr.procedure import Procedure, StateBits, StateKind
from stormpsr.synthetic.states import UNLISTED

__all__ = ["ANNOTATIONS_FILE", "class_of_category", "only_listed", "read_coco", "read_pictures"]

ANNOTATIONS_FILE = "annotations.json"


def read_pictures(folder: Path, procedure: Procedure) -> list[AnnotatedFrame]:
    """The pictures of a folder with `annotations.json`, as `stormpsr synth states` writes it.

    Hands may cover parts of them: they teach what states look like, not whether one can be read.
    """
    path = folder / ANNOTATIONS_FILE
    content = only_listed(read_coco(path))
    categories = class_of_category(content, procedure, path)
    images = {image["id"]: image for image in content["images"]}
    pictures: list[AnnotatedFrame] = []
    for number, annotation in enumerate(content["annotations"]):
        where = f"annotation {number} (counted from 0)"
        image = images.get(annotation["image_id"])
        if image is None:
            raise InputError(f"{where}: image {annotation['image_id']} is not listed", path=path)
        if annotation["category_id"] not in categories:
            raise InputError(f"{where}: category {annotation['category_id']} is not listed", path=path)
        state_class = categories[annotation["category_id"]]
        box = _box(annotation, image, state_class, procedure, f"{path} {where}")
        file = folder / image["file_name"]
        if not file.is_file():
            raise InputError(f"{where}: there is no image {image['file_name']!r}", path=path)
        pictures.append(AnnotatedFrame(folder.name, int(image["id"]), file, box, maybe_hidden=True))
    if not pictures:
        raise InputError("there are no annotations in it", path=path)
    return pictures


def only_listed(content: dict[str, Any]) -> dict[str, Any]:
    """Without the pictures of states that have no class: a detector cannot be taught them."""
    unlisted = {category["id"] for category in content["categories"] if category["name"] == UNLISTED}
    kept = [annotation for annotation in content["annotations"] if annotation["category_id"] not in unlisted]
    categories = [category for category in content["categories"] if category["id"] not in unlisted]
    return {**content, "annotations": kept, "categories": categories}


def read_coco(path: Path) -> dict[str, Any]:
    """A COCO file with the three lists, each entry an object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot be read: {(error.strerror or str(error)).lower()}", path=path) from error
    except ValueError as error:
        raise InputError(f"this is not JSON ({error})", path=path) from error
    needed = {
        "images": ("id", "file_name", "width", "height"),
        "annotations": ("image_id", "category_id", "bbox"),
        "categories": ("id", "name"),
    }
    for name, keys in needed.items():
        rows = content.get(name) if isinstance(content, dict) else None
        if not isinstance(rows, list):
            raise InputError(f"this is not a COCO file: it has no list {name!r}", path=path)
        for number, row in enumerate(rows):
            missing = [key for key in keys if not isinstance(row, dict) or key not in row]
            if missing:
                raise InputError(f"{name} {number} (counted from 0) has no {missing[0]!r}", path=path)
    return dict(content)


def class_of_category(content: Mapping[str, Any], procedure: Procedure, path: Path) -> dict[Any, int]:
    """Category id -> state class. Tools renumber categories, so names go before ids."""
    by_name = {state.name: state.state_class for state in procedure.states if state.kind is not StateKind.BACKGROUND}
    categories = content["categories"]
    if all(category["name"] in by_name for category in categories):
        return {category["id"]: by_name[category["name"]] for category in categories}
    used = {annotation["category_id"] for annotation in content["annotations"]}
    known = set(by_name.values())
    for category in categories:
        if category["id"] in used and category["id"] not in known:
            cure = f"the states of {procedure.name!r} are called {', '.join(list(by_name)[:3])}, ..."
            raise InputError(f"category {category['name']!r} is not a state", path=path, cure=cure)
    return {category["id"]: category["id"] for category in categories if category["id"] in known}


def _box(
    annotation: Mapping[str, Any], image: Mapping[str, Any], state_class: int, procedure: Procedure, where: str
) -> StateBox:
    state: StateBits | None = procedure.states[state_class].bits
    try:
        if "state" in annotation:
            state = procedure.check_bits(annotation["state"])
        x, y, width, height = (float(side) for side in annotation["bbox"])
        left, top = max(x, 0.0), max(y, 0.0)
        right, bottom = min(x + width, image["width"]), min(y + height, image["height"])
        across, down = image["width"], image["height"]
        return StateBox(left / across, top / down, (right - left) / across, (bottom - top) / down, state_class, state)
    except InputError as error:
        raise InputError(f"{where}: {error.problem}", cure=error.cure) from None
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"{where}: not a box in an image ({error})") from None
