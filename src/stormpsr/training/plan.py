"""Before hours are spent on training: what would stop it later, what it will do, and roughly how long it will take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from stormpsr.data.recording import Recording
from stormpsr.data.sources import Video
from stormpsr.errors import InputError
from stormpsr.models.checkpoint import load_checkpoint
from stormpsr.models.locator import Locator
from stormpsr.models.stream import build_encoder, build_stream
from stormpsr.procedure.model import bit_string
from stormpsr.training.data import boxed_frames_of, key_frames_of
from stormpsr.training.fit import check_machine
from stormpsr.training.stage_folder import digest_of
from stormpsr.training.stages import (
    Run,
    StageName,
    check_fits,
    clip_recordings,
    clip_sampler,
    key_frame_sampler,
    stages_of,
    validation_recordings_share_states,
)

Clock = Callable[[], float]  # seconds
_TIMED_STEPS = 2
_MOST_IMAGES, _MOST_CLIPS = 16, 16  # of a timed step; larger batches take longer in proportion


def check_run(run: Run, names: Sequence[StageName], *, skip_finished: bool) -> list[StageName]:
    """Complain of everything that can be known without training; the stages that are left to be trained."""
    left = [name for name in names if not (skip_finished and run.stage(name).is_finished)]
    if left:
        check_machine(run.options)
    if rank_zero_only.rank != 0:  # started by the first process, which has looked already
        return left
    _check_stages(run, names, left)
    _check_shares(run, left)
    if "encoder" in left and run.config.encoder.weights != "hub":  # those are downloaded when they are needed
        build_encoder(run.config.encoder)
    if left:
        recordings = recordings_of(run, left)
        run.cache.check_room(recording.source for recording in recordings)
        check_images([recording for recording in recordings if not run.cache.rows(recording.source).is_complete])
    return left


# ---------------------------------------------------------------------- stages
def _check_stages(run: Run, names: Sequence[StageName], left: Sequence[StageName]) -> None:
    """Each stage goes on from the one before: it must be there, or be trained now, and fit."""
    order = stages_of(run.config)
    for name in names:
        folder = run.stage(name)
        if name in left:
            folder.check(run.config, resume=run.options.resume)
        if name == order[0]:
            continue
        before = order[order.index(name) - 1]
        if before in left:
            folder.check_began_from(None, before)
            continue
        source = run.stage(before).best
        if not source.is_dir():
            raise InputError(f"there is no trained {before}", path=source, cure=f"run 'stormpsr train {before}' first")
        checkpoint = load_checkpoint(source)
        if before == "locator":
            checkpoint.locator()
        else:
            check_fits(run, checkpoint, with_temporal=before == "temporal")
        folder.check_began_from(digest_of(checkpoint.tensors), before)


# ---------------------------------------------------------------------- processes
def _check_shares(run: Run, names: Sequence[StageName]) -> None:
    """Every process takes as many items of a batch as the others."""
    n = run.options.processes
    for setting, size in _batch_sizes(run, names):
        if size % n:
            cure = f"change {setting} so that {n} divides it, or --devices"
            raise InputError(f"a batch of {size} ({setting}) cannot be shared equally by {n} processes", cure=cure)


def _batch_sizes(run: Run, names: Sequence[StageName]) -> Iterator[tuple[str, int]]:
    config = run.config
    if "locator" in names:
        yield "train_locator.batch_size", config.train_locator.batch_size
    if "encoder" in names:
        settings = config.key_frames
        counted = "(key_frames.n_sample + n_syn) x states" if settings.n_syn else "key_frames.n_sample x states"
        yield counted, key_frame_sampler(run).batch_size
        yield "key_frames.n_more_renders", settings.n_more_renders
    if "temporal" in names:
        yield "train_temporal.batch_size", config.train_temporal.batch_size
    if "joint" in names:
        yield "train_joint.batch_size", config.train_joint.batch_size


# ---------------------------------------------------------------------- images
def recordings_of(run: Run, names: Sequence[StageName]) -> list[Recording]:
    """The recordings whose images some stages need, each once."""
    config = run.config
    parts: dict[StageName, Callable[[], Sequence[Recording]]] = {
        "locator": lambda: run.data.train,
        "encoder": lambda: run.data.encoder_recordings(config.train_encoder.held_out_share),
        "temporal": lambda: clip_recordings(run, config.train_temporal),
        "joint": lambda: clip_recordings(run, config.train_joint),
    }
    needed = [recording for name in names for recording in parts[name]()]
    return list({recording.path: recording for recording in (*needed, *run.data.val)}.values())


def check_images(recordings: Sequence[Recording]) -> None:
    """Read the first and the last image of each recording, and count the frames of videos."""
    for recording in recordings:
        source = recording.source
        if isinstance(source, Video):
            source.check_count()
        list(source.images_at([0, recording.n_frames - 1]))


# ---------------------------------------------------------------------- the plan
@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage: how much of what."""

    name: StageName
    recordings: int
    items: str  # what a batch consists of
    batch_size: int
    batches_per_epoch: int
    epochs: int
    seconds_per_batch: float  # measured here, on made-up numbers, without validation

    @property
    def minutes(self) -> float:
        return self.epochs * self.batches_per_epoch * self.seconds_per_batch / 60


