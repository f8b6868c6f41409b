"""`stormpsr record`: a camera or a file becomes a recording that can be annotated."""

from __future__ import annotations

import signal
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stormpsr.cli import options
from stormpsr.cli.output import Bar, JsonFlag, answer, counted
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

if TYPE_CHECKING:
    from stormpsr.data.sources import FrameSource


def record_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="The index of a webcam (0, 1, ...), the address of a camera (rtsp://...), a video file or a folder "
            "of frames.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DATA", help="Folder of the data set.")],
    procedure: options.DataProcedureOption = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the recording.", show_default="date and time, and the variant")
    ] = None,
    variant: Annotated[
        str | None, typer.Option(help="Variant of the procedure; it becomes part of the name.", show_default="none")
    ] = None,
    split: Annotated[
        Literal["train", "val", "test"] | None, typer.Option(help="Split that it belongs to.", show_default="none")
    ] = None,
    fps: Annotated[
        float | None, typer.Option(min=0.1, max=1000, help="Keep so many frames per second.", show_default="all")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="Stop after so many seconds.", show_default="when it ends, or Ctrl-C")
    ] = None,
    video: Annotated[
        bool | None,
        typer.Option(
            "--video/--images",
            help="Keep one video, or an image per frame.",
            show_default="a video file is copied as it is, all else becomes images",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Record a camera, or take over a file, as a recording in the field's layout.

    Ctrl-C ends a recording; what was recorded can be used also if the program is killed. Nothing is overwritten. Label
    it with 'stormpsr annotate DATA'.

    Example: stormpsr record 0 --out lamp-data --procedure lamp.yaml --name 01_build_anna
    """
    options.need("recording", "annotate", "cv2", "PIL", "av")
    from stormpsr.data.sources import Video, open_source

    chosen = _procedure_beside(out, procedure)
    began = datetime.now().astimezone()
    called = _name(name, None if variant is None else chosen.variant(variant).name, began)
    folder = out / "recordings" / (split or "") / called
    opened = open_source(source, chosen, fps=None)
    about: dict[str, Any] = {"source": Path(opened.name).name if not opened.is_live else opened.name}
    if opened.is_live:
        about["recorded_at"] = began.isoformat(timespec="milliseconds")
    if folder.exists():
        raise InputError("there is a recording already", path=folder, cure="choose another --name")
    if isinstance(opened, Video) and not opened.is_live and video is None and fps is None and seconds is None:
        from stormpsr.data.recorder import copy_video

        n_frames, rate = copy_video(opened.path, folder, about)
        _tell(as_json, folder, n_frames, n_frames / rate, rate)
        return
    _record(opened, folder, chosen, about, fps, seconds, bool(video), as_json)


def _procedure_beside(data: Path, given: str | None) -> Procedure:
    """The procedure of a data set; the first recording puts it there."""
    from stormpsr.data.dataset import PROCEDURE_FILE

    path = data / PROCEDURE_FILE
    known = Procedure.load(path) if path.is_file() else None
    if given is None and known is None:
        cure = "give --procedure; it is kept beside the data for the next time"
        raise InputError("nobody says which procedure this is", path=data, cure=cure)
    wanted = known if given is None else Procedure.load(given)
    assert wanted is not None
    if known is not None and wanted != known:
        cure = "a data set has one procedure: leave --procedure out, or choose another --out"
        raise InputError(f"this is another procedure than {given}", path=path, cure=cure)
    if known is None:
        data.mkdir(parents=True, exist_ok=True)
        wanted.save(path)
    return wanted


def _name(given: str | None, variant: str | None, began: datetime) -> str:
    name = given or "_".join([f"{began:%Y-%m-%d_%H%M%S}", *([variant] if variant else [])])
    if name != Path(name).name or name.startswith(".") or name.lower() in ("train", "val", "test"):
        raise InputError(
            f"a recording cannot be called {name!r}", cure="give the name of a folder, for example 01_build"
        )
    return name


def _record(
    source: FrameSource,
    folder: Path,
    procedure: Procedure,
    about: dict[str, Any],
    fps: float | None,
    seconds: float | None,
    video: bool,
    as_json: bool,
) -> None:
    from stormpsr.data.recorder import Recorder, at_most

    recorder = Recorder(folder, fps or source.fps or procedure.fps, about, video=video)
    problem: InputError | None = None
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does
    try:
        with Bar(folder.name, enabled=not as_json) as bar, recorder:
            try:
                for frame in at_most(source.frames(), fps):
                    if seconds is not None and frame.time_seconds >= seconds:
                        break
                    recorder.add(frame)
                    if recorder.n_frames % 10 == 1:
                        bar.named(folder.name, recorder.n_frames, source.n_frames, f"{recorder.seconds:.0f} s")
            except KeyboardInterrupt:
                pass  # the way to end it
            except InputError as error:  # the camera is gone: what there is stays
                problem = error
    finally:
        signal.signal(signal.SIGTERM, handler)
    if recorder.n_frames:
        _tell(as_json, folder, recorder.n_frames, recorder.seconds, recorder.fps)
    elif problem is None:
        raise InputError("no frames were recorded", path=source.name)
    if problem is not None:
        raise problem


def _tell(as_json: bool, folder: Path, n_frames: int, seconds: float, fps: float) -> None:
    data = {"path": str(folder), "n_frames": n_frames, "seconds": round(seconds, 3), "fps": round(fps, 4)}
    answer(as_json, data, f"{folder}: {counted(n_frames, 'frame')}, {seconds:.1f} s, {fps:.4g} frames per second")
