"""The spatial encoder: an image becomes an embedding of what is assembled in it; and the loss that it is trained with.

It can start from a detector, which has learnt to find the assembly and to read its parts already: it takes the compact
detector's locator and its reader (backbone, merged features and queries). What makes an embedding of them is new.

Shape legend: B images of a batch, H height, W width, 3 colours, D dimensions, Q images that a batch is compared with.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from stormpsr.errors import InputError
from stormpsr.models.backbones import AttentionPooling, PooledBackbone, create_backbone
from stormpsr.models.checkpoint import MODEL_FILE, read_tensors, tensors_digest
from stormpsr.models.locator import Locator, Motion, crop

ProjectionNorm = Literal["batch", "none"]
EmbeddingNorm = Literal["none", "l2"]
SupConForm = Literal["paper", "common"]
QUERIES = "query_QD"


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
        head_on_features: bool = False,
        embedding_norm: EmbeddingNorm = "none",
        frozen_reader: bool = False,
    ) -> None:
        """`head_on_features`: there is no h; the first layer of g reads what the backbone pools.

        `embedding_norm` other than `none`: what `embed` gives is brought to unit length, after z was made from it.

        `n_queries` other than 0: features are read by that many learned queries (`AttentionPooling`).

        `crop_size` other than 0: a locator, which is not trained here, finds the assembly, and the backbone sees a
        crop of so many pixels around it.

        `frozen_reader`: the queries and all before them do not learn here, so that they stay those of a detector.
        """
        super().__init__()
        self.image_size, self.embedding_dim, self.crop_size = image_size, embedding_dim, crop_size
        self.embedding_norm, self.frozen_reader = embedding_norm, frozen_reader
        self.locator = Locator().requires_grad_(False).eval() if crop_size else None
        seen_size = crop_size or image_size
        if n_queries:
            reader = AttentionPooling(
                backbone=backbone,
                weights=weights,
                image_size=seen_size,
                n_queries=n_queries,
                frozen_stride=frozen_stride,
            )
            if frozen_reader:
                reader.requires_grad_(False).eval()
            self.backbone: nn.Module = PooledBackbone(reader, embedding_dim)
        else:
            out_dim = 0 if head_on_features else embedding_dim
            self.backbone = create_backbone(backbone, image_size=seen_size, out_dim=out_dim, weights=weights)
        features = int(getattr(self.backbone, "num_features", 0)) if head_on_features else embedding_dim
        self.first_projection = _hidden_layer(embedding_dim, projection_norm, features)
        self.projection = nn.Sequential(
            _hidden_layer(embedding_dim, projection_norm), nn.Linear(embedding_dim, embedding_dim)
        )
        # what the backbone's weights were trained with; part of the network, so that nobody can get it wrong
        settings = self.backbone.pretrained_cfg
        self.register_buffer("mean_3", torch.tensor(settings["mean"], dtype=torch.float32))
        self.register_buffer("std_3", torch.tensor(settings["std"], dtype=torch.float32))

    def train(self, mode: bool = True) -> SpatialEncoder:
        """The locator keeps its running statistics, and so does a reader that does not learn."""
        super().train(mode)
        if self.locator is not None:
            self.locator.eval()
        if self.frozen_reader:
            self.backbone.reader.eval()
        return self

    @property
    def reader_digest(self) -> str | None:
        """A fingerprint of locator and reader, where these are a detector's."""
        return reader_digest(self.locator, self.backbone.reader, self.crop_size) if self.frozen_reader else None

    def crop_assembly(
        self, image_BHW3: Tensor, corners_B4: Tensor | None = None, motion: Motion | None = None
    ) -> Tensor:
        """What the backbone sees of images: all of them, or the assembly's surroundings, perhaps moved.

        Boxes that are known already need not be located again.
        """
        if self.locator is None:
            return image_BHW3
        with torch.no_grad():
            corners_B4 = self.locator.locate(image_BHW3) if corners_B4 is None else corners_B4
            return crop(image_BHW3, corners_B4, self.crop_size, motion)

    def normalise(self, image_BHW3: Tensor) -> Tensor:
        """Images as they are stored (uint8, or float from 0 to 255) as the backbone wants them: (B, 3, H, W)."""
        scaled_BHW3 = (image_BHW3.to(self.mean_3.dtype) / 255.0 - self.mean_3) / self.std_3
        return scaled_BHW3.permute(0, 3, 1, 2)

    def represent(self, image_BHW3: Tensor) -> Tensor:
        """h: what the backbone's new last layer gives; (B, D)."""
        return self.backbone(self.normalise(self.crop_assembly(image_BHW3)))

    def embed(self, image_BHW3: Tensor, corners_B4: Tensor | None = None) -> Tensor:
        """What the temporal stage takes: h through the first layer of g; (B, D)."""
        embedding_BD = self.embed_crop(self.crop_assembly(image_BHW3, corners_B4))
        return embedding_BD if self.embedding_norm == "none" else functional.normalize(embedding_BD, dim=1)

    def embed_crop(self, crop_BHW3: Tensor) -> Tensor:
        """The same of what `crop_assembly` gave, perhaps changed in between."""
        return self.first_projection(self.backbone(self.normalise(crop_BHW3)))

    def embed_found(self, found_BQD: Tensor) -> Tensor:
        """`embed` of what a detector with the same reader has found in the crop already; (B, Q, D) to (B, D)."""
        embedding_BD = self.first_projection(self.backbone.last(found_BQD.flatten(1)))
        return embedding_BD if self.embedding_norm == "none" else functional.normalize(embedding_BD, dim=1)

    def forward(self, image_BHW3: Tensor) -> Tensor:
        """z: what the contrastive loss compares, of unit length; (B, D)."""
        return self.project(self.embed_crop(self.crop_assembly(image_BHW3)))

    def project(self, embedding_BD: Tensor) -> Tensor:
        """z from what `embed` gives."""
        return functional.normalize(self.projection(embedding_BD), dim=1)


