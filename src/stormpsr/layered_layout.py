"""Places for the boxes and lines of a graph that flows from top to bottom.

The usual way to draw such graphs (Sugiyama, Tagawa and Toda, 1981), in its shortest form: a line that passes a layer
gets a place there, and so does its label, so that nothing lies on top of anything else; the order within the layers is
improved by barycentres; then places are shifted towards their neighbours, as near as the widths allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 24


@dataclass(frozen=True, slots=True)
class Box:
    """A node: its layer, and its size."""

    layer: int
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Line:
    """An edge to a lower layer, with the size of its label, which stands to the right of the line."""

    start: int
    end: int
    label_width: float
    label_height: float


@dataclass(frozen=True, slots=True)
class Placement:
    """Where things are: the centre of each box; per line its way points and the left middle of its label."""

    boxes: tuple[tuple[float, float], ...]
    lines: tuple[tuple[tuple[float, float], ...], ...]
    labels: tuple[tuple[float, float], ...]
    width: float
    height: float


@dataclass(slots=True)
class _Item:
    """Something that takes up room in a rank: a box, a label, or a line that passes."""

    rank: int
    left: float  # room to the left of its axis
    right: float
    height: float
    weight: float  # how much it wants to be where it wants to be: lines more than boxes, so that they run straight
    x: float = 0.0


def layered_layout(
    boxes: Sequence[Box], lines: Sequence[Line], *, gap_x: float = 24.0, gap_y: float = 26.0
) -> Placement:
    """Ranks alternate: boxes stand in the even ones, labels in the odd ones."""
    items = [_Item(2 * box.layer, box.width / 2, box.width / 2, box.height, 1.0) for box in boxes]
    chains: list[list[int]] = []
    label_items: list[int] = []
    for line in lines:
        ranks = range(2 * boxes[line.start].layer + 1, 2 * boxes[line.end].layer)
        label_rank = ranks[0] if len(ranks) < 4 else ranks[2 * (len(ranks) // 4)]
        chain = [line.start]
        for rank in ranks:
            is_label = rank == label_rank
            right = line.label_width if is_label else 0.0
            items.append(_Item(rank, 2.0, max(right, 2.0), line.label_height if is_label else 0.0, 6.0))
            chain.append(len(items) - 1)
            if is_label:
                label_items.append(len(items) - 1)
        chains.append([*chain, line.end])

    order = _ordered(items, chains)
    _place_x(items, order, chains, gap_x)
    y_of_rank, height = _place_y(items, order, gap_y)
    left = min((item.x - item.left for item in items), default=0.0)
    width = max((item.x + item.right for item in items), default=0.0) - left
    points = [(item.x - left, y_of_rank[item.rank]) for item in items]
    ways = _ways(boxes, chains, points, items)
    return Placement(tuple(points[: len(boxes)]), ways, tuple(points[place] for place in label_items), width, height)


# ---------------------------------------------------------------------- order within the ranks
def _neighbours(n_items: int, chains: Sequence[Sequence[int]]) -> tuple[list[list[int]], list[list[int]]]:
    above: list[list[int]] = [[] for _ in range(n_items)]
    below: list[list[int]] = [[] for _ in range(n_items)]
    for chain in chains:
        for upper, lower in pairwise(chain):
            below[upper].append(lower)
            above[lower].append(upper)
    return above, below


def _ordered(items: Sequence[_Item], chains: Sequence[Sequence[int]]) -> list[list[int]]:
    """Per rank its items from left to right, with few crossings."""
    above, below = _neighbours(len(items), chains)
    order: list[list[int]] = [[] for _ in range(max((item.rank for item in items), default=-1) + 1)]
    for place, item in enumerate(items):
        order[item.rank].append(place)
    best, fewest = [list(rank) for rank in order], _crossings(order, below)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        sides = above if downwards else below
        position = {place: index for rank in order for index, place in enumerate(rank)}
        for rank in order if downwards else reversed(order):
            centre = {
                place: sum(position[other] for other in sides[place]) / len(sides[place])
                if sides[place]
                else float(position[place])
                for place in rank
            }
            rank.sort(key=centre.__getitem__)
            position.update({place: index for index, place in enumerate(rank)})
        crossings = _crossings(order, below)
        if crossings < fewest:
            best, fewest = [list(rank) for rank in order], crossings
    return best


def _crossings(order: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> int:
    position = {place: index for rank in order for index, place in enumerate(rank)}
    total = 0
    for rank in order:
        ends = [position[other] for place in rank for other in sorted(below[place], key=position.__getitem__)]
        total += sum(a > b for index, a in enumerate(ends) for b in ends[index + 1 :])
    return total


# ---------------------------------------------------------------------- coordinates
def _place_x(items: list[_Item], order: list[list[int]], chains: Sequence[Sequence[int]], gap: float) -> None:
    above, below = _neighbours(len(items), chains)
    for rank in order:
        _spread(items, rank, [0.0] * len(rank), gap)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        for rank in order if downwards else reversed(order):
            wanted = []
            for place in rank:
                near = (above[place] if downwards else below[place]) or [place]
                wanted.append(sum(items[other].x for other in near) / len(near))
            _spread(items, rank, wanted, gap)


def _spread(items: list[_Item], rank: Sequence[int], wanted: Sequence[float], gap: float) -> None:
    """Put a rank's items as near to where they want to be as their order and widths allow (least squares)."""
    offsets, offset = [], 0.0
    for index, place in enumerate(rank):
        if index:
            offset += items[rank[index - 1]].right + gap + items[place].left
        offsets.append(offset)
    blocks: list[
        tuple[float, float, int]
    ] = []  # (mean of what its members want, weight, number), merged until ascending
    for place, target, shift in zip(rank, wanted, offsets, strict=True):
        blocks.append((target - shift, items[place].weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, weight_a, n_a), (b, weight_b, n_b) = blocks[-2:]
            weight = weight_a + weight_b
            blocks[-2:] = [((a * weight_a + b * weight_b) / weight, weight, n_a + n_b)]
    bases = [base for base, _, count in blocks for _ in range(count)]
    for place, base, shift in zip(rank, bases, offsets, strict=True):
        items[place].x = base + shift


def _place_y(items: Sequence[_Item], order: Sequence[Sequence[int]], gap: float) -> tuple[list[float], float]:
    """The middle of each rank, and the height of all."""
    middles, y = [], 0.0
    for rank in order:
        height = max((items[place].height for place in rank), default=0.0)
        middles.append(y + height / 2)
        y += height + gap
    return middles, max(y - gap, 0.0)


def _ways(
    boxes: Sequence[Box],
    chains: Sequence[Sequence[int]],
    points: Sequence[tuple[float, float]],
    items: Sequence[_Item],
) -> tuple[tuple[tuple[float, float], ...], ...]:
    """Per line its points: out of a box, straight down past its label, into a box; several lines share a side."""
    leaving: dict[int, list[int]] = {}
    arriving: dict[int, list[int]] = {}
    for index, chain in enumerate(chains):
        leaving.setdefault(chain[0], []).append(index)
        arriving.setdefault(chain[-1], []).append(index)

    def port(box: int, line: int, rivals: list[int], towards: int) -> float:
        ranked = sorted(rivals, key=lambda rival: points[chains[rival][towards]][0])
        step = min(16.0, 0.7 * boxes[box].width / len(ranked))
        return points[box][0] + (ranked.index(line) - (len(ranked) - 1) / 2) * step

    ways = []
    for index, chain in enumerate(chains):
        (_, y_start), (_, y_end) = points[chain[0]], points[chain[-1]]
        way = [(port(chain[0], index, leaving[chain[0]], 1), y_start + boxes[chain[0]].height / 2)]
        for place in chain[1:-1]:
            x, y = points[place]
            half = items[place].height / 2
            way += [(x, y - half), (x, y + half)] if half else [(x, y)]
        way.append((port(chain[-1], index, arriving[chain[-1]], -2), y_end - boxes[chain[-1]].height / 2))
        ways.append(tuple(way))
    return tuple(ways)
