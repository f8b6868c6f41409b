"""Both networks on one frame: what they share is computed once, on the device that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from stormpsr.config import parse_config
from stormpsr.data.images import letterbox
from stormpsr.decoding.predictions import PredictionTable
from stormpsr.detectors.known_views import KnownViews
from stormpsr.detectors.registry import load_detector, make_detector
from stormpsr.errors import InputError
from stormpsr.models.backbones import AttentionPooling
from stormpsr.models.checkpoint import device_of, save_checkpoint
from stormpsr.models.locator import Locator
from stormpsr.models.stream import build_stream
from stormpsr.procedure.model import Procedure
from stormpsr.recognizer.model_folder import RecognizerModel, RecognizerSettings, load_model, pack_model
from stormpsr.recognizer.networks import FramePredictor, View
from stormpsr.recognizer.offline import predict_recording
from stormpsr.recognizer.recognizer import Recognizer

Frames = Callable[..., list[Any]]
SIZES = {"image_size": 64, "backbone": "test_resnet", "weights": "none", "width": 96, "crop_size": 32}


@pytest.fixture
def from_detector(tmp_path: Path, lamp: Procedure) -> Callable[..., RecognizerModel]:
    """A model whose encoder began from its detector: `from_detector(image_size=64)` is the encoder's."""

    def make(image_size: int = 64, *, moved: bool = False, frozen: bool = False) -> RecognizerModel:
        torch.manual_seed(0)
        detector: Any = make_detector("compact", lamp, SIZES)
        detector.save(tmp_path / "detector")
        own = f"backbone: test_resnet, image_size: {image_size}, embedding_dim: 16, crop_size: 32"
        own += ", n_queries: 5, frozen_reader: true" if frozen else ", n_queries: 6"
        settings = f"""
encoder: {{weights: {tmp_path / "detector"}, {own}}}
temporal: {{width: 16, layers: 1, heads: 2, mlp_width: 32}}
clips: {{window_frames: 16, n_window: 4}}
"""
        config = parse_config(settings, where="test")
        stream = build_stream(config, lamp.n_components)
        if moved:
            with torch.no_grad():
                next(stream.encoder.locator.parameters()).view(-1)[0] += 0.01
        save_checkpoint(tmp_path / "s", tensors=stream.state_dict(), config=config, procedure=lamp, metrics={})
        settings_of_run = RecognizerSettings(temporal_stride=4, detector_stride=1, detector_min_confidence=0.0)
        packed = pack_model(
            tmp_path / "model", stream=tmp_path / "s", detector=tmp_path / "detector", settings=settings_of_run
        )
        return load_model(packed, device="cpu")

    return make


# ---------------------------------------------------------------------- one locator
def located(model: RecognizerModel, frames: list[Any], *, batched: bool) -> int:
    """In how many images a locator looked for the assembly."""
    with patch.object(Locator, "forward", autospec=True, side_effect=Locator.forward) as forward:
        if batched:
            list(predict_recording(model.networks, frames, batch_size=16))
        else:
            predictor = FramePredictor(model.networks)
            for frame in frames:
                predictor.update(frame)
    return sum(len(call.args[1]) for call in forward.call_args_list)


@pytest.mark.parametrize("batched", [False, True])
def test_an_encoder_that_began_from_the_detector_locates_nothing_again(
    from_detector: Callable[..., RecognizerModel], frames: Frames, batched: bool
) -> None:
    assert located(from_detector(), frames(), batched=batched) == 60  # frames; 15 of them are encoded, too


@pytest.mark.parametrize("other", [{"image_size": 32}, {"moved": True}])
def test_locators_that_differ_both_run(
    from_detector: Callable[..., RecognizerModel], frames: Frames, other: dict[str, Any]
) -> None:
    assert located(from_detector(**other), frames(), batched=False) == 60 + 15


def test_a_shared_locator_changes_nothing(from_detector: Callable[..., RecognizerModel], frames: Frames) -> None:
    model = from_detector()
    views = [View(frame.image) for frame in frames(n=4)]
    ticks = range(4)
    together = model.networks.detect(views, ticks), model.networks.encode(views)
    model.networks._shares_locator = False
    for mine, theirs in zip(model.networks.detect(views, ticks), together[0], strict=True):
        assert mine.detections == theirs.detections
        np.testing.assert_array_equal(mine.outputs_CF, theirs.outputs_CF)
    np.testing.assert_array_equal(model.networks.encode(views), together[1])


