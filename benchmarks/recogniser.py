"""How fast the whole recogniser is, where its time goes, what strides bring, and whether cost and memory stay flat.

    python benchmarks/recogniser.py MODEL RECORDING [--seconds 20] [--threads 2] [--out FILE]
    python benchmarks/recogniser.py MODEL RECORDING --frames 100000   # cost and memory over a long shift
    python benchmarks/recogniser.py MODEL RECORDING --starts 5        # from the start of a program to the first event
    python benchmarks/recogniser.py MODEL RECORDING --components 10 50 200

The last one makes networks anew by the model's settings, but for so many components, with random weights.

Frames are decoded and held in memory first, and shown again and again: reading files is timed apart. Rates are measured
by the wall clock, so nothing else should run. The processor's time per frame is printed beside them, which other work
on the machine changes little.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import tiny
from script import Stopwatch, errors_in_one_line, make_parser, print_table
from stormpsr.data.layouts import RecordingFolder
from stormpsr.data.recording import open_recording
from stormpsr.data.sources import Frame
from stormpsr.decoding.predictions import PredictionTable
from stormpsr.files import write_json
from stormpsr.procedure.model import Procedure
from stormpsr.recognizer.model_folder import RecognizerModel, load_model, pack_model, resolve_model
from stormpsr.recognizer.networks import FramePredictor
from stormpsr.recognizer.offline import decode_table, predict_recording
from stormpsr.recognizer.recognizer import Recognizer

STRIDES = ((1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (4, 4), (8, 4))  # temporal, detector
STAGES = ("detect", "encode", "predict")  # methods of Networks
HELD = 400  # frames in memory
ROUNDS = 5
# a program of its own: seconds of the clock and of the processor since its start, after each stage
START = """
import json, sys, time
began = float(sys.argv[1])
def now():
    return time.time() - began, time.process_time()
found = {"python": now()}
from stormpsr import Recognizer
found["import"] = now()
recognizer = Recognizer.load(sys.argv[2], device="cpu", threads=int(sys.argv[4]))
found["load"] = now()
for result in recognizer.stream(sys.argv[3]):
    found.setdefault("first frame", now())
    if result.events:
        found["first event"] = now()
        found["frame"] = result.index
        break
print(json.dumps(found))
"""


def shown(frames: list[Frame], fps: float) -> Iterator[Frame]:
    """The frames again and again, forwards and backwards, at even times."""
    there_and_back = frames + frames[-2:0:-1]
    index = 0
    while True:
        yield Frame(there_and_back[index % len(there_and_back)].image, index, index / fps)
        index += 1


def rate(work: Callable[[], int], seconds: float) -> dict[str, float]:
    """Frames per second, and milliseconds of the processor per frame; `work` says how many frames it took."""
    work()
    n, started, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - started < seconds:
        n += work()
    taken, used = time.perf_counter() - started, time.process_time() - used
    return {"frames_per_second": n / taken, "processor_milliseconds": 1000 * used / n}


def streaming_rate(model: RecognizerModel, frames: list[Frame], seconds: float) -> dict[str, float]:
    recognizer, stream = Recognizer.of(model), shown(frames, model.procedure.fps)

    def work() -> int:
        for frame in islice(stream, 16):
            recognizer.update(frame)
        return 16

    return rate(work, seconds)


def batched_rate(model: RecognizerModel, frames: list[Frame], seconds: float) -> dict[str, float]:
    decoders = [model.decoder(method) for method in model.methods]
    chunk = list(islice(shown(frames, model.procedure.fps), 256))

    def work() -> int:
        table = PredictionTable.of(predict_recording(model.networks, chunk), model.procedure.n_components)
        for decoder in decoders:
            decode_table(decoder, table)
        return len(chunk)

    return rate(work, seconds)


def stages(
    model: RecognizerModel, frames: list[Frame], n: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Milliseconds per frame of each stage, at the model's strides."""
    recognizer, stream = Recognizer.of(model), shown(frames, model.procedure.fps)
    for frame in islice(stream, 20):
        recognizer.update(frame)
    watch, kept = Stopwatch(clock), {name: getattr(model.networks, name) for name in STAGES}
    for name in STAGES:
        watch.wrap(model.networks, name, name)
    started = clock()
    for frame in islice(stream, n):
        recognizer.update(frame)
    total = clock() - started
    for name, method in kept.items():
        setattr(model.networks, name, method)
    rest = total - sum(watch.seconds.values())
    seconds = {name: watch.seconds[name] for name in STAGES} | {"fuse and decode": rest, "all": total}
    return {name: 1000 * spent / n for name, spent in seconds.items()}


