"""The parts of training that can be checked by hand: schedule, variations, neighbours, data."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from stormpsr.config import Config, EncoderTrainingConfig, TemporalTrainingConfig, parse_config
from stormpsr.decoding.fusion import FusionSettings
from stormpsr.errors import InputError
from stormpsr.models.temporal import AveragedModel, StatesModel
from stormpsr.procedure.model import Procedure
from stormpsr.training.augment import STRENGTHS, BatchAugmentation, augment_batch, draw_motion
from stormpsr.training.data import load_training_data
from stormpsr.training.fit import learning_rate_factor, make_optimiser
from stormpsr.training.tasks.encoder import neighbour_precision
from stormpsr.training.tasks.temporal import clip_f1, clip_loss, decode_changes, disturbed_loss, states_at_ends


# ---------------------------------------------------------------------- schedule
def test_the_learning_rate_rises_in_a_line_and_falls_along_a_cosine() -> None:
    factors = [learning_rate_factor(step, warmup_steps=4, total_steps=14) for step in range(14)]
    assert factors[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert factors[9] == pytest.approx(0.5)
    assert factors[-1] == pytest.approx(0.5 * (1 + np.cos(np.pi * 0.9)))
    assert factors[4:] == sorted(factors[4:], reverse=True)


def test_biases_and_norms_are_not_decayed() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    config = EncoderTrainingConfig(optimiser="adamw", weight_decay=0.1)
    groups = make_optimiser(config, [(module, 0.01)], steps_per_epoch=10)["optimizer"].param_groups
    decays = {tuple(p.shape): group["weight_decay"] for group in groups for p in group["params"]}
    assert decays == {(4, 3): 0.1, (4,): 0.0}


# ---------------------------------------------------------------------- variations
def images() -> torch.Tensor:
    return torch.randint(0, 256, (4, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["light", "strong"])
def test_the_same_generator_varies_images_the_same_way(name: str) -> None:
    def varied(seed: int) -> torch.Tensor:
        return augment_batch(images(), STRENGTHS[name], torch.Generator().manual_seed(seed))  # type: ignore[index]

    assert torch.equal(varied(3), varied(3))
    assert not torch.equal(varied(3), varied(4))
    assert varied(3).shape == (4, 16, 16, 3)
    assert varied(3).min() >= 0
    assert varied(3).max() <= 255


def test_no_strength_changes_nothing() -> None:
    still = BatchAugmentation(0, 0, 0, 0, 0, 0, 0)
    varied = augment_batch(images(), still, torch.Generator().manual_seed(0))
    torch.testing.assert_close(varied, images().float(), atol=0.01, rtol=0)


def test_a_shift_moves_the_image_and_repeats_its_border() -> None:
    image = torch.zeros(64, 16, 16, 3, dtype=torch.uint8)
    image[:, :, 8:] = 200
    shift = BatchAugmentation(0, 0, 0, 0, 0, 0, shift=0.25)
    edges = augment_batch(image, shift, torch.Generator().manual_seed(0))[:, 8, :, 0].sum(dim=1) / 200
    assert edges.min() < 6
    assert edges.max() > 10


# ---------------------------------------------------------------------- validation
def test_a_neighbour_counts_only_in_another_recording() -> None:
    z = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.9, 0.2]]), dim=1)
    labels, recordings = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    # 0 finds 1 (right), 1 finds 0 (right), 2 finds 3 (right), 3 finds 0 (wrong)
    assert neighbour_precision(z, labels, recordings) == pytest.approx(0.75)


def test_states_of_a_single_recording_are_left_out_of_precision() -> None:
    z = torch.eye(3)
    assert neighbour_precision(z, torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1])) is None


def test_clip_f1_counts_clips_and_components_together() -> None:
    said = np.array([[0.9, 0.1], [0.8, 0.7]])
    assert clip_f1(said, np.array([[1, 0], [0, 1]])) == pytest.approx(2 * 2 / (2 * 2 + 1))


def test_a_lasting_change_becomes_one_event(lamp: Procedure) -> None:
    ends = np.arange(0, 200, 4)
    probability = np.zeros((50, 3))
    probability[10:20, 0] = 0.9  # the foot: changed, seen from frame 40 until it leaves the window
    settings = FusionSettings(threshold=4.0, window_frames=40, hold_frames=4)
    events = decode_changes(probability, ends, 200, lamp, "build", settings)
    assert [(event.step_id, event.frame) for event in events] == [(0, 44)]


# ---------------------------------------------------------------------- data
def test_training_data_are_the_two_splits(world: Path) -> None:
    data = load_training_data(world, Config())
    assert [recording.name for recording in data.train] == ["00_build", "01_build", "02_build"]
    assert len(data.val) == 2
    assert data.procedure.name == "lamp"
    assert data.notes(parse_config("clips: {window_frames: 100}", where="")) == [
        "5 recordings are shorter than a window of 100 frames: 00_build, 01_build, 02_build"
    ]


@pytest.fixture
def copy(world: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world, tmp_path / "copy"))


def test_a_data_set_with_one_recording_is_refused(copy: Path) -> None:
    for name in ("01_build", "02_build"):
        shutil.rmtree(copy / "train" / name)
    with pytest.raises(InputError, match="split 'train' has 1 recordings; put at least 2"):
        load_training_data(copy, Config())


def test_a_recording_without_labels_is_refused(copy: Path) -> None:
    for file in (copy / "train" / "01_build").glob("*.csv"):
        file.unlink()
    with pytest.raises(InputError, match="01_build: the recording has no labels"):
        load_training_data(copy, Config())


def test_a_data_set_without_procedure_is_refused(copy: Path) -> None:
    (copy / "procedure.yaml").unlink()
    with pytest.raises(InputError, match="nobody says which procedure this is"):
        load_training_data(copy, Config())


def test_a_procedure_that_does_not_fit_the_labels_is_refused(world: Path) -> None:
    with pytest.raises(InputError, match=r"PSR_labels_raw\.csv:1: 3 states in a row, but 'meccano' has 17"):
        load_training_data(world, parse_config("procedure: meccano", where=""))


# ---------------------------------------------------------------------- the loss of clips
def test_the_ends_of_a_clip_are_its_first_frame_that_exists_and_its_last() -> None:
    state_BNC = torch.tensor([[[0, 1], [0, 1], [1, -1]], [[1, 0], [1, 0], [0, 0]]], dtype=torch.int8)
    mask_BN = torch.tensor([[True, True, True], [False, True, True]])
    assert states_at_ends(state_BNC, mask_BN).tolist() == [[[0, 1], [1, 2]], [[1, 0], [0, 0]]]


def test_wrong_states_at_the_ends_of_a_clip_cost_something() -> None:
    mask_BN, label_BC = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[1.0, 0.0]])
    state_BNC = torch.tensor([[[0, 1], [1, 1]]], dtype=torch.int8)
    right_BC23 = 9 * torch.nn.functional.one_hot(states_at_ends(state_BNC, mask_BN), 3).float()
    read_BNC3 = 9 * torch.nn.functional.one_hot(state_BNC.long() % 3, 3).float()

    class Says(torch.nn.Module):
        def __init__(self, ends_BC23: torch.Tensor) -> None:
            super().__init__()
            self.ends_BC23 = ends_BC23

        def with_states(self, clip: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.tensor([[9.0, -9.0]]), read_BNC3, self.ends_BC23

    losses = [
        float(
            clip_loss(
                Says(ends), torch.zeros(1, 2, 4), mask_BN, label_BC, state_BNC, states_at_ends(state_BNC, mask_BN), 0.5
            )
        )
        for ends in (right_BC23, right_BC23.flip(2))
    ]
    assert losses[0] < 0.01 < 1 < losses[1]


def test_wrong_parts_count_as_often_as_they_are_told_to() -> None:
    """Two parts that nobody can tell: with a weight of 3, a part that sits wrongly is three quarters of the mean."""
    mask_BN, label_BC = torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2)
    state_BNC = torch.tensor([[[-1, 1], [-1, 1]]], dtype=torch.int8)
    read_3 = torch.tensor([0.0, 2.0, 0.0])  # right about the second part, wrong about the first

    class SaysCorrect(torch.nn.Module):
        def with_states(self, clip: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.full((1, 2), -30.0), read_3.expand(1, 2, 2, 3), read_3.expand(1, 2, 2, 3)

    ends_BC2 = states_at_ends(state_BNC, mask_BN)
    log_correct, log_wrong = (float(read_3.log_softmax(0)[k]) for k in (1, 2))
    for weight in (1.0, 3.0):
        found = clip_loss(SaysCorrect(), torch.zeros(1, 2, 4), mask_BN, label_BC, state_BNC, ends_BC2, 1.0, weight)
        mean = -(weight * log_wrong + log_correct) / (weight + 1)
        assert float(found) == pytest.approx(2 * (mean + 2 * mean), rel=1e-4)


def test_the_motion_of_crops_stays_within_its_bounds() -> None:
    strength = STRENGTHS["strong"]
    motion = draw_motion(500, strength, torch.Generator().manual_seed(0), torch.device("cpu"))
    turned = motion.angle_B.abs().max() * 180 / np.pi
    assert 0.9 * strength.rotation_degrees < turned <= strength.rotation_degrees
    assert 1 - strength.scale <= motion.scale_B.min() < motion.scale_B.max() <= 1 + strength.scale
    assert motion.shift_B2.abs().max() <= 2 * strength.shift


def test_models_side_by_side_learn_each_for_itself_and_with_noise_of_its_own() -> None:
    torch.manual_seed(0)
    sizes = {"embedding_dim": 4, "n_frames": 6, "n_components": 2, "queries": 2, "context": 2, "hidden_width": 8}
    twin = StatesModel(**sizes)
    other = StatesModel(**sizes)
    other.load_state_dict(twin.state_dict())
    model = AveragedModel([twin, other])
    clip_BND, mask_BN = torch.randn(5, 6, 4), torch.ones(5, 6, dtype=torch.bool)
    state_BNC = torch.randint(-1, 2, (5, 6, 2), dtype=torch.int8)
    stage = TemporalTrainingConfig(embedding_noise=0.5, frame_drop=0.3, frame_state_weight=0.5)
    generator = torch.Generator().manual_seed(0)
    disturbed_loss(model, clip_BND, mask_BN, torch.ones(5, 2), state_BNC, stage, generator).backward()
    gradients = [member.read.weight.grad for member in model.members]
    assert not torch.allclose(gradients[0], gradients[1])  # they began as one and saw different noise
