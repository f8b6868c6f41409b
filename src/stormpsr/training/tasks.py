# mypy: disallow-subclassing-any=False
"""What is trained, one Lightning module each: the spatial encoder, the temporal model, both together.

Validation leaves its figures in `figures`; `score` is the one that decides, the larger the better.

Shape legend: B items, N frames of a clip, S pixels of a side, 3 colours, D dimensions, C components, V pictures of
validation, E clips of a validation recording, P processes, Q pictures of all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from stormpsr.config import Config, TemporalTrainingConfig
from stormpsr.errors import InputError
from stormpsr.models.encoder import SpatialEncoder
from stormpsr.models.losses import supervised_contrastive_loss
from stormpsr.models.stream import SpatioTemporalModel
from stormpsr.models.temporal import AveragedModel, TemporalModel
from stormpsr.procedure import Procedure, StateBits
from stormpsr.recording import Recording
from stormpsr.sampling import Shard, clip_labels, clip_windows, window_offsets
from stormpsr.training.augmentation import STRENGTHS, augment, draw_motion
from stormpsr.training.schedule import make_optimiser
from stormpsr.training.validation import clip_f1, event_scores, neighbour_precision, to_numpy

__all__ = ["EncoderTask", "JointTask", "Task", "TemporalTask", "ValidationClips"]

MakeDataset = Callable[[int, Shard], Dataset]  # epoch, share of this process -> batches of the epoch
_CLIPS_AT_ONCE = 256


class Task(LightningModule):
    """What all have in common: batches made anew for every epoch, and random numbers that depend on it alone."""

    begins_trained = False  # whether the networks are good for something before the first epoch

    def __init__(self, config: Config, make_dataset: MakeDataset, batches_per_epoch: int, workers: int) -> None:
        super().__init__()
        self.config = config
        self.batches_per_epoch = batches_per_epoch
        self.figures: dict[str, float] = {}
        self._make_dataset, self._workers = make_dataset, workers

    @property
    def score(self) -> float:
        raise NotImplementedError

    def tensors(self) -> Mapping[str, Tensor]:
        """What belongs into a checkpoint, by the names of a `SpatioTemporalModel`."""
        raise NotImplementedError

    def train_dataloader(self) -> DataLoader:
        shard = Shard(self.trainer.global_rank, self.trainer.world_size)
        dataset = self._make_dataset(self.trainer.current_epoch, shard)
        return DataLoader(dataset, batch_size=None, num_workers=self._workers)

    def on_train_epoch_start(self) -> None:
        torch.manual_seed(self._seed_of(0))  # for dropout

    def _seed_of(self, number: int) -> int:
        """A seed for one batch of this epoch and process."""
        entropy = (self.config.seed, self.trainer.current_epoch, number, self.trainer.global_rank)
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    def _generator(self, number: int) -> torch.Generator:
        return torch.Generator().manual_seed(self._seed_of(number + 1))

    def _steps_per_epoch(self) -> int:
        return -(-self.batches_per_epoch // int(self.trainer.accumulate_grad_batches))

    def _log_loss(self, loss: Tensor) -> None:
        self.log("train/loss", loss, sync_dist=True)

    def _refuse_infinite(self, output: Tensor) -> None:
        if not torch.isfinite(output).all():
            epoch = self.trainer.current_epoch + 1
            raise InputError(f"training left the finite numbers in epoch {epoch}", cure="lower the learning rate")

    def _log_figures(self) -> None:
        for name, value in {**self.figures, "score": self.score}.items():
            self.log(f"val/{name}", value, sync_dist=False, rank_zero_only=False)


# ---------------------------------------------------------------------- spatial encoder
class EncoderTask(Task):
    """Contrastive training on key frames; judged by the neighbours of validation key frames.

    With `component_weight`, a linear read-out of what the temporal stage takes must also say of each component whether
    it is absent, correct or wrong. States that differ by one part then share what they have in common, which matters
    where most states are rare. The read-out is not kept.
    """

    def __init__(
        self,
        encoder: SpatialEncoder,
        config: Config,
        make_dataset: MakeDataset,
        batches_per_epoch: int,
        validation: Sequence[tuple[Tensor, Tensor, Tensor]],
        states: Sequence[StateBits],
        val_states: Sequence[StateBits],
        workers: int = 0,
    ) -> None:
        super().__init__(config, make_dataset, batches_per_epoch, workers)
        self.encoder = encoder
        self._validation = validation
        self._seen: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        # what the labels mean, as classes of the read-out: 0 absent, 1 correct, 2 wrong
        self._class_LC, self._val_class_LC = (torch.tensor(known) % 3 for known in (states, val_states))
        weight = config.train_encoder.component_weight
        self.read_out = nn.Linear(encoder.embedding_dim, 3 * len(states[0])) if weight else None

    @property
    def score(self) -> float:
        select_by = self.config.train_encoder.select_by
        return -self.figures["loss"] if select_by == "loss" else self.figures[select_by]

    def tensors(self) -> Mapping[str, Tensor]:
        return {f"encoder.{name}": tensor for name, tensor in self.encoder.state_dict().items()}

    def configure_optimizers(self) -> Any:
        stage = self.config.train_encoder
        trained = [self.encoder, *([] if self.read_out is None else [self.read_out])]
        groups = [(module, stage.learning_rate) for module in trained]
        return make_optimiser(stage, groups, steps_per_epoch=self._steps_per_epoch())

    def training_step(self, batch: tuple[Tensor, Tensor, int], index: int) -> Tensor:
        image_BSS3, label_B, number = batch
        stage = self.config.train_encoder
        if stage.augmentation == "none":
            image_BSS3 = self.encoder.look_at(image_BSS3)
        else:
            calm = self.trainer.current_epoch >= (1 - stage.calm_share) * stage.epochs
            strength, generator = STRENGTHS["light" if calm else stage.augmentation], self._generator(number)
            motion = draw_motion(len(image_BSS3), strength, generator, image_BSS3.device)
            image_BSS3 = self.encoder.look_at(image_BSS3, motion)
            image_BSS3 = augment(image_BSS3, strength, generator, move=self.encoder.locator is None)
        embedding_BD = self.encoder.embed_seen(image_BSS3)
        loss = self._loss(self.encoder.project(embedding_BD), label_B)
        if self.read_out is not None:
            class_BC = self._class_LC.to(label_B.device)[label_B]
            read_out_loss = functional.cross_entropy(self._read(embedding_BD).flatten(0, 1), class_BC.flatten())
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
        stage = self.config.train_encoder
        settings: dict[str, Any] = {
            "temperature": stage.temperature,
            "margin": stage.margin,
            "form": stage.loss_form,
        }
        if share and self.trainer.world_size > 1:
            z_PBD: Any = self.all_gather(z_BD, sync_grads=True)
            label_PB: Any = self.all_gather(label_B)
            settings["others_QD"], settings["other_label_Q"] = z_PBD.flatten(0, 1), label_PB.flatten()
            settings["own_B"] = self.trainer.global_rank * len(z_BD) + torch.arange(len(z_BD), device=z_BD.device)
        return supervised_contrastive_loss(z_BD.float(), label_B, **settings)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(list(self._validation), batch_size=None)

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor], index: int) -> None:
        image_BSS3, label_B, recording_B = batch
        embedding_BD = self.encoder.embed(image_BSS3)
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
        self.figures = {"loss": float(self._loss(z_VD, label_V, share=False))}
        if precision is not None:
            self.figures["precision"] = precision
        if self.read_out is not None:
            self.figures["components"] = float(right_V.mean())
        self._log_figures()


# ---------------------------------------------------------------------- clips of validation recordings
class ValidationClips:
    """Clips that end at every stride of the validation recordings, as in live use, and what is true of them."""

    def __init__(self, recordings: Sequence[Recording], procedure: Procedure, config: Config) -> None:
        clips = config.clips
        self.recordings, self.procedure = recordings, procedure
        self.window_frames = clips.window_frames
        self.stride_frames, self.frame_step = clips.stride_frames, clips.frame_step
        self.offsets_N = window_offsets(clips.window_frames, clips.n_window)
        self.ends = [np.arange(0, recording.n_frames, self.stride_frames) for recording in recordings]

    def windows(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        return clip_windows(self.ends[number], self.offsets_N)

    def labels(self) -> NDArray[np.uint8]:
        found = [clip_labels(r.states_FC, *self.windows(number)) for number, r in enumerate(self.recordings)]
        return np.concatenate(found)

    def figures(self, logits: Sequence[Tensor]) -> dict[str, float]:
        """Loss and F1 over clips, and F1 and delay after decoding into events."""
        label_XC = self.labels()
        logit_XC = torch.cat(list(logits)).float().cpu()
        probabilities = [to_numpy(torch.sigmoid(logit_EC)) for logit_EC in logits]
        return {
            "loss": float(_change_loss(logit_XC, torch.from_numpy(label_XC).float())),
            "clip_f1": clip_f1(np.concatenate(probabilities), label_XC),
            **event_scores(
                probabilities,
                self.ends,
                self.recordings,
                self.procedure,
                window_frames=self.window_frames,
                stride_frames=self.stride_frames,
            ),
        }


def _change_loss(logit_BC: Tensor, label_BC: Tensor) -> Tensor:
    """Binary cross entropy, summed over the components and averaged over the clips, as in the paper's equation."""
    return functional.binary_cross_entropy_with_logits(logit_BC, label_BC, reduction="sum") / len(logit_BC)


