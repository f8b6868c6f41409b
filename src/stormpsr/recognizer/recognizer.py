"""The streaming recogniser: the one way from images to step events.

    recognizer = Recognizer.load("models/vehicle", variant="assy")
    for frame in source.frames():
        for event in recognizer.update(frame):
            ...

Nothing it says about a frame depends on frames that come later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StepEvent
from stormpsr.data.sources import Frame
from stormpsr.decoding.predictions import Prediction, PredictionDecoder
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateBits
from stormpsr.recognizer.model_folder import DEFAULT_MODEL, RecognizerModel, load_model
from stormpsr.recognizer.networks import FramePredictor

Unexpected = Literal["drop", "report"]


class Recognizer:
    """Feed it every frame; it returns the steps that the frame completes."""

    def __init__(
        self, predictor: FramePredictor, decoder: PredictionDecoder, method: str, notes: Sequence[str] = ()
    ) -> None:
        self.predictor, self.decoder, self.method = predictor, decoder, method
        self.notes = tuple(notes)  # what a user should know, for example that a stream is missing
        self.prediction: Prediction | None = None  # what the networks said about the latest frame

    @classmethod
    def load(
        cls,
        folder: str | Path = DEFAULT_MODEL,
        method: str | None = None,
        variant: str | None = None,
        *,
        unexpected: Unexpected = "drop",
        temporal_stride: int | None = None,
        detector_stride: int | None = None,
    ) -> Recognizer:
        """A recogniser from a model's folder, or a shipped one by name.

        method: one of `decoding.methods`, or a class of one's own, `package.module:Class`. The default is `average`,
        both streams; where one is missing, the other one decides alone, and `notes` says so.
        variant: the procedure's first where none is given.
        unexpected: whether steps that the variant does not expect are dropped or reported.
        """
        model = load_model(folder, temporal_stride=temporal_stride, detector_stride=detector_stride)
        return cls.of(model, method, variant, unexpected=unexpected)

    @classmethod
    def of(
        cls,
        model: RecognizerModel,
        method: str | None = None,
        variant: str | None = None,
        *,
        unexpected: Unexpected = "drop",
    ) -> Recognizer:
        """A recogniser of a model that is loaded already."""
        name = model.method_or_fallback(method)
        return cls(FramePredictor(model.networks), model.decoder(name, variant, unexpected), name, model.notes)

    @property
    def procedure(self) -> Procedure:
        return self.decoder.procedure

    def reset(self) -> None:
        """Forget everything, for a new recording."""
        self.predictor.reset()
        self.decoder.reset()
        self.prediction = None

    def update(self, frame: Frame) -> list[StepEvent]:
        """The steps that are completed now. A second frame for the same tick of the clock changes nothing."""
        prediction = self.predictor.update(frame)
        if prediction is None:
            return []
        self.prediction = prediction
        return self.decoder.update(prediction)

    # ------------------------------------------------------------------ for displays
    @property
    def state(self) -> StateBits | None:
        """The state that the reported steps lead to."""
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
    def pending(self) -> dict[int, float]:
        """Steps that have some evidence, with their share of what completes them."""
        return self.decoder.pending


class SeveralMethods:
    """Several methods side by side upon one look at every frame."""

    def __init__(self, predictor: FramePredictor, decoders: Mapping[str, PredictionDecoder]) -> None:
        if not decoders:
            raise InputError("there is no method to compare")
        self.predictor, self.decoders = predictor, dict(decoders)
        self.prediction: Prediction | None = None

    @classmethod
    def of(
        cls,
        model: RecognizerModel,
        methods: Sequence[str] | None = None,
        variant: str | None = None,
        *,
        unexpected: Unexpected = "drop",
    ) -> SeveralMethods:
        """All methods of the main table, or those that are named."""
        chosen = model.methods if methods is None else methods
        decoders = {method: model.decoder(method, variant, unexpected) for method in chosen}
        return cls(FramePredictor(model.networks), decoders)

    def reset(self) -> None:
        """Forget everything, for a new recording."""
        self.predictor.reset()
        for decoder in self.decoders.values():
            decoder.reset()
        self.prediction = None

    def update(self, frame: Frame) -> dict[str, list[StepEvent]]:
        """The steps that are completed now, by method."""
        prediction = self.predictor.update(frame)
        if prediction is None:
            return {method: [] for method in self.decoders}
        self.prediction = prediction
        return {method: decoder.update(prediction) for method, decoder in self.decoders.items()}
