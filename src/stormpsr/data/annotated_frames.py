"""Frames to train and score a detector with: those in which a person could read the state, with boxes, and the others.

Boxes come from `OD_labels.json` inside each recording (COCO), or from a folder of MECCANO's `NAME_GT.csv`, whose boxes
take the class of the labelled state. What is wrong with them is said before anything is trained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stormpsr.data.boxes import COCO_FILE, Box, read_centre_boxes, read_coco_boxes
from stormpsr.data.images import image_size
from stormpsr.data.labels import STATES_FILE, Note, OnNote, StateTimeline, read_states
from stormpsr.data.layouts import IMAGE_SUFFIXES, RecordingFolder, find_recordings
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateBits, StateKind

_LEAST_INSIDE = 0.5  # share of a box's area; published boxes reach up to a seventh of the image beyond its border


@dataclass(frozen=True, slots=True)
class StateBox:
    """An annotated assembly. The box is left, top, width and height as shares of the image."""

    left: float
    top: float
    width: float
    height: float
    state_class: int
    bits: StateBits | None  # None where nobody says which part is wrong

    def __post_init__(self) -> None:
        right, bottom = self.left + self.width, self.top + self.height
        inside = self.left >= -1e-6 and self.top >= -1e-6 and right <= 1 + 1e-6 and bottom <= 1 + 1e-6
        if not (self.width > 0 and self.height > 0 and inside):
            raise InputError(f"a box outside the image or without size: {self.left, self.top, self.width, self.height}")


@dataclass(frozen=True, slots=True)
class AnnotatedFrame:
    """A frame; without a box its state cannot be read."""

    recording: str
    frame: int
    image: Path
    box: StateBox | None = None
    maybe_hidden: bool = False  # the box tells the state, but nobody has checked that it can be read


@dataclass(frozen=True)
class FrameSet:
    """All frames of a split."""

    procedure: Procedure
    readable: tuple[AnnotatedFrame, ...]  # with a box
    unreadable: tuple[AnnotatedFrame, ...]  # without: the negatives
    n_without_class: int = 0  # boxes of states that the procedure has no class for: neither the one nor the other
    images: tuple[AnnotatedFrame, ...] = ()  # single rendered images with boxes, for training

    def count_by_class(self) -> Counter[int]:
        return Counter(frame.box.state_class for frame in self.readable if frame.box)

    def with_images(self, images: Sequence[AnnotatedFrame]) -> FrameSet:
        return replace(self, images=tuple(images))

    def thinned(self, step: int) -> FrameSet:
        """Every `step`-th frame of either sort, for a quick look at a validation set."""
        return replace(self, readable=self.readable[::step], unreadable=self.unreadable[::step])


def read_frames(
    roots: Path | Sequence[Path],
    split: str | None,
    procedure: Procedure,
    *,
    boxes_folder: Path | None = None,
    on_note: OnNote | None = None,
) -> FrameSet:
    """The frames of a split of one or several data sets, checked."""
    folders = [roots] if isinstance(roots, Path) else list(roots)
    recordings = [recording for root in folders for recording in find_recordings(root, split)]
    parts = [
        part
        for recording in recordings
        if (part := read_recording_frames(recording, procedure, boxes_folder, on_note)) is not None
    ]
    readable = tuple(frame for part in parts for frame in part.readable)
    if not readable:
        where = "" if split is None else f" of split {split!r}"
        cure = f"each recording needs {COCO_FILE}, or give the folder that holds NAME_GT.csv"
        raise InputError(f"no boxes in any recording{where}", path=boxes_folder or folders[0], cure=cure)
    unreadable = tuple(frame for part in parts for frame in part.unreadable)
    return FrameSet(procedure, readable, unreadable, sum(part.n_without_class for part in parts))


def read_recording_frames(
    recording: RecordingFolder, procedure: Procedure, boxes_folder: Path | None = None, on_note: OnNote | None = None
) -> FrameSet | None:
    """The frames of one recording; None if nobody drew boxes in it."""
    found = _boxes_of(recording, procedure, boxes_folder, on_note)
    if found is None:
        return None
    source, boxes, in_pixels = found
    files = image_files(recording)
    states = recording.path / STATES_FILE
    timeline = read_states(states, procedure, on_note=on_note) if states.is_file() else None
    size = image_size(next(iter(files.values()))) if in_pixels and boxes else (1, 1)
    readable: list[AnnotatedFrame] = []
    annotated: set[int] = set()
    for box in boxes:
        if box.frame in annotated:  # one assembly per frame is expected; a few published frames have two boxes
            if on_note:
                on_note(Note(str(source), 1, f"frame {box.frame} has two boxes, the second is ignored"))
            continue
        if box.frame not in files:
            cure = f"its images are in {recording.frames_folder()}"
            raise InputError(f"there is no image of frame {box.frame}", path=source, cure=cure)
        annotated.add(box.frame)
        state_box = _state_box(box, size, timeline, procedure, source)
        if state_box is not None:
            readable.append(AnnotatedFrame(recording.name, box.frame, files[box.frame], state_box))
    unreadable = [AnnotatedFrame(recording.name, k, path) for k, path in files.items() if k not in annotated]
    return FrameSet(procedure, tuple(readable), tuple(unreadable), len(boxes) - len(readable))


def image_files(recording: RecordingFolder) -> dict[int, Path]:
    """The image of each frame, in order."""
    folder = recording.frames_folder()
    if folder is None:
        cure = "a detector takes single images: rgb/000000.jpg and on (from a video: ffmpeg -i rgb.mp4 rgb/%06d.jpg)"
        raise InputError("the recording has no images", path=recording.path, cure=cure)
    numbered = {
        int(entry.stem): entry
        for entry in folder.iterdir()
        if entry.suffix.lower() in IMAGE_SUFFIXES and entry.stem.isdigit()
    }
    if not numbered:
        cure = "images are called after their frame: 000000.jpg"
        raise InputError("the recording has no images", path=folder, cure=cure)
    return dict(sorted(numbered.items()))


def _boxes_of(
    recording: RecordingFolder, procedure: Procedure, boxes_folder: Path | None, on_note: OnNote | None
) -> tuple[Path, list[Box], bool] | None:
    """The file with a recording's boxes, what is in it, and whether its numbers are pixels."""
    if boxes_folder is None:
        path = recording.path / COCO_FILE
        return (path, read_coco_boxes(path, procedure), True) if path.is_file() else None
    if not boxes_folder.is_dir():
        raise InputError("there is no such folder", path=boxes_folder, cure="give the folder that holds NAME_GT.csv")
    found = sorted(path for path in boxes_folder.rglob("*_GT.csv") if path.name == f"{recording.name}_GT.csv")
    chosen = [path for path in found if path.parent.name == recording.split] or found
    if not chosen:
        return None
    corner_boxes = [
        Box(box.frame, box.x - box.width / 2, box.y - box.height / 2, box.width, box.height, box.state_class)
        for box in read_centre_boxes(chosen[0], on_note=on_note)
    ]
    return chosen[0], corner_boxes, False


