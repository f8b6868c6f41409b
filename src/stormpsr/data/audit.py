"""An audit of a folder of labels: what is wrong, odd or missing, by file and line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Literal

from stormpsr.data.events import StepEvent
from stormpsr.data.labels import (
    LABEL_FILES,
    STATES_FILE,
    STEPS_FILE,
    STEPS_WITH_ERRORS_FILE,
    Note,
    T,
    read_state_rows,
    read_step_rows,
)
from stormpsr.data.layouts import RECORDING_FILE, RecordingFolder, find_recordings, frames_shown, read_about
from stormpsr.data.sources import VIDEO_SUFFIXES, Video
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateBits, StepKind, bit_string

_RATE_TOLERANCE = 0.01  # 29.97 frames per second are called 30
Severity = Literal["error", "warning"]
_Steps = list[tuple[int, StepEvent]]  # with their lines
_States = list[tuple[int, tuple[int, StateBits]]]  # (line, (frame, state))


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


@dataclass
class Audit:
    """What an audit saw."""

    findings: list[Finding] = field(default_factory=list)
    n_recordings: int = 0
    n_files: int = 0
    n_steps: int = 0  # in `PSR_labels.csv`
    unchecked_ends: int = 0  # recordings whose number of frames is unknown

    @property
    def n_errors(self) -> int:
        return sum(finding.severity == "error" for finding in self.findings)

    def add(self, severity: Severity, path: str | Path, line: int | None, text: str) -> None:
        self.findings.append(Finding(severity, str(path), line, text))


def audit_labels(root: str | Path, procedure: Procedure, *, expected_names: Iterable[str] = ()) -> Audit:
    """Audit every recording below a folder. `expected_names` are recordings that must be among them."""
    recordings = find_recordings(root)
    audit = Audit(n_recordings=len(recordings))
    for recording in recordings:
        _audit_recording(audit, recording, procedure)
    count = Counter(recording.name for recording in recordings)
    for name in sorted(name for name in count if count[name] > 1):
        splits = ", ".join(sorted(r.split or "no split" for r in recordings if r.name == name))
        audit.add("warning", root, None, f"recording {name!r} is there more than once: {splits}")
    for name in sorted(set(expected_names) - set(count)):
        audit.add("error", root, None, f"recording {name!r} is missing")
    return audit


def _audit_recording(audit: Audit, recording: RecordingFolder, procedure: Procedure) -> None:
    n_frames = _length(audit, recording, procedure)
    audit.unchecked_ends += n_frames is None
    there = [file for file in LABEL_FILES if (recording.path / file).is_file()]
    audit.n_files += len(there)
    if not there:
        audit.add("error", recording.path, None, f"a recording without label files ({', '.join(LABEL_FILES)})")
        return
    for file in LABEL_FILES:
        if file not in there:
            audit.add("warning", recording.path, None, f"there is no {file}")
    step_files = [recording.path / STEPS_FILE, recording.path / STEPS_WITH_ERRORS_FILE]
    step_rows = [_read(audit, path, read_step_rows, procedure, empty="warning") for path in step_files]
    states_path = recording.path / STATES_FILE
    states = _read(audit, states_path, read_state_rows, procedure, empty="error")
    audit.n_steps += len(step_rows[0] or ())
    variant = procedure.variant_of_recording(recording.name)
    initial = states[0][1][1] if states else variant.initial if variant else None
    for path, steps in zip(step_files, step_rows, strict=True):
        _check_end(audit, path, [(line, event.frame) for line, event in steps or ()], n_frames)
        if initial is not None:
            _check_possible(audit, path, steps or [], initial, procedure)
    if not states:
        return
    _check_end(audit, states_path, [(line, frame) for line, (frame, _) in states], n_frames)
    _check_changes(audit, states_path, states, procedure)
    if variant is not None and initial is not None and initial != variant.initial:
        text = f"variant {variant.name!r} starts in {bit_string(variant.initial)}"
        audit.add("warning", states_path, None, f"starts in state {bit_string(initial)}, but {text}")
    for path, steps in zip(step_files, step_rows, strict=True):
        if steps is not None:
            _check_agreement(audit, path, steps, states, procedure)


def _length(audit: Audit, recording: RecordingFolder, procedure: Procedure) -> int | None:
    """The number of frames, where it is known. A video may have other frames than the labels count."""
    try:
        stated = recording.n_frames()
        _check_images(audit, recording)
        videos = [entry for entry in recording.path.iterdir() if entry.suffix.lower() in VIDEO_SUFFIXES]
        if recording.frames_folder() is not None or len(videos) != 1 or find_spec("av") is None:
            return stated
        video = Video.counted(videos[0])
        fps = read_about(recording.path).fps or procedure.fps
    except InputError as error:
        audit.add("error", error.path or recording.path, error.line, error.problem)
        return None
    if video.fps is not None and abs(video.fps / fps - 1) > _RATE_TOLERANCE:
        text = f"the video has {video.fps:g} frames per second, but the labels count {fps:g}"
        audit.add("error", video.name, None, text)
    if stated is not None and video.n_frames != stated:
        text = f"the video has {video.n_frames} frames, but {RECORDING_FILE} says {stated}"
        audit.add("error", video.name, None, text)
    return stated or video.n_frames


def _check_images(audit: Audit, recording: RecordingFolder) -> None:
    """Images that are there, against the number of frames that somebody wrote down."""
    about, folder = read_about(recording.path), recording.frames_folder()
    if about.n_frames is None or folder is None:
        return
    seen = frames_shown(folder)
    if seen is not None and not seen <= about.n_frames < seen + about.frame_step:
        text = f"the images go up to frame {seen - 1}, but {RECORDING_FILE} says {about.n_frames} frames"
        audit.add("error", folder, None, text)


def _read(
    audit: Audit, path: Path, read: Callable[..., list[T]], procedure: Procedure, empty: Severity
) -> list[T] | None:
    """The rows of a file; None if it is not there or has bad rows, every one of which is reported."""
    if not path.is_file():
        return None
    notes: list[Note] = []
    errors: list[InputError] = []
    rows: list[T] = []
    try:
        rows = read(path, procedure, notes.append, errors.append)
    except InputError as error:  # of the file as a whole
        errors.append(error)
    for found in errors:
        audit.add("error", path, found.line, found.problem)
    if errors:
        return None
    for note in notes:
        audit.add("warning", path, note.line, note.text)
    if not rows:
        audit.add(empty, path, None, "the file has no rows")
    return rows


# ---------------------------------------------------------------------- checks
def _check_end(audit: Audit, path: Path, frames: list[tuple[int, int]], n_frames: int | None) -> None:
    for line, frame in frames:
        if n_frames is not None and frame >= n_frames:
            text = f"frame {frame} lies beyond the end, the recording has {n_frames} frames"
            audit.add("error", path, line, text)


def _check_possible(audit: Audit, path: Path, steps: _Steps, state: StateBits, procedure: Procedure) -> None:
    """Walk through the steps: nothing is installed that is in place, nothing is removed that is not."""
    wrong_parts_show = any(procedure.step(event.step_id).kind is StepKind.INCORRECT for _, event in steps)
    for line, event in steps:
        step = procedure.step(event.step_id)
        present = state[step.component_index]
        if step.kind is StepKind.INSTALL and present == 1:
            audit.add("error", path, line, f"impossible: {step.description!r}, but it is installed already")
        elif step.kind is StepKind.REMOVE and present == 0:
            audit.add("error", path, line, f"impossible: {step.description!r}, but it is not there")
        elif step.kind is StepKind.REMOVE and present == -1 and wrong_parts_show:
            text = f"{step.description!r} of a wrong part; undoing something wrong is not a step"
            audit.add("warning", path, line, text)
        state = procedure.apply(state, event.step_id)


def _check_changes(audit: Audit, path: Path, states: _States, procedure: Procedure) -> None:
    for (_, (_, before)), (line, (frame, after)) in pairwise(states):
        if before == after:
            audit.add("warning", path, line, f"frame {frame}: nothing changes")
        for component, old, new in zip(procedure.components, before, after, strict=True):
            if old == 1 and new == -1:
                text = f"frame {frame}: {component.name!r} goes from correct to wrong without being removed"
                audit.add("warning", path, line, text)
        if procedure.order and procedure.build_order(after) is None:
            text = f"frame {frame}: state {bit_string(after)} is not possible by the procedure's order"
            audit.add("warning", path, line, text)  # people leave steps out: it may be true


def _check_agreement(audit: Audit, path: Path, steps: _Steps, states: _States, procedure: Procedure) -> None:
    """Where a step file and the raw file of the same recording contradict each other."""
    in_file = {(event.frame, event.step_id): line for line, event in steps}
    from_raw: dict[tuple[int, int], int] = {}
    for (_, (_, before)), (line, (frame, after)) in pairwise(states):
        implied = procedure.steps_between(before, after, with_errors=path.name == STEPS_WITH_ERRORS_FILE)
        from_raw |= {(frame, step.id): line for step in implied}
    for frame, step_id in sorted(in_file.keys() - from_raw.keys()):
        text = f"frame {frame}: {procedure.step(step_id).description!r} does not follow from {STATES_FILE}"
        audit.add("error", path, in_file[frame, step_id], text)
    for frame, step_id in sorted(from_raw.keys() - in_file.keys()):
        text = f"frame {frame}: {procedure.step(step_id).description!r} is not in {path.name}"
        audit.add("error", path.with_name(STATES_FILE), from_raw[frame, step_id], text)
