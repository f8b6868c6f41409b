"""What the hands do, and the parts they carry.

The first hand (the dominant one) fetches, fits and fastens; the second one holds the object, from above or at its
edge, and fetches too when two parts are completed in one go. A carried part sits at the fingertips of its hand from
the grasp to the completion, so it can neither float nor lag.

Shape legend: F frames, L frames of one segment, C components, H = 2 hands (0 left, 1 right).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stormpsr.procedure.model import StepKind
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
from stormpsr.synthetic.plan import Activity
from stormpsr.synthetic.stage import UP, PartPlace, Play, Segment

FINGERTIPS_3 = np.array([0.112, 0.006, -0.062])  # in the frame of a wrist of scale 1, fingers curled around a part
KNUCKLES_3 = np.array([0.1, 0.0, -0.035])  # what lies over a part that a hand covers
PALM_3 = np.array([0.07, 0.0, -0.02])  # what an object rests on that is held up from below
SIDE = (-1.0, 1.0)  # of the left and of the right hand, along x
HANDLE_METRES = 0.15  # from the tip of the tool to where the hand holds it
WORKING = frozenset({Activity.FIT, Activity.FASTEN, Activity.LOOSEN})
STEADY = frozenset(  # in these the holding hand stays where it was
    {Activity.LOOK, Activity.REACH, Activity.GRASP, Activity.BRING, Activity.RELEASE, Activity.PUT_DOWN}
)


# ---------------------------------------------------------------------- hands
def move_hands(play: Play, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Wrist poses (F, H, 4, 4) and elbows (F, H, 3)."""
    n = play.plan.n_frames
    wrists = np.empty((n, 2, 4, 4))
    elbows = np.empty((n, 2, 3))
    body = lowpass(play.camera_pose[:, :3, 3] - play.stage.eye_3, 0.5 * play.plan.fps)
    for hand in (0, 1):
        draws_S = rng.random((len(play.segments), 8))
        jiggle = slow_noise(rng, n, 0.35 * play.plan.fps, 3)
        elbow = play.stage.elbow_H3[hand] + 0.5 * body
        anchors = [Anchor(0, 1, _rest(play, hand, np.full(8, 0.5), elbow[0]))]
        draws = draws_S[0]
        for segment, fresh in zip(play.segments, draws_S, strict=True):
            draws = draws if segment.activity in STEADY and not segment.clear else fresh
            anchors += _goals(play, segment, hand, draws, elbow, jiggle)
        wrists[:, hand] = follow(anchors, n)
        elbows[:, hand] = elbow + 0.25 * (wrists[:, hand, :3, 3] - elbow) * np.array([1.0, 0.2, 0.0])
    return wrists, elbows


