"""Two sets of predictions of the same recordings: how much better one is, and how sure that is.

The same people are seen by both, so recordings are drawn in pairs (paired bootstrap): what makes a recording hard for
both then cancels out, and the interval of the difference is narrower than those of the two scores. A recording in which
one of the two recognises nothing has no delay there, and no pair.

Shape legend: K bootstrap draws, R recordings, S seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError
from stormpsr.evaluation.summary import GroupSummary, Interval, StepSummary, Summary
from stormpsr.evaluation.wording import number

MetricName = Literal["pos", "f1", "delay_seconds"]
Floats = NDArray[np.float64]
METRICS: Mapping[MetricName, tuple[str, int]] = {  # what it is called in tables, and its digits
    "pos": ("POS", 3),
    "f1": ("F1", 3),
    "delay_seconds": ("tau (s)", 1),
}
FEWEST_DELAYS = 5  # fewer pairs have no interval: drawing them again tells nothing
_LATEX_NAMES = {"pos": r"POS $\uparrow$", "f1": r"$F_1$ $\uparrow$", "delay_seconds": r"$\tau$ [s] $\downarrow$"}


@dataclass(frozen=True, slots=True)
class Difference:
    """A score of two sets where both have one, and the second less the first."""

    metric: MetricName
    first: float | None
    second: float | None
    difference: float | None  # None where no recording has both
    interval: Interval | None  # None of too few delays
    share_better: float | None  # of the draws, those in which the second set is better; draws without difference: half
    n_recordings: int  # in which both have one

    @property
    def is_certain(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.interval is not None and not self.interval.low <= 0 <= self.interval.high


@dataclass(frozen=True, slots=True)
class StepDifference:
    """How a step fares in both sets."""

    step_id: int
    description: str
    n_labels: int
    found: tuple[int, int]
    false: tuple[int, int]
    delay_seconds: tuple[float | None, float | None]


@dataclass(frozen=True)
class Comparison:
    """Two sets of predictions side by side."""

    names: tuple[str, str]
    protocol: str
    n_recordings: int
    level: float  # of the intervals
    metrics: tuple[Difference, ...]
    steps: tuple[StepDifference, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    first: Summary,
    second: Summary,
    names: tuple[str, str] = ("A", "B"),
    *,
    level: float = 0.95,
    n_bootstrap: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare two sets of predictions of the same recordings by the same protocol."""
    if first.protocol != second.protocol:
        raise InputError(f"protocols {first.protocol!r} and {second.protocol!r} cannot be compared")
    scores = [{result.name: result.scores for result in summary.recordings} for summary in (first, second)]
    alone = sorted(scores[0].keys() ^ scores[1].keys())
    if alone:
        cure = "score both on the same recordings, or count what is missing as empty"
        raise InputError(f"recording {alone[0]!r} is in one of the two only", cure=cure)
    recordings = sorted(scores[0])
    draws_KR = np.random.default_rng(seed).integers(len(recordings), size=(n_bootstrap, len(recordings)))
    metrics = []
    for metric in METRICS:
        values = [[getattr(own[name], metric) for name in recordings] for own in scores]
        one_R, two_R = (np.array(own, dtype=np.float64) for own in values)  # None becomes nan
        metrics.append(paired_difference(metric, one_R, two_R, draws_KR, level))
    return Comparison(
        names, first.protocol, len(recordings), level, tuple(metrics), tuple(_steps(first.steps, second.steps))
    )


def where_both(one: Floats, two: Floats) -> tuple[Floats, Floats]:
    """Two arrays of scores of the same recordings, with gaps (`nan`) wherever one of the two has one."""
    missing = np.isnan(one) | np.isnan(two)
    return np.where(missing, np.nan, one), np.where(missing, np.nan, two)


def paired_difference(
    metric: MetricName, one_SR: Floats, two_SR: Floats, draws_KR: NDArray[np.int64], level: float = 0.95
) -> Difference:
    """The difference of two means over recordings, of a single seed or of several; `nan` where there is no value.

    Of a pair with such a gap nothing counts, neither in the means nor in the draws.
    """
    one_R, two_R = (_means(np.atleast_2d(both_SR).T) for both_SR in where_both(one_SR, two_SR))
    n = int(np.isfinite(one_R).sum())
    if not n:
        return Difference(metric, None, None, None, None, None, 0)
    first, second = float(np.nanmean(one_R)), float(np.nanmean(two_R))
    if metric == "delay_seconds" and n < FEWEST_DELAYS:
        return Difference(metric, first, second, second - first, None, None, n)
    drawn_K = _means((two_R - one_R)[draws_KR])
    drawn_K = drawn_K[~np.isnan(drawn_K)]
    low, high = np.quantile(drawn_K, [(1 - level) / 2, (1 + level) / 2])
    better_K = drawn_K < 0 if metric == "delay_seconds" else drawn_K > 0
    share = float(better_K.mean() + 0.5 * (drawn_K == 0).mean())
    return Difference(metric, first, second, second - first, Interval(float(low), float(high)), share, n)


def _means(values_KR: Floats) -> Floats:
    """The mean of each row without its gaps, as a summary has it; nan where there is nothing else."""
    count_K = (~np.isnan(values_KR)).sum(axis=1)
    return np.where(count_K > 0, np.nansum(values_KR, axis=1) / np.maximum(count_K, 1), np.nan)


