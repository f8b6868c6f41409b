"""Draws one recording in a process of its own: `python -m stormpsr.synthetic.worker FOLDER`, its spec on stdin.

Every line on stdout is a JSON object: progress as `done` and `of`, or a `problem` that the user can cure.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from stormpsr.errors import InputError, StormPSRError
from stormpsr.synthetic.recording_spec import RecordingSpec


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Exit code 0: drawn; 2: a problem was reported; anything else: a crash, worth another attempt."""
    from stormpsr.synthetic.recording_files import draw_recording

    spec = RecordingSpec.from_dict(json.load(sys.stdin))
    try:
        draw_recording(spec, Path(sys.argv[1]), lambda done, of: _say({"done": done, "of": of}))
    except InputError as error:
        _say({"problem": error.problem, "path": error.path, "cure": error.cure})
        return 2
    except StormPSRError as error:
        _say({"problem": str(error), "path": None, "cure": None})
        return 2
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # some graphics drivers crash while they unload; everything is written by now
