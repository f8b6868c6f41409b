"""What the synthetic world allows: an observer who is never wrong, but who has to see the part.

    python benchmarks/visible_oracle.py data/vehicle --split test

Every completed step is reported as soon as its part (its empty place, for a removal) has shown by a share of its pixels
for so many seconds in all since it was completed. Who needs to see all of the assembly at once comes last; nothing that
reads the state from clear views can be sooner. Steps that never show as much are missed. Protocol paper.

Shape legend: F frames, C components.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from script import errors_in_one_line, make_parser, print_table
from stormpsr.data.dataset import Dataset
from stormpsr.data.events import StepEvent
from stormpsr.data.recording import Recording
from stormpsr.data.visibility import VISIBILITY_FILE, Visibility, read_visibility
from stormpsr.errors import InputError
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.summary import RecordingResult, contains_errors, summarise
from stormpsr.evaluation.wording import number
from stormpsr.procedure.model import Procedure

RULES = [
    *((share, seconds) for share in (0.25, 0.5, 0.75) for seconds in (0.0, 1.0, 2.0, 4.0)),
    *((None, seconds) for seconds in (0.0, 1.0, 2.0)),
]


def shown_FC(visibility: Visibility, removal: bool) -> NDArray[np.float32]:
    """How much of each component shows, or of its empty place."""
    mounted_FC = np.nan_to_num(visibility.visible_FC) * np.nan_to_num(visibility.inside_FC)
    return visibility.place_FC if removal else mounted_FC


def reported(
    recording: Recording, procedure: Procedure, visibility: Visibility, share: float | None, seconds: float
) -> list[StepEvent]:
    """The steps, when they have shown long enough; without a share, when the whole state can be read."""
    readable_F = visibility.readable_F()
    labels = recording.steps or ()
    events = []
    for label in labels:
        step = procedure.step(label.step_id)
        k = step.component_index
        later = [x.frame for x in labels if x.frame > label.frame and procedure.step(x.step_id).component_index == k]
        end = min(later, default=recording.n_frames)
        shows_F = readable_F if share is None else shown_FC(visibility, not step.installs)[:, k] >= share
        frames = label.frame + np.flatnonzero(shows_F[label.frame : end])
        needed = max(round(seconds * recording.fps) - 1, 0)
        if len(frames) > needed:
            events.append(StepEvent(label.step_id, int(frames[needed])))
    return sorted(events, key=lambda event: event.frame)


def read(data: Path, split: str) -> tuple[Procedure, list[tuple[Recording, Visibility, bool]]]:
    """The recordings, what shows in them, and whether something was done wrongly."""
    dataset = Dataset.open(data, split)
    found = []
    for recording in dataset.labelled:
        path = recording.path / VISIBILITY_FILE
        if not path.is_file():
            raise InputError("nobody has measured what can be seen here", path=path, cure="give a generated data set")
        visibility = read_visibility(path, dataset.procedure.n_components)
        variant = dataset.procedure.variant_of_recording(recording.name)
        wrong = contains_errors(
            recording.steps or (),
            dataset.procedure,
            variant=None if variant is None else variant.name,
            timeline=recording.states,
        )
        found.append((recording, visibility, wrong))
    return dataset.procedure, found


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="test")
    options = parser.parse_args(words)
    with errors_in_one_line():
        procedure, recordings = read(options.data, options.split)
    print(f"{len(recordings)} recordings, {sum(wrong for *_, wrong in recordings)} of them with errors\n")
    groups = ("", "without errors: ", "with errors: ")
    columns = [f"{group}{name}" for group in groups for name in ("POS", "F1", "tau (s)")]
    print_table(["shows for", *columns], (row(procedure, recordings, *rule) for rule in RULES))


def row(
    procedure: Procedure, recordings: list[tuple[Recording, Visibility, bool]], share: float | None, seconds: float
) -> list[str]:
    results = []
    for recording, visibility, wrong in recordings:
        events = reported(recording, procedure, visibility, share, seconds)
        results.append(RecordingResult(recording.name, score(recording.steps or (), events, fps=recording.fps), wrong))
    summary = summarise(results)
    what = "all of the assembly" if share is None else f"{share:.0%} of the part"
    cells = []
    for group in (summary.all, summary.without_errors, summary.with_errors):
        values = (group.pos, group.f1, group.delay_seconds) if group else (None, None, None)
        cells += [number(value, digits) for value, digits in zip(values, (3, 3, 1), strict=True)]
    return [f"{seconds:.0f} s: {what}", *cells]


if __name__ == "__main__":
    main()
