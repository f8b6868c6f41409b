"""The page on the command line shows what the commands really print."""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"


def examples(page: str) -> list[tuple[str, str]]:
    """(command, output) of every `console` block; `...` stands for lines left out."""
    blocks = re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL)
    parts = [part.partition("\n") for block in blocks for part in block.split("$ stormpsr ")[1:]]
    return [(command, output) for command, _, output in parts]


def test_every_example_prints_what_the_page_shows(cli: Callable[..., Any], car: Path, tmp_path: Path) -> None:
    shutil.copytree(car, tmp_path / "car")
    shown = examples(PAGE.read_text(encoding="utf-8"))
    assert len(shown) >= 9
    same = doctest.OutputChecker().check_output
    for command, output in shown:
        outcome = cli(*shlex.split(command))
        printed = (outcome.out + outcome.err).replace("\\", "/")
        assert same(output, printed, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE), f"{command} printed:\n{printed}"
