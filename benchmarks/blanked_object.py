"""What can be told about the state without looking at the object?

Trains a small network on frames in which a disc over the whole product (and whatever is in front of it) is painted
grey, with the time in the recording as a second input, and compares it on other people's recordings with the best
guess from the time alone. If the world gives the answer away elsewhere (empty places on the table, habits of the
hands), the network beats the clock. The same network on the same frames with nothing painted over shows what it can
learn from so few recordings where there is something to see.

    python benchmarks/blanked_object.py --train 24 --test 10
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass
from multiprocessing import get_context

os.environ.setdefault("OMP_NUM_THREADS", "1")

import cv2
import numpy as np
from numpy.typing import NDArray

from stormpsr.synthetic.look import Look
from stormpsr.synthetic.operator import simulate
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import profile_named
from stormpsr.synthetic.recording_files import look_of
from stormpsr.synthetic.timeline import Timeline

TIME_BINS = 24


def disc(product: Product, timeline: Timeline, look: Look, frame: int, size: int) -> tuple[tuple[int, int], int]:
    """A circle in the picture that covers the finished product, whatever is mounted: pixel centre and radius."""
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
    variant = product.procedure().variant()
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


def clock(train: list[Frames], test: list[Frames]) -> dict[str, float]:
    """The most common state, and the most common value of each component, at that time of a recording."""

    def bins(times: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.minimum((times * TIME_BINS).astype(np.int64), TIME_BINS - 1)

    states = np.concatenate([one.states for one in train])
    when = bins(np.concatenate([one.times for one in train]))
    likely, majority = {}, {}
    for k in range(TIME_BINS):
        here = states[when == k]
        rows, counts = np.unique(here, axis=0, return_counts=True)
        likely[k] = rows[counts.argmax()]
        majority[k] = np.array([np.bincount(column + 1, minlength=3).argmax() - 1 for column in here.T])
    return scores(
        test,
        [np.stack([likely[k] for k in bins(one.times)]) for one in test],
        [np.stack([majority[k] for k in bins(one.times)]) for one in test],
    )


def network(train: list[Frames], test: list[Frames], which: str, arguments: argparse.Namespace) -> dict[str, float]:
    """The same of a small convolutional network that sees a frame (`open` or `blanked`) and the time."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    images = np.concatenate([getattr(one, which) for one in train])
    states = np.concatenate([one.states for one in train]) + 1
    times = np.concatenate([one.times for one in train])
    n = states.shape[1]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = [(3, 16), (16, 32), (32, 64), (64, 128)]
            layers = [
                nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1))
                for a, b in sizes
            ]
            self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())
            self.head = nn.Sequential(nn.Linear(512 + 16, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 3 * n))

        def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            clock_features = torch.cat([torch.sin(t[:, None] * k) for k in range(1, 17)], dim=1)
            return self.head(torch.cat([self.body(x), clock_features], dim=1)).view(-1, 3, n)

    net = Net()
    steps = arguments.epochs * len(images) // 128
    optimiser = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps + 1)
    rng = np.random.default_rng(arguments.seed)
    for _ in range(steps):
        pick = rng.integers(len(images), size=128)
        x = torch.from_numpy(images[pick]).permute(0, 3, 1, 2).float() / 255
        x = x * (0.8 + 0.4 * torch.rand(len(pick), 1, 1, 1))
        x = torch.roll(x, tuple(int(d) for d in rng.integers(-4, 5, 2)), (2, 3))
        loss = cross_entropy(net(x, torch.from_numpy(times[pick])), torch.from_numpy(states[pick]).long())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    net.eval()
    known = torch.from_numpy(np.unique(states, axis=0)).long()
    whole, bits = [], []
    with torch.no_grad():
        for one in test:
            x = torch.from_numpy(getattr(one, which)).permute(0, 3, 1, 2).float() / 255
            logits = net(x, torch.from_numpy(one.times)).log_softmax(dim=1)  # frame, value, component
            bits.append((logits.argmax(dim=1) - 1).numpy().astype(np.int8))
            of_known = torch.stack([logits[:, state, torch.arange(n)].sum(dim=1) for state in known], dim=1)
            whole.append((known[of_known.argmax(dim=1)] - 1).numpy().astype(np.int8))
    return scores(test, whole, bits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--product", default="vehicle")
    parser.add_argument("--profile", default="quick")
    parser.add_argument("--train", type=int, default=24, help="recordings to train on")
    parser.add_argument("--test", type=int, default=10, help="recordings to test on")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--every", type=int, default=8, help="use every so many frames")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="threads to train with")
    arguments = parser.parse_args()
    start = time.time()
    first = 1000 + arguments.seed * 1000
    train = gather(arguments, range(first, first + arguments.train))
    test = gather(arguments, range(first + 500, first + 500 + arguments.test))
    drawn = time.time() - start
    answers = {
        "time alone": clock(train, test),
        "blanked picture and time": network(train, test, "blanked", arguments),
        "open picture and time": network(train, test, "open", arguments),
    }
    result = {
        "product": arguments.product,
        "profile": arguments.profile,
        "train_recordings": arguments.train,
        "test_recordings": arguments.test,
        "frames": sum(len(one.times) for one in train + test),
        "seed": arguments.seed,
        "right": answers,
        "seconds": {"drawing": round(drawn), "training": round(time.time() - start - drawn)},
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
