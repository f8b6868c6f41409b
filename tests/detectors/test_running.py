"""Detections of whole recordings, and what the decoders make of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from stormpsr.data.boxes import Box
from stormpsr.data.dataset import Dataset
from stormpsr.data.detection_csv import read_detections
from stormpsr.data.images import Image
from stormpsr.data.layouts import find_recordings
from stormpsr.detectors.base import Detection, StateDetector, sorted_best
from stormpsr.detectors.predict import detect_recordings
from stormpsr.errors import InputError
from stormpsr.evaluation.baselines import METHODS, clear_view_bound, read_detected, tune_baseline
from stormpsr.procedure.model import Procedure


class ColourDetector(StateDetector):
    """Knows the lamp by its colours, and never fails; needs no training."""

    kind = "colours"

    def __init__(self, procedure: Procedure) -> None:
        self.procedure = procedure
        self.n_images = 0

    def detect(self, images: Sequence[Image], *, min_confidence: float = 0.1) -> list[list[Detection]]:
        self.n_images += len(images)
        return [sorted_best(self._look(image), min_confidence) for image in images]

    def _look(self, image: Image) -> list[Detection]:
        pixels = image.astype(int)
        if (abs(pixels - (220, 170, 140)).max(axis=2) < 5).sum() > 100:
            return []
        colours = [(200, 40, 40), (40, 180, 60), (50, 70, 210), (250, 250, 250)]
        there = [bool((abs(pixels - colour).max(axis=2) < 5).sum() > 50) for colour in colours]
        foot, pole, shade, white = there
        state_class = self.procedure.state_class((int(foot), int(pole), -1 if white else int(shade)))
        return [Detection(Box(0, 0, 10, 10), state_class, 0.9)] if state_class is not None else []

    def save(self, folder: str | Path) -> None:
        raise NotImplementedError


def test_every_frame_is_looked_at_once_and_written_with_the_published_columns(
    lamp_data: Path, lamp: Procedure, tmp_path: Path
) -> None:
    detector = ColourDetector(lamp)
    recordings = Dataset.open(lamp_data, "test", lamp)
    result = detect_recordings(detector, recordings, tmp_path / "out", digest="a", min_confidence=0.1)
    assert result.made == ("01_build_test",)
    path = tmp_path / "out" / "01_build_test.csv"
    assert path.read_text().splitlines()[0] == "recording,frame,class,confidence,x,y,w,h"
    found = read_detections(path, lamp)
    assert [(d.frame, d.state_class) for d in found] == [
        (k, k // 4 + 1 if k < 12 else {3: 5, 4: 4}[k // 4]) for k in range(20) if k % 4 != 3
    ]
    again = detect_recordings(detector, recordings, tmp_path / "out", digest="a", min_confidence=0.1)
    assert again.skipped == ("01_build_test",)
    assert detector.n_images == 20


def test_only_every_so_many_frames_are_looked_at_on_request(lamp_data: Path, lamp: Procedure, tmp_path: Path) -> None:
    detector = ColourDetector(lamp)
    recordings = Dataset.open(lamp_data, "test", lamp)
    detect_recordings(detector, recordings, tmp_path / "out", digest="a", min_confidence=0.1, every=3)
    assert detector.n_images == 7
    found = read_detections(tmp_path / "out" / "01_build_test.csv", lamp)
    assert [d.frame for d in found] == [0, 6, 9, 12, 18]  # frames 3 and 15 are hidden
    with pytest.raises(InputError, match="made otherwise"):
        detect_recordings(detector, recordings, tmp_path / "out", digest="a", min_confidence=0.1)
    with pytest.raises(InputError, match="every is 0"):
        detect_recordings(detector, recordings, tmp_path / "new", digest="a", min_confidence=0.1, every=0)


def test_detections_of_another_detector_are_not_mixed_with_these(
    lamp_data: Path, lamp: Procedure, tmp_path: Path
) -> None:
    recordings = Dataset.open(lamp_data, "test", lamp)
    detect_recordings(ColourDetector(lamp), recordings, tmp_path / "out", digest="a", min_confidence=0.1)
    with pytest.raises(InputError, match="made otherwise"):
        detect_recordings(ColourDetector(lamp), recordings, tmp_path / "out", digest="b", min_confidence=0.1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "table.csv").touch()
    with pytest.raises(InputError, match="other CSV files"):
        detect_recordings(ColourDetector(lamp), recordings, tmp_path / "full", digest="a", min_confidence=0.1)


def test_an_interrupted_run_leaves_no_half_file(lamp_data: Path, lamp: Procedure, tmp_path: Path) -> None:
    def stop(name: str, done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        detect_recordings(
            ColourDetector(lamp),
            Dataset.open(lamp_data, "test", lamp),
            tmp_path / "out",
            digest="a",
            min_confidence=0.1,
            on_progress=stop,
        )
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["detector.json"]


def test_a_detector_for_another_procedure_is_refused(lamp: Procedure, industreal: Procedure) -> None:
    detector = ColourDetector(lamp)
    detector.check_procedure(lamp)
    with pytest.raises(InputError, match=r"trained for procedure 'lamp'.*'industreal'") as caught:
        detector.check_procedure(industreal, "folder")
    assert caught.value.path == "folder"


def test_a_perfect_detector_is_tuned_and_scored(lamp_data: Path, lamp: Procedure, tmp_path: Path) -> None:
    for split in ("val", "test"):
        recordings = Dataset.open(lamp_data, split, lamp)
        detect_recordings(ColourDetector(lamp), recordings, tmp_path / split, digest="a", min_confidence=0.1)
    tuning = read_detected(find_recordings(lamp_data, "val"), tmp_path / "val", lamp)
    scoring = read_detected(find_recordings(lamp_data, "test"), tmp_path / "test", lamp)
    naive, _, expected = (tune_baseline(name, method, tuning, lamp) for name, method in METHODS)
    assert naive.tuning_f1 == 1.0
    assert naive.score(scoring, lamp).all.f1 == 1.0
    assert naive.score(scoring, lamp).all.delay_seconds == 0.0
    assert expected.setting <= 1.0  # three views of 0.9 each reach nothing more


def test_the_wait_for_a_clear_view_bounds_the_delay(lamp_data: Path, lamp: Procedure) -> None:
    bound = clear_view_bound(find_recordings(lamp_data, "test"), lamp)
    assert bound is not None
    assert (bound.n_labels, bound.n_followed, bound.mean_wait_seconds) == (3, 3, 0.0)


def test_missing_detections_are_named(lamp_data: Path, lamp: Procedure, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no detections of recording '01_build_test'"):
        read_detected(find_recordings(lamp_data, "test"), tmp_path, lamp)
