"""What a model proposes for recordings: steps and boxes with its confidence, and where it is least sure.

A recogniser looks at one recording after the other in the background: first at the one that a person has opened, then
at those that are not finished. What the networks said is kept by `recognizer.offline`: the next start takes no time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stormpsr.data.recording import Recording
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StepKind

if TYPE_CHECKING:
    from stormpsr.decoding.predictions import Prediction
    from stormpsr.recognizer.model_folder import RecognizerModel

STRETCH_SECONDS = 10.0
_VALUES = {StepKind.INSTALL: 1, StepKind.INCORRECT: -1, StepKind.REMOVE: 0}


@dataclass(frozen=True, slots=True)
class StepProposal:
    """A component that changes in a frame, as the model sees it. It is often some frames late."""

    frame: int
    component: int
    value: int  # 1 correct, 0 absent, -1 wrong
    confidence: float  # 0 to 1

    @property
    def id(self) -> str:
        return f"{self.frame}:{self.component}:{self.value}"


@dataclass(frozen=True)
class Proposals:
    """All that the model proposes for one recording."""

    steps: tuple[StepProposal, ...] = ()
    boxes: Mapping[int, tuple[float, float, float, float, float, int]] = field(default_factory=dict)
    # frame -> x, y, width, height, confidence, class of the state
    unsure: tuple[tuple[int, int, float], ...] = ()  # stretches: first frame, last frame, how unsure, 0 to 1

    def step(self, proposal_id: object) -> StepProposal:
        found = next((step for step in self.steps if step.id == proposal_id), None)
        if found is None:
            raise InputError(f"there is no proposal {str(proposal_id)[:40]!r}")
        return found

    def box(self, frame: int) -> tuple[float, float, float, float]:
        if frame not in self.boxes:
            raise InputError(f"the model proposes no box in frame {frame}")
        return self.boxes[frame][:4]

    @property
    def mean_unsure(self) -> float:
        return sum(share for *_, share in self.unsure) / len(self.unsure) if self.unsure else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "steps": [
                {"id": s.id, "frame": s.frame, "component": s.component, "value": s.value}
                | {"confidence": round(s.confidence, 3)}
                for s in self.steps
            ],
            "boxes": {str(frame): [round(v, 3) for v in box] for frame, box in sorted(self.boxes.items())},
            "unsure": [[first, last, round(share, 4)] for first, last, share in self.unsure],
        }


OnFrames = Callable[[int, int], None]  # frames done, frames in all


class Proposer(Protocol):
    """What looks at recordings: a model, or what a test puts in its place."""

    def propose(self, recording: Recording, on_progress: OnFrames) -> Proposals: ...


class ModelProposer:
    """A recogniser's steps and boxes."""

    def __init__(self, model: RecognizerModel, cache: Path, method: str | None = None) -> None:
        self._model, self._cache, self._method = model, cache, method

    def propose(self, recording: Recording, on_progress: OnFrames) -> Proposals:
        from stormpsr.recognizer.offline import check_variant, predict_recordings

        told = predict_recordings(
            self._model, [recording], self._cache, on_progress=lambda _, done, of: on_progress(done, of)
        )
        _, table = next(iter(told))
        variant, _ = check_variant(self._model.procedure, recording.name, None)
        decoder = self._model.decoder(self._model.method_or_fallback(self._method), variant)
        decoder.reset()
        steps: list[StepProposal] = []
        boxes: dict[int, tuple[float, float, float, float, float, int]] = {}
        unsure: list[tuple[int, float]] = []
        for prediction in table:
            steps += [
                _proposal(event.step_id, event.frame, event.confidence, self._model.procedure)
                for event in decoder.update(prediction)
                if event.kind != "skipped"
            ]
            best = prediction.detections[0] if prediction.detections else None
            if best is not None and best.box is not None:
                boxes[prediction.index] = (*best.box, best.confidence, best.state_class)
            if (share := _unsure(prediction, decoder.decoder.component_probabilities)) is not None:
                unsure.append((prediction.index, share))
        stretches = stretches_of(unsure, recording.fps, recording.n_frames)
        return Proposals(tuple(steps), boxes, tuple(stretches))


def _proposal(step_id: int, frame: int, confidence: float | None, procedure: Procedure) -> StepProposal:
    step = procedure.step(step_id)
    sure = 0.0 if confidence is None else min(max(confidence, 0.0), 1.0)  # accumulated evidence may exceed 1
    return StepProposal(frame, step.component_index, _VALUES[step.kind], sure)


def _unsure(prediction: Prediction, probabilities: Any) -> float | None:
    """By the belief over components where the method has one, else by the detection; None where nothing was seen."""
    if probabilities is not None:
        return float((4 * probabilities * (1 - probabilities)).mean())
    return 1 - prediction.detections[0].confidence if prediction.detections else None


def stretches_of(unsure: Iterable[tuple[int, float]], fps: float, n_frames: int) -> list[tuple[int, int, float]]:
    """The mean over stretches of ten seconds, in order of time; stretches in which nothing was seen are left out."""
    length = max(round(STRETCH_SECONDS * fps), 1)
    found: dict[int, list[float]] = {}
    for frame, share in unsure:
        found.setdefault(frame // length, []).append(share)
    return [
        (number * length, min((number + 1) * length, n_frames) - 1, sum(shares) / len(shares))
        for number, shares in sorted(found.items())
    ]


class Background:
    """Asks a proposer about recordings, one after the other, in a thread."""

    def __init__(
        self,
        proposer: Proposer,
        open_recording: Callable[[str], Recording],
        names: Callable[[], list[str]],
        on_news: Callable[[], None],
    ) -> None:
        """names: the recordings to look at, those first that are wanted first; it is asked again each time."""
        self._proposer, self._open, self._names, self._on_news = proposer, open_recording, names, on_news
        self._changed = threading.Condition()
        self._found: dict[str, Proposals] = {}
        self._problems: dict[str, str] = {}
        self._wanted: str | None = None
        self._now: tuple[str, int, int] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="proposals", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def want(self, name: str) -> None:
        """Somebody has opened it: it comes next."""
        with self._changed:
            self._wanted = name
            self._changed.notify_all()

    def of(self, name: str) -> Proposals | None:
        with self._changed:
            return self._found.get(name)

    def progress(self) -> dict[str, Any]:
        with self._changed:
            names = self._names()
            done = sum(name in self._found or name in self._problems for name in names)
            now = None if self._now is None else dict(zip(("recording", "done", "of"), self._now, strict=True))
            return {"recordings": len(names), "done": done, "now": now, "problems": dict(self._problems)}

    # ------------------------------------------------------------------ in the thread
    def _next(self) -> str | None:
        names = [name for name in self._names() if name not in self._found and name not in self._problems]
        return self._wanted if self._wanted in names else next(iter(names), None)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._next() is not None)
                if self._closed:
                    return
                name = self._next()
                assert name is not None
                self._now = (name, 0, 0)
            self._on_news()
            try:
                found: Proposals | str = self._proposer.propose(self._open(name), self._tell_progress)
            except Exception as error:  # whatever a model of somebody's own does: the others are still looked at
                found = str(error) or type(error).__name__
            with self._changed:
                self._now = None
                if isinstance(found, str):
                    self._problems[name] = found
                else:
                    self._found[name] = found
            self._on_news()

    def _tell_progress(self, done: int, of: int) -> None:
        with self._changed:
            if self._now is not None:
                self._now = (self._now[0], done, of)
        self._on_news()
