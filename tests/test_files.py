"""Files are written completely or not at all, and what cannot be read is named with its line and a cure."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stormpsr import files
from stormpsr.errors import InputError
from stormpsr.files import (
    append,
    digest,
    draft_of,
    only_user,
    only_writer,
    read_arrays,
    read_json,
    replacing,
    replacing_folder,
    write_arrays,
    write_json,
    write_text,
)

Reader = Callable[[Path], Any]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------------- writing
def test_a_file_is_made_with_its_folder_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "a.txt", "one\r\ntwo\n")
    assert (tmp_path / "new" / "a.txt").read_bytes() == b"one\r\ntwo\n"
    assert names_in(tmp_path / "new") == ["a.txt"]


def test_a_block_that_fails_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(ZeroDivisionError), replacing(path) as draft:
        draft.write_bytes(b"half"[: draft.write_text("half", encoding="utf-8") // 0])
    assert path.read_text(encoding="utf-8") == "old"
    assert names_in(tmp_path) == ["a.txt"]


def test_file_and_folder_are_on_the_disk_before_the_block_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        files.os, "fsync", lambda handle: synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
    )
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("this system does not tell the names of open files")
    write_text(tmp_path / "a.txt", "text")
    assert synced == [draft_of("a.txt").name, tmp_path.name]


def test_a_full_disk_is_told_of_the_file_that_was_wanted(tmp_path: Path) -> None:
    told = pytest.raises(InputError, match=r"a\.npz: the disk is full .*; make room")
    with told as caught, replacing(tmp_path / "a.npz") as draft:
        raise OSError(errno.ENOSPC, "No space left on device", str(draft))
    assert "draft" not in str(caught.value)


def test_a_library_that_speaks_of_a_full_disk_in_its_own_words_is_understood(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the disk is full"), replacing(tmp_path / "a"):
        raise RuntimeError("I/O error: No space left on device (os error 28)")


def test_an_error_that_has_nothing_to_do_with_the_draft_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "a"):
        (tmp_path / "other").read_bytes()


def test_a_link_stays_a_link_and_rights_stay_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old", encoding="utf-8")
    (tmp_path / "real.txt").chmod(0o640)
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text(encoding="utf-8") == "new"
    assert (tmp_path / "real.txt").stat().st_mode & 0o777 == 0o640


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_text("/dev/null", "text")
    assert Path("/dev/null").is_char_device()


def test_a_folder_is_no_place_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this is a folder"):
        write_text(tmp_path, "text")


def test_json_that_others_cannot_read_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert names_in(tmp_path) == []


def test_drafts_of_killed_processes_are_cleared_away_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    alive = f".{os.getppid()}.draft.a"
    for name in (f".{dead.pid}.draft.a", alive, f".{dead.pid}.draft.b"):
        (tmp_path / name).write_text("half", encoding="utf-8")
    write_text(tmp_path / "a", "whole")
    assert names_in(tmp_path) == sorted([alive, f".{dead.pid}.draft.b", "a"])


@pytest.mark.skipif(os.name == "nt", reason="files cannot be held")
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EBADF])
def test_a_disk_that_knows_nothing_of_locks_is_used_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    done = []
    with (tmp_path / "a").open("wb", buffering=0) as file, files.holding(file):
        done.append(True)
    assert done


# ---------------------------------------------------------------------- folders
@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_folder_takes_the_place_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    for text in ("old", "new"):
        with replacing_folder(tmp_path / "model") as draft:
            (draft / "inner").mkdir()
            (draft / "inner" / f"{text}.txt").write_text(text, encoding="utf-8")
    assert names_in(tmp_path) == ["model"]
    assert names_in(tmp_path / "model" / "inner") == ["new.txt"]


def test_a_folder_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    with replacing_folder(tmp_path / "model") as draft:
        (draft / "a").write_text("old", encoding="utf-8")
    with pytest.raises(ZeroDivisionError), replacing_folder(tmp_path / "model") as draft:
        raise ZeroDivisionError
    assert names_in(tmp_path) == ["model"]
    assert names_in(tmp_path / "model") == ["a"]


@pytest.mark.skipif(sys.platform != "linux", reason="only there can folders surely change places")
def test_a_reader_always_finds_the_folder_while_it_is_replaced(tmp_path: Path) -> None:
    missed, done = [], threading.Event()

    def watch() -> None:
        while not done.is_set():
            if not (tmp_path / "model").exists():
                missed.append(1)

    with replacing_folder(tmp_path / "model") as draft:
        (draft / "a").touch()
    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(30):
        with replacing_folder(tmp_path / "model") as draft:
            (draft / "a").touch()
    done.set()
    watcher.join()
    assert not missed


# ---------------------------------------------------------------------- reading
@pytest.mark.parametrize(
    ("content", "words", "line"),
    [
        (b'{"a": 1,\n "b": }', "this is not JSON: expecting value", 2),
        (b'{"a": 1,\n "\xff": 2}', "not text in UTF-8", 2),
        (b"[" * 100_000, "nested too deeply", 1),
        (b'{"a": 1,\n "b": ' + b"9" * 5000 + b"}", "number is too large", 2),
        (b"", "this is not JSON", 1),
    ],
)
def test_damaged_json_is_named_with_its_line_and_a_cure(tmp_path: Path, content: bytes, words: str, line: int) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    if b"9999" in content and not hasattr(sys, "get_int_max_str_digits"):
        assert read_json(path)["b"] > 0  # Pythons before 3.10.7 read numbers of any length
        return
    with pytest.raises(InputError, match=words) as caught:
        read_json(path)
    assert (caught.value.path, caught.value.line) == (str(path), line)
    assert caught.value.cure
    with pytest.raises(InputError, match=r"generate it again$"):
        read_json(path, cure="generate it again")


def test_json_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"ä": 1}), encoding="utf-8-sig")
    assert read_json(tmp_path / "a.json") == {"ä": 1}


def test_arrays_damaged_in_any_way_are_refused_and_nothing_else_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    write_arrays(path, rows=np.arange(50), names=np.array(["a", "b"]))
    assert read_arrays(path)["rows"].sum() == 1225
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        for damaged in (whole[:place], whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :]):
            path.write_bytes(damaged)
            with suppress(InputError):  # some bytes do not count, such as the date
                read_arrays(path)
    path.write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(InputError, match=r"a\.npz: the arrays cannot be read .*; make it again"):
        read_arrays(path)


def test_damaged_arrays_are_refused_in_one_line_whatever_numpy_advises(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    long_header = b"\x93NUMPY\x02\x00" + (20_000).to_bytes(4, "little") + b" " * 20_000
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("rows.npy", long_header)
    with pytest.raises(InputError, match=r"a\.npz: the arrays cannot be read .*large") as caught:
        read_arrays(path)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------------- fingerprints
def test_a_fingerprint_knows_names_and_contents_and_ignores_what_does_not_count(tmp_path: Path) -> None:
    for name, text in {"a": "1", "b": "2", "metrics.json": "{}", ".hidden": ""}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    before = digest(tmp_path, without=["metrics.json"])
    (tmp_path / "metrics.json").write_text("changed", encoding="utf-8")
    (tmp_path / ".hidden").write_text("changed", encoding="utf-8")
    assert digest(tmp_path, without=["metrics.json"]) == before
    assert digest(tmp_path) != before
    (tmp_path / "b").rename(tmp_path / "c")
    assert digest(tmp_path, without=["metrics.json"]) != before


# ---------------------------------------------------------------------- what no file of ours holds
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes among files")
@pytest.mark.parametrize("read", [files.read_text, read_json, read_arrays])
def test_a_pipe_or_a_device_among_files_is_refused_instead_of_waited_for(tmp_path: Path, read: Reader) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        with pytest.raises(InputError, match=f"{name}: this is not a file"):
            read(tmp_path / name)


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="the shell has no other way to hand over a pipe")
def test_a_pipe_that_a_shell_hands_over_is_read() -> None:
    out, into = os.pipe()
    os.write(into, b"[1]")
    os.close(into)
    try:
        assert read_json(f"/dev/fd/{out}") == [1]
    finally:
        os.close(out)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1.5E400"])
def test_json_numbers_that_nobody_can_compute_with_are_refused_with_their_line(tmp_path: Path, number: str) -> None:
    (tmp_path / "a.json").write_text(f'{{"NaN": "NaN",\n"a": [1, {number}]}}', encoding="utf-8")
    with pytest.raises(InputError, match=r"a\.json:2: a number is too large or not finite: .*; mend this line"):
        read_json(tmp_path / "a.json")


def test_arrays_that_claim_more_than_the_file_holds_or_memory_could_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.npz"
    header = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": (10**11, 3)}
    np.lib.format.write_array_header_1_0(header, about)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", header.getvalue() + bytes(1000))
    with pytest.raises(InputError, match=r"array 'a\.npy' is shorter than its shape"):
        read_arrays(path)
    write_arrays(path, a=np.zeros(10**5), b=np.zeros(10**5))
    assert len(read_arrays(path)) == 2
    monkeypatch.setattr(files, "_MOST_ARRAY_BYTES", 10**6)
    with pytest.raises(InputError, match=r"more than 0\.001 GB"):
        read_arrays(path)


def test_a_file_that_only_looks_like_a_draft_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / ".².draft.a").write_text("mine", encoding="utf-8")
    write_text(tmp_path / "a", "whole")
    assert names_in(tmp_path) == [".².draft.a", "a"]


# ---------------------------------------------------------------------- files that grow
def test_what_is_appended_is_there_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with only_writer(tmp_path / "new" / "a.csv") as file:
        append(file, b"one\n")
        monkeypatch.setattr(files.os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            append(file, b"two\n")
        monkeypatch.undo()
        append(file, b"three\n")
    assert (tmp_path / "new" / "a.csv").read_bytes() == b"one\nthree\n"


@pytest.mark.skipif(os.name == "nt", reason="files are locked in another way there")
def test_two_do_not_write_the_same_file_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with only_writer(path) as file:
        append(file, b"mine\n")
        with pytest.raises(InputError, match=r"a\.csv: another process is writing this; wait"), only_writer(path):
            pass
        append(file, b"mine again\n")
    assert path.read_bytes() == b"mine\nmine again\n"
    with only_writer(path) as file:
        append(file, b"new\n")
    assert path.read_bytes() == b"new\n"


@pytest.mark.skipif(os.name == "nt", reason="files are locked in another way there")
def test_two_do_not_work_in_the_same_folder_at_the_same_time(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    (tmp_path / "link").symlink_to(tmp_path / "new")
    with only_user(folder):
        with replacing_folder(folder) as draft:  # the folder itself may be exchanged
            write_text(draft / "a", "whole")
        for spelled in (folder, tmp_path / "link" / "run"):
            with pytest.raises(InputError, match="run: another process is writing this; wait"), only_user(spelled):
                pass
    with only_user(folder):
        pass
    assert names_in(tmp_path / "new") == ["run"]


@pytest.mark.skipif(os.name == "nt", reason="files are locked in another way there")
def test_a_lock_that_its_holder_removed_meanwhile_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    lock = fcntl.flock

    def late(file: Any, how: int) -> None:
        lock(file, how)
        (tmp_path / ".run.lock").unlink()

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(InputError, match="another process is writing this"), only_user(tmp_path / "run"):
        pass
