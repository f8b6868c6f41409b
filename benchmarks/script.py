"""What every benchmark needs as a script: arguments, errors in one line, tables in Markdown, a stopwatch."""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stormpsr.errors import StormPSRError


def make_parser(about: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of the script, as it is written there."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_override(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--override",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a setting: section.key=value; may be repeated",
    )


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """End the program as the commands of the package do if the input is bad."""
    try:
        yield
    except StormPSRError as error:
        sys.exit(f"error: {error}")


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table in Markdown, row by row as they come; the first column names the rows."""
    print(f"| {' | '.join(head)} |\n|---|{'--:|' * (len(head) - 1)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def seconds_of(pid: int | str = "self") -> float:
    """A clock that stands still while a process waits for a processor: a busy machine makes nothing slow by it."""
    try:
        waited = int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        waited = 0.0
    return time.monotonic() - waited


class Stopwatch:
    """Adds up the seconds spent in wrapped functions, without those of wrapped functions called by them."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._clock = clock
        self._inner = [0.0]

    def wrap(self, owner: Any, method: str, label: str) -> None:
        function = getattr(owner, method)

        def timed(*args: Any, **options: Any) -> Any:
            self._inner.append(0.0)
            start = self._clock()
            try:
                return function(*args, **options)
            finally:
                elapsed = self._clock() - start
                self.seconds[label] += elapsed - self._inner.pop()
                self.calls[label] += 1
                self._inner[-1] += elapsed

        setattr(owner, method, timed)
