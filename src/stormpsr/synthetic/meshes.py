"""Triangle meshes of parts: primitives from numbers, and STL, OBJ or GLB files.

Shape legend: V vertices, T triangles. Lengths are metres. Every mesh carries one normal per vertex: vertices are
doubled along sharp edges, so that a box looks flat and a cylinder round without asking the renderer to guess.
Triangles are what a software renderer pays for, so round things have as many sides as their size deserves.

Things that are no part of the product: the screwdriver and what else lies on a table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError, need_packages
from stormpsr.synthetic.vtk_tools import simplified

Floats = NDArray[np.float32]

CREASE_DEGREES = 40.0
"""Faces of a mesh file that meet at a larger angle keep a sharp edge between them."""


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles with one unit normal per vertex."""

    vertices_V3: Floats
    normals_V3: Floats
    triangles_T3: NDArray[np.int32]  # counter-clockwise seen from outside
    closed: bool = True  # no holes: what faces away from the camera need not be drawn

    def __post_init__(self) -> None:
        if self.vertices_V3.shape != self.normals_V3.shape:
            raise ValueError(f"{len(self.vertices_V3)} vertices but {len(self.normals_V3)} normals")

    def moved(self, pose_44: Floats) -> Mesh:
        """The same mesh in another frame. The pose must be rigid: normals are rotated, not re-computed."""
        rotation_33 = pose_44[:3, :3].astype(np.float32)
        return Mesh(
            self.vertices_V3 @ rotation_33.T + pose_44[:3, 3].astype(np.float32),
            self.normals_V3 @ rotation_33.T,
            self.triangles_T3,
            self.closed,
        )

    def surface_points(self, count: int, rng: np.random.Generator) -> Floats:
        """`count` points spread evenly over the surface."""
        corners_T33 = self.vertices_V3[self.triangles_T3]
        area_T = np.linalg.norm(_cross(corners_T33), axis=1).astype(np.float64)
        chosen = rng.choice(len(area_T), size=count, p=area_T / area_T.sum())
        first, second = np.sqrt(rng.random(count)), rng.random(count)
        weights = np.stack([1 - first, first * (1 - second), first * second], axis=1)
        return np.asarray(np.einsum("nk,nkd->nd", weights, corners_T33[chosen]), dtype=np.float32)


def merge(meshes: list[Mesh]) -> Mesh:
    """All meshes as one."""
    offsets = np.cumsum([0] + [len(mesh.vertices_V3) for mesh in meshes[:-1]])
    return Mesh(
        np.concatenate([mesh.vertices_V3 for mesh in meshes]),
        np.concatenate([mesh.normals_V3 for mesh in meshes]),
        np.concatenate([mesh.triangles_T3 + offset for mesh, offset in zip(meshes, offsets, strict=True)]).astype(
            np.int32
        ),
        all(mesh.closed for mesh in meshes),
    )


