"""Single images with boxes from a COCO file: rendered states, or what an annotation tool has exported.

A category is a state of the procedure by its name if the names fit, else by its id. An annotation may carry the state
of every component (`"state": [1, 0, -1, ...]`), which tells which part is wrong in an image of the error class.

Boxes in the layouts that annotation tools and trainers speak: COCO and YOLO, out and back in.

COCO:  OUT/annotations/<split>.json, OUT/images/<split>/<recording>_<frame>.jpg
YOLO:  OUT/data.yaml, OUT/images/<split>/<recording>_<frame>.jpg, OUT/labels/<split>/<recording>_<frame>.txt

Frames without a readable state may go along as images without boxes. Coming back, boxes are written as
`OD_labels.json` into each recording's folder, where everything else here reads them.
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from stormpsr.data.annotated_frames import AnnotatedFrame, FrameSet, StateBox
from stormpsr.data.boxes import COCO_FILE
from stormpsr.data.images import image_size
from stormpsr.data.labels import frame_name
from stormpsr.errors import InputError
from stormpsr.files import read_json, replacing_folder, write_json
from stormpsr.procedure.model import Procedure, StateBits, StateKind

ANNOTATIONS_FILE = "annotations.json"

UNLISTED = "unlisted"  # name of the category of states that no detector knows


def read_images(folder: Path, procedure: Procedure) -> list[AnnotatedFrame]:
    """The images of a folder with `annotations.json`, as `stormpsr synth states` writes it.

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
    """Without the images of states that have no class: a detector cannot be taught them."""
    unlisted = {category["id"] for category in content["categories"] if category["name"] == UNLISTED}
    kept = [annotation for annotation in content["annotations"] if annotation["category_id"] not in unlisted]
    categories = [category for category in content["categories"] if category["id"] not in unlisted]
    return {**content, "annotations": kept, "categories": categories}


def read_coco(path: Path) -> dict[str, Any]:
    """A COCO file with the three lists, each entry an object."""
    content = read_json(path)
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


BoxFormat = Literal["coco", "yolo"]


@dataclass(frozen=True, slots=True)
class ImportedBox:
    """A box that came back: which frame of which recording, in pixels, with its class."""

    recording: str
    frame: int
    box: tuple[float, float, float, float]
    state_class: int
    image_width: int
    image_height: int


