"""Decoding methods: the ways to turn what the networks say into step events, and the one list of them.

A method is a `Decoder` class in a file of its own and an entry in `METHODS`. From there it appears by itself in `run`,
`decode`, `tune`, `evaluate`, in tables, plots and the report, and its settings in `recognizer.yaml`. A method that is
not in the list is named by its class, `package.module:Class`, wherever a name is asked for.

Nothing heavier than the standard library is imported here, so that `--help` can list the methods at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from importlib import import_module
from itertools import product
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stormpsr.decoding.predictions import Prediction
    from stormpsr.procedure.model import Procedure, StateBits

Stream = Literal["detection", "temporal"]
Grid = Mapping[str, Sequence[Any]]
# settings that a recogniser fills in, where a method has them; they are neither stored nor tuned
FROM_MODEL = ("window_frames", "hold_frames", "unexpected", "folder")
_LONGEST_REST = 256  # unseen frames after which nothing is left to decay


# ---------------------------------------------------------------------- what a method is
class LabelledRecording(Protocol):
    """What a method may learn from: a recording's predictions, and the steps that are true."""

    @property
    def name(self) -> str: ...
    @property
    def variant(self) -> str: ...
    @property
    def labels(self) -> Sequence[StepEvent]: ...
    @property
    def predictions(self) -> Iterable[Prediction]: ...


class Decoder(ABC):
    """Feed it every frame; it returns the steps that the frame completes.

    Only `update`, `reset`, `state` and `share` must be written; the rest has an answer that is right, if slow.
    """

    Settings: ClassVar[type[Any]]  # a frozen dataclass that checks itself; every field has a default
    grid: ClassVar[Grid] = {}  # the values that tuning tries, by setting; empty: nothing to tune
    # what a class that is not in `METHODS` says of itself
    title: ClassVar[str] = ""
    help: ClassVar[str] = ""
    colour: ClassVar[str] = "#5a6068"
    dark_colour: ClassVar[str] = "#b0b5bd"  # the same on a dark page
    streams: ClassVar[tuple[Stream, ...]] = ("detection",)

    def __init__(self, procedure: Procedure, variant: str | None = None, settings: Any = None) -> None:
        """`variant`: the procedure's first where none is given. `settings`: the defaults where none are given."""
        self.procedure = procedure
        self.variant = procedure.variant(variant)
        self.settings = self.Settings() if settings is None else settings
        self._frame = -1
        self.reset()

    @abstractmethod
    def reset(self) -> None:
        """Forget everything, for a new recording."""
        self._frame = -1

    @abstractmethod
    def update(
        self,
        detections: Sequence[StateDetection],
        change_probabilities: Sequence[float] | NDArray[np.floating] | None = None,
        frame: int | None = None,
    ) -> list[StepEvent]:
        """The events of the next frame. `frame` is its number; without one, frames are counted from 0.

        detections: the most confident first. change_probabilities: the temporal model's word on each component, in the
        frames in which it ran. A stream that the method does not listen to may be left out.
        """

    def observe(self, prediction: Prediction) -> list[StepEvent]:
        """`update` with all that the networks said about a tick. A method that needs more of it takes it from here."""
        self.rest(prediction.tick)
        return self.update(prediction.detections or (), prediction.change_C, prediction.tick)

    def rest(self, frame: int) -> None:
        """Let the frames before `frame` pass, of which nothing is known."""
        for unseen in range(self._frame + 1, min(frame, self._frame + 1 + _LONGEST_REST)):
            self.update((), None, unseen)
        self._frame = max(self._frame, frame - 1)

    def _next_frame(self, frame: int | None) -> int:
        """Count on, and refuse to go back."""
        frame = self._frame + 1 if frame is None else frame
        if frame <= self._frame:
            raise InputError(f"frame {frame} after frame {self._frame}", cure="feed frames in order, each once")
        self._frame = frame
        return frame

    # ------------------------------------------------------------------ for displays
    @property
    @abstractmethod
    def state(self) -> StateBits | None:
        """The state that the reported steps lead to, or None if the method knows none."""

    @property
    @abstractmethod
    def share(self) -> NDArray[np.float64]:
        """Evidence per step id, as a share of what completes the step."""

    @property
    def evidence(self) -> NDArray[np.float64]:
        """Evidence per step id, in the method's own measure (a copy)."""
        return self.share

    @property
    def component_probabilities(self) -> NDArray[np.float64] | None:
        """How surely each component is installed, by methods that have such a belief."""
        return None

    # ------------------------------------------------------------------ learning and tuning
    @classmethod
    def fit(cls, recordings: Sequence[LabelledRecording], procedure: Procedure, settings: Any, folder: Path) -> Any:
        """Learn from labelled recordings before the grid is tried.

        Parameters are written below `folder`, which is found again as `settings.folder` if the settings have such a
        field; the settings that name them are returned. Most methods have nothing to learn.
        """
        return settings

    @classmethod
    def batch(cls, procedure: Procedure, variant: str | None, settings: Sequence[Any]) -> DecoderBatch:
        """Many settings at once, for tuning. A method with a big grid does better than one after the other."""
        return SideBySide([cls(procedure, variant, own) for own in settings])


