"""The field's label files: step events (`PSR_labels.csv`, `PSR_labels_with_errors.csv`) and states over time
(`PSR_labels_raw.csv`).

A step file has a row per completion, `01259.jpg,24,Install headlamp`: steps are read by id, because the published
files spell the descriptions differently. A raw file has a row per change of state, `01259.jpg,1,0,-1,...`, one column
per component: 1 correct, 0 absent, -1 wrong. Neither has a header.

Readers refuse what cannot be meant (unknown ids, negative frames, a wrong number of components) with file and line,
and accept what can be (a byte-order mark, Windows line ends, blank lines, rows out of order, a row that is there
twice), telling `on_note` about it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StepEvent
from stormpsr.errors import InputError
from stormpsr.files import write_csv
from stormpsr.procedure.model import Procedure, StateBits

STEPS_FILE = "PSR_labels.csv"
STEPS_WITH_ERRORS_FILE = "PSR_labels_with_errors.csv"
STATES_FILE = "PSR_labels_raw.csv"
LABEL_FILES = (STEPS_FILE, STEPS_WITH_ERRORS_FILE, STATES_FILE)


@dataclass(frozen=True, slots=True)
class Note:
    """Something odd in a file that was accepted all the same."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


OnNote = Callable[[Note], None]


@dataclass(frozen=True)
class StateTimeline:
    """The state of the assembly over time: row `i` holds from frame `frames[i]` until the next row."""

    frames: tuple[int, ...]  # ascending, without repetition
    states: tuple[StateBits, ...]  # one per frame in `frames`

    def __post_init__(self) -> None:
        if len(self.frames) != len(self.states):
            raise InputError(f"{len(self.frames)} frames, but {len(self.states)} states")
        if not self.frames:
            raise InputError("a state timeline has at least one row, the initial state")
        if any(b <= a for a, b in zip(self.frames, self.frames[1:], strict=False)):
            raise InputError("the frames of a state timeline must ascend")

    @cached_property
    def _frames_array(self) -> NDArray[np.int64]:
        return np.asarray(self.frames, dtype=np.int64)

    @property
    def initial(self) -> StateBits:
        return self.states[0]

    @property
    def has_errors(self) -> bool:
        """Whether some part was wrong at some time."""
        return any(-1 in state for state in self.states)

    def at(self, frame: int) -> StateBits:
        """The state in a frame. Frames before the first row are in the initial state."""
        return self.states[max(int(np.searchsorted(self._frames_array, frame, side="right")) - 1, 0)]

    @classmethod
    def from_dense(cls, states_FC: NDArray[np.integer]) -> StateTimeline:
        """From a state for every frame (F frames, C components): the first row, and each row that differs."""
        changed = np.flatnonzero(np.any(states_FC[1:] != states_FC[:-1], axis=1)) + 1
        frames = (0, *(int(frame) for frame in changed))
        return cls(frames, tuple(tuple(int(bit) for bit in states_FC[frame]) for frame in frames))

    def dense(self, n_frames: int) -> NDArray[np.int8]:
        """A state for every frame, shape (n_frames, components)."""
        rows = np.searchsorted(self._frames_array, np.arange(n_frames), side="right") - 1
        return np.asarray(self.states, dtype=np.int8)[np.maximum(rows, 0)]


# ---------------------------------------------------------------------- reading
def read_rows(path: str | Path, on_note: OnNote | None = None) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every row that is not blank."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = (
            "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        )
        raise InputError(reason, path=path) from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError("this is not text in UTF-8", path=path, line=line, cure="save it as UTF-8") from error
    if text.startswith("\ufeff"):
        text = text[1:]
        if on_note:
            on_note(Note(str(path), 1, "starts with a byte-order mark, ignored"))
    if "\0" in text:
        raise InputError("holds binary data", path=path, line=text[: text.index("\0")].count("\n") + 1)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                yield reader.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise InputError(f"this is not a CSV row ({error})", path=path, line=reader.line_num) from error


def parse_frame(cell: str, path: str | Path, line: int) -> int:
    """The frame number in `01259.jpg`, `rgb\\001259.png` or `1259`."""
    name = PurePosixPath(PureWindowsPath(cell).as_posix()).name
    stem = re.sub(r"\.[A-Za-z]\w*$", "", name)
    if re.fullmatch(r"0*\d{1,9}", stem, flags=re.ASCII):
        return int(stem)
    if re.fullmatch(r"-\d+", stem):
        raise InputError(f"frame {cell!r} is negative", path=path, line=line, cure="frames count from 0")
    raise InputError(f"{cell!r} is not a frame", path=path, line=line, cure="write it like 001259.jpg")


def parse_whole(cell: str, what: str, path: str | Path, line: int) -> int:
    if re.fullmatch(r"[+-]?0*\d{1,9}", cell, flags=re.ASCII):
        return int(cell)
    raise InputError(f"{what} is {cell!r}, not a whole number", path=path, line=line)


