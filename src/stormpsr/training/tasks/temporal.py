# mypy: disallow-subclassing-any=False
"""Training of what says which components changed within a clip: the temporal model, or both networks together.

Clips teach what changed, and what is true of frames and windows.

Shape legend: B clips, N frames of a clip, S pixels of a side, 3 colours or states of a component, D dimensions, C
components, F frames of a recording, E clips of a validation recording, X clips or frames of several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from stormpsr.config import Config, JointTrainingConfig, TemporalTrainingConfig
from stormpsr.data.events import StepEvent
from stormpsr.data.frame_cache import Frames
from stormpsr.data.recording import Recording, variant_name_of
from stormpsr.data.sampling import clip_labels, clip_windows, window_offsets
from stormpsr.decoding.fusion import FusionSettings, TemporalFusion
from stormpsr.evaluation.metrics import f1_score, score
from stormpsr.models.encoder import SpatialEncoder
from stormpsr.models.stream import SpatioTemporalModel
from stormpsr.models.temporal import AveragedModel
from stormpsr.procedure.model import Procedure
from stormpsr.training.fit import MakeDataset, StageTask
from stormpsr.training.tasks.encoder import wrong_weighted

THRESHOLDS = (2.0, 4.0, 8.0, 16.0, 32.0)
_CLIPS_AT_ONCE = 256
Batch = tuple[Tensor, Tensor, Tensor, Tensor, int]  # clip, mask_BN, label_BC, state_BNC, number of the batch


def change_loss(logit_BC: Tensor, label_BC: Tensor) -> Tensor:
    """Binary cross entropy, summed over the components and averaged over the clips, as in the paper's equation."""
    return functional.binary_cross_entropy_with_logits(logit_BC, label_BC, reduction="sum") / len(logit_BC)


def clip_loss(
    temporal: nn.Module,
    clip_BND: Tensor,
    mask_BN: Tensor,
    label_BC: Tensor,
    state_BNC: Tensor,
    ends_BC2: Tensor,
    state_weight: float,
    wrong_weight: float = 1.0,
) -> Tensor:
    """The loss of changes, and that of states of frames and windows, where it has a weight and the model reads them."""
    if not state_weight:
        return change_loss(temporal(clip_BND, mask_BN), label_BC)
    logit_BC, read_BNC3, ends_BC23 = temporal.with_states(clip_BND, mask_BN)
    class_XC = state_BNC[mask_BN].long() % 3  # absent, correct, wrong
    weight_3 = wrong_weighted(wrong_weight, logit_BC.device)
    of_frames = functional.cross_entropy(read_BNC3[mask_BN].flatten(0, 1), class_XC.flatten(), weight=weight_3)
    of_ends = functional.cross_entropy(ends_BC23.flatten(0, 2), ends_BC2.flatten(), weight=weight_3)
    return change_loss(logit_BC, label_BC) + state_weight * label_BC.shape[1] * (of_frames + 2 * of_ends)


def states_at_ends(state_BNC: Tensor, mask_BN: Tensor) -> Tensor:
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


def disturbed_loss(
    temporal: nn.Module,
    clip_BND: Tensor,
    mask_BN: Tensor,
    label_BC: Tensor,
    state_BNC: Tensor,
    stage: TemporalTrainingConfig,
    generator: torch.Generator,
) -> Tensor:
    """The loss of clips with noise; the mean over models that are trained side by side, each with noise of its own."""
    ends_BC2 = states_at_ends(state_BNC, mask_BN)
    members = temporal.members if isinstance(temporal, AveragedModel) else [temporal]
    losses = []
    for member in members:
        noisy_BND, kept_BN = _disturb(
            clip_BND, mask_BN, noise=stage.embedding_noise, frame_drop=stage.frame_drop, generator=generator
        )
        weights = stage.frame_state_weight, stage.wrong_weight
        losses.append(clip_loss(member, noisy_BND, kept_BN, label_BC, state_BNC, ends_BC2, *weights))
    return torch.stack(losses).mean()


