"""Both streams' evidence into step events, as in the paper: averaged, accumulated over frames until a threshold.

Shape legend: C components, S steps.

In every frame a step gains `detection_weight` times the confidence of a detection that implies it, plus
`temporal_weight` times the probability with which the temporal model says that its component changed. A step that
gains nothing loses a share of what it has. Above the threshold it is completed, and the state moves on. One stream
alone is the same with the other's weight at zero; detections alone are the published baseline B3, event for event.

The temporal model speaks of a window: a change that was reported stays inside it for a while, and must be taken neither
for news nor for its own removal. So after a component's step is completed, the temporal stream is not heard about
this component for a window's length. (The change itself leaves the window sooner, but a model that saw it late, behind
a hand, goes on believing that it is in there.) A part that is removed and put back within a window leaves no net
change; the removal is seen once the installation before it has left the window, the installation once the removal has.

Where the procedure has an order, `implied_share` makes use of it (the paper does not): a step then waits until the
steps that it needs have that share of the evidence that completes them, and completes them with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.decoding.methods import Grid
from stormpsr.decoding.predictions import Decoder, DecoderBatch, check_numbers
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateBits, StepKind


@dataclass(frozen=True, slots=True)
class FusionSettings:
    """How evidence becomes events. The defaults are the paper's for IndustReal."""

    threshold: float = 6.0  # evidence that completes a step
    decay: float = 0.75  # factor per frame for steps that the frame does not support
    min_change_probability: float = 0.5  # the temporal model says "changed" above this
    removal_factor: float = 1.0  # removals need this many times the threshold (they are rare and often false)
    min_detection_confidence: float = 0.0  # detections that are less sure than this are not heard
    implied_share: float | None = None  # a step completes those it needs if they have this share; None: no order
    window_frames: int = 256  # frames that the temporal model looks back
    hold_frames: int = 4  # how long a temporal prediction counts: the stride at which the model runs
    unexpected: Literal["drop", "report"] = "drop"  # steps that the variant does not expect

    def __post_init__(self) -> None:
        endless, share = (0.0, np.inf), (0.0, 1.0)
        ranges = {"threshold": endless, "decay": share, "min_change_probability": share, "removal_factor": endless}
        ranges |= {"min_detection_confidence": share, "window_frames": (1, np.inf), "hold_frames": (1, np.inf)}
        check_numbers(self, ranges if self.implied_share is None else {**ranges, "implied_share": share})
        if self.unexpected not in ("drop", "report"):
            raise InputError(f"unexpected is {self.unexpected!r}", cure="choose 'drop' or 'report'")


