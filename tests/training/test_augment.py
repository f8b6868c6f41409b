"""Images are varied, and their boxes with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stormpsr.errors import InputError
from stormpsr.training.augment import ImageAugmentation, augment_image

NOTHING = ImageAugmentation(*[0.0] * 10)


def image_with_block() -> np.ndarray:
    image = np.zeros((96, 96, 3), dtype=np.uint8)
    image[40:60, 20:50] = 255
    return image


BLOCK = (20.0, 40.0, 50.0, 60.0)


def block_in(image: np.ndarray) -> tuple[int, int, int, int]:
    ys, xs = np.nonzero((image > 180).all(axis=2))
    return int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1


def test_settings_of_zero_leave_an_image_alone() -> None:
    image, box, _ = augment_image(image_with_block(), BLOCK, NOTHING, np.random.default_rng(0))
    assert (image == image_with_block()).all()
    assert box == BLOCK


@pytest.mark.parametrize("seed", range(8))
def test_the_box_follows_when_the_image_is_moved_and_scaled(seed: int) -> None:
    settings = replace(NOTHING, scale=0.2, shift=0.1)
    image, box, _ = augment_image(image_with_block(), BLOCK, settings, np.random.default_rng(seed))
    assert box is not None
    assert np.abs(np.array(box) - block_in(image)).max() < 2.0
    assert box != BLOCK


@pytest.mark.parametrize("seed", range(8))
def test_a_turned_box_lies_between_too_small_and_too_large(seed: int) -> None:
    settings = replace(NOTHING, rotation_degrees=12)
    image, box, _ = augment_image(image_with_block(), BLOCK, settings, np.random.default_rng(seed))
    assert box is not None
    seen = block_in(image)  # around the turned corners: the largest it may be
    assert box[0] >= seen[0] - 2
    assert box[2] <= seen[2] + 2
    assert box[2] - box[0] > 0.8 * (seen[2] - seen[0])


def test_a_box_never_leaves_the_image() -> None:
    settings = ImageAugmentation(scale=0.5, shift=0.5, rotation_degrees=45)
    for seed in range(60):
        _, box, _ = augment_image(image_with_block(), BLOCK, settings, np.random.default_rng(seed))
        assert box is not None
        assert min(box) >= 0
        assert max(box) <= 96


def test_images_are_not_mirrored_unless_asked_for() -> None:
    left_half = np.zeros((64, 64, 3), dtype=np.uint8)
    left_half[:, :20] = 255
    for seed in range(40):
        image, *_ = augment_image(left_half, None, ImageAugmentation(), np.random.default_rng(seed))
        assert image[:, :16].mean() > image[:, 48:].mean()
    mirrored, *_ = augment_image(left_half, None, replace(NOTHING, flip=1.0), np.random.default_rng(0))
    assert (mirrored == left_half[:, ::-1]).all()


def test_the_same_seed_gives_the_same_image_and_another_seed_another() -> None:
    images = [
        augment_image(image_with_block(), BLOCK, ImageAugmentation(), np.random.default_rng(seed))[0]
        for seed in (1, 1, 2)
    ]
    assert (images[0] == images[1]).all()
    assert not (images[0] == images[2]).all()


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match="blur is 1"):
        ImageAugmentation(blur=1.5)
    with pytest.raises(InputError, match="shift is -1"):
        ImageAugmentation(shift=-1)
