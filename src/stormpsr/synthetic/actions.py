"""Which steps a person carries out, and in which order: drawn from the partial order, with slips and second thoughts.

Errors come in the four kinds seen in real recordings: a part put on wrongly (and taken off later, or never), a part
left out, a part taken off and put on again, and a part put on too early and undone to make room for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stormpsr.procedure.model import StepKind, Variant
from stormpsr.synthetic.product import Product


@dataclass(frozen=True)
class ErrorRates:
    """How often things go wrong, per expected installation."""

    error_rate: float
    removal_rate: float
    omission_rate: float
    uncorrected_share: float
    unseen_faults: bool = False  # of the wrong poses, those that the product keeps from training


@dataclass(frozen=True)
class Action:
    """One completion: one part, or two that are completed in the same moment."""

    kind: StepKind
    components: tuple[int, ...]
    wrong_choice: int = 0  # which of the component's wrong poses, where the kind is INCORRECT

    @property
    def bit(self) -> int:
        """What the components' labels are from then on."""
        return {StepKind.INSTALL: 1, StepKind.INCORRECT: -1, StepKind.REMOVE: 0}[self.kind]


@dataclass
class _Table:
    """The state of the work while actions are drawn."""

    product: Product
    bits: list[int]
    to_install: set[int]
    to_remove: set[int]
    due: dict[int, int] = field(default_factory=dict)  # component -> actions until it is taken off again
    settled: set[int] = field(default_factory=set)  # has had its slip: goes right from now on
    next_up: list[int] = field(default_factory=list)  # installations that follow at once
    actions: list[Action] = field(default_factory=list)

    def installable(self, component: int, *, along_with: int | None = None) -> bool:
        """Whether a part can go on now, or in one go with another one.

        A part that is about to come off again carries nothing, and nothing may get in its way.
        """
        if component in self.to_remove or self.bits[component] != 0:
            return False
        solid = [0 if k in self.due else bit for k, bit in enumerate(self.bits)]
        if along_with is not None:
            solid[along_with] = 1
        after = [1 if k == component else bit for k, bit in enumerate(self.bits)]
        in_the_way = any(component in self.product.blocked_by(after, k) for k in self.due)
        return self.fits(solid, component) and not in_the_way

    def fits(self, bits: Sequence[int], component: int) -> bool:
        """Whether the order allows the component now and its place is free."""
        free = not self.product.blocked_by(self.bits, component)
        return free and self.product.procedure.can_install(bits, component)

    def removable(self, component: int) -> bool:
        """Whether it is mounted and nothing sits on it."""
        return self.bits[component] != 0 and not self.product.blocked_by(self.bits, component)

    def do(self, kind: StepKind, components: Sequence[int], wrong_choice: int = 0) -> None:
        self.actions.append(Action(kind, tuple(components), wrong_choice))
        for component in components:
            self.bits[component] = self.actions[-1].bit
        self.due = {k: left - 1 for k, left in self.due.items()}


def draw_actions(
    product: Product,
    variant: Variant,
    rates: ErrorRates,
    *,
    together_rate: float,
    tidiness: float,
    rng: np.random.Generator,
) -> list[Action]:
    """The completions of one recording in their order. `tidiness` is how closely the listed order is followed."""
    expected = [product.procedure.step(step_id) for step_id in variant.expected]
    table = _Table(
        product,
        list(variant.initial),
        to_install={step.component_index for step in expected if step.kind is StepKind.INSTALL},
        to_remove={step.component_index for step in expected if step.kind is StepKind.REMOVE},
    )
    _leave_out(table, rates.omission_rate, rng)
    while table.to_install or table.to_remove or table.due:
        if not _undo_if_due(table) and not _work_on(table, rates, together_rate, tidiness, rng):
            break
    return table.actions


def _leave_out(table: _Table, omission_rate: float, rng: np.random.Generator) -> None:
    """Forget installations nothing else waits for."""
    for component in sorted(table.to_install):
        others = [k for k in table.to_install if k != component]
        bits = [1 if (bit or k in others) else 0 for k, bit in enumerate(table.bits)]
        bits[component] = 0
        needed = any(not table.product.procedure.can_install(bits, k) for k in others)
        if rng.random() < omission_rate and not needed and len(table.to_install) > 1:
            table.to_install.discard(component)


