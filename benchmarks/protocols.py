"""How much the scoring protocols differ on identical predictions.

    python benchmarks/protocols.py tests/golden

The folder holds `metrics.json.gz`: labels and predictions of many recordings. Prints the mean scores per protocol, and
how far each lies from the definitions (protocol `paper`).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from script import make_parser, print_table
from stormpsr import Scores, StepEvent, score


class Row(NamedTuple):
    """A protocol, with or without the window of each case."""

    name: str
    protocol: str
    with_window: bool = False


COLUMNS = ("protocol", "POS", "F1", "delay, s", "cases whose POS, F1, delay differ from `paper`")
ROWS = (
    Row("paper", "paper"),
    Row("industreal", "industreal"),
    Row("storm", "storm"),
    Row("storm + window", "storm", True),
)


def score_case(case: dict[str, Any], row: Row) -> Scores:
    labels, events = ([StepEvent(step_id, frame) for frame, step_id in case[key]] for key in ("gt", "pred"))
    window = case["window"] if row.with_window else None
    return score(labels, events, fps=case["fps"], protocol=row.protocol, window=window)  # type: ignore[arg-type]


def rows_of(scores_of: dict[str, list[Scores]]) -> Iterator[tuple[str, ...]]:
    """Protocol, mean POS, F1 and delay, and in how many cases each of these differs from the definitions."""
    reference = scores_of["paper"]
    for name, scores in scores_of.items():
        delays = [s.delay_seconds for s in scores if s.delay_seconds is not None]
        means = (f"{fmean(s.pos for s in scores):.3f}", f"{fmean(s.f1 for s in scores):.3f}", f"{fmean(delays):.2f}")
        pairs = list(zip(scores, reference, strict=True))
        differ = [
            sum(abs(a.pos - b.pos) > 1e-6 for a, b in pairs),
            sum(abs(a.f1 - b.f1) > 1e-5 for a, b in pairs),  # the published F1 has 1e-6 in its denominator
            sum(a.delay_frames is None or abs((b.delay_frames or 0) - a.delay_frames) > 1e-6 for a, b in pairs),
        ]
        yield name, *means, "" if name == "paper" else ", ".join(map(str, differ))


def window_lift(plain: list[Scores], windowed: list[Scores]) -> str:
    lifts = [b.pos - a.pos for a, b in zip(plain, windowed, strict=True)]
    raised, lowered = sum(lift > 1e-9 for lift in lifts), sum(lift < -1e-9 for lift in lifts)
    return (
        f"The window lifts mean POS by {fmean(lifts):.3f}: it raises {raised} cases (by up to {max(lifts):.3f}) and "
        f"lowers {lowered}."
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("golden", type=Path, help="folder with metrics.json.gz")
    path = parser.parse_args(words).golden / "metrics.json.gz"
    if not path.is_file():
        parser.error(f"there is no {path}")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        cases = json.load(file)
    scores_of = {row.name: [score_case(case, row) for case in cases] for row in ROWS}
    print(f"{len(cases)} recordings with predictions from {path}\n")
    print_table(COLUMNS, rows_of(scores_of))
    print("\n" + window_lift(scores_of["storm"], scores_of["storm + window"]))


if __name__ == "__main__":
    main()
