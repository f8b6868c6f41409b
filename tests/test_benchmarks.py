"""The benchmarks start, the cheapest ones run, and the commands printed in documents name options that exist."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from stormpsr.cli.main import app
from stormpsr.config import load_config
from stormpsr.data.events import StepEvent
from stormpsr.evaluation.run_folder import MethodInfo, RecordingRun, RunInfo, write_recording, write_run
from stormpsr.procedure.model import Procedure

CHECKOUT = Path(__file__).resolve().parent.parent
FOLDER = CHECKOUT / "benchmarks"
SCRIPTS = [path.stem for path in sorted(FOLDER.glob("*.py")) if "__main__" in path.read_text(encoding="utf-8")]
PAGES = [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")]
Importer = Callable[[str], Any]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Importer:
    """Imports a benchmark as Python does when it is started: with its own folder first on the path."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


# ---------------------------------------------------------------------- they start
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_benchmark_says_how_it_is_used(name: str, script: Importer, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        script(name).main(["--help"])
    assert stop.value.code == 0
    assert f"python benchmarks/{name}.py" in capsys.readouterr().out


# ---------------------------------------------------------------------- what documents print
def lines_of(path: Path, command: str) -> list[tuple[str, str]]:
    """(place, command) of every time that a command is printed, in a block or in the text, its lines joined."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.finditer(rf"(?:^    (?:[A-Z]+=\S+ )?|`|^\$ )({command}(?![\w.])[^`\n]*)", text, flags=re.MULTILINE)
    return [(path.relative_to(CHECKOUT).as_posix(), line[1]) for line in found]


IN_DOCUMENTS = [
    found for path in (*PAGES, *FOLDER.glob("*.py")) for found in lines_of(path, r"python benchmarks/\w+.py")
]


class ParsedError(Exception):
    """The arguments were understood."""


@pytest.mark.parametrize(("place", "line"), IN_DOCUMENTS)
def test_documents_call_benchmarks_as_they_can_be_called(
    place: str, line: str, script: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = argparse.ArgumentParser.parse_args

    def only_parse(self: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
        raise ParsedError(parse(self, words))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", only_parse)
    _, path, *words = shlex.split(re.sub(r"[][]", "", line), comments=True)  # brackets: may be left out
    with pytest.raises(ParsedError):
        script(Path(path).stem).main(words)


def test_every_benchmark_stands_in_a_document() -> None:
    named = {line for path in PAGES for _, line in lines_of(path, r"python benchmarks/\w+.py")}
    missing = [name for name in SCRIPTS if not any(f"benchmarks/{name}.py" in line for line in named)]
    assert not missing


@pytest.mark.parametrize("path", sorted(CHECKOUT.glob("docs/results/*.md")), ids=lambda path: path.stem)
def test_results_name_commands_and_options_that_exist(path: Path) -> None:
    """The other pages are run by `test_docs.py`; what these print takes hours."""
    tree: Any = typer.main.get_command(app)
    for _, line in lines_of(path, "stormpsr"):
        words = shlex.split(line, comments=True)[1:]
        command = tree
        while words and hasattr(command, "commands"):
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        unknown = [word for word in words if re.match(r"--?[a-z]", word) and word not in known]
        assert not unknown, f"{line}: {unknown}"


def test_results_change_settings_that_exist() -> None:
    commands = (r"python benchmarks/\w+.py", "stormpsr", "-o")
    lines = [
        line for path in CHECKOUT.glob("docs/results/*.md") for name in commands for _, line in lines_of(path, name)
    ]
    changed = [changes for line in lines if (changes := re.findall(r"-o ([a-z_]+\.[a-z_.]+=\S+)", line))]
    assert changed
    for changes in changed:
        load_config("synthetic", changes)  # complains about a setting that does not exist


# ---------------------------------------------------------------------- the cheapest ones run
def test_the_figures_of_the_protocols_are_those_of_the_page(
    script: Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    script("protocols").main([str(CHECKOUT / "tests" / "golden")])
    printed = capsys.readouterr().out
    page = (CHECKOUT / "docs" / "scoring.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [\w +]+? \| ([\d. |,]+) \|$", printed, flags=re.MULTILINE)
    assert len(rows) == 4
    assert [row for row in rows if row not in page] == []
    lift = re.search(r"The window lifts mean POS by [\d.]+", printed)
    assert lift is not None
    assert lift[0] in page


@pytest.fixture
def run(tmp_path: Path, lamp: Procedure) -> Path:
    """Two recordings of the lamp: in the second the pole is first put on wrongly, and reported all the same."""

    def recording(name: str, wrong: tuple[StepEvent, ...], events: dict[str, tuple[StepEvent, ...]]) -> None:
        labels = (StepEvent(0, 100), StepEvent(3, 200), StepEvent(6, 300))
        with_errors = tuple(sorted((*labels, *wrong), key=lambda event: event.frame))
        options: dict[str, Any] = {"frames_path": "", "events": events, "readable": None}
        write_recording(
            tmp_path / "run",
            RecordingRun(
                name, "build", 10.0, 400, bool(wrong), labels=labels, labels_with_errors=with_errors, **options
            ),
        )

    late = (StepEvent(0, 120), StepEvent(3, 220), StepEvent(6, 320))
    recording("01_build", (), {"detection": late, "average": tuple(StepEvent(e.step_id, e.frame - 10) for e in late)})
    early = (StepEvent(0, 110), StepEvent(3, 170), StepEvent(6, 310))
    recording("02_build", (StepEvent(4, 150),), {"detection": (), "average": early})
    methods = tuple(MethodInfo(name, name, {}) for name in ("detection", "average"))
    write_run(tmp_path / "run", RunInfo("", "", "", "test", "paper", methods, {}), lamp)
    return tmp_path / "run"


def test_seeds_are_averaged_and_compared(
    run: Path, script: Importer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script("seeds").main([str(run), str(run), "--first", "1", "--out", str(tmp_path / "seeds.json")])
    printed = capsys.readouterr().out
    assert "| all 2 recordings | POS | F1 | tau (s) |" in printed
    found = json.loads((tmp_path / "seeds.json").read_text(encoding="utf-8"))
    assert found["the first 1"]["average against detection"]["value"] == pytest.approx([0, 0, -50])
    change = found["all 2 recordings"]["average against detection"]
    assert change["value"][2] == pytest.approx(-50), "the second has no delay of detection, and its other one no pair"
    assert (change["low"][2], change["recordings_with_both_delays"]) == (None, 1)
    # nothing was detected in the other one: there is no delay to compare with
    assert found["the other 1"]["detection"] == [0, 0, None]
    assert found["the other 1"]["average against detection"]["value"][2] is None


def test_a_false_alarm_is_told_by_what_the_part_was_like(
    run: Path, script: Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    script("false_alarms").main([str(run)])
    printed = capsys.readouterr().out
    assert "| STORM-PSR | 5 | 0 | 1 | 0 |" in printed  # right, not yet there, there but wrong, still in place
    assert "| STORM-PSR | 5 | 1 | 0 |" in printed  # found, reported too early, never reported


def test_the_time_of_drawing_is_split_into_all_its_stages(script: Importer) -> None:
    found = script("render").work("vehicle", 64, frames=3, seed=1, split=True)
    unused = [name for name, (_, n_calls) in found["stages"].items() if not n_calls]
    assert set(unused) <= {"second pass"}
    assert sum(seconds for seconds, _ in found["stages"].values()) <= found["processor_seconds"]


def test_a_recording_is_measured_without_images(script: Importer) -> None:
    found = script("synthetic_calibration").one(("vehicle", "quick", 0, 32, 0.5, 60))
    assert len(found.step_frames) > 1
    assert found.step_frames[-1] < found.n_frames == len(found.readable_F)


def test_labels_of_a_profile_are_written_without_drawing(
    script: Importer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from stormpsr.data.label_statistics import label_statistics

    words = ["vehicle", "quick", "--recordings", "2", "--labels", str(tmp_path / "plans")]
    script("synthetic_calibration").main(words)
    found = label_statistics(tmp_path / "plans", Procedure.load(tmp_path / "plans" / "procedure.yaml"))
    own = found.splits["no split"]
    assert own.n_recordings == 2
    assert own.completed.mean > 1
    assert own.mean_seconds is not None
    assert own.mean_seconds > own.seconds_between[0]
    with pytest.raises(SystemExit, match="there already"):
        script("synthetic_calibration").main(words)


# ---------------------------------------------------------------------- what a detector is like
CLASSES = {0: 1, 1: 1, 2: 23, 3: 23, 4: 2}  # frame -> annotated class of IndustReal; 23 is the error state
SAID = [(0, 1, 0.9), (0, 2, 0.3), (1, 2, 0.8), (2, 23, 0.5), (3, 1, 0.7), (7, 1, 0.6), (8, 1, 0.2)]
BEHAVIOUR = {
    "recordings, frames looked at": "1, 10",
    "frames with an annotated box": "50.0 % (5 of 10)",
    "frames with a detection": "50.0 % (5 of 10)",
    "frames without a box that have a detection": "20.0 % (1 of 5)",
    "annotated frames that are detected": "80.0 % (4 of 5)",
    "of these, the right state": "50.0 % (2 of 4)",
    "of these, without those that show an error": "50.0 % (1 of 2)",
    "detected frames that show an error, called so": "50.0 % (1 of 2)",
    "detected frames of a right state, called an error": "0.0 % (0 of 2)",
    "confidence, median": "0.70",
    "where the state is right": "0.70",
    "where it is not": "0.75",
}


def _behaviour(out: str) -> dict[str, str]:
    cells = [line.strip("|").split("|") for line in out.splitlines()[2:]]
    return {name.strip(): value.strip() for name, value in cells}


def test_what_a_detector_is_like_is_counted(
    script: Importer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "real" / "01_assy_0_1"
    own.mkdir(parents=True)
    rows = [f"x,{frame},{number},1,5,5,2,2" for frame, number in CLASSES.items()]
    (own / "boxes.csv").write_text("\n".join(rows))
    (own / "detections.csv").write_text("\n".join(f"x,{f},{c},{sure},5,5,2,2" for f, c, sure in SAID))
    (own / "n_frames.txt").write_text("10")
    script("real_detections").main([str(tmp_path / "real"), "--behaviour"])
    assert _behaviour(capsys.readouterr().out) == BEHAVIOUR
    script("real_detections").main([str(tmp_path / "real"), "--behaviour", "--every", "2"])
    assert _behaviour(capsys.readouterr().out)["frames with an annotated box"] == "60.0 % (3 of 5)"


def test_what_a_detector_is_like_is_counted_in_a_data_set(
    script: Importer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same frames, of which a recording holds every fourth."""
    own = tmp_path / "data" / "test" / "01_assy_0_1"
    own.mkdir(parents=True)
    images = [{"id": f, "file_name": f"{4 * f:06d}.jpg", "width": 64, "height": 64} for f in CLASSES]
    boxes = [{"id": f, "image_id": f, "category_id": c, "bbox": [1, 1, 9, 9]} for f, c in CLASSES.items()]
    (own / "OD_labels.json").write_text(json.dumps({"images": images, "annotations": boxes}))
    (own / "PSR_labels.csv").write_text("")
    (own / "recording.json").write_text(json.dumps({"fps": 10, "n_frames": 40, "frame_step": 4}))
    (tmp_path / "01_assy_0_1.csv").write_text("\n".join(f"x,{4 * f},{c},{sure},5,5,2,2" for f, c, sure in SAID))
    words = [str(tmp_path / "data"), "--split", "test", "--behaviour", "--detections"]
    script("real_detections").main([*words, str(tmp_path)])
    assert _behaviour(capsys.readouterr().out) == BEHAVIOUR
    with pytest.raises(SystemExit, match="make it with 'stormpsr detect run'"):
        script("real_detections").main([*words, str(tmp_path / "nothing")])
