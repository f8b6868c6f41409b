"""A recogniser of the lamp with small, untrained networks whose outputs vary, and recordings to watch with it.

What it says is nonsense; that streaming and batched recognition say the same nonsense is the point.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stormpsr.data.boxes import Box
from stormpsr.data.labels import StateTimeline, steps_from_states, write_states, write_steps
from stormpsr.data.sources import Frame
from stormpsr.procedure.model import Procedure

if find_spec("torch"):  # so that test files may ask for timm, which imports torchvision
    from stormpsr.models.backbones import make_torchvision_importable

    make_torchvision_importable()

for package in ("torch", "timm", "safetensors", "cv2", "pydantic"):
    if find_spec(package) is None:
        collect_ignore_glob = ["test_*.py"]

SIZE, FRAMES = 32, 60
FUSIONS = ("detection", "temporal", "average", "released")
STARTS = (0, 12, 28, 44)
STATES = ((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1))
COLOURS = np.array([(255, 40, 40), (40, 255, 40), (40, 40, 255)], dtype=np.uint8)
SETTINGS = """
name: tiny
encoder: {backbone: test_resnet, weights: none, image_size: 32, embedding_dim: 16}
temporal: {width: 16, layers: 1, heads: 2, mlp_width: 32}
clips: {window_frames: 16, n_window: 4}
"""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def picture(bits: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Squares of the components that are there, on noise."""
    image = rng.integers(60, 120, (SIZE, SIZE, 3), dtype=np.uint8)
    for k, bit in enumerate(bits):
        if bit == 1:
            image[8:24, 2 + 10 * k : 10 + 10 * k] = COLOURS[k]
    return image


def pictures(seed: int = 0, n: int = FRAMES) -> list[NDArray[np.uint8]]:
    timeline = StateTimeline(STARTS, STATES)
    rng = np.random.default_rng(seed)
    return [picture(timeline.at(frame), rng) for frame in range(n)]


def make_frames(seed: int = 0, n: int = FRAMES, fps: float = 10.0) -> list[Frame]:
    return [Frame(image, index, index / fps) for index, image in enumerate(pictures(seed, n))]


def write_recording(folder: Path, procedure: Procedure, seed: int) -> None:
    import cv2

    timeline = StateTimeline(STARTS, STATES)
    (folder / "rgb").mkdir(parents=True)
    for frame, image in enumerate(pictures(seed)):
        cv2.imwrite(str(folder / "rgb" / f"{frame:06d}.png"), image[:, :, ::-1])
    write_states(folder / "PSR_labels_raw.csv", timeline, procedure, extension=".png")
    steps = steps_from_states(timeline, procedure, with_errors=False)
    write_steps(folder / "PSR_labels.csv", steps, procedure, extension=".png")
    images = [{"id": f, "file_name": f"{f:06d}.png", "width": SIZE, "height": SIZE} for f in (5, 6, 7, 50)]
    box = {"bbox": [2, 8, 28, 16], "area": 448, "iscrowd": 0}
    marked = [{"id": i, "image_id": f, "category_id": 1 if f < 10 else 4, **box} for i, f in enumerate((5, 6, 7, 50))]
    (folder / "OD_labels.json").write_text(json.dumps({"images": images, "annotations": marked, "categories": []}))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, lamp: Procedure) -> Path:
    """Two recordings to tune on, two to evaluate_recording by."""
    root = tmp_path_factory.mktemp("world")
    lamp.save(root / "procedure.yaml")
    for split in ("val", "test"):
        for i in range(2):
            write_recording(root / split / f"{i:02d}_build_{split}", lamp, seed=10 * len(split) + i)
    return root


@pytest.fixture(scope="session")
def stream_folder(tmp_path_factory: pytest.TempPathFactory, lamp: Procedure) -> Path:
    """A checkpoint whose temporal model is never quite sure of the same thing."""
    import torch

    from stormpsr.config import parse_config
    from stormpsr.models.checkpoint import save_checkpoint
    from stormpsr.models.stream import build_stream

    torch.manual_seed(0)
    config = parse_config(SETTINGS, where="test")
    stream = build_stream(config, lamp.n_components).eval()
    with torch.no_grad():
        for parameter in stream.temporal.head[-1].parameters():
            parameter *= 40
    folder = tmp_path_factory.mktemp("stream") / "lamp"
    save_checkpoint(folder, tensors=stream.state_dict(), config=config, procedure=lamp, metrics={"event_f1": 0.5})
    return folder