# ---------------------------------------------------------------------- out
def export_boxes(
    out: Path,
    splits: Mapping[str, FrameSet],
    box_format: BoxFormat,
    *,
    negative_ratio: float = 0.0,
    copy: bool = False,
) -> dict[str, dict[str, int]]:
    """Write data sets, by split; images are linked unless copies are wanted. Returns counts per split."""
    if box_format not in get_args(BoxFormat):
        raise InputError(f"unknown format {box_format!r}", cure=f"choose one of: {', '.join(get_args(BoxFormat))}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("the output is there already", path=out, cure="choose another folder, or delete it")
    counts: dict[str, dict[str, int]] = {}
    with replacing_folder(out) as draft:
        for split, frames in splits.items():
            others = chosen_negatives(frames, negative_ratio)
            chosen = [*frames.readable, *others, *frames.images]
            _place_images(draft / "images" / split, chosen, copy)
            write = _write_coco if box_format == "coco" else _write_yolo
            write(draft, split, chosen, frames.procedure)
            n_boxes = len(frames.readable) + len(frames.images)
            counts[split] = {"images": len(chosen), "boxes": n_boxes, "without_box": len(others)}
        if box_format == "yolo":
            _write_yolo_names(draft, out, list(splits), next(iter(splits.values())).procedure)
    return counts


def chosen_negatives(frames: FrameSet, ratio: float) -> list[AnnotatedFrame]:
    """Frames without a state, evenly spread, so many for each frame with one."""
    if not ratio >= 0:
        raise InputError(f"the ratio of frames without a state is {ratio}", cure="it must not be negative")
    wanted = min(round(ratio * len(frames.readable)), len(frames.unreadable))
    if not wanted:
        return []
    step = len(frames.unreadable) / wanted
    return [frames.unreadable[int(k * step)] for k in range(wanted)]


def _exchange_name(frame: AnnotatedFrame) -> str:
    return f"{frame.recording}_{frame_name(frame.frame, extension=frame.image.suffix.lower())}"


def _place_images(folder: Path, frames: Sequence[AnnotatedFrame], copy: bool) -> None:
    folder.mkdir(parents=True)
    for frame in frames:
        target = folder / _exchange_name(frame)
        if target.exists() or target.is_symlink():
            raise InputError(f"two images would be called {target.name!r}", cure="recordings need different names")
        if copy:
            shutil.copyfile(frame.image, target)
        else:
            target.symlink_to(frame.image.resolve())


def _sizes(frames: Iterable[AnnotatedFrame]) -> dict[str, tuple[int, int]]:
    """Image size by recording: all frames of one have the same."""
    sizes: dict[str, tuple[int, int]] = {}
    for frame in frames:
        if frame.recording not in sizes:
            sizes[frame.recording] = image_size(frame.image)
    return sizes


def _write_coco(out: Path, split: str, frames: Sequence[AnnotatedFrame], procedure: Procedure) -> None:
    sizes = _sizes(frames)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, frame in enumerate(frames, start=1):
        width, height = sizes[frame.recording]
        images.append({"id": number, "file_name": _exchange_name(frame), "width": width, "height": height})
        if frame.box is not None:
            annotations.append(_coco_annotation(len(annotations) + 1, number, frame.box, width, height))
    content = {"images": images, "annotations": annotations, "categories": _categories(procedure)}
    folder = out / "annotations"
    folder.mkdir(exist_ok=True)
    write_json(folder / f"{split}.json", content, indent=None)


def _coco_annotation(number: int, image: int, box: StateBox, width: int, height: int) -> dict[str, Any]:
    left, top, across, down = (
        round(value, 2) for value in (box.left * width, box.top * height, box.width * width, box.height * height)
    )
    entry = {"id": number, "image_id": image, "category_id": box.state_class, "bbox": [left, top, across, down]}
    entry |= {"area": round(across * down, 2), "iscrowd": 0}
    return entry if box.bits is None else {**entry, "state": list(box.bits)}


def _categories(procedure: Procedure) -> list[dict[str, Any]]:
    shown = [state for state in procedure.states if state.kind is not StateKind.BACKGROUND]
    return [{"id": state.state_class, "name": state.name} for state in shown]


def _write_yolo(out: Path, split: str, frames: Sequence[AnnotatedFrame], procedure: Procedure) -> None:
    folder = out / "labels" / split
    folder.mkdir(parents=True)
    for frame in frames:
        box = frame.box
        if box is None:
            continue  # an image without a label file is background
        middle = (box.left + box.width / 2, box.top + box.height / 2, box.width, box.height)
        row = f"{box.state_class} " + " ".join(f"{value:.6f}" for value in middle)
        (folder / _exchange_name(frame)).with_suffix(".txt").write_text(row + "\n", encoding="utf-8")


def _write_yolo_names(draft: Path, out: Path, splits: list[str], procedure: Procedure) -> None:
    """`data.yaml`. Class numbers are the procedure's, so that class 0 exists although it is never used."""
    names = {state.state_class: state.name for state in procedure.states}
    content: dict[str, Any] = {"path": str(out.resolve()), **{split: f"images/{split}" for split in splits}}
    content.setdefault("val", content.get("train", f"images/{splits[0]}"))
    text = yaml.safe_dump({**content, "names": names}, sort_keys=False)
    (draft / "data.yaml").write_text(text, encoding="utf-8")


# ---------------------------------------------------------------------- back in
def read_exchange(folder: Path, procedure: Procedure) -> list[ImportedBox]:
    """The boxes of an exported data set, whichever of the two formats it has."""
    if (folder / "data.yaml").is_file():
        return _read_yolo(folder, procedure)
    files = sorted((folder / "annotations").glob("*.json")) or sorted(folder.glob("*.json"))
    if not files:
        cure = "a COCO set has annotations/*.json, a YOLO set has data.yaml"
        raise InputError("there are no boxes here", path=folder, cure=cure)
    return [box for path in files for box in _read_coco_file(path, procedure)]


def _read_coco_file(path: Path, procedure: Procedure) -> list[ImportedBox]:
    content = read_coco(path)
    classes = class_of_category(content, procedure, path)
    images = {image["id"]: image for image in content["images"]}
    found: list[ImportedBox] = []
    for number, annotation in enumerate(content["annotations"]):
        where = f"annotation {number} (counted from 0)"
        image = images.get(annotation["image_id"])
        if image is None or annotation["category_id"] not in classes:
            raise InputError(f"{where}: its image or its category is not listed", path=path)
        recording, frame = _parse_exchange_name(str(image["file_name"]), path)
        try:
            x, y, width, height = (float(side) for side in annotation["bbox"])
        except (TypeError, ValueError):
            raise InputError(f"{where}: bbox is {annotation['bbox']!r}", path=path) from None
        size = (int(image["width"]), int(image["height"]))
        box = _checked((x, y, width, height), size, path, where)
        found.append(ImportedBox(recording, frame, box, classes[annotation["category_id"]], *size))
    return found


def _read_yolo(folder: Path, procedure: Procedure) -> list[ImportedBox]:
    class_of = _yolo_classes(folder / "data.yaml", procedure)
    images = {path.stem: path for path in sorted((folder / "images").rglob("*")) if path.is_file()}
    sizes: dict[str, tuple[int, int]] = {}
    found: list[ImportedBox] = []
    for path in sorted((folder / "labels").rglob("*.txt")):
        recording, frame = _parse_exchange_name(path.name, path)
        for line, row in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if not row.strip():
                continue
            try:
                number, x, y, width, height = (float(cell) for cell in row.split())
            except ValueError:
                cure = "a row is: class, centre x, centre y, width, height, as shares of the image"
                raise InputError(f"this is not a box: {row!r}", path=path, line=line, cure=cure) from None
            if int(number) not in class_of:
                raise InputError(f"class {int(number)} is not in data.yaml", path=path, line=line)
            if path.stem not in images:
                raise InputError("there is no image for this label file", path=path)
            if recording not in sizes:
                sizes[recording] = image_size(images[path.stem])
            across, down = sizes[recording]
            box = ((x - width / 2) * across, (y - height / 2) * down, width * across, height * down)
            checked = _checked(box, (across, down), path, f"line {line}")
            found.append(ImportedBox(recording, frame, checked, class_of[int(number)], across, down))
    return found


def _yolo_classes(path: Path, procedure: Procedure) -> dict[int, int]:
    """Class number -> state class, by name."""
    try:
        names = yaml.safe_load(path.read_text(encoding="utf-8"))["names"]
        listed = dict(enumerate(names)) if isinstance(names, list) else {int(k): str(v) for k, v in names.items()}
    except (yaml.YAMLError, TypeError, KeyError, ValueError, AttributeError) as error:
        raise InputError(f"this is not a YOLO description ({error})", path=path, cure="it needs 'names'") from None
    by_name = {state.name: state.state_class for state in procedure.states}
    for name in listed.values():
        if name not in by_name:
            cure = f"the states of {procedure.name!r} are called {', '.join(list(by_name)[:3])}, ..."
            raise InputError(f"class {name!r} is not a state", path=path, cure=cure)
    return {number: by_name[name] for number, name in listed.items()}


def _parse_exchange_name(name: str, path: Path) -> tuple[str, int]:
    """Recording and frame of `<recording>_<frame>.jpg`; tools may put something before or after, such as a hash."""
    stem = Path(name).name.split(".")[0]
    match = re.fullmatch(r"(.+)_(\d{4,9})(?:_jpg|_png)?", stem)
    if match is None:
        cure = "images are called RECORDING_FRAME.jpg, as the export calls them"
        raise InputError(f"{name!r} names no recording and frame", path=path, cure=cure)
    return match[1], int(match[2])


def _checked(
    box: tuple[float, float, float, float], size: tuple[int, int], path: Path, where: str
) -> tuple[float, float, float, float]:
    x, y, width, height = box
    left, top = max(x, 0.0), max(y, 0.0)
    right, bottom = min(x + width, size[0]), min(y + height, size[1])
    if not (width > 0 and height > 0 and (right - left) * (bottom - top) > 0.5 * width * height and right > left):
        cure = f"the image has {size[0]} x {size[1]} pixels"
        raise InputError(f"{where}: a box outside the image or without size: {box}", path=path, cure=cure)
    return left, top, right - left, bottom - top


def write_recording_boxes(
    boxes: Sequence[ImportedBox], folders: Mapping[str, Path], procedure: Procedure, *, replace: bool = False
) -> dict[str, int]:
    """Write `OD_labels.json` into the recordings; boxes per recording. All is checked before anything is written."""
    by_recording: dict[str, list[ImportedBox]] = defaultdict(list)
    for box in boxes:
        by_recording[box.recording].append(box)
    for name in by_recording:
        if name not in folders:
            cure = f"recordings here are: {', '.join(sorted(folders)[:5])}"
            raise InputError(f"there is no recording {name!r}", cure=cure)
        if not replace and (folders[name] / COCO_FILE).exists():
            raise InputError("boxes are there already", path=folders[name] / COCO_FILE, cure="allow replacing them")
    for name, found in by_recording.items():
        content = _recording_coco(sorted(found, key=lambda box: box.frame), procedure)
        write_json(folders[name] / COCO_FILE, content, indent=1)
    return {name: len(found) for name, found in by_recording.items()}


def _recording_coco(boxes: Sequence[ImportedBox], procedure: Procedure) -> dict[str, Any]:
    images = {
        box.frame: {
            "id": box.frame,
            "file_name": frame_name(box.frame),
            "width": box.image_width,
            "height": box.image_height,
        }
        for box in boxes
    }
    annotations = [
        {
            "id": number,
            "image_id": box.frame,
            "category_id": box.state_class,
            "bbox": [round(side, 2) for side in box.box],
            "area": round(box.box[2] * box.box[3], 2),
            "iscrowd": 0,
        }
        for number, box in enumerate(boxes, start=1)
    ]
    return {"images": list(images.values()), "annotations": annotations, "categories": _categories(procedure)}
