"""A Bayesian filter over the states of all components: what all frames so far say, in constant time per frame.

The belief says how probable it is that a component is absent, correct or wrong. Between frames it moves as people do:
the procedure says which steps are expected and what each needs, learned mean times say how long such a step takes to
come. A frame then weighs the states by what the networks say of each component (the emission, a small perceptron).
Frames are not independent: what one says counts for a learned share only (the gain).

Components whose order depends on each other make a block, in which the belief is over joint states and exact: a wheel
that is seen on its axle says that the axle is in place. A block has 3 to the power of its components states, so large
groups are cut into blocks of `block_components`; what a component needs of another block counts as met or not by the
other's belief. Blocks are independent otherwise.

Neither the paper nor its released code has such a filter. All of it is numpy; `procedure_filter_fit` learns the
parameters, through the same functions with torch's tensors.

Shape legend: C components, G blocks, B slots of a block, S joint states of a block, M moves, R rates, F features,
H hidden units, K settings tried side by side, 3 absent, correct, wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.decoding.methods import Grid
from stormpsr.decoding.predictions import (
    N_OUTPUTS,
    OUTPUT_COLUMNS,
    Decoder,
    DecoderBatch,
    LabelledRecording,
    Prediction,
    check_numbers,
)
from stormpsr.errors import InputError
from stormpsr.files import read_arrays, write_arrays
from stormpsr.procedure.model import Needs, Procedure, StateBits, StateKind, StepKind, Variant

Floats = NDArray[np.float64]
ABSENT, CORRECT, WRONG = range(3)

# Mean seconds until a person does this, with learning's start; `RATES[r]` is what `log_seconds_R[r]` is of.
RATES: Mapping[str, float] = {
    "install": 35.0,  # an expected installation, once what it needs is there
    "install_unmet": 700.0,  # before that
    "install_unexpected": 50_000.0,
    "wrong": 300.0,  # a part put on wrongly, once what it needs is there
    "wrong_unmet": 7_000.0,
    "removal": 35.0,  # an expected removal
    "removal_unexpected": 900.0,
    "removal_carrying": 4_000.0,  # of a part that others sit on
    "wrong_off": 45.0,  # a wrong part taken off again
    "wrong_righted": 300.0,  # or put right where it is
    "slip": 20_000.0,  # a right part that goes wrong
}
_RATE = {name: number for number, name in enumerate(RATES)}


# ---------------------------------------------------------------------- what belongs together
def find_blocks(procedure: Procedure, most: int) -> list[tuple[int, ...]]:
    """Components that depend on each other, together; groups of more than `most` are cut where the fewest links are.

    A component that no variant ever moves ties nothing together: it is what it is.
    """
    needs, n = procedure.needs, procedure.n_components
    moved = {procedure.step(step).component_index for v in procedure.variants.values() for step in v.expected}
    linked: list[set[int]] = [set() for _ in range(n)]
    for component, choices in enumerate(needs.choices):
        for other in {other for choice in choices for other in choice}:
            if component in moved and other in moved:
                linked[component].add(other)
                linked[other].add(component)
    left = sorted(range(n), key=lambda component: (needs.depth[component], component))
    blocks: list[tuple[int, ...]] = []
    while left:
        block = [left.pop(0)]
        while len(block) < most:
            near = [other for other in left if linked[other] & set(block)]
            if not near:
                break
            # the one with the fewest links to what stays outside
            best = min(near, key=lambda other: (len(linked[other] - set(block)), needs.depth[other], other))
            block.append(best)
            left.remove(best)
        blocks.append(tuple(sorted(block)))
    return blocks


@dataclass(frozen=True, eq=False)
class Blocks:
    """The joint states of all blocks. Slots that a small block does not need are absent for ever."""

    slot_GB: NDArray[np.int64]  # the component in a slot, -1 for none
    digit_SB: NDArray[np.int64]  # what a joint state says of each slot

    @classmethod
    def of(cls, procedure: Procedure, most: int) -> Blocks:
        blocks = find_blocks(procedure, most)
        size = max(map(len, blocks))
        slot_GB = np.full((len(blocks), size), -1, dtype=np.int64)
        for row, block in enumerate(blocks):
            slot_GB[row, : len(block)] = block
        digit_SB = np.stack(np.unravel_index(np.arange(3**size), (3,) * size), axis=1).astype(np.int64)
        return cls(slot_GB, digit_SB)

    @cached_property
    def is_SX(self) -> Floats:
        """1 where a joint state has a slot in a certain state; columns are slot by slot absent, correct, wrong."""
        return np.asarray(np.eye(3)[self.digit_SB].reshape(len(self.digit_SB), -1))

    @cached_property
    def place_C(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Block and slot of every component."""
        n = int(self.slot_GB.max()) + 1
        blocks, slots = np.nonzero(self.slot_GB >= 0)
        order = np.argsort(self.slot_GB[blocks, slots])
        assert len(order) == n
        return blocks[order], slots[order]

    def joint_state(self, bits: Sequence[int]) -> NDArray[np.int64]:
        """The joint state of every block for the states of all components (0, 1, -1); (G,)."""
        digit_C = np.asarray(bits, dtype=np.int64) % 3
        digit_GB = np.where(self.slot_GB >= 0, digit_C[self.slot_GB], 0)
        return np.asarray(np.ravel_multi_index(tuple(digit_GB.T), (3,) * self.slot_GB.shape[1]))

    # what follows works on arrays and on tensors alike, with any number of axes before those of its name
    def joint(self, of_C3: Any, zeros: Any, is_XS: Any) -> Any:
        """The sums over components for every joint state, (..., G, S), of what is said of each component, (..., C, 3).

        `zeros` stands in for what is said of a slot without a component.
        """
        padded = _concatenate([of_C3, zeros], axis=-2)
        of_GX = padded[..., self.slot_GB, :].reshape((*of_C3.shape[:-2], len(self.slot_GB), -1))
        return of_GX @ is_XS

    def marginals(self, belief_GS: Any, is_SX: Any) -> Any:
        """The probability of each state of every component, (..., C, 3)."""
        of_GB3 = (belief_GS @ is_SX).reshape((*belief_GS.shape[:-1], -1, 3))
        blocks, slots = self.place_C
        return of_GB3[..., blocks, slots, :]


