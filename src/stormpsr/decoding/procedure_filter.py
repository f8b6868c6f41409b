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

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.events import StateDetection
from stormpsr.decoding.decisions import ABSENT, CORRECT, WRONG, BeliefDecoder, BeliefSettings, Floats
from stormpsr.decoding.predictions import (
    N_OUTPUTS,
    OUTPUT_COLUMNS,
    LabelledRecording,
    OnSteps,
    Prediction,
    check_numbers,
)
from stormpsr.errors import InputError
from stormpsr.files import read_arrays, write_arrays
from stormpsr.procedure.model import Needs, Procedure, StateKind, StepKind, Variant

# Mean seconds until a person does this, with learning's start; `RATES[r]` is what `log_seconds_R[r]` is of. Those
# of expected steps are measured on correct executions in IndustReal's training split, where none came too early.
RATES: Mapping[str, float] = {
    "install": 50.0,  # an expected installation, once what it needs is there
    "install_unmet": 700.0,  # before that
    "install_unexpected": 50_000.0,
    "wrong": 300.0,  # a part put on wrongly, once what it needs is there
    "wrong_unmet": 7_000.0,
    "removal": 25.0,  # an expected removal
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
        padded = concatenate([of_C3, zeros], axis=-2)
        of_GX = padded[..., self.slot_GB, :].reshape((*of_C3.shape[:-2], len(self.slot_GB), -1))
        return of_GX @ is_XS

    def marginals(self, belief_GS: Any, is_SX: Any) -> Any:
        """The probability of each state of every component, (..., C, 3)."""
        of_GB3 = (belief_GS @ is_SX).reshape((*belief_GS.shape[:-1], -1, 3))
        blocks, slots = self.place_C
        return of_GB3[..., blocks, slots, :]


def concatenate(parts: Sequence[Any], axis: int) -> Any:
    """Arrays or tensors, one after the other."""
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
        turned: Collection[int] = (),
    ) -> Moves:
        """`elsewhere`: the components of other blocks that are present; None: whatever is needed of them is there.

        `turned`: components that have left their initial state. What is to be taken off and put back is taken off once.
        """
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
                if installs and removes and component in turned:
                    installs, removes = bool(variant.initial[component]), not variant.initial[component]
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
    gain: float = 0.5  # what one tick of evidence counts for
    ticks: int = 0  # the most that one word stands for: the stride of the networks that it learned from; 0: unknown
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
            given = [(finite(arrays[f"weight_{n}"]), finite(arrays[f"bias_{n}"])) for n in range(n_layers)]
            gain, ticks = float(finite(arrays["gain"])), int(finite(arrays["ticks"]))
            found = cls(finite(arrays["log_seconds_R"]), gain, ticks, tuple(given))
        except (KeyError, ValueError, TypeError) as error:
            raise InputError(f"this is no fitted filter ({error})", path=path, cure=cure) from error
        widths = [_N_FEATURES + n_components, *(bias.size for _, bias in given)]
        fits = all(
            weight.shape == sizes and bias.shape == sizes[1:]
            for (weight, bias), sizes in zip(given, pairwise(widths), strict=True)
        )
        if found.log_seconds_R.shape != (len(RATES),) or ticks < 0 or (given and not (fits and widths[-1] == 3)):
            raise InputError("the fitted filter does not fit the procedure", path=path, cure=cure)
        return found


def finite(array: Any) -> Floats:
    """What was learned and stored, as numbers to compute with."""
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise ValueError("a number is not finite")
    return np.asarray(array, dtype=np.float64 if array.dtype.kind != "f" else array.dtype)


def with_component(feature_CF: Any, which_CC: Any) -> Any:
    """Features, and which component they are of."""
    return concatenate([feature_CF, which_CC], axis=-1)


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


_DOUBT, _LEAST_WEIGHT = 0.2, 0.05  # a confidence that says nothing; what a detection says at least


