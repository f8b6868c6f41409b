"""`stormpsr learn`: from a model and labelled recordings to the next model, in one command."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from stormpsr.cli import options
from stormpsr.cli.output import Bar, JsonFlag, counted, mean_cells, print_json, print_table
from stormpsr.errors import InputError
from stormpsr.files import only_user

if TYPE_CHECKING:
    from stormpsr.recognizer.learning import Learning, Outcome, PlannedStep

_TIMED_RENDERS = 3


def learn_command(
    data: Annotated[Path, typer.Argument(help="Folder of labelled recordings, best in train/, val/ and test/.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the new model; it must not exist yet.")],
    start: Annotated[str, typer.Option(help="Model to begin with: a folder, or the name of a shipped one.")] = (
        "vehicle"
    ),
    product: Annotated[
        str | None, typer.Option(help="Product of the recordings, of which renders are added.", show_default="none")
    ] = None,
    renders: Annotated[int, typer.Option(min=1, help="Number of renders of the product.")] = 1500,
    images: options.ImagesOption = None,
    procedure: options.DataProcedureOption = None,
    preset: Annotated[str, typer.Option(help="How the stream is trained: a preset or a YAML file.")] = "synthetic",
    override: options.OverrideOption = None,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of the detector.")] = 600,
    batch_size: Annotated[int, typer.Option(min=2, help="Images per step of the detector.")] = 32,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    work: Annotated[
        Path | None,
        typer.Option(help="Folder for what is made on the way; removed in the end.", show_default="OUT.work"),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep that folder.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the data and estimate the time; train nothing.")
    ] = False,
    device: options.DeviceOption = "auto",
    threads: options.Threads = None,
    as_json: JsonFlag = False,
) -> None:
    """Make the next model from labelled recordings.

    Checks the data, estimates the time, trains detector and stream from where MODEL is, chooses thresholds on the
    validation recordings, lets both models recognise the test recordings, and says which is better. Interrupted, the
    same command goes on.

    Example: stormpsr learn data/mine --start vehicle --product mine.yaml --out models/mine
    """
    options.need("learning", "train")
    from stormpsr.evaluation.compare import verdict
    from stormpsr.recognizer.learning import Learning, Start, open_learning_data
    from stormpsr.recognizer.model_folder import load_model
    from stormpsr.training.fit import FitOptions

    _refuse_old(out)
    if product is not None:
        options.need("rendering a product", "synth")
    options.use_threads(threads)
    model = load_model(start, device=device, threads=threads)
    dataset = open_learning_data(data, procedure, _note)
    place = work or out.with_name(f"{out.name}.work")
    own = (place / "renders",) if product else ()
    learning = Learning(
        dataset,
        Start.of(model),
        place,
        preset=preset,
        overrides=tuple(override or ()),
        steps=steps,
        batch_size=batch_size,
        seed=seed,
        images=(*(folder for folder in own if folder.is_dir()), *(images or ())),
        options=FitOptions(device=device),
        threads=threads,
        on_note=_note,
    )
    for note in learning.check():
        _note(note)
    drawing = _planned_renders(learning, product, renders)
    plan = [*drawing, *learning.plan(perf_counter, renders if drawing else 0)]
    if dry_run:
        _print_plan(plan, as_json)
        return
    if not as_json:
        _print_plan(plan, as_json)
    learning = replace(learning, images=(*own, *(images or ())))
    began = perf_counter()
    with only_user(place):  # also while it is tuned, compared and packed: then its folder goes
        _refuse_old(out)
        learning.claim()
        try:
            with Bar() as bar:
                outcome = _learn(replace(learning, on_progress=bar.named), bar, product, renders, start)
        except KeyboardInterrupt:
            typer.echo("the same command goes on where it was stopped", err=True)
            raise
        learning.pack(out)
        if not keep:
            shutil.rmtree(place, ignore_errors=True)
    words = (
        f"{start!r} recognises another procedure: there is nothing to compare with"
        if outcome.comparison is None
        else verdict(outcome.comparison)
    )
    minutes = (perf_counter() - began) / 60
    if as_json:
        print_json(
            {
                "model": str(out),
                "minutes": minutes,
                "method": outcome.method,
                "verdict": words,
                "scores": outcome.summary.to_dict()["all"],
                "comparison": None if outcome.comparison is None else outcome.comparison.to_dict(),
            }
        )
        return
    _print_outcome(outcome, start, str(out))
    typer.echo(words)
    typer.echo(f"packed after {minutes:.1f} minutes: {out}")


def _refuse_old(out: Path) -> None:
    if out.exists():
        raise InputError("this is there already", path=out, cure="choose another --out, or delete it")


def _note(note: str) -> None:
    typer.echo(f"note: {note}", err=True)


def _learn(learning: Learning, bar: Bar, product: str | None, renders: int, start: str) -> Outcome:
    """All steps, those that are done already left out."""
    from stormpsr.cli.train_progress import StageBar

    folder = learning.work / "renders"
    if product is not None and not folder.is_dir():
        from stormpsr.synthetic.states import draw_states

        size = _render_size(learning)
        draw_states(
            folder,
            product,
            per_state=0,
            walks=renders,
            size=size,
            seed=learning.seed,
            hands=0.7,
            on_progress=lambda done, of: bar.named("renders", done, of),
        )
    learning.train_detector(StageBar("detector", "images", bar))
    for name in learning.stages:
        learning.train_stream(name, StageBar(name, "clips" if name == "temporal" else "images", bar))
    tuned = learning.tune()
    names = (Path(start).name, learning.work.name.removesuffix(".work"))
    return learning.compare(tuned, names if names[0] != names[1] else ("before", "after"))


def _render_size(learning: Learning) -> int:
    """Renders are as large as the networks see them; even, as the renderer wants it."""
    return learning.config.encoder.image_size // 2 * 2


def _planned_renders(learning: Learning, product: str | None, renders: int) -> list[PlannedStep]:
    """The renders, if there are to be any: some are drawn to see how long that takes."""
    if product is None or (learning.work / "renders").is_dir():
        return []
    from stormpsr.recognizer.learning import PlannedStep
    from stormpsr.recognizer.model_folder import procedure_difference
    from stormpsr.synthetic.product import Product
    from stormpsr.synthetic.states import StateRenderer

    loaded = Product.load(product)
    difference = procedure_difference(learning.procedure, loaded.procedure)
    if difference:
        cure = "give the product that the recordings show"
        raise InputError(f"the product is of another procedure than the recordings: {difference}", cure=cure)
    bits = next(iter(loaded.procedure.variants.values())).initial
    with StateRenderer(loaded, _render_size(learning)) as renderer:
        renderer.render(bits, 0)
        begin = perf_counter()
        for number in range(1, 1 + _TIMED_RENDERS):
            renderer.encode(renderer.render(bits, number, look=0))
        seconds = (perf_counter() - begin) / _TIMED_RENDERS
    return [PlannedStep("renders", f"{renders} images of {loaded.procedure.name!r}", seconds * renders / 60)]


def _print_plan(plan: list[PlannedStep], as_json: bool) -> None:
    minutes = sum(step.minutes for step in plan)
    if as_json:
        print_json({"steps": [asdict(step) for step in plan], "minutes": minutes})
        return
    rows = [[step.name, step.amount, f"{step.minutes:.1f}"] for step in plan]
    print_table("To be done", ["step", "how much", "minutes"], rows, right=(2,))
    typer.echo(f"about {minutes:.0f} minutes on this machine as busy as it is now, without validation and tuning")


def _print_outcome(outcome: Outcome, start: str, out: str) -> None:
    from stormpsr.cli.tune import print_chosen

    if outcome.tuned is not None:
        n = next(iter(outcome.tuned.values())).summary.n_recordings
        print_chosen(outcome.tuned, f"Chosen on {counted(n, 'validation recording')}")
    summaries = {start: outcome.old_summary, out: outcome.summary}
    rows = [[name, *mean_cells(own.all)] for name, own in summaries.items() if own is not None]
    title = f"{counted(outcome.summary.all.n_recordings, 'test recording')}, 95 % intervals"
    print_table(title, ["model", "POS", "F1", "tau (s)", "TP FP FN"], rows, right=range(1, 5))