def pose_matrix(at: tuple[float, float, float], turn_degrees: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Floats:
    """A rigid pose: turned about the fixed x, then y, then z axis, then moved to `at`."""
    x, y, z = np.deg2rad(np.asarray(turn_degrees, dtype=np.float64))
    about_x = np.array([[1, 0, 0], [0, np.cos(x), -np.sin(x)], [0, np.sin(x), np.cos(x)]])
    about_y = np.array([[np.cos(y), 0, np.sin(y)], [0, 1, 0], [-np.sin(y), 0, np.cos(y)]])
    about_z = np.array([[np.cos(z), -np.sin(z), 0], [np.sin(z), np.cos(z), 0], [0, 0, 1]])
    pose_44 = np.eye(4, dtype=np.float32)
    pose_44[:3, :3] = about_z @ about_y @ about_x
    pose_44[:3, 3] = at
    return pose_44


def _cross(corners_T33: NDArray[Any]) -> NDArray[Any]:
    """What points out of triangles, twice as long as they are large."""
    return np.cross(corners_T33[:, 1] - corners_T33[:, 0], corners_T33[:, 2] - corners_T33[:, 0])


def _loose(corners_T33: NDArray[np.float64], normals_T33: NDArray[np.float64]) -> Mesh:
    """Triangles that share no vertex."""
    return Mesh(
        corners_T33.reshape(-1, 3).astype(np.float32),
        normals_T33.reshape(-1, 3).astype(np.float32),
        np.arange(3 * len(corners_T33), dtype=np.int32).reshape(-1, 3),
    )


def _flat(corners_T33: NDArray[np.float64]) -> Mesh:
    """Triangles that share no vertex: every face is flat."""
    cross_T3 = _cross(corners_T33)
    normals_T3 = cross_T3 / np.maximum(np.linalg.norm(cross_T3, axis=1, keepdims=True), 1e-12)
    return _loose(corners_T33, np.repeat(normals_T3, 3, axis=0))


def _sides(radius: float) -> int:
    """Sides of something round: 9 for a pin of a few millimetres up to 18 for a wheel."""
    return int(np.clip(8 + radius * 350, 9, 18))


def _revolved(profile: list[tuple[float, float]], sides: int) -> Mesh:
    """The surface swept by a profile of (radius, z) points around z, each strip of it smooth around the axis.

    Strips do not share vertices, so the edges between them stay sharp.
    """
    angles = np.linspace(0, 2 * np.pi, sides + 1)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    meshes = []
    for (radius0, z0), (radius1, z1) in pairwise(profile):
        slope = np.array([z1 - z0, radius0 - radius1])
        slope = slope / max(float(np.linalg.norm(slope)), 1e-12)
        lower = np.column_stack([circle * radius0, np.full(sides + 1, z0)])
        upper = np.column_stack([circle * radius1, np.full(sides + 1, z1)])
        normals = np.column_stack([circle * slope[0], np.full(sides + 1, slope[1])])
        near, far = np.arange(sides), np.arange(1, sides + 1)
        triangles = []
        if radius0 > 0:
            triangles.append(np.stack([near, far, far + sides + 1], axis=1))
        if radius1 > 0:
            triangles.append(np.stack([near, far + sides + 1, near + sides + 1], axis=1))
        meshes.append(
            Mesh(
                np.concatenate([lower, upper]).astype(np.float32),
                np.concatenate([normals, normals]).astype(np.float32),
                np.concatenate(triangles).astype(np.int32),
            )
        )
    return merge(meshes)


def _box(size: tuple[float, float, float]) -> Mesh:
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=np.float64)
    corners = signs * np.asarray(size) / 2
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    return _flat(np.array([corners[list(t)] for a, b, c, d in quads for t in ((a, b, c), (a, c, d))]))


def _cylinder(radius: float, height: float) -> Mesh:
    half = height / 2
    return _revolved([(0, -half), (radius, -half), (radius, half), (0, half)], _sides(radius))


def _cone(radius: float, height: float, top_radius: float = 0.0) -> Mesh:
    half = height / 2
    profile = [(0.0, -half), (radius, -half), (top_radius, half)]
    return _revolved([*profile, (0.0, half)] if top_radius > 0 else profile, _sides(radius))


