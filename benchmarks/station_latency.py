"""From a camera's frame to the page: milliseconds, share of the processor, memory, with many who look at once.

    python benchmarks/station_latency.py --fps 10 [--seconds 30] [--clients 1] [--model vehicle --recording RECORDING]
    python benchmarks/station_latency.py --frames 100000   # memory over a long shift, as fast as it can

Without a model, a recogniser that does nothing stands in for the networks: what is measured then is the station alone.
A frame counts as shown when one who looks has read a state that was made after it came. All who look read states and
images, as the page does. At most five states per second are sent, so that 100 ms on average are waiting. The share of
the processor is the station's alone, in cores.
"""

from __future__ import annotations

import json
import resource
import selectors
import socket
import statistics
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from script import errors_in_one_line, make_parser, print_table
from stormpsr.data.events import StepEvent
from stormpsr.data.sources import Frame, FrameSequence, InRealTime, LatestOnly, open_source
from stormpsr.procedure.model import Procedure
from stormpsr.station.api import StationApi, station_app
from stormpsr.station.records import Records
from stormpsr.station.service import AnyRecognizer, Station, StationSettings
from stormpsr.web.app import News
from stormpsr.web.security import Access
from stormpsr.web.server import make_server


class Nothing:
    """A recogniser that completes a step now and then, without looking."""

    method, prediction = "average", None

    def __init__(self, procedure: Procedure, variant: str | None) -> None:
        self.procedure, self.variant = procedure, procedure.variant(variant)
        self.share = np.zeros(len(procedure.steps))
        self.reset()

    def reset(self) -> None:
        self.state, self._n = self.variant.initial, 0

    def update(self, frame: Frame) -> Sequence[StepEvent]:
        self._n += 1
        turn, rest = divmod(self._n, 40)
        expected = self.variant.expected
        return [StepEvent(expected[turn % len(expected)], frame.index)] if not rest else []

    def correct(self, component: int, bit: int) -> None: ...
    def restore(self, bits: Sequence[int]) -> None: ...


def noise(n: int, seed: int = 0) -> Iterator[Frame]:
    """Frames that differ, as a camera's do."""
    rng = np.random.default_rng(seed)
    images = [rng.integers(40, 200, (320, 320, 3), dtype=np.uint8) for _ in range(16)]
    return (Frame(images[index % 16], index, index / 10) for index in range(n))


def recogniser_for(model: str | None) -> tuple[Callable[[str | None], AnyRecognizer], Procedure, str]:
    if model is None:
        import stormpsr

        procedure = Procedure.load(Path(stormpsr.__file__).parent / "weights" / "vehicle" / "procedure.yaml")
        return (lambda variant: Nothing(procedure, variant)), procedure, ""
    from stormpsr.cli.options import measured_threads
    from stormpsr.recognizer.model_folder import load_model
    from stormpsr.recognizer.recognizer import Recognizer

    loaded, threads = load_model(model), measured_threads()

    def make(variant: str | None) -> AnyRecognizer:
        found = Recognizer.of(loaded, None, variant)
        found.threads = threads
        return found

    return make, loaded.procedure, loaded.digest()


class Looker:
    """The two connections of a page: states, and images. Notes when which frame was shown."""

    def __init__(self, port: int) -> None:
        self.shown: dict[int, float] = {}
        self.n_images, self._left = 0, b""
        self.states, self.video = (socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(2))
        for connection, path in ((self.states, b"/api/stream"), (self.video, b"/api/video")):
            connection.sendall(b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % path)

    def read_states(self) -> bool:
        received = self.states.recv(1 << 18)
        *whole, self._left = (self._left + received).split(b"\n\n")
        now = time.monotonic()
        for message in whole:
            _, found, text = message.partition(b'"frame": ')
            if found:
                self.shown.setdefault(int(text[: text.index(b",")]), now)
        return bool(received)

    def read_video(self) -> bool:
        received = self.video.recv(1 << 18)
        self.n_images += received.count(b"image/jpeg")
        return bool(received)


def look(port: int, n: int, to_parent: Connection) -> None:
    """So many pages at once, in a process of their own: browsers take no time from the station's interpreter."""
    lookers = [Looker(port) for _ in range(n)]
    waiting = selectors.DefaultSelector()
    for looker in lookers:
        waiting.register(looker.states, selectors.EVENT_READ, looker.read_states)
        waiting.register(looker.video, selectors.EVENT_READ, looker.read_video)
    to_parent.send(None)
    while not to_parent.poll():
        for key, _ in waiting.select(timeout=0.2):
            if not key.data():
                waiting.unregister(key.fileobj)
    to_parent.send([(looker.shown, looker.n_images) for looker in lookers])


