"""Assembly-state detections as files, with the columns of the published ones.

A header, then a row per detection: recording, frame, class, confidence, x, y, w, h. Several rows may share a frame; the
first of them counts as the best.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from stormpsr.data.events import StateDetection
from stormpsr.data.labels import Note, OnNote, parse_frame, parse_number, parse_whole, read_rows
from stormpsr.errors import InputError, errors_at
from stormpsr.files import write_csv
from stormpsr.procedure.model import Procedure

HEADER = ("recording", "frame", "class", "confidence", "x", "y", "w", "h")
_PUBLISHED_DIGITS = 3  # the published programs round confidences before they add them up


def read_detection_table(
    path: str | Path, procedure: Procedure | None = None, *, on_note: OnNote | None = None
) -> dict[str, list[StateDetection]]:
    """The detections of a file by recording, in the order of their frames; rows of one frame keep their order.

    Confidences are rounded to three digits, as the published programs do. With a procedure, classes are checked.
    """
    table: dict[str, list[StateDetection]] = defaultdict(list)
    unsorted: set[str] = set()  # one note per recording is enough
    for number, (line, row) in enumerate(read_rows(path, on_note)):
        if number == 0 and _is_header(row):
            continue
        with errors_at(path, line):
            name, detection = _parse(row, procedure)
        rows = table[name]
        if rows and detection.frame < rows[-1].frame and name not in unsorted:
            unsorted.add(name)
            if on_note:
                text = f"frame {detection.frame} comes after frame {rows[-1].frame}, sorted"
                on_note(Note(str(path), line, text))
        rows.append(detection)
    return {name: sorted(rows, key=lambda detection: detection.frame) for name, rows in table.items()}


def _is_header(row: list[str]) -> bool:
    """Words where numbers should be. A bad number in the first row is no header: it is refused, not skipped."""
    return len(row) > 3 and all(re.fullmatch(r"[A-Za-z_][\w ]*", cell) for cell in row[1:4])


def _parse(row: list[str], procedure: Procedure | None) -> tuple[str, StateDetection]:
    if len(row) not in (4, 8):
        cure = f"the columns are: {', '.join(HEADER)}"
        columns = "1 column" if len(row) == 1 else f"{len(row)} columns"
        raise InputError(f"a row with {columns}", cure=cure)
    if not row[0]:
        raise InputError("the recording has no name", cure="it belongs into the first column")
    frame, state_class = parse_frame(row[1]), parse_whole(row[2], "the class")
    numbers = [parse_number(cell, what) for what, cell in zip(HEADER[3:], row[3:], strict=False)]
    box = (numbers[1], numbers[2], numbers[3], numbers[4]) if len(numbers) == 5 else None
    if procedure is not None and not 0 <= state_class < len(procedure.states):
        cure = f"its classes are 0 to {len(procedure.states) - 1}"
        raise InputError(f"state class {state_class} does not exist in {procedure.name!r}", cure=cure)
    return row[0], StateDetection(frame, state_class, round(numbers[0], _PUBLISHED_DIGITS), box)


def read_detections(
    path: str | Path, procedure: Procedure | None = None, *, on_note: OnNote | None = None
) -> list[StateDetection]:
    """The detections of a file that speaks of one recording."""
    table = read_detection_table(path, procedure, on_note=on_note)
    if len(table) > 1:
        cure = "use read_detection_table, or split the file"
        raise InputError(f"the file holds {len(table)} recordings", path=path, cure=cure)
    return next(iter(table.values()), [])


def write_detections(path: str | Path, table: Mapping[str, Iterable[StateDetection]]) -> None:
    """Write detections by recording. A detection without a box gets zeros, as in the published files."""
    rows: list[Iterable[object]] = [HEADER]
    for name, detections in table.items():
        for detection in detections:
            box = detection.box or (0.0, 0.0, 0.0, 0.0)
            sides = [f"{side:.6g}" for side in box]
            rows.append([name, detection.frame, detection.state_class, f"{detection.confidence:.6g}", *sides])
    write_csv(path, rows)
