# mypy: disallow-subclassing-any=False
"""The one training loop: runs a task, keeps its best epoch, and can be stopped and resumed at any moment.

A stage's folder:

    best/         the checkpoint of the best epoch so far (see `checkpoint.py`); not a detector's
    resume/       everything that is needed to go on after the last whole epoch
    log/          TensorBoard
    stage.json    the settings, what the stage began from, and whether it is finished

An interrupted epoch is repeated from its beginning. Its batches, variations and dropout depend on the seed and the
epoch alone, so the result is that of a run that was never interrupted.
"""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.plugins import TorchCheckpointIO, TorchSyncBatchNorm
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from timm.layers import convert_sync_batchnorm
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from stormpsr.config import Config, EncoderTrainingConfig, LocatorTrainingConfig, TemporalTrainingConfig
from stormpsr.data.sampling import Shard
from stormpsr.errors import InputError
from stormpsr.files import only_user, replacing
from stormpsr.models.checkpoint import device_of, keep_freed_memory, save_checkpoint
from stormpsr.procedure.model import Procedure
from stormpsr.training.stage_folder import StageFolder

StageConfig = LocatorTrainingConfig | EncoderTrainingConfig | TemporalTrainingConfig
Precision = Literal["32-true", "16-mixed", "bf16-mixed"]
Item = TypeVar("Item")
OnProgress = Callable[[str, int, int], None]  # what is being done, frames done, frames in all


def ignore_progress(what: str, done: int, of: int) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True)
class FitOptions:
    """How to run, as opposed to what to train: none of it is part of the result's settings."""

    resume: bool = False
    device: str = "auto"  # auto, cpu, cuda, mps, or one of several: cuda:1
    devices: int = 1  # per machine
    machines: int = 1
    precision: Precision = "32-true"
    accumulate_batches: int = 1
    workers: int = 0  # processes that read batches
    wandb_project: str | None = None
    callbacks: tuple[Callback, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"auto|cpu|(cuda|mps)(:\d+)?", self.device):
            raise InputError(f"there is no device {self.device!r}", cure="choose auto, cpu, cuda, mps, or cuda:1")
        if ":" in self.device and self.devices > 1:
            raise InputError(f"{self.device} is one device, not {self.devices}", cure="leave its number out")

    @property
    def processes(self) -> int:
        """That share every batch."""
        return self.devices * self.machines

    def own_first(self, items: Sequence[Item]) -> list[Item]:
        """The same in another order for each of several processes, which prepare data at the same time.

        Each begins with its own part. What the others have made until it comes to theirs, it finds on the shared disk.
        """
        start = len(items) * rank_zero_only.rank // self.processes
        return [*items[start:], *items[:start]]

    @property
    def torch_device(self) -> torch.device:
        """Where a single process computes."""
        return device_of("auto") if self.device == "auto" else torch.device(self.device)


# ---------------------------------------------------------------------- what is trained
MakeDataset = Callable[[int, Shard], Dataset]  # epoch, share of this process -> batches of the epoch


class Task(LightningModule):
    """What is trained, with batches made anew for every epoch, and random numbers that depend on it alone.

    Validation leaves its metrics in `metrics`; `score` is the one that decides, the larger the better.
    """

    begins_trained = False  # whether the networks are good for something before the first epoch
    keeps_best = True  # of the epochs; else the caller takes what the last one has left

    workers = 0  # processes that read batches

    def __init__(
        self, settings: Config | Mapping[str, Any], seed: int, make_dataset: MakeDataset, validation: Sequence[Any]
    ) -> None:
        """`validation` are the batches that `validation_step` gets."""
        super().__init__()
        self.settings, self.seed = settings, seed  # a stage is only gone on with if its settings are the same
        self.batches_per_epoch = len(make_dataset(0, Shard()))
        self.metrics: dict[str, float] = {}
        self._make_dataset, self._validation = make_dataset, validation

    @property
    def score(self) -> float:
        raise NotImplementedError

    def tensors(self) -> Mapping[str, Tensor]:
        """What belongs into a checkpoint, by the names of a `SpatioTemporalModel`."""
        raise NotImplementedError

    def n_batches(self, epochs: int) -> int:
        """Batches of all epochs."""
        return epochs * self.batches_per_epoch

    def train_dataloader(self) -> DataLoader:
        shard = Shard(self.trainer.global_rank, self.trainer.world_size)
        dataset = self._make_dataset(self.trainer.current_epoch, shard)
        return DataLoader(dataset, batch_size=None, num_workers=self.workers)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self._validation, batch_size=None)

    def on_train_epoch_start(self) -> None:
        torch.manual_seed(self._seed_of(0))  # for dropout

    def _seed_of(self, number: int) -> int:
        """A seed for one batch of this epoch and process."""
        entropy = (self.seed, self.trainer.current_epoch, number, self.trainer.global_rank)
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    def _generator(self, number: int) -> torch.Generator:
        return torch.Generator().manual_seed(self._seed_of(number + 1))

    def _log_loss(self, loss: Tensor) -> None:
        self.log("train/loss", loss, sync_dist=True)

    def _refuse_infinite(self, output: Tensor) -> None:
        if not torch.isfinite(output).all():
            epoch = self.trainer.current_epoch + 1
            raise InputError(f"training left the finite numbers in epoch {epoch}", cure="lower the learning rate")

    def _log_metrics(self) -> None:
        for name, value in {**self.metrics, "score": self.score}.items():
            self.log(f"val/{name}", value, sync_dist=False, rank_zero_only=False)


