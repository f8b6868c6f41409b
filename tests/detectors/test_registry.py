"""Detectors by name: those of the package, and those of users."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from stormpsr.cli.main import main
from stormpsr.detectors.base import StateDetector
from stormpsr.detectors.registry import DETECTORS, load_detector, make_detector
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

PAGE = Path(__file__).resolve().parents[2] / "docs" / "detection.md"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The detector of the documentation, in a module of its own."""
    found = re.search(r"<!-- file: tiny.py -->\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "tiny_of_a_user.py").write_text(found[1], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "code")
    return "tiny_of_a_user:TinyDetector"


def test_the_detector_of_the_documentation_is_trained_scored_and_loaded(
    tiny: str, lamp_data: Path, lamp: Procedure, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "detector"
    words = ["--steps", "3", "--batch-size", "4", "--set", "width=8", "--device", "cpu", "--out", str(out)]
    assert main(["detect", "train", str(lamp_data), "--detector", tiny, *words]) == 0, capsys.readouterr().err
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert config["kind"] == tiny
    assert config["settings"] == {"image_size": 64, "width": 8}
    assert type(load_detector(out, lamp)).__name__ == "TinyDetector"
    capsys.readouterr()
    assert main(["detect", "eval", str(out), str(lamp_data), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_readable"] == 15


def test_a_setting_that_a_detector_does_not_have_is_refused(tiny: str, lamp: Procedure) -> None:
    with pytest.raises(InputError, match=r"do not fit TinyDetector .*colour"):
        make_detector(tiny, lamp, {"colour": "red"})


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("abacus", "unknown detector 'abacus'"),
        ("nowhere.to_be_found:Detector", "there is no module 'nowhere'"),
        ("json:JSONDecoder", "'json:JSONDecoder' is not a detector"),
        ("json:Nothing.inside", "'json:Nothing.inside' is not a detector"),
    ],
)
def test_what_is_not_a_detector_is_refused(lamp: Procedure, kind: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        make_detector(kind, lamp)


def test_every_detector_of_the_package_is_called_what_the_registry_calls_it() -> None:
    from importlib import import_module

    for kind, path in DETECTORS.items():
        module, _, name = path.partition(":")
        found = getattr(import_module(module), name)
        assert issubclass(found, StateDetector)
        assert found.kind == kind
