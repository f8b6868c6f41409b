"""Where live images come from: a video file, a folder of frames, a recording, a webcam, a network camera.

Every source gives frames in order with times in seconds from its first one. What goes wrong underway is said after the
last good frame, so that nothing that was recognised until then is lost.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stormpsr.data.images import read_image
from stormpsr.data.layouts import IMAGE_SUFFIXES, RecordingFolder
from stormpsr.data.recording import (
    RECORDING_FILE,
    VIDEO_SUFFIXES,
    Frame,
    Recording,
    VideoFile,
    open_recording,
)
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

Clock = Callable[[], float]  # seconds, from any moment on
_PATIENCE_SECONDS = 10  # without an image, a camera counts as gone
_MISSES_AT_ONCE = 30  # failed reads in a row after which a webcam counts as gone


class Source(ABC):
    """Frames in order. `name` is for complaints and titles."""

    name: str
    fps: float | None = None  # nominal; None if nobody says
    n_frames: int | None = None  # None if nobody knows
    is_live: bool = False

    @abstractmethod
    def frames(self) -> Iterator[Frame]: ...


# ---------------------------------------------------------------------- files
class FrameFolder(Source):
    """One image per file. Files called after their number may leave numbers out: those frames were dropped."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path, self.fps, self.name = path, fps, str(path)
        files = sorted(
            entry
            for entry in path.iterdir()
            if entry.suffix.lower() in IMAGE_SUFFIXES and not entry.name.startswith(".")
        )
        if not files:
            raise InputError("there are no images in this folder", path=path, cure="frames are .jpg or .png files")
        numbered = all(re.fullmatch(r"[0-9]{1,9}", entry.stem) for entry in files)
        self._files = {int(entry.stem): entry for entry in files} if numbered else dict(enumerate(files))
        if len(self._files) < len(files):
            raise InputError("two images have the same number", path=path, cure="keep one of them")
        self.n_frames = len(files)

    def frames(self) -> Iterator[Frame]:
        first = min(self._files)
        for number in sorted(self._files):
            yield Frame(read_image(self._files[number]), number, (number - first) / float(self.fps or 1))


class WatchedRecording(Source):
    """A recording of a data set."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.name, self.fps, self.n_frames = str(recording.path), recording.fps, recording.n_frames

    def frames(self) -> Iterator[Frame]:
        return self.recording.frames()


class StreamedVideo(Source):
    """A video file, or the address of a network camera. Times are those of the video, evenly counted if it has none."""

    def __init__(self, address: str, *, default_fps: float, is_live: bool = False) -> None:
        self.name, self.is_live = address, is_live
        self._default_fps = default_fps

    def frames(self) -> Iterator[Frame]:
        import av

        n_frames = n_corrupt = 0
        seconds = 0.0
        try:
            with self._open() as container:
                if not container.streams.video:
                    raise InputError("there is no video in it", path=self.name)
                stream = container.streams.video[0]
                if not self.is_live:
                    stream.thread_type = "AUTO"
                self.fps = float(stream.average_rate) if stream.average_rate else None
                self.n_frames = stream.frames or None
                announced = container.duration / 1e6 if container.duration else 0.0
                times = _Times(self.fps or self._default_fps)
                for image in container.decode(stream):
                    if image.is_corrupt:
                        n_corrupt += 1  # a dropped frame
                        continue
                    seconds = times.of(image.time, n_frames)
                    yield Frame(image.to_ndarray(format="rgb24"), n_frames, seconds)
                    n_frames, n_corrupt = n_frames + 1, 0
        except av.error.FFmpegError as error:
            raise self._broken(error, n_frames) from error
        self._check_end(n_frames, n_corrupt, seconds, announced)

    def _check_end(self, n_frames: int, n_corrupt: int, seconds: float, announced: float) -> None:
        """Say so if the end came too early. Decoders often do not: they stop at the last whole frame."""
        if n_frames == 0:
            raise InputError("there are no frames in it", path=self.name)
        if self.is_live:
            raise InputError(f"the camera stopped sending after {n_frames} frames", path=self.name, cure="start again")
        step = 1 / (self.fps or self._default_fps)
        if n_corrupt or n_frames + 1 < (self.n_frames or 0) or seconds + 3 * step < announced:
            of = f" of {self.n_frames}" if self.n_frames else ""
            raise InputError(
                f"the video ends too early, after {n_frames}{of} frames", path=self.name, cure="copy it again"
            )

    def _open(self) -> Any:
        import av

        if not self.is_live:
            return av.open(self.name)
        options = {"rtsp_transport": "tcp"} if self.name.startswith("rtsp") else {}
        return av.open(self.name, options=options, timeout=_PATIENCE_SECONDS)

    def _broken(self, error: Exception, n_frames: int) -> InputError:
        reason = getattr(error, "strerror", None) or str(error)
        if n_frames == 0:
            cure = "check address, network and password" if self.is_live else "copy or encode it again"
            return InputError(f"it cannot be opened ({reason})", path=self.name, cure=cure)
        what = "the camera is gone" if self.is_live else "the video is broken"
        return InputError(f"{what} after {n_frames} frames ({reason})", path=self.name)


class _Times:
    """Seconds from the first frame, never backwards, whatever the time stamps do."""

    def __init__(self, fps: float) -> None:
        self._step = 1 / fps
        self._shift: float | None = None
        self._last = 0.0

    def of(self, stamp: float | None, number: int) -> float:
        if stamp is None:
            self._last += self._step if number else 0.0
            return self._last
        if self._shift is None:
            self._shift = stamp - self._last
        seconds = stamp - self._shift
        if number and not 0 < seconds - self._last < 3600:  # a stream that began to count anew
            seconds = self._last + self._step
            self._shift = stamp - seconds
        self._last = seconds
        return seconds


# ---------------------------------------------------------------------- cameras
class Camera(Source):
    """A webcam by its index. The clock is given, because this package does not read one itself."""

    is_live = True

    def __init__(self, index: int, clock: Clock) -> None:
        self.index, self._clock = index, clock
        self.name = f"camera {index}"

    def frames(self) -> Iterator[Frame]:
        import cv2

        camera: Any = cv2.VideoCapture(self.index)
        try:
            if not camera.isOpened():
                raise InputError(f"there is no camera {self.index}", cure="plug it in, or try another index")
            start, number, misses = self._clock(), 0, 0
            while misses < _MISSES_AT_ONCE:
                there, image = camera.read()
                if not there:
                    misses += 1
                    continue
                misses = 0
                yield Frame(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), number, self._clock() - start)
                number += 1
        finally:
            camera.release()
        raise InputError(f"camera {self.index} is gone after {number} frames", cure="check its cable, then start again")


class LatestOnly:
    """Reads a live source in a thread and keeps the latest frame only, so that a slow reader never falls behind.

    Frames that are passed over were dropped, which recognition by time stamps is made for.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._changed = threading.Condition()
        self._latest: Frame | None = None
        self._error: BaseException | None = None
        self._finished = self._closed = False
        self._thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        try:
            for frame in self._source.frames():
                with self._changed:
                    self._latest = frame
                    self._changed.notify_all()
                    if self._closed:
                        break
        except BaseException as error:  # handed on to the reader
            self._error = error
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def frames(self) -> Iterator[Frame]:
        self._thread.start()
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._latest is not None or self._finished)
                    frame, self._latest = self._latest, None
                if frame is None:
                    break
                yield frame
            if self._error is not None:
                raise self._error
        finally:
            self._closed = True
            self._thread.join(timeout=2)  # a camera that is being read should be released before the program ends


