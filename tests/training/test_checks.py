"""What a dry run finds out before hours are spent, and what `train all` finds out before its first stage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from stormpsr.cli.main import main
from stormpsr.config import parse_config
from stormpsr.data.layouts import RecordingFolder
from stormpsr.data.recording import open_recording
from stormpsr.errors import InputError
from stormpsr.models.checkpoint import load_checkpoint, save_checkpoint
from stormpsr.models.stream import build_stream
from stormpsr.procedure.model import Procedure
from stormpsr.training import fit as fitting
from stormpsr.training.plan import check_images
from stormpsr.training.stage_folder import StageFolder, digest_of

Train = Callable[..., tuple[int, str]]
HELD_OUT = ("-o", "train_encoder.held_out_share=0.34")


@pytest.fixture
def train(world: Path, settings_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Train:
    def call(stage: str, *more: str, data: Path = world) -> tuple[int, str]:
        words = ["train", stage, "--data", str(data), "--preset", str(settings_file), "--out", str(tmp_path / "run")]
        code = main([*words, *(() if "--device" in more else ("--device", "cpu")), *more])
        return code, capsys.readouterr().err

    return call


def save_stage(out: Path, name: str, settings: str, procedure: Procedure, *, seed: int = 0) -> str:
    """Networks of random numbers in place of a trained stage; their digest."""
    torch.manual_seed(seed)
    config = parse_config(settings, where="tiny")
    tensors = build_stream(config, procedure.n_components).state_dict()
    if name == "encoder":
        tensors = {key: tensor for key, tensor in tensors.items() if key.startswith("encoder.")}
    folder = StageFolder(out / name)
    metrics = {"epoch": 0, "validation": {}}
    save_checkpoint(folder.best, tensors=tensors, config=config, procedure=procedure, metrics=metrics)
    return digest_of(load_checkpoint(folder.best).tensors)


def finish(out: Path, name: str, settings: str, began_from: str | None = None) -> None:
    folder = StageFolder(out / name)
    folder.begin(parse_config(settings, where="tiny"), resume=False, began_from=began_from)
    folder.finish()


# ---------------------------------------------------------------------- machine
@pytest.mark.parametrize("more", [("--dry-run",), ()])
def test_devices_that_are_not_there_are_found_out_at_once(train: Train, tmp_path: Path, more: tuple[str, ...]) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    code, err = train("encoder", "--device", "cuda", *more)
    assert code == 2
    assert "this machine cannot train so" in err
    assert "change --device or --devices" in err
    assert not (tmp_path / "run").exists()


def test_a_log_that_cannot_be_kept_is_found_out_by_a_dry_run(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "find_spec", lambda name: None)
    code, err = train("encoder", "--dry-run", "--wandb", "lamps")
    assert code == 2
    assert "wandb is not installed; run: pip install wandb" in err


@pytest.mark.parametrize(
    ("stage", "devices", "complaint"),
    [
        ("encoder", "3", "a batch of 16 (key_frames.n_sample x states) cannot be shared equally by 3 processes"),
        ("temporal", "3", "change train_temporal.batch_size so that 3 divides it, or --devices"),
        ("joint", "4", "change train_joint.batch_size so that 4 divides it, or --devices"),
    ],
)
def test_a_batch_that_cannot_be_shared_is_found_out_by_a_dry_run(
    train: Train,
    tmp_path: Path,
    settings_text: str,
    lamp: Procedure,
    stage: str,
    devices: str,
    complaint: str,
) -> None:
    for before in ("encoder", "temporal"):
        save_stage(tmp_path / "run", before, settings_text, lamp)
    code, err = train(stage, "--dry-run", "--devices", devices)
    assert code == 2
    assert complaint in err


def test_weights_that_are_not_there_are_found_out_by_a_dry_run(train: Train) -> None:
    code, err = train("encoder", "--dry-run", "-o", "encoder.weights=nowhere.safetensors")
    assert code == 2
    assert "nowhere.safetensors" in err


# ---------------------------------------------------------------------- the stage before
@pytest.mark.parametrize(("stage", "before"), [("temporal", "encoder"), ("joint", "temporal")])
def test_a_missing_stage_before_is_found_out_by_a_dry_run(train: Train, stage: str, before: str) -> None:
    code, err = train(stage, "--dry-run")
    assert code == 2
    assert f"{before}/best: there is no trained {before}; run 'stormpsr train {before}' first" in err


@pytest.mark.parametrize(
    ("stage", "before", "override"),
    [("temporal", "encoder", "encoder.embedding_dim=8"), ("joint", "temporal", "clips.n_window=4")],
)
def test_a_stage_before_that_does_not_fit_is_found_out_by_a_dry_run(
    train: Train, tmp_path: Path, settings_text: str, lamp: Procedure, stage: str, before: str, override: str
) -> None:
    save_stage(tmp_path / "run", before, settings_text, lamp)
    code, err = train(stage, "--dry-run", "-o", override)
    assert code == 2
    assert f"{before}/best: this was trained with {override.partition('=')[0]}=" in err


def test_a_stage_whose_predecessor_is_there_is_planned_without_renders_for_another(
    train: Train, tmp_path: Path, settings_text: str, lamp: Procedure
) -> None:
    save_stage(tmp_path / "run", "encoder", settings_text, lamp)
    assert train("temporal", "--dry-run", "-o", "key_frames.n_syn=2") == (0, "")


def test_a_folder_that_is_in_use_is_found_out_by_a_dry_run(train: Train, tmp_path: Path, settings_text: str) -> None:
    finish(tmp_path / "run", "encoder", settings_text)
    code, err = train("encoder", "--dry-run")
    assert code == 2
    assert "this stage is finished; add --resume" in err
    code, err = train("encoder", "--dry-run", "--resume", "-o", "seed=5")
    assert code == 2
    assert "begun with other settings: seed was 0 and is 5" in err


# ---------------------------------------------------------------------- stages that belong together
@pytest.mark.parametrize("more", [("--dry-run",), ("--resume",)])
@pytest.mark.parametrize("encoder", ["another", "to be trained"])
def test_a_finished_stage_of_another_encoder_is_refused_and_not_used(
    train: Train,
    tmp_path: Path,
    settings_text: str,
    lamp: Procedure,
    more: tuple[str, ...],
    encoder: str,
) -> None:
    run = tmp_path / "run"
    digest = save_stage(run, "encoder", settings_text, lamp)
    save_stage(run, "temporal", settings_text, lamp)
    finish(run, "temporal", settings_text, digest)
    if encoder == "another":
        save_stage(run, "encoder", settings_text, lamp, seed=1)
        finish(run, "encoder", settings_text)
    code, err = train("all", *more)
    assert code == 2
    assert (
        f"temporal: this stage belongs to another encoder than there {'is' if encoder == 'another' else 'will'}" in err
    )
    assert f"delete the folder {run / 'temporal'} to train it again" in err


@pytest.mark.parametrize("remembers", [True, False])
def test_finished_stages_that_belong_together_or_never_said_are_skipped(
    train: Train, tmp_path: Path, settings_text: str, lamp: Procedure, remembers: bool
) -> None:
    run = tmp_path / "run"
    digests = {name: save_stage(run, name, settings_text, lamp) for name in ("encoder", "temporal", "joint")}
    finish(run, "encoder", settings_text)
    finish(run, "temporal", settings_text, digests["encoder"])
    finish(run, "joint", settings_text, digests["temporal"])
    if not remembers:
        save_stage(run, "encoder", settings_text, lamp, seed=1)
        for path in run.glob("*/stage.json"):
            about = json.loads(path.read_text())
            del about["began_from"]
            path.write_text(json.dumps(about))
    code, err = train("all", "--resume")
    assert code == 0, err
    assert err.count("finished before, skipped") == 3
    code, err = train("all", "--dry-run", "--accumulate", "2")
    assert code == 0, err
    assert err.count("is finished and will be skipped") == 3
    assert "note: --accumulate is for all stages; run a stage by itself" in err


# ---------------------------------------------------------------------- images
@pytest.fixture
def broken_world(world: Path, tmp_path: Path) -> Callable[[str, int], Path]:
    def make(recording: str, frame: int) -> Path:
        copy = tmp_path / "broken"
        shutil.copytree(world, copy)
        (copy / recording / "rgb" / f"{frame:06d}.png").write_bytes(b"\x89PNG cut short")
        return copy

    return make


@pytest.mark.parametrize(("recording", "frame"), [("train/00_build", 0), ("train/02_build", 59), ("val/01_build", 59)])
def test_an_image_that_cannot_be_read_is_found_out_by_a_dry_run(
    train: Train, broken_world: Callable[[str, int], Path], recording: str, frame: int
) -> None:
    code, err = train("all", "--dry-run", *HELD_OUT, data=broken_world(recording, frame))
    assert code == 2
    assert f"{recording}/rgb/{frame:06d}.png: this is not an image; it may be cut short: copy it again" in err


@pytest.mark.parametrize("recording", ["train/02_build", "val/01_build"])
def test_all_images_of_all_stages_are_decoded_before_the_first_stage_begins(
    train: Train, tmp_path: Path, broken_world: Callable[[str, int], Path], recording: str
) -> None:
    code, err = train("all", *HELD_OUT, data=broken_world(recording, 30))
    assert code == 2
    assert f"{recording}/rgb/000030.png: this is not an image" in err
    assert not (tmp_path / "run" / "encoder").exists()


def write_video(path: Path, n: int) -> None:
    import av

    rng = np.random.default_rng(0)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for _ in range(n):
            image = rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


@pytest.mark.parametrize("announced", [29, 31])
def test_a_video_of_another_length_than_announced_is_found_out(tmp_path: Path, lamp: Procedure, announced: int) -> None:
    write_video(tmp_path / "rgb.mp4", 30)
    folder = RecordingFolder("01", "train", tmp_path)
    check_images([open_recording(folder, lamp)])
    (tmp_path / "recording.json").write_text(json.dumps({"n_frames": announced}))
    with pytest.raises(InputError, match=rf"rgb\.mp4: the video has 30 frames, but {announced} are announced; copy"):
        check_images([open_recording(folder, lamp)])


def test_a_video_whose_images_cannot_be_decoded_is_found_out(tmp_path: Path, lamp: Procedure) -> None:
    path = tmp_path / "rgb.mp4"
    write_video(path, 30)
    data = bytearray(path.read_bytes())
    begin = data.index(b"mdat") + 4
    data[begin : data.index(b"moov") - 4] = bytes(data.index(b"moov") - 4 - begin)  # the table of frames is whole
    path.write_bytes(data)
    recording = open_recording(RecordingFolder("01", "train", tmp_path), lamp)
    assert recording.n_frames == 30
    with pytest.raises(InputError, match=r"rgb\.mp4: it cannot be opened .*encode it again"):
        check_images([recording])
