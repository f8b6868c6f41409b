"""YOLOX through libreyolo (MIT): a general detector under a permissive licence, from random weights.

It has one class per state and one common error class; it does not read single components.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, ClassVar

import torch
from torch import Tensor

from stormpsr.data.images import Placement
from stormpsr.detectors.base import Batch, Detection, StepTrainedDetector
from stormpsr.errors import InputError, MissingExtraError
from stormpsr.models.backbones import make_torchvision_importable
from stormpsr.procedure.model import Procedure, StateKind
from stormpsr.yaml_loader import STRICT_KEYS


@dataclass(frozen=True, slots=True)
class YoloxConfig:
    """Which YOLOX."""

    size: str = "n"  # n, t, s, m, l, x: nano to extra large
    image_size: int = 160  # pixels of a side, a multiple of 32

    __pydantic_config__ = STRICT_KEYS

    def __post_init__(self) -> None:
        if self.size not in tuple("ntsmlx"):
            raise InputError(f"YOLOX has no size {self.size!r}", cure="choose one of: n, t, s, m, l, x")
        if self.image_size < 64 or self.image_size % 32:
            raise InputError(f"image_size is {self.image_size}", cure="choose a multiple of 32, 64 or more")


class YoloxDetector(StepTrainedDetector):
    """A YOLOX network with the procedure's classes."""

    kind: ClassVar[str] = "yolox"
    config_class = YoloxConfig
    readout = "boxes"

    def __init__(self, procedure: Procedure, config: YoloxConfig | None = None) -> None:
        self.config = config or YoloxConfig()
        super().__init__(procedure, **asdict(self.config))
        shown = [state for state in procedure.states if state.kind is not StateKind.BACKGROUND]
        self.classes = tuple(state.state_class for state in shown)
        self._row_of_class = {state_class: row for row, state_class in enumerate(self.classes)}
        make_torchvision_importable()  # libreyolo imports it
        try:
            self._parts: Any = import_module("libreyolo.models.yolox.nn")
            self._decode: Any = import_module("libreyolo.postprocess.yolox").decode_outputs
        except ModuleNotFoundError as error:
            raise MissingExtraError("the YOLOX detector", "yolox", error.name or "libreyolo") from None
        self.network = self._parts.LibreYOLOXModel(self.config.size, len(self.classes))
        self.network.init_weights()
        self.image_size = self.config.image_size

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        low_B2, high_B2 = batch.corners_B4[:, :2], batch.corners_B4[:, 2:]
        row_of_class = [float(self._row_of_class.get(state.state_class, 0)) for state in self.procedure.states]
        row_B = torch.tensor(row_of_class, device=batch.state_class_B.device)[batch.state_class_B]
        labels_B5 = torch.cat([row_B[:, None], (low_B2 + high_B2) / 2, high_B2 - low_B2], dim=1)
        labels_B5[~batch.readable_B] = 0  # how YOLOX writes that there is no object
        return {"total": self.network(self._pixels(batch.image_BSS3), labels_B5[:, None])["total_loss"]}

    def outputs(self, image_BSS3: Tensor, shares_B4: Tensor | None = None) -> tuple[Tensor, ...]:
        decoded_BAX = self._decode(self.network(self._pixels(image_BSS3)))
        return decoded_BAX[..., :4], decoded_BAX[..., 4:5] * decoded_BAX[..., 5:]

    def raw_detections(self, image_BSS3: Tensor, placements: Sequence[Placement]) -> list[list[Detection]]:
        return self.read_out(image_BSS3, placements)

    def _pixels(self, image_BSS3: Tensor) -> Tensor:
        """YOLOX takes grey levels from 0 to 255 as they are."""
        return image_BSS3.permute(0, 3, 1, 2).float().contiguous(memory_format=torch.channels_last)
