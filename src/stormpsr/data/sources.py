"""Where frames come from: a folder of images, a video file, a webcam, a network camera; a recording is one, too.

Every source gives frames in order with times in seconds from its first one. What goes wrong underway is said after the
last good frame, so that nothing that was recognised until then is lost. Sources in files also give single frames by
their number. Names and complaints never show the password of a camera's address.
"""

from __future__ import annotations

import hashlib
import math
import re
import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.images import MOST_PIXELS, Image, check_pixels, read_image
from stormpsr.data.layouts import IMAGE_SUFFIXES, RecordingAbout, RecordingFolder, is_frame_number
from stormpsr.data.remote import is_store_address, local_path
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

VIDEO_SUFFIXES = frozenset({".mp4", ".mkv", ".avi", ".mov", ".webm"})
Clock = Callable[[], float]  # seconds, from any moment on
_PATIENCE_SECONDS = 10  # without an image, a camera counts as gone
_MISSES_AT_ONCE = 30  # failed reads in a row after which a webcam counts as gone
_WITHOUT_TIMES = ("mpjpeg", "mjpeg")  # formats of cameras in which FFmpeg counts 25 frames a second, however many come
_SAMPLED_IMAGES, _SAMPLED_BYTES = 16, 1 << 16  # of a folder, and of each place of a video, for its fingerprint
_NEARBY = 50  # frames of a video up to which going on is cheaper than jumping
_SAYS_WHAT_OTHERS_NEED = ("h264",)  # codecs in which a frame that no other one needs can be left out while decoding


@dataclass(frozen=True, eq=False, slots=True)
class Frame:
    """One image and its time."""

    image: Image  # height, width, 3
    index: int
    time_seconds: float


class FrameSource(ABC):
    """Frames in order. `name` is for complaints and titles."""

    name: str
    path: Path  # of what is in files
    fps: float | None  # nominal; None if nobody says
    n_frames: int | None  # None if nobody knows
    is_live: bool = False

    @abstractmethod
    def frames(self, start: int = 0) -> Iterator[Frame]:
        """All frames from number `start` on."""

    def images(self, start: int = 0) -> Iterator[Image]:
        """The same without their times."""
        return (frame.image for frame in self.frames(start))

    def images_at(self, numbers: Iterable[int]) -> Iterator[Image]:
        """Single frames; in ascending order they come fastest. The next number is asked for when the next image is."""
        raise InputError("single frames cannot be asked for", path=self.name)

    def numbers(self) -> Sequence[int]:
        """The numbers of all frames, where they are known before the frames are read."""
        return range(self.n_frames or 0)

    def file(self, number: int) -> Path | None:
        """The file that holds one frame alone."""
        return None

    def fingerprint(self) -> str:
        """Changes when the images do: by names, sizes, and a sample of their contents, since reading all takes long."""
        raise InputError("a live source has no fingerprint", path=self.name)


# ---------------------------------------------------------------------- files
class ImageFolder(FrameSource):
    """One image per file.

    Files called after their number may leave numbers out: those frames were dropped, and the image before stands for
    them. Files with other names come by name. numbered: frames are those files that are called after their number, and
    no others. frame_step: also, from the first to the last every so many have an image, as labels need it.
    """

    def __init__(
        self, path: Path, fps: float | None = None, *, numbered: bool = False, frame_step: int | None = None
    ) -> None:
        self.path, self.fps, self.name = path, fps, str(path)
        entries = sorted(path.iterdir())
        files = [e for e in entries if e.suffix.lower() in IMAGE_SUFFIXES and not e.name.startswith(".")]
        called = [entry for entry in files if is_frame_number(entry.stem)]
        by_number = numbered or len(called) == len(files)
        if not (called if by_number else files):
            cure = "images are called after their frame: 000000.jpg" if files else "frames are .jpg or .png files"
            raise InputError("there are no images in this folder", path=path, cure=cure)
        numbers = {int(entry.stem): entry for entry in called} if by_number else dict(enumerate(files))
        if by_number and len(numbers) < len(called):
            raise InputError("two images have the same number", path=path, cure="keep one of them")
        if frame_step is not None:
            wanted = range(min(numbers), max(numbers), frame_step)
            missing = next((number for number in wanted if number not in numbers), None)
            if missing is not None:
                cure = f"the images go up to {max(numbers)}: copy the missing ones again"
                raise InputError(f"the image of frame {missing} is missing", path=path, cure=cure)
        self._set(numbers)

    @classmethod
    def of(cls, path: Path, files: Mapping[int, Path]) -> ImageFolder:
        """Certain files, by number."""
        folder = cls.__new__(cls)
        folder.path, folder.name, folder.fps = path, str(path), None
        folder._set(files)
        return folder

    def _set(self, files: Mapping[int, Path]) -> None:
        self._files = dict(sorted(files.items()))
        self._numbers = list(self._files)
        self.n_frames = len(self._files)

    def frames(self, start: int = 0) -> Iterator[Frame]:
        first, fps = next(iter(self._files)), self.fps or 1.0
        for number, file in self._files.items():
            if number >= start:
                yield Frame(read_image(file), number, (number - first) / fps)

    def images_at(self, numbers: Iterable[int]) -> Iterator[Image]:
        return (read_image(self.file(number)) for number in numbers)

    def numbers(self) -> Sequence[int]:
        return self._numbers

    def file(self, number: int) -> Path:
        """The file of a frame, or of the last one before it; found without copying the numbers, which may be many."""
        return self._files[self._numbers[max(bisect_right(self._numbers, number) - 1, 0)]]

    def fingerprint(self) -> str:
        files = list(self._files.values())
        said = "\n".join(f"{file.name} {file.stat().st_size}" for file in files)
        return _digest(said, (file.read_bytes() for file in files[:: math.ceil(len(files) / _SAMPLED_IMAGES)]))


