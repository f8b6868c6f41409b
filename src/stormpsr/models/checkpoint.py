"""Trained networks on disk: a folder that needs nothing else to be used.

    model.safetensors   the tensors: `encoder.*`, and `temporal.*` once the temporal model is trained
    config.yaml         every setting
    procedure.yaml      what the outputs mean
    metrics.json        how good it was, and on what

A checkpoint is there completely or not at all. It is read strictly: a tensor too many, too few or of another shape is
an error, and nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stormpsr.config import Config, dump_config, load_config
from stormpsr.data.images import GEOMETRY
from stormpsr.errors import InputError
from stormpsr.files import read_json_object, replacing, replacing_folder, write_json, write_text
from stormpsr.procedure.model import Procedure

if TYPE_CHECKING:
    from torch import Tensor

    from stormpsr.models.encoder import SpatialEncoder
    from stormpsr.models.locator import Locator
    from stormpsr.models.stream import SpatioTemporalModel


MODEL_FILE, CONFIG_FILE, PROCEDURE_FILE, METRICS_FILE = (
    "model.safetensors",
    "config.yaml",
    "procedure.yaml",
    "metrics.json",
)
_FORMAT = "stormpsr checkpoint 1"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A checkpoint that has been read."""

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

        encoder = build_encoder(self.config.encoder, weights="none")
        prefix = "encoder."
        own = {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}
        self._fill(encoder, own)
        return encoder

    def locator(self) -> Locator:
        """The network that finds the assembly, ready for use."""
        from stormpsr.models.locator import Locator

        locator = Locator()
        prefix = "encoder.locator."
        self._fill(locator, {k.removeprefix(prefix): t for k, t in self.tensors.items() if k.startswith(prefix)})
        return locator

    def stream(self) -> SpatioTemporalModel:
        """Encoder and temporal model, ready for use."""
        from stormpsr.models.stream import build_stream

        if not self.has_temporal:
            cure = "train the temporal model first, or give a checkpoint that has one"
            raise InputError("this checkpoint holds a spatial encoder alone", path=self.path, cure=cure)
        stream = build_stream(self.config, self.procedure.n_components, weights="none")
        self._fill(stream, self.tensors)
        return stream

    def _fill(self, module: Any, tensors: Mapping[str, Tensor]) -> None:
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
            cure = f"{CONFIG_FILE} and {MODEL_FILE} do not belong together"
            raise InputError(f"{problems[0]}{more}", path=self.path / MODEL_FILE, cure=cure)
        module.load_state_dict(tensors, strict=True)
        module.eval()


def save_checkpoint(
    folder: str | Path,
    *,
    tensors: Mapping[str, Tensor],
    config: Config,
    procedure: Procedure,
    metrics: Mapping[str, Any],
) -> None:
    """Write a checkpoint; one that is there already is replaced. Tensors have the names of a `SpatioTemporalModel`."""
    from safetensors.torch import save_file

    folder = Path(folder)
    if folder.exists() and not (folder / MODEL_FILE).is_file() and (folder.is_file() or any(folder.iterdir())):
        raise InputError("this is no checkpoint, and would be overwritten", path=folder, cure="choose another name")
    with replacing_folder(folder) as draft:
        write_text(draft / CONFIG_FILE, dump_config(config))
        procedure.save(draft / PROCEDURE_FILE)
        write_json(draft / METRICS_FILE, dict(sorted(metrics.items())))
        own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        with replacing(draft / MODEL_FILE) as path:
            save_file(own, path, metadata={"format": _FORMAT})


def load_checkpoint(folder: str | Path) -> Checkpoint:
    """Read a checkpoint."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("there is no such checkpoint", path=folder, cure="give the folder that training wrote")
    for name in (MODEL_FILE, CONFIG_FILE, PROCEDURE_FILE, METRICS_FILE):
        if not (folder / name).is_file():
            raise InputError(f"the checkpoint has no {name}", path=folder, cure="give the folder that training wrote")
    return Checkpoint(
        path=folder,
        config=load_config(folder / CONFIG_FILE),
        procedure=Procedure.load(folder / PROCEDURE_FILE),
        metrics=read_json_object(folder / METRICS_FILE),
        tensors=_read_tensors(folder / MODEL_FILE),
    )


def _read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            found = (file.metadata() or {}).get("format")
            if found != _FORMAT:
                raise InputError(
                    f"the format is {found!r}, not {_FORMAT!r}", path=path, cure="give one of this package"
                )
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # the file is no mapping
    except SafetensorError as error:
        raise InputError(f"the tensors cannot be read ({error})", path=path, cure="copy or train it again") from error


def encoder_digest(encoder: SpatialEncoder) -> str:
    """A fingerprint of everything that decides what an encoder makes of an image."""
    about = f"{GEOMETRY} {type(encoder.backbone).__name__} {encoder.image_size} {encoder.crop_size}"
    digest = hashlib.sha256(about.encode())
    for name, tensor in sorted(encoder.state_dict().items()):
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]
