# mypy: disallow-subclassing-any=False
"""Batches as the network wants them: index arithmetic in, tensors out.

A dataset here is one epoch; its items are whole batches, found by their number alone.

Shape legend: B items, N frames of a clip, S pixels of a side, 3 colours, D dimensions, C components, R recordings, X
frames of all recordings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from stormpsr.data.embedding_store import read_clips
from stormpsr.data.sampling import ClipSampler, KeyFrameSampler, Shard, clip_labels, clip_windows

_MORE_RENDERS_STREAM = 4  # so that random numbers are not those of the samplers


@dataclass(frozen=True, eq=False)
class MoreRenders:
    """Renders that are added to every batch, whatever states it holds."""

    label_R: NDArray[np.int64]
    n: int  # per batch, of all processes together
    seed: int

    def draw(self, epoch: int, number: int, shard: Shard) -> NDArray[np.int64]:
        """This process's share, as numbers of renders."""
        rng = np.random.default_rng((self.seed, _MORE_RENDERS_STREAM, epoch, number))
        return shard.of(rng.integers(len(self.label_R), size=self.n))


class KeyFrameImages(Dataset):
    """Images of key frames and renders: (image_BSS3, label_B, number of the batch)."""

    def __init__(
        self,
        sampler: KeyFrameSampler,
        frames: Sequence[NDArray[np.uint8]],
        renders: Sequence[NDArray[np.uint8]],
        *,
        epoch: int,
        batches: int,
        more: MoreRenders | None = None,
    ) -> None:
        self._sampler, self._frames, self._renders = sampler, frames, renders
        self._epoch, self._batches, self._more = epoch, batches, more

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, int]:
        batch = self._sampler.batch(self._epoch, number)
        images = [
            self._image(recording, index)
            for recording, index in zip(batch.recording_B.tolist(), batch.index_B.tolist(), strict=True)
        ]
        label_B = batch.label_B.copy()
        if self._more is not None:
            added = self._more.draw(self._epoch, number, self._sampler.shard)
            images += [self._image(-1, index) for index in added.tolist()]
            label_B = np.concatenate([label_B, self._more.label_R[added]])
        return torch.from_numpy(np.stack(images)), torch.from_numpy(label_B), number

    def _image(self, recording: int, index: int) -> NDArray[np.uint8]:
        if recording >= 0:
            return np.asarray(self._frames[recording][index])
        return np.asarray(self._renders[index])


class _Clips(Dataset):
    """What the two sorts of clips share: (clip, mask_BN, label_BC, state_BNC, number of the batch).

    The labels say which components changed within the clip, the states what every frame of it shows.
    """

    def __init__(
        self,
        sampler: ClipSampler,
        states: Sequence[NDArray[np.int8]],
        offsets_N: NDArray[np.int64],
        *,
        epoch: int,
    ) -> None:
        self._sampler, self._offsets_N, self._epoch = sampler, offsets_N, epoch
        self._states_XC = np.concatenate(list(states))  # of all frames of all recordings, one after the other
        self._start_R = np.concatenate([[0], np.cumsum([len(states_FC) for states_FC in states])])

    def __len__(self) -> int:
        return self._sampler.batches_per_epoch

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
        recording_B, end_B = self._sampler.batch(self._epoch, number)
        frame_BN, mask_BN = clip_windows(end_B, self._offsets_N)
        place_BN = frame_BN + self._start_R[recording_B][:, None]
        label_BC = torch.from_numpy(clip_labels(self._states_XC, place_BN, mask_BN)).float()
        clip, mask = torch.from_numpy(self._read(recording_B, frame_BN, mask_BN)), torch.from_numpy(mask_BN)
        return clip, mask, label_BC, torch.from_numpy(self._states_XC[place_BN]), number

    def _read(
        self, recording_B: NDArray[np.int64], frame_BN: NDArray[np.int64], mask_BN: NDArray[np.bool_]
    ) -> NDArray[Any]:
        raise NotImplementedError


class ClipEmbeddings(_Clips):
    """Clips cut from stored embeddings, shape (B, N, D)."""

    def __init__(self, stores: Sequence[NDArray[Any]], *args: Any, frame_step: int = 1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stores, self._frame_step = stores, frame_step

    def _read(
        self, recording_B: NDArray[np.int64], frame_BN: NDArray[np.int64], mask_BN: NDArray[np.bool_]
    ) -> NDArray[Any]:
        return read_clips(self._stores, recording_B, frame_BN, mask_BN, self._frame_step)


class ClipImages(_Clips):
    """Clips of images, shape (B, N, S, S, 3). Frames that do not exist show frame 0, and are masked."""

    def __init__(self, frames: Sequence[NDArray[np.uint8]], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._frames = frames

    def _read(
        self, recording_B: NDArray[np.int64], frame_BN: NDArray[np.int64], mask_BN: NDArray[np.bool_]
    ) -> NDArray[Any]:
        return np.stack(
            [self._frames[recording][frames] for recording, frames in zip(recording_B.tolist(), frame_BN, strict=True)]
        )
