"""The locator and the crop around what it finds, and reading features by queries."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from stormpsr.models.torchvision_ops import make_torchvision_importable  # noqa: E402

make_torchvision_importable()
pytest.importorskip("timm", reason="needs the train extra")

from stormpsr.errors import InputError  # noqa: E402
from stormpsr.models.encoder import SpatialEncoder  # noqa: E402
from stormpsr.models.locator import Locator, crop, overlap  # noqa: E402


def squares(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A bright square somewhere on a dark picture of 40 pixels, and its corners."""
    generator = torch.Generator().manual_seed(seed)
    image_BSS3 = torch.randint(0, 60, (n, 40, 40, 3), dtype=torch.uint8, generator=generator)
    left_B2 = torch.randint(0, 24, (n, 2), generator=generator)
    for picture, (x, y) in zip(image_BSS3, left_B2.tolist(), strict=True):
        picture[y : y + 16, x : x + 16] = 220
    return image_BSS3, torch.cat([left_B2, left_B2 + 16], dim=1) / 40


def test_a_locator_learns_to_find_a_square() -> None:
    torch.manual_seed(0)
    locator = Locator()
    optimiser = torch.optim.AdamW(locator.parameters(), lr=3e-3)
    image_BSS3, corners_B4 = squares(64)
    for _ in range(40):
        optimiser.zero_grad()
        locator.loss(image_BSS3, corners_B4).backward()
        optimiser.step()
    locator.eval()
    seen, truth = squares(32, seed=1)
    with torch.no_grad():
        assert overlap(locator.locate(seen), truth).mean() > 0.5


def test_a_crop_shows_the_box_in_its_middle_and_black_beyond_the_border() -> None:
    image = torch.full((1, 40, 40, 3), 100, dtype=torch.uint8)
    image[0, 10:20, 10:20] = 250
    inside = crop(image, torch.tensor([[0.25, 0.25, 0.5, 0.5]]), 12)[0, ..., 0]
    assert inside[6, 6] == pytest.approx(250)  # the box fills the middle ten of twelve pixels
    assert inside[0, 0] < 250
    corner = crop(image, torch.tensor([[0.0, 0.0, 0.25, 0.25]]), 12)[0, ..., 0]
    assert corner[0, 0] < corner[6, 6]


def test_overlap_of_half_a_box_is_a_third() -> None:
    a, b = torch.tensor([[0.0, 0.0, 0.4, 0.4]]), torch.tensor([[0.2, 0.0, 0.6, 0.4]])
    assert overlap(a, b).item() == pytest.approx(1 / 3)
    assert overlap(a, torch.tensor([[0.5, 0.5, 0.6, 0.6]])).item() == 0


def encoder(**changes: object) -> SpatialEncoder:
    settings = {"backbone": "mobilenetv4_conv_small_050", "weights": "none", "image_size": 64, "embedding_dim": 32}
    return SpatialEncoder(**{**settings, "projection_norm": "batch", "n_queries": 4, **changes})


def test_an_encoder_with_a_locator_sees_only_what_is_around_the_assembly() -> None:
    model = encoder(crop_size=32).eval()
    image = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    corners = model.locator.locate(image)
    torch.testing.assert_close(model.look_at(image), crop(image, corners, 32))
    assert model.embed(image).shape == (2, 32)


def test_training_an_encoder_leaves_its_locator_as_it_is() -> None:
    model = encoder(crop_size=32)
    before = {name: tensor.clone() for name, tensor in model.locator.state_dict().items()}
    model.train()
    model(torch.randint(0, 256, (4, 64, 64, 3), dtype=torch.uint8)).sum().backward()
    assert all(parameter.grad is None for parameter in model.locator.parameters())
    for name, tensor in model.locator.state_dict().items():
        torch.testing.assert_close(tensor, before[name])


def test_queries_read_features_wherever_they_are() -> None:
    """Self-attention without positions does not care where a token stands: only the convolutions' padding does."""
    model = encoder().eval().backbone
    tokens = torch.randn(1, 5, model.query_QD.shape[1])
    query = model.query_QD.expand(1, -1, -1)
    shuffled = tokens[:, torch.tensor([3, 1, 4, 0, 2])]
    torch.testing.assert_close(model.look(query, tokens, tokens)[0], model.look(query, shuffled, shuffled)[0])


def test_frozen_layers_neither_learn_nor_change_their_statistics() -> None:
    model = encoder(frozen_stride=4).train()
    assert model.backbone._frozen
    image = torch.randint(0, 256, (4, 64, 64, 3), dtype=torch.uint8)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model(image).sum().backward()
    for layer in model.backbone._frozen:
        assert not layer.training
        assert all(parameter.grad is None for parameter in layer.parameters(recurse=False))
    changed = [name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])]
    assert changed  # later layers do
    assert not any(name.startswith("backbone.network.conv_stem") for name in changed)


def test_a_network_without_features_at_stride_16_cannot_be_read() -> None:
    with pytest.raises(InputError, match="no features at stride 16"):
        encoder(backbone="vit_small_patch32_224", n_queries=4)
