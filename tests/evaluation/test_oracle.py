"""A perfect detector: boxes as detections, and the published figures of MECCANO."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stormpsr.data.boxes import Box
from stormpsr.data.events import StateDetection
from stormpsr.data.labels import Note
from stormpsr.data.layouts import RecordingFolder, find_recordings
from stormpsr.data.visibility import wait_for_clear_view
from stormpsr.errors import InputError
from stormpsr.evaluation import baselines
from stormpsr.evaluation.baselines import (
    OracleRecording,
    decode_recordings,
    read_oracle_recording,
    score_baseline,
    score_decoded,
)
from stormpsr.procedure.model import Procedure


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def recording(tmp_path: Path) -> RecordingFolder:
    """Foot on at frame 10, pole on at frame 20, foot off at frame 30 (a state without class)."""
    folder = tmp_path / "psr" / "test" / "7_build"
    write(folder / "PSR_labels.csv", "10.jpg,0,\n20.jpg,3,\n30.jpg,2,\n")
    write(folder / "PSR_labels_raw.csv", "0.jpg,0,0,0\n10.jpg,1,0,0\n20.jpg,1,1,0\n30.jpg,0,1,0\n")
    return RecordingFolder("7_build", "test", folder)


# ---------------------------------------------------------------------- reading
def test_a_box_becomes_a_detection_of_the_labelled_state(recording: RecordingFolder, lamp: Procedure) -> None:
    boxes = recording.path.parents[2] / "boxes"
    rows = [f"{frame},1,0,0.5,0.5,0.2,0.1\n" for frame in (5, 12, 25, 35)]
    write(boxes / "test" / "7_build_GT.csv", "".join(rows))
    found = read_oracle_recording(recording, boxes, lamp, confidence=0.8)
    assert found is not None
    box = Box.from_centre(0.5, 0.5, 0.2, 0.1).to_xywh()
    assert found.detections == tuple(StateDetection(f, c, 0.8, box) for f, c in ((5, 1), (12, 2), (25, 3)))
    assert (found.n_boxes, found.n_boxes_without_class) == (4, 1)
    assert (found.name, found.variant) == ("7_build", "build")
    assert [label.frame for label in found.labels] == [10, 20, 30]


def test_without_a_folder_of_boxes_the_coco_file_of_the_recording_is_read(
    recording: RecordingFolder, lamp: Procedure
) -> None:
    images = [{"id": 1, "file_name": "000012.jpg"}]
    annotations = [{"image_id": 1, "category_id": 4, "bbox": [0, 0, 5, 5]}]
    write(recording.path / "OD_labels.json", json.dumps({"images": images, "annotations": annotations}))
    found = read_oracle_recording(recording, None, lamp)
    assert found is not None
    assert [(d.frame, d.state_class) for d in found.detections] == [(12, 4)]


def test_a_recording_without_boxes_is_none(recording: RecordingFolder, lamp: Procedure, tmp_path: Path) -> None:
    assert read_oracle_recording(recording, None, lamp) is None
    write(tmp_path / "boxes" / "77_build_GT.csv", "")
    assert read_oracle_recording(recording, tmp_path / "boxes", lamp) is None


def test_boxes_of_the_recordings_own_split_win(recording: RecordingFolder, lamp: Procedure, tmp_path: Path) -> None:
    write(tmp_path / "boxes" / "test" / "7_build_GT.csv", "5,1,0,0.5,0.5,1,1\n")
    write(tmp_path / "boxes" / "train" / "7_build_GT.csv", "")
    found = read_oracle_recording(recording, tmp_path / "boxes", lamp)
    assert found is not None
    assert found.n_boxes == 1


def test_boxes_that_are_there_twice_are_refused(recording: RecordingFolder, lamp: Procedure, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write(tmp_path / "boxes" / folder / "7_build_GT.csv", "")
    with pytest.raises(InputError, match=r"several files for recording '7_build': a.7_build_GT\.csv, b."):
        read_oracle_recording(recording, tmp_path / "boxes", lamp)


def test_a_missing_folder_of_boxes_is_refused(recording: RecordingFolder, lamp: Procedure, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere: there is no such folder; give the folder that holds NAME_GT\.csv"):
        read_oracle_recording(recording, tmp_path / "nowhere", lamp)


@pytest.mark.parametrize("file", ["PSR_labels.csv", "PSR_labels_raw.csv"])
def test_boxes_without_labels_are_refused(
    recording: RecordingFolder, lamp: Procedure, tmp_path: Path, file: str
) -> None:
    write(tmp_path / "boxes" / "7_build_GT.csv", "")
    (recording.path / file).unlink()
    with pytest.raises(InputError, match=f"recording '7_build' has no {file}; it has to have both"):
        read_oracle_recording(recording, tmp_path / "boxes", lamp)


def test_odd_rows_of_boxes_are_noted(recording: RecordingFolder, lamp: Procedure, tmp_path: Path) -> None:
    notes: list[Note] = []
    write(tmp_path / "boxes" / "7_build_GT.csv", "\ufeff5,1,0,0.5,0.5,1,1\n")
    read_oracle_recording(recording, tmp_path / "boxes", lamp, on_note=notes.append)
    assert ["byte-order mark" in note.text for note in notes] == [True]


# ---------------------------------------------------------------------- waiting for a view
def test_the_wait_ends_with_the_next_view_at_or_after_a_completion() -> None:
    completed = (0, 10, 11, 50, 51)
    assert wait_for_clear_view(completed, [50, 10, 20]) == [10, 0, 9, 0, None]
    assert wait_for_clear_view(completed, []) == [None] * 5


class CountedFrame(int):
    """A frame that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        CountedFrame.compared += 1
        return int(self) < int(other)


