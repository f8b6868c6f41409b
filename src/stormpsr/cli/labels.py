"""`stormpsr labels`: audit, count, compare and convert label files."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpsr.cli.options import (
    PLOTS,
    AnySplit,
    DataProcedureOption,
    ForceFlag,
    check_output,
    lines_of,
    procedure_of,
)
from stormpsr.cli.output import JsonFlag, answer, counted, number, print_json, print_notes, print_table
from stormpsr.errors import InputError

if TYPE_CHECKING:
    from stormpsr.data.label_statistics import LabelStatistics, Spread

# what a raw file is converted to, and whether with the incorrect installs
_CONVERTED = (("PSR_labels.csv", False), ("PSR_labels_with_errors.csv", True))

app = typer.Typer(help="Check, count, compare and convert label files.", no_args_is_help=True)


@app.command("check")
def check(
    folder: Annotated[Path, typer.Argument(help="A folder of recordings, or one recording.")],
    procedure: DataProcedureOption = None,
    expect: Annotated[
        Path | None,
        typer.Option(
            help="Recordings that must be there: a text file with one name per line, or a folder with a subfolder or "
            "a NAME_GT.csv for each."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Find errors in labels, by file and line.

    In rows: unknown step ids, wrong order, duplicates, impossible steps and states, frames beyond the end.

    In recordings: missing or duplicate recordings, missing labels, files that contradict each other, a video whose
    frame rate or number of frames does not match the labels.

    The exit code is 1 if there are errors; warnings alone do not count.

    Example: stormpsr labels check data/meccano_psr --procedure meccano
    """
    from stormpsr.data.audit import audit_labels

    names = [] if expect is None else _names_in(expect)
    audit = audit_labels(folder, procedure_of(folder, procedure), expected_names=names)
    if as_json:
        counts = {"recordings": audit.n_recordings, "files": audit.n_files, "steps": audit.n_steps}
        findings = [asdict(finding) for finding in audit.findings]
        print_json({**counts, "unchecked_ends": audit.unchecked_ends, "errors": audit.n_errors, "findings": findings})
    else:
        for finding in audit.findings:
            typer.echo(str(finding))
        n_warnings = len(audit.findings) - audit.n_errors
        typer.echo(
            f"{counted(audit.n_recordings, 'recording')}, {counted(audit.n_files, 'file')}, "
            f"{counted(audit.n_steps, 'step')}: "
            f"{counted(audit.n_errors, 'error')}, {counted(n_warnings, 'warning')}"
        )
        if audit.unchecked_ends:
            typer.echo(
                f"frames beyond the end were not checked for {counted(audit.unchecked_ends, 'recording')} "
                "without images and recording.json"
            )
    if audit.n_errors:
        raise typer.Exit(1)


