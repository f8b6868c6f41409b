"""Detectors of others behind the same interface: YOLOX through libreyolo, YOLOv8 through ultralytics."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback

from stormpsr.data.annotated_frames import FrameSet, read_frames
from stormpsr.data.frame_cache import FrameCache
from stormpsr.detectors.registry import load_detector, make_detector
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.training.fit import FitOptions
from stormpsr.training.tasks.detector import Batches, BatchSettings, TrainingSettings, train_detector

needs_libreyolo = pytest.mark.skipif(find_spec("libreyolo") is None, reason="libreyolo is not installed (extra: yolox)")
needs_ultralytics = pytest.mark.skipif(
    find_spec("ultralytics") is None, reason="ultralytics is not installed (extra: yolo)"
)
# what these packages and their dependencies warn about is not ours to mend
pytestmark = pytest.mark.filterwarnings("ignore")

GREY = np.full((64, 64, 3), 120, dtype=np.uint8)
SHORT = TrainingSettings(
    steps=2,
    warmup_steps=1,
    average=0.0,
    batch=BatchSettings(batch_size=4),
    validation_frames=2,
    calibration_frames=4,
)


@pytest.fixture
def frames(lamp_data: Path, lamp: Procedure) -> FrameSet:
    few = read_frames(lamp_data, "train", lamp)
    return replace(few, readable=few.readable[::3], unreadable=few.unreadable[:2])


def test_importing_the_package_never_imports_ultralytics() -> None:
    code = "import sys, stormpsr, stormpsr.detectors.registry; print('ultralytics' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


yolos = pytest.mark.parametrize(
    ("kind", "settings"),
    [
        pytest.param("yolox", {"image_size": 64}, marks=needs_libreyolo),
        pytest.param("yolov8", {"model": "yolov8n", "image_size": 64}, marks=needs_ultralytics),
    ],
)
CPU = FitOptions(device="cpu")


def trained(kind: str, settings: dict[str, Any], frames: FrameSet, more: TrainingSettings = SHORT, **how: Any) -> Any:
    torch.manual_seed(0)
    made = make_detector(kind, frames.procedure, settings)
    train_detector(made, frames, frames, more, **{"options": CPU, **how})
    return made


@yolos
def test_it_trains_detects_and_comes_back_from_its_folder(
    kind: str, settings: dict[str, Any], frames: FrameSet, tmp_path: Path
) -> None:
    folder = tmp_path / "detector"
    made = trained(kind, settings, frames, folder=folder)
    files = ["config.yaml", "metrics.json", "model.safetensors", "procedure.yaml"]
    assert sorted(path.name for path in folder.iterdir()) == files
    loaded = load_detector(folder, frames.procedure)
    ours, theirs = (detector.detect([GREY], min_confidence=0)[0] for detector in (made, loaded))
    assert ours
    assert [(d.state_class, d.box) for d in ours] == [(d.state_class, d.box) for d in theirs]
    assert all(d.state_class in range(1, 6) for d in ours)
    assert [d.confidence for d in ours] == sorted((d.confidence for d in ours), reverse=True)


@yolos
def test_stopped_training_ends_where_it_would_have_ended(
    kind: str, settings: dict[str, Any], frames: FrameSet, tmp_path: Path
) -> None:
    class Stop(Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == 2:
                raise KeyboardInterrupt

    more = replace(SHORT, steps=3, epoch_steps=1, average=0.5)
    straight = trained(kind, settings, frames, more)
    with pytest.raises(KeyboardInterrupt):
        trained(kind, settings, frames, more, folder=tmp_path, options=replace(CPU, callbacks=(Stop(),)))
    resumed = trained(kind, settings, frames, more, folder=tmp_path)
    assert resumed.metrics["training"]["resumed_at"] == 1
    for name, tensor in straight.network.state_dict().items():
        assert torch.equal(tensor, resumed.network.state_dict()[name]), name


@yolos
def test_the_learning_rate_acts(kind: str, settings: dict[str, Any], frames: FrameSet) -> None:
    torch.manual_seed(0)
    before: Any = make_detector(kind, frames.procedure, settings)
    parts = [
        dict(trained(kind, settings, frames, replace(SHORT, learning_rate=r)).network.named_parameters())
        for r in (1e-5, 1e-3)
    ]
    moved = [
        sum(float((part[name] - p).abs().sum()) for name, p in before.network.named_parameters()) for part in parts
    ]
    assert moved[1] > 20 * moved[0] > 0


@yolos
def test_one_batch_is_learnt_and_what_nobody_can_read_teaches_silence(
    kind: str, settings: dict[str, Any], frames: FrameSet, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    detector: Any = make_detector(kind, frames.procedure, settings)
    batch = Batches(frames, FrameCache(tmp_path, 64), SHORT)[0]
    optimiser = torch.optim.AdamW(detector.network.parameters(), 2e-3)
    detector.network.train()
    seen = []
    for _ in range(12):
        loss = torch.stack(list(detector.losses(batch).values())).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        seen.append(float(loss))
    assert min(seen[-3:]) < 0.9 * seen[0]
    nothing = batch._replace(readable_B=torch.zeros_like(batch.readable_B))
    assert torch.isfinite(torch.stack(list(detector.losses(nothing).values()))).all()


@needs_libreyolo
def test_yolox_sizes_that_do_not_exist_are_refused(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="no size 'q'"):
        make_detector("yolox", lamp, {"size": "q"})


# ---------------------------------------------------------------------- weights of ultralytics
def write_pt(detector: Any, names: Sequence[str], path: Path) -> Path:
    """A file as ultralytics writes it, the rows of its classes in the order of the names."""
    import ultralytics

    wrapper = ultralytics.YOLO("yolov8n.yaml")
    wrapper.model = deepcopy(detector.network)
    wrapper.model.names = dict(enumerate(names))
    ours = [state.name for state in detector.procedure.states]
    for branch in wrapper.model.model[-1].cv3:
        for tensor in (branch[-1].weight, branch[-1].bias):
            tensor.data = torch.stack([tensor.data[ours.index(name) if name in ours else 0] for name in names])
    wrapper.save(path)
    return path


@pytest.fixture
def yolov8(lamp: Procedure) -> Any:
    torch.manual_seed(3)
    detector: Any = make_detector("yolov8", lamp, {"model": "yolov8n", "image_size": 64})
    for branch in detector.network.model[-1].cv3:
        torch.nn.init.normal_(branch[-1].bias)  # so that classes differ
    detector.network.half().float()  # .pt files are in half precision
    return detector


@needs_ultralytics
@pytest.mark.parametrize("shift", [0, 2])
def test_classes_of_a_pt_file_are_taken_over_by_their_names(
    yolov8: Any, lamp: Procedure, tmp_path: Path, shift: int
) -> None:
    from stormpsr.detectors.yolov8 import Yolov8Detector

    ours = [state.name for state in lamp.states]
    path = write_pt(yolov8, [*ours[shift:], *ours[:shift]], tmp_path / "own.pt")
    adopted = Yolov8Detector.adopt(path, lamp, image_size=64)
    assert adopted.config.model == "yolov8n"
    for name, tensor in yolov8.network.state_dict().items():
        assert torch.equal(tensor, adopted.network.state_dict()[name]), name


@needs_ultralytics
def test_a_pt_file_can_be_trained_on(yolov8: Any, frames: FrameSet, tmp_path: Path) -> None:
    path = write_pt(yolov8, [state.name for state in frames.procedure.states], tmp_path / "own.pt")
    settings = {"model": "yolov8n", "image_size": 64, "weights": str(path)}
    begun: Any = make_detector("yolov8", frames.procedure, settings)
    for name, tensor in yolov8.network.state_dict().items():
        assert torch.equal(tensor, begun.network.state_dict()[name]), name
    trained("yolov8", settings, frames, folder=tmp_path / "detector")
    path.unlink()
    load_detector(tmp_path / "detector")  # the file is not needed any more


@needs_ultralytics
@pytest.mark.parametrize("change", [lambda names: names[1:], lambda names: [*names[:-1], "sofa"]])
def test_classes_of_something_else_are_refused(yolov8: Any, lamp: Procedure, tmp_path: Path, change: Any) -> None:
    from stormpsr.detectors.yolov8 import Yolov8Detector

    path = write_pt(yolov8, change([state.name for state in lamp.states]), tmp_path / "own.pt")
    with pytest.raises(InputError, match="classes are not the 6 of 'lamp'"):
        Yolov8Detector.adopt(path, lamp, image_size=64)


@needs_ultralytics
def test_weights_that_are_none_are_refused(lamp: Procedure, meccano: Procedure, tmp_path: Path) -> None:
    from stormpsr.detectors.yolov8 import Yolov8Detector

    with pytest.raises(InputError, match="no such weights file"):
        Yolov8Detector.adopt(tmp_path / "nothing.pt", lamp)
    (tmp_path / "junk.pt").write_bytes(b"junk")
    with pytest.raises(InputError, match="not a file of ultralytics") as caught:
        Yolov8Detector.adopt(tmp_path / "junk.pt", lamp)
    assert caught.value.path == str(tmp_path / "junk.pt")
    with pytest.raises(InputError, match="no network 'yolov9x'"):
        make_detector("yolov8", lamp, {"model": "yolov9x"})
