"""How fast the whole recogniser is, where its time goes, what strides bring, and whether its memory stays flat.

    python benchmarks/recogniser.py MODEL RECORDING [--seconds 20] [--threads 2] [--out FILE]
    python benchmarks/recogniser.py MODEL RECORDING --frames 100000   # memory over a long shift

Frames are decoded and held in memory first, and shown again and again: reading files is timed apart. Rates are measured
by the wall clock, so nothing else should run. The processor's time per frame is printed beside them, which other work
on the machine changes little.
"""

from __future__ import annotations

import resource
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from script import Stopwatch, errors_in_one_line, make_parser
from stormpsr.data.layouts import RecordingFolder
from stormpsr.data.recording import open_recording
from stormpsr.data.sources import Frame
from stormpsr.decoding.predictions import PredictionTable
from stormpsr.files import write_json
from stormpsr.recognizer.model_folder import RecognizerModel, load_model
from stormpsr.recognizer.networks import FramePredictor
from stormpsr.recognizer.offline import decode_table, predict_recording
from stormpsr.recognizer.recognizer import Recognizer

STRIDES = ((1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (4, 4), (8, 4))  # temporal, detector
STAGES = ("detect", "encode", "predict")  # methods of Networks
HELD = 400  # frames in memory


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


def stages(folder: Path, frames: list[Frame], n: int, threads: int) -> dict[str, float]:
    """Milliseconds per frame of each stage, at the model's strides."""
    model = load_model(folder, threads=threads)
    recognizer, stream = Recognizer.of(model), shown(frames, model.procedure.fps)
    for frame in islice(stream, 20):
        recognizer.update(frame)
    watch = Stopwatch()
    for name in STAGES:
        watch.wrap(model.networks, name, name)
    started = time.perf_counter()
    for frame in islice(stream, n):
        recognizer.update(frame)
    total = time.perf_counter() - started
    rest = total - sum(watch.seconds.values())
    seconds = {name: watch.seconds[name] for name in STAGES} | {"fuse and decode": rest, "all": total}
    return {name: 1000 * spent / n for name, spent in seconds.items()}


def memory(folder: Path, frames: list[Frame], n: int, threads: int) -> list[dict[str, float]]:
    """What Python holds, and the most that the process ever held, as frames go by; all methods at once."""
    model = load_model(folder, threads=threads)
    predictor, decoders = FramePredictor(model.networks), [model.decoder(method) for method in model.methods]
    stream = shown(frames, model.procedure.fps)
    rows: list[dict[str, float]] = []
    started = time.perf_counter()
    tracemalloc.start()
    for done in range(0, n, max(n // 10, 1)):
        for frame in islice(stream, max(n // 10, 1)):
            prediction = predictor.update(frame)
            for decoder in decoders if prediction is not None else ():
                decoder.update(prediction)
        held = tracemalloc.get_traced_memory()[0] / 1e6
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        frame_count = done + max(n // 10, 1)
        rows.append({"frames": frame_count, "python_megabytes": held, "process_megabytes": peak})
        minutes = (time.perf_counter() - started) / 60
        print(
            f"{frame_count:7d} frames: {held:7.2f} MB in Python, {peak:7.1f} MB at most, {minutes:.1f} min", flush=True
        )
    tracemalloc.stop()
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
    parts = stages(folder, frames, max(round(seconds * streaming["frames_per_second"] / 2), 40), threads)
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


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--seconds", type=float, default=20, help="per measurement")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--frames", type=int, default=0, help="measure memory over so many frames, nothing else")
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args(words)
    with errors_in_one_line():
        procedure = load_model(options.model).procedure
        recording = open_recording(RecordingFolder(options.recording.name, None, options.recording), procedure)
        started = time.perf_counter()
        frames = list(islice(recording.frames(), HELD))
    reading = len(frames) / (time.perf_counter() - started)
    result: dict[str, Any] = {"model": str(options.model), "threads": options.threads, "reading_per_second": reading}
    if options.frames:
        result["memory"] = memory(options.model, frames, options.frames, options.threads)
    else:
        result |= speed(options.model, frames, options.seconds, options.threads)
    if options.out:
        write_json(options.out, result)


if __name__ == "__main__":
    main()
