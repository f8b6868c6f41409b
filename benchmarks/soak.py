"""Many hours of frames at full speed: memory, open files, threads, speed over time; the same events in every loop.

    python benchmarks/soak.py recogniser --frames 864000            # 24 hours of 10 frames per second
    python benchmarks/soak.py station --frames 100000               # each loop is a unit: records and images, too
    python benchmarks/soak.py decoders --frames 1000000 --components 0 1 2 50 200    # each method alone
    python benchmarks/soak.py recogniser --frames 2000 --model vehicle --recording RECORDING

0 components: three, of which nothing is expected. Without a model, the untrained networks and a recording of `tiny.py`
are used. It ends with an error if the events of a loop differ, or if memory, open files, threads or the time that a
frame takes go on growing after the first tenth.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import tiny
from script import make_parser, print_table
from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.data.sources import Frame
from stormpsr.decoding.methods import METHODS, resolve_method
from stormpsr.decoding.predictions import N_OUTPUTS, Decoder, Prediction
from stormpsr.procedure.model import Procedure

_SAMPLES = 10
_MOST_GROWTH_MB = 30.0
_MOST_SLOWER = 1.5  # frames of the second half than those of the first, on a machine that others use, too


@dataclass(frozen=True)
class Sample:
    """What the process uses after so many frames."""

    frames: int
    memory_mb: float
    files: int
    threads: int
    cpu_seconds: float
    on_disk_mb: float = 0.0

    @classmethod
    def now(cls, frames: int, folder: Path | None = None) -> Sample:
        """Taken now, and told: a day of frames takes an hour, and may be broken off."""
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder else 0
        sample = cls(
            frames,
            pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
            len(list(Path("/proc/self/fd").iterdir())),
            threading.active_count(),
            time.process_time(),
            used / 2**20,
        )
        print(f"{frames:,} frames: {sample}", file=sys.stderr, flush=True)
        return sample


def problems_of(samples: Sequence[Sample]) -> list[str]:
    """What has grown since the first tenth."""
    first, last = samples[1], samples[-1]
    found = []
    if last.memory_mb - first.memory_mb > _MOST_GROWTH_MB:
        found.append(f"memory grew from {first.memory_mb:.0f} to {last.memory_mb:.0f} MB")
    if last.files > first.files + 2:
        found.append(f"open files grew from {first.files} to {last.files}")
    if last.threads > first.threads + 1:
        found.append(f"threads grew from {first.threads} to {last.threads}")
    middle = samples[(len(samples) + 1) // 2]
    if middle in (first, last) or last.cpu_seconds - middle.cpu_seconds < 1:
        return found  # too short to tell
    halves = [(b.cpu_seconds - a.cpu_seconds) / (b.frames - a.frames) for a, b in ((first, middle), (middle, last))]
    if halves[1] > _MOST_SLOWER * halves[0]:
        found.append(f"frames take longer: {1e6 * halves[0]:.0f} and then {1e6 * halves[1]:.0f} µs")
    return found


def print_samples(samples: Sequence[Sample], on_disk: bool = False) -> None:
    def rows() -> Iterator[tuple[str, ...]]:
        for before, sample in pairwise(samples):
            speed = (sample.frames - before.frames) / max(sample.cpu_seconds - before.cpu_seconds, 1e-9)
            more = (f"{sample.on_disk_mb:.1f}",) if on_disk else ()
            row = (f"{sample.frames:,}", f"{sample.memory_mb:.1f}", str(sample.files), str(sample.threads))
            yield (*row, f"{speed:.0f}", *more)

    head = ("frames", "memory (MB)", "open files", "threads", "frames per processor second")
    print_table((*head, "on disk (MB)") if on_disk else head, rows())


# ---------------------------------------------------------------------- networks and station
def soak_recogniser(model: str | Path, recording: str | Path, n_frames: int) -> tuple[list[Sample], list[str]]:
    from stormpsr.data.sources import open_source
    from stormpsr.recognizer.recognizer import Recognizer

    recognizer = Recognizer.load(model, threads=1, device="cpu")
    source = open_source(recording, recognizer.procedure)
    samples, problems, wanted, done, loops = [Sample.now(0)], [], None, 0, 0
    while done < n_frames:
        loops += 1
        found: list[tuple[int, int, str]] = []
        recognizer.reset()
        for frame in source.frames():  # images are read again, as a camera would bring new ones
            found += [(event.frame, event.step_id, event.kind) for event in recognizer.update(frame)]
            done += 1
        found += [(event.frame, event.step_id, event.kind) for event in recognizer.finish()]
        wanted = found if wanted is None else wanted
        if found != wanted and not problems:
            problems.append(f"other events after {done} frames: {found} instead of {wanted}")
        if done >= len(samples) * n_frames / _SAMPLES:
            samples.append(Sample.now(done))
    print(f"{done:,} frames in {loops:,} loops, {len(wanted or ())} events in each")
    return samples, problems + problems_of(samples)


def soak_station(
    model: str | Path, recording: str | Path, n_frames: int, folder: Path
) -> tuple[list[Sample], list[str]]:
    """Every loop is a unit; the clock is that of the frames, so that hours pass for the station."""
    from stormpsr.data.sources import open_source
    from stormpsr.recognizer.model_folder import load_model
    from stormpsr.recognizer.recognizer import Recognizer
    from stormpsr.station.records import Records, verify
    from stormpsr.station.service import Station, StationSettings

    loaded = load_model(model, device="cpu", threads=1)
    frames = list(open_source(recording, loaded.procedure).frames())
    fps, seconds, wanted, problems = loaded.procedure.fps, 0.0, None, []
    records = Records(folder, loaded.digest(), wall=lambda: 1.7e9 + seconds)
    settings = StationSettings(is_recording=True, clip_seconds=(1.0, 0.5))
    station = Station(
        lambda variant: Recognizer.of(loaded, None, variant),
        records,
        settings,
        wall=lambda: 1.7e9 + seconds,
        clock=lambda: seconds,
    )
    samples, done = [Sample.now(0, folder)], 0
    while done < n_frames:
        for frame in frames:
            seconds = done / fps
            station.see(Frame(frame.image, frame.index, seconds))
            station.snapshot()
            done += 1
        station.lose_camera("ended")
        unit = records.find("kind = 'unit_started'", more="ORDER BY id DESC LIMIT 1")[0].unit
        steps = [
            (r.data["step_id"], r.data.get("frame")) for r in records.find("unit = ? AND kind LIKE 'step%'", (unit,))
        ]
        wanted = steps if wanted is None else wanted
        if steps != wanted and not problems:
            problems.append(f"other steps after {done} frames: {steps} instead of {wanted}")
        if done >= len(samples) * n_frames / _SAMPLES:
            samples.append(Sample.now(done, folder))
    station.close()
    records.close()
    verdict = verify(folder)
    print(f"{verdict.n_records} records, {verdict.n_evidence} images and clips, problems: {verdict.problems}")
    return samples, [*problems, *verdict.problems, *problems_of(samples)]


# ---------------------------------------------------------------------- decoders
def story(procedure: Procedure, n: int = 997, seed: int = 0) -> list[Prediction]:
    """What networks might say of somebody who builds and takes apart again and again; some frames are missing."""
    rng, n_states = np.random.default_rng(seed), len(procedure.states) - 2
    found = []
    for tick in range(n):
        if rng.random() < 0.1:
            continue
        place = 2 * n_states * tick / n
        state = 1 + min(int(place if place < n_states else 2 * n_states - place), n_states - 1)
        state = state if rng.random() < 0.9 else int(rng.integers(0, len(procedure.states)))
        seen = (StateDetection(tick, state, float(rng.uniform(0.3, 1)), (1, 2, 3, 4)),) if rng.random() < 0.8 else ()
        speaks = tick % 4 == 0
        change_C = rng.uniform(0, 1, procedure.n_components).astype(np.float32) ** 3 if speaks else None
        outputs_CF = rng.normal(-1, 1, (procedure.n_components, N_OUTPUTS)).astype(np.float32) if speaks else None
        found.append(Prediction(tick, tick, tick / procedure.fps, seen, change_C, outputs_CF))
    return found


def repeated(predictions: Sequence[Prediction], n_frames: int, length: int = 997) -> Iterator[Prediction]:
    """A story again and again, the clock going on."""
    for loop in range(n_frames // length + 1):
        start = loop * length
        for p in predictions:
            tick = start + p.tick
            if tick >= n_frames:
                return
            seen = tuple(replace(d, frame=tick) for d in p.detections or ())
            yield Prediction(tick, tick, tick / 10, seen, p.change_C, p.outputs_CF)


def make_decoder(method: str, procedure: Procedure, folder: Path, variant: str = "build") -> Decoder:
    """A decoder with its defaults; what must have learned has drawn its weights."""
    entry = resolve_method(method)
    settings: Any = entry.settings()
    if method == "recurrent":
        from stormpsr.decoding.recurrent import PARAMETERS_FILE, SHAPES, save_weights, shape_of

        rng = np.random.default_rng(0)
        shapes = {name: shape_of(name, procedure.n_components) for name in SHAPES}
        save_weights(folder / PARAMETERS_FILE, {name: rng.normal(0, 0.3, shape) for name, shape in shapes.items()})
        settings = replace(settings, fitted=True, folder=folder)
    return entry.decoder_class(procedure, variant, settings)


def soak_decoder(
    method: str, n_components: int, n_frames: int, folder: Path, on_sample: Callable[[], None] = lambda: None
) -> tuple[list[Sample], int]:
    """Samples, and how many events there were. 0 components: three, of which nothing is expected."""
    procedure = tiny.chain("chain", tuple(f"part {k}" for k in range(n_components or 3)))
    if not n_components:
        idle = {"build": replace(procedure.variants["build"], expected=())}
        procedure = replace(procedure, variants=idle)
    decoder = make_decoder(method, procedure, folder)
    samples, n_events = [Sample.now(0)], 0
    events: list[StepEvent]
    for prediction in repeated(story(procedure), n_frames):
        events = decoder.observe(prediction)
        n_events += len(events)
        if prediction.tick >= len(samples) * n_frames / _SAMPLES - 2:
            samples.append(Sample.now(prediction.tick))
            on_sample()
    if not np.isfinite(decoder.share).all():
        raise ValueError(f"{method}: the evidence is not finite")
    return samples, n_events


def soak_decoders(methods: Sequence[str], components: Sequence[int], n_frames: int) -> list[str]:
    rows, problems = [], []
    with tempfile.TemporaryDirectory() as place:
        for n_components in components:
            for method in methods:
                samples, n_events = soak_decoder(method, n_components, n_frames, Path(place))
                steps = [b.cpu_seconds - a.cpu_seconds for a, b in pairwise(samples)]
                microseconds = [1e6 * step / (n_frames / _SAMPLES) for step in steps]
                first, last = samples[1], samples[-1]
                row = (method, str(n_components), f"{n_frames:,}", f"{n_events:,}", f"{microseconds[0]:.0f}")
                rows.append((*row, f"{microseconds[-1]:.0f}", f"{first.memory_mb:.0f}", f"{last.memory_mb:.0f}"))
                print(" | ".join(rows[-1]), flush=True)
                problems += [f"{method}, {n_components} components: {problem}" for problem in problems_of(samples)]
    head = ("method", "components", "frames", "events", "µs per frame, first tenth", "last tenth")
    print_table((*head, "MB after a tenth", "MB at the end"), rows)
    return problems


def main(words: list[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("what", choices=("recogniser", "station", "decoders"))
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--model", help="a model's folder, or a shipped one")
    parser.add_argument("--recording", help="what it sees; needed with --model")
    parser.add_argument("--components", type=int, nargs="+", default=[3])
    parser.add_argument("--method", nargs="+", default=list(METHODS), help="for decoders")
    options: argparse.Namespace = parser.parse_args(words)
    warnings.simplefilter("ignore")
    if bool(options.model) != bool(options.recording):
        parser.error("give --model and --recording together")
    began = time.monotonic()
    if options.what == "decoders":
        problems = soak_decoders(options.method, options.components, options.frames)
    else:
        with tempfile.TemporaryDirectory() as place:
            model, recording = options.model, options.recording
            if model is None:
                tiny.write_recording(Path(place) / "01_build", seed=1)
                model, recording = tiny.write_model(Path(place) / "model"), Path(place) / "01_build"
            if options.what == "recogniser":
                samples, problems = soak_recogniser(model, recording, options.frames)
            else:
                samples, problems = soak_station(model, recording, options.frames, Path(place) / "station")
            print_samples(samples, on_disk=options.what == "station")
    print(f"\n{time.monotonic() - began:.0f} s, {time.process_time():.0f} of them on the processor")
    if problems:
        sys.exit("\n".join(f"FAILED: {problem}" for problem in problems))


if __name__ == "__main__":
    main()
