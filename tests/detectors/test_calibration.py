"""Confidence that means something."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpsr.detectors.base import Calibration
from stormpsr.detectors.calibration import expected_error, fit_calibration, reliability
from stormpsr.errors import InputError


def overconfident(n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes whose log odds are half of what the confidence says, less a bit."""
    rng = np.random.default_rng(0)
    logits = rng.normal(1.0, 2.5, n)
    truth = 1 / (1 + np.exp(-(logits / 2 - 0.7)))
    return 1 / (1 + np.exp(-logits)), rng.random(n) < truth


def test_the_temperature_and_the_bias_of_an_overconfident_detector_are_found() -> None:
    calibration = fit_calibration(*overconfident())
    assert calibration.temperature == pytest.approx(2.0, rel=0.15)
    assert calibration.bias == pytest.approx(-0.7, abs=0.15)


def test_calibration_brings_confidence_and_success_together() -> None:
    confidences, right = overconfident()
    before = expected_error(confidences, right)
    after = expected_error(fit_calibration(confidences, right).apply(confidences), right)
    assert before > 0.15
    assert after < 0.03


@given(st.floats(0.2, 5.0), st.floats(-3.0, 3.0), st.lists(st.floats(0.01, 0.99), min_size=2, unique=True))
def test_calibration_never_changes_the_order_and_can_be_undone(
    temperature: float, bias: float, confidences: list[float]
) -> None:
    raw = np.sort(np.array(confidences))
    calibration = Calibration(temperature, bias)
    changed = calibration.apply(raw)
    assert (np.diff(changed) >= 0).all()
    middling = (changed > 1e-5) & (changed < 1 - 1e-5)
    assert np.allclose(calibration.undo(changed)[middling], raw[middling], atol=1e-4)


def test_with_nothing_to_learn_from_confidences_are_left_alone() -> None:
    assert fit_calibration(np.array([0.9, 0.8, 0.7]), np.array([True, True, True])) == Calibration()
    assert Calibration()(0.3) == pytest.approx(0.3)


def test_outcomes_that_a_threshold_separates_perfectly_do_not_run_away() -> None:
    confidences = np.array([0.1, 0.2, 0.3, 0.7, 0.8, 0.9])
    calibration = fit_calibration(confidences, confidences > 0.5)
    assert np.isfinite(calibration.bias)
    assert calibration.temperature > 0


def test_bins_say_how_often_the_detector_was_right() -> None:
    bins = reliability(np.array([0.05, 0.95, 0.95, 1.0, 1.0]), np.array([False, True, True, True, False]))
    assert bins.count.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 4]
    assert bins.share_right[[0, 9]].tolist() == [0.0, 0.75]
    assert bins.mean_confidence[9] == pytest.approx(0.975)
    assert bins.expected_error == pytest.approx((0.05 * 1 + 0.225 * 4) / 5)


def test_a_temperature_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="temperature 0"):
        Calibration(temperature=0)
