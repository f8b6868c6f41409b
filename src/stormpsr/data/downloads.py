"""Data sets as they are downloaded: frames, labels and boxes in folders of their own, put together by name.

What is looked for below each folder, at any depth, with the split in the name of a folder above, in any case:

    frames   NAME/rgb/000123.jpg, NAME/00123.jpg, NAME.mp4
    labels   NAME/PSR_labels.csv, PSR_labels_with_errors.csv, PSR_labels_raw.csv
    boxes    NAME/OD_labels.json, NAME_GT.csv

`link` makes one data set of them, `OUT/<split>/NAME/`, with links to what was found: nothing is copied. Renders of
single states with class ids of another program (`images/` and `labels_coco.json`) get an `annotations.json` in ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from stormpsr.data.boxes import CENTRE_BOXES_SUFFIX
from stormpsr.data.coco import ANNOTATIONS_FILE, COCO_FILE, Coco, CocoBox, read_coco, state_categories
from stormpsr.data.labels import LABEL_FILES, STATES_FILE, read_states, read_steps
from stormpsr.data.layouts import (
    FRAME_FOLDERS,
    IMAGE_SUFFIXES,
    RECORDING_FILE,
    SEARCH_DEPTH,
    is_frame_number,
    split_named,
)
from stormpsr.data.sources import VIDEO_SUFFIXES, ImageFolder
from stormpsr.errors import InputError, errors_at
from stormpsr.files import read_text, replacing_folder
from stormpsr.procedure.model import Procedure, StateKind
from stormpsr.yaml_loader import parse_yaml

RENDER_LABELS_FILE = "labels_coco.json"
_SHOWN = 3

# How many recordings the published sets have, and frames with a box: from the papers and the label files. Those of
# MECCANO have 6948, 3053 and 3656 rows, because a few frames have two boxes.
PUBLISHED: Mapping[str, Mapping[str, tuple[int, int | None]]] = {
    "industreal": {"train": (36, None), "val": (16, None), "test": (32, None)},
    "meccano": {"train": (11, 6928), "val": (2, 3052), "test": (7, 3655)},
    "impact": {"train": (64, None), "val": (10, None), "test": (18, None)},
}
# The class of an IndustReal state that the authors' Unity program calls by another number, as their code maps it.
UNITY_IDS: Mapping[int, int] = dict(
    enumerate((0, 15, 12, 2, 19, 22, 14, 20, 3, 11, 8, 4, 10, 18, 1, 7, 9, 21, 13, 5, 6, 17, 16, 23))
)


@dataclass(frozen=True)
class Found:
    """What there is of one recording."""

    name: str
    split: str | None = None
    frames: Path | None = None  # a folder of images, or a video
    labels: tuple[Path, ...] = ()  # files
    boxes: Path | None = None
    about: Path | None = None  # `recording.json`


# ---------------------------------------------------------------------- finding
def find_parts(roots: Sequence[Path]) -> list[Found]:
    """All recordings of which something lies below some folders, by split and name."""
    found: dict[str, Found] = {}
    for root in roots:
        if not root.is_dir():
            raise InputError("there is no such folder", path=root, cure="give the folders that were downloaded")
        for part in _walk(root, None, SEARCH_DEPTH):
            known = found.get(part.name)
            found[part.name] = part if known is None else _together(known, part)
    if not found:
        cure = "frames are in NAME/rgb, NAME/*.jpg or NAME.mp4, labels in NAME/PSR_labels.csv"
        raise InputError("there are no recordings", path=roots[0], cure=cure)
    return sorted(found.values(), key=lambda part: (part.split or "", part.name))


def _together(one: Found, other: Found) -> Found:
    if one.split and other.split and one.split != other.split:
        cure = "give the folders of one version of the data set"
        raise InputError(f"recording {one.name!r} is in split {one.split!r} and in {other.split!r}", cure=cure)
    merged: dict[str, Any] = {}
    for kind in ("frames", "boxes", "about"):
        ours, theirs = getattr(one, kind), getattr(other, kind)
        if ours and theirs and ours.resolve() != theirs.resolve():
            cure = "give the folder of the colour images alone" if kind == "frames" else "leave one of them out"
            raise InputError(f"recording {one.name!r} has {kind} in two places: {ours} and {theirs}", cure=cure)
        merged[kind] = ours or theirs
    files = {path.name: path for path in one.labels}
    for path in other.labels:
        if files.setdefault(path.name, path).resolve() != path.resolve():
            raise InputError(f"recording {one.name!r} has two files {path.name}", path=path, cure="leave one out")
    return replace(one, split=one.split or other.split, labels=tuple(files.values()), **merged)


def _walk(folder: Path, split: str | None, depth: int) -> Iterator[Found]:
    # so that `.` has a name and a parent, too; a link is called what it is called, not what it leads to
    place = Path(os.path.abspath(folder))  # noqa: PTH100
    own = split_named(place.parent.name) or split
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    kinds = {entry.name: _kind(entry) for entry in listed}
    files = {name: folder / name for name, kind in kinds.items() if kind == "file"}
    folders = [folder / name for name, kind in kinds.items() if kind == "folder" and not name.startswith(".")]
    inside = split_named(place.name) or split  # of what a file in here belongs to
    for name, path in files.items():
        if name.endswith(CENTRE_BOXES_SUFFIX):
            yield Found(name.removesuffix(CENTRE_BOXES_SUFFIX), inside, boxes=path)
    labels = tuple(files[name] for name in LABEL_FILES if name in files)
    images = next((entry for entry in folders if entry.name in FRAME_FOLDERS), None)
    if images is None and any(_is_frame(path) for path in files.values()):
        images = folder
    videos = [path for path in files.values() if path.suffix.lower() in VIDEO_SUFFIXES]
    boxes, about = files.get(COCO_FILE), files.get(RECORDING_FILE)
    if labels or images or boxes or about:
        own_video = videos[0] if images is None and len(videos) == 1 else None
        yield Found(place.name, own, images or own_video, labels, boxes, about)
        return
    for path in videos:
        yield Found(path.stem, inside, frames=path)
    if depth > 0:
        for entry in folders:
            yield from _walk(entry, inside, depth - 1)


def _kind(entry: os.DirEntry[str]) -> Literal["file", "folder"] | None:
    try:
        return "file" if entry.is_file() else "folder" if entry.is_dir() else None
    except OSError:  # a link that leads in a circle; one that leads nowhere is neither, too
        return None


def _is_frame(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and is_frame_number(path.stem)


# ---------------------------------------------------------------------- checking
@dataclass
class Check:
    """What was found, and what is wrong with it."""

    recordings: list[Found]
    frames: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # name -> first, last, how many images
    boxes: dict[str, int] = field(default_factory=dict)  # name -> frames with a box
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, dict[str, int]]:
        """By split: recordings, those with frames, labels and boxes, images, frames with a box."""
        rows: dict[str, dict[str, int]] = {}
        for part in self.recordings:
            row = rows.setdefault(part.split or "no split", dict.fromkeys(_COUNTED, 0))
            row["recordings"] += 1
            row["with frames"] += part.frames is not None
            row["with labels"] += bool(part.labels)
            row["with boxes"] += part.boxes is not None
            row["images"] += self.frames.get(part.name, (0, 0, 0))[2]
            row["boxes"] += self.boxes.get(part.name, 0)
        return rows


_COUNTED = ("recordings", "with frames", "with labels", "with boxes", "images", "boxes")


def check_downloads(roots: Sequence[Path], procedure: Procedure) -> Check:
    """Look at everything but the pixels."""
    found = Check(find_parts(roots))
    _complain(found.errors, "no split", [p.name for p in found.recordings if p.split is None])
    _complain(found.errors, "no frames", [p.name for p in found.recordings if p.frames is None])
    _complain(found.errors, "no labels", [p.name for p in found.recordings if not p.labels])
    _check_recordings(found, procedure)
    published = PUBLISHED.get(procedure.name, {})
    for split, counts in found.counts().items():
        recordings, boxes = published.get(split, (None, None))
        if recordings is not None and counts["recordings"] != recordings:
            found.notes.append(f"{split}: {counts['recordings']} recordings, {recordings} were published")
        if boxes is not None and counts["boxes"] not in (0, boxes):
            found.notes.append(f"{split}: {counts['boxes']} frames with a box, {boxes} were published")
    return found


def _complain(errors: list[str], what: str, names: Sequence[str]) -> None:
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        errors.append(f"{what}: {', '.join(names[:_SHOWN])}{more}")


def _check_recordings(found: Check, procedure: Procedure) -> None:
    for part in found.recordings:
        with errors_at(part.name, on_error=lambda error: found.errors.append(str(error))):
            _check_recording(found, part, procedure)


def _check_recording(found: Check, part: Found, procedure: Procedure) -> None:
    last: int | None = None
    if part.frames is not None and part.frames.is_dir():
        numbers = ImageFolder(part.frames, numbered=True).numbers()
        first, last = numbers[0], numbers[-1]
        found.frames[part.name] = first, last, len(numbers)
        if first > 1:
            found.notes.append(f"{part.name}: images begin at frame {first}, which stands for those before it")
        steps = {after - before for before, after in pairwise(numbers)}
        if len(steps) > 1:
            gap = next(number for number, after in pairwise(numbers) if after - number != min(steps))
            found.errors.append(f"{part.name}: the image after frame {gap} is missing")
    if part.boxes is not None:
        from stormpsr.data.annotated_frames import read_boxes

        found.boxes[part.name] = len({box.frame for box in read_boxes(part.boxes, procedure)})
    for path in part.labels:
        if path.name == STATES_FILE:
            frames: Iterable[int] = read_states(path, procedure).frames
        else:
            frames = (event.frame for event in read_steps(path, procedure))
        latest = max(frames, default=0)
        if last is not None and latest > last:
            found.errors.append(f"{part.name}: {path.name} goes up to frame {latest}, the images up to {last}")


# ---------------------------------------------------------------------- linking
def link_downloads(roots: Sequence[Path], out: Path, procedure: Procedure) -> tuple[list[Found], list[Found]]:
    """Make one data set of what lies in several folders: what was linked, and what was left out, because it has no
    frames or no labels. What `check_downloads` finds wrong with the others is refused.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("the output is there already", path=out, cure="choose another folder, or delete it")
    if any(out.resolve().is_relative_to(root.resolve()) for root in roots):
        raise InputError("the output lies inside the data", path=out, cure="choose a folder outside of it")
    parts = find_parts(roots)
    whole = [part for part in parts if part.frames is not None and part.labels]
    if not whole:
        cure = "give the folder of the frames and that of the labels"
        raise InputError("no recording has both frames and labels", path=roots[0], cure=cure)
    lost = [part.name for part in whole if part.split is None]
    if lost:
        cure = "labels or frames must lie in folders train, val and test"
        raise InputError(f"nobody says which split recording {lost[0]!r} belongs to", path=roots[0], cure=cure)
    checked = Check(whole)
    _check_recordings(checked, procedure)
    if checked.errors:
        cure = "mend it, or take the recording away; 'stormpsr data check' tells all"
        raise InputError(checked.errors[0], cure=cure)
    with replacing_folder(out) as draft:
        for part in whole:
            folder = draft / str(part.split) / part.name
            folder.mkdir(parents=True)
            assert part.frames is not None
            _link(folder / (part.frames.name if part.frames.is_file() else FRAME_FOLDERS[0]), part.frames)
            for path in (*part.labels, *(path for path in (part.boxes, part.about) if path is not None)):
                _link(folder / path.name, path)
        procedure.save(draft / "procedure.yaml")
    return whole, [part for part in parts if part not in whole]


