"""What docs/scaling.md counts with, besides what the networks take: reading a video, and what a cluster adds.

Processor time, not time on the wall: it says the same on a machine that does other things as well.

    python benchmarks/scaling.py --frames 200 --recordings 1000 --workers 2

Videos are noise that moves, in H.264 as cameras send it. The cluster is a scheduler and workers on this machine, and
its work is nothing at all; without the package `distributed` that part is left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from operator import is_
from pathlib import Path
from typing import Any

import numpy as np

from script import errors_in_one_line, make_parser, print_table
from stormpsr.cluster import Cluster, map_recordings
from stormpsr.data.sources import Video

SIZES = ((320, 320), (640, 480), (1280, 720), (1920, 1080))


def write_video(path: Path, width: int, height: int, n_frames: int) -> None:
    import av

    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 255, (height // 16 + 2, width // 16 + 2, 3)).astype(np.uint8)
    picture = np.kron(coarse, np.ones((16, 16, 1), dtype=np.uint8))
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.options = {"preset": "ultrafast"}
        for number in range(n_frames):
            shown = np.ascontiguousarray(np.roll(picture, 2 * number, axis=1)[:height, :width])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(shown, format="rgb24")))
        container.mux(stream.encode())


def video_rows(n_frames: int) -> Iterator[list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        for width, height in SIZES:
            path = Path(folder) / f"{width}.mp4"
            write_video(path, width, height, n_frames)
            began = time.process_time()
            read = sum(1 for _ in Video(path).frames())
            milliseconds = 1000 * (time.process_time() - began) / read
            yield [f"{width} x {height}", f"{milliseconds:.2f}", f"{1000 / milliseconds:.0f}"]


@contextmanager
def started(folder: Path, n_workers: int) -> Iterator[tuple[Path, list[Any]]]:
    """A scheduler file, and the processes of a scheduler and its workers."""
    import psutil
    from distributed import Client

    file = folder / "scheduler.json"
    common = ["--host", "127.0.0.1", "--scheduler-file", str(file), "--no-dashboard"]
    worker = ["dask_worker", "--no-nanny", "--nthreads", "1", "--local-directory", str(folder)]
    source = str(Path(__file__).resolve().parents[1] / "src")
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    processes = []
    try:
        for program, *words in (["dask_scheduler", "--port", "0"], *n_workers * [worker]):
            command = [sys.executable, "-m", f"distributed.cli.{program}", *common, *words]
            log = (folder / "log.txt").open("ab")
            processes.append(subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=log, stderr=log))
            log.close()
            while not file.is_file():
                time.sleep(0.05)
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(n_workers)
        yield file, [psutil.Process(process.pid) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def busy_seconds(processes: Sequence[Any]) -> list[float]:
    return [sum(process.cpu_times()[:2]) for process in processes]


def cluster_rows(n_recordings: int, n_workers: int) -> Iterator[list[str]]:
    with tempfile.TemporaryDirectory() as folder, started(Path(folder), n_workers) as (file, processes):
        list(map_recordings(is_, [("first", 0)], cluster=Cluster(str(file))))  # imports, and what is asked once
        before, began = busy_seconds(processes), time.process_time()
        items = [(f"recording {number}", number) for number in range(n_recordings)]
        list(map_recordings(is_, items, cluster=Cluster(str(file))))
        own = time.process_time() - began
        scheduler, *workers = (after - was for after, was in zip(busy_seconds(processes), before, strict=True))
    for name, seconds in (("where the command runs", own), ("scheduler", scheduler), ("all workers", sum(workers))):
        yield [name, f"{1000 * seconds / n_recordings:.2f}"]


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--frames", type=int, default=200, help="of each video")
    parser.add_argument("--recordings", type=int, default=1000, help="that the cluster does nothing with")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args(words)
    with errors_in_one_line():
        head = ["video", "milliseconds a frame", "frames/s and core"]
        print_table(head, video_rows(arguments.frames))
        if find_spec("distributed") is None:
            print("\nwithout 'distributed' no cluster is measured: pip install '.[cluster]'")
            return
        print()
        head = ["what a cluster adds", "milliseconds a recording"]
        print_table(head, cluster_rows(arguments.recordings, arguments.workers))


if __name__ == "__main__":
    main()
