"""The scene in the renderer: one actor per part, hand, forearm and tool, one for all that never moves.

What a pixel shows is written into its alpha value (a vertex colour's fourth channel, with blending switched off), so
the colour image and the map of ids come out of the same pass. Actors are made once; a frame sets matrices only.
Table and room are not in here but in `backdrop`: where nothing is drawn, a pixel is black with id 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.synthetic.backdrop import ConvexPieces
from stormpsr.synthetic.hands import CURL_LEVELS, HandMesh, forearm_mesh, forearm_pose, hand_mesh, watch_mesh
from stormpsr.synthetic.look import Look
from stormpsr.synthetic.meshes import Mesh, clutter_mesh, merge, screwdriver
from stormpsr.synthetic.product import Part, Product
from stormpsr.synthetic.vtk_tools import polydata, require_opengl, require_vtk

Floats = NDArray[np.float32]

ID_BACKDROP, ID_STATIC, ID_TOOL = 0, 254, 252
ID_HANDS = (250, 251)  # left, right; the forearm counts as the hand
_GL_BLEND = 0x0BE2


def part_id(component_index: int) -> int:
    """The id of a component's pixels."""
    return component_index + 1


class Actor:
    """A mesh with vertex colours that can be placed, shown and hidden."""

    def __init__(self, mesh: Mesh, colours_V3: Floats, pixel_id: int, shine: float) -> None:
        vtk = require_vtk("drawing synthetic recordings")
        from vtk.util.numpy_support import numpy_to_vtk

        data = polydata(vtk, mesh.vertices_V3, mesh.triangles_T3)
        data.GetPointData().SetNormals(numpy_to_vtk(mesh.normals_V3, deep=True))
        self._data, self._pixel_id = data, pixel_id
        self._matrix = vtk.vtkMatrix4x4()
        self.pose_44 = np.eye(4, dtype=np.float32)
        self.visible = True
        mapper = vtk.vtkPolyDataMapper()
        mapper.SetInputData(data)
        mapper.SetColorModeToDirectScalars()
        self.vtk_actor = vtk.vtkActor()
        self.vtk_actor.SetMapper(mapper)
        self.vtk_actor.SetUserMatrix(self._matrix)
        self.vtk_actor.ForceOpaqueOn()
        # half of a closed body's triangles face away: leaving them out saves a third of the time
        self.vtk_actor.GetProperty().SetBackfaceCulling(mesh.closed)
        self.recolour(colours_V3, shine)

    def recolour(self, colours_V3: Floats, shine: float) -> None:
        from vtk.util.numpy_support import numpy_to_vtk

        rgba = np.empty((len(colours_V3), 4), dtype=np.uint8)
        rgba[:, :3] = np.clip(colours_V3 * 255, 0, 255)
        rgba[:, 3] = self._pixel_id
        self._data.GetPointData().SetScalars(numpy_to_vtk(rgba, deep=True))
        appearance = self.vtk_actor.GetProperty()
        appearance.SetSpecular(0.55 * shine)
        appearance.SetSpecularPower(8 + 40 * shine)

    def set_ambient(self, share: float) -> None:
        self.vtk_actor.GetProperty().SetAmbient(share)

    def place(self, pose_44: Floats) -> None:
        self.show(True)
        self.pose_44 = pose_44
        self._matrix.DeepCopy(pose_44.ravel().tolist())

    def show(self, visible: bool) -> None:
        if visible != self.visible:
            self.visible = visible
            self.vtk_actor.SetVisibility(visible)


@dataclass(frozen=True, eq=False)
class _Hand:
    """A hand with one degree of curl."""

    shape: HandMesh
    actor: Actor
    hull: ConvexPieces


