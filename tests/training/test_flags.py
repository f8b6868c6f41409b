"""How a stage is run: precision, accumulation, logs, which epoch is kept; and all temporal models at all windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger

from stormpsr.cli.output import Bar
from stormpsr.cli.train_progress import StageBar
from stormpsr.config import Config, parse_config
from stormpsr.errors import InputError
from stormpsr.models.checkpoint import load_checkpoint
from stormpsr.training import fit as fitting
from stormpsr.training.data import TrainingData, load_training_data
from stormpsr.training.fit import FitOptions
from stormpsr.training.stages import Run, train_encoder, train_temporal
from stormpsr.training.tasks import encoder as encoder_task
from stormpsr.training.tasks.temporal import ValidationClips

RunIn = Callable[..., Run]


@pytest.fixture(scope="module")
def data(world: Path) -> TrainingData:
    return load_training_data(world, Config())


@pytest.fixture(scope="module")
def run_in(settings_text: str, data: TrainingData, tmp_path_factory: pytest.TempPathFactory) -> RunIn:
    cache = tmp_path_factory.mktemp("cache")

    def make(folder: Path, *overrides: str, **options: Any) -> Run:
        config = parse_config(settings_text, where="tiny", overrides=overrides)
        return Run(config, data, folder, options=FitOptions(device="cpu", **options), cache_folder=cache)

    return make


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory, run_in: RunIn) -> Path:
    return train_encoder(run_in(tmp_path_factory.mktemp("encoder")))


class Steps(Callback):
    """The loss of each batch, and how many steps the optimiser took."""

    def __init__(self) -> None:
        self.steps = 0
        self.losses: list[float] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.losses.append(float(trainer.callback_metrics["train/loss"]))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.steps = trainer.global_step


# ---------------------------------------------------------------------- how numbers are computed
def test_two_batches_accumulated_are_one_batch_twice_as_large(
    tmp_path: Path, run_in: RunIn, encoder_folder: Path
) -> None:
    settings = {"frame_drop": 0, "optimiser": "sgd", "learning_rate": 0.1, "select_by": "loss", "epochs": 1}
    still = [f"train_temporal.{key}={value}" for key, value in settings.items()]
    halves = (*still, "train_temporal.batch_size=4", "train_temporal.batches_per_epoch=4")
    wholes = (*still, "train_temporal.batch_size=8", "train_temporal.batches_per_epoch=2")
    counts, bar = (Steps(), Steps()), StageBar("temporal", "clips", Bar())
    accumulated = train_temporal(
        run_in(tmp_path / "a", *halves, accumulate_batches=2, callbacks=(counts[0], bar)), encoder_folder
    )
    assert bar.loss == pytest.approx(counts[0].losses[-1])  # of a whole batch, not of its share in a step
    at_once = train_temporal(run_in(tmp_path / "b", *wholes, callbacks=(counts[1],)), encoder_folder)
    assert [count.steps for count in counts] == [2, 2]
    one, other = load_checkpoint(accumulated).tensors, load_checkpoint(at_once).tensors
    for name, tensor in other.items():
        torch.testing.assert_close(one[name], tensor, rtol=1e-4, atol=1e-6)


class OutputTypes(Callback):
    """The kinds of numbers that linear layers compute in training."""

    def __init__(self) -> None:
        self.seen: set[torch.dtype] = set()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if not batch_idx:
            for module in pl_module.modules():
                if isinstance(module, torch.nn.Linear):
                    module.register_forward_hook(lambda _, __, output: self.seen.add(output.dtype))


@pytest.mark.parametrize(("precision", "dtype"), [("bf16-mixed", torch.bfloat16), ("32-true", torch.float32)])
def test_mixed_precision_computes_in_half_and_keeps_whole_numbers(
    tmp_path: Path, run_in: RunIn, encoder_folder: Path, precision: str, dtype: torch.dtype
) -> None:
    types = OutputTypes()
    run = run_in(tmp_path, "train_encoder.epochs=1", precision=precision, callbacks=(types,))
    trained = load_checkpoint(train_encoder(run)).tensors
    assert types.seen == {dtype}
    assert {name: tensor.dtype for name, tensor in trained.items()} == {
        name: tensor.dtype for name, tensor in load_checkpoint(encoder_folder).tensors.items()
    }
    assert all(torch.isfinite(tensor).all() for tensor in trained.values())


# ---------------------------------------------------------------------- which epoch is kept
MADE_UP = [  # metrics of five epochs, whatever the network has learnt
    {"loss": 5.0, "clip_f1": 0.2, "event_f1": 0.1},
    {"loss": 4.0, "clip_f1": 0.6, "event_f1": 0.1},
    {"loss": 3.0, "clip_f1": 0.5, "event_f1": 0.7},
    {"loss": 2.0, "clip_f1": 0.4, "event_f1": 0.7},
    {"loss": 2.5, "clip_f1": 0.3, "event_f1": 0.6},
]


@pytest.mark.parametrize(("select_by", "best"), [("event_f1", 3), ("clip_f1", 1), ("loss", 3)])
def test_the_epoch_is_kept_that_the_criterion_likes_best_and_of_equals_that_with_the_lower_loss(
    tmp_path: Path,
    run_in: RunIn,
    encoder_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    select_by: str,
    best: int,
) -> None:
    epochs = iter(MADE_UP)
    monkeypatch.setattr(ValidationClips, "metrics", lambda self, logits: next(epochs))
    run = run_in(tmp_path, "train_temporal.epochs=5", f"train_temporal.select_by={select_by}")
    metrics = load_checkpoint(train_temporal(run, encoder_folder)).metrics
    assert metrics["epoch"] == best
    assert metrics["validation"] == MADE_UP[best]
    assert next(epochs, None) is None


def test_the_encoder_is_kept_by_precision(tmp_path: Path, run_in: RunIn, monkeypatch: pytest.MonkeyPatch) -> None:
    precisions = iter([0.2, 0.9, 0.4])
    monkeypatch.setattr(encoder_task, "neighbour_precision", lambda *_: next(precisions))
    run = run_in(tmp_path, "train_encoder.epochs=3", "train_encoder.select_by=precision")
    metrics = load_checkpoint(train_encoder(run)).metrics
    assert (metrics["epoch"], metrics["validation"]["precision"]) == (1, 0.9)


# ---------------------------------------------------------------------- logs
def test_losses_and_figures_are_logged_for_tensorboard(tmp_path: Path, run_in: RunIn, encoder_folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train_temporal(run_in(tmp_path, "train_temporal.batches_per_epoch=10"), encoder_folder)
    log = EventAccumulator(str(tmp_path / "temporal" / "log")).Reload()
    assert {"train/loss", "val/loss", "val/clip_f1", "val/event_f1", "val/score"} <= set(log.Tags()["scalars"])
    assert [event.step for event in log.Scalars("train/loss")] == [9, 19]
    assert len(log.Scalars("val/event_f1")) == 2


def test_wandb_is_used_when_its_project_is_named(
    tmp_path: Path, run_in: RunIn, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    class Wandb(TensorBoardLogger):
        def __init__(self, **settings: Any) -> None:
            asked.update(settings)
            super().__init__(tmp_path / "elsewhere", name="log", version="")

    monkeypatch.setattr(fitting, "find_spec", lambda name: object())
    monkeypatch.setattr(fitting, "WandbLogger", Wandb)
    train_temporal(run_in(tmp_path, wandb_project="lamps"), encoder_folder)
    assert asked["project"] == "lamps"
    assert asked["name"] == "temporal"
    assert any((tmp_path / "elsewhere").rglob("events*"))
    assert not list((tmp_path / "temporal").rglob("events*"))


def test_wandb_that_is_not_installed_is_named_with_the_cure(
    tmp_path: Path, run_in: RunIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="wandb is not installed; run: pip install wandb"):
        train_encoder(run_in(tmp_path, wandb_project="lamps"))
    assert not (tmp_path / "encoder").exists()


# ---------------------------------------------------------------------- models and recordings
@pytest.mark.parametrize("kind", ["transformer", "lstm", "tcn", "mlp"])
@pytest.mark.parametrize("window", [16, 64, 256])
def test_every_temporal_model_trains_at_every_window_and_in_recordings_shorter_than_it(
    tmp_path: Path, run_in: RunIn, encoder_folder: Path, kind: str, window: int
) -> None:
    """The recordings have 60 frames."""
    sizes = ("width=16", "heads=2", "layers=1", "mlp_width=16") if kind == "transformer" else ("width=16",)
    overrides = (
        f"temporal.kind={kind}",
        *(f"temporal.{size}" for size in sizes),
        f"clips.window_frames={window}",
        f"clips.n_window={min(window, 64)}",
        "train_temporal.epochs=1",
        "train_temporal.batches_per_epoch=1",
    )
    checkpoint = load_checkpoint(train_temporal(run_in(tmp_path, *overrides), encoder_folder))
    assert checkpoint.config.temporal.kind == kind
    n = min(window, 64)
    logits_BC = checkpoint.stream().temporal(torch.zeros(2, n, 16), torch.ones(2, n, dtype=torch.bool))
    assert logits_BC.shape == (2, 3)


def test_the_temporal_model_sees_none_but_the_held_out_recordings(
    tmp_path: Path, run_in: RunIn, encoder_folder: Path
) -> None:
    said: set[str] = set()
    overrides = ("train_encoder.held_out_share=0.34", "train_temporal.recordings=held_out")
    run = replace(run_in(tmp_path, *overrides), cache_folder=None, on_progress=lambda what, done, of: said.add(what))
    train_temporal(run, encoder_folder)
    stores = {path.relative_to(tmp_path).parts[2:] for path in tmp_path.rglob("*.rows") if "embeddings" in path.parts}
    assert stores == {("train", "02_build.rows"), ("val", "00_build.rows"), ("val", "01_build.rows")}
    assert "embed 02_build" in said
