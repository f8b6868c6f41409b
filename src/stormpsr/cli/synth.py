"""`stormpsr synth`: the rendered assembly world."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpsr.cli.options import ClusterOption, check_output, cluster_of, need
from stormpsr.cli.output import Bar, JsonFlag, answer, number, print_json, print_table
from stormpsr.errors import InputError
from stormpsr.files import read_text

if TYPE_CHECKING:
    from stormpsr.synthetic.overview import Comparison

app = typer.Typer(help="Generate recordings of synthetic assemblies.", no_args_is_help=True)

ProductOption = Annotated[
    str, typer.Option("--product", help="A shipped product (vehicle, gearbox) or a product file.")
]
SizeOption = Annotated[int, typer.Option(help="Width and height of the images in pixels; must be even.")]
SeedOption = Annotated[int, typer.Option(help="Random seed; the same seed gives the same files.")]
DifficultyOption = Annotated[
    float,
    typer.Option(min=0.0, max=1.0, help="Harder cameras, light, tables and boxes; 1 is nearest to real recordings."),
]
FolderArgument = Annotated[Path, typer.Argument(help="A generated data set, one of its splits, or one recording.")]
Rate = Annotated[float | None, typer.Option(min=0.0, max=1.0, show_default="the profile's")]

_DECILES = {
    "between completions": "completion_gaps",
    "length of a clear view": "view_lengths",
    "between clear views": "view_gaps",
    "completion to clear view": "waits",
}


@app.command("generate")
def generate_command(
    out: Annotated[Path, typer.Argument(help="Folder for the data set. An interrupted run is resumed.")],
    profile: Annotated[
        str, typer.Option(help="Pace and clear views: industreal(-varied), meccano or quick.")
    ] = "industreal",
    product: ProductOption = "vehicle",
    train: Annotated[int, typer.Option(min=0, help="Number of training recordings.")] = 48,
    val: Annotated[int, typer.Option(min=0, help="Number of validation recordings.")] = 8,
    test: Annotated[int, typer.Option(min=0, help="Number of test recordings.")] = 16,
    size: SizeOption = 320,
    seed: SeedOption = 0,
    workers: Annotated[int, typer.Option(min=1, help="Number of recordings drawn in parallel.")] = 2,
    video: Annotated[
        bool, typer.Option("--video", help="Write an MP4 per recording instead of single frames.")
    ] = False,
    occlusion: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="How much the hands occlude; 0.5 is calibrated on real data.")
    ] = 0.5,
    difficulty: DifficultyOption = 0.0,
    train_difficulty: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Each training recording gets a difficulty of its own, from 0 to this.",
            show_default="as --difficulty",
        ),
    ] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop each recording after this many seconds.")] = None,
    every: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Draw every so many frames only; labels keep their exact frame.",
            show_default="4, as often as networks look; 1 with --video",
        ),
    ] = None,
    error_rate: Rate = None,
    removal_rate: Rate = None,
    omission_rate: Rate = None,
    unseen_faults: Annotated[
        bool, typer.Option("--unseen-faults", help="Wrong parts sit in poses that the product keeps from training.")
    ] = False,
    train_error_rate: Rate = None,
    train_removal_rate: Rate = None,
    val_error_rate: Rate = None,
    val_removal_rate: Rate = None,
    test_error_rate: Rate = None,
    test_removal_rate: Rate = None,
    cluster: ClusterOption = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Make only the recording with this id; may be repeated.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Generate a data set in IndustReal's layout.

    Frames, labels, boxes and visibility. The rates are shares of installations that are first done wrong (error),
    undone and redone (removal) or skipped (omission). A rate of one split overrides the general one.

    Example: stormpsr synth generate data/vehicle --train 90 --val 24 --test 40 --train-error-rate 0.35
    """
    need("drawing recordings", "synth")
    from stormpsr.synthetic.actions import ErrorRates
    from stormpsr.synthetic.generate import generate
    from stormpsr.synthetic.product import Product
    from stormpsr.synthetic.profiles import profile_named
    from stormpsr.synthetic.recording import DatasetSpec, product_digest

    chosen = profile_named(profile)
    per_split = {
        "train": (train_error_rate, train_removal_rate),
        "val": (val_error_rate, val_removal_rate),
        "test": (test_error_rate, test_removal_rate),
    }
    spec = DatasetSpec(
        product=product,
        product_digest=product_digest(Product.load(product)),
        profile=profile,
        size=size,
        seed=seed,
        counts={"train": train, "val": val, "test": test},
        occlusion=occlusion,
        rates={
            split: ErrorRates(
                _first(own_error, error_rate, chosen.error_rate),
                _first(own_removal, removal_rate, chosen.removal_rate),
                _first(omission_rate, chosen.omission_rate),
                chosen.uncorrected_share,
                unseen_faults,
            )
            for split, (own_error, own_removal) in per_split.items()
        },
        video=video,
        max_seconds=max_seconds,
        frame_step=every or (1 if video else 4),
        difficulty=difficulty,
        train_difficulty=train_difficulty,
    )
    shares: dict[str, float] = {}  # of each recording that is to be drawn
    with Bar("percent", enabled=not as_json) as bar:

        def progress(recording_id: str, done: int, of: int) -> None:
            shares[recording_id] = done / of
            bar.count(int(100 * sum(shares.values()) / len(shares)), 100)

        result = generate(
            out,
            spec,
            workers=workers,
            only=only or (),
            cluster=cluster_of(cluster),
            on_start=lambda missing: shares.update((recording.id, 0.0) for recording in missing),
            on_progress=progress,
        )
    again = f", {len(result.retried)} of them after a crash" if result.retried else ""
    answer(
        as_json,
        {"folder": str(result.folder), "made": result.made, "skipped": result.skipped, "retried": result.retried},
        f"{len(result.made)} recordings made{again}, {len(result.skipped)} were there already: {result.folder}",
    )


