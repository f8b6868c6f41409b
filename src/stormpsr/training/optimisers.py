"""The learning rate over time, and the optimisers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from stormpsr.config import EncoderTrainingConfig, LocatorTrainingConfig, TemporalTrainingConfig

TrainingConfig = LocatorTrainingConfig | EncoderTrainingConfig | TemporalTrainingConfig


def learning_rate_factor(step: int, *, warmup_steps: int, total_steps: int) -> float:
    """Share of the learning rate in a step: rises in a line during the warm-up, then falls along a cosine to 0."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    done = (step - warmup_steps) / max(total_steps - warmup_steps, 1)
    return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def make_optimiser(
    config: TrainingConfig, groups: Iterable[tuple[nn.Module, float]], *, steps_per_epoch: int
) -> dict[str, Any]:
    """Optimiser and schedule, as Lightning wants them, for modules with a learning rate each.

    Biases and norms are not decayed: shrinking them does not make a network simpler.
    """
    parameters: list[dict[str, Any]] = []
    for module, learning_rate in groups:
        trained = [p for p in module.parameters() if p.requires_grad]
        for chosen, decay in (
            ([p for p in trained if p.dim() > 1], config.weight_decay),
            ([p for p in trained if p.dim() <= 1], 0.0),
        ):
            if chosen:
                parameters.append({"params": chosen, "lr": learning_rate, "weight_decay": decay})
    if config.optimiser == "sgd":
        optimiser: Any = torch.optim.SGD(parameters, momentum=config.momentum)
    else:
        optimiser = torch.optim.AdamW(parameters, betas=(config.momentum, 0.999))
    total = max(config.epochs * steps_per_epoch, 1)
    warmup = min(config.warmup_epochs * steps_per_epoch, total)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: learning_rate_factor(step, warmup_steps=warmup, total_steps=total)
    )
    return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
