# mypy: disallow-subclassing-any=False
"""A convolutional network whose features are read by learned queries, instead of being averaged.

A part of an assembly can be a few pixels in a large image. The average over all places hides it; a query that looks
for it finds it wherever it is. Features at strides 8 and 16 are merged: small parts still have a place of their own at
8, and 16 knows what is around them. The network is cut off there, which saves the computation of its later layers.

Shape legend: B images, H height, W width, 3 colours, D of a token, T tokens, Q queries, E of the embedding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stormpsr.errors import InputError
from stormpsr.models.backbones import create_backbone

_STRIDES = (8, 16)
_LOOKS = 2


class ReadByQueries(nn.Module):
    """Takes a network of timm apart; its learned queries become what they found, (B, Q, D)."""

    def __init__(
        self,
        *,
        backbone: str,
        weights: str,
        image_size: int,
        n_queries: int,
        frozen_stride: int,
        width: int = 96,
        heads: int = 4,
    ) -> None:
        super().__init__()
        if image_size < 32 or image_size % 16:
            raise InputError(f"queries cannot read {image_size} pixels", cure="choose a multiple of 16, 32 or more")
        network = create_backbone(backbone, image_size=image_size, out_dim=1, weights=weights)
        self.pretrained_cfg: dict[str, Any] = network.pretrained_cfg
        reductions = [info["reduction"] for info in getattr(network, "feature_info", [])]
        if not hasattr(network, "forward_intermediates") or not set(_STRIDES) <= set(reductions):
            cure = "choose a convolutional one, for example tf_efficientnet_lite0 or resnet18"
            raise InputError(f"network {backbone!r} has no features at strides 8 and 16", cure=cure)
        self._indices = [max(i for i, reduction in enumerate(reductions) if reduction == s) for s in _STRIDES]
        network.prune_intermediate_layers(self._indices, prune_norm=True, prune_head=True)
        self.network = network
        self._frozen = freeze_up_to(network, frozen_stride)
        channels = [network.feature_info[i]["num_chs"] for i in self._indices]
        self.lateral = nn.ModuleList([nn.Conv2d(before, width, 1) for before in channels])
        self.merge = _depthwise_block(width)
        self.position_TD = nn.Parameter(torch.randn((image_size // _STRIDES[0]) ** 2, width) * 0.02)
        self.query_QD = nn.Parameter(torch.randn(n_queries, width) * 0.2)
        self.look = nn.ModuleList([_Look(width, heads) for _ in range(_LOOKS)])

    def train(self, mode: bool = True) -> ReadByQueries:
        """Frozen layers keep their running statistics, too."""
        super().train(mode)
        for layer in self._frozen:
            layer.eval()
        return self

    def forward(self, pixels_B3HW: Tensor) -> Tensor:
        pixels_B3HW = pixels_B3HW.contiguous(memory_format=torch.channels_last)
        maps = self.network.forward_intermediates(pixels_B3HW, indices=self._indices, intermediates_only=True)
        fine, coarse = (layer(level) for layer, level in zip(self.lateral, maps, strict=True))
        tokens = self.merge(fine + functional.interpolate(coarse, scale_factor=2.0, mode="nearest"))
        tokens_BTD = tokens.flatten(2).transpose(1, 2) + self.position_TD
        found_BQD = self.query_QD.expand(len(tokens_BTD), -1, -1)
        for look in self.look:
            found_BQD = look(found_BQD, tokens_BTD)
        return found_BQD


class EmbedByQueries(nn.Module):
    """What the queries found, as one embedding, (B, E): the encoder's backbone."""

    def __init__(self, reader: ReadByQueries, out_dim: int) -> None:
        super().__init__()
        self.pretrained_cfg = reader.pretrained_cfg
        self.reader = reader
        self.last = nn.Linear(reader.query_QD.numel(), out_dim)

    def forward(self, pixels_B3HW: Tensor) -> Tensor:
        return self.last(self.reader(pixels_B3HW).flatten(1))


class _Look(nn.Module):
    """Queries look at the tokens, then think."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_queries, self.norm_tokens, self.norm_thought = (nn.LayerNorm(width) for _ in range(3))
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.think = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, found_BQD: Tensor, tokens_BTD: Tensor) -> Tensor:
        tokens_BTD = self.norm_tokens(tokens_BTD)
        seen_BQD, _ = self.attention(self.norm_queries(found_BQD), tokens_BTD, tokens_BTD, need_weights=False)
        found_BQD = found_BQD + seen_BQD
        return found_BQD + self.think(self.norm_thought(found_BQD))


def _depthwise_block(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
        nn.Conv2d(width, width, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    )


def freeze_up_to(network: nn.Module, stride: int) -> list[nn.Module]:
    """Tell the layers up to a stride not to learn; they are returned, for whoever keeps them in evaluation mode.

    Early layers of a network that was trained on many images are good as they are, and training is faster by half
    without them. A stride of 0 freezes nothing.
    """
    ends = [info["module"] for info in network.feature_info if info["reduction"] == stride]
    if not ends:
        return []
    names = [name for name, _ in network.named_modules()]
    last = max(k for k, name in enumerate(names) if name == ends[-1] or name.startswith(f"{ends[-1]}."))
    early = [layer for _, layer in list(network.named_modules())[: last + 1]]
    own = [layer for layer in early if next(layer.parameters(recurse=False), None) is not None]
    return [layer.requires_grad_(False).eval() for layer in own]
