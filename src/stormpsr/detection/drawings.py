"""Pictures of a detector's scores: precision against recall, the confusion matrix, and the reliability diagram."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stormpsr.detection.calibration import Reliability
from stormpsr.detection.scoring import AveragePrecision
from stormpsr.errors import MissingExtraError
from stormpsr.procedure import Procedure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_confusion", "draw_precision_recall", "draw_reliability"]

_INK, _ACCENT, _PALE = "#22303c", "#1f6e8c", "#b9c4cc"


def draw_precision_recall(path: Path, precision: AveragePrecision, procedure: Procedure) -> None:
    """A thin line per class, a thick one for their mean, at an overlap of 0.5."""
    figure, axis = _figure(6.4, 4.8)
    recalls = np.linspace(0, 1, 101)
    for curve in precision.curve_by_class.values():
        axis.plot(recalls, curve, color=_PALE, linewidth=0.9)
    if precision.curve_by_class:
        mean = np.mean(list(precision.curve_by_class.values()), axis=0)
        label = f"mean of {len(precision.curve_by_class)} classes: {precision.map50:.3f} mAP@50"
        axis.plot(recalls, mean, color=_ACCENT, linewidth=2.5, label=label)
        axis.legend(loc="lower left", frameon=False)
    weakest = sorted(precision.ap50_by_class.items(), key=lambda item: item[1])[:3]
    names = ", ".join(f"{procedure.states[k].name} {value:.2f}" for k, value in weakest)
    axis.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="recall", ylabel="precision")
    axis.set_title("Precision and recall" + (f"\nweakest: {names}" if names else ""), loc="left", fontsize=10)
    _save(figure, axis, path)


def draw_confusion(path: Path, counts: NDArray[np.int64], procedure: Procedure) -> None:
    """Each column is a true class and sums to 1; classes that neither occur nor are reported are left out."""
    used = [k for k in range(len(counts)) if counts[k].any() or counts[:, k].any()]
    names = [*(state.name for state in procedure.states), ""]
    rows = ["nothing" if k == len(counts) - 1 else names[k] for k in used]
    columns = ["unreadable" if k == len(counts) - 1 else names[k] for k in used]
    chosen = counts[np.ix_(used, used)]
    shares = chosen / np.maximum(chosen.sum(axis=0, keepdims=True), 1)
    side = 2.6 + 0.34 * len(used)
    figure, axis = _figure(side + 0.6, side)
    image = axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, j in zip(*np.nonzero(shares >= 0.005), strict=True):
        colour = "white" if shares[i, j] > 0.6 else _INK
        axis.text(j, i, f"{shares[i, j]:.2f}".lstrip("0"), ha="center", va="center", fontsize=6, color=colour)
    axis.set_xticks(range(len(used)), columns, rotation=90, fontsize=7)
    axis.set_yticks(range(len(used)), rows, fontsize=7)
    axis.set(xlabel="true state", ylabel="reported state")
    axis.set_title("Confusion, normalised per true state", loc="left", fontsize=10)
    figure.colorbar(image, ax=axis, fraction=0.04, pad=0.02)
    _save(figure, axis, path, grid=False)


def draw_reliability(path: Path, named: Sequence[tuple[str, Reliability]]) -> None:
    """Share of right detections against confidence, for one or several calibrations."""
    figure, axis = _figure(5.2, 4.8)
    axis.plot([0, 1], [0, 1], color=_PALE, linestyle="--", linewidth=1)
    colours = (_ACCENT, "#c2452d", "#2f9e63", "#8a5fb0")
    for (name, bins), colour in zip(named, colours, strict=False):
        filled = bins.count > 0
        x, y, n = bins.mean_confidence[filled], bins.share_right[filled], bins.count[filled]
        label = f"{name} (expected error {bins.expected_error:.3f})"
        axis.plot(x, y, color=colour, linewidth=1.5, label=label)
        axis.scatter(x, y, s=12 + 160 * n / max(n.sum(), 1), color=colour, alpha=0.8, linewidths=0)
    axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="share of right detections", aspect="equal")
    axis.set_title("Reliability", loc="left", fontsize=10)
    axis.legend(loc="upper left", frameon=False, fontsize=8)
    _save(figure, axis, path)


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise MissingExtraError("drawing", "plot", "matplotlib") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _save(figure: Figure, axis: Axes, path: Path, *, grid: bool = True) -> None:
    if grid:
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, bbox_inches="tight")
