"""From assembly-state detections to step events: the three baselines of IndustReal, as streaming objects.

- `naive` (B1): every confident detection of another state completes the steps that lead to it.
- `confidence` (B2): the confidence of each step accumulates over frames until a threshold, and decays otherwise.
- `expected` (B3): the same, starting from the procedure's initial state and reporting only the steps it expects.

They equal the published programs event for event, quirks included; each quirk is marked.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.decoding.methods import Grid
from stormpsr.decoding.predictions import Decoder, check_numbers
from stormpsr.errors import InputError
from stormpsr.procedure.model import StateBits, StateKind, StepKind

_THRESHOLDS: Grid = {"threshold": (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)}


@dataclass(frozen=True, slots=True)
class BaselineSettings:
    """The settings of all three; the defaults are the published ones."""

    threshold: float = 8.0  # accumulated confidence that completes a step (B2, B3)
    decay: float = 0.75  # factor per frame for steps that the frame does not suggest (B2, B3)
    min_confidence: float = 0.5  # detections must be surer than this (B1)

    def __post_init__(self) -> None:
        check_numbers(self, {"threshold": (0, np.inf), "decay": (0, 1), "min_confidence": (0, 1)})


class StateDecoder(Decoder):
    """Feed it the detections of one frame after the other; it returns the steps that each frame completes.

    Every frame must be fed, also those without detections: evidence decays with time.
    """

    Settings = BaselineSettings
    name: ClassVar[str]

    @property
    def state(self) -> StateBits | None:
        """The state the decoder believes in, or None if it knows none."""
        return tuple(self._state) if self._state else None

    def reset(self) -> None:
        """Forget everything, for a new recording."""
        super().reset()
        self._state: list[int] | None = None  # None: nothing seen yet; empty: seen, but nothing known

    def correct(self, component: int, bit: int) -> None:
        """Somebody who knows says what is true. A decoder that knew nothing knows the variant's initial state then."""
        self._state = self._state or list(self.variant.initial)
        self._state[component] = bit

    @property
    def share(self) -> NDArray[np.float64]:
        return np.zeros(len(self.procedure.steps))

    def update(
        self,
        detections: Sequence[StateDetection],
        change_probabilities: object = None,
        frame: int | None = None,
    ) -> list[StepEvent]:
        """The events of the next frame. `frame` is its index; without one, frames are counted from 0."""
        if frame is None:
            frame = detections[0].frame if detections else self._frame + 1
        for detection in detections:
            if detection.frame != frame:
                raise InputError(f"a detection of frame {detection.frame} among those of frame {frame}")
            if detection.state_class >= len(self.procedure.states):
                raise InputError(
                    f"frame {frame}: state class {detection.state_class} does not exist in {self.procedure.name!r}",
                    cure=f"its classes are 0 to {len(self.procedure.states) - 1}",
                )
        self._next_frame(frame)
        return self._update(detections)

    @abstractmethod
    def _update(self, detections: Sequence[StateDetection]) -> list[StepEvent]: ...

    def _bits(self, state_class: int) -> list[int]:
        """The bits of a class; none for background and error, which say nothing about the components."""
        return list(self.procedure.states[state_class].bits or ())

    def _steps_to(self, bits: Sequence[int]) -> list[int]:
        """Ids of the steps from the current state to another; none if either is unknown."""
        if not self._state or not bits:
            return []
        return [step.id for step in self.procedure.steps_between(self._state, bits)]


class NaiveDecoder(StateDecoder):
    """B1. Believes the most confident detection of a frame if its confidence exceeds `min_confidence`.

    The first detection, however weak, sets the state without completing anything. Published quirk: a background
    detection wipes the state, so that the next one sets it again without completing anything; an error detection that
    comes first does the same, a later one is ignored.
    """

    name = "naive"
    grid: ClassVar[Grid] = {"min_confidence": (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)}

    def _update(self, detections: Sequence[StateDetection]) -> list[StepEvent]:
        if not detections:
            return []
        best = max(detections, key=lambda detection: detection.confidence)  # the first of equals
        bits = self._bits(best.state_class)
        if self._state is None:
            self._state = bits
            return []
        is_error = self.procedure.states[best.state_class].kind is StateKind.ERROR
        if is_error or best.confidence <= self.settings.min_confidence:
            return []
        step_ids = self._steps_to(bits)
        self._state = bits
        return [StepEvent(step_id, self._frame, confidence=best.confidence, source=self.name) for step_id in step_ids]


class ConfidenceDecoder(StateDecoder):
    """B2. Looks only at the first detection of a frame.

    Each step that would turn the current state into the detected one gains the detection's confidence. A step whose
    sum exceeds the threshold is completed if it is expected; its sum starts again from zero either way. Every step that
    the frame did not suggest is multiplied by the decay.

    Published quirk: the first detection sets the state; if it is background or error, the state stays unknown for good
    and no step is ever completed.
    """

    name = "confidence"
    grid = _THRESHOLDS

    def reset(self) -> None:
        super().reset()
        self._evidence = np.zeros(len(self.procedure.steps))
        self._expected = frozenset(range(len(self.procedure.steps)))

    @property
    def evidence(self) -> NDArray[np.float64]:
        """Accumulated confidence per step id (a copy)."""
        return self._evidence.copy()

    @property
    def share(self) -> NDArray[np.float64]:
        return np.asarray(self._evidence / max(self.settings.threshold, 1e-12))

    def correct(self, component: int, bit: int) -> None:
        super().correct(component, bit)
        self._evidence[[self.procedure.step_id(component, kind) for kind in StepKind]] = 0.0

    def share_evidence(self, evidence: NDArray[np.float64]) -> None:
        """Accumulate in an array that somebody else uses as well, as the published two-stream program does."""
        if evidence.shape != self._evidence.shape:
            raise InputError(f"evidence for {len(evidence)} steps, but there are {len(self._evidence)}")
        self._evidence = evidence

    def _update(self, detections: Sequence[StateDetection]) -> list[StepEvent]:
        suggested: list[int] = []
        events: list[StepEvent] = []
        if detections:
            bits = self._bits(detections[0].state_class)
            if self._state is None:
                self._state = bits
                return []
            suggested = self._steps_to(bits)
            if suggested:
                self._evidence[suggested] += detections[0].confidence
                events = self._complete()
        rested = np.ones(len(self._evidence), dtype=bool)
        rested[suggested] = False
        self._evidence[rested] *= self.settings.decay
        return events

    def _complete(self) -> list[StepEvent]:
        events: list[StepEvent] = []
        for step_id in np.flatnonzero(self._evidence > self.settings.threshold).tolist():
            confidence = float(self._evidence[step_id])
            self._evidence[step_id] = 0.0
            if step_id in self._expected and self._state is not None:
                step = self.procedure.steps[step_id]
                self._state[step.component_index] = int(step.installs)
                events.append(StepEvent(step_id, self._frame, confidence=confidence, source=self.name))
        return events


class ExpectedDecoder(ConfidenceDecoder):
    """B3: the same from the variant's initial state on, and only the steps that the variant expects."""

    name = "expected"

    def reset(self) -> None:
        super().reset()
        self._state = list(self.variant.initial)
        self._expected = frozenset(self.variant.expected)
