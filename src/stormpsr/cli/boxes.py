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
    data: Annotated[Path, typer.Argument(help="Folder of recordings, with boxes or without.")],
    out: Annotated[Path, typer.Argument(help="Folder to write; it must not exist yet.")],
    box_format: Annotated[
        Literal["coco", "yolo", "cvat", "label-studio"], typer.Option("--format", "-f", help="Layout to write.")
    ] = "coco",
    procedure: DataProcedureOption = None,
    boxes: BoxesOption = None,
    split: Annotated[
        list[str] | None, typer.Option(help="train, val or test; may be repeated.", show_default="all there are")
    ] = None,
    negative_ratio: Annotated[
        float, typer.Option(min=0, help="Frames without a readable state to add per frame with one (COCO, YOLO).")
    ] = 0.0,
    every: Annotated[
        int, typer.Option(min=1, help="Of recordings without boxes, take every so many frames (all for CVAT).")
    ] = 10,
    copy: Annotated[bool, typer.Option("--copy", help="Copy the images instead of linking to them.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Export frames and boxes for annotation tools and trainers.

    Recordings in which nobody has drawn boxes yet go along, to be annotated. CVAT gets whole recordings, one task
    each. Label Studio gets a task per video, or per image where recordings are folders of images.

    Example: stormpsr boxes export data/vehicle exchange/vehicle --format yolo --negative-ratio 0.5
    """
    need("exchanging boxes", "detect", "cv2")
    from stormpsr.data.annotated_frames import frames_in, frames_without_boxes
    from stormpsr.data.box_exchange import export_boxes, export_recordings
    from stormpsr.data.layouts import SPLITS, find_recordings

    loaded = procedure_of(data, procedure)
    there = {recording.split for recording in find_recordings(data)}
    wanted: list[str | None] = list(split) if split else [s for s in SPLITS if s in there] or [None]
    folders = {name or "train": find_recordings(data, name) for name in wanted}
    if box_format == "cvat" or box_format == "label-studio":
        if boxes is not None:
            cure = "'boxes import' brings them into the recordings first"
            raise InputError(f"--boxes is not for {box_format}", cure=cure)
        chosen = [folder for part in folders.values() for folder in part]
        found = export_recordings(out, chosen, loaded, box_format, every=every, copy=copy)
        if as_json:
            print_json({"folder": str(out), "format": box_format, "recordings": found})
            return
        lines = [[name, count["images"], count["boxes"]] for name, count in found.items()]
        print_table(f"{box_format}: {out}", ["recording", "images", "boxes"], lines, right=(1, 2))
        return
    frames = {name: frames_in(part, loaded, boxes_folder=boxes) for name, part in folders.items()}
    unlabelled = {name: frames_without_boxes(part, every) for name, part in folders.items() if boxes is None}
    if not any(own.readable for own in frames.values()) and not any(unlabelled.values()):
        raise InputError("there are no boxes", path=boxes or data, cure="NAME_GT.csv is called after the recording")
    counts = export_boxes(out, frames, box_format, negative_ratio=negative_ratio, unlabelled=unlabelled, copy=copy)
    if as_json:
        print_json({"folder": str(out), "format": box_format, "splits": counts})
        return
    rows = [[name, *(count[key] for key in ("images", "boxes", "without_box"))] for name, count in counts.items()]
    print_table(f"{box_format.upper()}: {out}", ["split", "images", "boxes", "without box"], rows, right=(1, 2, 3))


@app.command("import")
def import_command(
    source: Annotated[
        Path,
        typer.Argument(
            help="A set of COCO or YOLO, .xml of CVAT (for video 1.1 or for images), .json of Label Studio; or a "
            "folder of several."
        ),
    ],
    into: Annotated[Path, typer.Option(help="Folder of the recordings that the images come from.")],
    procedure: DataProcedureOption = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing boxes.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Import boxes from COCO, YOLO, CVAT or Label Studio.

    Writes them into the recordings as OD_labels.json. Between key frames of a video, boxes are interpolated. Labels are
    names of states, or 'assembly': then the state is that of the recording's labels.

    Example: stormpsr boxes import exchange/vehicle --into data/vehicle --replace
    """
    need("exchanging boxes", "detect", "cv2")
    from stormpsr.data.box_exchange import read_exchange, write_recording_boxes
    from stormpsr.data.layouts import find_recordings

    if not source.exists():
        raise InputError("there is no such file or folder", path=source)
    loaded = procedure_of(into, procedure)
    recordings = find_recordings(into)
    folders = {recording.name: recording.path for recording in recordings}
    counts = write_recording_boxes(read_exchange(source, loaded, recordings), folders, replace=replace)
    said = f"{sum(counts.values())} boxes into {len(counts)} recordings: {into}"
    answer(as_json, {"into": str(into), "boxes": counts}, said)
