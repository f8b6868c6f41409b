"""Training a detector: steps, not epochs; interrupted training goes on where it stopped, with the same images."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from stormpsr.data.annotated_frames import FrameSet, ImageStore
from stormpsr.detectors.base import StepTrainedDetector, TorchDetector
from stormpsr.detectors.calibration import Calibration, fit_calibration
from stormpsr.detectors.predict import confidence_and_success, predict_frames
from stormpsr.errors import InputError
from stormpsr.training.detector_batches import Batches
from stormpsr.training.detector_settings import OnTraining, TrainingProgress, TrainingResult, TrainingSettings

PAUSE_FOLDER = "unfinished"
_PAUSE_TENSORS, _PAUSE_NOTES = "state.safetensors", "progress.json"


def fit(
    detector: StepTrainedDetector,
    train: FrameSet,
    val: FrameSet,
    settings: TrainingSettings,
    *,
    folder: Path | None = None,
    on_progress: OnTraining | None = None,
) -> TrainingResult:
    """Train a detector, calibrate it on the validation frames, and save it if a folder is given.

    With a folder, training that was stopped goes on from there; the same settings are required.
    """
    detector.check_procedure(train.procedure)
    torch.manual_seed(settings.seed)
    batches = Batches(train, ImageStore(detector.image_size), settings.batch, settings.augmentation, settings.seed)
    run = _Run(detector, settings)
    pause = None if folder is None else _Pause(folder / PAUSE_FOLDER, detector, settings)
    start = pause.restore(run) if pause else 0
    history: list[TrainingProgress] = []
    try:
        for step in range(start, settings.steps):
            torch.manual_seed(settings.seed * 1_000_003 + step)  # so that resumed training draws the same numbers
            losses = run.step(step, detector.losses(batches[step]))
            last = step == settings.steps - 1
            share = None
            if settings.validate_every and ((step + 1) % settings.validate_every == 0 or last):
                with run.averaged():
                    share = _share_right(detector, val, settings.validation_frames)
            progress = TrainingProgress(step + 1, settings.steps, losses, share)
            if share is not None:
                history.append(progress)
            if on_progress:
                on_progress(progress)
            if pause and (step + 1) % settings.pause_every == 0 and not last:
                pause.keep(run, step + 1)
    except KeyboardInterrupt:
        if pause:
            pause.keep(run, run.steps_done)
        raise
    run.take_average()
    detector.calibration = calibrate(detector, val, settings.calibration_frames)
    if folder is not None:
        detector.metrics["training"] = {**asdict(settings), "resumed_at": start}
        detector.save(folder)
    if pause:
        pause.clear()
    return TrainingResult(settings.steps, start, tuple(history), detector.calibration)


def calibrate(detector: TorchDetector, val: FrameSet, most_frames: int) -> Calibration:
    """The calibration that fits validation frames; readable and other frames count as often as they occur."""
    kept, detector.calibration = detector.calibration, Calibration()
    try:
        total = len(val.readable) + len(val.unreadable)
        chosen = val.thinned(max(1, math.ceil(total / (2 * most_frames))))
        seen = predict_frames(detector, [*chosen.readable, *chosen.unreadable], min_confidence=0.0)
        return fit_calibration(*confidence_and_success(seen))
    finally:
        detector.calibration = kept


def _share_right(detector: TorchDetector, val: FrameSet, most_frames: int) -> float:
    readable = val.readable[:: max(1, math.ceil(len(val.readable) / most_frames))]
    seen = predict_frames(detector, readable, min_confidence=0.0)
    return sum(frame.best is not None and frame.is_right(frame.best) for frame in seen) / len(seen)


class _Run:
    """The optimiser, and the average of the weights."""

    def __init__(self, detector: StepTrainedDetector, settings: TrainingSettings) -> None:
        self.network, self.settings = detector.network, settings
        groups = detector.parameter_groups(settings.learning_rate)
        self.optimiser = torch.optim.AdamW(groups, weight_decay=settings.weight_decay)
        self.full_rates = [group["lr"] for group in self.optimiser.param_groups]
        self.average = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
        self.steps_done = 0
        self.network.train()

    def step(self, step: int, losses: dict[str, Tensor]) -> dict[str, float]:
        """One step down the losses that were just computed."""
        total = torch.stack(list(losses.values())).sum()
        if not torch.isfinite(total):
            cure = "lower the learning rate, or start again with another seed"
            raise InputError(f"training diverged: the loss of step {step} is {float(total.detach())}", cure=cure)
        self.optimiser.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.clip_norm)
        for group, rate in zip(self.optimiser.param_groups, self.full_rates, strict=True):
            group["lr"] = rate * self.settings.rate_at(step)
        self.optimiser.step()
        self.steps_done = step + 1
        self._update_average(step)
        return {name: float(value.detach()) for name, value in losses.items()}

    def _update_average(self, step: int) -> None:
        memory = min(self.settings.average, (1 + step) / (10 + step))  # short at first, when weights move fast
        with torch.no_grad():
            for name, tensor in self.network.state_dict().items():
                kept = self.average[name]
                if tensor.is_floating_point():
                    kept.lerp_(tensor, 1 - memory)
                else:
                    kept.copy_(tensor)

    def averaged(self) -> _Swap:
        """A `with` block in which the network has the averaged weights; it trains on with its own."""
        return _Swap(self)

    def take_average(self) -> None:
        self.network.load_state_dict(self.average)
        self.network.eval()

    def tensors(self) -> dict[str, Tensor]:
        """All that training needs to go on."""
        state = self.optimiser.state_dict()["state"]
        moments = {f"optimiser/{k}/{key}": value for k, entry in state.items() for key, value in entry.items()}
        own = {f"network/{name}": tensor for name, tensor in self.network.state_dict().items()}
        kept = {f"average/{name}": tensor for name, tensor in self.average.items()}
        return {name: tensor.contiguous().clone() for name, tensor in {**own, **kept, **moments}.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.network.load_state_dict(dict(_below(tensors, "network/")))
        self.average = dict(_below(tensors, "average/"))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _below(tensors, "optimiser/"):
            place, _, key = name.partition("/")
            moments.setdefault(int(place), {})[key] = tensor
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})


class _Swap:
    def __init__(self, run: _Run) -> None:
        self._run = run

    def __enter__(self) -> None:
        network = self._run.network
        self._own = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        network.load_state_dict(self._run.average)

    def __exit__(self, *_: object) -> None:
        self._run.network.load_state_dict(self._own)
        self._run.network.train()


class _Pause:
    """The state of unfinished training, on disk."""

    def __init__(self, folder: Path, detector: TorchDetector, settings: TrainingSettings) -> None:
        self.folder = folder
        self.notes: dict[str, Any] = json.loads(
            json.dumps({"kind": detector.kind, "settings": detector.settings(), "training": asdict(settings)})
        )

    def keep(self, run: _Run, step: int) -> None:
        draft = self.folder.with_name(f".{self.folder.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        save_file(run.tensors(), draft / _PAUSE_TENSORS)
        (draft / _PAUSE_NOTES).write_text(json.dumps({"step": step, **self.notes}, indent=1), encoding="utf-8")
        shutil.rmtree(self.folder, ignore_errors=True)
        draft.rename(self.folder)

    def restore(self, run: _Run) -> int:
        """Take up what was kept; the step to go on with."""
        path = self.folder / _PAUSE_NOTES
        if not path.is_file():
            return 0
        try:
            notes = json.loads(path.read_text(encoding="utf-8"))
            step = int(notes.pop("step"))
        except (ValueError, KeyError) as error:
            raise InputError(f"cannot go on from here ({error})", path=path, cure="delete that folder") from None
        if notes != self.notes:
            cure = "use the same settings, or delete that folder to start again"
            raise InputError("the unfinished training here has other settings", path=self.folder, cure=cure)
        run.restore(load_file(self.folder / _PAUSE_TENSORS))
        run.steps_done = step
        return step

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _below(tensors: dict[str, Tensor], prefix: str) -> Iterator[tuple[str, Tensor]]:
    return ((name.removeprefix(prefix), tensor) for name, tensor in tensors.items() if name.startswith(prefix))
