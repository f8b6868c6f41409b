"""`stormpsr detect`: train, score and run assembly state detectors."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stormpsr.cli import options
from stormpsr.cli.output import Bar, JsonFlag, answer, number, print_json, print_notes, print_table
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

if TYPE_CHECKING:
    from stormpsr.data.labels import Note
    from stormpsr.evaluation.detection_metrics import DetectionScores

app = typer.Typer(help="Train, evaluate and run assembly state detectors.", no_args_is_help=True)

Data = Annotated[Path, typer.Argument(help="Folder of recordings with frames, labels and OD_labels.json.")]
Detector = Annotated[
    Path, typer.Argument(help="Folder of a trained detector, or a model whose detector it is: a folder, or 'vehicle'.")
]
MinConfidence = Annotated[float, typer.Option(min=0, max=1, help="Weaker detections are ignored.")]


@app.command("train")
def train_command(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the detector. Interrupted training is resumed.")],
    detector: Annotated[
        str | None,
        typer.Option(
            help="compact, yolox (libreyolo, MIT), yolov8 (ultralytics, AGPL), or package.module:Class.",
            show_default="compact",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="synthetic (the shipped model's), yolov8m-published (IndustReal's), or a YAML file; other options win."
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(help="Trained detector to begin with, of its kind and settings.", show_default="a new one"),
    ] = None,
    procedure: options.DataProcedureOption = None,
    boxes: options.BoxesOption = None,
    images: options.ImagesOption = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps.", show_default="900")] = None,
    batch_size: Annotated[int | None, typer.Option(min=2, help="Images per step.", show_default="32")] = None,
    negative_ratio: Annotated[
        float | None,
        typer.Option(min=0, help="Frames without a readable state per frame with one.", show_default="0.5"),
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak learning rate.", show_default="0.002")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", help="Setting of the network, for example image_size=128; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for decoded frames; 'train' can share it.", show_default="none is kept")
    ] = None,
    device: options.DeviceOption = "auto",
    devices: options.DevicesOption = 1,
    precision: options.PrecisionOption = "32-true",
    workers: options.WorkersOption = 0,
    threads: options.Threads = None,
    as_json: JsonFlag = False,
) -> None:
    """Train an assembly state detector.

    Trains on the frames whose state is readable and calibrates on the validation split. Ctrl-C is safe: the same
    command resumes after the last complete epoch, with the same result as without the interruption.

    Example: stormpsr detect train data/vehicle --images data/vehicle_states --out detectors/vehicle
    """
    options.need("training a detector", "train")
    import torch

    from stormpsr.data.annotated_frames import read_frames, read_images
    from stormpsr.detectors.base import TorchDetector
    from stormpsr.detectors.registry import begin_detector, make_detector
    from stormpsr.training.fit import FitOptions
    from stormpsr.training.tasks.detector import DetectorPreset, load_detector_preset, train_detector

    if (out / "config.yaml").is_file():
        raise InputError("a trained detector is there already", path=out, cure="choose another folder, or delete it")
    options.use_threads(threads)
    loaded = options.procedure_of(data, procedure)
    notes: list[Note] = []
    train = read_frames(data, "train", loaded, boxes_folder=boxes, on_note=notes.append)
    val = read_frames(data, "val", loaded, boxes_folder=boxes, on_note=notes.append)
    print_notes(notes)
    train = replace(train, images=tuple(image for folder in images or () for image in read_images(folder, loaded)))
    chosen = DetectorPreset("compact") if preset is None else load_detector_preset(preset)
    if detector is not None and preset is not None and detector != chosen.detector:
        raise InputError(f"preset {preset!r} is of a {chosen.detector} detector", cure="leave --detector out")
    if detector is not None and start is not None:
        raise InputError("--start brings a detector of its own kind", cure="leave --detector out")
    detector = detector or chosen.detector
    own = options.given(steps=steps, learning_rate=learning_rate, seed=seed)
    batch = options.given(batch_size=batch_size, negative_ratio=negative_ratio)
    settings = chosen.settings(len(train.readable) + len(train.unreadable), own, batch)
    torch.manual_seed(seed)  # for the layers that begin with random numbers
    network = {**chosen.network, **options.settings_of(setting or [])}
    made = make_detector(detector, loaded, network) if start is None else begin_detector(start, loaded, network)
    if not as_json:
        typer.echo(
            f"training {made.kind} on {len(train.readable)} frames with a state, {len(train.unreadable)} without, "
            f"{len(train.images)} single images; validation {len(val.readable)} and {len(val.unreadable)}"
        )
    from stormpsr.cli.train_progress import StageBar  # after stormpsr.training, which prepares what it imports

    fit = FitOptions(device=device, devices=devices, precision=precision, workers=workers)
    started, busy = time.perf_counter(), time.process_time()

    def minutes_taken() -> dict[str, float]:
        """By the clock, and what a machine that others use as well would have taken alone, on one core."""
        taken = {"minutes": time.perf_counter() - started, "processor_minutes": time.process_time() - busy}
        return {name: round(seconds / 60, 2) for name, seconds in taken.items()}

    with Bar() as bar:
        try:
            metrics = train_detector(
                made,
                train,
                val,
                settings,
                folder=out,
                options=replace(fit, callbacks=(StageBar("detector", "images", bar),)),
                cache_folder=cache,
                on_progress=bar.named,
                note=minutes_taken,
            )
        except KeyboardInterrupt:
            typer.echo("the same command goes on after the last whole epoch", err=True)
            raise
    if metrics is None:
        return  # the first of several processes speaks for all
    assert isinstance(made, TorchDetector)
    minutes = made.metrics["training"]["minutes"]
    right = metrics.get("right")
    calibration = {"temperature": made.calibration.temperature, "bias": made.calibration.bias}
    said = "" if right is None else f", {right:.1%} of readable validation frames right"
    answer(
        as_json,
        {"folder": str(out), "minutes": minutes, "share_right_val": right, "calibration": calibration},
        f"trained in {minutes:.1f} minutes{said}: {out}",
    )


@app.command("eval")
def eval_command(
    detector: Detector,
    data: Data,
    split: options.Split = "test",
    boxes: options.BoxesOption = None,
    every: Annotated[int, typer.Option(min=1, help="Use every Nth frame without a readable state, with weight N.")] = 1,
    min_confidence: MinConfidence = 0.5,
    wrong_parts: Annotated[
        Literal["error_class", "component_classes", "readout"] | None,
        typer.Option(help="How the compact detector reports wrong parts.", show_default="as it was trained"),
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="Folder for plots.")] = None,
    threads: options.Threads = None,
    device: options.DeviceOption = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Evaluate a trained detector.

    Average precision, accuracy of states, wrong parts, false detections in unreadable frames, calibration and speed.

    Example: stormpsr detect eval detectors/vehicle data/vehicle --split test --plots scores/
    """
    options.need("scoring a detector", "detect", *options.PACKAGES["detect"], "faster_coco_eval")
    from stormpsr.data.annotated_frames import read_frames
    from stormpsr.detectors.predict import predict_frames
    from stormpsr.detectors.registry import load_detector
    from stormpsr.evaluation.detection_metrics import draw_evaluation, read_views, score_detections

    options.use_threads(threads)
    detector = _folder_of(detector)
    loaded: Any = load_detector(detector, device=device)
    if wrong_parts is not None:
        if loaded.kind != "compact":
            raise InputError(f"a {loaded.kind} detector has one error class", cure="leave --wrong-parts out")
        loaded.wrong_parts = wrong_parts
    procedure = loaded.procedure
    dataset = options.open_data(data, split, loaded)
    frames = read_frames(data, split, procedure, boxes_folder=boxes)
    chosen = [*frames.readable, *frames.unreadable[::every]]
    with Bar("frames", enabled=not as_json) as bar:
        looks = predict_frames(loaded, chosen, min_confidence=0.0, on_progress=bar.count)
    # frames of either sort keep their weight, or else calibration would be judged on other odds than recordings have
    seen = looks[: len(frames.readable)] + looks[len(frames.readable) :] * every
    views = read_views(dataset.folders, procedure)
    scores = score_detections(seen, procedure, min_confidence=min_confidence, views=views)
    milliseconds = _milliseconds_per_frame(loaded, chosen)
    paths: list[Path] = []
    if plots is not None:
        paths = draw_evaluation(plots, seen, procedure, min_confidence=min_confidence, uncalibrate=loaded.calibration)
    if as_json:
        about = {"detector": str(detector), "split": split, "milliseconds_per_frame": milliseconds}
        print_json({**about, **scores.to_dict(), "images": [str(path) for path in paths]})
        return
    _print_evaluation(f"{detector} on split {split!r}", scores, milliseconds)
    for path in paths:
        typer.echo(str(path))


