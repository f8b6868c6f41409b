"""Frames to train and score a detector with: those in which a person could read the state, with boxes, and the others.

Boxes come from `OD_labels.json` (COCO) or `NAME_GT.csv` (MECCANO's) inside each recording, or from a folder of the
latter, whose boxes take the class of the labelled state. What is wrong with them is said before anything is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.boxes import CENTRE_BOXES_SUFFIX, Box, LabelledBox, centre_boxes_file, read_centre_boxes
from stormpsr.data.coco import ANNOTATIONS_FILE, COCO_FILE, read_coco_boxes, read_state_images
from stormpsr.data.images import Image
from stormpsr.data.labels import LABEL_FILES, STATES_FILE, Note, OnNote, StateTimeline, read_states
from stormpsr.data.layouts import RecordingFolder, find_recordings
from stormpsr.data.places import PLACES_FILE, places_in
from stormpsr.data.sources import FrameSource, ImageFolder, frames_of
from stormpsr.data.visibility import VISIBILITY_FILE, told_in
from stormpsr.errors import InputError, errors_at
from stormpsr.procedure.model import Procedure, StateBits, StateKind


@dataclass(frozen=True, slots=True)
class AnnotatedFrame:
    """A frame; without a box its state cannot be read."""

    recording: str
    frame: int
    source: FrameSource
    box: Box | None = None
    state_class: int = 0  # of the assembly in the box; the background where there is none, or the state has no class
    bits: StateBits | None = None  # None where nobody says which part is wrong
    told: tuple[bool, ...] | None = None  # whether each component shows enough to be told; None: nobody has measured it
    maybe_hidden: bool = False  # the box tells the state, but nobody has checked that it can be read
    size: tuple[int, int] = (0, 0)  # width and height of the image in pixels, where they are known
    places_CP2: NDArray[np.float32] | None = field(default=None, compare=False)  # see `stormpsr.data.places`

    def read(self) -> Image:
        return next(images_of([self]))


def images_of(frames: Sequence[AnnotatedFrame]) -> Iterator[Image]:
    """The images of frames; those of one source after the other, because videos are quicker to read in order."""
    for source, group in groupby(frames, key=lambda frame: frame.source):
        yield from source.images_at([frame.frame for frame in group])


@dataclass(frozen=True)
class FrameSet:
    """All frames of a split."""

    procedure: Procedure
    readable: tuple[AnnotatedFrame, ...]  # with a box
    unreadable: tuple[AnnotatedFrame, ...]  # without: the negatives, of which single parts may still be told
    n_without_class: int = 0  # boxes of states that the procedure has no class for: neither the one nor the other
    images: tuple[AnnotatedFrame, ...] = ()  # single rendered images with boxes, for training

    def thinned(self, step: int) -> FrameSet:
        """Every `step`-th frame of either sort, for a quick look at a validation set."""
        return replace(self, readable=self.readable[::step], unreadable=self.unreadable[::step])


def read_frames(
    root: Path,
    split: str | None,
    procedure: Procedure,
    *,
    boxes_folder: Path | None = None,
    on_note: OnNote | None = None,
) -> FrameSet:
    """The frames of a split of a data set, checked."""
    found = frames_in(find_recordings(root, split), procedure, boxes_folder=boxes_folder, on_note=on_note)
    if not found.readable:
        where = "" if split is None else f" of split {split!r}"
        cure = f"each recording needs {COCO_FILE} or NAME_GT.csv, or give the folder that holds the latter"
        raise InputError(f"no boxes in any recording{where}", path=boxes_folder or root, cure=cure)
    return found


def frames_in(
    recordings: Sequence[RecordingFolder],
    procedure: Procedure,
    *,
    boxes_folder: Path | None = None,
    on_note: OnNote | None = None,
) -> FrameSet:
    """The frames of recordings, checked; those of recordings without boxes are left out."""
    parts = [
        part
        for recording in recordings
        if (part := read_recording_frames(recording, procedure, boxes_folder, on_note)) is not None
    ]
    readable = tuple(frame for part in parts for frame in part.readable)
    unreadable = tuple(frame for part in parts for frame in part.unreadable)
    return FrameSet(procedure, readable, unreadable, sum(part.n_without_class for part in parts))


def frames_without_boxes(recordings: Sequence[RecordingFolder], every: int) -> list[AnnotatedFrame]:
    """Every so many frames of the recordings in which nobody has drawn boxes."""
    found = []
    for recording in recordings:
        if boxes_file(recording, None) is None:
            source = frames_of(recording)
            found += [AnnotatedFrame(recording.name, number, source) for number in source.numbers()[::every]]
    return found


def boxes_file(recording: RecordingFolder, boxes_folder: Path | None) -> Path | None:
    """Where the boxes of a recording are, inside it or in a folder of `NAME_GT.csv`; None if nobody drew any."""
    if boxes_folder is not None:
        return centre_boxes_file(boxes_folder, recording.name, recording.split)
    return boxes_inside(recording.path)


def boxes_inside(folder: Path) -> Path | None:
    """The file of boxes in a recording's own folder."""
    places = (folder / COCO_FILE, folder / f"{folder.name}{CENTRE_BOXES_SUFFIX}")
    return next((path for path in places if path.is_file()), None)


def files_about(folder: Path) -> list[Path]:
    """The files of a recording's own folder that say what its frames show."""
    boxes = boxes_inside(folder)
    named = [folder / name for name in (*LABEL_FILES, VISIBILITY_FILE, PLACES_FILE)]
    return [path for path in (*named, *(() if boxes is None else (boxes,))) if path.is_file()]


