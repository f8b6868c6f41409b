"""Others are told of everything, in order, also after they or the station were away."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from stormpsr.errors import InputError
from stormpsr.files import disk_full
from stormpsr.station.publish import Mqtt, Webhook, brief_state
from stormpsr.station.records import Entry, Records


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    opened = Records(tmp_path / "station", "digest")
    yield opened
    opened.close()


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something that another thread or program does."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


# ---------------------------------------------------------------------- webhook
class Listener:
    """A server that refuses the first few messages."""

    def __init__(self, refuse: int = 0) -> None:
        got: list[dict[str, Any]] = []
        self.got, left = got, [refuse]

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                left[0] -= 1
                self.send_response(503 if left[0] >= 0 else 204)
                self.end_headers()
                if left[0] < 0:
                    got.append(content)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener(refuse=2)
    yield found
    found.close()


def webhook(url: str, records: Records, clips_due: Callable[[], set[int]] = set) -> Webhook:
    channel = Webhook(url, records, "bench", clips_due)
    channel.pauses = (0.01, 0.05)
    return channel


def completed(step_id: int) -> Entry:
    data = {"event": "completed", "step_id": step_id, "text": "", "seconds": 1.0, "by": "camera", "picture": "a.jpg"}
    return Entry("step", {**data, "files": {}}, 1)


def test_what_is_refused_is_told_again_in_order(records: Records, listener: Listener) -> None:
    channel = webhook(listener.url, records)
    for step_id in range(4):
        records.append(completed(step_id))
    channel.start()
    until(lambda: len(listener.got) == 4)
    channel.stop()
    assert [message["step_id"] for message in listener.got] == [0, 1, 2, 3]
    first = listener.got[0]
    assert (first["station"], first["kind"], first["picture"]) == ("bench", "step", "/api/evidence/a.jpg")
    assert first["hash"] == records.find()[0].hash
    assert channel.waiting == 0


def test_a_full_disk_does_not_end_the_telling(
    records: Records, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, full = webhook(listener.url, records), [True]
    write = records.set_told

    def set_told(name: str, record: int) -> None:
        if full[0]:
            raise disk_full(records.path)
        write(name, record)

    monkeypatch.setattr(records, "set_told", set_told)
    records.append(Entry("unit_started", {"serial": "A", "variant": "build"}, 1))
    channel.start()
    until(lambda: len(listener.got) == 1)
    full[0] = False
    records.append(Entry("unit_started", {"serial": "B", "variant": "build"}, 2))
    channel.tell()
    until(lambda: len(listener.got) == 2)
    until(lambda: records.told("webhook") == 2)
    channel.stop()


def test_what_was_not_told_before_a_restart_is_told_after_it(records: Records, listener: Listener) -> None:
    before = webhook("http://127.0.0.1:9/nobody", records)
    records.append(Entry("unit_started", {"serial": "A", "variant": "build"}, 1))
    before.start()
    until(lambda: before.status == "waiting")
    before.stop()
    after = webhook(listener.url, records)
    assert after.waiting == 1
    after.start()
    until(lambda: len(listener.got) == 1)
    after.stop()
    assert listener.got[0]["serial"] == "A"


def test_an_alarm_is_told_when_its_clip_is_complete(records: Records, listener: Listener) -> None:
    due: set[int] = set()
    channel = webhook(listener.url, records, lambda: due)
    (alarm,) = records.append(Entry("alarm", {"alarm": "wrong", "step_id": 3, "text": "x", "picture": None}, 1))
    due.add(alarm.id)
    assert channel._tell_next() is False
    records.append(Entry("clip", {"alarm": alarm.id, "clip": "000001-clip.mp4", "files": {}}, 1))
    due.clear()
    channel.start()
    until(lambda: len(listener.got) == 1)
    channel.stop()
    assert listener.got[0]["clip"] == "/api/evidence/000001-clip.mp4"


@pytest.mark.parametrize("address", ["ftp://x/y", "nothing", "file:///etc/passwd"])
def test_a_webhook_is_an_address_of_the_web(records: Records, address: str) -> None:
    with pytest.raises(InputError, match="no address of a webhook"):
        Webhook(address, records, "bench")


# ---------------------------------------------------------------------- MQTT
class Broker:
    """A real mosquitto, which can be away."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port, self._folder = port, folder
        self._config = folder / "mosquitto.conf"
        self._config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin:/opt/homebrew/sbin")
        if program is None:
            pytest.skip("mosquitto is not installed (Debian: apt-get install mosquitto)")
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen([program, "-c", str(self._config)], stdout=quiet, stderr=quiet)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Subscriber:
    """Hears everything below stormpsr/."""

    def __init__(self, port: int) -> None:
        import paho.mqtt.client as paho

        self.heard: list[tuple[str, str, bool]] = []
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self._client.on_connect = lambda client, *_: client.subscribe("stormpsr/#", qos=1)
        self._client.on_message = lambda _client, _data, m: self.heard.append((m.topic, m.payload.decode(), m.retain))
        until(lambda: self._connect(port))
        self._client.loop_start()

    def _connect(self, port: int) -> bool:
        try:
            self._client.connect("127.0.0.1", port)
        except OSError:
            return False
        return True

    def events(self) -> list[int]:
        return [json.loads(text)["id"] for topic, text, _ in self.heard if "/events/" in topic]

    def latest(self, topic: str) -> str | None:
        return next((text for name, text, _ in reversed(self.heard) if name == topic), None)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    from scripted_station import free_port  # type: ignore[import-not-found]

    found = Broker(tmp_path, free_port())
    yield found
    found.kill()


