"""`stormpsr evaluate`: the paper's main table for a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpsr.cli import options
from stormpsr.cli.output import Bar, JsonFlag, counted, mean_cells, number, print_json, print_table
from stormpsr.errors import InputError

if TYPE_CHECKING:
    from stormpsr.evaluation.summary import GroupSummary, Summary


def evaluate_command(
    data: options.DataOption,
    model: options.ModelArgument = "vehicle",
    split: options.SplitOrAll = "test",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the results, for 'stormpsr report'.")
    ] = None,
    protocol: options.Protocol = "paper",
    method: options.MethodsOption = None,
    unexpected: options.UnexpectedOption = None,
    title: Annotated[str | None, typer.Option(help="Title of the report.")] = None,
    store: Annotated[bool, typer.Option("--store", help="Also store the scores in the model's metrics.json.")] = False,
    temporal_stride: options.TemporalStride = None,
    detector_stride: options.DetectorStride = None,
    cache: options.CacheOption = None,
    cluster: options.ClusterOption = None,
    threads: options.Threads = None,
    device: options.DeviceOption = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Score a model on labelled recordings.

    POS, F1 and delay of all methods, also separately for recordings with and without execution errors. Predictions are
    kept: an interrupted run resumes, and scoring again is quick.

    Example: stormpsr evaluate models/vehicle --data data/vehicle --split test --out runs/vehicle
    """
    from stormpsr.recognizer.evaluate import evaluate_model, store_scores

    if store and (temporal_stride is not None or detector_stride is not None):
        raise InputError("--store keeps the scores of the model's own strides", cure="leave the strides out")
    loaded = options.load(model, temporal_stride, detector_stride, threads, device)
    dataset = options.open_data(data, split, loaded)
    with Bar("recordings", enabled=not as_json) as bar:
        summaries = evaluate_model(
            loaded,
            dataset,
            cache=options.cache_folder(cache),
            out=out,
            methods=method,
            protocol=protocol,
            unexpected=unexpected,
            title=title,
            cluster=options.model_cluster(cluster, loaded, threads, device),
            on_progress=bar.named if cluster is None else bar.together("recordings", len(dataset)),
        )
    if store:
        store_scores(loaded, summaries, data=Path(data).name, split=split)
    if as_json:
        print_json(
            {
                "model": str(loaded.path),
                "data": data,
                "split": dataset.split,
                "protocol": protocol,
                "run": None if out is None else str(out),
                "summary": {name: summary.to_dict() for name, summary in summaries.items()},
            }
        )
        return
    print_main_table(summaries, split)
    if out is not None:
        typer.echo(f"written: {out} ('stormpsr report {out}' makes a page of it)")


def print_main_table(summaries: dict[str, Summary], split: str) -> None:
    """The paper's main table: a part for all recordings, one for those without errors, one for those with."""
    from stormpsr.decoding.methods import title_of

    protocol = next(iter(summaries.values())).protocol
    for what in ("all", "without_errors", "with_errors"):
        groups: dict[str, GroupSummary | None] = {name: getattr(summary, what) for name, summary in summaries.items()}
        rows = [[title_of(name), *mean_cells(group)] for name, group in groups.items() if group is not None]
        n = next((group.n_recordings for group in groups.values() if group is not None), 0)
        if rows:
            words = what.replace("_", " ") if what != "all" else f"{split}, all"
            intervals = ", 95 % intervals" if n > 1 else ""
            title = f"{words[0].upper()}{words[1:]} ({counted(n, 'recording')}, protocol {protocol!r}{intervals})"
            print_table(title, ["method", "POS", "F1", "tau (s)", "TP FP FN"], rows, right=range(1, 5))
    print_alarms(summaries)
    for name, summary in summaries.items():
        if summary.all.n_without_match:
            typer.echo(f"tau of {name!r} leaves out {summary.all.n_without_match} recordings without a match")


def print_alarms(summaries: dict[str, Summary]) -> None:
    """How good alarms are, of methods that give any."""
    from stormpsr.decoding.methods import title_of

    rows = []
    for name, summary in summaries.items():
        alarms = summary.alarms
        if alarms is not None:
            found = [f"{alarms.wrong_found} of {alarms.wrong_placements}", number(alarms.wrong_delay_seconds, 1)]
            left_out = [f"{alarms.skipped_found} of {alarms.skipped_steps}", number(alarms.skipped_false_per_hour, 1)]
            rows.append([title_of(name), *found, number(alarms.wrong_false_per_hour, 1), *left_out])
    if rows:
        columns = [
            "method",
            "wrong parts found",
            "after (s)",
            "false per hour",
            "steps left out found",
            "false per hour",
        ]
        print_table("Alarms", columns, rows, right=range(1, 6))
