"""YOLOX through libreyolo (MIT): a general detector under a permissive licence, from random weights.

It has one class per state and one common error class; it does not read single components.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from stormpsr.data.boxes import nms
from stormpsr.data.images import Placement
from stormpsr.detectors.base import StepTrainedDetector, numbers_of
from stormpsr.detectors.detection import Detection
from stormpsr.errors import InputError, MissingExtraError
from stormpsr.models.backbones import make_torchvision_importable
from stormpsr.procedure.model import Procedure, StateKind
from stormpsr.training.detector_batches import Batch

_CANDIDATES = 20  # boxes per image that are looked at; more would be the same assembly again


@dataclass(frozen=True, slots=True)
class YoloxConfig:
    """Which YOLOX."""

    size: str = "n"  # n, t, s, m, l, x: nano to extra large
    image_size: int = 160  # pixels of a side, a multiple of 32

    def __post_init__(self) -> None:
        if self.size not in tuple("ntsmlx"):
            raise InputError(f"YOLOX has no size {self.size!r}", cure="choose one of: n, t, s, m, l, x")
        if self.image_size < 64 or self.image_size % 32:
            raise InputError(f"image_size is {self.image_size}", cure="choose a multiple of 32, 64 or more")


class YoloxDetector(StepTrainedDetector):
    """A YOLOX network with the procedure's classes."""

    kind: ClassVar[str] = "yolox"

    def __init__(self, procedure: Procedure, config: YoloxConfig | None = None) -> None:
        super().__init__(procedure)
        self.config = config or YoloxConfig()
        shown = [state for state in procedure.states if state.kind is not StateKind.BACKGROUND]
        self.classes = tuple(state.state_class for state in shown)
        self._row_of_class = {state_class: row for row, state_class in enumerate(self.classes)}
        make_torchvision_importable()  # libreyolo imports it
        try:
            self._parts: Any = import_module("libreyolo.models.yolox.nn")
            self._decode: Any = import_module("libreyolo.postprocess.yolox").decode_outputs
        except ModuleNotFoundError as error:
            raise MissingExtraError("the YOLOX detector", "yolox", error.name or "libreyolo") from None
        self.net = self._parts.LibreYOLOXModel(self.config.size, len(self.classes))
        self.net.init_weights()

    @property
    def network(self) -> nn.Module:
        return self.net

    @property
    def image_size(self) -> int:
        return self.config.image_size

    def settings(self) -> dict[str, Any]:
        return asdict(self.config)

    @classmethod
    def from_settings(cls, procedure: Procedure, settings: Mapping[str, Any]) -> YoloxDetector:
        return cls(procedure, numbers_of(YoloxConfig, settings))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        low, high = batch.corners_B4[:, :2], batch.corners_B4[:, 2:]
        rows = [self._row_of_class.get(int(state_class), 0) for state_class in batch.state_class_B]
        labels_B5 = np.concatenate([np.array(rows, dtype=np.float32)[:, None], (low + high) / 2, high - low], axis=1)
        labels_B5[~batch.readable_B] = 0  # how YOLOX writes that there is no object
        parts = self.net(self._pixels(torch.from_numpy(batch.image_BSS3)), torch.from_numpy(labels_B5)[:, None])
        return {"total": parts["total_loss"]}

    def raw_detections(self, images_BSS3: Tensor, placements: Sequence[Placement]) -> list[list[Detection]]:
        decoded_BAX = self._decode(self.net(self._pixels(images_BSS3)))
        confidence_BAN = decoded_BAX[..., 4:5] * decoded_BAX[..., 5:]
        best_BA, row_BA = confidence_BAN.max(dim=-1)
        found: list[list[Detection]] = []
        for image, placement in enumerate(placements):
            order = best_BA[image].argsort(descending=True)[:_CANDIDATES]
            x, y, width, height = decoded_BAX[image, order, :4].T.numpy()
            corners_R4 = np.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], axis=1)
            found.append(
                [
                    Detection(
                        placement.back(*(float(side) for side in corners_R4[k])),
                        self.classes[int(row_BA[image, order[k]])],
                        float(best_BA[image, order[k]].clamp(0, 1)),
                    )
                    for k in nms(corners_R4)
                ]
            )
        return found

    def _pixels(self, image_BSS3: Tensor) -> Tensor:
        """YOLOX takes grey levels from 0 to 255 as they are."""
        return image_BSS3.permute(0, 3, 1, 2).float().contiguous(memory_format=torch.channels_last)
