"""What splits by recording: done here one after the other, here several at a time, or by the workers of a Dask cluster.

A worker that fails or is lost costs the recording that it was at, which another one does again. Results come in the
order of the recordings, whoever made them. Dask is imported when a cluster is asked for, and not before.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import as_completed as threads_completed
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from stormpsr import __version__
from stormpsr.errors import InputError, StormPSRError, need_packages
from stormpsr.files import digest

Item = TypeVar("Item")
Result = TypeVar("Result")
OnProgress = Callable[[str, int, int], None]  # recording, frames done, frames in all

_TOPIC = "stormpsr"  # under which workers tell how far they are
_RETRIES = 2  # of a recording whose work failed otherwise than by bad input; lost workers are counted by Dask
_PATIENCE = "15s"
_DECIDING = ("numpy", "torch", "onnxruntime", "opencv-python-headless", "vtk")  # packages that results depend on


def _nothing() -> None:
    """Some work needs no more than its item."""


@dataclass(frozen=True)
class Cluster:
    """Workers of Dask, and how they get what they work with."""

    where: str  # the scheduler's address, tcp://host:8786, or the file that it writes with --scheduler-file
    load: Callable[[], Any] = _nothing  # what they work with, a network for example; must be picklable
    reads: tuple[Path, ...] = ()  # folders that `load` needs


class ClusterError(StormPSRError):
    """Workers were lost again and again, or the scheduler is gone."""


def map_recordings(
    work: Callable[[Item, OnProgress], Result],
    items: Iterable[tuple[str, Item]],
    *,
    cluster: Cluster | None = None,
    threads: int = 1,
    reads: Sequence[Path] = (),
    writes: Sequence[Path] = (),
    keep: Callable[[int, Result], None] | None = None,
    on_progress: OnProgress | None = None,
    on_stop: Callable[[], None] | None = None,
) -> Generator[Result, None, None]:
    """`work` on every item, which come with their recordings' names; results in the order of the items.

    threads: how many at a time without a cluster; `work` then has processes of its own. reads, writes: folders that
    the workers of a cluster must see as we see them. keep: is given each result and its place at once, in whatever
    order they come. on_stop: called when not all results are wanted any more, before we wait for what is still at work.
    """
    report = on_progress or _ignore
    if cluster is None and threads == 1:
        for place, (_, item) in enumerate(items):
            result = work(item, report)
            if keep is not None:
                keep(place, result)
            yield result
        return
    pairs = list(items)
    if not pairs:
        return
    made: dict[int, Result] = {}
    at = 0
    if cluster is None:
        completed = _in_threads(work, pairs, threads, report, on_stop or (lambda: None))
    else:
        completed = _on_cluster(cluster, work, pairs, (*cluster.reads, *reads), writes, report)
    with closing(completed):
        for index, result in completed:
            if keep is not None:
                keep(index, result)
            made[index] = result
            while at in made:
                yield made.pop(at)
                at += 1


def _ignore(name: str, done: int, of: int) -> None:
    """Nobody wants to know."""


def _in_threads(
    work: Callable[[Item, OnProgress], Result],
    pairs: Sequence[tuple[str, Item]],
    threads: int,
    report: OnProgress,
    on_stop: Callable[[], None],
) -> Generator[tuple[int, Result], None, None]:
    with ThreadPoolExecutor(max_workers=threads) as executor:
        try:
            futures = {executor.submit(work, item, report): index for index, (_, item) in enumerate(pairs)}
            for future in threads_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            on_stop()
            executor.shutdown(cancel_futures=True)
            raise


# ---------------------------------------------------------------------- here
def _on_cluster(
    cluster: Cluster,
    work: Callable[[Item, OnProgress], Result],
    pairs: Sequence[tuple[str, Item]],
    reads: Sequence[Path],
    writes: Sequence[Path],
    report: OnProgress,
) -> Generator[tuple[int, Result], None, None]:
    need_packages("--cluster", "cluster", "distributed")
    from distributed import CancelledError, KilledWorker, as_completed

    token = uuid4().hex

    def hear(event: tuple[float, dict[str, Any]]) -> None:
        said = event[1]
        if said["run"] == token:
            report(pairs[said["index"]][0], said["done"], said["of"])

    with _connected(cluster.where) as client, _marked(writes, token) as marks:
        same = _Same(_versions(), tuple(str(folder.resolve()) for folder in reads), marks)
        _check_workers(client, same, cluster.where)
        client.subscribe_topic(_TOPIC, hear)
        futures = {
            client.submit(
                _on_worker, work, item, (token, index), same, key=f"{name}-{token}", pure=False, retries=_RETRIES
            ): index
            for index, (name, item) in enumerate(pairs)
        }
        try:
            for future in as_completed(list(futures), loop=client.loop):
                index, name = futures[future], pairs[futures[future]][0]
                try:
                    answer = future.result()
                except KilledWorker as error:
                    problem = f"several workers were lost while they were at recording {name}"
                    cure = "their logs say why (memory?); the same command goes on with what is missing"
                    raise ClusterError(f"{problem}; {cure}") from error
                except CancelledError as error:
                    problem = "the scheduler is gone, or somebody cancelled the work"
                    raise ClusterError(f"{problem}; the same command goes on with what is missing") from error
                if isinstance(answer, _Refusal):
                    raise answer.error()
                report(name, 1, 1)
                yield index, answer
        finally:
            with suppress(Exception):  # the scheduler may be gone
                client.cancel(list(futures))


@contextmanager
def _connected(where: str) -> Iterator[Any]:
    from distributed import Client

    file = None if "://" in where else Path(where)
    if file is not None and not file.is_file():
        cure = "give tcp://host:8786, or the file that 'dask scheduler --scheduler-file FILE' has written"
        raise InputError("there is no such scheduler file", path=file, cure=cure)
    address = {"address": where} if file is None else {"scheduler_file": str(file)}
    try:
        client = Client(**address, timeout=_PATIENCE, set_as_default=False, name="stormpsr")
    except (OSError, ValueError, KeyError) as error:  # time-outs are OSErrors
        problem = f"no scheduler answers at {where}"
        raise InputError(problem, cure="start one with 'dask scheduler', and check host, port and network") from error
    with client:
        yield client


@contextmanager
def _marked(folders: Sequence[Path], token: str) -> Iterator[tuple[str, ...]]:
    """A hidden file in every folder until the block ends: who finds it looks at the same disk.

    A folder of the same name that lies on another machine's own disk has none.
    """
    marks = [folder.resolve() / f".cluster-{token}" for folder in folders]
    try:
        for mark in marks:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        yield tuple(map(str, marks))
    finally:
        for mark in marks:
            mark.unlink(missing_ok=True)


def _check_workers(client: Any, same: _Same, where: str) -> None:
    """Refuse workers that would give other results, before any work is done. Who joins later is asked, too."""
    try:
        client.wait_for_workers(1, timeout=_PATIENCE)
    except TimeoutError as error:
        cure = f"start some: dask worker {where} --nthreads 1"
        raise InputError(f"the scheduler at {where} has no workers", cure=cure) from error
    for address, answer in client.run(_refused_by, same, on_error="return").items():
        if isinstance(answer, ImportError):
            cure = "install the same version there, and start the worker again"
            raise InputError(f"worker {address} has no stormpsr, or another version of it ({answer})", cure=cure)
        if isinstance(answer, BaseException):
            raise ClusterError(f"worker {address} does not answer: {answer}") from answer
        if answer is not None:
            raise answer.error(address)


# ---------------------------------------------------------------------- on a worker
@dataclass(frozen=True)
class _Same:
    """What must be the same on a worker as here."""

    versions: dict[str, str]
    folders: tuple[str, ...]
    marks: tuple[str, ...]


@dataclass(frozen=True)
class _Refusal:
    """An error that the user can cure, on its way from a worker."""

    problem: str
    path: str | None = None
    line: int | None = None
    cure: str | None = None
    worker: str | None = None

    def error(self, worker: str | None = None) -> InputError:
        where = worker or self.worker
        problem = f"{self.problem} (worker {where})" if where else self.problem
        return InputError(problem, path=self.path, line=self.line, cure=self.cure)


class _CancelledError(BaseException):
    """Nobody waits for the result any more."""


def _on_worker(
    work: Callable[[Item, OnProgress], Result], item: Item, run: tuple[str, int], same: _Same
) -> Result | _Refusal:
    """One recording, in a thread of a worker."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()
    token, index = run
    told = -1

    def report(_: str, done: int, of: int) -> None:
        nonlocal told
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise _CancelledError
        percent = 100 * done // max(of, 1)
        if percent != told:
            told = percent
            worker.log_event(_TOPIC, {"run": token, "index": index, "done": done, "of": of})

    refusal = _refused_by(same)
    if refusal is None:
        try:
            return work(item, report)
        except InputError as error:
            refusal = _Refusal(error.problem, error.path, error.line, error.cure)
        except StormPSRError as error:
            refusal = _Refusal(str(error))
        except _CancelledError:
            refusal = _Refusal("cancelled")
    return _Refusal(refusal.problem, refusal.path, refusal.line, refusal.cure, worker.address)


