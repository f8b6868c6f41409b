"""Percepts: short gaps are bridged, long ones fade, tables keep everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stormpsr.data.events import StateDetection
from stormpsr.decoding.fusion import DetectionFusion, EvidenceFusion, FusionSettings
from stormpsr.decoding.fusion_released import ReleasedFusion
from stormpsr.decoding.methods import make_decoder
from stormpsr.decoding.predictions import N_OUTPUTS, GapFiller, Prediction, PredictionDecoder, PredictionTable
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

FOOT = 2


def seen(tick: int, state_class: int | None = FOOT, change: tuple[float, ...] | None = None) -> Prediction:
    detections = () if state_class is None else (StateDetection(tick, state_class, 0.75, (1.0, 2.0, 3.0, 4.0)),)
    return Prediction(tick, 3 * tick, tick / 10, detections, None if change is None else np.array(change, np.float32))


def unseen(tick: int) -> Prediction:
    return Prediction(tick, 3 * tick, tick / 10)


# ---------------------------------------------------------------------- gaps
def test_a_short_gap_is_filled_with_what_was_seen_last() -> None:
    gaps = GapFiller(detection_hold=4, gap_ticks=3)
    list(gaps.fill(seen(0)))
    ticks = list(gaps.fill(seen(4, None)))
    assert [each.tick for each in ticks] == [1, 2, 3, 4]
    assert [len(each.detections or ()) for each in ticks] == [1, 1, 1, 0]


def test_a_long_gap_is_left_out() -> None:
    gaps = GapFiller(detection_hold=4, gap_ticks=3)
    list(gaps.fill(seen(0)))
    assert [each.tick for each in gaps.fill(seen(5))] == [5]


def test_a_detection_counts_until_the_detector_looks_again() -> None:
    gaps = GapFiller(detection_hold=2)
    shown = [
        len(each.detections or ()) for p in (seen(0), unseen(1), unseen(2), seen(3, None)) for each in gaps.fill(p)
    ]
    assert shown == [1, 1, 0, 0]
    gaps.reset()
    assert [each.detections for each in gaps.fill(unseen(1))] == [()]


def test_a_filler_that_holds_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="count for 0 ticks"):
        GapFiller(detection_hold=0)


def test_events_carry_the_number_and_time_of_the_frame_that_brought_them(lamp: Procedure) -> None:
    fusion = DetectionFusion(lamp, "build", FusionSettings(threshold=2.0))
    decoder = PredictionDecoder(fusion, GapFiller(detection_hold=4, gap_ticks=3))
    assert decoder.update(seen(0)) == []
    assert fusion.share[0] == 0.375
    (event,) = decoder.update(seen(4, None))  # 0.75 in ticks 0, 1, 2: the third completes it, the fourth frame tells
    assert (event.step_id, event.frame, event.time_seconds) == (0, 12, 0.4)
    assert fusion.state == (1, 0, 0)


def test_time_without_images_is_time_without_support(lamp: Procedure) -> None:
    settings = FusionSettings(threshold=100.0)
    with_images, without = EvidenceFusion(lamp, "build", settings), EvidenceFusion(lamp, "build", settings)
    for fusion in (with_images, without):
        fusion.update([StateDetection(0, FOOT, 1.0)], None, 0)
    for frame in range(1, 8):
        with_images.update([], None, frame)
    without.rest(8)
    np.testing.assert_allclose(without.evidence, with_images.evidence)
    assert without.evidence[0] == pytest.approx(0.5 * 0.75**7)
    without.rest(3)  # that time has passed already
    without.update([], None, 8)


# ---------------------------------------------------------------------- the published program behind the same interface
def test_the_released_method_is_the_published_program(lamp: Procedure) -> None:
    fusion = make_decoder(lamp, "build", "released", threshold=1.0, window_frames=32)
    assert isinstance(fusion, ReleasedFusion)
    assert fusion.state == (0, 0, 0)
    events = [e for frame in range(4) for e in fusion.update([StateDetection(frame, FOOT, 0.9)], (0.9, 0, 0), frame)]
    assert [event.step_id for event in events] == [0]
    assert fusion.state == (1, 0, 0)
    fusion.update([StateDetection(4, 3, 0.9)], None, 4)
    assert fusion.evidence[3] == pytest.approx(0.9)  # the streams share one array: nothing is averaged
    assert fusion.share[3] == pytest.approx(0.9)
    fusion.rest(10_000)
    assert fusion.evidence[3] < 1e-6
    fusion.update([], None, 10_000)


def test_detections_that_are_not_sure_enough_are_not_heard(lamp: Procedure) -> None:
    fusion = DetectionFusion(lamp, "build", FusionSettings(min_detection_confidence=0.5))
    fusion.update([StateDetection(0, FOOT, 0.49)], None, 0)
    assert not fusion.evidence.any()
    fusion.update([StateDetection(1, FOOT, 0.5)], None, 1)
    assert fusion.evidence[0] == 0.5


# ---------------------------------------------------------------------- tables
def test_a_table_gives_back_what_went_in(tmp_path: Path, lamp: Procedure) -> None:
    given = [seen(0, change=(0.25, 0.5, 1.0)), unseen(1), seen(2, None), seen(4)]
    PredictionTable.of(given, lamp.n_components).save(tmp_path / "a" / "table.npz", "a test")
    table = PredictionTable.load(tmp_path / "a" / "table.npz", "a test")
    assert table is not None
    assert len(table) == 4
    for ours, theirs in zip(table, given, strict=True):
        assert (ours.tick, ours.index, ours.time_seconds) == (theirs.tick, theirs.index, theirs.time_seconds)
        assert ours.detections == theirs.detections
        assert ours.box == theirs.box
        assert (ours.change_C is None) == (theirs.change_C is None)
    first = next(iter(table))
    assert first.change_C is not None
    np.testing.assert_array_equal(first.change_C, [0.25, 0.5, 1.0])


def test_a_table_of_something_else_is_not_taken(tmp_path: Path, lamp: Procedure) -> None:
    path = tmp_path / "table.npz"
    PredictionTable.of([unseen(0)], lamp.n_components).save(path, "another model")
    assert PredictionTable.load(path, "this model") is None
    assert PredictionTable.load(tmp_path / "absent.npz", "this model") is None
    path.write_bytes(path.read_bytes()[:100])
    assert PredictionTable.load(path, "another model") is None


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tick_P", lambda array: array[:1]),
        ("change_EC", lambda array: array[:, :2]),
        ("change_EC", lambda array: array * np.nan),
        ("detection_row_M", lambda array: array + 99),
        ("detection_class_M", lambda array: array - 9),
        ("detection_confidence_M", lambda array: array + 2),
        ("outputs_UCF", lambda array: array + np.inf),
        ("time_P", lambda array: array.astype("U4")),
    ],
)
def test_a_table_whose_arrays_do_not_belong_together_is_made_anew(
    tmp_path: Path, name: str, change: Callable[[Any], Any]
) -> None:
    seen = (StateDetection(0, 1, 0.5, (1, 2, 3, 4)),)
    outputs_CF = np.zeros((3, N_OUTPUTS), np.float32)
    table = PredictionTable.of([Prediction(k, k, k / 10, seen, np.full(3, 0.5), outputs_CF) for k in range(4)], 3)
    table.save(tmp_path / "a.npz", "these networks")
    assert PredictionTable.load(tmp_path / "a.npz", "these networks") is not None
    replace(table, **{name: change(getattr(table, name))}).save(tmp_path / "a.npz", "these networks")
    assert PredictionTable.load(tmp_path / "a.npz", "these networks") is None
