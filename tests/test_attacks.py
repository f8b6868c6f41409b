"""A short attack with a fixed seed and a fixed number of inputs: `make fuzz` does the same for as long as one likes."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
COUNT, FEW = 300, 8  # inputs of each light reader, and of each other: half a minute for either kind


# what starts at once; the others need seconds to import what they read with
LIGHT = (
    *("steps", "states", "detections", "centre boxes", "visibility", "coco", "coco exchange", "recording.json"),
    *("filter", "recurrent", "predictions", "rows", "records", "station", "cvat", "label studio", "annotation"),
    *("frame times", "frame cache", "known views", "tokens"),
)


# imported once for all of the others
SLOW_IMPORTS = ("stormpsr.recognizer.reproduce", "stormpsr.synthetic.meshes")


def attack(folder: Path, readers: Sequence[str], count: int, preload: Sequence[str] = ()) -> None:
    """In a process of its own, because it forks."""
    words = [sys.executable, str(CHECKOUT / "benchmarks" / "fuzz.py"), "--seed", "1", "--count", str(count)]
    words += [word for name in readers for word in ("--only", name)]
    words += [word for name in preload for word in ("--preload", name)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert f"| all | {count * len(readers):,} |" in done.stdout


@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="inputs are limited by means of this system")
def test_no_light_reader_fails_on_damaged_files(tmp_path: Path) -> None:
    attack(tmp_path, LIGHT, COUNT)


@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="inputs are limited by means of this system")
def test_no_other_reader_fails_on_a_few_damaged_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images, videos, meshes, networks, presets, products, run folders: whatever is not light."""
    monkeypatch.syspath_prepend(str(CHECKOUT / "benchmarks"))
    fuzz = importlib.import_module("fuzz")
    others = [target.name for target in fuzz.TARGETS if target.name not in LIGHT]
    attack(tmp_path, others, FEW, SLOW_IMPORTS)


@pytest.mark.skipif(sys.platform != "linux", reason="inputs are limited by means of this system")
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("if b'9' in path.read_bytes(): raise KeyError('x')", "KeyError"),
        ("if b'9' in path.read_bytes(): return float('nan')", "WrongError"),
        ("if b'9' in path.read_bytes(): return bytearray(3 * 1024**3)", "MemoryError"),
        ("if b'9' in path.read_bytes(): os.kill(os.getpid(), 11)", "crash or hang"),
    ],
)
def test_the_attack_notices_what_it_looks_for(tmp_path: Path, body: str, told: str) -> None:
    """A reader with a known fault, in a process of its own: one that forks."""
    program = tmp_path / "attack.py"
    program.write_text(
        f"import os, sys\nsys.path.insert(0, {str(CHECKOUT / 'benchmarks')!r})\nimport fuzz\n"
        "def make(folder):\n    (folder / 'a.csv').write_text('1,2\\n3,4\\n5,6\\n')\n"
        f"def read(folder):\n    path = folder / 'a.csv'\n    if not path.is_file(): return None\n    {body}\n"
        "target = fuzz.Target('broken', make, read)\n"
        "for _, found in fuzz.outcomes([target], seed=0, count=40):\n    print(found.inputs, found.failures)\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert told in done.stdout
    assert done.stdout.splitlines()[-1].startswith("40 {")
    assert "again: python benchmarks/fuzz.py --only 'broken' --seed 0 --first" in done.stdout
    if "crash" not in told:
        assert re.search(r"smallest input: a\.csv: b'9+'", done.stdout), done.stdout


def test_all_results_of_a_command_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file by its own name; of several recordings, the last one's."""
    monkeypatch.syspath_prepend(str(CHECKOUT / "benchmarks"))
    chaos = importlib.import_module("chaos")
    commands = {command.name: command for command in chaos.COMMANDS}
    places = {
        "train": ["run/encoder/best/model.safetensors", "run/temporal/best/model.safetensors"],
        "synth generate": ["drawn/a/rgb/000000.jpg", "drawn/a/PSR_labels.csv", "drawn/b/PSR_labels.csv"],
        "learn": ["model/detector/model.safetensors", "model/recognizer.yaml", "model/stream/model.safetensors"],
        "evaluate": ["run/run.json", "run/recordings/a.json", "run/recordings/a.npz"],
    }
    for name, files in places.items():
        for file in files:
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_text(file, encoding="utf-8")
        assert sorted(chaos.results_of(commands[name], tmp_path / name)) == sorted(files)
    recorded = {"01_build": ("rgb/000000.jpg", "frame_times.csv"), "02_build": ("rgb/000000.jpg", "recording.json")}
    for recording, files_of in recorded.items():
        for file in files_of:
            place = tmp_path / "data" / "recordings" / recording / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(recording, encoding="utf-8")
    (tmp_path / "data" / "procedure.yaml").write_text("", encoding="utf-8")
    found = chaos.results_of(commands["record"], tmp_path)
    assert sorted(found) == ["data/procedure.yaml", "recording.json", "rgb/000000.jpg"]
    assert found["rgb/000000.jpg"] == found["recording.json"]  # both of the second


def test_dependencies_are_listed_with_their_licences_and_as_a_bill_of_materials(tmp_path: Path) -> None:
    tool = str(CHECKOUT / "tools" / "dependencies.py")
    listed = subprocess.run([sys.executable, tool, "licences"], capture_output=True, text=True, check=True)
    assert re.search(r"^\| numpy \| [\d.]+ \| .*BSD", listed.stdout, re.MULTILINE)
    subprocess.run([sys.executable, tool, "sbom", str(tmp_path / "sbom.json")], capture_output=True, check=True)
    content = json.loads((tmp_path / "sbom.json").read_text(encoding="utf-8"))
    assert (content["bomFormat"], content["specVersion"]) == ("CycloneDX", "1.5")
    references = [component["bom-ref"] for component in content["components"]]
    assert len(set(references)) == len(references) > 100
    numpy = next(component for component in content["components"] if component["name"] == "numpy")
    assert numpy["externalReferences"][0]["hashes"][0]["alg"] == "SHA-256"
