"""Before hours are spent on training: what would stop it later, what it will do, and roughly how long it will take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor, nn

from stormpsr.config import EncoderConfig
from stormpsr.data.recording import Recording
from stormpsr.data.sources import FrameSource, Video
from stormpsr.errors import InputError
from stormpsr.models.backbones import check_hub
from stormpsr.models.checkpoint import load_checkpoint
from stormpsr.models.locator import Locator
from stormpsr.models.stream import SpatioTemporalModel, build_encoder, build_stream
from stormpsr.procedure.model import bit_string
from stormpsr.training.data import boxed_frames_of, key_frames_of
from stormpsr.training.fit import check_machine
from stormpsr.training.stage_folder import digest_of
from stormpsr.training.stages import (
    Run,
    StageName,
    check_fits,
    clip_batches_per_epoch,
    clip_recordings,
    key_frame_sampler,
    stages_of,
    validation_recordings_share_states,
)

Clock = Callable[[], float]  # seconds
_TIMED_STEPS = 2
_MOST_ITEMS = 16  # of a timed step; larger batches take longer in proportion


def check_run(run: Run, names: Sequence[StageName], *, skip_finished: bool) -> list[StageName]:
    """Complain of everything that can be known without training; the stages that are left to be trained."""
    left = [name for name in names if not (skip_finished and run.stage(name).is_finished)]
    if left:
        check_machine(run.options)
    if rank_zero_only.rank != 0:  # started by the first process, which has looked already
        return left
    _check_stages(run, names, left)
    _check_shares(run, left)
    if "encoder" in left:
        check_weights(run.config.encoder)
    if left:
        recordings = recordings_of(run, left)
        run.cache.check_room((recording.source for recording in recordings), renders_of(run, left))
        check_images([recording for recording in recordings if not run.cache.is_filled(recording.source)])
    return left


def check_weights(encoder: EncoderConfig) -> None:
    """Complain if the weights that an encoder begins with cannot be had."""
    if encoder.weights == "hub":
        check_hub(encoder.backbone)
    else:
        build_encoder(encoder)


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
    for name in names:
        if name == "encoder" and not run.config.train_encoder.epochs:
            continue
        if name == "encoder":
            settings = run.config.key_frames
            counted = "(key_frames.n_sample + n_syn) x states" if settings.n_syn else "key_frames.n_sample x states"
            yield counted, key_frame_sampler(run).batch_size
            yield "key_frames.n_more_renders", settings.n_more_renders
        else:
            yield f"train_{name}.batch_size", getattr(run.config, f"train_{name}").batch_size


# ---------------------------------------------------------------------- images
def recordings_of(run: Run, names: Sequence[StageName]) -> list[Recording]:
    """The recordings whose images some stages need, each once."""
    needed = [recording for name in names for recording in _trained_on(run, name)]
    return list({recording.path: recording for recording in (*needed, *run.data.val)}.values())


def renders_of(run: Run, names: Sequence[StageName]) -> Sequence[tuple[FrameSource, Sequence[int]]]:
    """The renders whose images some stages need."""
    needed = [name for name in names if name in ("locator", "encoder") and getattr(run.config, f"train_{name}").epochs]
    return run.renders.sources if run.renders is not None and needed else ()


def _trained_on(run: Run, name: StageName) -> Sequence[Recording]:
    if name == "locator":
        return run.data.train
    if name == "encoder":
        return run.data.encoder_recordings(run.config.train_encoder.held_out_share)
    return clip_recordings(run, run.config.train_joint if name == "joint" else run.config.train_temporal)


def check_images(recordings: Sequence[Recording]) -> None:
    """Read the first and the last image of each recording, and count the frames of videos."""
    for recording in recordings:
        source = recording.source
        if isinstance(source, Video):
            source.check_count()
        list(source.images_at([source.numbers()[0], source.numbers()[-1]]))


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
    memory_bytes: int  # of weights, gradients, the optimiser's memory, and what a batch leaves for the way back

    @property
    def minutes(self) -> float:
        return self.epochs * self.batches_per_epoch * self.seconds_per_batch / 60


@dataclass(frozen=True, slots=True)
class RunPlan:
    """All stages, what will be written, and what is odd about the data."""

    stages: tuple[StagePlan, ...]
    states: tuple[str, ...]  # told apart by the encoder, as "110"
    cache_bytes: int  # of decoded frames and renders that are still to be written
    notes: tuple[str, ...]


def plan_stages(run: Run, asked: Sequence[StageName], clock: Clock, *, skip_finished: bool = False) -> RunPlan:
    """Check everything that can be checked without training, and time a few steps of each stage."""
    config = run.config
    names = check_run(run, asked, skip_finished=skip_finished)
    stages = _plan_each(run, names, clock)
    sources = [recording.source for recording in recordings_of(run, names)] if names else []
    missing = run.cache.missing_bytes(sources, renders_of(run, names))
    finished = [f"{name} is finished and will be skipped" for name in asked if name not in names]
    samples = "encoder" in names and config.train_encoder.epochs > 0
    notes = (*run.data.notes(config), *(key_frame_sampler(run).notes if samples else ()), *finished)
    keys = key_frames_of(run.data.encoder_recordings(config.train_encoder.held_out_share), config, run.data.procedure)
    return RunPlan(tuple(stages), tuple(bit_string(bits) for bits in keys.states), missing, notes)


def _plan_each(run: Run, names: Sequence[StageName], clock: Clock) -> Iterator[StagePlan]:
    stream = build_stream(run.config, run.data.procedure.n_components, weights="none").to(run.options.torch_device)
    return (plan_stage(run, name, clock, stream) for name in names)


Timed = dict[str, tuple[float, int]]  # seconds and bytes of a step, by what decides them


def plan_stage(
    run: Run, name: StageName, clock: Clock, stream: SpatioTemporalModel | None = None, timed: Timed | None = None
) -> StagePlan:
    """What one stage will do, and how long it will take; the stages before it need not be there.

    timed: remembers steps, so that those of the same networks and batches are tried once.
    """
    n, epochs = len(_trained_on(run, name)), getattr(run.config, f"train_{name}").epochs
    items = "images" if name in ("locator", "encoder") else "clips"
    if not epochs:
        return StagePlan(name, n, items, 0, 0, 0, 0.0, 0)
    size, batches = _batches(run, name)
    config, timed = run.config, {} if timed is None else timed
    decides = (name, size, config.encoder, config.temporal, config.clips.n_window, _optimiser(run, name))
    if repr(decides) not in timed:
        if stream is None:
            stream = build_stream(config, run.data.procedure.n_components, weights="none").to(run.options.torch_device)
        timed[repr(decides)] = _try_step(run, stream, name, size, clock)
    return StagePlan(name, n, items, size, batches, epochs, *timed[repr(decides)])


def _optimiser(run: Run, name: StageName) -> str:
    return str(getattr(run.config, f"train_{name}").optimiser)


def _batches(run: Run, name: StageName) -> tuple[int, int]:
    """The size of a stage's batches, and how many of them an epoch has."""
    if name == "locator":
        locating = run.config.train_locator
        boxed = boxed_frames_of(run.data.train, run.data.procedure)
        boxed_frames_of(run.data.val, run.data.procedure)  # complains if there are none to choose by
        return locating.batch_size, locating.batches_per_epoch or max(len(boxed) // locating.batch_size, 1)
    if name == "encoder":
        validation_recordings_share_states(run)
        keys = key_frame_sampler(run)
        batches = run.config.train_encoder.batches_per_epoch or keys.batches_per_epoch
        return keys.batch_size + run.config.key_frames.n_more_renders, batches
    stage = run.config.train_joint if name == "joint" else run.config.train_temporal
    return stage.batch_size, clip_batches_per_epoch(run, stage, clip_recordings(run, stage))


def _try_step(
    run: Run, stream: SpatioTemporalModel, name: StageName, batch_size: int, clock: Clock
) -> tuple[float, int]:
    """Seconds that forward and backward passes of the real networks take, and their memory, on made-up numbers."""
    config, device = run.config, run.options.torch_device
    size, n_window = config.encoder.image_size, config.clips.n_window
    n = 1 if name == "joint" else min(batch_size, _MOST_ITEMS)
    n_images = n_window if name == "joint" else n
    image_BSS3 = torch.zeros(n_images, size, size, 3, dtype=torch.uint8, device=device)
    mask_BN = torch.ones(n, n_window, dtype=torch.bool, device=device)
    clip_BND = torch.zeros(n, n_window, config.encoder.embedding_dim, device=device)
    corners_B4 = torch.tensor([[0.2, 0.2, 0.8, 0.8]] * n, device=device)
    locator = Locator().to(device)
    forward: dict[StageName, Callable[[], Tensor]] = {
        "locator": lambda: locator.loss(image_BSS3, corners_B4),
        "encoder": lambda: stream.encoder(image_BSS3),
        "temporal": lambda: stream.temporal(clip_BND, mask_BN),
        "joint": lambda: stream(image_BSS3[None], mask_BN),
    }
    network: dict[StageName, nn.Module] = {
        "locator": locator,
        "encoder": stream.encoder,
        "temporal": stream.temporal,
        "joint": stream,
    }
    kept = _saved_bytes(network[name], forward[name])  # also the first step, which is slower
    learning = sum(p.numel() * p.element_size() for p in network[name].parameters() if p.requires_grad)
    copies = 3 if _optimiser(run, name) == "sgd" else 4  # weights, gradients, one or two moments
    begin = clock()
    for _ in range(_TIMED_STEPS):
        forward[name]().sum().backward()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return batch_size / n * (clock() - begin) / _TIMED_STEPS, copies * learning + batch_size * kept // n


def _saved_bytes(network: nn.Module, forward: Callable[[], Tensor]) -> int:
    """How much a forward pass keeps for the way back, each block of memory once, without the weights."""
    own = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
    blocks: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            blocks[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = forward().sum()
    kept = sum(blocks.values())
    loss.backward()
    return kept
