"""Learns the procedure filter's parameters through the filter: what is most probable to it shall be true.

The loss is the mean of -log of what the filter believes of the true state of every component, in every prediction of
whole recordings. Rates, gain and emission all follow its gradient. Needs torch; the filter itself does not.

Shape legend: as in `procedure_filter`; N recordings, T predictions of a recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stormpsr.decoding.predictions import DETECTOR_OUTPUTS, N_OUTPUTS, STREAM_OUTPUTS, LabelledRecording
from stormpsr.decoding.procedure_filter import (
    FEATURES,
    RATES,
    Blocks,
    FilterParameters,
    Moves,
    Needs,
    emission,
    features_of,
    transition,
    with_component,
)
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, Variant

_HIDDEN = (24, 24)
_STEPS, _LEARNING_RATE, _WEIGHT_DECAY = 80, 0.02, 0.01
_LEAST_PROBABILITY = 1e-4  # so that one recording that went wrong does not rule
_NETWORK_DROP = 0.15  # how often a network is taken away from a recording, so that one alone is understood, too
OnStep = Callable[[int, int], None]  # steps done, steps in all


@dataclass(frozen=True, eq=False)
class _Recordings:
    """All recordings of one variant, aligned at their first prediction."""

    blocks: Blocks
    moves: tuple[Moves, ...]
    begin_GS: Tensor
    feature_NTCF: Tensor
    truth_NTC: Tensor  # absent, correct, wrong
    counts_NT: Tensor  # whether there is such a prediction


def fit_filter(
    recordings: Sequence[LabelledRecording],
    procedure: Procedure,
    block_components: int,
    *,
    steps: int = _STEPS,
    seed: int = 0,
    on_step: OnStep | None = None,
) -> FilterParameters:
    """Parameters from labelled recordings and what the networks say of them."""
    generator = torch.Generator().manual_seed(seed)
    rows = [_table(recording, procedure) for recording in recordings]
    ticks = int(np.median(np.concatenate([np.diff(tick_T) for tick_T, _, _ in rows if len(tick_T) > 1])))
    groups = [
        _group(
            [row for row, r in zip(rows, recordings, strict=True) if r.variant == name],
            procedure,
            variant,
            block_components,
        )
        for name, variant in procedure.variants.items()
        if any(recording.variant == name for recording in recordings)
    ]
    log_seconds_R = torch.log(torch.tensor(list(RATES.values()))).requires_grad_()
    log_gain = torch.tensor(np.log(0.1 / ticks), dtype=torch.float32).requires_grad_()
    layers = _new_layers(len(FEATURES) + procedure.n_components, generator)
    parameters = [log_seconds_R, log_gain, *(tensor for layer in layers for tensor in layer)]
    slow = {"params": [log_seconds_R, log_gain], "weight_decay": 0.0}
    weights = {"params": parameters[2:], "weight_decay": _WEIGHT_DECAY}
    optimiser = torch.optim.AdamW([slow, weights], lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _LEARNING_RATE, total_steps=steps, pct_start=0.2)
    total = sum(float(group.counts_NT.sum()) for group in groups)
    for step in range(steps):
        optimiser.zero_grad()
        for group in groups:
            kept = _drop_networks(group.feature_NTCF, generator)
            loss = _loss(group, kept, log_seconds_R, log_gain.exp() * ticks, layers, ticks / procedure.fps) / total
            loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        schedule.step()
        if on_step:
            on_step(step + 1, steps)
    learned = tuple(tuple(tensor.detach().double().numpy() for tensor in layer) for layer in layers)
    if not all(np.isfinite(tensor).all() for layer in learned for tensor in layer):
        raise InputError("fitting the filter diverged", cure="look for recordings with wrong labels")
    return FilterParameters(log_seconds_R.detach().double().numpy(), float(log_gain.detach().exp()), ticks, learned)


def _table(
    recording: LabelledRecording, procedure: Procedure
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    """Ticks, features and true states of the predictions that say something."""
    states = recording.states
    if states is None:
        raise InputError(f"recording {recording.name} has no states to learn from")
    said = [(p, f) for p in recording.predictions if (f := features_of(p, procedure)) is not None]
    index_T = np.array([prediction.index for prediction, _ in said], dtype=np.int64)
    dense_FC = states.dense(int(index_T.max(initial=0)) + 1)
    tick_T = np.array([prediction.tick for prediction, _ in said], dtype=np.int64)
    feature_TCF = np.stack([feature_CF for _, feature_CF in said])
    return tick_T, feature_TCF, dense_FC[index_T].astype(np.int64) % 3


def _group(rows: Sequence[Any], procedure: Procedure, variant: Variant, most: int) -> _Recordings:
    blocks, needs = Blocks.of(procedure, most), Needs.of(procedure)
    n_blocks = len(blocks.slot_GB)
    begin_GS = torch.zeros(n_blocks, len(blocks.digit_SB))
    begin_GS[torch.arange(n_blocks), torch.from_numpy(blocks.joint_state(variant.initial))] = 1.0
    longest = max(len(tick_T) for tick_T, _, _ in rows)
    feature_NTCF = torch.zeros(len(rows), longest, procedure.n_components, len(FEATURES))
    truth_NTC = torch.zeros(len(rows), longest, procedure.n_components, dtype=torch.long)
    counts_NT = torch.zeros(len(rows), longest)
    for number, (tick_T, feature_TCF, truth_TC) in enumerate(rows):
        n = len(tick_T)
        feature_NTCF[number, :n] = torch.from_numpy(feature_TCF)
        truth_NTC[number, :n] = torch.from_numpy(truth_TC)
        counts_NT[number, :n] = 1.0
    moves = tuple(Moves.of(blocks, block, needs, variant, procedure) for block in range(n_blocks))
    return _Recordings(blocks, moves, begin_GS, feature_NTCF, truth_NTC, counts_NT)


def _new_layers(n_in: int, generator: torch.Generator) -> list[tuple[Tensor, Tensor]]:
    widths = (n_in, *_HIDDEN, 3)
    return [
        (
            (torch.randn(before, after, generator=generator) * (2 / before) ** 0.5).requires_grad_(),
            torch.zeros(after, requires_grad=True),
        )
        for before, after in pairwise(widths)
    ]


def _drop_networks(feature_NTCF: Tensor, generator: torch.Generator) -> Tensor:
    """Features without those of the detector, or without those of the stream, in some recordings.

    Where there is one network only, it stays.
    """
    if not (feature_NTCF[..., N_OUTPUTS + 2].any() and feature_NTCF[..., N_OUTPUTS + 4].any()):
        return feature_NTCF
    drawn_N = torch.rand(len(feature_NTCF), generator=generator)
    mask_NF = torch.ones(len(feature_NTCF), feature_NTCF.shape[-1])
    of_detector = [*range(N_OUTPUTS)[DETECTOR_OUTPUTS], N_OUTPUTS, N_OUTPUTS + 1, N_OUTPUTS + 2, N_OUTPUTS + 3]
    of_stream = [*range(N_OUTPUTS)[STREAM_OUTPUTS], N_OUTPUTS + 4]
    for lacks_N, columns in ((drawn_N < _NETWORK_DROP, of_detector), (drawn_N > 1 - _NETWORK_DROP, of_stream)):
        mask_NF[lacks_N.nonzero(), torch.tensor(columns)] = 0.0
    return feature_NTCF * mask_NF[:, None, None]


def _loss(
    group: _Recordings,
    feature_NTCF: Tensor,
    log_seconds_R: Tensor,
    gain: Tensor,
    layers: Sequence[tuple[Tensor, Tensor]],
    seconds: float,
) -> Tensor:
    """The sum over predictions of the mean over components of -log of what is believed of the truth."""
    blocks = group.blocks
    n_recordings, n_steps, n_components = group.truth_NTC.shape
    n_states = len(blocks.digit_SB)
    identity_SS, is_SX = torch.eye(n_states), torch.from_numpy(blocks.is_SX).float()
    rate_R = torch.exp(-log_seconds_R)
    step_GSS = torch.stack(
        [
            transition(moves.generator(rate_R, torch.zeros(n_states, n_states)), identity_SS, seconds)
            for moves in group.moves
        ]
    )
    which_CC = torch.eye(n_components).expand(n_recordings, n_steps, -1, -1)
    said_NTC3 = emission(layers, with_component(feature_NTCF, which_CC)) * gain
    joint_NTGS = blocks.joint(said_NTC3, said_NTC3.new_zeros(n_recordings, n_steps, 1, 3), is_SX.T)
    weight_TGNS = (joint_NTGS - joint_NTGS.amax(dim=-1, keepdim=True)).exp().permute(1, 2, 0, 3)
    belief_GNS = group.begin_GS[:, None].expand(-1, n_recordings, -1)
    beliefs = []
    for weight_GNS in weight_TGNS:
        belief_GNS = (belief_GNS @ step_GSS) * weight_GNS
        belief_GNS = belief_GNS / belief_GNS.sum(dim=-1, keepdim=True).clamp(min=1e-30)
        beliefs.append(belief_GNS)
    belief_NTGS = torch.stack(beliefs).permute(2, 0, 1, 3)
    marginal_NTC3 = blocks.marginals(belief_NTGS, is_SX)
    true_NTC = marginal_NTC3.gather(-1, group.truth_NTC[..., None])[..., 0]
    loss_NT = -true_NTC.clamp(min=_LEAST_PROBABILITY).log().mean(dim=-1)
    return (loss_NT * group.counts_NT).sum()
