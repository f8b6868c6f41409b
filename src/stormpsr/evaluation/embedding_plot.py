"""A picture of embeddings in the plane: do frames of one state lie together, and does time run through them?

Shape legend: F frames, D dimensions, C components.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError, MissingExtraError
from stormpsr.procedure import Procedure, bit_string

__all__ = ["plot_embeddings"]

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
        raise InputError(f"{len(embedding_FD)} frames are too few for a picture", cure="take more of the frames")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("drawing", "plot", "matplotlib") from error
    point_F2 = _project(np.asarray(embedding_FD, dtype=np.float32), seed)
    states = [tuple(int(bit) for bit in row) for row in states_FC]
    in_order = list(dict.fromkeys(states))
    figure = Figure(figsize=(13, 5.6), layout="constrained", facecolor="white")
    by_state, by_time = figure.subplots(1, 2)
    _draw_path(by_state, point_F2)
    colours = _spread_colours(len(in_order))
    for number, state in enumerate(in_order):
        chosen = np.array([other == state for other in states])
        name = bit_string(state) if number < _MOST_NAMED_STATES else None
        by_state.scatter(*point_F2[chosen].T, s=14, color=colours[number], label=name, zorder=2)
    by_state.set_title(f"by state ({procedure.name}, in order of appearance)", fontsize=10)
    by_state.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    _draw_path(by_time, point_F2)
    seconds_F = np.arange(len(point_F2)) / fps
    drawn = by_time.scatter(*point_F2.T, s=14, c=seconds_F, cmap="viridis", zorder=2)
    figure.colorbar(drawn, ax=by_time, label="seconds")
    by_time.set_title("by time", fontsize=10)
    for axis in (by_state, by_time):
        axis.set_xticks([])
        axis.set_yticks([])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _project(embedding_FD: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    try:
        manifold = import_module("sklearn.manifold")
    except ImportError as error:
        raise MissingExtraError("projecting embeddings", "plot", "scikit-learn") from error
    perplexity = min(30.0, (len(embedding_FD) - 1) / 3)
    projection = manifold.TSNE(n_components=2, perplexity=perplexity, init="pca", random_state=seed)
    return np.asarray(projection.fit_transform(embedding_FD), dtype=np.float32)


def _draw_path(axis: Any, point_F2: NDArray[np.float32]) -> None:
    """A thin line from frame to frame."""
    axis.plot(*point_F2.T, color="#bbbbbb", linewidth=0.4, zorder=1)


def _spread_colours(n: int) -> NDArray[np.float64]:
    from matplotlib import colormaps

    return np.asarray(colormaps["turbo"](np.linspace(0.05, 0.95, max(n, 2))))