def _state_box(
    box: Box, size: tuple[int, int], timeline: StateTimeline | None, procedure: Procedure, source: Path
) -> StateBox | None:
    """The box as shares of the image, with its class; None if its state has no class."""
    bits = timeline.at(box.frame) if timeline else None
    state_class = box.state_class
    if state_class is None:
        if bits is None:
            cure = f"the recording needs {STATES_FILE}, which says what state a box shows"
            raise InputError(f"the box of frame {box.frame} has no class", path=source, cure=cure)
        state_class = procedure.state_class(bits)
    if state_class is None:
        return None
    state = procedure.states[state_class]
    if state.kind is StateKind.BACKGROUND:
        raise InputError(f"the box of frame {box.frame} is of the background class", path=source)
    if state.bits is not None:
        bits = state.bits  # what the annotator saw goes before the timeline, which may be some frames off
    elif bits is not None and -1 not in bits:
        bits = None
    left, top, width, height = _inside_share(box, size, source)
    return StateBox(left, top, width, height, state_class, bits)


def _inside_share(box: Box, size: tuple[int, int], source: Path) -> tuple[float, float, float, float]:
    """Left, top, width and height as shares of the image, cut at its border."""
    width, height = size
    left, top = max(box.x / width, 0.0), max(box.y / height, 0.0)
    right, bottom = min((box.x + box.width) / width, 1.0), min((box.y + box.height) / height, 1.0)
    inside = max(right - left, 0.0) * max(bottom - top, 0.0)
    if inside < _LEAST_INSIDE * box.width * box.height / (width * height) or inside == 0:
        cure = f"the image has {width} x {height} pixels" if size != (1, 1) else "its numbers are shares of the image"
        problem = f"the box of frame {box.frame} is outside the image or without size: "
        raise InputError(f"{problem}{box.x, box.y, box.width, box.height}", path=source, cure=cure)
    return left, top, right - left, bottom - top
