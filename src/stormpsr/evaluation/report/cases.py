"""The worst that happened: steps that were missed, recognised very late, or reported without having happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stormpsr.data.events import StepEvent
from stormpsr.evaluation.report.content import Content, Method, RecordingView
from stormpsr.evaluation.report.markup import clock, seconds
from stormpsr.procedure.model import StepKind

CaseKind = Literal["missed", "late", "false"]
LATE_SECONDS = 2.0  # nothing faster is shown as late
_VIEW_SECONDS = 2.0  # a false alarm this close after a clear view is not blamed on what was hidden


@dataclass(frozen=True, eq=False)
class Case:
    """Something worth looking at."""

    kind: CaseKind
    view: RecordingView
    step_id: int
    frame: int  # when the step was completed, or when the alarm was raised
    said: tuple[tuple[Method, str], ...]  # what each method made of it
    why: tuple[str, ...]  # what the labels and the view say about it
    badness: tuple[float, ...]  # greatest first
    until: int | None = None  # the frame in which a late step was recognised at last


def worst_cases(content: Content, most: int = 4) -> dict[CaseKind, list[Case]]:
    """Up to so many of each kind, the worst first; they are the main method's."""
    main = content.main
    found: dict[CaseKind, list[Case]] = {"missed": [], "late": [], "false": []}
    if main is None:
        return found
    for view in content.recordings:
        if main.name not in view.scores:
            continue
        scores = view.scores[main.name]
        found["missed"] += [_missed(content, view, label) for label in scores.unmatched_labels]
        for match in scores.matches:
            if match.delay_frames / view.run.fps >= LATE_SECONDS:
                found["late"].append(
                    _late(content, view, StepEvent(match.step_id, match.label_frame), match.event_frame)
                )
        found["false"] += [_false(content, view, main, event) for event in scores.unmatched_events]
    return {kind: sorted(cases, key=_worst_first)[:most] for kind, cases in found.items()}


def _worst_first(case: Case) -> tuple[object, ...]:
    return (*(-figure for figure in case.badness), case.view.name, case.frame, case.step_id)


# ---------------------------------------------------------------------- a case of each kind
def _missed(content: Content, view: RecordingView, label: StepEvent) -> Case:
    said = _said_about_label(content, view, label)
    deaf = sum(label in scores.unmatched_labels for scores in view.scores.values())
    left = view.seconds - view.time(label.frame)  # a step at the very end had no time to be seen
    return Case("missed", view, label.step_id, label.frame, said, _view_after(view, label), (deaf, left))


def _late(content: Content, view: RecordingView, label: StepEvent, until: int) -> Case:
    said = _said_about_label(content, view, label)
    late = view.time(until - label.frame)
    return Case("late", view, label.step_id, label.frame, said, _view_after(view, label), (late,), until)


def _false(content: Content, view: RecordingView, main: Method, event: StepEvent) -> Case:
    said = []
    for method in content.methods:
        if method.name not in view.scores:
            said.append((method, "was not run on this recording"))
            continue
        scores = view.scores[method.name]
        alarms = [e for e in scores.unmatched_events if e.step_id == event.step_id]
        nearest = min(alarms, key=lambda e: abs(e.frame - event.frame), default=None)
        said.append((method, "did not report it" if nearest is None else _reported(view, nearest)))
    distance = min((abs(view.time(lab.frame - event.frame)) for lab in _labels_of(view, event.step_id)), default=1e6)
    why = (_why_false(content, view, event), *_view_before(view, event))
    return Case("false", view, event.step_id, event.frame, tuple(said), why, (distance, event.confidence or 0.0))


def _said_about_label(content: Content, view: RecordingView, label: StepEvent) -> tuple[tuple[Method, str], ...]:
    said = []
    for method in content.methods:
        if method.name not in view.scores:
            said.append((method, "was not run on this recording"))
            continue
        scores = view.scores[method.name]
        match = next((m for m in scores.matches if (m.step_id, m.label_frame) == (label.step_id, label.frame)), None)
        if match is not None:
            late = view.time(match.delay_frames)
            said.append((method, f"recognised it after {seconds(late)} (frame {match.event_frame})"))
            continue
        early = [e for e in scores.unmatched_events if e.step_id == label.step_id and e.frame < label.frame]
        text = "never reported it"
        if early:
            ahead = view.time(label.frame - early[-1].frame)
            text = f"reported it {seconds(ahead)} too early (frame {early[-1].frame})"
        said.append((method, text))
    return tuple(said)


def _reported(view: RecordingView, event: StepEvent) -> str:
    sure = "" if event.confidence is None else f", evidence {event.confidence:.1f}"
    return f"reported it at {clock(view.time(event.frame))} (frame {event.frame}{sure})"


def _labels_of(view: RecordingView, step_id: int) -> list[StepEvent]:
    return [label for label in view.run.labels if label.step_id == step_id]


# ---------------------------------------------------------------------- why
def _why_false(content: Content, view: RecordingView, event: StepEvent) -> str:
    step = content.procedure.step(event.step_id)
    labels = _labels_of(view, event.step_id)
    wrong = [
        other
        for other in view.wrong_installs(content.procedure)
        if content.procedure.step(other.step_id).component_index == step.component_index and other.frame <= event.frame
    ]
    later = [label for label in labels if label.frame > event.frame]
    if step.kind is StepKind.INSTALL and wrong and not [x for x in labels if wrong[-1].frame <= x.frame <= event.frame]:
        return f"The part had been put in wrong at {clock(view.time(wrong[-1].frame))}."
    if later:
        ahead = view.time(later[0].frame - event.frame)
        return f"The step was completed {seconds(ahead)} later."
    if labels:
        return f"The step had been completed at {clock(view.time(labels[-1].frame))} and was reported again."
    return "This step never happened in this recording."


def _view_after(view: RecordingView, label: StepEvent) -> tuple[str, ...]:
    """When the state could next be read, which is as soon as a detector could have known."""
    if view.run.readable is None:
        return ()
    stretch = next(((a, b) for a, b in sorted(view.run.readable) if b >= label.frame), None)
    if stretch is None:
        return ("The assembly was not seen clearly again.",)
    wait = view.time(max(stretch[0] - label.frame, 0))
    return ("The assembly was in clear view.",) if wait == 0 else (f"The next clear view came {seconds(wait)} later.",)


def _view_before(view: RecordingView, event: StepEvent) -> tuple[str, ...]:
    if view.run.readable is None:
        return ()
    before = [last for first, last in sorted(view.run.readable) if first <= event.frame]
    since = view.time(max(event.frame - before[-1], 0)) if before else None
    if since is None:
        return ("The assembly had not been seen clearly yet.",)
    if since <= _VIEW_SECONDS:
        return ()
    return (f"The last clear view was {seconds(since)} before.",)
