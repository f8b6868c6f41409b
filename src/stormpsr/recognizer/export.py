"""A model whose networks need torch, as one that runs without: networks become graphs, everything else is copied."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.dataset import Dataset
from stormpsr.data.images import Image, letterbox
from stormpsr.errors import InputError
from stormpsr.files import replacing_folder
from stormpsr.models.checkpoint import GRAPHS_FILE, MODEL_FILE
from stormpsr.recognizer.model_folder import (
    DETECTOR_FOLDER,
    SETTINGS_FILE,
    STREAM_FOLDER,
    RecognizerModel,
    load_model,
    resolve_model,
)
from stormpsr.runtime.exported import DETECTOR_GRAPH, ENCODER_GRAPH

if TYPE_CHECKING:
    from stormpsr.runtime.graphs import Engine, GraphsInfo

_CALIBRATION_IMAGES = 128


def export_model(
    model: str | Path, out: str | Path, *, engine: Engine = "onnx", calibration: Iterable[Image] | None = None
) -> RecognizerModel:
    """Write a model's folder whose networks are graphs, and load it.

    calibration: images of the work; where they are given, detector and encoder are written in 8 bits. The temporal
    model and the locator, which are small, stay as they are.
    """
    from stormpsr.models.stream import TorchStream
    from stormpsr.runtime.export import export_detector, export_stream

    source, out = resolve_model(model), Path(out)
    if any((source / part / GRAPHS_FILE).is_file() for part in (STREAM_FOLDER, DETECTOR_FOLDER)):
        raise InputError("this model was exported already", path=source, cure="give the one that it was made from")
    is_export = (out / SETTINGS_FILE).is_file() and any(out.glob(f"*/{GRAPHS_FILE}"))
    if out.exists() and not is_export and (out.is_file() or any(out.iterdir())):
        raise InputError("this is no exported model, and would be overwritten", path=out, cure="choose another name")
    networks = load_model(source, device="cpu").networks
    images = None if calibration is None else list(calibration)
    with replacing_folder(out) as draft:
        shutil.copytree(source, draft, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MODEL_FILE))
        if isinstance(networks.stream, TorchStream):
            part = draft / STREAM_FOLDER
            info = export_stream(networks.stream, len(networks.offsets_N), part, engine=engine)
            _finish(part, ENCODER_GRAPH, info, images)
        if networks.detector is not None:
            part = draft / DETECTOR_FOLDER
            _finish(part, DETECTOR_GRAPH, export_detector(networks.detector, part, engine=engine), images)
        load_model(draft, device="cpu")  # what cannot be loaded is not written
    return load_model(out, device="cpu")


def _finish(folder: Path, name: str, info: GraphsInfo, images: list[Image] | None) -> None:
    if images is not None:
        from stormpsr.runtime.quantise import quantise

        quantise(folder, name, info, _squares(images, info.image_size))
        info = replace(info, precision="int8")
    info.save(folder)


def _squares(images: list[Image], size: int) -> NDArray[np.uint8]:
    return np.array([letterbox(image, size)[0] for image in images], dtype=np.uint8)


def calibration_images(dataset: Dataset) -> list[Image]:
    """Some frames of every recording, evenly spread."""
    names = list(dataset.names)
    each = -(-_CALIBRATION_IMAGES // max(len(names), 1))
    chosen: list[Image] = []
    for name in names:
        recording = dataset[name]
        step = max(recording.n_frames // each, 1)
        chosen += [frame.image for frame in islice(recording.frames(), 0, None, step)][:each]
    return chosen
