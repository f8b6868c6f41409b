"""`stormpsr learn`: from a model and labelled recordings to the next model."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from stormpsr.cli.main import main
from stormpsr.data.layouts import RecordingFolder
from stormpsr.errors import InputError
from stormpsr.files import only_user
from stormpsr.models.checkpoint import begin_with, load_checkpoint
from stormpsr.procedure.model import Component, Procedure, Variant
from stormpsr.recognizer import learning
from stormpsr.recognizer.learning import Start, open_learning_data, share_out
from stormpsr.recognizer.model_folder import load_model, read_metrics

Learn = Callable[..., tuple[int, str, str]]
TRAINING = """
name: tiny
key_frames: {after_seconds: 1.0, n_sample: 4, n_more_renders: 4}
train_encoder: {epochs: 1, batches_per_epoch: 2, warmup_epochs: 0, component_weight: 1.0, select_by: components}
train_temporal: {epochs: 1, batches_per_epoch: 2, batch_size: 8, warmup_epochs: 0}
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, lamp: Procedure, world: Path) -> Path:
    """Five labelled recordings that belong to no split."""
    root = tmp_path_factory.mktemp("data") / "mine"
    root.mkdir()
    lamp.save(root / "procedure.yaml")
    (source,) = (world / "val").glob("00_*")
    for number in range(5):
        shutil.copytree(source, root / f"{number:02d}_build")
    return root


