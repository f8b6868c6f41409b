"""Images: read from files, and brought to the square that a network takes. All networks see the same geometry.

Images are arrays of red, green and blue in uint8, height first.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.boxes import Box
from stormpsr.errors import InputError

Image = NDArray[np.uint8]
GEOMETRY = "letterbox"  # how images become squares; kept beside everything cached that was made from them
MOST_PIXELS = 50 * 10**6  # of an image or of a frame of a video
_SMALLER = "make it smaller"
PADDING = 114  # grey, as detectors usually pad


def read_image(path: str | Path) -> Image:
    """An image file."""
    import cv2
    from PIL import Image as Images

    path = Path(path)
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for forever
            raise InputError("this is not a file", path=path)
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {(error.strerror or str(error)).lower()}", path=path) from error
    try:
        with Images.open(BytesIO(data)) as header:
            check_pixels(header.width, header.height, path)
        image = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), cv2.IMREAD_COLOR)
    except InputError:
        raise
    except Images.DecompressionBombError as error:  # it looks at the size, too
        raise InputError(f"it has more than {MOST_PIXELS // 10**6} million pixels", path=path, cure=_SMALLER) from error
    except Exception:  # both libraries raise whatever their parsers meet
        image = None
    if image is None or _is_cut_short(data):
        raise InputError("this is not an image", path=path, cure="it may be cut short: copy it again")
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), dtype=np.uint8)


def _is_cut_short(data: bytes) -> bool:
    """Whether the end of a JPEG or PNG is missing: decoders fill up the rest with grey, and say nothing."""
    if data.startswith(b"\xff\xd8"):  # inside compressed data, 0xff is never followed by one of these
        return data.rfind(b"\xff\xd9") < data.rfind(b"\xff\xda")
    return data.startswith(b"\x89PNG") and b"IEND" not in data


def write_image(path: Path, image: Image) -> None:
    """Write an image in the format that its name ends with."""
    import cv2

    done, data = cv2.imencode(path.suffix, cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    if not done:
        raise InputError("the image cannot be written in this format", path=path)
    path.write_bytes(data.tobytes())


def check_pixels(width: int, height: int, path: Path | str) -> None:
    """Refuse what would fill the memory before it is decoded: a small file may claim any size."""
    if width * height > MOST_PIXELS:
        problem = f"it has {width} x {height} pixels, more than {MOST_PIXELS // 10**6} million"
        raise InputError(problem, path=path, cure=_SMALLER)


def image_size(path: Path) -> tuple[int, int]:
    """Width and height of an image file."""
    height, width = read_image(path).shape[:2]
    return width, height


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an image lies inside the square: `pixel_in_square = pixel * scale + offset`."""

    scale: float
    offset_x: float
    offset_y: float

    @classmethod
    def of(cls, width: int, height: int, size: float) -> Placement:
        """In a square of `size` pixels; a size of 1 gives places as shares of the square."""
        scale = size / max(width, height)
        return cls(scale, (size - width * scale) / 2, (size - height * scale) / 2)

    def into_square(self, box: Box) -> Box:
        """A box in the image as one inside the square."""
        return Box(
            box.x0 * self.scale + self.offset_x,
            box.y0 * self.scale + self.offset_y,
            box.x1 * self.scale + self.offset_x,
            box.y1 * self.scale + self.offset_y,
        )

    def points_into_square(self, point_X2: NDArray[np.floating]) -> NDArray[np.floating]:
        """Points of the image as points of the square."""
        return np.asarray(point_X2 * self.scale + (self.offset_x, self.offset_y))

    def back(self, box: Box) -> Box:
        """A box inside the square as one in the image."""
        left, top = (box.x0 - self.offset_x) / self.scale, (box.y0 - self.offset_y) / self.scale
        return Box(left, top, left + (box.x1 - box.x0) / self.scale, top + (box.y1 - box.y0) / self.scale)


def letterbox(image: Image, size: int) -> tuple[Image, Placement]:
    """The image inside a square of `size` pixels, its proportions kept, the rest grey.

    The paper resizes frames to a square. Here a thing has the same proportions to every network, whatever the camera.
    """
    import cv2

    height, width = image.shape[:2]
    placement = Placement.of(width, height, size)
    if (width, height) == (size, size):
        return image, placement
    inner = (max(1, round(width * placement.scale)), max(1, round(height * placement.scale)))
    shrinks = placement.scale < 1
    scaled = cv2.resize(image, inner, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    if inner == (size, size):
        return np.asarray(scaled, dtype=np.uint8), placement
    square = np.full((size, size, 3), PADDING, dtype=np.uint8)
    top, left = round(placement.offset_y), round(placement.offset_x)
    square[top : top + inner[1], left : left + inner[0]] = scaled[: size - top, : size - left]
    return square, placement
