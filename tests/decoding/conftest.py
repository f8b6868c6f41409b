"""Procedures, predictions and labelled recordings that tests of decoders make up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.data.labels import StateTimeline
from stormpsr.decoding.predictions import N_OUTPUTS, Prediction
from stormpsr.procedure.model import AssemblyState, Component, Procedure, StateKind, Variant


def make_chain(n: int, links: Sequence[tuple[int, int]] | None = None) -> Procedure:
    """`n` components, each of which needs the one before (or as `links` say: who, whom)."""
    names = [f"part {k}" for k in range(n)]
    order: dict[str, tuple[tuple[str, ...], ...]] = {}
    for who, whom in links if links is not None else [(k, k - 1) for k in range(1, n)]:
        order[names[who]] = (*order.get(names[who], ()), (names[whom],))
    listed = (
        [tuple(int(k < done) for k in range(n)) for done in range(n + 1)] if links is None else [(0,) * n, (1,) * n]
    )
    return Procedure(
        name="chain",
        components=tuple(map(Component, names)),
        states=(
            AssemblyState(0, StateKind.BACKGROUND, "background"),
            *(AssemblyState(i, StateKind.ASSEMBLY, f"state {i}", bits) for i, bits in enumerate(listed, start=1)),
        ),
        variants={"build": Variant("build", (0,) * n, tuple(3 * k for k in range(n)))},
        fps=10,
        order=order,
    )


def make_story(procedure: Procedure, seed: int, n_frames: int = 150) -> list[Prediction]:
    """Predictions with dropped frames, in which networks speak now and then."""
    rng, n = np.random.default_rng(seed), procedure.n_components
    last = min(4, len(procedure.states) - 1)
    found, state = [], 1
    for tick in range(n_frames):
        state = min(max(state + int(rng.choice([-1, 0, 0, 0, 0, 0, 1, 1])), 1), last) if rng.random() < 0.2 else state
        if rng.random() < 0.2:
            continue
        detections = (StateDetection(tick, state, float(rng.uniform(0.3, 1))),) if rng.random() < 0.6 else None
        outputs = rng.normal(-1, 1, (n, N_OUTPUTS)).astype(np.float32) if rng.random() < 0.5 else None
        found.append(Prediction(tick, 2 * tick, tick / procedure.fps, detections, None, outputs))
    return found


@dataclass
class Taught:
    """A recording whose networks tell what they see: through outputs that are nearly right."""

    name: str
    variant: str
    labels: tuple[StepEvent, ...]
    states: StateTimeline
    predictions: list[Prediction]


def make_taught(procedure: Procedure, seed: int) -> Taught:
    rng = np.random.default_rng(seed)
    states = [(0, 0, 0), (1, 0, 0), (1, -1, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)]
    frames = tuple(int(f) for f in np.cumsum([0, *rng.integers(150, 200, len(states) - 1)]))
    timeline = StateTimeline(frames, tuple(states))
    predictions = []
    for tick in range(0, frames[-1] + 80, 4):
        outputs = np.full((3, N_OUTPUTS), np.nan, dtype=np.float32)
        logits = rng.normal(0, 1, (3, 3))
        logits[np.arange(3), np.array(timeline.at(tick)) % 3] += 2.0
        outputs[:, 5:8] = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        outputs[:, 4], outputs[:, 8:] = 0.0, -1.0
        predictions.append(Prediction(tick, tick, tick / 10, None, None, outputs))
    return Taught(f"{seed:02d}_build", "build", (), timeline, predictions)


@pytest.fixture
def chain() -> Callable[..., Procedure]:
    return make_chain


@pytest.fixture
def story() -> Callable[..., list[Prediction]]:
    return make_story


@pytest.fixture
def teach() -> Callable[[Procedure, int], Taught]:
    return make_taught
