"""How large a network is, and how much it computes.

The stages of the stream with their shapes, parameters and multiply-adds.

Shape legend: B, N, S, D, C stand for clips, frames of a clip, pixels of a side, dimensions and components.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from stormpsr.config import Config
from stormpsr.models.stream import build_stream


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


@dataclass(frozen=True, slots=True)
class StageSize:
    """One stage of the stream."""

    name: str
    what: str
    shape_in: tuple[int, ...]  # of one frame or one clip
    shape_out: tuple[int, ...]
    parameters: int
    multiply_adds: int  # for one frame or one clip
    per: str  # frame or clip
    in_use: bool = True  # False: for training only


def stage_sizes(config: Config, n_components: int) -> list[StageSize]:
    """Locator, backbone, projection head and temporal model, measured on shapes: nothing is loaded or computed."""
    with torch.device("meta"):
        stream = build_stream(config, n_components, weights="none")
    size, dim, n = config.encoder.image_size, config.encoder.embedding_dim, config.clips.n_window
    encoder = stream.encoder
    seen = config.encoder.crop_size or size
    whole, image = torch.zeros(1, size, size, 3, device="meta"), torch.zeros(1, 3, seen, seen, device="meta")
    h_BD = torch.zeros(1, dim, device="meta")
    clip_BND = torch.zeros(1, n, dim, device="meta")
    mask_BN = torch.ones(1, n, dtype=torch.bool, device="meta")

    def stage(
        name: str,
        what: str,
        module: nn.Module,
        inputs: tuple[Tensor, ...],
        shape_out: tuple[int, ...],
        per: str,
        in_use: bool = True,
    ) -> StageSize:
        run: Callable[[nn.Module], Tensor] = lambda shapes: shapes(*inputs)  # noqa: E731
        counts = count_parameters(module), count_multiply_adds(module, run)
        return StageSize(name, what, tuple(inputs[0].shape[1:]), shape_out, *counts, per, in_use)

    kind = config.temporal.kind
    locator = encoder.locator
    return [
        *([] if locator is None else [stage("locator", "finds the assembly", locator, (whole,), (4,), "frame")]),
        stage("backbone", config.encoder.backbone, encoder.backbone, (image,), (dim,), "frame"),
        stage("projection 1", "first layer of g", encoder.first_projection, (h_BD,), (dim,), "frame"),
        stage("projection 2, 3", "rest of g, for training only", encoder.projection, (h_BD,), (dim,), "frame", False),
        stage("temporal", kind, stream.temporal, (clip_BND, mask_BN), (n_components,), "clip"),
    ]
