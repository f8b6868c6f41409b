"""The ceiling of any detection-only method: annotated boxes taken for the word of a perfect detector."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stormpsr.boxes import COCO_FILE, Box, read_centre_boxes, read_coco_boxes, state_class_of
from stormpsr.datasets import RecordingFolder
from stormpsr.errors import InputError
from stormpsr.evaluation.baselines import DetectedRecording
from stormpsr.events import StateDetection, StepEvent
from stormpsr.labels import STATES_FILE, STEPS_FILE, OnNote, read_states, read_steps
from stormpsr.procedure import Procedure

__all__ = ["OracleRecording", "read_oracle_recording", "wait_for_clear_view"]


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
    classes = [state_class_of(box, timeline, procedure) for box in boxes]
    detections = [
        StateDetection(box.frame, state_class, confidence, (box.x, box.y, box.width, box.height))
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
) -> list[Box] | None:
    if boxes_folder is None:
        path = recording.path / COCO_FILE
        return read_coco_boxes(path, procedure) if path.is_file() else None
    if not boxes_folder.is_dir():
        raise InputError("there is no such folder", path=boxes_folder, cure="give the folder that holds *_GT.csv")
    found = [path for path in sorted(boxes_folder.rglob("*_GT.csv")) if path.name == f"{recording.name}_GT.csv"]
    in_split = [path for path in found if path.parent.name == recording.split]
    chosen = in_split or found
    if len(chosen) > 1:
        listed = ", ".join(str(path.relative_to(boxes_folder)) for path in chosen)
        raise InputError(f"several files for recording {recording.name!r}: {listed}", path=boxes_folder)
    return read_centre_boxes(chosen[0], on_note=on_note) if chosen else None


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
