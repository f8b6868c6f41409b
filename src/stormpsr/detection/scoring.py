"""How good a detector is: average precision by a maintained COCO evaluator, and figures that speak of assemblies.

Average precision is counted over readable frames and, separately, over all frames; what a detector says about frames
whose state nobody can read is reported as false detections. Shape legend: K state classes.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.detection.calibration import expected_error
from stormpsr.detection.looking import SeenFrame, confidence_and_success
from stormpsr.errors import InputError, MissingExtraError
from stormpsr.procedure import Procedure, StateKind

__all__ = [
    "AveragePrecision",
    "DetectionScores",
    "WrongPartScores",
    "average_precision",
    "confusion_matrix",
    "false_detections",
    "score_detections",
    "score_wrong_parts",
]


@dataclass(frozen=True, eq=False)
class AveragePrecision:
    """Mean over the classes that occur. Curves are precision at 101 recalls from 0 to 1, at an overlap of 0.5."""

    map50: float
    map50_95: float
    ap50_by_class: Mapping[int, float] = field(default_factory=dict)
    curve_by_class: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)


@dataclass(frozen=True)
class WrongPartScores:
    """Whether states with a wrong part are told from correct ones, over readable frames."""

    n_wrong: int  # readable frames in which a part is wrong
    n_wrong_reported: int  # of those, reported as the error class
    n_wrong_read_as_correct: int  # of those, reported as a correct state: the mistake that must not happen
    n_correct: int
    n_false_alarms: int  # correct states reported as the error class
    n_culprit_named: int | None  # of the wrong frames, those whose read-out accuses exactly a part that is wrong

    @property
    def recall(self) -> float | None:
        return self.n_wrong_reported / self.n_wrong if self.n_wrong else None

    @property
    def false_alarm_rate(self) -> float | None:
        return self.n_false_alarms / self.n_correct if self.n_correct else None


@dataclass(frozen=True)
class DetectionScores:
    """Everything measured on a set of frames."""

    n_readable: int
    n_unreadable: int
    map50: float  # over readable frames
    map50_95: float
    map50_all: float  # over all frames: detections in unreadable ones count against it
    state_accuracy: float  # readable frames whose best detection, however weak, has the right class
    found: float  # readable frames with a right detection at least as confident as `min_confidence`
    false_detections: float  # unreadable frames with any detection at least as confident as `min_confidence`
    expected_calibration_error: float
    min_confidence: float
    wrong_parts: WrongPartScores

    def to_dict(self) -> dict[str, Any]:
        rates = {"recall": self.wrong_parts.recall, "false_alarm_rate": self.wrong_parts.false_alarm_rate}
        return {**asdict(self), "wrong_parts": {**asdict(self.wrong_parts), **rates}}


def score_detections(seen: Sequence[SeenFrame], procedure: Procedure, *, min_confidence: float) -> DetectionScores:
    """All scores of the frames that a detector has seen."""
    readable = [frame for frame in seen if frame.frame.box is not None]
    others = [frame for frame in seen if frame.frame.box is None]
    if not readable:
        raise InputError("there are no frames with boxes to score on")
    precision = average_precision(readable, procedure)
    right_class = [f.best is not None and f.best.state_class == _true_class(f) for f in readable]
    found = [any(f.is_right(d) and d.confidence >= min_confidence for d in f.detections) for f in readable]
    return DetectionScores(
        n_readable=len(readable),
        n_unreadable=len(others),
        map50=precision.map50,
        map50_95=precision.map50_95,
        map50_all=average_precision(seen, procedure).map50 if others else precision.map50,
        state_accuracy=float(np.mean(right_class)),
        found=float(np.mean(found)),
        false_detections=false_detections(others, min_confidence),
        expected_calibration_error=expected_error(*confidence_and_success(seen)),
        min_confidence=min_confidence,
        wrong_parts=score_wrong_parts(readable, procedure),
    )


def false_detections(frames: Sequence[SeenFrame], min_confidence: float) -> float:
    """Share of frames with a detection at least so confident; 0 if there are no frames."""
    fired = [frame.best is not None and frame.best.confidence >= min_confidence for frame in frames]
    return float(np.mean(fired)) if fired else 0.0


# ---------------------------------------------------------------------- average precision
def average_precision(seen: Sequence[SeenFrame], procedure: Procedure) -> AveragePrecision:
    """Mean average precision at overlaps of 0.5 and of 0.5 to 0.95, as COCO defines them."""
    try:
        evaluator: Any = import_module("faster_coco_eval")
    except ModuleNotFoundError:
        raise MissingExtraError("average precision", "detect", "faster-coco-eval") from None
    truth = _coco_truth(seen, procedure)
    results = [
        {
            "image_id": number,
            "category_id": detection.state_class + 1,
            "bbox": list(detection.box),
            "score": detection.confidence,
        }
        for number, frame in enumerate(seen, start=1)
        for detection in frame.detections
    ]
    if not results:
        return AveragePrecision(0.0, 0.0)
    with contextlib.redirect_stdout(io.StringIO()):  # the evaluator talks
        ground = evaluator.COCO(truth)
        run = evaluator.COCOeval_faster(ground, ground.loadRes(results), "bbox", print_function=lambda *_: None)
        run.evaluate()
        run.accumulate()
    precision_TRKAM = np.asarray(run.eval["precision"])  # overlaps, recalls, classes, areas, most detections
    classes = [int(category) - 1 for category in run.params.catIds]
    return _mean_precision(precision_TRKAM[:, :, :, 0, -1], classes)


def _mean_precision(precision_TRK: NDArray[np.float64], classes: Sequence[int]) -> AveragePrecision:
    occurs = [k for k in range(len(classes)) if (precision_TRK[0, :, k] > -1).all()]  # -1: not in the truth
    if not occurs:
        return AveragePrecision(0.0, 0.0)
    at50_RK = precision_TRK[0][:, occurs]
    names = [classes[k] for k in occurs]
    return AveragePrecision(
        map50=float(at50_RK.mean()),
        map50_95=float(precision_TRK[:, :, occurs].mean()),
        ap50_by_class={name: float(at50_RK[:, i].mean()) for i, name in enumerate(names)},
        curve_by_class={name: at50_RK[:, i] for i, name in enumerate(names)},
    )


def _coco_truth(seen: Sequence[SeenFrame], procedure: Procedure) -> dict[str, Any]:
    """The frames as a COCO data set; ids start at 1, because evaluators take 0 for nothing."""
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, frame in enumerate(seen, start=1):
        images.append({"id": number, "width": frame.width, "height": frame.height, "file_name": str(number)})
        box = frame.true_box
        if box is not None:
            entry = {"id": len(annotations) + 1, "image_id": number, "category_id": _true_class(frame) + 1}
            annotations.append({**entry, "bbox": list(box), "area": box[2] * box[3], "iscrowd": 0})
    shown = [state for state in procedure.states if state.kind is not StateKind.BACKGROUND]
    categories = [{"id": state.state_class + 1, "name": state.name} for state in shown]
    return {"info": {}, "images": images, "annotations": annotations, "categories": categories}


# ---------------------------------------------------------------------- states
def confusion_matrix(seen: Sequence[SeenFrame], procedure: Procedure, min_confidence: float) -> NDArray[np.int64]:
    """Counts by (reported class, true class). The last row is "nothing reported", the last column "cannot be read"."""
    nothing = len(procedure.states)
    counts = np.zeros((nothing + 1, nothing + 1), dtype=np.int64)
    for frame in seen:
        best = frame.best
        reported = best.state_class if best and best.confidence >= min_confidence else nothing
        counts[reported, nothing if frame.frame.box is None else _true_class(frame)] += 1
    return counts


def score_wrong_parts(readable: Sequence[SeenFrame], procedure: Procedure) -> WrongPartScores:
    """Recall on wrong parts and false alarms on correct ones, by the best detection of each readable frame."""
    error_classes = {state.state_class for state in procedure.states if state.kind is StateKind.ERROR}
    wrong = [frame for frame in readable if _true_class(frame) in error_classes]
    correct = [frame for frame in readable if _true_class(frame) not in error_classes]
    reported = [frame.best is not None and frame.best.state_class in error_classes for frame in wrong]
    as_correct = [frame.best is not None and frame.best.state_class not in error_classes for frame in wrong]
    alarms = [frame.best is not None and frame.best.state_class in error_classes for frame in correct]
    named = [_names_a_culprit(frame) for frame in wrong]
    known = [value for value in named if value is not None]
    return WrongPartScores(
        n_wrong=len(wrong),
        n_wrong_reported=sum(reported),
        n_wrong_read_as_correct=sum(as_correct),
        n_correct=len(correct),
        n_false_alarms=sum(alarms),
        n_culprit_named=sum(known) if known else None,
    )


def _names_a_culprit(frame: SeenFrame) -> bool | None:
    """Whether the part that the read-out accuses most is wrong; None without a read-out or without the truth."""
    best, box = frame.best, frame.frame.box
    if best is None or best.parts_C3 is None or box is None or box.bits is None:
        return None
    return box.bits[int(best.parts_C3[:, 2].argmax())] == -1


def _true_class(frame: SeenFrame) -> int:
    assert frame.frame.box is not None
    return frame.frame.box.state_class
