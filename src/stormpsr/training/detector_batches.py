"""Batches by number: the same seed and step give the same images, so that training can be resumed anywhere.

Shape legend: B images, S pixels of a side, C components.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.annotated_frames import AnnotatedFrame, FrameSet, ImageStore
from stormpsr.errors import InputError
from stormpsr.procedure.model import StateKind
from stormpsr.training.augment_images import AugmentationSettings, augment

UNKNOWN = -100  # of a part whose state nobody knows; torch's losses leave it out


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """What a batch is made of."""

    batch_size: int = 32
    negative_ratio: float = 0.5  # frames without a readable state for each one with
    class_balance: float = 0.5  # 0: classes as frequent as in the data; 1: all equally frequent
    scene_balance: float = 0.5  # the same for the scenes of a recording, each a time without a change
    image_share: float = 0.4  # of those with a state, taken from single rendered images where there are any
    wrong_share: float = 0.4  # of those with a state, in which a part is wrong, where there are any: else too rare

    def __post_init__(self) -> None:
        if self.batch_size < 2:
            raise InputError(f"batch_size is {self.batch_size}", cure="at least 2")
        if not self.negative_ratio >= 0:
            raise InputError(f"negative_ratio is {self.negative_ratio}", cure="0 means: no frames without a state")
        for name in ("class_balance", "scene_balance", "image_share", "wrong_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}", cure="it lies between 0 and 1")

    @property
    def n_readable(self) -> int:
        return max(1, round(self.batch_size / (1 + self.negative_ratio)))


@dataclass(frozen=True, eq=False)
class Batch:
    """Images and what is known about them. Where `readable_B` is false, the other rows mean nothing."""

    image_BSS3: NDArray[np.uint8]
    readable_B: NDArray[np.bool_]  # whether there is a box
    maybe_hidden_B: NDArray[np.bool_]  # there is a box, but perhaps nobody could read the state
    corners_B4: NDArray[np.float32]  # x0, y0, x1, y1 in pixels
    state_class_B: NDArray[np.int64]
    bits_BC: NDArray[np.int64]  # -1, 0, 1, or UNKNOWN


class Batches:
    """Draws training batches from a frame set."""

    def __init__(
        self,
        frames: FrameSet,
        store: ImageStore,
        settings: BatchSettings,
        augmentation: AugmentationSettings,
        seed: int,
    ) -> None:
        if not frames.readable:
            raise InputError("no frames with boxes to train on")
        self.frames, self.store, self.settings = frames, store, settings
        self.augmentation, self.seed = augmentation, seed
        self._chances = {True: self._chance_of(frames.images), False: self._chance_of(frames.readable)}

    def _chance_of(self, frames: Sequence[AnnotatedFrame]) -> NDArray[np.float64]:
        """How often each frame is drawn: rare classes more often than they occur, wrong parts a fixed share."""
        states = self.frames.procedure.states
        classes = [frame.state_class for frame in frames]
        # frames of one state in one recording are much the same image
        scenes = [(frame.recording, frame.bits or state) for frame, state in zip(frames, classes, strict=True)]
        in_scene = Counter(scenes)
        alike = np.array([in_scene[scene] ** -self.settings.scene_balance for scene in scenes])
        in_class: Counter[int] = Counter()
        for state_class, weight in zip(classes, alike, strict=True):
            in_class[state_class] += weight
        chance = alike * [in_class[state_class] ** -self.settings.class_balance for state_class in classes]
        wrong = np.array([states[state_class].kind is StateKind.ERROR for state_class in classes], dtype=bool)
        if wrong.any() and not wrong.all():
            chance[wrong] *= self.settings.wrong_share / chance[wrong].sum()
            chance[~wrong] *= (1 - self.settings.wrong_share) / chance[~wrong].sum()
        return np.asarray(chance / max(chance.sum(), 1e-12))

    def __getitem__(self, step: int) -> Batch:
        rng = np.random.default_rng((self.seed, step))
        settings = self.settings
        n_readable = settings.n_readable if self.frames.unreadable else settings.batch_size
        n_images = round(n_readable * settings.image_share) if self.frames.images else 0
        chosen = self._draw(self.frames.readable, n_readable - n_images, rng)
        chosen += self._draw(self.frames.images, n_images, rng)
        n_others = settings.batch_size - n_readable
        chosen += [self.frames.unreadable[k] for k in rng.integers(len(self.frames.unreadable) or 1, size=n_others)]
        return self._load(chosen, rng)

    def _draw(self, frames: Sequence[AnnotatedFrame], n: int, rng: np.random.Generator) -> list[AnnotatedFrame]:
        if not n:
            return []
        chance = self._chances[frames is self.frames.images]
        return [frames[row] for row in rng.choice(len(frames), n, p=chance)]

    def _load(self, chosen: list[AnnotatedFrame], rng: np.random.Generator) -> Batch:
        size, n_components = self.store.size, self.frames.procedure.n_components
        n = len(chosen)
        images = np.empty((n, size, size, 3), dtype=np.uint8)
        corners = np.zeros((n, 4), dtype=np.float32)
        classes = np.zeros(n, dtype=np.int64)
        bits = np.full((n, n_components), UNKNOWN, dtype=np.int64)
        for i, frame in enumerate(chosen):
            square, placement = self.store.square(frame)
            box = None if frame.box is None else placement.into_square(*frame.box.corners)
            classes[i] = frame.state_class
            if frame.bits is not None:
                bits[i] = frame.bits
            images[i], moved = augment(square, box, self.augmentation, rng)
            if moved is not None:
                corners[i] = moved
        readable = np.array([frame.box is not None for frame in chosen])
        maybe_hidden = np.array([frame.maybe_hidden for frame in chosen])
        return Batch(images, readable, maybe_hidden, corners, classes, bits)
