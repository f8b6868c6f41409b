"""The contract between the person (who decides) and the renderer (who draws), and the stage before anyone moves.

Shape legend: F frames, C components of the product (in the procedure's order), H = 2 hands (0 left, 1 right).
All poses are 4x4 matrices from the local frame to the world. The world is right-handed, in metres, z up, with the
table's surface at z = 0 and the seated person at negative y, looking towards positive y.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stormpsr.synthetic.actions import Action
from stormpsr.synthetic.motion import Floats, pose, rotation
from stormpsr.synthetic.plan import Activity, Phase, Plan
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import Traits

FIELD_OF_VIEW_DEGREES = 62.0
FILL = 0.52  # share of the image's width that the object's longest side takes on average
UP = np.array([0.0, 0.0, 1.0])


class PartPlace(IntEnum):
    """Where a component is. The state label follows from it: SEATED is 1, WRONG is -1, the rest is 0."""

    TABLE = 0  # lies on the table, or is held in a hand on its way: `part_pose_FC44` says where
    SEATED = 1  # in the assembly, correctly: drawn at its assembled pose relative to `object_pose_F44`
    WRONG = 2  # in the assembly, wrongly: drawn at the wrong pose number `wrong_choice_FC`
    AWAY = 3  # not in the scene


@dataclass(frozen=True)
class Timeline:
    """One recording before it is drawn."""

    fps: float
    camera_pose_F44: NDArray[np.float32]  # OpenGL convention: looks along its -z, its +y is up in the image
    object_pose_F44: NDArray[np.float32]  # the assembly's frame
    part_place_FC: NDArray[np.uint8]  # PartPlace
    part_pose_FC44: NDArray[np.float32]  # used where the place is TABLE
    wrong_choice_FC: NDArray[np.uint8]  # which of the component's wrong poses, where the place is WRONG
    hand_pose_FH44: NDArray[np.float32]  # the wrist's frame: +x along the fingers, +z out of the back of the hand
    hand_curl_FH: NDArray[np.float32]  # 0 flat open hand .. 1 fist; fingers around a part are about 0.6
    hand_visible_FH: NDArray[np.bool_]
    elbow_FH3: NDArray[np.float32]  # where the forearm comes from
    tool_pose_F44: NDArray[np.float32]  # +x from the handle to the tip, origin at the tip
    tool_visible_F: NDArray[np.bool_]
    activity_F: NDArray[np.uint8]  # Activity, for looking at and for statistics

    @property
    def n_frames(self) -> int:
        return int(self.camera_pose_F44.shape[0])

    def states_FC(self) -> NDArray[np.int8]:
        """The label of every component in every frame: 1 correct, -1 wrong, 0 absent."""
        states = np.zeros(self.part_place_FC.shape, dtype=np.int8)
        states[self.part_place_FC == PartPlace.SEATED] = 1
        states[self.part_place_FC == PartPlace.WRONG] = -1
        return states


@dataclass(frozen=True)
class Segment(Phase):
    """A stretch of one activity, or of a clear moment that interrupts it."""

    clear: bool = False  # the hands leave the object open to view
    held: bool = False  # ... and one of them holds it up from below


@dataclass(frozen=True)
class Stage:
    """Where things are before anyone moves. Lengths in metres."""

    size: float  # longest side of the finished product
    centre_3: Floats  # its middle, in the assembly's frame
    half_3: Floats  # half of its bounding box, in the assembly's frame
    home_3: Floats  # where it stands on the table
    eye_3: Floats  # where the eyes are on average
    spot_C44: Floats  # where every loose part lies
    tool_44: Floats  # where the tool lies
    elbow_H3: Floats


@dataclass
class Play:
    """All that is known while a plan becomes movement. The poses are filled in one after the other."""

    plan: Plan
    product: Product
    traits: Traits
    stage: Stage
    segments: list[Segment]
    bits_FC: NDArray[np.int8]
    occlusion: float
    object_pose: Floats = field(init=False)
    camera_pose: Floats = field(init=False)
    tool_pose: Floats = field(init=False)

    @property
    def first(self) -> int:
        """Index of the dominant hand."""
        return 1 if self.traits.right_handed else 0

    def covers(self, draw: float) -> bool:
        """Whether a holding hand lies over the object rather than at its edge."""
        return bool(draw < np.interp(self.occlusion, [0.0, 0.25, 0.5, 1.0], [0.1, 0.6, 0.97, 1.0]))

    def lead(self, action: Action) -> int:
        """The hand that does the work: the dominant one, unless the part lies on the other side."""
        side = self.stage.spot_C44[action.components[0], 0, 3] - self.stage.home_3[0]
        across = side * (1.0 if self.first else -1.0) < -0.3 * self.stage.size
        tool = self.traits.uses_tool and any(self.product.parts[k].needs_tool for k in action.components)
        return 1 - self.first if across and not tool else self.first

    def leads(self, segment: Segment, hand: int) -> bool:
        """Whether the hand is the one that does the work of a segment."""
        return hand == (self.first if segment.action is None else self.lead(self.plan.actions[segment.action]))

    def carried(self, segment: Segment, hand: int) -> int | None:
        """Which component the hand is busy with in a segment, if any."""
        if segment.action is None:
            return None
        components = self.plan.actions[segment.action].components
        if self.leads(segment, hand):
            return components[0]
        return components[1] if len(components) > 1 else None

    def fastening(self, segment: Segment) -> bool:
        """Whether the tool is at work in a segment."""
        return segment.activity is Activity.FASTEN and self.traits.uses_tool

    def seat_of(self, action: Action, component: int) -> Floats:
        """The part's pose in the assembly's frame that an action puts it into, or takes it from."""
        return self.product.pose_of(component, action.bit, action.wrong_choice).astype(np.float64)

    def middle_of(self, component: int) -> Floats:
        """The middle of a part in its own frame: what the fingertips hold."""
        return np.asarray(self.product.parts[component].bounds_23.mean(axis=0), dtype=np.float64)


def segments_of(plan: Plan) -> list[Segment]:
    """The plan's phases, interrupted by its clear moments. The hands start to leave a little before each of them."""
    leave = max(round(0.45 * plan.fps), 1)
    edges = [(max(m.start_frame - leave, 0), m.end_frame, m.held) for m in plan.moments]
    segments: list[Segment] = []
    for phase in plan.phases:
        cuts = {phase.start_frame, phase.end_frame}
        cuts.update(x for start, end, _ in edges for x in (start, end) if phase.start_frame < x < phase.end_frame)
        for start, end in pairwise(sorted(cuts)):
            moment = next((m for m in edges if m[0] <= start < m[1]), None)
            open_to_view = moment is not None and phase.activity <= Activity.GRASP
            held = open_to_view and moment is not None and moment[2] and phase.activity < Activity.REACH
            segments.append(Segment(phase.activity, start, end, phase.action, open_to_view, held))
    return segments


# ---------------------------------------------------------------------- before anyone moves
def set_the_stage(product: Product, traits: Traits, rng: np.random.Generator) -> Stage:
    """Lay out the table and seat the person in front of it."""
    low, high = product.bounds_23.astype(np.float64)
    size = float(np.max(high - low))
    home = np.array([rng.normal(0.0, 0.05 * size), rng.normal(0.0, 0.05 * size), 0.0])
    distance = size / (2.0 * np.tan(np.radians(FIELD_OF_VIEW_DEGREES / 2)) * FILL) * traits.eye_distance
    pitch = np.radians(traits.eye_pitch_degrees)
    middle = home + np.array([0.0, 0.0, 0.5 * (high[2] - low[2])])
    eye = middle + distance * np.array([rng.normal(0.0, 0.06), -np.cos(pitch), np.sin(pitch)])
    elbows = eye + np.array([[-0.23, -0.05, -0.20], [0.23, -0.05, -0.20]])
    tool_side = 1.0 if traits.right_handed else -1.0
    # the tip points to the object, the handle to the person's own side
    tool_turn = (np.pi if traits.right_handed else 0.0) + rng.uniform(-0.6, 0.6)
    return Stage(
        size=size,
        centre_3=0.5 * (low + high),
        half_3=0.5 * (high - low),
        home_3=home,
        eye_3=eye,
        spot_C44=_spread_parts(product, home, size, rng),
        tool_44=pose(rotation(UP, tool_turn), home + np.array([tool_side * 0.75 * size, 0.3 * size, 0.01])),
        elbow_H3=elbows,
    )


def _spread_parts(product: Product, home: Floats, size: float, rng: np.random.Generator) -> Floats:
    """Loose parts lie around the object, some of them in view and some beyond the edge of the image."""
    taken: list[tuple[Floats, float]] = [(home[:2], 0.62 * size)]
    spots = np.empty((product.n_components, 4, 4))
    for k, part in enumerate(product.parts):
        room = float(part.radius)
        best, best_free = home[:2], -np.inf
        for _ in range(40):
            angle = rng.uniform(-0.35, np.pi + 0.35)  # beside and behind the object, not in the person's lap
            radius = size * rng.uniform(0.7, 1.7)
            candidate = home[:2] + radius * np.array([1.2 * np.cos(angle), 0.9 * np.sin(angle)])
            free = min(float(np.linalg.norm(candidate - where)) - needs - room for where, needs in taken)
            if free > best_free:
                best, best_free = candidate, free
            if free > 0.005:
                break
        taken.append((best, room))
        lying = pose(rotation(UP, rng.uniform(0, 2 * np.pi)), np.array([*best, 0.0]))
        spots[k] = lying @ part.rest_44.astype(np.float64)
    return spots
