"""Recordings as tuning and judging need them: what is true, what the networks said, what could be seen.

The batched twin: what the networks say about whole recordings, many frames at a time, kept on disk.

Which network is due when, which embeddings make up a window, and how predictions become events is the same code as in
streaming recognition; only the networks see several images at once. What is on disk is taken if the same networks
made it from the same images, and made again otherwise: tuning and judging once more takes no time.

Shape legend: B images or windows of a batch, N frames of a window, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from stormpsr.cluster import Cluster, loaded_once, map_recordings
from stormpsr.data.annotated_frames import boxes_inside, read_boxes
from stormpsr.data.events import StepEvent, completions
from stormpsr.data.labels import STEPS_FILE, STEPS_WITH_ERRORS_FILE, StateTimeline, read_steps
from stormpsr.data.recording import Recording, RecordingReference, folders_read, variant_name_of
from stormpsr.data.sources import Frame
from stormpsr.data.visibility import VISIBILITY_FILE, read_visibility, runs_of
from stormpsr.decoding.predictions import Prediction, PredictionDecoder, PredictionTable
from stormpsr.detectors.known_views import Familiarity
from stormpsr.errors import InputError
from stormpsr.evaluation.alarms import score_alarms
from stormpsr.evaluation.metrics import Protocol, score
from stormpsr.evaluation.summary import RecordingResult, contains_errors
from stormpsr.files import digest
from stormpsr.models.checkpoint import keep_freed_memory
from stormpsr.procedure.model import Procedure
from stormpsr.recognizer.model_folder import METRICS_FILE, RecognizerModel
from stormpsr.recognizer.networks import (
    NO_CLEAR_VIEW,
    Detected,
    Due,
    EmbeddingRing,
    Networks,
    View,
    foreign_prediction,
    joined_outputs,
)

VISIBLE_EVERY = 10  # frames
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class LabelledPredictions:
    """A recording with labels and predictions."""

    recording: Recording
    variant: str
    labels: tuple[StepEvent, ...]
    predictions: PredictionTable

    @classmethod
    def of(cls, recording: Recording, predictions: PredictionTable, procedure: Procedure) -> LabelledPredictions:
        if recording.steps is None:
            cure = f"it needs {STEPS_FILE}; 'stormpsr labels convert' makes one from states"
            raise InputError("the recording has no labels to evaluate_recording by", path=recording.path, cure=cure)
        return cls(recording, variant_name_of(recording, procedure), recording.steps, predictions)

    @property
    def name(self) -> str:
        return self.recording.name

    @property
    def states(self) -> StateTimeline | None:
        return self.recording.states

    def labels_with_errors(self, procedure: Procedure) -> tuple[StepEvent, ...] | None:
        path = self.recording.path / STEPS_WITH_ERRORS_FILE
        return tuple(read_steps(path, procedure)) if path.is_file() else None

    def has_errors(self, procedure: Procedure) -> bool:
        """Whether the person made errors, as the published programs decide it."""
        return contains_errors(
            self.labels,
            procedure,
            variant=self.variant,
            timeline=self.recording.states,
            labels_with_errors=self.labels_with_errors(procedure) or (),
        )

    def result(
        self, events: list[StepEvent], procedure: Procedure, protocol: Protocol = "paper", *, alarming: bool = False
    ) -> RecordingResult:
        """The scores of events: of completions, and of alarms where the method gives any."""
        recording, fps = self.recording, self.recording.fps
        scores = score(self.labels, completions(events), procedure=procedure, fps=fps, protocol=protocol)
        alarms = None
        if recording.states is not None and alarming:
            variant = procedure.variant(self.variant)
            alarms = score_alarms(
                events, self.labels, recording.states, procedure, variant, fps=fps, n_frames=recording.n_frames
            )
        return RecordingResult(self.name, scores, self.has_errors(procedure), alarms)


class Seen(NamedTuple):
    """When the state could be read by a person, and how much of the assembly shows; None where nobody says."""

    readable: tuple[tuple[int, int], ...] | None = None  # first and last frame of each stretch
    visible_share: tuple[float, ...] | None = None  # in every tenth frame


def read_views_of(folder: Path, n_frames: int, procedure: Procedure) -> Seen:
    """From `visibility.csv` where there is one, else from annotated boxes."""
    visible_share = None
    if (folder / VISIBILITY_FILE).is_file():
        visibility = read_visibility(folder / VISIBILITY_FILE, procedure.n_components)
        readable_F = visibility.readable_F()
        visible_share = tuple(float(v) for v in visibility.mean_visible_F()[::VISIBLE_EVERY])
    elif (boxes := boxes_inside(folder)) is not None:
        frames = [box.frame for box in read_boxes(boxes, procedure)]
        readable_F = np.isin(np.arange(n_frames), frames)
    else:
        return Seen()
    return Seen(tuple((first, past - 1) for first, past in runs_of(readable_F)), visible_share)


def check_variant(procedure: Procedure, name: str, given: str | None) -> tuple[str, bool]:
    """(variant, whether it was guessed) of a source: the given one, the one its name speaks of, or the first."""
    if given is not None:
        return procedure.variant(given).name, False
    named = procedure.variant_of_recording(name)
    return (named or procedure.variant()).name, named is None


_FRAMES_AT_ONCE = 64

ReadEmbeddings = Callable[[NDArray[np.int64]], NDArray[np.float32]]  # numbers of frames -> (B, D)
OnProgress = Callable[[str, int, int], None]  # recording, frames done, frames in all


def predict_recording(
    networks: Networks,
    frames: Iterable[Frame],
    *,
    batch_size: int = _FRAMES_AT_ONCE,
    read_embeddings: ReadEmbeddings | None = None,
) -> Iterator[Prediction]:
    """The predictions of frames, as `FramePredictor` would make them one by one.

    `read_embeddings`: where the encoder has seen the frames before, so that it need not look at them.
    """
    schedule, ring, familiarity = networks.schedule(), networks.ring(), Familiarity()
    counted = ((frame, due) for frame in frames if (due := schedule.next(frame.time_seconds)) is not None)
    while batch := list(islice(counted, batch_size)):
        chunk = [(View(frame.image, frame.index), due) for frame, due in batch]
        looks = [(view, due.tick) for view, due in chunk if due.detect]
        detected = {} if networks.gate is not None else _seen_by_detector(networks, looks)
        foreign = _foreign_ticks(familiarity, [due.tick for _, due in chunk], detected)
        chunk = [(view, due) for view, due in chunk if due.tick not in foreign]
        numbers = np.array([view.number for view, due in chunk if due.encode], dtype=np.int64)
        known = read_embeddings(numbers) if read_embeddings is not None and len(numbers) else None
        said, closed = _said_by_stream(networks, ring, chunk, known)
        if networks.gate is not None:
            detected = dict.fromkeys(closed, NO_CLEAR_VIEW)
            detected |= _seen_by_detector(networks, [look for look in looks if look[1] not in closed])
        for frame, due in batch:
            if due.tick in foreign:
                yield foreign_prediction(frame, due)
                continue
            joined = joined_outputs(detected.get(due.tick), said.get(due.tick))
            yield Prediction(due.tick, frame.index, frame.time_seconds, *joined)


def _foreign_ticks(familiarity: Familiarity, ticks: Sequence[int], detected: Mapping[int, Detected]) -> set[int]:
    """Those in which the networks are shown what they do not know."""
    foreign = set()
    for tick in ticks:
        if tick in detected:
            familiarity.take(detected[tick].strangeness)
        if familiarity.is_foreign:
            foreign.add(tick)
    return foreign


def _seen_by_detector(networks: Networks, looks: Sequence[tuple[View, int]]) -> dict[int, Detected]:
    """The detector's word by tick."""
    ticks = [tick for _, tick in looks]
    found = networks.detect([view for view, _ in looks], ticks) if looks else []
    return dict(zip(ticks, found, strict=True))


