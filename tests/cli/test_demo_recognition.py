"""`stormpsr demo` from end to end: three seconds of the world, and small networks that have learned nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from stormpsr.evaluation.run_folder import read_run
from stormpsr.procedure.model import Procedure
from stormpsr.synthetic.product import Product

for package in ("torch", "timm", "safetensors", "cv2", "pydantic", "av", "PIL", "trimesh"):
    if find_spec(package) is None:
        pytest.skip(f"recognition needs {package}", allow_module_level=True)

Call = Callable[..., Any]
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
    """A model whose outputs vary, with thresholds low enough for some events."""
    import torch

    from stormpsr.config import parse_config
    from stormpsr.decoding.fusion import FusionSettings
    from stormpsr.detectors.registry import make_detector
    from stormpsr.models.backbones import make_torchvision_importable
    from stormpsr.models.checkpoint import save_checkpoint
    from stormpsr.models.stream import build_stream
    from stormpsr.recognizer.model_folder import RecognizerSettings, pack_model

    make_torchvision_importable()
    torch.manual_seed(0)
    config = parse_config(SETTINGS, where="test")
    stream = build_stream(config, procedure.n_components).eval()
    with torch.no_grad():
        for parameter in stream.temporal.head[-1].parameters():
            parameter *= 40
    save_checkpoint(folder / "s", tensors=stream.state_dict(), config=config, procedure=procedure, metrics={})
    sizes = {
        "wrong_parts": "error_class",
        "image_size": 64,
        "backbone": "test_efficientnet",
        "weights": "none",
        "width": 16,
        "heads": 2,
    }
    make_detector("compact", procedure, sizes).save(folder / "d")
    settings = RecognizerSettings(
        detector_min_confidence=0.0,
        methods={method: FusionSettings(threshold=0.6, min_change_probability=0.4) for method in METHODS},
    )
    return pack_model(folder / "model", stream=folder / "s", detector=folder / "d", settings=settings)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("vehicle"), Product.load("vehicle").procedure())


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
        Path("d/run"),
        Path("d/world-2029-3s/recordings/test/01_assy_2_1"),
    ]
    assert all(Path(path).exists() for path in told["written"])
    assert "<title>Construction-set vehicle: the recording of the demo</title>" in Path("d/report.html").read_text()
    with av.open("d/annotated.mp4") as film:
        images = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
    assert len(images) == 9  # frames 0, 4, ..., 28, and the last
    assert images[0].shape == (640, 1060, 3)

    # the same events as by the batched path: there is no second way to recognise
    ours = read_run("d/run").recording("01_assy_2_1").events
    assert cli("evaluate", model, "--data", "d/world-2029-3s", "--out", "other", "--json").code == 0
    theirs = read_run("other").recording("01_assy_2_1").events
    assert list(ours) == METHODS
    assert {m: [(e.frame, e.step_id) for e in events] for m, events in ours.items()} == {
        m: [(e.frame, e.step_id) for e in events] for m, events in theirs.items()
    }
    false = {
        m: sorted(at for row in told["steps"] if row["completed"] is None for at in row["recognised"][m])
        for m in METHODS
    }
    assert false == {m: sorted(e.frame / 10 for e in events) for m, events in ours.items()}
    assert any(false.values())

    # once more: nothing is drawn, and it is told in lines
    monkeypatch.setattr("stormpsr.synthetic.generate._Pool._attempt", lambda *_: pytest.fail("it was there already"))
    outcome = cli("demo", "--model", model, "--seconds", 3, "--out", "d")
    assert (outcome.code, outcome.err) == (0, "")
    n_lines = sum(line.endswith(", not completed") for line in outcome.out.splitlines())
    assert n_lines == sum(len(events) for events in ours.values())
    assert [line for line in outcome.out.splitlines() if line.startswith("written: ")] == [
        "written: d/report.html (open it in a browser)",
        "written: d/annotated.mp4 (4 times as fast)",
        "written: d/run (events and evidence; 'stormpsr report' reads it)",
        "written: d/world-2029-3s/recordings/test/01_assy_2_1 (the recording)",
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
    assert not Path("demo/run").exists()


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


def test_the_folder_of_another_run_is_refused(cli: Call, model: Path, write: Call) -> None:
    from stormpsr.evaluation.run_folder import RecordingRun, RunInfo, write_recording, write_run

    write_recording("demo/run", RecordingRun("another", None, 10.0, 5, None, "nowhere", (), None, {}))
    write_run("demo/run", RunInfo("t", "m", "d", None, "paper", (), {}), Procedure.load("meccano"))
    assert cli("demo", "--model", model).is_refusal("demo/run: the folder holds another run; give another folder")
    assert Path("demo/run/run.json").is_file()
