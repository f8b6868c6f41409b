"""Frames of recordings as small JPEG images inside the page."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.sources import FrameSource, ImageFolder, Video
from stormpsr.errors import InputError

WIDTH = 160  # pixels; wider frames are made smaller
_QUALITY = 72


class Image:
    """A frame that can stand in the page."""

    __slots__ = ("height", "uri", "width")

    def __init__(self, image: NDArray[np.uint8]) -> None:
        import cv2

        height, width = image.shape[:2]
        if width > WIDTH:
            size = (WIDTH, max(round(height * WIDTH / width), 1))
            image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
        done, data = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
        if not done:
            raise InputError("a frame cannot be written as JPEG")
        self.height, self.width = image.shape[:2]
        self.uri = "data:image/jpeg;base64," + base64.b64encode(data.tobytes()).decode()


class Album:
    """Images of some frames of a recording, or the reason why there are none."""

    def __init__(self, images: Mapping[int, Image], problem: str | None = None) -> None:
        self.images = images
        self.problem = problem

    @classmethod
    def of(cls, place: Path | None, frames: Iterable[int]) -> Album:
        """Read what can be read: a report without images is better than none."""
        wanted = sorted(set(frames))
        if place is None:
            return cls({}, "the run does not say where the frames are")
        found: dict[int, Image] = {}
        try:
            for frame, image in _read(_source(place), wanted):
                found[frame] = Image(image)
        except InputError as error:
            return cls(found, str(error))
        except ImportError as error:
            return cls(found, f"images need {error.name}; run: pip install 'stormpsr[detect]'")
        return cls(found)


def _source(place: Path) -> FrameSource:
    if place.is_dir():
        return ImageFolder(place, complete=True)
    if place.is_file():
        return Video.counted(place)
    raise InputError("the frames are not there any more", path=place)


def _read(source: FrameSource, wanted: list[int]) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    inside = [frame for frame in wanted if 0 <= frame < (source.n_frames or 0)]
    return zip(inside, source.images_at(inside), strict=True)
