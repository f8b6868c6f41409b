# mypy: disallow-subclassing-any=False
"""The bar under which a stage is trained: loss, images or clips per second, time left."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class TrainingBars:
    """Bars on the error stream, one per thing that takes time; plain lines where there is no terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[more]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._frame_tasks: dict[str, TaskID] = {}

    def __enter__(self) -> TrainingBars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def frames(self, what: str, done: int, of: int) -> None:
        """Frames decoded or embedded."""
        if what not in self._frame_tasks:
            self._frame_tasks[what] = self._progress.add_task(what, total=of, more="")
        self._progress.update(self._frame_tasks[what], completed=done)
        if done == of:
            self._progress.remove_task(self._frame_tasks.pop(what))

    def stage(self, name: str, items: str) -> Callback:
        """A bar for the batches of a stage."""
        return _StageBar(name, items, self._progress, self._console)


class _StageBar(Callback):
    def __init__(self, name: str, items: str, progress: Progress, console: Console) -> None:
        self._name, self._items, self._progress, self._console = name, items, progress, console
        self._task: TaskID | None = None
        self._loss = 0.0
        self._began, self._n_items = time.perf_counter(), 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        per_epoch = int(pl_module.batches_per_epoch)
        total, done = int(trainer.max_epochs or 1) * per_epoch, trainer.current_epoch * per_epoch
        self._task = self._progress.add_task(self._name, total=total, completed=done, more="")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._began, self._n_items = time.perf_counter(), 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._n_items += len(batch[0]) * trainer.world_size
        share = float(outputs["loss"]) if isinstance(outputs, dict) else float(outputs)
        self._loss = share * int(trainer.accumulate_grad_batches)  # Lightning has divided it
        if self._task is not None:
            more = f"loss {self._loss:.3f}, {self._rate():.0f} {self._items}/s"
            self._progress.update(self._task, advance=1, more=more)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """One line per epoch stays, on a terminal as in a file."""
        if not trainer.is_global_zero:
            return
        figures = ", ".join(f"{name} {value:.3f}" for name, value in pl_module.metrics.items())
        if trainer.sanity_checking:
            self._console.print(f"{self._name}: before training: {figures}", soft_wrap=True)
            return
        self._console.print(
            f"{self._name}: epoch {trainer.current_epoch + 1} of {trainer.max_epochs}: training loss {self._loss:.3f}, "
            f"{self._rate():.1f} {self._items}/s; validation: {figures}",
            soft_wrap=True,
        )

    def _rate(self) -> float:
        return self._n_items / max(time.perf_counter() - self._began, 1e-9)
