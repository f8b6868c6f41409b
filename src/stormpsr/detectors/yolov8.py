"""YOLOv8 as in the paper, through ultralytics: an optional extra, because its licence is the AGPL.

It is imported only here, and only when a YOLOv8 detector is made. The network and its loss are ultralytics'; training
is that of every other detector. Saved folders hold tensors and settings like those of the others. Weights that
ultralytics itself has written (`.pt`, for example published ones) can be taken over with `adopt`; such a file is a
pickle and may run code when it is read: take over only what you trust.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from stormpsr.data.images import Placement
from stormpsr.detectors.base import Batch, Detection, StepTrainedDetector
from stormpsr.errors import InputError, MissingExtraError
from stormpsr.models.backbones import make_torchvision_importable
from stormpsr.procedure.model import Procedure
from stormpsr.yaml_loader import STRICT_KEYS


@dataclass(frozen=True, slots=True)
class Yolov8Config:
    """Which YOLOv8."""

    model: str = "yolov8m"  # yolov8n, s, m, l, x; the paper takes m
    image_size: int = 640  # pixels of a side, a multiple of 32
    weights: str = "none"  # 'none', or a .pt file to start from

    __pydantic_config__ = STRICT_KEYS

    def __post_init__(self) -> None:
        if self.model not in {f"yolov8{size}" for size in "nsmlx"}:
            raise InputError(f"there is no network {self.model!r}", cure="choose yolov8n, s, m, l or x")
        if self.image_size < 32 or self.image_size % 32:
            raise InputError(f"image_size is {self.image_size}", cure="choose a multiple of 32")


class Yolov8Detector(StepTrainedDetector):
    """A YOLOv8 with the procedure's classes, class 0 (background) included but never trained."""

    kind: ClassVar[str] = "yolov8"
    config_class = Yolov8Config
    readout = "boxes"

    def __init__(self, procedure: Procedure, config: Yolov8Config | None = None) -> None:
        self.config = config or Yolov8Config()
        super().__init__(procedure, **asdict(self.config))
        self.image_size = self.config.image_size
        ultralytics = _ultralytics()
        self.classes = [state.state_class for state in procedure.states]
        n_classes = len(self.classes)
        self.network = ultralytics.nn.tasks.DetectionModel(f"{self.config.model}.yaml", nc=n_classes, verbose=False)
        self.network.names = {state.state_class: state.name for state in procedure.states}
        self.network.args = ultralytics.cfg.get_cfg()  # weights of the parts of its loss
        if self.config.weights != "none":
            self.network.load(_read_pt(Path(self.config.weights)).model, verbose=False)

    @classmethod
    def adopt(cls, weights: str | Path, procedure: Procedure, *, image_size: int = 640) -> Yolov8Detector:
        """Take over a trained `.pt` file of ultralytics. Its classes must have the names of the procedure's states, in

        any order.
        """
        path = Path(weights)
        theirs = _read_pt(path).model
        size = str(theirs.yaml.get("scale") or Path(str(theirs.yaml.get("yaml_file", ""))).stem.removeprefix("yolov8"))
        detector = cls(procedure, Yolov8Config(f"yolov8{size}"[:7], image_size))
        names = [str(theirs.names[k]) for k in sorted(theirs.names)]
        ours = [state.name for state in procedure.states]
        if sorted(names) != sorted(ours):
            strange = [name for name in names if name not in ours] or [name for name in ours if name not in names]
            problem = f"the network's {len(names)} classes are not the {len(ours)} of {procedure.name!r}"
            cure = f"give the procedure that it was trained for; {', '.join(strange[:3])} is in one only"
            raise InputError(problem, path=path, cure=cure)
        tensors = theirs.float().state_dict()
        order = torch.tensor([names.index(name) for name in ours])
        for name in _class_tensors(detector.network):
            if len(tensors.get(name, ())) == len(order):
                tensors[name] = tensors[name][order]
        try:
            detector.network.load_state_dict(tensors, strict=True)
        except RuntimeError as error:
            raise InputError(f"its tensors do not fit ({str(error).splitlines()[-1].strip()})", path=path) from None
        return detector

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        seen = batch.readable_B
        low_R2, high_R2 = batch.corners_B4[seen, :2], batch.corners_B4[seen, 2:]
        labels = {
            "img": self._pixels(batch.image_BSS3),
            "batch_idx": seen.nonzero()[:, 0],
            "cls": batch.state_class_B[seen, None],
            "bboxes": torch.cat([(low_R2 + high_R2) / 2, high_R2 - low_R2], dim=1) / self.image_size,
        }
        parts_3, _ = self.network.loss(labels)
        return dict(zip(("box", "class", "distribution"), parts_3 / len(seen), strict=True))

    def outputs(self, image_BSS3: Tensor, shares_B4: Tensor | None = None) -> tuple[Tensor, ...]:
        decoded_BAX = self.network(self._pixels(image_BSS3))[0].transpose(1, 2)
        return decoded_BAX[..., :4], decoded_BAX[..., 4:]

    def raw_detections(self, image_BSS3: Tensor, placements: Sequence[Placement]) -> list[list[Detection]]:
        return self.read_out(image_BSS3, placements)

    def _pixels(self, image_BSS3: Tensor) -> Tensor:
        return image_BSS3.permute(0, 3, 1, 2).float() / 255


def _class_tensors(network: Any) -> list[str]:
    """The names of the tensors that have a row per class: the last layers of the branches that classify."""
    head = network.model[-1]
    return [
        f"model.{head.i}.cv3.{k}.{len(branch) - 1}.{kind}"
        for k, branch in enumerate(head.cv3)
        for kind in ("weight", "bias")
    ]


def _ultralytics() -> Any:
    """The package, quiet."""
    make_torchvision_importable()
    try:
        package = import_module("ultralytics")
    except ModuleNotFoundError as error:
        raise MissingExtraError("the YOLOv8 detector", "yolo", error.name or "ultralytics") from None
    import_module("ultralytics.utils").LOGGER.setLevel("ERROR")
    for part in ("cfg", "nn.tasks"):
        import_module(f"ultralytics.{part}")
    return package


def _read_pt(path: Path) -> Any:
    """A file that ultralytics has written."""
    if not path.is_file():
        raise InputError("there is no such weights file", path=path)
    try:
        return _ultralytics().YOLO(str(path))
    except (RuntimeError, ValueError, KeyError, EOFError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"this is not a file of ultralytics ({reason})", path=path) from None
