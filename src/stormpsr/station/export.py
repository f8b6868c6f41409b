"""What operators corrected, as labelled recordings to learn from.

A station keeps a clip of what led to a correction. Each becomes a recording in the field's layout, a few seconds long:

    OUT/recordings/train/UNIT-RECORD_VARIANT/rgb/000000.jpg ...   the clip, at the procedure's frames per second
    .../PSR_labels_raw.csv, PSR_labels.csv, PSR_labels_with_errors.csv
    .../recording.json       where it comes from, and `"labelled_by": "operator"`
    .../corrections.csv      the operator's word: frame, component, state before and after, step
    OUT/procedure.yaml

Nobody wrote down when a part that the camera missed was put on, or one that it saw came off; it had been so for a while
when somebody corrected it. Such a word is taken to hold for the last seconds before it (`HOLDS_BEFORE`). What the part
was in the time before that, back to the last thing that was recorded about it, is not known: clips of other corrections
from that time are left out, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stormpsr.data.images import Image, write_image
from stormpsr.data.labels import (
    STATES_FILE,
    STEPS_FILE,
    STEPS_WITH_ERRORS_FILE,
    StateTimeline,
    frame_name,
    steps_from_states,
    write_states,
    write_steps,
)
from stormpsr.data.layouts import RECORDING_FILE
from stormpsr.data.sources import Video
from stormpsr.errors import InputError
from stormpsr.files import replacing_folder, write_csv, write_json
from stormpsr.procedure.model import Procedure, StepKind
from stormpsr.station.records import (
    EVIDENCE,
    FILE,
    Record,
    checked,
    making_sense_of,
    open_to_read,
    record_of,
    speaking_of,
    utc_seconds,
)

PROCEDURE_FILE = "procedure.yaml"
CORRECTIONS_FILE = "corrections.csv"
HOLDS_BEFORE = 10.0  # seconds
_LEADS_TO = {StepKind.INSTALL: 1, StepKind.INCORRECT: -1, StepKind.REMOVE: 0}


@dataclass
class Exported:
    """What became of the corrections."""

    recordings: dict[str, int] = field(default_factory=dict)  # frames, by name
    n_corrections: int = 0  # without those that were taken back
    left_out: dict[int, str] = field(default_factory=dict)  # why, by the record of the correction


@dataclass(frozen=True, slots=True)
class _Change:
    """A part's state from a time on; `unknown_from` is where nobody knows it until then."""

    seconds: float
    component: int
    bit: int
    unknown_from: float | None = None


def export_corrections(folder: Path, out: Path, procedure: Procedure) -> Exported:
    """Write the corrections of a station as recordings. Nothing is written where there is nothing to write."""
    records = _read(folder)
    found = Exported()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("the output is there already", path=out, cure="choose another folder, or delete it")
    with making_sense_of(folder):
        plans = list(_plans(folder, records, procedure, found))
    if not plans:
        return found
    with replacing_folder(out) as draft:
        for name, clip, begins, history, own in plans:
            images = _images(clip, procedure.fps)
            place = draft / "recordings" / "train" / name
            with making_sense_of(folder):
                state = _timeline(history, begins, len(images), procedure)
                _write(place, images, state, own, begins, procedure, clip)
            found.recordings[name] = len(images)
        procedure.save(draft / PROCEDURE_FILE)
    return found


def _read(folder: Path) -> list[Record]:
    """All records, also of a station that runs."""
    path = folder / FILE
    if not path.is_file():
        raise InputError("there are no records here", path=folder, cure="give the --data folder of a station")
    with speaking_of(path), making_sense_of(folder), closing(open_to_read(path)) as db:
        rows = db.execute("SELECT id, time, kind, unit, model, data, hash FROM records ORDER BY id")
        return [checked(record_of(row)) for row in rows]


_Plan = tuple[str, Path, float, "list[_Change]", "list[Record]"]  # name, clip, when it begins, history, corrections


