"""From detections to scored steps: the baselines B1, B2, B3 with thresholds tuned on validation recordings."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stormpsr.data.boxes import LabelledBox, centre_boxes_file, read_centre_boxes
from stormpsr.data.coco import COCO_FILE, read_coco_boxes
from stormpsr.data.detection_csv import read_detection_table
from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.data.labels import STATES_FILE, STEPS_FILE, OnNote, StateTimeline, read_states, read_steps
from stormpsr.data.layouts import RecordingFolder
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
            name=recording.name,
            labels=recording.labels,
            events=tuple(decoded),
            scores=score(recording.labels, decoded, procedure=procedure, protocol=protocol),
            fps=procedure.fps,
            has_errors=contains_errors(
                recording.labels, procedure, variant=recording.variant, timeline=recording.timeline
            ),
        )
        for recording, decoded in zip(recordings, events, strict=True)
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
        """Waits in frames, None where no view follows."""
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
        table = read_detection_table(path, procedure)
        variant = procedure.variant_of_recording(recording.name)
        found.append(
            DetectedRecording(
                name=recording.name,
                variant=variant.name if variant else None,
                labels=tuple(read_steps(recording.path / STEPS_FILE, procedure)),
                timeline=read_states(recording.path / STATES_FILE, procedure),
                detections=tuple(table.get(recording.name, ())),
            )
        )
    return found


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
        path = recording.path / COCO_FILE
        if path.is_file():
            views = [box.frame for box in read_coco_boxes(path, procedure)]
            waits += wait_for_clear_view(read_steps(recording.path / STEPS_FILE, procedure), views)
    if not waits:
        return None
    return ClearViewBound.of(waits, procedure.fps)


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
    boxes = _boxes_of(recording, boxes_folder, procedure, on_note)
    if boxes is None:
        return None
    for file in (STEPS_FILE, STATES_FILE):
        if not (recording.path / file).is_file():
            cure = "it has to have both: steps to score against, and states that say what a box shows"
            raise InputError(f"recording {recording.name!r} has no {file}", path=recording.path, cure=cure)
    labels = read_steps(recording.path / STEPS_FILE, procedure, on_note=on_note)
    timeline = read_states(recording.path / STATES_FILE, procedure, on_note=on_note)
    classes = [box.class_in(timeline, procedure) for box in boxes]
    detections = [
        StateDetection(box.frame, state_class, confidence, box.box.to_xywh())
        for box, state_class in zip(boxes, classes, strict=True)
        if state_class is not None
    ]
    variant = procedure.variant_of_recording(recording.name)
    return OracleRecording(
        name=recording.name,
        variant=variant.name if variant else None,
        labels=tuple(labels),
        timeline=timeline,
        detections=tuple(detections),
        n_boxes=len(boxes),
        n_boxes_without_class=classes.count(None),
    )


def _boxes_of(
    recording: RecordingFolder, boxes_folder: Path | None, procedure: Procedure, on_note: OnNote | None
) -> list[LabelledBox] | None:
    if boxes_folder is None:
        path = recording.path / COCO_FILE
        return read_coco_boxes(path, procedure) if path.is_file() else None
    chosen = centre_boxes_file(boxes_folder, recording.name, recording.split)
    return None if chosen is None else read_centre_boxes(chosen, on_note=on_note)


def wait_for_clear_view(labels: Sequence[StepEvent], view_frames: Sequence[int]) -> list[int | None]:
    """Frames from each completion to the next annotated view; None where none follows.

    No detector that needs to see the whole object can be faster than this.
    """
    views = sorted(view_frames)
    waits: list[int | None] = []
    for label in labels:
        following = bisect_left(views, label.frame)
        waits.append(views[following] - label.frame if following < len(views) else None)
    return waits
