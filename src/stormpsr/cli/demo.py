"""`stormpsr demo`: draw an assembly that the model has not seen, watch it, score it, report it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpsr.cli.options import load, need
from stormpsr.cli.output import SCORE_COLUMNS, Bar, JsonFlag, console, counted, print_json, print_table, score_cells
from stormpsr.errors import InputError, MissingExtraError
from stormpsr.procedure.model import Procedure

if TYPE_CHECKING:
    from stormpsr.data.recording import Recording
    from stormpsr.decoding.predictions import Prediction
    from stormpsr.evaluation.summary import RecordingResult
    from stormpsr.recognizer.model_folder import RecognizerModel
    from stormpsr.synthetic.generate import RecordingBeingDrawn
    from stormpsr.synthetic.recording import DatasetSpec

SEED = 1  # the first one that is not that of training: nobody chose it
_SPEED = 4  # of the video: of so many frames one is drawn and looked at
_PROFILE = "industreal"
_THRESHOLD = 4.0  # of the baselines: the published default of 8 misses short views


def demo_command(
    model: Annotated[
        str, typer.Option("--model", "-m", help="Folder of a model of the vehicle, or the name of a shipped one.")
    ] = "vehicle",
    seed: Annotated[
        int, typer.Option(min=1, help="Another seed draws another assembly. (Training used seed 0.)")
    ] = SEED,
    seconds: Annotated[float | None, typer.Option(min=1, help="Stop the recording after this many seconds.")] = None,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Instead, score the published decoders on a small example.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("demo"),
    as_json: JsonFlag = False,
) -> None:
    """Watch an assembly and see which steps are recognised.

    Draws a recording that the model has not seen and recognises its steps while it is being drawn. Then scores all
    methods that the model has, and writes a report and a video.

    With --baselines, the three published decoders are scored on a small example that is shipped; no networks needed.

    Example: stormpsr demo --out demo
    """
    if out.is_file():
        raise InputError("the output is a file", path=out, cure="give the path of a folder")
    if baselines:
        _show_baselines(out, as_json=as_json)
    else:
        _show_recognition(model, seed, seconds, out, as_json=as_json)


# ---------------------------------------------------------------------- an unseen assembly
def _show_recognition(model: str, seed: int, seconds: float | None, out: Path, *, as_json: bool) -> None:
    """Draw and watch at the same time, then score and report."""
    need("recognising steps", "detect")
    need("drawing a recording", "synth")
    from stormpsr.cli.run import Watch, print_line
    from stormpsr.evaluation.report.page import render_report
    from stormpsr.evaluation.run_folder import read_run
    from stormpsr.files import write_text
    from stormpsr.recognizer.evaluate import claim_run
    from stormpsr.recognizer.model_folder import resolve_model
    from stormpsr.recognizer.recognizer import Recognizer
    from stormpsr.synthetic.generate import RecordingBeingDrawn

    began = time.perf_counter()
    folder = resolve_model(model)  # before anything is drawn
    name = f"{seed}" if seconds is None else f"{seed}-{seconds:g}s"
    world, run, report, video = out / f"world-{name}", out / f"run-{name}", out / "report.html", out / "annotated.mp4"
    predictions: list[Prediction] = []
    with RecordingBeingDrawn(world, demo_spec(seed, seconds)) as source:
        if not as_json:
            typer.echo(f"{source.procedure.title}: drawing an assembly that the model has not seen, and watching it")
        loaded = load(str(folder), None, None, threads=1)  # one thread: the other core draws
        loaded.check_procedure(source.procedure, folder)
        claim_run(run, loaded, world, source.spec.split)
        watch = Watch(
            Recognizer.of(loaded, None, source.spec.variant),
            source,
            (lambda *_: None) if as_json else print_line,
            save=video,
            speed=_SPEED,
            on_prediction=predictions.append,
        )
        watch.run(Bar("frames", enabled=not as_json, logged=False))
        watch.complain()
    if not as_json:
        typer.echo(watch.summary())
    recording, results = _score(loaded, source, predictions, world, run)
    write_text(report, render_report(read_run(run)))
    written = {
        report: "open it in a browser",
        video: f"{_SPEED} times as fast",
        run: "events and evidence, for 'stormpsr report'",
        recording.path: "the recording",
    }
    if as_json:
        print_json(
            {
                "model": str(loaded.path),
                "recording": {"path": str(recording.path), "frames": recording.n_frames, "fps": recording.fps},
                "steps": step_rows(results, loaded.procedure),
                "scores": {name: _score_json(result.scores) for name, result in results.items()},
                "in_words": in_words(results, loaded.method_or_fallback(None)),
                "frames_per_second": watch.frames_per_second,
                "seconds": time.perf_counter() - began,
                "written": [str(path) for path in written],
            }
        )
        return
    _print_results(results, loaded.procedure, loaded.method_or_fallback(None))
    for path, what in written.items():
        typer.echo(f"written: {path} ({what})")


def demo_spec(seed: int = SEED, seconds: float | None = None) -> DatasetSpec:
    """A set of one recording, as the shipped model knows them: at the pace of real ones, and of its frames those that

    the networks look at. The model learned from another seed, so it has not seen it.
    """
    from stormpsr.data.layouts import SPLITS
    from stormpsr.synthetic.product import Product
    from stormpsr.synthetic.profiles import profile_named
    from stormpsr.synthetic.recording import DatasetSpec, product_digest

    return DatasetSpec(
        product="vehicle",
        product_digest=product_digest(Product.load("vehicle")),
        profile=_PROFILE,
        size=320,
        seed=seed,
        counts={"train": 0, "val": 0, "test": 1},
        occlusion=0.5,
        rates=dict.fromkeys(SPLITS, profile_named(_PROFILE).rates),
        max_seconds=seconds,
        frame_step=_SPEED,
    )


def _score(
    model: RecognizerModel, source: RecordingBeingDrawn, predictions: list[Prediction], world: Path, run: Path
) -> tuple[Recording, dict[str, RecordingResult]]:
    """Evaluate all methods upon what the networks said while watching, by the labels on disk."""
    from stormpsr.data.dataset import Dataset
    from stormpsr.decoding.predictions import PredictionTable
    from stormpsr.recognizer.evaluate import evaluate_model
    from stormpsr.recognizer.offline import prediction_file

    dataset = Dataset.open(world, source.spec.split, model.procedure)
    recording = dataset[source.spec.id]
    cache = run / "predictions"
    table = PredictionTable.of(predictions, model.procedure.n_components)
    table.save(*prediction_file(recording, model.digest(), cache))
    title = f"{model.procedure.title or model.procedure.name}: the recording of the demo"
    summaries = evaluate_model(model, dataset, cache=cache, out=run, title=title)
    return recording, {method: summary.recordings[0] for method, summary in summaries.items()}


# ---------------------------------------------------------------------- telling
def step_rows(results: Mapping[str, RecordingResult], procedure: Procedure) -> list[dict[str, Any]]:
    """Completed steps in their order, then steps that were reported but not completed; times in seconds."""
    first = next(iter(results.values()))
    rows: dict[tuple[int, int], dict[str, list[float]]] = {(label.step_id, label.frame): {} for label in first.labels}
    false: dict[int, dict[str, list[float]]] = {}
    for method, result in results.items():
        for match in result.by_definition.matches:
            rows[match.step_id, match.label_frame][method] = [match.event_frame / result.fps]
        for event in result.by_definition.unmatched_events:
            false.setdefault(event.step_id, {}).setdefault(method, []).append(event.frame / result.fps)
    done: list[Any] = [(step_id, frame / first.fps, by) for (step_id, frame), by in rows.items()]
    return [
        {
            "step_id": step_id,
            "step": procedure.step(step_id).description,
            "completed": completed,
            "recognised": {method: by.get(method, []) for method in results},
        }
        for step_id, completed, by in (*done, *((step_id, None, by) for step_id, by in false.items()))
    ]


def _print_results(results: Mapping[str, RecordingResult], procedure: Procedure, main: str) -> None:
    from stormpsr.decoding.methods import title_of

    titles = [title_of(method) for method in results]
    table = []
    for row in step_rows(results, procedure):
        completed = row["completed"]
        cells = [
            ", ".join(f"{at:.1f}" if completed is None else f"{at:.1f} +{at - completed:.1f}" for at in times) or "–"
            for times in row["recognised"].values()
        ]
        table.append([row["step"], "false" if completed is None else f"{completed:.1f}", *cells])
    typer.echo()
    columns = ["step", "completed", *titles]
    print_table("Completed and recognised, in seconds (+ delay)", columns, table, right=range(1, len(columns)))
    scores = [
        [title, *score_cells(result.scores)[:-1], str(len(result.scores.unmatched_labels))]
        for title, result in zip(titles, results.values(), strict=True)
    ]
    columns = ["method", *SCORE_COLUMNS[:3], "found", "false", "missed"]
    print_table("Scores of this recording, by the paper's definitions", columns, scores, right=range(1, 7))
    screen = console()
    screen.print(in_words(results, main), markup=False, soft_wrap=not screen.is_terminal)
    typer.echo()


def in_words(results: Mapping[str, RecordingResult], main: str) -> str:
    """One sentence for somebody who has never heard of POS, about the main method first."""
    from stormpsr.decoding.methods import title_of

    others = [name for name in results if name != main]
    scores, n = results[main].scores, len(results[main].labels)
    late = "" if scores.delay_seconds is None else f", on average {scores.delay_seconds:.1f} s after completion"
    false = counted(scores.false_positives, "false alarm") if scores.false_positives else "no false alarm"
    text = f"{title_of(main)} recognised {scores.true_positives} of {counted(n, 'step')}{late}, with {false}"
    for name in others:
        scores = results[name].scores
        late = "" if scores.delay_seconds is None else f"{scores.delay_seconds:.1f} s after, "
        false = counted(scores.false_positives, "false alarm") if scores.false_positives else "no false alarm"
        title = title_of(name)
        text += f"; {title if title.isupper() else title.lower()}: {scores.true_positives} ({late}{false})"
    return f"{text}."


def _score_json(scores: Any) -> dict[str, Any]:
    names = ("pos", "f1", "true_positives", "false_positives", "false_negatives")
    return {"tau": scores.delay_seconds, **{name: getattr(scores, name) for name in names}}


# ---------------------------------------------------------------------- the published decoders
def _show_baselines(out: Path, *, as_json: bool) -> None:
    """Decode, score and draw the example that is shipped."""
    from importlib import resources

    from stormpsr.data.layouts import find_recordings
    from stormpsr.evaluation.baselines import METHODS, read_detected, score_baseline
    from stormpsr.evaluation.plots import plot_summary
    from stormpsr.files import write_json

    procedure = Procedure.load("industreal")
    with resources.as_file(resources.files("stormpsr") / "examples" / "car") as car:
        recordings = read_detected(find_recordings(car / "recordings"), car / "detections", procedure)
    summaries = {
        f"{name} {method}": score_baseline(recordings, procedure, method, threshold=_THRESHOLD)
        for name, method in METHODS
    }
    written = [out / "scores.json"]
    write_json(out / "scores.json", {name: summary.to_dict() for name, summary in summaries.items()})
    try:
        plot_summary(summaries["B3 expected"], procedure, out / "timeline.png")
        written.append(out / "timeline.png")
    except MissingExtraError as error:
        typer.echo(f"no image: {error}", err=True)
    title = "A small invented example: three assemblies of a construction-set car"
    if as_json:
        scores = {name: _score_json(summary.all) for name, summary in summaries.items()}
        print_json({"title": title, "scores": scores, "written": [str(path) for path in written]})
        return
    rows = [[name, *score_cells(summary.all)] for name, summary in summaries.items()]
    print_table(title, ["decoder", *SCORE_COLUMNS], rows, right=range(1, 7))
    typer.echo("POS: were the steps recognised in the order in which they were done?  F1: were they the right ones?")
    typer.echo("tau: how late? A detector has to wait for a clear view of the whole object.")
    for path in written:
        typer.echo(f"written: {path}")
