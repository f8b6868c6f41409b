"""Large arrays on disk that grow row by row: images at training size, embeddings.

An array is a file of bare numbers (`NAME.rows`) and a header in JSON (`NAME.json`) that says what they are and what
they were made from. The file's length says how much is done: whoever is interrupted goes on after the last whole row.
Rows are written with ordinary writes and read through a memory map. (Writing through a map would be killed by the
system, without a message, where the disk is full.)

Every row has its place in the file, and is written there and nowhere else: two runs that share a folder and make the
same array at the same time do some work twice, and no harm.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError
from stormpsr.files import check_own_file, check_room, flush, naming_full_disk, read_json_object, write_json

_VERSION = 1


@dataclass(frozen=True)
class RowFile:
    """An array on disk, finished or not: `n_rows` rows of one shape and one kind of number."""

    path: Path  # without a suffix
    n_rows: int
    row_shape: tuple[int, ...]
    dtype: str  # uint8, float16, float32
    made_from: Mapping[str, Any]  # plain values; what differs makes another array of it

    @property
    def data_path(self) -> Path:
        return self.path.with_name(self.path.name + ".rows")

    @property
    def header_path(self) -> Path:
        return self.path.with_name(self.path.name + ".json")

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.row_shape)) * np.dtype(self.dtype).itemsize

    # ------------------------------------------------------------------ state on disk
    def stale_because(self) -> str | None:
        """How what is on disk differs from this array; None if it is this one or nothing is there."""
        if not self.header_path.is_file():
            return None
        found, wanted = read_json_object(self.header_path, "header of rows", cure="delete it"), self._header()
        for key in ("version", "n_rows", "row_shape", "dtype"):
            if found.get(key) != wanted[key]:
                return f"{key} is {found.get(key)!r} there and {wanted[key]!r} here"
        theirs = found.get("made_from")
        theirs = theirs if isinstance(theirs, dict) else {}
        for key in sorted({*theirs, *wanted["made_from"]}):
            if theirs.get(key) != wanted["made_from"].get(key):
                return f"{key} is {theirs.get(key)!r} there and {wanted['made_from'].get(key)!r} here"
        return None

    def rows_done(self) -> int:
        """Whole rows on disk, 0 if there are none or they are another array's."""
        if not self.header_path.is_file() or not self.data_path.is_file() or self.stale_because():
            return 0
        return min(self.data_path.stat().st_size // self.row_bytes, self.n_rows)

    @property
    def is_complete(self) -> bool:
        return self.rows_done() == self.n_rows and self.header_path.is_file() and not self.stale_because()

    def read(self) -> NDArray[Any]:
        """The whole array as a read-only memory map: nothing is read until it is used, slices are views."""
        reason = self.stale_because()
        if reason:
            raise InputError(f"these rows were made from something else: {reason}", path=self.header_path)
        if not self.is_complete:
            cure = "run the command that writes it again: it goes on where it stopped"
            raise InputError(f"{self.rows_done()} of {self.n_rows} rows are there", path=self.data_path, cure=cure)
        return np.memmap(self.data_path, dtype=self.dtype, mode="r", shape=(self.n_rows, *self.row_shape))

    # ------------------------------------------------------------------ writing
    @contextmanager
    def writer(self) -> Iterator[RowWriter]:
        """Append the rows that are missing. Rows of another array under this name must be deleted before."""
        self._check_files()
        reason = self.stale_because()
        if reason:
            cure = "delete it, or choose another folder"
            raise InputError(f"rows made from something else are here: {reason}", path=self.header_path, cure=cure)
        done = self.rows_done()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        check_room(self.data_path, (self.n_rows - done) * self.row_bytes)
        if not self.header_path.is_file():
            self.data_path.unlink(missing_ok=True)
            write_json(self.header_path, self._header(), indent=1)
        self.data_path.touch()
        with self.data_path.open("r+b", buffering=0) as file:  # a buffer would complain of a full disk once more
            file.seek(done * self.row_bytes)  # over half a row, where the last run was killed
            yield RowWriter(self, file, done)
            with naming_full_disk(self.data_path):
                flush(file)

    def delete(self) -> None:
        """Remove the array; the header goes last, so that half a removal is never taken for a whole array."""
        self._check_files()
        self.data_path.unlink(missing_ok=True)
        self.header_path.unlink(missing_ok=True)

    def _check_files(self) -> None:
        for path in (self.header_path, self.data_path):
            if not path.is_char_device():  # which says itself what is wrong with it
                check_own_file(path)

    def _header(self) -> dict[str, Any]:
        header = {
            "version": _VERSION,
            "n_rows": self.n_rows,
            "row_shape": list(self.row_shape),
            "dtype": self.dtype,
            "made_from": dict(self.made_from),
        }
        return dict(json.loads(json.dumps(header)))  # as it will look when it is read


class RowWriter:
    """Writes the rows that follow, each in its place."""

    def __init__(self, rows: RowFile, file: FileIO, done: int) -> None:
        self.rows = rows
        self.done = done  # rows on disk: the next one to be written
        self._file = file

    def append(self, rows_R: NDArray[Any]) -> None:
        """Write the next rows, at least one."""
        if rows_R.shape[1:] != self.rows.row_shape or self.done + len(rows_R) > self.rows.n_rows:
            raise ValueError(f"rows of shape {rows_R.shape} after {self.done} do not fit {self.rows}")
        left = np.ascontiguousarray(rows_R, dtype=self.rows.dtype).data.cast("B")
        with naming_full_disk(self.rows.data_path):
            while left:
                left = left[self._file.write(left) :]
        self.done += len(rows_R)
