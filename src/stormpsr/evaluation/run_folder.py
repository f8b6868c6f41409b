"""The outcome of an evaluation on disk: what was true, what each method reported, and the evidence for it.

    RUN/run.json                 which model on which recordings, the methods with their settings, and their scores
    RUN/procedure.yaml           what the steps mean
    RUN/recordings/NAME.json     labels, events of each method, when the state could be read
    RUN/recordings/NAME.npz      what both streams said, and the evidence of each method over time

A recording is there completely or not at all; `run.json` is written last, so a folder that has one is complete. It
names its recordings: others in the folder are of an earlier evaluation and not part of the run.

Shape legend: M detections, E predictions of the temporal model, C components, G grid of every k-th frame, S steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StepEvent
from stormpsr.errors import InputError
from stormpsr.files import read_arrays, read_json_object, write_arrays, write_json
from stormpsr.procedure.model import Procedure

RUN_FILE, PROCEDURE_FILE, RECORDINGS_FOLDER = "run.json", "procedure.yaml", "recordings"
_FORMAT = "stormpsr run 1"


@dataclass(frozen=True)
class MethodInfo:
    """A way to turn what the streams say into events."""

    name: str
    title: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class RunInfo:
    """What `run.json` says."""

    title: str
    model: str
    data: str  # the folder of recordings, as it was given
    split: str | None
    protocol: str
    methods: tuple[MethodInfo, ...]
    summary: Mapping[str, Any]  # per method what `Summary.to_dict` returns
    recordings: tuple[str, ...] | None = None  # names; None in runs that did not note them yet: all there are
    default_method: str | None = None  # the one that the model decides by


@dataclass(frozen=True, eq=False)
class RecordingRun:
    """One recording. Events carry frame, step and confidence; arrays are what the streams said."""

    name: str
    variant: str | None
    fps: float
    n_frames: int
    has_errors: bool | None
    frames_path: str  # folder of images or video file, below the data's folder or absolute
    labels: tuple[StepEvent, ...]
    labels_with_errors: tuple[StepEvent, ...] | None
    events: Mapping[str, tuple[StepEvent, ...]]  # completions
    alarms: Mapping[str, tuple[StepEvent, ...]] = field(default_factory=dict)  # wrong parts and steps left out
    readable: tuple[tuple[int, int], ...] | None = None  # first and last frame of stretches whose state can be read
    visible_share: tuple[float, ...] | None = None  # of the assembly, in every `visible_stride`-th frame
    visible_stride: int = 1
    detection_frame_M: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    detection_class_M: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    detection_confidence_M: NDArray[np.float16] = field(default_factory=lambda: np.zeros(0, np.float16))
    change_frame_E: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    change_probability_EC: NDArray[np.float16] = field(default_factory=lambda: np.zeros((0, 0), np.float16))
    evidence: Mapping[str, NDArray[np.float16]] = field(default_factory=dict)  # per method (G, S), 1 completes a step
    evidence_stride: int = 1

    def frames_in(self, data: str | Path) -> Path:
        """Where the images are, given the data's folder."""
        return Path(data) / self.frames_path  # an absolute path replaces the folder


_JSON_KEYS = (
    *("name", "variant", "fps", "n_frames", "has_errors", "frames_path", "labels", "labels_with_errors", "events"),
    "alarms",
    *("readable", "visible_share", "visible_stride"),
)
_ARRAYS = {  # name in the file -> name here, and how it is stored
    "detection_frame": ("detection_frame_M", np.int64),
    "detection_class": ("detection_class_M", np.int64),
    "detection_confidence": ("detection_confidence_M", np.float16),
    "change_frame": ("change_frame_E", np.int64),
    "change_probability": ("change_probability_EC", np.float16),
}


