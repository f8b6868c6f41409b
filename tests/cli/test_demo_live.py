"""What the demo shows while it watches, on a recording whose answer can be worked out by hand."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from stormpsr.cli import output
from stormpsr.cli.demo import in_words
from stormpsr.cli.demo_live import StepBoard, heading, make_display
from stormpsr.data.events import StepEvent
from stormpsr.data.sources import Frame
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.summary import RecordingResult
from stormpsr.procedure.model import Procedure

METHODS = ("detection", "temporal", "average")
INSTALL_FOOT, WRONG_FOOT, INSTALL_POLE, INSTALL_SHADE = 0, 1, 3, 6
LABELS = (StepEvent(INSTALL_FOOT, 12), StepEvent(INSTALL_POLE, 28))
# the detector is late, the temporal model early with the pole, and both together report a shade that never came
REPORTS = {
    20: {"detection": [INSTALL_FOOT]},
    14: {"temporal": [INSTALL_FOOT], "average": [INSTALL_FOOT]},
    22: {"temporal": [INSTALL_POLE]},
    31: {"detection": [INSTALL_POLE], "average": [INSTALL_POLE]},
    35: {"average": [INSTALL_SHADE]},
}


@pytest.fixture
def recording(lamp: Procedure) -> Any:
    """As `DrawnRecording`, without images."""
    with_errors = (StepEvent(WRONG_FOOT, 5), *LABELS)
    return SimpleNamespace(
        procedure=lamp, labels=LABELS, labels_with_errors=with_errors, fps=10.0, n_frames=40, drawn=40
    )


def play(board: StepBoard, until: int, show: Callable[[Any], None] = lambda news: None) -> None:
    for index in range(board.n_frames, until):
        events = {m: [StepEvent(s, index, source=m) for s in REPORTS.get(index, {}).get(m, [])] for m in METHODS}
        show(board.update(Frame(np.zeros((1, 1, 3), np.uint8), index, index / 10), events))


def test_the_board_says_who_recognised_what_and_when(recording: Any) -> None:
    board = StepBoard(recording, METHODS)
    play(board, 40)
    rows = [(row.step_id, row.completed, row.recognised, row.kind) for row in board.rows()]
    assert rows == [
        (INSTALL_FOOT, 1.2, ((2.0,), (1.4,), (1.4,)), "done"),
        (INSTALL_POLE, 2.8, ((3.1,), (), (3.1,)), "done"),
        (INSTALL_POLE, None, ((), (2.2,), ()), "too early"),
        (INSTALL_SHADE, None, ((), (), (3.5,)), "not done"),
    ]
    assert board.as_json()[0]["recognised"] == {"detection": [2.0], "temporal": [1.4], "average": [1.4]}


def test_nothing_is_said_about_what_has_not_happened_yet(recording: Any) -> None:
    board = StepBoard(recording, METHODS)
    assert [row.kind for row in board.rows()] == ["coming", "coming"]
    assert board.frames_per_second is None
    play(board, 18)
    first, second = board.rows()
    assert (first.kind, first.recognised) == ("done", ((), (1.4,), (1.4,)))
    assert (second.kind, second.recognised) == ("coming", ((), (), ()))


def test_a_delay_is_that_of_the_scores(recording: Any) -> None:
    board = StepBoard(recording, METHODS)
    play(board, 40)
    assert board.delay("detection", StepEvent(INSTALL_FOOT, 20)) == pytest.approx(0.8)
    assert board.delay("temporal", StepEvent(INSTALL_POLE, 22)) is None


def test_the_heading_says_what_will_be_seen(recording: Any) -> None:
    words = "an assembly that the model has not seen, 0:04 long"
    assert heading(recording) == f"lamp: {words}. Put in wrong at some time: foot (0.5 s)"
    recording.labels_with_errors = LABELS
    assert heading(recording) == f"lamp: {words}"


# ---------------------------------------------------------------------- without a terminal
def test_without_a_terminal_there_is_a_line_for_everything_that_happens(
    recording: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    board = StepBoard(recording, METHODS)
    with make_display(board, recording, as_json=False) as display:
        play(board, 40, display.show)
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "1.2 s completed Install foot",
        "1.4 s Temporal only Install foot, 0.2 s after completion",
        "1.4 s STORM-PSR Install foot, 0.2 s after completion",
        "2.0 s Detection only Install foot, 0.8 s after completion",
        "2.2 s Temporal only Install pole, not completed",
        "2.8 s completed Install pole",
        "3.1 s Detection only Install pole, 0.3 s after completion",
        "3.1 s STORM-PSR Install pole, 0.3 s after completion",
        "3.5 s STORM-PSR Install shade, not completed",
    ]
    display.conclude()
    table = capsys.readouterr().out
    assert "1.4 +0.2" in table
    assert "\x1b" not in table


def test_for_machines_nothing_is_shown(recording: Any, capsys: pytest.CaptureFixture[str]) -> None:
    board = StepBoard(recording, METHODS)
    with make_display(board, recording, as_json=True) as display:
        play(board, 40, display.show)
        display.say("writing")
    display.conclude()
    assert capsys.readouterr() == ("", "")


# ---------------------------------------------------------------------- in a terminal
@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], io.StringIO]:
    """A terminal of so many columns; what was sent to it."""

    def make(width: int) -> io.StringIO:
        sent = io.StringIO()
        monkeypatch.setattr(
            output, "console", lambda: Console(file=sent, force_terminal=True, width=width, height=40, highlight=False)
        )
        return sent

    return make


def test_in_a_terminal_the_table_fills_up_and_stays(recording: Any, screen: Callable[[int], io.StringIO]) -> None:
    sent = screen(100)
    board = StepBoard(recording, METHODS)
    recording.drawn = 10
    with make_display(board, recording, as_json=False) as display:
        assert "drawn 10 of 40 frames" in sent.getvalue()
        assert "completed" in sent.getvalue()
        assert "1.2 s" not in sent.getvalue()
        play(board, 40, display.show)
        recording.drawn = 40
        display.say("writing the report")
    last = sent.getvalue().rpartition("completed")[2]
    assert [word in last for word in ("1.2 s", "2.0 +0.8", "too early", "not done", "3.5")] == [True] * 5
    assert "video 0:03 of 0:04" in last
    assert "writing the report" not in last  # it is over


def test_the_table_fits_a_terminal_of_80_columns(
    recording: Any, screen: Callable[[int], io.StringIO], lamp: Procedure
) -> None:
    from dataclasses import replace

    from stormpsr.procedure.model import Component

    parts = (Component("a foot with a very long name indeed"), *lamp.components[1:])
    recording.procedure = replace(lamp, components=parts)
    sent = screen(80)
    board = StepBoard(recording, METHODS)
    with make_display(board, recording, as_json=False):
        play(board, 40)
    last = sent.getvalue().rpartition("STORM-PSR")[2]
    assert all(word in last for word in ("Install a foot", "indeed"))
    assert last.count("1.4 +0.2") == 2
    assert "…" not in last


# ---------------------------------------------------------------------- in the end
def result(method: str, lamp: Procedure) -> RecordingResult:
    events = tuple(StepEvent(s, frame) for frame, by in sorted(REPORTS.items()) for s in by.get(method, []))
    return RecordingResult("one", LABELS, events, score(LABELS, events, procedure=lamp), 10.0)


def test_one_sentence_says_how_it_went(lamp: Procedure) -> None:
    assert in_words({method: result(method, lamp) for method in METHODS}) == (
        "STORM-PSR recognised 2 of 2 steps, on average 0.2 s after completion, with 1 false alarm; "
        "detection only: 2 (0.6 s after, no false alarm); temporal only: 1 (0.2 s after, 1 false alarm)."
    )


def test_the_sentence_does_without_delays_where_nothing_was_recognised(lamp: Procedure) -> None:
    nothing = RecordingResult("one", LABELS, (), score(LABELS, (), procedure=lamp), 10.0)
    assert in_words({"detection": nothing}) == "Detection only recognised 0 of 2 steps, with no false alarm."
