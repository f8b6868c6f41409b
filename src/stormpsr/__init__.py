"""Procedure step recognition: which steps of an assembly have been correctly completed, and when.

Importing this package needs numpy and nothing heavier. Names are loaded when they are first used, so that the command
line answers at once; what needs more says in one line what to install.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stormpsr.data.dataset import Dataset
    from stormpsr.data.events import StateDetection, StepEvent
    from stormpsr.data.labels import (
        StateTimeline,
        read_states,
        read_steps,
        steps_from_states,
        write_states,
        write_steps,
    )
    from stormpsr.data.sources import Frame
    from stormpsr.decoding.methods import decode, make_decoder
    from stormpsr.decoding.predictions import Decoder
    from stormpsr.errors import InputError, MissingExtraError, StormPSRError
    from stormpsr.evaluation.metrics import Match, Scores, score
    from stormpsr.evaluation.summary import Summary, summarise
    from stormpsr.procedure.model import AssemblyState, Component, Procedure, Step, StepKind, Variant
    from stormpsr.recognizer.recognizer import FrameResult, Recognizer
    from stormpsr.recognizer.results import Results

__version__ = "0.1.0"

_MODULE_OF = {
    "AssemblyState": "procedure.model",
    "Component": "procedure.model",
    "Dataset": "data.dataset",
    "Decoder": "decoding.predictions",
    "Frame": "data.sources",
    "FrameResult": "recognizer.recognizer",
    "InputError": "errors",
    "Match": "evaluation.metrics",
    "MissingExtraError": "errors",
    "Procedure": "procedure.model",
    "Recognizer": "recognizer.recognizer",
    "Results": "recognizer.results",
    "Scores": "evaluation.metrics",
    "StateDetection": "data.events",
    "StateTimeline": "data.labels",
    "Step": "procedure.model",
    "StepEvent": "data.events",
    "StepKind": "procedure.model",
    "StormPSRError": "errors",
    "Summary": "evaluation.summary",
    "Variant": "procedure.model",
    "decode": "decoding.methods",
    "make_decoder": "decoding.methods",
    "read_states": "data.labels",
    "read_steps": "data.labels",
    "score": "evaluation.metrics",
    "steps_from_states": "data.labels",
    "summarise": "evaluation.summary",
    "write_states": "data.labels",
    "write_steps": "data.labels",
}

__all__ = [
    "AssemblyState",
    "Component",
    "Dataset",
    "Decoder",
    "Frame",
    "FrameResult",
    "InputError",
    "Match",
    "MissingExtraError",
    "Procedure",
    "Recognizer",
    "Results",
    "Scores",
    "StateDetection",
    "StateTimeline",
    "Step",
    "StepEvent",
    "StepKind",
    "StormPSRError",
    "Summary",
    "Variant",
    "__version__",
    "decode",
    "make_decoder",
    "read_states",
    "read_steps",
    "score",
    "steps_from_states",
    "summarise",
    "write_states",
    "write_steps",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'stormpsr' has no attribute {name!r}")
    value = getattr(import_module(f"stormpsr.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
