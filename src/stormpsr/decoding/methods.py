"""Decoding methods: the ways to turn what the networks say into step events, and the one list of them.

A method is a `Decoder` class in a file of its own and an entry in `METHODS`. From there it appears by itself in `run`,
`decode`, `tune`, `evaluate`, in tables, plots and the report, and its settings in `recognizer.yaml`. A method that is
not in the list is named by its class, `package.module:Class`, wherever a name is asked for.

Nothing heavier than the standard library is imported here, so that `--help` can list the methods at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.errors import InputError

if TYPE_CHECKING:
    from stormpsr.decoding.predictions import Decoder
    from stormpsr.procedure.model import Procedure

Stream = Literal["detection", "temporal"]
Grid = Mapping[str, Sequence[Any]]
# settings that a recogniser fills in, where a method has them; they are neither stored nor tuned
FROM_MODEL = ("window_frames", "hold_frames", "unexpected", "folder")


# ---------------------------------------------------------------------- the list
@dataclass(frozen=True)
class Method:
    """An entry of the list: all that commands, tables and plots need to know of a method."""

    name: str
    where: str  # package.module:Class, imported when it is first used
    title: str
    help: str  # for `--help`, a few words
    colour: str = "#5a6068"
    dark_colour: str = "#b0b5bd"  # the same on a dark page
    streams: tuple[Stream, ...] = ("detection",)  # what it needs; none: whatever there is
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
        """Settings with what follows from the model, where the method asks for it and it is known."""
        asked = {entry.name for entry in fields(settings)}
        known = {name: value for name, value in from_model.items() if name in asked and value is not None}
        return replace(settings, **known)


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
        Method(
            "filter",
            "stormpsr.decoding.procedure_filter:ProcedureFilter",
            "Procedure filter",
            "a learned Bayesian filter",
            colour="#8c1d40",
            dark_colour="#ff8fab",
            streams=(),
            in_main_table=True,
        ),
        Method(
            "recurrent",
            "stormpsr.decoding.recurrent:RecurrentDecoder",
            "Recurrent",
            "a recurrent network, once fitted",
            colour="#4b3fa8",
            dark_colour="#a9a0ff",
            streams=(),
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
    from stormpsr.decoding.predictions import Decoder

    found = import_class(where, f"method {where!r}")
    if not (isinstance(found, type) and issubclass(found, Decoder)):
        raise InputError(f"{where!r} is no decoding method", cure="derive it from stormpsr.Decoder")
    return found


def import_class(where: str, what: str) -> Any:
    """What `package.module:Class` names, None if the module has no such thing; `what` is how complaints call it.

    Naming a class imports its module, which must be installed here, or lie in PYTHONPATH.
    """
    module, _, name = where.partition(":")
    if not module or module.startswith("."):
        raise InputError(f"{what}: no module is named", cure="write package.module:Class")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # something that it needs is missing
        cure = "install the package, or put its folder into PYTHONPATH"
        raise InputError(f"{what}: there is no module {error.name!r}", cure=cure) from error
    for part in name.split("."):
        found = getattr(found, part, None)
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
    streams = resolve_method(method).streams
    if streams and "detection" not in streams:
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
