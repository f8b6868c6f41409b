"""The published two-stream program's arithmetic, for parity and comparison only.

It means to average the accumulated confidences of both streams. In fact both streams share one array from the second
frame on, so evidence adds up instead of being averaged, and one frame can decay it twice. Further quirks are marked
below. The paper's average is in `fusion.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.decoding.baselines import BaselineSettings, ExpectedDecoder
from stormpsr.decoding.fusion import FusionSettings
from stormpsr.decoding.predictions import Decoder
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateBits, StepKind, Variant

_PUBLISHED_DIGITS = 3  # the program reads probabilities rounded to three digits
_CHANGED = 0.5  # a component counts as changed above this probability


class ReleasedFusion(Decoder):
    """Feed it every frame: the detections, and the temporal model's probabilities in the frames that have them.

    Of the settings it takes threshold, decay and window, and no other.
    """

    Settings = FusionSettings

    def reset(self) -> None:
        """Forget everything, for a new recording."""
        super().reset()
        own = self.settings
        baseline = BaselineSettings(threshold=own.threshold, decay=own.decay)
        self._detection = ExpectedDecoder(self.procedure, self.variant.name, baseline)
        self._temporal = _TemporalStream(self.procedure, self.variant, own)
        self._reported: list[StepEvent] = []
        self._state = self.variant.initial

    # ------------------------------------------------------------------ for displays
    @property
    def state(self) -> StateBits:
        """The state that the reported steps lead to."""
        return self._state

    @property
    def evidence(self) -> NDArray[np.float64]:
        """The evidence that both streams share, per step id (a copy)."""
        return self._detection.evidence

    @property
    def share(self) -> NDArray[np.float64]:
        """Evidence per step id, as a share of what completes the step."""
        return np.asarray(self._detection.evidence / max(self.settings.threshold, 1e-12))

    # ------------------------------------------------------------------ one frame
    def update(
        self,
        detections: Sequence[StateDetection],
        change_probabilities: Sequence[float] | NDArray[np.floating] | None = None,
        frame: int | None = None,
    ) -> list[StepEvent]:
        """The events of the next frame."""
        seen = self._detection.update(detections, frame=self._next_frame(frame))
        sensed = self._temporal.update(change_probabilities, self._frame)
        shared = 0.5 * self._detection.evidence + 0.5 * self._temporal.evidence
        self._detection.share_evidence(shared)  # the published slip: one array for both streams from here on
        self._temporal.evidence = shared
        # quirk: in a frame in which the detection stream completes anything, the temporal stream is not heard
        events = [event for event in (seen or sensed) if self._is_news(event)]
        self._reported.extend(events)
        for event in events:
            self._state = self.procedure.apply(self._state, event.step_id)
        return events

    def correct(self, component: int, bit: int) -> None:
        """Somebody who knows says what is true; what was reported of the component before is forgotten."""
        self._detection.correct(component, bit)
        self._temporal.correct(component, bit)
        self._reported = [e for e in self._reported if self.procedure.step(e.step_id).component_index != component]
        self._state = (*self._state[:component], bit, *self._state[component + 1 :])

    def _is_news(self, event: StepEvent) -> bool:
        """Whether a step may be reported again.

        Quirk: a step that was reported before is accepted only if its component was first installed before it was
        first removed, whatever happened since.
        """
        earlier = [past for past in self._reported if past.frame < event.frame]
        if all(past.step_id != event.step_id for past in earlier):
            return True
        step = self.procedure.step(event.step_id)
        if step.kind is StepKind.INCORRECT:
            return False
        first: dict[int, int] = {}
        for past in earlier:
            first.setdefault(past.step_id, past.frame)
        install = first.get(self.procedure.step_id(step.component_index, StepKind.INSTALL))
        remove = first.get(self.procedure.step_id(step.component_index, StepKind.REMOVE))
        return install is not None and remove is not None and install < remove


class _TemporalStream:
    """The published decoder of the temporal model's changes, with its own belief in the state."""

    def __init__(self, procedure: Procedure, variant: Variant, settings: FusionSettings) -> None:
        self.procedure, self._variant, self._settings = procedure, variant, settings
        self.evidence = np.zeros(len(procedure.steps))
        self._state_C = np.array(variant.initial, dtype=np.int64)
        self._touched: set[int] = set()
        self._changes: list[tuple[int, NDArray[np.bool_]]] = []  # frames, and the components that were reported there

    def update(self, probabilities: Sequence[float] | NDArray[np.floating] | None, frame: int) -> list[StepEvent]:
        if probabilities is None:
            return []  # quirk: a frame without a prediction decays nothing
        if len(probabilities) != self.procedure.n_components:
            n = self.procedure.n_components
            raise InputError(f"frame {frame}: {len(probabilities)} probabilities for {n} components")
        probability_C = np.asarray(probabilities, dtype=float)
        confidence_C = np.round(probability_C, _PUBLISHED_DIGITS)
        changed_C = probability_C > _CHANGED
        if not changed_C.any():
            self._rest()
            return []
        suggested = np.flatnonzero(changed_C & ~self._still_in_view(frame))
        if not len(suggested):
            return []
        for k in suggested.tolist():
            kind = StepKind.REMOVE if self._state_C[k] else StepKind.INSTALL
            step_id = self.procedure.step_id(k, kind)
            self.evidence[step_id] += confidence_C[k]
            self._touched.add(step_id)
        return self._complete(frame)

    def correct(self, component: int, bit: int) -> None:
        self._state_C[component] = max(bit, 0)
        self.evidence[[self.procedure.step_id(component, kind) for kind in StepKind]] = 0.0
        for _, changed_C in self._changes:
            changed_C[component] = False

    def _rest(self) -> None:
        """Quirk: evidence decays only in frames that say "no change", and steps that were touched since the last such
        frame are spared once."""
        rested = np.ones(len(self.evidence), dtype=bool)
        rested[list(self._touched)] = False
        self.evidence[rested] *= self._settings.decay
        self._touched.clear()

    def _still_in_view(self, frame: int) -> NDArray[np.bool_]:
        """Components whose last reported change lies inside the window: the model sees the same change again.

        Quirk: the last report is combined with the earlier ones of its window by exclusive or, and only its own frame
        counts, so that a second report of another component frees the first one.
        """
        window = self._settings.window_frames
        hidden_C = np.zeros(self.procedure.n_components, dtype=bool)
        if self._changes and frame - self._changes[-1][0] < window:
            last, _ = self._changes[-1]
            for reported, changed_C in self._changes:
                if last - reported <= window:
                    hidden_C ^= changed_C
        return hidden_C

    def _complete(self, frame: int) -> list[StepEvent]:
        crossed = np.flatnonzero(self.evidence > self._settings.threshold).tolist()
        events: list[StepEvent] = []
        for step_id in crossed:
            confidence = float(self.evidence[step_id])
            self.evidence[step_id] = 0.0
            if step_id in self._variant.expected:
                step = self.procedure.steps[step_id]
                self._state_C[step.component_index] = int(step.installs)
                events.append(StepEvent(step_id, frame, confidence=confidence, source="temporal"))
        if events:
            changed_C = np.zeros(self.procedure.n_components, dtype=bool)
            changed_C[[self.procedure.steps[step_id].component_index for step_id in crossed]] = True
            self._changes.append((frame, changed_C))
        return events
