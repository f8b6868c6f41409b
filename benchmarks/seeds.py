"""The main table over one or several training seeds: means, spread, and what one method changes against another.

    python benchmarks/seeds.py runs/vehicle-0/test runs/vehicle-1/test runs/vehicle-2/test [--first 64] [--out FILE]

RUN folders are what `stormpsr evaluate --out` writes, of models that were trained with different seeds, on the same
recordings. Differences have 95 % intervals: recordings are drawn again and again with replacement, the same for all
methods and seeds, so that what an easy or a hard recording does to all of them does not count. Delays are compared
where both methods have one, without an interval if that is in fewer than five recordings.

Shape legend: K runs, R recordings, 3 scores (POS, F1, delay in seconds), X draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from script import errors_in_one_line, make_parser, print_table
from stormpsr.decoding.methods import title_of
from stormpsr.evaluation.compare import FEWEST_DELAYS, where_both
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.run_folder import Run, read_run
from stormpsr.files import write_json

SCORES = ("POS", "F1", "tau (s)")
FORMATS = (".3f", ".3f", ".1f")
DRAWS = 4000
COMPARED = (("detection", "average"), ("average", "filter"), ("average", "recurrent"), ("detection", "recurrent"))
Floats = NDArray[np.float64]


def scores_of(run: Run, method: str, names: list[str]) -> Floats:
    """POS, F1 and delay of every recording, (R, 3); a recording without a match has no delay."""
    rows = []
    for name in names:
        recording = run.recording(name)
        found = score(recording.labels, recording.events[method], procedure=run.procedure, fps=recording.fps)
        rows.append((found.pos, found.f1, np.nan if found.delay_seconds is None else found.delay_seconds))
    return np.array(rows, dtype=np.float64)


def mean_of_recordings(score_R3: Floats) -> Floats:
    """Over recordings, (..., R, 3) to (..., 3); NaN where none of them has a delay."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nansum(score_R3, axis=-2) / np.isfinite(score_R3).sum(axis=-2))


def difference(base_KR3: Floats, both_KR3: Floats, draw_XR: NDArray[np.int64]) -> Floats:
    """What the second adds to POS and F1 of the first, and by how many per cent it changes the delay: (X, 3).

    Where one of the two has no delay, that of the other does not count.
    """
    base_KR3, both_KR3 = where_both(base_KR3, both_KR3)
    before_X3, after_X3 = (mean_of_recordings(of[:, draw_XR]).mean(axis=0) for of in (base_KR3, both_KR3))
    delay_X = 100 * (after_X3[:, 2] / before_X3[:, 2] - 1)
    return np.stack([*(after_X3 - before_X3).T[:2], delay_X], axis=1)


def text_of(value: float, how: str) -> str:
    return "–" if np.isnan(value) else f"{value:{how}}"


def spread(seed_K3: Floats) -> list[str]:
    """Mean and standard deviation over seeds of each score."""
    moments = zip(seed_K3.mean(axis=0), seed_K3.std(axis=0), FORMATS, strict=True)
    return [f"{text_of(mean, how)} ± {text_of(deviation, how)}" for mean, deviation, how in moments]


def as_json(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def table(title: str, all_scores: dict[str, Floats], rows: NDArray[np.int64]) -> dict[str, Any]:
    """Print one table, and return what is in it."""
    chosen = {method: score_KR3[:, rows] for method, score_KR3 in all_scores.items()}
    seeds = {method: mean_of_recordings(score_KR3) for method, score_KR3 in chosen.items()}
    cells = [[title_of(method), *spread(seed_K3)] for method, seed_K3 in seeds.items()]
    found: dict[str, Any] = {method: as_json(seed_K3.mean(axis=0)) for method, seed_K3 in seeds.items()}
    draw_XR = np.random.default_rng(0).integers(len(rows), size=(DRAWS, len(rows)))
    draw_XR = np.concatenate([np.arange(len(rows))[None], draw_XR])  # the first one as it is
    for base, other in COMPARED:
        if not {base, other} <= chosen.keys():
            continue
        change_X3 = difference(chosen[base], chosen[other], draw_XR)
        known = [column[np.isfinite(column)] for column in change_X3[1:].T]
        ends = [np.percentile(column, [2.5, 97.5]) if len(column) else np.full(2, np.nan) for column in known]
        low, high = np.array(ends).T
        delay_KR = where_both(chosen[base], chosen[other])[0][..., 2]
        n_delays = int(np.isfinite(delay_KR).any(axis=0).sum())
        if n_delays < FEWEST_DELAYS:
            low[2] = high[2] = np.nan
        texts = [
            f"{text_of(now, how)} ({text_of(least, how)} to {text_of(most, how)})"
            for now, least, most, how in zip(change_X3[0], low, high, ("+.3f", "+.3f", "+.0f"), strict=True)
        ]
        cells.append([f"{title_of(other)} against {title_of(base)}", *texts[:2], f"{texts[2]} %"])
        change = {"value": as_json(change_X3[0]), "low": as_json(low), "high": as_json(high)}
        found[f"{other} against {base}"] = {**change, "recordings_with_both_delays": n_delays}
    print()
    print_table((title, *SCORES), cells)
    return found


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--first", type=int, help="also a table of the first so many recordings, and one of the others")
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args(words)
    with errors_in_one_line():
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
    if options.out:
        write_json(options.out, found)


if __name__ == "__main__":
    main()
