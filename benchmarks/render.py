"""How fast synthetic recordings are drawn, and where the time goes.

    python benchmarks/render.py                 # all sizes, 1 and 2 workers, three repeats, medians
    python benchmarks/render.py --sizes 128 --repeats 1 --frames 200

Every worker is a process of its own, as in the generator, and draws the same number of frames, spread over a whole
simulated recording; a run's time is that of its slowest worker, without starting up. Frames are drawn, measured and
encoded as JPEG, but not written. On a machine that has other work, a run in which the workers got less than
`--least-share` of a processor each says nothing about the program and is repeated, `--tries` times at most. The output
is Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from script import Stopwatch, make_parser, print_table

COLUMNS = (
    *("size", "workers", "frames/s", "range", "processor share", "processor time a frame"),
    *("peak memory a worker", "JPEG per 1,000 frames", "start"),
)
STAGES = (
    ("place", "set matrices"),
    ("colour pass", "draw colours and ids"),
    ("read back", "read the pixels back"),
    ("second pass", "draw the assembly alone, where something may be in front of it"),
    ("lens", "bend and shrink"),
    ("backdrop", "table, room and shadows"),
    ("sensor", "blur, exposure, noise"),
    ("measure", "visibility, box"),
    ("encode", "JPEG"),
)


def watch(renderer: Any) -> Stopwatch:
    """Time the stages of a renderer's frames, by the processor's clock."""
    stopwatch = Stopwatch(time.process_time)
    stopwatch.wrap(renderer, "_place", "place")
    stopwatch.wrap(renderer._scene, "draw", "colour pass")
    stopwatch.wrap(renderer._scene, "draw_alone", "second pass")
    stopwatch.wrap(renderer._scene, "_read_pixels", "read back")
    for method in ("bend", "shrink"):
        stopwatch.wrap(renderer._lens, method, "lens")
    stopwatch.wrap(renderer._backdrop, "image", "backdrop")
    stopwatch.wrap(renderer._shadows, "cast", "backdrop")
    stopwatch.wrap(renderer._sensor, "expose", "sensor")
    for method in ("_measure", "_project"):
        stopwatch.wrap(renderer, method, "measure")
    stopwatch.wrap(renderer, "encode", "encode")
    return stopwatch


def work(product_name: str, size: int, frames: int, seed: int, split: bool) -> dict[str, Any]:
    """What one worker does."""
    import numpy as np

    from stormpsr.synthetic.choreography import simulate
    from stormpsr.synthetic.look import Look
    from stormpsr.synthetic.product import Product
    from stormpsr.synthetic.profiles import profile_named
    from stormpsr.synthetic.render import Renderer

    start = time.perf_counter()
    product = Product.load(product_name)
    _, timeline, _ = simulate(product, product.procedure.variant(), profile_named("quick"), seed=seed)
    indices = np.linspace(0, timeline.n_frames - 1, frames).astype(int)
    with Renderer(product, Look.draw(product, seed), size) as renderer:
        for index in indices[:: max(frames // 20, 1)]:
            renderer.render(timeline, int(index))  # builds shaders and hands
        stopwatch = watch(renderer) if split else Stopwatch()
        begin, begin_processor = time.perf_counter(), time.process_time()
        n_bytes = sum(len(renderer.encode(renderer.render(timeline, int(index)))) for index in indices)
        end, end_processor = time.perf_counter(), time.process_time()
    return {
        "start_seconds": begin - start,
        "seconds": end - begin,
        "processor_seconds": end_processor - begin_processor,
        "bytes": n_bytes,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "stages": {name: [stopwatch.seconds[name], stopwatch.calls[name]] for name, _ in STAGES},
    }


def run(product: str, size: int, frames: int, workers: int, split: bool = False) -> list[dict[str, Any]]:
    """Start the workers at the same time and wait for all of them."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--product", product, "--sizes", str(size), "--frames", str(frames)]
    processes = [
        subprocess.Popen(
            [*command, "--worker", str(seed), *(["--split"] if split else [])],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for seed in range(1, workers + 1)
    ]
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit("a worker failed")
    return [json.loads(output) for output in outputs]


def processor_share(results: list[dict[str, Any]]) -> float:
    """How much of a processor the worst-off worker had."""
    return min(r["processor_seconds"] / r["seconds"] for r in results)


def undisturbed_run(product: str, size: int, frames: int, workers: int, least_share: float, tries: int) -> Any:
    """The first run in which every worker had its processor, or else the least disturbed one."""
    best: list[dict[str, Any]] | None = None
    for _ in range(tries):
        results = run(product, size, frames, workers)
        if best is None or processor_share(results) > processor_share(best):
            best = results
        if processor_share(best) >= least_share:
            break
    return best


def count_of(size: int, frames: int) -> int:
    """Fewer frames of large images."""
    return frames if size <= 128 else max(frames * 128 // size, 60)


def speed_rows(
    product: str, sizes: list[int], frames: int, repeats: int, least_share: float, tries: int
) -> Iterator[tuple[str, ...]]:
    for size in sizes:
        count = count_of(size, frames)
        for workers in (1, 2):
            runs = [undisturbed_run(product, size, count, workers, least_share, tries) for _ in range(repeats)]
            speeds = [workers * count / max(r["seconds"] for r in results) for results in runs]
            last = runs[-1]
            spread = f"{min(speeds):.0f} to {max(speeds):.0f}"
            cost = statistics.median(r["processor_seconds"] / count for results in runs for r in results)
            share = statistics.median(processor_share(results) for results in runs)
            memory = max(r["peak_megabytes"] for r in last)
            weight = sum(r["bytes"] for r in last) / (workers * count) * 1000 / 1e6
            start = statistics.median(r["start_seconds"] for results in runs for r in results)
            speed = (str(size), str(workers), f"{statistics.median(speeds):.0f}", spread, f"{share:.0%}")
            yield *speed, f"{cost * 1e3:.1f} ms", f"{memory:.0f} MB", f"{weight:.1f} MB", f"{start:.1f} s"


def print_stages(product: str, sizes: list[int], frames: int) -> None:
    """Where the time goes, by one worker for each size."""
    counts = [count_of(size, frames) for size in sizes]
    splits = [run(product, size, count, 1, split=True)[0] for size, count in zip(sizes, counts, strict=True)]
    seconds = {f"{name}: {what}": [split["stages"][name][0] for split in splits] for name, what in STAGES}
    known = [sum(spent for spent, _ in split["stages"].values()) for split in splits]
    rest = [split["processor_seconds"] - spent for split, spent in zip(splits, known, strict=True)]
    rows = {**seconds, "everything else": rest}
    print("\nMilliseconds of processor time per frame, one worker:\n")
    cells = {name: [f"{s / n * 1e3:.2f}" for s, n in zip(row, counts, strict=True)] for name, row in rows.items()}
    print_table(("stage", *map(str, sizes)), ((name, *row) for name, row in cells.items()))
    shares = [split["stages"]["second pass"][1] / n for split, n in zip(splits, counts, strict=True)]
    print("\nFrames that need the second pass: " + ", ".join(f"{share:.0%}" for share in shares))


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--product", default="vehicle")
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 224, 640])
    parser.add_argument("--frames", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--least-share", type=float, default=0.9)
    parser.add_argument("--tries", type=int, default=1)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--split", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    product, sizes, frames = options.product, options.sizes, options.frames
    if options.worker is not None:
        print(json.dumps(work(product, sizes[0], frames, options.worker, options.split)))
        return
    print(f"Product `{product}`, medians of {options.repeats}:\n")
    print_table(COLUMNS, speed_rows(product, sizes, frames, options.repeats, options.least_share, options.tries))
    print_stages(product, sizes, frames)


if __name__ == "__main__":
    main()