def test_the_wait_is_looked_up_not_searched_for() -> None:
    views = [CountedFrame(frame) for frame in range(4096)]
    CountedFrame.compared = 0
    wait_for_clear_view([4000] * 100, views)
    assert CountedFrame.compared < 2 * 4096 + 100 * 14  # sorting what is sorted, then a bisection per completion


# ---------------------------------------------------------------------- decoding once
def test_one_decoding_serves_every_protocol(
    recording: RecordingFolder, lamp: Procedure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "boxes" / "7_build_GT.csv", "5,1,0,0.5,0.5,1,1\n12,1,0,0.5,0.5,1,1\n")
    found = read_oracle_recording(recording, tmp_path / "boxes", lamp)
    assert found is not None
    events = decode_recordings([found], lamp, "naive")
    assert [(event.step_id, event.frame) for event in events[0]] == [(0, 12)]
    whole = score_baseline([found], lamp, "naive", protocol="storm")
    monkeypatch.setattr(baselines, "decode", None)  # scoring must not decode again
    assert score_decoded([found], events, lamp, protocol="storm") == whole
    assert score_decoded([found], events, lamp, protocol="paper").all.delay_seconds == pytest.approx(0.2)


# ---------------------------------------------------------------------- MECCANO, as published
@pytest.fixture(scope="module")
def meccano_test_split(meccano_psr: Path, meccano: Procedure) -> list[OracleRecording]:
    boxes = meccano_psr.with_name("meccano_asd")
    if not boxes.is_dir():
        pytest.skip(f"there are no MECCANO boxes at {boxes}")
    found = [read_oracle_recording(folder, boxes, meccano) for folder in find_recordings(meccano_psr, "test")]
    assert None not in found
    return [recording for recording in found if recording is not None]


@pytest.mark.parametrize(
    ("method", "threshold", "pos", "f1", "delay_frames"),
    [("naive", 0.0, 0.513, 0.691, 1216), ("expected", 4.0, 0.608, 0.837, 841)],
)
def test_a_perfect_detector_on_meccano_scores_what_the_published_program_says(
    meccano_test_split: list[OracleRecording],
    meccano: Procedure,
    method: str,
    threshold: float,
    pos: float,
    f1: float,
    delay_frames: int,
) -> None:
    group = score_baseline(meccano_test_split, meccano, method, threshold=threshold, protocol="industreal").all
    assert group.n_recordings == 7
    assert group.delay_seconds is not None
    figures = (round(group.pos, 3), round(group.f1, 3), round(group.delay_seconds * meccano.fps))
    assert figures == (pos, f1, delay_frames)


def test_a_perfect_detector_on_meccano_waits_as_long_as_the_other_published_program_says(
    meccano_test_split: list[OracleRecording], meccano: Procedure
) -> None:
    group = score_baseline(meccano_test_split, meccano, "expected", threshold=1.0, protocol="storm").all
    assert group.delay_seconds is not None
    assert round(group.delay_seconds * meccano.fps) == 699


def test_recording_0005_of_meccano_has_labels_and_no_boxes(meccano_psr: Path, meccano: Procedure) -> None:
    boxes = meccano_psr.with_name("meccano_asd")
    if not boxes.is_dir():
        pytest.skip(f"there are no MECCANO boxes at {boxes}")
    assert read_oracle_recording(RecordingFolder("0005", "train", meccano_psr / "train/0005"), boxes, meccano) is None
