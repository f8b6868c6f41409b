"""A spatial encoder that starts from a detector: it has learnt to find the assembly and to read its parts already.

The encoder takes the compact detector's locator and its reader: backbone, merged features and queries. What turns the
queries into an embedding is new.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from stormpsr.errors import InputError
from stormpsr.models.attention_pooling import EmbedByQueries
from stormpsr.models.encoder import SpatialEncoder

_MODEL_FILE = "model.safetensors"
_QUERIES = "query_QD"


def is_detector(weights: str) -> bool:
    """Whether a setting names a folder, as a detector's training leaves it, and not a word or a file."""
    return weights not in ("none", "hub", "package") and Path(weights).is_dir()


def start_from_detector(encoder: SpatialEncoder, folder: Path) -> None:
    """Fill locator and reader. An encoder may have more queries than the detector: the others stay as they are."""
    if encoder.locator is None or not isinstance(encoder.backbone, EmbedByQueries):
        cure = "set encoder.crop_size and encoder.n_queries, or other encoder.weights"
        raise InputError("only an encoder that crops and reads by queries can start from a detector", cure=cure)
    reader = encoder.backbone.reader
    theirs = _tensors(folder, "reader.")
    ours = reader.state_dict()
    n = len(theirs[_QUERIES])
    if n > len(ours[_QUERIES]):
        cure = f"set encoder.n_queries={n}"
        raise InputError(f"the detector reads by {n} queries, the encoder by {len(ours[_QUERIES])}", cure=cure)
    theirs[_QUERIES] = torch.cat([theirs[_QUERIES], ours[_QUERIES][n:]])
    for name, tensor in ours.items():
        if name not in theirs or theirs[name].shape != tensor.shape:
            cure = "encoder.backbone and encoder.crop_size must be those of the detector's config.yaml"
            raise InputError(f"the detector has another network than the encoder ({name})", path=folder, cure=cure)
    reader.load_state_dict(theirs)
    encoder.locator.load_state_dict(_tensors(folder, "locator."))


def _tensors(folder: Path, prefix: str) -> dict[str, Tensor]:
    """The detector's tensors whose names begin so, without it."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / _MODEL_FILE
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        cure = "give the folder that `stormpsr detect train` wrote"
        raise InputError(f"no detector can be read here ({error})", path=path, cure=cure) from error
    own = {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}
    if not own:
        cure = "give the folder of a compact detector, the default of `stormpsr detect train`"
        raise InputError("this is no detector that an encoder can start from", path=path, cure=cure)
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in own.items()}