def reader_digest(locator: Locator | None, reader: AttentionPooling, crop_size: int) -> str:
    """A fingerprint of what finds and reads the crop: where it is the same, so is what the queries find."""
    return tensors_digest(reader, "" if locator is None else f"{crop_size} {tensors_digest(locator)}")


def _hidden_layer(width: int, norm: ProjectionNorm, width_in: int | None = None) -> nn.Sequential:
    if norm == "none":
        return nn.Sequential(nn.Linear(width_in or width, width), nn.ReLU())
    return nn.Sequential(nn.Linear(width_in or width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU())


# ---------------------------------------------------------------------- starting from a detector
def is_detector(weights: str) -> bool:
    """Whether a setting names a folder, as a detector's training leaves it, and not a word or a file."""
    return weights not in ("none", "hub", "package") and Path(weights).is_dir()


def start_from_detector(encoder: SpatialEncoder, folder: Path) -> None:
    """Fill locator and reader. An encoder may have more queries than the detector: the others stay as they are."""
    if encoder.locator is None or not isinstance(encoder.backbone, PooledBackbone):
        cure = "set encoder.crop_size and encoder.n_queries, or other encoder.weights"
        raise InputError("only an encoder that crops and reads by queries can start from a detector", cure=cure)
    reader = encoder.backbone.reader
    detector = detector_tensors(folder)
    theirs = detector["reader"]
    ours = reader.state_dict()
    n = len(theirs[QUERIES])
    if n > len(ours[QUERIES]):
        cure = f"set encoder.n_queries={n}"
        raise InputError(f"the detector reads by {n} queries, the encoder by {len(ours[QUERIES])}", cure=cure)
    if encoder.frozen_reader and n < len(ours[QUERIES]):
        cure = f"set encoder.n_queries={n}"
        raise InputError(f"a frozen reader has the detector's {n} queries, not {len(ours[QUERIES])}", cure=cure)
    theirs[QUERIES] = torch.cat([theirs[QUERIES], ours[QUERIES][n:]])
    for name, tensor in ours.items():
        if name not in theirs or theirs[name].shape != tensor.shape:
            cure = "encoder.backbone and encoder.crop_size must be those of the detector's config.yaml"
            raise InputError(f"the detector has another network than the encoder ({name})", path=folder, cure=cure)
    reader.load_state_dict(theirs)
    encoder.locator.load_state_dict(detector["locator"])


def detector_tensors(folder: Path) -> dict[str, dict[str, Tensor]]:
    """The tensors of a compact detector's reader and locator, by their names in there."""
    path = folder / MODEL_FILE
    if not path.is_file():
        cure = "give the folder that `stormpsr detect train` wrote"
        raise InputError("no detector can be read here", path=path, cure=cure)
    parts: dict[str, dict[str, Tensor]] = {"reader": {}, "locator": {}}
    for name, tensor in read_tensors(path, may_be_unnamed=True).items():
        part, _, inner = name.partition(".")
        if part in parts:
            parts[part][inner] = tensor.float() if tensor.is_floating_point() else tensor
    if not all(parts.values()):
        cure = "give the folder of a compact detector, the default of `stormpsr detect train`"
        raise InputError("this is no detector that an encoder can start from", path=path, cure=cure)
    return parts


# ---------------------------------------------------------------------- the loss
def supervised_contrastive_loss(
    z_BD: Tensor,
    label_B: Tensor,
    *,
    temperature: float,
    margin: float,
    form: SupConForm,
    own_B: Tensor | None = None,
    others_QD: Tensor | None = None,
    other_label_Q: Tensor | None = None,
) -> Tensor:
    """How badly images of one state keep together and apart from those of others, averaged over the images.

    For image i with partners P(i) (same label) among all other images A(i), and s the cosine over the temperature:

    - `paper`: `-log( 1/|P(i)| * sum_p exp(s_ip) / sum_a exp(s_ia) )`, the paper's equation: the mean over the
      partners stands inside the logarithm, so one close partner is enough.
    - `common`: `-1/|P(i)| * sum_p log( exp(s_ip) / sum_a exp(s_ia) )`: every partner has to be close.

    Where the paper leaves room, this is what is done:

    - A(i) leaves out i itself. The paper's text includes it, but an image is always closest to itself: the fraction
      would be near one whatever the network does.
    - The margin (0.01 in the paper's settings, absent from its equation) is subtracted from the cosines of partners,
      above and below the fraction line: partners count as close only if they are closer than strangers by the margin.
      A margin of 0 is the equation as printed.
    - The mean over the images is taken, not the sum, so that the learning rate does not depend on the batch size.
      Images without a partner are left out of it.

    `z_BD` must have unit length. `others_QD` are the images to compare with, the batch itself by default; where
    several processes share a batch, they are the whole batch, and `own_B` are the places of `z_BD` in it.
    """
    if others_QD is None or other_label_Q is None or own_B is None:
        others_QD, other_label_Q = z_BD, label_B
        own_B = torch.arange(len(z_BD), device=z_BD.device)
    itself_BQ = own_B[:, None] == torch.arange(len(others_QD), device=z_BD.device)
    partner_BQ = (label_B[:, None] == other_label_Q) & ~itself_BQ
    similarity_BQ = (z_BD @ others_QD.T - margin * partner_BQ.to(z_BD.dtype)) / temperature
    similarity_BQ = similarity_BQ.masked_fill(itself_BQ, float("-inf"))
    log_share_BQ = similarity_BQ - torch.logsumexp(similarity_BQ, dim=1, keepdim=True)
    n_partners_B = partner_BQ.sum(dim=1).to(z_BD.dtype)
    counted_B = n_partners_B > 0
    if form == "paper":
        inside_BQ = log_share_BQ.masked_fill(~partner_BQ, float("-inf"))[counted_B]
        loss_B = n_partners_B[counted_B].log() - torch.logsumexp(inside_BQ, dim=1)
    else:
        inside_BQ = log_share_BQ.masked_fill(~partner_BQ, 0.0)[counted_B]
        loss_B = -inside_BQ.sum(dim=1) / n_partners_B[counted_B]
    return loss_B.sum() / counted_B.sum().clamp(min=1)
