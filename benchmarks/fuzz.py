"""Damaged files for every reader: each is refused in plain words or read, within 10 seconds and 2 GB.

    python benchmarks/fuzz.py --seconds 600 --seed 0          # all readers, each for its share of the time
    python benchmarks/fuzz.py --count 200 --only steps         # so many inputs each, of some readers
    python benchmarks/fuzz.py --only coco --first 4711 --count 1   # one input again

A failure is an exception that is not the project's own, a crash, more than 10 s or 2 GB, a number that is not finite in
what was read, something that is read differently once it was written, or a draft left behind. It is made as small as it
goes, kept in build/fuzz, and printed with the command that repeats it. Input number N of a reader is always the same
for the same seed.

A reader is one line of TARGETS: a function that writes a valid example into an empty folder, and one that reads it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import io
import json
import math
import mmap
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tiny
from script import make_parser, print_table, seconds_of
from stormpsr.errors import InputError, StormPSRError

MOST_SECONDS, MOST_BYTES = 10.0, 2 * 1024**3
_STUCK_SECONDS = 40.0  # without a word from a reader that not even a signal reaches
_SHRINKS, _SHRINK_SECONDS = 300, 15.0  # attempts to make an input smaller, before it counts as stuck
_TOO_MUCH = re.compile(r"unable to allocate|bad.?alloc|insufficient memory|out of memory|not enough memory", re.I)
KEPT = Path("build/fuzz")
_MESSAGES = KEPT / f"messages-{os.getpid()}.jsonl"  # of the processes that this one starts
Files = Mapping[str, bytes]


class TooLongError(BaseException):
    """Raised by the clock. Not an `Exception`, so that no reader can swallow it."""


class WrongError(AssertionError):
    """Something was read that is not what the file says, or that nobody can compute with."""


@dataclasses.dataclass(frozen=True)
class Target:
    """A reader. `only`: which files of the example are damaged; `share`: of the time."""

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], object]
    share: float = 1.0
    only: str = ""  # a regular expression
    nan: bool = False  # whether what is read may hold nan, for example because it is a network's numbers


# ====================================================================== readers
def _text(name: str, text: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")

    return make


def _copied(name: str, *source: str) -> Callable[[Path], None]:
    import stormpsr

    return lambda folder: _text(name, Path(stormpsr.__file__).parent.joinpath(*source).read_text("utf-8"))(folder)


def _out(folder: Path, name: str) -> Path:
    """Where a reader that writes what it has read may do so."""
    place = folder.with_name("out")
    place.mkdir(exist_ok=True)
    return place / name


def _same(one: object, other: object, what: str) -> None:
    if one != other:
        raise WrongError(f"{what} are others after writing and reading again: {one!r:.300} / {other!r:.300}")


_seen: set[int] = set()


def _new(found: object) -> bool:
    """Whether this was not read before: writing it once is enough."""
    known = hash(repr(found))
    if known in _seen:
        return False
    _seen.add(known)
    return True


LAMP = tiny.lamp()


def read_steps(folder: Path) -> object:
    from stormpsr.data.labels import read_steps, write_steps

    events = read_steps(folder / "PSR_labels.csv", LAMP, on_note=str)
    if _new(events):
        write_steps(_out(folder, "a.csv"), events, LAMP)
        again = read_steps(_out(folder, "a.csv"), LAMP)
        _same([(e.frame, e.step_id) for e in events], [(e.frame, e.step_id) for e in again], "steps")
    return events


def read_states(folder: Path) -> object:
    from stormpsr.data.labels import read_states, write_states

    timeline = read_states(folder / "PSR_labels_raw.csv", LAMP, on_note=str)
    if _new(timeline):
        write_states(_out(folder, "a.csv"), timeline, LAMP)
        _same(timeline, read_states(_out(folder, "a.csv"), LAMP), "states")
    return timeline


def read_detections(folder: Path) -> object:
    from stormpsr.data.detection_csv import read_detection_table, write_detections

    table = read_detection_table(folder / "detections.csv", LAMP, on_note=str)
    if not _new(table):
        return table
    write_detections(_out(folder, "a.csv"), table)
    again = read_detection_table(_out(folder, "a.csv"), LAMP)
    plain = [{n: [(d.frame, d.state_class, d.confidence) for d in ds] for n, ds in t.items()} for t in (table, again)]
    _same(plain[0], plain[1], "detections")
    return table


def read_procedure(folder: Path) -> object:
    from stormpsr.procedure.model import Procedure

    procedure = Procedure.load(folder / "procedure.yaml")
    if not _new(procedure):
        return procedure
    procedure.save(_out(folder, "a.yaml"))
    _same(procedure, Procedure.load(_out(folder, "a.yaml")), "procedures")
    return procedure


def read_settings(folder: Path) -> object:
    from stormpsr.recognizer.model_folder import load_settings, save_settings

    settings = load_settings(folder / "recognizer.yaml")
    save_settings(_out(folder, "a.yaml"), settings)
    again = load_settings(_out(folder, "a.yaml"))
    for name in settings.methods:
        _same(settings.of_method(name), again.of_method(name), "settings")
    return settings


def read_preset(folder: Path) -> object:
    from stormpsr.config import dump_config, load_config, parse_config

    config = load_config(folder / "preset.yaml")
    _same(config, parse_config(dump_config(config), where="again"), "settings")
    return config.model_dump()


def read_coco(folder: Path) -> object:
    from stormpsr.data.annotated_frames import read_boxes
    from stormpsr.data.coco import read_coco, read_coco_boxes

    coco = read_coco(folder / "OD_labels.json")
    if _new(coco):
        coco.write(_out(folder, "a.json"))
        _same(len(coco.boxes), len(read_coco(_out(folder, "a.json")).boxes), "boxes")
    read_coco_boxes(folder / "OD_labels.json", LAMP)
    return [coco, read_boxes(folder / "OD_labels.json", LAMP)]


def read_centre_boxes(folder: Path) -> object:
    from stormpsr.data.boxes import read_centre_boxes

    return read_centre_boxes(folder / "01_GT.csv", 640, 480, on_note=str)


def read_exchange(folder: Path) -> object:
    from stormpsr.data.box_exchange import read_exchange, write_recording_boxes

    found = read_exchange(folder, LAMP)
    write_recording_boxes(found, {"01_build": _out(folder, "")}, replace=True)
    return found


def read_of_tool(folder: Path) -> object:
    """Boxes of CVAT and Label Studio, which belong to a recording."""
    from stormpsr.data.box_exchange import read_exchange, write_recording_boxes
    from stormpsr.data.layouts import RecordingFolder

    found = read_exchange(folder / "boxes", LAMP, [RecordingFolder("01_build", None, folder / "01_build")])
    write_recording_boxes(found, {"01_build": _out(folder, "")}, replace=True)
    return found


def read_annotation(folder: Path) -> object:
    """A recording in work: its journal, and labels that others may have changed. Opened twice, it is the same."""
    from stormpsr.annotate.session import Session
    from stormpsr.data.layouts import RecordingFolder

    place = _copy(folder / "01_build", _out(folder, "01_build"))
    try:
        sessions = [Session(RecordingFolder("01_build", None, place), LAMP) for _ in range(2)]
    finally:
        shutil.rmtree(place)
    _same(*(session.document for session in sessions), "documents")
    found = [session.to_json() for session in sessions]
    json.dumps(found, allow_nan=False)
    return found


def _copy(source: Path, target: Path) -> Path:
    """A folder as it is, pipes and links included: for readers that write into what they read."""
    shutil.rmtree(target, ignore_errors=True)
    for path in (source, *sorted(source.rglob("*"))):
        place = target / path.relative_to(source)
        if path.is_symlink():
            place.symlink_to(path.readlink())
        elif path.is_dir():
            place.mkdir()
        elif path.is_fifo():
            os.mkfifo(place)
        else:
            shutil.copyfile(path, place)
    return target


def read_recording(folder: Path) -> object:
    from stormpsr.data.layouts import RecordingFolder
    from stormpsr.data.recording import open_recording

    recording = open_recording(RecordingFolder("01_build", None, folder / "01_build"), LAMP)
    if recording.n_frames < 10**7:
        recording.states_FC.sum()
    return [recording.fps, recording.n_frames, recording.states, recording.steps]


def read_dataset(folder: Path) -> object:
    """Whole folders: odd names, links, pipes and labels that do not agree."""
    from stormpsr.data.audit import audit_labels
    from stormpsr.data.dataset import Dataset

    audit_labels(folder, LAMP)
    found = [(recording.name, recording.n_frames, recording.steps) for recording in Dataset.open(folder, None)]
    for recording in Dataset.open(folder, None):
        for frame in recording.frames():
            frame.image.sum()
    return found


def read_frames(folder: Path) -> object:
    from stormpsr.data.annotated_frames import read_frames

    found = read_frames(folder, None, LAMP, on_note=str)
    return [frame.box for frame in found.readable]


def read_image(folder: Path) -> object:
    from stormpsr.data.images import letterbox, read_image

    image = read_image(next(folder.glob("a.*"), folder / "a"))
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise WrongError(f"an image of {image.dtype} {image.shape}")
    return float(letterbox(image, 64)[0].sum())


def read_video(folder: Path) -> object:
    from stormpsr.data.sources import Video, open_source

    path = next(folder.glob("a.*"), folder / "a")
    shapes, last = [], -1.0
    for frame in open_source(path, LAMP).frames():
        if not frame.time_seconds > last:
            raise WrongError(f"a frame at {frame.time_seconds} s after one at {last} s")
        last = frame.time_seconds
        shapes.append(frame.image.shape)
    counted = Video.counted(path)
    for image in counted.images_at([0, (counted.n_frames or 1) - 1]):
        image.sum()
    return last


def read_run(folder: Path) -> object:
    from stormpsr.evaluation.run_folder import read_run

    run = read_run(folder)
    return [(r.fps, r.n_frames, r.labels, r.events, r.visible_share) for r in run.recordings()]


def read_report(folder: Path) -> object:
    from stormpsr.evaluation.report.page import render_report
    from stormpsr.evaluation.run_folder import read_run

    return len(render_report(read_run(folder)))


def read_model(folder: Path) -> object:
    from stormpsr.data.sources import Frame
    from stormpsr.recognizer.recognizer import Recognizer

    recognizer = Recognizer.load(folder / "model", threads=1, device="cpu")
    rng = np.random.default_rng(0)
    for number in range(18):
        recognizer.update(Frame(tiny.picture(tiny.STATES[number // 5], rng), number, number / 10))
    state = recognizer.state
    return [state, recognizer.share.tolist()]


def read_product(folder: Path) -> object:
    from stormpsr.synthetic.product import Product

    product = Product.load(folder / "product.yaml")
    return [[piece.mesh.vertices_V3.tolist() for piece in part.pieces] for part in product.parts]


def read_mesh(folder: Path) -> object:
    from stormpsr.synthetic.meshes import load_mesh

    return load_mesh(next(folder.glob("a.*"), folder / "a"), 0.001, 2000).vertices_V3.tolist()


def read_visibility(folder: Path) -> object:
    from stormpsr.data.visibility import read_visibility

    seen = read_visibility(folder / "visibility.csv", 3)
    seen.readable_F()
    return [share for share in seen.mean_visible_F().tolist() if not math.isnan(share)]


def read_published(folder: Path) -> object:
    from stormpsr.procedure.published_json import import_procedure_info

    return import_procedure_info(folder / "procedure_info.json", name="lamp", fps=10)


def read_stations(folder: Path) -> object:
    from stormpsr.station.hub import read_stations

    return read_stations(folder / "stations.yaml")


def read_records(folder: Path) -> object:
    """A station's records: what is wrong with them is listed, or refused."""
    from stormpsr.station.records import verify

    return verify(folder)