def rows_that_show(numbers: Sequence[int], wanted: int | NDArray[np.integer]) -> NDArray[np.intp]:
    """Where, among the ascending numbers of images, stand those that show certain frames: the last that is not later.

    Frames before the first image are shown by it.
    """
    return np.maximum(np.searchsorted(numbers, wanted, side="right") - 1, 0)


class Video(FrameSource):
    """A video file, or the address of a network camera. Times are those of the video, evenly counted if it has none.

    A camera that sends JPEG images one after the other gives no times: there the clock counts.

    n_frames: how many there are, because labels count them. Then all of them come, damaged ones too, and no more;
    without it a damaged frame is left out like one that was never sent.
    """

    def __init__(
        self, address: str | Path, *, default_fps: float = 1.0, n_frames: int | None = None, is_live: bool = False
    ) -> None:
        self._address, self.is_live = str(address), is_live
        self.name = _without_secrets(self._address) if is_live else self._address
        self.path = Path(self.name)
        self._default_fps, self._exactly, self.n_frames, self.fps = default_fps, n_frames, n_frames, None
        if not is_live and not self.path.is_file():  # a pipe would be waited for forever
            raise InputError("this is not a video file", path=self.path)

    @classmethod
    def counted(cls, path: Path, n_frames: int | None = None) -> Video:
        """A video file with labels: its rate is known, and its frames are counted unless somebody says how many."""
        video = cls(path)
        with video._stream() as stream:
            video.fps = float(stream.average_rate) if stream.average_rate else None
        video._exactly = video.n_frames = n_frames or len(video._stamps)
        if not video.n_frames:
            raise InputError("the video has no frames", path=path)
        return video

    def check_count(self) -> None:
        """Refuse a video that has other frames than somebody said."""
        if self._exactly is not None and len(self._stamps) != self._exactly:
            problem = f"the video has {len(self._stamps)} frames, but {self._exactly} are announced"
            cure = "copy the video again, or correct n_frames in recording.json"
            raise InputError(problem, path=self.path, cure=cure)

    def frames(self, start: int = 0) -> Iterator[Frame]:
        number = n_corrupt = 0
        seconds = 0.0
        with self._stream(lambda: number) as stream:
            if not self.is_live:
                stream.thread_type = "AUTO"
            self.fps = float(stream.average_rate) if stream.average_rate else None
            self.n_frames = self._exactly or stream.frames or None
            announced = stream.container.duration / 1e6 if stream.container.duration else 0.0
            times = _Times(self.fps or self._default_fps)
            by_clock = self.is_live and stream.container.format.name in _WITHOUT_TIMES
            for image in stream.container.decode(stream):
                if number == self._exactly:
                    break
                if image.is_corrupt and self._exactly is None:
                    n_corrupt += 1  # a dropped frame
                    continue
                seconds = times.of(time.monotonic() if by_clock else image.time, number)
                if number >= start:
                    yield Frame(_upright(image), number, seconds)
                number, n_corrupt = number + 1, 0
        self._check_end(number, n_corrupt, seconds, announced)

    def _check_end(self, n_frames: int, n_corrupt: int, seconds: float, announced: float) -> None:
        """Say so if the end came too early. Decoders often do not: they stop at the last whole frame."""
        if n_frames == 0:
            raise InputError("there are no frames in it", path=self.name)
        if self.is_live:
            raise InputError(f"the camera stopped sending after {n_frames} frames", path=self.name, cure="start again")
        if self._exactly is not None:
            early, cure = n_frames < self._exactly, "copy it again, or correct n_frames in recording.json"
        else:
            step = 1 / (self.fps or self._default_fps)
            early = bool(n_corrupt) or n_frames + 1 < (self.n_frames or 0) or seconds + 3 * step < announced
            cure = "copy it again"
        if early:
            of = f" of {self.n_frames}" if self.n_frames else ""
            raise InputError(f"the video ends too early, after {n_frames}{of} frames", path=self.name, cure=cure)

    def images_at(self, numbers: Iterable[int]) -> Iterator[Image]:
        """Jumps to the last place before each frame from which the video can be decoded.

        On the way from there, frames that no other one needs are left out where the codec says which they are.
        """
        stamps = self._stamps
        can_jump = None not in stamps and len(set(stamps)) == len(stamps)
        with self._stream() as stream:
            stream.thread_type = "AUTO"
            codec, wanted = stream.codec_context, 0
            can_leave_out = codec.name in _SAYS_WHAT_OTHERS_NEED

            def decode() -> Iterator[Any]:
                for packet in stream.container.demux(stream):
                    if can_leave_out:
                        early = packet.pts is not None and packet.pts < wanted
                        codec.skip_frame = "NONREF" if early else "DEFAULT"
                    yield from packet.decode()

            decoded: Iterator[Any] = iter(())
            at = len(stamps)
            for number in numbers:
                if can_jump:
                    wanted = stamps[number]
                if can_jump and not at < number <= at + _NEARBY:
                    stream.container.seek(wanted, stream=stream)
                    decoded = decode()
                for image in decoded:
                    at = bisect_left(stamps, image.pts)
                    if at >= number:
                        break
                if at == number:
                    yield _upright(image)
                else:  # not every format can jump, or jumps where it should
                    yield from islice(self.images(number), 1)
                    at = len(stamps)

    @cached_property
    def _stamps(self) -> list[Any]:
        """The time stamp of every frame, in order: frames are counted, never guessed from a rate."""
        with self._stream() as stream:
            packets = stream.container.demux(stream)
            stamps = [packet.pts for packet in packets if packet.size and not packet.is_discard]
        return stamps if None in stamps else sorted(stamps)

    def times(self) -> list[float] | None:
        """Seconds of every frame from the first, by the video's own stamps; None if it has none."""
        stamps = self._stamps
        if None in stamps:
            return None
        with self._stream() as stream:
            return [float((stamp - stamps[0]) * stream.time_base) for stamp in stamps]

    def fingerprint(self) -> str:
        if self.is_live:
            return super().fingerprint()
        size, sample = self.path.stat().st_size, []
        with self.path.open("rb") as file:
            for at in (0, size // 2, max(size - _SAMPLED_BYTES, 0)):
                file.seek(at)
                sample.append(file.read(_SAMPLED_BYTES))
        return _digest(f"{self.path.name} {size} {self.n_frames}", sample)

    @contextmanager
    def _stream(self, n_frames: Callable[[], int] = lambda: 0) -> Iterator[Any]:
        """The opened video; what FFmpeg complains of is said in our words, for its own show the address."""
        import av

        # PyAV's own default. Older torchvisions switch FFmpeg's messages on: a decoding thread that has one waits for
        # Python while Python, in a jump, waits for the thread.
        av.logging.set_level(None)
        more: dict[str, Any] = {"timeout": _PATIENCE_SECONDS} if self.is_live else {}
        more["metadata_errors"] = "replace"  # titles and the like may be written in any way
        if self._address.startswith("rtsp"):
            more["options"] = {"rtsp_transport": "tcp"}
        try:
            with av.open(self._address, **more) as container:
                if not container.streams.video:
                    raise InputError("there is no video in it", path=self.name)
                stream = container.streams.video[0]
                if stream.codec_context is None:
                    raise InputError("its video has a format that is not known", path=self.name, cure="encode it again")
                check_pixels(stream.width, stream.height, self.name)
                stream.codec_context.options = {"max_pixels": str(MOST_PIXELS)}  # a later frame may be larger
                yield stream
        except av.error.FFmpegError as error:
            raise self._complaint(error, n_frames()) from None

    def _complaint(self, error: Exception, n_frames: int) -> InputError:
        reason = (getattr(error, "strerror", None) or str(error)).replace(self._address, self.name)
        if isinstance(error, MemoryError):  # FFmpeg's limit: it has not even asked for it
            reason = "a table or an image in it claims an impossible size"
        if n_frames == 0:
            cure = "check address, network and password" if self.is_live else "copy or encode it again"
            return InputError(f"it cannot be opened ({reason})", path=self.name, cure=cure)
        what = "the camera is gone" if self.is_live else "the video is broken"
        return InputError(f"{what} after {n_frames} frames ({reason})", path=self.name)


def _upright(image: Any) -> Image:
    """A decoded image as the person saw it who held the camera: phones write how far to turn it."""
    turns = round(getattr(image, "rotation", 0) / 90) % 4
    return np.ascontiguousarray(np.rot90(image.to_ndarray(format="rgb24"), turns))


def _without_secrets(address: str) -> str:
    """An address without user, password and query, where cameras take passwords, too."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _digest(text: str, contents: Iterable[bytes]) -> str:
    made = hashlib.sha256(text.encode())
    for content in contents:
        made.update(content)
    return made.hexdigest()[:16]


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
class Camera(FrameSource):
    """A webcam by its index. Its frames carry no times, so a clock is read, which tests may replace."""

    is_live = True

    def __init__(self, index: int, clock: Clock = time.monotonic) -> None:
        self.index, self._clock, self.fps, self.n_frames = index, clock, None, None
        self.name = f"camera {index}"

    def frames(self, start: int = 0) -> Iterator[Frame]:
        import cv2

        messages = getattr(cv2.utils, "logging", cv2)  # the latter before OpenCV 4.13
        loud = messages.getLogLevel()
        messages.setLogLevel(0)  # silent: we say ourselves that there is no camera
        camera: Any = cv2.VideoCapture(self.index)
        messages.setLogLevel(loud)
        try:
            if not camera.isOpened():
                raise InputError(f"there is no camera {self.index}", cure="plug it in, or try another index")
            began, number, misses = self._clock(), 0, 0
            while misses < _MISSES_AT_ONCE:
                there, image = camera.read()
                if not there:
                    misses += 1
                    continue
                misses = 0
                if number >= start:
                    yield Frame(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), number, self._clock() - began)
                number += 1
        finally:
            camera.release()
        raise InputError(f"camera {self.index} is gone after {number} frames", cure="check its cable, then start again")


class FrameSequence(FrameSource):
    """Frames, or images, that somebody else makes; images come evenly."""

    def __init__(self, items: Iterable[Frame] | Iterable[Image], fps: float) -> None:
        self.name, self.fps, self._items = "images", fps, items
        self.n_frames = len(items) if isinstance(items, Sized) else None

    def frames(self, start: int = 0) -> Iterator[Frame]:
        for number, item in enumerate(self._items):
            if number < start:
                continue
            if isinstance(item, Frame):
                yield item
            elif isinstance(item, np.ndarray) and item.ndim == 3 and item.shape[2] == 3 and item.dtype == np.uint8:
                yield Frame(item, number, number / float(self.fps or 1))
            else:
                what = f"{item.dtype} {item.shape}" if isinstance(item, np.ndarray) else type(item).__name__
                cure = "an image is an array of uint8: height, width, and 3 for red, green and blue"
                raise InputError(f"image {number} is {what}", cure=cure)


class InRealTime(FrameSource):
    """A recording as if a camera showed it now; for ever, where it is to be repeated. Numbers begin anew with it."""

    is_live = True

    def __init__(self, source: FrameSource, *, repeat: bool = False, clock: Clock = time.monotonic) -> None:
        self.name, self.fps, self.n_frames = source.name, source.fps, None
        self._source, self._repeat, self._clock = source, repeat, clock
        self._stopped = threading.Event()

    def frames(self, start: int = 0) -> Iterator[Frame]:
        began = self._clock()
        while not self._stopped.is_set():
            first, last, step = None, 0.0, 1 / float(self.fps or 10)
            for frame in self._source.frames(start):
                first = self._clock() - began - frame.time_seconds if first is None else first
                last = first + frame.time_seconds
                if self._stopped.wait(max(began + last - self._clock(), 0.0)):
                    return
                yield replace(frame, time_seconds=last)
            if not self._repeat:
                return
            self._stopped.wait(max(began + last + step - self._clock(), 0.0))

    def stop(self) -> None:
        self._stopped.set()


Health = Literal["starting", "ok", "stalled", "lost", "ended"]


class LatestOnly:
    """Reads a live source in a thread and keeps the latest frame only, so that a slow reader never falls behind.

    Frames that are passed over were dropped, which recognition by time stamps is made for. A camera that is gone is
    opened again, for ever, after pauses that grow; one that stalls is given up and opened anew. Over such gaps times go
    on by the clock and numbers where they were, never back. A camera that cannot be opened the first time is an error,
    unless it is to be waited for.
    """

    def __init__(
        self,
        source: FrameSource,
        *,
        wait_for_first: bool = False,
        stall_seconds: float = 5.0,
        pauses: tuple[float, float] = (0.5, 30.0),
        clock: Clock = time.monotonic,
    ) -> None:
        """stall_seconds: without a frame, the camera counts as stalled; after three times as long it is given up."""
        self._source, self._wait_for_first, self._clock = source, wait_for_first, clock
        self._stall_seconds, self._pauses = stall_seconds, pauses
        self._changed = threading.Condition()
        self._latest: Frame | None = None
        self._newest: tuple[int, float] | None = None  # number and time of the frame that came last
        self._error: BaseException | None = None
        self._closed = False
        self._attempt = 0  # threads of earlier attempts are not listened to
        self._threads: list[threading.Thread] = []
        self._began = self._heard = clock()
        self.health: Health = "starting"
        self.problem = ""  # why the camera is gone
        self.dropped = self.received = 0
        self.arrived = 0.0  # when, by the clock, the frame came that was taken last

    # ------------------------------------------------------------------ reading
    def _start(self) -> None:
        self._attempt += 1
        thread = threading.Thread(target=self._read, args=(self._attempt,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _read(self, attempt: int) -> None:
        pause = self._pauses[0]
        while self._is_current(attempt):
            before = self.received
            try:
                shift: tuple[int, float] | None = None
                for frame in self._source.frames():
                    shift = self._shift_to(frame) if shift is None else shift
                    number, seconds = frame.index + shift[0], max(frame.time_seconds + shift[1], 0.0)
                    if not self._put(replace(frame, index=number, time_seconds=seconds), attempt):
                        return
                problem: BaseException | None = None
            except BaseException as error:  # handed on to the reader, unless the camera comes back
                problem = error
            with self._changed:
                if attempt != self._attempt or self._closed:
                    return
                comes_back = isinstance(problem, InputError) and not isinstance(self._source, InRealTime)
                if not comes_back or not (self.received or self._wait_for_first):
                    self._error, self.health = problem, "ended"
                    self._changed.notify_all()
                    return
                self.health, self.problem = "lost", str(problem)
                self._changed.notify_all()
                pause = self._pauses[0] if self.received > before else min(2 * pause, self._pauses[1])
                self._changed.wait_for(lambda: self._closed, timeout=pause)

    def _shift_to(self, first: Frame) -> tuple[int, float]:
        """What is added to the numbers and times of a camera that was opened, by its first frame.

        The first time they are taken as they are. After a gap the clock says how late it is; but cameras whose own
        clock is fast were ahead of it, and then times go on behind the last one.
        """
        if self._newest is None:
            self._began = self._clock() - first.time_seconds
            return 0, 0.0
        number, seconds = self._newest
        seconds = max(self._clock() - self._began, seconds + 1 / float(self._source.fps or 10))
        return number + 1 - first.index, seconds - first.time_seconds

    def _is_current(self, attempt: int) -> bool:
        with self._changed:
            return attempt == self._attempt and not self._closed

    def _put(self, frame: Frame, attempt: int) -> bool:
        with self._changed:
            if attempt != self._attempt or self._closed:
                return False
            self.dropped += self._latest is not None
            self._latest, self.health, self.problem = frame, "ok", ""
            self._newest = frame.index, frame.time_seconds
            self.received += 1
            self._heard = self._clock()
            self._changed.notify_all()
            return True

    # ------------------------------------------------------------------ taking
    def take(self, timeout: float | None = None) -> Frame | None:
        """The next frame; None if none came within the time, or if the source has ended (see `health`)."""
        with self._changed:
            if not self._threads:
                self._began = self._heard = self._clock()
                self._start()
            self._changed.wait_for(lambda: self._latest is not None or self.health == "ended", timeout=timeout)
            frame, self._latest = self._latest, None
            self.arrived = self._heard
            if frame is None and self._error is not None:
                error, self._error = self._error, None
                raise error
            if frame is None and self.health in ("ok", "stalled", "starting"):
                self._watch_stall()
            return frame

    def _watch_stall(self) -> None:
        silent = self._clock() - self._heard
        if silent > self._stall_seconds and self.health != "starting":
            self.health = "stalled"
        if silent > 3 * self._stall_seconds and (self.received or self._wait_for_first):
            self.health, self.problem, self._heard = "lost", "it sends nothing", self._clock()
            self._start()

    def frames(self) -> Iterator[Frame]:
        """All frames that are taken, until the source ends."""
        try:
            while True:
                frame = self.take(timeout=1.0)
                if frame is not None:
                    yield frame
                elif self.health == "ended":
                    return
        finally:
            self.close()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if isinstance(self._source, InRealTime):
            self._source.stop()
        for thread in self._threads[-1:]:  # a camera that is being read should be released before the program ends
            thread.join(timeout=2)


# ---------------------------------------------------------------------- by name
SourceLike = str | int | Path | FrameSource | Iterable[Frame] | Iterable[Image]


def open_source(
    source: SourceLike, procedure: Procedure, *, fps: float | None = None, clock: Clock = time.monotonic
) -> FrameSource:
    """A source as people write it: an index, an address, a file or a folder; or one that is there already.

    Files and folders may be in a store (s3://bucket/recording): they are fetched first.

    fps: of images that say nothing about it; the procedure's where it is not given.
    """
    default_fps = fps or procedure.fps
    if isinstance(source, FrameSource):
        return source
    if not isinstance(source, str | int | Path):
        return FrameSequence(source, default_fps)
    text = str(local_path(source)) if isinstance(source, str) and is_store_address(source) else str(source)
    if re.fullmatch(r"[0-9]{1,3}", text) and not Path(text).exists():
        return Camera(int(text), clock)
    if re.match(r"[a-z]{2,6}://", text):
        return Video(text, default_fps=default_fps, is_live=True)
    path = Path(text)
    if path.is_dir():
        return _open_folder(path, procedure, fps, default_fps)
    if not path.is_file():
        problem = "this is neither a file nor a folder" if path.exists() else "there is no such file or folder"
        cure = "give a video, a folder of frames, the index of a webcam or the address of a camera"
        raise InputError(problem, path=path, cure=cure)
    if not path.stat().st_size:
        raise InputError("this file is empty", path=path, cure="copy it again")
    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise InputError("this is a single image", path=path, cure="give a video or a folder of frames")
    return Video(path, default_fps=default_fps)


def _open_folder(path: Path, procedure: Procedure, fps: float | None, default_fps: float) -> FrameSource:
    from stormpsr.data.layouts import RECORDING_FILE
    from stormpsr.data.recording import open_recording  # a recording is a source itself

    folder = RecordingFolder(path.resolve().name, None, path)
    images = folder.frames_folder()
    if images == path:
        return ImageFolder(path, default_fps)
    if images is None and not any(entry.suffix.lower() in VIDEO_SUFFIXES for entry in path.iterdir()):
        nested = any(entry.is_dir() for entry in path.iterdir())
        cure = "give one recording of it" if nested else "frames are .jpg or .png files"
        raise InputError("there are no images in this folder", path=path, cure=cure)
    if images is not None and not (path / RECORDING_FILE).is_file() and not folder.has_labels:
        return ImageFolder(images, default_fps)
    recording = open_recording(folder, procedure)
    return recording if fps is None or images is None else replace(recording, fps=fps)


def frames_of(folder: RecordingFolder, about: RecordingAbout | None = None) -> ImageFolder | Video:
    """The frames of a recording: its numbered images, none missing, or its one video.

    Where `about` is left out, images may be missing, and frames of a video are counted.
    """
    images = folder.frames_folder()
    if images is not None:
        return ImageFolder(images, numbered=True, frame_step=about.frame_step if about else None)
    videos = sorted(entry for entry in folder.path.iterdir() if entry.suffix.lower() in VIDEO_SUFFIXES)
    if len(videos) == 1:
        return Video.counted(videos[0], about.n_frames if about else None)
    problem = f"{len(videos)} videos and no images" if videos else "neither images nor a video"
    raise InputError(problem, path=folder.path, cure="a recording has images in rgb/, or one video file")
