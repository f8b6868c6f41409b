# mypy: disallow-subclassing-any=False
"""What all that is trained has in common, as a Lightning module.

Validation leaves its metrics in `metrics`; `score` is the one that decides, the larger the better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from stormpsr.config import Config
from stormpsr.data.sampling import Shard
from stormpsr.errors import InputError

MakeDataset = Callable[[int, Shard], Dataset]  # epoch, share of this process -> batches of the epoch


class Task(LightningModule):
    """Batches made anew for every epoch, and random numbers that depend on it alone."""

    begins_trained = False  # whether the networks are good for something before the first epoch

    def __init__(self, config: Config, make_dataset: MakeDataset, batches_per_epoch: int, workers: int) -> None:
        super().__init__()
        self.config = config
        self.batches_per_epoch = batches_per_epoch
        self.metrics: dict[str, float] = {}
        self._make_dataset, self._workers = make_dataset, workers

    @property
    def score(self) -> float:
        raise NotImplementedError

    def tensors(self) -> Mapping[str, Tensor]:
        """What belongs into a checkpoint, by the names of a `SpatioTemporalModel`."""
        raise NotImplementedError

    def train_dataloader(self) -> DataLoader:
        shard = Shard(self.trainer.global_rank, self.trainer.world_size)
        dataset = self._make_dataset(self.trainer.current_epoch, shard)
        return DataLoader(dataset, batch_size=None, num_workers=self._workers)

    def on_train_epoch_start(self) -> None:
        torch.manual_seed(self._seed_of(0))  # for dropout

    def _seed_of(self, number: int) -> int:
        """A seed for one batch of this epoch and process."""
        entropy = (self.config.seed, self.trainer.current_epoch, number, self.trainer.global_rank)
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    def _generator(self, number: int) -> torch.Generator:
        return torch.Generator().manual_seed(self._seed_of(number + 1))

    def _steps_per_epoch(self) -> int:
        return -(-self.batches_per_epoch // int(self.trainer.accumulate_grad_batches))

    def _log_loss(self, loss: Tensor) -> None:
        self.log("train/loss", loss, sync_dist=True)

    def _refuse_infinite(self, output: Tensor) -> None:
        if not torch.isfinite(output).all():
            epoch = self.trainer.current_epoch + 1
            raise InputError(f"training left the finite numbers in epoch {epoch}", cure="lower the learning rate")

    def _log_metrics(self) -> None:
        for name, value in {**self.metrics, "score": self.score}.items():
            self.log(f"val/{name}", value, sync_dist=False, rank_zero_only=False)
