"""The page as a whole: one file that needs no network, no fonts and no scripts of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stormpsr import __version__
from stormpsr.evaluation.report.content import Content, collect
from stormpsr.evaluation.report.delays import curve, curve_table, delay_strips, delay_table, shared_limit
from stormpsr.evaluation.report.gallery import OnProgress, gallery
from stormpsr.evaluation.report.markup import Html, clock, element, join
from stormpsr.evaluation.report.recordings import recording_sections, timeline_legend
from stormpsr.evaluation.report.scores import main_table, recordings_table, table_notes
from stormpsr.evaluation.report.style import SCRIPT, STYLE, SYMBOLS
from stormpsr.evaluation.report.words import plain_words
from stormpsr.evaluation.run_folder import Run

# the browser itself then refuses anything that would need a network
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_TERMS = {
    "POS": "Procedure order similarity: 1 if the reported steps come in the order in which they were completed.",
    "F1": "How exact the reports are: 1 if every completed step was reported once, after it was completed, and "
    "nothing else was.",
    "Delay τ": "Mean time from the completion of a step to its report, over the steps that were recognised. It means "
    "little without the other two: whoever reports everything at the end misses nothing.",
    "Errors": "A recording is with errors if a part was put in wrong at some time, or an expected step was never "
    "completed.",
    "Evidence": "What a method has gathered for a step, as a share of what completes it. At the dashed line the step "
    "is reported.",
}


def render_report(run: Run, *, data: Path | None = None, on_progress: OnProgress | None = None) -> str:
    """The report of a run. `data` is where the recordings lie now, if not where they lay when the run was made."""
    content = collect(run)
    title = content.info.title or "Step recognition"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=f"stormpsr {__version__}"),
        element("title", title),
        Html(f"<style>{STYLE}</style>"),
    )
    sections = list(_sections(content, data or Path(content.info.data), on_progress))
    body = element(
        "body",
        Html(SYMBOLS),
        element("header", element("h1", title), _facts(content), _contents(sections)),
        element("main", *(_section(name, heading, inside) for name, heading, inside in sections)),
        element("footer", f"Written by stormpsr {__version__}. Matching of events to labels is the paper's."),
        Html(f"<script>{SCRIPT}</script>"),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _facts(content: Content) -> Html:
    total = sum(view.seconds for view in content.recordings)
    facts = {
        "Procedure": content.procedure.title or content.procedure.name,
        "Model": content.info.model,
        "Data": content.info.data + (f", split {content.info.split}" if content.info.split else ""),
        "Recordings": f"{len(content.recordings)}, {clock(total)} in all",
        "Labelled steps": str(content.n_labels),
    }
    pairs = (element("div", element("dt", key), element("dd", str(value))) for key, value in facts.items() if value)
    return element("dl", *pairs, class_="facts")


def _contents(sections: list[tuple[str, str, Html]]) -> Html:
    links = (element("li", element("a", heading, href=f"#{name}")) for name, heading, _ in sections)
    return element("nav", element("ul", *links), aria_label="Contents")


def _section(name: str, heading: str, inside: Html) -> Html:
    return element("section", element("h2", heading, id=name), inside, aria_labelledby=name)


def _sections(content: Content, data: Path, on_progress: OnProgress | None) -> Iterator[tuple[str, str, Html]]:
    """(name, heading, what it says)."""
    limit = shared_limit(content)
    yield "result", "Result", join([plain_words(content), main_table(content), table_notes(content)])
    yield "how-soon", "How soon steps are recognised", _how_soon(content, limit)
    yield "steps", "Step by step", _steps(content, limit)
    yield "wrong", "What went wrong", _wrong(content, data, on_progress)
    yield "recordings", "Recordings", _recordings(content)
    yield "terms", "Terms and settings", _terms(content)


def _keys(content: Content) -> Html:
    """Line and mark of every method."""
    items = []
    for method in content.methods:
        line = Html('<line x1="0" x2="36" y1="7" y2="7" class="line"/>')
        mark = element("use", href=f"#mark-{method.look}", x=18, y=7, style="fill:var(--c)")
        sample = element("svg", line, mark, width=36, height=14, aria_hidden="true", class_=f"look-{method.look}")
        items.append(element("li", sample, element("span", method.title)))
    return element("ul", *items, class_="keys")


def _how_soon(content: Content, limit: float) -> Html:
    about = (
        "Share of all labelled steps, in percent, that were recognised at most so many seconds after their completion. "
        "Steps that were missed never count, so a line ends at the share that was found. The axis is stretched near 0."
    )
    figure = element("div", _keys(content), curve(content, limit), curve_table(content, limit), class_="together")
    return join([element("p", about, class_="note"), figure])


def _steps(content: Content, limit: float) -> Html:
    about = "Every dot is one recognition, placed by its delay on the same axis; the bar is the median."
    numbers = element("details", element("summary", "The same in numbers"), delay_table(content))
    return join([element("p", about, class_="note"), _keys(content), delay_strips(content, limit), numbers])


def _wrong(content: Content, data: Path, on_progress: OnProgress | None) -> Html:
    if content.main is None:
        return element("p", "No method was run.", class_="note")
    about = f"The worst of {content.main.title}, with frames around the moment and what every method said."
    return join([element("p", about, class_="note"), gallery(content, data, on_progress)])


def _recordings(content: Content) -> Html:
    kinds = {view.run.has_errors for view in content.recordings}
    chosen = [("", "All recordings"), ("no", "Without errors"), ("yes", "With errors")]
    buttons = (
        element("button", text, type="button", value=value, aria_pressed="false" if value else "true")
        for value, text in chosen
    )
    filter_bar = element("div", *buttons, class_="filter", hidden=True) if {True, False} <= kinds else Html("")
    about = "Numbers at the marks are step ids; point at a mark, or tap it, for its name and time."
    parts = [recordings_table(content) if len(content.recordings) > 1 else Html("")]
    parts += [element("h3", "Timelines"), element("p", about, class_="note"), timeline_legend(content), filter_bar]
    return join([*parts, recording_sections(content)])


def _terms(content: Content) -> Html:
    terms = [join([element("dt", term), element("dd", text)]) for term, text in _TERMS.items()]
    rows = []
    for method in content.methods:
        settings = ", ".join(f"{key} {_setting(value)}" for key, value in method.settings.items()) or "–"
        rows.append(join([element("dt", method.title), element("dd", settings)]))
    return join(
        [element("dl", *terms, class_="terms"), element("h3", "Settings"), element("dl", *rows, class_="terms")]
    )


def _setting(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
