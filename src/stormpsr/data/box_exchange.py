"""Boxes in the layouts that annotation tools and trainers speak, out and back in.

COCO:          OUT/annotations/<split>.json, OUT/images/<split>/<recording>_<frame>.jpg
YOLO:          OUT/data.yaml, OUT/images/<split>/<recording>_<frame>.jpg, OUT/labels/<split>/<recording>_<frame>.txt
CVAT:          OUT/<recording>.xml, and OUT/images/<recording>/<frame>.jpg or OUT/videos/<recording>.mp4
Label Studio:  OUT/tasks.json, OUT/labels.xml (the labelling interface), and images as COCO's or videos as CVAT's

Frames without a readable state may go along as images without boxes, and so may recordings in which nobody has drawn
any yet. Coming back, boxes are written as `OD_labels.json` into each recording's folder, where everything else here
reads them.
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import yaml

from stormpsr.data.annotated_frames import AnnotatedFrame, FrameSet, frames_in
from stormpsr.data.annotation_tools import (
    ToolBox,
    ToolRecording,
    ToolRecordings,
    cvat_text,
    label_studio_config,
    label_studio_task,
    read_cvat,
    read_label_studio,
)
from stormpsr.data.boxes import Box
from stormpsr.data.coco import COCO_FILE, Coco, CocoBox, CocoImage, read_state_images, state_categories
from stormpsr.data.images import image_size, write_image
from stormpsr.data.labels import frame_name
from stormpsr.data.layouts import RecordingFolder
from stormpsr.data.sources import Video, frames_of
from stormpsr.errors import InputError, errors_at
from stormpsr.files import read_json, read_text, replacing_folder, write_json, write_text
from stormpsr.procedure.model import Procedure
from stormpsr.yaml_loader import read_yaml

BoxFormat = Literal["coco", "yolo", "cvat", "label-studio"]


# ---------------------------------------------------------------------- out
def export_boxes(
    out: Path,
    splits: Mapping[str, FrameSet],
    box_format: BoxFormat,
    *,
    negative_ratio: float = 0.0,
    unlabelled: Mapping[str, Sequence[AnnotatedFrame]] = MappingProxyType({}),
    copy: bool = False,
) -> dict[str, dict[str, int]]:
    """Write images and boxes, by split; images are linked unless copies are wanted. Returns counts per split.

    unlabelled: frames of recordings in which nobody has drawn boxes.
    """
    if box_format not in get_args(BoxFormat):
        raise InputError(f"unknown format {box_format!r}", cure=f"choose one of: {', '.join(get_args(BoxFormat))}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("the output is there already", path=out, cure="choose another folder, or delete it")
    if box_format in ("cvat", "label-studio"):
        raise InputError(f"{box_format} takes whole recordings", cure="use export_recordings")
    counts: dict[str, dict[str, int]] = {}
    with replacing_folder(out) as draft:
        for split, frames in splits.items():
            others = [*chosen_negatives(frames, negative_ratio), *unlabelled.get(split, ())]
            chosen = [*frames.readable, *others, *frames.images]
            coco = _placed_images(draft / "images" / split, chosen, frames.procedure, copy)
            if box_format == "coco":
                coco.write(draft / "annotations" / f"{split}.json")
            else:
                _write_yolo(draft / "labels" / split, coco)
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


def _placed_images(folder: Path, frames: Sequence[AnnotatedFrame], procedure: Procedure, copy: bool) -> Coco:
    """Put the images into a folder, and say what is in them. All frames of a recording have the same size."""
    folder.mkdir(parents=True)
    sizes: dict[str, tuple[int, int]] = {}
    coco = Coco(categories=state_categories(procedure))
    for number, frame in enumerate(frames, start=1):
        file = frame.source.file(frame.frame)
        suffix = ".jpg" if file is None else file.suffix.lower()
        target = folder / f"{frame.recording}_{frame_name(frame.frame, extension=suffix)}"
        if target.exists() or target.is_symlink():
            raise InputError(f"two images would be called {target.name!r}", cure="recordings need different names")
        if file is None:
            write_image(target, frame.read())
        elif copy:
            shutil.copyfile(file, target)
        else:
            target.symlink_to(file.resolve())
        if frame.recording not in sizes:
            sizes[frame.recording] = image_size(target)
        coco.images.append(CocoImage(number, target.name, *sizes[frame.recording]))
        if frame.box is not None:
            coco.boxes.append(CocoBox(coco.images[-1], frame.state_class, frame.box, frame.bits))
    return coco


def _write_yolo(folder: Path, coco: Coco) -> None:
    folder.mkdir(parents=True)
    for box in coco.boxes:  # an image without a label file is background
        across, down = box.image.width or 1, box.image.height or 1
        x, y = box.box.centre
        shares = (x / across, y / down, box.box.width / across, box.box.height / down)
        row = f"{box.category_id} " + " ".join(f"{value:.6f}" for value in shares)
        (folder / box.image.file_name).with_suffix(".txt").write_text(row + "\n", encoding="utf-8")


def _write_yolo_names(draft: Path, out: Path, splits: list[str], procedure: Procedure) -> None:
    """`data.yaml`. Class numbers are the procedure's, so that class 0 exists although it is never used."""
    names = {state.state_class: state.name for state in procedure.states}
    content: dict[str, Any] = {"path": str(out.resolve()), **{split: f"images/{split}" for split in splits}}
    content.setdefault("val", content.get("train", f"images/{splits[0]}"))
    text = yaml.safe_dump({**content, "names": names}, sort_keys=False)
    write_text(draft / "data.yaml", text)


