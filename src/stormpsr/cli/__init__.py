"""The command line. Each group of commands is a file beside this one; heavy imports live inside the commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 the command found something wrong, 2 bad input, 130 stopped."""
    from stormpsr.cli.run import run

    return run(list(sys.argv[1:] if argv is None else argv))
