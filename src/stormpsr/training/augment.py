"""Variations of training images: colour, blur, and mild changes of place.

`augment_batch` varies whole batches in torch, on whatever device they are; `augment_image` varies one image and the box
in it in OpenCV, before it becomes part of a batch. Nothing is mirrored unless asked for, because left and right are
different parts; images are neither put together (mosaic) nor mixed, because states differ by one small part, which such
images hide. All random numbers come from one generator, so that images are varied the same way when training is
resumed.

Shape legend: B images, S pixels of a side, 3 colours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Literal

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from stormpsr.data.images import PADDING, Image
from stormpsr.errors import InputError
from stormpsr.models.locator import Motion
from stormpsr.yaml_loader import STRICT_KEYS

Corners = tuple[float, float, float, float]  # x0, y0, x1, y1 in pixels
_AT_MOST_ONE = ("blur", "flip", "erase", "scale", "brightness", "contrast")


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How far images are changed. Zero everywhere leaves them alone."""

    brightness: float = 0.3  # gain from 1 - b to 1 + b
    contrast: float = 0.3
    saturation: float = 0.5
    tint: float = 0.08  # gain of each colour for itself
    rotation_degrees: float = 12.0
    scale: float = 0.2  # from 1 - s to 1 + s
    shift: float = 0.1  # of the side

    __pydantic_config__ = STRICT_KEYS

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if not value >= 0 or (name in _AT_MOST_ONE and value > 1):
                raise InputError(f"augmentation: {name} is {value}", cure="shares lie between 0 and 1, nothing is less")


@dataclass(frozen=True, slots=True)
class ImageAugmentation(Augmentation):
    """What only single images have: the detector's."""

    blur: float = 0.2  # share of images that are blurred
    noise: float = 4.0  # greatest standard deviation, in grey levels of 255
    flip: float = 0.0  # share of images that are mirrored


@dataclass(frozen=True, slots=True)
class BatchAugmentation(Augmentation):
    """What only batches have: the encoder's."""

    erase: float = 0.0  # share of images in which a rectangle is painted over, as if by a hand


STRENGTHS: dict[Literal["light", "strong"], BatchAugmentation] = {
    "light": BatchAugmentation(0.15, 0.15, 0.2, 0.03, rotation_degrees=5.0, scale=0.05, shift=0.03),
    "strong": BatchAugmentation(0.35, 0.35, 0.5, 0.08, rotation_degrees=45.0, scale=0.15, shift=0.08, erase=0.3),
}


# ---------------------------------------------------------------------- batches
def augment_batch(
    image_BSS3: Tensor, settings: BatchAugmentation, generator: torch.Generator, *, move: bool = True
) -> Tensor:
    """Changed copies as float from 0 to 255; `generator` is a CPU one, so that all devices draw the same numbers.

    Images that were moved when they were cut out (`draw_motion`) need not be moved again.
    """
    draw = _Draw(generator, len(image_BSS3), image_BSS3.device)
    image_B3SS = image_BSS3.permute(0, 3, 1, 2).to(torch.float32)
    if move:
        image_B3SS = _move_batch(image_B3SS, settings, draw)
    image_B3SS = _recolour_batch(image_B3SS, settings, draw)
    if settings.erase:
        image_B3SS = _erase(image_B3SS, settings, draw)
    return image_B3SS.clamp(0, 255).permute(0, 2, 3, 1)


def draw_motion(n: int, settings: Augmentation, generator: torch.Generator, device: torch.device) -> Motion:
    """How crops are turned, scaled and moved. A crop from the whole image has no empty corners when it is turned."""
    return _motion(_Draw(generator, n, device), settings)


def _motion(draw: _Draw, settings: Augmentation) -> Motion:
    return Motion(
        angle_B=draw.around(0.0, math.radians(settings.rotation_degrees)),
        scale_B=draw.around(1.0, settings.scale),
        shift_B2=draw.around(0.0, 2 * settings.shift, 2),  # the grid goes from -1 to 1
    )


