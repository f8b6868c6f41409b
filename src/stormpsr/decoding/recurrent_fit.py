"""Learns the recurrent method's weights: what it thinks of every component shall be true, in every prediction.

Recordings are cut into chunks, as for the procedure filter; a chunk begins with what was thought when the one before it
was last seen. Until then it begins with the truth, which teaches what to think where somebody has said what is true.

Members learn side by side, which takes little longer than one alone: most of the time goes into many small sums.

Shape legend: as in `recurrent`; R chunks, B chunks of a batch, T predictions of a chunk.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from stormpsr.decoding.decisions import Floats
from stormpsr.decoding.predictions import LabelledRecording, OnSteps
from stormpsr.decoding.procedure_filter import FEATURES, with_component
from stormpsr.decoding.procedure_filter_fit import CHUNK, CHUNKS_AT_ONCE, Table, drop_networks, one_thread
from stormpsr.decoding.recurrent import (
    N_CONTEXT,
    N_MEMBERS,
    SHAPES,
    Surroundings,
    context_of,
    next_hidden,
    read_out,
    shape_of,
)
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

_STEPS, _LEARNING_RATE, _WEIGHT_DECAY = 700, 0.01, 0.02
_LEAST_PROBABILITY = 1e-4
_MOST_AT_ONCE = 64  # components of all members that learn side by side: they take memory


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
    at_once = max(_MOST_AT_ONCE // procedure.n_components, 1)
    groups = [range(members)[start : start + at_once] for start in range(0, members, at_once)]
    fitted: list[dict[str, Floats]] = []
    for number, group in enumerate(groups):

        def tell(done: int, of: int, before: int = number * steps) -> None:
            if on_progress:
                on_progress(before + done, len(groups) * of)

        generators = [torch.Generator().manual_seed(seed + member) for member in group]
        fitted.append(_fit_together(chunks, procedure, steps, generators, tell))
    return {name: np.concatenate([weights[name] for weights in fitted]) for name in SHAPES}


def _fit_together(
    chunks: _Chunks, procedure: Procedure, steps: int, generators: Sequence[torch.Generator], on_progress: OnSteps
) -> dict[str, Floats]:
    """The weights of members that learn side by side, each by its own random numbers, as if it were alone."""
    chunks.forget(len(generators))
    drawn = [{name: _draw(shape_of(name, procedure.n_components), own) for name in SHAPES} for own in generators]
    weights = {name: torch.stack([own[name] for own in drawn]).requires_grad_() for name in SHAPES}
    decayed = [own for own in weights.values() if own.ndim > 2]
    others = [own for own in weights.values() if own.ndim == 2]
    groups = [{"params": decayed, "weight_decay": _WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _LEARNING_RATE, total_steps=steps, pct_start=0.2)
    for step in range(steps):
        optimiser.zero_grad()
        chunks.loss_M(weights, generators).sum().backward()
        _clip(list(weights.values()))
        optimiser.step()
        schedule.step()
        on_progress(step + 1, steps)
    learned = {name: own.detach().double().numpy() for name, own in weights.items()}
    if not all(np.isfinite(own).all() for own in learned.values()):
        raise InputError("fitting the recurrent method diverged", cure="look for recordings with wrong labels")
    return learned


def _clip(weights: Sequence[Tensor]) -> None:
    """Shorten each member's gradient to a length of 1 at most."""
    gradients = [own.grad for own in weights if own.grad is not None]
    length_M = torch.stack([own.flatten(1).norm(dim=1) for own in gradients]).norm(dim=0)
    share_M = (1.0 / (length_M + 1e-6)).clamp(max=1.0)
    for own in gradients:
        own *= share_M.reshape(-1, *[1] * (own.ndim - 1))


def _draw(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    scale = shape[0] ** -0.5 if len(shape) > 1 else 0.0
    return torch.randn(shape, generator=generator) * scale


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

    def forget(self, members: int) -> None:
        """What was thought is another network's business."""
        # of each member and chunk: hidden states, and what was read from them
        self.thought: list[dict[int, tuple[Tensor, Tensor]]] = [{} for _ in range(members)]

    def loss_M(self, weights: dict[str, Tensor], generators: Sequence[torch.Generator]) -> Tensor:
        """Each member's mean over predictions and components of -log of what it thinks of the truth.

        Every member has a batch of chunks of its own.
        """
        n_chunks, n_steps, n = self.truth_RTC.shape
        drawn = [torch.randperm(n_chunks, generator=own)[:CHUNKS_AT_ONCE] for own in generators]
        chosen_MB = torch.stack(drawn)
        rows = [
            drop_networks(self.feature_RTCF[own], generator) for own, generator in zip(drawn, generators, strict=True)
        ]
        feature_MTBCF = torch.stack(rows).transpose(1, 2)
        seen_MTBCI = with_component(feature_MTBCF, torch.eye(n).expand(*feature_MTBCF.shape[:3], -1, -1))
        # what is added to every component stands beside the member's components of all chunks, which are one axis here
        wide = {name: own[:, None] if own.ndim == 2 else own for name, own in weights.items()}
        of_seen_MIX, of_context_MIX = wide["input_IX"].split([seen_MTBCI.shape[-1], N_CONTEXT], dim=1)
        from_seen = (seen_MTBCI.flatten(1, 3) @ of_seen_MIX + wide["bias_X"]).unflatten(1, (n_steps, -1)).unbind(1)
        hidden_MBCH, marginal_MBC3 = self._begin(weights["start_3H"], chosen_MB)
        hidden, expects_MBC3, marginals = hidden_MBCH.flatten(1, 2), self.expects_RC3[chosen_MB], []
        for step in range(n_steps):
            ago_MBC1 = self.ago_RT[chosen_MB, step][..., None, None].expand(-1, -1, n, 1)
            context_MBCI = context_of(self.around, marginal_MBC3, expects_MBC3, ago_MBC1)
            hidden = next_hidden(wide, from_seen[step] + context_MBCI.flatten(1, 2) @ of_context_MIX, hidden)
            marginal_MBC3 = read_out(wide, hidden).unflatten(1, (-1, n))
            marginals.append(marginal_MBC3)
        hidden_MBCH = hidden.detach().unflatten(1, (-1, n))
        for member, chosen_B in enumerate(drawn):
            for b, after in enumerate(self.after_R[chosen_B].tolist()):
                if after >= 0:
                    self.thought[member][after] = hidden_MBCH[member, b], marginal_MBC3[member, b].detach()
        true_MBTC = torch.stack(marginals, dim=2).gather(-1, self.truth_RTC[chosen_MB][..., None])[..., 0]
        loss_MBT = -true_MBTC.clamp(min=_LEAST_PROBABILITY).log().mean(dim=-1)
        counts_MBT = self.counts_RT[chosen_MB]
        return (loss_MBT * counts_MBT).sum(dim=(1, 2)) / counts_MBT.sum(dim=(1, 2))

    def _begin(self, start_M3H: Tensor, chosen_MB: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states with which chunks begin, and what was thought then: before it, or the truth."""
        hidden, marginal = [], []
        for start_3H, chosen_B, thought in zip(start_M3H, chosen_MB, self.thought, strict=True):
            state_BC = self.begin_RC[chosen_B]
            true_BCH, certain_BC3 = start_3H[state_BC], torch.eye(3)[state_BC]
            known = [thought.get(row, (true_BCH[b], certain_BC3[b])) for b, row in enumerate(chosen_B.tolist())]
            hidden.append(torch.stack([own for own, _ in known]))
            marginal.append(torch.stack([own for _, own in known]))
        return torch.stack(hidden), torch.stack(marginal)