class EvidenceFusion(Decoder):
    """Feed it every frame; it returns the steps that the frame completes. Half of each stream: the paper's average."""

    Settings = FusionSettings
    name: ClassVar[str] = "average"
    weights: ClassVar[tuple[float, float]] = (0.5, 0.5)  # of detections, and of the temporal model
    grid: ClassVar[Grid] = {
        "threshold": (1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0),
        "decay": (0.75, 0.95),
        "removal_factor": (1.0, 2.0, 3.0),
        "min_change_probability": (0.35, 0.5, 0.65, 0.8),
        "min_detection_confidence": (0.0, 0.35, 0.65),
        "implied_share": (None, 0.0),
    }

    def reset(self) -> None:
        """Forget everything, for a new recording."""
        super().reset()
        self._detection_weight, self._temporal_weight = self.weights
        self._expected = frozenset(self.variant.expected)
        removes_S = np.array([step.kind is StepKind.REMOVE for step in self.procedure.steps])
        self._threshold_S = np.where(removes_S, self.settings.removal_factor, 1.0) * self.settings.threshold
        self._needed = NeededSteps(self.procedure, self._expected)
        self._state_C = np.array(self.variant.initial, dtype=np.int64)
        self._evidence_S = np.zeros(len(self.procedure.steps))
        self._suppressed_until_C = np.zeros(self.procedure.n_components, dtype=np.int64)
        self._held_C: NDArray[np.float64] | None = None
        self._held_until = -1

    @classmethod
    def batch(cls, procedure: Procedure, variant: str | None, settings: Sequence[FusionSettings]) -> DecoderBatch:
        from stormpsr.decoding.fusion_batch import FusionGrid

        return FusionGrid(procedure, variant, settings, cls)

    # ------------------------------------------------------------------ for displays
    @property
    def state(self) -> StateBits:
        """The state that the reported steps lead to."""
        return tuple(int(bit) for bit in self._state_C)

    @property
    def evidence(self) -> NDArray[np.float64]:
        """Evidence per step id (a copy)."""
        return self._evidence_S.copy()

    @property
    def share(self) -> NDArray[np.float64]:
        """Evidence per step id, as a share of what completes the step."""
        return np.asarray(self._evidence_S / np.maximum(self._threshold_S, 1e-12))

    # ------------------------------------------------------------------ one frame
    def update(
        self,
        detections: Sequence[StateDetection],
        change_probabilities: Sequence[float] | NDArray[np.floating] | None = None,
        frame: int | None = None,
    ) -> list[StepEvent]:
        """The events of the next frame.

        change_probabilities: the temporal model's word on each component, in the frames in which it ran; it counts for
        `hold_frames` frames. Only the first detection is looked at.
        """
        frame = self._next_frame(frame)
        gain_S = np.zeros(len(self._evidence_S))
        heard = bool(detections) and detections[0].confidence >= self.settings.min_detection_confidence
        if heard and self._detection_weight:
            gain_S[self._implied_by_detection(detections[0])] += self._detection_weight * detections[0].confidence
        if change_probabilities is not None:
            self._hold(change_probabilities)
        if self._temporal_weight and self._held_C is not None and frame < self._held_until:
            step_ids, probabilities = self._implied_by_change(self._held_C)
            gain_S[step_ids] += self._temporal_weight * probabilities
        return self._accumulate(gain_S)

    def correct(self, component: int, bit: int) -> None:
        """Somebody who knows says what is true: old evidence counts no more, nor does a change still in view."""
        self._state_C[component] = bit
        self._evidence_S[[self.procedure.step_id(component, kind) for kind in StepKind]] = 0.0
        if self._frame >= 0:  # before the first frame there is no window
            self._suppressed_until_C[component] = self._frame + self.settings.window_frames

    def rest(self, frame: int) -> None:
        """Let the frames before `frame` pass, of which nothing is known: all evidence decays, nothing is held."""
        n_frames = frame - 1 - self._frame
        if n_frames <= 0:
            return
        self._frame = frame - 1
        self._held_C = None
        self._evidence_S *= self.settings.decay**n_frames

    def _implied_by_detection(self, detection: StateDetection) -> list[int]:
        if detection.state_class >= len(self.procedure.states):
            raise InputError(
                f"frame {self._frame}: state class {detection.state_class} does not exist in {self.procedure.name!r}",
                cure=f"its classes are 0 to {len(self.procedure.states) - 1}",
            )
        bits = self.procedure.states[detection.state_class].bits
        return [] if bits is None else [step.id for step in self.procedure.steps_between(self.state, bits)]

    def _hold(self, change_probabilities: Sequence[float] | NDArray[np.floating]) -> None:
        held_C = np.asarray(change_probabilities, dtype=np.float64)
        if held_C.shape != self._state_C.shape:
            n = self.procedure.n_components
            raise InputError(f"frame {self._frame}: {held_C.size} probabilities for {n} components")
        if not np.all((held_C >= 0) & (held_C <= 1)):
            raise InputError(f"frame {self._frame}: a probability that does not lie between 0 and 1")
        self._held_C = held_C
        self._held_until = self._frame + self.settings.hold_frames

    def _implied_by_change(self, probability_C: NDArray[np.float64]) -> tuple[list[int], NDArray[np.float64]]:
        heard_C = (probability_C > self.settings.min_change_probability) & (self._frame >= self._suppressed_until_C)
        components = np.flatnonzero(heard_C)
        kinds = [StepKind.REMOVE if self._state_C[k] == 1 else StepKind.INSTALL for k in components]
        step_ids = [self.procedure.step_id(int(k), kind) for k, kind in zip(components, kinds, strict=True)]
        return step_ids, probability_C[components]

    def _accumulate(self, gain_S: NDArray[np.float64]) -> list[StepEvent]:
        supported_S = gain_S > 0
        self._evidence_S = np.where(supported_S, self._evidence_S + gain_S, self._evidence_S * self.settings.decay)
        # only a step that this frame supports can be completed by it, as in the published decoders
        return self._complete(np.flatnonzero(supported_S & (self._evidence_S > self._threshold_S)).tolist())

    def _complete(self, step_ids: list[int]) -> list[StepEvent]:
        events: list[StepEvent] = []
        for step_id in step_ids:
            step = self.procedure.steps[step_id]
            if self._state_C[step.component_index] == int(step.installs):  # done already, for one that needed it
                continue
            if step_id not in self._expected and self.settings.unexpected == "drop":
                self._evidence_S[step_id] = 0.0
                continue
            needed = self._needed_before(step_id)
            share_S = self.share
            if all(share_S[other] >= (self.settings.implied_share or 0.0) for other in needed):
                events += [self._report(own) for own in (*needed, step_id)]
        return events

    def _needed_before(self, step_id: int) -> list[int]:
        if self.settings.implied_share is None:
            return []
        step = self.procedure.steps[step_id]
        state = self._state_C.tolist()
        return self._needed.before(
            state, step.component_index, installs=step.installs, evidence_of=lambda other: self._evidence_S[other]
        )

    def _report(self, step_id: int) -> StepEvent:
        step = self.procedure.steps[step_id]
        confidence = float(self._evidence_S[step_id])
        self._evidence_S[step_id] = 0.0
        self._state_C[step.component_index] = int(step.installs)
        self._suppressed_until_C[step.component_index] = self._frame + self.settings.window_frames
        return StepEvent(step_id, self._frame, confidence=confidence, source=self.name)


