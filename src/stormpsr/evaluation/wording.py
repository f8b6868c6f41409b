"""Numbers in words, the same on the command line, in tables and on the page."""

from __future__ import annotations

from collections.abc import Iterable

_NOTHING = "–"
_SPACE = "\N{NO-BREAK SPACE}"


def number(value: float | None, digits: int = 3) -> str:
    """A number for a table; a dash where there is none."""
    return _NOTHING if value is None else f"{value:.{digits}f}"


def seconds(value: float | None) -> str:
    """`4.2 s`"""
    return _NOTHING if value is None else f"{value:.1f}{_SPACE}s"


def percent(share: float | None) -> str:
    """`94 %`; never rounded up to everything or down to nothing."""
    if share is None:
        return _NOTHING
    rounded = round(100 * share)
    if rounded == 100 and share < 1:
        return f"{min(100 * share, 99.9):.1f}{_SPACE}%"
    if rounded == 0 and share > 0:
        return f"{max(100 * share, 0.1):.1f}{_SPACE}%"
    return f"{rounded}{_SPACE}%"


def clock(time_seconds: float) -> str:
    """`1:07` for 67 seconds."""
    minutes, rest = divmod(int(time_seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def counted(n: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def listed(parts: Iterable[str]) -> str:
    """`a, b and c`."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last
