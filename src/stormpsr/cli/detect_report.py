"""What `stormpsr detect` shows: progress bars and tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from stormpsr.cli.output import number, print_table

if TYPE_CHECKING:
    from rich.progress import Progress

    from stormpsr.detection.evaluating import Evaluation
    from stormpsr.detection.steps import ClearViewBound, TunedBaseline
    from stormpsr.detection.training_settings import TrainingProgress
    from stormpsr.evaluation.baselines import DetectedRecording
    from stormpsr.procedure import Procedure

__all__ = ["Bar", "print_evaluation", "print_steps", "step_rows"]

_LINES_EVERY = 200  # steps between lines where no bar can be shown


class Bar:
    """A progress bar on the error stream for people; a line now and then where that is a file."""

    def __init__(self, name: str, enabled: bool) -> None:
        self._name, self._enabled = name, enabled
        self._progress: Progress | None = None

    def __enter__(self) -> Bar:
        if self._enabled and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._progress = Progress(*columns, console=Console(stderr=True))
            self._task = self._progress.add_task(self._name, total=None)
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()

    def count(self, done: int, of: int) -> None:
        if self._progress:
            self._progress.update(self._task, completed=done, total=of)

    def recording(self, name: str, done: int, of: int) -> None:
        if self._progress:
            self._progress.update(self._task, description=name, completed=done, total=of)

    def training(self, progress: TrainingProgress) -> None:
        self.count(progress.step, progress.steps)
        loss = sum(progress.losses.values())
        right = "" if progress.share_right is None else f", {progress.share_right:.1%} of validation frames right"
        if self._progress:
            self._progress.update(self._task, description=f"loss {loss:.2f}")
            if right:
                self._progress.console.print(f"step {progress.step}: loss {loss:.2f}{right}")
        elif self._enabled and (right or progress.step % _LINES_EVERY == 0):
            parts = ", ".join(f"{name} {value:.2f}" for name, value in progress.losses.items())
            typer.echo(f"step {progress.step}: loss {loss:.2f} ({parts}){right}", err=True)


def print_evaluation(title: str, evaluation: Evaluation, milliseconds: float) -> None:
    scores, wrong = evaluation.scores, evaluation.scores.wrong_parts
    rows = [
        ["mAP@50, readable frames", number(scores.map50)],
        ["mAP@50:95, readable frames", number(scores.map50_95)],
        ["mAP@50, all frames", number(scores.map50_all)],
        ["state right, readable frames", number(scores.state_accuracy)],
        [f"found with confidence {scores.min_confidence:g}, readable frames", number(scores.found)],
        [f"detections with confidence {scores.min_confidence:g}, other frames", number(scores.false_detections)],
        ["expected calibration error, all frames", number(scores.expected_calibration_error)],
        [f"wrong parts reported, of {wrong.n_wrong} frames", number(wrong.recall)],
        ["wrong parts read as correct, frames", str(wrong.n_wrong_read_as_correct)],
        [f"false alarms, of {wrong.n_correct} correct frames", number(wrong.false_alarm_rate)],
        ["milliseconds per frame, one at a time", number(milliseconds, 1)],
    ]
    print_table(
        f"{title}: {scores.n_readable} readable frames, {scores.n_unreadable} others", ["", ""], rows, right=(1,)
    )
    silence = evaluation.silence
    if silence is not None:
        typer.echo(
            f"obstructed frames: {silence.n_obstructed}, a confident detection in {number(silence.fired_obstructed)}, "
            f"of another state in {number(silence.fired_obstructed_wrong)}; clear frames in states without a class: "
            f"{silence.n_unlisted}, a confident detection in {number(silence.fired_unlisted)}"
        )
    if evaluation.by_visibility:
        table = [
            [f"{row.low:.2f} to {row.high:.2f}", str(row.n_frames), *map(number, _shares(row))]
            for row in evaluation.by_visibility
        ]
        columns = ["share visible", "frames", "reported", "right of reported", "best guess right"]
        print_table("By how much of the parts shows", columns, table, right=(1, 2, 3, 4))


def _shares(row: Any) -> list[float | None]:
    return [row.reported, row.right_of_reported, row.right]


def step_rows(
    tuned: Sequence[TunedBaseline], recordings: Sequence[DetectedRecording], procedure: Procedure
) -> list[dict[str, Any]]:
    rows = []
    for baseline in tuned:
        group = baseline.score(recordings, procedure).all
        figures = {"pos": group.pos, "f1": group.f1, "delay_seconds": group.delay_seconds}
        about = {"decoder": f"{baseline.name} ({baseline.method})", "setting": baseline.setting}
        rows.append({**about, "val_f1": baseline.tuning_f1, **figures})
    return rows


def print_steps(rows: Sequence[dict[str, Any]], bound: ClearViewBound | None, n_recordings: int) -> None:
    table = [
        [
            row["decoder"],
            f"{row['setting']:g}",
            number(row["val_f1"]),
            number(row["pos"]),
            number(row["f1"]),
            number(row["delay_seconds"], 1),
        ]
        for row in rows
    ]
    columns = ["decoder", "threshold", "F1 on val", "POS", "F1", "tau (s)"]
    print_table(f"Detection only, {n_recordings} test recordings", columns, table, right=(1, 2, 3, 4, 5))
    if bound is not None:
        typer.echo(
            f"wait from a completion to the next clear view: mean {number(bound.mean_wait_seconds, 1)} s over "
            f"{bound.n_followed} of {bound.n_labels} completions; no detector of whole states can be faster"
        )
