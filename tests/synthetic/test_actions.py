"""Which steps are carried out, and in which order."""

import numpy as np
import pytest

from stormpsr.procedure.model import StepKind
from stormpsr.synthetic.actions import Action, ErrorRates, draw_actions
from stormpsr.synthetic.product import Product

FAULTLESS = ErrorRates(0.0, 0.0, 0.0, 0.0)


@pytest.fixture(scope="module", params=["vehicle", "gearbox"])
def product(request: pytest.FixtureRequest) -> Product:
    return Product.load(request.param)


def drawn(
    product: Product, seed: int, rates: ErrorRates = FAULTLESS, together: float = 0.3, variant: str | None = None
) -> list[Action]:
    return draw_actions(
        product,
        product.procedure.variant(variant),
        rates,
        together_rate=together,
        tidiness=1.0,
        rng=np.random.default_rng(seed),
    )


def replay(product: Product, actions: list[Action], variant: str | None = None) -> list[tuple[int, ...]]:
    """The states that the actions pass through; fails if an action cannot be."""
    bits = list(product.procedure.variant(variant).initial)
    states = []
    for action in actions:
        for k in action.components:
            if action.kind is StepKind.REMOVE:
                assert bits[k] != 0, "only what is mounted can be removed"
                assert not product.blocked_by(bits, k), "nothing may sit on what is removed"
                bits[k] = 0
            else:
                assert bits[k] == 0, "only what is absent can be installed"
                bits[k] = 1 if action.kind is StepKind.INSTALL else -1
        states.append(tuple(bits))
    return states


@pytest.mark.parametrize("seed", range(8))
def test_without_errors_every_variant_reaches_its_goal_within_the_partial_order(product: Product, seed: int) -> None:
    for name, variant in product.procedure.variants.items():
        actions = drawn(product, seed, variant=name)
        states = replay(product, actions, name)
        goal = list(variant.initial)
        steps = [product.procedure.step(step_id) for step_id in variant.expected]
        for step in sorted(steps, key=lambda step: step.kind is not StepKind.REMOVE):
            goal[step.component_index] = 0 if step.kind is StepKind.REMOVE else 1
        assert states[-1] == tuple(goal)
        assert all(product.procedure.build_order(state) is not None for state in states)


def test_people_differ_in_their_order(product: Product) -> None:
    assert len({tuple(drawn(product, seed)) for seed in range(10)}) > 3


def test_two_parts_are_completed_in_one_go_only_if_asked(product: Product) -> None:
    alone = [action for seed in range(10) for action in drawn(product, seed, together=0.0)]
    pairs = [action for seed in range(10) for action in drawn(product, seed, together=1.0)]
    assert all(len(action.components) == 1 for action in alone)
    assert any(len(action.components) == 2 for action in pairs)


def test_a_part_put_on_wrongly_is_taken_off_and_put_on_again(product: Product) -> None:
    rates = ErrorRates(error_rate=1.0, removal_rate=0.0, omission_rate=0.0, uncorrected_share=0.0)
    for seed in range(5):
        actions = drawn(product, seed, rates)
        states = replay(product, actions)
        wrong = {a.components[0] for a in actions if a.kind is StepKind.INCORRECT}
        assert wrong
        assert -1 not in states[-1]
        for component in wrong:
            kinds = [a.kind for a in actions if component in a.components]
            assert kinds == [StepKind.INCORRECT, StepKind.REMOVE, StepKind.INSTALL]


def test_a_part_put_on_wrongly_may_stay_wrong(product: Product) -> None:
    rates = ErrorRates(error_rate=1.0, removal_rate=0.0, omission_rate=0.0, uncorrected_share=1.0)
    assert -1 in replay(product, drawn(product, 0, rates))[-1]


def test_removals_are_followed_by_a_second_installation(product: Product) -> None:
    rates = ErrorRates(error_rate=0.0, removal_rate=0.9, omission_rate=0.0, uncorrected_share=0.0)
    variant = product.procedure.variant()
    expected_removals = sum(product.procedure.step(s).kind is StepKind.REMOVE for s in variant.expected)
    removals = 0
    for seed in range(5):
        actions = drawn(product, seed, rates)
        assert replay(product, actions)[-1] == replay(product, drawn(product, seed))[-1]
        removals += sum(a.kind is StepKind.REMOVE for a in actions) - expected_removals
    assert removals > 5


def test_wrong_order_is_undone_before_the_missing_part_goes_on() -> None:
    product = Product.load("vehicle")
    rates = ErrorRates(error_rate=0.0, removal_rate=1.0, omission_rate=0.0, uncorrected_share=0.0)
    breaches = 0
    for seed in range(30):
        for state in replay(product, drawn(product, seed, rates, together=0.0)):
            breaches += product.procedure.build_order(state) is None
    assert breaches > 0


def test_omitted_steps_are_missing_at_the_end(product: Product) -> None:
    rates = ErrorRates(error_rate=0.0, removal_rate=0.0, omission_rate=1.0, uncorrected_share=0.0)
    ends = {replay(product, drawn(product, seed, rates))[-1] for seed in range(5)}
    complete = replay(product, drawn(product, 0))[-1]
    assert all(sum(map(abs, end)) < sum(complete) for end in ends)
    assert all(product.procedure.build_order(end) is not None for end in ends)


def test_error_rates_come_out_as_asked() -> None:
    product = Product.load("gearbox")
    rates = ErrorRates(error_rate=0.1, removal_rate=0.1, omission_rate=0.0, uncorrected_share=0.3)
    actions = [action for seed in range(60) for action in drawn(product, seed, rates)]
    installs = sum(len(a.components) for a in actions if a.kind is not StepKind.REMOVE)
    share = sum(a.kind is StepKind.INCORRECT for a in actions) / installs
    assert 0.04 < share < 0.14


def test_faults_that_are_kept_from_training_are_drawn_only_where_they_are_asked_for(product: Product) -> None:
    for unseen in (False, True):
        rates = ErrorRates(1.0, 0.0, 0.0, 0.5, unseen_faults=unseen)
        faults = [
            product.parts[action.components[0]].wrong_poses[action.wrong_choice]
            for seed in range(10)
            for action in drawn(product, seed, rates)
            if action.kind is StepKind.INCORRECT
        ]
        assert faults
        assert all(fault.unseen == unseen for fault in faults)