def read_boxes(
    path: Path, procedure: Procedure, width: int = 1, height: int = 1, *, on_note: OnNote | None = None
) -> list[LabelledBox]:
    """The boxes of either sort of file; those of a `NAME_GT.csv` are in shares if the image's size is not given."""
    if path.name == COCO_FILE:
        return read_coco_boxes(path, procedure)
    return read_centre_boxes(path, width, height, on_note=on_note)


def read_recording_frames(
    recording: RecordingFolder, procedure: Procedure, boxes_folder: Path | None = None, on_note: OnNote | None = None
) -> FrameSet | None:
    """The frames of one recording; None if nobody drew boxes in it."""
    path = boxes_file(recording, boxes_folder)
    if path is None:
        return None
    source = frames_of(recording)
    numbers = source.numbers()
    height, width = next(source.images_at(numbers[:1])).shape[:2]
    boxes = read_boxes(path, procedure, width, height, on_note=on_note)
    states = recording.path / STATES_FILE
    timeline = read_states(states, procedure, on_note=on_note) if states.is_file() else None
    told = _told(recording.path, procedure)
    places = _Places.of(recording.path, procedure)
    readable: list[AnnotatedFrame] = []
    annotated: set[int] = set()
    there = set(numbers)
    for box in boxes:
        if box.frame in annotated:  # one assembly per frame is expected; a few published frames have two boxes
            if on_note:
                on_note(Note(str(path), 1, f"frame {box.frame} has two boxes, the second is ignored"))
            continue
        if box.frame not in there:
            cure = f"its images are in {source.path}"
            raise InputError(f"there is no image of frame {box.frame}", path=path, cure=cure)
        annotated.add(box.frame)
        with errors_at(path, about=f"frame {box.frame}"):
            known = _class_and_bits(box, timeline, procedure)
            inside = box.box.inside(width, height)
        if known is not None:
            shown = told.get(box.frame)
            frame = AnnotatedFrame(recording.name, box.frame, source, inside, *known, told=shown, size=(width, height))
            readable.append(replace(frame, places_CP2=places.at(box.frame)))
    unreadable = [
        AnnotatedFrame(
            recording.name,
            number,
            source,
            bits=timeline.at(number) if timeline and number in told else None,
            told=told.get(number),
            size=(width, height),
            places_CP2=places.at(number),
        )
        for number in numbers
        if number not in annotated
    ]
    return FrameSet(procedure, tuple(readable), tuple(unreadable), len(boxes) - len(readable))


def _told(folder: Path, procedure: Procedure) -> dict[int, tuple[bool, ...]]:
    """Which components show enough to be told, by the number of the frame; empty where nobody has measured it."""
    told_FC = told_in(folder, procedure.n_components)
    return {} if told_FC is None else dict(enumerate(map(tuple, told_FC.tolist())))


@dataclass(frozen=True, slots=True)
class _Places:
    """Where parts are in the frames of a recording, or in single images, if somebody has measured it."""

    folder: Path
    places_FCP2: NDArray[np.float32] | None

    @classmethod
    def of(cls, folder: Path, procedure: Procedure) -> _Places:
        return cls(folder, places_in(folder, procedure.n_components))

    def at(self, number: int) -> NDArray[np.float32] | None:
        if self.places_FCP2 is None:
            return None
        if number >= len(self.places_FCP2):
            cure = "draw these images again, or delete the file"
            raise InputError(f"it ends before frame {number}", path=self.folder / PLACES_FILE, cure=cure)
        return np.asarray(self.places_FCP2[number])


def _class_and_bits(
    box: LabelledBox, timeline: StateTimeline | None, procedure: Procedure
) -> tuple[int, StateBits | None] | None:
    """What a box shows; None if that state has no class."""
    bits = timeline.at(box.frame) if timeline else None
    state_class = box.state_class
    if state_class is None:
        if bits is None:
            raise InputError("its box has no class", cure=f"the recording needs {STATES_FILE}, which says its state")
        state_class = procedure.state_class(bits)
    if state_class is None:
        return None
    state = procedure.states[state_class]
    if state.kind is StateKind.BACKGROUND:
        raise InputError("its box is of the background class")
    if state.bits is not None:
        bits = state.bits  # what the annotator saw goes before the timeline, which may be some frames off
    elif bits is not None and -1 not in bits:
        bits = None
    return state_class, bits


def read_images(folder: Path, procedure: Procedure) -> list[AnnotatedFrame]:
    """The single images of a folder with `annotations.json`, as `stormpsr synth states` writes it.

    Hands may cover parts of them: they teach what states look like, not whether one can be read. Images of states that
    have no class are of the background's, with a box: they teach what each part looks like.
    """
    path = folder / ANNOTATIONS_FILE
    found = read_state_images(path, procedure)
    for image in found:
        if not image.file.is_file():
            raise InputError(f"there is no image {image.file.name!r}", path=path)
    source = ImageFolder.of(folder, {image.number: image.file for image in found})
    told, places = _told(folder, procedure), _Places.of(folder, procedure)
    frames = []
    for image in found:
        if image.state_class is not None or image.bits is not None:
            known, size = (image.box, image.state_class or 0, image.bits), (image.width, image.height)
            shown = told.get(image.number)
            frame = AnnotatedFrame(folder.name, image.number, source, *known, told=shown, maybe_hidden=True, size=size)
            frames.append(replace(frame, places_CP2=places.at(image.number)))
    if not frames:
        raise InputError("there are no annotations in it", path=path)
    return frames
