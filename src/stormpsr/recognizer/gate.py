"""A gate before the detector: it looks only where the encoder's word makes a clear view likely.

The encoder sees every frame of a window anyway. A logistic regression on its embedding says how likely the detector is
to read the state in the frame: a few hundred multiplications, against millions of the detector. `gate.json` in the
model's folder holds it, and `detector_gate` in recognizer.yaml says from what probability on the detector looks.

Shape legend: L looks of the detector, D dimensions of an embedding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError
from stormpsr.files import write_json
from stormpsr.yaml_loader import STRICT_KEYS, read_yaml, validate

if TYPE_CHECKING:
    from stormpsr.data.recording import Recording
    from stormpsr.recognizer.model_folder import RecognizerModel
    from stormpsr.recognizer.networks import Networks

GATE_FILE = "gate.json"
CLEAR = 0.5  # a view is clear if the detector is at least so sure of what it reads
_FORMAT = "stormpsr gate 1"
_BATCH, _STEPS, _RIDGE = 64, 25, 1.0


@dataclass(frozen=True)
class Gate:
    """How likely a clear view is, by an embedding."""

    weights: tuple[float, ...]
    bias: float
    format: str = _FORMAT

    __pydantic_config__ = STRICT_KEYS

    def logit(self, embedding_LD: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.asarray(embedding_LD.astype(np.float64) @ np.array(self.weights) + self.bias)

    def opens(self, embedding_D: NDArray[np.float32], least: float) -> bool:
        """Whether the detector shall look, if a clear view must be so likely."""
        return bool(1 / (1 + math.exp(-float(np.clip(self.logit(embedding_D), -60, 60)))) >= least)

    def save(self, folder: Path) -> None:
        write_json(folder / GATE_FILE, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> Gate:
        path = folder / GATE_FILE
        cure = "'stormpsr model gate' makes it, and detector_gate: 0 in recognizer.yaml does without"
        if not path.is_file():
            raise InputError("there is no such file, but recognizer.yaml asks for a gate", path=path, cure=cure)
        gate = validate(cls, read_yaml(path))  # JSON is YAML
        if gate.format != _FORMAT or not np.isfinite([*gate.weights, gate.bias]).all():
            raise InputError("this is no gate", path=path, cure=cure)
        return gate


@dataclass(frozen=True)
class FittedGate:
    """A gate, from what probability on it opens, and what that did to recordings that it was not fitted on."""

    gate: Gate
    least: float
    n_looks: int
    clear_share: float  # of looks at which the detector was sure
    open_share: float  # of looks that remain
    kept_share: float  # of clear looks that remain


def fit_gate(model: RecognizerModel, recordings: Sequence[Recording], *, keep: float = 0.99) -> FittedGate:
    """Learn from every other recording; on the rest, open wide enough to keep such a share of the clear views."""
    networks = model.networks
    if networks.detector is None or networks.stream is None:
        raise InputError("a gate needs both streams", path=model.path, cure="give a model that has both")
    if networks.shares_reader:
        problem = "the encoder takes what the detector finds in every frame: a gate would save nothing"
        raise InputError(problem, path=model.path, cure="run this model without one")
    if len(recordings) < 2:
        raise InputError("a gate needs at least two recordings", cure="one to learn from and one to try it on")
    seen = [_looks(networks, recording) for recording in recordings]
    (learn_LD, learn_L), (held_LD, held_L) = (_joined(seen[start::2]) for start in (0, 1))
    if not 0 < learn_L.mean() < 1 or not held_L.any():
        what = "no clear view" if not (learn_L.any() and held_L.any()) else "nothing but clear views"
        raise InputError(f"the detector has {what} in these recordings", cure="give others, or more of them")
    gate = _fitted(learn_LD, learn_L)
    held_logit_L = gate.logit(held_LD)
    edge = float(np.clip(np.quantile(held_logit_L[held_L], 1 - keep), -30, 30))
    open_L = held_logit_L >= edge
    least = min(max(1 / (1 + math.exp(-edge)), 1e-9), 1.0)
    shares = float(held_L.mean()), float(open_L.mean()), float(open_L[held_L].mean())
    return FittedGate(gate, least, len(held_L), *shares)


def store_gate(folder: Path, fitted: FittedGate) -> None:
    """Write a gate into a model's folder, and let it decide."""
    from stormpsr.recognizer.model_folder import SETTINGS_FILE, load_settings, save_settings

    fitted.gate.save(folder)
    path = folder / SETTINGS_FILE
    save_settings(path, replace(load_settings(path), detector_gate=fitted.least))


def _looks(networks: Networks, recording: Recording) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The embeddings of frames that the detector is due in, (L, D), and whether it had a clear view, (L,)."""
    from stormpsr.recognizer.networks import View

    schedule = networks.schedule()
    due = (
        (View(frame.image, frame.index), now.tick)
        for frame in recording.frames()
        if (now := schedule.next(frame.time_seconds)) is not None and now.detect
    )
    embeddings, clear = [], []
    while batch := list(islice(due, _BATCH)):
        views, ticks = [view for view, _ in batch], [tick for _, tick in batch]
        embeddings.append(networks.encode(views))
        found = networks.detect(views, ticks)
        clear += [bool(own.detections) and own.detections[0].confidence >= CLEAR for own in found]
    if not embeddings:
        raise InputError("the recording has no frames", path=recording.path)
    return np.concatenate(embeddings), np.array(clear, dtype=bool)


def _joined(
    seen: Iterable[tuple[NDArray[np.float32], NDArray[np.bool_]]],
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    embeddings, clear = zip(*seen, strict=True)
    return np.concatenate(embeddings), np.concatenate(clear)


def _fitted(embedding_LD: NDArray[np.float32], clear_L: NDArray[np.bool_]) -> Gate:
    """Logistic regression by Newton's steps, every dimension brought to variance 1, with a little ridge."""
    mean_D = embedding_LD.mean(axis=0, dtype=np.float64)
    std_D = np.maximum(embedding_LD.std(axis=0, dtype=np.float64), 1e-6)
    known_LX = np.concatenate([(embedding_LD - mean_D) / std_D, np.ones((len(clear_L), 1))], axis=1)
    ridge_X = np.full(known_LX.shape[1], _RIDGE)
    ridge_X[-1] = 1e-6
    weight_X = np.zeros(known_LX.shape[1])
    for _ in range(_STEPS):
        p_L = 1 / (1 + np.exp(-np.clip(known_LX @ weight_X, -30, 30)))
        slope_X = known_LX.T @ (p_L - clear_L) + ridge_X * weight_X
        curve_XX = (known_LX * np.maximum(p_L * (1 - p_L), 1e-6)[:, None]).T @ known_LX + np.diag(ridge_X)
        weight_X -= np.linalg.solve(curve_XX, slope_X)
    weight_D = weight_X[:-1] / std_D
    return Gate(tuple(weight_D.tolist()), float(weight_X[-1] - weight_D @ mean_D))
