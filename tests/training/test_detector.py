"""Training of a detector: it learns from its losses, stops, and goes on as if it had not stopped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from torch import Tensor, nn

from stormpsr.data.annotated_frames import FrameSet, images_of, read_frames
from stormpsr.data.frame_cache import FrameCache
from stormpsr.data.images import Placement
from stormpsr.detectors.base import Batch, Detection, StepTrainedDetector
from stormpsr.detectors.compact import CompactDetector
from stormpsr.detectors.known_views import KNOWN_VIEWS_FILE
from stormpsr.detectors.registry import load_detector, make_detector
from stormpsr.errors import InputError
from stormpsr.files import only_user
from stormpsr.procedure.model import Procedure
from stormpsr.training.fit import FitOptions
from stormpsr.training.tasks.detector import (
    UNFINISHED_FOLDER,
    Batches,
    BatchSettings,
    TrainingSettings,
    _moving_average,
    train_detector,
)

TINY = {"image_size": 64, "backbone": "test_efficientnet", "weights": "none", "width": 16, "crop_size": 32, "heads": 2}
SHORT = TrainingSettings(
    steps=6,
    warmup_steps=1,
    epoch_steps=2,
    average=0.5,
    batch=BatchSettings(batch_size=4),
    validation_frames=2,
    calibration_frames=8,
)
CPU = FitOptions(device="cpu")


@pytest.fixture
def frames(lamp_data: Path, lamp: Procedure) -> FrameSet:
    return read_frames(lamp_data, "train", lamp)


def new_detector(procedure: Procedure) -> CompactDetector:
    torch.manual_seed(1)
    detector: Any = make_detector("compact", procedure, TINY)
    return detector


class LineDetector(StepTrainedDetector):
    """One weight w with the loss (w - 1)^2: what training makes of it can be worked out by hand."""

    image_size = 32

    def __init__(self, procedure: Procedure) -> None:
        super().__init__(procedure)
        self.network = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.network.weight)
        self.seen: list[tuple[int, float, float]] = []  # step, weight, a random number

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        weight = self.network.weight
        self.seen.append((batch.step, float(weight.detach()), float(torch.rand(()))))
        return {"distance": (weight - 1).square().sum()}

    def raw_detections(self, image_BSS3: Tensor, placements: Sequence[Placement]) -> list[list[Detection]]:
        return [[] for _ in placements]


class Stop(Callback):
    """The user's Ctrl-C after some batches."""

    def __init__(self, after: int) -> None:
        self._left = after

    def on_train_batch_end(self, *_: Any) -> None:
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


def train_until(detector: StepTrainedDetector, frames: FrameSet, folder: Path, step: int) -> None:
    options = replace(CPU, callbacks=(Stop(step),))
    with pytest.raises(KeyboardInterrupt):
        train_detector(detector, frames, frames, SHORT, folder=folder, options=options)


# ---------------------------------------------------------------------- learning
def test_training_follows_the_losses_step_by_step(frames: FrameSet) -> None:
    detector = LineDetector(frames.procedure)
    settings = replace(SHORT, steps=12, learning_rate=0.05, weight_decay=0.0)
    train_detector(detector, frames, frames, settings, options=CPU)
    assert [step for step, _, _ in detector.seen] == list(range(12))
    weights = [weight for _, weight, _ in detector.seen]
    assert weights == sorted(weights)  # each step comes nearer to 1
    # Adam's first step is as long as the learning rate, which is half of the greatest during a warm-up of one step
    assert weights[1] == pytest.approx(0.05 * settings.rate_at(0), rel=1e-3)
    assert weights[1] < float(detector.network.weight.detach()) < 1  # the average lags behind


def test_the_loss_of_the_compact_detector_on_one_batch_falls(frames: FrameSet, tmp_path: Path) -> None:
    detector = new_detector(frames.procedure)
    settings = replace(SHORT, steps=30, epoch_steps=30, learning_rate=5e-3)
    batch = Batches(frames, FrameCache(tmp_path, 64), settings)[0]

    def loss() -> float:
        detector.network.train()
        torch.manual_seed(0)
        with torch.no_grad():
            return float(torch.stack(list(detector.losses(batch).values())).sum())

    before = loss()
    train_detector(detector, frames, frames, settings, options=CPU)
    assert loss() < 0.8 * before


def test_every_part_of_the_compact_network_is_reached_by_gradients(frames: FrameSet, tmp_path: Path) -> None:
    detector = new_detector(frames.procedure)
    detector.network.train()
    settings = replace(SHORT, batch=BatchSettings(batch_size=12))
    batch = Batches(frames, FrameCache(tmp_path, 64), settings)[0]
    torch.stack(list(detector.losses(batch).values())).sum().backward()
    parts = {name.partition(".")[0] for name, weight in detector.network.named_parameters() if weight.grad is not None}
    assert parts == {name.partition(".")[0] for name, _ in detector.network.named_parameters()}


