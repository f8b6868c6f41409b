"""What happened at a station, for good: one row after the other in SQLite, each sealed by the hash of all before it.

A row is on the disk before anybody is told of it. Rows are never changed or removed: triggers refuse it, and who goes
around them breaks the chain of hashes, which `verify` finds. Whether rows at the very end were cut off is known by who
kept the latest hash: messages to others carry it.

    DIR/records.sqlite   the rows, and how far others were told of them
    DIR/evidence/        images and clips, named in the rows, deleted after a time
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from stormpsr.errors import InputError
from stormpsr.files import disk_full, is_disk_full, parse_json, write_bytes
from stormpsr.yaml_loader import complaints

Wall = Callable[[], float]  # seconds since 1970, UTC
FILE, EVIDENCE, LOCK = "records.sqlite", "evidence", "station.lock"
START = hashlib.sha256(b"stormpsr station records 1").hexdigest()  # what the first row is sealed with
_MOST_ROWS = 2**62  # half of what SQLite can number
_LEAST_ROOM = 2**20  # bytes: with less, whatever SQLite complains of, the disk is full
_EVIDENCE_NAME = re.compile(r"[0-9a-z-]{1,80}\.(jpg|mp4)")
_COLUMNS = "id, time, kind, unit, model, data, hash"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    id INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, unit INTEGER, model TEXT NOT NULL,
    data TEXT NOT NULL, hash TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS records_by_unit ON records (unit, id);
CREATE INDEX IF NOT EXISTS records_by_kind ON records (kind, time);
CREATE TABLE IF NOT EXISTS told (channel TEXT PRIMARY KEY, record INTEGER NOT NULL);
CREATE TRIGGER IF NOT EXISTS never_change BEFORE UPDATE ON records
    BEGIN SELECT RAISE(ABORT, 'records are never changed'); END;
CREATE TRIGGER IF NOT EXISTS never_remove BEFORE DELETE ON records
    BEGIN SELECT RAISE(ABORT, 'records are never removed'); END;
"""


def utc_text(seconds: float) -> str:
    """2026-11-18T01:23:45.123Z."""
    when = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"


def utc_seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


