"""Trained networks on disk: a folder that needs nothing else to be used. Streams and detectors have the same.

    model.safetensors   the tensors; of a stream: `encoder.*`, and `temporal.*` once the temporal model is trained
    config.yaml         every setting
    procedure.yaml      what the outputs mean
    metrics.json        how good it was, and on what

A checkpoint is there completely or not at all. It is read strictly: a tensor too many, too few or of another shape is
an error, and no code is ever read from it.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stormpsr.config import Config, dump_config, load_config
from stormpsr.data.images import GEOMETRY
from stormpsr.errors import InputError, StormPSRError
from stormpsr.files import read_json_object, replacing, replacing_folder, write_json, write_text
from stormpsr.procedure.model import Procedure

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from stormpsr.models.encoder import SpatialEncoder
    from stormpsr.models.locator import Locator
    from stormpsr.models.stream import SpatioTemporalModel


M = TypeVar("M")
MODEL_FILE, CONFIG_FILE, PROCEDURE_FILE, METRICS_FILE = FILES = (
    "model.safetensors",
    "config.yaml",
    "procedure.yaml",
    "metrics.json",
)
GRAPHS_FILE = "graphs.json"  # in the place of MODEL_FILE where networks were exported: see stormpsr.runtime
_FORMAT, _OLD_FORMAT = "stormpsr checkpoint 2", "stormpsr checkpoint 1"
# parts of tensor names in files of the old format, and of detectors without any
_RENAMED = {"look": "cross_attention", "think": "mlp", "norm_thought": "norm_mlp", "taste": "reading_score"}


# ---------------------------------------------------------------------- where to compute
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h


@cache
def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, where the C library can be told to (glibc).

    Batches of images take hundreds of megabytes that are freed and asked for again. By default they go back to the
    system, which has to clear every page anew: more than half of the time of a batch that a small network looks at, and
    a quarter of that of a training step (docs/results/speed.md). Who looks at one image at a time has no use for it.
    """
    if sys.platform == "linux":
        set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
        if set_option is not None:
            set_option(_M_MMAP_MAX, 0)
            set_option(_M_TRIM_THRESHOLD, 2**31 - 1)


def device_of(name: str | torch.device, threads: int | None = None) -> torch.device:
    """The device that a name means: `auto` (the first that this machine has), `cpu`, `cuda`, `cuda:1` or `mps`.

    threads: of the processor that torch uses from now on; None leaves that alone.
    """
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    has = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next((kind for kind, there in has.items() if there), "cpu"))
    try:
        device = torch.device(name)
    except RuntimeError:
        cure = "choose auto, cpu, cuda, cuda:1 (the second GPU) or mps"
        raise InputError(f"there is no device {str(name)!r}", cure=cure) from None
    n_gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    if not has.get(device.type, True) or (device.type == "cuda" and (device.index or 0) >= n_gpus):
        there = ["cpu", *(f"cuda:{k}" for k in range(n_gpus) if has["cuda"]), *(["mps"] if has["mps"] else [])]
        problem = f"device {str(name)!r} is not available here"
        raise InputError(
            problem, cure=f"choose auto or one of: {', '.join(there)} (or install a build of torch for it)"
        )
    return device


# ---------------------------------------------------------------------- streams
@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A stream's checkpoint that has been read."""

    path: Path
    config: Config
    procedure: Procedure
    metrics: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @property
    def has_temporal(self) -> bool:
        """Whether the temporal model is in it, too, or the spatial encoder alone."""
        return any(name.startswith("temporal.") for name in self.tensors)

    def encoder(self) -> SpatialEncoder:
        """The spatial encoder, ready for use."""
        from stormpsr.models.stream import build_encoder

        own = self._below("encoder.")
        return built(lambda: build_encoder(self.config.encoder, weights="none"), own, self.path)

    def locator(self) -> Locator:
        """The network that finds the assembly, ready for use."""
        from stormpsr.models.locator import Locator

        locator = Locator()
        fill(locator, self._below("encoder.locator."), self.path / MODEL_FILE)
        return locator

    def stream(self) -> SpatioTemporalModel:
        """Encoder and temporal model, ready for use."""
        from stormpsr.models.stream import build_stream

        if not self.has_temporal:
            cure = "train the temporal model first, or give a checkpoint that has one"
            raise InputError("this checkpoint holds a spatial encoder alone", path=self.path, cure=cure)
        n_components = self.procedure.n_components
        return built(lambda: build_stream(self.config, n_components, weights="none"), self.tensors, self.path)

    def _below(self, prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}


def save_checkpoint(
    folder: str | Path,
    *,
    tensors: Mapping[str, Tensor],
    config: Config,
    procedure: Procedure,
    metrics: Mapping[str, Any],
) -> None:
    """Write a checkpoint; one that is there already is replaced. Tensors have the names of a `SpatioTemporalModel`."""
    folder = Path(folder)
    if folder.exists() and not (folder / MODEL_FILE).is_file() and (folder.is_file() or any(folder.iterdir())):
        raise InputError("this is no checkpoint, and would be overwritten", path=folder, cure="choose another name")
    write_folder(folder, config=dump_config(config), tensors=tensors, procedure=procedure, metrics=metrics)