class DetectionFusion(EvidenceFusion):
    """Detections alone. A thousand settings for the baseline: it is tuned as thoroughly as what is to beat it. States
    that a detector may report obey the procedure's order, so it has hardly anything to gain from `implied_share`."""

    name = "detection"
    weights = (1.0, 0.0)
    grid: ClassVar[Grid] = {
        "threshold": (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0),
        "decay": (0.5, 0.75, 0.9, 0.95),
        "removal_factor": (1.0, 1.5, 2.0, 3.0),
        "min_detection_confidence": (0.0, 0.2, 0.35, 0.5, 0.65, 0.8),
    }


class TemporalFusion(EvidenceFusion):
    """The temporal model alone."""

    name = "temporal"
    weights = (0.0, 1.0)
    grid: ClassVar[Grid] = {
        "threshold": (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0),
        "decay": (0.5, 0.75, 0.9, 0.95),
        "removal_factor": (1.0, 1.5, 2.0, 3.0),
        "min_change_probability": (0.2, 0.35, 0.5, 0.65, 0.8, 0.9),
        "implied_share": (None, 0.0),
    }


class NeededSteps:
    """What must have happened before a step: a wheel on its axle says that the axle is in place.

    A procedure's order names what must be in place before a component. A step whose needs are not met was either seen
    too early, or the steps that it needs were missed: they happened, and nobody saw them well enough.
    """

    def __init__(self, procedure: Procedure, expected: Collection[int]) -> None:
        """`expected`: the steps that can be reported at all; needs that only others could meet count as met."""
        self._needs = procedure.needs
        steps = {kind: [procedure.step_id(k, kind) for k in range(procedure.n_components)] for kind in StepKind}
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
        for choice in self._needs.choices[component]:
            possible = [other for other in choice if self._install[other] in self._expected]
            if possible and not any(state[other] == 1 for other in choice):
                chosen.append(max(possible, key=lambda other: evidence_of(self._install[other])))
        return chosen

    def _in_the_way(self, state: list[int], component: int) -> list[int]:
        """Components that cannot stay without this one."""
        present = [other for other, bit in enumerate(state) if bit == 1]
        return [other for other in self._needs.carried_by(component, present) if self._remove[other] in self._expected]
