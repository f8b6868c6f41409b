"""The recogniser as a program uses it: any source in, results out as a list, a table, a file, an image or scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import stormpsr
from stormpsr.data.boxes import Box
from stormpsr.data.events import StepEvent
from stormpsr.data.labels import read_steps
from stormpsr.data.sources import Frame, ImageFolder
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.recognizer.model_folder import RecognizerModel
from stormpsr.recognizer.recognizer import Recognizer
from stormpsr.recognizer.results import Results

Frames = Callable[..., list[Frame]]
Seeing = Callable[..., RecognizerModel]


@pytest.fixture
def recognizer(seeing: Seeing) -> Recognizer:
    return Recognizer.of(seeing(), "average", "build")


@pytest.fixture
def results(lamp: Procedure) -> Results:
    events = [StepEvent(0, 14, time_seconds=1.4, confidence=2.5), StepEvent(3, 31)]
    return Results(events, lamp, "build", "average", 10.0, 60, "a lamp")


# ---------------------------------------------------------------------- sources
def test_a_stream_gives_the_result_of_every_frame(recognizer: Recognizer, frames: Frames) -> None:
    seen = list(recognizer.stream(frames()))
    assert [result.index for result in seen] == list(range(60))
    assert [result.time_seconds for result in seen] == [frame.time_seconds for frame in frames()]
    recognizer.reset()
    assert [list(result.events) for result in seen] == [recognizer.update(frame) for frame in frames()]
    assert seen[0].prediction is not None
    assert seen[20].box == Box(2, 8, 30, 24)
    assert 0 < seen[12].share_S[0] < 1  # a copy: later frames do not change it


def test_a_second_frame_of_a_tick_has_no_prediction_of_its_own(recognizer: Recognizer, frames: Frames) -> None:
    first = frames()[0]
    both = list(recognizer.stream([first, Frame(first.image, 1, first.time_seconds + 0.01)]))
    assert both[0].prediction is not None
    assert both[1].prediction is None
    assert both[1].box == both[0].box


def test_images_recordings_and_paths_give_the_same_events(recognizer: Recognizer, world: Path) -> None:
    folder = world / "val" / "00_build_val"
    by_path = recognizer.run(folder)
    assert len(by_path) > 0
    source = ImageFolder(folder / "rgb", 10.0)
    for same in (str(folder), source, [frame.image for frame in source.frames()], source.images()):
        assert recognizer.run(same).events == by_path.events
    assert (by_path.n_frames, by_path.fps, by_path.variant, by_path.method) == (60, 10.0, "build", "average")
    assert by_path.source == folder.name


def test_images_come_as_fast_as_somebody_says(recognizer: Recognizer, frames: Frames) -> None:
    shown = [frame.image for frame in frames() for _ in range(2)]
    slow, fast = recognizer.run([frame.image for frame in frames()]), recognizer.run(shown, fps=20.0)
    assert [event.step_id for event in fast.events] == [event.step_id for event in slow.events]
    assert fast.fps == 20.0


def test_what_is_no_source_is_refused_before_the_first_frame(recognizer: Recognizer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file or folder"):
        recognizer.stream(tmp_path / "nothing.mp4")


@pytest.mark.parametrize(
    ("image", "words"),
    [(np.zeros((4, 4), np.uint8), r"uint8 \(4, 4\)"), (np.zeros((4, 4, 3)), "float64"), ("cat.jpg", "image 0 is str")],
)
def test_what_is_no_image_is_refused(recognizer: Recognizer, image: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        recognizer.run([image])  # type: ignore[list-item]


# ---------------------------------------------------------------------- results
def test_results_are_a_table(results: Results) -> None:
    table = results.to_dataframe()
    assert table["time_seconds"].tolist() == [1.4, 3.1]  # by the frame where the source said no time
    assert table["kind"].tolist() == ["install", "install"]
    assert table["component"].tolist() == ["foot", "pole"]
    empty = Results([], results.procedure, "build", "average", 10.0, 60)
    assert list(empty.to_dataframe().columns) == list(table.columns)


def test_results_are_files(results: Results, tmp_path: Path) -> None:
    labels = read_steps(results.save(tmp_path / "new" / "steps.csv"), results.procedure)
    assert [(event.frame, event.step_id) for event in labels] == [(14, 0), (31, 3)]
    content = json.loads(results.save(tmp_path / "steps.json").read_text())
    assert content == results.to_dict()
    assert (content["procedure"], content["n_frames"], len(content["events"])) == ("lamp", 60, 2)
    with pytest.raises(InputError, match=r"end the name in \.csv or \.json"):
        results.save(tmp_path / "steps.txt")


def test_results_are_scored_by_labels_or_their_file(results: Results, tmp_path: Path) -> None:
    labels = [StepEvent(0, 12), StepEvent(3, 28), StepEvent(6, 44)]
    scores = results.score(labels)
    assert (scores.true_positives, scores.false_negatives, scores.delay_seconds) == (2, 1, pytest.approx(0.25))
    stormpsr.write_steps(tmp_path / "labels.csv", labels, results.procedure)
    assert results.score(tmp_path / "labels.csv") == scores
    summary = stormpsr.summarise([scores, scores], results.procedure)
    assert summary.all.f1 == scores.f1
    assert [step.true_positives for step in summary.steps] == [2, 2, 0]
    assert summary.to_dict()["recordings"][1] == {"name": "recording 1", "has_errors": None, **scores.to_dict()}


def test_results_are_drawn(results: Results, tmp_path: Path) -> None:
    figure = results.plot()
    assert figure is not None
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["Install foot", "Install pole"]
    assert results.plot(tmp_path / "a.png", labels=[StepEvent(0, 12)]) is None
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
