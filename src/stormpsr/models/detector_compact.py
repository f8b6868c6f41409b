"""A compact detector for one assembly per image, in two looks.

The first look, at a small copy of the image, says where the assembly is: which cell holds its middle, and how far the
sides of its box are from there. The second look is at a square cut out around that box, in the image's own resolution:
a small backbone gives features, and learned queries, one for each component and two for the whole, ask them: is every
part absent, correct or wrong; which state is it; can the state be read at all.

The second look spends all its pixels on the assembly, which fills a part of the image and whose smallest parts are a
few pixels thick. Asking per component is what tells states apart that differ by a pin.

Shape legend: B images, S pixels of a side, P pixels of a side of the cut-out, K cells, D dimensions, T tokens,
Q queries, C components, N state classes without background, R rows with a state, 4 corners (x0, y0, x1, y1 in pixels).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from stormpsr.errors import InputError
from stormpsr.models.backbones import create_backbone
from stormpsr.models.detector import CORRECT, WRONG
from stormpsr.models.reading import freeze_up_to
from stormpsr.procedure import Procedure, StateKind

__all__ = ["CompactConfig", "CompactNet", "CompactOutput", "Targets"]

_STRIDES = (4, 8, 16)
_WIDEN = 1.25  # what surrounds the box tells whether a hand covers it
_SMALL = 80  # pixels of a side of the first look
_CELLS = 20  # of a side
_WRONG_WEIGHT = 4.0  # in the loss of the read-out: of eleven parts hardly ever more than one is wrong


@dataclass(frozen=True, slots=True)
class CompactConfig:
    """The network's shape."""

    image_size: int = 160  # pixels of a side, a multiple of 32
    crop_size: int = 112  # pixels of a side of the second look, a multiple of 16
    backbone: str = "tf_efficientnet_lite0"  # any timm network with features at strides 4, 8 and 16
    weights: str = "package"  # package, hub, none, or a file: see stormpsr.models.backbones
    frozen_stride: int = 4  # layers of a trained backbone up to this stride stay as they are: faster by half; 0: none
    width: int = 96  # D
    turn_degrees: float = 45.0  # how far cut-outs are turned in training, either way
    heads: int = 4  # of the attention

    def __post_init__(self) -> None:
        if self.image_size < 64 or self.image_size % 32:
            raise InputError(f"image_size is {self.image_size}", cure="choose a multiple of 32, 64 or more")
        if self.width < 8 or self.width % self.heads:
            raise InputError(f"width is {self.width}", cure=f"choose a multiple of heads ({self.heads})")
        if self.frozen_stride not in (0, *_STRIDES):
            raise InputError(f"frozen_stride is {self.frozen_stride}", cure="choose 0, 4, 8 or 16")
        if self.crop_size < 32 or self.crop_size % 16:
            raise InputError(f"crop_size is {self.crop_size}", cure="choose a multiple of 16, 32 or more")


@dataclass(frozen=True, eq=False)
class Targets:
    """What training pictures show; rows where `readable_B` is false mean nothing."""

    readable_B: Tensor  # bool: there is a box, and a state
    checked_B: Tensor  # bool: whether somebody made sure that the state can be read, or cannot
    corners_B4: Tensor
    state_B: Tensor  # index among the network's N classes
    part_BC: Tensor  # ABSENT, CORRECT, WRONG, or -100 if unknown


@dataclass(frozen=True, eq=False)
class CompactOutput:
    """What the network says, before any of it is made a probability."""

    cell_logits_BK: Tensor
    corners_BK4: Tensor
    readable_logit_B: Tensor
    state_logits_BN: Tensor
    culprit_logits_BM: Tensor  # states without error classes, then one class per component that is wrong
    part_logits_BC3: Tensor
    best_corners_B4: Tensor  # the box that was looked into