def _sphere(radius: float) -> Mesh:
    sides = max(10, _sides(radius) - 4)
    around = np.linspace(-np.pi / 2, np.pi / 2, sides // 2 + 1)[1:-1]
    belt = [(float(radius * np.cos(a)), float(radius * np.sin(a))) for a in around]
    mesh = _revolved([(0.0, -radius), *belt, (0.0, radius)], sides)
    return Mesh(mesh.vertices_V3, mesh.vertices_V3 / np.float32(radius), mesh.triangles_T3)


def _tube(radius: float, inner_radius: float, height: float) -> Mesh:
    half = height / 2
    profile = [(radius, -half), (radius, half), (inner_radius, half), (inner_radius, -half), (radius, -half)]
    return _revolved(profile, _sides(radius))


def _wheel(radius: float, width: float, hub_radius: float = 0.0) -> Mesh:
    """A disc on the z axis with rounded shoulders; `hub_radius` opens it for a hub of another colour."""
    half, shoulder = width / 2, width * 0.28
    rim = [(radius - shoulder, -half), (radius, -half + shoulder), (radius, half - shoulder), (radius - shoulder, half)]
    profile = [(hub_radius, -half), *rim, (hub_radius, half)]
    return _revolved([*profile, profile[0]] if hub_radius > 0 else profile, _sides(radius))


def _ring(radius: float, thickness: float) -> Mesh:
    """A torus around z: `radius` to the middle of a round bar of `thickness`."""
    around, sides = _sides(radius), 8
    major = np.linspace(0, 2 * np.pi, around, endpoint=False)[:, None]
    minor = np.linspace(0, 2 * np.pi, sides, endpoint=False)[None, :]
    out = np.stack([np.cos(major) * np.cos(minor), np.sin(major) * np.cos(minor), np.sin(minor) + 0 * major], axis=2)
    spine = np.stack([np.cos(major), np.sin(major), 0 * major], axis=2) * radius
    near = np.arange(around * sides).reshape(around, sides)
    right, up = np.roll(near, -1, axis=0), np.roll(near, -1, axis=1)
    both = np.roll(right, -1, axis=1)
    triangles = np.concatenate([np.stack([near, right, both], axis=2), np.stack([near, both, up], axis=2)])
    return Mesh(
        (spine + out * thickness / 2).reshape(-1, 3).astype(np.float32),
        out.reshape(-1, 3).astype(np.float32),
        triangles.reshape(-1, 3).astype(np.int32),
    )


def _plate(size: tuple[float, float, float], holes: list[list[float]], hole_radius: float) -> Mesh:
    """A box in x, y, z with round holes through z at the [x, y] of `holes`.

    Faces are cut into strips between the columns of holes; around a hole a square is joined to the circle. Holes of
    one column have the same x; columns and holes keep 2.5 radii apart and away from the border.
    """
    if not holes:
        return _box(size)
    half_x, half_y, half_z = (float(n) / 2 for n in size)
    columns: dict[float, list[float]] = {}
    for x, y in sorted(holes):
        columns.setdefault(round(x, 7), []).append(y)
    box = _box(size)
    narrow = np.abs(box.normals_V3[box.triangles_T3[:, 0], 2]) < 0.5  # its four sides
    parts = [_flat(box.vertices_V3[box.triangles_T3[narrow]].astype(np.float64))]
    sides, reach = 8, hole_radius * 1.25
    for z, up in ((half_z, True), (-half_z, False)):
        left = -half_x
        for x, column in columns.items():
            _face(parts, (left, -half_y, x - reach, half_y), z, up)
            low = -half_y
            for y in column:
                _face(parts, (x - reach, low, x + reach, y - reach), z, up)
                _square_around_hole(parts, (x, y), reach, hole_radius, sides, z, up)
                low = y + reach
            _face(parts, (x - reach, low, x + reach, half_y), z, up)
            left = x + reach
        _face(parts, (left, -half_y, half_x, half_y), z, up)
    for x, y in holes:
        wall = _revolved([(hole_radius, half_z), (hole_radius, -half_z)], sides)
        parts.append(wall.moved(pose_matrix((x, y, 0.0))))
    return merge(parts)


def _face(parts: list[Mesh], rectangle: tuple[float, float, float, float], z: float, up: bool) -> None:
    """Add a rectangle (x0, y0, x1, y1) at height z unless it is empty."""
    x0, y0, x1, y1 = rectangle
    if x1 - x0 < 1e-6 or y1 - y0 < 1e-6:
        return
    corners = np.array([[x0, y0, z], [x1, y0, z], [x1, y1, z], [x0, y1, z]])
    order = ((0, 1, 2), (0, 2, 3)) if up else ((0, 2, 1), (0, 3, 2))
    parts.append(_flat(np.array([corners[list(t)] for t in order])))


def _square_around_hole(
    parts: list[Mesh], centre: tuple[float, float], reach: float, radius: float, sides: int, z: float, up: bool
) -> None:
    angles = np.linspace(0, 2 * np.pi, sides + 1) + np.pi / 4
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    square = circle / np.max(np.abs(circle), axis=1, keepdims=True) * reach
    rings = [np.column_stack([ring + np.asarray(centre), np.full(sides + 1, z)]) for ring in (circle * radius, square)]
    corners = []
    for i in range(sides):
        inner, outer = (rings[0][i], rings[0][i + 1]), (rings[1][i], rings[1][i + 1])
        corners += [[inner[0], outer[0], outer[1]], [inner[0], outer[1], inner[1]]]
    triangles = np.array(corners)
    parts.append(_flat(triangles if up else triangles[:, ::-1]))


def _screw(radius: float, length: float, head_radius: float, head_height: float) -> Mesh:
    """A hexagon-head screw along -z: the head sits on z = 0 upwards, the shank goes down."""
    hexagon = _revolved([(0, 0), (head_radius, 0), (head_radius, head_height), (0, head_height)], 6)
    head = _flat(hexagon.vertices_V3[hexagon.triangles_T3].astype(np.float64))
    shank = _revolved([(radius, -length), (radius, 0)], 10)
    tip = _revolved([(0, -length - radius), (radius, -length)], 10)
    return merge([head, shank, tip])


PRIMITIVES: Mapping[str, Callable[..., Mesh]] = {  # a product file uses the same names, and those of the sizes
    "box": _box,
    "cylinder": _cylinder,
    "cone": _cone,
    "sphere": _sphere,
    "tube": _tube,
    "wheel": _wheel,
    "ring": _ring,
    "plate": _plate,
    "screw": _screw,
}


_LARGEST_METRES = 1e4  # of a part, and from the origin: beyond, the unit is wrong or the file damaged
_MOST_BYTES = 200 * 10**6  # of a mesh file, which takes ten times as much in memory


def load_mesh(path: Path, scale: float, max_triangles: int) -> Mesh:
    """Read a mesh file in its own units times `scale`, with at most about `max_triangles` triangles."""
    need_packages("reading mesh files", "synth", "trimesh")
    import trimesh

    if not path.is_file():
        raise InputError("mesh file not found", path=path, cure="give a path relative to the product file")
    if path.stat().st_size > _MOST_BYTES:
        problem = f"the file has more than {_MOST_BYTES / 1e6:g} MB"
        raise InputError(problem, path=path, cure="simplify the mesh before it is exported")
    content, kind = path.read_bytes(), path.suffix.lower().lstrip(".")
    try:
        if kind == "glb":
            _check_counts(content)
        # without a path it cannot follow the names of other files; what is damaged is not to be mended, but refused
        loaded = trimesh.load(BytesIO(content), file_type=kind, force="mesh", process=False)
    except Exception as error:  # trimesh raises whatever its parsers meet
        raise InputError(f"not a readable mesh ({error})", path=path, cure="export it as STL, OBJ or GLB") from error
    if not isinstance(loaded, trimesh.Trimesh) or len(loaded.faces) == 0:
        raise InputError("the mesh has no triangles", path=path, cure="export surfaces, not points or curves")
    faces, n = np.asarray(loaded.faces), len(loaded.vertices)
    flat = np.shape(loaded.vertices) != (n, 3) or faces.shape[1:] != (3,)
    if flat or faces.min() < 0 or faces.max() >= n or not np.isfinite(loaded.vertices).all():
        raise InputError("its triangles have corners that are not there", path=path, cure="export the mesh again")
    if not np.abs(np.asarray(loaded.vertices)[faces]).max() * scale < _LARGEST_METRES:
        cure = "look at it in another program, and check 'unit'"
        raise InputError("the mesh is far too large, or far away", path=path, cure=cure)
    loaded.merge_vertices(merge_tex=True, merge_norm=True)
    closed = bool(loaded.is_watertight and loaded.is_winding_consistent)
    if closed and loaded.volume < 0:  # some programs wind all triangles the other way
        loaded.invert()
    vertices = np.asarray(loaded.vertices, dtype=np.float64) * scale
    triangles = np.asarray(loaded.faces, dtype=np.int64)
    if len(triangles) == 0:
        raise InputError("the mesh has no surface", path=path, cure="export it again")
    if len(triangles) > max_triangles:
        vertices, triangles = simplified(vertices, triangles, max_triangles)
    return replace(_with_creases(vertices, triangles), closed=closed)


def _check_counts(content: bytes) -> None:
    """Refuse a GLB file that announces more numbers than it has bytes: room for them would be made all the same."""
    length = int.from_bytes(content[12:16], "little")
    accessors = json.loads(content[20 : 20 + length]).get("accessors", [])
    if any(not 0 <= accessor["count"] <= len(content) for accessor in accessors):
        raise ValueError("it announces more numbers than it holds")


def _with_creases(vertices: NDArray[np.float64], triangles: NDArray[np.int64]) -> Mesh:
    """Smooth normals, except across edges sharper than the crease angle: one vertex per triangle corner."""
    corners_T33 = vertices[triangles]
    cross_T3 = _cross(corners_T33)
    unit_T3 = cross_T3 / np.maximum(np.linalg.norm(cross_T3, axis=1, keepdims=True), 1e-18)
    around: list[list[int]] = [[] for _ in range(len(vertices))]
    for index, triangle in enumerate(triangles):
        for vertex in triangle:
            around[vertex].append(index)
    limit = np.cos(np.deg2rad(CREASE_DEGREES))
    normals_T33 = np.empty_like(corners_T33)
    for index, triangle in enumerate(triangles):
        for corner, vertex in enumerate(triangle):
            near = np.asarray(around[vertex])
            smooth = near[unit_T3[near] @ unit_T3[index] > limit]
            total = cross_T3[smooth].sum(axis=0) if len(smooth) else unit_T3[index]
            normals_T33[index, corner] = total / max(float(np.linalg.norm(total)), 1e-18)
    return _loose(corners_T33, normals_T33)


def _make(
    kind: str, at: tuple[float, float, float], turn: tuple[float, float, float] = (0, 0, 0), **sizes: object
) -> Mesh:
    return PRIMITIVES[kind](**sizes).moved(pose_matrix(at, turn))


def screwdriver() -> tuple[Mesh, NDArray[np.bool_]]:
    """A screwdriver along x with its tip at the origin, the handle at negative x; and which vertices are handle."""
    across = (0.0, 90.0, 0.0)
    metal = [
        _make("cylinder", (-0.055, 0, 0), across, radius=0.0038, height=0.10),
        _make("box", (-0.004, 0, 0), size=(0.012, 0.0075, 0.003)),
    ]
    handle = [
        _make("cylinder", (-0.155, 0, 0), across, radius=0.0145, height=0.085),
        _make("cone", (-0.108, 0, 0), across, radius=0.0135, top_radius=0.008, height=0.02),
        _make("sphere", (-0.195, 0, 0), radius=0.0145),
    ]
    mesh = merge([*metal, *handle])
    n_metal = sum(len(piece.vertices_V3) for piece in metal)
    return mesh, np.arange(len(mesh.vertices_V3)) >= n_metal


def clutter_mesh(kind: str, scale: float) -> Mesh:
    """A thing that stands on z = 0 around the origin."""
    s = scale
    if kind == "box":
        return _make("box", (0, 0, 0.025 * s), size=(0.11 * s, 0.07 * s, 0.05 * s))
    if kind == "cup":
        body = _make("tube", (0, 0, 0.045 * s), radius=0.038 * s, inner_radius=0.034 * s, height=0.09 * s)
        handle = _make("ring", (0.046 * s, 0, 0.045 * s), (90, 0, 0), radius=0.022 * s, thickness=0.008 * s)
        return merge([body, _make("cylinder", (0, 0, 0.004), radius=0.036 * s, height=0.008), handle])
    if kind == "paper":
        return _make("box", (0, 0, 0.001), size=(0.13 * s, 0.18 * s, 0.002))
    if kind == "image":  # printed on a sheet
        return _make("box", (0, 0, 0.0015), size=(0.11 * s, 0.075 * s, 0.003))
    if kind == "tray":
        floor = _make("box", (0, 0, 0.003), size=(0.14 * s, 0.10 * s, 0.006))
        walls = [_make("box", (0, y * s, 0.012), size=(0.14 * s, 0.005, 0.024)) for y in (-0.048, 0.048)]
        ends = [_make("box", (x * s, 0, 0.012), size=(0.005, 0.10 * s, 0.024)) for x in (-0.068, 0.068)]
        return merge([floor, *walls, *ends])
    if kind == "roll":
        return _make("tube", (0, 0, 0.012 * s), radius=0.045 * s, inner_radius=0.03 * s, height=0.024 * s)
    body = _make("cylinder", (0, 0, 0.009), (0, 90, 0), radius=0.009, height=0.1 * s)
    return merge([body, _make("box", (0.09 * s, 0, 0.009), size=(0.08 * s, 0.016, 0.008))])