def test_a_broker_that_was_away_gets_everything_when_it_is_back(broker: Broker, records: Records) -> None:
    state = {"unit": None}
    channel = Mqtt(f"mqtt://127.0.0.1:{broker.port}", records, "bench", lambda: state)
    channel._client.reconnect_delay_set(1, 1)
    first = records.append(completed(3), completed(6))
    channel.start()  # nobody is there
    until(lambda: channel.status == "waiting")
    broker.start()
    subscriber = Subscriber(broker.port)
    until(lambda: set(subscriber.events()) >= {record.id for record in first} or channel.waiting == 0)
    until(lambda: channel.waiting == 0 and channel.status == "connected")
    assert subscriber.latest("stormpsr/bench/online") in (None, "online")
    subscriber.close()
    late = Subscriber(broker.port)  # what is kept is told to who comes later
    until(lambda: late.latest("stormpsr/bench/state") and late.latest("stormpsr/bench/online"))
    assert late.latest("stormpsr/bench/online") == "online"
    assert json.loads(late.latest("stormpsr/bench/state") or "") == {"unit": None}
    (third,) = records.append(Entry("alarm", {"alarm": "wrong", "step_id": 3, "text": "", "picture": None}, 1))
    channel.tell()
    until(lambda: third.id in late.events())
    late.close()
    broker.kill()
    until(lambda: channel.status == "waiting")
    (fourth,) = records.append(completed(9))
    broker.start()
    again = Subscriber(broker.port)
    until(lambda: channel.waiting == 0)
    until(lambda: again.latest("stormpsr/bench/online") == "online")
    channel.stop()
    until(lambda: again.latest("stormpsr/bench/online") == "offline")
    again.close()
    assert records.told("mqtt") == fourth.id


def test_the_broker_says_that_a_killed_station_is_gone(broker: Broker, tmp_path: Path) -> None:
    import os
    import sys

    broker.start()
    subscriber = Subscriber(broker.port)
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom stormpsr.station.publish import Mqtt\n"
        "from stormpsr.station.records import Records\n"
        f"channel = Mqtt('mqtt://127.0.0.1:{broker.port}', Records(Path(sys.argv[1])), 'bench', dict)\n"
        "channel.start()\ntime.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "other")], env=dict(os.environ))
    try:
        until(lambda: subscriber.latest("stormpsr/bench/online") == "online")
    finally:
        process.kill()
        process.wait()
    until(lambda: subscriber.latest("stormpsr/bench/online") == "offline")
    subscriber.close()


@pytest.mark.parametrize("address", ["http://x", "mqtt://", "broker:1883"])
def test_a_broker_is_an_address(records: Records, address: str) -> None:
    with pytest.raises(InputError, match="no address of an MQTT broker"):
        Mqtt(address, records, "bench", dict)


def test_the_state_that_is_kept_changes_seldom(bench: Any) -> None:
    bench.station.start_unit("A", None)
    bench.see(share={3: 0.5})
    first = brief_state(bench.station.snapshot())
    bench.see(share={3: 0.7})
    assert brief_state(bench.station.snapshot()) == first
    bench.see(done=[3])
    assert brief_state(bench.station.snapshot()) != first
