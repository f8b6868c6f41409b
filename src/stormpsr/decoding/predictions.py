"""What the networks said about a frame, and how decoders make events of it on an even clock.

Time is counted in ticks of the procedure's frame rate. A camera may drop frames or run at another rate: what was seen
last stands in for the ticks of a short gap; those of a long one pass as frames of which nothing is known.

Streaming and batched recognition both make predictions for a `PredictionDecoder`, so that they cannot drift.

Shape legend: P predictions, M detections, E predictions of the temporal model, C components, F outputs, U predictions
with outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.boxes import Box
from stormpsr.data.events import StateDetection, StepEvent
from stormpsr.data.labels import StateTimeline
from stormpsr.decoding.methods import Grid, Stream
from stormpsr.errors import InputError
from stormpsr.files import read_arrays, write_arrays
from stormpsr.procedure.model import Procedure, StateBits

# What networks say of each component: logarithms of probabilities, and logits. The detector's reading of its part,
# and whether the state can be read at all; the temporal model's word on a change within the window, what it reads in
# the last frame, and what it thinks true at the window's first and last frame.
OUTPUT_COLUMNS: tuple[str, ...] = (
    *(f"part {state}" for state in ("absent", "correct", "wrong")),
    *("readable", "change"),
    *(f"{what} {state}" for what in ("read", "first", "last") for state in ("absent", "correct", "wrong")),
)
N_OUTPUTS = len(OUTPUT_COLUMNS)
DETECTOR_OUTPUTS, STREAM_OUTPUTS = slice(0, 4), slice(4, N_OUTPUTS)


@dataclass(frozen=True, eq=False, slots=True)
class Prediction:
    """What the networks said about one frame."""

    tick: int  # the frame's place on the procedure's clock
    index: int  # the frame's number in its source
    time_seconds: float
    detections: tuple[StateDetection, ...] | None = None  # None: the detector did not look at this frame
    change_C: NDArray[np.float32] | None = None  # None: the temporal model did not run in this frame
    outputs_CF: NDArray[np.float32] | None = None  # see `OUTPUT_COLUMNS`; nan where a network did not speak
    is_foreign: bool = False  # the images are like none that the networks know: what they say is left out

    @property
    def box(self) -> Box | None:
        """Where the assembly is, in pixels of the image."""
        best = self.detections[0].box if self.detections else None
        return None if best is None else Box.from_xywh(*best)


class GapFiller:
    """Fills short gaps between predictions. Ticks that it leaves out are those of which nothing is known."""

    def __init__(self, *, detection_hold: int = 1, gap_ticks: int = 0) -> None:
        """detection_hold: for how many ticks a detection counts unless the detector looks again.

        gap_ticks: the longest gap between frames in which what was seen last goes on counting.
        """
        if detection_hold < 1 or gap_ticks < 0:
            raise InputError(f"detections that count for {detection_hold} ticks, gaps of {gap_ticks} ticks")
        self.detection_hold, self.gap_ticks = detection_hold, gap_ticks
        self.reset()

    def reset(self) -> None:
        self._tick: int | None = None
        self._seen: tuple[StateDetection, ...] = ()
        self._seen_until = -1

    def fill(self, prediction: Prediction) -> Iterator[Prediction]:
        """What counts in the ticks since the last prediction that are filled, and in the prediction's own."""
        if self._tick is not None and prediction.tick - self._tick - 1 <= self.gap_ticks:
            for tick in range(self._tick + 1, prediction.tick):
                yield replace(prediction, tick=tick, detections=self._seen_at(tick), change_C=None, outputs_CF=None)
        self._tick = prediction.tick
        if prediction.detections is not None:
            self._seen, self._seen_until = prediction.detections, prediction.tick + self.detection_hold
        yield replace(prediction, detections=self._seen_at(prediction.tick))

    def _seen_at(self, tick: int) -> tuple[StateDetection, ...]:
        if tick >= self._seen_until:
            return ()
        return tuple(d if d.frame == tick else replace(d, frame=tick) for d in self._seen)


# ---------------------------------------------------------------------- what a method of decoding is
class LabelledRecording(Protocol):
    """What a method may learn from: a recording's predictions, and the steps that are true."""

    @property
    def name(self) -> str: ...
    @property
    def variant(self) -> str: ...
    @property
    def labels(self) -> Sequence[StepEvent]: ...
    @property
    def states(self) -> StateTimeline | None: ...
    @property
    def predictions(self) -> Iterable[Prediction]: ...


