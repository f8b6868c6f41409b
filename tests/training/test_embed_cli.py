"""`stormpsr embed`: embeddings of recordings on disk and as an image."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from stormpsr.cli.main import main
from stormpsr.config import parse_config
from stormpsr.data.images import read_image
from stormpsr.models.checkpoint import load_checkpoint, save_checkpoint
from stormpsr.models.stream import build_encoder
from stormpsr.procedure.model import Procedure


def save_encoder(folder: Path, settings_text: str, procedure: Procedure, seed: int) -> Path:
    torch.manual_seed(seed)
    config = parse_config(settings_text, where="tiny")
    tensors = {f"encoder.{name}": t for name, t in build_encoder(config.encoder).state_dict().items()}
    save_checkpoint(folder, tensors=tensors, config=config, procedure=procedure, metrics={})
    return folder


@pytest.fixture
def checkpoint(tmp_path: Path, settings_text: str, lamp: Procedure) -> Path:
    return save_encoder(tmp_path / "encoder", settings_text, lamp, seed=0)


def test_every_frame_of_every_recording_is_embedded(
    world: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["embed", "make", str(checkpoint), "--data", str(world), "--out", str(tmp_path / "store"), "--json"]
    assert main([*arguments, "--precision", "float32"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (len(shown["recordings"]), shown["frames"]) == (5, 300)
    rows = np.fromfile(tmp_path / "store" / "val" / "01_build.rows", dtype=np.float32).reshape(60, 16)
    (folder,) = (path for path in world.rglob("rgb") if path.parts[-3:-1] == ("val", "01_build"))
    images = np.stack([read_image(path) for path in sorted(folder.iterdir())])
    encoder = load_checkpoint(checkpoint).encoder()
    with torch.inference_mode():
        expected = encoder.embed(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(rows, expected, atol=1e-4)
    header = json.loads((tmp_path / "store" / "val" / "01_build.json").read_text())
    assert header["made_from"]["fps"] == 10
    assert header["n_rows"] == 60


def test_a_store_of_another_encoder_is_refused_with_a_cure(
    world: Path,
    checkpoint: Path,
    tmp_path: Path,
    settings_text: str,
    lamp: Procedure,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = save_encoder(tmp_path / "other", settings_text, lamp, seed=1)
    rest = ["--data", str(world / "val"), "--out", str(tmp_path / "store")]
    assert main(["embed", "make", str(checkpoint), *rest]) == 0
    assert main(["embed", "make", str(other), *rest]) == 2
    assert "these embeddings are of another encoder" in capsys.readouterr().err


def test_embeddings_of_images_that_have_changed_are_refused(
    world: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = tmp_path / "data" / "val" / "00_build"
    shutil.copytree(world / "val" / "00_build", recording)
    words = ["embed", "make", str(checkpoint), "--data", str(tmp_path / "data"), "--out", str(tmp_path / "store")]
    assert main(words) == 0
    assert main(words) == 0
    plain = recording / "rgb" / "000030.png"
    assert cv2.imwrite(str(plain), np.zeros((32, 32, 3), dtype=np.uint8))
    assert main(words) == 2
    assert "00_build: these embeddings are of another encoder or of other images" in capsys.readouterr().err


def test_a_run_that_was_killed_is_continued_to_the_same_embeddings(
    world: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One recording half written, one not begun; in a process of its own, as a user starts it."""
    rest = ["--data", str(world / "val"), "--out", str(tmp_path / "store")]
    assert main(["embed", "make", str(checkpoint), *rest]) == 0
    files = sorted(path for path in (tmp_path / "store").rglob("*.rows") if "cache" not in path.parts)
    whole = [path.read_bytes() for path in files]
    assert [path.name for path in files] == ["00_build.rows", "01_build.rows"]
    os.truncate(files[0], len(whole[0]) // 2 + 3)
    files[1].unlink()
    files[1].with_suffix(".json").unlink()
    words = [sys.executable, "-m", "stormpsr", "embed", "make", str(checkpoint), *rest]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 recordings, 120 frames embedded" in done.stdout
    for path, before in zip(files, whole, strict=True):
        after, wanted = (np.frombuffer(data, dtype=np.float16) for data in (path.read_bytes(), before))
        np.testing.assert_allclose(after, wanted, atol=1e-3)


def test_a_recording_is_drawn_by_state_and_by_time(world: Path, checkpoint: Path, tmp_path: Path) -> None:
    image = tmp_path / "images" / "embeddings.png"
    recording = str(world / "val" / "00_build")
    assert main(["embed", "plot", str(checkpoint), "--recording", recording, "--out", str(image), "--every", "2"]) == 0
    assert image.stat().st_size > 20_000


def test_what_cannot_be_drawn_is_said_before_anything_is_embedded(
    world: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = world / "val" / "00_build"
    bare = tmp_path / "00_build"
    shutil.copytree(recording / "rgb", bare / "rgb")
    for folder, image, complaint in (
        (recording, "embeddings.gifx", "cannot write files that end in '.gifx'; use one of: .png, .svg, .pdf"),
        (tmp_path / "nowhere", "embeddings.png", "nowhere: there is no such recording"),
        (bare, "embeddings.png", "00_build: the recording has no labels to colour it by"),
    ):
        words = ["embed", "plot", str(checkpoint), "--recording", str(folder), "--out", str(tmp_path / image)]
        assert main(words) == 2
        assert complaint in capsys.readouterr().err
        assert not (tmp_path / image).exists()
