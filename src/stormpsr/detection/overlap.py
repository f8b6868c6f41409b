"""How much boxes overlap. Shape legend: R boxes, 4 corners (x0, y0, x1, y1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["overlap", "overlap_of_boxes", "suppress_overlapping"]


def overlap(one_4: NDArray[np.floating], others_R4: NDArray[np.floating]) -> NDArray[np.float64]:
    """Intersection over union of a box with each of others."""
    low = np.maximum(one_4[:2], others_R4[:, :2])
    high = np.minimum(one_4[2:], others_R4[:, 2:])
    common = np.prod(np.clip(high - low, 0, None), axis=1)
    own = np.prod(one_4[2:] - one_4[:2])
    theirs = np.prod(others_R4[:, 2:] - others_R4[:, :2], axis=1)
    return np.asarray(common / np.maximum(own + theirs - common, 1e-12), dtype=np.float64)


def overlap_of_boxes(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> float:
    """Intersection over union of two boxes given by corner, width and height."""
    corners = [np.array([x, y, x + width, y + height]) for x, y, width, height in (a, b)]
    return float(overlap(corners[0], corners[1][None])[0])


def suppress_overlapping(corners_R4: NDArray[np.floating], most: float = 0.5) -> list[int]:
    """Rows of the boxes to keep: the first, and each that overlaps no kept one by more than `most`."""
    kept: list[int] = []
    for row, box_4 in enumerate(corners_R4):
        if not kept or overlap(box_4, corners_R4[kept]).max() <= most:
            kept.append(row)
    return kept
