"""Running the command line inside a test."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from stormpsr.cli.main import main
from stormpsr.procedure.model import Procedure


@dataclass(frozen=True)
class Outcome:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def is_refusal(self, *words: str) -> bool:
        """Exit code 2, nothing on the output, one line on the error stream that has all the words."""
        one_line = self.err.startswith("error: ") and self.err.count("\n") == 1 and self.err.endswith("\n")
        return self.code == 2 and not self.out and one_line and all(word in self.err for word in words)


Cli = Callable[..., Outcome]
Write = Callable[..., Path]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run `stormpsr ...` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Outcome:
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return call


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file below the folder in which commands run."""

    def put(place: str, content: str | bytes) -> Path:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return put


@pytest.fixture
def lamp_file(tmp_path: Path, lamp: Procedure) -> str:
    """The three-part lamp as a procedure file."""
    lamp.save(tmp_path / "lamp.yaml")
    return "lamp.yaml"


@pytest.fixture(scope="session")
def car() -> Path:
    """The example that ships with the package: `recordings/` and `detections/`."""
    return Path(str(resources.files("stormpsr") / "examples" / "car"))