def _refused_by(same: _Same) -> _Refusal | None:
    """What is different here, or None."""
    ours = _versions()
    for name, theirs in same.versions.items():
        if ours.get(name, theirs) != theirs:  # what a worker misses, its work will name if it needs it
            problem = f"{name} is {ours[name]} on a worker and {theirs} where the command was given"
            return _Refusal(problem, cure="install the same version everywhere, and start the worker again")
    for folder in same.folders:
        if not Path(folder).exists():
            return _Refusal(
                "a worker does not see this folder", folder, cure="put it on a disk that all machines have at this path"
            )
    for mark in map(Path, same.marks):
        with suppress(OSError):
            next(mark.parent.iterdir(), None)  # a network disk may remember what was not there a moment ago
        if not mark.exists():
            cure = "put it on a disk that all machines have at this path"
            return _Refusal("a worker does not see this folder, or sees another one", str(mark.parent), cure=cure)
    return None


@cache
def _versions() -> dict[str, str]:
    """What results depend on: our version and text, and the packages that compute."""
    found = {"stormpsr": f"{__version__} ({digest(*sorted(Path(__file__).parent.rglob('*.py')))})"}
    here = {found.metadata["Name"]: found.version for found in metadata.distributions()}
    return found | {name: here[name] for name in _DECIDING if name in here}


_kept = threading.local()  # a thread's own: networks are not shared between threads


def loaded_once(key: str, load: Callable[[], Result]) -> Result:
    """What a worker's thread works with, read once for all its recordings. `key` says what it must have been read from.

    One thing is kept, the latest.
    """
    full = (key, pickle.dumps(load))
    if getattr(_kept, "key", None) != full:
        _kept.key = _kept.value = None
        _kept.value = load()
        _kept.key = full
    value: Result = _kept.value
    return value
