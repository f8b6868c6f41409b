"""Sets of recordings: planned, drawn in processes of their own, resumed where they were interrupted.

Each recording is drawn into a hidden folder beside its place and renamed when it is complete, so that what is there
under its own name is whole. Drawing happens in one process per recording: a graphics driver that crashes takes one
attempt with it, not the set.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

from stormpsr import __version__
from stormpsr.cluster import Cluster, map_recordings
from stormpsr.data.images import Image, read_image
from stormpsr.data.labels import frame_name
from stormpsr.data.layouts import RECORDING_FILE
from stormpsr.data.sources import Frame, FrameSource
from stormpsr.errors import InputError, StormPSRError
from stormpsr.files import draft_of, read_json_object, replacing_folder, write_json
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import profile_named
from stormpsr.synthetic.recording import DatasetSpec, RecordingSpec

DATASET_FILE = "dataset.json"
ATTEMPTS = 3

OnProgress = Callable[[str, int, int], None]  # recording id, frames drawn, frames in all


class WorkerCrashError(StormPSRError):
    """A drawing process died, and so did its successors."""


@dataclass(frozen=True)
class GenerateResult:
    """What a call of `generate` did."""

    folder: Path
    made: tuple[str, ...]
    skipped: tuple[str, ...]  # complete already
    retried: tuple[str, ...]  # needed more than one attempt


def recording_folder(out: Path, spec: RecordingSpec) -> Path:
    return out / "recordings" / spec.split / spec.id


def generate(
    out: Path,
    spec: DatasetSpec,
    *,
    workers: int = 2,
    only: Sequence[str] = (),
    cluster: Cluster | None = None,
    on_start: Callable[[list[RecordingSpec]], None] | None = None,
    on_progress: OnProgress | None = None,
) -> GenerateResult:
    """Make all recordings of a set that are not there yet, or only those whose ids are given.

    workers: how many are drawn at a time, on this machine. With a cluster, it has workers of its own.
    """
    if workers < 1:
        raise InputError(f"{workers} workers", cure="at least one is needed")
    recordings = spec.recordings(Product.load(spec.product))
    unknown = set(only) - {recording.id for recording in recordings}
    if unknown:
        cure = f"ids go from {recordings[0].id} to {recordings[-1].id}"
        raise InputError(f"the set has no recording {sorted(unknown)[0]!r}", cure=cure)
    wanted = [recording for recording in recordings if not only or recording.id in only]
    _claim_folder(out, spec)
    missing = [recording for recording in wanted if not _is_complete(out, recording)]
    if on_start:
        on_start(missing)
    pool = _Pool(out, on_progress or (lambda *_: None))
    # a product's file may be named as seen from here
    here = Path.cwd() if Path(spec.product).is_file() else None
    retried = map_recordings(
        (lambda recording, _: pool.make(recording)) if cluster is None else partial(_draw, out.resolve(), here),
        [(recording.id, recording) for recording in missing],
        cluster=cluster,
        threads=workers,
        reads=[] if here is None else [here],
        writes=[out],
        on_progress=on_progress,
        on_stop=pool.stop,
    )
    again = [recording.id for recording, twice in zip(missing, retried, strict=True) if twice]
    done = {recording.id for recording in missing}
    skipped = tuple(recording.id for recording in wanted if recording.id not in done)
    return GenerateResult(out, tuple(recording.id for recording in missing), skipped, tuple(sorted(again)))


# ---------------------------------------------------------------------- folders
def _claim_folder(out: Path, spec: DatasetSpec) -> None:
    """Write the set's description, or make sure that the one that is there is the same."""
    mine = json.loads(json.dumps({**asdict(spec), "version": __version__}))
    path = out / DATASET_FILE
    if path.exists():
        theirs = read_json_object(path, cure="delete it and generate again")
        theirs = {"difficulty": 0.0, "train_difficulty": None, **theirs}  # sets from before there were any
        differing = [key for key in mine if key != "counts" and theirs.get(key) != mine[key]]
        if differing:
            key = differing[0]
            raise InputError(
                f"the folder holds another set: {key} is {theirs.get(key)!r} there and {mine[key]!r} here",
                path=path,
                cure="choose another output folder, or delete this one",
            )
        counts = theirs.get("counts")
        if not isinstance(counts, dict) or not all(type(count) is int for count in counts.values()):
            problem = f"'counts' is {counts!r:.60}, not a number for each split"
            raise InputError(problem, path=path, cure="delete it and generate again")
        mine["counts"] = {k: max(v, counts.get(k, 0)) for k, v in mine["counts"].items()}
    elif out.is_file():
        raise InputError("the output is a file", path=out, cure="give the path of a folder")
    elif out.exists() and any(out.iterdir()):
        raise InputError("the folder is not empty and holds no set", path=out, cure="choose another output folder")
    try:
        write_json(path, mine)
    except OSError as error:
        raise InputError(f"cannot write here: {(error.strerror or str(error)).lower()}", path=out) from error


def _is_complete(out: Path, spec: RecordingSpec) -> bool:
    """Whether a recording is there, made from the same parameters."""
    path = recording_folder(out, spec) / RECORDING_FILE
    if not path.exists():
        return False
    made = read_json_object(path, cure="delete it and generate again")
    theirs = made.get("parameters")
    if isinstance(theirs, dict):
        theirs = {"difficulty": 0.0, **theirs}  # recordings from before there was one
    if theirs != json.loads(json.dumps(asdict(spec))):
        cure = "delete that recording, or choose another output folder"
        raise InputError(f"recording {spec.id} was made from other parameters", path=path, cure=cure)
    return True


