"""From detections to scored steps: the baselines B1, B2, B3 with thresholds tuned on validation recordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stormpsr.data.annotated_frames import boxes_file, read_boxes
from stormpsr.data.detection_csv import read_detection_table
from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.data.labels import STATES_FILE, STEPS_FILE, OnNote, StateTimeline, read_states, read_steps
from stormpsr.data.layouts import RecordingFolder
from stormpsr.data.visibility import wait_for_clear_view
from stormpsr.decoding.methods import decode, resolve_method
from stormpsr.errors import InputError
from stormpsr.evaluation.metrics import Protocol, score
from stormpsr.evaluation.summary import RecordingResult, Summary, contains_errors, summarise
from stormpsr.procedure.model import Procedure


@dataclass(frozen=True)
class DetectedRecording:
    """A recording that a detector has seen."""

    name: str
    variant: str | None
    labels: tuple[StepEvent, ...]
    timeline: StateTimeline
    detections: tuple[StateDetection, ...]


def score_baseline(
    recordings: Sequence[DetectedRecording],
    procedure: Procedure,
    method: str,
    *,
    protocol: Protocol = "paper",
    **settings: Any,
) -> Summary:
    """Decode every recording and summarise the scores."""
    events = decode_recordings(recordings, procedure, method, **settings)
    return score_decoded(recordings, events, procedure, protocol=protocol)


def decode_recordings(
    recordings: Sequence[DetectedRecording], procedure: Procedure, method: str, **settings: Any
) -> list[list[StepEvent]]:
    """The events of every recording. Apart from the scoring, so that several protocols can share a decoding."""
    return [decode(own.detections, procedure, own.variant, method, **settings) for own in recordings]


def score_decoded(
    recordings: Sequence[DetectedRecording],
    events: Sequence[Sequence[StepEvent]],
    procedure: Procedure,
    *,
    protocol: Protocol = "paper",
) -> Summary:
    """Summarise the scores of events that `decode_recordings` returned."""
    results = [
        RecordingResult(
            own.name,
            score(own.labels, decoded, procedure=procedure, protocol=protocol),
            contains_errors(own.labels, procedure, variant=own.variant, timeline=own.timeline),
        )
        for own, decoded in zip(recordings, events, strict=True)
    ]
    return summarise(results, procedure)


METHODS = (("B1", "naive"), ("B2", "confidence"), ("B3", "expected"))


@dataclass(frozen=True)
class TunedBaseline:
    """A baseline and the setting with the best F1 on the tuning recordings."""

    name: str
    method: str
    setting: float  # B1: least confidence of a detection; B2, B3: accumulated confidence that completes a step
    tuning_f1: float

    def score(self, recordings: Sequence[DetectedRecording], procedure: Procedure) -> Summary:
        (tuned,) = resolve_method(self.method).grid  # each baseline has one setting to tune
        setting: dict[str, Any] = {tuned: self.setting}
        return score_baseline(recordings, procedure, self.method, **setting)


@dataclass(frozen=True)
class ClearViewBound:
    """How long a perfect detector would have to wait: from each completion to the next annotated view."""

    n_labels: int
    n_followed: int  # completions that any annotated view follows
    mean_wait_seconds: float | None

    @classmethod
    def of(cls, waits: Sequence[int | None], fps: float) -> ClearViewBound:
        """From what `wait_for_clear_view` returns."""
        followed = [wait / fps for wait in waits if wait is not None]
        return cls(len(waits), len(followed), sum(followed) / len(followed) if followed else None)


def read_detected(
    recordings: Sequence[RecordingFolder], detections: Path, procedure: Procedure
) -> list[DetectedRecording]:
    """Recordings with labels, and what a detector saw in them (`NAME.csv`)."""
    found: list[DetectedRecording] = []
    for recording in recordings:
        path = detections / f"{recording.name}.csv"
        if not path.is_file():
            cure = "run 'stormpsr detect run' for this split first"
            raise InputError(f"no detections of recording {recording.name!r}", path=detections, cure=cure)
        detected = read_detection_table(path, procedure).get(recording.name, ())
        found.append(DetectedRecording(*_labelled(recording, procedure), tuple(detected)))
    return found


def _labelled(
    recording: RecordingFolder, procedure: Procedure, on_note: OnNote | None = None
) -> tuple[str, str | None, tuple[StepEvent, ...], StateTimeline]:
    """Name, variant, steps and states of a recording."""
    variant = procedure.variant_of_recording(recording.name)
    labels = tuple(read_steps(recording.path / STEPS_FILE, procedure, on_note=on_note))
    timeline = read_states(recording.path / STATES_FILE, procedure, on_note=on_note)
    return recording.name, variant.name if variant else None, labels, timeline


def tune_baseline(
    name: str, method: str, recordings: Sequence[DetectedRecording], procedure: Procedure
) -> TunedBaseline:
    """The setting with the best F1; of equals, the one with the least delay."""
    (values,) = resolve_method(method).grid.values()
    candidates = [TunedBaseline(name, method, setting, 0.0) for setting in values]
    scored = [(candidate, candidate.score(recordings, procedure).all) for candidate in candidates]
    best, group = max(scored, key=lambda pair: (round(pair[1].f1, 4), -(pair[1].delay_seconds or 0.0)))
    return TunedBaseline(name, method, best.setting, group.f1)


def clear_view_bound(recordings: Sequence[RecordingFolder], procedure: Procedure) -> ClearViewBound | None:
    """The bound over recordings with boxes; None if none has any."""
    waits: list[int | None] = []
    for recording in recordings:
        if (path := boxes_file(recording, None)) is not None:
            views = [box.frame for box in read_boxes(path, procedure)]
            completed = [step.frame for step in read_steps(recording.path / STEPS_FILE, procedure)]
            waits += wait_for_clear_view(completed, views)
    return ClearViewBound.of(waits, procedure.fps) if waits else None


@dataclass(frozen=True)
class OracleRecording(DetectedRecording):
    """A recording as a perfect detector would have seen it."""

    n_boxes: int
    n_boxes_without_class: int  # boxes of a state that the detector has no class for


def read_oracle_recording(
    recording: RecordingFolder,
    boxes_folder: Path | None,
    procedure: Procedure,
    *,
    confidence: float = 0.9,
    on_note: OnNote | None = None,
) -> OracleRecording | None:
    """Labels and boxes of a recording; None if there are no boxes of it."""
    path = boxes_file(recording, boxes_folder)
    if path is None:
        return None
    boxes = read_boxes(path, procedure, on_note=on_note)
    for file in (STEPS_FILE, STATES_FILE):
        if not (recording.path / file).is_file():
            cure = "it has to have both: steps to score against, and states that say what a box shows"
            raise InputError(f"recording {recording.name!r} has no {file}", path=recording.path, cure=cure)
    name, variant, labels, timeline = _labelled(recording, procedure, on_note)
    classes = [box.class_in(timeline, procedure) for box in boxes]
    detections = tuple(
        StateDetection(box.frame, state_class, confidence, box.box.to_xywh())
        for box, state_class in zip(boxes, classes, strict=True)
        if state_class is not None
    )
    return OracleRecording(name, variant, labels, timeline, detections, len(boxes), classes.count(None))