def _goals(play: Play, segment: Segment, hand: int, draws: Floats, elbow_F3: Floats, jiggle: Floats) -> list[Anchor]:
    """Where a hand goes in one segment."""
    span, length, activity, fps = segment.span, segment.length, segment.activity, play.plan.fps
    elbow = elbow_F3[span]
    component, leads = play.carried(segment, hand), play.leads(segment, hand)
    brisk = max(round((0.35 + 0.25 * draws[0]) * fps), 1)
    all_along = max(length - 1, 1)

    def at(goal: Floats, travel: int = brisk, lift: float = 0.02) -> list[Anchor]:
        return [Anchor(segment.start_frame, travel, goal, lift)]

    if component is not None and activity in (Activity.REACH, Activity.GRASP):
        if play.plan.actions[segment.action or 0].kind is StepKind.REMOVE:
            return at(_work_at(play, segment, hand, component, elbow, jiggle[span]), length)
        return at(_at_spot(play, hand, component, elbow), all_along if activity is Activity.REACH else 2, 0.05)
    if segment.clear:
        return at(_rest(play, hand, draws, elbow) if leads or not segment.held else _under(play, hand, span, elbow))
    if leads and play.fastening(segment):  # fetch the tool, then hold its handle wherever it goes
        return at(_at_handle(play, hand, span, elbow), max(length // 4, 1), 0.05)
    if component is not None and activity in (Activity.BRING, *WORKING):
        travel = all_along if activity is Activity.BRING else max(round(0.25 * fps), 1)
        return at(_work_at(play, segment, hand, component, elbow, jiggle[span]), travel, 0.04)
    if leads and activity is Activity.PUT_DOWN and component is not None:
        return at(_at_spot(play, hand, component, elbow), all_along, 0.06)
    if leads and activity is Activity.RELEASE:  # put the tool back, or draw the hand up and back
        before = [s for s in play.segments if s.end_frame == segment.start_frame]
        with_tool = bool(before) and play.fastening(before[0])
        return at(_at_handle(play, hand, span, elbow) if with_tool else _rest(play, hand, draws, elbow))
    if leads and activity is Activity.RUMMAGE:
        return _rummage(play, segment, hand, draws, elbow)
    if leads and activity is Activity.HAND_TO_HEAD:
        head = play.camera_pose[span, :3, 3] + np.array([0.09 * SIDE[hand], 0.03, 0.03])
        return at(hand_at(play, hand, head, elbow, roll=0.6, steep=-0.4), round(0.8 * fps))
    if leads and activity in (Activity.PAUSE, Activity.LOOK) and draws[1] < 0.6:
        return at(_rest(play, hand, draws, elbow))
    if activity in WORKING and segment.action is not None and play.covers(draws[4]):
        return at(_beside(play, segment, hand, draws, elbow))
    return at(_hold(play, segment, hand, draws, elbow))


def hand_at(play: Play, hand: int, tip_L3: Floats, elbow_L3: Floats, *, roll: float, steep: float) -> Floats:
    """A wrist pose whose fingertips are at a point: the fingers point away from the elbow, `steep` bends them down.

    `roll` turns the back of the hand from facing up (0) towards the outside (1).
    """
    outward = np.array([SIDE[hand], 0.0, 0.0])
    fingers = tip_L3 - elbow_L3
    fingers = fingers / np.linalg.norm(fingers, axis=-1, keepdims=True)
    fingers = fingers - steep * UP
    turn = frame_from_axes(fingers, (1.0 - roll) * UP + roll * outward - 0.15 * np.array([0.0, 1.0, 0.0]))
    return pose(turn, tip_L3 - np.einsum("...ij,j->...i", turn, FINGERTIPS_3 * play.traits.hand_scale))


def _at_spot(play: Play, hand: int, component: int, elbow: Floats) -> Floats:
    """At a part that lies on the table, or where it is put down."""
    spot = apply(play.stage.spot_C44[component], play.middle_of(component)) + np.array([0.0, 0.0, 0.006])
    return hand_at(play, hand, spot, elbow, roll=0.25, steep=0.55)


def _at_handle(play: Play, hand: int, span: slice, elbow: Floats) -> Floats:
    """At the handle of the tool."""
    tool = play.tool_pose[span]
    return hand_at(play, hand, tool[:, :3, 3] - HANDLE_METRES * tool[:, :3, 0], elbow, roll=0.5, steep=0.25)


def _rest(play: Play, hand: int, draws: Floats, elbow: Floats) -> Floats:
    """Beside the object, near the edge of the image or beyond it."""
    reach_out = np.array([SIDE[hand] * (0.85 + 0.35 * draws[2]), -0.35 + 0.3 * draws[3], 0.05])
    tip = play.stage.home_3 + play.stage.size * reach_out
    return hand_at(play, hand, tip, elbow, roll=0.3, steep=0.2)


def _under(play: Play, hand: int, span: slice, elbow: Floats) -> Floats:
    """Holds the object up from below, flat against it: the object hides the hand, not the other way round."""
    below = play.stage.centre_3 - np.array([0.0, 0.0, play.stage.half_3[2] + 0.012])
    palm = apply(play.object_pose[span], below) + play.stage.size * np.array([0.06 * SIDE[hand], 0.0, 0.0])
    down = -play.object_pose[span, :3, 2]
    fingers = palm - elbow
    fingers = fingers - np.sum(fingers * down, axis=-1, keepdims=True) * down
    turn = frame_from_axes(fingers, down)
    return pose(turn, palm - turn @ (PALM_3 * play.traits.hand_scale))


def _hold(play: Play, segment: Segment, hand: int, draws: Floats, elbow: Floats) -> Floats:
    """A hand on the object: over one of the seated parts, or (mostly the free one) at the edge."""
    objects = play.object_pose[segment.span]
    if play.covers(draws[4]) and (draws[3] < 0.4 or not play.leads(segment, hand)):
        point = apply(objects, _grip_point(play, segment.start_frame, draws[5]))
        return _over(play, hand, point, play.camera_pose[segment.span, :3, 3], elbow, draws)
    half = np.abs(objects[:, 0, :3]) @ play.stage.half_3
    tip = apply(objects, play.stage.centre_3)
    tip = tip + SIDE[hand] * half[:, None] * np.array([0.95, 0.0, 0.0]) - 0.3 * play.stage.half_3[2] * UP
    return hand_at(play, hand, tip, elbow, roll=0.85, steep=0.15)


def _beside(play: Play, segment: Segment, hand: int, draws: Floats, elbow: Floats) -> Floats:
    """The other hand during work: it steadies the object, over it and close to the spot."""
    assert segment.action is not None
    component = play.plan.actions[segment.action].components[0]
    objects = play.object_pose[segment.span]
    middle, spot = play.stage.centre_3, play.product.parts[component].fit_point_3.astype(np.float64)
    point = apply(objects, spot + (0.15 + 0.35 * draws[5]) * (middle - spot))
    side = np.array([SIDE[hand], 0.0, 0.0])
    eye = play.camera_pose[segment.span, :3, 3]
    return _over(play, hand, point + (0.02 + 0.03 * draws[2]) * side, eye, elbow, draws)


def _grip_point(play: Play, frame: int, draw: float) -> Floats:
    """Where people hold an assembly: at one of the parts that are on it, rather than at its largest one."""
    seated = [int(k) for k in np.flatnonzero(play.bits_FC[frame])]
    if not seated:
        return play.stage.centre_3
    parts = sorted((play.product.parts[k] for k in seated), key=lambda part: part.radius)
    parts = parts[:-1] if len(parts) > 1 else parts
    return parts[int(draw * len(parts))].fit_point_3.astype(np.float64)


def _over(play: Play, hand: int, point_L3: Floats, eye_L3: Floats, elbow: Floats, draws: Floats) -> Floats:
    """The bent fingers lie over a point, between it and the person's eyes."""
    towards = eye_L3 - point_L3
    towards = towards / np.linalg.norm(towards, axis=-1, keepdims=True)
    over = point_L3 + (0.02 + 0.01 * draws[6]) * towards
    at_tips = hand_at(play, hand, over, elbow, roll=0.15 + 0.3 * draws[7], steep=0.3)
    shift = np.einsum("...ij,j->...i", at_tips[..., :3, :3], (FINGERTIPS_3 - KNUCKLES_3) * play.traits.hand_scale)
    at_tips[..., :3, 3] += shift
    return at_tips


def _work_at(play: Play, segment: Segment, hand: int, component: int, elbow: Floats, jiggle: Floats) -> Floats:
    """The fingertips hold the part at its seat, wriggling less and less until it is home."""
    assert segment.action is not None
    action = play.plan.actions[segment.action]
    objects = play.object_pose[segment.span]
    seat = objects @ play.seat_of(action, component)
    point = apply(seat, play.middle_of(component))
    approach = np.einsum("lij,j->li", objects[:, :3, :3], play.product.parts[component].approach_3.astype(np.float64))
    done = np.arange(1, len(objects) + 1)[:, None] / len(objects)
    if segment.activity is Activity.BRING:
        offset = 0.03 * approach
    elif action.kind is StepKind.REMOVE:
        offset = np.zeros_like(approach)
    else:
        home = minimum_jerk(done)  # 1 in the last frame: the part is on its seat when it is let go
        offset = (0.03 * approach + 0.008 * jiggle) * (1.0 - home)
    return hand_at(play, hand, point + offset, elbow, roll=0.3, steep=0.45)


def _rummage(play: Play, segment: Segment, hand: int, draws: Floats, elbow: Floats) -> list[Anchor]:
    """Search among the parts: from spot to spot, about one a second."""
    n = max(1, round(segment.length / play.plan.fps))
    anchors = []
    for index in range(n):
        start = segment.start_frame + index * segment.length // n
        across, ahead = 0.55 + 0.6 * draws[index % 8], 0.1 + 0.8 * draws[(index + 3) % 8]
        spot = play.stage.home_3 + play.stage.size * np.array([SIDE[hand] * across, ahead, 0.12])
        rows = elbow[start - segment.start_frame :]
        goal = hand_at(play, hand, spot, rows, roll=0.25, steep=0.5)
        anchors.append(Anchor(start, round(0.7 * play.plan.fps), goal, lift_metres=0.03))
    return anchors


def curls(play: Play) -> Floats:
    """How far the fingers are bent, (F, H)."""
    curl = np.full((play.plan.n_frames, 2), 0.4)
    for segment in play.segments:
        holding = segment.activity in (Activity.GRASP, Activity.BRING, Activity.PUT_DOWN, *WORKING)
        for hand in (0, 1):
            if play.fastening(segment) and play.leads(segment, hand):
                curl[segment.span, hand] = 0.85
            elif holding and play.carried(segment, hand) is not None:
                curl[segment.span, hand] = 0.6
            elif segment.clear:
                curl[segment.span, hand] = 0.1 if segment.held else 0.25
    return lowpass(curl, 0.12 * play.plan.fps)


# ---------------------------------------------------------------------- parts
def move_parts(play: Play, hand_pose: Floats) -> tuple[NDArray[np.uint8], Floats, NDArray[np.uint8]]:
    """Place (F, C), pose (F, C, 4, 4) and wrong choice (F, C) of every part."""
    n, c = play.bits_FC.shape
    place = np.full((n, c), PartPlace.TABLE, dtype=np.uint8)
    place[play.bits_FC == 1] = PartPlace.SEATED
    place[play.bits_FC == -1] = PartPlace.WRONG
    wrong = np.zeros((n, c), dtype=np.uint8)
    poses = np.tile(play.stage.spot_C44, (n, 1, 1, 1))
    seat_now = [play.product.pose_of(k, 1).astype(np.float64) for k in range(c)]
    for index, (action, frame) in enumerate(zip(play.plan.actions, play.plan.completion_frames, strict=True)):
        lead = play.lead(action)
        for component in action.components:
            if action.kind is not StepKind.REMOVE:
                seat_now[component] = play.seat_of(action, component)
            if action.kind is StepKind.INCORRECT:
                wrong[frame:, component] = action.wrong_choice
            hand = lead if component == action.components[0] else 1 - lead
            _carry(play, poses[:, component], hand_pose[:, hand], component, index, seat_now[component])
    return place, poses, wrong


def _carry(play: Play, poses: Floats, wrist_F44: Floats, component: int, index: int, seat_44: Floats) -> None:
    """From the table to the seat or back: turned on the way, its middle at the fingertips all along."""
    part, lying = play.product.parts[component], play.stage.spot_C44[component, :3, :3]

    def held(span: slice, turn_L33: Floats) -> Floats:
        tip = apply(wrist_F44[span], FINGERTIPS_3 * play.traits.hand_scale)
        return pose(turn_L33, tip - np.einsum("lij,j->li", turn_L33, play.middle_of(component)))

    for phase in (phase for phase in play.plan.phases if phase.action == index):
        turn = play.object_pose[phase.span, :3, :3] @ seat_44[:3, :3]
        done = np.arange(1, phase.length + 1) / phase.length
        if phase.activity is Activity.BRING:
            poses[phase.span] = held(phase.span, slerp(lying, turn, minimum_jerk(done)))
        elif phase.activity is Activity.FIT:
            poses[phase.span] = held(phase.span, turn)
        elif phase.activity is Activity.FASTEN:  # screwed in bit by bit
            seats = np.tile(seat_44, (phase.length, 1, 1))
            seats[:, :3, 3] += (0.008 * (1.0 - done) * float(part.needs_tool))[:, None] * part.approach_3
            poses[phase.span] = play.object_pose[phase.span] @ seats
        elif phase.activity is Activity.PUT_DOWN:
            poses[phase.span] = held(phase.span, slerp(turn, lying, minimum_jerk(done)))
