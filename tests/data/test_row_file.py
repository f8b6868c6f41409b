"""Arrays that grow on disk: interrupted, continued, never mistaken for others."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from stormpsr.data.row_file import RowFile, RowWriter
from stormpsr.errors import InputError

ROWS = np.arange(40, dtype=np.float32).reshape(10, 4)


def row_file(folder: Path, *, n_rows: int = 10, **made_from: Any) -> RowFile:
    return RowFile(folder / "train" / "01", n_rows, (4,), "float32", made_from or {"encoder": "abc"})


def test_what_is_written_in_parts_is_read_as_a_whole(tmp_path: Path) -> None:
    with row_file(tmp_path).writer() as writer:
        writer.append(ROWS[:3])
        writer.append(ROWS[3:])
    assert_array_equal(row_file(tmp_path).read(), ROWS)


@given(kill_after_bytes=st.integers(0, 160))
def test_a_run_killed_at_any_byte_is_continued_after_the_last_whole_row(
    tmp_path_factory: pytest.TempPathFactory, kill_after_bytes: int
) -> None:
    rows = row_file(tmp_path_factory.mktemp("killed"))
    with rows.writer() as writer:
        writer.append(ROWS)
    with rows.data_path.open("r+b") as file:
        file.truncate(kill_after_bytes)
    assert rows.rows_done() == kill_after_bytes // 16
    with rows.writer() as writer:
        assert writer.done == kill_after_bytes // 16
        if writer.done < 10:
            writer.append(ROWS[writer.done :])
    assert_array_equal(rows.read(), ROWS)


def test_an_unfinished_array_is_not_read(tmp_path: Path) -> None:
    with row_file(tmp_path).writer() as writer:
        writer.append(ROWS[:3])
    assert not row_file(tmp_path).is_complete
    with pytest.raises(InputError, match="3 of 10 rows are there; run the command"):
        row_file(tmp_path).read()


def test_an_array_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    assert row_file(tmp_path).rows_done() == 0
    assert not row_file(tmp_path).is_complete
    assert row_file(tmp_path).stale_because() is None


def test_rows_made_from_something_else_are_neither_read_nor_overwritten(tmp_path: Path) -> None:
    with row_file(tmp_path, encoder="abc").writer() as writer:
        writer.append(ROWS)
    other = row_file(tmp_path, encoder="xyz")
    assert other.stale_because() == "encoder is 'abc' there and 'xyz' here"
    assert not other.is_complete
    with pytest.raises(InputError, match="encoder is 'abc' there"):
        other.read()
    with pytest.raises(InputError, match="encoder is 'abc' there"), other.writer():
        pass
    assert_array_equal(row_file(tmp_path, encoder="abc").read(), ROWS)


def test_another_number_of_rows_is_another_array(tmp_path: Path) -> None:
    with row_file(tmp_path).writer() as writer:
        writer.append(ROWS)
    assert row_file(tmp_path, n_rows=11).stale_because() == "n_rows is 10 there and 11 here"


def test_a_deleted_array_can_be_written_anew(tmp_path: Path) -> None:
    with row_file(tmp_path, encoder="abc").writer() as writer:
        writer.append(ROWS)
    other = row_file(tmp_path, encoder="xyz")
    other.delete()
    with other.writer() as writer:
        writer.append(ROWS + 1)
    assert_array_equal(other.read(), ROWS + 1)


def test_a_read_array_cannot_be_changed_and_slices_are_views(tmp_path: Path) -> None:
    with row_file(tmp_path).writer() as writer:
        writer.append(ROWS)
    read = row_file(tmp_path).read()
    assert np.shares_memory(read[2:8:2], read)
    with pytest.raises(ValueError, match="read-only"):
        read[0] = 0


def test_a_damaged_header_is_named(tmp_path: Path) -> None:
    with row_file(tmp_path).writer() as writer:
        writer.append(ROWS)
    row_file(tmp_path).header_path.write_text("{")
    with pytest.raises(InputError, match=r"01\.json:1: this is not JSON: .*; delete it"):
        row_file(tmp_path).read()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names")
@pytest.mark.parametrize("place", ["header_path", "data_path"])
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path, place: str) -> None:
    rows = row_file(tmp_path)
    rows.path.parent.mkdir(parents=True)
    os.mkfifo(getattr(rows, place))
    with pytest.raises(InputError, match="this is not a file"), rows.writer():
        pass


@pytest.mark.parametrize("place", ["header_path", "data_path"])
def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path, place: str) -> None:
    rows = row_file(tmp_path)
    getattr(rows, place).mkdir(parents=True)
    with pytest.raises(InputError, match="this is not a file"):
        rows.delete()
    with pytest.raises(InputError, match="this is not a file"), rows.writer():
        pass


def test_too_little_room_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 0, 100))  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="the disk is full"), row_file(tmp_path).writer():
        pass
    assert not row_file(tmp_path).data_path.exists()


def test_a_disk_that_fills_up_on_the_way_is_reported_and_the_rows_so_far_are_kept(tmp_path: Path) -> None:
    class FullDisk:
        def write(self, _: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    rows = row_file(tmp_path)
    with rows.writer() as writer:
        writer.append(ROWS[:2])
    with pytest.raises(InputError, match="the disk is full"):
        RowWriter(rows, FullDisk(), 2).append(ROWS[2:])  # type: ignore[arg-type]
    assert rows.rows_done() == 2


def test_a_disk_that_is_full_is_complained_of_once(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no disk that is always full")
    rows = row_file(tmp_path)
    rows.path.parent.mkdir()
    with rows.writer():
        pass
    rows.data_path.unlink()
    rows.data_path.symlink_to("/dev/full")
    with pytest.raises(InputError, match="the disk is full"), rows.writer() as writer:
        writer.append(ROWS)


def test_two_runs_that_write_the_same_array_at_the_same_time_do_no_harm(tmp_path: Path) -> None:
    """The second begins while the first is in the middle, and each goes on at its own pace."""
    with row_file(tmp_path).writer() as first:
        first.append(ROWS[:4])
        with row_file(tmp_path).writer() as second:
            assert second.done == 4
            first.append(ROWS[4:9])
            second.append(ROWS[4:6])
            assert row_file(tmp_path).rows_done() == 9
            first.append(ROWS[9:])
            assert_array_equal(row_file(tmp_path).read(), ROWS)
            second.append(ROWS[6:])
    assert_array_equal(row_file(tmp_path).read(), ROWS)


def test_rows_of_another_shape_and_too_many_rows_are_refused(tmp_path: Path) -> None:
    with row_file(tmp_path).writer() as writer:
        with pytest.raises(ValueError, match="do not fit"):
            writer.append(ROWS[:, :3])
        with pytest.raises(ValueError, match="do not fit"):
            writer.append(np.concatenate([ROWS, ROWS]))