def test_the_average_follows_quickly_at_first_and_copies_what_cannot_be_averaged() -> None:
    kept, count = torch.zeros(1), torch.zeros(1, dtype=torch.long)
    update = _moving_average(0.995)
    update([kept, count], [torch.ones(1), torch.full((1,), 7)], torch.tensor(1))  # the first step: a memory of 1 / 10
    assert float(kept) == pytest.approx(0.9)
    assert int(count) == 7
    update([kept], [torch.zeros(1)], torch.tensor(10_000))
    assert float(kept) == pytest.approx(0.9 * 0.995)


# ---------------------------------------------------------------------- stopping and going on
def test_stopped_training_goes_on_and_ends_where_it_would_have_ended(frames: FrameSet, tmp_path: Path) -> None:
    straight, stopped, resumed = (new_detector(frames.procedure) for _ in range(3))
    train_detector(straight, frames, frames, SHORT, folder=tmp_path / "straight", options=CPU)
    train_until(stopped, frames, tmp_path / "stopped", 3)
    assert (tmp_path / "stopped" / UNFINISHED_FOLDER).is_dir()
    result = train_detector(resumed, frames, frames, SHORT, folder=tmp_path / "stopped", options=CPU)
    assert result is not None
    assert result["resumed_at"] == 2  # the epoch that was interrupted is repeated
    files = ["config.yaml", "metrics.json", "model.safetensors", "procedure.yaml"]
    assert sorted(path.name for path in (tmp_path / "stopped").iterdir()) == files
    for name, tensor in straight.network.state_dict().items():
        assert torch.equal(tensor, resumed.network.state_dict()[name]), name


def test_a_step_draws_the_same_random_numbers_when_it_is_repeated(frames: FrameSet, tmp_path: Path) -> None:
    straight, stopped, resumed = (LineDetector(frames.procedure) for _ in range(3))
    train_detector(straight, frames, frames, SHORT, folder=tmp_path / "straight", options=CPU)
    train_until(stopped, frames, tmp_path / "stopped", 3)
    train_detector(resumed, frames, frames, SHORT, folder=tmp_path / "stopped", options=CPU)
    assert resumed.seen == straight.seen[2:]


def test_unfinished_training_with_other_settings_is_not_mixed(frames: FrameSet, tmp_path: Path) -> None:
    train_until(LineDetector(frames.procedure), frames, tmp_path, 3)
    with pytest.raises(InputError, match=r"other settings: training\.seed was 0 and is 5") as caught:
        train_detector(
            LineDetector(frames.procedure), frames, frames, replace(SHORT, seed=5), folder=tmp_path, options=CPU
        )
    assert caught.value.path == str(tmp_path / UNFINISHED_FOLDER)


def test_a_detector_that_another_process_trains_is_left_alone(frames: FrameSet, tmp_path: Path) -> None:
    detector = LineDetector(frames.procedure)
    with only_user(tmp_path / "out"), pytest.raises(InputError, match="out: another process is writing this"):
        train_detector(detector, frames, frames, SHORT, folder=tmp_path / "out", options=CPU)
    assert not (tmp_path / "out").exists()


def test_what_was_measured_is_kept_with_the_detector(frames: FrameSet, tmp_path: Path) -> None:
    metrics = train_detector(
        LineDetector(frames.procedure), frames, frames, SHORT, folder=tmp_path, options=CPU, note=lambda: {"minutes": 7}
    )
    assert metrics == {"resumed_at": 0, "right": 0.0}
    kept = json.loads((tmp_path / "metrics.json").read_text())["training"]
    assert (kept["steps"], kept["batch"]["batch_size"], kept["right"]) == (6, 4, 0.0)
    assert kept["minutes"] == 7


