"""Two gloo processes: each gets its own half of every batch, and together they learn what one process learns.

This file is also the program that the processes run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stormpsr.config import load_config
from stormpsr.training.data import load_training_data
from stormpsr.training.fit import Callback, FitOptions, LightningModule, Trainer  # after what mends torchvision
from stormpsr.training.stages import Run, train_encoder, train_temporal

# nothing random in training, and no batch norms, whose statistics belong to a process
SETTINGS = (
    *("encoder.backbone=test_vit", "encoder.projection_norm=none"),
    *("train_encoder.augmentation=none", "train_encoder.optimiser=sgd", "train_encoder.learning_rate=1"),
    *("train_temporal.frame_drop=0", "train_temporal.optimiser=sgd", "train_temporal.learning_rate=0.1"),
)


class Record(Callback):
    """The loss of every step, averaged over the processes, and a fingerprint of each item of each batch."""

    def __init__(self) -> None:
        self.loss: list[float] = []
        self.items: list[list[float]] = []
        self.rank = 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.rank = trainer.global_rank
        self.loss.append(float(trainer.callback_metrics["train/loss"]))
        self.items.append(batch[0].double().flatten(1).sum(dim=1).tolist())


def train(stage: str, world: Path, settings: Path, folder: Path, encoder: Path, devices: int) -> Record:
    torch.set_num_threads(1)
    record = Record()
    config = load_config(settings, SETTINGS)
    options = FitOptions(device="cpu", devices=devices, callbacks=(record,))
    run = Run(config, load_training_data(world, config), folder, options=options)
    if stage == "encoder":
        train_encoder(run)
    else:
        train_temporal(run, encoder)
    return record


@pytest.mark.timeout(900)  # two processes import torch
@pytest.mark.parametrize("stage", ["encoder", "temporal"])
def test_two_processes_share_every_batch_and_have_the_loss_curve_of_one(
    stage: str, world: Path, settings_file: Path, tmp_path: Path, start_processes: Callable[..., Any]
) -> None:
    encoder = tmp_path / "first" / "encoder" / "best"
    one = train("encoder", world, settings_file, tmp_path / "first", encoder, devices=1)
    if stage == "temporal":
        one = train(stage, world, settings_file, tmp_path / "one", encoder, devices=1)
    words = [stage, world, settings_file, tmp_path / "two", encoder, tmp_path]
    done = start_processes([sys.executable, __file__, *map(str, words)])
    assert done.returncode == 0, done.stderr
    two = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    assert two[0]["loss"] == pytest.approx(one.loss, rel=1e-3)
    assert len(set(one.loss)) == len(one.loss)  # every batch and every step matters
    for rank in range(2):
        expected = [items[rank::2] for items in one.items]
        for found, wanted in zip(two[rank]["items"], expected, strict=True):
            assert found == pytest.approx(wanted, rel=1e-3)
    assert two[0]["items"] != two[1]["items"]


if __name__ == "__main__":
    name, *paths = sys.argv[1:]
    in_world, with_settings, into, with_encoder, report = map(Path, paths)
    recorded = train(name, in_world, with_settings, into, with_encoder, devices=2)
    text = json.dumps({"loss": recorded.loss, "items": recorded.items})
    (report / f"rank-{recorded.rank}.json").write_text(text)
