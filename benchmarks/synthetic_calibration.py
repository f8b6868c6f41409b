"""Do generated recordings look like real ones in numbers, and what does the occlusion dial do?

Simulates recordings and measures what can be seen in every frame, without writing images: the same figures as
`stormpsr synth generate` followed by `stormpsr synth stats`, faster.

    python benchmarks/synthetic_calibration.py vehicle industreal --recordings 10
    python benchmarks/synthetic_calibration.py gearbox meccano --recordings 4
    python benchmarks/synthetic_calibration.py vehicle quick --recordings 6 --occlusion 0 0.25 0.5 0.75 1
    python benchmarks/synthetic_calibration.py vehicle industreal --recordings 60 --labels plans

`--labels DIR` measures nothing: it writes the labels of what people would do, for `stormpsr labels stats DIR`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from script import errors_in_one_line, make_parser
from stormpsr.data.labels import STATES_FILE, StateTimeline, write_states
from stormpsr.data.layouts import RECORDING_FILE
from stormpsr.errors import InputError
from stormpsr.files import write_json
from stormpsr.synthetic.choreography import simulate
from stormpsr.synthetic.overview import REAL, RecordingMetrics, compare, metrics, summarise_set
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import PROFILES, profile_named
from stormpsr.synthetic.recording import look_of, measure
from stormpsr.synthetic.stage import Timeline

Job = tuple[str, str, int, int, float, int]  # product, profile, seed, size, occlusion, every so many frames


def one(job: Job) -> RecordingMetrics:
    """Simulate and measure one recording."""
    import cv2

    cv2.setNumThreads(1)
    name, profile_name, seed, size, occlusion, every = job
    product, profile = Product.load(name), profile_named(profile_name)
    variants = list(product.procedure.variants.values())
    variant = variants[seed % len(variants)]
    _, timeline, traits = simulate(product, variant, profile, seed=seed, occlusion=occlusion)
    timeline = thinned(timeline, every)
    seen, _ = measure(product, timeline, look_of(product, timeline, traits, seed), size)
    return metrics(product.procedure, StateTimeline.from_dense(timeline.states_FC()), seen, timeline.fps)


def write_labels(folder: Path, name: str, profile: str, seeds: Sequence[int]) -> None:
    """The labels of simulated recordings, which nobody draws."""
    product = Product.load(name)
    variants = list(product.procedure.variants.values())
    for seed in seeds:
        variant = variants[seed % len(variants)]
        _, timeline, _ = simulate(product, variant, profile_named(profile), seed=seed)
        own = folder / f"{seed:03d}_{variant.name}"
        own.mkdir(parents=True)
        write_states(own / STATES_FILE, StateTimeline.from_dense(timeline.states_FC()), product.procedure)
        write_json(own / RECORDING_FILE, {"fps": timeline.fps, "n_frames": timeline.n_frames})
    product.procedure.save(folder / "procedure.yaml")


def thinned(timeline: Timeline, every: int) -> Timeline:
    """Every so many frames of a timeline, at as many frames per second less."""
    kept = {
        entry.name: getattr(timeline, entry.name)[::every]
        for entry in fields(timeline)
        if entry.name not in ("fps", "activity_names")
    }
    return replace(timeline, fps=timeline.fps / every, **kept)


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("product")
    parser.add_argument("profile", choices=PROFILES)
    parser.add_argument("--recordings", type=int, default=6)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--occlusion", type=float, nargs="+", default=[0.5])
    parser.add_argument("--every", type=int, default=1, help="measure every so many frames only")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--labels", type=Path, metavar="DIR", help="write labels into this new folder, measure nothing")
    arguments = parser.parse_args(words)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.recordings)
    with errors_in_one_line():
        Product.load(arguments.product)
        if arguments.labels and arguments.labels.exists():
            raise InputError("the output is there already", path=arguments.labels, cure="choose a new folder")
    if arguments.labels:
        write_labels(arguments.labels, arguments.product, arguments.profile, seeds)
        return
    real = REAL.get("industreal" if arguments.profile == "quick" else arguments.profile)
    for occlusion in arguments.occlusion:
        start = time.time()
        jobs: list[Job] = [
            (arguments.product, arguments.profile, s, arguments.size, occlusion, arguments.every) for s in seeds
        ]
        with get_context("spawn").Pool(arguments.workers, maxtasksperchild=1) as pool:
            statistics = summarise_set(pool.map(one, jobs, chunksize=1))
        if arguments.json:
            print(json.dumps({"occlusion": occlusion, **asdict(statistics)}))
            continue
        print(f"{arguments.product} {arguments.profile}, occlusion {occlusion}, {time.time() - start:.0f} s")
        for row in compare(statistics, real):
            shown = (row.measured, row.real, row.ratio)
            figures_text = "  ".join("       –" if x is None else f"{x:8.3f}" for x in shown)
            print(f"  {row.name:46s} {figures_text}{'' if row.within is not False or not row.calibrated else '  *'}")
        for name in ("view_lengths", "view_gaps", "waits", "completion_gaps", "visible_shares"):
            deciles = getattr(statistics, name)
            if deciles:
                print(f"  {name:18s}" + "".join(f"{x:8.2f}" for x in deciles.values))


if __name__ == "__main__":
    main()
