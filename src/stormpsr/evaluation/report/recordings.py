"""The section on single recordings: a timeline each, and the same in a table."""

from __future__ import annotations

from stormpsr.evaluation.report.content import Content, Method, RecordingView
from stormpsr.evaluation.report.markup import Html, clock, counted, element, join, seconds
from stormpsr.evaluation.report.timeline import hidden_stretches, timeline

_ERRORS = {True: "errors were made", False: "no errors were made"}


def recording_sections(content: Content) -> Html:
    """All recordings below each other."""
    return join(_section(content, view, place) for place, view in enumerate(content.recordings))


def _section(content: Content, view: RecordingView, place: int) -> Html:
    run = view.run
    facts = [clock(view.seconds), f"{run.n_frames} frames at {run.fps:g} fps"]
    if run.variant:
        facts.insert(0, run.variant)
    if run.has_errors is not None:
        facts.append(_ERRORS[bool(run.has_errors)])
    hidden = hidden_stretches(view)
    if hidden is not None:
        share = sum(b - a for a, b in hidden) / run.n_frames
        facts.append(f"state hidden {100 * share:.0f}\N{NO-BREAK SPACE}% of the time")
    absent = [method.title for method in content.methods if method.name not in view.scores]
    if absent:
        facts.append(f"not run here: {', '.join(absent)}")
    heading = element("h3", view.name)
    about = element("p", " · ".join(facts), class_="note")
    table = element("details", element("summary", "Steps and times"), _times(content, view))
    errors = "unknown" if run.has_errors is None else "yes" if run.has_errors else "no"
    inside = (heading, about, timeline(content, view, place), table)
    return element("section", *inside, class_="recording", id=f"recording-{place}", data_errors=errors)


def _times(content: Content, view: RecordingView) -> Html:
    methods = [method for method in content.methods if method.name in view.scores]
    heads = ["Step", "Completed", *(method.title for method in methods)]
    rows = []
    for label in sorted(view.run.labels, key=lambda event: (event.frame, event.step_id)):
        cells = [_outcome(view, method, label.step_id, label.frame) for method in methods]
        name = element("th", f"{label.step_id} {content.step_name(label.step_id)}", scope="row")
        rows.append((label.frame, element("tr", name, element("td", clock(view.time(label.frame))), *cells)))
    for method in methods:
        for event in view.scores[method.name].unmatched_events:
            cells = [
                element("td", f"false alarm at {clock(view.time(event.frame))}", class_="false")
                if other is method
                else element("td")
                for other in methods
            ]
            name = element("th", f"{event.step_id} {content.step_name(event.step_id)}", scope="row")
            rows.append((event.frame, element("tr", name, element("td", "–"), *cells)))
    head = element("tr", *(element("th", text, scope="col") for text in heads))
    caption = element("caption", f"When the steps of {view.name} were recognised, in seconds after their completion")
    body = [row for _, row in sorted(rows, key=lambda pair: pair[0])]
    if not body:
        body = [element("tr", element("td", "no steps and no events", colspan=str(len(heads))))]
    table = element("table", caption, element("thead", head), element("tbody", *body), class_="numbers named")
    return element("div", table, class_="scroll", tabindex="0")


def _outcome(view: RecordingView, method: Method, step_id: int, frame: int) -> Html:
    matches = view.scores[method.name].matches
    match = next((m for m in matches if (m.step_id, m.label_frame) == (step_id, frame)), None)
    if match is None:
        return element("td", "missed", class_="missed")
    return element("td", f"+{seconds(view.time(match.delay_frames))}")


# ---------------------------------------------------------------------- how to read a timeline
def timeline_legend(content: Content) -> Html:
    """Every mark with its meaning; only what the timelines contain."""
    views = content.recordings
    items = [
        (_sample('<line x1="10" x2="10" y1="3" y2="17" class="tick label"/>'), "step completed, with its number"),
        (
            _sample(
                '<line x1="1" x2="13" y1="10" y2="10" class="tail"/><circle cx="14" cy="10" r="4.5" class="correct"/>'
            ),
            "recognised; the line is the delay",
        ),
        (_sample('<circle cx="10" cy="10" r="4" class="missed"/>'), "missed"),
        (_sample('<use href="#cross" x="10" y="10" class="false"/>'), "false alarm"),
    ]
    if any(view.wrong_installs(content.procedure) for view in views):
        line = '<line x1="10" x2="10" y1="3" y2="17" class="tick wrong"/>'
        items.insert(1, (_sample(line), "part put in wrong"))
    if any(view.run.evidence for view in views):
        path = '<path d="M0 18 14 5V18z" class="evidence"/><line x1="0" x2="20" y1="4" y2="4" class="threshold"/>'
        items.append((_sample(path), "evidence, up to the threshold that completes a step"))
    if any(hidden_stretches(view) for view in views):
        items.append((_sample('<rect x="1" y="3" width="18" height="14" class="hidden"/>'), "state cannot be read"))
    if any(view.run.visible_share for view in views):
        text = "less than a quarter of the object in sight"
        items.append((_sample('<rect x="1" y="3" width="18" height="14" class="unseen"/>'), text))
    lines = [element("li", sample, element("span", text)) for sample, text in items]
    parts: list[Html] = [element("ul", *lines, class_="legend")]
    unknown = sum(view.run.readable is None for view in views)
    if unknown:
        which = "these recordings" if unknown == len(views) else f"{counted(unknown, 'recording')} of these"
        parts.append(element("p", f"For {which} nobody noted when the object was hidden.", class_="note"))
    return join(parts)


def _sample(drawing: str) -> Html:
    return element(
        "svg", Html(drawing), width=20, height=20, viewBox="0 0 20 20", aria_hidden="true", class_="look-average"
    )
