"""Counts of labels, worked out by hand and on the published ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stormpsr.data.label_statistics import label_statistics
from stormpsr.evaluation.plots import plot_label_distribution
from stormpsr.procedure.model import Procedure

RAW = "0.jpg,0,0,0\n10.jpg,1,0,0\n30.jpg,1,-1,0\n50.jpg,1,1,0\n80.jpg,0,1,0\n"


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    """Two recordings in which a foot goes on and off and a pole first sits wrong; one in which nothing happens."""
    for place, text in (("Train/a", RAW), ("Train/b", "0.jpg,0,0,0\n"), ("test/c", RAW)):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "PSR_labels_raw.csv").write_text(text)
    return tmp_path


def test_steps_are_counted_by_kind_and_split(labels: Path, lamp: Procedure) -> None:
    found = label_statistics(labels, lamp)
    assert list(found.splits) == ["train", "test", "all"]
    train, everything = found.splits["train"], found.splits["all"]
    assert (train.completed.total, train.completed.mean) == (3, 1.5)
    assert train.completed.deviation == pytest.approx(2.1213, abs=1e-4)  # of 3 and 0
    assert (train.installed.total, train.removed.total) == (2, 1)
    assert everything.incorrect is not None
    assert (everything.n_recordings, everything.incorrect.total) == (3, 2)
    assert found.steps == {
        0: {"train": 1, "test": 1, "all": 2},
        2: {"train": 1, "test": 1, "all": 2},
        3: {"train": 1, "test": 1, "all": 2},
        4: {"train": 1, "test": 1, "all": 2},
    }


def test_states_and_gaps_are_counted(labels: Path, lamp: Procedure) -> None:
    found = label_statistics(labels, lamp, "test").splits["test"]
    assert (found.n_states, found.n_listed_states, found.n_wrong_states) == (5, 3, 1)
    assert found.seconds_between[4] == pytest.approx(3.5)  # the median of 4 s and 3 s
    assert found.mean_seconds is None


def test_states_that_no_file_has_are_not_counted_as_none(
    tmp_path: Path, lamp: Procedure, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "PSR_labels.csv").write_text("10.jpg,0,\n")
    lamp.save(tmp_path / "procedure.yaml")
    found = label_statistics(tmp_path, lamp).splits["no split"]
    assert (found.n_states, found.n_listed_states, found.n_wrong_states, found.incorrect) == (None,) * 4
    from stormpsr.cli.main import main

    assert main(["labels", "stats", str(tmp_path)]) == 0
    (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["states"]]
    assert row == ["states", "–"]


def test_the_distribution_is_plotted(labels: Path, lamp: Procedure, tmp_path: Path) -> None:
    path = tmp_path / "steps.svg"
    plot_label_distribution(label_statistics(labels, lamp), lamp, path)
    assert "install (4)" in path.read_text()


def test_the_published_labels_of_meccano_hold_fewer_steps_than_the_paper_counts(
    meccano_psr: Path, meccano: Procedure
) -> None:
    """The paper: 431 correct (25 ± 4.0) and 30 incorrect ones."""
    found = label_statistics(meccano_psr, meccano).splits["all"]
    assert found.incorrect is not None
    assert (found.completed.total, found.removed.total, found.incorrect.total) == (391, 30, 16)
    assert (round(found.completed.mean, 1), round(found.completed.deviation or 0, 1)) == (19.6, 4.2)


def test_labels_are_counted_as_deep_as_a_release_puts_them(labels: Path, lamp: Procedure) -> None:
    deep = labels / "clone" / "dataset" / "PSR"
    deep.mkdir(parents=True)
    (labels / "Train").rename(deep / "Train")
    found = label_statistics(labels / "clone", lamp).splits
    assert {name: own.n_recordings for name, own in found.items()} == {"train": 2}


def test_the_labels_of_impact_fit_its_procedure(shared: Path) -> None:
    folder = shared / "data" / "impact_psr"  # a clone: labels are in dataset/PSR/labels_front_only_v1
    if not folder.is_dir():
        pytest.skip(f"there are no IMPACT labels at {folder}")
    found = label_statistics(folder, Procedure.load("impact")).splits
    assert {name: own.n_recordings for name, own in found.items()} == {"train": 64, "val": 10, "test": 18, "all": 92}
    incorrect = found["all"].incorrect
    assert incorrect is not None
    assert incorrect.total == 1584


def test_the_command_prints_counts_and_writes_the_plot(
    labels: Path, lamp: Procedure, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from stormpsr.cli.main import main

    lamp.save(tmp_path / "lamp.yaml")
    call: Callable[..., int] = lambda *words: main(["labels", "stats", *map(str, words)])  # noqa: E731
    plot = tmp_path / "plot.png"
    assert call(labels, "-p", tmp_path / "lamp.yaml", "--per-step", "--plot", plot) == 0
    out = capsys.readouterr().out
    assert "3 (1.5 ± 2.1)" in out
    assert plot.is_file()
