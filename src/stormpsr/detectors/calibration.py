"""Confidence that means something: of the detections made with confidence p, a share of p should be right.

Decoders add up confidences, so one that is too sure of itself completes steps too early. The cure is a temperature T
and a bias b fitted on validation frames: sigmoid(logit(p) / T + b). Both keep the order of detections, so average
precision does not change. T alone (b = 0) is temperature scaling as usual; the bias is needed because training shows
far more readable frames than recordings hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stormpsr.detectors.base import Calibration, Floats, logit, sigmoid


def fit_calibration(confidences: Floats, right: NDArray[np.bool_], *, steps: int = 100) -> Calibration:
    """The calibration under which the outcomes are most likely (Newton's method on slope and bias).

    With fewer than two outcomes of either sort there is nothing to fit, and confidences are left alone.
    """
    if min(int(right.sum()), int((~right).sum())) < 2:
        return Calibration()
    x = np.stack([logit(np.asarray(confidences, dtype=np.float64)), np.ones(len(right))], axis=1)
    y = right.astype(np.float64)
    weights = np.array([1.0, 0.0])
    ridge = np.array([[1e-3, 0.0], [0.0, 1e-3]]) * len(y) * 1e-3  # keeps separable outcomes finite
    for _ in range(steps):
        p = sigmoid(x @ weights)
        gradient = x.T @ (p - y) + ridge @ (weights - np.array([1.0, 0.0]))
        hessian = (x * (p * (1 - p))[:, None]).T @ x + ridge
        move = np.linalg.solve(hessian, gradient)
        weights = weights - np.clip(move, -1.0, 1.0)
        if np.abs(move).max() < 1e-9:
            break
    slope = float(max(weights[0], 1e-2))  # never turn the order round
    return Calibration(temperature=1 / slope, bias=float(weights[1]))


@dataclass(frozen=True, eq=False)
class Reliability:
    """Bins of confidence: how sure the detector was in each, how often it was right, and in how many cases."""

    mean_confidence: Floats
    share_right: Floats
    count: NDArray[np.int64]

    @property
    def expected_error(self) -> float:
        """Mean distance between confidence and share of right detections, weighted by cases (ECE)."""
        filled = self.count > 0
        gaps = np.abs(self.mean_confidence[filled] - self.share_right[filled])
        return float((gaps * self.count[filled]).sum() / max(self.count.sum(), 1))


def reliability(confidences: Floats, right: NDArray[np.bool_], n_bins: int = 10) -> Reliability:
    """Confidence against success, in bins of equal width; empty bins hold nan."""
    confidences = np.asarray(confidences, dtype=np.float64)
    row = np.minimum((confidences * n_bins).astype(np.int64), n_bins - 1)
    count = np.bincount(row, minlength=n_bins)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(row, weights=confidences, minlength=n_bins) / count
        share = np.bincount(row, weights=right.astype(np.float64), minlength=n_bins) / count
    return Reliability(mean, share, count)


def expected_error(confidences: Floats, right: NDArray[np.bool_], n_bins: int = 10) -> float:
    """Expected calibration error."""
    return reliability(confidences, right, n_bins).expected_error