def _said_by_stream(
    networks: Networks,
    ring: EmbeddingRing,
    chunk: Sequence[tuple[View, Due]],
    known_BD: NDArray[np.float32] | None = None,
) -> tuple[dict[int, NDArray[np.float32]], set[int]]:
    """The temporal model's word by tick, and the ticks in which the gate keeps the detector from looking.

    All images are encoded at once, then all windows are cut in order.
    """
    to_encode = [view for view, due in chunk if due.encode]
    if known_BD is None and to_encode:
        known_BD = networks.encode(to_encode)
    embeddings = iter(() if known_BD is None else known_BD)
    windows, numbers, closed = [], [], set()
    for view, due in chunk:
        if due.encode:
            ring.put(due.slot, next(embeddings))
        if due.detect and not networks.opens(ring):
            closed.add(due.tick)
        if due.predict:
            windows.append((due.tick, *ring.window(due.slot)))
            numbers.append(view.number)
    if not windows:
        return {}, closed
    clips, known = np.stack([clip for _, clip, _ in windows]), np.stack([known for *_, known in windows])
    said_BCF = networks.predict(clips, known, numbers)
    return dict(zip((tick for tick, *_ in windows), said_BCF, strict=True)), closed


def predict_recordings(
    model: RecognizerModel,
    recordings: Iterable[Recording],
    cache: Path,
    *,
    cluster: Cluster | None = None,
    on_progress: OnProgress | None = None,
) -> Generator[tuple[Recording, PredictionTable], None, None]:
    """Each recording with its predictions, made first where they are not in the cache yet."""
    made = predict_and(model, recordings, cache, _nothing_more, cluster=cluster, on_progress=on_progress)
    with closing(made):
        for recording, table, _ in made:
            yield recording, table


