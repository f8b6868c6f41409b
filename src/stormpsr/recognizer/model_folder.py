"""`recognizer.yaml`: every setting between the networks and the events.

A recogniser on disk: a folder that needs nothing else to be used.

recognizer.yaml   strides, and the settings of each method as tuning left them
procedure.yaml    what the outputs mean
stream/           the spatio-temporal stream, a checkpoint (may be missing)
detector/         the assembly state detector (may be missing, but not both)
                  of an exported model, both hold graphs and graphs.json in the place of tensors: see stormpsr.runtime
gate.json         where the detector need not look (most models have none): see stormpsr.recognizer.gate
methods/          what methods of decoding have learnt (most learn nothing)
metrics.json      how good the parts were, and what tuning found
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from stormpsr.data.images import GEOMETRY
from stormpsr.decoding.methods import METHODS, resolve_method
from stormpsr.decoding.predictions import GapFiller, PredictionDecoder
from stormpsr.detectors.base import DEFAULT_MIN_CONFIDENCE
from stormpsr.detectors.known_views import KNOWN_VIEWS_FILE
from stormpsr.errors import InputError, need_packages
from stormpsr.files import digest, read_json_object, replacing, replacing_folder, write_json, write_text
from stormpsr.models.checkpoint import CONFIG_FILE, GRAPHS_FILE, MODEL_FILE
from stormpsr.procedure.model import Procedure
from stormpsr.recognizer.gate import GATE_FILE, Gate
from stormpsr.yaml_loader import STRICT_KEYS, Document, read_yaml, validate

if TYPE_CHECKING:
    from stormpsr.config import Config
    from stormpsr.recognizer.networks import Networks, Stream


_FORMAT = "stormpsr recognizer 1"


@dataclass(frozen=True)
class RecognizerSettings:
    """How the networks are run, and how each method decides."""

    temporal_stride: int = 4  # ticks from one run of the temporal model to the next
    detector_stride: int = 1  # ticks from one look of the detector to the next
    detector_min_confidence: float = DEFAULT_MIN_CONFIDENCE  # weaker detections are never passed on
    detector_gate: float = 0.0  # it looks only where a clear view is at least so likely; 0: wherever it is due
    bridge_seconds: float = 0.5  # the longest gap in which the last frame stands in for those that did not come
    method: str | None = None  # what decides unless somebody chooses; None: both streams' average
    methods: Mapping[str, Any] = field(default_factory=dict)  # what differs from a method's defaults

    __pydantic_config__ = STRICT_KEYS

    def __post_init__(self) -> None:
        for name in ("temporal_stride", "detector_stride"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}, but it must be a whole number of at least 1")
        for name, high in (("detector_min_confidence", 1.0), ("detector_gate", 1.0), ("bridge_seconds", 60.0)):
            if not 0 <= getattr(self, name) <= high:
                raise InputError(f"{name} is {getattr(self, name)}, but it must lie between 0 and {high:g}")

    def bridge_ticks(self, fps: float) -> int:
        return int(self.bridge_seconds * fps)

    def of_method(self, method: str) -> Any:
        """The settings of a method: its defaults where it has none here."""
        own = self.methods.get(method, {})
        return resolve_method(method).settings(own) if isinstance(own, Mapping) else own

    def with_strides(self, temporal: int | None, detector: int | None) -> RecognizerSettings:
        """The same with the strides that are given."""
        own = self.temporal_stride, self.detector_stride
        chosen = [was if new is None else new for was, new in zip(own, (temporal, detector), strict=True)]
        return replace(self, temporal_stride=chosen[0], detector_stride=chosen[1])

    def with_method(self, method: str, settings: Any) -> RecognizerSettings:
        return replace(self, methods={**self.methods, method: settings})


# ---------------------------------------------------------------------- files
def save_settings(path: Path, settings: RecognizerSettings) -> None:
    main_table = [name for name, method in METHODS.items() if method.in_main_table]
    plain: dict[str, Any] = {
        "format": _FORMAT,
        **{entry.name: getattr(settings, entry.name) for entry in fields(settings)},
        "methods": {name: _stored(name, settings) for name in dict.fromkeys((*main_table, *settings.methods))},
    }
    write_text(path, yaml.safe_dump(plain, sort_keys=False))


def _stored(name: str, settings: RecognizerSettings) -> dict[str, Any]:
    own = settings.methods.get(name)
    # settings of a class that cannot be imported here stay as they were read
    return dict(own) if isinstance(own, Mapping) else resolve_method(name).stored(settings.of_method(name))


def load_settings(path: Path) -> RecognizerSettings:
    """Read `recognizer.yaml`; what is not in it has its default."""
    if not path.is_file():
        raise InputError("there is no such file", path=path, cure="'stormpsr model pack' makes a model's folder")
    document = read_yaml(path)
    if not isinstance(document.data, dict) or document.data.pop("format", None) != _FORMAT:
        raise InputError("this does not describe a recogniser", path=path, cure=f"it begins with 'format: {_FORMAT}'")
    document.lines.pop(("format",))
    settings = validate(RecognizerSettings, document, strict=True)
    # a class of somebody's own is imported when it is asked for, not to read a file
    named = [name for name in settings.methods if ":" not in name]
    read = {name: read_method(name, document, at=("methods", name)) for name in named}
    return replace(settings, methods={**settings.methods, **read})


def read_method(name: str, document: Document, at: tuple[str, ...] = ()) -> Any:
    """The settings of a method from where they stand in a document."""
    try:
        method = resolve_method(name)
        validate(method.decoder_class.Settings, document, at=at, strict=True)
        return method.settings(document.at(at))
    except InputError as error:
        raise error if error.path else document.located(error) from None


SETTINGS_FILE, PROCEDURE_FILE, METRICS_FILE = "recognizer.yaml", "procedure.yaml", "metrics.json"
STREAM_FOLDER, DETECTOR_FOLDER, METHODS_FOLDER = "stream", "detector", "methods"
_SMALL_FILES = (CONFIG_FILE, PROCEDURE_FILE, KNOWN_VIEWS_FILE)  # of a stream or a detector, beside MODEL_FILE


@dataclass(frozen=True, eq=False)
class RecognizerModel:
    """A model that has been read: both networks, or one of them."""

    path: Path
    procedure: Procedure
    settings: RecognizerSettings
    networks: Networks
    metrics: Mapping[str, Any]

    @property
    def streams(self) -> tuple[str, ...]:
        found = {"detection": self.networks.detector, "temporal": self.networks.stream}
        return tuple(name for name, network in found.items() if network is not None)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that the streams allow: of the main table, and others that have learned from recordings."""
        allowed = [method for method in METHODS.values() if set(method.streams) <= set(self.streams)]
        learned = {m.name for m in allowed if getattr(self.settings.of_method(m.name), "fitted", False)}
        return tuple(m.name for m in allowed if m.in_main_table or m.name in learned)

    @property
    def ready_methods(self) -> tuple[str, ...]:
        """Those of them that have learned what they have to."""
        return tuple(name for name in self.methods if getattr(self.settings.of_method(name), "fitted", True))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about the model."""
        if "temporal" not in self.streams:
            return (f"the model has no spatio-temporal stream ({STREAM_FOLDER}/): detections alone decide",)
        if "detection" not in self.streams:
            return (f"the model has no detector ({DETECTOR_FOLDER}/): the spatio-temporal stream alone decides",)
        return ()

    def method_or_fallback(self, method: str | None) -> str:
        """The method that was asked for, else the model's own; that of the only stream where it needs both."""
        natural = [name for name in self.methods if resolve_method(name).streams][-1]
        method = method or self.settings.method or natural
        needed = resolve_method(method).streams
        if set(needed) <= set(self.streams):
            return method
        if len(needed) > 1:
            return natural
        raise InputError(f"method {method!r} needs a stream that is missing", path=self.path, cure=self.notes[0])

    def decoder(
        self, method: str | None = None, variant: str | None = None, unexpected: str | None = None
    ) -> PredictionDecoder:
        """From what the networks say to events."""
        name = self.method_or_fallback(method)
        decoder = resolve_method(name).decoder_class(self.procedure, variant, self.settings_of(name, unexpected))
        return PredictionDecoder(decoder, self.gap_filler())

    def settings_of(self, method: str, unexpected: str | None = None, start: Any = None) -> Any:
        """How a method decides, with what follows from the temporal model, the strides and the folder."""
        return resolve_method(method).with_model_settings(
            self.settings.of_method(method) if start is None else start,
            window_frames=self.networks.window_frames,
            hold_frames=self.settings.temporal_stride + self.settings.bridge_ticks(self.procedure.fps),
            unexpected=unexpected,
            folder=self.path,
        )

    def gap_filler(self) -> GapFiller:
        """What fills short gaps between frames."""
        ticks = self.settings.bridge_ticks(self.procedure.fps)
        return GapFiller(detection_hold=self.settings.detector_stride + ticks, gap_ticks=ticks)

    def check_procedure(self, procedure: Procedure, path: str | Path | None = None) -> None:
        """Refuse data of another procedure."""
        difference = procedure_difference(self.procedure, procedure)
        if difference:
            ours, theirs = self.procedure.name, procedure.name
            problem = f"the model recognises procedure {ours!r}, but this is {theirs!r}: {difference}"
            raise InputError(problem, path=path, cure="use a model that was trained for it")

    def digest(self) -> str:
        """A fingerprint of everything that decides what the networks say: not of thresholds."""
        folders = [folder for name in (STREAM_FOLDER, DETECTOR_FOLDER) if (folder := self.path / name).is_dir()]
        own = self.settings
        rhythm = f"{own.temporal_stride} {own.detector_stride} {own.detector_min_confidence} {self.procedure.fps}"
        if own.detector_gate:
            rhythm += f" {own.detector_gate} {digest(self.path / GATE_FILE)}"
        made_by = f"{GEOMETRY} {digest(*folders, without=[METRICS_FILE])} {rhythm}"
        return hashlib.sha256(made_by.encode()).hexdigest()[:16]