def _undo_if_due(table: _Table) -> bool:
    """Take off a part whose time has come; the installation that makes it good follows at once."""
    ready = [k for k, left in table.due.items() if left <= 0]
    stuck = not any(table.installable(k) for k in table.to_install) and not any(map(table.removable, table.to_remove))
    if not ready and not (stuck and table.due):
        return False
    component = ready[0] if ready else next(iter(table.due))
    del table.due[component]
    if not table.removable(component):
        return True  # something completed together with it sits on top: they leave it
    table.do(StepKind.REMOVE, [component])
    table.to_install.add(component)
    table.next_up.append(component)
    return True


def _work_on(table: _Table, rates: ErrorRates, together_rate: float, tidiness: float, rng: np.random.Generator) -> bool:
    """Carry out the next expected step, perhaps with a slip. False if nothing can be done any more."""
    draws = rng.random(6)  # always the same number, so that one slip does not reshuffle all that follows
    removals = [k for k in sorted(table.to_remove) if table.removable(k)]
    if removals:
        component = removals[int(draws[0] * len(removals))]
        table.to_remove.discard(component)
        table.do(StepKind.REMOVE, [component])
        return True
    ready = [k for k in sorted(table.to_install) if table.installable(k)]
    if not ready:
        return False
    urgent = [k for k in table.next_up if k in ready]
    component = urgent[0] if urgent else _choose(table, ready, tidiness, draws[0])
    if component in table.next_up:
        table.next_up.remove(component)
    slips = component not in table.settled
    wrong = table.product.parts[component].wrong_choices(rates.unseen_faults)
    if slips and wrong and draws[1] < rates.error_rate:
        table.to_install.discard(component)
        table.settled.add(component)
        table.do(StepKind.INCORRECT, [component], wrong_choice=wrong[int(draws[3] * len(wrong))])
        if draws[4] >= rates.uncorrected_share:
            table.due[component] = int(draws[5] * 3)
    elif slips and draws[2] < 0.4 * rates.removal_rate and _too_early(table, component):
        pass
    else:
        _install(table, component, together_rate, draws[4])
        if slips and draws[3] < 0.6 * rates.removal_rate:
            table.due[component] = int(draws[5] * 3)
            table.settled.add(component)
    return True


def _choose(table: _Table, ready: list[int], tidiness: float, draw: float) -> int:
    """The next part: people mostly follow the list, and pass through the states the product is known by."""
    known = table.product.procedure.class_of_bits
    weights = []
    for rank, component in enumerate(ready):
        after = list(table.bits)
        after[component] = 1
        weights.append(np.exp(-tidiness * rank) * (3.0 if tuple(after) in known else 1.0))
    return ready[int(np.searchsorted(np.cumsum(weights) / np.sum(weights), draw, side="right").clip(0, len(ready) - 1))]


def _too_early(table: _Table, component: int) -> bool:
    """Put on a part that should wait for `component`, take it off again, and go on in the right order."""
    solid = list(table.bits)
    solid[component] = 1
    waiting = [
        k
        for k in sorted(table.to_install)
        if k not in table.settled and not table.installable(k) and table.fits(solid, k)
    ]
    if not waiting or table.bits[waiting[0]] != 0:
        return False
    early = waiting[0]
    table.settled.update((early, component))
    table.do(StepKind.INSTALL, [early])
    table.do(StepKind.REMOVE, [early])
    table.next_up[:0] = [component, early]
    return True


def _install(table: _Table, component: int, together_rate: float, draw: float) -> None:
    """Install a part, sometimes together with one that makes a known state with it, or else with the nearest one."""

    def cost(partner: int) -> float:
        after = list(table.bits)
        after[component] = after[partner] = 1
        known = tuple(after) in table.product.procedure.class_of_bits
        apart = table.product.parts[partner].fit_point_3 - table.product.parts[component].fit_point_3
        return float(np.linalg.norm(apart)) - (10.0 if known else 0.0)

    together = [component]
    partners = [k for k in sorted(table.to_install - {component}) if table.installable(k, along_with=component)]
    if partners and draw < together_rate:
        together.append(min(partners, key=cost))
    for k in together:
        table.to_install.discard(k)
        if k in table.next_up:
            table.next_up.remove(k)
    table.do(StepKind.INSTALL, together)
