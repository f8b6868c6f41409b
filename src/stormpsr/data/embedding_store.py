"""Embeddings of all frames on disk: each frame is encoded once, and clips are cut from a memory map.

Shape legend: F frames, D dimensions, B clips, N frames of a clip, S pixels of a side, 3 colours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.row_file import RowFile
from stormpsr.errors import InputError

Precision = Literal["float16", "float32"]
Encode = Callable[[slice], NDArray[np.floating]]  # rows -> embeddings (B, D) of the frames that they stand for
OnProgress = Callable[[int, int], None]  # frames done, frames in all


@dataclass(frozen=True)
class EmbeddingStore:
    """A folder with the embeddings that one encoder makes of recordings."""

    folder: Path
    encoder_digest: str  # see `checkpoint.encoder_digest`
    dim: int
    dtype: Precision = "float16"

    def rows(self, name: str, n_frames: int, fps: float, *, images: str) -> RowFile:
        """Where and what a recording's embeddings are; `name` may hold a split, `train/01`.

        `images` is the fingerprint of the recording's images: embeddings of others are stale.
        """
        made_from = {"encoder": self.encoder_digest, "fps": float(fps), "images": images}
        return RowFile(self.folder / name, n_frames, (self.dim,), self.dtype, made_from)

    def write(
        self,
        name: str,
        n_frames: int,
        fps: float,
        encode: Encode,
        *,
        images: str,
        batch_size: int = 64,
        on_progress: OnProgress | None = None,
    ) -> None:
        """Encode the frames whose embeddings are not there yet, going on where the last run stopped.

        Embeddings of another encoder are not overwritten: they may have cost hours.
        """
        rows = self.rows(name, n_frames, fps, images=images)
        self._refuse_stale(rows)
        if rows.is_complete:
            return
        with rows.writer() as writer:
            while writer.done < rows.n_rows:
                embedding_BD = encode(slice(writer.done, writer.done + batch_size))
                if not np.abs(embedding_BD).max() < np.finfo(self.dtype).max:
                    problem = f"the encoder gives numbers that {self.dtype} cannot hold"
                    raise InputError(problem, path=rows.path, cure="train it again, or use float32")
                writer.append(embedding_BD)
                if on_progress:
                    on_progress(writer.done, rows.n_rows)

    def read(self, name: str, n_frames: int, fps: float, *, images: str) -> NDArray[Any]:
        """A recording's embeddings, shape (F, D), as a read-only memory map."""
        rows = self.rows(name, n_frames, fps, images=images)
        self._refuse_stale(rows)
        return rows.read()

    def _refuse_stale(self, rows: RowFile) -> None:
        reason = rows.stale_because()
        if reason:
            cure = "delete the store, or choose another folder"
            raise InputError(
                f"these embeddings are of another encoder or of other images: {reason}", path=rows.path, cure=cure
            )


def read_clips(
    stores: Sequence[NDArray[Any]],
    recording_B: NDArray[np.int64],
    frame_BN: NDArray[np.int64],
    mask_BN: NDArray[np.bool_],
    frame_step: int = 1,
) -> NDArray[np.float32]:
    """The embeddings of clips, shape (B, N, D), with zeros where frames do not exist. Only these frames are read.

    Stores may hold every `frame_step`-th frame only; the clips then consist of such frames.
    """
    if frame_step > 1 and (frame_BN % frame_step).any():
        raise InputError(f"a clip has frames that are not stored: only every {frame_step}th is")
    frame_BN = frame_BN // frame_step
    clip_BND = np.zeros((*frame_BN.shape, stores[0].shape[1]), dtype=np.float32)
    for clip, recording, frames, mask in zip(clip_BND, recording_B.tolist(), frame_BN, mask_BN, strict=True):
        clip[mask] = stores[recording][frames[mask]]
    return clip_BND
