"""`stormpsr decode`: from state detections to step events."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from stormpsr.cli.output import JsonFlag, print_json, print_notes, print_table

__all__ = ["decode_command"]


def decode_command(
    detections: Annotated[
        Path,
        typer.Argument(help="A detection CSV (recording, frame, class, confidence, x, y, w, h), or a folder of them."),
    ],
    procedure: Annotated[
        str, typer.Option("--procedure", "-p", help="A shipped procedure (industreal, meccano) or a YAML file.")
    ],
    method: Annotated[
        Literal["naive", "confidence", "expected"], typer.Option(help="The baselines B1, B2 and B3 of IndustReal.")
    ] = "expected",
    variant: Annotated[
        str | None, typer.Option(help="For 'expected': default is the one in the recording's name, else the first.")
    ] = None,
    threshold: Annotated[
        float, typer.Option(min=0, help="Accumulated confidence that completes a step (B2, B3).")
    ] = 8.0,
    decay: Annotated[float, typer.Option(min=0, max=1, help="Factor per frame without support (B2, B3).")] = 0.75,
    min_confidence: Annotated[float, typer.Option(min=0, max=1, help="Least confidence of a detection (B1).")] = 0.5,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write NAME.csv to, a file per recording.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Decode assembly-state detections into step events, exactly as the published baselines do.

    Example: stormpsr decode detections/ --procedure industreal --method expected --out predictions/
    """
    from stormpsr.detections import read_detection_table
    from stormpsr.errors import InputError
    from stormpsr.events import StateDetection, StepEvent
    from stormpsr.labels import Note, write_steps
    from stormpsr.procedure import Procedure
    from stormpsr.recognition.decoders import decode

    loaded = Procedure.load(procedure)
    if not detections.exists():
        raise InputError("there is no such file or folder", path=detections)
    files = sorted(detections.rglob("*.csv")) if detections.is_dir() else [detections]
    if not files:
        raise InputError("there is no CSV file in it", path=detections)
    notes: list[Note] = []
    tables: dict[str, list[StateDetection]] = {}
    for file in files:
        for name, rows in read_detection_table(file, loaded, on_note=notes.append).items():
            if name in tables:
                raise InputError(f"recording {name!r} is in another file already", path=file)
            tables[name] = rows
    events: dict[str, list[StepEvent]] = {}
    for name, rows in tables.items():
        named = loaded.variant_of_recording(name)
        chosen = variant or (named.name if named else None)
        events[name] = decode(
            rows, loaded, chosen, method, threshold=threshold, decay=decay, min_confidence=min_confidence
        )
    print_notes(notes)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for name, found in events.items():
            write_steps(out / f"{name}.csv", found, loaded, with_confidence=True)
    if as_json:
        rows_json = {
            name: [{"frame": e.frame, "step_id": e.step_id, "confidence": e.confidence} for e in found]
            for name, found in events.items()
        }
        print_json({"method": method, "events": rows_json})
        return
    for name, found in events.items():
        rows_text = [
            [str(e.frame), f"{e.frame / loaded.fps:.1f}", str(e.step_id), loaded.step(e.step_id).description]
            for e in found
        ]
        print_table(
            f"{name}: {len(found)} steps ({method})", ["frame", "seconds", "id", "step"], rows_text, right=(0, 1, 2)
        )
    if out is not None:
        typer.echo(f"written: {len(events)} files in {out}")
