"""`stormpsr run`: steps as they are completed, from a video, a folder or a camera; `demo` watches the same way."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpsr.cli import options
from stormpsr.cli.output import Bar, JsonFlag, counted
from stormpsr.errors import InputError
from stormpsr.files import append, naming_full_disk, only_writer
from stormpsr.procedure.model import Procedure

if TYPE_CHECKING:
    from stormpsr.data.events import StepEvent
    from stormpsr.data.sources import FrameSource
    from stormpsr.decoding.predictions import Prediction
    from stormpsr.recognizer.model_folder import RecognizerModel
    from stormpsr.recognizer.recognizer import FrameResult, Recognizer


def run_command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] SOURCE",
            help="MODEL is the folder of a model; without it, the shipped model 'vehicle' is used. SOURCE is a video "
            "file, a folder of frames or a recording (also in a store: s3://...), the index of a webcam (0, 1, ...) or "
            "the address of a camera (rtsp://...).",
            show_default=False,
        ),
    ],
    method: options.MethodOption = None,
    variant: options.VariantOption = None,
    unexpected: options.UnexpectedOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write the steps to this file, in the label format (.csv).")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Also write a video with the box, the checklist and the evidence (.mp4).")
    ] = None,
    fps: Annotated[
        float | None, typer.Option(min=0.1, help="Frame rate of a folder of frames.", show_default="the procedure's")
    ] = None,
    temporal_stride: options.TemporalStride = None,
    detector_stride: options.DetectorStride = None,
    threads: options.MeasuredThreadsOption = None,
    device: options.DeviceOption = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Recognise steps live, as they are completed.

    Recognition starts at the first frame; running the same command again replaces the files it wrote. If a camera is
    faster than the model, frames are skipped; one that is gone is opened again. Ctrl-C stops a camera. --json prints
    one line per step.

    Example: stormpsr run models/vehicle recording.mp4 --out steps.csv --save annotated.mp4
    """
    from stormpsr.recognizer.offline import check_variant
    from stormpsr.recognizer.recognizer import DEFAULT_MODEL, Recognizer

    if len(words) > 2:
        raise InputError(f"{len(words)} arguments: {' '.join(words)}", cure="give [MODEL] SOURCE, then the options")
    model, text = words if len(words) == 2 else (DEFAULT_MODEL, words[0])
    options.check_output(out, ".csv")
    loaded = options.load(model, temporal_stride, detector_stride, threads or 1, device)
    source = _open(text, loaded, fps)
    for path in (out, save):
        if path is not None and source.is_live and path.exists():
            raise InputError("this is there already", path=path, cure="choose another name, or delete it")
        if path is not None and path.resolve() == Path(text).resolve():
            raise InputError("this would overwrite the source", path=path, cure="choose another name")
    chosen, guessed = check_variant(loaded.procedure, "" if source.is_live else _name_of(Path(text)), variant)
    if guessed and len(loaded.procedure.variants) > 1:
        others = ", ".join(loaded.procedure.variants)
        typer.echo(f"note: assuming variant {chosen!r} (choose with --variant: {others})", err=True)
    recognizer = Recognizer.of(loaded, method, chosen, unexpected=unexpected)
    if threads is None:
        recognizer.threads = options.measured_threads()
    if not as_json:
        typer.echo(f"{source.name}: {loaded.procedure.name}, variant {chosen!r}, method {recognizer.method!r}")
    watch = Watch(recognizer, source, print_json_line if as_json else print_line, out=out, save=save)
    watch.run(Bar("frames", enabled=not as_json, logged=False))
    if not as_json and watch.n_frames:
        typer.echo(watch.summary())
        for path in (out, save):
            if path is not None and path.exists():
                typer.echo(f"written: {path}")
    watch.complain()


def _open(text: str, model: RecognizerModel, fps: float | None) -> FrameSource:
    from stormpsr.data.remote import is_store_address, local_path
    from stormpsr.data.sources import open_source

    text = str(local_path(text)) if is_store_address(text) else text
    described = Path(text) / "procedure.yaml"
    if described.is_file():
        model.check_procedure(Procedure.load(described), described)
    return open_source(text, model.procedure, fps=fps)


def _name_of(path: Path) -> str:
    """What a source is called; a recording's frames may lie in a folder of their own."""
    place = path.resolve()
    return place.parent.name if place.name.lower() == "rgb" else place.name


# ---------------------------------------------------------------------- watching
Tell = Callable[["StepEvent", str], None]  # a step and its description


_KINDS = {"unexpected": "  (not expected)", "wrong": "  ALARM: sits wrongly", "skipped": "  ALARM: was left out"}


def print_line(event: StepEvent, text: str) -> None:
    print(f"{event.time_seconds or 0:8.1f} s  frame {event.frame:6d}  {text}{_KINDS.get(event.kind, '')}", flush=True)


