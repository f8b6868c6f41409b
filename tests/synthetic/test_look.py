"""The appearance of a recording comes from one number."""

from __future__ import annotations

import colorsys
import dataclasses

import numpy as np
import pytest

from stormpsr.errors import InputError
from stormpsr.synthetic.look import TABLE_KINDS, Look
from stormpsr.synthetic.product import Product

VEHICLE = Product.load("vehicle")
LOOKS = [Look.draw(VEHICLE, seed) for seed in range(40)]
HARD = [Look.draw(VEHICLE, seed, difficulty=1.0) for seed in range(40)]
ONLY_HARD = ("shine", "table_gloss", "defocus", "drift")


def test_the_same_seed_gives_the_same_look() -> None:
    one, other = Look.draw(VEHICLE, 7), Look.draw(VEHICLE, 7)
    for field in dataclasses.fields(Look):
        if field.name not in ("spares", "clutter"):
            assert getattr(one, field.name) == getattr(other, field.name), field.name
    assert [s.component_index for s in one.spares] == [s.component_index for s in other.spares]
    assert all(np.array_equal(a.pose_44, b.pose_44) for a, b in zip(one.clutter, other.clutter, strict=True))


def test_looks_differ_in_every_way() -> None:
    assert {look.table_kind for look in LOOKS} == set(TABLE_KINDS)
    for field in dataclasses.fields(Look):
        if field.name not in ("spares", "clutter", "material_colours", "table_kind"):
            looks = HARD if field.name in ONLY_HARD else LOOKS
            assert len({getattr(look, field.name) for look in looks}) > 5, field.name
    assert {look.glove is None for look in LOOKS} == {True, False}
    assert {look.sleeve is None for look in LOOKS} == {True, False}


def test_materials_keep_within_their_ranges() -> None:
    for look in LOOKS:
        for name, colour in look.material_colours.items():
            material = VEHICLE.materials[name]
            _, saturation, value = colorsys.rgb_to_hsv(*colour)
            assert material.value[0] - 1e-6 <= value <= material.value[1] + 1e-6
            assert material.saturation[0] - 1e-6 <= saturation <= material.saturation[1] + 1e-6


def test_nothing_lies_where_the_object_is_or_where_it_must_stay_clear() -> None:
    for seed in range(20):
        look = Look.draw(VEHICLE, seed, keep_clear=[(0.3, 0.1, 0.15)])
        standing = [thing for thing in look.clutter if thing.kind not in ("paper", "image")]  # parts may lie on a sheet
        for x, y in [thing.pose_44[:2, 3] for thing in standing]:
            assert np.hypot(x, y) > 0.19
            assert np.hypot(x - 0.3, y - 0.1) > 0.15


def test_there_are_spare_parts_in_most_recordings() -> None:
    assert np.mean([len(look.spares) for look in LOOKS]) > 2


@pytest.mark.parametrize("look", LOOKS[:10])
def test_the_key_light_comes_from_above_and_directions_are_unit_vectors(look: Look) -> None:
    assert look.lights[0].direction[2] > 0.7
    for light in look.lights:
        assert np.linalg.norm(light.direction) == pytest.approx(1.0)


# ---------------------------------------------------------------------- a harder world
def test_a_harder_look_is_the_same_person_at_the_same_table() -> None:
    for plain, hard in zip(LOOKS, HARD, strict=True):
        for name in ("table_kind", "table_colour", "skin", "glove", "sleeve", "exposure", "room_colour"):
            assert getattr(plain, name) == getattr(hard, name), name


def test_harder_is_noisier_more_blurred_and_harsher_and_half_as_hard_less_so() -> None:
    half = [Look.draw(VEHICLE, seed, difficulty=0.5) for seed in range(40)]
    for plain, middle, hard in zip(LOOKS, half, HARD, strict=True):
        for name in ("noise", "shutter_seconds", "shadow", "table_gloss", "defocus", "drift", "shine"):
            assert getattr(plain, name) < getattr(middle, name) < getattr(hard, name), name
        assert plain.jpeg_quality > middle.jpeg_quality > hard.jpeg_quality >= 40
        assert plain.ambient > middle.ambient > hard.ambient > 0
        assert plain.lights[0].strength < hard.lights[0].strength


def test_some_harder_tables_have_a_second_unit_and_none_has_it_where_the_work_is_done() -> None:
    more = [look.spares[len(plain.spares) :] for plain, look in zip(LOOKS, HARD, strict=True)]
    upright = [
        [spare for spare in spares if spare.component_index == 0] for spares in more
    ]  # the base is in every unit
    assert 5 < sum(bool(spares) for spares in upright) < 35
    for spares in more:
        for spare in spares:
            assert np.hypot(*spare.pose_44[:2, 3]) > 0.1


@pytest.mark.parametrize("difficulty", [-0.1, 1.5, float("nan")])
def test_a_difficulty_outside_its_range_is_refused(difficulty: float) -> None:
    with pytest.raises(InputError, match=r"difficulty is .*between 0"):
        Look.draw(VEHICLE, 0, difficulty=difficulty)
