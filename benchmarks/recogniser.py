"""How fast the whole recogniser is, where its time goes, what strides bring, and whether its memory stays flat.

    python benchmarks/recogniser.py MODEL RECORDING [--seconds 20] [--threads 2] [--json out.json]
    python benchmarks/recogniser.py MODEL RECORDING --frames 100000       memory over a long shift

Frames are decoded and held in memory first, and shown again and again: reading files is timed apart. Rates are measured
by the wall clock, so nothing else should run. The processor's time per frame is printed beside them, which other work
on the machine changes little.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from stormpsr.data.layouts import RecordingFolder
from stormpsr.data.recording import open_recording
from stormpsr.data.sources import Frame
from stormpsr.decoding.predictions import PredictionTable
from stormpsr.recognizer.model_folder import RecognizerModel, load_model
from stormpsr.recognizer.networks import FramePredictor, Networks
from stormpsr.recognizer.offline import decode_table, predict_recording
from stormpsr.recognizer.recognizer import Recognizer

STRIDES = ((1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (4, 4), (8, 4))  # temporal, detector
HELD = 400  # frames in memory


def shown(frames: list[Frame], fps: float) -> Iterator[Frame]:
    """The frames again and again, forwards and backwards, at even times."""
    there_and_back = frames + frames[-2:0:-1]
    index = 0
    while True:
        yield Frame(there_and_back[index % len(there_and_back)].image, index, index / fps)
        index += 1


def rate(work: Callable[[Frame], Any], frames: Iterator[Frame], seconds: float) -> dict[str, float]:
    """Frames per second, and milliseconds of the processor per frame."""
    for frame in islice(frames, 20):
        work(frame)
    n, started, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - started < seconds:
        for frame in islice(frames, 16):
            work(frame)
        n += 16
    taken, used = time.perf_counter() - started, time.process_time() - used
    return {"frames_per_second": n / taken, "processor_milliseconds": 1000 * used / n}


def batched_rate(model: RecognizerModel, frames: list[Frame], seconds: float) -> dict[str, float]:
    decoders = [model.decoder(method) for method in model.methods]
    n, started, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - started < seconds:
        chunk = list(islice(shown(frames, model.procedure.fps), 256))
        table = PredictionTable.of(predict_recording(model.networks, chunk), model.procedure.n_components)
        for decoder in decoders:
            decode_table(decoder, table)
        n += len(chunk)
    taken, used = time.perf_counter() - started, time.process_time() - used
    return {"frames_per_second": n / taken, "processor_milliseconds": 1000 * used / n}


class Stopwatch:
    """Times the calls of the networks' methods."""

    def __init__(self, networks: Networks) -> None:
        self.spent = {"detect": 0.0, "encode": 0.0, "predict": 0.0}
        for name in self.spent:
            setattr(networks, name, self._timed(name, getattr(networks, name)))

    def _timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            started = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                self.spent[name] += time.perf_counter() - started

        return call


def stages(folder: Path, frames: list[Frame], n: int) -> dict[str, float]:
    """Milliseconds per frame of each stage, at the model's strides."""
    model = load_model(folder)
    watch = Stopwatch(model.networks)
    recognizer = Recognizer.of(model)
    stream = shown(frames, model.procedure.fps)
    for frame in islice(stream, 20):
        recognizer.update(frame)
    watch.spent = dict.fromkeys(watch.spent, 0.0)
    started = time.perf_counter()
    for frame in islice(stream, n):
        recognizer.update(frame)
    total = time.perf_counter() - started
    found = {name: 1000 * spent / n for name, spent in watch.spent.items()}
    return {**found, "fuse and decode": 1000 * (total - sum(watch.spent.values())) / n, "all": 1000 * total / n}


def memory(folder: Path, frames: list[Frame], n: int) -> list[dict[str, float]]:
    """What Python holds, and the most that the process ever held, as frames go by; all methods at once."""
    model = load_model(folder)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--seconds", type=float, default=20, help="per measurement")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--frames", type=int, default=0, help="measure memory over so many frames, nothing else")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model = load_model(given.model)
    recording = open_recording(RecordingFolder(given.recording.name, None, given.recording), model.procedure)
    started = time.perf_counter()
    frames = list(islice(recording.frames(), HELD))
    reading = len(frames) / (time.perf_counter() - started)
    result: dict[str, Any] = {"model": str(given.model), "threads": given.threads, "reading_per_second": reading}
    if given.frames:
        result["memory"] = memory(given.model, frames, given.frames)
    else:
        result.update(speed(given.model, frames, given.seconds))
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n")


def speed(folder: Path, frames: list[Frame], seconds: float) -> dict[str, Any]:
    model = load_model(folder)
    fps = model.procedure.fps
    streaming = rate(Recognizer.of(model).update, shown(frames, fps), seconds)
    batched = batched_rate(model, frames, seconds)
    for name, row in (("streaming", streaming), ("batched", batched)):
        used = row["processor_milliseconds"]
        print(
            f"{name:10s} {row['frames_per_second']:7.1f} frames/s, {used:6.2f} ms of the processor per frame",
            flush=True,
        )
    parts = stages(folder, frames, max(round(seconds * streaming["frames_per_second"] / 2), 40))
    for name, milliseconds in parts.items():
        print(f"  {name:16s} {milliseconds:6.2f} ms per frame", flush=True)
    table = []
    print("strides (temporal, detector):")
    for temporal, detector in STRIDES:
        other = load_model(folder, temporal_stride=temporal, detector_stride=detector)
        row = rate(Recognizer.of(other).update, shown(frames, fps), seconds / 4)
        table.append({"temporal_stride": temporal, "detector_stride": detector, **row})
        used = row["processor_milliseconds"]
        print(f"  {temporal}, {detector}: {row['frames_per_second']:7.1f} frames/s, {used:6.2f} ms", flush=True)
    return {"streaming": streaming, "batched": batched, "stages": parts, "strides": table}


if __name__ == "__main__":
    main()
