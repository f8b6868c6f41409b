"""Recordings in a store that fsspec reads. What is copied is what is used, whole, and as new as the store's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stormpsr.data.dataset import Dataset
from stormpsr.data.layouts import find_recordings
from stormpsr.data.remote import is_store_address, local_path
from stormpsr.data.sources import Video, open_source
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

fsspec = pytest.importorskip("fsspec", reason="needs the extra 'remote': pip install '.[remote]'")
ADDRESS = "memory://bucket/data"
IN_TEST = f"{ADDRESS}/recordings/test/01_build_test"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STORMPSR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def store(lamp_data: Path, cache: Path) -> Iterator[Any]:
    """The lamp's data set in a store, one recording per split."""
    made = fsspec.filesystem("memory")
    for path in lamp_data.rglob("*"):
        if path.is_file():
            made.pipe_file(f"/bucket/data/{path.relative_to(lamp_data).as_posix()}", path.read_bytes())
    yield made
    made.rm("/bucket", recursive=True)


def copied_images(cache: Path) -> list[str]:
    return sorted(path.parts[-3] for path in cache.rglob("*.png"))


def test_a_data_set_in_a_store_is_what_it_is_on_disk(store: Any, lamp_data: Path, lamp: Procedure, cache: Path) -> None:
    there, here = Dataset.open(ADDRESS, "test", lamp), Dataset.open(lamp_data, "test", lamp)
    assert there.names == here.names
    assert [(f.name, f.split) for f in find_recordings(ADDRESS)] == [
        (f.name, f.split) for f in find_recordings(lamp_data)
    ]
    assert copied_images(cache) == []  # finding recordings needs none of their frames
    theirs, ours = there[0], here[0]
    assert (theirs.steps, theirs.states, theirs.fps, theirs.n_frames) == (ours.steps, ours.states, ours.fps, 20)
    assert theirs.fingerprint() == ours.fingerprint()
    for one, other in zip(theirs.frames(), ours.frames(), strict=True):
        np.testing.assert_array_equal(one.image, other.image)
    assert copied_images(cache) == 20 * ["01_build_test"]  # and nothing of the other splits
    assert theirs.reference().open(lamp).path == theirs.path


def test_the_procedure_beside_the_data_is_found(store: Any, lamp: Procedure) -> None:
    lamp_text = store.cat_file("/bucket/data/recordings/test/01_build_test/procedure.yaml")
    store.pipe_file("/bucket/data/procedure.yaml", lamp_text)
    assert Dataset.open(ADDRESS).procedure == lamp


def test_what_was_copied_is_not_copied_again_until_it_changes(
    store: Any, lamp: Procedure, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    get_file = type(store).get_file

    def counted(self: Any, rpath: str, *more: Any, **options: Any) -> None:
        fetched.append(rpath.rpartition("/")[2])
        get_file(self, rpath, *more, **options)

    monkeypatch.setattr(type(store), "get_file", counted)
    first = Dataset.open(ADDRESS, "test", lamp)[0]
    assert len(fetched) > 20
    fetched.clear()
    assert Dataset.open(ADDRESS, "test", lamp)[0].steps == first.steps
    assert fetched == []
    labels = "/bucket/data/recordings/test/01_build_test/PSR_labels.csv"
    store.pipe_file(labels, b"\n".join(store.cat_file(labels).splitlines()[:1]) + b"\n")
    assert len(Dataset.open(ADDRESS, "test", lamp)[0].steps or ()) == 1
    store.rm("/bucket/data/recordings/train", recursive=True)


def test_a_copy_that_breaks_off_leaves_none_and_the_next_one_is_whole(
    store: Any, lamp: Procedure, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_file = type(store).get_file

    def breaks_off(self: Any, rpath: str, *more: Any, **options: Any) -> None:
        if rpath.endswith("000007.png"):
            raise ConnectionError("the network is gone")
        get_file(self, rpath, *more, **options)

    data = Dataset.open(ADDRESS, "test", lamp)
    with monkeypatch.context() as broken:
        broken.setattr(type(store), "get_file", breaks_off)
        with pytest.raises(InputError, match=r"01_build_test: the store cannot be read \(ConnectionError: the network"):
            data[0]
    assert copied_images(cache) == []
    assert data[0].n_frames == 20
    assert len(copied_images(cache)) == 20


def test_recordings_and_videos_in_a_store_are_sources(
    store: Any, lamp: Procedure, lamp_data: Path, write_lamp: Callable[..., Path], tmp_path: Path
) -> None:
    there, here = (open_source(place, lamp) for place in (IN_TEST, lamp_data / "recordings/test/01_build_test"))
    for one, other in zip(there.frames(), here.frames(), strict=True):
        np.testing.assert_array_equal(one.image, other.image)
    video = write_lamp("test", "02_build", root=tmp_path / "videos", video=True) / "rgb.mp4"
    store.pipe_file("/bucket/a video.mp4", video.read_bytes())
    opened = open_source("memory://bucket/a video.mp4", lamp)
    assert isinstance(opened, Video)
    assert len(list(opened.frames())) == 20


def test_an_address_of_this_machines_disk_is_the_folder_itself(lamp_data: Path, lamp: Procedure, cache: Path) -> None:
    data = Dataset.open(f"file://{lamp_data}", "val", lamp)
    assert data.root == lamp_data
    assert data[0].path.is_relative_to(lamp_data)
    assert local_path(f"file://{lamp_data}/recordings") == lamp_data / "recordings"
    assert not cache.exists()


def test_what_is_not_there_is_named_without_its_password(store: Any, lamp: Procedure) -> None:
    with pytest.raises(InputError, match=r"^memory://bucket/nothing: there is no such folder; give the folder"):
        Dataset.open("memory://bucket/nothing", procedure=lamp)
    with pytest.raises(InputError, match=r"^memory://bucket/nothing: there is no such file or folder"):
        open_source("memory://bucket/nothing", lamp)
    with pytest.raises(InputError, match=r"^ftps3://host/data: there is no store of the kind ftps3://") as told:
        Dataset.open("ftps3://user:secret@host/data", procedure=lamp)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    "camera", ["rtsp://host/live", "http://host/stream.mjpg", "udp://127.0.0.1:5000", "rtmp://a/b"]
)
def test_cameras_stay_cameras(camera: str, lamp: Procedure) -> None:
    assert not is_store_address(camera)
    assert open_source(camera, lamp).is_live


def test_paths_are_no_addresses() -> None:
    assert not any(map(is_store_address, ("data/vehicle", "/data", "C:/data", "C:\\data", Path("a"), "0")))
