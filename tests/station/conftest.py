"""A station whose recogniser says what a test tells it to."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_SPEC = importlib.util.spec_from_file_location("scripted_station", Path(__file__).with_name("scripted_station.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
scripted_station = importlib.util.module_from_spec(_SPEC)
sys.modules["scripted_station"] = scripted_station
_SPEC.loader.exec_module(scripted_station)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Any]:
    """The station without its page."""
    found = scripted_station.Scripted(tmp_path / "station")
    yield found
    found.close()


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Any]:
    """The station with its page at `scripted.url`; `scripted.see(done=[3])` is the next frame."""
    found = scripted_station.Scripted(tmp_path / "station")
    found.start()
    yield found
    if found._thread.is_alive():
        found.stop()
