"""What the renderer says about a frame must be what is in the frame."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from stormpsr.errors import InputError
from stormpsr.synthetic.look import Look
from stormpsr.synthetic.meshes import pose_matrix
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.render import RenderedFrame, Renderer
from stormpsr.synthetic.stage import PartPlace, Timeline
from stormpsr.synthetic.states import look_at, state_timeline
from stormpsr.synthetic.vtk_tools import require_opengl

try:
    require_opengl()
except InputError as error:
    pytest.skip(str(error), allow_module_level=True)

FINISHED = (1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1)
SCREW, WHEELS = 8, 9


@pytest.fixture(scope="module")
def product() -> Product:
    return Product.load("vehicle")


@pytest.fixture(scope="module")
def renderer(product: Product) -> Iterator[Renderer]:
    with Renderer(product, Look.draw(product, 1), 96) as made:
        yield made


def still(product: Product, bits: tuple[int, ...] = FINISHED, **changes: Any) -> Timeline:
    """The object in the middle of the table, alone, seen from above the person's place; absent parts are away."""
    timeline = state_timeline(product, bits, seed=0, hands=0.0)
    defaults: dict[str, Any] = {
        "object_pose_F44": np.eye(4, dtype=np.float32)[None],
        "camera_pose_F44": look_at(np.array([0.0, -0.28, 0.34]), np.array([0.0, 0.0, 0.03]))[None],
        "part_place_FC": np.where(np.array([bits]) == 0, PartPlace.AWAY, timeline.part_place_FC).astype(np.uint8),
        "tool_visible_F": np.zeros(1, dtype=bool),
    }
    return dataclasses.replace(timeline, **(defaults | changes))


def hand_at(x: float, y: float, z: float) -> dict[str, Any]:
    """A flat right hand that points away from the person, its wrist at a point."""
    poses = np.tile(np.eye(4, dtype=np.float32), (1, 2, 1, 1))
    poses[0, 1] = pose_matrix((x, y, z), (0.0, 0.0, 90.0))
    return {
        "hand_pose_FH44": poses,
        "hand_visible_FH": np.array([[False, True]]),
        "hand_curl_FH": np.zeros((1, 2), dtype=np.float32),
        "elbow_FH3": np.array([[[0, 0, 0], [x + 0.05, y - 0.26, z + 0.05]]], dtype=np.float32),
    }


# ---------------------------------------------------------------------- visibility
def test_an_object_that_is_alone_is_all_visible(renderer: Renderer, product: Product) -> None:
    frame = renderer.render(still(product), 0)
    seated = np.array(FINISHED) == 1
    assert np.all(frame.visible_share_C[seated] == 1.0)
    assert np.all(frame.inside_share_C[seated] == 1.0)
    assert np.all(frame.pixels_C[seated] > 1.0), "every part shows at least a pixel from the usual side"
    assert frame.assembly_visible_share == 1.0
    assert frame.hand_share == 0.0


def test_a_component_that_is_absent_has_no_pixels_but_its_place_can_be_seen(
    renderer: Renderer, product: Product
) -> None:
    bits = (1,) + (0,) * 10
    frame = renderer.render(still(product, bits), 0)
    assert np.all(frame.pixels_C[1:] == 0)
    assert np.all(frame.visible_share_C[1:] == 0)
    assert np.all(frame.place_visible_share_C == 1.0)


def test_a_hand_hides_what_is_under_it_and_nothing_else(renderer: Renderer, product: Product) -> None:
    frame = renderer.render(still(product, **hand_at(0.09, -0.10, 0.10)), 0)
    assert frame.hand_share > 0.05
    assert frame.visible_share_C[SCREW] < 0.3
    assert frame.place_visible_share_C[SCREW] < 0.3
    assert frame.visible_share_C[10] > 0.7, "the rear wheels are on the other side"
    assert frame.assembly_visible_share < 1.0


def test_a_hand_behind_the_object_hides_nothing(renderer: Renderer, product: Product) -> None:
    lifted = pose_matrix((0.0, 0.0, 0.12))[None]
    frame = renderer.render(still(product, object_pose_F44=lifted, **hand_at(0.0, -0.05, 0.03)), 0)
    assert frame.hand_share > 0.0
    assert frame.assembly_visible_share > 0.99


def test_the_shortcut_for_an_unobstructed_object_counts_the_same_pixels(renderer: Renderer, product: Product) -> None:
    """The second pass is left out only where it would have drawn the same."""
    alone = renderer.render(still(product), 0)
    beside = renderer.render(still(product, **hand_at(0.19, -0.10, 0.05)), 0)  # in the rectangle, not in the way
    assert beside.hand_share > 0
    assert beside.assembly_pixels_C == pytest.approx(alone.assembly_pixels_C, abs=0.5)
    assert beside.box == alone.box


