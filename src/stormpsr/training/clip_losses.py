"""What the temporal model is taught by clips: what changed, and what is true of frames and windows.

Shape legend: B clips, N frames of a clip, D dimensions, C components, X frames that exist, 3 states of a component.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from stormpsr.config import TemporalTrainingConfig
from stormpsr.models.temporal import AveragedModel

__all__ = ["change_loss", "clip_loss", "disturbed_loss", "states_at_ends"]


def change_loss(logit_BC: Tensor, label_BC: Tensor) -> Tensor:
    """Binary cross entropy, summed over the components and averaged over the clips, as in the paper's equation."""
    return functional.binary_cross_entropy_with_logits(logit_BC, label_BC, reduction="sum") / len(logit_BC)


def clip_loss(
    temporal: nn.Module,
    clip_BND: Tensor,
    mask_BN: Tensor,
    label_BC: Tensor,
    state_BNC: Tensor,
    ends_BC2: Tensor,
    state_weight: float,
) -> Tensor:
    """The loss of changes, and that of states of frames and windows, where it has a weight and the model reads them."""
    if not state_weight:
        return change_loss(temporal(clip_BND, mask_BN), label_BC)
    logit_BC, read_BNC3, ends_BC23 = temporal.with_states(clip_BND, mask_BN)
    class_XC = state_BNC[mask_BN].long() % 3  # absent, correct, wrong
    surprise = functional.cross_entropy(read_BNC3[mask_BN].flatten(0, 1), class_XC.flatten())
    surprise = surprise + 2 * functional.cross_entropy(ends_BC23.flatten(0, 2), ends_BC2.flatten())
    return change_loss(logit_BC, label_BC) + state_weight * label_BC.shape[1] * surprise


def states_at_ends(state_BNC: Tensor, mask_BN: Tensor) -> Tensor:
    """What is true at a clip's first frame that exists, and at its last: 0 absent, 1 correct, 2 wrong; (B, C, 2)."""
    first_BC = state_BNC[torch.arange(len(mask_BN), device=mask_BN.device), mask_BN.int().argmax(dim=1)]
    return torch.stack([first_BC, state_BNC[:, -1]], dim=-1).long() % 3


def _disturb(
    embedding_BND: Tensor, mask_BN: Tensor, *, noise: float, frame_drop: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Noise on the embeddings, and some frames hidden, but never the last: that is the news."""
    if noise:
        drawn = torch.randn(embedding_BND.shape, generator=generator).to(embedding_BND.device)
        embedding_BND = embedding_BND + noise * embedding_BND.detach().std() * drawn
    if frame_drop:
        kept_BN = torch.rand(mask_BN.shape, generator=generator) >= frame_drop
        kept_BN[:, -1] = True
        mask_BN = mask_BN & kept_BN.to(mask_BN.device)
    return embedding_BND, mask_BN


def disturbed_loss(
    temporal: nn.Module,
    clip_BND: Tensor,
    mask_BN: Tensor,
    label_BC: Tensor,
    state_BNC: Tensor,
    stage: TemporalTrainingConfig,
    generator: torch.Generator,
) -> Tensor:
    """The loss of clips with noise; the mean over models that are trained side by side, each with noise of its own."""
    ends_BC2 = states_at_ends(state_BNC, mask_BN)
    members = temporal.members if isinstance(temporal, AveragedModel) else [temporal]
    losses = []
    for member in members:
        noisy_BND, kept_BN = _disturb(
            clip_BND, mask_BN, noise=stage.embedding_noise, frame_drop=stage.frame_drop, generator=generator
        )
        weight = stage.frame_state_weight
        losses.append(clip_loss(member, noisy_BND, kept_BN, label_BC, state_BNC, ends_BC2, weight))
    return torch.stack(losses).mean()
