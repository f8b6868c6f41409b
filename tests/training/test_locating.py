"""The stage before the encoder, clips on a grid, the loss per component, and renders of states nobody filmed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from stormpsr.config import parse_config
from stormpsr.data.sampling import Shard
from stormpsr.detectors.registry import make_detector
from stormpsr.errors import InputError
from stormpsr.models.checkpoint import load_checkpoint
from stormpsr.models.stream import build_encoder
from stormpsr.procedure.model import Procedure
from stormpsr.training.data import (
    KeyFrameImages,
    MoreRenders,
    Renders,
    boxed_frames_of,
    load_training_data,
    told_parts,
)
from stormpsr.training.fit import FitOptions
from stormpsr.training.stages import (
    Run,
    as_detector_reads,
    embed,
    key_frame_sampler,
    stages_of,
    train_encoder,
    train_locator,
    train_temporal,
)
from stormpsr.training.tasks.locator import _turn

CROPPED = ("encoder.crop_size=32", "train_locator.epochs=1", "train_locator.batches_per_epoch=2")


@pytest.fixture
def boxed_world(world: Path, lamp: Procedure, tmp_path: Path) -> Path:
    """The tiny world with a box in every tenth frame."""
    root = tmp_path / "boxed"
    for folder in sorted(world.glob("*/*_build")):
        copy = root / folder.relative_to(world)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.mkdir()
        for entry in folder.iterdir():
            (copy / entry.name).symlink_to(entry)
        frames = range(0, 60, 10)
        images = [{"id": k, "file_name": f"{k:06d}.png", "width": 32, "height": 32} for k in frames]
        boxes = [{"id": k, "image_id": k, "category_id": 1, "bbox": [2, 8, 28, 16]} for k in frames]
        categories = [{"id": state.state_class, "name": state.name} for state in lamp.states]
        content = {"images": images, "annotations": boxes, "categories": categories}
        (copy / "OD_labels.json").write_text(json.dumps(content))
    lamp.save(root / "procedure.yaml")
    return root


def make_run(root: Path, folder: Path, settings_text: str, *overrides: str) -> Run:
    config = parse_config(settings_text, where="tiny", overrides=overrides)
    return Run(config, load_training_data(root, config), folder, options=FitOptions(device="cpu"))


def test_boxes_are_shares_of_a_square_image(boxed_world: Path, settings_text: str, tmp_path: Path) -> None:
    run = make_run(boxed_world, tmp_path / "run", settings_text)
    boxed = boxed_frames_of(run.data.train, run.data.procedure)
    assert len(boxed) == 3 * 6
    np.testing.assert_allclose(boxed.corners_M4[0], (2 / 32, 8 / 32, 30 / 32, 24 / 32))


def test_boxes_of_wide_images_are_shares_of_the_square_that_networks_see(
    boxed_world: Path, settings_text: str, tmp_path: Path
) -> None:
    run = make_run(boxed_world, tmp_path / "run", settings_text)
    source = Mock(images=lambda: iter([np.zeros((18, 32, 3), dtype=np.uint8)]))
    boxed = boxed_frames_of([replace(run.data.train[0], source=source)], run.data.procedure)
    # 7 of the square's 32 rows are above the image, whose last row cuts the box, and 7 are below
    np.testing.assert_allclose(boxed.corners_M4[0], (2 / 32, 15 / 32, 30 / 32, 25 / 32))


def test_without_boxes_a_locator_cannot_be_trained(world: Path, settings_text: str, tmp_path: Path) -> None:
    run = make_run(world, tmp_path / "run", settings_text, *CROPPED)
    with pytest.raises(InputError, match=r"encoder\.crop_size=0"):
        train_locator(run)


def test_an_encoder_that_crops_carries_the_trained_locator(
    boxed_world: Path, settings_text: str, tmp_path: Path
) -> None:
    run = make_run(boxed_world, tmp_path / "run", settings_text, *CROPPED, "train_encoder.epochs=1")
    assert stages_of(run.config)[:2] == ["locator", "encoder"]
    with pytest.raises(InputError, match="train the locator first"):
        train_encoder(run)
    locator = load_checkpoint(train_locator(run)).locator()
    trained = load_checkpoint(train_encoder(run, run.stage("locator").best)).encoder()
    for name, tensor in locator.state_dict().items():
        torch.testing.assert_close(trained.locator.state_dict()[name], tensor)


def test_an_encoder_can_start_from_a_detector(
    boxed_world: Path, settings_text: str, lamp: Procedure, tmp_path: Path
) -> None:
    network = {"backbone": "test_resnet", "weights": "none", "image_size": 64, "crop_size": 32}
    detector = make_detector("compact", lamp, network)
    detector.save(tmp_path / "detector")
    start = ("encoder.crop_size=32", f"encoder.weights={tmp_path / 'detector'}", "train_encoder.epochs=1")
    run = make_run(boxed_world, tmp_path / "run", settings_text, *start, "encoder.n_queries=6")
    assert stages_of(run.config)[0] == "encoder"  # the detector knows where the assembly is
    begun = build_encoder(run.config.encoder)
    for name, tensor in detector.network.locator.state_dict().items():
        torch.testing.assert_close(begun.locator.state_dict()[name], tensor)
    theirs, ours = detector.network.reader.state_dict(), begun.backbone.reader.state_dict()
    torch.testing.assert_close(ours.pop("query_QD")[:5], theirs.pop("query_QD"))  # a sixth is new
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor)
    trained = load_checkpoint(train_encoder(run)).encoder()
    torch.testing.assert_close(trained.locator.state_dict(), begun.locator.state_dict())


def test_a_frozen_reader_has_the_detectors_sizes_and_stays_as_it_is(
    boxed_world: Path, settings_text: str, lamp: Procedure, tmp_path: Path
) -> None:
    network = {"backbone": "test_resnet", "weights": "none", "image_size": 64, "crop_size": 32}
    detector: Any = make_detector("compact", lamp, network)
    detector.save(tmp_path / "detector")
    start = ("encoder.crop_size=48", "encoder.n_queries=9", f"encoder.weights={tmp_path / 'detector'}")
    run = make_run(boxed_world, tmp_path / "run", settings_text, *start, "encoder.frozen_reader=true")
    run = replace(run, config=as_detector_reads(run.config))
    assert (run.config.encoder.crop_size, run.config.encoder.n_queries) == (32, 5)
    trained = load_checkpoint(train_encoder(run)).encoder()
    torch.testing.assert_close(trained.backbone.reader.state_dict(), detector.network.reader.state_dict())
    assert trained.reader_digest == detector.reader_digest
    assert not torch.equal(trained.backbone.last.weight, build_encoder(run.config.encoder).backbone.last.weight)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("encoder.crop_size=32", "encoder.n_queries=9", "encoder.frozen_reader=true"), "encoder.n_queries=5"),
        (("encoder.crop_size=32", "encoder.n_queries=3"), "encoder.n_queries=5"),
        (("encoder.crop_size=48", "encoder.n_queries=5"), "encoder.crop_size must be those"),
        (("encoder.crop_size=0", "encoder.n_queries=5"), "crops and reads by queries"),
    ],
)
def test_an_encoder_of_another_shape_than_the_detector_is_refused(
    settings_text: str, lamp: Procedure, tmp_path: Path, overrides: tuple[str, ...], words: str
) -> None:
    network = {"backbone": "test_resnet", "weights": "none", "image_size": 64, "crop_size": 32}
    make_detector("compact", lamp, network).save(tmp_path)
    config = parse_config(settings_text, where="tiny", overrides=[*overrides, f"encoder.weights={tmp_path}"])
    with pytest.raises(InputError, match=words):
        build_encoder(config.encoder)


def test_a_folder_without_a_detector_is_no_start(settings_text: str, tmp_path: Path) -> None:
    overrides = ["encoder.crop_size=32", "encoder.n_queries=5", f"encoder.weights={tmp_path}"]
    with pytest.raises(InputError, match="no detector can be read here"):
        build_encoder(parse_config(settings_text, where="tiny", overrides=overrides).encoder)


def test_settings_without_a_crop_have_no_stage_for_it(settings_text: str) -> None:
    assert stages_of(parse_config(settings_text, where="tiny")) == ["encoder", "temporal", "joint"]


@pytest.mark.parametrize("seed", range(8))
def test_a_turned_image_has_its_box_where_the_thing_is(seed: int) -> None:
    image = torch.zeros(1, 10, 10, 3, dtype=torch.uint8)
    image[0, 2:4, 5:9] = 255
    turned, corners = _turn(image, torch.tensor([[0.5, 0.2, 0.9, 0.4]]), torch.Generator().manual_seed(seed))
    left, top, right, bottom = (corners[0] * 10).round().int().tolist()
    assert turned[0, top:bottom, left:right].float().mean() == 255
    assert (turned > 0).sum() == 3 * (right - left) * (bottom - top)


def test_with_aligned_clips_only_every_so_many_frames_are_encoded(
    world: Path, settings_text: str, tmp_path: Path
) -> None:
    run = make_run(world, tmp_path / "run", settings_text, "clips.aligned=true", "train_temporal.epochs=1")
    folder = train_encoder(run)
    stores = embed(run, load_checkpoint(folder).encoder(), run.data.train)
    assert [len(store) for store in stores] == [30, 30, 30]  # of 60 frames, at a stride of 16 / 8
    every = replace(run, config=parse_config(settings_text, where="tiny"), folder=tmp_path / "every")
    all_frames = embed(every, load_checkpoint(folder).encoder(), run.data.train)
    np.testing.assert_array_equal(stores[0], all_frames[0][::2])
    assert "event_f1" in load_checkpoint(train_temporal(run, folder)).metrics["validation"]


class ComponentGradients(Callback):
    """Whether the read-out of components, and the backbone below it, are reached by the loss of the components."""

    def __init__(self) -> None:
        self.reached: set[str] = set()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        read = pl_module._read(pl_module.encoder.embed(torch.rand(4, 32, 32, 3) * 255))
        read.square().sum().backward()
        for name, weight in pl_module.named_parameters():
            if weight.grad is not None and weight.grad.abs().sum() > 0:
                self.reached.add(name.rpartition(".")[0].partition(".")[0] if "." in name else name)
                if "backbone" in name:
                    self.reached.add("backbone")
        pl_module.zero_grad()


def test_the_loss_per_component_reaches_read_out_and_backbone_and_is_measured(
    world: Path, settings_text: str, tmp_path: Path
) -> None:
    gradients = ComponentGradients()
    overrides = ("train_encoder.component_weight=3", "train_encoder.epochs=1", "train_encoder.select_by=components")
    run = make_run(world, tmp_path / "run", settings_text, *overrides)
    run = replace(run, options=replace(run.options, callbacks=(gradients,)))
    assert 0 <= load_checkpoint(train_encoder(run)).metrics["validation"]["components"] <= 1
    assert gradients.reached >= {"read_out", "backbone"}


@pytest.mark.slow
def test_the_loss_per_component_teaches_which_parts_there_are(world: Path, settings_text: str, tmp_path: Path) -> None:
    overrides = ("train_encoder.component_weight=3", "train_encoder.epochs=10", "train_encoder.batches_per_epoch=20")
    run = make_run(world, tmp_path / "run", settings_text, *overrides, "train_encoder.select_by=components")
    validation = load_checkpoint(train_encoder(run)).metrics["validation"]
    assert validation["components"] > 0.65  # three squares in bright colours; by chance about a half


def test_an_epoch_cannot_be_chosen_by_a_figure_that_is_not_measured(settings_text: str) -> None:
    with pytest.raises(InputError, match="component_weight"):
        parse_config(settings_text, where="tiny", overrides=["train_encoder.select_by=components"])


def test_more_renders_are_added_to_a_batch_and_shared_by_processes(
    world: Path, settings_text: str, tmp_path: Path
) -> None:
    run = make_run(world, tmp_path / "run", settings_text)
    image_RSS3 = np.arange(5, dtype=np.uint8)[:, None, None, None].repeat(32, 1).repeat(32, 2).repeat(3, 3)
    more = MoreRenders(np.array([7, 8, 9, 10, 11]), n=6, seed=0)
    frames = run.frames(run.data.train)
    told = [told_parts(recording, run.data.procedure) for recording in run.data.train]
    images = (frames, image_RSS3, told, np.ones((5, run.data.procedure.n_components), dtype=bool))
    parts = []
    for rank in range(2):
        sampler = key_frame_sampler(run, Shard(rank, 2))
        batch = KeyFrameImages(sampler, *images, epoch=0, batches=1, more=more)
        image_BSS3, label_B, _, _ = batch[0]
        assert len(image_BSS3) == len(label_B) == sampler.batch_size // 2 + 3
        assert (image_BSS3[-3:, 0, 0, 0] + 7 == label_B[-3:]).all()
        parts += label_B[-3:].tolist()
    sampler = key_frame_sampler(run)
    whole = KeyFrameImages(sampler, *images, epoch=0, batches=1, more=more)[0][1][-6:].tolist()
    assert sorted(parts) == sorted(whole)


def test_settings_that_want_renders_are_refused_without_any(world: Path, settings_text: str, tmp_path: Path) -> None:
    run = make_run(world, tmp_path / "run", settings_text, "key_frames.n_more_renders=4")
    with pytest.raises(InputError, match="there are none"):
        train_encoder(run)


def test_states_that_only_renders_show_are_learnt_too(
    world: Path, settings_text: str, lamp: Procedure, tmp_path: Path
) -> None:
    overrides = ("key_frames.n_more_renders=4", "train_encoder.component_weight=1", "train_encoder.epochs=1")
    run = make_run(world, tmp_path / "run", settings_text, *overrides)
    from stormpsr.data.images import write_image
    from stormpsr.data.sources import ImageFolder

    (tmp_path / "renders").mkdir()
    for number in range(6):
        image = np.random.default_rng(number).integers(0, 255, (32, 32, 3), dtype=np.uint8)
        write_image(tmp_path / "renders" / f"{number:06d}.png", image)
    source = ImageFolder(tmp_path / "renders")
    corners_R4 = np.tile(np.array([0.1, 0.1, 0.9, 0.9], dtype=np.float32), (6, 1))
    states, told_RC = ((0, 0, 1), (0, 1, -1)) * 3, np.ones((6, 3), dtype=bool)
    run = replace(run, renders=Renders(((source, tuple(range(6))),), states, corners_R4, told_RC))
    assert load_checkpoint(train_encoder(run)).metrics["validation"]["components"] > 0
