"""A model whose networks need torch, as one that runs without: networks become graphs, everything else is copied.

A network in 8 bits is kept only if the events of recordings get no worse by it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.dataset import Dataset
from stormpsr.data.events import StepEvent, completions
from stormpsr.data.images import Image, letterbox
from stormpsr.data.recording import Recording, variant_name_of
from stormpsr.decoding.predictions import PredictionTable
from stormpsr.errors import InputError
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.summary import summarise
from stormpsr.files import replacing_folder
from stormpsr.models.checkpoint import GRAPHS_FILE, MODEL_FILE
from stormpsr.recognizer.model_folder import (
    DETECTOR_FOLDER,
    SETTINGS_FILE,
    STREAM_FOLDER,
    RecognizerModel,
    load_model,
    resolve_model,
)
from stormpsr.recognizer.networks import Networks, same_locator
from stormpsr.recognizer.offline import decode_table, predict_recording
from stormpsr.runtime.exported import DETECTOR_GRAPH, ENCODER_GRAPH, LOCATOR_GRAPH
from stormpsr.runtime.graphs import GraphsInfo

if TYPE_CHECKING:
    from stormpsr.runtime.graphs import Engine

_CALIBRATION_IMAGES = 128
_JUDGED_RECORDINGS = 12
_IN_8_BITS = {STREAM_FOLDER: ("encoder", ENCODER_GRAPH), DETECTOR_FOLDER: ("detector", DETECTOR_GRAPH)}


class Worth(NamedTuple):
    """How good a model's events are."""

    f1: float
    pos: float
    delay_seconds: float | None
    tick_seconds: float

    def worse_than(self, other: Worth) -> bool:
        """Fewer steps, a worse order, or later by more than a tick."""
        if self.f1 < other.f1 or self.pos < other.pos:
            return True
        ours, theirs = self.delay_seconds, other.delay_seconds
        return ours is not None and theirs is not None and ours > theirs + self.tick_seconds

    def __str__(self) -> str:
        late = "" if self.delay_seconds is None else f", tau {self.delay_seconds:.2f} s"
        return f"F1 {self.f1:.3f}, POS {self.pos:.3f}{late}"


Judge = Callable[[RecognizerModel], Worth]
OnNote = Callable[[str], None]


def export_model(
    model: str | Path,
    out: str | Path,
    *,
    engine: Engine = "onnx",
    calibration: Iterable[Image] | None = None,
    judge: Judge | None = None,
    on_note: OnNote | None = None,
) -> RecognizerModel:
    """Write a model's folder whose networks are graphs, and load it.

    calibration: images of the work; where they are given, detector and encoder are written in 8 bits. The temporal
    model and the locator, which are small, stay as they are.
    A model that was exported in full precision can be brought to 8 bits, too: its graphs are taken as they are.
    judge: says how good events are; a network by which they get worse then stays in full precision. `on_note` hears it.
    """
    source, out = resolve_model(model), Path(out)
    was_exported = any((source / part / GRAPHS_FILE).is_file() for part in (STREAM_FOLDER, DETECTOR_FOLDER))
    if was_exported and (calibration is None or precision_of(source) != "float32"):
        raise InputError("this model was exported already", path=source, cure="give the one that it was made from")
    is_export = (out / SETTINGS_FILE).is_file() and any(out.glob(f"*/{GRAPHS_FILE}"))
    if out.exists() and not is_export and (out.is_file() or any(out.iterdir())):
        raise InputError("this is no exported model, and would be overwritten", path=out, cure="choose another name")
    images = None if calibration is None else list(calibration)
    with replacing_folder(out) as draft:
        shutil.copytree(source, draft, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MODEL_FILE))
        if was_exported:
            for part in (path.parent for path in draft.glob(f"*/{GRAPHS_FILE}")):
                replace(GraphsInfo.load(part), engine=engine).save(part)
        else:
            _write_graphs(load_model(source, device="cpu").networks, draft, engine)
        loaded = load_model(draft, device="cpu")  # what cannot be loaded is not written
        if images is not None:
            _shorten(draft, images, judge, None if judge is None else judge(loaded), on_note)
    return load_model(out, device="cpu")


def _write_graphs(networks: Networks, folder: Path, engine: Engine) -> None:
    """Write the graphs of all networks; a locator that both streams have is written once and copied."""
    from stormpsr.models.stream import TorchStream
    from stormpsr.runtime.export import export_detector, export_stream

    locator = None
    if isinstance(networks.stream, TorchStream):
        part = folder / STREAM_FOLDER
        export_stream(networks.stream, len(networks.offsets_N), part, engine=engine).save(part)
        if same_locator(networks.detector, networks.stream):
            locator = part / LOCATOR_GRAPH
    if networks.detector is not None:
        part = folder / DETECTOR_FOLDER
        export_detector(networks.detector, part, engine=engine, locator_graph=locator).save(part)


def _shorten(
    folder: Path, images: list[Image], judge: Judge | None, before: Worth | None, on_note: OnNote | None
) -> None:
    """Bring one network after the other to 8 bits, and back if events get worse."""
    from stormpsr.runtime.quantise import quantise

    for name, (what, graph) in _IN_8_BITS.items():
        part = folder / name
        if not part.is_dir():
            continue
        info, full = GraphsInfo.load(part), (part / graph).read_bytes()
        quantise(part, graph, info, _squares(images, info.image_size))
        replace(info, precision="int8").save(part)
        after = None if judge is None else judge(load_model(folder, device="cpu"))
        is_worse = after is not None and before is not None and after.worse_than(before)
        if is_worse:
            (part / graph).write_bytes(full)
            info.save(part)
        if on_note and after is not None:
            kept = "stays in full precision" if is_worse else "is kept in 8 bits"
            on_note(f"the {what} {kept}: {before} become {after}")
        before = before if is_worse else after


def events_judge(recordings: Sequence[Recording]) -> Judge:
    """Scores the events of a model in some of the recordings, by its own method.

    Where a recording has no labels, the events of the first model take their place.
    """
    step = -(-len(recordings) // _JUDGED_RECORDINGS)
    chosen, first = list(recordings)[::step], dict[str, list[StepEvent]]()

    def judge(model: RecognizerModel) -> Worth:
        scores = []
        for recording in chosen:
            table = PredictionTable.of(
                predict_recording(model.networks, recording.frames()), model.procedure.n_components
            )
            decoder = model.decoder(None, variant_name_of(recording, model.procedure))
            events = completions(decode_table(decoder, table))
            labels = first.setdefault(recording.name, events) if recording.steps is None else recording.steps
            scores.append(score(labels, events, procedure=model.procedure, fps=recording.fps))
        found = summarise(scores, model.procedure, n_bootstrap=1).all
        return Worth(found.f1, found.pos, found.delay_seconds, 1 / model.procedure.fps)

    return judge


def precision_of(folder: Path) -> str:
    """That of the networks of an exported model: `float32`, `int8`, or `int8 (encoder)` where it is one of them."""
    there = {what: part for name, (what, _) in _IN_8_BITS.items() if (part := folder / name).is_dir()}
    short = [what for what, part in there.items() if GraphsInfo.load(part).precision == "int8"]
    if not short:
        return "float32"
    return "int8" if len(short) == len(there) else f"int8 ({', '.join(short)})"


def _squares(images: list[Image], size: int) -> NDArray[np.uint8]:
    return np.array([letterbox(image, size)[0] for image in images], dtype=np.uint8)


def calibration_images(dataset: Dataset) -> list[Image]:
    """Some frames of every recording, evenly spread."""
    names = list(dataset.names)
    each = -(-_CALIBRATION_IMAGES // max(len(names), 1))
    chosen: list[Image] = []
    for name in names:
        recording = dataset[name]
        step = max(recording.n_frames // each, 1)
        chosen += [frame.image for frame in islice(recording.frames(), 0, None, step)][:each]
    return chosen
