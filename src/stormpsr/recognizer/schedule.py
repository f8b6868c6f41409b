"""Which network is due in which frame, and which embeddings make up a window. Streaming and batched share both.

A frame's tick is the nearest one on the procedure's clock. Of several frames in a tick the first counts: it is the
earliest that anything can be known. A network with stride s runs in the first frame of every s ticks, so with even
frames in ticks 0, s, 2s, ..., and with dropped frames in the next one that comes.

Shape legend: R places of the ring, N frames of a window, D dimensions of an embedding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError

_MOST_BACKWARDS_SECONDS = 1.0  # cameras may deliver frames slightly out of order


def tick_of(time_seconds: float, fps: float) -> int:
    """The nearest tick. Halves go up, all of them: rounding to even would take frames of twice the rate unevenly."""
    return math.floor(time_seconds * fps + 0.5 + 1e-6)


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done with a frame."""

    tick: int
    detect: bool
    encode: bool
    predict: bool  # run the temporal model
    slot: int  # where the embedding belongs


class Schedule:
    """Feed it time stamps in order."""

    def __init__(
        self,
        fps: float,
        *,
        detector_stride: int | None,
        temporal_stride: int | None,
        offsets_N: NDArray[np.int64] | None = None,
    ) -> None:
        """A stride of None: there is no such network. `offsets_N`: the frames of a window, 0 is its last."""
        self.fps = fps
        self.detector_stride, self.temporal_stride = detector_stride, temporal_stride
        # only these ticks are ever read by the temporal model, so only these are encoded
        offsets = [] if offsets_N is None else [abs(int(offset)) for offset in offsets_N]
        self.encoder_stride = math.gcd(temporal_stride or 1, *offsets)
        self.reset()

    def reset(self) -> None:
        self._tick: int | None = None
        self._time = -math.inf
        self._looked = self._encoded = self._predicted = -1

    def next(self, time_seconds: float) -> Due | None:
        """What is due in the next frame; None if the tick has had its frame already."""
        if not math.isfinite(time_seconds) or time_seconds < 0:
            raise InputError(f"a frame at {time_seconds} seconds", cure="times count from 0, in seconds")
        if time_seconds < self._time - _MOST_BACKWARDS_SECONDS:
            problem = f"a frame at {time_seconds:.2f} s after one at {self._time:.2f} s"
            raise InputError(problem, cure="feed frames in order, and call reset() for a new recording")
        self._time = max(self._time, time_seconds)
        tick = tick_of(time_seconds, self.fps)
        if self._tick is not None and tick <= self._tick:
            return None
        self._tick = tick
        detect = encode = predict = False
        if self.detector_stride is not None:
            detect = tick // self.detector_stride > self._looked
            self._looked = tick // self.detector_stride
        slot = tick // self.encoder_stride
        if self.temporal_stride is not None:
            encode, predict = slot > self._encoded, tick // self.temporal_stride > self._predicted
            self._encoded, self._predicted = slot, tick // self.temporal_stride
        return Due(tick, detect, encode, predict, slot)


class EmbeddingRing:
    """The latest embeddings, each in the slot of its tick. Memory does not grow."""

    def __init__(
        self, offsets_N: NDArray[np.int64], encoder_stride: int, dim: int, capacity: int | None = None
    ) -> None:
        self._offset_N = offsets_N // encoder_stride  # in slots
        # a gap no wider than the distance between two frames of a window is filled with what came before it
        spacing = int(np.diff(self._offset_N).max()) if len(self._offset_N) > 1 else 1
        self._most_back = max(spacing, 1)
        n_slots = int(-self._offset_N.min()) + self._most_back + 1
        self._embedding_RD = np.zeros((n_slots, dim), dtype=np.float32)
        self._slot_R = np.full(n_slots, -1, dtype=np.int64)

    def reset(self) -> None:
        self._slot_R[:] = -1

    def put(self, slot: int, embedding_D: NDArray[np.float32]) -> None:
        place = slot % len(self._slot_R)
        self._embedding_RD[place] = embedding_D
        self._slot_R[place] = slot

    def window(self, slot: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The embeddings of the window that ends in a slot, (N, D), and which of them are known, (N,)."""
        wanted_N = slot + self._offset_N
        found_N = np.full(len(wanted_N), -1, dtype=np.int64)
        for back in range(self._most_back, -1, -1):  # the nearest is written last
            place_N = (wanted_N - back) % len(self._slot_R)
            there_N = (self._slot_R[place_N] == wanted_N - back) & (wanted_N - back >= 0)
            found_N[there_N] = place_N[there_N]
        known_N = found_N >= 0
        return self._embedding_RD[found_N] * known_N[:, None], known_N
