# mypy: disallow-subclassing-any=False
"""A small network that says where in an image the assembly is, and the crop of the image around it.

The assembly often fills a third of a first-person image, and its smallest parts are a few pixels wide. A network that
spends all its pixels on the assembly sees more of it, and need not learn to find it. The detector and the spatial
encoder both see such crops.

Shape legend: B images, H height, W width, 3 colours, K cells of a grid, R rows of images with a box, 4 corners
(left, top, right, bottom as shares of the image).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

_INPUT_SIZE = 80  # pixels of a side that the locator sees: enough to find a thing, too few to read it
_CELLS = 20  # of a side
_WIDEN = 1.25  # what surrounds the assembly tells whether a hand covers it
_LEAST_SIDE = 0.05  # of a box, as a share of the image
_GREY = 127.5  # beyond the image's border


class Locator(nn.Module):
    """Which cell holds the middle of the assembly, and how far the sides of its box are from there."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(_block(3, 24, stride=2), _block(24, 48, stride=2))
        self.coarse = nn.Sequential(_block(48, 96, stride=2), _block(96, 96), _block(96, 96), _block(96, 48))
        self.where = nn.Sequential(_block(48, 48), nn.Conv2d(48, 5, 1))
        with torch.no_grad():
            self.where[-1].bias[1:] = 1.5  # boxes start about a third of an image wide
        line = (torch.arange(_CELLS) + 0.5) / _CELLS
        y, x = torch.meshgrid(line, line, indexing="ij")
        self.register_buffer("middle_K4", torch.stack([x, y, x, y], dim=-1).reshape(-1, 4), persistent=False)
        self.register_buffer("sign_4", torch.tensor([-1.0, -1.0, 1.0, 1.0]), persistent=False)

    def forward(self, image_BHW3: Tensor) -> tuple[Tensor, Tensor]:
        """A logit per cell, (B, K), and the box that each cell proposes, (B, K, 4). Images go from 0 to 255."""
        image = image_BHW3.permute(0, 3, 1, 2).to(self.sign_4.dtype)
        if image.shape[-2:] != (_INPUT_SIZE, _INPUT_SIZE):
            image = functional.interpolate(image, size=(_INPUT_SIZE, _INPUT_SIZE), mode="area")
        image = (image - _GREY) / _GREY  # of the small copy: the whole image would take twice as long
        fine = self.fine(image.contiguous(memory_format=torch.channels_last))
        around = functional.interpolate(self.coarse(fine), scale_factor=2.0, mode="nearest")
        output = self.where(fine + around)
        distance_BK4 = functional.softplus(output[:, 1:]).flatten(2).transpose(1, 2) * (2 / _CELLS)
        return output[:, 0].flatten(1), self.middle_K4 + self.sign_4 * distance_BK4

    def locate(self, image_BHW3: Tensor) -> Tensor:
        """The box that the surest cell proposes, (B, 4)."""
        return best_box(*self(image_BHW3))

    def loss(self, image_BHW3: Tensor, corners_B4: Tensor) -> Tensor:
        """The cross entropy of the right cells, and how far off the boxes of these and their neighbours are."""
        logits_BK, proposed_BK4 = self(image_BHW3)
        where, box = box_losses(logits_BK, proposed_BK4, corners_B4)
        return where + box


def best_box(logits_BK: Tensor, corners_BK4: Tensor) -> Tensor:
    """What the surest cell proposes, (B, 4)."""
    return corners_BK4[torch.arange(logits_BK.shape[0], device=logits_BK.device), logits_BK.argmax(dim=1)]


def box_losses(logits_RK: Tensor, proposed_RK4: Tensor, corners_R4: Tensor) -> tuple[Tensor, Tensor]:
    """Of the cells, and of the boxes."""
    cell_R2 = ((corners_R4[:, :2] + corners_R4[:, 2:]) / 2 * _CELLS).long().clamp(0, _CELLS - 1)
    cell_R = cell_R2[:, 1] * _CELLS + cell_R2[:, 0]
    near_R9 = _around(cell_R)
    rows_R1 = torch.arange(len(cell_R), device=cell_R.device)[:, None]
    near_R94 = proposed_RK4[rows_R1, near_R9]
    overlap_X = generalized_box_iou(near_R94.flatten(0, 1), corners_R4.repeat_interleave(near_R9.shape[1], dim=0))
    return functional.cross_entropy(logits_RK, cell_R, label_smoothing=0.05), 2.0 * (1 - overlap_X).mean()