@dataclass(frozen=True, slots=True)
class Record:
    """A row."""

    id: int
    time: str
    kind: str
    unit: int | None
    model: str  # its digest
    data: dict[str, Any]
    hash: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What is to become a row."""

    kind: str
    data: dict[str, Any]
    unit: int | None = None


# ---------------------------------------------------------------------- what the data of a row must hold
Bit = Literal[-1, 0, 1]
Seconds = Annotated[float, Field(allow_inf_nan=False)]
_EXACT = ConfigDict(strict=True)  # a row may hold more than is asked for here


class _UnitStarted(TypedDict):
    __pydantic_config__ = _EXACT  # type: ignore[misc]
    serial: str | None
    variant: str


class _UnitFinished(_UnitStarted):
    status: Literal["pass", "fail", "incomplete"]
    started: str
    seconds: Seconds
    done: int
    total: int
    wrong: int
    skipped: int


class _Step(TypedDict):
    __pydantic_config__ = _EXACT  # type: ignore[misc]
    event: Literal["completed", "unexpected", "wrong", "skipped"]
    step_id: int
    text: str
    seconds: Seconds
    by: str
    confidence: NotRequired[Seconds | None]
    picture: NotRequired[str | None]


class _Before(TypedDict):
    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")  # type: ignore[misc]
    status: Literal["open", "done", "wrong", "skipped", "removed"]
    time: str | None
    seconds: Seconds | None
    confidence: Seconds | None
    by: str | None
    evidence: str | None


class _Correction(TypedDict):
    __pydantic_config__ = _EXACT  # type: ignore[misc]
    step_id: int
    text: str
    to: Literal["open", "done", "wrong"]
    component: Annotated[int, Field(ge=0)]
    bit_before: Bit
    bit: Bit
    before: _Before
    by: str
    seconds: NotRequired[Seconds]
    picture: NotRequired[str | None]


class _Undo(TypedDict):
    __pydantic_config__ = _EXACT  # type: ignore[misc]
    correction: int
    to: str


class _Alarm(TypedDict):
    __pydantic_config__ = _EXACT  # type: ignore[misc]
    alarm: str
    step_id: int | None
    text: str | None
    picture: str | None


class _OfAlarm(TypedDict):
    __pydantic_config__ = _EXACT  # type: ignore[misc]
    alarm: int


class _Clip(_OfAlarm):
    clip: str


class _CorrectionClip(TypedDict):
    __pydantic_config__ = _EXACT  # type: ignore[misc]
    correction: int
    clip: str
    seconds_before: Seconds


_SHAPES = {
    "unit_started": _UnitStarted,
    "unit_finished": _UnitFinished,
    "step": _Step,
    "correction": _Correction,
    "undo": _Undo,
    "alarm": _Alarm,
    "alarm_closed": _OfAlarm,
    "acknowledged": _OfAlarm,
    "clip": _Clip,
    "correction_clip": _CorrectionClip,
}


@cache
def _shape(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(_SHAPES.get(kind, dict))


def checked(record: Record) -> Record:
    """Refuse what no program wrote: what is in a row decides what is true of a unit."""
    try:
        _shape(record.kind).validate_python(record.data)
    except ValidationError as error:
        _, problem, _ = next(complaints(error, _SHAPES.get(record.kind, dict), record.data))
        raise ValueError(f"record {record.id}, {record.kind}: {problem}") from None
    return record


def _seal(before: str, row: Sequence[Any]) -> str:
    """The hash of a row without its own hash, upon that of the row before."""
    return hashlib.sha256(f"{before}\n{json.dumps(list(row), ensure_ascii=False)}".encode()).hexdigest()


def _checked_end(path: Path, number: object, seal: object) -> tuple[int, str]:
    """The number and the hash of the last row; in a file that was damaged or made elsewhere they may be anything."""
    if type(number) is not int or not 0 <= number < _MOST_ROWS or not isinstance(seal, str):
        cure = "run: stormpsr station verify DIR"
        raise InputError("the records cannot be used (their last row has no number or no hash)", path=path, cure=cure)
    return number, seal


class Records:
    """The rows of a station; one process writes, any number reads."""

    def __init__(self, folder: Path, model: str = "", wall: Wall = time.time) -> None:
        self.folder, self.model, self._wall = folder, model, wall
        self.path, self.evidence = folder / FILE, folder / EVIDENCE
        self._lock = threading.RLock()
        with speaking_of(self.path), ExitStack() as opened:  # what was opened is closed if the rest fails
            self.evidence.mkdir(parents=True, exist_ok=True)
            self._alone = opened.enter_context(closing(_lock_folder(folder)))
            # every commit is forced onto the disk before it counts
            db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
            self._db = opened.enter_context(closing(db))
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
            row = self._db.execute("SELECT id, hash FROM records ORDER BY id DESC LIMIT 1").fetchone() or (0, START)
            self.last_id, self.last_hash = _checked_end(self.path, *row)
            opened.pop_all()

    def close(self) -> None:
        with self._lock:
            self._db.close()
            self._alone.close()

    def append(self, *entries: Entry) -> list[Record]:
        """Write rows, all or none; when this returns they are on the disk."""
        with self._lock, speaking_of(self.path):
            when, found, before = utc_text(self._wall()), [], self.last_hash
            for number, entry in enumerate(entries, start=self.last_id + 1):
                text = json.dumps(entry.data, ensure_ascii=False, allow_nan=False)
                row = (number, when, entry.kind, entry.unit, self.model, text)
                before = _seal(before, row)
                found.append((*row, before))
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany(f"INSERT INTO records ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", found)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self.last_id, self.last_hash = self.last_id + len(found), before
            return [record_of(row) for row in found]

    # ------------------------------------------------------------------ reading
    def find(self, where: str = "1", values: Sequence[Any] = (), more: str = "ORDER BY id") -> list[Record]:
        """Rows by a condition in SQL, which is never made of what others sent."""
        with speaking_of(self.path), making_sense_of(self.folder), closing(self._read()) as db:
            found = db.execute(f"SELECT {_COLUMNS} FROM records WHERE {where} {more}", values)
            return [checked(record_of(row)) for row in found]

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with speaking_of(self.path), closing(self._read()) as db:
            return db.execute(sql, values).fetchall()

    def _read(self) -> sqlite3.Connection:
        return open_to_read(self.path)

    # ------------------------------------------------------------------ how far others were told
    def told(self, channel: str) -> int:
        """The row up to which a channel was told; a new channel begins with what comes next."""
        with self._lock, speaking_of(self.path):
            self._db.execute("INSERT OR IGNORE INTO told VALUES (?, ?)", (channel, self.last_id))
            (number,) = self._db.execute("SELECT record FROM told WHERE channel = ?", (channel,)).fetchone()
            return int(number)

    def set_told(self, channel: str, record: int) -> None:
        with self._lock, speaking_of(self.path):
            self._db.execute("UPDATE told SET record = ? WHERE channel = ?", (record, channel))

    # ------------------------------------------------------------------ evidence
    def keep(self, name: str, content: bytes) -> str:
        """Write an image or a clip, completely and for good; its name."""
        write_bytes(self.evidence / name, content)
        return name

    def evidence_file(self, name: str) -> Path | None:
        """The file of an image or a clip by a name that somebody gave."""
        if not _EVIDENCE_NAME.fullmatch(name):
            return None
        path = self.evidence / name
        return path if path.is_file() else None

    def forget_evidence(self, days: float) -> int:
        """Delete images and clips that are older; how many they were."""
        oldest, n = self._wall() - days * 86400, 0
        for path in self.evidence.iterdir():
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)
                n += 1
        return n


def record_of(row: Sequence[Any]) -> Record:
    number, when, kind, unit, model, text, seal = row
    data = parse_json(text)
    utc_seconds(when)
    if not isinstance(data, dict):
        raise ValueError(f"record {number} is no table")
    return Record(number, when, kind, unit, model, data, seal)


def _lock_folder(folder: Path) -> sqlite3.Connection:
    """Held as long as the process lives, on every system."""
    db = sqlite3.connect(folder / LOCK, timeout=0, check_same_thread=False, isolation_level=None)
    try:
        db.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        db.close()
        if "locked" not in str(error):
            raise
        cure = "stop it, or choose another folder with --data"
        raise InputError("another station writes here already", path=folder, cure=cure) from None
    return db


def open_to_read(path: Path) -> sqlite3.Connection:
    """The rows for a reader. Beside them SQLite makes a file that readers share, unless it is told that none write."""
    rest = path.with_name(f"{path.name}-wal")
    must_share = os.access(path.parent, os.W_OK) or (rest.is_file() and rest.stat().st_size > 0)
    mode = "mode=ro" if must_share else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=10)


@contextmanager
def speaking_of(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.DatabaseError, OSError, UnicodeDecodeError) as error:  # the last: of damaged texts
        of_sqlite = isinstance(error, sqlite3.OperationalError)
        if is_disk_full(error) or "is full" in str(error) or (of_sqlite and _has_no_room(path.parent)):
            raise disk_full(path) from error
        if isinstance(error, OSError) or not os.access(path.parent, os.W_OK):
            cure = "choose another folder with --data, or allow writing to it"
            raise InputError("this folder cannot be written to", path=path.parent, cure=cure) from error
        cure = "stop the station and run: stormpsr station verify DIR"
        reason = " ".join(str(error).split())  # SQLite may quote lines of the file
        raise InputError(f"the records cannot be used ({reason})", path=path, cure=cure) from error


@contextmanager
def making_sense_of(folder: Path) -> Iterator[None]:
    """Going through rows: one that says nothing this program knows was changed by another, or is damaged."""
    try:
        yield
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        cure = f"run: stormpsr station verify {folder}"
        problem = f"the records cannot be used ({type(error).__name__}: {' '.join(str(error).split())})"
        raise InputError(problem, path=folder / FILE, cure=cure) from error


def _has_no_room(folder: Path) -> bool:
    """SQLite says no more than "disk I/O error" where the file that its readers share cannot grow."""
    return folder.is_dir() and shutil.disk_usage(folder).free < _LEAST_ROOM


# ---------------------------------------------------------------------- checking
@dataclass(frozen=True, slots=True)
class Verdict:
    """What `verify` found."""

    n_records: int
    last_hash: str
    problems: list[str]
    n_evidence: int = 0  # files that are as they were written
    n_deleted: int = 0  # files that are not there any more


def verify(folder: Path) -> Verdict:
    """Check the chain of hashes, and the images and clips that are still there."""
    path = folder / FILE
    if not path.is_file():
        raise InputError("there are no records here", path=folder, cure="give the --data folder of a station")
    problems: list[str] = []
    n = n_evidence = n_deleted = 0
    before, expected = START, 1
    try:
        with closing(open_to_read(path)) as db:
            if db.execute("SELECT 1 FROM sqlite_master").fetchone() is None:  # a station that had no room to begin
                raise InputError(
                    "there are no records here", path=folder, cure="start the station, and make room for it"
                )
            for row in db.execute(f"SELECT {_COLUMNS} FROM records ORDER BY id"):
                n += 1
                if row[0] != expected:
                    problems.append(f"record {expected} is missing (the next one is {row[0]})")
                elif _seal(before, row[:-1]) != row[-1]:
                    problems.append(f"record {row[0]} of {row[1]} was changed, or one before it was")
                before, expected = row[-1], row[0] + 1
                for name, digest in _files_of(row[5]):
                    file = folder / EVIDENCE / name
                    if not file.is_file():
                        n_deleted += 1
                    elif hashlib.sha256(file.read_bytes()).hexdigest() != digest:
                        problems.append(f"{file}: this is not the file that record {row[0]} names")
                    else:
                        n_evidence += 1
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:  # also text that is none, numbers that are bytes
        if isinstance(error, sqlite3.OperationalError) and _has_no_room(folder):
            raise disk_full(path, "not even the records can be looked at") from error
        problems.append(f"{path}: the file is damaged ({error})")
    return Verdict(n, before, problems, n_evidence, n_deleted)


def _files_of(text: str) -> list[tuple[str, str]]:
    try:
        data = json.loads(text)
        return [(name, str(digest)) for name, digest in data.get("files", {}).items() if _EVIDENCE_NAME.fullmatch(name)]
    except (ValueError, AttributeError, TypeError):
        return []  # the seal says that it was changed
