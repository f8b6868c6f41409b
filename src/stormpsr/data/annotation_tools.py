"""Boxes as the annotation tools themselves keep them: CVAT for video 1.1 (and for images), and Label Studio's tasks.

Both draw boxes in key frames of a video and move them evenly in between; what is read here is a box per frame. CVAT
counts frames from 0, Label Studio from 1; where a recording has images of every so many frames only, both count images.

A label is the name of a state of the procedure, or `assembly`: then the state is that of the recording's own labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Annotated, Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from pydantic import Field

from stormpsr.data.boxes import Box
from stormpsr.data.labels import STATES_FILE, StateTimeline, read_states
from stormpsr.data.layouts import RecordingFolder
from stormpsr.data.sources import frames_of
from stormpsr.errors import InputError, errors_at
from stormpsr.files import read_bytes, read_json
from stormpsr.procedure.model import Procedure, StateKind
from stormpsr.yaml_loader import Document, validate

ASSEMBLY = "assembly"  # a label for any state
_MOST_FRAMES = 10**7


@dataclass(frozen=True, slots=True)
class ToolBox:
    """A box in a frame of a recording."""

    recording: str
    frame: int
    size: tuple[int, int]  # of the image
    state_class: int
    box: Box


@dataclass(frozen=True)
class ToolRecording:
    """A recording that a tool speaks of."""

    folder: RecordingFolder
    procedure: Procedure

    @cached_property
    def numbers(self) -> Sequence[int]:
        """The numbers of its frames that have images."""
        return frames_of(self.folder).numbers()

    @cached_property
    def size(self) -> tuple[int, int]:
        source = frames_of(self.folder)
        height, width = next(source.images_at(self.numbers[:1])).shape[:2]
        return width, height

    @cached_property
    def states(self) -> StateTimeline | None:
        path = self.folder.path / STATES_FILE
        return read_states(path, self.procedure) if path.is_file() else None

    def frame(self, place: int) -> int:
        """The frame in a place of the tool's count, from 0."""
        if not 0 <= place < len(self.numbers):
            problem = f"there is no frame {place} in recording {self.folder.name!r}, it has {len(self.numbers)}"
            raise InputError(problem, cure="give the recording that was annotated")
        return self.numbers[place]

    def class_of(self, label: str, frame: int) -> int | None:
        """The class of a label; None if the labelled state has none."""
        by_name = {s.name: s.state_class for s in self.procedure.states if s.kind is not StateKind.BACKGROUND}
        if label in by_name:
            return by_name[label]
        if label != ASSEMBLY:
            named = f"the states of {self.procedure.name!r} are called {', '.join(list(by_name)[:3])}, ..."
            raise InputError(f"label {label!r} is not a state", cure=f"{named}; or call it {ASSEMBLY!r}")
        if self.states is None:
            cure = f"recording {self.folder.name!r} needs {STATES_FILE}, or use the names of states"
            raise InputError(f"label {ASSEMBLY!r} says no state, and nobody else does", cure=cure)
        return self.procedure.state_class(self.states.at(frame))

    def boxes(self, label: str, placed: Iterable[tuple[int, Box]]) -> Iterator[ToolBox]:
        """Boxes of one label, by their place in the tool's count."""
        for place, box in placed:
            frame = self.frame(place)
            state_class = self.class_of(label, frame)
            if state_class is not None:
                yield ToolBox(self.folder.name, frame, self.size, state_class, box.inside(*self.size))


@dataclass(frozen=True)
class ToolRecordings:
    """All recordings of a data set, by what tools call them."""

    recordings: Mapping[str, ToolRecording]

    @classmethod
    def of(cls, folders: Iterable[RecordingFolder], procedure: Procedure) -> ToolRecordings:
        return cls({folder.name: ToolRecording(folder, procedure) for folder in folders})

    def named(self, *words: str) -> ToolRecording:
        """The recording that one of some names or addresses speaks of; tools put a hash before a file's name."""
        for word in words:
            parts = [PurePosixPath(part).stem for part in reversed(PurePosixPath(word).parts)]
            for part in parts:
                for name in sorted(self.recordings, key=len, reverse=True):
                    if part == name or part.endswith(f"-{name}"):
                        return self.recordings[name]
        said = ", ".join(repr(word) for word in words if word)
        cure = f"call it like the recording; recordings here are: {', '.join(sorted(self.recordings)[:5])}"
        raise InputError(f"{said or 'nothing'} names no recording", cure=cure)

    def image_named(self, name: str) -> tuple[ToolRecording, int]:
        """The recording and frame of `<recording>_<frame>.jpg`, perhaps with a hash before it."""
        found = re.fullmatch(r"(.+)_(\d{4,9})", PurePosixPath(name).stem)
        if found is None:
            raise InputError(f"{name!r} names no recording and frame", cure="images are called RECORDING_FRAME.jpg")
        recording = self.named(found[1])
        if int(found[2]) not in set(recording.numbers):
            raise InputError(f"there is no image of frame {int(found[2])} in {recording.folder.name!r}")
        return recording, int(found[2])


