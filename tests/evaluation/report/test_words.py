"""The scores in sentences."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stormpsr.data.events import StepEvent
from stormpsr.evaluation.report.content import collect
from stormpsr.evaluation.report.words import plain_words
from stormpsr.evaluation.run_folder import RecordingRun, read_run

LABELS = (StepEvent(0, 100), StepEvent(3, 400))


def later(frames: int, *more: StepEvent) -> tuple[StepEvent, ...]:
    return (*(StepEvent(label.step_id, label.frame + frames) for label in LABELS), *more)


def words(make_run: Callable[..., Path], n: int = 2, **events: tuple[StepEvent, ...]) -> str:
    def change(recording: RecordingRun) -> RecordingRun:
        return replace(recording, labels=LABELS, events=events)

    text = plain_words(collect(read_run(make_run(n, change=change, methods=list(events)))))
    return re.sub("<[^>]+>", "", text).replace("\N{NO-BREAK SPACE}", " ")


def test_sooner_and_as_exact(make_run: Callable[..., Path]) -> None:
    assert words(make_run, detection=later(100), average=later(20)) == (
        "In 2 recordings with 4 completed steps, STORM-PSR recognised 100 % of the steps, on average 2.0 s after they "
        "were completed, and raised no false alarm. That is 8.0 s (80 %) sooner than Detection only, and sooner in 2 "
        "of 2 recordings. Both are equally exact (F1 1.000 against 1.000)."
    )


def test_later_and_less_exact_is_said_as_plainly(make_run: Callable[..., Path]) -> None:
    found = words(make_run, detection=later(10), average=later(30, StepEvent(6, 5)))
    assert "and raised 2 false alarms." in found
    assert "That is 2.0 s (200 %) later than Detection only, and later in 2 of 2 recordings." in found
    assert "It is less exact (F1 0.800 against 1.000), in 2 of 2 recordings." in found


def test_the_third_method_gets_a_sentence(make_run: Callable[..., Path]) -> None:
    found = words(make_run, detection=later(10), temporal=later(5, StepEvent(6, 5)), average=later(10))
    assert found.endswith("Temporal only took 0.5 s, found 100 % of the steps and raised 2 false alarms.")
    assert "That is as late as Detection only." in found


def test_one_recording_is_not_counted_in_recordings(make_run: Callable[..., Path]) -> None:
    found = words(make_run, 1, detection=later(100), average=later(20))
    assert found.startswith("In 1 recording with 2 completed steps")
    assert "sooner than Detection only." in found


def test_a_method_that_found_nothing_has_no_delay(make_run: Callable[..., Path]) -> None:
    found = words(make_run, detection=later(10), average=())
    assert "STORM-PSR recognised 0 % of the steps, and raised no false alarm." in found
    assert "sooner" not in found
    assert "later than" not in found


def test_one_method_is_compared_with_nothing(make_run: Callable[..., Path]) -> None:
    assert words(make_run, average=later(10)).endswith("and raised no false alarm.")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"methods": []}, "This run has no method, so there is nothing to sum up."),
        ({"change": lambda r: replace(r, labels=())}, "This run has no labelled steps, so there is nothing to sum up."),
    ],
)
def test_nothing_to_say_is_said(make_run: Callable[..., Path], options: dict[str, Any], text: str) -> None:
    assert text in plain_words(collect(read_run(make_run(1, **options))))
