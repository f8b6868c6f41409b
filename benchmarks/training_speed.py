"""How fast the stages train, and whether reading batches holds them up.

For each stage: pictures or clips per second with batches read as in training, the same with one batch repeated, and the
peak memory of the process so far. Reading is no bottleneck where the two rates are close.

    python benchmarks/training_speed.py DATA --preset synthetic --steps 20 [-o key=value]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from stormpsr.config import load_config
from stormpsr.models.losses import supervised_contrastive_loss
from stormpsr.models.stream import build_stream
from stormpsr.sampling import Shard, window_offsets
from stormpsr.training.augmentation import STRENGTHS, augment
from stormpsr.training.batches import ClipEmbeddings, ClipImages, KeyFrameImages
from stormpsr.training.data import load_training_data
from stormpsr.training.stages import Run, clip_recordings, clip_sampler, embed, key_frame_sampler


class Speed:
    """The three stages of a run, each as (batches, one step of training)."""

    def __init__(self, run: Run) -> None:
        self.run, self.config = run, run.config
        torch.manual_seed(0)
        self.stream = build_stream(run.config, run.data.procedure.n_components, weights="none")
        self.offsets_N = window_offsets(run.config.clips.window_frames, run.config.clips.n_window)

    def encoder(self) -> tuple[Any, Callable[[Any], Tensor]]:
        stage = self.config.train_encoder
        frames = self.run.frames(self.run.data.encoder_recordings(stage.held_out_share))
        batches = KeyFrameImages(key_frame_sampler(self.run, Shard()), frames, None, epoch=0, batches=10**6)

        def loss(batch: Any) -> Tensor:
            image_BSS3, label_B, number = batch
            if stage.augmentation != "none":
                generator = torch.Generator().manual_seed(number)
                image_BSS3 = augment(image_BSS3, STRENGTHS[stage.augmentation], generator)
            z_BD = self.stream.encoder(image_BSS3)
            return supervised_contrastive_loss(
                z_BD, label_B, temperature=stage.temperature, margin=stage.margin, form=stage.loss_form
            )

        return batches, loss

    def temporal(self) -> tuple[Any, Callable[[Any], Tensor]]:
        stage = self.config.train_temporal
        recordings = clip_recordings(self.run, stage)
        states = [recording.states_FC for recording in recordings]
        stores = embed(self.run, self.stream.encoder, recordings)
        self.stream.train()
        sampler = clip_sampler(self.run, stage, recordings)

        def loss(batch: Any) -> Tensor:
            clip_BND, mask_BN, label_BC, _, _ = batch
            return functional.binary_cross_entropy_with_logits(self.stream.temporal(clip_BND, mask_BN), label_BC)

        return ClipEmbeddings(stores, sampler, states, self.offsets_N, epoch=0), loss

    def joint(self) -> tuple[Any, Callable[[Any], Tensor]]:
        stage = self.config.train_joint
        recordings = clip_recordings(self.run, stage)
        states = [recording.states_FC for recording in recordings]
        sampler = clip_sampler(self.run, stage, recordings)

        def loss(batch: Any) -> Tensor:
            image_BNSS3, mask_BN, label_BC, _, _ = batch
            return functional.binary_cross_entropy_with_logits(self.stream(image_BNSS3, mask_BN), label_BC)

        return ClipImages(self.run.frames(recordings), sampler, states, self.offsets_N, epoch=0), loss


def items_per_second(batches: Iterator[Any], loss: Callable[[Any], Tensor], parameters: list[Any], steps: int) -> float:
    optimiser = torch.optim.SGD(parameters, lr=1e-4)
    n_items, begin = 0, 0.0
    for step in range(steps + 1):
        if step == 1:  # the first is slower
            n_items, begin = 0, time.perf_counter()
        batch = next(batches)
        optimiser.zero_grad()
        loss(batch).backward()
        optimiser.step()
        n_items += len(batch[0])
    return n_items / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--preset", default="synthetic")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--stages", nargs="+", default=["encoder", "temporal", "joint"])
    parser.add_argument("--folder", type=Path, help="for decoded frames and embeddings; default: thrown away")
    parser.add_argument("-o", dest="overrides", action="append", default=[])
    arguments = parser.parse_args()
    config = load_config(arguments.preset, arguments.overrides)
    data = load_training_data(arguments.data, config)
    with tempfile.TemporaryDirectory() as thrown_away:
        speed = Speed(Run(config, data, arguments.folder or Path(thrown_away)))
        parameters = list(speed.stream.parameters())
        print(f"{torch.get_num_threads()} threads, {config.name}, {len(data.train)} recordings")
        for stage in arguments.stages:
            batches, loss = getattr(speed, stage)()
            real = items_per_second(
                (batches[i % len(batches)] for i in range(10**6)), loss, parameters, arguments.steps
            )
            one = batches[0]
            repeated = items_per_second((one for _ in range(10**6)), loss, parameters, arguments.steps)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            share = real / repeated
            print(f"{stage}: {real:.1f} per second, {repeated:.1f} repeated ({share:.0%}), peak memory {memory:.0f} MB")


if __name__ == "__main__":
    main()
