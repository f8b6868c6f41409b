"""The spatial encoder: an image becomes an embedding of what is assembled in it.

Shape legend: B images, H height, W width, 3 colours, D dimensions.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from stormpsr.models.backbones import create_backbone

__all__ = ["ProjectionNorm", "SpatialEncoder"]

ProjectionNorm = Literal["batch", "none"]


class SpatialEncoder(nn.Module):
    """A backbone f whose last layer gives h, and a projection head g of three layers that gives z.

    Training compares z. The temporal stage takes `embed`: f and the first layer of g, the place where a contrastively
    trained network keeps more than the head's end, which has forgotten what the loss did not ask for.

    The head's hidden layers are linear, batch normalisation, ReLU, each as wide as h. The paper gives neither; this is
    the head of the work that it cites.
    """

    def __init__(
        self, *, backbone: str, weights: str, image_size: int, embedding_dim: int, projection_norm: ProjectionNorm
    ) -> None:
        super().__init__()
        self.image_size, self.embedding_dim = image_size, embedding_dim
        self.backbone = create_backbone(backbone, image_size=image_size, out_dim=embedding_dim, weights=weights)
        self.first_projection = _hidden_layer(embedding_dim, projection_norm)
        self.projection = nn.Sequential(
            _hidden_layer(embedding_dim, projection_norm), nn.Linear(embedding_dim, embedding_dim)
        )
        # what the backbone's weights were trained with; part of the network, so that nobody can get it wrong
        settings = self.backbone.pretrained_cfg
        self.register_buffer("mean_3", torch.tensor(settings["mean"], dtype=torch.float32))
        self.register_buffer("std_3", torch.tensor(settings["std"], dtype=torch.float32))

    def normalise(self, image_BHW3: Tensor) -> Tensor:
        """Pictures as they are stored (uint8, or float from 0 to 255) as the backbone wants them: (B, 3, H, W)."""
        scaled_BHW3 = (image_BHW3.to(self.mean_3.dtype) / 255.0 - self.mean_3) / self.std_3
        return scaled_BHW3.permute(0, 3, 1, 2)

    def represent(self, image_BHW3: Tensor) -> Tensor:
        """h: what the backbone's new last layer gives; (B, D)."""
        return self.backbone(self.normalise(image_BHW3))

    def embed(self, image_BHW3: Tensor) -> Tensor:
        """What the temporal stage takes: h through the first layer of g; (B, D)."""
        return self.first_projection(self.represent(image_BHW3))

    def forward(self, image_BHW3: Tensor) -> Tensor:
        """z: what the contrastive loss compares, of unit length; (B, D)."""
        return functional.normalize(self.projection(self.embed(image_BHW3)), dim=1)


def _hidden_layer(width: int, norm: ProjectionNorm) -> nn.Sequential:
    if norm == "none":
        return nn.Sequential(nn.Linear(width, width), nn.ReLU())
    return nn.Sequential(nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU())
