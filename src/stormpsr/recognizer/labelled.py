"""Recordings as tuning and judging need them: what is true, what the networks said, what could be seen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.boxes import COCO_FILE, read_coco_boxes
from stormpsr.errors import InputError
from stormpsr.evaluation.metrics import Protocol, score
from stormpsr.evaluation.summary import RecordingResult, contains_errors
from stormpsr.events import StepEvent
from stormpsr.labels import STEPS_FILE, STEPS_WITH_ERRORS_FILE, read_steps
from stormpsr.procedure import Procedure
from stormpsr.recognition.percepts import PerceptTable
from stormpsr.recording import Recording
from stormpsr.synthetic.visibility import VISIBILITY_FILE, read_visibility, runs_of
from stormpsr.training.validation import variant_name_of

__all__ = ["LabelledPercepts", "Seen", "check_variant", "what_could_be_seen"]

_VISIBLE_EVERY = 10  # frames


@dataclass(frozen=True, eq=False)
class LabelledPercepts:
    """A recording with labels and percepts."""

    recording: Recording
    variant: str
    labels: tuple[StepEvent, ...]
    percepts: PerceptTable

    @classmethod
    def of(cls, recording: Recording, percepts: PerceptTable, procedure: Procedure) -> LabelledPercepts:
        if recording.steps is None:
            cure = f"it needs {STEPS_FILE}; 'stormpsr labels convert' makes one from states"
            raise InputError("the recording has no labels to judge by", path=recording.path, cure=cure)
        return cls(recording, variant_name_of(recording, procedure), recording.steps, percepts)

    @property
    def name(self) -> str:
        return self.recording.name

    def labels_with_errors(self, procedure: Procedure) -> tuple[StepEvent, ...] | None:
        path = self.recording.path / STEPS_WITH_ERRORS_FILE
        return tuple(read_steps(path, procedure)) if path.is_file() else None

    def has_errors(self, procedure: Procedure) -> bool:
        """Whether the person made errors, as the published programs decide it."""
        return contains_errors(
            self.labels,
            procedure,
            variant=self.variant,
            timeline=self.recording.states,
            labels_with_errors=self.labels_with_errors(procedure) or (),
        )

    def result(self, events: list[StepEvent], procedure: Procedure, protocol: Protocol = "paper") -> RecordingResult:
        """The scores of events."""
        fps = self.recording.fps
        scores = score(self.labels, events, procedure=procedure, fps=fps, protocol=protocol)
        return RecordingResult(self.name, self.labels, tuple(events), scores, fps, self.has_errors(procedure))


@dataclass(frozen=True)
class Seen:
    """When the state could be read by a person, and how much of the assembly shows; None where nobody says."""

    readable: tuple[tuple[int, int], ...] | None = None  # first and last frame of each stretch
    visible_share: tuple[float, ...] | None = None
    visible_stride: int = _VISIBLE_EVERY


def what_could_be_seen(folder: Path, n_frames: int, procedure: Procedure) -> Seen:
    """From `visibility.csv` where there is one, else from annotated boxes."""
    if (folder / VISIBILITY_FILE).is_file():
        visibility = read_visibility(folder / VISIBILITY_FILE, procedure.n_components)
        share = visibility.mean_visible_F()[::_VISIBLE_EVERY]
        return Seen(_stretches(visibility.readable_F()), tuple(float(v) for v in share))
    if (folder / COCO_FILE).is_file():
        readable_F = np.zeros(n_frames, dtype=bool)
        frames = [box.frame for box in read_coco_boxes(folder / COCO_FILE, procedure)]
        readable_F[[frame for frame in frames if frame < n_frames]] = True
        return Seen(_stretches(readable_F))
    return Seen()


def _stretches(flags_F: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    return tuple((first, past - 1) for first, past in runs_of(flags_F))


def check_variant(procedure: Procedure, name: str, given: str | None) -> tuple[str, bool]:
    """(variant, whether it was guessed) of a source: the given one, the one its name speaks of, or the first."""
    if given is not None:
        return procedure.variant(given).name, False
    named = procedure.variant_of_recording(name)
    return (named or procedure.variant()).name, named is None
