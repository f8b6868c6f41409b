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
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stormpsr.config import Config, dump_config, load_config
from stormpsr.data.images import GEOMETRY
from stormpsr.errors import InputError
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
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    folder = Path(folder)
    if folder.exists() and not (folder / MODEL_FILE).is_file() and (folder.is_file() or any(folder.iterdir())):
        raise InputError("this is no checkpoint, and would be overwritten", path=folder, cure="choose another name")
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    text = json.dumps(dict(metrics), indent=2, sort_keys=True, allow_nan=False) + "\n"
    try:
        draft.mkdir(parents=True)
        (draft / CONFIG_FILE).write_text(dump_config(config), encoding="utf-8", newline="\n")
        procedure.save(draft / PROCEDURE_FILE)
        (draft / METRICS_FILE).write_text(text, encoding="utf-8", newline="\n")
        save_file(
            {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
            draft / MODEL_FILE,
            metadata={"format": _FORMAT},
        )
        (draft / MODEL_FILE).chmod((draft / CONFIG_FILE).stat().st_mode)  # safetensors makes it for its owner alone
        _swap_in(draft, folder)
    except (OSError, SafetensorError) as error:
        cure = "make room if the disk is full, and go on with --resume"
        raise InputError(f"the checkpoint cannot be written ({error})", path=folder, cure=cure) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _swap_in(draft: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(old)
    draft.rename(folder)
    for left in folder.parent.glob(f".{folder.name}.*"):  # by this process, or by one that was killed here
        if left.suffix in (".draft", ".old"):
            shutil.rmtree(left, ignore_errors=True)


def load_checkpoint(folder: str | Path) -> Checkpoint:
    """Read a checkpoint."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("there is no such checkpoint", path=folder, cure="give the folder that training wrote")
    for name in (MODEL_FILE, CONFIG_FILE, PROCEDURE_FILE, METRICS_FILE):
        if not (folder / name).is_file():
            raise InputError(f"the checkpoint has no {name}", path=folder, cure="give the folder that training wrote")
    try:
        metrics = json.loads((folder / METRICS_FILE).read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"this is not JSON ({error})", path=folder / METRICS_FILE) from error
    return Checkpoint(
        path=folder,
        config=load_config(folder / CONFIG_FILE),
        procedure=Procedure.load(folder / PROCEDURE_FILE),
        metrics=metrics,
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
