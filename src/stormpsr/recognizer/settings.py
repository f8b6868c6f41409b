"""`recognizer.yaml`: every setting between the networks and the events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import yaml

from stormpsr.errors import InputError
from stormpsr.models.detector import DEFAULT_MIN_CONFIDENCE
from stormpsr.recognition.fusion import FusionMethod, FusionSettings
from stormpsr.yaml_nodes import Problem, compose, guess

__all__ = ["METHODS", "MethodSettings", "RecognizerSettings", "load_settings", "save_settings"]

METHODS: tuple[FusionMethod, ...] = get_args(FusionMethod)
_FORMAT = "stormpsr recognizer 1"


@dataclass(frozen=True, slots=True)
class MethodSettings:
    """What tuning chooses for a method. Defaults are those of `FusionSettings`, the paper's for IndustReal."""

    threshold: float = 6.0  # evidence that completes a step
    decay: float = 0.75  # factor per tick for steps that the tick does not support
    min_change_probability: float = 0.5  # the temporal model says "changed" above this
    removal_factor: float = 1.0  # removals need this many times the threshold
    min_detection_confidence: float = 0.0  # less sure detections are not heard
    implied_share: float | None = None  # a step completes those it needs if they have this share; null: no order

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if value is None and name == "implied_share":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"{name} is {value!r}, not a number")
        FusionSettings(**asdict(self))  # refuses what does not make sense


@dataclass(frozen=True)
class RecognizerSettings:
    """How the networks are run, and how each method decides."""

    temporal_stride: int = 4  # ticks from one run of the temporal model to the next
    detector_stride: int = 1  # ticks from one look of the detector to the next
    detector_min_confidence: float = DEFAULT_MIN_CONFIDENCE  # weaker detections are never passed on
    bridge_seconds: float = 0.5  # the longest gap in which the last frame stands in for those that did not come
    methods: Mapping[str, MethodSettings] = field(
        default_factory=lambda: MappingProxyType({method: MethodSettings() for method in METHODS})
    )

    def __post_init__(self) -> None:
        for name in ("temporal_stride", "detector_stride"):
            stride = getattr(self, name)
            if isinstance(stride, bool) or not isinstance(stride, int) or stride < 1:
                raise InputError(f"{name} is {stride!r}, but it must be a whole number of at least 1")
        for name, high in (("detector_min_confidence", 1.0), ("bridge_seconds", 60.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= high:
                raise InputError(f"{name} is {value!r}, but it must lie between 0 and {high:g}")
        unknown = next((method for method in self.methods if method not in METHODS), None)
        if unknown is not None:
            raise InputError(f"unknown method {unknown!r}", cure=guess(unknown, METHODS, f"there are: {METHODS}"))

    def bridge_ticks(self, fps: float) -> int:
        return int(self.bridge_seconds * fps)

    def fusion(self, method: str, *, window_frames: int, fps: float, unexpected: Any = "drop") -> FusionSettings:
        """The settings of a method's fusion, with what follows from the temporal model and the strides."""
        if method not in METHODS:
            cure = guess(method, METHODS, f"choose one of: {', '.join(METHODS)}")
            raise InputError(f"unknown method {method!r}", cure=cure)
        own = self.methods.get(method, MethodSettings())
        return FusionSettings(
            method=method,
            window_frames=window_frames,
            hold_frames=self.temporal_stride + self.bridge_ticks(fps),
            unexpected=unexpected,
            **asdict(own),
        )

    def with_method(self, method: str, settings: MethodSettings) -> RecognizerSettings:
        return replace(self, methods={**self.methods, method: settings})


# ---------------------------------------------------------------------- files
def save_settings(path: Path, settings: RecognizerSettings) -> None:
    plain: dict[str, Any] = {
        "format": _FORMAT,
        "temporal_stride": settings.temporal_stride,
        "detector_stride": settings.detector_stride,
        "detector_min_confidence": settings.detector_min_confidence,
        "bridge_seconds": settings.bridge_seconds,
        "methods": {method: asdict(own) for method, own in settings.methods.items()},
    }
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(yaml.safe_dump(plain, sort_keys=False), encoding="utf-8", newline="\n")
    draft.replace(path)


def load_settings(path: Path) -> RecognizerSettings:
    """Read `recognizer.yaml`; what is not in it has its default."""
    if not path.is_file():
        raise InputError("there is no such file", path=path, cure="'stormpsr model pack' makes a model's folder")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError("this is not text in UTF-8", path=path, cure="save it as UTF-8") from error
    root = compose(text)
    if isinstance(root, Problem):
        root.raise_error(path)
    plain = yaml.safe_load(text)
    if not isinstance(plain, dict) or plain.pop("format", None) != _FORMAT:
        raise InputError("this does not describe a recogniser", path=path, cure=f"it begins with 'format: {_FORMAT}'")
    try:
        return _settings_of(plain)
    except InputError as error:
        raise InputError(error.problem, path=path, line=_line_of(text, error.problem), cure=error.cure) from None


def _settings_of(plain: dict[str, Any]) -> RecognizerSettings:
    methods = plain.pop("methods", None) or {}
    if not isinstance(methods, dict) or not all(isinstance(own, dict) for own in methods.values()):
        raise InputError("methods: a table of tables is needed", cure="write 'methods:', then 'average:', indented")
    _refuse_unknown(plain, RecognizerSettings, leave_out=("methods",))
    for own in methods.values():
        _refuse_unknown(own, MethodSettings)
    read = {str(method): MethodSettings(**own) for method, own in methods.items()}
    defaults: dict[str, MethodSettings] = {method: MethodSettings() for method in METHODS}
    return RecognizerSettings(**plain, methods={**defaults, **read})


def _refuse_unknown(plain: dict[str, Any], kind: Any, leave_out: tuple[str, ...] = ()) -> None:
    known = [entry.name for entry in fields(kind) if entry.name not in leave_out]
    for key in plain:
        if key not in known:
            raise InputError(f"{key} is no setting", cure=guess(str(key), known, f"there are: {', '.join(known)}"))


def _line_of(text: str, problem: str) -> int | None:
    """The first line that begins with the setting that a complaint begins with."""
    word = problem.replace("unknown method", "").strip(" '").split("'")[0].split()[0].rstrip(":")
    lines = text.splitlines()
    return next((i for i, line in enumerate(lines, start=1) if line.strip().startswith(f"{word}:")), None)
