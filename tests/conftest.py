"""Fixtures for all tests: procedures small enough to work with by hand, golden files, and optional real annotations."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from stormpsr.procedure.model import AssemblyState, Component, Procedure, StateKind, Variant

# Examples are not timed: the machine may be busy. In automatic checks they are always the same.
settings.register_profile("stormpsr", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("stormpsr")

CHECKOUT = Path(__file__).resolve().parent.parent

# What the rooms of the package need besides the light core. Tests of what is not installed are left out, and named at
# the end: `make setup` installs all of it.
TORCH = ("torch", "timm", "lightning", "safetensors", "pydantic", "cv2", "av")
EXTRAS_OF: dict[str, tuple[str, ...]] = {
    "models": TORCH,
    "detectors": (*TORCH, "faster_coco_eval"),
    "training": TORCH,
    "recognizer": TORCH,
    "synthetic": ("vtk", "trimesh", "cv2", "simplejpeg", "PIL", "av"),
    "cli": (*TORCH, "vtk", "trimesh", "matplotlib"),
    "evaluation": ("matplotlib", "sklearn", "cv2"),
    "data": ("cv2", "av", "torch"),
    "test_config.py": ("pydantic",),
    "test_docs.py": (*TORCH, "vtk", "trimesh", "matplotlib"),
    "test_packaging.py": ("setuptools",),
}
left_out: dict[str, list[str]] = {}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests of what is not installed."""
    if not collection_path.is_relative_to(CHECKOUT / "tests") or collection_path == CHECKOUT / "tests":
        return None
    room = collection_path.relative_to(CHECKOUT / "tests").parts[0]
    missing = [package for package in EXTRAS_OF.get(room, ()) if find_spec(package) is None]
    if missing:
        left_out[room] = missing
    return True if missing else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for room, missing in sorted(left_out.items()):
        terminalreporter.write_line(f"left out: tests/{room} (not installed: {', '.join(missing)})")


if find_spec("torch"):
    from stormpsr.models.backbones import make_torchvision_importable

    make_torchvision_importable()  # before Lightning or timm import it
Cases = list[dict[str, Any]]


def read_cases(path: Path) -> Cases:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        cases: Cases = json.load(file)
    return cases


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Cases]:
    """Outputs of the published programs on invented labels, kept with the tests."""
    return lambda name: read_cases(CHECKOUT / "tests" / "golden" / f"{name}.json.gz")


@pytest.fixture(scope="session")
def shared() -> Path:
    """A folder with `golden/` and `data/`: outputs of the published programs on real labels, and those labels."""
    folder = Path(os.environ.get("STORMPSR_SHARED", CHECKOUT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"there are no real annotations at {folder}; STORMPSR_SHARED says where they are")
    return folder


@pytest.fixture(scope="session")
def shared_golden(shared: Path) -> Callable[[str], Cases]:
    """Outputs of the published programs on real labels."""

    def read(name: str) -> Cases:
        path = shared / "golden" / f"{name}.json.gz"
        if not path.is_file():
            pytest.skip(f"there is no golden file {path}")
        return read_cases(path)

    return read


@pytest.fixture(scope="session")
def meccano_psr(shared: Path) -> Path:
    """The published step labels of MECCANO: `<split>/<recording>/PSR_labels*.csv`."""
    folder = shared / "data" / "meccano_psr"
    if not folder.is_dir():
        pytest.skip(f"there are no MECCANO labels at {folder}")
    return folder


@pytest.fixture(scope="session")
def meccano() -> Procedure:
    return Procedure.load("meccano")


@pytest.fixture(scope="session")
def industreal() -> Procedure:
    return Procedure.load("industreal")


@pytest.fixture(scope="session")
def lamp() -> Procedure:
    """Three parts, put on one after the other.

    Steps: 0, 1, 2 foot on, wrong, off; 3, 4, 5 the same of the pole; 6, 7, 8 of the shade.
    State classes: 0 background, 1 nothing, 2 foot, 3 foot and pole, 4 all three, 5 error.
    """
    bits = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)]
    return Procedure(
        name="lamp",
        components=(Component("foot"), Component("pole"), Component("shade")),
        states=(
            AssemblyState(0, StateKind.BACKGROUND, "background"),
            *(AssemblyState(i, StateKind.ASSEMBLY, f"state {i}", state) for i, state in enumerate(bits, start=1)),
            AssemblyState(5, StateKind.ERROR, "error"),
        ),
        variants={
            "build": Variant("build", initial=(0, 0, 0), expected=(0, 3, 6)),
            "dismantle": Variant("dismantle", initial=(1, 1, 1), expected=(2, 5, 8)),
        },
        fps=10,
    )