@pytest.fixture(scope="session")
def detector_folder(tmp_path_factory: pytest.TempPathFactory, lamp: Procedure) -> Path:
    import torch

    from stormpsr.detectors.registry import make_detector

    torch.manual_seed(1)
    # with the other ways to tell wrong parts, an untrained network calls everything wrong
    sizes = {
        "wrong_parts": "error_class",
        "image_size": 64,
        "backbone": "test_efficientnet",
        "weights": "none",
        "width": 16,
        "heads": 2,
    }
    detector = make_detector("compact", lamp, sizes)
    folder = tmp_path_factory.mktemp("detector") / "lamp"
    detector.save(folder)
    return folder


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, stream_folder: Path, detector_folder: Path) -> Path:
    """Both networks, with thresholds low enough for some events."""
    from stormpsr.decoding.fusion import FusionSettings
    from stormpsr.recognizer.model_folder import RecognizerSettings, pack_model

    settings = RecognizerSettings(
        detector_min_confidence=0.0,
        methods={method: FusionSettings(threshold=0.6, min_change_probability=0.4) for method in FUSIONS},
    )
    folder = tmp_path_factory.mktemp("models") / "lamp"
    return pack_model(folder, stream=stream_folder, detector=detector_folder, settings=settings)


# ---------------------------------------------------------------------- networks that see what is there
class ColourDetector:
    """Reads the squares; surer on brighter images. Counts how often it was asked."""

    def __init__(self, procedure: Procedure) -> None:
        self.procedure = procedure
        self.n_images = 0

    def detect(self, images: Sequence[NDArray[np.uint8]], *, min_confidence: float = 0.1) -> list[list[Any]]:
        from stormpsr.detectors.base import Detection

        self.n_images += len(images)
        found = []
        for image in images:
            bits = tuple(int(image[8:24, 2 + 10 * k : 10 + 10 * k, k].mean() > 200) for k in range(3))
            state_class = self.procedure.state_class(bits)
            sure = 0.7 + float(image.mean()) / 2550
            found.append([] if state_class is None else [Detection(Box(2, 8, 30, 24), state_class, sure)])
        return found


def seeing_stream() -> Any:
    """An encoder that gives the colours of the squares, a temporal model that compares first and last known frame."""
    import torch
    from torch import Tensor, nn

    class Encoder(nn.Module):
        image_size, embedding_dim, n_images = SIZE, 3, 0

        def embed(self, image_BSS3: Tensor) -> Tensor:
            self.n_images += len(image_BSS3)
            squares = [image_BSS3[:, 8:24, 2 + 10 * k : 10 + 10 * k, k].float().mean(dim=(1, 2)) for k in range(3)]
            return torch.stack(squares, dim=1) / 255

    class Temporal(nn.Module):
        def forward(self, embedding_BND: Tensor, mask_BN: Tensor) -> Tensor:
            first_B = mask_BN.float().argmax(dim=1)
            first_BD = embedding_BND[torch.arange(len(first_B)), first_B]
            return 20 * ((embedding_BND[:, -1] - first_BD).abs() - 0.4)

    stream = nn.Module()
    stream.encoder, stream.temporal = Encoder(), Temporal()
    return stream


@pytest.fixture
def seeing(lamp: Procedure) -> Callable[..., Any]:
    """A model whose networks see what is there: `seeing(temporal_stride=4, detector=False, ...)`."""
    from stormpsr.config import parse_config
    from stormpsr.decoding.fusion import FusionSettings
    from stormpsr.models.stream import TorchStream
    from stormpsr.recognizer.model_folder import RecognizerModel, RecognizerSettings
    from stormpsr.recognizer.networks import Networks

    def make(*, detector: bool = True, stream: bool = True, threshold: float = 1.5, **settings: Any) -> RecognizerModel:
        methods = {method: FusionSettings(threshold=threshold) for method in FUSIONS}
        chosen = RecognizerSettings(**settings, methods=methods)
        networks = Networks(
            fps=lamp.fps,
            settings=chosen,
            detector=ColourDetector(lamp) if detector else None,  # type: ignore[arg-type]
            stream=TorchStream(seeing_stream()) if stream else None,
            config=parse_config(SETTINGS, where="test") if stream else None,
        )
        return RecognizerModel(Path("nowhere"), lamp, chosen, networks, {})

    return make


@pytest.fixture(scope="session")
def frames() -> Callable[..., list[Frame]]:
    """A recording in memory: `frames(seed, n, fps)`."""
    return make_frames
