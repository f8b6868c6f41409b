"""Soft shadows on the table, without a pass of the renderer.

Bodies are made of convex pieces; the shadow of a convex piece on a plane is the hull of its projected vertices. The
hulls are filled in a map of the table, the map is blurred (a lamp is not a point) and looked up where a pixel's ray
meets the table. It costs a fraction of a millisecond; a shadow map in the renderer would cost a pass per light.

Shape legend: N points, V vertices, H W the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["TABLE_HIGH", "TABLE_LOW", "ConvexPieces", "ShadowMap"]

Floats = NDArray[np.float32]

TABLE_LOW = np.array([-0.8, -0.4], dtype=np.float32)
TABLE_HIGH = np.array([0.8, 0.75], dtype=np.float32)
_CELL = 0.006
_FRACTION_BITS = 3


@dataclass(frozen=True, eq=False)
class ConvexPieces:
    """A body as a few points, `spans` of which belong to the same convex piece."""

    points_N3: Floats
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, pieces_V3: Sequence[Floats], limit: int = 24) -> ConvexPieces:
        """From the vertices of every piece, of which about `limit` are kept."""
        points = [_hull_points(vertices, limit) for vertices in pieces_V3]
        ends = np.cumsum([0] + [len(p) for p in points]).tolist()
        return cls(np.concatenate(points), tuple(pairwise(ends)))


def _hull_points(vertices_V3: Floats, limit: int) -> Floats:
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

    def set_static(self, bodies: Sequence[tuple[Floats, ConvexPieces]]) -> None:
        """Shadows of what never moves: (pose, convex pieces) of every body."""
        self._static[:] = 0
        self._fill(self._static, bodies)

    def cast(self, bodies: Sequence[tuple[Floats, ConvexPieces]]) -> None:
        """Shadows of what is there now, on top of the static ones."""
        np.copyto(self._map, self._static)
        self._fill(self._map, bodies)
        cv2.blur(self._map, (5, 5), dst=self._map)
        cv2.blur(self._map, (3, 3), dst=self._map)

    def _fill(self, target: NDArray[np.uint8], bodies: Sequence[tuple[Floats, ConvexPieces]]) -> None:
        scale = np.float32((1 << _FRACTION_BITS) / _CELL)
        for pose_44, body in bodies:
            points_N3 = body.points_N3 @ pose_44[:3, :3].T + pose_44[:3, 3]
            on_table = points_N3[:, :2] - np.maximum(points_N3[:, 2:], 0.0) * self._slope
            cells_N2 = ((on_table - TABLE_LOW) * scale).astype(np.int32)
            for start, end in body.spans:
                cv2.fillConvexPoly(target, cv2.convexHull(cells_N2[start:end]), 255, cv2.LINE_8, _FRACTION_BITS)

    def look_up(self, x_HW: Floats, y_HW: Floats) -> NDArray[np.uint8]:
        """How dark (0 to 255) the table is at points in metres from its corner."""
        per_metre = np.float32(1 / _CELL)
        return np.asarray(cv2.remap(self._map, x_HW * per_metre, y_HW * per_metre, cv2.INTER_LINEAR))
