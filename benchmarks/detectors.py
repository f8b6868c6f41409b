"""Train several detectors on the same data, one after the other, and print a table of how they compare.

    python benchmarks/detectors.py data/vehicle --images data/vehicle_states --out runs/detectors

Each detector is trained with the same images, steps and seed, scored on the test split, and timed at one image at a
time. A step of YOLOX-nano and one of the compact detector take about the same time, so that equal steps are equal
minutes. What is there already is not trained again. YOLOX starts from random numbers, the compact detector's backbone
from ImageNet: that is how each of them can be had under a permissive licence without a download from a model hub. YOLOX
needs the extra `yolox`; `--only compact` leaves it out. YOLOv8-n is trained if `--only` names it: it needs ultralytics,
whose licence is the AGPL. A step of it takes longer, so give it fewer, in a call of its own. Where the processor has
instructions for it, half precision makes YOLOv8 more than twice as fast, and the compact detector no faster:

    python benchmarks/detectors.py data/vehicle --only YOLOv8-n --steps 300 --precision bf16-mixed --out runs/detectors
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from script import make_parser, print_table

CANDIDATES: dict[str, list[str]] = {
    "compact": ["--detector", "compact"],
    "compact, as shipped": ["--preset", "synthetic"],
    "compact, random weights": ["--detector", "compact", "--set", "weights=none"],
    "YOLOX-nano": ["--detector", "yolox", "--set", "size=n"],
    "YOLOX-tiny": ["--detector", "yolox", "--set", "size=t"],
    "YOLOv8-n": ["--detector", "yolov8", "--set", "model=yolov8n"],
}
PERMISSIVE = [name for name in CANDIDATES if not name.startswith("YOLOv8") and name != "compact, as shipped"]
COLUMNS = (
    "mAP@50",
    "mAP@50:95",
    "state right",
    "wrong parts",
    "false alarms",
    "fired obstructed",
    "processor minutes",
    "ms",
)


def stormpsr(*arguments: object) -> dict[str, Any]:
    """Run a command with `--json` and return what it says."""
    words = [sys.executable, "-m", "stormpsr", *(str(argument) for argument in arguments), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def measure(name: str, options: argparse.Namespace) -> list[str]:
    """Train a candidate if it is not there, score it, and return its row of the table."""
    folder = options.out / name.replace(", ", "_").replace(" ", "_")
    size = ["--set", f"image_size={options.image_size}"]
    threads = ["--threads", options.threads] if options.threads else []
    if not (folder / "metrics.json").is_file():
        images = [word for folder in options.images for word in ("--images", folder)]
        words = ["--steps", options.steps, "--seed", options.seed, *images, *size, *CANDIDATES[name], *threads]
        stormpsr("detect", "train", options.data, "--out", folder, "--precision", options.precision, *words)
    training = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["training"]
    minutes = training.get("processor_minutes", training["minutes"])
    scores = stormpsr("detect", "eval", folder, options.data, "--split", "test", "--every", options.every, *threads)
    wrong, silence = scores["wrong_parts"], scores["silence"] or {}
    figures = (
        scores["map50"],
        scores["map50_95"],
        scores["state_accuracy"],
        wrong["recall"],
        wrong["false_alarm_rate"],
        silence.get("fired_obstructed", scores["false_detections"]),
    )
    cells = ["–" if figure is None else f"{figure:.3f}" for figure in figures]
    return [name, *cells, f"{minutes:.1f}", f"{scores['milliseconds_per_frame']:.1f}"]


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--images", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--image-size", type=int, default=160)
    parser.add_argument("--every", type=int, default=1, help="score every so many frames only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", default="32-true", help="of training: 32-true or bf16-mixed")
    parser.add_argument("--threads", type=int, help="processor threads; default: all cores")
    parser.add_argument("--only", nargs="*", choices=list(CANDIDATES), default=PERMISSIVE)
    options = parser.parse_args(words)
    print_table(("detector", *COLUMNS), (measure(name, options) for name in options.only))


if __name__ == "__main__":
    main()