def load_checkpoint(folder: str | Path) -> Checkpoint:
    """Read a checkpoint."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("there is no such checkpoint", path=folder, cure="give the folder that training wrote")
    for name in FILES:
        if not (folder / name).is_file():
            raise InputError(f"the checkpoint has no {name}", path=folder, cure="give the folder that training wrote")
    return Checkpoint(
        path=folder,
        config=load_config(folder / CONFIG_FILE),
        procedure=Procedure.load(folder / PROCEDURE_FILE),
        metrics=read_json_object(folder / METRICS_FILE),
        tensors=read_tensors(folder / MODEL_FILE),
    )


def encoder_digest(encoder: SpatialEncoder) -> str:
    """A fingerprint of everything that decides what an encoder makes of an image."""
    about = f"{GEOMETRY} {type(encoder.backbone).__name__} {encoder.image_size} {encoder.crop_size}"
    about += "" if encoder.embedding_norm == "none" else f" {encoder.embedding_norm}"
    return tensors_digest(encoder, about)


def tensors_digest(module: Any, about: str = "") -> str:
    """A fingerprint of a network's tensors."""
    digest = hashlib.sha256(about.encode())
    for name, tensor in sorted(module.state_dict().items()):
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


# ---------------------------------------------------------------------- the folder, of streams and detectors
def write_folder(
    folder: str | Path,
    *,
    config: str,
    tensors: Mapping[str, Tensor],
    procedure: Procedure,
    metrics: Mapping[str, Any],
) -> None:
    """Write the four files, all at once; whatever else is in the folder stays there."""
    from safetensors.torch import save_file

    folder = Path(folder)
    with replacing_folder(folder) as draft:
        for other in folder.iterdir() if folder.is_dir() else ():
            if other.name not in FILES:
                shutil.copytree(other, draft / other.name) if other.is_dir() else shutil.copy2(other, draft)
        write_text(draft / CONFIG_FILE, config)
        procedure.save(draft / PROCEDURE_FILE)
        write_json(draft / METRICS_FILE, dict(sorted(metrics.items())))
        own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        with replacing(draft / MODEL_FILE) as path:
            save_file(own, path, metadata={"format": _FORMAT})


def read_tensors(path: Path, *, may_be_unnamed: bool = False) -> dict[str, Tensor]:
    """The tensors of a file under the names that they have today. Detectors used not to name their format."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            found = (file.metadata() or {}).get("format")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # the file is no mapping
    except SafetensorError as error:
        raise InputError(f"the tensors cannot be read ({error})", path=path, cure="copy or train it again") from error
    if found == _FORMAT:
        return tensors
    if found != _OLD_FORMAT and not (may_be_unnamed and found in (None, "pt")):
        raise InputError(f"the format is {found!r}, not {_FORMAT!r}", path=path, cure="give one of this package")
    return {".".join(_RENAMED.get(part, part) for part in name.split(".")): t for name, t in tensors.items()}


def built(make: Callable[[], M], tensors: Mapping[str, Tensor], folder: Path, *, shapes_first: bool = True) -> M:
    """A network by settings, with its tensors.

    Settings that are right by themselves may not go together, or describe a network that no memory holds: it is first
    made of shapes alone, where it can be. Whatever torch and timm then raise is one complaint.
    """
    import torch

    path = folder / MODEL_FILE
    try:
        if shapes_first:
            with torch.device("meta"):
                _check_fit(make(), tensors, path)
        network = make()
    except StormPSRError:
        raise
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        problem = f"no network can be made by these settings ({reason})"
        raise InputError(problem, path=folder / CONFIG_FILE, cure="give the folder that training wrote") from error
    fill(network, tensors, path)
    return network


def fill(module: Any, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Put tensors into a network, which must have exactly these, and make it ready for use."""
    _check_fit(module, tensors, path)
    module.load_state_dict(tensors, strict=True)
    module.eval()


def _check_fit(module: Any, tensors: Mapping[str, Tensor], path: Path) -> None:
    wanted = module.state_dict()
    problems = [f"tensor {name!r} is missing" for name in wanted if name not in tensors]
    problems += [f"tensor {name!r} is not part of the network" for name in tensors if name not in wanted]
    problems += [
        f"tensor {name!r} has the shape {tuple(tensors[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in tensors and tensors[name].shape != tensor.shape
    ]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        cure = f"{CONFIG_FILE}, {PROCEDURE_FILE} and {MODEL_FILE} do not belong together"
        raise InputError(f"{problems[0]}{more}", path=path, cure=cure)


def begin_with(network: nn.Module, tensors: Mapping[str, Tensor], prefix: str = "") -> int:
    """Take over the tensors of a trained network that fit by name and shape; how many did.

    What does not fit begins anew: a network for another number of components keeps what it knows of images.
    """
    own = network.state_dict()
    fitting = {
        name: tensors[f"{prefix}{name}"].to(tensor.dtype)
        for name, tensor in own.items()
        if f"{prefix}{name}" in tensors and tensors[f"{prefix}{name}"].shape == tensor.shape
    }
    network.load_state_dict({**own, **fitting})
    return len(fitting)
