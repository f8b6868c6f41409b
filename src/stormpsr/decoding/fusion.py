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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.decoding.fusion_released import ReleasedFusion
from stormpsr.decoding.prerequisites import NeededSteps
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateBits, StepKind

FusionMethod = Literal["detection", "temporal", "average", "released"]
STREAM_WEIGHTS: dict[FusionMethod, tuple[float, float]] = {
    "detection": (1.0, 0.0),
    "temporal": (0.0, 1.0),
    "average": (0.5, 0.5),
}


@dataclass(frozen=True, slots=True)
class FusionSettings:
    """How evidence becomes events. The defaults are the paper's for IndustReal."""

    method: FusionMethod = "average"
    threshold: float = 6.0  # evidence that completes a step
    decay: float = 0.75  # factor per frame for steps that the frame does not support
    min_change_probability: float = 0.5  # the temporal model says "changed" above this
    window_frames: int = 256  # frames that the temporal model looks back
    hold_frames: int = 4  # how long a temporal prediction counts: the stride at which the model runs
    removal_factor: float = 1.0  # removals need this many times the threshold (they are rare and often false)
    min_detection_confidence: float = 0.0  # detections that are less sure than this are not heard
    implied_share: float | None = None  # a step completes those it needs if they have this share; None: no order
    unexpected: Literal["drop", "report"] = "drop"  # steps that the variant does not expect

    def __post_init__(self) -> None:
        if self.method not in get_args(FusionMethod):
            known = ", ".join(get_args(FusionMethod))
            raise InputError(f"unknown fusion method {self.method!r}", cure=f"choose one of: {known}")
        for name, low, high in (
            ("threshold", 0.0, np.inf),
            ("decay", 0.0, 1.0),
            ("min_change_probability", 0.0, 1.0),
            ("window_frames", 1, np.inf),
            ("hold_frames", 1, np.inf),
            ("removal_factor", 0.0, np.inf),
            ("min_detection_confidence", 0.0, 1.0),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise InputError(f"{name} is {value}, but it must lie between {low:g} and {high:g}")
        if self.implied_share is not None and not 0 <= self.implied_share <= 1:
            raise InputError(f"implied_share is {self.implied_share}, but it must lie between 0 and 1, or be missing")
        if self.unexpected not in ("drop", "report"):
            raise InputError(f"unexpected is {self.unexpected!r}", cure="choose 'drop' or 'report'")


class Fusion(Protocol):
    """What every method can do, whatever its arithmetic."""

    def reset(self) -> None:
        """Forget everything, for a new recording."""

    def update(
        self,
        detections: Sequence[StateDetection],
        change_probabilities: Sequence[float] | NDArray[np.floating] | None = None,
        frame: int | None = None,
    ) -> list[StepEvent]:
        """The events of the next frame."""

    def rest(self, frame: int) -> None:
        """Let the frames before `frame` pass, of which nothing is known."""

    @property
    def state(self) -> StateBits:
        """The state that the reported steps lead to."""

    @property
    def evidence(self) -> NDArray[np.float64]:
        """Evidence per step id (a copy)."""

    @property
    def share(self) -> NDArray[np.float64]:
        """Evidence per step id, as a share of what completes the step."""


def make_fusion(procedure: Procedure, variant: str | None = None, settings: FusionSettings | None = None) -> Fusion:
    """The fusion that the settings name. `released` takes threshold, decay and window of them, and no other."""
    settings = settings or FusionSettings()
    if settings.method == "released":
        window, threshold, decay = settings.window_frames, settings.threshold, settings.decay
        return ReleasedFusion(procedure, variant, window=window, threshold=threshold, decay=decay)
    return EvidenceFusion(procedure, variant, settings)


class EvidenceFusion:
    """Feed it every frame; it returns the steps that the frame completes."""

    def __init__(
        self, procedure: Procedure, variant: str | None = None, settings: FusionSettings | None = None
    ) -> None:
        self.procedure = procedure
        self.settings = settings or FusionSettings()
        self._variant = procedure.variant(variant)
        self._expected = frozenset(self._variant.expected)
        if self.settings.method not in STREAM_WEIGHTS:
            raise InputError(f"method {self.settings.method!r} accumulates otherwise", cure="use make_fusion")
        self._detection_weight, self._temporal_weight = STREAM_WEIGHTS[self.settings.method]
        removes_S = np.array([step.kind is StepKind.REMOVE for step in procedure.steps])
        self._threshold_S = np.where(removes_S, self.settings.removal_factor, 1.0) * self.settings.threshold
        self._needed = NeededSteps(procedure, self._expected)
        self.reset()

    def reset(self) -> None:
        """Forget everything, for a new recording."""
        self._frame = -1
        self._state_C = np.array(self._variant.initial, dtype=np.int64)
        self._evidence_S = np.zeros(len(self.procedure.steps))
        self._suppressed_until_C = np.zeros(self.procedure.n_components, dtype=np.int64)
        self._held_C: NDArray[np.float64] | None = None
        self._held_until = -1

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

    @property
    def pending(self) -> dict[int, float]:
        """Steps that have some evidence, with their share of what completes them."""
        share_S = self.share
        return {int(i): float(share_S[i]) for i in np.flatnonzero(share_S > 0.01)}

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
        frame = self._frame + 1 if frame is None else frame
        if frame <= self._frame:
            raise InputError(f"frame {frame} after frame {self._frame}", cure="feed frames in order, each once")
        self._frame = frame
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
        if held_C.shape != (self.procedure.n_components,):
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
        return StepEvent(step_id, self._frame, confidence=confidence, source=self.settings.method)
