"""What every assembly state detector can do, whatever network is inside.

A detector looks at single images. It finds the assembly, names its state (a class of the procedure), and says how sure
it is that both are right. It should stay silent where the state cannot be read.

Detectors whose network is a torch module: one folder format, one way to look at images.

A saved folder holds `model.safetensors`, `config.yaml` (kind, settings, calibration), `procedure.yaml` and, once
measured, `metrics.json`. Nothing else is needed to load it, and nothing in it is executable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
import yaml
from torch import Tensor, nn

from stormpsr.data.annotated_frames import FrameSet
from stormpsr.data.images import Image, Placement, letterbox
from stormpsr.detectors.calibration import Calibration
from stormpsr.detectors.detection import DEFAULT_MIN_CONFIDENCE, Detection, sorted_best
from stormpsr.errors import InputError
from stormpsr.files import read_json_object
from stormpsr.models.checkpoint import (
    CONFIG_FILE,
    METRICS_FILE,
    MODEL_FILE,
    PROCEDURE_FILE,
    fill,
    read_tensors,
    write_folder,
)
from stormpsr.procedure.model import Procedure
from stormpsr.training.detector_batches import Batch
from stormpsr.training.detector_settings import OnTraining, TrainingResult, TrainingSettings


class StateDetector(ABC):
    """Detects assembly states. Classes are the procedure's, in the procedure's order; background is never reported."""

    kind: ClassVar[str]  # how a saved folder and the command line call it
    procedure: Procedure
    calibration: Calibration
    metrics: dict[str, Any]  # whatever was measured, kept with the detector

    @abstractmethod
    def detect(
        self, images: Sequence[Image], *, min_confidence: float = DEFAULT_MIN_CONFIDENCE
    ) -> list[list[Detection]]:
        """The detections of each image, most confident first; an empty list where no state can be read."""

    @abstractmethod
    def train(
        self,
        train: FrameSet,
        val: FrameSet,
        settings: TrainingSettings,
        *,
        folder: Path | None = None,
        on_progress: OnTraining | None = None,
    ) -> TrainingResult:
        """Learn from frames, calibrate on validation frames, and save into the folder if one is given.

        With a folder, training that was stopped goes on from there; the same settings are required.
        """

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write everything that is needed to load the detector again into a folder."""

    def check_procedure(self, procedure: Procedure, path: str | Path | None = None) -> None:
        """Refuse a procedure whose classes or components are not those the detector was trained for."""
        ours = [(state.kind, state.bits) for state in self.procedure.states]
        theirs = [(state.kind, state.bits) for state in procedure.states]
        names = [[component.name for component in p.components] for p in (self.procedure, procedure)]
        if ours != theirs or names[0] != names[1]:
            raise InputError(
                f"the detector was trained for procedure {self.procedure.name!r}, whose states or components differ "
                f"from those of {procedure.name!r}",
                path=path,
                cure="train one for this procedure, or use that procedure",
            )


_CHUNK = 32  # images per forward pass

T = TypeVar("T")


