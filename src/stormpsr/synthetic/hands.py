"""A hand as a closed smooth surface: bones with a radius, blended into one body, meshed once per degree of curl.

The wrist frame has +x along the fingers and +z out of the back of the hand; of a right hand the thumb is at +y. The
bones are posed first and the surface is drawn around them, so that a bent finger has no folded skin. Curl is one
number, so a dozen meshes per hand, made once, replace any deformation per frame. Lengths are metres; the hand is
about 19 cm long and is scaled by the renderer.

Shape legend: N points, B bones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stormpsr.synthetic.meshes import Mesh, merge
from stormpsr.synthetic.vtk_tools import contour

Floats = NDArray[np.float32]

CURL_LEVELS = 10
"""How many meshes there are between the flat hand and the fist."""

_CELL = 0.0048
_MAX_TRIANGLES = 1000

# knuckle (x, y), the three phalanges' lengths, radius at the knuckle and at the tip, splay in degrees
_FINGERS = (
    ((0.092, 0.029), (0.043, 0.026, 0.021), (0.0098, 0.0074), 7.0),
    ((0.096, 0.0095), (0.047, 0.030, 0.022), (0.0100, 0.0075), 1.5),
    ((0.091, -0.0105), (0.043, 0.028, 0.022), (0.0096, 0.0072), -4.0),
    ((0.081, -0.0295), (0.034, 0.021, 0.019), (0.0086, 0.0064), -11.0),
)


@dataclass(frozen=True)
class _Bone:
    """A round bar between two points with a radius at either end."""

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    radius_start: float
    radius_end: float

    def distance(self, points_N3: Floats) -> Floats:
        along = (self.end - self.start).astype(np.float32)
        offset_N3 = points_N3 - self.start.astype(np.float32)
        share_N = np.clip(offset_N3 @ (along / np.float32(along @ along)), 0.0, 1.0)
        offset_N3 -= share_N[:, None] * along
        gap_N = np.sqrt(np.einsum("nd,nd->n", offset_N3, offset_N3))
        return np.asarray(gap_N - self.radius_start - share_N * np.float32(self.radius_end - self.radius_start))


@dataclass(frozen=True, eq=False)
class HandMesh:
    """A hand's surface, and per vertex how much it is palm (1) or back (0), and how much it is a nail."""

    mesh: Mesh
    palm_V: Floats
    nail_V: Floats

    def mirrored(self) -> HandMesh:
        """The other hand."""
        flip = np.array([1, -1, 1], dtype=np.float32)
        mesh = Mesh(
            self.mesh.vertices_V3 * flip,
            self.mesh.normals_V3 * flip,
            np.ascontiguousarray(self.mesh.triangles_T3[:, ::-1]),
        )
        return HandMesh(mesh, self.palm_V, self.nail_V)


def _blend(one: Floats, other: Floats, width: float) -> Floats:
    """The union of two bodies with a fillet of about `width`."""
    share = np.maximum(width - np.abs(one - other), 0.0) / width
    return np.asarray(np.minimum(one, other) - share * share * width * 0.25, dtype=np.float32)


def _finger_bones(curl: float, finger: int) -> list[_Bone]:
    (x, y), lengths, (thick, thin), splay = _FINGERS[finger]
    side = np.deg2rad(splay * (1.0 - 0.75 * curl))
    forward = np.array([np.cos(side), np.sin(side), 0.0])
    more = 1.0 + 0.08 * (finger - 1)  # the little finger closes first
    bends = np.deg2rad([8 + 70 * curl * more, 10 + 84 * curl * more, 6 + 48 * curl * more])
    radii = np.linspace(thick, thin, 4)
    point, angle, bones = np.array([x, y, 0.002]), 0.0, []
    for index in range(3):
        angle += bends[index]
        end = point + lengths[index] * (np.cos(angle) * forward - np.sin(angle) * np.array([0.0, 0.0, 1.0]))
        bones.append(_Bone(point, end, float(radii[index]), float(radii[index + 1])))
        point = end
    return bones


def _thumb_bones(curl: float) -> list[_Bone]:
    def unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(vector / np.linalg.norm(vector))

    first = unit((1 - curl) * np.array([0.66, 0.72, -0.28]) + curl * np.array([0.72, 0.34, -0.66]))
    second = unit(first + np.array([0.45, -0.25 - 0.35 * curl, -0.1]))
    third = unit(second + np.array([0.3, -0.25 - 0.5 * curl, -0.1]))
    radii, lengths = (0.0165, 0.0125, 0.0108, 0.0088), (0.042, 0.034, 0.026)
    point, bones = np.array([0.020, 0.020, -0.008]), []
    for index, direction in enumerate((first, second, third)):
        end = point + lengths[index] * direction
        bones.append(_Bone(point, end, radii[index], radii[index + 1]))
        point = end
    return bones


