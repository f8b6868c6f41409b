"""The three stages in order: spatial encoder, temporal model on its embeddings, both together.

Each function prepares what its stage needs (decoded frames, embeddings), trains, and returns the folder of the best
checkpoint. What is there already is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stormpsr.cluster import Cluster, loaded_once, map_recordings
from stormpsr.config import ClipConfig, Config, TemporalTrainingConfig
from stormpsr.data.embedding_store import EmbeddingStore, Precision, read_clips
from stormpsr.data.frame_cache import FrameCache, Frames
from stormpsr.data.recording import Recording, RecordingReference, folders_read
from stormpsr.data.sampling import (
    ClipSampler,
    KeyFrames,
    KeyFrameSampler,
    Shard,
    change_frames,
    end_frame_probabilities,
    window_offsets,
)
from stormpsr.detectors.base import read_config
from stormpsr.errors import InputError
from stormpsr.models.checkpoint import (
    Checkpoint,
    begin_with,
    device_of,
    encoder_digest,
    keep_freed_memory,
    load_checkpoint,
    save_checkpoint,
)
from stormpsr.models.encoder import QUERIES, SpatialEncoder, detector_tensors, is_detector
from stormpsr.models.locator import Locator
from stormpsr.models.stream import build_encoder, build_temporal
from stormpsr.procedure.model import Procedure, StateBits
from stormpsr.training.data import (
    BoxedFrames,
    Clips,
    KeyFrameImages,
    MoreRenders,
    ReadClips,
    RenderImages,
    Renders,
    TrainingData,
    boxed_frames_of,
    key_frames_of,
    read_images,
    told_parts,
)
from stormpsr.training.fit import FitOptions, OnProgress, StageTask, fit, ignore_progress
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
    cache_folder: Path | None = None  # decoded frames and embeddings, to share; inside the run's folder if not given
    start: Checkpoint | None = None  # a trained stream: networks begin with those of its tensors that fit them

    def stage(self, name: StageName) -> StageFolder:
        return StageFolder(self.folder / name)

    @property
    def cache(self) -> FrameCache:
        size = self.config.encoder.image_size
        return FrameCache(self.cache_folder or self.folder / "cache", size)

    @property
    def store_folder(self) -> Path:
        """Where embeddings are kept, by the digest of their encoder: runs that share a cache share them, too."""
        return (self.cache_folder or self.folder) / "embeddings"

    def frames(self, recordings: Sequence[Recording]) -> list[Frames]:
        """Decoded frames, made first where they are missing."""
        self.cache.check_room(recording.source for recording in recordings)
        found: dict[int, Frames] = {}
        for place in self.options.own_first(range(len(recordings))):
            told = partial(self.on_progress, f"decode {recordings[place].name}")
            found[place] = self.cache.frames(recordings[place].source, on_progress=told)
        return [found[place] for place in range(len(recordings))]

    def render_images(self) -> RenderImages:
        """The images of renders, in their order; none if there are no renders."""
        parts: list[tuple[Frames, Sequence[int]]] = []
        for source, numbers in () if self.renders is None else self.renders.sources:
            progress = partial(self.on_progress, f"decode {source.path.name}")
            parts.append((self.cache.frames(source, numbers, progress), numbers))
        return RenderImages(parts)


def stages_of(config: Config) -> list[StageName]:
    """All stages that these settings have, in order."""
    finds = bool(config.encoder.crop_size) and not is_detector(config.encoder.weights)
    return [*(("locator",) if finds else ()), "encoder", "temporal", "joint"]


def _fit(run: Run, name: StageName, task: StageTask, began_from: str | None = None) -> Path:
    """Train a stage, which remembers the networks that it goes on from."""
    folder, procedure = run.stage(name), run.data.procedure
    fit(
        task,
        epochs=task.stage.epochs,
        folder=folder,
        procedure=procedure,
        options=run.options,
        began_from=began_from,
    )
    return folder.best


def as_detector_reads(config: Config) -> Config:
    """Settings whose encoder has the sizes of the detector that it starts from, where it keeps that one's reader."""
    own, folder = config.encoder, Path(config.encoder.weights)
    if not (own.frozen_reader and is_detector(own.weights)):
        return config
    theirs = read_config(folder)[0].settings
    sizes: dict[str, Any] = {n: theirs[n] for n in ("backbone", "image_size", "crop_size") if n in theirs}
    sizes["n_queries"] = len(detector_tensors(folder)["reader"][QUERIES])
    return config.model_copy(update={"encoder": own.model_copy(update=sizes)})


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
    val = boxed_frames_of(run.data.val, run.data.procedure)
    task = LocatorTask(Locator(), config, make_dataset, _validation_images(run, val, val.corners_M4))
    return _fit(run, "locator", task)


def _validation_images(run: Run, chosen: BoxedFrames | KeyFrames, *known: NDArray[Any]) -> list[tuple[Tensor, ...]]:
    """Frames of the validation recordings, evenly thinned, and what is known of each: (image_BSS3, ...) in parts."""
    frames = run.frames(run.data.val)
    thinned = np.arange(0, len(chosen), max(len(chosen) // _MOST_VALIDATION_IMAGES, 1))
    return [
        tuple(
            torch.from_numpy(rows)
            for rows in (
                np.stack([frames[chosen.recording_M[i]][chosen.frame_M[i]] for i in part]),
                *(rows_M[part] for rows_M in known),
            )
        )
        for part in np.array_split(thinned, -(-len(thinned) // _IMAGES_AT_ONCE))
    ]


# ---------------------------------------------------------------------- spatial encoder
def key_frame_sampler(run: Run, shard: Shard | None = None) -> KeyFrameSampler:
    """The sampler of the first stage."""
    settings = run.config.key_frames
    frames = key_frames_of(
        run.data.encoder_recordings(run.config.train_encoder.held_out_share), run.config, run.data.procedure
    )
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
    label_of = {bits: label for label, bits in enumerate(states)}
    labels = [label_of.setdefault(bits, len(label_of)) for bits in run.renders.states]
    return MoreRenders(np.array(labels, dtype=np.int64), n, run.config.seed), list(label_of)


def train_encoder(run: Run, locator_folder: Path | None = None) -> Path:
    """Contrastive training on key frames; with a trained locator where the encoder looks at a crop."""
    config, stage = run.config, run.config.train_encoder
    if not stage.epochs:
        return _keep_encoder(run, locator_folder)
    sampler = key_frame_sampler(run)
    batches = stage.batches_per_epoch or sampler.batches_per_epoch
    recordings = run.data.encoder_recordings(stage.held_out_share)
    frames, renders = run.frames(recordings), run.render_images()
    told = [told_parts(recording, run.data.procedure) for recording in recordings]
    told_renders_RC = None if run.renders is None else run.renders.told_RC
    more, states = _more_renders(run, sampler)

    def make_dataset(epoch: int, shard: Shard) -> KeyFrameImages:
        sampler = key_frame_sampler(run, shard)
        images = (frames, renders, told, told_renders_RC)
        return KeyFrameImages(sampler, *images, epoch=epoch, batches=batches, more=more)

    encoder, began_from = _new_encoder(run, locator_folder)
    validation_recordings_share_states(run)
    keys = key_frames_of(run.data.val, config, run.data.procedure)
    images = _validation_images(run, keys, keys.label_M, keys.recording_M)
    task = EncoderTask(encoder, config, make_dataset, images, states, keys.states)
    return _fit(run, "encoder", task, began_from)


def _new_encoder(run: Run, locator_folder: Path | None) -> tuple[SpatialEncoder, str | None]:
    """An encoder before its training, and the digest of the locator that it took over, if any."""
    torch.manual_seed(run.config.seed)
    encoder = build_encoder(run.config.encoder)
    start = {} if run.start is None else run.start.tensors
    # where the assembly is, a detector or a stage before has learnt on these very recordings
    begin_with(encoder, {name: start[name] for name in start if not name.startswith("encoder.locator.")}, "encoder.")
    if encoder.locator is None or is_detector(run.config.encoder.weights):
        return encoder, digest_of(start) if start else None
    if locator_folder is None:
        raise InputError("the encoder looks at a crop, but nobody says where", cure="train the locator first")
    located = load_checkpoint(locator_folder)
    encoder.locator.load_state_dict(located.locator().state_dict())
    return encoder, digest_of(located.tensors)


def _keep_encoder(run: Run, locator_folder: Path | None) -> Path:
    """The stage of an encoder that is not trained: its checkpoint is what it begins with."""
    folder = run.stage("encoder")
    encoder, began_from = _new_encoder(run, locator_folder)
    folder.begin(run.config, resume=run.options.resume, began_from=began_from)
    tensors = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    metrics = {"epoch": -1, "trained": False}
    save_checkpoint(folder.best, tensors=tensors, config=run.config, procedure=run.data.procedure, metrics=metrics)
    folder.finish()
    return folder.best


def validation_recordings_share_states(run: Run) -> None:
    """Complain if an encoder is to be chosen by precision, but no validation image can have a right neighbour."""
    keys = key_frames_of(run.data.val, run.config, run.data.procedure)
    seen_in = {(int(label), int(recording)) for label, recording in zip(keys.label_M, keys.recording_M, strict=True)}
    shared = len(seen_in) > len({label for label, _ in seen_in})
    if run.config.train_encoder.select_by == "precision" and not shared:
        cure = "add validation recordings, or set train_encoder.select_by=loss"
        raise InputError("no state occurs in two validation recordings, so precision means nothing", cure=cure)


# ---------------------------------------------------------------------- embeddings
def embed_recordings(
    encoder: SpatialEncoder,
    recordings: Sequence[Recording],
    *,
    store_folder: Path,
    cache_folder: Path,
    dtype: Precision = "float16",
    frame_step: int = 1,
    cluster: Cluster | None = None,
    on_progress: OnProgress = ignore_progress,
) -> list[NDArray[Any]]:
    """The embeddings of frames of recordings as memory maps, (F, D) each, made first where they are missing.

    Of all frames, or of every `frame_step`-th. The workers of a cluster read the encoder with `load` (see
    `load_encoder`) and write into both folders, which they must see.
    """
    encoder = encoder.eval()
    store = EmbeddingStore(store_folder, encoder_digest(encoder), encoder.embedding_dim, dtype)
    cache = FrameCache(cache_folder, encoder.image_size)
    if cluster is None:
        here = ((recording.name, recording) for recording in recordings)
        list(map_recordings(partial(_embed_one, encoder, store, cache, frame_step), here, on_progress=on_progress))
    else:
        places = store_folder.resolve(), cache_folder.resolve()
        made = map_recordings(
            partial(_embed_there, cluster.load, replace(store, folder=places[0]), places[1], frame_step),
            [(recording.name, recording.reference()) for recording in recordings],
            cluster=cluster,
            reads=folders_read(recordings),
            writes=places,
            on_progress=on_progress,
        )
        list(made)
    return [store.read(*_rows_of(recording, frame_step), images=recording.fingerprint()) for recording in recordings]


def load_encoder(checkpoint: Path, device: str, threads: int | None = None) -> tuple[SpatialEncoder, Procedure]:
    """A trained encoder, where it is to compute, and the procedure that it was trained for."""
    where, loaded = device_of(device, threads), load_checkpoint(checkpoint)
    return loaded.encoder().to(where).eval(), loaded.procedure


def _rows_of(recording: Recording, frame_step: int) -> tuple[str, int, float]:
    """What a recording is called in a store, how many rows it has there, and how many of them are a second."""
    name = f"{recording.split or 'all'}/{recording.name}"
    return name, -(-recording.n_frames // frame_step), recording.fps / frame_step


def _embed_one(
    encoder: SpatialEncoder,
    store: EmbeddingStore,
    cache: FrameCache,
    frame_step: int,
    recording: Recording,
    report: OnProgress,
) -> None:
    keep_freed_memory()
    device = next(encoder.parameters()).device
    frames = cache.frames(recording.source, on_progress=partial(report, f"decode {recording.name}"))
    number_F = np.arange(0, recording.n_frames, frame_step)

    def encode(rows: slice) -> NDArray[np.floating]:
        with torch.inference_mode():
            image_BSS3 = torch.from_numpy(frames[number_F[rows]]).to(device)
            return np.asarray(encoder.embed(image_BSS3).float().cpu().numpy())

    store.write(
        *_rows_of(recording, frame_step),
        encode,
        images=recording.fingerprint(),
        batch_size=_IMAGES_AT_ONCE,
        on_progress=partial(report, f"embed {recording.name}"),
    )


def _embed_there(
    load: Callable[[], tuple[SpatialEncoder, Procedure]],
    store: EmbeddingStore,
    cache_folder: Path,
    frame_step: int,
    reference: RecordingReference,
    report: OnProgress,
) -> None:
    """The embeddings of a recording, on a worker of a cluster."""
    encoder, procedure = loaded_once(store.encoder_digest, load)
    if encoder_digest(encoder) != store.encoder_digest:
        problem, cure = "this is another encoder than where the command was given", "give all machines the same files"
        raise InputError(problem, cure=cure)
    cache = FrameCache(cache_folder, encoder.image_size)
    _embed_one(encoder, store, cache, frame_step, reference.open(procedure), report)


def embed(run: Run, encoder: SpatialEncoder, recordings: Sequence[Recording]) -> list[NDArray[Any]]:
    """The embeddings of recordings, made first where they are missing. Each encoder has its own store.

    Of every frame, or, where clips are aligned, of those that a clip can have.
    """
    step = run.config.clips.frame_step
    order = run.options.own_first(range(len(recordings)))
    found = embed_recordings(
        encoder,
        [recordings[place] for place in order],
        store_folder=run.store_folder / (encoder_digest(encoder) + (f"-{step}" if step > 1 else "")),
        cache_folder=run.cache_folder or run.folder / "cache",
        frame_step=step,
        on_progress=run.on_progress,
    )
    return [found[order.index(place)] for place in range(len(recordings))]


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


def clip_batches_per_epoch(run: Run, stage: TemporalTrainingConfig, recordings: Sequence[Recording]) -> int:
    """As many as are set, or an epoch has about as many clips as the window fits in."""
    n_clips = sum(recording.n_frames for recording in recordings) // run.config.clips.stride_frames
    return stage.batches_per_epoch or max(n_clips // stage.batch_size, 1)


def clip_sampler(
    run: Run, stage: TemporalTrainingConfig, recordings: Sequence[Recording], shard: Shard | None = None
) -> ClipSampler:
    """The sampler of the second and third stage."""
    clips = run.config.clips
    probabilities = [
        end_frame_probabilities(
            clips.distribution,
            change_frames(recording.states),
            recording.n_frames,
            delta_frames=clips.delta_frames,
            sigma_frames=clips.sigma_frames,
            window_frames=clips.window_frames,
        )
        for recording in recordings
        if recording.states is not None
    ]
    return ClipSampler(
        probabilities,
        batch_size=stage.batch_size,
        batches_per_epoch=clip_batches_per_epoch(run, stage, recordings),
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
    compared: dict[str, Any] = {"encoder": {"weights"}}  # section -> settings that may differ
    if with_temporal:
        compared |= {"temporal": set(), "clips": {*ClipConfig.model_fields} - {"window_frames", "n_window"}}
    for section, free in compared.items():
        before, now = (getattr(config, section).model_dump(exclude=free) for config in (checkpoint.config, run.config))
        for name in sorted({*before, *now}):
            if before.get(name) != now.get(name):
                problem = f"this was trained with {section}.{name}={before.get(name)}, but now it is {now.get(name)}"
                raise InputError(problem, path=checkpoint.path, cure="use the same settings, or train it again")


def train_temporal(run: Run, encoder_folder: Path) -> Path:
    """The temporal model on the embeddings of a trained encoder."""
    config = run.config
    checkpoint = load_checkpoint(encoder_folder)
    check_fits(run, checkpoint)
    encoder = checkpoint.encoder().to(run.options.torch_device)  # for the embeddings, the longest part of it
    recordings = clip_recordings(run, config.train_temporal)
    stores, val_stores = embed(run, encoder, recordings), embed(run, encoder, run.data.val)
    encoder = encoder.cpu()
    read = partial(read_clips, stores, frame_step=config.clips.frame_step)
    make_dataset = partial(_clips, run, config.train_temporal, recordings, read)
    torch.manual_seed(config.seed)
    temporal = build_temporal(config, run.data.procedure.n_components)
    begin_with(temporal, {} if run.start is None else run.start.tensors, "temporal.")
    validation = ValidationClips(run.data.val, run.data.procedure, config)
    task = TemporalTask(temporal, encoder, config, make_dataset, validation, val_stores)
    return _fit(run, "temporal", task, digest_of(checkpoint.tensors))


def train_joint(run: Run, temporal_folder: Path) -> Path:
    """Both together, from images."""
    config = run.config
    checkpoint = load_checkpoint(temporal_folder)
    check_fits(run, checkpoint, with_temporal=True)
    recordings = clip_recordings(run, config.train_joint)
    frames, val_frames = run.frames(recordings), run.frames(run.data.val)
    make_dataset = partial(_clips, run, config.train_joint, recordings, partial(read_images, frames))
    torch.manual_seed(config.seed)
    validation = ValidationClips(run.data.val, run.data.procedure, config)
    task = JointTask(checkpoint.stream(), config, make_dataset, validation, val_frames)
    return _fit(run, "joint", task, digest_of(checkpoint.tensors))


def _clips(
    run: Run,
    stage: TemporalTrainingConfig,
    recordings: Sequence[Recording],
    read: ReadClips,
    epoch: int,
    shard: Shard,
) -> Clips:
    clips, states = run.config.clips, [recording.states_FC for recording in recordings]
    offsets_N = window_offsets(clips.window_frames, clips.n_window)
    return Clips(read, clip_sampler(run, stage, recordings, shard), states, offsets_N, epoch=epoch)