def detection_likelihood(detections: Sequence[StateDetection] | None, procedure: Procedure) -> Floats | None:
    """What a detection says of every component, (C, 3): the more the surer it is.

    Published detectors are right when they are sure; those of little confidence are of parts in hands and half done. Of
    a state without bits (the error state) no component can be told from another: it says nothing. A detector that sees
    no assembly says nothing either: most frames show none that can be read.
    """
    if not detections:
        return None
    best = detections[0]
    if best.state_class >= len(procedure.states):
        raise InputError(
            f"frame {best.frame}: state class {best.state_class} does not exist in {procedure.name!r}",
            cure=f"its classes are 0 to {len(procedure.states) - 1}",
        )
    bits = procedure.states[best.state_class].bits
    if bits is None:
        return None
    weight = max(best.confidence - _DOUBT, _LEAST_WEIGHT)
    installed_C = np.array(bits) == 1
    log_likelihood_C3 = np.empty((len(bits), 3))
    log_likelihood_C3[:, ABSENT] = np.where(installed_C, -weight, 0.0)
    log_likelihood_C3[:, CORRECT] = np.where(installed_C, 0.0, -weight)
    log_likelihood_C3[:, WRONG] = -weight / 2  # it may be taken for either
    return log_likelihood_C3


# ---------------------------------------------------------------------- the belief
_MOST_STEP_BYTES = 2**28  # of transition matrices that are kept: large procedures pass through many situations
_TURNED = 0.1  # a component has left its initial state when that is less probable than this


def turning_components(procedure: Procedure, variant: Variant) -> frozenset[int]:
    """Components that a variant expects to be taken off and put back, or put on and taken off."""
    expected = frozenset(variant.expected)
    kinds = (StepKind.INSTALL, StepKind.REMOVE)
    return frozenset(
        k for k in range(procedure.n_components) if all(procedure.step_id(k, kind) in expected for kind in kinds)
    )


