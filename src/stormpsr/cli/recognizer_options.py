"""What the commands around a recogniser share: options, loading a model, checking that data fits it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from stormpsr.datasets import RecordingFolder
    from stormpsr.recognizer.folder import RecognizerModel

__all__ = ["cache_folder", "check_data", "load", "need_recognizer_packages"]

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

_PACKAGES = ("torch", "timm", "pydantic", "safetensors", "cv2", "av")


def need_recognizer_packages(purpose: str, *more: str) -> None:
    """Say in one line what to install, before anything runs into a missing package."""
    from stormpsr.errors import MissingExtraError

    missing = [name for name in (*_PACKAGES, *more) if find_spec(name) is None]
    if missing:
        raise MissingExtraError(purpose, "train", ", ".join(missing))


def load(model: str, temporal_stride: int | None, detector_stride: int | None, threads: int | None) -> RecognizerModel:
    """A model, and what a user should know about it on the error stream."""
    import torch

    from stormpsr.recognizer.folder import load_model

    if threads is not None:
        torch.set_num_threads(threads)
    loaded = load_model(model, temporal_stride=temporal_stride, detector_stride=detector_stride)
    for note in loaded.notes:
        typer.echo(f"note: {note}", err=True)
    return loaded


def check_data(model: RecognizerModel, data: Path, recordings: Sequence[RecordingFolder]) -> None:
    """Refuse recordings of another procedure, where they say which one they show."""
    from stormpsr.procedure import Procedure

    for path in (data / "procedure.yaml", *(recording.path / "procedure.yaml" for recording in recordings)):
        if path.is_file():
            model.check_procedure(Procedure.load(path), path)


def cache_folder(given: Path | None) -> Path:
    """Where what the networks said is kept: it can always be made again."""
    if given is not None:
        return given
    own = os.environ.get("STORMPSR_CACHE")
    if own:
        return Path(own) / "perception"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "stormpsr" / "perception"
