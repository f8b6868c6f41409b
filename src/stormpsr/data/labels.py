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

import codecs
import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StepEvent
from stormpsr.errors import InputError, errors_at
from stormpsr.files import read_text, write_csv
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
OnError = Callable[[InputError], None]
T = TypeVar("T")


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
    text = read_text(path)
    if on_note and Path(path).read_bytes().startswith(codecs.BOM_UTF8):
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


def parse_frame(cell: str) -> int:
    """The frame number in `01259.jpg`, `rgb\\001259.png` or `1259`."""
    name = PurePosixPath(PureWindowsPath(cell).as_posix()).name
    stem = re.sub(r"\.[A-Za-z]\w*$", "", name)
    if re.fullmatch(r"0*\d{1,9}", stem, flags=re.ASCII):
        return int(stem)
    if re.fullmatch(r"-\d+", stem):
        raise InputError(f"frame {cell!r} is negative", cure="frames count from 0")
    raise InputError(f"{cell!r} is not a frame", cure="write it like 001259.jpg")


def parse_whole(cell: str, what: str) -> int:
    if re.fullmatch(r"[+-]?0*\d{1,9}", cell, flags=re.ASCII):
        return int(cell)
    raise InputError(f"{what} is {cell!r}, not a whole number")


def parse_number(cell: str, what: str) -> float:
    try:
        number = float(cell)
    except ValueError:
        raise InputError(f"{what} is {cell[:40]!r}, not a number") from None
    if not math.isfinite(number):
        raise InputError(f"{what} is {cell[:40]!r}, not a finite number")
    return number


def read_steps(
    path: str | Path, procedure: Procedure | None = None, *, on_note: OnNote | None = None
) -> list[StepEvent]:
    """The step events of a file, in order of frame and step id. An empty file is a recording without any.

    With a procedure, step ids are checked against it. A fourth column, where there is one, is the confidence.
    """
    return [event for _, event in read_step_rows(path, procedure, on_note)]


def read_step_rows(
    path: str | Path, procedure: Procedure | None, on_note: OnNote | None = None, on_error: OnError | None = None
) -> list[tuple[int, StepEvent]]:
    """The step events with their lines. Bad rows are refused, or left out and told to `on_error`."""
    rows: list[tuple[int, StepEvent]] = []
    for line, row in read_rows(path, on_note):
        with errors_at(path, line, on_error=on_error):
            if len(row) < 2:
                raise InputError("a row with 1 column", cure="a row is: frame, step id, description")
            frame, step_id = parse_frame(row[0]), parse_whole(row[1], "the step id")
            if procedure is not None:
                procedure.step(step_id)
            confidence = parse_number(row[3], "confidence") if len(row) > 3 and row[3] else None
            rows.append((line, StepEvent(step_id, frame, confidence=confidence)))
    return _in_order(rows, lambda event: (event.frame, event.step_id), path, on_note)


def read_step_table(
    path: str | Path, procedure: Procedure | None = None, *, on_note: OnNote | None = None
) -> dict[str, list[StepEvent]]:
    """The step events of many recordings in one file, by recording: rows of `recording, frame, step_id`.

    A first row that is no event is a header; it may name the columns in another order, and a `confidence`.
    """
    rows: dict[str, list[tuple[int, StepEvent]]] = {}
    places: dict[str, int] | None = None
    for line, row in read_rows(path, on_note):
        if places is None:
            places = _table_columns(row, path, line)
            if row[places["frame"]].lower() == "frame":
                continue
        with errors_at(path, line):
            if len(row) <= max(places.values()):
                columns = "1 column" if len(row) == 1 else f"{len(row)} columns"
                raise InputError(f"a row with {columns}", cure="a row is: recording, frame, step id")
            frame, step_id = parse_frame(row[places["frame"]]), parse_whole(row[places["step_id"]], "the step id")
            if procedure is not None:
                procedure.step(step_id)
            sure = row[places["confidence"]] if "confidence" in places else ""
            confidence = parse_number(sure, "confidence") if sure else None
            event = StepEvent(step_id, frame, confidence=confidence)
            rows.setdefault(row[places["recording"]], []).append((line, event))
    return {
        name: [event for _, event in _in_order(own, lambda event: (event.frame, event.step_id), path, on_note)]
        for name, own in rows.items()
    }


