"""Every method lives with one part and with two hundred, with nothing to expect, and does not grow with time."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stormpsr.data.events import StateDetection
from stormpsr.decoding.methods import METHODS, resolve_method
from stormpsr.decoding.predictions import N_OUTPUTS, Decoder, Prediction
from stormpsr.decoding.recurrent import PARAMETERS_FILE, SHAPES, save_weights, shape_of
from stormpsr.procedure.model import Procedure, Variant

Chain = Callable[..., Procedure]
_CHAINS: dict[int, Procedure] = {}  # large ones take a while to be made


def decoder_of(method: str, procedure: Procedure, folder: Path) -> Decoder:
    """With its defaults; what must have learned has drawn its weights."""
    given: dict[str, Any] = {}
    if method == "recurrent":
        rng, n = np.random.default_rng(0), procedure.n_components
        weights = {name: rng.normal(0, 0.3, shape_of(name, n)) for name in SHAPES}
        save_weights(folder / PARAMETERS_FILE, weights)
        given = {"fitted": True, "folder": folder}
    entry = resolve_method(method)
    return entry.decoder_class(procedure, None, entry.settings(given))


def predictions(procedure: Procedure, n: int, first: int = 0) -> list[Prediction]:
    """Somebody builds and takes apart, again and again; every fourth frame the temporal model speaks."""
    rng, n_states = np.random.default_rng(first), len(procedure.states) - 1
    found = []
    for tick in range(first, first + n):
        state = 1 + abs(tick // 7 % (2 * n_states) - n_states) % n_states
        seen = (StateDetection(tick, state, float(rng.uniform(0.3, 1))),) if rng.random() < 0.8 else ()
        speaks = tick % 4 == 0
        change_C = rng.uniform(0, 1, procedure.n_components).astype(np.float32) if speaks else None
        outputs_CF = rng.normal(-1, 1, (procedure.n_components, N_OUTPUTS)).astype(np.float32) if speaks else None
        found.append(Prediction(tick, tick, tick / 10, seen, change_C, outputs_CF))
    return found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_components", [1, 2, 50, 200])
def test_any_number_of_components_can_be_decoded(method: str, n_components: int, chain: Chain, tmp_path: Path) -> None:
    if n_components not in _CHAINS:
        _CHAINS[n_components] = chain(n_components)
    procedure = _CHAINS[n_components]
    decoder = decoder_of(method, procedure, tmp_path)
    n_events = 0
    for prediction in predictions(procedure, 40):
        events = decoder.observe(prediction)
        n_events += len(events)
        assert all(0 <= event.step_id < 3 * n_components for event in events)
    decoder.finish()
    assert np.isfinite(decoder.share).all()
    assert decoder.state is None or len(decoder.state) in (0, n_components)
    assert n_events <= 40 * n_components


@pytest.mark.parametrize("method", METHODS)
def test_a_variant_that_expects_nothing_completes_nothing_that_was_expected(
    method: str, lamp: Procedure, tmp_path: Path
) -> None:
    variant = {"idle": Variant("idle", initial=(0, 0, 0), expected=())}
    procedure = Procedure("idle", lamp.components, lamp.states, variant, lamp.fps)
    decoder = decoder_of(method, procedure, tmp_path)
    events = [event for prediction in predictions(procedure, 120) for event in decoder.observe(prediction)]
    events += decoder.finish()
    if METHODS[method].where.endswith(("NaiveDecoder", "ConfidenceDecoder")):
        return  # these know of no variant
    assert not [event for event in events if event.kind in ("completed", "skipped")]


@pytest.mark.parametrize("method", METHODS)
def test_memory_does_not_grow_with_the_number_of_frames(method: str, lamp: Procedure, tmp_path: Path) -> None:
    decoder = decoder_of(method, lamp, tmp_path)

    def kept_after(first: int) -> int:
        for prediction in predictions(lamp, 150, first):
            decoder.observe(prediction)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    kept_after(0)
    gc.freeze()  # what the packages keep is not looked through every time
    tracemalloc.start()
    try:
        kept_after(150)  # situations that are met for the first time
        before = kept_after(300)
        after = [kept_after(first) for first in (450, 600, 750)][-1]
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    assert after - before < 20_000, "bytes, of 450 frames"
