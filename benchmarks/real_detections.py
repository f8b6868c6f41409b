"""Decoders on the detections that the authors of IndustReal published: chosen on some participants, scored on others.

    python benchmarks/real_detections.py industreal_test
    python benchmarks/real_detections.py industreal_test --perfect
    python benchmarks/real_detections.py industreal_train --perfect
    python benchmarks/real_detections.py industreal_test --fitted
    python benchmarks/real_detections.py industreal_test --behaviour
    python benchmarks/real_detections.py data/vehicle --split test --behaviour --detections detections/test

The folder holds a folder per recording, `PARTICIPANT_VARIANT_...`, with `detections.csv`, `PSR_labels.csv` and, if the
annotated boxes are there, `boxes.csv`, which says in which recordings something is wrong (the error state). `--perfect`
takes the annotated boxes for detections of confidence 0.9: a detector that is never wrong.

`--behaviour` scores no decoder: it says how often the detector sees something, how often it is right, and how sure it
is, beside what people could see. It also takes a data set of recordings, with the detections that `stormpsr detect run
... --out DIR` wrote. Detections under --min-confidence are left out: the published ones begin at 0.25.

A method with a grid is chosen by F1 (then POS) on all participants but one, and scored on that one, in turn. The filter
has nothing to choose: its built-in parameters are used as they are. `--fitted` adds what the filter and the recurrent
method do once they were fitted to all participants but one, with their default thresholds.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np

from script import errors_in_one_line, make_parser, print_table
from stormpsr import Procedure, Scores, StateDetection, StepEvent, decode, score
from stormpsr.data.annotated_frames import boxes_file, read_boxes
from stormpsr.data.detection_csv import read_detections
from stormpsr.data.events import completions
from stormpsr.data.labels import StateTimeline, read_steps
from stormpsr.data.layouts import SPLITS, find_recordings, read_about
from stormpsr.decoding.methods import resolve_method
from stormpsr.decoding.predictions import Prediction
from stormpsr.errors import InputError
from stormpsr.evaluation.compare import METRICS, difference_cell, paired_difference
from stormpsr.evaluation.metrics import Protocol
from stormpsr.procedure.model import StateKind

THRESHOLDS: tuple[Mapping[str, float], ...] = tuple({"threshold": float(value)} for value in range(1, 9))
TRIED: Mapping[str, Sequence[Mapping[str, float]]] = {
    "naive": tuple({"min_confidence": value} for value in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)),
    "confidence": THRESHOLDS,
    "expected": THRESHOLDS,
    "detection": tuple({**own, "decay": decay} for own in THRESHOLDS for decay in (0.75, 0.9)),
    "filter": ({},),
}
N_BOOTSTRAP = 2000
FITTED = ("filter", "recurrent")


@dataclass(frozen=True)
class Detected:
    """A recording, what a detector said of it, and what is true."""

    name: str
    detections: tuple[StateDetection, ...]
    labels: tuple[StepEvent, ...]
    n_frames: int | None
    has_errors: bool

    @property
    def participant(self) -> str:
        return self.name.split("_")[0]

    @property
    def variant(self) -> str:
        return self.name.split("_")[1]


def read_recordings(folder: Path, procedure: Procedure, *, perfect: bool) -> list[Detected]:
    found = []
    for path in sorted(own for own in folder.iterdir() if own.is_dir()):
        boxes_file, length = path / "boxes.csv", path / "n_frames.txt"
        boxes = read_detections(boxes_file, procedure) if boxes_file.is_file() else []
        wrong = any(procedure.states[box.state_class].kind is StateKind.ERROR for box in boxes)
        seen = [replace(box, confidence=0.9) for box in boxes] if perfect else read_detections(path / "detections.csv")
        labels = tuple(read_steps(path / "PSR_labels.csv", procedure))
        n_frames = int(length.read_text()) if length.is_file() else None
        found.append(Detected(path.name, tuple(seen), labels, n_frames, wrong))
    if not found:
        raise InputError("there are no recordings", path=folder)
    return found


Decoded = dict[str, list[StepEvent]]  # by recording


def decode_all(recordings: Sequence[Detected], procedure: Procedure, method: str, **settings: Any) -> Decoded:
    return {
        own.name: completions(decode(own.detections, procedure, own.variant, method, n_frames=own.n_frames, **settings))
        for own in recordings
    }


@dataclass(frozen=True)
class Row:
    """The scores of each recording, in the recordings' order; None where the protocol has none (without labels)."""

    scores: tuple[Scores | None, ...]

    @classmethod
    def of(cls, recordings: Sequence[Detected], events: Decoded, procedure: Procedure, protocol: Protocol) -> Row:
        return cls(
            tuple(
                score(own.labels, events[own.name], procedure=procedure, protocol=protocol)
                if own.labels or protocol == "paper"
                else None
                for own in recordings
            )
        )

    def of_rows(self, rows: Sequence[int]) -> list[Scores]:
        return [own for row in rows if (own := self.scores[row]) is not None]

    def means(self, rows: Sequence[int]) -> tuple[float, float, float]:
        """POS, F1 and tau."""
        chosen = self.of_rows(rows)
        delays = [own.delay_seconds for own in chosen if own.delay_seconds is not None]
        tau = float(np.mean(delays)) if delays else np.nan
        return float(np.mean([own.pos for own in chosen])), float(np.mean([own.f1 for own in chosen])), tau

    def cells(self, rows: Sequence[int]) -> tuple[str, ...]:
        pos, f1, tau = self.means(rows)
        chosen = self.of_rows(rows)
        counts = (
            sum(own.true_positives for own in chosen),
            sum(own.false_positives for own in chosen),
            sum(own.false_negatives for own in chosen),
        )
        return f"{pos:.3f}", f"{f1:.3f}", f"{tau:.1f}", ", ".join(map(str, counts))


