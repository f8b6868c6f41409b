"""When the whole state can be read."""

from pathlib import Path

import numpy as np
import pytest

from stormpsr.data.visibility import Visibility, read_visibility, runs_of, write_visibility
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.synthetic.product import Product

NAN = float("nan")


def of(visible: list[list[float]], inside: list[list[float]], place: list[list[float]]) -> Visibility:
    return Visibility(*(np.asarray(table, dtype=np.float32) for table in (visible, inside, place)))


def test_a_frame_is_readable_if_all_mounted_parts_show_and_empty_places_are_open() -> None:
    everything = of([[1.0, NAN]], [[1.0, NAN]], [[1.0, 1.0]])
    assert everything.readable_F().tolist() == [True]


def test_one_hidden_part_makes_a_frame_unreadable() -> None:
    assert of([[1.0, 0.5]], [[1.0, 1.0]], [[1.0, 0.5]]).readable_F().tolist() == [False]


def test_a_part_beyond_the_edge_makes_a_frame_unreadable() -> None:
    assert of([[1.0, 1.0]], [[1.0, 0.6]], [[1.0, 0.6]]).readable_F().tolist() == [False]


def test_a_hand_over_an_empty_place_makes_a_frame_unreadable() -> None:
    assert of([[1.0, NAN]], [[1.0, NAN]], [[1.0, 0.1]]).readable_F().tolist() == [False]


def test_with_slack_a_part_may_be_hidden_a_little_more() -> None:
    half_hidden = of([[1.0, 0.5]], [[1.0, 1.0]], [[1.0, 0.5]])
    assert half_hidden.readable_F(slack=0.45).tolist() == [True]
    assert of([[1.0, 0.1]], [[1.0, 1.0]], [[1.0, 0.1]]).readable_F(slack=0.45).tolist() == [False]


def test_an_empty_table_is_not_readable() -> None:
    assert of([[NAN, NAN]], [[NAN, NAN]], [[1.0, 1.0]]).readable_F().tolist() == [False]


def test_a_part_is_told_if_enough_of_it_shows_and_its_absence_if_its_place_is_open() -> None:
    shares = of([[0.5, 0.3, 0.8, NAN, NAN]], [[1.0, 1.0, 0.4, NAN, NAN]], [[1.0, 1.0, 1.0, 0.5, 0.3]])
    assert shares.told_FC().tolist() == [[True, False, False, True, False]]


def test_the_mean_visible_share_counts_what_is_outside_as_hidden() -> None:
    shares = of([[1.0, 0.5, NAN]], [[0.5, 1.0, NAN]], [[0.5, 0.5, 1.0]])
    assert shares.mean_visible_F() == pytest.approx([0.5])


def test_runs_are_found_at_both_ends() -> None:
    assert runs_of(np.array([True, True, False, True])) == [(0, 2), (3, 4)]
    assert runs_of(np.zeros(3, dtype=bool)) == []


@pytest.fixture(scope="module")
def procedure() -> Procedure:
    return Product.load("vehicle").procedure


def test_the_file_reads_back_what_was_written(tmp_path: Path, procedure: Procedure) -> None:
    rng = np.random.default_rng(0)
    visible, inside, place = rng.random((3, 5, procedure.n_components)).round(3)
    visible[:, 3] = inside[:, 3] = NAN
    written = of(visible.tolist(), inside.tolist(), place.tolist())
    write_visibility(tmp_path / "visibility.csv", written, procedure)
    read = read_visibility(tmp_path / "visibility.csv", procedure.n_components)
    assert np.allclose(read.visible_FC, written.visible_FC, equal_nan=True)
    assert np.allclose(read.place_FC, written.place_FC)


def test_a_torn_file_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "visibility.csv"
    path.write_text("frame,visible a,inside a,place a\n0,1.0,1.0,1.0\n1,1.0\n")
    with pytest.raises(InputError, match=r"visibility\.csv:3: 2 columns, expected 4"):
        read_visibility(path, 1)


@pytest.mark.parametrize("cell", ["nan", "inf", "1e999", "x", "\0", '"'])
def test_shares_that_are_no_numbers_are_refused_with_their_line(tmp_path: Path, cell: str) -> None:
    (tmp_path / "visibility.csv").write_text(f"frame,a,b,c\n0,1,1,1\n1,{cell},1,1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"visibility\.csv:3: "):
        read_visibility(tmp_path / "visibility.csv", 1)
