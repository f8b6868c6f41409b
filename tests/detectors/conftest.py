"""A world of coloured blocks: recordings of the lamp, small and plain enough to be learned in seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stormpsr.data.labels import StateTimeline, steps_from_states, write_states, write_steps
from stormpsr.procedure.model import Procedure, StateBits

if find_spec("torch"):  # so that test files may ask for timm, which imports torchvision
    from stormpsr.models.backbones import make_torchvision_importable

    make_torchvision_importable()

SIZE = 64
COLOURS = ((200, 40, 40), (40, 180, 60), (50, 70, 210))  # foot, pole, shade
Image = NDArray[np.uint8]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """One thread is fastest for small networks."""
    if find_spec("torch"):
        import torch

        torch.set_num_threads(1)


def draw_lamp(bits: StateBits, left: int, top: int, hidden: bool = False, seed: int = 0) -> Image:
    """A lamp of 24 by 30 pixels: three bars on top of each other; a wrong one is white, an absent one is missing."""
    rng = np.random.default_rng(seed)
    image = rng.integers(90, 120, (SIZE, SIZE, 3)).astype(np.uint8)
    image[top : top + 30, left : left + 24] = (30, 30, 30)
    for k, bit in enumerate(bits):
        if bit:
            colour = COLOURS[k] if bit > 0 else (250, 250, 250)
            image[top + 20 - 10 * k : top + 30 - 10 * k, left + 2 : left + 22] = colour
    if hidden:
        image[top : top + 30, left : left + 24] = (220, 170, 140)
    return image


@pytest.fixture
def write_lamp(tmp_path: Path, lamp: Procedure) -> Callable[..., Path]:
    """Writes a recording of the lamp: `states` one after the other, four frames each, the fourth hidden."""
    import cv2

    def write(
        split: str = "train", name: str = "01_build", states: list[StateBits] | None = None, root: Path | None = None
    ) -> Path:
        chosen = states or [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, -1), (1, 1, 1)]
        folder = (root or tmp_path / "data") / "recordings" / split / name
        (folder / "rgb").mkdir(parents=True)
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        rng = np.random.default_rng(len(name) + len(split))
        for frame in range(4 * len(chosen)):
            bits, hidden = chosen[frame // 4], frame % 4 == 3
            left, top = (int(v) for v in rng.integers(4, 30, 2))
            image = draw_lamp(bits, left, top, hidden, seed=frame)
            cv2.imwrite(str(folder / "rgb" / f"{frame:06d}.png"), image[:, :, ::-1])
            state_class = lamp.state_class(bits)
            if not hidden and state_class is not None:
                images.append({"id": frame, "file_name": f"{frame:06d}.png", "width": SIZE, "height": SIZE})
                entry = {"id": len(annotations) + 1, "image_id": frame, "category_id": state_class}
                annotations.append({**entry, "bbox": [left, top, 24, 30], "area": 720, "iscrowd": 0})
        content = {"images": images, "annotations": annotations, "categories": []}
        (folder / "OD_labels.json").write_text(json.dumps(content))
        timeline = StateTimeline(tuple(4 * k for k in range(len(chosen))), tuple(chosen))
        write_states(folder / "PSR_labels_raw.csv", timeline, lamp, extension=".png")
        steps = steps_from_states(timeline, lamp, with_errors=False)
        write_steps(folder / "PSR_labels.csv", steps, lamp, extension=".png")
        lamp.save(folder / "procedure.yaml")
        return folder

    return write


@pytest.fixture
def lamp_data(write_lamp: Callable[..., Path], tmp_path: Path) -> Path:
    """A data set with one recording in each split."""
    for split in ("train", "val", "test"):
        write_lamp(split, f"01_build_{split}")
    return tmp_path / "data"
