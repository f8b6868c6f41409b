"""The evidence of every step over time as outlines: few points, so that a page of many recordings stays small.

Shape legend: G grid of every k-th frame, S steps, P points that are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 1000, 100  # units of an outline: time from left to right, evidence 0 to 1 of the threshold
_MOST_POINTS = 500  # more than a screen has columns for
_WORTH_DRAWING = 0.2  # steps that never come nearer to the threshold are left out
_SILENT = 0.02


@dataclass(frozen=True, slots=True)
class Outline:
    """One rise and fall of a step's evidence."""

    step_id: int
    path: str  # closed, in units of WIDTH and HEIGHT, y downwards
    first: float  # share of the recording at which it begins
    last: float
    peak: float  # most evidence, 1 completes the step
    peak_at: float  # share of the recording


def outlines(evidence_GS: NDArray[np.floating]) -> list[Outline]:
    """Outlines of all steps that come near the threshold at some time."""
    if evidence_GS.ndim != 2 or not evidence_GS.size:
        return []
    levels_GS = np.nan_to_num(np.asarray(evidence_GS, dtype=np.float64), nan=0.0, posinf=1.0, neginf=0.0)
    levels_PS = _thinned(levels_GS)
    n_points = len(levels_PS)
    found: list[Outline] = []
    for step_id in np.flatnonzero(levels_PS.max(axis=0) >= _WORTH_DRAWING).tolist():
        level_P = np.clip(levels_PS[:, step_id], 0.0, 1.0)
        for first, end in _stretches(level_P > _SILENT):
            top = first + int(level_P[first:end].argmax())
            if level_P[top] >= _WORTH_DRAWING:
                path = _path(level_P, first, end)
                shares = (place / n_points for place in (first, end, top + 0.5))
                begin, last, peak_at = shares
                found.append(Outline(step_id, path, begin, last, float(level_P[top]), peak_at))
    return sorted(found, key=lambda outline: (outline.first, outline.step_id))


def _thinned(levels_GS: NDArray[np.float64]) -> NDArray[np.float64]:
    """The greatest of neighbouring values, so that no peak is lost."""
    size = -(-len(levels_GS) // _MOST_POINTS)
    if size == 1:
        return levels_GS
    padded = np.zeros((-(-len(levels_GS) // size) * size, levels_GS.shape[1]))
    padded[: len(levels_GS)] = levels_GS
    thinned: NDArray[np.float64] = padded.reshape(-1, size, levels_GS.shape[1]).max(axis=1)
    return thinned


def _stretches(flags_P: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """(first, one past the last) of the true stretches."""
    edges = np.diff(np.concatenate([[0], flags_P.astype(np.int8), [0]]))
    return list(zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True))


def _path(level_P: NDArray[np.float64], first: int, end: int) -> str:
    """Up from the ground and back to it, without points that lie on the line between their neighbours."""
    scale = WIDTH / len(level_P)
    points = [(round(first * scale, 1), HEIGHT)]
    points += [(round((i + 0.5) * scale, 1), round(HEIGHT * (1 - level_P[i]))) for i in range(first, end)]
    points.append((round(end * scale, 1), HEIGHT))
    kept = [points[0]]
    for before, after in pairwise(points[1:]):
        (x0, y0), (x1, y1), (x2, y2) = kept[-1], before, after
        on_the_way = y0 + (y2 - y0) * (x1 - x0) / (x2 - x0) if x2 > x0 else y1
        if abs(on_the_way - y1) >= 1.5:
            kept.append(before)
    kept.append(points[-1])
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in kept) + "z"
