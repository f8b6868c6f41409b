"""The contrastive loss against its definition, term by term."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from stormpsr.models.encoder import SupConForm, supervised_contrastive_loss

FORMS: list[SupConForm] = ["paper", "common"]


def batch(n_states: int = 3, per_state: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z_BD = functional.normalize(torch.randn(n_states * per_state, 8, generator=generator, dtype=torch.float64), dim=1)
    return z_BD, torch.arange(n_states).repeat_interleave(per_state)


def by_hand(z_BD: Tensor, label_B: Tensor, temperature: float, margin: float, form: SupConForm) -> float:
    """The equations as nested loops."""
    losses = []
    n = len(z_BD)
    for i in range(n):
        partners = [p for p in range(n) if p != i and label_B[p] == label_B[i]]

        def weight(j: int, i: int = i, partners: list[int] = partners) -> float:
            return math.exp((float(z_BD[i] @ z_BD[j]) - (margin if j in partners else 0)) / temperature)

        everything = sum(weight(a) for a in range(n) if a != i)
        shares = [weight(p) / everything for p in partners]
        if form == "paper":
            losses.append(-math.log(sum(shares) / len(shares)))
        else:
            losses.append(-sum(math.log(share) for share in shares) / len(shares))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("margin", [0.0, 0.01, 0.3])
def test_the_loss_equals_its_equation(form: SupConForm, margin: float) -> None:
    z_BD, label_B = batch()
    loss = supervised_contrastive_loss(z_BD, label_B, temperature=0.07, margin=margin, form=form)
    assert float(loss) == pytest.approx(by_hand(z_BD, label_B, 0.07, margin, form), rel=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_grouped_states_cost_less_than_mixed_ones(form: SupConForm) -> None:
    corners = torch.eye(3, dtype=torch.float64).repeat_interleave(4, dim=0)
    grouped, mixed = torch.arange(3).repeat_interleave(4), torch.arange(3).repeat(4)
    settings = {"temperature": 0.07, "margin": 0.01, "form": form}
    assert supervised_contrastive_loss(corners, grouped, **settings) < supervised_contrastive_loss(
        corners, mixed, **settings
    )


def test_the_common_form_is_never_below_the_papers() -> None:
    """The logarithm of a mean is at least the mean of the logarithms."""
    for seed in range(5):
        z_BD, label_B = batch(seed=seed)
        paper, common = (
            supervised_contrastive_loss(z_BD, label_B, temperature=0.07, margin=0.0, form=form) for form in FORMS
        )
        assert common >= paper


@pytest.mark.parametrize("form", FORMS)
def test_a_larger_margin_asks_for_more(form: SupConForm) -> None:
    z_BD, label_B = batch()
    losses = [
        float(supervised_contrastive_loss(z_BD, label_B, temperature=0.07, margin=margin, form=form))
        for margin in (0.0, 0.01, 0.1)
    ]
    assert losses == sorted(losses)
    assert losses[0] < losses[-1]


@pytest.mark.parametrize("form", FORMS)
def test_an_image_without_partner_is_left_out_and_gradients_stay_finite(form: SupConForm) -> None:
    z_BD, label_B = batch(2, 3)
    alone = functional.normalize(torch.ones(1, 8, dtype=torch.float64), dim=1)
    everything = torch.cat([z_BD, alone]).requires_grad_()
    labels = torch.cat([label_B, torch.tensor([9])])
    loss = supervised_contrastive_loss(everything, labels, temperature=0.07, margin=0.01, form=form)
    loss.backward()
    assert torch.isfinite(everything.grad).all()
    with_stranger = supervised_contrastive_loss(z_BD, label_B, temperature=0.07, margin=0.01, form=form)
    assert loss > with_stranger  # the stranger still stands below the fraction line


@pytest.mark.parametrize("form", FORMS)
def test_no_partners_at_all_cost_nothing(form: SupConForm) -> None:
    z_BD, _ = batch(1, 3)
    assert supervised_contrastive_loss(z_BD, torch.arange(3), temperature=0.07, margin=0.01, form=form) == 0


@pytest.mark.parametrize("form", FORMS)
def test_two_halves_compared_with_the_whole_average_to_the_loss_of_the_whole(form: SupConForm) -> None:
    z_BD, label_B = batch()
    settings = {"temperature": 0.07, "margin": 0.01, "form": form}
    whole = supervised_contrastive_loss(z_BD, label_B, **settings)
    halves = [
        supervised_contrastive_loss(
            z_BD[own], label_B[own], own_B=own, others_QD=z_BD, other_label_Q=label_B, **settings
        )
        for own in (torch.arange(0, 12, 2), torch.arange(1, 12, 2))
    ]
    assert float(sum(halves) / 2) == pytest.approx(float(whole))
