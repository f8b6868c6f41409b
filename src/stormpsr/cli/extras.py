"""Says in one line what to install, before a command that learns runs into a missing package."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["need_train_extra"]

_TRAIN = ("torch", "timm", "pydantic", "safetensors", "cv2", "lightning")


def need_train_extra(purpose: str) -> None:
    """Complain if a package of the `train` extra is missing."""
    from stormpsr.errors import MissingExtraError

    missing = [name for name in _TRAIN if find_spec(name) is None]
    if missing:
        raise MissingExtraError(purpose, "train", ", ".join(missing))
