"""What a detector sees in annotated frames, and whether it is right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from stormpsr.detection.detector import StateDetector
from stormpsr.detection.frames import AnnotatedFrame
from stormpsr.detection.overlap import overlap_of_boxes
from stormpsr.models.detector import Detection
from stormpsr.recording import read_image

__all__ = ["Box", "SeenFrame", "confidence_and_success", "look_at_frames"]

Box = tuple[float, float, float, float]  # left, top, width, height in pixels
OnProgress = Callable[[int, int], None]  # frames done, frames in all
_CHUNK = 32


@dataclass(frozen=True, eq=False)
class SeenFrame:
    """A frame and what a detector said about it, most confident first."""

    frame: AnnotatedFrame
    width: int
    height: int
    detections: tuple[Detection, ...]

    @property
    def true_box(self) -> Box | None:
        box = self.frame.box
        if box is None:
            return None
        return box.left * self.width, box.top * self.height, box.width * self.width, box.height * self.height

    @property
    def best(self) -> Detection | None:
        return self.detections[0] if self.detections else None

    def is_right(self, detection: Detection, least_overlap: float = 0.5) -> bool:
        """Whether a detection has the right class and overlaps the true box. In an unreadable frame none does."""
        truth, box = self.frame.box, self.true_box
        if truth is None or box is None or detection.state_class != truth.state_class:
            return False
        return overlap_of_boxes(box, detection.box) >= least_overlap


def look_at_frames(
    detector: StateDetector,
    frames: Sequence[AnnotatedFrame],
    *,
    min_confidence: float = 0.01,
    on_progress: OnProgress | None = None,
) -> list[SeenFrame]:
    """Run a detector over frames."""
    seen: list[SeenFrame] = []
    for chunk in _chunks(frames):
        images = [read_image(frame.image) for frame in chunk]
        for frame, image, found in zip(
            chunk, images, detector.detect(images, min_confidence=min_confidence), strict=True
        ):
            seen.append(SeenFrame(frame, image.shape[1], image.shape[0], tuple(found)))
        if on_progress:
            on_progress(len(seen), len(frames))
    return seen


def confidence_and_success(seen: Iterable[SeenFrame]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The best detection of each frame that has one: its confidence, and whether it is right."""
    rows = [(frame.best.confidence, frame.is_right(frame.best)) for frame in seen if frame.best]
    return np.array([row[0] for row in rows], dtype=np.float64), np.array([row[1] for row in rows], dtype=bool)


def _chunks(frames: Sequence[AnnotatedFrame]) -> Iterable[list[AnnotatedFrame]]:
    iterator = iter(frames)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk
