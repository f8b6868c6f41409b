"""How a plan becomes movement: where the object, the head and the tool are in every frame, and the assembled timeline.

Hands and parts are in `reach.py`. The order matters: the object first, then the head that looks at it, the tool that
touches it, the hands that hold both, and last the parts that the hands carry.

Shape legend: F frames, L frames of one segment, C components, H = 2 hands (0 left, 1 right).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stormpsr.procedure.model import StepKind
from stormpsr.synthetic.motion import (
    Anchor,
    Floats,
    apply,
    follow,
    frame_from_axes,
    look_at,
    lowpass,
    pose,
    rotation,
    slow_noise,
)
from stormpsr.synthetic.plan import Activity, Plan, random_stream
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import Traits
from stormpsr.synthetic.reach import Reach, curls, move_hands, move_parts
from stormpsr.synthetic.stage import UP, Segment, Stage, fastening, segments_of, set_the_stage
from stormpsr.synthetic.timeline import Timeline


def perform(
    plan: Plan, product: Product, initial: Sequence[int], traits: Traits, *, seed: int, occlusion: float
) -> Timeline:
    """Everything that moves, frame by frame."""
    stage = set_the_stage(product, traits, random_stream(seed, "stage"))
    segments = segments_of(plan)
    bits_FC = plan.states_FC(initial)
    object_pose = _move_object(plan, product, stage, traits, segments, random_stream(seed, "object"))
    camera_pose = _move_head(plan, product, stage, traits, segments, object_pose, random_stream(seed, "head"))
    tool_pose = _move_tool(plan, product, stage, traits, segments, object_pose)
    reach = Reach(
        plan, product, stage, traits, tuple(segments), bits_FC, object_pose, camera_pose, tool_pose, occlusion
    )
    hand_pose, elbow = move_hands(reach, random_stream(seed, "hands"))
    part_place, part_pose, wrong_choice = move_parts(reach, hand_pose, initial)
    activity = np.zeros(plan.n_frames, dtype=np.uint8)
    for segment in segments:
        shown = Activity.PRESENT if segment.held else Activity.LAY_OPEN
        activity[segment.start_frame : segment.end_frame] = shown if segment.clear else segment.activity
    return Timeline(
        fps=plan.fps,
        camera_pose_F44=camera_pose.astype(np.float32),
        object_pose_F44=object_pose.astype(np.float32),
        part_place_FC=part_place,
        part_pose_FC44=part_pose.astype(np.float32),
        wrong_choice_FC=wrong_choice,
        hand_pose_FH44=hand_pose.astype(np.float32),
        hand_curl_FH=curls(reach).astype(np.float32),
        hand_visible_FH=np.ones((plan.n_frames, 2), dtype=bool),
        elbow_FH3=elbow.astype(np.float32),
        tool_pose_F44=tool_pose.astype(np.float32),
        tool_visible_F=np.full(plan.n_frames, any(part.needs_tool for part in product.parts)),
        activity_F=activity,
        activity_names=tuple(member.name.lower() for member in Activity),
    )


# ---------------------------------------------------------------------- the object
def object_at(stage: Stage, yaw: float, tilt: float, roll: float, middle_3: Floats | None) -> Floats:
    """The assembly's pose with its middle at a place in the air, or standing on the table at home."""
    turn = rotation(UP, yaw)
    if middle_3 is None:
        return pose(turn, stage.home_3 - (turn @ (stage.centre_3 * np.array([1.0, 1.0, 0.0]))))
    turn = rotation([1.0, 0.0, 0.0], tilt) @ rotation([0.0, 1.0, 0.0], roll) @ turn
    return pose(turn, middle_3 - turn @ stage.centre_3)


def _move_object(
    plan: Plan,
    product: Product,
    stage: Stage,
    traits: Traits,
    segments: Sequence[Segment],
    rng: np.random.Generator,
) -> Floats:
    """The assembly's pose in every frame."""
    yaw = float(np.radians(traits.home_yaw_degrees))
    pose_now = object_at(stage, yaw, 0.0, 0.0, None)
    anchors = [Anchor(0, 1, pose_now)]
    working: dict[int, Floats] = {}
    for segment in segments:
        draws = rng.random(8)
        goals = _object_goals(plan, product, stage, traits, segment, yaw, working, draws)
        length = segment.end_frame - segment.start_frame
        for index, goal in enumerate(goals):
            start = segment.start_frame + index * length // len(goals)
            travel = round((0.5 if segment.clear else 0.8 + 0.5 * draws[7]) * plan.fps)
            anchors.append(Anchor(start, travel, goal))
    return _above_the_table(_trembling(follow(anchors, plan.n_frames), plan, segments, rng), stage)