# ---------------------------------------------------------------------- by name
def open_source(text: str, procedure: Procedure, *, fps: float | None = None, clock: Clock | None = None) -> Source:
    """A source as people write it: an index, an address, a file or a folder.

    fps: of a folder of frames that says nothing about it; the procedure's where it is not given.
    clock: needed for webcams.
    """
    default_fps = fps or procedure.fps
    if re.fullmatch(r"[0-9]{1,3}", text) and not Path(text).exists():
        if clock is None:
            raise InputError("a webcam needs a clock", cure="give one to open_source, for example time.monotonic")
        return Camera(int(text), clock)
    if re.match(r"[a-z]{2,6}://", text):
        return StreamedVideo(text, default_fps=default_fps, is_live=True)
    path = Path(text)
    if path.is_dir():
        return _open_folder(path, procedure, fps, default_fps)
    if not path.is_file():
        cure = "give a video, a folder of frames, the index of a webcam or the address of a camera"
        raise InputError("there is no such file or folder", path=path, cure=cure)
    if not path.stat().st_size:
        raise InputError("this file is empty", path=path, cure="copy it again")
    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise InputError("this is a single image", path=path, cure="give a video or a folder of frames")
    return StreamedVideo(str(path), default_fps=default_fps)


def _open_folder(path: Path, procedure: Procedure, fps: float | None, default_fps: float) -> Source:
    folder = RecordingFolder(path.resolve().name, None, path)
    images = folder.frames_folder()
    videos = [entry for entry in path.iterdir() if entry.suffix.lower() in VIDEO_SUFFIXES]
    if images == path:
        return FrameFolder(path, default_fps)
    if images is None and not videos:
        nested = any(entry.is_dir() for entry in path.iterdir())
        cure = "give one recording of it" if nested else "frames are .jpg or .png files"
        raise InputError("there are no images in this folder", path=path, cure=cure)
    if images is not None and not (path / RECORDING_FILE).is_file() and not folder.has_labels:
        return FrameFolder(images, default_fps)
    recording = open_recording(folder, procedure)
    if fps is not None and not isinstance(recording.source, VideoFile):
        recording = Recording(
            recording.name, recording.split, path, fps, recording.source, recording.states, recording.steps
        )
    return WatchedRecording(recording)
