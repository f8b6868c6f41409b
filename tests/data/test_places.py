"""Where parts belong and where they are, as a file."""

from pathlib import Path

import numpy as np
import pytest

from stormpsr.data.places import PLACES_FILE, places_in, write_places
from stormpsr.errors import InputError

PLACES = np.random.default_rng(0).random((5, 3, 6, 2)).astype(np.float32)


def test_the_file_reads_back_what_was_written(tmp_path: Path) -> None:
    some = np.where(PLACES > 0.9, np.nan, PLACES)
    write_places(tmp_path, some)
    found = places_in(tmp_path, 3)
    assert found is not None
    assert np.array_equal(found, some, equal_nan=True)


def test_where_nobody_measured_there_are_none(tmp_path: Path) -> None:
    assert places_in(tmp_path, 3) is None


@pytest.mark.parametrize(
    "places",
    [
        PLACES[:, :2],
        PLACES[..., :1],
        PLACES[0],
        np.float32(1),
        PLACES.astype(int),
        np.full_like(PLACES, np.inf),
    ],
)
def test_places_of_something_else_are_refused(tmp_path: Path, places: np.ndarray) -> None:
    np.savez(tmp_path / PLACES_FILE, places=places)
    with pytest.raises(InputError, match=r"places\.npz: these are not the places of 3 components; draw"):
        places_in(tmp_path, 3)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    write_places(tmp_path, PLACES)
    path = tmp_path / PLACES_FILE
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"places\.npz.*draw these images again"):
        places_in(tmp_path, 3)
