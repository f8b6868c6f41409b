"""Folder layouts: where the recordings of a data set are, what they are called, which split they belong to.

Understood: `ROOT/recordings/<split>/<name>/`, `ROOT/<split>/<name>/`, `ROOT/<name>/`, the same a few folders deeper, as
in the clone of a repository, and a single recording; a split may be written in any case, as MECCANO's `Train`. What
was downloaded in several parts is put together by `downloads`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stormpsr.data.labels import LABEL_FILES
from stormpsr.data.remote import address_below, local_outline
from stormpsr.errors import InputError
from stormpsr.files import read_json_object

RECORDING_FILE = "recording.json"
SPLITS = ("train", "val", "test")
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
_LEAST_FPS, _MOST_FPS = 1e-3, 1000
FRAME_FOLDERS = ("rgb", "RGB")
SEARCH_DEPTH = 6  # folders below the given one in which recordings are looked for


@dataclass(frozen=True, slots=True)
class RecordingFolder:
    """One recording on disk."""

    name: str
    split: str | None
    path: Path
    address: str | None = None  # in a store; the frames are not here before it is opened

    @property
    def has_labels(self) -> bool:
        return any((self.path / file).is_file() for file in LABEL_FILES)

    def frames_folder(self) -> Path | None:
        """Where the images are: `rgb/`, or the folder itself."""
        for name in FRAME_FOLDERS:
            if (self.path / name).is_dir():
                return self.path / name
        return self.path if any(_is_image(entry) for entry in self.path.iterdir()) else None

    def n_frames(self) -> int | None:
        """How many frames the recording has, if it says so or if its images are there."""
        stated = read_about(self.path).n_frames
        if stated is not None:
            return stated
        folder = self.frames_folder()
        return None if folder is None else frames_shown(folder)


def frames_shown(folder: Path) -> int | None:
    """How many frames a folder of images goes up to; None if its images are not called after numbers."""
    # the last frame's number counts, not the number of files: label frames are numbers
    numbers = [int(entry.stem) for entry in folder.iterdir() if _is_image(entry) and is_frame_number(entry.stem)]
    return max(numbers) + 1 if numbers else None


def split_named(name: str) -> str | None:
    """The split that a folder's name stands for."""
    return name.lower() if name.lower() in SPLITS else None


def is_frame_number(stem: str) -> bool:
    """Whether an image is called after its frame. `isdigit` would take ² for one, too."""
    return re.fullmatch(r"[0-9]{1,9}", stem) is not None


def _is_image(entry: Path) -> bool:
    return entry.suffix.lower() in IMAGE_SUFFIXES


@dataclass(frozen=True, slots=True)
class RecordingAbout:
    """What `recording.json` says to us; whatever else it says is for others."""

    fps: float | None = None
    n_frames: int | None = None  # on the clock of `fps`, whether or not each has an image
    frame_step: int = 1  # there are images of every so many frames: 0, 4, 8, ...

    def __post_init__(self) -> None:
        if self.fps is not None and not _LEAST_FPS <= self.fps <= _MOST_FPS:
            cure = f"write the frames per second, {_LEAST_FPS} to {_MOST_FPS}"
            raise InputError(f"fps is {self.fps}", cure=cure)
        if self.n_frames is not None and self.n_frames < 0:
            raise InputError(f"n_frames is {self.n_frames}", cure="write the number of frames, a whole number")
        if self.frame_step < 1:
            raise InputError(f"frame_step is {self.frame_step}", cure="write 1 if every frame has an image")


def read_about(folder: Path) -> RecordingAbout:
    """The `recording.json` of a recording; nothing is known if there is none."""
    from stormpsr.yaml_loader import Document, validate

    path = folder / RECORDING_FILE
    if not path.is_file():
        return RecordingAbout()
    content = read_json_object(path, "description of a recording")
    known = {key: content[key] for key in RecordingAbout.__dataclass_fields__ if key in content}
    return validate(RecordingAbout, Document(known, path), strict=True)


def find_recordings(root: str | Path, split: str | None = None) -> list[RecordingFolder]:
    """All recordings below a folder, by split and name; a folder inside a split counts even without labels.

    root: a path, or the address of a store (see `remote`).
    """
    return outline_of(root, split)[1]


def outline_of(root: str | Path, split: str | None = None) -> tuple[Path, list[RecordingFolder]]:
    """The same with the data set's folder, which is a copy without frames where the data are in a store."""
    given, root = root, local_outline(root, SEARCH_DEPTH + 1)
    if not root.is_dir():
        problem = "this is a file" if root.exists() else "there is no such folder"
        raise InputError(problem, path=root, cure="give the folder that holds the recordings")
    if split is not None and split not in SPLITS:
        raise InputError(f"unknown split {split!r}", cure=f"choose one of: {', '.join(SPLITS)}")
    walked = (replace(one, address=address_below(given, root, one.path)) for one in _walk(root, root, SEARCH_DEPTH))
    found = sorted(walked, key=lambda recording: (recording.split or "", recording.name))
    if not found:
        cure = "it should hold recordings with PSR_labels.csv, for example test/0008/PSR_labels.csv"
        raise InputError("no recordings found", path=root, cure=cure)
    if split is None:
        return root, found
    chosen = [recording for recording in found if recording.split == split]
    if not chosen:
        there = sorted({recording.split for recording in found if recording.split})
        cure = f"it has: {', '.join(there)}" if there else "its recordings belong to no split: choose none"
        raise InputError(f"no recordings in split {split!r}", path=root, cure=cure)
    return root, chosen


def _walk(folder: Path, root: Path, depth: int) -> Iterator[RecordingFolder]:
    # so that `.` has a name and a parent, too; a link is called what it is called, not what it leads to
    place = Path(os.path.abspath(folder))  # noqa: PTH100
    split = split_named(place.parent.name)
    recording = RecordingFolder(place.name, split, folder)
    # the root is no recording just because it happens to lie in a folder called `test`
    inside_a_split = split is not None and folder != root
    if recording.has_labels or (folder / "recording.json").is_file() or inside_a_split:
        yield recording
    elif depth > 0:
        for entry in sorted(folder.iterdir()):
            if entry.is_dir() and not entry.name.startswith("."):
                yield from _walk(entry, root, depth - 1)
