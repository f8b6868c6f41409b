"""Recording: the frames of a camera or file become a recording in the field's layout, usable whenever it is cut off.

`rgb/000000.jpg` and on, or `rgb.mp4`; `recording.json` with the frame rate; and `frame_times.csv`, rows of
`000000.jpg,0.0000`, the seconds from the first frame, where frames did not come evenly.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, TextIO

from stormpsr.data.images import Image
from stormpsr.data.labels import frame_name, parse_frame, parse_number
from stormpsr.data.layouts import RECORDING_FILE
from stormpsr.data.sources import Frame, Video
from stormpsr.errors import InputError, errors_at
from stormpsr.files import draft_of, naming_full_disk, read_text, replacing, write_json

FRAME_TIMES_FILE = "frame_times.csv"
_SECONDS_BETWEEN_NOTES = 2.0  # of `recording.json` while it goes on
_CLOCK = 90_000  # ticks per second of the time stamps in a video
_QUALITY = 95  # of JPEG


def read_frame_times(folder: Path) -> list[float] | None:
    """Seconds of every frame from the first one; None if nobody wrote them down."""
    path = folder / FRAME_TIMES_FILE
    if not path.is_file():
        return None
    text = read_text(path)
    times: list[float] = []
    for line, row in enumerate(text[: text.rfind("\n") + 1].splitlines(), start=1):  # one that was cut off is none
        with errors_at(path, line):
            name, comma, seconds = row.partition(",")
            if not comma or parse_frame(name) != len(times):
                raise InputError(f"{row[:40]!r} is not frame {len(times)}", cure="write it like 000012.jpg,1.2000")
            times.append(parse_number(seconds, "the time"))
    return times


def at_most(frames: Iterable[Frame], fps: float | None) -> Iterator[Frame]:
    """Frames, so many per second at most; all of them where nothing is said."""
    taken = 0
    for frame in frames:
        if fps is None or frame.time_seconds >= taken / fps - 1e-6:
            taken = taken + 1 if fps is None else int(frame.time_seconds * fps + 1e-6) + 1
            yield frame


class Recorder:
    """Writes frames one after the other into a folder that is not there yet. Close it, or use it as a context."""

    def __init__(self, folder: Path, fps: float, about: dict[str, Any] | None = None, *, video: bool = False) -> None:
        """fps: what is written until the true rate is known. about: what else `recording.json` shall say."""
        if folder.exists():
            raise InputError("there is a recording already", path=folder, cure="choose another --name")
        self.folder, self.fps, self._nominal = folder, fps, fps
        self._about, self._video = about or {}, video
        self.n_frames = 0
        self.seconds = 0.0  # from the first frame to the last
        self._first = self._noted = 0.0
        self._times: TextIO | None = None
        self._container: Any = None
        self._stream: Any = None

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, frame: Frame) -> None:
        with naming_full_disk(self.folder):
            if self._times is None:
                self._open(frame)
            assert self._times is not None
            self.seconds = frame.time_seconds - self._first
            self._times.write(f"{frame_name(self.n_frames)},{self.seconds:.4f}\n")
            self._times.flush()  # before the image, so that no image is without its time
            if self._video:
                self._encode(frame.image)
            else:
                self._write_image(frame.image)
            self.n_frames += 1
            if self.seconds - self._noted >= _SECONDS_BETWEEN_NOTES:
                self._noted = self.seconds
                self._note(finished=False)

    def close(self) -> None:
        """Say how many frames there are and how fast they came."""
        if self._times is None:
            return
        with naming_full_disk(self.folder):
            self._times.close()
            self._times = None
            if self._container is not None:
                self._container.mux(self._stream.encode())
                self._container.close()
            self._note(finished=True)
            times = read_frame_times(self.folder) or []
            step = 1 / self.fps
            if all(abs(number * step - seconds) <= step / 2 for number, seconds in enumerate(times)):
                (self.folder / FRAME_TIMES_FILE).unlink()

    # ------------------------------------------------------------------ files
    def _open(self, frame: Frame) -> None:
        self._first = frame.time_seconds
        self.folder.mkdir(parents=True)
        self._note(finished=False)
        self._times = (self.folder / FRAME_TIMES_FILE).open("w", encoding="utf-8", newline="\n")
        if not self._video:
            (self.folder / "rgb").mkdir()
            return
        import av

        height, width = frame.image.shape[:2]
        # in fragments, so that what was written can be read whenever the program ends
        flags = {"movflags": "frag_keyframe+empty_moov+default_base_moof", "flush_packets": "1"}
        self._container = av.open(str(self.folder / "rgb.mp4"), "w", options=flags)
        rate = Fraction(self._nominal).limit_denominator(1000)
        self._stream = self._container.add_stream("libx264", rate=rate)
        self._stream.width, self._stream.height = width, height
        self._stream.pix_fmt = "yuv444p" if width % 2 or height % 2 else "yuv420p"
        self._stream.time_base = self._stream.codec_context.time_base = Fraction(1, _CLOCK)
        self._stream.options = {"crf": "18", "tune": "zerolatency", "g": str(max(round(self._nominal), 1))}

    def _encode(self, image: Image) -> None:
        import av

        picture = av.VideoFrame.from_ndarray(image, format="rgb24")
        picture.pts, picture.time_base = round(self.seconds * _CLOCK), Fraction(1, _CLOCK)
        self._container.mux(self._stream.encode(picture))

    def _write_image(self, image: Image) -> None:
        import cv2

        quality = [cv2.IMWRITE_JPEG_QUALITY, _QUALITY]
        done, data = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), quality)
        if not done:
            raise InputError("the image cannot be encoded", path=self.folder)
        path = self.folder / "rgb" / frame_name(self.n_frames)
        draft = draft_of(path)
        try:
            draft.write_bytes(data.tobytes())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    def _note(self, *, finished: bool) -> None:
        if self.n_frames > 1 and self.seconds > 0:
            self.fps = round((self.n_frames - 1) / self.seconds, 4)
        counted = {"n_frames": self.n_frames} if finished else {}
        write_json(self.folder / RECORDING_FILE, {"fps": self.fps, **counted, **self._about})


def copy_video(source: Path, folder: Path, about: dict[str, Any] | None = None) -> tuple[int, float]:
    """A video file as a recording: it is copied as it is, so that frames and their times stay what they are.

    Returned are the number of its frames and its rate.
    """
    if folder.exists():
        raise InputError("there is a recording already", path=folder, cure="choose another --name")
    video = Video.counted(source)
    assert video.n_frames is not None
    fps = video.fps
    if fps is None:
        raise InputError("the video does not say how fast it is", path=source, cure="record it with --images and --fps")
    with replacing(folder / f"rgb{source.suffix.lower()}") as draft:
        shutil.copyfile(source, draft)
    write_json(folder / RECORDING_FILE, {"fps": round(fps, 4), "n_frames": video.n_frames, **(about or {})})
    return video.n_frames, fps
