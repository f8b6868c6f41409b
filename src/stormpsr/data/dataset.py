"""A data set: its recordings by name, opened when they are needed, and the procedure that they show.

for recording in Dataset.open("data/vehicle", "test").labelled:
    print(recording.name, recording.n_frames, recording.steps)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from stormpsr.data.layouts import RecordingFolder, outline_of
from stormpsr.data.recording import Recording, open_recording
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

PROCEDURE_FILE = "procedure.yaml"


@dataclass(frozen=True)
class Dataset:
    """Recordings below a folder. Going through it opens them one after the other; each is opened once."""

    root: Path
    split: str | None
    procedure: Procedure
    folders: tuple[RecordingFolder, ...]
    _opened: dict[Path, Recording] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(
        cls, root: str | Path, split: str | None = None, procedure: Procedure | str | Path | None = None
    ) -> Dataset:
        """Find the recordings of a split, or all. The procedure lies beside the data unless one is given.

        root: a path, or the address of a store: s3://bucket/data. A recording's frames are fetched when it is opened.
        """
        root, folders = outline_of(root, split)
        if procedure is None:
            procedure = find_procedure(root, folders)
            if procedure is None:
                cure = f"give one, or put {PROCEDURE_FILE} into the data set's folder"
                raise InputError("nobody says which procedure this is", path=root, cure=cure)
        chosen = procedure if isinstance(procedure, Procedure) else Procedure.load(procedure)
        return cls(root, split, chosen, tuple(folders))

    @property
    def names(self) -> list[str]:
        return [folder.name for folder in self.folders]

    @property
    def labelled(self) -> Dataset:
        """The recordings with labels."""
        return replace(self, folders=tuple(folder for folder in self.folders if folder.has_labels))

    def of_split(self, split: str) -> Dataset:
        """The recordings of one split; there may be none."""
        return replace(self, split=split, folders=tuple(folder for folder in self.folders if folder.split == split))

    def check(self, check_procedure: Callable[[Procedure, Path], None]) -> None:
        """Show all procedures that lie beside the data to a model, which refuses what it was not made for."""
        for path, procedure in procedures_in(self.root, self.folders):
            check_procedure(procedure, path)

    def __len__(self) -> int:
        return len(self.folders)

    def __iter__(self) -> Iterator[Recording]:
        return map(self._open, self.folders)

    def __getitem__(self, name: str | int) -> Recording:
        """A recording by its name, or by its place in the order of names."""
        if isinstance(name, int):
            return self._open(self.folders[name])
        found = [folder for folder in self.folders if folder.name == name]
        if not found:
            cure = f"there are: {', '.join(self.names[:5])}{', ...' if len(self) > 5 else ''}"
            raise InputError(f"there is no recording {name!r}", path=self.root, cure=cure)
        if len(found) > 1:
            splits = ", ".join(folder.split or "no split" for folder in found)
            raise InputError(f"recording {name!r} is there more than once: {splits}", cure="open one split")
        return self._open(found[0])

    def _open(self, folder: RecordingFolder) -> Recording:
        if folder.path not in self._opened:
            self._opened[folder.path] = open_recording(folder, self.procedure)
        return self._opened[folder.path]


def procedures_in(root: Path, folders: Sequence[RecordingFolder]) -> Iterator[tuple[Path, Procedure]]:
    """The procedures that lie in a data set's folder and in its recordings, each text once."""
    seen: set[bytes] = set()
    for path in (root / PROCEDURE_FILE, *(folder.path / PROCEDURE_FILE for folder in folders)):
        if path.is_file() and (text := path.read_bytes()) not in seen:
            seen.add(text)
            yield path, Procedure.load(path)


def find_procedure(root: Path, folders: Sequence[RecordingFolder]) -> Procedure | None:
    """The procedure of a data set: that in its folder, or the one that all its recordings name; None if none does."""
    found = procedures_in(root, folders)
    first_path, first = next(found, (root, None))
    if first_path == root / PROCEDURE_FILE:
        return first
    for path, procedure in found:
        if procedure != first:
            raise InputError(f"this is another procedure than in {first_path}", path=path, cure="keep one per data set")
    return first
