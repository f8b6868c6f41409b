"""How good a detector is: average precision by a maintained COCO evaluator, and figures that speak of assemblies.

Average precision is counted over readable frames and, separately, over all frames; what a detector says about frames
whose state nobody can read is reported as false detections. For recordings that come with `visibility.csv` there are
also scores by how much can be seen. Shape legend: K state classes, C components, X parts of frames.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.coco import Coco, CocoBox, CocoImage, state_categories
from stormpsr.data.labels import STATES_FILE, read_states
from stormpsr.data.layouts import RecordingFolder
from stormpsr.data.visibility import VISIBILITY_FILE, read_visibility
from stormpsr.detectors.base import Calibration
from stormpsr.detectors.calibration import expected_error, reliability
from stormpsr.detectors.predict import PredictedFrame, confidence_and_success
from stormpsr.errors import InputError, need_packages
from stormpsr.evaluation.plots import draw_confusion, draw_precision_recall, draw_reliability
from stormpsr.procedure.model import ABSENT, CORRECT, WRONG, Procedure, StateBits, StateKind


@dataclass(frozen=True, eq=False)
class AveragePrecision:
    """Mean over the classes that occur. Curves are precision at 101 recalls from 0 to 1, at a box_iou of 0.5."""

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


@dataclass(frozen=True, slots=True)
class VisibilityRow:
    """Frames of which so much was visible."""

    low: float
    high: float
    n_frames: int
    reported: float | None  # share with a confident detection
    right_of_reported: float | None  # of those, with the class of the labelled state
    right: float | None  # of all frames, best guess however weak


@dataclass(frozen=True, slots=True)
class PartsRow:
    """What is read of single parts of which, or of whose empty places, so much shows, in frames of any state."""

    low: float
    high: float
    n_absent: int
    n_correct: int
    n_wrong: int
    absent: float | None  # share of absent parts that are read as absent
    correct: float | None  # of correct ones as correct
    wrong: float | None  # of wrong ones as wrong
    wrong_as_correct: float | None
    correct_as_wrong: float | None
    wrong_at_1_percent: float | None  # found by whatever bar takes 1 % of correct ones for wrong: comparable


@dataclass(frozen=True, slots=True)
class SilenceScores:
    """What is reported where nothing should be."""

    n_obstructed: int
    fired_obstructed: float | None  # share of obstructed frames with a confident detection
    fired_obstructed_wrong: float | None  # share of obstructed frames with one that names another state
    n_unlisted: int
    fired_unlisted: float | None  # share of clear frames in states without a class


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
    by_visibility: tuple[VisibilityRow, ...]  # this and what follows where recordings say what can be seen
    parts: tuple[PartsRow, ...]  # of detectors that read single parts
    silence: SilenceScores | None

    def to_dict(self) -> dict[str, Any]:
        rates = {"recall": self.wrong_parts.recall, "false_alarm_rate": self.wrong_parts.false_alarm_rate}
        return {**asdict(self), "wrong_parts": {**asdict(self.wrong_parts), **rates}}


def score_detections(
    seen: Sequence[PredictedFrame], procedure: Procedure, *, min_confidence: float, views: Views | None = None
) -> DetectionScores:
    """All scores of the frames that a detector has seen. `views` says what could be seen, see `read_views`."""
    parts = score_parts(seen, views) if views else []
    seen = _without_weak(seen)
    readable = [frame for frame in seen if frame.frame.box is not None]
    others = [frame for frame in seen if frame.frame.box is None]
    if not readable:
        raise InputError("there are no frames with boxes to score on")
    precision = average_precision(readable, procedure)
    found = [any(f.is_right(d) and d.confidence >= min_confidence for d in f.detections) for f in readable]
    return DetectionScores(
        n_readable=len(readable),
        n_unreadable=len(others),
        map50=precision.map50,
        map50_95=precision.map50_95,
        map50_all=average_precision(seen, procedure).map50 if others else precision.map50,
        state_accuracy=float(np.mean([_reported(frame) == frame.frame.state_class for frame in readable])),
        found=float(np.mean(found)),
        false_detections=_mean([_reported(frame, min_confidence) is not None for frame in others]) or 0.0,
        expected_calibration_error=expected_error(*confidence_and_success(seen)),
        min_confidence=min_confidence,
        wrong_parts=score_wrong_parts(readable, procedure),
        by_visibility=tuple(accuracy_by_visibility(seen, views, min_confidence)) if views else (),
        parts=tuple(parts),
        silence=score_silence(seen, views, min_confidence) if views else None,
    )


def _without_weak(seen: Sequence[PredictedFrame]) -> list[PredictedFrame]:
    kept = [tuple(d for d in frame.detections if d.confidence >= _LEAST_CONFIDENCE) for frame in seen]
    return [replace(frame, detections=detections) for frame, detections in zip(seen, kept, strict=True)]


def _reported(frame: PredictedFrame, min_confidence: float = 0.0) -> int | None:
    """The class of a frame's best detection; None if there is none so confident."""
    best = frame.best
    return best.state_class if best is not None and best.confidence >= min_confidence else None


