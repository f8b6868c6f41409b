"""For tests of networks: the same random numbers every time, and one thread, which is fastest for small networks."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
