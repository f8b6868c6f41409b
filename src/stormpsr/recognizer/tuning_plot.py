"""The price of haste: F1 against delay, for all settings that were tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stormpsr.errors import MissingExtraError
from stormpsr.evaluation.run_folder import METHOD_TITLES
from stormpsr.recognizer.tuning import Scored, front

__all__ = ["plot_fronts"]

_COLOURS = {"detection": "#b8860b", "temporal": "#3a6fb0", "average": "#b03a48"}


def plot_fronts(path: Path, scored: Mapping[str, Sequence[Scored]], chosen: Mapping[str, Scored], title: str) -> None:
    """Every setting as a dot, each method's front as a line, the chosen settings marked."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("drawing the front", "plot", "matplotlib") from error

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots()
    for method, tried in scored.items():
        colour = _COLOURS.get(method, "#555555")
        dots = [one for one in tried if one.delay_seconds is not None]
        axes.scatter([s.delay_seconds for s in dots], [s.f1 for s in dots], s=3, alpha=0.15, color=colour, linewidths=0)
        edge = front(tried)
        label = METHOD_TITLES.get(method, method)
        axes.plot([s.delay_seconds for s in edge], [s.f1 for s in edge], color=colour, label=label, linewidth=1.8)
        best = chosen[method]
        if best.delay_seconds is not None:
            axes.plot(best.delay_seconds, best.f1, marker="o", markersize=9, color=colour, markeredgecolor="black")
    edges = [s for tried in scored.values() for s in front(tried)]
    if edges:  # settings that recognise next to nothing are of no interest
        low = min(s.f1 for s in edges)
        axes.set_ylim(max(0.0, min(low, 0.5) - 0.05), 1.0)
        axes.set_xlim(0, 1.6 * max(s.delay_seconds or 0.0 for s in edges) + 1)
        axes.legend(loc="lower right")
    axes.set_xlabel("mean delay tau (s)")
    axes.set_ylabel("F1")
    axes.set_title(title, fontsize=11)
    axes.grid(alpha=0.25)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