@dataclass(frozen=True)
class Taught:
    """A recording as methods learn from it: its detections as predictions, and the states that its steps lead to."""

    name: str
    variant: str
    labels: tuple[StepEvent, ...]
    states: StateTimeline
    predictions: tuple[Prediction, ...]

    @classmethod
    def of(cls, own: Detected, procedure: Procedure) -> Taught:
        rows, bits = {0: (initial := procedure.variant(own.variant).initial)}, initial
        for step in own.labels:
            rows[step.frame] = bits = procedure.apply(bits, step.step_id)
        by_frame: dict[int, list[StateDetection]] = {}
        for detection in own.detections:
            by_frame.setdefault(detection.frame, []).append(detection)
        said = tuple(Prediction(n, n, n / procedure.fps, tuple(found)) for n, found in sorted(by_frame.items()))
        return cls(own.name, own.variant, own.labels, StateTimeline(tuple(rows), tuple(rows.values())), said)


def fitted_to_others(recordings: Sequence[Detected], procedure: Procedure, method: str) -> Decoded:
    """The events of every recording by a method that has learned from the other participants."""
    entry, decoded = resolve_method(method), dict[str, list[StepEvent]]()
    taught = {own.name: Taught.of(own, procedure) for own in recordings if own.detections}
    for participant in sorted({own.participant for own in recordings}):
        with TemporaryDirectory() as folder:
            others = [taught[own.name] for own in recordings if own.participant != participant and own.name in taught]
            settings = entry.decoder_class.fit(others, procedure, entry.settings(), Path(folder))
            for own in recordings:
                if own.participant == participant:
                    decoder = entry.decoder_class(procedure, own.variant, settings)
                    said = taught[own.name].predictions if own.name in taught else ()
                    decoded[own.name] = completions([event for one in said for event in decoder.observe(one)])
    return decoded


def leave_one_out(
    recordings: Sequence[Detected], decoded: Sequence[Decoded], procedure: Procedure
) -> tuple[Decoded, list[int]]:
    """The events of every recording with what is best for the other participants, and what that was."""
    scored = [Row.of(recordings, events, procedure, "paper") for events in decoded]
    chosen: Decoded = {}
    choices = []
    for participant in sorted({own.participant for own in recordings}):
        others = [row for row, own in enumerate(recordings) if own.participant != participant]
        best = max(range(len(decoded)), key=lambda n: (scored[n].means(others)[1], scored[n].means(others)[0]))
        choices.append(best)
        chosen |= {own.name: decoded[best][own.name] for own in recordings if own.participant == participant}
    return chosen, choices


