"""A recogniser on disk: a folder that needs nothing else to be used.

recognizer.yaml   strides, and the settings of each method as tuning left them
procedure.yaml    what the outputs mean
stream/           the spatio-temporal stream, a checkpoint (may be missing)
detector/         the assembly state detector (may be missing, but not both)
metrics.json      how good the parts were, and what tuning found
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stormpsr.errors import InputError
from stormpsr.procedure import Procedure
from stormpsr.recognition.fusion import FusionSettings
from stormpsr.recognition.percepts import Bridge, PerceptDecoder
from stormpsr.recognizer.settings import RecognizerSettings, load_settings, save_settings

if TYPE_CHECKING:
    from stormpsr.recognizer.perception import Networks

__all__ = [
    "DEFAULT_MODEL",
    "RecognizerModel",
    "load_model",
    "pack_model",
    "procedure_difference",
    "resolve_model",
    "shipped_models",
]

SETTINGS_FILE, PROCEDURE_FILE, METRICS_FILE = "recognizer.yaml", "procedure.yaml", "metrics.json"
STREAM_FOLDER, DETECTOR_FOLDER = "stream", "detector"
DEFAULT_MODEL = "vehicle"


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
        """The methods that the streams allow, for the main table."""
        return (*self.streams, "average") if len(self.streams) == 2 else self.streams

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about the model."""
        if "temporal" not in self.streams:
            return (f"the model has no spatio-temporal stream ({STREAM_FOLDER}/): detections alone decide",)
        if "detection" not in self.streams:
            return (f"the model has no detector ({DETECTOR_FOLDER}/): the spatio-temporal stream alone decides",)
        return ()

    def method_or_fallback(self, method: str | None) -> str:
        """The method that was asked for, or that of the only stream where it needs both."""
        if method is None or (method in ("average", "released") and len(self.streams) == 1):
            return self.methods[-1]
        if method in ("detection", "temporal") and method not in self.streams:
            raise InputError(f"method {method!r} needs a stream that is missing", path=self.path, cure=self.notes[0])
        return method

    def decoder(
        self, method: str | None = None, variant: str | None = None, unexpected: str = "drop"
    ) -> PerceptDecoder:
        """From what the networks say to events."""
        return PerceptDecoder(
            self.procedure, variant, self.fusion_settings(self.method_or_fallback(method), unexpected), self.bridge()
        )

    def fusion_settings(self, method: str, unexpected: str = "drop") -> FusionSettings:
        """How a method decides, with what follows from the temporal model and the strides."""
        window = max(self.networks.window_frames, 1)
        return self.settings.fusion(method, window_frames=window, fps=self.procedure.fps, unexpected=unexpected)

    def bridge(self) -> Bridge:
        """What fills short gaps between frames."""
        ticks = self.settings.bridge_ticks(self.procedure.fps)
        return Bridge(detection_hold=self.settings.detector_stride + ticks, bridge_ticks=ticks)

    def check_procedure(self, procedure: Procedure, path: str | Path | None = None) -> None:
        """Refuse data of another procedure."""
        difference = procedure_difference(self.procedure, procedure)
        if difference:
            raise InputError(
                f"the model recognises procedure {self.procedure.name!r}, but this is {procedure.name!r}: {difference}",
                path=path,
                cure="use a model that was trained for it",
            )

    def digest(self) -> str:
        """A fingerprint of everything that decides what the networks say: not of thresholds."""
        digest = hashlib.sha256()
        for folder in (STREAM_FOLDER, DETECTOR_FOLDER):
            for path in sorted((self.path / folder).glob("[!.]*")):
                if path.is_file() and path.name != METRICS_FILE:
                    digest.update(f"{folder}/{path.name}".encode() + path.read_bytes())
        own = self.settings
        digest.update(f"{own.temporal_stride} {own.detector_stride} {own.detector_min_confidence}".encode())
        digest.update(f"{self.procedure.fps}".encode())
        return digest.hexdigest()[:16]


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
    path = Path(name)
    if path.is_dir():
        return path
    if path.exists():
        raise InputError("this is a file", path=path, cure="give the folder of a model")
    known = shipped_models()
    if str(name) in known:
        return Path(str(resources.files("stormpsr") / "weights" / str(name)))
    there = f"or one of the shipped models: {', '.join(known)}" if known else "this installation ships none"
    raise InputError(f"there is no model {str(name)!r}", cure=f"give the folder of a model ({there})")


