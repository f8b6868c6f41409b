"""The three stages on a tiny world: they learn, they can be interrupted anywhere, and two runs are the same run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from stormpsr.config import Config, parse_config
from stormpsr.errors import InputError
from stormpsr.models.checkpoint import load_checkpoint
from stormpsr.models.stream import build_temporal
from stormpsr.training.data import TrainingData, load_training_data
from stormpsr.training.fit import FitOptions, make_optimiser
from stormpsr.training.stages import Run, train_encoder, train_joint, train_temporal
from stormpsr.training.tasks.temporal import ValidationClips, change_loss

RunIn = Callable[..., Run]


@pytest.fixture(scope="session")
def data(world: Path) -> TrainingData:
    return load_training_data(world, Config())


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def run_in(settings_text: str, data: TrainingData, cache: Path) -> RunIn:
    def make(folder: Path, *overrides: str, **options: Any) -> Run:
        config = parse_config(settings_text, where="tiny", overrides=overrides)
        return Run(config, data, folder, options=FitOptions(device="cpu", **options), cache_folder=cache)

    return make


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory, run_in: RunIn) -> Path:
    return train_encoder(run_in(tmp_path_factory.mktemp("encoder")))


class StopAt(Callback):
    """Raises in the middle of an epoch, as a kill would."""

    def __init__(self, epoch: int, batch: int, error: type[BaseException]) -> None:
        self.at, self.error = (epoch, batch), error

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (trainer.current_epoch, batch_idx) == self.at:
            raise self.error


class Epochs(Callback):
    """Which epochs were trained."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.seen.append(trainer.current_epoch)


class Killed(Exception):  # noqa: N818
    pass


def same_tensors(first: Path, second: Path) -> bool:
    a, b = load_checkpoint(first).tensors, load_checkpoint(second).tensors
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_an_encoder_is_trained_and_saved_with_what_it_achieved(encoder_folder: Path) -> None:
    checkpoint = load_checkpoint(encoder_folder)
    assert not checkpoint.has_temporal
    assert set(checkpoint.metrics["validation"]) == {"loss", "precision"}
    assert json.loads((encoder_folder.parent / "stage.json").read_text())["finished"]


def test_a_killed_run_continues_to_the_same_encoder(tmp_path: Path, run_in: RunIn, encoder_folder: Path) -> None:
    with pytest.raises(Killed):
        train_encoder(run_in(tmp_path, callbacks=(StopAt(1, 1, Killed),)))
    epochs = Epochs()
    assert same_tensors(train_encoder(run_in(tmp_path, resume=True, callbacks=(epochs,))), encoder_folder)
    assert epochs.seen == [1]  # the first epoch was not repeated


def test_a_killed_run_continues_to_the_same_temporal_model(tmp_path: Path, run_in: RunIn, encoder_folder: Path) -> None:
    whole = train_temporal(run_in(tmp_path / "whole"), encoder_folder)
    with pytest.raises(Killed):
        train_temporal(run_in(tmp_path / "killed", callbacks=(StopAt(1, 2, Killed),)), encoder_folder)
    epochs = Epochs()
    resumed = train_temporal(run_in(tmp_path / "killed", resume=True, callbacks=(epochs,)), encoder_folder)
    assert epochs.seen == [1]
    assert same_tensors(whole, resumed)
    assert load_checkpoint(whole).metrics == load_checkpoint(resumed).metrics
    assert set(load_checkpoint(whole).metrics["validation"]) >= {"loss", "clip_f1", "event_f1", "threshold"}


def test_another_seed_gives_another_encoder(tmp_path: Path, run_in: RunIn, encoder_folder: Path) -> None:
    assert not same_tensors(train_encoder(run_in(tmp_path, "seed=1")), encoder_folder)