class CompactNet(nn.Module):  # type: ignore[misc]  # torch is not followed by the type checker
    """The network. Class n of the state head is the n-th class of the procedure that is not background."""

    def __init__(self, config: CompactConfig, procedure: Procedure) -> None:
        super().__init__()
        self.config = config
        self.backbone, channels, self._indices = _features(config)
        self._frozen = freeze_up_to(self.backbone, 0 if config.weights == "none" else config.frozen_stride)
        self.locator = Locator()
        d = config.width
        self.lateral = nn.ModuleList([nn.Conv2d(c, d, 1) for c in channels[1:]])
        self.merge = _depthwise_block(d)
        self.position = nn.Parameter(torch.randn((config.crop_size // 8) ** 2, d) * 0.02)
        n_components = procedure.n_components
        self.queries = nn.Parameter(torch.randn(n_components + 2, d) * 0.2)
        self.look = nn.ModuleList([_Look(d, config.heads) for _ in range(2)])
        shown = [state for state in procedure.states if state.kind is not StateKind.BACKGROUND]
        correct = [state for state in shown if state.bits is not None]
        self.part_head = nn.Linear(d, 3)
        self.part_bias = nn.Parameter(torch.zeros(n_components, 3))
        self.state_head = nn.Linear(d, len(shown))
        self.culprit_head = nn.Linear(d, len(correct) + n_components)
        self.readable_head = nn.Linear(d, 1)
        bits_NC = torch.tensor([state.bits or (0,) * n_components for state in shown])
        has_bits_N = torch.tensor([state.bits is not None for state in shown])
        self.register_buffer("bits_NC", bits_NC, persistent=False)
        self.register_buffer("has_bits_N", has_bits_N, persistent=False)
        settings = self.backbone.pretrained_cfg
        self.register_buffer("mean_3", torch.tensor(settings["mean"], dtype=torch.float32))
        self.register_buffer("std_3", torch.tensor(settings["std"], dtype=torch.float32))

    def train(self, mode: bool = True) -> CompactNet:
        """Frozen layers keep their running statistics, too."""
        super().train(mode)
        for layer in self._frozen:
            layer.eval()
        return self

    # ------------------------------------------------------------------ forward
    def forward(self, image_BSS3: Tensor, truth: Targets | None = None) -> CompactOutput:
        """Look at pictures. With targets, wrongly placed boxes are replaced by true ones before the second look."""
        scaled = (image_BSS3.to(self.mean_3.dtype) / 255.0 - self.mean_3) / self.std_3
        pixels = scaled.permute(0, 3, 1, 2)
        cell_logits_BK, corners_BK4 = self._locate(pixels)
        best_B = cell_logits_BK.argmax(dim=1)
        best_corners_B4 = corners_BK4[torch.arange(len(best_B)), best_B].detach()
        crop = self._cut_out(pixels, best_corners_B4, truth)
        maps = self.backbone.forward_intermediates(crop, indices=self._indices, intermediates_only=True)
        middle, coarse = (layer(level) for layer, level in zip(self.lateral, maps[1:], strict=True))
        tokens = self.merge(middle + functional.interpolate(coarse, scale_factor=2.0, mode="nearest"))
        tokens_BTD = tokens.flatten(2).transpose(1, 2) + self.position
        queries_BQD = self.queries.expand(len(tokens_BTD), -1, -1)
        for layer in self.look:
            queries_BQD = layer(queries_BQD, tokens_BTD)
        part_logits_BC3 = self.part_head(queries_BQD[:, 2:]) + self.part_bias
        return CompactOutput(
            cell_logits_BK=cell_logits_BK,
            corners_BK4=corners_BK4,
            readable_logit_B=self.readable_head(queries_BQD[:, 0])[:, 0],
            state_logits_BN=self.state_head(queries_BQD[:, 1]) + self._evidence_of_parts(part_logits_BC3),
            culprit_logits_BM=self.culprit_head(queries_BQD[:, 1]),
            part_logits_BC3=part_logits_BC3,
            best_corners_B4=best_corners_B4,
        )

    def _locate(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Cell logits, and the box that each cell proposes."""
        small = functional.interpolate(pixels, size=(_SMALL, _SMALL), mode="area")
        where = self.locator(small.contiguous(memory_format=torch.channels_last))
        stride = self.config.image_size / _CELLS
        centres = (torch.arange(_CELLS, device=where.device, dtype=where.dtype) + 0.5) * stride
        y, x = torch.meshgrid(centres, centres, indexing="ij")
        middle_K4 = torch.stack([x, y, x, y], dim=-1).reshape(1, -1, 4)
        signs = torch.tensor([-1.0, -1.0, 1.0, 1.0], device=where.device)
        distances_BK4 = functional.softplus(where[:, 1:]).flatten(2).transpose(1, 2) * stride * 2
        return where[:, 0].flatten(1), middle_K4 + signs * distances_BK4

    def _cut_out(self, pixels: Tensor, corners_B4: Tensor, truth: Targets | None) -> Tensor:
        """A square around each box, (B, 3, P, P). In training it is turned, moved and scaled a little."""
        if truth is not None:
            corners_B4 = _corrected(corners_B4, truth)
        centre_B2 = (corners_B4[:, :2] + corners_B4[:, 2:]) / 2
        half_B = (corners_B4[:, 2:] - corners_B4[:, :2]).amax(dim=1).clamp(min=8.0) / 2 * _WIDEN
        angle_B = torch.zeros_like(half_B)
        if truth is not None:
            n, turn = len(half_B), math.radians(self.config.turn_degrees)
            centre_B2 = centre_B2 + (torch.rand(n, 2) - 0.5) * 0.16 * half_B[:, None]
            half_B = half_B * (0.9 + 0.25 * torch.rand(n))
            angle_B = (torch.rand(n) * 2 - 1) * turn
        cos, sin = angle_B.cos() * half_B, angle_B.sin() * half_B
        to_image_B23 = torch.stack([cos, -sin, centre_B2[:, 0], sin, cos, centre_B2[:, 1]], dim=1).reshape(-1, 2, 3)
        to_unit_B23 = to_image_B23 / self.config.image_size * 2
        to_unit_B23[:, :, 2] -= 1
        side = self.config.crop_size
        grid = functional.affine_grid(to_unit_B23, [len(half_B), 3, side, side], align_corners=False)
        crop = functional.grid_sample(pixels, grid, align_corners=False)
        return crop.contiguous(memory_format=torch.channels_last)

    def _evidence_of_parts(self, part_logits_BC3: Tensor) -> Tensor:
        """How well what was read of each part fits each state: the states' logits if parts were independent."""
        read_BC3 = functional.log_softmax(part_logits_BC3, dim=-1)
        absent, correct = read_BC3[..., 0], read_BC3[..., CORRECT]
        bits_NC = self.bits_NC.to(read_BC3.dtype)
        fit_BN = absent @ (1 - bits_NC).T + correct @ bits_NC.T
        some_wrong_B1 = read_BC3[..., WRONG].max(dim=1, keepdim=True).values
        return torch.where(self.has_bits_N, fit_BN, some_wrong_B1)

    # ------------------------------------------------------------------ loss
    def losses(self, image_BSS3: Tensor, targets: Targets) -> dict[str, Tensor]:
        """The parts of the loss; their sum is minimised."""
        output = self(image_BSS3, targets)
        seen = targets.readable_B
        cell_B = self._cell_of(targets.corners_B4)
        near_R9 = _around(cell_B[seen])
        rows_R1 = torch.arange(len(cell_B))[seen][:, None]
        proposed_R4 = output.corners_BK4[rows_R1, near_R9].flatten(0, 1)
        true_R4 = targets.corners_B4[seen].repeat_interleave(near_R9.shape[1], dim=0)
        state_R = targets.state_B[seen]
        part_RC = targets.part_BC[seen]
        return {
            "where": functional.cross_entropy(output.cell_logits_BK[seen], cell_B[seen], label_smoothing=0.05),
            "box": 2.0 * (1 - _generalised_iou(proposed_R4, true_R4)).mean(),
            "readable": _mean_where(
                functional.binary_cross_entropy_with_logits(output.readable_logit_B, seen.float(), reduction="none"),
                targets.checked_B,
            ),
            "state": functional.cross_entropy(output.state_logits_BN[seen], state_R),
            "culprit": 0.5 * self._culprit_loss(output.culprit_logits_BM[seen], state_R, part_RC),
            "parts": 3.0 * _mean_known(output.part_logits_BC3[seen], part_RC),
        }

    def _cell_of(self, corners_B4: Tensor) -> Tensor:
        middle_B2 = (corners_B4[:, :2] + corners_B4[:, 2:]) / 2
        cell_B2 = (middle_B2 / self.config.image_size * _CELLS).long().clamp(0, _CELLS - 1)
        return cell_B2[:, 1] * _CELLS + cell_B2[:, 0]

    def _culprit_loss(self, logits_RM: Tensor, state_R: Tensor, part_RC: Tensor) -> Tensor:
        """Cross entropy over correct states and wrong components; several wrong ones share the target."""
        n_correct = int(self.has_bits_N.sum())
        place_N = torch.cumsum(self.has_bits_N.long(), 0) - 1  # of each correct state among the correct ones
        is_correct_R = self.has_bits_N[state_R]
        wrong_RC = (part_RC == WRONG).to(logits_RM.dtype)
        target_RM = torch.zeros_like(logits_RM)
        target_RM[:, n_correct:] = wrong_RC / wrong_RC.sum(dim=1, keepdim=True).clamp(min=1)
        target_RM[is_correct_R] = functional.one_hot(place_N[state_R[is_correct_R]], logits_RM.shape[1]).float()
        known_R = target_RM.sum(dim=1) > 0
        if not known_R.any():
            return logits_RM.sum() * 0
        return functional.cross_entropy(logits_RM[known_R], target_RM[known_R])


class Locator(nn.Module):  # type: ignore[misc]
    """The first look: for each cell a logit and four distances, (B, 5, cells, cells)."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(_block(3, 24, stride=2), _block(24, 48, stride=2))
        self.coarse = nn.Sequential(_block(48, 96, stride=2), _block(96, 96), _block(96, 96), _block(96, 48))
        self.where = nn.Sequential(_block(48, 48), nn.Conv2d(48, 5, 1))
        with torch.no_grad():
            self.where[-1].bias[1:] = 1.5  # boxes start about a third of an image wide

    def forward(self, small_B3: Tensor) -> Tensor:
        fine = self.fine(small_B3)
        around = functional.interpolate(self.coarse(fine), scale_factor=2.0, mode="nearest")
        return self.where(fine + around)


class _Look(nn.Module):  # type: ignore[misc]
    """Queries look at the tokens, then think."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.norm_queries, self.norm_tokens, self.norm_thought = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.attention = nn.MultiheadAttention(d, heads, batch_first=True)
        self.think = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, queries_BQD: Tensor, tokens_BTD: Tensor) -> Tensor:
        tokens = self.norm_tokens(tokens_BTD)
        seen, _ = self.attention(self.norm_queries(queries_BQD), tokens, tokens, need_weights=False)
        queries_BQD = queries_BQD + seen
        return queries_BQD + self.think(self.norm_thought(queries_BQD))


def _features(config: CompactConfig) -> tuple[nn.Module, list[int], list[int]]:
    """A backbone cut off after stride 16, the channels of its features, and which blocks give them."""
    backbone = create_backbone(config.backbone, image_size=config.image_size, out_dim=1, weights=config.weights)
    reductions = [info["reduction"] for info in getattr(backbone, "feature_info", [])]
    if not hasattr(backbone, "forward_intermediates") or not set(_STRIDES) <= set(reductions):
        cure = "choose a convolutional one, for example tf_efficientnet_lite0 or resnet18"
        raise InputError(f"network {config.backbone!r} has no features at strides 4, 8 and 16", cure=cure)
    indices = [max(i for i, reduction in enumerate(reductions) if reduction == stride) for stride in _STRIDES]
    backbone.prune_intermediate_layers(indices, prune_norm=True, prune_head=True)
    return backbone, [backbone.feature_info[i]["num_chs"] for i in indices], indices


def _block(before: int, after: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True))


def _around(cell_R: Tensor) -> Tensor:
    """The cells next to each cell and itself, (R, 9); at the border some are named twice."""
    y, x = cell_R // _CELLS, cell_R % _CELLS
    offsets = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    last = _CELLS - 1
    return torch.stack([(y + dy).clamp(0, last) * _CELLS + (x + dx).clamp(0, last) for dy, dx in offsets], dim=1)


def _depthwise_block(d: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(d, d, 3, stride=stride, padding=1, groups=d, bias=False),
        nn.Conv2d(d, d, 1, bias=False),
        nn.BatchNorm2d(d),
        nn.ReLU(inplace=True),
    )


def _corrected(corners_B4: Tensor, truth: Targets) -> Tensor:
    """Predicted boxes, with the true one where a predicted one misses: early in training most of them do."""
    hits_B = _generalised_iou(corners_B4, truth.corners_B4) > 0.4
    return torch.where((truth.readable_B & ~hits_B)[:, None], truth.corners_B4, corners_B4)


def _generalised_iou(a_R4: Tensor, b_R4: Tensor) -> Tensor:
    """Overlap of boxes pairwise, less than 0 where they are apart."""
    low, high = torch.maximum(a_R4[:, :2], b_R4[:, :2]), torch.minimum(a_R4[:, 2:], b_R4[:, 2:])
    overlap = (high - low).clamp(min=0).prod(dim=1)
    both = (a_R4[:, 2:] - a_R4[:, :2]).prod(dim=1) + (b_R4[:, 2:] - b_R4[:, :2]).prod(dim=1) - overlap
    around = torch.maximum(a_R4[:, 2:], b_R4[:, 2:]) - torch.minimum(a_R4[:, :2], b_R4[:, :2])
    hull = around.prod(dim=1).clamp(min=1e-6)
    return overlap / both.clamp(min=1e-6) - (hull - both) / hull


def _mean_where(values_B: Tensor, wanted_B: Tensor) -> Tensor:
    return (values_B * wanted_B).sum() / wanted_B.sum().clamp(min=1)


def _mean_known(logits_RC3: Tensor, part_RC: Tensor) -> Tensor:
    """Cross entropy of the parts whose state is known; zero if none is."""
    if not (part_RC >= 0).any():
        return logits_RC3.sum() * 0
    weight_3 = torch.tensor([1.0, 1.0, _WRONG_WEIGHT], device=logits_RC3.device)
    return functional.cross_entropy(logits_RC3.flatten(0, 1), part_RC.flatten(), weight=weight_3)
