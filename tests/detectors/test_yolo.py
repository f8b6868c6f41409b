"""Detectors of others behind the same interface: YOLOX through libreyolo, YOLOv8 through ultralytics."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from stormpsr.data.annotated_frames import FrameSet, read_frames
from stormpsr.detectors.registry import load_detector, make_detector
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.training.fit import FitOptions
from stormpsr.training.tasks.detector import BatchSettings, TrainingSettings, train_detector

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


@needs_libreyolo
def test_yolox_trains_detects_and_comes_back_from_its_folder(frames: FrameSet, tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = make_detector("yolox", frames.procedure, {"image_size": 64})
    train_detector(made, frames, frames, SHORT, folder=tmp_path, options=FitOptions(device="cpu"))
    loaded = load_detector(tmp_path, frames.procedure)
    ours, theirs = (detector.detect([GREY], min_confidence=0)[0] for detector in (made, loaded))
    assert ours
    assert [(d.state_class, d.box) for d in ours] == [(d.state_class, d.box) for d in theirs]
    assert all(d.state_class in range(1, 6) for d in ours)
    assert [d.confidence for d in ours] == sorted((d.confidence for d in ours), reverse=True)


@needs_libreyolo
def test_yolox_sizes_that_do_not_exist_are_refused(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="no size 'q'"):
        make_detector("yolox", lamp, {"size": "q"})


@needs_ultralytics
def test_yolov8_trains_detects_and_comes_back_from_its_folder_and_from_its_own_weights(
    frames: FrameSet, lamp: Procedure, tmp_path: Path
) -> None:
    from stormpsr.detectors.yolov8 import Yolov8Detector

    made = make_detector("yolov8", lamp, {"model": "yolov8n", "image_size": 64})
    seen: list[tuple[int, int]] = []
    folder, cpu = tmp_path / "detector", FitOptions(device="cpu")
    train_detector(
        made, frames, frames, SHORT, folder=folder, options=cpu, on_step=lambda step, of, loss: seen.append((step, of))
    )
    assert seen[-1] == (2, 2)
    assert sorted(path.name for path in (tmp_path / "detector").iterdir()) == [
        "config.yaml",
        "metrics.json",
        "model.safetensors",
        "procedure.yaml",
    ]
    loaded = load_detector(tmp_path / "detector", lamp)
    ours, theirs = (detector.detect([GREY], min_confidence=0)[0] for detector in (made, loaded))
    assert [(d.state_class, d.box) for d in ours] == [(d.state_class, d.box) for d in theirs]

    import ultralytics

    assert isinstance(loaded, Yolov8Detector)
    wrapper = ultralytics.YOLO("yolov8n.yaml")
    wrapper.model = loaded.network
    wrapper.save(tmp_path / "own.pt")
    adopted = Yolov8Detector.adopt(tmp_path / "own.pt", lamp, image_size=64)
    assert adopted.config.model == "yolov8n"
    for name, tensor in loaded.network.state_dict().items():
        assert torch.equal(tensor.half(), adopted.network.state_dict()[name].half()), (
            name
        )  # .pt files are in half precision


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
