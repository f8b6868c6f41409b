# mypy: disallow-subclassing-any=False
"""The one training loop: runs a task, keeps its best epoch, and can be stopped and resumed at any moment.

A stage's folder:

    best/         the checkpoint of the best epoch so far (see `checkpoint.py`)
    resume/       everything that is needed to go on after the last whole epoch
    log/          TensorBoard
    stage.json    the settings, and whether the stage is finished

An interrupted epoch is repeated from its beginning. Its batches, variations and dropout depend on the seed and the
epoch alone, so the result is that of a run that was never interrupted.
"""

from __future__ import annotations

import json
import logging
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from stormpsr.checkpoint import save_checkpoint
from stormpsr.config import Config, dump_config
from stormpsr.errors import InputError
from stormpsr.procedure import Procedure
from stormpsr.training.tasks import Task

__all__ = ["FitOptions", "StageFolder", "fit"]

Accelerator = Literal["auto", "cpu", "gpu"]
Precision = Literal["32-true", "16-mixed", "bf16-mixed"]


@dataclass(frozen=True)
class FitOptions:
    """How to run, as opposed to what to train: none of it is part of the result's settings."""

    resume: bool = False
    accelerator: Accelerator = "auto"
    devices: int = 1  # per machine
    machines: int = 1
    precision: Precision = "32-true"
    accumulate_batches: int = 1
    workers: int = 0  # processes that read batches
    wandb_project: str | None = None
    callbacks: tuple[Callback, ...] = ()


@dataclass(frozen=True)
class StageFolder:
    """Where a stage keeps its things."""

    path: Path

    @property
    def best(self) -> Path:
        return self.path / "best"

    @property
    def last(self) -> Path:
        return self.path / "resume" / "last.ckpt"

    @property
    def is_finished(self) -> bool:
        return bool(self._about().get("finished"))

    def begin(self, config: Config, *, resume: bool) -> None:
        """Claim the folder for these settings, or refuse it."""
        about = self._about()
        if about and about.get("config") != dump_config(config):
            cure = "choose another folder, or use the settings it was begun with"
            raise InputError("this stage was begun with other settings", path=self.path, cure=cure)
        if about and not resume:
            problem = "this stage is finished" if about.get("finished") else "this stage was begun and not finished"
            raise InputError(problem, path=self.path, cure="add --resume, or choose another folder")
        self.path.mkdir(parents=True, exist_ok=True)
        self._write({"config": dump_config(config), "finished": False})

    def finish(self, config: Config) -> None:
        self._write({"config": dump_config(config), "finished": True})

    def _about(self) -> dict[str, Any]:
        path = self.path / "stage.json"
        if not path.is_file():
            return {}
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise InputError(f"this is not JSON ({error})", path=path, cure="delete the folder") from error

    def _write(self, about: dict[str, Any]) -> None:
        draft = self.path / ".stage.json"
        draft.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        draft.replace(self.path / "stage.json")


class _KeepBest(Callback):
    """Saves the task's tensors whenever validation says that they are the best so far; of equals, by the loss."""

    def __init__(self, folder: Path, config: Config, procedure: Procedure) -> None:
        self._folder, self._config, self._procedure = folder, config, procedure
        self._best: tuple[float, float] | None = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        found = (pl_module.score, -pl_module.figures["loss"])
        if self._best is None or found > self._best:
            self._best = found
            if trainer.is_global_zero:
                epoch = -1 if trainer.sanity_checking else trainer.current_epoch  # -1: before the first
                self._save(pl_module, {"epoch": epoch, "validation": pl_module.figures})

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Stopped before the first validation: what there is, is better than nothing."""
        if isinstance(exception, KeyboardInterrupt) and self._best is None and trainer.is_global_zero:
            self._save(pl_module, {"epoch": trainer.current_epoch, "interrupted": True})

    def _save(self, task: Task, metrics: dict[str, Any]) -> None:
        save_checkpoint(
            self._folder, tensors=task.tensors(), config=self._config, procedure=self._procedure, metrics=metrics
        )

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._best = state_dict["best"]


class _KeepResumable(Checkpoint):
    """Saves the whole run after every epoch; the file is the last epoch's or the one before, never half of one.

    Derived from Lightning's class for checkpoints, which run after everything else that happens at an epoch's end.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        draft = self._path.with_name(".draft.ckpt")
        trainer.save_checkpoint(draft)  # by all processes: they wait for each other
        if trainer.is_global_zero:
            draft.replace(self._path)


def fit(task: Task, *, epochs: int, folder: StageFolder, procedure: Procedure, options: FitOptions) -> None:
    """Train a task for a number of epochs in all. Raises KeyboardInterrupt if the user stopped it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        warnings.filterwarnings("ignore", module="torch.utils.tensorboard")
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        trainer = _trainer(task, epochs, folder, procedure, options)
        if rank_zero_only.rank == 0:  # the other processes are started later, when the stage has begun
            folder.begin(task.config, resume=options.resume)
        try:
            trainer.fit(task, ckpt_path=str(folder.last) if folder.last.is_file() else None, weights_only=True)
        except SystemExit as error:  # Lightning's answer to Ctrl-C
            raise KeyboardInterrupt from error
    if trainer.interrupted:
        raise KeyboardInterrupt
    if trainer.is_global_zero:
        folder.finish(task.config)


def _trainer(task: Task, epochs: int, folder: StageFolder, procedure: Procedure, options: FitOptions) -> Trainer:
    callbacks = [
        _KeepBest(folder.best, task.config, procedure),
        _KeepResumable(folder.last),
        *options.callbacks,
    ]
    try:
        return Trainer(
            accelerator=options.accelerator,
            devices=options.devices,
            num_nodes=options.machines,
            strategy="ddp" if options.devices * options.machines > 1 else "auto",
            precision=options.precision,
            accumulate_grad_batches=options.accumulate_batches,
            max_epochs=epochs,
            callbacks=callbacks,
            logger=_logger(folder, options),
            log_every_n_steps=10,
            # what goes on from trained networks may make them worse: then they are kept as they were
            num_sanity_val_steps=-1 if task.begins_trained else 0,
            reload_dataloaders_every_n_epochs=1,  # each epoch has batches of its own
            use_distributed_sampler=False,  # our samplers share the work themselves
            enable_progress_bar=False,
            enable_model_summary=False,
        )
    except MisconfigurationException as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"this machine cannot train so: {reason}", cure="change --accelerator or --devices") from error


def _logger(folder: StageFolder, options: FitOptions) -> Logger:
    if options.wandb_project is not None:
        if find_spec("wandb") is None:
            raise InputError("wandb is not installed", cure="run: pip install wandb, or log to TensorBoard")
        return WandbLogger(project=options.wandb_project, name=folder.path.name, save_dir=folder.path / "log")
    return TensorBoardLogger(folder.path, name="log", version="")
