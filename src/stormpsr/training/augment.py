"""Variations of whole batches of images, on whatever device they are.

Nothing is mirrored: left and right are different parts. All random numbers come from one generator, so that a batch is
varied the same way when training is resumed.

Shape legend: B images, S pixels of a side, 3 colours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from stormpsr.models.locator import Motion


@dataclass(frozen=True, slots=True)
class Strength:
    """How far images are changed."""

    rotation_degrees: float
    scale: float  # from 1 - s to 1 + s
    shift: float  # of the side
    brightness: float  # gain from 1 - b to 1 + b
    contrast: float
    saturation: float
    tint: float  # gain of each colour for itself
    erase: float  # share of images in which a rectangle is painted over, as if by a hand


STRENGTHS: dict[Literal["light", "strong"], Strength] = {
    "light": Strength(5.0, 0.05, 0.03, 0.15, 0.15, 0.2, 0.03, 0.0),
    "strong": Strength(45.0, 0.15, 0.08, 0.35, 0.35, 0.5, 0.08, 0.3),
}


def augment(image_BSS3: Tensor, strength: Strength, generator: torch.Generator, *, move: bool = True) -> Tensor:
    """Changed copies as float from 0 to 255; `generator` is a CPU one, so that all devices draw the same numbers.

    Images that were moved when they were cut out (`draw_motion`) need not be moved again.
    """
    draw = _Draw(generator, len(image_BSS3), image_BSS3.device)
    image_B3SS = image_BSS3.permute(0, 3, 1, 2).to(torch.float32)
    if move:
        image_B3SS = _move(image_B3SS, strength, draw)
    image_B3SS = _recolour(image_B3SS, strength, draw)
    if strength.erase:
        image_B3SS = _erase(image_B3SS, strength, draw)
    return image_B3SS.clamp(0, 255).permute(0, 2, 3, 1)


def draw_motion(n: int, strength: Strength, generator: torch.Generator, device: torch.device) -> Motion:
    """How crops are turned, scaled and moved. A crop from the whole image has no empty corners when it is turned."""
    draw = _Draw(generator, n, device)
    return Motion(
        angle_B=draw.around(0.0, math.radians(strength.rotation_degrees)),
        scale_B=draw.around(1.0, strength.scale),
        shift_B2=draw.around(0.0, 2 * strength.shift, 2),
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


def _move(image_B3SS: Tensor, strength: Strength, draw: _Draw) -> Tensor:
    angle_B = draw.around(0.0, math.radians(strength.rotation_degrees))
    scale_B = draw.around(1.0, strength.scale)
    shift_B2 = draw.around(0.0, 2 * strength.shift, 2)  # the grid goes from -1 to 1
    cos_B, sin_B = torch.cos(angle_B) / scale_B, torch.sin(angle_B) / scale_B
    turn_B22 = torch.stack([torch.stack([cos_B, -sin_B], dim=1), torch.stack([sin_B, cos_B], dim=1)], dim=1)
    matrix_B23 = torch.cat([turn_B22, shift_B2[:, :, None]], dim=2)
    grid = functional.affine_grid(matrix_B23, list(image_B3SS.shape), align_corners=False)
    return functional.grid_sample(image_B3SS, grid, padding_mode="border", align_corners=False)


def _recolour(image_B3SS: Tensor, strength: Strength, draw: _Draw) -> Tensor:
    grey = image_B3SS.mean(dim=1, keepdim=True)
    image_B3SS = grey + (image_B3SS - grey) * draw.around(1.0, strength.saturation, 1, 1, 1)
    level = grey.mean(dim=(2, 3), keepdim=True)
    image_B3SS = level + (image_B3SS - level) * draw.around(1.0, strength.contrast, 1, 1, 1)
    gain = draw.around(1.0, strength.brightness, 1, 1, 1) * draw.around(1.0, strength.tint, 3, 1, 1)
    return image_B3SS * gain


def _erase(image_B3SS: Tensor, strength: Strength, draw: _Draw) -> Tensor:
    """Paint a rectangle of one colour over some images."""
    size = image_B3SS.shape[-1]
    line_S = torch.arange(size, device=image_B3SS.device) / size
    middle_B2, half_B2 = draw.uniform(0.0, 1.0, 2), draw.uniform(0.05, 0.2, 2)
    near_B2S = (line_S - middle_B2[:, :, None]).abs() < half_B2[:, :, None]
    chosen_B = draw.uniform(0.0, 1.0) < strength.erase
    inside_BSS = near_B2S[:, 0, :, None] & near_B2S[:, 1, None, :] & chosen_B[:, None, None]
    colour_B311 = draw.uniform(0.0, 255.0, 3, 1, 1)
    return torch.where(inside_BSS[:, None], colour_B311, image_B3SS)
