"""Whole data sets on a Dask cluster: a scheduler and two workers on this machine. Results are those of one process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from stormpsr import cluster as cluster_module
from stormpsr.cli.main import main
from stormpsr.cluster import Cluster, map_recordings
from stormpsr.data.dataset import Dataset
from stormpsr.errors import InputError
from stormpsr.recognizer.evaluate import evaluate_model
from stormpsr.recognizer.model_folder import load_model

pytest.importorskip("distributed", reason="needs the extra 'cluster': pip install '.[cluster]'")
pytestmark = pytest.mark.timeout(900)  # processes that import torch

# What workers and tests both import: work that waits for the test, so that nothing depends on who is quicker.
GATED = '''
import os, time
from pathlib import Path

def wait_for(path):
    while not path.exists():
        time.sleep(0.02)

def load(folder, inner):
    """Somebody's `load`, held until the test says go."""
    (folder / f"started-{os.getpid()}").touch()
    wait_for(folder / "go")
    return inner()

def endless(folder, item, report):
    (folder / f"started-{item}").touch()
    try:
        while True:
            report("", 1, 2)
            time.sleep(0.02)
    finally:
        (folder / f"stopped-{item}").touch()

def refuse(item, report):
    from stormpsr.errors import InputError
    raise InputError("a bad label", path="labels.csv", line=item, cure="mend it")
