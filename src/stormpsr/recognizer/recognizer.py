"""The streaming recogniser: the one way from images to step events.

    recognizer = Recognizer.load("vehicle", variant="assy")
    for result in recognizer.stream("recording.mp4"):   # or a folder, a camera's index or address, a list of images
        for event in result.events:
            ...
    recognizer.run("recording.mp4").save("steps.csv")

Nothing it says about a frame depends on frames that come later. Importing this needs numpy alone; loading a model needs
torch, or, if it was exported, ONNX Runtime or OpenVINO.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.boxes import Box
from stormpsr.data.events import StepEvent
from stormpsr.data.sources import Frame, LatestOnly, SourceLike, open_source
from stormpsr.decoding.predictions import Prediction, PredictionDecoder
from stormpsr.procedure.model import Procedure, StateBits, Variant
from stormpsr.recognizer.results import Results

if TYPE_CHECKING:
    from stormpsr.recognizer.model_folder import RecognizerModel
    from stormpsr.recognizer.networks import FramePredictor

Unexpected = Literal["drop", "report"]
DEFAULT_MODEL = "vehicle"


@dataclass(frozen=True, eq=False, slots=True)
class FrameResult:
    """What the recogniser made of one frame."""

    frame: Frame
    events: tuple[StepEvent, ...]  # the steps that this frame completes
    prediction: Prediction | None  # what the networks said; None if an earlier frame stands for the same tick
    box: Box | None  # where the assembly was seen last
    share_S: NDArray[np.float64]  # evidence per step id, as a share of what completes the step

    @property
    def index(self) -> int:
        return self.frame.index

    @property
    def time_seconds(self) -> float:
        return self.frame.time_seconds


class Recognizer:
    """Feed it every frame; it returns the steps that the frame completes."""

    def __init__(
        self, predictor: FramePredictor, decoder: PredictionDecoder, method: str, notes: Sequence[str] = ()
    ) -> None:
        self.predictor, self._ticks, self.method = predictor, decoder, method
        self.decoder = decoder.decoder
        self.notes = tuple(notes)  # what a user should know, for example that a stream is missing
        self.prediction: Prediction | None = None  # what the networks said about the latest frame
        self.threads: AbstractContextManager[None] = nullcontext()  # around the networks' work on a frame

    @classmethod
    def load(
        cls,
        model: str | Path = DEFAULT_MODEL,
        method: str | None = None,
        variant: str | None = None,
        *,
        device: str = "auto",
        threads: int | None = None,
        unexpected: Unexpected | None = None,
        temporal_stride: int | None = None,
        detector_stride: int | None = None,
    ) -> Recognizer:
        """A recogniser from a model's folder, or a shipped one by name.

        method: one of `decoding.methods`, or a class of one's own, `package.module:Class`. The default is the model's
        own (`method` in recognizer.yaml), else `average`, both streams; where one is missing, the other one decides
        alone, and `notes` says so.
        variant: the procedure's first where none is given.
        device: where the networks compute: `auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1` or `mps`.
        threads: of the processor that they use; None leaves it to what computes them.
        unexpected: whether steps that the variant does not expect are dropped or reported. Where it is not given, the
        method decides: the learned filter reports them, the others drop them.
        """
        from stormpsr.recognizer.model_folder import load_model

        loaded = load_model(
            model, temporal_stride=temporal_stride, detector_stride=detector_stride, device=device, threads=threads
        )
        return cls.of(loaded, method, variant, unexpected=unexpected)

    @classmethod
    def of(
        cls,
        model: RecognizerModel,
        method: str | None = None,
        variant: str | None = None,
        *,
        unexpected: Unexpected | None = None,
    ) -> Recognizer:
        """A recogniser of a model that is loaded already."""
        from stormpsr.recognizer.networks import FramePredictor

        name = model.method_or_fallback(method)
        return cls(FramePredictor(model.networks), model.decoder(name, variant, unexpected), name, model.notes)

    @property
    def procedure(self) -> Procedure:
        return self.decoder.procedure

    @property
    def variant(self) -> Variant:
        return self.decoder.variant

    # ------------------------------------------------------------------ a whole source
    def stream(self, source: SourceLike, *, fps: float | None = None) -> Iterator[FrameResult]:
        """The result of every frame, as it comes. Recognition begins anew.

        source: a video or a folder of frames by its path, a webcam's index, a camera's address, a recording or another
        `FrameSource`, or `Frame`s or RGB images of uint8 one after the other. Of a camera, frames that come while
        another is looked at are passed over.
        fps: of images that carry no times; the procedure's where it is not given.
        """
        opened = open_source(source, self.procedure, fps=fps)
        self.reset()
        return self._stream(LatestOnly(opened).frames() if opened.is_live else opened.frames())

    def _stream(self, frames: Iterator[Frame]) -> Iterator[FrameResult]:
        box = None
        for frame in frames:
            before = self.prediction
            events = self.update(frame)
            new = self.prediction if self.prediction is not before else None
            if new is not None and new.detections is not None:
                box = new.box
            yield FrameResult(frame, tuple(events), new, box, self.share)

    def run(self, source: SourceLike, *, fps: float | None = None) -> Results:
        """All events of a source that has an end. See `stream` for what a source may be."""
        opened = open_source(source, self.procedure, fps=fps)
        events: list[StepEvent] = []
        n_frames = 0
        for result in self.stream(opened):
            events += result.events
            n_frames = result.index + 1
        events += self.finish()
        rate = opened.fps or fps or self.procedure.fps
        return Results(events, self.procedure, self.variant.name, self.method, rate, n_frames, opened.name)

    # ------------------------------------------------------------------ one frame
    def reset(self) -> None:
        """Forget everything, for a new recording."""
        self.predictor.reset()
        self._ticks.reset()
        self.prediction = None

    def update(self, frame: Frame) -> list[StepEvent]:
        """The steps that are completed now. A second frame for the same tick of the clock changes nothing."""
        with self.threads:
            prediction = self.predictor.update(frame)
        if prediction is None:
            return []
        self.prediction = prediction
        return self._ticks.update(prediction)

    def finish(self) -> list[StepEvent]:
        """What is only known once the work has ended: expected steps that never came, by methods that tell of them."""
        return self._ticks.finish()

    def correct(self, component: int, bit: int) -> None:
        """Somebody who knows says what is true (0 absent, 1 correct, -1 wrong): recognition goes on from there."""
        self.decoder.correct(component, bit)

    def restore(self, bits: Sequence[int]) -> None:
        """Go on from a state that is known, as after a restart."""
        self.decoder.restore(bits)

    # ------------------------------------------------------------------ for displays
    @property
    def state(self) -> StateBits | None:
        """The state that the reported steps lead to; None if the method knows none."""
        return self.decoder.state

    @property
    def evidence(self) -> NDArray[np.float64]:
        """Evidence per step id."""
        return self.decoder.evidence

    @property
    def share(self) -> NDArray[np.float64]:
        """Evidence per step id, as a share of what completes the step."""
        return self.decoder.share

    @property
    def component_probabilities(self) -> NDArray[np.float64] | None:
        """How surely each component is installed, where the method has such a belief."""
        return self.decoder.component_probabilities
