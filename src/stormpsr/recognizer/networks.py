"""Both networks on frames, one at a time: every frame is looked at once, however many methods decide upon it.

Shape legend: B images or windows, S pixels of a side, 3 colours, D dimensions, N frames of a window, C components.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from stormpsr.data.events import StateDetection
from stormpsr.data.images import Image, letterbox
from stormpsr.data.sampling import window_offsets
from stormpsr.data.sources import Frame
from stormpsr.decoding.predictions import Prediction
from stormpsr.errors import InputError
from stormpsr.recognizer.model_folder import RecognizerSettings
from stormpsr.recognizer.schedule import EmbeddingRing, Schedule

if TYPE_CHECKING:
    from stormpsr.config import Config
    from stormpsr.detectors.base import StateDetector
    from stormpsr.models.stream import SpatioTemporalModel


class Networks:
    """The detector and the spatio-temporal stream, whichever of them there is. They keep nothing between calls."""

    def __init__(
        self,
        *,
        fps: float,
        settings: RecognizerSettings,
        detector: StateDetector | None = None,
        stream: SpatioTemporalModel | None = None,
        config: Config | None = None,
    ) -> None:
        if detector is None and stream is None:
            raise InputError("the recogniser has neither a detector nor a spatio-temporal stream")
        if (stream is None) != (config is None):
            raise InputError("a spatio-temporal stream comes with its settings")
        self.fps, self.settings = fps, settings
        self.detector, self.stream = detector, None if stream is None else stream.eval()
        clips = None if config is None else config.clips
        self.window_frames = 0 if clips is None else clips.window_frames
        n_window = 1 if clips is None else clips.n_window
        self.offsets_N = window_offsets(max(self.window_frames, 1), n_window)

    def schedule(self) -> Schedule:
        return Schedule(
            self.fps,
            detector_stride=None if self.detector is None else self.settings.detector_stride,
            temporal_stride=None if self.stream is None else self.settings.temporal_stride,
            offsets_N=None if self.stream is None else self.offsets_N,
        )

    def ring(self) -> EmbeddingRing:
        dim = 1 if self.stream is None else self.stream.encoder.embedding_dim
        return EmbeddingRing(self.offsets_N, self.schedule().encoder_stride, dim)

    def detect(self, images: Sequence[Image], ticks: Sequence[int]) -> list[tuple[StateDetection, ...]]:
        """The detections in images, most confident first. Numbers are rounded as they are kept on disk."""
        assert self.detector is not None
        found = self.detector.detect(images, min_confidence=self.settings.detector_min_confidence)
        return [
            tuple(
                StateDetection(
                    tick,
                    detection.state_class,
                    float(np.float32(detection.confidence)),
                    tuple(float(np.float32(side)) for side in detection.box),  # type: ignore[arg-type]  # four stay four
                )
                for detection in row
            )
            for row, tick in zip(found, ticks, strict=True)
        ]

    def encode(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Embeddings of images, (B, D)."""
        assert self.stream is not None
        size = self.stream.encoder.image_size
        image_BSS3 = torch.from_numpy(np.stack([letterbox(image, size)[0] for image in images]))
        with torch.inference_mode():
            return np.asarray(self.stream.encoder.embed(image_BSS3).numpy(), dtype=np.float32)

    def predict(self, embedding_BND: NDArray[np.float32], mask_BN: NDArray[np.bool_]) -> NDArray[np.float32]:
        """For each window, the probability that each component changed within it, (B, C)."""
        assert self.stream is not None
        with torch.inference_mode():
            logits_BC = self.stream.temporal(torch.from_numpy(embedding_BND), torch.from_numpy(mask_BN))
            return np.asarray(torch.sigmoid(logits_BC).numpy(), dtype=np.float32)


class FramePredictor:
    """Feed it every frame; it says what the networks that were due made of it."""

    def __init__(self, networks: Networks) -> None:
        self.networks = networks
        self._schedule = networks.schedule()
        self._ring = networks.ring()

    def reset(self) -> None:
        """Forget everything, for a new recording."""
        self._schedule.reset()
        self._ring.reset()

    def update(self, frame: Frame) -> Prediction | None:
        """What is to be known of the frame; None if an earlier frame stands for the same tick already."""
        due = self._schedule.next(frame.time_seconds)
        if due is None:
            return None
        detections = self.networks.detect([frame.image], [due.tick])[0] if due.detect else None
        if due.encode:
            self._ring.put(due.slot, self.networks.encode([frame.image])[0])
        change_C = None
        if due.predict:
            embedding_ND, known_N = self._ring.window(due.slot)
            change_C = self.networks.predict(embedding_ND[None], known_N[None])[0]
        return Prediction(due.tick, frame.index, frame.time_seconds, detections, change_C)
