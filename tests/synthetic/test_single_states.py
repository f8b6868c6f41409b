"""Single images of states, and products made of mesh files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stormpsr.data.images import read_image
from stormpsr.errors import InputError
from stormpsr.procedure.model import StepKind
from stormpsr.station.service import step_pictures
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.states import StateRenderer, _steps_and_states, draw_step_pictures, look_at, state_timeline
from stormpsr.synthetic.vtk_tools import require_opengl

try:
    require_opengl()
except InputError as error:
    pytest.skip(str(error), allow_module_level=True)

PAGE = Path(__file__).parents[2] / "docs" / "products.md"


@pytest.fixture(scope="module")
def states() -> Iterator[StateRenderer]:
    with StateRenderer(Product.load("gearbox"), 64) as made:
        yield made


def test_a_seed_gives_the_same_image_again_and_another_seed_another(states: StateRenderer) -> None:
    bits = states.product.procedure.variant("assy").initial
    first = states.render(bits, seed=3).image
    other = states.render(bits, seed=4).image
    assert np.array_equal(first, states.render(bits, seed=3).image)
    assert np.abs(first.astype(int) - other.astype(int)).mean() > 10


def test_without_hands_most_of_the_object_is_visible(states: StateRenderer) -> None:
    bits = (1,) * 17
    shares = [states.render(bits, seed, hands=0.0).assembly_visible_share for seed in range(12)]
    assert min(shares) > 0.6
    assert all(states.render(bits, seed, hands=0.0).hand_share == 0 for seed in range(3))


def test_hands_hide_part_of_the_object_in_some_images(states: StateRenderer) -> None:
    frames = [states.render((1,) * 17, seed, hands=1.0) for seed in range(12)]
    assert all(frame.hand_share > 0 for frame in frames)
    assert sum(frame.assembly_visible_share < 0.9 for frame in frames) >= 3


def test_the_object_has_a_readable_size(states: StateRenderer) -> None:
    boxes = [states.render((1,) * 17, seed, hands=0.0).box for seed in range(20)]
    widths = [max(box.width, box.height) / 64 for box in boxes if box is not None]
    assert len(widths) == 20
    assert 0.35 < np.median(widths) < 0.65


def test_a_state_with_a_wrong_part_uses_one_of_its_wrong_poses() -> None:
    vehicle = Product.load("vehicle")
    bits = (1, 1, -1) + (0,) * 8
    chosen = {int(state_timeline(vehicle, bits, seed).wrong_choice_FC[0, 2]) for seed in range(60)}
    seen = [number for number, wrong in enumerate(vehicle.parts[2].wrong_poses) if not wrong.unseen]
    assert chosen == set(seen)  # and none of those that are kept from training
    assert len(seen) < len(vehicle.parts[2].wrong_poses)


def test_a_wrong_part_without_a_wrong_pose_is_refused() -> None:
    with pytest.raises(InputError, match="'base' has no wrong pose"):
        state_timeline(Product.load("vehicle"), (-1,) + (0,) * 10, seed=0)


def test_more_hands_than_all_is_refused() -> None:
    with pytest.raises(InputError, match="hands is 2"):
        state_timeline(Product.load("vehicle"), (1,) + (0,) * 10, seed=0, hands=2)


def test_a_camera_looks_where_it_is_told_and_stands_upright() -> None:
    camera = look_at(np.array([0.0, -1.0, 1.0]), np.zeros(3))
    assert -camera[:3, 2] == pytest.approx([0.0, np.sqrt(0.5), -np.sqrt(0.5)], abs=1e-6)
    assert camera[:3, 0] == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)


def test_the_documented_product_from_mesh_files_is_drawn(tmp_path: Path) -> None:
    import trimesh

    trimesh.creation.box(extents=(160, 100, 10)).export(tmp_path / "plate.stl")
    trimesh.creation.cylinder(radius=12, height=70, sections=24).export(tmp_path / "bolt.obj")
    trimesh.creation.annulus(r_min=0.0125, r_max=0.03, height=0.02).export(tmp_path / "nut.glb")  # in metres
    example = PAGE.read_text(encoding="utf-8").split("<!-- file: bearing.yaml -->\n```yaml\n")[1].split("```")[0]
    (tmp_path / "product.yaml").write_text(example)
    product = Product.load(tmp_path / "product.yaml")
    assert np.ptp(product.part("nut").bounds_23[:, 0]) == pytest.approx(0.06, rel=0.02)
    with StateRenderer(product, 96) as renderer:
        frame = renderer.render((1, 1, 1), seed=1, hands=0.0)
        wrong = renderer.render((1, -1, 0), seed=1, hands=0.0)
    assert frame.image.shape == (96, 96, 3)
    assert frame.box is not None
    assert np.all(frame.pixels_C > 20)
    assert wrong.pixels_C[1] > 20
    assert wrong.pixels_C[2] == 0


def test_every_expected_step_has_an_image_with_its_change_marked(tmp_path: Path) -> None:
    product = Product.load("vehicle")
    expected = {step_id for variant in product.procedure.variants.values() for step_id in variant.expected}
    assert draw_step_pictures(product, tmp_path / "pictures", size=64) == len(expected)
    assert set(step_pictures(tmp_path, product.procedure)) == expected
    image = read_image(tmp_path / "pictures" / "install front wheel assy.jpg").astype(int)
    assert ((image[..., 0] > 190) & (image[..., 2] < 90)).any()  # the orange frame


def test_a_part_that_carries_others_is_taken_off_after_them() -> None:
    procedure = Product.load("vehicle").procedure
    before, after = _steps_and_states(procedure)[procedure.step_id(3, StepKind.REMOVE)]  # the rear chassis
    assert (before[3], after[3]) == (1, 0)
    assert after[5] == after[6] == after[10] == 0  # its pins and wheels
