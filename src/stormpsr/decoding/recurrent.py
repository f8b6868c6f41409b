"""A recurrent network over what the networks say of every component: absent, correct or wrong, given all frames so far.

A gated recurrent unit reads the features that the procedure filter's emission reads, component by component with the
same weights, and with them what it last thought: of the component itself, of what that needs and carries, and of all
components. Where the filter is told how people work, this learns it; it needs more recordings, and has no parameters of
its own to begin with. Several such networks, which began from other random numbers, are believed on average: each has
learned something else by chance from few recordings.

All of it is numpy; `recurrent_fit` learns the parameters, through the same functions with torch's tensors.

Shape legend: M members, C components, F features, I inputs, H hidden units, 3 absent, correct, wrong; N choices, A
alternatives of a choice, as far as components have so many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.decoding.decisions import ABSENT, BeliefDecoder, BeliefSettings, Floats
from stormpsr.decoding.predictions import LabelledRecording, OnSteps, Prediction
from stormpsr.decoding.procedure_filter import FEATURES, concatenate, features_of, finite, with_component
from stormpsr.errors import InputError
from stormpsr.files import read_arrays, write_arrays
from stormpsr.procedure.model import Procedure, StepKind, Variant

PARAMETERS_FILE = Path("methods") / "recurrent.npz"
N_HIDDEN = 32
# beside the features: initially there, to be installed, to be removed; what was thought (3), what it needs and what it
# carries, how much is there in all; how long ago that was
N_CONTEXT = 10
SHAPES: Mapping[str, tuple[str, ...]] = {
    "input_IX": ("I", "3H"),  # to update, reset and new state
    "bias_X": ("3H",),
    "hidden_HX": ("H", "3H"),
    "hidden_bias_X": ("3H",),
    "start_3H": ("3", "H"),  # the hidden state of a component of which all is known
    "output_H3": ("H", "3"),
    "output_bias_3": ("3",),
}
N_MEMBERS = 3  # networks that are learned
_MOST_MEMBERS = 64  # that are read from a file
_CURE = "fit it: stormpsr tune MODEL --method recurrent"


def shape_of(name: str, n_components: int) -> tuple[int, ...]:
    sizes = {"I": len(FEATURES) + n_components + N_CONTEXT, "H": N_HIDDEN, "3H": 3 * N_HIDDEN, "3": 3}
    return tuple(sizes[size] for size in SHAPES[name])


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What a component has to do with others, and what a variant expects of it."""

    needed_CNA: NDArray[np.int64]  # C: always there; C + 1: never
    carried_CA: NDArray[np.int64]  # C + 1: never
    expects_C3: Floats  # initially there, to be installed, to be removed

    @classmethod
    def of(cls, procedure: Procedure, variant: Variant) -> Surroundings:
        n, choices, expected = procedure.n_components, procedure.needs.choices, frozenset(variant.expected)
        most = max((len(own) for own in choices), default=0) or 1
        widest = max((len(choice) for own in choices for choice in own), default=0) or 1
        needed_CNA = np.full((n, most, widest), n + 1, dtype=np.int64)
        needed_CNA[:, :, 0] = n
        carried: list[list[int]] = [[] for _ in range(n)]
        for component, own in enumerate(choices):
            for row, choice in enumerate(own):
                needed_CNA[component, row, : len(choice)] = choice
                for other in choice:
                    carried[other].append(component)
        carried_CA = np.full((n, max(max(map(len, carried)), 1)), n + 1, dtype=np.int64)
        for component, others in enumerate(carried):
            carried_CA[component, : len(others)] = others
        kinds = (StepKind.INSTALL, StepKind.REMOVE)
        expects_C2 = [[procedure.step_id(k, kind) in expected for kind in kinds] for k in range(n)]
        expects_C3 = np.concatenate([np.array(variant.initial)[:, None], np.array(expects_C2)], axis=1)
        return cls(needed_CNA, carried_CA, expects_C3.astype(np.float64))


# ---------------------------------------------------------------------- for arrays and tensors alike
def context_of(around: Surroundings, marginal_C3: Any, expects_C3: Any, ago_C1: Any) -> Any:
    """What is known beside a frame's features, (..., C, N_CONTEXT). `ago_C1`: logarithm of 1 + seconds since then."""
    there_C = 1 - marginal_C3[..., ABSENT]
    one = there_C[..., :1] * 0 + 1
    all_C = concatenate([there_C, one, one * 0], axis=-1)
    met_C = _least(_most(all_C[..., around.needed_CNA]))
    carries_C = _most(all_C[..., around.carried_CA])
    mean_C = there_C * 0 + there_C.mean(-1)[..., None]
    parts = [expects_C3, marginal_C3, met_C[..., None], carries_C[..., None], mean_C[..., None], ago_C1]
    return concatenate(parts, axis=-1)


def _most(values: Any) -> Any:
    return values.max(axis=-1) if isinstance(values, np.ndarray) else values.amax(dim=-1)


def _least(values: Any) -> Any:
    return values.min(axis=-1) if isinstance(values, np.ndarray) else values.amin(dim=-1)


def _sigmoid(values: Any) -> Any:
    return 1 / (1 + np.exp(-np.clip(values, -60, 60))) if isinstance(values, np.ndarray) else values.sigmoid()


def recurrent_step(weights: Mapping[str, Any], input_CI: Any, hidden_CH: Any) -> Any:
    """The next hidden state of a gated recurrent unit."""
    return next_hidden(weights, input_CI @ weights["input_IX"] + weights["bias_X"], hidden_CH)


