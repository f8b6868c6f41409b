"""The spatial encoder: an image becomes an embedding of what is assembled in it.

Shape legend: B images, H height, W width, 3 colours, D dimensions.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from stormpsr.models.attention_pooling import EmbedByQueries, ReadByQueries
from stormpsr.models.backbones import create_backbone
from stormpsr.models.locator import Locator, Motion, crop

ProjectionNorm = Literal["batch", "none"]


class SpatialEncoder(nn.Module):
    """A backbone f whose last layer gives h, and a projection head g of three layers that gives z.

    Training compares z. The temporal stage takes `embed`: f and the first layer of g, the place where a contrastively
    trained network keeps more than the head's end, which has forgotten what the loss did not ask for.

    The head's hidden layers are linear, batch normalisation, ReLU, each as wide as h. The paper gives neither; this is
    the head of the work that it cites.
    """

    def __init__(
        self,
        *,
        backbone: str,
        weights: str,
        image_size: int,
        embedding_dim: int,
        projection_norm: ProjectionNorm,
        n_queries: int = 0,
        frozen_stride: int = 0,
        crop_size: int = 0,
    ) -> None:
        """`n_queries` other than 0: features are read by that many learned queries (see `reading.py`).

        `crop_size` other than 0: a locator, which is not trained here, finds the assembly, and the backbone sees a
        crop of so many pixels around it.
        """
        super().__init__()
        self.image_size, self.embedding_dim, self.crop_size = image_size, embedding_dim, crop_size
        self.locator = Locator().requires_grad_(False).eval() if crop_size else None
        seen_size = crop_size or image_size
        if n_queries:
            reader = ReadByQueries(
                backbone=backbone,
                weights=weights,
                image_size=seen_size,
                n_queries=n_queries,
                frozen_stride=frozen_stride,
            )
            self.backbone: nn.Module = EmbedByQueries(reader, embedding_dim)
        else:
            self.backbone = create_backbone(backbone, image_size=seen_size, out_dim=embedding_dim, weights=weights)
        self.first_projection = _hidden_layer(embedding_dim, projection_norm)
        self.projection = nn.Sequential(
            _hidden_layer(embedding_dim, projection_norm), nn.Linear(embedding_dim, embedding_dim)
        )
        # what the backbone's weights were trained with; part of the network, so that nobody can get it wrong
        settings = self.backbone.pretrained_cfg
        self.register_buffer("mean_3", torch.tensor(settings["mean"], dtype=torch.float32))
        self.register_buffer("std_3", torch.tensor(settings["std"], dtype=torch.float32))

    def train(self, mode: bool = True) -> SpatialEncoder:
        """The locator keeps its running statistics."""
        super().train(mode)
        if self.locator is not None:
            self.locator.eval()
        return self

    def look_at(self, image_BHW3: Tensor, motion: Motion | None = None) -> Tensor:
        """What the backbone sees of images: all of them, or the assembly's surroundings, perhaps moved."""
        if self.locator is None:
            return image_BHW3
        with torch.no_grad():
            return crop(image_BHW3, self.locator.locate(image_BHW3), self.crop_size, motion)

    def normalise(self, image_BHW3: Tensor) -> Tensor:
        """Images as they are stored (uint8, or float from 0 to 255) as the backbone wants them: (B, 3, H, W)."""
        scaled_BHW3 = (image_BHW3.to(self.mean_3.dtype) / 255.0 - self.mean_3) / self.std_3
        return scaled_BHW3.permute(0, 3, 1, 2)

    def represent(self, image_BHW3: Tensor) -> Tensor:
        """h: what the backbone's new last layer gives; (B, D)."""
        return self.backbone(self.normalise(self.look_at(image_BHW3)))

    def embed(self, image_BHW3: Tensor) -> Tensor:
        """What the temporal stage takes: h through the first layer of g; (B, D)."""
        return self.embed_seen(self.look_at(image_BHW3))

    def embed_seen(self, seen_BHW3: Tensor) -> Tensor:
        """The same of what `look_at` gave, perhaps changed in between."""
        return self.first_projection(self.backbone(self.normalise(seen_BHW3)))

    def forward(self, image_BHW3: Tensor) -> Tensor:
        """z: what the contrastive loss compares, of unit length; (B, D)."""
        return self.project(self.embed(image_BHW3))

    def project(self, embedding_BD: Tensor) -> Tensor:
        """z from what `embed` gives."""
        return functional.normalize(self.projection(embedding_BD), dim=1)


def _hidden_layer(width: int, norm: ProjectionNorm) -> nn.Sequential:
    if norm == "none":
        return nn.Sequential(nn.Linear(width, width), nn.ReLU())
    return nn.Sequential(nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU())