def _nothing_more(model: RecognizerModel, recording: Recording, table: PredictionTable) -> None:
    """The predictions are all that is wanted."""


def predict_and(
    model: RecognizerModel,
    recordings: Iterable[Recording],
    cache: Path,
    then: Callable[[RecognizerModel, Recording, PredictionTable], Result],
    *,
    cluster: Cluster | None = None,
    on_progress: OnProgress | None = None,
) -> Generator[tuple[Recording, PredictionTable, Result], None, None]:
    """The same, and what `then` makes of the predictions, where they are made.

    cluster: its workers read the model with `load`, and make what is missing; the cache is ours alone.
    """
    key = model.digest()

    def known(recording: Recording) -> PredictionTable | None:
        table = PredictionTable.load(*prediction_file(recording, key, cache))
        if table is not None and on_progress:
            on_progress(recording.name, recording.n_frames, recording.n_frames)
        return table

    def save(recording: Recording, table: PredictionTable) -> None:
        table.save(*prediction_file(recording, key, cache))

    def predict_here(recording: Recording, report: OnProgress) -> tuple[Recording, PredictionTable, Result]:
        table = known(recording)
        if table is None:
            table = _predict_frames(model, recording, report)
            save(recording, table)
        return recording, table, then(model, recording, table)

    if cluster is None:
        items = ((recording.name, recording) for recording in recordings)
        yield from map_recordings(predict_here, items, on_progress=on_progress)
        return
    opened = [(recording, known(recording)) for recording in recordings]
    missing = [recording for recording, table in opened if table is None]
    made = map_recordings(
        partial(_predict_there, cluster.load, _files_of(model), then),
        [(recording.name, recording.reference()) for recording in missing],
        cluster=cluster,
        reads=folders_read(missing),
        keep=lambda place, answer: save(missing[place], answer[0]),
        on_progress=on_progress,
    )
    with closing(made):
        for recording, table in opened:
            if table is None:
                yield recording, *next(made)
            else:
                yield recording, table, then(model, recording, table)


def _predict_there(
    load: Callable[[], RecognizerModel],
    files: str,
    then: Callable[[RecognizerModel, Recording, PredictionTable], Result],
    reference: RecordingReference,
    report: OnProgress,
) -> tuple[PredictionTable, Result]:
    """A recording on a worker of a cluster; `files` says which model it is."""
    model = loaded_once(files, load)
    if _files_of(model) != files:
        problem, cure = "this is another model than where the command was given", "give all machines the same files"
        raise InputError(problem, path=model.path, cure=cure)
    recording = reference.open(model.procedure)
    table = _predict_frames(model, recording, report)
    return table, then(model, recording, table)


def _files_of(model: RecognizerModel) -> str:
    """A fingerprint of everything that decides what a model says, its settings included."""
    return digest(model.path, without=[METRICS_FILE])


def _predict_frames(model: RecognizerModel, recording: Recording, on_progress: OnProgress | None) -> PredictionTable:
    keep_freed_memory()
    frames = _watched(recording, on_progress)
    table = PredictionTable.of(predict_recording(model.networks, frames), model.procedure.n_components)
    if not len(table):
        raise InputError("the recording has no frames", path=recording.path)
    return table


def prediction_file(recording: Recording, digest: str, cache: Path) -> tuple[Path, str]:
    """Where the predictions of a recording are kept, and what they must have been made from: networks and images."""
    images = recording.fingerprint()
    made_from = f"networks {digest}, images {images}, {recording.n_frames} frames at {recording.fps} per second"
    return cache / digest / f"{recording.name}-{images}.npz", made_from


def _watched(recording: Recording, on_progress: OnProgress | None) -> Iterator[Frame]:
    for done, frame in enumerate(recording.frames(), start=1):
        yield frame
        if on_progress and (done % _FRAMES_AT_ONCE == 0 or frame.index == recording.source.numbers()[-1]):
            on_progress(recording.name, frame.index + 1, recording.n_frames)


def decode_table(decoder: PredictionDecoder, predictions: Iterable[Prediction]) -> list[StepEvent]:
    """The events of a whole recording."""
    decoder.reset()
    return [event for prediction in predictions for event in decoder.update(prediction)] + decoder.finish()