def read_steps(
    path: str | Path, procedure: Procedure | None = None, *, on_note: OnNote | None = None
) -> list[StepEvent]:
    """The step events of a file, in order of frame and step id. An empty file is a recording without any.

    With a procedure, step ids are checked against it. A fourth column, where there is one, is the confidence.
    """
    rows: list[tuple[int, StepEvent]] = []
    for line, row in read_rows(path, on_note):
        if len(row) < 2:
            cure = "a row is: frame, step id, description"
            raise InputError(f"a row with {len(row)} column", path=path, line=line, cure=cure)
        frame = parse_frame(row[0], path, line)
        step_id = parse_whole(row[1], "the step id", path, line)
        try:
            if procedure is not None:
                procedure.step(step_id)
            confidence = float(row[3]) if len(row) > 3 and row[3] else None
            rows.append((line, StepEvent(step_id, frame, confidence=confidence)))
        except InputError as error:
            raise InputError(error.problem, path=path, line=line, cure=error.cure) from None
        except ValueError:
            raise InputError(f"confidence is {row[3]!r}, not a number", path=path, line=line) from None
    return _in_order(rows, path, on_note)


def _in_order(rows: list[tuple[int, StepEvent]], path: str | Path, on_note: OnNote | None) -> list[StepEvent]:
    """Sort by frame and id, so that the order of the rows in a file never matters; drop rows that are there twice."""
    seen: dict[tuple[int, int], int] = {}
    latest = -1
    kept: list[StepEvent] = []
    for line, event in rows:
        key = (event.frame, event.step_id)
        note = None
        if key in seen:
            note = f"frame {event.frame}, step {event.step_id} is there twice (line {seen[key]}), the second is ignored"
        else:
            seen[key] = line
            kept.append(event)
            if event.frame < latest:
                note = f"frame {event.frame} comes after frame {latest}, sorted"
        latest = max(latest, event.frame)
        if note and on_note:
            on_note(Note(str(path), line, note))
    return sorted(kept, key=lambda event: (event.frame, event.step_id))


def read_states(path: str | Path, procedure: Procedure, *, on_note: OnNote | None = None) -> StateTimeline:
    """The state timeline of a raw file."""
    table: dict[int, tuple[int, StateBits]] = {}
    latest = -1
    for line, row in read_rows(path, on_note):
        frame = parse_frame(row[0], path, line)
        values = row[1:]
        while len(values) > procedure.n_components and values[-1] == "":  # a comma too many at the end
            values = values[:-1]
        if len(values) != procedure.n_components:
            raise InputError(
                f"{len(values)} states in a row, but {procedure.name!r} has {procedure.n_components} components",
                path=path,
                line=line,
            )
        bits = tuple(parse_whole(cell, f"component {k}", path, line) for k, cell in enumerate(values))
        try:
            state = procedure.check_bits(bits)
        except InputError as error:
            raise InputError(error.problem, path=path, line=line) from None
        if frame in table and table[frame][1] != state:
            cure = f"keep this row or line {table[frame][0]}"
            raise InputError(f"frame {frame} is there twice, with different states", path=path, line=line, cure=cure)
        if on_note and frame in table:
            on_note(Note(str(path), line, f"frame {frame} is there twice (line {table[frame][0]}), ignored"))
        elif on_note and frame < latest:
            on_note(Note(str(path), line, f"frame {frame} comes after frame {latest}, sorted"))
        table.setdefault(frame, (line, state))
        latest = max(latest, frame)
    if not table:
        cure = "it needs at least one row, the initial state"
        raise InputError("the file has no rows", path=path, cure=cure)
    frames = sorted(table)
    return StateTimeline(tuple(frames), tuple(table[frame][1] for frame in frames))


# ---------------------------------------------------------------------- converting
def steps_from_states(timeline: StateTimeline, procedure: Procedure, *, with_errors: bool) -> list[StepEvent]:
    """The steps that a state timeline implies. `with_errors` adds the incorrect installs."""
    events: list[StepEvent] = []
    for frame, before, after in zip(timeline.frames[1:], timeline.states, timeline.states[1:], strict=False):
        steps = procedure.steps_between(before, after, with_errors=with_errors)
        events.extend(StepEvent(step.id, frame) for step in steps)
    return events


# ---------------------------------------------------------------------- writing
def frame_name(frame: int, digits: int = 6, extension: str = ".jpg") -> str:
    return f"{frame:0{digits}d}{extension}"


def write_steps(
    path: str | Path,
    events: Iterable[StepEvent],
    procedure: Procedure,
    *,
    digits: int = 6,
    extension: str = ".jpg",
    with_confidence: bool = False,
) -> None:
    """Write step events in the field's format. IndustReal's frame names have 6 digits, MECCANO's 5."""
    rows: list[Sequence[object]] = []
    for event in sorted(events, key=lambda event: (event.frame, event.step_id)):
        row: list[object] = [frame_name(event.frame, digits, extension), event.step_id]
        row.append(procedure.step(event.step_id).description)
        if with_confidence:
            row.append("" if event.confidence is None else f"{event.confidence:.4f}")
        rows.append(row)
    write_csv(path, rows)


def write_states(
    path: str | Path, timeline: StateTimeline, procedure: Procedure, *, digits: int = 6, extension: str = ".jpg"
) -> None:
    """Write a state timeline in the field's raw format."""
    rows = [
        [frame_name(frame, digits, extension), *procedure.check_bits(state)]
        for frame, state in zip(timeline.frames, timeline.states, strict=True)
    ]
    write_csv(path, rows)