def long_shift(folder: Path, frames: list[Frame], n: int, threads: int) -> list[dict[str, float]]:
    """What a frame costs, and what the process holds, as one recording goes on; all methods at once."""
    model = load_model(folder, threads=threads)
    predictor, decoders = FramePredictor(model.networks), [model.decoder(method) for method in model.methods]
    stream, tenth = shown(frames, model.procedure.fps), max(n // 10, 1)
    rows: list[dict[str, float]] = []
    for done in range(tenth, n + 1, tenth):
        used = time.process_time()
        for frame in islice(stream, tenth):
            prediction = predictor.update(frame)
            for decoder in decoders if prediction is not None else ():
                decoder.update(prediction)
        milliseconds = 1000 * (time.process_time() - used) / tenth
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        held = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        rows.append({"frames": done, "processor_milliseconds": milliseconds, "megabytes": held, "at_most": peak})
        print(
            f"{done:7d} frames: {milliseconds:6.2f} ms of the processor per frame, {held:7.1f} MB, {peak:7.1f} at most",
            flush=True,
        )
    return rows


def starts(model: str, recording: Path, n: int, threads: int) -> list[dict[str, Any]]:
    """Programs that start, one after the other, until their first event."""
    found = []
    for _ in range(n):
        command = [sys.executable, "-c", START, repr(time.time()), model, str(recording), str(threads)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        found.append(json.loads(done.stdout))
    stages = [name for name in found[0] if name != "frame"]
    middle = {name: [statistics.median(own[name][k] for own in found) for k in (0, 1)] for name in stages}
    print_table(
        [f"after the start (median of {n})", "clock (s)", "processor (s)"],
        [[name, *(f"{seconds:.2f}" for seconds in own)] for name, own in middle.items()],
    )
    print(f"the first event is in frame {found[0].get('frame')}")
    return found


def of_components(folder: Path, frames: list[Frame], counts: Sequence[int], threads: int) -> list[dict[str, Any]]:
    """Milliseconds of the processor per frame and stage, at the model's strides, for procedures of so many parts."""
    from stormpsr.config import load_config
    from stormpsr.detectors.base import read_config
    from stormpsr.detectors.registry import make_detector
    from stormpsr.models.checkpoint import save_checkpoint
    from stormpsr.models.stream import build_stream

    settings = load_model(folder, device="cpu").settings
    config = load_config(folder / "stream" / "config.yaml", ["encoder.weights=none"])
    detector = read_config(folder / "detector")[0]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        models = []
        for n in counts:
            place, procedure = Path(name) / str(n), tiny.chain("chain", tuple(f"part {k}" for k in range(n)))
            tensors = build_stream(config, n).state_dict()
            save_checkpoint(place / "stream", tensors=tensors, config=config, procedure=procedure, metrics={})
            make_detector(detector.kind, procedure, {**detector.settings, "weights": "none"}).save(place / "detector")
            parts = {"stream": place / "stream", "detector": place / "detector"}
            strides = {"temporal_stride": settings.temporal_stride, "detector_stride": settings.detector_stride}
            models.append(load_model(pack_model(place / "model", **parts, **strides), device="cpu", threads=threads))
        found: list[list[dict[str, float]]] = [[] for _ in models]
        for _ in range(ROUNDS):
            for model, own in zip(models, found, strict=True):
                own.append(stages(model, frames, 80, time.process_time))
    for n, own in zip(counts, found, strict=True):
        rows.append({"components": n, **{part: statistics.median(row[part] for row in own) for part in own[0]}})
    print_table(
        ["components", *(f"{part} (ms)" for part in found[0][0])],
        [[str(row["components"]), *(f"{row[part]:.2f}" for part in found[0][0])] for row in rows],
    )
    return rows


def speed(folder: Path, frames: list[Frame], seconds: float, threads: int) -> dict[str, Any]:
    model = load_model(folder, threads=threads)
    streaming = streaming_rate(model, frames, seconds)
    batched = batched_rate(model, frames, seconds)
    for name, row in (("streaming", streaming), ("batched", batched)):
        used = row["processor_milliseconds"]
        print(
            f"{name:10s} {row['frames_per_second']:7.1f} frames/s, {used:6.2f} ms of the processor per frame",
            flush=True,
        )
    parts = stages(model, frames, max(round(seconds * streaming["frames_per_second"] / 2), 40))
    for name, milliseconds in parts.items():
        print(f"  {name:16s} {milliseconds:6.2f} ms per frame", flush=True)
    table = []
    print("strides (temporal, detector):")
    for temporal, detector in STRIDES:
        other = load_model(folder, temporal_stride=temporal, detector_stride=detector, threads=threads)
        row = streaming_rate(other, frames, seconds / 4)
        table.append({"temporal_stride": temporal, "detector_stride": detector, **row})
        used = row["processor_milliseconds"]
        print(f"  {temporal}, {detector}: {row['frames_per_second']:7.1f} frames/s, {used:6.2f} ms", flush=True)
    return {"streaming": streaming, "batched": batched, "stages": parts, "strides": table}


def measured(folder: Path, options: Any) -> dict[str, Any]:
    """What was asked for, on frames that are read first."""
    procedure = Procedure.load(folder / "procedure.yaml")
    recording = open_recording(RecordingFolder(options.recording.name, None, options.recording), procedure)
    started = time.perf_counter()
    frames = list(islice(recording.frames(), HELD))
    result: dict[str, Any] = {"reading_per_second": len(frames) / (time.perf_counter() - started)}
    if options.frames:
        return {**result, "long_shift": long_shift(folder, frames, options.frames, options.threads)}
    if options.components:
        return {**result, "components": of_components(folder, frames, options.components, options.threads)}
    return {**result, **speed(folder, frames, options.seconds, options.threads)}


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("recording", type=Path)
    parser.add_argument("--seconds", type=float, default=20, help="per measurement")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--frames", type=int, default=0, help="of one long recording: cost and memory, nothing else")
    parser.add_argument("--starts", type=int, default=0, help="start so many programs, nothing else")
    parser.add_argument("--components", type=int, nargs="+", help="cost of so many components, nothing else")
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args(words)
    result: dict[str, Any] = {"model": options.model, "threads": options.threads}
    with errors_in_one_line():
        folder = resolve_model(options.model)
        if options.starts:
            result["starts"] = starts(options.model, options.recording, options.starts, options.threads)
        else:
            result |= measured(folder, options)
    if options.out:
        write_json(options.out, result)


if __name__ == "__main__":
    main()
