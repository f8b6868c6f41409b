"""The paper's presets at full size: local weights, 224 pixels, 64 of 256 frames, one real step of the optimisers."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
import torch

from stormpsr.config import load_config
from stormpsr.models.backbones import create_backbone
from stormpsr.models.encoder import supervised_contrastive_loss
from stormpsr.models.stream import SpatioTemporalModel, build_stream
from stormpsr.procedure.model import Procedure
from stormpsr.training.fit import make_optimiser

NAME = "vit_small_patch16_224.augreg_in21k"


@pytest.fixture(scope="module")
def saved_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from safetensors.torch import save_file

    torch.manual_seed(1)
    path = tmp_path_factory.mktemp("weights") / "vit_small.safetensors"
    save_file(create_backbone(NAME, image_size=224, out_dim=1000, weights="none").state_dict(), path)
    return path


@pytest.fixture(scope="module", params=["paper-industreal", "paper-meccano"])
def stream(request: pytest.FixtureRequest, saved_weights: Path) -> SpatioTemporalModel:
    config = load_config(request.param, [f"encoder.weights={saved_weights}"])
    assert config.procedure is not None
    return build_stream(config, Procedure.load(config.procedure).n_components)


def test_a_preset_starts_from_the_saved_weights(stream: SpatioTemporalModel, saved_weights: Path) -> None:
    from safetensors.torch import load_file

    name = "blocks.11.mlp.fc1.weight"
    torch.testing.assert_close(stream.encoder.backbone.state_dict()[name], load_file(saved_weights)[name])
    assert stream.encoder.backbone.head.out_features == 128


@pytest.mark.skipif("STORMPSR_SLOW" not in os.environ, reason="takes a minute and 5 GB; STORMPSR_SLOW=1 runs it")
def test_encoder_and_both_together_take_a_step_at_paper_size(stream: SpatioTemporalModel) -> None:
    config = load_config("paper-meccano")
    size, n = config.encoder.image_size, config.clips.n_window
    images = torch.randint(0, 256, (1, n, size, size, 3), dtype=torch.uint8)
    mask_BN = torch.ones(1, n, dtype=torch.bool)
    n_components = stream.temporal.head[-1].out_features
    target_BC = torch.ones(1, n_components)

    def encoder_loss() -> torch.Tensor:
        return supervised_contrastive_loss(
            stream.encoder(images[0, :4]), torch.tensor([0, 0, 1, 1]), temperature=0.07, margin=0.01, form="paper"
        )

    def joint_loss() -> torch.Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(stream(images, mask_BN), target_BC)

    for stage, groups, loss in (
        (config.train_encoder, [(stream.encoder, 1e-3)], encoder_loss),
        (config.train_joint, [(stream.encoder, 1e-5), (stream.temporal, 1e-3)], joint_loss),
    ):
        optimiser = make_optimiser(stage, groups, steps_per_epoch=10)["optimizer"]
        before = [p.detach().clone() for p in stream.encoder.backbone.patch_embed.parameters()]
        loss().backward()
        optimiser.step()
        optimiser.zero_grad()
        after = list(stream.encoder.backbone.patch_embed.parameters())
        assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 16e6  # kB