def _concatenate(parts: Sequence[Any], axis: int) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, axis=axis)
    import torch

    return torch.cat(list(parts), dim=axis)


@dataclass(frozen=True, eq=False)
class Moves:
    """The single moves of a block's components, each with the rate that it has."""

    from_M: NDArray[np.int64]  # joint states
    to_M: NDArray[np.int64]
    rate_M: NDArray[np.int64]  # index into `RATES`

    @classmethod
    def of(
        cls,
        blocks: Blocks,
        block: int,
        needs: Needs,
        variant: Variant,
        procedure: Procedure,
        elsewhere: Collection[int] | None = None,
    ) -> Moves:
        """`elsewhere`: the components of other blocks that are present; None: whatever is needed of them is there."""
        slots, expected = blocks.slot_GB[block], frozenset(variant.expected)
        inside = [int(component) for component in slots if component >= 0]
        outside = set(range(procedure.n_components)) - set(inside) if elsewhere is None else set(elsewhere)
        weights = 3 ** np.arange(len(slots))[::-1]
        found: list[tuple[int, int, int]] = []
        for state, digits in enumerate(blocks.digit_SB):
            if any(digit and component < 0 for digit, component in zip(digits, slots, strict=True)):
                continue  # an empty slot
            present = outside | {int(c) for c, digit in zip(slots, digits, strict=True) if digit}
            for slot, component in enumerate(inside):
                installs = procedure.step_id(component, StepKind.INSTALL) in expected
                removes = procedure.step_id(component, StepKind.REMOVE) in expected
                met = needs.met(component, present)
                moves: dict[int, str] = {}
                if digits[slot] == ABSENT:
                    moves[CORRECT] = "install_unexpected" if not installs else "install" if met else "install_unmet"
                    moves[WRONG] = "wrong" if met and installs else "wrong_unmet"
                else:
                    carrying = any(
                        other in inside or elsewhere is not None for other in needs.carried_by(component, present)
                    )
                    moves[ABSENT] = "removal" if removes else "removal_unexpected"
                    if digits[slot] == WRONG:
                        moves[ABSENT] = "wrong_off"
                    if carrying:
                        moves[ABSENT] = "removal_carrying"
                    other = WRONG if digits[slot] == CORRECT else CORRECT
                    moves[other] = "slip" if other == WRONG else "wrong_righted"
                for digit, name in moves.items():
                    found.append((state, state + int(digit - digits[slot]) * int(weights[slot]), _RATE[name]))
        table = np.array(found, dtype=np.int64).reshape(-1, 3)
        return cls(table[:, 0], table[:, 1], table[:, 2])

    def generator(self, rate_R: Any, zeros_SS: Any) -> Any:
        """How fast each joint state turns into each other one; rows sum to nothing. Fills and returns `zeros_SS`."""
        zeros_SS[self.from_M, self.to_M] = rate_R[self.rate_M]
        return zeros_SS


