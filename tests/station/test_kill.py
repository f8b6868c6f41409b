"""However the station is killed: what was shown is recorded, the unit goes on, and what was filmed can be played."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stormpsr.station.records import Records, verify

PROGRAM = Path(__file__).with_name("scripted_station.py")


def run_and_kill(folder: Path, rng: random.Random) -> tuple[str, int, str]:
    """(state at the start, latest record that was shown, state that was shown with it) of a station that was killed."""
    process = subprocess.Popen([sys.executable, str(PROGRAM), str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    began = process.stdout.readline().split()[1]
    for _ in range(rng.randint(1, 6)):
        process.stdout.readline()
    time.sleep(rng.uniform(0, 0.05))  # any moment will do
    process.kill()
    shown = [line.split() for line in process.stdout.read().splitlines() if line.startswith("shown")]
    process.stdout.close()
    process.wait()
    whole = [line for line in shown if len(line) == 3 and len(line[2]) == len(began)]
    return began, int(whole[-1][1]) if whole else 0, whole[-1][2] if whole else began


def kill_often(folder: Path, times: int, seed: int) -> None:
    import av

    rng = random.Random(seed)
    state: str | None = None
    for _ in range(times):
        began, shown, _ = run_and_kill(folder, rng)
        if state is not None:
            assert began == state, "the unit goes on from its recorded state"
        verdict = verify(folder)
        assert verdict.problems == []
        assert verdict.n_records >= shown, "what was shown is recorded"
        assert verdict.n_deleted == 0, "images and clips that are named are there"
        records = Records(folder)
        (unit,) = {record.unit for record in records.find("kind = 'unit_started'")}
        from scripted_station import vehicle  # type: ignore[import-not-found]

        from stormpsr.station.work import Work

        work = Work.of(vehicle(), records.find("unit = ?", (unit,)))
        state = "".join("x" if bit < 0 else str(bit) for bit in work.bits)
        for clip in records.evidence.glob("*.mp4"):
            with av.open(str(clip)) as container:
                assert next(container.decode(video=0)) is not None
        records.close()


def test_a_station_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    kill_often(tmp_path / "station", times=2, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_station_that_is_killed_twenty_times_loses_nothing(tmp_path: Path) -> None:
    kill_often(tmp_path / "station", times=20, seed=2)
