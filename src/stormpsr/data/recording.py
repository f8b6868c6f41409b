"""A recording: its frames, read when they are needed, and what its labels say.

Frames are a folder of images (`rgb/000000.jpg` and on) or a video file (`rgb.mp4`).
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StepEvent
from stormpsr.data.images import Image, read_image
from stormpsr.data.labels import (
    STATES_FILE,
    STEPS_FILE,
    STEPS_WITH_ERRORS_FILE,
    StateTimeline,
    read_states,
    read_steps,
)
from stormpsr.data.layouts import IMAGE_SUFFIXES, RecordingFolder
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateBits

VIDEO_SUFFIXES = frozenset({".mp4", ".mkv", ".avi", ".mov", ".webm"})
RECORDING_FILE = "recording.json"


@dataclass(frozen=True, eq=False, slots=True)
class Frame:
    """One image and its time."""

    image: Image  # height, width, 3
    index: int
    time_seconds: float


# ---------------------------------------------------------------------- where images come from
class FrameSource(ABC):
    """Images in order. `path` is for complaints."""

    path: Path
    n_frames: int

    @abstractmethod
    def images(self, start: int = 0) -> Iterator[Image]:
        """All images from frame `start` on."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Changes when the images do; made without reading them."""


class ImageFolder(FrameSource):
    """One file per frame, called after its number. A folder may begin with number 1: frame 0 then shows the same."""

    def __init__(self, path: Path) -> None:
        self.path = path
        files = {
            int(entry.stem): entry
            for entry in path.iterdir()
            if entry.suffix.lower() in IMAGE_SUFFIXES and entry.stem.isdigit()
        }
        if not files:
            cure = "images are called after their frame: 000000.jpg"
            raise InputError("the recording has no images", path=path, cure=cure)
        if min(files) == 1:
            files[0] = files[1]
        missing = next((number for number in range(max(files)) if number not in files), None)
        if missing is not None:
            cure = f"the images go up to {max(files)}: copy the missing ones again"
            raise InputError(f"the image of frame {missing} is missing", path=path, cure=cure)
        self._files = [files[number] for number in range(len(files))]
        self.n_frames = len(self._files)

    def images(self, start: int = 0) -> Iterator[Image]:
        return (read_image(file) for file in self._files[start:])

    def fingerprint(self) -> str:
        listing = "\n".join(f"{file.name} {file.stat().st_size}" for file in self._files)
        return hashlib.sha256(listing.encode()).hexdigest()[:16]


class VideoFile(FrameSource):
    """A video, decoded from its beginning: frames are counted, never guessed from time stamps."""

    def __init__(self, path: Path, n_frames: int | None = None) -> None:
        self.path = path
        self.fps, counted = self._measure(n_frames is None)
        self.n_frames = counted if n_frames is None else n_frames

    def _measure(self, count: bool) -> tuple[float | None, int]:
        import av

        try:
            with av.open(str(self.path)) as container:
                stream = self._stream_of(container)
                fps = float(stream.average_rate) if stream.average_rate else None
                n = sum(1 for packet in container.demux(stream) if packet.size) if count else 0
        except av.error.FFmpegError as error:
            raise self._unreadable(error) from error
        if count and not n:
            raise InputError("the video has no frames", path=self.path)
        return fps, n

    def images(self, start: int = 0) -> Iterator[Image]:
        import av

        seen = 0
        try:
            with av.open(str(self.path)) as container:
                stream = self._stream_of(container)
                stream.thread_type = "AUTO"
                for frame in container.decode(stream):
                    if start <= seen < self.n_frames:
                        yield frame.to_ndarray(format="rgb24")
                    seen += 1
        except av.error.FFmpegError as error:
            raise self._unreadable(error) from error
        if seen < self.n_frames:
            cure = "copy the video again, or correct n_frames in recording.json"
            raise InputError(f"the video ends after {seen} of {self.n_frames} frames", path=self.path, cure=cure)

    def fingerprint(self) -> str:
        about = self.path.stat()
        return hashlib.sha256(f"{self.path.name} {about.st_size} {self.n_frames}".encode()).hexdigest()[:16]

    def _stream_of(self, container: Any) -> Any:
        if not container.streams.video:
            raise InputError("there is no video in this file", path=self.path)
        return container.streams.video[0]

    def _unreadable(self, error: Exception) -> InputError:
        return InputError(f"the video cannot be read ({error})", path=self.path, cure="copy or encode it again")


# ---------------------------------------------------------------------- the recording
@dataclass(frozen=True)
class Recording:
    """Frames and labels of one run of the procedure."""

    name: str
    split: str | None
    path: Path
    fps: float
    source: FrameSource
    states: StateTimeline | None  # None where there are no labels
    steps: tuple[StepEvent, ...] | None  # correct completions, what recognition is scored against

    @property
    def n_frames(self) -> int:
        return self.source.n_frames

    @cached_property
    def states_FC(self) -> NDArray[np.int8]:
        """The labelled state in every frame."""
        if self.states is None:
            cure = f"it needs {STATES_FILE} or {STEPS_FILE}"
            raise InputError("the recording has no labels", path=self.path, cure=cure)
        return self.states.dense(self.n_frames)

    def frames(self, start: int = 0) -> Iterator[Frame]:
        """All frames from `start` on, in order."""
        for index, image in enumerate(self.source.images(start), start=start):
            yield Frame(image, index, index / self.fps)


def open_recording(folder: RecordingFolder, procedure: Procedure) -> Recording:
    """Find a recording's frames and read its labels; images are only looked for, not read."""
    about = _read_about(folder.path / RECORDING_FILE)
    source = _find_source(folder, about.get("n_frames"))
    fps = about.get("fps") or (source.fps if isinstance(source, VideoFile) else None) or procedure.fps
    states, steps = _read_labels(folder, procedure)
    _check_within(states, steps, source.n_frames, folder)
    return Recording(folder.name, folder.split, folder.path, float(fps), source, states, steps)


def _find_source(folder: RecordingFolder, n_frames: int | None) -> FrameSource:
    images = folder.frames_folder()
    if images is not None:
        return ImageFolder(images)
    videos = sorted(entry for entry in folder.path.iterdir() if entry.suffix.lower() in VIDEO_SUFFIXES)
    if len(videos) == 1:
        return VideoFile(videos[0], n_frames)
    problem = f"{len(videos)} videos and no images" if videos else "neither images nor a video"
    raise InputError(problem, path=folder.path, cure="a recording has images in rgb/, or one video file")


def _read_about(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"this is not JSON ({error})", path=path) from error
    if not isinstance(content, dict):
        raise InputError("this is no description of a recording", path=path)
    return {key: content[key] for key in ("n_frames", "fps") if isinstance(content.get(key), int | float)}


def _read_labels(
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