def transition(generator_SS: Any, identity_SS: Any, seconds: float) -> Any:
    """How probably each joint state has turned into each other one after a while, which must be short."""
    step_SS = (generator_SS - identity_SS * generator_SS.sum(-1)[..., None]) * seconds
    found_SS = identity_SS + step_SS
    term_SS = step_SS
    for power in range(2, 4):
        term_SS = term_SS @ step_SS / power
        found_SS = found_SS + term_SS
    return found_SS


# ---------------------------------------------------------------------- what a frame says
FEATURES = (*OUTPUT_COLUMNS, "bit", "error class", "detector spoke", "parts", "stream")
_N_FEATURES = len(FEATURES)
_SCALE_F = np.array([4.0 if name == "readable" else 3.0 for name in OUTPUT_COLUMNS])
_LEAST_LOG = -8.0


def features_of(prediction: Prediction, procedure: Procedure) -> NDArray[np.float32] | None:
    """What the networks say of every component, as the emission wants it, (C, F); None if none of them spoke."""
    outputs_CF = prediction.outputs_CF
    if outputs_CF is None and prediction.detections is None and prediction.change_C is None:
        return None
    n = procedure.n_components
    feature_CF = np.zeros((n, _N_FEATURES), dtype=np.float32)
    if outputs_CF is not None:
        feature_CF[:, :N_OUTPUTS] = np.maximum(np.nan_to_num(outputs_CF), _LEAST_LOG) / _SCALE_F
        feature_CF[:, -2:] = ~np.isnan(outputs_CF[:, [0, N_OUTPUTS - 1]])
    elif prediction.change_C is not None:
        probability_C = np.clip(prediction.change_C.astype(np.float64), 1e-4, 1 - 1e-4)
        feature_CF[:, OUTPUT_COLUMNS.index("change")] = np.log(probability_C / (1 - probability_C)) / 3
    if prediction.detections is not None:
        feature_CF[:, N_OUTPUTS + 2] = 1.0
        if prediction.detections:
            best = prediction.detections[0]
            state = procedure.states[best.state_class]
            if state.bits is not None:
                feature_CF[:, N_OUTPUTS] = best.confidence * (2 * np.array(state.bits) - 1)
            elif state.kind is StateKind.ERROR:
                feature_CF[:, N_OUTPUTS + 1] = best.confidence
    return feature_CF


@dataclass(frozen=True, eq=False)
class FilterParameters:
    """What is learned. Without an emission, only detections are heard, by a rule that fits published detectors."""

    log_seconds_R: Floats = field(default_factory=lambda: np.log(list(RATES.values())))
    gain: float = 0.15  # what one tick of evidence counts for
    ticks: int = 1  # the most that one word stands for: the stride at which the networks ran when it was learned
    layers: tuple[tuple[Floats, Floats], ...] = ()  # weights and biases of the emission

    def log_likelihood(self, prediction: Prediction, procedure: Procedure) -> Floats | None:
        """How well each state of every component goes with what the networks say, (C, 3); None if they say nothing."""
        if not self.layers:
            return detection_likelihood(prediction.detections, procedure)
        feature_CF = features_of(prediction, procedure)
        return (
            None if feature_CF is None else emission(self.layers, with_component(feature_CF, np.eye(len(feature_CF))))
        )

    def save(self, path: Path) -> None:
        arrays: dict[str, Any] = {
            "log_seconds_R": self.log_seconds_R,
            "gain": np.array(self.gain),
            "ticks": np.array(self.ticks),
        }
        for number, (weight, bias) in enumerate(self.layers):
            arrays |= {f"weight_{number}": weight, f"bias_{number}": bias}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_arrays(path, features=np.array(FEATURES), rates=np.array(list(RATES)), **arrays)

    @classmethod
    def load(cls, path: Path, n_components: int) -> FilterParameters:
        cure = "fit the filter again: stormpsr tune MODEL --method filter"
        arrays = read_arrays(path, cure)
        try:
            if tuple(arrays["features"]) != FEATURES or tuple(arrays["rates"]) != tuple(RATES):
                raise InputError("the filter was fitted by another version", path=path, cure=cure)
            n_layers = sum(name.startswith("weight_") for name in arrays)
            layers = tuple((arrays[f"weight_{n}"], arrays[f"bias_{n}"]) for n in range(n_layers))
            found = cls(arrays["log_seconds_R"], float(arrays["gain"]), int(arrays["ticks"]), layers)
        except (KeyError, ValueError, TypeError) as error:
            raise InputError(f"this is no fitted filter ({error})", path=path, cure=cure) from error
        widths = [(_N_FEATURES + n_components, 0), *(weight.shape for weight, _ in layers), (0, 3)]
        fits = all(one[1] == other[0] for one, other in pairwise(widths[1:-1])) if layers else True
        if found.log_seconds_R.shape != (len(RATES),) or (layers and (widths[1][0] != widths[0][0] or not fits)):
            raise InputError("the fitted filter does not fit the procedure", path=path, cure=cure)
        return found


