"""The page as a whole: one file that needs no network, no fonts and no scripts of others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stormpsr import __version__
from stormpsr.evaluation import wording
from stormpsr.evaluation.report import drawing
from stormpsr.evaluation.report.content import collect
from stormpsr.evaluation.report.images import FrameReader, OnProgress
from stormpsr.evaluation.report.sections import SECTIONS
from stormpsr.evaluation.run_folder import Run

if TYPE_CHECKING:
    from jinja2 import Environment


def render_report(run: Run, *, data: Path | None = None, on_progress: OnProgress | None = None) -> str:
    """The report of a run. `data` is where the recordings lie now, if not where they lay when the run was made."""
    content = collect(run, FrameReader(data or Path(run.info.data), on_progress))
    sections = [{"name": name, "heading": heading, "data": prepare(content)} for name, heading, prepare in SECTIONS]
    page = _environment().get_template("page.html")
    return page.render(content=content, sections=sections, version=__version__)


def _environment() -> Environment:
    """Templates in which everything is text unless a template says that it is markup."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    here = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(here),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "clock": wording.clock,
        "counted": wording.counted,
        "number": wording.number,
        "percent": wording.percent,
        "seconds": wording.seconds,
        "across": _across,
        "pixels": _pixels,
    }
    # the style sheet and the script go into the page as they are
    environment.globals |= {"file": lambda name: Markup((here / name).read_text(encoding="utf-8")), "drawing": drawing}
    return environment


def _across(share: float, digits: int = 2) -> str:
    """A place in a drawing: `12.50%` of its width."""
    return f"{100 * min(max(share, 0.0), 1.0):.{digits}f}%"


def _pixels(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