def difference(one: Row, other: Row, rows: Sequence[int]) -> Iterator[str]:
    """POS, F1 and tau of one against another, with a bootstrap interval over recordings."""
    draws_KR = np.random.default_rng(0).integers(len(rows), size=(N_BOOTSTRAP, len(rows)))
    for metric in METRICS:
        before_R, after_R = (
            np.array([getattr(own, metric) for own in row.of_rows(rows)], dtype=np.float64) for row in (other, one)
        )
        yield difference_cell(paired_difference(metric, before_R, after_R, draws_KR))


# ---------------------------------------------------------------------- what a detector is like
@dataclass(frozen=True)
class Looked:
    """A recording, frame by frame: what people could read in it, and what a detector said."""

    n_frames: int  # frames that were looked at
    fps: float  # of these
    boxes: Mapping[int, int]  # frame -> state class
    said: Mapping[int, tuple[int, float]]  # frame -> state class and confidence

    @classmethod
    def of(
        cls,
        n_frames: int,
        fps: float,
        step: int,
        boxes: Iterable[tuple[int, int]],
        detections: Sequence[StateDetection],
        least: float,
    ) -> Looked:
        """Of every `step`th frame; the first detection of a frame counts, as it is the most confident one."""
        numbers = range(0, n_frames, step)
        said: dict[int, tuple[int, float]] = {}
        for own in detections:
            if own.frame in numbers and own.confidence >= least:
                said.setdefault(own.frame, (own.state_class, own.confidence))
        return cls(len(numbers), fps / step, {frame: own for frame, own in boxes if frame in numbers}, said)


def read_looked(folder: Path, procedure: Procedure, given: Namespace) -> list[Looked]:
    """Of recordings with `detections.csv`, or of a data set and a folder of detections."""
    if given.detections is None:
        if not (own := [path for path in sorted(folder.iterdir()) if (path / "detections.csv").is_file()]):
            raise InputError("there are no detections.csv", path=folder, cure="give a folder of them: --detections DIR")
        return [
            Looked.of(
                int((path / "n_frames.txt").read_text()),
                procedure.fps,
                given.every,
                [(box.frame, box.state_class) for box in read_detections(path / "boxes.csv", procedure)],
                read_detections(path / "detections.csv", procedure),
                given.min_confidence,
            )
            for path in own
        ]
    found = []
    for recording in find_recordings(folder, given.split):
        path, about = given.detections / f"{recording.name}.csv", read_about(recording.path)
        boxes, n_frames = boxes_file(recording, None), recording.n_frames()
        if boxes is None or n_frames is None:
            raise InputError("frames or boxes are missing", path=recording.path)
        if not path.is_file():
            raise InputError("there is no such file", path=path, cure="make it with 'stormpsr detect run'")
        step = max(given.every, about.frame_step)
        boxed = [(box.frame, box.state_class) for box in read_boxes(boxes, procedure) if box.state_class is not None]
        seen = read_detections(path, procedure)
        found.append(Looked.of(n_frames, about.fps or procedure.fps, step, boxed, seen, given.min_confidence))
    return found


