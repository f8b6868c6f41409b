"""Real processes: one that is killed and resumed, and two that train together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stormpsr.cli.main import main
from stormpsr.models.checkpoint import load_checkpoint


def command(stage: str, world: Path, settings: Path, out: Path, *more: str) -> list[str]:
    start = [sys.executable, "-m", "stormpsr", "train", stage, "--data", str(world), "--preset", str(settings)]
    return [*start, "--out", str(out), "--device", "cpu", *more]


def here(*arguments: Path | str) -> int:
    """The same command in this process."""
    return main(command(*arguments)[3:])  # type: ignore[arg-type]


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def test_a_process_killed_in_the_middle_ends_after_resuming_where_an_uninterrupted_one_ends(
    world: Path, settings_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = ("-o", "train_encoder.epochs=6", "-o", "train_encoder.batches_per_epoch=6")
    process = subprocess.Popen(
        command("encoder", world, settings_file, tmp_path / "killed", *long),
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:  # a line per epoch
        if "epoch 2 of 6" in line:
            time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
            break
    process.wait()
    process.stderr.close()
    assert process.returncode == -signal.SIGKILL
    for name, more in (("killed", ("--resume",)), ("whole", ())):
        assert here("encoder", world, settings_file, tmp_path / name, *long, *more) == 0
        begun_anew = "epoch 1 of 6" in capsys.readouterr().err
        assert begun_anew == (name == "whole")
    killed, whole = (load_checkpoint(tmp_path / name / "encoder" / "best") for name in ("killed", "whole"))
    assert killed.metrics == whole.metrics
    assert all(torch.equal(killed.tensors[name], whole.tensors[name]) for name in whole.tensors)


@pytest.mark.timeout(900)  # two processes import torch
def test_two_processes_train_what_one_trains_with_the_same_batch(
    world: Path, settings_file: Path, tmp_path: Path, start_processes: Callable[..., Any]
) -> None:
    """Without dropped frames, whose random numbers belong to a process."""
    settings = {"frame_drop": 0, "select_by": "loss", "optimiser": "sgd", "learning_rate": 0.1}
    still = [word for key, value in settings.items() for word in ("-o", f"train_temporal.{key}={value}")]
    for name in ("one", "two"):
        assert here("encoder", world, settings_file, tmp_path / name, *still) == 0
    assert here("temporal", world, settings_file, tmp_path / "one", *still) == 0
    done = start_processes(command("temporal", world, settings_file, tmp_path / "two", *still, "--devices", "2"))
    assert done.returncode == 0, done.stderr
    one, two = (load_checkpoint(tmp_path / name / "temporal" / "best") for name in ("one", "two"))
    assert two.metrics["validation"]["loss"] == pytest.approx(one.metrics["validation"]["loss"], rel=1e-4)
    for name, tensor in one.tensors.items():
        torch.testing.assert_close(two.tensors[name], tensor, rtol=1e-3, atol=1e-4)
