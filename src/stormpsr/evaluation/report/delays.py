"""How late steps are recognised: the curve over all steps, and a strip of dots per step.

Both share a time axis that is stretched near zero: most recognitions come within seconds, a few after minutes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from stormpsr.evaluation.report.content import Content, Delay, Method, RecordingView
from stormpsr.evaluation.report.markup import Html, counted, element, join, percent, seconds

_CURVE_HEIGHT = 260
_LINE = 15  # pixels of a method's line in a strip
_TICKS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0)
_TABLE_SECONDS = (1.0, 5.0, 10.0, 30.0)


def shared_limit(content: Content) -> float:
    """The end of the axis: a round time after the greatest delay of all methods."""
    longest = max((delay.seconds for method in content.methods for delay in content.delays(method)), default=0.0)
    return next((tick for tick in _TICKS[3:] if tick >= longest), longest)


def _place(late: float, limit: float) -> float:
    """Share of the axis at which a delay lies."""
    return math.sqrt(min(max(late, 0.0), limit) / limit)


def _ticks(limit: float) -> list[tuple[float, str]]:
    """(place, text) of those ticks that leave room for each other's text on a phone."""
    chosen = [limit]
    for tick in reversed([tick for tick in _TICKS if tick < limit]):
        if _place(chosen[-1], limit) - _place(tick, limit) >= 0.08:
            chosen.append(tick)
    unit = [f"{tick:g}" if tick < 120 else f"{tick / 60:g}\N{NO-BREAK SPACE}min" for tick in chosen]
    return sorted((_place(tick, limit), text) for tick, text in zip(chosen, unit, strict=True))


# ---------------------------------------------------------------------- the curve
def curve(content: Content, limit: float) -> Html:
    """Share of all labelled steps that were recognised within t seconds, a line per method."""
    grid: list[Html] = []
    for share in (0, 25, 50, 75, 100):
        y = f"{100 - share}%"
        grid.append(element("line", x1="0", x2="100%", y1=y, y2=y, class_="grid"))
        grid.append(element("text", f"{share}", x=0, y=y, dx="-6", dy="4", class_="axis", text_anchor="end"))
    for place, text in _ticks(limit):
        x = f"{100 * place:.2f}%"
        grid.append(element("line", x1=x, x2=x, y1="0", y2="100%", class_="grid"))
        grid.append(element("text", text, x=x, y="100%", dy="17", class_="axis", text_anchor="middle"))
    lines = [_curve_line(content, method, limit) for method in content.methods if content.n_labels_of(method)]
    alt = "Share of steps recognised within t seconds. " + " ".join(_spoken(content, m) for m in content.methods)
    inner = element("svg", *lines, width="100%", height="100%", viewBox="0 0 1000 1000", preserveAspectRatio="none")
    return element("svg", *grid, inner, class_="curve", role="img", aria_label=alt, height=_CURVE_HEIGHT)


def _curve_line(content: Content, method: Method, limit: float) -> Html:
    delays = sorted(delay.seconds for delay in content.delays(method))
    n_labels = content.n_labels_of(method)
    path = "M0 1000"
    for count, late in enumerate(delays, start=1):
        path += f"H{1000 * _place(late, limit):.1f}V{1000 * (1 - count / n_labels):.1f}"
    return element("path", d=path + "H1000", class_=f"line look-{method.look}")


def _within(content: Content, method: Method, limit: float) -> float | None:
    n_labels = content.n_labels_of(method)
    return sum(delay.seconds <= limit for delay in content.delays(method)) / n_labels if n_labels else None


def _spoken(content: Content, method: Method) -> str:
    share = _within(content, method, 10.0)
    return f"{method.title}: unknown." if share is None else f"{method.title}: {percent(share)} within 10 seconds."


def curve_table(content: Content, limit: float) -> Html:
    """The curve in a few numbers."""
    times = [time for time in _TABLE_SECONDS if time < limit]
    heads = ["within", *(f"{time:g}\N{NO-BREAK SPACE}s" for time in times), "ever"]
    rows = []
    for method in content.methods:
        shares = [_within(content, method, time) for time in (*times, math.inf)]
        cells = [element("td", "–" if share is None else percent(share)) for share in shares]
        rows.append(element("tr", _method_head(method), *cells))
    head = element("tr", *(element("th", text, scope="col") for text in heads))
    caption = element(
        "caption", f"Share of {counted(content.n_labels, 'labelled step')} recognised within so many seconds"
    )
    table = element("table", caption, element("thead", head), element("tbody", *rows), class_="numbers")
    return element("div", table, class_="scroll", tabindex="0")


def _method_head(method: Method) -> Html:
    return element("th", element("span", method.title, class_=f"method look-{method.look}"), scope="row")


# ---------------------------------------------------------------------- per step
def _steps(content: Content) -> list[int]:
    """Steps that were labelled or reported, by id."""
    labelled = {event.step_id for view in content.recordings for event in view.run.labels}
    reported = {
        event.step_id
        for view in content.recordings
        for scores in view.scores.values()
        for event in scores.unmatched_events
    }
    return sorted(labelled | reported)


