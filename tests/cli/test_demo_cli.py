"""`stormpsr demo --baselines`, and what the demo refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]  # the fixtures `cli` and `write`


@pytest.fixture
def without_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has no matplotlib."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


def test_the_demo_of_baselines_scores_the_shipped_example_and_draws_it(cli: Call) -> None:
    from PIL import Image

    outcome = cli("demo", "--baselines")
    assert (outcome.code, outcome.err) == (0, "")
    for decoder in ("B1 naive", "B2 confidence", "B3 expected"):
        assert decoder in outcome.out
    with Image.open("demo/timeline.png") as picture:
        assert picture.size[0] > 1000
    assert max(len(line.rstrip()) for line in outcome.out.splitlines()) <= 100


def test_the_figures_of_the_demo_are_those_of_its_files(cli: Call, without_images: None) -> None:
    outcome = cli("demo", "--baselines", "--out", "here", "--json")
    written = json.loads(Path("here/scores.json").read_text())
    assert {name: entry["all"]["pos"] for name, entry in written.items()} == {
        name: entry["pos"] for name, entry in outcome.json["scores"].items()
    }
    assert outcome.json["written"] == [str(Path("here/scores.json"))]


def test_the_example_shows_what_decoders_are_for(cli: Call, without_images: None) -> None:
    scores = cli("demo", "--baselines", "--json").json["scores"]
    assert scores["B1 naive"]["f1"] < 0.5 < scores["B3 expected"]["f1"] < 1


def test_without_matplotlib_the_demo_goes_on_and_says_what_to_install(cli: Call, without_images: None) -> None:
    outcome = cli("demo", "--baselines")
    assert outcome.code == 0
    assert outcome.err.startswith("no image: drawing needs matplotlib")
    assert Path("demo/scores.json").is_file()
    assert not Path("demo/timeline.png").exists()


def test_the_demo_on_real_annotations_takes_the_folder_that_holds_them(
    cli: Call, shared: Path, without_images: None
) -> None:
    if not (shared / "data" / "meccano_asd").is_dir():
        pytest.skip(f"there are no MECCANO annotations at {shared / 'data'}")
    outcome = cli("demo", "--baselines", "--data", shared / "data", "--json")
    assert "MECCANO" in outcome.json["title"]
    assert round(outcome.json["scores"]["B3 expected"]["f1"], 3) == 0.837


def test_a_folder_without_annotations_is_refused_with_a_cure(cli: Call) -> None:
    outcome = cli("demo", "--baselines", "--data", ".")
    assert outcome.is_refusal("there is no folder meccano_psr in it; --data is the folder that holds meccano_psr/ and")
    assert not Path("demo").exists()


# ---------------------------------------------------------------------- without --baselines
def test_annotations_without_baselines_are_refused(cli: Call) -> None:
    assert cli("demo", "--data", ".").is_refusal("--data belongs to --baselines; add --baselines, or leave --data out")


def test_a_file_in_the_place_of_the_folder_is_refused(cli: Call, write: Call) -> None:
    write("taken", "")
    for more in ((), ("--baselines",)):
        assert cli("demo", "--out", "taken", *more).is_refusal("taken: the output is a file; give the path of a folder")


def test_a_missing_package_is_named_before_anything_is_drawn(cli: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stormpsr.cli.options.find_spec", lambda name: None if name == "torch" else name)
    assert cli("demo").is_refusal("recognising steps needs torch, which is not installed; run: pip install 'stormpsr[")
    assert not Path("demo").exists()


def test_a_model_that_does_not_exist_is_refused_before_anything_is_drawn(cli: Call) -> None:
    if any(find_spec(package) is None for package in ("torch", "timm", "pydantic", "safetensors", "cv2", "av", "PIL")):
        pytest.skip("recognition needs the packages of the extra 'train'")
    assert cli("demo", "--model", "nothing").is_refusal("there is no model 'nothing'", "give the folder of a model")
    assert not Path("demo").exists()


# ---------------------------------------------------------------------- the shipped example
def test_the_shipped_labels_are_without_errors_and_agree_with_each_other(cli: Call, car: Path) -> None:
    outcome = cli("labels", "check", car / "recordings", "--procedure", "industreal", "--json")
    assert (outcome.code, outcome.json["recordings"], outcome.json["findings"]) == (0, 3, [])