def _mean(values: Sequence[bool] | NDArray[np.bool_]) -> float | None:
    return float(np.mean(values)) if len(values) else None


# ---------------------------------------------------------------------- average precision
def average_precision(seen: Sequence[PredictedFrame], procedure: Procedure) -> AveragePrecision:
    """Mean average precision at overlaps of 0.5 and of 0.5 to 0.95, as COCO defines them."""
    need_packages("average precision", "detect", "faster_coco_eval")
    evaluator: Any = import_module("faster_coco_eval")
    truth = _coco_truth(seen, procedure)
    results = [
        {
            "image_id": number,
            "category_id": detection.state_class + 1,
            "bbox": list(detection.box.to_xywh()),
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


def _coco_truth(seen: Sequence[PredictedFrame], procedure: Procedure) -> dict[str, Any]:
    """The frames as a COCO data set; ids start at 1, because evaluators take 0 for nothing."""
    coco = Coco(categories=state_categories(procedure, first=1))
    for number, frame in enumerate(seen, start=1):
        coco.images.append(CocoImage(number, str(number), frame.width, frame.height))
        if frame.frame.box is not None:
            coco.boxes.append(CocoBox(coco.images[-1], frame.frame.state_class + 1, frame.frame.box))
    return {"info": {}, **coco.to_dict(digits=None)}


# ---------------------------------------------------------------------- states
def confusion_matrix(seen: Sequence[PredictedFrame], procedure: Procedure, min_confidence: float) -> NDArray[np.int64]:
    """Counts by (reported class, true class). The last row is "nothing reported", the last column "cannot be read"."""
    nothing = len(procedure.states)
    counts = np.zeros((nothing + 1, nothing + 1), dtype=np.int64)
    for frame in seen:
        reported = _reported(frame, min_confidence)
        true = nothing if frame.frame.box is None else frame.frame.state_class
        counts[nothing if reported is None else reported, true] += 1
    return counts


def score_wrong_parts(readable: Sequence[PredictedFrame], procedure: Procedure) -> WrongPartScores:
    """Recall on wrong parts and false alarms on correct ones, by the best detection of each readable frame."""
    error_classes = {state.state_class for state in procedure.states if state.kind is StateKind.ERROR}
    wrong = [frame for frame in readable if frame.frame.state_class in error_classes]
    correct = [frame for frame in readable if frame.frame.state_class not in error_classes]
    reported = [_reported(frame) for frame in wrong]
    named = [_names_a_culprit(frame) for frame in wrong]
    known = [value for value in named if value is not None]
    return WrongPartScores(
        n_wrong=len(wrong),
        n_wrong_reported=sum(k in error_classes for k in reported),
        n_wrong_read_as_correct=sum(k is not None and k not in error_classes for k in reported),
        n_correct=len(correct),
        n_false_alarms=sum(_reported(frame) in error_classes for frame in correct),
        n_culprit_named=sum(known) if known else None,
    )


def _names_a_culprit(frame: PredictedFrame) -> bool | None:
    """Whether the part that the read-out accuses most is wrong; None without a read-out or without the truth."""
    best, bits = frame.best, frame.frame.bits
    if best is None or best.parts_C3 is None or bits is None:
        return None
    return bits[int(best.parts_C3[:, 2].argmax())] == -1


_LEAST_CONFIDENCE = 0.01  # weaker detections say nothing of the whole; what they read of single parts counts
EDGES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
PART_EDGES = (0.0, 0.1, 0.4, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class View:
    """What could be seen in a frame, and what the state was."""

    visible: float  # mean share of the mounted components that shows
    readable: bool  # a person could read the whole state
    state_class: int | None  # of the labelled state; None if it has no class
    bits: StateBits  # the labelled state
    shown_C: NDArray[np.float32]  # share of each component that shows, or of its empty place


Views = Mapping[tuple[str, int], View]  # by recording and frame


def read_views(recordings: Sequence[RecordingFolder], procedure: Procedure) -> dict[tuple[str, int], View]:
    """Views of the recordings that say what can be seen; empty if none does."""
    views: dict[tuple[str, int], View] = {}
    for recording in recordings:
        path = recording.path / VISIBILITY_FILE
        if not path.is_file():
            continue
        visibility = read_visibility(path, procedure.n_components)
        timeline = read_states(recording.path / STATES_FILE, procedure)
        readable_F, visible_F = visibility.readable_F(), visibility.mean_visible_F()
        shown_FC = visibility.shown_FC()
        for frame, (visible, readable) in enumerate(zip(visible_F.tolist(), readable_F.tolist(), strict=True)):
            bits = timeline.at(frame)
            views[recording.name, frame] = View(visible, readable, procedure.state_class(bits), bits, shown_FC[frame])
    return views


def accuracy_by_visibility(
    seen: Sequence[PredictedFrame], views: Views, min_confidence: float, edges: Sequence[float] = EDGES
) -> list[VisibilityRow]:
    """Scores in bins of visibility; frames in states without a class are left out."""
    rows: list[VisibilityRow] = []
    known = [(f, views[f.frame.recording, f.frame.frame]) for f in seen if (f.frame.recording, f.frame.frame) in views]
    known = [(frame, view) for frame, view in known if view.state_class is not None]
    for low, high in pairwise(edges):
        last = high == edges[-1]
        inside = [(f, v) for f, v in known if low <= v.visible < high or (last and v.visible >= high)]
        right = [_reported(f) == v.state_class for f, v in inside]
        sure = [_reported(f, min_confidence) is not None for f, _ in inside]
        right_and_sure = [r for r, s in zip(right, sure, strict=True) if s]
        rows.append(VisibilityRow(low, high, len(inside), _mean(sure), _mean(right_and_sure), _mean(right)))
    return rows


def score_parts(seen: Sequence[PredictedFrame], views: Views, edges: Sequence[float] = PART_EDGES) -> list[PartsRow]:
    """What the read-out says of single parts, in bins of how much of each shows; empty if there is no read-out."""
    found = [
        (view, frame.best.parts_C3)
        for frame in seen
        if (view := views.get((frame.frame.recording, frame.frame.frame))) is not None
        and frame.best is not None
        and frame.best.parts_C3 is not None
    ]
    if not found:
        return []
    shown_X = np.concatenate([view.shown_C for view, _ in found])
    bit_X = np.concatenate([np.array(view.bits) for view, _ in found])
    parts_X3 = np.concatenate([parts_C3 for _, parts_C3 in found])
    rows = []
    for low, high in pairwise(edges):
        inside_X = (shown_X >= low) & ((shown_X < high) | (high == edges[-1]))
        parts = {bit: parts_X3[inside_X & (bit_X == bit)] for bit in (ABSENT, CORRECT, -1)}
        read = {bit: rows_X3.argmax(axis=1) for bit, rows_X3 in parts.items()}
        bar = np.quantile(parts[CORRECT][:, WRONG], 0.99) if len(parts[CORRECT]) else None
        rows.append(
            PartsRow(
                low,
                high,
                len(parts[ABSENT]),
                len(parts[CORRECT]),
                len(parts[-1]),
                absent=_mean(read[ABSENT] == ABSENT),
                correct=_mean(read[CORRECT] == CORRECT),
                wrong=_mean(read[-1] == WRONG),
                wrong_as_correct=_mean(read[-1] == CORRECT),
                correct_as_wrong=_mean(read[CORRECT] == WRONG),
                wrong_at_1_percent=None if bar is None else _mean(parts[-1][:, WRONG] > bar),
            )
        )
    return rows


def score_silence(seen: Sequence[PredictedFrame], views: Views, min_confidence: float) -> SilenceScores:
    """False detections, apart for obstructed frames and for clear frames of states that have no class."""
    obstructed: list[tuple[bool, bool]] = []
    unlisted: list[bool] = []
    for frame in seen:
        view = views.get((frame.frame.recording, frame.frame.frame))
        if view is None:
            continue
        reported = _reported(frame, min_confidence)
        if not view.readable:
            obstructed.append((reported is not None, reported not in (None, view.state_class)))
        elif view.state_class is None:
            unlisted.append(reported is not None)
    return SilenceScores(
        n_obstructed=len(obstructed),
        fired_obstructed=_mean([fired for fired, _ in obstructed]),
        fired_obstructed_wrong=_mean([wrong for _, wrong in obstructed]),
        n_unlisted=len(unlisted),
        fired_unlisted=_mean(unlisted),
    )


def draw_evaluation(
    folder: Path,
    seen: Sequence[PredictedFrame],
    procedure: Procedure,
    *,
    min_confidence: float,
    uncalibrate: Calibration,
) -> list[Path]:
    """Precision and recall, confusion and reliability as images.

    `uncalibrate` is the calibration that the detections already have; the diagram shows them without it, too.
    """
    seen = _without_weak(seen)
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