class TorchDetector(StateDetector):
    """What all of them share."""

    def __init__(self, procedure: Procedure) -> None:
        self.procedure = procedure
        self.calibration = Calibration()
        self.metrics: dict[str, Any] = {}

    # ------------------------------------------------------------------ what each network says for itself
    @property
    @abstractmethod
    def network(self) -> nn.Module: ...

    @property
    @abstractmethod
    def image_size(self) -> int:
        """Pixels of a side of the square that the network takes."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What `from_settings` needs to build the same network."""

    @classmethod
    @abstractmethod
    def from_settings(cls, procedure: Procedure, settings: Mapping[str, Any]) -> TorchDetector: ...

    @classmethod
    def without_weights(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with which a network is built whose tensors are loaded afterwards."""
        return dict(settings)

    @abstractmethod
    def raw_detections(self, images_BSS3: Tensor, placements: Sequence[Placement]) -> list[list[Detection]]:
        """All detections, before calibration, boxes in pixels of the original images."""

    # ------------------------------------------------------------------ looking
    def detect(
        self, images: Sequence[Image], *, min_confidence: float = DEFAULT_MIN_CONFIDENCE
    ) -> list[list[Detection]]:
        self.network.eval()
        found: list[list[Detection]] = []
        for start in range(0, len(images), _CHUNK):
            fitted = [letterbox(image, self.image_size) for image in images[start : start + _CHUNK]]
            pixels = torch.stack([torch.from_numpy(square) for square, _ in fitted])
            with torch.inference_mode():
                found += self.raw_detections(pixels, [placement for _, placement in fitted])
        return [sorted_best([self._calibrated(d) for d in row], min_confidence) for row in found]

    def _calibrated(self, detection: Detection) -> Detection:
        confidence = self.calibration(detection.confidence)
        return Detection(detection.box, detection.state_class, confidence, detection.parts_C3)

    # ------------------------------------------------------------------ files
    def save(self, folder: str | Path) -> None:
        config = {"kind": self.kind, "settings": self.settings(), "calibration": asdict(self.calibration)}
        write_folder(
            folder,
            config=yaml.safe_dump(config, sort_keys=False),
            tensors=self.network.state_dict(),
            procedure=self.procedure,
            metrics=self.metrics,
        )

    @classmethod
    def load(cls, folder: str | Path) -> TorchDetector:
        """A detector from a folder that `save` wrote."""
        folder = Path(folder)
        config = read_config(folder)
        procedure = Procedure.load(folder / PROCEDURE_FILE)
        try:
            detector = cls.from_settings(procedure, cls.without_weights(config["settings"]))
            detector.calibration = numbers_of(Calibration, config.get("calibration", {}))
        except InputError as error:
            raise InputError(error.problem, path=folder / CONFIG_FILE, cure=error.cure) from error
        weights = folder / MODEL_FILE
        if not weights.is_file():
            raise InputError("there is no such file", path=weights, cure="the detector's folder is incomplete")
        fill(detector.network, read_tensors(weights, may_be_unnamed=True), weights)
        if (folder / METRICS_FILE).is_file():
            detector.metrics = read_json_object(folder / METRICS_FILE, "table of metrics", cure="delete it")
        return detector


class StepTrainedDetector(TorchDetector):
    """A detector whose network we train ourselves, step by step (see `stormpsr.training.tasks.detector`)."""

    @abstractmethod
    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """The parts of the training loss."""

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """What the optimiser changes, and how fast."""
        return [{"params": list(self.network.parameters()), "lr": learning_rate}]

    def train(
        self,
        train: FrameSet,
        val: FrameSet,
        settings: TrainingSettings,
        *,
        folder: Path | None = None,
        on_progress: OnTraining | None = None,
    ) -> TrainingResult:
        from stormpsr.training.tasks.detector import fit

        return fit(self, train, val, settings, folder=folder, on_progress=on_progress)


def read_config(folder: Path) -> dict[str, Any]:
    """The `config.yaml` of a saved detector."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        problem = "this is not a detector's folder" if folder.is_dir() else "there is no such folder"
        raise InputError(
            problem, path=folder, cure=f"a detector's folder holds {CONFIG_FILE}; 'detect train' makes one"
        )
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"this is not YAML ({str(error).splitlines()[0]})", path=path) from None
    if not isinstance(config, dict) or not isinstance(config.get("settings"), dict) or "kind" not in config:
        raise InputError("it does not describe a detector", path=path, cure="it needs 'kind' and 'settings'")
    return config


def numbers_of(kind: type[T], values: Mapping[str, Any]) -> T:
    """A settings object from a mapping, refusing names it does not have."""
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # every caller passes a dataclass
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise InputError(f"unknown setting {unknown[0]!r}", cure=f"settings are: {', '.join(known)}")
    try:
        return kind(**values)
    except TypeError as error:
        raise InputError(f"a setting of the wrong kind ({error})") from None
