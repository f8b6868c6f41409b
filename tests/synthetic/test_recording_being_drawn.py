"""A recording is watched while it is drawn. Drawing itself is replaced by files of one colour."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from stormpsr.errors import InputError
from stormpsr.synthetic import generate as generate_module
from stormpsr.synthetic.generate import RecordingBeingDrawn
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import profile_named
from stormpsr.synthetic.recording import SPLITS, DatasetSpec, product_digest

N_FRAMES = 30
Answer = tuple[int, dict[str, str]]
Attempt = Callable[[Any, Any, Path], Answer]  # as `_Pool._attempt`: pool, spec, folder to draw into


def draw(draft: Path, first: int, past: int) -> None:
    """Frame k is an image of grey level 5 k."""
    (draft / "rgb").mkdir(parents=True, exist_ok=True)
    for index in range(first, past):
        cv2.imwrite(str(draft / "rgb" / f"{index:06d}.jpg"), np.full((8, 8, 3), 5 * index, dtype=np.uint8))


def greys(recording: RecordingBeingDrawn) -> list[int]:
    return [round(float(frame.image.mean()) / 5) for frame in recording.frames()]


@pytest.fixture
def recording(tmp_path: Path) -> RecordingBeingDrawn:
    spec = DatasetSpec(
        product="vehicle",
        product_digest=product_digest(Product.load("vehicle")),
        profile="quick",
        size=160,
        seed=2026,
        counts={"train": 0, "val": 0, "test": 1},
        occlusion=0.5,
        rates=dict.fromkeys(SPLITS, profile_named("quick").rates),
        max_seconds=3.0,
    )
    return RecordingBeingDrawn(tmp_path / "world", spec)


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replaces drawing: the first attempt calls the first function, and so on."""

    def replace(*given: Attempt) -> None:
        left = iter(given)
        monkeypatch.setattr(generate_module._Pool, "_attempt", lambda pool, spec, draft: next(left)(pool, spec, draft))

    return replace


def test_frames_are_seen_before_the_recording_is_complete(
    recording: RecordingBeingDrawn, attempts: Callable[..., None]
) -> None:
    seen_half = threading.Event()
    in_time: list[bool] = []

    def attempt(pool: Any, spec: Any, draft: Path) -> Answer:
        draw(draft, 0, 15)
        pool.on_progress(spec.id, 15, N_FRAMES)
        in_time.append(seen_half.wait(timeout=60))
        draw(draft, 15, N_FRAMES)
        pool.on_progress(spec.id, N_FRAMES, N_FRAMES)
        return 0, {}

    attempts(attempt)
    with recording:
        for frame in recording.frames():
            assert round(float(frame.image.mean()) / 5) == frame.index
            assert frame.time_seconds == frame.index / 10
            if frame.index == 14:
                assert not recording.path.exists()
                seen_half.set()
    assert in_time == [True]
    assert frame.index == N_FRAMES - 1
    assert recording.n_frames == N_FRAMES
    assert recording.path.is_dir()


def test_a_frame_that_was_not_reported_is_not_read(
    recording: RecordingBeingDrawn, attempts: Callable[..., None]
) -> None:
    """It may be half written."""

    def attempt(pool: Any, spec: Any, draft: Path) -> Answer:
        draw(draft, 0, 15)
        (draft / "rgb" / "000015.jpg").write_bytes(b"half a pic")
        pool.on_progress(spec.id, 15, N_FRAMES)
        threading.Event().wait(0.3)
        draw(draft, 15, N_FRAMES)
        return 0, {}

    attempts(attempt)
    with recording:
        assert greys(recording) == list(range(N_FRAMES))


def test_a_crash_of_the_drawing_process_is_not_noticed(
    recording: RecordingBeingDrawn, attempts: Callable[..., None]
) -> None:
    seen_some = threading.Event()

    def crash(pool: Any, spec: Any, draft: Path) -> Answer:
        draw(draft, 0, 20)
        pool.on_progress(spec.id, 20, N_FRAMES)
        assert seen_some.wait(timeout=60)
        return -6, {"stderr": ""}

    def work(pool: Any, spec: Any, draft: Path) -> Answer:
        threading.Event().wait(0.2)  # as long as a process takes to begin
        for done in (10, 20, N_FRAMES):
            draw(draft, done - 10, done)
            pool.on_progress(spec.id, done, N_FRAMES)
        return 0, {}

    attempts(crash, work)
    seen = []
    with recording:
        for frame in recording.frames():
            seen.append(round(float(frame.image.mean()) / 5))
            if frame.index == 12:
                seen_some.set()
                threading.Event().wait(0.1)
    assert seen == list(range(N_FRAMES))


def test_what_stops_the_drawing_is_said_where_frames_are_awaited(
    recording: RecordingBeingDrawn, attempts: Callable[..., None]
) -> None:
    attempts(lambda pool, spec, draft: (2, {"problem": "the disk is full", "cure": "make room"}))
    with recording, pytest.raises(InputError, match="the disk is full; make room"):
        greys(recording)


def test_leaving_early_stops_the_drawing_and_leaves_nothing_behind(
    recording: RecordingBeingDrawn, attempts: Callable[..., None]
) -> None:
    asked = 0

    def attempt(pool: Any, spec: Any, draft: Path) -> Answer:
        nonlocal asked
        draw(draft, 0, 10)
        for _ in range(10_000):
            asked += 1
            pool.on_progress(spec.id, 10, N_FRAMES)
            threading.Event().wait(0.01)
        return 0, {}

    attempts(attempt)
    with recording:
        assert next(recording.frames()).index == 0
    assert 1 <= asked < 10_000
    assert not recording.path.exists()
    assert [entry.name for entry in recording.path.parent.iterdir()] == []
