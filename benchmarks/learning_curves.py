"""What pays: more recordings, more renders, more steps, or finer crops. Short trainings of the detector, one row each.

    python benchmarks/learning_curves.py data/vehicle --images data/walks-1 data/walks-2 data/walks-3 --out runs/curves

Every row changes one thing of the first one, which has as many recordings and crop pixels as the middle value of each
list, the first folder of images, and `--steps`. Rows train with the shipped detector's preset and the same seed. Single
parts are scored in validation frames (`stormpsr detect eval`): where more than three quarters of a part show, and where
40 to 75 % do; "wrong found" is the share of wrong parts that is found by whatever bar takes 1 % of correct ones for
wrong. Steps are those of B3, its threshold tuned on the validation recordings (`stormpsr detect steps`). What is there
already is not made again.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from detectors import stormpsr
from script import errors_in_one_line, make_parser, print_table
from stormpsr.data.layouts import SPLITS, find_recordings

COLUMNS = ("state right", "parts right", "wrong found", "parts right, 40 to 75 %", "wrong found, 40 to 75 %")
STEPS = ("POS", "F1", "tau (s)", "minutes", "ms per image")


@dataclass(frozen=True)
class Row:
    """A training."""

    name: str
    n_recordings: int
    images: tuple[Path, ...]
    steps: int
    crop: int


def rows_of(options: Namespace) -> Iterator[Row]:
    middle = sorted(options.recordings)[len(options.recordings) // 2]
    base = Row("base", middle, tuple(options.images[:1]), options.steps, sorted(options.crops)[len(options.crops) // 2])
    yield base
    for n in sorted(set(options.recordings) - {base.n_recordings}):
        yield replace(base, name=f"{n} recordings", n_recordings=n)
    if len(options.images) > 1:
        yield replace(base, name=f"{len(options.images)} times the renders", images=tuple(options.images))
    for times in options.longer:
        yield replace(base, name=f"{times} times the steps", steps=times * base.steps)
    for crop in sorted(set(options.crops) - {base.crop}):
        yield replace(base, name=f"crops of {crop} pixels", crop=crop)


def view_of(options: Namespace, n_recordings: int) -> Path:
    """A data set made of links, with so many training recordings."""
    folder: Path = options.out / "data" / str(n_recordings)
    most = {"train": n_recordings, "val": options.scored, "test": options.scored}
    for split in SPLITS:
        for recording in find_recordings(options.data, split)[: most[split]]:
            link = folder / "recordings" / split / recording.name
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(recording.path.resolve(), target_is_directory=True)
    return folder


def measure(row: Row, options: Namespace) -> list[str]:
    place, data = options.out / row.name.replace(" ", "_"), view_of(options, row.n_recordings)
    threads = ["--threads", options.threads] if options.threads else []
    if not (place / "detector" / "metrics.json").is_file():
        images = [word for folder in row.images for word in ("--images", folder)]
        words = [
            "--preset",
            "synthetic",
            "--set",
            f"crop_size={row.crop}",
            "--steps",
            row.steps,
            "--seed",
            options.seed,
        ]
        words += [*images, "--cache", options.out / "cache", "--out", place / "detector", *threads]
        stormpsr("detect", "train", data, *words)
    summary = place / "scores.json"
    if not summary.is_file():
        every = ["--every", options.every, *threads]
        for split in ("val", "test"):
            stormpsr("detect", "run", place / "detector", data, "--split", split, "--out", place / split, *every)
        steps = stormpsr("detect", "steps", data, "--val", place / "val", "--test", place / "test")
        found = stormpsr("detect", "eval", place / "detector", data, "--split", "val", *every)
        summary.write_text(json.dumps({"steps": steps, "detections": found}), encoding="utf-8")
    scores = json.loads(summary.read_text(encoding="utf-8"))
    training = json.loads((place / "detector" / "metrics.json").read_text(encoding="utf-8"))["training"]
    found, by_view = scores["detections"], {row["low"]: row for row in scores["detections"]["parts"]}
    b3 = next(one for one in scores["steps"]["rows"] if one["decoder"].startswith("B3"))
    parts = [cell for low in (0.75, 0.4) for cell in (_right(by_view[low]), by_view[low]["wrong_at_1_percent"])]
    figures = [found["state_accuracy"], *parts, b3["pos"], b3["f1"]]
    cells = ["–" if figure is None else f"{figure:.3f}" for figure in figures]
    delay = "–" if b3["delay_seconds"] is None else f"{b3['delay_seconds']:.1f}"
    return [row.name, *cells, delay, f"{training['processor_minutes']:.0f}", f"{found['milliseconds_per_frame']:.1f}"]


def _right(row: dict[str, float | None]) -> float | None:
    """Of absent and correct parts together, the share that is read so."""
    counted = [(row[f"n_{name}"], row[name]) for name in ("absent", "correct") if row[name] is not None]
    total = sum(n or 0 for n, _ in counted)
    return sum((n or 0) * (share or 0) for n, share in counted) / total if total else None


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--images", type=Path, nargs="+", default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recordings", type=int, nargs="+", default=[12, 24, 48])
    parser.add_argument("--crops", type=int, nargs="+", default=[112, 160, 208])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--longer", type=int, nargs="*", default=[3], help="so many times the steps")
    parser.add_argument("--scored", type=int, default=12, help="recordings of val and of test that are scored")
    parser.add_argument("--every", type=int, default=2, help="score every so many frames only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="processor threads; default: all cores")
    options = parser.parse_args(words)
    print_table(("row", *COLUMNS, *STEPS), (measure(row, options) for row in rows_of(options)))


if __name__ == "__main__":
    with errors_in_one_line():
        main()