class Scene:
    """All actors of a product in a look, and the window they are drawn in. Call `close` at the end."""

    def __init__(self, product: Product, look: Look, width: int, height: int) -> None:
        self.product = product
        self._vtk = require_vtk("drawing synthetic recordings")
        self._window, self._renderer, self._ids_renderer = self._open(width, height)
        self.width, self.height = width, height
        self._pixels = self._vtk.vtkUnsignedCharArray()
        self.parts = [
            Actor(part.mesh, np.ones_like(part.mesh.vertices_V3), part_id(k), 0.3)
            for k, part in enumerate(product.parts)
        ]
        self._hands: dict[tuple[int, int], _Hand] = {}  # (side, degree of curl): made when first needed
        self._shown_hands: list[_Hand | None] = [None, None]
        tool_mesh, self._tool_is_handle = screwdriver()
        self.tool = Actor(tool_mesh, np.ones_like(tool_mesh.vertices_V3), ID_TOOL, 0.6)
        self.part_hulls = [ConvexPieces.of([piece.mesh.vertices_V3 for piece in part.pieces]) for part in product.parts]
        self.tool_hull = ConvexPieces.of([tool_mesh.vertices_V3], limit=16)
        for actor in self._moving():
            self._renderer.AddActor(actor.vtk_actor)
        # a renderer of its own for the second pass: no light, no hands, nothing to hide and show again
        self._ids_only = [
            Actor(part.mesh, np.zeros_like(part.mesh.vertices_V3), part_id(k), 0.0)
            for k, part in enumerate(product.parts)
        ]
        for actor in self._ids_only:
            actor.vtk_actor.GetProperty().LightingOff()
            self._ids_renderer.AddActor(actor.vtk_actor)
        self.forearms: list[Actor] = []
        self._look_actors: list[Any] = []
        self.static_hulls: list[tuple[Floats, ConvexPieces]] = []
        self.set_look(look)

    def _open(self, width: int, height: int) -> tuple[Any, Any, Any]:
        # Rasterising in the calling thread: at these sizes Mesa's own threads cost more than they bring.
        os.environ.setdefault("LP_NUM_THREADS", "0")
        require_opengl()
        vtk = self._vtk
        warns = vtk.vtkObject.GetGlobalWarningDisplay()
        vtk.vtkObject.GlobalWarningDisplayOff()  # looking for a screen warns where there is none
        window = vtk.vtkRenderWindow()
        window.SetOffScreenRendering(True)
        window.SetMultiSamples(0)
        window.SetAlphaBitPlanes(True)
        window.SetSize(width, height)
        renderers = [vtk.vtkRenderer(), vtk.vtkRenderer()]
        for renderer in renderers:
            renderer.AutomaticLightCreationOff()
            renderer.SetBackground(0.0, 0.0, 0.0)
            renderer.SetBackgroundAlpha(0.0)
            window.AddRenderer(renderer)
        renderers[1].DrawOff()
        renderers[1].SetActiveCamera(renderers[0].GetActiveCamera())
        window.Render()
        vtk.vtkObject.SetGlobalWarningDisplay(warns)
        state = window.GetState()
        for renderer in renderers:  # ids live in alpha: it must arrive as it is
            renderer.AddObserver("StartEvent", lambda *_: state.vtkglDisable(_GL_BLEND))
        return window, renderers[0], renderers[1]

    def _moving(self) -> Iterable[Actor]:
        yield from self.parts
        for hand in self._hands.values():
            yield hand.actor
        yield self.tool

    # ------------------------------------------------------------------ looks
    def set_look(self, look: Look) -> None:
        """Colours, light and everything on the table; meshes of parts and hands stay."""
        self.look = look
        for actor in self._look_actors:
            self._renderer.RemoveActor(actor)
        self._look_actors = []
        self._renderer.RemoveAllLights()
        for light in look.lights:
            lamp = self._vtk.vtkLight()
            lamp.SetLightTypeToSceneLight()
            lamp.PositionalOff()
            lamp.SetPosition(*light.direction)
            lamp.SetFocalPoint(0, 0, 0)
            lamp.SetColor(*light.colour)
            lamp.SetIntensity(light.strength)
            self._renderer.AddLight(lamp)
        for k, part in enumerate(self.product.parts):
            shine = float(np.mean([self.product.materials[piece.material].shine for piece in part.pieces])) * look.shine
            self.parts[k].recolour(self._part_colours(part, k), shine)
        for hand in self._hands.values():
            self._colour_hand(hand)
        self.tool.recolour(np.where(self._tool_is_handle[:, None], look.tool_colour, 0.75).astype(np.float32), 0.7)
        self._add_forearms()
        self._add_static()
        for actor in (*self._moving(), *self.forearms):
            actor.set_ambient(look.ambient)

    def _part_colours(self, part: Part, component_index: int) -> Floats:
        shade = self.look.part_shade[component_index]
        colours = [np.asarray(self.look.material_colours[piece.material], dtype=np.float32) for piece in part.pieces]
        counts = [len(piece.mesh.vertices_V3) for piece in part.pieces]
        return np.repeat(np.stack(colours) * shade, counts, axis=0)

    def _colour_hand(self, hand: _Hand) -> None:
        hand.actor.recolour(self._hand_colours(hand.shape), 0.25 if self.look.glove else 0.15)
        hand.actor.set_ambient(self.look.ambient)

    def _hand_colours(self, hand: HandMesh) -> Floats:
        if self.look.glove is not None:
            return np.tile(np.asarray(self.look.glove, dtype=np.float32), (len(hand.palm_V), 1))
        skin = np.asarray(self.look.skin)
        pale = 0.55 * skin + 0.45 * np.array([0.86, 0.66, 0.58])
        nail = 0.45 * skin + 0.55 * np.array([0.93, 0.76, 0.72])
        rng = np.random.default_rng(3)
        colours = skin + hand.palm_V[:, None] * 0.7 * (pale - skin)
        colours = colours + hand.nail_V[:, None] * (nail - colours)
        return np.asarray((colours * (1 + 0.03 * rng.standard_normal((len(colours), 1)))), dtype=np.float32)

    def _add_forearms(self) -> None:
        look = self.look
        mesh, is_sleeve = forearm_mesh(look.sleeve_share if look.sleeve is not None else 0.0)
        skin = np.asarray(look.skin, dtype=np.float32)
        cloth = np.asarray(look.sleeve if look.sleeve is not None else look.skin, dtype=np.float32)
        colours = np.where(is_sleeve[:, None], cloth, skin)
        if look.glove is not None:  # the cuff
            cuff = (mesh.vertices_V3[:, 0] > -0.2) & ~is_sleeve
            colours[cuff] = np.asarray(look.glove, dtype=np.float32)
        self.forearms = [Actor(mesh, colours, ID_HANDS[side], 0.08) for side in (0, 1)]
        if look.watch is not None and look.glove is None:
            watch = watch_mesh()
            worn = np.tile(np.asarray(look.watch, dtype=np.float32), (len(watch.vertices_V3), 1))
            self.forearms[0] = Actor(merge([mesh, watch]), np.concatenate([colours, worn]), ID_HANDS[0], 0.2)
        self.forearm_hull = ConvexPieces.of([mesh.vertices_V3])
        for forearm in self.forearms:
            self._add(forearm.vtk_actor)

    def _add_static(self) -> None:
        """Clutter and spare parts as one actor."""
        look = self.look
        meshes, colours, self.static_hulls = [], [], []
        for thing in look.clutter:
            mesh = clutter_mesh(thing.kind, thing.scale)
            meshes.append(mesh.moved(thing.pose_44))
            colours.append(np.tile(np.asarray(thing.colour, dtype=np.float32), (len(mesh.vertices_V3), 1)))
            self.static_hulls.append((thing.pose_44, ConvexPieces.of([mesh.vertices_V3])))
        for spare in look.spares:
            part = self.product.parts[spare.component_index]
            meshes.append(part.mesh.moved(spare.pose_44))
            colours.append(self._part_colours(part, spare.component_index))
            self.static_hulls.append((spare.pose_44, self.part_hulls[spare.component_index]))
        if meshes:
            static = Actor(merge(meshes), np.concatenate(colours), ID_STATIC, 0.4)
            static.set_ambient(look.ambient)
            self._add(static.vtk_actor)

    def _add(self, actor: Any) -> None:
        self._look_actors.append(actor)
        self._renderer.AddActor(actor)

    # ------------------------------------------------------------------ hands
    def show_hand(self, side: int, curl: float, wrist_44: Floats, elbow_3: Floats) -> None:
        """Show a hand (0 left, 1 right) with its forearm."""
        level = round(min(max(curl, 0.0), 1.0) * (CURL_LEVELS - 1))
        if (side, level) not in self._hands:
            self._make_hands(level)
        hand, shown = self._hands[side, level], self._shown_hands[side]
        if shown is not None and shown is not hand:
            shown.actor.show(False)
        self._shown_hands[side] = hand
        scale = self.look.hand_scale
        hand.actor.place(wrist_44 * np.array([scale, scale, scale, 1.0], dtype=np.float32))
        self.forearms[side].place(forearm_pose(wrist_44, elbow_3, scale))

    def hide_hand(self, side: int) -> None:
        shown = self._shown_hands[side]
        if shown is not None:
            shown.actor.show(False)
        self._shown_hands[side] = None
        self.forearms[side].show(False)

    def _make_hands(self, level: int) -> None:
        right = hand_mesh(level / (CURL_LEVELS - 1))
        for side, shape in enumerate((right.mirrored(), right)):
            actor = Actor(shape.mesh, np.ones_like(shape.mesh.vertices_V3), ID_HANDS[side], 0.1)
            actor.show(False)
            self._hands[side, level] = _Hand(shape, actor, ConvexPieces.of([shape.mesh.vertices_V3]))
            self._colour_hand(self._hands[side, level])
            self._renderer.AddActor(actor.vtk_actor)

    # ------------------------------------------------------------------ drawing
    def bodies(self) -> list[tuple[Floats, ConvexPieces]]:
        """Pose and convex pieces of everything that moves and is shown: what casts shadows."""
        found = [(a.pose_44, pieces) for a, pieces in zip(self.parts, self.part_hulls, strict=True) if a.visible]
        for hand, forearm in zip(self._shown_hands, self.forearms, strict=True):
            if hand is not None:
                found += [(hand.actor.pose_44, hand.hull), (forearm.pose_44, self.forearm_hull)]
        return [*found, (self.tool.pose_44, self.tool_hull)] if self.tool.visible else found

    def aim(self, camera_44: Floats, half_y: float) -> None:
        """Put the camera somewhere; `half_y` is half the image's height at distance 1."""
        camera = self._renderer.GetActiveCamera()
        eye = camera_44[:3, 3].astype(float)
        camera.SetPosition(*eye)
        camera.SetFocalPoint(*(eye - camera_44[:3, 2]))
        camera.SetViewUp(*camera_44[:3, 1].astype(float))
        camera.SetViewAngle(float(np.rad2deg(2 * np.arctan(half_y))))
        camera.SetClippingRange(0.03, 6.0)

    def draw(self) -> NDArray[np.uint8]:
        """Red, green, blue and id of every pixel, lowest row first."""
        self._window.Render()
        return self._read_pixels()

    def draw_alone(self, component_indices: Iterable[int]) -> NDArray[np.uint8]:
        """The same with these components only, where they are now, and without shading: for their ids."""
        shown = set(component_indices)
        for k, (actor, part) in enumerate(zip(self._ids_only, self.parts, strict=True)):
            if k in shown:
                actor.place(part.pose_44)
            else:
                actor.show(False)
        self._renderer.DrawOff()
        self._ids_renderer.DrawOn()
        self._window.Render()
        self._ids_renderer.DrawOff()
        self._renderer.DrawOn()
        return self._read_pixels()

    def _read_pixels(self) -> NDArray[np.uint8]:
        """What was drawn last, as a view that the next drawing overwrites."""
        from vtk.util.numpy_support import vtk_to_numpy

        self._window.GetRGBACharPixelData(0, 0, self.width - 1, self.height - 1, 0, self._pixels)
        return np.asarray(vtk_to_numpy(self._pixels).reshape(self.height, self.width, 4))

    def close(self) -> None:
        """Give the window's memory back."""
        for renderer in (self._renderer, self._ids_renderer):
            renderer.RemoveAllObservers()
            renderer.RemoveAllViewProps()
            self._window.RemoveRenderer(renderer)
        self._window.Finalize()
