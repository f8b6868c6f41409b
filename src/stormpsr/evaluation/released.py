"""The scoring of the two published programs, quirks included, so that numbers can be put beside published tables.

`industreal` is the program released with IndustReal, `storm` the one released with STORM-PSR. They differ from the
definitions, and from each other, in ways that change the numbers; each place is marked below. Nothing here is for new
work: use the `paper` protocol.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StepEvent
from stormpsr.errors import InputError
from stormpsr.evaluation.edit_distance import damerau_levenshtein
from stormpsr.evaluation.metrics import Match, Scores
from stormpsr.procedure.model import Procedure

Program = Literal["industreal", "storm"]
Frames = NDArray[np.int64]

_FAR_AWAY = 1e9  # the frame that stands for "not available"
_EPSILON = 1e-6
_LAST_CHARACTER = 95  # larger ids have no ASCII character: the rest of the sequence is dropped
_DELAY_WITHOUT_MATCH = {"industreal": 100.0, "storm": 0.0}  # frames, reported where nothing was recognised


def score_as_released(
    labels: Sequence[StepEvent],
    events: Sequence[StepEvent],
    *,
    procedure: Procedure | None,
    fps: float,
    program: Program,
    window: int | None = None,
) -> Scores:
    """What a published program prints for one recording. The order of the rows matters to it, so it is kept."""
    if not labels:
        raise InputError(
            f"a recording without labels cannot be scored with protocol {program!r}: the published program divides by "
            "their number",
            cure="use protocol 'paper'",
        )
    label_steps, label_frames = _columns(labels)
    event_steps, event_frames = _columns(events)
    step_ids = [step.id for step in procedure.steps] if procedure else sorted({*label_steps, *event_steps})
    false_positives, false_negatives = 0, 0
    pairs: dict[int, int] = {}  # label row -> event row of its delay
    for step_id in step_ids:
        label_rows = [int(row) for row in np.flatnonzero(label_steps == step_id)]
        event_rows = [int(row) for row in np.flatnonzero(event_steps == step_id)]
        false_positives += max(len(event_rows) - len(label_rows), 0)
        false_negatives += max(len(label_rows) - len(event_rows), 0)
        if not label_rows or not event_rows:
            continue
        if len(label_rows) > len(event_rows):
            label_rows = _assign(label_rows, label_frames, event_frames[event_rows], program)
        else:
            event_rows = _assign(event_rows, event_frames, label_frames[label_rows], program)
        for label_row, event_row in zip(label_rows, event_rows, strict=True):
            if event_frames[event_row] < label_frames[label_row]:
                false_positives += 1
            else:
                pairs[label_row] = event_row
    true_positives = len(events) - false_positives  # every event that is not a false positive, matched or not

    order = event_steps.copy()
    if window is not None:
        _rewrite_order(order, event_frames.copy(), label_steps, label_frames, window)
    delays = [int(event_frames[event] - label_frames[label]) for label, event in pairs.items()]
    delay = math.fsum(delays) / len(delays) if delays else _DELAY_WITHOUT_MATCH[program]
    matches = [Match(int(label_steps[a]), int(label_frames[a]), int(event_frames[b])) for a, b in pairs.items()]
    return Scores(
        pos=_order_similarity(label_steps, order),
        f1=_f1(true_positives, false_positives, false_negatives),
        delay_frames=delay,
        delay_seconds=delay / fps,
        true_positives=true_positives,
        false_positives=false_positives,
        false_negatives=false_negatives,
        matches=tuple(sorted(matches, key=lambda match: (match.label_frame, match.step_id))),
        protocol=program,
    )


def _columns(events: Sequence[StepEvent]) -> tuple[Frames, Frames]:
    steps = np.array([event.step_id for event in events], dtype=np.int64)
    return steps, np.array([event.frame for event in events], dtype=np.int64)


def _assign(rows: Sequence[int], frames: Frames, targets: Frames, program: Program) -> list[int]:
    """For each target frame the row of the longer side that is closest to it, one after the other.

    Quirks: `industreal` looks only at rows strictly later than the target, also where the targets are the events and
    the rows the labels; `storm` looks both ways, but never at a row in the very same frame. Where no row is left, the
    choice falls on a row of some other step (all of those stand far away, the first is taken), and its frame is used.
    """
    available = np.full(len(frames), _FAR_AWAY)
    available[list(rows)] = frames[list(rows)]
    chosen: list[int] = []
    for target in targets:
        distance = available - target if program == "industreal" else np.abs(available - target)
        row = int(np.argmin(np.where(distance > 0, distance, np.inf)))
        chosen.append(row)
        available[row] = _FAR_AWAY
    return chosen


def _f1(true_positives: int, false_positives: int, false_negatives: int) -> float:
    predicted, positive = true_positives + false_positives, true_positives + false_negatives
    precision = true_positives / predicted if predicted else _EPSILON
    recall = true_positives / positive if positive else _EPSILON
    return 2 * precision * recall / (precision + recall + _EPSILON)


def _order_similarity(label_steps: Frames, event_steps: Frames) -> float:
    distance = damerau_levenshtein(_representable(label_steps), _representable(event_steps))
    return 1.0 - min(distance / len(label_steps), 1.0)


def _representable(steps: Frames) -> list[int]:
    """Quirk: the sequence up to the first id that has no character."""
    too_large = np.flatnonzero(steps > _LAST_CHARACTER)
    return [int(step) for step in (steps[: too_large[0]] if len(too_large) else steps)]


def _rewrite_order(order: Frames, frames: Frames, label_steps: Frames, label_frames: Frames, window: int) -> None:
    """Quirk of `storm` with a window: bring the predicted order closer to the labels, in place.

    First, if the steps predicted in the first event's frame are the steps labelled up to it, the whole predicted order
    is overwritten with the labelled one, as far as both go. Then each pair of neighbouring predictions less than a
    window apart that stands the other way round somewhere in the labels is swapped. Both lift POS for the same events.
    """
    if frames.any():
        # the published program compares what lies between the first and the last row found, whatever that is
        first, early = np.flatnonzero(frames == frames[0]), np.flatnonzero(label_frames <= frames[0])
        if len(early) and set(order[first[0] : first[-1] + 1]) == set(label_steps[early[0] : early[-1] + 1]):
            shared = min(len(order), len(label_steps))
            order[:shared] = label_steps[:shared]
    for i in range(1, len(order)):
        before, after = int(order[i - 1]), int(order[i])
        apart = abs(int(frames[i]) - int(frames[i - 1]))
        reversed_in_labels = np.any((label_steps[:-1] == after) & (label_steps[1:] == before))
        if apart < window and reversed_in_labels:
            order[i - 1], order[i] = after, before
            frames[i - 1], frames[i] = frames[i], frames[i - 1]
