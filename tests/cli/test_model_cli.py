"""`stormpsr model show`: sizes of the networks, without loading or computing anything."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from stormpsr import errors as extras
from stormpsr.cli.main import main

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


def test_the_released_preset_has_wide_heads_and_a_head_on_the_features(run: Run) -> None:
    backbone, *_, temporal = json.loads(run("released-industreal", "--json")[1])["stages"]
    assert backbone["shape_out"] == [384]
    layer = 4 * 128 * 8 * 128 + 2 * 128 * 4096  # eight heads of 128 dimensions each
    assert temporal["parameters"] == pytest.approx(6 * layer, rel=0.02)


@pytest.mark.parametrize("kind", ["transformer", "lstm", "tcn", "mlp"])
def test_a_model_that_looks_back_further_computes_more(run: Run, kind: str) -> None:
    shown = []
    for window in ("16", "64", "256"):
        settings = (
            *(f"temporal.kind={kind}", f"clips.window_frames={window}", f"clips.n_window={window}"),
            "encoder.backbone=test_vit",  # small, and of no interest here
        )
        code, out, _ = run("paper-meccano", "--json", *(word for setting in settings for word in ("-o", setting)))
        assert code == 0
        shown.append(json.loads(out)["stages"][-1])
    assert [stage["shape_in"] for stage in shown] == [[16, 128], [64, 128], [256, 128]]
    counted = [stage["multiply_adds"] for stage in shown]
    assert counted[0] < counted[1] < counted[2]


def test_dinov2_and_dinov3_are_one_line_away(run: Run) -> None:
    published = {"vit_small_patch14_dinov2.lvd142m": 22.06e6, "vit_small_patch16_dinov3.lvd1689m": 21.59e6}
    for backbone, parameters in published.items():
        code, out, _ = run("paper-meccano", "--json", "-o", f"encoder.backbone={backbone}")
        stage = json.loads(out)["stages"][0]
        assert code == 0
        assert stage["what"] == backbone
        # with fewer positions than at the published image size, and a last layer of its own
        assert stage["parameters"] == pytest.approx(parameters, rel=0.03)


def test_a_locator_and_a_crop_are_counted(run: Run) -> None:
    small = ("encoder.backbone=mobilenetv4_conv_small_050", "encoder.image_size=160", "encoder.n_queries=4")
    shown = []
    for crop_size in (96, 0):
        settings = (*small, f"encoder.crop_size={crop_size}")
        _, out, _ = run("paper-meccano", "--json", *(word for setting in settings for word in ("-o", setting)))
        shown.append({stage["name"]: stage for stage in json.loads(out)["stages"]})
    cropped, whole = shown
    assert cropped["locator"]["shape_in"] == [160, 160, 3]
    assert cropped["locator"]["parameters"] > 100_000
    assert cropped["backbone"]["shape_in"] == [3, 96, 96]
    assert "locator" not in whole
    assert whole["backbone"]["multiply_adds"] > 2 * cropped["backbone"]["multiply_adds"]


def test_settings_can_be_changed_for_a_look(run: Run) -> None:
    code, out, _ = run("paper-meccano", "--components", "7", "-o", "temporal.kind=lstm", "-o", "encoder.image_size=64")
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
    assert err == "error: there is no key 'encoder.bakbone'; did you mean 'backbone'?\n"


def test_missing_packages_are_named_with_the_command_that_installs_them(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "timm" else object())
    code, _, err = run("paper-meccano")
    assert code == 2
    assert err == "error: showing a model needs timm, which is not installed; run: pip install 'stormpsr[train]'\n"