def with_component(feature_CF: Any, which_CC: Any) -> Any:
    """Features, and which component they are of."""
    return _concatenate([feature_CF, which_CC], axis=-1)


def emission(layers: Sequence[tuple[Any, Any]], feature: Any) -> Any:
    """The logarithm of how well each state goes with features, for arrays and tensors alike; (..., 3)."""
    is_array = isinstance(feature, np.ndarray)
    hidden = feature
    for number, (weight, bias) in enumerate(layers):
        hidden = hidden @ weight + bias
        if number < len(layers) - 1:
            hidden = np.maximum(hidden, 0) if is_array else hidden.relu()
    if is_array:
        top = hidden.max(axis=-1, keepdims=True)
        return hidden - top - np.log(np.exp(hidden - top).sum(axis=-1, keepdims=True))
    return hidden.log_softmax(dim=-1)


def detection_likelihood(detections: Sequence[StateDetection] | None, procedure: Procedure) -> Floats | None:
    """What a detection says of every component, (C, 3), if detections are right as often as they are confident.

    Of a state without bits (the error state) no component can be told from another: it says nothing. A detector that
    sees no assembly says nothing either: most frames show none that can be read.
    """
    if not detections:
        return None
    best = detections[0]
    bits = procedure.states[best.state_class].bits
    if bits is None:
        return None
    sure = min(max(best.confidence, 0.05), 0.98)
    # a detection that is not right is usually right about most components all the same
    miss = 0.5 * (1 - sure) + 0.05
    likelihood_C3 = np.empty((len(bits), 3))
    installed_C = np.array(bits) == 1
    likelihood_C3[:, ABSENT] = np.where(installed_C, miss, 1 - miss)
    likelihood_C3[:, CORRECT] = np.where(installed_C, 1 - miss, miss)
    likelihood_C3[:, WRONG] = 0.5  # it may be taken for either
    return np.asarray(np.log(likelihood_C3))


