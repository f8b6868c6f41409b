"""The paper's fusion: the average, worked out by hand; one stream alone; and what a window does to a change.

The procedure is the lamp of conftest.py: classes 0 background, 1 nothing, 2 foot, 3 foot and pole, 4 all three parts,
5 error; steps 0, 3, 6 put the parts on, 2, 5, 8 take them off.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.decoding.fusion import DetectionFusion, EvidenceFusion, FusionSettings, TemporalFusion
from stormpsr.decoding.methods import decode
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

BACKGROUND, NOTHING, FOOT, POLE, ALL, ERROR = range(6)
QUIET = (0.0, 0.0, 0.0)


def brief(events: Iterable[StepEvent]) -> list[tuple[int, int]]:
    return [(event.frame, event.step_id) for event in events]


def watch(
    fusion: EvidenceFusion,
    n_frames: int,
    *,
    state_class: Callable[[int], int | None] = lambda frame: None,
    change: Callable[[int], tuple[float, ...] | None] = lambda frame: None,
) -> list[tuple[int, int]]:
    """Feed frames; detections have confidence 0.8."""
    events: list[StepEvent] = []
    for frame in range(n_frames):
        seen = state_class(frame)
        detections = [] if seen is None else [StateDetection(frame, seen, 0.8)]
        events += fusion.update(detections, change(frame), frame)
    return brief(events)


def window_of(states: Callable[[int], tuple[int, ...]], window: int) -> Callable[[int], tuple[float, ...]]:
    """A perfect temporal model: which components differ between the window's first frame and its last."""

    def change(frame: int) -> tuple[float, ...]:
        before, now = states(max(frame - window + 1, 0)), states(frame)
        return tuple(0.95 if a != b else 0.02 for a, b in zip(before, now, strict=True))

    return change


# ---------------------------------------------------------------------- the average
def test_both_streams_count_half(lamp: Procedure) -> None:
    fusion = EvidenceFusion(lamp, settings=FusionSettings(threshold=100.0, hold_frames=1))
    fusion.update([StateDetection(0, FOOT, 0.8)], (0.6, 0.0, 0.0), 0)
    assert fusion.evidence[0] == pytest.approx(0.5 * 0.8 + 0.5 * 0.6)
    assert fusion.evidence[1:].sum() == 0


def test_evidence_accumulates_until_the_threshold_and_starts_again_from_zero(lamp: Procedure) -> None:
    fusion = EvidenceFusion(lamp, settings=FusionSettings(threshold=2.0, hold_frames=1))
    found = watch(fusion, 5, state_class=lambda frame: FOOT, change=lambda frame: (1.0, 0.0, 0.0))
    assert found == [(2, 0)]  # 0.9, 1.8, 2.7
    assert fusion.evidence[0] == 0
    assert fusion.state == (1, 0, 0)


def test_a_frame_without_support_takes_a_quarter(lamp: Procedure) -> None:
    fusion = EvidenceFusion(lamp, settings=FusionSettings(threshold=100.0))
    fusion.update([StateDetection(0, FOOT, 0.8)], None, 0)
    fusion.update([], None, 1)
    assert fusion.evidence[0] == pytest.approx(0.4 * 0.75)


def test_background_and_error_detections_support_nothing(lamp: Procedure) -> None:
    fusion = EvidenceFusion(lamp, settings=FusionSettings(threshold=0.1))
    assert watch(fusion, 4, state_class=lambda frame: BACKGROUND if frame % 2 else ERROR) == []


def test_a_temporal_prediction_counts_until_the_next_one_is_due(lamp: Procedure) -> None:
    fusion = EvidenceFusion(lamp, settings=FusionSettings(threshold=100.0, hold_frames=4))
    watch(fusion, 8, change=lambda frame: (0.8, 0.0, 0.0) if frame == 0 else None)
    assert fusion.evidence[0] == pytest.approx(4 * 0.5 * 0.8 * 0.75**4)