class DecoderBatch(Protocol):
    """Feed it every tick; `events` has the events of each setting, at the number of the frame that told."""

    events: list[list[StepEvent]]

    def observe(self, prediction: Prediction) -> None:
        """The next tick."""


class SideBySide:
    """A batch of decoders that know nothing of each other."""

    def __init__(self, decoders: Sequence[Decoder]) -> None:
        self._decoders = decoders
        self.events: list[list[StepEvent]] = [[] for _ in decoders]

    def observe(self, prediction: Prediction) -> None:
        for decoder, events in zip(self._decoders, self.events, strict=True):
            events += [replace(event, frame=prediction.index) for event in decoder.observe(prediction)]


# ---------------------------------------------------------------------- the list
@dataclass(frozen=True)
class Method:
    """An entry of the list: all that commands, tables and plots need to know of a method."""

    name: str
    where: str  # package.module:Class, imported when it is first used
    title: str
    help: str  # for `--help`, a few words
    colour: str = Decoder.colour
    dark_colour: str = Decoder.dark_colour
    streams: tuple[Stream, ...] = ("detection",)
    in_main_table: bool = False  # whether it is run where no method is named
    is_baseline: bool = False  # what others are compared with

    @cached_property
    def decoder_class(self) -> type[Decoder]:
        return _import_class(self.where)

    @property
    def grid(self) -> Grid:
        return self.decoder_class.grid

    def settings(self, given: Mapping[str, Any] | None = None) -> Any:
        """The method's settings from plain values; what is not given has its default."""
        kind = self.decoder_class.Settings
        known = [entry.name for entry in fields(kind)]
        for key in given or {}:
            if key not in known:
                from stormpsr.yaml_loader import guess

                stored = ", ".join(name for name in known if name not in FROM_MODEL)
                raise InputError(
                    f"{key} is no setting of method {self.name!r}", cure=guess(str(key), known, f"there are: {stored}")
                )
        return kind(**(given or {}))

    def stored(self, settings: Any) -> dict[str, Any]:
        """The settings that belong into `recognizer.yaml`, as plain values."""
        return {name: value for name, value in asdict(settings).items() if name not in FROM_MODEL}

    def settings_grid(self, narrowed: Grid | None = None, start: Any = None) -> list[Any]:
        """All combinations of the grid, upon `start`; `narrowed` replaces the values of single settings."""
        if not self.grid:
            tunable = ", ".join(name for name, method in METHODS.items() if method.grid)
            raise InputError(f"method {self.name!r} cannot be tuned", cure=f"choose one of: {tunable}")
        axes = {**self.grid, **(narrowed or {})}
        start = self.settings() if start is None else start
        return [replace(start, **dict(zip(axes, values, strict=True))) for values in product(*axes.values())]

    def with_model_settings(self, settings: Any, **from_model: Any) -> Any:
        """Settings with what follows from the model, where the method asks for it."""
        asked = {entry.name for entry in fields(settings)}
        return replace(settings, **{name: value for name, value in from_model.items() if name in asked})