def _plans(folder: Path, records: Sequence[Record], procedure: Procedure, found: Exported) -> Iterator[_Plan]:
    taken_back = {record.data["correction"] for record in records if record.kind == "undo"}
    clips = {record.data["correction"]: record.data for record in records if record.kind == "correction_clip"}
    units: dict[int | None, list[Record]] = {}
    for record in records:
        units.setdefault(record.unit, []).append(record)
    for unit, history in units.items():
        spoken = [r for r in history if r.kind == "correction" and r.id not in taken_back]
        if not spoken:
            continue
        found.n_corrections += len(spoken)
        started = next((r for r in history if r.kind == "unit_started"), None)
        for record in spoken:
            data = clips.get(record.id)
            clip = None if data is None else folder / EVIDENCE / data["clip"]
            if started is None or data is None or clip is None:
                found.left_out[record.id] = "no clip was kept of it"
            elif not clip.is_file():
                found.left_out[record.id] = "its clip was deleted since (see --keep-days of the station)"
            else:
                changes = list(_history(started, history, spoken, procedure))
                begins = utc_seconds(record.time) - float(data["seconds_before"])
                duration = utc_seconds(record.time) - begins
                doubtful = [c for c in changes if c.unknown_from is not None and _overlaps(c, begins, duration)]
                if doubtful:
                    part = procedure.components[doubtful[0].component].name
                    found.left_out[record.id] = f"nobody knows what {part!r} was at that time; it was corrected later"
                    continue
                name = f"{unit or 0:06d}-{record.id:08d}_{started.data['variant']}"
                ends = begins + duration + HOLDS_BEFORE
                own = [r for r in spoken if begins <= utc_seconds(r.time) <= ends]
                yield name, clip, begins, changes, own


def _overlaps(change: _Change, begins: float, duration: float) -> bool:
    assert change.unknown_from is not None
    return change.unknown_from < begins + duration and begins < change.seconds


def _history(
    started: Record, history: Sequence[Record], spoken: Sequence[Record], procedure: Procedure
) -> Iterator[_Change]:
    """What every part was, and since when, by camera and operator; the operator's word goes before."""
    begin = utc_seconds(started.time)
    events: dict[int, list[_Change]] = {}
    for k, bit in enumerate(procedure.variant(started.data["variant"]).initial):
        events[k] = [_Change(begin, k, bit)]
    words = {record.id for record in spoken}
    for record in history:
        seconds = utc_seconds(record.time)
        if record.kind == "step" and record.data["event"] != "skipped":
            step = procedure.step(record.data["step_id"])
            events[step.component_index].append(_Change(seconds, step.component_index, _LEADS_TO[step.kind]))
        elif record.kind == "correction" and record.id in words:
            k, bit = record.data["component"], record.data["bit"]
            own = events[k]
            if own[-1].bit == bit:
                continue
            said = own[-1].seconds
            if len(own) > 1 and own[-2].bit == bit:
                own.pop()  # the camera saw what was not there, or what is not there any more
            since = max(said, seconds - HOLDS_BEFORE)
            own.append(_Change(since, k, bit, said if since > said else None))
    for own in events.values():
        yield from own


def _images(clip: Path, fps: float) -> list[Image]:
    """The images of a clip, evenly: in every tick of the procedure's clock the last one that had come."""
    frames = list(Video(clip).frames())
    last = frames[-1].time_seconds
    times = np.array([frame.time_seconds for frame in frames])
    places = np.searchsorted(times, np.arange(int(last * fps) + 1) / fps + 1e-6, side="right") - 1
    return [frames[max(int(place), 0)].image for place in places]


def _timeline(history: Sequence[_Change], begins: float, n_frames: int, procedure: Procedure) -> StateTimeline:
    """The states in a clip."""
    states_FC = np.zeros((n_frames, procedure.n_components), dtype=np.int8)
    for change in sorted(history, key=lambda change: change.seconds):
        frame = max(round((change.seconds - begins) * procedure.fps), 0)
        states_FC[frame:, change.component] = change.bit
    return StateTimeline.from_dense(states_FC)


def _write(
    folder: Path,
    images: Sequence[Image],
    states: StateTimeline,
    spoken: Sequence[Record],
    begins: float,
    procedure: Procedure,
    clip: Path,
) -> None:
    (folder / "rgb").mkdir(parents=True)
    for number, image in enumerate(images):
        write_image(folder / "rgb" / frame_name(number), image)
    write_states(folder / STATES_FILE, states, procedure)
    for name, with_errors in ((STEPS_FILE, False), (STEPS_WITH_ERRORS_FILE, True)):
        write_steps(folder / name, steps_from_states(states, procedure, with_errors=with_errors), procedure)
    rows: list[Sequence[Any]] = [["frame", "component", "before", "after", "step", "by"]]
    for record in spoken:
        data = record.data
        frame = min(max(round((utc_seconds(record.time) - begins) * procedure.fps), 0), len(images) - 1)
        name = procedure.components[data["component"]].name
        rows.append([frame_name(frame), name, data["bit_before"], data["bit"], data["text"], data["by"]])
    write_csv(folder / CORRECTIONS_FILE, rows)
    first = spoken[0]
    about = {"fps": procedure.fps, "n_frames": len(images), "labelled_by": "operator", "unit": first.unit}
    more = {"records": [r.id for r in spoken], "hash": first.hash, "clip": clip.name, "recorded": first.time}
    write_json(folder / RECORDING_FILE, {**about, **more})
