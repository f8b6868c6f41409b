"""Which frames and clips a network sees in training: pure index arithmetic, no images.

- Key frames (KFS): the frames just after a change of state carry the new state as their label. Batches of them hold as
  many states as possible, each from as many recordings as possible.
- Clips (KCAS and its two rivals): the last frame of a clip is drawn from a distribution over the recording's frames.
- Windows: which frames of the recording a clip consists of, and what changed between its first and its last one.

Everything is a pure function of (seed, epoch, batch number): a training run that is interrupted in the middle of an
epoch goes on with the batches it would have seen, and each of several processes takes its own share of every batch.

Shape legend: F frames of a recording, C components, B items of a batch, N frames of a clip, M key frames, R renders.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.labels import StateTimeline
from stormpsr.errors import InputError
from stormpsr.procedure.model import StateBits, bit_string

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

WrongStates = Literal["own_label", "leave_out"]
KeyStates = Literal["all", "listed"]
ClipDistribution = Literal["kcas", "gaussian", "positive", "uniform"]
_POSITIVE_SHARE = 0.5  # of the clips, those with a completion, where they are over-sampled

_KEY_FRAME_STREAM, _CLIP_STREAM = 1, 2  # so that the two samplers never share random numbers


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` processes that share the work: it takes every `count`-th item, beginning with the `rank`-th."""

    rank: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.count:
            raise InputError(f"rank {self.rank} of {self.count} processes", cure="ranks go from 0 to the count less 1")

    def of(self, items_B: Ints) -> Ints:
        return items_B[self.rank :: self.count]

    def check(self, batch_size: int, what: str, cure: str) -> None:
        """Refuse a batch of which the processes would get unequal shares."""
        if batch_size % self.count:
            problem = f"a batch of {batch_size} {what} cannot be shared equally by {self.count} processes"
            raise InputError(problem, cure=cure)


# ---------------------------------------------------------------------- key frames
@dataclass(frozen=True, eq=False)
class KeyFrames:
    """Frames whose state is known, because they follow a change of state closely."""

    recording_M: Ints  # index of the recording
    frame_M: Ints
    label_M: Ints  # index into `states`
    states: tuple[StateBits, ...]  # the labels' meaning; every one has at least one frame

    def __len__(self) -> int:
        return len(self.frame_M)

    def label_of(self, bits: StateBits) -> int | None:
        """The label of a state, or None if no recording shows it."""
        return self.states.index(bits) if bits in self.states else None


def key_frames(
    timelines: Sequence[StateTimeline],
    n_frames: Sequence[int],
    *,
    numbers: Sequence[Sequence[int]] | None = None,
    fps: float,
    after_seconds: float,
    wrong_states: WrongStates,
    initial_state: bool,
    listed: Collection[StateBits] | None = None,
) -> KeyFrames:
    """The frames of `after_seconds` (t_f) after each change of state, never past the next change.

    Zero seconds leave the frame of the completion alone. `numbers` are the frames that have an image, where not all do:
    of a change that no such frame follows closely enough, the first one after it is taken. `initial_state` adds the
    beginning of the recording, which is no completion but a state like the others. A state with a wrong part (-1) is a
    state of its own, because it looks like no other; or its frames are left out. `listed` leaves out all states that
    are not in it.
    """
    if len(timelines) != len(n_frames):
        raise InputError(f"{len(timelines)} timelines, but {len(n_frames)} numbers of frames")
    n_after = max(round(after_seconds * fps), 1)
    labels: dict[StateBits, int] = {}
    pieces: list[tuple[int, Ints, int]] = []
    for recording, (timeline, n) in enumerate(zip(timelines, n_frames, strict=True)):
        ends = [*timeline.frames[1:], n]
        shown = None if numbers is None else np.asarray(numbers[recording], dtype=np.int64)
        for row, (start, bits, end) in enumerate(zip(timeline.frames, timeline.states, ends, strict=True)):
            if (row == 0 and not initial_state) or (wrong_states == "leave_out" and -1 in bits):
                continue
            if listed is not None and bits not in listed:
                continue
            if shown is None:
                frames = np.arange(start, min(start + n_after, end, n), dtype=np.int64)
            else:
                first, last = np.searchsorted(shown, (start, min(end, n)))
                there = shown[first:last]
                frames = there[: max(int(np.searchsorted(there, start + n_after)), 1)]
            if len(frames):
                pieces.append((recording, frames, labels.setdefault(bits, len(labels))))
    if not pieces:
        raise InputError("the recordings have no key frames", cure="check that their labels have changes of state")
    return KeyFrames(
        recording_M=np.concatenate([np.full(len(frames), recording) for recording, frames, _ in pieces]),
        frame_M=np.concatenate([frames for _, frames, _ in pieces]),
        label_M=np.concatenate([np.full(len(frames), label) for _, frames, label in pieces]),
        states=tuple(labels),
    )


