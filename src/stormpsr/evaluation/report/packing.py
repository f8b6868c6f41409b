"""Where marks go so that they do not lie on each other: rows of a lane, and ticks of a time axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

NARROWEST = 320  # pixels that a drawing has on a phone
_WIDEST = 1920
_STEPS_SECONDS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)

Extent = tuple[float, float, float]  # where it is (share of the width), pixels to its left, pixels to its right
Span = tuple[float, Extent]  # share at which a line to the mark begins, and the mark


def text_pixels(text: str) -> float:
    """About how wide small digits are."""
    return 6.6 * len(text)


def pack(spans: Sequence[Span], width: float) -> list[int]:
    """The row of each mark: the first one that is free, from left to right."""
    order = sorted(range(len(spans)), key=lambda i: (_left(spans[i], width), i))
    ends: list[float] = []
    rows = [0] * len(spans)
    for i in order:
        left = _left(spans[i], width)
        place, _, to_the_right = spans[i][1]
        row = next((row for row, end in enumerate(ends) if end <= left), len(ends))
        if row == len(ends):
            ends.append(0.0)
        ends[row] = place * width + to_the_right
        rows[i] = row
    return rows


def _left(span: Span, width: float) -> float:
    start, (place, to_the_left, _) = span
    return min(start * width, place * width - to_the_left)


def width_needed(spans: Sequence[Span], most_rows: int) -> int:
    """Pixels that a drawing must have at least for its marks to fit into so many rows, or into as few as can be."""
    best, fewest = NARROWEST, len(spans) + 1
    for width in range(NARROWEST, _WIDEST + 1, 80):
        n_rows = max(pack(spans, width), default=0) + 1
        if n_rows <= most_rows:
            return width
        if n_rows < fewest:
            best, fewest = width, n_rows
    return best


def time_ticks(seconds: float, most: int = 6) -> list[float]:
    """Round times from 0 to the end, not more than `most` of them."""
    step = next((step for step in _STEPS_SECONDS if seconds / step < most), 3600 * math.ceil(seconds / most / 3600))
    return [i * float(step) for i in range(int(seconds / step) + 1)]