def next_hidden(weights: Mapping[str, Any], from_input: Any, hidden_CH: Any) -> Any:
    """The same from what the input makes of the gates, (..., C, 3H)."""
    from_hidden = hidden_CH @ weights["hidden_HX"] + weights["hidden_bias_X"]
    n = N_HIDDEN
    keep = _sigmoid(from_input[..., :n] + from_hidden[..., :n])
    reset = _sigmoid(from_input[..., n : 2 * n] + from_hidden[..., n : 2 * n])
    inner = from_input[..., 2 * n :] + reset * from_hidden[..., 2 * n :]
    new = np.tanh(inner) if isinstance(inner, np.ndarray) else inner.tanh()
    return keep * hidden_CH + (1 - keep) * new


def read_out(weights: Mapping[str, Any], hidden_CH: Any) -> Any:
    """The probabilities of absent, correct and wrong."""
    logit_C3 = hidden_CH @ weights["output_H3"] + weights["output_bias_3"]
    if not isinstance(logit_C3, np.ndarray):
        return logit_C3.softmax(dim=-1)
    odds_C3 = np.exp(logit_C3 - logit_C3.max(axis=-1, keepdims=True))
    return odds_C3 / odds_C3.sum(axis=-1, keepdims=True)


# ---------------------------------------------------------------------- what is learned
def save_weights(path: Path, weights: Mapping[str, Floats]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_arrays(path, features=np.array(FEATURES), **weights)


def load_weights(path: Path, n_components: int) -> dict[str, Floats]:
    """The members' weights, (M, ...); files of earlier versions hold one."""
    arrays = read_arrays(path, _CURE)
    if "features" not in arrays or arrays.pop("features").tolist() != list(FEATURES) or set(arrays) != set(SHAPES):
        raise InputError("these are no weights of this version's recurrent method", path=path, cure=_CURE)
    if arrays["output_bias_3"].ndim == 1:
        arrays = {name: array[None] for name, array in arrays.items()}
    n_members = len(arrays["output_bias_3"]) if arrays["output_bias_3"].ndim else 0
    if not 1 <= n_members <= _MOST_MEMBERS or any(
        arrays[name].shape != (n_members, *shape_of(name, n_components)) for name in SHAPES
    ):
        raise InputError("the weights do not fit the procedure", path=path, cure=_CURE)
    try:
        return {name: finite(array) for name, array in arrays.items()}
    except ValueError as error:
        raise InputError(f"these are no weights ({error})", path=path, cure=_CURE) from error


# ---------------------------------------------------------------------- the method
class Recurrence:
    """What the networks think of every component, on average."""

    def __init__(self, procedure: Procedure, variant: Variant, weights: Mapping[str, Floats]) -> None:
        self._procedure, self._variant = procedure, variant
        # what is added to every component stands beside the members' components
        self._weights = {name: own[:, None] if own.ndim == 2 else own for name, own in weights.items()}
        self._around = Surroundings.of(procedure, variant)
        self._which_CC = np.eye(procedure.n_components)
        self.reset()

    def reset(self) -> None:
        state_C = np.asarray(self._variant.initial, dtype=np.int64) % 3
        self._hidden_MCH = self._weights["start_3H"][:, state_C].copy()
        self._marginal_MC3 = np.tile(np.eye(3)[state_C], (len(self._hidden_MCH), 1, 1))
        self._tick: int | None = None

    @property
    def marginal_C3(self) -> Floats:
        return np.asarray(self._marginal_MC3.mean(axis=0))

    def take(self, prediction: Prediction) -> Floats | None:
        """What is thought of every component once the prediction is heard; None if it says nothing."""
        feature_CF = features_of(prediction, self._procedure)
        if feature_CF is None:
            return None
        passed = 0 if self._tick is None else prediction.tick - self._tick
        ago_MC1 = np.full((*self._marginal_MC3.shape[:2], 1), np.log1p(passed / self._procedure.fps))
        expects_MC3 = np.broadcast_to(self._around.expects_C3, self._marginal_MC3.shape)
        context = context_of(self._around, self._marginal_MC3, expects_MC3, ago_MC1)
        seen_CI = with_component(feature_CF, self._which_CC)
        input_MCI = concatenate([np.broadcast_to(seen_CI, (*context.shape[:2], seen_CI.shape[1])), context], axis=-1)
        self._hidden_MCH = recurrent_step(self._weights, input_MCI, self._hidden_MCH)
        self._marginal_MC3 = read_out(self._weights, self._hidden_MCH)
        self._tick = prediction.tick
        return self.marginal_C3

    def set_component(self, component: int, state: int) -> None:
        self._hidden_MCH[:, component] = self._weights["start_3H"][:, state % 3]
        self._marginal_MC3[:, component] = np.eye(3)[state % 3]


class RecurrentDecoder(BeliefDecoder):
    """The belief of recurrent networks."""

    Settings = BeliefSettings
    name, must_learn = "recurrent", True

    @classmethod
    def believer(cls, procedure: Procedure, variant: Variant, settings: BeliefSettings) -> Recurrence:
        if not settings.fitted or settings.folder is None:
            raise InputError("method 'recurrent' knows nothing before it was fitted", cure=_CURE)
        weights = load_weights(settings.folder / PARAMETERS_FILE, procedure.n_components)
        return Recurrence(procedure, variant, weights)

    @classmethod
    def fit(
        cls,
        recordings: Sequence[LabelledRecording],
        procedure: Procedure,
        settings: BeliefSettings,
        folder: Path,
        on_progress: OnSteps | None = None,
    ) -> BeliefSettings:
        """Learn all weights, and write them below `folder`."""
        from stormpsr.decoding.recurrent_fit import fit_recurrent

        save_weights(folder / PARAMETERS_FILE, fit_recurrent(recordings, procedure, on_progress=on_progress))
        return replace(settings, fitted=True, folder=folder)