def test_a_probability_below_the_bar_says_nothing(lamp: Procedure) -> None:
    fusion = EvidenceFusion(lamp, settings=FusionSettings(threshold=0.1))
    assert watch(fusion, 20, change=lambda frame: (0.5, 0.4, 0.1)) == []


def test_the_share_shows_how_far_a_step_is(lamp: Procedure) -> None:
    fusion = EvidenceFusion(lamp, settings=FusionSettings(threshold=4.0))
    fusion.update([StateDetection(0, FOOT, 0.8)], None, 0)
    assert fusion.share[0] == pytest.approx(0.1)
    assert not fusion.share[1:].any()


# ---------------------------------------------------------------------- one stream alone
@given(
    rows=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5), st.floats(0.05, 1.0)), max_size=60),
    threshold=st.sampled_from([0.5, 1.0, 4.0]),
)
def test_detections_alone_are_the_baseline_b3(
    lamp: Procedure, rows: list[tuple[int, int, float]], threshold: float
) -> None:
    detections = [StateDetection(*row) for row in sorted(rows, key=lambda row: row[0])]
    by_frame: dict[int, list[StateDetection]] = defaultdict(list)
    for detection in detections:
        by_frame[detection.frame].append(detection)
    fusion = DetectionFusion(lamp, settings=FusionSettings(threshold=threshold))
    found = [event for frame in range(61) for event in fusion.update(by_frame[frame], None, frame)]
    assert brief(found) == brief(decode(detections, lamp, n_frames=61, threshold=threshold))


def test_detections_alone_equal_the_golden_b3(golden: Callable[[str], list[dict[str, Any]]]) -> None:
    for case in golden("decoders"):
        by_frame: dict[int, list[StateDetection]] = defaultdict(list)
        for row in case["detections"]:
            by_frame[row[0]].append(StateDetection(*row))
        settings = FusionSettings(threshold=case["cum_conf_threshold"], decay=case["decay"])
        fusion = DetectionFusion(Procedure.load(case["dataset"]), case["procedure"], settings)
        found = [event for n in range(case["n_frames"]) for event in fusion.update(by_frame[n], None, n)]
        assert [[event.frame, event.step_id] for event in found] == case["expected"]["expected"]


def test_the_temporal_stream_alone_does_not_look_at_detections(lamp: Procedure) -> None:
    fusion = TemporalFusion(lamp, settings=FusionSettings(threshold=1.0, hold_frames=1))
    assert watch(fusion, 10, state_class=lambda frame: ALL) == []
    assert fusion.evidence.sum() == 0


# ---------------------------------------------------------------------- what a window does to a change
WINDOW = 40
TEMPORAL = FusionSettings(threshold=3.0, hold_frames=1, window_frames=WINDOW, unexpected="report")


def foot_between(on: int, off: int = 10**6, on_again: int = 10**6) -> Callable[[int], tuple[int, ...]]:
    return lambda frame: (int(on <= frame < off or frame >= on_again), 0, 0)


def test_a_change_is_reported_once_and_not_taken_for_its_own_removal(lamp: Procedure) -> None:
    found = watch(TemporalFusion(lamp, settings=TEMPORAL), 200, change=window_of(foot_between(30), WINDOW))
    assert found == [(33, 0)]  # 0.95 per frame from frame 30 on


def test_a_removal_long_after_the_installation_is_seen(lamp: Procedure) -> None:
    found = watch(TemporalFusion(lamp, settings=TEMPORAL), 300, change=window_of(foot_between(30, 150), WINDOW))
    assert found == [(33, 0), (153, 2)]


def test_a_removal_soon_after_the_installation_is_seen_once_the_installation_has_left_the_window(
    lamp: Procedure,
) -> None:
    found = watch(TemporalFusion(lamp, settings=TEMPORAL), 300, change=window_of(foot_between(30, 50), WINDOW))
    assert [step for _, step in found] == [0, 2]
    assert found[1][0] == found[0][0] + WINDOW + 3  # silent for a window, then evidence for three frames