def test_streaming_and_batched_agree_with_a_shared_locator(
    from_detector: Callable[..., RecognizerModel], frames: Frames
) -> None:
    model = from_detector()
    predictor = FramePredictor(model.networks)
    streamed = [predictor.update(frame) for frame in frames()]
    for one, other in zip(streamed, predict_recording(model.networks, frames(), batch_size=16), strict=True):
        assert one is not None
        assert (one.change_C is None) == (other.change_C is None)
        if one.change_C is not None and other.change_C is not None:
            np.testing.assert_allclose(one.change_C, other.change_C, atol=1e-5)
        assert [d.state_class for d in one.detections or ()] == [d.state_class for d in other.detections or ()]


def test_a_frame_is_letterboxed_once_for_both_networks(
    from_detector: Callable[..., RecognizerModel], frames: Frames
) -> None:
    model = from_detector()
    with patch("stormpsr.recognizer.networks.letterbox", wraps=letterbox) as made:
        FramePredictor(model.networks).update(frames(n=1)[0])
    assert made.call_count == 1


# ---------------------------------------------------------------------- one reader
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(("frozen", "read"), [(True, 60), (False, 60 + 15)])
def test_an_encoder_whose_reader_is_the_detectors_reads_nothing_again(
    from_detector: Callable[..., RecognizerModel], frames: Frames, batched: bool, frozen: bool, read: int
) -> None:
    model, forward = from_detector(frozen=frozen), AttentionPooling.forward
    with patch.object(AttentionPooling, "forward", autospec=True, side_effect=forward) as called:
        if batched:
            list(predict_recording(model.networks, frames(), batch_size=16))
        else:
            predictor = FramePredictor(model.networks)
            for frame in frames():
                predictor.update(frame)
    assert sum(len(call.args[1]) for call in called.call_args_list) == read


def test_a_shared_reader_changes_nothing(from_detector: Callable[..., RecognizerModel], frames: Frames) -> None:
    networks = from_detector(frozen=True).networks
    views = [View(frame.image) for frame in frames(n=4)]
    networks.detect(views, range(4))
    together = networks.encode(views)
    alone = networks.encode([View(frame.image) for frame in frames(n=4)])  # the detector has not looked at these
    np.testing.assert_allclose(together, alone, atol=1e-5)


# ---------------------------------------------------------------------- views that the detector does not know
def test_nothing_is_believed_while_the_camera_shows_what_the_detector_does_not_know(
    from_detector: Callable[..., RecognizerModel], frames: Frames
) -> None:
    networks, shown = from_detector(frozen=True).networks, frames()  # 60
    detector: Any = networks.detector
    detector.known_views = KnownViews(np.zeros(96), np.eye(96), 1.0)
    numbers = iter(range(2 * len(shown)))

    def strangeness(known: KnownViews, found_QD: Any) -> float:
        return 3.0 if 20 <= next(numbers) % len(shown) < 40 else 0.2

    with patch.object(KnownViews, "strangeness", strangeness):
        predictor = FramePredictor(networks)
        streamed = [predictor.update(frame) for frame in shown]
        table = predict_recording(networks, shown, batch_size=16)
        batched = PredictionTable.of(table, detector.procedure.n_components)
    foreign = [p.index for p in streamed if p is not None and p.is_foreign]
    assert foreign == list(range(foreign[0], foreign[-1] + 1))  # one stretch
    assert 20 < foreign[0] < 40 < foreign[-1] < 59  # it takes some images to notice, and some to be sure again
    for one, other in zip(streamed, batched, strict=True):
        assert one is not None
        assert one.is_foreign == other.is_foreign
        assert (one.change_C is None) == (other.change_C is None)
        assert (one.outputs_CF is None) == (other.outputs_CF is None)
        if one.is_foreign:
            assert one.detections == other.detections == ()
            assert one.change_C is one.outputs_CF is None
        elif one.change_C is not None and other.change_C is not None:
            np.testing.assert_allclose(one.change_C, other.change_C, atol=1e-5)


