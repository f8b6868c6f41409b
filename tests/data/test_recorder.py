"""Recording: from frames to a recording that other commands open, whenever it ends."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stormpsr.cli.main import main
from stormpsr.data.dataset import Dataset
from stormpsr.data.layouts import RecordingFolder
from stormpsr.data.recorder import FRAME_TIMES_FILE, Recorder, at_most, copy_video, read_frame_times
from stormpsr.data.recording import open_recording
from stormpsr.data.sources import Frame
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure


def frames(times: list[float], size: tuple[int, int] = (48, 64)) -> Iterator[Frame]:
    """Frame i is grey of value 4 i."""
    for number, seconds in enumerate(times):
        yield Frame(np.full((*size, 3), 4 * number % 256, dtype=np.uint8), number, seconds)


EVEN = [5 + i / 10 for i in range(30)]  # a camera that has been on for five seconds
UNEVEN = [0.0, 0.1, 0.4, *(0.4 + 0.05 * i for i in range(1, 20)), *(3 + 0.3 * i for i in range(8))]


@pytest.mark.parametrize("video", [False, True], ids=["images", "video"])
def test_a_recording_has_the_frames_that_came(tmp_path: Path, lamp: Procedure, video: bool) -> None:
    with Recorder(tmp_path / "01_build", 30, {"source": "test"}, video=video) as recorder:
        for frame in frames(EVEN):
            recorder.add(frame)
    about = json.loads((tmp_path / "01_build" / "recording.json").read_text())
    assert about == {"fps": pytest.approx(10), "n_frames": 30, "source": "test"}
    assert not (tmp_path / "01_build" / FRAME_TIMES_FILE).exists()  # they came evenly
    found = open_recording(RecordingFolder("01_build", None, tmp_path / "01_build"), lamp)
    greys = [float(frame.image.mean()) for frame in found.frames()]
    assert greys == pytest.approx([4 * i for i in range(30)], abs=5)


@pytest.mark.parametrize("video", [False, True], ids=["images", "video"])
def test_uneven_times_are_kept(tmp_path: Path, video: bool) -> None:
    with Recorder(tmp_path / "r", 10, video=video) as recorder:
        for frame in frames(UNEVEN, (47, 63)):  # a size that is not even either
            recorder.add(frame)
    assert read_frame_times(tmp_path / "r") == pytest.approx(UNEVEN, abs=1e-4)


@pytest.mark.parametrize("video", [False, True], ids=["images", "video"])
def test_what_was_recorded_can_be_used_although_nobody_ended_it(tmp_path: Path, lamp: Procedure, video: bool) -> None:
    recorder = Recorder(tmp_path / "01_build", 10, video=video)
    for frame in frames(UNEVEN):
        recorder.add(frame)
    found = open_recording(RecordingFolder("01_build", None, tmp_path / "01_build"), lamp)  # nothing was closed
    least = len(UNEVEN) if not video else 20  # of a video, the last second may be missing
    assert found.n_frames >= least
    assert len(list(found.frames())) == found.n_frames
    with (tmp_path / "01_build" / FRAME_TIMES_FILE).open("a") as file:
        file.write("0000")  # a line that was being written
    times = read_frame_times(tmp_path / "01_build")
    assert times is not None
    assert times[: len(UNEVEN)] == pytest.approx(UNEVEN, abs=1e-4)
    recorder.close()


def test_a_frame_without_room_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(tmp_path / "r", 10)
    first, second = frames([0.0, 0.1])
    recorder.add(first)
    write = Path.write_bytes

    def half(path: Path, content: bytes) -> int:
        write(path, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", half)
        with pytest.raises(InputError, match="the disk is full"):
            recorder.add(second)
    recorder.close()
    assert [path.name for path in (tmp_path / "r" / "rgb").iterdir()] == ["000000.jpg"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    with pytest.raises(InputError, match="there is a recording already; choose another --name"):
        Recorder(tmp_path / "r", 10)
    with pytest.raises(InputError, match="there is a recording already"):
        copy_video(tmp_path / "film.mp4", tmp_path / "r")


def test_frames_are_thinned_to_a_rate() -> None:
    times = [i / 30 for i in range(90)]
    kept = [frame.index for frame in at_most(frames(times), 10)]
    assert kept == list(range(0, 90, 3))
    assert len(list(at_most(frames(times), None))) == 90
    assert [frame.index for frame in at_most(frames([0, 5, 5.01, 5.2]), 10)] == [0, 1, 3]


# ---------------------------------------------------------------------- the command
@pytest.fixture
def film(tmp_path: Path) -> Path:
    with Recorder(tmp_path / "film", 10, video=True) as recorder:
        for frame in frames(EVEN):
            recorder.add(frame)
    return tmp_path / "film" / "rgb.mp4"


def test_a_video_file_is_taken_over_as_it_is(
    tmp_path: Path, lamp: Procedure, film: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lamp.save(tmp_path / "lamp.yaml")
    data = tmp_path / "data"
    words = ["record", str(film), "--out", str(data), "--procedure", str(tmp_path / "lamp.yaml"), "--name", "01_build"]
    assert main(words) == 0
    assert "30 frames, 3.0 s, 10 frames per second" in capsys.readouterr().out
    assert (data / "recordings" / "01_build" / "rgb.mp4").read_bytes() == film.read_bytes()
    assert Dataset.open(data).procedure == lamp
    assert main(words) == 2
    assert "choose another --name" in capsys.readouterr().err
    assert main(["record", str(film), "--out", str(data), "--name", "02_build", "--split", "train", "--images"]) == 0
    assert len(list((data / "recordings" / "train" / "02_build" / "rgb").iterdir())) == 30
    assert main(["record", str(film), "--out", str(data), "--name", "03", "--procedure", "industreal"]) == 2
    assert "another procedure" in capsys.readouterr().err
    assert main(["record", str(film), "--out", str(data), "--name", "../03"]) == 2
    assert [folder.name for folder in Dataset.open(data).folders] == ["01_build", "02_build"]


ENDLESS = """
import signal, sys, time
import numpy as np
from stormpsr.data import sources
from stormpsr.data.sources import Frame

def endless(self, start=0):
    number = 0
    while True:
        yield Frame(np.full((48, 64, 3), number % 256, dtype=np.uint8), number, number / 20)
        number += 1
        print(number, flush=True)
        time.sleep(0.002)

sources.Camera.frames = endless
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may have switched it off
from stormpsr.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("form", ["--images", "--video"])
def test_a_camera_is_recorded_until_it_is_stopped_or_killed(
    tmp_path: Path, lamp: Procedure, how: signal.Signals, form: str
) -> None:
    lamp.save(tmp_path / "lamp.yaml")
    words = [
        "record",
        "0",
        "--out",
        str(tmp_path / "data"),
        "-p",
        str(tmp_path / "lamp.yaml"),
        "--name",
        "01_build",
        form,
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 80:
            break
    process.send_signal(how)
    out, err = process.communicate(timeout=120)
    folder = tmp_path / "data" / "recordings" / "01_build"
    recording = open_recording(RecordingFolder("01_build", None, folder), lamp)
    assert recording.n_frames >= 60  # of a video that was killed, the last second may be missing
    assert recording.fps == pytest.approx(20, rel=0.2)
    if how != signal.SIGKILL:
        assert process.returncode == 0, err
        assert f"{recording.n_frames} frames" in out
        about = json.loads((folder / "recording.json").read_text())
        assert about["n_frames"] == recording.n_frames
        assert about["recorded_at"]