def _first(*values: float | None) -> float:
    """The first value that was given."""
    return next(value for value in values if value is not None)


@app.command("states")
def states_command(
    out: Annotated[Path, typer.Argument(help="Folder for the images; it must not exist yet.")],
    product: ProductOption = "vehicle",
    per_state: Annotated[int, typer.Option(min=0, help="Number of images per state that a detector knows.")] = 200,
    walks: Annotated[int, typer.Option(min=0, help="Number of images of other states that occur in between.")] = 0,
    size: SizeOption = 320,
    seed: SeedOption = 0,
    hands: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of images with hands.")] = 0.5,
    difficulty: DifficultyOption = 0.0,
    as_json: JsonFlag = False,
) -> None:
    """Draw single images of every state.

    With boxes; pose, light, background and hands are random.

    Example: stormpsr synth states data/vehicle_states --per-state 200 --size 128
    """
    need("drawing images", "synth")
    from stormpsr.synthetic.states import draw_states

    with Bar("images", enabled=not as_json) as bar:
        description = draw_states(
            out,
            product,
            per_state=per_state,
            size=size,
            seed=seed,
            hands=hands,
            walks=walks,
            difficulty=difficulty,
            on_progress=bar.count,
        )
    answer(as_json, {"folder": str(out), **description}, f"{description['images']} images: {out}")


ProductArgument = Annotated[str, typer.Argument(metavar="PRODUCT", help="A shipped product or a product file.")]


@app.command("check")
def check_command(product: ProductArgument, as_json: JsonFlag = False) -> None:
    """Find errors in a product file.

    The procedure in it is checked as by 'procedure check', then materials, shapes, mesh files, poses. What is odd but
    allowed is a warning: a wrong unit, a product in the air, an error class without wrong poses. The exit code is 1 if
    there are errors.

    Example: stormpsr synth check lamp.yaml
    """
    need("checking a product", "synth", "trimesh")
    from stormpsr.procedure.reader import check_procedure_text
    from stormpsr.synthetic.product import Product, product_path, product_warnings

    path = product_path(product)
    _, problems = check_procedure_text(read_text(path))
    found = [{"line": p.line, "problem": p.problem, "cure": p.cure} for p in problems]
    loaded: Product | None = None
    if not found:
        try:
            loaded = Product.load(product)
        except InputError as error:
            found = [{"line": error.line, "problem": error.problem, "cure": error.cure}]
    warnings = product_warnings(loaded) if loaded is not None else []
    if as_json:
        print_json({"path": str(path), "ok": not found, "problems": found, "warnings": warnings})
    else:
        for one in found:
            place = f"{path}:{one['line']}" if one["line"] else str(path)
            typer.echo(f"{place}: {one['problem']}" + (f"; {one['cure']}" if one["cure"] else ""))
        for warning in warnings:
            typer.echo(f"{path}: warning: {warning}")
        if loaded is not None:
            typer.echo(f"{path}: fine ({loaded.summary()})")
    if found:
        raise typer.Exit(1)