# ---------------------------------------------------------------------- the belief
class Belief:
    """How probable the states of all components are, given all that was said so far."""

    def __init__(self, procedure: Procedure, variant: Variant, parameters: FilterParameters, most: int) -> None:
        self.procedure, self.variant, self.parameters = procedure, variant, parameters
        self._blocks, self._needs = Blocks.of(procedure, most), procedure.needs
        self._is_SX = self._blocks.is_SX
        self._nothing_13 = np.zeros((1, 3))
        self._steps: dict[tuple[int, frozenset[int], int], Floats] = {}  # block, what is present elsewhere, ticks
        block_C = self._blocks.place_C[0]
        needed = [{o for choice in choices for o in choice} for choices in self._needs.choices]
        # of each block: the components of others that it depends on, or that depend on it
        self._watched = [
            frozenset(
                other
                for own in np.flatnonzero(block_C == block)
                for other in range(procedure.n_components)
                if block_C[other] != block and (other in needed[own] or own in needed[other])
            )
            for block in range(len(self._blocks.slot_GB))
        ]
        self.reset()

    def reset(self) -> None:
        """The variant's initial state, for sure."""
        self._belief_GS = np.zeros((len(self._blocks.slot_GB), len(self._blocks.digit_SB)))
        self._belief_GS[np.arange(len(self._belief_GS)), self._blocks.joint_state(self.variant.initial)] = 1.0
        self._marginals()

    def _marginals(self) -> None:
        self.marginal_C3 = self._blocks.marginals(self._belief_GS, self._is_SX)

    def advance(self, ticks: int) -> None:
        """Let time pass of which nothing is known."""
        if ticks <= 0:
            return
        present_C = self.marginal_C3[:, ABSENT] < 0.5
        for block in range(len(self._belief_GS)):
            elsewhere = frozenset(other for other in self._watched[block] if present_C[other])
            left, power = ticks, 1
            while left:
                if left & 1:
                    self._belief_GS[block] = self._belief_GS[block] @ self._step(block, elsewhere, power)
                left, power = left >> 1, power << 1
        self._marginals()

    def _step(self, block: int, elsewhere: frozenset[int], ticks: int) -> Floats:
        """The transition matrix of a block for a power of two of ticks."""
        key = block, elsewhere, ticks
        if key not in self._steps:
            if ticks > 1:
                half_SS = self._step(block, elsewhere, ticks // 2)
                self._steps[key] = half_SS @ half_SS
            else:
                moves = Moves.of(self._blocks, block, self._needs, self.variant, self.procedure, elsewhere)
                n = len(self._blocks.digit_SB)
                rate_R = np.exp(-self.parameters.log_seconds_R)
                generator_SS = moves.generator(rate_R, np.zeros((n, n)))
                self._steps[key] = transition(generator_SS, np.eye(n), 1 / self.procedure.fps)
        return self._steps[key]

    def weigh(self, log_likelihood_C3: Floats, ticks: float) -> None:
        """Take in what was said, as evidence of so many ticks."""
        gained_C3 = log_likelihood_C3 * (ticks * self.parameters.gain)
        joint_GS = self._blocks.joint(gained_C3, self._nothing_13, self._is_SX.T)
        weighed_GS = self._belief_GS * np.exp(joint_GS - joint_GS.max(axis=1, keepdims=True))
        total_G1 = weighed_GS.sum(axis=1, keepdims=True)
        self._belief_GS = np.where(total_G1 > 0, weighed_GS / np.maximum(total_G1, 1e-300), self._belief_GS)
        self._marginals()

    def set_component(self, component: int, state: int) -> None:
        """Somebody who knows says what is true of a component (0 absent, 1 correct, -1 wrong)."""
        block, slot = (int(place[component]) for place in self._blocks.place_C)
        holds_S = self._blocks.digit_SB[:, slot] == state % 3
        kept_S = self._belief_GS[block] * holds_S
        if kept_S.sum() < 1e-9:  # it was thought impossible: only this component changes
            weight = 3 ** (self._blocks.digit_SB.shape[1] - 1 - slot)
            target_S = np.arange(len(holds_S)) + (state % 3 - self._blocks.digit_SB[:, slot]) * weight
            kept_S = np.zeros_like(kept_S)
            np.add.at(kept_S, target_S, self._belief_GS[block])
        self._belief_GS[block] = kept_S / kept_S.sum()
        self._marginals()

    @property
    def expected_wait_C(self) -> Floats:
        """In how many seconds each component's next expected step is to be expected; infinite where none is left."""
        seconds = np.exp(self.parameters.log_seconds_R)
        present = {int(k) for k in np.flatnonzero(self.marginal_C3[:, ABSENT] < 0.5)}
        waits = np.full(self.procedure.n_components, np.inf)
        for step_id in self.variant.expected:
            step = self.procedure.step(step_id)
            absent = step.component_index not in present
            if step.installs == absent:
                unmet = self._n_missing(step.component_index, present) if step.installs else 0
                own = seconds[_RATE["install" if step.installs else "removal"]]
                waits[step.component_index] = min(waits[step.component_index], own * (1 + unmet))
        return waits

    def _n_missing(self, component: int, present: set[int]) -> int:
        """How many steps must come first, at least."""
        missing = [choice for choice in self._needs.choices[component] if not set(choice) & present]
        return sum(1 + min(self._n_missing(other, present) for other in choice) for choice in missing)


# ---------------------------------------------------------------------- decisions
@dataclass(frozen=True, slots=True)
class FilterSettings:
    """When a belief becomes an event. The defaults are for detections alone; a fitted filter has its own."""

    install_threshold: float = 0.95  # an expected step is reported at this probability
    removal_threshold: float = 0.95  # an expected removal
    unexpected_threshold: float = 0.98  # steps that the variant does not expect
    wrong_threshold: float = 0.7  # a part that sits wrongly; not tuned, because no score of completions tells
    block_components: int = 5  # joint states are exact for so many components that depend on each other
    fitted: bool = False  # whether the model's folder holds learned parameters
    unexpected: Literal["drop", "report"] | None = None  # None: report
    folder: Path | None = None  # of the model

    def __post_init__(self) -> None:
        share = (0.0, 1.0)
        names = ("install_threshold", "removal_threshold", "unexpected_threshold", "wrong_threshold")
        check_numbers(self, dict.fromkeys(names, share) | {"block_components": (1, 7)})


PARAMETERS_FILE = Path("methods") / "filter.npz"


class _Decisions:
    """From the belief to events, for many settings at once. What is reported follows the belief with hysteresis."""

    def __init__(self, procedure: Procedure, variant: Variant, settings: Sequence[FilterSettings]) -> None:
        self.procedure, self.variant, self.settings = procedure, variant, settings
        expected = frozenset(variant.expected)
        expects = {
            kind: np.array([procedure.step_id(k, kind) in expected for k in range(procedure.n_components)])
            for kind in (StepKind.INSTALL, StepKind.REMOVE)
        }
        column = {
            name: np.array([getattr(own, name) for own in settings], dtype=np.float64)[:, None]
            for name in ("install_threshold", "removal_threshold", "unexpected_threshold", "wrong_threshold")
        }
        n = procedure.n_components
        unexpected = column["unexpected_threshold"]
        self._threshold_3KC = np.stack(
            [
                np.where(expects[StepKind.REMOVE], column["removal_threshold"], unexpected),
                np.where(expects[StepKind.INSTALL], column["install_threshold"], unexpected),
                np.broadcast_to(column["wrong_threshold"], (len(settings), n)),
            ]
        )
        self._expects = expects
        self._needs = procedure.needs
        self._depth = self._needs.depth
        self.reset()

    def reset(self) -> None:
        initial_C = np.asarray(self.variant.initial, dtype=np.int64) % 3
        self.reported_KC = np.tile(initial_C, (len(self.settings), 1))
        self._skipped: set[tuple[int, int]] = set()

    def correct(self, component: int, bit: int) -> None:
        self.reported_KC[:, component] = bit % 3
        step_id = self.procedure.step_id(component, StepKind.INSTALL)
        self._skipped -= {(row, step_id) for row in range(len(self.settings))}

    def update(self, marginal_C3: Floats, said_C3: Floats, frame: int) -> list[list[StepEvent]]:
        """The events of each setting. Only what the frame speaks for is reported, as in the published decoders."""
        events: list[list[StepEvent]] = [[] for _ in self.settings]
        spoken_3C = np.stack(
            [
                said_C3[:, ABSENT] > said_C3[:, CORRECT],
                said_C3[:, CORRECT] >= np.maximum(said_C3[:, ABSENT], said_C3[:, WRONG]),
                said_C3[:, WRONG] > said_C3[:, CORRECT],
            ]
        )
        sure_3KC = (marginal_C3.T[:, None] > self._threshold_3KC) & spoken_3C[:, None]
        new_KC = np.select([sure_3KC[CORRECT], sure_3KC[WRONG], sure_3KC[ABSENT]], [CORRECT, WRONG, ABSENT], -1)
        changed_KC = (new_KC >= 0) & (new_KC != self.reported_KC)
        for row, k in zip(*np.nonzero(changed_KC), strict=True):
            own = self.settings[row]
            kind = {CORRECT: StepKind.INSTALL, WRONG: StepKind.INCORRECT, ABSENT: StepKind.REMOVE}[int(new_KC[row, k])]
            was_wrong = self.reported_KC[row, k] == WRONG
            unexpected = kind is not StepKind.INCORRECT and not self._expects[kind][k]
            self.reported_KC[row, k] = new_KC[row, k]
            if (kind is StepKind.REMOVE and was_wrong) or (unexpected and own.unexpected == "drop"):
                continue  # nothing correct was undone
            what: Literal["completed", "unexpected", "wrong"] = "unexpected" if unexpected else "completed"
            if kind is StepKind.INCORRECT:
                what = "wrong"
            confidence = float(marginal_C3[k, new_KC[row, k]])
            step_id = self.procedure.step_id(int(k), kind)
            events[row].append(StepEvent(step_id, frame, confidence=confidence, source="filter", kind=what))
        for row_events in events:
            row_events.sort(key=self._order)
        return events

    def _order(self, event: StepEvent) -> tuple[int, int]:
        """What others need comes first; what others need is removed last."""
        step = self.procedure.step(event.step_id)
        depth = self._depth[step.component_index]
        return (depth if step.kind is not StepKind.REMOVE else -depth, step.component_index)

    def skipped(self, row: int, frame: int, marginal_C3: Floats, *, at_the_end: bool) -> list[StepEvent]:
        """Expected installations that were left out, as far as that can be known: at the end all that never came;

        before it, those that a part which is in place needs and that are not there.
        """
        reported_C, found = self.reported_KC[row], []
        for step_id in self.variant.expected:
            step = self.procedure.step(step_id)
            k = step.component_index
            if not step.installs or reported_C[k] == CORRECT or (row, step_id) in self._skipped:
                continue
            if at_the_end or (marginal_C3[k, ABSENT] > 0.95 and self._is_needed(k, reported_C)):
                self._skipped.add((row, step_id))
                sure = float(1 - marginal_C3[k, CORRECT])
                found.append(StepEvent(step_id, frame, confidence=sure, source="filter", kind="skipped"))
        return found

    def _is_needed(self, component: int, reported_C: NDArray[np.int64]) -> bool:
        present = {int(k) for k in np.flatnonzero(reported_C != ABSENT)} | {component}
        return bool(set(self._needs.carried_by(component, present)) - {component})


class ProcedureFilter(Decoder):
    """Feed it every frame; it returns the steps that the frame completes, wrong parts and steps left out among them."""

    Settings = FilterSettings
    needs_every_tick, gives_alarms, fewest_to_learn_from = False, True, 8
    grid: ClassVar[Grid] = {
        "install_threshold": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        "removal_threshold": (0.6, 0.8, 0.9, 0.95),
        "unexpected_threshold": (0.9, 0.97, 0.99, 0.999),
    }

    def __init__(
        self, procedure: Procedure, variant: str | None = None, settings: FilterSettings | None = None
    ) -> None:
        own = settings or FilterSettings()
        self._belief = Belief(
            procedure, procedure.variant(variant), parameters_of(own, procedure), own.block_components
        )
        self._decisions = _Decisions(procedure, procedure.variant(variant), [own])
        self._evidence = Evidence(self._belief, procedure)
        super().__init__(procedure, variant, own)

    def reset(self) -> None:
        """Forget everything, for a new recording."""
        super().reset()
        self._evidence.reset()
        self._decisions.reset()

    def update(
        self,
        detections: Sequence[StateDetection],
        change_probabilities: Sequence[float] | NDArray[np.floating] | None = None,
        frame: int | None = None,
    ) -> list[StepEvent]:
        """The events of the next frame, of which the networks said no more than this."""
        number = self._frame + 1 if frame is None else frame
        change_C = None if change_probabilities is None else np.asarray(change_probabilities, dtype=np.float32)
        # a frame without a detection says nothing: who feeds detections alone leaves such frames out
        return self.observe(Prediction(number, number, 0.0, tuple(detections) or None, change_C))

    def observe(self, prediction: Prediction) -> list[StepEvent]:
        """The events of the next tick, from all that the networks said about it."""
        self._next_frame(prediction.tick)
        said_C3 = self._evidence.take(prediction)
        if said_C3 is None:
            return []
        marginal_C3 = self._belief.marginal_C3
        (events,) = self._decisions.update(marginal_C3, said_C3, prediction.tick)
        return events + self._decisions.skipped(0, prediction.tick, marginal_C3, at_the_end=False)

    def rest(self, frame: int) -> None:
        """Frames of which nothing is known: time passes with the next one that is."""
        self._frame = max(self._frame, frame - 1)

    def finish(self) -> list[StepEvent]:
        """The expected steps that never came, now that the work has ended."""
        return self._decisions.skipped(0, max(self._frame, 0), self._belief.marginal_C3, at_the_end=True)

    def correct(self, component: int, bit: int) -> None:
        """Somebody who knows says what is true (0 absent, 1 correct, -1 wrong): the belief goes on from there."""
        self._belief.set_component(component, bit)
        self._decisions.correct(component, bit)

    # ------------------------------------------------------------------ for displays
    @property
    def state(self) -> StateBits:
        """The state that the reported steps lead to; -1 for a part that is reported wrong."""
        return tuple(-1 if digit == WRONG else int(digit) for digit in self._decisions.reported_KC[0])

    @property
    def share(self) -> NDArray[np.float64]:
        """The probability of what each step leads to, as a share of what is needed to report it."""
        found = np.zeros(len(self.procedure.steps))
        for step in self.procedure.steps:
            leads_to = {StepKind.INSTALL: CORRECT, StepKind.INCORRECT: WRONG, StepKind.REMOVE: ABSENT}[step.kind]
            if self._decisions.reported_KC[0, step.component_index] != leads_to:
                needed = self._decisions._threshold_3KC[leads_to, 0, step.component_index]
                found[step.id] = self._belief.marginal_C3[step.component_index, leads_to] / max(needed, 1e-9)
        return found

    @property
    def component_probabilities(self) -> NDArray[np.float64]:
        """How surely each component is correctly in place."""
        return np.asarray(self._belief.marginal_C3[:, CORRECT].copy())

    @property
    def state_probabilities(self) -> NDArray[np.float64]:
        """How surely each component is absent, correct, wrong; (C, 3)."""
        return np.array(self._belief.marginal_C3)

    @property
    def expected_wait_seconds(self) -> NDArray[np.float64]:
        """In how many seconds each component's next expected step is to be expected."""
        return self._belief.expected_wait_C

    # ------------------------------------------------------------------ learning and tuning
    @classmethod
    def fit(
        cls, recordings: Sequence[LabelledRecording], procedure: Procedure, settings: FilterSettings, folder: Path
    ) -> FilterSettings:
        """Learn emission, gain and rates through the filter, and write them below `folder`."""
        from stormpsr.decoding.procedure_filter_fit import fit_filter

        fit_filter(recordings, procedure, settings.block_components).save(folder / PARAMETERS_FILE)
        return replace(settings, fitted=True, folder=folder)

    @classmethod
    def batch(cls, procedure: Procedure, variant: str | None, settings: Sequence[FilterSettings]) -> DecoderBatch:
        return FilterGrid(procedure, variant, settings)


def parameters_of(settings: FilterSettings, procedure: Procedure) -> FilterParameters:
    """The parameters that settings name."""
    if not settings.fitted:
        return FilterParameters()
    if settings.folder is None:
        raise InputError("a fitted filter lies in a model's folder", cure="load the model, or set fitted: false")
    return FilterParameters.load(settings.folder / PARAMETERS_FILE, procedure.n_components)


class Evidence:
    """Feeds predictions to a belief. A word stands for the ticks since the last one, as far as its stride reaches."""

    def __init__(self, belief: Belief, procedure: Procedure) -> None:
        self._belief, self._procedure = belief, procedure
        self._tick: int | None = None  # of the latest word

    def reset(self) -> None:
        self._belief.reset()
        self._tick = None

    def take(self, prediction: Prediction) -> Floats | None:
        """What the prediction says of every component, after the belief has taken it in; None if it says nothing."""
        parameters = self._belief.parameters
        said_C3 = parameters.log_likelihood(prediction, self._procedure)
        if said_C3 is None:
            return None
        passed = 1 if self._tick is None else prediction.tick - self._tick
        self._belief.advance(passed)
        self._belief.weigh(said_C3, min(passed, parameters.ticks))
        self._tick = prediction.tick
        return said_C3


class FilterGrid:
    """Many thresholds on one belief, which does not depend on them."""

    def __init__(self, procedure: Procedure, variant: str | None, settings: Sequence[FilterSettings]) -> None:
        thresholds = set(ProcedureFilter.grid)
        apart = [entry.name for entry in fields(FilterSettings) if entry.name not in (*thresholds, "wrong_threshold")]
        if len({tuple(getattr(own, name) for name in apart) for own in settings}) > 1:
            raise InputError("settings of one batch may differ in their thresholds only")
        chosen, first = procedure.variant(variant), settings[0]
        belief = Belief(procedure, chosen, parameters_of(first, procedure), first.block_components)
        self._belief, self._evidence = belief, Evidence(belief, procedure)
        self._decisions = _Decisions(procedure, chosen, settings)
        self.events: list[list[StepEvent]] = [[] for _ in settings]

    def observe(self, prediction: Prediction) -> None:
        said_C3 = self._evidence.take(prediction)
        if said_C3 is not None:
            found = self._decisions.update(self._belief.marginal_C3, said_C3, prediction.tick)
            for events, new in zip(self.events, found, strict=True):
                events += [replace(event, frame=prediction.index) for event in new]
