"""What a head-worn camera does to an image: lens, shutter, exposure, sensor noise, JPEG.

Shape legend: H W the image, h w the larger image that was rendered.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from stormpsr.synthetic.look import Look

Floats = NDArray[np.float32]
Image = NDArray[np.uint8]


class Lens:
    """A wide lens: where an image's pixels look, and what must be rendered without distortion to serve them all.

    A point at distance r from the axis in the image (1 at distance 1) looks along r * (1 + distortion * r^2).
    """

    def __init__(self, look: Look, width: int, height: int, supersample: int) -> None:
        self.width, self.height, self.supersample = width, height, supersample
        half_x = float(np.tan(np.deg2rad(look.field_of_view_degrees) / 2))
        self._half_x, self._half_y = half_x, half_x * height / width  # of the image at distance 1
        self._bend = look.distortion
        corner = 1 + self._bend * (self._half_x**2 + self._half_y**2)
        self.half_x, self.half_y = self._half_x * corner, self._half_y * corner  # of what is rendered for it
        self.render_width, self.render_height = width * supersample, height * supersample
        fine_x, fine_y = self._directions(self.render_width, self.render_height)
        column = (fine_x / self.half_x + 1) / 2 * self.render_width - 0.5
        row = (fine_y / self.half_y + 1) / 2 * self.render_height - 0.5  # the renderer's first row is the lowest
        self._map, _ = cv2.convertMaps(column, row, cv2.CV_16SC2, nninterpolation=True)
        coarse = (max(width // 2, 1), max(height // 2, 1)) if width > 256 else (width, height)
        x, y = self._directions(*coarse)
        self.rays_HW3 = np.stack([x, y, -np.ones_like(x)], axis=2)

    def _directions(self, columns: int, rows: int) -> tuple[Floats, Floats]:
        x = ((np.arange(columns) + 0.5) / columns * 2 - 1)[None, :] * self._half_x
        y = (1 - (np.arange(rows) + 0.5) / rows * 2)[:, None] * self._half_y
        stretch = 1 + self._bend * (x**2 + y**2)
        return (x * stretch).astype(np.float32), (y * stretch).astype(np.float32)

    def bend(self, rendered_hwc: Image) -> Image:
        """The rendered image (or map of ids) as the lens shows it, still supersampled, first row on top."""
        bent: Image = cv2.remap(rendered_hwc, self._map, None, cv2.INTER_NEAREST)
        return bent

    def shrink(self, fine_hwc: Image) -> Image:
        """The supersampled image at its final size, each pixel the mean of its samples."""
        if self.supersample == 1:
            return fine_hwc
        small: Image = cv2.resize(fine_hwc, (self.width, self.height), interpolation=cv2.INTER_AREA)
        return small

    def pixel_of(self, points_N3: Floats, camera_44: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Where world points are in the supersampled image (column, row), and which are in front of the camera."""
        local_N3 = (points_N3 - camera_44[:3, 3]) @ camera_44[:3, :3]
        in_front = local_N3[..., 2] < -0.01
        depth = np.where(in_front, -local_N3[..., 2], 1.0)
        straight_N2 = local_N3[..., :2] / depth[..., None]
        # invert r * (1 + bend * r^2): a few Newton steps from the straight position
        far = np.linalg.norm(straight_N2, axis=-1)
        near = far.copy()
        for _ in range(4):
            near = near - (near * (1 + self._bend * near**2) - far) / (1 + 3 * self._bend * near**2)
        shrink = near / np.maximum(far, 1e-9)
        column = (straight_N2[..., 0] * shrink / self._half_x + 1) / 2 * self.render_width
        row = (1 - straight_N2[..., 1] * shrink / self._half_y) / 2 * self.render_height
        return np.stack([column, row], axis=-1).astype(np.float32), in_front

    def inside(self, pixels_N2: Floats, in_front_N: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which points lie within the image."""
        size = np.array([self.render_width, self.render_height], dtype=np.float32)
        return np.asarray(in_front_N & ((pixels_N2 >= 0) & (pixels_N2 < size)).all(axis=-1))


class Sensor:
    """Turns a clean image into what the camera stores. Noise depends on the look's seed and the frame only."""

    def __init__(self, look: Look, width: int, height: int) -> None:
        self._seed = look.seed
        rng = np.random.default_rng((look.seed, 7))
        bank = rng.normal(0, 1, (height + 64, width + 64, 3)).astype(np.float32)
        bank = cv2.GaussianBlur(bank, (0, 0), 0.6)
        self._bank = np.clip(bank / bank.std() * look.noise, -60, 60).astype(np.int16)
        self._look = look
        self._gains = look.exposure * np.asarray(look.white_balance)
        self._curve = self._response(self._gains)
        waves = np.random.default_rng((look.seed, 14))
        self._periods_32 = np.exp(waves.uniform(np.log(25), np.log(250), (3, 2)))  # in frames
        self._phases_32 = waves.uniform(0, 2 * np.pi, (3, 2))
        x = np.linspace(-1, 1, width)[None, :]
        y = np.linspace(-1, 1, height)[:, None]
        vignette_HW = 1 - look.vignette * (x**2 + y**2) / 2
        self._vignette_HW3 = np.repeat(np.round(vignette_HW * 255).astype(np.uint8)[..., None], 3, axis=2)

    def _response(self, gains_3: NDArray[np.float64]) -> Image:
        """What the sensor makes of each of 256 levels, per colour."""
        levels = np.arange(256, dtype=np.float64) / 255
        curve = np.clip(levels[:, None] ** self._look.gamma * gains_3, 0, None)
        curve = np.where(curve > 0.8, 0.8 + 0.2 * np.tanh((curve - 0.8) / 0.2), curve)  # soft shoulder
        return np.clip(curve * 255, 0, 255).astype(np.uint8).reshape(256, 1, 3)

    def expose(self, image_HW3: Image, motion_pixels: tuple[float, float], frame_index: int) -> Image:
        """Blur out of focus and along the motion during the shutter time, then exposure, white balance and noise."""
        look, curve = self._look, self._curve
        # from -1 to 1, slowly: focus, exposure, warmth
        focus, brighter, warmer = np.sin(2 * np.pi * frame_index / self._periods_32 + self._phases_32).mean(axis=1)
        if look.drift:
            tint_3 = np.array([warmer, 0.0, -warmer]) / 3
            curve = self._response(self._gains * np.exp(look.drift * (brighter + tint_3)))
        sigma = look.defocus * image_HW3.shape[1] * max(2 * float(focus), 0.0)
        if sigma > 0.3:
            image_HW3 = np.asarray(cv2.GaussianBlur(image_HW3, (0, 0), sigma), dtype=np.uint8)
        blurred = self._blur(image_HW3, motion_pixels)
        exposed = cv2.LUT(cv2.multiply(blurred, self._vignette_HW3, scale=1 / 255), curve)
        height, width = exposed.shape[:2]
        top, left = np.random.default_rng((self._seed, frame_index)).integers(0, 64, 2)
        noise = self._bank[top : top + height, left : left + width]
        noisy: Image = cv2.add(exposed, noise, dtype=cv2.CV_8U)
        return noisy

    @staticmethod
    def _blur(image_HW3: Image, motion_pixels: tuple[float, float]) -> Image:
        x, y = motion_pixels
        length = float(np.hypot(x, y))
        if length < 0.7:
            return image_HW3
        reach = int(min(np.ceil(length / 2), 12))
        stroke = np.zeros((2 * reach + 1, 2 * reach + 1), dtype=np.uint8)
        scale = min(1.0, reach / (length / 2))
        end = np.array([x, y]) * scale / 2
        middle = np.array([reach, reach])
        start_point, end_point = np.round((middle - end) * 16).astype(int), np.round((middle + end) * 16).astype(int)
        cv2.line(stroke, start_point.tolist(), end_point.tolist(), (255,), 1, cv2.LINE_AA, 4)
        kernel = stroke.astype(np.float32) / max(float(stroke.sum()), 1.0)
        blurred: Image = cv2.filter2D(image_HW3, -1, kernel)
        return blurred


def encode_jpeg(image_HW3: Image, quality: int) -> bytes:
    """The image as a JPEG file."""
    import simplejpeg

    data: bytes = simplejpeg.encode_jpeg(
        np.ascontiguousarray(image_HW3), quality=quality, colorspace="RGB", colorsubsampling="420", fastdct=True
    )
    return data
