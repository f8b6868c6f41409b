"""Scores over many recordings: means as published, pooled counts, confidence intervals, per-step table, delay curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StepEvent
from stormpsr.data.labels import StateTimeline
from stormpsr.errors import InputError, need_packages
from stormpsr.evaluation.alarms import Alarms, put_together
from stormpsr.evaluation.metrics import Protocol, Scores, f1_score, score
from stormpsr.procedure.model import Procedure, StepKind

CURVE_SECONDS = (0.0, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0)


@dataclass(frozen=True)
class RecordingResult:
    """One recording: what is true, what was predicted, and the scores."""

    name: str
    scores: Scores
    has_errors: bool | None = None  # whether the person made execution errors; None if nobody knows
    alarms: Alarms | None = None  # None where nobody knows of wrong parts, or no alarms were asked for

    @property
    def labels(self) -> tuple[StepEvent, ...]:
        return self.scores.labels

    @property
    def events(self) -> tuple[StepEvent, ...]:
        return self.scores.events

    @property
    def fps(self) -> float:
        if self.scores.fps is None:
            raise InputError("these scores do not say what was scored", cure="take them from 'score'")
        return self.scores.fps

    @cached_property
    def by_definition(self) -> Scores:
        """The scores of the paper's protocol, whose matching serves the per-step table and the curve."""
        return self.scores if self.scores.protocol == "paper" else score(self.labels, self.events, fps=self.fps)


@dataclass(frozen=True, slots=True)
class Interval:
    """A bootstrap confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class GroupSummary:
    """The scores of a group of recordings."""

    n_recordings: int
    pos: float  # mean over recordings, as published
    f1: float
    delay_seconds: float | None  # mean over the recordings in which something was matched
    n_without_match: int  # recordings that the mean delay leaves out
    pos_interval: Interval
    f1_interval: Interval
    delay_interval: Interval | None
    true_positives: int  # pooled counts
    false_positives: int
    false_negatives: int
    pooled_f1: float  # from the pooled counts
    pooled_delay_seconds: float | None  # over all true positives


@dataclass(frozen=True, slots=True)
class StepSummary:
    """How one step fares over all recordings, by the paper's matching."""

    step_id: int
    description: str
    n_labels: int
    true_positives: int
    false_positives: int
    missed: int  # labels without an event at or after them
    delay_seconds: float | None


