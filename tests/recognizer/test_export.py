"""An exported model is a model like any other, reports what it reported with torch, and runs where there is none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stormpsr.cli.main import main
from stormpsr.data.dataset import Dataset
from stormpsr.data.events import StepEvent
from stormpsr.data.sources import Frame
from stormpsr.decoding.fusion import FusionSettings
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.recognizer.export import Worth, calibration_images, events_judge, export_model, precision_of
from stormpsr.recognizer.model_folder import load_model
from stormpsr.recognizer.networks import FramePredictor
from stormpsr.recognizer.offline import predict_recording
from stormpsr.recognizer.recognizer import Recognizer

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)

Frames = Callable[..., list[Frame]]
METHODS = ("detection", "temporal", "average", "released")

# Only what the extra `edge` installs: whatever else is imported fails as if it were not there.
EDGE_ONLY = """
import sys

class EdgeOnly:
    refused = ("torch", "torchvision", "timm", "lightning", "safetensors", "vtk", "onnx", "onnxscript", "pandas")

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.refused:
            raise ModuleNotFoundError(f"{name} is not part of the extra edge", name=name)

sys.meta_path.insert(0, EdgeOnly())
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "lamp"
    export_model(model_folder, folder)
    return folder


def events_of(model: Path, frames: list[Frame], method: str) -> list[StepEvent]:
    return Recognizer.load(model, method, "build", device="cpu", threads=1).run(frames).events


# ---------------------------------------------------------------------- the same events
@pytest.mark.parametrize("method", METHODS)
def test_an_exported_model_reports_the_events_that_torch_reports(
    model_folder: Path, exported: Path, frames: Frames, method: str
) -> None:
    found = [(event.step_id, event.frame) for seed in range(3) for event in events_of(exported, frames(seed), method)]
    wanted = [
        (event.step_id, event.frame) for seed in range(3) for event in events_of(model_folder, frames(seed), method)
    ]
    assert found == wanted
    assert found or method == "detection"  # a detector that has learned nothing may never be sure


def test_it_says_the_same_of_many_frames_at_once(model_folder: Path, exported: Path, frames: Frames) -> None:
    ours, theirs = load_model(exported, threads=1).networks, load_model(model_folder, device="cpu").networks
    one_by_one = FramePredictor(ours)
    for frame, batched, by_torch in zip(
        frames(), predict_recording(ours, frames(), batch_size=7), predict_recording(theirs, frames()), strict=True
    ):
        streamed = one_by_one.update(frame)
        assert streamed is not None
        for prediction in (streamed, batched):
            assert (prediction.change_C is None) == (by_torch.change_C is None)
            if prediction.change_C is not None and by_torch.change_C is not None:
                np.testing.assert_allclose(prediction.change_C, by_torch.change_C, atol=1e-4)
            classes = [[d.state_class for d in p.detections or ()] for p in (prediction, by_torch)]
            assert classes[0] == classes[1]