def procedure_difference(ours: Procedure, theirs: Procedure) -> str | None:
    """What makes two procedures different to a recogniser; None if nothing does. Titles and colours do not count."""
    if [c.name for c in ours.components] != [c.name for c in theirs.components]:
        return f"its components differ ({_first_difference(ours.components, theirs.components)})"
    if [(s.kind, s.bits) for s in ours.states] != [(s.kind, s.bits) for s in theirs.states]:
        return "its states differ"
    if dict(ours.variants) != dict(theirs.variants):
        return "its variants differ"
    if ours.fps != theirs.fps:
        return f"it runs at {theirs.fps:g} frames per second, not {ours.fps:g}"
    return None


def _first_difference(ours: Any, theirs: Any) -> str:
    if len(ours) != len(theirs):
        return f"{len(ours)} and {len(theirs)} of them"
    return next(f"{a.name!r} and {b.name!r}" for a, b in zip(ours, theirs, strict=True) if a.name != b.name)


# ---------------------------------------------------------------------- finding
def shipped_models() -> list[str]:
    """Names of the models that come with the package."""
    folder = resources.files("stormpsr") / "weights"
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir() if (entry / SETTINGS_FILE).is_file())


def resolve_model(name: str | Path) -> Path:
    """The folder of a model, given as a path or by the name of a shipped one."""
    path, known = Path(name), shipped_models()
    if str(name) in known and not (path / SETTINGS_FILE).is_file():  # a data set may have the same name
        return Path(str(resources.files("stormpsr") / "weights" / str(name)))
    if path.is_dir():
        return path
    if path.exists():
        raise InputError("this is a file", path=path, cure="give the folder of a model")
    there = f"or one of the shipped models: {', '.join(known)}" if known else "this installation ships none"
    raise InputError(f"there is no model {str(name)!r}", cure=f"give the folder of a model ({there})")


