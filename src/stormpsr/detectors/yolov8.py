"""YOLOv8 as in the paper, through ultralytics: an optional extra, because its licence is the AGPL.

It is imported only here, and only when a YOLOv8 detector is made. Saved folders hold tensors and settings like those
of the other detectors. Weights that ultralytics itself has written (`.pt`, for example published ones) can be taken
over with `adopt`; such a file is a pickle and may run code when it is read: take over only what you trust.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from stormpsr.data.boxes import Box, nms
from stormpsr.data.images import Placement
from stormpsr.detectors.base import Detection, OnStep, SelfTrainedDetector
from stormpsr.errors import InputError, MissingExtraError
from stormpsr.models.backbones import make_torchvision_importable
from stormpsr.procedure.model import Procedure
from stormpsr.yaml_loader import STRICT_KEYS, Document, validate

_CANDIDATES = 20  # boxes per image that are looked at
_RUN = "run"


@dataclass(frozen=True, slots=True)
class Yolov8Config:
    """Which YOLOv8, and what is special about training it."""

    model: str = "yolov8m"  # yolov8n, s, m, l, x; the paper takes m
    image_size: int = 640  # pixels of a side, a multiple of 32
    weights: str = "none"  # 'none', or a .pt file to start from
    mosaic: float = 0.0  # share of images put together from four; hides the small parts that tell states apart
    mixup: float = 0.0  # share of images mixed from two

    __pydantic_config__ = STRICT_KEYS

    def __post_init__(self) -> None:
        if self.model not in {f"yolov8{size}" for size in "nsmlx"}:
            raise InputError(f"there is no network {self.model!r}", cure="choose yolov8n, s, m, l or x")
        if self.image_size < 32 or self.image_size % 32:
            raise InputError(f"image_size is {self.image_size}", cure="choose a multiple of 32")
        for name in ("mosaic", "mixup"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}", cure="it lies between 0 and 1")


class Yolov8Detector(SelfTrainedDetector):
    """A YOLOv8 with the procedure's classes, class 0 (background) included but never trained."""

    kind: ClassVar[str] = "yolov8"

    def __init__(self, procedure: Procedure, config: Yolov8Config | None = None) -> None:
        super().__init__(procedure)
        self.config = config or Yolov8Config()
        self.image_size = self.config.image_size
        ultralytics = _ultralytics()
        n_classes = len(procedure.states)
        self.network = ultralytics.nn.tasks.DetectionModel(f"{self.config.model}.yaml", nc=n_classes, verbose=False)
        self.network.names = {state.state_class: state.name for state in procedure.states}
        if self.config.weights != "none":
            self.network.load(_read_pt(Path(self.config.weights)).model)

    @classmethod
    def adopt(cls, weights: str | Path, procedure: Procedure, *, image_size: int = 640) -> Yolov8Detector:
        """Take over a trained `.pt` file of ultralytics. Its classes must be the procedure's, by name or by number."""
        path = Path(weights)
        theirs = _read_pt(path).model
        size = str(theirs.yaml.get("scale") or Path(str(theirs.yaml.get("yaml_file", ""))).stem.removeprefix("yolov8"))
        detector = cls(procedure, Yolov8Config(f"yolov8{size}"[:7], image_size))
        names = [theirs.names[k] for k in sorted(theirs.names)]
        ours = [state.name for state in procedure.states]
        if names != ours and len(names) != len(ours):
            cure = f"it should have the {len(ours)} classes of {procedure.name!r}, in their order"
            raise InputError(f"the network has {len(names)} classes", path=path, cure=cure)
        try:
            detector.network.load_state_dict(theirs.float().state_dict(), strict=True)
        except RuntimeError as error:
            raise InputError(f"its tensors do not fit ({str(error).splitlines()[-1].strip()})", path=path) from None
        return detector

    # ------------------------------------------------------------------ what the base asks for
    def settings(self) -> dict[str, Any]:
        return asdict(replace(self.config, weights="none"))

    @classmethod
    def from_settings(cls, procedure: Procedure, settings: Mapping[str, Any]) -> Yolov8Detector:
        return cls(procedure, validate(Yolov8Config, Document(dict(settings)), strict=True))

    def raw_detections(self, image_BSS3: Tensor, placements: Sequence[Placement]) -> list[list[Detection]]:
        predictions = self.network(image_BSS3.permute(0, 3, 1, 2).float() / 255)
        decoded_BXA = predictions[0] if isinstance(predictions, tuple | list) else predictions
        decoded_BXA = decoded_BXA.cpu()
        best_BA, class_BA = decoded_BXA[:, 4:].max(dim=1)
        found: list[list[Detection]] = []
        for image, placement in enumerate(placements):
            order = best_BA[image].argsort(descending=True)[:_CANDIDATES]
            x, y, width, height = decoded_BXA[image, :4, order].numpy()
            corners_R4 = np.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], axis=1)
            rows = [k for k in nms(corners_R4) if int(class_BA[image, order[k]]) != 0]
            found.append(
                [
                    Detection(
                        placement.back(Box(*(float(side) for side in corners_R4[k]))),
                        int(class_BA[image, order[k]]),
                        float(best_BA[image, order[k]].clamp(0, 1)),
                    )
                    for k in rows
                ]
            )
        return found

    # ------------------------------------------------------------------ training
    def train_on(
        self,
        data: Path,
        folder: Path,
        *,
        steps: int,
        batch_size: int,
        seed: int,
        device: str,
        augmentation: Mapping[str, float],
        on_step: OnStep,
    ) -> None:
        """Train with ultralytics' own trainer, for as many of its epochs as the steps come to.

        It keeps its state once per epoch; training that was stopped goes on from the last one.
        """
        weights = folder.resolve() / _RUN / "weights"
        best, last = weights / "best.pt", weights / "last.pt"
        n_images = sum(1 for _ in (data / "images" / "train").iterdir())
        per_epoch = max(1, math.ceil(n_images / batch_size))
        epochs = max(1, round(steps / per_epoch))
        wrapper = _ultralytics().YOLO(str(last) if last.is_file() else f"{self.config.model}.yaml")
        if not last.is_file():
            wrapper.model = self.network.train()
            wrapper.ckpt = {"model": self.network}  # so that its trainer starts from these weights
        wrapper.add_callback("on_train_batch_end", _reporter(per_epoch, epochs, on_step))
        wrapper.train(
            resume=last.is_file(),
            data=str(data / "data.yaml"),
            epochs=epochs,
            imgsz=self.config.image_size,
            batch=batch_size,
            seed=seed,
            project=str(folder.resolve()),
            name=_RUN,
            exist_ok=True,
            device=(None if torch.cuda.is_available() else "cpu") if device == "auto" else device,
            workers=0,
            amp=False,
            plots=False,
            verbose=False,
            mosaic=self.config.mosaic,
            mixup=self.config.mixup,
            fliplr=augmentation["flip"],
            flipud=0.0,
            degrees=augmentation["rotation_degrees"],
            translate=augmentation["shift"],
            scale=augmentation["scale"],
            hsv_s=augmentation["saturation"],
            hsv_v=augmentation["brightness"],
        )
        trained = _read_pt(best if best.is_file() else last)
        self.network.load_state_dict(trained.model.float().state_dict())
        self.network.eval()


