"""`stormpsr data`: real data sets as they are downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stormpsr.cli.options import ProcedureOption
from stormpsr.cli.output import JsonFlag, answer, counted, print_json, print_table
from stormpsr.procedure.model import Procedure

app = typer.Typer(help="Check data sets as they were downloaded, and put them together.", no_args_is_help=True)

Folders = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Folders that were downloaded: of frames, labels, boxes, or all.")
]


@app.command("check")
def check_command(folders: Folders, procedure: ProcedureOption, as_json: JsonFlag = False) -> None:
    """Check what was downloaded.

    Looks for frames, labels and boxes of every recording in all folders, whatever their layout, and compares their
    frames and their number. The exit code is 1 if something is missing or contradicts something else.

    Example: stormpsr data check MECCANO/RGB_frames MECCANO_PSR_Annotations --procedure meccano
    """
    from stormpsr.data.downloads import check_downloads

    found = check_downloads(folders, Procedure.load(procedure))
    counts = found.counts()
    if as_json:
        print_json({"splits": counts, "errors": found.errors, "notes": found.notes})
    else:
        columns = list(next(iter(counts.values())))
        rows = [[split, *row.values()] for split, row in counts.items()]
        print_table(", ".join(map(str, folders)), ["split", *columns], rows, right=range(1, 1 + len(columns)))
        for text in found.notes:
            typer.echo(f"note: {text}")
        for text in found.errors:
            typer.echo(f"error: {text}")
        typer.echo(f"{counted(len(found.recordings), 'recording')}: {counted(len(found.errors), 'error')}")
    if found.errors:
        raise typer.Exit(1)


@app.command("link")
def link_command(
    folders: Folders,
    procedure: ProcedureOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the data set; it must not exist yet.")],
    as_json: JsonFlag = False,
) -> None:
    """Put parts of a data set together.

    Makes one folder for --data, OUT/SPLIT/NAME, of links to frames, labels and boxes that lie elsewhere. Nothing is
    copied. Recordings without frames or labels are left out, and named; what 'data check' finds wrong with others is
    refused.

    Example: stormpsr data link MECCANO/RGB_frames MECCANO_PSR_Annotations --procedure meccano --out data/meccano
    """
    from stormpsr.data.downloads import link_downloads

    linked, left_out = link_downloads(folders, out, Procedure.load(procedure))
    if left_out and not as_json:
        named = ", ".join(f"{part.name} ({'no labels' if part.frames else 'no frames'})" for part in left_out)
        typer.echo(f"note: left out: {named}", err=True)
    splits = {split: [part.name for part in linked if part.split == split] for split in ("train", "val", "test")}
    said = ", ".join(f"{len(names)} {split}" for split, names in splits.items() if names)
    boxes = sum(part.boxes is not None for part in linked)
    answer(
        as_json,
        {"folder": str(out), "splits": splits, "with_boxes": boxes, "left_out": [part.name for part in left_out]},
        f"{counted(len(linked), 'recording')} ({said}), {boxes} with boxes: {out}",
    )


@app.command("renders")
def renders_command(
    folder: Annotated[Path, typer.Argument(help="Folder with images/ and labels_coco.json.")],
    procedure: ProcedureOption,
    ids: Annotated[
        str | None,
        typer.Option(
            help="What category ids mean: 'unity' (the authors' renders of IndustReal) or a YAML file of 'id: class'.",
            show_default="categories are states by their names",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Prepare renders of another program.

    Writes annotations.json with the procedure's classes into the folder, which 'train --renders' and
    'detect train --images' then read. Images without a listed state are left out.

    Example: stormpsr data renders IndustReal_synthetic --procedure industreal --ids unity
    """
    from stormpsr.data.downloads import adopt_renders, read_ids

    loaded = Procedure.load(procedure)
    path, n = adopt_renders(folder, loaded, None if ids is None else read_ids(ids))
    answer(as_json, {"annotations": str(path), "images": n}, f"{counted(n, 'image')}: {path}")
