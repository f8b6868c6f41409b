"""Products as data: the shipped ones, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.synthetic.product import Material, Product, shipped_products

TWO_PARTS = """\
name: stool
fps: 10
components: [seat, leg]
states: [background, '10', '11', error]
variants:
  assy: {initial: '10', expected: [install leg]}
order:
  leg: [seat]
unit: mm
materials:
  wood: {hue: [0.05, 0.1], saturation: [0.3, 0.6], value: [0.4, 0.8]}
parts:
  seat:
    shape:
      - {box: {size: [100, 80, 10]}, material: wood}
    at: [0, 0, 45]
  leg:
    shape:
      - {cylinder: {radius: 5, height: 40}, material: wood}
    at: [30, 0, 20]
    wrong:
      - {name: other side, shift: [-60, 0, 0]}
"""


def load(tmp_path: Path, text: str) -> Product:
    path = tmp_path / "product.yaml"
    path.write_text(text, encoding="utf-8")
    return Product.load(path)


@pytest.fixture(params=["vehicle", "gearbox"])
def product(request: pytest.FixtureRequest) -> Product:
    return Product.load(request.param)


# ---------------------------------------------------------------------- shipped products
def test_two_products_are_shipped() -> None:
    assert shipped_products() == ["gearbox", "vehicle"]


def test_the_vehicle_follows_the_industreal_procedure() -> None:
    vehicle, industreal = Product.load("vehicle").procedure, Procedure.load("industreal")
    assert [c.name for c in vehicle.components] == [c.name for c in industreal.components]
    assert [s.bits for s in vehicle.states] == [s.bits for s in industreal.states]
    for name in ("assy", "main"):
        assert vehicle.variant(name).initial == industreal.variant(name).initial
        assert vehicle.variant(name).expected == industreal.variant(name).expected


def test_the_gearbox_is_large_and_needs_the_tool() -> None:
    gearbox = Product.load("gearbox")
    assert gearbox.n_components >= 15
    assert sum(part.needs_tool for part in gearbox.parts) >= 3
    assert sum(state.bits is not None for state in gearbox.procedure.states) == 12


def test_every_component_but_the_first_can_be_put_on_wrongly(product: Product) -> None:
    assert all(part.wrong_poses for part in product.parts[1:])


def test_a_wrong_pose_can_be_seen_at_training_size(product: Product) -> None:
    """Some part of the component moves by at least 8 mm: about two pixels of 128."""
    for part in product.parts:
        for wrong in part.wrong_poses:
            right = part.mesh.moved(part.pose_44).vertices_V3
            moved = part.mesh.moved(wrong.pose_44).vertices_V3
            distance = np.linalg.norm(right[:, None] - moved[None], axis=2)
            assert max(distance.min(axis=1).max(), distance.min(axis=0).max()) > 0.008, (part.name, wrong.name)


def test_a_finished_product_stands_on_the_table_and_has_the_size_of_a_toy(product: Product) -> None:
    low, high = product.bounds_23
    assert low[2] == pytest.approx(0.0, abs=1e-6)
    assert 0.19 < np.max(high - low) < 0.26
    assert np.abs(low + high)[:2].max() < 0.06


def test_no_colour_tells_whether_a_part_is_there(product: Product) -> None:
    """A material that one part alone is made of belongs to the part that is always there."""
    users: dict[str, set[str]] = {name: set() for name in product.materials}
    for part in product.parts:
        for piece in part.pieces:
            users[piece.material].add(part.name)
    alone = {next(iter(parts)) for parts in users.values() if len(parts) == 1}
    assert alone <= {product.parts[0].name}
    assert all(variant.initial[0] == 1 for variant in product.procedure.variants.values())


def test_a_loose_part_rests_on_the_table(product: Product) -> None:
    for part in product.parts:
        lying = part.mesh.moved(part.rest_44).vertices_V3
        assert lying[:, 2].min() == pytest.approx(0.0, abs=1e-6)
        assert (lying.min(axis=0) + lying.max(axis=0))[:2] == pytest.approx([0, 0], abs=1e-6)


def test_the_tool_touches_a_part_from_the_side_it_comes_from() -> None:
    screw = Product.load("vehicle").part("front bracket screw")
    assert screw.needs_tool
    assert screw.tool_point_3 == pytest.approx([0.078, 0.0, 0.070], abs=1e-6)


# ---------------------------------------------------------------------- what is in the way
def bits_of(product: Product, *names: str) -> list[int]:
    return [int(part.name in names) for part in product.parts]


def blockers(product: Product, bits: list[int], name: str) -> set[str]:
    return {product.parts[k].name for k in product.blocked_by(bits, product.procedure.component_index[name])}


def test_a_part_cannot_be_taken_off_while_others_sit_on_it() -> None:
    vehicle = Product.load("vehicle")
    bits = bits_of(vehicle, "base", "rear chassis", "front rear chassis pin", "rear wheel assy")
    assert blockers(vehicle, bits, "rear chassis") == {"front rear chassis pin", "rear wheel assy"}
    assert blockers(vehicle, bits, "front rear chassis pin") == set()


def test_a_place_that_is_taken_is_blocked_by_what_is_there() -> None:
    vehicle = Product.load("vehicle")
    assert blockers(vehicle, bits_of(vehicle, "base", "rear chassis"), "short rear chassis") == {"rear chassis"}


# ---------------------------------------------------------------------- files of one's own
def test_a_file_gives_parts_in_metres_and_a_procedure(tmp_path: Path) -> None:
    stool = load(tmp_path, TWO_PARTS)
    assert np.ptp(stool.part("seat").bounds_23, axis=0).ravel() == pytest.approx([0.1, 0.08, 0.01])
    assert stool.part("leg").wrong_poses[0].pose_44[:3, 3] == pytest.approx([-0.03, 0.0, 0.02])
    assert stool.part("leg").sits_on == ("seat",)
    assert stool.procedure.variant("assy").expected == (3,)


def test_a_derived_procedure_survives_its_own_file(tmp_path: Path) -> None:
    procedure = Product.load("vehicle").procedure
    procedure.save(tmp_path / "procedure.yaml")
    assert Procedure.load(tmp_path / "procedure.yaml") == procedure


def test_a_wrong_pose_turns_about_the_parts_own_middle(tmp_path: Path) -> None:
    text = TWO_PARTS.replace("shift: [-60, 0, 0]", "turn: [90, 0, 0]")
    pose = load(tmp_path, text).part("leg").wrong_poses[0].pose_44
    assert pose[:3, 3] == pytest.approx([0.03, 0.0, 0.02])
    assert pose[:3, 2] == pytest.approx([0.0, -1.0, 0.0], abs=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("radius: 5", "radius: 0", 19, "greater than 0"),
        ("size: [100, 80, 10]", "size: [100, -80, 10]", 15, "greater than 0"),
        ("size: [100, 80, 10]", "size: [100, 80]", 15, "size has only 2 entries"),
        ("leg: [seat]", "leg: [seat]\n  seat: [leg]", 8, "cycle"),
        ("leg: [seat]", "leg: [saet]", 8, "did you mean 'seat'"),
        ("'10', '11'", "'01', '11'", 4, "cannot be reached"),
        ("material: wood}\n    at: [30", "material: steel}\n    at: [30", 19, "unknown material 'steel'"),
        ("  leg:\n    shape", "  lag:\n    shape", 17, "did you mean 'leg'"),
        ("cylinder: {radius: 5, height: 40}", "cylinder: {radius: 5}", 19, "height' is missing"),
        ("cylinder: {radius: 5, height: 40}", "pyramid: {radius: 5}", 19, "there is no key .*pyramid"),
        ("cylinder: {radius: 5, height: 40}", "file: missing.stl", 19, "missing.stl not found"),
        ("at: [30, 0, 20]", "ta: [30, 0, 20]", 20, "there is no key 'parts.leg.ta'; there are: approach, at,"),
        ("shift: [-60, 0, 0]", "shift: [0, 0, 0]", 22, "is the right one"),
        ("unit: mm", "unit: inch", 9, "unit is 'inch'"),
        ("value: [0.4, 0.8]", "value: [0.8, 0.4]", 11, "not a range"),
        ("at: [30, 0, 20]", "at: [30, 0, 20]\n    tool: maybe", 21, "true or false"),
        ("at: [30, 0, 20]", "at: [30, 0, 1e999]", 20, "finite"),
        ("at: [30, 0, 20]", "at: [30, 0, 1e308]", 20, "1000000"),
        ("at: [30, 0, 20]", "at: [30, 0, 20]\n    replaces: seat", 21, "has both"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    assert TWO_PARTS.count(old) == 1
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path, TWO_PARTS.replace(old, new))
    assert caught.value.line == line
    assert caught.value.path == str(tmp_path / "product.yaml")


def test_a_component_without_a_part_is_named(tmp_path: Path) -> None:
    text = TWO_PARTS[: TWO_PARTS.index("  leg:\n    shape")]
    with pytest.raises(InputError, match="component 'leg' has no part"):
        load(tmp_path, text)


def test_an_unknown_product_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="gearbox, vehicle"):
        Product.load("rocket")


def test_text_that_is_no_yaml_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not YAML"):
        load(tmp_path, "name: [")
    with pytest.raises(InputError, match="holds no product"):
        load(tmp_path, "just words")


def test_a_material_outside_its_range_is_refused() -> None:
    with pytest.raises(InputError, match="shine"):
        Material("glass", (0, 1), (0, 1), (0, 1), shine=2.0)
