# mypy: disallow-subclassing-any=False
"""The spatio-temporal stream: spatial encoder and temporal model together, built from settings; and how large it is.

Shape legend: B clips, N frames of a clip, S pixels of a side, H height, W width, 3 colours, D dimensions, C components.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from stormpsr.config import Config, EncoderConfig
from stormpsr.models.checkpoint import device_of, tensors_digest
from stormpsr.models.encoder import SpatialEncoder, is_detector, start_from_detector
from stormpsr.models.temporal import all_outputs, make_temporal

if TYPE_CHECKING:
    from stormpsr.models.locator import Locator


class SpatioTemporalModel(nn.Module):
    """From images to logits. Frames that do not exist are encoded like the others, and then masked."""

    def __init__(self, encoder: SpatialEncoder, temporal: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.temporal = temporal

    def forward(self, image_BNHW3: Tensor, mask_BN: Tensor) -> Tensor:
        """One logit per component: did it change within the clip? Shape (B, C)."""
        embedding_XD = self.encoder.embed(image_BNHW3.flatten(0, 1))
        return self.temporal(embedding_XD.unflatten(0, mask_BN.shape), mask_BN)


class TorchStream:
    """The stream as a recogniser calls it: arrays in, arrays out. Its temporal model may be of anybody's class."""

    def __init__(self, model: nn.Module, device: str | torch.device = "cpu") -> None:
        self.device = device_of(device)
        self.model = model.eval().to(self.device)
        self.encoder, self.temporal = model.encoder, model.temporal
        self.image_size: int = self.encoder.image_size
        self.embedding_dim: int = self.encoder.embedding_dim
        self._locator: Locator | None = getattr(self.encoder, "locator", None)

    @property
    def locator_digest(self) -> str | None:
        """A fingerprint of the network that finds the assembly first, where there is one."""
        return None if self._locator is None else tensors_digest(self._locator)

    def locate(self, image_BSS3: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Boxes around the assembly as shares of the square, (B, 4)."""
        assert self._locator is not None
        return self._run(self._locator.locate, image_BSS3)

    def embed(self, image_BSS3: NDArray[np.uint8], shares_B4: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Embeddings, (B, D); boxes that are known already need not be located again."""
        return self._run(self.encoder.embed, image_BSS3, *([] if shares_B4 is None else [shares_B4]))

    @property
    def reader_digest(self) -> str | None:
        """A fingerprint of the locator and of what reads the crop, where these are a detector's."""
        return self.encoder.reader_digest if isinstance(self.encoder, SpatialEncoder) else None

    def embed_found(self, found_BQD: NDArray[np.float32]) -> NDArray[np.float32]:
        """Embeddings, (B, D), of what a detector with the same reader found already."""
        return self._run(self.encoder.embed_found, found_BQD)

    def predict(self, embedding_BND: NDArray[np.float32], mask_BN: NDArray[np.bool_]) -> NDArray[np.float32]:
        """What the temporal model says of each component, (B, C, 10): see `TemporalModel.outputs`."""
        return self._run(partial(all_outputs, self.temporal), embedding_BND, mask_BN)

    def _run(self, network: Callable[..., Tensor], *arrays: NDArray[Any]) -> NDArray[np.float32]:
        with torch.inference_mode():
            output = network(*(torch.from_numpy(array).to(self.device) for array in arrays))
            return np.asarray(output.float().cpu().numpy(), dtype=np.float32)


def build_encoder(config: EncoderConfig, *, weights: str | None = None) -> SpatialEncoder:
    """A spatial encoder; `weights` replaces the setting (`none` where a checkpoint will fill it anyway)."""
    weights = config.weights if weights is None else weights
    from_detector = is_detector(weights)
    encoder = SpatialEncoder(
        backbone=config.backbone,
        weights="none" if from_detector else weights,
        image_size=config.image_size,
        embedding_dim=config.embedding_dim,
        projection_norm=config.projection_norm,
        n_queries=config.n_queries,
        frozen_stride=config.frozen_stride,
        crop_size=config.crop_size,
        head_on_features=config.head_on_features,
        embedding_norm=config.embedding_norm,
        frozen_reader=config.frozen_reader,
    )
    if from_detector:
        start_from_detector(encoder, Path(weights))
    return encoder


def build_temporal(config: Config, n_components: int) -> nn.Module:
    """A temporal model of the kind that the settings name."""
    sizes = {"embedding_dim": config.encoder.embedding_dim, "n_window": config.clips.n_window}
    return make_temporal(config.temporal, **sizes, n_components=n_components)


def build_stream(config: Config, n_components: int, *, weights: str | None = None) -> SpatioTemporalModel:
    """Both together, untrained but for the encoder's pretrained weights."""
    return SpatioTemporalModel(build_encoder(config.encoder, weights=weights), build_temporal(config, n_components))


# ---------------------------------------------------------------------- size
def count_parameters(module: nn.Module) -> int:
    """The number of parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


def count_multiply_adds(module: nn.Module, run: Callable[[nn.Module], Tensor]) -> int:
    """Multiply-adds of matrix products, convolutions and attention in one call of `run(module)`.

    Counted without computing: the module's copy holds shapes and no numbers, and `run` must make its inputs with
    `device="meta"`. On a real device some fused operators would go uncounted.
    """
    shapes_only = copy.deepcopy(module).to("meta").eval().requires_grad_(False)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        run(shapes_only)
    return int(counter.get_total_flops()) // 2  # the counter takes a multiplication and an addition for two


@dataclass(frozen=True, slots=True)
class StageSize:
    """One stage of the stream."""

    name: str
    what: str
    shape_in: tuple[int, ...]  # of one frame or one clip
    shape_out: tuple[int, ...]
    parameters: int
    multiply_adds: int  # for one frame or one clip
    per: str  # frame or clip
    in_use: bool = True  # False: for training only


def stage_sizes(config: Config, n_components: int) -> list[StageSize]:
    """Locator, backbone, projection head and temporal model, measured on shapes: nothing is loaded or computed."""
    with torch.device("meta"):
        stream = build_stream(config, n_components, weights="none")
    size, dim, n = config.encoder.image_size, config.encoder.embedding_dim, config.clips.n_window
    encoder = stream.encoder
    seen = config.encoder.crop_size or size
    whole, image = torch.zeros(1, size, size, 3, device="meta"), torch.zeros(1, 3, seen, seen, device="meta")
    seen_by_head = int(encoder.first_projection[0].in_features)
    features_BD, h_BD = torch.zeros(1, seen_by_head, device="meta"), torch.zeros(1, dim, device="meta")
    clip_BND = torch.zeros(1, n, dim, device="meta")
    mask_BN = torch.ones(1, n, dtype=torch.bool, device="meta")

    def stage(
        name: str,
        what: str,
        module: nn.Module,
        inputs: tuple[Tensor, ...],
        shape_out: tuple[int, ...],
        per: str,
        in_use: bool = True,
    ) -> StageSize:
        run: Callable[[nn.Module], Tensor] = lambda shapes: shapes(*inputs)  # noqa: E731
        counts = count_parameters(module), count_multiply_adds(module, run)
        return StageSize(name, what, tuple(inputs[0].shape[1:]), shape_out, *counts, per, in_use)

    kind = config.temporal.kind
    locator = encoder.locator
    return [
        *([] if locator is None else [stage("locator", "finds the assembly", locator, (whole,), (4,), "frame")]),
        stage("backbone", config.encoder.backbone, encoder.backbone, (image,), (seen_by_head,), "frame"),
        stage("projection 1", "first layer of g", encoder.first_projection, (features_BD,), (dim,), "frame"),
        stage("projection 2, 3", "rest of g, for training only", encoder.projection, (h_BD,), (dim,), "frame", False),
        stage("temporal", kind, stream.temporal, (clip_BND, mask_BN), (n_components,), "clip"),
    ]
