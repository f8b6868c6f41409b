"""A recording over time: every label and event has its mark, in its place."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from stormpsr.data.events import StepEvent
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.report.content import Content, Method, RecordingView
from stormpsr.evaluation.report.timeline import hidden_stretches, lane_summary, timeline
from stormpsr.evaluation.run_folder import RecordingRun, RunInfo
from stormpsr.procedure.model import Procedure

LABELS = (StepEvent(0, 100), StepEvent(3, 400), StepEvent(6, 700))
EVENTS = (StepEvent(0, 150), StepEvent(2, 300), StepEvent(3, 500))  # one late, one false, one later, one missed


def recording(**changes: object) -> RecordingRun:
    about = RecordingRun(
        name="r",
        variant="build",
        fps=10.0,
        n_frames=1000,
        has_errors=True,
        frames_path="",
        labels=LABELS,
        labels_with_errors=(StepEvent(4, 350), *LABELS),
        events={"average": EVENTS},
        readable=((0, 99), (200, 499), (450, 599)),
    )
    return replace(about, **changes)  # type: ignore[arg-type]


def drawn(run: RecordingRun, procedure: Procedure) -> tuple[str, ElementTree.Element]:
    view = RecordingView(run, {name: score(run.labels, events, fps=10) for name, events in run.events.items()})
    methods = tuple(Method(name, name.title(), "average", {}) for name in run.events)
    info = RunInfo("", "", "", None, "paper", (), {})
    markup = timeline(Content(info, procedure, methods, (view,)), view, 7)
    return markup, ElementTree.fromstring(markup)


def of_class(tree: ElementTree.Element, tag: str, name: str) -> list[ElementTree.Element]:
    return [part for part in tree.iter(tag) if name in part.get("class", "").split()]


def test_every_kind_of_mark_stands_where_it_belongs(lamp: Procedure) -> None:
    _, tree = drawn(recording(), lamp)
    assert [part.get("x1") for part in of_class(tree, "line", "label")] == ["10.00%", "40.00%", "70.00%"]
    assert [part.get("x1") for part in of_class(tree, "line", "wrong")] == ["35.00%"]
    assert [part.get("cx") for part in of_class(tree, "circle", "correct")] == ["15.00%", "50.00%"]
    assert [(part.get("x1"), part.get("x2")) for part in of_class(tree, "line", "tail")] == [
        ("10.00%", "15.00%"),
        ("40.00%", "50.00%"),
    ]
    assert [part.get("x") for part in of_class(tree, "use", "false")] == ["30.00%"]
    assert [part.get("cx") for part in of_class(tree, "circle", "missed")] == ["70.00%"]


def test_every_mark_says_what_it_is(lamp: Procedure) -> None:
    _, tree = drawn(recording(), lamp)
    tips = [title.text.replace("\N{NO-BREAK SPACE}", " ") for title in tree.iter("title") if title.text]
    assert "0 Install foot, completed at 0:10 (frame 100)" in tips
    assert "4 Incorrectly installed pole, at 0:35 (frame 350)" in tips
    assert "3 Install pole: recognised at 0:50 (frame 500), 10.0 s after completion" in tips
    assert "2 Remove foot: false alarm at 0:30 (frame 300)" in tips
    assert "6 Install shade: missed, completed at 1:10 (frame 700)" in tips
    svg = next(tree.iter("svg"))
    label = (svg.get("aria-label") or "").replace("\N{NO-BREAK SPACE}", " ")
    assert label == "Timeline of r: 3 labelled steps. Average: 2 of 3, 1 false, 7.5 s late"


def test_events_of_one_frame_stand_in_different_rows(lamp: Procedure) -> None:
    together = tuple(StepEvent(step, 800) for step in (0, 3, 6))
    _, tree = drawn(recording(events={"average": together}), lamp)
    heights = [part.get("cy") for part in of_class(tree, "circle", "correct")]
    assert len(set(heights)) == 3


def test_what_is_not_readable_is_hidden(lamp: Procedure) -> None:
    view = RecordingView(recording(), {})
    assert hidden_stretches(view) == [(100, 200), (600, 1000)]
    assert hidden_stretches(RecordingView(recording(readable=()), {})) == [(0, 1000)]
    assert hidden_stretches(RecordingView(recording(readable=((0, 999),)), {})) == []
    assert hidden_stretches(RecordingView(recording(readable=None), {})) is None
    _, tree = drawn(recording(), lamp)
    (path,) = of_class(tree, "path", "hidden")
    assert (path.get("id"), path.get("d")) == ("hidden-7", "M100 0H200V1H100zM600 0H1000V1H600z")
    assert [use.get("href") for use in tree.iter("use")].count("#hidden-7") == 2  # in both lanes


def test_where_the_object_is_out_of_sight_the_shade_is_darker(lamp: Procedure) -> None:
    shares = tuple(0.1 if 20 <= i < 30 else 0.9 for i in range(100))
    _, tree = drawn(recording(visible_share=shares, visible_stride=10), lamp)
    (path,) = of_class(tree, "path", "unseen")
    assert path.get("d") == "M200 0H300V1H200z"


def test_nothing_is_shaded_where_nobody_knows(lamp: Procedure) -> None:
    _, tree = drawn(recording(readable=None), lamp)
    assert of_class(tree, "path", "hidden") == []
    assert not [use for use in tree.iter("use") if "hidden" in use.get("href", "")]


def test_evidence_is_drawn_and_a_near_miss_is_named(lamp: Procedure) -> None:
    evidence_GS = np.zeros((250, 9), np.float16)
    evidence_GS[30:38, 0] = np.linspace(0.2, 1, 8)  # completes step 0 in frame 150
    evidence_GS[180:190, 6] = 0.7  # never comes through
    evidence_GS[100:110, 8] = 0.1
    _, tree = drawn(recording(evidence={"average": evidence_GS}, evidence_stride=4), lamp)
    assert len(of_class(tree, "path", "evidence")) == 2
    assert [text.text for text in of_class(tree, "text", "nearly")] == ["6"]
    assert len(of_class(tree, "line", "threshold")) == 1


def test_a_recording_without_events_or_labels_can_be_drawn(lamp: Procedure) -> None:
    _, tree = drawn(recording(events={"average": ()}), lamp)
    assert len(of_class(tree, "circle", "missed")) == 3
    _, tree = drawn(recording(labels=(), labels_with_errors=None, events={"average": ()}, n_frames=1), lamp)
    assert of_class(tree, "circle", "missed") == []


def test_a_crowded_recording_scrolls_instead_of_shrinking(lamp: Procedure) -> None:
    crowd = tuple(StepEvent(0, 10 * i) for i in range(1, 95))
    markup, _ = drawn(recording(labels=crowd, events={"average": crowd}), lamp)
    assert "min-width:" in markup
    assert "min-width:" not in drawn(recording(), lamp)[0]


@pytest.mark.parametrize(
    ("events", "text"),
    [((), "0 of 3"), (EVENTS, "2 of 3, 1 false, 7.5 s late"), (LABELS, "3 of 3, 0.0 s late")],
)
def test_a_lane_is_summed_up_in_a_few_words(events: tuple[StepEvent, ...], text: str) -> None:
    assert lane_summary(score(LABELS, events, fps=10)).replace("\N{NO-BREAK SPACE}", " ") == text
