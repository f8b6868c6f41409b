"""Soft shadows on the table, without a pass of the renderer.

Bodies are made of convex pieces; the shadow of a convex piece on a plane is the hull of its projected vertices. The
hulls are filled in a map of the table, the map is blurred (a lamp is not a point) and looked up where a pixel's ray
meets the table. It costs a fraction of a millisecond; a shadow map in the renderer would cost a pass per light.

Shape legend: P points of a piece, H W the picture.
"""

from __future__ import annotations

from collections.abc import Iterable

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["TABLE_HIGH", "TABLE_LOW", "ShadowMap", "hull_points"]

Floats = NDArray[np.float32]

TABLE_LOW = np.array([-0.8, -0.4], dtype=np.float32)
TABLE_HIGH = np.array([0.8, 0.75], dtype=np.float32)
_CELL = 0.006
_FRACTION_BITS = 3


def hull_points(vertices_V3: Floats, limit: int = 24) -> Floats:
    """A few vertices that span a convex piece: its extreme ones in evenly spread directions."""
    unique = np.unique(np.round(vertices_V3, 5), axis=0)
    if len(unique) <= limit:
        return unique.astype(np.float32)
    index = np.arange(2 * limit) + 0.5
    polar, around = np.arccos(1 - index / limit), np.pi * (1 + 5**0.5) * index
    directions = np.stack([np.cos(around) * np.sin(polar), np.sin(around) * np.sin(polar), np.cos(polar)], axis=1)
    return np.asarray(unique[np.unique(np.argmax(unique @ directions.T, axis=0))], dtype=np.float32)


class ShadowMap:
    """What the key light does not reach on the table."""

    def __init__(self, light_direction: tuple[float, float, float]) -> None:
        x, y, z = light_direction
        self._slope = np.array([x, y], dtype=np.float32) / np.float32(max(z, 0.35))
        width, height = ((TABLE_HIGH - TABLE_LOW) / _CELL).astype(int)
        self._static = np.zeros((height, width), dtype=np.uint8)
        self._map = self._static.copy()

    def set_static(self, pieces: Iterable[Floats]) -> None:
        """Shadows of what never moves; the points are in the world."""
        self._static[:] = 0
        self._fill(self._static, pieces)

    def cast(self, pieces: Iterable[Floats]) -> None:
        """Shadows of what is there now, on top of the static ones."""
        np.copyto(self._map, self._static)
        self._fill(self._map, pieces)
        cv2.blur(self._map, (5, 5), dst=self._map)
        cv2.blur(self._map, (3, 3), dst=self._map)

    def _fill(self, target: NDArray[np.uint8], pieces: Iterable[Floats]) -> None:
        scale = (1 << _FRACTION_BITS) / _CELL
        for points_P3 in pieces:
            on_table = points_P3[:, :2] - np.maximum(points_P3[:, 2:], 0.0) * self._slope
            cells = ((on_table - TABLE_LOW) * scale).astype(np.int32)
            cv2.fillConvexPoly(target, cv2.convexHull(cells), 255, lineType=cv2.LINE_8, shift=_FRACTION_BITS)

    def look_up(self, x_HW: Floats, y_HW: Floats) -> NDArray[np.uint8]:
        """How dark (0 to 255) the table is at points in metres from its corner."""
        per_metre = np.float32(1 / _CELL)
        return np.asarray(cv2.remap(self._map, x_HW * per_metre, y_HW * per_metre, cv2.INTER_LINEAR))
