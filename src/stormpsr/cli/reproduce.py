"""`stormpsr reproduce`: the paper's tables by name."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stormpsr.cli import options
from stormpsr.cli.output import Bar, JsonFlag, counted, print_json, print_table
from stormpsr.errors import InputError

if TYPE_CHECKING:
    from stormpsr.recognizer.reproduce import Experiment, Table, TableResult


def reproduce_command(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="main, backbones, sampling, windows, windows-every-4, key-frames or joint; or a YAML file with rows.",
        ),
    ],
    data: Annotated[Path, typer.Option(help="Folder of the data set, with train, val and test.")],
    out: Annotated[Path, typer.Option(help="Folder for networks, cells and results; tables share it.")],
    more_seeds: Annotated[list[int] | None, typer.Argument(hidden=True)] = None,
    preset: Annotated[str, typer.Option(help="A preset or a YAML file of settings.")] = "paper-small",
    override: options.OverrideOption = None,
    renders: options.ImagesOption = None,
    detector: Annotated[
        Path | None,
        typer.Option(help="Folder of a trained detector.", show_default="rows that need detections are left out"),
    ] = None,
    seeds: Annotated[list[int] | None, typer.Option(help="Seeds, one after the other.", show_default="0")] = None,
    stage: Annotated[
        Literal["temporal", "joint"] | None,
        typer.Option(
            help="Score the networks of this stage, in rows that do not say which.", show_default="the table's"
        ),
    ] = None,
    tune: Annotated[
        Literal["threshold", "all", "none"],
        typer.Option(help="What to choose on validation recordings: the threshold, every setting, or nothing."),
    ] = "threshold",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check all cells and estimate time and disk; train nothing.")
    ] = False,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "32-true",
    accumulate: Annotated[int, typer.Option(min=1, help="Batches per optimiser step, in all stages.")] = 1,
    workers: options.WorkersOption = 0,
    threads: options.Threads = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a table of the paper.

    Every row is a change of settings. Rows share the networks that these do not concern, decoded frames and
    embeddings. The same command again resumes after the last complete epoch; a finished cell is not made again. Written
    as Markdown, LaTeX, CSV and JSON, with the paper's own figures; 'stormpsr compare' takes the events of every cell.

    Example: stormpsr reproduce sampling --data data/vehicle --out runs/paper --seeds 0 1 2
    """
    options.need("training", "train")
    options.use_threads(threads)
    from stormpsr.config import load_config
    from stormpsr.data.dataset import Dataset
    from stormpsr.models.checkpoint import device_of
    from stormpsr.recognizer.reproduce import Experiment, load_table
    from stormpsr.training.data import load_renders
    from stormpsr.training.fit import FitOptions

    if more_seeds and not seeds:
        raise InputError(f"nobody knows what {more_seeds[0]} means", cure="seeds stand after --seeds: --seeds 0 1 2")
    device_of(device)  # complains before anything is read
    chosen = load_table(table)
    dataset = Dataset.open(data, procedure=load_config(preset, override or []).procedure)
    experiment = Experiment(
        data=dataset,
        out=out,
        preset=preset,
        renders=load_renders(renders, dataset.procedure) if renders else None,
        detector=detector,
        overrides=tuple(override or ()),
        seeds=(*(seeds or (0,)), *(more_seeds or ())),
        stage=stage,
        tuned_by=tune,
        options=FitOptions(device=device, precision=precision, accumulate_batches=accumulate, workers=workers),
        on_note=lambda note: typer.echo(f"note: {note}", err=True),
    )
    name = Path(table).stem
    if dry_run:
        _show_plan(experiment, name, chosen, as_json)
        return
    try:
        _make(experiment, name, chosen, as_json)
    except KeyboardInterrupt:
        typer.echo("the same command goes on where it stopped", err=True)
        raise


def _make(experiment: Experiment, name: str, table: Table, as_json: bool) -> None:
    from dataclasses import replace

    from stormpsr.cli.train_progress import StageBar
    from stormpsr.recognizer.reproduce import make_table, write_results

    with Bar() as bar:
        shown = replace(experiment.options, callbacks=(StageBar(name, "items", bar),))
        watched = replace(experiment, options=shown, on_progress=bar.named)
        result = make_table(watched, name, table, lambda done, of: bar.named(f"{name}: cells", done, of))
    paths = write_results(result, experiment.out)
    if as_json:
        from dataclasses import asdict

        print_json({**asdict(result), "written": [str(path) for path in paths]})
        return
    _print(result)
    for path in paths:
        typer.echo(f"written: {path}")


def _print(result: TableResult) -> None:
    from stormpsr.evaluation.compare import METRICS
    from stormpsr.evaluation.wording import number
    from stormpsr.recognizer.reproduce import cells_of_row

    rows = []
    for row in result.rows:
        figures = zip(row.paper or (None,) * len(METRICS), METRICS.values(), strict=True)
        certain = "".join("*" if found.is_certain else "." for found in row.differences)
        rows.append([row.name, *cells_of_row(row), " ".join(number(v, digits) for v, (_, digits) in figures), certain])
    about = result.about
    title = f"{result.title}: {counted(about['test'], 'test recording')}, {counted(len(about['seeds']), 'seed')}"
    titles = [title for title, _ in METRICS.values()]
    print_table(title, ["", *titles, f"paper ({about['paper']})", "differs"], rows, right=range(1, 6))
    if result.baseline:
        typer.echo(
            f"differs: POS, F1 and tau, * where the 95 % interval of the difference to {result.baseline!r} leaves out 0"
        )


def _show_plan(experiment: Experiment, name: str, table: Table, as_json: bool) -> None:
    from dataclasses import asdict, replace

    from stormpsr.recognizer.reproduce import plan_table

    with Bar() as bar:
        plan = plan_table(replace(experiment, on_progress=bar.named), name, table, perf_counter)
    if as_json:
        print_json({**asdict(plan), "minutes": plan.minutes})
        return
    rows = [
        [
            key,
            f"{stage.batch_size} {stage.items}",
            stage.batches_per_epoch,
            stage.epochs,
            f"{stage.memory_bytes / 1e9:.1f} GB",
            f"{stage.minutes:.1f}",
        ]
        for key, stage in plan.stages
    ]
    columns = ["stage", "batch", "batches per epoch", "epochs", "memory", "minutes of training"]
    print_table(f"{table.title}: to be trained", columns, rows, right=range(1, 6))
    disk = f"{plan.cache_bytes / 1e9:.1f} GB of decoded frames, {plan.embedding_bytes / 1e9:.2f} GB of embeddings"
    typer.echo(
        f"{plan.cells_done} of {counted(plan.cells, 'cell')} are there; about {plan.minutes:.0f} minutes of training "
        f"alone: embedding, validation and scoring may take as long again; {disk}"
    )
