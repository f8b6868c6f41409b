"""Graphs in 8 bits: a quarter of the size. What range each layer's numbers have is learnt from images (static

quantisation of ONNX Runtime, which needs the package onnx as well).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError, need_packages
from stormpsr.files import replacing
from stormpsr.runtime.exported import LOCATOR_GRAPH
from stormpsr.runtime.graphs import GraphsInfo, open_graph

_LAYERS = ("Conv", "MatMul", "Gemm")  # where the time goes; all else stays as it is


def quantise(folder: Path, name: str, info: GraphsInfo, square_XSS3: NDArray[np.uint8]) -> None:
    """Replace a graph that takes images by one in 8 bits, after showing it images as it will see them."""
    if not len(square_XSS3):
        raise InputError("there are no images to calibrate with", cure="give recordings that have frames")
    inputs = [{"image": square[None]} for square in square_XSS3]
    if info.locator:
        locate = open_graph(folder / LOCATOR_GRAPH, info.engine, threads=1)
        inputs = [{**own, "shares": locate(own["image"])[0]} for own in inputs]
    _quantise_graph(folder / name, inputs)


def _quantise_graph(path: Path, inputs: Iterable[Mapping[str, NDArray[Any]]]) -> None:
    need_packages("quantising a model", "export", "onnx", "onnxruntime")
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Shown(quantization.CalibrationDataReader):  # type: ignore[misc]  # it has no types
        """Hands out one input after the other."""

        def __init__(self) -> None:
            self._rest = iter(inputs)

        def get_next(self) -> Mapping[str, NDArray[Any]] | None:
            return next(self._rest, None)

    logged = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with TemporaryDirectory() as place, replacing(path) as draft:
            prepared = Path(place) / "prepared.onnx"
            quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
            quantization.quantize_static(
                str(prepared),
                str(draft),
                Shown(),
                op_types_to_quantize=list(_LAYERS),
                per_channel=True,
                reduce_range=True,  # processors without VNNI add 8-bit products in 16 bits, which may overflow
            )
    finally:
        logging.disable(logged)
