"""Frames through a trained encoder, into a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stormpsr.data.embedding_store import EmbeddingStore, Precision
from stormpsr.data.frame_cache import FrameCache
from stormpsr.data.recording import Recording
from stormpsr.models.checkpoint import encoder_digest
from stormpsr.models.encoder import SpatialEncoder

OnProgress = Callable[[str, int, int], None]  # what is being done, frames done, frames in all
_IMAGES_AT_ONCE = 64


def embed_recordings(
    encoder: SpatialEncoder,
    recordings: Sequence[Recording],
    *,
    store_folder: Path,
    cache_folder: Path,
    dtype: Precision = "float16",
    frame_step: int = 1,
    on_progress: OnProgress = lambda what, done, of: None,
) -> list[NDArray[Any]]:
    """The embeddings of frames of recordings as memory maps, (F, D) each, made first where they are missing.

    Of all frames, or of every `frame_step`-th.
    """
    encoder = encoder.eval()
    store = EmbeddingStore(store_folder, encoder_digest(encoder), encoder.embedding_dim, dtype)
    cache = FrameCache(cache_folder / f"frames-{encoder.image_size}", encoder.image_size)
    device = next(encoder.parameters()).device

    def encode(image_BSS3: NDArray[np.uint8]) -> NDArray[np.floating]:
        with torch.inference_mode():
            return np.asarray(encoder.embed(torch.from_numpy(image_BSS3.copy()).to(device)).float().cpu().numpy())

    found = []
    for recording in recordings:
        name = f"{recording.split or 'all'}/{recording.name}"
        cache.fill(recording, partial(on_progress, f"decode {recording.name}"))
        image_FSS3, fps = cache.read(recording)[::frame_step], recording.fps / frame_step
        images = recording.source.fingerprint()
        store.write(
            name,
            image_FSS3,
            fps,
            encode,
            images=images,
            batch_size=_IMAGES_AT_ONCE,
            on_progress=partial(on_progress, f"embed {recording.name}"),
        )
        found.append(store.read(name, len(image_FSS3), fps, images=images))
    return found
