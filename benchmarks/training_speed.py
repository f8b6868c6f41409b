"""How fast the stages train, and whether reading batches holds them up.

For each stage: images or clips per second in the real training loop, the same with one batch repeated, and the peak
memory of the process so far. Reading is no bottleneck where the two rates are close. Both are measured in turns, and
the best of each counts: whatever else the machine does makes them slower, never faster.

    python benchmarks/training_speed.py data/vehicle --preset synthetic --steps 20 [-o key=value]

Nothing is kept but --cache, if it is given: decoded frames, which training can use.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from named_run import NamedRun
from script import add_override, errors_in_one_line, make_parser, print_table
from stormpsr.config import load_config
from stormpsr.files import write_json
from stormpsr.training.data import Clips, KeyFrameImages, load_renders, load_training_data
from stormpsr.training.fit import FitOptions
from stormpsr.training.stages import StageName, stages_of, train_encoder, train_joint, train_locator, train_temporal
from stormpsr.training.tasks.locator import BoxedImages

from lightning.pytorch import Callback, LightningModule, Trainer  # isort: skip  # after stormpsr.training

DATASETS: dict[StageName, type] = {
    "locator": BoxedImages,
    "encoder": KeyFrameImages,
    "temporal": Clips,
    "joint": Clips,
}


class Clock(Callback):
    """Items per second from the end of the first step to the end of the last."""

    def __init__(self) -> None:
        self.begin, self.end, self.n_items = 0.0, 0.0, 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.end = time.perf_counter()
        if not self.begin:  # the first is slower
            self.begin = self.end
        else:
            self.n_items += len(batch[0])

    @property
    def items_per_second(self) -> float:
        return self.n_items / (self.end - self.begin)


@contextmanager
def one_batch_repeated(dataset: Any) -> Iterator[None]:
    """Every batch of a kind is the first one, and takes no time."""
    original: Callable[[Any, int], Any] = dataset.__getitem__
    kept: list[Any] = []

    def first(self: Any, number: int) -> Any:
        if not kept:
            kept.append(original(self, 0))
        return kept[0]

    own = "__getitem__" in vars(dataset)
    dataset.__getitem__ = first
    try:
        yield
    finally:
        if own:
            dataset.__getitem__ = original
        else:
            del dataset.__getitem__  # what it inherits comes back


def train(run: NamedRun, stage: StageName, before: Path | None) -> tuple[Path, float]:
    """Train a stage; its checkpoint, and items per second."""
    clock = Clock()
    timed = replace(run, options=replace(run.options, callbacks=(clock,)))
    if stage == "locator":
        folder = train_locator(timed)
    elif stage == "encoder":
        folder = train_encoder(timed, before)
    elif before is None:
        raise ValueError(f"{stage} needs the stage before it")
    else:
        folder = (train_temporal if stage == "temporal" else train_joint)(timed, before)
    return folder, clock.items_per_second


def measure(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    stages: tuple[StageName, ...] = ("locator", "encoder", "temporal", "joint")
    short = [
        f"train_{stage}.{what}" for stage in stages for what in ("epochs=1", f"batches_per_epoch={options.steps + 1}")
    ]
    config = load_config(options.preset, [*options.overrides, *short, "train_encoder.select_by=loss"])
    data = load_training_data(options.data, config)
    data = replace(data, train=data.train[: options.recordings], val=data.val[:2])
    renders = load_renders(options.renders, data.procedure) if options.renders else None
    cache = options.cache or folder / "cache"
    fit_options = FitOptions(device="cpu", workers=options.workers)
    run = NamedRun(config, data, folder, renders=renders, options=fit_options, cache_folder=cache)
    print(f"{torch.get_num_threads()} threads, {config.name}, {len(data.train)} recordings", file=sys.stderr)
    rows: list[dict[str, Any]] = []
    before: Path | None = None
    for stage in stages_of(config):
        real, repeated, checkpoint = [], [], None
        for turn in range(options.rounds):
            checkpoint, rate = train(replace(run, name=f"real-{turn}"), stage, before)
            real.append(rate)
            with one_batch_repeated(DATASETS[stage]):
                repeated.append(train(replace(run, name=f"repeated-{turn}"), stage, before)[1])
        before = checkpoint
        rows.append(
            {
                "stage": stage,
                "items": "clips" if stage in ("temporal", "joint") else "images",
                "per_second": max(real),
                "per_second_repeated": max(repeated),
                "share": max(real) / max(repeated),
                "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
        print(f"{stage}: {max(real):.1f} {rows[-1]['items']}/s", file=sys.stderr, flush=True)
    return rows


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--preset", default="synthetic")
    parser.add_argument("--steps", type=int, default=20, help="timed steps per stage and turn")
    parser.add_argument("--rounds", type=int, default=2, help="turns of real and repeated batches")
    parser.add_argument("--recordings", type=int, default=10, help="training recordings to take")
    parser.add_argument("--renders", type=Path, action="append", default=[])
    parser.add_argument("--cache", type=Path, help="folder of decoded frames; default: thrown away")
    parser.add_argument("--workers", type=int, default=0, help="processes that read batches")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, help="JSON file")
    add_override(parser)
    options = parser.parse_args(words)
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder, errors_in_one_line():
        rows = measure(options, Path(folder))
    cells = [
        (
            row["stage"],
            f"{row['per_second']:.1f} {row['items']}",
            f"{row['per_second_repeated']:.1f}",
            f"{row['share']:.0%}",
            f"{row['peak_memory_mb']:.0f}",
        )
        for row in rows
    ]
    print_table(("stage", "per second", "one batch repeated", "share", "peak memory (MB)"), cells)
    if options.out is not None:
        write_json(options.out, rows)


if __name__ == "__main__":
    main()
