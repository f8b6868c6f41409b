"""How many files one frame passes through in `stormpsr run`, and how often its way changes file.

    python benchmarks/frame_path.py RECORDING                              # the shipped model
    PYTHONPATH=other/src python benchmarks/frame_path.py RECORDING         # another checkout's code

A measure of how hard the way is to follow for a reader. Counted are calls of functions in this package's files while
`stormpsr run` works on one frame in which detector, encoder and temporal model are all due, long after the start.
"""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import stormpsr
from script import make_parser

PACKAGE = Path(stormpsr.__file__).parent


class FramePath:
    """Notes the file of every call, return and line of work inside the package, between two frames of a source."""

    def __init__(self) -> None:
        self.n_frames, self.n_calls_across = -1, 0
        self.visited: list[str] = []
        self.functions: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(str(PACKAGE)) or event not in ("call", "return"):
            return
        here = code.co_filename if event == "call" else self._caller(frame)
        if event == "call":
            self.n_calls_across += self._caller(frame) not in ("", code.co_filename)
            self.functions.add((code.co_filename, code.co_qualname if hasattr(code, "co_qualname") else code.co_name))
        if here and (not self.visited or self.visited[-1] != here):
            self.visited.append(here)

    def _caller(self, frame: FrameType) -> str:
        """The file of the package that a return leads to."""
        back = frame.f_back
        while back is not None and not back.f_code.co_filename.startswith(str(PACKAGE)):
            back = back.f_back
        return "" if back is None else back.f_code.co_filename


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("recording")
    parser.add_argument("--model", default="vehicle")
    parser.add_argument("--frame", type=int, default=320, help="a multiple of the model's strides")
    options = parser.parse_args(words)
    path = FramePath()

    recognizer: Any = stormpsr.Recognizer
    update = recognizer.update

    def counting(self: Any, frame: Any) -> Any:
        # a frame's turn begins when the recogniser is given it, and ends when it is given the next one
        path.n_frames += 1
        sys.setprofile(path if path.n_frames == options.frame else None)
        if path.n_frames > options.frame:
            raise SystemExit
        return update(self, frame)

    recognizer.update = counting
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        sys.argv = ["stormpsr", "run", options.model, options.recording, "--out", f"{folder}/steps.csv"]
        with contextlib.suppress(SystemExit):
            runpy.run_module("stormpsr", run_name="__main__")
    files = sorted({Path(name).relative_to(PACKAGE).as_posix() for name in path.visited})
    switches = f"{len(path.visited) - 1} switches of file (calls and returns), {path.n_calls_across} calls across files"
    print(f"{len(files)} files, {switches}, {len(path.functions)} functions")
    for name in files:
        inside = sorted(function for file, function in path.functions if file.endswith(f"/{name}"))
        print(f"  {name}: {', '.join(inside)}")


if __name__ == "__main__":
    main()
