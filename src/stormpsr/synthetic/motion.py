"""Smooth movement: rotations, poses, minimum-jerk tracks between moving anchors, and slow noise.

Shape legend: F frames. Quaternions are (w, x, y, z). All functions are vectorised over the leading axes and pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def minimum_jerk(x: ArrayLike) -> Floats:
    """The progress 0..1 of a human reach at the relative time 0..1 (clipped outside)."""
    t = np.clip(np.asarray(x, dtype=np.float64), 0.0, 1.0)
    return np.asarray(t * t * t * (10.0 + t * (6.0 * t - 15.0)))


def rotation(axis: ArrayLike, angle_radians: ArrayLike) -> Floats:
    """Rotation matrices (..., 3, 3) about one axis by each angle."""
    x, y, z = np.asarray(axis, dtype=np.float64) / np.linalg.norm(np.asarray(axis, dtype=np.float64))
    angle = np.asarray(angle_radians, dtype=np.float64)[..., None, None]
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * (cross @ cross))


def pose(rotation_33: ArrayLike, position_3: ArrayLike) -> Floats:
    """4x4 matrices from rotations (..., 3, 3) and positions (..., 3), broadcast together."""
    turn = np.asarray(rotation_33, dtype=np.float64)
    place = np.asarray(position_3, dtype=np.float64)
    shape = np.broadcast_shapes(turn.shape[:-2], place.shape[:-1])
    matrix = np.zeros((*shape, 4, 4))
    matrix[..., :3, :3] = turn
    matrix[..., :3, 3] = place
    matrix[..., 3, 3] = 1.0
    return matrix


def apply(pose_44: ArrayLike, point_3: ArrayLike) -> Floats:
    """Points (..., 3) taken from the local frame of the poses (..., 4, 4) to the world."""
    matrix = np.asarray(pose_44, dtype=np.float64)
    return np.asarray(np.einsum("...ij,...j->...i", matrix[..., :3, :3], np.asarray(point_3)) + matrix[..., :3, 3])


def frame_from_axes(x_axis: ArrayLike, z_hint: ArrayLike) -> Floats:
    """Rotations whose x axis is `x_axis` and whose z axis is as near to `z_hint` as that allows."""
    x = np.asarray(x_axis, dtype=np.float64)
    x = x / np.linalg.norm(x, axis=-1, keepdims=True)
    hint = np.broadcast_to(np.asarray(z_hint, dtype=np.float64), x.shape)
    z = hint - np.sum(hint * x, axis=-1, keepdims=True) * x
    z = z / np.maximum(np.linalg.norm(z, axis=-1, keepdims=True), 1e-9)
    return np.stack([x, np.cross(z, x), z], axis=-1)


def look_at(eye_F3: ArrayLike, target_F3: ArrayLike, roll_F: ArrayLike = 0.0) -> Floats:
    """Camera poses (OpenGL: looks along its -z, +y up in the image) at `eye`, looking at `target`."""
    eye = np.asarray(eye_F3, dtype=np.float64)
    back = eye - np.asarray(target_F3, dtype=np.float64)
    back = back / np.linalg.norm(back, axis=-1, keepdims=True)
    right = np.cross(np.broadcast_to(np.array([0.0, 0.0, 1.0]), back.shape), back)
    right = right / np.maximum(np.linalg.norm(right, axis=-1, keepdims=True), 1e-9)
    turn = np.stack([right, np.cross(back, right), back], axis=-1)
    return pose(turn @ rotation([0.0, 0.0, 1.0], roll_F), eye)


def quaternion_from_matrix(matrix_33: ArrayLike) -> Floats:
    """Unit quaternions (..., 4) of rotation matrices (..., 3, 3)."""
    m = np.asarray(matrix_33, dtype=np.float64)
    diagonal = m[..., [0, 1, 2], [0, 1, 2]]
    x2, y2, z2 = diagonal[..., 0], diagonal[..., 1], diagonal[..., 2]
    squares = np.stack([1 + x2 + y2 + z2, 1 + x2 - y2 - z2, 1 - x2 + y2 - z2, 1 - x2 - y2 + z2], axis=-1)
    a = np.stack([m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]], axis=-1)
    s = np.stack([m[..., 1, 0] + m[..., 0, 1], m[..., 0, 2] + m[..., 2, 0], m[..., 2, 1] + m[..., 1, 2]], axis=-1)
    xy, xz, yz = s[..., 0], s[..., 1], s[..., 2]
    rows = _stacked(
        [squares[..., 0], a[..., 0], a[..., 1], a[..., 2]],
        [a[..., 0], squares[..., 1], xy, xz],
        [a[..., 1], xy, squares[..., 2], yz],
        [a[..., 2], xz, yz, squares[..., 3]],
    )
    best = np.argmax(squares, axis=-1)
    q = np.take_along_axis(rows, best[..., None, None], axis=-2)[..., 0, :]
    return np.asarray(q / np.linalg.norm(q, axis=-1, keepdims=True))


def matrix_from_quaternion(quaternion_4: ArrayLike) -> Floats:
    """Rotation matrices (..., 3, 3) of quaternions (..., 4), which are normalised first."""
    q = np.asarray(quaternion_4, dtype=np.float64)
    w, x, y, z = np.moveaxis(q / np.linalg.norm(q, axis=-1, keepdims=True), -1, 0)
    return _stacked(
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    )


def _stacked(*rows: Sequence[Floats]) -> Floats:
    """Matrices whose entries are arrays over the leading axes."""
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def slerp(from_33: ArrayLike, to_33: ArrayLike, share: ArrayLike) -> Floats:
    """Rotations on the shortest way from one to the other; `share` 0..1 broadcasts over the leading axes."""
    a = quaternion_from_matrix(from_33)
    b = quaternion_from_matrix(to_33)
    cosine = np.sum(a * b, axis=-1, keepdims=True)
    b = np.where(cosine < 0.0, -b, b)
    angle = np.arccos(np.clip(np.abs(cosine), 0.0, 1.0))
    s = np.asarray(share, dtype=np.float64)[..., None]
    near = angle < 1e-4
    safe = np.where(near, 1.0, np.sin(angle))
    wa = np.where(near, 1.0 - s, np.sin((1.0 - s) * angle) / safe)
    wb = np.where(near, s, np.sin(s * angle) / safe)
    return matrix_from_quaternion(wa * a + wb * b)


@dataclass(frozen=True)
class Anchor:
    """From `start_frame` on, something moves to `pose` and stays with it (which may itself move) until the next."""

    start_frame: int
    travel_frames: int
    pose: Floats  # (4, 4), or (L, 4, 4) from `start_frame` on for an anchor that moves
    lift_metres: float = 0.0  # how far the way there bows upwards


def follow(anchors: Sequence[Anchor], n_frames: int) -> Floats:
    """The poses (F, 4, 4) of something that goes from anchor to anchor with minimum jerk.

    A journey that is cut short by the next anchor goes on from where it is: the pose reached is carried along as the
    starting point, so nothing ever jumps.
    """
    ordered = sorted(anchors, key=lambda anchor: anchor.start_frame)
    poses = np.empty((n_frames, 4, 4))
    current: Floats | None = None
    for anchor, following in zip(ordered, [*ordered[1:], None], strict=True):
        first = max(anchor.start_frame, 0)
        last = n_frames if following is None else min(max(following.start_frame, first), n_frames)
        if last <= first:
            continue
        goal = anchor.pose[: last - first] if anchor.pose.ndim == 3 else np.tile(anchor.pose, (last - first, 1, 1))
        if current is None:
            poses[:last] = goal[0]
            poses[first:last] = goal
        else:
            share = minimum_jerk((np.arange(first, last) - first + 1) / max(anchor.travel_frames, 1))
            place = current[:3, 3] + share[:, None] * (goal[:, :3, 3] - current[:3, 3])
            place[:, 2] += anchor.lift_metres * 4.0 * share * (1.0 - share)
            poses[first:last] = pose(slerp(current[:3, :3], goal[:, :3, :3], share), place)
        current = poses[last - 1]
    return poses


def lowpass(values_FD: ArrayLike, time_constant_frames: float) -> Floats:
    """A critically damped follower of the values: the inertia of a head, without overshoot."""
    target = np.asarray(values_FD, dtype=np.float64)
    omega = 1.0 / max(time_constant_frames, 1e-3)
    decay = np.exp(-omega)
    out = np.empty_like(target)
    place, speed = target[0].copy(), np.zeros_like(target[0])
    for frame in range(len(target)):
        offset = place - target[frame]
        carry = speed + omega * offset
        place = target[frame] + (offset + carry) * decay
        speed = (speed - omega * carry) * decay
        out[frame] = place
    return out


def slow_noise(rng: np.random.Generator, n_frames: int, period_frames: float, dimensions: int) -> Floats:
    """Smooth noise (F, D) of about unit size whose hills are about `period_frames` apart."""
    n_knots = int(np.ceil(n_frames / max(period_frames, 1.0))) + 4
    knots = rng.standard_normal((n_knots, dimensions))
    x = np.arange(n_frames) / max(period_frames, 1.0) + 1.0
    left = x.astype(int)
    t = (x - left)[:, None]
    p0, p1, p2, p3 = (knots[left + k] for k in (-1, 0, 1, 2))
    return np.asarray(p1 + 0.5 * t * (p2 - p0 + t * (2 * p0 - 5 * p1 + 4 * p2 - p3 + t * (3 * (p1 - p2) + p3 - p0))))
