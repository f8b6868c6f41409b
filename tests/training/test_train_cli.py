"""`stormpsr train` as a user runs it: in order, again, dry, and in the wrong order."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stormpsr.cli.main import main
from stormpsr.models.checkpoint import load_checkpoint

Train = Callable[..., tuple[int, str, str]]


@pytest.fixture
def train(world: Path, settings_file: Path, capsys: pytest.CaptureFixture[str]) -> Train:
    def call(stage: str, *more: str) -> tuple[int, str, str]:
        code = main(["train", stage, "--data", str(world), "--preset", str(settings_file), "--device", "cpu", *more])
        return (code, *capsys.readouterr())

    return call


def test_all_stages_run_in_order_and_finished_ones_are_skipped(train: Train, tmp_path: Path) -> None:
    code, out, err = train("all", "--out", str(tmp_path))
    assert code == 0, err
    for name in ("encoder", "temporal", "joint"):
        assert f"{name}: best epoch" in out or f"{name}: no epoch was better than before" in out
    assert "encoder: epoch 2 of 2: training loss" in err
    assert "images/s" in err
    assert load_checkpoint(tmp_path / "joint" / "best").has_temporal
    code, _, err = train("all", "--out", str(tmp_path))
    assert code == 0
    assert err.count("finished before, skipped") == 3
    code, _, err = train("all", "--out", str(tmp_path), "-o", "train_temporal.epochs=3")
    assert code == 0
    assert err.count("skipped (with other settings: train_temporal.epochs was 2 and is 3)") == 3


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(train: Train, tmp_path: Path) -> None:
    out_folder = tmp_path / "run"
    code, out, _ = train("all", "--out", str(out_folder), "--dry-run", "--json")
    plan = json.loads(out)
    assert code == 0
    assert [stage["name"] for stage in plan["stages"]] == ["encoder", "temporal", "joint"]
    assert [stage["batch_size"] for stage in plan["stages"]] == [16, 8, 2]
    assert plan["states"] == ["000", "100", "110", "111"]
    assert plan["cache_bytes"] == 0  # the images have the right size already: nothing needs to be kept
    assert all(stage["minutes"] > 0 for stage in plan["stages"])
    assert not out_folder.exists()


def test_a_stage_without_the_one_before_it_says_so(train: Train, tmp_path: Path) -> None:
    code, _, err = train("temporal", "--out", str(tmp_path))
    assert code == 2
    assert "there is no trained encoder; run 'stormpsr train encoder' first" in err


def test_all_stages_on_two_devices_are_refused(train: Train, tmp_path: Path) -> None:
    code, _, err = train("all", "--out", str(tmp_path), "--devices", "2")
    assert code == 2
    assert "run the stages one after the other" in err


def test_ctrl_c_says_how_to_go_on(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr("stormpsr.training.stages.train_encoder", stop)
    code, _, err = train("encoder", "--out", str(tmp_path))
    assert code == 130
    assert "the same command with --resume goes on after the last whole epoch" in err