@pytest.fixture
def learn(
    data: Path, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Learn:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(TRAINING)

    def call(*more: str, start: Path = model_folder, root: Path = data) -> tuple[int, str, str]:
        words = ["learn", str(root), "--start", str(start), "--out", "new", "--preset", "tiny.yaml", "--device", "cpu"]
        code = main([*words, "--steps", "2", "--batch-size", "2", "--threads", "1", *more])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


# ---------------------------------------------------------------------- the whole way
def test_a_model_learns_and_is_compared_with_the_one_before(learn: Learn, lamp: Procedure) -> None:
    code, out, err = learn("--json")
    assert code == 0, err
    assert "the recordings belong to no split, so they are shared out" in err
    assert "1 recording in val: thresholds chosen on fewer than 10 may hold for these alone" in err
    found = json.loads(out)
    assert found["verdict"].startswith("too few recordings to tell which is better")
    assert found["comparison"]["names"] == ["lamp", "new"]
    model = load_model("new", device="cpu")
    assert model.streams == ("detection", "temporal")
    metrics = read_metrics(Path("new"))
    assert {"tuning", "evaluation", "learning", "detector", "stream"} <= set(metrics)
    assert not Path("new.work").exists()
    code, _, err = learn()
    assert code == 2
    assert "new: this is there already" in err


def test_a_dry_run_says_how_long_it_takes_and_writes_nothing(learn: Learn, tmp_path: Path) -> None:
    code, out, err = learn("--dry-run", "--json")
    assert code == 0, err
    plan = json.loads(out)
    assert [step["name"] for step in plan["steps"]] == ["detector", "encoder", "temporal", "recognising"]
    assert plan["minutes"] == pytest.approx(sum(step["minutes"] for step in plan["steps"]))
    assert all(step["minutes"] > 0 for step in plan["steps"])
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


def test_what_was_done_before_a_stop_is_not_done_again(learn: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(learning, "train_temporal", stop)
        code, _, err = learn()
    assert code == 130
    assert "the same command goes on where it was stopped" in err
    trained = [Path("new.work") / name for name in ("detector/model.safetensors", "encoder/best/model.safetensors")]
    before = [path.stat().st_mtime_ns for path in trained]
    code, _, err = learn("--steps", "3")
    assert code == 2
    assert "this was begun with another choice of 'steps'" in err
    code, _, err = learn("--keep")
    assert code == 0, err
    assert [path.stat().st_mtime_ns for path in trained] == before


@pytest.mark.skipif(os.name == "nt", reason="folders cannot be held")
def test_two_do_not_learn_the_same_model_at_once(learn: Learn) -> None:
    with only_user("new.work"):
        code, _, err = learn()
    assert code == 2
    assert "new.work: another process is writing this" in err
    assert not Path("new.work").exists()


def test_a_model_that_another_has_packed_meanwhile_is_left_alone(learn: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = learning.Learning.plan

    def planned(*words: Any, **more: Any) -> Any:
        Path("new").mkdir()
        return plan(*words, **more)

    monkeypatch.setattr(learning.Learning, "plan", planned)
    code, _, err = learn()
    assert code == 2
    assert "new: this is there already" in err
    assert list(Path("new").iterdir()) == []


def test_a_model_of_another_procedure_is_begun_with_and_not_compared(
    learn: Learn, data: Path, tmp_path: Path, lamp: Procedure
) -> None:
    shutil.copytree(data, tmp_path / "faster")
    replace(lamp, fps=20).save(tmp_path / "faster" / "procedure.yaml")
    code, out, err = learn(root=tmp_path / "faster")
    assert code == 0, err
    assert "recognises another procedure (it runs at 20 frames per second, not 10)" in err
    assert "there is nothing to compare with" in out
    assert load_model("new", device="cpu").procedure.fps == 20


# ---------------------------------------------------------------------- where it starts
def test_networks_begin_with_the_tensors_that_fit() -> None:
    before, after = nn.Linear(2, 3), nn.Linear(2, 4)
    tensors = {"temporal.weight": before.weight.half(), "temporal.bias": torch.ones(4)}
    kept = after.weight.clone()
    assert begin_with(after, tensors, "temporal.") == 1
    assert torch.equal(after.bias, torch.ones(4))
    assert torch.equal(after.weight, kept)
    assert begin_with(before, tensors, "temporal.") == 1
    assert before.weight.dtype == torch.float32


def test_a_detector_begins_where_that_of_the_model_is(model_folder: Path, lamp: Procedure) -> None:
    start = Start.of(load_model(model_folder, device="cpu"))
    detector = start.new_detector(lamp, seed=7)
    old = load_model(model_folder, device="cpu").networks.detector.network.state_dict()  # type: ignore[union-attr]
    for name, tensor in detector.network.state_dict().items():
        assert torch.equal(tensor, old[name]), name


def test_a_stream_keeps_its_networks_and_is_trained_more_slowly(
    model_folder: Path, tmp_path: Path, lamp: Procedure
) -> None:
    start = Start.of(load_model(model_folder, device="cpu"))
    config = start.config("trial", ["train_encoder.epochs=3"], tmp_path / "detector", lamp)
    before = load_checkpoint(model_folder / "stream").config
    assert (config.encoder, config.temporal, config.clips) == (before.encoder, before.temporal, before.clips)
    assert config.train_encoder.epochs == 3
    assert config.train_encoder.learning_rate == pytest.approx(0.5 * 0.0005)


def test_an_encoder_that_reads_by_queries_begins_with_the_new_detector(tmp_path: Path, lamp: Procedure) -> None:
    """As that of the shipped model does; it gets as many queries as the detector of a larger product has."""
    start = Start.of(load_model("vehicle", device="cpu"))
    parts = tuple(Component(f"part {number}") for number in range(20))
    variants = {"build": Variant("build", initial=(0,) * 20, expected=(0,))}
    many = replace(lamp, components=parts, states=(), variants=variants)
    small, large = (start.config("trial", [], tmp_path / "detector", procedure) for procedure in (lamp, many))
    assert small.encoder.weights == str(tmp_path / "detector")
    assert (small.encoder.n_queries, large.encoder.n_queries) == (2 + lamp.n_components, 22)


# ---------------------------------------------------------------------- recordings
def test_recordings_are_shared_out_by_their_names() -> None:
    folders = [RecordingFolder(f"{number:02d}", None, Path(f"{number:02d}")) for number in range(10)]
    splits = [folder.split for folder in share_out(folders[::-1])]
    assert splits == ["train", "train", "val", "train", "test"] * 2
    assert [folder.split for folder in share_out(folders[:4])] == ["train", "train", "val", "test"]


def test_too_few_recordings_are_refused_in_words(data: Path, tmp_path: Path) -> None:
    for number in range(3):
        shutil.copytree(data / f"{number:02d}_build", tmp_path / f"{number:02d}_build")
    shutil.copy(data / "procedure.yaml", tmp_path)
    with pytest.raises(InputError) as error:
        open_learning_data(tmp_path, None, lambda note: None)
    assert "too few labelled recordings to choose by: 0; label 1 more, or move some into val/" in str(error.value)


def test_recordings_with_wrong_labels_are_refused_with_their_line(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data")
    (tmp_path / "data" / "03_build" / "PSR_labels.csv").write_text(
        "000012.png,0,Install foot\n000099.png,3,Install pole\n"
    )
    with pytest.raises(InputError, match=r"03_build/PSR_labels.csv:2: .*'stormpsr labels check"):
        open_learning_data(tmp_path / "data", None, lambda note: None)


def test_recordings_without_boxes_say_where_boxes_belong(learn: Learn, data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data")
    for path in (tmp_path / "data").rglob("OD_labels.json"):
        path.unlink()
    code, _, err = learn(root=tmp_path / "data")
    assert code == 2
    assert "no recording of split 'train' has boxes" in err


def test_an_exported_model_cannot_be_started_from(model_folder: Path, tmp_path: Path) -> None:
    model = load_model(model_folder, device="cpu")
    shutil.copytree(model_folder, tmp_path / "exported")
    (tmp_path / "exported" / "stream" / "graphs.json").write_text("{}")
    with pytest.raises(InputError, match="an exported model cannot be trained further"):
        Start.of(replace(model, path=tmp_path / "exported"))
