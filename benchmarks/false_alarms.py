"""What becomes of labels and events: which are found, and what false alarms are made of.

    python benchmarks/false_alarms.py runs/vehicle-0/test runs/vehicle-1/test runs/vehicle-2/test

RUN folders are what `stormpsr evaluate --out` writes, of recordings with `PSR_labels_with_errors.csv`. An event
is looked at by what the part was like in its frame: as the step leaves it (right), not yet there, there but wrong, or
still in place when a removal is reported. Counts are means over runs. The last table says what POS and F1 would be if
events on wrong parts, or on parts that are not there yet, came when the step is really completed (or not at all, if it
never is): the most that knowing better could bring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from script import errors_in_one_line, make_parser, print_table
from stormpsr.data.events import StepEvent
from stormpsr.decoding.methods import title_of
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.run_folder import RecordingRun, Run, read_run
from stormpsr.procedure.model import StepKind

AFTER = {StepKind.INSTALL: 1, StepKind.INCORRECT: -1, StepKind.REMOVE: 0}
EVENTS = ("right", "not yet there", "there but wrong", "still in place")
LABELS = ("found", "reported too early", "never reported")


def state_at(run: Run, recording: RecordingRun, component: int, frame: int) -> int:
    """1 correct, 0 absent, -1 wrong: after the last thing that happened to the component."""
    state = run.procedure.variant(recording.variant).initial[component]
    for label in sorted(recording.labels_with_errors or recording.labels, key=lambda label: label.frame):
        step = run.procedure.steps[label.step_id]
        if label.frame <= frame and step.component_index == component:
            state = AFTER[step.kind]
    return int(state)


def kind_of(run: Run, recording: RecordingRun, event: StepEvent) -> str:
    step = run.procedure.steps[event.step_id]
    state = state_at(run, recording, step.component_index, event.frame)
    if state == AFTER[step.kind]:
        return "right"
    if not step.installs:
        return "still in place"
    return "there but wrong" if state == -1 else "not yet there"


def fate_of(label: StepEvent, events: tuple[StepEvent, ...]) -> str:
    frames = [event.frame for event in events if event.step_id == label.step_id]
    if any(frame >= label.frame for frame in frames):
        return "found"
    return "reported too early" if frames else "never reported"


def put_right(run: Run, recording: RecordingRun, events: tuple[StepEvent, ...], wanted: str) -> list[StepEvent]:
    """The events, those of one kind moved to the next label of their step that no other event has."""
    kinds = [kind_of(run, recording, event) for event in events]
    kept = [event for event, kind in zip(events, kinds, strict=True) if kind != wanted]
    for event in (event for event, kind in zip(events, kinds, strict=True) if kind == wanted):
        later = [x.frame for x in recording.labels if x.step_id == event.step_id and x.frame > event.frame]
        taken = any(other.step_id == event.step_id and other.frame >= min(later, default=0) for other in kept)
        if later and not taken:
            kept.append(replace(event, frame=min(later)))
    return sorted(kept, key=lambda event: event.frame)


def print_methods(title: str, head: tuple[str, ...], rows: dict[str, list[str]]) -> None:
    print()
    print_table((title, *head), ((title_of(method), *cells) for method, cells in rows.items()))


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    folders = parser.parse_args(words).runs
    with errors_in_one_line():
        runs = [read_run(folder) for folder in folders]
    methods = [method.name for method in runs[0].info.methods]
    events_of: dict[str, Counter[str]] = {method: Counter() for method in methods}
    labels_of: dict[str, Counter[str]] = {method: Counter() for method in methods}
    scores_of: dict[str, list[tuple[float, ...]]] = {method: [] for method in methods}
    for run in runs:
        for recording in run.recordings():
            for method in methods:
                events = recording.events[method]
                kinds = [kind_of(run, recording, event) for event in events]
                events_of[method].update(kinds)
                labels_of[method].update(fate_of(label, events) for label in recording.labels)
                better = [put_right(run, recording, events, wanted) for wanted in ("there but wrong", "not yet there")]
                found = [score(recording.labels, own, fps=recording.fps) for own in (list(events), *better)]
                scores_of[method].append(tuple(value for one in found for value in (one.pos, one.f1)))
    n = len(runs)
    print_methods(
        "events: the part is", EVENTS, {m: [f"{events_of[m][kind] / n:.0f}" for kind in EVENTS] for m in methods}
    )
    print_methods("labels are", LABELS, {m: [f"{labels_of[m][kind] / n:.0f}" for kind in LABELS] for m in methods})
    head = ("POS", "F1", "wrong parts put right: POS", "F1", "parts not there put right: POS", "F1")
    print_methods("scores", head, {m: [f"{x:.3f}" for x in np.mean(scores_of[m], axis=0)] for m in methods})


if __name__ == "__main__":
    main()