# ---------------------------------------------------------------------- reading
def load_model(
    folder: str | Path,
    *,
    temporal_stride: int | None = None,
    detector_stride: int | None = None,
    device: str = "auto",
    threads: int | None = None,
) -> RecognizerModel:
    """Read a model; strides replace those of `recognizer.yaml`.

    device: where the networks compute: `auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1` or `mps`.
    threads: of the processor that they use; None leaves it to what computes them.
    """
    from stormpsr.recognizer.networks import Networks

    folder = resolve_model(folder)
    if not (folder / SETTINGS_FILE).is_file():
        cure = f"a model's folder holds {SETTINGS_FILE}; 'stormpsr model pack' makes one"
        raise InputError("this is not a model's folder", path=folder, cure=cure)
    _need_packages(folder)
    settings = load_settings(folder / SETTINGS_FILE).with_strides(temporal_stride, detector_stride)
    procedure = Procedure.load(folder / PROCEDURE_FILE)
    stream = config = detector = None
    if (folder / STREAM_FOLDER).is_dir():
        stream, config, theirs = _load_stream(folder / STREAM_FOLDER, device, threads)
        _same_procedure(procedure, theirs, folder / STREAM_FOLDER)
    if (folder / DETECTOR_FOLDER).is_dir():
        from stormpsr.detectors.registry import load_detector

        detector = load_detector(folder / DETECTOR_FOLDER, device=device, threads=threads)
        _same_procedure(procedure, detector.procedure, folder / DETECTOR_FOLDER)
    if stream is None and detector is None:
        cure = f"it needs {STREAM_FOLDER}/ or {DETECTOR_FOLDER}/: 'stormpsr model pack' puts them there"
        raise InputError("the model has no networks", path=folder, cure=cure)
    gate = Gate.load(folder) if settings.detector_gate else None
    parts: dict[str, Any] = {"detector": detector, "stream": stream, "config": config, "gate": gate}
    networks = Networks(fps=procedure.fps, settings=settings, path=folder, **parts)
    return RecognizerModel(folder, procedure, settings, networks, read_metrics(folder))


