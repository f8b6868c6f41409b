"""`stormpsr run`: steps as they are completed, from a video, a folder or a camera."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from stormpsr.cli.options import (
    DetectorStride,
    DeviceOption,
    MethodOption,
    TemporalStride,
    Threads,
    UnexpectedOption,
    load,
    need_recognizer_packages,
)
from stormpsr.cli.output import JsonFlag, counted
from stormpsr.files import flush

if TYPE_CHECKING:
    from stormpsr.data.events import StepEvent
    from stormpsr.data.sources import FrameSource
    from stormpsr.recognizer.model_folder import RecognizerModel
    from stormpsr.recognizer.recognizer import FrameResult, Recognizer


def run_command(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="Folder of a model. Left out, the shipped one is taken."),
    ],
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="A video file, a folder of frames, a recording, the index of a webcam, or the address of a camera "
            "(rtsp://...).",
            show_default=False,
        ),
    ] = None,
    method: MethodOption = None,
    variant: Annotated[
        str | None, typer.Option(help="Default: the one in the source's name, else the procedure's first.")
    ] = None,
    unexpected: UnexpectedOption = "drop",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Also write the events as they come, in the format of labels (.csv)."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Also write the video with box, check-list and evidence (.mp4).")
    ] = None,
    fps: Annotated[
        float | None, typer.Option(min=0.1, help="Frames per second of a folder; default: the procedure's.")
    ] = None,
    temporal_stride: TemporalStride = None,
    detector_stride: DetectorStride = None,
    threads: Threads = None,
    device: DeviceOption = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Recognise steps while they are completed. --json prints a line per event.

    Recognition always begins with the first frame: started again, it replaces the files it wrote. Of a camera, frames
    that come while another is looked at are passed over; Ctrl-C ends it.

    Example: stormpsr run models/vehicle recording.mp4 --out steps.csv --save annotated.mp4
    """
    need_recognizer_packages("recognising steps")
    from stormpsr.errors import InputError
    from stormpsr.recognizer.offline import check_variant
    from stormpsr.recognizer.recognizer import DEFAULT_MODEL, Recognizer

    model_name, text = (DEFAULT_MODEL, model) if source is None else (model, source)
    if out is not None and out.suffix.lower() != ".csv":
        raise InputError("events are written as CSV", path=out, cure="give a name that ends in .csv")
    loaded = load(model_name, temporal_stride, detector_stride, threads, device)
    opened = _open(text, loaded, fps)
    for path in (out, save):
        if path is not None and opened.is_live and path.exists():
            raise InputError("this is there already", path=path, cure="choose another name, or delete it")
        if path is not None and path.resolve() == Path(text).resolve():
            raise InputError("this would overwrite the source", path=path, cure="choose another name")
    chosen, guessed = check_variant(loaded.procedure, "" if opened.is_live else _name_of(Path(text)), variant)
    if guessed and len(loaded.procedure.variants) > 1:
        others = ", ".join(loaded.procedure.variants)
        typer.echo(f"note: taking it for variant {chosen!r} (--variant chooses: {others})", err=True)
    recognizer = Recognizer.of(loaded, method, chosen, unexpected=unexpected)
    watch = _Watch(recognizer, opened, as_json=as_json)
    if not as_json:
        typer.echo(f"{opened.name}: {loaded.procedure.name}, variant {chosen!r}, method {recognizer.method!r}")
    with ExitStack() as files:
        if out is not None:
            watch.table = files.enter_context(_created(out))
        if save is not None:
            watch.film(files, save, fps or loaded.procedure.fps)
        watch.run()
    watch.report([path for path in (out, save) if path is not None])


def _open(text: str, model: RecognizerModel, fps: float | None) -> FrameSource:
    from stormpsr.data.sources import open_source
    from stormpsr.procedure.model import Procedure

    described = Path(text) / "procedure.yaml"
    if described.is_file():
        model.check_procedure(Procedure.load(described), described)
    return open_source(text, model.procedure, fps=fps)


