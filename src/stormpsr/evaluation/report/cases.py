"""The worst that happened: steps that were missed, recognised very late, or reported without having happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stormpsr.data.events import StepEvent
from stormpsr.evaluation.report.content import Content, Method, RecordingView
from stormpsr.evaluation.wording import clock, seconds
from stormpsr.procedure.model import StepKind

CaseKind = Literal["missed", "late", "false"]
LATE_SECONDS = 2.0  # nothing faster is shown as late
_VIEW_SECONDS = 2.0  # a false alarm this close after a clear view is not blamed on what was hidden
_AROUND_SECONDS: dict[CaseKind, tuple[float, ...]] = {
    "missed": (-2.0, -1.0, 0.0, 1.0, 3.0, 8.0),
    "late": (-2.0, 0.0, 1.0, 3.0),  # and the moment of recognition
    "false": (-6.0, -3.0, -1.0, 0.0, 1.0, 4.0),
}
_APART_SECONDS = 0.6


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

    @property
    def verb(self) -> str:
        return "reported" if self.kind == "false" else "completed"

    def frames(self) -> list[int]:
        """The frames of a film strip: the moments that matter, and others that are not nearly the same image."""
        fps, last = self.view.run.fps, self.view.run.n_frames - 1
        moments = [self.frame] if self.until is None else [self.frame, self.until]
        around = [self.frame + round(offset * fps) for offset in _AROUND_SECONDS[self.kind]]
        if self.until is not None:
            around.append(self.until - round(fps))
        chosen = [frame for frame in moments if 0 <= frame <= last]
        for frame in around:
            if 0 <= frame <= last and all(abs(frame - other) >= _APART_SECONDS * fps for other in chosen):
                chosen.append(frame)
        return sorted(chosen)

    def moment(self, frame: int) -> str:
        """What a frame of the strip is the moment of, if of anything."""
        if frame == self.frame:
            return self.verb
        return f"recognised, {seconds(self.view.time(frame - self.frame))}" if frame == self.until else ""


def worst_cases(content: Content, most: int = 4) -> dict[CaseKind, list[Case]]:
    """Up to so many of each kind, the worst first; they are the main method's."""
    main = content.main
    found: dict[CaseKind, list[Case]] = {"missed": [], "late": [], "false": []}
    if main is None:
        return found
    for view in content.views_of(main):
        scores = view.scores[main.name]
        found["missed"] += [_of_label(content, view, label) for label in scores.unmatched_labels]
        found["late"] += [
            _of_label(content, view, StepEvent(match.step_id, match.label_frame), match.event_frame)
            for match in scores.matches
            if view.time(match.delay_frames) >= LATE_SECONDS
        ]
        found["false"] += [_false(content, view, event) for event in scores.unmatched_events]
    return {kind: sorted(cases, key=_worst_first)[:most] for kind, cases in found.items()}


def _worst_first(case: Case) -> tuple[object, ...]:
    return (*(-figure for figure in case.badness), case.view.name, case.frame, case.step_id)


# ---------------------------------------------------------------------- a case of each kind
def _of_label(content: Content, view: RecordingView, label: StepEvent, until: int | None = None) -> Case:
    """A step that was missed, or recognised only in frame `until`."""
    said = tuple((method, _said_about_label(view, method, label)) for method in content.methods)
    n_missed = sum(label in scores.unmatched_labels for scores in view.scores.values())
    left = view.seconds - view.time(label.frame)  # a step at the very end had no time to be seen
    badness = (n_missed, left) if until is None else (view.time(until - label.frame),)
    kind: CaseKind = "missed" if until is None else "late"
    return Case(kind, view, label.step_id, label.frame, said, _view_after(view, label), badness, until)


def _false(content: Content, view: RecordingView, event: StepEvent) -> Case:
    said = tuple((method, _said_about_alarm(view, method, event)) for method in content.methods)
    distance = min((abs(view.time(lab.frame - event.frame)) for lab in _labels_of(view, event.step_id)), default=1e6)
    why = (_why_false(content, view, event), *_view_before(view, event))
    return Case("false", view, event.step_id, event.frame, said, why, (distance, event.confidence or 0.0))


def _said_about_alarm(view: RecordingView, method: Method, event: StepEvent) -> str:
    if method.name not in view.scores:
        return "was not run on this recording"
    alarms = [e for e in view.scores[method.name].unmatched_events if e.step_id == event.step_id]
    nearest = min(alarms, key=lambda e: abs(e.frame - event.frame), default=None)
    if nearest is None:
        return "did not report it"
    sure = "" if nearest.confidence is None else f", evidence {nearest.confidence:.1f}"
    return f"reported it at {clock(view.time(nearest.frame))} (frame {nearest.frame}{sure})"


def _said_about_label(view: RecordingView, method: Method, label: StepEvent) -> str:
    if method.name not in view.scores:
        return "was not run on this recording"
    match = view.match(method, label.step_id, label.frame)
    if match is not None:
        return f"recognised it after {seconds(view.time(match.delay_frames))} (frame {match.event_frame})"
    alarms = view.scores[method.name].unmatched_events
    early = [e.frame for e in alarms if e.step_id == label.step_id and e.frame < label.frame]
    if early:
        return f"reported it {seconds(view.time(label.frame - early[-1]))} too early (frame {early[-1]})"
    return "never reported it"


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
        return f"The step was completed {seconds(view.time(later[0].frame - event.frame))} later."
    if labels:
        return f"The step had been completed at {clock(view.time(labels[-1].frame))} and was reported again."
    return "This step never happened in this recording."


def _view_after(view: RecordingView, label: StepEvent) -> tuple[str, ...]:
    """When the state could next be read, which is as soon as a detector could have known."""
    if view.run.readable is None:
        return ()
    begin = next((first for first, last in sorted(view.run.readable) if last >= label.frame), None)
    if begin is None:
        return ("The assembly was not seen clearly again.",)
    wait = view.time(max(begin - label.frame, 0))
    return ("The assembly was in clear view.",) if wait == 0 else (f"The next clear view came {seconds(wait)} later.",)


def _view_before(view: RecordingView, event: StepEvent) -> tuple[str, ...]:
    if view.run.readable is None:
        return ()
    before = [last for first, last in sorted(view.run.readable) if first <= event.frame]
    if not before:
        return ("The assembly had not been seen clearly yet.",)
    since = view.time(max(event.frame - before[-1], 0))
    return () if since <= _VIEW_SECONDS else (f"The last clear view was {seconds(since)} before.",)