def test_what_images_look_like_to_a_compact_detector_is_kept_with_it(
    frames: FrameSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector: Any = new_detector(frames.procedure)
    train_detector(detector, frames, frames, SHORT, folder=tmp_path / "few", options=CPU)
    assert not (tmp_path / "few" / KNOWN_VIEWS_FILE).exists()  # too few frames to tell
    monkeypatch.setattr("stormpsr.detectors.known_views._FEWEST_PER_DIMENSION", 0)
    train_detector(detector, frames, frames, SHORT, folder=tmp_path / "out", options=CPU)
    loaded: Any = load_detector(tmp_path / "out", device="cpu")
    (found,) = loaded.detect(list(images_of(frames.readable[:1])), min_confidence=0.0)
    assert found[0].strangeness is not None
    assert 0 < found[0].strangeness < 1.5  # it learned from this one


def test_validation_looks_through_the_averaged_weights_and_gives_the_own_ones_back(frames: FrameSet) -> None:
    looked: list[float] = []

    class Watching(LineDetector):
        def raw_detections(self, image_BSS3: Tensor, placements: Sequence[Placement]) -> list[list[Detection]]:
            looked.append(float(self.network.weight.detach()))
            return super().raw_detections(image_BSS3, placements)

    detector = Watching(frames.procedure)
    train_detector(detector, frames, frames, replace(SHORT, average=0.9), options=CPU)
    own = [weight for _, weight, _ in detector.seen]
    assert looked[0] < own[2]  # after two steps the average is behind
    assert own == sorted(own)  # and training went on from its own weights
    assert looked[-1] == float(detector.network.weight.detach())


# ---------------------------------------------------------------------- refusals
def test_frames_of_another_procedure_are_refused(frames: FrameSet, meccano: Procedure) -> None:
    with pytest.raises(InputError, match="trained for procedure 'meccano'"):
        train_detector(LineDetector(meccano), frames, frames, SHORT, options=CPU)


def test_a_loss_that_is_no_number_stops_training_at_once(frames: FrameSet) -> None:
    detector = LineDetector(frames.procedure)
    nn.init.constant_(detector.network.weight, float("nan"))
    with pytest.raises(InputError, match="training diverged: the loss of step 0 is nan"):
        train_detector(detector, frames, frames, SHORT, options=CPU)


def test_a_batch_that_cannot_be_shared_is_refused(frames: FrameSet) -> None:
    with pytest.raises(InputError, match="a batch of 4 cannot be shared equally"):
        train_detector(
            LineDetector(frames.procedure), frames, frames, SHORT, options=FitOptions(device="cpu", devices=3)
        )


@pytest.mark.parametrize("device", ["gpu", "cuda1", "tpu:0"])
def test_devices_have_the_names_that_torch_gives_them(device: str) -> None:
    with pytest.raises(InputError, match="there is no device"):
        FitOptions(device=device)


def test_the_learning_rate_rises_then_falls_to_nearly_nothing() -> None:
    settings = TrainingSettings(steps=100, warmup_steps=10)
    rates = [settings.rate_at(step) for step in range(100)]
    assert max(rates) == pytest.approx(1.0, abs=0.01)
    assert rates.index(max(rates)) == 10
    assert rates[0] < 0.1
    assert rates[-1] < 0.02


@pytest.mark.parametrize(
    ("name", "value"), [("steps", 0), ("epoch_steps", 0), ("learning_rate", 0.0), ("average", 1.0), ("seed", -1)]
)
def test_settings_that_make_no_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError):
        replace(TrainingSettings(), **{name: value})  # type: ignore[arg-type]


# ---------------------------------------------------------------------- presets
def test_the_published_recipe_trains_for_epochs_of_all_frames() -> None:
    from stormpsr.training.tasks.detector import detector_presets, load_detector_preset

    assert detector_presets() == ["synthetic", "yolov8m-published"]
    shipped = load_detector_preset("synthetic")
    assert (shipped.detector, shipped.settings(100, {}, {}).batch.wrong_share) == ("compact", 0.5)
    preset = load_detector_preset("yolov8m-published")
    assert (preset.detector, preset.network["model"]) == ("yolov8", "yolov8m")
    settings = preset.settings(1600, {"seed": 3}, {})
    assert (settings.optimiser, settings.learning_rate, settings.seed) == ("adam", 0.0005, 3)
    assert (settings.steps, settings.epoch_steps, settings.warmup_steps) == (5000, 100, 50)  # batches of 16
    assert (settings.augmentation.scale, settings.augmentation.shift, settings.augmentation.flip) == (0.2, 0, 0)
    assert preset.settings(1600, {"learning_rate": 0.1, "steps": 7}, {"batch_size": 8}).steps == 7


def test_an_unknown_preset_and_an_unknown_section_are_refused(tmp_path: Path) -> None:
    from stormpsr.training.tasks.detector import load_detector_preset

    with pytest.raises(InputError, match="there is no preset 'yolov8m-publised' of a detector; did you mean"):
        load_detector_preset("yolov8m-publised")
    (tmp_path / "mine.yaml").write_text("detector: compact\nnetwerk: {}\n")
    with pytest.raises(InputError, match="netwerk"):
        load_detector_preset(str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("batch:\n  bach_size: 3", r"mine\.yaml:3: there is no key 'bach_size'; did you mean 'batch_size'"),
        ("batch:\n  negative_ratio: many", r"mine\.yaml:3: negative_ratio is 'many'"),
        ("augmentation:\n  tint: [1]", r"mine\.yaml:3: tint is \[1\]"),
        ("training:\n  epochs: true", r"mine\.yaml:3: training\.epochs is True; write a number from 0 on"),
        ("training:\n  warmup_epochs: -1", r"mine\.yaml:3: training\.warmup_epochs is -1"),
        ("training:\n  batch: {batch_size: 3}", r"mine\.yaml:3: there is no key 'training\.batch'"),
        ("training:\n  learning_rate: NaN", r"mine\.yaml:3: learning_rate is 'NaN'"),
    ],
)
def test_sections_of_a_preset_that_settings_do_not_have_are_refused_by_line(
    tmp_path: Path, text: str, complaint: str
) -> None:
    from stormpsr.training.tasks.detector import load_detector_preset

    (tmp_path / "mine.yaml").write_text(f"detector: compact\n{text}\n")
    with pytest.raises(InputError, match=complaint):
        load_detector_preset(str(tmp_path / "mine.yaml"))
