"""One thread is fastest for small networks."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("torch"):  # so that test files may ask for timm, which imports torchvision
    from stormpsr.models.backbones import make_torchvision_importable

    make_torchvision_importable()


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """One thread is fastest for small networks."""
    if find_spec("torch"):
        import torch

        torch.set_num_threads(1)
