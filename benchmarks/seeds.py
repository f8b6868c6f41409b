"""The main table over several training seeds: means, spread, and what both streams together change against one alone.

    python benchmarks/seeds.py runs/vehicle-0/test runs/vehicle-1/test runs/vehicle-2/test [--first 40] [--json FILE]

RUN folders are what `stormpsr evaluate --out` writes, of models that were trained with different seeds, on the same
recordings. Differences have 95 % intervals: recordings are drawn again and again with replacement, the same for all
methods and seeds, so that what an easy or a hard recording does to all of them does not count.

Shape legend: K runs, R recordings, 3 scores (POS, F1, delay in seconds), X draws.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.decoding.methods import title_of
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.run_folder import Run, read_run

SCORES = ("POS", "F1", "tau (s)")
DRAWS = 4000


def scores_of(run: Run, method: str, names: list[str]) -> NDArray[np.float64]:
    """POS, F1 and delay of every recording, (R, 3); a recording without a match has no delay."""
    rows = []
    for name in names:
        recording = run.recording(name)
        found = score(recording.labels, recording.events[method], procedure=run.procedure, fps=recording.fps)
        rows.append((found.pos, found.f1, np.nan if found.delay_seconds is None else found.delay_seconds))
    return np.array(rows, dtype=np.float64)


def mean_of(score_KR3: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over recordings, then over seeds, (3,)."""
    return np.asarray(np.nanmean(score_KR3, axis=1).mean(axis=0))


def interval(difference: Callable[[NDArray[np.int64]], NDArray[np.float64]], n: int) -> NDArray[np.float64]:
    """The middle 95 % of a difference over draws of recordings, (2, 3)."""
    rng = np.random.default_rng(0)
    drawn_X3 = np.array([difference(rng.integers(n, size=n)) for _ in range(DRAWS)])
    return np.asarray(np.percentile(drawn_X3, [2.5, 97.5], axis=0))


def table(title: str, all_scores: dict[str, NDArray[np.float64]], rows: NDArray[np.int64]) -> dict[str, object]:
    """Print one table in Markdown."""
    chosen = {method: score_KR3[:, rows] for method, score_KR3 in all_scores.items()}
    print(f"\n| {title} | {' | '.join(SCORES)} |\n|---|--:|--:|--:|")
    for method, score_KR3 in chosen.items():
        seed_K3 = np.nanmean(score_KR3, axis=1)
        cells = [f"{m:.3f} ± {s:.3f}" for m, s in zip(seed_K3.mean(0)[:2], seed_K3.std(0)[:2], strict=True)]
        cells.append(f"{seed_K3[:, 2].mean():.1f} ± {seed_K3[:, 2].std():.1f}")
        print(f"| {title_of(method)} | {' | '.join(cells)} |")
    found: dict[str, object] = {method: mean_of(score_KR3).tolist() for method, score_KR3 in chosen.items()}
    if {"detection", "average"} <= chosen.keys():
        base, both = chosen["detection"], chosen["average"]

        def difference(draw_R: NDArray[np.int64]) -> NDArray[np.float64]:
            before, after = mean_of(base[:, draw_R]), mean_of(both[:, draw_R])
            return np.array([after[0] - before[0], after[1] - before[1], 100 * (after[2] / before[2] - 1)])

        now = difference(np.arange(len(rows)))
        low, high = interval(difference, len(rows))
        units = ("+.3f", "+.3f", "+.0f")
        cells = [f"{now[i]:{u}} ({low[i]:{u}} to {high[i]:{u}})" for i, u in enumerate(units)]
        print(f"| both against detection alone | {cells[0]} | {cells[1]} | {cells[2]} % |")
        found["difference"] = {"value": now.tolist(), "low": low.tolist(), "high": high.tolist()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--first", type=int, help="also a table of the first so many recordings, and one of the others")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    runs = [read_run(folder) for folder in options.runs]
    names = sorted(runs[0].names, key=lambda name: [int(part) if part.isdigit() else 0 for part in name.split("_")])
    if any(set(run.names) != set(names) for run in runs):
        parser.error("the runs are of different recordings")
    methods = [method.name for method in runs[0].info.methods]
    all_scores = {method: np.stack([scores_of(run, method, names) for run in runs]) for method in methods}
    errors_R = np.array([bool(runs[0].recording(name).has_errors) for name in names])
    parts = {
        f"all {len(names)} recordings": np.arange(len(names)),
        f"without errors ({(~errors_R).sum()})": np.flatnonzero(~errors_R),
        f"with errors ({errors_R.sum()})": np.flatnonzero(errors_R),
    }
    if options.first:
        parts[f"the first {options.first}"] = np.arange(len(names))[: options.first]
        parts[f"the other {len(names) - options.first}"] = np.arange(len(names))[options.first :]
    print(f"Protocol paper, {len(runs)} seeds: mean and standard deviation over seeds")
    found = {title: table(title, all_scores, rows) for title, rows in parts.items() if len(rows)}
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
