"""Timelines to images, and how much of every component can be seen in them.

    product = Product.load("vehicle")
    look = Look.draw(product, seed=1)                       # or Look.draw(product, seed, keep_clear=[(x, y, radius)])
    with Renderer(product, look, size=128) as renderer:     # size: pixels, or (width, height)
        for index in range(timeline.n_frames):
            frame = renderer.render(timeline, index)        # RenderedFrame
            data = renderer.encode(frame)                   # JPEG bytes

A renderer holds one window and no global state; it must be used in the process that made it. The hand's wrist is the
origin of `hand_pose`; a hand is about 19 cm long. The camera should be 0.3 to 0.45 m from the object: the product
then covers 35 to 55 % of the image's width. The table reaches from x -0.8 to 0.8 and from y -0.4 to 0.75.

Shape legend: C components, H hands, N points, P points per component.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as product_of

import cv2
import numpy as np
from numpy.typing import NDArray

from stormpsr.data.boxes import Box
from stormpsr.errors import InputError
from stormpsr.synthetic.backdrop import Backdrop, ShadowMap
from stormpsr.synthetic.camera_effects import Lens, Sensor, encode_jpeg
from stormpsr.synthetic.look import Look
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.scene import ID_BACKDROP, ID_HANDS, ID_STATIC, ID_TOOL, Scene, part_id
from stormpsr.synthetic.stage import PartPlace, Timeline

Floats = NDArray[np.float32]

_POINTS_PER_PART = 48
_TABLE, _WRONG, _AWAY = int(PartPlace.TABLE), int(PartPlace.WRONG), int(PartPlace.AWAY)


@dataclass(frozen=True, eq=False)
class RenderedFrame:
    """An image and what can be seen in it. A component that is not in the assembly has shares and counts of 0.

    Pixel counts are in pixels of the image, with fractions where the image was supersampled.
    """

    image: NDArray[np.uint8]  # height, width, red green blue
    visible_share_C: Floats  # of the pixels the assembly alone would show of it; 1 if it would show none
    inside_share_C: Floats  # of its surface that lies within the image's border
    pixels_C: Floats  # visible pixels
    assembly_pixels_C: Floats  # pixels of it if the assembly were alone
    place_visible_share_C: Floats  # of every component's place, filled or empty: inside and not covered by hand or tool
    places_CP2: Floats  # where every component belongs and where it is, see `stormpsr.data.places`
    box: Box | None  # around the assembly, hidden parts of it included
    hand_share: float  # of the image that hands and forearms cover

    @property
    def assembly_visible_share(self) -> float:
        """Visible pixels of the whole assembly over the pixels it would have alone; 0 if it is out of sight."""
        total = float(self.assembly_pixels_C.sum())
        return float(self.pixels_C.sum()) / total if total > 0 else 0.0


@dataclass(frozen=True, eq=False)
class _Projection:
    """Where every component's place in the assembly is in the supersampled image."""

    pixels_CP2: NDArray[np.int32]  # points on its surface: column, row
    inside_CP: NDArray[np.bool_]  # which of them are within the image
    corners_C82: NDArray[np.int32]  # its bounding box
    in_front_C: NDArray[np.bool_]  # whether all of the box is in front of the camera


