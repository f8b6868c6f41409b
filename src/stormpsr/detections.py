"""Assembly-state detections as files, with the columns of the published ones.

A header, then a row per detection: recording, frame, class, confidence, x, y, w, h. Several rows may share a frame; the
first of them counts as the best.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from stormpsr.errors import InputError
from stormpsr.events import StateDetection
from stormpsr.labels import OnNote, parse_frame, parse_whole, read_rows
from stormpsr.procedure import Procedure

__all__ = ["read_detection_table", "read_detections", "write_detections"]

HEADER = ("recording", "frame", "class", "confidence", "x", "y", "w", "h")
_PUBLISHED_DIGITS = 3  # the published programs round confidences before they add them up


def read_detection_table(
    path: str | Path, procedure: Procedure | None = None, *, on_note: OnNote | None = None
) -> dict[str, list[StateDetection]]:
    """The detections of a file by recording, in the order of their frames; rows of one frame keep their order.

    Confidences are rounded to three digits, as the published programs do. With a procedure, classes are checked.
    """
    table: dict[str, list[StateDetection]] = defaultdict(list)
    for number, (line, row) in enumerate(read_rows(path, on_note)):
        if number == 0 and len(row) > 1 and not row[1][:1].isdigit():
            continue  # the header
        if len(row) not in (4, 8):
            cure = f"the columns are: {', '.join(HEADER)}"
            raise InputError(f"a row with {len(row)} columns", path=path, line=line, cure=cure)
        frame, state_class = parse_frame(row[1], path, line), parse_whole(row[2], "the class", path, line)
        try:
            if procedure is not None and not 0 <= state_class < len(procedure.states):
                cure = f"its classes are 0 to {len(procedure.states) - 1}"
                raise InputError(f"state class {state_class} does not exist in {procedure.name!r}", cure=cure)
            numbers = [float(cell) for cell in row[3:]]
            box = (numbers[1], numbers[2], numbers[3], numbers[4]) if len(numbers) == 5 else None
            detection = StateDetection(frame, state_class, round(numbers[0], _PUBLISHED_DIGITS), box)
        except InputError as error:
            raise InputError(error.problem, path=path, line=line, cure=error.cure) from None
        except ValueError as error:
            raise InputError(f"not a number: {error}", path=path, line=line) from None
        table[row[0]].append(detection)
    return {name: sorted(rows, key=lambda detection: detection.frame) for name, rows in table.items()}


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
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(HEADER)
    for name, detections in table.items():
        for detection in detections:
            box = detection.box or (0.0, 0.0, 0.0, 0.0)
            sides = [f"{side:.6g}" for side in box]
            writer.writerow([name, detection.frame, detection.state_class, f"{detection.confidence:.6g}", *sides])
    Path(path).write_text(buffer.getvalue(), encoding="utf-8", newline="")
