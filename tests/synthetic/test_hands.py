"""The hand's surface."""

from __future__ import annotations

import numpy as np
import pytest

from stormpsr.synthetic.hands import forearm_mesh, hand_mesh


def test_a_flat_hand_has_the_size_of_a_hand() -> None:
    low, high = (f(hand_mesh(0.0).mesh.vertices_V3, axis=0) for f in (np.min, np.max))
    assert 0.17 < high[0] < 0.21, "from the wrist to the tip of the middle finger"
    assert 0.10 < high[1] - low[1] < 0.16, "across, with the thumb"
    assert high[1] > -low[1], "a right hand's thumb is at +y"


def test_a_fist_is_shorter_and_thicker_than_a_flat_hand() -> None:
    flat, fist = (np.ptp(hand_mesh(curl).mesh.vertices_V3, axis=0) for curl in (0.0, 1.0))
    assert fist[0] < 0.75 * flat[0]
    assert fist[2] > 1.2 * flat[2]


def test_fingers_curl_to_the_side_of_the_palm() -> None:
    back = hand_mesh(0.6).mesh.vertices_V3
    assert back[:, 2].min() < -0.05
    assert back[:, 2].max() < 0.03


def test_the_surface_is_smooth_and_points_outwards() -> None:
    mesh = hand_mesh(0.4).mesh
    corners = mesh.vertices_V3[mesh.triangles_T3]
    facing = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    agrees = np.einsum("td,td->t", facing, mesh.normals_V3[mesh.triangles_T3].mean(axis=1)) > 0
    assert agrees.mean() > 0.98
    assert np.linalg.norm(mesh.normals_V3, axis=1) == pytest.approx(1.0, abs=1e-4)


def test_the_other_hand_is_its_mirror_image() -> None:
    right = hand_mesh(0.2)
    left = right.mirrored()
    assert left.mesh.vertices_V3[:, 1] == pytest.approx(-right.mesh.vertices_V3[:, 1])
    assert np.array_equal(left.mesh.triangles_T3, right.mesh.triangles_T3[:, ::-1])


def test_a_longer_sleeve_covers_more_of_the_forearm() -> None:
    def reach(share: float) -> float:
        mesh, is_sleeve = forearm_mesh(share)
        return float(mesh.vertices_V3[is_sleeve, 0].max()) if is_sleeve.any() else -1.0

    assert -1.0 == reach(0.0) < reach(0.3) < reach(0.8) < 0.0
