"""Both networks on frames: which is due in which frame, and what it says; streaming and batched share all of it.

Every frame is letterboxed, located, detected in and encoded once, whoever asks for it.

Shape legend: B images or windows, S pixels of a side, 3 colours, D dimensions, N frames of a window, C components,
R places of the ring.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StateDetection
from stormpsr.data.images import Image, Placement, letterbox
from stormpsr.data.sampling import window_offsets
from stormpsr.data.sources import Frame
from stormpsr.decoding.predictions import DETECTOR_OUTPUTS, N_OUTPUTS, STREAM_OUTPUTS, Prediction
from stormpsr.detectors.base import NOT_FINITE, Detection, SquareDetector
from stormpsr.detectors.known_views import Familiarity
from stormpsr.errors import InputError
from stormpsr.recognizer.model_folder import RecognizerSettings

if TYPE_CHECKING:
    from stormpsr.config import Config
    from stormpsr.detectors.base import StateDetector
    from stormpsr.recognizer.gate import Gate

_MOST_BACKWARDS_SECONDS = 1.0  # cameras may deliver frames slightly out of order


class View:
    """A frame's image as networks take it: squares are made once, the assembly is found once, and read once where both

    networks have the same reader.
    """

    __slots__ = ("_squares", "found_QD", "image", "number", "shares_4")

    def __init__(self, image: Image, number: int = 0) -> None:
        """number: of the frame, for complaints."""
        self.image, self.number = image, number
        self.shares_4: NDArray[np.float32] | None = None  # what the locator that both networks share says
        self.found_QD: NDArray[np.float32] | None = None  # what the reader that both networks share found
        self._squares: dict[int, tuple[Image, Placement]] = {}

    def square(self, size: int) -> tuple[Image, Placement]:
        if size not in self._squares:
            self._squares[size] = letterbox(self.image, size)
        return self._squares[size]


class Detected(NamedTuple):
    """What the detector says of an image."""

    detections: tuple[StateDetection, ...]  # most confident first
    outputs_CF: NDArray[np.float32] | None = None  # the first of `OUTPUT_COLUMNS`; None if it does not read parts
    strangeness: float | None = None  # of the image to the detector; None if it cannot tell


NO_CLEAR_VIEW = Detected(())  # what stands for the detector's word where the gate keeps it from looking


class Stream(Protocol):
    """The spatio-temporal stream, whatever computes it: torch, or an engine for exported graphs."""

    image_size: int
    embedding_dim: int

    @property
    def locator_digest(self) -> str | None:
        """A fingerprint of the network that finds the assembly first, where there is one."""

    def locate(self, image_BSS3: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Boxes around the assembly as shares of the square, (B, 4)."""

    def embed(self, image_BSS3: NDArray[np.uint8], shares_B4: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Embeddings, (B, D); boxes that are known already need not be located again."""

    @property
    def reader_digest(self) -> str | None:
        """A fingerprint of all that finds and reads the assembly, where that is a detector's."""

    def embed_found(self, found_BQD: NDArray[np.float32]) -> NDArray[np.float32]:
        """Embeddings, (B, D), of what a detector with the same reader found already."""

    def predict(self, embedding_BND: NDArray[np.float32], mask_BN: NDArray[np.bool_]) -> NDArray[np.float32]:
        """What the temporal model says of each component, (B, C, 10)."""


class Networks:
    """The detector and the spatio-temporal stream, whichever of them there is. They keep nothing between calls."""

    def __init__(
        self,
        *,
        fps: float,
        settings: RecognizerSettings,
        detector: StateDetector | None = None,
        stream: Stream | None = None,
        config: Config | None = None,
        gate: Gate | None = None,
        path: Path | None = None,
    ) -> None:
        """gate: says where the detector looks; None: wherever it is due. path: the model's folder, for complaints."""
        if detector is None and stream is None:
            raise InputError("the recogniser has neither a detector nor a spatio-temporal stream")
        if (stream is None) != (config is None):
            raise InputError("a spatio-temporal stream comes with its settings")
        self.fps, self.settings, self.path = fps, settings, path
        self.detector, self.stream = detector, stream
        self._shares_locator = stream is not None and same_locator(detector, stream)
        self.shares_reader = self._shares_locator and same_reader(detector, stream)
        self.gate = gate
        if gate is not None and (stream is None or detector is None or self.shares_reader):
            problem = "a gate needs both streams, and an encoder that does not wait for the detector"
            raise InputError(problem, path=path, cure="write detector_gate: 0 in recognizer.yaml")
        if gate is not None and stream is not None and len(gate.weights) != stream.embedding_dim:
            problem = f"the gate takes {len(gate.weights)} numbers, but an embedding has {stream.embedding_dim}"
            raise InputError(problem, path=path, cure="make it again: stormpsr model gate")
        self.window_frames, n_window = (1, 1) if config is None else (config.clips.window_frames, config.clips.n_window)
        self.offsets_N = window_offsets(self.window_frames, n_window)
        self._spoken_F: NDArray[np.bool_] | None = None  # the columns that the temporal model fills

    def schedule(self) -> Schedule:
        return Schedule(
            self.fps,
            detector_stride=None if self.detector is None else self.settings.detector_stride,
            temporal_stride=None if self.stream is None else self.settings.temporal_stride,
            offsets_N=None if self.stream is None else self.offsets_N,
        )

    def ring(self) -> EmbeddingRing:
        dim = 1 if self.stream is None else self.stream.embedding_dim
        return EmbeddingRing(self.offsets_N, self.schedule().encoder_stride, dim)

    def opens(self, ring: EmbeddingRing) -> bool:
        """Whether the gate lets the detector look, by the latest embedding. Where there is none yet, it does."""
        latest_D = ring.latest_D
        return self.gate is None or latest_D is None or self.gate.opens(latest_D, self.settings.detector_gate)

    def detect(self, views: Sequence[View], ticks: Sequence[int]) -> list[Detected]:
        """What the detector says of images. Numbers are rounded as they are kept on disk."""
        try:
            found = self._found(views)
            if self.shares_reader:
                for view, row in zip(views, found, strict=True):
                    view.found_QD = row[0].found_QD if row else None
            return [self._detected(row, tick) for row, tick in zip(found, ticks, strict=True)]
        except InputError as error:
            if len(views) > 1:  # one after the other, to know which image it is
                return [self.detect([view], [tick])[0] for view, tick in zip(views, ticks, strict=True)]
            raise self._complaint("detector", views[0].number, error.problem) from error

    def _complaint(self, network: str, frame: int, problem: str) -> InputError:
        where = None if self.path is None else self.path / ("detector" if network == "detector" else "stream")
        cure = "train or export it again, or take an earlier one"
        return InputError(f"the {network} fails in frame {frame}: {problem}", path=where, cure=cure)

    def _found(self, views: Sequence[View]) -> Sequence[Sequence[Detection]]:
        assert self.detector is not None
        if isinstance(self.detector, SquareDetector):
            squares = [view.square(self.detector.image_size) for view in views]
            return self.detector.detect_squares(squares, min_confidence=0.0, shares_B4=self._located(views))
        least = self.settings.detector_min_confidence
        return self.detector.detect([view.image for view in views], min_confidence=least)

    def _detected(self, found: Sequence[Detection], tick: int) -> Detected:
        """Detections, those that are not sure enough left out; what was read of parts counts in any case."""
        detections = tuple(
            StateDetection(
                tick,
                detection.state_class,
                float(np.float32(detection.confidence)),
                tuple(float(np.float32(side)) for side in detection.box.to_xywh()),  # type: ignore[arg-type]  # four stay four
            )
            for detection in found
            if detection.confidence >= self.settings.detector_min_confidence
        )
        best = found[0] if found else None
        if best is None or best.parts_C3 is None:
            return Detected(detections, None, None if best is None else best.strangeness)
        if not (np.isfinite(best.parts_C3).all() and math.isfinite(best.readable_logit or 0.0)):
            raise InputError(NOT_FINITE)
        parts_C3 = np.log(np.maximum(best.parts_C3, 1e-6))
        readable_C1 = np.full((len(parts_C3), 1), np.nan if best.readable_logit is None else best.readable_logit)
        outputs_CF = np.concatenate([parts_C3, readable_C1], axis=1).astype(np.float32)
        return Detected(detections, outputs_CF, best.strangeness)

    def encode(self, views: Sequence[View]) -> NDArray[np.float32]:
        """Embeddings of images, (B, D)."""
        assert self.stream is not None
        read = [view.found_QD for view in views if view.found_QD is not None]
        if len(read) == len(views):
            found_BD = self.stream.embed_found(np.stack(read))
        else:
            found_BD = self.stream.embed(_pixels(views, self.stream.image_size), self._located(views))
        for view, embedding_D in zip(views, found_BD, strict=True):
            if not np.isfinite(embedding_D).all():
                raise self._complaint("encoder", view.number, NOT_FINITE)
        return found_BD

    def _located(self, views: Sequence[View]) -> NDArray[np.float32] | None:
        """The boxes of the locator that both networks share, (B, 4), each found once; None if they share none."""
        if not self._shares_locator:
            return None
        assert self.stream is not None
        new = [view for view in views if view.shares_4 is None]
        if new:
            shares_B4 = self.stream.locate(_pixels(new, self.stream.image_size))
            for view, shares_4 in zip(new, shares_B4, strict=True):
                view.shares_4 = shares_4
        return np.stack([view.shares_4 for view in views if view.shares_4 is not None])

    def predict(
        self, embedding_BND: NDArray[np.float32], mask_BN: NDArray[np.bool_], frames: Sequence[int] = ()
    ) -> NDArray[np.float32]:
        """For each window what the temporal model says of each component, (B, C, 10).

        Columns are the last of `OUTPUT_COLUMNS`: the logit of a change within the window comes first; the others are
        nan where a model says nothing else. frames: the numbers of the windows' last frames, for complaints.
        """
        assert self.stream is not None
        said_BCF = self.stream.predict(embedding_BND, mask_BN)
        if self._spoken_F is None:  # which columns a model fills does not change from window to window
            spoken_F = np.asarray(~np.isnan(said_BCF).all(axis=(0, 1)))
            spoken_F[0] = True
            self._spoken_F = spoken_F
        for window, said_CF in enumerate(said_BCF):
            if not np.isfinite(said_CF[:, self._spoken_F]).all():
                frame = frames[window] if frames else window
                raise self._complaint("temporal model", frame, NOT_FINITE)
        return said_BCF


def _pixels(views: Sequence[View], size: int) -> NDArray[np.uint8]:
    return np.stack([view.square(size)[0] for view in views])


def foreign_prediction(frame: Frame, due: Due) -> Prediction:
    """Of a frame like none that the networks know: as if they had seen nothing."""
    return Prediction(due.tick, frame.index, frame.time_seconds, () if due.detect else None, is_foreign=True)


def joined_outputs(
    detected: Detected | None, of_stream_CF: NDArray[np.float32] | None
) -> tuple[tuple[StateDetection, ...] | None, NDArray[np.float32] | None, NDArray[np.float32] | None]:
    """What a prediction holds: detections, probabilities of change, and all that is said of each component."""
    change_C = None if of_stream_CF is None else (1 / (1 + np.exp(-of_stream_CF[:, 0]))).astype(np.float32)
    of_detector_CF = None if detected is None else detected.outputs_CF
    said = of_detector_CF if of_stream_CF is None else of_stream_CF
    outputs_CF = None
    if said is not None:
        outputs_CF = np.full((len(said), N_OUTPUTS), np.nan, dtype=np.float32)
        if of_detector_CF is not None:
            outputs_CF[:, DETECTOR_OUTPUTS] = of_detector_CF
        if of_stream_CF is not None:
            outputs_CF[:, STREAM_OUTPUTS] = of_stream_CF
    return (None if detected is None else detected.detections), change_C, outputs_CF


def same_locator(detector: StateDetector | None, stream: Stream) -> bool:
    """Whether both find the assembly by the same network in the same image: after an encoder began from a detector."""
    if not isinstance(detector, SquareDetector) or detector.image_size != stream.image_size:
        return False
    return detector.locator_digest is not None and detector.locator_digest == stream.locator_digest


def same_reader(detector: StateDetector | None, stream: Stream | None) -> bool:
    """Whether the encoder takes what the detector's queries find: each frame is then read once."""
    if not isinstance(detector, SquareDetector) or stream is None:
        return False
    return detector.reader_digest is not None and detector.reader_digest == stream.reader_digest


# ---------------------------------------------------------------------- what is due when
def tick_of(time_seconds: float, fps: float) -> int:
    """The nearest tick. Halves go up, all of them: rounding to even would take frames of twice the rate unevenly."""
    return math.floor(time_seconds * fps + 0.5 + 1e-6)


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done with a frame."""

    tick: int
    detect: bool
    encode: bool
    predict: bool  # run the temporal model
    slot: int  # where the embedding belongs


class Schedule:
    """Feed it time stamps in order.

    A frame's tick is the nearest one on the procedure's clock. Of several frames in a tick the first counts: it is the
    earliest that anything can be known. A network with stride s runs in the first frame of every s ticks, so with even
    frames in ticks 0, s, 2s, ..., and with dropped frames in the next one that comes.
    """

    def __init__(
        self,
        fps: float,
        *,
        detector_stride: int | None,
        temporal_stride: int | None,
        offsets_N: NDArray[np.int64] | None = None,
    ) -> None:
        """A stride of None: there is no such network. `offsets_N`: the frames of a window, 0 is its last."""
        self.fps = fps
        self.detector_stride, self.temporal_stride = detector_stride, temporal_stride
        # only these ticks are ever read by the temporal model, so only these are encoded
        offsets = [] if offsets_N is None else [abs(int(offset)) for offset in offsets_N]
        self.encoder_stride = math.gcd(temporal_stride or 1, *offsets)
        self.reset()

    def reset(self) -> None:
        self._tick: int | None = None
        self._time = -math.inf
        self._looked = self._encoded = self._predicted = -1

    def next(self, time_seconds: float) -> Due | None:
        """What is due in the next frame; None if the tick has had its frame already."""
        if not math.isfinite(time_seconds) or time_seconds < 0:
            raise InputError(f"a frame at {time_seconds} seconds", cure="times count from 0, in seconds")
        if time_seconds < self._time - _MOST_BACKWARDS_SECONDS:
            problem = f"a frame at {time_seconds:.2f} s after one at {self._time:.2f} s"
            raise InputError(problem, cure="feed frames in order, and call reset() for a new recording")
        self._time = max(self._time, time_seconds)
        tick = tick_of(time_seconds, self.fps)
        if self._tick is not None and tick <= self._tick:
            return None
        self._tick = tick
        detect = encode = predict = False
        if self.detector_stride is not None:
            detect = tick // self.detector_stride > self._looked
            self._looked = tick // self.detector_stride
        slot = tick // self.encoder_stride
        if self.temporal_stride is not None:
            encode, predict = slot > self._encoded, tick // self.temporal_stride > self._predicted
            self._encoded, self._predicted = slot, tick // self.temporal_stride
        return Due(tick, detect, encode, predict, slot)


class EmbeddingRing:
    """The latest embeddings, each in the slot of its tick. Memory does not grow."""

    def __init__(self, offsets_N: NDArray[np.int64], encoder_stride: int, dim: int) -> None:
        self._offset_N = offsets_N // encoder_stride  # in slots
        # a gap no wider than the distance between two frames of a window is filled with what came before it
        spacing = int(np.diff(self._offset_N).max()) if len(self._offset_N) > 1 else 1
        self._most_back = max(spacing, 1)
        n_slots = int(-self._offset_N.min()) + self._most_back + 1
        self._embedding_RD = np.zeros((n_slots, dim), dtype=np.float32)
        self._slot_R = np.full(n_slots, -1, dtype=np.int64)
        self.latest_D: NDArray[np.float32] | None = None

    def reset(self) -> None:
        self._slot_R[:] = -1
        self.latest_D = None

    def put(self, slot: int, embedding_D: NDArray[np.float32]) -> None:
        self.latest_D = embedding_D
        place = slot % len(self._slot_R)
        self._embedding_RD[place] = embedding_D
        self._slot_R[place] = slot

    def window(self, slot: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The embeddings of the window that ends in a slot, (N, D), and which of them are known, (N,)."""
        wanted_N = slot + self._offset_N
        found_N = np.full(len(wanted_N), -1, dtype=np.int64)
        for back in range(self._most_back, -1, -1):  # the nearest is written last
            place_N = (wanted_N - back) % len(self._slot_R)
            there_N = (self._slot_R[place_N] == wanted_N - back) & (wanted_N - back >= 0)
            found_N[there_N] = place_N[there_N]
        known_N = found_N >= 0
        return self._embedding_RD[found_N] * known_N[:, None], known_N


# ---------------------------------------------------------------------- one frame after the other
class FramePredictor:
    """Feed it every frame; it says what the networks that were due made of it."""

    def __init__(self, networks: Networks) -> None:
        self.networks = networks
        self._schedule = networks.schedule()
        self._ring = networks.ring()
        self._familiarity = Familiarity()

    def reset(self) -> None:
        """Forget everything, for a new recording."""
        self._schedule.reset()
        self._ring.reset()
        self._familiarity.reset()

    def update(self, frame: Frame) -> Prediction | None:
        """What is to be known of the frame; None if an earlier frame stands for the same tick already."""
        due = self._schedule.next(frame.time_seconds)
        if due is None:
            return None
        view, networks = View(frame.image, frame.index), self.networks
        detected = None
        if due.detect and networks.gate is None:  # first, because the encoder may take what it finds
            detected = networks.detect([view], [due.tick])[0]
            self._familiarity.take(detected.strangeness)
        if self._familiarity.is_foreign:
            return foreign_prediction(frame, due)
        if due.encode:
            self._ring.put(due.slot, networks.encode([view])[0])
        if due.detect and networks.gate is not None:
            detected = networks.detect([view], [due.tick])[0] if networks.opens(self._ring) else NO_CLEAR_VIEW
        of_stream_CF = None
        if due.predict:
            embedding_ND, known_N = self._ring.window(due.slot)
            of_stream_CF = networks.predict(embedding_ND[None], known_N[None], [frame.index])[0]
        return Prediction(due.tick, frame.index, frame.time_seconds, *joined_outputs(detected, of_stream_CF))
