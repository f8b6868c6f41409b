"""Images of a recording by the number of their frame, ready for a browser.

Browsers seek in videos by time and land frames beside; here every image is asked for by its number. Images in files are
handed on as they are. A video's frames are decoded here, and those beside the last one that was asked for beforehand:
ahead while somebody goes forward, and a stretch at a time while somebody goes back, because videos decode forward only.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from itertools import pairwise

from stormpsr.data.images import Image
from stormpsr.data.recorder import read_frame_times
from stormpsr.data.recording import Recording
from stormpsr.data.sources import ImageFolder, Video
from stormpsr.errors import InputError

_MOST_BYTES = 96 * 1024 * 1024  # of encoded images of one video
_AHEAD, _BEHIND = 12, 24  # frames that are decoded beforehand
_ON_THE_WAY = 60  # frames before another one that are decoded on the way to it; further ones are a jump
_STAYS_SECONDS = 0.25  # so long after a jump nothing is done beforehand: the next one may follow at once
_QUALITY = 90  # of JPEG


class RecordingFrames:
    """The images of one recording; may be asked from any thread."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.version = recording.fingerprint()
        self._video = VideoFrames(recording.source) if isinstance(recording.source, Video) else None

    def get(self, number: int) -> tuple[bytes, str]:
        """An image and its kind. Of frames without an image of their own, that of the last one before."""
        if not 0 <= number < self.recording.n_frames:
            raise InputError(f"there is no frame {number}", cure=f"the last one is {self.recording.n_frames - 1}")
        if self._video is not None:
            return self._video.get(number), "image/jpeg"
        assert isinstance(self.recording.source, ImageFolder)
        file = self.recording.source.file(number)
        return file.read_bytes(), "image/png" if file.suffix.lower() == ".png" else "image/jpeg"

    def times(self) -> list[float] | None:
        """Seconds of every frame where they are uneven; None where frames come evenly."""
        source = self.recording.source
        times = source.times() if isinstance(source, Video) else read_frame_times(self.recording.path)
        if times is None or len(times) < max(self.recording.n_frames, 3):
            return None
        times = times[: self.recording.n_frames]
        step = times[-1] / (len(times) - 1)
        uneven = any(abs(number * step - seconds) > step / 2 for number, seconds in enumerate(times))
        later = all(b > a for a, b in pairwise(times))
        return [round(seconds, 4) for seconds in times] if uneven and later else None

    def close(self) -> None:
        if self._video is not None:
            self._video.close()


class VideoFrames:
    """Decoded and encoded again, one after the other; the latest are kept."""

    def __init__(self, source: Video, most_bytes: int = _MOST_BYTES) -> None:
        self._source, self._most_bytes = source, most_bytes
        self._n_frames = source.n_frames or 0
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._n_bytes = 0
        self._decoding = threading.Lock()  # one decoder
        self._changed = threading.Condition()  # guards what follows, and `_kept`
        self._waiting: list[int] = []  # frames that somebody wants now: they go before what is done beforehand
        self._at, self._backwards, self._jumped, self._closed = 0, False, False, False
        self._next = 0
        self._images: Iterator[Image] | None = None
        self._thread: threading.Thread | None = None

    def get(self, number: int) -> bytes:
        with self._changed:
            found = self._kept.get(number)
            self._backwards = number < self._at if number != self._at else self._backwards
            self._jumped = abs(number - self._at) > _ON_THE_WAY
            self._at = number
            if found is not None:
                self._kept.move_to_end(number)
                self._wake()
                return found
            self._waiting.append(number)
        try:
            found = self._decode(number)
        finally:
            with self._changed:
                self._waiting.remove(number)
                self._wake()
        return found

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # ------------------------------------------------------------------ decoding
    def _numbers(self) -> Iterator[int]:
        while True:
            yield self._next

    def _decode(self, number: int) -> bytes:
        with self._decoding:
            with self._changed:
                # what others want shortly before it comes first: to go back later means to decode it all again
                before = sorted({other for other in self._waiting if number - _ON_THE_WAY < other < number})
            for other in before:
                self._decode_one(other)
            return self._decode_one(number)

    def _decode_one(self, number: int) -> bytes:
        with self._changed:
            if (found := self._kept.get(number)) is not None:
                return found
        if self._images is None:
            self._images = self._source.images_at(self._numbers())  # the video stays open between two frames
        self._next = number
        try:
            data = _encode(next(self._images))
        except BaseException:
            self._images = None
            raise
        with self._changed:
            self._kept[number] = data
            self._n_bytes += len(data)
            while self._n_bytes > self._most_bytes and len(self._kept) > 2 * (_AHEAD + _BEHIND):
                self._n_bytes -= len(self._kept.popitem(last=False)[1])
        return data

    # ------------------------------------------------------------------ beforehand
    def _wake(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._work, name="frames", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _wanted(self) -> int | None:
        """The next frame to decode beforehand; None if all are there."""
        if not self._backwards:
            ahead = range(self._at + 1, min(self._at + 1 + _AHEAD, self._n_frames))
            return next((number for number in ahead if number not in self._kept), None)
        behind = range(max(self._at - _BEHIND, 0), self._at)
        missing = [number for number in behind if number not in self._kept]
        near = [number for number in missing if number >= self._at - _BEHIND // 2]
        return missing[0] if near else None  # from the far end, because decoding goes forward

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (not self._waiting and self._wanted() is not None))
                if self._jumped and not self._closed:
                    self._jumped = False
                    self._changed.wait_for(lambda: self._closed or self._waiting, timeout=_STAYS_SECONDS)
                    continue
                if self._closed:
                    return
                number = self._wanted()
            if number is not None:
                try:
                    self._decode(number)
                except InputError:  # whoever wants the frame itself is told
                    with self._changed:
                        self._backwards, self._at = False, self._n_frames


def _encode(image: Image) -> bytes:
    import cv2

    done, data = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    if not done:
        raise InputError("the image cannot be encoded")
    return bytes(data)
