"""Whole files: written completely and lastingly or not at all, and read with a plain word about what is wrong.

What is written goes to a draft beside its place, is forced onto the disk, and takes the place of what was there in one
move: whoever reads, or starts again after a power cut, finds the old file or the new one, never half of one.
"""

from __future__ import annotations

import csv
import errno
import glob
import hashlib
import io
import json
import math
import os
import platform
import re
import shutil
import stat
import sys
import zipfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from io import FileIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from stormpsr.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FULL = (errno.ENOSPC, errno.EDQUOT)
# how libraries with errors of their own put it; torch only knows that it could not go on
_FULL_WORDS = ("no space left", "os error 28", "disk quota", "os error 122", "pytorchstreamwriter", "inline_container")
# some shared disks know nothing of this, or only for those who may write
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EBADF)
_MOST_ARRAY_BYTES = 2 * 10**9  # that a file may unfold to
_MOST_SINGLE_SYNCS = 64  # from so many files on, one call that empties all buffers is quicker than one for each


# ---------------------------------------------------------------------- writing
def draft_of(path: str | Path) -> Path:
    """Where this process drafts a file or folder: beside it and hidden, with the same suffix. A link stays a link.

    The machine is part of the name: on a shared disk, processes of two machines may have the same number.
    """
    real = Path(os.path.realpath(path))
    return real.with_name(f".{os.getpid()}@{_machine()}.draft.{real.name}")


