# mypy: disallow-subclassing-any=False
"""A convolutional network whose features are read by learned queries, instead of being averaged.

A part of an assembly can be a few pixels in a large picture. The average over all places hides it; a query that looks
for it finds it wherever it is. The network is cut off at a stride of 16, where small parts still have a place of
their own; this also saves the computation of the later layers.

Shape legend: B pictures, H height, W width, 3 colours, D of a token, T tokens, Q queries, E of the embedding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from stormpsr.errors import InputError

__all__ = ["ReadByQueries", "freeze_up_to"]

_STRIDE = 16
_WIDTH, _HEADS = 96, 4


class ReadByQueries(nn.Module):
    """Takes a network of timm apart, and gives (B, E) like the network it was made from."""

    def __init__(self, network: nn.Module, *, name: str, out_dim: int, n_queries: int, frozen_stride: int) -> None:
        super().__init__()
        self.pretrained_cfg: dict[str, Any] = network.pretrained_cfg
        reductions = [info["reduction"] for info in getattr(network, "feature_info", [])]
        if not hasattr(network, "forward_intermediates") or _STRIDE not in reductions:
            cure = "choose a convolutional one, or encoder.pool=network"
            raise InputError(f"network {name!r} has no features at stride {_STRIDE} to be read", cure=cure)
        self._index = max(i for i, reduction in enumerate(reductions) if reduction == _STRIDE)
        network.prune_intermediate_layers([self._index], prune_norm=True, prune_head=True)
        self.network = network
        self._frozen = freeze_up_to(network, frozen_stride)
        self.enter = nn.Conv2d(network.feature_info[self._index]["num_chs"], _WIDTH, 1)
        self.query_QD = nn.Parameter(torch.randn(n_queries, _WIDTH) * 0.2)
        self.norm_tokens, self.norm_seen = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.look = nn.MultiheadAttention(_WIDTH, _HEADS, batch_first=True)
        self.think = nn.Sequential(nn.Linear(_WIDTH, 2 * _WIDTH), nn.GELU(), nn.Linear(2 * _WIDTH, _WIDTH))
        self.last = nn.Linear(n_queries * _WIDTH, out_dim)

    def train(self, mode: bool = True) -> ReadByQueries:
        """Frozen layers keep their running statistics, too."""
        super().train(mode)
        for layer in self._frozen:
            layer.eval()
        return self

    def forward(self, pixels_B3HW: Tensor) -> Tensor:
        pixels_B3HW = pixels_B3HW.contiguous(memory_format=torch.channels_last)
        maps = self.network.forward_intermediates(pixels_B3HW, indices=[self._index], intermediates_only=True)
        tokens_BTD = self.norm_tokens(self.enter(maps[0]).flatten(2).transpose(1, 2))
        query_BQD = self.query_QD.expand(len(tokens_BTD), -1, -1)
        seen_BQD = query_BQD + self.look(query_BQD, tokens_BTD, tokens_BTD, need_weights=False)[0]
        seen_BQD = seen_BQD + self.think(self.norm_seen(seen_BQD))
        return self.last(seen_BQD.flatten(1))


def freeze_up_to(network: nn.Module, stride: int) -> list[nn.Module]:
    """Tell the layers up to a stride not to learn; they are returned, for whoever keeps them in evaluation mode.

    Early layers of a network that was trained on many pictures are good as they are, and training is faster by half
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
