"""Real processes: one that is killed and resumed, two that train together, two machines of which one is lost."""

from __future__ import annotations

import os
import signal
import socket
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


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


@pytest.mark.timeout(900)  # up to four processes import torch
def test_two_machines_resume_after_one_is_lost_and_train_what_one_trains(
    world: Path, settings_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each machine is a process here. SLURM starts them first, torchrun resumes, both in mixed precision."""
    settings = {"frame_drop": 0, "select_by": "loss", "optimiser": "sgd", "learning_rate": 0.1, "epochs": 8}
    still = [word for key, value in settings.items() for word in ("-o", f"train_temporal.{key}={value}")]
    precision = ("--precision", "bf16-mixed")
    for name in ("one", "two"):
        assert here("encoder", world, settings_file, tmp_path / name, *still) == 0
    assert here("temporal", world, settings_file, tmp_path / "one", *still, *precision) == 0
    words = command("temporal", world, settings_file, tmp_path / "two", *still, *precision, "--machines", "2")
    started: list[subprocess.Popen[str]] = []

    def start(words: list[str], **more: str) -> subprocess.Popen[str]:
        log = (tmp_path / f"log-{len(started)}.txt").open("w+")
        loopback = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
        environment = {**ENVIRONMENT, **loopback, **more}
        own = subprocess.Popen(words, env=environment, stdout=log, stderr=log, text=True, start_new_session=True)
        log.close()
        started.append(own)
        return own

    def log_of(number: int) -> str:
        return (tmp_path / f"log-{number}.txt").read_text()

    try:
        slurm = {"SLURM_JOB_ID": "1", "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "1"}
        slurm |= {"SLURM_NNODES": "2", "SLURM_LOCALID": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        first, second = (start(words, **slurm, SLURM_PROCID=str(k), SLURM_NODEID=str(k)) for k in range(2))
        while "epoch 2 of 8" not in log_of(0):
            assert first.poll() is None, log_of(0)
            assert second.poll() is None, log_of(1)
            time.sleep(0.05)
        for process in (second, first):  # SLURM ends the others of a job when one fails
            process.kill()
            process.wait()
        where = ["--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]
        again = [[sys.executable, "-m", "torch.distributed.run", *where, f"--node-rank={k}"] for k in range(2)]
        resumed = [start([*run, *words[1:], "--resume"]) for run in again]
        for number, process in enumerate(resumed, start=2):
            assert process.wait() == 0, log_of(number)
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    said = log_of(2) + log_of(3)
    assert "epoch 1 of 8" not in said
    assert said.count("epoch 8 of 8") == 1
    one, two = (load_checkpoint(tmp_path / name / "temporal" / "best") for name in ("one", "two"))
    # numbers of 8 bits: sums over half a batch are rounded otherwise
    assert two.metrics["validation"]["loss"] == pytest.approx(one.metrics["validation"]["loss"], rel=0.02)
    assert two.metrics["epoch"] == one.metrics["epoch"]
    capsys.readouterr()