# ---------------------------------------------------------------------- validation
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

    def metrics(self, logits: Sequence[Tensor]) -> dict[str, float]:
        """Loss and F1 over clips, and F1 and delay after decoding into events."""
        label_XC = self.labels()
        logit_XC = torch.cat(list(logits)).float().cpu()
        probabilities = [torch.sigmoid(logit_EC).float().cpu().numpy() for logit_EC in logits]
        return {
            "loss": float(change_loss(logit_XC, torch.from_numpy(label_XC).float())),
            "clip_f1": clip_f1(np.concatenate(probabilities), label_XC),
            **self._event_scores(probabilities),
        }

    def _event_scores(self, probabilities: Sequence[NDArray[np.floating]]) -> Mapping[str, float]:
        """Pooled F1 and mean delay of events, at the threshold with the best F1."""
        best: dict[str, float] = {"event_f1": -1.0}
        for threshold in THRESHOLDS:
            settings = FusionSettings(
                threshold=threshold,
                window_frames=self.window_frames,
                hold_frames=self.stride_frames,
                unexpected="report",
            )
            counts = np.zeros(3, dtype=np.int64)
            delays: list[float] = []
            for probability_EC, end_E, recording in zip(probabilities, self.ends, self.recordings, strict=True):
                variant = variant_name_of(recording, self.procedure)
                events = decode_changes(probability_EC, end_E, recording.n_frames, self.procedure, variant, settings)
                scores = score(recording.steps or (), events, fps=recording.fps)
                counts += (scores.true_positives, scores.false_positives, scores.false_negatives)
                delays += [match.delay_frames / recording.fps for match in scores.matches]
            f1 = f1_score(*counts.tolist())
            if f1 > best["event_f1"]:
                best = {"event_f1": f1, "threshold": threshold}
                if delays:
                    best["delay_seconds"] = float(np.mean(delays))
        return best


def decode_changes(
    probability_EC: NDArray[np.floating],
    end_E: NDArray[np.int64],
    n_frames: int,
    procedure: Procedure,
    variant: str,
    settings: FusionSettings,
) -> list[StepEvent]:
    """The step events of a recording, from the temporal model's word in some of its frames."""
    fusion = TemporalFusion(procedure, variant, settings)
    at = {int(end): probability_C for end, probability_C in zip(end_E, probability_EC, strict=True)}
    events: list[StepEvent] = []
    for frame in range(n_frames):
        events.extend(fusion.update((), at.get(frame), frame))
    return events


def clip_f1(probability_XC: NDArray[np.floating], label_XC: NDArray[np.integer]) -> float:
    """F1 over all clips and components together, at probability 0.5."""
    said, true = probability_XC > 0.5, label_XC.astype(bool)
    return f1_score(int((said & true).sum()), int((said & ~true).sum()), int((~said & true).sum()))


# ---------------------------------------------------------------------- tasks
class _ChangeTask(StageTask):
    """What the two tasks share that learn what changed within a clip."""

    stage: TemporalTrainingConfig

    def __init__(
        self, config: Config, stage: TemporalTrainingConfig, make_dataset: MakeDataset, clips: ValidationClips
    ) -> None:
        super().__init__(config, stage, make_dataset, range(len(clips.recordings)))
        self._clips = clips
        self._logits: list[Tensor] = []

    def _learn(self, temporal: nn.Module, embedding_BND: Tensor, batch: Batch) -> Tensor:
        _, mask_BN, label_BC, state_BNC, number = batch
        generator = self._generator(number)
        loss = disturbed_loss(temporal, embedding_BND, mask_BN, label_BC, state_BNC, self.stage, generator)
        self._log_loss(loss)
        return loss

    def on_validation_epoch_end(self) -> None:
        self._refuse_infinite(torch.cat(self._logits))
        self.metrics = self._clips.metrics(self._logits)
        self._logits.clear()
        self._log_metrics()

    def _validate(self, temporal: nn.Module, embedding_FD: Tensor, number: int, frame_step: int = 1) -> None:
        """Logits of all clips of a validation recording, (E, C), from embeddings of its (every so many) frames."""
        frame_EN, mask_EN = (torch.from_numpy(part).to(self.device) for part in self._clips.windows(number))
        frame_EN = frame_EN // frame_step
        parts = zip(frame_EN.split(_CLIPS_AT_ONCE), mask_EN.split(_CLIPS_AT_ONCE), strict=True)
        logits = [temporal(embedding_FD[frame] * mask[:, :, None], mask) for frame, mask in parts]
        self._logits.append(torch.cat(logits))