def memory_megabytes() -> float:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def measure(args: Any) -> dict[str, float]:
    make, procedure, digest = recogniser_for(args.model)
    with TemporaryDirectory() as folder:
        records = Records(Path(folder), digest)
        station = Station(make, records, StationSettings(name="benchmark", source="benchmark"))
        api = StationApi(station, News())
        server = make_server(station_app(api, Access()), "127.0.0.1", 0)
        serving = threading.Thread(target=server.run, daemon=True)
        serving.start()
        while not server.started:
            time.sleep(0.01)
        here, there = get_context("spawn").Pipe()
        arguments = (server.servers[0].sockets[0].getsockname()[1], args.clients, there)
        looking = get_context("spawn").Process(target=look, args=arguments, daemon=True)
        looking.start()
        here.recv()
        station.start_unit("benchmark", None)
        found = _long_shift(station, args.frames) if args.frames else {}
        arrived: dict[int, float] = {}
        if not args.frames:
            found, arrived = _live(station, args, procedure)
        time.sleep(0.5)
        here.send(None)
        seen = here.recv()
        looking.join()
        if arrived:
            waits = [wait for shown, _ in seen for wait in waits_of(arrived, shown)]
            found = {"median_ms": statistics.median(waits), "p99_ms": percentile(waits, 0.99), **found}
        found["states"] = statistics.mean(len(shown) for shown, _ in seen)
        found["images"] = statistics.mean(n_images for _, n_images in seen)
        found["records"] = float(records.last_id)
        server.should_exit = True
        serving.join()
        station.close()
        records.close()
    return found


def waits_of(arrived: dict[int, float], shown: dict[int, float]) -> Iterator[float]:
    """Milliseconds from every frame to a state that was made after it; a state shows the frames before it as well."""
    numbers = sorted(shown)
    for index, came in arrived.items():
        later = bisect_left(numbers, index)
        if later < len(numbers):
            yield 1000 * (shown[numbers[later]] - came)


def _live(station: Station, args: Any, procedure: Procedure) -> tuple[dict[str, float], dict[int, float]]:
    n = int(args.fps * args.seconds)
    if args.recording:
        held = list(islice(open_source(args.recording, procedure).frames(), n))
        frames = [Frame(held[i % len(held)].image, i, i / args.fps) for i in range(n)]
    else:
        frames = [Frame(frame.image, i, i / args.fps) for i, frame in enumerate(noise(n))]
    camera = LatestOnly(InRealTime(FrameSequence(frames, args.fps)))
    arrived: dict[int, float] = {}
    began, used = time.monotonic(), time.process_time()
    while True:
        frame = camera.take(1.0)
        if frame is not None:
            arrived[frame.index] = camera.arrived
            station.see(frame, arrived=camera.arrived, dropped=camera.dropped)
        elif camera.health == "ended":
            break
    taken, used = time.monotonic() - began, time.process_time() - used
    rates = {"looked_at_per_second": len(arrived) / taken, "passed_over": float(n - len(arrived))}
    return {**rates, "processor_share": used / taken}, arrived


def _long_shift(station: Station, n: int) -> dict[str, float]:
    """Units one after the other; every tenth is cut short, which is an alarm with a clip."""
    taken, next_unit, n_units = 0.0, 0, 0
    found: dict[str, float] = {}
    checkpoints = {n // 10: "tenth", n // 2: "half", n - 1: "end"}
    for frame in noise(n):
        if frame.index == next_unit:
            station.start_unit(str(frame.index), None)
            n_units += 1
            next_unit += 400 if n_units % 10 == 0 else 480
        began = time.monotonic()
        station.see(frame)
        taken += time.monotonic() - began
        if frame.index in checkpoints:
            while station.clips_due:  # at this speed there is no time for them; in a shift there is
                station.pass_time()
                time.sleep(0.1)
            found[f"megabytes_{checkpoints[frame.index]}"] = memory_megabytes()
    return {**found, "frames_per_second": n / taken, "units": float(n_units)}


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--fps", type=float, default=10, help="frames per second of the camera")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--clients", type=int, default=1, help="how many look at once")
    parser.add_argument("--model", help="folder or name of a model; without it, networks are left out")
    parser.add_argument("--recording", help="what the camera shows; without it, noise")
    parser.add_argument("--frames", type=int, help="show so many frames as fast as possible, and watch the memory")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(words)
    with errors_in_one_line():
        found = measure(args)
    if args.json:
        print(json.dumps(found))
    else:
        print_table(list(found), [[f"{value:.2f}" if value < 10 else f"{value:.0f}" for value in found.values()]])


if __name__ == "__main__":
    main()
