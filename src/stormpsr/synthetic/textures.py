"""Table tops from numbers (wood, cutting mat, fabric, concrete, laminate), and the room around the table."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["room_panorama", "table_texture"]

Floats = NDArray[np.float32]


def _noise(rng: np.random.Generator, size: int, cells_x: int, cells_y: int) -> Floats:
    """Smooth noise from -1 to 1 with about so many bumps across and down."""
    coarse = rng.uniform(-1, 1, (cells_y, cells_x)).astype(np.float32)
    return np.asarray(cv2.resize(coarse, (size, size), interpolation=cv2.INTER_CUBIC), dtype=np.float32)


def _wood(rng: np.random.Generator, size: int) -> Floats:
    """Long grain with rings, cut into planks."""
    across = np.linspace(0, 1, size, dtype=np.float32)[:, None]
    planks = int(rng.integers(3, 8))
    plank = np.floor(across * planks).astype(int)
    shift = rng.uniform(0, 1, planks + 1).astype(np.float32)[plank]
    rings = np.sin(2 * np.pi * (across * planks * 3 + shift * 7 + 0.5 * _noise(rng, size, 3, 12)))
    fine = _noise(rng, size, 10, size // 3)
    seam = np.abs(across * planks - np.round(across * planks)) < 0.012 * planks
    return np.asarray(0.5 + 0.2 * rings + 0.2 * fine + 0.5 * (shift - 0.5) + 0.6 * seam, dtype=np.float32)


def _mat(rng: np.random.Generator, size: int) -> Floats:
    """A cutting mat with a grid of thin lines."""
    lines = int(rng.integers(14, 26))
    axis = np.arange(size, dtype=np.float32) * lines / size
    thin = (np.abs(axis - np.round(axis)) < 0.035).astype(np.float32)
    thick = (np.abs(axis / 5 - np.round(axis / 5)) < 0.012).astype(np.float32)
    line = np.maximum(thin * 0.5, thick)
    return np.asarray(np.maximum(line[:, None], line[None, :]) + 0.05 * _noise(rng, size, 40, 40), dtype=np.float32)


def _fabric(rng: np.random.Generator, size: int) -> Floats:
    """A weave, sometimes with stripes, with soft folds."""
    axis = np.arange(size, dtype=np.float32)
    weave = 0.5 + 0.15 * np.sin(axis * 2.1)[:, None] + 0.15 * np.sin(axis * 2.1)[None, :]
    if rng.random() < 0.5:
        stripes = (np.sin(axis * rng.uniform(0.05, 0.25)) > 0.3).astype(np.float32)
        weave = weave + 0.5 * stripes[None, :]
        if rng.random() < 0.5:
            weave = weave + 0.5 * stripes[:, None]
    return np.asarray(weave + 0.35 * _noise(rng, size, 5, 5), dtype=np.float32)


def _concrete(rng: np.random.Generator, size: int) -> Floats:
    total = np.full((size, size), 0.5, dtype=np.float32)
    for cells, weight in ((4, 0.4), (12, 0.3), (50, 0.2), (size // 2, 0.25)):
        total += weight * _noise(rng, size, cells, cells)
    return total


def _laminate(rng: np.random.Generator, size: int) -> Floats:
    grain = 0.3 * _noise(rng, size, 3, 3) + 0.2 * _noise(rng, size, size // 2, size // 2)
    return np.asarray(0.4 + grain, dtype=np.float32)


_PATTERNS = {"wood": _wood, "mat": _mat, "fabric": _fabric, "concrete": _concrete, "laminate": _laminate}


def table_texture(
    kind: str, colour: Sequence[float], accent: Sequence[float], seed: int, size: int = 512
) -> NDArray[np.uint8]:
    """A square picture, red green blue, of a table top whose pattern goes from `colour` to `accent`."""
    rng = np.random.default_rng(seed)
    pattern = np.clip(_PATTERNS[kind](rng, size), -0.3, 1.3)
    shade = 255 + 30 * _noise(rng, size, 3, 3)  # light is never even over a table
    channels = [(low + (high - low) * pattern) * shade for low, high in zip(colour, accent, strict=True)]
    return np.asarray(cv2.convertScaleAbs(np.maximum(cv2.merge(channels), 0)), dtype=np.uint8)


def room_panorama(colour: tuple[float, float, float], seed: int) -> NDArray[np.uint8]:
    """All around the person: 360 degrees across, 60 up to 80 down; floor, walls and furniture out of focus."""
    rng = np.random.default_rng((seed, 5))
    height, width, skirting = 140, 360, 78
    base = np.asarray(colour)
    room = np.empty((height, width, 3))
    room[:skirting] = base * np.linspace(1.0, 0.75, skirting)[:, None, None]
    room[skirting:] = base * rng.uniform(0.35, 0.8) * np.linspace(0.7, 1.0, height - skirting)[:, None, None]
    for _ in range(int(rng.integers(14, 26))):  # windows and pictures above, cupboards and chairs below
        left, breadth = int(rng.integers(0, width)), int(rng.integers(8, 42))
        bottom = int(rng.integers(45, 100))
        top = bottom - int(rng.integers(10, 45))
        paint = np.clip(base * rng.uniform(0.35, 1.5) + rng.normal(0, 0.08, 3), 0.03, 1.0)
        room[max(top, 0) : bottom, np.arange(left, left + breadth) % width] = paint
    soft = cv2.GaussianBlur(room.astype(np.float32), (0, 0), 1.6)
    return np.asarray(np.clip(soft * 255, 0, 255), dtype=np.uint8)
