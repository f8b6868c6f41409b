"""A recording: its frames, read when they are needed, and what its labels say.

Frames are a folder of images (`rgb/000000.jpg` and on) or a video file (`rgb.mp4`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StepEvent
from stormpsr.data.images import Image
from stormpsr.data.labels import (
    STATES_FILE,
    STEPS_FILE,
    STEPS_WITH_ERRORS_FILE,
    StateTimeline,
    read_states,
    read_steps,
)
from stormpsr.data.layouts import RecordingFolder, read_about
from stormpsr.data.remote import local_path
from stormpsr.data.sources import Frame, FrameSource, ImageFolder, Video, frames_of
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateBits


@dataclass(frozen=True)
class Recording(FrameSource):
    """Frames and labels of one run of the procedure. Times are even, whatever stamps a video has."""

    name: str
    split: str | None
    path: Path
    fps: float
    source: ImageFolder | Video
    states: StateTimeline | None  # None where there are no labels
    steps: tuple[StepEvent, ...] | None  # correct completions, what recognition is scored against
    n_frames: int
    address: str | None = None  # of the store that it comes from

    def reference(self) -> RecordingReference:
        """What another process opens the same recording by."""
        folder = RecordingFolder(self.name, self.split, self.path.resolve(), self.address)
        return RecordingReference(folder, self.fingerprint())

    @cached_property
    def states_FC(self) -> NDArray[np.int8]:
        """The labelled state in every frame."""
        if self.states is None:
            cure = f"it needs {STATES_FILE} or {STEPS_FILE}"
            raise InputError("the recording has no labels", path=self.path, cure=cure)
        return self.states.dense(self.n_frames)

    def frames(self, start: int = 0) -> Iterator[Frame]:
        for frame in self.source.frames(start):
            yield Frame(frame.image, frame.index, frame.index / self.fps)

    def images_at(self, numbers: Iterable[int]) -> Iterator[Image]:
        return self.source.images_at(numbers)

    def fingerprint(self) -> str:
        return self.source.fingerprint()


@dataclass(frozen=True)
class RecordingReference:
    """A recording as one process names it to another."""

    folder: RecordingFolder
    images: str  # fingerprint

    def open(self, procedure: Procedure) -> Recording:
        if self.folder.address is None and not self.folder.path.is_dir():
            cure = "put it on a disk that all machines have at this path"
            raise InputError("this machine does not see the recording's folder", path=self.folder.path, cure=cure)
        recording = open_recording(self.folder, procedure)
        if recording.fingerprint() != self.images:
            problem, cure = "these are other images than where the command was given", "give all machines the same data"
            raise InputError(problem, path=self.folder.path, cure=cure)
        return recording


def folders_read(recordings: Iterable[Recording]) -> list[Path]:
    """The folders in which recordings lie, without those that are fetched from a store."""
    return sorted({recording.path.resolve().parent for recording in recordings if recording.address is None})


def open_recording(folder: RecordingFolder, procedure: Procedure) -> Recording:
    """Find a recording's frames and read its labels; images are only looked for, not read.

    What is in a store is fetched first, and may then lie elsewhere than its folder says.
    """
    if folder.address is not None:
        folder = replace(folder, path=local_path(folder.address))
    about = read_about(folder.path)
    source = frames_of(folder, about)
    fps, n_frames = about.fps or source.fps or procedure.fps, source.numbers()[-1] + 1
    if about.n_frames is not None and isinstance(source, ImageFolder):  # a video counts for itself
        if not n_frames <= about.n_frames < n_frames + about.frame_step:
            problem = f"the images go up to frame {n_frames - 1}, but {about.n_frames} frames are announced"
            raise InputError(problem, path=folder.path, cure="copy the missing images again")
        n_frames = about.n_frames
    states, steps = read_labels(folder, procedure, n_frames)
    return Recording(
        folder.name, folder.split, folder.path, fps, source, states, steps, n_frames, address=folder.address
    )


def variant_name_of(recording: Recording, procedure: Procedure) -> str:
    """The variant that a recording follows: by its name, or by the state it begins with."""
    named = procedure.variant_of_recording(recording.name)
    if named is not None:
        return named.name
    begins = None if recording.states is None else recording.states.initial
    for variant in procedure.variants.values():
        if variant.initial == begins:
            return variant.name
    cure = f"name the variant in the folder's name: {', '.join(procedure.variants)}"
    raise InputError("nobody says which variant the recording follows", path=recording.path, cure=cure)


def read_labels(
    folder: RecordingFolder, procedure: Procedure, n_frames: int
) -> tuple[StateTimeline | None, tuple[StepEvent, ...] | None]:
    """The states and steps of so many frames, as label files say now; None where there are none."""
    states, steps = _read_label_files(folder, procedure)
    _check_within(states, steps, n_frames, folder)
    return states, steps


def _read_label_files(
    folder: RecordingFolder, procedure: Procedure
) -> tuple[StateTimeline | None, tuple[StepEvent, ...] | None]:
    states_path, steps_path = folder.path / STATES_FILE, folder.path / STEPS_FILE
    steps = tuple(read_steps(steps_path, procedure)) if steps_path.is_file() else None
    if states_path.is_file():
        return read_states(states_path, procedure), steps
    with_errors = folder.path / STEPS_WITH_ERRORS_FILE
    if with_errors.is_file():
        return _states_after(read_steps(with_errors, procedure), folder, procedure), steps
    return (None if steps is None else _states_after(list(steps), folder, procedure)), steps


def _states_after(steps: list[StepEvent], folder: RecordingFolder, procedure: Procedure) -> StateTimeline:
    """The states that follow from the initial state of the recording's variant and its steps."""
    variant = procedure.variant_of_recording(folder.name)
    if variant is None:
        cure = f"add {STATES_FILE}, or name the variant in the folder's name: {', '.join(procedure.variants)}"
        raise InputError("nobody says what state the recording begins with", path=folder.path, cure=cure)
    rows: dict[int, StateBits] = {0: variant.initial}
    bits = variant.initial
    for step in steps:
        bits = procedure.apply(bits, step.step_id)
        rows[step.frame] = bits
    return StateTimeline(tuple(rows), tuple(rows.values()))


def _check_within(
    states: StateTimeline | None, steps: tuple[StepEvent, ...] | None, n_frames: int, folder: RecordingFolder
) -> None:
    last = max([*(states.frames if states else ()), *(step.frame for step in steps or ())], default=0)
    if last >= n_frames:
        cure = "frames are missing, or the labels belong to another recording"
        raise InputError(f"a label in frame {last}, but there are only {n_frames} frames", path=folder.path, cure=cure)