# ---------------------------------------------------------------------- the crop
@dataclass(frozen=True, eq=False)
class Motion:
    """By how much each crop is changed, for training."""

    angle_B: Tensor  # radians
    scale_B: Tensor  # of what it shows: above 1, more
    shift_B2: Tensor  # in halves of its side


def crop(image_BHW3: Tensor, corners_B4: Tensor, size: int, motion: Motion | None = None) -> Tensor:
    """Square images of the surroundings of boxes, (B, size, size, 3) from 0 to 255, grey beyond the border."""
    to_unit_B23 = _crop_frame(corners_B4, motion) * 2  # the grid goes from -1 to 1
    to_unit_B23[:, :, 2] -= 1
    n = corners_B4.shape[0]  # len() would be fixed in an exported graph
    grid = functional.affine_grid(to_unit_B23, [n, 3, size, size], align_corners=False)
    image = image_BHW3.permute(0, 3, 1, 2).to(corners_B4.dtype) - _GREY
    return functional.grid_sample(image, grid, align_corners=False).permute(0, 2, 3, 1) + _GREY


def points_in_crop(point_BN2: Tensor, corners_B4: Tensor, motion: Motion | None = None) -> Tensor:
    """Where points of the image (shares of it) are in the crop around boxes, which reaches from -1 to 1."""
    to_image_B23 = _crop_frame(corners_B4, motion)
    from_centre_BN2 = point_BN2 - to_image_B23[:, None, :, 2]
    return torch.linalg.solve(to_image_B23[:, None, :, :2], from_centre_BN2[..., None])[..., 0]


def _crop_frame(corners_B4: Tensor, motion: Motion | None) -> Tensor:
    """From places in the crop, -1 to 1, to those in the image as shares of it, (B, 2, 3)."""
    centre_B2 = (corners_B4[:, :2] + corners_B4[:, 2:]) / 2
    half_B = (corners_B4[:, 2:] - corners_B4[:, :2]).amax(dim=1).clamp(min=_LEAST_SIDE) / 2 * _WIDEN
    angle_B = torch.zeros_like(half_B)
    if motion is not None:
        centre_B2 = centre_B2 + motion.shift_B2 * half_B[:, None]
        half_B, angle_B = half_B * motion.scale_B, motion.angle_B
    cos, sin = angle_B.cos() * half_B, angle_B.sin() * half_B
    return torch.stack([cos, -sin, centre_B2[:, 0], sin, cos, centre_B2[:, 1]], dim=1).reshape(-1, 2, 3)


# ---------------------------------------------------------------------- boxes
def box_iou(a_R4: Tensor, b_R4: Tensor) -> Tensor:
    """Intersection over union of boxes pairwise."""
    shared, both = _areas(a_R4, b_R4)
    return shared / both


def generalized_box_iou(a_R4: Tensor, b_R4: Tensor) -> Tensor:
    """The same, but less than 0 where boxes are apart, so that there is something to follow."""
    shared, both = _areas(a_R4, b_R4)
    around = torch.maximum(a_R4[:, 2:], b_R4[:, 2:]) - torch.minimum(a_R4[:, :2], b_R4[:, :2])
    hull = around.prod(dim=1).clamp(min=1e-9)
    return shared / both - (hull - both) / hull


def _areas(a_R4: Tensor, b_R4: Tensor) -> tuple[Tensor, Tensor]:
    """Of what boxes share, and of what they cover together."""
    inside = torch.minimum(a_R4[:, 2:], b_R4[:, 2:]) - torch.maximum(a_R4[:, :2], b_R4[:, :2])
    shared = inside.clamp(min=0).prod(dim=1)
    each = [(corners[:, 2:] - corners[:, :2]).prod(dim=1) for corners in (a_R4, b_R4)]
    return shared, (each[0] + each[1] - shared).clamp(min=1e-9)


def _around(cell_R: Tensor) -> Tensor:
    """The cells next to each cell and itself, (R, 9); at the border some are named twice."""
    y, x = cell_R // _CELLS, cell_R % _CELLS
    offsets = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    last = _CELLS - 1
    return torch.stack([(y + dy).clamp(0, last) * _CELLS + (x + dx).clamp(0, last) for dy, dx in offsets], dim=1)


def _block(before: int, after: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True))
