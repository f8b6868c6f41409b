"""What the page is about, and what is wrong with a run that it cannot be about."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stormpsr.data.events import StepEvent
from stormpsr.errors import InputError
from stormpsr.evaluation.report.content import LOOKS, collect
from stormpsr.evaluation.run_folder import RecordingRun, read_run, write_run
from stormpsr.procedure.model import Procedure

MakeRun = Callable[..., Path]


def test_the_fusion_is_the_main_method_and_detection_its_baseline(make_run: MakeRun) -> None:
    content = collect(read_run(make_run(1)))
    assert content.main is not None
    assert content.baseline is not None
    assert (content.main.name, content.baseline.name) == ("average", "detection")


def test_the_method_that_the_model_decides_by_is_the_main_one(make_run: MakeRun) -> None:
    run = make_run(1)
    opened = read_run(run)
    write_run(run, replace(opened.info, default_method="temporal"), opened.procedure)
    content = collect(read_run(run))
    assert content.main is not None
    assert content.main.name == "temporal"


@pytest.mark.parametrize(
    ("methods", "main", "baseline"),
    [(["temporal"], "temporal", None), (["detection", "temporal"], "temporal", "detection"), ([], None, None)],
)
def test_without_a_fusion_the_last_method_is_the_main_one(
    make_run: MakeRun, methods: list[str], main: str | None, baseline: str | None
) -> None:
    content = collect(read_run(make_run(1, methods=methods)))
    assert (content.main and content.main.name) == main
    assert (content.baseline and content.baseline.name) == baseline


def test_methods_nobody_foresaw_get_looks_of_their_own(make_run: MakeRun) -> None:
    content = collect(read_run(make_run(1, methods=["detection", "mine", "yours", "average"])))
    looks = [method.look for method in content.methods]
    assert len(set(looks)) == 4
    assert (looks[0], looks[3]) == ("square", "circle")
    assert set(looks) <= set(LOOKS)


def test_a_run_cannot_have_code_imported(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sly.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    run = make_run(1)
    (run / "run.json").write_text(
        (run / "run.json").read_text().replace('"name": "detection"', '"name": "sly:Decoder"')
    )
    assert collect(read_run(run)).methods[0].name == "sly:Decoder"


def test_delays_are_those_of_the_papers_matching(make_run: MakeRun) -> None:
    def change(recording: RecordingRun) -> RecordingRun:
        labels = (StepEvent(0, 10), StepEvent(3, 50))
        return replace(recording, labels=labels, events={"average": (StepEvent(0, 35), StepEvent(3, 49))})

    content = collect(read_run(make_run(1, change=change, methods=["average"])))
    assert content.main is not None
    assert [(delay.step_id, delay.seconds) for delay in content.delays(content.main)] == [(0, 2.5)]
    (view,) = content.recordings
    assert [event.frame for event in view.scores["average"].unmatched_events] == [49]


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("events", {"average": [[1, 99, None]]}, "step id 99 does not exist in procedure 'bench'; its 8 components"),
        ("labels", [[1, 99]], "step id 99 does not exist"),
        ("labels_with_errors", [[1, 99]], "step id 99 does not exist"),
        ("labels", [[-1, 0]], "frame is -1, but it cannot be negative; evaluate again"),
        ("labels", [[1]], "something in it is damaged"),
        ("labels", None, "something in it is damaged"),
        ("events", [], "something in it is damaged (events is [])"),
        ("has_errors", "perhaps", "something in it is damaged (has_errors is 'perhaps')"),
        ("n_frames", 0, "the recording has 0 frames; evaluate again"),
        ("fps", 0, "something in it is damaged (fps is 0); evaluate again"),
        ("fps", 1e9, "something in it is damaged (fps is 1e+09); evaluate again"),
    ],
)
def test_a_bad_recording_is_refused_with_the_name_of_its_file(
    make_run: MakeRun, key: str, value: object, complaint: str
) -> None:
    run = make_run(2)
    path = run / "recordings" / "01_assy.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(InputError, match=re.escape(f"01_assy.json: {complaint}")):
        collect(read_run(run))


def test_a_run_without_recordings_is_refused(tmp_path: Path, make_run: MakeRun, bench: Procedure) -> None:
    write_run(tmp_path / "empty", read_run(make_run(1)).info, bench)
    with pytest.raises(InputError, match="the run has no recordings"):
        collect(read_run(tmp_path / "empty"))
