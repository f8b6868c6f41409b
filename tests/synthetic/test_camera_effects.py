"""Lens, sensor and JPEG."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from stormpsr.synthetic.camera_effects import Lens, Sensor, encode_jpeg
from stormpsr.synthetic.look import Look
from stormpsr.synthetic.product import Product

PLAIN = dataclasses.replace(
    Look.draw(Product.load("vehicle"), 0),
    field_of_view_degrees=60.0,
    distortion=0.15,
    exposure=1.0,
    white_balance=(1.0, 1.0, 1.0),
    gamma=1.0,
    vignette=0.0,
    noise=0.0,
)
CAMERA = np.eye(4, dtype=np.float32)  # at the origin, looking along -z


# ---------------------------------------------------------------------- lens
@pytest.mark.parametrize("x", [-0.5, -0.2, 0.0, 0.3])
@pytest.mark.parametrize("y", [-0.4, 0.1, 0.45])
def test_a_point_is_projected_to_where_the_lens_shows_it(x: float, y: float) -> None:
    lens = Lens(PLAIN, 100, 100, 2)
    rendered = np.zeros((200, 200), dtype=np.uint8)
    column = (x / lens.half_x + 1) / 2 * 200
    row_from_below = (y / lens.half_y + 1) / 2 * 200
    rendered[int(row_from_below) - 1 : int(row_from_below) + 2, int(column) - 1 : int(column) + 2] = 255
    rows, columns = np.nonzero(lens.bend(rendered))
    pixel, in_front = lens.pixel_of(np.array([[x, y, -1.0]], dtype=np.float32), CAMERA)
    assert in_front[0]
    assert pixel[0] == pytest.approx([columns.mean() + 0.5, rows.mean() + 0.5], abs=1.6)


def test_the_middle_of_the_image_has_the_field_of_view_that_was_asked_for() -> None:
    straight = dataclasses.replace(PLAIN, distortion=0.0)
    edge = np.array([[np.tan(np.deg2rad(30)), 0.0, -1.0]], dtype=np.float32)
    pixel, _ = Lens(straight, 100, 50, 1).pixel_of(edge, CAMERA)
    assert pixel[0] == pytest.approx([100.0, 25.0], abs=1e-3)


def test_a_wide_lens_sees_further_at_the_border() -> None:
    edge = np.array([[np.tan(np.deg2rad(31)), 0.0, -1.0]], dtype=np.float32)
    for look, expected in ((PLAIN, True), (dataclasses.replace(PLAIN, distortion=0.0), False)):
        lens = Lens(look, 100, 100, 1)
        assert bool(lens.inside(*lens.pixel_of(edge, CAMERA))[0]) is expected


def test_what_is_behind_the_camera_is_not_inside_the_image() -> None:
    lens = Lens(PLAIN, 100, 100, 1)
    pixel, in_front = lens.pixel_of(np.array([[0.0, 0.0, 1.0]], dtype=np.float32), CAMERA)
    assert not in_front[0]
    assert not lens.inside(pixel, in_front)[0]


def test_a_supersampled_image_shrinks_to_the_mean_of_its_samples() -> None:
    fine = np.zeros((4, 4, 3), dtype=np.uint8)
    fine[:2, 0] = 200
    assert Lens(PLAIN, 2, 2, 2).shrink(fine)[0, 0].tolist() == [100, 100, 100]


# ---------------------------------------------------------------------- sensor
def edges() -> np.ndarray:
    """A white cross on black."""
    image = np.zeros((64, 64, 3), dtype=np.uint8)
    image[30:34] = image[:, 30:34] = 200
    return image


def test_a_plain_sensor_keeps_the_image() -> None:
    kept = Sensor(PLAIN, 64, 64).expose(edges(), (0.0, 0.0), 0)
    assert np.abs(kept.astype(int) - edges()).max() <= 2


def test_motion_to_the_side_blurs_upright_edges_only() -> None:
    blurred = Sensor(PLAIN, 64, 64).expose(edges(), (8.0, 0.0), 0).astype(int)
    assert blurred[10, 27, 0] > 5, "left of the upright bar"
    assert blurred[27, 10, 0] == 0, "above the level bar"
    assert blurred.sum() == pytest.approx(edges().astype(int).sum(), rel=0.02)


def test_noise_has_the_strength_of_the_look_and_is_new_in_every_frame() -> None:
    sensor = Sensor(dataclasses.replace(PLAIN, noise=4.0), 64, 64)
    grey = np.full((64, 64, 3), 120, dtype=np.uint8)
    one, two = (sensor.expose(grey, (0.0, 0.0), index).astype(float) for index in (1, 2))
    assert one.std() == pytest.approx(4.0, rel=0.15)
    assert np.abs(one - two).mean() > 2
    assert np.array_equal(one, sensor.expose(grey, (0.0, 0.0), 1))


def test_a_longer_exposure_is_brighter_and_white_does_not_wrap_round() -> None:
    grey = np.full((8, 8, 3), 100, dtype=np.uint8)
    bright = Sensor(dataclasses.replace(PLAIN, exposure=1.5), 8, 8)
    assert bright.expose(grey, (0.0, 0.0), 0).mean() == pytest.approx(150, abs=2)
    assert bright.expose(grey * 2, (0.0, 0.0), 0).min() > 200


def test_corners_are_darker_by_the_vignette() -> None:
    white = np.full((64, 64, 3), 150, dtype=np.uint8)
    shaded = Sensor(dataclasses.replace(PLAIN, vignette=0.4), 64, 64).expose(white, (0.0, 0.0), 0)
    assert shaded[0, 0, 0] == pytest.approx(150 * 0.6, abs=3)
    assert shaded[32, 32, 0] == pytest.approx(150, abs=3)


def test_a_focus_that_hunts_blurs_some_frames_and_not_others() -> None:
    sensor = Sensor(dataclasses.replace(PLAIN, defocus=0.03), 64, 64)
    sharpness = [int(sensor.expose(edges(), (0.0, 0.0), frame).max()) for frame in range(0, 500, 5)]
    assert max(sharpness) >= 198, "in focus"
    assert min(sharpness) < 170, "out of focus"
    assert np.abs(np.diff(sharpness)).max() < 60, "slowly"


def test_exposure_and_warmth_drift_by_no_more_than_the_look_says() -> None:
    sensor = Sensor(dataclasses.replace(PLAIN, drift=0.3), 8, 8)
    grey = np.full((8, 8, 3), 100, dtype=np.uint8)
    means = np.array([sensor.expose(grey, (0.0, 0.0), frame).mean(axis=(0, 1)) for frame in range(0, 500, 5)])
    assert 100 * np.exp(-0.4) - 2 <= means.min() < 95
    assert 105 < means.max() <= 100 * np.exp(0.4) + 2
    assert np.ptp(means[:, 0] / means[:, 2]) > 0.05, "warmth"


def test_a_better_jpeg_is_larger() -> None:
    image = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    assert len(encode_jpeg(image, 95)) > len(encode_jpeg(image, 60))
