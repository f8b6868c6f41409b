"""Figures of a set, worked out by hand."""

from pathlib import Path

import numpy as np
import pytest

from stormpsr.errors import InputError
from stormpsr.synthetic.overview import (
    REAL,
    Deciles,
    RecordingMetrics,
    compare,
    mean_from_deciles,
    recording_folders,
    summarise_set,
    waits_of,
)


def recording(readable: str, steps: tuple[int, ...], fps: float = 10.0) -> RecordingMetrics:
    """A recording whose readable frames are the letters `x`."""
    flags = np.array([letter == "x" for letter in readable])
    return RecordingMetrics(fps, len(flags), steps, 1, 2, flags, flags.astype(float))


def test_the_mean_of_evenly_spread_deciles_is_their_middle_but_for_the_tail() -> None:
    deciles = range(10, 100, 10)
    assert mean_from_deciles(deciles) == pytest.approx((9 * 45 + 90 + 10 / np.log(2)) / 10)


def test_the_mean_from_deciles_of_an_exponential_distribution_is_nearly_its_mean() -> None:
    deciles = [-np.log(1 - k / 10) * 30 for k in range(1, 10)]
    assert mean_from_deciles(deciles) == pytest.approx(30, rel=0.03)


@pytest.mark.parametrize(("name", "known_mean"), [("industreal", 27.0), ("meccano", 37.0)])
def test_the_mean_from_deciles_is_close_where_the_real_mean_is_known(name: str, known_mean: float) -> None:
    gaps = REAL[name].view_gaps
    assert gaps is not None
    assert mean_from_deciles(gaps.values) == pytest.approx(known_mean, rel=0.1)


def test_figures_of_one_recording_can_be_worked_out_by_hand() -> None:
    one = recording("xx...x....", steps=(2, 2, 6))
    metrics = summarise_set([one])
    assert metrics.clear_share == pytest.approx(0.3)
    assert metrics.steps_per_recording == 3
    assert metrics.completion_gaps is not None
    assert metrics.completion_gaps.mean == pytest.approx(0.4)  # the two at frame 2 are one moment
    assert metrics.view_lengths is not None
    assert metrics.view_lengths.mean == pytest.approx(0.15)
    assert metrics.view_gaps is not None
    assert metrics.view_gaps.mean == pytest.approx(0.3)
    assert metrics.errors_per_recording == 1


def test_a_completion_waits_for_the_next_readable_frame_if_there_is_one() -> None:
    assert waits_of(recording("xx...x....", steps=(1, 2, 6))) == pytest.approx([0.0, 0.3])


def test_what_is_more_than_a_quarter_off_is_beyond_the_tolerance() -> None:
    rows = {row.name: row for row in compare(summarise_set([recording("x" * 10, (1, 2))]), REAL["industreal"])}
    assert rows["share of clear frames"].ratio == pytest.approx(1 / 0.14)
    assert rows["share of clear frames"].within is False
    assert rows["steps per recording"].calibrated
    assert not rows["mean length of a recording (s)"].calibrated


def test_without_real_figures_there_is_no_ratio() -> None:
    assert all(row.ratio is None for row in compare(summarise_set([recording("x.", (1,))]), None))


def test_no_samples_have_no_deciles() -> None:
    assert Deciles.of([]) is None


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no generated recordings here"):
        recording_folders(tmp_path)
