"""What the nearest known frame says about a frame's state."""

from __future__ import annotations

import numpy as np
import pytest

from stormpsr.errors import InputError
from stormpsr.evaluation.neighbours import nearest_states, score_neighbours

KNOWN = np.array([[1.0, 0.0], [0.0, 1.0]])
KNOWN_STATES = np.array([[1, 0], [1, -1]])


def test_the_nearest_frame_is_the_one_at_the_smallest_angle_whatever_the_lengths() -> None:
    asked = np.array([[0.1, 0.01], [3.0, 9.0]], dtype=np.float16)
    assert nearest_states(asked, KNOWN, KNOWN_STATES).tolist() == [[1, 0], [1, -1]]


def test_many_frames_are_answered_in_parts_like_few() -> None:
    rng = np.random.default_rng(0)
    asked = rng.standard_normal((2500, 2))
    whole = nearest_states(asked, KNOWN, KNOWN_STATES)
    np.testing.assert_array_equal(whole[:10], nearest_states(asked[:10], KNOWN, KNOWN_STATES))
    assert len(whole) == 2500


def test_accuracy_is_counted_in_groups_of_visibility() -> None:
    guess = np.array([[1, 0], [1, 0], [1, -1], [0, 0]])
    truth = np.array([[1, 0], [1, 1], [1, -1], [1, 0]])
    hidden, half, clear = score_neighbours(guess, truth, np.array([0.2, 0.6, 0.95, 1.0]))
    assert (hidden.n_frames, hidden.state_accuracy, hidden.component_accuracy) == (1, 1.0, 1.0)
    assert (half.n_frames, half.state_accuracy, half.component_accuracy) == (1, 0.0, 0.5)
    assert (clear.n_frames, clear.state_accuracy, clear.accuracy_per_component) == (2, 0.5, (0.5, 1.0))


def test_an_empty_group_has_no_accuracy() -> None:
    states = np.zeros((1, 2), dtype=int)
    groups = score_neighbours(states, states, np.array([0.1]))
    assert [group.state_accuracy for group in groups] == [1.0, None, None]


def test_nothing_known_is_refused() -> None:
    with pytest.raises(InputError, match="no known frames"):
        nearest_states(KNOWN, KNOWN[:0], KNOWN_STATES[:0])
