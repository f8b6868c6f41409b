"""A new decoding method appears everywhere by itself: from the list, or by the name of its class."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from stormpsr.cli.main import main
from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.decoding import methods
from stormpsr.decoding.methods import Grid, Method, resolve_method
from stormpsr.decoding.predictions import Decoder, LabelledRecording, OnSteps
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateBits
from stormpsr.recognizer.model_folder import load_model, load_settings
from stormpsr.recognizer.recognizer import Recognizer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recognition.md"
Run = Callable[..., tuple[int, str, str]]


@dataclass(frozen=True)
class MetronomeSettings:
    """As a learned method has them: a number to tune, a file of parameters, and the folder it lies in."""

    every: int = 10
    parameters: str | None = None
    unexpected: str = "drop"
    folder: Path | None = None


class Metronome(Decoder):
    """Reports the next expected step every so many frames, whatever it sees; and writes down what it was shown."""

    Settings = MetronomeSettings
    grid: ClassVar[Grid] = {"every": (7, 13)}
    fewest_to_learn_from = 2

    def reset(self) -> None:
        super().reset()
        self._done: list[int] = []

    def update(
        self,
        detections: Sequence[StateDetection],
        change_probabilities: Sequence[float] | NDArray[np.floating] | None = None,
        frame: int | None = None,
    ) -> list[StepEvent]:
        frame = self._next_frame(frame)
        left = [step for step in self.variant.expected if step not in self._done]
        if not left or frame % self.settings.every != self.settings.every - 1:
            return []
        self._done.append(left[0])
        return [StepEvent(left[0], frame, confidence=1.0, source="metronome")]

    @property
    def state(self) -> StateBits | None:
        return None

    @property
    def share(self) -> NDArray[np.float64]:
        return np.full(len(self.procedure.steps), (self._frame % self.settings.every) / self.settings.every)

    @property
    def component_probabilities(self) -> NDArray[np.float64]:
        return np.full(self.procedure.n_components, 0.5)

    @classmethod
    def fit(
        cls,
        recordings: Sequence[LabelledRecording],
        procedure: Procedure,
        settings: Any,
        folder: Path,
        on_progress: OnSteps | None = None,
    ) -> Any:
        from dataclasses import replace

        (folder / "methods").mkdir(exist_ok=True)
        shown = {one.name: [len(one.labels), len(list(one.predictions))] for one in recordings}
        (folder / "methods" / "metronome.json").write_text(json.dumps(shown))
        return replace(settings, parameters="methods/metronome.json")


@pytest.fixture
def metronome(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line in the list."""
    entry = Method("metronome", f"{__name__}:Metronome", "The metronome", "by the clock", "#123456", "#abcdef")
    entry.__dict__["decoder_class"] = Metronome  # tests are no package that could be imported from
    monkeypatch.setitem(methods.METHODS, "metronome", entry)


@pytest.fixture
def patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The method of the documentation, in a module of its own."""
    found = re.search(r"```python\n(from dataclasses.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "patience_of_a_user.py").write_text(found[1], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "code")
    return "patience_of_a_user:Patience"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model_folder: Path) -> Run:
    """Runs a command beside a copy of the model: exit code, output, error stream."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STORMPSR_CACHE", str(tmp_path / "cache"))
    shutil.copytree(model_folder, "m")

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def check_everywhere(run: Run, world: Path, name: str, title: str, grid_size: int) -> None:
    """Tune, evaluate, report and run with a method that nothing else in the package knows."""
    code, out, err = run("tune", "m", "--data", world, "--method", name, "--json")
    assert code == 0, err
    told = json.loads(out)["methods"][name]
    assert told["n_settings"] == grid_size
    stored = load_settings(Path("m/recognizer.yaml")).of_method(name)
    assert {key: getattr(stored, key) for key in told["chosen"]["settings"]} == told["chosen"]["settings"]
    code, out, err = run("evaluate", "m", "--data", world, "--method", "detection", "--method", name, "--out", "run")
    assert code == 0, err
    assert title in out
    recordings = [json.loads(path.read_text()) for path in Path("run/recordings").glob("*.json")]
    assert all(recording["events"][name] for recording in recordings)
    assert run("report", "run", "--out", "report.html")[0] == 0
    assert title in Path("report.html").read_text(encoding="utf-8")
    one = recordings[0]
    code, out, err = run("run", "m", world / "test" / one["name"], "--method", name, "--save", "film.mp4", "--json")
    assert code == 0, err
    seen = [json.loads(line) for line in out.splitlines()]
    assert [[event["frame"], event["step_id"]] for event in seen] == [row[:2] for row in one["events"][name]]


@pytest.mark.usefixtures("metronome")
def test_an_entry_in_the_list_is_a_method_of_every_command(run: Run, world: Path, lamp: Procedure) -> None:
    check_everywhere(run, world, "metronome", "The metronome", grid_size=2)
    assert "metronome (by the clock)" in methods.method_help(["detection"])
    assert load_model("m").settings.of_method("metronome").every in (7, 13)
    assert Recognizer.of(load_model("m"), "metronome").component_probabilities is not None
    assert len(methods.decode([], lamp, method="metronome", n_frames=40, every=10)) == 3


