"""Makes torchvision importable beside a build of torch that its compiled part does not fit.

timm imports torchvision. A torchvision that was compiled for another build of torch (one with CUDA beside one without,
say) cannot load its compiled operators, and then refuses to be imported at all: `operator torchvision::nms does not
exist`. Nothing here or in timm uses these operators, so it is enough that they are declared.
"""

from __future__ import annotations

import sys
from importlib import import_module

import torch

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")
_declared: list[torch.library.Library] = []  # the declarations live as long as this does


def make_torchvision_importable() -> bool:
    """Import torchvision, after declaring its missing operators if that is what stops it; whether it was.

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
