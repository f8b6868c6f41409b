"""Learns the recurrent method's weights: what it thinks of every component shall be true, in every prediction.

Recordings are cut into chunks, as for the procedure filter; a chunk begins with what was thought when the one before it
was last seen. Until then it begins with the truth, which teaches what to think where somebody has said what is true.

Shape legend: as in `recurrent`; R chunks, B chunks of a batch, T predictions of a chunk.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from stormpsr.decoding.decisions import Floats
from stormpsr.decoding.predictions import LabelledRecording, OnSteps
from stormpsr.decoding.procedure_filter import FEATURES, concatenate, with_component
from stormpsr.decoding.procedure_filter_fit import CHUNK, CHUNKS_AT_ONCE, Table, drop_networks, one_thread
from stormpsr.decoding.recurrent import (
    N_MEMBERS,
    SHAPES,
    Surroundings,
    context_of,
    read_out,
    recurrent_step,
    shape_of,
)
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

_STEPS, _LEARNING_RATE, _WEIGHT_DECAY = 300, 0.01, 0.02
_LEAST_PROBABILITY = 1e-4


@one_thread()
def fit_recurrent(
    recordings: Sequence[LabelledRecording],
    procedure: Procedure,
    *,
    steps: int = _STEPS,
    members: int = N_MEMBERS,
    seed: int = 0,
    on_progress: OnSteps | None = None,
) -> dict[str, Floats]:
    """Weights of so many members (M, ...) from labelled recordings and what the networks say of them."""
    chunks = _Chunks(recordings, procedure)
    fitted = []
    for member in range(members):

        def tell(done: int, of: int, before: int = member * steps) -> None:
            if on_progress:
                on_progress(before + done, members * of)

        chunks.forget()
        fitted.append(_fit_one(chunks, procedure, steps, torch.Generator().manual_seed(seed + member), tell))
    return {name: np.stack([weights[name] for weights in fitted]) for name in SHAPES}


def _fit_one(
    chunks: _Chunks, procedure: Procedure, steps: int, generator: torch.Generator, on_progress: OnSteps
) -> dict[str, Floats]:
    weights = {name: _draw(shape_of(name, procedure.n_components), generator) for name in SHAPES}
    decayed = [own for own in weights.values() if own.ndim > 1]
    others = [own for own in weights.values() if own.ndim == 1]
    groups = [{"params": decayed, "weight_decay": _WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _LEARNING_RATE, total_steps=steps, pct_start=0.2)
    for step in range(steps):
        chosen_B = torch.randperm(len(chunks.after_R), generator=generator)[:CHUNKS_AT_ONCE]
        optimiser.zero_grad()
        chunks.loss(weights, chosen_B, generator).backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimiser.step()
        schedule.step()
        on_progress(step + 1, steps)
    learned = {name: own.detach().double().numpy() for name, own in weights.items()}
    if not all(np.isfinite(own).all() for own in learned.values()):
        raise InputError("fitting the recurrent method diverged", cure="look for recordings with wrong labels")
    return learned


def _draw(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    scale = shape[0] ** -0.5 if len(shape) > 1 else 0.0
    return (torch.randn(shape, generator=generator) * scale).requires_grad_()


class _Chunks:
    """Pieces of all recordings, and what was thought when each began."""

    def __init__(self, recordings: Sequence[LabelledRecording], procedure: Procedure) -> None:
        n = procedure.n_components
        around = {name: Surroundings.of(procedure, variant) for name, variant in procedure.variants.items()}
        self.around = next(iter(around.values()))  # what is needed and carried is the same in all variants
        tables = [(own, Table.of(own, procedure)) for own in recordings]
        cuts = [(own, table, start) for own, table in tables for start in range(0, len(table.tick_T), CHUNK)]
        self.feature_RTCF = torch.zeros(len(cuts), CHUNK, n, len(FEATURES))
        self.truth_RTC = torch.zeros(len(cuts), CHUNK, n, dtype=torch.long)
        self.counts_RT = torch.zeros(len(cuts), CHUNK)
        self.ago_RT = torch.zeros(len(cuts), CHUNK)
        self.expects_RC3 = torch.zeros(len(cuts), n, 3)
        self.after_R = torch.full((len(cuts),), -1)
        self.begin_RC = torch.zeros(len(cuts), n, dtype=torch.long)  # the true state
        self.forget()
        for number, (own, table, start) in enumerate(cuts):
            part = slice(start, start + CHUNK)
            size = len(table.tick_T[part])
            self.feature_RTCF[number, :size] = torch.from_numpy(table.feature_TCF[part])
            self.truth_RTC[number, :size] = torch.from_numpy(table.truth_TC[part])
            self.counts_RT[number, :size] = 1.0
            passed_T = np.diff(table.tick_T, prepend=table.tick_T[:1])[part] / procedure.fps
            self.ago_RT[number, :size] = torch.from_numpy(np.log1p(passed_T)).float()
            self.expects_RC3[number] = torch.from_numpy(around[own.variant].expects_C3).float()
            true = table.truth_TC[start - 1] if start else np.array(procedure.variant(own.variant).initial) % 3
            self.begin_RC[number] = torch.from_numpy(true)
            if start:
                self.after_R[number - 1] = number

    def forget(self) -> None:
        """What was thought is another network's business."""
        self.thought_R: dict[int, tuple[Tensor, Tensor]] = {}  # hidden states and what was read from them

    def loss(self, weights: dict[str, Tensor], chosen_B: Tensor, generator: torch.Generator) -> Tensor:
        """The mean over predictions and components of -log of what is thought of the truth."""
        state_BC, rows = self.begin_RC[chosen_B], chosen_B.tolist()
        start_BCH, certain_BC3 = weights["start_3H"][state_BC], torch.eye(3)[state_BC]
        thought = [self.thought_R.get(row) for row in rows]
        hidden_BCH = torch.stack([start_BCH[b] if own is None else own[0] for b, own in enumerate(thought)])
        marginal_BC3 = torch.stack([certain_BC3[b] if own is None else own[1] for b, own in enumerate(thought)])
        feature_BTCF = drop_networks(self.feature_RTCF[chosen_B], generator)
        n_batch, n_steps, n = self.truth_RTC[chosen_B].shape
        seen_BTCI = with_component(feature_BTCF, torch.eye(n).expand(n_batch, n_steps, -1, -1))
        expects_BC3, marginals = self.expects_RC3[chosen_B], []
        for step in range(n_steps):
            ago_BC1 = self.ago_RT[chosen_B, step][:, None, None].expand(-1, n, 1)
            context = context_of(self.around, marginal_BC3, expects_BC3, ago_BC1)
            hidden_BCH = recurrent_step(weights, concatenate([seen_BTCI[:, step], context], axis=-1), hidden_BCH)
            marginal_BC3 = read_out(weights, hidden_BCH)
            marginals.append(marginal_BC3)
        for b, after in enumerate(self.after_R[chosen_B].tolist()):
            if after >= 0:
                self.thought_R[after] = hidden_BCH[b].detach(), marginal_BC3[b].detach()
        true_BTC = torch.stack(marginals, dim=1).gather(-1, self.truth_RTC[chosen_B][..., None])[..., 0]
        loss_BT = -true_BTC.clamp(min=_LEAST_PROBABILITY).log().mean(dim=-1)
        counts_BT = self.counts_RT[chosen_B]
        return (loss_BT * counts_BT).sum() / counts_BT.sum()