'''


def wait_until(is_true: Callable[[], bool]) -> None:
    """The test as a whole has a limit; this has none."""
    while not is_true():
        time.sleep(0.02)


class Workers:
    """Processes of a cluster, which end with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file, self.modules = folder, folder / "scheduler.json", folder / "modules"
        self.modules.mkdir()
        (self.modules / "gated.py").write_text(GATED)
        self._started: list[subprocess.Popen[bytes]] = []
        self._start("dask_scheduler", "--port", "0", "--no-show")
        wait_until(self.file.is_file)

    def _start(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        paths = [str(Path(cluster_module.__file__).parents[1]), str(self.modules), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "OMP_NUM_THREADS": "1",
            "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__DISK": "False",
        }
        common = ["--host", "127.0.0.1", "--scheduler-file", str(self.file), "--no-dashboard"]
        with (self.folder / f"{program}-{len(self._started)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{program}", *common, *words],
                env=environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        self._started.append(process)
        return process

    def have(self, n: int) -> None:
        """So many workers, started where some are missing."""
        from distributed import Client

        workers = [process for process in self._started[1:] if process.poll() is None]
        for _ in range(n - len(workers)):
            scratch = str(self.folder / "scratch")
            self._start("dask_worker", "--no-nanny", "--nthreads", "1", "--local-directory", scratch)
        with Client(scheduler_file=str(self.file), set_as_default=False, timeout="900s") as client:
            wait_until(lambda: len(client.nthreads()) == n)

    def kill(self, pid: int) -> None:
        (process,) = (process for process in self._started if process.pid == pid)
        process.kill()
        process.wait()

    def end(self) -> None:
        for process in reversed(self._started):
            process.kill()
            process.wait()


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """How soon a cluster answers depends on what else the machine does."""
    monkeypatch.setattr(cluster_module, "_PATIENCE", "900s")


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    made = Workers(tmp_path_factory.mktemp("cluster"))
    try:
        made.have(2)
        yield made
    finally:
        made.end()


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_worker_killed_in_the_middle_costs_nothing_but_time(
    workers: Workers, world: Path, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(workers.modules))
    import gated

    gate = tmp_path / "gate"
    gate.mkdir()
    load = partial(load_model, model_folder, device="cpu", threads=1)
    on_workers = Cluster(str(workers.file), partial(gated.load, gate, load), (model_folder,))
    killed: list[int] = []

    def kill_one() -> None:
        wait_until(lambda: len(list(gate.glob("started-*"))) == 2)  # both have a recording in hand
        killed.append(int(min(gate.glob("started-*")).name.partition("-")[2]))
        workers.kill(killed[0])
        (gate / "go").touch()

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    told: dict[str, tuple[int, int]] = {}
    model, data = load(), Dataset.open(world)
    for name, own in (("cluster", on_workers), ("here", None)):
        evaluate_model(
            model,
            data,
            cache=tmp_path / name / "cache",
            out=tmp_path / name / "run",
            cluster=own,
            on_progress=lambda name, done, of: told.update({name: (done, of)}),
        )
        if own is not None:
            assert {name for name, (done, of) in told.items() if done == of} == set(data.names)  # of both workers
    killer.join()
    assert killed
    assert files_of(tmp_path / "cluster") == files_of(tmp_path / "here")
    assert len(files_of(tmp_path / "here" / "cache")) == len(data) == 4


def test_every_command_that_splits_by_recording_writes_the_same_files_on_a_cluster(
    workers: Workers,
    world: Path,
    model_folder: Path,
    detector_folder: Path,
    stream_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    workers.have(2)
    shown: dict[str, list[Any]] = {"here": [], "cluster": []}
    for place in shown:
        more = ["--device", "cpu", "--json", *(["--cluster", str(workers.file)] if place == "cluster" else [])]
        out = tmp_path / place
        cache = ["--cache", str(out / "cache")]
        commands = [
            ["detect", "run", str(detector_folder), str(world), "--out", str(out / "detections")],
            ["embed", "make", str(stream_folder), "--data", str(world), "--out", str(out / "embeddings")],
            ["evaluate", str(model_folder), "--data", str(world), "--split", "test", *cache],
            ["tune", str(model_folder), "--data", str(world), "--method", "detection", "--dry-run", *cache],
        ]
        for command in commands:
            assert main([*command, *more]) == 0, capsys.readouterr().err
            shown[place].append(capsys.readouterr().out.replace(str(out), ""))
    assert shown["cluster"] == shown["here"]
    here, there = files_of(tmp_path / "here"), files_of(tmp_path / "cluster")
    assert there == here
    assert {Path(name).parts[0] for name in here} == {"detections", "embeddings", "cache"}


@pytest.mark.skipif(find_spec("vtk") is None, reason="needs the extra 'synth'")
def test_recordings_drawn_on_a_cluster_are_those_drawn_here(
    workers: Workers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workers.have(2)
    sizes = ["--train", "1", "--val", "0", "--test", "1", "--size", "64", "--max-seconds", "1", "--json"]
    for place, more in (("cluster", ["--cluster", str(workers.file)]), ("here", ["--workers", "1"])):
        assert main(["synth", "generate", str(tmp_path / place), *sizes, *more]) == 0
        assert len(json.loads(capsys.readouterr().out)["made"]) == 2
    assert files_of(tmp_path / "cluster") == files_of(tmp_path / "here")


def test_ctrl_c_stops_the_workers_too(workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers.have(2)
    monkeypatch.syspath_prepend(str(workers.modules))
    import gated

    def interrupt() -> None:
        wait_until(lambda: len(list(tmp_path.glob("started-*"))) == 2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    presser = threading.Thread(target=interrupt, daemon=True)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have us ignore it in the background
    presser.start()
    items = [(str(number), number) for number in range(3)]
    try:
        with pytest.raises(KeyboardInterrupt):
            list(map_recordings(partial(gated.endless, tmp_path), items, cluster=Cluster(str(workers.file))))
        presser.join()
    finally:
        signal.signal(signal.SIGINT, before)
    wait_until(lambda: len(list(tmp_path.glob("stopped-*"))) == 2)
    assert len(list(tmp_path.glob("started-*"))) == 2  # the third was never begun


def test_what_goes_wrong_on_a_worker_is_said_in_one_line_with_its_cure(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers.have(2)
    monkeypatch.syspath_prepend(str(workers.modules))
    import gated

    own = Cluster(str(workers.file))
    with pytest.raises(InputError, match=r"^labels.csv:7: a bad label \(worker tcp://127.0.0.1:\d+\); mend it$"):
        list(map_recordings(gated.refuse, [("a", 7)], cluster=own))
    gone = tmp_path / "gone"
    with pytest.raises(InputError, match=r"gone: a worker does not see this folder .*; put it on a disk that all"):
        list(map_recordings(gated.refuse, [("a", 7)], cluster=own, reads=[gone]))
    with monkeypatch.context() as other:
        other.setattr(cluster_module, "_versions", lambda: {"stormpsr": "9.9"})
        with pytest.raises(InputError, match=r"stormpsr is .* on a worker and 9.9 where"):
            list(map_recordings(gated.refuse, [("a", 7)], cluster=own))
    with pytest.raises(InputError, match="no such scheduler file; give tcp"):
        list(map_recordings(gated.refuse, [("a", 7)], cluster=Cluster(str(tmp_path / "none.json"))))
    monkeypatch.setattr(cluster_module, "_PATIENCE", "1s")
    with pytest.raises(InputError, match=r"no scheduler answers at tcp://127.0.0.1:9; start one"):
        list(map_recordings(gated.refuse, [("a", 7)], cluster=Cluster("tcp://127.0.0.1:9")))