def _load_stream(folder: Path, device: str, threads: int | None) -> tuple[Stream, Config, Procedure]:
    """A stream with its settings and what its outputs mean. Torch is imported only for tensors."""
    if (folder / GRAPHS_FILE).is_file():
        from stormpsr.runtime.exported import ExportedStream

        exported = ExportedStream.load(folder, device=device, threads=threads)
        return exported, exported.config, exported.procedure
    from stormpsr.models.checkpoint import device_of, load_checkpoint

    where = device_of(device, threads)  # complains before anything is read
    checkpoint = load_checkpoint(folder)
    from stormpsr.models.stream import TorchStream

    return TorchStream(checkpoint.stream(), where), checkpoint.config, checkpoint.procedure


def _need_packages(folder: Path) -> None:
    """Name what is missing, for the networks that are there."""
    parts = [part for name in (STREAM_FOLDER, DETECTOR_FOLDER) if (part := folder / name).is_dir()]
    if any(not (part / GRAPHS_FILE).is_file() for part in parts):
        need_packages("recognising steps", "train", "torch", "timm", "safetensors", "cv2", "av")
    else:
        need_packages("recognising steps", "edge", "cv2", "av", "PIL")


def read_metrics(folder: Path) -> dict[str, Any]:
    path = folder / METRICS_FILE
    return read_json_object(path, "table of metrics", cure="delete it") if path.is_file() else {}


def add_metrics(folder: Path, section: str, found: Mapping[str, Any]) -> None:
    """Write what was found into a section of a model's metrics, beside what is there."""
    metrics = read_metrics(folder)
    write_json(folder / METRICS_FILE, {**metrics, section: {**metrics.get(section, {}), **found}})


def _same_procedure(ours: Procedure, theirs: Procedure, path: Path) -> None:
    difference = procedure_difference(ours, theirs)
    if difference:
        problem = f"this part is for procedure {theirs.name!r} and does not fit {ours.name!r}: {difference}"
        raise InputError(problem, path=path, cure="pack parts that were trained for the same procedure")