def _clip_loss(
    temporal: nn.Module,
    clip_BND: Tensor,
    mask_BN: Tensor,
    label_BC: Tensor,
    state_BNC: Tensor,
    ends_BC2: Tensor,
    state_weight: float,
) -> Tensor:
    """The loss of changes, and that of states of frames and windows, where it has a weight and the model reads them."""
    if not state_weight:
        return _change_loss(temporal(clip_BND, mask_BN), label_BC)
    logit_BC, read_BNC3, ends_BC23 = temporal.with_states(clip_BND, mask_BN)
    class_XC = state_BNC[mask_BN].long() % 3  # absent, correct, wrong
    surprise = functional.cross_entropy(read_BNC3[mask_BN].flatten(0, 1), class_XC.flatten())
    surprise = surprise + 2 * functional.cross_entropy(ends_BC23.flatten(0, 2), ends_BC2.flatten())
    return _change_loss(logit_BC, label_BC) + state_weight * label_BC.shape[1] * surprise


def _ends(state_BNC: Tensor, mask_BN: Tensor) -> Tensor:
    """What is true at a clip's first frame that exists, and at its last: 0 absent, 1 correct, 2 wrong; (B, C, 2)."""
    first_BC = state_BNC[torch.arange(len(mask_BN), device=mask_BN.device), mask_BN.int().argmax(dim=1)]
    return torch.stack([first_BC, state_BNC[:, -1]], dim=-1).long() % 3


