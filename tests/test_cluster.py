"""Work on many recordings without a cluster, and what a worker refuses. With one: recognizer/test_on_cluster.py."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stormpsr import cluster
from stormpsr.cluster import OnProgress, map_recordings


def test_results_come_in_the_order_of_the_recordings_whoever_is_quicker() -> None:
    second_kept = threading.Event()
    kept: list[int] = []

    def work(item: int, report: OnProgress) -> int:
        if item == 1:
            second_kept.wait()  # the first ends after the second; and nothing that is made waits to be kept
        return 10 * item

    def keep(place: int, result: int) -> None:
        kept.append(place)
        second_kept.set()

    assert list(map_recordings(work, [("a", 1), ("b", 2)], threads=2, keep=keep)) == [10, 20]
    assert kept == [1, 0]


def test_one_at_a_time_the_next_is_not_begun_before_it_is_asked_for() -> None:
    begun: list[int] = []
    results = map_recordings(lambda item, _: begun.append(item), [("a", 1), ("b", 2)])
    next(results)
    assert begun == [1]


def test_what_fails_stops_the_others_before_they_are_waited_for() -> None:
    stopped = threading.Event()

    def work(item: int, report: OnProgress) -> None:
        if item == 2:
            raise ZeroDivisionError
        stopped.wait()

    with pytest.raises(ZeroDivisionError):
        list(map_recordings(work, [("a", 1), ("b", 2)], threads=2, on_stop=stopped.set))


def test_a_worker_refuses_other_versions_and_folders_that_it_does_not_see(tmp_path: Path) -> None:
    versions = cluster._versions()
    mark = tmp_path / "mark"
    mark.touch()
    same = cluster._Same(versions, (str(tmp_path),), (str(mark),))
    assert cluster._refused_by(same) is None
    other = cluster._refused_by(cluster._Same({**versions, "numpy": "0.9"}, (), ()))
    assert other is not None
    assert str(other.error("tcp://a:1")).startswith(f"numpy is {versions['numpy']} on a worker and 0.9 where")
    assert "(worker tcp://a:1); install the same version everywhere" in str(other.error("tcp://a:1"))
    missing = cluster._refused_by(cluster._Same(versions, (str(tmp_path / "data"),), ()))
    assert missing is not None
    assert missing.path == str(tmp_path / "data")
    mark.unlink()  # the folder is there, but it is not the one that was marked
    unmarked = cluster._refused_by(same)
    assert unmarked is not None
    assert "sees another one" in unmarked.problem


def test_what_a_worker_works_with_is_read_once_until_it_changes() -> None:
    assert cluster.loaded_once("digest 1", Path.cwd) == cluster.loaded_once("digest 1", Path.cwd)
    first = cluster._kept.value
    assert cluster.loaded_once("digest 1", Path.cwd) is first
    assert cluster.loaded_once("digest 2", Path.cwd) is not first


def test_dask_is_not_imported_unless_a_cluster_is_asked_for() -> None:
    use = """
import sys
import stormpsr.cli.main, stormpsr.recognizer.evaluate, stormpsr.synthetic.generate
print([name for name in sys.modules if name.split(".")[0] in ("dask", "distributed", "fsspec")])
"""
    done = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
