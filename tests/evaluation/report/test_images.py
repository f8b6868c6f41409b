"""Frames in the page: small, few, and never a reason to have no report."""

from __future__ import annotations

import base64
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from stormpsr.evaluation.report.images import Album, Image


def frame(number: int, height: int = 48, width: int = 64) -> NDArray[np.uint8]:
    return np.full((height, width, 3), 10 * number, np.uint8)


def grey(picture: Image) -> int:
    """The grey of an image, to tell frames apart."""
    head, _, data = picture.uri.partition(",")
    assert head == "data:image/jpeg;base64"
    image = cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_COLOR)
    assert image.shape == (picture.height, picture.width, 3)
    return round(float(image.mean()) / 10)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "rgb"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number:06d}.png").write_bytes(cv2.imencode(".png", frame(number))[1].tobytes())
    return folder


def test_the_frames_that_are_asked_for_are_read(images: Path) -> None:
    album = Album.of(images, [3, 7, 3])
    assert album.problem is None
    assert {number: grey(picture) for number, picture in album.images.items()} == {3: 3, 7: 7}


def test_frames_of_a_video_are_counted(tmp_path: Path) -> None:
    import av

    path = tmp_path / "rgb.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(12):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame(number), format="rgb24")))
        container.mux(stream.encode())
    album = Album.of(path, [2, 9, 11])
    assert album.problem is None
    assert {number: grey(picture) for number, picture in album.images.items()} == {2: 2, 9: 9, 11: 11}


def test_a_large_frame_is_made_smaller() -> None:
    picture = Image(frame(5, height=720, width=1280))
    assert (picture.width, picture.height) == (160, 90)
    assert grey(picture) == 5


def test_frames_that_a_recording_does_not_have_are_left_out(images: Path) -> None:
    assert list(Album.of(images, [-3, 11, 12]).images) == [11]


def test_frames_that_are_gone_are_a_reason_and_no_error(tmp_path: Path) -> None:
    album = Album.of(tmp_path / "gone", [1])
    assert album.images == {}
    assert album.problem == f"{tmp_path / 'gone'}: the frames are not there any more"
    assert Album.of(None, [1]).problem == "the run does not say where the frames are"


def test_a_damaged_image_is_a_reason_and_the_others_are_shown(images: Path) -> None:
    (images / "000005.png").write_bytes(b"not an image")
    album = Album.of(images, [2, 5])
    assert list(album.images) == [2]
    assert "000005.png: this is not an image" in (album.problem or "")


def test_a_missing_package_is_a_reason(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    assert Album.of(images, [2]).problem == "images need cv2; run: pip install 'stormpsr[detect]'"
