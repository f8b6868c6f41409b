"""Learns the procedure filter's parameters through the filter: what is most probable to it shall be true.

The loss is the mean of -log of what the filter believes of the true state of every component, in every prediction.
Rates, gain and emission all follow its gradient; mean times begin at the pace of the recordings. Recordings are cut
into chunks that are learned from side by side; a chunk begins with what was believed when the one before it was last
seen, so nothing is forgotten but the gradient (truncated back-propagation through time). Needs torch; the filter itself
does not.

Shape legend: as in `procedure_filter`; N chunks, T predictions of a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stormpsr.decoding.predictions import DETECTOR_OUTPUTS, N_OUTPUTS, STREAM_OUTPUTS, LabelledRecording, OnSteps
from stormpsr.decoding.procedure_filter import (
    FEATURES,
    RATES,
    Blocks,
    FilterParameters,
    Moves,
    emission,
    features_of,
    transition,
    turning_components,
    with_component,
)
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, Variant

_HIDDEN = (24, 24)
CHUNK = 100  # predictions: 40 seconds at the usual stride
CHUNKS_AT_ONCE = 32
_STEPS, _LEARNING_RATE, _WEIGHT_DECAY = 240, 0.015, 0.01
_SCALE_RATE = 0.05  # learning rate of gain and mean times, which are logarithms
_USUAL_GAP = 34.0  # seconds between completions in IndustReal's training split, where the first mean times are from
_LEAST_PROBABILITY = 1e-4  # so that one recording that went wrong does not rule
_NETWORK_DROP = 0.15  # how often a network is taken away from a chunk, so that one alone is understood, too


@dataclass(frozen=True, eq=False)
class _Chunks:
    """All chunks of one variant."""

    blocks: Blocks
    moves: Mapping[frozenset[int], tuple[Moves, ...]]  # of each block, by the components that have turned
    turned_N: tuple[frozenset[int], ...]  # the components that have left their initial state before a chunk begins
    feature_NTCF: Tensor
    truth_NTC: Tensor  # absent, correct, wrong
    counts_NT: Tensor  # whether there is such a prediction
    after_N: Tensor  # the chunk that follows, -1 for none
    begin_NGS: Tensor  # what is believed when a chunk begins; updated whenever the one before is seen

    def by_turned(self) -> dict[frozenset[int], list[int]]:
        found: dict[frozenset[int], list[int]] = {}
        for number, turned in enumerate(self.turned_N):
            found.setdefault(turned, []).append(number)
        return found


@contextmanager
def one_thread() -> Iterator[None]:
    """Matrices are so small that threads wait for each other longer than they compute: two take three times as long."""
    n = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n)


@one_thread()
def fit_filter(
    recordings: Sequence[LabelledRecording],
    procedure: Procedure,
    block_components: int,
    *,
    steps: int = _STEPS,
    seed: int = 0,
    on_progress: OnSteps | None = None,
) -> FilterParameters:
    """Parameters from labelled recordings and what the networks say of them."""
    generator = torch.Generator().manual_seed(seed)
    tables: dict[str, list[Table]] = {}
    for recording in recordings:
        tables.setdefault(recording.variant, []).append(Table.of(recording, procedure))
    strides = [np.diff(table.tick_T) for group in tables.values() for table in group]
    ticks = max(int(np.median(np.concatenate(strides))), 1)
    blocks = Blocks.of(procedure, block_components)
    groups = [_chunks(group, procedure, procedure.variant(name), blocks) for name, group in tables.items()]
    log_seconds_R = torch.log(torch.tensor(list(RATES.values())) * pace_of(recordings, procedure.fps)).requires_grad_()
    log_gain = torch.tensor(np.log(0.15 / ticks), dtype=torch.float32).requires_grad_()
    layers = _new_layers(len(FEATURES) + procedure.n_components, generator)
    parameters = [log_seconds_R, log_gain, *(tensor for layer in layers for tensor in layer)]
    scales = {"params": [log_seconds_R, log_gain], "weight_decay": 0.0}
    weights = {"params": parameters[2:], "weight_decay": _WEIGHT_DECAY}
    optimiser = torch.optim.AdamW([scales, weights], lr=_LEARNING_RATE)
    greatest = [_SCALE_RATE, _LEARNING_RATE]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, greatest, total_steps=steps, pct_start=0.2)
    # chunks of a batch share their transitions
    pools = [(group, torch.tensor(rows)) for group in groups for rows in group.by_turned().values()]
    share = torch.tensor([float(len(rows)) for _, rows in pools])
    for step in range(steps):
        group, rows_N = pools[int(torch.multinomial(share, 1, generator=generator))]
        chosen_B = rows_N[torch.randperm(len(rows_N), generator=generator)[:CHUNKS_AT_ONCE]]
        optimiser.zero_grad()
        seconds = ticks / procedure.fps
        loss = _loss(group, chosen_B, log_seconds_R, log_gain.exp() * ticks, layers, seconds, generator)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        schedule.step()
        if on_progress:
            on_progress(step + 1, steps)
    learned = tuple((weight.detach().double().numpy(), bias.detach().double().numpy()) for weight, bias in layers)
    if not all(np.isfinite(tensor).all() for layer in learned for tensor in layer):
        raise InputError("fitting the filter diverged", cure="look for recordings with wrong labels")
    return FilterParameters(log_seconds_R.detach().double().numpy(), float(log_gain.detach().exp()), ticks, learned)


@dataclass(frozen=True, eq=False)
class Table:
    """The predictions of a recording that say something."""

    tick_T: NDArray[np.int64]
    feature_TCF: NDArray[np.float32]
    truth_TC: NDArray[np.int64]

    @classmethod
    def of(cls, recording: LabelledRecording, procedure: Procedure) -> Table:
        if recording.states is None:
            raise InputError(f"recording {recording.name} has no states to learn from")
        said = [(p, f) for p in recording.predictions if (f := features_of(p, procedure)) is not None]
        if not said:
            raise InputError(f"the networks say nothing of recording {recording.name}")
        index_T = np.array([prediction.index for prediction, _ in said], dtype=np.int64)
        dense_FC = recording.states.dense(int(index_T.max()) + 1)
        tick_T = np.array([prediction.tick for prediction, _ in said], dtype=np.int64)
        return cls(tick_T, np.stack([feature for _, feature in said]), dense_FC[index_T].astype(np.int64) % 3)


def _chunks(tables: Sequence[Table], procedure: Procedure, variant: Variant, blocks: Blocks) -> _Chunks:
    cuts = [(table, start) for table in tables for start in range(0, len(table.tick_T), CHUNK)]
    n_components, needs = procedure.n_components, procedure.needs
    feature_NTCF = torch.zeros(len(cuts), CHUNK, n_components, len(FEATURES))
    truth_NTC = torch.zeros(len(cuts), CHUNK, n_components, dtype=torch.long)
    counts_NT = torch.zeros(len(cuts), CHUNK)
    after_N = torch.full((len(cuts),), -1)
    begin_NGS = torch.zeros(len(cuts), len(blocks.slot_GB), len(blocks.digit_SB))
    for number, (table, start) in enumerate(cuts):
        part = slice(start, start + CHUNK)
        n = len(table.tick_T[part])
        feature_NTCF[number, :n] = torch.from_numpy(table.feature_TCF[part])
        truth_NTC[number, :n] = torch.from_numpy(table.truth_TC[part])
        counts_NT[number, :n] = 1.0
        if start:
            after_N[number - 1] = number
        # until the chunk before has been seen, one that begins in the middle begins with the truth
        true = variant.initial if not start else table.truth_TC[start - 1].tolist()
        begin_NGS[number, torch.arange(begin_NGS.shape[1]), torch.from_numpy(blocks.joint_state(true))] = 1.0
    turned_N = tuple(_turned_before(table, start, procedure, variant) for table, start in cuts)
    moves = {
        turned: tuple(
            Moves.of(blocks, block, needs, variant, procedure, turned=turned) for block in range(len(blocks.slot_GB))
        )
        for turned in set(turned_N)
    }
    return _Chunks(blocks, moves, turned_N, feature_NTCF, truth_NTC, counts_NT, after_N, begin_NGS)


def _turned_before(table: Table, start: int, procedure: Procedure, variant: Variant) -> frozenset[int]:
    left_C = (table.truth_TC[:start] != np.asarray(variant.initial) % 3).any(axis=0)
    return turning_components(procedure, variant) & frozenset(np.flatnonzero(left_C).tolist())


def pace_of(recordings: Sequence[LabelledRecording], fps: float) -> float:
    """How many times longer the next completion takes on average than where the first mean times are from."""
    frames = [sorted({label.frame for label in recording.labels}) for recording in recordings]
    gaps = [later - sooner for own in frames for sooner, later in pairwise(own)]
    return float(np.clip(np.mean(gaps) / fps / _USUAL_GAP, 0.05, 20)) if gaps else 1.0


def _new_layers(n_in: int, generator: torch.Generator) -> list[tuple[Tensor, Tensor]]:
    widths = (n_in, *_HIDDEN, 3)
    return [
        (
            (torch.randn(before, after, generator=generator) * (2 / before) ** 0.5).requires_grad_(),
            torch.zeros(after, requires_grad=True),
        )
        for before, after in pairwise(widths)
    ]


def drop_networks(feature_BTCF: Tensor, generator: torch.Generator) -> Tensor:
    """Features without those of the detector, or without those of the stream, in some chunks.

    Where there is one network only, it stays.
    """
    if not (feature_BTCF[..., N_OUTPUTS + 2].any() and feature_BTCF[..., N_OUTPUTS + 4].any()):
        return feature_BTCF
    drawn_B = torch.rand(len(feature_BTCF), generator=generator)
    mask_BF = torch.ones(len(feature_BTCF), feature_BTCF.shape[-1])
    of_detector = [*range(N_OUTPUTS)[DETECTOR_OUTPUTS], N_OUTPUTS, N_OUTPUTS + 1, N_OUTPUTS + 2, N_OUTPUTS + 3]
    of_stream = [*range(N_OUTPUTS)[STREAM_OUTPUTS], N_OUTPUTS + 4]
    for lacks_B, columns in ((drawn_B < _NETWORK_DROP, of_detector), (drawn_B > 1 - _NETWORK_DROP, of_stream)):
        mask_BF[lacks_B.nonzero(), torch.tensor(columns)] = 0.0
    return feature_BTCF * mask_BF[:, None, None]


def _loss(
    group: _Chunks,
    chosen_B: Tensor,
    log_seconds_R: Tensor,
    gain: Tensor,
    layers: Sequence[tuple[Tensor, Tensor]],
    seconds: float,
    generator: torch.Generator,
) -> Tensor:
    """The mean over predictions and components of -log of what is believed of the truth; B chunks of a batch."""
    blocks, truth_BTC, counts_BT = group.blocks, group.truth_NTC[chosen_B], group.counts_NT[chosen_B]
    n_batch, n_steps, n_components = truth_BTC.shape
    n_states = len(blocks.digit_SB)
    identity_SS, is_SX = torch.eye(n_states), torch.from_numpy(blocks.is_SX).float()
    rate_R = torch.exp(-log_seconds_R)
    generators = [
        moves.generator(rate_R, torch.zeros(n_states, n_states))
        for moves in group.moves[group.turned_N[int(chosen_B[0])]]
    ]
    step_GSS = transition(torch.stack(generators), identity_SS, seconds)
    feature_BTCF = drop_networks(group.feature_NTCF[chosen_B], generator)
    which_CC = torch.eye(n_components).expand(n_batch, n_steps, -1, -1)
    said_BTC3 = emission(layers, with_component(feature_BTCF, which_CC)) * gain * counts_BT[..., None, None]
    joint_BTGS = blocks.joint(said_BTC3, said_BTC3.new_zeros(n_batch, n_steps, 1, 3), is_SX.T)
    weight_TGBS = (joint_BTGS - joint_BTGS.amax(dim=-1, keepdim=True)).exp().permute(1, 2, 0, 3)
    belief_GBS = group.begin_NGS[chosen_B].transpose(0, 1)
    beliefs = []
    for weight_GBS in weight_TGBS:
        belief_GBS = (belief_GBS @ step_GSS) * weight_GBS
        belief_GBS = belief_GBS / belief_GBS.sum(dim=-1, keepdim=True).clamp(min=1e-30)
        beliefs.append(belief_GBS)
    followed_B = group.after_N[chosen_B] >= 0
    group.begin_NGS[group.after_N[chosen_B][followed_B]] = belief_GBS.detach().transpose(0, 1)[followed_B]
    marginal_BTC3 = blocks.marginals(torch.stack(beliefs).permute(2, 0, 1, 3), is_SX)
    true_BTC = marginal_BTC3.gather(-1, truth_BTC[..., None])[..., 0]
    loss_BT = -true_BTC.clamp(min=_LEAST_PROBABILITY).log().mean(dim=-1)
    return (loss_BT * counts_BT).sum() / counts_BT.sum()
