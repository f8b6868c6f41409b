"""How detectors do when less can be seen: scores by visibility, for recordings that come with `visibility.csv`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stormpsr.datasets import RecordingFolder
from stormpsr.detection.looking import SeenFrame
from stormpsr.labels import STATES_FILE, read_states
from stormpsr.procedure import Procedure
from stormpsr.synthetic.visibility import VISIBILITY_FILE, read_visibility

__all__ = ["SilenceScores", "View", "VisibilityRow", "accuracy_by_visibility", "read_views", "score_silence"]

EDGES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class View:
    """What could be seen in a frame, and what the state was."""

    visible: float  # mean share of the mounted components that shows
    readable: bool  # a person could read the whole state
    state_class: int | None  # of the labelled state; None if it has no class


Views = Mapping[tuple[str, int], View]  # by recording and frame


@dataclass(frozen=True, slots=True)
class VisibilityRow:
    """Frames of which so much was visible."""

    low: float
    high: float
    n_frames: int
    reported: float | None  # share with a confident detection
    right_of_reported: float | None  # of those, with the class of the labelled state
    right: float | None  # of all frames, best guess however weak


@dataclass(frozen=True, slots=True)
class SilenceScores:
    """What is reported where nothing should be."""

    n_obstructed: int
    fired_obstructed: float | None  # share of obstructed frames with a confident detection
    fired_obstructed_wrong: float | None  # share of obstructed frames with one that names another state
    n_unlisted: int
    fired_unlisted: float | None  # share of clear frames in states without a class


def read_views(recordings: Sequence[RecordingFolder], procedure: Procedure) -> dict[tuple[str, int], View]:
    """Views of the recordings that say what can be seen; empty if none does."""
    views: dict[tuple[str, int], View] = {}
    for recording in recordings:
        path = recording.path / VISIBILITY_FILE
        if not path.is_file():
            continue
        visibility = read_visibility(path, procedure.n_components)
        timeline = read_states(recording.path / STATES_FILE, procedure)
        readable_F, visible_F = visibility.readable_F(), visibility.mean_visible_F()
        for frame, (visible, readable) in enumerate(zip(visible_F.tolist(), readable_F.tolist(), strict=True)):
            views[recording.name, frame] = View(visible, readable, procedure.state_class(timeline.at(frame)))
    return views


def accuracy_by_visibility(
    seen: Sequence[SeenFrame], views: Views, min_confidence: float, edges: Sequence[float] = EDGES
) -> list[VisibilityRow]:
    """Scores in bins of visibility; frames in states without a class are left out."""
    rows: list[VisibilityRow] = []
    known = [(f, views[f.frame.recording, f.frame.frame]) for f in seen if (f.frame.recording, f.frame.frame) in views]
    known = [(frame, view) for frame, view in known if view.state_class is not None]
    for low, high in pairwise(edges):
        last = high == edges[-1]
        inside = [(f, v) for f, v in known if low <= v.visible < high or (last and v.visible >= high)]
        right = [f.best is not None and f.best.state_class == v.state_class for f, v in inside]
        sure = [f.best is not None and f.best.confidence >= min_confidence for f, _ in inside]
        right_and_sure = [r for r, s in zip(right, sure, strict=True) if s]
        rows.append(VisibilityRow(low, high, len(inside), _mean(sure), _mean(right_and_sure), _mean(right)))
    return rows


def score_silence(seen: Sequence[SeenFrame], views: Views, min_confidence: float) -> SilenceScores:
    """False detections, apart for obstructed frames and for clear frames of states that have no class."""
    obstructed: list[tuple[bool, bool]] = []
    unlisted: list[bool] = []
    for frame in seen:
        view = views.get((frame.frame.recording, frame.frame.frame))
        if view is None:
            continue
        fired = frame.best is not None and frame.best.confidence >= min_confidence
        if not view.readable:
            other = frame.best is not None and frame.best.state_class != view.state_class
            obstructed.append((fired, fired and other))
        elif view.state_class is None:
            unlisted.append(fired)
    return SilenceScores(
        n_obstructed=len(obstructed),
        fired_obstructed=_mean([fired for fired, _ in obstructed]),
        fired_obstructed_wrong=_mean([wrong for _, wrong in obstructed]),
        n_unlisted=len(unlisted),
        fired_unlisted=_mean(unlisted),
    )


def _mean(values: Sequence[bool]) -> float | None:
    return float(np.mean(values)) if values else None
