"""From assembly-state detections to step events: the three baselines of IndustReal, as streaming objects.

- `naive` (B1): every confident detection of another state completes the steps that lead to it.
- `confidence` (B2): the confidence of each step accumulates over frames until a threshold, and decays otherwise.
- `expected` (B3): the same, starting from the procedure's initial state and reporting only the steps it expects.

They equal the published programs event for event, quirks included; each quirk is marked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateBits, StateKind

DecoderMethod = Literal["naive", "confidence", "expected"]


class StateDecoder(ABC):
    """Feed it the detections of one frame after the other; it returns the steps that each frame completes.

    Every frame must be fed, also those without detections: evidence decays with time.
    """

    def __init__(self, procedure: Procedure) -> None:
        self.procedure = procedure
        self._frame = -1
        self._state: list[int] | None = None  # None: nothing seen yet; empty: seen, but nothing known

    @property
    def state(self) -> StateBits | None:
        """The state the decoder believes in, or None if it knows none."""
        return tuple(self._state) if self._state else None

    def reset(self) -> None:
        """Forget everything, for a new recording."""
        self._frame = -1
        self._state = None

    def update(self, detections: Sequence[StateDetection], frame: int | None = None) -> list[StepEvent]:
        """The events of the next frame. `frame` is its index; without one, frames are counted from 0."""
        if frame is None:
            frame = detections[0].frame if detections else self._frame + 1
        if frame <= self._frame:
            raise InputError(f"frame {frame} after frame {self._frame}", cure="feed frames in order, each once")
        for detection in detections:
            if detection.frame != frame:
                raise InputError(f"a detection of frame {detection.frame} among those of frame {frame}")
            if detection.state_class >= len(self.procedure.states):
                raise InputError(
                    f"frame {frame}: state class {detection.state_class} does not exist in {self.procedure.name!r}",
                    cure=f"its classes are 0 to {len(self.procedure.states) - 1}",
                )
        self._frame = frame
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

    def __init__(self, procedure: Procedure, *, min_confidence: float = 0.5) -> None:
        super().__init__(procedure)
        self.min_confidence = min_confidence

    def _update(self, detections: Sequence[StateDetection]) -> list[StepEvent]:
        if not detections:
            return []
        best = max(detections, key=lambda detection: detection.confidence)  # the first of equals
        bits = self._bits(best.state_class)
        if self._state is None:
            self._state = bits
            return []
        is_error = self.procedure.states[best.state_class].kind is StateKind.ERROR
        if is_error or best.confidence <= self.min_confidence:
            return []
        step_ids = self._steps_to(bits)
        self._state = bits
        return [StepEvent(step_id, self._frame, confidence=best.confidence, source="naive") for step_id in step_ids]


class AccumulatingDecoder(StateDecoder):
    """B2, and B3 when it is given a variant. Looks only at the first detection of a frame.

    Each step that would turn the current state into the detected one gains the detection's confidence. A step whose
    sum exceeds `threshold` is completed if it is expected; its sum starts again from zero either way. Every step that
    the frame did not suggest is multiplied by `decay`.

    Published quirk of B2 (no variant): the first detection sets the state; if it is background or error, the state
    stays unknown for good and no step is ever completed.
    """

    def __init__(
        self, procedure: Procedure, *, variant: str | None = None, threshold: float = 8.0, decay: float = 0.75
    ) -> None:
        super().__init__(procedure)
        self.threshold = threshold
        self.decay = decay
        self._variant = None if variant is None else procedure.variant(variant)
        expected = range(len(procedure.steps)) if self._variant is None else self._variant.expected
        self._expected = frozenset(expected)
        self.reset()

    def reset(self) -> None:
        super().reset()
        self._evidence = np.zeros(len(self.procedure.steps))
        self._state = None if self._variant is None else list(self._variant.initial)

    @property
    def evidence(self) -> NDArray[np.float64]:
        """Accumulated confidence per step id (a copy)."""
        return self._evidence.copy()

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
        self._evidence[rested] *= self.decay
        return events

    def _complete(self) -> list[StepEvent]:
        source = "confidence" if self._variant is None else "expected"
        events: list[StepEvent] = []
        for step_id in np.flatnonzero(self._evidence > self.threshold).tolist():
            confidence = float(self._evidence[step_id])
            self._evidence[step_id] = 0.0
            if step_id in self._expected and self._state is not None:
                step = self.procedure.steps[step_id]
                self._state[step.component_index] = int(step.installs)
                events.append(StepEvent(step_id, self._frame, confidence=confidence, source=source))
        return events


def make_decoder(
    procedure: Procedure,
    variant: str | None = None,
    method: DecoderMethod = "expected",
    *,
    threshold: float = 8.0,
    decay: float = 0.75,
    min_confidence: float = 0.5,
) -> StateDecoder:
    """A decoder by name. Only `expected` uses the variant (the procedure's first, where none is given)."""
    if method not in get_args(DecoderMethod):
        raise InputError(f"unknown decoder {method!r}", cure=f"choose one of: {', '.join(get_args(DecoderMethod))}")
    if not threshold >= 0:
        raise InputError(f"the threshold is {threshold}, but it cannot be negative")
    if not 0 <= decay <= 1:
        raise InputError(f"the decay is {decay}, but it must lie between 0 and 1")
    if not 0 <= min_confidence <= 1:
        raise InputError(f"min_confidence is {min_confidence}, but it must lie between 0 and 1")
    if method == "naive":
        return NaiveDecoder(procedure, min_confidence=min_confidence)
    name = procedure.variant(variant).name if method == "expected" else None
    return AccumulatingDecoder(procedure, variant=name, threshold=threshold, decay=decay)


def decode(
    detections: Iterable[StateDetection],
    procedure: Procedure,
    variant: str | None = None,
    method: DecoderMethod = "expected",
    *,
    n_frames: int | None = None,
    threshold: float = 8.0,
    decay: float = 0.75,
    min_confidence: float = 0.5,
) -> list[StepEvent]:
    """The step events of a whole recording: `make_decoder`, fed frame by frame.

    Several detections of one frame keep their order (the first should be the most confident). `n_frames` defaults to
    the last detection's frame; frames after that can complete nothing.
    """
    decoder = make_decoder(procedure, variant, method, threshold=threshold, decay=decay, min_confidence=min_confidence)
    by_frame: dict[int, list[StateDetection]] = defaultdict(list)
    for detection in detections:
        by_frame[detection.frame].append(detection)
    last = max(by_frame, default=-1)
    if n_frames is None:
        n_frames = last + 1
    elif last >= n_frames:
        raise InputError(f"a detection in frame {last}, but the recording has only {n_frames} frames")
    events: list[StepEvent] = []
    for frame in range(n_frames):
        events.extend(decoder.update(by_frame.get(frame, ()), frame))
    return events
