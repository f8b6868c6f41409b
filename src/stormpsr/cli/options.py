"""What the commands share: options, packages they need, and how they load models, detectors, data and procedures."""

from __future__ import annotations

import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stormpsr.cli.output import print_notes
from stormpsr.decoding.methods import method_help
from stormpsr.errors import InputError, need_packages
from stormpsr.files import read_text, user_cache
from stormpsr.procedure.model import Procedure

if TYPE_CHECKING:
    from collections.abc import Callable

    from stormpsr.cluster import Cluster
    from stormpsr.data.dataset import Dataset
    from stormpsr.detectors.base import StateDetector
    from stormpsr.recognizer.model_folder import RecognizerModel

# ---------------------------------------------------------------------- options
PLOTS = (".png", ".svg", ".pdf")  # how the name of a plot may end
_PROCEDURE = "A shipped procedure (industreal, meccano, impact) or a YAML file."
_RECORDINGS = "Which recordings to use."

ModelArgument = Annotated[
    str, typer.Argument(help="Folder of a model, or the name of one that is shipped.", metavar="MODEL")
]
ProcedureArgument = Annotated[str, typer.Argument(metavar="NAME_OR_FILE", help=_PROCEDURE)]
DataOption = Annotated[
    str, typer.Option("--data", "-d", help="Folder of recordings with labels, or its address: s3://bucket/data.")
]
ProcedureOption = Annotated[str, typer.Option("--procedure", "-p", help=_PROCEDURE)]
DataProcedureOption = Annotated[
    str | None, typer.Option("--procedure", "-p", help=_PROCEDURE, show_default="procedure.yaml in the data")
]
LabelsArgument = Annotated[Path, typer.Argument(help="PSR_labels.csv, or a folder of recordings.")]
MissingOption = Annotated[
    Literal["error", "empty", "skip"], typer.Option(help="What to do with recordings that have no predictions.")
]
VariantOption = Annotated[
    str | None,
    typer.Option(help="Variant of the procedure.", show_default="the one in the recording's name, else the first"),
]
BoxesOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder of NAME_GT.csv files (MECCANO's format).", show_default="OD_labels.json in each recording"
    ),
]
ImagesOption = Annotated[
    list[Path] | None, typer.Option(help="Folder of single images, as 'synth states' draws them; may be repeated.")
]
Split = Annotated[Literal["train", "val", "test"], typer.Option(help=_RECORDINGS)]
AnySplit = Annotated[Literal["train", "val", "test"] | None, typer.Option(help=_RECORDINGS, show_default="all")]
SplitOrAll = Annotated[
    Literal["train", "val", "test", "all"], typer.Option(help="Which recordings to use; 'all' if there are no splits.")
]
Protocol = Annotated[
    Literal["paper", "industreal", "storm"],
    typer.Option(help="The paper's definitions, or what one of the two published programs computes."),
]
MethodOption = Annotated[
    str | None, typer.Option(metavar="METHOD", help=f"Decoding method: {method_help()}", show_default="the model's")
]
MethodsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="METHOD",
        help=f"Decoding method; may be repeated: {method_help()}",
        show_default="each stream alone, both, and those that have learned",
    ),
]
UnexpectedOption = Annotated[
    Literal["drop", "report"] | None,
    typer.Option(help="What to do with steps that the variant does not expect.", show_default="the method's way"),
]
TemporalStride = Annotated[
    int | None, typer.Option(min=1, help="Run the temporal model every N frames.", show_default="the model's")
]
DetectorStride = Annotated[
    int | None, typer.Option(min=1, help="Run the detector every N frames.", show_default="the model's")
]
CacheOption = Annotated[
    Path | None, typer.Option(help="Folder in which predictions are kept.", show_default="in the user's cache")
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Let the workers of a Dask cluster do it: tcp://host:8786, or a scheduler file.",
        show_default="this machine",
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads.", show_default="all cores")]
MeasuredThreadsOption = Annotated[
    int | None, typer.Option("--threads", min=1, help="CPU threads.", show_default="measured, and again while it runs")
]
ForceFlag = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]

# how to train: `stormpsr train` and `stormpsr detect train`
DeviceOption = Annotated[
    str, typer.Option(help="Where to compute: auto, cpu, cuda, mps, or one of several, for example cuda:1.")
]
DevicesOption = Annotated[int, typer.Option(min=1, help="Devices per machine (more than one: DDP).")]
PrecisionOption = Annotated[
    Literal["32-true", "16-mixed", "bf16-mixed"], typer.Option(help="Numerical precision of training.")
]
WorkersOption = Annotated[int, typer.Option(min=0, help="Worker processes that load batches.")]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option("--override", "-o", help="Change a setting: section.key=value; may be repeated."),
]


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def lines_of(path: Path, cure: str) -> list[str]:
    """Names in a text file, one per line; `cure` says what belongs into it."""
    names = [line.strip() for line in read_text(path, cure).splitlines() if line.strip()]
    if not names:
        raise InputError("the file is empty", path=path, cure=cure)
    return names


