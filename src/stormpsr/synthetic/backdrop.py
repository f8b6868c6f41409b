"""What is behind everything: the table top with its shadows, and the room beyond its edge.

A textured plane that fills the picture costs a software renderer more than all parts and hands together. A plane is
also the one thing that needs no renderer: each pixel's ray meets the table at a point that is looked up in a picture
of the table. The room is looked up by direction, and only in frames that see past the table's edge.

Shape legend: H W the picture, Y X the table's picture.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from stormpsr.synthetic.camera_effects import Lens
from stormpsr.synthetic.look import Look
from stormpsr.synthetic.shadows import TABLE_HIGH, TABLE_LOW, ShadowMap
from stormpsr.synthetic.textures import room_panorama, table_texture

__all__ = ["Backdrop"]

Floats = NDArray[np.float32]
Picture = NDArray[np.uint8]

_PATTERN_METRES = 0.9
_ROOM_TOP_DEGREES, _ROOM_BOTTOM_DEGREES = 60.0, -80.0


class Backdrop:
    """The table and the room of one look, for one lens."""

    def __init__(self, look: Look, lens: Lens) -> None:
        self._lens = lens
        self._darkness = look.shadow
        # about one and a half texels per pixel at half a metre: sharp, and no flicker
        self._texels_per_metre = float(np.clip(lens.width * 2.4, 200, 1000))
        self._table_YX4 = self._lit_table(look)
        self._room = room_panorama(look.room_colour, look.seed)

    def _lit_table(self, look: Look) -> Picture:
        """The table top from above under the look's lights, with full alpha; what is beyond its edge has none."""
        light = np.full(3, look.ambient, dtype=np.float64)
        for lamp in look.lights:
            light += lamp.strength * max(lamp.direction[2], 0.0) * np.asarray(lamp.colour)
        colour, accent = (np.asarray(c) * light for c in (look.table_colour, look.table_accent))
        lit = table_texture(look.table_kind, colour.tolist(), accent.tolist(), look.seed)
        step = self._texels_per_metre * _PATTERN_METRES / lit.shape[0]
        if step < 1:  # shrink first, or thin lines would come and go
            lit = cv2.resize(lit, None, fx=step, fy=step, interpolation=cv2.INTER_AREA)
        width, height = ((TABLE_HIGH - TABLE_LOW) * self._texels_per_metre).astype(int)
        turn, scale = np.deg2rad(look.table_turn_degrees), min(1.0, 1 / step)
        to_pattern_23 = np.zeros((2, 3))
        to_pattern_23[:, :2] = scale * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        to_pattern_23[:, 2] = lit.shape[0] / 2 - to_pattern_23[:, :2] @ [width / 2, height / 2]
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        table = cv2.warpAffine(lit, to_pattern_23, (width, height), flags=flags, borderMode=cv2.BORDER_REFLECT_101)
        return np.asarray(cv2.cvtColor(table, cv2.COLOR_RGB2RGBA), dtype=np.uint8)

    def picture(self, camera_44: Floats, shadows: ShadowMap) -> Picture:
        """Red, green and blue behind everything, at the picture's final size."""
        x, y = self._where_on_table(camera_44)
        texels = np.float32(self._texels_per_metre)
        ground = cv2.remap(self._table_YX4, x * texels, y * texels, cv2.INTER_LINEAR)
        dark = shadows.look_up(x, y)
        light = cv2.merge([cv2.convertScaleAbs(dark, alpha=-self._darkness, beta=255)] * 3)
        shaded = cv2.multiply(ground[..., :3], light, scale=1 / 255)
        covered = ground[..., 3]
        if int(covered.min()) == 255:
            return np.asarray(shaded, dtype=np.uint8)
        beyond = cv2.merge([255 - covered] * 3)
        room = cv2.multiply(self._room_picture(camera_44), beyond, scale=1 / 255)
        return np.asarray(cv2.add(shaded, room), dtype=np.uint8)

    def _where_on_table(self, camera_44: Floats) -> tuple[Floats, Floats]:
        """Where each pixel looks on the table, in metres from its corner; far outside where it does not."""
        rays_HW3 = self._lens.rays_HW3 @ camera_44[:3, :3].T
        down = rays_HW3[..., 2]
        reach = np.float32(-camera_44[2, 3]) / np.minimum(down, np.float32(-0.02))
        x = np.float32(camera_44[0, 3] - TABLE_LOW[0]) + reach * rays_HW3[..., 0]
        y = np.float32(camera_44[1, 3] - TABLE_LOW[1]) + reach * rays_HW3[..., 1]
        x[down > -0.02] = -20.0
        size = (self._lens.width, self._lens.height)
        if x.shape != size[::-1]:  # positions change smoothly: large pictures work them out on a coarser grid
            x, y = (cv2.resize(v, size, interpolation=cv2.INTER_LINEAR) for v in (x, y))
        return np.asarray(x), np.asarray(y)

    def _room_picture(self, camera_44: Floats) -> Picture:
        """The room in every direction; it is out of focus, so every other ray will do."""
        rays_HW3 = self._lens.rays_HW3[::2, ::2] @ camera_44[:3, :3].T
        height, width = self._room.shape[:2]
        azimuth = np.arctan2(rays_HW3[..., 0], rays_HW3[..., 1])
        elevation = np.arctan2(rays_HW3[..., 2], np.hypot(rays_HW3[..., 0], rays_HW3[..., 1]))
        column = (azimuth / (2 * np.pi) + 0.5) * width
        row = (_ROOM_TOP_DEGREES - np.rad2deg(elevation)) / (_ROOM_TOP_DEGREES - _ROOM_BOTTOM_DEGREES) * height
        room = cv2.remap(
            self._room,
            column.astype(np.float32),
            row.astype(np.float32),
            cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REPLICATE,
        )
        room = cv2.resize(room, (self._lens.width, self._lens.height), interpolation=cv2.INTER_LINEAR)
        return np.asarray(room, dtype=np.uint8)
