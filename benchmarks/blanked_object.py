"""What can be told about the state without looking at the object?

Trains a small network on frames in which a disc over the whole product (and whatever is in front of it) is painted
grey, with the time in the recording as a second input, and compares it on other people's recordings with the best
guess from the time alone. If the world gives the answer away elsewhere (empty places on the table, habits of the
hands), the network beats the clock.

    python benchmarks/blanked_object.py --train 24 --test 10 --size 64
"""

from __future__ import annotations

import argparse
import json
import os
import time
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


Frames = tuple[NDArray[np.uint8], NDArray[np.int8], NDArray[np.float32]]  # pictures, states, relative times


def frames_of(job: tuple[str, str, int, int, int, bool]) -> Frames:
    """Blanked frames, states and relative times of one recording."""
    from stormpsr.synthetic.render import Renderer

    product_name, profile, seed, size, every, blank = job
    cv2.setNumThreads(1)
    product = Product.load(product_name)
    variant = product.procedure().variant()
    _, timeline, traits = simulate(product, variant, profile_named(profile), seed=seed)
    look = look_of(product, timeline, traits, seed)
    images, picked = [], range(0, timeline.n_frames, every)
    with Renderer(product, look, size=size) as renderer:
        for frame in picked:
            image = renderer.render(timeline, frame).image.copy()
            if blank:
                cv2.circle(image, *disc(product, timeline, look, frame, size), (128, 128, 128), -1)
            images.append(image)
    index = np.asarray(picked)
    return np.stack(images), timeline.states_FC()[index], (index / timeline.n_frames).astype(np.float32)


def gather(arguments: argparse.Namespace, seeds: range) -> list[Frames]:
    a = arguments
    jobs = [(a.product, a.profile, seed, a.size, a.every, not a.open) for seed in seeds]
    with get_context("spawn").Pool(a.workers, maxtasksperchild=1) as pool:
        return pool.map(frames_of, jobs, chunksize=1)


def clock(train: list[Frames], test: list[Frames]) -> tuple[float, float]:
    """Exact-state and per-component accuracy of the most common state at that time of a recording."""
    bins = lambda t: np.minimum((t * TIME_BINS).astype(int), TIME_BINS - 1)  # noqa: E731
    states = np.concatenate([s for _, s, _ in train])
    when = bins(np.concatenate([t for _, _, t in train]))
    exact, bits = [], []
    likely, majority = {}, {}
    for k in range(TIME_BINS):
        rows, counts = np.unique(states[when == k], axis=0, return_counts=True)
        likely[k] = rows[counts.argmax()]
        here = states[when == k]
        majority[k] = np.array([np.bincount(column + 1, minlength=3).argmax() - 1 for column in here.T])
    for _, s, t in test:
        guess = np.stack([likely[k] for k in bins(t)])
        exact.append((guess == s).all(axis=1))
        bits.append(np.stack([majority[k] for k in bins(t)]) == s)
    return float(np.concatenate(exact).mean()), float(np.concatenate(bits).mean())


def network(train: list[Frames], test: list[Frames], epochs: int, seed: int) -> tuple[float, float]:
    """The same of a small convolutional network that sees the blanked frame and the time."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    torch.manual_seed(seed)
    torch.set_num_threads(2)
    images = np.concatenate([i for i, _, _ in train])
    states = np.concatenate([s for _, s, _ in train]) + 1
    times = np.concatenate([t for _, _, t in train])
    n = states.shape[1]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = [(3, 24), (24, 48), (48, 96), (96, 128)]
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
    steps = epochs * len(images) // 128
    optimiser = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps + 1)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        pick = rng.integers(len(images), size=128)
        x = torch.from_numpy(images[pick]).permute(0, 3, 1, 2).float() / 255
        x = x * (0.8 + 0.4 * torch.rand(len(pick), 1, 1, 1))
        loss = cross_entropy(net(x, torch.from_numpy(times[pick])), torch.from_numpy(states[pick]).long())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    net.eval()
    exact, bits = [], []
    with torch.no_grad():
        for i, s, t in test:
            x = torch.from_numpy(i).permute(0, 3, 1, 2).float() / 255
            guess = net(x, torch.from_numpy(t)).argmax(dim=1).numpy() - 1
            exact.append((guess == s).all(axis=1))
            bits.append(guess == s)
    return float(np.concatenate(exact).mean()), float(np.concatenate(bits).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--product", default="vehicle")
    parser.add_argument("--profile", default="quick")
    parser.add_argument("--train", type=int, default=24, help="recordings to train on")
    parser.add_argument("--test", type=int, default=10, help="recordings to test on")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--every", type=int, default=5, help="use every so many frames")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--open", action="store_true", help="do not blank the object, for comparison")
    arguments = parser.parse_args()
    start = time.time()
    first = 1000 + arguments.seed * 1000
    train = gather(arguments, range(first, first + arguments.train))
    test = gather(arguments, range(first + 500, first + 500 + arguments.test))
    drawn = time.time() - start
    by_time = clock(train, test)
    by_picture = network(train, test, arguments.epochs, arguments.seed)
    result = {
        "product": arguments.product,
        "profile": arguments.profile,
        "train_recordings": arguments.train,
        "test_recordings": arguments.test,
        "frames": sum(len(i) for i, _, _ in train + test),
        "blanked": not arguments.open,
        "seed": arguments.seed,
        "exact_state": {"time alone": round(by_time[0], 3), "picture and time": round(by_picture[0], 3)},
        "components_right": {"time alone": round(by_time[1], 3), "picture and time": round(by_picture[1], 3)},
        "seconds": {"drawing": round(drawn), "training": round(time.time() - start - drawn)},
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
