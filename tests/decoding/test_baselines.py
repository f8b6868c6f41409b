"""The three baselines: parity with the published programs, and their rules and quirks worked out by hand.

The procedure of the hand-made cases is the lamp of conftest.py: classes 0 background, 1 nothing, 2 foot, 3 foot and
pole, 4 all three parts, 5 error; steps 0, 3, 6 put the parts on, 2, 5, 8 take them off.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.decoding.baselines import ConfidenceDecoder, NaiveDecoder
from stormpsr.decoding.methods import decode, make_decoder
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

BACKGROUND, NOTHING, FOOT, POLE, ALL, ERROR = range(6)
METHODS = ("naive", "confidence", "expected")


def seen(*rows: tuple[int, int, float]) -> list[StateDetection]:
    """Detections from (frame, class, confidence) rows."""
    return [StateDetection(frame, state_class, confidence) for frame, state_class, confidence in rows]


def run(frames: range, state_class: int, confidence: float) -> list[StateDetection]:
    """The same detection in every frame."""
    return [StateDetection(frame, state_class, confidence) for frame in frames]


def brief(events: list[StepEvent]) -> list[tuple[int, int]]:
    return [(event.frame, event.step_id) for event in events]


# ---------------------------------------------------------------------- parity
def differences(cases: list[dict[str, Any]], method: str, procedures: dict[str, Procedure]) -> list:
    found = []
    for i, case in enumerate(cases):
        events = decode(
            seen(*case["detections"]),
            procedures[case["dataset"]],
            variant=case["procedure"],
            method=method,
            n_frames=case["n_frames"],
            threshold=case["cum_conf_threshold"],
            decay=case["decay"],
            min_confidence=case["conf_threshold"],
        )
        ours, theirs = brief(events), [tuple(row) for row in case["expected"][method]]
        if ours != theirs:
            found.append((i, ours, theirs))
    return found


@pytest.mark.parametrize("method", METHODS)
def test_all_invented_recordings_decode_as_the_published_program_does(
    golden: Callable, meccano: Procedure, industreal: Procedure, method: str
) -> None:
    cases = golden("decoders")
    assert len(cases) == 18
    assert differences(cases, method, {"meccano": meccano, "industreal": industreal}) == []


@pytest.mark.parametrize("method", METHODS)
def test_all_real_recordings_decode_as_the_published_program_does(
    shared_golden: Callable, meccano: Procedure, industreal: Procedure, method: str
) -> None:
    cases = shared_golden("decoders")
    assert len(cases) == 27
    assert differences(cases, method, {"meccano": meccano, "industreal": industreal}) == []


# ---------------------------------------------------------------------- naive (B1)
def naive(lamp: Procedure, *rows: tuple[int, int, float]) -> list[tuple[int, int]]:
    return brief(decode(seen(*rows), lamp, method="naive"))


def test_naive_sets_the_state_from_the_first_detection_without_completing_anything(lamp: Procedure) -> None:
    assert naive(lamp, (0, FOOT, 0.9)) == []


def test_naive_believes_the_first_detection_however_weak(lamp: Procedure) -> None:
    assert naive(lamp, (0, FOOT, 0.1), (5, POLE, 0.9)) == [(5, 3)]


def test_naive_completes_all_steps_between_two_states_at_once(lamp: Procedure) -> None:
    assert naive(lamp, (0, NOTHING, 0.9), (7, ALL, 0.9)) == [(7, 0), (7, 3), (7, 6)]
    assert naive(lamp, (0, ALL, 0.9), (7, FOOT, 0.9)) == [(7, 5), (7, 8)]


def test_naive_asks_for_more_than_the_minimum_confidence(lamp: Procedure) -> None:
    assert naive(lamp, (0, NOTHING, 0.9), (1, FOOT, 0.5)) == []
    assert naive(lamp, (0, NOTHING, 0.9), (1, FOOT, 0.51)) == [(1, 0)]


def test_naive_takes_the_most_confident_detection_of_a_frame_the_first_of_equals(lamp: Procedure) -> None:
    assert naive(lamp, (0, NOTHING, 0.9), (1, NOTHING, 0.6), (1, FOOT, 0.7)) == [(1, 0)]
    assert naive(lamp, (0, NOTHING, 0.9), (1, NOTHING, 0.7), (1, FOOT, 0.7)) == []


def test_naive_forgets_the_state_when_it_sees_background(lamp: Procedure) -> None:
    # foot and pole are never reported: after the background, the next detection only sets the state
    assert naive(lamp, (0, NOTHING, 0.9), (1, BACKGROUND, 0.9), (2, POLE, 0.9), (3, ALL, 0.9)) == [(3, 6)]


def test_naive_keeps_the_state_when_the_background_is_not_confident(lamp: Procedure) -> None:
    assert naive(lamp, (0, NOTHING, 0.9), (1, BACKGROUND, 0.4), (2, FOOT, 0.9)) == [(2, 0)]


def test_naive_ignores_an_error_after_the_first_detection(lamp: Procedure) -> None:
    assert naive(lamp, (0, NOTHING, 0.9), (1, ERROR, 0.9), (2, FOOT, 0.9)) == [(2, 0)]


def test_naive_knows_no_state_if_an_error_comes_first(lamp: Procedure) -> None:
    assert naive(lamp, (0, ERROR, 0.9), (1, FOOT, 0.9), (2, POLE, 0.9)) == [(2, 3)]


# ---------------------------------------------------------------------- expected (B3): accumulating evidence
def test_evidence_grows_by_the_confidence_until_it_exceeds_the_threshold(lamp: Procedure) -> None:
    # 0.5 each: after frame 3 the sum is 2.0, which does not exceed 2; after frame 4 it does
    events = decode(run(range(10), FOOT, 0.5), lamp, "build", threshold=2.0)
    assert brief(events) == [(4, 0)]
    assert events[0].confidence == 2.5
    assert events[0].source == "expected"


def test_evidence_decays_in_every_frame_that_does_not_suggest_the_step(lamp: Procedure) -> None:
    decoder = make_decoder(lamp, "build", threshold=8, decay=0.5)
    assert isinstance(decoder, ConfidenceDecoder)
    decoder.update(seen((0, FOOT, 0.8)))
    assert decoder.evidence.tolist() == [0.8, 0, 0, 0, 0, 0, 0, 0, 0]
    decoder.update([])  # nothing seen: everything decays
    assert decoder.evidence[0] == 0.4
    decoder.update(seen((2, NOTHING, 0.9)))  # suggests no step
    assert decoder.evidence[0] == 0.2
    decoder.update(seen((3, BACKGROUND, 0.9)))  # says nothing about the parts
    assert decoder.evidence[0] == 0.1
    decoder.update(seen((4, ERROR, 0.9)))  # nor does an error
    assert decoder.evidence[0] == 0.05
    decoder.update(seen((5, POLE, 0.6)))  # suggests steps 0 and 3
    assert decoder.evidence[[0, 3]].tolist() == [0.65, 0.6]


def test_evidence_for_a_step_decays_while_others_are_suggested(lamp: Procedure) -> None:
    decoder = make_decoder(lamp, "build", threshold=8, decay=0.5)
    assert isinstance(decoder, ConfidenceDecoder)
    decoder.update(seen((0, ALL, 0.8)))  # steps 0, 3, 6
    decoder.update(seen((1, FOOT, 0.8)))  # step 0 only
    assert decoder.evidence[[0, 3, 6]].tolist() == [1.6, 0.4, 0.4]


def test_evidence_starts_again_from_zero_when_its_step_is_completed(lamp: Procedure) -> None:
    decoder = make_decoder(lamp, "build", threshold=0.5)
    assert isinstance(decoder, ConfidenceDecoder)
    assert brief(decoder.update(seen((0, FOOT, 0.8)))) == [(0, 0)]
    assert decoder.evidence.tolist() == [0] * 9
    assert decoder.state == (1, 0, 0)


def test_only_the_first_detection_of_a_frame_counts(lamp: Procedure) -> None:
    assert decode(seen((0, NOTHING, 0.2), (0, FOOT, 0.9)), lamp, "build", threshold=0.5) == []
    assert brief(decode(seen((0, FOOT, 0.9), (0, NOTHING, 0.95)), lamp, "build", threshold=0.5)) == [(0, 0)]


def test_steps_completed_in_one_frame_come_in_the_order_of_their_ids(lamp: Procedure) -> None:
    assert brief(decode(seen((3, ALL, 0.9)), lamp, "build", threshold=0.5)) == [(3, 0), (3, 3), (3, 6)]


def test_a_step_that_the_variant_does_not_expect_is_not_reported_but_loses_its_evidence(lamp: Procedure) -> None:
    decoder = make_decoder(lamp, "dismantle", threshold=0.5)
    assert isinstance(decoder, ConfidenceDecoder)
    assert brief(decoder.update(seen((0, POLE, 0.9)))) == [(0, 8)]  # the shade is taken off, as expected
    assert decoder.update(seen((1, ALL, 0.9))) == []  # putting it on again is not
    assert decoder.evidence[6] == 0
    assert decoder.state == (1, 1, 0)


def test_expected_starts_from_the_initial_state_of_its_variant(lamp: Procedure) -> None:
    rows = seen((0, FOOT, 0.9))
    assert brief(decode(rows, lamp, "build", threshold=0.5)) == [(0, 0)]
    assert brief(decode(rows, lamp, "dismantle", threshold=0.5)) == [(0, 5), (0, 8)]


def test_without_a_variant_the_first_one_is_expected(lamp: Procedure) -> None:
    rows = seen((0, FOOT, 0.9))
    assert decode(rows, lamp, threshold=0.5) == decode(rows, lamp, "build", threshold=0.5)


def test_an_unknown_variant_is_refused_with_the_ones_there_are(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="no variant 'repair'; it has: build, dismantle"):
        decode([], lamp, "repair")


# ---------------------------------------------------------------------- confidence (B2)
def test_confidence_sets_the_state_from_the_first_detection_and_then_reports_every_step(lamp: Procedure) -> None:
    rows = seen((0, POLE, 0.9), (1, ALL, 0.9), (2, FOOT, 0.9))
    assert brief(decode(rows, lamp, method="confidence", threshold=0.5)) == [(1, 6), (2, 5), (2, 8)]


@pytest.mark.parametrize("first", [ERROR, BACKGROUND])
def test_confidence_never_completes_anything_if_error_or_background_comes_first(lamp: Procedure, first: int) -> None:
    rows = [*seen((0, first, 0.9)), *run(range(1, 20), FOOT, 0.9), *run(range(20, 40), ALL, 0.9)]
    assert decode(rows, lamp, method="confidence", threshold=0.5) == []
    assert brief(decode(rows, lamp, method="expected", threshold=0.5)) == [(1, 0), (20, 3), (20, 6)]


def test_confidence_says_who_reports(lamp: Procedure) -> None:
    rows = seen((0, NOTHING, 0.9), (1, FOOT, 0.9))
    for method in METHODS:
        assert {event.source for event in decode(rows, lamp, method=method, threshold=0.5)} == {method}


# ---------------------------------------------------------------------- streaming
def detections_of(n_frames: int) -> st.SearchStrategy[list[StateDetection]]:
    one = st.builds(
        StateDetection,
        frame=st.integers(0, n_frames - 1),
        state_class=st.integers(0, ERROR),
        confidence=st.floats(0, 1, allow_nan=False),
    )
    return st.lists(one, max_size=25)


@pytest.mark.parametrize("method", METHODS)
@given(detections=detections_of(15))
def test_decoding_is_feeding_frame_after_frame(lamp: Procedure, method: str, detections: list[StateDetection]) -> None:
    decoder = make_decoder(lamp, "build", method, threshold=1.0)
    streamed = []
    for frame in range(15):
        streamed.extend(decoder.update([d for d in detections if d.frame == frame], frame=frame))
    assert streamed == decode(detections, lamp, "build", method, n_frames=15, threshold=1.0)


@pytest.mark.parametrize("method", METHODS)
@given(first=detections_of(10), second=detections_of(10))
def test_after_a_reset_nothing_is_remembered(
    lamp: Procedure, method: str, first: list[StateDetection], second: list[StateDetection]
) -> None:
    decoder = make_decoder(lamp, "build", method, threshold=1.0)
    for frame in range(10):
        decoder.update([d for d in first if d.frame == frame], frame=frame)
    decoder.reset()
    again = []
    for frame in range(10):
        again.extend(decoder.update([d for d in second if d.frame == frame], frame=frame))
    assert again == decode(second, lamp, "build", method, n_frames=10, threshold=1.0)


@pytest.mark.parametrize("method", METHODS)
@given(detections=detections_of(15), shuffler=st.randoms(use_true_random=False))
def test_the_order_of_the_frames_in_the_list_does_not_matter(
    lamp: Procedure, method: str, detections: list[StateDetection], shuffler: random.Random
) -> None:
    frames = sorted({d.frame for d in detections})
    shuffler.shuffle(frames)
    shuffled = [d for frame in frames for d in detections if d.frame == frame]  # within a frame the order stays
    assert decode(shuffled, lamp, method=method, threshold=1.0) == decode(
        detections, lamp, method=method, threshold=1.0
    )


@given(detections=detections_of(15))
def test_frames_after_the_last_detection_complete_nothing(lamp: Procedure, detections: list[StateDetection]) -> None:
    for method in METHODS:
        short = decode(detections, lamp, method=method, threshold=1.0)
        assert decode(detections, lamp, method=method, threshold=1.0, n_frames=100) == short


@given(detections=detections_of(15))
def test_two_decoders_share_nothing(lamp: Procedure, detections: list[StateDetection]) -> None:
    one, other = (make_decoder(lamp, "build", threshold=1.0) for _ in range(2))
    for frame in range(15):
        one.update([d for d in detections if d.frame == frame], frame=frame)
    assert other.state == lamp.variant("build").initial
    assert isinstance(other, ConfidenceDecoder)
    assert not other.evidence.any()


def test_the_evidence_that_is_shown_is_a_copy(lamp: Procedure) -> None:
    decoder = make_decoder(lamp, "build")
    assert isinstance(decoder, ConfidenceDecoder)
    decoder.evidence[:] = 100
    assert decoder.update(seen((0, FOOT, 0.1))) == []


def test_no_detections_at_all_are_no_events(lamp: Procedure) -> None:
    for method in METHODS:
        assert decode([], lamp, method=method) == []
        assert decode([], lamp, method=method, n_frames=50) == []


def test_frames_are_counted_from_zero_where_none_is_given(lamp: Procedure) -> None:
    decoder = NaiveDecoder(lamp)
    decoder.update([])
    decoder.update(seen((1, NOTHING, 0.9)))
    decoder.update([])
    assert brief(decoder.update(seen((3, FOOT, 0.9)))) == [(3, 0)]
    for _ in range(2):
        decoder.reset()
        decoder.update([])
        with pytest.raises(InputError, match="frame 0 after frame 0"):
            decoder.update(seen((0, FOOT, 0.9)))


def test_the_published_settings_are_the_defaults(lamp: Procedure) -> None:
    made = make_decoder(lamp)
    assert isinstance(made, ConfidenceDecoder)
    for decoder in (made, ConfidenceDecoder(lamp)):
        assert (decoder.settings.threshold, decoder.settings.decay) == (8.0, 0.75)
    assert NaiveDecoder(lamp).settings.min_confidence == 0.5
    # nine times 0.9 exceed 8
    assert brief(decode(run(range(20), FOOT, 0.9), lamp)) == [(8, 0)]


def test_settings_at_the_ends_of_their_range_have_a_meaning(lamp: Procedure) -> None:
    rows = seen((0, FOOT, 0.6), (2, FOOT, 0.6))
    assert brief(decode(rows, lamp, threshold=0)) == [(0, 0)]  # believe everything
    assert decode(rows, lamp, threshold=1, decay=0) == []  # forget at once
    assert brief(decode(rows, lamp, threshold=1, decay=1)) == [(2, 0)]  # never forget
    weak = seen((0, NOTHING, 0.9), (1, FOOT, 0.01))
    assert brief(decode(weak, lamp, method="naive", min_confidence=0)) == [(1, 0)]
    sure = seen((0, NOTHING, 0.9), (1, FOOT, 1.0))
    assert decode(sure, lamp, method="naive", min_confidence=1) == []


# ---------------------------------------------------------------------- bad input
def test_a_class_that_the_procedure_does_not_have_is_refused(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="frame 3: state class 6 does not exist in 'lamp'; its classes are 0 to 5"):
        decode(seen((3, 6, 0.9)), lamp)


@pytest.mark.parametrize("second", [4, 5])
def test_a_frame_must_come_after_the_one_before(lamp: Procedure, second: int) -> None:
    decoder = make_decoder(lamp)
    decoder.update([], frame=5)
    with pytest.raises(InputError, match=f"frame {second} after frame 5; feed frames in order, each once"):
        decoder.update([], frame=second)


def test_a_refused_frame_leaves_the_decoder_as_it_was(lamp: Procedure) -> None:
    decoder = make_decoder(lamp, threshold=0.5)
    with pytest.raises(InputError):
        decoder.update(seen((0, 6, 0.9)))
    assert brief(decoder.update(seen((0, FOOT, 0.9)))) == [(0, 0)]


def test_a_detection_of_another_frame_is_refused(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="a detection of frame 8 among those of frame 7"):
        make_decoder(lamp).update(seen((7, FOOT, 0.9), (8, FOOT, 0.9)))


def test_a_detection_beyond_the_end_of_the_recording_is_refused(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="a detection in frame 10, but the recording has only 10 frames"):
        decode(seen((10, FOOT, 0.9)), lamp, n_frames=10)


def test_a_confidence_that_is_not_a_number_never_reaches_a_decoder() -> None:
    with pytest.raises(InputError, match="confidence is nan"):
        StateDetection(0, FOOT, float("nan"))


def test_an_unknown_method_is_refused_with_the_ones_there_are(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="unknown method 'best'; choose one of: naive, confidence, expected"):
        make_decoder(lamp, method="best")


@pytest.mark.parametrize(
    "setting",
    [
        {"threshold": -1.0},
        {"threshold": float("nan")},
        {"decay": 1.1},
        {"decay": -0.1},
        {"min_confidence": 2.0},
        {"min_confidence": float("nan")},
    ],
)
def test_settings_out_of_range_are_refused_whatever_the_method(lamp: Procedure, setting: dict[str, float]) -> None:
    for method in METHODS:
        with pytest.raises(InputError, match=f"{next(iter(setting)).split('_')[0]}.* is "):
            make_decoder(lamp, method=method, **setting)  # type: ignore[arg-type]
