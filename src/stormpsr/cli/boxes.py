"""`stormpsr boxes`: annotated boxes out to annotation tools and trainers, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from stormpsr.cli.options import BoxesOption, DataProcedureOption, need, procedure_of
from stormpsr.cli.output import JsonFlag, answer, print_json, print_table
from stormpsr.errors import InputError

app = typer.Typer(help="Exchange box annotations with other tools.", no_args_is_help=True)


@app.command("export")
def export_command(
    data: Annotated[Path, typer.Argument(help="Folder of recordings with images and boxes.")],
    out: Annotated[Path, typer.Argument(help="Folder to write; it must not exist yet.")],
    box_format: Annotated[Literal["coco", "yolo"], typer.Option("--format", "-f", help="Layout to write.")] = "coco",
    procedure: DataProcedureOption = None,
    boxes: BoxesOption = None,
    split: Annotated[
        list[str] | None, typer.Option(help="train, val or test; may be repeated.", show_default="all there are")
    ] = None,
    negative_ratio: Annotated[
        float, typer.Option(min=0, help="Frames without a readable state to add per frame with one.")
    ] = 0.0,
    copy: Annotated[bool, typer.Option("--copy", help="Copy the images instead of linking to them.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Export frames and boxes as COCO or YOLO.

    CVAT, Label Studio, Roboflow, FiftyOne and most training programs read these layouts.

    Example: stormpsr boxes export data/vehicle exchange/vehicle --format yolo --negative-ratio 0.5
    """
    need("exchanging boxes", "detect", "cv2")
    from stormpsr.data.annotated_frames import read_frames
    from stormpsr.data.box_exchange import export_boxes
    from stormpsr.data.layouts import SPLITS, find_recordings

    loaded = procedure_of(data, procedure)
    there = {recording.split for recording in find_recordings(data)}
    wanted: list[str | None] = list(split) if split else [s for s in SPLITS if s in there] or [None]
    frames = {name or "train": read_frames(data, name, loaded, boxes_folder=boxes) for name in wanted}
    counts = export_boxes(out, frames, box_format, negative_ratio=negative_ratio, copy=copy)
    if as_json:
        print_json({"folder": str(out), "format": box_format, "splits": counts})
        return
    rows = [[name, *(count[key] for key in ("images", "boxes", "without_box"))] for name, count in counts.items()]
    print_table(f"{box_format.upper()}: {out}", ["split", "images", "boxes", "without box"], rows, right=(1, 2, 3))


@app.command("import")
def import_command(
    source: Annotated[Path, typer.Argument(help="Folder with annotations/*.json (COCO) or data.yaml (YOLO).")],
    into: Annotated[Path, typer.Option(help="Folder of the recordings that the images come from.")],
    procedure: DataProcedureOption = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing boxes.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Import boxes from COCO or YOLO.

    Writes them into the recordings as OD_labels.json.

    Example: stormpsr boxes import exchange/vehicle --into data/vehicle --replace
    """
    need("exchanging boxes", "detect", "cv2")
    from stormpsr.data.box_exchange import read_exchange, write_recording_boxes
    from stormpsr.data.layouts import find_recordings

    if not source.is_dir():
        raise InputError("there is no such folder", path=source)
    loaded = procedure_of(into, procedure)
    folders = {recording.name: recording.path for recording in find_recordings(into)}
    counts = write_recording_boxes(read_exchange(source, loaded), folders, replace=replace)
    said = f"{sum(counts.values())} boxes into {len(counts)} recordings: {into}"
    answer(as_json, {"into": str(into), "boxes": counts}, said)
