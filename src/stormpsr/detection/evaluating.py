"""Everything that is measured about a detector on a split, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stormpsr.datasets import RecordingFolder
from stormpsr.detection.calibration import Calibration, reliability
from stormpsr.detection.drawings import draw_confusion, draw_precision_recall, draw_reliability
from stormpsr.detection.looking import SeenFrame, confidence_and_success
from stormpsr.detection.scoring import DetectionScores, average_precision, confusion_matrix, score_detections
from stormpsr.detection.views import (
    SilenceScores,
    VisibilityRow,
    accuracy_by_visibility,
    read_views,
    score_silence,
)
from stormpsr.procedure import Procedure

__all__ = ["Evaluation", "draw_evaluation", "evaluate"]


@dataclass(frozen=True)
class Evaluation:
    """Scores, and scores by visibility where recordings say what can be seen."""

    scores: DetectionScores
    by_visibility: tuple[VisibilityRow, ...]
    silence: SilenceScores | None

    def to_dict(self) -> dict[str, Any]:
        rows = [asdict(row) for row in self.by_visibility]
        silence = None if self.silence is None else asdict(self.silence)
        return {**self.scores.to_dict(), "by_visibility": rows, "silence": silence}


def evaluate(
    seen: Sequence[SeenFrame], recordings: Sequence[RecordingFolder], procedure: Procedure, *, min_confidence: float
) -> Evaluation:
    """Score what a detector saw in frames of these recordings."""
    views = read_views(recordings, procedure)
    return Evaluation(
        scores=score_detections(seen, procedure, min_confidence=min_confidence),
        by_visibility=tuple(accuracy_by_visibility(seen, views, min_confidence)) if views else (),
        silence=score_silence(seen, views, min_confidence) if views else None,
    )


def draw_evaluation(
    folder: Path,
    seen: Sequence[SeenFrame],
    procedure: Procedure,
    *,
    min_confidence: float,
    uncalibrate: Calibration,
) -> list[Path]:
    """Precision and recall, confusion and reliability as pictures.

    `uncalibrate` is the calibration that the detections already have; the diagram shows them without it, too.
    """
    readable = [frame for frame in seen if frame.frame.box is not None]
    paths = [folder / name for name in ("precision_recall.png", "confusion.png", "reliability.png")]
    draw_precision_recall(paths[0], average_precision(readable, procedure), procedure)
    draw_confusion(paths[1], confusion_matrix(seen, procedure, min_confidence), procedure)
    confidences, right = confidence_and_success(seen)
    curves = [("calibrated", reliability(confidences, right))]
    if uncalibrate != Calibration():
        raw = uncalibrate.undo(confidences)
        curves.append(("as the network says", reliability(raw, right)))
    draw_reliability(paths[2], curves)
    return paths