def test_a_removal_and_the_reinstallation_are_both_seen(lamp: Procedure) -> None:
    states = foot_between(30, 150, 170)
    found = watch(TemporalFusion(lamp, settings=TEMPORAL), 400, change=window_of(states, WINDOW))
    assert [step for _, step in found] == [0, 2, 0]
    assert all(event >= truth for (event, _), truth in zip(found, (30, 150, 170), strict=True))


def test_a_change_that_the_detector_reported_first_is_no_news_to_the_temporal_stream(lamp: Procedure) -> None:
    settings = replace(TEMPORAL, threshold=1.0)
    perfect = window_of(foot_between(30), WINDOW)
    found = watch(
        EvidenceFusion(lamp, settings=settings),
        200,
        state_class=lambda frame: FOOT if 31 <= frame < 36 else None,
        change=lambda frame: perfect(frame) if frame >= 36 else QUIET,
    )
    assert found == [(33, 0)]


@given(
    on=st.integers(0, 80),
    lag=st.integers(0, 30),
    gap=st.integers(5, 120),
)
def test_a_late_or_early_report_never_makes_a_step_toggle(lamp: Procedure, on: int, lag: int, gap: int) -> None:
    """Whatever the delay of the temporal model, one installation is one event."""
    perfect = window_of(foot_between(on), WINDOW)
    late = lambda frame: perfect(frame - lag) if frame >= lag else QUIET  # noqa: E731
    settings = replace(TEMPORAL, window_frames=WINDOW)
    found = watch(TemporalFusion(lamp, settings=settings), on + lag + WINDOW + gap, change=late)
    assert [step for _, step in found] in ([0], [])


# ---------------------------------------------------------------------- expected and unexpected, settings, errors
def test_unexpected_steps_are_dropped_or_reported(lamp: Procedure) -> None:
    perfect = window_of(foot_between(30, 150), WINDOW)
    kept = watch(TemporalFusion(lamp, settings=replace(TEMPORAL, unexpected="drop")), 300, change=perfect)
    assert kept == [(33, 0)]


def test_removals_can_be_given_a_higher_bar(lamp: Procedure) -> None:
    perfect = window_of(foot_between(30, 150), WINDOW)
    strict = replace(TEMPORAL, removal_factor=3.0)
    found = watch(TemporalFusion(lamp, settings=strict), 300, change=perfect)
    assert found == [(33, 0), (150 + 9, 2)]  # 0.95 per frame, more than 9


def test_reset_forgets_everything(lamp: Procedure) -> None:
    fusion = TemporalFusion(lamp, settings=TEMPORAL)
    perfect = window_of(foot_between(10, 60), WINDOW)
    first = watch(fusion, 150, change=perfect)
    fusion.reset()
    assert watch(fusion, 150, change=perfect) == first


def test_the_evidence_that_is_shown_cannot_be_changed_from_outside(lamp: Procedure) -> None:
    fusion = EvidenceFusion(lamp)
    fusion.evidence[:] = 99
    assert fusion.evidence.sum() == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [((0.1, 0.2), "2 probabilities for 3"), ((0.1, 0.2, 1.5), "between 0 and 1"), ((0.1, np.nan, 0.2), "between 0")],
)
def test_probabilities_that_cannot_be_are_refused(lamp: Procedure, change: tuple[float, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        EvidenceFusion(lamp).update([], change, 0)


def test_frames_must_come_in_order(lamp: Procedure) -> None:
    fusion = EvidenceFusion(lamp)
    fusion.update([], None, 5)
    with pytest.raises(InputError, match="frame 5 after frame 5"):
        fusion.update([], None, 5)


def test_a_class_that_does_not_exist_is_refused(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="state class 9 does not exist"):
        EvidenceFusion(lamp).update([StateDetection(0, 9, 0.5)], None, 0)


@pytest.mark.parametrize(
    "wrong",
    [{"threshold": "high"}, {"decay": 1.5}, {"threshold": -1}, {"window_frames": 0}, {"unexpected": "maybe"}],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        FusionSettings(**wrong)