@app.command("run")
def run_command(
    detector: Detector,
    data: Annotated[str, typer.Argument(help="Folder of recordings with frames, or its address: s3://bucket/data.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for one NAME.csv per recording. Existing files are kept.")
    ],
    split: options.AnySplit = None,
    every: Annotated[int, typer.Option(min=1, help="Use every Nth frame only.")] = 1,
    min_confidence: MinConfidence = 0.1,
    procedure: options.DataProcedureOption = None,
    cluster: options.ClusterOption = None,
    threads: options.Threads = None,
    device: options.DeviceOption = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Detect states in recordings.

    'stormpsr decode' decodes the resulting files into steps.

    Example: stormpsr detect run detectors/vehicle data/vehicle --split test --out detections/test
    """
    options.need("detecting", "detect")
    from stormpsr.detectors.predict import detect_recordings
    from stormpsr.detectors.registry import load_detector
    from stormpsr.files import digest

    options.use_threads(threads)
    detector = _folder_of(detector)
    loaded = load_detector(detector, Procedure.load(procedure) if procedure else None, device=device)
    load = partial(load_detector, detector.resolve(), device=device, threads=options.same_threads(threads))
    dataset = options.open_data(data, split, loaded)
    with Bar("frames", enabled=not as_json) as bar:
        result = detect_recordings(
            loaded,
            dataset,
            out,
            digest=digest(detector, without=["metrics.json"]),
            min_confidence=min_confidence,
            every=every,
            cluster=options.cluster_of(cluster, load, detector),
            on_progress=bar.named if cluster is None else bar.together("recordings", len(dataset)),
        )
    said = f"{len(result.made)} recordings, {len(result.skipped)} were there already: {out}"
    answer(as_json, {"folder": str(out), "made": result.made, "skipped": result.skipped}, said)


@app.command("steps")
def steps_command(
    data: Data,
    val: Annotated[Path, typer.Option(help="Folder of detections of the validation split, for tuning.")],
    test: Annotated[Path, typer.Option(help="Folder of detections of the test split, for scoring.")],
    procedure: options.DataProcedureOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Score the baselines B1, B2 and B3.

    Their thresholds are tuned on the validation split. For comparison: how long a perfect detector would have to wait
    for a clear view after each completed step.

    Example: stormpsr detect steps data/vehicle --val detections/val --test detections/test
    """
    from stormpsr.data.layouts import find_recordings
    from stormpsr.evaluation.baselines import METHODS, clear_view_bound, read_detected, tune_baseline

    loaded = options.procedure_of(data, procedure)
    tuning = read_detected(find_recordings(data, "val"), val, loaded)
    folders = find_recordings(data, "test")
    scoring = read_detected(folders, test, loaded)
    tuned = [tune_baseline(name, method, tuning, loaded) for name, method in METHODS]
    rows: list[dict[str, Any]] = []
    for baseline in tuned:
        group = baseline.score(scoring, loaded).all
        about = {"decoder": f"{baseline.name} ({baseline.method})", "setting": baseline.setting}
        figures = {"pos": group.pos, "f1": group.f1, "delay_seconds": group.delay_seconds}
        rows.append({**about, "val_f1": baseline.tuning_f1, **figures})
    bound = clear_view_bound(folders, loaded)
    if as_json:
        print_json({"rows": rows, "bound": bound and asdict(bound), "n_recordings": len(scoring)})
        return
    table = []
    for row in rows:
        scores = [number(row[key]) for key in ("val_f1", "pos", "f1")]
        table.append([row["decoder"], f"{row['setting']:g}", *scores, number(row["delay_seconds"], 1)])
    columns = ["decoder", "threshold", "F1 on val", "POS", "F1", "tau (s)"]
    print_table(f"Detection only, {len(scoring)} test recordings", columns, table, right=range(1, 6))
    if bound is not None:
        typer.echo(
            f"wait from a completion to the next clear view: mean {number(bound.mean_wait_seconds, 1)} s over "
            f"{bound.n_followed} of {bound.n_labels} completions; no detector of whole states can be faster"
        )


@app.command("adopt")
def adopt_command(
    weights: Annotated[
        Path, typer.Argument(help="A .pt file of ultralytics. Loading it can run code: only use files you trust.")
    ],
    procedure: options.ProcedureOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the detector.")],
    image_size: Annotated[int, typer.Option(help="Image size that it was trained with, in pixels.")] = 640,
    as_json: JsonFlag = False,
) -> None:
    """Import a trained YOLOv8, for example a published one.

    Example: stormpsr detect adopt best.pt --procedure industreal --out detectors/published
    """
    options.need("importing a YOLOv8", "detect")
    from stormpsr.detectors.yolov8 import Yolov8Detector

    made = Yolov8Detector.adopt(weights, Procedure.load(procedure), image_size=image_size)
    made.save(out)
    answer(as_json, {"folder": str(out), "model": made.config.model}, f"{made.config.model}: {out}")


def _folder_of(detector: Path) -> Path:
    """A detector's folder: the one given, or the one in a model, which may be a shipped one."""
    from stormpsr.recognizer.model_folder import DETECTOR_FOLDER, resolve_model, shipped_models

    own = resolve_model(detector) / DETECTOR_FOLDER if str(detector) in shipped_models() else detector / DETECTOR_FOLDER
    return own if own.is_dir() and not (detector / "config.yaml").is_file() else detector


def _milliseconds_per_frame(detector: Any, frames: list[Any], most: int = 30) -> float:
    """Time to detect in one image at a time, without reading it; the median of a few."""
    from statistics import median

    from stormpsr.data.annotated_frames import images_of

    images = list(images_of(frames[:most]))
    detector.detect(images[:1])
    taken = []
    for image in images:
        started = time.perf_counter()
        detector.detect([image])
        taken.append(time.perf_counter() - started)
    return 1000 * median(taken)


def _print_evaluation(title: str, scores: DetectionScores, milliseconds: float) -> None:
    wrong = scores.wrong_parts
    rows = [
        ["mAP@50, readable frames", number(scores.map50)],
        ["mAP@50:95, readable frames", number(scores.map50_95)],
        ["mAP@50, all frames", number(scores.map50_all)],
        ["state right, readable frames", number(scores.state_accuracy)],
        [f"found with confidence {scores.min_confidence:g}, readable frames", number(scores.found)],
        [f"detections with confidence {scores.min_confidence:g}, other frames", number(scores.false_detections)],
        ["expected calibration error, all frames", number(scores.expected_calibration_error)],
        [f"wrong parts reported, of {wrong.n_wrong} frames", number(wrong.recall)],
        ["wrong parts read as correct, frames", str(wrong.n_wrong_read_as_correct)],
        [f"false alarms, of {wrong.n_correct} correct frames", number(wrong.false_alarm_rate)],
        ["milliseconds per frame, one at a time", number(milliseconds, 1)],
    ]
    print_table(
        f"{title}: {scores.n_readable} readable frames, {scores.n_unreadable} others", ["", ""], rows, right=(1,)
    )
    silence = scores.silence
    if silence is not None:
        typer.echo(
            f"obstructed frames: {silence.n_obstructed}, a confident detection in {number(silence.fired_obstructed)}, "
            f"of another state in {number(silence.fired_obstructed_wrong)}; clear frames in states without a class: "
            f"{silence.n_unlisted}, a confident detection in {number(silence.fired_unlisted)}"
        )
    if scores.by_visibility:
        table = [
            [f"{row.low:.2f} to {row.high:.2f}", row.n_frames]
            + [number(share) for share in (row.reported, row.right_of_reported, row.right)]
            for row in scores.by_visibility
        ]
        columns = ["share visible", "frames", "reported", "right of reported", "best guess right"]
        print_table("By how much of the parts shows", columns, table, right=range(1, 5))
    if scores.parts:
        table = [
            [f"{row.low:.2f} to {row.high:.2f}", row.n_absent, row.n_correct, row.n_wrong]
            + [number(share) for share in (row.absent, row.correct, row.wrong, row.correct_as_wrong)]
            + [number(row.wrong_at_1_percent)]
            for row in scores.parts
        ]
        columns = ["share of it that shows", "absent", "correct", "wrong", "absent right", "correct right"]
        columns += ["wrong found", "false alarms", "found at 1 % false alarms"]
        print_table("Single parts", columns, table, right=range(1, 9))
