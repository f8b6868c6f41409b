"""Plots: scores of predicted events, labels by step, embeddings in the plane, and a detector's precision, confusion
and reliability.

Shape legend: F frames, D dimensions, C components.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError, need_packages
from stormpsr.evaluation.summary import RecordingResult, Summary, recognised_within
from stormpsr.evaluation.wording import counted, number, seconds
from stormpsr.files import replacing
from stormpsr.procedure.model import Procedure, StepKind, bit_string

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from stormpsr.data.label_statistics import LabelStatistics
    from stormpsr.detectors.calibration import Reliability
    from stormpsr.evaluation.detection_metrics import AveragePrecision


# colours that people with any kind of colour vision can tell apart (Okabe and Ito); the shapes differ as well
_COMPLETED, _RECOGNISED, _FALSE, _MISSED = "#000000", "#0072B2", "#D55E00", "#CC79A7"
_STYLES: dict[str, dict[str, Any]] = {
    "recognised": {"marker": "o", "color": _RECOGNISED, "s": 26, "zorder": 3},
    "completed": {"marker": "|", "color": _COMPLETED, "s": 80, "linewidths": 1.6, "zorder": 4},
    "completed, never recognised": {"marker": "D", "color": _MISSED, "s": 26, "zorder": 3},
    "false alarm": {"marker": "x", "color": _FALSE, "s": 30, "linewidths": 1.8, "zorder": 5},
}
_WIDTH_INCHES, _CURVE_INCHES, _ROW_INCHES, _MARGIN_INCHES = 10.0, 2.8, 0.18, 0.1
_MOST_INCHES = 15.0  # of height: an image that fits on a page or two screens
_DOTS_PER_INCH = 130


def plot_summary(summary: Summary, procedure: Procedure, path: Path) -> None:
    """Draw the curve of steps recognised within t seconds, and timelines of as many recordings as fit below it."""
    heights, shown = [_CURVE_INCHES], list[RecordingResult]()
    for result in summary.recordings:
        height = 1.0 + _ROW_INCHES * max(len(_steps_of(result)), 2)
        if shown and sum(heights) + height > _MOST_INCHES - 0.6:
            break
        heights.append(height)
        shown.append(result)
    figure = _new_figure(_WIDTH_INCHES, sum(heights) + 0.6)
    figure.set_layout_engine("constrained", w_pad=_MARGIN_INCHES, h_pad=_MARGIN_INCHES)
    axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _draw_curve(axes[0], summary)
    for axis, result in zip(axes[1:], shown, strict=True):
        _draw_timeline(axis, result, procedure)
    hidden = len(summary.recordings) - len(shown)
    _draw_legend(figure, f"{counted(hidden, 'more recording')} not shown" if hidden else None)
    _write(figure, path)


def _draw_legend(figure: Figure, note: str | None) -> None:
    """One for all timelines, below them, with a note above it."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], linestyle="none", marker=style["marker"], color=style["color"], markersize=7, label=name)
        for name, style in _STYLES.items()
    ]
    sizes = {"fontsize": 8, "title_fontsize": 9}
    figure.legend(handles=handles, loc="outside lower center", ncols=4, title=note, frameon=False, **sizes)


def _draw_curve(axis: Axes, summary: Summary) -> None:
    delays = sorted(m.delay_frames / r.fps for r in summary.recordings for m in r.by_definition.matches)
    end = max(delays[-1] * 1.05, 1.0) if delays else 1.0
    times = [0.0, *delays, end]  # the curve rises at these moments and nowhere else
    shares = recognised_within(summary.recordings, times)
    n_labels = sum(len(result.labels) for result in summary.recordings)
    if n_labels:
        axis.step(times, shares, where="post", color=_RECOGNISED, linewidth=2)
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
    _open(axis)


def _steps_of(result: RecordingResult) -> list[int]:
    """Step ids in the order of their first appearance, labels first."""
    ordered = sorted(result.labels, key=lambda e: (e.frame, e.step_id)) + sorted(result.events, key=lambda e: e.frame)
    return list(dict.fromkeys(event.step_id for event in ordered))


def plot_timeline(result: RecordingResult, procedure: Procedure, *, labelled: bool) -> Figure:
    """One recording; without labels, only when steps were recognised."""
    figure = _new_figure(_WIDTH_INCHES, 1.2 + _ROW_INCHES * max(len(_steps_of(result)), 2))
    _draw_timeline(figure.subplots(), result, procedure, labelled=labelled)
    if labelled:
        _draw_legend(figure, None)
    return figure


