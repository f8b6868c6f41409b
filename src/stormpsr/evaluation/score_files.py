"""Score files on disk: find which file of predicted events belongs to which recording, read them, summarise."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from stormpsr.data.detection_csv import HEADER as DETECTION_COLUMNS
from stormpsr.data.events import StepEvent
from stormpsr.data.labels import (
    STATES_FILE,
    STEPS_FILE,
    STEPS_WITH_ERRORS_FILE,
    OnNote,
    read_rows,
    read_states,
    read_step_table,
    read_steps,
)
from stormpsr.data.layouts import RecordingFolder, find_recordings
from stormpsr.data.sources import VIDEO_SUFFIXES
from stormpsr.errors import InputError
from stormpsr.evaluation.metrics import Protocol, score
from stormpsr.evaluation.run_folder import MethodInfo, RecordingRun, RunInfo, write_recording, write_run
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


def pair_files(
    labels: Path, events: Path, split: str | None = None, table: Mapping[str, Sequence[StepEvent]] | None = None
) -> list[LabelledEvents]:
    """Pair two files, or two folders by the recordings' names, or a folder of labels with a table of all events.

    In a folder of events, recording `0008` is looked for as `0008.csv`, `0008_*.csv` or any CSV in a folder `0008`.
    """
    for path in (labels, events):
        if not path.exists():
            raise InputError("there is no such file or folder", path=path)
    if labels.is_file() and events.is_file():
        own_name = not labels.name.startswith("PSR_")  # else the folder names the recording
        return [LabelledEvents(labels.stem if own_name else labels.resolve().parent.name, labels, events)]
    if labels.is_file():
        cure = "give two files or two folders"
        raise InputError(f"{labels} is a file and {events} a folder", cure=cure)
    recordings = _labelled_recordings(labels, events, split)
    if events.is_file():
        known = {folder.name for folder in (recordings if split is None else find_recordings(labels))}
        strange = next((name for name in table or () if name not in known), None)
        if strange is not None:
            cure = f"the labels are of: {', '.join(sorted(known)[:3])}{', ...' if len(known) > 3 else ''}"
            raise InputError(f"there is no recording {strange!r}", path=events, cure=cure)
        files = {recording.name: [events] if recording.name in (table or ()) else [] for recording in recordings}
    else:
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
        if events.is_dir() and any(events.rglob(STEPS_FILE)) and not any(labels.rglob(STEPS_FILE)):
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
    """Score two files, two folders, or a folder and a table of events. `missing` says what to do with a recording that
    has no file or row of events.
    """
    # settings that no recording could be scored with are refused before any file is read
    nothing = [StepEvent(0, 0)]
    score(nothing, nothing, fps=1.0 if fps is None else fps, protocol=protocol, window=window)
    procedure.variant(variant)
    results: list[RecordingResult] = []
    for pair, truth, predicted in read_pairs(labels, events, procedure, split=split, missing=missing, on_note=on_note):
        try:
            scores = score(truth, predicted, procedure=procedure, fps=fps, protocol=protocol, window=window)
        except InputError as error:
            raise InputError(error.problem, path=error.path or pair.labels, line=error.line, cure=error.cure) from None
        results.append(RecordingResult(pair.name, scores, _has_errors(pair, truth, procedure, variant)))
    if not results:
        cure = "a recording's events are in NAME.csv, NAME_*.csv or a folder NAME, or all in one table"
        raise InputError("not one recording has a file of events", path=events, cure=cure)
    return summarise(results, procedure)


def read_pairs(
    labels: Path,
    events: Path,
    procedure: Procedure,
    *,
    split: str | None = None,
    missing: WhenMissing = "error",
    on_note: OnNote | None = None,
) -> Iterator[tuple[LabelledEvents, list[StepEvent], list[StepEvent]]]:
    """Each recording with its labels and the events predicted for it."""
    is_table = labels.is_dir() and events.is_file()
    table = read_step_table(events, procedure, on_note=on_note) if is_table else None
    if table == {} and missing == "error" and any(read_rows(events)):
        missing = "empty"  # a header alone says that nothing was recognised in any recording
    for pair in pair_files(labels, events, split, table):
        if pair.events is None and missing == "skip":
            continue
        if pair.events is None and missing == "error":
            choice = "choose --missing empty or --missing skip"
            if table is not None:
                cure = f"{choice}; a header alone says that nothing was recognised in any"
                raise InputError(f"no row of recording {pair.name!r}", path=events, cure=cure)
            cure = f"write an empty file if nothing was recognised, or {choice}"
            raise InputError(f"no file of events for recording {pair.name!r}", path=events, cure=cure)
        truth = read_steps(pair.labels, procedure, on_note=on_note)
        if table is not None:
            yield pair, truth, table.get(pair.name, [])
        else:
            yield pair, truth, [] if pair.events is None else _read_events(pair.events, procedure, on_note)


def _read_events(path: Path, procedure: Procedure, on_note: OnNote | None) -> list[StepEvent]:
    try:
        return read_steps(path, procedure, on_note=on_note)
    except InputError as error:
        first = next(iter(read_rows(path)), (0, []))[1]
        if len(first) == len(DETECTION_COLUMNS):
            cure = "make events of them first, with 'stormpsr decode'"
            raise InputError("this looks like detections, not step events", path=path, cure=cure) from error
        if _is_table(path):
            cure = "it is scored against the folder of all labels, not against one file"
            raise InputError("this is a table of several recordings", path=path, cure=cure) from error
        raise


def _is_table(path: Path) -> bool:
    try:
        read_step_table(path)
    except InputError:
        return False
    return True


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


# ---------------------------------------------------------------------- a run of any predictions
def write_predictions_as_run(
    folder: Path,
    labels: Path,
    sets: Mapping[str, Path],
    procedure: Procedure,
    *,
    protocol: Protocol = "paper",
    fps: float | None = None,
    split: str | None = None,
    variant: str | None = None,
    missing: WhenMissing = "error",
    title: str | None = None,
    on_note: OnNote | None = None,
) -> None:
    """Write a run folder of sets of predictions, each in the place of a method, so that a report can be made of it.

    What only a recogniser knows (evidence, detections) is not in there.
    """
    recordings: dict[str, RecordingRun] = {}
    summaries: dict[str, Summary] = {}
    folders = {found.name: found for found in find_recordings(labels, split)} if labels.is_dir() else {}
    for name, events in sets.items():
        more: dict[str, Any] = {"split": split, "missing": missing, "on_note": on_note}
        summaries[name] = score_files(
            labels, events, procedure, protocol=protocol, fps=fps, variant=variant, split=split, missing=missing
        )
        errors = {result.name: result.has_errors for result in summaries[name].recordings}
        for pair, truth, predicted in read_pairs(labels, events, procedure, **more):
            if pair.name not in recordings:
                recordings[pair.name] = _recording_run(pair, truth, folders.get(pair.name), procedure, fps)
            known = recordings[pair.name]
            last = max((event.frame for event in (*truth, *predicted)), default=0)
            recordings[pair.name] = replace(
                known,
                events={**known.events, name: tuple(predicted)},
                n_frames=max(known.n_frames, last + 1),
                has_errors=errors[pair.name],
            )
    for recording in recordings.values():
        write_recording(folder, recording)
    info = RunInfo(
        title=title or f"{procedure.title or procedure.name}, {split or 'all'} recordings",
        model="predictions: " + ", ".join(str(path) for path in sets.values()),
        data=str(labels),
        split=split,
        protocol=protocol,
        methods=tuple(MethodInfo(name, name, {}) for name in sets),
        summary={name: summary.to_dict() for name, summary in summaries.items()},
        recordings=tuple(sorted(recordings)),
    )
    write_run(folder, info, procedure)


def _recording_run(
    pair: LabelledEvents,
    truth: Sequence[StepEvent],
    folder: RecordingFolder | None,
    procedure: Procedure,
    fps: float | None,
) -> RecordingRun:
    images = None if folder is None else folder.frames_folder()
    videos = [] if folder is None else [e for e in sorted(folder.path.iterdir()) if e.suffix.lower() in VIDEO_SUFFIXES]
    place = images or (videos[0] if len(videos) == 1 else None)
    full = pair.labels.with_name(STEPS_WITH_ERRORS_FILE)
    named = procedure.variant_of_recording(pair.name)
    return RecordingRun(
        name=pair.name,
        variant=None if named is None else named.name,
        fps=fps or procedure.fps,
        n_frames=(None if folder is None else folder.n_frames()) or 1,
        has_errors=None,
        frames_path="" if place is None else str(place.resolve()),
        labels=tuple(truth),
        labels_with_errors=tuple(read_steps(full, procedure)) if full.is_file() else None,
        events={},
    )


def set_names(paths: Sequence[Path]) -> list[str]:
    """What sets of predictions are called: their files' or folders' names, as much of the path as tells them apart."""
    parts = [path.resolve().with_suffix("").parts for path in paths]
    if len(set(parts)) < len(parts):
        raise InputError("the same predictions are given twice", cure="leave one of them out")
    for n in range(1, max(map(len, parts)) + 1):
        names = ["/".join(own[-n:]) for own in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
