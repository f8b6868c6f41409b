"""How well a temporal model reads single clips: F1 and average precision, per component, installations and removals.

Shape legend: X clips, C components.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError
from stormpsr.evaluation.metrics import f1_score

Bits = NDArray[np.integer]
Floats = NDArray[np.floating]


@dataclass(frozen=True)
class ClipScores:
    """Scores over many clips. None where there was nothing to find."""

    f1: float  # over all clips and components together
    f1_per_component: tuple[float | None, ...]
    recall_of_installations: float | None  # of changes that end with the component in place
    recall_of_removals: float | None  # of those that end without it
    average_precision: float | None  # over all clips and components together
    n_clips: int
    n_changes: int


def score_clips(
    probability_XC: Floats, label_XC: Bits, correct_after_XC: Bits, *, threshold: float = 0.5
) -> ClipScores:
    """Score the model's word on clips.

    `correct_after_XC` says which components are correctly in place in the last frame: it tells installations from
    removals. A false alarm is neither, so for these two there is recall only.
    """
    if not probability_XC.shape == label_XC.shape == correct_after_XC.shape:
        raise InputError(
            f"shapes differ: {probability_XC.shape}, {label_XC.shape} and {correct_after_XC.shape}",
            cure="give one row per clip and one column per component",
        )
    said_XC, true_XC, after_XC = probability_XC > threshold, label_XC > 0, correct_after_XC > 0
    per_component = [
        _f1(said_X, true_X) if true_X.any() else None for said_X, true_X in zip(said_XC.T, true_XC.T, strict=True)
    ]
    return ClipScores(
        f1=_f1(said_XC, true_XC),
        f1_per_component=tuple(per_component),
        recall_of_installations=_recall(said_XC, true_XC & after_XC),
        recall_of_removals=_recall(said_XC, true_XC & ~after_XC),
        average_precision=average_precision(probability_XC.ravel(), true_XC.ravel()),
        n_clips=len(label_XC),
        n_changes=int(true_XC.sum()),
    )


def average_precision(confidence_X: Floats, true_X: NDArray[np.bool_]) -> float | None:
    """Mean over the true ones of the precision at their place in the order of confidence; equals share a place."""
    if not true_X.any():
        return None
    order = np.argsort(-confidence_X, kind="stable")
    hits = np.cumsum(true_X[order])
    sorted_confidence = confidence_X[order]
    last_of_equals = np.append(np.flatnonzero(np.diff(sorted_confidence)), len(order) - 1)
    precision = hits[last_of_equals] / (last_of_equals + 1)
    found = np.diff(hits[last_of_equals], prepend=0)
    return float((precision * found).sum() / hits[-1])


def _f1(said: NDArray[np.bool_], true: NDArray[np.bool_]) -> float:
    return f1_score(int((said & true).sum()), int((said & ~true).sum()), int((~said & true).sum()))


def _recall(said: NDArray[np.bool_], true: NDArray[np.bool_]) -> float | None:
    return float(said[true].mean()) if true.any() else None
