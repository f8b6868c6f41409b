"""From detections to scored steps: the baselines B1, B2, B3 with thresholds tuned on validation recordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stormpsr.boxes import COCO_FILE, read_coco_boxes
from stormpsr.datasets import RecordingFolder
from stormpsr.detections import read_detection_table
from stormpsr.errors import InputError
from stormpsr.evaluation.baselines import DetectedRecording, score_baseline
from stormpsr.evaluation.oracle import wait_for_clear_view
from stormpsr.evaluation.summary import Summary
from stormpsr.labels import STATES_FILE, STEPS_FILE, read_states, read_steps
from stormpsr.procedure import Procedure
from stormpsr.recognition.decoders import DecoderMethod

__all__ = ["METHODS", "ClearViewBound", "TunedBaseline", "clear_view_bound", "read_detected", "tune_baseline"]

METHODS: tuple[tuple[str, DecoderMethod], ...] = (("B1", "naive"), ("B2", "confidence"), ("B3", "expected"))
THRESHOLDS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
MIN_CONFIDENCES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class TunedBaseline:
    """A baseline and the setting with the best F1 on the tuning recordings."""

    name: str
    method: DecoderMethod
    setting: float  # B1: least confidence of a detection; B2, B3: accumulated confidence that completes a step
    tuning_f1: float

    def score(self, recordings: Sequence[DetectedRecording], procedure: Procedure) -> Summary:
        if self.method == "naive":
            return score_baseline(recordings, procedure, self.method, min_confidence=self.setting)
        return score_baseline(recordings, procedure, self.method, threshold=self.setting)


@dataclass(frozen=True)
class ClearViewBound:
    """How long a perfect detector would have to wait: from each completion to the next annotated view."""

    n_labels: int
    n_followed: int  # completions that any annotated view follows
    mean_wait_seconds: float | None


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
    name: str, method: DecoderMethod, recordings: Sequence[DetectedRecording], procedure: Procedure
) -> TunedBaseline:
    """The setting with the best F1; of equals, the one with the least delay."""
    candidates = [
        TunedBaseline(name, method, setting, 0.0) for setting in (MIN_CONFIDENCES if method == "naive" else THRESHOLDS)
    ]
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
    followed = [wait / procedure.fps for wait in waits if wait is not None]
    return ClearViewBound(len(waits), len(followed), sum(followed) / len(followed) if followed else None)
