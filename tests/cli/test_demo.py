"""`stormpsr demo`: three seconds of the world with small networks that have learned nothing, and the baselines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stormpsr.cli.demo import in_words, step_rows
from stormpsr.data.events import StepEvent
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.run_folder import read_run
from stormpsr.evaluation.summary import RecordingResult
from stormpsr.procedure.model import Procedure
from stormpsr.synthetic.product import Product

Call = Callable[..., Any]  # the fixtures `cli` and `write`
SETTINGS = """
name: tiny
encoder: {backbone: test_resnet, weights: none, image_size: 32, embedding_dim: 16}
temporal: {width: 16, layers: 1, heads: 2, mlp_width: 32}
clips: {window_frames: 16, n_window: 4}
"""
METHODS = ["detection", "temporal", "average"]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def pack(folder: Path, procedure: Procedure) -> Path:
    """A model whose temporal stream is sure of every change, whatever it sees."""
    import torch

    from stormpsr.config import parse_config
    from stormpsr.detectors.registry import make_detector
    from stormpsr.models.checkpoint import save_checkpoint
    from stormpsr.models.stream import build_stream
    from stormpsr.recognizer.model_folder import pack_model

    config = parse_config(SETTINGS, where="test")
    stream = build_stream(config, procedure.n_components).eval()
    with torch.no_grad():
        stream.temporal.head[-1].weight.zero_()
        stream.temporal.head[-1].bias.fill_(9.0)
    save_checkpoint(folder / "s", tensors=stream.state_dict(), config=config, procedure=procedure, metrics={})
    sizes = {"image_size": 64, "backbone": "test_efficientnet", "weights": "none", "width": 16, "heads": 2}
    make_detector("compact", procedure, sizes).save(folder / "d")
    return pack_model(folder / "model", stream=folder / "s", detector=folder / "d")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("vehicle"), Product.load("vehicle").procedure)


def test_the_demo_draws_recognises_and_writes_everything(
    cli: Call, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import av

    monkeypatch.setenv("STORMPSR_CACHE", "cache")
    outcome = cli("demo", "--model", model, "--seconds", 3, "--out", "d", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    told = outcome.json
    assert told["recording"]["frames"] == 30
    assert list(told["scores"]) == METHODS
    assert told["in_words"].startswith("STORM-PSR recognised 0 of 0 steps")
    assert [Path(path) for path in told["written"]] == [
        Path("d/report.html"),
        Path("d/annotated.mp4"),
        Path("d/run-1-3s"),
        Path("d/world-1-3s/recordings/test/01_assy_2_1"),
    ]
    assert all(Path(path).exists() for path in told["written"])
    assert "<title>Construction-set vehicle: the recording of the demo</title>" in Path("d/report.html").read_text()
    with av.open("d/annotated.mp4") as film:
        images = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
    assert len(images) == 8  # frames 0, 4, ..., 28
    assert images[0].shape == (640, 1060, 3)

    # the same events as by the batched path: there is no second way to recognise
    ours = read_run("d/run-1-3s").recording("01_assy_2_1").events
    assert cli("evaluate", model, "--data", "d/world-1-3s", "--out", "other", "--json").code == 0
    theirs = read_run("other").recording("01_assy_2_1").events
    assert list(ours) == METHODS
    assert ours["temporal"]
    assert {m: [(e.frame, e.step_id) for e in events] for m, events in ours.items()} == {
        m: [(e.frame, e.step_id) for e in events] for m, events in theirs.items()
    }
    reported = {m: sorted(at for row in told["steps"] for at in row["recognised"][m]) for m in METHODS}
    assert reported == {m: sorted(e.frame / 10 for e in events) for m, events in ours.items()}

    # once more: nothing is drawn, and it is told in lines
    monkeypatch.setattr("stormpsr.synthetic.generate._Pool._attempt", lambda *_: pytest.fail("it was there already"))
    outcome = cli("demo", "--model", model, "--seconds", 3, "--out", "d")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.count(" s  frame ") == len(ours["average"])
    assert [line for line in outcome.out.splitlines() if line.startswith("written: ")] == [
        "written: d/report.html (open it in a browser)",
        "written: d/annotated.mp4 (4 times as fast)",
        "written: d/run-1-3s (events and evidence, for 'stormpsr report')",
        "written: d/world-1-3s/recordings/test/01_assy_2_1 (the recording)",
    ]


def test_a_model_of_another_procedure_is_refused(
    cli: Call, tmp_path: Path, lamp: Procedure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stormpsr.synthetic.generate._Pool._attempt", lambda *_: (2, {"problem": "not drawn"}))
    other = pack(tmp_path / "lamp", lamp)
    outcome = cli("demo", "--model", other, "--seconds", 3)
    assert outcome.code == 2
    assert "the model recognises procedure 'lamp', but this is 'vehicle'" in outcome.err
    assert outcome.err.count("\n") == 1
    assert not list(Path("demo").glob("run*"))


def test_without_vtk_the_demo_says_what_to_install(
    cli: Call, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that draws finds a package in its place that is as good as none."""
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "vtk.py").write_text("raise ModuleNotFoundError('vtk')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "none"), os.environ.get("PYTHONPATH", "")]))
    outcome = cli("demo", "--model", model, "--seconds", 3, "--json")
    assert outcome.code == 2
    assert "needs vtk, which is not installed; run: pip install 'stormpsr[synth]'" in json.loads(outcome.err)["error"]


def test_the_run_of_another_model_is_refused_before_anything_is_watched(cli: Call, model: Path) -> None:
    from stormpsr.evaluation.run_folder import RunInfo, write_run

    write_run("demo/run-1-3s", RunInfo("t", "another", "d", None, "paper", (), {}), Procedure.load("meccano"))
    outcome = cli("demo", "--model", model, "--seconds", 3, "--json")
    assert "demo/run-1-3s: the folder holds a run of another on d" in outcome.err
    assert not Path("demo/annotated.mp4").exists()


def test_what_cannot_work_is_refused_before_anything_is_drawn(
    cli: Call, write: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("taken", "")
    for more in ((), ("--baselines",)):
        assert cli("demo", "--out", "taken", *more).is_refusal("taken: the output is a file; give the path of a folder")
    assert cli("demo", "--model", "nothing").is_refusal("there is no model 'nothing'", "give the folder of a model")
    monkeypatch.setattr("stormpsr.errors.find_spec", lambda name: None if name == "torch" else name)
    assert cli("demo").is_refusal("recognising steps needs torch, which is not installed; run: pip install 'stormpsr[")
    assert not Path("demo").exists()


# ---------------------------------------------------------------------- what is told, worked out by hand
INSTALL_FOOT, INSTALL_POLE, INSTALL_SHADE = 0, 3, 6
LABELS = (StepEvent(INSTALL_FOOT, 12), StepEvent(INSTALL_POLE, 28))
# the detector is late, the temporal model early with the pole, and both together report a shade that never came
EVENTS = {
    "detection": (StepEvent(INSTALL_FOOT, 20), StepEvent(INSTALL_POLE, 31)),
    "temporal": (StepEvent(INSTALL_FOOT, 14), StepEvent(INSTALL_POLE, 22)),
    "average": (StepEvent(INSTALL_FOOT, 14), StepEvent(INSTALL_POLE, 31), StepEvent(INSTALL_SHADE, 35)),
}


@pytest.fixture
def results(lamp: Procedure) -> dict[str, RecordingResult]:
    return {method: RecordingResult("one", score(LABELS, events, procedure=lamp)) for method, events in EVENTS.items()}


def test_the_steps_say_who_recognised_what_and_when(results: dict[str, RecordingResult], lamp: Procedure) -> None:
    rows = [(row["step"], row["completed"], *row["recognised"].values()) for row in step_rows(results, lamp)]
    assert rows == [
        ("Install foot", 1.2, [2.0], [1.4], [1.4]),
        ("Install pole", 2.8, [3.1], [], [3.1]),
        ("Install pole", None, [], [2.2], []),
        ("Install shade", None, [], [], [3.5]),
    ]


def test_one_sentence_says_how_it_went(results: dict[str, RecordingResult]) -> None:
    assert in_words(results, "average") == (
        "STORM-PSR recognised 2 of 2 steps, on average 0.2 s after completion, with 1 false alarm; "
        "detection only: 2 (0.6 s after, no false alarm); temporal only: 1 (0.2 s after, 1 false alarm)."
    )


def test_the_sentence_does_without_delays_where_nothing_was_recognised(lamp: Procedure) -> None:
    nothing = RecordingResult("one", score(LABELS, (), procedure=lamp))
    said = in_words({"detection": nothing}, "detection")
    assert said == "Detection only recognised 0 of 2 steps, with no false alarm."


# ---------------------------------------------------------------------- the baselines
def test_the_demo_of_baselines_scores_the_shipped_example_and_draws_it(cli: Call) -> None:
    from PIL import Image

    outcome = cli("demo", "--baselines")
    assert (outcome.code, outcome.err) == (0, "")
    for decoder in ("B1 naive", "B2 confidence", "B3 expected"):
        assert decoder in outcome.out
    with Image.open("demo/timeline.png") as image:
        assert image.size[0] > 1000
    assert max(len(line.rstrip()) for line in outcome.out.splitlines()) <= 100


def test_without_matplotlib_the_baselines_are_scored_all_the_same(cli: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = cli("demo", "--baselines", "--out", "here", "--json")
    assert outcome.code == 0
    assert outcome.err.startswith("no image: drawing needs matplotlib")
    assert outcome.json["written"] == [str(Path("here/scores.json"))]
    scores = outcome.json["scores"]
    assert scores["B1 naive"]["f1"] < 0.5 < scores["B3 expected"]["f1"] < 1  # what decoders are for
    written = json.loads(Path("here/scores.json").read_text())
    assert {n: entry["all"]["pos"] for n, entry in written.items()} == {n: s["pos"] for n, s in scores.items()}


def test_the_shipped_labels_are_without_errors_and_agree_with_each_other(cli: Call, car: Path) -> None:
    outcome = cli("labels", "check", car / "recordings", "--procedure", "industreal", "--json")
    assert (outcome.code, outcome.json["recordings"], outcome.json["findings"]) == (0, 3, [])
