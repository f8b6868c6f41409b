"""What must have happened before a step: a wheel on its axle says that the axle is in place.

A procedure's order names what must be in place before a component. A step whose needs are not met was either seen too
early, or the steps that it needs were missed: they happened, and nobody saw them well enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from stormpsr.procedure.model import Procedure, StepKind


class NeededSteps:
    """Looks up the order of a procedure by component numbers."""

    def __init__(self, procedure: Procedure, expected: Collection[int]) -> None:
        """`expected`: the steps that can be reported at all; needs that only others could meet count as met."""
        names = [component.name for component in procedure.components]
        self._choices = [
            tuple(tuple(names.index(other) for other in choice) for choice in procedure.order.get(name, ()))
            for name in names
        ]
        steps = {kind: [procedure.step_id(k, kind) for k in range(len(names))] for kind in StepKind}
        self._install, self._remove = steps[StepKind.INSTALL], steps[StepKind.REMOVE]
        self._expected = frozenset(expected)

    def before(
        self, state_C: Sequence[int], component: int, *, installs: bool, evidence_of: Callable[[int], float]
    ) -> list[int]:
        """Ids of the steps that must come first, in a possible order. Of alternatives, that with the most evidence."""
        found: list[int] = []
        self._add(list(state_C), component, installs, evidence_of, found)
        return found

    def _add(
        self, state: list[int], component: int, installs: bool, evidence_of: Callable[[int], float], found: list[int]
    ) -> None:
        """Add what one component needs, and what that needs; `state` is where it leads."""
        for other in self._missing(state, component, evidence_of) if installs else self._in_the_way(state, component):
            step_id = (self._install if installs else self._remove)[other]
            if step_id in found:
                continue
            self._add(state, other, installs, evidence_of, found)
            state[other] = int(installs)
            found.append(step_id)

    def _missing(self, state: list[int], component: int, evidence_of: Callable[[int], float]) -> list[int]:
        """One component for each need that is not met and can be."""
        chosen = []
        for choice in self._choices[component]:
            possible = [other for other in choice if self._install[other] in self._expected]
            if possible and not any(state[other] == 1 for other in choice):
                chosen.append(max(possible, key=lambda other: evidence_of(self._install[other])))
        return chosen

    def _in_the_way(self, state: list[int], component: int) -> list[int]:
        """Components that cannot stay without this one."""
        return [
            other
            for other, choices in enumerate(self._choices)
            if state[other] == 1
            and self._remove[other] in self._expected
            and any(component in choice and not self._met(state, choice, component) for choice in choices)
        ]

    @staticmethod
    def _met(state: list[int], choice: tuple[int, ...], without: int) -> bool:
        return any(state[other] == 1 for other in choice if other != without)