class _Recognizer:
    """As much of a recogniser as a station needs to begin."""

    def __init__(self, variant: str | None) -> None:
        self.procedure, self.variant, self.method, self.prediction = LAMP, LAMP.variant(variant), "average", None
        self.share, self.state = np.zeros(len(LAMP.steps)), self.variant.initial

    def restore(self, bits: Sequence[int]) -> None:
        if len(bits) != LAMP.n_components or not set(bits) <= {-1, 0, 1}:
            raise WrongError(f"the state {bits} was accepted")


def read_station(folder: Path) -> object:
    """A station that goes on with its records, and what its page shows then."""
    from stormpsr.station.records import Records
    from stormpsr.station.service import Station

    place = _copy(folder, _out(folder, "station"))
    try:
        records = Records(place)
        try:
            station = Station(_Recognizer, records)  # type: ignore[arg-type]
            try:
                shown = station.snapshot()
            finally:
                station.close()
        finally:
            records.close()
    finally:
        shutil.rmtree(place)
    json.dumps(shown, allow_nan=False)
    return [station.work.bits, station.unit_counts]


def read_corrections(folder: Path) -> object:
    from stormpsr.station.export import export_corrections

    out = _out(folder, "corrections")
    shutil.rmtree(out, ignore_errors=True)
    return export_corrections(folder, out, LAMP)


def read_frame_times(folder: Path) -> object:
    from stormpsr.data.recorder import read_frame_times

    return read_frame_times(folder)


def read_frame_cache(folder: Path) -> object:
    """Decoded frames: what is damaged is made again."""
    from stormpsr.data.frame_cache import FrameCache
    from stormpsr.data.sources import ImageFolder

    place, found = _copy(folder / "cache", _out(folder, "cache")), []
    source = ImageFolder(folder / "data" / "test" / "01_build" / "rgb")
    try:
        for size in (16, tiny.SIZE):  # resized ones are kept; others are looked at once
            cache = FrameCache(place, size)
            cache.is_filled(source)
            found.append(int(cache.frames(source)[source.numbers()[0]].sum()))
    finally:
        shutil.rmtree(place)
    return found


def read_downloads(folder: Path) -> object:
    from stormpsr.data.downloads import check_downloads, link_downloads

    found = check_downloads([folder], LAMP)
    if not found.errors:
        out = _out(folder, "linked")
        shutil.rmtree(out, ignore_errors=True)
        link_downloads([folder], out, LAMP)
    return [found.counts(), found.errors, found.notes]


def read_known_views(folder: Path) -> object:
    from stormpsr.detectors.known_views import KnownViews

    views = KnownViews.load(folder)
    return None if views is None else [views.mean_D.tolist(), views.whiten_DD.tolist(), views.limit]


def read_places(folder: Path) -> object:
    from stormpsr.data.places import places_in

    places_FCP2 = places_in(folder, 2)
    return None if places_FCP2 is None else np.nan_to_num(places_FCP2).tolist()  # parts that are not there have none


def read_gate(folder: Path) -> object:
    from stormpsr.recognizer.gate import Gate

    return Gate.load(folder)


def read_stage(folder: Path) -> object:
    from stormpsr.config import parse_config
    from stormpsr.training.stage_folder import StageFolder

    stage = StageFolder(folder)
    stage.check(parse_config(tiny.SETTINGS, where="tiny"), resume=True)
    stage.check_began_from("0123456789abcdef")
    return stage.is_finished


def read_tokens(folder: Path) -> object:
    from stormpsr.web.security import access_for

    access, _ = access_for("0.0.0.0", None, folder)
    if not (access.operator and access.viewer):
        raise WrongError("nobody needs a token")
    return access


def read_weights(folder: Path) -> object:
    """A backbone's file: its tensors, and nothing that could run."""
    from stormpsr.models.backbones import create_backbone

    path = str(next(folder.glob("a.*"), folder / "a"))
    return len(list(create_backbone("test_resnet", image_size=32, out_dim=4, weights=path).parameters()))


def read_table(folder: Path) -> object:
    from stormpsr.recognizer.reproduce import load_table

    return load_table(str(folder / "table.yaml"))


def read_cell(folder: Path) -> object:
    from stormpsr.recognizer.reproduce import read_scores

    return read_scores(folder / "cell-0.json", ["a", "b"])


def read_drawn(folder: Path) -> object:
    """What generating goes on with, and its overview."""
    from stormpsr.synthetic import generate, overview

    spec = _drawn_set()
    (recording,) = spec.recordings(_product())
    generate._claim_folder(folder, spec)
    generate._is_complete(folder, recording)
    return overview.summarise_set(map(overview.metrics_of, overview.recording_folders(folder))).mean_length


def read_detector_preset(folder: Path) -> object:
    from stormpsr.training.tasks.detector import load_detector_preset

    preset = load_detector_preset(str(folder / "preset.yaml"))
    return [preset.network, dataclasses.asdict(preset.settings(1000, {}, {}))]


def read_filter(folder: Path) -> object:
    from stormpsr.decoding.procedure_filter import FilterParameters

    found = FilterParameters.load(folder / "filter.npz", 3)
    return [found.gain, found.log_seconds_R.tolist(), [(w.tolist(), b.tolist()) for w, b in found.layers]]


