"""Images from files, brought to the square size that a network takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from stormpsr.data.recording import Image, read_image

PADDING = 114  # grey, as detectors usually pad


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an image lies inside the square: `pixel_in_square = pixel * scale + offset`."""

    scale: float
    offset_x: float
    offset_y: float

    @classmethod
    def of(cls, width: int, height: int, size: int) -> Placement:
        scale = size / max(width, height)
        return cls(scale, (size - width * scale) / 2, (size - height * scale) / 2)

    def back(self, x0: float, y0: float, x1: float, y1: float) -> tuple[float, float, float, float]:
        """Corners inside the square as corner, width and height in the image."""
        left, top = (x0 - self.offset_x) / self.scale, (y0 - self.offset_y) / self.scale
        return left, top, (x1 - x0) / self.scale, (y1 - y0) / self.scale


def fit_square(image: Image, size: int) -> tuple[Image, Placement]:
    """The image inside a square of `size` pixels, its proportions kept, the rest grey."""
    height, width = image.shape[:2]
    placement = Placement.of(width, height, size)
    if (width, height) == (size, size):
        return image, placement
    inner = (max(1, round(width * placement.scale)), max(1, round(height * placement.scale)))
    shrinks = placement.scale < 1
    scaled = cv2.resize(image, inner, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    square = np.full((size, size, 3), PADDING, dtype=np.uint8)
    top, left = round(placement.offset_y), round(placement.offset_x)
    square[top : top + inner[1], left : left + inner[0]] = scaled[: size - top, : size - left]
    return square, placement


class ImageStore:
    """Keeps the squares of images that were read before, up to a limit of memory."""

    def __init__(self, size: int, max_megabytes: float = 2500) -> None:
        self.size = size
        self._room = int(max_megabytes * 1e6) // (3 * size * size)
        self._kept: dict[Path, tuple[Image, Placement]] = {}

    def square(self, path: Path) -> tuple[Image, Placement]:
        if path in self._kept:
            return self._kept[path]
        found = fit_square(read_image(path), self.size)
        if len(self._kept) < self._room:
            self._kept[path] = found
        return found