OnSteps = Callable[[int, int], None]  # so many steps are done, of so many
_LONGEST_REST = 256  # unseen frames after which nothing is left to decay


class Decoder(ABC):
    """Feed it every frame; it returns the steps that the frame completes.

    Only `update`, `reset`, `state` and `share` must be written; the rest has an answer that is right, if slow.
    """

    needs_every_tick: ClassVar[bool] = True  # whether short gaps between predictions are to be filled for it
    fewest_to_learn_from: ClassVar[int] = 0  # recordings that `fit` needs; 0: there is nothing to learn
    must_learn: ClassVar[bool] = False  # whether it knows nothing before `fit`
    gives_alarms: ClassVar[bool] = False  # whether it tells of wrong parts and of steps left out
    alarm_grid: ClassVar[Grid] = {}  # settings that matter to alarms of wrong parts alone, and values to try
    Settings: ClassVar[type[Any]]  # a frozen dataclass that checks itself; every field has a default
    grid: ClassVar[Grid] = {}  # the values that tuning tries, by setting; empty: nothing to tune
    # what a class that is not in `METHODS` says of itself
    title: ClassVar[str] = ""
    help: ClassVar[str] = ""
    colour: ClassVar[str] = "#5a6068"
    dark_colour: ClassVar[str] = "#b0b5bd"  # the same on a dark page
    streams: ClassVar[tuple[Stream, ...]] = ("detection",)

    def __init__(self, procedure: Procedure, variant: str | None = None, settings: Any = None) -> None:
        """`variant`: the procedure's first where none is given. `settings`: the defaults where none are given."""
        self.procedure = procedure
        self.variant = procedure.variant(variant)
        self.settings = self.Settings() if settings is None else settings
        self._frame = -1
        self.reset()

    @abstractmethod
    def reset(self) -> None:
        """Forget everything, for a new recording."""
        self._frame = -1

    @abstractmethod
    def update(
        self,
        detections: Sequence[StateDetection],
        change_probabilities: Sequence[float] | NDArray[np.floating] | None = None,
        frame: int | None = None,
    ) -> list[StepEvent]:
        """The events of the next frame. `frame` is its number; without one, frames are counted from 0.

        detections: the most confident first. change_probabilities: the temporal model's word on each component, in the
        frames in which it ran. A stream that the method does not listen to may be left out.
        """

    def observe(self, prediction: Prediction) -> list[StepEvent]:
        """`update` with all that the networks said about a tick. A method that needs more of it takes it from here."""
        if prediction.tick > self._frame + 1:
            self.rest(prediction.tick)
        return self.update(prediction.detections or (), prediction.change_C, prediction.tick)

    def rest(self, frame: int) -> None:
        """Let the frames before `frame` pass, of which nothing is known."""
        for unseen in range(self._frame + 1, min(frame, self._frame + 1 + _LONGEST_REST)):
            self.update((), None, unseen)
        self._frame = max(self._frame, frame - 1)

    def finish(self) -> list[StepEvent]:
        """What is only known once the work has ended, for example that a step was left out."""
        return []

    # ------------------------------------------------------------------ what somebody knows better
    def correct(self, component: int, bit: int) -> None:
        """Somebody who knows says what is true (0 absent, 1 correct, -1 wrong): decoding goes on from there."""
        cure = "write its method 'correct', or choose another one"
        raise InputError(f"the method {type(self).__name__} cannot be corrected", cure=cure)

    def restore(self, bits: Sequence[int]) -> None:
        """Go on from a state that is known, as after a restart."""
        for component, bit in enumerate(self.procedure.check_bits(bits)):
            self.correct(component, bit)

    def _next_frame(self, frame: int | None) -> int:
        """Count on, and refuse to go back."""
        frame = self._frame + 1 if frame is None else frame
        if frame <= self._frame:
            raise InputError(f"frame {frame} after frame {self._frame}", cure="feed frames in order, each once")
        self._frame = frame
        return frame

    # ------------------------------------------------------------------ for displays
    @property
    @abstractmethod
    def state(self) -> StateBits | None:
        """The state that the reported steps lead to, or None if the method knows none."""

    @property
    @abstractmethod
    def share(self) -> NDArray[np.float64]:
        """Evidence per step id, as a share of what completes the step."""

    @property
    def evidence(self) -> NDArray[np.float64]:
        """Evidence per step id, in the method's own measure (a copy)."""
        return self.share

    @property
    def component_probabilities(self) -> NDArray[np.float64] | None:
        """How surely each component is installed, by methods that have such a belief."""
        return None

    # ------------------------------------------------------------------ learning and tuning
    @classmethod
    def fit(
        cls,
        recordings: Sequence[LabelledRecording],
        procedure: Procedure,
        settings: Any,
        folder: Path,
        on_progress: OnSteps | None = None,
    ) -> Any:
        """Learn from labelled recordings before the grid is tried.

        Parameters are written below `folder`, which is found again as `settings.folder` if the settings have such a
        field; the settings that name them are returned. Most methods have nothing to learn.
        """
        return settings

    @classmethod
    def batch(cls, procedure: Procedure, variant: str | None, settings: Sequence[Any]) -> DecoderBatch:
        """Many settings at once, for tuning. A method with a big grid does better than one after the other."""
        return SideBySide([cls(procedure, variant, own) for own in settings])


