"""The store of embeddings: every frame once, the right encoder's, and clips cut without copying the recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from stormpsr.data.embedding_store import EmbeddingStore, Precision, read_clips
from stormpsr.data.sampling import clip_windows, window_offsets
from stormpsr.errors import InputError

IMAGES = np.random.default_rng(0).integers(0, 255, (30, 4, 4, 3), dtype=np.uint8)


class Encoder:
    """Mean of each colour; counts the images it is shown, and may be made to fail."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.seen = 0
        self.fail_after = fail_after

    def __call__(self, rows: slice) -> NDArray[np.float64]:
        if self.fail_after is not None and self.seen >= self.fail_after:
            raise KeyboardInterrupt
        self.seen += len(IMAGES[rows])
        return IMAGES[rows].mean(axis=(1, 2)) / 255


def store(folder: Path, digest: str = "abc", dtype: Precision = "float32") -> EmbeddingStore:
    return EmbeddingStore(folder, digest, 3, dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float16", 1e-3)])
def test_every_frame_is_encoded_once(tmp_path: Path, dtype: Precision, tolerance: float) -> None:
    encoder = Encoder()
    store(tmp_path, dtype=dtype).write("train/01", 30, 10.0, encoder, batch_size=7, images="p")
    embeddings = store(tmp_path, dtype=dtype).read("train/01", 30, 10.0, images="p")
    assert encoder.seen == 30
    assert embeddings.dtype == dtype
    assert_allclose(embeddings, IMAGES.mean(axis=(1, 2)) / 255, atol=tolerance)


def test_an_interrupted_run_is_continued_and_a_finished_one_left_alone(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        store(tmp_path).write("01", 30, 10.0, Encoder(fail_after=14), batch_size=7, images="p")
    again, idle = Encoder(), Encoder()
    store(tmp_path).write("01", 30, 10.0, again, batch_size=7, images="p")
    store(tmp_path).write("01", 30, 10.0, idle, batch_size=7, images="p")
    assert (again.seen, idle.seen) == (16, 0)
    assert_allclose(store(tmp_path).read("01", 30, 10.0, images="p"), IMAGES.mean(axis=(1, 2)) / 255, atol=1e-6)


def test_a_store_of_another_encoder_is_refused_for_reading_and_writing(tmp_path: Path) -> None:
    store(tmp_path, "abc").write("01", 30, 10.0, Encoder(), images="p")
    other = store(tmp_path, "xyz")
    with pytest.raises(InputError, match="encoder is 'abc' there and 'xyz' here; delete the store"):
        other.read("01", 30, 10.0, images="p")
    with pytest.raises(InputError, match="of another encoder"):
        other.write("01", 30, 10.0, Encoder(), images="p")


def test_a_recording_that_has_grown_is_refused(tmp_path: Path) -> None:
    store(tmp_path).write("01", 30, 10.0, Encoder(), images="p")
    with pytest.raises(InputError, match="n_rows is 30 there and 31 here"):
        store(tmp_path).read("01", 31, 10.0, images="p")


def test_a_store_of_other_images_is_refused_for_reading_and_writing(tmp_path: Path) -> None:
    store(tmp_path).write("01", 30, 10.0, Encoder(), images="p")
    with pytest.raises(InputError, match="of other images: images is 'p' there and 'q' here; delete the store"):
        store(tmp_path).read("01", 30, 10.0, images="q")
    with pytest.raises(InputError, match="of other images"):
        store(tmp_path).write("01", 30, 10.0, Encoder(), images="q")


def test_numbers_that_the_store_cannot_hold_are_refused(tmp_path: Path) -> None:
    for value in (np.nan, np.inf, 70_000.0):
        with pytest.raises(InputError, match="float16 cannot hold"):
            store(tmp_path, dtype="float16").write(
                "01", 30, 10.0, lambda rows, v=value: np.full((len(IMAGES[rows]), 3), v), images="p"
            )


def test_clips_of_several_recordings_are_read_with_zeros_where_frames_do_not_exist() -> None:
    stores = [np.full((10, 2), 1.0, dtype=np.float16), np.arange(40, dtype=np.float16).reshape(20, 2)]
    frames, mask = clip_windows(np.array([3, 12]), window_offsets(8, 4))
    clips = read_clips(stores, np.array([0, 1]), frames, mask)
    assert clips.dtype == np.float32
    assert_array_equal(clips[0], [[0, 0], [0, 0], [1, 1], [1, 1]])
    assert_array_equal(clips[1], [[12, 13], [16, 17], [20, 21], [24, 25]])
