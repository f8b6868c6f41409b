"""`stormpsr report`: a run as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stormpsr.cli.output import Bar, JsonFlag, answer
from stormpsr.errors import InputError
from stormpsr.files import write_text


def report_command(
    run: Annotated[Path, typer.Argument(help="Folder written by 'stormpsr evaluate --out'.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write (.html).", show_default="report.html in RUN")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the recordings, if they have moved since.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write an HTML report.

    Scores, timelines, delays and images of what went wrong, in one page that needs no network and no other file.

    Example: stormpsr report runs/vehicle --out report.html
    """
    from stormpsr.evaluation.report.page import render_report
    from stormpsr.evaluation.run_folder import read_run

    opened = read_run(run)
    path = out or run / "report.html"
    if path.is_dir():
        raise InputError("this is a folder", path=path, cure="give the name of a file")
    if data is not None and not data.is_dir():
        cure = "give the folder of recordings, or leave --data out"
        raise InputError("there is no such folder", path=data, cure=cure)
    with Bar("images", enabled=not as_json) as bar:
        page = render_report(opened, data=data, on_progress=bar.count)
    write_text(path, page)
    size = path.stat().st_size
    written = {"report": str(path), "bytes": size, "recordings": len(opened.names)}
    answer(as_json, written, f"written: {path} ({size / 1e6:.1f} MB)")
