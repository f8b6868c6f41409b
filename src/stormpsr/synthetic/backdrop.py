"""What is behind everything: the table top with soft shadows on it, and the room beyond its edge.

A textured plane that fills the image costs a software renderer more than all parts and hands together. A plane is
also the one thing that needs no renderer: each pixel's ray meets the table at a point that is looked up in an image
of the table. The room is looked up by direction, and only in frames that see past the table's edge.

Bodies are made of convex pieces; the shadow of a convex piece on a plane is the hull of its projected vertices. The
hulls are filled in a map of the table, the map is blurred (a lamp is not a point) and looked up like the table. It
costs a fraction of a millisecond; a shadow map in the renderer would cost a pass per light.

Shape legend: N points, V vertices, H W the image, Y X the table's image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from stormpsr.synthetic.camera_effects import Lens
from stormpsr.synthetic.look import Look

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
    """A square image, red green blue, of a table top whose pattern goes from `colour` to `accent`."""
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
    for _ in range(int(rng.integers(14, 26))):  # windows and images above, cupboards and chairs below
        left, breadth = int(rng.integers(0, width)), int(rng.integers(8, 42))
        bottom = int(rng.integers(45, 100))
        top = bottom - int(rng.integers(10, 45))
        paint = np.clip(base * rng.uniform(0.35, 1.5) + rng.normal(0, 0.08, 3), 0.03, 1.0)
        room[max(top, 0) : bottom, np.arange(left, left + breadth) % width] = paint
    soft = cv2.GaussianBlur(room.astype(np.float32), (0, 0), 1.6)
    return np.asarray(np.clip(soft * 255, 0, 255), dtype=np.uint8)


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


Bodies = Sequence[tuple[Floats, ConvexPieces]]  # where they are, and of what


class ShadowMap:
    """What the key light does not reach on the table; `static` are bodies that never move."""

    def __init__(self, light_direction: tuple[float, float, float], static: Bodies = ()) -> None:
        x, y, z = light_direction
        self._slope = np.array([x, y], dtype=np.float32) / np.float32(max(z, 0.35))
        width, height = ((TABLE_HIGH - TABLE_LOW) / _CELL).astype(int)
        self._static = np.zeros((height, width), dtype=np.uint8)
        self._fill(self._static, static)
        self._map = np.zeros_like(self._static)

    def cast(self, bodies: Bodies) -> None:
        """Shadows of what is there now, on top of the static ones."""
        np.copyto(self._map, self._static)
        self._fill(self._map, bodies)
        cv2.blur(self._map, (5, 5), dst=self._map)
        cv2.blur(self._map, (3, 3), dst=self._map)

    def _fill(self, target: NDArray[np.uint8], bodies: Bodies) -> None:
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


Image = NDArray[np.uint8]

_PATTERN_METRES = 0.9
_GLOSS_POWER = 25.0  # the larger, the smaller the light's reflection
_ROOM_TOP_DEGREES, _ROOM_BOTTOM_DEGREES = 60.0, -80.0


class Backdrop:
    """The table and the room of one look, for one lens."""

    def __init__(self, look: Look, lens: Lens) -> None:
        self._lens = lens
        self._darkness = look.shadow
        self._gloss, self._lamp = look.table_gloss, look.lights[0]
        # about one and a half texels per pixel at half a metre: sharp, and no flicker
        self._texels_per_metre = float(np.clip(lens.width * 2.4, 200, 1000))
        self._table_YX4 = self._lit_table(look)
        self._room = room_panorama(look.room_colour, look.seed)

    def _lit_table(self, look: Look) -> Image:
        """The table top from above under the look's lights, with full alpha; what is beyond its edge has none."""
        light = np.full(3, look.ambient, dtype=np.float64)
        for lamp in look.lights:
            light += lamp.strength * max(lamp.direction[2], 0.0) * np.asarray(lamp.colour)
        colour, accent = (np.asarray(c) * light for c in (look.table_colour, look.table_accent))
        lit = table_texture(look.table_kind, colour.tolist(), accent.tolist(), look.seed)
        step = self._texels_per_metre * _PATTERN_METRES / lit.shape[0]
        if step < 1:  # shrink first, or thin lines would come and go
            lit = cv2.resize(lit, None, fx=step, fy=step, interpolation=cv2.INTER_AREA)
        width, height = ((TABLE_HIGH - TABLE_LOW) * self._texels_per_metre).astype(int)
        turn, scale = np.deg2rad(look.table_turn_degrees), min(1.0, 1 / step)
        to_pattern_23 = np.zeros((2, 3))
        to_pattern_23[:, :2] = scale * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        to_pattern_23[:, 2] = lit.shape[0] / 2 - to_pattern_23[:, :2] @ [width / 2, height / 2]
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        table = cv2.warpAffine(lit, to_pattern_23, (width, height), flags=flags, borderMode=cv2.BORDER_REFLECT_101)
        return np.asarray(cv2.cvtColor(table, cv2.COLOR_RGB2RGBA), dtype=np.uint8)

    def image(self, camera_44: Floats, shadows: ShadowMap) -> Image:
        """Red, green and blue behind everything, at the image's final size."""
        x, y = self._where_on_table(camera_44)
        texels = np.float32(self._texels_per_metre)
        ground = cv2.remap(self._table_YX4, x * texels, y * texels, cv2.INTER_LINEAR)
        dark = shadows.look_up(x, y)
        light = cv2.merge([cv2.convertScaleAbs(dark, alpha=-self._darkness, beta=255)] * 3)
        shaded = cv2.multiply(ground[..., :3], light, scale=1 / 255)
        covered = ground[..., 3]
        if self._gloss:
            shaded = cv2.add(shaded, cv2.multiply(self._reflection(camera_44), light, scale=1 / 255))
            shaded = cv2.bitwise_and(shaded, cv2.merge([cv2.compare(covered, 0, cv2.CMP_GT)] * 3))
        if int(covered.min()) == 255:
            return np.asarray(shaded, dtype=np.uint8)
        beyond = cv2.merge([255 - covered] * 3)
        room = cv2.multiply(self._room_image(camera_44), beyond, scale=1 / 255)
        return np.asarray(cv2.add(shaded, room), dtype=np.uint8)

    def _reflection(self, camera_44: Floats) -> Image:
        """The key light in a shiny table."""
        rays_HW3 = self._lens.rays_HW3 @ camera_44[:3, :3].T
        x, y, z = (np.float32(value) for value in self._lamp.direction)
        along = rays_HW3[..., 0] * x + rays_HW3[..., 1] * y - rays_HW3[..., 2] * z  # mirrored in the table
        near = np.clip(along / np.linalg.norm(rays_HW3, axis=2), 0.0, 1.0) ** np.float32(_GLOSS_POWER)
        bright = cv2.resize(near, (self._lens.width, self._lens.height), interpolation=cv2.INTER_LINEAR)
        channels = [bright * np.float32(255 * self._gloss * value) for value in self._lamp.colour]
        return np.asarray(cv2.convertScaleAbs(cv2.merge(channels)), dtype=np.uint8)

    def _where_on_table(self, camera_44: Floats) -> tuple[Floats, Floats]:
        """Where each pixel looks on the table, in metres from its corner; far outside where it does not."""
        rays_HW3 = self._lens.rays_HW3 @ camera_44[:3, :3].T
        down = rays_HW3[..., 2]
        reach = np.float32(-camera_44[2, 3]) / np.minimum(down, np.float32(-0.02))
        x = np.float32(camera_44[0, 3] - TABLE_LOW[0]) + reach * rays_HW3[..., 0]
        y = np.float32(camera_44[1, 3] - TABLE_LOW[1]) + reach * rays_HW3[..., 1]
        x[down > -0.02] = -20.0
        size = (self._lens.width, self._lens.height)
        if x.shape != size[::-1]:  # positions change smoothly: large images work them out on a coarser grid
            x, y = (cv2.resize(v, size, interpolation=cv2.INTER_LINEAR) for v in (x, y))
        return np.asarray(x), np.asarray(y)

    def _room_image(self, camera_44: Floats) -> Image:
        """The room in every direction; it is out of focus, so every other ray will do."""
        rays_HW3 = self._lens.rays_HW3[::2, ::2] @ camera_44[:3, :3].T
        height, width = self._room.shape[:2]
        azimuth = np.arctan2(rays_HW3[..., 0], rays_HW3[..., 1])
        elevation = np.arctan2(rays_HW3[..., 2], np.hypot(rays_HW3[..., 0], rays_HW3[..., 1]))
        column = (azimuth / (2 * np.pi) + 0.5) * width
        row = (_ROOM_TOP_DEGREES - np.rad2deg(elevation)) / (_ROOM_TOP_DEGREES - _ROOM_BOTTOM_DEGREES) * height
        column, row = column.astype(np.float32), row.astype(np.float32)
        room = cv2.remap(self._room, column, row, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        room = cv2.resize(room, (self._lens.width, self._lens.height), interpolation=cv2.INTER_LINEAR)
        return np.asarray(room, dtype=np.uint8)
