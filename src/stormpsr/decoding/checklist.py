"""The work instruction as a list with ticks: which expected steps are done, since when, and which are on their way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StepEvent
from stormpsr.procedure.model import Procedure, Step, StepKind


@dataclass(frozen=True, slots=True)
class ChecklistRow:
    """A step of the work instruction."""

    step: Step
    done: StepEvent | None  # the event that ticked it off
    share: float = 0.0  # of the evidence that it takes
    alarm: StepEvent | None = None  # its part sits wrongly, or the step was left out


class Checklist:
    """Feed it events. A tick goes away when a step that the variant does not expect undoes it."""

    def __init__(self, procedure: Procedure, variant: str | None = None) -> None:
        self.procedure = procedure
        self._expected = procedure.variant(variant).expected
        self.reset()

    def reset(self) -> None:
        self._done: dict[int, StepEvent] = {}
        self._alarms: dict[int, StepEvent] = {}  # by the step that they are about
        self._unexpected: list[StepEvent] = []

    def update(self, events: Iterable[StepEvent]) -> None:
        for event in events:
            step = self.procedure.step(event.step_id)
            installs = self.procedure.step_id(step.component_index, StepKind.INSTALL)
            if event.kind == "wrong":
                self._done.pop(installs, None)
            if event.kind in ("wrong", "skipped"):
                self._alarms[installs] = event
                continue
            self._alarms.pop(installs, None)
            if event.step_id in self._expected:
                self._done[event.step_id] = event
                continue
            self._unexpected = [*self._unexpected, event][-20:]
            undone = StepKind.REMOVE if step.kind is StepKind.INSTALL else StepKind.INSTALL
            self._done.pop(self.procedure.step_id(step.component_index, undone), None)

    def rows(self, share_S: Sequence[float] | NDArray[np.floating] | None = None) -> list[ChecklistRow]:
        """The expected steps, with their share of what completes them where it is given."""
        return [
            ChecklistRow(
                self.procedure.step(step_id),
                self._done.get(step_id),
                0.0 if share_S is None else float(share_S[step_id]),
                self._alarms.get(step_id),
            )
            for step_id in self._expected
        ]

    @property
    def unexpected(self) -> tuple[StepEvent, ...]:
        """The latest events that are not part of the work instruction."""
        return tuple(self._unexpected)
