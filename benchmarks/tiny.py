"""A world small enough to be made in a second: a lamp of three parts, recordings of it, and untrained networks.

What the networks say is nonsense. That it is the same nonsense each time, however often a program was killed, is what
`fuzz.py`, `chaos.py` and `soak.py` need.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from stormpsr.data.images import Image
from stormpsr.data.labels import StateTimeline, steps_from_states, write_states, write_steps
from stormpsr.procedure.model import AssemblyState, Component, Procedure, StateBits, StateKind, Variant

SIZE = 32
STATES: tuple[StateBits, ...] = ((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1))
SETTINGS = """
name: tiny
encoder: {backbone: test_resnet, weights: none, image_size: 32, embedding_dim: 16}
key_frames: {after_seconds: 1.0, n_sample: 4}
temporal: {width: 16, layers: 1, heads: 2, mlp_width: 32}
clips: {window_frames: 16, n_window: 4, delta_frames: 6, sigma_frames: 3}
train_encoder: {epochs: 3, batches_per_epoch: 4, optimiser: adamw, learning_rate: 0.003, warmup_epochs: 0}
train_temporal: {epochs: 6, batches_per_epoch: 6, batch_size: 8, optimiser: adamw, warmup_epochs: 0, frame_drop: 0.1}
train_joint: {epochs: 1, batches_per_epoch: 2, batch_size: 2, optimiser: adamw, warmup_epochs: 0}
"""
DETECTOR = {"wrong_parts": "error_class", "image_size": 64, "backbone": "test_efficientnet", "weights": "none"}


def lamp() -> Procedure:
    """Steps 0, 1, 2: foot on, wrong, off; 3, 4, 5: pole; 6, 7, 8: shade."""
    return chain("lamp", ("foot", "pole", "shade"))


def chain(name: str, parts: tuple[str, ...]) -> Procedure:
    """A procedure of parts that are put on one after the other."""
    n = len(parts)
    states = [tuple(int(k < done) for k in range(n)) for done in range(n + 1)]
    return Procedure(
        name=name,
        components=tuple(Component(part) for part in parts),
        states=(
            AssemblyState(0, StateKind.BACKGROUND, "background"),
            *(AssemblyState(i, StateKind.ASSEMBLY, f"state {i}", bits) for i, bits in enumerate(states, start=1)),
            AssemblyState(n + 2, StateKind.ERROR, "error"),
        ),
        variants={
            "build": Variant("build", initial=states[0], expected=tuple(range(0, 3 * n, 3))),
            "dismantle": Variant("dismantle", initial=states[-1], expected=tuple(range(2, 3 * n, 3))),
        },
        fps=10,
    )


def picture(bits: StateBits, rng: np.random.Generator) -> Image:
    """Bars of the parts that are there, on noise."""
    image = rng.integers(60, 120, (SIZE, SIZE, 3), dtype=np.uint8)
    for k, bit in enumerate(bits):
        if bit == 1:
            image[8:24, 2 + 10 * k : 10 + 10 * k] = np.eye(3, dtype=np.uint8)[k] * 215 + 40
    return image


def write_video(path: Path, images: list[Image], fps: int = 10, codec: str = "libx264") -> None:
    import av

    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=fps)
        stream.height, stream.width = images[0].shape[:2]
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def write_recording(folder: Path, seed: int, n_frames: int = 60, *, video: bool = False) -> None:
    import cv2

    rng, procedure = np.random.default_rng(seed), lamp()
    starts = (0, *np.sort(rng.choice(np.arange(4, n_frames - 4, 5), 3, replace=False)).tolist())
    timeline = StateTimeline(starts, STATES)
    images = [picture(timeline.at(frame), rng) for frame in range(n_frames)]
    (folder if video else folder / "rgb").mkdir(parents=True)
    if video:
        write_video(folder / "rgb.mp4", images)
    else:
        for frame, image in enumerate(images):
            cv2.imwrite(str(folder / "rgb" / f"{frame:06d}.png"), image[:, :, ::-1])
    write_states(folder / "PSR_labels_raw.csv", timeline, procedure)
    write_steps(folder / "PSR_labels.csv", steps_from_states(timeline, procedure, with_errors=False), procedure)
    shown = [{"id": f, "file_name": f"{f:06d}.png", "width": SIZE, "height": SIZE} for f in range(0, n_frames, 4)]
    classes = [procedure.state_class(timeline.at(image["id"])) for image in shown]
    box = {"bbox": [2, 8, 28, 16], "area": 448, "iscrowd": 0}
    marked = [
        {"id": i, "image_id": image["id"], "category_id": number, **box}
        for i, (image, number) in enumerate(zip(shown, classes, strict=True), start=1)
    ]
    content = {"images": shown, "annotations": marked, "categories": []}
    (folder / "OD_labels.json").write_text(json.dumps(content), encoding="utf-8")
    (folder / "recording.json").write_text(json.dumps({"fps": 10, "n_frames": n_frames}), encoding="utf-8")


def write_world(root: Path, n_frames: int = 60, **counts: int) -> Path:
    """A data set: `write_world(root, train=3, val=2)`."""
    root.mkdir(parents=True, exist_ok=True)
    lamp().save(root / "procedure.yaml")
    for split, n in counts.items():
        for i in range(n):
            write_recording(root / split / f"{i:02d}_build_{split}", seed=10 * len(split) + i, n_frames=n_frames)
    return root


def write_model(folder: Path) -> Path:
    """Both networks, with thresholds low enough for some events."""
    import torch

    from stormpsr.config import parse_config
    from stormpsr.decoding.fusion import FusionSettings
    from stormpsr.detectors.registry import make_detector
    from stormpsr.models.checkpoint import save_checkpoint
    from stormpsr.models.stream import build_stream
    from stormpsr.recognizer.model_folder import RecognizerSettings, pack_model

    torch.manual_seed(0)
    config, procedure, parts = parse_config(SETTINGS, where="tiny"), lamp(), folder.parent / f"{folder.name}-parts"
    stream = build_stream(config, procedure.n_components).eval()
    with torch.no_grad():
        for parameter in stream.temporal.head[-1].parameters():
            parameter *= 40
    save_checkpoint(parts / "stream", tensors=stream.state_dict(), config=config, procedure=procedure, metrics={})
    make_detector("compact", procedure, {**DETECTOR, "width": 16, "heads": 2}).save(parts / "detector")
    fusions = ("detection", "temporal", "average", "released")
    settings = RecognizerSettings(
        detector_min_confidence=0.0,
        methods={name: FusionSettings(threshold=0.6, min_change_probability=0.4) for name in fusions},
    )
    return pack_model(folder, stream=parts / "stream", detector=parts / "detector", settings=settings)
