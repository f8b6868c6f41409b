# mypy: disallow-subclassing-any=False
"""A small network that says where in a picture the assembly is, and the crop of the picture around it.

The assembly often fills a third of a first-person picture, and its smallest parts are a few pixels wide. A network that
spends all its pixels on the assembly sees more of it, and need not learn to find it.

Shape legend: B pictures, H height, W width, 3 colours, K cells of a grid, 4 corners (left, top, right, bottom as shares
of the picture).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Locator", "crop", "overlap"]

_LOOK = 80  # pixels of a side that the locator sees: enough to find a thing, too few to read it
_GRID = _LOOK // 8
_REACH = 0.15  # how far from the middle of its cell the assembly's middle may lie
_WIDEN = 1.2  # what surrounds the assembly tells whether a hand covers it
_LEAST_SIDE = 0.2  # of a crop, as a share of the picture


class Locator(nn.Module):
    """Which cell holds the middle of the assembly, where in it, and how large the assembly is."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(
            _convolution(3, 16, 2), _convolution(16, 32, 2), _Residual(32), _convolution(32, 64, 2), _Residual(64)
        )
        self.coarse = nn.Sequential(_convolution(64, 128, 2), _Residual(128), _Residual(128))
        self.back = nn.Conv2d(128, 64, 1)
        self.out = nn.Conv2d(64, 5, 1)
        line = (torch.arange(_GRID) + 0.5) / _GRID
        y, x = torch.meshgrid(line, line, indexing="ij")
        self.register_buffer("middle_K2", torch.stack([x, y], dim=-1).reshape(-1, 2), persistent=False)

    def forward(self, image_BHW3: Tensor) -> tuple[Tensor, Tensor]:
        """A logit per cell, (B, K), and the box that each cell proposes, (B, K, 4)."""
        picture = image_BHW3.permute(0, 3, 1, 2).to(self.out.weight.dtype)
        if picture.shape[-2:] != (_LOOK, _LOOK):
            picture = functional.interpolate(picture, size=(_LOOK, _LOOK), mode="area")
        fine = self.fine((picture / 255 - 0.5) * 4)
        coarse = functional.interpolate(self.back(self.coarse(fine)), scale_factor=2.0)
        said = self.out(functional.relu(fine + coarse)).flatten(2)
        place_BK4 = said[:, 1:].transpose(1, 2)
        middle_BK2 = self.middle_K2 + _REACH * torch.tanh(place_BK4[..., :2])
        half_BK2 = torch.sigmoid(place_BK4[..., 2:]) / 2
        return said[:, 0], torch.cat([middle_BK2 - half_BK2, middle_BK2 + half_BK2], dim=-1)

    def locate(self, image_BHW3: Tensor) -> Tensor:
        """The box that the surest cell proposes, (B, 4)."""
        logits_BK, corners_BK4 = self(image_BHW3)
        return corners_BK4[torch.arange(len(logits_BK), device=logits_BK.device), logits_BK.argmax(dim=1)]

    def loss(self, image_BHW3: Tensor, corners_B4: Tensor) -> Tensor:
        """Cross entropy over the cells, and how far the right cell's box is off."""
        logits_BK, proposed_BK4 = self(image_BHW3)
        cell_B2 = ((corners_B4[:, :2] + corners_B4[:, 2:]) / 2 * _GRID).long().clamp(0, _GRID - 1)
        cell_B = cell_B2[:, 1] * _GRID + cell_B2[:, 0]
        rows = torch.arange(len(cell_B), device=cell_B.device)
        off = (proposed_BK4[rows, cell_B] - corners_B4).abs().mean()
        return functional.cross_entropy(logits_BK, cell_B) + 20 * off


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = _convolution(width, width, 1)
        self.second = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))

    def forward(self, features: Tensor) -> Tensor:
        return functional.relu(features + self.second(self.first(features)))


def _convolution(width_in: int, width_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(width_in, width_out, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width_out), nn.ReLU(True)
    )


def crop(image_BHW3: Tensor, corners_B4: Tensor, size: int) -> Tensor:
    """Square pictures of the surroundings of boxes, (B, size, size, 3), with black beyond the picture's border."""
    centre_B2 = (corners_B4[:, :2] + corners_B4[:, 2:]) / 2
    side_B = (corners_B4[:, 2:] - corners_B4[:, :2]).amax(dim=1) * _WIDEN
    half_B = side_B.clamp(min=_LEAST_SIDE) / 2
    line = (torch.arange(size, device=image_BHW3.device) + 0.5) / size * 2 - 1
    y, x = torch.meshgrid(line, line, indexing="ij")
    place_BSS2 = centre_B2[:, None, None] + torch.stack([x, y], dim=-1) * half_B[:, None, None, None]
    picture = image_BHW3.permute(0, 3, 1, 2).to(corners_B4.dtype)
    return functional.grid_sample(picture, place_BSS2 * 2 - 1, align_corners=False).permute(0, 2, 3, 1)


def overlap(a_B4: Tensor, b_B4: Tensor) -> Tensor:
    """Intersection over union of boxes pairwise."""
    inside = torch.minimum(a_B4[:, 2:], b_B4[:, 2:]) - torch.maximum(a_B4[:, :2], b_B4[:, :2])
    both = inside.clamp(min=0).prod(dim=1)
    areas = ((corners[:, 2:] - corners[:, :2]).prod(dim=1) for corners in (a_B4, b_B4))
    return both / (sum(areas) - both).clamp(min=1e-9)
