"""The paper's networks on this machine: the way the published program runs them, and ours, on the same frames.

    python benchmarks/paper_size.py [--frames 40] [--rounds 3] [--threads 1] [--gate-share 0.5] [--out FILE]

ViT-S/16 at 224 pixels, a transformer of six layers over 64 of 256 frames, a detector at 640 pixels: their shapes with
random weights, on frames of noise, because only time is measured. The detector is YOLOv8-m if ultralytics (AGPL) is
installed, else YOLOX-m of libreyolo, which costs about as much (74 against 79 GFLOPs); without both it is left out, and
the ratio is that of the other networks.

The reference encodes every frame once and runs both networks in every frame, with torch. Then come, one upon the other:
only frames that a window reads are encoded, and the temporal model runs at its own stride; the detector looks at most
every --detector-seconds; a gate on the encoder's word lets such a share of these looks through (random weights know no
clear views, so the share is given: take it from `stormpsr model gate`); exported graphs run in ONNX Runtime, in 8 bits
as well, and in OpenVINO where it is installed. With two threads or more, the last ones once more with the two streams
side by side, each with half of them (the gate then waits for nothing: it is left out). Rounds of all ways take turns.

Nothing of the temporal model can be kept from one window to the next: it adds a frame's place in the window to its
embedding before the first layer, and every frame moves one place on.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from script import Stopwatch, add_override, errors_in_one_line, make_parser, print_table
from stormpsr.config import load_config
from stormpsr.data.images import letterbox
from stormpsr.data.sources import Frame
from stormpsr.detectors.registry import make_detector
from stormpsr.files import write_json
from stormpsr.models.checkpoint import save_checkpoint
from stormpsr.models.stream import build_stream
from stormpsr.procedure.model import Procedure
from stormpsr.recognizer.export import export_model
from stormpsr.recognizer.gate import Gate
from stormpsr.recognizer.model_folder import RecognizerModel, load_model, load_settings, pack_model, save_settings
from stormpsr.recognizer.networks import Networks, View
from stormpsr.recognizer.recognizer import Recognizer
from stormpsr.runtime.exported import DETECTOR_GRAPH, ENCODER_GRAPH
from stormpsr.runtime.graphs import GraphsInfo
from stormpsr.runtime.quantise import quantise

PACKAGE_OF = {"yolov8": "ultralytics", "yolox": "libreyolo"}
LARGE: dict[str, dict[str, Any]] = {
    "yolov8": {"model": "yolov8m", "image_size": 640},
    "yolox": {"size": "m", "image_size": 640},
    "compact": {"weights": "none"},
}
ENGINES = ("onnx", "int8", "openvino")
HEIGHT, WIDTH = 720, 1280
STAGES = ("detect", "encode", "predict")
Update = Callable[[Frame], object]
Prepare = Callable[[], None]


@dataclass
class Way:
    """A way to run the networks, and what its rounds took, in seconds."""

    name: str
    folder: Path
    temporal_stride: int
    detector_stride: int
    gate: float = 0.0
    is_split: bool = False  # the two streams side by side
    prepare: Prepare | None = None  # makes the folder
    clock: list[float] = field(default_factory=list)  # per frame
    processor: list[float] = field(default_factory=list)
    middle: list[float] = field(default_factory=list)  # of single frames
    longest: list[float] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)  # of one call, in milliseconds of the processor
    _model: RecognizerModel | None = None

    def load(self, threads: int) -> RecognizerModel:
        if self._model is None:
            if self.prepare is not None:
                self.prepare()
            each = max(threads // 2, 1) if self.is_split else threads
            own = load_settings(self.folder / "recognizer.yaml")
            save_settings(self.folder / "recognizer.yaml", replace(own, detector_gate=self.gate))
            strides = {"temporal_stride": self.temporal_stride, "detector_stride": self.detector_stride}
            self._model = load_model(self.folder, device="cpu", threads=each, **strides)
            side_by_side(self._model.networks)(Frame(np.zeros((64, 64, 3), np.uint8), 0, 0.0))  # what is made once
        return self._model

    def run(self, frames: Sequence[Frame], threads: int) -> None:
        model = self.load(threads)
        torch.set_num_threads(threads)
        watch = Stopwatch(time.process_time)
        kept = {name: getattr(model.networks, name) for name in STAGES}
        for name in () if self.is_split else STAGES:  # a stopwatch follows one thread alone
            watch.wrap(model.networks, name, name)
        update: Update = side_by_side(model.networks) if self.is_split else Recognizer.of(model).update
        times, used = [time.perf_counter()], time.process_time()
        for frame in frames:
            update(frame)
            times.append(time.perf_counter())
        self.processor.append((time.process_time() - used) / len(frames))
        self.clock.append((times[-1] - times[0]) / len(frames))
        self.middle.append(float(np.median(np.diff(times))))
        self.longest.append(float(np.diff(times).max()))
        self.stages = {name: 1000 * watch.seconds[name] / watch.calls[name] for name in STAGES if watch.calls[name]}
        for name, method in kept.items():
            setattr(model.networks, name, method)


def side_by_side(networks: Networks) -> Update:
    """Both streams of a frame at the same time, each in a thread of its own."""
    schedule, ring, pool = networks.schedule(), networks.ring(), ThreadPoolExecutor(1)

    def update(frame: Frame) -> None:
        due = schedule.next(frame.time_seconds)
        assert due is not None
        view = View(frame.image, frame.index)
        look = pool.submit(networks.detect, [view], [due.tick]) if due.detect else None
        if due.encode:
            ring.put(due.slot, networks.encode([View(frame.image, frame.index)])[0])
        if due.predict:
            embedding_ND, known_N = ring.window(due.slot)
            networks.predict(embedding_ND[None], known_N[None])
        if look is not None:
            look.result()

    return update


def write_model(folder: Path, options: Any, frames: Sequence[Frame]) -> tuple[Path, float]:
    """A model of the preset's shapes with random weights, and from what probability on its gate opens."""
    torch.manual_seed(0)
    config = load_config(options.preset, [*options.overrides, "encoder.weights=none"])
    procedure = Procedure.load(config.procedure or "industreal")
    stream = build_stream(config, procedure.n_components)
    save_checkpoint(folder / "stream", tensors=stream.state_dict(), config=config, procedure=procedure, metrics={})
    parts: dict[str, Path] = {"stream": folder / "stream"}
    if options.detector != "none":
        make_detector(options.detector, procedure, LARGE[options.detector]).save(folder / "detector")
        parts["detector"] = folder / "detector"
    model = pack_model(folder / "model", **parts)
    networks = load_model(model, device="cpu").networks
    weights = np.random.default_rng(0).normal(size=config.encoder.embedding_dim)
    said = np.array([networks.encode([View(frame.image)])[0].astype(np.float64) @ weights for frame in frames])
    weights /= max(float(said.std()), 1e-9)  # untrained networks say almost the same of all images
    edge = float(np.quantile(said, 1 - options.gate_share)) / max(float(said.std()), 1e-9)
    gate = Gate(tuple(weights.tolist()), -edge)  # 0.5 lets the share through
    gate.save(model)
    return model, 0.5


def ways_of(folder: Path, options: Any, images: Sequence[Frame]) -> list[Way]:
    model, gate = write_model(folder, options, images)
    settings = load_model(model, device="cpu").settings
    fps = Procedure.load(model / "procedure.yaml").fps
    stride, rare = settings.temporal_stride, max(round(options.detector_seconds * fps), 1)
    seconds = f"{options.detector_seconds:g} s"
    ways = [
        Way("as published: every network in every frame", model, 1, 1),
        Way(f"+ only frames that windows read, temporal model every {stride}", model, stride, 1),
    ]
    gates = 0.0
    if options.detector != "none":
        gated = Path(shutil.copytree(model, folder / "gated"))
        ways.append(Way(f"+ detector at most every {seconds}", model, stride, rare))
        ways.append(Way(f"+ a gate that lets {options.gate_share:.0%} through", gated, stride, rare, gate))
        gates = gate
    for name, out, prepare in exported(model, folder, options, images):
        ways.append(Way(f"the same, exported: {name}", out, stride, rare, gates, prepare=prepare))
        if options.threads > 1 and options.detector != "none":
            ways.append(Way(f"{name}, without the gate", out, stride, rare))
            ways.append(Way(f"{name}, without the gate, streams side by side", out, stride, rare, is_split=True))
    return ways


