"""A video that is being written can be played up to the last seconds, however the program ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from stormpsr.recognizer.draw import AnnotatedVideo
rng = np.random.default_rng(0)
with AnnotatedVideo(Path(sys.argv[1]), fps=10) as video:
    for index in range(200):
        video.add(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8), index / 10)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("name", ["film.mp4", "film.mov", "film.mkv"])
def test_a_video_can_be_played_after_the_program_was_killed(tmp_path: Path, name: str) -> None:
    import av

    path = tmp_path / name
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=200)
    assert done.returncode < 0
    with av.open(str(path)) as film:
        n_frames = 0
        try:
            for _ in film.decode(video=0):
                n_frames += 1
        except av.error.FFmpegError:  # the end of the last part is missing
            pass
    assert n_frames >= 100, "ten of the twenty seconds at least: an encoder looks some seconds ahead"


def test_a_full_disk_is_told_of_the_video_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    from stormpsr.errors import InputError
    from stormpsr.recognizer.draw import AnnotatedVideo

    class Full:
        def mux(self, packets: object) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            pass

    video = AnnotatedVideo(tmp_path / "film.mp4", fps=10)
    image = np.zeros((64, 64, 3), np.uint8)
    video.add(image, 0.0)
    video._container.close()
    video._container = Full()
    with pytest.raises(InputError, match=r"film\.mp4: the disk is full"):
        video.add(image, 0.1)
    with pytest.raises(InputError, match=r"film\.mp4: the disk is full"):
        video.__exit__(None, None, None)
