"""Which file of predicted events belongs to which recording."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stormpsr.datasets import RecordingFolder, find_recordings
from stormpsr.errors import InputError
from stormpsr.labels import STATES_FILE, STEPS_FILE

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
    recordings = _labelled_recordings(labels, events, split)
    files = _EventFiles(events, (recording.name for recording in recordings))
    pairs: list[LabelledEvents] = []
    for recording in recordings:
        path = recording.path / STEPS_FILE
        if not path.is_file():
            cure = f"make one from {STATES_FILE} with 'stormpsr labels convert', or take the recording away"
            raise InputError(f"recording {recording.name!r} has no {STEPS_FILE}", path=recording.path, cure=cure)
        found = files.of(recording.name)
        if len(found) > 1:
            listed = ", ".join(str(entry.relative_to(events)) for entry in found[:3])
            cure = "keep one of them there"
            raise InputError(f"several files for recording {recording.name!r}: {listed}", path=events, cure=cure)
        pairs.append(LabelledEvents(recording.name, path, found[0] if found else None))
    return pairs


def _labelled_recordings(labels: Path, events: Path, split: str | None) -> list[RecordingFolder]:
    try:
        recordings = find_recordings(labels, split)
    except InputError as error:
        if any(events.rglob(STEPS_FILE)) and not any(labels.rglob(STEPS_FILE)):
            cure = f"labels come first, then events: did you swap {labels} and {events}?"
            raise InputError(error.problem, path=error.path, cure=cure) from None
        raise
    names = Counter(recording.name for recording in recordings)
    for name in (name for name, count in names.items() if count > 1):
        splits = ", ".join(recording.split or "no split" for recording in recordings if recording.name == name)
        cure = "choose one with --split, or take one away"
        raise InputError(f"recording {name!r} is there more than once: {splits}", path=labels, cure=cure)
    return recordings


def _kind(path: Path) -> str:
    return "folder" if path.is_dir() else "file"


def _name_of(path: Path) -> str:
    """The recording a label file belongs to: its folder's name, unless the file has a name of its own."""
    return path.resolve().parent.name if path.name.startswith("PSR_") else path.stem


class _EventFiles:
    """The CSV files below a folder, by the recording whose events they may hold."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self._by_stem: dict[str, list[Path]] = defaultdict(list)
        self._by_prefix: dict[str, list[Path]] = defaultdict(list)
        self._by_folder: dict[str, list[Path]] = defaultdict(list)
        known = set(names)
        for path in sorted(folder.rglob("*.csv")):
            self._by_stem[path.stem].append(path)
            self._by_folder[path.parent.name].append(path)
            # `01_2_events.csv` belongs to recording `01_2` where there is one, not to `01`
            words = path.stem.split("_")
            begins = ("_".join(words[:n]) for n in range(len(words), 0, -1))
            owner = next((begin for begin in begins if begin in known), None)
            if owner is not None:
                self._by_prefix[owner].append(path)

    def of(self, name: str) -> list[Path]:
        """The files of a recording, by the most telling of the rules that fits any."""
        in_folder = self._by_folder.get(name, [])
        rules = (
            self._by_stem.get(name, []),
            self._by_prefix.get(name, []),
            [path for path in in_folder if path.name == STEPS_FILE],
            in_folder,
        )
        return next((found for found in rules if found), [])