def test_an_object_half_out_of_the_image_is_half_inside(renderer: Renderer, product: Product) -> None:
    camera = look_at(np.array([0.0, -0.01, 0.45]), np.array([0.0, 0.0, 0.0]))
    camera[0, 3] += 0.45 * np.tan(np.deg2rad(renderer.look.field_of_view_degrees / 2))  # left edge over the middle
    frame = renderer.render(still(product, camera_pose_F44=camera[None]), 0)
    assert frame.inside_share_C[0] == pytest.approx(0.5, abs=0.12)
    assert frame.inside_share_C[10] == 0.0, "rear wheels are to the left"
    assert frame.inside_share_C[9] == 1.0
    assert frame.visible_share_C[10] == 0.0
    assert frame.box is not None
    assert frame.box.x0 == 0.0


def test_an_object_behind_the_camera_has_no_box_and_no_pixels(renderer: Renderer, product: Product) -> None:
    away = look_at(np.array([0.0, 0.3, 0.3]), np.array([0.0, 1.0, 0.1]))
    frame = renderer.render(still(product, camera_pose_F44=away[None]), 0)
    assert frame.box is None
    assert frame.pixels_C.sum() == 0
    assert frame.inside_share_C.sum() == 0
    assert frame.assembly_visible_share == 0.0


def test_a_loose_part_in_front_of_the_object_hides_it(renderer: Renderer, product: Product) -> None:
    bits = (1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1)
    timeline = still(product, bits)
    places, poses = timeline.part_place_FC.copy(), timeline.part_pose_FC44.copy()
    places[0, WHEELS] = PartPlace.TABLE
    poses[0, WHEELS] = pose_matrix((0.0, -0.02, 0.11))
    frame = renderer.render(dataclasses.replace(timeline, part_place_FC=places, part_pose_FC44=poses), 0)
    assert frame.pixels_C[WHEELS] == 0, "it is not part of the assembly"
    assert frame.assembly_visible_share < 0.95


def test_the_box_holds_the_object_and_little_else(renderer: Renderer, product: Product) -> None:
    frame = renderer.render(still(product), 0)
    assert frame.box is not None
    x0, y0, x1, y1 = frame.box.corners
    assert 0.35 * 96 < x1 - x0 < 0.75 * 96
    assert frame.pixels_C.sum() > 0.5 * (x1 - x0) * (y1 - y0)
    assert 0 <= x0 < x1 <= 96


# ---------------------------------------------------------------------- images
def test_the_marks_of_a_part_lie_on_it_and_on_its_seat(renderer: Renderer, product: Product) -> None:
    wrong = next(k for k in range(11) if product.parts[k].wrong_choices())
    bits = tuple(-1 if k == wrong else 0 if k == 10 else 1 for k in range(11))
    frame = renderer.render(still(product, bits), 0)
    belongs_C32, is_C32 = frame.places_CP2[:, :3], frame.places_CP2[:, 3:]
    assert np.isfinite(belongs_C32).all()
    assert np.isnan(is_C32[10]).all(), "it is not there"
    right = [k for k, bit in enumerate(bits) if bit == 1]
    assert (belongs_C32[right] == is_C32[right]).all()
    assert np.abs(belongs_C32[wrong] - is_C32[wrong]).max() > 0.02
    box = frame.box
    assert box is not None
    on_it = is_C32[:10, 0] * (renderer.width, renderer.height)
    assert ((on_it >= (box.x0, box.y0)) & (on_it <= (box.x1, box.y1))).all()
    alone = renderer.render(still(product, tuple(int(k == 0) for k in range(11))), 0)
    assert alone.box is not None
    middle = (alone.box.x0 + alone.box.x1) / 2, (alone.box.y0 + alone.box.y1) / 2
    assert np.abs(alone.places_CP2[0, 3] * (renderer.width, renderer.height) - middle).max() < 0.1 * renderer.width


def test_marks_behind_the_camera_are_nowhere(renderer: Renderer, product: Product) -> None:
    behind = still(product)
    behind.camera_pose_F44[0, 2, 3] -= 2.0
    assert np.isnan(renderer.render(behind, 0).places_CP2).all()


def difference(one: RenderedFrame, other: RenderedFrame) -> np.ndarray:
    return np.abs(one.image.astype(int) - other.image.astype(int)).sum(axis=2)