@cache
def _machine() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", platform.node())[:64]


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """The path of a draft to write to: it becomes the file at the end of the block, or is removed if that fails."""
    target = Path(path)
    if _is_device(target):
        yield target  # a pipe or /dev/null is written to, never replaced
        return
    draft, real = draft_of(target), Path(os.path.realpath(target))
    try:
        with _naming(target, draft):
            _check_target(real)
            real.parent.mkdir(parents=True, exist_ok=True)
            draft.unlink(missing_ok=True)
            draft.touch()
            rights = (real if real.exists() else draft).stat().st_mode
            yield draft
            draft.chmod(rights)  # some libraries make files for their owner alone
            _sync_path(draft)
            draft.replace(real)
            _sync_path(real.parent)
            _remove_leftovers(real)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """The path of an empty draft folder: at the end of the block it takes the place of the folder that is there.

    Both change places in one move where the system can do that (Linux, macOS), so that there is always one of them.
    """
    target = Path(path)
    draft, real = draft_of(target), Path(os.path.realpath(target))
    try:
        with _naming(target, draft):
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            yield draft
            _sync_folder(draft)
            if not real.exists():
                draft.rename(real)
            elif not _exchange(draft, real):
                old = draft.with_name(f"{draft.name}.old")
                real.rename(old)
                draft.rename(real)
                old.rename(draft)
            _sync_path(real.parent)
            _remove_leftovers(real)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file and make its folder."""
    with replacing(path) as draft:
        draft.write_bytes(content)


def write_text(path: str | Path, text: str) -> None:
    """Write a text in UTF-8, its line ends as they are."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: str | Path, content: Any, *, indent: int | None = 2) -> None:
    """Write JSON that every reader understands: not a number is not allowed."""
    write_text(path, json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def write_csv(path: str | Path, rows: Iterable[Iterable[object]]) -> None:
    """Write a table, a list of cells per row."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    write_text(path, buffer.getvalue())


def write_arrays(path: str | Path, **arrays: Any) -> None:
    """Write arrays to one compressed .npz file."""
    import numpy as np

    with replacing(path) as draft:
        np.savez_compressed(draft, **arrays)


def flush(file: IO[Any]) -> None:
    """Force onto the disk what was written to a file that goes on growing."""
    file.flush()
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a pipe or a terminal has no disk
            raise


def append(file: FileIO, content: bytes) -> None:
    """Add to a file that goes on growing, opened without a buffer: all of it, forced onto the disk, or nothing."""
    start = file.tell() if file.seekable() else None
    left = memoryview(content)
    try:
        while left:
            left = left[file.write(left) :]
        flush(file)
    except OSError:
        if start is not None:
            file.truncate(start)
            file.seek(start)
        raise


@contextmanager
def only_writer(path: str | Path) -> Iterator[FileIO]:
    """A file to be written bit by bit, empty at first, without a buffer; refused while another process writes it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming_full_disk(path), path.open("ab", buffering=0) as file:
        if path.is_file():
            _take(file, path, path)
            file.truncate(0)
        yield file


@contextmanager
def only_user(folder: str | Path) -> Iterator[None]:
    """A folder that nobody else may work in until the end of the block: refused while another process does.

    What tells others so lies beside the folder, which may be replaced meanwhile.
    """
    real = Path(os.path.realpath(folder))
    lock = real.with_name(f".{real.name}.lock")
    with _naming(Path(folder), lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("ab", buffering=0)
    with file:
        _take(file, lock, Path(folder))
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _take(file: FileIO, path: Path, shown: Path) -> None:
    """Take hold of an open file as long as it is open, or until the process ends in whatever way."""
    if os.name == "nt":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ours = os.path.samestat(os.fstat(file.fileno()), path.stat())
    except (BlockingIOError, FileNotFoundError):
        ours = False  # held by another process, or removed by one that has just ended
    except OSError as error:
        ours = error.errno in _NO_LOCKS
        if not ours:
            raise
    if not ours:
        cure = "wait until it is done, or choose another name"
        raise InputError("another process is writing this", path=shown, cure=cure)


@contextmanager
def holding(file: FileIO) -> Iterator[None]:
    """Wait until no other process holds an open file, and hold it until the end of the block."""
    if os.name == "nt":
        yield
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        yield
        return
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def naming_full_disk(path: str | Path) -> Iterator[None]:
    """Writing to a stream: a full disk becomes an error that names the file and says what to do."""
    try:
        yield
    except Exception as error:
        if is_disk_full(error):
            raise disk_full(path) from error
        raise


def is_disk_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _FULL
    return not isinstance(error, InputError) and any(words in str(error).lower() for words in _FULL_WORDS)


def disk_full(path: str | Path, detail: str = "nothing more can be written") -> InputError:
    cure = "make room and run the same command again, training with --resume"
    return InputError(f"the disk is full ({detail})", path=path, cure=cure)


def check_room(path: str | Path, n_bytes: int) -> None:
    """Complain if the disk on which a file or folder is, or will be, has no room for so many bytes."""
    place = Path(path).absolute()
    free = shutil.disk_usage(next(folder for folder in (place, *place.parents) if folder.is_dir())).free
    if n_bytes > free:
        raise disk_full(path, f"{n_bytes / 1e6:.0f} MB are needed, {free / 1e6:.0f} MB are free")


@contextmanager
def _naming(target: Path, draft: Path) -> Iterator[None]:
    """Nobody knows the draft: an error of writing speaks of the file that was wanted."""
    try:
        with naming_full_disk(target):
            yield
    except InputError as error:
        if error.path is None or not Path(error.path).is_relative_to(draft):
            raise
        path = target / Path(error.path).relative_to(draft)
        raise InputError(error.problem, path=path, line=error.line, cure=error.cure) from error
    except OSError as error:
        if error.filename is None or not Path(os.fsdecode(error.filename)).is_relative_to(draft):
            raise
        raise InputError(f"cannot be written: {(error.strerror or str(error)).lower()}", path=target) from error


def _check_target(path: Path) -> None:
    if path.is_dir():
        raise InputError("this is a folder", path=path, cure="give the path of a file")
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError("this file is protected", path=path, cure="choose another name, or allow writing to it")


def check_own_file(path: Path, cure: str = "remove it") -> None:
    """Refuse a pipe, which would be waited for, or a folder in the place of a file that we keep for ourselves."""
    if path.exists() and not path.is_file():
        raise InputError("this is not a file", path=path, cure=cure)


def _is_device(path: Path) -> bool:
    if path.parent in (Path("/dev"), Path("/dev/fd")):  # also where /dev/stdout is a file
        return path.exists()
    return path.exists() and not path.is_file() and not path.is_dir()


def _sync_path(path: Path) -> None:
    """Force a file, or the list of a folder's files, onto the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open a folder
    handle = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    inside = [folder, *(path for path in folder.rglob("*") if not path.is_symlink())]
    if len(inside) > _MOST_SINGLE_SYNCS and hasattr(os, "sync"):
        os.sync()
    else:
        for path in inside:
            _sync_path(path)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places in one move; False where the system or the disk cannot do that."""
    import ctypes

    here, exchange = -100, 2  # AT_FDCWD; RENAME_EXCHANGE and RENAME_SWAP are the same number
    names = os.fsencode(one), os.fsencode(other)
    calls = {"linux": ("renameat2", (here, names[0], here, names[1])), "darwin": ("renamex_np", names)}
    name, arguments = calls.get(str(sys.platform), ("", ()))
    call = getattr(ctypes.CDLL(None), name, None) if name else None  # an old C library may not have it
    return call is not None and call(*arguments, exchange) == 0


def _remove_leftovers(path: Path) -> None:
    """Drafts of the same thing by processes of this machine that were killed; of others we cannot tell."""
    for left in path.parent.glob(f".*.draft.{glob.escape(path.name)}"):
        pid, _, machine = left.name.split(".")[1].partition("@")
        ours = os.name != "nt" and re.fullmatch("[0-9]+", pid) and machine in ("", _machine())
        if ours and not _is_running(int(pid)):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


# ---------------------------------------------------------------------- reading
def read_bytes(path: str | Path, cure: str | None = None) -> bytes:
    """What a file holds. `cure` says what to do if it cannot be read."""
    try:
        _refuse_endless(Path(path))
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise InputError("there is no such file", path=path, cure=cure) from error
    except IsADirectoryError as error:
        raise InputError("this is a folder", path=path, cure="give the path of a file") from error
    except OSError as error:
        raise InputError(f"cannot be read: {(error.strerror or str(error)).lower()}", path=path, cure=cure) from error


def read_text(path: str | Path, cure: str | None = None) -> str:
    """A text in UTF-8, with or without the mark that Windows puts before it. `cure` says what to do if it is none."""
    content = read_bytes(path, cure)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError("this is not text in UTF-8", path=path, line=line, cure=cure or "save it as UTF-8") from error


def _refuse_endless(path: Path) -> None:
    """A pipe or a device that lies among files is waited for, or read, for ever. What a shell hands over has an end."""
    mode = path.stat().st_mode
    from_shell = stat.S_ISFIFO(mode) and path.parent in (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or from_shell):
        raise InputError("this is not a file", path=path, cure="give the path of a file")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number to compute with")
    return number


def parse_json(text: str | bytes) -> Any:
    """JSON as others write it: NaN, Infinity and numbers too large for a float are a `ValueError`, too."""
    return json.loads(text, parse_constant=_finite, parse_float=_finite)


def read_json(path: str | Path, cure: str | None = None) -> Any:
    """What a JSON file holds. `cure` says what to do if it is damaged, where there is a better way than mending it.

    NaN and Infinity, which Python writes and nobody else reads, are refused, and so are numbers too large for a float.
    """
    text = read_text(path, cure)
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        problem = f"this is not JSON: {error.msg[0].lower()}{error.msg[1:]} (column {error.colno})"
        raise InputError(problem, path=path, line=error.lineno, cure=cure or "mend this line") from error
    except RecursionError as error:
        problem = "this is not JSON: brackets are nested too deeply"
        raise InputError(problem, path=path, line=1, cure=cure or "close the brackets that are open") from error
    except ValueError as error:  # NaN, 1e999, or a whole number of thousands of digits
        found = re.search(r"(?<![\w\"])(NaN|-?Infinity|[-+.\deE]{310,}|[-+]?[\d.]+[eE][+]?\d{3,})(?![\w\"])", text)
        line = text[: found.start()].count("\n") + 1 if found else 1
        shown = found[0][:20] if found else "one of thousands of digits"
        problem = f"a number is too large or not finite: {shown}"
        raise InputError(problem, path=path, line=line, cure=cure or "mend this line") from error


def read_json_object(path: str | Path, what: str = "JSON object", cure: str | None = None) -> dict[str, Any]:
    """A JSON file that must hold one object, {...}; `what` says in plain words what it should be."""
    content = read_json(path, cure)
    if not isinstance(content, dict):
        raise InputError(f"this is no {what}", path=path, line=1, cure=cure or 'write an object: {"key": value, ...}')
    return content


def read_arrays(path: str | Path, cure: str | None = None) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file. Damage has many names: zip, zlib, numpy and Python's parser each have their own."""
    import numpy as np

    try:
        _refuse_endless(Path(path))
        with Path(path).open("rb") as opened:
            _check_unfolded(opened)
            with np.load(opened, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
    except FileNotFoundError as error:
        raise InputError("there is no such file", path=path, cure=cure) from error
    except InputError:
        raise
    except Exception as error:
        reason = " ".join(str(error).splitlines()[:1])  # numpy may give advice in further lines
        raise InputError(f"the arrays cannot be read ({reason})", path=path, cure=cure or "make it again") from error


def _check_unfolded(file: IO[bytes]) -> None:
    """Refuse arrays that would fill the memory: a small file may unfold to any size, or claim any shape."""
    import numpy as np

    layout: Any = np.lib.format
    left = _MOST_ARRAY_BYTES
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            left -= member.file_size
            if left < 0:
                raise ValueError(f"they take more than {_MOST_ARRAY_BYTES / 1e9:g} GB")
            with archive.open(member) as array:
                first_version = layout.read_magic(array)[0] == 1
                read_header = layout.read_array_header_1_0 if first_version else layout.read_array_header_2_0
                shape, _, kind = read_header(array)
                if math.prod(shape) * kind.itemsize > member.file_size:
                    raise ValueError(f"array {member.filename!r} is shorter than its shape {shape}")
    file.seek(0)


def user_cache() -> Path:
    """Where a user's programs keep what can be made or fetched again: ours alone, or a part of everybody's."""
    if own := os.environ.get("STORMPSR_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stormpsr"


# ---------------------------------------------------------------------- fingerprints
def digest(*paths: str | Path, without: Collection[str] = ()) -> str:
    """A fingerprint of files, and of all files in folders except hidden ones and those named in `without`."""
    found = hashlib.sha256()
    for path in map(Path, paths):
        inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in inside:
            name = file.relative_to(path.parent if path.is_file() else path)
            if file.name in without or any(part.startswith(".") for part in name.parts):
                continue
            content = hashlib.sha256(file.read_bytes()).digest()
            found.update(name.as_posix().encode() + b"\0" + content)
    return found.hexdigest()[:16]
