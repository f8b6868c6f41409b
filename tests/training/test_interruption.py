"""Ctrl-C in a real process: it ends at once, leaves a checkpoint that can be used, and is resumed to the same end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from stormpsr.cli.main import main
from stormpsr.models.checkpoint import load_checkpoint

LONG = ("-o", "train_temporal.epochs=15", "-o", "train_temporal.batches_per_epoch=10")


def arguments(stage: str, world: Path, settings: Path, out: Path, *more: str) -> list[str]:
    words = ["train", stage, "--data", str(world), "--preset", str(settings), "--out", str(out), *LONG, *more]
    return [*words, "--device", "cpu"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")
def test_ctrl_c_leaves_a_usable_checkpoint_and_the_run_can_be_resumed_to_the_same_end(
    world: Path, settings_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("stopped", "whole"):
        assert main(arguments("encoder", world, settings_file, tmp_path / name)) == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "stormpsr", *arguments("temporal", world, settings_file, tmp_path / "stopped")],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # tests that run in the background of a shell inherit that SIGINT is ignored, and would hand it on
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if "epoch 3 of 15" in line:
            process.send_signal(signal.SIGINT)
    process.stderr.close()
    assert process.wait(timeout=120) == 130
    assert "epoch 15 of 15" not in said
    assert "Traceback" not in said
    assert "the same command with --resume goes on" in said
    stopped = load_checkpoint(tmp_path / "stopped" / "temporal" / "best")
    stopped.stream()
    capsys.readouterr()
    for name, more in (("stopped", ("--resume",)), ("whole", ())):
        assert main(arguments("temporal", world, settings_file, tmp_path / name, *more)) == 0
        assert ("epoch 2 of 15" in capsys.readouterr().err) == (name == "whole")
    resumed, whole = (load_checkpoint(tmp_path / name / "temporal" / "best") for name in ("stopped", "whole"))
    assert resumed.metrics == whole.metrics
    assert all(torch.equal(resumed.tensors[name], whole.tensors[name]) for name in whole.tensors)
