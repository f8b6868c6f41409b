"""The stage: the table, the parts and the person's seat before anyone moves, and the stretches of time of the play.

Shape legend: C components, H = 2 hands (0 left, 1 right).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stormpsr.synthetic.motion import Floats, pose, rotation
from stormpsr.synthetic.plan import Activity, Plan
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import Traits

FIELD_OF_VIEW_DEGREES = 62.0
FILL = 0.52  # share of the image's width that the object's longest side takes on average
UP = np.array([0.0, 0.0, 1.0])


@dataclass(frozen=True)
class Segment:
    """A stretch of one activity, or of a clear moment that interrupts it."""

    activity: Activity
    start_frame: int
    end_frame: int
    action: int | None
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


def segments_of(plan: Plan) -> list[Segment]:
    """The plan's phases, interrupted by its clear moments. The hands start to leave a little before each of them."""
    leave = max(round(0.45 * plan.fps), 1)
    edges = [(max(m.start_frame - leave, 0), m.end_frame, m.held) for m in plan.moments]
    segments: list[Segment] = []
    for phase in plan.phases:
        cuts = {phase.start_frame, phase.end_frame}
        cuts.update(x for start, end, _ in edges for x in (start, end) if phase.start_frame < x < phase.end_frame)
        ordered = sorted(cuts)
        for start, end in pairwise(ordered):
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


def fastening(segment: Segment, traits: Traits) -> bool:
    """Whether the tool is at work in this segment."""
    return segment.activity is Activity.FASTEN and traits.uses_tool
