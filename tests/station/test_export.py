"""What operators corrected, as recordings to learn from."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stormpsr.cli.main import main
from stormpsr.data.audit import audit_labels
from stormpsr.data.labels import read_rows
from stormpsr.data.layouts import find_recordings
from stormpsr.data.recording import open_recording
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.station.clips import jpeg_of, write_clip
from stormpsr.station.export import export_corrections
from stormpsr.station.records import Entry, Records
from stormpsr.station.work import StepState

WEIGHTS = Path(str(files("stormpsr"))) / "weights" / "vehicle"
CHASSIS, PIN = 3, 6  # installations of the vehicle; components 1 and 2


def finish_clips(bench: Any) -> None:
    """Frames until all clips are written."""
    began = time.monotonic()
    wanted = len(bench.records.find("kind = 'correction'"))
    while len(bench.records.find("kind = 'correction_clip'")) < wanted:
        bench.see()
        assert time.monotonic() - began < 60


def change_row(bench: Any, kind: str, column: str, value: object) -> None:
    """As somebody does who goes around the triggers."""
    with closing(sqlite3.connect(bench.records.path, isolation_level=None)) as db:
        for trigger in ("never_change", "never_remove"):
            db.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        db.execute(f"UPDATE records SET {column} = ? WHERE kind = ?", (value, kind))


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("unit_started", "data", "{}"),
        ("unit_started", "data", "[]"),
        ("unit_started", "data", '{"variant": "assy", "serial": "A", "x": NaN}'),
        ("unit_started", "data", "x"),
        ("unit_started", "time", "1.5"),
        ("correction", "data", '{"component": 1, "step_id": 3}'),
        (
            "correction",
            "data",
            '{"component": 99, "bit": 1, "bit_before": 0, "step_id": 3, "before": {}, "to": "done"}',
        ),
        ("unit_started", "data", '{"serial": "A-1", "variant": ["assy"], "by": "operator"}'),
        ("correction_clip", "data", "3"),
        ("correction_clip", "data", "{}"),
    ],
)
def test_records_that_were_changed_are_refused_in_plain_words(
    bench: Any, tmp_path: Path, kind: str, column: str, value: str
) -> None:
    bench.station.start_unit("A-1", None)
    for _ in range(4):
        bench.see()
    bench.station.correct_step(CHASSIS, "done")
    finish_clips(bench)
    change_row(bench, kind, column, value)
    with pytest.raises(InputError, match=r"records\.sqlite: the records cannot be used .*station verify"):
        export_corrections(bench.folder, tmp_path / "out", bench.procedure)
    assert not (tmp_path / "out").exists()
    if kind == "correction_clip":
        return  # nothing that a station goes on with
    bench.close()
    with pytest.raises(InputError, match=r"records\.sqlite: the records cannot be used .*station verify"):
        bench.open()
    bench.records.close()
    change_row(bench, "unit_started", "kind", "forgotten")
    change_row(bench, "correction", "kind", "forgotten")
    change_row(bench, "correction_clip", "kind", "forgotten")
    bench.open()  # what it does not need may be as it is, and it can be closed


def test_a_missed_step_becomes_a_recording_in_which_the_part_is_there(bench: Any, tmp_path: Path) -> None:
    bench.station.start_unit("A-1", None)
    for _ in range(4):
        bench.see()
    bench.station.correct_step(CHASSIS, "done")
    finish_clips(bench)
    found = export_corrections(bench.folder, tmp_path / "out", bench.procedure)
    ((name, n_frames),) = found.recordings.items()
    assert (found.n_corrections, found.left_out) == (1, {})
    (folder,) = find_recordings(tmp_path / "out")
    assert (folder.name, folder.split) == (name, "train")
    recording = open_recording(folder, bench.procedure)
    assert recording.n_frames == n_frames
    assert (recording.states_FC[:, 1] == 1).all()  # the operator's word, for the last seconds before it
    assert (recording.states_FC[:, 2] == 0).all()
    about = json.loads((folder.path / "recording.json").read_text())
    assert about["labelled_by"] == "operator"
    (_, head), (_, row) = read_rows(folder.path / "corrections.csv")
    assert dict(zip(head, row, strict=True))["component"] == "front chassis"
    assert row[2:4] == ["0", "1"]
    assert audit_labels(tmp_path / "out", bench.procedure).n_errors == 0


def test_what_the_camera_saw_and_was_not_there_never_was(bench: Any, tmp_path: Path) -> None:
    bench.station.start_unit(None, None)
    bench.see(done=[CHASSIS])
    for _ in range(3):
        bench.see()
    bench.station.correct_step(CHASSIS, "open")
    finish_clips(bench)
    export_corrections(bench.folder, tmp_path / "out", bench.procedure)
    (folder,) = find_recordings(tmp_path / "out")
    recording = open_recording(folder, bench.procedure)
    assert (recording.states_FC[:, 1] == 0).all()
    assert recording.steps == ()


def test_a_word_that_was_taken_back_is_none(bench: Any, tmp_path: Path) -> None:
    bench.station.start_unit(None, None)
    bench.see()
    bench.station.correct_step(CHASSIS, "done")
    bench.station.undo()
    finish_clips(bench)
    found = export_corrections(bench.folder, tmp_path / "out", bench.procedure)
    assert (found.n_corrections, found.recordings) == (0, {})
    assert not (tmp_path / "out").exists()


def test_corrections_without_pictures_are_counted_and_say_why(
    bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.station.start_unit(None, None)
    bench.station.correct_step(CHASSIS, "done")  # before the first frame: there is nothing to show
    bench.see()
    bench.station.correct_step(PIN, "done")
    while not bench.records.find("kind = 'correction_clip'"):
        bench.see()
    for clip in bench.records.evidence.glob("*.mp4"):
        clip.unlink()
    bench.procedure.save(bench.folder / "procedure.yaml")
    assert main(["station", "export", str(bench.folder), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert "2 corrections, 0 recordings made; nothing was written" in printed.out
    assert "is left out: no clip was kept of it" in printed.err
    assert "is left out: its clip was deleted since" in printed.err


def test_a_folder_without_records_is_refused(tmp_path: Path, bench: Any) -> None:
    with pytest.raises(InputError, match="there are no records here"):
        export_corrections(tmp_path, tmp_path / "out", bench.procedure)


def test_a_clip_of_a_time_of_which_too_little_is_known_is_left_out(tmp_path: Path) -> None:
    """The pin was missed and corrected 40 seconds after the chassis: whether it was there in between, nobody knows."""
    procedure = Procedure.load(WEIGHTS / "procedure.yaml")
    now = [1000.0]
    records = Records(tmp_path / "station", wall=lambda: now[0])
    grey = jpeg_of(np.full((32, 32, 3), 90, dtype=np.uint8), 32)
    records.append(Entry("unit_started", {"serial": None, "variant": "assy", "by": "operator"}, 1))
    for seconds, component, text in ((20, 1, "Install front chassis"), (60, 2, "Install front chassis pin")):
        now[0] = 1000.0 + seconds
        data = {"component": component, "bit_before": 0, "bit": 1, "text": text, "by": "operator"}
        data |= {"step_id": 3 * component, "to": "done", "before": asdict(StepState())}
        (spoken,) = records.append(Entry("correction", data, 1))
        name = f"000001-{spoken.id:08d}-clip.mp4"
        write_clip(records.evidence / name, [(0.2 * n, grey) for n in range(36)])  # from 5 seconds before it on
        clip = {"correction": spoken.id, "clip": name, "seconds_before": 5.0, "files": {}}
        records.append(Entry("correction_clip", clip, 1))
    records.close()
    found = export_corrections(tmp_path / "station", tmp_path / "out", procedure)
    assert list(found.left_out.values()) == [
        "nobody knows what 'front chassis pin' was at that time; it was corrected later"
    ]
    ((name, n_frames),) = found.recordings.items()
    assert name.endswith("_assy")
    assert n_frames == 71  # seven seconds at the procedure's ten frames per second
    (folder,) = find_recordings(tmp_path / "out")
    states_FC = open_recording(folder, procedure).states_FC
    assert (states_FC[:, 1:3] == 1).all()
    assert (states_FC[:, 3:] == 0).all()
