"""What the station's interface understands, as an OpenAPI description."""

from __future__ import annotations

from typing import Any

from stormpsr import __version__

_DAY = {"name": "day", "in": "query", "schema": {"type": "string", "format": "date"}, "description": "station's time"}
_UNIT = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
_STEP = {"name": "step_id", "in": "path", "required": True, "schema": {"type": "integer"}}
_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_TEXT = {"type": ["string", "null"]}


def _query(name: str, *values: str, kind: str = "string") -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": kind, **({"enum": list(values)} if values else {})}}


_READ: dict[str, tuple[str, list[dict[str, Any]], str]] = {
    "/api/state": ("All that the page shows", [], "application/json"),
    "/api/stream": ("The same as server-sent events 'state', at most five per second", [], "text/event-stream"),
    "/api/video": ("The camera's images, at most ten per second", [], "multipart/x-mixed-replace"),
    "/api/picture.jpg": ("The latest image", [], "image/jpeg"),
    "/api/steps/{step_id}/picture": ("An image of a step", [_STEP], "image/jpeg"),
    "/api/evidence/{name}": ("An image or a clip that was kept", [_NAME], "image/jpeg"),
    "/api/units": (
        "Units, the latest first",
        [_DAY, _query("limit", kind="integer"), _query("before", kind="integer")],
        "application/json",
    ),
    "/api/units/{id}": ("A unit with its steps, corrections, alarms and events", [_UNIT], "application/json"),
    "/api/figures": ("Figures of a day", [_DAY], "application/json"),
    "/api/export": (
        "Whole tables",
        [_query("what", "events", "units", "corrections", "alarms"), _query("format", "csv", "json"), _DAY],
        "text/csv",
    ),
    "/api/stations": ("All stations", [], "application/json"),
    "/health": ("Whether all is well", [], "application/json"),
    "/metrics": ("Counters for Prometheus", [], "text/plain"),
}
_CHANGE: dict[str, tuple[str, list[dict[str, Any]], dict[str, Any]]] = {
    "/api/units/start": ("Begin a unit; one in work is finished first", [], {"serial": _TEXT, "variant": _TEXT}),
    "/api/units/finish": ("Finish the unit in work", [], {}),
    "/api/scan": ("What a scanner read: begins a unit with this serial number", [], {"text": {"type": "string"}}),
    "/api/undo": ("Take the latest correction back", [], {}),
    "/api/steps/{step_id}": (
        "The operator's word on a step",
        [_STEP],
        {"status": {"type": "string", "enum": ["done", "open", "wrong"]}},
    ),
    "/api/alarms/{id}/acknowledge": ("Somebody has seen an alarm", [_UNIT], {}),
}


def describe() -> dict[str, Any]:
    """The whole description."""
    header = {
        "name": "X-Requested-With",
        "in": "header",
        "required": True,
        "schema": {"type": "string", "const": "stormpsr"},
    }
    error = {"type": "object", "properties": {"error": {"type": "string"}, "cure": {"type": "string"}}}
    refused = {"description": "what is wrong, and the cure", "content": {"application/json": {"schema": error}}}
    done = {"type": "object", "properties": {"seq": {"type": "integer"}}}
    paths: dict[str, Any] = {}
    for path, (text, parameters, kind) in _READ.items():
        found = {"200": {"description": text, "content": {kind: {}}}, "default": refused}
        paths.setdefault(path, {})["get"] = {"summary": text, "parameters": parameters, "responses": found}
    for path, (text, parameters, properties) in _CHANGE.items():
        body = {"application/json": {"schema": {"type": "object", "properties": properties}}}
        found = {"200": {"description": "done", "content": {"application/json": {"schema": done}}}, "default": refused}
        paths.setdefault(path, {})["post"] = {
            "summary": text,
            "parameters": [*parameters, header],
            "requestBody": {"content": body},
            "responses": found,
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "stormpsr station", "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }
