"""What can be told about the state without looking at the object?

Trains a network on frames in which a disc over the whole product (and whatever is in front of it) is painted grey, on
top of what the time in the recording says, and compares it on other people's recordings with the time alone. If the
world gives the answer away elsewhere (empty places on the table, habits of the hands), the network beats the clock. The
same network on the same frames with nothing painted over shows what it can learn where there is something to see.

    python benchmarks/blanked_object.py
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import cv2
import numpy as np
from numpy.typing import NDArray

from script import errors_in_one_line, make_parser
from stormpsr.synthetic.choreography import simulate
from stormpsr.synthetic.look import Look
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import profile_named
from stormpsr.synthetic.recording import look_of
from stormpsr.synthetic.stage import Timeline

TIME_BINS = 24


def disc(product: Product, timeline: Timeline, look: Look, frame: int, size: int) -> tuple[tuple[int, int], int]:
    """A circle in the image that covers the finished product, whatever is mounted: pixel centre and radius."""
    low, high = product.bounds_23
    object_44, camera_44 = timeline.object_pose_F44[frame], timeline.camera_pose_F44[frame]
    centre = object_44[:3, :3] @ ((low + high) / 2) + object_44[:3, 3]
    x, y, z = camera_44[:3, :3].T @ (centre - camera_44[:3, 3])
    if z > -0.02:
        return (-1000, -1000), 1
    half = np.tan(np.deg2rad(look.field_of_view_degrees) / 2)
    focal = size / 2 / half
    radius = 1.1 * focal * float(np.linalg.norm(high - low)) / 2 / -z
    return (round(size / 2 + focal * x / -z), round(size / 2 - focal * y / -z)), round(radius)


@dataclass(frozen=True)
class Frames:
    """Frames of one recording."""

    open: NDArray[np.uint8]
    blanked: NDArray[np.uint8]
    states: NDArray[np.int8]
    times: NDArray[np.float32]  # 0 at the start of the recording, 1 at its end
    clear: NDArray[np.bool_]  # nine tenths of the object can be seen


def frames_of(job: tuple[str, str, int, int, int]) -> Frames:
    """Draw a recording with and without the object."""
    from stormpsr.synthetic.render import Renderer

    product_name, profile, seed, size, every = job
    cv2.setNumThreads(1)
    product = Product.load(product_name)
    variant = product.procedure.variant()
    _, timeline, traits = simulate(product, variant, profile_named(profile), seed=seed)
    look = look_of(product, timeline, traits, seed)
    index = np.arange(0, timeline.n_frames, every)
    with Renderer(product, look, size=size) as renderer:
        drawn = [renderer.render(timeline, int(frame)) for frame in index]
    images = [frame.image for frame in drawn]
    clear = np.array([frame.assembly_visible_share > 0.9 for frame in drawn])
    blanked = [image.copy() for image in images]
    for image, frame in zip(blanked, index, strict=True):
        cv2.circle(image, *disc(product, timeline, look, int(frame), size), (128, 128, 128), -1)
    times = (index / timeline.n_frames).astype(np.float32)
    return Frames(np.stack(images), np.stack(blanked), timeline.states_FC()[index], times, clear)


def gather(arguments: argparse.Namespace, seeds: range) -> list[Frames]:
    jobs = [(arguments.product, arguments.profile, seed, arguments.size, arguments.every) for seed in seeds]
    with get_context("spawn").Pool(arguments.workers, maxtasksperchild=1) as pool:
        return pool.map(frames_of, jobs, chunksize=1)


def scores(test: list[Frames], states: list[NDArray[np.int8]], bits: list[NDArray[np.int8]]) -> dict[str, float]:
    """Whole states right; components right; components right in clear frames."""
    right = np.concatenate([guess == one.states for guess, one in zip(bits, test, strict=True)])
    exact = np.concatenate([(guess == one.states).all(axis=1) for guess, one in zip(states, test, strict=True)])
    clear = np.concatenate([one.clear for one in test])
    return {
        "whole state": round(float(exact.mean()), 3),
        "components": round(float(right.mean()), 3),
        "components, clear frames": round(float(right[clear].mean()), 3),
    }


def clock(train: list[Frames], one: Frames) -> NDArray[np.float32]:
    """Log-probabilities from the time alone, of shape frame, value (wrong, absent, correct), component."""

    def bins(times: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.minimum((times * TIME_BINS).astype(np.int64), TIME_BINS - 1)

    states = np.concatenate([each.states for each in train])
    when = bins(np.concatenate([each.times for each in train]))
    counts = np.stack([[(states[when == k] == value).sum(axis=0) for value in (-1, 0, 1)] for k in range(TIME_BINS)])
    likely = (counts + 0.5) / (counts + 0.5).sum(axis=1, keepdims=True)
    return np.log(likely[bins(one.times)]).astype(np.float32)


def answers(test: list[Frames], logits: list[NDArray[np.float32]], known: NDArray[np.int8]) -> dict[str, float]:
    """Scores of log-probabilities, each of shape frame, value, component."""
    bits = [one.argmax(axis=1).astype(np.int8) - 1 for one in logits]
    place = np.arange(known.shape[1])
    fit = [np.stack([one[:, state + 1, place].sum(axis=1) for state in known], axis=1) for one in logits]
    found = scores(test, [known[one.argmax(axis=1)] for one in fit], bits)
    of_truth = [
        np.take_along_axis(one, (each.states + 1)[:, None, :].astype(np.int64), axis=1)
        for one, each in zip(logits, test, strict=True)
    ]
    return {**found, "nats": round(-float(np.concatenate(of_truth).mean()), 4)}


def features(images: NDArray[np.uint8]) -> Any:
    """What a network trained on ImageNet sees: frames, places in the image, channels."""
    import torch

    from stormpsr.models.backbones import create_backbone

    body: Any = create_backbone("tf_efficientnet_lite0", image_size=images.shape[1], out_dim=1, weights="package")
    body.eval()
    mean, spread = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    found = []
    with torch.inference_mode():
        for start in range(0, len(images), 64):
            x = (torch.from_numpy(images[start : start + 64]).float() / 255 - mean) / spread
            x = body.bn1(body.conv_stem(x.permute(0, 3, 1, 2)))
            for block in body.blocks[:5]:  # as far as stride 16: pins are still there
                x = block(x)
            found.append(x.flatten(2).transpose(1, 2).half())
    return torch.cat(found)


def network(
    train: list[Frames], stop: list[Frames], test: list[Frames], which: str, arguments: argparse.Namespace
) -> dict[str, float]:
    """The clock, corrected by a network that sees a frame (`open` or `blanked`).

    It starts as the clock and is kept as it was when it did best on the people of `stop`: it can fall behind the clock
    only by chance, and gets ahead of it only by what it sees. ImageNet's features are left as they are, because a
    network trained from nothing on so few people learns nothing. On top, a query per component looks over the image.
    """
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)

    def tensors(frames: list[Frames]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        seen = features(np.concatenate([getattr(one, which) for one in frames]))
        prior = torch.from_numpy(np.concatenate([clock(train, one) for one in frames]))
        return seen, prior, torch.from_numpy(np.concatenate([one.states for one in frames])).long() + 1

    places, prior, states = tensors(train)
    stop_places, stop_prior, stop_states = tensors(stop)
    n, wide = states.shape[1], 64

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inward = nn.Sequential(
                nn.LayerNorm(places.shape[2]), nn.Dropout(0.3), nn.Linear(places.shape[2], wide)
            )
            self.what = nn.Parameter(torch.randn(n, wide) * 0.5)
            self.look = nn.TransformerDecoderLayer(wide, 4, wide, dropout=0.3, batch_first=True)
            self.head = nn.Linear(wide, 3)
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

        def forward(self, x: torch.Tensor, prior: torch.Tensor) -> torch.Tensor:
            return prior + self.head(self.look(self.what.expand(len(x), -1, -1), self.inward(x.float()))).transpose(
                1, 2
            )

    net = Net()
    optimiser = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=0.1)
    rng = np.random.default_rng(arguments.seed)
    best, kept = float("inf"), {key: value.clone() for key, value in net.state_dict().items()}
    for _ in range(arguments.epochs):
        net.train()
        for _ in range(len(places) // 128):
            pick = torch.from_numpy(rng.integers(len(places), size=128))
            loss = cross_entropy(net(places[pick], prior[pick]), states[pick])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        net.eval()
        with torch.inference_mode():
            loss_here = float(cross_entropy(net(stop_places, stop_prior), stop_states))
        if loss_here < best:
            best, kept = loss_here, {key: value.clone() for key, value in net.state_dict().items()}
    net.load_state_dict(kept)
    net.eval()
    with torch.inference_mode():
        logits = [
            net(features(getattr(one, which)), torch.from_numpy(clock(train, one))).log_softmax(dim=1).numpy()
            for one in test
        ]
    return answers(test, logits, np.unique(np.concatenate([one.states for one in train]), axis=0))


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--product", default="vehicle")
    parser.add_argument("--profile", default="quick")
    parser.add_argument("--train", type=int, default=48, help="recordings to train on")
    parser.add_argument("--stop", type=int, default=10, help="recordings that say when to stop training")
    parser.add_argument("--test", type=int, default=12, help="recordings to test on")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--every", type=int, default=8, help="use every so many frames")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="threads to train with")
    arguments = parser.parse_args(words)
    with errors_in_one_line():
        Product.load(arguments.product)
    start = time.time()
    first = 1000 + arguments.seed * 1000
    train = gather(arguments, range(first, first + arguments.train))
    stop = gather(arguments, range(first + 300, first + 300 + arguments.stop))
    test = gather(arguments, range(first + 500, first + 500 + arguments.test))
    drawn = time.time() - start
    known = np.unique(np.concatenate([one.states for one in train]), axis=0)
    right = {
        "time alone": answers(test, [clock(train, one) for one in test], known),
        "blanked image and time": network(train, stop, test, "blanked", arguments),
        "open image and time": network(train, stop, test, "open", arguments),
    }
    result = {
        "product": arguments.product,
        "profile": arguments.profile,
        "train_recordings": arguments.train,
        "test_recordings": arguments.test,
        "frames": sum(len(one.times) for one in train + stop + test),
        "seed": arguments.seed,
        "right": right,
        "seconds": {"drawing": round(drawn), "training": round(time.time() - start - drawn)},
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