def _palm_bones() -> list[_Bone]:
    bones = []
    for (x, y), _, (thick, _), _ in _FINGERS:
        bones.append(_Bone(np.array([0.0, y * 0.55, 0.0]), np.array([x, y, 0.001]), 0.0150, thick + 0.0022))
    bones.append(_Bone(np.array([0.012, -0.022, -0.006]), np.array([0.055, -0.027, -0.006]), 0.014, 0.013))
    bones.append(_Bone(np.array([-0.006, 0.004, 0.0]), np.array([0.012, 0.0, 0.0]), 0.0185, 0.021))
    bones.append(_Bone(np.array([-0.006, -0.006, 0.0]), np.array([0.012, -0.006, 0.0]), 0.0185, 0.020))
    return bones


class _Body:
    """The hand as a distance to its surface, negative inside."""

    def __init__(self, curl: float) -> None:
        self.palm = _palm_bones()
        self.thumb = _thumb_bones(curl)
        self.fingers = [_finger_bones(curl, finger) for finger in range(4)]

    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """A box around the bones with room for the flesh."""
        bones = [*self.palm, *self.thumb, *(bone for finger in self.fingers for bone in finger)]
        ends = np.stack([point for bone in bones for point in (bone.start, bone.end)])
        return ends.min(axis=0) - 0.028, ends.max(axis=0) + 0.028

    def distance(self, points_N3: Floats) -> Floats:
        palm = self._chain(self.palm, points_N3, 0.012)
        whole = _blend(palm, self._chain(self.thumb, points_N3, 0.004), 0.014)
        for finger in self.fingers:  # fingers blend into the palm but not into each other
            whole = np.minimum(whole, _blend(palm, self._chain(finger, points_N3, 0.003), 0.006))
        return whole

    @staticmethod
    def _chain(bones: list[_Bone], points_N3: Floats, width: float) -> Floats:
        total = bones[0].distance(points_N3)
        for bone in bones[1:]:
            total = _blend(total, bone.distance(points_N3), width)
        return total

    def normals(self, points_N3: Floats) -> Floats:
        step, axes = np.float32(0.0008), np.eye(3, dtype=np.float32)
        slope = np.stack(
            [self.distance(points_N3 + step * axis) - self.distance(points_N3 - step * axis) for axis in axes],
            axis=1,
        )
        return np.asarray(slope / np.maximum(np.linalg.norm(slope, axis=1, keepdims=True), 1e-12))

    def nails(self, points_N3: Floats, normals_N3: Floats) -> Floats:
        """1 on the back of the last phalanges' ends."""
        nail = np.zeros(len(points_N3), dtype=np.float32)
        for bones in (*self.fingers, self.thumb):
            tip = bones[-1]
            along = (tip.end - tip.start) / np.linalg.norm(tip.end - tip.start)
            across = np.array([0.0, 1.0, 0.0]) if bones is not self.thumb else np.array([-0.5, 0.5, 0.7])
            back = np.cross(along, across)
            near = np.linalg.norm(points_N3 - tip.end, axis=1) < 0.014
            nail[near & (normals_N3 @ back > 0.55) & ((points_N3 - tip.start) @ along > 0.006)] = 1.0
        return nail


def hand_mesh(curl: float) -> HandMesh:
    """The surface of a right hand with a curl from 0 (flat) to 1 (fist)."""
    body = _Body(curl)
    low, high = body.bounds()
    axes = [np.arange(a, b + _CELL, _CELL, dtype=np.float32) for a, b in zip(low, high, strict=True)]
    z, y, x = np.meshgrid(axes[2], axes[1], axes[0], indexing="ij")
    distance_ZYX = body.distance(np.stack([x.ravel(), y.ravel(), z.ravel()], axis=1)).reshape(x.shape)
    vertices, triangles = contour(distance_ZYX, low, _CELL, _MAX_TRIANGLES)
    points = vertices.astype(np.float32)
    normals = body.normals(points)
    palm = np.clip(-normals[:, 2] * 1.5, 0.0, 1.0)
    mesh = Mesh(points, normals, np.ascontiguousarray(triangles, dtype=np.int32))
    return HandMesh(mesh, palm, body.nails(points, normals))