def _table_columns(row: list[str], path: str | Path, line: int) -> dict[str, int]:
    """Where the columns of a table of steps stand, by its first row: a header, or an event."""
    needed = ("recording", "frame", "step_id")
    named = {cell.lower().replace(" ", "_"): place for place, cell in enumerate(row)}
    if "frame" not in named:
        if len(row) not in (3, 4):
            cure = "the columns are: recording, frame, step_id; a header may name them in another order"
            raise InputError(f"a table of steps with {len(row)} columns and no header", path=path, line=line, cure=cure)
        return {name: place for place, name in enumerate(needed)}
    missing = [name for name in needed if name not in named]
    if missing:
        cure = "it needs the columns recording, frame and step_id"
        if "class" in named:
            cure = "these look like detections: make events of them first, with 'stormpsr decode'"
        raise InputError(f"the table has no column {missing[0]!r}", path=path, line=line, cure=cure)
    return {name: named[name] for name in (*needed, "confidence") if name in named}


def read_states(path: str | Path, procedure: Procedure, *, on_note: OnNote | None = None) -> StateTimeline:
    """The state timeline of a raw file."""
    rows = read_state_rows(path, procedure, on_note)
    if not rows:
        raise InputError("the file has no rows", path=path, cure="it needs at least one row, the initial state")
    return StateTimeline(tuple(frame for _, (frame, _) in rows), tuple(state for _, (_, state) in rows))


def read_state_rows(
    path: str | Path, procedure: Procedure, on_note: OnNote | None = None, on_error: OnError | None = None
) -> list[tuple[int, tuple[int, StateBits]]]:
    """(line, (frame, state)) of every row, by frame. Bad rows are refused, or left out and told to `on_error`."""
    rows: list[tuple[int, tuple[int, StateBits]]] = []
    first: dict[int, tuple[int, StateBits]] = {}
    for line, row in read_rows(path, on_note):
        with errors_at(path, line, on_error=on_error):
            frame, values = parse_frame(row[0]), row[1:]
            while len(values) > procedure.n_components and values[-1] == "":  # a comma too many at the end
                values = values[:-1]
            if len(values) != procedure.n_components:
                has = f"{procedure.name!r} has {procedure.n_components} components"
                raise InputError(f"{len(values)} states in a row, but {has}")
            state = procedure.check_bits([parse_whole(cell, f"component {k}") for k, cell in enumerate(values)])
            earlier, known = first.setdefault(frame, (line, state))
            if known != state:
                cure = f"keep this row or line {earlier}"
                raise InputError(f"frame {frame} is there twice, with different states", cure=cure)
            rows.append((line, (frame, state)))
    return _in_order(rows, lambda row: (row[0],), path, on_note)


def _in_order(
    rows: list[tuple[int, T]], key: Callable[[T], tuple[int, ...]], path: str | Path, on_note: OnNote | None
) -> list[tuple[int, T]]:
    """Sort by frame and step id, so that the order of rows in a file never matters; drop rows that are there twice."""
    kept: dict[tuple[int, ...], tuple[int, T]] = {}
    latest = -1
    for line, row in rows:
        frame, *step = key(row)
        earlier, _ = kept.setdefault(key(row), (line, row))
        note = None
        if earlier != line:
            what = f"frame {frame}, step {step[0]}" if step else f"frame {frame}"
            note = f"{what} is there twice (line {earlier}), the second is ignored"
        elif frame < latest:
            note = f"frame {frame} comes after frame {latest}, sorted"
        latest = max(latest, frame)
        if note and on_note:
            on_note(Note(str(path), line, note))
    return [kept[place] for place in sorted(kept)]


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
