"""The video of the demo, drawn beside the recognition: it must not slow it down."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stormpsr.cli.demo_world import DrawnRecording
    from stormpsr.data.boxes import Box
    from stormpsr.data.events import StepEvent
    from stormpsr.data.sources import Frame
    from stormpsr.decoding.predictions import Prediction
    from stormpsr.procedure.model import Procedure


SPEED = 4  # every so-many-th frame is drawn and played at the recording's rate: encoding all would take longest of all


@dataclass(frozen=True)
class _Shot:
    frame: Frame
    events: tuple[StepEvent, ...]  # since the last shot
    share_S: Any
    box: Box | None


class Film:
    """Feed it every frame. Use it as a context: the file is whole when the context ends."""

    def __init__(self, path: Path, procedure: Procedure, recording: DrawnRecording, method: str) -> None:
        from stormpsr.decoding.methods import title_of

        self.path, self._procedure, self._recording = path, procedure, recording
        self._title = f"{title_of(method)}, {SPEED} x speed"
        self._events: list[StepEvent] = []
        self._box: Box | None = None
        self._shots: queue.Queue[_Shot | None] = queue.Queue(maxsize=200)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._develop, name="film", daemon=True)

    def __enter__(self) -> Film:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # what is left is not worth waiting for
            with self._shots.mutex:
                self._shots.queue.clear()
                self._shots.not_full.notify_all()
        self._shots.put(None)
        self._thread.join()
        if self._error is not None and kind is None:
            raise self._error

    def add(self, frame: Frame, events: Sequence[StepEvent], share_S: Any, prediction: Prediction | None) -> None:
        self._events += events
        if prediction is not None and prediction.detections is not None:
            self._box = prediction.box
        if frame.index % SPEED == 0 or frame.index == self._recording.n_frames - 1:
            self._shots.put(_Shot(frame, tuple(self._events), share_S, self._box))
            self._events.clear()

    def _develop(self) -> None:
        try:
            self._write()
        except Exception as error:  # said when the context ends; shots that still come are dropped
            self._error = error
            while self._shots.get() is not None:
                pass

    def _write(self) -> None:
        from stormpsr.decoding.checklist import Checklist
        from stormpsr.recognizer.draw import AnnotatedVideo, draw_annotated

        checklist = Checklist(self._procedure, self._recording.spec.variant)
        with AnnotatedVideo(self.path, fps=self._recording.fps) as video:
            while (shot := self._shots.get()) is not None:
                checklist.update(shot.events)
                seconds = shot.frame.time_seconds
                picture = draw_annotated(
                    shot.frame.image,
                    checklist,
                    share_S=shot.share_S,
                    box=shot.box,
                    time_seconds=seconds,
                    title=self._title,
                )
                video.add(picture, seconds / SPEED)
