"""What a data set's labels hold: how many steps of which kind, how far apart, how many states; by split and by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from stormpsr.data.events import StepEvent
from stormpsr.data.labels import (
    STATES_FILE,
    STEPS_FILE,
    STEPS_WITH_ERRORS_FILE,
    StateTimeline,
    read_states,
    read_steps,
    steps_from_states,
)
from stormpsr.data.layouts import SPLITS, RecordingFolder, find_recordings, read_about
from stormpsr.procedure.model import Procedure, StateBits, StepKind

_DECILES = tuple(range(10, 100, 10))


@dataclass(frozen=True, slots=True)
class Spread:
    """A number per recording: all together, the mean, and the standard deviation (None of a single recording)."""

    total: int
    mean: float
    deviation: float | None

    @classmethod
    def of(cls, counts: Sequence[int]) -> Spread:
        deviation = float(np.std(counts, ddof=1)) if len(counts) > 1 else None
        return cls(sum(counts), float(np.mean(counts)), deviation)


@dataclass(frozen=True)
class SplitStatistics:
    """The labels of a split, or of all."""

    n_recordings: int
    completed: Spread  # rows of `PSR_labels.csv`: what recognition is scored against
    installed: Spread  # of these, the installations
    removed: Spread  # and the removals
    incorrect: Spread | None  # incorrect installations; None where no file has them
    seconds_between: tuple[float, ...]  # deciles of the time from one completion to the next
    n_states: int | None  # different states of the assembly; None where no file has states
    n_listed_states: int | None  # of these, the states that have a class
    n_wrong_states: int | None  # and those with a wrong part
    mean_seconds: float | None  # of a recording; None where nobody says how long they are


@dataclass(frozen=True)
class LabelStatistics:
    """All there is to count."""

    procedure: str
    splits: Mapping[str, SplitStatistics]  # by name, `all` last
    steps: Mapping[int, Mapping[str, int]]  # step id -> split -> how often; incorrect installations included

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Labels:
    """The labels of one recording."""

    completed: Sequence[StepEvent]
    incorrect: Sequence[StepEvent] | None
    states: frozenset[StateBits]
    n_frames: int | None
    fps: float


def label_statistics(root: str | Path, procedure: Procedure, split: str | None = None) -> LabelStatistics:
    """Count the labels below a folder."""
    by_split: dict[str, list[_Labels]] = {}
    for folder in find_recordings(root, split):
        if folder.has_labels:
            by_split.setdefault(folder.split or "no split", []).append(_read(folder, procedure))
    groups = {name: by_split[name] for name in (*SPLITS, "no split") if name in by_split}
    if len(groups) != 1:
        groups["all"] = [labels for own in by_split.values() for labels in own]
    steps: dict[int, dict[str, int]] = {}
    for name, group in groups.items():
        events = (event for own in group for event in (*own.completed, *(own.incorrect or ())))
        for step_id, count in sorted(Counter(event.step_id for event in events).items()):
            steps.setdefault(step_id, {})[name] = count
    return LabelStatistics(
        procedure.name,
        {name: _summarise(group, procedure) for name, group in groups.items()},
        {step_id: steps[step_id] for step_id in sorted(steps)},
    )


def _read(folder: RecordingFolder, procedure: Procedure) -> _Labels:
    """What there is; steps that no file has are those that the states imply."""
    paths = {name: folder.path / name for name in (STEPS_FILE, STEPS_WITH_ERRORS_FILE, STATES_FILE)}
    timeline: StateTimeline | None = None
    if paths[STATES_FILE].is_file():
        timeline = read_states(paths[STATES_FILE], procedure)
    full: list[StepEvent] | None = None
    if paths[STEPS_WITH_ERRORS_FILE].is_file():
        full = read_steps(paths[STEPS_WITH_ERRORS_FILE], procedure)
    elif timeline is not None:
        full = steps_from_states(timeline, procedure, with_errors=True)
    if paths[STEPS_FILE].is_file():
        completed = read_steps(paths[STEPS_FILE], procedure)
    elif timeline is not None:
        completed = steps_from_states(timeline, procedure, with_errors=False)
    else:
        completed = [event for event in full or () if procedure.step(event.step_id).kind is not StepKind.INCORRECT]
    wrong = None if full is None else [e for e in full if procedure.step(e.step_id).kind is StepKind.INCORRECT]
    states = frozenset(() if timeline is None else timeline.states)
    return _Labels(completed, wrong, states, folder.n_frames(), read_about(folder.path).fps or procedure.fps)


def _summarise(group: Sequence[_Labels], procedure: Procedure) -> SplitStatistics:
    kinds = [[procedure.step(event.step_id).kind for event in own.completed] for own in group]
    wrong = [own.incorrect for own in group if own.incorrect is not None]
    states = frozenset[StateBits]().union(*(own.states for own in group))
    listed = {state.bits for state in procedure.states if state.bits is not None}
    known = any(own.states for own in group)  # a file of states has one at least
    lengths = [own.n_frames / own.fps for own in group if own.n_frames is not None]
    return SplitStatistics(
        n_recordings=len(group),
        completed=Spread.of([len(own) for own in kinds]),
        installed=Spread.of([own.count(StepKind.INSTALL) for own in kinds]),
        removed=Spread.of([own.count(StepKind.REMOVE) for own in kinds]),
        incorrect=Spread.of([len(own) for own in wrong]) if wrong else None,
        seconds_between=_deciles(gap for own in group for gap in _gaps(own)),
        n_states=len(states) if known else None,
        n_listed_states=len(states & listed) if known else None,
        n_wrong_states=sum(-1 in bits for bits in states) if known else None,
        mean_seconds=float(np.mean(lengths)) if len(lengths) == len(group) else None,
    )


def _gaps(labels: _Labels) -> list[float]:
    """Seconds from one frame with completions to the next."""
    frames = sorted({event.frame for event in labels.completed})
    return [(after - before) / labels.fps for before, after in pairwise(frames)]


def _deciles(values: Iterable[float]) -> tuple[float, ...]:
    known = list(values)
    return tuple(float(value) for value in np.percentile(known, _DECILES)) if known else ()
