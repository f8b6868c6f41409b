"""The worst cases, why they happened, and the frames around them."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from stormpsr.data.events import StepEvent
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.report.cases import Case, CaseKind, worst_cases
from stormpsr.evaluation.report.content import Content, Method, RecordingView
from stormpsr.evaluation.report.images import Album, Image
from stormpsr.evaluation.run_folder import RecordingRun, RunInfo
from stormpsr.procedure.model import Procedure

METHODS = (Method("detection", "D", "square", {}), Method("average", "A", "circle", {}))
RUN = RecordingRun(
    name="r",
    variant="build",
    fps=10.0,
    n_frames=1000,
    has_errors=None,
    frames_path="",
    labels=(StepEvent(0, 100), StepEvent(3, 400)),
    labels_with_errors=None,
    events={"detection": (StepEvent(0, 200),), "average": ()},
    readable=((150, 160), (300, 500)),
)


def cases_of(procedure: Procedure, *runs: RecordingRun, most: int = 4) -> dict[CaseKind, list[Case]]:
    views = tuple(
        RecordingView(run, {name: score(run.labels, found, fps=10) for name, found in run.events.items()})
        for run in runs
    )
    return worst_cases(Content(RunInfo("", "", "", None, "paper", (), {}), procedure, METHODS, views), most=most)


def plain(case: Case) -> tuple[list[str], str]:
    said = [f"{method.title} {text}" for method, text in case.said]
    return [text.replace("\N{NO-BREAK SPACE}", " ") for text in said], " ".join(case.why).replace(
        "\N{NO-BREAK SPACE}", " "
    )


def test_a_missed_step_tells_what_each_method_said_and_when_it_could_be_seen(lamp: Procedure) -> None:
    worst, second = cases_of(lamp, RUN)["missed"]
    assert (worst.step_id, worst.frame) == (3, 400)  # missed by both, so it comes first
    assert plain(worst) == (["D never reported it", "A never reported it"], "The assembly was in clear view.")
    assert (second.step_id, second.frame) == (0, 100)
    assert plain(second) == (
        ["D recognised it after 10.0 s (frame 200)", "A never reported it"],
        "The next clear view came 5.0 s later.",
    )


def test_a_step_that_came_too_early_is_missed_and_a_false_alarm(lamp: Procedure) -> None:
    found = cases_of(lamp, replace(RUN, events={"average": (StepEvent(3, 370, confidence=6.25),)}))
    said, _ = plain(next(case for case in found["missed"] if case.step_id == 3))
    assert said == ["D was not run on this recording", "A reported it 3.0 s too early (frame 370)"]
    (alarm,) = found["false"]
    assert plain(alarm)[0][1] == "A reported it at 0:37 (frame 370, evidence 6.2)"
    assert plain(alarm)[1] == "The step was completed 3.0 s later."


@pytest.mark.parametrize(
    ("event", "with_errors", "why"),
    [
        (StepEvent(6, 350), None, "This step never happened in this recording."),
        (StepEvent(3, 900), None, "The step had been completed at 0:40 and was reported again."),
        (StepEvent(6, 350), (StepEvent(7, 320),), "The part had been put in wrong at 0:32."),
        (StepEvent(8, 350), (StepEvent(7, 320),), "This step never happened in this recording."),  # a removal
    ],
)
def test_a_false_alarm_is_explained_by_the_labels(
    lamp: Procedure, event: StepEvent, with_errors: tuple[StepEvent, ...] | None, why: str
) -> None:
    events = (*RUN.labels, event)
    (alarm,) = cases_of(lamp, replace(RUN, events={"average": events}, labels_with_errors=with_errors))["false"]
    assert alarm.why[0] == why


@pytest.mark.parametrize(
    ("frame", "readable", "words"),
    [
        (120, ((150, 160),), "The assembly had not been seen clearly yet."),
        (220, ((150, 160),), "The last clear view was 6.0 s before."),
        (170, ((150, 160),), ""),
        (220, None, ""),
    ],
)
def test_a_false_alarm_says_how_long_nothing_was_seen(
    lamp: Procedure, frame: int, readable: tuple[tuple[int, int], ...] | None, words: str
) -> None:
    run = replace(RUN, events={"average": (StepEvent(6, frame),)}, readable=readable)
    (alarm,) = cases_of(lamp, run)["false"]
    assert plain(alarm)[1] == f"This step never happened in this recording. {words}".strip()


def test_late_steps_are_those_that_took_longest(lamp: Procedure) -> None:
    runs = [
        replace(RUN, name=f"r{late}", events={"average": (StepEvent(0, 100 + late), StepEvent(3, 405))})
        for late in (30, 300, 19)
    ]
    late = cases_of(lamp, *runs)["late"]
    assert [(case.view.name, case.frame, case.until) for case in late] == [("r300", 100, 400), ("r30", 100, 130)]


def test_no_more_cases_than_asked_for(lamp: Procedure) -> None:
    assert [len(found) for found in cases_of(lamp, RUN, replace(RUN, name="s"), most=3).values()] == [3, 0, 0]


def test_a_step_that_is_never_seen_again_says_so(lamp: Procedure) -> None:
    found = cases_of(lamp, replace(RUN, readable=((0, 300),)))["missed"]
    assert [plain(case)[1] for case in found if case.step_id == 3] == ["The assembly was not seen clearly again."]


def test_a_film_strip_has_the_moments_that_matter_and_no_frame_that_is_nearly_the_same(lamp: Procedure) -> None:
    run = replace(RUN, events={"average": (StepEvent(0, 128), StepEvent(3, 405))})
    (late,) = cases_of(lamp, run)["late"]
    assert late.frames() == [80, 100, 110, 118, 128]  # 130 is nearly 128
    assert [late.moment(frame).replace("\N{NO-BREAK SPACE}", " ") for frame in late.frames()] == [
        *("", "completed", "", "", "recognised, 2.8 s"),
    ]
    (alarm,) = cases_of(lamp, replace(RUN, events={"average": (*RUN.labels, StepEvent(6, 5))}))["false"]
    assert (alarm.frames(), alarm.moment(5)) == ([5, 15, 45], "reported")  # none before the first frame


# ---------------------------------------------------------------------- images of frames
def frame(number: int, height: int = 48, width: int = 64) -> NDArray[np.uint8]:
    return np.full((height, width, 3), 10 * number, np.uint8)


def grey(picture: Image) -> int:
    """The grey of an image, to tell frames apart."""
    head, _, data = picture.uri.partition(",")
    assert head == "data:image/jpeg;base64"
    image = cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_COLOR)
    assert image.shape == (picture.height, picture.width, 3)
    return round(float(image.mean()) / 10)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "rgb"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number:06d}.png").write_bytes(cv2.imencode(".png", frame(number))[1].tobytes())
    return folder


def test_the_frames_that_are_asked_for_are_read(images: Path) -> None:
    album = Album.of(images, [3, 7, 3])
    assert album.problem is None
    assert {number: grey(picture) for number, picture in album.images.items()} == {3: 3, 7: 7}


def test_frames_of_a_video_are_counted(tmp_path: Path) -> None:
    import av

    path = tmp_path / "rgb.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(12):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame(number), format="rgb24")))
        container.mux(stream.encode())
    album = Album.of(path, [2, 9, 11])
    assert album.problem is None
    assert {number: grey(picture) for number, picture in album.images.items()} == {2: 2, 9: 9, 11: 11}


def test_a_large_frame_is_made_smaller() -> None:
    picture = Image.of(frame(5, height=720, width=1280))
    assert (picture.width, picture.height) == (160, 90)
    assert grey(picture) == 5


def test_frames_that_a_recording_does_not_have_are_left_out(images: Path) -> None:
    assert list(Album.of(images, [-3, 11, 12]).images) == [11]


def test_frames_that_are_gone_are_a_reason_and_no_error(tmp_path: Path) -> None:
    album = Album.of(tmp_path / "gone", [1])
    assert album.images == {}
    assert album.problem == f"{tmp_path / 'gone'}: the frames are not there any more"
    assert Album.of(None, [1]).problem == "the run does not say where the frames are"


def test_a_damaged_image_is_a_reason_and_the_others_are_shown(images: Path) -> None:
    (images / "000005.png").write_bytes(b"not an image")
    album = Album.of(images, [2, 5])
    assert list(album.images) == [2]
    assert "000005.png: this is not an image" in (album.problem or "")


def test_a_missing_package_is_a_reason(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    assert Album.of(images, [2]).problem == "images need cv2; run: pip install 'stormpsr[detect]'"
