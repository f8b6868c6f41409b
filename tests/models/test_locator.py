"""The locator and the crop around what it finds, and reading features by queries."""

from __future__ import annotations

import pytest
import torch

from stormpsr.errors import InputError
from stormpsr.models.encoder import SpatialEncoder
from stormpsr.models.locator import Locator, Motion, _around, box_iou, crop, generalized_box_iou


def squares(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A bright square somewhere on a dark image of 40 pixels, and its corners."""
    generator = torch.Generator().manual_seed(seed)
    image_BSS3 = torch.randint(0, 60, (n, 40, 40, 3), dtype=torch.uint8, generator=generator)
    left_B2 = torch.randint(0, 24, (n, 2), generator=generator)
    for picture, (x, y) in zip(image_BSS3, left_B2.tolist(), strict=True):
        picture[y : y + 16, x : x + 16] = 220
    return image_BSS3, torch.cat([left_B2, left_B2 + 16], dim=1) / 40


def test_training_lowers_the_loss_of_a_locator() -> None:
    torch.manual_seed(0)
    locator = Locator()
    optimiser = torch.optim.AdamW(locator.parameters(), lr=3e-3)
    image_BSS3, corners_B4 = squares(64)
    losses = []
    for _ in range(25):
        optimiser.zero_grad()
        loss = locator.loss(image_BSS3, corners_B4)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert all((parameter.grad != 0).any() for parameter in locator.parameters() if parameter.grad is not None)
    assert losses[-1] < losses[0] / 2


def test_boxes_are_learnt_in_the_cells_around_the_middle_as_well() -> None:
    assert _around(torch.tensor([21])).tolist() == [[0, 1, 2, 20, 21, 22, 40, 41, 42]]
    assert set(_around(torch.tensor([0]))[0].tolist()) == {0, 1, 20, 21}


def test_a_crop_shows_the_box_in_its_middle_and_grey_beyond_the_border() -> None:
    image = torch.full((1, 40, 40, 3), 10, dtype=torch.uint8)
    image[0, 10:20, 10:20] = 250
    inside = crop(image, torch.tensor([[0.25, 0.25, 0.5, 0.5]]), 20)[0, ..., 0]
    assert inside[2:18, 2:18].min() > 120  # the box fills the middle four fifths
    assert inside[0, 0] < 20
    corner = crop(image, torch.tensor([[0.0, 0.0, 0.25, 0.25]]), 20)[0, ..., 0]
    assert corner[0, 0] == pytest.approx(127.5)
    assert corner[10, 10] == pytest.approx(10)


def test_a_crop_is_a_graph_for_any_number_of_images() -> None:
    class Crop(torch.nn.Module):
        def forward(self, image_BSS3: torch.Tensor, corners_B4: torch.Tensor) -> torch.Tensor:
            return crop(image_BSS3, corners_B4, 20)

    batch = {0: torch.export.Dim("batch", min=1, max=8)}
    graph = torch.export.export(Crop(), squares(2), dynamic_shapes=(batch, batch)).module()
    torch.testing.assert_close(graph(*squares(5)), crop(*squares(5), 20))


def test_a_crop_can_be_moved_turned_and_widened() -> None:
    image = torch.zeros(1, 40, 40, 3, dtype=torch.uint8)
    image[0, 10:20, 10:30] = 250  # twice as wide as high
    box = torch.tensor([[0.25, 0.25, 0.75, 0.5]])
    still, one = torch.zeros(1), torch.ones(1)

    def size(motion: Motion) -> tuple[int, int]:
        rows, columns = (crop(image, box, 40, motion)[0, ..., 0] > 190).nonzero(as_tuple=True)
        return int(columns.max() - columns.min()) + 1, int(rows.max() - rows.min()) + 1

    wide = size(Motion(still, one, torch.zeros(1, 2)))
    assert wide[0] > 1.8 * wide[1]
    turned = size(Motion(one * torch.pi / 2, one, torch.zeros(1, 2)))
    assert turned == wide[::-1]
    assert size(Motion(still, 1.5 * one, torch.zeros(1, 2)))[0] < 0.75 * wide[0]
    moved = crop(image, box, 40, Motion(still, one, torch.tensor([[0.5, 0.0]])))[0, 20, :, 0]
    assert moved[2] > 190 > moved[30]  # what is shown moved to the right, so the box is at the left


def test_boxes_that_are_apart_can_still_be_told_apart() -> None:
    box = torch.tensor([[0.0, 0.0, 0.2, 0.2]])
    near, far = torch.tensor([[0.3, 0.0, 0.5, 0.2]]), torch.tensor([[0.7, 0.0, 0.9, 0.2]])
    assert generalized_box_iou(box, box).item() == pytest.approx(1)
    assert 0 > generalized_box_iou(box, near).item() > generalized_box_iou(box, far).item()


def test_overlap_of_half_a_box_is_a_third() -> None:
    a, b = torch.tensor([[0.0, 0.0, 0.4, 0.4]]), torch.tensor([[0.2, 0.0, 0.6, 0.4]])
    assert box_iou(a, b).item() == pytest.approx(1 / 3)
    assert box_iou(a, torch.tensor([[0.5, 0.5, 0.6, 0.6]])).item() == 0


def encoder(**changes: object) -> SpatialEncoder:
    settings = {"backbone": "mobilenetv4_conv_small_050", "weights": "none", "image_size": 64, "embedding_dim": 32}
    return SpatialEncoder(**{**settings, "projection_norm": "batch", "n_queries": 4, **changes})


def test_an_encoder_with_a_locator_sees_only_what_is_around_the_assembly() -> None:
    model = encoder(crop_size=32).eval()
    image = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    corners = model.locator.locate(image)
    torch.testing.assert_close(model.crop_assembly(image), crop(image, corners, 32))
    assert model.embed(image).shape == (2, 32)


def test_training_an_encoder_leaves_its_locator_as_it_is() -> None:
    model = encoder(crop_size=32)
    before = {name: tensor.clone() for name, tensor in model.locator.state_dict().items()}
    model.train()
    model(torch.randint(0, 256, (4, 64, 64, 3), dtype=torch.uint8)).sum().backward()
    assert all(parameter.grad is None for parameter in model.locator.parameters())
    for name, tensor in model.locator.state_dict().items():
        torch.testing.assert_close(tensor, before[name])


def test_queries_know_where_a_feature_is() -> None:
    """Tokens carry their place: left and right are different parts."""
    reader = encoder().eval().backbone.reader
    image = torch.rand(1, 3, 64, 64)
    assert not torch.allclose(reader(image), reader(image.flip(3)), atol=1e-3)
    assert reader(image).shape == (1, 4, 96)
    assert reader.position_TD.shape == (8 * 8, 96)


def test_frozen_layers_neither_learn_nor_change_their_statistics() -> None:
    model = encoder(frozen_stride=4).train()
    assert model.backbone.reader._frozen
    image = torch.randint(0, 256, (4, 64, 64, 3), dtype=torch.uint8)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model(image).sum().backward()
    for layer in model.backbone.reader._frozen:
        assert not layer.training
        assert all(parameter.grad is None for parameter in layer.parameters(recurse=False))
    changed = [name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])]
    assert changed  # later layers do
    assert not any(name.startswith("backbone.reader.network.conv_stem") for name in changed)


def test_images_that_do_not_fit_cannot_be_read() -> None:
    with pytest.raises(InputError, match="multiple of 16"):
        encoder(crop_size=40)


def test_a_network_without_features_at_strides_8_and_16_cannot_be_read() -> None:
    with pytest.raises(InputError, match="no features at strides 8 and 16"):
        encoder(backbone="vit_small_patch32_224", n_queries=4)