def _steps(first: Sequence[StepSummary], second: Sequence[StepSummary]) -> list[StepDifference]:
    one, two = ({step.step_id: step for step in steps} for steps in (first, second))
    found = []
    for step_id in sorted({*one, *two}):
        known = one.get(step_id) or two[step_id]
        sides = [own.get(step_id) for own in (one, two)]
        found.append(
            StepDifference(
                step_id,
                known.description,
                max(side.n_labels for side in sides if side),
                _pair(side.true_positives if side else 0 for side in sides),
                _pair(side.false_positives if side else 0 for side in sides),
                _pair(side.delay_seconds if side else None for side in sides),
            )
        )
    return found


def _pair(values: Any) -> Any:
    first, second = values
    return first, second


# ---------------------------------------------------------------------- words
# With n recordings that all speak for the same set, chance alone would do so once in 2^(n-1) times: six make one in 32.
_FEWEST_TO_TELL = 6


def verdict(comparison: Comparison, metric: MetricName = "f1") -> str:
    """Which of the two is better, in a sentence that says no more than the recordings do."""
    found = next(one for one in comparison.metrics if one.metric == metric)
    (first, second), (name, digits) = comparison.names, METRICS[metric]
    if found.difference is None:
        return f"{name} cannot be compared: there is no recording in which both recognise something"
    values = f"{name} {number(found.second, digits)} instead of {number(found.first, digits)}"
    on = f"on {found.n_recordings} recording{'s' if found.n_recordings != 1 else ''}"
    told = f"{values} {on}, difference {difference_cell(found)}"
    if found.n_recordings < _FEWEST_TO_TELL:
        return f"too few recordings to tell which is better ({_FEWEST_TO_TELL} are the least): {told}"
    if not found.is_certain:
        return f"no difference can be told: {told}"
    better = found.difference < 0 if metric == "delay_seconds" else found.difference > 0
    return f"{second if better else first} is better: {told}"


# ---------------------------------------------------------------------- tables
def difference_cell(difference: Difference) -> str:
    """`+0.021 (-0.004 to 0.046)`, or without an interval `+2.1`."""
    digits = METRICS[difference.metric][1]
    if difference.difference is None:
        return number(None)
    if difference.interval is None:
        return f"{difference.difference:+.{digits}f}"
    low, high = (f"{end:.{digits}f}" for end in (difference.interval.low, difference.interval.high))
    return f"{difference.difference:+.{digits}f} ({low} to {high})"


def latex_table(groups: Mapping[str, GroupSummary], comparisons: Sequence[Comparison]) -> str:
    """A table for a paper (booktabs): a row per set, the best in bold, differences from the first below each score."""
    best = {metric: _best(metric, groups.values()) for metric in METRICS}
    lines = [
        r"\begin{tabular}{l c c c}",
        r"\toprule",
        " & ".join(["", *(_LATEX_NAMES[metric] for metric in METRICS)]) + r" \\",
        r"\midrule",
    ]
    differences = {comparison.names[1]: comparison.metrics for comparison in comparisons}
    for name, group in groups.items():
        cells = [latex_number(getattr(group, metric), METRICS[metric][1], best[metric]) for metric in METRICS]
        lines.append(" & ".join([latex_text(name), *cells]) + r" \\")
        if name in differences:
            below = [rf"\footnotesize {_latex_dash(difference_cell(found))}" for found in differences[name]]
            lines.append(" & ".join([r"\quad\footnotesize difference", *below]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def latex_steps_table(comparison: Comparison) -> str:
    """The steps of two sets for a paper (booktabs): how often each was found and reported falsely, and how late."""
    columns = ("found", "false", r"$\tau$ [s]")
    lines = [
        r"\begin{tabular}{r l r *{6}{r}}",
        r"\toprule",
        " & ".join(["", "", "", *(rf"\multicolumn{{2}}{{c}}{{{name}}}" for name in columns)]) + r" \\",
        " & ".join(["id", "step", "labels", *map(latex_text, comparison.names * len(columns))]) + r" \\",
        r"\midrule",
    ]
    for step in comparison.steps:
        counts = [str(count) for count in (step.n_labels, *step.found, *step.false)]
        delays = [latex_number(delay, METRICS["delay_seconds"][1]) for delay in step.delay_seconds]
        lines.append(" & ".join([str(step.step_id), latex_text(step.description), *counts, *delays]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _best(metric: MetricName, groups: Iterable[GroupSummary]) -> float | None:
    known: list[float] = [value for group in groups if (value := getattr(group, metric)) is not None]
    if len(known) < 2:
        return None
    return min(known) if metric == "delay_seconds" else max(known)


def latex_number(value: float | None, digits: int, best: float | None = None) -> str:
    """A number, in bold where it is the best."""
    if value is None:
        return "--"
    return rf"\textbf{{{value:.{digits}f}}}" if value == best else f"{value:.{digits}f}"


def latex_text(text: str) -> str:
    """Text with what LaTeX would take for commands made harmless."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(sign, f"\\{sign}" if sign in "&%$#_{}" else sign) for sign in text)


def _latex_dash(text: str) -> str:
    return text.replace("-", "$-$").replace("+", "$+$").replace("–", "--")
