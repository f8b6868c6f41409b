"""`stormpsr decode`: from state detections to step events."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpsr.cli.options import ProcedureOption, VariantOption, given, settings_of
from stormpsr.cli.output import JsonFlag, counted, print_json, print_notes, print_table
from stormpsr.decoding.methods import method_help
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

if TYPE_CHECKING:
    from stormpsr.data.events import StateDetection, StepEvent
    from stormpsr.data.labels import Note


def decode_command(
    detections: Annotated[
        Path,
        typer.Argument(help="A detection CSV (recording, frame, class, confidence, x, y, w, h), or a folder of them."),
    ],
    procedure: ProcedureOption,
    method: Annotated[
        str, typer.Option(metavar="METHOD", help=f"The baselines of IndustReal and more: {method_help(['detection'])}")
    ] = "expected",
    variant: VariantOption = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0, help="Accumulated confidence at which a step counts as completed.", show_default="8 for B2, B3"
        ),
    ] = None,
    decay: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Factor by which confidence decays per frame without support.",
            show_default="0.75 for B2, B3",
        ),
    ] = None,
    min_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="Weaker detections are ignored.", show_default="0.5 for B1")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Another setting of the method; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the steps: one NAME.csv per recording.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Decode detections of assembly states into steps.

    The baselines B1, B2 and B3 give exactly the events of the published programs.

    Example: stormpsr decode detections/ --procedure industreal --method expected --out predictions/
    """
    from stormpsr.data.events import completions
    from stormpsr.data.labels import write_steps
    from stormpsr.decoding.methods import decode

    loaded = Procedure.load(procedure)
    own = given(threshold=threshold, decay=decay, min_confidence=min_confidence) | settings_of(settings or [])
    notes: list[Note] = []
    files = _detection_files(detections)
    tables = _read(files, loaded, notes)
    targets = {} if out is None else _targets(out, tables, files)
    events: dict[str, list[StepEvent]] = {}
    for name, rows in tables.items():
        named = loaded.variant_of_recording(name)
        chosen = variant or (named.name if named else None)
        events[name] = completions(decode(rows, loaded, chosen, method, **own))  # files of steps have no alarms
    print_notes(notes)
    for name, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        write_steps(target, events[name], loaded, with_confidence=True)
    if as_json:
        plain = {
            name: [{"frame": e.frame, "step_id": e.step_id, "confidence": e.confidence} for e in found]
            for name, found in events.items()
        }
        print_json({"method": method, "events": plain, "written": [str(target) for target in targets.values()]})
        return
    for name, found in events.items():
        rows_text = [
            [e.frame, f"{e.frame / loaded.fps:.1f}", e.step_id, loaded.step(e.step_id).description] for e in found
        ]
        title = f"{name}: {counted(len(found), 'step')} ({method})"
        if rows_text:
            print_table(title, ["frame", "seconds", "id", "step"], rows_text, right=(0, 1, 2))
        else:
            typer.echo(f"{title} from {counted(len(tables[name]), 'detection')}")
    if targets:
        typer.echo(f"written: {counted(len(targets), 'file')} in {out}")


def _detection_files(detections: Path) -> list[Path]:
    if not detections.exists():
        raise InputError("there is no such file or folder", path=detections)
    files = sorted(detections.rglob("*.csv")) if detections.is_dir() else [detections]
    if not files:
        raise InputError("there is no CSV file in it", path=detections, cure="give the folder that holds detections")
    return files


def _read(files: list[Path], procedure: Procedure, notes: list[Note]) -> dict[str, list[StateDetection]]:
    """Detections by recording. A file without rows is a recording, called like the file, in which nothing was seen."""
    from stormpsr.data.detection_csv import read_detection_table

    tables: dict[str, list[StateDetection]] = {}
    origin: dict[str, Path] = {}
    for file in files:
        for name, rows in (read_detection_table(file, procedure, on_note=notes.append) or {file.stem: []}).items():
            if name in tables:
                cure = "keep one of them"
                raise InputError(f"recording {name!r} is in {origin[name]}, too", path=file, cure=cure)
            tables[name], origin[name] = rows, file
    return tables


_LONGEST_NAME = 200  # bytes; file systems allow 255, and drafts have longer names


def _targets(out: Path, names: Iterable[str], files: Iterable[Path]) -> dict[str, Path]:
    """Where each recording's events go; never over the detections they are made from."""
    if out.is_file():
        raise InputError("this is a file", path=out, cure="give --out a folder, it gets a file per recording")
    sources = {file.resolve() for file in files}
    targets: dict[str, Path] = {}
    for name in names:
        too_long = len(name.encode()) > _LONGEST_NAME
        if name in (".", "..") or too_long or any(character in name for character in "/\\:"):
            shown = f"{name[:40]}..." if too_long else name
            raise InputError(f"recording {shown!r} cannot be the name of a file", cure="rename it, or leave out --out")
        targets[name] = out / f"{name}.csv"
        if targets[name].resolve() in sources:
            raise InputError("this would overwrite the detections", path=targets[name], cure="choose another --out")
    return targets