class DecoderBatch(Protocol):
    """Feed it every tick; `events` has the events of each setting, at the number of the frame that told."""

    events: list[list[StepEvent]]

    def observe(self, prediction: Prediction) -> None:
        """The next tick."""


class SideBySide:
    """A batch of decoders that know nothing of each other."""

    def __init__(self, decoders: Sequence[Decoder]) -> None:
        self._decoders = decoders
        self.events: list[list[StepEvent]] = [[] for _ in decoders]

    def observe(self, prediction: Prediction) -> None:
        for decoder, events in zip(self._decoders, self.events, strict=True):
            events += [replace(event, frame=prediction.index) for event in decoder.observe(prediction)]


def check_numbers(settings: Any, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Refuse settings that are not numbers within their range; for a settings class's `__post_init__`."""
    for name, (low, high) in ranges.items():
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InputError(f"{name} is {value!r}, not a number")
        if not low <= cast("Any", value) <= high:  # not as a float: whole numbers may be too large for one
            raise InputError(f"{name} is {value}, but it must lie between {low:g} and {high:g}")


# ---------------------------------------------------------------------- predictions of a recording
class PredictionDecoder:
    """Feed it predictions in order; it returns the steps that each completes, at the frame's own number and time."""

    def __init__(self, decoder: Decoder, gaps: GapFiller | None = None) -> None:
        self.decoder = decoder
        self._gaps = gaps or GapFiller()
        self._latest: Prediction | None = None

    def reset(self) -> None:
        """Forget everything, for a new recording."""
        self.decoder.reset()
        self._gaps.reset()
        self._latest = None

    def update(self, prediction: Prediction) -> list[StepEvent]:
        """The events of the next prediction, and of the ticks that passed since the last one."""
        ticks = self._gaps.fill(prediction) if self.decoder.needs_every_tick else (prediction,)
        self._latest = prediction
        return self._timed([event for tick in ticks for event in self.decoder.observe(tick)])

    def finish(self) -> list[StepEvent]:
        """What is only known once the work has ended, at the latest frame."""
        return self._timed(self.decoder.finish())

    def _timed(self, events: list[StepEvent]) -> list[StepEvent]:
        latest = self._latest
        if latest is None:
            return []
        return [replace(event, frame=latest.index, time_seconds=latest.time_seconds) for event in events]


@dataclass(frozen=True, eq=False)
class PredictionTable:
    """The predictions of a whole recording as arrays, as they are kept on disk."""

    tick_P: NDArray[np.int64]
    index_P: NDArray[np.int64]
    time_P: NDArray[np.float64]
    detector_ran_P: NDArray[np.bool_]  # whether the detector looked
    foreign_P: NDArray[np.bool_]  # whether networks do not know what they are shown
    detection_row_M: NDArray[np.int64]  # which prediction a detection belongs to; the most confident of a frame first
    detection_class_M: NDArray[np.int64]
    detection_confidence_M: NDArray[np.float32]
    detection_box_M4: NDArray[np.float32]
    change_row_E: NDArray[np.int64]  # which prediction a prediction of the temporal model belongs to
    change_EC: NDArray[np.float32]
    outputs_row_U: NDArray[np.int64]  # which prediction the outputs per component belong to
    outputs_UCF: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.tick_P)

    def __iter__(self) -> Iterator[Prediction]:
        detections: dict[int, list[StateDetection]] = {}
        for m, row in enumerate(self.detection_row_M.tolist()):
            box = tuple(float(side) for side in self.detection_box_M4[m])
            sure = float(self.detection_confidence_M[m])
            found = StateDetection(int(self.tick_P[row]), int(self.detection_class_M[m]), sure, box)  # type: ignore[arg-type]
            detections.setdefault(row, []).append(found)
        change = dict(zip(self.change_row_E.tolist(), self.change_EC, strict=True))
        outputs = dict(zip(self.outputs_row_U.tolist(), self.outputs_UCF, strict=True))
        for row in range(len(self)):
            seen = tuple(detections.get(row, ())) if self.detector_ran_P[row] else None
            when = int(self.tick_P[row]), int(self.index_P[row]), float(self.time_P[row])
            yield Prediction(*when, seen, change.get(row), outputs.get(row), bool(self.foreign_P[row]))

    @classmethod
    def of(cls, predictions: Iterable[Prediction], n_components: int) -> PredictionTable:
        rows = list(predictions)
        found = [(row, d) for row, prediction in enumerate(rows) for d in prediction.detections or ()]
        changes = [(row, prediction.change_C) for row, prediction in enumerate(rows) if prediction.change_C is not None]
        outputs = [(row, p.outputs_CF) for row, p in enumerate(rows) if p.outputs_CF is not None]
        return cls(
            tick_P=np.array([p.tick for p in rows], dtype=np.int64),
            index_P=np.array([p.index for p in rows], dtype=np.int64),
            time_P=np.array([p.time_seconds for p in rows], dtype=np.float64),
            detector_ran_P=np.array([p.detections is not None for p in rows], dtype=bool),
            foreign_P=np.array([p.is_foreign for p in rows], dtype=bool),
            detection_row_M=np.array([row for row, _ in found], dtype=np.int64),
            detection_class_M=np.array([d.state_class for _, d in found], dtype=np.int64),
            detection_confidence_M=np.array([d.confidence for _, d in found], dtype=np.float32),
            detection_box_M4=np.array([d.box or (0, 0, 0, 0) for _, d in found], dtype=np.float32).reshape(-1, 4),
            change_row_E=np.array([row for row, _ in changes], dtype=np.int64),
            change_EC=np.array([c for _, c in changes], dtype=np.float32).reshape(-1, n_components),
            outputs_row_U=np.array([row for row, _ in outputs], dtype=np.int64),
            outputs_UCF=np.array([o for _, o in outputs], dtype=np.float32).reshape(-1, n_components, N_OUTPUTS),
        )

    # ------------------------------------------------------------------ files
    def save(self, path: Path, made_from: str) -> None:
        """Write the table; `made_from` says which networks and images it is of."""
        arrays: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        write_arrays(path, made_from=np.array(made_from), **arrays)

    @classmethod
    def load(cls, path: Path, made_from: str) -> PredictionTable | None:
        """The table of a file; None if there is none, if it is damaged, or if it was made from something else."""
        try:
            arrays = read_arrays(path)
            if str(arrays.pop("made_from")) != made_from:
                return None
            table = cls(**arrays)
            return table if table._is_whole() else None
        except (InputError, KeyError, TypeError):
            return None

    def _is_whole(self) -> bool:
        """Whether the arrays belong together: a file may be whole and still not be what was written."""
        n, n_components = len(self.tick_P) if self.tick_P.ndim else -1, self.change_EC.shape[1:]
        shapes = {
            **dict.fromkeys(("tick_P", "index_P", "time_P", "detector_ran_P", "foreign_P"), (n,)),
            **{f"detection_{name}_M": self.detection_row_M.shape[:1] for name in ("row", "class", "confidence")},
            "detection_box_M4": (*self.detection_row_M.shape[:1], 4),
            "change_row_E": self.change_EC.shape[:1],
            "outputs_row_U": self.outputs_UCF.shape[:1],
            "outputs_UCF": (*self.outputs_row_U.shape, *n_components, N_OUTPUTS),
        }
        rows = (self.detection_row_M, self.change_row_E, self.outputs_row_U)
        whole_numbers = (self.tick_P, self.index_P, self.detection_class_M, *rows)
        numbers = (self.time_P, self.detection_confidence_M, self.detection_box_M4, self.change_EC)
        return bool(
            len(n_components) == 1
            and all(getattr(self, name).shape == shape for name, shape in shapes.items())
            and self.detector_ran_P.dtype == self.foreign_P.dtype == bool
            and all(array.dtype.kind == "i" and (array >= 0).all() for array in whole_numbers)
            and all((array < n).all() for array in rows)
            and all(array.dtype.kind == "f" and np.isfinite(array).all() for array in numbers)
            and ((self.detection_confidence_M >= 0) & (self.detection_confidence_M <= 1)).all()
            and self.outputs_UCF.dtype.kind == "f"
            and not np.isinf(self.outputs_UCF).any()
        )
