"""What every assembly state detector can do, whatever network is inside, and what it says about an image.

A detector looks at single images. It finds the assembly, names its state (a class of the procedure), and says how sure
it is that both are right. It should stay silent where the state cannot be read.

Detectors whose network is a torch module share one folder format and one way to look at images. A saved folder holds
`model.safetensors`, `config.yaml` (kind, settings, calibration), `procedure.yaml` and, once measured, `metrics.json`;
some have `known_views.npz`, too.
Nothing else is needed to load it, and nothing in it is executable.

Importing this needs no torch: detectors that were exported run without it.

Shape legend: B images, S pixels of a side, 3 colours, C components, P points of each (`stormpsr.data.places`), A boxes
per image, R of them, N classes, 4 corners (x0, y0, x1, y1 in pixels).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from stormpsr.data.boxes import Box, nms
from stormpsr.data.events import StateDetection
from stormpsr.data.images import Image, Placement, letterbox
from stormpsr.detectors.known_views import KNOWN_VIEWS_FILE, KnownViews
from stormpsr.errors import InputError
from stormpsr.files import read_json_object
from stormpsr.models.checkpoint import (
    CONFIG_FILE,
    METRICS_FILE,
    MODEL_FILE,
    PROCEDURE_FILE,
    built,
    device_of,
    read_tensors,
    tensors_digest,
    write_folder,
)
from stormpsr.procedure.model import Procedure
from stormpsr.yaml_loader import STRICT_KEYS, Document, read_yaml, validate

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from typing_extensions import Self

    from stormpsr.models.locator import Locator

Floats = NDArray[np.float64]
_EDGE = 1e-6  # confidences of exactly 0 and 1 have no logit
DEFAULT_MIN_CONFIDENCE = 0.1  # weaker detections are left out; decoders weigh the rest by their confidence


@dataclass(frozen=True, eq=False)
class Detection:
    """An assembly in an image."""

    box: Box
    state_class: int
    confidence: float  # of the box and of the class together, 0..1
    parts_C3: NDArray[np.float32] | None = None  # per component: probability of absent, correct, wrong
    readable_logit: float | None = None  # of the whole state being readable, where a detector says so apart
    found_QD: NDArray[np.float32] | None = None  # what its queries found, for an encoder with the same reader
    strangeness: float | None = None  # more than 1: the image is like none that the detector knows

    def __post_init__(self) -> None:
        box = self.box
        if not math.isfinite(box.x0 + box.y0 + box.x1 + box.y1):
            raise InputError(f"a box is four finite numbers, not {box.corners}")
        if not 0.0 <= self.confidence <= 1.0:
            raise InputError(f"confidence is {self.confidence}, but it must lie between 0 and 1")

    def in_frame(self, frame: int) -> StateDetection:
        """The same as the decoders take it."""
        return StateDetection(frame, self.state_class, self.confidence, self.box.to_xywh())


def sorted_best(detections: list[Detection], min_confidence: float) -> list[Detection]:
    """The most confident first, without those below the bar."""
    kept = [detection for detection in detections if detection.confidence >= min_confidence]
    return sorted(kept, key=lambda detection: -detection.confidence)


@dataclass(frozen=True, slots=True)
class Calibration:
    """How raw confidences are changed: sigmoid(logit(p) / temperature + bias). The default leaves them alone."""

    temperature: float = 1.0
    bias: float = 0.0

    __pydantic_config__ = STRICT_KEYS

    def __post_init__(self) -> None:
        if not (0 < self.temperature < math.inf and math.isfinite(self.bias)):
            raise InputError(f"calibration: temperature {self.temperature}, bias {self.bias}")

    def __call__(self, confidence: float) -> float:
        """The calibrated confidence."""
        return float(self.apply(np.array([confidence]))[0])

    def apply(self, confidences: Floats) -> Floats:
        return sigmoid(logit(confidences) / self.temperature + self.bias)

    def undo(self, confidences: Floats) -> Floats:
        """The raw confidences that were calibrated."""
        return sigmoid((logit(confidences) - self.bias) * self.temperature)


def logit(p: Floats) -> Floats:
    clipped = np.clip(p, _EDGE, 1 - _EDGE)
    return np.asarray(np.log(clipped) - np.log1p(-clipped))


def sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -60, 60))))


class StateDetector(ABC):
    """Detects assembly states. Classes are the procedure's, in the procedure's order; background is never reported."""

    kind: ClassVar[str]  # how a saved folder and the command line call it; package.module:Class where not said
    procedure: Procedure
    calibration: Calibration
    known_views: KnownViews | None = None  # of detectors whose queries find something
    metrics: dict[str, Any]  # whatever was measured, kept with the detector

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "kind" not in cls.__dict__:
            cls.kind = f"{cls.__module__}:{cls.__qualname__}"

    @abstractmethod
    def detect(
        self, images: Sequence[Image], *, min_confidence: float = DEFAULT_MIN_CONFIDENCE
    ) -> list[list[Detection]]:
        """The detections of each image, most confident first; an empty list where no state can be read."""

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


class SquareDetector(StateDetector):
    """A detector whose network takes letterboxed images."""

    image_size: int  # pixels of a side of the square that the network takes

    @property
    def locator_digest(self) -> str | None:
        """A fingerprint of the network that finds the assembly first, where there is one."""
        return None

    @property
    def reader_digest(self) -> str | None:
        """A fingerprint of all that finds and reads the assembly, where an encoder can share that."""
        return None

    def detect(
        self, images: Sequence[Image], *, min_confidence: float = DEFAULT_MIN_CONFIDENCE
    ) -> list[list[Detection]]:
        found: list[list[Detection]] = []
        for start in range(0, len(images), _CHUNK):
            squares = [letterbox(image, self.image_size) for image in images[start : start + _CHUNK]]
            found += self.detect_squares(squares, min_confidence=min_confidence)
        return found

    @abstractmethod
    def detect_squares(
        self,
        squares: Sequence[tuple[Image, Placement]],
        *,
        min_confidence: float = DEFAULT_MIN_CONFIDENCE,
        shares_B4: NDArray[np.float32] | None = None,
    ) -> list[list[Detection]]:
        """The same of images that are letterboxed already, all at once, and perhaps located, too (`locator_digest`)."""

    def calibrated(self, found: Sequence[Sequence[Detection]], min_confidence: float) -> list[list[Detection]]:
        """What a network found, as it is reported."""
        return [sorted_best([self._calibrated(detection) for detection in row], min_confidence) for row in found]

    def _calibrated(self, detection: Detection) -> Detection:
        known, strangeness = self.known_views, None
        if known is not None and detection.found_QD is not None:
            strangeness = known.strangeness(detection.found_QD)
        return replace(detection, confidence=self.calibration(detection.confidence), strangeness=strangeness)


# ---------------------------------------------------------------------- from a network's outputs to detections
Outputs = Sequence[NDArray[np.float32]]
Readout = Callable[[Outputs, Sequence[int], Sequence[Placement], int], list[list[Detection]]]
_CANDIDATES = 20  # boxes per image that are looked at; more would be the same assembly again


def single_detection(
    outputs: Outputs, classes: Sequence[int], placements: Sequence[Placement], image_size: int
) -> list[list[Detection]]:
    """One per image, of a network that gives a box (shares of the square), the probability of each class if the state

    can be read, the probability of that and its logit, what it reads of each component (absent, correct, wrong), and

    what its queries found; graphs that were exported by earlier versions end before these.
    """
    shares_B4, probability_BN, readable_B, readable_logit_B, parts_BC3 = outputs[:5]
    found_BQD = outputs[5] if len(outputs) > 5 else [None] * len(shares_B4)
    corners_B4 = np.clip(shares_B4 * np.float32(image_size), 0, image_size)
    found: list[list[Detection]] = []
    for row, placement in enumerate(placements):
        best = int(probability_BN[row].argmax())
        box = placement.back(Box(*corners_B4[row].tolist()))
        confidence = float(np.clip(probability_BN[row, best] * readable_B[row], 0, 1))
        read = parts_BC3[row], float(readable_logit_B[row]), found_BQD[row]
        found.append([Detection(box, classes[best], confidence, *read)])
    return found


def best_boxes(
    outputs: Outputs, classes: Sequence[int], placements: Sequence[Placement], image_size: int
) -> list[list[Detection]]:
    """Those of a network that gives many boxes A per image (middle and size, in pixels of the square), and how sure it

    is of each of N classes: the best class of each box, without those that overlap a better one. Background is not
    reported.
    """
    box_BA4, confidence_BAN = outputs
    row_BA, best_BA = confidence_BAN.argmax(axis=-1), np.clip(confidence_BAN.max(axis=-1), 0, 1)
    found: list[list[Detection]] = []
    for box_A4, best_A, row_A, placement in zip(box_BA4, best_BA, row_BA, placements, strict=True):
        order = np.argsort(-best_A, kind="stable")[:_CANDIDATES]
        middle_R2, size_R2 = box_A4[order].reshape(-1, 2, 2).swapaxes(0, 1)
        corners_R4 = np.concatenate([middle_R2 - size_R2 / 2, middle_R2 + size_R2 / 2], axis=1)
        rows = [(corners_R4[k].tolist(), classes[row_A[order[k]]], best_A[order[k]]) for k in nms(corners_R4)]
        found.append([Detection(placement.back(Box(*box)), c, float(best)) for box, c, best in rows if c != 0])
    return found


_READOUTS: Mapping[str, Readout] = {"single": single_detection, "boxes": best_boxes}
NOT_FINITE = "its numbers are not finite"


def readout_named(name: str | None) -> Readout:
    """What makes detections of outputs; it refuses those that are not finite, which clipping would hide."""
    readout = _READOUTS.get(name or "")
    if readout is None:
        raise InputError(f"there is no readout {name!r}", cure="export the model again with this version")

    def read(
        outputs: Outputs, classes: Sequence[int], placements: Sequence[Placement], image_size: int
    ) -> list[list[Detection]]:
        if not all(np.isfinite(output).all() for output in outputs):
            raise InputError(NOT_FINITE, cure="train or export the detector again")
        n_classes = outputs[1].shape[-1]  # of either readout: the probability of each class
        if n_classes != len(classes):
            problem = f"it tells {n_classes} classes apart, and {len(classes)} are named"
            raise InputError(problem, cure="export the model again")
        return readout(outputs, classes, placements, image_size)

    return read


# ---------------------------------------------------------------------- those of torch
UNKNOWN = -100  # of a part whose state nobody knows; torch's losses leave it out


class TorchDetector(SquareDetector):
    """A detector with a torch module inside. Its settings are the keywords of its `__init__`, plain values all.

    Those of this package have a class of settings instead, which is checked, and what training starts from in one of
    them called `weights`.

    A detector that can be exported gives `outputs`, and names a readout, which makes detections of them, and
    the procedure's classes in the network's order.
    """

    config_class: ClassVar[type | None] = None
    readout: ClassVar[str | None] = None
    made_of_shapes: ClassVar[bool] = False  # whether it can be made without numbers, to see how large it is
    network: nn.Module
    classes: Sequence[int]

    def __init__(self, procedure: Procedure, **settings: Any) -> None:
        self.procedure = procedure
        self.calibration = Calibration()
        self.metrics: dict[str, Any] = {}
        self._settings = settings

    # ------------------------------------------------------------------ what each network says for itself
    def settings(self) -> dict[str, Any]:
        """What `from_settings` needs to build the same network."""
        return dict(self._settings)

    @classmethod
    def from_settings(cls, procedure: Procedure, settings: Mapping[str, Any]) -> TorchDetector:
        """A new detector, its network untrained."""
        if cls.config_class is not None:
            return cls(procedure, config=validate(cls.config_class, Document(dict(settings)), strict=True))
        try:
            return cls(procedure, **settings)
        except TypeError as error:
            raise InputError(f"these settings do not fit {cls.__name__} ({error})") from error

    @property
    def locator(self) -> Locator | None:
        """The network that finds the assembly first, where there is one. `raw_detections` then takes its boxes, too."""
        return None

    @property
    def locator_digest(self) -> str | None:
        return None if self.locator is None else tensors_digest(self.locator)

    def outputs(self, image_BSS3: Tensor, shares_B4: Tensor | None = None) -> tuple[Tensor, ...]:
        """What the readout takes. Boxes that a locator found already (shares of the square) need not be found again."""
        raise NotImplementedError

    def read_out(
        self, image_BSS3: Tensor, placements: Sequence[Placement], shares_B4: Tensor | None = None
    ) -> list[list[Detection]]:
        """`raw_detections` of a detector that has outputs and a readout."""
        outputs = [output.float().cpu().numpy() for output in self.outputs(image_BSS3, shares_B4)]
        return readout_named(self.readout)(outputs, self.classes, placements, self.image_size)

    @abstractmethod
    def raw_detections(self, image_BSS3: Tensor, placements: Sequence[Placement]) -> list[list[Detection]]:
        """All detections, before calibration, boxes in pixels of the original images.

        Images are bytes, on the network's device.
        """

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.network.parameters()).device

    def to(self, device: str | torch.device) -> Self:
        """Compute on a device from now on: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`."""
        self.network.to(device_of(device))
        return self

    def detect_squares(
        self,
        squares: Sequence[tuple[Image, Placement]],
        *,
        min_confidence: float = DEFAULT_MIN_CONFIDENCE,
        shares_B4: NDArray[np.float32] | None = None,
    ) -> list[list[Detection]]:
        import torch

        if self.network.training:
            self.network.eval()
        pixels_BSS3 = torch.from_numpy(np.stack([square for square, _ in squares])).to(self.device)
        with torch.inference_mode():
            known = {} if shares_B4 is None else {"shares_B4": torch.from_numpy(shares_B4).to(self.device)}
            found = self.raw_detections(pixels_BSS3, [placement for _, placement in squares], **known)
        return self.calibrated(found, min_confidence)

    # ------------------------------------------------------------------ files
    def save(self, folder: str | Path) -> None:
        config = {"kind": self.kind, "settings": self.settings(), "calibration": asdict(self.calibration)}
        (Path(folder) / KNOWN_VIEWS_FILE).unlink(missing_ok=True)  # those of other tensors
        write_folder(
            folder,
            config=yaml.safe_dump(config, sort_keys=False),
            tensors=self.network.state_dict(),
            procedure=self.procedure,
            metrics=self.metrics,
        )
        if self.known_views is not None:
            self.known_views.save(Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> TorchDetector:
        """A detector from a folder that `save` wrote."""
        folder = Path(folder)
        config, document = read_config(folder)
        procedure, settings = Procedure.load(folder / PROCEDURE_FILE), config.settings
        if cls.config_class is not None and "weights" in settings:
            settings = {**settings, "weights": "none"}  # its tensors are loaded below
        weights = folder / MODEL_FILE
        if not weights.is_file():
            raise InputError("there is no such file", path=weights, cure="the detector's folder is incomplete")
        made: list[TorchDetector] = []

        def network() -> nn.Module:
            made.append(cls.from_settings(procedure, settings))
            return made[-1].network

        try:
            tensors = read_tensors(weights, may_be_unnamed=True)
            built(network, tensors, folder, shapes_first=cls.made_of_shapes)
        except InputError as error:
            raise document.located(error) if error.path is None else error from error
        detector = made[-1]
        detector.calibration, detector.known_views = config.calibration, KnownViews.load(folder)
        if (folder / METRICS_FILE).is_file():
            detector.metrics = read_json_object(folder / METRICS_FILE, "table of metrics", cure="delete it")
        return detector


class Batch(NamedTuple):
    """Images to learn from, and what is known about them. Where `readable_B` is false, there is no box and no class."""

    image_BSS3: Tensor  # uint8
    readable_B: Tensor  # bool: whether there is a box
    maybe_hidden_B: Tensor  # bool: there is a box, but perhaps nobody could read the state
    corners_B4: Tensor
    state_class_B: Tensor  # 0 if there is none
    bits_BC: Tensor  # -1, 0, 1, or UNKNOWN
    told_BC: Tensor  # whether each component shows enough to be told: 0, 1, or UNKNOWN
    places_BCP2: Tensor  # see `stormpsr.data.places`, in pixels of the image; nan where nobody knows
    step: int  # that these images are for


class StepTrainedDetector(TorchDetector):
    """A detector whose network we train ourselves, step by step (see `stormpsr.training.tasks.detector`)."""

    learns_parts: ClassVar[bool] = False  # whether images of states that have no class teach it something, too

    @abstractmethod
    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """The parts of the training loss; their sum is minimised."""

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """What the optimiser changes, and how fast."""
        return [{"params": list(self.network.parameters()), "lr": learning_rate}]


@dataclass(frozen=True)
class DetectorFile:
    """What the `config.yaml` of a saved detector says."""

    kind: str
    settings: dict[str, Any]
    calibration: Calibration = field(default_factory=Calibration)

    __pydantic_config__ = STRICT_KEYS


def read_config(folder: Path) -> tuple[DetectorFile, Document]:
    """What kind of detector a folder holds, and where that is written."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        problem = "this is not a detector's folder" if folder.is_dir() else "there is no such folder"
        raise InputError(
            problem, path=folder, cure=f"a detector's folder holds {CONFIG_FILE}; 'detect train' makes one"
        )
    document = read_yaml(path)
    return validate(DetectorFile, document, strict=True), document
