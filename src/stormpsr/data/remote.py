"""Data sets in a store that fsspec reads (s3://, gs://, memory://): a copy in the user's cache, filled when it is used.

Opening a data set copies what is small (labels, procedures, descriptions) and makes its folders, so that the code for
folders finds its recordings. A recording's frames are copied when the recording is opened, all or none of them. What
has changed in the store since is copied again. `file://` is the folder itself, of which no copy is made.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from stormpsr.errors import InputError, StormPSRError, need_packages
from stormpsr.files import check_room, read_json_object, replacing, replacing_folder, user_cache, write_json

# what FFmpeg opens as a camera; any other scheme is that of a store
_CAMERAS = frozenset({"rtsp", "rtsps", "rtmp", "rtmps", "http", "https", "udp", "tcp", "rtp", "srt", "mms", "mmsh"})
_FRAMES = frozenset({".jpg", ".jpeg", ".png", ".mp4", ".mkv", ".avi", ".mov", ".webm"})  # left where they are at first
_FRAME_FOLDERS = ("rgb", "RGB")
_LISTING = ".listing.json"  # in a copy: what the store held when it was made
_AGE = ("ETag", "etag", "md5Hash", "content_md5", "mtime", "LastModified", "last_modified", "updated", "created")

Listing = dict[str, list[Any]]  # file below a folder -> its size, and what else changes with it


def is_store_address(text: str | Path) -> bool:
    """Whether this is the address of a store, as opposed to a path or the address of a camera."""
    found = re.match(r"([a-z][a-z0-9+.-]+)://", str(text))
    return found is not None and found[1] not in _CAMERAS


def local_path(source: str | Path) -> Path:
    """A file or a folder, with all that is in it: where it is, or its copy, made first where it is not there yet."""
    if not is_store_address(source):
        return Path(source)
    with _opened(str(source)) as (store, root, copy):
        if copy is None:
            return Path(root)
        if store.isfile(root):
            return _copied_file(store, root, copy)
        found = store.find(root, detail=True)
        if not found:
            raise InputError("there is no such file or folder", path=shown(str(source)))
        _copy_folder(store, root, copy, _listing(found, root))
        return copy


def local_outline(root: str | Path, depth: int) -> Path:
    """A data set's folder without its frames: where it is, or its copy with so many folders below each other."""
    if not is_store_address(root):
        return Path(root)
    with _opened(str(root)) as (store, place, copy):
        if copy is None:
            return Path(place)
        if not store.isdir(place):
            problem = "this is a file" if store.exists(place) else "there is no such folder"
            raise InputError(problem, path=shown(str(root)), cure="give the folder that holds the recordings")
        _outline(store, place, copy, depth)
        return copy


def address_below(root: str | Path, outline: Path, folder: Path) -> str | None:
    """The address of a folder in a data set's outline; None where it is no copy."""
    if not is_store_address(root) or str(root).startswith(("file://", "local://")):
        return None
    below = folder.relative_to(outline).as_posix()
    return str(root).rstrip("/") + ("" if below == "." else f"/{below}")


