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
    from matplotlib.figure import Figure

__all__ = ["plot_summary"]

# colours that people with any kind of colour vision can tell apart (Okabe and Ito); the shapes differ as well
_COMPLETED, _RECOGNISED, _FALSE, _MISSED = "#000000", "#0072B2", "#D55E00", "#CC79A7"
_STYLES: dict[str, dict[str, Any]] = {
    "recognised": {"marker": "o", "color": _RECOGNISED, "s": 26, "zorder": 3},
    "completed": {"marker": "|", "color": _COMPLETED, "s": 80, "linewidths": 1.6, "zorder": 4},
    "completed, never recognised": {"marker": "D", "color": _MISSED, "s": 26, "zorder": 3},
    "false alarm": {"marker": "x", "color": _FALSE, "s": 30, "linewidths": 1.8, "zorder": 5},
}
_MOST_TIMELINES = 8
_WIDTH_INCHES, _CURVE_INCHES, _ROW_INCHES, _MARGIN_INCHES = 10.0, 2.8, 0.18, 0.1


def plot_summary(summary: Summary, procedure: Procedure, path: Path) -> None:
    """Draw the curve of steps recognised within t seconds, and a timeline per recording (the first eight)."""
    try:
        from matplotlib.figure import Figure  # no pyplot: nothing global, no screen needed
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise MissingExtraError("drawing", "plot", "matplotlib") from error
    shown = summary.recordings[:_MOST_TIMELINES]
    heights = [_CURVE_INCHES] + [1.0 + _ROW_INCHES * max(len(_steps_of(result)), 2) for result in shown]
    layout = ConstrainedLayoutEngine(w_pad=_MARGIN_INCHES, h_pad=_MARGIN_INCHES)
    figure = Figure(figsize=(_WIDTH_INCHES, sum(heights) + 0.6), layout=layout, facecolor="white")
    axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _draw_curve(axes[0], summary)
    for axis, result in zip(axes[1:], shown, strict=True):
        _draw_timeline(axis, result, procedure)
    _draw_legend(figure)
    hidden = len(summary.recordings) - len(shown)
    if hidden:
        figure.supxlabel(f"{hidden} more recordings are not shown", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _draw_legend(figure: Figure) -> None:
    """One for all timelines, below them."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], linestyle="none", marker=style["marker"], color=style["color"], markersize=7, label=name)
        for name, style in _STYLES.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)


def _draw_curve(axis: Axes, summary: Summary) -> None:
    delays = sorted(m.delay_frames / r.fps for r in summary.recordings for m in r.by_definition.matches)
    end = max(delays[-1] * 1.05, 1.0) if delays else 1.0
    seconds = [0.0, *delays, end]  # the curve rises at these moments and nowhere else
    shares = recognised_within(summary.recordings, seconds)
    n_labels = sum(len(result.labels) for result in summary.recordings)
    if n_labels:
        axis.step(seconds, shares, where="post", color=_RECOGNISED, linewidth=2)
    if delays:
        mean = float(np.mean(delays))
        axis.axvline(mean, color=_COMPLETED, linewidth=1, linestyle="--")
        to_the_left = mean > end / 2
        axis.annotate(
            f"mean {mean:.1f} s",
            (mean, 0.05),
            xytext=(-4 if to_the_left else 4, 0),
            textcoords="offset points",
            ha="right" if to_the_left else "left",
            fontsize=9,
        )
    axis.set(xlim=(0, end), ylim=(0, 1.03))
    axis.set_xlabel("seconds after completion", fontsize=9)
    axis.set_ylabel("steps recognised", fontsize=9)
    axis.tick_params(labelsize=8)
    title = f"Share of {n_labels} steps recognised within t seconds (in the end: {shares[-1]:.0%})"
    axis.set_title(title if n_labels else "No steps are labelled", loc="left", fontsize=10)
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
    for match in scores.matches:
        seconds = [match.label_frame / result.fps, match.event_frame / result.fps]
        axis.plot(seconds, [row[match.step_id]] * 2, color=_RECOGNISED, alpha=0.35)
    points = {
        "recognised": [(m.event_frame, m.step_id) for m in scores.matches],
        "completed": [(m.label_frame, m.step_id) for m in scores.matches],
        "completed, never recognised": [(e.frame, e.step_id) for e in scores.unmatched_labels],
        "false alarm": [(e.frame, e.step_id) for e in scores.unmatched_events],
    }
    for name, found in points.items():
        times = [frame / result.fps for frame, _ in found]
        axis.scatter(times, [row[step_id] for _, step_id in found], clip_on=False, **_STYLES[name])
    axis.set_yticks(range(len(row)), [procedure.step(step_id).description for step_id in row], fontsize=7)
    axis.set_ylim(max(len(row), 1) - 0.4, -0.6)
    last = max((event.frame for event in (*result.labels, *result.events)), default=0)
    axis.set_xlim(0, max(last / result.fps * 1.03, 1.0))
    axis.set_xlabel("seconds", fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    delay = "–" if result.scores.delay_seconds is None else f"{result.scores.delay_seconds:.1f} s"
    figures = f"POS {result.scores.pos:.3f}   F1 {result.scores.f1:.3f}   tau {delay}"
    axis.set_title(f"{result.name}   {figures}", loc="left", fontsize=9)
    axis.grid(axis="x", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
