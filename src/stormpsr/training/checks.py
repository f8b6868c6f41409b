"""What would stop training later, found before hours are spent: devices, shares of a batch, stages, images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from lightning.pytorch.utilities import rank_zero_only

from stormpsr.data.recording import Recording
from stormpsr.data.sources import Video
from stormpsr.errors import InputError
from stormpsr.models.checkpoint import load_checkpoint
from stormpsr.models.stream import build_encoder
from stormpsr.training.fit import check_machine
from stormpsr.training.stage_folder import digest_of
from stormpsr.training.stages import Run, StageName, check_fits, clip_recordings, key_frame_sampler, stages_of


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
