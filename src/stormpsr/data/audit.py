"""An audit of a folder of labels: what is wrong, odd or missing, by file and line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from stormpsr.data.events import StepEvent
from stormpsr.data.labels import (
    LABEL_FILES,
    STATES_FILE,
    STEPS_FILE,
    STEPS_WITH_ERRORS_FILE,
    Note,
    StateTimeline,
    parse_frame,
    parse_whole,
    read_rows,
    read_states,
    read_steps,
    steps_from_states,
)
from stormpsr.data.layouts import RECORDING_FILE, RecordingFolder, find_recordings, read_about
from stormpsr.data.sources import VIDEO_SUFFIXES, Video
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StepKind, bit_string

_RATE_TOLERANCE = 0.01  # 29.97 frames per second are called 30
Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something found. Errors make a label unusable or contradict another file; warnings are odd."""

    severity: Severity
    path: str
    line: int | None
    text: str

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.severity}: {self.text}"


@dataclass(frozen=True)
class Audit:
    """What an audit saw."""

    findings: tuple[Finding, ...]
    n_recordings: int
    n_files: int
    n_steps: int
    unchecked_ends: int  # recordings whose number of frames is unknown

    @property
    def n_errors(self) -> int:
        return sum(finding.severity == "error" for finding in self.findings)


@dataclass(frozen=True)
class _Steps:
    """A step file that could be read, with the line of each event."""

    path: Path
    events: list[StepEvent]
    lines: dict[tuple[int, int], int]  # (frame, step id) -> line


def audit_labels(root: str | Path, procedure: Procedure, *, expected_names: Iterable[str] = ()) -> Audit:
    """Audit every recording below a folder. `expected_names` are recordings that must be among them."""
    recordings = find_recordings(root)
    findings: list[Finding] = []
    n_files = n_steps = unchecked = 0
    for recording in recordings:
        n_files += sum((recording.path / file).is_file() for file in LABEL_FILES)
        n_frames = _length(recording, procedure, findings)
        unchecked += n_frames is None
        found, n = _audit_files(recording, procedure, n_frames)
        findings.extend(found)
        n_steps += n
    names = [recording.name for recording in recordings]
    for name in sorted({name for name in names if names.count(name) > 1}):
        splits = ", ".join(sorted(r.split or "no split" for r in recordings if r.name == name))
        findings.append(Finding("warning", str(root), None, f"recording {name!r} is there more than once: {splits}"))
    absent = sorted(set(expected_names) - set(names))
    findings.extend(Finding("error", str(root), None, f"recording {name!r} is missing") for name in absent)
    return Audit(tuple(findings), len(recordings), n_files, n_steps, unchecked)


def audit_recording(recording: RecordingFolder, procedure: Procedure) -> tuple[list[Finding], int]:
    """(what was found, number of steps in `PSR_labels.csv`)."""
    findings: list[Finding] = []
    n_frames = _length(recording, procedure, findings)
    found, n_steps = _audit_files(recording, procedure, n_frames)
    return [*findings, *found], n_steps


def _length(recording: RecordingFolder, procedure: Procedure, findings: list[Finding]) -> int | None:
    try:
        stated = recording.n_frames()
        videos = [entry for entry in recording.path.iterdir() if entry.suffix.lower() in VIDEO_SUFFIXES]
        if recording.frames_folder() is not None or len(videos) != 1 or find_spec("av") is None:
            return stated
        video = Video.counted(videos[0])
        findings.extend(_odd_video(video, recording, stated, procedure))
        return stated or video.n_frames
    except InputError as error:
        findings.append(Finding("error", error.path or str(recording.path), error.line, error.problem))
        return None


def _odd_video(video: Video, recording: RecordingFolder, stated: int | None, procedure: Procedure) -> Iterator[Finding]:
    """A video that has other frames than the labels count."""
    fps = read_about(recording.path).fps or procedure.fps
    if video.fps is not None and abs(video.fps / fps - 1) > _RATE_TOLERANCE:
        text = f"the video has {video.fps:g} frames per second, but the labels count {fps:g}"
        yield Finding("error", video.name, None, text)
    if stated is not None and video.n_frames != stated:
        text = f"the video has {video.n_frames} frames, but {RECORDING_FILE} says {stated}"
        yield Finding("error", video.name, None, text)


