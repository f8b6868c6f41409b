"""From a belief about the states of components to step events and alarms; shared by all methods that have a belief.

A change is reported when its probability passes a threshold, in a frame that speaks for it. What was reported stays
until the opposite passes its own threshold.

Shape legend: C components, K settings tried side by side, 3 absent, correct, wrong.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.decoding.methods import Grid
from stormpsr.decoding.predictions import OUTPUT_COLUMNS, Decoder, DecoderBatch, Prediction, check_numbers
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateBits, StepKind, Variant

Floats = NDArray[np.float64]
ABSENT, CORRECT, WRONG = range(3)
_PARTS = [OUTPUT_COLUMNS.index(f"part {state}") for state in ("absent", "correct", "wrong")]
_AGREED = 0.5  # mean probability of the parts' initial states: cost nothing on 44 validation recordings
_CLEAR, _CLEAR_READINGS = 0.5, 3  # a detection so sure, so many times in a row


_THRESHOLDS = (
    "install_threshold",
    "removal_threshold",
    "together_threshold",
    "unexpected_threshold",
    "wrong_threshold",
)


@dataclass(frozen=True, slots=True)
class BeliefSettings:
    """When a belief becomes an event. The defaults are for detections alone; a fitted method has its own."""

    install_threshold: float = 0.9  # an expected step is reported at this probability
    removal_threshold: float = 0.9  # an expected removal
    together_threshold: float = 0.3  # an expected step, in a frame in which another one is reported
    unexpected_threshold: float = 0.999  # steps that the variant does not expect
    wrong_threshold: float = 0.7  # a part that sits wrongly; tuned by alarms: no score of completions tells
    fitted: bool = False  # whether the model's folder holds learned parameters
    unexpected: Literal["drop", "report"] | None = None  # None: report
    folder: Path | None = None  # of the model

    def __post_init__(self) -> None:
        check_numbers(self, dict.fromkeys(_THRESHOLDS, (0.0, 1.0)))


class Decisions:
    """From the belief to events, for many settings at once. What is reported follows the belief with hysteresis."""

    def __init__(self, procedure: Procedure, variant: Variant, settings: Sequence[BeliefSettings], source: str) -> None:
        self._source = source
        self.procedure, self.variant, self.settings = procedure, variant, settings
        expected = frozenset(variant.expected)
        expects = {
            kind: np.array([procedure.step_id(k, kind) in expected for k in range(procedure.n_components)])
            for kind in (StepKind.INSTALL, StepKind.REMOVE)
        }
        column = {
            name: np.array([getattr(own, name) for own in settings], dtype=np.float64)[:, None] for name in _THRESHOLDS
        }
        n = procedure.n_components
        unexpected = column["unexpected_threshold"]
        self._threshold_3KC = np.stack(
            [
                np.where(expects[StepKind.REMOVE], column["removal_threshold"], unexpected),
                np.where(expects[StepKind.INSTALL], column["install_threshold"], unexpected),
                np.broadcast_to(column["wrong_threshold"], (len(settings), n)),
            ]
        )
        never, together = 2.0, column["together_threshold"]
        self._together_3KC = np.stack(
            [
                np.where(expects[StepKind.REMOVE], together, never),
                np.where(expects[StepKind.INSTALL], together, never),
                np.full((len(settings), n), never),
            ]
        )
        self._expects = expects
        steps = [procedure.step(step_id) for step_id in variant.expected]
        self._installs = [(step.id, step.component_index) for step in steps if step.installs]
        self._needs = procedure.needs
        self._depth = self._needs.depth
        self.reset()

    def reset(self) -> None:
        initial_C = np.asarray(self.variant.initial, dtype=np.int64) % 3
        self.reported_KC = np.tile(initial_C, (len(self.settings), 1))
        self._skipped: set[tuple[int, int]] = set()

    def correct(self, component: int, bit: int) -> None:
        self.reported_KC[:, component] = bit % 3
        step_id = self.procedure.step_id(component, StepKind.INSTALL)
        self._skipped -= {(row, step_id) for row in range(len(self.settings))}

    def update(self, marginal_C3: Floats, said_C3: Floats, frame: int) -> list[list[StepEvent]]:
        """The events of each setting. Only what the frame speaks for is reported, as in the published decoders."""
        events: list[list[StepEvent]] = [[] for _ in self.settings]
        spoken_3C = np.stack(
            [
                said_C3[:, ABSENT] > said_C3[:, CORRECT],
                said_C3[:, CORRECT] >= np.maximum(said_C3[:, ABSENT], said_C3[:, WRONG]),
                said_C3[:, WRONG] > said_C3[:, CORRECT],
            ]
        )
        new_KC = self._believed(marginal_C3, spoken_3C, self._threshold_3KC)
        changed_KC = new_KC != self.reported_KC
        together_K = (changed_KC & (new_KC != WRONG)).any(axis=1)
        if together_K.any():  # a frame that is believed in one expected step is believed in all that are likely enough
            likely_KC = self._believed(marginal_C3, spoken_3C, self._together_3KC)
            new_KC = np.where(together_K[:, None] & ~changed_KC, likely_KC, new_KC)
            changed_KC = new_KC != self.reported_KC
        for row, k in zip(*np.nonzero(changed_KC), strict=True):
            own = self.settings[row]
            kind = {CORRECT: StepKind.INSTALL, WRONG: StepKind.INCORRECT, ABSENT: StepKind.REMOVE}[int(new_KC[row, k])]
            was_wrong = self.reported_KC[row, k] == WRONG
            unexpected = kind is not StepKind.INCORRECT and not self._expects[kind][k]
            self.reported_KC[row, k] = new_KC[row, k]
            if (kind is StepKind.REMOVE and was_wrong) or (unexpected and own.unexpected == "drop"):
                continue  # nothing correct was undone
            what: Literal["completed", "unexpected", "wrong"] = "unexpected" if unexpected else "completed"
            if kind is StepKind.INCORRECT:
                what = "wrong"
            confidence = float(marginal_C3[k, new_KC[row, k]])
            step_id = self.procedure.step_id(int(k), kind)
            events[row].append(StepEvent(step_id, frame, confidence=confidence, source=self._source, kind=what))
        for row_events in events:
            row_events.sort(key=self._order)
        return events

    def _believed(self, marginal_C3: Floats, spoken_3C: NDArray[np.bool_], threshold_3KC: Floats) -> NDArray[np.int64]:
        """What is believed of each component and spoken for; where nothing is, what was reported."""
        sure_3KC = (marginal_C3.T[:, None] > threshold_3KC) & spoken_3C[:, None]
        states = [CORRECT, WRONG, ABSENT]
        return np.select([sure_3KC[state] for state in states], states, self.reported_KC)

    def _order(self, event: StepEvent) -> tuple[int, int]:
        """What others need comes first; what others need is removed last."""
        step = self.procedure.step(event.step_id)
        depth = self._depth[step.component_index]
        return (depth if step.kind is not StepKind.REMOVE else -depth, step.component_index)

    def skipped(self, row: int, frame: int, marginal_C3: Floats, *, at_the_end: bool) -> list[StepEvent]:
        """Expected installations that were left out, as far as that can be known: at the end all that never came;

        before it, those that a part which is in place needs and that are not there.
        """
        reported_C, found = self.reported_KC[row], []
        absent_C = marginal_C3[:, ABSENT] > 0.95
        for step_id, k in self._installs:
            if not (absent_C[k] or at_the_end) or reported_C[k] == CORRECT or (row, step_id) in self._skipped:
                continue
            if at_the_end or self._is_needed(k, reported_C):
                self._skipped.add((row, step_id))
                sure = float(1 - marginal_C3[k, CORRECT])
                found.append(StepEvent(step_id, frame, confidence=sure, source=self._source, kind="skipped"))
        return found

    def share(self, marginal_C3: Floats) -> Floats:
        """The probability of what each step leads to, as a share of what is needed to report it; the first setting."""
        found = np.zeros(len(self.procedure.steps))
        for step in self.procedure.steps:
            leads_to = {StepKind.INSTALL: CORRECT, StepKind.INCORRECT: WRONG, StepKind.REMOVE: ABSENT}[step.kind]
            if self.reported_KC[0, step.component_index] != leads_to:
                needed = self._threshold_3KC[leads_to, 0, step.component_index]
                found[step.id] = marginal_C3[step.component_index, leads_to] / max(needed, 1e-9)
        return found

    def _is_needed(self, component: int, reported_C: NDArray[np.int64]) -> bool:
        present = {int(k) for k in np.flatnonzero(reported_C != ABSENT)} | {component}
        return bool(set(self._needs.carried_by(component, present)) - {component})


# ---------------------------------------------------------------------- decoders with a belief
class Believer(Protocol):
    """What turns predictions into a belief."""

    @property
    def marginal_C3(self) -> Floats: ...

    def reset(self) -> None: ...
    def take(self, prediction: Prediction) -> Floats | None:
        """What the prediction says of every component, (C, 3), once it is believed; None if it says nothing."""
        ...

    def set_component(self, component: int, state: int) -> None: ...


class Beginning:
    """Whether the work was seen: before that, nothing is reported.

    Networks that read parts know no image without the assembly, and read parts into whatever they are shown. So either
    what is read of the parts must have agreed once with the state in which the work begins, or the same state must
    have been detected several times in a row (who begins to watch late). Where nobody reads parts, all is believed but
    images that the networks do not know.
    """

    def __init__(self, variant: Variant) -> None:
        self._column_C = np.array([bit % 3 for bit in variant.initial])
        self.reset()

    def reset(self) -> None:
        self._seen, self._waits, self._in_a_row, self._class = False, False, 0, -1

    @property
    def seen(self) -> bool:
        return self._seen or not self._waits

    def take(self, prediction: Prediction) -> None:
        self._waits |= prediction.is_foreign
        if self._seen or prediction.outputs_CF is None:
            return
        parts_C3 = np.exp(prediction.outputs_CF[:, _PARTS].astype(np.float64))
        if np.isnan(parts_C3).any():
            return
        self._waits = True
        best = max(prediction.detections or (), key=lambda detection: detection.confidence, default=None)
        if best is None or best.confidence < _CLEAR:
            self._in_a_row = 0
        else:
            self._in_a_row = self._in_a_row + 1 if best.state_class == self._class else 1
            self._class = best.state_class
        agreed = float(parts_C3[np.arange(len(parts_C3)), self._column_C].mean())
        self._seen = agreed >= _AGREED or self._in_a_row >= _CLEAR_READINGS

    def correct(self) -> None:
        """Somebody who knows speaks of the work, so it is there."""
        self._seen = True


class BeliefDecoder(Decoder):
    """Feed it every frame; it returns the steps that the frame completes, wrong parts and steps left out among them."""

    Settings = BeliefSettings
    name: ClassVar[str]
    needs_every_tick, gives_alarms, fewest_to_learn_from = False, True, 8
    grid: ClassVar[Grid] = {
        "install_threshold": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        "removal_threshold": (0.6, 0.8, 0.9, 0.95),
        "together_threshold": (0.3, 0.6, 1.0),
        "unexpected_threshold": (0.9, 0.97, 0.99, 0.999),
    }
    alarm_grid: ClassVar[Grid] = {"wrong_threshold": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)}

    def __init__(self, procedure: Procedure, variant: str | None = None, settings: Any = None) -> None:
        own = self.Settings() if settings is None else settings
        self._believer = self.believer(procedure, procedure.variant(variant), own)
        self._decisions = Decisions(procedure, procedure.variant(variant), [own], self.name)
        self._beginning = Beginning(procedure.variant(variant))
        super().__init__(procedure, variant, own)

    @classmethod
    @abstractmethod
    def believer(cls, procedure: Procedure, variant: Variant, settings: Any) -> Believer:
        """What is believed does not depend on thresholds."""

    def reset(self) -> None:
        """Forget everything, for a new recording."""
        super().reset()
        self._believer.reset()
        self._decisions.reset()
        self._beginning.reset()

    def update(
        self,
        detections: Sequence[StateDetection],
        change_probabilities: Sequence[float] | NDArray[np.floating] | None = None,
        frame: int | None = None,
    ) -> list[StepEvent]:
        """The events of the next frame, of which the networks said no more than this."""
        number = self._frame + 1 if frame is None else frame
        change_C = None if change_probabilities is None else np.asarray(change_probabilities, dtype=np.float32)
        # a frame without a detection says nothing: who feeds detections alone leaves such frames out
        return self.observe(Prediction(number, number, 0.0, tuple(detections) or None, change_C))

    def observe(self, prediction: Prediction) -> list[StepEvent]:
        """The events of the next tick, from all that the networks said about it."""
        self._next_frame(prediction.tick)
        self._beginning.take(prediction)
        said_C3 = self._believer.take(prediction)
        if said_C3 is None or not self._beginning.seen:
            return []
        marginal_C3 = self._believer.marginal_C3
        (events,) = self._decisions.update(marginal_C3, said_C3, prediction.tick)
        return events + self._decisions.skipped(0, prediction.tick, marginal_C3, at_the_end=False)

    def rest(self, frame: int) -> None:
        """Frames of which nothing is known: time passes with the next one that is."""
        self._frame = max(self._frame, frame - 1)

    def finish(self) -> list[StepEvent]:
        """The expected steps that never came, now that the work has ended."""
        if not self._beginning.seen:
            return []
        return self._decisions.skipped(0, max(self._frame, 0), self._believer.marginal_C3, at_the_end=True)

    def correct(self, component: int, bit: int) -> None:
        """Somebody who knows says what is true (0 absent, 1 correct, -1 wrong): the belief goes on from there."""
        self._believer.set_component(component, bit)
        self._decisions.correct(component, bit)
        self._beginning.correct()

    # ------------------------------------------------------------------ for displays
    @property
    def state(self) -> StateBits:
        """The state that the reported steps lead to; -1 for a part that is reported wrong."""
        return tuple(-1 if digit == WRONG else int(digit) for digit in self._decisions.reported_KC[0])

    @property
    def share(self) -> NDArray[np.float64]:
        """The probability of what each step leads to, as a share of what is needed to report it."""
        return self._decisions.share(self._believer.marginal_C3)

    @property
    def component_probabilities(self) -> NDArray[np.float64]:
        """How surely each component is correctly in place."""
        return np.asarray(self._believer.marginal_C3[:, CORRECT].copy())

    @property
    def state_probabilities(self) -> NDArray[np.float64]:
        """How surely each component is absent, correct, wrong; (C, 3)."""
        return np.array(self._believer.marginal_C3)

    # ------------------------------------------------------------------ tuning
    @classmethod
    def batch(cls, procedure: Procedure, variant: str | None, settings: Sequence[Any]) -> DecoderBatch:
        return BeliefGrid(cls, procedure, variant, settings)


class BeliefGrid:
    """Many thresholds on one belief, which does not depend on them."""

    def __init__(
        self, kind: type[BeliefDecoder], procedure: Procedure, variant: str | None, settings: Sequence[Any]
    ) -> None:
        apart = [entry.name for entry in fields(kind.Settings) if entry.name not in _THRESHOLDS]
        if len({tuple(getattr(own, name) for name in apart) for own in settings}) > 1:
            raise InputError("settings of one batch may differ in their thresholds only")
        chosen = procedure.variant(variant)
        self._believer = kind.believer(procedure, chosen, settings[0])
        self._decisions = Decisions(procedure, chosen, settings, kind.name)
        self._beginning = Beginning(chosen)
        self.events: list[list[StepEvent]] = [[] for _ in settings]

    def observe(self, prediction: Prediction) -> None:
        self._beginning.take(prediction)
        said_C3 = self._believer.take(prediction)
        if said_C3 is not None and self._beginning.seen:
            found = self._decisions.update(self._believer.marginal_C3, said_C3, prediction.tick)
            for events, new in zip(self.events, found, strict=True):
                events += [replace(event, frame=prediction.index) for event in new]