# ---------------------------------------------------------------------- reading
def load_model(
    folder: str | Path, *, temporal_stride: int | None = None, detector_stride: int | None = None
) -> RecognizerModel:
    """Read a model; strides replace those of `recognizer.yaml`."""
    from stormpsr.recognizer.perception import Networks

    folder = resolve_model(folder)
    if not (folder / SETTINGS_FILE).is_file():
        cure = f"a model's folder holds {SETTINGS_FILE}; 'stormpsr model pack' makes one"
        raise InputError("this is not a model's folder", path=folder, cure=cure)
    settings = load_settings(folder / SETTINGS_FILE)
    settings = replace(
        settings,
        temporal_stride=settings.temporal_stride if temporal_stride is None else temporal_stride,
        detector_stride=settings.detector_stride if detector_stride is None else detector_stride,
    )
    procedure = Procedure.load(folder / PROCEDURE_FILE)
    stream = config = detector = None
    if (folder / STREAM_FOLDER).is_dir():
        from stormpsr.checkpoint import load_checkpoint

        checkpoint = load_checkpoint(folder / STREAM_FOLDER)
        _same_procedure(procedure, checkpoint.procedure, folder / STREAM_FOLDER)
        stream, config = checkpoint.stream(), checkpoint.config
    if (folder / DETECTOR_FOLDER).is_dir():
        from stormpsr.detection.registry import load_detector

        detector = load_detector(folder / DETECTOR_FOLDER)
        _same_procedure(procedure, detector.procedure, folder / DETECTOR_FOLDER)
    if stream is None and detector is None:
        cure = f"it needs {STREAM_FOLDER}/ or {DETECTOR_FOLDER}/: 'stormpsr model pack' puts them there"
        raise InputError("the model has no networks", path=folder, cure=cure)
    networks = Networks(fps=procedure.fps, settings=settings, detector=detector, stream=stream, config=config)
    return RecognizerModel(folder, procedure, settings, networks, read_metrics(folder))


def read_metrics(folder: Path) -> dict[str, Any]:
    path = folder / METRICS_FILE
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"this is not JSON ({error})", path=path, cure="delete it") from None
    if not isinstance(found, dict):
        raise InputError("this is no table of metrics", path=path, cure="delete it")
    return found


def write_metrics(folder: Path, metrics: Mapping[str, Any]) -> None:
    draft = folder / f".{METRICS_FILE}.draft"
    draft.write_text(json.dumps(metrics, indent=2, allow_nan=False) + "\n", encoding="utf-8", newline="\n")
    draft.replace(folder / METRICS_FILE)


def _same_procedure(ours: Procedure, theirs: Procedure, path: Path) -> None:
    difference = procedure_difference(ours, theirs)
    if difference:
        raise InputError(
            f"this part is for procedure {theirs.name!r} and does not fit {ours.name!r}: {difference}",
            path=path,
            cure="pack parts that were trained for the same procedure",
        )


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
    from stormpsr.checkpoint import load_checkpoint
    from stormpsr.detection.registry import load_detector

    out = Path(out)
    if stream is None and detector is None:
        raise InputError("a model needs a stream or a detector", cure="give --stream, --detector or both")
    is_model = (out / SETTINGS_FILE).is_file()
    if out.exists() and not is_model and (out.is_file() or any(out.iterdir())):
        raise InputError("this is no model, and would be overwritten", path=out, cure="choose another name")
    for part in (stream, detector):
        if part is not None and out.resolve() in (Path(part).resolve(), *Path(part).resolve().parents):
            raise InputError("the model would replace its own parts", path=out, cure="choose another folder")
    if stream is not None:
        load_checkpoint(stream)  # complains in plain words before anything is written
    if settings is None:
        settings = load_settings(out / SETTINGS_FILE) if is_model else _natural_settings(stream)
    settings = replace(
        settings,
        temporal_stride=temporal_stride or settings.temporal_stride,
        detector_stride=detector_stride or settings.detector_stride,
    )
    metrics: dict[str, Any] = {}
    draft = out.with_name(f".{out.name}.{os.getpid()}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        procedure = None
        if stream is not None:
            checkpoint = load_checkpoint(stream)
            checkpoint.stream()  # refuses an encoder alone, and tensors that do not fit
            procedure = checkpoint.procedure
            _copy_part(checkpoint.path, draft / STREAM_FOLDER, half)
            metrics["stream"] = dict(checkpoint.metrics)
        if detector is not None:
            loaded = load_detector(detector)
            if procedure is not None:
                _same_procedure(procedure, loaded.procedure, Path(detector))
            procedure = procedure or loaded.procedure
            _copy_part(Path(detector), draft / DETECTOR_FOLDER, half)
            metrics["detector"] = dict(loaded.metrics)
        assert procedure is not None
        procedure.save(draft / PROCEDURE_FILE)
        save_settings(draft / SETTINGS_FILE, settings)
        write_metrics(draft, metrics)
        load_model(draft)  # what cannot be loaded is not packed
        old = out.with_name(f".{out.name}.{os.getpid()}.old")
        if out.exists():
            out.rename(old)
        draft.rename(out)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return out


def _natural_settings(stream: str | Path | None) -> RecognizerSettings:
    """The temporal model runs once per frame of its window: no frame is then encoded that its training did not see."""
    if stream is None:
        return RecognizerSettings()
    from stormpsr.config import load_config

    clips = load_config(Path(stream) / "config.yaml").clips
    return RecognizerSettings(temporal_stride=max(clips.window_frames // clips.n_window, 1))


def _copy_part(source: Path, target: Path, half: bool) -> None:
    """The files that a part consists of, without what training left beside them."""
    target.mkdir()
    for name in ("config.yaml", "procedure.yaml", "metrics.json"):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    if half:
        _store_halved(source / "model.safetensors", target / "model.safetensors")
    else:
        shutil.copyfile(source / "model.safetensors", target / "model.safetensors")


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
    save_file(tensors, target, metadata=about)
