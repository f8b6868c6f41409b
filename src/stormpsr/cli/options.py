"""Says in one line what to install, before a command that learns runs into a missing package.

What the commands of `stormpsr detect` and `stormpsr boxes` make of their options.

What the commands around a recogniser share: options, loading a model, checking that data fits it.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stormpsr.decoding.methods import method_help

if TYPE_CHECKING:
    from stormpsr.detectors.base import StateDetector
    from stormpsr.procedure.model import Procedure
    from stormpsr.recognizer.model_folder import RecognizerModel


_TRAIN = ("torch", "timm", "pydantic", "safetensors", "cv2", "lightning")


def need_train_extra(purpose: str) -> None:
    """Complain if a package of the `train` extra is missing."""
    from stormpsr.errors import MissingExtraError

    missing = [name for name in _TRAIN if find_spec(name) is None]
    if missing:
        raise MissingExtraError(purpose, "train", ", ".join(missing))


def need_packages(purpose: str, *names: str) -> None:
    """Say in one line what to install, before anything runs into a missing package."""
    from importlib.util import find_spec

    from stormpsr.errors import MissingExtraError

    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise MissingExtraError(purpose, "detect", ", ".join(missing))


def procedure_of(data: Path, given: str | None) -> Procedure:
    """The procedure that was asked for, or the one that lies in the data."""
    from stormpsr.data.dataset import Dataset

    return Dataset.open(data, procedure=given).procedure


def check_detector_data(detector: StateDetector, folder: Path, data: Path) -> None:
    """Refuse data that shows another procedure than the detector's, where the data says which."""
    from stormpsr.data.dataset import Dataset

    Dataset.open(data, procedure=detector.procedure).check(lambda theirs, _: detector.check_procedure(theirs, folder))


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def settings_of(pairs: list[str]) -> dict[str, Any]:
    """`name=value` pairs; values are numbers where they look like numbers."""
    import yaml

    from stormpsr.errors import InputError

    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair}", cure="write it like --set image_size=128")
        found[name.strip()] = yaml.safe_load(value)
    return found


MethodOption = Annotated[str | None, typer.Option(metavar="METHOD", help=f"How to decide: {method_help()}")]
MethodsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="METHOD",
        help=f"May be repeated; default: each stream alone, and both. {method_help()}",
    ),
]
ModelArgument = Annotated[str, typer.Argument(help="Folder of a model, or the name of a shipped one.", metavar="MODEL")]
DataOption = Annotated[Path, typer.Option("--data", "-d", help="Folder of recordings with labels.")]
UnexpectedOption = Annotated[
    Literal["drop", "report"], typer.Option(help="What to do with steps that the variant does not expect.")
]
TemporalStride = Annotated[
    int | None, typer.Option(min=1, help="Frames between runs of the temporal model; default: the model's.")
]
DetectorStride = Annotated[
    int | None, typer.Option(min=1, help="Frames between looks of the detector; default: the model's.")
]
CacheOption = Annotated[
    Path | None,
    typer.Option(help="Folder for what the networks said about recordings.", show_default="in the user's cache"),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Processor threads; default: all cores.")]

# How to train, of `stormpsr train` and `stormpsr detect train`.
DeviceOption = Annotated[str, typer.Option(help="What computes: auto, cpu, cuda, mps, or one of several, as cuda:1.")]
DevicesOption = Annotated[int, typer.Option(min=1, help="Devices per machine (more than one: DDP).")]
PrecisionOption = Annotated[
    Literal["32-true", "16-mixed", "bf16-mixed"], typer.Option(help="Of the numbers in training.")
]
WorkersOption = Annotated[int, typer.Option(min=0, help="Processes that read batches.")]

_PACKAGES = ("torch", "timm", "pydantic", "safetensors", "cv2", "av")


def need_recognizer_packages(purpose: str, *more: str) -> None:
    """Say in one line what to install, before anything runs into a missing package."""
    from stormpsr.errors import MissingExtraError

    missing = [name for name in (*_PACKAGES, *more) if find_spec(name) is None]
    if missing:
        raise MissingExtraError(purpose, "train", ", ".join(missing))


def load(
    model: str,
    temporal_stride: int | None,
    detector_stride: int | None,
    threads: int | None,
    device: str = "auto",
) -> RecognizerModel:
    """A model, and what a user should know about it on the error stream."""
    import torch

    from stormpsr.recognizer.model_folder import load_model

    if threads is not None:
        torch.set_num_threads(threads)
    loaded = load_model(model, temporal_stride=temporal_stride, detector_stride=detector_stride, device=device)
    for note in loaded.notes:
        typer.echo(f"note: {note}", err=True)
    return loaded


def cache_folder(given: Path | None) -> Path:
    """Where what the networks said is kept: it can always be made again."""
    if given is not None:
        return given
    own = os.environ.get("STORMPSR_CACHE")
    if own:
        return Path(own) / "predictor"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "stormpsr" / "predictor"