def read_recurrent(folder: Path) -> object:
    from stormpsr.decoding.recurrent import load_weights

    return {name: array.tolist() for name, array in load_weights(folder / "recurrent.npz", 3).items()}


def read_predictions(folder: Path) -> object:
    """A cache: what is damaged is made again, so that the answer may be None, and nothing else."""
    from stormpsr.decoding.predictions import PredictionTable

    table = PredictionTable.load(folder / "a.npz", "tiny")
    if table is not None:
        for prediction in table:
            if prediction.change_C is not None and prediction.change_C.shape != (3,):
                raise WrongError(f"changes of {prediction.change_C.shape}")
    return None if table is None else [table.time_P.tolist(), table.change_EC.tolist()]


def read_rows(folder: Path) -> object:
    from stormpsr.data.row_file import RowFile

    rows = RowFile(folder / "a", 8, (4,), "float32", {"images": "x"})
    if rows.stale_because() is None:
        rows.rows_done()
    return float(np.nan_to_num(rows.read()).astype(np.float64).clip(-1e30, 1e30).sum())


def read_ids(folder: Path) -> object:
    from stormpsr.data.downloads import read_ids

    return read_ids(str(folder / "ids.yaml"))


def read_score(folder: Path) -> object:
    from stormpsr.evaluation.score_files import score_files

    return score_files(folder / "labels", folder / "events", LAMP).to_dict()


# ====================================================================== examples
def make_labels(folder: Path) -> None:
    _recording(folder / "01_build", images=2)
    for path in (folder / "01_build").glob("PSR*"):
        path.rename(folder / path.name)
    shutil.rmtree(folder / "01_build")


