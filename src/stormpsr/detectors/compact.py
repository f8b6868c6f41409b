"""The default detector: the compact network, and how its outputs become one detection per image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stormpsr.data.boxes import Box
from stormpsr.data.images import Placement
from stormpsr.detectors.base import UNKNOWN, Batch, Detection, StepTrainedDetector
from stormpsr.errors import InputError
from stormpsr.models.compact_detector import CompactConfig, CompactNet, CompactOutput, Targets
from stormpsr.models.locator import Locator
from stormpsr.procedure.model import WRONG, Procedure, StateKind
from stormpsr.yaml_loader import Document, validate

WrongParts = Literal["error_class", "component_classes", "readout"]


@dataclass(frozen=True, slots=True)
class _ClassTable:
    """The procedure's classes as the network numbers them: without background."""

    shown: tuple[int, ...]  # network class -> procedure class
    correct: tuple[int, ...]  # the same without error classes

    @classmethod
    def of(cls, procedure: Procedure) -> _ClassTable:
        shown = [state for state in procedure.states if state.kind is not StateKind.BACKGROUND]
        correct = tuple(state.state_class for state in shown if state.bits is not None)
        if not correct:
            raise InputError(f"procedure {procedure.name!r} has no assembly states to detect")
        return cls(tuple(state.state_class for state in shown), correct)


class CompactDetector(StepTrainedDetector):
    """One detection per image at most: the assembly, its state, and what was read of every component.

    `wrong_parts` says how a state with a wrongly seated part is told from the correct one: by the common error class,
    by one error class per component, or by the read-out of each component (absent, correct, wrong).
    """

    kind: ClassVar[str] = "compact"

    def __init__(
        self,
        procedure: Procedure,
        config: CompactConfig | None = None,
        *,
        wrong_parts: WrongParts = "readout",
    ) -> None:
        if wrong_parts not in get_args(WrongParts):
            cure = f"choose one of: {', '.join(get_args(WrongParts))}"
            raise InputError(f"unknown treatment of wrong parts: {wrong_parts!r}", cure=cure)
        super().__init__(procedure)
        self.config = config or CompactConfig()
        self.wrong_parts = wrong_parts
        self.table = _ClassTable.of(procedure)
        self.network: CompactNet = CompactNet(self.config, procedure)
        self.image_size = self.config.image_size
        self._row_of_class = {state_class: row for row, state_class in enumerate(self.table.shown)}

    # ------------------------------------------------------------------ what the base asks for
    @property
    def locator(self) -> Locator:
        found: Locator = self.network.locator
        return found

    def settings(self) -> dict[str, Any]:
        return {**asdict(self.config), "wrong_parts": self.wrong_parts}

    @classmethod
    def from_settings(cls, procedure: Procedure, settings: Mapping[str, Any]) -> CompactDetector:
        own = dict(settings)
        wrong_parts = own.pop("wrong_parts", "readout")
        return cls(procedure, validate(CompactConfig, Document(dict(own)), strict=True), wrong_parts=wrong_parts)

    @classmethod
    def without_weights(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {**settings, "weights": "none"}

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        # bits 0, 1 and -1 are columns ABSENT, CORRECT and WRONG of the read-out
        part_BC = torch.where(batch.bits_BC == UNKNOWN, UNKNOWN, batch.bits_BC % 3)
        row_of_class = [self._row_of_class.get(state.state_class, 0) for state in self.procedure.states]
        targets = Targets(
            readable_B=batch.readable_B,
            checked_B=~batch.maybe_hidden_B,
            corners_B4=batch.corners_B4,
            state_B=torch.tensor(row_of_class, device=batch.state_class_B.device)[batch.state_class_B],
            part_BC=part_BC,
        )
        return self.network.losses(batch.image_BSS3, targets)

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """A trained backbone learns more slowly than new layers."""
        backbone = [parameter for parameter in self.network.reader.network.parameters() if parameter.requires_grad]
        known = {id(parameter) for parameter in self.network.reader.network.parameters()}
        fresh = [parameter for parameter in self.network.parameters() if id(parameter) not in known]
        slower = 1.0 if self.config.weights == "none" else 0.4
        return [{"params": backbone, "lr": learning_rate * slower}, {"params": fresh, "lr": learning_rate}]

    def raw_detections(
        self, image_BSS3: Tensor, placements: Sequence[Placement], shares_B4: Tensor | None = None
    ) -> list[list[Detection]]:
        """All detections. Boxes that are known already (shares of the square) need not be located again."""
        shares_B4 = self.network.locator.locate(image_BSS3) if shares_B4 is None else shares_B4
        output = self.network(image_BSS3, shares_B4)
        parts_BC3 = output.part_logits_BC3.softmax(dim=-1).cpu().numpy()
        probability_BN = self._class_probabilities(output, parts_BC3)
        readable_B = output.readable_logit_B.sigmoid().cpu().numpy()
        corners_B4 = (shares_B4 * self.image_size).clamp(0, self.image_size).tolist()
        found: list[list[Detection]] = []
        for row, placement in enumerate(placements):
            best = int(probability_BN[row].argmax())
            box = placement.back(Box(*corners_B4[row]))
            confidence = float(np.clip(probability_BN[row, best] * readable_B[row], 0, 1))
            found.append([Detection(box, self.table.shown[best], confidence, parts_BC3[row])])
        return found

    # ------------------------------------------------------------------ wrong parts
    def _class_probabilities(self, output: CompactOutput, parts_BC3: NDArray[np.float32]) -> NDArray[np.float32]:
        """Probability of each shown class, given that the state can be read; (B, N)."""
        if self.wrong_parts == "error_class":
            return np.asarray(output.state_logits_BN.softmax(dim=-1).cpu().numpy())
        correct_rows = [self._row_of_class[c] for c in self.table.correct]
        probability_BN = np.zeros(output.state_logits_BN.shape, dtype=np.float32)
        if self.wrong_parts == "component_classes":
            culprits_BM = output.culprit_logits_BM.softmax(dim=-1).cpu().numpy()
            probability_BN[:, correct_rows] = culprits_BM[:, : len(correct_rows)]
            wrong_B = culprits_BM[:, len(correct_rows) :].sum(axis=1)
        else:
            # the surest accusation, not the chance that any of them holds: small doubts about eleven parts add up
            wrong_B = parts_BC3[:, :, WRONG].max(axis=1)
            among_correct = output.state_logits_BN[:, correct_rows].softmax(dim=-1).cpu().numpy()
            probability_BN[:, correct_rows] = among_correct * (1 - wrong_B)[:, None]
        if self.procedure.error_class is not None:
            probability_BN[:, self._row_of_class[self.procedure.error_class]] = wrong_B
        return probability_BN
