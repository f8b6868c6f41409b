"""The default detector: its outputs, its treatment of wrong parts, its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stormpsr.data.places import N_POINTS
from stormpsr.detectors.base import UNKNOWN, Batch, Calibration
from stormpsr.detectors.compact import CompactConfig, CompactDetector, CompactOutput, Targets, WrongParts
from stormpsr.detectors.registry import load_detector, make_detector
from stormpsr.errors import InputError
from stormpsr.models.locator import Motion, crop, points_in_crop
from stormpsr.procedure.model import Procedure

TINY = {"image_size": 64, "backbone": "test_efficientnet", "weights": "none", "width": 16, "crop_size": 32, "heads": 2}
GREY = np.full((48, 80, 3), 120, dtype=np.uint8)


@pytest.fixture(scope="module")
def detector() -> Callable[..., CompactDetector]:
    def make(procedure: Procedure, wrong_parts: WrongParts = "readout") -> CompactDetector:
        torch.manual_seed(0)
        return CompactDetector(procedure, CompactConfig(**TINY, wrong_parts=wrong_parts))  # type: ignore[arg-type]

    return make


# ---------------------------------------------------------------------- looking
def test_one_detection_per_image_with_a_box_inside_it_and_a_reading_of_every_part(
    detector: Callable[..., CompactDetector], lamp: Procedure
) -> None:
    found = detector(lamp).detect([GREY, GREY[:, :48]], min_confidence=0)
    assert [len(row) for row in found] == [1, 1]
    for row, width in zip(found, (80, 48), strict=True):
        x, y, w, h = row[0].box.to_xywh()
        assert x >= -1e-3
        assert y >= -16.1  # the square reaches beyond a wide image
        assert x + w <= width + 1e-3
        assert h > 0
        assert row[0].state_class in range(1, 6)
        assert row[0].parts_C3 is not None
        assert row[0].parts_C3.shape == (3, 3)
        assert np.allclose(row[0].parts_C3.sum(axis=1), 1, atol=1e-5)


def test_images_are_seen_the_same_alone_and_together(detector: Callable[..., CompactDetector], lamp: Procedure) -> None:
    made = detector(lamp)
    images = [np.roll(GREY + np.arange(80, dtype=np.uint8)[:, None], k, axis=1) for k in (0, 9)]
    together = made.detect(images, min_confidence=0)
    alone = [made.detect([picture], min_confidence=0)[0] for picture in images]
    for a, b in zip(together, alone, strict=True):
        assert a[0].confidence == pytest.approx(b[0].confidence, abs=1e-5)
        assert a[0].box.corners == pytest.approx(b[0].box.corners, abs=1e-3)


def test_weak_detections_are_left_out(detector: Callable[..., CompactDetector], lamp: Procedure) -> None:
    made = detector(lamp)
    confidence = made.detect([GREY], min_confidence=0)[0][0].confidence
    assert made.detect([GREY], min_confidence=confidence + 0.01) == [[]]
    made.calibration = Calibration(temperature=1.0, bias=5.0)
    assert made.detect([GREY], min_confidence=0)[0][0].confidence > confidence


def test_of_parts_that_hide_nothing_is_known(lamp: Procedure) -> None:
    torch.manual_seed(0)
    made = CompactDetector(lamp, CompactConfig(**TINY, hidden_parts=True))  # type: ignore[arg-type]
    head = made.network.told_head
    with torch.no_grad():
        head.weight.zero_()
        head.bias.fill_(-20.0)
        hidden = made.detect([GREY], min_confidence=0)[0][0].parts_C3
        head.bias.fill_(20.0)
        shown = made.detect([GREY], min_confidence=0)[0][0].parts_C3
    assert hidden is not None
    assert shown is not None
    np.testing.assert_allclose(hidden, 1 / 3, atol=1e-5)
    assert np.abs(shown - 1 / 3).max() > 0.01


# ---------------------------------------------------------------------- wrong parts
def output(parts: list[list[float]], states: list[float], culprits: list[float]) -> CompactOutput:
    """What the network might say: probabilities as logits."""
    logs = [torch.tensor(values).log()[None] for values in (parts, states, culprits)]
    empty = torch.zeros(1, 1)
    return CompactOutput(empty, logs[1], logs[2], logs[0], None, empty, None)


def chances(made: CompactDetector, said: CompactOutput) -> list[float]:
    return [round(float(p), 3) for p in made._class_probabilities(said, said.part_logits_BC3.softmax(-1))[0]]


SAID = output(
    parts=[[0.1, 0.8, 0.1], [0.1, 0.8, 0.1], [0.1, 0.3, 0.6]],
    states=[0.1, 0.1, 0.1, 0.6, 0.1],  # classes 1, 2, 3, 4 and error
    culprits=[0.1, 0.1, 0.1, 0.3, 0.1, 0.1, 0.2],  # classes 1 to 4, then foot, pole, shade
)


def test_with_an_error_class_the_states_are_taken_as_the_network_gives_them(
    detector: Callable[..., CompactDetector], lamp: Procedure
) -> None:
    assert chances(detector(lamp, "error_class"), SAID) == [0.1, 0.1, 0.1, 0.6, 0.1]


def test_with_classes_per_component_the_error_is_the_sum_of_all_culprits(
    detector: Callable[..., CompactDetector], lamp: Procedure
) -> None:
    assert chances(detector(lamp, "component_classes"), SAID) == [0.1, 0.1, 0.1, 0.3, 0.4]


def test_with_the_readout_the_surest_accusation_decides(
    detector: Callable[..., CompactDetector], lamp: Procedure
) -> None:
    found = chances(detector(lamp, "readout"), SAID)
    assert found[4] == 0.6
    assert found[3] == pytest.approx(0.4 * 0.6 / 0.9, abs=1e-3)
    assert sum(found) == pytest.approx(1, abs=1e-2)


def test_an_unknown_treatment_of_wrong_parts_is_refused(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="wrong_parts is 'hope': it should be 'error_class'"):
        make_detector("compact", lamp, {**TINY, "wrong_parts": "hope"})


# ---------------------------------------------------------------------- losses
def batch(
    readable: list[bool],
    classes: list[int],
    bits: list[list[int]],
    hidden: list[bool] | None = None,
    told: list[list[int]] | None = None,
    places: torch.Tensor | None = None,
) -> Batch:
    n = len(readable)
    return Batch(
        torch.zeros(n, 64, 64, 3, dtype=torch.uint8),
        torch.tensor(readable),
        torch.tensor(hidden or [False] * n),
        torch.tensor([10.0, 10.0, 40.0, 50.0]).expand(n, 4),
        torch.tensor(classes),
        torch.tensor(bits),
        torch.full((n, len(bits[0])), UNKNOWN) if told is None else torch.tensor(told),
        torch.full((n, len(bits[0]), N_POINTS, 2), torch.nan) if places is None else places,
        step=0,
    )


def test_parts_that_show_are_learned_without_a_box_and_those_that_hide_are_not(lamp: Procedure) -> None:
    torch.manual_seed(0)
    made = CompactDetector(lamp, CompactConfig(**TINY, hidden_parts=True))  # type: ignore[arg-type]
    made.network.eval()
    unknown = [UNKNOWN] * 3
    nothing = made.losses(batch([False], [0], [unknown], told=[[0, 0, 0]]))
    assert nothing["parts"] == 0
    assert nothing["state"] == 0
    assert nothing["told"] > 0
    seen = made.losses(batch([False], [0], [[1, UNKNOWN, UNKNOWN]], told=[[1, 0, 0]]))
    assert seen["parts"] > 0
    both = [batch([True], [4], [[1, 1, 1]], told=[[1, 1, last]]) for last in (1, 0)]
    assert made.losses(both[0])["state"] > 0
    assert made.losses(both[1])["state"] == 0  # the state is not to be guessed from the parts that show


def test_every_part_of_the_loss_is_finite_also_without_boxes_and_without_known_parts(
    detector: Callable[..., CompactDetector], lamp: Procedure
) -> None:
    made = detector(lamp)
    made.network.train()
    unknown = [UNKNOWN] * 3
    cases = [
        batch([True, True, False], [5, 4, 0], [[1, 1, -1], [1, 1, 1], unknown]),
        batch([True, False], [5, 0], [unknown, unknown]),
        batch([True, True], [2, 3], [[1, 0, 0], [1, 1, 0]], hidden=[True, True]),
    ]
    for case in cases:
        losses = made.losses(case)
        assert all(torch.isfinite(value) for value in losses.values()), losses
    assert float(made.losses(cases[2])["readable"].detach()) == 0  # nobody checked whether these can be read


def test_early_layers_of_a_trained_backbone_stay_as_they_are(lamp: Procedure, tmp_path: Path) -> None:
    import timm
    from safetensors.torch import save_file

    torch.manual_seed(0)
    save_file(timm.create_model("test_efficientnet").state_dict(), tmp_path / "weights.safetensors")
    settings = {**TINY, "weights": str(tmp_path / "weights.safetensors")}
    frozen, free = (make_detector("compact", lamp, {**settings, "frozen_stride": k}) for k in (4, 0))
    assert isinstance(frozen, CompactDetector)
    assert isinstance(free, CompactDetector)
    case = batch([True, True, False], [5, 4, 0], [[1, 1, -1], [1, 1, 1], [UNKNOWN] * 3])
    for made, learns in ((frozen, False), (free, True)):
        made.network.train()
        torch.stack(list(made.losses(case).values())).sum().backward()
        backbone = made.network.reader.network
        assert (backbone.conv_stem.weight.grad is not None) == learns
        assert (backbone.blocks[1][0].bn1.training) == learns
        assert backbone.blocks[2][0].bn1.training
        assert next(backbone.blocks[2].parameters()).grad is not None


# ---------------------------------------------------------------------- files
def test_a_saved_detector_is_the_same_when_it_is_loaded(
    detector: Callable[..., CompactDetector], lamp: Procedure, tmp_path: Path
) -> None:
    made = detector(lamp, "component_classes")
    made.calibration = Calibration(1.5, -0.25)
    made.metrics = {"map50": 0.5}
    made.save(tmp_path / "detector")
    assert sorted(path.name for path in (tmp_path / "detector").iterdir()) == [
        "config.yaml",
        "metrics.json",
        "model.safetensors",
        "procedure.yaml",
    ]
    loaded: Any = load_detector(tmp_path / "detector", lamp)
    assert loaded.calibration == made.calibration
    assert loaded.metrics == made.metrics
    assert loaded.wrong_parts == "component_classes"
    assert loaded.procedure.states == lamp.states
    ours, theirs = (d.detect([GREY], min_confidence=0)[0][0] for d in (made, loaded))
    assert ours.box == theirs.box
    assert ours.confidence == theirs.confidence


def test_a_detector_of_another_procedure_is_refused_with_its_folder(
    detector: Callable[..., CompactDetector], lamp: Procedure, meccano: Procedure, tmp_path: Path
) -> None:
    detector(lamp).save(tmp_path)
    with pytest.raises(InputError, match="trained for procedure 'lamp'") as caught:
        load_detector(tmp_path, meccano)
    assert caught.value.path == str(tmp_path)
    meccano.save(tmp_path / "procedure.yaml")
    with pytest.raises(InputError, match=r"tensor .* has the shape") as caught:
        load_detector(tmp_path)
    assert caught.value.path == str(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("config.yaml", "kind: [", "this is not YAML"),
        ("config.yaml", "kind: compact", "the key 'settings' is missing"),
        ("config.yaml", "{kind: compact, settings: {colour: red}}", "there is no key 'colour'"),
        ("config.yaml", "{kind: abacus, settings: {}}", "unknown detector 'abacus'"),
        ("config.yaml", "{kind: compact, settings: {image_size: 100}}", "image_size is 100"),
        ("model.safetensors", "nonsense", "the tensors cannot be read"),
        ("model.safetensors", None, "there is no such file"),
    ],
)
def test_a_broken_folder_is_refused_with_the_name_of_the_file(
    detector: Callable[..., CompactDetector],
    lamp: Procedure,
    tmp_path: Path,
    file: str,
    content: str | None,
    complaint: str,
) -> None:
    detector(lamp).save(tmp_path)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(content)
    with pytest.raises(InputError, match=complaint) as caught:
        load_detector(tmp_path)
    assert caught.value.path == str(tmp_path / file)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a detector's folder"):
        load_detector(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        load_detector(tmp_path / "nowhere")


def test_a_network_without_fine_features_is_refused(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="no features at strides 8 and 16"):
        make_detector("compact", lamp, {**TINY, "backbone": "test_vit"})


# ---------------------------------------------------------------------- places of parts
def test_places_are_learned_of_parts_that_show_and_of_no_others(lamp: Procedure) -> None:
    torch.manual_seed(0)
    made = CompactDetector(lamp, CompactConfig(**TINY, hidden_parts=True, places_weight=2.0))  # type: ignore[arg-type]
    made.network.eval()
    inside = torch.full((1, 3, N_POINTS, 2), 30.0)

    def loss(told: list[int], places: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)  # the crop is moved by chance
        return made.losses(batch([True], [1], [[1, 0, 0]], told=[told], places=places))["places"]

    assert loss([1, 1, 1], torch.full_like(inside, torch.nan)) == 0, "nobody measured them"
    assert loss([0, 0, 0], inside) == 0, "behind a hand"
    missing = inside.clone()
    missing[:, 1:, 3:] = torch.nan  # two parts are not mounted: where they belong is known all the same
    assert 0 < loss([1, 1, 1], missing) < 10
    moved = inside.clone()
    moved[:, 0, 3:] += 10.0
    assert loss([1, 0, 0], moved) != loss([1, 0, 0], inside)
    assert loss([1, 1, 1], inside + 1e4) == 0, "so far outside, the crop shows something else"
    missing_loss = loss([1, 1, 1], missing)
    missing_loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in made.network.places.point_head.parameters())


def test_a_detector_with_places_begins_as_the_one_it_goes_on_from(lamp: Procedure) -> None:
    torch.manual_seed(0)
    before = CompactDetector(lamp, CompactConfig(**TINY))  # type: ignore[arg-type]
    after = CompactDetector(lamp, CompactConfig(**TINY, places_weight=1.0))  # type: ignore[arg-type]
    after.network.load_state_dict({**after.network.state_dict(), **before.network.state_dict()})
    one, other = (detector.detect([GREY], min_confidence=0)[0][0] for detector in (before, after))
    assert one.parts_C3 is not None
    assert other.parts_C3 is not None
    assert one.parts_C3 == pytest.approx(other.parts_C3)
    with torch.no_grad():
        after.network.places.judge[-1].bias[2] = 20.0  # whatever moved, it says, sits wrongly
    assert after.detect([GREY], min_confidence=0)[0][0].parts_C3[:, 2] == pytest.approx(np.ones(3), abs=1e-3)  # type: ignore[index]


# ---------------------------------------------------------------------- the crop
def test_the_reader_sees_a_square_around_the_box(detector: Callable[..., CompactDetector], lamp: Procedure) -> None:
    net = detector(lamp).network
    image = torch.full((1, 64, 64, 3), 100, dtype=torch.uint8)
    image[:, 22:38, 12:44] = 200  # a box of 32 by 16 pixels around (28, 30)
    seen = net.crop(image, torch.tensor([[12.0, 22.0, 44.0, 38.0]]) / 64)
    assert seen.shape == (1, 32, 32, 3)
    rows, columns = (seen[0, ..., 0] > 150).nonzero(as_tuple=True)
    # the square is a quarter wider than the box, so the box fills 4/5 of its width and 2/5 of its height
    assert (int(columns.min()), int(columns.max())) == (3, 28)
    assert int(rows.max() - rows.min()) + 1 == pytest.approx(13, abs=1)
    assert int(rows.min() + rows.max()) == 31  # in the middle


def test_in_training_the_crop_is_turned_and_moved_and_corrected(
    detector: Callable[..., CompactDetector], lamp: Procedure
) -> None:
    net = detector(lamp).network
    image = torch.rand(2, 64, 64, 3) * 255
    true = torch.tensor([[12.0, 22.0, 44.0, 38.0]]).repeat(2, 1)
    unknown = torch.full((2, 3), UNKNOWN)
    yes = torch.ones(2, dtype=torch.bool)
    truth = Targets(yes, yes, true, torch.zeros(2), unknown, unknown, torch.full((2, 3, N_POINTS, 2), torch.nan))
    crops = []
    for proposed in (true, true + 30):  # the second misses, and is replaced by the true one
        torch.manual_seed(1)
        crops.append(net.crop(image, *net.training_view(proposed / 64, truth)))
    assert torch.equal(crops[0], crops[1])
    assert not torch.allclose(crops[0], net.crop(image, true / 64), atol=10)


def test_points_are_where_the_crop_shows_them() -> None:
    image = torch.zeros(2, 64, 64, 3)
    image[:, 20:22, 30:32] = 255.0  # a spot around (31, 21)
    corners = torch.tensor([[12.0, 10.0, 44.0, 38.0]]).repeat(2, 1) / 64
    motion = Motion(torch.tensor([0.6, -0.3]), torch.tensor([1.1, 0.9]), torch.tensor([[0.1, -0.1], [0.0, 0.05]]))
    seen = crop(image, corners, 96, motion)[..., 0]
    places = points_in_crop(torch.tensor([[[31.0, 21.0]]]).repeat(2, 1, 1) / 64, corners, motion)
    for spot, (x, y) in zip(seen, places[:, 0].tolist(), strict=True):
        rows, columns = (spot > 128).nonzero(as_tuple=True)
        middle = (float(columns.float().mean()) + 0.5, float(rows.float().mean()) + 0.5)
        assert middle == pytest.approx(((x + 1) * 48, (y + 1) * 48), abs=0.6)


def test_a_crop_size_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="crop_size is 100"):
        CompactConfig(crop_size=100)
