"""Examples in the documentation do what the documentation says."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
WITH_EXAMPLES = sorted(path.name for path in DOCS.glob("*.md") if ">>> " in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_page_come_out_as_written(name: str) -> None:
    failed, tried = doctest.testfile(str(DOCS / name), module_relative=False, encoding="utf-8", verbose=False)
    assert tried > 0
    assert failed == 0, "see the captured output"


def test_the_page_on_scoring_has_an_example() -> None:
    assert "scoring.md" in WITH_EXAMPLES


def test_the_page_of_settings_says_what_the_config_classes_say() -> None:
    tool = DOCS.parent / "tools" / "settings_page.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
