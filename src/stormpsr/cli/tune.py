"""`stormpsr tune`: the thresholds of a model, from validation recordings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stormpsr.cli.options import (
    CacheOption,
    DataOption,
    DeviceOption,
    MethodsOption,
    ModelArgument,
    Threads,
    cache_folder,
    load,
    need,
)
from stormpsr.cli.output import Bar, JsonFlag, number, print_json, print_table

if TYPE_CHECKING:
    from stormpsr.recognizer.tuning import Scored


def tune_command(
    data: DataOption,
    model: ModelArgument = "vehicle",
    split: Annotated[
        Literal["train", "val", "all"], typer.Option(help="Which recordings. Never those that the model is judged by.")
    ] = "val",
    objective: Annotated[
        Literal["f1", "pos", "f1+pos", "tau", "f1-within-delay"],
        typer.Option(help="What to make best. f1+pos: their mean; tau: the least delay at nearly the best F1."),
    ] = "f1",
    max_delay: Annotated[
        float | None, typer.Option(min=0, help="Seconds, for f1-within-delay.", show_default="none")
    ] = None,
    slack: Annotated[
        float, typer.Option(min=0, max=0.2, help="A score that is so much lower counts as equal; then delay decides.")
    ] = 0.005,
    among: Annotated[
        int,
        typer.Option(min=1, help="Of so many best settings take that which is most like the others; 1: by --slack."),
    ] = 1,
    method: MethodsOption = None,
    plot: Annotated[
        Path | None, typer.Option(help="Where to draw F1 against delay (.png).", show_default="tuning.png in MODEL")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Leave the model as it is.")] = False,
    cache: CacheOption = None,
    threads: Threads = None,
    device: DeviceOption = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Choose thresholds, decay and the like for every method, and store them in the model.

    One to two thousand settings per method are tried on what the networks said, which is computed once and kept.

    Example: stormpsr tune models/vehicle --data data/vehicle --objective f1-within-delay --max-delay 5
    """
    need("tuning a model", "detect")
    from stormpsr.data.dataset import Dataset
    from stormpsr.recognizer.offline import LabelledPredictions, predict_recordings
    from stormpsr.recognizer.tuning import check_objective, choose, pareto_front, store_tuned, try_settings

    check_objective(objective, max_delay, among)
    loaded = load(model, None, None, threads, device)
    dataset = Dataset.open(data, None if split == "all" else split, loaded.procedure)
    dataset.check(loaded.check_procedure)
    with Bar("recordings", enabled=not as_json) as bar:
        tables = predict_recordings(loaded, dataset, cache_folder(cache), on_progress=bar.recording)
        labelled = [LabelledPredictions.of(recording, table, loaded.procedure) for recording, table in tables]
    scored: dict[str, list[Scored]] = {}
    chosen: dict[str, Scored] = {}
    for name in dict.fromkeys(loaded.method_or_fallback(wanted) for wanted in method or loaded.methods):
        with Bar(f"tuning {name}", enabled=not as_json) as bar:
            scored[name] = try_settings(loaded, name, labelled, keep=not dry_run, on_progress=bar.count)
        chosen[name] = choose(scored[name], objective, max_delay=max_delay, slack=slack, among=among)
    about = {"data": data.name, "split": split, "objective": objective, "n_recordings": len(labelled)}
    if not dry_run:
        store_tuned(loaded, chosen, about | {"max_delay_seconds": max_delay, "slack": slack, "among": among})
    drawn = _draw(plot, loaded.path, scored, chosen, f"{data.name}, {split}: {len(labelled)} recordings", dry_run)
    if as_json:
        methods = {
            name: {
                "chosen": _plain(name, best),
                "n_settings": len(scored[name]),
                "pareto_front": [_plain(name, one) for one in pareto_front(scored[name])],
            }
            for name, best in chosen.items()
        }
        print_json({**about, "stored": not dry_run, "methods": methods, "plot": None if drawn is None else str(drawn)})
        return
    _print_chosen(scored, chosen, f"{data.name}, {split} ({len(labelled)} recordings), objective {objective}")
    if drawn is not None:
        typer.echo(f"drawn: {drawn}")
    typer.echo("nothing was stored" if dry_run else f"stored: {loaded.path / 'recognizer.yaml'}")


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


def _print_chosen(scored: dict[str, list[Scored]], chosen: dict[str, Scored], title: str) -> None:
    from stormpsr.decoding.methods import resolve_method, title_of

    grids = {name: resolve_method(name).grid for name in chosen}
    columns = list(dict.fromkeys(column for grid in grids.values() for column in grid))
    rows = []
    for name, best in chosen.items():
        cells = [_cell(getattr(best.settings, column)) if column in grids[name] else "" for column in columns]
        figures = [number(best.pos), number(best.f1), number(best.delay_seconds, 1)]
        rows.append([title_of(name), str(len(scored[name])), *cells, *figures])
    words = [column.removeprefix("min_").replace("_", " ") for column in columns]
    head = ["method", "tried", *words, "POS", "F1", "tau (s)"]
    print_table(title, head, rows, right=range(1, len(head)))


def _cell(value: Any) -> str:
    return "off" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
