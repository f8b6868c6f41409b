"""`stormpsr score`: POS, F1 and delay of predicted events."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpsr.cli.options import (
    PLOTS,
    AnySplit,
    DataProcedureOption,
    LabelsArgument,
    MissingOption,
    Protocol,
    check_output,
    procedure_of,
)
from stormpsr.cli.output import (
    SCORE_COLUMNS,
    JsonFlag,
    counted,
    mean_cells,
    number,
    print_json,
    print_notes,
    print_table,
    score_cells,
)
from stormpsr.errors import InputError
from stormpsr.files import write_json, write_text

if TYPE_CHECKING:
    from stormpsr.evaluation.summary import Summary


def score_command(
    labels: LabelsArgument,
    events: Annotated[
        Path,
        typer.Argument(
            help="Predicted steps in the same format, a folder with a file per recording, or one table "
            "recording,frame,step_id for a folder of recordings."
        ),
    ],
    procedure: DataProcedureOption = None,
    protocol: Protocol = "paper",
    window: Annotated[
        int | None,
        typer.Option(
            min=1, help="With 'storm' only: reorder predictions by the labels, as that program does. Inflates POS."
        ),
    ] = None,
    fps: Annotated[float | None, typer.Option(help="Frames per second.", show_default="the procedure's")] = None,
    split: AnySplit = None,
    variant: Annotated[
        str | None, typer.Option(help="Variant of all recordings.", show_default="the one in a recording's name")
    ] = None,
    missing: MissingOption = "error",
    per_step: Annotated[bool, typer.Option("--per-step", help="Also print a table of steps.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write the scores: .json (all) or .csv (per recording).")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Also plot timelines and the share of steps recognised within t seconds (.png, .svg, .pdf)."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Score predicted steps: POS, F1 and delay.

    Example: stormpsr score recordings/ predictions/ --procedure industreal --split test
    """
    from stormpsr.data.labels import Note
    from stormpsr.evaluation.score_files import score_files, summary_csv

    check_output(out, ".json", ".csv")
    check_output(plot, *PLOTS)
    for path in (out, plot):
        if path is not None and path.exists() and path.resolve() in (labels.resolve(), events.resolve()):
            raise InputError("this would overwrite what is to be scored", path=path, cure="choose another name")
    loaded = procedure_of(labels, procedure)
    notes: list[Note] = []
    summary = score_files(
        labels,
        events,
        loaded,
        protocol=protocol,
        fps=fps,
        window=window,
        split=split,
        variant=variant,
        missing=missing,
        on_note=notes.append,
    )
    print_notes(notes)
    if out is not None:
        if out.suffix.lower() == ".csv":
            write_text(out, summary_csv(summary))
        else:
            write_json(out, summary.to_dict())
    if plot is not None:
        from stormpsr.evaluation.plots import plot_summary

        plot_summary(summary, loaded, plot)
    if as_json:
        print_json(summary.to_dict())
        return
    print_summary(summary, per_step=per_step)
    if window is not None:
        typer.echo("POS was computed after rewriting the predicted order from the labels: for comparison only.")
    for path in (out, plot):
        if path is not None:
            typer.echo(f"written: {path}")


def print_summary(summary: Summary, *, per_step: bool = False) -> None:
    """The tables of a summary."""
    words = {True: "yes", False: "no", None: "?"}
    if len(summary.recordings) > 1:
        rows = [[result.name, *score_cells(result.scores), words[result.has_errors]] for result in summary.recordings]
        print_table("Recordings", ["recording", *SCORE_COLUMNS, "errors"], rows, right=range(1, 7))
    _print_groups(summary)
    if per_step:
        table = []
        for step in summary.steps:
            counts = (step.n_labels, step.true_positives, step.missed, step.false_positives)
            table.append([step.step_id, step.description, *counts, number(step.delay_seconds, 1)])
        columns = ["id", "step", "labels", "found", "missed", "false", "tau"]
        print_table("Steps (matched as in the paper, tau in seconds)", columns, table, right=(0, 2, 3, 4, 5, 6))


def _print_groups(summary: Summary) -> None:
    """The means: a column per group of recordings, so that the table fits into 80 columns."""
    named = {"all": summary.all, "without errors": summary.without_errors, "with errors": summary.with_errors}
    groups = {name: group for name, group in named.items() if group is not None}
    if len(summary.recordings) == 1:
        groups = {summary.recordings[0].name: summary.all}  # another column would say the same
    rows = list(zip(["POS", "F1", "tau (s)", "TP FP FN"], *map(mean_cells, groups.values()), strict=True))
    rows[3:3] = [
        ("pooled F1", *(number(group.pooled_f1) for group in groups.values())),
        ("pooled tau", *(number(group.pooled_delay_seconds, 1) for group in groups.values())),
    ]
    n = summary.all.n_recordings
    title = f"Protocol {summary.protocol!r}, " + ("mean over recordings (95 % interval)" if n > 1 else "one recording")
    columns = ["", *(f"{name} ({group.n_recordings})" if n > 1 else name for name, group in groups.items())]
    print_table(title, columns, rows, right=range(1, len(columns)))
    if summary.all.n_without_match:
        left_out = counted(summary.all.n_without_match, "recording")
        typer.echo(f"tau leaves out {left_out} in which nothing was recognised")
