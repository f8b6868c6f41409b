"""The filter's built-in parameters on the detections that the authors of IndustReal published."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from stormpsr import Procedure, decode, score
from stormpsr.data.detection_csv import read_detections
from stormpsr.data.events import StepEvent, completions
from stormpsr.data.labels import read_steps

Means = tuple[float, float, float]


@pytest.fixture(scope="module")
def recordings(shared: Path) -> list[Path]:
    folder = shared / "data" / "industreal_test"
    if not folder.is_dir():
        pytest.skip(f"there are no published detections at {folder}")
    return sorted(path for path in folder.iterdir() if path.is_dir())


def means(recordings: list[Path], method: str, **settings: float) -> Means:
    """POS, F1 and tau."""
    procedure, found = Procedure.load("industreal"), []
    for path in recordings:
        detections = read_detections(path / "detections.csv", procedure)
        n_frames, variant = int((path / "n_frames.txt").read_text()), path.name.split("_")[1]
        events = decode(detections, procedure, variant, method, n_frames=n_frames, **settings)
        found.append(score(read_steps(path / "PSR_labels.csv", procedure), completions(events), fps=procedure.fps))
    delays = [own.delay_seconds for own in found if own.delay_seconds is not None]
    return fmean(own.pos for own in found), fmean(own.f1 for own in found), fmean(delays)


@pytest.mark.parametrize("threshold", [6, 7, 8])
def test_the_filter_is_no_worse_than_the_best_baseline(recordings: list[Path], threshold: float) -> None:
    pos, f1, tau = means(recordings, "filter")
    baseline_pos, baseline_f1, baseline_tau = means(recordings, "expected", threshold=threshold)
    assert pos >= baseline_pos
    assert f1 >= baseline_f1
    assert tau <= baseline_tau


def test_correct_executions_keep_the_order(recordings: list[Path]) -> None:
    """Not where something is wrong (class 23): such recordings have steps that nobody labelled."""
    procedure = Procedure.load("industreal")
    for path in recordings:
        if any(box.state_class == 23 for box in read_detections(path / "boxes.csv", procedure)):
            continue
        present = {k for k, bit in enumerate(procedure.variant(path.name.split("_")[1]).initial) if bit}
        by_frame: dict[int, list[StepEvent]] = {}
        for label in read_steps(path / "PSR_labels.csv", procedure):
            by_frame.setdefault(label.frame, []).append(label)
        for frame in sorted(by_frame):
            steps = [procedure.step(label.step_id) for label in by_frame[frame]]
            present -= {step.component_index for step in steps if not step.installs}
            present |= {step.component_index for step in steps if step.installs}
            assert all(procedure.needs.met(k, present) for k in present), (path.name, frame)