def export_recordings(
    out: Path,
    folders: Sequence[RecordingFolder],
    procedure: Procedure,
    box_format: Literal["cvat", "label-studio"],
    *,
    every: int = 1,
    copy: bool = False,
) -> dict[str, dict[str, int]]:
    """Write whole recordings for a tool that shows videos, with the boxes that they have. Returns counts by recording.

    every: of a folder of images, Label Studio gets every so many as a task of its own, and all that have a box.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("the output is there already", path=out, cure="choose another folder, or delete it")
    tasks: list[Any] = []
    counts: dict[str, dict[str, int]] = {}
    kinds: set[bool] = set()
    with replacing_folder(out) as draft:
        for folder in folders:
            recording, source = ToolRecording(folder, procedure), frames_of(folder)
            boxes = _boxes_of(folder, recording)
            if folder.name in counts:
                raise InputError(f"two recordings are called {folder.name!r}", cure="export one split at a time")
            counts[folder.name] = {"images": len(recording.numbers), "boxes": len(boxes)}
            is_video = isinstance(source, Video)
            kinds.add(is_video)
            if is_video:
                place = f"videos/{folder.name}{source.path.suffix.lower()}"
                _place(source.path, draft / place, copy)
                tasks.append(label_studio_task(recording, boxes, place, None))
            by_frame = {box.frame: box for box in boxes}
            for number, frame in enumerate(() if is_video else recording.numbers):
                file = source.file(frame)
                assert file is not None
                if box_format == "cvat":
                    _place(file, draft / "images" / folder.name / frame_name(frame, extension=file.suffix), copy)
                elif number % every == 0 or frame in by_frame:
                    place = f"images/{folder.name}_{frame_name(frame, extension=file.suffix)}"
                    _place(file, draft / place, copy)
                    shown = [by_frame[frame]] if frame in by_frame else []
                    tasks.append(label_studio_task(recording, shown, place, frame))
            if box_format == "cvat":
                write_text(draft / f"{folder.name}.xml", cvat_text(recording, boxes))
        if box_format == "label-studio":
            if len(kinds) > 1:
                cure = "export videos and folders of images apart, with --split"
                raise InputError("a project of Label Studio has videos or images, not both", cure=cure)
            write_json(draft / LABEL_STUDIO_FILE, tasks, indent=1)
            write_text(draft / "labels.xml", label_studio_config(procedure, video=True in kinds))
    return counts


def _boxes_of(folder: RecordingFolder, recording: ToolRecording) -> list[ToolBox]:
    frames = frames_in([folder], recording.procedure).readable
    return [
        ToolBox(folder.name, frame.frame, recording.size, frame.state_class, frame.box)
        for frame in frames
        if frame.box is not None
    ]


def _place(file: Path, target: Path, copy: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if copy:
        shutil.copyfile(file, target)
    else:
        target.symlink_to(file.resolve())


# ---------------------------------------------------------------------- back in
LABEL_STUDIO_FILE = "tasks.json"
_Row = tuple[str, Path, tuple[int, int], int, Box]  # file name, where it is said, image size, state class, box


def read_exchange(source: Path, procedure: Procedure, recordings: Sequence[RecordingFolder] = ()) -> dict[str, Coco]:
    """The boxes of a file or folder that a tool wrote, in whichever of the formats, by recording.

    recordings: those that the boxes may belong to; CVAT and Label Studio need them.
    """
    found: dict[str, Coco] = defaultdict(lambda: Coco(categories=state_categories(procedure)))
    images: dict[tuple[str, int], CocoImage] = {}
    for box in _read_any(source, procedure, ToolRecordings.of(recordings, procedure)):
        coco, place = found[box.recording], (box.recording, box.frame)
        if place not in images:
            images[place] = CocoImage(box.frame, frame_name(box.frame), *box.size)
            coco.images.append(images[place])
        coco.boxes.append(CocoBox(images[place], box.state_class, box.box))
    return dict(found)


def _read_any(source: Path, procedure: Procedure, recordings: ToolRecordings) -> Iterator[ToolBox]:
    if source.is_file():
        yield from _read_file(source, procedure, recordings)
    elif (source / "data.yaml").is_file():
        yield from _by_name(_read_yolo(source, procedure))
    else:
        files = sorted((source / "annotations").glob("*.json")) or sorted(source.glob("*.json"))
        files = files or sorted(source.glob("*.xml"))
        if not files:
            cure = "a COCO set has annotations/*.json, a YOLO set data.yaml, CVAT *.xml, Label Studio *.json"
            raise InputError("there are no boxes here", path=source, cure=cure)
        for file in files:
            yield from _read_file(file, procedure, recordings)


def _read_file(path: Path, procedure: Procedure, recordings: ToolRecordings) -> Iterator[ToolBox]:
    if path.suffix.lower() == ".xml":
        yield from read_cvat(path, recordings)
    elif path.suffix.lower() != ".json":
        cure = "give .xml of CVAT, .json of Label Studio or COCO, or the folder of a YOLO set"
        raise InputError("this is no file of boxes", path=path, cure=cure)
    elif isinstance(read_json(path), list):  # COCO is a table
        yield from read_label_studio(path, recordings)
    else:
        yield from _by_name(_read_coco(path, procedure))


def _by_name(rows: Iterable[_Row]) -> Iterator[ToolBox]:
    """Boxes whose recording and frame are those of their image's name."""
    for name, path, size, state_class, box in rows:
        # `<recording>_<frame>.jpg`; tools may put something before or after, such as a hash
        match = re.fullmatch(r"(.+)_(\d{4,9})(?:_jpg|_png)?", name.split(".")[0])
        if match is None:
            cure = "images are called RECORDING_FRAME.jpg, as the export calls them"
            raise InputError(f"{name!r} names no recording and frame", path=path, cure=cure)
        yield ToolBox(match[1], int(match[2]), size, state_class, box)


