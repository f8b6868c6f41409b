"""The image, the box, and beside them the check-list with ticks and evidence bars, as a video."""

from __future__ import annotations

from contextlib import ExitStack, closing
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.boxes import Box
from stormpsr.data.images import Image
from stormpsr.decoding.checklist import Checklist, ChecklistRow
from stormpsr.errors import InputError
from stormpsr.files import naming_full_disk, only_writer

_LONG_SIDE = 640  # pixels of the image's longer side; smaller sources are enlarged
_PANEL_WIDTH = 420
_LEAST_HEIGHT = 480
_BACKGROUND, _TEXT, _FAINT, _RAIL = (24, 26, 30), (236, 236, 232), (140, 144, 150), (58, 62, 68)
_DONE, _WAITING, _ALARM, _BOX = (86, 186, 110), (232, 170, 62), (240, 96, 88), (90, 200, 250)
_TIME_BASE = Fraction(1, 90_000)


class AnnotatedVideo:
    """Writes annotated frames to an MP4 file. Use it as a context: the file is whole however the context ends."""

    def __init__(self, path: Path, *, fps: float) -> None:
        if path.suffix.lower() not in (".mp4", ".mkv", ".mov"):
            raise InputError("cannot write such a video", path=path, cure="use one of: .mp4, .mkv, .mov")
        self.path = path
        self._fps = fps
        self._container: Any = None
        self._stream: Any = None
        self._last = -1
        self._alone = ExitStack()

    def __enter__(self) -> AnnotatedVideo:
        return self

    def __exit__(self, *_: object) -> None:
        if self._container is not None:
            with self._alone, naming_full_disk(self.path), closing(self._container):
                self._container.mux(self._stream.encode())

    def add(self, image: Image, time_seconds: float) -> None:
        import av

        height, width = (side - side % 2 for side in image.shape[:2])
        if self._container is None:
            self._alone.enter_context(only_writer(self.path))
            # in parts of two seconds, each whole by itself: what is written can be played, however the program ends
            parts = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}
            if self.path.suffix.lower() == ".mkv":
                parts = {"cluster_time_limit": "2000"}
            self._container = av.open(str(self.path), "w", options={"flush_packets": "1", **parts})
            rate = Fraction(self._fps).limit_denominator(1000)
            self._stream = self._container.add_stream("libx264", rate=rate)
            self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
            self._stream.options = {"crf": "22", "preset": "veryfast", "g": str(max(round(2 * self._fps), 1))}
            self._stream.time_base = self._stream.codec_context.time_base = _TIME_BASE
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image[:height, :width]), format="rgb24")
        frame.pts = self._last = max(round(time_seconds / _TIME_BASE), self._last + 1)
        frame.time_base = _TIME_BASE
        with naming_full_disk(self.path):
            self._container.mux(self._stream.encode(frame))


def draw_annotated(
    image: Image,
    checklist: Checklist,
    *,
    share_S: NDArray[np.float64],
    box: Box | None,
    time_seconds: float,
    title: str,
) -> Image:
    """One frame of the annotated video."""
    import cv2

    scale = _LONG_SIDE / max(image.shape[:2])
    width, height = (max(round(side * scale), 1) for side in image.shape[1::-1])
    how = cv2.INTER_CUBIC if scale > 1 else cv2.INTER_AREA
    scaled: Any = cv2.resize(image, (width, height), interpolation=how)
    if box is not None:
        x0, y0, x1, y1 = (round(side * scale) for side in box.corners)
        cv2.rectangle(scaled, (x0, y0), (x1, y1), _BOX, 2, cv2.LINE_AA)
    full_height = max(height, _LEAST_HEIGHT)
    canvas = np.full((full_height, width + _PANEL_WIDTH, 3), _BACKGROUND, dtype=np.uint8)
    top = (full_height - height) // 2
    canvas[top : top + height, :width] = scaled
    canvas[:, width:] = _panel(checklist, share_S, full_height, time_seconds, title)
    return canvas


