"""One geometry: on frames of a wide camera a square stays a square, for both networks, in training and in use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from stormpsr.config import parse_config
from stormpsr.data.annotated_frames import read_frames
from stormpsr.data.frame_cache import FrameCache
from stormpsr.data.images import letterbox
from stormpsr.data.layouts import find_recordings
from stormpsr.data.recording import open_recording
from stormpsr.detectors.registry import make_detector
from stormpsr.models.stream import TorchStream, build_stream
from stormpsr.procedure.model import Procedure
from stormpsr.recognizer.model_folder import RecognizerSettings
from stormpsr.recognizer.networks import FramePredictor, Networks

WIDTH, HEIGHT, SIZE = 1280, 720, 160  # an eighth, with 35 grey rows above and below
BOX = (320, 240, 200, 200)  # left, top, width, height of the white square
IN_SQUARE = (40, 65, 65, 90)  # its corners at an eighth
SETTINGS = f"""
encoder: {{backbone: test_resnet, weights: none, image_size: {SIZE}, embedding_dim: 8, crop_size: 32}}
temporal: {{width: 8, layers: 1, heads: 2, mlp_width: 16}}
clips: {{window_frames: 4, n_window: 4}}
"""


@pytest.fixture
def data(tmp_path: Path, lamp: Procedure) -> Path:
    """A recording of three frames: a white square on grey, with its box."""
    folder = tmp_path / "data" / "train" / "01_build"
    (folder / "rgb").mkdir(parents=True)
    image = np.full((HEIGHT, WIDTH, 3), 90, dtype=np.uint8)
    left, top, width, height = BOX
    cv2.rectangle(image, (left, top), (left + width - 1, top + height - 1), (255, 255, 255), cv2.FILLED)
    for number in range(3):
        cv2.imwrite(str(folder / "rgb" / f"{number:06d}.png"), image)
    (folder / "PSR_labels_raw.csv").write_text("000000.png,0,0,0\n000001.png,1,0,0\n")
    images = [{"id": k, "file_name": f"{k:06d}.png", "width": WIDTH, "height": HEIGHT} for k in range(3)]
    boxes = [{"id": k, "image_id": k, "category_id": 2, "bbox": list(BOX), "area": 40000} for k in (1, 2)]
    (folder / "OD_labels.json").write_text(json.dumps({"images": images, "annotations": boxes, "categories": []}))
    lamp.save(tmp_path / "data" / "procedure.yaml")
    return tmp_path / "data"


def white(image_SS3: NDArray[Any]) -> tuple[int, int, int, int]:
    """The corners of what is white."""
    rows, columns = np.nonzero(np.asarray(image_SS3).min(axis=2) > 200)
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


def test_a_square_stays_a_square_in_the_images_that_an_encoder_is_trained_with(
    data: Path, lamp: Procedure, tmp_path: Path
) -> None:
    recording = open_recording(find_recordings(data, "train")[0], lamp)
    cache = FrameCache(tmp_path / "cache", SIZE)
    cache.fill(recording)
    assert [white(image) for image in cache.frames(recording)[np.arange(3)]] == [IN_SQUARE] * 3


def test_a_square_stays_a_square_in_the_images_that_a_detector_is_trained_with(
    data: Path, lamp: Procedure, tmp_path: Path
) -> None:
    from stormpsr.training.augment import ImageAugmentation
    from stormpsr.training.tasks.detector import Batches, BatchSettings, TrainingSettings

    unchanged = ImageAugmentation(*[0.0] * 10)
    settings = TrainingSettings(batch=BatchSettings(batch_size=4), augmentation=unchanged)
    batch = Batches(read_frames(data, "train", lamp), FrameCache(tmp_path / "cache", SIZE), settings)[0]
    assert [white(image) for image in batch.image_BSS3] == [IN_SQUARE] * 4
    np.testing.assert_allclose(batch.corners_B4[batch.readable_B], [IN_SQUARE] * int(batch.readable_B.sum()))


def test_both_networks_see_the_square_as_a_square_and_boxes_come_back_in_pixels_of_the_frame(
    data: Path, lamp: Procedure
) -> None:
    config = parse_config(SETTINGS, where="here")
    sizes = {"image_size": SIZE, "backbone": "test_efficientnet", "weights": "none", "width": 16, "crop_size": 32}
    detector: Any = make_detector("compact", lamp, sizes)
    stream = build_stream(config, lamp.n_components)
    settings = RecognizerSettings(temporal_stride=1, detector_min_confidence=0.0)
    networks = Networks(fps=lamp.fps, settings=settings, detector=detector, stream=TorchStream(stream), config=config)
    seen: dict[str, NDArray[Any]] = {}

    def embed(image_BSS3: torch.Tensor, *_: object) -> torch.Tensor:
        seen["encoder"] = image_BSS3[0].numpy()
        return torch.zeros(1, 8)

    def whole_square(image_BSS3: torch.Tensor) -> torch.Tensor:
        seen["detector"] = image_BSS3[0].numpy()
        return torch.tensor([IN_SQUARE]) / SIZE

    frame = next(iter(open_recording(find_recordings(data, "train")[0], lamp).frames()))
    with patch.object(stream.encoder, "embed", embed), patch.object(detector.locator, "locate", whole_square):
        prediction = FramePredictor(networks).update(frame)
    assert white(seen["encoder"]) == IN_SQUARE
    assert white(seen["detector"]) == IN_SQUARE
    np.testing.assert_array_equal(seen["encoder"], seen["detector"])
    assert prediction is not None
    assert prediction.detections is not None
    np.testing.assert_allclose(prediction.detections[0].box, BOX, atol=1e-3)


def test_a_crop_around_the_square_is_the_same_for_both_networks(data: Path, lamp: Procedure) -> None:
    config = parse_config(SETTINGS, where="here")
    sizes = {"image_size": SIZE, "backbone": "test_efficientnet", "weights": "none", "width": 16, "crop_size": 32}
    detector: Any = make_detector("compact", lamp, sizes)
    encoder = build_stream(config, lamp.n_components).encoder
    frame = next(iter(open_recording(find_recordings(data, "train")[0], lamp).frames()))
    square = torch.from_numpy(letterbox(frame.image, SIZE)[0])
    shares_B4 = torch.tensor([IN_SQUARE]) / SIZE
    theirs, ours = detector.network.crop(square[None], shares_B4), encoder.crop_assembly(square[None], shares_B4)
    torch.testing.assert_close(ours, theirs)
    left, top, right, bottom = white(ours[0].numpy())
    assert right - left == bottom - top
