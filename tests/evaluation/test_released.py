"""The scoring of the two published programs: parity with their outputs, and each quirk worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stormpsr.data.events import StepEvent
from stormpsr.errors import InputError
from stormpsr.evaluation.metrics import Protocol, Scores, score
from stormpsr.procedure.model import Procedure

A, B, C = 0, 3, 6  # step ids
RELEASED: tuple[Protocol, ...] = ("industreal", "storm")
SCORERS: dict[str, tuple[Protocol, bool]] = {  # name in the golden files -> protocol, with its window?
    "industreal_release": ("industreal", False),
    "storm_release": ("storm", False),
    "storm_release_window": ("storm", True),
}


def at(*rows: tuple[int, int]) -> list[StepEvent]:
    """Events from (frame, step id) rows."""
    return [StepEvent(step_id=step_id, frame=frame) for frame, step_id in rows]


def counts(scores: Scores) -> tuple[int, int, int]:
    return scores.true_positives, scores.false_positives, scores.false_negatives


# ---------------------------------------------------------------------- parity
def differences(cases: list[dict[str, Any]], scorer: str, procedure_of: Callable[[dict[str, Any]], Procedure]) -> list:
    protocol, with_window = SCORERS[scorer]
    found = []
    for i, case in enumerate(cases):
        ours = score(
            at(*case["gt"]),
            at(*case["pred"]),
            procedure=procedure_of(case),
            fps=case["fps"],
            protocol=protocol,
            window=case["window"] if with_window else None,
        )
        figures = (ours.pos, ours.f1, ours.delay_frames, *map(float, counts(ours)))
        theirs = case["expected"][scorer]
        keys = ("pos", "f1", "avg_delay", "system_TPs", "system_FPs", "system_FNs")
        expected = tuple(float(theirs[key]) for key in keys)
        if figures != pytest.approx(expected, abs=1e-6):
            found.append((i, figures, expected))
    return found


@pytest.mark.parametrize("scorer", SCORERS)
def test_all_90_invented_cases_score_as_the_published_program_does(
    golden: Callable, meccano: Procedure, industreal: Procedure, scorer: str
) -> None:
    cases = golden("metrics")
    assert len(cases) == 90
    procedures = {"meccano": meccano, "industreal": industreal}
    assert differences(cases, scorer, lambda case: procedures[case["procedure"]]) == []


@pytest.mark.parametrize("scorer", SCORERS)
def test_all_150_real_cases_score_as_the_published_program_does(
    shared_golden: Callable, meccano: Procedure, scorer: str
) -> None:
    cases = shared_golden("metrics")
    assert len(cases) == 150
    assert differences(cases, scorer, lambda _: meccano) == []


def test_the_procedure_may_be_left_out(golden: Callable) -> None:
    for case in golden("metrics"):
        ours = score(at(*case["gt"]), at(*case["pred"]), fps=case["fps"], protocol="storm")
        assert ours.f1 == pytest.approx(case["expected"]["storm_release"]["f1"], abs=1e-6)


# ---------------------------------------------------------------------- quirks: matching
def test_industreal_looks_for_events_strictly_later_and_storm_for_the_nearest() -> None:
    labels, events = at((10, A)), at((4, A), (30, A))
    industreal = score(labels, events, fps=10, protocol="industreal")
    assert counts(industreal) == (1, 1, 0)  # 30 recognises 10, 4 is one too many
    assert industreal.delay_frames == 20
    storm = score(labels, events, fps=10, protocol="storm")
    assert counts(storm) == (0, 2, 0)  # 4 is nearest but too early, 30 is one too many
    assert storm.matches == ()


def test_industreal_looks_for_labels_strictly_later_too_where_there_are_more_labels() -> None:
    labels, events = at((10, A), (20, A)), at((15, A))
    industreal = score(labels, events, fps=10, protocol="industreal")
    assert counts(industreal) == (0, 1, 1)  # the event is compared with the label after it, for which it is too early
    storm = score(labels, events, fps=10, protocol="storm")
    assert counts(storm) == (1, 0, 1)  # both labels are 5 frames away, the first is taken
    assert storm.delay_frames == 5
    assert counts(score(labels, events, fps=10)) == (1, 0, 1)


@pytest.mark.parametrize("protocol", RELEASED)
def test_an_event_in_the_very_frame_of_its_label_is_passed_over_for_one_of_another_step(protocol: Protocol) -> None:
    scores = score(at((10, A)), at((10, A), (50, B)), fps=10, protocol=protocol)
    assert scores.delay_frames == 40  # to the event of step B
    assert counts(scores) == (1, 1, 0)
    assert score(at((10, A)), at((10, A), (50, B)), fps=10).delay_frames == 0  # by the definition


@pytest.mark.parametrize("protocol", RELEASED)
def test_an_event_in_the_very_frame_of_its_label_is_found_if_it_is_the_only_row(protocol: Protocol) -> None:
    scores = score(at((10, A)), at((10, A)), fps=10, protocol=protocol)
    assert scores.delay_frames == 0
    assert counts(scores) == (1, 0, 0)


# ---------------------------------------------------------------------- quirks: delay and F1
@pytest.mark.parametrize(("protocol", "delay_frames"), [("industreal", 100), ("storm", 0)])
def test_nothing_recognised_is_reported_as_a_delay_of_100_or_0_frames(protocol: Protocol, delay_frames: int) -> None:
    scores = score(at((10, A)), [], fps=10, protocol=protocol)
    assert scores.delay_frames == delay_frames
    assert scores.delay_seconds == delay_frames / 10
    assert scores.f1 == 0
    assert score(at((10, A)), [], fps=10).delay_frames is None


@pytest.mark.parametrize("protocol", RELEASED)
def test_f1_never_quite_reaches_one(protocol: Protocol) -> None:
    f1 = score(at((10, A)), at((12, A)), fps=10, protocol=protocol).f1
    assert f1 == 2 / (2 + 1e-6)
    assert f1 < 1


# ---------------------------------------------------------------------- quirks: POS
@pytest.mark.parametrize("protocol", RELEASED)
def test_the_order_of_the_rows_matters(protocol: Protocol) -> None:
    labels, events = at((10, A), (20, B)), at((22, B), (12, A))
    assert score(labels, events, fps=10, protocol=protocol).pos == 0.5
    assert score(labels, events, fps=10).pos == 1


@pytest.mark.parametrize("protocol", RELEASED)
def test_steps_of_the_same_frame_have_an_order(protocol: Protocol) -> None:
    labels, events = at((10, B), (10, A)), at((12, A), (12, B))
    assert score(labels, events, fps=10, protocol=protocol).pos == 0.5
    assert score(labels, events, fps=10).pos == 1


@pytest.mark.parametrize("protocol", RELEASED)
def test_the_order_is_cut_off_at_the_first_id_beyond_95(protocol: Protocol) -> None:
    # both sequences are cut to [93], which agree; by the definition a substitution (2) in three labels is left
    labels, events = at((0, 93), (10, 96), (20, A)), at((1, 93), (11, 96), (21, B))
    assert score(labels, events, fps=10, protocol=protocol).pos == 1
    assert score(labels, events, fps=10).pos == pytest.approx(1 / 3)
    assert score(at((0, 93), (10, 95), (20, A)), at((1, 93), (11, 95)), fps=10, protocol=protocol).pos < 1


def test_a_window_overwrites_the_whole_order_if_the_first_prediction_is_right() -> None:
    labels, events = at((10, A), (20, B), (30, C)), at((12, A), (400, C), (800, B))
    assert score(labels, events, fps=10, protocol="storm").pos == pytest.approx(2 / 3)
    assert score(labels, events, fps=10, protocol="storm", window=1).pos == 1
    assert score(labels, events, fps=10).pos == pytest.approx(2 / 3)


def test_a_window_swaps_neighbours_back_if_they_are_less_than_a_window_apart() -> None:
    # the first prediction, B alone, is not what was labelled up to its frame (A and B), so nothing is overwritten
    labels, events = at((10, A), (20, B), (30, C)), at((25, B), (27, A), (40, C))
    assert score(labels, events, fps=10, protocol="storm", window=3).pos == 1
    assert score(labels, events, fps=10, protocol="storm", window=2).pos == pytest.approx(2 / 3)
    assert score(labels, events, fps=10, protocol="storm").pos == pytest.approx(2 / 3)


def test_a_window_never_changes_anything_but_pos(golden: Callable) -> None:
    for case in golden("metrics"):
        labels, events = at(*case["gt"]), at(*case["pred"])
        plain = score(labels, events, fps=10, protocol="storm")
        windowed = score(labels, events, fps=10, protocol="storm", window=case["window"])
        assert (windowed.f1, windowed.delay_frames, counts(windowed)) == (plain.f1, plain.delay_frames, counts(plain))


# ---------------------------------------------------------------------- what they cannot do
@pytest.mark.parametrize("protocol", RELEASED)
def test_a_recording_without_labels_is_refused_because_they_divide_by_their_number(protocol: Protocol) -> None:
    with pytest.raises(InputError, match=r"without labels cannot be scored .* use protocol 'paper'"):
        score([], at((10, A)), fps=10, protocol=protocol)


@pytest.mark.parametrize("protocol", RELEASED)
def test_the_scores_say_by_which_protocol_they_were_made(protocol: Protocol) -> None:
    assert score(at((10, A)), at((10, A)), fps=10, protocol=protocol).protocol == protocol
    assert score(at((10, A)), at((10, A)), fps=10).protocol == "paper"
