# mypy: disallow-subclassing-any=False
"""The spatio-temporal stream: spatial encoder and temporal model together, built from settings.

Shape legend: B clips, N frames of a clip, H height, W width, 3 colours, D dimensions, C components.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from stormpsr.config import Config, EncoderConfig, LSTMConfig, MLPConfig, StatesConfig, TCNConfig
from stormpsr.models.encoder import SpatialEncoder
from stormpsr.models.start_weights import is_detector, start_from_detector
from stormpsr.models.temporal import (
    AveragedModel,
    LSTMModel,
    MLPModel,
    StatesModel,
    TCNModel,
    TemporalModel,
    TransformerModel,
)


class SpatioTemporalModel(nn.Module):
    """From images to logits. Frames that do not exist are encoded like the others, and then masked."""

    def __init__(self, encoder: SpatialEncoder, temporal: TemporalModel) -> None:
        super().__init__()
        self.encoder = encoder
        self.temporal = temporal

    def forward(self, image_BNHW3: Tensor, mask_BN: Tensor) -> Tensor:
        """One logit per component: did it change within the clip? Shape (B, C)."""
        embedding_XD = self.encoder.embed(image_BNHW3.flatten(0, 1))
        return self.temporal(embedding_XD.unflatten(0, mask_BN.shape), mask_BN)


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
    )
    if from_detector:
        start_from_detector(encoder, Path(weights))
    return encoder


def build_temporal(config: Config, n_components: int) -> TemporalModel:
    """A temporal model of the kind that the settings name."""
    sizes = {
        "embedding_dim": config.encoder.embedding_dim,
        "n_frames": config.clips.n_window,
        "n_components": n_components,
        **config.temporal.model_dump(exclude={"kind", "members"}),
    }
    match config.temporal:
        case LSTMConfig():
            return LSTMModel(**sizes)
        case TCNConfig():
            return TCNModel(**sizes)
        case MLPConfig():
            return MLPModel(**sizes)
        case StatesConfig():
            members = [StatesModel(**sizes) for _ in range(config.temporal.members)]
            return AveragedModel(members) if len(members) > 1 else members[0]
        case _:
            return TransformerModel(**sizes)


def build_stream(config: Config, n_components: int, *, weights: str | None = None) -> SpatioTemporalModel:
    """Both together, untrained but for the encoder's pretrained weights."""
    return SpatioTemporalModel(build_encoder(config.encoder, weights=weights), build_temporal(config, n_components))
