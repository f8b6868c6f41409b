"""How good an epoch is, on the validation recordings: what decides which epoch is kept.

Shape legend: V images, D dimensions, E clips of a recording (one per stride), C components.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stormpsr.data.events import StepEvent
from stormpsr.data.recording import Recording, variant_name_of
from stormpsr.decoding.fusion import FusionSettings, TemporalFusion
from stormpsr.evaluation.metrics import f1_score, score
from stormpsr.procedure.model import Procedure

THRESHOLDS = (2.0, 4.0, 8.0, 16.0, 32.0)


def neighbour_precision(z_VD: Tensor, label_V: Tensor, recording_V: Tensor) -> float | None:
    """Share of images whose nearest neighbour in another recording shows the same state.

    Images whose state no other recording shows are left out; None if there are no others.
    """
    elsewhere_VV = recording_V[:, None] != recording_V
    findable_V = ((label_V[:, None] == label_V) & elsewhere_VV).any(dim=1)
    if not findable_V.any():
        return None
    similarity_VV = (z_VD @ z_VD.T).masked_fill(~elsewhere_VV, float("-inf"))
    found_V = label_V[similarity_VV.argmax(dim=1)]
    return float((found_V == label_V)[findable_V].float().mean())


def decode_changes(
    probability_EC: NDArray[np.floating],
    end_E: NDArray[np.int64],
    n_frames: int,
    procedure: Procedure,
    variant: str,
    settings: FusionSettings,
) -> list[StepEvent]:
    """The step events of a recording, from the temporal model's word in some of its frames."""
    fusion = TemporalFusion(procedure, variant, settings)
    at = {int(end): probability_C for end, probability_C in zip(end_E, probability_EC, strict=True)}
    events: list[StepEvent] = []
    for frame in range(n_frames):
        events.extend(fusion.update((), at.get(frame), frame))
    return events


def event_scores(
    probabilities: Sequence[NDArray[np.floating]],
    ends: Sequence[NDArray[np.int64]],
    recordings: Sequence[Recording],
    procedure: Procedure,
    *,
    window_frames: int,
    stride_frames: int,
) -> Mapping[str, float]:
    """Pooled F1 and mean delay of events, at the threshold with the best F1."""
    best: dict[str, float] = {"event_f1": -1.0}
    for threshold in THRESHOLDS:
        settings = FusionSettings(
            threshold=threshold,
            window_frames=window_frames,
            hold_frames=stride_frames,
            unexpected="report",
        )
        counts = np.zeros(3, dtype=np.int64)
        delays: list[float] = []
        for probability_EC, end_E, recording in zip(probabilities, ends, recordings, strict=True):
            variant = variant_name_of(recording, procedure)
            events = decode_changes(probability_EC, end_E, recording.n_frames, procedure, variant, settings)
            scores = score(recording.steps or (), events, fps=recording.fps)
            counts += (scores.true_positives, scores.false_positives, scores.false_negatives)
            delays += [match.delay_frames / recording.fps for match in scores.matches]
        f1 = f1_score(*counts.tolist())
        if f1 > best["event_f1"]:
            best = {"event_f1": f1, "threshold": threshold}
            if delays:
                best["delay_seconds"] = float(np.mean(delays))
    return best


def clip_f1(probability_XC: NDArray[np.floating], label_XC: NDArray[np.integer]) -> float:
    """F1 over all clips and components together, at probability 0.5."""
    said, true = probability_XC > 0.5, label_XC.astype(bool)
    return f1_score(int((said & true).sum()), int((said & ~true).sum()), int((~said & true).sum()))


def to_numpy(tensor: Tensor) -> NDArray[np.floating]:
    """A tensor's numbers on the CPU."""
    return np.asarray(tensor.detach().to("cpu", torch.float32).numpy())
