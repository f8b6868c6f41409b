"""Images at training size: decoded and resized once, then read from a memory map.

One file for each recording, and for each folder of single images. It holds all frames or those that somebody asked for;
what holds more than is asked for is used as it is, so that detector and encoder share what they both need.

Shape legend: F frames, S pixels of a side, 3 colours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.images import GEOMETRY, Image, image_size, letterbox
from stormpsr.data.row_file import RowFile
from stormpsr.data.sources import FrameSource, ImageFolder, rows_that_show
from stormpsr.errors import InputError
from stormpsr.files import check_own_file, check_room, read_json_object, write_text

_ROWS_AT_ONCE = 64
OnProgress = Callable[[int, int], None]  # frames done, frames in all
Numbers = Sequence[int] | Literal["all"]  # of frames, ascending


@dataclass(frozen=True, eq=False)
class CachedFrames:
    """Some frames of a source, by their numbers; the image before stands for a frame that has none."""

    image_FSS3: NDArray[np.uint8]
    number_F: NDArray[np.int64]  # ascending

    def __getitem__(self, numbers: int | NDArray[np.integer]) -> NDArray[np.uint8]:
        """One image, or several."""
        return np.asarray(self.image_FSS3[rows_that_show(self.number_F, numbers)])  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class FrameFiles:
    """The frames of a folder of images that have the right size already: decoding them beats a cache that fills disks.

    (An image of 320 pixels is a small file, but its pixels take 300 kB.)
    """

    source: ImageFolder
    image_size: int

    def __getitem__(self, numbers: int | NDArray[np.integer]) -> NDArray[np.uint8]:
        """One image, or several."""
        wanted = np.asarray(numbers)
        images = [letterbox(image, self.image_size)[0] for image in self.source.images_at(wanted.ravel().tolist())]
        shape = (*wanted.shape, self.image_size, self.image_size, 3)
        return np.stack(images).reshape(shape) if images else np.zeros(shape, dtype=np.uint8)


Frames = CachedFrames | FrameFiles


class FrameCache:
    """A folder with the frames of sources. What was made from other images is made again."""

    def __init__(self, folder: str | Path, image_size: int) -> None:
        self.folder = Path(folder) / f"frames-{image_size}"
        self.image_size = image_size

    def rows(self, source: FrameSource, numbers: Numbers = "all") -> RowFile:
        """Where and what the cached frames of a source are: at least those."""
        return self._plan(source, numbers)[0]

    def _plan(self, source: FrameSource, numbers: Numbers) -> tuple[RowFile, Sequence[int]]:
        path = self.folder.joinpath(*source.path.resolve().parts[-3:])
        about = {"images": source.fingerprint(), "geometry": GEOMETRY}
        frames: list[int] | Literal["all"] = numbers if numbers == "all" else sorted(set(numbers))
        there = self._frames_there(path, about)
        if frames == "all" or there == "all":
            frames = "all"
        else:
            frames = sorted({*frames, *there})
        chosen = source.numbers() if frames == "all" else frames
        shape = (self.image_size, self.image_size, 3)
        return RowFile(path, len(chosen), shape, "uint8", {**about, "frames": frames}), chosen

    def _frames_there(self, path: Path, about: dict[str, str]) -> list[int] | Literal["all"]:
        """The frames for which a file was begun that is made from these images."""
        header = RowFile(path, 0, (), "uint8", {}).header_path
        if not header.is_file():
            return []
        found = read_json_object(header, "header of rows", cure="delete it").get("made_from")
        if not isinstance(found, dict) or any(found.get(key) != value for key, value in about.items()):
            return []
        frames = found.get("frames")
        if frames == "all":
            return "all"
        # of something else, or damaged: then it is made again
        return frames if isinstance(frames, list) and all(type(number) is int for number in frames) else []

    def missing_bytes(self, sources: Iterable[FrameSource], some: Iterable[tuple[FrameSource, Numbers]] = ()) -> int:
        """How much disk the frames that are not there yet will take: all of sources, and `some` of others."""
        wanted: list[tuple[FrameSource, Numbers]] = [*((source, "all") for source in sources), *some]
        files = [self.rows(source, numbers) for source, numbers in wanted if not self.has_files(source)]
        return sum((rows.n_rows - rows.rows_done()) * rows.row_bytes for rows in files)

    def has_files(self, source: FrameSource) -> bool:
        """Whether a source's images have the size that is asked for, so that nothing needs to be kept."""
        if not isinstance(source, ImageFolder):
            return False
        return image_size(source.file(source.numbers()[0])) == (self.image_size, self.image_size)

    def _check_files(self, source: ImageFolder, numbers: Numbers, on_progress: OnProgress | None) -> None:
        """Decode images once, so that one that is damaged is named now and not after hours of training."""
        mark = self._checked(source)
        check_own_file(mark)
        if mark.is_file() and mark.read_bytes() == source.fingerprint().encode():
            return
        chosen = source.numbers() if numbers == "all" else sorted(set(numbers))
        for done, _ in enumerate(source.images_at(chosen), start=1):
            if on_progress and (done % _ROWS_AT_ONCE == 0 or done == len(chosen)):
                on_progress(done, len(chosen))
        if numbers == "all":
            write_text(mark, source.fingerprint())

    def _checked(self, source: FrameSource) -> Path:
        return self.folder.joinpath(*source.path.resolve().parts[-3:]).with_suffix(".checked")

    def is_filled(self, source: FrameSource) -> bool:
        """Whether no image of a source needs to be looked at any more."""
        if self.has_files(source):
            mark = self._checked(source)
            return mark.is_file() and mark.read_bytes() == source.fingerprint().encode()
        return self.rows(source).is_complete

    def check_room(self, sources: Iterable[FrameSource], some: Iterable[tuple[FrameSource, Numbers]] = ()) -> None:
        """Complain if the disk cannot hold them all, before the first is decoded."""
        check_room(self.folder, self.missing_bytes(sources, some))

    def fill(self, source: FrameSource, numbers: Numbers = "all", on_progress: OnProgress | None = None) -> None:
        """Decode and resize what is not there yet. A run that was interrupted is continued."""
        rows, chosen = self._plan(source, numbers)
        if rows.stale_because():
            rows.delete()
        if rows.is_complete:
            return
        with rows.writer() as writer:
            batch: list[Image] = []
            in_order = chosen == range(rows.n_rows) or list(chosen) == list(range(rows.n_rows))
            left = source.images(writer.done) if in_order else source.images_at(chosen[writer.done :])
            for image in left:
                batch.append(letterbox(image, self.image_size)[0])
                if len(batch) == _ROWS_AT_ONCE or writer.done + len(batch) == rows.n_rows:
                    writer.append(np.stack(batch))
                    batch.clear()
                    if on_progress:
                        on_progress(writer.done, rows.n_rows)
                    if writer.done == rows.n_rows:
                        break
        if not rows.is_complete:
            raise InputError(f"{rows.n_rows} frames were announced, but fewer came", path=source.path)

    def frames(self, source: FrameSource, numbers: Numbers = "all", on_progress: OnProgress | None = None) -> Frames:
        """Frames of a source, made first where they are missing; they are read from disk when they are asked for."""
        if self.has_files(source) and isinstance(source, ImageFolder):
            self._check_files(source, numbers, on_progress)
            return FrameFiles(source, self.image_size)
        self.fill(source, numbers, on_progress)
        rows, chosen = self._plan(source, numbers)
        return CachedFrames(rows.read(), np.asarray(chosen, dtype=np.int64))
