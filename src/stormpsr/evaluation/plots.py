"""Pictures of a summary: how soon steps are recognised, and labels against events over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stormpsr.errors import MissingExtraError
from stormpsr.evaluation.summary import RecordingResult, Summary, recognised_within
from stormpsr.procedure import Procedure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_summary"]

_LABEL, _MATCHED, _FALSE, _MISSED = "#4a4f57", "#1f8a5b", "#d1495b", "#e39a2d"
_MOST_TIMELINES = 8


def plot_summary(summary: Summary, procedure: Procedure, path: Path) -> None:
    """Draw the curve of steps recognised within t seconds, and a timeline per recording (the first eight)."""
    try:
        from matplotlib.figure import Figure  # no pyplot: nothing global, no screen needed
    except ImportError as error:
        raise MissingExtraError("drawing", "plot", "matplotlib") from error
    shown = summary.recordings[:_MOST_TIMELINES]
    heights = [2.6] + [0.9 + 0.17 * len(_steps_of(result)) for result in shown]
    figure = Figure(figsize=(10, sum(heights) + 0.5 * len(shown) + 0.4), layout="constrained", facecolor="white")
    axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _draw_curve(axes[0], summary)
    for axis, result in zip(axes[1:], shown, strict=True):
        _draw_timeline(axis, result, procedure)
    hidden = len(summary.recordings) - len(shown)
    if hidden:
        figure.supxlabel(f"{hidden} more recordings are not shown", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _draw_curve(axis: Axes, summary: Summary) -> None:
    delays = [m.delay_frames / r.fps for r in summary.recordings for m in r.by_definition.matches]
    longest = max(delays, default=1.0)
    seconds = np.linspace(0.0, max(longest * 1.05, 1.0), 400)
    axis.plot(seconds, recognised_within(summary.recordings, seconds.tolist()), color=_MATCHED, linewidth=2)
    if delays:
        mean = float(np.mean(delays))
        axis.axvline(mean, color=_LABEL, linewidth=1, linestyle="--")
        axis.annotate(f"mean {mean:.1f} s", (mean, 0.04), xytext=(4, 0), textcoords="offset points", color=_LABEL)
    axis.set(xlim=(0, seconds[-1]), ylim=(0, 1.02), xlabel="seconds after completion", ylabel="steps recognised")
    n_labels = sum(len(result.labels) for result in summary.recordings)
    axis.set_title(f"Share of {n_labels} steps recognised within t seconds", loc="left", fontsize=11)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


def _steps_of(result: RecordingResult) -> list[int]:
    """Step ids in the order of their first appearance, labels first."""
    ordered = sorted(result.labels, key=lambda e: (e.frame, e.step_id)) + sorted(result.events, key=lambda e: e.frame)
    return list(dict.fromkeys(event.step_id for event in ordered))


def _draw_timeline(axis: Axes, result: RecordingResult, procedure: Procedure) -> None:
    """A row per step: a bar where it was completed, a dot where it was recognised, the delay as a line between."""
    row = {step_id: i for i, step_id in enumerate(_steps_of(result))}
    scores = result.by_definition
    styles: dict[str, dict[str, Any]] = {
        "completed": {"marker": "|", "color": _LABEL, "s": 90, "linewidths": 2},
        "recognised": {"marker": "o", "color": _MATCHED, "s": 26},
        "false alarm": {"marker": "x", "color": _FALSE, "s": 30},
        "missed": {"marker": "|", "color": _MISSED, "s": 90, "linewidths": 2.5},
    }
    for match in scores.matches:
        y = row[match.step_id]
        axis.plot([match.label_frame / result.fps, match.event_frame / result.fps], [y, y], color=_MATCHED, alpha=0.35)
    points = {
        "completed": [(m.label_frame, m.step_id) for m in scores.matches],
        "recognised": [(m.event_frame, m.step_id) for m in scores.matches],
        "false alarm": [(e.frame, e.step_id) for e in scores.unmatched_events],
        "missed": [(e.frame, e.step_id) for e in scores.unmatched_labels],
    }
    for name, found in points.items():
        if found:
            seconds, rows = [frame / result.fps for frame, _ in found], [row[step_id] for _, step_id in found]
            axis.scatter(seconds, rows, label=name, zorder=3, **styles[name])
    axis.set_yticks(range(len(row)), [procedure.step(step_id).description for step_id in row], fontsize=7)
    axis.set_ylim(len(row) - 0.4, -0.6)
    axis.set_xlim(left=0)
    axis.set_xlabel("seconds", fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    delay = "–" if result.scores.delay_seconds is None else f"{result.scores.delay_seconds:.1f} s"
    figures = f"POS {result.scores.pos:.3f}   F1 {result.scores.f1:.3f}   tau {delay}"
    axis.set_title(f"{result.name}   {figures}", loc="left", fontsize=9)
    axis.grid(axis="x", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    if points:
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7, frameon=False)
