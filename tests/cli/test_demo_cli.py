"""`stormpsr demo`, the first thing a newcomer runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]  # the fixtures `cli` and `write`


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has no matplotlib."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


def test_the_demo_scores_the_shipped_example_and_draws_it(cli: Call) -> None:
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    outcome = cli("demo")
    assert (outcome.code, outcome.err) == (0, "")
    for decoder in ("B1 naive", "B2 confidence", "B3 expected"):
        assert decoder in outcome.out
    with image.open("demo/timeline.png") as picture:
        assert picture.size[0] > 1000
    assert max(len(line.rstrip()) for line in outcome.out.splitlines()) <= 100


def test_the_figures_of_the_demo_are_those_of_its_files(cli: Call, without_pictures: None) -> None:
    outcome = cli("demo", "--out", "here", "--json")
    written = json.loads(Path("here/scores.json").read_text())
    assert {name: entry["all"]["pos"] for name, entry in written.items()} == {
        name: entry["pos"] for name, entry in outcome.json["scores"].items()
    }
    assert outcome.json["written"] == [str(Path("here/scores.json"))]


def test_the_example_shows_what_decoders_are_for(cli: Call, without_pictures: None) -> None:
    scores = cli("demo", "--json").json["scores"]
    assert scores["B1 naive"]["f1"] < 0.5 < scores["B3 expected"]["f1"] < 1


def test_without_matplotlib_the_demo_goes_on_and_says_what_to_install(cli: Call, without_pictures: None) -> None:
    outcome = cli("demo")
    assert outcome.code == 0
    assert outcome.err.startswith("no picture: drawing needs matplotlib")
    assert Path("demo/scores.json").is_file()
    assert not Path("demo/timeline.png").exists()


def test_the_demo_on_real_annotations_takes_the_folder_that_holds_them(
    cli: Call, shared: Path, without_pictures: None
) -> None:
    if not (shared / "data" / "meccano_asd").is_dir():
        pytest.skip(f"there are no MECCANO annotations at {shared / 'data'}")
    outcome = cli("demo", "--data", shared / "data", "--json")
    assert "MECCANO" in outcome.json["title"]
    assert round(outcome.json["scores"]["B3 expected"]["f1"], 3) == 0.837


def test_a_folder_without_annotations_is_refused_with_a_cure(cli: Call) -> None:
    outcome = cli("demo", "--data", ".")
    assert outcome.is_refusal("there is no folder meccano_psr in it; --data is the folder that holds meccano_psr/ and")
    assert not Path("demo").exists()


def test_the_shipped_labels_are_without_errors_and_agree_with_each_other(cli: Call, car: Path) -> None:
    outcome = cli("labels", "check", car / "recordings", "--procedure", "industreal", "--json")
    assert (outcome.code, outcome.json["recordings"], outcome.json["findings"]) == (0, 3, [])
