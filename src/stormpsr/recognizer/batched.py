"""The batched twin: what the networks say about whole recordings, many frames at a time, kept on disk.

Which network is due when, which embeddings make up a window, and how percepts become events is the same code as in
streaming recognition; only the networks see several pictures at once. What is on disk is taken if the same networks
made it from the same pictures, and made again otherwise: tuning and judging once more takes no time.

Shape legend: B pictures or windows of a batch, N frames of a window, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.datasets import RecordingFolder
from stormpsr.errors import InputError
from stormpsr.events import StepEvent
from stormpsr.recognition.percepts import Percept, PerceptDecoder, PerceptTable
from stormpsr.recognizer.folder import RecognizerModel
from stormpsr.recognizer.perception import Networks
from stormpsr.recognizer.schedule import Due, EmbeddingRing
from stormpsr.recording import Frame, Recording, open_recording

__all__ = ["decode_table", "perceive", "perceive_recordings"]

_FRAMES_AT_ONCE = 64

OnProgress = Callable[[str, int, int], None]  # recording, frames done, frames in all


def perceive(networks: Networks, frames: Iterable[Frame], *, batch_size: int = _FRAMES_AT_ONCE) -> Iterator[Percept]:
    """The percepts of frames, as `Perception` would make them one by one."""
    schedule, ring = networks.schedule(), networks.ring()
    counted = ((frame, due) for frame in frames if (due := schedule.next(frame.time_seconds)) is not None)
    while chunk := list(islice(counted, batch_size)):
        looked = [(frame.image, due.tick) for frame, due in chunk if due.detect]
        ticks = [tick for _, tick in looked]
        found = networks.detect([image for image, _ in looked], ticks) if looked else []
        detections = dict(zip(ticks, found, strict=True))
        changes = _changes(networks, ring, chunk)
        for frame, due in chunk:
            seen, change_C = detections.get(due.tick), changes.get(due.tick)
            yield Percept(due.tick, frame.index, frame.time_seconds, seen, change_C)


def _changes(
    networks: Networks, ring: EmbeddingRing, chunk: Sequence[tuple[Frame, Due]]
) -> dict[int, NDArray[np.float32]]:
    """The temporal model's word by tick. All pictures are encoded at once, then all windows are cut in order."""
    to_encode = [frame.image for frame, due in chunk if due.encode]
    embeddings = iter(networks.encode(to_encode) if to_encode else ())
    windows = []
    for _, due in chunk:
        if due.encode:
            ring.put(due.slot, next(embeddings))
        if due.predict:
            windows.append((due.tick, *ring.window(due.slot)))
    if not windows:
        return {}
    change_BC = networks.predict(np.stack([clip for _, clip, _ in windows]), np.stack([known for *_, known in windows]))
    return dict(zip((tick for tick, *_ in windows), change_BC, strict=True))


def perceive_recordings(
    model: RecognizerModel,
    recordings: Sequence[RecordingFolder],
    cache: Path,
    *,
    on_progress: OnProgress | None = None,
) -> Iterator[tuple[Recording, PerceptTable]]:
    """Each recording with its percepts, made first where they are not in the cache yet."""
    digest = model.digest()
    for folder in recordings:
        recording = open_recording(folder, model.procedure)
        pictures = recording.source.fingerprint()
        made_from = f"networks {digest}, pictures {pictures}, {recording.n_frames} frames at {recording.fps} per second"
        path = cache / digest / f"{recording.name}-{pictures}.npz"
        table = PerceptTable.load(path, made_from)
        if table is None:
            frames = _watched(recording, on_progress)
            table = PerceptTable.of(perceive(model.networks, frames), model.procedure.n_components)
            if not len(table):
                raise InputError("the recording has no frames", path=recording.path)
            table.save(path, made_from)
        elif on_progress:
            on_progress(recording.name, recording.n_frames, recording.n_frames)
        yield recording, table


def _watched(recording: Recording, on_progress: OnProgress | None) -> Iterator[Frame]:
    for done, frame in enumerate(recording.frames(), start=1):
        yield frame
        if on_progress and (done % _FRAMES_AT_ONCE == 0 or done == recording.n_frames):
            on_progress(recording.name, done, recording.n_frames)


def decode_table(decoder: PerceptDecoder, percepts: Iterable[Percept]) -> list[StepEvent]:
    """The events of a whole recording."""
    decoder.reset()
    return [event for percept in percepts for event in decoder.update(percept)]
