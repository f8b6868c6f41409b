# mypy: disallow-subclassing-any=False
"""The bar under which a stage is trained: loss, images or clips per second, time left."""

from __future__ import annotations

import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from stormpsr.cli.output import Bar


class StageBar(Callback):
    """Shows the batches of a stage as `bar`, and a line per epoch."""

    def __init__(self, name: str, items: str, bar: Bar) -> None:
        self._name, self._items, self._bar = name, items, bar
        self.loss = 0.0
        self._began, self._n_items = time.perf_counter(), 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._total = pl_module.n_batches(int(trainer.max_epochs or 1))
        self._done = trainer.current_epoch * int(pl_module.batches_per_epoch)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._began, self._n_items = time.perf_counter(), 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._n_items += len(batch[0]) * trainer.world_size
        share = float(outputs["loss"]) if isinstance(outputs, dict) else float(outputs)
        self.loss = share * int(trainer.accumulate_grad_batches)  # Lightning has divided it
        self._done += 1
        more = f"loss {self.loss:.3f}, {self._rate():.1f} {self._items}/s"
        if trainer.is_global_zero:
            self._bar.named(self._name, self._done, self._total, more)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """One line per epoch stays, on a terminal as in a file."""
        if not trainer.is_global_zero:
            return
        figures = ", ".join(f"{name} {value:.3f}" for name, value in pl_module.metrics.items())
        if trainer.sanity_checking:
            self._bar.console.print(f"{self._name}: before training: {figures}", soft_wrap=True)
            return
        self._bar.console.print(
            f"{self._name}: epoch {trainer.current_epoch + 1} of {trainer.max_epochs}: training loss {self.loss:.3f}, "
            f"{self._rate():.1f} {self._items}/s; validation: {figures}",
            soft_wrap=True,
        )

    def _rate(self) -> float:
        return self._n_items / max(time.perf_counter() - self._began, 1e-9)
