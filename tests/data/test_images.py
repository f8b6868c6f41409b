"""Images become squares in one way, and boxes find their way into the square and back."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from stormpsr.data.boxes import Box
from stormpsr.data.images import Placement, letterbox, read_image, write_image
from stormpsr.errors import InputError


def test_a_wide_image_is_padded_above_and_below_and_boxes_find_their_way_back() -> None:
    wide = np.full((20, 40, 3), 255, dtype=np.uint8)
    square, placement = letterbox(wide, 80)
    assert placement == Placement(2.0, 0.0, 20.0)
    assert (square[:20] == 114).all()
    assert (square[20:60] == 255).all()
    assert placement.back(Box(20, 30, 40, 50)) == Box(10, 5, 20, 15)
    assert placement.into_square(Box(10, 5, 20, 15)) == Box(20, 30, 40, 50)


def test_a_high_image_is_padded_left_and_right() -> None:
    square, placement = letterbox(np.full((40, 20, 3), 255, dtype=np.uint8), 20)
    assert placement == Placement(0.5, 5.0, 0.0)
    assert (square[:, 5:15] == 255).all()
    assert (square[:, :5] == 114).all()
    assert (square[:, 15:] == 114).all()


@pytest.mark.parametrize(("side", "interpolation"), [(320, cv2.INTER_AREA), (50, cv2.INTER_LINEAR)])
def test_a_square_image_is_resized_as_a_whole(side: int, interpolation: int) -> None:
    image = np.random.default_rng(0).integers(0, 255, (side, side, 3), dtype=np.uint8)
    square, placement = letterbox(image, 160)
    assert_array_equal(square, cv2.resize(image, (160, 160), interpolation=interpolation))
    assert placement == Placement(160 / side, 0.0, 0.0)


def test_an_image_of_the_right_size_is_not_touched() -> None:
    image = np.zeros((160, 160, 3), dtype=np.uint8)
    assert letterbox(image, 160)[0] is image


def test_places_can_be_had_as_shares_of_the_square() -> None:
    assert Placement.of(200, 100, 1).into_square(Box(0, 0, 200, 100)) == Box(0.0, 0.25, 1.0, 0.75)


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_an_image_is_refused_wherever_it_is_cut_short(tmp_path: Path, suffix: str) -> None:
    """Decoders fill up what is missing with grey."""
    rng = np.random.default_rng(0)
    path = tmp_path / f"a{suffix}"
    write_image(path, rng.integers(0, 255, (40, 60, 3), dtype=np.uint8))
    whole = path.read_bytes()
    assert read_image(path).shape == (40, 60, 3)
    for length in range(0, len(whole) - 12, 97):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="this is not an image"):
            read_image(path)
    path.write_bytes(whole + b"what a camera puts behind it")
    assert read_image(path).shape == (40, 60, 3)


@pytest.mark.parametrize("side", [7_072, 20_000, 60_000])
def test_an_image_that_is_too_large_is_told_so_however_large_it_claims_to_be(tmp_path: Path, side: int) -> None:
    path = tmp_path / "a.png"
    write_image(path, np.zeros((8, 8, 3), np.uint8))
    data = bytearray(path.read_bytes())
    data[16:24] = struct.pack(">2I", side, side)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.png: it has .*more than 50 million.*; make it smaller"):
        read_image(path)


def test_whatever_the_decoders_raise_it_is_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_image(tmp_path / "a.png", np.zeros((8, 8, 3), np.uint8))
    monkeypatch.setattr(cv2, "imdecode", lambda *_: cv2.resize(np.zeros((0, 0), np.uint8), (1, 1)))
    with pytest.raises(InputError, match=r"a\.png: this is not an image"):
        read_image(tmp_path / "a.png")
