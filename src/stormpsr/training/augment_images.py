"""Variations of training images: colour, blur, and mild changes of place.

Nothing is mirrored unless asked for, because left and right are different parts; images are neither put together
(mosaic) nor mixed, because states differ by one small part, which such images hide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from stormpsr.data.images import PADDING, Image
from stormpsr.errors import InputError

Corners = tuple[float, float, float, float]  # x0, y0, x1, y1 in pixels


@dataclass(frozen=True, slots=True)
class AugmentationSettings:
    """How far images are changed. Zero everywhere leaves them alone."""

    brightness: float = 0.3  # gain from 1 - b to 1 + b
    contrast: float = 0.3
    saturation: float = 0.5
    tint: float = 0.08  # gain of each colour for itself
    blur: float = 0.2  # share of images that are blurred
    noise: float = 4.0  # greatest standard deviation, in grey levels of 255
    rotation_degrees: float = 12.0
    scale: float = 0.2  # from 1 - s to 1 + s
    shift: float = 0.1  # of the image's width and height
    flip: float = 0.0  # share of images that are mirrored

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not value >= 0 or (name in ("blur", "flip", "scale", "brightness", "contrast") and value > 1):
                raise InputError(f"augmentation: {name} is {value}", cure="shares lie between 0 and 1, nothing is less")


def augment(
    image: Image, box: Corners | None, settings: AugmentationSettings, rng: np.random.Generator
) -> tuple[Image, Corners | None]:
    """A changed copy of a square image and of the box in it.

    An image with a box is only moved so far that the whole box stays visible: the state must still be readable.
    """
    moved, moved_box = _move(image, box, settings, rng)
    return _recolour(moved, settings, rng), moved_box


def _move(
    image: Image, box: Corners | None, settings: AugmentationSettings, rng: np.random.Generator
) -> tuple[Image, Corners | None]:
    size = image.shape[0]
    for _ in range(3):
        matrix_23 = _random_affine(size, settings, rng)
        moved_box = None if box is None else _moved_corners(box, matrix_23)
        if moved_box is None or (min(moved_box) >= 0 and max(moved_box) <= size):
            border = (PADDING, PADDING, PADDING)
            # boxes are measured from the image's edge, OpenCV's pixels from their middle
            in_pixels_23 = matrix_23.copy()
            in_pixels_23[:, 2] += matrix_23[:, :2] @ (0.5, 0.5) - 0.5
            moved = cv2.warpAffine(image, in_pixels_23, (size, size), flags=cv2.INTER_LINEAR, borderValue=border)
            return np.asarray(moved, dtype=np.uint8), moved_box
    return image, box


def _random_affine(size: int, settings: AugmentationSettings, rng: np.random.Generator) -> NDArray[np.float64]:
    angle = rng.uniform(-1, 1) * settings.rotation_degrees
    scale = 1 + rng.uniform(-1, 1) * settings.scale
    middle = size / 2
    matrix_23 = np.asarray(cv2.getRotationMatrix2D((middle, middle), angle, scale), dtype=np.float64)
    matrix_23[:, 2] += rng.uniform(-1, 1, 2) * settings.shift * size
    if rng.random() < settings.flip:
        matrix_23[0] *= -1
        matrix_23[0, 2] += size
    return matrix_23


def _moved_corners(box: Corners, matrix_23: NDArray[np.float64]) -> Corners:
    """An upright box around what was in the box.

    The object does not fill the corners of its box, so a box around the turned corners is too large, and one around
    the turned middles of its sides too small: take the mean of both.
    """
    x0, y0, x1, y1 = box
    cx, cy = (x0 + x1) / 2, (y0 + y1) / 2
    corners = np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])
    sides = np.array([(cx, y0), (x1, cy), (cx, y1), (x0, cy)])
    outer, inner = (points @ matrix_23[:, :2].T + matrix_23[:, 2] for points in (corners, sides))
    low = (outer.min(axis=0) + inner.min(axis=0)) / 2
    high = (outer.max(axis=0) + inner.max(axis=0)) / 2
    return float(low[0]), float(low[1]), float(high[0]), float(high[1])


def _recolour(image: Image, settings: AugmentationSettings, rng: np.random.Generator) -> Image:
    """Saturation, contrast, brightness and tint are one 3 x 4 matrix, which is ten times faster than one by one."""
    if rng.random() < settings.blur:
        image = np.asarray(cv2.GaussianBlur(image, (3, 3), rng.uniform(0.4, 1.2)), dtype=np.uint8)
    saturation = 1 + rng.uniform(-1, 1) * settings.saturation
    contrast = 1 + rng.uniform(-1, 1) * settings.contrast
    gains_3 = (1 + rng.uniform(-1, 1) * settings.brightness) * (1 + rng.uniform(-1, 1, 3) * settings.tint)
    level = float(np.mean(cv2.mean(image)[:3]))
    matrix_33 = contrast * (saturation * np.eye(3) + (1 - saturation) / 3)
    matrix_34 = gains_3[:, None] * np.column_stack([matrix_33, np.full(3, (1 - contrast) * level)])
    coloured = np.asarray(cv2.transform(image, matrix_34), dtype=np.uint8)
    if not settings.noise:
        return coloured
    # a piece of one large sheet of noise: drawing it anew takes longer than everything else
    sheet = _noise_sheet(coloured.size)
    start = int(rng.integers(len(sheet) - coloured.size + 1))
    piece = sheet[start : start + coloured.size].reshape(coloured.shape)
    return np.asarray(
        cv2.scaleAdd(piece, rng.uniform(0, settings.noise), coloured.astype(np.float32)).clip(0, 255), dtype=np.uint8
    )


@lru_cache(maxsize=2)
def _noise_sheet(pixels: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(pixels * 8, dtype=np.float32)
