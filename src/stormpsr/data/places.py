"""Where in an image every part belongs, and where it is: what only a drawn image knows exactly.

A part that sits wrongly looks like one that sits right, a little elsewhere. A network that is taught both places learns
to compare them; from labels alone it would have to find out by itself that places matter.

Shape legend: F frames or images, C components, P points: three of where the part belongs, then
the same three of the part itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError
from stormpsr.files import read_arrays, write_arrays

PLACES_FILE = "places.npz"
N_POINTS = 6  # P
_NAME = "places"


def write_places(folder: Path, places_FCP2: NDArray[np.floating]) -> None:
    """Points from the left and from the top as shares of the image; `nan` for parts that are not mounted."""
    write_arrays(folder / PLACES_FILE, **{_NAME: places_FCP2.astype(np.float32)})


def places_in(folder: Path, n_components: int) -> NDArray[np.float32] | None:
    """What `write_places` wrote, a row for every frame or image; None if nobody has measured it, as of real ones."""
    path = folder / PLACES_FILE
    if not path.is_file():
        return None
    cure = "draw these images again, or delete the file: training does without"
    places_FCP2 = read_arrays(path, cure).get(_NAME)
    if (
        places_FCP2 is None
        or places_FCP2.dtype != np.float32
        or places_FCP2.shape[1:] != (n_components, N_POINTS, 2)
        or np.isinf(places_FCP2).any()
    ):
        raise InputError(f"these are not the places of {n_components} components", path=path, cure=cure)
    return places_FCP2
