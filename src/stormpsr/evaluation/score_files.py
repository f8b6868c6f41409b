"""Score files on disk: find which file of predicted events belongs to which recording, read them, summarise."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stormpsr.data.detection_csv import HEADER as DETECTION_COLUMNS
from stormpsr.data.events import StepEvent
from stormpsr.data.labels import (
    STATES_FILE,
    STEPS_FILE,
    STEPS_WITH_ERRORS_FILE,
    OnNote,
    read_rows,
    read_states,
    read_steps,
)
from stormpsr.data.layouts import RecordingFolder, find_recordings
from stormpsr.errors import InputError
from stormpsr.evaluation.metrics import Protocol, score
from stormpsr.evaluation.summary import (
    RecordingResult,
    Summary,
    contains_errors,
    summarise,
)
from stormpsr.procedure.model import Procedure


@dataclass(frozen=True, slots=True)
class LabelledEvents:
    """A recording's labels and the events predicted for it. `events` is None where no file was found."""

    name: str
    labels: Path
    events: Path | None


def pair_files(labels: Path, events: Path, split: str | None = None) -> list[LabelledEvents]:
    """Pair two files, or two folders by the recordings' names.

    In a folder of events, recording `0008` is looked for as `0008.csv`, `0008_*.csv` or any CSV in a folder `0008`.
    """
    for path in (labels, events):
        if not path.exists():
            raise InputError("there is no such file or folder", path=path)
    if labels.is_file() and events.is_file():
        return [LabelledEvents(_name_of(labels), labels, events)]
    if labels.is_file() or events.is_file():
        raise InputError(
            f"{labels} is a {_kind(labels)} and {events} a {_kind(events)}", cure="give two files or two folders"
        )
    recordings = _labelled_recordings(labels, events, split)
    files = _EventFiles(events, (recording.name for recording in recordings))
    pairs: list[LabelledEvents] = []
    for recording in recordings:
        path = recording.path / STEPS_FILE
        if not path.is_file():
            cure = f"make one from {STATES_FILE} with 'stormpsr labels convert', or take the recording away"
            raise InputError(f"recording {recording.name!r} has no {STEPS_FILE}", path=recording.path, cure=cure)
        found = files.of(recording.name)
        if len(found) > 1:
            listed = ", ".join(str(entry.relative_to(events)) for entry in found[:3])
            cure = "keep one of them there"
            raise InputError(f"several files for recording {recording.name!r}: {listed}", path=events, cure=cure)
        pairs.append(LabelledEvents(recording.name, path, found[0] if found else None))
    return pairs


def _labelled_recordings(labels: Path, events: Path, split: str | None) -> list[RecordingFolder]:
    try:
        recordings = find_recordings(labels, split)
    except InputError as error:
        if any(events.rglob(STEPS_FILE)) and not any(labels.rglob(STEPS_FILE)):
            cure = f"labels come first, then events: did you swap {labels} and {events}?"
            raise InputError(error.problem, path=error.path, cure=cure) from None
        raise
    names = Counter(recording.name for recording in recordings)
    for name in (name for name, count in names.items() if count > 1):
        splits = ", ".join(recording.split or "no split" for recording in recordings if recording.name == name)
        cure = "choose one with --split, or take one away"
        raise InputError(f"recording {name!r} is there more than once: {splits}", path=labels, cure=cure)
    return recordings


def _kind(path: Path) -> str:
    return "folder" if path.is_dir() else "file"


def _name_of(path: Path) -> str:
    """The recording a label file belongs to: its folder's name, unless the file has a name of its own."""
    return path.resolve().parent.name if path.name.startswith("PSR_") else path.stem