def _count(views: Sequence[RecordingView], method: Method, step_id: int, what: str) -> int:
    lists = (getattr(view.scores[method.name], what) for view in views if method.name in view.scores)
    return sum(event.step_id == step_id for events in lists for event in events)


def delay_strips(content: Content, limit: float) -> Html:
    """A row per step, a line of dots per method."""
    by_step: dict[tuple[str, int], list[Delay]] = {}
    for method in content.methods:
        for delay in content.delays(method):
            by_step.setdefault((method.name, delay.step_id), []).append(delay)
    rows = [_axis_row(limit)]
    for step_id in _steps(content):
        n_labels = sum(event.step_id == step_id for view in content.recordings for event in view.run.labels)
        name = element(
            "div",
            element("span", str(step_id), class_="step-id"),
            element("span", content.step_name(step_id), class_="step-name"),
            element("span", f"{n_labels}\N{MULTIPLICATION SIGN}", class_="quiet", title=f"labelled {n_labels} times"),
            class_="strip-name",
        )
        lines = [by_step.get((method.name, step_id), []) for method in content.methods]
        counts = [_strip_counts(content, method, step_id) for method in content.methods]
        strip = _strip(content, step_id, lines, limit)
        rows.append(element("div", name, strip, element("div", *counts, class_="strip-counts"), class_="strip-row"))
    return element("div", *rows, class_="strips")


def _axis_row(limit: float) -> Html:
    texts = [
        element("text", text, x=f"{100 * place:.2f}%", y=11, class_="axis", text_anchor="middle")
        for place, text in _ticks(limit)
    ]
    axis = element("svg", *texts, class_="strip", height=14, aria_hidden="true")
    about = element("div", "seconds after completion", class_="strip-name quiet")
    return element("div", about, axis, element("div", class_="strip-counts"), class_="strip-row strip-axis")


def _strip(content: Content, step_id: int, lines: Sequence[Sequence[Delay]], limit: float) -> Html:
    height = _LINE * len(content.methods) + 2
    parts = [
        element("line", x1=f"{100 * place:.2f}%", x2=f"{100 * place:.2f}%", y1=0, y2=height, class_="grid")
        for place, _ in _ticks(limit)
    ]
    spoken = []
    for i, (method, delays) in enumerate(zip(content.methods, lines, strict=True)):
        y = 1 + _LINE * (i + 0.5)
        dots = [_dot(method, delay, limit, y) for delay in delays]
        if len(delays) > 1:
            middle = f"{100 * _place(median(d.seconds for d in delays), limit):.2f}%"
            dots.insert(0, element("line", x1=middle, x2=middle, y1=y - 6.5, y2=y + 6.5, class_="median"))
        parts.append(element("g", *dots, class_=f"look-{method.look}"))
        middle_text = seconds(median(d.seconds for d in delays)) if delays else "never"
        spoken.append(f"{method.title} {middle_text}")
    alt = f"Delays of step {step_id}, {content.step_name(step_id)}; median: {', '.join(spoken)}"
    return element("svg", *parts, class_="strip", role="img", aria_label=alt, height=height)


def _dot(method: Method, delay: Delay, limit: float, y: float) -> Html:
    tip = f"{method.title}: {seconds(delay.seconds)} late in {delay.recording}, completed in frame {delay.label_frame}"
    x = f"{100 * _place(delay.seconds, limit):.2f}%"
    return element("use", element("title", tip), href=f"#mark-{method.look}", x=x, y=y, class_="dot")


def _strip_counts(content: Content, method: Method, step_id: int) -> Html:
    missed = _count(content.recordings, method, step_id, "unmatched_labels")
    false = _count(content.recordings, method, step_id, "unmatched_events")
    parts = []
    if missed:
        parts.append(element("span", f"{missed}\N{NO-BREAK SPACE}missed"))
    if false:
        parts.append(element("span", f"{false}\N{NO-BREAK SPACE}false", class_="false"))
    return element("div", join(parts, ", "), title=method.title)


def delay_table(content: Content) -> Html:
    """The same in numbers."""
    groups = [element("th", m.title, scope="colgroup", colspan="3", class_="group") for m in content.methods]
    each = [element("th", text, scope="col") for _ in content.methods for text in ("median", "missed", "false")]
    rows = []
    for step_id in _steps(content):
        cells: list[Html] = []
        for method in content.methods:
            delays = [delay.seconds for delay in content.delays(method) if delay.step_id == step_id]
            cells.append(element("td", seconds(median(delays)) if delays else "–", class_="first"))
            counts = (_count(content.recordings, method, step_id, f"unmatched_{what}") for what in ("labels", "events"))
            cells.extend(element("td", str(count)) for count in counts)
        rows.append(element("tr", element("th", f"{step_id} {content.step_name(step_id)}", scope="row"), *cells))
    head = element(
        "thead",
        element("tr", element("th", "Step", scope="col", rowspan="2"), *groups),
        element("tr", *each),
    )
    caption = element("caption", "Delays, missed steps and false alarms of every step")
    table = element("table", caption, head, element("tbody", *rows), class_="numbers named")
    return element("div", table, class_="scroll", tabindex="0")