def _recording(folder: Path, images: int = 60, video: bool = False) -> None:
    tiny.write_recording(folder, seed=1, video=video)
    for path in sorted((folder / "rgb").glob("*"))[images:]:
        path.unlink()
    if images < 60:
        (folder / "recording.json").write_text(json.dumps({"fps": 10, "n_frames": 60, "frame_step": 60 // images}))
        for number, path in enumerate(sorted((folder / "rgb").glob("*"))):
            path.rename(folder / "rgb" / f"x{number}")
        for number in range(images):
            (folder / "rgb" / f"x{number}").rename(folder / "rgb" / f"{number * (60 // images):06d}.png")


def make_recording(folder: Path) -> None:
    _recording(folder / "01_build", images=4)


def make_dataset(folder: Path) -> None:
    LAMP.save(folder / "procedure.yaml")
    for split in ("train", "test"):
        _recording(folder / split / "01_build", images=3)


def make_frames(folder: Path) -> None:
    _recording(folder / "train" / "01_build", images=15)


def make_steps(folder: Path) -> None:
    rows = ["000010.jpg,0,Install foot", "000020.jpg,3,Install pole,0.91", "000030.jpg,6,Install shade"]
    _text("PSR_labels.csv", "\n".join(rows) + "\n")(folder)


def make_states(folder: Path) -> None:
    rows = ["000000.jpg,0,0,0", "000010.jpg,1,0,0", "000020.jpg,1,-1,0", "000030.jpg,1,1,1"]
    _text("PSR_labels_raw.csv", "\n".join(rows) + "\n")(folder)


def make_detections(folder: Path) -> None:
    rows = ["recording,frame,class,confidence,x,y,w,h", "01,0,1,0.9,1,2,30,40", "01,1,2,0.85,1,2,30,40", "02,4,3,0.5"]
    _text("detections.csv", "\n".join(rows) + "\n")(folder)


COCO = {
    "images": [{"id": n, "file_name": f"01_build_{n:06d}.png", "width": 32, "height": 32} for n in (1, 2)],
    "annotations": [
        {
            "id": n,
            "image_id": n,
            "category_id": n,
            "bbox": [2, 8.5, 20, 16],
            "area": 320,
            "iscrowd": 0,
            "state": [1, 0, 0],
        }
        for n in (1, 2)
    ],
    "categories": [{"id": n, "name": f"state {n}"} for n in (1, 2)],
}


def make_coco(folder: Path) -> None:
    content = {**COCO, "images": [{**image, "file_name": f"{image['id']:06d}.png"} for image in COCO["images"]]}
    _text("OD_labels.json", json.dumps(content))(folder)


def make_coco_exchange(folder: Path) -> None:
    _text("annotations/train.json", json.dumps(COCO))(folder)


def make_yolo_exchange(folder: Path) -> None:
    names = {state.state_class: state.name for state in LAMP.states}
    _text(
        "data.yaml", f"path: .\ntrain: images/train\nval: images/train\nnames: {json.dumps(names)}\n".replace('"', "")
    )(folder)
    _text("labels/train/01_build_000003.txt", "1 0.5 0.5 0.25 0.5\n2 0.25 0.5 0.25 0.125\n")(folder)
    (folder / "images/train").mkdir(parents=True)
    _write_image(folder / "images/train/01_build_000003.png")


def _write_image(path: Path, mode: str = "RGB", **options: Any) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    image = (
        Image.fromarray(pixels).convert(mode)
        if mode != "I;16"
        else Image.fromarray(pixels[:, :, 0].astype("<u2") * 256)
    )
    image.save(path, **options)


def _image(name: str, mode: str = "RGB", **options: Any) -> Callable[[Path], None]:
    return lambda folder: _write_image(folder / name, mode, **options)


def make_turned(folder: Path) -> None:
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    _write_image(folder / "a.jpg", exif=exif)


def make_bomb(folder: Path) -> None:
    """4900 x 4900 are read; what is damaged in the header claims to be larger."""
    import cv2

    cv2.imwrite(str(folder / "a.png"), np.zeros((2000, 2000), np.uint8))


def _video(name: str, codec: str = "libx264") -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        rng = np.random.default_rng(0)
        tiny.write_video(folder / name, [tiny.picture(tiny.STATES[n // 6], rng) for n in range(24)], codec=codec)

    return make


def make_uneven(folder: Path) -> None:
    """A turned video whose time stamps jump, forwards and by hours."""
    from fractions import Fraction

    import av

    with av.open(str(folder / "a.mp4"), "w") as container:
        stream: Any = container.add_stream("libx264", rate=10)
        stream.height = stream.width = 32
        stream.pix_fmt, stream.time_base = "yuv420p", Fraction(1, 1000)
        stream.codec_context.time_base = Fraction(1, 1000)
        for number, stamp in enumerate((0, 100, 101, 500, 501, 8_000_000, 8_000_100)):
            frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), 30 * number, np.uint8), format="rgb24")
            frame.pts, frame.time_base = stamp, Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    content = bytearray((folder / "a.mp4").read_bytes())
    at = content.index(b"tkhd") + 4 + 4 + 20 + 16  # its matrix, of a version 0 header: a quarter turn
    content[at : at + 36] = struct.pack(">9i", 0, 65536, 0, -65536, 0, 0, 0, 0, 1 << 30)
    (folder / "a.mp4").write_bytes(bytes(content))


def make_changing(folder: Path) -> None:
    """JPEG images one after the other, of changing size, as cameras send them."""
    import cv2

    with (folder / "a.mjpeg").open("wb") as file:
        for number in range(12):
            side = 32 if number % 5 else 48
            done, data = cv2.imencode(".jpg", np.full((32, side, 3), 20 * number, np.uint8))
            assert done
            file.write(data.tobytes())


def make_run(folder: Path) -> None:
    from stormpsr.data.events import StepEvent
    from stormpsr.evaluation.run_folder import MethodInfo, RecordingRun, RunInfo, write_recording, write_run

    events = {"detection": (StepEvent(0, 12, confidence=0.9), StepEvent(3, 25, confidence=0.8))}
    labels = (StepEvent(0, 10), StepEvent(3, 22), StepEvent(6, 40))
    about: dict[str, Any] = {"frames_path": "test/01/rgb", "labels": labels, "labels_with_errors": labels}
    arrays: dict[str, Any] = {
        "detection_frame_M": np.arange(3),
        "detection_class_M": np.array([1, 2, 3]),
        "detection_confidence_M": np.array([0.5, 0.6, 0.7]),
        "change_frame_E": np.arange(2),
        "change_probability_EC": np.full((2, 3), 0.25),
        "evidence": {"detection": np.zeros((6, 9))},
        "evidence_stride": 10,
    }
    more: dict[str, Any] = {"readable": ((0, 9), (20, 30)), "visible_share": (1.0,) * 6, "visible_stride": 10}
    for name in ("01", "02"):
        run = RecordingRun(name, "build", 10.0, 60, False, events=events, **about, **arrays, **more)
        write_recording(folder, run)
    from stormpsr.evaluation.metrics import score
    from stormpsr.evaluation.summary import RecordingResult, summarise

    found = score(labels, events["detection"], procedure=LAMP)
    summary = summarise([RecordingResult(name, found, False) for name in ("01", "02")]).to_dict()
    methods = (MethodInfo("detection", "Detection only", {"threshold": 6.0}),)
    info = RunInfo("tiny", "m", "d", "test", "paper", methods, {"detection": summary}, recordings=("01", "02"))
    write_run(folder, info, LAMP)


def make_model(folder: Path) -> None:
    tiny.write_model(folder / "model")
    shutil.rmtree(folder / "model-parts")


def make_exported(folder: Path) -> None:
    from stormpsr.recognizer.export import export_model

    tiny.write_model(folder / "torch")
    export_model(folder / "torch", folder / "model")
    for name in ("torch", "torch-parts"):
        shutil.rmtree(folder / name)


def make_product(folder: Path) -> None:
    from stormpsr.synthetic.product import Product

    text = (Path(sys.modules[Product.__module__].__file__ or "").parent / "products" / "gearbox.yaml").read_text(
        "utf-8"
    )
    _text("product.yaml", text)(folder)


def _mesh(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        import trimesh

        trimesh.creation.icosphere(subdivisions=1).export(folder / name)

    return make


def make_visibility(folder: Path) -> None:
    from stormpsr.data.visibility import Visibility, write_visibility

    rng = np.random.default_rng(0)
    shares = [rng.uniform(0, 1, (6, 3)).astype(np.float32) for _ in range(3)]
    shares[0][0, 1] = np.nan
    write_visibility(folder / "visibility.csv", Visibility(*shares), LAMP)


def make_published(folder: Path) -> None:
    from stormpsr.procedure.published_json import procedure_info_text

    _text("procedure_info.json", procedure_info_text(LAMP))(folder)


def make_cell(folder: Path) -> None:
    scores = {"pos": 0.5, "f1": 0.8, "delay_seconds": None, "true_positives": 3}
    content = {"row": "one", "seed": 0, "scores": {"a": scores, "b": {**scores, "delay_seconds": 12.5}}}
    _text("cell-0.json", json.dumps(content))(folder)


@functools.cache
def _product() -> Any:
    from stormpsr.synthetic.product import Product

    return Product.load("vehicle")


@functools.cache
def _drawn_set() -> Any:
    from stormpsr.synthetic.actions import ErrorRates
    from stormpsr.synthetic.recording import DatasetSpec, product_digest

    rates = {split: ErrorRates(0.1, 0.1, 0.1, 0.2) for split in ("train", "val", "test")}
    counts = {"train": 1, "val": 0, "test": 0}
    return DatasetSpec("vehicle", product_digest(_product()), "quick", 32, 0, counts, 0.5, rates)


def make_drawn(folder: Path) -> None:
    from stormpsr.data.visibility import Visibility, write_visibility
    from stormpsr.synthetic import generate

    spec = _drawn_set()
    (recording,) = spec.recordings(_product())
    generate._claim_folder(folder, spec)
    place = generate.recording_folder(folder, recording)
    _recording(place, images=3)
    write_visibility(place / "visibility.csv", Visibility(*(np.ones((3, LAMP.n_components)) for _ in range(3))), LAMP)
    LAMP.save(place / "procedure.yaml")
    about = {"fps": 10.0, "n_frames": 3, "parameters": dataclasses.asdict(recording)}
    _text("recording.json", json.dumps(about))(place)


def make_settings(folder: Path) -> None:
    from stormpsr.recognizer.model_folder import RecognizerSettings, save_settings

    save_settings(folder / "recognizer.yaml", RecognizerSettings())


def make_filter(folder: Path) -> None:
    from stormpsr.decoding import procedure_filter as module

    width = module._N_FEATURES + 3
    layers = ((np.zeros((width, 4)), np.zeros(4)), (np.zeros((4, 3)), np.zeros(3)))
    module.FilterParameters(np.zeros(len(module.RATES)), 1.0, 1, layers).save(folder / "filter.npz")


def make_recurrent(folder: Path) -> None:
    from stormpsr.decoding.recurrent import SHAPES, save_weights, shape_of

    save_weights(folder / "recurrent.npz", {name: np.zeros(shape_of(name, 3)) for name in SHAPES})


def make_predictions(folder: Path) -> None:
    from stormpsr.data.events import StateDetection
    from stormpsr.decoding.predictions import N_OUTPUTS, Prediction, PredictionTable

    rows = [
        Prediction(
            tick,
            tick,
            tick / 10,
            (StateDetection(tick, 1, 0.5, (1, 2, 3, 4)),),
            np.full(3, 0.5, np.float32),
            np.zeros((3, N_OUTPUTS), np.float32),
        )
        for tick in range(5)
    ]
    PredictionTable.of(rows, 3).save(folder / "a.npz", "tiny")


def make_rows(folder: Path) -> None:
    from stormpsr.data.row_file import RowFile

    with RowFile(folder / "a", 8, (4,), "float32", {"images": "x"}).writer() as writer:
        writer.append(np.ones((8, 4), np.float32))


def make_score(folder: Path) -> None:
    for place in ("labels/test/01_build", "events/01_build"):
        (folder / place).mkdir(parents=True)
        make_steps(folder / place)


def make_records(folder: Path) -> None:
    from stormpsr.station.records import Entry, Records

    records = Records(folder)
    for number in range(4):
        records.append(Entry("step", {"step_id": number, "files": {}}))
    records.close()


def _of_tool(box_format: str, video: bool = False) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from stormpsr.data.box_exchange import export_recordings
        from stormpsr.data.layouts import RecordingFolder

        tiny.write_recording(folder / "01_build", seed=1, n_frames=24, video=video)
        export_recordings(folder / "boxes", [RecordingFolder("01_build", None, folder / "01_build")], LAMP, box_format)  # type: ignore[arg-type]
        for place in ("images", "videos"):
            shutil.rmtree(folder / "boxes" / place, ignore_errors=True)

    return make


def make_cvat_images(folder: Path) -> None:
    tiny.write_recording(folder / "01_build", seed=1, n_frames=24)
    box = '<box label="{}" source="manual" occluded="0" xtl="2.50" ytl="8" xbr="20.00" ybr="24" z_order="0"></box>'
    images = [
        f'<image id="{n}" name="01_build_{n:06d}.png" width="32" height="32">{box.format(label)}</image>'
        for n, label in ((3, "state 1"), (9, "assembly"))
    ]
    head = "<meta><task><name>01_build</name></task></meta>"
    _text("boxes/a.xml", "\n".join(['<?xml version="1.0"?>', "<annotations>", head, *images, "</annotations>"]))(folder)


def make_annotation(folder: Path) -> None:
    from stormpsr.annotate.session import Session
    from stormpsr.data.layouts import RecordingFolder

    _recording(folder / "01_build", images=4)
    session = Session(RecordingFolder("01_build", None, folder / "01_build"), LAMP)
    for change in ANNOTATED:
        session.change({"revision": session.revision, **change})


ANNOTATED: tuple[dict[str, Any], ...] = (
    {"do": "set", "frame": 12, "component": 0, "value": -1},
    {"do": "box", "frame": 0, "box": [2, 3, 20.5, 16]},
    {"do": "box", "frame": 45, "box": [6, 3, 20, 16]},
    {"do": "fill", "frame": 15},
    {"do": "undo"},
    {"do": "redo"},
    {"do": "mark", "frame": 40},
    {"do": "finish"},
)


def make_station(folder: Path) -> None:
    """Two units, a correction with its clip, one that was taken back, an alarm."""
    from stormpsr.station.clips import jpeg_of, write_clip
    from stormpsr.station.records import Entry, Records
    from stormpsr.station.work import Work

    records, work = Records(folder, wall=iter(range(1_700_000_000, 1_800_000_000)).__next__), Work(LAMP)

    def put(entry: Entry) -> Any:
        (record,) = records.append(entry)
        work.apply(record)
        return record

    rng = np.random.default_rng(0)
    images = [(n / 10, jpeg_of(tiny.picture(tiny.STATES[1], rng), tiny.SIZE)) for n in range(12)]
    when = "2023-11-14T22:14:00.000Z"
    for unit in (1, 2):
        put(Entry("unit_started", {"serial": f"A-{unit}", "variant": "build"}, unit))
        said = put(work.entry_of_correction(0, "done", when))
        write_clip(folder / "evidence" / "clip.mp4", images)
        told = {"correction": said.id, "clip": "clip.mp4", "seconds_before": 1.0, "files": {}}
        put(Entry("correction_clip", told, unit))
        put(work.entry_of_correction(3, "done", when))
        put(work.entry_of_undo())
        put(Entry("alarm", {"alarm": "wrong", "step_id": 3, "text": "pole", "picture": None}, unit))
        for entry in list(work.entries_of_finish(when, "operator")) if unit == 1 else ():
            put(entry)
    records.close()


def make_frame_cache(folder: Path) -> None:
    from stormpsr.data.frame_cache import FrameCache
    from stormpsr.data.sources import ImageFolder

    _recording(folder / "data" / "test" / "01_build", images=4)  # known by the last three names
    source = ImageFolder(folder / "data" / "test" / "01_build" / "rgb")
    FrameCache(folder / "cache", 16).frames(source, source.numbers()[1:3])
    FrameCache(folder / "cache", tiny.SIZE).frames(source)


def make_known_views(folder: Path) -> None:
    from stormpsr.detectors.known_views import KnownViews

    KnownViews(np.zeros(3), np.eye(3), 2.0).save(folder)


def make_places(folder: Path) -> None:
    from stormpsr.data.places import N_POINTS, write_places

    write_places(folder, np.linspace(0, 1, 3 * 2 * N_POINTS * 2).reshape(3, 2, N_POINTS, 2))


def make_gate(folder: Path) -> None:
    from stormpsr.recognizer.gate import Gate

    Gate((0.5, -1.0, 2.0), 0.25).save(folder)


def make_stage(folder: Path) -> None:
    from stormpsr.config import parse_config
    from stormpsr.training.stage_folder import StageFolder

    config = parse_config(tiny.SETTINGS, where="tiny")
    StageFolder(folder).begin(config, resume=False, began_from="0123456789abcdef")


def _weights(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        import safetensors.torch
        import torch

        from stormpsr.models.backbones import create_backbone

        tensors = create_backbone("test_resnet", image_size=32, out_dim=4, weights="none").state_dict()
        if name.endswith("pth"):
            torch.save(tensors, folder / name)
        else:
            safetensors.torch.save_file(tensors, folder / name)

    return make


STATIONS = "stations:\n  - name: bench-1\n    source: rtsp://127.0.0.1/1\n    too_long: 30\n  - {name: b2, source: 0}\n"
ALL_NAMES = ".*"
TARGETS: tuple[Target, ...] = (
    Target("steps", make_steps, read_steps, 4),
    Target("states", make_states, read_states, 4),
    Target("detections", make_detections, read_detections, 4),
    Target("centre boxes", _text("01_GT.csv", "1,1,1,0.5,0.5,0.2,0.3\n2,1,1,0.4,0.5,0.2,0.3\n"), read_centre_boxes, 2),
    Target("visibility", make_visibility, read_visibility, 1),
    Target("scores", make_score, read_score, 2),
    Target("coco", make_coco, read_coco, 3),
    Target("coco exchange", make_coco_exchange, read_exchange, 2),
    Target("yolo exchange", make_yolo_exchange, read_exchange, 3),
    Target("cvat", _of_tool("cvat"), read_of_tool, 2, r"\.xml$"),
    Target("cvat images", make_cvat_images, read_of_tool, 1, r"\.xml$"),
    Target("label studio", _of_tool("label-studio"), read_of_tool, 2, r"tasks\.json$"),
    Target("label studio video", _of_tool("label-studio", video=True), read_of_tool, 2, r"tasks\.json$"),
    Target("annotation", make_annotation, read_annotation, 2, r"(jsonl|annotation\.json|csv|OD_labels\.json)$"),
    Target("frame times", _text("frame_times.csv", "000000.jpg,0.0\n000001.jpg,0.1\n"), read_frame_times, 1),
    Target("recording.json", make_recording, read_recording, 1, "recording.json"),
    Target("recording", make_recording, read_recording, 1),
    Target("data set", make_dataset, read_dataset, 2),
    Target("downloads", make_dataset, read_downloads, 1),
    Target("annotated frames", make_frames, read_frames, 1),
    Target("frame cache", make_frame_cache, read_frame_cache, 1, "^cache/"),
    Target("procedure", lambda folder: LAMP.save(folder / "procedure.yaml"), read_procedure, 3),
    Target("procedure_info", make_published, read_published, 1),
    Target("product", make_product, read_product, 2),
    Target("mesh stl", _mesh("a.stl"), read_mesh, 1),
    Target("mesh obj", _mesh("a.obj"), read_mesh, 1),
    Target("mesh glb", _mesh("a.glb"), read_mesh, 1),
    Target("preset", _text("preset.yaml", tiny.SETTINGS), read_preset, 2),
    Target(
        "detector preset",
        _copied("preset.yaml", "presets", "detectors", "yolov8m-published.yaml"),
        read_detector_preset,
        1,
    ),
    Target("table", _copied("table.yaml", "tables", "main.yaml"), read_table, 1),
    Target("cell", make_cell, read_cell, 1),
    Target("drawn set", make_drawn, read_drawn, 1, r"(json|csv|yaml)$"),
    Target("class ids", _text("ids.yaml", "1: 15\n2: 3\n30: 1\n"), read_ids, 1),
    Target("stations", _text("stations.yaml", STATIONS), read_stations, 1),
    Target("recognizer.yaml", make_settings, read_settings, 2),
    Target("image png", _image("a.png"), read_image, 1),
    Target("image jpg", _image("a.jpg"), read_image, 1),
    Target("image cmyk", _image("a.jpg", "CMYK"), read_image, 0.5),
    Target("image 16 bit", _image("a.png", "I;16"), read_image, 0.5),
    Target("image alpha", _image("a.png", "RGBA"), read_image, 0.5),
    Target("image palette", _image("a.png", "P"), read_image, 0.5),
    Target("image turned", make_turned, read_image, 0.5),
    Target("image large", make_bomb, read_image, 0.5),
    Target("video mp4", _video("a.mp4"), read_video, 2),
    Target("video mkv", _video("a.mkv"), read_video, 1),
    Target("video avi", _video("a.avi", "mjpeg"), read_video, 1),
    Target("video uneven", make_uneven, read_video, 1),
    Target("video changing", make_changing, read_video, 1),
    Target("run folder", make_run, read_run, 2),
    Target("report", make_run, read_report, 1),
    Target("predictions", make_predictions, read_predictions, 2, nan=True),
    Target("rows", make_rows, read_rows, 1),
    Target("filter", make_filter, read_filter, 1),
    Target("recurrent", make_recurrent, read_recurrent, 1),
    Target("known views", make_known_views, read_known_views, 1),
    Target("places", make_places, read_places, 1),
    Target("gate", make_gate, read_gate, 1),
    Target("stage", make_stage, read_stage, 1),
    Target("tokens", _text("tokens.json", '{"operator": "abcdefghijklmn", "viewer": "opqrstuvwxyz"}'), read_tokens, 1),
    Target("records", make_records, read_records, 1),
    Target("station", make_station, read_station, 2, "sqlite$"),
    Target("corrections", make_station, read_corrections, 1),
    Target("weights pth", _weights("a.pth"), read_weights, 1),
    Target("weights safetensors", _weights("a.safetensors"), read_weights, 1),
    Target("model yaml", make_model, read_model, 3, r"(yaml|json)$"),
    Target("model tensors", make_model, read_model, 3, "safetensors$"),
    Target("exported model", make_exported, read_model, 3),
)


# ====================================================================== damage
# words are separated by blanks; what holds a blank or cannot be seen stands below
_PLAIN = """
0 -1 1 -0 1.5 NaN .nan nan inf -inf .inf 1e400 -1e400 1e-400 1e308 0x10 0b1 1_000 09 ² ٣ ½ null ~ true no None [] {}
[[]] !foo &a *a << --- ... | > ' " ''' , ; : / .. ../x ../../etc/passwd /dev/zero /dev/stdin ${HOME} <script> %s%n
package.module:Class os:system stormpsr.cli.main:main 🦜
"""
_UNSEEN = ["\t", "\n", "\r", "\r\n", "\0", "\x07", "\x1b[31m", "\x85", "\u2028", "\ufeff", "e\u0301", "\u202e", "\\"]
_SPACED = (
    '{a: 1}|{"a": 1}|[1, 2]|!!int x|!!timestamp 2001|!!binary aGk=|!!set {a}|&a [*a]|<<: *a|? [a, b]|%YAML 1.1|# x'
)
_LONG = ["9" * 19, "9" * 400, "9" * 5000, "a" * 300, "{{ 7 * 7 }}", "- - -", ": ", "- ", " ", ""]
_WORDS = [*_PLAIN.split(), *_UNSEEN, *_SPACED.split("|"), *_LONG]
_NUMBERS = (0, -1, 1, 1.5, 2**31, 2**63, 2**70, -(2**70), 10**400, 1e308, math.nan, math.inf, -math.inf)
_TEXTS = ("", "x", "1", "../x", "/dev/zero", "a\nb", "²", "\0", "\ufeff", "a" * 300)
_VALUES: tuple[Any, ...] = (None, True, False, *_NUMBERS, *_TEXTS, [], {}, [[]], {"a": 1}, [1, 2, 3, 4], [None])
_ODD_NAMES = (
    *["a\nb", "²", "٣", "🦜", "-rf", "x.jpg.png", "000001.JPG", "con", " ", "..x", "%00", "000000"],
    "a" * 250,
    "e\u0301",
)
_KINDS_OF_ODD = ["fifo", "folder", "loop", "dangling", "zero", "missing", "renamed", "beside", "empty", "linked"]


def damaged(content: bytes, name: str, rng: random.Random) -> bytes:
    """The content of a file with one or several faults."""
    kind = name.rpartition(".")[2].lower()
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if kind == "json" and rng.random() < 0.6:
            content = _damaged_json(content, rng)
        elif kind == "jsonl" and rng.random() < 0.6:
            lines = content.split(b"\n")
            place = rng.randrange(len(lines))
            lines[place] = _damaged_json(lines[place], rng)
            content = b"\n".join(lines)
        elif kind == "sqlite" and rng.random() < 0.6:
            content = _damaged_rows(content, rng)
        elif kind in ("json", "jsonl", "yaml", "csv", "txt", "obj", "xml"):
            content = _damaged_text(content, rng)
        elif kind == "npz" and rng.random() < 0.6:
            content = _damaged_arrays(content, rng)
        elif kind == "safetensors" and rng.random() < 0.6:
            content = _damaged_header(content, rng)
        else:
            content = _damaged_bytes(content, rng)
    return content


def _damaged_text(content: bytes, rng: random.Random) -> bytes:
    how = rng.random()
    if how < 0.12:
        return _damaged_bytes(content, rng)
    text = content.decode("utf-8", "surrogateescape")
    if how < 0.55:  # a word for another
        words = list(re.finditer(r"[\w.+-]+|[^\w\s]", text))
        if words:
            word = rng.choice(words)
            text = text[: word.start()] + rng.choice(_WORDS) + text[word.end() :]
    elif how < 0.7:
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(_WORDS) + text[at:]
    elif how < 0.95:
        lines = text.split("\n")
        one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        act = rng.randrange(5)
        if act == 0:
            del lines[one]
        elif act == 1:
            lines.insert(other, lines[one])
        elif act == 2:
            lines[one], lines[other] = lines[other], lines[one]
        elif act == 3:
            lines[one] = rng.choice(("  ", " ", "\t", "- ", "")) + lines[one].strip()
        else:
            lines[one] = lines[one] + lines[other]
        text = "\n".join(lines)
    elif how < 0.99:
        at = rng.randint(0, len(text))
        text = text[:at] + text[rng.randint(0, len(text)) :]
    else:
        text = rng.choice(("[", "{a: ", "- ", "a:\n ", '{"a":')) * rng.choice((50, 2000, 100_000)) + text
    return text.encode("utf-8", "surrogateescape")


def _damaged_bytes(content: bytes, rng: random.Random) -> bytes:
    if not content:
        return rng.randbytes(rng.randint(1, 40))
    found = bytearray(content)
    act, at = rng.randrange(7), rng.randrange(len(found))
    # headers are what readers believe: half of the damage is there
    at = at if rng.random() < 0.5 else min(at, rng.randrange(200))
    if act == 0:
        for _ in range(rng.randint(1, 8)):
            found[min(at, len(found) - 1)] ^= 1 << rng.randrange(8)
            at = rng.randrange(len(found))
    elif act == 1:
        del found[at:]
    elif act == 2:
        del found[at : at + rng.randint(1, 64)]
    elif act == 3:
        found[at:at] = rng.randbytes(rng.randint(1, 64))
    elif act == 4:
        width = rng.choice((1, 2, 4, 8))
        found[at : at + width] = rng.choice((b"\xff", b"\0", b"\x7f", b"\x80")) * width
    elif act == 5:
        found[at : at + 4] = rng.choice((1, 2**31 - 1, 60_000, 20_000, 2**32 - 1)).to_bytes(
            4, rng.choice(("big", "little"))
        )  # type: ignore[arg-type]
    else:
        start = rng.randrange(len(found))
        found[at:at] = found[start : start + rng.randint(1, 200)]
    return bytes(found)


def _damaged_json(content: bytes, rng: random.Random) -> bytes:
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return _damaged_text(content, rng)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any, depth: int = 0) -> None:
        inside = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, child in inside:
            places.append((node, key))
            if depth < 50:
                walk(child, depth + 1)

    walk(data)
    if not places or rng.random() < 0.02:
        return json.dumps(rng.choice(_VALUES)).encode()
    node, key = rng.choice(places)
    act = rng.randrange(6)
    if act < 3:
        node[key] = rng.choice(_VALUES)
    elif act == 3:
        del node[key]
    elif act == 4 and isinstance(node, list):
        node.append(node[key])
    elif isinstance(node, dict):
        node[rng.choice(("x", "", "id", *map(str, _WORDS[:6])))] = (
            node[key] if rng.random() < 0.5 else rng.choice(_VALUES)
        )
    else:
        node[key] = [node[key]] * rng.choice((1, 2, 1000))
    return json.dumps(data, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _damaged_rows(content: bytes, rng: random.Random) -> bytes:
    """A cell of a table has another value, or a row is missing; the seals are not made anew."""
    try:
        with contextlib.closing(sqlite3.connect(":memory:")) as db:
            db.deserialize(content[:18] + b"\1\1" + content[20:])  # as without a journal beside it
            for name in ("never_change", "never_remove"):
                db.execute(f"DROP TRIGGER IF EXISTS {name}")
            (n,) = db.execute("SELECT count(*) FROM records").fetchone()
            row = rng.randint(1, max(n, 1))
            column = rng.choice(("id", "time", "kind", "unit", "model", "data", "data", "data", "hash"))
            (old,) = db.execute(f"SELECT {column} FROM records WHERE id = ?", (row,)).fetchone()
            if rng.random() < 0.1:
                db.execute("DELETE FROM records WHERE id = ?", (row,))
            else:
                new = rng.choice((None, 0, -1, 2**62, 1.5, "", "x", b"\xff", "build", "correction", "undo", "step"))
                if column == "data" and rng.random() < 0.9:
                    new = _damaged_json(old.encode(), rng).decode("utf-8", "replace")
                db.execute(f"UPDATE records SET {column} = ? WHERE id = ?", (new, row))
            db.commit()
            return db.serialize()
    except (
        sqlite3.Error,
        AttributeError,
        TypeError,
        ValueError,
    ):  # damaged before; or a Python that cannot do this in memory
        return _damaged_bytes(content, rng)


def _damaged_arrays(content: bytes, rng: random.Random) -> bytes:
    """Arrays of other names, shapes, kinds and values in a whole file."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays: dict[str, Any] = {name: file[name] for name in file.files}
    except Exception:  # damaged before
        return _damaged_bytes(content, rng)
    name, act = rng.choice(sorted(arrays) or [""]), rng.randrange(9)
    if name:
        array = arrays[name]
        if act == 0:
            del arrays[name]
        elif act == 1:
            arrays[name] = array.reshape(-1)[: rng.randint(0, 3)]
        elif act == 2:
            arrays[name] = array[None]
        elif act == 3:
            with contextlib.suppress(ValueError, TypeError, RuntimeError):  # not everything can be everything
                arrays[name] = array.astype(rng.choice(["S4", "U4", "complex64", "bool", "datetime64[s]"]))
        elif act == 4 and array.dtype.kind == "f" and array.size:
            arrays[name] = array.copy()
            arrays[name].reshape(-1)[rng.randrange(array.size)] = rng.choice((np.nan, np.inf, -1e30, 1e30))
        elif act == 5 and array.dtype.kind == "i" and array.size:
            arrays[name] = array.copy()
            arrays[name].reshape(-1)[rng.randrange(array.size)] = rng.choice((-1, 2**62, 10**9))
        elif act == 6:
            arrays[rng.choice(("x", "a/b", "../x", name + "_"))] = array
        elif act == 7:
            arrays[name] = rng.choice((np.array("x"), np.array(np.nan), np.array([[[]]]), np.array(10**12)))
        else:  # a small file, large in memory
            return _bomb(arrays, name)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _bomb(arrays: Mapping[str, Any], name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for other, array in arrays.items():
            held = io.BytesIO()
            if other == name:
                np.lib.format.write_array_header_1_0(
                    held, {"descr": "<f8", "fortran_order": False, "shape": (10**11, 3)}
                )
                held.write(bytes(100_000))
            else:
                np.lib.format.write_array(held, np.asarray(array))
            archive.writestr(f"{other}.npy", held.getvalue())
    return buffer.getvalue()


def _damaged_header(content: bytes, rng: random.Random) -> bytes:
    """The header of a safetensors file tells lies; sometimes its length, too."""
    try:
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
    except (ValueError, struct.error, OverflowError):
        return _damaged_bytes(content, rng)
    name = rng.choice(sorted(header))
    act = rng.randrange(7)
    entry = header[name] if isinstance(header[name], dict) else {}
    if act == 0:
        del header[name]
    elif act == 1:
        header[name + "x"] = header.pop(name)
    elif act == 2 and "shape" in entry:
        entry["shape"] = rng.choice(([], [1], [-1], [2**62], [0], entry["shape"][::-1], [*entry["shape"], 1]))
    elif act == 3 and "dtype" in entry:
        entry["dtype"] = rng.choice(("F16", "BF16", "I64", "BOOL", "F99", "F64", "F32"))
    elif act == 4 and "data_offsets" in entry:
        entry["data_offsets"] = rng.choice(([0, 0], [-1, 4], [0, 2**62], [8, 4], entry["data_offsets"][::-1]))
    elif act == 5:  # numbers that no network should have
        at = 8 + length + 4 * rng.randrange(max((len(content) - 8 - length) // 4, 1))
        return content[:at] + struct.pack("<f", rng.choice((math.nan, math.inf, 1e38))) + content[at + 4 :]
    else:
        header["__metadata__"] = rng.choice(({}, {"format": "x"}, {"format": "stormpsr checkpoint 1"}, 3, None))
    text = json.dumps(header).encode()
    length = len(text) if rng.random() < 0.95 else rng.choice((0, 2**63, len(text) + 9, 100_000_001))
    return struct.pack("<Q", length) + text + content[8 + struct.unpack("<Q", content[:8])[0] :]


# ====================================================================== one input
@dataclasses.dataclass(frozen=True)
class Change:
    """What differs from the example: the content of a file, or something odd in its place."""

    name: str
    content: bytes | None = None
    odd: str = ""


def change_of(files: Files, names: Sequence[str], rng: random.Random) -> Change:
    name = rng.choice(names)
    if rng.random() < 0.015:
        odd = rng.choice(_KINDS_OF_ODD)
        return Change(name, odd=f"{odd}:{rng.choice(_ODD_NAMES)}" if odd in ("renamed", "beside") else odd)
    return Change(name, damaged(files[name], name, rng))


def apply(folder: Path, change: Change, files: Files) -> None:
    path = folder / change.name
    odd, _, new_name = change.odd.partition(":")
    new_name = new_name[: 255 - len(path.suffix)]  # no file can have a longer one
    if change.content is not None:
        path.write_bytes(change.content)
        return
    if odd == "beside":
        (path.parent / (new_name + path.suffix)).write_bytes(files[change.name])
        return
    path.unlink()
    if odd == "fifo":
        os.mkfifo(path)
    elif odd == "folder":
        path.mkdir()
    elif odd == "loop":
        path.symlink_to(path.name)
    elif odd == "dangling":
        path.symlink_to("nowhere")
    elif odd == "zero":
        path.symlink_to("/dev/zero")
    elif odd == "renamed":
        (path.parent / (new_name + path.suffix)).write_bytes(files[change.name])
    elif odd == "empty":
        path.write_bytes(b"")
    elif odd == "linked":
        (folder.with_name("real")).write_bytes(files[change.name])
        path.symlink_to("../" * len(Path(change.name).parts) + "real")


def restore(folder: Path, change: Change, files: Files) -> None:
    path = folder / change.name
    if change.odd:
        shutil.rmtree(folder)
        write_files(folder, files)
    else:
        path.write_bytes(files[change.name])


def write_files(folder: Path, files: Files) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def attempt(target: Target, folder: Path) -> str | None:
    """What is wrong with how a folder is read; None if nothing is. The first line tells failures apart."""
    began = seconds_of()

    def check_clock(*_: object) -> None:
        if seconds_of() - began > MOST_SECONDS:
            raise TooLongError

    signal.signal(signal.SIGALRM, check_clock)
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS, 1.0)
    try:
        found = target.read(folder)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if not target.nan:
            _check_finite(found)
    except StormPSRError as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        cause: BaseException | None = error
        seen: set[int] = set()
        while cause is not None and id(cause) not in seen:  # errors may name each other in a circle
            seen.add(id(cause))
            if isinstance(cause, MemoryError) or (cause is not error and _TOO_MUCH.search(str(cause))):
                # FFmpeg has a limit of its own, and says the same without asking the system for anything
                of_ffmpeg = type(cause).__module__.startswith("av.")
                if not of_ffmpeg or _takes_too_much(target, folder):
                    return f"more memory than there is: {error}"
            cause = cause.__cause__ or cause.__context__
        if "\n" in str(error) and isinstance(error, InputError) and "\n" in error.problem:
            return f"a complaint of several lines: {error!s:.300}"
    except TooLongError:
        return f"more than {MOST_SECONDS:g} s\n{traceback.format_exc()}"
    except (Exception, SystemExit) as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if "/stormpsr/" in frame.filename] or frames
        where = f"{own[-1].filename.rpartition('/stormpsr/')[2]}:{own[-1].lineno}"
        return f"{type(error).__name__} at {where}\n{str(error)[:300]}\n{traceback.format_exc()}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    left = [str(path) for path in folder.with_name("out").glob(".*.draft.*")]
    return f"half a file is left: {left}" if left else None


def _takes_too_much(target: Target, folder: Path) -> bool:
    """Whether reading asks for more than it may where nothing stops it; in a process whose own count begins anew."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(round(_STUCK_SECONDS / 2))
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        before = _most_bytes()
        with contextlib.suppress(BaseException):
            target.read(folder)
        os._exit(1 if _most_bytes() - before > MOST_BYTES else 0)
    return os.waitpid(child, 0)[1] != 0


def _most_bytes() -> int:
    """The largest size that this process ever had."""
    found = re.search(r"VmPeak:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    return 1024 * int(found[1]) if found else 0


def _check_finite(found: object, depth: int = 0) -> None:
    if isinstance(found, float) and not math.isfinite(found):
        raise WrongError(f"{found} was accepted")
    if depth > 12 or isinstance(found, str | bytes | int | float | Path) or found is None:
        return
    inside: Any = ()
    if isinstance(found, Mapping):
        inside = found.values()
    elif isinstance(found, list | tuple | set | frozenset):
        inside = found
    elif dataclasses.is_dataclass(found):
        inside = (getattr(found, field.name) for field in dataclasses.fields(found))
    for entry in inside:
        _check_finite(entry, depth + 1)


def shrunk(target: Target, folder: Path, change: Change, files: Files, failure: str) -> Change:
    """The smallest input that was found to fail in the same way: delta debugging by lines, then by bytes."""
    if change.content is None:
        return change
    best, tries, ends = change.content, 0, seconds_of() + _SHRINK_SECONDS
    same = failure.split("\n")[0]

    def fails(content: bytes) -> bool:
        (folder / change.name).write_bytes(content)
        return (attempt(target, folder) or "").split("\n")[0] == same

    for separator in (b"\n", b""):
        parts = best.split(separator) if separator else [best[i : i + 1] for i in range(len(best))]
        size = max(len(parts) // 2, 1)
        while tries < _SHRINKS and len(parts) > 1 and seconds_of() < ends:
            at, shorter = 0, False
            while at < len(parts) and tries < _SHRINKS and seconds_of() < ends:
                rest = parts[:at] + parts[at + size :]
                tries += 1
                if fails(separator.join(rest)):
                    parts, shorter = rest, True
                else:
                    at += size
            if size == 1 and not shorter:
                break
            size = max(size // 2, 1)
        best = separator.join(parts)
    return Change(change.name, best)


# ====================================================================== a process per reader
def work(
    target: Target, examples: Path, seed: int, first: int, count: int | None, seconds: float | None, board: Any
) -> None:
    """Read inputs one after the other, and tell what fails. The board says which one is being read."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.simplefilter("ignore")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries that complain for themselves
    files = read_files(examples)
    names = [name for name in files if re.search(target.only, name)]
    place = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    folder = place / "in"
    try:
        write_files(folder, files)
        with contextlib.suppress(Exception):
            target.read(folder)  # imports what the reader needs, which takes its time
        if (wrong := attempt(target, folder)) is not None:
            _tell(board, {"failure": f"the example itself: {wrong}", "index": -1, "change": "", "kept": ""})
            return
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, resource.RLIM_INFINITY))
        known: dict[str, int] = {}
        started, index = time.monotonic(), first
        while (count is None or index < first + count) and (seconds is None or time.monotonic() - started < seconds):
            board[0:8] = struct.pack("<q", index)
            change = change_of(files, names, random.Random(f"{seed}/{target.name}/{index}"))
            apply(folder, change, files)
            failure = attempt(target, folder)
            if failure is not None:
                kind = failure.split("\n")[0]
                known[kind] = known.get(kind, 0) + 1
                if known[kind] == 1:
                    small = shrunk(target, folder, change, files, failure)
                    kept = KEPT / f"{target.name.replace(' ', '-')}-{seed}-{index}"
                    shutil.rmtree(kept, ignore_errors=True)
                    write_files(kept, {**files, **({small.name: small.content} if small.content is not None else {})})
                    shown = f"{small.name}: {small.odd or repr((small.content or b'')[:200])}"
                    _tell(board, {"failure": failure, "index": index, "change": shown, "kept": str(kept)})
            restore(folder, change, files)
            index += 1
        _tell(board, {"done": index - first, "failures": known, "seconds": time.monotonic() - started})
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _tell(board: Any, message: Mapping[str, Any]) -> None:
    with _MESSAGES.open("a", encoding="utf-8") as file:
        file.write(json.dumps(message) + "\n")


@dataclasses.dataclass
class Outcome:
    """What became of a reader."""

    inputs: int = 0
    seconds: float = 0.0
    failures: dict[str, int] = dataclasses.field(default_factory=dict)


def run(target: Target, examples: Path, seed: int, first: int, count: int | None, seconds: float | None) -> Outcome:
    """Run one reader in processes of its own; one that crashes or hangs is replaced and goes on behind that input."""
    outcome = Outcome()
    while True:
        KEPT.mkdir(parents=True, exist_ok=True)
        _MESSAGES.write_text("")
        board = mmap.mmap(-1, 8)
        board[0:8] = struct.pack("<q", -1)
        left = None if seconds is None else seconds - outcome.seconds
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(target, examples, seed, first, count, left, board)
                code = 0
            except BaseException:
                _tell(
                    board, {"failure": f"the harness: {traceback.format_exc()}", "index": -1, "change": "", "kept": ""}
                )
            finally:
                os._exit(code)
        status = _watched(child, board)
        done = False
        told = _MESSAGES.read_text(encoding="utf-8").splitlines()
        _MESSAGES.unlink()
        for message in map(json.loads, told):
            if "done" in message:
                outcome.inputs += message["done"]
                outcome.seconds += message["seconds"]
                for kind, n in message["failures"].items():
                    outcome.failures[kind] = outcome.failures.get(kind, 0) + n
                done = True
            else:
                _print_failure(target, seed, message)
                if message["index"] < 0:
                    outcome.failures["no start"] = 1
                    done = True
        if done:
            return outcome
        (at,) = struct.unpack("<q", board[0:8])
        files = read_files(examples)
        names = [name for name in files if re.search(target.only, name)]
        change = change_of(files, names, random.Random(f"{seed}/{target.name}/{at}"))
        kept = KEPT / f"{target.name.replace(' ', '-')}-{seed}-{at}"
        write_files(kept, {**files, **({change.name: change.content} if change.content is not None else {})})
        what = f"crash or hang (status {status})"
        shown = f"{change.name}: {change.odd or repr((change.content or b'')[:200])}"
        _print_failure(target, seed, {"failure": what, "index": at, "change": shown, "kept": str(kept)})
        outcome.failures[what] = outcome.failures.get(what, 0) + 1
        outcome.inputs += at + 1 - first
        outcome.seconds += time.monotonic() - began
        if count is not None:
            count -= at + 1 - first
        first = at + 1
        if (count is not None and count <= 0) or (seconds is not None and outcome.seconds >= seconds) or at < 0:
            return outcome


def _watched(child: int, board: Any) -> int:
    """Wait for a process; end it if it stays with one input too long."""
    seen, since = b"", 0.0
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if board[0:8] != seen or seen == struct.pack("<q", -1):
            seen, since = board[0:8], seconds_of(child)
        elif seconds_of(child) - since > _STUCK_SECONDS:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        time.sleep(0.02)


def _print_failure(target: Target, seed: int, message: Mapping[str, Any]) -> None:
    print(f"\nFAILURE in {target.name!r}: {message['failure']}")
    if message["index"] >= 0:
        print(f"  smallest input: {message['change']}\n  kept in: {message['kept']}")
        again = f"--only '{target.name}' --seed {seed} --first {message['index']} --count 1"
        print(f"  again: python benchmarks/fuzz.py {again}", flush=True)


def make_examples(target: Target, place: Path) -> Path:
    """A valid example, made in a process of its own: this one stays light, because it is forked."""
    folder = place / target.name.replace(" ", "-")
    folder.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            warnings.simplefilter("ignore")
            target.make(folder)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"no example of {target.name!r} could be made")
    return folder


def outcomes(
    targets: Sequence[Target], *, seed: int, first: int = 0, count: int | None = None, seconds: float | None = None
) -> Iterator[tuple[Target, Outcome]]:
    """The readers one after the other."""
    total = sum(target.share for target in targets)
    with tempfile.TemporaryDirectory() as place:
        for target in targets:
            examples = make_examples(target, Path(place))
            own = None if seconds is None else seconds * target.share / total
            yield target, run(target, examples, seed, first, count, own)


def main(words: list[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--seconds", type=float, help="for all readers together")
    parser.add_argument("--count", type=int, help="inputs for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--only", action="append", default=[], metavar="READER", help="may be repeated")
    help_text = "imported once, before any reader's process starts: where few inputs are not worth a slow import each"
    parser.add_argument("--preload", action="append", default=[], metavar="MODULE", help=help_text)
    options = parser.parse_args(words)
    known = {target.name: target for target in TARGETS}
    if unknown := [name for name in options.only if name not in known]:
        parser.error(f"there is no reader {unknown[0]!r}; there are: {', '.join(known)}")
    if options.seconds is None and options.count is None:
        parser.error("give --seconds or --count")
    chosen = [known[name] for name in options.only] or list(TARGETS)
    for name in options.preload:
        importlib.import_module(name)
    sums = Outcome()
    rows = []
    for target, outcome in outcomes(
        chosen, seed=options.seed, first=options.first, count=options.count, seconds=options.seconds
    ):
        n = sum(outcome.failures.values())
        rows.append((target.name, f"{outcome.inputs:,}", f"{outcome.seconds:.1f}", str(n)))
        print(f"{target.name}: {outcome.inputs:,} inputs in {outcome.seconds:.1f} s, {n} failures", flush=True)
        sums.inputs, sums.seconds = sums.inputs + outcome.inputs, sums.seconds + outcome.seconds
        sums.failures[target.name] = n
    print()
    total = sum(sums.failures.values())
    rows.append(("all", f"{sums.inputs:,}", f"{sums.seconds:.1f}", str(total)))
    print_table(("reader", "inputs", "seconds", "failures"), rows)
    sys.exit(1 if total else 0)


if __name__ == "__main__":
    main()
