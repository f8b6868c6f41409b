# mypy: disallow-subclassing-any=False
"""The bar under which a stage is trained: loss, images or clips per second, time left."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

_SECONDS_BETWEEN_LINES = 10.0  # where there is no terminal


class TrainingBars:
    """Bars on the error stream, one per thing that takes time; a plain line now and then where there is no terminal."""

    def __init__(self) -> None:
        self._spoke_at = time.perf_counter()
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
        self.say_now_and_then(f"{what}: frame {done} of {of}")
        if done == of:
            self._progress.remove_task(self._frame_tasks.pop(what))

    def step(self, step: int, of: int, loss: float) -> None:
        """Steps of a detector that another package trains."""
        self.frames("steps", step, of)
        self.say_now_and_then(f"step {step} of {of}: loss {loss:.2f}")

    def say_now_and_then(self, text: str) -> None:
        """A line for a log file, unless there has been one a moment ago."""
        now = time.perf_counter()
        if not self._console.is_terminal and now - self._spoke_at >= _SECONDS_BETWEEN_LINES:
            self._spoke_at = now
            self._console.print(text, soft_wrap=True)

    def stage(self, name: str, items: str) -> Callback:
        """A bar for the batches of a stage."""
        return _StageBar(name, items, self, self._progress, self._console)


class _StageBar(Callback):
    def __init__(self, name: str, items: str, bars: TrainingBars, progress: Progress, console: Console) -> None:
        self._name, self._items, self._bars, self._progress, self._console = name, items, bars, progress, console
        self._task: TaskID | None = None
        self._loss = 0.0
        self._began, self._n_items = time.perf_counter(), 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        per_epoch = int(pl_module.batches_per_epoch)
        self._total, self._done = pl_module.n_batches(int(trainer.max_epochs or 1)), trainer.current_epoch * per_epoch
        self._task = self._progress.add_task(self._name, total=self._total, completed=self._done, more="")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._began, self._n_items = time.perf_counter(), 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._n_items += len(batch[0]) * trainer.world_size
        share = float(outputs["loss"]) if isinstance(outputs, dict) else float(outputs)
        self._loss = share * int(trainer.accumulate_grad_batches)  # Lightning has divided it
        self._done += 1
        more = f"loss {self._loss:.3f}, {self._rate():.1f} {self._items}/s"
        if self._task is not None:
            self._progress.update(self._task, advance=1, more=more)
        if trainer.is_global_zero:
            self._bars.say_now_and_then(f"{self._name}: batch {self._done} of {self._total}: {more}")

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