def shown(address: str) -> str:
    """An address without what should not be printed: user, password, query."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@contextmanager
def _opened(address: str) -> Iterator[tuple[Any, str, Path | None]]:
    """The store, the place in it, and where its copy is; None for this machine's own disk."""
    need_packages("reading from a store", "remote", "fsspec")
    import fsspec

    scheme = urlsplit(address).scheme
    if scheme not in fsspec.available_protocols():
        cure = "fsspec reads s3://, gs://, az:// and many more; cameras are rtsp:// or http://"
        raise InputError(f"there is no store of the kind {scheme}://", path=shown(address), cure=cure)
    try:
        store, root = fsspec.core.url_to_fs(address)
        if isinstance(store, fsspec.implementations.local.LocalFileSystem):
            yield store, root, None
            return
        store.invalidate_cache()
        plain = shown(address).rstrip("/")
        name = PurePosixPath(urlsplit(plain).path).name or urlsplit(plain).netloc
        key = hashlib.sha256(plain.encode()).hexdigest()[:16]
        yield store, root.rstrip("/"), user_cache() / "remote" / key / name
    except (StormPSRError, KeyboardInterrupt):
        raise
    except ImportError as error:
        raise InputError(f"{shown(address)} needs a package that is not installed", cure=str(error)) from error
    except Exception as error:  # each store has its own
        if isinstance(error, OSError) and error.filename is not None:
            raise  # a disk of ours: the error names the file
        if isinstance(error, FileNotFoundError):
            raise InputError("there is no such file or folder", path=shown(address)) from error
        reason = f"{type(error).__name__}: {error}".replace(address, shown(address))
        cure = "check the address and the right to read it; fsspec's settings hold keys"
        raise InputError(f"the store cannot be read ({reason})", path=shown(address), cure=cure) from error


# ---------------------------------------------------------------------- copies
def _outline(store: Any, place: str, copy: Path, depth: int) -> None:
    """What is small, and the folders; one question to the store for each folder, none for those of frames."""
    copy.mkdir(parents=True, exist_ok=True)
    entries = {PurePosixPath(entry["name"]).name: entry for entry in store.ls(place, detail=True)}
    files = {name: entry for name, entry in entries.items() if entry["type"] == "file"}
    small = {name: entry for name, entry in files.items() if PurePosixPath(name).suffix.lower() not in _FRAMES}
    listing = {name: _mark(entry) for name, entry in small.items()}
    known = _known(copy, ".outline.json")
    for name, mark in listing.items():
        if not (copy / name).is_file() or known.get(name) != mark:
            with replacing(copy / name) as draft:
                store.get_file(small[name]["name"], str(draft))
    for path in list(copy.iterdir()):  # what the store has no more
        if path.is_file() and not path.name.startswith(".") and path.name not in files:
            path.unlink()
    write_json(copy / ".outline.json", listing)
    for name, entry in entries.items():
        if entry["type"] != "directory" or name.startswith("."):
            continue
        if name in _FRAME_FOLDERS or depth == 0:
            (copy / name).mkdir(exist_ok=True)
        else:
            _outline(store, entry["name"], copy / name, depth - 1)


def _copy_folder(store: Any, root: str, copy: Path, listing: Listing) -> None:
    """All files, or none: they come into a draft, which takes the folder's place when it is complete."""
    if _known(copy, _LISTING) == listing:
        return
    check_room(copy, sum(size for size, *_ in listing.values()))
    with replacing_folder(copy) as draft:
        for name in listing:
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
        store.get([f"{root}/{name}" for name in listing], [str(draft / name) for name in listing])
        for name, (size, *_) in listing.items():
            if (draft / name).stat().st_size != size:
                raise InputError(f"{name} came with another length than announced", path=root, cure="try again")
        write_json(draft / _LISTING, listing)


def _copied_file(store: Any, place: str, copy: Path) -> Path:
    listing = {copy.name: _mark(store.info(place))}
    if not copy.is_file() or _known(copy.parent, _LISTING) != listing:
        check_room(copy, listing[copy.name][0])
        with replacing(copy) as draft:
            store.get_file(place, str(draft))
        write_json(copy.parent / _LISTING, listing)
    return copy


def _known(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    return read_json_object(path, "listing", cure="delete it") if path.is_file() else {}


def _listing(found: Mapping[str, Any], root: str) -> Listing:
    below = {name: name[len(root) :].lstrip("/") for name in found}
    return {below[name]: _mark(entry) for name, entry in sorted(found.items()) if entry["type"] == "file"}


def _mark(entry: Mapping[str, Any]) -> list[Any]:
    """A file's size, and what the store says of its age."""
    mark = [int(entry["size"] or 0), *(str(entry[key]) for key in _AGE if key in entry)]
    return list(json.loads(json.dumps(mark)))