def _above_the_table(object_pose: Floats, stage: Stage) -> Floats:
    """Lifted as far as it takes that no corner of the product is below the table."""
    reach_down = np.abs(object_pose[:, 2, :3]) @ stage.half_3
    lowest = apply(object_pose, stage.centre_3)[:, 2] - reach_down
    object_pose[:, 2, 3] += np.maximum(-lowest, 0.0)
    return object_pose


def _object_goals(
    plan: Plan,
    product: Product,
    stage: Stage,
    traits: Traits,
    segment: Segment,
    yaw: float,
    working: dict[int, Floats],
    draws: NDArray[np.float64],
) -> list[Floats]:
    """Where the object goes during one segment; none if it stays where it is."""
    air = stage.home_3 + stage.size * np.array([0.16 * (draws[0] - 0.5), -0.08 * draws[1], 0.30 + 0.16 * draws[2]])
    if segment.clear:
        if not segment.held:
            return [object_at(stage, yaw + 0.5 * (draws[3] - 0.5), 0.0, 0.0, None)]
        sweep = 0.6 * (draws[3] - 0.5)
        tilts = (0.35 + 0.35 * draws[4], 0.30 + 0.4 * draws[5])
        return [object_at(stage, yaw + s * sweep, t, 0.0, air) for s, t in zip((1.0, -1.0), tilts, strict=True)]
    if segment.activity is Activity.OUT_OF_VIEW:
        lap = stage.home_3 + stage.size * np.array([0.5 * (draws[0] - 0.5), -1.25, 0.25])
        return [object_at(stage, yaw, 0.2, 0.0, lap)]
    if segment.activity is Activity.HANDLE and draws[6] < 0.7:
        n = max(1, round((segment.end_frame - segment.start_frame) / plan.fps / 2.0))
        turns = np.interp(np.linspace(0, 1, n + 1), np.linspace(0, 1, 4), draws[2:6] - 0.5)
        return [object_at(stage, yaw + 1.6 * t, 0.25 + 0.9 * draws[4] * t, 0.7 * t, air) for t in turns[:n]]
    if segment.action is None or segment.activity in (Activity.RELEASE, Activity.PUT_DOWN):
        return [] if segment.activity is not Activity.PAUSE else [object_at(stage, yaw, 0.0, 0.0, None)]
    if segment.activity in (Activity.BRING, Activity.LOOSEN) or segment.action not in working:
        point = product.parts[plan.actions[segment.action].components[0]].fit_point_3 - stage.centre_3
        facing = _face_the_person(yaw, point, stage) + 0.5 * (draws[3] - 0.5)
        lifted = draws[6] < traits.lifting
        middle = air - np.array([0.0, 0.0, 0.1 * stage.size]) if lifted else None
        working.setdefault(
            segment.action, object_at(stage, facing, 0.1 + 0.5 * draws[4], 0.3 * (draws[5] - 0.5), middle)
        )
    return [working[segment.action]]


def _face_the_person(yaw: float, point_3: Floats, stage: Stage) -> float:
    """The object is turned most of the way so that the spot to work on faces the person."""
    reach = float(np.hypot(point_3[0], point_3[1]))
    if reach < 0.15 * stage.size:
        return yaw
    wanted = -np.pi / 2 - np.arctan2(point_3[1], point_3[0])
    turn = (wanted - yaw + np.pi) % (2 * np.pi) - np.pi
    return float(yaw + np.clip(0.6 * turn, -1.2, 1.2))


def _trembling(object_pose: Floats, plan: Plan, segments: Sequence[Segment], rng: np.random.Generator) -> Floats:
    """Small movements while hands are on the object: more during work, none while it stands alone."""
    strength = np.zeros((plan.n_frames, 1))
    for segment in segments:
        alone = segment.clear and not segment.held
        busy = segment.activity in (Activity.FIT, Activity.FASTEN, Activity.LOOSEN, Activity.HANDLE)
        strength[segment.start_frame : segment.end_frame] = 0.0 if alone else (1.0 if busy else 0.3)
    strength = lowpass(strength, 0.2 * plan.fps)
    shift = slow_noise(rng, plan.n_frames, 0.7 * plan.fps, 3) * 0.004 * strength
    angle = slow_noise(rng, plan.n_frames, 0.8 * plan.fps, 2) * 0.05 * strength
    moved = object_pose.copy()
    moved[:, :3, 3] += shift
    moved[:, 2, 3] = np.maximum(moved[:, 2, 3], object_pose[:, 2, 3])
    wobble = rotation(UP, angle[:, 0]) @ rotation([1.0, 0.0, 0.0], 0.5 * angle[:, 1])
    moved[:, :3, :3] = wobble @ object_pose[:, :3, :3]
    return moved


