"""Images and short videos that show why something was said."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from stormpsr.data.images import Image
from stormpsr.files import replacing

_TIME_BASE = Fraction(1, 90_000)


def jpeg_of(image: Image, longest_side: int, quality: int = 80) -> bytes:
    """An image as a JPEG file, made smaller where it is larger than asked for."""
    import cv2

    scale = longest_side / max(image.shape[:2])
    if scale < 1:
        size = [max(round(side * scale), 1) for side in image.shape[1::-1]]
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    done, content = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
    assert done
    return bytes(content)


def write_clip(path: Path, images: list[tuple[float, bytes]]) -> None:
    """JPEG images with their seconds as an MP4 that browsers play; it is there when it is complete."""
    import av

    with (
        replacing(path) as draft,
        av.open(str(draft), "w", format="mp4", options={"movflags": "faststart"}) as container,
    ):
        stream: Any = None
        for seconds, content in images:
            frame = _decoded(content)
            if stream is None:
                stream = container.add_stream("libx264", rate=30, options={"crf": "26", "preset": "veryfast"})
                stream.width, stream.height = (side - side % 2 for side in (frame.width, frame.height))
                stream.pix_fmt, stream.time_base = "yuv420p", _TIME_BASE
                stream.codec_context.time_base = _TIME_BASE
                last = -1
            last = max(round((seconds - images[0][0]) / _TIME_BASE), last + 1)
            frame = frame.reformat(width=stream.width, height=stream.height, format="yuv420p")
            frame.pts, frame.time_base = last, _TIME_BASE
            container.mux(stream.encode(frame))
        if stream is not None:
            container.mux(stream.encode())


def _decoded(content: bytes) -> Any:
    import av
    import cv2
    import numpy as np

    image: Any = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    return av.VideoFrame.from_ndarray(image, format="bgr24")
