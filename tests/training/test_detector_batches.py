"""Batches by number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from stormpsr.data.annotated_frames import FrameSet, read_frames
from stormpsr.data.frame_cache import FrameCache
from stormpsr.data.sampling import Shard
from stormpsr.detectors.base import UNKNOWN
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.training.augment import ImageAugmentation
from stormpsr.training.tasks.detector import Batches, BatchSettings, TrainingSettings

UNCHANGED = ImageAugmentation(*[0.0] * 10)


@pytest.fixture
def frames(lamp_data: Path, lamp: Procedure) -> FrameSet:
    return read_frames(lamp_data, "train", lamp)


Make = Callable[..., Batches]


@pytest.fixture
def batches(tmp_path: Path) -> Make:
    def make(frames: FrameSet, image_size: int = 64, **settings: float) -> Batches:
        chosen = replace(BatchSettings(), **settings)  # type: ignore[arg-type]
        training = TrainingSettings(steps=7, seed=3, batch=chosen, augmentation=UNCHANGED)
        return Batches(frames, FrameCache(tmp_path / "cache", image_size), training)

    return make


@pytest.mark.parametrize(("ratio", "n_readable"), [(0.0, 12), (0.5, 8), (1.0, 6), (2.0, 4)])
def test_so_many_frames_without_a_state_come_with_each_frame_with_one(
    batches: Make, frames: FrameSet, ratio: float, n_readable: int
) -> None:
    batch = batches(frames, batch_size=12, negative_ratio=ratio)[0]
    assert batch.readable_B.sum() == n_readable
    assert len(batch.image_BSS3) == 12


def test_a_batch_is_the_same_whenever_it_is_asked_for(batches: Make, frames: FrameSet) -> None:
    first, again, other = (batches(frames, batch_size=6)[step] for step in (5, 5, 6))
    assert (first.image_BSS3 == again.image_BSS3).all()
    assert not (first.image_BSS3 == other.image_BSS3).all()


def test_boxes_classes_and_parts_belong_to_their_images(batches: Make, frames: FrameSet) -> None:
    batch = batches(frames, batch_size=30)[0]
    for image, corners, state_class, bits in zip(
        batch.image_BSS3, batch.corners_B4, batch.state_class_B, batch.bits_BC, strict=True
    ):
        if state_class == 0:
            assert (bits == UNKNOWN).all()
            continue
        x0, y0, x1, y1 = (int(side) for side in corners)
        assert (x1 - x0, y1 - y0) == (24, 30)
        shade_is_white = (image[y0 + 1 : y0 + 9, x0 + 4 : x0 + 20] > 240).all()
        assert shade_is_white == (state_class == 5)
        assert (bits[2] == -1) == (state_class == 5)


def test_full_balance_makes_rare_classes_as_frequent_as_common_ones(
    batches: Make, write_lamp: Callable[..., Path], lamp: Procedure, tmp_path: Path
) -> None:
    write_lamp(states=[(1, 0, 0)] * 9 + [(1, 1, 0)])
    frames = read_frames(tmp_path / "data", "train", lamp)
    shares = {}
    for balance in (0.0, 1.0):
        drawn = batches(frames, batch_size=400, negative_ratio=0, class_balance=balance, scene_balance=0)[
            0
        ].state_class_B
        shares[balance] = float((drawn == 3).float().mean())
    assert shares[0.0] == pytest.approx(0.1, abs=0.05)
    assert shares[1.0] == pytest.approx(0.5, abs=0.08)


def test_full_balance_of_scenes_makes_short_scenes_as_frequent_as_long_ones(
    batches: Make, write_lamp: Callable[..., Path], lamp: Procedure, tmp_path: Path
) -> None:
    write_lamp(name="01_build", states=[(1, 0, 0)] * 9)
    write_lamp(name="02_build", states=[(1, 0, 0)])
    frames = read_frames(tmp_path / "data", "train", lamp)
    for balance, share in ((0.0, 0.1), (1.0, 0.5)):
        made = batches(frames, scene_balance=balance)
        chances = made._chance_of(frames.readable)
        short = [frame.recording == "02_build" for frame in frames.readable]
        assert float(chances[short].sum()) == pytest.approx(share)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6])
def test_wrong_parts_have_a_share_of_their_own(batches: Make, frames: FrameSet, share: float) -> None:
    drawn = batches(frames, batch_size=400, negative_ratio=0, wrong_share=share)[0].state_class_B
    assert float((drawn == 5).float().mean()) == pytest.approx(share, abs=0.07)


def test_single_images_take_their_share_and_are_marked_as_perhaps_hidden(batches: Make, frames: FrameSet) -> None:
    stills = [replace(frame, maybe_hidden=True) for frame in frames.readable]
    batch = batches(replace(frames, images=tuple(stills)), batch_size=12, negative_ratio=0.5, image_share=0.25)[0]
    assert batch.maybe_hidden_B.sum() == 2
    assert batch.readable_B[batch.maybe_hidden_B].all()
    assert not batches(frames, batch_size=12)[0].maybe_hidden_B.any()


def test_without_negatives_in_the_data_the_batch_is_full_all_the_same(batches: Make, frames: FrameSet) -> None:
    batch = batches(replace(frames, unreadable=()), batch_size=6)[0]
    assert batch.readable_B.all()
    assert len(batch.readable_B) == 6


@pytest.mark.parametrize("settings", [{"batch_size": 1}, {"negative_ratio": -1.0}, {"class_balance": 2.0}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        replace(BatchSettings(), **settings)  # type: ignore[arg-type]


def test_processes_share_a_batch_and_leave_nothing_out(batches: Make, frames: FrameSet) -> None:
    made = batches(frames, batch_size=6)
    whole = sorted(made[2].state_class_B.tolist())
    shares = [made.of(Shard(rank, 2))[2].state_class_B.tolist() for rank in range(2)]
    assert [len(share) for share in shares] == [3, 3]
    assert sorted(shares[0] + shares[1]) == whole


def test_only_frames_that_some_step_draws_are_decoded(lamp_data: Path, batches: Make, frames: FrameSet) -> None:
    made = batches(frames, image_size=48, batch_size=2)
    (cached,) = made._squares.values()
    drawn = {frame.frame for step in range(7) for frame in made._draw_step(np.random.default_rng((3, step)))}
    assert set(cached.number_F.tolist()) == drawn
    assert len(drawn) < 20


def test_parts_that_hide_are_unknown_and_wrong_ones_that_show_are_drawn_more_often(
    batches: Make, frames: FrameSet
) -> None:
    """Also in frames without a box."""
    told = [(True, False, True), (False, True, False)]
    unreadable = tuple(replace(frame, bits=(1, 1, -1), told=told[k == 0]) for k, frame in enumerate(frames.unreadable))
    batch = batches(replace(frames, unreadable=unreadable), batch_size=200, negative_ratio=1.0, wrong_share=0.5)[0]
    negative = ~batch.readable_B
    assert negative.sum() == 100
    hides_shade = (batch.bits_BC[negative] == torch.tensor([UNKNOWN, 1, UNKNOWN])).all(dim=1)
    shows_wrong_shade = (batch.bits_BC[negative] == torch.tensor([1, UNKNOWN, -1])).all(dim=1)
    assert (hides_shade | shows_wrong_shade).all()
    assert 30 < shows_wrong_shade.sum() < 70  # a half, though four of five frames show it
    assert torch.equal(batch.told_BC[negative] == 0, batch.bits_BC[negative] == UNKNOWN)