def check_output(path: Path | None, *endings: str) -> None:
    """Before any work is done, so that no result is lost to a typing error."""
    if path is not None and path.suffix.lower() not in endings:
        ending = f"files that end in {path.suffix!r}" if path.suffix else "a file whose name has no ending"
        raise InputError(f"cannot write {ending}", path=path, cure=f"use one of: {', '.join(endings)}")
    if path is not None and path.is_dir():
        raise InputError("this is a folder", path=path, cure="give the name of a file")


def settings_of(pairs: list[str]) -> dict[str, Any]:
    """`name=value` pairs; values are numbers where they look like numbers."""
    from stormpsr.yaml_loader import parse_yaml

    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair}", cure="write it like --set image_size=128")
        found[name.strip()] = parse_yaml(value, f"--set {pair}").data
    return found


# ---------------------------------------------------------------------- packages
_NETWORKS = ("torch", "timm", "safetensors", "pydantic", "cv2", "PIL", "av")
PACKAGES = {  # what a command looks for before it begins, by the extra that installs it
    "plot": ("matplotlib", "sklearn"),
    "synth": ("vtk", "trimesh", "cv2", "simplejpeg", "PIL", "av"),
    "detect": _NETWORKS,
    "annotate": ("starlette", "uvicorn", "cv2", "PIL", "av"),
    "station": ("starlette", "uvicorn"),
    "train": (*_NETWORKS, "lightning"),
    "edge": ("onnxruntime", "cv2", "PIL", "av"),
    "openvino": ("openvino", "cv2", "PIL", "av"),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "cluster": ("distributed",),
    "remote": ("fsspec",),
}


def need(purpose: str, extra: str, *packages: str) -> None:
    """Say in one line what to install, before anything runs into a missing package: all of an extra, or some of it."""
    need_packages(purpose, extra, *(packages or PACKAGES[extra]))


def extra_of(package: str) -> str | None:
    """The extra that installs a package; None if it is not one of ours."""
    return next((extra for extra, names in PACKAGES.items() if package.partition(".")[0] in names), None)


# ---------------------------------------------------------------------- loading
def use_threads(threads: int | None) -> None:
    """Let the networks compute with so many threads."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def measured_threads() -> AbstractContextManager[None]:
    """As many threads as are fastest on this machine, now and later; exported networks choose for themselves."""
    if "torch" not in sys.modules:
        return nullcontext()
    import torch

    from stormpsr.recognizer.threads import MeasuredThreads

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return MeasuredThreads(torch.set_num_threads, cores, time.perf_counter)


def load(
    model: str, temporal_stride: int | None, detector_stride: int | None, threads: int | None, device: str = "auto"
) -> RecognizerModel:
    """A model, and what a user should know about it on the error stream."""
    from stormpsr.recognizer.model_folder import load_model

    loaded = load_model(
        model, temporal_stride=temporal_stride, detector_stride=detector_stride, device=device, threads=threads
    )
    print_notes(loaded.notes)
    return loaded


def cluster_of(where: str | None, load: Callable[[], Any] | None = None, *reads: Path) -> Cluster | None:
    """A cluster whose workers read with `load` what they work with, if they need anything; None for this machine."""
    if where is None:
        return None
    from stormpsr.cluster import Cluster

    need("--cluster", "cluster")
    return Cluster(where, reads=reads) if load is None else Cluster(where, load, reads)


def model_cluster(where: str | None, model: RecognizerModel, threads: int | None, device: str) -> Cluster | None:
    """A cluster that runs the networks of a model, each with as many threads as here: then they say the same."""
    from stormpsr.recognizer.model_folder import load_model, resolve_model, shipped_models

    path, own = model.path.resolve(), model.settings
    strides = {"temporal_stride": own.temporal_stride, "detector_stride": own.detector_stride}
    is_shipped = path.name in shipped_models() and path == resolve_model(path.name).resolve()
    name = path.name if is_shipped else path  # each machine has its own copy of those
    load = partial(load_model, name, **strides, device=device, threads=same_threads(threads))
    return cluster_of(where, load, *([] if is_shipped else [path]))


def same_threads(threads: int | None) -> int | None:
    """As many as were asked for, or as torch uses here: sums of another number of threads may be rounded otherwise."""
    torch = sys.modules.get("torch")
    return threads if threads is not None or torch is None else int(torch.get_num_threads())


def procedure_of(data: Path, given: str | None) -> Procedure:
    """The procedure that was asked for, or the one that lies in the data, or beside a file of it."""
    from stormpsr.data.dataset import PROCEDURE_FILE, Dataset

    if given:
        return Procedure.load(given)
    folder = data.parent if data.is_file() else data
    if (folder / PROCEDURE_FILE).is_file():
        return Procedure.load(folder / PROCEDURE_FILE)
    return Dataset.open(folder).procedure


def open_data(data: str | Path, split: str | None, model: RecognizerModel | StateDetector) -> Dataset:
    """The recordings of a split, or all, whose procedures the model has not refused."""
    from stormpsr.data.dataset import Dataset

    dataset = Dataset.open(data, None if split == "all" else split, model.procedure)
    dataset.check(model.check_procedure)
    return dataset


def cache_folder(given: Path | None) -> Path:
    """Where predictions are kept: they can always be made again."""
    return user_cache() / "predictor" if given is None else given
