"""The images of a summary: there, of a sensible size, and not blank."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from stormpsr.data.events import StepEvent
from stormpsr.errors import MissingExtraError
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.plots import plot_summary
from stormpsr.evaluation.summary import RecordingResult, Summary, summarise
from stormpsr.procedure.model import Component, Procedure, Variant

RECOGNISED, FALSE_ALARM, MISSED = (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0xCC, 0x79, 0xA7)


def summary_of(*pairs: tuple[list[tuple[int, int]], list[tuple[int, int]]]) -> Summary:
    """Recordings from (labels, events), each a list of (step id, frame)."""
    results = []
    for i, (truth, predicted) in enumerate(pairs):
        labels, events = (tuple(StepEvent(step, frame) for step, frame in rows) for rows in (truth, predicted))
        results.append(RecordingResult(f"recording_{i}", score(labels, events, fps=10)))
    return summarise(results)


def pixels(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def amount(picture: NDArray[np.uint8], colour: tuple[int, int, int], rows: slice = slice(None)) -> int:
    """How many pixels have a colour."""
    return int((np.abs(picture[rows].astype(int) - colour).max(axis=-1) <= 2).sum())


def test_an_image_has_a_sensible_size_and_shows_something(tmp_path: Path, lamp: Procedure) -> None:
    plot_summary(summary_of(([(0, 10), (3, 50)], [(0, 30)])), lamp, tmp_path / "new" / "a.png")
    picture = pixels(tmp_path / "new" / "a.png")
    height, width, _ = picture.shape
    assert 1100 <= width <= 1600
    assert 500 <= height <= 1200
    assert (picture == 255).all(axis=-1).mean() > 0.5  # white paper
    assert amount(picture, RECOGNISED) > 200
    border = np.concatenate([picture[:3].reshape(-1, 3), picture[-3:].reshape(-1, 3), picture[:, :3].reshape(-1, 3)])
    assert (border == 255).all(), "something is cut off at the edge"


def test_every_kind_of_point_is_in_the_image_in_its_colour(tmp_path: Path, lamp: Procedure) -> None:
    nothing = summary_of(([], []))
    everything = summary_of(([(0, 10), (3, 50)], [(0, 30), (6, 40)]))
    for name, summary in (("nothing", nothing), ("everything", everything)):
        plot_summary(summary, lamp, tmp_path / f"{name}.png")
    empty, full = pixels(tmp_path / "nothing.png"), pixels(tmp_path / "everything.png")
    for colour in (RECOGNISED, FALSE_ALARM, MISSED):  # the legend has some of each in both
        assert amount(full, colour) > amount(empty, colour) + 20


def test_a_recording_of_more_steps_gets_more_room(tmp_path: Path, lamp: Procedure) -> None:
    plot_summary(summary_of(([(0, 10)], [])), lamp, tmp_path / "one.png")
    plot_summary(summary_of(([(step, 10 * step) for step in range(9)], [])), lamp, tmp_path / "nine.png")
    assert pixels(tmp_path / "nine.png").shape[0] > pixels(tmp_path / "one.png").shape[0] + 100


@pytest.mark.parametrize("n_steps", [1, 9])
def test_many_recordings_do_not_make_an_endless_image(tmp_path: Path, lamp: Procedure, n_steps: int) -> None:
    recording = ([(step, 10 + step) for step in range(n_steps)], [(0, 30)])
    images = []
    for n in (4, 7, 60):
        plot_summary(summary_of(*[recording] * n), lamp, tmp_path / f"{n}.png")
        images.append(pixels(tmp_path / f"{n}.png"))
    four, seven, sixty = (picture.shape[0] for picture in images)
    assert four <= seven <= sixty < 2000
    assert sixty > 1500  # but what fits is shown
    ink_at_the_bottom = [int((picture[-80:] < 128).sum()) for picture in images]
    assert ink_at_the_bottom[2] > ink_at_the_bottom[0] + 500  # it says how many are not shown


def test_one_recording_of_very_many_steps_is_shown_whole(tmp_path: Path) -> None:
    components = tuple(Component(f"part {i}") for i in range(120))
    procedure = Procedure("rack", components, (), {"all": Variant("all", (0,) * 120, ())}, fps=10)
    plot_summary(summary_of(([(3 * i, 10 * i) for i in range(120)], [])), procedure, tmp_path / "a.png")
    assert pixels(tmp_path / "a.png").shape[0] > 2500


@pytest.mark.parametrize(("ending", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_vector_formats_can_be_written(tmp_path: Path, lamp: Procedure, ending: str, start: bytes) -> None:
    path = tmp_path / f"a.{ending}"
    plot_summary(summary_of(([(0, 10)], [(0, 30)])), lamp, path)
    assert path.read_bytes().startswith(start)


def test_without_matplotlib_the_error_says_what_to_install(
    tmp_path: Path, lamp: Procedure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"drawing needs matplotlib.*pip install 'stormpsr\[plot\]'"):
        plot_summary(summary_of(([(0, 10)], [])), lamp, tmp_path / "a.png")
