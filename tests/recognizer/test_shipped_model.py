"""The shipped model on views of the synthetic world that are drawn here: plain to see, or with nothing to see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from stormpsr.data.events import StepEvent, completions
from stormpsr.data.sources import Frame, open_source
from stormpsr.decoding.predictions import Prediction
from stormpsr.procedure.model import StateBits
from stormpsr.recognizer.model_folder import load_model
from stormpsr.recognizer.networks import FramePredictor
from stormpsr.recognizer.offline import decode_table, predict_recording
from stormpsr.recognizer.recognizer import Recognizer
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.states import StateRenderer

VIEW_FRAMES = 8  # how long each view lasts: a second turned by hand is seen from many sides
SIDE = 320


@pytest.fixture(scope="module")
def vehicle() -> Product:
    return Product.load("vehicle")


@pytest.fixture(scope="module")
def renderer(vehicle: Product) -> Iterator[StateRenderer]:
    with StateRenderer(vehicle, SIDE) as renderer:
        yield renderer


def views(renderer: StateRenderer, states: Sequence[StateBits], n_views: int) -> list[Frame]:
    """Each state from some sides, one after the other, without hands."""
    images = [renderer.render(bits, seed=view, hands=0.0, look=1).image for bits in states for view in range(n_views)]
    frames = [image for image in images for _ in range(VIEW_FRAMES)]
    return [Frame(image, index, index / renderer.product.procedure.fps) for index, image in enumerate(frames)]


def predictions_of(predictor: FramePredictor, frames: Sequence[Frame]) -> Iterator[Prediction]:
    for frame in frames:
        prediction = predictor.update(frame)
        if prediction is not None:
            yield prediction


def test_it_reports_the_steps_between_two_states_that_are_plain_to_see(
    vehicle: Product, renderer: StateRenderer
) -> None:
    procedure = vehicle.procedure
    before = procedure.variant("assy").initial
    after = next(state.bits for state in procedure.states if state.name == "11100000000")
    assert after is not None
    expected = {step.id for step in procedure.steps_between(before, after)}
    recognizer = Recognizer.load("vehicle", variant="assy")
    frames = views(renderer, [before, after], n_views=14)
    events = [event for frame in frames for event in recognizer.update(frame)]
    assert {event.step_id for event in events} == expected
    assert all(event.frame >= len(frames) // 2 for event in events)  # not before it is there
    assert recognizer.state == after


def test_it_reports_no_step_on_a_table_with_loose_parts(vehicle: Product, renderer: StateRenderer) -> None:
    nothing = (0,) * vehicle.n_components
    recognizer = Recognizer.load("vehicle", variant="assy")
    events = [event for frame in views(renderer, [nothing], n_views=16) for event in recognizer.update(frame)]
    assert completions(events) == []


def test_it_reports_nothing_where_nothing_of_the_vehicle_is() -> None:
    """Coloured blocks that move: parts are read into them."""
    rng = np.random.default_rng(0)
    blocks = [(rng.integers(40, 200, 2), rng.integers(30, 90, 2), rng.integers(0, 255, 3)) for _ in range(9)]
    frames = []
    for index in range(0, 200, 4):
        image = np.full((SIDE, SIDE, 3), 150, dtype=np.uint8)
        for corner, size, colour in blocks:
            x, y = corner + (8 * np.sin(index / 9 + corner)).astype(int)
            image[y : y + size[1], x : x + size[0]] = colour
        frames.append(Frame(image, index, index / 10))
    assert events_of_all_methods(frames) == []


def test_it_does_not_know_noise() -> None:
    rough = np.random.default_rng(1).integers(0, 255, (20, SIDE // 16, SIDE // 16, 3), dtype=np.uint8)
    noise = [image.repeat(16, axis=0).repeat(16, axis=1) for image in rough]
    frames = [Frame(image, 4 * row, 0.4 * row) for row, image in enumerate(noise)]
    assert all(prediction.is_foreign for prediction in predict_recording(load_model("vehicle").networks, frames))
    assert events_of_all_methods(frames) == []


def test_it_reports_nothing_on_a_real_video_of_hands_and_blocks(shared: Path) -> None:
    video = shared / "data" / "real_pictures" / "hands_and_blocks.mp4"
    if not video.is_file():
        pytest.skip(f"there is no {video}")
    frames = list(open_source(video, load_model("vehicle").procedure).frames())
    assert events_of_all_methods(frames) == []


def events_of_all_methods(frames: list[Frame]) -> list[StepEvent]:
    model = load_model("vehicle")
    table = list(predict_recording(model.networks, frames))
    decoders = [model.decoder(method, variant) for variant in model.procedure.variants for method in model.methods]
    return [event for decoder in decoders for event in decode_table(decoder, table)]


def test_exported_it_reports_the_same_events_in_the_same_frames(
    vehicle: Product, renderer: StateRenderer, tmp_path: Path
) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    from stormpsr.recognizer.export import export_model

    exported = export_model("vehicle", tmp_path / "exported")
    procedure = vehicle.procedure
    states = [state.bits for name in ("11100000000", "11110110000") for state in procedure.states if state.name == name]
    frames = views(renderer, [procedure.variant("assy").initial, *(bits for bits in states if bits)], n_views=14)
    models = (load_model("vehicle", device="cpu"), exported)
    said = [list(predictions_of(FramePredictor(model.networks), frames)) for model in models]  # once for all methods
    for method in exported.methods:
        by_torch, found = (
            decode_table(model.decoder(method, "assy"), predictions)
            for model, predictions in zip(models, said, strict=True)
        )
        assert [(e.step_id, e.frame, e.kind) for e in found] == [(e.step_id, e.frame, e.kind) for e in by_torch]
        assert found