class _EventFiles:
    """The CSV files below a folder, by the recording whose events they may hold."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self._by_stem: dict[str, list[Path]] = defaultdict(list)
        self._by_prefix: dict[str, list[Path]] = defaultdict(list)
        self._by_folder: dict[str, list[Path]] = defaultdict(list)
        known = set(names)
        for path in sorted(folder.rglob("*.csv")):
            self._by_stem[path.stem].append(path)
            self._by_folder[path.parent.name].append(path)
            # `01_2_events.csv` belongs to recording `01_2` where there is one, not to `01`
            words = path.stem.split("_")
            begins = ("_".join(words[:n]) for n in range(len(words), 0, -1))
            owner = next((begin for begin in begins if begin in known), None)
            if owner is not None:
                self._by_prefix[owner].append(path)

    def of(self, name: str) -> list[Path]:
        """The files of a recording, by the most telling of the rules that fits any."""
        in_folder = self._by_folder.get(name, [])
        rules = (
            self._by_stem.get(name, []),
            self._by_prefix.get(name, []),
            [path for path in in_folder if path.name == STEPS_FILE],
            in_folder,
        )
        return next((found for found in rules if found), [])


WhenMissing = Literal["error", "empty", "skip"]


def score_files(
    labels: Path,
    events: Path,
    procedure: Procedure,
    *,
    protocol: Protocol = "paper",
    fps: float | None = None,
    window: int | None = None,
    split: str | None = None,
    variant: str | None = None,
    missing: WhenMissing = "error",
    on_note: OnNote | None = None,
) -> Summary:
    """Score two files, or two folders. `missing` says what to do with a recording that has no file of events."""
    _check_settings(protocol, fps, window)
    if variant is not None:
        procedure.variant(variant)  # refuses an unknown one before any file is read
    results: list[RecordingResult] = []
    for pair in pair_files(labels, events, split):
        if pair.events is None and missing == "skip":
            continue
        if pair.events is None and missing == "error":
            cure = "write an empty file if nothing was recognised, or choose --missing empty or --missing skip"
            raise InputError(f"no file of events for recording {pair.name!r}", path=events, cure=cure)
        results.append(_score_pair(pair, procedure, protocol, fps, window, variant, on_note))
    if not results:
        cure = "a recording's events are in NAME.csv, NAME_*.csv or a folder NAME"
        raise InputError("not one recording has a file of events", path=events, cure=cure)
    return summarise(results, procedure)


def _check_settings(protocol: Protocol, fps: float | None, window: int | None) -> None:
    """Refuse settings that no recording could be scored with, before any file is read."""
    nothing = [StepEvent(0, 0)]
    score(nothing, nothing, fps=1.0 if fps is None else fps, protocol=protocol, window=window)


def _score_pair(
    pair: LabelledEvents,
    procedure: Procedure,
    protocol: Protocol,
    fps: float | None,
    window: int | None,
    variant: str | None,
    on_note: OnNote | None,
) -> RecordingResult:
    truth = read_steps(pair.labels, procedure, on_note=on_note)
    predicted = [] if pair.events is None else _read_events(pair.events, procedure, on_note)
    try:
        scores = score(truth, predicted, procedure=procedure, fps=fps, protocol=protocol, window=window)
    except InputError as error:
        raise InputError(error.problem, path=error.path or pair.labels, line=error.line, cure=error.cure) from None
    return RecordingResult(
        name=pair.name,
        labels=tuple(truth),
        events=tuple(predicted),
        scores=scores,
        fps=fps or procedure.fps,
        has_errors=_has_errors(pair, procedure, variant),
    )


def _read_events(path: Path, procedure: Procedure, on_note: OnNote | None) -> list[StepEvent]:
    try:
        return read_steps(path, procedure, on_note=on_note)
    except InputError as error:
        first = next(iter(read_rows(path)), (0, []))[1]
        if len(first) == len(DETECTION_COLUMNS):
            cure = "make events of them first, with 'stormpsr decode'"
            raise InputError("this looks like detections, not step events", path=path, cure=cure) from error
        raise


def _has_errors(pair: LabelledEvents, procedure: Procedure, variant: str | None) -> bool | None:
    """As published, from the raw labels or those with errors beside the labels; None if neither is there."""
    raw, full = pair.labels.with_name(STATES_FILE), pair.labels.with_name(STEPS_WITH_ERRORS_FILE)
    if not raw.is_file() and not full.is_file():
        return None
    found = procedure.variant(variant) if variant else procedure.variant_of_recording(pair.name)
    return contains_errors(
        read_steps(pair.labels, procedure),
        procedure,
        variant=found.name if found else None,
        timeline=read_states(raw, procedure) if raw.is_file() else None,
        labels_with_errors=read_steps(full, procedure) if full.is_file() else (),
    )


# ---------------------------------------------------------------------- results as data
def summary_csv(summary: Summary) -> str:
    """A row per recording."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(
        [
            "recording",
            "has_errors",
            "pos",
            "f1",
            "delay_seconds",
            "true_positives",
            "false_positives",
            "false_negatives",
        ]
    )
    for result in summary.recordings:
        scores = result.scores
        delay = "" if scores.delay_seconds is None else f"{scores.delay_seconds:.4f}"
        errors = "" if result.has_errors is None else str(result.has_errors).lower()
        counts = (scores.true_positives, scores.false_positives, scores.false_negatives)
        writer.writerow([result.name, errors, f"{scores.pos:.6f}", f"{scores.f1:.6f}", delay, *counts])
    return buffer.getvalue()
