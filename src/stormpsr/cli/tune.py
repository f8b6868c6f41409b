"""`stormpsr tune`: the thresholds of a model, from validation recordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stormpsr.cli import options
from stormpsr.cli.output import Bar, JsonFlag, counted, interval_cell, number, print_json, print_table

if TYPE_CHECKING:
    from stormpsr.recognizer.tuning import Scored, Tuned


def tune_command(
    data: Annotated[
        list[str], typer.Option("--data", "-d", help="Folder of recordings with labels, or address; may be repeated.")
    ],
    model: options.ModelArgument = "vehicle",
    split: Annotated[
        Literal["train", "val", "all"], typer.Option(help="Which recordings to tune on; never the test recordings.")
    ] = "val",
    objective: Annotated[
        Literal["f1", "pos", "f1+pos", "tau", "f1-within-delay"],
        typer.Option(help="What to optimise. f1+pos: their mean; tau: the shortest delay at almost the best F1."),
    ] = "f1",
    max_delay: Annotated[
        float | None,
        typer.Option(min=0, help="Longest mean delay in seconds, for f1-within-delay.", show_default="none"),
    ] = None,
    slack: Annotated[
        float, typer.Option(min=0, max=0.2, help="Scores this close count as equal; the shorter delay then wins.")
    ] = 0.005,
    among: Annotated[
        int, typer.Option(min=1, help="Of the N best settings, take the most typical one; with 1, --slack decides.")
    ] = 1,
    most_false_alarms: Annotated[
        float, typer.Option(min=0, help="Most false alarms of wrong parts per hour, for methods that give alarms.")
    ] = 4.0,
    method: options.MethodsOption = None,
    plot: Annotated[
        Path | None, typer.Option(help="Image of F1 against delay (.png).", show_default="tuning.png in MODEL")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do not change the model.")] = False,
    cache: options.CacheOption = None,
    cluster: options.ClusterOption = None,
    threads: options.Threads = None,
    device: options.DeviceOption = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Choose the decoding settings of a model.

    Tries up to two thousand settings per method on validation recordings and stores the best ones in the model. The
    predictions of the networks are computed once and kept.

    Example: stormpsr tune models/vehicle --data data/vehicle --objective f1-within-delay --max-delay 5
    """
    from stormpsr.recognizer.offline import LabelledPredictions, predict_recordings
    from stormpsr.recognizer.tuning import (
        FEW_RECORDINGS,
        check_objective,
        default_of,
        pareto_front,
        store_tuned,
        tune_methods,
    )

    check_objective(objective, max_delay, among)
    loaded = options.load(model, None, None, threads, device)
    recordings = [recording for folder in data for recording in options.open_data(folder, split, loaded)]
    with Bar("recordings", enabled=not as_json) as bar:
        tables = predict_recordings(
            loaded,
            recordings,
            options.cache_folder(cache),
            cluster=options.model_cluster(cluster, loaded, threads, device),
            on_progress=bar.named if cluster is None else bar.together("recordings", len(recordings)),
        )
        labelled = [LabelledPredictions.of(recording, table, loaded.procedure) for recording, table in tables]
    with Bar("tuning", enabled=not as_json) as bar:
        tuned = tune_methods(
            loaded,
            labelled,
            method or loaded.methods,
            objective=objective,
            max_delay=max_delay,
            slack=slack,
            among=among,
            most_false_alarms=most_false_alarms,
            scratch=options.cache_folder(cache) / "fitting",
            learn=not dry_run,
            on_note=_note,
            on_progress=bar.named,
        )
    scored = {name: own.scored for name, own in tuned.items()}
    chosen = {name: own.chosen for name, own in tuned.items()}
    if len(labelled) < FEW_RECORDINGS:
        typer.echo(
            f"note: {counted(len(labelled), 'recording')} to tune on: settings chosen on fewer than {FEW_RECORDINGS} "
            "may fit these alone; see the interval of F1",
            err=True,
        )
    named = ", ".join(Path(folder).name for folder in data)
    about = {"data": named, "split": split, "objective": objective, "n_recordings": len(labelled)}
    if not dry_run:
        rules = {"max_delay_seconds": max_delay, "slack": slack, "among": among}
        rules["most_false_alarms_per_hour"] = most_false_alarms
        store_tuned(loaded, chosen, about | rules, default_of(loaded, tuned, objective))
    drawn = _draw(plot, loaded.path, scored, chosen, f"{named}, {split}: {len(labelled)} recordings", dry_run)
    if as_json:
        methods = {
            name: {
                "chosen": _plain(name, own.chosen),
                "f1_interval": [own.summary.f1_interval.low, own.summary.f1_interval.high],
                "n_settings": len(own.scored),
                "alarms": None if own.alarms is None else own.alarms.to_dict(),
                "pareto_front": [_plain(name, one) for one in pareto_front(own.scored)],
            }
            for name, own in tuned.items()
        }
        print_json({**about, "stored": not dry_run, "methods": methods, "plot": None if drawn is None else str(drawn)})
        return
    title = f"{named}, {split} ({counted(len(labelled), 'recording')}), objective {objective}"
    print_chosen(tuned, title)
    if drawn is not None:
        typer.echo(f"drawn: {drawn}")
    typer.echo("nothing was stored" if dry_run else f"stored: {loaded.path / 'recognizer.yaml'}")


