"""`stormpsr compare`: two or more sets of predictions of the same recordings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpsr.cli.options import AnySplit, DataProcedureOption, LabelsArgument, MissingOption, Protocol, procedure_of
from stormpsr.cli.output import JsonFlag, counted, mean_cells, number, print_json, print_notes, print_table
from stormpsr.errors import InputError

if TYPE_CHECKING:
    from stormpsr.evaluation.compare import Comparison
    from stormpsr.evaluation.summary import Summary


def compare_command(
    labels: LabelsArgument,
    events: Annotated[
        list[Path],
        typer.Argument(
            metavar="A B [...]",
            help="Sets of predictions, each a folder with a file per recording or one table recording,frame,step_id. "
            "All others are compared with the first.",
        ),
    ],
    procedure: DataProcedureOption = None,
    protocol: Protocol = "paper",
    fps: Annotated[float | None, typer.Option(help="Frames per second.", show_default="the procedure's")] = None,
    split: AnySplit = None,
    missing: MissingOption = "error",
    per_step: Annotated[bool, typer.Option("--per-step", help="Also print a table of steps.")] = False,
    level: Annotated[float, typer.Option(min=0.5, max=0.999, help="Level of the intervals.")] = 0.95,
    draws: Annotated[int, typer.Option(min=100, max=1_000_000, help="Bootstrap draws.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the draws.")] = 0,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX tables (booktabs) instead of text.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare sets of predictions: differences of POS, F1 and delay.

    Intervals come from a paired bootstrap over recordings. A difference whose interval leaves out 0 is marked with *.

    Example: stormpsr compare recordings/ baseline/ mine.csv --procedure industreal --split test
    """
    from stormpsr.data.labels import Note
    from stormpsr.evaluation.compare import compare, latex_steps_table, latex_table
    from stormpsr.evaluation.score_files import score_files, set_names

    if len(events) < 2:
        raise InputError("there is only one set of predictions", cure="give two or more; 'stormpsr score' takes one")
    if latex and as_json:
        raise InputError("--latex and --json are two answers", cure="choose one")
    loaded = procedure_of(labels, procedure)
    notes: list[Note] = []
    summaries: dict[str, Summary] = {
        name: score_files(
            labels, path, loaded, protocol=protocol, fps=fps, split=split, missing=missing, on_note=notes.append
        )
        for name, path in zip(set_names(events), events, strict=True)
    }
    print_notes(notes)
    first, *others = summaries
    comparisons = [
        compare(summaries[first], summaries[name], (first, name), level=level, n_bootstrap=draws, seed=seed)
        for name in others
    ]
    if as_json:
        scored = {name: summary.to_dict()["all"] for name, summary in summaries.items()}
        print_json({"scores": scored, "comparisons": [comparison.to_dict() for comparison in comparisons]})
    elif latex:
        tables = [latex_table({name: summary.all for name, summary in summaries.items()}, comparisons)]
        tables += [latex_steps_table(comparison) for comparison in comparisons] if per_step else []
        typer.echo("\n".join(tables), nl=False)
    else:
        _print(summaries, comparisons, per_step=per_step)


def _print(summaries: dict[str, Summary], comparisons: list[Comparison], *, per_step: bool) -> None:
    from stormpsr.evaluation.compare import METRICS, difference_cell

    n, protocol = comparisons[0].n_recordings, comparisons[0].protocol
    rows = [[name, *mean_cells(summary.all)[:3]] for name, summary in summaries.items()]
    title = f"{counted(n, 'recording')}, protocol {protocol!r}"
    print_table(title, ["predictions", "POS", "F1", "tau (s)"], rows, right=range(1, 4))
    for found in comparisons:
        rows = [
            [
                METRICS[one.metric][0],
                difference_cell(one) + (" *" if one.is_certain else "  "),
                "–" if one.share_better is None else f"{100 * one.share_better:.1f} %",
            ]
            for one in found.metrics
        ]
        title = f"{found.names[1]} less {found.names[0]} ({100 * found.level:g} % interval, * leaves out 0)"
        print_table(title, ["", "difference", "better in draws"], rows, right=(1, 2))
        if per_step:
            _print_steps(found)


def _print_steps(found: Comparison) -> None:
    rows = []
    for step in found.steps:
        delays = [number(delay, 1) for delay in step.delay_seconds]
        found_false = [str(count) for pair in (step.found, step.false) for count in pair]
        rows.append([step.step_id, step.description, step.n_labels, *found_false, *delays])
    columns = ["id", "step", "labels", "found", "", "false", "", "tau", ""]
    print_table(f"Steps: {found.names[0]}, then {found.names[1]}", columns, rows, right=(0, *range(2, 9)))
