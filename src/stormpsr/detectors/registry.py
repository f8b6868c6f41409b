"""Detectors by name, and from the folders they were saved to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

from stormpsr.detectors.base import StateDetector, read_config
from stormpsr.errors import InputError
from stormpsr.models.checkpoint import CONFIG_FILE
from stormpsr.procedure.model import Procedure

DetectorKind = Literal["compact", "yolox", "yolov8"]


def _class_of(kind: str) -> Any:
    if kind == "compact":
        from stormpsr.detectors.compact import CompactDetector

        return CompactDetector
    if kind == "yolox":
        from stormpsr.detectors.yolox import YoloxDetector

        return YoloxDetector
    if kind == "yolov8":
        from stormpsr.detectors.yolov8 import Yolov8Detector

        return Yolov8Detector
    raise InputError(f"unknown detector {kind!r}", cure=f"choose one of: {', '.join(get_args(DetectorKind))}")


def make_detector(kind: str, procedure: Procedure, settings: dict[str, Any] | None = None) -> StateDetector:
    """A new, untrained detector. Settings are those of its config class, by name."""
    detector: StateDetector = _class_of(kind).from_settings(procedure, settings or {})
    return detector


def load_detector(folder: str | Path, procedure: Procedure | None = None) -> StateDetector:
    """A detector from a folder that it was saved to. With a procedure, it must be the one it was trained for."""
    folder = Path(folder)
    config = read_config(folder)
    try:
        detector: StateDetector = _class_of(str(config["kind"])).load(folder)
    except InputError as error:
        raise InputError(error.problem, path=error.path or folder / CONFIG_FILE, cure=error.cure) from error
    if procedure is not None:
        detector.check_procedure(procedure, folder)
    return detector