def exported(model: Path, folder: Path, options: Any, images: Sequence[Frame]) -> list[tuple[str, Path, Prepare]]:
    """The model as each engine runs it: a name, its folder, and what makes the folder. Graphs are made once for all."""
    graphs = folder / "onnx"

    def export() -> None:
        if not graphs.is_dir():
            print("exporting", flush=True)
            export_model(model, graphs)

    def change(name: str) -> None:
        export()
        shutil.copytree(graphs, folder / name)
        for part in (path.parent for path in (folder / name).glob("*/graphs.json")):
            info = GraphsInfo.load(part)
            if name == "openvino":
                replace(info, engine="openvino").save(part)
                continue
            graph = ENCODER_GRAPH if part.name == "stream" else DETECTOR_GRAPH
            quantise(part, graph, info, np.stack([letterbox(frame.image, info.image_size)[0] for frame in images[:2]]))

    titles = {"onnx": "ONNX Runtime", "int8": "ONNX Runtime, 8 bits", "openvino": "OpenVINO"}
    package = {"onnx": "onnxruntime", "int8": "onnxruntime", "openvino": "openvino"}
    there = [name for name in options.engines if find_spec(package[name])]
    return [(titles[name], folder / name, export if name == "onnx" else partial(change, name)) for name in there]


def chosen_detector(wanted: str | None) -> str:
    """The paper's own where it is installed, else one of equal cost."""
    there = [name for name, package in PACKAGE_OF.items() if find_spec(package)]
    if wanted is None:
        wanted = there[0] if there else "none"
    elif wanted in PACKAGE_OF and wanted not in there:
        print(f"{PACKAGE_OF[wanted]} is not installed: without a detector", flush=True)
        wanted = "none"
    return wanted


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--frames", type=int, default=40, help="per round, at 10 a second")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--preset", default="paper-industreal")
    parser.add_argument("--detector", choices=[*LARGE, "none"], help="the paper's if it is installed")
    parser.add_argument("--detector-seconds", type=float, default=1.0, help="from one look to the next")
    parser.add_argument("--gate-share", type=float, default=0.5, help="of looks that the gate lets through")
    parser.add_argument("--engines", choices=ENGINES, nargs="*", default=ENGINES, help="of exported graphs")
    add_override(parser)
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args(words)
    options.detector = chosen_detector(options.detector)
    print(f"detector: {json.dumps({options.detector: LARGE.get(options.detector)})}", flush=True)
    rng = np.random.default_rng(0)
    # each of its own, and of its own brightness: the gate must be able to tell them apart
    images = [rng.integers(0, 64 + 24 * k, (HEIGHT, WIDTH, 3), dtype=np.uint8) for k in range(8)]
    frames = [Frame(images[k // 10 % 8], k, k / 10) for k in range(options.frames)]
    with errors_in_one_line(), TemporaryDirectory() as place:
        looked_at = [Frame(image, k, k / 10) for k, image in enumerate(images[: -(-options.frames // 10)])]
        ways = ways_of(Path(place), options, looked_at)
        for number in range(options.rounds):
            for way in ways:
                way.run(frames, options.threads)
                used = f"{1000 * way.processor[-1]:.1f} ms of the processor a frame {way.stages}"
                print(f"round {number + 1} of {options.rounds}, {way.name}: {used}", flush=True)
    middle = statistics.median
    rows = [
        {
            "way": way.name,
            "frames_per_second": 1 / middle(way.clock),
            "times_as_fast": middle(ways[0].clock) / middle(way.clock),
            "processor_milliseconds": 1000 * middle(way.processor),
            "times_as_little_processor": middle(ways[0].processor) / middle(way.processor),
            "middle_frame_milliseconds": 1000 * middle(way.middle),
            "longest_frame_milliseconds": 1000 * middle(way.longest),
        }
        for way in ways
    ]
    head = ["way", "frames/s", "times as fast", "processor (ms a frame)", "times as little"]
    head += ["middle frame (ms)", "longest frame (ms)"]
    print_table(head, [[str(row["way"]), *(f"{row[key]:.1f}" for key in list(row)[1:])] for row in rows])
    print()
    split = [[way.name, *(f"{way.stages.get(name, np.nan):.0f}" for name in STAGES)] for way in ways if way.stages]
    print_table(["one run of a network, processor ms", *STAGES], split)
    if options.out:
        write_json(options.out, {"detector": options.detector, "threads": options.threads, "ways": rows})


if __name__ == "__main__":
    main()
