"""Records are there for good, one after the other, and nobody changes them unnoticed."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stormpsr.errors import InputError
from stormpsr.station.records import EVIDENCE, FILE, LOCK, Entry, Records, utc_seconds, utc_text, verify


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    clock = iter(range(1_800_000_000, 1_900_000_000))
    opened = Records(tmp_path, "digest", wall=lambda: float(next(clock)))
    yield opened
    opened.close()


def test_times_are_utc_with_milliseconds() -> None:
    assert utc_text(1_800_000_000.1239) == "2027-01-15T08:00:00.123Z"
    assert utc_seconds("2027-01-15T08:00:00.123Z") == 1_800_000_000.123


def test_rows_are_found_as_they_were_written(records: Records) -> None:
    (first,) = records.append(Entry("note", {"text": "Füße"}, unit=3))
    records.append(Entry("camera", {"status": "ok"}))
    assert records.find("unit = ?", (3,)) == [first]
    assert (first.id, first.time, first.model) == (1, "2027-01-15T08:00:00.000Z", "digest")
    assert [record.id for record in records.find()] == [1, 2]


def test_rows_are_there_after_the_process_was_killed(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from pathlib import Path
from stormpsr.station.records import Entry, Records
records = Records(Path(sys.argv[1]))
for number in range(5):
    records.append(Entry("note", {"number": number}))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=60)
    assert done.returncode < 0
    records = Records(tmp_path)
    assert [record.data["number"] for record in records.find()] == [0, 1, 2, 3, 4]
    records.append(Entry("note", {"number": 5}))
    records.close()
    assert verify(tmp_path).problems == []


def test_several_rows_are_written_all_or_none(records: Records) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        records.append(Entry("note", {}), Entry("note", {"number": float("nan")}))
    assert records.find() == []
    records.append(Entry("note", {}))
    assert verify(records.folder).problems == []


def test_rows_cannot_be_changed_or_removed(records: Records) -> None:
    records.append(Entry("note", {}))
    with closing(sqlite3.connect(records.path)) as db:
        for order in ("UPDATE records SET time = 'x'", "DELETE FROM records"):
            with pytest.raises(sqlite3.IntegrityError, match="records are never"):
                db.execute(order)


@pytest.mark.parametrize(
    ("order", "complaint"),
    [
        ("UPDATE records SET data = '{\"a\": 9}' WHERE id = 2", "record 2 of 2027-01-15T08:00:01.000Z was changed"),
        ("UPDATE records SET time = '2020' WHERE id = 3", "record 3 of 2020 was changed"),
        ("UPDATE records SET model = 'other' WHERE id = 1", "record 1 of 2027-01-15T08:00:00.000Z was changed"),
        ("DELETE FROM records WHERE id = 2", "record 2 is missing (the next one is 3)"),
    ],
)
def test_who_changes_rows_in_spite_of_all_is_found_out(records: Records, order: str, complaint: str) -> None:
    for number in range(4):
        records.append(Entry("note", {"a": number}))
    assert verify(records.folder).problems == []
    with closing(sqlite3.connect(records.path)) as db:
        db.executescript(f"DROP TRIGGER never_change; DROP TRIGGER never_remove; {order};")
    assert complaint in verify(records.folder).problems[0]


def test_evidence_that_was_exchanged_is_found_out(records: Records) -> None:
    import hashlib

    name = records.keep("000001-a.jpg", b"picture")
    records.append(Entry("note", {"files": {name: hashlib.sha256(b"picture").hexdigest()}}))
    assert (verify(records.folder).problems, verify(records.folder).n_evidence) == ([], 1)
    (records.evidence / name).write_bytes(b"another")
    assert "not the file that record 1 names" in verify(records.folder).problems[0]
    (records.evidence / name).unlink()
    assert (verify(records.folder).problems, verify(records.folder).n_deleted) == ([], 1)


def test_old_evidence_is_deleted_and_its_record_stays(records: Records) -> None:
    for name, days in (("old.jpg", 31), ("new.jpg", 29)):
        records.keep(name, b"")
        when = 1_800_000_000 - days * 86400
        os.utime(records.evidence / name, (when, when))
    assert records.forget_evidence(days=30) == 1
    assert [path.name for path in records.evidence.iterdir()] == ["new.jpg"]


@pytest.mark.parametrize("name", ["../records.sqlite", "a/../../x.jpg", "/etc/passwd", "x.png", "..", "", "a\0.jpg"])
def test_no_name_from_outside_reaches_other_files(records: Records, name: str) -> None:
    assert records.evidence_file(name) is None


def test_two_stations_do_not_share_a_folder(records: Records) -> None:
    with pytest.raises(InputError, match="another station writes here already"):
        Records(records.folder)


def test_a_channel_is_told_what_comes_after_it_was_set_up(records: Records) -> None:
    records.append(Entry("note", {}))
    assert records.told("mqtt") == 1
    records.append(Entry("note", {}))
    assert records.told("mqtt") == 1
    records.set_told("mqtt", 2)
    assert records.told("mqtt") == 2


def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    assert "the file is damaged" in verify(tmp_path).problems[0]
    with pytest.raises(InputError, match="the records cannot be used") as caught:
        Records(tmp_path)
    (tmp_path / FILE).unlink()
    Records(tmp_path).close()  # the folder is free again, though the error still holds what was open
    assert caught.value.cure


def test_texts_that_are_none_are_said_to_be_damaged(tmp_path: Path) -> None:
    Records(tmp_path).close()
    content = (tmp_path / FILE).read_bytes()
    assert content.count(b"CREATE TABLE records") == 1
    (tmp_path / FILE).write_bytes(content.replace(b"CREATE TABLE records", b"CREATE T\xffBLE records"))
    with pytest.raises(InputError, match=r"records\.sqlite: the records cannot be used"):
        Records(tmp_path)


@pytest.mark.parametrize("last", ["NULL, 'a'", "7, NULL", "'x', 'a'", "9223372036854775807, 'a'", "-1, 'a'"])
def test_a_last_row_without_number_or_hash_is_said_to_be_damaged(tmp_path: Path, last: str) -> None:
    tmp_path.joinpath(FILE).touch()
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.execute("CREATE TABLE records (id, time, kind, unit, model, data, hash)")
        db.execute(f"INSERT INTO records (id, hash) VALUES ({last})")
        db.commit()
    with pytest.raises(InputError, match=r"records\.sqlite: the records cannot be used \(their last row"):
        Records(tmp_path)


STEP = {"event": "completed", "step_id": 3, "text": "pole", "seconds": 4.0, "by": "camera"}
BEFORE = {"status": "open", "time": None, "seconds": None, "confidence": None, "by": None, "evidence": None}
CORRECTION = {"step_id": 3, "text": "pole", "to": "done", "component": 1, "bit_before": 0, "bit": 1, "by": "operator"}


@pytest.mark.parametrize(
    ("kind", "data", "problem"),
    [
        ("step", {**STEP, "step_id": "x"}, "step_id is 'x'"),
        ("step", {**STEP, "seconds": None}, "seconds is None"),
        ("step", {**STEP, "event": "tea"}, "event is 'tea'"),
        ("step", {}, "'event' is missing"),
        ("correction", {**CORRECTION, "before": {**BEFORE, "time": 3}}, "before.time"),
        ("correction", {**CORRECTION, "before": BEFORE, "bit": 7}, "bit is 7"),
        ("correction", {**CORRECTION, "before": BEFORE, "component": -1}, "component is -1"),
        ("undo", {"correction": [], "to": "open"}, "correction is"),
        ("alarm", {"alarm": 3, "step_id": None, "text": None, "picture": None}, "alarm must be"),
        ("acknowledged", {"alarm": {}}, "alarm is"),
        ("unit_started", {"serial": 5, "variant": "build"}, "serial must be"),
    ],
)
def test_rows_that_no_program_wrote_are_refused(
    records: Records, kind: str, data: dict[str, Any], problem: str
) -> None:
    records.append(Entry("step", STEP), Entry("correction", {**CORRECTION, "before": BEFORE}))
    assert len(records.find()) == 2
    records.append(Entry(kind, data))
    with pytest.raises(
        InputError, match=rf"records\.sqlite: the records cannot be used .*record 3, {kind}: .*{problem}"
    ):
        records.find()


def test_a_full_disk_is_named_whatever_sqlite_says(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    records.append(Entry("note", {}))

    class Full:
        """ "disk I/O error" is what SQLite says where the file that its readers share cannot grow."""

        in_transaction = False

        def execute(self, *_: object) -> None:
            raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(records, "_db", Full())
        for write in (lambda: records.append(Entry("note", {})), lambda: records.set_told("mqtt", 1)):
            with pytest.raises(InputError, match=r"records\.sqlite: the records cannot be used \(disk I/O error\)"):
                write()
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
        for write in (lambda: records.append(Entry("note", {})), lambda: records.set_told("mqtt", 1)):
            with pytest.raises(InputError, match=r"records\.sqlite: the disk is full .*; make room"):
                write()
    assert [record.id for record in records.append(Entry("note", {}))] == [2]


def test_records_without_room_beside_them_are_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Records(tmp_path)) as opened:
        opened.append(Entry("note", {}))
    assert verify(tmp_path).problems == []
    monkeypatch.setattr(os, "access", lambda *_: False)  # a disk that nobody writes to
    before = sorted(tmp_path.iterdir())
    assert (verify(tmp_path).n_records, verify(tmp_path).problems) == (1, [])
    assert sorted(tmp_path.iterdir()) == before

    def full(_: Path) -> sqlite3.Connection:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("stormpsr.station.records.open_to_read", full)
    assert "the file is damaged" in verify(tmp_path).problems[0]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    with pytest.raises(InputError, match="the disk is full"):
        verify(tmp_path)


def test_a_folder_that_must_not_be_written_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def protected(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(tmp_path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", protected)
        with pytest.raises(InputError, match="this folder cannot be written to; choose another folder with --data"):
            Records(tmp_path / "new")
    (tmp_path / EVIDENCE).mkdir()
    (tmp_path / LOCK).mkdir()  # SQLite cannot open it: nobody holds it
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match="this folder cannot be written to"):
        Records(tmp_path)


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are no records here"):
        verify(tmp_path)
    (tmp_path / FILE).touch()  # the disk was full before anything was written
    with pytest.raises(InputError, match="there are no records here"):
        verify(tmp_path)


@pytest.mark.parametrize("value", ["X'CCFF'", "CAST(X'7BCC' AS TEXT)"])
def test_a_cell_that_is_no_text_is_reported_as_damage(tmp_path: Path, value: str) -> None:
    with closing(Records(tmp_path, "digest")) as opened:
        opened.append(Entry("note", {"text": "done"}, unit=1))
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        for (trigger,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {trigger}")
        db.execute(f"UPDATE records SET data = {value}")
        db.commit()
    assert verify(tmp_path).problems
