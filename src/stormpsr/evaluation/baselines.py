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

__all__ = ["DetectedRecording", "decode_recordings", "score_baseline", "score_decoded"]


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
    events = decode_recordings(
        recordings, procedure, method, threshold=threshold, decay=decay, min_confidence=min_confidence
    )
    return score_decoded(recordings, events, procedure, protocol=protocol)


def decode_recordings(
    recordings: Sequence[DetectedRecording],
    procedure: Procedure,
    method: DecoderMethod,
    *,
    threshold: float = 8.0,
    decay: float = 0.75,
    min_confidence: float = 0.5,
) -> list[list[StepEvent]]:
    """The events of every recording. Apart from the scoring, so that several protocols can share a decoding."""
    return [
        decode(
            recording.detections,
            procedure,
            recording.variant,
            method,
            threshold=threshold,
            decay=decay,
            min_confidence=min_confidence,
        )
        for recording in recordings
    ]


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
