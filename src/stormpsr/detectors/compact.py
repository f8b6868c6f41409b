"""The default detector: a compact network for one assembly per image, in two stages.

The locator sees a small copy of the image and says where the assembly is: which cell holds its middle, and how far the
sides of its box are from there. The reader sees a square crop around that box, in the image's own resolution: a small
backbone gives features, and learned queries, one for each component and two for the whole, read them by
cross-attention: is every part absent, correct or wrong; which state is it; can the state be read at all.

The crop spends all its pixels on the assembly, which fills a part of the image and whose smallest parts are a few
pixels thick. Asking per component is what tells states apart that differ by a pin.

Shape legend: B images, S pixels of a side, P pixels of a side of the crop, K cells, D dimensions, T tokens, Q queries,
C components, N state classes without background, R rows with a state, 4 corners (x0, y0, x1, y1 in pixels),
L points of a part: where it belongs, then where it is (`stormpsr.data.places`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from stormpsr.data.images import Placement
from stormpsr.data.places import N_POINTS
from stormpsr.detectors.base import UNKNOWN, Batch, Detection, StepTrainedDetector
from stormpsr.errors import InputError
from stormpsr.models.backbones import AttentionPooling
from stormpsr.models.encoder import reader_digest
from stormpsr.models.locator import Locator, Motion, best_box, box_losses, crop, generalized_box_iou, points_in_crop
from stormpsr.procedure.model import CORRECT, WRONG, Procedure, StateKind
from stormpsr.yaml_loader import STRICT_KEYS

WrongParts = Literal["error_class", "component_classes", "readout"]
_WRONG_WEIGHT = 4.0  # in the loss of the read-out: of eleven parts hardly ever more than one is wrong
_PLACE_BETA = 0.03  # of half of the crop's side: where the loss of a place turns from squares into distances
_MOVED_SCALE = 10.0  # of how far a part is from where it belongs, beside other numbers in the network
_MOVED_WIDTH = 32  # of the perceptron that judges that


@dataclass(frozen=True, slots=True)
class CompactConfig:
    """The network's shape."""

    image_size: int = 160  # pixels of a side, a multiple of 32
    crop_size: int = 112  # pixels of a side of the crop that is read, a multiple of 16
    backbone: str = "tf_efficientnet_lite0"  # any timm network with features at strides 8 and 16
    weights: str = "package"  # package, hub, none, or a file: see stormpsr.models.backbones
    frozen_stride: int = 4  # layers of a trained backbone up to this stride stay as they are: faster by half; 0: none
    width: int = 96  # D: channels of the features that are read
    turn_degrees: float = 45.0  # how far crops are turned in training, either way
    heads: int = 4  # of the attention
    wrong_parts: WrongParts = "readout"  # how a state with a wrongly seated part is told from the correct one
    parts_weight: float = 3.0  # of the single parts in the loss, beside state, box and readability, which weigh 1
    hidden_parts: bool = False  # also learn which parts show enough to be told, from recordings with visibility.csv
    places_weight: float = 0.0  # of where parts belong and are, from recordings with places.npz; 0: not learned

    __pydantic_config__ = STRICT_KEYS

    def __post_init__(self) -> None:
        if not self.parts_weight > 0:
            raise InputError(f"parts_weight is {self.parts_weight}", cure="it must be more than 0")
        if not 0 <= self.places_weight < math.inf:
            raise InputError(f"places_weight is {self.places_weight}", cure="it must not be less than 0")
        if self.image_size < 64 or self.image_size % 32:
            raise InputError(f"image_size is {self.image_size}", cure="choose a multiple of 32, 64 or more")
        if self.width < 8 or self.width % self.heads:
            raise InputError(f"width is {self.width}", cure=f"choose a multiple of heads ({self.heads})")
        if self.frozen_stride not in (0, 4, 8, 16):
            raise InputError(f"frozen_stride is {self.frozen_stride}", cure="choose 0, 4, 8 or 16")
        if self.crop_size < 32 or self.crop_size % 16:
            raise InputError(f"crop_size is {self.crop_size}", cure="choose a multiple of 16, 32 or more")