def print_json_line(event: StepEvent, text: str) -> None:
    plain = {
        "frame": event.frame,
        "time_seconds": event.time_seconds,
        "step_id": event.step_id,
        "step": text,
        "event": event.kind,
        "confidence": event.confidence,
        "method": event.source,
    }
    print(json.dumps(plain, ensure_ascii=False), flush=True)


class Watch:
    """Shows a source to a recogniser. Steps are told as they are recognised, and written to a table and a video."""

    def __init__(
        self,
        recognizer: Recognizer,
        source: FrameSource,
        tell: Tell,
        *,
        out: Path | None = None,
        save: Path | None = None,
        speed: int = 1,
        on_prediction: Callable[[Prediction], None] = lambda _: None,
    ) -> None:
        """speed: the video plays so many times as fast, and leaves out what it has no time to show."""
        from stormpsr.decoding.checklist import Checklist

        self.recognizer, self.source, self._tell = recognizer, source, tell
        self._out, self._save, self._speed, self._on_prediction = out, save, speed, on_prediction
        self._shown_until = 0.0  # seconds of the video
        self._checklist = Checklist(recognizer.procedure, recognizer.variant.name)
        self._table: Any = None
        self._video: Any = None
        self.n_frames = self.n_events = 0
        self.seconds = self.frames_per_second = 0.0
        self.problem: InputError | None = None

    def run(self, bar: Bar) -> None:
        """All frames. What goes wrong on the way is kept for the end, so that the files are complete."""
        from stormpsr.recognizer.draw import AnnotatedVideo

        started = time.perf_counter()
        with ExitStack() as files:
            if self._out is not None:
                self._table = files.enter_context(only_writer(self._out))
            if self._save is not None:
                self._video = files.enter_context(AnnotatedVideo(self._save, fps=self._fps))
            files.enter_context(bar)
            try:
                for result in self.recognizer.stream(self.source):
                    self._frame(result)
                    bar.count(self.n_frames, self.source.n_frames)
                    self.frames_per_second = self.n_frames / max(time.perf_counter() - started, 1e-9)
                self._tell_all(self.recognizer.finish())
            except InputError as error:
                self.problem = error
            except KeyboardInterrupt:
                if not self.source.is_live:
                    raise

    def _frame(self, result: FrameResult) -> None:
        if result.prediction is not None:
            self._on_prediction(result.prediction)
        self._tell_all(result.events)
        shown_at = result.frame.time_seconds / self._speed
        if self._video is not None and shown_at >= self._shown_until - 1e-6:
            self._draw(result, shown_at)
            self._shown_until = shown_at + (1 / self._fps if self._speed > 1 else 0)
        self.n_frames, self.seconds = self.n_frames + 1, result.frame.time_seconds

    def _tell_all(self, events: Sequence[StepEvent]) -> None:
        self._checklist.update(events)
        for event in events:
            self._event(event)

    def _event(self, event: StepEvent) -> None:
        from stormpsr.data.events import completions
        from stormpsr.data.labels import frame_name

        is_step = bool(completions([event]))
        self.n_events += is_step
        text = self.recognizer.procedure.step(event.step_id).description
        if self._table is not None and is_step:  # the format of labels has no alarms
            row = io.StringIO()
            csv.writer(row, lineterminator="\n").writerow([frame_name(event.frame), event.step_id, text])
            with naming_full_disk(self._out or ""):
                append(self._table, row.getvalue().encode())
        self._tell(event, text)

    @property
    def _fps(self) -> float:
        return self.source.fps or self.recognizer.procedure.fps

    def _draw(self, result: FrameResult, shown_at: float) -> None:
        from stormpsr.decoding.methods import title_of
        from stormpsr.recognizer.draw import draw_annotated

        title = title_of(self.recognizer.method)
        image = draw_annotated(
            result.frame.image,
            self._checklist,
            share_S=result.share_S,
            box=result.box,
            time_seconds=result.frame.time_seconds,
            title=title if self._speed == 1 else f"{title}, {self._speed} x speed",
        )
        self._video.add(image, shown_at)

    def summary(self) -> str:
        found = f"{counted(self.n_events, 'step')} in {counted(self.n_frames, 'frame')} ({self.seconds:.1f} s of video)"
        return f"{found}, {self.frames_per_second:.0f} frames per second"

    def complain(self) -> None:
        """Say what went wrong, if anything did, and that what was recognised until then is kept."""
        error = self.problem
        if error is not None and self.n_frames:
            kept = f"what was recognised until then ({counted(self.n_events, 'step')}) is kept"
            cure = f"{error.cure}; {kept}" if error.cure else kept
            raise InputError(error.problem, path=error.path, line=error.line, cure=cure) from error
        if error is not None:
            raise error
