"""Things that are no part of the product: the screwdriver and what else lies on a table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stormpsr.synthetic.meshes import PRIMITIVES, Mesh, merge, pose_matrix

__all__ = ["clutter_mesh", "screwdriver"]


def _make(
    kind: str, at: tuple[float, float, float], turn: tuple[float, float, float] = (0, 0, 0), **sizes: object
) -> Mesh:
    return PRIMITIVES[kind][0](**sizes).moved(pose_matrix(at, turn))


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
    if kind == "tray":
        floor = _make("box", (0, 0, 0.003), size=(0.14 * s, 0.10 * s, 0.006))
        walls = [_make("box", (0, y * s, 0.012), size=(0.14 * s, 0.005, 0.024)) for y in (-0.048, 0.048)]
        ends = [_make("box", (x * s, 0, 0.012), size=(0.005, 0.10 * s, 0.024)) for x in (-0.068, 0.068)]
        return merge([floor, *walls, *ends])
    if kind == "roll":
        return _make("tube", (0, 0, 0.012 * s), radius=0.045 * s, inner_radius=0.03 * s, height=0.024 * s)
    body = _make("cylinder", (0, 0, 0.009), (0, 90, 0), radius=0.009, height=0.1 * s)
    return merge([body, _make("box", (0.09 * s, 0, 0.009), size=(0.08 * s, 0.016, 0.008))])
