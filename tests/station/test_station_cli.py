"""`stormpsr station`: its commands, and several stations from one file."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from stormpsr.cli.main import main
from stormpsr.errors import InputError
from stormpsr.station.hub import Processes, hub_app, read_stations
from stormpsr.station.records import FILE, Entry, Records, verify
from stormpsr.web.security import Access


def write_records(folder: Path) -> None:
    records = Records(folder)
    records.append(Entry("step", {"a": 1}), Entry("step", {"a": 2}))
    records.close()


def test_records_are_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_records(tmp_path)
    assert main(["station", "verify", str(tmp_path)]) == 0
    assert "2 records: all in order" in capsys.readouterr().out
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.executescript("DROP TRIGGER never_change; UPDATE records SET time = '' WHERE id = 1")
    assert main(["station", "verify", str(tmp_path), "--json"]) == 1
    assert "record 1" in json.loads(capsys.readouterr().out)["problems"][0]


def test_help_is_about_the_station(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["station", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--webhook" in shown
    assert "verify" in shown


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["a", "b", "c"], "3 arguments"),
        (["--token", "short"], "the token is too short"),
        (["nothing.yaml"], "there is no such file"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["station", *words, "--data", str(tmp_path)]) == 2
    assert complaint in capsys.readouterr().err


# ---------------------------------------------------------------------- several
def test_a_file_names_several_stations(tmp_path: Path) -> None:
    path = tmp_path / "stations.yaml"
    path.write_text("stations:\n  - {name: bench-1, source: 0}\n  - {name: bench-2, source: 'rtsp://x/y', model: m}\n")
    first, second = read_stations(path)
    assert (first.name, first.source, first.model) == ("bench-1", 0, "vehicle")
    assert (second.name, second.source, second.model) == ("bench-2", "rtsp://x/y", "m")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("stations: []", "names no station"),
        ("stations:\n  - {name: a/b, source: 0}", "called 'a/b'"),
        ("stations:\n  - {name: a, source: 0}\n  - {name: a, source: 1}", "two stations are called 'a'"),
        ("stations:\n  - {name: a, source: 0, sauce: 1}", "sauce"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "stations.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        read_stations(path)


def test_a_process_that_ends_is_started_again(tmp_path: Path) -> None:
    mark = tmp_path / "starts"
    code = f"from pathlib import Path; file = Path({str(mark)!r}).open('a'); file.write('x'); file.close()"
    processes = Processes({"a": [sys.executable, "-S", "-c", code]}, os.environ)
    processes.start()
    end = time.monotonic() + 100
    while not (mark.is_file() and len(mark.read_text()) >= 2):
        assert time.monotonic() < end
        time.sleep(0.05)
    processes.stop()


def test_one_page_lists_all_stations(scripted: Any) -> None:
    import anyio

    scripted.station.start_unit("A-7", None)
    scripted.see(done=[3])
    app = hub_app({"bench": scripted.port, "away": 9}, Access())

    async def ask(path: str) -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
            return await client.get(path)

    here, away = anyio.run(ask, "/api/stations").json()["stations"]
    assert (here["name"], here["status"], here["unit"], here["done"]) == ("bench", "ok", "A-7", 1)
    assert here["url"] == f"http://127.0.0.1:{scripted.port}/"
    assert (away["name"], away["status"]) == ("away", "down")
    assert anyio.run(ask, "/").headers["location"] == "/stations"


@pytest.mark.slow
def test_the_shipped_model_watches_a_folder_of_frames_until_it_is_told_to_stop(tmp_path: Path) -> None:
    import cv2
    import numpy as np

    frames, data = tmp_path / "frames", tmp_path / "data"
    frames.mkdir()
    for number in range(3000):
        image = np.random.default_rng(number % 50).integers(0, 255, (120, 160, 3), dtype=np.uint8)
        cv2.imwrite(str(frames / f"{number:06d}.jpg"), image)
    words = ["station", "vehicle", str(frames), "--data", str(data), "--port", "0"]
    process = subprocess.Popen([sys.executable, "-m", "stormpsr", *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().split()[4]
    while httpx.get(f"{url}api/state", timeout=60).json()["camera"]["status"] == "starting":
        time.sleep(0.2)
    assert httpx.get(f"{url}api/state", timeout=60).json()["unit"]["id"] == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 0
    process.stdout.close()
    assert verify(data).problems == []
    records = Records(data)
    assert records.find("kind = 'station'")[-1].data["what"] == "stopped"
    records.close()
