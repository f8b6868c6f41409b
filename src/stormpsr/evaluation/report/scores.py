"""The main table: methods by POS, F1 and delay, with intervals."""

from __future__ import annotations

from stormpsr.evaluation.report.content import Content, GroupMetrics, Method, number
from stormpsr.evaluation.report.markup import Html, counted, element, figure

_GROUPS = {"all": "All recordings", "without_errors": "Without errors", "with_errors": "With errors"}
_SCORES = (("pos", 3), ("f1", 3), ("delay", 1))


def main_table(content: Content) -> Html:
    """Groups of recordings below each other, a row per method; every figure with a small drawing of its interval."""
    groups = {name: {method.name: content.group(method, name) for method in content.methods} for name in _GROUPS}
    longest = _longest_delay(content)
    bodies = []
    for name, title in _GROUPS.items():
        found = [group for group in groups[name].values() if group is not None]
        if not found and name != "all":
            continue
        n = max((group.n_recordings for group in found), default=0)
        about = element("span", f" {counted(n, 'recording')}", class_="quiet") if n else ""
        head = element("tr", element("th", title, about, colspan="4", scope="rowgroup", class_="group"))
        rows = [_row(method, groups[name][method.name], longest) for method in content.methods]
        bodies.append(element("tbody", head, *rows))
    heads = [
        element("th", "Method", scope="col"),
        element("th", "POS", element("span", "higher is better", class_="direction"), scope="col"),
        element("th", "F1", element("span", "higher is better", class_="direction"), scope="col"),
        element("th", "Delay τ (s)", element("span", "lower is better", class_="direction"), scope="col"),
    ]
    caption = element("caption", f"Scores by the protocol “{content.info.protocol}”")
    return element("table", caption, element("thead", element("tr", *heads)), *bodies, class_="main")


def _longest_delay(content: Content) -> float:
    """The right end of the small drawings of delays."""
    found = [content.group(method, name) for method in content.methods for name in _GROUPS]
    ends = [g.delay_interval[1] if g.delay_interval else g.delay_seconds for g in found if g is not None]
    return max([end for end in ends if end is not None], default=1.0) or 1.0


def _row(method: Method, group: GroupMetrics | None, longest: float) -> Html:
    name = element("th", element("span", method.title, class_=f"method look-{method.look}"), scope="row")
    if group is None:
        return element("tr", name, *(element("td", "–") for _ in _SCORES))
    several = group.n_recordings > 1
    cells = [
        _cell(method, group.pos, group.pos_interval if several else None, 3, 1.0),
        _cell(method, group.f1, group.f1_interval if several else None, 3, 1.0),
        _cell(method, group.delay_seconds, group.delay_interval if several else None, 1, longest),
    ]
    return element("tr", name, *cells)


def _cell(method: Method, value: float | None, interval: tuple[float, float] | None, digits: int, end: float) -> Html:
    parts = [element("span", figure(value, digits), class_="value")]
    if value is not None:
        if interval is not None:
            low, high = (figure(side, digits) for side in interval)
            parts.append(element("span", f"{low}–{high}", class_="interval"))
        parts.append(_whisker(method, value, interval, end))
    return element("td", *parts)


def _whisker(method: Method, value: float, interval: tuple[float, float] | None, end: float) -> Html:
    def x(at: float) -> str:
        return f"{100 * min(max(at / end, 0.0), 1.0):.1f}%"

    parts = [element("line", x1="0", x2="100%", y1=5, y2=5, class_="rail")]
    if interval is not None:
        parts.append(element("line", x1=x(interval[0]), x2=x(interval[1]), y1=5, y2=5, class_="range"))
    parts.append(element("circle", cx=x(value), cy=5, r=3.5, class_="correct"))
    return element("svg", *parts, class_=f"whisker look-{method.look}", height=10, aria_hidden="true")


def table_notes(content: Content) -> Html:
    """What a reader must know to read the table."""
    notes = []
    groups = [group for method in content.methods if (group := content.group(method, "all")) is not None]
    if any(group.n_recordings > 1 for group in groups):
        notes.append("Small figures and bars are 95 % intervals from resampling recordings.")
    elif groups:
        notes.append("One recording has no interval.")
    for method in content.methods:
        group = content.group(method, "all")
        if group is None:
            notes.append(f"{method.title} has no scores in this run.")
        elif group.n_without_match:
            left_out = counted(group.n_without_match, "recording")
            notes.append(f"The delay of {method.title} leaves out {left_out} in which it recognised nothing.")
    if not content.methods:
        notes.append("This run has no methods.")
    return element("p", " ".join(notes), class_="note")


# ---------------------------------------------------------------------- recordings
_ERROR_WORDS = {True: "yes", False: "no"}


def recordings_table(content: Content) -> Html:
    """A row per recording with the scores of every method, by the protocol of the run."""
    groups = [element("th", m.title, scope="colgroup", colspan="3", class_="group") for m in content.methods]
    each = [element("th", text, scope="col") for _ in content.methods for text in ("POS", "F1", "τ (s)")]
    first = [element("th", text, scope="col", rowspan="2") for text in ("Recording", "Steps", "Errors")]
    rows = []
    for place, view in enumerate(content.recordings):
        link = element("a", view.name, href=f"#recording-{place}")
        cells: list[Html] = []
        for method in content.methods:
            row = content.recording_row(method, view.name)
            cells.append(element("td", figure(number(row.get("pos")), 2), class_="first"))
            cells.append(element("td", figure(number(row.get("f1")), 2)))
            cells.append(element("td", figure(number(row.get("delay_seconds")), 1)))
        errors = "?" if view.run.has_errors is None else _ERROR_WORDS[view.run.has_errors]
        about = [element("td", str(len(view.run.labels))), element("td", errors)]
        rows.append(element("tr", element("th", link, scope="row"), *about, *cells))
    head = element("thead", element("tr", *first, *groups), element("tr", *each))
    caption = element("caption", "Scores of every recording")
    table = element("table", caption, head, element("tbody", *rows), class_="numbers")
    return element("div", table, class_="scroll", tabindex="0")
