"""What the hands do, and the parts they carry.

The first hand (the dominant one) fetches, fits and fastens; the second one holds the object, from above or at its
edge, and fetches too when two parts are completed in one go. A carried part sits at the fingertips of its hand from
the grasp to the completion, so it can neither float nor lag.

Shape legend: F frames, L frames of one segment, C components, H = 2 hands (0 left, 1 right).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stormpsr.procedure.model import StepKind
from stormpsr.synthetic.actions import Action
from stormpsr.synthetic.motion import (
    Anchor,
    Floats,
    apply,
    follow,
    frame_from_axes,
    lowpass,
    minimum_jerk,
    pose,
    slerp,
    slow_noise,
)
from stormpsr.synthetic.plan import Activity, Plan
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import Traits
from stormpsr.synthetic.stage import UP, Segment, Stage, fastening
from stormpsr.synthetic.timeline import PartPlace

FINGERTIPS_3 = np.array([0.112, 0.006, -0.062])  # in the frame of a wrist of scale 1, fingers curled around a part
KNUCKLES_3 = np.array([0.1, 0.0, -0.035])  # what lies over a part that a hand covers
PALM_3 = np.array([0.07, 0.0, -0.02])  # what an object rests on that is held up from below
HANDLE_METRES = 0.15  # from the tip of the tool to where the hand holds it
WORKING = frozenset({Activity.FIT, Activity.FASTEN, Activity.LOOSEN})
STEADY = frozenset(  # in these the holding hand stays where it was
    {Activity.LOOK, Activity.REACH, Activity.GRASP, Activity.BRING, Activity.RELEASE, Activity.PUT_DOWN}
)


@dataclass(frozen=True)
class Reach:
    """All that is known before the hands are placed."""

    plan: Plan
    product: Product
    stage: Stage
    traits: Traits
    segments: tuple[Segment, ...]
    bits_FC: NDArray[np.int8]
    object_pose: Floats
    camera_pose: Floats
    tool_pose: Floats
    occlusion: float

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


def seat_of(reach: Reach, action: Action, component: int) -> Floats:
    """The part's pose in the assembly's frame that an action puts it into, or takes it from."""
    if action.kind is StepKind.INCORRECT:
        return reach.product.pose_of(component, -1, action.wrong_choice).astype(np.float64)
    return reach.product.pose_of(component, 1).astype(np.float64)


def middle_of(reach: Reach, component: int) -> Floats:
    """The middle of a part in its own frame: what the fingertips hold."""
    return np.asarray(reach.product.parts[component].bounds_23.mean(axis=0), dtype=np.float64)


# ---------------------------------------------------------------------- hands
def move_hands(reach: Reach, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Wrist poses (F, H, 4, 4) and elbows (F, H, 3)."""
    n = reach.plan.n_frames
    wrists = np.empty((n, 2, 4, 4))
    elbows = np.empty((n, 2, 3))
    body = lowpass(reach.camera_pose[:, :3, 3] - reach.stage.eye_3, 0.5 * reach.plan.fps)
    for hand in (0, 1):
        draws_S = rng.random((len(reach.segments), 8))
        jiggle = slow_noise(rng, n, 0.35 * reach.plan.fps, 3)
        elbow = reach.stage.elbow_H3[hand] + 0.5 * body
        anchors = [Anchor(0, 1, _rest(reach, hand, np.full(8, 0.5), elbow[0]))]
        draws = draws_S[0]
        for segment, fresh in zip(reach.segments, draws_S, strict=True):
            draws = draws if segment.activity in STEADY and not segment.clear else fresh
            anchors += _goals(reach, segment, hand, draws, elbow, jiggle)
        wrists[:, hand] = follow(anchors, n)
        elbows[:, hand] = elbow + 0.25 * (wrists[:, hand, :3, 3] - elbow) * np.array([1.0, 0.2, 0.0])
    return wrists, elbows


