"""`stormpsr detect` and `stormpsr boxes`, from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stormpsr.cli.main import main
from stormpsr.procedure.model import Procedure

Run = Callable[..., tuple[int, str, str]]
NETWORK = ["image_size=64", "backbone=test_efficientnet", "weights=none", "width=16", "crop_size=32", "heads=2"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command: exit code, output, error stream."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def train(run: Run, data: Path, out: Path, *more: object) -> tuple[int, str, str]:
    settings = [word for pair in NETWORK for word in ("--set", pair)]
    return run("detect", "train", data, "--out", out, "--steps", 3, "--batch-size", 4, *settings, *more)


def test_a_detector_is_trained_scored_run_and_decoded(run: Run, lamp_data: Path, tmp_path: Path) -> None:
    detector = tmp_path / "detector"
    code, out, err = train(run, lamp_data, detector)
    assert code == 0, err
    assert "training compact on 15 frames with a state, 5 without" in out
    assert "trained in" in out
    metrics = json.loads((detector / "metrics.json").read_text())
    assert metrics["training"]["steps"] == 3
    assert metrics["training"]["minutes"] >= 0
    code, _, err = train(run, lamp_data, detector)
    assert code == 2
    assert "a trained detector is there already" in err

    code, out, err = run("detect", "eval", detector, lamp_data, "--plots", tmp_path / "plots", "--json")
    assert code == 0, err
    scores: dict[str, Any] = json.loads(out)
    assert (scores["n_readable"], scores["n_unreadable"]) == (15, 5)
    assert 0 <= scores["map50"] <= 1
    assert scores["milliseconds_per_frame"] > 0
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == [
        "confusion.png",
        "precision_recall.png",
        "reliability.png",
    ]
    for split in ("val", "test"):
        code, out, err = run(
            "detect", "run", detector, lamp_data, "--split", split, "--out", tmp_path / split, "--min-confidence", 0
        )
        assert code == 0, err
        assert "1 recordings, 0 were there already" in out
    procedure = lamp_data / "recordings/test/01_build_test/procedure.yaml"
    code, out, err = run("decode", tmp_path / "test", "--procedure", procedure, "--json")
    assert code == 0, err
    assert list(json.loads(out)["events"]) == ["01_build_test"]

    code, out, err = run("detect", "steps", lamp_data, "--val", tmp_path / "val", "--test", tmp_path / "test", "--json")
    assert code == 0, err
    steps = json.loads(out)
    assert [row["decoder"][:2] for row in steps["rows"]] == ["B1", "B2", "B3"]
    assert steps["bound"] == {"n_labels": 3, "n_followed": 3, "mean_wait_seconds": 0.0}


def test_a_trained_detector_is_trained_further(run: Run, lamp_data: Path, tmp_path: Path) -> None:
    from stormpsr.detectors.registry import begin_detector, load_detector

    first, second = tmp_path / "first", tmp_path / "second"
    assert train(run, lamp_data, first)[0] == 0
    began = begin_detector(first, Procedure.load(first / "procedure.yaml"), {"turn_degrees": 10.0})
    assert began.settings()["turn_degrees"] == 10.0  # the others are those of the first
    kept = load_detector(first).network.state_dict()
    assert all(torch.equal(tensor, kept[name]) for name, tensor in began.network.state_dict().items())

    further = ("detect", "train", lamp_data, "--out", second, "--steps", 1, "--batch-size", 4, "--start", first)
    code, out, err = run(*further)
    assert code == 0, err
    assert "training compact on" in out
    after = load_detector(second).network
    assert after.config.width == 16
    assert any(not torch.equal(tensor, kept[name]) for name, tensor in after.state_dict().items())
    # one step away from where it began, and not from new random weights
    assert torch.allclose(after.state_dict()["part_head.weight"], kept["part_head.weight"], atol=0.02)

    code, _, err = run(*further[:4], tmp_path / "third", "--start", first, "--detector", "yolox")
    assert (code, "--start brings a detector of its own kind; leave --detector out" in err) == (2, True)


def test_a_detector_is_trained_scored_and_run_on_videos(
    run: Run, write_lamp: Callable[..., Path], tmp_path: Path
) -> None:
    for split in ("train", "val", "test"):
        write_lamp(split, f"01_build_{split}", video=True)
    data, detector = tmp_path / "data", tmp_path / "detector"
    code, out, err = train(run, data, detector)
    assert code == 0, err
    assert "training compact on 15 frames with a state, 5 without" in out
    code, out, err = run("detect", "eval", detector, data, "--json")
    assert code == 0, err
    assert (json.loads(out)["n_readable"], json.loads(out)["n_unreadable"]) == (15, 5)
    code, _, err = run("detect", "run", detector, data, "--split", "test", "--out", tmp_path / "out")
    assert code == 0, err
    assert [path.name for path in (tmp_path / "out").glob("*.csv")] == ["01_build_test.csv"]


def test_wrong_parts_can_be_told_in_another_way_after_training(run: Run, lamp_data: Path, tmp_path: Path) -> None:
    train(run, lamp_data, tmp_path / "detector", "--set", "wrong_parts=error_class")
    for how in ("readout", "component_classes"):
        code, out, err = run("detect", "eval", tmp_path / "detector", lamp_data, "--wrong-parts", how, "--every", 2)
        assert code == 0, err
        assert "wrong parts read as correct" in out
        assert "15 readable frames, 6 others" in out  # frames 3, 11 and 19 of the five without a state, each twice


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--set", "image_size"], "write it like --set image_size=128"),
        (["--set", "colour=red"], "there is no key 'colour'"),
        (["--procedure", "industreal"], "3 states in a row, but 'industreal' has 11 components"),
        (["--images", "nowhere"], "nowhere/annotations.json: there is no such file"),
        (["--boxes", "nowhere"], "nowhere: there is no such folder"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(
    run: Run, lamp_data: Path, tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    code, _, err = train(run, lamp_data, tmp_path / "detector", *arguments)
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert complaint in err


def test_data_that_does_not_name_its_procedure_asks_for_it(run: Run, lamp_data: Path, tmp_path: Path) -> None:
    for path in lamp_data.rglob("procedure.yaml"):
        path.unlink()
    code, _, err = train(run, lamp_data, tmp_path / "detector")
    assert code == 2
    assert "nobody says which procedure this is; give one, or put procedure.yaml" in err


def test_a_detector_for_another_procedure_does_not_run(run: Run, lamp_data: Path, tmp_path: Path) -> None:
    train(run, lamp_data, tmp_path / "detector")
    code, _, err = run(
        "detect", "run", tmp_path / "detector", lamp_data, "--procedure", "meccano", "--out", tmp_path / "out"
    )
    assert code == 2
    assert "trained for procedure 'lamp'" in err


def test_a_model_may_be_named_in_the_place_of_its_detector(
    run: Run, lamp_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train(run, lamp_data, tmp_path / "model" / "detector")[0] == 0
    words = ("--split", "test", "--min-confidence", 0)
    for number, name in enumerate(("model/detector", "model")):
        assert run("detect", "run", tmp_path / name, lamp_data, "--out", tmp_path / str(number), *words)[0] == 0
    assert (tmp_path / "0" / "01_build_test.csv").read_bytes() == (tmp_path / "1" / "01_build_test.csv").read_bytes()
    assert run("detect", "eval", tmp_path / "model", lamp_data, "--json")[0] == 0
    monkeypatch.chdir(tmp_path)
    code, _, err = run("detect", "run", "vehicle", lamp_data, "--out", "shipped")
    assert code == 2
    assert "trained for procedure 'vehicle'" in err  # it is there, but knows no lamps
    assert "there is no such folder" in run("detect", "run", "nothing", lamp_data, "--out", "none")[2]


def test_a_detector_meets_data_of_another_procedure(
    run: Run, lamp_data: Path, tmp_path: Path, meccano: Procedure
) -> None:
    train(run, lamp_data, tmp_path / "detector")
    meccano.save(lamp_data / "procedure.yaml")
    for command in (["eval"], ["run", "--out", tmp_path / "out"]):
        code, _, err = run("detect", command[0], tmp_path / "detector", lamp_data, *command[1:])
        assert code == 2
        assert f"{lamp_data / 'procedure.yaml'}: the detector was trained for procedure 'lamp'" in err


def test_bad_data_stop_training_with_one_line_that_names_the_file(run: Run, lamp_data: Path, tmp_path: Path) -> None:
    image = lamp_data / "recordings/train/01_build_train/rgb/000001.png"
    image.write_bytes(b"")
    code, _, err = train(run, lamp_data, tmp_path / "detector")
    assert code == 2
    assert err.splitlines()[-1].startswith(f"error: {image}: this is not an image")
    (lamp_data / "recordings" / "val" / "01_build_val").rename(tmp_path / "elsewhere")
    code, _, err = train(run, lamp_data, tmp_path / "detector")
    assert code == 2
    assert f"{lamp_data}: no recordings in split 'val'" in err


def test_boxes_go_out_and_come_back(run: Run, lamp_data: Path, tmp_path: Path, lamp: Procedure) -> None:
    before = (lamp_data / "recordings/train/01_build_train/OD_labels.json").read_text()
    code, out, err = run(
        "boxes", "export", lamp_data, tmp_path / "out", "--format", "yolo", "--split", "train", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["splits"] == {"train": {"images": 15, "boxes": 15, "without_box": 0}}
    code, _, err = run("boxes", "import", tmp_path / "out", "--into", lamp_data)
    assert code == 2
    assert "boxes are there already" in err
    code, out, err = run("boxes", "import", tmp_path / "out", "--into", lamp_data, "--replace")
    assert code == 0, err
    assert "15 boxes into 1 recordings" in out
    after = json.loads((lamp_data / "recordings/train/01_build_train/OD_labels.json").read_text())
    assert [a["category_id"] for a in after["annotations"]] == [
        a["category_id"] for a in json.loads(before)["annotations"]
    ]


def test_every_split_that_is_there_is_exported_by_default(run: Run, lamp_data: Path, tmp_path: Path) -> None:
    code, out, err = run("boxes", "export", lamp_data, tmp_path / "out", "--negative-ratio", 0.2)
    assert code == 0, err
    assert [path.name for path in sorted((tmp_path / "out/annotations").iterdir())] == [
        "test.json",
        "train.json",
        "val.json",
    ]
    assert "18" in out
