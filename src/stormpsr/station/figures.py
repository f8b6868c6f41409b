"""Figures of a day, lists of units and whole tables, out of the records."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StepKind
from stormpsr.station.alarms import spread
from stormpsr.station.records import Record, Records, utc_text

TABLES = {
    "events": ("step", "unit_started", "unit_finished", "correction", "undo", "camera", "station"),
    "units": ("unit_finished",),
    "corrections": ("correction", "undo"),
    "alarms": ("alarm", "alarm_closed", "acknowledged", "clip"),
}


def day_bounds(day: str) -> tuple[str, str]:
    """When a day of the station's time zone begins and ends, in UTC."""
    try:
        begins = datetime.strptime(day, "%Y-%m-%d")
        return utc_text(begins.timestamp()), utc_text((begins + timedelta(days=1)).timestamp())
    except (ValueError, OverflowError, OSError):
        raise InputError(f"{day!r} is no day", cure="write it like 2026-11-18") from None


def today(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d}"


def _hour(time: str) -> int:
    return datetime.fromisoformat(time.replace("Z", "+00:00")).astimezone().hour


def figures(records: Records, procedure: Procedure, day: str, *, running: int, open_alarms: int) -> dict[str, Any]:
    """What happened on a day."""
    found = records.find("time >= ? AND time < ?", day_bounds(day))
    units = [record for record in found if record.kind == "unit_finished"]
    passed, failed, incomplete = (sum(u.data["status"] == s for u in units) for s in ("pass", "fail", "incomplete"))
    seconds: dict[int, list[float]] = {}
    errors: Counter[tuple[str, int]] = Counter()
    n_corrections = 0
    for record in found:
        data = record.data
        n_corrections += record.kind == "correction"
        if record.kind == "step" and data["event"] == "completed":
            seconds.setdefault(data["step_id"], []).append(data["seconds"])
        elif record.kind == "step":
            k = procedure.step(data["step_id"]).component_index
            about = procedure.step_id(k, StepKind.INSTALL) if data["event"] == "wrong" else data["step_id"]
            errors[data["event"], about] += 1
        elif record.kind == "alarm" and data["alarm"] == "too_long":
            errors["too_long", data["step_id"]] += 1
    hours = Counter(_hour(unit.time) for unit in units)
    text = {step.id: step.description for step in procedure.steps}
    expected = sorted({step_id for variant in procedure.variants.values() for step_id in variant.expected})
    return {
        "day": day,
        "units": len(units) + running,
        "running": running,
        "passed": passed,
        "failed": failed,
        "incomplete": incomplete,
        "pass_rate": round(passed / len(units), 4) if units else None,
        "unit_seconds": spread([unit.data["seconds"] for unit in units if unit.data["status"] == "pass"]),
        "steps": [
            {"step_id": i, "text": text[i], "spread": spread(seconds.get(i, [])), "n": len(seconds.get(i, []))}
            for i in expected
        ],
        "errors": [
            {"kind": kind, "step_id": step_id, "text": text[step_id], "n": n}
            for (kind, step_id), n in errors.most_common(20)
        ],
        "open_alarms": open_alarms,
        "corrections": n_corrections,
        "by_hour": [{"hour": hour, "units": hours[hour]} for hour in range(24)],
    }


def finished_units(records: Records, day: str | None, limit: int, before: int | None) -> list[dict[str, Any]]:
    """Units that are finished, the latest first."""
    where, values = "kind = 'unit_finished'", []
    if day is not None:
        where, values = f"{where} AND time >= ? AND time < ?", [*day_bounds(day)]
    if before is not None:
        where, values = f"{where} AND unit < ?", [*values, before]  # type: ignore[list-item]
    return [unit_row(record) for record in records.find(where, values, f"ORDER BY id DESC LIMIT {int(limit)}")]


def unit_row(record: Record) -> dict[str, Any]:
    """A unit of the record that finished it."""
    data = record.data
    names = ("serial", "variant", "status", "started", "seconds", "done", "total", "wrong", "skipped")
    return {"id": record.unit, **{name: data[name] for name in names}, "finished": record.time}


def table(records: Records, what: str, day: str | None) -> Iterator[dict[str, Any]]:
    """All rows of a kind as plain data."""
    kinds = ", ".join(f"'{kind}'" for kind in TABLES[what])
    where, values = f"kind IN ({kinds})", ()
    if day is not None:
        where, values = f"{where} AND time >= ? AND time < ?", day_bounds(day)  # type: ignore[assignment]
    for record in records.find(where, values):
        if what == "units":
            yield {**unit_row(record), "model": record.model}
        else:
            row = {
                "id": record.id,
                "time": record.time,
                "kind": record.kind,
                "unit": record.unit,
                "model": record.model,
            }
            yield {**row, **{name: value for name, value in record.data.items() if name not in ("kind", "files")}}


def as_csv(rows: Iterator[dict[str, Any]]) -> str:
    """Rows that may differ in their columns as one table. What a spreadsheet would take for a formula is quoted."""
    listed = list(rows)
    columns = list(dict.fromkeys(name for row in listed for name in row))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([_cell(row.get(name)) for name in columns] for row in listed)
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t"):
        return f"'{value}"
    return value