def _goals(
    reach: Reach, segment: Segment, hand: int, draws: NDArray[np.float64], elbow_F3: Floats, jiggle: Floats
) -> list[Anchor]:
    """Where a hand goes in one segment."""
    span = slice(segment.start_frame, segment.end_frame)
    fps, length = reach.plan.fps, segment.end_frame - segment.start_frame
    elbow = elbow_F3[span]
    component = reach.carried(segment, hand)
    brisk = max(round((0.35 + 0.25 * draws[0]) * fps), 1)

    def at(goal: Floats, travel: int = brisk, lift: float = 0.02) -> list[Anchor]:
        return [Anchor(segment.start_frame, travel, goal, lift)]

    if component is not None and segment.activity in (Activity.REACH, Activity.GRASP):
        if reach.plan.actions[segment.action or 0].kind is StepKind.REMOVE:
            return at(_work_at(reach, segment, hand, component, elbow, jiggle[span]), length)
        spot = apply(reach.stage.spot_C44[component], middle_of(reach, component)) + np.array([0.0, 0.0, 0.006])
        goal = hand_at(reach, hand, np.tile(spot, (length, 1)), elbow, roll=0.25, steep=0.55)
        return at(goal, max(length - 1, 1) if segment.activity is Activity.REACH else 2, 0.05)
    if segment.clear:
        if segment.held and not reach.leads(segment, hand):
            return at(_under(reach, hand, span, elbow))
        return at(_rest(reach, hand, draws, elbow))
    if fastening(segment, reach.traits) and reach.leads(segment, hand):
        return _with_tool(reach, segment, hand, elbow)
    if component is not None and segment.activity in (Activity.BRING, *WORKING):
        travel = max(length - 1, 1) if segment.activity is Activity.BRING else max(round(0.25 * fps), 1)
        return at(_work_at(reach, segment, hand, component, elbow, jiggle[span]), travel, 0.04)
    if reach.leads(segment, hand) and segment.activity is Activity.PUT_DOWN and component is not None:
        return _put_down(reach, segment, hand, component, elbow)
    if reach.leads(segment, hand) and segment.activity is Activity.RELEASE:
        return at(_lift_off(reach, segment, hand, draws, elbow))
    if reach.leads(segment, hand) and segment.activity is Activity.RUMMAGE:
        return _rummage(reach, segment, hand, draws, elbow)
    if reach.leads(segment, hand) and segment.activity is Activity.HAND_TO_HEAD:
        side = 1.0 if hand else -1.0
        head = reach.camera_pose[span, :3, 3] + np.array([0.09 * side, 0.03, 0.03])
        return at(hand_at(reach, hand, head, elbow, roll=0.6, steep=-0.4), round(0.8 * fps))
    if reach.leads(segment, hand) and segment.activity in (Activity.PAUSE, Activity.LOOK) and draws[1] < 0.6:
        return at(_rest(reach, hand, draws, elbow))
    if segment.activity in WORKING and segment.action is not None:
        return at(_beside(reach, segment, hand, draws, elbow))
    return at(_hold(reach, segment, hand, draws, elbow))


def hand_at(reach: Reach, hand: int, tip_L3: Floats, elbow_L3: Floats, *, roll: float, steep: float) -> Floats:
    """A wrist pose whose fingertips are at a point: the fingers point away from the elbow, `steep` bends them down.

    `roll` turns the back of the hand from facing up (0) towards the outside (1).
    """
    outward = np.array([1.0 if hand else -1.0, 0.0, 0.0])
    fingers = tip_L3 - elbow_L3
    fingers = fingers / np.linalg.norm(fingers, axis=-1, keepdims=True)
    fingers = fingers - steep * UP
    turn = frame_from_axes(fingers, (1.0 - roll) * UP + roll * outward - 0.15 * np.array([0.0, 1.0, 0.0]))
    return pose(turn, tip_L3 - np.einsum("...ij,j->...i", turn, FINGERTIPS_3 * reach.traits.hand_scale))


def fingertips(reach: Reach, wrist_44: Floats) -> Floats:
    """Where the fingertips of a wrist pose are."""
    return apply(wrist_44, FINGERTIPS_3 * reach.traits.hand_scale)


def _rest(reach: Reach, hand: int, draws: NDArray[np.float64], elbow: Floats) -> Floats:
    """Beside the object, near the edge of the image or beyond it."""
    side = 1.0 if hand else -1.0
    reach_out = np.array([side * (0.85 + 0.35 * draws[2]), -0.35 + 0.3 * draws[3], 0.05])
    tip = reach.stage.home_3 + reach.stage.size * reach_out
    return hand_at(reach, hand, np.broadcast_to(tip, elbow.shape), elbow, roll=0.3, steep=0.2)