@dataclass(frozen=True, slots=True)
class RunPlan:
    """All stages, what will be written, and what is odd about the data."""

    stages: tuple[StagePlan, ...]
    states: tuple[str, ...]  # told apart by the encoder, as "110"
    cache_bytes: int  # of decoded frames that are still to be written
    notes: tuple[str, ...]


def plan_stages(run: Run, asked: Sequence[StageName], clock: Clock, *, skip_finished: bool = False) -> RunPlan:
    """Check everything that can be checked without training, and time a few steps of each stage."""
    config = run.config
    names = check_run(run, asked, skip_finished=skip_finished)
    sampler = key_frame_sampler(run) if "encoder" in names else None
    timer = _StepTimer(run, clock)
    stages: list[StagePlan] = []
    if "locator" in names:
        locating = config.train_locator
        boxed = boxed_frames_of(run.data.train, run.data.procedure)
        boxed_frames_of(run.data.val, run.data.procedure)  # complains if there are none to choose by
        batches = locating.batches_per_epoch or max(len(boxed) // locating.batch_size, 1)
        seconds = timer.locator_step(locating.batch_size)
        n = len(run.data.train)
        stages.append(StagePlan("locator", n, "images", locating.batch_size, batches, locating.epochs, seconds))
    if sampler is not None:
        validation_recordings_share_states(run)
        stage = config.train_encoder
        n = len(run.data.encoder_recordings(stage.held_out_share))
        batches = stage.batches_per_epoch or sampler.batches_per_epoch
        size = sampler.batch_size + config.key_frames.n_more_renders
        seconds = timer.encoder_step(size)
        stages.append(StagePlan("encoder", n, "images", size, batches, stage.epochs, seconds))
    if "temporal" in names:
        stages.append(_plan_clips(run, "temporal", timer.temporal_step))
    if "joint" in names:
        stages.append(_plan_clips(run, "joint", timer.joint_step))
    missing = run.cache.missing_bytes(recording.source for recording in recordings_of(run, names)) if names else 0
    finished = [f"{name} is finished and will be skipped" for name in asked if name not in names]
    notes = (*run.data.notes(config), *(sampler.notes if sampler else ()), *finished)
    keys = key_frames_of(run.data.encoder_recordings(config.train_encoder.held_out_share), config)
    return RunPlan(tuple(stages), tuple(bit_string(bits) for bits in keys.states), missing, notes)


def _plan_clips(run: Run, name: StageName, time_step: Callable[[int], float]) -> StagePlan:
    stage = run.config.train_joint if name == "joint" else run.config.train_temporal
    recordings = clip_recordings(run, stage)
    sampler = clip_sampler(run, stage, recordings)
    size, batches = sampler.batch_size, sampler.batches_per_epoch
    return StagePlan(name, len(recordings), "clips", size, batches, stage.epochs, time_step(size))


class _StepTimer:
    """Times forward and backward passes of the real networks on made-up numbers."""

    def __init__(self, run: Run, clock: Clock) -> None:
        self._config, self._clock = run.config, clock
        self._device = run.options.torch_device
        stream = build_stream(run.config, run.data.procedure.n_components, weights="none")
        self._stream = stream.to(self._device)

    def locator_step(self, batch_size: int) -> float:
        n = min(batch_size, _MOST_IMAGES)
        image_BSS3, corners_B4 = self._images(n), torch.tensor([[0.2, 0.2, 0.8, 0.8]] * n, device=self._device)
        locator = Locator().to(self._device)
        return batch_size / n * self._time(lambda: locator.loss(image_BSS3, corners_B4))

    def encoder_step(self, batch_size: int) -> float:
        n = min(batch_size, _MOST_IMAGES)
        image_BSS3 = self._images(n)
        return batch_size / n * self._time(lambda: self._stream.encoder(image_BSS3))

    def temporal_step(self, batch_size: int) -> float:
        n = min(batch_size, _MOST_CLIPS)
        clip_BND = torch.zeros(n, self._n_window, self._config.encoder.embedding_dim, device=self._device)
        mask_BN = self._mask(n)
        return batch_size / n * self._time(lambda: self._stream.temporal(clip_BND, mask_BN))

    def joint_step(self, batch_size: int) -> float:
        image_BNSS3, mask_BN = self._images(self._n_window)[None], self._mask(1)
        return batch_size * self._time(lambda: self._stream(image_BNSS3, mask_BN))

    @property
    def _n_window(self) -> int:
        return self._config.clips.n_window

    def _images(self, n: int) -> Tensor:
        size = self._config.encoder.image_size
        return torch.zeros(n, size, size, 3, dtype=torch.uint8, device=self._device)

    def _mask(self, n: int) -> Tensor:
        return torch.ones(n, self._n_window, dtype=torch.bool, device=self._device)

    def _time(self, forward: Callable[[], Tensor]) -> float:
        forward().sum().backward()  # the first is slower
        begin = self._clock()
        for _ in range(_TIMED_STEPS):
            forward().sum().backward()
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return (self._clock() - begin) / _TIMED_STEPS