def test_evaluate_takes_it_and_finds_the_same_scores(
    model_folder: Path, exported: Path, world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = []
    for model in (model_folder, exported):
        assert main(["evaluate", str(model), "--data", str(world), "--cache", str(tmp_path), "--json"]) == 0
        scores.append(json.loads(capsys.readouterr().out)["summary"])
    assert scores[0] == scores[1]


@pytest.mark.skipif(find_spec("openvino") is None, reason="openvino is not installed")
def test_openvino_reports_the_same_from_the_same_graphs(
    model_folder: Path, exported: Path, frames: Frames, tmp_path: Path
) -> None:
    folder = tmp_path / "openvino"
    shutil.copytree(exported, folder)
    for path in folder.glob("*/graphs.json"):
        path.write_text(path.read_text().replace('"engine": "onnx"', '"engine": "openvino"'))
    found = [(event.step_id, event.frame) for event in events_of(folder, frames(), "average")]
    assert found == [(event.step_id, event.frame) for event in events_of(model_folder, frames(), "average")]
    networks = load_model(folder, threads=1).networks
    batched = list(predict_recording(networks, frames(), batch_size=7))
    streamed = FramePredictor(networks)
    for frame, prediction in zip(frames(), batched, strict=True):
        one = streamed.update(frame)
        if one is not None and one.change_C is not None and prediction.change_C is not None:
            np.testing.assert_allclose(one.change_C, prediction.change_C, atol=1e-4)


def test_embeddings_of_another_size_than_announced_are_refused(exported: Path, frames: Frames, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(exported, changed)
    (changed / "stream" / "config.yaml").write_text("encoder: {embedding_dim: 77}\n")
    with pytest.raises(InputError, match=r"its embeddings have \d+ numbers, and 77 are announced"):
        events_of(changed, frames(), "average")


# ---------------------------------------------------------------------- without torch
def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_it_runs_and_is_evaluated_where_there_is_no_torch(exported: Path, world: Path, tmp_path: Path) -> None:
    use = """
from stormpsr.cli.main import main
model, world, cache, recording = sys.argv[1:]
assert main(["run", model, recording, "--json"]) == 0
assert main(["evaluate", model, "--data", world, "--cache", cache]) == 0
"""
    recording = world / "test" / "00_build_test"
    done = run_python(EDGE_ONLY + use, str(exported), str(world), str(tmp_path), str(recording))
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"frame"')]
    wanted = Recognizer.load(exported, variant="build", threads=1).run(str(recording)).events
    assert [(event["step_id"], event["frame"]) for event in events] == [(e.step_id, e.frame) for e in wanted]


def test_a_model_that_was_not_exported_says_what_it_needs_where_there_is_no_torch(model_folder: Path) -> None:
    use = """
sys.modules["torch"] = None
from stormpsr.cli.main import main
sys.exit(main(["run", sys.argv[1], "video.mp4"]))
"""
    done = run_python("import sys\n" + use, str(model_folder))
    assert done.returncode == 2
    assert "recognising steps needs torch, which is not installed; run: pip install 'stormpsr[train]'" in done.stderr


# ---------------------------------------------------------------------- a folder like any other
def test_everything_else_of_the_folder_is_kept(model_folder: Path, exported: Path) -> None:
    for path in (path for path in model_folder.rglob("*") if path.is_file() and path.name != "model.safetensors"):
        assert (exported / path.relative_to(model_folder)).read_bytes() == path.read_bytes()
    assert not list(exported.rglob("model.safetensors"))
    assert {path.parent.name for path in exported.rglob("graphs.json")} == {"stream", "detector"}


def test_it_has_predictions_of_its_own_in_the_cache(model_folder: Path, exported: Path) -> None:
    assert load_model(exported, threads=1).digest() != load_model(model_folder, device="cpu").digest()


def test_what_was_exported_is_not_exported_again(exported: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exported already; give the one"):
        export_model(exported, tmp_path / "again")
    short = tmp_path / "int8"
    shutil.copytree(exported, short)
    info = short / "stream" / "graphs.json"
    info.write_text(info.read_text().replace("float32", "int8"))
    with pytest.raises(InputError, match="exported already; give the one"):
        export_model(short, tmp_path / "again", calibration=[])


def test_nothing_else_is_overwritten(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="would be overwritten"):
        export_model(model_folder, tmp_path)
    with pytest.raises(InputError, match="would be overwritten"):
        export_model(model_folder, model_folder)


@pytest.mark.parametrize("options", [["--int8"], ["--calibrate", "world"]])
def test_8_bits_need_recordings(
    model_folder: Path, tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(model_folder), "--out", str(tmp_path / "out"), *options]) == 2
    assert "give --int8 and --calibrate DATA together" in capsys.readouterr().err


# ---------------------------------------------------------------------- 8 bits
def test_a_model_in_8_bits_is_smaller_and_close(
    model_folder: Path, exported: Path, world: Path, lamp: Procedure, frames: Frames, tmp_path: Path
) -> None:
    images = calibration_images(Dataset.open(world, "val", lamp))
    assert 128 > len(images) > 60  # both recordings have 60 frames
    small = export_model(exported, tmp_path / "int8", calibration=images[::4])
    for graph in ("detector/detector.onnx", "stream/encoder.onnx"):
        assert (tmp_path / "int8" / graph).stat().st_size < (exported / graph).stat().st_size
    by_torch: Any = load_model(model_folder, device="cpu").networks
    change = [
        np.array([p.change_C for p in predict_recording(networks, frames()) if p.change_C is not None])
        for networks in (small.networks, by_torch)
    ]
    assert np.corrcoef(change[0].ravel(), change[1].ravel())[0, 1] > 0.9


def test_a_network_stays_as_it_is_if_events_get_worse_in_8_bits(exported: Path, frames: Frames, tmp_path: Path) -> None:
    by_precision = {"float32": Worth(0.8, 0.7, 5.0, 0.1), "int8 (encoder)": Worth(0.8, 0.69, 4.0, 0.1)}
    by_precision["int8 (detector)"] = Worth(0.8, 0.7, 5.05, 0.1)  # later by less than a tick
    notes: list[str] = []
    images = [frame.image for frame in frames()[:4]]
    options: dict[str, Any] = {"judge": lambda model: by_precision[precision_of(model.path)], "on_note": notes.append}
    export_model(exported, tmp_path / "int8", calibration=images, **options)
    assert precision_of(tmp_path / "int8") == "int8 (detector)"
    for graph, is_full in (("stream/encoder.onnx", True), ("detector/detector.onnx", False)):
        assert ((tmp_path / "int8" / graph).read_bytes() == (exported / graph).read_bytes()) == is_full
    assert notes == [
        "the encoder stays in full precision: F1 0.800, POS 0.700, tau 5.00 s become F1 0.800, POS 0.690, tau 4.00 s",
        "the detector is kept in 8 bits: F1 0.800, POS 0.700, tau 5.00 s become F1 0.800, POS 0.700, tau 5.05 s",
    ]


@pytest.mark.parametrize(
    ("worth", "worse"),
    [
        ((0.8, 0.7, 5.0), False),
        ((0.9, 0.7, 5.1), False),
        ((0.8, 0.7, 5.2), True),
        ((0.79, 0.9, 1.0), True),
        ((0.9, 0.69, 1.0), True),
        ((0.8, 0.7, None), False),
    ],
)
def test_events_are_worse_if_any_score_is(worth: tuple[float, float, float | None], worse: bool) -> None:
    assert Worth(*worth, 0.1).worse_than(Worth(0.8, 0.7, 5.0, 0.1)) == worse


def test_the_command_tries_8_bits_on_recordings(
    model_folder: Path, world: Path, lamp: Procedure, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "int8"
    command = ["export", str(model_folder), "--out", str(out), "--int8", "--calibrate", str(world), "--split", "val"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert said.err.count(" in full precision: ") + said.err.count(" in 8 bits: ") == 2
    assert f"for onnx, {precision_of(out)}, " in said.out
    judge = events_judge(list(Dataset.open(world, "val", lamp)))
    before = judge(load_model(model_folder, device="cpu"))
    assert not judge(load_model(out, device="cpu")).worse_than(before)


def test_without_labels_the_events_of_full_precision_are_what_is_true(
    model_folder: Path, world: Path, lamp: Procedure
) -> None:
    recordings = [replace(recording, steps=None) for recording in Dataset.open(world, "val", lamp)]
    judge = events_judge(recordings)
    model = load_model(model_folder, device="cpu")
    assert judge(model)[:3] == (1.0, 1.0, 0.0)
    deaf = replace(model, settings=model.settings.with_method("average", FusionSettings(threshold=1e6)))
    assert judge(deaf)[:2] == (0.0, 0.0)
