"""`stormpsr model pack`, `run`, `tune` and `evaluate`, from the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stormpsr.cli.main import main
from stormpsr.data.boxes import Box
from stormpsr.data.events import StepEvent
from stormpsr.data.labels import read_steps
from stormpsr.data.sources import Frame
from stormpsr.evaluation.run_folder import read_run
from stormpsr.procedure.model import Component, Procedure
from stormpsr.recognizer.model_folder import load_settings

Run = Callable[..., tuple[int, str, str]]
Frames = Callable[..., list[Frame]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command: exit code, output, error stream."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STORMPSR_CACHE", str(tmp_path / "cache"))

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def video(tmp_path: Path, frames: Frames) -> Path:
    """Ten frames per second, in a file that can be read without its end."""
    import av

    path = tmp_path / "recording_build.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for frame in frames():
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame.image, format="rgb24")))
        container.mux(stream.encode())
    return path


# ---------------------------------------------------------------------- pack
def test_packing_says_what_is_in_the_model(
    run: Run, stream_folder: Path, detector_folder: Path, tmp_path: Path
) -> None:
    parts = ("--stream", stream_folder, "--detector", detector_folder)
    code, out, err = run("model", "pack", *parts, "--out", "m", "--half", "--json")
    assert code == 0, err
    packed = json.loads(out)
    assert packed["streams"] == ["detection", "temporal"]
    assert packed["procedure"] == "lamp"
    code, out, err = run("model", "pack", "--detector", detector_folder, "--out", "alone")
    assert code == 0
    assert "lamp: detection," in out
    assert err == "note: the model has no spatio-temporal stream (stream/): detections alone decide\n"
    assert run("model", "pack", "--out", "none")[2].startswith("error: a model needs a stream or a detector")


# ---------------------------------------------------------------------- run
def test_events_are_printed_written_and_drawn(run: Run, model_folder: Path, video: Path, lamp: Procedure) -> None:
    import av

    options = ("--unexpected", "report", "--out", "steps.csv", "--save", "annotated.mp4")
    code, out, err = run("run", model_folder, video, *options)
    assert code == 0, err
    assert "variant 'build', method 'average'" in out
    events = read_steps(Path("steps.csv"), lamp)
    assert len(events) >= 3
    assert f"{len(events)} steps in 60 frames" in out
    assert "written: annotated.mp4" in out
    with av.open("annotated.mp4") as film:
        images = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
    assert len(images) == 60
    assert images[0].shape == (640, 1060, 3)

    code, out, err = run("run", model_folder, video, *options, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["frame"], line["step_id"]) for line in lines] == [(e.frame, e.step_id) for e in events]
    assert all(line["method"] == "average" and line["time_seconds"] >= 0 for line in lines)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not tell the names of open files")
def test_every_step_is_on_the_disk_before_it_is_told(
    run: Run, model_folder: Path, video: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import stormpsr.cli.run as module

    happened: list[str] = []
    sync, tell = os.fsync, module.print_line

    def synced(handle: int) -> None:
        sync(handle)
        if Path(f"/proc/self/fd/{handle}").readlink().name == "steps.csv":
            happened.append("on the disk")

    def told(event: StepEvent, text: str) -> None:
        happened.append("told")
        tell(event, text)

    monkeypatch.setattr("stormpsr.files.os.fsync", synced)
    monkeypatch.setattr(module, "print_line", told)
    code, _, err = run("run", model_folder, video, "--unexpected", "report", "--out", "steps.csv")
    assert code == 0, err
    n = len(Path("steps.csv").read_text().splitlines())
    assert n >= 3
    assert happened == ["on the disk", "told"] * n


def test_a_recording_and_its_folder_of_frames_give_the_same(run: Run, model_folder: Path, world: Path) -> None:
    recording = world / "test" / "00_build_test"
    of_recording = run("run", model_folder, recording, "--json", "--unexpected", "report")
    of_folder = run("run", model_folder, recording / "rgb", "--json", "--unexpected", "report")
    assert of_recording[0] == of_folder[0] == 0
    assert of_recording[1] == of_folder[1] != ""


def test_a_video_that_breaks_off_keeps_what_was_recognised(run: Run, model_folder: Path, video: Path) -> None:
    video.write_bytes(video.read_bytes()[: video.stat().st_size * 7 // 10])
    options = ("--unexpected", "report", "--out", "steps.csv", "--save", "annotated.mp4")
    code, out, err = run("run", model_folder, video, *options)
    assert code == 2
    assert "the video ends too early" in err
    assert err.count("\n") == 1
    n = len(Path("steps.csv").read_text().splitlines())
    assert n >= 1
    assert f"what was recognised until then ({n} step" in err
    assert out.count(" s  frame ") == n
    assert Path("annotated.mp4").stat().st_size > 1000


def test_a_missing_stream_is_said_and_the_other_works(run: Run, model_folder: Path, video: Path) -> None:
    shutil.copytree(model_folder, "m")
    shutil.rmtree("m/detector")
    code, out, err = run("run", "m", video, "--unexpected", "report")
    assert code == 0
    assert "the model has no detector (detector/): the spatio-temporal stream alone decides" in err
    assert "method 'temporal'" in out


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("absent.mp4", "no such file or folder"),
        (".", "there are no images in this folder"),
        ("9", "there is no camera 9"),
        ("rtsp://127.0.0.1:9/x", "cannot be opened"),
    ],
)
def test_a_source_that_gives_nothing_is_refused(run: Run, model_folder: Path, source: str, words: str) -> None:
    code, _, err = run("run", model_folder, source, "--json")
    assert code == 2
    assert words in err.splitlines()[-1]


def test_a_camera_that_is_not_there_is_one_line(model_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """OpenCV writes its warnings past Python."""
    assert main(["run", str(model_folder), "97", "--variant", "build", "--json"]) == 2
    error = json.loads(capfd.readouterr().err)["error"]
    assert error == "there is no camera 97; plug it in, or try another index"


def test_one_argument_is_the_source_and_three_are_too_many(run: Run, model_folder: Path) -> None:
    assert "absent.mp4: there is no such file" in run("run", "absent.mp4")[2]
    assert "give [MODEL] SOURCE" in run("run", model_folder, "one", "two")[2]


def test_a_recording_of_another_procedure_is_refused(
    run: Run, model_folder: Path, world: Path, lamp: Procedure, tmp_path: Path
) -> None:
    shutil.copytree(world, "other")
    parts = (Component("foot"), Component("rod"), Component("shade"))
    replace(lamp, name="torch", components=parts).save("other/procedure.yaml")
    shutil.copy("other/procedure.yaml", "other/test/00_build_test/procedure.yaml")
    for command in (
        ("run", model_folder, "other/test/00_build_test"),
        ("evaluate", model_folder, "--data", "other"),
        ("tune", model_folder, "--data", "other"),
    ):
        code, _, err = run(*command)
        assert code == 2
        assert "the model recognises procedure 'lamp', but this is 'torch': its components differ" in err


def test_a_camera_s_events_are_never_overwritten(run: Run, model_folder: Path) -> None:
    Path("steps.csv").write_text("000001.jpg,0,Install foot\n")
    code, _, err = run("run", model_folder, "0", "--out", "steps.csv")
    assert code == 2
    assert "this is there already" in err
    assert run("run", model_folder, "0", "--out", "steps.txt")[2].startswith(
        "error: steps.txt: cannot write files that end in '.txt'; use one of: .csv"
    )


class Webcam:
    """Shows a recording, and then something happens to it."""

    def __init__(self, frames: list[Frame], end: type[BaseException] | None) -> None:
        self._images = iter([frame.image for frame in frames])
        self._end = end

    def isOpened(self) -> bool:
        return True

    def read(self) -> tuple[bool, Any]:
        image = next(self._images, None)
        if image is None and self._end is not None:
            raise self._end
        return image is not None, image

    def release(self) -> None:
        pass


def test_a_camera_that_disappears_is_opened_again_and_the_files_are_whole(
    run: Run, model_folder: Path, frames: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    import av
    import cv2

    webcams = iter([Webcam(frames(), None), Webcam(frames()[:5], KeyboardInterrupt)])  # unplugged, then stopped
    monkeypatch.setattr(cv2, "VideoCapture", lambda index: next(webcams))
    code, out, _ = run("run", model_folder, "0", "--out", "steps.csv", "--save", "annotated.mp4")
    assert code == 0
    assert list(webcams) == []
    assert Path("steps.csv").is_file()
    with av.open("annotated.mp4") as film:
        assert sum(1 for _ in film.decode(video=0)) >= 1
    assert "frames per second" in out


def test_stopping_a_camera_is_a_good_end(
    run: Run, model_folder: Path, frames: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cv2

    monkeypatch.setattr(cv2, "VideoCapture", lambda index: Webcam(frames(), KeyboardInterrupt))
    code, out, err = run("run", model_folder, "0", "--variant", "build")
    assert (code, err) == (0, "")
    assert "frames per second" in out


def test_the_source_is_never_overwritten(run: Run, model_folder: Path, video: Path) -> None:
    size = video.stat().st_size
    assert "this would overwrite the source" in run("run", model_folder, video, "--save", video)[2]
    assert video.stat().st_size == size


def test_without_a_model_the_shipped_one_is_taken(run: Run, monkeypatch: pytest.MonkeyPatch, video: Path) -> None:
    from stormpsr.recognizer import model_folder as folder

    monkeypatch.setattr(folder.resources, "files", lambda package: Path("nowhere"))
    assert "there is no model 'vehicle'" in run("run", video)[2]


# ---------------------------------------------------------------------- tune and evaluate
@pytest.fixture
def small_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    from stormpsr.decoding import fusion

    one = {"threshold": (0.3, 0.9, 2.0), "decay": (0.5, 0.9)}
    for method in (fusion.EvidenceFusion, fusion.DetectionFusion, fusion.TemporalFusion):
        monkeypatch.setattr(method, "grid", one)


def test_scores_can_be_kept_with_the_model(run: Run, model_folder: Path, world: Path) -> None:
    shutil.copytree(model_folder, "m")
    before = json.loads(Path("m/metrics.json").read_text())
    code, out, err = run("evaluate", "m", "--data", world, "--split", "val", "--json", "--store")
    assert code == 0, err
    after = json.loads(Path("m/metrics.json").read_text())
    kept = after.pop("evaluation")["val"]
    assert after == before
    assert (kept["data"], kept["protocol"], kept["n_recordings"]) == (world.name, "paper", 2)
    assert kept["average"]["f1"] == json.loads(out)["summary"]["average"]["all"]["f1"]
    refused = run("evaluate", "m", "--data", world, "--split", "val", "--store", "--temporal-stride", 8)
    assert "own strides" in refused[2]
    assert json.loads(Path("m/metrics.json").read_text())["evaluation"]["val"] == kept


@pytest.mark.usefixtures("small_grids")
def test_tuning_stores_the_best_and_draws_the_front(run: Run, model_folder: Path, world: Path) -> None:
    shutil.copytree(model_folder, "m")
    before = Path("m/recognizer.yaml").read_text()
    code, out, err = run("tune", "m", "--data", world, "--dry-run")
    assert code == 0, err
    assert "nothing was stored" in out
    assert Path("m/recognizer.yaml").read_text() == before
    code, out, err = run("tune", "m", "--data", world, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["n_recordings"] == 2
    assert told["methods"]["average"]["n_settings"] == 6
    stored = load_settings(Path("m/recognizer.yaml"))
    for method in ("detection", "temporal", "average"):
        assert stored.methods[method].threshold == told["methods"][method]["chosen"]["settings"]["threshold"]
        assert stored.methods[method].decay in (0.5, 0.9)
    metrics = json.loads(Path("m/metrics.json").read_text())
    assert metrics["tuning"]["objective"] == "f1"
    assert metrics["stream"] == {"event_f1": 0.5}
    assert Path("m/tuning.png").stat().st_size > 5000
    assert "note: filter learns from 8 recordings or more, these are 2: it stays as it is" in err
    assert "note: 2 recordings to tune on" in err
    low, high = told["methods"]["average"]["f1_interval"]
    assert low <= told["methods"]["average"]["chosen"]["f1"] <= high
    code, out, _ = run("tune", "m", "--data", world, "--method", "temporal")
    assert "Temporal only" in out
    assert "STORM-PSR" not in out


def test_tuning_never_sees_the_test_split(run: Run, model_folder: Path, world: Path) -> None:
    assert run("tune", model_folder, "--data", world, "--split", "test")[0] == 2
    assert "give both or neither" in run("tune", model_folder, "--data", world, "--max-delay", 3)[2]
    assert "leave one" in run("tune", model_folder, "--data", world, "--objective", "tau", "--among", 9)[2]


def test_evaluating_prints_the_main_table_and_writes_a_run(run: Run, model_folder: Path, world: Path) -> None:
    code, out, err = run("evaluate", model_folder, "--data", world, "--out", "a_run", "--unexpected", "report")
    assert code == 0, err
    for words in ("Detection only", "Temporal only", "STORM-PSR", "tau (s)", "Test, all (2 recordings"):
        assert words in out
    opened = read_run("a_run")
    assert opened.names == ("00_build_test", "01_build_test")
    assert [method.name for method in opened.info.methods] == ["detection", "temporal", "average"]
    assert opened.info.methods[2].settings["threshold"] == 0.6
    one = opened.recording("00_build_test")
    assert (one.variant, one.fps, one.n_frames, one.has_errors) == ("build", 10.0, 60, False)
    assert one.frames_in(world).is_dir()
    assert [(e.frame, e.step_id) for e in one.labels] == [(12, 0), (28, 3), (44, 6)]
    assert one.readable == ((5, 7), (50, 50))
    assert one.change_frame_E.tolist() == list(range(0, 60, 4))
    assert one.change_probability_EC.shape == (15, 3)
    assert len(one.detection_frame_M) == 60
    assert one.events["temporal"]
    for event in one.events["temporal"]:
        assert one.evidence["temporal"][event.frame // 5, event.step_id] == 1.0
    assert one.evidence["average"].shape == (12, 9)
    assert float(one.evidence["average"].max()) <= 1.0

    told = json.loads(run("evaluate", model_folder, "--data", world, "--unexpected", "report", "--json")[1])
    assert told["summary"]["average"] == opened.info.summary["average"]


def test_the_same_run_is_made_again_and_another_one_is_refused(run: Run, model_folder: Path, world: Path) -> None:
    first = run("evaluate", model_folder, "--data", world, "--out", "a_run", "--json")
    names = read_run("a_run").names
    for path in Path("a_run/recordings").glob(f"{names[0]}.*"):  # of a recording that the data does not have any more
        shutil.copy(path, path.with_stem("gone"))
    again = run("evaluate", model_folder, "--data", world, "--out", "a_run", "--json")
    assert first == again
    assert read_run("a_run").names == names
    code, _, err = run("evaluate", model_folder, "--data", world, "--split", "val", "--out", "a_run")
    assert code == 2
    assert "the folder holds a run of" in err


def test_an_evaluation_that_was_stopped_goes_on(
    run: Run, model_folder: Path, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stormpsr.recognizer import evaluate as evaluating
    from stormpsr.recognizer import offline as batched

    looked: list[str] = []
    predict_recording = batched.predict_recording

    def counting(networks: Any, frames: Any, **options: Any) -> Any:
        looked.append("a recording")
        return predict_recording(networks, frames, **options)

    monkeypatch.setattr(batched, "predict_recording", counting)
    write = evaluating.write_recording
    monkeypatch.setattr(evaluating, "write_recording", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert run("evaluate", model_folder, "--data", world, "--out", "a_run")[0] == 130
    assert len(looked) == 1
    monkeypatch.setattr(evaluating, "write_recording", write)
    assert run("evaluate", model_folder, "--data", world, "--out", "a_run")[0] == 0
    assert len(looked) == 2  # the first recording was not looked at again


def test_recordings_without_labels_cannot_be_judged(run: Run, model_folder: Path, world: Path) -> None:
    shutil.copytree(world, "bare")
    for path in Path("bare").rglob("PSR_labels*.csv"):
        path.unlink()
    assert "no labels to evaluate_recording by" in run("evaluate", model_folder, "--data", "bare")[2]


# ---------------------------------------------------------------------- images
def test_the_annotated_image_shows_ticks_and_evidence(lamp: Procedure, frames: Frames) -> None:
    from stormpsr.data.events import StepEvent
    from stormpsr.decoding.checklist import Checklist
    from stormpsr.recognizer.draw import draw_annotated

    image = frames()[0].image
    checklist = Checklist(lamp, "build")
    about: dict[str, Any] = {"time_seconds": 61.5, "title": "STORM-PSR"}
    empty = draw_annotated(image, checklist, share_S=np.zeros(9), box=None, **about)
    half = draw_annotated(image, checklist, share_S=np.full(9, 0.5), box=Box(4.0, 4.0, 12.0, 12.0), **about)
    checklist.update([StepEvent(0, 12, 1.2), StepEvent(5, 20, 2.0)])
    done = draw_annotated(image, checklist, share_S=np.full(9, 0.5), box=None, **about)

    def count(picture: np.ndarray, colour: tuple[int, int, int]) -> int:
        return int((np.abs(picture[:, 640:].astype(int) - colour).max(axis=2) < 4).sum())

    amber, green = (232, 170, 62), (86, 186, 110)
    assert count(empty, amber) == count(empty, green) == 0
    assert count(half, amber) > 1000
    assert count(done, green) > 100
    assert (half[:, :640] != empty[:, :640]).any()  # the box
    assert count(done, amber) > count(half, amber)  # what was not expected stands at the foot


def test_a_long_list_and_long_names_fit(frames: Frames) -> None:
    from stormpsr.decoding.checklist import Checklist
    from stormpsr.recognizer.draw import draw_annotated

    meccano = Procedure.load("meccano")
    picture = draw_annotated(
        np.zeros((1080, 1920, 3), np.uint8),
        Checklist(meccano),
        share_S=np.ones(len(meccano.steps)),
        box=None,
        time_seconds=0.0,
        title="STORM-PSR",
    )
    assert picture.shape == (480, 1060, 3)


# ---------------------------------------------------------------------- a lean way
def test_running_imports_neither_training_nor_the_renderer_nor_what_only_they_need(
    model_folder: Path, world: Path
) -> None:
    source = next((world / "test").iterdir())
    code = f"""
import sys
from stormpsr.cli.main import main
assert main(["run", {str(model_folder)!r}, {str(source)!r}, "--device", "cpu", "--threads", "1"]) == 0
heavy = ("lightning", "tensorboard", "matplotlib", "sklearn", "pandas", "vtk", "trimesh")
own = ("stormpsr.training", "stormpsr.synthetic")
print("loaded:", *[name for name in sys.modules if name.split(".")[0] in heavy or name.startswith(own)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["loaded:"]