def _name_of(path: Path) -> str:
    """What a source is called; a recording's frames may lie in a folder of their own."""
    place = path.resolve()
    return place.parent.name if place.name.lower() == "rgb" else place.name


def _created(path: Path) -> TextIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("w", encoding="utf-8", newline="")


class _Watch:
    """Drives the recogniser, and says what it says: on the screen, into the table, into the film."""

    def __init__(self, recognizer: Recognizer, source: FrameSource, *, as_json: bool) -> None:
        from stormpsr.decoding.checklist import Checklist

        self.recognizer, self.source, self.as_json = recognizer, source, as_json
        self.checklist = Checklist(recognizer.procedure, recognizer.variant.name)
        self.table: TextIO | None = None
        self.video: Any = None
        self.n_frames = self.n_events = 0
        self.seconds = 0.0
        self.problem: Exception | None = None
        self._started = time.perf_counter()

    def film(self, files: ExitStack, path: Path, default_fps: float) -> None:
        from stormpsr.recognizer.draw import AnnotatedVideo

        self.video = files.enter_context(AnnotatedVideo(path, fps=self.source.fps or default_fps))

    def run(self) -> None:
        """All frames. What goes wrong underway is kept for the end, so that the files are whole."""
        from stormpsr.errors import InputError

        try:
            for result in self.recognizer.stream(self.source):
                self._frame(result)
        except InputError as error:
            self.problem = error
        except KeyboardInterrupt:
            if not self.source.is_live:
                raise

    def _frame(self, result: FrameResult) -> None:
        self.n_frames, self.seconds = self.n_frames + 1, result.time_seconds
        self.checklist.update(result.events)
        for event in result.events:
            self._tell(event)
        if self.video is not None:
            self._draw(result)

    def _tell(self, event: StepEvent) -> None:
        from stormpsr.data.labels import frame_name

        self.n_events += 1
        text = self.recognizer.procedure.step(event.step_id).description
        if self.table is not None:
            self.table.write(f"{frame_name(event.frame)},{event.step_id},{_cell(text)}\n")
            flush(self.table)
        if self.as_json:
            plain = {
                "frame": event.frame,
                "time_seconds": event.time_seconds,
                "step_id": event.step_id,
                "step": text,
                "confidence": event.confidence,
                "method": event.source,
            }
            print(json.dumps(plain, ensure_ascii=False), flush=True)
        else:
            print(f"{event.time_seconds or 0:8.1f} s  frame {event.frame:6d}  {text}", flush=True)

    def _draw(self, result: FrameResult) -> None:
        from stormpsr.decoding.methods import title_of
        from stormpsr.recognizer.draw import draw_annotated

        drawn = draw_annotated(
            result.frame.image,
            self.checklist,
            share_S=result.share_S,
            box=result.box,
            time_seconds=result.time_seconds,
            title=title_of(self.recognizer.method),
        )
        self.video.add(drawn, result.time_seconds)

    def report(self, written: list[Path]) -> None:
        from stormpsr.errors import InputError

        taken = max(time.perf_counter() - self._started, 1e-9)
        written = [path for path in written if path.exists()]
        if not self.as_json and self.n_frames:
            rate = self.n_frames / taken
            typer.echo(
                f"{counted(self.n_events, 'step')} in {self.n_frames} frames ({self.seconds:.1f} s of it), "
                f"{rate:.0f} frames per second"
            )
            for path in written:
                typer.echo(f"written: {path}")
        if self.problem is None:
            return
        if self.n_frames and isinstance(self.problem, InputError):
            until = f"what was recognised until then ({counted(self.n_events, 'step')}) is kept"
            cure = f"{self.problem.cure}; {until}" if self.problem.cure else until
            raise InputError(self.problem.problem, path=self.problem.path, line=self.problem.line, cure=cure)
        raise self.problem


def _cell(text: str) -> str:
    """A cell of a CSV file."""
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"') else text
