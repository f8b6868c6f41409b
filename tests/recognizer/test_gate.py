"""The gate keeps the detector from looking where the encoder's word makes a clear view unlikely."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stormpsr.cli.main import main
from stormpsr.data.sources import Frame
from stormpsr.errors import InputError
from stormpsr.recognizer.gate import CLEAR, Gate, fit_gate
from stormpsr.recognizer.model_folder import RecognizerModel, load_model, load_settings
from stormpsr.recognizer.networks import FramePredictor, Networks
from stormpsr.recognizer.offline import predict_recording

Frames = Callable[..., list[Frame]]
Seeing = Callable[..., RecognizerModel]
AFTER_FIRST_PART = Gate((40.0, 0.0, 0.0), -20.0)  # `seeing` embeds how bright the square of each part is


def gated(model: RecognizerModel, gate: Gate = AFTER_FIRST_PART, least: float = 0.5) -> Networks:
    from stormpsr.config import parse_config

    own, settings = model.networks, replace(model.settings, detector_gate=least)
    config = parse_config("clips: {window_frames: 16, n_window: 4}", where="test")
    parts: dict[str, Any] = {"detector": own.detector, "stream": own.stream, "config": config}
    return Networks(fps=own.fps, settings=settings, gate=gate, **parts)


@pytest.mark.parametrize("stride", [1, 3])
def test_the_detector_looks_only_where_the_gate_is_open(seeing: Seeing, frames: Frames, stride: int) -> None:
    """The first part is there from frame 12 on; with a stride of 3 the newest embedding may be of an earlier frame."""
    networks = gated(seeing(detector_stride=stride, temporal_stride=4))
    detector: Any = networks.detector
    predictor = FramePredictor(networks)
    found = [prediction for frame in frames() if (prediction := predictor.update(frame)) is not None]
    looks = [prediction for prediction in found if prediction.detections is not None]
    assert [prediction.tick for prediction in looks] == list(range(0, 60, stride))
    assert [bool(prediction.detections) for prediction in looks] == [prediction.tick >= 12 for prediction in looks]
    assert detector.n_images == len([tick for tick in range(0, 60, stride) if tick >= 12])


@pytest.mark.parametrize("batch_size", [5, 64])
def test_many_frames_at_once_are_gated_like_one_after_the_other(
    seeing: Seeing, frames: Frames, batch_size: int
) -> None:
    networks = gated(seeing(detector_stride=3, temporal_stride=4))
    predictor = FramePredictor(networks)
    batched = predict_recording(networks, frames(), batch_size=batch_size)
    for frame, prediction in zip(frames(), batched, strict=True):
        one = predictor.update(frame)
        assert one is not None
        assert one.detections == prediction.detections


def test_a_new_recording_does_not_begin_with_the_gate_of_the_last(seeing: Seeing, frames: Frames) -> None:
    networks = gated(seeing(detector_stride=1, temporal_stride=4))
    predictor = FramePredictor(networks)
    for frame in frames():
        predictor.update(frame)
    predictor.reset()
    first = predictor.update(frames()[0])
    assert first is not None
    assert first.detections == ()


class Recorded:
    """What the fit needs of a recording."""

    path = Path("nowhere")

    def __init__(self, frames: list[Frame]) -> None:
        self._frames = frames

    def frames(self) -> list[Frame]:
        return self._frames


class UnsureAtFirst:
    """A detector that is sure once the first part is there."""

    def __init__(self, detector: Any) -> None:
        self.detector, self.procedure = detector, detector.procedure

    def detect(self, images: Any, *, min_confidence: float = 0.1) -> list[list[Any]]:
        found: list[list[Any]] = self.detector.detect(images)
        return [[replace(d, confidence=0.9 if d.state_class > 1 else CLEAR / 2) for d in row] for row in found]


def test_the_gate_learns_when_the_detector_is_sure(seeing: Seeing, frames: Frames) -> None:
    model = seeing(detector_stride=1, temporal_stride=4)
    detector: Any = UnsureAtFirst(model.networks.detector)
    model.networks.detector = detector
    recordings: list[Any] = [Recorded(frames(seed)) for seed in range(4)]
    fitted = fit_gate(model, recordings, keep=0.95)
    assert fitted.n_looks == 120
    assert fitted.clear_share == pytest.approx(48 / 60)
    assert fitted.kept_share == pytest.approx(0.95, abs=0.02)
    assert fitted.open_share < 0.82
    dark, bright = np.array([0.3, 0.3, 0.3], np.float32), np.array([1.0, 1.0, 1.0], np.float32)
    assert not fitted.gate.opens(dark, fitted.least)
    assert fitted.gate.opens(bright, fitted.least)


def test_a_gate_needs_recordings_in_which_views_differ(seeing: Seeing, frames: Frames) -> None:
    recordings: list[Any] = [Recorded(frames(seed)) for seed in range(2)]
    with pytest.raises(InputError, match="nothing but clear views"):
        fit_gate(seeing(), recordings)
    with pytest.raises(InputError, match="at least two recordings"):
        fit_gate(seeing(), recordings[:1])
    with pytest.raises(InputError, match="needs both streams"):
        fit_gate(seeing(detector=False), recordings)


# ---------------------------------------------------------------------- the model's folder
@pytest.fixture
def model(model_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model_folder, tmp_path / "model"))


def with_gate(folder: Path, least: float) -> None:
    path = folder / "recognizer.yaml"
    path.write_text(path.read_text().replace("detector_gate: 0.0", f"detector_gate: {least}"))


def test_a_model_is_loaded_with_its_gate_and_what_it_said_without_is_not_taken(model: Path) -> None:
    without = load_model(model, device="cpu")
    assert without.networks.gate is None
    Gate((0.1,) * 16, 0.5).save(model)
    assert load_model(model, device="cpu").digest() == without.digest()  # it is there, but does not decide
    with_gate(model, 0.25)
    loaded = load_model(model, device="cpu")
    assert loaded.networks.gate == Gate((0.1,) * 16, 0.5)
    first = loaded.digest()
    Gate((0.2,) * 16, 0.5).save(model)
    assert len({without.digest(), first, load_model(model, device="cpu").digest()}) == 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "there is no such file, but recognizer.yaml asks for a gate; 'stormpsr model gate' makes it"),
        ('{"format": "stormpsr gate 1", "weights": [1, 2], "bias": 0}', "takes 2 numbers, but an embedding has 16"),
        ('{"format": "other", "weights": [1], "bias": 0}', "this is no gate"),
        ('{"weights": ["a"], "bias": 0}', "weights"),
    ],
)
def test_a_gate_that_does_not_fit_is_refused(model: Path, text: str | None, complaint: str) -> None:
    with_gate(model, 0.5)
    if text is not None:
        (model / "gate.json").write_text(text)
    with pytest.raises(InputError, match=complaint):
        load_model(model, device="cpu")


def test_the_command_stores_a_gate(
    model: Path, world: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stormpsr.recognizer.gate.CLEAR", _middle_confidence(model, world))
    assert main(["model", "gate", str(model), "--data", str(world), "--keep", "0.9", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert load_settings(model / "recognizer.yaml").detector_gate == pytest.approx(said["least"])
    assert said["looks"] == 60
    assert load_model(model, device="cpu").networks.gate is not None


def _middle_confidence(model: Path, world: Path) -> float:
    """Such that half of what the untrained detector sees is clear."""
    from stormpsr.data.dataset import Dataset

    loaded = load_model(model, device="cpu")
    recording = next(iter(Dataset.open(world, "val", loaded.procedure)))
    found = predict_recording(loaded.networks, recording.frames())
    return float(np.median([prediction.detections[0].confidence for prediction in found if prediction.detections]))