def _under(reach: Reach, hand: int, span: slice, elbow: Floats) -> Floats:
    """Holds the object up from below, flat against it: the object hides the hand, not the other way round."""
    below = reach.stage.centre_3 - np.array([0.0, 0.0, reach.stage.half_3[2] + 0.012])
    palm = apply(reach.object_pose[span], below) + reach.stage.size * np.array([0.06 if hand else -0.06, 0.0, 0.0])
    down = -reach.object_pose[span, :3, 2]
    fingers = palm - elbow
    fingers = fingers - np.sum(fingers * down, axis=-1, keepdims=True) * down
    turn = frame_from_axes(fingers, down)
    return pose(turn, palm - turn @ (PALM_3 * reach.traits.hand_scale))


def _hold(reach: Reach, segment: Segment, hand: int, draws: NDArray[np.float64], elbow: Floats) -> Floats:
    """A hand on the object: over one of the seated parts, or (mostly the free one) at the edge."""
    span = slice(segment.start_frame, segment.end_frame)
    objects = reach.object_pose[span]
    if reach.covers(draws[4]) and (draws[3] < 0.4 or not reach.leads(segment, hand)):
        point = apply(objects, _grip_point(reach, segment.start_frame, draws[5]))
        return _over(reach, hand, point, reach.camera_pose[span, :3, 3], elbow, draws)
    side = 1.0 if hand else -1.0
    half = np.abs(objects[:, 0, :3]) @ reach.stage.half_3
    tip = apply(objects, reach.stage.centre_3)
    tip = tip + side * half[:, None] * np.array([0.95, 0.0, 0.0]) - 0.3 * reach.stage.half_3[2] * UP
    return hand_at(reach, hand, tip, elbow, roll=0.85, steep=0.15)


def _beside(reach: Reach, segment: Segment, hand: int, draws: NDArray[np.float64], elbow: Floats) -> Floats:
    """The other hand during work: it steadies the object close to the spot, over it or at the edge."""
    if segment.action is None or not reach.covers(draws[4]):
        return _hold(reach, segment, hand, draws, elbow)
    component = reach.plan.actions[segment.action].components[0]
    objects = reach.object_pose[segment.start_frame : segment.end_frame]
    middle, spot = reach.stage.centre_3, reach.product.parts[component].fit_point_3.astype(np.float64)
    point = apply(objects, spot + (0.15 + 0.35 * draws[5]) * (middle - spot))
    side = np.array([1.0 if hand else -1.0, 0.0, 0.0])
    eye = reach.camera_pose[segment.start_frame : segment.end_frame, :3, 3]
    return _over(reach, hand, point + (0.02 + 0.03 * draws[2]) * side, eye, elbow, draws)


def _grip_point(reach: Reach, frame: int, draw: float) -> Floats:
    """Where people hold an assembly: at one of the parts that are on it, rather than at its largest one."""
    seated = [int(k) for k in np.flatnonzero(reach.bits_FC[frame])]
    if not seated:
        return reach.stage.centre_3
    parts = sorted((reach.product.parts[k] for k in seated), key=lambda part: part.radius)
    parts = parts[:-1] if len(parts) > 1 else parts
    return parts[int(draw * len(parts))].fit_point_3.astype(np.float64)


def _over(
    reach: Reach, hand: int, point_L3: Floats, eye_L3: Floats, elbow: Floats, draws: NDArray[np.float64]
) -> Floats:
    """The bent fingers lie over a point, between it and the person's eyes."""
    towards = eye_L3 - point_L3
    towards = towards / np.linalg.norm(towards, axis=-1, keepdims=True)
    over = point_L3 + (0.02 + 0.01 * draws[6]) * towards
    at_tips = hand_at(reach, hand, over, elbow, roll=0.15 + 0.3 * draws[7], steep=0.3)
    shift = np.einsum("...ij,j->...i", at_tips[..., :3, :3], (FINGERTIPS_3 - KNUCKLES_3) * reach.traits.hand_scale)
    at_tips[..., :3, 3] += shift
    return at_tips