@app.command("stats")
def stats(
    folder: Annotated[Path, typer.Argument(help="A folder of recordings.")],
    procedure: DataProcedureOption = None,
    split: AnySplit = None,
    plot: Annotated[Path | None, typer.Option(help="Also plot how often each step occurs (.png, .svg, .pdf).")] = None,
    per_step: Annotated[bool, typer.Option("--per-step", help="Also print how often each step occurs.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Count steps, errors and states.

    Correct completions, installations, removals and incorrect installations, how far apart completions are, and how
    many states the assembly goes through; by split, and by step. What no file says is a dash. In MECCANO's published
    files there are 391 correct completions and 16 incorrect ones, where the paper counts 431 and 30.

    Example: stormpsr labels stats data/meccano_psr --procedure meccano --plot distribution.png
    """
    from stormpsr.data.label_statistics import label_statistics

    check_output(plot, *PLOTS)
    loaded = procedure_of(folder, procedure)
    found = label_statistics(folder, loaded, split)
    if plot is not None:
        from stormpsr.evaluation.plots import plot_label_distribution

        plot_label_distribution(found, loaded, plot)
    if as_json:
        print_json({**found.to_dict(), "plot": None if plot is None else str(plot)})
        return
    _print_statistics(found, f"{folder}, procedure {loaded.name!r}")
    if per_step:
        rows = [
            [step_id, loaded.step(step_id).description, *(counts.get(name, 0) for name in found.splits)]
            for step_id, counts in found.steps.items()
        ]
        print_table("How often", ["id", "step", *found.splits], rows, right=(0, *range(2, 2 + len(found.splits))))
    if plot is not None:
        typer.echo(f"written: {plot}")


def _print_statistics(found: LabelStatistics, title: str) -> None:
    """A column per split."""
    splits = list(found.splits.values())
    rows: list[list[object]] = [["recordings", *(own.n_recordings for own in splits)]]
    for name, key in (
        ("correct completions", "completed"),
        ("  installations", "installed"),
        ("  removals", "removed"),
        ("incorrect installations", "incorrect"),
    ):
        rows.append([name, *(_spread(getattr(own, key)) for own in splits)])
    rows += [
        ["states", *(number(own.n_states, 0) for own in splits)],
        ["  that have a class", *(number(own.n_listed_states, 0) for own in splits)],
        ["  with a wrong part", *(number(own.n_wrong_states, 0) for own in splits)],
        ["mean length (s)", *(number(own.mean_seconds, 1) for own in splits)],
    ]
    print_table(title, ["", *found.splits], rows, right=range(1, 1 + len(splits)))
    deciles = [[name, *(number(value, 0) for value in own.seconds_between)] for name, own in found.splits.items()]
    columns = ["", *(f"{10 * k} %" for k in range(1, 10))]
    known = [row for row in deciles if len(row) > 1]
    if known:
        print_table("Seconds between completions, deciles", columns, known, right=range(1, 10))


def _spread(spread: Spread | None) -> str:
    """`391 (19.6 ± 4.2)`, the mean and deviation per recording."""
    if spread is None:
        return "–"
    deviation = "" if spread.deviation is None else f" ± {spread.deviation:.1f}"
    return f"{spread.total} ({spread.mean:.1f}{deviation})"


def _names_in(source: Path) -> list[str]:
    from stormpsr.data.layouts import find_recordings

    if not source.exists():
        raise InputError("there is no such file or folder", path=source, cure="name the recordings, one per line")
    if source.is_file():
        return lines_of(source, "name the recordings, one per line")
    names = [entry.name.removesuffix("_GT.csv") for entry in source.rglob("*_GT.csv")]
    return names or [recording.name for recording in find_recordings(source)]


@app.command("compare")
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="Folder of recordings as one person labelled them.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="The same as another person labelled them.")],
    procedure: DataProcedureOption = None,
    per_step: Annotated[bool, typer.Option("--per-step", help="Also print a table of steps.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare the labels of two people.

    How many frames their completions are apart, which completions only one of them has, and Cohen's kappa of the
    states, by component and for whole states. Recordings are paired by name.

    Example: stormpsr labels compare labels/anna labels/ben --procedure lamp.yaml
    """
    from statistics import median

    from stormpsr.data.label_agreement import compare_labels

    loaded = procedure_of(first, procedure)
    found = compare_labels(first, second, loaded)
    if as_json:
        print_json(found.to_dict())
        return
    for names, folder in ((found.only_first, first), (found.only_second, second)):
        if names:
            typer.echo(f"note: only in {folder}: {', '.join(names)}", err=True)
    distances = found.distances
    rows: list[list[object]] = [
        ["completions in both", len(found.matched)],
        [f"only in {first}", len(found.missing)],
        [f"only in {second}", len(found.extra)],
        ["F1 of the two", number(found.f1)],
    ]
    if distances:
        spread = {
            "median distance": median(distances),
            "90 % are within": found.quantile(0.9),
            "largest distance": distances[-1],
        }
        for name, value in spread.items():
            rows.append([f"{name} (frames)", number(value, 0)])
            rows.append([f"{name} (s)", number(None if value is None else value / found.fps, 2)])
    title = f"{counted(len(found.recordings), 'recording')}, {found.n_frames} frames with states in both"
    print_table(title, ["", ""], rows, right=(1,))
    kappas = [["whole state", number(found.kappa)], *([n, number(k)] for n, k in found.component_kappa.items())]
    print_table("Cohen's kappa of states", ["", "kappa"], kappas, right=(1,))
    if per_step:
        ids = sorted({*(one.step_id for one in found.matched), *(one.step_id for one in found.missing + found.extra)})
        table = []
        for step_id in ids:
            own = sorted(one.distance for one in found.matched if one.step_id == step_id)
            alone = [sum(one.step_id == step_id for one in group) for group in (found.missing, found.extra)]
            apart = number(median(own) if own else None, 0)
            table.append([step_id, loaded.step(step_id).description, len(own), *alone, apart])
        columns = ["id", "step", "both", "only A", "only B", "median frames apart"]
        print_table("Steps", columns, table, right=(0, 2, 3, 4, 5))
    for group, folder in ((found.missing, first), (found.extra, second)):
        for one in group:
            what = loaded.step(one.step_id).description
            typer.echo(f"only in {folder}: {one.recording}, frame {one.frame}: {what}")


@app.command("convert")
def convert(
    raw: Annotated[Path, typer.Argument(help="PSR_labels_raw.csv, or a folder of recordings.")],
    procedure: DataProcedureOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write to.", show_default="beside each raw file")
    ] = None,
    digits: Annotated[
        int | None, typer.Option(min=1, max=20, help="Digits in frame names.", show_default="as in the raw file")
    ] = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Convert states over time to steps.

    Reads PSR_labels_raw.csv and writes PSR_labels.csv and PSR_labels_with_errors.csv.

    Example: stormpsr labels convert recordings/ --procedure industreal
    """
    from stormpsr.data.labels import STATES_FILE, Note, read_states, steps_from_states, write_steps

    loaded = procedure_of(raw if raw.is_dir() else raw.parent, procedure)
    sources, without = _raw_files(raw)
    notes: list[Note] = []
    # everything is read before anything is written, so that a bad file loses nothing
    timelines = [read_states(path, loaded, on_note=notes.append) for path, _ in sources]
    targets = [path.parent if out is None else out / place for path, place in sources]
    for file in (target / name for target in targets for name, _ in _CONVERTED):
        if file.exists() and not force:
            raise InputError("the file is there already", path=file, cure="choose --out, or add --force")
    written: list[tuple[str, int]] = []
    for (source, _), target, timeline in zip(sources, targets, timelines, strict=True):
        target.mkdir(parents=True, exist_ok=True)
        for name, with_errors in _CONVERTED:
            steps = steps_from_states(timeline, loaded, with_errors=with_errors)
            write_steps(target / name, steps, loaded, digits=digits or _digits_in(source))
            written.append((str(target / name), len(steps)))
    print_notes(notes)
    files = [{"path": path, "steps": n_steps} for path, n_steps in written]
    lines = [f"{path}: {counted(n_steps, 'step')}" for path, n_steps in written]
    lines += [f"left out, no {STATES_FILE}: {', '.join(without)}"] if without else []
    answer(as_json, {"written": files, "without_raw_file": without}, *lines)


def _raw_files(raw: Path) -> tuple[list[tuple[Path, Path]], list[str]]:
    """(raw files with their place below the folder, recordings that have none)."""
    from stormpsr.data.labels import STATES_FILE
    from stormpsr.data.layouts import find_recordings

    if not raw.is_dir():
        return [(raw, Path())], []
    folders = [recording.path for recording in find_recordings(raw)]
    with_states = [folder for folder in folders if (folder / STATES_FILE).is_file()]
    if not with_states:
        raise InputError(f"there is no {STATES_FILE} in it", path=raw, cure="states are what steps are made from")
    sources = [(folder / STATES_FILE, folder.relative_to(raw)) for folder in with_states]
    return sources, [str(folder) for folder in folders if folder not in with_states]


def _digits_in(path: Path) -> int:
    """How many digits the frames of a label file have, by its first row."""
    from stormpsr.data.labels import read_rows

    _, row = next(iter(read_rows(path)))
    return len(re.findall(r"\d+", row[0])[-1])
