# mypy: disallow-subclassing-any=False
"""Training of the spatial encoder.

Shape legend: B images, S pixels of a side, 3 colours, D dimensions, L labels, C components, V images of
validation, P processes, Q images of all processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stormpsr.config import Config, EncoderTrainingConfig
from stormpsr.models.encoder import SpatialEncoder, supervised_contrastive_loss
from stormpsr.procedure.model import StateBits
from stormpsr.training.augment import STRENGTHS, augment_batch, draw_motion
from stormpsr.training.fit import MakeDataset, StageTask


class EncoderTask(StageTask):
    """Contrastive training on key frames; judged by the neighbours of validation key frames.

    With `component_weight`, a linear read-out of what the temporal stage takes must also say of each component whether
    it is absent, correct or wrong. States that differ by one part then share what they have in common, which matters
    where most states are rare. The read-out is not kept. Parts that are known to hide are left out of it.
    """

    stage: EncoderTrainingConfig

    def __init__(
        self,
        encoder: SpatialEncoder,
        config: Config,
        make_dataset: MakeDataset,
        validation: Sequence[tuple[Tensor, Tensor, Tensor]],
        states: Sequence[StateBits],
        val_states: Sequence[StateBits],
    ) -> None:
        super().__init__(config, config.train_encoder, make_dataset, validation)
        self.encoder = encoder
        self._seen: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        # what the labels mean, as classes of the read-out: 0 absent, 1 correct, 2 wrong
        self._class_LC, self._val_class_LC = (torch.tensor(known) % 3 for known in (states, val_states))
        weight = self.stage.component_weight
        self.read_out = nn.Linear(encoder.embedding_dim, 3 * len(states[0])) if weight else None

    def tensors(self) -> Mapping[str, Tensor]:
        return {f"encoder.{name}": tensor for name, tensor in self.encoder.state_dict().items()}

    def trained(self) -> Sequence[tuple[nn.Module, float]]:
        modules = [self.encoder] if self.read_out is None else [self.encoder, self.read_out]
        return [(module, self.stage.learning_rate) for module in modules]

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor, int], index: int) -> Tensor:
        image_BSS3, label_B, told_BC, number = batch
        stage = self.stage
        if stage.augmentation == "none":
            image_BSS3 = self.encoder.crop_assembly(image_BSS3)
        else:
            calm = self.trainer.current_epoch >= (1 - stage.calm_share) * stage.epochs
            strength, generator = STRENGTHS["light" if calm else stage.augmentation], self._generator(number)
            motion = draw_motion(len(image_BSS3), strength, generator, image_BSS3.device)
            image_BSS3 = self.encoder.crop_assembly(image_BSS3, motion=motion)
            image_BSS3 = augment_batch(image_BSS3, strength, generator, move=self.encoder.locator is None)
        embedding_BD = self.encoder.embed_crop(image_BSS3)
        loss = self._loss(self.encoder.project(embedding_BD), label_B)
        if self.read_out is not None:
            class_BC = self._class_LC.to(label_B.device)[label_B]
            weight_3 = wrong_weighted(stage.wrong_weight, class_BC.device)
            logits_X3, class_X = self._read(embedding_BD)[told_BC], class_BC[told_BC]  # what hides teaches nothing
            read_out_loss = functional.cross_entropy(logits_X3, class_X, weight=weight_3)
            self.log("train/component_loss", read_out_loss, sync_dist=True)
            loss = loss + stage.component_weight * read_out_loss
        self._log_loss(loss)
        return loss

    def _read(self, embedding_BD: Tensor) -> Tensor:
        """Logits of each component's three classes, (B, C, 3)."""
        assert self.read_out is not None
        return self.read_out(embedding_BD).unflatten(1, (-1, 3))

    def _loss(self, z_BD: Tensor, label_B: Tensor, *, share: bool = True) -> Tensor:
        """The loss of this process's images, compared with those of all processes."""
        stage = self.stage
        settings: dict[str, Any] = {"temperature": stage.temperature, "margin": stage.margin, "form": stage.loss_form}
        if share and self.trainer.world_size > 1:
            z_PBD: Any = self.all_gather(z_BD, sync_grads=True)
            label_PB: Any = self.all_gather(label_B)
            settings["others_QD"], settings["other_label_Q"] = z_PBD.flatten(0, 1), label_PB.flatten()
            settings["own_B"] = self.trainer.global_rank * len(z_BD) + torch.arange(len(z_BD), device=z_BD.device)
        return supervised_contrastive_loss(z_BD.float(), label_B, **settings)

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor], index: int) -> None:
        image_BSS3, label_B, recording_B = batch
        embedding_BD = self.encoder.embed_crop(self.encoder.crop_assembly(image_BSS3))
        z_BD = self.encoder.project(embedding_BD).float()
        right_B = torch.zeros(len(z_BD), device=z_BD.device)
        if self.read_out is not None:
            class_BC = self._val_class_LC.to(label_B.device)[label_B]
            right_B = (self._read(embedding_BD).argmax(dim=2) == class_BC).float().mean(dim=1)
        self._seen.append((z_BD, label_B, recording_B, right_B))

    def on_validation_epoch_end(self) -> None:
        z_VD, label_V, recording_V, right_V = (torch.cat(parts) for parts in zip(*self._seen, strict=True))
        self._seen.clear()
        self._refuse_infinite(z_VD)
        precision = neighbour_precision(z_VD, label_V, recording_V)
        self.metrics = {"loss": float(self._loss(z_VD, label_V, share=False))}
        if precision is not None:
            self.metrics["precision"] = precision
        if self.read_out is not None:
            self.metrics["components"] = float(right_V.mean())
        self._log_metrics()


def wrong_weighted(wrong_weight: float, device: torch.device) -> Tensor:
    """How often absent, correct and wrong parts count."""
    return torch.tensor([1.0, 1.0, wrong_weight], device=device)


def neighbour_precision(z_VD: Tensor, label_V: Tensor, recording_V: Tensor) -> float | None:
    """Share of images whose nearest neighbour in another recording shows the same state.

    Images whose state no other recording shows are left out; None if there are no others.
    """
    elsewhere_VV = recording_V[:, None] != recording_V
    findable_V = ((label_V[:, None] == label_V) & elsewhere_VV).any(dim=1)
    if not findable_V.any():
        return None
    similarity_VV = (z_VD @ z_VD.T).masked_fill(~elsewhere_VV, float("-inf"))
    found_V = label_V[similarity_VV.argmax(dim=1)]
    return float((found_V == label_V)[findable_V].float().mean())
