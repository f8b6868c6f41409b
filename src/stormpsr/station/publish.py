"""Telling others: every record as a message, by MQTT and by webhook, in order, at least once.

A channel remembers in the records how far others were told. What happens while a broker or a server is away, or while
the station itself is down, is told afterwards. A message has the id of its record: who gets it twice can tell.
An alarm whose clip is being made waits for it, so that the clip is complete when others hear of it.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from stormpsr.errors import InputError, StormPSRError, need_packages
from stormpsr.station.records import Record, Records
from stormpsr.station.work import evidence_url

TOLD = (
    *("step", "correction", "undo", "unit_started", "unit_finished"),
    *("alarm", "alarm_closed", "acknowledged", "camera", "station"),
)
_PAUSES = (0.5, 60.0)  # seconds after the first failure, and at most


class Channel(ABC):
    """A thread that tells of one record after the other."""

    name: str
    pauses = _PAUSES

    def __init__(self, records: Records, station: str, clips_due: Callable[[], set[int]] = set) -> None:
        """clips_due: the alarms whose clip is being made."""
        self._records, self._station, self._clips_due = records, station, clips_due
        self._told = records.told(self.name)
        self._stopped, self._news = threading.Event(), threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    @property
    def status(self) -> Literal["ok", "connected", "waiting"]:
        return "waiting" if self._failed else "ok"

    @property
    def waiting(self) -> int:
        """Records that others were not told of yet."""
        return self._records.last_id - self._told

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._news.set()
        self._thread.join(timeout=5)

    def tell(self) -> None:
        """There is something new."""
        self._news.set()

    def _run(self) -> None:
        pause = self.pauses[0]
        while not self._stopped.is_set():
            try:
                told = self._tell_next()
            except StormPSRError:  # a full disk: the station says so, and there will be room again
                told, self._failed = False, True
            if told:
                pause = self.pauses[0]
            elif self._failed:
                self._stopped.wait(pause)
                pause = min(2 * pause, self.pauses[1])
            else:
                self._news.wait(0.5)
                self._news.clear()

    def _tell_next(self) -> bool:
        """Whether others were told of a record."""
        found = self._records.find("id > ?", (self._told,), "ORDER BY id LIMIT 1")
        if not found or found[0].id in self._clips_due():
            return False
        (record,) = found
        if record.kind in TOLD:
            clips = self._records.find("kind = 'clip' AND unit IS ? AND id > ?", (record.unit, record.id))
            clip = next((c.data["clip"] for c in clips if c.data["alarm"] == record.id), None)
            self._failed = not self.send(message_of(record, self._station, clip), record.kind)
            if self._failed:
                return False
        self._told = record.id
        self._records.set_told(self.name, record.id)
        return True

    @abstractmethod
    def send(self, message: dict[str, Any], kind: str) -> bool:
        """Tell of a record; whether others have got it."""


def message_of(record: Record, station: str, clip: str | None = None) -> dict[str, Any]:
    """What others are told of a record."""
    hidden = ("files", "before", "kind")
    data = {name: value for name, value in record.data.items() if name not in hidden}
    if "picture" in data:
        data["picture"] = evidence_url(data["picture"])
    if record.kind == "alarm":
        data["clip"] = evidence_url(clip)
    about = {"id": record.id, "time": record.time, "station": station, "kind": record.kind, "unit": record.unit}
    return {**about, **data, "model": record.model, "hash": record.hash}


# ---------------------------------------------------------------------- webhook
class Webhook(Channel):
    """Posts every message to an address, until it is accepted."""

    name = "webhook"

    def __init__(self, address: str, records: Records, station: str, clips_due: Callable[[], set[int]] = set) -> None:
        if urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).hostname:
            raise InputError("this is no address of a webhook", cure="it begins with http:// or https://")
        self._address = address
        super().__init__(records, station, clips_due)

    def send(self, message: dict[str, Any], kind: str) -> bool:
        content = json.dumps(message, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "stormpsr"}
        request = urllib.request.Request(self._address, data=content, headers=headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return 200 <= int(response.status) < 300
        except (OSError, ValueError, urllib.error.HTTPError):
            return False


# ---------------------------------------------------------------------- MQTT
class Mqtt(Channel):
    """Messages, and the state of the station, which a broker keeps for those who come later.

    PREFIX/NAME/online   online or offline, kept; the broker says offline itself when the station is gone
    PREFIX/NAME/state    the unit in work, its steps and open alarms, kept
    PREFIX/NAME/events/KIND   every record
    """

    name = "mqtt"
    pauses = (0.5, 5.0)

    def __init__(
        self,
        address: str,
        records: Records,
        station: str,
        state: Callable[[], dict[str, Any]],
        clips_due: Callable[[], set[int]] = set,
    ) -> None:
        need_packages("MQTT", "station", "paho")
        import paho.mqtt.client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        parts = urlsplit(address)
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname:
            cure = "it looks like mqtt://user:password@host:1883/prefix, or mqtts://"
            raise InputError("this is no address of an MQTT broker", cure=cure)
        super().__init__(records, station, clips_due)
        self._state, self._state_sent, self._state_at = state, "", 0.0
        self._prefix = f"{parts.path.strip('/') or 'stormpsr'}/{station}"
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"stormpsr-{station}")
        if parts.username:
            self._client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
        if parts.scheme == "mqtts":
            self._client.tls_set()
        self._client.will_set(f"{self._prefix}/online", "offline", qos=1, retain=True)
        self._client.reconnect_delay_set(1, 30)
        self._client.on_connect = self._connected
        self._host, self._port = parts.hostname, parts.port or (8883 if parts.scheme == "mqtts" else 1883)

    @property
    def status(self) -> Literal["ok", "connected", "waiting"]:
        return "connected" if self._client.is_connected() else "waiting"

    def _connected(self, client: Any, *_: Any) -> None:
        client.publish(f"{self._prefix}/online", "online", qos=1, retain=True)
        self._state_sent = ""  # the broker may have been set up anew
        self.tell()

    def start(self) -> None:
        self._client.connect_async(self._host, self._port, keepalive=20)
        self._client.loop_start()
        super().start()

    def stop(self) -> None:
        super().stop()
        if self._client.is_connected():
            self._client.publish(f"{self._prefix}/online", "offline", qos=1, retain=True).wait_for_publish(2)
        self._client.disconnect()
        self._client.loop_stop()

    def _tell_next(self) -> bool:
        if not self._client.is_connected():
            self._failed = True
            return False
        self._failed = False
        self._tell_state()
        return super()._tell_next()

    def _tell_state(self) -> None:
        if time.monotonic() - self._state_at < 1:
            return
        self._state_at = time.monotonic()
        text = json.dumps(self._state(), ensure_ascii=False)
        if text != self._state_sent:
            self._client.publish(f"{self._prefix}/state", text, qos=1, retain=True)
            self._state_sent = text

    def send(self, message: dict[str, Any], kind: str) -> bool:
        content = json.dumps(message, ensure_ascii=False)
        sent = self._client.publish(f"{self._prefix}/events/{kind}", content, qos=1)
        try:
            sent.wait_for_publish(timeout=10)
        except (ValueError, RuntimeError):  # the queue is full, or the connection is gone
            return False
        return bool(sent.is_published())


def brief_state(snapshot: dict[str, Any]) -> dict[str, Any]:
    """What changes seldom of a snapshot, for a broker to keep."""
    unit = snapshot["unit"] and {name: value for name, value in snapshot["unit"].items() if name != "seconds"}
    steps = [
        {**{name: step[name] for name in ("step_id", "text", "time", "by")}, "status": step["status"]}
        for step in snapshot["steps"]
    ]
    for step in steps:
        step["status"] = "open" if step["status"] == "probable" else step["status"]
    return {
        "station": snapshot["station"]["name"],
        "camera": snapshot["camera"]["status"],
        "unit": unit,
        "steps": steps,
        "alarms": snapshot["alarms"],
    }
