"""Whole recordings at once: the same events as frame by frame, and nothing is computed twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from stormpsr.data.dataset import Dataset
from stormpsr.data.sources import Frame
from stormpsr.decoding.predictions import Prediction, PredictionTable
from stormpsr.recognizer.model_folder import RecognizerModel, load_model
from stormpsr.recognizer.networks import FramePredictor
from stormpsr.recognizer.offline import decode_table, predict_recording, predict_recordings

Frames = Callable[..., list[Frame]]
Seeing = Callable[..., RecognizerModel]
METHODS = ("detection", "temporal", "average", "released")


def both_paths(
    model: RecognizerModel, frames: list[Frame], batch_size: int
) -> tuple[list[Prediction], list[Prediction]]:
    """What the networks say to frames one by one, and in batches; asserts that it is the same."""
    predictor = FramePredictor(model.networks)
    streamed = [prediction for frame in frames if (prediction := predictor.update(frame)) is not None]
    made = predict_recording(model.networks, frames, batch_size=batch_size)
    batched = list(PredictionTable.of(made, model.procedure.n_components))
    for ours, theirs in zip(batched, streamed, strict=True):
        assert (ours.tick, ours.index, ours.time_seconds) == (theirs.tick, theirs.index, theirs.time_seconds)
        assert (ours.detections is None, ours.change_C is None) == (theirs.detections is None, theirs.change_C is None)
        if ours.change_C is not None and theirs.change_C is not None:
            np.testing.assert_allclose(ours.change_C, theirs.change_C, atol=1e-4)
        for a, b in zip(ours.detections or (), theirs.detections or (), strict=True):
            assert a.confidence == pytest.approx(b.confidence, abs=1e-4)
    return streamed, batched


def compare(model: RecognizerModel, frames: list[Frame], batch_size: int) -> int:
    """Asserts that both paths have the same events; returns how many there were."""
    streamed, batched = both_paths(model, frames, batch_size)
    n_events = 0
    for method in METHODS:
        found = [decode_table(model.decoder(method, "build", "report"), table) for table in (streamed, batched)]
        assert [(e.frame, e.step_id, e.time_seconds) for e in found[0]] == [
            (e.frame, e.step_id, e.time_seconds) for e in found[1]
        ]
        n_events += len(found[0])
    return n_events


@pytest.mark.parametrize("batch_size", [1, 7, 64])
@pytest.mark.parametrize("strides", [(1, 1), (4, 1), (4, 3), (6, 2)])
def test_batched_and_streaming_give_the_same_events(
    seeing: Seeing, frames: Frames, strides: tuple[int, int], batch_size: int
) -> None:
    model = seeing(temporal_stride=strides[0], detector_stride=strides[1])
    assert compare(model, frames(), batch_size) >= 10


def test_they_agree_on_dropped_and_uneven_frames(seeing: Seeing, frames: Frames) -> None:
    rng = np.random.default_rng(3)
    kept = [frame for frame in frames() if rng.random() > 0.35]
    uneven = [replace(frame, time_seconds=frame.time_seconds + 0.07 * rng.random()) for frame in kept]
    assert compare(seeing(), uneven, 16) > 5


def test_real_networks_say_the_same(model_folder: Path, frames: Frames) -> None:
    streamed, batched = both_paths(load_model(model_folder), frames(), 32)  # events are a matter of rounding here
    assert sum(prediction.change_C is not None for prediction in streamed) == 15
    assert sum(len(prediction.detections or ()) for prediction in batched) > 0


# ---------------------------------------------------------------------- kept on disk
def perceived(model: RecognizerModel, world: Path, cache: Path) -> tuple[list[PredictionTable], int]:
    """The tables of the test recordings, and in how many images the detector looked for them."""
    with patch.object(model.networks, "detect", wraps=model.networks.detect) as detect:
        tables = [table for _, table in predict_recordings(model, Dataset.open(world, "test", model.procedure), cache)]
    return tables, sum(len(call.args[0]) for call in detect.call_args_list)


def test_what_the_networks_said_is_computed_once(model_folder: Path, world: Path, tmp_path: Path) -> None:
    model = load_model(model_folder)
    first, looked = perceived(model, world, tmp_path)
    again, looked_again = perceived(model, world, tmp_path)
    assert (looked, looked_again) == (120, 0)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a.change_EC, b.change_EC)
        np.testing.assert_array_equal(a.detection_confidence_M, b.detection_confidence_M)
    # another stride is another computation, another threshold is not
    assert perceived(load_model(model_folder, detector_stride=2), world, tmp_path)[1] == 60


def test_a_run_that_was_stopped_goes_on_with_the_next_recording(
    model_folder: Path, world: Path, tmp_path: Path
) -> None:
    model = load_model(model_folder)
    for _ in predict_recordings(model, Dataset.open(world, "test", model.procedure), tmp_path):
        break
    assert perceived(model, world, tmp_path)[1] == 60


def test_damaged_and_foreign_files_are_made_again(model_folder: Path, world: Path, tmp_path: Path) -> None:
    model = load_model(model_folder)
    perceived(model, world, tmp_path)
    first, second = sorted(tmp_path.rglob("*.npz"))
    first.write_bytes(first.read_bytes()[:200])
    second.write_bytes(b"")
    assert perceived(model, world, tmp_path)[1] == 120
