"""An annotator to test with: recordings of a rendered world without their labels, served in this process or in another.

As a program it serves a data set until it is killed, with proposals from a file if there is one:
python served_annotator.py DATA PORT [PROPOSALS.json]
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stormpsr.annotate.api import Annotator, annotator_app
from stormpsr.annotate.proposals import Proposals, StepProposal
from stormpsr.data.dataset import Dataset
from stormpsr.data.recording import Recording
from stormpsr.web.security import Access
from stormpsr.web.server import make_server

LABELS = ("PSR_labels_raw.csv", "PSR_labels.csv", "PSR_labels_with_errors.csv")
BOXES = "OD_labels.json"


def unlabelled_copy(recording: Path, folder: Path) -> Path:
    """A data set with one recording, without the labels and boxes that the renderer wrote."""
    copy = folder / "recordings" / "train" / recording.name
    shutil.copytree(recording, copy, ignore=shutil.ignore_patterns("PSR_*", BOXES, "visibility.csv"))
    shutil.copy(recording / "procedure.yaml", folder / "procedure.yaml")
    return copy


class ScriptedProposer:
    """Proposes what it was told to, once `allow` is set."""

    def __init__(self, proposals: Proposals) -> None:
        self.proposals, self.allow = proposals, threading.Event()
        self.asked: list[str] = []

    def propose(self, recording: Recording, on_progress: Callable[[int, int], None]) -> Proposals:
        self.asked.append(recording.name)
        on_progress(1, recording.n_frames)
        self.allow.wait(timeout=120)
        return self.proposals


class Served:
    """The annotator at `url`."""

    def __init__(self, root: Path, proposer: Any = None, access: Access | None = None, port: int = 0) -> None:
        self.annotator = Annotator(root, Dataset.open(root).procedure, proposer=proposer)
        self.port = port or free_port()
        self._server = make_server(annotator_app(self.annotator, access or Access()), "127.0.0.1", self.port)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.01)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=20)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    scripted = None
    if len(sys.argv) > 3:
        content = json.loads(Path(sys.argv[3]).read_text(encoding="utf-8"))
        scripted = ScriptedProposer(Proposals(tuple(StepProposal(*step) for step in content)))
        scripted.allow.set()
    Served(Path(sys.argv[1]), scripted, port=int(sys.argv[2]))
    print("serving", flush=True)
    threading.Event().wait()