def _audit_files(recording: RecordingFolder, procedure: Procedure, n_frames: int | None) -> tuple[list[Finding], int]:
    if not recording.has_labels:
        text = f"a recording without label files ({', '.join(LABEL_FILES)})"
        return [Finding("error", str(recording.path), None, text)], 0
    findings = [
        Finding("warning", str(recording.path), None, f"there is no {file}")
        for file in LABEL_FILES
        if not (recording.path / file).is_file()
    ]
    plain = _read_steps(recording.path / STEPS_FILE, procedure, findings)
    full = _read_steps(recording.path / STEPS_WITH_ERRORS_FILE, procedure, findings)
    timeline = _read_timeline(recording.path / STATES_FILE, procedure, findings)
    for steps in (plain, full):
        if steps is not None:
            findings.extend(_beyond_the_end(steps, n_frames))
            findings.extend(_impossible_steps(steps, _initial(recording, procedure, timeline), procedure))
    if timeline is not None:
        path = recording.path / STATES_FILE
        findings.extend(_odd_states(path, timeline, n_frames, procedure))
        findings.extend(_unexpected_start(path, recording, timeline, procedure))
        for steps, with_errors in ((plain, False), (full, True)):
            if steps is not None:
                findings.extend(_disagreements(steps, timeline, procedure, with_errors))
    return findings, 0 if plain is None else len(plain.events)


# ---------------------------------------------------------------------- reading, with every bad line reported
def _read_steps(path: Path, procedure: Procedure, findings: list[Finding]) -> _Steps | None:
    if not path.is_file():
        return None
    notes: list[Note] = []
    try:
        events = read_steps(path, procedure, on_note=notes.append)
    except InputError as error:
        findings.append(Finding("error", str(path), error.line, error.problem))
        findings.extend(_further_bad_rows(path, error.line, lambda row, line: _parse_step(row, procedure, path, line)))
        return None
    findings.extend(Finding("warning", note.path, note.line, note.text) for note in notes)
    lines: dict[tuple[int, int], int] = {}
    for line, row in read_rows(path):
        lines.setdefault((parse_frame(row[0], path, line), int(row[1])), line)
    if not events:
        findings.append(Finding("warning", str(path), None, "the file has no rows"))
    return _Steps(path, events, lines)


def _further_bad_rows(path: Path, first: int | None, parse: Callable[[list[str], int], None]) -> Iterator[Finding]:
    """After a first bad row, the others."""
    if first is None:
        return
    try:
        for line, row in read_rows(path):
            if line <= first:
                continue
            try:
                parse(row, line)
            except InputError as error:
                yield Finding("error", str(path), line, error.problem)
    except InputError:
        return  # the file as a whole cannot be read, which the first finding says


def _parse_step(row: list[str], procedure: Procedure, path: Path, line: int) -> None:
    parse_frame(row[0], path, line)
    if len(row) < 2:
        raise InputError("a row with 1 column")
    procedure.step(parse_whole(row[1], "the step id", path, line))


def _parse_state(row: list[str], procedure: Procedure, path: Path, line: int) -> None:
    parse_frame(row[0], path, line)
    cells = row[1:] if len(row) <= procedure.n_components + 1 or row[-1] else row[1:-1]
    if len(cells) != procedure.n_components:
        raise InputError(
            f"{len(cells)} states in a row, but {procedure.name!r} has {procedure.n_components} components"
        )
    procedure.check_bits([parse_whole(cell, f"component {k}", path, line) for k, cell in enumerate(cells)])


def _read_timeline(path: Path, procedure: Procedure, findings: list[Finding]) -> StateTimeline | None:
    if not path.is_file():
        return None
    notes: list[Note] = []
    try:
        timeline = read_states(path, procedure, on_note=notes.append)
    except InputError as error:
        findings.append(Finding("error", str(path), error.line, error.problem))
        findings.extend(_further_bad_rows(path, error.line, lambda row, line: _parse_state(row, procedure, path, line)))
        return None
    findings.extend(Finding("warning", note.path, note.line, note.text) for note in notes)
    return timeline


# ---------------------------------------------------------------------- checks
def _initial(recording: RecordingFolder, procedure: Procedure, timeline: StateTimeline | None) -> Sequence[int] | None:
    if timeline is not None:
        return timeline.initial
    variant = procedure.variant_of_recording(recording.name)
    return variant.initial if variant else None


