"""What the commands print: tables for people, JSON for machines, notes on the error stream."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpsr.evaluation.wording import counted as counted  # what every command says its numbers with
from stormpsr.evaluation.wording import number as number

if TYPE_CHECKING:
    from rich.console import Console

    from stormpsr.data.labels import Note
    from stormpsr.evaluation.metrics import Scores
    from stormpsr.evaluation.summary import GroupSummary, Interval


_WIDTH_OF_FILES = 140
_SECONDS_BETWEEN_LINES = 10.0  # of a log

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


def answer(as_json: bool, data: dict[str, Any], *lines: str) -> None:
    """The result of a command: a JSON document for machines, or lines of text for people."""
    if as_json:
        print_json(data)
    else:
        for line in lines:
            typer.echo(line)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Iterable[int] = (),
    to: Console | None = None,
) -> None:
    """A table; the columns whose indices are in `right` hold numbers. Text may wrap, numbers are never cut.

    Where it is too wide, the titles of such columns stand on several lines.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    cells = [[cell if isinstance(cell, Text) else Text(str(cell)) for cell in row] for row in rows]
    numbers = set(right)
    screen = to or console()

    def least_width(table: Table) -> int:
        return screen.measure(table, options=screen.options.update(width=1000)).minimum

    def made(between_words: str) -> Table:
        table = Table(box=SIMPLE_HEAD)
        for i, column in enumerate(columns):
            if i in numbers:
                title = column.replace(" ", between_words)
                least = max(*map(len, title.split("\n")), *(len(row[i]) for row in cells), 0)
                table.add_column(title, justify="right", no_wrap=True, min_width=least)
            else:
                table.add_column(column)
        for row in cells:
            table.add_row(*row)
        return table

    table = made(" ")
    if least_width(table) > screen.width:
        table = made("\n")
    least = least_width(table)
    screen.width = max(screen.width, least)  # in a terminal that is too narrow, lines break but no number is cut
    if title:
        screen.print(Text(title, style="bold"), soft_wrap=True)
    screen.print(table)


def score_cells(scores: Scores | GroupSummary) -> list[str]:
    """POS, F1, tau and the counts, for the columns `SCORE_COLUMNS`."""
    counts = (scores.true_positives, scores.false_positives, scores.false_negatives)
    return [number(scores.pos), number(scores.f1), number(scores.delay_seconds, 1), *map(str, counts)]


def print_notes(notes: Sequence[Note | str], most: int = 10) -> None:
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


def interval_cell(group: GroupSummary, interval: Interval, digits: int) -> str:
    """The interval of a score alone: `0.740–0.861`; of a single recording there is none."""
    if group.n_recordings < 2:
        return number(None)
    return f"{number(interval.low, digits)}–{number(interval.high, digits)}"


def mean_cells(group: GroupSummary) -> list[str]:
    """POS, F1 and tau with their intervals, then TP FP FN in one cell."""
    return [
        with_interval(group, group.pos, group.pos_interval, 3),
        with_interval(group, group.f1, group.f1_interval, 3),
        with_interval(group, group.delay_seconds, group.delay_interval, 1),
        f"{group.true_positives} {group.false_positives} {group.false_negatives}",
    ]


class Bar:
    """A progress bar on the error stream, for people; what is printed meanwhile stands above it."""

    def __init__(self, name: str = "", enabled: bool = True, *, logged: bool = True) -> None:
        """logged: where there is no terminal, a plain line is printed now and then."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = Console(stderr=True, highlight=False)
        is_terminal = sys.stderr.isatty()
        self._logged, self._logged_at = logged and enabled and not is_terminal, time.perf_counter()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[more]}"),
            TimeRemainingColumn(),
            console=self.console,
            redirect_stdout=sys.stdout.isatty(),  # what goes into a pipe must not be drawn into the terminal
            disable=not (enabled and is_terminal),
        )
        self._name, self._task = name, self._progress.add_task(name, total=None, more="")

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def count(self, done: int, of: int | None) -> None:
        self.named(self._name, done, of)

    def together(self, name: str, n: int) -> Callable[[str, int, int], None]:
        """Progress of so many recordings that are worked on at the same time, told by their names: percent of all."""
        shares: dict[str, float] = {}

        def told(recording: str, done: int, of: int) -> None:
            shares[recording] = done / max(of, 1)
            self.named(name, int(100 * sum(shares.values()) / max(n, len(shares))), 100)

        return told

    def named(self, name: str, done: int, of: int | None, more: str = "") -> None:
        """Progress of a recording, or of another part of the work that has a name; another name begins anew."""
        if name != self._name:
            self._progress.remove_task(self._task)
            self._name, self._task = name, self._progress.add_task(name, more="")
        self._progress.update(self._task, completed=done, total=of, more=more)
        now = time.perf_counter()
        if self._logged and now - self._logged_at >= _SECONDS_BETWEEN_LINES:
            self._logged_at = now
            self.console.print(f"{name}: {done} of {of}{': ' * bool(more)}{more}", soft_wrap=True)
