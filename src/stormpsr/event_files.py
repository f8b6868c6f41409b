"""Which file of predicted events belongs to which recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stormpsr.datasets import find_recordings
from stormpsr.errors import InputError
from stormpsr.labels import STEPS_FILE

__all__ = ["LabelledEvents", "pair_files"]


@dataclass(frozen=True, slots=True)
class LabelledEvents:
    """A recording's labels and the events predicted for it. `events` is None where no file was found."""

    name: str
    labels: Path
    events: Path | None


def pair_files(labels: Path, events: Path, split: str | None = None) -> list[LabelledEvents]:
    """Pair two files, or two folders by the recordings' names.

    In a folder of events, recording `0008` is looked for as `0008.csv`, `0008_*.csv` or any CSV in a folder `0008`.
    """
    for path in (labels, events):
        if not path.exists():
            raise InputError("there is no such file or folder", path=path)
    if labels.is_file() and events.is_file():
        return [LabelledEvents(_name_of(labels), labels, events)]
    if labels.is_file() or events.is_file():
        raise InputError(
            f"{labels} is a {_kind(labels)} and {events} a {_kind(events)}", cure="give two files or two folders"
        )
    tables = sorted(events.rglob("*.csv"))
    pairs: list[LabelledEvents] = []
    for recording in find_recordings(labels, split):
        path = recording.path / STEPS_FILE
        if not path.is_file():
            raise InputError(f"recording {recording.name!r} has no {STEPS_FILE}", path=recording.path)
        found = _files_of(recording.name, tables)
        if len(found) > 1:
            listed = ", ".join(str(entry.relative_to(events)) for entry in found[:3])
            raise InputError(f"several files for recording {recording.name!r}: {listed}", path=events)
        pairs.append(LabelledEvents(recording.name, path, found[0] if found else None))
    return pairs


def _kind(path: Path) -> str:
    return "folder" if path.is_dir() else "file"


def _name_of(path: Path) -> str:
    """The recording a label file belongs to: its folder's name, unless the file has a name of its own."""
    return path.resolve().parent.name if path.name.startswith("PSR_") else path.stem


def _files_of(name: str, tables: Sequence[Path]) -> list[Path]:
    """The files of a recording, by the most telling of the rules that fits any."""
    rules: tuple[Callable[[Path], bool], ...] = (
        lambda path: path.stem == name,
        lambda path: path.stem.startswith(f"{name}_"),
        lambda path: path.parent.name == name and path.name == STEPS_FILE,
        lambda path: path.parent.name == name,
    )
    return next((found for rule in rules if (found := [path for path in tables if rule(path)])), [])
