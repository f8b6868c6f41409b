"""`stormpsr train`: the three stages of the spatio-temporal stream, alone or in order."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stormpsr.cli import options
from stormpsr.cli.output import Bar, JsonFlag, print_json, print_notes, print_table
from stormpsr.errors import InputError

if TYPE_CHECKING:
    from stormpsr.training.stages import Run, StageName


_ITEMS = {"locator": "images", "encoder": "images", "temporal": "clips", "joint": "clips"}


def train_command(
    stage: Annotated[
        Literal["locator", "encoder", "temporal", "joint", "all"],
        typer.Argument(
            help="Stage to train; all: every unfinished stage in order. The locator needs encoder.crop_size."
        ),
    ],
    data: Annotated[Path, typer.Option(help="Folder of the data set, with train/ and val/.")],
    out: Annotated[Path, typer.Option(help="Folder of the run, shared by all stages.")],
    preset: Annotated[str, typer.Option(help="A preset or a YAML file of settings.")] = "synthetic",
    override: options.OverrideOption = None,
    renders: options.ImagesOption = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder for decoded frames and embeddings; runs can share it.", show_default="in OUT"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted run.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check data and settings and estimate the time; train nothing.")
    ] = False,
    device: options.DeviceOption = "auto",
    devices: options.DevicesOption = 1,
    machines: Annotated[int, typer.Option(min=1, help="Number of machines.")] = 1,
    precision: options.PrecisionOption = "32-true",
    accumulate: Annotated[
        int, typer.Option(min=1, help="Batches per optimiser step: 64 batches of 4 make a step of 256.")
    ] = 1,
    workers: options.WorkersOption = 0,
    wandb: Annotated[str | None, typer.Option(help="Log to this W&B project instead of TensorBoard.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Train the spatio-temporal stream.

    The best checkpoint of each stage is kept in OUT/STAGE/best. Ctrl-C is safe: --resume continues after the last
    complete epoch, with the same result as without the interruption.

    Example: stormpsr train all --preset synthetic --data data/vehicle --out runs/vehicle
    """
    options.need("training", "train")
    from stormpsr.config import load_config
    from stormpsr.training.data import load_renders, load_training_data
    from stormpsr.training.fit import FitOptions
    from stormpsr.training.stages import Run, as_detector_reads, stages_of

    if stage == "all" and devices * machines > 1:
        cure = "run the stages one after the other"  # between stages, one process alone prepares the data
        raise InputError("all stages at once need a single device", cure=cure)
    config = as_detector_reads(load_config(preset, override or []))
    found = load_training_data(data, config)
    fit = FitOptions(
        resume=resume,
        device=device,
        devices=devices,
        machines=machines,
        precision=precision,
        accumulate_batches=accumulate,
        workers=workers,
        wandb_project=wandb,
    )
    images = load_renders(renders, found.procedure) if renders else None
    run = Run(config, found, out, renders=images, options=fit, cache_folder=cache)
    if stage == "locator" and "locator" not in stages_of(config):
        raise InputError("these settings have no locator", cure="set encoder.crop_size, or begin with the encoder")
    names: list[StageName] = stages_of(config) if stage == "all" else [stage]
    if stage == "all" and accumulate > 1:
        typer.echo("note: --accumulate is for all stages; run a stage by itself to have it there alone", err=True)
    if dry_run:
        _show_plan(run, names, as_json, skip_finished=stage == "all")
        return
    try:
        done = _train(run, names, skip_finished=stage == "all")
    except KeyboardInterrupt:
        typer.echo("the same command with --resume goes on after the last whole epoch", err=True)
        raise
    _show_results(done, as_json)


def _train(run: Run, names: list[StageName], *, skip_finished: bool) -> dict[str, Path]:
    from stormpsr.cli.train_progress import StageBar
    from stormpsr.training import stages
    from stormpsr.training.plan import check_run, recordings_of

    order = stages.stages_of(run.config)
    left = check_run(run, names, skip_finished=skip_finished)
    samples = "encoder" in left and run.config.train_encoder.epochs > 0
    for note in (*run.data.notes(run.config), *(stages.key_frame_sampler(run).notes if samples else ())):
        typer.echo(f"note: {note}", err=True)
    done: dict[str, Path] = {}
    with Bar() as bar:
        if skip_finished and left:  # an image that cannot be read is to stop the first stage, not the last
            replace(run, on_progress=bar.named).frames(recordings_of(run, left))
        for name in names:
            folder = run.stage(name)
            if name not in left:
                differences = folder.other_settings(run.config)
                more = f" (with other settings: {', '.join(differences)})" if differences else ""
                typer.echo(f"{name}: finished before, skipped{more}", err=True)
                done[name] = folder.best
                continue
            fit = replace(run.options, callbacks=(StageBar(name, _ITEMS[name], bar),))
            staged = replace(run, options=fit, on_progress=bar.named)
            before = run.stage(order[order.index(name) - 1]).best if name != order[0] else None
            if name == "locator":
                done[name] = stages.train_locator(staged)
            elif name == "encoder" or before is None:
                done[name] = stages.train_encoder(staged, before)
            else:
                train = stages.train_temporal if name == "temporal" else stages.train_joint
                done[name] = train(staged, before)
    return done


def _show_results(done: dict[str, Path], as_json: bool) -> None:
    from stormpsr.models.checkpoint import load_checkpoint

    metrics = {name: dict(load_checkpoint(folder).metrics) for name, folder in done.items()}
    if as_json:
        print_json({name: {"checkpoint": str(done[name]), **metrics[name]} for name in done})
        return
    for name, folder in done.items():
        figures = metrics[name].get("validation", {})
        said = ", ".join(f"{key} {value:.3f}" for key, value in figures.items())
        epoch = metrics[name]["epoch"] + 1
        best = f"best epoch {epoch}" if epoch else "no epoch was better than before"
        if metrics[name].get("trained") is False:
            best = "kept as it began, without training"
        typer.echo(f"{name}: {best}: {said}: {folder}")


def _show_plan(run: Run, names: list[StageName], as_json: bool, *, skip_finished: bool) -> None:
    from stormpsr.training.plan import plan_stages

    plan = plan_stages(run, names, perf_counter, skip_finished=skip_finished)
    if as_json:
        stages = [{**asdict(stage), "minutes": stage.minutes} for stage in plan.stages]
        print_json({**asdict(plan), "stages": stages})
        return
    print_notes(plan.notes, most=len(plan.notes))
    print_table(
        f"{run.config.name}: {len(run.data.train)} recordings to train on, {len(run.data.val)} to choose by, "
        f"{len(plan.states)} states, {run.data.procedure.n_components} components",
        ["stage", "recordings", "batch", "batches per epoch", "epochs", "s per batch", "memory", "minutes"],
        [
            [
                stage.name,
                stage.recordings,
                f"{stage.batch_size} {stage.items}",
                stage.batches_per_epoch,
                stage.epochs,
                f"{stage.seconds_per_batch:.2f}",
                f"{stage.memory_bytes / 1e9:.1f} GB",
                f"{stage.minutes:.1f}",
            ]
            for stage in plan.stages
        ],
        right=range(1, 8),
    )
    total = sum(stage.minutes for stage in plan.stages)
    typer.echo(
        f"about {total:.0f} minutes without validation; {plan.cache_bytes / 1e6:.0f} MB of decoded images to be written"
    )
