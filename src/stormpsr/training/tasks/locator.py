# mypy: disallow-subclassing-any=False
"""Training of the locator: where in an image the assembly is. Needed where the encoder looks at a crop around it.

It learns from the frames that somebody drew a box in, and from renders, in which hands may cover the assembly.

Shape legend: B images, S pixels of a side, 3 colours, 4 corners (left, top, right, bottom as shares of the image).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset

from stormpsr.config import Config
from stormpsr.data.frame_cache import Frames
from stormpsr.data.sampling import Shard
from stormpsr.models.locator import Locator, box_iou
from stormpsr.training.data import BoxedFrames
from stormpsr.training.fit import MakeDataset, StageTask

_LOCATOR_STREAM = 3  # so that random numbers are not those of the other samplers


class BoxedImages(Dataset):
    """Images and where the assembly is in them: (image_BSS3, corners_B4, number of the batch)."""

    def __init__(
        self,
        boxed: BoxedFrames,
        frames: Sequence[Frames],
        renders: Sequence[NDArray[np.uint8]],
        render_corners_R4: NDArray[np.float32] | None,
        config: Config,
        *,
        epoch: int,
        batches: int,
        shard: Shard,
    ) -> None:
        self._boxed, self._frames = boxed, frames
        self._renders, self._render_corners_R4 = renders, render_corners_R4
        self._config, self._epoch, self._batches, self._shard = config, epoch, batches, shard

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, int]:
        rng = np.random.default_rng((self._config.seed, _LOCATOR_STREAM, self._epoch, number, self._shard.rank))
        stage = self._config.train_locator
        n = max(stage.batch_size // self._shard.count, 1)
        n_renders = round(stage.render_share * n) if self._render_corners_R4 is not None else 0
        images, corners = [], []
        for row in rng.integers(len(self._boxed), size=n - n_renders):
            images.append(self._frames[self._boxed.recording_M[row]][self._boxed.frame_M[row]])
            corners.append(self._boxed.corners_M4[row])
        if self._render_corners_R4 is not None:
            for row in rng.integers(len(self._renders), size=n_renders):
                images.append(self._renders[row])
                corners.append(self._render_corners_R4[row])
        return torch.from_numpy(np.stack(images)), torch.from_numpy(np.stack(corners)), number


class LocatorTask(StageTask):
    """Judged by how far its boxes overlap those of validation frames."""

    def __init__(
        self,
        locator: Locator,
        config: Config,
        make_dataset: MakeDataset,
        validation: Sequence[tuple[Tensor, Tensor]],
    ) -> None:
        super().__init__(config, config.train_locator, make_dataset, validation)
        self.locator = locator
        self._seen: list[tuple[Tensor, Tensor]] = []

    @property
    def score(self) -> float:
        return self.metrics["box_iou"]

    def tensors(self) -> Mapping[str, Tensor]:
        return {f"encoder.locator.{name}": tensor for name, tensor in self.locator.state_dict().items()}

    def trained(self) -> Sequence[tuple[nn.Module, float]]:
        return [(self.locator, self.stage.learning_rate)]

    def training_step(self, batch: tuple[Tensor, Tensor, int], index: int) -> Tensor:
        image_BSS3, corners_B4, number = batch
        generator = self._generator(number)
        image_BSS3, corners_B4 = _turn(image_BSS3, corners_B4, generator)
        gain = 0.7 + 0.6 * torch.rand(len(image_BSS3), 1, 1, 3, generator=generator)
        loss = self.locator.loss((image_BSS3 * gain.to(image_BSS3.device)).clamp(max=255), corners_B4)
        self._log_loss(loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        image_BSS3, corners_B4 = batch
        shared_B = box_iou(self.locator.locate(image_BSS3), corners_B4)
        self._seen.append((shared_B, self.locator.loss(image_BSS3, corners_B4)))

    def on_validation_epoch_end(self) -> None:
        shared = torch.cat([part for part, _ in self._seen])
        loss = torch.stack([loss for _, loss in self._seen])
        self._seen.clear()
        self._refuse_infinite(loss)
        found = float((shared > 0.5).float().mean())
        self.metrics = {"loss": float(loss.mean()), "box_iou": float(shared.mean()), "found": found}
        self._log_metrics()


def _turn(image_BSS3: Tensor, corners_B4: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A batch turned by quarters and perhaps mirrored: where a thing is does not depend on which side it shows."""
    quarters = int(torch.randint(4, (), generator=generator))
    image_BSS3 = torch.rot90(image_BSS3, quarters, (1, 2))
    for _ in range(quarters):
        left, top, right, bottom = corners_B4.unbind(dim=1)
        corners_B4 = torch.stack([top, 1 - right, bottom, 1 - left], dim=1)
    if torch.rand((), generator=generator) < 0.5:
        left, top, right, bottom = corners_B4.unbind(dim=1)
        image_BSS3, corners_B4 = image_BSS3.flip(2), torch.stack([1 - right, top, 1 - left, bottom], dim=1)
    return image_BSS3, corners_B4
