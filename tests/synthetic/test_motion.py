"""Smooth movement."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpsr.synthetic.motion import (
    Anchor,
    follow,
    look_at,
    lowpass,
    matrix_from_quaternion,
    minimum_jerk,
    pose,
    quaternion_from_matrix,
    rotation,
    slerp,
    slow_noise,
)

angles = st.floats(-3.1, 3.1)


def test_a_reach_starts_and_ends_at_rest() -> None:
    t = np.linspace(0, 1, 1001)
    speed = np.gradient(minimum_jerk(t), t)
    assert minimum_jerk(0.0) == 0.0
    assert minimum_jerk(1.0) == pytest.approx(1.0)
    assert minimum_jerk(0.5) == pytest.approx(0.5)
    assert speed[0] == pytest.approx(0.0, abs=1e-3)
    assert speed[-1] == pytest.approx(0.0, abs=1e-3)


@given(angles, angles, angles)
def test_a_rotation_survives_the_way_through_quaternions(a: float, b: float, c: float) -> None:
    turn = rotation([1, 0, 0], a) @ rotation([0, 1, 0], b) @ rotation([0, 0, 1], c)
    assert np.allclose(matrix_from_quaternion(quaternion_from_matrix(turn)), turn, atol=1e-9)


@given(angles, st.floats(0, 1))
def test_slerp_turns_evenly_about_one_axis(angle: float, share: float) -> None:
    halfway = slerp(np.eye(3), rotation([0, 0, 1], angle), share)
    assert np.allclose(halfway, rotation([0, 0, 1], angle * share), atol=1e-6)


def test_a_camera_looks_at_its_target_with_the_sky_up() -> None:
    camera = look_at([0.0, -0.4, 0.5], [0.0, 0.0, 0.0])
    towards = -camera[:3, 2]
    assert np.allclose(towards, np.array([0.0, 0.4, -0.5]) / np.hypot(0.4, 0.5))
    assert camera[2, 1] > 0  # the image's up has a part that points to the sky


def test_something_that_goes_from_anchor_to_anchor_never_jumps() -> None:
    places = [pose(rotation([0, 0, 1], k), [k, 0.0, 0.0]) for k in range(4)]
    track = follow([Anchor(k * 7, 20, places[k]) for k in range(4)], 60)  # every journey is cut short
    steps = np.linalg.norm(np.diff(track[:, :3, 3], axis=0), axis=1)
    assert steps.max() < 0.35
    assert np.allclose(track[-1], places[3], atol=1e-6)


def test_an_anchor_that_moves_takes_along_what_has_reached_it() -> None:
    moving = np.stack([pose(np.eye(3), [0.1 * k, 0.0, 0.0]) for k in range(30)])
    track = follow([Anchor(0, 1, pose(np.eye(3), [5.0, 0.0, 0.0])), Anchor(10, 5, moving)], 40)
    assert np.allclose(track[20:, 0, 3], moving[10:, 0, 3])


def test_a_head_follows_without_overshooting() -> None:
    target = np.concatenate([np.zeros((5, 1)), np.ones((60, 1))])
    head = lowpass(target, 4.0)
    assert head.max() <= 1.0 + 1e-9
    assert head[-1, 0] == pytest.approx(1.0, abs=1e-3)
    assert head[6, 0] < 0.2


def test_slow_noise_is_smooth_and_repeatable() -> None:
    noise = slow_noise(np.random.default_rng(3), 400, 20.0, 2)
    assert np.array_equal(noise, slow_noise(np.random.default_rng(3), 400, 20.0, 2))
    assert 0.3 < noise.std() < 1.5
    assert np.abs(np.diff(noise, axis=0)).max() < 0.5
