"""The published two-stream program: parity with its outputs, and its quirks worked out by hand.

The procedure of the hand-made cases is the lamp of conftest.py: classes 0 background, 1 nothing, 2 foot, 3 foot and
pole, 4 all three parts, 5 error; steps 0, 3, 6 put the parts on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.decoding.fusion import FusionSettings
from stormpsr.decoding.fusion_released import ReleasedFusion
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

FOOT = 2


def replay(case: dict[str, Any]) -> list[list[int]]:
    detections: dict[int, list[StateDetection]] = defaultdict(list)
    for frame, state_class, confidence in case["detections"]:
        detections[frame].append(StateDetection(frame, state_class, confidence))
    temporal = {row[0]: row[1:] for row in case["temporal"]}
    fusion = ReleasedFusion(
        Procedure.load(case["dataset"]),
        case["procedure"],
        FusionSettings(window_frames=case["window"], threshold=case["threshold"], decay=case["decay"]),
    )
    fusion.temporal_weight = case["weight"]
    events: list[StepEvent] = []
    for frame in range(case["n_frames"]):
        events += fusion.update(detections[frame], temporal.get(frame), frame)
    return [[event.frame, event.step_id] for event in events]


def test_the_published_programs_events_on_invented_labels_are_reproduced(
    golden: Callable[[str], list[dict[str, Any]]],
) -> None:
    cases = golden("released_fusion")
    assert len(cases) == 6
    for case in cases:
        assert replay(case) == case["released_code"]["merged"]


def test_the_published_programs_events_on_real_labels_are_reproduced(
    shared_golden: Callable[[str], list[dict[str, Any]]],
) -> None:
    cases = shared_golden("released_fusion")
    assert len(cases) == 3
    for case in cases:
        assert replay(case) == case["released_code"]["merged"]


def test_evidence_of_both_streams_adds_up_instead_of_being_averaged(lamp: Procedure) -> None:
    fusion = ReleasedFusion(lamp, settings=FusionSettings(window_frames=16, threshold=1.5))
    frames = [fusion.update([StateDetection(n, FOOT, 0.8)], [0.9, 0.0, 0.0], n) for n in range(2)]
    # frame 0: each stream holds its own, 0.8 and 0.9, averaged to 0.85; frame 1: 0.85 + 0.8 = 1.65 > 1.5
    assert [[event.step_id for event in events] for events in frames] == [[], [0]]


def test_a_change_that_was_reported_is_not_news_while_it_stays_in_the_window(lamp: Procedure) -> None:
    fusion = ReleasedFusion(lamp, settings=FusionSettings(window_frames=40, threshold=1.0))
    events: list[StepEvent] = []
    for frame in range(0, 40, 4):
        events += fusion.update([], [0.9, 0.1, 0.1], frame)
    # the first 0.9 is halved by the averaging and decayed by the silent detections: 0.45 * 0.75 + 0.9 > 1
    assert [(event.frame, event.step_id) for event in events] == [(4, 0)]


def test_the_temporal_stream_is_not_heard_in_a_frame_in_which_the_detections_complete_a_step(lamp: Procedure) -> None:
    fusion = ReleasedFusion(lamp, settings=FusionSettings(window_frames=16, threshold=0.5))
    events = fusion.update([StateDetection(0, FOOT, 0.9)], [0.0, 0.9, 0.0], 0)
    assert [event.step_id for event in events] == [0]


def test_reset_forgets_everything(lamp: Procedure) -> None:
    fusion = ReleasedFusion(lamp, settings=FusionSettings(window_frames=16, threshold=0.5))
    first = [fusion.update([], [0.9, 0.0, 0.0], n) for n in range(3)]
    fusion.reset()
    assert [fusion.update([], [0.9, 0.0, 0.0], n) for n in range(3)] == first


def test_a_wrong_number_of_probabilities_is_refused(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="2 probabilities for 3 components"):
        ReleasedFusion(lamp).update([], [0.1, 0.2], 0)
