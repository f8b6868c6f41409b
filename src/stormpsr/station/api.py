"""The station's page and its interface over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from stormpsr import __version__
from stormpsr.errors import InputError
from stormpsr.station.figures import TABLES, as_csv, figures, finished_units, table, today
from stormpsr.station.publish import Channel
from stormpsr.station.records import utc_seconds
from stormpsr.station.service import Station
from stormpsr.station.work import evidence_url, log_line
from stormpsr.web.app import News, answer, json_body, make_app, page
from stormpsr.web.security import Access

PAGES = Path(__file__).parent / "pages"
_MOST_OFTEN_SECONDS, _AT_LEAST_SECONDS, _PING_SECONDS = 0.2, 2.0, 15.0
_BOUNDARY = "frame"


class StationApi:
    """The endpoints. What reads records runs in threads, so that nobody waits for a disk but who asked."""

    def __init__(self, station: Station, news: News, channels: list[Channel] | None = None) -> None:
        self.station, self.news, self.channels = station, news, channels or []
        self._encoded: tuple[int, dict[bool, str]] = (-1, {})
        self._encoding = asyncio.Lock()
        station.on_news = news.tell

    # ------------------------------------------------------------------ reading
    def snapshot(self, *, read_only: bool) -> dict[str, Any]:
        found = self.station.snapshot()
        found["station"] |= {"read_only": read_only, **self.channel_states()}
        return found

    def channel_states(self) -> dict[str, str]:
        return {"mqtt": "off", "webhook": "off", **{channel.name: channel.status for channel in self.channels}}

    async def _snapshot_text(self, read_only: bool) -> str:
        """The same for all who look, made once."""
        async with self._encoding:
            seq, texts = self._encoded
            if seq != self.station.seq or read_only not in texts:
                texts = dict(texts) if seq == self.station.seq else {}
                found = await run_sync(partial(self.snapshot, read_only=read_only))
                texts[read_only] = json.dumps(found, ensure_ascii=False)
                self._encoded = found["seq"], texts
            return texts[read_only]

    async def state(self, request: Request) -> Response:
        return answer(await run_sync(partial(self.snapshot, read_only=_only_looks(request))))

    async def stream(self, request: Request) -> Response:
        read_only = _only_looks(request)

        async def events() -> AsyncIterator[str]:
            sent = -1
            last = pinged = asyncio.get_running_loop().time()
            async for _ in self.news.stream(_MOST_OFTEN_SECONDS, _AT_LEAST_SECONDS):
                now = asyncio.get_running_loop().time()
                if self.station.seq != sent or now - last >= _AT_LEAST_SECONDS - 0.1:
                    sent, last = self.station.seq, now
                    yield f"event: state\ndata: {await self._snapshot_text(read_only)}\n\n"
                if now - pinged >= _PING_SECONDS:
                    pinged = now
                    yield "event: ping\ndata: {}\n\n"

        return StreamingResponse(events(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    async def video(self, _: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            shown: float | None = None
            async for _ in self.news.stream(1 / self.station.settings.video_fps, _AT_LEAST_SECONDS):
                image = self.station.image
                if image is not None and image[0] != shown:
                    shown, content = image
                    yield b"--%s\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n" % (
                        _BOUNDARY.encode(),
                        len(content),
                        content,
                    )

        return StreamingResponse(parts(), media_type=f"multipart/x-mixed-replace; boundary={_BOUNDARY}")

    async def picture(self, _: Request) -> Response:
        image = self.station.image
        if image is None:
            raise HTTPException(404, "there is no image yet")
        return Response(image[1], media_type="image/jpeg")

    async def step_picture(self, request: Request) -> Response:
        path = self.station.settings.pictures.get(request.path_params["step_id"])
        if path is None:
            raise HTTPException(404, "the model has no image of this step")
        return FileResponse(path, headers={"cache-control": "private, max-age=3600"})

    async def evidence(self, request: Request) -> Response:
        path = self.station.records.evidence_file(request.path_params["name"])
        if path is None:
            raise HTTPException(404, "there is no such image or clip; it may have been deleted after some days")
        return FileResponse(path, headers={"cache-control": "private, max-age=86400"})

    def units(self, request: Request) -> Any:
        limit, before = _number(request, "limit", 100, 1000), _number(request, "before", None, 2**53)
        day = request.query_params.get("day")
        found = finished_units(self.station.records, day, limit or 100, before)
        snapshot = self.station.snapshot()
        unit, now = snapshot["unit"], self.station.now
        if unit is not None and (before is None or unit["id"] < before) and day in (None, today(utc_seconds(now))):
            found.insert(0, unit)
        return {"units": found[:limit]}

    def unit(self, request: Request) -> Any:
        number = int(request.path_params["id"])
        history = self.station.records.find("unit = ?", (number,))
        if not history:
            raise HTTPException(404, f"there is no unit {number}")
        work = self.station.unit_work(number)
        corrections = [
            {"id": r.id, "time": r.time, **{name: r.data.get(name) for name in ("step_id", "text", "from", "to", "by")}}
            for r in history
            if r.kind in ("correction", "undo")
        ]
        clips = {r.data["alarm"]: r.data["clip"] for r in history if r.kind == "clip"}
        seen = {r.data["alarm"] for r in history if r.kind == "acknowledged"}
        alarms = [
            {
                **{"id": r.id, "kind": r.data["alarm"], "unit": r.unit, "time": r.time, "acknowledged": r.id in seen},
                **{"step_id": r.data["step_id"], "text": r.data["text"]},
                **{"picture": evidence_url(r.data["picture"]), "clip": evidence_url(clips.get(r.id))},
            }
            for r in history
            if r.kind == "alarm"
        ]
        events = [
            log_line(r) for r in history if r.kind in ("step", "correction", "undo", "unit_started", "unit_finished")
        ]
        return {
            "unit": work.unit_json(self.station.now),
            "steps": work.steps_json(self.station.settings.pictures),
            "corrections": corrections,
            "alarms": alarms,
            "events": events,
            "station": self.station.about() | {"model_digest": history[0].model},
        }

    def figures(self, request: Request) -> Any:
        station = self.station
        day = request.query_params.get("day") or today(utc_seconds(station.now))
        running = int(station.work.is_running and day == today(utc_seconds(station.now)))
        return figures(station.records, station.procedure, day, running=running, open_alarms=len(station.alarms.open))

    async def export(self, request: Request) -> Response:
        what, form = request.query_params.get("what", "events"), request.query_params.get("format", "csv")
        day = request.query_params.get("day") or None
        if what not in TABLES or form not in ("csv", "json"):
            raise InputError(
                "there is no such table", cure=f"what is one of {', '.join(TABLES)}; format is csv or json"
            )
        rows = await run_sync(lambda: list(table(self.station.records, what, day)))
        name = f"{what}{'-' + day if day else ''}.{form}"
        text = as_csv(iter(rows)) if form == "csv" else json.dumps({what: rows}, ensure_ascii=False)
        kind = "text/csv; charset=utf-8" if form == "csv" else "application/json"
        return Response(text, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})

    def stations(self, _: Request) -> Any:
        return {"stations": [self.card()]}

    def card(self, url: str = "/") -> dict[str, Any]:
        """The station in the list of several."""
        return station_card(self.station.snapshot(), url)

    async def health(self, _: Request) -> Response:
        station = self.station
        well = station.camera.status in ("ok", "starting", "ended") and not station.problem
        state = {"status": "ok" if well else "degraded", "camera": station.camera.status, "version": __version__}
        return answer(state)

    async def metrics(self, _: Request) -> Response:
        return PlainTextResponse(prometheus(self.station, self.channels), media_type="text/plain; version=0.0.4")

    # ------------------------------------------------------------------ changes
    def start(self, body: dict[str, Any]) -> int:
        return self.station.start_unit(_text(body, "serial"), _text(body, "variant"))

    def finish(self, body: dict[str, Any]) -> int:
        return self.station.finish_unit()

    def scan(self, body: dict[str, Any]) -> int:
        text = _text(body, "text")
        if not text or not text.strip():
            raise InputError("nothing was scanned")
        return self.station.start_unit(text, None, by="scanner")

    def undo(self, body: dict[str, Any]) -> int:
        return self.station.undo()

    def correct(self, body: dict[str, Any], step_id: int) -> int:
        return self.station.correct_step(step_id, _text(body, "status") or "")

    def acknowledge(self, body: dict[str, Any], id: int) -> int:  # noqa: A002
        return self.station.acknowledge(id)

    # ------------------------------------------------------------------ all of it
    def routes(self) -> list[Route]:
        from stormpsr.station.openapi import describe

        def change(path: str, call: Callable[..., int]) -> Route:
            async def endpoint(request: Request) -> Response:
                body = await json_body(request)
                return answer({"seq": await run_sync(partial(call, body, **request.path_params))})

            return Route(path, endpoint, methods=["POST"])

        def read(path: str, call: Callable[[Request], Any]) -> Route:
            async def endpoint(request: Request) -> Response:
                return answer(await run_sync(call, request))

            return Route(path, endpoint)

        async def openapi(_: Request) -> Response:
            return answer(describe())

        async def icon(_: Request) -> Response:
            return RedirectResponse("/static/icon.svg")

        gets: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/api/state": self.state,
            "/api/stream": self.stream,
            "/api/video": self.video,
            "/api/picture.jpg": self.picture,
            "/api/steps/{step_id:int}/picture": self.step_picture,
            "/api/evidence/{name}": self.evidence,
            "/api/export": self.export,
            "/health": self.health,
            "/metrics": self.metrics,
            "/openapi.json": openapi,
            "/favicon.ico": icon,
        }
        pages = {"/": "station", "/units/{id:int}": "unit", "/figures": "figures", "/stations": "stations"}
        return [
            *(Route(path, page(PAGES, f"{name}.html")) for path, name in pages.items()),
            *(Route(path, endpoint) for path, endpoint in gets.items()),
            read("/api/units", self.units),
            read("/api/units/{id:int}", self.unit),
            read("/api/figures", self.figures),
            read("/api/stations", self.stations),
            change("/api/units/start", self.start),
            change("/api/units/finish", self.finish),
            change("/api/scan", self.scan),
            change("/api/undo", self.undo),
            change("/api/steps/{step_id:int}", self.correct),
            change("/api/alarms/{id:int}/acknowledge", self.acknowledge),
        ]


def station_app(api: StationApi, access: Access) -> Starlette:
    """The application of one station."""

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        api.news.open()
        yield
        api.news.close()

    return make_app(api.routes(), PAGES, access, lifespan)


def station_card(snapshot: dict[str, Any], url: str) -> dict[str, Any]:
    """A snapshot as one of several stations."""
    unit, camera = snapshot["unit"] or {}, snapshot["camera"]["status"]
    return {
        "name": snapshot["station"]["name"],
        "url": url,
        "status": "ok" if camera in ("ok", "starting", "ended") else "degraded",
        "camera": camera,
        "unit": unit.get("serial"),
        "done": unit.get("done", 0),
        "total": unit.get("total", 0),
        "alarms": len(snapshot["alarms"]),
    }


def _only_looks(request: Request) -> bool:
    return bool(request.state.role == "viewer")


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise InputError(f"{name} is {type(value).__name__}, not text")
    return value


def _number(request: Request, name: str, default: int | None, most: int) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:20]) <= most:
        raise InputError(f"{name} is {text[:40]!r}", cure=f"give a whole number up to {most}")
    return int(text)


def prometheus(station: Station, channels: list[Channel]) -> str:
    """What there is to count, in Prometheus' text format."""
    camera = station.camera
    rows: list[tuple[str, str, str, list[tuple[str, float]]]] = [
        ("stormpsr_frames_total", "counter", "Frames that were looked at.", [("", station.n_frames)]),
        ("stormpsr_frames_dropped_total", "counter", "Frames that were passed over.", [("", camera.dropped)]),
        ("stormpsr_frames_per_second", "gauge", "Frames looked at per second.", [("", camera.fps or 0)]),
        ("stormpsr_latency_seconds", "gauge", "From a frame to the page.", [("", (camera.latency_ms or 0) / 1000)]),
        ("stormpsr_camera_ok", "gauge", "Whether the camera shows something.", [("", int(camera.status == "ok"))]),
        ("stormpsr_records_total", "counter", "Rows of the records.", [("", station.records.last_id)]),
        ("stormpsr_alarms_open", "gauge", "Alarms that are open.", [("", len(station.alarms.open))]),
        (
            "stormpsr_units_total",
            "counter",
            "Units that were finished.",
            [(f'{{status="{status}"}}', station.unit_counts[status]) for status in ("pass", "fail", "incomplete")],
        ),
        (
            "stormpsr_messages_waiting",
            "gauge",
            "Records that others are still to be told of.",
            [(f'{{channel="{channel.name}"}}', channel.waiting) for channel in channels],
        ),
    ]
    lines = []
    for name, kind, text, values in rows:
        lines += [
            f"# HELP {name} {text}",
            f"# TYPE {name} {kind}",
            *(f"{name}{label} {value}" for label, value in values),
        ]
    return "\n".join(lines) + "\n"