@app.command("sheet")
def sheet_command(
    product: ProductArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="Image to write (.png).")],
    size: SizeOption = 200,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Draw a contact sheet of a product's states.

    Every state from the same side and in the same light, as a camera above the bench sees it, then each part in each of
    its wrong poses. If you cannot tell two of them apart, nor will a network.

    Example: stormpsr synth sheet lamp.yaml --out lamp.png
    """
    need("drawing a product", "synth")
    from stormpsr.synthetic.product import Product
    from stormpsr.synthetic.states import draw_sheet

    check_output(out, ".png")
    n = draw_sheet(Product.load(product), out, size=size, seed=seed)
    answer(as_json, {"path": str(out), "images": n}, f"{n} images: {out}")


@app.command("pictures")
def pictures_command(
    product: ProductArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the images: MODEL/pictures.")],
    size: SizeOption = 240,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Draw an image of every step, for the station's page.

    Each shows what the step leads to, with what it changes marked. The station shows those in the model's folder.

    Example: stormpsr synth pictures lamp.yaml --out models/lamp/pictures
    """
    need("drawing a product", "synth")
    from stormpsr.synthetic.product import Product
    from stormpsr.synthetic.states import draw_step_pictures

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("the output is there already", path=out, cure="choose another output folder, or delete it")
    n = draw_step_pictures(Product.load(product), out, size=size, seed=seed)
    answer(as_json, {"folder": str(out), "images": n}, f"{n} images: {out}")


@app.command("stats")
def stats_command(
    folder: FolderArgument,
    against: Annotated[str | None, typer.Option(help="Compare with real recordings: industreal or meccano.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show statistics of a data set.

    With --against, numbers that a calibrated profile should match but that are more than 25 % off are marked.

    Example: stormpsr synth stats data/vehicle --against industreal
    """
    from stormpsr.synthetic.overview import REAL, compare, metrics_of, recording_folders, summarise_set

    if against is not None and against not in REAL:
        raise InputError(f"there are no real metrics of {against!r}", cure=f"choose one of: {', '.join(REAL)}")
    statistics = summarise_set([metrics_of(path) for path in recording_folders(folder)])
    real = REAL[against] if against else None
    rows = compare(statistics, real)
    if as_json:
        comparison = [{**asdict(row), "ratio": row.ratio, "within": row.within} for row in rows]
        print_json({"statistics": asdict(statistics), "against": against, "comparison": comparison})
        return
    print_table(
        f"{folder}" + (f" against {against}" if against else ""),
        ["figure", "measured", *(["real", "ratio", ""] if real else [])],
        [[row.name, number(row.measured), *(_compared(row) if real else [])] for row in rows],
        right=[1, 2, 3],
    )
    lines = []
    for name, key in _DECILES.items():
        for label, numbers in ((name, statistics), (f"{name}, {against}", real)):
            if values := getattr(numbers, key, None):
                lines.append([label, *(number(value, 1) for value in values.values)])
    if statistics.visible_shares:
        lines.append(["visible share (no unit)", *(number(value, 2) for value in statistics.visible_shares.values)])
    print_table("deciles, in seconds", ["", *(f"{10 * k} %" for k in range(1, 10))], lines, right=range(1, 10))


def _compared(row: Comparison) -> list[str]:
    mark = "" if not row.calibrated or row.within is None else "ok" if row.within else "beyond 25 %"
    return [number(row.real), number(row.ratio, 2), mark]


@app.command("preview")
def preview_command(
    folder: FolderArgument,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write to.", show_default="FOLDER/preview")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of frames to show.")] = 40,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Show random frames of a data set.

    Writes a montage with and without the state, and a page that shows the state on a click.

    Example: stormpsr synth preview data/vehicle
    """
    need("drawing a preview", "synth", "PIL")
    from stormpsr.synthetic.overview import write_preview

    paths = write_preview(folder, out or folder / "preview", count=count, seed=seed)
    files = [str(path) for path in paths]
    answer(as_json, {"files": files}, *files)
