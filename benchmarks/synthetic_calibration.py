"""Do generated recordings look like real ones in numbers, and what does the occlusion dial do?

Simulates recordings and measures what can be seen in every frame, without writing images: the same figures as
`stormpsr synth generate` followed by `stormpsr synth stats`, faster.

    python benchmarks/synthetic_calibration.py vehicle industreal --recordings 10
    python benchmarks/synthetic_calibration.py gearbox meccano --recordings 4
    python benchmarks/synthetic_calibration.py vehicle quick --recordings 6 --occlusion 0 0.25 0.5 0.75 1
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from multiprocessing import get_context

os.environ.setdefault("OMP_NUM_THREADS", "1")

from script import errors_in_one_line, make_parser
from stormpsr.data.labels import StateTimeline
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
    arguments = parser.parse_args(words)
    with errors_in_one_line():
        Product.load(arguments.product)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.recordings)
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
