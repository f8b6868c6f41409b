"""The training loop's edges: a full disk, several processes, and what is done once only."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from stormpsr.config import Config, parse_config
from stormpsr.errors import InputError
from stormpsr.models.backbones import create_backbone
from stormpsr.procedure.model import Procedure
from stormpsr.training import fit as fitting
from stormpsr.training.data import load_training_data
from stormpsr.training.fit import FitOptions, StageFolder, _KeepResumable, _SyncBatchNorms
from stormpsr.training.stages import Run, train_encoder


# ---------------------------------------------------------------------- a full disk
def save_with(error: Exception, path: Path) -> None:
    def save(draft: Path) -> None:
        draft.write_bytes(b"half")
        raise error

    trainer: Any = SimpleNamespace(save_checkpoint=save, is_global_zero=True)
    _KeepResumable(path).on_train_epoch_end(trainer, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598"),
        RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
    ],
)
def test_a_full_disk_is_told_with_the_file_and_the_cure_and_half_a_file_is_removed(
    tmp_path: Path, error: Exception
) -> None:
    path = tmp_path / "last.ckpt"
    path.write_bytes(b"the epoch before")
    with pytest.raises(InputError, match=r"the disk is full .*; make room .* --resume") as complaint:
        save_with(error, path)
    assert complaint.value.path == str(path)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"the epoch before"]


def test_another_error_while_saving_is_no_full_disk(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        save_with(RuntimeError("CUDA out of memory"), tmp_path / "last.ckpt")


def test_training_on_a_disk_that_is_full_ends_with_the_path_of_the_file(
    tmp_path: Path, world: Path, settings_text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_short(checkpoint: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")

    monkeypatch.setattr(fitting.torch, "save", cut_short)
    config = parse_config(settings_text, where="tiny", overrides=["train_encoder.epochs=1"])
    run = Run(config, load_training_data(world, config), tmp_path, options=FitOptions(device="cpu"))
    resume = tmp_path / "encoder" / "resume"
    with pytest.raises(InputError, match=r"last\.ckpt: the disk is full"):
        train_encoder(run)
    assert (tmp_path / "encoder" / "best").is_dir()
    assert list(resume.iterdir()) == []


# ---------------------------------------------------------------------- how Lightning is asked
class FakeTask(nn.Module):
    begins_trained = True
    keeps_best = True
    settings = Config()

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer


def asked_of_lightning(
    monkeypatch: pytest.MonkeyPatch, folder: Path, lamp: Procedure, task: Any, options: FitOptions
) -> dict[str, Any]:
    monkeypatch.setattr(fitting, "Trainer", lambda **settings: settings)
    asked: Any = fitting._trainer(task, 1, StageFolder(folder), lamp, options)
    return dict(asked)


@pytest.mark.parametrize(
    ("layer", "options", "shared"),
    [
        (nn.BatchNorm1d(2), FitOptions(device="cuda", devices=2), True),
        (nn.BatchNorm1d(2), FitOptions(device="cuda", machines=2), True),
        (nn.BatchNorm1d(2), FitOptions(device="auto", devices=2), True),
        (nn.BatchNorm1d(2), FitOptions(device="cuda"), False),
        (nn.BatchNorm1d(2), FitOptions(device="cpu", devices=2), False),
        (nn.LayerNorm(2), FitOptions(device="cuda", devices=2), False),
    ],
)
def test_batch_norms_share_statistics_among_gpus(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    lamp: Procedure,
    layer: nn.Module,
    options: FitOptions,
    shared: bool,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    asked = asked_of_lightning(monkeypatch, tmp_path, lamp, FakeTask(layer), options)
    assert any(isinstance(plugin, _SyncBatchNorms) for plugin in asked["plugins"]) == shared


def test_a_network_whose_batch_norms_include_activations_keeps_them() -> None:
    torch.manual_seed(0)
    task = FakeTask(create_backbone("tf_efficientnet_lite0", image_size=32, out_dim=4, weights="none")).eval()
    image_B3SS = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        before_BD = task.layer(image_B3SS)
        names = list(task.state_dict())
        task = _SyncBatchNorms().apply(task)
        torch.testing.assert_close(task.layer(image_B3SS), before_BD)
    assert list(task.state_dict()) == names
    assert any(isinstance(module, nn.SyncBatchNorm) for module in task.modules())


def test_what_was_good_before_training_is_judged_once_and_not_again_on_resuming(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lamp: Procedure
) -> None:
    def judged() -> int:
        task = FakeTask(nn.Linear(1, 1))
        return int(asked_of_lightning(monkeypatch, tmp_path, lamp, task, FitOptions())["num_sanity_val_steps"])

    assert judged() == -1
    (tmp_path / "resume").mkdir()
    (tmp_path / "resume" / "last.ckpt").touch()
    assert judged() == 0
