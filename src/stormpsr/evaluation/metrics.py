"""POS, F1 and delay of one recording, by the definitions of the paper (section 3).

All three or none: a model that reports every step in the last frame has a fine F1 and a useless delay. The scoring of
the two published programs, quirks included, is in `released.py`; `score` chooses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Any, Literal, get_args

from stormpsr.data.events import StepEvent
from stormpsr.errors import InputError
from stormpsr.evaluation.edit_distance import damerau_levenshtein
from stormpsr.procedure.model import Procedure

Protocol = Literal["paper", "industreal", "storm"]


@dataclass(frozen=True, slots=True)
class Match:
    """A label and the event that recognised it."""

    step_id: int
    label_frame: int
    event_frame: int

    @property
    def delay_frames(self) -> int:
        return self.event_frame - self.label_frame


@dataclass(frozen=True)
class Scores:
    """The scores of one recording."""

    pos: float  # procedure order similarity, 0..1
    f1: float
    delay_frames: float | None  # mean over the true positives; None where nothing was matched
    delay_seconds: float | None
    true_positives: int
    false_positives: int
    false_negatives: int
    matches: tuple[Match, ...]
    protocol: Protocol = "paper"
    unmatched_labels: tuple[StepEvent, ...] = field(default=(), repr=False)  # never recognised, or only too early
    unmatched_events: tuple[StepEvent, ...] = field(default=(), repr=False)  # the false positives
    # what was scored, so that scores of several recordings can be put together
    labels: tuple[StepEvent, ...] = field(default=(), repr=False, compare=False)
    events: tuple[StepEvent, ...] = field(default=(), repr=False, compare=False)
    fps: float | None = field(default=None, repr=False, compare=False)

    @property
    def precision(self) -> float | None:
        predicted = self.true_positives + self.false_positives
        return self.true_positives / predicted if predicted else None

    @property
    def recall(self) -> float | None:
        positives = self.true_positives + self.false_negatives
        return self.true_positives / positives if positives else None

    def to_dict(self) -> dict[str, Any]:
        """The scores and the matches behind them as plain data."""
        names = ("pos", "f1", "delay_seconds", "delay_frames", "true_positives", "false_positives", "false_negatives")
        return {name: getattr(self, name) for name in names} | {"matches": [asdict(match) for match in self.matches]}


def score(
    labels: Iterable[StepEvent],
    events: Iterable[StepEvent],
    *,
    procedure: Procedure | None = None,
    fps: float | None = None,
    protocol: Protocol = "paper",
    window: int | None = None,
) -> Scores:
    """Score the events of one recording against its labels.

    procedure: step ids are checked against it, and `fps` is taken from it where none is given.
    protocol: "paper" for the definitions; "industreal" or "storm" for what the two published programs compute.
    window: only for "storm": that program then rewrites the predicted order from the labels before computing POS.
        That inflates POS and is for comparison with published tables only (see docs/scoring.md).
    """
    labels, events = list(labels), list(events)
    if fps is None:
        if procedure is None:
            raise InputError("frames per second are unknown", cure="give fps= or procedure=")
        fps = procedure.fps
    if not 0 < fps < float("inf"):
        raise InputError(f"fps is {fps}, but it must be more than 0")
    if protocol not in get_args(Protocol):
        raise InputError(f"unknown protocol {protocol!r}", cure=f"choose one of: {', '.join(get_args(Protocol))}")
    if window is not None and protocol != "storm":
        raise InputError(f"a window has no meaning for protocol {protocol!r}", cure="leave it out, or use 'storm'")
    if window is not None and window < 1:
        raise InputError(f"the window is {window} frames, but it must be at least 1")
    if procedure is not None:
        for event in (*labels, *events):
            procedure.step(event.step_id)
    if protocol == "paper":
        scores = _score_by_definition(labels, events, fps)
    else:
        from stormpsr.evaluation.released import score_as_released

        scores = score_as_released(labels, events, procedure=procedure, fps=fps, program=protocol, window=window)
    return replace(scores, labels=tuple(labels), events=tuple(events), fps=fps)


def f1_score(true_positives: int, false_positives: int, false_negatives: int) -> float:
    """The harmonic mean of precision and recall; 1 where there was nothing to find and nothing was reported."""
    counted = 2 * true_positives + false_positives + false_negatives
    return 2 * true_positives / counted if counted else 1.0


def _score_by_definition(labels: list[StepEvent], events: list[StepEvent], fps: float) -> Scores:
    matches, missed, spurious, false_negatives = _match(labels, events)
    delay = sum(match.delay_frames for match in matches) / len(matches) if matches else None
    return Scores(
        pos=_procedure_order_similarity(labels, events),
        f1=f1_score(len(matches), len(spurious), false_negatives),
        delay_frames=delay,
        delay_seconds=None if delay is None else delay / fps,
        true_positives=len(matches),
        false_positives=len(spurious),
        false_negatives=false_negatives,
        matches=tuple(sorted(matches, key=lambda match: (match.label_frame, match.step_id))),
        unmatched_labels=tuple(sorted(missed, key=_by_frame)),
        unmatched_events=tuple(sorted(spurious, key=_by_frame)),
    )


def _by_frame(event: StepEvent) -> tuple[int, int]:
    return event.frame, event.step_id


def _match(
    labels: Sequence[StepEvent], events: Sequence[StepEvent]
) -> tuple[list[Match], list[StepEvent], list[StepEvent], int]:
    """(matches, labels without an event, events without a label, false negatives).

    Per step, labels in time order take the first unused event at or after them. An event that was left over came too
    early for every label that was left over; it is a false positive already, so it covers one of those labels, which
    then is not a false negative as well.
    """
    labels_of: dict[int, list[StepEvent]] = defaultdict(list)
    events_of: dict[int, list[StepEvent]] = defaultdict(list)
    for label in sorted(labels, key=_by_frame):
        labels_of[label.step_id].append(label)
    for event in sorted(events, key=_by_frame):
        events_of[event.step_id].append(event)
    matches: list[Match] = []
    missed: list[StepEvent] = []
    spurious: list[StepEvent] = []
    false_negatives = 0
    for step_id in sorted(labels_of.keys() | events_of.keys()):
        unused = events_of[step_id]
        n_missed = 0
        for label in labels_of[step_id]:
            chosen = next((i for i, event in enumerate(unused) if event.frame >= label.frame), None)
            if chosen is None:
                missed.append(label)
                n_missed += 1
            else:
                matches.append(Match(step_id, label.frame, unused.pop(chosen).frame))
        spurious.extend(unused)
        false_negatives += max(n_missed - len(unused), 0)
    return matches, missed, spurious, false_negatives


def _procedure_order_similarity(labels: Sequence[StepEvent], events: Sequence[StepEvent]) -> float:
    """POS. Steps completed in the same frame have no order among themselves, so they are put in the kindest one."""
    if not labels:
        return 0.0 if events else 1.0
    label_order = _labels_in_order(labels, events)
    place = _first_places(label_order)
    ordered = sorted(events, key=lambda event: (event.frame, place.get(event.step_id, len(labels)), event.step_id))
    distance = damerau_levenshtein(label_order, [event.step_id for event in ordered])
    return 1.0 - min(distance / len(labels), 1.0)


def _labels_in_order(labels: Sequence[StepEvent], events: Sequence[StepEvent]) -> list[int]:
    """Labels by frame; those of one frame as their steps are first predicted from there on, the others last, by id.

    Steps first predicted in the same frame go by where they stand already, then by id: that is how the events of that
    frame are put in order, so that a perfect prediction has POS 1 also where a step is repeated.
    """
    frames_of: dict[int, list[int]] = defaultdict(list)
    for event in events:
        frames_of[event.step_id].append(event.frame)
    order: list[int] = []
    for frame, group in groupby(sorted(labels, key=_by_frame), key=lambda label: label.frame):
        place = _first_places(order)
        keys: list[tuple[float, int, int]] = []
        for label in group:
            first = min((at for at in frames_of[label.step_id] if at >= frame), default=float("inf"))
            stands = place.get(label.step_id, len(labels)) if first < float("inf") else len(labels)
            keys.append((first, stands, label.step_id))
        order.extend(step_id for _, _, step_id in sorted(keys))
    return order


def _first_places(order: Sequence[int]) -> dict[int, int]:
    """Where each step first stands in a sequence."""
    return {step_id: i for i, step_id in reversed(list(enumerate(order)))}