@dataclass(frozen=True)
class Run:
    """A run folder that has been opened; recordings are read when they are asked for."""

    path: Path
    info: RunInfo
    procedure: Procedure
    names: tuple[str, ...]

    def recording(self, name: str) -> RecordingRun:
        return read_recording(self.path, name)

    def recordings(self) -> Iterator[RecordingRun]:
        return (self.recording(name) for name in self.names)


# ---------------------------------------------------------------------- writing
def write_run(folder: str | Path, info: RunInfo, procedure: Procedure) -> None:
    """Write what is common to all recordings; they come first, one by one, with `write_recording`."""
    folder = Path(folder)
    procedure.save(folder / PROCEDURE_FILE)
    content = {"format": _FORMAT, "procedure": PROCEDURE_FILE, **asdict(info)}
    write_json(folder / RUN_FILE, content, indent=None)


def write_recording(folder: str | Path, recording: RecordingRun) -> None:
    """Write one recording of a run."""
    place = Path(folder) / RECORDINGS_FOLDER
    arrays: dict[str, Any] = {key: getattr(recording, name).astype(kind) for key, (name, kind) in _ARRAYS.items()}
    arrays |= {f"evidence_{name}": share_GS.astype(np.float16) for name, share_GS in recording.evidence.items()}
    write_arrays(place / f"{recording.name}.npz", evidence_stride=np.int64(recording.evidence_stride), **arrays)
    content = {key: getattr(recording, key) for key in _JSON_KEYS}
    content["labels"] = _label_rows(recording.labels)
    for kind in ("events", "alarms"):
        content[kind] = {method: _event_rows(events) for method, events in getattr(recording, kind).items()}
    if recording.labels_with_errors is not None:
        content["labels_with_errors"] = _label_rows(recording.labels_with_errors)
    if recording.visible_share is not None:
        content["visible_share"] = [round(share, 3) for share in recording.visible_share]
    write_json(place / f"{recording.name}.json", content, indent=None)


def _label_rows(events: Sequence[StepEvent]) -> list[list[int]]:
    return [[event.frame, event.step_id] for event in events]


def _event_rows(events: Sequence[StepEvent]) -> list[list[Any]]:
    return [[e.frame, e.step_id, None if e.confidence is None else round(e.confidence, 4), e.kind] for e in events]


# ---------------------------------------------------------------------- reading
def read_run(folder: str | Path) -> Run:
    """Open a run folder."""
    folder = Path(folder)
    path = folder / RUN_FILE
    if not path.is_file():
        unfinished = (folder / RECORDINGS_FOLDER).is_dir()
        problem = "the evaluation is not finished" if unfinished else "this is no run folder"
        cure = "run the same 'stormpsr evaluate' again" if unfinished else "'stormpsr evaluate --out RUN' makes one"
        raise InputError(problem, path=folder, cure=cure)
    content = read_json_object(path, "part of a run", cure="evaluate again")
    if content.get("format") != _FORMAT:
        raise InputError(f"the format is {content.get('format')!r}, not {_FORMAT!r}", path=path)
    with _complaining(path):
        info = _run_info(content)
    names = info.recordings
    if names is None:
        names = tuple(sorted(entry.stem for entry in (folder / RECORDINGS_FOLDER).glob("[!.]*.json")))
    return Run(folder, info, Procedure.load(folder / PROCEDURE_FILE), names)


def _run_info(content: Mapping[str, Any]) -> RunInfo:
    """What a run file says, if every value is of its kind and recordings have names that stay inside the folder."""
    from pydantic import TypeAdapter, ValidationError

    try:
        info: RunInfo = TypeAdapter(RunInfo).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    names = info.recordings or ()
    for name in names:
        if not name or name.startswith(".") or "\\" in name or Path(name).name != name:
            raise ValueError(f"{name!r} is no name of a recording")
    if len(set(names)) < len(names):
        raise ValueError("a recording is named twice")
    return info


