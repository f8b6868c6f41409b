"""Training learns, stops, and goes on as if it had not stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stormpsr.data.annotated_frames import FrameSet, read_frames
from stormpsr.detectors.base import TorchDetector
from stormpsr.detectors.registry import make_detector
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.training.detector_batches import BatchSettings
from stormpsr.training.detector_settings import TrainingProgress, TrainingSettings
from stormpsr.training.tasks.detector import PAUSE_FOLDER

TINY = {"image_size": 64, "backbone": "test_efficientnet", "weights": "none", "width": 16, "crop_size": 32, "heads": 2}
SHORT = TrainingSettings(
    steps=6, warmup_steps=1, validate_every=0, average=0.5, batch=BatchSettings(batch_size=4), calibration_frames=8
)


@pytest.fixture
def frames(lamp_data: Path, lamp: Procedure) -> FrameSet:
    return read_frames(lamp_data, "train", lamp)


def new_detector(procedure: Procedure) -> TorchDetector:
    torch.manual_seed(1)
    detector: Any = make_detector("compact", procedure, TINY)
    assert isinstance(detector, TorchDetector)
    return detector


def weights(detector: TorchDetector) -> dict[str, Any]:
    return {name: tensor.clone() for name, tensor in detector.network.state_dict().items()}


def test_training_brings_the_loss_down(frames: FrameSet) -> None:
    seen: list[TrainingProgress] = []
    settings = replace(SHORT, steps=40, learning_rate=5e-3, batch=BatchSettings(batch_size=8))
    new_detector(frames.procedure).train(frames, frames, settings, on_progress=seen.append)
    totals = [sum(progress.losses.values()) for progress in seen]
    assert [progress.step for progress in seen] == list(range(1, 41))
    assert np.mean(totals[-8:]) < 0.7 * np.mean(totals[:4])


def test_stopped_training_goes_on_and_ends_where_it_would_have_ended(frames: FrameSet, tmp_path: Path) -> None:
    straight = new_detector(frames.procedure)
    straight.train(frames, frames, SHORT, folder=tmp_path / "straight")

    def stop_at_three(progress: TrainingProgress) -> None:
        if progress.step == 3:
            raise KeyboardInterrupt

    stopped = new_detector(frames.procedure)
    with pytest.raises(KeyboardInterrupt):
        stopped.train(frames, frames, SHORT, folder=tmp_path / "stopped", on_progress=stop_at_three)
    assert (tmp_path / "stopped" / PAUSE_FOLDER).is_dir()
    resumed = new_detector(frames.procedure)
    result = resumed.train(frames, frames, SHORT, folder=tmp_path / "stopped")
    assert result.resumed_at == 3
    assert not (tmp_path / "stopped" / PAUSE_FOLDER).exists()
    for name, tensor in weights(straight).items():
        assert torch.allclose(tensor.float(), weights(resumed)[name].float(), atol=1e-5), name


def test_unfinished_training_with_other_settings_is_not_mixed(frames: FrameSet, tmp_path: Path) -> None:
    def stop(progress: TrainingProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        new_detector(frames.procedure).train(frames, frames, SHORT, folder=tmp_path, on_progress=stop)
    with pytest.raises(InputError, match="other settings") as caught:
        new_detector(frames.procedure).train(frames, frames, replace(SHORT, seed=5), folder=tmp_path)
    assert caught.value.path == str(tmp_path / PAUSE_FOLDER)


def test_validation_is_reported_when_it_is_due_and_at_the_end(frames: FrameSet) -> None:
    settings = replace(SHORT, steps=5, validate_every=2, validation_frames=3)
    result = new_detector(frames.procedure).train(frames, frames, settings)
    assert [progress.step for progress in result.history] == [2, 4, 5]
    assert all(progress.share_right is not None and 0 <= progress.share_right <= 1 for progress in result.history)


def test_frames_of_another_procedure_are_refused(frames: FrameSet, meccano: Procedure) -> None:
    with pytest.raises(InputError, match="trained for procedure 'meccano'"):
        new_detector(meccano).train(frames, frames, SHORT)


def test_a_loss_that_is_no_number_stops_training_at_once(frames: FrameSet) -> None:
    detector = new_detector(frames.procedure)
    with torch.no_grad():
        next(iter(detector.network.parameters())).fill_(float("nan"))
    with pytest.raises(InputError, match="training diverged: the loss of step 0 is nan"):
        detector.train(frames, frames, SHORT)


def test_the_learning_rate_rises_then_falls_to_nearly_nothing() -> None:
    settings = TrainingSettings(steps=100, warmup_steps=10)
    rates = [settings.rate_at(step) for step in range(100)]
    assert max(rates) == pytest.approx(1.0, abs=0.01)
    assert rates.index(max(rates)) == 10
    assert rates[0] < 0.1
    assert rates[-1] < 0.02


@pytest.mark.parametrize(("name", "value"), [("steps", 0), ("learning_rate", 0.0), ("average", 1.0), ("seed", -1)])
def test_settings_that_make_no_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError):
        replace(TrainingSettings(), **{name: value})  # type: ignore[arg-type]
