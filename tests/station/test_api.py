"""The interface over HTTP: what the page asks for, and what others must not get."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from stormpsr.errors import InputError
from stormpsr.station.service import step_pictures
from stormpsr.web.security import Access, Rate, access_for

OPERATOR, VIEWER = "operators-token-123", "viewers-token-12345"
ASKED = {"X-Requested-With": "stormpsr"}


@pytest.fixture
def client(scripted: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=scripted.url, headers=ASKED, timeout=60) as found:
        yield found


@pytest.fixture
def guarded(tmp_path: Any) -> Iterator[Any]:
    from scripted_station import Scripted  # type: ignore[import-not-found]

    found = Scripted(tmp_path / "station")
    found.access = Access(OPERATOR, VIEWER)
    found.start()
    yield found
    found.stop()


def first_state(client: httpx.Client) -> dict[str, Any]:
    with client.stream("GET", "/api/stream") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("data: "):
                return dict(json.loads(line[6:]))
    raise AssertionError("the stream ended")


# ---------------------------------------------------------------------- images of steps
def test_steps_come_with_the_images_in_the_models_folder(tmp_path: Any) -> None:
    from scripted_station import Scripted, vehicle

    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "install rear chassis.png").write_bytes(b"an image")
    pictures = step_pictures(tmp_path, vehicle())
    found = Scripted(tmp_path / "station", pictures=pictures)
    found.start()
    try:
        with httpx.Client(base_url=found.url, headers=ASKED, timeout=60) as client:
            steps = {step["step_id"]: step["picture"] for step in client.get("/api/state").json()["steps"]}
            assert [step_id for step_id, address in steps.items() if address] == [9]
            assert client.get(steps[9]).content == b"an image"
            assert client.get("/api/steps/3/picture").status_code == 404
    finally:
        found.stop()


@pytest.mark.parametrize("name", ["install wings.png", "rear chassis.png", "install rear chassis.svg"])
def test_an_image_that_is_of_no_step_is_named(tmp_path: Any, name: str) -> None:
    from scripted_station import vehicle

    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / name).write_bytes(b"")
    with pytest.raises(InputError, match=r"not the image of a step.*install base\.png"):
        step_pictures(tmp_path, vehicle())


def test_a_model_without_images_is_fine(tmp_path: Any) -> None:
    from scripted_station import vehicle

    assert step_pictures(tmp_path, vehicle()) == {}


# ---------------------------------------------------------------------- work
def test_a_unit_from_its_start_to_its_report(scripted: Any, client: httpx.Client) -> None:
    assert client.post("/api/scan", json={"text": "A-0018"}).json()["seq"] > 0
    scripted.see(done=[3])
    assert client.post("/api/steps/9", json={"status": "done"}).status_code == 200
    state = client.get("/api/state").json()
    assert (state["unit"]["serial"], state["unit"]["done"]) == ("A-0018", 2)
    assert client.post("/api/undo", json={}).status_code == 200
    assert client.post("/api/units/finish").status_code == 200
    report = client.get("/api/units/1").json()
    assert (report["unit"]["status"], report["unit"]["done"], report["unit"]["skipped"]) == ("incomplete", 1, 8)
    assert [row["to"] for row in report["corrections"]] == ["done", "open"]
    assert report["alarms"][0]["kind"] == "skipped"
    assert report["station"]["model_digest"] == "digest-of-the-model"
    evidence = next(step["evidence"] for step in report["steps"] if step["step_id"] == 3)
    assert client.get(evidence).content[:2] == b"\xff\xd8"
    assert [unit["id"] for unit in client.get("/api/units").json()["units"]] == [1]
    figures = client.get("/api/figures").json()
    assert (figures["units"], figures["incomplete"], figures["corrections"]) == (1, 1, 1)
    assert next(row for row in figures["steps"] if row["step_id"] == 3)["n"] == 1
    (alarm,) = client.get("/api/state").json()["alarms"]
    assert client.post(f"/api/alarms/{alarm['id']}/acknowledge").status_code == 200
    assert client.get("/api/state").json()["alarms"] == []


def test_changes_are_streamed_to_all_who_look(scripted: Any, client: httpx.Client) -> None:
    scripted.station.start_unit("A-1", None)
    seen = []

    def look() -> None:
        with httpx.Client(base_url=scripted.url, timeout=60) as own, own.stream("GET", "/api/stream") as response:
            for line in response.iter_lines():
                if line.startswith("data: {") and json.loads(line[6:])["unit"]["done"] == 1:
                    seen.append(True)
                    return

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    scripted.see(done=[3])
    for looker in lookers:
        looker.join(timeout=60)
    assert seen == [True, True]


def test_the_stream_begins_with_the_whole_state(scripted: Any, client: httpx.Client) -> None:
    assert first_state(client)["station"]["name"] == "bench"


def test_the_video_is_the_cameras_images(scripted: Any, client: httpx.Client) -> None:
    assert client.get("/api/picture.jpg").status_code == 404
    scripted.see()
    assert client.get("/api/picture.jpg").headers["content-type"] == "image/jpeg"
    with client.stream("GET", "/api/video") as response:
        first = next(response.iter_bytes())
    assert first.startswith(b"--frame\r\nContent-Type: image/jpeg\r\n")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/units/finish", "{}", 400),
        ("/api/undo", "{}", 400),
        ("/api/steps/3", '{"status": "done"}', 400),  # no unit
        ("/api/steps/3", "[]", 400),
        ("/api/steps/3", "{", 400),
        ("/api/steps/3", '{"status": 7}', 400),
        ("/api/steps/x", "{}", 404),
        ("/api/units/start", '{"variant": "other"}', 400),
        ("/api/scan", '{"text": " "}', 400),
        ("/api/alarms/99/acknowledge", "{}", 400),
        ("/api/state", "{}", 405),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(client: httpx.Client, path: str, body: str, status: int) -> None:
    response = client.post(path, content=body)
    assert response.status_code == status
    assert set(response.json()) == {"error", "cure"}


@pytest.mark.parametrize(
    "path", ["/api/figures?day=yesterday", "/api/units?limit=-1", "/api/units?before=x", "/api/export?what=secrets"]
)
def test_a_question_that_makes_no_sense_is_refused(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 400


def test_tables_can_be_taken_away(scripted: Any, client: httpx.Client) -> None:
    scripted.station.start_unit("=1+1", None)
    scripted.see(done=[3], wrong=[24])
    scripted.station.finish_unit()
    for what in ("events", "units", "corrections", "alarms"):
        rows = client.get("/api/export", params={"what": what, "format": "json"}).json()[what]
        table = client.get("/api/export", params={"what": what, "format": "csv"}).text.splitlines()
        assert len(table) == len(rows) + 1
    units = client.get("/api/export?what=units&format=csv").text
    assert "'=1+1" in units, "a spreadsheet must not take it for a formula"


def test_others_can_watch_over_it(scripted: Any, client: httpx.Client) -> None:
    scripted.see()
    assert client.get("/health").json()["status"] == "ok"
    scripted.camera("lost")
    assert client.get("/health").json()["status"] == "degraded"
    metrics = client.get("/metrics").text
    assert "\nstormpsr_frames_total 1\n" in metrics
    assert "\nstormpsr_alarms_open 1\n" in metrics
    assert client.get("/api/stations").json()["stations"][0]["camera"] == "lost"


def test_the_description_names_every_path(scripted: Any, client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()["paths"]
    paths = {route.path.replace(":int", "") for route in scripted.api.routes()}
    assert {path for path in paths if path.startswith("/api")} == {
        path for path in described if path.startswith("/api")
    }


# ---------------------------------------------------------------------- what others must not get
def test_pages_of_others_cannot_change_anything(scripted: Any) -> None:
    url = f"{scripted.url}/api/units/start"
    host = f"127.0.0.1:{scripted.port}"
    for headers in (
        {},
        {"X-Requested-With": "XMLHttpRequest"},
        {**ASKED, "Origin": "http://evil.example"},
        {**ASKED, "Origin": "null"},
        {**ASKED, "Origin": f"http://{host}.evil.example"},
        {**ASKED, "Sec-Fetch-Site": "cross-site"},
    ):
        assert httpx.post(url, headers=headers, json={}, timeout=60).status_code == 403, headers
    assert httpx.post(url, headers={**ASKED, "Origin": f"http://{host}"}, json={}, timeout=60).status_code == 200
    assert httpx.options(url, headers={"Origin": "http://evil.example"}, timeout=60).status_code == 403


def test_a_foreign_name_that_leads_here_is_refused(scripted: Any) -> None:
    response = httpx.get(f"{scripted.url}/api/state", headers={"Host": "evil.example"}, timeout=60)
    assert response.status_code == 421
    for name in ("localhost", "127.0.0.1:1", "[::1]:8765"):
        assert httpx.get(f"{scripted.url}/api/state", headers={"Host": name}, timeout=60).status_code == 200


def test_every_answer_forbids_foreign_scripts_and_frames(client: httpx.Client) -> None:
    for path in ("/api/state", "/nothing", "/health"):
        headers = client.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_without_a_token_nothing_is_told(guarded: Any) -> None:
    with httpx.Client(base_url=guarded.url, headers=ASKED, timeout=60) as client:
        for path in ("/api/state", "/api/stream", "/api/video", "/api/export", "/metrics", "/openapi.json", "/"):
            assert client.get(path).status_code == 401, path
        for wrong in ("x", OPERATOR[:-1], OPERATOR + "x", "Ä"):
            headers = {"Authorization": f"Bearer {wrong}".encode()}
            assert client.get("/api/state", headers=headers).status_code == 401
        assert client.post("/api/units/start", json={}).status_code == 401
        assert client.get("/health").status_code == 200
        assert client.get("/", headers={"Accept": "text/html"}).headers["content-type"].startswith("text/html")


def test_a_link_with_the_token_logs_in(guarded: Any) -> None:
    with httpx.Client(base_url=guarded.url, headers=ASKED, timeout=60) as client:
        assert client.get("/login", params={"token": "wrong"}).status_code == 401
        response = client.get("/login", params={"token": OPERATOR})
        cookie = response.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert OPERATOR not in cookie
        assert client.get("/api/state").json()["station"]["read_only"] is False
        assert client.post("/api/units/start", json={}).status_code == 200


def test_who_may_only_look_cannot_change_anything(guarded: Any) -> None:
    with httpx.Client(
        base_url=guarded.url, headers={**ASKED, "Authorization": f"Bearer {VIEWER}"}, timeout=60
    ) as client:
        assert client.get("/api/state").json()["station"]["read_only"] is True
        assert client.post("/api/units/start", json={}).status_code == 403


def test_guessing_tokens_is_slowed_down(guarded: Any) -> None:
    with httpx.Client(base_url=guarded.url, timeout=60) as client:
        codes = [client.get("/login", params={"token": f"guess-{n}"}).status_code for n in range(12)]
    assert codes[0] == 401
    assert codes[-1] == 429


def test_too_much_at_once_is_refused(client: httpx.Client) -> None:
    assert client.post("/api/scan", content=b"x" * 70_000).status_code == 413

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 1000

    assert client.post("/api/scan", content=endless()).status_code == 413
    assert client.get("/api/state", headers={"X-Long": "x" * 70_000}).status_code == 431
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/api/evidence/..%2Frecords.sqlite",
        "/api/evidence/%2e%2e%2frecords.sqlite",
        "/api/evidence/../records.sqlite",
        "/static/../service.py",
        "/static/%2e%2e/service.py",
        "/static/..%2fservice.py",
        "/static//etc/passwd",
        "/static/%00",
    ],
)
def test_no_path_leads_out_of_the_folders(scripted: Any, path: str) -> None:
    with socket.create_connection(("127.0.0.1", scripted.port), timeout=60) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    assert received.split()[1] in (b"404", b"400"), received[:200]


def test_many_changes_at_once_are_slowed_down() -> None:
    now = [0.0]
    rate = Rate(burst=3, per_second=1, clock=lambda: now[0], most_addresses=2)
    assert [rate.allows("a") for _ in range(5)] == [True, True, True, False, False]
    assert rate.allows("b")
    now[0] = 2.0
    assert [rate.allows("a") for _ in range(3)] == [True, True, False]
    for n in range(100):
        rate.allows(str(n))
    assert len(rate._left) == 2


def test_a_thousand_idle_connections_keep_nobody_out(scripted: Any, client: httpx.Client) -> None:
    from stormpsr.web.server import _MOST_PER_ADDRESS

    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = 4000 if hard == resource.RLIM_INFINITY else min(4000, hard)  # both ends of a connection are ours
    if room < 1600:
        pytest.skip(f"{room} open files are too few for a thousand connections")
    if soft < room:
        resource.setrlimit(resource.RLIMIT_NOFILE, (room, hard))
    assert client.get("/health").status_code == 200  # its connection stays open
    crowd, place = "127.0.0.2", ("127.0.0.1", scripted.port)
    idle = [socket.create_connection(place, timeout=60, source_address=(crowd, 0)) for _ in range(1000)]
    try:
        with client.stream("GET", "/api/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: state"
            assert httpx.get(f"{scripted.url}/health", timeout=60).status_code == 200, "another address gets in"
            still_open = 0
            for connection in idle:
                connection.setblocking(False)
                try:
                    still_open += connection.recv(1) != b""
                except BlockingIOError:
                    still_open += 1
                except ConnectionResetError:
                    pass
            assert still_open <= _MOST_PER_ADDRESS, "too many of one address are closed"
            for connection in idle[:_MOST_PER_ADDRESS]:  # the others as well, because they say nothing
                connection.settimeout(60)
                with suppress(ConnectionResetError):
                    assert connection.recv(1) == b""
            with httpx.Client(transport=httpx.HTTPTransport(local_address=crowd), timeout=60) as late:
                assert late.get(f"{scripted.url}/health").status_code == 200, "and now the crowd's address again"
    finally:
        for connection in idle:
            connection.close()


# ---------------------------------------------------------------------- tokens
def test_tokens_are_made_where_others_can_reach_the_station_and_kept_for_its_owner(tmp_path: Any) -> None:
    assert access_for("127.0.0.1", None, tmp_path) == (Access(), False)
    access, new = access_for("0.0.0.0", None, tmp_path)
    assert new
    assert not access.is_open
    assert len(access.operator or "") >= 32
    assert access.operator != access.viewer
    assert (tmp_path / "tokens.json").stat().st_mode & 0o077 == 0
    assert access_for("0.0.0.0", None, tmp_path) == (access, False)
    given, _ = access_for("127.0.0.1", "a-token-of-my-own", tmp_path)
    assert given.operator == "a-token-of-my-own"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names")
def test_tokens_are_not_written_to_a_pipe_that_nobody_reads(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokens.json")
    code = "import sys; from pathlib import Path; from stormpsr.web.security import access_for\n"
    code += "access_for('0.0.0.0', None, Path(sys.argv[1]))"
    words = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert "tokens.json: this is not a file; delete it" in done.stderr


def test_a_short_token_is_refused(tmp_path: Any) -> None:
    from stormpsr.errors import InputError

    with pytest.raises(InputError, match="too short"):
        access_for("0.0.0.0", "secret", tmp_path)


def test_no_token_is_everybodys(tmp_path: Any) -> None:
    assert Access(OPERATOR, None).role_of_token("") is None
    assert Access(OPERATOR, VIEWER).role_of_token(VIEWER) == "viewer"