class TemporalTask(_ChangeTask):
    """The temporal model on stored embeddings; the encoder is only carried along into checkpoints."""

    def __init__(
        self,
        temporal: nn.Module,
        encoder: SpatialEncoder,
        config: Config,
        make_dataset: MakeDataset,
        clips: ValidationClips,
        stores: Sequence[NDArray[Any]],
    ) -> None:
        super().__init__(config, config.train_temporal, make_dataset, clips)
        self.temporal = temporal
        self._encoder_tensors = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
        self._stores = stores  # embeddings of the validation recordings

    def tensors(self) -> Mapping[str, Tensor]:
        own = {f"temporal.{name}": tensor for name, tensor in self.temporal.state_dict().items()}
        return {**self._encoder_tensors, **own}

    def trained(self) -> Sequence[tuple[nn.Module, float]]:
        return [(self.temporal, self.stage.learning_rate)]

    def training_step(self, batch: Batch, index: int) -> Tensor:
        return self._learn(self.temporal, batch[0], batch)

    def validation_step(self, number: int, index: int) -> None:
        embedding_FD = torch.from_numpy(np.asarray(self._stores[number], dtype=np.float32)).to(self.device)
        self._validate(self.temporal, embedding_FD, number, self._clips.frame_step)


class JointTask(_ChangeTask):
    """Both from images, the encoder at a learning rate of its own.

    The statistics of all batch norms stay as they are: the frames of a few clips are too much alike to estimate them
    from. If no epoch is better than what the stages before have left, that is the result.
    """

    stage: JointTrainingConfig
    begins_trained = True

    def __init__(
        self,
        stream: SpatioTemporalModel,
        config: Config,
        make_dataset: MakeDataset,
        clips: ValidationClips,
        frames: Sequence[Frames],
    ) -> None:
        super().__init__(config, config.train_joint, make_dataset, clips)
        self.stream = stream
        self.stream.encoder.projection.requires_grad_(False)  # has no part in it
        self._frames = frames  # images of the validation recordings

    def tensors(self) -> Mapping[str, Tensor]:
        return dict(self.stream.state_dict())

    def trained(self) -> Sequence[tuple[nn.Module, float]]:
        stage, stream = self.stage, self.stream
        return [(stream.encoder, stage.encoder_learning_rate), (stream.temporal, stage.learning_rate)]

    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()
        self.stream.train()
        for module in self.stream.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()

    def training_step(self, batch: Batch, index: int) -> Tensor:
        image_BNSS3, mask_BN = batch[:2]
        embedding_BND = self.stream.encoder.embed(image_BNSS3.flatten(0, 1)).unflatten(0, mask_BN.shape)
        return self._learn(self.stream.temporal, embedding_BND, batch)

    def validation_step(self, number: int, index: int) -> None:
        """Encodes only the frames that some clip needs."""
        needed = np.unique(self._clips.windows(number)[0])
        parts = np.array_split(needed, -(-len(needed) // _CLIPS_AT_ONCE))
        images = (torch.from_numpy(self._frames[number][part]).to(self.device) for part in parts)
        encoded_XD = torch.cat([self.stream.encoder.embed(part) for part in images])
        embedding_FD = encoded_XD.new_zeros(self._clips.recordings[number].n_frames, encoded_XD.shape[1])
        embedding_FD[torch.from_numpy(needed).to(self.device)] = encoded_XD
        self._validate(self.stream.temporal, embedding_FD, number)
