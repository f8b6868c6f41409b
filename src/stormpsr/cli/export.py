"""`stormpsr export`: a model that runs without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from stormpsr.cli import options
from stormpsr.cli.output import JsonFlag, answer, print_notes
from stormpsr.errors import InputError


def export_command(
    model: options.ModelArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the exported model.")],
    engine: Annotated[
        Literal["onnx", "openvino"],
        typer.Option("--format", help="What will run it: ONNX Runtime or OpenVINO. The graphs are ONNX either way."),
    ] = "onnx",
    int8: Annotated[
        bool,
        typer.Option("--int8", help="Detector and encoder in 8 bits, where events get no worse; needs --calibrate."),
    ] = False,
    calibrate: Annotated[
        Path | None,
        typer.Option(help="Folder of recordings, of which --int8 learns how large numbers get, and tries events on."),
    ] = None,
    split: options.SplitOrAll = "all",
    as_json: JsonFlag = False,
) -> None:
    """Export a model, to run it without torch.

    Networks become ONNX graphs, which are compared with torch before the folder is there; everything else is copied.
    'stormpsr run', 'evaluate' and 'tune' take the folder like any other model, after pip install 'stormpsr[edge]'.

    Example: stormpsr export models/vehicle --out models/vehicle-onnx
    """
    options.need("exporting a model", "detect")
    options.need("exporting a model", "export")
    if engine == "openvino":
        options.need("exporting a model for OpenVINO", "openvino")
    from stormpsr.recognizer.export import calibration_images, events_judge, export_model, precision_of

    if int8 != (calibrate is not None):
        cure = "give --int8 and --calibrate DATA together"
        raise InputError("--int8 needs recordings" if int8 else "--calibrate is for --int8", cure=cure)
    images = judge = None
    if calibrate is not None:
        from stormpsr.recognizer.model_folder import load_model

        dataset = options.open_data(calibrate, split, load_model(model, device="cpu"))
        images, judge = calibration_images(dataset), events_judge(list(dataset))
    notes: list[str] = []
    exported = export_model(model, out, engine=engine, calibration=images, judge=judge, on_note=notes.append)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    streams, precision = list(exported.streams), precision_of(exported.path)
    print_notes((*exported.notes, *notes))
    said = f"{exported.procedure.name}: {' and '.join(streams)} for {engine}, {precision}, {size / 1e6:.1f} MB: {out}"
    answer(
        as_json,
        {"folder": str(out), "format": engine, "precision": precision, "streams": streams, "bytes": size},
        said,
    )
