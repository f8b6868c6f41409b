"""The procedure filter: exact where it is small, close to it where it is cut, the same streaming and side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from stormpsr.data.events import StateDetection, StepEvent, completions
from stormpsr.decoding.methods import decode, make_decoder
from stormpsr.decoding.predictions import OUTPUT_COLUMNS, Prediction
from stormpsr.decoding.procedure_filter import (
    PARAMETERS_FILE,
    RATES,
    Belief,
    FilterParameters,
    FilterSettings,
    ProcedureFilter,
    find_blocks,
)
from stormpsr.errors import InputError
from stormpsr.files import read_arrays, write_arrays
from stormpsr.procedure.model import AssemblyState, Procedure, StateKind, Variant


def exact(procedure: Procedure, words: Sequence[np.ndarray], ticks: int, gain: float) -> np.ndarray:
    """The marginals by brute force: one Markov chain over all joint states, stepped in tiny steps."""
    needs, n, expected = procedure.needs, procedure.n_components, procedure.variant().expected
    states = list(product(range(3), repeat=n))
    index = {state: i for i, state in enumerate(states)}
    flow = np.zeros((len(states), len(states)))
    for state in states:
        present = {k for k in range(n) if state[k]}
        for k in range(n):
            met, mounted = needs.met(k, present), state[k] != 0
            if not mounted:
                moves = {
                    1: "install" if met and 3 * k in expected else "install_unmet",
                    2: "wrong" if met else "wrong_unmet",
                }
            else:
                off = "wrong_off" if state[k] == 2 else "removal_unexpected"
                moves = {0: "removal_carrying" if needs.carried_by(k, present) else off}
                moves[3 - state[k]] = "slip" if state[k] == 1 else "wrong_righted"
            for new, name in moves.items():
                flow[index[state], index[(*state[:k], new, *state[k + 1 :])]] = 1 / RATES[name]
    np.fill_diagonal(flow, -flow.sum(axis=1))
    tiny = np.linalg.matrix_power(np.eye(len(states)) + flow * (ticks / procedure.fps) / 4096, 4096)
    belief = np.zeros(len(states))
    belief[0] = 1.0
    for said_C3 in words:
        belief = (
            belief @ tiny * np.exp([gain * ticks * sum(said_C3[k, s] for k, s in enumerate(state)) for state in states])
        )
        belief /= belief.sum()
    return np.array([[belief[[s[k] == v for s in states]].sum() for v in range(3)] for k in range(n)])


def words_about(n: int, seed: int, n_words: int = 30) -> list[np.ndarray]:
    """What a noisy reader says while parts are put on one after the other."""
    rng = np.random.default_rng(seed)
    said = []
    for t in range(n_words):
        truth = np.array([int(t > (k + 1) * n_words / (n + 2)) for k in range(n)])
        logits = rng.normal(0, 1.0, (n, 3))
        logits[np.arange(n), truth] += 1.5
        said.append(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
    return said


def filtered(procedure: Procedure, words: Sequence[np.ndarray], ticks: int, gain: float, most: int) -> np.ndarray:
    belief = Belief(procedure, procedure.variant(), FilterParameters(gain=gain, ticks=ticks), most)
    for said_C3 in words:
        belief.advance(ticks)
        belief.weigh(said_C3, ticks)
    return belief.marginal_C3


# ---------------------------------------------------------------------- the belief
@pytest.mark.parametrize("links", [None, [(2, 0), (2, 1)], []])
def test_a_small_procedure_is_filtered_exactly(
    links: list[tuple[int, int]] | None, chain: Callable[..., Procedure]
) -> None:
    procedure, words = chain(3, links), words_about(3, seed=1)
    assert_allclose(filtered(procedure, words, 4, 0.1, most=5), exact(procedure, words, 4, 0.1), atol=2e-3)


@pytest.mark.parametrize(("most", "gap"), [(1, 0.15), (2, 0.08), (3, 0.03), (4, 0.08)])
def test_a_group_that_is_cut_into_blocks_is_close_to_exact(
    most: int, gap: float, chain: Callable[..., Procedure]
) -> None:
    """A chain of five, of which the last part is on since a moment: what is cut apart is a little later."""
    procedure = chain(5)
    gaps = []
    for seed in range(6):
        words = words_about(5, seed)
        whole, cut = (filtered(procedure, words, 4, 0.1, blocks) for blocks in (5, most))
        assert (cut.argmax(axis=1) == whole.argmax(axis=1)).mean() >= 0.6
        gaps.append(np.abs(whole - cut).mean())
    assert np.mean(gaps) < gap


def test_components_that_depend_on_each_other_share_a_block(chain: Callable[..., Procedure]) -> None:
    assert find_blocks(chain(4), 5) == [(0, 1, 2, 3)]
    assert find_blocks(chain(4, links=[]), 5) == [(0,), (1,), (2,), (3,)]
    assert find_blocks(chain(5, links=[(1, 0), (4, 3)]), 5) == [(0, 1), (2,), (3, 4)]
    assert sorted(map(len, find_blocks(chain(7), 3))) == [1, 3, 3]


def test_a_part_that_is_seen_says_that_what_it_needs_is_in_place(chain: Callable[..., Procedure]) -> None:
    only_last = np.log([[1 / 3] * 3, [1 / 3] * 3, [0.1, 0.8, 0.1]])
    seldom = np.log([{"install_unmet": 1e6, "wrong_unmet": 1e6}.get(name, seconds) for name, seconds in RATES.items()])
    beliefs = []
    for links in (None, []):
        procedure = chain(3, links)
        belief = Belief(procedure, procedure.variant(), FilterParameters(seldom, gain=0.02, ticks=4), 5)
        for _ in range(150):
            belief.advance(4)
            belief.weigh(only_last, 4)
        beliefs.append(belief.marginal_C3)
    tied, free = beliefs
    assert tied[0, 0] < 0.05
    assert free[0, 0] > 0.15


def test_time_without_a_word_is_the_same_in_one_go_and_tick_by_tick(chain: Callable[..., Procedure]) -> None:
    procedure = chain(3)
    at_once, one_by_one = (Belief(procedure, procedure.variant(), FilterParameters(), 5) for _ in range(2))
    at_once.advance(37)
    for _ in range(37):
        one_by_one.advance(1)
    assert_allclose(at_once.marginal_C3, one_by_one.marginal_C3, atol=1e-12)
    assert at_once.marginal_C3[0, 0] < 1


@pytest.mark.parametrize("n", [11, 17, 50, 200])
def test_any_number_of_components_has_a_belief(n: int, chain: Callable[..., Procedure]) -> None:
    """Also one long chain, which is cut into blocks. The state that is seen comes out."""
    procedure = chain(n)
    decoder = ProcedureFilter(procedure, None, FilterSettings(block_components=3))
    done = n // 2
    events = []
    for frame in range(60):
        events += decoder.update([StateDetection(frame, done + 1, 0.9)], frame=frame)
    assert decoder.state == tuple(int(k < done) for k in range(n))
    assert sorted(event.step_id for event in completions(events)) == [3 * k for k in range(done)]


def test_somebody_who_knows_is_believed(lamp: Procedure) -> None:
    decoder = ProcedureFilter(lamp, "build")
    decoder.correct(1, -1)
    assert decoder.state == (0, -1, 0)
    assert decoder.state_probabilities[1].tolist() == [0, 0, 1]
    decoder.correct(1, 1)
    assert decoder.component_probabilities[1] == 1
    assert decoder.update([StateDetection(0, 1, 0.3)]) == []
    assert decoder.component_probabilities[1] > 0.9


# ---------------------------------------------------------------------- events
def seen(*classes: tuple[int, int], confidence: float = 0.9) -> list[StateDetection]:
    """Detections: so many frames of each class."""
    shown = [state for state, n in classes for _ in range(n)]
    return [StateDetection(frame, state, confidence) for frame, state in enumerate(shown)]


def test_detections_alone_are_enough(lamp: Procedure) -> None:
    events = decode(seen((1, 30), (2, 30), (3, 30), (4, 30)), lamp, "build", "filter")
    assert [event.step_id for event in events] == [0, 3, 6]
    assert [event.frame // 30 for event in events] == [1, 2, 3]
    assert {event.kind for event in events} == {"completed"}


def test_a_single_wrong_detection_completes_nothing(lamp: Procedure) -> None:
    assert decode(seen((1, 30), (4, 1), (1, 30)), lamp, "build", "filter") == []


def test_removals_are_recognised_and_those_that_nobody_expects_are_called_so(lamp: Procedure) -> None:
    taken_apart = decode(seen((4, 30), (3, 60), (2, 60), (1, 60)), lamp, "dismantle", "filter")
    assert [(event.step_id, event.kind) for event in taken_apart] == [
        (8, "completed"),
        (5, "completed"),
        (2, "completed"),
    ]
    undone = decode(seen((1, 30), (2, 60), (1, 200)), lamp, "build", "filter", unexpected_threshold=0.98)
    assert [(event.step_id, event.kind) for event in undone] == [(0, "completed"), (2, "unexpected")]
    dropped = decode(seen((1, 30), (2, 60), (1, 200)), lamp, "build", "filter", unexpected="drop")
    assert [event.step_id for event in dropped] == [0]


def servicing(lamp: Procedure) -> Procedure:
    """The shade is taken off and put back."""
    return replace(lamp, variants={"service": Variant("service", (1, 1, 1), (6, 8))})


def test_what_was_taken_off_and_put_back_is_not_expected_to_be_taken_off_again(lamp: Procedure) -> None:
    decoder = ProcedureFilter(servicing(lamp), "service")
    events = [event for detection in seen((4, 20), (3, 60), (4, 60)) for event in decoder.update([detection])]
    assert [event.step_id for event in events] == [8, 6]
    decoder.update([StateDetection(140 + 600, 4, 0.3)], frame=140 + 600)  # a minute later, one doubtful glance
    assert decoder.component_probabilities[2] > 0.9
    never_seen_off = ProcedureFilter(servicing(lamp), "service")
    never_seen_off.update([StateDetection(0, 4, 0.9)], frame=0)
    never_seen_off.update([StateDetection(600, 4, 0.3)], frame=600)
    assert never_seen_off.component_probabilities[2] < 0.9


def test_steps_that_one_view_shows_are_reported_together(chain: Callable[..., Procedure]) -> None:
    """The second part needs the first, so it is always a little less probable."""
    view = seen((1, 30), (3, 40), confidence=0.7)
    together = decode(view, chain(2), "build", "filter", together_threshold=0.3)
    apart = decode(view, chain(2), "build", "filter", together_threshold=1.0)
    assert [event.step_id for event in together] == [event.step_id for event in apart] == [0, 3]
    assert together[0].frame == together[1].frame == apart[0].frame < apart[1].frame


def test_a_detector_that_looks_at_every_fourth_frame_is_believed_as_soon(lamp: Procedure) -> None:
    dense = seen((1, 100), (2, 100), confidence=0.7)
    (soon,) = decode(dense, lamp, "build", "filter")
    (later,) = decode([one for one in dense if one.frame % 4 == 0], lamp, "build", "filter")
    assert later.step_id == soon.step_id
    assert abs(later.frame - soon.frame) <= 4


def test_frames_of_which_nothing_is_known_need_not_be_fed(lamp: Procedure) -> None:
    seldom = [one for one in seen((1, 100), (2, 100)) if one.frame % 7 < 2]
    assert decode(seldom, lamp, "build", "filter") == decode(seldom, lamp, "build", "filter", n_frames=5000)


def test_where_people_take_longer_a_step_is_expected_later(lamp: Procedure) -> None:
    waits = [ProcedureFilter(lamp, "build", FilterSettings(pace=pace)).expected_wait_seconds for pace in (1.0, 2.0)]
    assert_allclose(waits[1], 2 * waits[0])


def test_expected_steps_that_never_came_are_told_at_the_end(lamp: Procedure) -> None:
    decoder = make_decoder(lamp, "build", "filter")
    for detection in seen((1, 20), (2, 60)):
        decoder.update([detection])
    assert [(event.step_id, event.kind) for event in decoder.finish()] == [(3, "skipped"), (6, "skipped")]
    assert decoder.finish() == []


def test_what_is_seen_without_what_it_needs_tells_that_a_step_was_skipped(chain: Callable[..., Procedure]) -> None:
    """The frames say of part 0 that it is absent, again and again, while part 1, which needs it, is there."""
    procedure = chain(2)
    decoder = ProcedureFilter(procedure)
    states = (*procedure.states, AssemblyState(4, StateKind.ASSEMBLY, "odd", (0, 1)))
    decoder.procedure = decoder._believer._procedure = replace_states(procedure, states)
    events: list[StepEvent] = []
    for frame in range(400):
        events += decoder.update([StateDetection(frame, 4, 0.95)], frame=frame)
    assert [(event.step_id, event.kind) for event in events] == [(3, "completed"), (0, "skipped")]


def replace_states(procedure: Procedure, states: tuple[AssemblyState, ...]) -> Procedure:
    return replace(procedure, states=states, order={})


def test_what_is_expected_next_is_told_with_its_wait(lamp: Procedure, chain: Callable[..., Procedure]) -> None:
    wait = ProcedureFilter(chain(3)).expected_wait_seconds
    assert_allclose(wait, np.array([1, 2, 3]) * RATES["install"])


def test_settings_that_make_no_sense_are_refused(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="install_threshold is 2"):
        FilterSettings(install_threshold=2)
    with pytest.raises(InputError, match="a fitted filter lies in a model's folder"):
        ProcedureFilter(lamp, "build", FilterSettings(fitted=True))


# ---------------------------------------------------------------------- side by side
def learned(procedure: Procedure, seed: int = 0) -> FilterParameters:
    """An emission of random weights."""
    rng, n = np.random.default_rng(seed), procedure.n_components
    widths = (len(OUTPUT_COLUMNS) + 5 + n, 8, 3)
    layers = tuple((rng.normal(0, 1, (a, b)), rng.normal(0, 1, b)) for a, b in pairwise(widths))
    return FilterParameters(gain=0.1, ticks=2, layers=layers)


@pytest.mark.parametrize("variant", ["build", "dismantle"])
@pytest.mark.parametrize("fitted", [False, True])
def test_many_settings_side_by_side_give_what_each_gives_alone(
    lamp: Procedure, tmp_path: Path, variant: str, fitted: bool, story: Callable[..., list[Prediction]]
) -> None:
    learned(lamp).save(tmp_path / PARAMETERS_FILE)
    tried = [
        FilterSettings(i, r, 0.5, u, w, fitted=fitted, folder=tmp_path)
        for i, r, u, w in ((0.3, 0.6, 0.9, 0.3), (0.6, 0.8, 0.99, 0.5), (0.9, 0.95, 0.999, 0.9))
    ]
    predictions = story(lamp, seed=5)
    grid = ProcedureFilter.batch(lamp, variant, tried)
    for prediction in predictions:
        grid.observe(prediction)
    for own, together in zip(tried, grid.events, strict=True):
        decoder = ProcedureFilter(lamp, variant, own)
        alone = [
            replace(event, frame=prediction.index)
            for prediction in predictions
            for event in decoder.observe(prediction)
        ]
        assert [event for event in alone if event.kind != "skipped"] == together
    assert fitted or any(grid.events)


@pytest.mark.parametrize("value", [10**400, -(10**400), 0, 8, float("nan")], ids=lambda value: f"{value!s:.5}")
def test_a_setting_outside_its_range_is_refused_however_far(value: float) -> None:
    with pytest.raises(InputError, match=r"block_components is .*, but it must lie between 1 and 7"):
        FilterSettings(block_components=value)  # type: ignore[arg-type]


def test_a_decoder_that_is_reset_knows_nothing_of_before(
    lamp: Procedure, story: Callable[..., list[Prediction]]
) -> None:
    decoder = ProcedureFilter(lamp, "build")
    first = [decoder.observe(prediction) for prediction in story(lamp, seed=2)]
    decoder.reset()
    assert [decoder.observe(prediction) for prediction in story(lamp, seed=2)] == first


# ---------------------------------------------------------------------- what is learned
def test_fitting_makes_the_truth_more_probable_and_finds_wrong_parts(
    lamp: Procedure, tmp_path: Path, teach: Callable[..., Any]
) -> None:
    pytest.importorskip("torch")
    recordings = [teach(lamp, seed) for seed in range(6)]
    settings = ProcedureFilter.fit(recordings[:5], lamp, FilterSettings(), tmp_path)
    assert settings.fitted
    assert (tmp_path / PARAMETERS_FILE).is_file()
    decoder = ProcedureFilter(lamp, "build", settings)
    surprise, kinds = [], []
    for prediction in recordings[5].predictions:
        kinds += [(event.step_id, event.kind) for event in decoder.observe(prediction)]
        truth = np.array(recordings[5].states.at(prediction.tick)) % 3
        surprise.append(-np.log(np.maximum(decoder.state_probabilities[np.arange(3), truth], 1e-6)).mean())
    assert np.mean(surprise) < 0.5 * np.log(3)  # far better than knowing nothing
    assert (4, "wrong") in kinds


def test_learned_parameters_come_back_as_they_were_stored(lamp: Procedure, tmp_path: Path) -> None:
    stored = learned(lamp)
    stored.save(tmp_path / "filter.npz")
    found = FilterParameters.load(tmp_path / "filter.npz", 3)
    assert (found.gain, found.ticks) == (stored.gain, stored.ticks)
    for mine, theirs in zip(found.layers, stored.layers, strict=True):
        assert_allclose(mine[0], theirs[0])
        assert_allclose(mine[1], theirs[1])
    with pytest.raises(InputError, match="does not fit the procedure"):
        FilterParameters.load(tmp_path / "filter.npz", 4)
    (tmp_path / "filter.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"filter\.npz: .* fit the filter again: stormpsr tune MODEL --method filter"):
        FilterParameters.load(tmp_path / "filter.npz", 3)


def test_learned_parameters_that_nobody_can_compute_with_are_refused(lamp: Procedure, tmp_path: Path) -> None:
    path = tmp_path / "filter.npz"
    learned(lamp).save(path)
    whole = read_arrays(path)
    broken = {
        "weight_0": whole["weight_0"] * np.nan,
        "bias_0": whole["bias_0"][:-1],
        "gain": np.array("x"),
        "log_seconds_R": whole["log_seconds_R"].astype("U4"),
    }
    for name, array in broken.items():
        write_arrays(path, **{**whole, name: array})
        with pytest.raises(InputError, match=r"filter\.npz: .* fit the filter again"):
            FilterParameters.load(path, 3)


def test_transition_matrices_that_are_kept_do_not_fill_the_memory(
    chain: Callable[..., Procedure], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept may change; what is believed may not."""
    believed = []
    for most in (2**28, 3**5 * 3**5 * 8 * 3):
        monkeypatch.setattr("stormpsr.decoding.procedure_filter._MOST_STEP_BYTES", most)
        procedure = chain(12)
        decoder = ProcedureFilter(procedure, None, FilterSettings())
        for tick in range(0, 400, 7):
            seen = StateDetection(tick, min(1 + tick // 30, 12), 0.9)
            decoder.observe(Prediction(tick, tick, tick / 10, (seen,)))
        believed.append(decoder.state_probabilities)
        kept = decoder._believer.belief._steps
        assert sum(step.nbytes for step in kept.values()) <= most + 3**5 * 3**5 * 8
    assert_allclose(believed[0], believed[1])