# ---------------------------------------------------------------------- the head
def _move_head(
    plan: Plan,
    product: Product,
    stage: Stage,
    traits: Traits,
    segments: Sequence[Segment],
    object_pose: Floats,
    rng: np.random.Generator,
) -> Floats:
    """The camera's pose: it follows what the person looks at, with inertia, and sways."""
    attention = apply(object_pose, stage.centre_3)
    home = stage.home_3 + np.array([0.0, 0.0, stage.centre_3[2]])
    attention = home + 0.55 * (attention - home)
    lean = np.zeros((plan.n_frames, 1))
    for segment in segments:
        span = slice(segment.start_frame, segment.end_frame)
        draws = rng.random(4)
        side = 1.0 if draws[0] < 0.5 else -1.0
        if segment.activity is Activity.LOOK_AWAY and not segment.clear:
            attention[span] = home + stage.size * np.array(
                [side * (1.0 + 1.6 * draws[1]), 0.6 * draws[2], 0.9 * draws[3]]
            )
        elif segment.activity is Activity.OUT_OF_VIEW and not segment.clear:
            attention[span] = home + stage.size * np.array([0.3 * side * draws[1], 0.35 + 0.3 * draws[2], 0.0])
        elif segment.activity is Activity.RUMMAGE and not segment.clear:
            attention[span] = home + stage.size * np.array([0.35 * side, 0.35 * draws[1], 0.0])
        elif segment.action is not None and segment.activity in (Activity.LOOK, Activity.REACH, Activity.GRASP):
            action = plan.actions[segment.action]
            if action.kind is not StepKind.REMOVE:
                towards = stage.spot_C44[action.components[0], :3, 3] - home
                shift = (0.12 if segment.clear else 0.3 + 0.25 * draws[1]) * towards
                attention[span] = home + shift * min(1.0, 0.8 * stage.size / max(float(np.linalg.norm(shift)), 1e-6))
        elif segment.activity in (Activity.FIT, Activity.FASTEN):
            lean[span] = 0.04 + 0.08 * draws[1]
    gaze = lowpass(attention, 0.28 * plan.fps)
    gaze += 0.035 * stage.size * traits.sway * slow_noise(rng, plan.n_frames, 1.6 * plan.fps, 3)
    eye = stage.eye_3 + lowpass(lean, 0.7 * plan.fps) * (home - stage.eye_3)
    eye = eye + 0.03 * stage.size * traits.sway * slow_noise(rng, plan.n_frames, 2.5 * plan.fps, 3)
    eye += 0.10 * (gaze - home) * np.array([1.0, 0.5, 0.0])  # the head moves along when it turns
    return look_at(eye, gaze, 0.04 * traits.sway * slow_noise(rng, plan.n_frames, 3.0 * plan.fps, 1)[:, 0])


# ---------------------------------------------------------------------- the tool
def _move_tool(
    plan: Plan, product: Product, stage: Stage, traits: Traits, segments: Sequence[Segment], object_pose: Floats
) -> Floats:
    """The tool lies on the table, and during fastening its tip turns in the head of the screw."""
    anchors = [Anchor(0, 1, stage.tool_44)]
    outward = np.array([0.2 if traits.right_handed else -0.2, -0.15, 0.0])
    for segment in segments:
        if not fastening(segment, traits) or segment.action is None:
            continue
        length = segment.end_frame - segment.start_frame
        fetch, travel = length // 4, max(round(0.7 * plan.fps), 1)
        part = next(product.parts[k] for k in plan.actions[segment.action].components if product.parts[k].needs_tool)
        span = object_pose[segment.start_frame + fetch : segment.end_frame]
        away = np.einsum("lij,j->li", span[:, :3, :3], part.approach_3.astype(np.float64)) + outward
        spin = 0.5 * np.sin(2 * np.pi * 0.9 * np.arange(len(span)) / plan.fps)
        turn = frame_from_axes(-away, UP + 0.01) @ rotation([1.0, 0.0, 0.0], spin)
        goal = pose(turn, apply(span, part.tool_point_3.astype(np.float64)))
        anchors.append(Anchor(segment.start_frame + fetch, travel, goal, lift_metres=0.05))
        anchors.append(Anchor(segment.end_frame, travel, stage.tool_44, lift_metres=0.04))
    return follow(anchors, plan.n_frames)
