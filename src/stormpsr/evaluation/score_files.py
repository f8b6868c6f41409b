"""Score files on disk: find which file of predicted events belongs to which recording, read them, summarise."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
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
        own_name = not labels.name.startswith("PSR_")  # else the folder names the recording
        return [LabelledEvents(labels.stem if own_name else labels.resolve().parent.name, labels, events)]
    if labels.is_file() or events.is_file():
        kinds = ["file" if path.is_file() else "folder" for path in (labels, events)]
        cure = "give two files or two folders"
        raise InputError(f"{labels} is a {kinds[0]} and {events} a {kinds[1]}", cure=cure)
    recordings = _labelled_recordings(labels, events, split)
    files = _event_files(events, {recording.name for recording in recordings})
    pairs: list[LabelledEvents] = []
    for recording in recordings:
        path = recording.path / STEPS_FILE
        if not path.is_file():
            cure = f"make one from {STATES_FILE} with 'stormpsr labels convert', or take the recording away"
            raise InputError(f"recording {recording.name!r} has no {STEPS_FILE}", path=recording.path, cure=cure)
        found = files[recording.name]
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


def _event_files(folder: Path, names: Collection[str]) -> dict[str, list[Path]]:
    """The CSV files below a folder by recording, for each those of the most telling rule that fits any."""
    found: dict[tuple[str, int], list[Path]] = defaultdict(list)  # by recording and rule
    for path in sorted(folder.rglob("*.csv")):
        words = path.stem.split("_")
        begins = ("_".join(words[:n]) for n in range(len(words), 0, -1))
        # `01_2_events.csv` belongs to recording `01_2` where there is one, not to `01`
        owner = next((begin for begin in begins if begin in names), None)
        if owner is not None:
            found[owner, 0 if owner == path.stem else 1].append(path)
        found[path.parent.name, 2 if path.name == STEPS_FILE else 3].append(path)
    return {name: next((found[name, rule] for rule in range(4) if (name, rule) in found), []) for name in names}


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
    # settings that no recording could be scored with are refused before any file is read
    nothing = [StepEvent(0, 0)]
    score(nothing, nothing, fps=1.0 if fps is None else fps, protocol=protocol, window=window)
    procedure.variant(variant)
    results: list[RecordingResult] = []
    for pair in pair_files(labels, events, split):
        if pair.events is None and missing == "skip":
            continue
        if pair.events is None and missing == "error":
            cure = "write an empty file if nothing was recognised, or choose --missing empty or --missing skip"
            raise InputError(f"no file of events for recording {pair.name!r}", path=events, cure=cure)
        truth = read_steps(pair.labels, procedure, on_note=on_note)
        predicted = [] if pair.events is None else _read_events(pair.events, procedure, on_note)
        try:
            scores = score(truth, predicted, procedure=procedure, fps=fps, protocol=protocol, window=window)
        except InputError as error:
            raise InputError(error.problem, path=error.path or pair.labels, line=error.line, cure=error.cure) from None
        results.append(RecordingResult(pair.name, scores, _has_errors(pair, truth, procedure, variant)))
    if not results:
        cure = "a recording's events are in NAME.csv, NAME_*.csv or a folder NAME"
        raise InputError("not one recording has a file of events", path=events, cure=cure)
    return summarise(results, procedure)


def _read_events(path: Path, procedure: Procedure, on_note: OnNote | None) -> list[StepEvent]:
    try:
        return read_steps(path, procedure, on_note=on_note)
    except InputError as error:
        first = next(iter(read_rows(path)), (0, []))[1]
        if len(first) == len(DETECTION_COLUMNS):
            cure = "make events of them first, with 'stormpsr decode'"
            raise InputError("this looks like detections, not step events", path=path, cure=cure) from error
        raise


def _has_errors(
    pair: LabelledEvents, truth: Sequence[StepEvent], procedure: Procedure, variant: str | None
) -> bool | None:
    """As published, from the raw labels or those with errors beside the labels; None if neither is there."""
    raw, full = pair.labels.with_name(STATES_FILE), pair.labels.with_name(STEPS_WITH_ERRORS_FILE)
    if not raw.is_file() and not full.is_file():
        return None
    found = procedure.variant(variant) if variant else procedure.variant_of_recording(pair.name)
    return contains_errors(
        truth,
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
    counts = ("true_positives", "false_positives", "false_negatives")
    writer.writerow(["recording", "has_errors", "pos", "f1", "delay_seconds", *counts])
    for result in summary.recordings:
        scores = result.scores
        delay = "" if scores.delay_seconds is None else f"{scores.delay_seconds:.4f}"
        errors = "" if result.has_errors is None else str(result.has_errors).lower()
        figures = (f"{scores.pos:.6f}", f"{scores.f1:.6f}", delay, *(getattr(scores, name) for name in counts))
        writer.writerow([result.name, errors, *figures])
    return buffer.getvalue()
