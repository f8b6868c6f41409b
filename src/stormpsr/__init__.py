"""Procedure step recognition: which steps of an assembly have been correctly completed, and when.

Importing this package needs numpy and nothing heavier. Names are loaded when they are first used, so that the command
line answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stormpsr.errors import InputError, StormPSRError
    from stormpsr.evaluation.metrics import Match, Scores, score
    from stormpsr.evaluation.summary import Summary, summarise
    from stormpsr.events import StateDetection, StepEvent
    from stormpsr.labels import StateTimeline, read_states, read_steps, steps_from_states, write_states, write_steps
    from stormpsr.procedure import AssemblyState, Component, Procedure, Step, StepKind, Variant
    from stormpsr.recognition.decoders import decode, make_decoder
    from stormpsr.recognizer.streaming import Recognizer as Recognizer

__version__ = "0.1.0"

_MODULE_OF = {
    "AssemblyState": "procedure",
    "Component": "procedure",
    "InputError": "errors",
    "Match": "evaluation.metrics",
    "Procedure": "procedure",
    "Recognizer": "recognizer.streaming",  # needs torch, and is therefore left out of __all__
    "Scores": "evaluation.metrics",
    "StateDetection": "events",
    "StateTimeline": "labels",
    "Step": "procedure",
    "StepEvent": "events",
    "StepKind": "procedure",
    "StormPSRError": "errors",
    "Summary": "evaluation.summary",
    "Variant": "procedure",
    "decode": "recognition.decoders",
    "make_decoder": "recognition.decoders",
    "read_states": "labels",
    "read_steps": "labels",
    "score": "evaluation.metrics",
    "steps_from_states": "labels",
    "summarise": "evaluation.summary",
    "write_states": "labels",
    "write_steps": "labels",
}

__all__ = [
    "AssemblyState",
    "Component",
    "InputError",
    "Match",
    "Procedure",
    "Scores",
    "StateDetection",
    "StateTimeline",
    "Step",
    "StepEvent",
    "StepKind",
    "StormPSRError",
    "Summary",
    "Variant",
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
    return sorted({*globals(), *_MODULE_OF})