def behaviour(recordings: Sequence[Looked], procedure: Procedure) -> list[tuple[str, str]]:
    """What a detector does, and of how many frames each share is."""
    error = {state.state_class for state in procedure.states if state.kind is StateKind.ERROR}
    pairs = [(own.boxes.get(frame), own.said.get(frame)) for own in recordings for frame in {*own.boxes, *own.said}]
    n_frames = sum(own.n_frames for own in recordings)
    annotated = [(true, said) for true, said in pairs if true is not None]
    seen = [(true, said) for true, said in annotated if said is not None]
    right = [true == said[0] for true, said in seen]
    sound = [true == said[0] for true, said in seen if true not in error]
    wrong = [said[0] in error for true, said in seen if true in error]
    alarms = [said[0] in error for true, said in seen if true not in error]
    without = [said for true, said in pairs if true is None]
    sure = [said[1] for _, said in pairs if said is not None]
    sure_right, sure_wrong = (
        [said[1] for true, said in seen if (true == said[0]) is is_right] for is_right in (True, False)
    )

    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:.1f} % ({part} of {whole})" if whole else "–"

    def median(values: Sequence[float]) -> str:
        return f"{np.median(values):.2f}" if values else "–"

    return [
        ("recordings, frames looked at", f"{len(recordings)}, {n_frames}"),
        ("frames with an annotated box", share(len(annotated), n_frames)),
        ("frames with a detection", share(len(sure), n_frames)),
        ("frames without a box that have a detection", share(len(without), n_frames - len(annotated))),
        ("annotated frames that are detected", share(len(seen), len(annotated))),
        ("of these, the right state", share(sum(right), len(seen))),
        ("of these, without those that show an error", share(sum(sound), len(sound))),
        ("detected frames that show an error, called so", share(sum(wrong), len(wrong))),
        ("detected frames of a right state, called an error", share(sum(alarms), len(alarms))),
        ("confidence, median", median(sure)),
        ("where the state is right", median(sure_right)),
        ("where it is not", median(sure_wrong)),
    ]


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--procedure", default="industreal", help="name or file (default: industreal)")
    parser.add_argument("--perfect", action="store_true", help="the annotated boxes are the detections")
    parser.add_argument("--fitted", action="store_true", help="also fit filter and recurrent to the other participants")
    parser.add_argument("--behaviour", action="store_true", help="what the detector is like, instead of decoders")
    parser.add_argument("--detections", type=Path, metavar="DIR", help="with --behaviour: NAME.csv of a data set")
    parser.add_argument("--split", choices=SPLITS, help="with --detections: which recordings of the data set")
    parser.add_argument("--every", type=int, default=1, help="with --behaviour: every so many frames only")
    parser.add_argument("--min-confidence", type=float, default=0.25, help="with --behaviour (default: 0.25)")
    given = parser.parse_args(words)
    if given.behaviour:
        with errors_in_one_line():
            procedure = Procedure.load(given.procedure)
            told = behaviour(read_looked(given.folder, procedure, given), procedure)
        print_table((str(given.folder), ""), told)
        return
    with errors_in_one_line():
        procedure = Procedure.load(given.procedure)
        recordings = read_recordings(given.folder, procedure, perfect=given.perfect)
        decoded = {
            method: [decode_all(recordings, procedure, method, **own) for own in tried]
            for method, tried in TRIED.items()
        }
    everything = list(range(len(recordings)))
    right = [row for row in everything if not recordings[row].has_errors]
    groups = {f"all {len(everything)}": everything, f"{len(right)} without an error state": right}
    chosen = {}
    for method, tried in TRIED.items():
        chosen[method], choices = leave_one_out(recordings, decoded[method], procedure)
        words_of = [", ".join(f"{name} {value:g}" for name, value in tried[n].items()) or "-" for n in choices]
        print(f"{method}: chosen without each participant in turn: {'; '.join(words_of)}")
    fitted = {f"{method}, fitted": fitted_to_others(recordings, procedure, method) for method in FITTED if given.fitted}
    for title, rows in groups.items():
        if not rows:
            continue
        print()
        head = (title, "protocol", "POS", "F1", "tau (s)", "TP, FP, FN")
        print_table(
            head,
            (
                (method, protocol, *Row.of(recordings, events, procedure, protocol).cells(rows))
                for method, events in {**chosen, **fitted}.items()
                for protocol in get_args(Protocol)
            ),
        )
        print()
        own = Row.of(recordings, chosen["filter"], procedure, "paper")
        better = Row.of(recordings, chosen["expected"], procedure, "paper")
        print_table(("protocol `paper`", "POS", "F1", "tau (s)"), [("filter - B3", *difference(own, better, rows))])
        print()
        fixed = [
            (f"B3 at {n}", Row.of(recordings, decoded["expected"][n - 1], procedure, "paper")) for n in range(1, 9)
        ]
        print_table(
            (f"{title}, protocol `paper`", "POS", "F1", "tau (s)", "TP, FP, FN"),
            ((name, *row.cells(rows)) for name, row in (*fixed, ("filter, built-in", own))),
        )


if __name__ == "__main__":
    main()