def _note(note: str) -> None:
    typer.echo(f"note: {note}", err=True)


def _plain(method: str, scored: Scored) -> dict[str, Any]:
    from stormpsr.decoding.methods import resolve_method

    return {**vars(scored), "settings": resolve_method(method).stored(scored.settings)}


def _draw(
    plot: Path | None,
    model: Path,
    scored: Mapping[str, Sequence[Scored]],
    chosen: Mapping[str, Scored],
    title: str,
    dry_run: bool,
) -> Path | None:
    from importlib.util import find_spec

    if plot is None and (dry_run or find_spec("matplotlib") is None):
        if not dry_run:
            typer.echo("note: without matplotlib (pip install 'stormpsr[plot]') nothing is drawn", err=True)
        return None
    from stormpsr.recognizer.tuning import plot_pareto_fronts

    path = plot or model / "tuning.png"
    plot_pareto_fronts(path, scored, chosen, title)
    return path


def print_chosen(tuned: Mapping[str, Tuned], title: str) -> None:
    """A column per method, so that the table fits into 80 columns."""
    from stormpsr.decoding.methods import resolve_method, title_of

    classes = {name: resolve_method(name).decoder_class for name in tuned}
    grids = {name: {**own.grid, **own.alarm_grid} for name, own in classes.items()}
    settings = dict.fromkeys(setting for grid in grids.values() for setting in grid)
    rows = [["settings tried", *(str(len(own.scored)) for own in tuned.values())]]
    for setting in settings:
        cells = [
            _cell(getattr(own.chosen.settings, setting)) if setting in grids[name] else ""
            for name, own in tuned.items()
        ]
        rows.append([setting.replace("_", " "), *cells])
    groups = [own.summary for own in tuned.values()]
    rows += [
        ["POS", *(number(group.pos) for group in groups)],
        ["F1", *(number(group.f1) for group in groups)],
        ["  95 % interval", *(interval_cell(group, group.f1_interval, 3) for group in groups)],
        ["tau (s)", *(number(group.delay_seconds, 1) for group in groups)],
    ]
    told = [own.alarms for own in tuned.values()]
    if any(told):
        rows += [
            ["wrong parts found", *(f"{one.wrong_found} of {one.wrong_placements}" if one else "" for one in told)],
            ["false alarms per hour", *(number(one.wrong_false_per_hour, 1) if one else "" for one in told)],
        ]
    print_table(title, ["", *map(title_of, tuned)], rows, right=range(1, len(tuned) + 1))


def _cell(value: Any) -> str:
    return "off" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