def between(first: tuple[int, Box], second: tuple[int, Box]) -> Iterator[tuple[int, Box]]:
    """Boxes from one key frame to the next, without the latter: corners move evenly."""
    (start, one), (end, other) = first, second
    for place in range(start, end):
        share = (place - start) / (end - start)
        corners = (a + share * (b - a) for a, b in zip(one.corners, other.corners, strict=True))
        yield place, Box(*corners)


# ---------------------------------------------------------------------- CVAT
@dataclass
class _Track:
    label: str
    line: int
    boxes: list[tuple[int, Box, bool, int]] = field(default_factory=list)  # frame, box, outside, line


class _CvatFile:
    """Reads a file element by element. Nothing that a file defines for itself is expanded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tracks: list[_Track] = []
        self.texts: dict[str, str] = {}  # of the elements in `meta`, by their path
        self.images: list[tuple[str, int, list[tuple[str, Box, int]]]] = []  # name, line, boxes
        self._open: list[str] = []
        self._parser = expat.ParserCreate("utf-8")  # whatever it says of itself
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = lambda name: self._open.pop()
        self._parser.CharacterDataHandler = self._text
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._parser.EntityDeclHandler = self._refuse
        try:
            self._parser.Parse(read_bytes(path, "export it again"), True)
        except expat.ExpatError as error:
            problem = f"this is not XML: {expat.errors.messages[error.code]}"
            raise InputError(problem, path=path, line=error.lineno, cure="export it again") from None

    def _refuse(self, *_: Any) -> None:
        raise self._error("the file has definitions of its own (DOCTYPE)", "export it again: CVAT writes none")

    def _error(self, problem: str, cure: str | None = None) -> InputError:
        return InputError(problem, path=self.path, line=self._parser.CurrentLineNumber, cure=cure)

    def _text(self, text: str) -> None:
        if self._open[:2] == ["annotations", "meta"]:
            place = "/".join(self._open)
            self.texts[place] = self.texts.get(place, "") + text

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and name != "annotations":
            raise self._error(f"this is no file of CVAT: it begins with <{name}>", "export as 'CVAT for video 1.1'")
        # what lies anywhere else, whatever its name, is for others
        above, line = self._open[1] if len(self._open) == 2 else "", self._parser.CurrentLineNumber
        self._open.append(name)
        if self._open == ["annotations", "meta", "project"]:
            raise self._error("this is the export of a project", "export its tasks one by one")
        if self._open == ["annotations", "track"]:
            self.tracks.append(_Track(self._attribute(attributes, "label"), line))
        elif self._open == ["annotations", "image"]:
            self.images.append((self._attribute(attributes, "name"), line, []))
        elif above in ("track", "image") and name != "box" and name != "tag":
            raise self._error(f"a shape that is no box: <{name}>", "annotate with rectangles")
        elif above == "track" and name == "box":
            outside = self._attribute(attributes, "outside", "0") == "1"
            frame = self._whole(attributes, "frame")
            self.tracks[-1].boxes.append((frame, self._box(attributes), outside, line))
        elif above == "image" and name == "box":
            self.images[-1][2].append((self._attribute(attributes, "label"), self._box(attributes), line))

    def _attribute(self, attributes: dict[str, str], name: str, default: str | None = None) -> str:
        value = attributes.get(name, default)
        if value is None:
            raise self._error(f"there is no attribute {name!r}", "export as 'CVAT for video 1.1'")
        return value

    def _whole(self, attributes: dict[str, str], name: str) -> int:
        text = self._attribute(attributes, name)
        if not re.fullmatch(r"\d{1,9}", text, flags=re.ASCII):
            raise self._error(f"{name} is {text!r}, not a whole number")
        return int(text)

    def _box(self, attributes: dict[str, str]) -> Box:
        if float(self._number(attributes, "rotation", "0")):
            raise self._error("the box is rotated", "draw upright boxes")
        return Box(*(self._number(attributes, name) for name in ("xtl", "ytl", "xbr", "ybr")))

    def _number(self, attributes: dict[str, str], name: str, default: str | None = None) -> float:
        text = self._attribute(attributes, name, default)
        if not re.fullmatch(r"-?\d{1,9}(\.\d{1,20})?([eE][-+]?\d{1,3})?", text, flags=re.ASCII):
            raise self._error(f"{name} is {text!r}, not a number")
        return float(text)


def read_cvat(path: Path, recordings: ToolRecordings) -> Iterator[ToolBox]:
    """The boxes of a file of CVAT, for video or for images.

    A task belongs to the recording that the file, the task or its video is called after.
    """
    file = _CvatFile(path)
    for name, line, boxes in file.images:
        with errors_at(path, line):
            recording, frame = recordings.image_named(name)
        for label, box, at in boxes:
            with errors_at(path, at):
                state_class = recording.class_of(label, frame)
                inside = box.inside(*recording.size)
            if state_class is not None:
                yield ToolBox(recording.folder.name, frame, recording.size, state_class, inside)
    if not file.tracks:
        return
    meta = "annotations/meta/"
    names = [file.texts.get(meta + place, "").strip() for place in ("task/name", "job/name", "source", "task/source")]
    with errors_at(path):
        recording = recordings.named(path.stem, *names)
    for track in file.tracks:
        placed = sorted(track.boxes, key=lambda entry: entry[0])
        for place, (frame, box, outside, line) in enumerate(placed):
            if outside:
                continue
            after = placed[place + 1] if place + 1 < len(placed) else None
            with errors_at(path, line):
                if after is not None and after[0] == frame:
                    raise InputError(f"two boxes of one track in frame {frame}", cure="delete one of them")
                goes_on = after is not None and not after[2]
                # up to where it is said to be gone, a box stays where it was
                end = (frame + 1, box) if after is None else (after[0], after[1] if goes_on else box)
                yield from recording.boxes(track.label, between((frame, box), end))


def cvat_text(recording: ToolRecording, boxes: Sequence[ToolBox]) -> str:
    """The boxes of a recording as CVAT for video 1.1: one track for each stretch of frames in the same state."""
    place_of = {frame: place for place, frame in enumerate(recording.numbers)}
    width, height = recording.size
    labels = "".join(f"<label><name>{escape(name)}</name></label>" for name in label_names(recording.procedure))
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        "<annotations>",
        "<version>1.1</version>",
        f"<meta><task><name>{escape(recording.folder.name)}</name><size>{len(recording.numbers)}</size>"
        f"<mode>interpolation</mode><start_frame>0</start_frame><stop_frame>{len(recording.numbers) - 1}</stop_frame>"
        f"<labels>{labels}</labels><original_size><width>{width}</width><height>{height}</height></original_size>"
        "</task></meta>",
    ]
    names = {state.state_class: state.name for state in recording.procedure.states}
    for number, stretch in enumerate(_stretches(boxes, place_of)):
        lines.append(f'<track id="{number}" label={quoteattr(names[stretch[0].state_class])} source="manual">')
        rows = [(place_of[box.frame], box.box, 0) for box in stretch]
        if rows[-1][0] + 1 < len(recording.numbers):
            rows.append((rows[-1][0] + 1, rows[-1][1], 1))
        for place, box, outside in rows:
            corners = zip(("xtl", "ytl", "xbr", "ybr"), box.corners, strict=True)
            sides = " ".join(f'{name}="{value:.2f}"' for name, value in corners)
            lines.append(f'<box frame="{place}" keyframe="1" outside="{outside}" occluded="0" {sides} z_order="0"/>')
        lines.append("</track>")
    return "\n".join([*lines, "</annotations>"]) + "\n"


def label_names(procedure: Procedure) -> list[str]:
    """What a tool may call boxes."""
    return [ASSEMBLY, *(state.name for state in procedure.states if state.kind is not StateKind.BACKGROUND)]


def _stretches(boxes: Sequence[ToolBox], place_of: Mapping[int, int]) -> list[list[ToolBox]]:
    """Boxes of frames that follow each other and show the same state."""
    ordered = sorted({box.frame: box for box in reversed(boxes)}.values(), key=lambda box: box.frame)
    found = [[box] for box in ordered[:1]]
    for before, box in pairwise(ordered):
        if box.state_class == before.state_class and place_of[box.frame] == place_of[before.frame] + 1:
            found[-1].append(box)
        else:
            found.append([box])
    return found


# ---------------------------------------------------------------------- Label Studio
_Percent = Annotated[float, Field(ge=-100, le=200, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class _Key:
    """A key frame of a video: places are percent of the image."""

    frame: Annotated[int, Field(ge=1, le=_MOST_FRAMES)]
    x: _Percent
    y: _Percent
    width: _Percent
    height: _Percent
    enabled: bool = True  # whether the box goes on to the next key frame
    rotation: float = 0.0

    def box(self, size: tuple[int, int]) -> Box:
        return _box_of_percent(self.x, self.y, self.width, self.height, self.rotation, size)


@dataclass(frozen=True, slots=True)
class _Rectangle:
    x: _Percent
    y: _Percent
    width: _Percent
    height: _Percent
    rectanglelabels: Annotated[list[str], Field(min_length=1)]
    rotation: float = 0.0

    def box(self, size: tuple[int, int]) -> Box:
        return _box_of_percent(self.x, self.y, self.width, self.height, self.rotation, size)


@dataclass(frozen=True, slots=True)
class _Sequence:
    sequence: Annotated[list[_Key], Field(min_length=1)]
    labels: Annotated[list[str], Field(min_length=1)]


def _box_of_percent(x: float, y: float, width: float, height: float, rotation: float, size: tuple[int, int]) -> Box:
    if rotation:
        raise InputError("the box is rotated", cure="draw upright boxes")
    across, down = size[0] / 100, size[1] / 100
    return Box.from_xywh(x * across, y * down, width * across, height * down)


def read_label_studio(path: Path, recordings: ToolRecordings) -> Iterator[ToolBox]:
    """The boxes of Label Studio's JSON: rectangles in images, and those that follow the assembly through a video.

    A task belongs to the recording that its data names (`recording`, as the export writes it), or its file.
    """
    tasks = read_json(path)
    if not isinstance(tasks, list):
        raise InputError("this is no export of Label Studio", path=path, line=1, cure="export as JSON: a list of tasks")
    for number, task in enumerate(tasks, start=1):
        with errors_at(path, about=f"task #{number}"):
            yield from list(_task(task, recordings))


def _task(task: Any, recordings: ToolRecordings) -> Iterator[ToolBox]:
    cure = "export as JSON, not as JSON-MIN"
    if not isinstance(task, dict) or not isinstance(task.get("data"), dict):
        raise InputError("there is no 'data'", cure=cure)
    annotations = task.get("annotations", [])
    if not isinstance(annotations, list) or not all(isinstance(one, dict) for one in annotations):
        raise InputError("'annotations' is no list of tables", cure=cure)
    kept = [one for one in annotations if not one.get("was_cancelled")]
    if len(kept) > 1:
        cure = "keep one; 'stormpsr labels compare' says how far people agree"
        raise InputError(f"{len(kept)} people annotated it", cure=cure)
    results = kept[0].get("result", []) if kept else []
    if not isinstance(results, list) or not all(isinstance(one, dict) for one in results):
        raise InputError("'result' is no list of tables", cure=cure)
    for place, result in enumerate(results, start=1):
        with _about(f"result #{place}"):
            kind = result.get("type")
            if kind == "videorectangle":
                yield from _of_video(task["data"], result.get("value"), recordings)
            elif kind == "rectanglelabels":
                yield from _of_image(task["data"], result.get("value"), recordings)


@contextmanager
def _about(what: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"{what}: {error.problem}", cure=error.cure) from None


def _of_video(data: Mapping[str, Any], value: Any, recordings: ToolRecordings) -> Iterator[ToolBox]:
    read = validate(_Sequence, Document(_known(value, _Sequence)))
    recording = recordings.named(str(data.get("recording", "")), _path_in(data.get("video")))
    keys = sorted(read.sequence, key=lambda key: key.frame)
    for key, after in zip(keys, [*keys[1:], None], strict=True):
        box, start = key.box(recording.size), key.frame - 1
        recording.frame(start)  # complains of a frame that is not there
        if after is not None and after.frame == key.frame:
            raise InputError(f"two key frames {key.frame}", cure="delete one of them")
        end = (start + 1, box)
        if key.enabled:  # the last box stays to the end unless it was switched off
            end = (len(recording.numbers), box) if after is None else (after.frame - 1, after.box(recording.size))
        yield from recording.boxes(_one(read.labels), between((start, box), end))


def _of_image(data: Mapping[str, Any], value: Any, recordings: ToolRecordings) -> Iterator[ToolBox]:
    read = validate(_Rectangle, Document(_known(value, _Rectangle)))
    if "recording" in data and type(data.get("frame")) is int:  # and not true
        recording, frame = recordings.named(str(data["recording"])), data["frame"]
        if frame not in set(recording.numbers):
            raise InputError(f"there is no image of frame {frame} in {recording.folder.name!r}")
    else:
        recording, frame = recordings.image_named(PurePosixPath(_path_in(data.get("image"))).name)
    label, box = _one(read.rectanglelabels), read.box(recording.size)
    state_class = recording.class_of(label, frame)
    if state_class is not None:
        yield ToolBox(recording.folder.name, frame, recording.size, state_class, box.inside(*recording.size))


def _known(value: Any, kind: Any) -> Any:
    """What is read of a table; whatever else it says is for others."""
    if not isinstance(value, dict):
        raise InputError("there is no 'value'", cure="export as JSON, not as JSON-MIN")
    found = {key: value[key] for key in kind.__dataclass_fields__ if key in value}
    if isinstance(found.get("sequence"), list):
        keys = [entry if isinstance(entry, dict) else {} for entry in found["sequence"]]
        found["sequence"] = [{k: entry[k] for k in _Key.__dataclass_fields__ if k in entry} for entry in keys]
    return found


def _one(labels: Sequence[str]) -> str:
    if len(labels) > 1:
        raise InputError(f"a box with {len(labels)} labels: {', '.join(labels)}", cure="give it one")
    return labels[0]


def _path_in(address: Any) -> str:
    """The file that an address means: `/data/local-files/?d=videos/01.mp4`, `s3://...`, or a plain path."""
    parts = urlsplit(address if isinstance(address, str) else "")
    inner = parse_qs(parts.query).get("d")
    return inner[0] if inner else unquote(parts.path)


def label_studio_task(recording: ToolRecording, boxes: Sequence[ToolBox], file: str, frame: int | None) -> Any:
    """A task for one image of a recording, or for its whole video."""
    address, data = f"/data/local-files/?d={file}", {"recording": recording.folder.name}
    names = {state.state_class: state.name for state in recording.procedure.states}
    about = {"original_width": recording.size[0], "original_height": recording.size[1], "origin": "manual"}
    results: list[dict[str, Any]] = []
    if frame is not None:
        for box in boxes:
            value = {**_percent(box.box, recording.size), "rotation": 0, "rectanglelabels": [names[box.state_class]]}
            results.append({"type": "rectanglelabels", "from_name": "box", "to_name": "image", "value": value, **about})
        return _with_results({**data, "frame": frame, "image": address}, results)
    place_of = {number: place for place, number in enumerate(recording.numbers)}
    for stretch in _stretches(boxes, place_of):
        keys = [
            {**_percent(box.box, recording.size), "frame": place_of[box.frame] + 1, "enabled": True, "rotation": 0}
            for box in stretch
        ]
        keys[-1]["enabled"] = False
        value = {"framesCount": len(recording.numbers), "sequence": keys, "labels": [names[stretch[0].state_class]]}
        results.append({"type": "videorectangle", "from_name": "box", "to_name": "video", "value": value, **about})
    return _with_results({**data, "video": address}, results)


def _with_results(data: dict[str, Any], results: list[dict[str, Any]]) -> dict[str, Any]:
    """A task that nobody has looked at has no annotation."""
    numbered = [{"id": f"box{number}", **result} for number, result in enumerate(results)]
    return {"data": data, "annotations": [{"result": numbered}] if results else []}


def _percent(box: Box, size: tuple[int, int]) -> dict[str, Any]:
    x, y, width, height = box.to_xywh()
    sides = {"x": x / size[0], "y": y / size[1], "width": width / size[0], "height": height / size[1]}
    return {name: round(100 * share, 5) for name, share in sides.items()}


def label_studio_config(procedure: Procedure, *, video: bool) -> str:
    """The labelling interface that the tasks go with."""
    labels = "".join(f"<Label value={quoteattr(name)}/>" for name in label_names(procedure))
    if video:
        controls = f'<VideoRectangle name="box" toName="video"/><Labels name="label" toName="video">{labels}</Labels>'
        return f'<View><Video name="video" value="$video" framerate="{procedure.fps:g}"/>{controls}</View>\n'
    rectangles = f'<RectangleLabels name="box" toName="image">{labels}</RectangleLabels>'
    return f'<View><Image name="image" value="$image"/>{rectangles}</View>\n'
