"""Scores of clips, on cases that can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score as reference

from stormpsr.errors import InputError
from stormpsr.evaluation.clip_metrics import average_precision, score_clips

# four clips of three components; the third never changes
SAID = np.array([[0.9, 0.1, 0.2], [0.8, 0.7, 0.1], [0.2, 0.3, 0.1], [0.1, 0.1, 0.6]])
TRUE = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0]])
AFTER = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 0]])


def test_f1_counts_all_clips_and_components_together() -> None:
    scores = score_clips(SAID, TRUE, AFTER)  # two hits, two false alarms, one miss
    assert scores.f1 == pytest.approx(2 * 2 / (2 * 2 + 2 + 1))
    assert (scores.n_clips, scores.n_changes) == (4, 3)


def test_a_component_that_never_changes_has_no_f1() -> None:
    assert score_clips(SAID, TRUE, AFTER).f1_per_component == (pytest.approx(0.5), 1.0, None)


def test_installations_and_removals_are_told_apart_by_how_the_clip_ends() -> None:
    scores = score_clips(SAID, TRUE, AFTER)
    assert scores.recall_of_installations == 0.5  # component 0 in clips 0 (found) and 2 (missed)
    assert scores.recall_of_removals == 1.0  # component 1 in clip 1
    assert score_clips(SAID, TRUE, np.ones_like(AFTER)).recall_of_removals is None


def test_average_precision_is_the_mean_precision_at_the_hits() -> None:
    confidence, true = np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, False, True, False])
    assert average_precision(confidence, true) == pytest.approx((1 / 1 + 2 / 3) / 2)
    assert average_precision(confidence, np.zeros(4, dtype=bool)) is None


def test_equal_confidences_share_a_place_so_their_order_does_not_matter() -> None:
    assert average_precision(np.full(4, 0.5), np.array([True, False, False, False])) == pytest.approx(0.25)
    assert average_precision(np.full(4, 0.5), np.array([False, False, False, True])) == pytest.approx(0.25)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_average_precision_agrees_with_the_usual_library(rows: list[tuple[int, bool]]) -> None:
    confidence, true = np.array([c / 5 for c, _ in rows]), np.array([t for _, t in rows])
    if true.any():
        assert average_precision(confidence, true) == pytest.approx(reference(true, confidence))


def test_arrays_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(InputError, match="shapes differ"):
        score_clips(SAID, TRUE[:3], AFTER)
