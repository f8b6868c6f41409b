"""What a person says of a part counts: every method goes on from there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.decoding.methods import METHODS, make_decoder
from stormpsr.decoding.predictions import Decoder
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

NOTHING, FOOT, POLE, ALL = 1, 2, 3, 4  # the lamp's classes
SETTINGS = {  # enough evidence after a few frames
    "naive": {},
    "confidence": {"threshold": 2.0},
    "expected": {"threshold": 2.0},
    "detection": {"threshold": 2.0},
    "temporal": {"threshold": 2.0, "window_frames": 4},
    "average": {"threshold": 2.0, "window_frames": 4},
    "released": {"threshold": 2.0, "window_frames": 4},
    "filter": {},
}


def see(decoder: Decoder, state_class: int, n_frames: int = 60) -> list[StepEvent]:
    """Both streams see a state for a while: detections of it, and changes of what differs from the decoder's state."""
    events: list[StepEvent] = []
    for _ in range(n_frames):
        bits = decoder.procedure.states[state_class].bits
        assert bits is not None
        frame = decoder._frame + 1
        changed = np.array([float(a != b) for a, b in zip(bits, decoder.state or bits, strict=True)])
        events += decoder.update([StateDetection(frame, state_class, 0.95)], changed, frame)
    return events


def steps(events: Sequence[StepEvent]) -> list[int]:
    return [event.step_id for event in events if event.kind == "completed"]


def test_every_method_is_tried_here() -> None:
    assert set(SETTINGS) == set(METHODS) - {"recurrent"}  # which must learn first: see test_recurrent.py


@pytest.mark.parametrize("method", SETTINGS)
def test_recognition_goes_on_from_a_corrected_state(lamp: Procedure, method: str) -> None:
    decoder = make_decoder(lamp, "build", method, **SETTINGS[method])
    see(decoder, NOTHING, 2)
    decoder.correct(0, 1)  # the operator ticks the foot
    assert decoder.state == (1, 0, 0)
    assert steps(see(decoder, POLE)) == [3], "the pole comes as the next step, and the foot is not told again"
    assert decoder.state == (1, 1, 0)


@pytest.mark.parametrize("method", SETTINGS)
def test_a_step_that_was_taken_back_can_be_recognised_again(lamp: Procedure, method: str) -> None:
    decoder = make_decoder(lamp, "build", method, **SETTINGS[method])
    see(decoder, NOTHING, 2)
    assert steps(see(decoder, FOOT)) == [0]
    decoder.correct(0, 0)
    assert decoder.state == (0, 0, 0)
    assert steps(see(decoder, FOOT)) == [0]


@pytest.mark.parametrize("method", SETTINGS)
def test_evidence_from_before_a_correction_counts_no_more(lamp: Procedure, method: str) -> None:
    decoder = make_decoder(lamp, "build", method, **SETTINGS[method])
    see(decoder, NOTHING, 2)
    see(decoder, FOOT, 1)
    decoder.correct(0, 0)
    assert decoder.share[0] < 0.05


@pytest.mark.parametrize("method", SETTINGS)
def test_recognition_goes_on_from_a_restored_state(lamp: Procedure, method: str) -> None:
    decoder = make_decoder(lamp, "build", method, **SETTINGS[method])
    decoder.restore((1, 1, 0))
    assert decoder.state == (1, 1, 0)
    assert steps(see(decoder, ALL)) == [6]


@pytest.mark.parametrize("method", SETTINGS)
def test_a_part_that_is_said_to_be_wrong_can_be_put_right(lamp: Procedure, method: str) -> None:
    decoder = make_decoder(lamp, "build", method, **SETTINGS[method])
    see(decoder, FOOT, 60)
    decoder.correct(0, -1)
    decoder.correct(0, 0)  # taken off
    assert steps(see(decoder, FOOT)) == [0]


def test_a_state_that_does_not_fit_is_refused(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="has 3 components, this one has 2"):
        make_decoder(lamp, "build").restore((1, 0))
