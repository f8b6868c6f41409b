"""What an exported model costs beside the one it was made from, on the same frames, and whether it reports the same.

    python benchmarks/engines.py RECORDING MODEL [MODEL ...] [--frames 400] [--rounds 5] [--threads 1] [--out FILE]

The first model is what the others are compared with. Times are the processor's, not the clock's: other work on the
machine changes them little. Models take turns, so that what changes hits all of them; the median of the rounds counts.
A frame's time is split by what is done: reading the file, letterboxing, locating, both networks, decoding.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from script import Stopwatch, errors_in_one_line, make_parser, print_table
from stormpsr.data.layouts import RecordingFolder
from stormpsr.data.recording import Recording, open_recording
from stormpsr.data.sources import Frame
from stormpsr.files import write_json
from stormpsr.recognizer import networks
from stormpsr.recognizer.model_folder import RecognizerModel, load_model, resolve_model
from stormpsr.recognizer.recognizer import Recognizer

PARTS = ("read", "letterbox", "locate", "detect", "encode", "predict", "decode")


class Candidate:
    """A model, and what was measured of it."""

    def __init__(self, folder: str, threads: int) -> None:
        self.name = folder
        started = time.process_time()
        self.model: RecognizerModel = load_model(folder, device="cpu", threads=threads)
        self.load_seconds = time.process_time() - started
        files = [path for path in resolve_model(folder).rglob("*") if path.is_file()]
        self.megabytes = sum(path.stat().st_size for path in files) / 1e6
        self.rounds: list[dict[str, float]] = []  # milliseconds per frame
        self.per_call: dict[str, float] = {}
        self.events: list[tuple[int, int]] = []

    def watch(self, frames: list[Frame], read_seconds: float) -> None:
        """One round over all frames."""
        recognizer = Recognizer.of(self.model, variant=self.model.procedure.variant().name)
        for frame in frames[:8]:
            recognizer.update(frame)
        recognizer.reset()
        watch = Stopwatch(time.process_time)
        watch.wrap(recognizer._ticks, "update", "decode")
        own, stream = self.model.networks, self.model.networks.stream
        places: list[tuple[Any, str]] = [(networks, "letterbox"), (own, "detect"), (own, "encode"), (own, "predict")]
        places += [] if stream is None else [(stream, "locate")]
        kept = [(owner, method, getattr(owner, method)) for owner, method in places]
        for owner, method, _ in kept:
            watch.wrap(owner, method, method)
        started = time.process_time()
        events = [event for frame in frames for event in recognizer.update(frame)]
        total = time.process_time() - started
        for owner, method, original in kept:
            setattr(owner, method, original)
        self.events = [(event.step_id, event.frame) for event in events]
        spent = {**watch.seconds, "read": read_seconds * len(frames), "all": total}
        self.rounds.append({part: 1000 * spent.get(part, 0.0) / len(frames) for part in (*PARTS, "all")})
        self.per_call = {part: 1000 * watch.seconds[part] / max(watch.calls[part], 1) for part in watch.seconds}

    def milliseconds(self, part: str) -> float:
        return statistics.median(row[part] for row in self.rounds)


def read_frames(recording: Recording, n: int) -> tuple[list[Frame], float]:
    """Frames in memory, and the seconds that reading one takes."""
    started = time.process_time()
    frames = list(islice(recording.frames(), n))
    return frames, (time.process_time() - started) / len(frames)


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("recording", type=Path)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--frames", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args(words)
    with errors_in_one_line():
        candidates = [Candidate(folder, options.threads) for folder in options.models]
        first = candidates[0]
        place = RecordingFolder(options.recording.name, None, options.recording)
        frames, read_seconds = read_frames(open_recording(place, first.model.procedure), options.frames)
    for _ in range(options.rounds):
        for candidate in candidates:
            candidate.watch(frames, read_seconds)
    report: list[dict[str, Any]] = [
        {
            "model": each.name,
            "megabytes": each.megabytes,
            "load_seconds": each.load_seconds,
            "milliseconds_per_frame": {part: each.milliseconds(part) for part in (*PARTS, "all")},
            "milliseconds_per_call": each.per_call,
            "times_as_fast": first.milliseconds("all") / each.milliseconds("all"),
            "same_events": each.events == first.events,
            "n_events": len(each.events),
        }
        for each in candidates
    ]
    print_table(
        ["model", *(f"{part} (ms)" for part in (*PARTS, "all")), "times as fast", "MB", "events"],
        [
            [
                row["model"],
                *(f"{row['milliseconds_per_frame'][part]:.2f}" for part in (*PARTS, "all")),
                f"{row['times_as_fast']:.2f}",
                f"{row['megabytes']:.1f}",
                "the same" if row["same_events"] else "others",
            ]
            for row in report
        ],
    )
    if options.out:
        write_json(options.out, report)


if __name__ == "__main__":
    main()
