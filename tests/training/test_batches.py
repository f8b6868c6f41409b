"""Batches: what the index arithmetic names is what the network gets."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from lightning.pytorch.utilities import rank_zero_only

from stormpsr.data.embedding_store import read_clips
from stormpsr.data.labels import StateTimeline
from stormpsr.data.sampling import (
    ClipSampler,
    KeyFrameSampler,
    Shard,
    clip_labels,
    clip_windows,
    key_frames,
    window_offsets,
)
from stormpsr.training.data import Clips, KeyFrameImages, read_images
from stormpsr.training.fit import FitOptions

TIMELINES = [
    StateTimeline((0, 10, 25), ((0, 0), (1, 0), (1, 1))),
    StateTimeline((0, 5, 30), ((0, 0), (0, 1), (1, 1))),
]
STATES = [TIMELINES[0].dense(40), TIMELINES[1].dense(50)]
OFFSETS = window_offsets(16, 4)
# a frame's number and its recording's, as the only embedding and as the only colour
EMBEDDINGS = [np.stack([np.arange(n), np.full(n, r)], axis=1).astype(np.float16) for r, n in enumerate((40, 50))]
IMAGES = [
    np.broadcast_to((np.arange(n) + 100 * r).astype(np.uint8)[:, None, None, None], (n, 2, 2, 3))
    for r, n in enumerate((40, 50))
]


@pytest.fixture
def sampler() -> ClipSampler:
    return ClipSampler([np.full(n, 1 / n) for n in (40, 50)], batch_size=12, batches_per_epoch=3, seed=0)


def test_clips_of_embeddings_are_those_that_were_drawn_with_their_labels(sampler: ClipSampler) -> None:
    dataset = Clips(partial(read_clips, EMBEDDINGS), sampler, STATES, OFFSETS, epoch=2)
    assert len(dataset) == 3
    clip_BND, mask_BN, label_BC, state_BNC, number = dataset[1]
    recordings, ends = sampler.batch(2, 1)
    assert number == 1
    for i, (recording, end) in enumerate(zip(recordings, ends, strict=True)):
        frames, mask = clip_windows(np.array([end]), OFFSETS)
        np.testing.assert_array_equal(mask_BN[i], mask[0])
        np.testing.assert_array_equal(clip_BND[i, :, 0], np.where(mask[0], frames[0], 0))
        np.testing.assert_array_equal(clip_BND[i, :, 1], np.where(mask[0], recording, 0))
        np.testing.assert_array_equal(label_BC[i], clip_labels(STATES[recording], frames, mask)[0])
        np.testing.assert_array_equal(state_BNC[i], STATES[recording][frames[0]])


def test_clips_of_images_are_those_that_were_drawn(sampler: ClipSampler) -> None:
    image_BNSS3, _, _, _, _ = Clips(partial(read_images, IMAGES), sampler, STATES, OFFSETS, epoch=0)[0]
    recordings, ends = sampler.batch(0, 0)
    assert image_BNSS3.shape == (12, 4, 2, 2, 3)
    np.testing.assert_array_equal(image_BNSS3[:, -1, 0, 0, 0], ends + 100 * recordings)


def test_images_of_key_frames_and_renders_come_with_their_states() -> None:
    keys = key_frames(TIMELINES, [40, 50], fps=10, after_seconds=1, wrong_states="own_label", initial_state=True)
    renders = np.full((8, 2, 2, 3), 255, dtype=np.uint8)
    sampler = KeyFrameSampler(
        keys, n_sample=3, n_syn=2, states_per_batch=None, seed=0, render_label_R=np.arange(8) % len(keys.states)
    )
    told = [np.arange(len(states_FC))[:, None] % 2 == np.zeros(states_FC.shape[1]) for states_FC in STATES]
    told_renders_RC = np.zeros((8, STATES[0].shape[1]), dtype=bool)
    images = KeyFrameImages(sampler, IMAGES, renders, told, told_renders_RC, epoch=0, batches=1)
    image_BSS3, label_B, told_BC, _ = images[0]
    for image, label, told_C in zip(image_BSS3[:, 0, 0, 0].tolist(), label_B.tolist(), told_BC, strict=True):
        if image != 255:
            assert tuple(STATES[image // 100][image % 100]) == keys.states[label]
        assert told_C.tolist() == [image != 255 and image % 2 == 0] * len(told_C)
    assert (image_BSS3[:, 0, 0, 0] == 255).sum() == 2 * len(keys.states)


# ---------------------------------------------------------------------- several processes
class Watched:
    """Frames that remember which of them were read."""

    def __init__(self, frames: Any) -> None:
        self.frames, self.read = frames, []

    def __getitem__(self, numbers: Any) -> Any:
        self.read += np.ravel(numbers).tolist()
        return self.frames[numbers]


def frames_read(kind: str, shard: Shard) -> list[tuple[int, int]]:
    """(recording, frame) of all that one process reads for a batch, as often as it reads it."""
    watched: Any = [Watched(images) for images in (EMBEDDINGS if kind == "embeddings" else IMAGES)]
    if kind == "key frames":
        keys = key_frames(TIMELINES, [40, 50], fps=10, after_seconds=1, wrong_states="own_label", initial_state=True)
        sampler = KeyFrameSampler(keys, n_sample=4, n_syn=0, states_per_batch=None, seed=0, shard=shard)
        told = [np.ones(states_FC.shape, dtype=bool) for states_FC in STATES]
        KeyFrameImages(sampler, watched, [], told, epoch=0, batches=1)[0]
    else:
        clips = ClipSampler(
            [np.full(n, 1 / n) for n in (40, 50)], batch_size=12, batches_per_epoch=3, seed=0, shard=shard
        )
        if kind == "embeddings":
            for store, rows in zip(watched, EMBEDDINGS, strict=True):
                store.shape = rows.shape
        read = partial(read_clips if kind == "embeddings" else read_images, watched)
        Clips(read, clips, STATES, OFFSETS, epoch=0)[0]
    return sorted((recording, frame) for recording, own in enumerate(watched) for frame in own.read)


@pytest.mark.parametrize("kind", ["key frames", "images", "embeddings"])
def test_a_process_reads_its_share_of_a_batch_and_nothing_of_the_others(kind: str) -> None:
    alone, first, second = (frames_read(kind, shard) for shard in (Shard(), Shard(0, 2), Shard(1, 2)))
    assert first != second
    assert sorted(first + second) == alone


def test_processes_that_prepare_data_at_the_same_time_begin_at_different_recordings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for rank in range(2):
        monkeypatch.setattr(rank_zero_only, "rank", rank)
        found.append(FitOptions(device="cpu", devices=1, machines=2).own_first(["a", "b", "c", "d"]))
    assert found == [["a", "b", "c", "d"], ["c", "d", "a", "b"]]
    monkeypatch.setattr(rank_zero_only, "rank", 0)
    assert FitOptions(device="cpu").own_first([]) == []