@dataclass(frozen=True, eq=False)
class Targets:
    """What training images show; boxes and states of rows where `readable_B` is false mean nothing."""

    readable_B: Tensor  # bool: there is a box
    checked_B: Tensor  # bool: whether somebody made sure that the state can be read, or cannot
    corners_B4: Tensor
    state_B: Tensor  # index among the network's N classes, -100 if the state has none or hides
    part_BC: Tensor  # ABSENT, CORRECT, WRONG, or -100 if unknown; also known of parts of unreadable images
    told_BC: Tensor  # whether a part shows enough to be told: 0, 1, or -100 if unknown
    places_BCL2: Tensor  # in pixels; nan where nobody knows


@dataclass(frozen=True, eq=False)
class CompactOutput:
    """What was read in the crops, before any of it is made a probability."""

    readable_logit_B: Tensor
    state_logits_BN: Tensor
    culprit_logits_BM: Tensor  # states without error classes, then one class per component that is wrong
    part_logits_BC3: Tensor
    told_logit_BC: Tensor | None  # of each part showing enough to be told, if that is learned
    found_BQD: Tensor  # what the queries found, of which all of this is made
    places_BCL2: Tensor | None  # in the crop, which reaches from -1 to 1, if that is learned


class CompactNet(nn.Module):  # type: ignore[misc]  # torch is not followed by the type checker
    """The network. Class n of the state head is the n-th class of the procedure that is not background."""

    def __init__(self, config: CompactConfig, procedure: Procedure) -> None:
        super().__init__()
        self.config = config
        d, n_components = config.width, procedure.n_components
        self.locator = Locator()
        self.reader = AttentionPooling(
            backbone=config.backbone,
            weights=config.weights,
            image_size=config.crop_size,
            n_queries=2 + n_components,
            frozen_stride=0 if config.weights == "none" else config.frozen_stride,
            width=d,
            heads=config.heads,
        )
        shown = [state for state in procedure.states if state.kind is not StateKind.BACKGROUND]
        correct = [state for state in shown if state.bits is not None]
        self.part_head = nn.Linear(d, 3)
        self.part_bias = nn.Parameter(torch.zeros(n_components, 3))
        self.told_head = nn.Linear(d, 1) if config.hidden_parts else None
        self.places = _Places(d) if config.places_weight else None
        self.state_head = nn.Linear(d, len(shown))
        self.culprit_head = nn.Linear(d, len(correct) + n_components)
        self.readable_head = nn.Linear(d, 1)
        bits_NC = torch.tensor([state.bits or (0,) * n_components for state in shown])
        has_bits_N = torch.tensor([state.bits is not None for state in shown])
        self.register_buffer("bits_NC", bits_NC, persistent=False)
        self.register_buffer("has_bits_N", has_bits_N, persistent=False)
        settings = self.reader.pretrained_cfg
        self.register_buffer("mean_3", torch.tensor(settings["mean"], dtype=torch.float32))
        self.register_buffer("std_3", torch.tensor(settings["std"], dtype=torch.float32))

    # ------------------------------------------------------------------ forward
    def forward(self, image_BSS3: Tensor, shares_B4: Tensor) -> CompactOutput:
        """What is read around the boxes that the locator found."""
        return self.read(self.crop(image_BSS3, shares_B4))

    def read(self, crop_BPP3: Tensor) -> CompactOutput:
        """What crops of the assembly show."""
        scaled_BPP3 = (crop_BPP3 / 255.0 - self.mean_3) / self.std_3
        queries_BQD = self.reader(scaled_BPP3.permute(0, 3, 1, 2))
        part_logits_BC3 = self.part_head(queries_BQD[:, 2:]) + self.part_bias
        places_BCL2 = None
        if self.places is not None:
            places_BCL2, judged_BC3 = self.places(queries_BQD[:, 2:])
            part_logits_BC3 = part_logits_BC3 + judged_BC3
        return CompactOutput(
            readable_logit_B=self.readable_head(queries_BQD[:, 0])[:, 0],
            state_logits_BN=self.state_head(queries_BQD[:, 1]) + self._evidence_of_parts(part_logits_BC3),
            culprit_logits_BM=self.culprit_head(queries_BQD[:, 1]),
            part_logits_BC3=part_logits_BC3,
            told_logit_BC=None if self.told_head is None else self.told_head(queries_BQD[:, 2:])[..., 0],
            found_BQD=queries_BQD,
            places_BCL2=places_BCL2,
        )

    def crop(self, image_BSS3: Tensor, shares_B4: Tensor, motion: Motion | None = None) -> Tensor:
        """A square around each box, (B, P, P, 3)."""
        return crop(image_BSS3, shares_B4, self.config.crop_size, motion)

    def training_view(self, shares_B4: Tensor, truth: Targets) -> tuple[Tensor, Motion]:
        """What to crop in training: boxes, the true one where one misses, turned, moved and scaled a little."""
        n, turn, device = len(shares_B4), math.radians(self.config.turn_degrees), shares_B4.device
        motion = Motion(
            shift_B2=((torch.rand(n, 2) - 0.5) * 0.16).to(device),
            scale_B=(0.9 + 0.25 * torch.rand(n)).to(device),
            angle_B=((torch.rand(n) * 2 - 1) * turn).to(device),
        )
        return self._corrected(shares_B4, truth), motion

    def _corrected(self, shares_B4: Tensor, truth: Targets) -> Tensor:
        """Predicted boxes, with the true one where a predicted one misses: early in training most of them do."""
        true_B4 = truth.corners_B4 / self.config.image_size
        misses_B = truth.readable_B & (generalized_box_iou(shares_B4, true_B4) <= 0.4)
        return torch.where(misses_B[:, None], true_B4, shares_B4)

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
        cell_logits_BK, shares_BK4 = self.locator(image_BSS3)
        best_B4 = best_box(cell_logits_BK, shares_BK4).detach()
        corners_B4, motion = self.training_view(best_B4, targets)
        output = self.read(self.crop(image_BSS3, corners_B4, motion))
        seen, side = targets.readable_B, self.config.image_size
        where, box = box_losses(cell_logits_BK[seen], shares_BK4[seen], targets.corners_B4[seen] / side)
        named = seen & (targets.state_B >= 0)
        state_R, part_RC = targets.state_B[named], targets.part_BC[named]
        losses = {
            "where": where,
            "box": box,
            "readable": _mean_where(
                functional.binary_cross_entropy_with_logits(output.readable_logit_B, seen.float(), reduction="none"),
                targets.checked_B,
            ),
            "state": _mean_cross_entropy(output.state_logits_BN[named], state_R),
            "culprit": 0.5 * self._culprit_loss(output.culprit_logits_BM[named], state_R, part_RC),
            "parts": self.config.parts_weight * _mean_known(output.part_logits_BC3, targets.part_BC),
        }
        if output.told_logit_BC is not None:
            told_BC = targets.told_BC
            losses["told"] = _mean_where(
                functional.binary_cross_entropy_with_logits(
                    output.told_logit_BC, told_BC.clamp(min=0).float(), reduction="none"
                ),
                told_BC >= 0,
            )
        if output.places_BCL2 is not None:
            flat_BX2 = points_in_crop(targets.places_BCL2.flatten(1, 2) / side, corners_B4, motion)
            true_BCL2 = flat_BX2.reshape(output.places_BCL2.shape)
            losses["places"] = self.config.places_weight * _places_loss(output.places_BCL2, true_BCL2, targets)
        return losses

    def _culprit_loss(self, logits_RM: Tensor, state_R: Tensor, part_RC: Tensor) -> Tensor:
        """Cross entropy over correct states and wrong components; several wrong ones share the target."""
        n_correct = int(self.has_bits_N.sum())
        place_N = torch.cumsum(self.has_bits_N.long(), 0) - 1  # of each correct state among the correct ones
        is_correct_R = self.has_bits_N[state_R]
        wrong_RC = (part_RC == WRONG).to(logits_RM.dtype)
        target_RM = torch.zeros_like(logits_RM)
        target_RM[:, n_correct:] = wrong_RC / wrong_RC.sum(dim=1, keepdim=True).clamp(min=1)
        target_RM[is_correct_R] = functional.one_hot(place_N[state_R[is_correct_R]], logits_RM.shape[1]).to(target_RM)
        known_R = target_RM.sum(dim=1) > 0
        if not known_R.any():
            return logits_RM.sum() * 0
        return functional.cross_entropy(logits_RM[known_R], target_RM[known_R])


