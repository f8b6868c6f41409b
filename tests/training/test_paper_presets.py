"""What the paper's presets mean, what the released program's do instead, and what the dry run says of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from stormpsr.config import load_config
from stormpsr.data.dataset import Dataset
from stormpsr.data.labels import read_states
from stormpsr.data.layouts import find_recordings
from stormpsr.data.sampling import KeyFrameSampler, end_frame_probabilities, key_frames
from stormpsr.errors import InputError
from stormpsr.models import backbones
from stormpsr.models.checkpoint import load_checkpoint
from stormpsr.models.stream import build_encoder, build_temporal
from stormpsr.procedure.model import Procedure
from stormpsr.recognizer.model_folder import settings_of_training
from stormpsr.training.data import training_data_of
from stormpsr.training.fit import FitOptions
from stormpsr.training.plan import check_run, plan_stage
from stormpsr.training.stages import Run, train_encoder, train_temporal

PAPER, RELEASED = ("paper-industreal", "paper-meccano", "paper-small"), ("released-industreal", "released-meccano")


# ---------------------------------------------------------------------- settings
def test_key_frames_of_meccano_are_of_the_eleven_states_and_twenty_frames(
    meccano_psr: Path, meccano: Procedure
) -> None:
    settings = load_config("paper-meccano").key_frames
    folders = find_recordings(meccano_psr, "train")
    timelines = [read_states(folder.path / "PSR_labels_raw.csv", meccano) for folder in folders]
    listed = {state.bits for state in meccano.states if state.bits is not None}
    assert settings.after_fps is not None
    frames = key_frames(
        timelines,
        [timeline.frames[-1] + 1000 for timeline in timelines],
        fps=settings.after_fps,
        after_seconds=settings.after_seconds,
        wrong_states=settings.wrong_states,
        initial_state=settings.initial_state,
        listed=listed if settings.states == "listed" else None,
    )
    sampler = KeyFrameSampler(
        frames, n_sample=settings.n_sample, n_syn=settings.n_syn, states_per_batch=settings.states_per_batch, seed=0
    )
    assert (len(frames.states), sampler.batch_size) == (11, 176)
    of_one = frames.frame_M[(frames.recording_M == 0) & (frames.label_M == frames.label_M[-1])]
    assert len(of_one) in (0, 20)


@pytest.mark.parametrize("preset", PAPER)
def test_a_packed_model_of_the_paper_averages_without_a_cut(preset: str) -> None:
    settings = settings_of_training(load_config(preset)).of_method("average")
    assert settings.min_change_probability == 0
    assert settings.threshold == (1.0 if preset == "paper-meccano" else 6.0)


@pytest.mark.parametrize("preset", ["synthetic", "trial"])
def test_other_presets_leave_methods_as_they_are(preset: str) -> None:
    assert settings_of_training(load_config(preset)).methods == {}


@pytest.mark.parametrize("preset", RELEASED)
def test_the_released_program_is_cut_at_a_half_and_uses_the_common_loss(preset: str) -> None:
    config = load_config(preset)
    assert (config.train_encoder.loss_form, config.train_encoder.margin, config.clips.sigma_frames) == ("common", 0, 15)
    assert settings_of_training(config).of_method("average").min_change_probability == 0.5


# ---------------------------------------------------------------------- networks
def test_embeddings_as_released_have_unit_length_and_come_from_the_features(settings_file: Path) -> None:
    config = load_config(settings_file, ["encoder.head_on_features=true", "encoder.embedding_norm=l2"])
    encoder = build_encoder(config.encoder).eval()
    images = torch.randint(0, 256, (3, 32, 32, 3), dtype=torch.uint8)
    embedding_BD = encoder.embed(images)
    assert embedding_BD.shape == (3, 16)
    torch.testing.assert_close(embedding_BD.norm(dim=1), torch.ones(3))
    assert encoder.backbone(encoder.normalise(images)).shape[1] == encoder.first_projection[0].in_features
    plain = build_encoder(load_config(settings_file, ["encoder.head_on_features=true"]).encoder).eval()
    plain.load_state_dict(encoder.state_dict())
    torch.testing.assert_close(plain(images), encoder(images))  # z is made of what has not been normalised


def test_heads_may_be_wider_than_their_share_and_hidden_frames_have_no_say(settings_file: Path) -> None:
    config = load_config(settings_file, ["temporal.head_width=8", "temporal.classifier=linear"])
    torch.manual_seed(0)
    model = build_temporal(config, 3).eval()
    clip, mask = torch.randn(2, 8, 16), torch.ones(2, 8, dtype=torch.bool)
    mask[:, :3] = False
    changed = clip.clone()
    changed[:, :3] = 100
    assert model(clip, mask).shape == (2, 3)
    torch.testing.assert_close(model(clip, mask), model(changed, mask))
    inner = model.encoder.layers[0].to_qkv.out_features
    assert inner == 3 * 2 * 8  # heads of 8 dimensions, where their share of the width is 8 as well: two heads
    assert isinstance(model.head[0], torch.nn.LayerNorm)


def test_the_memory_may_be_a_gru(settings_file: Path) -> None:
    config = load_config(settings_file, ["temporal.kind=lstm", "temporal.cell=gru", "temporal.width=8"])
    assert isinstance(build_temporal(config, 3).lstm, torch.nn.GRU)


# ---------------------------------------------------------------------- sampling
def test_positive_clips_are_drawn_as_often_as_all_others() -> None:
    probability_F = end_frame_probabilities(
        "positive", np.array([20, 24]), 100, delta_frames=1, sigma_frames=1, window_frames=10
    )
    assert probability_F.sum() == pytest.approx(1)
    assert probability_F[20:34].sum() == pytest.approx(0.5)  # a clip that ends in 33 still holds frame 24
    assert len(np.unique(probability_F.round(9))) == 2


# ---------------------------------------------------------------------- without key-frame sampling
@pytest.fixture
def run(whole_world: Path, tmp_path: Path, settings_file: Path) -> Run:
    config = load_config(settings_file, ["train_encoder.epochs=0", "train_temporal.epochs=1"])
    options = FitOptions(device="cpu")
    return Run(config, training_data_of(Dataset.open(whole_world)), tmp_path / "run", options=options)


def test_an_encoder_may_be_left_as_it_begins(run: Run) -> None:
    assert check_run(run, ["encoder", "temporal"], skip_finished=True) == ["encoder", "temporal"]
    checkpoint = load_checkpoint(train_encoder(run))
    torch.manual_seed(run.config.seed)
    fresh = build_encoder(run.config.encoder).state_dict()
    for name, tensor in checkpoint.encoder().state_dict().items():
        torch.testing.assert_close(tensor, fresh[name])
    assert run.stage("encoder").is_finished
    assert load_checkpoint(train_temporal(run, run.stage("encoder").best)).stream() is not None


def test_runs_that_share_a_cache_share_embeddings(run: Run, tmp_path: Path) -> None:
    from dataclasses import replace

    stores = []
    for name in ("one", "two"):
        own = replace(run, folder=tmp_path / name, cache_folder=tmp_path / "cache")
        train_temporal(own, train_encoder(own))
        stores.append(sorted((tmp_path / "cache" / "embeddings").iterdir()))
        assert not (tmp_path / name / "embeddings").exists()
    assert len(stores[0]) == 1
    assert stores[0] == stores[1]


# ---------------------------------------------------------------------- the dry run
def test_the_dry_run_estimates_memory_in_proportion_to_a_batch(
    run: Run, whole_world: Path, settings_file: Path
) -> None:
    from dataclasses import replace

    plans = []
    for size in (8, 16):
        config = load_config(settings_file, [f"train_temporal.batch_size={size}"])
        plans.append(plan_stage(replace(run, config=config), "temporal", lambda: 0.0))
    weights = 3 * 4 * sum(p.numel() for p in build_temporal(load_config(settings_file), 3).parameters())
    kept = [plan.memory_bytes - weights for plan in plans]
    assert kept[0] > 0
    assert 1.5 < plans[1].memory_bytes / plans[0].memory_bytes < 2.5


def test_a_hub_that_cannot_be_reached_is_said_before_training(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from dataclasses import replace

    asked: list[str] = []

    class Hub:
        @staticmethod
        def try_to_load_from_cache(repository: str, file: str) -> None:
            asked.append(repository)

        @staticmethod
        def hf_hub_url(repository: str, file: str) -> str:
            return f"http://127.0.0.1:9/{repository}/{file}"

        @staticmethod
        def get_hf_file_metadata(url: str, timeout: float) -> None:
            raise OSError("connection refused")

    imported = backbones.import_module
    monkeypatch.setattr(backbones, "import_module", lambda name: Hub if name == "huggingface_hub" else imported(name))
    config = load_config("paper-meccano", ["procedure=null"])
    with pytest.raises(InputError, match=r"cannot be had from the hub \(connection refused\)"):
        check_run(replace(run, config=config), ["encoder"], skip_finished=True)
    assert asked == ["timm/vit_small_patch16_224.augreg_in21k"]