def test_a_packed_model_keeps_the_known_views_of_its_detector(tmp_path: Path, lamp: Procedure) -> None:
    detector: Any = make_detector("compact", lamp, SIZES)
    detector.known_views = KnownViews(np.zeros(96), np.eye(96), 2.0)
    detector.save(tmp_path / "detector")
    packed = pack_model(tmp_path / "model", detector=tmp_path / "detector", half=True)
    kept: Any = load_model(packed, device="cpu").networks.detector
    assert kept.known_views.limit == 2.0
    detector.known_views = None
    detector.save(tmp_path / "detector")  # other tensors perhaps: what is there is not theirs
    assert load_detector(tmp_path / "detector").known_views is None


def test_exported_graphs_share_a_reader_too(
    from_detector: Callable[..., RecognizerModel], frames: Frames, tmp_path: Path
) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    from stormpsr.recognizer.export import export_model

    model = from_detector(frozen=True)
    networks: Any = export_model(model.path, tmp_path / "exported").networks
    networks.stream._encoder = None  # nobody may ask it to read an image again
    views = [View(frame.image) for frame in frames(n=3)]
    networks.detect(views, range(3))
    alone = model.networks.encode([View(frame.image) for frame in frames(n=3)])
    np.testing.assert_allclose(networks.encode(views), alone, atol=1e-4)


# ---------------------------------------------------------------------- devices
def test_weights_and_images_go_to_the_device_that_was_asked_for(model_folder: Path, frames: Frames) -> None:
    networks = load_model(model_folder, device="meta").networks  # torch's device without numbers
    detector, stream = networks.detector, networks.stream
    assert detector is not None
    assert stream is not None
    weights = [*detector.network.parameters(), *stream.model.parameters()]  # type: ignore[attr-defined]
    assert {parameter.device.type for parameter in weights} == {"meta"}
    went: list[str] = []

    def answer(shape: int) -> Callable[..., Any]:
        def forward(*inputs: Any) -> Any:
            went.extend(x.device.type for x in inputs if isinstance(x, torch.Tensor))
            return torch.zeros(1, shape)

        return forward

    def no_detections(images: torch.Tensor, *_: object) -> list[list[Any]]:
        went.append(images.device.type)
        return [[]]

    with (
        patch.object(detector, "raw_detections", no_detections),
        patch.object(stream.encoder, "embed", answer(16)),
        patch.object(stream.temporal, "forward", answer(3)),
    ):
        FramePredictor(networks).update(frames(n=1)[0])
    assert went == ["meta"] * 4  # the detector's image, the encoder's, the clip and its mask


def test_a_detector_alone_goes_to_a_device(detector_folder: Path) -> None:
    detector: Any = load_detector(detector_folder, device="meta")
    assert detector.device.type == "meta"
    assert load_detector(detector_folder, device="cpu").device.type == "cpu"  # type: ignore[attr-defined]


def test_a_recogniser_can_be_told_to_use_the_processor(model_folder: Path, frames: Frames) -> None:
    recognizer = Recognizer.load(model_folder, device="cpu")
    assert recognizer.predictor.networks.stream.device == torch.device("cpu")
    recognizer.update(frames(n=1)[0])


@pytest.mark.parametrize(("has_gpu", "expected"), [(True, "cuda"), (False, "cpu")])
def test_auto_takes_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch, has_gpu: bool, expected: str) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: has_gpu)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    assert device_of("auto").type == expected