def _reporter(per_epoch: int, epochs: int, on_step: OnStep) -> Any:
    done = 0

    def report(trainer: Any) -> None:
        nonlocal done
        done += 1
        step = max(done, trainer.epoch * per_epoch + 1)
        loss = float(trainer.loss.detach().sum()) if trainer.loss is not None else 0.0
        on_step(min(step, epochs * per_epoch), epochs * per_epoch, loss)

    return report


def _ultralytics() -> Any:
    """The package, quiet, with an operator that it needs."""
    if make_torchvision_importable():
        import_module("torchvision").ops.nms = _nms  # its own is compiled, and does not fit this torch
    try:
        package = import_module("ultralytics")
    except ModuleNotFoundError as error:
        raise MissingExtraError("the YOLOv8 detector", "yolo", error.name or "ultralytics") from None
    import_module("ultralytics.utils").LOGGER.setLevel("ERROR")
    import_module("ultralytics.nn.tasks")
    return package


def _nms(boxes_R4: Tensor, scores_R: Tensor, iou_threshold: float) -> Tensor:
    """What torchvision's operator does, for a torchvision whose compiled part does not fit torch."""
    order = scores_R.argsort(descending=True)
    kept = nms(boxes_R4[order].detach().numpy(), iou_threshold)
    return order[torch.tensor(kept, dtype=torch.long)]


def _read_pt(path: Path) -> Any:
    """A file that ultralytics has written."""
    if not path.is_file():
        raise InputError("there is no such weights file", path=path)
    try:
        return _ultralytics().YOLO(str(path))
    except (RuntimeError, ValueError, KeyError, EOFError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"this is not a file of ultralytics ({reason})", path=path) from None
