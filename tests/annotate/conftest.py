"""A rendered recording with its labels, and the same without them in a served annotator."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import pytest

from stormpsr.cli.main import main

_SPEC = importlib.util.spec_from_file_location("served_annotator", Path(__file__).with_name("served_annotator.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
served_annotator = importlib.util.module_from_spec(_SPEC)
sys.modules["served_annotator"] = served_annotator
_SPEC.loader.exec_module(served_annotator)

DRAWN = "--train 0 --val 1 --test 0 --size 64 --every 1 --max-seconds 20 --occlusion 0 --profile quick --seed 3"
WITH_ERRORS = f"{DRAWN} --val-error-rate 1 --max-seconds 10"


def draw(tmp_path_factory: pytest.TempPathFactory, name: str, options: str) -> Path:
    """The one recording of a world that is drawn once for all tests."""
    in_parallel = "PYTEST_XDIST_WORKER" in os.environ
    drawn = tmp_path_factory.getbasetemp().parent if in_parallel else tmp_path_factory.getbasetemp()
    with filelock.FileLock(drawn / f"{name}.lock"):
        assert main(["synth", "generate", str(drawn / name), *options.split()]) == 0
    (found,) = (drawn / name / "recordings" / "val").iterdir()
    return found


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording as the renderer wrote it: two changes, of two components each."""
    return draw(tmp_path_factory, "annotate-world", DRAWN)


@pytest.fixture(scope="session")
def rendered_with_errors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One in which a part is put on wrongly."""
    return draw(tmp_path_factory, "annotate-world-with-errors", WITH_ERRORS)


@pytest.fixture
def recording(rendered: Path, tmp_path: Path) -> Path:
    """The same without its labels; the data set is `tmp_path / "data"`."""
    found: Path = served_annotator.unlabelled_copy(rendered, tmp_path / "data")
    return found


@pytest.fixture
def served(recording: Path, tmp_path: Path) -> Iterator[Any]:
    found = served_annotator.Served(tmp_path / "data")
    yield found
    found.stop()
