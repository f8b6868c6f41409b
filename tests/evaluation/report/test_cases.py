"""The worst cases, and why they happened."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stormpsr.data.events import StepEvent
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.report.cases import Case, CaseKind, worst_cases
from stormpsr.evaluation.report.content import Content, Method, RecordingView
from stormpsr.evaluation.run_folder import RecordingRun, RunInfo
from stormpsr.procedure.model import Procedure

METHODS = (Method("detection", "D", "detection", {}), Method("average", "A", "average", {}))
RUN = RecordingRun(
    name="r",
    variant="build",
    fps=10.0,
    n_frames=1000,
    has_errors=None,
    frames_path="",
    labels=(StepEvent(0, 100), StepEvent(3, 400)),
    labels_with_errors=None,
    events={"detection": (StepEvent(0, 200),), "average": ()},
    readable=((150, 160), (300, 500)),
)


def cases_of(procedure: Procedure, *runs: RecordingRun, most: int = 4) -> dict[CaseKind, list[Case]]:
    views = tuple(
        RecordingView(run, {name: score(run.labels, found, fps=10) for name, found in run.events.items()})
        for run in runs
    )
    return worst_cases(Content(RunInfo("", "", "", None, "paper", (), {}), procedure, METHODS, views), most=most)


def plain(case: Case) -> tuple[list[str], str]:
    said = [f"{method.title} {text}" for method, text in case.said]
    return [text.replace("\N{NO-BREAK SPACE}", " ") for text in said], " ".join(case.why).replace(
        "\N{NO-BREAK SPACE}", " "
    )


def test_a_missed_step_tells_what_each_method_said_and_when_it_could_be_seen(lamp: Procedure) -> None:
    worst, second = cases_of(lamp, RUN)["missed"]
    assert (worst.step_id, worst.frame) == (3, 400)  # missed by both, so it comes first
    assert plain(worst) == (["D never reported it", "A never reported it"], "The assembly was in clear view.")
    assert (second.step_id, second.frame) == (0, 100)
    assert plain(second) == (
        ["D recognised it after 10.0 s (frame 200)", "A never reported it"],
        "The next clear view came 5.0 s later.",
    )


def test_a_step_that_came_too_early_is_missed_and_a_false_alarm(lamp: Procedure) -> None:
    found = cases_of(lamp, replace(RUN, events={"average": (StepEvent(3, 370, confidence=6.25),)}))
    said, _ = plain(next(case for case in found["missed"] if case.step_id == 3))
    assert said == ["D was not run on this recording", "A reported it 3.0 s too early (frame 370)"]
    (alarm,) = found["false"]
    assert plain(alarm)[0][1] == "A reported it at 0:37 (frame 370, evidence 6.2)"
    assert plain(alarm)[1] == "The step was completed 3.0 s later."


@pytest.mark.parametrize(
    ("event", "with_errors", "why"),
    [
        (StepEvent(6, 350), None, "This step never happened in this recording."),
        (StepEvent(3, 900), None, "The step had been completed at 0:40 and was reported again."),
        (StepEvent(6, 350), (StepEvent(7, 320),), "The part had been put in wrong at 0:32."),
        (StepEvent(8, 350), (StepEvent(7, 320),), "This step never happened in this recording."),  # a removal
    ],
)
def test_a_false_alarm_is_explained_by_the_labels(
    lamp: Procedure, event: StepEvent, with_errors: tuple[StepEvent, ...] | None, why: str
) -> None:
    events = (*RUN.labels, event)
    (alarm,) = cases_of(lamp, replace(RUN, events={"average": events}, labels_with_errors=with_errors))["false"]
    assert alarm.why[0] == why


@pytest.mark.parametrize(
    ("frame", "readable", "words"),
    [
        (120, ((150, 160),), "The assembly had not been seen clearly yet."),
        (220, ((150, 160),), "The last clear view was 6.0 s before."),
        (170, ((150, 160),), ""),
        (220, None, ""),
    ],
)
def test_a_false_alarm_says_how_long_nothing_was_seen(
    lamp: Procedure, frame: int, readable: tuple[tuple[int, int], ...] | None, words: str
) -> None:
    run = replace(RUN, events={"average": (StepEvent(6, frame),)}, readable=readable)
    (alarm,) = cases_of(lamp, run)["false"]
    assert plain(alarm)[1] == f"This step never happened in this recording. {words}".strip()


def test_late_steps_are_those_that_took_longest(lamp: Procedure) -> None:
    runs = [
        replace(RUN, name=f"r{late}", events={"average": (StepEvent(0, 100 + late), StepEvent(3, 405))})
        for late in (30, 300, 19)
    ]
    late = cases_of(lamp, *runs)["late"]
    assert [(case.view.name, case.frame, case.until) for case in late] == [("r300", 100, 400), ("r30", 100, 130)]


def test_no_more_cases_than_asked_for(lamp: Procedure) -> None:
    assert [len(found) for found in cases_of(lamp, RUN, replace(RUN, name="s"), most=3).values()] == [3, 0, 0]


def test_a_step_that_is_never_seen_again_says_so(lamp: Procedure) -> None:
    found = cases_of(lamp, replace(RUN, readable=((0, 300),)))["missed"]
    assert [plain(case)[1] for case in found if case.step_id == 3] == ["The assembly was not seen clearly again."]
