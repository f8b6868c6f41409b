"""The paper's networks on this machine: the way the published program runs them, and ours, on the same frames.

    python benchmarks/paper_size.py [--frames 40] [--threads 2] [--detector yolov8] [--out FILE]

ViT-S/16 at 224 pixels, a transformer of six layers over 64 of 256 frames, a YOLOv8-m at 640 pixels: their shapes with
random weights, on frames of noise, because only time is measured. The reference encodes every frame and runs both
networks in every frame, with torch. Then come, one upon the other: only frames that a window reads are encoded and the
temporal model runs at its own stride; the detector runs at most once a second; exported graphs run in ONNX Runtime, and
in OpenVINO where it is installed. Rounds of all ways take turns. Detectors that are not installed are left out
(--detector none leaves out any), and then the ratio is that of the other networks.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from script import errors_in_one_line, make_parser, print_table
from stormpsr.config import load_config
from stormpsr.data.sources import Frame
from stormpsr.detectors.registry import make_detector
from stormpsr.files import write_json
from stormpsr.models.checkpoint import save_checkpoint
from stormpsr.models.stream import build_stream
from stormpsr.procedure.model import Procedure
from stormpsr.recognizer.export import export_model
from stormpsr.recognizer.model_folder import load_model, pack_model
from stormpsr.recognizer.recognizer import Recognizer

PACKAGE_OF = {"yolov8": "ultralytics", "yolox": "libreyolo"}
LARGE: dict[str, dict[str, Any]] = {
    "yolov8": {"model": "yolov8m", "image_size": 640},
    "yolox": {"size": "m", "image_size": 640},
    "compact": {"weights": "none"},
}
HEIGHT, WIDTH = 720, 1280


@dataclass
class Way:
    """A way to run the networks, and the seconds that its rounds took per frame: by the clock, and of the processor."""

    name: str
    folder: Path
    temporal_stride: int
    detector_stride: int
    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    longest: list[float] = field(default_factory=list)
    recognizer: Recognizer | None = None

    def run(self, frames: Sequence[Frame], threads: int) -> None:
        if self.recognizer is None:
            strides = {"temporal_stride": self.temporal_stride, "detector_stride": self.detector_stride}
            self.recognizer = Recognizer.of(load_model(self.folder, device="cpu", threads=threads, **strides))
            self.recognizer.update(frames[0])  # the first frame pays for what is made once
        self.recognizer.reset()
        torch.set_num_threads(threads)
        times = [time.perf_counter()]
        used = time.process_time()
        for frame in frames:
            self.recognizer.update(frame)
            times.append(time.perf_counter())
        self.processor.append((time.process_time() - used) / len(frames))
        self.clock.append((times[-1] - times[0]) / len(frames))
        self.longest.append(float(np.diff(times).max()))


def write_model(folder: Path, options: Any) -> Path:
    """A model of the preset's shapes with random weights."""
    torch.manual_seed(0)
    config = load_config(options.preset, [*options.overrides, "encoder.weights=none"])
    procedure = Procedure.load(config.procedure or "industreal")
    stream = build_stream(config, procedure.n_components)
    save_checkpoint(folder / "stream", tensors=stream.state_dict(), config=config, procedure=procedure, metrics={})
    parts: dict[str, Path] = {"stream": folder / "stream"}
    if options.detector != "none":
        make_detector(options.detector, procedure, LARGE[options.detector]).save(folder / "detector")
        parts["detector"] = folder / "detector"
    return pack_model(folder / "model", **parts)


def ways_of(folder: Path, options: Any) -> list[Way]:
    model = write_model(folder, options)
    settings = load_model(model, device="cpu").settings
    fps = Procedure.load(model / "procedure.yaml").fps
    stride, second = settings.temporal_stride, max(round(fps), 1)
    ways = [
        Way("as published: every network in every frame", model, 1, 1),
        Way(f"+ only frames that windows read, temporal model every {stride}", model, stride, 1),
        Way("+ detector at most once a second", model, stride, second),
    ]
    for engine, package in (("onnx", "onnxruntime"), ("openvino", "openvino")):
        if find_spec(package):
            exported = export_model(model, folder / engine, engine=engine)  # type: ignore[arg-type]  # one of both
            ways.append(Way(f"+ exported, {engine}", exported.path, stride, second))
    return ways


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--frames", type=int, default=40, help="per round: four seconds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--preset", default="paper-industreal")
    parser.add_argument("--detector", choices=[*LARGE, "none"], default="yolov8")
    parser.add_argument("-o", dest="overrides", action="append", default=[], help="change a setting of the preset")
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args(words)
    package = PACKAGE_OF.get(options.detector)
    if package is not None and find_spec(package) is None:
        print(f"{package} is not installed: without a detector", flush=True)
        options.detector = "none"
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8) for _ in range(4)]
    frames = [Frame(images[k % 4], k, k / 10) for k in range(options.frames)]
    with errors_in_one_line(), TemporaryDirectory() as place:
        ways = ways_of(Path(place), options)
        for _ in range(options.rounds):
            for way in ways:
                way.run(frames, options.threads)
    first = statistics.median(ways[0].clock)
    rows = [
        {
            "way": way.name,
            "frames_per_second": 1 / statistics.median(way.clock),
            "processor_milliseconds": 1000 * statistics.median(way.processor),
            "longest_frame_milliseconds": 1000 * statistics.median(way.longest),
            "times_as_fast": first / statistics.median(way.clock),
            "times_as_little_processor": statistics.median(ways[0].processor) / statistics.median(way.processor),
        }
        for way in ways
    ]
    head = ["way", "frames/s", "times as fast", "processor (ms a frame)", "times as little", "longest frame (ms)"]
    keys = list(rows[0])
    order = [keys[0], keys[1], keys[4], keys[2], keys[5], keys[3]]
    print_table(head, [[str(row["way"]), *(f"{row[key]:.1f}" for key in order[1:])] for row in rows])
    if options.out:
        write_json(options.out, {"detector": options.detector, "threads": options.threads, "ways": rows})


if __name__ == "__main__":
    main()
