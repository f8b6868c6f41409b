"""What embeddings know: the state of the nearest known frame, against the truth, by how much of the object shows.

Shape legend: F frames asked about, K known frames, D dimensions, C components.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError

_FRAMES_AT_ONCE = 1024


@dataclass(frozen=True)
class NeighbourScores:
    """Accuracy of the nearest neighbour in a group of frames. None where the group is empty."""

    least_visible: float  # of the group: at least this share of the object can be seen
    most_visible: float  # and less than this
    n_frames: int
    state_accuracy: float | None  # all components right
    component_accuracy: float | None  # over all frames and components
    accuracy_per_component: tuple[float, ...] | None


def nearest_states(embedding_FD: NDArray[Any], known_KD: NDArray[Any], known_states_KC: NDArray[Any]) -> NDArray[Any]:
    """For each frame, the state of the known frame whose embedding has the largest cosine with its own."""
    if not len(known_KD):
        raise InputError("there are no known frames to compare with")
    known = _unit_length(known_KD)
    found = [
        (_unit_length(embedding_FD[start : start + _FRAMES_AT_ONCE]) @ known.T).argmax(axis=1)
        for start in range(0, len(embedding_FD), _FRAMES_AT_ONCE)
    ]
    return np.asarray(known_states_KC[np.concatenate(found)])


def score_neighbours(
    guess_FC: NDArray[Any], states_FC: NDArray[Any], visible_F: NDArray[Any], edges: Sequence[float] = (0.0, 0.5, 0.9)
) -> list[NeighbourScores]:
    """Accuracy in groups of frames, by the share of the object that can be seen; the last group has no upper end."""
    groups = []
    for low, high in zip(edges, [*edges[1:], np.inf], strict=True):
        chosen_F = (visible_F >= low) & (visible_F < high)
        right_FC = (guess_FC == states_FC)[chosen_F]
        n = len(right_FC)
        groups.append(
            NeighbourScores(
                least_visible=float(low),
                most_visible=float(high),
                n_frames=n,
                state_accuracy=float(right_FC.all(axis=1).mean()) if n else None,
                component_accuracy=float(right_FC.mean()) if n else None,
                accuracy_per_component=tuple(right_FC.mean(axis=0).tolist()) if n else None,
            )
        )
    return groups


def _unit_length(embedding_FD: NDArray[Any]) -> NDArray[np.float32]:
    numbers = np.asarray(embedding_FD, dtype=np.float32)
    return np.asarray(numbers / np.maximum(np.linalg.norm(numbers, axis=1, keepdims=True), 1e-12))
