"""The cure for a torchvision that does not fit its torch acts only where it is needed."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

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
