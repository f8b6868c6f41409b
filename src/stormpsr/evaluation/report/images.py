"""Frames of recordings as small JPEG images inside the page."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.sources import ImageFolder, Video
from stormpsr.errors import InputError
from stormpsr.evaluation.run_folder import RecordingRun

WIDTH = 160  # pixels; wider frames are made smaller
_QUALITY = 72

OnProgress = Callable[[int, int], None]  # recordings whose images are read, of how many


@dataclass(frozen=True, slots=True)
class Image:
    """A frame that can stand in the page."""

    uri: str
    width: int
    height: int

    @classmethod
    def of(cls, image: NDArray[np.uint8]) -> Image:
        import cv2

        height, width = image.shape[:2]
        if width > WIDTH:
            size = (WIDTH, max(round(height * WIDTH / width), 1))
            image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
        done, data = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
        if not done:
            raise InputError("a frame cannot be written as JPEG")
        uri = "data:image/jpeg;base64," + base64.b64encode(data.tobytes()).decode()
        return cls(uri, width=image.shape[1], height=image.shape[0])


@dataclass(frozen=True)
class Album:
    """Images of some frames of a recording, or the reason why there are none."""

    images: Mapping[int, Image]
    problem: str | None = None

    @classmethod
    def of(cls, place: Path | None, frames: Iterable[int]) -> Album:
        """Read what can be read: a report without images is better than none."""
        if place is None:
            return cls({}, "the run does not say where the frames are")
        found: dict[int, Image] = {}
        try:
            if not place.exists():
                raise InputError("the frames are not there any more", path=place)
            source = ImageFolder(place, numbered=True) if place.is_dir() else Video.counted(place)
            inside = sorted({frame for frame in frames if 0 <= frame <= source.numbers()[-1]})
            for frame, image in zip(inside, source.images_at(inside), strict=True):
                found[frame] = Image.of(image)
        except InputError as error:
            return cls(found, str(error))
        except ImportError as error:
            return cls(found, f"images need {error.name}; run: pip install 'stormpsr[detect]'")
        return cls(found)


@dataclass(frozen=True)
class FrameReader:
    """Where the recordings of a run lie now."""

    data: Path
    on_progress: OnProgress | None = None

    def albums(self, wanted: Iterable[tuple[RecordingRun, Iterable[int]]]) -> dict[str, Album]:
        """Albums by recording. Each one's frames are read in one go, because a video is decoded from its beginning."""
        frames: dict[str, set[int]] = {}
        runs: dict[str, RecordingRun] = {}
        for run, some in wanted:
            runs[run.name] = run
            frames.setdefault(run.name, set()).update(some)
        albums: dict[str, Album] = {}
        for done, (name, run) in enumerate(runs.items(), start=1):
            albums[name] = Album.of(run.frames_in(self.data) if run.frames_path else None, frames[name])
            if self.on_progress:
                self.on_progress(done, len(runs))
        return albums