class _Places(nn.Module):  # type: ignore[misc]
    """Where each part belongs and where it is, by what its query found; and what the way between the two says of it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.point_head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 2 * N_POINTS))
        last = nn.Linear(_MOVED_WIDTH, 3)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.judge = nn.Sequential(nn.Linear(N_POINTS, _MOVED_WIDTH), nn.GELU(), last)

    def forward(self, found_BCD: Tensor) -> tuple[Tensor, Tensor]:
        places_BCL2 = self.point_head(found_BCD).unflatten(-1, (N_POINTS, 2))
        belongs_BCH2, is_BCH2 = places_BCL2.chunk(2, dim=2)
        return places_BCL2, self.judge(((is_BCH2 - belongs_BCH2) * _MOVED_SCALE).flatten(2))


def _places_loss(found_BCL2: Tensor, true_BCL2: Tensor, targets: Targets) -> Tensor:
    """Mean distance of the places of parts that show; parts that sit wrongly count more, as they do elsewhere."""
    shown_BC = (targets.told_BC == 1) & (true_BCL2.abs() < 2).all(dim=-1)[..., : N_POINTS // 2].all(dim=-1)
    known_BCL = shown_BC[..., None] & true_BCL2.isfinite().all(dim=-1)
    weight_BCL = known_BCL * (1.0 + (_WRONG_WEIGHT - 1.0) * (targets.part_BC == WRONG))[..., None]
    distance_BCL2 = functional.smooth_l1_loss(
        found_BCL2, torch.where(known_BCL[..., None], true_BCL2, 0.0), reduction="none", beta=_PLACE_BETA
    )
    return (distance_BCL2.sum(dim=-1) * weight_BCL).sum() / weight_BCL.sum().clamp(min=1)


def _mean_where(values_B: Tensor, wanted_B: Tensor) -> Tensor:
    return (values_B * wanted_B).sum() / wanted_B.sum().clamp(min=1)


def _mean_cross_entropy(logits_RN: Tensor, class_R: Tensor) -> Tensor:
    """Zero where there are no rows, instead of no number."""
    return functional.cross_entropy(logits_RN, class_R) if len(class_R) else logits_RN.sum() * 0


def _mean_known(logits_RC3: Tensor, part_RC: Tensor) -> Tensor:
    """Cross entropy of the parts whose state is known; zero if none is."""
    if not (part_RC >= 0).any():
        return logits_RC3.sum() * 0
    weight_3 = torch.tensor([1.0, 1.0, _WRONG_WEIGHT], device=logits_RC3.device)
    return functional.cross_entropy(logits_RC3.flatten(0, 1), part_RC.flatten(), weight=weight_3)


# ---------------------------------------------------------------------- the detector
class CompactDetector(StepTrainedDetector):
    """One detection per image at most: the assembly, its state, and what was read of every component.

    `wrong_parts` says how a state with a wrongly seated part is told from the correct one: by the common error class,
    by one error class per component, or by the read-out of each component (absent, correct, wrong).
    """

    kind: ClassVar[str] = "compact"
    config_class = CompactConfig
    readout = "single"
    learns_parts = True
    made_of_shapes = True

    def __init__(self, procedure: Procedure, config: CompactConfig | None = None) -> None:
        self.config = config or CompactConfig()
        super().__init__(procedure, **asdict(self.config))
        self.wrong_parts, self.image_size = self.config.wrong_parts, self.config.image_size
        # the procedure's classes as the network numbers them: without background
        shown = [state for state in procedure.states if state.kind is not StateKind.BACKGROUND]
        self.classes = [state.state_class for state in shown]
        self._row_of_class = {state_class: row for row, state_class in enumerate(self.classes)}
        self._correct_rows = [row for row, state in enumerate(shown) if state.bits is not None]
        if not self._correct_rows:
            raise InputError(f"procedure {procedure.name!r} has no assembly states to detect")
        self.network: CompactNet = CompactNet(self.config, procedure)

    # ------------------------------------------------------------------ what the base asks for
    @property
    def locator(self) -> Locator:
        found: Locator = self.network.locator
        return found

    @property
    def reader_digest(self) -> str | None:
        return reader_digest(self.locator, self.network.reader, self.config.crop_size)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        # bits 0, 1 and -1 are columns ABSENT, CORRECT and WRONG of the read-out
        part_BC = torch.where(batch.bits_BC == UNKNOWN, UNKNOWN, batch.bits_BC % 3)
        row_of_class = [self._row_of_class.get(state.state_class, UNKNOWN) for state in self.procedure.states]
        state_B = torch.tensor(row_of_class, device=batch.state_class_B.device)[batch.state_class_B]
        # what hides cannot be guessed from the rest, least of all whether it is wrong
        state_B = torch.where((batch.told_BC == 0).any(dim=1), UNKNOWN, state_B)
        targets = Targets(
            readable_B=batch.readable_B,
            checked_B=~batch.maybe_hidden_B,
            corners_B4=batch.corners_B4,
            state_B=state_B,
            part_BC=part_BC,
            told_BC=batch.told_BC,
            places_BCL2=batch.places_BCP2,
        )
        return self.network.losses(batch.image_BSS3, targets)

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """A trained backbone learns more slowly than new layers."""
        backbone = [parameter for parameter in self.network.reader.network.parameters() if parameter.requires_grad]
        known = {id(parameter) for parameter in self.network.reader.network.parameters()}
        fresh = [parameter for parameter in self.network.parameters() if id(parameter) not in known]
        slower = 1.0 if self.config.weights == "none" else 0.4
        return [{"params": backbone, "lr": learning_rate * slower}, {"params": fresh, "lr": learning_rate}]

    def outputs(self, image_BSS3: Tensor, shares_B4: Tensor | None = None) -> tuple[Tensor, ...]:
        shares_B4 = self.network.locator.locate(image_BSS3) if shares_B4 is None else shares_B4
        output = self.network(image_BSS3, shares_B4)
        parts_BC3 = output.part_logits_BC3.softmax(dim=-1)
        if output.told_logit_BC is not None:  # of what hides, nothing is known
            told_BC1 = output.told_logit_BC.sigmoid()[..., None]
            parts_BC3 = told_BC1 * parts_BC3 + (1 - told_BC1) / 3
        probability_BN = self._class_probabilities(output, parts_BC3)
        readable = output.readable_logit_B.sigmoid(), output.readable_logit_B
        return shares_B4, probability_BN, *readable, parts_BC3, output.found_BQD

    def raw_detections(
        self, image_BSS3: Tensor, placements: Sequence[Placement], shares_B4: Tensor | None = None
    ) -> list[list[Detection]]:
        """All detections. Boxes that are known already (shares of the square) need not be located again."""
        return self.read_out(image_BSS3, placements, shares_B4)

    # ------------------------------------------------------------------ wrong parts
    def _class_probabilities(self, output: CompactOutput, parts_BC3: Tensor) -> Tensor:
        """Probability of each shown class, given that the state can be read; (B, N)."""
        if self.wrong_parts == "error_class":
            return output.state_logits_BN.softmax(dim=-1)
        n_correct = len(self._correct_rows)
        if self.wrong_parts == "component_classes":
            culprits_BM = output.culprit_logits_BM.softmax(dim=-1)
            correct_BM, wrong_B = culprits_BM[:, :n_correct], culprits_BM[:, n_correct:].sum(dim=1)
        else:
            # the surest accusation, not the chance that any of them holds: small doubts about eleven parts add up
            wrong_B = parts_BC3[:, :, WRONG].amax(dim=1)
            correct_BM = output.state_logits_BN[:, self._correct_rows].softmax(dim=-1) * (1 - wrong_B)[:, None]
        # the columns of correct states, of the common error class, and of other error classes, which get nothing
        columns = torch.cat([correct_BM, wrong_B[:, None], torch.zeros_like(wrong_B)[:, None]], dim=1)
        place_of_row = {row: place for place, row in enumerate(self._correct_rows)}
        if self.procedure.error_class is not None:
            place_of_row[self._row_of_class[self.procedure.error_class]] = n_correct
        return columns[:, [place_of_row.get(row, n_correct + 1) for row in range(len(self.classes))]]
