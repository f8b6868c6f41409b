"""Several stations: a file that names them, a process for each, and one page that lists them.

    stations:
      - name: bench-1
        source: rtsp://user:password@camera-1/stream
      - name: bench-2
        model: models/mine
        source: 0

A process that ends is started again. The stations' ports follow that of the list.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from stormpsr.errors import InputError
from stormpsr.station.api import PAGES, station_card
from stormpsr.web.app import answer, make_app, page
from stormpsr.web.security import Access
from stormpsr.yaml_loader import STRICT_KEYS, read_yaml, validate


@dataclass(frozen=True)
class StationEntry:
    """A station in the file. What is not given is as on the command line."""

    name: str
    source: str | int
    model: str = "vehicle"
    variant: str | None = None
    method: str | None = None
    too_long: float | None = None
    mqtt: str | None = None
    webhook: str | None = None

    __pydantic_config__ = STRICT_KEYS


@dataclass(frozen=True)
class StationsFile:
    """The file."""

    stations: list[StationEntry]

    __pydantic_config__ = STRICT_KEYS


def read_stations(path: Path) -> list[StationEntry]:
    """The stations that a file names; their names are all different and may stand in addresses."""
    found = validate(StationsFile, read_yaml(path)).stations
    names = [entry.name for entry in found]
    for name in names:
        if not name or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in name) or name.startswith("."):
            raise InputError(f"a station is called {name!r}", path=path, cure="use letters, digits, - and _")
        if names.count(name) > 1:
            raise InputError(f"two stations are called {name!r}", path=path, cure="give each a name of its own")
    if not found:
        raise InputError("the file names no station", path=path, cure="list them under 'stations:'")
    return found


class Processes:
    """Runs a process per station, and starts those again that end."""

    def __init__(self, commands: Mapping[str, Sequence[str]], environment: Mapping[str, str]) -> None:
        self._commands, self._environment = commands, dict(environment)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._failures: dict[str, tuple[int, float]] = {}  # how often in a row, and when to try again
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="processes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _watch(self) -> None:
        began: dict[str, float] = {}
        while not self._stopped.is_set():
            now = time.monotonic()
            for name, command in self._commands.items():
                process = self._running.get(name)
                if process is not None and process.poll() is None:
                    continue
                failures, again = self._failures.get(name, (0, 0.0))
                if process is not None:
                    failures = 0 if now - began[name] > 60 else failures + 1
                    again = now + min(2.0**failures, 60.0)
                    self._failures[name] = failures, again
                    del self._running[name]
                if now >= again and not self._stopped.is_set():
                    began[name] = now
                    self._running[name] = subprocess.Popen(list(command), env=self._environment)
            self._stopped.wait(0.5)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=5)
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=15)
            process.kill()  # does nothing to one that has ended
            process.wait()


def hub_app(ports: Mapping[str, int], access: Access) -> Starlette:
    """The page that lists stations, which run on this machine."""
    pool = ThreadPoolExecutor(min(len(ports), 16))

    async def stations(request: Request) -> Response:
        host = request.url.hostname or "127.0.0.1"
        host = f"[{host}]" if ":" in host else host
        ask: Callable[[tuple[str, int]], dict[str, Any]] = lambda item: _ask(*item, host, access)  # noqa: E731
        cards = await run_sync(lambda: list(pool.map(ask, ports.items())))
        return answer({"stations": cards})

    async def home(_: Request) -> Response:
        return RedirectResponse("/stations", 303)

    async def health(_: Request) -> Response:
        return answer({"status": "ok"})

    routes = [
        Route("/", home),
        Route("/stations", page(PAGES, "stations.html")),
        Route("/api/stations", stations),
        Route("/health", health),
    ]
    return make_app(routes, PAGES, access)


def _ask(name: str, port: int, host: str, access: Access) -> dict[str, Any]:
    """A station as it is now."""
    url = f"http://{host}:{port}/"
    headers = {} if access.viewer is None else {"Authorization": f"Bearer {access.viewer}"}
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/api/state", headers=headers)
        with urllib.request.urlopen(request, timeout=2) as response:
            return station_card(json.load(response), url)
    except (OSError, ValueError, KeyError):
        nothing = {"camera": "starting", "unit": None, "done": 0, "total": 0, "alarms": 0}
        return {"name": name, "url": url, "status": "down", **nothing}