def _read_coco(path: Path, procedure: Procedure) -> Iterator[_Row]:
    for image in read_state_images(path, procedure):
        if image.state_class is not None:
            yield image.file.name, path, (image.width, image.height), image.state_class, image.box


def _read_yolo(folder: Path, procedure: Procedure) -> Iterator[_Row]:
    class_of = _yolo_classes(folder / "data.yaml", procedure)
    images = {path.stem: path for path in sorted((folder / "images").rglob("*")) if path.is_file()}
    for path in sorted((folder / "labels").rglob("*.txt")):
        if path.stem not in images:
            raise InputError("there is no image for this label file", path=path)
        size = image_size(images[path.stem])
        for line, row in enumerate(read_text(path).splitlines(), start=1):
            if not row.strip():
                continue
            try:
                number, x, y, width, height = (float(cell) for cell in row.split())
                state_class = class_of.get(int(number))
            except (ValueError, OverflowError):
                cure = "a row is: class, centre x, centre y, width, height, as shares of the image"
                raise InputError(f"this is not a box: {row!r}", path=path, line=line, cure=cure) from None
            if state_class is None:
                raise InputError(f"class {int(number)} is not in data.yaml", path=path, line=line)
            with errors_at(path, line):
                box = Box.from_centre(x, y, width, height, *size).inside(*size)
            yield path.name, path, size, state_class, box


def _yolo_classes(path: Path, procedure: Procedure) -> dict[int, int]:
    """Class number -> state class, by name."""
    document = read_yaml(path)
    try:
        names = document.data["names"]
        listed = dict(enumerate(names)) if isinstance(names, list) else {int(k): str(v) for k, v in names.items()}
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise InputError(f"this is not a YOLO description ({error})", path=path, cure="it needs 'names'") from None
    by_name = {state.name: state.state_class for state in procedure.states}
    for name in listed.values():
        if name not in by_name:
            cure = f"the states of {procedure.name!r} are called {', '.join(list(by_name)[:3])}, ..."
            raise InputError(f"class {name!r} is not a state", path=path, cure=cure)
    return {number: by_name[name] for number, name in listed.items()}


def write_recording_boxes(
    boxes: Mapping[str, Coco], folders: Mapping[str, Path], *, replace: bool = False
) -> dict[str, int]:
    """Write `OD_labels.json` into the recordings; boxes per recording. All is checked before anything is written."""
    for name in boxes:
        if name not in folders:
            cure = f"recordings here are: {', '.join(sorted(folders)[:5])}"
            raise InputError(f"there is no recording {name!r}", cure=cure)
        if not replace and (folders[name] / COCO_FILE).exists():
            raise InputError("boxes are there already", path=folders[name] / COCO_FILE, cure="allow replacing them")
    for name, coco in boxes.items():
        in_order = sorted(coco.images, key=lambda image: image.id), sorted(coco.boxes, key=lambda box: box.image.id)
        Coco(*in_order, coco.categories).write(folders[name] / COCO_FILE)
    return {name: len(coco.boxes) for name, coco in boxes.items()}