def test_a_frame_is_drawn_the_same_twice_and_in_any_order(renderer: Renderer, product: Product) -> None:
    first = renderer.render(still(product), 0)
    renderer.render(still(product, **hand_at(0.0, -0.1, 0.1)), 0)
    assert np.array_equal(first.image, renderer.render(still(product), 0).image)


def test_two_renderers_with_the_same_look_draw_the_same_image(renderer: Renderer, product: Product) -> None:
    renderer.render(still(product, **hand_at(0.0, -0.1, 0.1)), 0)
    with Renderer(product, Look.draw(product, 1), 96) as other:
        assert np.array_equal(other.render(still(product), 0).image, renderer.render(still(product), 0).image)


def test_a_look_that_was_set_later_draws_what_it_would_have_drawn_from_the_start(product: Product) -> None:
    with Renderer(product, Look.draw(product, 5), 64) as fresh:
        expected = fresh.render(still(product), 0)
    with Renderer(product, Look.draw(product, 2), 64) as changed:
        changed.render(still(product), 0)
        changed.set_look(Look.draw(product, 5))
        assert np.array_equal(changed.render(still(product), 0).image, expected.image)


@pytest.mark.parametrize("component", [2, 5, 6, 8])
def test_a_single_pin_or_screw_makes_a_visible_difference(renderer: Renderer, product: Product, component: int) -> None:
    without = list(FINISHED)
    without[component] = 0
    changed = difference(renderer.render(still(product), 0), renderer.render(still(product, tuple(without)), 0)) > 60
    assert changed.sum() >= 10


def test_a_part_put_on_wrongly_looks_different(renderer: Renderer, product: Product) -> None:
    right = renderer.render(still(product), 0)
    for k, part in enumerate(product.parts):
        if not part.wrong_poses or FINISHED[k] == 0:
            continue
        bits = tuple(-1 if i == k else bit for i, bit in enumerate(FINISHED))
        wrong = renderer.render(still(product, bits), 0)
        assert (difference(right, wrong) > 60).sum() >= 10, part.name


def test_the_object_casts_a_shadow_on_the_table(product: Product) -> None:
    look = dataclasses.replace(Look.draw(product, 1), spares=(), clutter=(), noise=0.0)
    with Renderer(product, dataclasses.replace(look, shadow=0.0), 96) as plain:
        bright = plain.render(still(product), 0)
        plain.set_look(dataclasses.replace(look, shadow=0.6))
        dark = plain.render(still(product), 0)
    lost = bright.image.astype(int).sum(axis=2) - dark.image.astype(int).sum(axis=2)
    assert lost.min() >= -3
    assert 40 < (lost > 30).sum() < 0.4 * lost.size


def test_a_moving_camera_blurs_the_image(product: Product) -> None:
    look = dataclasses.replace(Look.draw(product, 1), noise=0.0, shutter_seconds=1 / 25)
    one = still(product)
    before = one.camera_pose_F44.copy()
    before[0, 0, 3] -= 0.12
    fields = {f.name: getattr(one, f.name) for f in dataclasses.fields(one)}
    two = {name: np.concatenate([v, v]) if isinstance(v, np.ndarray) else v for name, v in fields.items()}
    moving = Timeline(**(two | {"camera_pose_F44": np.concatenate([before, one.camera_pose_F44])}))
    with Renderer(product, look, 96) as renderer:
        sharp, blurred = renderer.render(Timeline(**two), 1).image, renderer.render(moving, 1).image
    assert np.abs(np.diff(blurred.astype(int), axis=1)).mean() < 0.8 * np.abs(np.diff(sharp.astype(int), axis=1)).mean()


def test_an_image_may_be_wide_and_is_encoded_as_jpeg(product: Product) -> None:
    import simplejpeg

    with Renderer(product, Look.draw(product, 1), (96, 64)) as renderer:
        frame = renderer.render(still(product), 0)
        decoded = simplejpeg.decode_jpeg(renderer.encode(frame))
    assert frame.image.shape == (64, 96, 3)
    assert np.abs(decoded.astype(int) - frame.image.astype(int)).mean() < 12


def test_an_image_of_no_size_is_refused(product: Product) -> None:
    with pytest.raises(InputError, match="0 x 0 pixels"):
        Renderer(product, Look.draw(product, 1), 0)


def test_a_timeline_of_another_product_is_refused(renderer: Renderer) -> None:
    gearbox = Product.load("gearbox")
    timeline = state_timeline(gearbox, gearbox.procedure.variant("assy").initial, seed=0)
    with pytest.raises(ValueError, match="17 components"):
        renderer.render(timeline, 0)
