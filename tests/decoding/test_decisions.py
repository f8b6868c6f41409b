"""Nothing is reported before the work was seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from stormpsr import make_decoder
from stormpsr.data.events import StateDetection
from stormpsr.decoding.decisions import Beginning
from stormpsr.decoding.predictions import N_OUTPUTS, OUTPUT_COLUMNS, Prediction
from stormpsr.procedure.model import Procedure

PARTS = OUTPUT_COLUMNS.index("part absent")


def read(tick: int, states: Sequence[int], sure: float = 0.9, seen: tuple[int, float] | None = None) -> Prediction:
    """What a detector read of the parts: 0 absent, 1 correct, 2 wrong; and its (class, confidence)."""
    outputs = np.full((len(states), N_OUTPUTS), np.nan, dtype=np.float32)
    for k, state in enumerate(states):
        outputs[k, PARTS : PARTS + 3] = np.log((1 - sure) / 2)
        outputs[k, PARTS + state] = np.log(sure)
    detections = () if seen is None else (StateDetection(tick, *seen),)
    return Prediction(tick, tick, tick / 10, detections, None, outputs)


@pytest.fixture
def beginning(lamp: Procedure) -> Beginning:
    return Beginning(lamp.variant())


def opposite(lamp: Procedure) -> list[int]:
    return [1 - bit for bit in lamp.variant().initial]


def test_the_initial_state_opens_it_once_and_for_all(beginning: Beginning, lamp: Procedure) -> None:
    beginning.take(read(0, opposite(lamp)))
    assert not beginning.seen
    beginning.take(read(1, [bit % 3 for bit in lamp.variant().initial]))
    assert beginning.seen
    beginning.take(read(2, opposite(lamp)))
    assert beginning.seen
    beginning.reset()
    beginning.take(read(0, opposite(lamp)))
    assert not beginning.seen


def test_a_state_that_is_detected_three_times_in_a_row_opens_it(beginning: Beginning, lamp: Procedure) -> None:
    for tick, seen in enumerate([(2, 0.9), (2, 0.9), (1, 0.9), (1, 0.9), (1, 0.4), (1, 0.9), (1, 0.9)]):
        beginning.take(read(tick, opposite(lamp), seen=seen))
        assert not beginning.seen
    beginning.take(read(7, opposite(lamp), seen=(1, 0.5)))
    assert beginning.seen


def test_who_reads_no_parts_is_believed_at_once(beginning: Beginning) -> None:
    assert beginning.seen
    beginning.take(Prediction(0, 0, 0.0, (StateDetection(0, 1, 0.2),), None, None))
    assert beginning.seen


def test_a_view_that_the_networks_do_not_know_is_not_the_work(beginning: Beginning) -> None:
    beginning.take(Prediction(0, 0, 0.0, (), is_foreign=True))
    assert not beginning.seen


def test_the_filter_reports_nothing_of_what_is_no_lamp_until_somebody_says_that_it_is(lamp: Procedure) -> None:
    decoder = make_decoder(lamp, method="filter")
    strange = opposite(lamp)
    assert [event for tick in range(40) for event in decoder.observe(read(tick, strange))] == []
    assert decoder.finish() == []
    decoder.correct(0, lamp.variant().initial[0])
    assert decoder.finish() != []  # now it is a lamp, of which steps were left out
