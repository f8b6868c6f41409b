"""Single images of states, and montages of a set."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.states import draw_states, wrong_variant


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("states") / "vehicle"
    draw_states(out, "vehicle", per_state=1, size=64, seed=1)
    return out


def test_every_state_gets_an_image_and_a_box_with_its_class(states: Path) -> None:
    coco = json.loads((states / "annotations.json").read_text())
    procedure = Procedure.load(states / "procedure.yaml")
    classes = {state.state_class for state in procedure.states} - {0}
    assert {box["category_id"] for box in coco["annotations"]} == classes
    for image in coco["images"]:
        with Image.open(states / image["file_name"]) as picture:
            assert picture.size == (64, 64)
    for box in coco["annotations"]:
        assert procedure.state_class(box["state"]) == box["category_id"]


def test_the_same_seed_gives_the_same_images(states: Path, tmp_path: Path) -> None:
    draw_states(tmp_path / "again", "vehicle", per_state=1, size=64, seed=1)
    for path in sorted((states / "images").iterdir()):
        assert (tmp_path / "again" / "images" / path.name).read_bytes() == path.read_bytes()


def test_images_are_not_written_over_others(states: Path) -> None:
    with pytest.raises(InputError, match="there already"):
        draw_states(states, "vehicle", per_state=1, size=64, seed=1)


def test_a_wrong_variant_has_a_wrong_part_that_can_be_wrong() -> None:
    product = Product.load("vehicle")
    known = [state.bits for state in product.procedure.states if state.bits is not None]
    for seed in range(20):
        bits = wrong_variant(product, known, np.random.default_rng(seed))
        wrong = [k for k, bit in enumerate(bits) if bit == -1]
        assert 1 <= len(wrong) <= 2
        assert all(product.parts[k].wrong_poses for k in wrong)


def test_a_product_without_wrong_poses_cannot_show_errors() -> None:
    product = Product.load("vehicle")
    upright = replace(product, parts=tuple(replace(part, wrong_poses=()) for part in product.parts))
    with pytest.raises(InputError, match="has a wrong pose"):
        wrong_variant(upright, [(1,) * 11], np.random.default_rng(0))