_FUSION, _BASELINES = "stormpsr.decoding.fusion", "stormpsr.decoding.baselines"
_BOTH: tuple[Stream, ...] = ("detection", "temporal")
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("naive", f"{_BASELINES}:NaiveDecoder", "B1 naive", "B1, believes every confident detection", "#7d6200"),
        Method(
            "confidence", f"{_BASELINES}:ConfidenceDecoder", "B2 confidence", "B2, accumulates confidence", "#8a4b6e"
        ),
        Method("expected", f"{_BASELINES}:ExpectedDecoder", "B3 expected", "B3, of expected steps only", "#4d6a1f"),
        Method(
            "detection",
            f"{_FUSION}:DetectionFusion",
            "Detection only",
            "the detector alone",
            colour="#a3500c",
            dark_colour="#f0a35e",
            in_main_table=True,
            is_baseline=True,
        ),
        Method(
            "temporal",
            f"{_FUSION}:TemporalFusion",
            "Temporal only",
            "the spatio-temporal stream alone",
            colour="#1c66ad",
            dark_colour="#74b6f2",
            streams=("temporal",),
            in_main_table=True,
        ),
        Method(
            "average",
            f"{_FUSION}:EvidenceFusion",
            "STORM-PSR",
            "both streams",
            colour="#0a6b55",
            dark_colour="#4ecba3",
            streams=_BOTH,
            in_main_table=True,
        ),
        Method(
            "released",
            "stormpsr.decoding.fusion_released:ReleasedFusion",
            "As released",
            "the published program's arithmetic",
            colour="#7a3e9d",
            dark_colour="#c79be6",
            streams=_BOTH,
        ),
    )
}


def resolve_method(name: str) -> Method:
    """A method of the list, or one's own by its class, `package.module:Class`."""
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        from stormpsr.yaml_loader import guess

        otherwise = f"choose one of: {', '.join(METHODS)}, or name a class of your own: package.module:Class"
        raise InputError(f"unknown method {name!r}", cure=guess(name, list(METHODS), otherwise))
    own = _import_class(name)
    return Method(name, name, own.title or own.__name__, own.help, own.colour, own.dark_colour, own.streams)


def _import_class(where: str) -> type[Decoder]:
    """Naming a class imports its module, which must be installed here, or lie in PYTHONPATH."""
    module, _, attribute = where.partition(":")
    try:
        found = getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # something that it needs is missing
        cure = "install the package, or put its folder into PYTHONPATH"
        raise InputError(f"method {where!r}: there is no module {error.name!r}", cure=cure) from error
    if not (isinstance(found, type) and issubclass(found, Decoder)):
        raise InputError(f"{where!r} is no decoding method", cure="derive it from stormpsr.decoding.methods.Decoder")
    return found


def title_of(name: str) -> str:
    """What a method is called in tables; its name, where it is known no more."""
    try:
        return resolve_method(name).title
    except InputError:
        return name


def method_help(of_streams: Sequence[Stream] = _BOTH) -> str:
    """The methods that some streams allow, for `--help`."""
    named = [f"{m.name} ({m.help})" for m in METHODS.values() if set(m.streams) <= set(of_streams)]
    return f"{', '.join(named)}, or your own: package.module:Class."


# ---------------------------------------------------------------------- detections alone
def make_decoder(
    procedure: Procedure, variant: str | None = None, method: str = "expected", **settings: Any
) -> Decoder:
    """A decoder by its method's name. `variant`: the procedure's first where none is given; not every method asks."""
    entry = resolve_method(method)
    return entry.decoder_class(procedure, variant, entry.settings(settings))


def decode(
    detections: Iterable[StateDetection],
    procedure: Procedure,
    variant: str | None = None,
    method: str = "expected",
    *,
    n_frames: int | None = None,
    **settings: Any,
) -> list[StepEvent]:
    """The step events of a whole recording: `make_decoder`, fed frame by frame.

    Several detections of one frame keep their order (the first should be the most confident). `n_frames` defaults to
    the last detection's frame; frames after that can complete nothing.
    """
    if "detection" not in resolve_method(method).streams:
        raise InputError(f"method {method!r} does not listen to detections")
    decoder = make_decoder(procedure, variant, method, **settings)
    by_frame: dict[int, list[StateDetection]] = defaultdict(list)
    for detection in detections:
        by_frame[detection.frame].append(detection)
    last = max(by_frame, default=-1)
    if n_frames is None:
        n_frames = last + 1
    elif last >= n_frames:
        raise InputError(f"a detection in frame {last}, but the recording has only {n_frames} frames")
    return [event for n in range(n_frames) for event in decoder.update(by_frame.get(n, ()), frame=n)]


def check_numbers(settings: Any, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Refuse settings that are not numbers within their range; for a settings class's `__post_init__`."""
    for name, (low, high) in ranges.items():
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InputError(f"{name} is {value!r}, not a number")
        if not low <= float(value) <= high:
            raise InputError(f"{name} is {value}, but it must lie between {low:g} and {high:g}")