def forearm_mesh(sleeve_share: float) -> tuple[Mesh, NDArray[np.bool_]]:
    """A forearm from the wrist at the origin to the elbow at x = -1, and which vertices are sleeve.

    Its length is 1 and its thickness in metres: the renderer stretches it along x to reach the elbow.
    """
    ends = [
        (0.055, 0.004, 0.005),  # a round end inside the hand, for a bent wrist
        (0.045, 0.012, 0.015),
        (0.02, 0.0175, 0.022),
        (-0.03, 0.0200, 0.0255),
        (-0.15, 0.0220, 0.0290),
        (-0.4, 0.0310, 0.0365),
        (-0.7, 0.0400, 0.0430),
        (-1.0, 0.0420, 0.0440),
    ]
    skin = _lofted(ends)
    if sleeve_share <= 0:
        return skin, np.zeros(len(skin.vertices_V3), dtype=bool)
    start = -(1.0 - sleeve_share)
    profile = np.array(ends)[::-1]
    rings = []
    for x, extra in ((start + 0.004, 0.003), (start, 0.010), ((start - 1.0) / 2, 0.012), (-1.0, 0.016)):
        thin, wide = (float(np.interp(x, profile[:, 0], profile[:, k])) for k in (1, 2))
        rings.append((x, thin + extra, wide + extra))
    whole = merge([skin, _lofted(rings)])
    is_sleeve = np.arange(len(whole.vertices_V3)) >= len(skin.vertices_V3)
    return whole, is_sleeve


def watch_mesh() -> Mesh:
    """A watch around the wrist of a forearm whose length is 1: a strap, and a case on the back of the hand's side."""
    strap = _lofted([(-0.09, 0.0225, 0.0285), (-0.155, 0.0235, 0.0305)])
    case = _lofted(
        [(-0.065, 0.001, 0.001), (-0.07, 0.005, 0.017), (-0.175, 0.005, 0.017), (-0.18, 0.001, 0.001)], sides=12
    )
    lift = np.array([0.0, 0.0, 0.025], dtype=np.float32)
    return merge([strap, Mesh(case.vertices_V3 + lift, case.normals_V3, case.triangles_T3)])


def forearm_pose(wrist_44: Floats, elbow_3: Floats, scale: float) -> Floats:
    """Stretch the forearm from the wrist to the elbow, its flat side along the back of the hand."""
    along = wrist_44[:3, 3] - elbow_3
    length = max(float(np.linalg.norm(along)), 1e-3)
    x = along / length
    y = _cross(wrist_44[:3, 2], x)
    y = y / max(float(np.linalg.norm(y)), 1e-6)
    pose_44 = np.eye(4, dtype=np.float32)
    pose_44[:3, 0], pose_44[:3, 1], pose_44[:3, 2] = x * length, y * scale, _cross(x, y) * scale
    pose_44[:3, 3] = wrist_44[:3, 3]
    return pose_44


def _cross(one_3: Floats, other_3: Floats) -> Floats:
    """The cross product of two vectors, without the overhead of doing it for many."""
    a, b, c = one_3.tolist()
    d, e, f = other_3.tolist()
    return np.array([b * f - c * e, c * d - a * f, a * e - b * d], dtype=np.float32)


def _lofted(rings: list[tuple[float, float, float]], sides: int = 14) -> Mesh:
    """A tube along x through ellipses (x, half height, half width), smooth all over."""
    angles = np.linspace(0, 2 * np.pi, sides, endpoint=False)
    points, normals, triangles = [], [], []
    for x, thin, wide in rings:
        points.append(np.column_stack([np.full(sides, x), wide * np.cos(angles), thin * np.sin(angles)]))
        normals.append(np.column_stack([np.zeros(sides), np.cos(angles) / wide, np.sin(angles) / thin]))
    near = np.arange(sides)
    far = np.roll(near, -1)
    for ring in range(len(rings) - 1):
        a, b = ring * sides, (ring + 1) * sides
        triangles += [np.stack([a + near, b + near, b + far], axis=1), np.stack([a + near, b + far, a + far], axis=1)]
    unit = np.concatenate(normals)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return Mesh(
        np.concatenate(points).astype(np.float32), unit.astype(np.float32), np.concatenate(triangles).astype(np.int32)
    )