def read_recording(folder: str | Path, name: str) -> RecordingRun:
    """One recording of a run."""
    place = Path(folder) / RECORDINGS_FOLDER
    path = place / f"{name}.json"
    if not path.is_file():
        raise InputError(f"the run has no recording {name!r}", path=folder, cure="evaluate again")
    content = read_json_object(path, "part of a run", cure="evaluate again")
    arrays = read_arrays(place / f"{name}.npz", cure="evaluate again")
    with _complaining(path):
        full, readable, visible = (content[key] for key in ("labels_with_errors", "readable", "visible_share"))
        return RecordingRun(
            name=name,
            variant=_of_kind(content, "variant", str, type(None)),
            fps=_fps(content["fps"]),
            n_frames=_count(content["n_frames"], least=0),
            has_errors=_of_kind(content, "has_errors", bool, type(None)),
            frames_path=_of_kind(content, "frames_path", str),
            labels=_labels(content["labels"]),
            labels_with_errors=None if full is None else _labels(full),
            events={method: _events(rows, method) for method, rows in _of_kind(content, "events", dict).items()},
            alarms={method: _events(rows, method) for method, rows in content.get("alarms", {}).items()},
            readable=None if readable is None else tuple((_count(one, 0), _count(two, 0)) for one, two in readable),
            visible_share=None if visible is None else tuple(float(share) for share in visible),
            visible_stride=_count(content.get("visible_stride", 1)),
            evidence={
                key.removeprefix("evidence_"): _array(arrays, key, np.float16, n_axes=2)
                for key in arrays
                if key.startswith("evidence_") and key != "evidence_stride"
            },
            evidence_stride=_count(arrays["evidence_stride"]),
            **_streams(arrays),
        )


@contextmanager
def _complaining(path: Path) -> Iterator[None]:
    """Whatever does not fit is one complaint about the file."""
    try:
        yield
    except KeyError as error:
        raise InputError(f"something is missing in it ({error})", path=path, cure="evaluate again") from None
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise InputError(f"something in it is damaged ({error})", path=path, cure="evaluate again") from None


def _of_kind(content: Mapping[str, Any], key: str, *kinds: type) -> Any:
    value = content[key]
    if not isinstance(value, kinds):
        raise TypeError(f"{key} is {value!r}"[:80])
    return value


def _count(value: Any, least: int = 1) -> int:
    count = int(value)
    if isinstance(value, str | bool) or count != value or not least <= count < 10**9:
        raise ValueError(f"{value!r} where a number of frames should be"[:80])
    return count


def _array(arrays: Mapping[str, NDArray[Any]], key: str, kind: Any, n_axes: int) -> NDArray[Any]:
    array = arrays[key]
    if array.dtype.kind not in "fiu" or array.ndim != n_axes or not np.isfinite(array).all():
        raise ValueError(f"array {key!r} is {array.dtype} {array.shape}, or not finite")
    return array.astype(kind)


def _streams(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """What both streams said: arrays of one length each."""
    found = {
        name: _array(arrays, key, kind, n_axes=2 if name.endswith("_EC") else 1)
        for key, (name, kind) in _ARRAYS.items()
    }
    for stream in ("_M", "_E"):
        if len({len(array) for name, array in found.items() if stream in name}) > 1:
            raise ValueError("arrays of different lengths")
    return found


def _fps(value: Any) -> float:
    fps = float(value)
    if not 1e-3 <= fps <= 1e6:
        raise ValueError(f"fps is {fps:g}")
    return fps


def _labels(rows: Sequence[Sequence[int]]) -> tuple[StepEvent, ...]:
    return tuple(StepEvent(step_id, frame, source="label") for frame, step_id in rows)


def _events(rows: Sequence[Sequence[Any]], method: str) -> tuple[StepEvent, ...]:
    return tuple(  # runs of earlier versions have completions only
        StepEvent(step_id, frame, confidence=sure, source=method, kind=kind[0] if kind else "completed")
        for frame, step_id, sure, *kind in rows
    )
