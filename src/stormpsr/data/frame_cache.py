"""Images at training size: decoded and resized once, then read from a memory map.

Shape legend: F frames, S pixels of a side, 3 colours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.images import GEOMETRY, Image, letterbox
from stormpsr.data.recording import Recording
from stormpsr.data.row_file import RowFile
from stormpsr.errors import InputError
from stormpsr.files import check_room

_ROWS_AT_ONCE = 64
OnProgress = Callable[[int, int], None]  # frames done, frames in all


class FrameCache:
    """A folder with the frames of recordings. What was made from other images is made again."""

    def __init__(self, folder: str | Path, image_size: int) -> None:
        self.folder = Path(folder)
        self.image_size = image_size

    def rows(self, recording: Recording) -> RowFile:
        """Where and what a recording's cached frames are."""
        return RowFile(
            path=self.folder / (recording.split or "all") / recording.name,
            n_rows=recording.n_frames,
            row_shape=(self.image_size, self.image_size, 3),
            dtype="uint8",
            made_from={"images": recording.source.fingerprint(), "geometry": GEOMETRY},
        )

    def missing_bytes(self, recordings: Sequence[Recording]) -> int:
        """How much disk the frames that are not there yet will take."""
        files = [self.rows(recording) for recording in recordings]
        return sum((rows.n_rows - rows.rows_done()) * rows.row_bytes for rows in files)

    def check_room(self, recordings: Sequence[Recording]) -> None:
        """Complain if the disk cannot hold them all, before the first is decoded."""
        check_room(self.folder, self.missing_bytes(recordings))

    def fill(self, recording: Recording, on_progress: OnProgress | None = None) -> None:
        """Decode and resize what is not there yet. A run that was interrupted is continued."""
        rows = self.rows(recording)
        if rows.stale_because():
            rows.delete()
        if rows.is_complete:
            return
        with rows.writer() as writer:
            batch: list[Image] = []
            for image in recording.source.images(writer.done):
                batch.append(letterbox(image, self.image_size)[0])
                if len(batch) == _ROWS_AT_ONCE or writer.done + len(batch) == rows.n_rows:
                    writer.append(np.stack(batch))
                    batch.clear()
                    if on_progress:
                        on_progress(writer.done, rows.n_rows)
        if not rows.is_complete:
            raise InputError(f"{rows.n_rows} frames were announced, but fewer came", path=recording.source.path)

    def read(self, recording: Recording) -> NDArray[np.uint8]:
        """All frames of a recording, shape (F, S, S, 3), as a read-only memory map."""
        return self.rows(recording).read()