def test_stopping_by_hand_before_the_first_epoch_is_over_leaves_a_usable_checkpoint(
    tmp_path: Path, run_in: RunIn
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train_encoder(run_in(tmp_path, callbacks=(StopAt(0, 0, KeyboardInterrupt),)))
    checkpoint = load_checkpoint(tmp_path / "encoder" / "best")
    assert checkpoint.metrics["interrupted"]
    checkpoint.encoder()


def test_both_together_change_encoder_and_temporal_model_but_not_the_statistics_of_batch_norms(
    tmp_path: Path, run_in: RunIn, encoder_folder: Path
) -> None:
    run = run_in(tmp_path)
    temporal = train_temporal(run, encoder_folder)
    train_joint(run, temporal)
    last = torch.load(run.stage("joint").last, weights_only=True)["state_dict"]
    before, after = load_checkpoint(temporal).tensors, {k.removeprefix("stream."): v for k, v in last.items()}
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert any(name.startswith("encoder.backbone") for name in changed)
    assert any(name.startswith("temporal") for name in changed)
    assert not any("running" in name or name.startswith("encoder.projection") for name in changed)


@pytest.mark.parametrize("override", ["encoder.embedding_dim=8", "encoder.backbone=test_vit", "encoder.image_size=48"])
def test_a_temporal_model_is_not_trained_on_an_encoder_of_other_settings(
    tmp_path: Path, run_in: RunIn, encoder_folder: Path, override: str
) -> None:
    with pytest.raises(InputError, match=rf"trained with {override.partition('=')[0]}=.*train it again"):
        train_temporal(run_in(tmp_path, override), encoder_folder)


@pytest.mark.parametrize("override", ["temporal.kind=lstm", "clips.window_frames=32", "temporal.width=32"])
def test_both_are_not_trained_on_from_a_temporal_model_of_other_settings(
    tmp_path: Path, run_in: RunIn, encoder_folder: Path, override: str
) -> None:
    temporal = train_temporal(run_in(tmp_path), encoder_folder)
    with pytest.raises(InputError, match="was trained with"):
        train_joint(run_in(tmp_path, override), temporal)


def test_training_both_together_never_leaves_less_than_it_was_given(
    tmp_path: Path, run_in: RunIn, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_in(tmp_path, "train_joint.select_by=loss")
    temporal = train_temporal(run, encoder_folder)
    losses = iter([1.0, 2.0])  # before training, and after its epoch
    monkeypatch.setattr(ValidationClips, "metrics", lambda self, logits: {"loss": next(losses)})
    joint = load_checkpoint(train_joint(run, temporal))
    assert joint.metrics == {"epoch": -1, "validation": {"loss": 1.0}}
    for name, tensor in load_checkpoint(temporal).tensors.items():
        torch.testing.assert_close(joint.tensors[name], tensor)


def test_steps_of_the_optimiser_lower_the_loss_of_a_clip_that_is_seen_again_and_again(run_in: RunIn) -> None:
    config = run_in(Path("nowhere"), "train_temporal.learning_rate=0.01", "train_temporal.epochs=40").config
    torch.manual_seed(0)
    temporal = build_temporal(config, 3)
    clip_BND, mask_BN = torch.randn(8, 8, 16), torch.ones(8, 8, dtype=torch.bool)
    label_BC = (torch.arange(24).reshape(8, 3) % 2).float()
    made = make_optimiser(config.train_temporal, [(temporal, 0.01)], steps_per_epoch=1)
    losses = []
    for _ in range(40):
        loss = change_loss(temporal(clip_BND, mask_BN), label_BC)
        made["optimizer"].zero_grad()
        loss.backward()
        made["optimizer"].step()
        made["lr_scheduler"]["scheduler"].step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.slow
def test_the_temporal_model_learns_what_changes_in_a_clip(tmp_path: Path, run_in: RunIn, encoder_folder: Path) -> None:
    overrides = ("train_temporal.epochs=10", "train_temporal.batches_per_epoch=30", "train_temporal.learning_rate=0.01")
    folder = train_temporal(run_in(tmp_path, *overrides, "train_temporal.select_by=clip_f1"), encoder_folder)
    assert load_checkpoint(folder).metrics["validation"]["clip_f1"] > 0.5  # saying yes to everything gives 0.4


def test_embeddings_are_made_once(tmp_path: Path, run_in: RunIn, encoder_folder: Path) -> None:
    said: list[str] = []
    run = replace(run_in(tmp_path), cache_folder=None, on_progress=lambda what, done, of: said.append(what))
    train_temporal(run, encoder_folder)
    assert {what for what in said if what.startswith("embed")} == {f"embed 0{i}_build" for i in range(3)}
    said.clear()
    again = run_in(tmp_path, "seed=2")
    with pytest.raises(InputError, match="begun with other settings"):
        train_temporal(again, encoder_folder)
    assert said == []


def test_a_finished_stage_is_not_begun_again_unasked(run_in: RunIn, encoder_folder: Path) -> None:
    with pytest.raises(InputError, match="this stage is finished; add --resume"):
        train_encoder(run_in(encoder_folder.parent.parent))


def test_renders_that_are_asked_for_must_be_there(tmp_path: Path, run_in: RunIn) -> None:
    with pytest.raises(InputError, match="ask for renders, but there are none; give --renders"):
        train_encoder(run_in(tmp_path, "key_frames.n_syn=2"))


def test_held_out_recordings_are_kept_from_the_encoder_and_given_to_the_temporal_model(data: TrainingData) -> None:
    assert [r.name for r in data.encoder_recordings(0.34)] == ["00_build", "01_build"]
    assert [r.name for r in data.held_out(0.34)] == ["02_build"]
    assert data.held_out(0.0) == ()


def test_nothing_held_out_cannot_be_trained_on(tmp_path: Path, run_in: RunIn, encoder_folder: Path) -> None:
    with pytest.raises(InputError, match="no recordings are held out"):
        train_temporal(run_in(tmp_path, "train_temporal.recordings=held_out"), encoder_folder)


def test_precision_needs_a_state_in_two_validation_recordings(tmp_path: Path, run_in: RunIn) -> None:
    run = run_in(tmp_path)
    alone = replace(run, data=replace(run.data, val=run.data.val[:1]))
    with pytest.raises(InputError, match="no state occurs in two validation recordings"):
        train_encoder(alone)
    by_loss = run_in(tmp_path, "train_encoder.select_by=loss", "train_encoder.epochs=1").config
    train_encoder(replace(alone, config=by_loss))


def test_training_that_diverges_is_stopped_with_the_cure(tmp_path: Path, run_in: RunIn, encoder_folder: Path) -> None:
    wild = ("train_temporal.optimiser=sgd", "train_temporal.learning_rate=1e30")
    with pytest.raises(InputError, match="left the finite numbers in epoch 1; lower the learning rate"):
        train_temporal(run_in(tmp_path, *wild), encoder_folder)


def test_a_machine_without_the_wanted_device_is_told_so(tmp_path: Path, run_in: RunIn) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    run = run_in(tmp_path)
    with pytest.raises(InputError, match="this machine cannot train so"):
        train_encoder(replace(run, options=FitOptions(device="cuda")))
    assert not (tmp_path / "encoder").exists()


def test_samples_of_two_processes_differ(tmp_path: Path, run_in: RunIn) -> None:
    from stormpsr.data.sampling import Shard
    from stormpsr.training.stages import clip_sampler

    run = run_in(tmp_path)
    stage = run.config.train_temporal
    ends = [clip_sampler(run, stage, run.data.train, Shard(rank, 2)).batch(0, 0) for rank in range(2)]
    assert len(ends[0][0]) == 4
    assert not np.array_equal(np.stack(ends[0]), np.stack(ends[1]))