@pytest.mark.parametrize(
    ("name", "n_gpus", "complaint"),
    [
        ("cuda", 0, r"device 'cuda' is not available here; choose auto or one of: cpu \(or"),
        ("cuda:1", 1, r"device 'cuda:1' is not available here; choose auto or one of: cpu, cuda:0 \(or"),
        ("mps", 0, r"device 'mps' is not available here"),
        ("gpu", 0, r"there is no device 'gpu'; choose auto, cpu, cuda"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, model_folder: Path, name: str, n_gpus: int, complaint: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: n_gpus > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: n_gpus)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    with pytest.raises(InputError, match=complaint):
        load_model(model_folder, device=name)


# ---------------------------------------------------------------------- numbers that are none
def broken_at(network: Any, method: str, image: Any, spoil: Callable[[Any], Any]) -> Any:
    """The same network, whose numbers are spoilt for one image."""
    whole = getattr(network, method)

    def spoilt(images: Any, *args: Any, **options: Any) -> Any:
        found = whole(images, *args, **options)
        hit = [bool(np.array_equal(np.asarray(one)[:4, :4], image[:4, :4])) for one in images]
        return spoil(found, hit)

    return patch.object(network, method, spoilt)


def watched(model: Any, shown: list[Any], method: str, batched: bool) -> None:
    """All frames, one by one or many at a time."""
    if batched:
        list(predict_recording(model.networks, shown))
    else:
        Recognizer.of(model, method, "build").run(shown)


def spoil_rows(value: float) -> Callable[[Any, list[bool]], Any]:
    def spoil(found: Any, hit: list[bool]) -> Any:
        found = np.array(found)
        found[hit] = value
        return found

    return spoil


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("batched", [False, True])
def test_an_encoder_whose_numbers_are_none_is_named_with_the_frame_and_nothing_is_believed(
    seeing: Callable[..., Any], frames: Frames, value: float, batched: bool
) -> None:
    model, shown = seeing(detector=False, temporal_stride=4), frames()
    model.networks.path = Path("models/mine")
    told = r"models/mine/stream: the encoder fails in frame 24: its numbers are not finite; train or export it again"
    with broken_at(model.networks.stream, "embed", shown[24].image, spoil_rows(value)):
        if batched:
            with pytest.raises(InputError, match=told):
                list(predict_recording(model.networks, shown))
            return
        recognizer = Recognizer.of(model, "temporal", "build")
        for frame in shown[:24]:
            recognizer.update(frame)
        before = recognizer.state, recognizer.evidence.tolist()
        with pytest.raises(InputError, match=told):
            recognizer.update(shown[24])
        assert (recognizer.state, recognizer.evidence.tolist()) == before
        for frame in shown[25:]:  # as a station does: it says so, and goes on
            recognizer.update(frame)
        assert np.isfinite(recognizer.evidence).all()


@pytest.mark.parametrize("batched", [False, True])
def test_a_temporal_model_whose_numbers_are_none_is_named_with_the_frame(
    seeing: Callable[..., Any], frames: Frames, batched: bool
) -> None:
    model, shown = seeing(detector=False, temporal_stride=4), frames()
    whole, calls = model.networks.stream.predict, []

    def predict(embedding_BND: Any, mask_BN: Any) -> Any:
        found = np.array(whole(embedding_BND, mask_BN))
        for row in range(len(found)):
            calls.append(row)
            if len(calls) == 4:  # the fourth window ends in frame 12
                found[row, 1, 0] = np.nan
        return found

    told = "the temporal model fails in frame 12: its numbers are not finite"
    with patch.object(model.networks.stream, "predict", predict), pytest.raises(InputError, match=told):
        watched(model, shown, "temporal", batched)


@pytest.mark.parametrize("batched", [False, True])
def test_a_detector_whose_numbers_are_none_is_named_with_the_frame(
    detector_folder: Path, frames: Frames, tmp_path: Path, batched: bool
) -> None:
    """Without a word, nan would be taken for a detection that is not sure enough."""
    model = load_model(pack_model(tmp_path / "model", detector=detector_folder), device="cpu")
    detector: Any = model.networks.detector
    shown, whole = frames(), detector.outputs
    square = letterbox(shown[7].image, detector.image_size)[0]

    def outputs(image_BSS3: Any, shares_B4: Any = None) -> Any:
        found = [output.clone() for output in whole(image_BSS3, shares_B4)]
        for row, image in enumerate(image_BSS3):
            if np.array_equal(image.numpy(), square):
                found[1][row] = torch.nan
        return tuple(found)

    told = r"model/detector: the detector fails in frame 7: its numbers are not finite"
    with patch.object(detector, "outputs", outputs), pytest.raises(InputError, match=told):
        watched(model, shown, "detection", batched)