# ---------------------------------------------------------------------- processes
class _NotDrawnError(Exception):
    """What is drafted must not take the recording's place."""


def _draw(out: Path, here: Path | None, spec: RecordingSpec, report: OnProgress) -> bool:
    """A recording, on a worker of a cluster."""
    return _Pool(out, report, here).make(spec)


class _Pool:
    """Runs one process per recording, and cleans up after each of them."""

    def __init__(self, out: Path, on_progress: OnProgress, here: Path | None = None) -> None:
        """here: where the processes run, if not where this one does."""
        self.out, self.on_progress, self.here = out, on_progress, here
        self._started: list[subprocess.Popen[str]] = []  # those that ended are not harmed by being ended again
        self._lock = threading.Lock()
        self._stopped = False

    def stop(self) -> None:
        """End all processes, and start no more."""
        with self._lock:
            self._stopped = True
            for process in self._started:
                process.terminate()

    def make(self, spec: RecordingSpec) -> bool:
        """Draw a recording; whether it took more than one attempt."""
        for attempt in range(1, ATTEMPTS + 1):
            with suppress(_NotDrawnError):
                with replacing_folder(recording_folder(self.out, spec)) as draft:
                    code, answer = self._attempt(spec, draft)
                    if "problem" in answer:
                        raise InputError(answer["problem"], path=answer.get("path"), cure=answer.get("cure"))
                    if code or self._stopped:
                        raise _NotDrawnError
                return attempt > 1
            if self._stopped:
                return False
            if attempt == ATTEMPTS:
                reason = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                tail = answer.get("stderr", "")[-300:].strip().replace("\n", " | ")
                raise WorkerCrashError(f"drawing recording {spec.id} failed {ATTEMPTS} times ({reason}): {tail}")
        return False

    def _attempt(self, spec: RecordingSpec, draft: Path) -> tuple[int, dict[str, str]]:
        """Draw once in a process of its own: its exit code, and what it said if it failed."""
        answer: dict[str, str] = {}
        with TemporaryFile("w+") as errors:  # not a pipe, which a talkative process could fill
            with self._lock:
                if self._stopped:
                    return 1, {}
                process = subprocess.Popen(
                    [sys.executable, "-m", "stormpsr.synthetic.recording", str(draft)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                    cwd=self.here,
                    start_new_session=True,  # Ctrl-C comes to us alone, and we end the processes
                )
                self._started.append(process)
            with process:  # closes the pipes and waits
                assert process.stdin is not None
                assert process.stdout is not None
                try:
                    with suppress(BrokenPipeError):  # it died at once: the exit code says so
                        process.stdin.write(json.dumps(asdict(spec)))
                        process.stdin.close()
                    for line in process.stdout:
                        message = json.loads(line)
                        if "done" in message:
                            self.on_progress(spec.id, message["done"], message["of"])
                        else:
                            answer.update(message)
                except BaseException:
                    process.terminate()
                    process.wait()  # after a KeyboardInterrupt, Popen itself waits a quarter of a second only
                    raise
            errors.seek(0)
            return process.returncode, {**answer, "stderr": errors.read()}


# ---------------------------------------------------------------------- watching
class RecordingBeingDrawn(FrameSource):
    """The frames of a set's only recording while it is drawn. Use it as a context: drawing stops with it."""

    def __init__(self, folder: Path, dataset: DatasetSpec) -> None:
        product = Product.load(dataset.product)
        (self.spec,) = dataset.recordings(product)
        self.folder, self.dataset, self.procedure = folder, dataset, product.procedure
        self.path = recording_folder(folder, self.spec)
        self._draft = draft_of(self.path.resolve())
        self.name, self.fps, self.n_frames = self.spec.id, profile_named(self.spec.profile).fps, None
        self._drawn = 0  # frames that are written completely, as far as we were told
        self._left = False
        self._news = threading.Event()
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> RecordingBeingDrawn:
        self._job = self._thread.submit(generate, self.folder, self.dataset, workers=1, on_progress=self._progress)
        return self

    def __exit__(self, *_: object) -> None:
        self._left = True  # heard at the next report of progress
        self._thread.shutdown()

    def _progress(self, _: str, done: int, of: int) -> None:
        if self._left:
            raise RuntimeError("nobody waits for the recording any more")  # ends the process that draws
        self._drawn, self.n_frames = done, of
        self._news.set()

    def frames(self, start: int = 0) -> Iterator[Frame]:
        """Each frame as soon as it is there. What stopped the drawing is raised here."""
        step = self.spec.frame_step
        index = -(-start // step) * step
        while True:
            finished = self._job.done()  # asked before the file is looked for
            if finished:
                self._job.result()
            image = self._image(index) if finished or index < self._drawn else None
            if image is not None:
                yield Frame(image, index, index / float(self.fps or 1))
                index += step
            elif finished:
                return
            else:
                self._news.wait(0.1)
                self._news.clear()

    def _image(self, index: int) -> Image | None:
        for place in (self._draft, self.path):  # in this order: a draft that is complete gets its name at any moment
            file = place / "rgb" / frame_name(index)
            try:
                return read_image(file)
            except InputError:
                if file.is_file():
                    raise
        self._drawn = 0  # the process died and draws again: what it draws is the same, bit for bit
        return None
