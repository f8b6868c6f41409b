"""`stormpsr labels`: audit and convert label files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stormpsr.cli.output import JsonFlag, print_json, print_notes

app = typer.Typer(help="Audit and convert label files.", no_args_is_help=True)

ProcedureOption = Annotated[
    str, typer.Option("--procedure", "-p", help="A shipped procedure (industreal, meccano) or a YAML file.")
]


@app.command("check")
def check(
    folder: Annotated[Path, typer.Argument(help="A folder of recordings, or one recording.")],
    procedure: ProcedureOption,
    expect: Annotated[
        Path | None,
        typer.Option(
            help="Recordings that must be there: a text file with a name per line, or a folder with a sub-folder or a "
            "NAME_GT.csv for each."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Audit a folder of labels: order, unknown ids, impossible steps, duplicates, frames beyond the end, missing
    recordings, and files of one recording that contradict each other.

    Exit code 1 if there are errors; warnings alone do not count.

    Example: stormpsr labels check data/meccano_psr --procedure meccano
    """
    from stormpsr.label_audit import audit_labels
    from stormpsr.procedure import Procedure

    names = [] if expect is None else _names_in(expect)
    audit = audit_labels(folder, Procedure.load(procedure), expected_names=names)
    if as_json:
        counts = {"recordings": audit.n_recordings, "files": audit.n_files, "steps": audit.n_steps}
        findings = [asdict(finding) for finding in audit.findings]
        print_json({**counts, "unchecked_ends": audit.unchecked_ends, "errors": audit.n_errors, "findings": findings})
    else:
        for finding in audit.findings:
            typer.echo(str(finding))
        n_warnings = len(audit.findings) - audit.n_errors
        typer.echo(
            f"{audit.n_recordings} recordings, {audit.n_files} files, {audit.n_steps} steps: "
            f"{audit.n_errors} errors, {n_warnings} warnings"
        )
        if audit.unchecked_ends:
            typer.echo(
                f"frames beyond the end were not checked for {audit.unchecked_ends} recordings: "
                "they have no images and no recording.json"
            )
    if audit.n_errors:
        raise typer.Exit(1)


def _names_in(source: Path) -> list[str]:
    from stormpsr.errors import InputError

    if source.is_dir():
        boxes = [entry.name.removesuffix("_GT.csv") for entry in source.rglob("*_GT.csv")]
        return boxes or [entry.name for entry in source.iterdir() if entry.is_dir()]
    if not source.is_file():
        raise InputError("there is no such file or folder", path=source, cure="name the recordings, one per line")
    return [line.strip() for line in source.read_text(encoding="utf-8-sig").splitlines() if line.strip()]


@app.command("convert")
def convert(
    raw: Annotated[Path, typer.Argument(help="A PSR_labels_raw.csv, or a folder of recordings that have one.")],
    procedure: ProcedureOption,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write to; default: beside each raw file.")
    ] = None,
    digits: Annotated[int, typer.Option(min=1, help="Digits of a frame's name: 6 in IndustReal, 5 in MECCANO.")] = 6,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there already.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Turn states over time into steps: PSR_labels_raw.csv into PSR_labels.csv and PSR_labels_with_errors.csv.

    Example: stormpsr labels convert recordings/ --procedure industreal
    """
    from stormpsr.datasets import find_recordings
    from stormpsr.errors import InputError
    from stormpsr.labels import (
        STATES_FILE,
        STEPS_FILE,
        STEPS_WITH_ERRORS_FILE,
        Note,
        read_states,
        steps_from_states,
        write_steps,
    )
    from stormpsr.procedure import Procedure

    loaded = Procedure.load(procedure)
    if raw.is_dir():
        folders = [recording.path for recording in find_recordings(raw)]
        sources = [(folder / STATES_FILE, folder.relative_to(raw)) for folder in folders]
        sources = [(path, place) for path, place in sources if path.is_file()]
        if not sources:
            raise InputError(f"there is no {STATES_FILE} in it", path=raw)
    else:
        sources = [(raw, Path())]
    notes: list[Note] = []
    # everything is read before anything is written, so that a bad file loses nothing
    timelines = [read_states(path, loaded, on_note=notes.append) for path, _ in sources]
    targets = [path.parent if out is None else out / place for path, place in sources]
    for target in targets:
        for name in (STEPS_FILE, STEPS_WITH_ERRORS_FILE):
            if (target / name).exists() and not force:
                raise InputError("the file is there already", path=target / name, cure="choose --out, or add --force")
    written = []
    for target, timeline in zip(targets, timelines, strict=True):
        target.mkdir(parents=True, exist_ok=True)
        for name, with_errors in ((STEPS_FILE, False), (STEPS_WITH_ERRORS_FILE, True)):
            steps = steps_from_states(timeline, loaded, with_errors=with_errors)
            write_steps(target / name, steps, loaded, digits=digits)
            written.append({"path": str(target / name), "steps": len(steps)})
    print_notes(notes)
    if as_json:
        print_json({"written": written})
    else:
        for entry in written:
            typer.echo(f"{entry['path']}: {entry['steps']} steps")