def _panel(checklist: Checklist, share_S: NDArray[np.float64], height: int, time_seconds: float, title: str) -> Image:
    from PIL import Image as Images
    from PIL import ImageDraw

    panel = Images.new("RGB", (_PANEL_WIDTH, height), _BACKGROUND)
    pen: Any = ImageDraw.Draw(panel)
    pen.text((20, 14), title, font=_font(19), fill=_TEXT)
    pen.text((_PANEL_WIDTH - 20, 15), _clock(time_seconds), font=_font(18), fill=_FAINT, anchor="ra")
    rows = checklist.rows(share_S)
    foot = height - 44
    step = min(52.0, (foot - 56) / max(len(rows), 1))
    for i, row in enumerate(rows):
        _draw_row(pen, row, 56 + i * step, step)
    if checklist.unexpected:
        event = checklist.unexpected[-1]
        when = "" if event.time_seconds is None else f" {_clock(event.time_seconds)}"
        text = f"not expected: {checklist.procedure.step(event.step_id).description}{when}"
        pen.text((20, foot + 10), _shortened(pen, text, 15, _PANEL_WIDTH - 40), font=_font(15), fill=_WAITING)
    return np.asarray(panel, dtype=np.uint8)


def _draw_row(pen: Any, row: ChecklistRow, top: float, step: float) -> None:
    size = int(np.clip(step * 0.42, 9, 18))
    side = int(np.clip(step * 0.45, 9, 20))
    middle = top + step * 0.4
    left = 20
    mark = (left, middle - side / 2, left + side, middle + side / 2)
    colour = _ALARM if row.alarm is not None else _DONE if row.done is not None else _FAINT
    pen.rounded_rectangle(mark, radius=3, outline=colour, width=2, fill=_DONE if row.done is not None else None)
    if row.done is not None:
        ticks = ((0.22, 0.05), (0.42, 0.25), (0.8, -0.25))
        pen.line([(left + side * x, middle + side * y) for x, y in ticks], fill=_BACKGROUND, width=max(side // 7, 2))
        seconds = row.done.time_seconds
        if seconds is not None:
            pen.text((_PANEL_WIDTH - 20, middle), _clock(seconds), font=_font(size), fill=_DONE, anchor="rm")
    if row.alarm is not None:
        crosses = (((0.25, -0.25), (0.75, 0.25)), ((0.25, 0.25), (0.75, -0.25)))
        for line in crosses:
            pen.line([(left + side * x, middle + side * y) for x, y in line], fill=_ALARM, width=max(side // 7, 2))
        pen.text((_PANEL_WIDTH - 20, middle), row.alarm.kind, font=_font(size), fill=_ALARM, anchor="rm")
    text = _shortened(pen, row.step.description, size, _PANEL_WIDTH - 2 * left - side - 12 - 70)
    pen.text((left + side + 12, middle), text, font=_font(size), fill=_TEXT, anchor="lm")
    if step >= 20:
        bar, y = (left + side + 12, _PANEL_WIDTH - 20), top + step * 0.8
        thick = max(2, int(step * 0.08))
        pen.rectangle((bar[0], y, bar[1], y + thick), fill=_RAIL)
        share = min(max(row.share, 0.0), 1.0)
        if share > 0.005:
            pen.rectangle((bar[0], y, bar[0] + share * (bar[1] - bar[0]), y + thick), fill=_WAITING)


def _shortened(pen: Any, text: str, size: int, width: float) -> str:
    if pen.textlength(text, font=_font(size)) <= width:
        return text
    while text and pen.textlength(text + "...", font=_font(size)) > width:
        text = text[:-1]
    return text + "..."


@cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _clock(seconds: float) -> str:
    """75.25 as 1:15.2."""
    tenths = int(seconds * 10 + 1e-6)
    return f"{tenths // 600}:{tenths // 10 % 60:02d}.{tenths % 10}"
