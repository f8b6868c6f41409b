"""How much of every component can be seen, and in which frames a person could read the whole state.

Shape legend: F frames, C components.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.labels import parse_number, read_rows
from stormpsr.errors import InputError, errors_at
from stormpsr.files import write_csv
from stormpsr.procedure.model import Procedure

VISIBILITY_FILE = "visibility.csv"


# When the whole state can be read: a component of which a quarter is hidden can still be told; of one of which half is
# hidden it is a guess whether it sits right; and it is only known to be absent if its empty place can be seen.
_LEAST_VISIBLE, _LEAST_INSIDE = 0.7, 0.9  # of every mounted component
_LEAST_PLACE = 0.4  # of the place of every absent component
_LEAST_TOLD = 0.4  # of a mounted component, to tell it alone from other evidence than the rest of the assembly


@dataclass(frozen=True, eq=False)
class Visibility:
    """Per frame and component.

    `visible_FC` is the share of a mounted component's pixels that no hand, tool or loose part covers, of those the
    assembly alone would show; `inside_FC` the share of its surface inside the image; both `nan` where the component is
    not mounted. `place_FC` is the share of its place, filled or empty, that is inside the image and uncovered.
    """

    visible_FC: NDArray[np.float32]
    inside_FC: NDArray[np.float32]
    place_FC: NDArray[np.float32]

    def __post_init__(self) -> None:
        if not self.visible_FC.shape == self.inside_FC.shape == self.place_FC.shape:
            raise InputError("visible, inside and place must have the same shape")

    def readable_F(self, slack: float = 0.0) -> NDArray[np.bool_]:
        """In which frames a person could read the whole state; with slack, parts may show by that share less."""
        mounted = ~np.isnan(self.visible_FC)
        shows, inside, place = ((1 - slack) * least for least in (_LEAST_VISIBLE, _LEAST_INSIDE, _LEAST_PLACE))
        seen = (np.nan_to_num(self.visible_FC) >= shows) & (np.nan_to_num(self.inside_FC) >= inside)
        return np.asarray(np.where(mounted, seen, self.place_FC >= place).all(axis=1) & mounted.any(axis=1))

    def told_FC(self) -> NDArray[np.bool_]:
        """Which components show enough, or their empty places do, to be told by themselves."""
        least_FC = np.where(np.isnan(self.visible_FC), _LEAST_PLACE, _LEAST_TOLD)
        return np.asarray(self.shown_FC() >= least_FC)

    def shown_FC(self) -> NDArray[np.float32]:
        """How much of each component shows, or of its empty place."""
        shown_FC = self.visible_FC * self.inside_FC
        return np.asarray(np.where(np.isnan(shown_FC), self.place_FC, shown_FC))

    def mean_visible_F(self) -> NDArray[np.float64]:
        """Mean over the mounted components of what shows of them, 0 for what is outside the image."""
        mounted = ~np.isnan(self.visible_FC)
        shown = np.nan_to_num(self.visible_FC) * np.nan_to_num(self.inside_FC)
        return np.asarray(shown.sum(axis=1) / np.maximum(mounted.sum(axis=1), 1))


def runs_of(flags_F: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Stretches of true values as (first, one past the last)."""
    padded = np.concatenate([[False], flags_F, [False]]).astype(np.int8)
    edges = np.diff(padded)
    return list(zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True))


def wait_for_clear_view(completion_frames: Iterable[int], view_frames: Sequence[int]) -> list[int | None]:
    """Frames from each completion to the next annotated view; None where none follows.

    No detector that needs to see the whole object can be faster than this.
    """
    views = sorted(view_frames)
    waits: list[int | None] = []
    for frame in completion_frames:
        following = bisect_left(views, frame)
        waits.append(views[following] - frame if following < len(views) else None)
    return waits


def write_visibility(path: Path, visibility: Visibility, procedure: Procedure) -> None:
    """One row per frame: three columns per component, empty where it is not mounted."""
    names = [component.name for component in procedure.components]
    header = ["frame", *(f"{what} {name}" for what in ("visible", "inside", "place") for name in names)]
    columns = np.concatenate([visibility.visible_FC, visibility.inside_FC, visibility.place_FC], axis=1)
    rows = ([frame, *("" if np.isnan(share) else f"{share:.3f}" for share in row)] for frame, row in enumerate(columns))
    write_csv(path, [header, *rows])


def told_in(folder: Path, n_components: int) -> NDArray[np.bool_] | None:
    """Which components show enough to be told in a recording's frames, or in single images, (F, C); None if nobody has

    measured it, as in the real world.
    """
    path = folder / VISIBILITY_FILE
    return read_visibility(path, n_components).told_FC() if path.is_file() else None


def read_visibility(path: Path, n_components: int) -> Visibility:
    """Read what `write_visibility` wrote."""
    rows = []
    for number, (line, row) in enumerate(read_rows(path)):
        if number == 0:
            continue  # the header
        if len(row) != 1 + 3 * n_components:
            raise InputError(f"{len(row)} columns, expected {1 + 3 * n_components}", path=path, line=line)
        with errors_at(path, line):
            rows.append([parse_number(cell, "a share") if cell else np.nan for cell in row[1:]])
    table = np.asarray(rows, dtype=np.float32).reshape(len(rows), 3, n_components)
    return Visibility(table[:, 0], table[:, 1], table[:, 2])
