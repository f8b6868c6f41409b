"""Run folders as an evaluation would leave them: labels, and methods that see them late, miss some and invent some."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stormpsr.data.events import StepEvent
from stormpsr.decoding.methods import METHODS, title_of
from stormpsr.evaluation import report
from stormpsr.evaluation.metrics import score
from stormpsr.evaluation.run_folder import MethodInfo, RecordingRun, RunInfo, write_recording, write_run
from stormpsr.evaluation.summary import RecordingResult, summarise
from stormpsr.procedure.model import Component, Procedure, Variant

STRIDE = 4


@dataclass(frozen=True)
class Manner:
    """How a method gets things wrong."""

    delay_seconds: float
    miss: float = 0.0  # share of the labels
    invent: float = 0.0  # per label
    waits_for_view: bool = False


MANNERS = {
    "detection": Manner(0.6, miss=0.05, invent=0.01, waits_for_view=True),
    "temporal": Manner(1.2, miss=0.08, invent=0.25),
    "average": Manner(1.6, miss=0.03, invent=0.05),
}


def invented(
    name: str, procedure: Procedure, seed: int, *, n_frames: int = 900, with_error: bool = False
) -> RecordingRun:
    """A recording in which every component is installed once, in a random order."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(procedure.n_components)
    frames = np.sort(rng.choice(np.arange(40, n_frames - 60), len(order), replace=False))
    labels = tuple(StepEvent(3 * int(k), int(frame)) for k, frame in zip(order, frames, strict=True))
    wrong = (StepEvent(3 * int(order[-1]) + 1, int(frames[-1]) // 2),) if with_error else ()
    edges = np.sort(rng.choice(np.arange(1, n_frames), 12, replace=False))
    return RecordingRun(
        name=name,
        variant=next(iter(procedure.variants)),
        fps=10.0,
        n_frames=n_frames,
        has_errors=with_error,
        frames_path=f"{name}/rgb",
        labels=labels,
        labels_with_errors=tuple(sorted((*labels, *wrong), key=lambda event: event.frame)),
        events={},
        readable=tuple((int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)),
    )


def recognised(recording: RecordingRun, procedure: Procedure, manners: dict[str, Manner], seed: int) -> RecordingRun:
    """The same with the events and the evidence of each method."""
    rng = np.random.default_rng(seed)
    events = {name: _events(recording, procedure, manner, rng) for name, manner in manners.items()}
    evidence = {name: _evidence(recording, found, procedure, rng) for name, found in events.items()}
    return replace(recording, events=events, evidence=evidence, evidence_stride=STRIDE)


def _events(
    recording: RecordingRun, procedure: Procedure, manner: Manner, rng: np.random.Generator
) -> tuple[StepEvent, ...]:
    found = []
    for label in recording.labels:
        frame = label.frame
        if manner.waits_for_view and recording.readable:
            frame = next((max(a, frame) for a, b in recording.readable if b >= frame), recording.n_frames)
        frame += int(recording.fps * rng.gamma(2.0, manner.delay_seconds / 2))
        if frame < recording.n_frames and rng.random() >= manner.miss:
            found.append(StepEvent(label.step_id, frame, confidence=float(rng.uniform(6, 7))))
        if rng.random() < manner.invent:
            step = 3 * int(rng.integers(procedure.n_components))
            found.append(StepEvent(step, int(rng.integers(recording.n_frames)), confidence=float(rng.uniform(6, 7))))
    return tuple(sorted(found, key=lambda event: (event.frame, event.step_id)))


def _evidence(
    recording: RecordingRun, events: Sequence[StepEvent], procedure: Procedure, rng: np.random.Generator
) -> NDArray[np.float16]:
    share_GS = np.zeros((-(-recording.n_frames // STRIDE), len(procedure.steps)))
    for event in events:
        end, rise = event.frame // STRIDE, int(rng.integers(3, 14))
        for i in range(max(0, end - rise), end + 1):
            share_GS[i, event.step_id] = max(share_GS[i, event.step_id], 1 - (end - i) / rise)
    for _ in range(4):  # rises that come to nothing
        at, step = int(rng.integers(len(share_GS))), int(rng.integers(len(procedure.steps)))
        fall = np.linspace(rng.uniform(0.3, 0.8), 0, 8)[: len(share_GS) - at]
        share_GS[at : at + len(fall), step] = np.maximum(share_GS[at : at + len(fall), step], fall)
    return share_GS.astype(np.float16)


def write_fake_run(
    folder: Path,
    procedure: Procedure,
    recordings: Sequence[RecordingRun],
    *,
    methods: Sequence[str] = tuple(MANNERS),
    data: str = "nowhere",
    title: str = "A run of invented recordings",
) -> Path:
    """A complete run folder with the scores that its events have."""
    for recording in recordings:
        write_recording(folder, recording)
    summary = {}
    for method in methods:
        results = [
            RecordingResult(r.name, score(r.labels, r.events[method], fps=r.fps), r.has_errors)
            for r in recordings
            if method in r.events
        ]
        if results:
            summary[method] = summarise(results, procedure, n_bootstrap=200).to_dict()
    infos = tuple(MethodInfo(m, title_of(m), {"threshold": 6.0, "decay": 0.75}) for m in methods)
    info = RunInfo(title, "models/fake", data, "val", "paper", infos, summary)
    write_run(folder, info, procedure)
    return folder


@pytest.fixture(scope="session")
def bench() -> Procedure:
    """Eight parts, some with names that a page must not trip over."""
    names = (
        'the "long" rail',
        "Ölwanne",
        "<b>bolt & nut</b>",
        "a part whose name goes on and on until nobody can bear it",
    )
    components = tuple(Component(name) for name in (*names, "foot", "pole", "shade", "cap"))
    n = len(components)
    expected = tuple(range(0, 3 * n, 3))
    return Procedure("bench", components, (), {"assy": Variant("assy", (0,) * n, expected)}, fps=10, title="A bench")


@pytest.fixture
def make_run(tmp_path: Path, bench: Procedure) -> Callable[..., Path]:
    """Write a run of some invented recordings; the second, fourth and so on with an error."""

    def make(n: int = 3, *, change: Callable[[RecordingRun], RecordingRun] = lambda r: r, **options: object) -> Path:
        recordings = [
            change(
                recognised(
                    invented(f"{i:02d}_assy", bench, seed=i, with_error=i % 2 == 1), bench, MANNERS, seed=100 + i
                )
            )
            for i in range(n)
        ]
        return write_fake_run(tmp_path / "run", bench, recordings, **options)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def schemes() -> dict[str, dict[str, str]]:
    """The colours of the style sheet and of all methods by name, on light and on dark paper."""
    style = (Path(report.__file__).parent / "style.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)[:2]
    found = (dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in (light, dark))
    return {
        "light": next(found) | {name: method.colour for name, method in METHODS.items()},
        "dark": next(found) | {name: method.dark_colour for name, method in METHODS.items()},
    }
