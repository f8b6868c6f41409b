"""`stormpsr model show`: sizes of the networks, without loading or computing anything."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("pydantic", reason="needs the train extra")

from stormpsr.cli import extras, main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["model", "show", *arguments])
        return (code, *capsys.readouterr())

    return call


def test_the_paper_preset_has_the_published_sizes(run: Run) -> None:
    code, out, _ = run("paper-industreal", "--json")
    shown = json.loads(out)
    assert code == 0
    assert shown["components"] == 11
    backbone, *_, temporal = shown["stages"]
    assert backbone["parameters"] == pytest.approx(21.67e6 + 384 * 128, rel=1e-3)  # ViT-S/16 with 128 outputs
    assert backbone["multiply_adds"] == pytest.approx(4.6e9, rel=0.01)
    assert temporal["shape_in"] == [64, 128]
    assert temporal["shape_out"] == [11]
    layer = 4 * 128 * 128 + 2 * 128 * 4096  # attention and perceptron; biases and norms come on top
    assert temporal["parameters"] == pytest.approx(6 * layer, rel=0.02)


def test_settings_can_be_changed_for_a_look(run: Run) -> None:
    code, out, _ = run("synthetic", "--components", "7", "-o", "temporal.kind=lstm", "-o", "encoder.image_size=64")
    assert code == 0
    assert "7 components" in out
    assert "lstm" in out
    assert "3 x 64 x 64" in out


def test_a_preset_without_procedure_asks_for_the_number_of_components(run: Run) -> None:
    code, _, err = run("synthetic")
    assert code == 2
    assert "give --components N" in err


def test_a_misspelt_setting_is_explained_in_one_line(run: Run) -> None:
    code, _, err = run("paper-meccano", "-o", "encoder.bakbone=x")
    assert code == 2
    assert err == "error: there is no setting 'encoder.bakbone'; did you mean 'backbone'?\n"


def test_missing_packages_are_named_with_the_command_that_installs_them(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "timm" else object())
    code, _, err = run("paper-meccano")
    assert code == 2
    assert err == "error: showing a model needs timm, which is not installed; run: pip install 'stormpsr[train]'\n"
