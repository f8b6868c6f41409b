"""Settings: presets, overrides, and what is said about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from stormpsr.config import (
    Config,
    LSTMConfig,
    TransformerConfig,
    dump_config,
    load_config,
    parse_config,
    shipped_presets,
)
from stormpsr.errors import InputError


def complaint(text: str = "", *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_config(text, where="my.yaml", overrides=overrides)
    return str(caught.value)


def test_the_shipped_presets_are_listed() -> None:
    paper, released = ["paper-industreal", "paper-meccano", "paper-small"], ["released-industreal", "released-meccano"]
    assert shipped_presets() == [*paper, *released, "synthetic", "trial"]


@pytest.mark.parametrize("name", shipped_presets())
def test_a_preset_knows_its_name_and_survives_being_written_and_read(name: str) -> None:
    config = load_config(name)
    assert config.name == name
    assert parse_config(dump_config(config), where="again") == config


def test_the_paper_presets_have_the_papers_settings() -> None:
    for name, real, rendered in (("paper-industreal", 8, 8), ("paper-meccano", 16, 0)):
        config = load_config(name)
        assert (config.key_frames.n_sample, config.key_frames.n_syn, config.key_frames.after_seconds) == (
            real,
            rendered,
            2.0,
        )
        assert config.encoder.backbone == "vit_small_patch16_224.augreg_in21k"
        assert (config.encoder.image_size, config.encoder.embedding_dim) == (224, 128)
        assert (config.train_encoder.temperature, config.train_encoder.margin) == (0.07, 0.01)
        assert config.temporal == TransformerConfig(layers=6, heads=8, mlp_width=4096)
        assert (config.clips.window_frames, config.clips.n_window) == (256, 64)
        assert (config.clips.sigma_frames, config.clips.delta_frames) == (45, 80)
        for stage in (config.train_encoder, config.train_temporal, config.train_joint):
            assert (stage.optimiser, stage.learning_rate, stage.momentum, stage.warmup_epochs) == ("sgd", 1e-3, 0.9, 5)
        assert [config.train_encoder.epochs, config.train_temporal.epochs, config.train_joint.epochs] == [100, 100, 75]
        assert config.train_joint.encoder_learning_rate == 1e-5
        assert config.train_temporal.batch_size == 256
        assert 64 * config.train_joint.batch_size == 256  # --accumulate 64: no GPU holds 256 clips of 64 images


def test_single_settings_are_changed_on_top_of_a_preset() -> None:
    config = load_config(
        "paper-meccano", ["encoder.backbone=vit_small_patch14_dinov2.lvd142m", "train_encoder.learning_rate=1e-4"]
    )
    assert config.encoder.backbone == "vit_small_patch14_dinov2.lvd142m"
    assert config.train_encoder.learning_rate == 1e-4
    assert config.key_frames.n_sample == 16


def test_changing_the_kind_of_temporal_model_leaves_the_other_kinds_sizes_behind() -> None:
    others = ["train_temporal.frame_state_weight=0", "train_joint.frame_state_weight=0"]
    changed = load_config("synthetic", ["temporal.kind=lstm", "temporal.width=64", *others])
    assert changed.temporal == LSTMConfig(width=64)
    assert load_config("synthetic", ["temporal.kind=states"]).temporal == load_config("synthetic").temporal


def test_only_a_model_that_reads_single_frames_can_be_taught_what_they_show() -> None:
    with pytest.raises(InputError, match=r"^synthetic: temporal\.kind=lstm reads no single frames") as complaint:
        load_config("synthetic", ["temporal.kind=lstm"])
    flags = str(complaint.value).partition("; add ")[2].split(" ")
    assert flags[::2] == ["-o", "-o"]
    assert load_config("synthetic", ["temporal.kind=lstm", *flags[1::2]]).temporal == LSTMConfig()


def test_a_file_of_ones_own_works_like_a_preset(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\nclips: {window_frames: 64}\n")
    assert load_config(tmp_path / "mine.yaml").clips.window_frames == 64


def test_an_empty_file_has_the_defaults() -> None:
    assert parse_config("", where="empty") == Config()


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(Exception, match="frozen"):
        Config().clips.window_frames = 3  # type: ignore[misc]


def test_an_unknown_preset_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="did you mean 'paper-meccano'"):
        load_config("paper-mecano")


@pytest.mark.parametrize(
    ("text", "overrides", "expected"),
    [
        ("clips:\n  windw_frames: 3", (), "my.yaml:2: there is no key 'clips.windw_frames'; did you mean 'window_"),
        ("", ("encoder.bckbone=x",), "there is no key 'encoder.bckbone'; did you mean 'backbone'?"),
        ("", ("colour=red",), "there is no key 'colour'; there are: clips, decoding"),
        ("clips:\n  n_window: 0", (), "my.yaml:2: clips.n_window is 0: it should be greater than or equal to 1"),
        ("seed: x", (), "my.yaml:1: seed is 'x': it should be a valid integer"),
        ("seed: 1\nseed: 2", (), "my.yaml:2: 'seed' is there twice"),
        ("clips:\n\twindow_frames: 3", (), "my.yaml:2: a tab stands here"),
        ("- 1", (), "my.yaml:1: settings are a table"),
        ("", ("seed",), "override 'seed' is not understood; write it like"),
        ("seed: 1", ("seed.x=2",), "override 'seed.x=2': 'seed' is no section"),
        ("", ("temporal.kind=gru",), "temporal.kind is not known; choose: lstm, mlp, states, tcn, transformer, or a"),
        ("", ("temporal.kind=lstm", "temporal.heads=2"), "there is no key 'temporal.heads'"),
        ("", ("clips.window_frames=32",), "clips: n_window is 64, but the window has only 32 frames"),
        ("", ("temporal.heads=7",), "temporal: a width of 128 cannot be divided among 7 heads"),
        ("", ("train_encoder.learning_rate=.nan",), "learning_rate=.nan': .nan is no number to compute with"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_cure(text: str, overrides: tuple[str, ...], expected: str) -> None:
    assert expected in complaint(text, *overrides)
