# mypy: disallow-subclassing-any=False
"""The recordings to train on and to choose by, checked before any time is spent; and the batches cut from them.

A dataset of batches is one epoch; its items are whole batches, found by their number alone.

Shape legend: B items, N frames of a clip, S pixels of a side, 3 colours, C components, R recordings or renders, M
chosen frames, X frames of all recordings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from stormpsr.config import Config
from stormpsr.data.annotated_frames import boxes_inside, read_boxes
from stormpsr.data.boxes import Box
from stormpsr.data.coco import ANNOTATIONS_FILE, COCO_FILE, read_state_images
from stormpsr.data.dataset import Dataset
from stormpsr.data.frame_cache import Frames
from stormpsr.data.images import Placement
from stormpsr.data.recording import Recording
from stormpsr.data.sampling import (
    ClipSampler,
    KeyFrames,
    KeyFrameSampler,
    Shard,
    clip_labels,
    clip_windows,
    key_frames,
)
from stormpsr.data.sources import FrameSource, ImageFolder
from stormpsr.data.visibility import told_in
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateBits

_MORE_RENDERS_STREAM = 4  # so that random numbers are not those of the samplers
# recording_B, frame_BN, mask_BN -> embeddings (`read_clips`) or images (`read_images`) of these frames
ReadClips = Callable[[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]], NDArray[Any]]


# ---------------------------------------------------------------------- recordings and renders
@dataclass(frozen=True, eq=False)
class Renders:
    """Single images of known states, for key-frame sampling."""

    sources: tuple[tuple[FrameSource, tuple[int, ...]], ...]  # folders, and the numbers of the images in them
    states: tuple[StateBits, ...]  # one per image
    corners_R4: NDArray[np.float32]  # left, top, right, bottom of the assembly, as shares of the square
    told_RC: NDArray[np.bool_]  # which components show enough to be told; all where nobody has measured it

    def fingerprint(self) -> str:
        """Changes when the images do, or what is said of them."""
        found = hashlib.sha256(repr(self.states).encode())
        for source, numbers in self.sources:
            found.update(f"{source.fingerprint()} {numbers}".encode())
        for array in (self.corners_R4, self.told_RC):
            found.update(array.tobytes())
        return found.hexdigest()[:16]


class RenderImages(Sequence[NDArray[np.uint8]]):
    """The images of renders, each read when it is asked for: a hundred thousand of them fit into no memory."""

    def __init__(self, parts: Sequence[tuple[Frames, Sequence[int]]]) -> None:
        self._frames = [frames for frames, _ in parts]
        self._numbers = [numbers for _, numbers in parts]
        self._starts = np.concatenate([[0], np.cumsum([len(numbers) for numbers in self._numbers])]).astype(int)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @overload
    def __getitem__(self, index: int) -> NDArray[np.uint8]: ...
    @overload
    def __getitem__(self, index: slice) -> list[NDArray[np.uint8]]: ...
    def __getitem__(self, index: int | slice) -> NDArray[np.uint8] | list[NDArray[np.uint8]]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        part = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._frames[part][self._numbers[part][index - self._starts[part]]]


@dataclass(frozen=True)
class TrainingData:
    """Labelled recordings of the two splits that training may look at; the test split stays closed."""

    procedure: Procedure
    train: tuple[Recording, ...]
    val: tuple[Recording, ...]

    def encoder_recordings(self, held_out_share: float) -> tuple[Recording, ...]:
        """Training recordings that the spatial encoder sees."""
        return self.train[: len(self.train) - self._n_held_out(held_out_share)]

    def held_out(self, held_out_share: float) -> tuple[Recording, ...]:
        """Training recordings kept from the spatial encoder, so that their embeddings are like those of new ones."""
        return self.train[len(self.train) - self._n_held_out(held_out_share) :]

    def _n_held_out(self, share: float) -> int:
        return min(round(share * len(self.train)), len(self.train) - 2)

    def notes(self, config: Config) -> list[str]:
        """What is odd but can be trained with."""
        found = []
        window = config.clips.window_frames
        short = [r.name for r in (*self.train, *self.val) if r.n_frames < window]
        if short:
            found.append(
                f"{len(short)} recordings are shorter than a window of {window} frames: {', '.join(short[:3])}"
            )
        unseen = {s for r in self.val if r.states for s in r.states.states} - {
            s for r in self.train if r.states for s in r.states.states
        }
        if unseen:
            found.append(f"{len(unseen)} states of the validation recordings never occur in training")
        return found


def load_training_data(root: str | Path, config: Config) -> TrainingData:
    """Open the recordings of the training and validation splits and check that they can be trained on."""
    return training_data_of(Dataset.open(root, procedure=config.procedure))


def training_data_of(dataset: Dataset) -> TrainingData:
    """The recordings of the training and validation splits of a data set, checked."""
    root = dataset.root
    found: dict[str, tuple[Recording, ...]] = {}
    for name, needed in (("train", 2), ("val", 1)):
        part, place = dataset.of_split(name), dataset.root.name
        if len(part) < needed:
            cure = f"put at least {needed} into {place}/{name} or {place}/recordings/{name}"
            raise InputError(f"split {name!r} has {len(part)} recordings", path=root, cure=cure)
        found[name] = tuple(part)
    for recording in (*found["train"], *found["val"]):
        if recording.states is None:
            cure = "add PSR_labels_raw.csv or PSR_labels.csv, or move the recording elsewhere"
            raise InputError("the recording has no labels", path=recording.path, cure=cure)
    return TrainingData(dataset.procedure, found["train"], found["val"])


def load_renders(folders: Sequence[str | Path], procedure: Procedure) -> Renders:
    """Images of single states, in folders as `stormpsr synth states` writes them; those of unknown state are left."""
    sources: list[tuple[FrameSource, tuple[int, ...]]] = []
    states: list[StateBits] = []
    corners: list[tuple[float, float, float, float]] = []
    told: list[NDArray[np.bool_]] = []
    for folder in map(Path, folders):
        found = read_state_images(folder / ANNOTATIONS_FILE, procedure)
        known = [(render, render.bits) for render in found if render.bits is not None]
        if not known:
            raise InputError("no image says what state every component is in", path=folder)
        source = ImageFolder.of(folder, {render.number: render.file for render in found})
        sources.append((source, tuple(render.number for render, _ in known)))
        states += [bits for _, bits in known]
        corners += [_shares(render.box, render.width, render.height) for render, _ in known]
        told_FC = told_in(folder, procedure.n_components)
        told += [_all_told(procedure) if told_FC is None else told_FC[render.number] for render, _ in known]
    return Renders(tuple(sources), tuple(states), np.array(corners, dtype=np.float32), np.array(told))


def told_parts(recording: Recording, procedure: Procedure) -> NDArray[np.bool_]:
    """Which components show enough to be told in each frame, (F, C); all of them where nobody has measured it."""
    told_FC = told_in(recording.path, procedure.n_components)
    if told_FC is None:
        return np.broadcast_to(_all_told(procedure), (recording.n_frames, procedure.n_components))
    return told_FC


def _all_told(procedure: Procedure) -> NDArray[np.bool_]:
    return np.ones(procedure.n_components, dtype=bool)


@dataclass(frozen=True, eq=False)
class BoxedFrames:
    """Frames in which somebody drew a box around the assembly."""

    recording_M: NDArray[np.int64]
    frame_M: NDArray[np.int64]
    corners_M4: NDArray[np.float32]  # as shares of the square that networks see

    def __len__(self) -> int:
        return len(self.frame_M)


def boxed_frames_of(recordings: Sequence[Recording], procedure: Procedure) -> BoxedFrames:
    """The frames of recordings that somebody drew boxes in, whatever state they show."""
    rows: list[tuple[int, int, float, float, float, float]] = []
    for number, recording in enumerate(recordings):
        path = boxes_inside(recording.path)
        if path is None:
            continue
        height, width = next(recording.source.images()).shape[:2]
        boxes = read_boxes(path, procedure, width, height)
        rows += [(number, box.frame, *_shares(box.box, width, height)) for box in boxes]
    if not rows:
        cure = f"each recording needs {COCO_FILE} or NAME_GT.csv; or set encoder.crop_size=0, to look at whole images"
        raise InputError("no recording has boxes to learn from where the assembly is", cure=cure)
    table = np.array(rows)
    return BoxedFrames(table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2:].astype(np.float32))


def _shares(box: Box, width: int, height: int) -> tuple[float, float, float, float]:
    """A box, cut at the image's border, as corners in shares of the square."""
    return Placement.of(width, height, 1).into_square(box.inside(width, height)).corners