@dataclass(frozen=True, eq=False)
class KeyFrameBatch:
    """Where the images of a batch come from. Images of one state stand together."""

    recording_B: Ints  # -1 for a synthetic render
    index_B: Ints  # frame of the recording, or number of the render
    label_B: Ints


class KeyFrameSampler:
    """Batches with `n_sample` real and `n_syn` rendered images of each state.

    A state of which there are too few images has each of them several times, equally often but for one; a state
    without renders gets real images in their place. `notes` says so, once.
    """

    def __init__(
        self,
        frames: KeyFrames,
        *,
        n_sample: int,
        n_syn: int,
        states_per_batch: int | None,
        seed: int,
        render_label_R: Ints | None = None,
        shard: Shard | None = None,
    ) -> None:
        self.frames = frames
        self.n_sample, self.n_syn, self.seed = n_sample, n_syn, seed
        self.n_states = len(frames.states)
        self.states_per_batch = min(states_per_batch or self.n_states, self.n_states)
        self.shard = shard or Shard()
        if n_sample < 1 or n_syn < 0 or n_sample + n_syn < 2:
            cure = "at least one real image and two images in all are needed, so that each has a partner"
            raise InputError(f"{n_sample} real and {n_syn} rendered images per state", cure=cure)
        if self.n_states < 2:
            raise InputError("all key frames show the same state", cure="at least two states are needed to tell apart")
        self.shard.check(self.batch_size, "images", cure="change n_sample, n_syn or states_per_batch")
        renders = np.empty(0, dtype=np.int64) if render_label_R is None else np.asarray(render_label_R, dtype=np.int64)
        self._real = [np.flatnonzero(frames.label_M == label) for label in range(self.n_states)]
        self._renders = [np.flatnonzero(renders == label) for label in range(self.n_states)]

    @property
    def batch_size(self) -> int:
        """Images in a batch, of all processes together."""
        return (self.n_sample + self.n_syn) * self.states_per_batch

    @property
    def batches_per_epoch(self) -> int:
        """As many as it takes to draw as many real images as there are."""
        return max(-(-len(self.frames) // (self.n_sample * self.states_per_batch)), 1)

    @property
    def notes(self) -> tuple[str, ...]:
        """What had to be done about states with too few images."""
        counts = [len(pool) for pool in self._real]
        names = [bit_string(bits) for bits in self.frames.states]
        scarce = [f"{name} has {n}" for name, n in zip(names, counts, strict=True) if n < self.n_sample]
        n_seen_in = [len(np.unique(self.frames.recording_M[pool])) for pool in self._real]
        lone = [name for name, n in zip(names, n_seen_in, strict=True) if n == 1]
        bare = [name for name, pool in zip(names, self._renders, strict=True) if self.n_syn and not len(pool)]
        problems = {
            f"have fewer than {self.n_sample} key frames and are drawn with replacement": scarce,
            "are seen in one recording only: what tells them apart may be the recording": lone,
            "have no renders and get real images instead": bare,
        }
        return tuple(
            f"{len(states)} of {self.n_states} states {problem} ({', '.join(states[:3])}{', ...' * (len(states) > 3)})"
            for problem, states in problems.items()
            if states
        )

    def batch(self, epoch: int, number: int) -> KeyFrameBatch:
        """This process's share of a batch."""
        rng = np.random.default_rng((self.seed, _KEY_FRAME_STREAM, epoch, number))
        states = np.sort(rng.choice(self.n_states, self.states_per_batch, replace=False))
        recording, index = [], []
        for label in states.tolist():
            renders = self._renders[label]
            n_syn = self.n_syn if len(renders) else 0
            chosen = self._draw_real(label, self.n_sample + self.n_syn - n_syn, rng)
            recording += [self.frames.recording_M[chosen], np.full(n_syn, -1)]
            index += [self.frames.frame_M[chosen], _draw_evenly(rng.permutation(renders), n_syn)]
        label_B = np.repeat(states, self.n_sample + self.n_syn)
        parts = (np.concatenate(recording), np.concatenate(index), label_B)
        return KeyFrameBatch(*(self.shard.of(part) for part in parts))

    def _draw_real(self, label: int, n: int, rng: np.random.Generator) -> Ints:
        """`n` key frames of a state: one of every recording in random order, then a second of each, and so on."""
        pool = rng.permutation(self._real[label])
        recording = self.frames.recording_M[pool]
        by_recording = np.argsort(recording, kind="stable")
        _, first, counts = np.unique(recording[by_recording], return_index=True, return_counts=True)
        turn = np.empty(len(pool), dtype=np.int64)
        turn[by_recording] = np.arange(len(pool)) - np.repeat(first, counts)
        return _draw_evenly(pool[np.argsort(turn, kind="stable")], n)


def _draw_evenly(pool: Ints, n: int) -> Ints:
    """The first `n` of a pool, which begins again from its start as often as needed."""
    return pool[np.arange(n) % len(pool)] if n else np.empty(0, dtype=np.int64)


# ---------------------------------------------------------------------- clips
def change_frames(timeline: StateTimeline) -> Ints:
    """Frames in which what is correctly in place changes, each once however many components change in it.

    A part that is put on wrongly changes nothing here: a clip's label takes it for absent, too.
    """
    correct = np.asarray(timeline.states, dtype=np.int8) == 1
    changed = np.any(correct[1:] != correct[:-1], axis=1)
    return np.asarray(timeline.frames, dtype=np.int64)[1:][changed]


def end_frame_probabilities(
    kind: ClipDistribution,
    completion_frames: Ints,
    n_frames: int,
    *,
    delta_frames: float,
    sigma_frames: float,
    window_frames: int = 1,
) -> Floats:
    """How probable each frame of a recording is as the last one of a clip; sums to 1.

    `kcas`: for each distinct completion, Gaussians `delta_frames` before and after it. `gaussian`: one at the
    completion itself. `positive`: clips of `window_frames` that hold a completion are drawn as often as all others,
    each alike, which is what the caption of the paper's table says of "Gaussian". `uniform`: all frames alike, as for
    a recording without completions.
    """
    times = np.unique(np.asarray(completion_frames, dtype=np.float64))
    if kind == "uniform" or not len(times):
        return np.full(n_frames, 1.0 / n_frames)
    if kind == "positive":
        age_FK = np.arange(n_frames)[:, None] - times
        positive_F = ((age_FK >= 0) & (age_FK < window_frames)).any(axis=1)
        if positive_F.all() or not positive_F.any():
            return np.full(n_frames, 1.0 / n_frames)
        share = _POSITIVE_SHARE / positive_F.sum()
        return np.asarray(np.where(positive_F, share, (1 - _POSITIVE_SHARE) / (~positive_F).sum()))
    centres = np.concatenate([times - delta_frames, times + delta_frames]) if kind == "kcas" else times
    log_weights = -0.5 * ((np.arange(n_frames)[:, None] - centres) / sigma_frames) ** 2
    log_weights -= log_weights.max()  # so that a recording far longer than sigma does not underflow to nothing
    weights = np.exp(log_weights).sum(axis=1)
    return np.asarray(weights / weights.sum())


class ClipSampler:
    """Draws clips, given as (recording, last frame), in batches.

    Every recording gives clips in proportion to its length, whatever the distribution inside it: so the three
    distributions differ only in where a recording's clips lie. The draws of an epoch are stratified: as evenly spread
    over the recordings as their lengths allow. With `align_frames`, clips end at multiples of it, the nearest before.
    """

    def __init__(
        self,
        probabilities: Sequence[Floats],
        *,
        batch_size: int,
        batches_per_epoch: int,
        seed: int,
        shard: Shard | None = None,
        align_frames: int = 1,
    ) -> None:
        self.batch_size, self.batches_per_epoch, self.seed = batch_size, batches_per_epoch, seed
        self.align_frames = align_frames
        self.shard = shard or Shard()
        if not probabilities:
            raise InputError("there are no recordings to draw clips from")
        self.shard.check(batch_size, "clips", cure="choose a multiple")
        lengths = np.array([len(p) for p in probabilities], dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(lengths)])
        self._cumulative = np.cumsum(np.concatenate([p * len(p) for p in probabilities]))
        self._latest: tuple[int, tuple[Ints, Ints]] | None = None  # the epoch that was drawn last

    def epoch(self, epoch: int) -> tuple[Ints, Ints]:
        """All clips of an epoch, in order: recordings and last frames."""
        if self._latest is None or self._latest[0] != epoch:
            self._latest = epoch, self._draw(epoch)
        return self._latest[1]

    def _draw(self, epoch: int) -> tuple[Ints, Ints]:
        n = self.batch_size * self.batches_per_epoch
        rng = np.random.default_rng((self.seed, _CLIP_STREAM, epoch))
        places = (rng.permutation(n) + rng.random(n)) / n * self._cumulative[-1]
        # of the frames with the same sum, those of probability 0 come later: side="right" never lands on them
        found = np.minimum(np.searchsorted(self._cumulative, places, side="right"), self._starts[-1] - 1)
        recording = np.searchsorted(self._starts, found, side="right") - 1
        end = found - self._starts[recording]
        return recording, end - end % self.align_frames

    def batch(self, epoch: int, number: int) -> tuple[Ints, Ints]:
        """This process's share of a batch: recordings and last frames."""
        recording, end = self.epoch(epoch)
        part = slice(number * self.batch_size, (number + 1) * self.batch_size)
        return self.shard.of(recording[part]), self.shard.of(end[part])


# ---------------------------------------------------------------------- windows
def window_offsets(window_frames: int, n_window: int) -> Ints:
    """Offsets of a clip's `n_window` (N_w) frames from its last one: equally spaced over `window_frames` (w).

    256 and 64 give -252, -248, ..., -4, 0: the last frame belongs to the clip, because that is the news.
    """
    if not 1 <= n_window <= window_frames:
        cure = "take at least 1 and at most the window"
        raise InputError(f"{n_window} frames out of a window of {window_frames}", cure=cure)
    return -(np.arange(n_window, dtype=np.int64)[::-1] * window_frames // n_window)


def clip_windows(end_B: Ints, offsets_N: Ints) -> tuple[Ints, Bools]:
    """The frames of clips that end in `end_B`, and which of them exist.

    A clip that begins before the recording is padded on the left: those frames are masked (False) and point to frame
    0, so that they can be read all the same.
    """
    frame_BN = np.asarray(end_B, dtype=np.int64)[:, None] + offsets_N
    return np.maximum(frame_BN, 0), frame_BN >= 0


def clip_labels(states_FC: NDArray[np.integer], frame_BN: Ints, mask_BN: Bools) -> NDArray[np.uint8]:
    """Which components are correctly in place at one end of the clip but not at the other; shape (B, C).

    The clip's first frame is the first one that exists. A wrong part (-1) counts as absent.
    """
    correct_FC = states_FC == 1
    first_B = frame_BN[np.arange(len(frame_BN)), mask_BN.argmax(axis=1)]
    return np.asarray(correct_FC[first_B] ^ correct_FC[frame_BN[:, -1]], dtype=np.uint8)
