"""`stormpsr labels`: audit and convert label files."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stormpsr.cli.options import DataProcedureOption, ForceFlag, lines_of, procedure_of
from stormpsr.cli.output import JsonFlag, answer, counted, print_json, print_notes
from stormpsr.errors import InputError

# what a raw file is converted to, and whether with the incorrect installs
_CONVERTED = (("PSR_labels.csv", False), ("PSR_labels_with_errors.csv", True))

app = typer.Typer(help="Check and convert label files.", no_args_is_help=True)


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


def _names_in(source: Path) -> list[str]:
    from stormpsr.data.layouts import find_recordings

    if not source.exists():
        raise InputError("there is no such file or folder", path=source, cure="name the recordings, one per line")
    if source.is_file():
        return lines_of(source, "name the recordings, one per line")
    names = [entry.name.removesuffix("_GT.csv") for entry in source.rglob("*_GT.csv")]
    return names or [recording.name for recording in find_recordings(source)]


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