class Belief:
    """How probable the states of all components are, given all that was said so far."""

    def __init__(self, procedure: Procedure, variant: Variant, parameters: FilterParameters, most: int) -> None:
        self.procedure, self.variant, self.parameters = procedure, variant, parameters
        self._blocks, self._needs = Blocks.of(procedure, most), procedure.needs
        self._is_SX = self._blocks.is_SX
        self._nothing_13 = np.zeros((1, 3))
        # by block, what is present elsewhere, what has turned, ticks
        self._steps: dict[tuple[int, frozenset[int], frozenset[int], int], Floats] = {}
        block_C = self._blocks.place_C[0]
        self._turning = turning_components(procedure, variant)
        self._turning_G = [
            frozenset(int(k) for k in np.flatnonzero(block_C == block)) & self._turning
            for block in range(len(self._blocks.slot_GB))
        ]
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
        self._turned: frozenset[int] = frozenset()
        self._marginals()

    def _marginals(self) -> None:
        self.marginal_C3 = self._blocks.marginals(self._belief_GS, self._is_SX)

    def _turn(self) -> None:
        """Take note of components that have left their initial state, as far as one can be sure."""
        for component in self._turning - self._turned:
            if self.marginal_C3[component, self.variant.initial[component]] < _TURNED:
                self._turned |= {component}

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
                    step_SS = self._step(block, elsewhere, self._turned & self._turning_G[block], power)
                    self._belief_GS[block] = self._belief_GS[block] @ step_SS
                left, power = left >> 1, power << 1
        self._marginals()

    def _step(self, block: int, elsewhere: frozenset[int], turned: frozenset[int], ticks: int) -> Floats:
        """The transition matrix of a block for a power of two of ticks."""
        key = block, elsewhere, turned, ticks
        step_SS = self._steps.pop(key, None)
        if step_SS is None:
            if ticks > 1:
                half_SS = self._step(block, elsewhere, turned, ticks // 2)
                step_SS = half_SS @ half_SS
            else:
                moves = Moves.of(self._blocks, block, self._needs, self.variant, self.procedure, elsewhere, turned)
                n = len(self._blocks.digit_SB)
                rate_R = np.exp(-self.parameters.log_seconds_R)
                generator_SS = moves.generator(rate_R, np.zeros((n, n)))
                step_SS = transition(generator_SS, np.eye(n), 1 / self.procedure.fps)
            while len(self._steps) * step_SS.nbytes > _MOST_STEP_BYTES:  # what was not used for the longest time goes
                del self._steps[next(iter(self._steps))]
        self._steps[key] = step_SS
        return step_SS

    def weigh(self, log_likelihood_C3: Floats, ticks: float) -> None:
        """Take in what was said, as evidence of so many ticks."""
        gained_C3 = log_likelihood_C3 * (ticks * self.parameters.gain)
        joint_GS = self._blocks.joint(gained_C3, self._nothing_13, self._is_SX.T)
        weighed_GS = self._belief_GS * np.exp(joint_GS - joint_GS.max(axis=1, keepdims=True))
        total_G1 = weighed_GS.sum(axis=1, keepdims=True)
        self._belief_GS = np.where(total_G1 > 0, weighed_GS / np.maximum(total_G1, 1e-300), self._belief_GS)
        self._marginals()
        self._turn()

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
        self._turn()

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


_WORDS_OF_STRIDE, _LONGEST_STRIDE = 8, 10


class Evidence:
    """Feeds predictions to a belief. A word stands for the ticks since the last one, as far as its stride reaches.

    Where the stride is unknown, it is the least distance of the last words: detectors that look at every fourth frame
    say as much as those that look at all of them.
    """

    def __init__(self, belief: Belief, procedure: Procedure) -> None:
        self.belief, self._procedure = belief, procedure
        self.reset()

    def reset(self) -> None:
        self.belief.reset()
        self._tick: int | None = None  # of the latest word
        self._distances: deque[int] = deque(maxlen=_WORDS_OF_STRIDE)

    def take(self, prediction: Prediction) -> Floats | None:
        """What the prediction says of every component, after the belief has taken it in; None if it says nothing."""
        parameters = self.belief.parameters
        said_C3 = parameters.log_likelihood(prediction, self._procedure)
        if said_C3 is None:
            return None
        passed = 1 if self._tick is None else prediction.tick - self._tick
        self._distances.append(passed)
        stride = parameters.ticks or min(*self._distances, _LONGEST_STRIDE)
        self.belief.advance(passed)
        self.belief.weigh(said_C3, min(passed, stride))
        self._tick = prediction.tick
        return said_C3

    @property
    def marginal_C3(self) -> Floats:
        return np.asarray(self.belief.marginal_C3)

    def set_component(self, component: int, state: int) -> None:
        self.belief.set_component(component, state)


# ---------------------------------------------------------------------- the method
PARAMETERS_FILE = Path("methods") / "filter.npz"
_PACES = (0.05, 20.0)


@dataclass(frozen=True, slots=True)
class FilterSettings(BeliefSettings):
    """Thresholds, and how the belief is kept."""

    block_components: int = 5  # joint states are exact for so many components that depend on each other
    pace: float = 1.0  # how many times longer steps take here than where the mean times were learned

    def __post_init__(self) -> None:
        BeliefSettings.__post_init__(self)
        check_numbers(self, {"block_components": (1, 7), "pace": _PACES})


class ProcedureFilter(BeliefDecoder):
    """A belief over joint states."""

    Settings = FilterSettings
    name = "filter"
    _believer: Evidence

    @classmethod
    def believer(cls, procedure: Procedure, variant: Variant, settings: FilterSettings) -> Evidence:
        belief = Belief(procedure, variant, parameters_of(settings, procedure), settings.block_components)
        return Evidence(belief, procedure)

    @property
    def expected_wait_seconds(self) -> NDArray[np.float64]:
        """In how many seconds each component's next expected step is to be expected."""
        return self._believer.belief.expected_wait_C

    @classmethod
    def fit(
        cls,
        recordings: Sequence[LabelledRecording],
        procedure: Procedure,
        settings: FilterSettings,
        folder: Path,
        on_progress: OnSteps | None = None,
    ) -> FilterSettings:
        """Learn emission, gain and rates through the filter, and write them below `folder`."""
        from stormpsr.decoding.procedure_filter_fit import fit_filter

        learned = fit_filter(recordings, procedure, settings.block_components, on_progress=on_progress)
        learned.save(folder / PARAMETERS_FILE)
        return replace(settings, fitted=True, folder=folder)


def parameters_of(settings: FilterSettings, procedure: Procedure) -> FilterParameters:
    """The parameters that settings name, at their pace."""
    found = FilterParameters()
    if settings.fitted:
        if settings.folder is None:
            raise InputError("a fitted filter lies in a model's folder", cure="load the model, or set fitted: false")
        found = FilterParameters.load(settings.folder / PARAMETERS_FILE, procedure.n_components)
    return replace(found, log_seconds_R=found.log_seconds_R + np.log(settings.pace))
