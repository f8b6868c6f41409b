# mypy: disallow-subclassing-any=False
"""Networks of torch as ONNX graphs. Each one is run once it is written, and must say what torch says.

The graphs hold everything from the letterboxed image on: scaling, the crop around the assembly, probabilities.

Shape legend: B images or windows, S pixels of a side, 3 colours, N frames of a window, D dimensions, C components.
"""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stormpsr.detectors.base import StateDetector, TorchDetector
from stormpsr.errors import InputError, need_packages
from stormpsr.files import replacing
from stormpsr.models.encoder import SpatialEncoder
from stormpsr.models.locator import Locator
from stormpsr.models.stream import TorchStream
from stormpsr.models.temporal import all_outputs
from stormpsr.runtime.exported import DETECTOR_GRAPH, ENCODER_GRAPH, FOUND_GRAPH, LOCATOR_GRAPH, TEMPORAL_GRAPH
from stormpsr.runtime.graphs import OPSET, Engine, GraphsInfo, open_graph

_BATCHES = (1, 2, 5)  # live use, and more: a graph that was frozen to the size of its example would fail
_MOST_DIFFERENCE = 1e-3  # between torch and a graph, of the greatest number that torch says or of 1
_MOST_IMAGES = 1024  # of a batch


class _Network(nn.Module):
    """A function that uses a network, as a module that has the network's tensors."""

    def __init__(self, network: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.network, self.function = network, function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def export_detector(
    detector: StateDetector, folder: Path, *, engine: Engine = "onnx", locator_graph: Path | None = None
) -> GraphsInfo:
    """Write the graphs of a detector. `locator_graph`: that of its locator, if it has been written already."""
    if not isinstance(detector, TorchDetector) or detector.readout is None:
        cure = "give its class `outputs`, `readout` and `classes`: see stormpsr.detectors.base.TorchDetector"
        raise InputError(f"a detector of kind {detector.kind!r} cannot be exported", cure=cure)
    if detector.device.type != "cpu":
        raise InputError(f"the detector is on {detector.device}", cure="load it with device='cpu' to export it")
    detector.network.eval()
    locator = detector.locator
    inputs = _example_images(detector.image_size, located=locator is not None)
    what = f"the detector ({detector.kind})"
    _write(_Network(detector.network, detector.outputs), inputs, folder / DETECTOR_GRAPH, engine, what)
    if locator_graph is not None:
        shutil.copyfile(locator_graph, folder / LOCATOR_GRAPH)
    elif locator is not None:
        _write_locator(locator, detector.image_size, folder, engine)
    return GraphsInfo(
        engine=engine,
        opset=OPSET,
        image_size=detector.image_size,
        locator=detector.locator_digest,
        reader=detector.reader_digest,
        readout=detector.readout,
        classes=tuple(detector.classes),
    )


def export_stream(stream: TorchStream, n_window: int, folder: Path, *, engine: Engine = "onnx") -> GraphsInfo:
    """Write the graphs of a spatio-temporal stream whose windows have so many frames."""
    export_encoder(stream.encoder, folder, engine=engine)
    export_temporal(stream.temporal, (n_window, stream.embedding_dim), folder, engine=engine)
    return GraphsInfo(
        engine=engine,
        opset=OPSET,
        image_size=stream.image_size,
        locator=stream.locator_digest,
        reader=stream.reader_digest,
    )


def export_encoder(encoder: SpatialEncoder, folder: Path, *, engine: Engine = "onnx") -> None:
    """Write the graphs of a spatial encoder: from the image, and the box around the assembly, to the embedding."""
    images = _example_images(encoder.image_size, located=encoder.locator is not None)
    _write(_Network(encoder, encoder.embed), images, folder / ENCODER_GRAPH, engine, "the encoder")
    if encoder.locator is not None:
        _write_locator(encoder.locator, encoder.image_size, folder, engine)
    if encoder.frozen_reader:  # a detector may have read the image already
        shape = encoder.backbone.reader.query_QD.shape
        found = {"found": torch.randn(max(_BATCHES), *shape, generator=torch.Generator().manual_seed(0))}
        what = "the encoder's last layers"
        _write(_Network(encoder, encoder.embed_found), found, folder / FOUND_GRAPH, engine, what)


def export_temporal(temporal: nn.Module, window: tuple[int, int], folder: Path, *, engine: Engine = "onnx") -> None:
    """Write the graph of a temporal model for windows of so many frames with embeddings of so many dimensions."""
    draw = torch.Generator().manual_seed(0)
    embedding_BND = torch.rand(max(_BATCHES), *window, generator=draw)
    mask_BN = torch.rand(embedding_BND.shape[:2], generator=draw) > 0.3
    mask_BN[:, -1] = True
    windows = {"embedding": embedding_BND, "mask": mask_BN}
    what = f"the temporal model ({type(temporal).__name__})"
    function = _Network(temporal, lambda clip_BND, mask_BN: all_outputs(temporal, clip_BND, mask_BN))
    _write(function, windows, folder / TEMPORAL_GRAPH, engine, what)


def _write_locator(locator: Locator, image_size: int, folder: Path, engine: Engine) -> None:
    images = _example_images(image_size, located=False)
    _write(_Network(locator, locator.locate), images, folder / LOCATOR_GRAPH, engine, "the locator")


def _example_images(size: int, *, located: bool) -> dict[str, Tensor]:
    """Images of noise, and boxes in them."""
    draw = torch.Generator().manual_seed(0)
    n = max(_BATCHES)
    images = {"image": torch.randint(0, 256, (n, size, size, 3), generator=draw, dtype=torch.uint8)}
    low_B2 = torch.rand(n, 2, generator=draw) * 0.5
    boxes = {"shares": torch.cat([low_B2, low_B2 + 0.2 + 0.3 * torch.rand(n, 2, generator=draw)], dim=1)}
    return images | boxes if located else images


def _write(module: nn.Module, inputs: Mapping[str, Tensor], path: Path, engine: Engine, what: str) -> None:
    """Write a graph, and make sure that the engine says with it what torch says, however many images it is given."""
    need_packages("exporting a model", "export", "onnx", "onnxscript", "onnxruntime")
    module = module.eval()
    example = tuple(value[:2] for value in inputs.values())  # of one image, torch would take the axis for fixed
    batch = torch.export.Dim("batch", min=1, max=_MOST_IMAGES)
    try:
        with _quietly(), torch.no_grad():
            program = torch.export.export(module, example, dynamic_shapes=(tuple({0: batch} for _ in example),))
            graph = torch.onnx.export(
                program, dynamo=True, opset_version=OPSET, input_names=list(inputs), verbose=False, external_data=False
            )
    except Exception as error:  # of dozens of classes, whatever a network does that ONNX has no word for
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        cure = "run the model as it is: it needs torch"
        raise InputError(f"{what} cannot be exported ({reason})", cure=cure) from error
    with replacing(path) as draft, _quietly():
        graph.save(draft, external_data=False)
    _check(module, inputs, path, engine, what)


def _check(module: nn.Module, inputs: Mapping[str, Tensor], path: Path, engine: Engine, what: str) -> None:
    run = open_graph(path, engine, threads=1)
    for n in _BATCHES:
        chosen = [value[:n] for value in inputs.values()]
        with torch.inference_mode():
            said = module(*chosen)
        wanted = [output.numpy() for output in (said if isinstance(said, tuple) else (said,))]
        try:
            found = run(*(value.numpy() for value in chosen))
            difference = _difference(wanted, found)
        except Exception as error:  # engines have classes of their own, derived from nothing better
            reason = str(error).strip().splitlines()[0]
            raise InputError(f"{what}, exported, does not run on {n} at once ({reason})") from error
        if not difference <= _MOST_DIFFERENCE:
            cure = "run the model as it is: it needs torch"
            raise InputError(f"{what}, exported, differs from torch by {difference:.1e} on {n} at once", cure=cure)


def _difference(wanted: Sequence[Any], found: Sequence[Any]) -> float:
    """The greatest, as a share of the greatest number that is wanted, or of 1; infinite where shapes differ."""
    if [array.shape for array in wanted] != [array.shape for array in found]:
        return float("inf")
    worst = 0.0
    for ours, theirs in zip(wanted, found, strict=True):
        if not np.array_equal(np.isnan(ours), np.isnan(theirs)):
            return float("inf")
        known = ~np.isnan(ours)
        scale = max(1.0, float(np.abs(ours[known]).max(initial=0.0)))
        worst = max(worst, float(np.abs(ours[known] - theirs[known]).max(initial=0.0)) / scale)
    return worst


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what the exporter says to those who develop it; and with attention written out, which ONNX knows."""
    fast, logged = torch.backends.mha.get_fastpath_enabled(), logging.root.manager.disable
    torch.backends.mha.set_fastpath_enabled(False)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        logging.disable(logged)