class _Draw:
    """Random numbers for each image of a batch."""

    def __init__(self, generator: torch.Generator, n: int, device: torch.device) -> None:
        self._generator, self._n, self._device = generator, n, device

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        drawn = torch.rand(self._n, *shape, generator=self._generator)
        return (low + (high - low) * drawn).to(self._device)

    def around(self, middle: float, reach: float, *shape: int) -> Tensor:
        return self.uniform(middle - reach, middle + reach, *shape)


def _move_batch(image_B3SS: Tensor, settings: Augmentation, draw: _Draw) -> Tensor:
    motion = _motion(draw, settings)
    cos_B, sin_B = torch.cos(motion.angle_B) / motion.scale_B, torch.sin(motion.angle_B) / motion.scale_B
    turn_B22 = torch.stack([torch.stack([cos_B, -sin_B], dim=1), torch.stack([sin_B, cos_B], dim=1)], dim=1)
    matrix_B23 = torch.cat([turn_B22, motion.shift_B2[:, :, None]], dim=2)
    grid = functional.affine_grid(matrix_B23, list(image_B3SS.shape), align_corners=False)
    return functional.grid_sample(image_B3SS, grid, padding_mode="border", align_corners=False)


def _recolour_batch(image_B3SS: Tensor, settings: Augmentation, draw: _Draw) -> Tensor:
    grey = image_B3SS.mean(dim=1, keepdim=True)
    image_B3SS = grey + (image_B3SS - grey) * draw.around(1.0, settings.saturation, 1, 1, 1)
    level = grey.mean(dim=(2, 3), keepdim=True)
    image_B3SS = level + (image_B3SS - level) * draw.around(1.0, settings.contrast, 1, 1, 1)
    gain = draw.around(1.0, settings.brightness, 1, 1, 1) * draw.around(1.0, settings.tint, 3, 1, 1)
    return image_B3SS * gain


def _erase(image_B3SS: Tensor, settings: BatchAugmentation, draw: _Draw) -> Tensor:
    """Paint a rectangle of one colour over some images."""
    size = image_B3SS.shape[-1]
    line_S = torch.arange(size, device=image_B3SS.device) / size
    middle_B2, half_B2 = draw.uniform(0.0, 1.0, 2), draw.uniform(0.05, 0.2, 2)
    near_B2S = (line_S - middle_B2[:, :, None]).abs() < half_B2[:, :, None]
    chosen_B = draw.uniform(0.0, 1.0) < settings.erase
    inside_BSS = near_B2S[:, 0, :, None] & near_B2S[:, 1, None, :] & chosen_B[:, None, None]
    colour_B311 = draw.uniform(0.0, 255.0, 3, 1, 1)
    return torch.where(inside_BSS[:, None], colour_B311, image_B3SS)


# ---------------------------------------------------------------------- single images
def augment_image(
    image: Image, box: Corners | None, settings: ImageAugmentation, rng: np.random.Generator
) -> tuple[Image, Corners | None, NDArray[np.float64]]:
    """A changed copy of a square image and of the box in it, and the matrix (2, 3) that says where its points went.

    An image with a box is only moved so far that the whole box stays visible: the state must still be readable.
    """
    moved, moved_box, matrix_23 = _move_image(image, box, settings, rng)
    return _recolour_image(moved, settings, rng), moved_box, matrix_23


def _move_image(
    image: Image, box: Corners | None, settings: ImageAugmentation, rng: np.random.Generator
) -> tuple[Image, Corners | None, NDArray[np.float64]]:
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
            return np.asarray(moved, dtype=np.uint8), moved_box, matrix_23
    return image, box, np.eye(2, 3)


def _random_affine(size: int, settings: ImageAugmentation, rng: np.random.Generator) -> NDArray[np.float64]:
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


def _recolour_image(image: Image, settings: ImageAugmentation, rng: np.random.Generator) -> Image:
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