def key_frames_of(recordings: Sequence[Recording], config: Config, procedure: Procedure) -> KeyFrames:
    """Key frames by the settings; recordings may differ in their frames per second."""
    fps = {recording.fps for recording in recordings}
    if len(fps) > 1:
        raise InputError(f"recordings have different frames per second: {sorted(fps)}", cure="bring them to one rate")
    settings = config.key_frames
    listed = [state.bits for state in procedure.states if state.bits is not None]
    return key_frames(
        [recording.states for recording in recordings if recording.states is not None],
        [recording.n_frames for recording in recordings],
        numbers=[recording.source.numbers() for recording in recordings],
        fps=settings.after_fps or fps.pop(),
        after_seconds=settings.after_seconds,
        wrong_states=settings.wrong_states,
        initial_state=settings.initial_state,
        listed=listed if settings.states == "listed" else None,
    )


# ---------------------------------------------------------------------- batches
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


class KeyFrameImages(TorchDataset):
    """Images of key frames and renders: (image_BSS3, label_B, told_BC, number of the batch).

    `told_BC` says which components show enough to be told.
    """

    def __init__(
        self,
        sampler: KeyFrameSampler,
        frames: Sequence[Frames],
        renders: Sequence[NDArray[np.uint8]],
        told: Sequence[NDArray[np.bool_]],
        told_renders_RC: NDArray[np.bool_] | None = None,
        *,
        epoch: int,
        batches: int,
        more: MoreRenders | None = None,
    ) -> None:
        """`told`: of each recording, (F, C)."""
        self._sampler, self._frames, self._renders = sampler, frames, renders
        self._told, self._told_renders_RC = told, told_renders_RC
        self._epoch, self._batches, self._more = epoch, batches, more

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, Tensor, int]:
        batch = self._sampler.batch(self._epoch, number)
        chosen = list(zip(batch.recording_B.tolist(), batch.index_B.tolist(), strict=True))
        label_B = batch.label_B.copy()
        if self._more is not None:
            added = self._more.draw(self._epoch, number, self._sampler.shard)
            chosen += [(-1, index) for index in added.tolist()]
            label_B = np.concatenate([label_B, self._more.label_R[added]])
        images, told = zip(*(self._image(recording, index) for recording, index in chosen), strict=True)
        arrays = np.stack(images), label_B, np.stack(told)
        return (*map(torch.from_numpy, arrays), number)

    def _image(self, recording: int, index: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """A frame, or of "recording" -1 a render, and which of its components can be told."""
        if recording >= 0:
            return self._frames[recording][index], self._told[recording][index]
        assert self._told_renders_RC is not None
        return self._renders[index], self._told_renders_RC[index]


class Clips(TorchDataset):
    """Clips of embeddings or images: (clip, mask_BN, label_BC, state_BNC, number of the batch).

    The labels say which components changed within the clip, the states what every frame of it shows.
    """

    def __init__(
        self,
        read: ReadClips,
        sampler: ClipSampler,
        states: Sequence[NDArray[np.int8]],
        offsets_N: NDArray[np.int64],
        *,
        epoch: int,
    ) -> None:
        self._read, self._sampler, self._offsets_N, self._epoch = read, sampler, offsets_N, epoch
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


def read_images(
    frames: Sequence[Frames],
    recording_B: NDArray[np.int64],
    frame_BN: NDArray[np.int64],
    mask_BN: NDArray[np.bool_],
) -> NDArray[np.uint8]:
    """Clips of images, (B, N, S, S, 3). Frames that do not exist show frame 0, and are masked."""
    return np.stack([frames[recording][row_N] for recording, row_N in zip(recording_B.tolist(), frame_BN, strict=True)])
