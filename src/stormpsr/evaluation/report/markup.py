"""Markup that cannot forget to escape: whatever is not marked as `Html` is text."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_WITHOUT_CONTENT = frozenset({"br", "img", "meta"})
_NOTHING = "–"


class Html(str):
    """Markup. Plain strings become text when they are put into an element."""

    __slots__ = ()


def join(parts: Iterable[str], between: str = "") -> Html:
    """Parts one after the other; those that are text are escaped."""
    return Html(_safe(between).join(_safe(part) for part in parts))


def element(name: str, /, *content: str, **attributes: str | float | bool | None) -> Html:
    """An element. `class_` stands for class, `aria_label` for aria-label; None and False leave an attribute out."""
    written = "".join(_attribute(key, value) for key, value in attributes.items() if _given(value))
    if name in _WITHOUT_CONTENT:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(content)}</{name}>")


def _given(value: str | float | bool | None) -> bool:
    return value is not None and value is not False


def _safe(part: str) -> str:
    return part if isinstance(part, Html) else escape(part)


def _attribute(key: str, value: str | float | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
    return f' {name}="{escape(text)}"'


# ---------------------------------------------------------------------- numbers in words
def figure(value: float | None, digits: int) -> str:
    """A number; a dash where there is none."""
    return _NOTHING if value is None else f"{value:.{digits}f}"


def seconds(value: float | None) -> str:
    """`4.2 s`"""
    return _NOTHING if value is None else f"{value:.1f}\N{NO-BREAK SPACE}s"


def percent(share: float) -> str:
    """`94 %`; never rounded up to everything or down to nothing."""
    rounded = round(100 * share)
    if rounded == 100 and share < 1:
        return f"{min(100 * share, 99.9):.1f}\N{NO-BREAK SPACE}%"
    if rounded == 0 and share > 0:
        return f"{max(100 * share, 0.1):.1f}\N{NO-BREAK SPACE}%"
    return f"{rounded}\N{NO-BREAK SPACE}%"


def clock(time_seconds: float) -> str:
    """`1:07` for 67 seconds."""
    whole = int(time_seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def counted(n: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def listed(parts: Iterable[str]) -> str:
    """`a, b and c`."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last
