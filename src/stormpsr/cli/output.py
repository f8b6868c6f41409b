"""What the commands print: tables for people, JSON for machines, notes on the error stream."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpsr.evaluation.wording import counted as counted  # what every command says its numbers with
from stormpsr.evaluation.wording import number as number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from stormpsr.data.labels import Note
    from stormpsr.evaluation.metrics import Scores
    from stormpsr.evaluation.summary import GroupSummary, Interval


_WIDTH_OF_FILES = 140

SCORE_COLUMNS = ("POS", "F1", "tau (s)", "TP", "FP", "FN")

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH_OF_FILES  # a file or a pipe has no width of its own
    return console


def print_json(data: Any) -> None:
    """One JSON document on the standard output."""
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()
) -> None:
    """A table; the columns whose indices are in `right` hold numbers. Text may wrap, numbers are never cut."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    numbers = set(right)
    table = Table(box=SIMPLE_HEAD)
    for i, column in enumerate(columns):
        if i in numbers:
            least = max(len(column), *(len(row[i]) for row in cells), 0)
            table.add_column(column, justify="right", no_wrap=True, min_width=least)
        else:
            table.add_column(column)
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    screen = console()
    least = screen.measure(table, options=screen.options.update(width=1000)).minimum
    screen.width = max(screen.width, least)  # in a terminal that is too narrow, lines break but no number is cut
    if title:
        screen.print(Text(title, style="bold"), soft_wrap=True)
    screen.print(table)


def score_cells(scores: Scores | GroupSummary) -> list[str]:
    """POS, F1, tau and the counts, for the columns `SCORE_COLUMNS`."""
    counts = (scores.true_positives, scores.false_positives, scores.false_negatives)
    return [number(scores.pos), number(scores.f1), number(scores.delay_seconds, 1), *map(str, counts)]


def print_notes(notes: Sequence[Note], most: int = 10) -> None:
    """What was odd but accepted, on the error stream."""
    for note in notes[:most]:
        typer.echo(f"note: {note}", err=True)
    if len(notes) > most:
        typer.echo(f"note: and {len(notes) - most} more ('stormpsr labels check' lists all)", err=True)


def with_interval(group: GroupSummary, value: float | None, interval: Interval | None, digits: int) -> str:
    """A score and, over several recordings, its interval: `0.812 (0.740–0.861)`."""
    if interval is None or group.n_recordings < 2:
        return number(value, digits)
    return f"{number(value, digits)} ({number(interval.low, digits)}–{number(interval.high, digits)})"


class Bar:
    """A progress bar on the error stream, for people; what is printed meanwhile stands above it."""

    def __init__(self, name: str, enabled: bool = True) -> None:
        self._name, self._enabled = name, enabled
        self._progress: Progress | None = None

    def __enter__(self) -> Bar:
        if self._enabled and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            # what goes into a pipe must not be drawn into the terminal
            self._progress = Progress(*columns, console=Console(stderr=True), redirect_stdout=sys.stdout.isatty())
            self._task = self._progress.add_task(self._name, total=None)
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()

    def count(self, done: int, of: int | None) -> None:
        if self._progress:
            self._progress.update(self._task, completed=done, total=of)

    def recording(self, name: str, done: int, of: int) -> None:
        if self._progress:
            self._progress.update(self._task, description=name, completed=done, total=of)