def _link(place: Path, target: Path) -> None:
    try:
        place.symlink_to(target.resolve(), target_is_directory=target.is_dir())
    except OSError as error:
        cure = "choose --out on a disk that has links (on Windows: switch developer mode on)"
        raise InputError(f"no link can be made ({error.strerror})", path=place, cure=cure) from error


# ---------------------------------------------------------------------- renders
def read_ids(source: str) -> Mapping[int, int]:
    """Class ids of another program: `unity` for the authors' renders of IndustReal, or a YAML file of `id: class`."""
    if source == "unity":
        return UNITY_IDS
    table = parse_yaml(read_text(source), source).data
    pairs = list(table.items()) if isinstance(table, dict) else []
    if not pairs or not all(re.fullmatch(r"[0-9]{1,9}", str(key)) and type(value) is int for key, value in pairs):
        raise InputError("this is no table of class ids", path=source, cure="write lines like '1: 15'")
    return {int(key): value for key, value in pairs}


def adopt_renders(folder: Path, procedure: Procedure, ids: Mapping[int, int] | None) -> tuple[Path, int]:
    """Write `annotations.json` for renders whose COCO file has other ids or names; its path, and how many images.

    ids: the procedure's class of each category id. Without them, categories must have the names of states.
    """
    source = next((folder / name for name in (RENDER_LABELS_FILE, "labels.json") if (folder / name).is_file()), None)
    if source is None:
        raise InputError(f"there is no {RENDER_LABELS_FILE}", path=folder, cure="give the folder that holds it")
    coco = read_coco(source)
    names = {state.name: state.state_class for state in procedure.states}
    known = {state.state_class: state for state in procedure.states}
    boxes = []
    for box in coco.boxes:
        name = coco.categories.get(box.category_id)
        state_class = names.get(str(name)) if ids is None else ids.get(box.category_id)
        if state_class not in known:
            what = f"category {name!r}" if ids is None else f"category id {box.category_id}"
            cure = "say what the ids mean: --ids unity for the authors' renders, or a YAML file of 'id: class'"
            raise InputError(f"{box.where}: {what} is not a state of {procedure.name!r}", path=source, cure=cure)
        if names.get(str(name), state_class) != state_class:
            called = f"category {box.category_id} is called {name!r}, class {names[str(name)]}"
            cure = "leave --ids out, names say it all; or correct one of the two"
            raise InputError(f"{called}, but its id means class {state_class}", path=source, cure=cure)
        if known[state_class].kind is StateKind.ASSEMBLY:  # the background has no box, an error does not say which
            boxes.append(CocoBox(box.image, state_class, box.box))
    place = "images" if (folder / "images").is_dir() else "."
    files = {image.id: _render_file(folder, place, image.file_name, source) for image in coco.images}
    moved = {image.id: replace(image, file_name=files[image.id]) for image in coco.images}
    used = {box.image.id for box in boxes}
    written = Coco(
        [moved[image.id] for image in coco.images if image.id in used],
        [replace(box, image=moved[box.image.id]) for box in boxes],
        state_categories(procedure),
    )
    if not boxes:
        raise InputError("no image shows a state of the procedure", path=source)
    written.write(folder / ANNOTATIONS_FILE)
    return folder / ANNOTATIONS_FILE, len(used)


def _render_file(folder: Path, place: str, file_name: str, source: Path) -> str:
    """Where an image is, seen from the folder: as written, or by its name in `images/`."""
    for path in (folder / file_name, folder / place / Path(file_name).name):
        if path.is_file():
            return path.relative_to(folder).as_posix()
    raise InputError(f"there is no image {file_name!r}", path=source, cure="download the images again")