def _work_at(reach: Reach, segment: Segment, hand: int, component: int, elbow: Floats, jiggle: Floats) -> Floats:
    """The fingertips hold the part at its seat, wriggling less and less until it is home."""
    assert segment.action is not None
    action = reach.plan.actions[segment.action]
    objects = reach.object_pose[segment.start_frame : segment.end_frame]
    seat = objects @ seat_of(reach, action, component)
    point = apply(seat, middle_of(reach, component))
    approach = np.einsum("lij,j->li", objects[:, :3, :3], reach.product.parts[component].approach_3.astype(np.float64))
    done = np.arange(1, len(objects) + 1)[:, None] / len(objects)
    if segment.activity is Activity.BRING or segment.activity is Activity.LOOSEN or action.kind is StepKind.REMOVE:
        offset = 0.03 * approach if segment.activity is Activity.BRING else np.zeros_like(approach)
    else:
        home = minimum_jerk(done)  # 1 in the last frame: the part is on its seat when it is let go
        offset = (0.03 * approach + 0.008 * jiggle) * (1.0 - home)
    return hand_at(reach, hand, point + offset, elbow, roll=0.3, steep=0.45)


def _with_tool(reach: Reach, segment: Segment, hand: int, elbow: Floats) -> list[Anchor]:
    """Fetch the tool, then hold its handle wherever it goes."""
    tool = reach.tool_pose[segment.start_frame : segment.end_frame]
    handle = tool[:, :3, 3] - HANDLE_METRES * tool[:, :3, 0]
    goal = hand_at(reach, hand, handle, elbow, roll=0.5, steep=0.25)
    fetch = max((segment.end_frame - segment.start_frame) // 4, 1)
    return [Anchor(segment.start_frame, fetch, goal, lift_metres=0.05)]


def _lift_off(reach: Reach, segment: Segment, hand: int, draws: NDArray[np.float64], elbow: Floats) -> Floats:
    """After a completion: put the tool back, or draw the hand up and back."""
    span = slice(segment.start_frame, segment.end_frame)
    before = [s for s in reach.segments if s.end_frame == segment.start_frame]
    if before and fastening(before[0], reach.traits):
        tool = reach.tool_pose[span]
        return hand_at(reach, hand, tool[:, :3, 3] - HANDLE_METRES * tool[:, :3, 0], elbow, roll=0.5, steep=0.25)
    return _rest(reach, hand, draws, elbow)


def _put_down(reach: Reach, segment: Segment, hand: int, component: int, elbow: Floats) -> list[Anchor]:
    """Carry a part that came off to its spot on the table."""
    spot = apply(reach.stage.spot_C44[component], middle_of(reach, component)) + np.array([0.0, 0.0, 0.006])
    length = segment.end_frame - segment.start_frame
    goal = hand_at(reach, hand, np.broadcast_to(spot, elbow.shape), elbow, roll=0.25, steep=0.55)
    return [Anchor(segment.start_frame, max(length - 1, 1), goal, lift_metres=0.06)]


def _rummage(reach: Reach, segment: Segment, hand: int, draws: NDArray[np.float64], elbow: Floats) -> list[Anchor]:
    """Search among the parts: from spot to spot, about one a second."""
    n = max(1, round((segment.end_frame - segment.start_frame) / reach.plan.fps))
    side = 1.0 if hand else -1.0
    anchors = []
    for index in range(n):
        start = segment.start_frame + index * (segment.end_frame - segment.start_frame) // n
        across, ahead = 0.55 + 0.6 * draws[index % 8], 0.1 + 0.8 * draws[(index + 3) % 8]
        spot = reach.stage.home_3 + reach.stage.size * np.array([side * across, ahead, 0.12])
        rows = elbow[start - segment.start_frame :]
        goal = hand_at(reach, hand, np.broadcast_to(spot, rows.shape), rows, roll=0.25, steep=0.5)
        anchors.append(Anchor(start, round(0.7 * reach.plan.fps), goal, lift_metres=0.03))
    return anchors


def curls(reach: Reach) -> Floats:
    """How far the fingers are bent, (F, H)."""
    curl = np.full((reach.plan.n_frames, 2), 0.4)
    for segment in reach.segments:
        span = slice(segment.start_frame, segment.end_frame)
        for hand in (0, 1):
            busy = reach.carried(segment, hand) is not None
            if fastening(segment, reach.traits) and reach.leads(segment, hand):
                curl[span, hand] = 0.85
            elif busy and segment.activity in (Activity.GRASP, Activity.BRING, Activity.PUT_DOWN, *WORKING):
                curl[span, hand] = 0.6
            elif segment.clear:
                curl[span, hand] = 0.1 if segment.held else 0.25
    return lowpass(curl, 0.12 * reach.plan.fps)


# ---------------------------------------------------------------------- parts
def move_parts(
    reach: Reach, hand_pose: Floats, initial: Sequence[int]
) -> tuple[NDArray[np.uint8], Floats, NDArray[np.uint8]]:
    """Place (F, C), pose (F, C, 4, 4) and wrong choice (F, C) of every part."""
    n, c = reach.bits_FC.shape
    place = np.full((n, c), PartPlace.TABLE, dtype=np.uint8)
    place[reach.bits_FC == 1] = PartPlace.SEATED
    place[reach.bits_FC == -1] = PartPlace.WRONG
    wrong = np.zeros((n, c), dtype=np.uint8)
    poses = np.tile(reach.stage.spot_C44, (n, 1, 1, 1))
    seat_now = [reach.product.pose_of(k, 1).astype(np.float64) for k in range(c)]
    for index, (action, frame) in enumerate(zip(reach.plan.actions, reach.plan.completion_frames, strict=True)):
        for component in action.components:
            lead = reach.lead(action)
            hand = lead if component == action.components[0] else 1 - lead
            if action.kind is StepKind.REMOVE:
                _carry_away(reach, poses, hand_pose[:, hand], component, index, seat_now[component])
                continue
            seat_now[component] = seat_of(reach, action, component)
            _carry_in(reach, poses, hand_pose[:, hand], component, index, seat_now[component])
            if action.kind is StepKind.INCORRECT:
                wrong[frame:, component] = action.wrong_choice
    return place, poses, wrong


def _span(reach: Reach, index: int, activities: frozenset[Activity]) -> slice | None:
    """The frames in which an action is in one of the activities."""
    found = [p for p in reach.plan.phases if p.action == index and p.activity in activities]
    return slice(found[0].start_frame, found[-1].end_frame) if found else None


def _held(reach: Reach, wrist_L44: Floats, turn_L33: Floats, component: int) -> Floats:
    """The pose of a part whose middle is at the fingertips."""
    tip = fingertips(reach, wrist_L44)
    return pose(turn_L33, tip - np.einsum("lij,j->li", turn_L33, middle_of(reach, component)))


def _carry_in(reach: Reach, poses: Floats, wrist_F44: Floats, component: int, index: int, seat_44: Floats) -> None:
    """From the table to the seat: turned on the way, at the fingertips all along."""
    travel = _span(reach, index, frozenset({Activity.BRING}))
    fit = _span(reach, index, frozenset({Activity.FIT}))
    fasten = _span(reach, index, frozenset({Activity.FASTEN}))
    lying = reach.stage.spot_C44[component, :3, :3]
    if travel is not None:
        turn = reach.object_pose[travel, :3, :3] @ seat_44[:3, :3]
        share = minimum_jerk(np.arange(1, len(turn) + 1) / len(turn))
        poses[travel, component] = _held(reach, wrist_F44[travel], slerp(lying, turn, share), component)
    if fit is not None:
        turn = reach.object_pose[fit, :3, :3] @ seat_44[:3, :3]
        poses[fit, component] = _held(reach, wrist_F44[fit], turn, component)
    if fasten is not None:
        part = reach.product.parts[component]
        length = fasten.stop - fasten.start
        out = 0.008 * (1.0 - np.arange(1, length + 1) / length) * float(part.needs_tool)  # screwed in bit by bit
        seats = np.tile(seat_44, (length, 1, 1))
        seats[:, :3, 3] += out[:, None] * part.approach_3
        poses[fasten, component] = reach.object_pose[fasten] @ seats


def _carry_away(reach: Reach, poses: Floats, wrist_F44: Floats, component: int, index: int, seat_44: Floats) -> None:
    """From the seat to the table."""
    span = _span(reach, index, frozenset({Activity.PUT_DOWN}))
    if span is None:
        return
    turn = reach.object_pose[span, :3, :3] @ seat_44[:3, :3]
    share = minimum_jerk(np.arange(1, len(turn) + 1) / len(turn))
    lying = np.broadcast_to(reach.stage.spot_C44[component, :3, :3], turn.shape)
    poses[span, component] = _held(reach, wrist_F44[span], slerp(turn, lying, share), component)
