"""`stormpsr tune`: the thresholds of a model, from validation recordings."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stormpsr.cli import options
from stormpsr.cli.output import Bar, JsonFlag, counted, number, print_json, print_table, with_interval

if TYPE_CHECKING:
    from stormpsr.evaluation.alarms import Alarms
    from stormpsr.evaluation.summary import GroupSummary
    from stormpsr.recognizer.tuning import Scored

_FEW = 10  # validation recordings


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
    from stormpsr.decoding.methods import resolve_method
    from stormpsr.recognizer.offline import LabelledPredictions, predict_recordings
    from stormpsr.recognizer.tuning import (
        best_method,
        check_objective,
        choose,
        choose_alarms,
        cross_fitted,
        learns_from,
        pareto_front,
        score_settings,
        store_tuned,
        summary_of,
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
    scored: dict[str, list[Scored]] = {}
    chosen: dict[str, Scored] = {}
    summaries: dict[str, GroupSummary] = {}
    alarms: dict[str, Alarms | None] = {}
    for name in dict.fromkeys(loaded.method_or_fallback(wanted) for wanted in method or loaded.methods):
        with Bar(f"tuning {name}", enabled=not as_json, logged=True) as bar:
            scratch = options.cache_folder(cache) / "fitting"
            fitting = cross_fitted(loaded, name, labelled, _note, scratch=scratch, on_progress=bar.named)
            with fitting as (parts, tried):
                scored[name] = score_settings(parts, name, tried, on_progress=partial(bar.named, f"tuning {name}"))
                chosen[name] = choose(scored[name], objective, max_delay=max_delay, slack=slack, among=among)
                settings, alarms[name] = choose_alarms(parts, name, chosen[name].settings, most_false_alarms)
                chosen[name] = replace(chosen[name], settings=settings)
                summaries[name] = summary_of(parts, name, settings)
                if learns_from(name, labelled) and not dry_run:
                    # what was chosen without a recording is used with all of them
                    resolve_method(name).decoder_class.fit(
                        labelled,
                        loaded.procedure,
                        chosen[name].settings,
                        loaded.path,
                        partial(bar.named, f"{name} learns from all recordings"),
                    )
    if len(labelled) < _FEW:
        typer.echo(
            f"note: {counted(len(labelled), 'recording')} to tune on: settings chosen on fewer than {_FEW} may fit "
            "these alone; see the interval of F1",
            err=True,
        )
    named = ", ".join(Path(folder).name for folder in data)
    about = {"data": named, "split": split, "objective": objective, "n_recordings": len(labelled)}
    if not dry_run:
        rules = {"max_delay_seconds": max_delay, "slack": slack, "among": among}
        rules["most_false_alarms_per_hour"] = most_false_alarms
        # only a comparison of all methods says which one is to decide; one that has not learned is none to compare
        ready = {name: own for name, own in chosen.items() if getattr(own.settings, "fitted", True)}
        best = best_method(ready, objective) if set(chosen) >= set(loaded.methods) else None
        store_tuned(loaded, chosen, about | rules, best)
    drawn = _draw(plot, loaded.path, scored, chosen, f"{named}, {split}: {len(labelled)} recordings", dry_run)
    if as_json:
        methods = {
            name: {
                "chosen": _plain(name, best),
                "f1_interval": [summaries[name].f1_interval.low, summaries[name].f1_interval.high],
                "n_settings": len(scored[name]),
                "alarms": None if (told := alarms[name]) is None else told.to_dict(),
                "pareto_front": [_plain(name, one) for one in pareto_front(scored[name])],
            }
            for name, best in chosen.items()
        }
        print_json({**about, "stored": not dry_run, "methods": methods, "plot": None if drawn is None else str(drawn)})
        return
    title = f"{named}, {split} ({counted(len(labelled), 'recording')}), objective {objective}"
    _print_chosen(scored, chosen, summaries, alarms, title)
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
    scored: dict[str, list[Scored]],
    chosen: dict[str, Scored],
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


def _print_chosen(
    scored: dict[str, list[Scored]],
    chosen: dict[str, Scored],
    summaries: dict[str, GroupSummary],
    alarms: dict[str, Alarms | None],
    title: str,
) -> None:
    """A column per method, so that the table fits into 80 columns."""
    from stormpsr.decoding.methods import resolve_method, title_of

    classes = {name: resolve_method(name).decoder_class for name in chosen}
    grids = {name: {**own.grid, **own.alarm_grid} for name, own in classes.items()}
    settings = dict.fromkeys(setting for grid in grids.values() for setting in grid)
    rows = [["settings tried", *(str(len(scored[name])) for name in chosen)]]
    for setting in settings:
        cells = [
            _cell(getattr(best.settings, setting)) if setting in grids[name] else "" for name, best in chosen.items()
        ]
        rows.append([setting.replace("_", " "), *cells])
    groups = summaries.values()
    rows += [
        ["POS", *(number(group.pos) for group in groups)],
        ["F1 (95 % interval)", *(with_interval(group, group.f1, group.f1_interval, 3) for group in groups)],
        ["tau (s)", *(number(group.delay_seconds, 1) for group in groups)],
    ]
    if any(alarms.values()):
        told = [alarms[name] for name in chosen]
        rows += [
            ["wrong parts found", *(f"{one.wrong_found} of {one.wrong_placements}" if one else "" for one in told)],
            ["false alarms per hour", *(number(one.wrong_false_per_hour, 1) if one else "" for one in told)],
        ]
    print_table(title, ["", *map(title_of, chosen)], rows, right=range(1, len(chosen) + 1))


def _cell(value: Any) -> str:
    return "off" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
