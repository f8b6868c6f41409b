"""What a detector sees: in annotated frames, and whether it is right; in whole recordings, kept as files.

Files have the published columns, one per recording. A recording that is there already is not looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.cluster import Cluster, loaded_once, map_recordings
from stormpsr.data.annotated_frames import AnnotatedFrame, images_of
from stormpsr.data.dataset import Dataset
from stormpsr.data.detection_csv import write_detections
from stormpsr.data.events import StateDetection
from stormpsr.data.recording import Recording, RecordingReference, folders_read
from stormpsr.detectors.base import Detection, StateDetector
from stormpsr.errors import InputError
from stormpsr.files import read_json, write_json
from stormpsr.models.checkpoint import keep_freed_memory
from stormpsr.procedure.model import Procedure

OnProgress = Callable[[int, int], None]  # frames done, frames in all
_CHUNK = 32


@dataclass(frozen=True, eq=False)
class PredictedFrame:
    """A frame and what a detector said about it, most confident first."""

    frame: AnnotatedFrame
    width: int
    height: int
    detections: tuple[Detection, ...]

    @property
    def best(self) -> Detection | None:
        return self.detections[0] if self.detections else None

    def is_right(self, detection: Detection, least_overlap: float = 0.5) -> bool:
        """Whether a detection has the right class and overlaps the true box. In an unreadable frame none does."""
        if self.frame.box is None or detection.state_class != self.frame.state_class:
            return False
        return self.frame.box.iou(detection.box) >= least_overlap


def predict_frames(
    detector: StateDetector,
    frames: Sequence[AnnotatedFrame],
    *,
    min_confidence: float = 0.01,
    on_progress: OnProgress | None = None,
) -> list[PredictedFrame]:
    """Run a detector over frames."""
    keep_freed_memory()
    seen: list[PredictedFrame] = []
    for start in range(0, len(frames), _CHUNK):
        chunk = frames[start : start + _CHUNK]
        images = list(images_of(chunk))
        rows = zip(chunk, images, detector.detect(images, min_confidence=min_confidence), strict=True)
        seen += [PredictedFrame(frame, image.shape[1], image.shape[0], tuple(found)) for frame, image, found in rows]
        if on_progress:
            on_progress(len(seen), len(frames))
    return seen


def confidence_and_success(seen: Iterable[PredictedFrame]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The best detection of each frame that has one: its confidence, and whether it is right."""
    rows = [(frame.best.confidence, frame.is_right(frame.best)) for frame in seen if frame.best]
    return np.array([row[0] for row in rows], dtype=np.float64), np.array([row[1] for row in rows], dtype=bool)


NOTES_FILE = "detector.json"

OnRecordingProgress = Callable[[str, int, int], None]  # recording, frames done, frames in all


@dataclass(frozen=True)
class RunResult:
    """What a run did."""

    folder: Path
    made: tuple[str, ...]
    skipped: tuple[str, ...]  # there already


def detect_recordings(
    detector: StateDetector,
    dataset: Dataset,
    out: Path,
    *,
    digest: str,
    min_confidence: float,
    every: int = 1,
    cluster: Cluster | None = None,
    on_progress: OnRecordingProgress | None = None,
) -> RunResult:
    """Write `NAME.csv` for each recording that has none yet. `digest` says which detector it is.

    With `every`, only every so many frames are looked at. The workers of a cluster read the detector with `load`; the
    files are written here.
    """
    if every < 1:
        raise InputError(f"every is {every}", cure="1 looks at all frames")
    names = dataset.names
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two recordings are called {name!r}", cure="choose one split")
    _claim(out, {"detector": digest, "kind": detector.kind, "min_confidence": min_confidence, "every": every})
    missing = [name for name in names if not (out / f"{name}.csv").is_file()]

    def write(place: int, detections: list[StateDetection]) -> None:
        write_detections(out / f"{missing[place]}.csv", {missing[place]: detections})

    def detect_here(name: str, report: OnRecordingProgress) -> list[StateDetection]:
        return list(_detections_of(detector, dataset[name], min_confidence, every, report))

    if cluster is None:
        here = ((name, name) for name in missing)
        made = map_recordings(detect_here, here, keep=write, on_progress=on_progress)
    else:
        recordings = [dataset[name] for name in missing]
        made = map_recordings(
            partial(_detect_there, cluster.load, dataset.procedure, digest, min_confidence, every),
            [(recording.name, recording.reference()) for recording in recordings],
            cluster=cluster,
            reads=folders_read(recordings),
            keep=write,
            on_progress=on_progress,
        )
    with closing(made):
        for _ in made:
            pass
    return RunResult(out, tuple(missing), tuple(name for name in names if name not in missing))


def _detect_there(
    load: Callable[[], StateDetector],
    procedure: Procedure,
    digest: str,
    min_confidence: float,
    every: int,
    reference: RecordingReference,
    report: OnRecordingProgress,
) -> list[StateDetection]:
    """The detections of a recording, on a worker of a cluster."""
    detector = loaded_once(digest, load)
    return list(_detections_of(detector, reference.open(procedure), min_confidence, every, report))


def _detections_of(
    detector: StateDetector,
    recording: Recording,
    min_confidence: float,
    every: int,
    on_progress: OnRecordingProgress | None,
) -> Iterator[StateDetection]:
    keep_freed_memory()
    done = 0
    frames = islice(recording.frames(), 0, None, every)
    while chunk := list(islice(frames, _CHUNK)):
        found = detector.detect([frame.image for frame in chunk], min_confidence=min_confidence)
        for frame, detections in zip(chunk, found, strict=True):
            yield from (detection.in_frame(frame.index) for detection in detections)
        done = min(done + len(chunk) * every, recording.n_frames)
        if on_progress:
            on_progress(recording.name, done, recording.n_frames)


def _claim(out: Path, notes: dict[str, Any]) -> None:
    """Write down which detector fills the folder, or make sure that it is the same one as before."""
    path = out / NOTES_FILE
    if out.is_file():
        raise InputError("the output is a file", path=out, cure="give the path of a folder")
    if path.is_file():
        if read_json(path, cure="delete that folder") != notes:
            cure = "choose another folder, or delete this one"
            raise InputError("the folder holds detections made otherwise", path=path, cure=cure)
        return
    if out.exists() and any(out.glob("*.csv")):
        raise InputError("the folder holds other CSV files", path=out, cure="choose another folder")
    write_json(path, notes)
