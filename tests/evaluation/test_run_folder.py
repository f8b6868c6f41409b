"""What an evaluation leaves on disk is read back as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stormpsr.data.events import StepEvent
from stormpsr.errors import InputError
from stormpsr.evaluation.run_folder import (
    MethodInfo,
    RecordingRun,
    RunInfo,
    read_recording,
    read_run,
    write_recording,
    write_run,
)
from stormpsr.procedure.model import Procedure

INFO = RunInfo(
    title="a test",
    model="models/lamp",
    data="data",
    split="test",
    protocol="paper",
    methods=(MethodInfo("average", "STORM-PSR", {"threshold": 6.0}),),
    summary={"average": {"all": {"f1": 0.5}}},
)


def recording() -> RecordingRun:
    return RecordingRun(
        name="01_build",
        variant="build",
        fps=10.0,
        n_frames=6,
        has_errors=False,
        frames_path="test/01_build/rgb",
        labels=(StepEvent(0, 1), StepEvent(3, 4)),
        labels_with_errors=(StepEvent(0, 1), StepEvent(4, 2), StepEvent(3, 4)),
        events={"average": (StepEvent(0, 2, confidence=6.5),), "detection": ()},
        readable=((0, 1), (4, 5)),
        visible_share=(0.5, 1.0),
        visible_stride=3,
        detection_frame_M=np.array([0, 1]),
        detection_class_M=np.array([1, 2]),
        detection_confidence_M=np.array([0.5, 0.25], np.float16),
        change_frame_E=np.array([0, 4]),
        change_probability_EC=np.array([[0, 0.5, 1], [1, 0, 0]], np.float16),
        evidence={"average": np.ones((3, 9), np.float16), "detection": np.zeros((3, 9), np.float16)},
        evidence_stride=2,
    )


@pytest.fixture
def run(tmp_path: Path, lamp: Procedure) -> Path:
    write_recording(tmp_path / "run", recording())
    write_run(tmp_path / "run", INFO, lamp)
    return tmp_path / "run"


def test_what_was_written_is_read_back(run: Path, lamp: Procedure) -> None:
    opened = read_run(run)
    assert opened.info == INFO
    assert opened.procedure == lamp
    assert opened.names == ("01_build",)
    (found,), wanted = list(opened.recordings()), recording()
    plain = ("name", "variant", "fps", "n_frames", "has_errors", "readable", "visible_share", "visible_stride")
    assert [getattr(found, name) for name in plain] == [getattr(wanted, name) for name in plain]
    assert [(e.frame, e.step_id) for e in found.labels] == [(1, 0), (4, 3)]
    assert found.labels_with_errors is not None
    assert [e.step_id for e in found.labels_with_errors] == [0, 4, 3]
    assert found.events["average"][0] == StepEvent(0, 2, confidence=6.5, source="average")
    assert found.events["detection"] == ()
    for name in ("detection_frame_M", "detection_class_M", "detection_confidence_M", "change_frame_E"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    np.testing.assert_array_equal(found.change_probability_EC, wanted.change_probability_EC)
    assert set(found.evidence) == {"average", "detection"}
    assert found.evidence["average"].shape == (3, 9)
    assert found.evidence_stride == 2


def test_images_are_found_below_the_data_or_where_an_absolute_path_says(tmp_path: Path) -> None:
    assert recording().frames_in("data") == Path("data/test/01_build/rgb")


def test_a_run_that_was_interrupted_says_so(tmp_path: Path) -> None:
    write_recording(tmp_path / "run", recording())
    with pytest.raises(InputError, match=r"not finished.*evaluate' again"):
        read_run(tmp_path / "run")


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run folder"):
        read_run(tmp_path)


def test_recordings_of_an_earlier_evaluation_are_not_part_of_the_run(run: Path, lamp: Procedure) -> None:
    write_recording(run, replace(recording(), name="02_build"))
    assert read_run(run).names == ("01_build", "02_build")  # nothing is said of names: all there are
    write_run(run, replace(INFO, recordings=("02_build",)), lamp)
    opened = read_run(run)
    assert opened.names == ("02_build",)
    assert [one.name for one in opened.recordings()] == ["02_build"]


@pytest.mark.parametrize(
    "names", [["../01_build"], ["/etc/passwd"], ["a/b"], ["..\\a"], [".hidden"], [""], [7], 7, ["a", "a"], {"a": 1}]
)
def test_a_foreign_run_cannot_point_outside_its_folder(run: Path, names: object) -> None:
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**content, "recordings": names, "procedure": "../../elsewhere.yaml"}))
    with pytest.raises(InputError, match=r"run\.json: something in it is damaged"):
        read_run(run)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "other"}', '{"format": "stormpsr run 1"}'])
def test_a_damaged_run_file_is_named(run: Path, text: str) -> None:
    (run / "run.json").write_text(text)
    with pytest.raises(InputError, match=r"run\.json"):
        read_run(run)


@pytest.mark.parametrize(
    ("key", "value"),
    [("title", 5), ("data", None), ("methods", [{"name": "a", "title": "A"}]), ("methods", ["a"]), ("summary", [])],
)
def test_a_run_file_of_the_wrong_kind_is_named(run: Path, key: str, value: object) -> None:
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**content, key: value}))
    with pytest.raises(InputError, match=r"run\.json: something .*; evaluate again"):
        read_run(run)


@pytest.mark.parametrize("readable", [[[0, 10**400]], [[-1, 3]], [[0.5, 3]], [["0", 3]], [[0]], 7])
def test_stretches_that_no_recording_has_are_named(run: Path, readable: object) -> None:
    path = run / "recordings" / "01_build.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "readable": readable}))
    with pytest.raises(InputError, match=r"01_build\.json: something in it is damaged"):
        read_recording(run, "01_build")


def test_damaged_arrays_are_named(run: Path) -> None:
    (run / "recordings" / "01_build.npz").write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(InputError, match=r"01_build\.npz: the arrays cannot be read"):
        read_recording(run, "01_build")


def test_nothing_half_written_is_left_behind(run: Path) -> None:
    assert sorted(path.name for path in run.rglob("*") if path.is_file()) == [
        "01_build.json",
        "01_build.npz",
        "procedure.yaml",
        "run.json",
    ]
