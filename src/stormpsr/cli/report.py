"""`stormpsr report`: a run as one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpsr.cli import options
from stormpsr.cli.output import Bar, JsonFlag, answer, print_notes
from stormpsr.errors import InputError
from stormpsr.files import write_text

if TYPE_CHECKING:
    from stormpsr.evaluation.run_folder import Run


def report_command(
    run: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN or PREDICTIONS...",
            help="Folder written by 'stormpsr evaluate --out'; with --labels, sets of predictions as 'score' takes "
            "them, each in the place of a method.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write (.html).", show_default="report.html in RUN")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the recordings, if they have moved since.")] = None,
    labels: Annotated[Path | None, typer.Option(help="Labels of the predictions: a folder of recordings.")] = None,
    procedure: Annotated[str | None, typer.Option("--procedure", "-p", help="With --labels: the procedure.")] = None,
    protocol: options.Protocol = "paper",
    split: options.AnySplit = None,
    missing: options.MissingOption = "error",
    title: Annotated[str | None, typer.Option(help="With --labels: title of the report.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write an HTML report.

    Scores, timelines, delays and images of what went wrong, in one page that needs no network and no other file.

    Example: stormpsr report runs/vehicle --out report.html
    """
    from stormpsr.evaluation.run_folder import read_run

    if labels is not None:
        if out is None:
            raise InputError("nobody says where the report goes", cure="add --out report.html")
        if data is not None:
            raise InputError("--data is for run folders", cure="--labels says where the recordings are")
        _of_predictions(run, out, labels, procedure, protocol, split, missing, title, as_json)
        return
    given = {"--procedure": procedure, "--split": split, "--title": title}
    for name, value in {**given, "--protocol": None if protocol == "paper" else protocol}.items():
        if value is not None:
            raise InputError(f"{name} is for predictions", cure="add --labels, or leave it out: the run says it")
    if len(run) > 1:
        raise InputError("a report is about one run", cure="give one; or --labels, for sets of predictions")
    _write_report(read_run(run[0]), out or run[0] / "report.html", data, as_json)


def _of_predictions(
    sets: list[Path],
    out: Path,
    labels: Path,
    procedure: str | None,
    protocol: options.Protocol,
    split: options.AnySplit,
    missing: options.MissingOption,
    title: str | None,
    as_json: bool,
) -> None:
    from tempfile import TemporaryDirectory

    from stormpsr.data.labels import Note
    from stormpsr.evaluation.run_folder import read_run
    from stormpsr.evaluation.score_files import set_names, write_predictions_as_run

    notes: list[Note] = []
    named = dict(zip(set_names(sets), sets, strict=True))
    loaded = options.procedure_of(labels, procedure)
    with TemporaryDirectory() as folder:
        write_predictions_as_run(
            Path(folder),
            labels,
            named,
            loaded,
            protocol=protocol,
            split=split,
            missing=missing,
            title=title,
            on_note=notes.append,
        )
        print_notes(notes)
        _write_report(read_run(folder), out, None, as_json)


def _write_report(opened: Run, path: Path, data: Path | None, as_json: bool) -> None:
    from stormpsr.evaluation.report.page import render_report

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
