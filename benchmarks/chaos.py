"""Killed, without room or rights, two at once, with a failing camera: started again, all is as if nothing had been.

    python benchmarks/chaos.py --kills 20 --seed 0             # everything
    python benchmarks/chaos.py --only kill --command evaluate   # one kind of trouble, one command

Kinds of trouble: `kill` (SIGKILL to the command and all its processes at a random moment), `full` (a disk that is full
at some point: a small tmpfs, which needs the right to mount), `read-only` (the same, mounted so), `two` (the same
command twice at the same time), `camera` (one that stalls, drops, changes its size, jumps in time).

After each, everything that has its final name is whole, the same command is started again, and its result is that of
an undisturbed run, file for file; nothing drafted is left. What was shown before is there.

A command is one line of COMMANDS. Data and networks are those of `tiny.py`. Commands are forked from a process that has
imported everything, so that a start costs little.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import tiny
from script import make_parser, print_table, seconds_of
from stormpsr.procedure.model import Procedure

_GROWING = (".rows", ".log", ".ckpt", ".sqlite-wal", ".sqlite-shm")  # read by those who know how much of it counts
_TOO_LONG = 600.0


class WrongError(AssertionError):
    """What should have held does not."""


@dataclass(frozen=True)
class Command:
    """A command, and which of its files must be those of an undisturbed run."""

    name: str
    line: str  # with {world} and {out}, the place for results
    results: str  # a regular expression: files below the place for results
    again: str = ""  # added to the line when it is started again
    prepare: Callable[[Path, Path], None] = lambda world, out: None
    check: Callable[[Path, str], None] = lambda out, said: None  # after a kill, with what was said until then
    refuses: str = ""  # what it may say if it was done already
    stays: str = "(?!)"  # a regular expression: drafts that nobody may write again

    def words(self, world: Path, out: Path, again: bool = False) -> list[str]:
        line = f"{self.line} {self.again}" if again else self.line
        return [word.format(world=world, out=out) for word in line.split()]


# ====================================================================== commands
_NETWORK = " ".join(f"-s {key}={value}" for key, value in {**tiny.DETECTOR, "width": 16, "heads": 2}.items())
_CPU = "--device cpu --threads 1"


def _copy_model(world: Path, out: Path) -> None:
    shutil.copytree(world / "model", out / "model")


def _check_run(out: Path, said: str) -> None:
    """All steps that were told are in the table, which has whole rows, and the video can be played."""
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{") and line.endswith("}")]
    told = [line["frame"] for line in lines if line["event"] in ("completed", "unexpected")]
    table = out / "steps.csv"
    rows = table.read_text(encoding="utf-8") if table.is_file() else ""
    frames = [int(row.split(".")[0]) for row in rows.splitlines()]
    if rows and not rows.endswith("\n"):
        raise WrongError("half a row in the table")
    if frames[: len(told)] != told:
        raise WrongError(f"steps in frames {told} were told, those in {frames} are in the table")
    video = out / "video.mp4"
    if video.is_file() and video.read_bytes().count(b"moof") > 1:  # the first part is whole
        import av

        with av.open(str(video)) as container:
            next(container.decode(video=0))


def _check_station(out: Path, said: str) -> None:
    from stormpsr.errors import InputError
    from stormpsr.station.records import verify

    try:
        verdict = verify(out / "station")
    except InputError as error:
        if "shown" in said or "no records here" not in str(error):
            raise WrongError(f"something was shown, and: {error}") from error
        return
    if verdict.problems or verdict.n_deleted:
        raise WrongError(f"records: {verdict}")
    shown = [int(line.split()[1]) for line in said.splitlines() if re.fullmatch(r"shown \d+ \.", line)]
    if shown and verdict.n_records < shown[-1]:
        raise WrongError(f"record {shown[-1]} was shown, {verdict.n_records} are there")


def station(words: Sequence[str]) -> int:
    """The station with a real recogniser, which sees a recording as fast as it can; says which record it has shown."""
    from stormpsr.data.sources import Frame, open_source
    from stormpsr.recognizer.model_folder import load_model
    from stormpsr.recognizer.recognizer import Recognizer
    from stormpsr.station.records import Records
    from stormpsr.station.service import Station, StationSettings

    model, recording, folder = words
    loaded = load_model(model, device="cpu", threads=1)
    frames = list(open_source(recording, loaded.procedure).frames())
    records = Records(Path(folder), loaded.digest())
    settings = StationSettings(clip_seconds=(1.0, 0.1))
    station = Station(lambda variant: Recognizer.of(loaded, "average", variant), records, settings)
    if not station.work.is_running:
        station.start_unit("A-1", None)
    for turn in range(3):
        for frame in frames:
            number = turn * len(frames) + frame.index
            station.see(Frame(frame.image, number, number / 10))
            log = station.snapshot()["log"]
            print(f"shown {log[0]['id'] if log else 0} .", flush=True)
    station.close()
    records.close()
    return 0


# each makes one revision
_EDITS: tuple[dict[str, Any], ...] = (
    *({"do": "set", "frame": 10 * k + 5, "component": k, "value": 1} for k in range(3)),
    *({"do": "box", "frame": frame, "box": [2 + frame / 8, 8, 20, 16]} for frame in range(0, 40, 3)),
    *({"do": "fill", "frame": frame} for frame in (4, 19)),
    {"do": "set", "frame": 20, "component": 2, "value": -1},
    {"do": "undo"},
    {"do": "redo"},
    {"do": "move", "component": 0, "frame": 5, "to": 9},
    {"do": "delete_box", "frame": 0, "to": 2},
    {"do": "undo"},
    *({"do": "mark", "frame": frame} for frame in range(26, 40, 2)),
    {"do": "finish"},
)


def _copy_images(world: Path, out: Path) -> None:
    shutil.copytree(world / "test" / "00_build_test" / "rgb", out / "01_build" / "rgb")


def annotate(words: Sequence[str]) -> int:
    """An annotator at work: goes on with the first change that is not made; says which one is kept."""
    from stormpsr.annotate.session import Session
    from stormpsr.data.layouts import RecordingFolder

    procedure, folder = words
    session = Session(RecordingFolder("01_build", None, Path(folder)), Procedure.load(procedure))
    for number in range(session.revision, len(_EDITS)):
        session.change({"revision": number, "id": f"change {number}", **_EDITS[number]})
        print(f"kept {session.revision} .", flush=True)
    return 0


def _kept(said: str) -> int:
    """The last number that was told with a whole line."""
    return max((int(line.split()[1]) for line in said.splitlines() if re.fullmatch(r"kept \d+ \.", line)), default=0)


def _check_annotation(out: Path, said: str) -> None:
    """All changes that were told are there, and label files are as they say once somebody looks."""
    from stormpsr.annotate.session import Session
    from stormpsr.data.layouts import RecordingFolder

    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "01_build"
        shutil.copytree(out / "01_build", copy)
        session = Session(RecordingFolder("01_build", None, copy), tiny.lamp())
        if session.revision < _kept(said):
            raise WrongError(f"change {_kept(said)} was told, {session.revision} are there")
        again = Session(RecordingFolder("01_build", None, copy), tiny.lamp())
        if (session.document, session.revision) != (again.document, again.revision):
            raise WrongError("an annotation is another one when it is looked at twice")


def record(words: Sequence[str]) -> int:
    """The command, with a name that is free, as it asks for; says which frame is kept."""
    from stormpsr.cli.main import main as stormpsr
    from stormpsr.data.recorder import Recorder

    data = Path(words[-1])
    name = next(name for n in range(1, 99) if not (data / "recordings" / (name := f"{n:02d}_build")).exists())
    add = Recorder.add

    def tell(self: Recorder, frame: Any) -> None:
        add(self, frame)
        print(f"kept {self.n_frames} .", flush=True)

    Recorder.add = tell  # type: ignore[method-assign]
    return stormpsr(["record", *words, "--name", name, "--json"])


def _check_recording(out: Path, said: str) -> None:
    """All frames that were told are there; of a video, the last second may be missing."""
    from stormpsr.data.layouts import RecordingFolder
    from stormpsr.data.recorder import read_frame_times
    from stormpsr.data.recording import open_recording

    folder = max((out / "data" / "recordings").glob("*_build"), default=None)
    video = folder is not None and (folder / "rgb.mp4").exists()
    least = _kept(said) - (11 if video else 0)
    if folder is None or not (_kept(said) if not video else least > 0):
        if least > 0:
            raise WrongError(f"{_kept(said)} frames were told, nothing is there")
        return
    recording = open_recording(RecordingFolder(folder.name, None, folder), tiny.lamp())
    shown = len(list(recording.frames()))
    times = read_frame_times(folder)
    if shown < least or recording.n_frames < least or (times is not None and len(times) < shown):
        raise WrongError(f"{_kept(said)} frames were told, {shown} can be seen; {recording.n_frames}, {times}")


_LABELS = r"^01_build/(PSR_labels.*csv|OD_labels.json)$"
_RECORDED = r"^data/(?:procedure.yaml|recordings/\d+_build/(?P<inside>rgb/.*|rgb.mp4|recording.json|frame_times.csv))$"
_TRAINED = r"^run/(encoder|temporal)/best/(model.safetensors|config.yaml)$"
_RECORDING = "{world}/test/00_build_test"
COMMANDS: tuple[Command, ...] = (
    Command(
        "decode",
        "decode {world}/detections --procedure {world}/procedure.yaml --method naive --out {out}/steps",
        r"^steps/.*csv$",
    ),
    Command(
        "synth generate",
        "synth generate {out}/drawn --train 1 --val 1 --test 0 --size 64 --max-seconds 4 --workers 1 --every 4",
        r"^drawn/.*\.(jpg|csv|yaml)$",
    ),
    Command(
        "detect train",
        f"detect train {{world}} --out {{out}}/detector --steps 12 --batch-size 4 {_NETWORK} {_CPU}",
        r"^detector/(model.safetensors|config.yaml)$",
        refuses="is there already",
    ),
    Command(
        "train",
        "train all --data {world} --preset {world}/tiny.yaml --out {out}/run --device cpu",
        _TRAINED,
        again="--resume",
        refuses="--resume",
    ),
    Command(
        "tune",
        f"tune {{out}}/model --data {{world}} --method detection --method average --cache {{out}}/cache {_CPU}",
        r"^model/recognizer.yaml$",
        prepare=_copy_model,
    ),
    Command(
        "evaluate",
        f"evaluate {{world}}/model --data {{world}} --split test --out {{out}}/run --cache {{out}}/cache {_CPU}",
        r"^run/(run.json|procedure.yaml|recordings/.*)$",
    ),
    Command(
        "run",
        f"run {{world}}/model {_RECORDING} --json --out {{out}}/steps.csv --save {{out}}/video.mp4 {_CPU}",
        r"^steps.csv$",
        check=_check_run,
    ),
    Command(
        "annotate",
        "ANNOTATE {world}/procedure.yaml {out}/01_build",
        _LABELS,
        prepare=_copy_images,
        check=_check_annotation,
    ),
    Command(
        "record",
        "RECORD {world}/test/00_build_test/rgb --procedure {world}/procedure.yaml --out {out}/data",
        _RECORDED,
        check=_check_recording,
        stays=r"recordings/\d+_build/rgb/",
    ),
    Command(
        "record --video",
        "RECORD {world}/test/00_build_test/rgb --video --procedure {world}/procedure.yaml --out {out}/data",
        _RECORDED,
        check=_check_recording,
    ),
    Command(
        "learn",
        f"learn {{world}} --start {{world}}/model --preset {{world}}/tiny.yaml --out {{out}}/model --steps 4 "
        f"--batch-size 4 {_CPU}",
        r"^model/.*(safetensors|yaml|npz)$",
        refuses="this is there already",
    ),
    # its records go on where they were: see _check_station
    Command("station", f"STATION {{world}}/model {_RECORDING} {{out}}/station", r"^$", check=_check_station),
)


# ====================================================================== processes
@dataclass(frozen=True)
class Ended:
    code: int  # negative: killed by this signal
    said: str  # on stdout
    complained: str  # on stderr
    seconds: float  # that it ran or slept

    @property
    def last_line(self) -> str:
        return (self.complained.strip().splitlines() or [""])[-1]


def start(words: Sequence[str], place: Path) -> int:
    """Fork a process that runs a command; its group is its own, so that all it starts can be ended with it."""
    sys.stdout.flush()
    for name in ("said", "complained"):  # of the command before
        (place / name).unlink(missing_ok=True)
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.setpgid(0, 0)
        for number, name in ((1, "said"), (2, "complained")):
            os.dup2(os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
        sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
        from stormpsr.cli.main import main as stormpsr

        driver = {"STATION": station, "ANNOTATE": annotate, "RECORD": record}.get(words[0])
        code = stormpsr(list(words)) if driver is None else driver(words[1:])
        sys.stdout.flush()
    except BaseException as error:
        from stormpsr.errors import StormPSRError

        if isinstance(error, StormPSRError):
            print(f"error: {error}", file=sys.stderr)
            code = 2
        else:
            traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def wait(child: int, place: Path, kill_after: float | None = None) -> Ended:
    """Until it ends, or is killed after so many seconds in which it was not kept waiting for a processor."""
    began = seconds_of(child)
    ran = 0.0
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        ran = seconds_of(child) - began
        if ran > (kill_after if kill_after is not None else _TOO_LONG):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            break
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it started and left behind
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    said, complained = (
        (place / name).read_text(encoding="utf-8", errors="replace") if (place / name).is_file() else ""
        for name in ("said", "complained")
    )
    return Ended(code, said, complained, ran)


def run(words: Sequence[str], place: Path, kill_after: float | None = None) -> Ended:
    return wait(start(words, place), place, kill_after)


def expect_done(ended: Ended, what: str) -> None:
    if ended.code != 0:
        raise WrongError(f"{what}: ended with {ended.code}: {ended.complained[-2000:]}")


def expect_one_line(ended: Ended, what: str) -> None:
    if ended.code != 2 or "Traceback" in ended.complained or not ended.last_line.startswith(("error:", '{"error"')):
        raise WrongError(f"{what}: ended with {ended.code}: {ended.complained[-3000:]}")


# ====================================================================== what is on the disk
def results_of(command: Command, out: Path) -> dict[str, str]:
    """By name, or by the group `inside` of the regular expression: of several folders before it, the last counts."""
    names = (str(path.relative_to(out)) for path in sorted(out.rglob("*")) if path.is_file())
    chosen = [found for name in names if (found := re.search(command.results, name)) and ".draft." not in name]
    inside = {found.string: found.groupdict().get("inside") for found in chosen}
    places = [name.removesuffix(short) for name, short in inside.items() if short]
    chosen = [found for found in chosen if not inside[found.string] or found.string.startswith(max(places))]
    return {
        inside[found.string] or found.string: hashlib.sha256((out / found.string).read_bytes()).hexdigest()[:16]
        for found in chosen
    }


def check_whole(out: Path) -> None:
    """Whatever has its final name can be read."""
    from stormpsr.data.images import read_image
    from stormpsr.files import read_arrays, read_json
    from stormpsr.models.checkpoint import read_tensors
    from stormpsr.yaml_loader import read_yaml

    readers: dict[str, Callable[[Path], object]] = {
        ".json": read_json,
        ".yaml": read_yaml,
        ".npz": read_arrays,
        ".jpg": read_image,
        ".png": read_image,
        ".safetensors": lambda path: read_tensors(path, may_be_unnamed=True),
    }
    for path in out.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(out).parts)
        if path.is_file() and not hidden and path.suffix in readers:
            try:
                readers[path.suffix](path)
            except Exception as error:
                raise WrongError(f"half a file: {error}") from error


def check_left(command: Command, out: Path) -> None:
    drafts = (path for path in out.rglob("*") if ".draft." in path.name or path.name.endswith(".part"))
    left = [name for path in drafts if not re.search(command.stays, name := str(path.relative_to(out)))]
    if left:
        raise WrongError(f"drafts are left: {left}")


# ====================================================================== trouble
@dataclass
class Bench:
    """Where commands work, and what they give undisturbed."""

    world: Path
    scratch: Path
    seed: int

    def fresh(self, command: Command, name: str = "out") -> Path:
        out = self.scratch / name
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        command.prepare(self.world, out)
        return out

    def undisturbed(self, command: Command) -> tuple[dict[str, str], float, int]:
        """Its results, the seconds that it takes, and the bytes that it writes."""
        out = self.fresh(command)
        before = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        ended = run(command.words(self.world, out), self.scratch)
        expect_done(ended, "undisturbed")
        check_left(command, out)
        used = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        return results_of(command, out), ended.seconds, max(used - before, 1)

    def compare(self, command: Command, out: Path, wanted: dict[str, str]) -> None:
        found = results_of(command, out)
        if found != wanted:
            differ = [name for name in {*found, *wanted} if found.get(name) != wanted.get(name)]
            raise WrongError(f"other results than undisturbed: {sorted(differ)[:5]}")


def kill(bench: Bench, command: Command, times: int) -> Iterator[str]:
    """Kill at random moments, each time in a new place, start again; every fourth time it is killed twice."""
    wanted, seconds, _ = bench.undisturbed(command)
    rng = random.Random(f"{bench.seed}/{command.name}")
    for turn in range(times):
        out = bench.fresh(command)
        again = False
        for _ in range(2 if turn % 4 == 3 else 1):
            ended = run(command.words(bench.world, out, again), bench.scratch, rng.uniform(0, 1.05 * seconds))
            if ended.code not in (0, -signal.SIGKILL):
                raise WrongError(f"ended with {ended.code}: {ended.complained[-2000:]}")
            check_whole(out)
            command.check(out, ended.said)
            again = True
        ended = run(command.words(bench.world, out, again), bench.scratch)
        if not (ended.code == 2 and command.refuses and command.refuses in ended.complained):
            expect_done(ended, f"again after kill {turn + 1}")
        check_left(command, out)
        command.check(out, ended.said)
        bench.compare(command, out, wanted)
        yield "as undisturbed"


@contextlib.contextmanager
def small_disk(place: Path, size: int) -> Iterator[Callable[[str], None]]:
    """A tmpfs of so many bytes; the function changes how it is mounted."""
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True, capture_output=True)
    try:
        yield lambda how: subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=True) and None
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def can_mount(scratch: Path) -> bool:
    try:
        with small_disk(scratch / "disk", 4096):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def full(bench: Bench, command: Command, times: int) -> Iterator[str]:
    """Disks with room for a part of what is written; then there is room."""
    wanted, _, used = bench.undisturbed(command)
    rng = random.Random(f"{bench.seed}/{command.name}/full")
    for _ in range(times):
        disk = bench.scratch / "disk"
        with small_disk(disk, 1 << 40) as mount:
            command.prepare(bench.world, disk)
            taken = shutil.disk_usage(disk).used
            mount(f"size={max(taken + int(used * rng.uniform(0.02, 0.95)), 4096)}")
            words = command.words(bench.world, disk)
            ended = run(words, bench.scratch)
            found = "there was room" if ended.code == 0 else "refused in one line, as undisturbed afterwards"
            if ended.code != 0:
                expect_one_line(ended, "a full disk")
                if "disk is full" not in ended.complained or str(disk) not in ended.last_line:
                    raise WrongError(f"a full disk is not said, or no file named: {ended.last_line}")
            elif "station" not in command.name and results_of(command, disk) != wanted:
                raise WrongError("a full disk, no complaint, and other results")
            check_whole(disk)
            mount("size=1g")
            command.check(disk, ended.said)
            if ended.code != 0:
                expect_done(run(command.words(bench.world, disk, again=True), bench.scratch), "again, with room")
                check_left(command, disk)
                bench.compare(command, disk, wanted)
        yield found


def read_only(bench: Bench, command: Command, times: int) -> Iterator[str]:
    disk = bench.scratch / "disk"
    with small_disk(disk, 1 << 30) as mount:
        command.prepare(bench.world, disk)
        mount("ro")
        ended = run(command.words(bench.world, disk), bench.scratch)
        expect_one_line(ended, "a folder that must not be written to")
        yield "refused in one line"


def two(bench: Bench, command: Command, times: int) -> Iterator[str]:
    """Both at the same time; the second begins at a random moment of the first."""
    wanted, seconds, _ = bench.undisturbed(command)
    rng = random.Random(f"{bench.seed}/{command.name}/two")
    for _ in range(times):
        out = bench.fresh(command)
        words, places = command.words(bench.world, out), [bench.scratch / "one", bench.scratch / "other"]
        for place in places:
            place.mkdir(exist_ok=True)
        one = start(words, places[0])
        time.sleep(rng.uniform(0, 0.5 * seconds))
        other = start(words, places[1])
        ends = [wait(child, place) for child, place in ((one, places[0]), (other, places[1]))]
        for ended in ends:
            if ended.code != 0:
                expect_one_line(ended, "one of two")
        if all(ended.code for ended in ends):
            raise WrongError(f"both gave up: {[ended.last_line for ended in ends]}")
        check_whole(out)
        check_left(command, out)
        command.check(out, "")
        bench.compare(command, out, wanted)
        yield "one refused" if any(ended.code for ended in ends) else "both done"


# ====================================================================== cameras
class FailingCamera:
    """An HTTP camera on 127.0.0.1 that sends what its script says: for each connection a list of orders."""

    def __init__(self, connections: list[list[tuple[str, Any]]], kind: str = "mjpeg") -> None:
        self.connections, self.kind, self.opened = connections, kind, 0
        camera = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                orders = camera.connections[min(camera.opened, len(camera.connections) - 1)]
                camera.opened += 1
                self.send_response(200)
                kind = "multipart/x-mixed-replace; boundary=x" if camera.kind == "mjpeg" else "video/mp2t"
                self.send_header("Content-Type", kind)
                self.end_headers()
                with contextlib.suppress(OSError):
                    (camera.send_images if camera.kind == "mjpeg" else camera.send_stream)(self.wfile, orders)

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}/camera"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def send_images(self, file: Any, orders: list[tuple[str, Any]]) -> None:
        import cv2
        import numpy as np

        rng, side = np.random.default_rng(0), 32
        for what, value in orders:
            if what == "size":
                side = value
            elif what == "wait":
                time.sleep(value)
            elif what == "garbage":
                file.write(os.urandom(value))
            for _ in range(value if what == "frames" else 0):
                image = cv2.resize(tiny.picture(tiny.STATES[1], rng), (side, 32))
                data = cv2.imencode(".jpg", image)[1].tobytes()
                file.write(
                    b"--x\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(data) + data + b"\r\n"
                )
                time.sleep(0.02)

    def send_stream(self, file: Any, orders: list[tuple[str, Any]]) -> None:
        import av
        import numpy as np

        rng, stamp = np.random.default_rng(0), 0
        for what, value in orders:
            if what == "jump":
                stamp += value * 25
                continue
            part = io.BytesIO()
            with av.open(part, "w", format="mpegts", options={"mpegts_copyts": "1"}) as container:
                stream: Any = container.add_stream("mpeg1video", rate=25)
                stream.width = stream.height = 32
                stream.pix_fmt = "yuv420p"
                for _ in range(value):
                    frame = av.VideoFrame.from_ndarray(tiny.picture(tiny.STATES[1], rng), format="rgb24")
                    frame.pts, frame.time_base = stamp, Fraction(1, 25)
                    stamp += 1
                    container.mux(stream.encode(frame))
                container.mux(stream.encode())
            content = part.getvalue()
            for start in range(0, len(content), 1880):  # ten packets at a time
                file.write(content[start : start + 1880])
                time.sleep(0.02)


_F = ("frames", 30)
CAMERAS: dict[str, tuple[str, list[list[tuple[str, Any]]]]] = {
    "drops": ("mjpeg", [[_F], [_F], [_F]]),
    "stalls": ("mjpeg", [[_F, ("wait", 60)], [_F], [_F]]),
    "changes its size": ("mjpeg", [[_F, ("size", 48), _F, ("size", 32), _F]]),
    "sends garbage": ("mjpeg", [[_F, ("garbage", 5000), _F], [_F]]),
    "jumps in time": ("mpegts", [[_F, ("jump", 7200), _F, ("jump", -3600), _F]]),
}


def camera(bench: Bench, name: str) -> str:
    """The recogniser keeps its state, times go forward, and frames come until the last connection is through."""
    from stormpsr.data.sources import LatestOnly, open_source
    from stormpsr.recognizer.recognizer import Recognizer

    kind, connections = CAMERAS[name]
    failing = FailingCamera(connections, kind)
    recognizer = Recognizer.load(bench.world / "model", threads=1, device="cpu")
    wanted = 40  # frames; any of these cameras has sent more by then, and failed before
    try:
        source = open_source(failing.address, recognizer.procedure)
        frames = LatestOnly(source, stall_seconds=0.7, pauses=(0.1, 0.5))
        taken, last, ends = 0, -1.0, time.monotonic() + _TOO_LONG
        recognizer.reset()
        stream = frames.frames()
        while taken < wanted or failing.opened < len(connections):
            frame = next(stream)
            if frame.time_seconds < last:
                raise WrongError(f"a frame at {frame.time_seconds} s after one at {last} s")
            last = frame.time_seconds
            recognizer.update(frame)
            taken += 1
            if time.monotonic() > ends:
                raise WrongError(f"{taken} frames, {failing.opened} connections, {frames.health}: {frames.problem}")
        stream.close()
        if name == "jumps in time" and last > 3600:
            raise WrongError(f"the clock jumped with the camera: {last} s")
    finally:
        failing.close()
    return f"{taken} frames over {failing.opened} connections, in order"


# ====================================================================== all of it
TROUBLES: dict[str, Callable[[Bench, Command, int], Iterator[str]]] = {
    "kill": kill,
    "full": full,
    "read-only": read_only,
    "two": two,
}


def prepare(place: Path, networks: bool) -> Path:
    """The world, and everything imported: this process is forked for every command."""
    world = tiny.write_world(place / "world", n_frames=40, train=2, val=2, test=2)
    (world / "tiny.yaml").write_text(tiny.SETTINGS, encoding="utf-8")
    (world / "detections").mkdir()
    for name in range(30):
        rows = [f"{name:03d}_build,{frame},{1 + frame // 20 % 4},0.9" for frame in range(80)]
        (world / "detections" / f"{name:03d}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    import stormpsr.cli.decode
    import stormpsr.cli.main

    if not networks:
        return world
    tiny.write_model(world / "model")
    import lightning  # noqa: F401
    import onnxruntime  # noqa: F401
    import timm  # noqa: F401
    import torch

    import stormpsr.annotate.session
    import stormpsr.cli.record
    import stormpsr.data.recorder
    import stormpsr.recognizer.evaluate
    import stormpsr.recognizer.learning
    import stormpsr.recognizer.tuning
    import stormpsr.training.stages  # noqa: F401

    torch.set_num_threads(1)
    return world


def main(words: list[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each command; a quarter of it, full disks and pairs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", action="append", choices=[*TROUBLES, "camera"], help="kind of trouble; may be repeated"
    )
    parser.add_argument("--command", action="append", choices=[c.name for c in COMMANDS], help="may be repeated")
    options = parser.parse_args(words)
    os.environ.update(OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    warnings.simplefilter("ignore")
    kinds, rows, failed = options.only or [*TROUBLES, "camera"], [], 0
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place).resolve()
        chosen = [command for command in COMMANDS if not options.command or command.name in options.command]
        networks = "camera" in kinds or any(command.name != "decode" for command in chosen)
        bench = Bench(prepare(scratch, networks), scratch / "scratch", options.seed)
        bench.scratch.mkdir()
        mounts = can_mount(bench.scratch)
        jobs: list[tuple[str, str, Callable[[], Iterator[str]]]] = []
        for kind in kinds:
            for command in chosen if kind != "camera" else ():
                times = options.kills if kind == "kill" else 1 if kind == "read-only" else max(options.kills // 4, 1)
                jobs.append((kind, command.name, lambda k=kind, c=command, n=times: TROUBLES[k](bench, c, n)))  # type: ignore[misc]
            cameras = CAMERAS if kind == "camera" else ()
            jobs += [(kind, name, lambda n=name: iter([camera(bench, n)])) for name in cameras]  # type: ignore[misc]
        for kind, name, job in jobs:
            if kind in ("full", "read-only") and not mounts:
                rows.append((f"{kind}: {name}", "0", "left out: no right to mount a small disk"))
                continue
            began, found = time.monotonic(), []
            try:
                for word in job():
                    found.append(word)  # noqa: PERF402  # what came before a failure counts
            except (WrongError, OSError, subprocess.CalledProcessError) as error:
                failed += 1
                found.append(f"FAILED: {error}")
            counted = ", ".join(f"{found.count(word)} {word}" for word in dict.fromkeys(found))
            rows.append((f"{kind}: {name}", str(len(found)), counted))
            print(f"{kind}: {name}: {counted} ({time.monotonic() - began:.0f} s)", flush=True)
    print()
    print_table(("trouble", "times", "afterwards"), rows)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
