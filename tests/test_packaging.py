"""What is promised about the package: locked versions, pages made from code, and what the wheel carries."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import stormpsr

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # comes with pytest

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGE = CHECKOUT / "src" / "stormpsr"
PROJECT: dict[str, Any] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_LOCKED = ("yolox", "yolo", "openvino")  # other people's detectors and engine, which `make setup` leaves out


def locked_versions() -> dict[str, list[Version]]:
    """Versions per package; several where Pythons or systems differ."""
    found: dict[str, list[Version]] = {}
    for name, version in re.findall(r"^(\S+)==(\S+)", (CHECKOUT / "requirements.lock").read_text(), flags=re.MULTILINE):
        found.setdefault(canonicalize_name(name), []).append(Version(version))
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    found["torch"] = [Version(version) for version in re.findall(r"^TORCH\s*\?=\s*(\S+)", makefile, flags=re.MULTILINE)]
    return found


def test_the_lock_has_an_allowed_version_of_everything_that_is_asked_for() -> None:
    locked = locked_versions()
    assert locked["torch"], "the Makefile names no version of torch"
    extras = PROJECT["optional-dependencies"]
    lines = PROJECT["dependencies"] + [line for extra in extras if extra not in NOT_LOCKED for line in extras[extra]]
    for wanted in map(Requirement, lines):
        versions = locked.get(canonicalize_name(wanted.name), [])
        assert versions, f"{wanted.name} is not locked; run: make lock"
        assert all(v in wanted.specifier for v in versions), f"the locked {wanted} is out of date; run: make lock"


def test_every_locked_package_is_known_by_its_hash() -> None:
    blocks = re.split(r"^(?=[a-z])", (CHECKOUT / "requirements.lock").read_text(), flags=re.MULTILINE)[1:]
    assert len(blocks) > 50
    assert all("--hash=sha256:" in block for block in blocks)


def test_the_version_is_the_same_everywhere() -> None:
    citation = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text(encoding="utf-8"))
    assert PROJECT["version"] == citation["version"] == stormpsr.__version__


def test_the_wheel_carries_everything_that_is_read_at_run_time(tmp_path: Path) -> None:
    """Whatever lies in the package's folder belongs into it: weights, procedures, products, presets, templates."""
    code = f"from setuptools.build_meta import build_wheel; build_wheel({str(tmp_path)!r})"
    copy = tmp_path / "source"
    shutil.copytree(CHECKOUT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, copy)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    carried = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("stormpsr/")}
    there = {
        f"stormpsr/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert carried == there
