"""How large a network is, and how much it computes."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["count_multiply_adds", "count_parameters"]


def count_parameters(module: nn.Module) -> int:
    """Numbers that were learnt, in this training or in one before."""
    return sum(parameter.numel() for parameter in module.parameters())


def count_multiply_adds(module: nn.Module, run: Callable[[nn.Module], Tensor]) -> int:
    """Multiply-adds of matrix products, convolutions and attention in one call of `run(module)`.

    Counted without computing: the module's copy holds shapes and no numbers, and `run` must make its inputs with
    `device="meta"`. On a real device some fused operators would go uncounted.
    """
    shapes_only = copy.deepcopy(module).to("meta").eval().requires_grad_(False)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        run(shapes_only)
    return int(counter.get_total_flops()) // 2  # the counter takes a multiplication and an addition for two
