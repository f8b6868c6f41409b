"""Every kind of network becomes a graph that says what torch says, of however many images; what cannot says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from stormpsr.data.images import Placement
from stormpsr.detectors.base import Detection, StateDetector, TorchDetector
from stormpsr.detectors.registry import load_detector, make_detector
from stormpsr.errors import InputError
from stormpsr.models.encoder import SpatialEncoder
from stormpsr.models.temporal import TEMPORAL_MODELS, make_temporal
from stormpsr.procedure.model import Procedure
from stormpsr.runtime.export import export_detector, export_encoder, export_temporal
from stormpsr.runtime.exported import ExportedDetector
from stormpsr.runtime.graphs import OPSET, open_graph

N, D, C = 8, 16, 3
SMALL: dict[str, dict[str, Any]] = {
    "transformer": {"width": 16, "layers": 2, "heads": 2, "mlp_width": 32},
    "lstm": {"width": 16, "layers": 2},
    "tcn": {"width": 16},
    "mlp": {"width": 16, "hidden_width": 16},
    "states": {"members": 2, "queries": 4, "context": 4, "hidden_width": 16},
}
COMPACT = {"image_size": 64, "backbone": "test_efficientnet", "weights": "none", "width": 16, "heads": 2}


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


# ---------------------------------------------------------------------- temporal models
@pytest.mark.parametrize("kind", TEMPORAL_MODELS)
def test_every_temporal_model_says_the_same_without_torch(kind: str, tmp_path: Path) -> None:
    config = TEMPORAL_MODELS[kind][0](kind=kind, **SMALL[kind])
    model: Any = make_temporal(config, embedding_dim=D, n_window=N, n_components=C).eval()
    export_temporal(model, (N, D), tmp_path)
    run = open_graph(tmp_path / "temporal.onnx", "onnx", threads=1)
    clip_BND, mask_BN = torch.randn(3, N, D), torch.arange(N) >= torch.tensor([[0], [5], [7]])
    with torch.inference_mode():
        wanted = model.outputs(clip_BND, mask_BN).numpy()
    for n in (1, 3):
        found = run(clip_BND[:n].numpy(), mask_BN[:n].numpy())[0]
        np.testing.assert_allclose(found, wanted[:n], atol=1e-4)


def test_the_graph_states_its_opset_and_one_open_axis(tmp_path: Path) -> None:
    model = nn.Module()
    model.forward = lambda clip_BND, mask_BN: (clip_BND * mask_BN[:, :, None]).sum(dim=1)[:, :C]
    export_temporal(model, (N, D), tmp_path)  # a class of somebody's own, which knows of changes only
    graph = onnx.load(tmp_path / "temporal.onnx")
    assert [entry.version for entry in graph.opset_import if not entry.domain] == [OPSET]
    for entry, fixed in zip(graph.graph.input, ([N, D], [N]), strict=True):
        first, *others = entry.type.tensor_type.shape.dim
        assert first.dim_param
        assert [size.dim_value for size in others] == fixed


class _Frozen(nn.Module):
    def forward(self, clip_BND: Tensor, mask_BN: Tensor) -> Tensor:
        rows = [clip_BND[k].mean(dim=0)[:C] for k in range(len(clip_BND))]  # as many rows as the example has
        return torch.stack(rows)


class _Stubborn(nn.Module):
    def forward(self, clip_BND: Tensor, mask_BN: Tensor) -> Tensor:
        return clip_BND[:, 0, :C] * float(np.mean(clip_BND.numpy()))


@pytest.mark.parametrize("kind", [_Frozen, _Stubborn])
def test_a_model_that_cannot_be_exported_is_named(kind: type[nn.Module], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"the temporal model \({kind.__name__}\) cannot be exported .*needs torch"):
        export_temporal(kind(), (N, D), tmp_path)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- encoders
@pytest.mark.parametrize(
    ("backbone", "more"),
    [
        ("vit_small_patch16_224", {"image_size": 32}),
        ("tf_efficientnet_lite0", {"image_size": 64}),
        ("test_efficientnet", {"image_size": 64, "crop_size": 32, "n_queries": 4}),
    ],
)
def test_encoders_give_the_same_embeddings_without_torch(backbone: str, more: dict[str, int], tmp_path: Path) -> None:
    encoder = SpatialEncoder(backbone=backbone, weights="none", embedding_dim=D, projection_norm="batch", **more).eval()
    export_encoder(encoder, tmp_path)
    image_BSS3 = torch.randint(0, 256, (3, encoder.image_size, encoder.image_size, 3), dtype=torch.uint8)
    with torch.inference_mode():
        wanted = encoder.embed(image_BSS3).numpy()
    inputs = [image_BSS3.numpy()]
    if encoder.locator is not None:
        inputs += open_graph(tmp_path / "locator.onnx", "onnx", threads=1)(inputs[0])
    run = open_graph(tmp_path / "encoder.onnx", "onnx", threads=1)
    for n in (1, 3):
        np.testing.assert_allclose(run(*(array[:n] for array in inputs))[0], wanted[:n], atol=1e-4)


# ---------------------------------------------------------------------- detectors
def exported(detector: Any, folder: Path) -> ExportedDetector:
    detector.save(folder)
    export_detector(detector, folder).save(folder)
    (folder / "model.safetensors").unlink()
    loaded = load_detector(folder, threads=1)
    assert isinstance(loaded, ExportedDetector)
    return loaded


def same_detections(detector: StateDetector, other: StateDetector) -> None:
    images = [np.random.default_rng(k).integers(0, 256, (48, 64, 3), dtype=np.uint8) for k in range(3)]
    for ours, theirs in zip(
        detector.detect(images, min_confidence=0), other.detect(images, min_confidence=0), strict=True
    ):
        assert [d.state_class for d in ours] == [d.state_class for d in theirs]
        for one, two in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one.box.corners, two.box.corners, atol=1e-2)
            assert one.confidence == pytest.approx(two.confidence, abs=1e-4)
            assert (one.parts_C3 is None) == (two.parts_C3 is None)
            if one.parts_C3 is not None and two.parts_C3 is not None:
                np.testing.assert_allclose(one.parts_C3, two.parts_C3, atol=1e-4)


@pytest.mark.parametrize("wrong_parts", ["readout", "component_classes", "error_class"])
def test_a_compact_detector_finds_the_same_without_torch(wrong_parts: str, tmp_path: Path, lamp: Procedure) -> None:
    detector: Any = make_detector("compact", lamp, {**COMPACT, "wrong_parts": wrong_parts})
    same_detections(detector, exported(detector, tmp_path / "detector"))


@pytest.mark.skipif(find_spec("libreyolo") is None, reason="libreyolo is not installed")
def test_a_yolox_finds_the_same_without_torch(tmp_path: Path, lamp: Procedure) -> None:
    detector: Any = make_detector("yolox", lamp, {"image_size": 64})
    same_detections(detector, exported(detector, tmp_path / "detector"))


@pytest.mark.skipif(find_spec("ultralytics") is None, reason="ultralytics is not installed")
def test_a_yolov8_finds_the_same_without_torch(tmp_path: Path, lamp: Procedure) -> None:
    detector: Any = make_detector("yolov8", lamp, {"model": "yolov8n", "image_size": 64})
    same_detections(detector, exported(detector, tmp_path / "detector"))


class OwnDetector(TorchDetector):
    """Says nothing of how its detections come about."""

    def __init__(self, procedure: Procedure) -> None:
        super().__init__(procedure)
        self.network, self.image_size = nn.Linear(1, 1), 32

    def raw_detections(self, image_BSS3: Tensor, placements: Sequence[Placement]) -> list[list[Detection]]:
        return [[] for _ in placements]


def test_a_detector_without_outputs_cannot_be_exported_and_is_told_how(tmp_path: Path, lamp: Procedure) -> None:
    with pytest.raises(InputError, match=r"a detector of kind '.*:OwnDetector' cannot be exported; give its class"):
        export_detector(OwnDetector(lamp), tmp_path)


# ---------------------------------------------------------------------- what is wrong with a folder
@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, lamp: Procedure) -> Path:
    place = tmp_path_factory.mktemp("exported") / "detector"
    exported(make_detector("compact", lamp, COMPACT), place)
    return place


def broken(folder: Path, name: str, change: Callable[[bytes], bytes | None], tmp_path: Path) -> Path:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in folder.iterdir():
        content: bytes | None = path.read_bytes()
        content = change(content) if path.name == name and content is not None else content
        if content is not None:
            (copy / path.name).write_bytes(content)
    return copy


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("locator.onnx", lambda _: None, r"locator.onnx: there is no such file; .* export it again"),
        ("detector.onnx", lambda content: content[:999], r"detector.onnx: this graph cannot be run .*; export"),
        (
            "graphs.json",
            lambda content: content.replace(b"graphs 1", b"graphs 9"),
            "the format is .*graphs 9'",
        ),
        ("graphs.json", lambda content: content.replace(b'"onnx"', b'"tea"'), r"graphs.json:\d+: .*engine"),
        ("graphs.json", lambda content: content.replace(b'"single"', b'"tea"'), r"there is no readout 'tea'"),
        ("graphs.json", partial(re.sub, rb'("image_size": )\d+', rb"\1-1"), r"graphs.json:\d+: .*image_size"),
        ("graphs.json", partial(re.sub, rb'("image_size": )\d+', rb"\g<1>1000000"), r"graphs.json:\d+: .*image_size"),
    ],
)
def test_a_broken_folder_is_refused_with_the_cure(
    folder: Path, tmp_path: Path, name: str, change: Callable[[bytes], bytes | None], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        load_detector(broken(folder, name, change, tmp_path))


def test_classes_that_are_not_those_of_the_network_are_refused(folder: Path, tmp_path: Path) -> None:
    fewer = partial(re.sub, rb'"classes": \[.*?\]', b'"classes": [1]', flags=re.DOTALL)
    few = broken(folder, "graphs.json", lambda content: fewer(content), tmp_path)
    detector = load_detector(few, threads=1)
    with pytest.raises(InputError, match=r"it tells \d+ classes apart, and 1 are named; export the model again"):
        detector.detect([np.zeros((48, 64, 3), dtype=np.uint8)])


def test_an_exported_detector_stays_on_the_processor(folder: Path) -> None:
    with pytest.raises(InputError, match="cannot compute on 'cuda'; choose cpu"):
        load_detector(folder, device="cuda")
