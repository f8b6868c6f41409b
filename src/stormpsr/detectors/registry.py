"""Detectors by name, and from the folders they were saved to.

Besides those of this package, any class that is a `StateDetector` can be named as `package.module:Class`. Naming it
imports its module: a detector's folder that names one runs that module's code, which must be installed here already.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stormpsr.decoding.methods import import_class
from stormpsr.detectors.base import StateDetector, TorchDetector, read_config
from stormpsr.errors import InputError
from stormpsr.models.checkpoint import GRAPHS_FILE, MODEL_FILE, begin_with, device_of, read_tensors
from stormpsr.procedure.model import Procedure

if TYPE_CHECKING:
    import torch

DETECTORS = {
    "compact": "stormpsr.detectors.compact:CompactDetector",
    "yolox": "stormpsr.detectors.yolox:YoloxDetector",
    "yolov8": "stormpsr.detectors.yolov8:Yolov8Detector",
}


_EXPORTED = "stormpsr.runtime.exported:ExportedDetector"  # of any kind; by name, because it stands above


def _class_of(kind: str) -> Any:
    where = DETECTORS.get(kind, kind)
    if ":" not in where:
        cure = f"choose one of: {', '.join(DETECTORS)}, or name your own as package.module:Class"
        raise InputError(f"unknown detector {kind!r}", cure=cure)
    found = import_class(where, f"detector {kind!r}")
    if not (isinstance(found, type) and issubclass(found, StateDetector)):
        cure = "name a class that is derived from stormpsr.detectors.base.StepTrainedDetector"
        raise InputError(f"{kind!r} is not a detector", cure=cure)
    return found


def make_detector(kind: str, procedure: Procedure, settings: dict[str, Any] | None = None) -> StateDetector:
    """A new, untrained detector. Settings are those of its config class, by name."""
    detector: StateDetector = _class_of(kind).from_settings(procedure, settings or {})
    return detector


def begin_detector(
    folder: str | Path, procedure: Procedure, settings: Mapping[str, Any] | None = None
) -> TorchDetector:
    """A detector to be trained further: of the kind and the settings of a saved one, with all its tensors that fit.

    settings: those that are to be others.
    """
    folder = Path(folder)
    config, _ = read_config(folder)
    if (folder / GRAPHS_FILE).is_file() or not issubclass(_class_of(config.kind), TorchDetector):
        cure = "choose one of kind compact or yolox that was not exported"
        raise InputError("this detector cannot be trained further", path=folder, cure=cure)
    made = make_detector(config.kind, procedure, {**config.settings, **(settings or {})})
    assert isinstance(made, TorchDetector)
    begin_with(made.network, read_tensors(folder / MODEL_FILE, may_be_unnamed=True))
    return made


def load_detector(
    folder: str | Path,
    procedure: Procedure | None = None,
    *,
    device: str | torch.device = "auto",
    threads: int | None = None,
) -> StateDetector:
    """A detector from a folder that it was saved or exported to. With a procedure, it must be the one of its training.

    device: where it computes: `auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1` or `mps`.
    threads: of the processor that it uses; None leaves it to what computes it.
    """
    folder = Path(folder)
    config, document = read_config(folder)
    detector: StateDetector
    if (folder / GRAPHS_FILE).is_file():
        detector = import_class(_EXPORTED, "an exported detector").load(folder, device=str(device), threads=threads)
    else:
        try:
            kind = _class_of(config.kind)
        except InputError as error:
            raise document.error(error.problem, ("kind",), error.cure) from error
        where = device_of(device, threads)
        detector = kind.load(folder)
        if isinstance(detector, TorchDetector):
            detector.to(where)
    if procedure is not None:
        detector.check_procedure(procedure, folder)
    return detector
