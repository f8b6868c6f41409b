"""Exported networks as the recogniser calls them: a detector and a spatio-temporal stream whose networks are graphs.

    detector/  detector.onnx, locator.onnx if there is one, graphs.json; config.yaml and the rest as it was trained
    stream/    encoder.onnx, temporal.onnx, locator.onnx if there is one, graphs.json; the rest as it was trained;
               encoder_found.onnx, if the encoder takes what the detector's reader found

Importing and using this needs no torch.

Shape legend: B images or windows, S pixels of a side, 3 colours, N frames of a window, D dimensions, C components.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from stormpsr.config import Config, load_config
from stormpsr.data.images import Image, Placement
from stormpsr.detectors.base import (
    DEFAULT_MIN_CONFIDENCE,
    Detection,
    SquareDetector,
    read_config,
    readout_named,
)
from stormpsr.detectors.known_views import KnownViews
from stormpsr.errors import InputError
from stormpsr.files import read_json_object
from stormpsr.models.checkpoint import CONFIG_FILE, METRICS_FILE, PROCEDURE_FILE
from stormpsr.procedure.model import Procedure
from stormpsr.runtime.graphs import GraphsInfo, Run, check_device, open_graph

DETECTOR_GRAPH, ENCODER_GRAPH, FOUND_GRAPH, TEMPORAL_GRAPH, LOCATOR_GRAPH = (
    f"{name}.onnx" for name in ("detector", "encoder", "encoder_found", "temporal", "locator")
)


@dataclass(frozen=True)
class _Located:
    """A network that is told where the assembly is, and the one that says so; or one that sees the whole image."""

    network: Run
    locator: Run | None

    @classmethod
    def load(cls, folder: Path, name: str, info: GraphsInfo, threads: int | None) -> _Located:
        names = [name, *([LOCATOR_GRAPH] if info.locator else [])]
        network, *locator = (open_graph(folder / file, info.engine, threads=threads) for file in names)
        return cls(network, locator[0] if locator else None)

    def locate(self, image_BSS3: NDArray[np.uint8]) -> NDArray[np.float32]:
        assert self.locator is not None
        return self.locator(image_BSS3)[0]

    def __call__(self, image_BSS3: NDArray[np.uint8], shares_B4: NDArray[np.float32] | None) -> list[NDArray[Any]]:
        if self.locator is None:
            return self.network(image_BSS3)
        return self.network(image_BSS3, self.locate(image_BSS3) if shares_B4 is None else shares_B4)


class ExportedDetector(SquareDetector):
    """A detector of any kind that could be exported."""

    kind: ClassVar[str] = "exported"

    def __init__(self, procedure: Procedure, info: GraphsInfo, network: _Located) -> None:
        self.procedure, self._info, self._network = procedure, info, network
        self.image_size = info.image_size
        self._readout = readout_named(info.readout)

    @property
    def locator_digest(self) -> str | None:
        return self._info.locator

    @property
    def reader_digest(self) -> str | None:
        return self._info.reader

    def detect_squares(
        self,
        squares: Sequence[tuple[Image, Placement]],
        *,
        min_confidence: float = DEFAULT_MIN_CONFIDENCE,
        shares_B4: NDArray[np.float32] | None = None,
    ) -> list[list[Detection]]:
        outputs = self._network(np.stack([square for square, _ in squares]), shares_B4)
        placements = [placement for _, placement in squares]
        return self.calibrated(self._readout(outputs, self._info.classes, placements, self.image_size), min_confidence)

    def save(self, folder: str | Path) -> None:
        cure = "copy its folder, or export the model again"
        raise InputError("an exported detector cannot be changed and saved", path=folder, cure=cure)

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto", threads: int | None = None) -> ExportedDetector:
        """A detector from a folder that was exported."""
        folder = Path(folder)
        check_device(device)
        info = GraphsInfo.load(folder)
        network = _Located.load(folder, DETECTOR_GRAPH, info, threads)
        detector = cls(Procedure.load(folder / PROCEDURE_FILE), info, network)
        detector.calibration = read_config(folder)[0].calibration
        detector.known_views = KnownViews.load(folder)
        metrics = folder / METRICS_FILE
        detector.metrics = read_json_object(metrics, "table of metrics", cure="delete it") if metrics.is_file() else {}
        return detector


class ExportedStream:
    """The spatio-temporal stream."""

    def __init__(
        self,
        config: Config,
        procedure: Procedure,
        info: GraphsInfo,
        encoder: _Located,
        found: Run | None,
        temporal: Run,
    ) -> None:
        self.config, self.procedure, self.locator_digest = config, procedure, info.locator
        self.reader_digest = None if found is None else info.reader
        self.image_size, self.embedding_dim = info.image_size, config.encoder.embedding_dim
        self._encoder, self._found, self._temporal = encoder, found, temporal
        self.locate = encoder.locate

    def embed(self, image_BSS3: NDArray[np.uint8], shares_B4: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Embeddings, (B, D); boxes that are known already need not be located again."""
        return self._checked(self._encoder(image_BSS3, shares_B4)[0])

    def embed_found(self, found_BQD: NDArray[np.float32]) -> NDArray[np.float32]:
        """Embeddings, (B, D), of what a detector with the same reader found already."""
        assert self._found is not None
        return self._checked(self._found(found_BQD)[0])

    def _checked(self, embedding_BD: NDArray[np.float32]) -> NDArray[np.float32]:
        """Embeddings as `config.yaml` announces them: somebody may have changed it since."""
        if embedding_BD.shape[1:] != (self.embedding_dim,):
            problem = f"its embeddings have {embedding_BD.shape[-1]} numbers, and {self.embedding_dim} are announced"
            raise InputError(problem, cure="export the model again")
        return embedding_BD

    def predict(self, embedding_BND: NDArray[np.float32], mask_BN: NDArray[np.bool_]) -> NDArray[np.float32]:
        """What the temporal model says of each component, (B, C, 10)."""
        return self._temporal(embedding_BND, mask_BN)[0]

    @classmethod
    def load(cls, folder: Path, *, device: str = "auto", threads: int | None = None) -> ExportedStream:
        """A stream from a folder that was exported."""
        check_device(device)
        info = GraphsInfo.load(folder)
        encoder = _Located.load(folder, ENCODER_GRAPH, info, threads)
        names = (FOUND_GRAPH, TEMPORAL_GRAPH) if info.reader else (TEMPORAL_GRAPH,)
        *found, temporal = (open_graph(folder / name, info.engine, threads=threads) for name in names)
        config, procedure = load_config(folder / CONFIG_FILE), Procedure.load(folder / PROCEDURE_FILE)
        return cls(config, procedure, info, encoder, found[0] if found else None, temporal)
