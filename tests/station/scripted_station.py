"""A station whose recogniser says what a test tells it to; the rest of it is real.

As a program it watches an endless camera in which a step is done at every frame, so that it can be killed:
python scripted_station.py FOLDER
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.data.sources import Frame
from stormpsr.decoding.predictions import Prediction
from stormpsr.procedure.model import Procedure, StateBits, StepKind, Variant
from stormpsr.station.records import Records
from stormpsr.station.service import Station, StationSettings


def vehicle() -> Procedure:
    return Procedure.load(Path(str(files("stormpsr"))) / "weights" / "vehicle" / "procedure.yaml")


class ScriptedRecognizer:
    """Says what it was told to say, and keeps the state that follows from it."""

    def __init__(self, procedure: Procedure, variant: str | None) -> None:
        self.method, self.prediction = "average", None
        self.procedure: Procedure = procedure
        self.variant: Variant = procedure.variant(variant)
        self.prediction: Prediction | None = None
        self.is_foreign = False
        self.share: NDArray[np.float64] = np.zeros(len(procedure.steps))
        self.told: list[tuple[int, int]] = []  # corrections
        self.says: list[StepEvent] = []
        self.sees: tuple[StateDetection, ...] = ()
        self.while_looking: Callable[[], object] = lambda: None  # what happens while the networks compute
        self.reset()

    def reset(self) -> None:
        self.bits, self.n = list(self.variant.initial), 0
        self.share = np.zeros(len(self.procedure.steps))

    @property
    def state(self) -> StateBits:
        return tuple(self.bits)

    def update(self, frame: Frame) -> Sequence[StepEvent]:
        self.while_looking()
        self.n += 1
        self.prediction = Prediction(self.n, frame.index, frame.time_seconds, self.sees, is_foreign=self.is_foreign)
        found, self.says = self.says, []
        for event in found:
            if event.kind != "skipped":
                self.bits = list(self.procedure.apply(self.bits, event.step_id))
        return found

    def correct(self, component: int, bit: int) -> None:
        self.told.append((component, bit))
        self.bits[component] = bit

    def restore(self, bits: Sequence[int]) -> None:
        self.bits = list(bits)


class Scripted:
    """The station, its page on 127.0.0.1, and a camera that shows what `see` says."""

    def __init__(
        self,
        folder: Path,
        procedure: Procedure | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        **more: Any,
    ) -> None:
        self.folder, self.procedure, self._clock = folder, procedure or vehicle(), clock
        self._more = {"name": "bench", "model": "scripted", "source": "scripted camera", **more}
        self._rng = np.random.default_rng(0)
        self.seconds, self.index, self.port = 0.0, 0, 0
        self.access: Any = None
        self._thread: threading.Thread | None = None
        self.open()

    def open(self) -> None:
        """The station without its page."""
        self.records = Records(self.folder, "digest-of-the-model")
        settings = StationSettings(**{"clip_seconds": (1.0, 0.2), **self._more})
        self.station = Station(
            lambda variant: ScriptedRecognizer(self.procedure, variant), self.records, settings, clock=self._clock
        )

    def close(self) -> None:
        self.station.close()
        self.records.close()

    @property
    def recognizer(self) -> ScriptedRecognizer:
        found = self.station.recognizer
        assert isinstance(found, ScriptedRecognizer)
        return found

    # ------------------------------------------------------------------ what the camera shows
    def see(
        self,
        done: Iterable[int] = (),
        *,
        share: Mapping[int, float] | None = None,
        wrong: Iterable[int] = (),
        unexpected: Iterable[int] = (),
        skipped: Iterable[int] = (),
        box: tuple[float, float, float, float] | None = (90, 100, 240, 230),
        state_class: int | None = None,
        seconds: float = 0.1,
        image: NDArray[np.uint8] | None = None,
    ) -> None:
        """The next frame. wrong: ids of installations whose part sits wrongly. box: x0, y0, x1, y1."""
        self.seconds += seconds
        self.index += 1
        self.station.take_orders()  # a new unit begins before the frame is looked at
        recognizer = self.recognizer
        part = lambda step_id: self.procedure.step(step_id).component_index  # noqa: E731
        wrong_ids = [self.procedure.step_id(part(step_id), StepKind.INCORRECT) for step_id in wrong]
        said = {"completed": done, "wrong": wrong_ids, "unexpected": unexpected, "skipped": skipped}
        recognizer.says = [
            StepEvent(step_id, self.index, confidence=0.93, kind=kind, time_seconds=self.seconds)  # type: ignore[arg-type]
            for kind, step_ids in said.items()
            for step_id in step_ids
        ]
        recognizer.share = np.zeros(len(self.procedure.steps))
        for step_id, value in (share or {}).items():
            recognizer.share[step_id] = value
        shown = self.procedure.state_class(recognizer.bits) if state_class is None else state_class
        corners = None if box is None else (box[0], box[1], box[2] - box[0], box[3] - box[1])
        recognizer.sees = () if corners is None else (StateDetection(recognizer.n + 1, shown or 0, 0.9, corners),)
        if image is None:
            image = self._rng.integers(40, 200, (240, 320, 3), dtype=np.uint8)
        self.station.see(Frame(image, self.index, self.seconds))

    def camera(self, status: Literal["ok", "lost", "stalled", "ended"]) -> None:
        if status == "ok":
            self.see()
        else:
            self.station.lose_camera(status, "the test unplugged it")

    # ------------------------------------------------------------------ the page
    def start(self, port: int | None = None) -> None:
        """Serve the page, at the same port as before if it was served already."""
        from stormpsr.station.api import StationApi, station_app
        from stormpsr.web.app import News
        from stormpsr.web.security import Access
        from stormpsr.web.server import make_server

        if self._thread is not None:
            self.open()
        self.port = port or self.port or free_port()
        self.api = StationApi(self.station, News())
        self._server = make_server(station_app(self.api, self.access or Access()), "127.0.0.1", self.port)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.01)

    def stop(self) -> None:
        """As if the machine were switched off."""
        assert self._thread is not None
        self._server.should_exit = True
        self._thread.join(timeout=20)
        self.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def run_until_killed(folder: Path) -> None:
    """Does and corrects steps as fast as it can, and prints the latest record of every snapshot that it showed."""
    scripted = Scripted(folder)
    station, steps = scripted.station, list(scripted.procedure.variant("assy").expected)
    if not station.work.is_running:
        station.start_unit("A-1", None)
    print("state", "".join("x" if bit < 0 else str(bit) for bit in station.work.bits), flush=True)
    for turn in range(10**9):
        step_id = steps[turn % len(steps)]
        if station.work.steps[step_id].status == "done":
            station.correct_step(step_id, "open")
            scripted.see(wrong=[step_id])  # an alarm, with an image and a clip
        else:
            scripted.see(done=[step_id])
        shown = station.snapshot()
        bits = "".join("x" if bit < 0 else str(bit) for bit in station.work.bits)
        print("shown", shown["log"][0]["id"], bits, flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        run_until_killed(Path(sys.argv[1]))
    else:  # a page to play with: FOLDER PORT
        scripted = Scripted(Path(sys.argv[1]))
        scripted.start(int(sys.argv[2]))
        scripted.station.start_unit("A-0017", None)
        steps = scripted.procedure.variant("assy").expected
        for turn in range(10**9):
            n, part = divmod(turn % 400, 40)
            step = steps[min(n, 8)]
            scripted.see(done=[step] if part == 39 and n < 9 else (), share={step: part / 40})
            if turn % 400 == 399:
                scripted.station.start_unit(f"A-{turn // 400 + 18:04d}", None)
            time.sleep(0.1)
