"""The two small records: what they accept, and what they refuse."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from types import SimpleNamespace

import numpy as np
import pytest

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.errors import InputError


def test_an_event_cannot_be_changed() -> None:
    event = StepEvent(step_id=3, frame=10)
    with pytest.raises(FrozenInstanceError):
        event.frame = 11  # type: ignore[misc]


def test_numpy_integers_become_plain_ones() -> None:
    event = StepEvent(step_id=np.int64(3), frame=np.uint16(10))  # type: ignore[arg-type]
    assert type(event.step_id) is int
    assert type(event.frame) is int
    assert event == StepEvent(3, 10)


def test_events_are_equal_by_value_and_can_be_put_in_a_set() -> None:
    assert len({StepEvent(3, 10), StepEvent(3, 10), StepEvent(3, 11)}) == 2


@pytest.mark.parametrize("frame", [-1, 1.0, "7", None, True])
def test_a_frame_is_a_whole_number_that_is_not_negative(frame: object) -> None:
    with pytest.raises(InputError, match="frame is"):
        StepEvent(step_id=0, frame=frame)  # type: ignore[arg-type]


@pytest.mark.parametrize("step_id", [-3, 0.5, "install", False])
def test_a_step_id_is_a_whole_number_that_is_not_negative(step_id: object) -> None:
    with pytest.raises(InputError, match="step_id is"):
        StepEvent(step_id=step_id, frame=0)  # type: ignore[arg-type]


def test_an_events_confidence_may_exceed_one_because_it_is_accumulated() -> None:
    assert StepEvent(0, 0, confidence=8.5).confidence == 8.5


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "high"])
def test_an_events_confidence_and_time_must_be_finite_numbers(value: object) -> None:
    with pytest.raises(InputError, match="confidence is"):
        StepEvent(0, 0, confidence=value)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="time_seconds is"):
        StepEvent(0, 0, time_seconds=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("confidence", [0, 0.5, 1, np.float32(0.25)])
def test_a_detections_confidence_lies_between_zero_and_one(confidence: float) -> None:
    assert StateDetection(0, 1, confidence).confidence == confidence


@pytest.mark.parametrize("confidence", [-0.01, 1.01, float("nan"), float("-inf"), None])
def test_any_other_confidence_of_a_detection_is_refused(confidence: float) -> None:
    with pytest.raises(InputError, match="confidence is"):
        StateDetection(0, 1, confidence)


def test_a_detection_of_a_negative_class_is_refused() -> None:
    with pytest.raises(InputError, match="state_class is -1"):
        StateDetection(0, -1, 0.5)


def test_a_box_has_four_finite_numbers() -> None:
    assert StateDetection(0, 1, 0.5, box=(1, 2, 3, 4)).box == (1.0, 2.0, 3.0, 4.0)
    with pytest.raises(InputError, match="4 numbers, this one has 3"):
        StateDetection(0, 1, 0.5, box=(1, 2, 3))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not a finite number"):
        StateDetection(0, 1, 0.5, box=(1, 2, 3, float("nan")))


def test_an_input_error_says_where_what_and_how_to_mend_it_in_one_line() -> None:
    assert str(InputError("odd", path="a.csv", line=3, cure="mend it")) == "a.csv:3: odd; mend it"
    assert str(InputError("odd", line=3)) == "line 3: odd"
    assert str(InputError("odd")) == "odd"


# ---------------------------------------------------------------------- detections of other libraries
CORNERS = np.array([[0, 0, 4, 4], [10, 20, 40, 60]], dtype=np.float32)


def ultralytics_result() -> SimpleNamespace:
    boxes = SimpleNamespace(
        xyxy=CORNERS, cls=np.array([2.0, 0.0], dtype=np.float32), conf=np.array([0.25, 0.75], dtype=np.float32)
    )
    return SimpleNamespace(boxes=boxes)


def test_boxes_of_ultralytics_become_detections_with_the_most_confident_first() -> None:
    assert StateDetection.from_ultralytics(ultralytics_result(), frame=7) == [
        StateDetection(7, 1, 0.75, (10, 20, 30, 40)),
        StateDetection(7, 3, 0.25, (0, 0, 4, 4)),
    ]


def test_a_network_with_a_background_class_needs_no_offset() -> None:
    found = StateDetection.from_ultralytics(ultralytics_result(), frame=7, class_offset=0)
    assert [detection.state_class for detection in found] == [0, 2]


def test_a_result_without_boxes_is_refused_and_one_without_any_detection_is_empty() -> None:
    with pytest.raises(InputError, match="has no boxes"):
        StateDetection.from_ultralytics(SimpleNamespace(boxes=None), frame=0)
    nothing = SimpleNamespace(boxes=SimpleNamespace(xyxy=np.zeros((0, 4)), cls=np.zeros(0), conf=np.zeros(0)))
    assert StateDetection.from_ultralytics(nothing, frame=0) == []


def test_detections_of_supervision_become_detections_with_the_most_confident_first() -> None:
    seen = SimpleNamespace(xyxy=CORNERS, class_id=np.array([2, 0]), confidence=np.array([0.25, 0.75]))
    assert StateDetection.from_supervision(seen, frame=3) == [
        StateDetection(3, 1, 0.75, (10, 20, 30, 40)),
        StateDetection(3, 3, 0.25, (0, 0, 4, 4)),
    ]


def test_detections_of_supervision_need_classes_unless_there_are_none() -> None:
    with pytest.raises(InputError, match="no class_id or no confidence"):
        StateDetection.from_supervision(SimpleNamespace(xyxy=CORNERS, class_id=None, confidence=None), frame=3)
    empty = SimpleNamespace(xyxy=np.zeros((0, 4)), class_id=None, confidence=None)
    assert StateDetection.from_supervision(empty, frame=3) == []