@dataclass(frozen=True)
class Summary:
    """Everything there is to report about a set of predictions."""

    protocol: Protocol
    recordings: tuple[RecordingResult, ...]
    all: GroupSummary
    without_errors: GroupSummary | None  # None where there is no such recording
    with_errors: GroupSummary | None
    steps: tuple[StepSummary, ...]
    alarms: Alarms | None = None  # of all recordings, where they have any

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, ready for JSON."""
        groups = {"all": self.all, "without_errors": self.without_errors, "with_errors": self.with_errors}
        shares = recognised_within(self.recordings, CURVE_SECONDS)
        return {
            "protocol": self.protocol,
            **{name: None if group is None else asdict(group) for name, group in groups.items()},
            "recordings": [{"name": r.name, "has_errors": r.has_errors, **r.scores.to_dict()} for r in self.recordings],
            "steps": [asdict(step) for step in self.steps],
            "alarms": None if self.alarms is None else self.alarms.to_dict(),
            "recognised_within_seconds": [
                {"seconds": seconds, "share": share} for seconds, share in zip(CURVE_SECONDS, shares, strict=True)
            ],
        }

    def to_dataframe(self) -> Any:
        """A pandas table with a row per recording."""
        need_packages("a table of scores", "pandas", "pandas")
        from pandas import DataFrame

        rows = self.to_dict()["recordings"]
        return DataFrame([{name: value for name, value in row.items() if name != "matches"} for row in rows])


def summarise(
    recordings: Sequence[RecordingResult | Scores],
    procedure: Procedure | None = None,
    *,
    level: float = 0.95,
    n_bootstrap: int = 2000,
    seed: int = 0,
) -> Summary:
    """Put recordings together, as results or as what `score` returned.

    Intervals come from resampling recordings, not steps: the steps of one person are not independent.
    """
    results = [RecordingResult(f"recording {i}", r) if isinstance(r, Scores) else r for i, r in enumerate(recordings)]
    if not results:
        raise InputError("there is no recording to summarise")
    if not 0 < level < 1:
        raise InputError(f"the confidence level is {level}, but it must lie between 0 and 1")
    if n_bootstrap < 1:
        raise InputError(f"{n_bootstrap} bootstrap samples, but there must be at least 1")
    protocols = sorted({result.scores.protocol for result in results})
    if len(protocols) > 1:
        cure = "score all recordings with the same one"
        raise InputError(f"scores of different protocols cannot be put together: {', '.join(protocols)}", cure=cure)

    def group(has_errors: bool) -> GroupSummary | None:
        chosen = [result for result in results if result.has_errors is has_errors]
        return _summarise_group(chosen, level, n_bootstrap, seed) if chosen else None

    alarms = [result.alarms for result in results if result.alarms is not None]
    return Summary(
        protocol=results[0].scores.protocol,
        recordings=tuple(results),
        all=_summarise_group(results, level, n_bootstrap, seed),
        without_errors=group(False),
        with_errors=group(True),
        steps=tuple(_summarise_steps(results, procedure)),
        alarms=put_together(alarms) if alarms else None,
    )


def _summarise_group(results: Sequence[RecordingResult], level: float, n_bootstrap: int, seed: int) -> GroupSummary:
    pos = np.array([result.scores.pos for result in results])
    f1 = np.array([result.scores.f1 for result in results])
    delay = np.array([result.scores.delay_seconds for result in results], dtype=np.float64)  # None becomes nan
    draws = np.random.default_rng(seed).integers(len(results), size=(n_bootstrap, len(results)))
    matched = ~np.isnan(delay)
    counts = [
        sum(getattr(result.scores, name) for result in results)
        for name in ("true_positives", "false_positives", "false_negatives")
    ]
    delays = [match.delay_frames / result.fps for result in results for match in result.scores.matches]
    return GroupSummary(
        n_recordings=len(results),
        pos=float(pos.mean()),
        f1=float(f1.mean()),
        delay_seconds=float(delay[matched].mean()) if matched.any() else None,
        n_without_match=int((~matched).sum()),
        pos_interval=_interval(pos[draws].mean(axis=1), level),
        f1_interval=_interval(f1[draws].mean(axis=1), level),
        delay_interval=_interval(_nanmean_rows(delay[draws]), level) if matched.any() else None,
        true_positives=counts[0],
        false_positives=counts[1],
        false_negatives=counts[2],
        pooled_f1=f1_score(*counts),
        pooled_delay_seconds=float(np.mean(delays)) if delays else None,
    )


def _nanmean_rows(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each row without its gaps; rows of gaps only are left out."""
    present = ~np.isnan(values)
    count = present.sum(axis=1)
    total = np.where(present, values, 0.0).sum(axis=1)
    return np.asarray(total[count > 0] / count[count > 0])


def _interval(draws: NDArray[np.float64], level: float) -> Interval:
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def _summarise_steps(results: Sequence[RecordingResult], procedure: Procedure | None) -> list[StepSummary]:
    step_ids = sorted({event.step_id for result in results for event in (*result.labels, *result.events)})
    table: list[StepSummary] = []
    for step_id in step_ids:
        delays = [
            match.delay_frames / result.fps
            for result in results
            for match in result.by_definition.matches
            if match.step_id == step_id
        ]
        missed = sum(e.step_id == step_id for result in results for e in result.by_definition.unmatched_labels)
        spurious = sum(e.step_id == step_id for result in results for e in result.by_definition.unmatched_events)
        table.append(
            StepSummary(
                step_id=step_id,
                description=procedure.step(step_id).description if procedure else f"step {step_id}",
                n_labels=len(delays) + missed,
                true_positives=len(delays),
                false_positives=spurious,
                missed=missed,
                delay_seconds=float(np.mean(delays)) if delays else None,
            )
        )
    return table


def recognised_within(results: Sequence[RecordingResult], seconds: Sequence[float]) -> list[float]:
    """The share of all labelled steps that were recognised at most t seconds late, for each t.

    Steps that were missed count as never recognised, so the curve ends at the recall.
    """
    delays = np.array([m.delay_frames / result.fps for result in results for m in result.by_definition.matches])
    n_labels = sum(len(result.labels) for result in results)
    if n_labels == 0:
        return [1.0 for _ in seconds]
    return [float((delays <= limit).sum() / n_labels) for limit in seconds]


def contains_errors(
    labels: Sequence[StepEvent],
    procedure: Procedure,
    *,
    variant: str | None,
    timeline: StateTimeline | None = None,
    labels_with_errors: Sequence[StepEvent] = (),
) -> bool:
    """Whether the person made execution errors, as the published programs decide it.

    True if a part was wrong at some time, or if a step that the variant expects was never completed. A variant of None
    leaves out the second question.
    """
    if timeline is not None and timeline.has_errors:
        return True
    if any(procedure.step(event.step_id).kind is StepKind.INCORRECT for event in labels_with_errors):
        return True
    if variant is None:
        return False
    completed = {event.step_id for event in labels}
    return any(step_id not in completed for step_id in procedure.variant(variant).expected)
