"""The streaming recogniser: causal, on an even clock, from the first frame on, in memory that does not grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stormpsr
from stormpsr.data.boxes import Box
from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.data.sources import Frame
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.recognizer.model_folder import RecognizerModel, load_model
from stormpsr.recognizer.networks import Detected, FramePredictor
from stormpsr.recognizer.recognizer import Recognizer

Frames = Callable[..., list[Frame]]
Seeing = Callable[..., RecognizerModel]
STEPS = [(12, 0), (28, 3), (44, 6)]  # when the squares appear


def watch(recognizer: Recognizer, frames: Iterable[Frame]) -> list[StepEvent]:
    return [event for frame in frames for event in recognizer.update(frame)]


def brief(events: Iterable[StepEvent]) -> list[tuple[int, int]]:
    return [(event.frame, event.step_id) for event in events]


def steps(events: Iterable[StepEvent]) -> list[int]:
    return [event.step_id for event in events]


def noise_after(frames: list[Frame], last: int) -> list[Frame]:
    rng = np.random.default_rng(99)
    return [
        frame if frame.index <= last else replace(frame, image=rng.integers(0, 255, frame.image.shape, dtype=np.uint8))
        for frame in frames
    ]


# ---------------------------------------------------------------------- what it recognises
@pytest.mark.parametrize("method", ["detection", "temporal", "average", "released"])
def test_steps_are_reported_soon_after_they_happen(seeing: Seeing, frames: Frames, method: str) -> None:
    events = watch(Recognizer.of(seeing(), method, "build"), frames())
    assert steps(events) == [0, 3, 6]
    for event, (label, _) in zip(events, STEPS, strict=True):
        assert 0 <= event.frame - label <= 8
        assert event.time_seconds == event.frame / 10
        assert event.source is not None


def test_it_works_from_the_first_frame_on(seeing: Seeing, frames: Frames) -> None:
    recognizer = Recognizer.of(seeing())
    recognizer.update(frames()[0])
    assert recognizer.prediction is not None
    assert recognizer.prediction.change_C is not None
    assert recognizer.prediction.detections


def test_displays_see_state_and_evidence(seeing: Seeing, frames: Frames) -> None:
    recognizer = Recognizer.of(seeing(), "average", "build")
    watch(recognizer, frames()[:13])
    assert recognizer.state == (0, 0, 0)
    assert 0 < recognizer.share[0] < 1
    assert not recognizer.share[1:].any()
    assert recognizer.share[0] == pytest.approx(recognizer.evidence[0] / 1.5)
    watch(recognizer, frames()[13:27])
    assert recognizer.state == (1, 0, 0)
    assert recognizer.prediction is not None
    assert recognizer.prediction.box == Box(2, 8, 30, 24)


def test_reset_forgets_everything(seeing: Seeing, frames: Frames) -> None:
    recognizer = Recognizer.of(seeing(), "average", "build")
    first = watch(recognizer, frames())
    recognizer.reset()
    assert recognizer.prediction is None
    assert recognizer.state == (0, 0, 0)
    assert watch(recognizer, frames()) == first


def test_unexpected_steps_are_dropped_or_reported(seeing: Seeing, frames: Frames) -> None:
    backwards = [replace(frame, image=frames()[59 - frame.index].image) for frame in frames()]
    assert watch(Recognizer.of(seeing(), "detection", "build"), [*frames(), *later(backwards, 6.0)])[3:] == []
    told = watch(Recognizer.of(seeing(), "detection", "build", unexpected="report"), [*frames(), *later(backwards, 6)])
    assert steps(told) == [0, 3, 6, 8, 5, 2]


def later(frames: list[Frame], seconds: float) -> list[Frame]:
    return [Frame(f.image, f.index + round(10 * seconds), f.time_seconds + seconds) for f in frames]


# ---------------------------------------------------------------------- never the future
@pytest.mark.parametrize("last", [0, 13, 30, 45])
@pytest.mark.parametrize("method", ["detection", "temporal", "average", "released"])
def test_the_future_has_no_influence(seeing: Seeing, frames: Frames, method: str, last: int) -> None:
    true = watch(Recognizer.of(seeing(), method, "build"), frames())
    noisy = watch(Recognizer.of(seeing(), method, "build"), noise_after(frames(), last))
    assert [e for e in noisy if e.frame <= last] == [e for e in true if e.frame <= last]


def test_the_future_has_no_influence_on_real_networks(model_folder: Path, frames: Frames) -> None:
    model = load_model(model_folder)
    true, noisy = FramePredictor(model.networks), FramePredictor(model.networks)
    for ours, theirs in zip(frames()[:41], noise_after(frames(), 30), strict=False):
        a, b = true.update(ours), noisy.update(theirs)
        assert a is not None
        assert b is not None
        same = a.detections == b.detections and np.array_equal(a.change_C, b.change_C)  # type: ignore[arg-type]
        if ours.index <= 30:
            assert same
    assert not same  # what is seen does have an influence


# ---------------------------------------------------------------------- one look per frame
def test_every_frame_is_looked_at_once_however_many_methods_decide(seeing: Seeing, frames: Frames) -> None:
    model = seeing()
    predictor = FramePredictor(model.networks)
    decoders = {method: model.decoder(method, "build") for method in model.methods}
    found: dict[str, list[StepEvent]] = {method: [] for method in model.methods}
    for frame in frames():
        prediction = predictor.update(frame)
        assert prediction is not None
        for method, decoder in decoders.items():
            found[method] += decoder.update(prediction)
    detector: Any = model.networks.detector
    stream: Any = model.networks.stream
    assert detector.n_images == 60
    assert stream.encoder.n_images == 15  # every fourth frame is all that the temporal model ever reads
    for method, events in found.items():
        assert events == watch(Recognizer.of(seeing(), method, "build"), frames())


@pytest.mark.parametrize(("stride", "encoded"), [(1, 60), (2, 30), (3, 60), (4, 15), (8, 15), (12, 15)])
def test_only_frames_that_the_temporal_model_can_read_are_encoded(
    seeing: Seeing, frames: Frames, stride: int, encoded: int
) -> None:
    model = seeing(temporal_stride=stride)
    events = watch(Recognizer.of(model, "temporal", "build"), frames())
    stream: Any = model.networks.stream
    assert stream.encoder.n_images == encoded
    assert steps(events) == [0, 3, 6]


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
def test_a_detection_counts_until_the_detector_looks_again(seeing: Seeing, frames: Frames, stride: int) -> None:
    model = seeing(detector_stride=stride, threshold=4.0)
    events = watch(Recognizer.of(model, "detection", "build"), frames())
    detector: Any = model.networks.detector
    assert detector.n_images == -(-60 // stride)
    assert steps(events) == [0, 3, 6]
    assert all(event.frame - label <= 5 + stride for event, (label, _) in zip(events, STEPS, strict=True))


# ---------------------------------------------------------------------- uneven time
@pytest.mark.parametrize("fps", [5.0, 9.7, 12.0, 20.0, 30.0])
@pytest.mark.parametrize("method", ["detection", "temporal", "average"])
def test_another_frame_rate_gives_the_same_steps_at_the_same_time(
    seeing: Seeing, frames: Frames, fps: float, method: str
) -> None:
    even = watch(Recognizer.of(seeing(), method, "build"), frames())
    shown = frames()
    n = int(6 * fps)
    other = [Frame(shown[min(int(i / fps * 10 + 1e-6), 59)].image, i, i / fps) for i in range(n)]
    events = watch(Recognizer.of(seeing(), method, "build"), other)
    assert steps(events) == steps(even)
    for ours, theirs in zip(events, even, strict=True):
        assert ours.frame == round((ours.time_seconds or 0) * fps)
        assert ours.time_seconds == pytest.approx(theirs.time_seconds, abs=0.41)


def test_of_several_frames_in_a_tick_the_first_counts(seeing: Seeing, frames: Frames) -> None:
    model = seeing()
    recognizer = Recognizer.of(model, "average", "build")
    doubled = [f for frame in frames() for f in (frame, Frame(255 - frame.image, 999, frame.time_seconds + 0.02))]
    assert watch(recognizer, doubled) == watch(Recognizer.of(seeing(), "average", "build"), frames())


@pytest.mark.parametrize("seed", range(4))
def test_dropped_frames_delay_little_and_invent_nothing(seeing: Seeing, frames: Frames, seed: int) -> None:
    kept = np.random.default_rng(seed).random(60) > 0.3
    for method in ("detection", "temporal", "average"):
        events = watch(Recognizer.of(seeing(), method, "build"), [f for f in frames() if kept[f.index]])
        assert steps(events) == [0, 3, 6]
        assert all(0 <= event.frame - label <= 12 for event, (label, _) in zip(events, STEPS, strict=True))


def test_evidence_fades_while_no_image_comes(seeing: Seeing, frames: Frames) -> None:
    recognizer = Recognizer.of(seeing(threshold=5.0), "average", "build")
    watch(recognizer, frames()[:15])
    before = recognizer.evidence[0]
    (gone,) = later(frames()[:1], 3600)
    assert recognizer.update(gone) == []
    assert before > 1
    assert recognizer.evidence[0] < 1e-3


def test_after_a_long_gap_the_window_begins_anew(seeing: Seeing, frames: Frames) -> None:
    recognizer = Recognizer.of(seeing(detector=False), "temporal", "build")
    watch(recognizer, frames()[:10])
    recognizer.update(later(frames()[50:51], 60)[0])  # everything is there, but nothing is known of how it was before
    assert recognizer.prediction is not None
    assert recognizer.prediction.change_C is not None
    assert recognizer.prediction.change_C.max() < 0.01


def test_time_that_runs_backwards_is_refused(seeing: Seeing, frames: Frames) -> None:
    recognizer = Recognizer.of(seeing())
    recognizer.update(frames()[50])
    assert recognizer.update(frames()[45]) == []  # half a second out of order is a camera's hiccup
    with pytest.raises(InputError, match=r"at 0\.00 s after one at 5\.00 s; feed frames in order, and call reset"):
        recognizer.update(frames()[0])
    recognizer.reset()
    recognizer.update(frames()[0])


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_a_time_that_is_none_is_refused(seeing: Seeing, frames: Frames, seconds: float) -> None:
    with pytest.raises(InputError, match="times count from 0"):
        Recognizer.of(seeing()).update(Frame(frames()[0].image, 0, seconds))


# ---------------------------------------------------------------------- a stream is missing
def test_the_detector_works_alone_and_says_so(seeing: Seeing, frames: Frames) -> None:
    recognizer = Recognizer.of(seeing(stream=False), variant="build")
    assert recognizer.method == "detection"
    assert recognizer.notes == ("the model has no spatio-temporal stream (stream/): detections alone decide",)
    both = watch(Recognizer.of(seeing(), "detection", "build"), frames())
    assert watch(recognizer, frames()) == both


def test_the_temporal_stream_works_alone_and_says_so(seeing: Seeing, frames: Frames) -> None:
    recognizer = Recognizer.of(seeing(detector=False), "average", variant="build")
    assert recognizer.method == "temporal"
    assert recognizer.notes == ("the model has no detector (detector/): the spatio-temporal stream alone decides",)
    assert steps(watch(recognizer, frames())) == [0, 3, 6]


def test_a_method_whose_stream_is_missing_is_refused(seeing: Seeing) -> None:
    with pytest.raises(InputError, match="method 'temporal' needs a stream that is missing"):
        Recognizer.of(seeing(stream=False), "temporal")


def test_an_unknown_method_is_refused(seeing: Seeing) -> None:
    with pytest.raises(InputError, match="unknown method 'avrage'; did you mean 'average'"):
        Recognizer.of(seeing(), "avrage")


# ---------------------------------------------------------------------- a long shift
def held(thing: Any, seen: set[int]) -> int:
    """How many values an object and all that it refers to hold."""
    if thing is None or isinstance(thing, int | float | str):
        return 1
    if id(thing) in seen or isinstance(thing, Procedure | type):
        return 0
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return thing.size
    if isinstance(thing, dict):
        return sum(held(inner, seen) for inner in thing.values())
    if isinstance(thing, list | tuple | set | frozenset):
        return 1 + sum(held(inner, seen) for inner in thing)
    slots = [getattr(thing, name, None) for name in getattr(thing, "__slots__", ())]
    return 1 + sum(held(inner, seen) for inner in (*getattr(thing, "__dict__", {}).values(), *slots))


def test_nothing_is_kept_of_a_long_shift(seeing: Seeing, frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    model = seeing()
    rng = np.random.default_rng(0)
    # the networks keep nothing, and are slow
    monkeypatch.setattr(
        model.networks, "detect", lambda images, ticks: [Detected((StateDetection(ticks[0], 2, rng.random()),))]
    )
    monkeypatch.setattr(model.networks, "encode", lambda images: rng.random((1, 3), dtype=np.float32))
    monkeypatch.setattr(model.networks, "predict", lambda *_: rng.normal(0, 2, (1, 3, 10)).astype(np.float32))
    predictor = FramePredictor(model.networks)
    decoders = [model.decoder(method, "build", "report") for method in model.methods]
    image = frames()[0].image

    def go_on(first: int, until: int) -> int:
        n_events = 0
        for index in range(first, until):
            prediction = predictor.update(Frame(image, index, index / 10))
            assert prediction is not None
            n_events += sum(len(decoder.update(prediction)) for decoder in decoders)
        return n_events

    def values_kept() -> int:
        return held((predictor._schedule, predictor._ring, decoders), set())

    go_on(0, 400)
    before = values_kept()
    assert before > 100  # the ring at least
    assert go_on(400, 2000) > 10
    assert values_kept() == before


def test_it_is_one_of_the_packages_names() -> None:
    assert stormpsr.Recognizer is Recognizer
    assert "Recognizer" in dir(stormpsr)