def _beyond_the_end(steps: _Steps, n_frames: int | None) -> Iterator[Finding]:
    for event in steps.events:
        if n_frames is not None and event.frame >= n_frames:
            line = steps.lines[event.frame, event.step_id]
            text = f"frame {event.frame} lies beyond the end, the recording has {n_frames} frames"
            yield Finding("error", str(steps.path), line, text)


def _impossible_steps(steps: _Steps, initial: Sequence[int] | None, procedure: Procedure) -> Iterator[Finding]:
    """Walk through the steps: nothing is installed that is in place, nothing is removed that is not."""
    if initial is None:
        return
    state = tuple(initial)
    wrong_parts_show = any(procedure.step(event.step_id).kind is StepKind.INCORRECT for event in steps.events)
    for event in steps.events:
        step = procedure.step(event.step_id)
        present = state[step.component_index]
        line = steps.lines[event.frame, event.step_id]
        if step.kind is StepKind.INSTALL and present == 1:
            text = f"{step.description!r}, but it is installed already"
            yield Finding("error", str(steps.path), line, f"impossible: {text}")
        elif step.kind is StepKind.REMOVE and present == 0:
            yield Finding("error", str(steps.path), line, f"impossible: {step.description!r}, but it is not there")
        elif step.kind is StepKind.REMOVE and present == -1 and wrong_parts_show:
            text = f"{step.description!r} of a wrong part; undoing something wrong is not a step"
            yield Finding("warning", str(steps.path), line, text)
        state = procedure.apply(state, event.step_id)


def _odd_states(path: Path, timeline: StateTimeline, n_frames: int | None, procedure: Procedure) -> Iterator[Finding]:
    lines = {parse_frame(row[0], path, line): line for line, row in read_rows(path)}
    for frame in timeline.frames:
        if n_frames is not None and frame >= n_frames:
            text = f"frame {frame} lies beyond the end, the recording has {n_frames} frames"
            yield Finding("error", str(path), lines[frame], text)
    for frame, before, after in zip(timeline.frames[1:], timeline.states, timeline.states[1:], strict=False):
        if before == after:
            yield Finding("warning", str(path), lines[frame], f"frame {frame}: nothing changes")
        for k, (old, new) in enumerate(zip(before, after, strict=True)):
            if old == 1 and new == -1:
                name = procedure.components[k].name
                text = f"frame {frame}: {name!r} goes from correct to wrong without being removed"
                yield Finding("warning", str(path), lines[frame], text)
        if procedure.order and procedure.build_order(after) is None:
            text = f"frame {frame}: state {bit_string(after)} is not possible by the procedure's order"
            yield Finding("error", str(path), lines[frame], text)


def _unexpected_start(
    path: Path, recording: RecordingFolder, timeline: StateTimeline, procedure: Procedure
) -> Iterator[Finding]:
    variant = procedure.variant_of_recording(recording.name)
    if variant is not None and timeline.initial != variant.initial:
        text = (
            f"starts in state {bit_string(timeline.initial)}, but variant {variant.name!r} "
            f"starts in {bit_string(variant.initial)}"
        )
        yield Finding("warning", str(path), None, text)


def _disagreements(
    steps: _Steps, timeline: StateTimeline, procedure: Procedure, with_errors: bool
) -> Iterator[Finding]:
    """Where a step file and the raw file of the same recording contradict each other."""
    from_raw = {(e.frame, e.step_id) for e in steps_from_states(timeline, procedure, with_errors=with_errors)}
    in_file = {(e.frame, e.step_id) for e in steps.events}
    for frame, step_id in sorted(in_file - from_raw):
        text = f"frame {frame}: {procedure.step(step_id).description!r} does not follow from {STATES_FILE}"
        yield Finding("error", str(steps.path), steps.lines[frame, step_id], text)
    raw_path = steps.path.with_name(STATES_FILE)
    lines = {parse_frame(row[0], raw_path, line): line for line, row in read_rows(raw_path)}
    for frame, step_id in sorted(from_raw - in_file):
        text = f"frame {frame}: {procedure.step(step_id).description!r} is not in {steps.path.name}"
        yield Finding("error", str(raw_path), lines[frame], text)
