"""Table, room and shadows, which no renderer draws."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from stormpsr.synthetic.backdrop import TABLE_LOW, Backdrop, ConvexPieces, ShadowMap, room_panorama, table_texture
from stormpsr.synthetic.camera_effects import Lens
from stormpsr.synthetic.look import TABLE_KINDS, Look
from stormpsr.synthetic.meshes import pose_matrix
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.states import look_at

LOOK = dataclasses.replace(Look.draw(Product.load("vehicle"), 0), shadow=0.5)
CUBE = ConvexPieces.of([np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float32) * 0.04])
HERE = np.eye(4, dtype=np.float32)


def darkness(shadows: ShadowMap, x: float, y: float) -> int:
    """How dark the table is at a point of the world, 0 to 255."""
    at = [np.full((1, 1), value, dtype=np.float32) for value in (x - TABLE_LOW[0], y - TABLE_LOW[1])]
    return int(shadows.look_up(at[0], at[1])[0, 0])


# ---------------------------------------------------------------------- shadows
def test_a_lamp_overhead_puts_the_shadow_under_the_body() -> None:
    shadows = ShadowMap((0.0, 0.0, 1.0))
    shadows.cast([(pose_matrix((0.1, 0.2, 0.3)), CUBE)])
    assert darkness(shadows, 0.1, 0.2) == 255
    assert darkness(shadows, 0.1, 0.27) == 0


def test_a_slanting_lamp_throws_the_shadow_to_the_other_side() -> None:
    shadows = ShadowMap((np.sqrt(0.5), 0.0, np.sqrt(0.5)))  # from +x, at 45 degrees
    shadows.cast([(pose_matrix((0.0, 0.0, 0.2)), CUBE)])
    assert darkness(shadows, -0.2, 0.0) == 255
    assert darkness(shadows, 0.0, 0.0) == 0


def test_a_shadow_has_a_soft_edge() -> None:
    shadows = ShadowMap((0.0, 0.0, 1.0))
    shadows.cast([(HERE, CUBE)])
    across = [darkness(shadows, x, 0.0) for x in np.linspace(0.02, 0.06, 20)]
    assert sum(0 < value < 255 for value in across) >= 3
    assert across == sorted(across, reverse=True)


def test_static_shadows_stay_and_moving_ones_go() -> None:
    shadows = ShadowMap((0.0, 0.0, 1.0), static=[(pose_matrix((0.3, 0.0, 0.0)), CUBE)])
    shadows.cast([(HERE, CUBE)])
    shadows.cast([])
    assert darkness(shadows, 0.3, 0.0) == 255
    assert darkness(shadows, 0.0, 0.0) == 0


def test_a_ball_of_many_vertices_is_kept_as_a_few() -> None:
    directions = np.random.default_rng(0).normal(size=(4000, 3))
    ball = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    pieces = ConvexPieces.of([ball.astype(np.float32), CUBE.points_N3])
    assert pieces.spans[0][1] <= 48
    assert pieces.spans[1] == (pieces.spans[0][1], pieces.spans[0][1] + 8)
    assert np.ptp(pieces.points_N3[: pieces.spans[0][1]], axis=0) == pytest.approx(2.0, abs=0.15)


# ---------------------------------------------------------------------- table and room
def backdrop(look: Look = LOOK, size: int = 96) -> Backdrop:
    return Backdrop(look, Lens(look, size, size, 1))


def test_the_shadow_is_in_the_image_where_the_camera_sees_it() -> None:
    camera = look_at(np.array([0.0, -0.01, 0.5]), np.zeros(3))
    bare, shaded = ShadowMap((0.0, 0.0, 1.0)), ShadowMap((0.0, 0.0, 1.0))
    shaded.cast([(HERE, CUBE)])
    scene = backdrop()
    light, dark = (scene.image(camera, shadows).astype(int) for shadows in (bare, shaded))
    assert dark[48, 48].sum() == pytest.approx(0.5 * light[48, 48].sum(), rel=0.05)
    assert np.array_equal(light[5], dark[5])


def test_a_shiny_table_shows_the_lamp_where_it_is_mirrored_and_not_in_shadow() -> None:
    above = dataclasses.replace(LOOK.lights[0], direction=(0.0, 0.0, 1.0), colour=(1.0, 1.0, 1.0))
    dark = dataclasses.replace(
        LOOK, table_colour=(0.2, 0.2, 0.2), table_accent=(0.2, 0.2, 0.2), shadow=1.0, lights=(above, *LOOK.lights[1:])
    )
    shiny = dataclasses.replace(dark, table_gloss=0.7)
    camera = look_at(np.array([0.0, -0.01, 0.5]), np.zeros(3))
    bare, shaded = ShadowMap((0.0, 0.0, 1.0)), ShadowMap((0.0, 0.0, 1.0))
    shaded.cast([(HERE, CUBE)])
    plain, glossy = (backdrop(look).image(camera, bare).astype(int) for look in (dark, shiny))
    assert (glossy[48, 48] - plain[48, 48]).min() > 120, "below the camera the table mirrors the lamp overhead"
    assert (glossy - plain)[2, 2].max() < 60, "not where it looks aslant"
    assert backdrop(shiny).image(camera, shaded)[48, 48].max() < 30


def test_beyond_the_table_there_is_the_room() -> None:
    camera = look_at(np.array([0.0, 0.5, 0.3]), np.array([0.0, 2.0, 0.5]))
    dull = dataclasses.replace(
        LOOK, room_colour=(0.0, 0.0, 0.9), table_colour=(1.0, 0.0, 0.0), table_accent=(1.0, 0.0, 0.0)
    )
    image = backdrop(dull).image(camera, ShadowMap((0.0, 0.0, 1.0))).astype(int)
    assert np.mean(image[..., 2] > image[..., 0]) > 0.8


def test_a_large_image_shows_the_same_table_as_a_small_one() -> None:
    import cv2

    camera = look_at(np.array([0.1, -0.3, 0.4]), np.zeros(3))
    small, large = (backdrop(size=size).image(camera, ShadowMap((0.0, 0.0, 1.0))) for size in (96, 384))
    shrunk = cv2.resize(large, (96, 96), interpolation=cv2.INTER_AREA)
    blur = [cv2.GaussianBlur(p, (0, 0), 3).astype(int) for p in (small, shrunk)]
    assert np.abs(blur[0] - blur[1]).mean() < 6


@pytest.mark.parametrize("kind", TABLE_KINDS)
def test_a_table_top_has_a_pattern_between_its_two_colours(kind: str) -> None:
    image = table_texture(kind, (0.2, 0.2, 0.2), (0.6, 0.6, 0.6), seed=1).astype(float) / 255
    assert 0.15 < image.mean() < 0.65
    assert image.std() > 0.01
    assert not np.array_equal(image, table_texture(kind, (0.2, 0.2, 0.2), (0.6, 0.6, 0.6), seed=2) / 255)


def test_the_room_goes_all_the_way_round() -> None:
    room = room_panorama((0.5, 0.5, 0.5), seed=3)
    assert room.shape == (140, 360, 3)
    assert np.abs(room[:, 0].astype(int) - room[:, -1]).mean() < 25
