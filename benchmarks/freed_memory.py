"""What it costs to give freed memory back to the system, and get it again cleared, batch by batch.

    python benchmarks/freed_memory.py vehicle --threads 1

A detector looks at batches of random images, and learns from them, in a process that keeps what it frees
(`stormpsr.models.checkpoint.keep_freed_memory`) and in one that does not. Milliseconds of the processor per image, the
median of some batches; of these, what the system took for itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from script import make_parser, print_table

_PROGRAM = "import freed_memory, sys; freed_memory.measure(sys.argv[1], *map(int, sys.argv[2:]))"
Times = list[tuple[float, float]]  # of each batch: the program's, and the system's


def measure(model: str, batch: int, threads: int, rounds: int, keep: int) -> None:
    """Print the times of looking and learning, in this process."""
    import torch

    from stormpsr.data.places import N_POINTS
    from stormpsr.detectors.base import Batch, StepTrainedDetector
    from stormpsr.models.checkpoint import keep_freed_memory
    from stormpsr.recognizer.model_folder import load_model

    torch.set_num_threads(threads)
    if keep:
        keep_freed_memory()
    detector = load_model(model, device="cpu").networks.detector
    if not isinstance(detector, StepTrainedDetector):
        sys.exit("error: the model's detector is none that is trained here")
    side, n = detector.image_size, detector.procedure.n_components
    images_BSS3 = torch.randint(0, 255, (batch, side, side, 3), dtype=torch.uint8)
    corners_B4 = torch.tensor([[0.2, 0.2, 0.8, 0.8]]).repeat(batch, 1) * side
    yes_B, known_BC = torch.ones(batch, dtype=torch.bool), torch.ones(batch, n, dtype=torch.long)
    places_BCP2 = torch.full((batch, n, N_POINTS, 2), torch.nan)
    state_B = torch.ones(batch, dtype=torch.long)
    seen = Batch(images_BSS3, yes_B, ~yes_B, corners_B4, state_B, known_BC, known_BC, places_BCP2, 0)

    def look() -> None:
        with torch.inference_mode():
            detector.outputs(images_BSS3)

    def learn() -> None:
        detector.network.train()
        detector.network.zero_grad()
        torch.stack(list(detector.losses(seen).values())).sum().backward()

    found = {"look": list(_times(look, rounds))}
    detector.network.requires_grad_(True)
    print(json.dumps({**found, "learn": list(_times(learn, rounds))}))


def _times(work: Callable[[], None], rounds: int) -> Iterator[tuple[float, float]]:
    for number in range(rounds + 2):  # the first ones are slower
        before = os.times()
        work()
        after = os.times()
        if number >= 2:
            yield after.user - before.user, after.system - before.system


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("model", nargs="?", default="vehicle")
    parser.add_argument("--batch", type=int, default=64, help="images (default: 64)")
    parser.add_argument("--threads", type=int, default=1, help="processor threads (default: 1)")
    parser.add_argument("--rounds", type=int, default=8, help="batches (default: 8)")
    options = parser.parse_args(words)
    rows = []
    for keep, name in enumerate(("given back", "kept")):
        arguments = (options.model, options.batch, options.threads, options.rounds, keep)
        command = [sys.executable, "-c", _PROGRAM, *map(str, arguments)]
        path = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=path)
        if done.returncode:
            sys.exit(done.stderr)
        times: dict[str, Times] = json.loads(done.stdout)
        cells = [f"{_median(own, options.batch)}" for own in times.values()]
        rows.append((f"freed memory is {name}", *cells))
    print_table(("", "looking (ms an image)", "learning (ms an image)"), rows)


def _median(times: Times, batch: int) -> str:
    whole, system = (1000 * float(np.median(own)) / batch for own in ([sum(t) for t in times], [t[1] for t in times]))
    return f"{whole:.1f} ({system:.1f})"


if __name__ == "__main__":
    main()
