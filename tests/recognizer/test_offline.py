"""Whole recordings at once: the same events as frame by frame, and nothing is computed twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from stormpsr.data.dataset import Dataset
from stormpsr.data.sources import Frame
from stormpsr.decoding.predictions import PredictionTable
from stormpsr.recognizer.model_folder import RecognizerModel, load_model
from stormpsr.recognizer.offline import decode_table, predict_recording, predict_recordings
from stormpsr.recognizer.recognizer import SeveralMethods

Frames = Callable[..., list[Frame]]
Seeing = Callable[..., RecognizerModel]
METHODS = ("detection", "temporal", "average", "released")


def compare(model: RecognizerModel, frames: list[Frame], batch_size: int) -> int:
    """Asserts that both paths agree; returns how many events there were."""
    together = SeveralMethods.of(model, METHODS, "build", unexpected="report")
    streamed: dict[str, list[Any]] = {method: [] for method in METHODS}
    predictions = []
    for frame in frames:
        for method, events in together.update(frame).items():
            streamed[method] += events
        if together.prediction is not None and together.prediction.index == frame.index:
            predictions.append(together.prediction)
    table = PredictionTable.of(
        predict_recording(model.networks, frames, batch_size=batch_size), model.procedure.n_components
    )
    for ours, theirs in zip(table, predictions, strict=True):
        assert (ours.tick, ours.index, ours.time_seconds) == (theirs.tick, theirs.index, theirs.time_seconds)
        assert (ours.detections is None, ours.change_C is None) == (theirs.detections is None, theirs.change_C is None)
        if ours.change_C is not None and theirs.change_C is not None:
            np.testing.assert_allclose(ours.change_C, theirs.change_C, atol=1e-4)
    n_events = 0
    for method in METHODS:
        batched = decode_table(model.decoder(method, "build", "report"), table)
        assert [(e.frame, e.step_id, e.time_seconds) for e in batched] == [
            (e.frame, e.step_id, e.time_seconds) for e in streamed[method]
        ]
        n_events += len(batched)
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


def test_real_networks_give_the_same_events(model_folder: Path, frames: Frames) -> None:
    assert compare(load_model(model_folder), frames(), 32) > 5


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
