"""A world small enough to train on in a test: three coloured squares, one per component, appear one after the other."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from stormpsr.data.labels import StateTimeline, steps_from_states, write_states, write_steps
from stormpsr.procedure.model import Procedure

SIZE, FRAMES = 32, 60
COLOURS = np.array([(255, 40, 40), (40, 255, 40), (40, 40, 255)], dtype=np.uint8)
SETTINGS = """
name: tiny
encoder: {backbone: test_resnet, weights: none, image_size: 32, embedding_dim: 16}
key_frames: {after_seconds: 1.0, n_sample: 4}
temporal: {width: 16, layers: 1, heads: 2, mlp_width: 32}
clips: {window_frames: 16, n_window: 8, delta_frames: 6, sigma_frames: 3}
train_encoder: {epochs: 2, batches_per_epoch: 3, optimiser: adamw, learning_rate: 0.003, warmup_epochs: 0}
train_temporal: {epochs: 2, batches_per_epoch: 4, batch_size: 8, optimiser: adamw, warmup_epochs: 0, frame_drop: 0.1}
train_joint: {epochs: 1, batches_per_epoch: 2, batch_size: 2, optimiser: adamw, warmup_epochs: 0}
"""


@pytest.fixture
def start_processes() -> Callable[[list[str]], subprocess.CompletedProcess[str]]:
    """Runs a command that starts processes of its own, which end with it, also if the test's time is up.

    How long starting takes depends on what else the machine does: only the test as a whole has a limit.
    """

    def start(words: list[str]) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        pipe = subprocess.PIPE
        process = subprocess.Popen(words, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        try:
            out, err = process.communicate()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    return start


def picture(bits: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Squares of the components that are there, on noise."""
    image = rng.integers(60, 120, (SIZE, SIZE, 3), dtype=np.uint8)
    for k, bit in enumerate(bits):
        if bit == 1:
            image[8:24, 2 + 10 * k : 10 + 10 * k] = COLOURS[k]
    return image


def write_recording(folder: Path, procedure: Procedure, seed: int, first: int = 0) -> None:
    """`first`: the number of the first image; labels begin at 0 all the same."""
    import cv2

    rng = np.random.default_rng(seed)
    starts = (0, *np.sort(rng.choice(np.arange(10, 50, 8), 3, replace=False)).tolist())
    timeline = StateTimeline(starts, ((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)))
    (folder / "rgb").mkdir(parents=True)
    for frame in range(first, FRAMES):
        cv2.imwrite(str(folder / "rgb" / f"{frame:06d}.png"), picture(timeline.at(frame), rng)[:, :, ::-1])
    write_states(folder / "PSR_labels_raw.csv", timeline, procedure)
    write_steps(folder / "PSR_labels.csv", steps_from_states(timeline, procedure, with_errors=False), procedure)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, lamp: Procedure) -> Path:
    """Three recordings to train on, two to choose by."""
    root = tmp_path_factory.mktemp("world")
    lamp.save(root / "procedure.yaml")
    for split, n in (("train", 3), ("val", 2)):
        for i in range(n):
            write_recording(root / split / f"{i:02d}_build", lamp, seed=10 * n + i)
    return root


@pytest.fixture(scope="session")
def whole_world(tmp_path_factory: pytest.TempPathFactory, lamp: Procedure) -> Path:
    """Recordings of all three splits; in one to train on and one to test, the first images are missing."""
    root = tmp_path_factory.mktemp("whole_world")
    lamp.save(root / "procedure.yaml")
    for split, n in (("Train", 3), ("Val", 2), ("Test", 3)):
        for i in range(n):
            first = 5 if i == 0 and split != "Val" else 0
            write_recording(root / split / f"{split.lower()}{i}_build", lamp, seed=10 * len(split) + i, first=first)
    return root


@pytest.fixture(scope="session")
def settings_text() -> str:
    """Settings that train in a second."""
    return SETTINGS


@pytest.fixture(scope="session")
def settings_file(settings_text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("settings") / "tiny.yaml"
    path.write_text(settings_text)
    return path


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