def _disturb(
    embedding_BND: Tensor, mask_BN: Tensor, *, noise: float, frame_drop: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Noise on the embeddings, and some frames hidden, but never the last: that is the news."""
    if noise:
        drawn = torch.randn(embedding_BND.shape, generator=generator).to(embedding_BND.device)
        embedding_BND = embedding_BND + noise * embedding_BND.detach().std() * drawn
    if frame_drop:
        kept_BN = torch.rand(mask_BN.shape, generator=generator) >= frame_drop
        kept_BN[:, -1] = True
        mask_BN = mask_BN & kept_BN.to(mask_BN.device)
    return embedding_BND, mask_BN


def _disturbed_loss(
    temporal: nn.Module,
    clip_BND: Tensor,
    mask_BN: Tensor,
    label_BC: Tensor,
    state_BNC: Tensor,
    stage: TemporalTrainingConfig,
    generator: torch.Generator,
) -> Tensor:
    """The loss of clips with noise; the mean over models that are trained side by side, each with noise of its own."""
    ends_BC2 = _ends(state_BNC, mask_BN)
    members = temporal.members if isinstance(temporal, AveragedModel) else [temporal]
    losses = []
    for member in members:
        noisy_BND, kept_BN = _disturb(
            clip_BND, mask_BN, noise=stage.embedding_noise, frame_drop=stage.frame_drop, generator=generator
        )
        weight = stage.frame_state_weight
        losses.append(_clip_loss(member, noisy_BND, kept_BN, label_BC, state_BNC, ends_BC2, weight))
    return torch.stack(losses).mean()


class _ChangeTask(Task):
    """What the two tasks share that learn what changed within a clip."""

    def __init__(
        self, config: Config, make_dataset: MakeDataset, batches_per_epoch: int, clips: ValidationClips, workers: int
    ) -> None:
        super().__init__(config, make_dataset, batches_per_epoch, workers)
        self._clips = clips
        self._logits: list[Tensor] = []

    def val_dataloader(self) -> DataLoader:
        return DataLoader(range(len(self._clips.recordings)), batch_size=None)

    def on_validation_epoch_end(self) -> None:
        self._refuse_infinite(torch.cat(self._logits))
        self.figures = self._clips.figures(self._logits)
        self._logits.clear()
        self._log_figures()

    def _in_parts(self, temporal: nn.Module, embedding_FD: Tensor, number: int, frame_step: int = 1) -> Tensor:
        """Logits of all clips of a validation recording, (E, C), from embeddings of its (every so many) frames."""
        frame_EN, mask_EN = (torch.from_numpy(part).to(self.device) for part in self._clips.windows(number))
        frame_EN = frame_EN // frame_step
        parts = zip(frame_EN.split(_CLIPS_AT_ONCE), mask_EN.split(_CLIPS_AT_ONCE), strict=True)
        return torch.cat([temporal(embedding_FD[frame] * mask[:, :, None], mask) for frame, mask in parts])


# ---------------------------------------------------------------------- temporal model
class TemporalTask(_ChangeTask):
    """The temporal model on stored embeddings; the encoder is only carried along into checkpoints."""

    def __init__(
        self,
        temporal: TemporalModel,
        encoder: SpatialEncoder,
        config: Config,
        make_dataset: MakeDataset,
        batches_per_epoch: int,
        clips: ValidationClips,
        stores: Sequence[NDArray[Any]],
        workers: int = 0,
    ) -> None:
        super().__init__(config, make_dataset, batches_per_epoch, clips, workers)
        self.temporal = temporal
        self._encoder_tensors = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
        self._stores = stores  # embeddings of the validation recordings

    @property
    def score(self) -> float:
        select_by = self.config.train_temporal.select_by
        return -self.figures["loss"] if select_by == "loss" else self.figures[select_by]

    def tensors(self) -> Mapping[str, Tensor]:
        own = {f"temporal.{name}": tensor for name, tensor in self.temporal.state_dict().items()}
        return {**self._encoder_tensors, **own}

    def configure_optimizers(self) -> Any:
        stage = self.config.train_temporal
        return make_optimiser(stage, [(self.temporal, stage.learning_rate)], steps_per_epoch=self._steps_per_epoch())

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor, Tensor, int], index: int) -> Tensor:
        clip_BND, mask_BN, label_BC, state_BNC, number = batch
        stage = self.config.train_temporal
        loss = _disturbed_loss(self.temporal, clip_BND, mask_BN, label_BC, state_BNC, stage, self._generator(number))
        self._log_loss(loss)
        return loss

    def validation_step(self, number: int, index: int) -> None:
        embedding_FD = torch.from_numpy(np.asarray(self._stores[number], dtype=np.float32)).to(self.device)
        self._logits.append(self._in_parts(self.temporal, embedding_FD, number, self._clips.frame_step))


# ---------------------------------------------------------------------- both
class JointTask(_ChangeTask):
    """Both from images, the encoder at a learning rate of its own.

    The statistics of all batch norms stay as they are: the frames of a few clips are too much alike to estimate them
    from. If no epoch is better than what the stages before have left, that is the result.
    """

    begins_trained = True

    def __init__(
        self,
        stream: SpatioTemporalModel,
        config: Config,
        make_dataset: MakeDataset,
        batches_per_epoch: int,
        clips: ValidationClips,
        frames: Sequence[NDArray[np.uint8]],
        workers: int = 0,
    ) -> None:
        super().__init__(config, make_dataset, batches_per_epoch, clips, workers)
        self.stream = stream
        self.stream.encoder.projection.requires_grad_(False)  # has no part in it
        self._frames = frames  # pictures of the validation recordings

    @property
    def score(self) -> float:
        select_by = self.config.train_joint.select_by
        return -self.figures["loss"] if select_by == "loss" else self.figures[select_by]

    def tensors(self) -> Mapping[str, Tensor]:
        return dict(self.stream.state_dict())

    def configure_optimizers(self) -> Any:
        stage = self.config.train_joint
        groups = [
            (self.stream.encoder, stage.encoder_learning_rate),
            (self.stream.temporal, stage.learning_rate),
        ]
        return make_optimiser(stage, groups, steps_per_epoch=self._steps_per_epoch())

    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()
        self.stream.train()
        for module in self.stream.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor, Tensor, int], index: int) -> Tensor:
        image_BNSS3, mask_BN, label_BC, state_BNC, number = batch
        stage = self.config.train_joint
        embedding_BND = self.stream.encoder.embed(image_BNSS3.flatten(0, 1)).unflatten(0, mask_BN.shape)
        temporal, generator = self.stream.temporal, self._generator(number)
        loss = _disturbed_loss(temporal, embedding_BND, mask_BN, label_BC, state_BNC, stage, generator)
        self._log_loss(loss)
        return loss

    def validation_step(self, number: int, index: int) -> None:
        """Encodes only the frames that some clip needs."""
        needed = np.unique(self._clips.windows(number)[0])
        pictures = torch.from_numpy(np.asarray(self._frames[number][needed])).split(_CLIPS_AT_ONCE)
        encoded_XD = torch.cat([self.stream.encoder.embed(part.to(self.device)) for part in pictures])
        embedding_FD = encoded_XD.new_zeros(len(self._frames[number]), encoded_XD.shape[1])
        embedding_FD[torch.from_numpy(needed).to(self.device)] = encoded_XD
        self._logits.append(self._in_parts(self.stream.temporal, embedding_FD, number))
