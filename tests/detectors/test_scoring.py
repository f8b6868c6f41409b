"""Scores of a detector, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stormpsr.data.annotated_frames import AnnotatedFrame
from stormpsr.data.boxes import Box
from stormpsr.data.sources import ImageFolder
from stormpsr.detectors.base import Detection
from stormpsr.detectors.predict import PredictedFrame, confidence_and_success
from stormpsr.evaluation.detection_metrics import (
    View,
    accuracy_by_visibility,
    average_precision,
    confusion_matrix,
    score_detections,
    score_parts,
    score_silence,
    score_wrong_parts,
)
from stormpsr.procedure.model import Procedure, StateBits

BOX = (10.0, 20.0, 40.0, 30.0)  # of every assembly in these tests
APART = (80.0, 60.0, 10.0, 10.0)
_BITS: dict[int, StateBits] = {1: (0, 0, 0), 2: (1, 0, 0), 3: (1, 1, 0), 4: (1, 1, 1), 5: (1, 1, -1)}


def detection(
    state_class: int, confidence: float = 0.9, box: tuple[float, ...] = BOX, wrong: int | None = None
) -> Detection:
    parts = None
    if wrong is not None:
        parts = np.tile(np.array([0.1, 0.8, 0.1], dtype=np.float32), (3, 1))
        parts[wrong] = (0.1, 0.2, 0.7)
    return Detection(Box.from_xywh(*box), state_class, confidence, parts)


def seen(true_class: int | None, *detections: Detection, frame: int = 0) -> PredictedFrame:
    known = () if true_class is None else (Box.from_xywh(*BOX), true_class, _BITS[true_class])
    source = ImageFolder.of(Path("rgb"), {frame: Path("x.png")})
    return PredictedFrame(AnnotatedFrame("01", frame, source, *known), 100, 100, detections)


# ---------------------------------------------------------------------- average precision
def test_a_perfect_detector_has_an_average_precision_of_one(lamp: Procedure) -> None:
    precision = average_precision([seen(k, detection(k)) for k in (1, 2, 3, 4, 5)], lamp)
    assert (precision.map50, precision.map50_95) == (1.0, 1.0)
    assert set(precision.ap50_by_class) == {1, 2, 3, 4, 5}


def test_classes_that_do_not_occur_do_not_count(lamp: Procedure) -> None:
    precision = average_precision([seen(1, detection(1)), seen(2, detection(3))], lamp)
    assert precision.ap50_by_class == {1: 1.0, 2: 0.0}
    assert precision.map50 == 0.5


def test_a_box_that_overlaps_by_two_thirds_counts_at_fifty_but_not_at_seventy(lamp: Procedure) -> None:
    higher = (10.0, 20.0, 40.0, 20.0)  # two thirds of the true box: right at 0.50, 0.55, 0.60, 0.65
    precision = average_precision([seen(1, detection(1, box=higher))], lamp)
    assert precision.map50 == 1.0
    assert precision.map50_95 == pytest.approx(0.4)


def test_detections_in_unreadable_frames_cost_precision_when_all_frames_count(lamp: Procedure) -> None:
    frames = [seen(1, detection(1, 0.5)), seen(None, detection(1, 0.9))]
    scores = score_detections(frames, lamp, min_confidence=0.5)
    assert scores.map50 == 1.0
    assert scores.map50_all == pytest.approx(0.5)
    assert scores.false_detections == 1.0


def test_a_detector_that_says_nothing_scores_nothing(lamp: Procedure) -> None:
    scores = score_detections([seen(1), seen(2), seen(None)], lamp, min_confidence=0.5)
    assert (scores.map50, scores.map50_95, scores.state_accuracy, scores.found) == (0.0, 0.0, 0.0, 0.0)
    assert scores.false_detections == 0.0


# ---------------------------------------------------------------------- states
def test_weak_detections_count_for_the_state_but_not_as_found(lamp: Procedure) -> None:
    frames = [seen(1, detection(1, 0.9)), seen(2, detection(2, 0.3)), seen(3, detection(4, 0.9)), seen(4)]
    scores = score_detections(frames, lamp, min_confidence=0.5)
    assert scores.state_accuracy == 0.5
    assert scores.found == 0.25


def test_a_detection_is_right_only_with_class_and_place() -> None:
    frame = seen(2, detection(2), detection(3), detection(2, box=APART))
    assert [frame.is_right(found) for found in frame.detections] == [True, False, False]
    assert not seen(None, detection(2)).is_right(detection(2))


def test_confidence_and_success_speak_of_the_best_detection_of_each_frame() -> None:
    confidences, right = confidence_and_success([seen(1, detection(1, 0.8)), seen(1), seen(None, detection(1, 0.6))])
    assert confidences.tolist() == [0.8, 0.6]
    assert right.tolist() == [True, False]


def test_the_confusion_matrix_has_a_place_for_silence_and_one_for_unreadable_frames(lamp: Procedure) -> None:
    frames = [seen(1, detection(2)), seen(1, detection(1, 0.2)), seen(None, detection(4)), seen(None)]
    counts = confusion_matrix(frames, lamp, 0.5)
    nothing = len(lamp.states)
    assert counts[2, 1] == 1
    assert counts[nothing, 1] == 1
    assert counts[4, nothing] == 1
    assert counts[nothing, nothing] == 1
    assert counts.sum() == 4


# ---------------------------------------------------------------------- wrong parts
def test_wrong_parts_are_counted_as_reported_missed_and_falsely_alarmed(lamp: Procedure) -> None:
    frames = [
        seen(5, detection(5, wrong=2)),
        seen(5, detection(4, wrong=0)),
        seen(5),
        seen(4, detection(5, wrong=2)),
        seen(3, detection(3, wrong=2)),
    ]
    wrong = score_wrong_parts(frames, lamp)
    assert (wrong.n_wrong, wrong.n_wrong_reported, wrong.n_wrong_read_as_correct) == (3, 1, 1)
    assert (wrong.n_correct, wrong.n_false_alarms) == (2, 1)
    assert wrong.n_culprit_named == 1
    assert wrong.recall == pytest.approx(1 / 3)
    assert wrong.false_alarm_rate == 0.5


def test_without_wrong_parts_there_is_no_recall_to_report(lamp: Procedure) -> None:
    wrong = score_wrong_parts([seen(1, detection(1))], lamp)
    assert wrong.recall is None
    assert wrong.n_culprit_named is None


# ---------------------------------------------------------------------- visibility
def view(
    visible: float, readable: bool, state_class: int | None, bits: StateBits = (0, 0, 0), shown: float = 1.0
) -> View:
    return View(visible, readable, state_class, bits, np.full(3, shown, dtype=np.float32))


def test_single_parts_are_scored_by_how_much_of_each_shows(lamp: Procedure) -> None:
    frames = [seen(5, detection(5, wrong=2), frame=0), seen(5, detection(5, wrong=0), frame=1), seen(None, frame=2)]
    views = {
        ("01", 0): View(1.0, True, 5, (1, 1, -1), np.array([1.0, 0.8, 0.9], dtype=np.float32)),
        ("01", 1): View(1.0, True, 5, (1, 0, -1), np.array([1.0, 0.2, 0.5], dtype=np.float32)),
        ("01", 2): View(1.0, True, 5, (1, 0, -1), np.ones(3, dtype=np.float32)),
    }
    low, middle, high = score_parts(frames, views, edges=(0.0, 0.4, 0.75, 1.0))
    assert (low.n_absent, low.n_correct, low.n_wrong) == (1, 0, 0)
    assert (low.absent, low.correct, low.wrong_at_1_percent) == (0.0, None, None)
    assert (middle.wrong, middle.wrong_as_correct) == (0.0, 1.0)
    assert (high.n_correct, high.n_wrong) == (3, 1)
    assert high.wrong == 1.0
    assert high.correct == pytest.approx(2 / 3)
    assert high.correct_as_wrong == pytest.approx(1 / 3)
    assert high.wrong_at_1_percent == 1.0
    assert score_parts([seen(5, detection(5))], views) == [], "it reads no single parts"


def test_readings_of_parts_count_however_weak_the_detection(lamp: Procedure) -> None:
    frames = [seen(4, detection(4), frame=0), seen(None, detection(4, 0.001, wrong=2), frame=1)]
    views = {("01", 0): view(1.0, True, 4), ("01", 1): view(0.1, False, 4, (1, 1, -1))}
    scores = score_detections(frames, lamp, min_confidence=0.5, views=views)
    assert sum(row.n_wrong for row in scores.parts) == 1
    assert scores.map50_all == 1.0, "it is too weak to be a detection"
    assert "parts" in scores.to_dict()


def test_accuracy_is_told_apart_by_what_shows() -> None:
    frames = [
        seen(4, detection(4), frame=0),
        seen(None, detection(4, 0.6), frame=1),
        seen(None, detection(2, 0.2), frame=2),
        seen(None, frame=3),
        seen(None, detection(3), frame=4),
    ]
    views = {
        ("01", 0): view(1.0, True, 4),
        ("01", 1): view(0.6, False, 4),
        ("01", 2): view(0.6, False, 3),
        ("01", 3): view(0.1, False, 3),
        ("01", 4): view(0.95, True, None),
    }
    rows = accuracy_by_visibility(frames, views, 0.5, edges=(0.0, 0.5, 0.9, 1.0))
    assert [row.n_frames for row in rows] == [1, 2, 1]
    assert [row.reported for row in rows] == [0.0, 0.5, 1.0]
    assert [row.right_of_reported for row in rows] == [None, 1.0, 1.0]
    assert [row.right for row in rows] == [0.0, 0.5, 1.0]
    silence = score_silence(frames, views, 0.5)
    assert (silence.n_obstructed, silence.n_unlisted) == (3, 1)
    assert silence.fired_obstructed == pytest.approx(1 / 3)
    assert silence.fired_obstructed_wrong == 0.0
    assert silence.fired_unlisted == 1.0
