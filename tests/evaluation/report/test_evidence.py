"""Evidence as outlines."""

from __future__ import annotations

import re

import numpy as np
import pytest

from stormpsr.evaluation.report.evidence import HEIGHT, WIDTH, outlines


def points(path: str) -> list[tuple[float, float]]:
    numbers = [float(text) for text in re.findall(r"[\d.]+", path)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_a_rise_is_one_outline_with_its_peak() -> None:
    evidence_GS = np.zeros((10, 3))
    evidence_GS[2:5, 1] = [0.5, 0.75, 1.0]
    (outline,) = outlines(evidence_GS)
    assert (outline.step_id, outline.first, outline.last, outline.peak, outline.peak_at) == (1, 0.2, 0.5, 1.0, 0.45)
    assert points(outline.path) == [(200, 100), (250, 50), (450, 0), (500, 100)]  # (350, 25) lies on the way


def test_two_rises_of_a_step_are_two_outlines_in_order() -> None:
    evidence_GS = np.zeros((10, 3))
    evidence_GS[[1, 7], 2] = 0.6
    evidence_GS[4, 0] = 0.9
    assert [outline.step_id for outline in outlines(evidence_GS)] == [2, 0, 2]


def test_what_never_comes_near_the_threshold_is_left_out() -> None:
    assert outlines(np.full((10, 3), 0.15)) == []


def test_a_single_peak_survives_a_long_recording() -> None:
    evidence_GS = np.zeros((20_003, 2), np.float16)
    evidence_GS[12_345, 1] = 0.8
    (outline,) = outlines(evidence_GS)
    assert outline.peak == pytest.approx(0.8, abs=1e-3)
    assert outline.peak_at == pytest.approx(12_345 / 20_003, abs=0.003)


def test_an_outline_stays_small_and_inside_whatever_the_evidence() -> None:
    noise_GS = np.random.default_rng(0).uniform(-1, 3, size=(50_000, 1))
    noise_GS[::97] = np.nan
    noise_GS[::89] = np.inf
    found = outlines(noise_GS)
    assert found
    assert sum(len(outline.path) for outline in found) < 20_000
    for outline in found:
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points(outline.path))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (5, 0), (4,)])
def test_no_evidence_has_no_outlines(shape: tuple[int, ...]) -> None:
    assert outlines(np.zeros(shape)) == []
