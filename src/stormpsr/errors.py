"""The errors a user can cause and cure.

Everything that is wrong with the input raises a `StormPSRError` whose text is one line: where, what, and how to
mend it. The command line prints that line and exits with code 2; a program can catch the class. Errors of any
other class are defects of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path


class StormPSRError(Exception):
    """Something the user can cure; the text says how."""


class InputError(StormPSRError):
    """Bad input. `path` and `line` say where it came from, `cure` what to do about it."""

    def __init__(
        self,
        problem: str,
        *,
        path: str | Path | None = None,
        line: int | None = None,
        cure: str | None = None,
    ) -> None:
        self.problem = problem
        self.path = None if path is None else str(path)
        self.line = line
        self.cure = cure
        super().__init__(self._text())

    def _text(self) -> str:
        where = "" if self.path is None else self.path
        if self.line is not None:
            where += f":{self.line}" if where else f"line {self.line}"
        text = f"{where}: {self.problem}" if where else self.problem
        return f"{text}; {self.cure}" if self.cure else text


@contextmanager
def errors_at(
    path: str | Path, line: int | None = None, about: str = "", on_error: Callable[[InputError], None] | None = None
) -> Iterator[None]:
    """An error of code that knows nothing of files gets its place, and is raised or told to `on_error`."""
    try:
        yield
    except InputError as error:
        problem = f"{about}: {error.problem}" if about else error.problem
        placed = InputError(problem, path=path, line=line, cure=error.cure)
        if on_error is None:
            raise placed from None
        on_error(placed)


class MissingExtraError(StormPSRError, ImportError):
    """Something needs packages that the light installation leaves out."""

    def __init__(self, purpose: str, extra: str, missing: str) -> None:
        super().__init__(f"{purpose} needs {missing}, which is not installed; run: pip install 'stormpsr[{extra}]'")


def need_packages(purpose: str, extra: str, *names: str) -> None:
    """Say in one line what to install, before anything runs into a missing package."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise MissingExtraError(purpose, extra, ", ".join(missing))
