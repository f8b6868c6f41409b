"""The paper's tables, from the command to the files, on recordings of two seconds of training."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stormpsr.cli.main import main
from stormpsr.config import load_config
from stormpsr.data.dataset import Dataset
from stormpsr.data.images import write_image
from stormpsr.detectors.registry import make_detector
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.recognizer.model_folder import part_digest
from stormpsr.recognizer.reproduce import (
    Cell,
    Experiment,
    Row,
    Table,
    cells_of,
    load_table,
    plan_table,
    shipped_tables,
    stage_config,
)
from stormpsr.training import plan
from stormpsr.training.data import load_renders
from stormpsr.training.fit import FitOptions, Precision
from stormpsr.training.stages import Run

TABLES = ("backbones", "joint", "key-frames", "main", "sampling", "windows", "windows-every-4")


def reproduce(table: str | Path, world: Path, out: Path, settings: Path, *more: str) -> int:
    fixed = ("--data", str(world), "--out", str(out), "--preset", str(settings), "--device", "cpu")
    return main(["reproduce", str(table), *fixed, *more])


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory, lamp: Procedure) -> Path:
    """Untrained: what it says is nonsense, but it says something."""
    folder = tmp_path_factory.mktemp("detector")
    made: Any = make_detector("compact", lamp, {"image_size": 64, "crop_size": 32, "weights": "none"})
    made.save(folder)
    return folder


# ---------------------------------------------------------------------- tables
def test_every_table_of_the_paper_is_there() -> None:
    assert shipped_tables() == sorted(TABLES)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("preset", ["paper-small", "paper-industreal", "released-meccano", "synthetic", "trial"])
def test_every_row_of_a_table_is_a_valid_change_of_every_preset(name: str, preset: str) -> None:
    table = load_table(name)
    for row in table.all_rows():
        load_config(preset, [*table.set, *row.set])


@pytest.mark.parametrize(
    ("name", "rows", "row", "figures"),
    [
        ("main", 6, "STORM-PSR", (0.812, 0.901, 15.5)),
        ("backbones", 12, "TCN, KFS and KCAS", (0.195, 0.414, 49.4)),
        ("sampling", 4, "KCAS", (0.497, 0.506, 14.2)),
        ("windows", 12, "LSTM, 64 frames", (0.200, 0.286, 30.2)),
        ("windows-every-4", 12, "LSTM, 64 frames", (0.200, 0.286, 30.2)),
        ("key-frames", 5, "t_f = 4 s", (0.350, 0.526, 39.8)),
        ("joint", 2, "Before", (0.406, 0.514, 25.3)),
    ],
)
def test_tables_have_the_rows_and_figures_of_the_paper(
    name: str, rows: int, row: str, figures: tuple[float, float, float]
) -> None:
    table = load_table(name)
    assert len(table.rows) == rows
    assert {own.name: own.paper.get("industreal") for own in table.rows}[row] == figures


def test_the_main_table_has_a_row_for_every_method_of_the_registry() -> None:
    from stormpsr.decoding.methods import METHODS

    assert {row.method for row in load_table("main").all_rows()} == set(METHODS)


def test_a_table_of_ones_own_is_a_file_and_mistakes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("title: Mine\nrows:\n  - {name: a}\n  - {name: A!}\n")
    with pytest.raises(InputError, match="two rows have the same name"):
        load_table(str(path))
    path.write_text("title: Mine\nbaseline: b\nrows:\n  - {name: a, sett: [x]}\n")
    with pytest.raises(InputError, match="sett"):
        load_table(str(path))
    with pytest.raises(InputError, match="there is no table 'sampeling'; did you mean 'sampling'"):
        load_table("sampeling")


# ---------------------------------------------------------------------- sharing
def test_stages_are_shared_by_rows_whose_settings_do_not_concern_them(settings_file: Path) -> None:
    one = load_config(settings_file, ["clips.delta_frames=2"])
    other = load_config(settings_file, ["clips.delta_frames=3", "name=other", "train_joint.epochs=3"])
    assert stage_config(one, "encoder") == stage_config(other, "encoder")
    assert stage_config(one, "temporal") != stage_config(other, "temporal")
    third = load_config(settings_file, ["clips.delta_frames=3"])
    assert stage_config(other, "temporal") == stage_config(third, "temporal")
    assert stage_config(other, "joint") != stage_config(third, "joint")
    for changed in ("seed=1", "key_frames.n_sample=3", "encoder.embedding_dim=8"):
        assert stage_config(one, "encoder") != stage_config(load_config(settings_file, [changed]), "encoder")


def test_rows_go_before_what_the_user_changes(whole_world: Path, tmp_path: Path, settings_file: Path) -> None:
    overrides = ("train_encoder.epochs=7", "temporal.mlp_width=64", "clips.n_window=4", "seed=9")
    experiment = Experiment(Dataset.open(whole_world), tmp_path, str(settings_file), overrides=overrides)
    rows = {row.name: row for row in load_table("backbones").rows}
    chosen = {name: experiment.config(load_table("backbones"), row, 2) for name, row in rows.items()}
    assert {name: config.train_encoder.epochs for name, config in chosen.items() if "TCN" in name} == {
        "TCN, neither": 0,
        "TCN, KFS": 7,
        "TCN, KFS and KCAS": 7,
    }
    assert chosen["STORM-PSR, KFS"].temporal.model_dump()["mlp_width"] == 64
    assert {(config.seed, config.clips.n_window) for config in chosen.values()} == {(2, 4)}


def test_rows_without_a_detector_are_left_out_and_said(whole_world: Path, tmp_path: Path, settings_file: Path) -> None:
    notes: list[str] = []
    experiment = Experiment(Dataset.open(whole_world), tmp_path, str(settings_file), on_note=notes.append)
    cells = cells_of(experiment, "main", load_table("main"))
    assert [cell.row.name for cell in cells] == ["Spatio-temporal stream", "Spatio-temporal stream, cut at 0.5"]
    assert any("'STORM-PSR' needs a detector" in note for note in notes)
    with pytest.raises(InputError, match="every row needs a detector"):
        cells_of(experiment, "x", Table("x", (Row("a", method="average"),)))
    # a row that says whose networks it scores keeps them
    experiment = Experiment(Dataset.open(whole_world), tmp_path, str(settings_file), stage="joint")
    assert [cell.row.stage for cell in cells_of(experiment, "joint", load_table("joint"))] == ["temporal", "joint"]
    assert Cell("t", Row("a", method="expected"), 0, load_config(settings_file)).stages() == []


def test_a_row_may_keep_the_threshold_of_the_preset(
    whole_world: Path, tmp_path: Path, settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stormpsr.recognizer import reproduce as module

    experiment = Experiment(Dataset.open(whole_world), tmp_path, str(settings_file))
    rows = {row.name: row for row in load_table("main").rows}
    kept, tuned = rows["STORM-PSR, the paper's T"], rows["STORM-PSR"]
    config = load_config("paper-meccano")
    cells = [Cell("main", row, 0, config) for row in (kept, tuned)]
    assert cells[0].about["tune"] == "none"
    assert "tune" not in cells[1].about, "cells that were made before rows could say so are still done"
    model = SimpleNamespace(settings=module.settings_of_training(config))
    settings = module._tuned(experiment, model, "average", [], str(kept.tune))  # type: ignore[arg-type]
    assert settings.threshold == 1.0


def test_larger_thresholds_are_tried_while_the_largest_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    from stormpsr.decoding.fusion import FusionSettings
    from stormpsr.recognizer import reproduce as module
    from stormpsr.recognizer.tuning import Scored

    def best_threshold(f1_of: Callable[[float], float]) -> tuple[float, list[float]]:
        seen: list[float] = []

        def score(parts: object, method: str, tried: Sequence[FusionSettings]) -> list[Scored]:
            seen.extend(settings.threshold for settings in tried)
            return [Scored(settings, f1_of(settings.threshold), 0.5, 10.0) for settings in tried]

        monkeypatch.setattr(module, "score_settings", score)
        best = module._best_threshold([], "average", FusionSettings(), (2.0, 4.0))
        return best.threshold, seen

    assert best_threshold(lambda threshold: 0.9 if threshold == 2 else 0.1) == (2, [2, 4])
    assert best_threshold(lambda threshold: min(threshold, 10) / 20 - (threshold > 10)) == (8, [2, 4, 6, 8, 12, 16])
    threshold, seen = best_threshold(lambda threshold: 1 - 1 / threshold)
    assert 500 <= max(seen) <= 1024, "but not for ever"
    assert threshold <= max(seen)


# ---------------------------------------------------------------------- whose folder it is
@pytest.fixture
def data(whole_world: Path, tmp_path: Path) -> Path:
    """Data that a test may change."""
    return Path(shutil.copytree(whole_world, tmp_path / "data"))


def write_renders(folder: Path, *, shade: int) -> Path:
    entry = {"image_id": 0, "category_id": 1, "bbox": [2, 2, 20, 20]}
    images = [{"id": 0, "file_name": "0.png", "width": 32, "height": 32}]
    folder.mkdir(exist_ok=True)
    write_image(folder / "0.png", np.full((32, 32, 3), shade, dtype=np.uint8))
    content = {"images": images, "annotations": [entry], "categories": [{"id": 1, "name": "state 1"}]}
    (folder / "annotations.json").write_text(json.dumps(content))
    return folder


def claim(data: Path, out: Path, settings: Path, **more: Any) -> dict[str, Any]:
    """Take a folder for an experiment; what is written there."""
    Experiment(Dataset.open(data), out, str(settings), **more).claim()
    return dict(json.loads((out / "about.json").read_text()))


@pytest.mark.parametrize("split", ["Train", "Val", "Test"])
def test_results_of_data_that_were_drawn_anew_at_the_same_place_are_refused(
    data: Path, tmp_path: Path, settings_file: Path, capsys: pytest.CaptureFixture[str], split: str
) -> None:
    out = tmp_path / "out"
    assert claim(data, out, settings_file) == claim(data, out, settings_file)
    for path in (data / split / f"{split.lower()}1_build" / "rgb").iterdir():
        write_image(path, np.zeros((32, 32, 3), dtype=np.uint8))
    problem = rf"about\.json: .*recordings: {split.lower()}/{split.lower()}1_build was images .*, now images .*; choose"
    with pytest.raises(InputError, match=problem):
        claim(data, out, settings_file)
    for more in ((), ("--dry-run",)):
        assert reproduce("sampling", data, out, settings_file, *more) == 2
        assert "choose another --out, or delete" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["PSR_labels.csv", "PSR_labels_raw.csv", "OD_labels.json", "visibility.csv"])
def test_results_of_data_with_other_labels_are_refused(
    data: Path, tmp_path: Path, settings_file: Path, name: str
) -> None:
    claim(data, tmp_path / "out", settings_file)
    path = data / "Test" / "test1_build" / name
    text = path.read_text() if path.is_file() else "{}"
    path.write_text(re.sub(r"0000([1-5])\d", r"0000\g<1>9", text, count=1))  # a step is a little later
    with pytest.raises(InputError, match=r"recordings: test/test1_build was .* labels"):
        claim(data, tmp_path / "out", settings_file)


def test_results_of_more_or_fewer_recordings_are_refused(data: Path, tmp_path: Path, settings_file: Path) -> None:
    claim(data, tmp_path / "out", settings_file)
    shutil.rmtree(data / "Train" / "train2_build")
    with pytest.raises(InputError, match=r"recordings: train/train2_build was images .*, now None;"):
        claim(data, tmp_path / "out", settings_file)


def test_results_of_other_renders_a_retrained_detector_weights_or_precision_are_refused(
    data: Path, tmp_path: Path, settings_file: Path, lamp: Procedure, detector: Path
) -> None:
    trained, out = Path(shutil.copytree(detector, tmp_path / "detector")), tmp_path / "out"
    renders = write_renders(tmp_path / "renders", shade=10)

    def again(precision: Precision = "32-true") -> None:
        overrides = (f"encoder.weights={trained}", "encoder.crop_size=32", "encoder.n_queries=4")
        more: dict[str, Any] = {"detector": trained, "options": FitOptions(precision=precision)}
        claim(data, out, settings_file, renders=load_renders([renders], lamp), overrides=overrides, **more)

    again()
    (trained / "metrics.json").write_text("{}")  # scores are no part of it
    again()
    with pytest.raises(InputError, match="precision was 32-true, now bf16-mixed"):
        again("bf16-mixed")
    write_renders(renders, shade=99)
    with pytest.raises(InputError, match="render_images was"):
        again()
    write_renders(renders, shade=10)
    again()
    (trained / "known_views.npz").write_bytes(b"of another training")
    with pytest.raises(InputError, match="detector_files was"):
        again()
    path = out / "about.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "detector_files": part_digest(trained)}))
    with pytest.raises(InputError, match="encoder_weights was"):
        again()


def test_a_folder_of_an_older_version_is_gone_on_with_and_its_description_completed(
    data: Path, tmp_path: Path, settings_file: Path, detector: Path
) -> None:
    out, notes = tmp_path / "out", list[str]()
    full = claim(data, out, settings_file, detector=detector, on_note=notes.append)
    assert notes == []
    known = ("data", "renders", "detector", "preset", "overrides", "settings", "stage", "tuned_by", "accumulate")
    (out / "about.json").write_text(json.dumps({key: full[key] for key in known}))
    assert claim(data, out, settings_file, detector=detector, on_note=notes.append) == full
    assert len(notes) == 1
    assert "recordings" in notes[0]
    # it has a copy of the detector: that one is known
    (out / "about.json").write_text(json.dumps({key: full[key] for key in known}))
    packed = Path(shutil.copytree(detector, out / "stages" / "detector" / "detector"))
    claim(data, out, settings_file, detector=detector)
    (out / "about.json").write_text(json.dumps({key: full[key] for key in known}))
    (packed / "known_views.npz").write_bytes(b"of another training")
    with pytest.raises(InputError, match="detector_files was"):
        claim(data, out, settings_file, detector=detector)


def test_a_detector_that_is_not_there_is_named_at_once(whole_world: Path, tmp_path: Path, settings_file: Path) -> None:
    with pytest.raises(InputError, match="nowhere: there is no such folder"):
        claim(whole_world, tmp_path / "out", settings_file, detector=tmp_path / "nowhere")


# ---------------------------------------------------------------------- before hours are spent
@pytest.mark.parametrize("weights", ["imagenet", "package", "nowhere.safetensors"])
def test_weights_that_are_not_there_are_found_out_before_any_network_is_timed(
    whole_world: Path, tmp_path: Path, settings_file: Path, capsys: pytest.CaptureFixture[str], weights: str
) -> None:
    out, more = tmp_path / "out", ("-o", f"encoder.weights={weights}", "--dry-run")
    assert reproduce("sampling", whole_world, out, settings_file, *more) == 2
    assert "weights" in capsys.readouterr().err
    assert not out.exists()


def test_a_hub_that_cannot_be_reached_is_asked_once_for_all_cells_of_a_network(
    whole_world: Path, tmp_path: Path, settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(plan, "check_hub", asked.append)
    more = ("-o", "encoder.weights=hub", "--dry-run", "--seeds", "0", "1")
    assert reproduce("sampling", whole_world, tmp_path / "out", settings_file, *more) == 0
    assert asked == ["test_resnet"]


@pytest.mark.parametrize("split", ["Train", "Test"])
def test_an_image_that_cannot_be_read_is_found_out_by_a_dry_run(
    data: Path, tmp_path: Path, settings_file: Path, capsys: pytest.CaptureFixture[str], split: str
) -> None:
    (data / split / f"{split.lower()}2_build" / "rgb" / "000059.png").write_bytes(b"cut short")
    assert reproduce("sampling", data, tmp_path / "out", settings_file, "--dry-run") == 2
    assert f"{split.lower()}2_build/rgb/000059.png: this is not an image" in capsys.readouterr().err


def test_a_disk_without_room_for_frames_is_found_out_by_a_dry_run(
    whole_world: Path, tmp_path: Path, settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    more = ("-o", "encoder.image_size=64", "--dry-run")
    assert reproduce("sampling", whole_world, tmp_path / "out", settings_file, *more) == 2


def test_steps_of_the_same_networks_are_tried_once_for_all_rows_and_seeds(
    whole_world: Path, tmp_path: Path, settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def try_step(run: Run, stream: object, name: str, size: int, clock: object) -> tuple[float, int]:
        tried.append(name)
        return float(len(tried)), 10

    monkeypatch.setattr(plan, "_try_step", try_step)
    told: list[tuple[str, int, int]] = []
    more: dict[str, Any] = {"seeds": (0, 1), "on_progress": lambda *words: told.append(words)}
    experiment = Experiment(Dataset.open(whole_world), tmp_path, str(settings_file), **more)
    planned = plan_table(experiment, "sampling", load_table("sampling"), perf_counter)
    assert sorted(tried) == ["encoder", "joint", "temporal"]
    n = len(planned.stages)
    assert n > 6
    assert {stage.name: stage.seconds_per_batch for _, stage in planned.stages} == {
        name: tried.index(name) + 1 for name in tried
    }
    assert [words[1:] for words in told if words[0] == "plan stages"] == [(done, n) for done in range(1, n + 1)]


# ---------------------------------------------------------------------- from beginning to end
@pytest.mark.timeout(1200)  # it trains, and the machine may be busy
def test_a_table_is_made_resumed_and_written(
    whole_world: Path, tmp_path: Path, settings_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "small.yaml"
    table.write_text(
        "title: A small table\nfinding: Something is better.\nstage: temporal\nbaseline: one\nrows:\n"
        "  - {name: one, set: [clips.distribution=uniform], paper: {lamp: [0.5, 0.6, null]}}\n"
        "  - {name: without KFS, set: [train_encoder.epochs=0]}\n"
    )
    out = tmp_path / "out"
    more = ("--seeds", "0", "1")
    assert reproduce(table, whole_world, out, settings_file, *more, "--dry-run", "--json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["cells"], planned["cells_done"]) == (4, 0)
    # of each seed two encoders, one of them not trained, and a temporal model on each
    assert sorted(key.split("/")[1] for key, _ in planned["stages"]) == ["encoder"] * 4 + ["temporal"] * 4
    assert not (out / "stages").exists()
    assert reproduce(table, whole_world, out, settings_file, *more) == 0
    cells = sorted((out / "cells" / "small").glob("*.json"))
    assert [path.stem for path in cells] == ["one-0", "one-1", "without-kfs-0", "without-kfs-1"]
    first = json.loads(cells[0].read_text())
    assert set(first["scores"]) == {"test0_build", "test1_build", "test2_build"}

    result = json.loads((out / "small.json").read_text())
    assert [row["name"] for row in result["rows"]] == ["one", "without KFS"]
    f1 = [score["f1"] for path in cells[:2] for score in json.loads(path.read_text())["scores"].values()]
    assert result["rows"][0]["means"]["f1"] == pytest.approx(sum(f1) / 6)
    assert result["rows"][0]["paper"] == [0.5, 0.6, None]
    assert len(result["rows"][1]["differences"]) == 3
    text = (out / "small.md").read_text()
    assert "The paper's finding: Something is better." in text
    assert "| 0.500 | 0.600 | – |" in text
    assert (out / "small.tex").read_text().startswith(r"\begin{tabular}")
    rows = list(csv.DictReader((out / "small.csv").read_text().splitlines()))
    assert [(row["row"], row["seeds"], row["f1_paper"]) for row in rows] == [
        ("one", "2", "0.6"),
        ("without KFS", "2", ""),
    ]

    # the events of cells can be compared
    capsys.readouterr()
    sets = [str(path.with_suffix(".csv")) for path in (cells[0], cells[2])]
    words = ["compare", str(whole_world), *sets, "-p", str(whole_world / "procedure.yaml"), "--split", "test"]
    assert main([*words, "--missing", "empty", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    shown = [result["rows"][0]["means"]["f1"], next(iter(compared["scores"].values()))["f1"]]
    assert shown[1] == pytest.approx(sum(score["f1"] for score in first["scores"].values()) / 3)

    # again: nothing is trained, one lost cell is made from the networks that are there
    trained = {path: path.stat().st_mtime_ns for path in (out / "stages").rglob("model.safetensors")}
    cells[3].unlink()
    changed = json.loads(cells[2].read_text())
    cells[2].write_text(json.dumps({**changed, "config": "of a row with other settings"}))
    assert reproduce(table, whole_world, out, settings_file, *more) == 0
    assert {path: path.stat().st_mtime_ns for path in (out / "stages").rglob("model.safetensors")} == trained
    assert json.loads((out / "small.json").read_text()) == result
    assert reproduce(table, whole_world, out, settings_file, "--stage", "joint") == 2
    assert "belongs to another experiment" in capsys.readouterr().err


@pytest.mark.timeout(1200)  # it trains, and the machine may be busy
def test_the_main_table_scores_both_streams_and_every_method(
    whole_world: Path, tmp_path: Path, settings_file: Path, detector: Path
) -> None:
    out = tmp_path / "out"
    more = ("--detector", str(detector), "--stage", "temporal", "--tune", "none")
    assert reproduce("main", whole_world, out, settings_file, *more) == 0
    result = json.loads((out / "main.json").read_text())
    assert {row["name"] for row in result["rows"]} >= {"Detection only", "STORM-PSR", "B3 expected", "Procedure filter"}
    # the paper has no such procedure: its figures for IndustReal stand beside ours, and it is said
    assert next(row["paper"] for row in result["rows"] if row["name"] == "STORM-PSR") == [0.812, 0.901, 15.5]
    assert "F1, paper (industreal)" in (out / "main.md").read_text()
    # one encoder and one temporal model serve all of them
    assert len(list((out / "stages").rglob("stage.json"))) == 2


def test_seeds_without_their_option_are_refused(whole_world: Path, tmp_path: Path, settings_file: Path) -> None:
    assert reproduce("joint", whole_world, tmp_path / "out", settings_file, "3") == 2