def _draw_timeline(axis: Axes, result: RecordingResult, procedure: Procedure, *, labelled: bool = True) -> None:
    """A row per step: a bar where it was completed, a dot where it was recognised, the delay as a line between."""
    row = {step_id: i for i, step_id in enumerate(_steps_of(result))}
    scores = result.by_definition
    for match in scores.matches:
        both = [match.label_frame / result.fps, match.event_frame / result.fps]
        axis.plot(both, [row[match.step_id]] * 2, color=_RECOGNISED, alpha=0.35)
    points = {
        "recognised": [(m.event_frame, m.step_id) for m in scores.matches],
        "completed": [(m.label_frame, m.step_id) for m in scores.matches],
        "completed, never recognised": [(e.frame, e.step_id) for e in scores.unmatched_labels],
        "false alarm": [(e.frame, e.step_id) for e in scores.unmatched_events],
    }
    if not labelled:
        points = {"recognised": [(event.frame, event.step_id) for event in result.events]}
    for name, found in points.items():
        times = [frame / result.fps for frame, _ in found]
        axis.scatter(times, [row[step_id] for _, step_id in found], clip_on=False, **_STYLES[name])
    axis.set_yticks(range(len(row)), [procedure.step(step_id).description for step_id in row], fontsize=7)
    axis.set_ylim(max(len(row), 1) - 0.4, -0.6)
    last = max((event.frame for event in (*result.labels, *result.events)), default=0)
    axis.set_xlim(0, max(last / result.fps * 1.03, 1.0))
    axis.set_xlabel("seconds", fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    scored = result.scores
    figures = f"POS {number(scored.pos)}   F1 {number(scored.f1)}   tau {seconds(scored.delay_seconds)}"
    axis.set_title(f"{result.name}   {figures}" if labelled else result.name, loc="left", fontsize=9)
    axis.grid(axis="x", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


_MOST_NAMED_STATES = 20


def plot_embeddings(
    embedding_FD: NDArray[Any],
    states_FC: NDArray[np.integer],
    fps: float,
    procedure: Procedure,
    path: Path,
    *,
    seed: int,
) -> None:
    """Project the embeddings of one recording with t-SNE and draw them twice, by state and by time."""
    if len(embedding_FD) < 10:
        raise InputError(f"{len(embedding_FD)} frames are too few for an image", cure="take more of the frames")
    point_F2 = _project(np.asarray(embedding_FD, dtype=np.float32), seed)
    states = [tuple(int(bit) for bit in row) for row in states_FC]
    in_order = list(dict.fromkeys(states))
    figure = _new_figure(13, 5.6)
    from matplotlib import colormaps

    by_state, by_time = figure.subplots(1, 2)
    for axis in (by_state, by_time):
        axis.plot(*point_F2.T, color="#bbbbbb", linewidth=0.4, zorder=1)  # a thin line from frame to frame
        axis.set(xticks=[], yticks=[])
    colours = colormaps["turbo"](np.linspace(0.05, 0.95, max(len(in_order), 2)))
    for i, state in enumerate(in_order):
        chosen = np.array([other == state for other in states])
        name = bit_string(state) if i < _MOST_NAMED_STATES else None
        by_state.scatter(*point_F2[chosen].T, s=14, color=colours[i], label=name, zorder=2)
    by_state.set_title(f"by state ({procedure.name}, in order of appearance)", fontsize=10)
    by_state.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    seconds_F = np.arange(len(point_F2)) / fps
    drawn = by_time.scatter(*point_F2.T, s=14, c=seconds_F, cmap="viridis", zorder=2)
    figure.colorbar(drawn, ax=by_time, label="seconds")
    by_time.set_title("by time", fontsize=10)
    _write(figure, path)


def _project(embedding_FD: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    need_packages("projecting embeddings", "plot", "sklearn")
    manifold = import_module("sklearn.manifold")
    perplexity = min(30.0, (len(embedding_FD) - 1) / 3)
    projection = manifold.TSNE(n_components=2, perplexity=perplexity, init="pca", random_state=seed)
    return np.asarray(projection.fit_transform(embedding_FD), dtype=np.float32)


_INK, _ACCENT, _PALE = "#22303c", "#1f6e8c", "#b9c4cc"


def draw_precision_recall(path: Path, precision: AveragePrecision, procedure: Procedure) -> None:
    """A thin line per class, a thick one for their mean, at an overlap of 0.5."""
    figure = _new_figure(6.4, 4.8)
    axis = figure.add_subplot()
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
    _open(axis)
    _write(figure, path, bbox_inches="tight")


def draw_confusion(path: Path, counts: NDArray[np.int64], procedure: Procedure) -> None:
    """Each column is a true class and sums to 1; classes that neither occur nor are reported are left out."""
    used = [k for k in range(len(counts)) if counts[k].any() or counts[:, k].any()]
    names = [*(state.name for state in procedure.states), ""]
    rows = ["nothing" if k == len(counts) - 1 else names[k] for k in used]
    columns = ["unreadable" if k == len(counts) - 1 else names[k] for k in used]
    chosen = counts[np.ix_(used, used)]
    shares = chosen / np.maximum(chosen.sum(axis=0, keepdims=True), 1)
    side = 2.6 + 0.34 * len(used)
    figure = _new_figure(side + 0.6, side)
    axis = figure.add_subplot()
    image = axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, j in zip(*np.nonzero(shares >= 0.005), strict=True):
        colour = "white" if shares[i, j] > 0.6 else _INK
        axis.text(j, i, f"{shares[i, j]:.2f}".lstrip("0"), ha="center", va="center", fontsize=6, color=colour)
    axis.set_xticks(range(len(used)), columns, rotation=90, fontsize=7)
    axis.set_yticks(range(len(used)), rows, fontsize=7)
    axis.set(xlabel="true state", ylabel="reported state")
    axis.set_title("Confusion, normalised per true state", loc="left", fontsize=10)
    figure.colorbar(image, ax=axis, fraction=0.04, pad=0.02)
    _write(figure, path, bbox_inches="tight")


def draw_reliability(path: Path, named: Sequence[tuple[str, Reliability]]) -> None:
    """Share of right detections against confidence, for one or several calibrations."""
    figure = _new_figure(5.2, 4.8)
    axis = figure.add_subplot()
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
    _open(axis)
    _write(figure, path, bbox_inches="tight")


# ---------------------------------------------------------------------- labels
def plot_label_distribution(statistics: LabelStatistics, procedure: Procedure, path: Path) -> None:
    """How often each step occurs: a bar per step, installations, incorrect ones and removals by colour, most first."""
    total = {step_id: max(counts.values()) for step_id, counts in statistics.steps.items()}
    in_order = sorted(total, key=lambda step_id: (-total[step_id], step_id))
    figure = _new_figure(max(5.0, 0.26 * len(in_order) + 1.5), 4.6)
    axis: Any = figure.subplots()
    kinds = {StepKind.INSTALL: _RECOGNISED, StepKind.REMOVE: _FALSE, StepKind.INCORRECT: _MISSED}
    for kind, colour in kinds.items():
        places = [at for at, step_id in enumerate(in_order) if procedure.step(step_id).kind is kind]
        heights = [total[in_order[at]] for at in places]
        axis.bar(places, heights, color=colour, width=0.8, label=f"{kind.name.lower()} ({sum(heights)})")
    for at, step_id in enumerate(in_order):
        axis.annotate(str(total[step_id]), (at, total[step_id]), ha="center", va="bottom", fontsize=6)
    names = [procedure.step(step_id).description for step_id in in_order]
    axis.set_xticks(range(len(in_order)), names, rotation=60, ha="right", fontsize=7)
    axis.set_ylabel("labels", fontsize=9)
    recordings = list(statistics.splits.values())[-1].n_recordings
    axis.set_title(f"{statistics.procedure}: steps of {counted(recordings, 'recording')}", loc="left", fontsize=10)
    axis.legend(frameon=False, fontsize=8)
    _open(axis)
    _write(figure, path)


def _open(axis: Axes) -> None:
    """A faint grid, and no lines above and to the right."""
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


# ---------------------------------------------------------------------- figures as files
def _new_figure(width: float, height: float) -> Figure:
    need_packages("drawing", "plot", "matplotlib")
    from matplotlib.figure import Figure  # no pyplot: nothing global, no screen needed

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def _write(figure: Figure, path: Path, **options: Any) -> None:
    with replacing(path) as draft:
        figure.savefig(draft, dpi=_DOTS_PER_INCH, **options)