# ---------------------------------------------------------------------- writing
def pack_model(
    out: str | Path,
    *,
    stream: str | Path | None = None,
    detector: str | Path | None = None,
    settings: RecognizerSettings | None = None,
    half: bool = False,
    temporal_stride: int | None = None,
    detector_stride: int | None = None,
) -> Path:
    """Put a checkpoint and a detector into one folder. A model that is there is replaced, but keeps its settings.

    Strides that are given go before those of the settings.
    half: store the weights as 16-bit numbers, half the size. They are computed with as 32-bit numbers all the same.
    """
    from stormpsr.detectors.registry import load_detector
    from stormpsr.models.checkpoint import load_checkpoint

    out = Path(out)
    if stream is None and detector is None:
        raise InputError("a model needs a stream or a detector", cure="give --stream, --detector or both")
    is_model = (out / SETTINGS_FILE).is_file()
    if out.exists() and not is_model and (out.is_file() or any(out.iterdir())):
        raise InputError("this is no model, and would be overwritten", path=out, cure="choose another name")
    for part in (stream, detector):
        if part is not None and out.resolve() in (Path(part).resolve(), *Path(part).resolve().parents):
            raise InputError("the model would replace its own parts", path=out, cure="choose another folder")
    checkpoint = None if stream is None else load_checkpoint(stream)  # complains before anything is written
    if settings is None:
        settings = load_settings(out / SETTINGS_FILE) if is_model else _natural_settings(stream)
    settings = replace(settings.with_strides(temporal_stride, detector_stride), detector_gate=0.0)  # it was another's
    metrics: dict[str, Any] = {}
    with replacing_folder(out) as draft:
        procedure = None
        if checkpoint is not None:
            checkpoint.stream()  # refuses an encoder alone, and tensors that do not fit
            procedure = checkpoint.procedure
            _copy_part(checkpoint.path, draft / STREAM_FOLDER, half)
            metrics["stream"] = dict(checkpoint.metrics)
        if detector is not None:
            loaded = load_detector(detector, device="cpu")
            if procedure is not None:
                _same_procedure(procedure, loaded.procedure, Path(detector))
            procedure = procedure or loaded.procedure
            _copy_part(Path(detector), draft / DETECTOR_FOLDER, half)
            metrics["detector"] = dict(loaded.metrics)
        assert procedure is not None
        procedure.save(draft / PROCEDURE_FILE)
        save_settings(draft / SETTINGS_FILE, settings)
        if (out / METHODS_FOLDER).is_dir():
            shutil.copytree(out / METHODS_FOLDER, draft / METHODS_FOLDER)
        write_json(draft / METRICS_FILE, metrics)
        load_model(draft, device="cpu")  # what cannot be loaded is not packed
    return out


def _natural_settings(stream: str | Path | None) -> RecognizerSettings:
    """The temporal model runs once per frame of its window: no frame is then encoded that its training did not see.

    Methods decide as the settings say that it was trained with, until somebody tunes them.
    """
    if stream is None:
        return RecognizerSettings()
    from stormpsr.config import load_config

    return settings_of_training(load_config(Path(stream) / "config.yaml"))


def settings_of_training(config: Config) -> RecognizerSettings:
    """How a stream is run and decided by that was trained with certain settings, before somebody tunes it."""
    from stormpsr.config import DecodingConfig

    clips, given = config.clips, config.decoding.model_dump()
    fusions = {name: resolve_method(name).settings(given) for name in ("detection", "temporal", "average", "released")}
    stride = max(clips.window_frames // clips.n_window, 1)
    return RecognizerSettings(temporal_stride=stride, methods=fusions if config.decoding != DecodingConfig() else {})


def _copy_part(source: Path, target: Path, half: bool) -> None:
    """The files that a part consists of, without what training left beside them."""
    target.mkdir()
    for name in (*_SMALL_FILES, METRICS_FILE):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    copy = _store_halved if half else shutil.copyfile
    copy(source / MODEL_FILE, target / MODEL_FILE)


def part_digest(folder: Path) -> str:
    """A fingerprint of a detector or a checkpoint, without its scores and what training left beside it."""
    return digest(*(folder / name for name in (*_SMALL_FILES, MODEL_FILE) if (folder / name).is_file()))


def _store_halved(source: Path, target: Path) -> None:
    """Matrices as 16-bit numbers. Vectors stay: they are small, and variances may be too small for 16 bits."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    with safe_open(source, framework="pt") as file:
        about = file.metadata()
        for name in file.keys():  # noqa: SIM118  # the file is no mapping
            tensor = file.get_tensor(name)
            shorter = tensor.half() if tensor.is_floating_point() and tensor.dim() > 1 else tensor
            tensors[name] = shorter if bool(torch.isfinite(shorter).all()) else tensor
    with replacing(target) as draft:
        save_file(tensors, draft, metadata=about)
