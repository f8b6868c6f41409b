"""The three stages in order: spatial encoder, temporal model on its embeddings, both together.

Each function prepares what its stage needs (decoded frames, embeddings), trains, and returns the folder of the best
checkpoint. What is there already is used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stormpsr.config import Config, JointTrainingConfig, TemporalTrainingConfig
from stormpsr.data.embedding_store import EmbeddingStore, Precision
from stormpsr.data.frame_cache import FrameCache
from stormpsr.data.images import Image
from stormpsr.data.recording import Recording
from stormpsr.data.sampling import (
    ClipSampler,
    KeyFrameSampler,
    Shard,
    change_frames,
    end_frame_probabilities,
    window_offsets,
)
from stormpsr.errors import InputError
from stormpsr.models.checkpoint import Checkpoint, encoder_digest, load_checkpoint
from stormpsr.models.encoder import SpatialEncoder, is_detector
from stormpsr.models.locator import Locator
from stormpsr.models.stream import build_encoder, build_temporal
from stormpsr.procedure.model import StateBits
from stormpsr.training.batches import ClipEmbeddings, ClipImages, KeyFrameImages, MoreRenders
from stormpsr.training.data import Renders, TrainingData, boxed_frames_of, key_frames_of
from stormpsr.training.fit import FitOptions, OnProgress, Task, fit, ignore_progress
from stormpsr.training.stage_folder import StageFolder, digest_of
from stormpsr.training.tasks.encoder import EncoderTask
from stormpsr.training.tasks.locator import BoxedImages, LocatorTask
from stormpsr.training.tasks.temporal import JointTask, TemporalTask, ValidationClips

StageName = Literal["locator", "encoder", "temporal", "joint"]
_MOST_VALIDATION_IMAGES = 800
_IMAGES_AT_ONCE = 64


@dataclass(frozen=True)
class Run:
    """A training run: what is trained on what, and where it is kept."""

    config: Config
    data: TrainingData
    folder: Path
    renders: Renders | None = None
    options: FitOptions = field(default_factory=FitOptions)
    on_progress: OnProgress = ignore_progress
    cache_folder: Path | None = None  # decoded frames; inside the run's folder if not given

    def stage(self, name: StageName) -> StageFolder:
        return StageFolder(self.folder / name)

    @property
    def cache(self) -> FrameCache:
        size = self.config.encoder.image_size
        return FrameCache(self.cache_folder or self.folder / "cache", size)

    def frames(self, recordings: Sequence[Recording]) -> list[NDArray[np.uint8]]:
        """Decoded frames, made first where they are missing."""
        self.cache.check_room(recording.source for recording in recordings)
        for recording in recordings:
            self.cache.fill(recording.source, on_progress=partial(self.on_progress, f"decode {recording.name}"))
        return [self.cache.read(recording.source) for recording in recordings]

    def render_images(self) -> list[Image]:
        """The images of renders, in their order; none if there are no renders."""
        images: list[Image] = []
        for source, numbers in () if self.renders is None else self.renders.sources:
            progress = partial(self.on_progress, f"decode {source.path.name}")
            frames = self.cache.frames(source, numbers, progress)
            images += [frames[number] for number in numbers]
        return images


def stages_of(config: Config) -> list[StageName]:
    """All stages that these settings have, in order."""
    finds = bool(config.encoder.crop_size) and not is_detector(config.encoder.weights)
    return [*(("locator",) if finds else ()), "encoder", "temporal", "joint"]


# ---------------------------------------------------------------------- locator
def train_locator(run: Run) -> Path:
    """Where the assembly is, learnt from boxes."""
    config, stage = run.config, run.config.train_locator
    boxed = boxed_frames_of(run.data.train, run.data.procedure)
    batches = stage.batches_per_epoch or max(len(boxed) // stage.batch_size, 1)
    frames, renders = run.frames(run.data.train), run.render_images()
    corners_R4 = None if run.renders is None else run.renders.corners_R4

    def make_dataset(epoch: int, shard: Shard) -> BoxedImages:
        return BoxedImages(boxed, frames, renders, corners_R4, config, epoch=epoch, batches=batches, shard=shard)

    torch.manual_seed(config.seed)
    task = LocatorTask(Locator(), config, make_dataset, batches, _boxed_validation(run), run.options.workers)
    folder = run.stage("locator")
    fit(task, epochs=stage.epochs, folder=folder, procedure=run.data.procedure, options=run.options)
    return folder.best


def _boxed_validation(run: Run) -> list[tuple[Tensor, Tensor]]:
    """Frames of the validation recordings with boxes, evenly thinned: (image_BSS3, corners_B4) in parts."""
    boxed = boxed_frames_of(run.data.val, run.data.procedure)
    frames = run.frames(run.data.val)
    chosen = np.arange(0, len(boxed), max(len(boxed) // _MOST_VALIDATION_IMAGES, 1))
    return [
        (
            torch.from_numpy(np.stack([frames[boxed.recording_M[i]][boxed.frame_M[i]] for i in part])),
            torch.from_numpy(boxed.corners_M4[part]),
        )
        for part in np.array_split(chosen, -(-len(chosen) // _IMAGES_AT_ONCE))
    ]


# ---------------------------------------------------------------------- spatial encoder
def key_frame_sampler(run: Run, shard: Shard | None = None) -> KeyFrameSampler:
    """The sampler of the first stage."""
    settings = run.config.key_frames
    frames = key_frames_of(run.data.encoder_recordings(run.config.train_encoder.held_out_share), run.config)
    labels = None
    if run.renders is None and (settings.n_syn or settings.n_more_renders):
        cure = "give --renders DIR, or set key_frames.n_syn=0 and key_frames.n_more_renders=0"
        raise InputError("the settings ask for renders, but there are none", cure=cure)
    if run.renders is not None and settings.n_syn:
        found = [frames.label_of(bits) for bits in run.renders.states]
        labels = np.array([-1 if label is None else label for label in found], dtype=np.int64)
    return KeyFrameSampler(
        frames,
        n_sample=settings.n_sample,
        n_syn=settings.n_syn,
        states_per_batch=settings.states_per_batch,
        seed=run.config.seed,
        render_label_R=labels,
        shard=shard,
    )


def _more_renders(run: Run, sampler: KeyFrameSampler) -> tuple[MoreRenders | None, list[StateBits]]:
    """Renders for every batch, and what all labels mean: states of key frames, then those that only renders show."""
    states = list(sampler.frames.states)
    n = run.config.key_frames.n_more_renders
    if run.renders is None or not n:
        return None, states
    if n % sampler.shard.count:
        cure = f"set key_frames.n_more_renders to a multiple of {sampler.shard.count}"
        raise InputError(f"{n} more renders cannot be shared equally by {sampler.shard.count} processes", cure=cure)
    label_of = {bits: label for label, bits in enumerate(states)}
    labels = [label_of.setdefault(bits, len(label_of)) for bits in run.renders.states]
    return MoreRenders(np.array(labels, dtype=np.int64), n, run.config.seed), list(label_of)


def train_encoder(run: Run, locator_folder: Path | None = None) -> Path:
    """Contrastive training on key frames; with a trained locator where the encoder looks at a crop."""
    config, stage = run.config, run.config.train_encoder
    sampler = key_frame_sampler(run)
    batches = stage.batches_per_epoch or sampler.batches_per_epoch
    frames = run.frames(run.data.encoder_recordings(stage.held_out_share))
    renders = run.render_images()

    more, states = _more_renders(run, sampler)

    def make_dataset(epoch: int, shard: Shard) -> KeyFrameImages:
        sampler = key_frame_sampler(run, shard)
        return KeyFrameImages(sampler, frames, renders, epoch=epoch, batches=batches, more=more)

    torch.manual_seed(config.seed)
    encoder = build_encoder(config.encoder)
    began_from: str | None = None
    if encoder.locator is not None and not is_detector(config.encoder.weights):
        if locator_folder is None:
            raise InputError("the encoder looks at a crop, but nobody says where", cure="train the locator first")
        located = load_checkpoint(locator_folder)
        encoder.locator.load_state_dict(located.locator().state_dict())
        began_from = digest_of(located.tensors)
    task = EncoderTask(
        encoder,
        config,
        make_dataset,
        batches,
        validation_images(run),
        states,
        key_frames_of(run.data.val, config).states,
        run.options.workers,
    )
    folder = run.stage("encoder")
    fit(
        task,
        epochs=stage.epochs,
        folder=folder,
        procedure=run.data.procedure,
        options=run.options,
        began_from=began_from,
    )
    return folder.best


def validation_recordings_share_states(run: Run) -> None:
    """Complain if an encoder is to be chosen by precision, but no validation image can have a right neighbour."""
    keys = key_frames_of(run.data.val, run.config)
    seen_in = {(int(label), int(recording)) for label, recording in zip(keys.label_M, keys.recording_M, strict=True)}
    shared = len(seen_in) > len({label for label, _ in seen_in})
    if run.config.train_encoder.select_by == "precision" and not shared:
        cure = "add validation recordings, or set train_encoder.select_by=loss"
        raise InputError("no state occurs in two validation recordings, so precision means nothing", cure=cure)


def validation_images(run: Run) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Key frames of the validation recordings, evenly thinned: (image_BSS3, label_B, recording_B) in parts."""
    validation_recordings_share_states(run)
    keys = key_frames_of(run.data.val, run.config)
    frames = run.frames(run.data.val)
    chosen = np.arange(0, len(keys), max(len(keys) // _MOST_VALIDATION_IMAGES, 1))
    parts = []
    for part in np.array_split(chosen, -(-len(chosen) // _IMAGES_AT_ONCE)):
        images = np.stack([frames[keys.recording_M[i]][keys.frame_M[i]] for i in part])
        labels = torch.from_numpy(keys.label_M[part]), torch.from_numpy(keys.recording_M[part])
        parts.append((torch.from_numpy(images), *labels))
    return parts


# ---------------------------------------------------------------------- embeddings
def embed_recordings(
    encoder: SpatialEncoder,
    recordings: Sequence[Recording],
    *,
    store_folder: Path,
    cache_folder: Path,
    dtype: Precision = "float16",
    frame_step: int = 1,
    on_progress: OnProgress = ignore_progress,
) -> list[NDArray[Any]]:
    """The embeddings of frames of recordings as memory maps, (F, D) each, made first where they are missing.

    Of all frames, or of every `frame_step`-th.
    """
    encoder = encoder.eval()
    store = EmbeddingStore(store_folder, encoder_digest(encoder), encoder.embedding_dim, dtype)
    cache = FrameCache(cache_folder, encoder.image_size)
    device = next(encoder.parameters()).device

    def encode(image_BSS3: NDArray[np.uint8]) -> NDArray[np.floating]:
        with torch.inference_mode():
            return np.asarray(encoder.embed(torch.from_numpy(image_BSS3.copy()).to(device)).float().cpu().numpy())

    found = []
    for recording in recordings:
        name = f"{recording.split or 'all'}/{recording.name}"
        cache.fill(recording.source, on_progress=partial(on_progress, f"decode {recording.name}"))
        image_FSS3, fps = cache.read(recording.source)[::frame_step], recording.fps / frame_step
        images = recording.source.fingerprint()
        store.write(
            name,
            image_FSS3,
            fps,
            encode,
            images=images,
            batch_size=_IMAGES_AT_ONCE,
            on_progress=partial(on_progress, f"embed {recording.name}"),
        )
        found.append(store.read(name, len(image_FSS3), fps, images=images))
    return found


def embed(run: Run, encoder: SpatialEncoder, recordings: Sequence[Recording]) -> list[NDArray[Any]]:
    """The embeddings of recordings, made first where they are missing. Each encoder has its own store.

    Of every frame, or, where clips are aligned, of those that a clip can have.
    """
    step = run.config.clips.frame_step
    return embed_recordings(
        encoder,
        recordings,
        store_folder=run.folder / "embeddings" / (encoder_digest(encoder) + (f"-{step}" if step > 1 else "")),
        cache_folder=run.cache_folder or run.folder / "cache",
        frame_step=step,
        on_progress=run.on_progress,
    )


# ---------------------------------------------------------------------- clips
def clip_recordings(run: Run, stage: TemporalTrainingConfig) -> tuple[Recording, ...]:
    """The training recordings that a stage takes clips from."""
    if stage.recordings == "all":
        return run.data.train
    held_out = run.data.held_out(run.config.train_encoder.held_out_share)
    if not held_out:
        cure = "set train_encoder.held_out_share above 0, or recordings to all"
        raise InputError("no recordings are held out of the encoder's training", cure=cure)
    return held_out


def clip_sampler(
    run: Run, stage: TemporalTrainingConfig, recordings: Sequence[Recording], shard: Shard | None = None
) -> ClipSampler:
    """The sampler of the second and third stage. An epoch has about as many clips as the window fits in."""
    clips = run.config.clips
    probabilities = [
        end_frame_probabilities(
            clips.distribution,
            change_frames(recording.states),
            recording.n_frames,
            delta_frames=clips.delta_frames,
            sigma_frames=clips.sigma_frames,
        )
        for recording in recordings
        if recording.states is not None
    ]
    n_clips = sum(recording.n_frames for recording in recordings) // clips.stride_frames
    return ClipSampler(
        probabilities,
        batch_size=stage.batch_size,
        batches_per_epoch=stage.batches_per_epoch or max(n_clips // stage.batch_size, 1),
        seed=run.config.seed,
        shard=shard,
        align_frames=clips.frame_step,
    )


def check_fits(run: Run, checkpoint: Checkpoint, *, with_temporal: bool = False) -> None:
    """Refuse to go on from networks of other settings: hours later, the result could not be loaded."""
    if checkpoint.procedure != run.data.procedure:
        cure = "train it on this data set first"
        raise InputError(
            f"this was trained for procedure {checkpoint.procedure.name!r}", path=checkpoint.path, cure=cure
        )
    theirs, ours = checkpoint.config, run.config
    pairs = [("encoder", theirs.encoder.model_dump(exclude={"weights"}), ours.encoder.model_dump(exclude={"weights"}))]
    if with_temporal:
        pairs.append(("temporal", theirs.temporal.model_dump(), ours.temporal.model_dump()))
        pairs.append(("clips", theirs.clips.model_dump(), ours.clips.model_dump()))
    for section, before, now in pairs:
        for name in sorted({*before, *now}):
            if section == "clips" and name not in ("window_frames", "n_window"):
                continue
            if before.get(name) != now.get(name):
                problem = f"this was trained with {section}.{name}={before.get(name)}, but now it is {now.get(name)}"
                raise InputError(problem, path=checkpoint.path, cure="use the same settings, or train it again")


def _fit_from(checkpoint: Checkpoint, run: Run, name: StageName, task: Task, epochs: int) -> Path:
    """Train a stage that goes on from another one's result, and remembers which."""
    folder, began_from = run.stage(name), digest_of(checkpoint.tensors)
    procedure, options = run.data.procedure, run.options
    fit(task, epochs=epochs, folder=folder, procedure=procedure, options=options, began_from=began_from)
    return folder.best


def train_temporal(run: Run, encoder_folder: Path) -> Path:
    """The temporal model on the embeddings of a trained encoder."""
    config, stage = run.config, run.config.train_temporal
    checkpoint = load_checkpoint(encoder_folder)
    check_fits(run, checkpoint)
    encoder = checkpoint.encoder()
    recordings = clip_recordings(run, stage)
    stores, val_stores = embed(run, encoder, recordings), embed(run, encoder, run.data.val)
    states = [recording.states_FC for recording in recordings]
    offsets_N = window_offsets(config.clips.window_frames, config.clips.n_window)

    def make_dataset(epoch: int, shard: Shard) -> ClipEmbeddings:
        sampler = clip_sampler(run, stage, recordings, shard)
        return ClipEmbeddings(stores, sampler, states, offsets_N, epoch=epoch, frame_step=config.clips.frame_step)

    torch.manual_seed(config.seed)
    task = TemporalTask(
        build_temporal(config, run.data.procedure.n_components),
        encoder,
        config,
        make_dataset,
        clip_sampler(run, stage, recordings).batches_per_epoch,
        ValidationClips(run.data.val, run.data.procedure, config),
        val_stores,
        run.options.workers,
    )
    return _fit_from(checkpoint, run, "temporal", task, stage.epochs)


def train_joint(run: Run, temporal_folder: Path) -> Path:
    """Both together, from images."""
    config = run.config
    checkpoint = load_checkpoint(temporal_folder)
    check_fits(run, checkpoint, with_temporal=True)
    stage: JointTrainingConfig = config.train_joint
    recordings = clip_recordings(run, stage)
    frames, val_frames = run.frames(recordings), run.frames(run.data.val)
    states = [recording.states_FC for recording in recordings]
    offsets_N = window_offsets(config.clips.window_frames, config.clips.n_window)

    def make_dataset(epoch: int, shard: Shard) -> ClipImages:
        return ClipImages(frames, clip_sampler(run, stage, recordings, shard), states, offsets_N, epoch=epoch)

    torch.manual_seed(config.seed)
    task = JointTask(
        checkpoint.stream(),
        config,
        make_dataset,
        clip_sampler(run, stage, recordings).batches_per_epoch,
        ValidationClips(run.data.val, run.data.procedure, config),
        val_frames,
        run.options.workers,
    )
    return _fit_from(checkpoint, run, "joint", task, stage.epochs)
