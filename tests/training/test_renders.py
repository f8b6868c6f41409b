"""Renders in training: read from a folder of single images, and mixed into every batch."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from stormpsr.config import parse_config
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateKind
from stormpsr.training.data import load_renders, load_training_data
from stormpsr.training.fit import FitOptions
from stormpsr.training.plan import check_run, plan_stages, renders_of
from stormpsr.training.stages import Run, key_frame_sampler, train_encoder


@pytest.fixture
def folder(tmp_path: Path, lamp: Procedure) -> Path:
    """Two grey images of each state that the lamp's detector knows, as bright as the state's class."""
    images, annotations = [], []
    states = [state for state in lamp.states if state.kind is StateKind.ASSEMBLY]
    for number, state in enumerate(states * 2):
        name = f"{number:06d}.png"
        cv2.imwrite(str(tmp_path / name), np.full((48, 48, 3), 20 * state.state_class, dtype=np.uint8))
        images.append({"id": number, "file_name": name, "width": 48, "height": 48})
        annotations.append({"image_id": number, "category_id": state.state_class, "bbox": [4, 4, 40, 40]})
    categories = [{"id": state.state_class, "name": state.name} for state in states]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (tmp_path / "annotations.json").write_text(json.dumps(content))
    return tmp_path


def test_renders_come_at_training_size_with_the_states_they_show(
    folder: Path, lamp: Procedure, world: Path, settings_text: str, tmp_path: Path
) -> None:
    config = parse_config(settings_text, where="tiny")
    renders = load_renders([folder, folder], lamp)
    images = Run(config, load_training_data(world, config), tmp_path / "run", renders=renders).render_images()
    assert [image.shape for image in images] == [(32, 32, 3)] * 16
    assert renders.states[:4] == ((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1))
    assert [int(image[0, 0, 0]) for image in images] == [20, 40, 60, 80] * 4


def test_renders_are_part_of_every_batch(
    folder: Path, lamp: Procedure, world: Path, settings_text: str, tmp_path: Path
) -> None:
    config = parse_config(settings_text, where="tiny", overrides=["key_frames.n_syn=2", "train_encoder.epochs=1"])
    data, renders = load_training_data(world, config), load_renders([folder], lamp)
    run = Run(config, data, tmp_path / "run", renders=renders, options=FitOptions(device="cpu"))
    sampler = key_frame_sampler(run)
    batch = sampler.batch(0, 0)
    assert (batch.recording_B < 0).sum() == 2 * 4
    for recording, index, label in zip(batch.recording_B, batch.index_B, batch.label_B, strict=True):
        if recording < 0:
            assert renders.states[index] == sampler.frames.states[label]
    train_encoder(run)
    with pytest.raises(InputError, match="but there are none; give --renders"):
        train_encoder(replace(run, renders=None, folder=tmp_path / "other"))


def test_a_dry_run_counts_the_renders_that_it_would_decode(
    folder: Path, lamp: Procedure, world: Path, settings_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse_config(settings_text, where="tiny", overrides=["key_frames.n_syn=2"])
    data, renders = load_training_data(world, config), load_renders([folder], lamp)
    run = Run(config, data, tmp_path / "run", renders=renders, options=FitOptions(device="cpu"))
    decoded = 8 * 32 * 32 * 3  # the recordings have that size already, and are not decoded
    assert plan_stages(run, ["encoder"], perf_counter).cache_bytes == decoded
    assert len(renders_of(run, ["temporal", "joint"])) == 0
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=decoded - 1))
    with pytest.raises(InputError, match="the disk is full"):
        check_run(run, ["encoder"], skip_finished=False)
