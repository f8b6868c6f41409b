"""The recurrent method: the same sums as torch's unit, any number of components, the same events live and in bulk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from stormpsr import make_decoder
from stormpsr.decoding.decisions import BeliefSettings
from stormpsr.decoding.predictions import Prediction
from stormpsr.decoding.procedure_filter import FEATURES
from stormpsr.decoding.recurrent import (
    N_CONTEXT,
    N_HIDDEN,
    PARAMETERS_FILE,
    SHAPES,
    RecurrentDecoder,
    Surroundings,
    context_of,
    load_weights,
    recurrent_step,
    save_weights,
    shape_of,
)
from stormpsr.errors import InputError
from stormpsr.files import write_arrays
from stormpsr.procedure.model import Procedure


def drawn(folder: Path, n_components: int, seed: int = 0) -> BeliefSettings:
    """Settings whose weights were drawn, not learned."""
    rng = np.random.default_rng(seed)
    weights = {name: rng.normal(0, 0.7, shape_of(name, n_components)) for name in SHAPES}
    save_weights(folder / PARAMETERS_FILE, weights)
    return BeliefSettings(fitted=True, folder=folder)


def test_a_step_is_that_of_a_gated_recurrent_unit() -> None:
    torch = pytest.importorskip("torch")
    n_in = len(FEATURES) + 3 + N_CONTEXT
    unit = torch.nn.GRUCell(n_in, N_HIDDEN)
    order = np.concatenate([np.arange(N_HIDDEN, 2 * N_HIDDEN), np.arange(N_HIDDEN), np.arange(2 * N_HIDDEN, 96)])
    weights = {
        name: own.detach().numpy()[order].T.astype(np.float64)
        for name, own in zip(
            ("input_IX", "hidden_HX", "bias_X", "hidden_bias_X"),
            (unit.weight_ih, unit.weight_hh, unit.bias_ih, unit.bias_hh),
            strict=True,
        )
    }
    rng = np.random.default_rng(0)
    given, hidden = rng.normal(size=(5, n_in)), rng.normal(size=(5, N_HIDDEN))
    with torch.no_grad():
        expected = unit(torch.from_numpy(given).float(), torch.from_numpy(hidden).float()).numpy()
    assert_allclose(recurrent_step(weights, given, hidden), expected, atol=1e-5)


def test_it_is_told_what_a_component_needs_and_carries(chain: Callable[..., Procedure]) -> None:
    procedure = chain(3)
    around = Surroundings.of(procedure, procedure.variant(None))
    marginal_C3 = np.array([[0.1, 0.9, 0.0], [0.8, 0.2, 0.0], [1.0, 0.0, 0.0]])
    context = context_of(around, marginal_C3, around.expects_C3, np.zeros((3, 1)))
    assert context.shape == (3, N_CONTEXT)
    assert_allclose(context[:, :3], [[0, 1, 0]] * 3)
    assert_allclose(context[:, 6], [1.0, 0.9, 0.2])  # what is needed is there
    assert_allclose(context[:, 7], [0.2, 0.0, 0.0])  # what it carries is there
    assert_allclose(context[:, 8], 1.1 / 3)


@pytest.mark.parametrize("n", [2, 17, 200])
def test_any_number_of_components_has_a_belief(
    n: int, tmp_path: Path, chain: Callable[..., Procedure], story: Callable[..., list[Prediction]]
) -> None:
    procedure = chain(n)
    decoder = RecurrentDecoder(procedure, None, drawn(tmp_path, n))
    for prediction in story(procedure, seed=1, n_frames=20):
        decoder.observe(prediction)
    assert_allclose(decoder.state_probabilities.sum(axis=1), 1.0)
    assert decoder.state_probabilities.shape == (n, 3)


@pytest.mark.parametrize("variant", ["build", "dismantle"])
def test_many_settings_side_by_side_give_what_each_gives_alone(
    lamp: Procedure, tmp_path: Path, variant: str, story: Callable[..., list[Prediction]]
) -> None:
    start = drawn(tmp_path, 3)
    tried = [replace(start, install_threshold=t, removal_threshold=t, unexpected_threshold=t) for t in (0.4, 0.6, 0.9)]
    predictions = story(lamp, seed=5)
    grid = RecurrentDecoder.batch(lamp, variant, tried)
    for prediction in predictions:
        grid.observe(prediction)
    for own, together in zip(tried, grid.events, strict=True):
        decoder = RecurrentDecoder(lamp, variant, own)
        alone = [replace(e, frame=p.index) for p in predictions for e in decoder.observe(p)]
        assert [event for event in alone if event.kind != "skipped"] == together
    assert any(grid.events)


def test_what_somebody_says_is_believed(
    lamp: Procedure, tmp_path: Path, story: Callable[..., list[Prediction]]
) -> None:
    decoder = RecurrentDecoder(lamp, "build", drawn(tmp_path, 3))
    for prediction in story(lamp, seed=3, n_frames=30):
        decoder.observe(prediction)
    decoder.correct(1, -1)
    assert_allclose(decoder.state_probabilities[1], [0, 0, 1])
    assert decoder.state[1] == -1


def test_fitting_makes_the_truth_more_probable(lamp: Procedure, tmp_path: Path, teach: Callable[..., Any]) -> None:
    pytest.importorskip("torch")
    from stormpsr.decoding.recurrent_fit import fit_recurrent

    recordings = [teach(lamp, seed) for seed in range(6)]
    steps: list[tuple[int, int]] = []
    weights = fit_recurrent(
        recordings[:5], lamp, steps=60, members=1, on_progress=lambda done, of: steps.append((done, of))
    )
    assert steps == [(done, 60) for done in range(1, 61)]
    save_weights(tmp_path / PARAMETERS_FILE, weights)
    decoder = RecurrentDecoder(lamp, "build", BeliefSettings(fitted=True, folder=tmp_path))
    surprise = []
    for prediction in recordings[5].predictions:
        decoder.observe(prediction)
        truth = np.array(recordings[5].states.at(prediction.tick)) % 3
        surprise.append(-np.log(np.maximum(decoder.state_probabilities[np.arange(3), truth], 1e-6)).mean())
    assert np.mean(surprise) < 0.5 * np.log(3)  # far better than knowing nothing


def test_several_networks_are_believed_on_average(
    lamp: Procedure, tmp_path: Path, story: Callable[..., list[Prediction]]
) -> None:
    one, other = (drawn(tmp_path / name, 3, seed) for seed, name in enumerate("ab"))
    both = {
        name: np.stack([load_weights(own.folder / PARAMETERS_FILE, 3)[name][0] for own in (one, other)])  # type: ignore[operator]
        for name in SHAPES
    }
    save_weights(tmp_path / PARAMETERS_FILE, both)
    decoders = [RecurrentDecoder(lamp, "build", own) for own in (one, other, replace(one, folder=tmp_path))]
    for number, prediction in enumerate(story(lamp, seed=3, n_frames=30)):
        if number == 15:
            for decoder in decoders:
                decoder.correct(1, -1)
        for decoder in decoders:
            decoder.observe(prediction)
        alone, together = [d.state_probabilities for d in decoders[:2]], decoders[2].state_probabilities
        assert_allclose(together, np.mean(alone, axis=0), atol=1e-12)
    assert not np.allclose(alone[0], alone[1])
    save_weights(tmp_path / PARAMETERS_FILE, {**both, "start_3H": both["start_3H"][:1]})
    with pytest.raises(InputError, match="do not fit the procedure"):
        load_weights(tmp_path / PARAMETERS_FILE, 3)


@pytest.mark.parametrize(("most_at_once", "told"), [(64, [(1, 2), (2, 2)]), (3, [(1, 4), (2, 4), (3, 4), (4, 4)])])
def test_members_learn_side_by_side_as_each_would_alone(
    lamp: Procedure,
    teach: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    most_at_once: int,
    told: list[tuple[int, int]],
) -> None:
    """With many components they learn one after the other: together they would take too much memory."""
    pytest.importorskip("torch")
    from stormpsr.decoding import recurrent_fit

    monkeypatch.setattr(recurrent_fit, "_MOST_AT_ONCE", most_at_once)
    recordings = [teach(lamp, seed) for seed in range(2)]
    steps: list[tuple[int, int]] = []
    fit = recurrent_fit.fit_recurrent
    weights = fit(recordings, lamp, steps=2, members=2, on_progress=lambda *done: steps.append(done))
    assert steps == told
    assert {own.shape[0] for own in weights.values()} == {2}
    assert not np.allclose(weights["input_IX"][0], weights["input_IX"][1])
    for member in range(2):
        alone = fit(recordings, lamp, steps=2, members=1, seed=member)
        for name, own in alone.items():
            assert_allclose(weights[name][member], own[0], atol=1e-5)


def test_without_weights_or_with_those_of_another_procedure_it_says_what_to_do(lamp: Procedure, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"knows nothing before it was fitted.*stormpsr tune MODEL --method recurrent"):
        make_decoder(lamp, "build", "recurrent")
    drawn(tmp_path, 4)
    with pytest.raises(InputError, match="do not fit the procedure"):
        load_weights(tmp_path / PARAMETERS_FILE, 3)
    drawn(tmp_path, 3)
    weights = load_weights(tmp_path / PARAMETERS_FILE, 3)
    save_weights(tmp_path / PARAMETERS_FILE, {**weights, "output_bias_3": np.full((1, 3), np.nan)})
    with pytest.raises(InputError, match="these are no weights"):
        load_weights(tmp_path / PARAMETERS_FILE, 3)
    write_arrays(tmp_path / PARAMETERS_FILE, **weights, features=np.array("x"))
    with pytest.raises(InputError, match="no weights of this version"):
        load_weights(tmp_path / PARAMETERS_FILE, 3)


def test_fitting_takes_one_thread_and_gives_the_others_back(lamp: Procedure, teach: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    from stormpsr.decoding.recurrent_fit import fit_recurrent

    before, meanwhile = torch.get_num_threads(), []
    torch.set_num_threads(3)
    try:
        fit_recurrent(
            [teach(lamp, 0)], lamp, steps=2, members=1, on_progress=lambda *_: meanwhile.append(torch.get_num_threads())
        )
        assert (meanwhile, torch.get_num_threads()) == ([1, 1], 3)
    finally:
        torch.set_num_threads(before)
