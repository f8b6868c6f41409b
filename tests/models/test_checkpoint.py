"""Checkpoints: what is saved comes back, alone and complete, or not at all."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from stormpsr.config import Config, parse_config
from stormpsr.detectors.registry import load_detector, make_detector
from stormpsr.errors import InputError
from stormpsr.models.checkpoint import encoder_digest, load_checkpoint, save_checkpoint
from stormpsr.models.stream import SpatioTemporalModel, build_stream, build_temporal
from stormpsr.procedure.model import Procedure

SETTINGS = """
name: small
encoder: {backbone: test_resnet, weights: hub, image_size: 32, embedding_dim: 8}
temporal: {width: 8, layers: 1, heads: 2, mlp_width: 16}
clips: {window_frames: 4, n_window: 4}
"""


@pytest.fixture
def config() -> Config:
    return parse_config(SETTINGS, where="here")


@pytest.fixture
def model(config: Config, lamp: Procedure) -> SpatioTemporalModel:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return build_stream(config, lamp.n_components, weights="none").eval()


@pytest.fixture
def folder(tmp_path: Path, config: Config, model: SpatioTemporalModel, lamp: Procedure) -> Path:
    path = tmp_path / "runs" / "best"
    save_checkpoint(path, tensors=model.state_dict(), config=config, procedure=lamp, metrics={"f1": 0.5})
    return path


def clip() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (2, 4, 32, 32, 3), dtype=torch.uint8, generator=generator)
    return images, torch.tensor([[False, True, True, True]] * 2)


def test_a_saved_stream_computes_the_same_after_loading(folder: Path, model: SpatioTemporalModel) -> None:
    loaded = load_checkpoint(folder).stream()
    torch.testing.assert_close(loaded(*clip()), model(*clip()), rtol=0, atol=0)
    assert not loaded.training


def test_settings_procedure_and_metrics_come_back(folder: Path, config: Config, lamp: Procedure) -> None:
    checkpoint = load_checkpoint(folder)
    assert checkpoint.config == config
    assert checkpoint.procedure == lamp
    assert checkpoint.metrics == {"f1": 0.5}


def test_the_folder_holds_four_files_and_nothing_is_left_beside_it(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.yaml",
        "metrics.json",
        "model.safetensors",
        "procedure.yaml",
    ]
    assert [path.name for path in folder.parent.iterdir()] == ["best"]


def test_an_encoder_can_be_saved_and_loaded_alone(
    tmp_path: Path, config: Config, model: SpatioTemporalModel, lamp: Procedure
) -> None:
    tensors = {f"encoder.{name}": tensor for name, tensor in model.encoder.state_dict().items()}
    save_checkpoint(tmp_path / "encoder", tensors=tensors, config=config, procedure=lamp, metrics={})
    checkpoint = load_checkpoint(tmp_path / "encoder")
    assert not checkpoint.has_temporal
    assert encoder_digest(checkpoint.encoder()) == encoder_digest(model.encoder)
    with pytest.raises(InputError, match="holds a spatial encoder alone"):
        checkpoint.stream()


def test_a_newer_checkpoint_replaces_the_older(
    folder: Path, config: Config, model: SpatioTemporalModel, lamp: Procedure
) -> None:
    save_checkpoint(folder, tensors=model.state_dict(), config=config, procedure=lamp, metrics={"f1": 0.7})
    assert load_checkpoint(folder).metrics == {"f1": 0.7}
    assert [path.name for path in folder.parent.iterdir()] == ["best"]


def test_a_checkpoint_that_cannot_be_written_leaves_the_older_one_alone(
    folder: Path, config: Config, model: SpatioTemporalModel, lamp: Procedure
) -> None:
    with pytest.raises(ValueError, match="JSON"):
        save_checkpoint(folder, tensors=model.state_dict(), config=config, procedure=lamp, metrics={"f1": float("nan")})
    assert load_checkpoint(folder).metrics == {"f1": 0.5}
    assert [path.name for path in folder.parent.iterdir()] == ["best"]


def test_a_full_disk_is_complained_of_in_one_line_and_leaves_the_older_one_alone(
    folder: Path, config: Config, model: SpatioTemporalModel, lamp: Procedure, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors import SafetensorError

    def full(*_: object, **__: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(InputError, match=r"best/model\.safetensors: the disk is full .*; make room .* --resume"):
        save_checkpoint(folder, tensors=model.state_dict(), config=config, procedure=lamp, metrics={})
    assert load_checkpoint(folder).metrics == {"f1": 0.5}
    assert [path.name for path in folder.parent.iterdir()] == ["best"]


def test_whoever_may_read_the_settings_may_read_the_tensors(folder: Path) -> None:
    assert (folder / "model.safetensors").stat().st_mode == (folder / "config.yaml").stat().st_mode


def test_a_folder_that_is_no_checkpoint_is_not_overwritten(
    tmp_path: Path, config: Config, model: SpatioTemporalModel, lamp: Procedure
) -> None:
    (tmp_path / "precious.txt").write_text("do not delete")
    with pytest.raises(InputError, match="would be overwritten"):
        save_checkpoint(tmp_path, tensors=model.state_dict(), config=config, procedure=lamp, metrics={})
    assert (tmp_path / "precious.txt").exists()


def test_the_fingerprint_changes_with_any_tensor_of_the_encoder_only(
    config: Config, model: SpatioTemporalModel, lamp: Procedure
) -> None:
    before = encoder_digest(model.encoder)
    model.temporal = build_temporal(config, lamp.n_components)
    assert encoder_digest(model.encoder) == before
    with torch.no_grad():
        next(iter(model.encoder.parameters())).view(-1)[0] += 1
    assert encoder_digest(model.encoder) != before


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_settings_that_do_not_fit_the_tensors_are_refused(folder: Path) -> None:
    edit(folder / "config.yaml", "layers: 1", "layers: 2")
    with pytest.raises(InputError, match=r"tensor 'temporal\.encoder\.layers\.1\..*is missing \(and \d+ more\)"):
        load_checkpoint(folder).stream()


def test_a_procedure_that_does_not_fit_the_tensors_is_refused(folder: Path, meccano: Procedure) -> None:
    meccano.save(folder / "procedure.yaml")
    with pytest.raises(InputError, match=r"'temporal\.head\.2\.weight' has the shape \(3, 8\) instead of \(17, 8\)"):
        load_checkpoint(folder).stream()


def test_damaged_tensors_are_refused(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 1000)
    with pytest.raises(InputError, match="cannot be read"):
        load_checkpoint(folder)


@pytest.mark.parametrize("name", ["config.yaml", "metrics.json", "model.safetensors", "procedure.yaml"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"has no {name}"):
        load_checkpoint(folder)


def test_tensors_of_another_program_are_refused(folder: Path) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, folder / "model.safetensors")
    with pytest.raises(InputError, match="the format is None"):
        load_checkpoint(folder)


def rename_as_before(folder: Path, metadata: dict[str, str] | None) -> int:
    """Give tensors the names they had in the first format; how many that changes."""
    from safetensors.torch import load_file, save_file

    path, now, before = folder / "model.safetensors", ("cross_attention", "norm_mlp", "mlp", "reading_score"), {}
    old = ("look", "norm_thought", "think", "taste")
    for name, tensor in load_file(path).items():
        parts = [dict(zip(now, old, strict=True)).get(part, part) for part in name.split(".")]
        before[".".join(parts)] = tensor
    save_file(before, path, metadata=metadata)
    return sum(part in name.split(".") for name in before for part in old)


def test_a_stream_with_the_tensor_names_of_the_first_format_is_loaded(tmp_path: Path, lamp: Procedure) -> None:
    reading = "encoder: {backbone: test_efficientnet, weights: none, image_size: 32, embedding_dim: 8, n_queries: 3}"
    config = parse_config(f"{reading}\ntemporal: {{kind: states}}\nclips: {{n_window: 4}}", where="here")
    model = build_stream(config, lamp.n_components).eval()
    save_checkpoint(tmp_path / "x", tensors=model.state_dict(), config=config, procedure=lamp, metrics={})
    assert rename_as_before(tmp_path / "x", {"format": "stormpsr checkpoint 1"}) > 10
    torch.testing.assert_close(load_checkpoint(tmp_path / "x").stream()(*clip()), model(*clip()), rtol=0, atol=0)


def test_a_detector_without_a_format_is_loaded(tmp_path: Path, lamp: Procedure) -> None:
    sizes = {"image_size": 64, "backbone": "test_efficientnet", "weights": "none", "width": 16, "crop_size": 32}
    detector = make_detector("compact", lamp, sizes)
    detector.save(tmp_path / "x")
    assert rename_as_before(tmp_path / "x", None) > 10
    loaded = load_detector(tmp_path / "x")
    image = clip()[0][0, 0].numpy()
    ours, theirs = (made.detect([image], min_confidence=0)[0][0] for made in (loaded, detector))
    assert (ours.box, ours.state_class, ours.confidence) == (theirs.box, theirs.state_class, theirs.confidence)


def test_whatever_else_is_in_a_detectors_folder_stays_there(tmp_path: Path, lamp: Procedure) -> None:
    (tmp_path / "x" / "unfinished").mkdir(parents=True)
    (tmp_path / "x" / "unfinished" / "notes.txt").write_text("go on")
    sizes = {"image_size": 64, "backbone": "test_efficientnet", "weights": "none", "width": 16, "crop_size": 32}
    make_detector("compact", lamp, sizes).save(tmp_path / "x")
    assert (tmp_path / "x" / "unfinished" / "notes.txt").read_text() == "go on"


def test_a_missing_checkpoint_is_named() -> None:
    with pytest.raises(InputError, match="nowhere: there is no such checkpoint"):
        load_checkpoint("nowhere")


# ---------------------------------------------------------------------- memory
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this C library cannot be told to keep memory")
def test_memory_that_was_freed_is_used_again_without_asking_the_system() -> None:
    """Of a block that is freed and asked for again and again, the system gives the pages once."""
    program = """
import resource
from stormpsr.models.checkpoint import keep_freed_memory
keep_freed_memory()
faults = [resource.getrusage(resource.RUSAGE_SELF).ru_minflt]
for _ in range(6):
    bytearray(1) * (64 << 20)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[6] - faults[1], (64 << 20) // resource.getpagesize())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    faults, pages_of_a_block = map(int, done.stdout.split())
    assert faults < pages_of_a_block  # of five more blocks together
