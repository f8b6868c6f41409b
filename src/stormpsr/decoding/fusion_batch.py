"""Many settings of one fusion method at once, for tuning: `EvidenceFusion` on arrays, equal to it event for event.

Decoding thousands of settings one after the other takes hours; side by side they take seconds.

Shape legend: K settings, C components, 2 kinds of steps (install, remove).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.decoding.fusion import EvidenceFusion, FusionSettings, NeededSteps
from stormpsr.decoding.predictions import Prediction
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StepKind

_KINDS = (StepKind.INSTALL, StepKind.REMOVE)  # by the component's state: what an absent, what a present part may do
_SHARED = ("window_frames", "hold_frames", "unexpected")  # settings that are not tuned


class FusionGrid:
    """Feed it every frame; `events` has the events of each setting."""

    def __init__(
        self,
        procedure: Procedure,
        variant: str | None,
        settings: Sequence[FusionSettings],
        method: type[EvidenceFusion] = EvidenceFusion,
    ) -> None:
        if not settings:
            raise InputError("there are no settings to compare")
        for name in _SHARED:
            if any(getattr(other, name) != getattr(settings[0], name) for other in settings):
                raise InputError(f"settings side by side must have the same {name}")
        self.procedure, self.settings, self._shared = procedure, tuple(settings), settings[0]
        self._weights, self._source = method.weights, method.name
        self._variant = procedure.variant(variant)
        components = range(procedure.n_components)
        self._step_id_2C = np.array([[procedure.step_id(k, kind) for k in components] for kind in _KINDS])
        self._expected_2C = np.isin(self._step_id_2C, self._variant.expected)
        self._place_of_step = {int(self._step_id_2C[kind, c]): (kind, c) for kind in range(2) for c in components}
        self._needed = NeededSteps(procedure, self._variant.expected)
        self._bits = [None if state.bits is None else np.array(state.bits) for state in procedure.states]
        self._threshold_2K = np.array([[s.threshold, s.removal_factor * s.threshold] for s in settings]).T
        self._decay_K1 = np.array([[s.decay] for s in settings])
        self._min_change_K1 = np.array([[s.min_change_probability] for s in settings])
        self._min_confidence_K = np.array([s.min_detection_confidence for s in settings])
        self.reset()

    def reset(self) -> None:
        """Forget everything, for a new recording."""
        shape = len(self.settings), self.procedure.n_components
        self.events: list[list[StepEvent]] = [[] for _ in self.settings]
        self._frame = -1
        self._state_KC = np.tile(np.array(self._variant.initial, dtype=np.int64), (shape[0], 1))
        self._evidence_2KC = np.zeros((2, *shape))
        self._suppressed_until_KC = np.zeros(shape, dtype=np.int64)
        self._held_C: NDArray[np.float64] | None = None
        self._held_until = -1
        self._is_empty = True  # no evidence anywhere

    def observe(self, prediction: Prediction) -> None:
        """All that the networks said about a tick; events are reported at the number of its frame."""
        self.rest(prediction.tick)
        self.update(prediction.detections or (), prediction.change_C, prediction.tick, prediction.index)

    def rest(self, frame: int) -> None:
        """Let the frames before `frame` pass, of which nothing is known."""
        n_frames = frame - 1 - self._frame
        if n_frames <= 0:
            return
        self._frame = frame - 1
        self._held_C = None
        self._evidence_2KC *= self._decay_K1**n_frames

    def update(
        self,
        detections: Sequence[StateDetection],
        change_probabilities: NDArray[np.floating] | None,
        frame: int,
        report_as: int | None = None,
    ) -> None:
        """The next frame. Events are reported at frame `report_as`, where that is another one."""
        if frame <= self._frame:
            raise InputError(f"frame {frame} after frame {self._frame}", cure="feed frames in order, each once")
        self._frame = frame
        gain_KC = self._gain(detections, change_probabilities)
        if gain_KC is None and self._is_empty:
            return
        self._accumulate(gain_KC, frame if report_as is None else report_as)

    def _gain(
        self, detections: Sequence[StateDetection], change_probabilities: NDArray[np.floating] | None
    ) -> NDArray[np.float64] | None:
        detection_weight, temporal_weight = self._weights
        gain_KC = None
        if detections and detection_weight:
            bits_C = self._bits[detections[0].state_class]
            heard_K = detections[0].confidence >= self._min_confidence_K
            if bits_C is not None and heard_K.any():
                implied_KC = (bits_C != self._state_KC) & heard_K[:, None]
                gain_KC = implied_KC * (detection_weight * detections[0].confidence)
        if change_probabilities is not None:
            self._held_C = np.asarray(change_probabilities, dtype=np.float64)
            self._held_until = self._frame + self._shared.hold_frames
        if temporal_weight and self._held_C is not None and self._frame < self._held_until:
            heard_KC = (self._held_C > self._min_change_K1) & (self._frame >= self._suppressed_until_KC)
            if heard_KC.any():
                more_KC = heard_KC * (temporal_weight * self._held_C)
                gain_KC = more_KC if gain_KC is None else gain_KC + more_KC
        return gain_KC

    def _accumulate(self, gain_KC: NDArray[np.float64] | None, report_as: int) -> None:
        if gain_KC is None:
            self._evidence_2KC *= self._decay_K1
        else:
            # a part that is absent may be installed, one that is there removed
            supported_2KC = np.stack([(gain_KC > 0) & (self._state_KC == kind) for kind in range(2)])
            evidence = self._evidence_2KC
            self._evidence_2KC = np.where(supported_2KC, evidence + gain_KC, evidence * self._decay_K1)
            above_2KC = supported_2KC & (self._evidence_2KC > self._threshold_2K[:, :, None])
            if above_2KC.any():
                self._complete(above_2KC, report_as)
        self._is_empty = not self._evidence_2KC.any()

    def _complete(self, above_2KC: NDArray[np.bool_], report_as: int) -> None:
        drop = self._shared.unexpected == "drop"
        # by step id within a setting, as `EvidenceFusion` does it
        found = sorted(zip(*(index.tolist() for index in np.nonzero(above_2KC)), strict=True), key=lambda f: f[1:])
        for kind, k, c in found:
            if self._state_KC[k, c] == 1 - kind:  # done already, for one that needed it
                continue
            if drop and not self._expected_2C[kind, c]:
                self._evidence_2KC[kind, k, c] = 0.0
                continue
            needed = self._needed_before(kind, k, c)
            least = self.settings[k].implied_share or 0.0
            if all(self._share(k, *other) >= least for other in needed):
                for own in (*needed, (kind, c)):
                    self._report(k, *own, report_as)

    def _needed_before(self, kind: int, k: int, c: int) -> list[tuple[int, int]]:
        """The steps that another needs, as kind and component."""
        if self.settings[k].implied_share is None:
            return []

        def evidence_of(step_id: int) -> float:
            other, component = self._place_of_step[step_id]
            return float(self._evidence_2KC[other, k, component])

        before = self._needed.before(self._state_KC[k].tolist(), c, installs=kind == 0, evidence_of=evidence_of)
        return [self._place_of_step[step_id] for step_id in before]

    def _share(self, k: int, kind: int, c: int) -> float:
        return float(self._evidence_2KC[kind, k, c] / max(self._threshold_2K[kind, k], 1e-12))

    def _report(self, k: int, kind: int, c: int, report_as: int) -> None:
        confidence = float(self._evidence_2KC[kind, k, c])
        self._evidence_2KC[kind, k, c] = 0.0
        self._state_KC[k, c] = 1 - kind
        self._suppressed_until_KC[k, c] = self._frame + self._shared.window_frames
        step_id = int(self._step_id_2C[kind, c])
        self.events[k].append(StepEvent(step_id, report_as, confidence=confidence, source=self._source))
