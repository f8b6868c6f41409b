"""What holds for every temporal model, and what sets them apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from stormpsr.models.stream import count_multiply_adds, count_parameters
from stormpsr.models.temporal import (
    AveragedModel,
    LSTMModel,
    MLPModel,
    StatesModel,
    TCNModel,
    TemporalModel,
    TransformerModel,
)

D, C = 16, 5
Make = Callable[[int], TemporalModel]


def transformer(n_frames: int) -> TemporalModel:
    return TransformerModel(
        embedding_dim=D, n_frames=n_frames, n_components=C, width=32, layers=2, heads=4, mlp_width=64, dropout=0.0
    )


def lstm(n_frames: int) -> TemporalModel:
    return LSTMModel(embedding_dim=D, n_frames=n_frames, n_components=C, width=24, layers=1, dropout=0.0)


def tcn(n_frames: int) -> TemporalModel:
    return TCNModel(embedding_dim=D, n_frames=n_frames, n_components=C, width=24, kernel=3, dropout=0.0)


def mlp(n_frames: int) -> TemporalModel:
    return MLPModel(embedding_dim=D, n_frames=n_frames, n_components=C, width=24, hidden_width=32, dropout=0.0)


def states(n_frames: int) -> TemporalModel:
    return StatesModel(embedding_dim=D, n_frames=n_frames, n_components=C, queries=4, context=4, hidden_width=16)


def averaged(n_frames: int) -> TemporalModel:
    return AveragedModel([states(n_frames), states(n_frames)])


every_model = pytest.mark.parametrize("make", [transformer, lstm, tcn, mlp, states, averaged])


@every_model
@pytest.mark.parametrize("n_frames", [16, 64, 256])
def test_every_model_gives_a_logit_per_component_at_every_window(make: Make, n_frames: int) -> None:
    model = make(n_frames)
    logits_BC = model(torch.randn(2, n_frames, D), torch.ones(2, n_frames, dtype=torch.bool))
    assert logits_BC.shape == (2, C)
    assert torch.isfinite(logits_BC).all()


@every_model
def test_what_stands_in_the_place_of_missing_frames_has_no_influence(make: Make) -> None:
    model = make(16).eval()
    clip = torch.randn(1, 16, D)
    mask = torch.ones(1, 16, dtype=torch.bool)
    mask[:, :10] = False
    other = clip.clone()
    other[:, :10] = torch.randn(10, D)
    torch.testing.assert_close(model(clip, mask), model(other, mask))
    assert not torch.allclose(model(clip, torch.ones_like(mask)), model(other, torch.ones_like(mask)))


@every_model
def test_a_clip_of_a_single_frame_is_fine(make: Make) -> None:
    model = make(16)
    mask = torch.zeros(2, 16, dtype=torch.bool)
    mask[:, -1] = True
    loss = model(torch.randn(2, 16, D), mask).sum()
    loss.backward()
    assert torch.isfinite(loss)


@every_model
def test_the_order_of_frames_matters(make: Make) -> None:
    model = make(16).eval()
    clip, mask = torch.randn(1, 16, D), torch.ones(1, 16, dtype=torch.bool)
    assert not torch.allclose(model(clip, mask), model(clip.flip(1), mask), atol=1e-5)


@every_model
def test_the_first_frame_reaches_the_output(make: Make) -> None:
    model = make(64).eval()
    clip = torch.randn(1, 64, D, requires_grad=True)
    model(clip, torch.ones(1, 64, dtype=torch.bool)).square().sum().backward()
    assert clip.grad[0, 0].abs().sum() > 0


@every_model
def test_every_parameter_takes_part_in_training(make: Make) -> None:
    model = make(16)
    model(torch.randn(4, 16, D), torch.ones(4, 16, dtype=torch.bool)).square().sum().backward()
    idle = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert idle == []


@every_model
def test_clips_of_a_batch_do_not_influence_each_other(make: Make) -> None:
    model = make(16).eval()
    clips, mask = torch.randn(3, 16, D), torch.ones(3, 16, dtype=torch.bool)
    torch.testing.assert_close(model(clips, mask)[1:2], model(clips[1:2], mask[1:2]))


def test_a_padded_clip_is_to_a_tcn_what_a_shorter_clip_is() -> None:
    long = tcn(64).eval()
    short_clip = torch.randn(1, 20, D)
    padded = torch.cat([torch.randn(1, 44, D), short_clip], dim=1)
    mask = torch.arange(64)[None] >= 44
    torch.testing.assert_close(long(padded, mask), long(short_clip, torch.ones(1, 20, dtype=torch.bool)))


def test_what_an_lstm_says_depends_on_the_first_frame_through_all_others() -> None:
    model = LSTMModel(embedding_dim=2, n_frames=5, n_components=1, width=8, layers=1, dropout=0.0)
    clip_BND = torch.randn(3, 5, 2, requires_grad=True)
    model(clip_BND, torch.ones(3, 5, dtype=torch.bool)).sum().backward()
    assert clip_BND.grad is not None
    assert (clip_BND.grad.abs().sum(dim=-1) > 0).all()  # of every frame of every clip


def test_the_layers_of_a_transformer_start_from_different_numbers() -> None:
    first, second = transformer(16).encoder.layers
    assert not torch.equal(first.linear1.weight, second.linear1.weight)


def test_parameters_and_multiply_adds_of_an_mlp_are_those_of_its_matrices() -> None:
    model = mlp(16)
    weights = 16 * D * 32 + 32 * 24 + 24 * 24 + 24 * C
    assert count_parameters(model) == weights + 32 + 24 + 24 + C
    counted = count_multiply_adds(
        model,
        lambda shapes: shapes(torch.zeros(1, 16, D, device="meta"), torch.ones(1, 16, dtype=torch.bool, device="meta")),
    )
    assert counted == weights


def test_multiply_adds_of_an_lstm_are_counted_step_by_step() -> None:
    counted = count_multiply_adds(
        lstm(10),
        lambda shapes: shapes(torch.zeros(1, 10, D, device="meta"), torch.ones(1, 10, dtype=torch.bool, device="meta")),
    )
    assert counted == 10 * 4 * 24 * (D + 24) + 24 * 24 + 24 * C


def test_the_model_of_states_says_what_frames_show_and_what_is_true_at_both_ends() -> None:
    model = StatesModel(embedding_dim=D, n_frames=8, n_components=C, queries=4, context=4, hidden_width=16)
    clip_BND, mask_BN = torch.randn(3, 8, D), torch.ones(3, 8, dtype=torch.bool)
    change_BC, frames_BNC3, ends_BC23 = model.eval().with_states(clip_BND, mask_BN)
    assert frames_BNC3.shape == (3, 8, C, 3)
    assert ends_BC23.shape == (3, C, 2, 3)
    model.ends_share = 0.0
    torch.testing.assert_close(model(clip_BND, mask_BN), change_BC)
    model.ends_share = 1.0
    first_BC, last_BC = ends_BC23.softmax(dim=-1)[..., 1].unbind(dim=-1)
    differ_BC = first_BC + last_BC - 2 * first_BC * last_BC  # one of them is correct, the other is not
    torch.testing.assert_close(torch.sigmoid(model(clip_BND, mask_BN)), differ_BC)
    model.ends_share = 0.25
    expected_BC = 0.75 * torch.sigmoid(change_BC) + 0.25 * differ_BC
    torch.testing.assert_close(torch.sigmoid(model(clip_BND, mask_BN)), expected_BC)


def test_several_models_say_the_mean_of_what_they_say_alone() -> None:
    model = averaged(8).eval()
    clip_BND, mask_BN = torch.randn(3, 8, D), torch.ones(3, 8, dtype=torch.bool)
    alone = torch.stack([torch.sigmoid(member(clip_BND, mask_BN)) for member in model.members])
    assert not torch.allclose(alone[0], alone[1])
    torch.testing.assert_close(torch.sigmoid(model(clip_BND, mask_BN)), alone.mean(dim=0))
