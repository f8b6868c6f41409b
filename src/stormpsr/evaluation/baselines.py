"""Detections decoded and scored over recordings, without any file in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stormpsr.evaluation.metrics import Protocol, score
from stormpsr.evaluation.summary import RecordingResult, Summary, contains_errors, summarise
from stormpsr.events import StateDetection, StepEvent
from stormpsr.labels import StateTimeline
from stormpsr.procedure import Procedure
from stormpsr.recognition.decoders import DecoderMethod, decode

__all__ = ["DetectedRecording", "score_baseline"]


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
    method: DecoderMethod,
    *,
    threshold: float = 8.0,
    decay: float = 0.75,
    min_confidence: float = 0.5,
    protocol: Protocol = "paper",
) -> Summary:
    """Decode every recording and summarise the scores."""
    results: list[RecordingResult] = []
    for recording in recordings:
        events = decode(
            recording.detections,
            procedure,
            recording.variant,
            method,
            threshold=threshold,
            decay=decay,
            min_confidence=min_confidence,
        )
        results.append(
            RecordingResult(
                name=recording.name,
                labels=recording.labels,
                events=tuple(events),
                scores=score(recording.labels, events, procedure=procedure, protocol=protocol),
                fps=procedure.fps,
                has_errors=contains_errors(
                    recording.labels, procedure, variant=recording.variant, timeline=recording.timeline
                ),
            )
        )
    return summarise(results, procedure)