@pytest.mark.usefixtures("metronome")
def test_learning_goes_on_where_it_was_broken_off(run: Run, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learn, calls = Metronome.fit, []

    def fit(recordings: Sequence[LabelledRecording], *others: Any) -> Any:
        calls.append([one.name for one in recordings])
        if len(calls) == 2:
            raise InputError("the lights went out")
        return learn(recordings, *others)

    monkeypatch.setattr(Metronome, "fit", fit)
    code, _, err = run("tune", "m", "--data", world, "--method", "metronome")
    assert code != 0
    assert "the lights went out" in err
    (finished,) = Path("cache/predictor/fitting").rglob("finished.json")
    kept = finished.read_text()
    finished.write_text(json.dumps({**json.loads(kept), "every": "often"}))
    code, _, err = run("tune", "m", "--data", world, "--method", "metronome")
    assert code == 2
    assert "finished.json: every" in err
    finished.write_text(kept)
    code, _, err = run("tune", "m", "--data", world, "--method", "metronome")
    assert code == 0, err
    # the first part was kept; the second one and that of all recordings were left
    assert calls == [["01_build_val"], ["00_build_val"], ["00_build_val"], ["00_build_val", "01_build_val"]]
    assert list(Path("cache/predictor/fitting").iterdir()) == []
    run("tune", "m", "--data", world, "--method", "metronome")
    assert len(calls) == 4 + 3  # what has ended well is not kept


@pytest.mark.usefixtures("metronome")
def test_what_a_method_learns_lies_in_the_models_folder(
    run: Run, world: Path, stream_folder: Path, detector_folder: Path
) -> None:
    code, _, err = run("tune", "m", "--data", world, "--method", "metronome", "--dry-run")
    assert code == 0, err
    assert not Path("m/methods").exists()
    run("tune", "m", "--data", world, "--method", "metronome")
    settings = load_model("m").settings_of("metronome", "report")
    assert (settings.folder, settings.unexpected) == (Path("m"), "report")
    shown = json.loads((settings.folder / settings.parameters).read_text())
    assert shown == {"00_build_val": [3, 60], "01_build_val": [3, 60]}
    code, _, err = run("model", "pack", "--stream", stream_folder, "--detector", detector_folder, "--out", "m")
    assert code == 0, err
    assert Path("m/methods/metronome.json").is_file()  # packing keeps the settings, so it keeps what they name


def test_the_method_of_the_documentation_is_a_method_of_every_command(
    run: Run, world: Path, patience: str, seeing: Callable[..., Any], frames: Callable[..., Any], lamp: Procedure
) -> None:
    recognizer = Recognizer.of(seeing(), patience, "build")
    events = [event for frame in frames() for event in recognizer.update(frame)]
    assert [(event.frame, event.step_id) for event in events] == [(16, 0), (32, 3), (48, 6)]  # 5 frames of each state
    code, out, err = run("tune", "m", "--data", world, "--method", patience, "--json")
    assert code == 0, err
    assert json.loads(out)["methods"][patience]["n_settings"] == 6
    code, out, err = run("evaluate", "m", "--data", world, "--method", patience, "--out", "run")
    assert code == 0, err
    assert "Patience" in out
    assert run("report", "run")[0] == 0
    rows = [StateDetection(frame, 2, 0.9) for frame in range(20)]
    assert [event.frame for event in methods.decode(rows, lamp, "build", patience, frames=3)] == [2]


def test_settings_of_a_class_that_is_not_installed_here_are_kept(tmp_path: Path) -> None:
    from stormpsr.recognizer.model_folder import save_settings

    path = tmp_path / "recognizer.yaml"
    path.write_text("format: stormpsr recognizer 1\nmethods:\n  elsewhere.far:Away: {threshold: 3}\n")
    settings = load_settings(path)
    save_settings(path, settings)
    assert load_settings(path).methods["elsewhere.far:Away"] == {"threshold": 3}
    with pytest.raises(InputError, match="there is no module 'elsewhere'"):
        settings.of_method("elsewhere.far:Away")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("expcted", "unknown method 'expcted'; did you mean 'expected'"),
        ("sum", "unknown method 'sum'; choose one of: naive, .* package.module:Class"),
        ("json:JSONDecoder", "'json:JSONDecoder' is no decoding method"),
        ("json:Nothing", "'json:Nothing' is no decoding method"),
    ],
)
def test_what_is_no_method_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        resolve_method(name)


def test_every_method_of_the_list_has_settings_that_can_be_stored(lamp: Procedure) -> None:
    for method in methods.METHODS.values():
        if method.name == "recurrent":  # it cannot be built before it was fitted
            assert method.settings(method.stored(method.settings())) == method.settings()
            continue
        decoder = method.decoder_class(lamp)
        assert method.settings(method.stored(decoder.settings)) == decoder.settings
        assert decoder.share.shape == (len(lamp.steps),)
        assert set(method.grid) <= set(method.stored(decoder.settings))
