"""Recordings: frames from images and videos, labels, and what is said about damaged ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from unittest.mock import patch

import cv2
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from stormpsr.data.frame_cache import FrameCache
from stormpsr.data.images import letterbox
from stormpsr.data.layouts import RecordingFolder
from stormpsr.data.recording import Recording, open_recording
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

SIZE = 16
RAW = "000000.jpg,0,0,0\n000003.jpg,1,0,0\n000005.jpg,1,-1,0\n"


def picture(number: int) -> np.ndarray:
    """Grey, brighter from frame to frame, red in the upper left corner."""
    image = np.full((SIZE, SIZE, 3), 20 * number, dtype=np.uint8)
    image[:4, :4] = (200, 0, 0)
    return image


def write_images(folder: Path, numbers: range) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        cv2.imwrite(str(folder / f"{number:06d}.png"), picture(number)[:, :, ::-1])


def write_video(path: Path, n: int) -> None:
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=5)
        stream.width = stream.height = SIZE
        stream.pix_fmt = "yuv444p"
        stream.options = {"crf": "0"}
        for number in range(n):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture(number), format="rgb24")))
        container.mux(stream.encode())


@pytest.fixture
def folder(tmp_path: Path) -> RecordingFolder:
    path = tmp_path / "train" / "01_build_0_1"
    write_images(path / "rgb", range(8))
    (path / "PSR_labels_raw.csv").write_text(RAW)
    (path / "PSR_labels.csv").write_text("000003.jpg,0,Install foot\n")
    return RecordingFolder("01_build_0_1", "train", path)


def test_frames_come_in_order_with_their_times(folder: RecordingFolder, lamp: Procedure) -> None:
    recording = open_recording(folder, lamp)
    frames = list(recording.frames())
    assert [frame.index for frame in frames] == list(range(8))
    assert frames[3].time_seconds == pytest.approx(0.3)
    for frame in frames:
        assert_array_equal(frame.image, picture(frame.index))


def test_reading_may_start_anywhere(folder: RecordingFolder, lamp: Procedure) -> None:
    assert [frame.index for frame in open_recording(folder, lamp).frames(start=6)] == [6, 7]


def test_labels_are_states_over_time_and_steps(folder: RecordingFolder, lamp: Procedure) -> None:
    recording = open_recording(folder, lamp)
    assert recording.states_FC.tolist() == [[0, 0, 0]] * 3 + [[1, 0, 0]] * 2 + [[1, -1, 0]] * 3
    assert [(step.frame, step.step_id) for step in recording.steps or ()] == [(3, 0)]


def test_without_a_file_of_states_they_follow_from_the_steps(folder: RecordingFolder, lamp: Procedure) -> None:
    (folder.path / "PSR_labels_raw.csv").unlink()
    (folder.path / "PSR_labels_with_errors.csv").write_text("000003.jpg,0,Install foot\n000005.jpg,4,wrong pole\n")
    assert open_recording(folder, lamp).states_FC[[2, 3, 5]].tolist() == [[0, 0, 0], [1, 0, 0], [1, -1, 0]]


def test_a_recording_without_labels_has_frames_all_the_same(folder: RecordingFolder, lamp: Procedure) -> None:
    for path in folder.path.glob("*.csv"):
        path.unlink()
    recording = open_recording(folder, lamp)
    assert recording.n_frames == 8
    with pytest.raises(InputError, match="no labels"):
        _ = recording.states_FC


def test_images_may_be_counted_from_one(folder: RecordingFolder, lamp: Procedure) -> None:
    (folder.path / "rgb" / "000000.png").unlink()
    recording = open_recording(folder, lamp)
    assert recording.n_frames == 8
    assert [frame.index for frame in recording.frames()] == [1, 2, 3, 4, 5, 6, 7]
    assert_array_equal(next(recording.images_at([0])), picture(1))


def only_every_third(folder: RecordingFolder, n_frames: int = 8) -> None:
    for path in (folder.path / "rgb").iterdir():
        if int(path.stem) % 3:
            path.unlink()
    (folder.path / "recording.json").write_text(f'{{"n_frames": {n_frames}, "frame_step": 3}}')


def test_images_may_be_those_of_every_so_many_frames(folder: RecordingFolder, lamp: Procedure) -> None:
    only_every_third(folder)
    recording = open_recording(folder, lamp)
    assert recording.n_frames == 8
    assert recording.states_FC.tolist() == [[0, 0, 0]] * 3 + [[1, 0, 0]] * 2 + [[1, -1, 0]] * 3
    frames = list(recording.frames())
    assert [frame.index for frame in frames] == [0, 3, 6]
    assert [frame.time_seconds for frame in frames] == pytest.approx([0.0, 0.3, 0.6])
    for number, shown in ((0, 0), (2, 0), (3, 3), (7, 6)):
        assert_array_equal(next(recording.images_at([number])), picture(shown))


def test_an_image_that_is_missing_among_every_so_many_is_named(folder: RecordingFolder, lamp: Procedure) -> None:
    only_every_third(folder)
    (folder.path / "rgb" / "000003.png").unlink()
    with pytest.raises(InputError, match="the image of frame 3 is missing"):
        open_recording(folder, lamp)


@pytest.mark.parametrize("n_frames", [6, 10])
def test_as_many_frames_must_come_as_are_announced(folder: RecordingFolder, lamp: Procedure, n_frames: int) -> None:
    only_every_third(folder, n_frames)
    with pytest.raises(InputError, match=f"go up to frame 6, but {n_frames} frames are announced"):
        open_recording(folder, lamp)


@pytest.mark.parametrize("n_frames", [7, 9])
def test_where_every_frame_has_an_image_there_are_as_many_as_announced(
    folder: RecordingFolder, lamp: Procedure, n_frames: int
) -> None:
    (folder.path / "recording.json").write_text(json.dumps({"fps": 10, "n_frames": n_frames}))
    with pytest.raises(InputError, match=f"go up to frame 7, but {n_frames} frames are announced"):
        open_recording(folder, lamp)
    (folder.path / "recording.json").write_text(json.dumps({"fps": 10, "n_frames": 8}))
    assert open_recording(folder, lamp).n_frames == 8


def test_a_video_gives_the_same_frames(tmp_path: Path, lamp: Procedure) -> None:
    write_video(tmp_path / "rgb.mp4", 6)
    recording = open_recording(RecordingFolder("01_build", None, tmp_path), lamp)
    assert (recording.n_frames, recording.fps) == (6, 5.0)
    images = [frame.image for frame in recording.frames()]
    for number, image in enumerate(images):
        assert np.abs(image[8:].astype(int) - 20 * number).max() <= 3
        assert image[0, 0, 0] > 180 > 40 > image[0, 0, 2]
    later = list(recording.frames(start=4))
    assert [frame.index for frame in later] == [4, 5]
    assert_array_equal(later[0].image, images[4])


def test_a_video_shorter_than_announced_is_refused(tmp_path: Path, lamp: Procedure) -> None:
    write_video(tmp_path / "rgb.mp4", 6)
    (tmp_path / "recording.json").write_text(json.dumps({"n_frames": 9, "fps": 12}))
    recording = open_recording(RecordingFolder("01_build", None, tmp_path), lamp)
    assert recording.fps == 12
    with pytest.raises(InputError, match="ends too early, after 6 of 9 frames"):
        list(recording.frames())


def test_a_damaged_video_is_refused(tmp_path: Path, lamp: Procedure) -> None:
    (tmp_path / "rgb.mp4").write_bytes(b"not a video")
    with pytest.raises(InputError, match=r"rgb\.mp4: it cannot be opened"):
        open_recording(RecordingFolder("01_build", None, tmp_path), lamp)


def test_a_missing_frame_is_named(folder: RecordingFolder, lamp: Procedure) -> None:
    (folder.path / "rgb" / "000005.png").unlink()
    with pytest.raises(InputError, match="the image of frame 5 is missing"):
        open_recording(folder, lamp)


def test_a_damaged_frame_is_named_when_it_is_read(folder: RecordingFolder, lamp: Procedure) -> None:
    (folder.path / "rgb" / "000005.png").write_bytes(b"x")
    with pytest.raises(InputError, match=r"000005\.png: this is not an image"):
        list(open_recording(folder, lamp).frames())


def test_labels_beyond_the_last_frame_are_refused(folder: RecordingFolder, lamp: Procedure) -> None:
    (folder.path / "PSR_labels_raw.csv").write_text(RAW + "000008.jpg,1,1,0\n")
    with pytest.raises(InputError, match="a label in frame 8, but there are only 8 frames"):
        open_recording(folder, lamp)


def test_labels_of_another_procedure_are_refused(folder: RecordingFolder, meccano: Procedure) -> None:
    with pytest.raises(InputError, match="17 components"):
        open_recording(folder, meccano)


def test_a_recording_without_frames_is_refused(tmp_path: Path, lamp: Procedure) -> None:
    with pytest.raises(InputError, match="neither images nor a video"):
        open_recording(RecordingFolder("x", None, tmp_path), lamp)


# ---------------------------------------------------------------------- cache
@pytest.fixture
def recording(folder: RecordingFolder, lamp: Procedure) -> Recording:
    return open_recording(folder, lamp)


def test_cached_frames_are_the_frames_at_training_size(recording: Recording, tmp_path: Path) -> None:
    cache = FrameCache(tmp_path / "cache", 8)
    assert cache.missing_bytes([recording.source]) == 8 * 8 * 8 * 3
    cache.fill(recording.source)
    assert cache.missing_bytes([recording.source]) == 0
    frames = cache.frames(recording.source)
    for number in range(8):
        assert_array_equal(frames[number], letterbox(picture(number), 8)[0])
    assert frames[5][0, 0].tolist() == [200, 0, 0]
    assert frames[5][7, 7].tolist() == [100, 100, 100]
    assert_array_equal(frames[np.array([[1, 5]])], [[frames[1], frames[5]]])


@pytest.mark.parametrize("size", [8, SIZE])
def test_frames_without_an_image_are_shown_by_the_one_before(
    folder: RecordingFolder, lamp: Procedure, tmp_path: Path, size: int
) -> None:
    only_every_third(folder)
    frames = FrameCache(tmp_path / "cache", size).frames(open_recording(folder, lamp).source)
    shown = [letterbox(picture(number), size)[0] for number in (0, 0, 0, 3, 3, 3, 6, 6)]
    assert_array_equal(frames[np.arange(8)], shown)
    assert_array_equal(frames[4], shown[4])


def test_images_of_the_right_size_are_read_from_their_files_and_fill_no_disk(
    recording: Recording, tmp_path: Path
) -> None:
    cache = FrameCache(tmp_path / "cache", SIZE)
    assert cache.missing_bytes([recording.source]) == 0
    assert not cache.is_filled(recording.source)
    assert_array_equal(cache.frames(recording.source)[5], picture(5))
    assert cache.is_filled(recording.source)
    assert sum(path.stat().st_size for path in cache.folder.rglob("*") if path.is_file()) < 100


def test_a_damaged_image_of_the_right_size_is_named_before_anything_is_read(
    recording: Recording, tmp_path: Path
) -> None:
    cut = recording.path / "rgb" / "000005.png"
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"000005\.png: this is not an image; it may be cut short"):
        FrameCache(tmp_path / "cache", SIZE).frames(recording.source)


@pytest.mark.parametrize("frames", ["some", 3, [1, None], [[1]], {"a": 1}, [1.5]])
def test_a_header_that_names_no_frames_is_made_again(recording: Recording, tmp_path: Path, frames: object) -> None:
    cache = FrameCache(tmp_path / "cache", 8)
    cache.fill(recording.source, [1, 4])
    header = cache.rows(recording.source, [1, 4]).header_path
    about = json.loads(header.read_text())
    assert about["made_from"]["frames"] == [1, 4]
    header.write_text(json.dumps({**about, "made_from": {**about["made_from"], "frames": frames}}))
    assert_array_equal(cache.frames(recording.source, [2, 4])[4], letterbox(picture(4), 8)[0])


def test_a_mark_that_is_no_text_makes_images_be_looked_at_again(recording: Recording, tmp_path: Path) -> None:
    cache = FrameCache(tmp_path / "cache", SIZE)
    cache.frames(recording.source)
    (mark,) = cache.folder.rglob("*.checked")
    mark.write_bytes(b"\xff")
    assert not cache.is_filled(recording.source)
    cache.frames(recording.source)
    assert cache.is_filled(recording.source)


def test_a_full_cache_reads_no_image_again(recording: Recording, tmp_path: Path) -> None:
    cache = FrameCache(tmp_path / "cache", 8)
    cache.fill(recording.source)
    with patch("stormpsr.data.sources.read_image", side_effect=AssertionError):
        cache.fill(recording.source)
    assert cache.frames(recording.source)[5][7, 7].tolist() == [100, 100, 100]


def test_an_interrupted_cache_is_continued(recording: Recording, tmp_path: Path) -> None:
    cache = FrameCache(tmp_path / "cache", 8)
    cache.fill(recording.source)
    whole = cache.frames(recording.source)[np.arange(8)]
    with cache.rows(recording.source).data_path.open("r+b") as file:
        file.truncate(3 * 8 * 8 * 3 + 5)
    seen: list[tuple[int, int]] = []
    cache.fill(recording.source, on_progress=lambda done, of: seen.append((done, of)))
    assert seen == [(8, 8)]
    assert_array_equal(cache.frames(recording.source)[np.arange(8)], whole)


def test_changed_images_are_cached_anew(recording: Recording, folder: RecordingFolder, tmp_path: Path) -> None:
    cache = FrameCache(tmp_path / "cache", 8)
    cache.fill(recording.source)
    noise = np.random.default_rng(0).integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8)
    cv2.imwrite(str(folder.path / "rgb" / "000002.png"), noise)
    cache.fill(recording.source)
    assert_array_equal(cache.frames(recording.source)[2], letterbox(noise[:, :, ::-1], 8)[0])


def test_frames_that_were_cached_with_another_geometry_are_cached_anew(recording: Recording, tmp_path: Path) -> None:
    cache = FrameCache(tmp_path / "cache", 8)
    cache.fill(recording.source)
    header = cache.rows(recording.source).header_path
    header.write_text(header.read_text().replace("letterbox", "squash"))
    assert cache.missing_bytes([recording.source]) == 8 * 8 * 8 * 3
    cache.fill(recording.source)
    assert cache.missing_bytes([recording.source]) == 0


def test_only_frames_that_are_asked_for_are_decoded_and_more_are_added(recording: Recording, tmp_path: Path) -> None:
    cache, source = FrameCache(tmp_path / "cache", 8), recording.source
    some = cache.frames(source, [5, 2])
    assert cache.rows(source, [2]).n_rows == some.image_FSS3.shape[0] == 2
    assert_array_equal(some[5], letterbox(picture(5), 8)[0])
    more = cache.frames(source, [7])
    assert more.number_F.tolist() == [2, 5, 7]
    assert_array_equal(more[7], letterbox(picture(7), 8)[0])
    assert_array_equal(more[2], some[2])


def test_a_file_of_all_frames_serves_those_who_want_a_few(recording: Recording, tmp_path: Path) -> None:
    cache, source = FrameCache(tmp_path / "cache", 8), recording.source
    cache.frames(source, [3])
    cache.fill(source)  # all of them replace the few
    assert cache.rows(source).n_rows == 8
    with patch("stormpsr.data.sources.read_image", side_effect=AssertionError):  # what is there is not decoded again
        assert_array_equal(cache.frames(source, [3])[3], letterbox(picture(3), 8)[0])


def test_an_image_that_is_cut_short_is_named_when_the_cache_is_filled(recording: Recording, tmp_path: Path) -> None:
    cut = recording.path / "rgb" / "000005.png"
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"000005\.png: this is not an image; it may be cut short"):
        FrameCache(tmp_path / "cache", 8).fill(recording.source)


def test_a_disk_too_small_for_all_recordings_is_complained_of_before_the_first_is_decoded(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = FrameCache(tmp_path / "new" / "cache", 8)
    free = cache.missing_bytes([recording.source]) + 10
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(free, 0, free))  # type: ignore[attr-defined]
    cache.check_room([recording.source])
    with pytest.raises(InputError, match="frames-8: the disk is full"):
        cache.check_room([recording.source] * 2)
    assert not cache.folder.exists()