class StageTask(Task):
    """A stage of the stream, which has a section of the settings."""

    def __init__(
        self, config: Config, stage: StageConfig, make_dataset: MakeDataset, validation: Sequence[Any]
    ) -> None:
        super().__init__(config, config.seed, make_dataset, validation)
        self.stage: Any = stage  # of what class, each task says

    @property
    def score(self) -> float:
        select_by = self.stage.select_by
        return -self.metrics["loss"] if select_by == "loss" else self.metrics[select_by]

    def trained(self) -> Sequence[tuple[nn.Module, float]]:
        """What learns, and how fast."""
        raise NotImplementedError

    def configure_optimizers(self) -> Any:
        steps_per_epoch = -(-self.batches_per_epoch // int(self.trainer.accumulate_grad_batches))
        return make_optimiser(self.stage, self.trained(), steps_per_epoch=steps_per_epoch)


def learning_rate_factor(step: int, *, warmup_steps: int, total_steps: int) -> float:
    """Share of the learning rate in a step: rises in a line during the warm-up, then falls along a cosine to 0."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    done = (step - warmup_steps) / max(total_steps - warmup_steps, 1)
    return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def make_optimiser(
    config: StageConfig, groups: Iterable[tuple[nn.Module, float]], *, steps_per_epoch: int
) -> dict[str, Any]:
    """Optimiser and schedule, as Lightning wants them, for modules with a learning rate each.

    Biases and norms are not decayed: shrinking them does not make a network simpler.
    """
    parameters: list[dict[str, Any]] = []
    for module, learning_rate in groups:
        trained = [p for p in module.parameters() if p.requires_grad]
        for chosen, decay in (
            ([p for p in trained if p.dim() > 1], config.weight_decay),
            ([p for p in trained if p.dim() <= 1], 0.0),
        ):
            if chosen:
                parameters.append({"params": chosen, "lr": learning_rate, "weight_decay": decay})
    if config.optimiser == "sgd":
        optimiser: Any = torch.optim.SGD(parameters, momentum=config.momentum)
    else:
        optimiser = torch.optim.AdamW(parameters, betas=(config.momentum, 0.999))
    total = max(config.epochs * steps_per_epoch, 1)
    warmup = min(config.warmup_epochs * steps_per_epoch, total)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: learning_rate_factor(step, warmup_steps=warmup, total_steps=total)
    )
    return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


# ---------------------------------------------------------------------- the loop
class _KeepBest(Callback):
    """Saves the task's tensors whenever validation says that they are the best so far; of equals, by the loss."""

    def __init__(self, folder: Path, procedure: Procedure) -> None:
        self._folder, self._procedure = folder, procedure
        self._best: tuple[float, float] | None = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        found = (pl_module.score, -pl_module.metrics["loss"])
        if self._best is None or found > self._best:
            self._best = found
            if trainer.is_global_zero:
                epoch = -1 if trainer.sanity_checking else trainer.current_epoch  # -1: before the first
                self._save(pl_module, {"epoch": epoch, "validation": pl_module.metrics})

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Stopped before the first validation: what there is, is better than nothing."""
        if isinstance(exception, KeyboardInterrupt) and self._best is None and trainer.is_global_zero:
            self._save(pl_module, {"epoch": trainer.current_epoch, "interrupted": True})

    def _save(self, task: Task, metrics: dict[str, Any]) -> None:
        assert isinstance(task.settings, Config)
        save_checkpoint(
            self._folder, tensors=task.tensors(), config=task.settings, procedure=self._procedure, metrics=metrics
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
        with replacing(self._path) if trainer.is_global_zero else nullcontext(self._path) as path:
            trainer.save_checkpoint(path)  # called by all processes, which wait for each other, and written by one


class _WriteInPlace(TorchCheckpointIO):
    """Not first into the system's folder for temporary files, which may be on another disk, and small."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        torch.save(checkpoint, path)


class _SyncBatchNorms(TorchSyncBatchNorm):
    """Statistics over all processes. torch's own way would lose the activations that timm's batch norms include."""

    def apply(self, model: nn.Module) -> nn.Module:
        return convert_sync_batchnorm(model)

    def revert(self, model: nn.Module) -> nn.Module:
        return model  # a task is not used after it was trained


def fit(
    task: Task,
    *,
    epochs: int,
    folder: StageFolder,
    procedure: Procedure,
    options: FitOptions,
    began_from: str | None = None,
) -> None:
    """Train a task for a number of epochs in all. Raises KeyboardInterrupt if the user stopped it.

    `began_from` is the digest of the networks that it goes on from, where there are any.
    """
    keep_freed_memory()
    task.workers = options.workers
    with _quiet_lightning(), ExitStack() as alone:
        trainer = _trainer(task, epochs, folder, procedure, options)
        if rank_zero_only.rank == 0:  # one speaks for all: others start later, or wait for it before the first batch
            alone.enter_context(only_user(folder.path))
            folder.begin(task.settings, resume=options.resume, began_from=began_from)
        try:
            trainer.fit(task, ckpt_path=str(folder.last) if folder.last.is_file() else None, weights_only=True)
        except SystemExit as error:  # Lightning's answer to Ctrl-C
            raise KeyboardInterrupt from error
        if trainer.interrupted:
            raise KeyboardInterrupt
        if trainer.is_global_zero:
            folder.finish()


def check_machine(options: FitOptions) -> None:
    """Complain if this machine has not what the options ask for."""
    _check_wandb(options)
    with _quiet_lightning():
        _make_trainer(options, logger=False, enable_checkpointing=False)


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        warnings.filterwarnings("ignore", module="torch.utils.tensorboard")
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        yield


def _trainer(task: Task, epochs: int, folder: StageFolder, procedure: Procedure, options: FitOptions) -> Trainer:
    keep_best = [_KeepBest(folder.best, procedure)] if task.keeps_best else []
    # what goes on from trained networks may make them worse: then they are kept as they were
    judge_before = task.begins_trained and not folder.last.is_file()
    return _make_trainer(
        options,
        accumulate_grad_batches=options.accumulate_batches,
        max_epochs=epochs,
        callbacks=[*keep_best, _KeepResumable(folder.last), *options.callbacks],
        plugins=[_WriteInPlace(), *([_SyncBatchNorms()] if _shares_statistics(task, options) else [])],
        logger=_logger(folder, options),
        log_every_n_steps=10,
        num_sanity_val_steps=-1 if judge_before else 0,
        reload_dataloaders_every_n_epochs=1,  # each epoch has batches of its own
        use_distributed_sampler=False,  # our samplers share the work themselves
    )


def _make_trainer(options: FitOptions, **more: Any) -> Trainer:
    kind, _, number = options.device.partition(":")
    try:
        return Trainer(
            accelerator=kind,
            devices=[int(number)] if number else options.devices,
            num_nodes=options.machines,
            strategy="ddp" if options.processes > 1 else "auto",
            precision=options.precision,
            enable_progress_bar=False,
            enable_model_summary=False,
            **more,
        )
    except MisconfigurationException as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"this machine cannot train so: {reason}", cure="change --device or --devices") from error


def _shares_statistics(task: nn.Module, options: FitOptions) -> bool:
    """Whether batch norms must be told to look at all processes; on a CPU they cannot."""
    has_batch_norms = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in task.modules())
    return options.processes > 1 and options.torch_device.type == "cuda" and has_batch_norms


def _check_wandb(options: FitOptions) -> None:
    if options.wandb_project is not None and find_spec("wandb") is None:
        raise InputError("wandb is not installed", cure="run: pip install wandb, or log to TensorBoard")


def _logger(folder: StageFolder, options: FitOptions) -> Logger:
    _check_wandb(options)
    if options.wandb_project is not None:
        return WandbLogger(project=options.wandb_project, name=folder.path.name, save_dir=folder.path / "log")
    return TensorBoardLogger(folder.path, name="log", version="")
