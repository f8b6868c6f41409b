"""The annotator: from a key to the frame on the screen, and how many keys it takes to label a recording.

    python benchmarks/annotating.py video LONG --minutes 60   # a recording of 1080p to measure with
    python benchmarks/annotating.py latency RECORDING [--moves 100]
    python benchmarks/annotating.py keys RECORDING [--model vehicle]

latency: in a real browser (chromium) against the real server, for each way of moving: milliseconds from the key to the
animation frame after the image was drawn. Stepping goes on as soon as the last image is there, as with a held key.
keys: a scripted person who knows the labels makes them from nothing with as few keys as can be: by arrows, shift and
arrows, or the number of a frame; and once more by going through a model's proposals, each put right and accepted, or
rejected. In the end the label files must be those that were there. What is counted are keys, not looking.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import socket
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from script import errors_in_one_line, make_parser, print_table
from stormpsr.annotate.api import Annotator, annotator_app
from stormpsr.annotate.proposals import ModelProposer, Proposals, StepProposal
from stormpsr.annotate.session import Session
from stormpsr.cli.options import cache_folder
from stormpsr.data.dataset import PROCEDURE_FILE, Dataset
from stormpsr.data.labels import LABEL_FILES, StateTimeline, read_states
from stormpsr.data.layouts import RecordingFolder
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.web.security import Access
from stormpsr.web.server import make_server

_FAR_SECONDS = 40  # a proposal that is further off is another step


# ---------------------------------------------------------------------- a long video
def make_video(folder: Path, minutes: float, fps: int = 30, gop: int = 250) -> int:
    """A recording of 1920 x 1080 in H.264: twenty seconds are encoded once, and repeated."""
    import av

    folder.mkdir(parents=True)
    n_clip = 20 * fps
    rng = np.random.default_rng(0)
    rough = rng.integers(0, 256, (68, 121, 3), dtype=np.uint8)
    texture = np.kron(rough, np.ones((32, 32, 1), dtype=np.uint8))
    clip = folder / "clip.mp4"
    with av.open(str(clip), "w") as container:
        stream: Any = container.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = 1920, 1080, "yuv420p"
        stream.options = {"preset": "veryfast", "crf": "23", "g": str(gop)}
        for number in range(n_clip):
            x, y = round(900 + 800 * math.sin(number / 90)), round(500 + 400 * math.cos(number / 70))
            image = np.ascontiguousarray(texture[y : y + 1080, x : x + 1920])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    repeats = max(round(minutes * 60 / 20), 1)
    with av.open(str(folder / "rgb.mp4"), "w") as output:
        into: Any = None
        for turn in range(repeats):
            with av.open(str(clip)) as source:
                track = source.streams.video[0]
                into = into or output.add_stream_from_template(track)
                shift = round(turn * n_clip / fps / track.time_base)
                for packet in source.demux(track):
                    if packet.dts is not None:
                        packet.pts, packet.dts = packet.pts + shift, packet.dts + shift
                        packet.stream = into
                        output.mux(packet)
    clip.unlink()
    n_frames = n_clip * repeats
    (folder / "recording.json").write_text(json.dumps({"fps": float(fps), "n_frames": n_frames}))
    Procedure.load("industreal").save(folder / PROCEDURE_FILE)
    return n_frames


# ---------------------------------------------------------------------- from a key to the screen
@contextmanager
def served(root: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    annotator = Annotator(root, Dataset.open(root).procedure)
    server = make_server(annotator_app(annotator, Access()), "127.0.0.1", port)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(timeout=20)


_PRESS = """async ([key, shift, frame]) => {
  const shown = () => Number(document.body.dataset.frame);
  const before = shown();
  const done = new Promise((resolve) => {
    const watch = new MutationObserver(() => {
      if (shown() !== before) { watch.disconnect(); requestAnimationFrame(() => resolve(performance.now())); }
    });
    watch.observe(document.body, {attributes: true, attributeFilter: ["data-frame"]});
  });
  let began;
  if (frame === null) {
    began = performance.now();
    document.dispatchEvent(new KeyboardEvent("keydown", {key, shiftKey: shift, bubbles: true, cancelable: true}));
  } else {
    document.dispatchEvent(new KeyboardEvent("keydown", {key: "g", bubbles: true, cancelable: true}));
    document.querySelector("#goto-frame").value = String(frame);
    began = performance.now();
    document.querySelector("#goto-form").requestSubmit();
  }
  const ended = await done;
  return [ended - began, shown()];
}"""


def measure_latency(recording: Path, moves: int) -> Iterator[tuple[str, list[float]]]:
    """Milliseconds of every move, for one way of moving after the other."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise InputError("there is no chromium", cure="apt-get install chromium")
    with TemporaryDirectory() as scratch, sync_playwright() as playwright:
        root = Path(scratch)
        copy = root / "recordings" / recording.name
        copy.mkdir(parents=True)
        for entry in recording.iterdir():
            (copy / entry.name).symlink_to(entry.resolve())
        shutil.copy(recording / PROCEDURE_FILE, root / PROCEDURE_FILE)
        with served(root) as url:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            about = f"{url}/api/recordings/recordings/{recording.name}/about"
            page = browser.new_page(viewport={"width": 1920, "height": 1080})
            page.set_default_timeout(600_000)
            page.goto(f"{url}/recordings/recordings/{recording.name}", wait_until="commit")
            page.locator("body:not(.loading)").wait_for()
            numbers = page.evaluate("async (url) => (await (await fetch(url)).json()).numbers", about)
            if isinstance(numbers, dict):
                numbers = [numbers["first"] + place * numbers["step"] for place in range(numbers["count"])]
            rng = random.Random(1)
            press = lambda key, shift=False, frame=None: page.evaluate(_PRESS, [key, shift, frame])  # noqa: E731
            for name, key, shift, step in (
                ("a frame on", "ArrowRight", False, 1),
                ("a frame back", "ArrowLeft", False, -1),
                ("ten frames on", "ArrowRight", True, 10),
            ):
                n = min(moves, (len(numbers) - 2) // abs(step))  # in the last frame nothing moves
                first = (len(numbers) - 1 - n * step) // 2
                if page.evaluate("Number(document.body.dataset.frame)") != numbers[first]:
                    press("", frame=numbers[first])
                yield name, [press(key, shift)[0] for _ in range(n)]
            places = rng.sample(numbers, min(moves + 1, len(numbers)))
            press("", frame=places[0])
            yield "to any frame", [press("", frame=place)[0] for place in places[1:]]
            browser.close()


# ---------------------------------------------------------------------- keys
def keys_to_move(frm: int, to: int) -> int:
    """Arrows by one and by ten, forward and back, or the number of the frame."""
    distance = abs(to - frm)
    tens = distance // 10
    by_arrows = min(tens + distance % 10, tens + 1 + 10 - distance % 10)
    return min(by_arrows, 2 + len(str(to)))


def keys_of(old: int, new: int) -> int:
    order = (0, 1, -1)
    return (order.index(new) - order.index(old)) % 3


class Person:
    """Makes labels that are known, and counts keys."""

    def __init__(self, session: Session, truth: StateTimeline) -> None:
        self.session, self.truth = session, truth
        self.at = self.n_keys = 0

    def move(self, frame: int) -> None:
        self.n_keys += keys_to_move(self.at, frame)
        self.at = frame

    def do(self, what: str, proposals: Proposals | None = None, **values: Any) -> None:
        session = self.session
        session.change({"revision": session.revision, "do": what, "frame": self.at, **values}, proposals)
        self.n_keys += 1

    def wanted(self) -> list[tuple[int, int, int]]:
        """(frame, component, value) of every change that is true."""
        pairs = zip(self.truth.states, self.truth.frames[1:], self.truth.states[1:], strict=False)
        return [
            (frame, k, after[k]) for before, frame, after in pairs for k in range(len(after)) if before[k] != after[k]
        ]

    def label_the_rest(self) -> None:
        """By keys alone, in order of time."""
        for frame, k, value in self.wanted():
            here = self.session.document.timeline.at(frame)[k]
            if here != value:
                self.move(frame)
                for _ in range(keys_of(here, value)):
                    self.do("set", component=k)

    def go_through(self, proposals: Proposals, fps: float) -> tuple[int, int]:
        """Each proposal in order of time: accepted in the true frame, or rejected. How many of each."""
        left, n_accepted, n_rejected = self.wanted(), 0, 0
        for step in sorted(proposals.steps, key=lambda step: (step.frame, step.id)):
            if self.session.document.timeline.at(step.frame)[step.component] == step.value:
                continue  # the labels agree already: the page does not stop there
            self.n_keys += 1  # n
            self.at = step.frame
            true = self._meant(step, left, fps)
            if true is None:
                self.do("reject", proposals, proposal=step.id)
                n_rejected += 1
            else:
                left.remove(true)
                self.move(true[0])
                self.do("accept", proposals, proposal=step.id)
                n_accepted += 1
        return n_accepted, n_rejected

    @staticmethod
    def _meant(step: StepProposal, left: list[tuple[int, int, int]], fps: float) -> tuple[int, int, int] | None:
        near = [true for true in left if true[1:] == (step.component, step.value)]
        near = [true for true in near if abs(true[0] - step.frame) <= _FAR_SECONDS * fps]
        return min(near, key=lambda true: abs(true[0] - step.frame), default=None)


def count_keys(recording: Path, model: str | None) -> dict[str, Any]:
    procedure = Procedure.load(recording / PROCEDURE_FILE)
    truth = read_states(recording / LABEL_FILES[-1], procedure)

    def label(proposals: Proposals | None, fps: float) -> tuple[int, tuple[int, int]]:
        with TemporaryDirectory() as scratch:
            copy = Path(scratch) / recording.name
            copy.mkdir()
            for name in ("rgb", "rgb.mp4", "recording.json"):
                if (recording / name).exists():
                    (copy / name).symlink_to((recording / name).resolve())
            person = Person(Session(RecordingFolder(copy.name, None, copy), procedure), truth)
            settled = (0, 0) if proposals is None else person.go_through(proposals, fps)
            person.label_the_rest()
            person.do("finish")
            for name in LABEL_FILES:
                if (copy / name).read_bytes() != (recording / name).read_bytes():
                    raise InputError("the labels that were made are others", path=recording / name)
            return person.n_keys, settled

    opened = Session(RecordingFolder(recording.name, None, recording), procedure).recording
    found: dict[str, Any] = {"frames": opened.n_frames, "changes": len(Person(None, truth).wanted())}  # type: ignore[arg-type]
    found["keys"], _ = label(None, opened.fps)
    if model is not None:
        from stormpsr.recognizer.model_folder import load_model

        proposer = ModelProposer(load_model(model, threads=1), cache_folder(None))
        proposals = proposer.propose(opened, lambda done, of: None)
        found["keys with proposals"], (found["accepted"], found["rejected"]) = label(proposals, opened.fps)
    return found


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("what", choices=("video", "latency", "keys"))
    parser.add_argument("recording", type=Path, nargs="+")
    parser.add_argument("--minutes", type=float, default=60, help="length of the video")
    parser.add_argument("--moves", type=int, default=100, help="keys of each sort")
    parser.add_argument("--model", help="folder or name of a model that proposes")
    args = parser.parse_args(words)
    with errors_in_one_line():
        if args.what == "video":
            print(f"{make_video(args.recording[0], args.minutes)} frames: {args.recording[0]}")
        elif args.what == "latency":
            head = ("", "median (ms)", "99th percentile (ms)", "slowest (ms)")
            print_table(
                head,
                (
                    [name, *(f"{value:.0f}" for value in (statistics.median(t), np.percentile(t, 99), max(t)))]
                    for name, t in measure_latency(args.recording[0], args.moves)
                ),
            )
        else:
            rows = {path.name: count_keys(path, args.model) for path in args.recording}
            head = list(next(iter(rows.values())))
            print_table(("recording", *head), ([name, *(str(row[h]) for h in head)] for name, row in rows.items()))


if __name__ == "__main__":
    main()
