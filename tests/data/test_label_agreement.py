"""How far two people agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stormpsr.data.label_agreement import cohens_kappa, compare_labels, match_frames
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

Label = Callable[..., None]


@pytest.fixture
def label(tmp_path: Path) -> Label:
    """Writes somebody's labels of a recording: rows of states, and of steps where they are given."""

    def write(person: str, states: str, steps: str | None = None, name: str = "1_build") -> None:
        folder = tmp_path / person / name
        folder.mkdir(parents=True)
        (folder / "PSR_labels_raw.csv").write_text(states)
        if steps is not None:
            (folder / "PSR_labels.csv").write_text(steps)

    return write


ANNA = "0,0,0,0\n10,1,0,0\n20,1,1,0\n39,1,1,1\n"  # 40 frames


def test_a_person_agrees_with_herself(label: Label, tmp_path: Path, lamp: Procedure) -> None:
    for person in ("anna", "again"):
        label(person, ANNA)
    found = compare_labels(tmp_path / "anna", tmp_path / "again", lamp)
    assert (found.f1, found.distances, found.kappa) == (1.0, [0, 0, 0], 1.0)
    assert found.component_kappa == {"foot": 1.0, "pole": 1.0, "shade": 1.0}


def test_distances_missing_and_extra_completions_are_told(label: Label, tmp_path: Path, lamp: Procedure) -> None:
    label("anna", ANNA, "10,0,\n20,3,\n")
    label("ben", ANNA, "13,0,\n39,6,\n")
    found = compare_labels(tmp_path / "anna", tmp_path / "ben", lamp)
    assert [(one.step_id, one.distance) for one in found.matched] == [(0, 3)]
    assert [(one.step_id, one.frame) for one in found.missing] == [(3, 20)]
    assert [(one.step_id, one.frame) for one in found.extra] == [(6, 39)]
    assert found.f1 == 0.5
    assert found.to_dict()["completions"]["median_frames"] == 3


def test_kappa_counts_frames_by_component(label: Label, tmp_path: Path, lamp: Procedure) -> None:
    label("anna", "0,0,0,0\n20,1,0,0\n39,1,0,0\n")
    label("ben", "0,0,0,0\n10,1,0,0\n39,1,0,0\n")
    found = compare_labels(tmp_path / "anna", tmp_path / "ben", lamp)
    # foot: 10 frames both 0, 10 frames 0 and 1, 20 frames both 1. Agreed 30/40; chance 20/40 * 10/40 + 20/40 * 30/40
    assert found.component_kappa["foot"] == pytest.approx((0.75 - 0.5) / 0.5)
    assert found.component_kappa["pole"] is None  # nobody ever said anything else
    assert (found.kappa, found.n_frames) == (pytest.approx(0.5), 40)


def test_the_same_step_is_matched_in_order_and_as_close_as_can_be() -> None:
    assert match_frames([10, 50], [12, 55]) == ([(10, 12), (50, 55)], [], [])
    assert match_frames([50], [12, 55, 90]) == ([(50, 55)], [], [12, 90])
    assert match_frames([12, 55, 90], [50]) == ([(55, 50)], [12, 90], [])
    assert match_frames([10, 20], [19, 21, 40]) == ([(10, 19), (20, 21)], [], [40])
    assert match_frames([], [3]) == ([], [], [3])


def test_kappa_of_nothing_and_of_chance() -> None:
    assert cohens_kappa({}) is None
    assert cohens_kappa({(0, 0): 1, (0, 1): 1, (1, 0): 1, (1, 1): 1}) == 0.0
    assert cohens_kappa({(0, 1): 5, (1, 0): 5}) == -1.0


def test_folders_without_a_common_recording_are_refused(label: Label, tmp_path: Path, lamp: Procedure) -> None:
    label("anna", ANNA)
    label("ben", ANNA, name="2_build")
    with pytest.raises(InputError, match=r"no recording is labelled in both folders; .*1_build and 2_build"):
        compare_labels(tmp_path / "anna", tmp_path / "ben", lamp)


def test_recordings_that_only_one_has_are_named(label: Label, tmp_path: Path, lamp: Procedure) -> None:
    for person, name in (("anna", "1_build"), ("anna", "2_build"), ("ben", "2_build"), ("ben", "3_build")):
        label(person, ANNA, name=name)
    found = compare_labels(tmp_path / "anna", tmp_path / "ben", lamp)
    assert (found.recordings, found.only_first, found.only_second) == (("2_build",), ("1_build",), ("3_build",))
