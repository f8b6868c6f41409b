"""Many settings side by side give, event for event, what each gives alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.decoding.fusion import DetectionFusion, EvidenceFusion, FusionSettings, TemporalFusion
from stormpsr.decoding.fusion_batch import FusionGrid
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

N_FRAMES = 120


def alone(
    procedure: Procedure,
    variant: str,
    chosen: FusionSettings,
    story: list[tuple],
    method: type[EvidenceFusion] = EvidenceFusion,
) -> list[StepEvent]:
    fusion = method(procedure, variant, chosen)
    events: list[StepEvent] = []
    for frame, detections, change in story:
        fusion.rest(frame)
        events += fusion.update(detections, change, frame)
    return events


def invent(seed: int, n_components: int, n_classes: int) -> list[tuple]:
    """Detections that stay for a while, changes that come and go, and frames that are missing."""
    rng = np.random.default_rng(seed)
    story = []
    seen, change = 1, rng.random(n_components)
    for frame in range(N_FRAMES):
        if rng.random() < 0.1:
            seen = int(rng.integers(n_classes))
        if rng.random() < 0.1:
            change = rng.random(n_components)
        if rng.random() < 0.08:
            continue
        detections = [] if rng.random() < 0.3 else [StateDetection(frame, seen, float(rng.random()))]
        story.append((frame, detections, change if frame % 4 == 0 else None))
    return story


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    method=st.sampled_from([DetectionFusion, TemporalFusion, EvidenceFusion]),
    variant=st.sampled_from(["build", "dismantle"]),
    unexpected=st.sampled_from(["drop", "report"]),
    window=st.sampled_from([1, 12, 40]),
    ordered=st.booleans(),
)
def test_side_by_side_is_the_same_as_one_after_the_other(
    lamp: Procedure, seed: int, method: type[EvidenceFusion], variant: str, unexpected: str, window: int, ordered: bool
) -> None:
    rng = np.random.default_rng(seed)
    chosen = [
        FusionSettings(
            threshold=float(rng.choice([0.3, 1.0, 2.5, 5.0])),
            decay=float(rng.choice([0.0, 0.5, 0.9, 1.0])),
            min_change_probability=float(rng.choice([0.2, 0.5, 0.8])),
            removal_factor=float(rng.choice([1.0, 2.0])),
            min_detection_confidence=float(rng.choice([0.0, 0.5])),
            implied_share=[None, 0.0, 0.2, 1.0][rng.integers(4)],
            window_frames=window,
            hold_frames=6,
            unexpected=unexpected,  # type: ignore[arg-type]
        )
        for _ in range(8)
    ]
    if ordered:
        lamp = replace(lamp, order={"pole": (("foot",),), "shade": (("pole",),)})
    story = invent(seed, lamp.n_components, len(lamp.states))
    grid = FusionGrid(lamp, variant, chosen, method)
    for frame, detections, change in story:
        grid.rest(frame)
        grid.update(detections, change, frame)
    for one, events in zip(chosen, grid.events, strict=True):
        assert events == alone(lamp, variant, one, story, method)


def test_the_invented_stories_have_events(lamp: Procedure) -> None:
    found = [alone(lamp, "build", FusionSettings(threshold=1.0), invent(seed, 3, 6)) for seed in range(5)]
    assert sum(len(events) for events in found) > 5


def test_events_can_be_reported_at_the_frame_that_brought_them(lamp: Procedure) -> None:
    grid = FusionGrid(lamp, "build", [FusionSettings(threshold=0.5)], DetectionFusion)
    grid.update([StateDetection(3, 2, 0.9)], None, 3, report_as=7)
    assert [(event.frame, event.step_id) for event in grid.events[0]] == [(7, 0)]
    grid.reset()
    assert grid.events == [[]]


def test_what_cannot_stand_side_by_side_is_refused(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="no settings"):
        FusionGrid(lamp, "build", [])
    with pytest.raises(InputError, match="the same window_frames"):
        FusionGrid(lamp, "build", [FusionSettings(), FusionSettings(window_frames=8)])
    grid = FusionGrid(lamp, "build", [replace(FusionSettings(), threshold=1.0)])
    grid.update([], None, 3)
    with pytest.raises(InputError, match="frame 3 after frame 3"):
        grid.update([], None, 3)