class Renderer:
    """Draws one recording, frame by frame."""

    def __init__(self, product: Product, look: Look, size: int | tuple[int, int] = 128) -> None:
        self.width, self.height = (size, size) if isinstance(size, int) else size
        if self.width < 16 or self.height < 16:
            raise InputError(f"an image of {self.width} x {self.height} pixels", cure="use at least 16 x 16")
        self.product = product
        # small images get four samples per pixel, large ones have enough pixels
        self._supersample = 2 if self.width <= 320 else 1
        self._scene = Scene(product, look, self.width * self._supersample, self.height * self._supersample)
        rng = np.random.default_rng(0)
        on_surface = [part.mesh.surface_points(_POINTS_PER_PART, rng) for part in product.parts]
        corners = [list(product_of(*part.bounds_23.T)) for part in product.parts]
        self._points_CP3 = np.concatenate([on_surface, np.array(corners)], axis=1)
        self._seat_C44 = np.stack([part.pose_44 for part in product.parts])
        self._marks_C33 = np.stack([part.marks_33 for part in product.parts])
        self.set_look(look)

    def set_look(self, look: Look) -> None:
        """Change the appearance and keep the window and the meshes."""
        if look is not self._scene.look:
            self._scene.set_look(look)
        self.look = look
        self._lens = Lens(look, self.width, self.height, self._supersample)
        self._sensor = Sensor(look, self.width, self.height)
        self._backdrop = Backdrop(look, self._lens)
        self._shadows = ShadowMap(look.lights[0].direction, self._scene.static_hulls)

    def __enter__(self) -> Renderer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._scene.close()

    def encode(self, frame: RenderedFrame) -> bytes:
        """The frame as a JPEG file of the look's quality."""
        return encode_jpeg(frame.image, self.look.jpeg_quality)

    # ------------------------------------------------------------------ one frame
    def render(self, timeline: Timeline, frame_index: int) -> RenderedFrame:
        """Draw a frame and measure it. Frames may be asked for in any order."""
        n = timeline.part_place_FC.shape[1]
        if n != self.product.n_components:
            raise ValueError(f"{n} components in the timeline, {self.product.n_components} here")
        camera_44 = timeline.camera_pose_F44[frame_index]
        seat_C44 = self._places_in_assembly(timeline, frame_index)
        seated = self._place(timeline, frame_index, seat_C44)
        self._scene.aim(camera_44, self._lens.half_y)
        fine = self._lens.bend(self._scene.draw())
        ids = np.ascontiguousarray(fine[..., 3])
        places = self._project(seat_C44, camera_44)
        alone = self._assembly_alone(ids, seated, places)
        image = self._finish(fine, ids, timeline, frame_index)
        own_44 = timeline.object_pose_F44[frame_index]
        marks_CP2 = np.concatenate(
            [self._marks(own_44 @ self._seat_C44, camera_44), self._marks(seat_C44, camera_44)], 1
        )
        marks_CP2[[k for k in range(n) if k not in seated], 3:] = np.nan
        return self._measure(image, ids, alone, seated, places, marks_CP2)

    def _marks(self, pose_C44: Floats, camera_44: Floats) -> Floats:
        """Where the marks of components in these poses are, (C, 3, 2), as shares of the image."""
        points_C33 = self._marks_C33 @ pose_C44[:, :3, :3].transpose(0, 2, 1) + pose_C44[:, None, :3, 3]
        pixels_C32, in_front_C3 = self._lens.pixel_of(points_C33, camera_44)
        pixels_C32[~in_front_C3] = np.nan
        return np.asarray(pixels_C32 / (self._lens.render_width, self._lens.render_height), dtype=np.float32)

    def _places_in_assembly(self, timeline: Timeline, frame_index: int) -> Floats:
        """World pose of every component at its place in the assembly, whether it is there or not."""
        poses_C44 = self._seat_C44
        wrong = np.flatnonzero(timeline.part_place_FC[frame_index] == _WRONG)
        if len(wrong):
            poses_C44 = poses_C44.copy()
            for k in wrong:
                poses_C44[k] = self.product.pose_of(int(k), -1, int(timeline.wrong_choice_FC[frame_index, k]))
        return np.asarray(timeline.object_pose_F44[frame_index] @ poses_C44, dtype=np.float32)

    def _place(self, timeline: Timeline, frame_index: int, seat_C44: Floats) -> list[int]:
        """Move all actors; returns the components that are in the assembly."""
        seated = []
        for k, place in enumerate(timeline.part_place_FC[frame_index].tolist()):
            actor = self._scene.parts[k]
            if place == _AWAY:
                actor.show(False)
            elif place == _TABLE:
                actor.place(timeline.part_pose_FC44[frame_index, k])
            else:
                seated.append(k)
                actor.place(seat_C44[k])
        for side in (0, 1):
            if timeline.hand_visible_FH[frame_index, side]:
                self._scene.show_hand(
                    side,
                    float(timeline.hand_curl_FH[frame_index, side]),
                    timeline.hand_pose_FH44[frame_index, side],
                    timeline.elbow_FH3[frame_index, side],
                )
            else:
                self._scene.hide_hand(side)
        if timeline.tool_visible_F[frame_index]:
            self._scene.tool.place(timeline.tool_pose_F44[frame_index])
        else:
            self._scene.tool.show(False)
        return seated

    # ------------------------------------------------------------------ visibility
    def _project(self, seat_C44: Floats, camera_44: Floats) -> _Projection:
        """Where the components' surfaces are in the image, seen through hands and each other."""
        points_CP3 = self._points_CP3 @ seat_C44[:, :3, :3].transpose(0, 2, 1) + seat_C44[:, None, :3, 3]
        pixels_CP2, in_front_CP = self._lens.pixel_of(points_CP3, camera_44)
        inside_CP = self._lens.inside(pixels_CP2, in_front_CP)
        corners = slice(_POINTS_PER_PART, None)
        return _Projection(
            pixels_CP2=pixels_CP2[:, :_POINTS_PER_PART].astype(np.int32),
            inside_CP=inside_CP[:, :_POINTS_PER_PART],
            corners_C82=np.clip(pixels_CP2[:, corners], -(2**20), 2**20).astype(np.int32),
            in_front_C=np.all(in_front_CP[:, corners], axis=1),
        )

    def _assembly_alone(self, ids: NDArray[np.uint8], seated: list[int], places: _Projection) -> NDArray[np.uint8]:
        """The ids if nothing but the assembly were there.

        Nothing can be in front of the assembly if its rectangle shows only itself and the backdrop; then the second
        pass would draw the same and is left out.
        """
        if not seated:
            return np.zeros_like(ids)
        corners = places.corners_C82[seated].reshape(-1, 2)
        x0, y0 = np.maximum(corners.min(axis=0) - 2 * self._supersample, 0)
        x1, y1 = np.maximum(corners.max(axis=0) + 2 * self._supersample, 0)
        own = np.zeros(256, dtype=np.uint8)
        own[[part_id(k) for k in seated]] = 1
        behind = own.copy()
        behind[ID_BACKDROP] = 1
        rectangle = ids[y0:y1, x0:x1]
        if bool(places.in_front_C[seated].all()) and bool(behind[rectangle].all()):
            return np.asarray(ids * own[ids])
        rendered = self._scene.draw_alone(seated)
        return self._lens.bend(np.ascontiguousarray(rendered[..., 3]))

    def _measure(
        self,
        image: NDArray[np.uint8],
        ids: NDArray[np.uint8],
        alone: NDArray[np.uint8],
        seated: list[int],
        places: _Projection,
        marks_CP2: Floats,
    ) -> RenderedFrame:
        n = self.product.n_components
        samples = np.float32(self._supersample**2)
        is_seated = np.zeros(n, dtype=bool)
        is_seated[seated] = True
        span = slice(part_id(0), part_id(n))
        assembly_pixels_C = np.where(is_seated, _counts(alone)[span], 0).astype(np.float32)
        pixels_C = np.where(is_seated, _counts(alone, cv2.compare(ids, alone, cv2.CMP_EQ))[span], 0).astype(np.float32)
        inside_C = np.where(is_seated, places.inside_CP.mean(axis=1), 0).astype(np.float32)
        visible_C = (inside_C > 0).astype(np.float32)
        np.divide(pixels_C, assembly_pixels_C, out=visible_C, where=assembly_pixels_C > 0)
        covers = np.zeros(256, dtype=bool)
        covers[[ID_TOOL, *ID_HANDS, ID_STATIC]] = True
        covers[[part_id(k) for k in range(n) if not is_seated[k]]] = True
        open_CP = places.inside_CP.copy()
        x, y = places.pixels_CP2[open_CP].T
        open_CP[open_CP] = ~covers[ids[y, x]]
        return RenderedFrame(
            image=image,
            visible_share_C=visible_C,
            inside_share_C=inside_C,
            pixels_C=pixels_C / samples,
            assembly_pixels_C=assembly_pixels_C / samples,
            place_visible_share_C=open_CP.mean(axis=1).astype(np.float32),
            places_CP2=marks_CP2,
            box=_box_around(alone, self._supersample),
            hand_share=float(_counts(ids)[list(ID_HANDS)].sum() / ids.size),
        )

    # ------------------------------------------------------------------ image
    def _finish(
        self, fine: NDArray[np.uint8], ids: NDArray[np.uint8], timeline: Timeline, frame_index: int
    ) -> NDArray[np.uint8]:
        """Put the backdrop behind what was drawn, then the camera's effects."""
        self._shadows.cast(self._scene.bodies())
        behind = self._backdrop.image(timeline.camera_pose_F44[frame_index], self._shadows)
        drawn = self._lens.shrink(fine)[..., :3]
        see_through = self._lens.shrink(cv2.compare(ids, ID_BACKDROP, cv2.CMP_EQ))
        behind = cv2.multiply(behind, cv2.merge([see_through] * 3), scale=1 / 255)
        whole = np.asarray(cv2.add(drawn, behind), dtype=np.uint8)
        return self._sensor.expose(whole, self._motion(timeline, frame_index), frame_index)

    def _motion(self, timeline: Timeline, frame_index: int) -> tuple[float, float]:
        """How far the assembly moves in the image while the shutter is open, in pixels right and down."""
        if frame_index == 0:
            return 0.0, 0.0
        ends = []
        for index in (frame_index - 1, frame_index):
            camera_44 = timeline.camera_pose_F44[index]
            x, y, z = ((timeline.object_pose_F44[index, :3, 3] - camera_44[:3, 3]) @ camera_44[:3, :3]).tolist()
            if z > -0.05:
                return 0.0, 0.0
            ends.append((x / -z, y / -z))
        scale = self.look.shutter_seconds * timeline.fps * self.width / (2 * self._lens.half_x)
        return (ends[1][0] - ends[0][0]) * scale, (ends[0][1] - ends[1][1]) * scale


def _counts(ids: NDArray[np.uint8], mask: NDArray[np.uint8] | None = None) -> Floats:
    """How many pixels have each of the 256 ids."""
    return np.asarray(cv2.calcHist([ids], [0], mask, [256], [0, 256]), dtype=np.float32).ravel()


def _box_around(alone: NDArray[np.uint8], supersample: int) -> Box | None:
    """The rectangle of all pixels with an id, in pixels of the image."""
    x, y, width, height = cv2.boundingRect(alone)
    if width == 0:
        return None
    s = float(supersample)
    return Box(x / s, y / s, (x + width) / s, (y + height) / s)
