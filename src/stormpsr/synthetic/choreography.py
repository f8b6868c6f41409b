"""How a plan becomes movement: `simulate` makes a `Timeline` that the renderer draws of a product and a seed.

Hands and parts are in `reach.py`. The order matters: the object first, then the head that looks at it, the tool that
touches it, the hands that hold both, and last the parts that the hands carry.

Shape legend: F frames, L frames of one segment, C components, H = 2 hands (0 left, 1 right).
"""

from __future__ import annotations

import numpy as np

from stormpsr.procedure.model import StepKind, Variant
from stormpsr.synthetic.actions import ErrorRates
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
from stormpsr.synthetic.plan import Activity, Plan, draw_plan, random_stream
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import Profile, Traits, draw_traits
from stormpsr.synthetic.reach import curls, move_hands, move_parts
from stormpsr.synthetic.stage import UP, Play, Segment, Stage, Timeline, segments_of, set_the_stage


def simulate(
    product: Product,
    variant: Variant,
    profile: Profile,
    *,
    seed: int,
    occlusion: float = 0.5,
    rates: ErrorRates | None = None,
    max_seconds: float | None = None,
) -> tuple[Plan, Timeline, Traits]:
    """One recording, ready to be drawn. The same arguments give the same result, bit for bit."""
    traits = draw_traits(random_stream(seed, "traits"))
    plan = draw_plan(
        product,
        variant,
        profile,
        traits,
        seed=seed,
        occlusion=occlusion,
        rates=rates or profile.rates,
        max_seconds=max_seconds,
    )
    stage = set_the_stage(product, traits, random_stream(seed, "stage"))
    play = Play(plan, product, traits, stage, segments_of(plan), plan.states_FC(variant.initial), occlusion)
    play.object_pose = _move_object(play, random_stream(seed, "object"))
    play.camera_pose = _move_head(play, random_stream(seed, "head"))
    play.tool_pose = _move_tool(play)
    hand_pose, elbow = move_hands(play, random_stream(seed, "hands"))
    part_place, part_pose, wrong_choice = move_parts(play, hand_pose)
    activity = np.zeros(plan.n_frames, dtype=np.uint8)
    for segment in play.segments:
        shown = Activity.PRESENT if segment.held else Activity.LAY_OPEN
        activity[segment.span] = shown if segment.clear else segment.activity
    timeline = Timeline(
        fps=plan.fps,
        camera_pose_F44=play.camera_pose.astype(np.float32),
        object_pose_F44=play.object_pose.astype(np.float32),
        part_place_FC=part_place,
        part_pose_FC44=part_pose.astype(np.float32),
        wrong_choice_FC=wrong_choice,
        hand_pose_FH44=hand_pose.astype(np.float32),
        hand_curl_FH=curls(play).astype(np.float32),
        hand_visible_FH=np.ones((plan.n_frames, 2), dtype=bool),
        elbow_FH3=elbow.astype(np.float32),
        tool_pose_F44=play.tool_pose.astype(np.float32),
        tool_visible_F=np.full(plan.n_frames, any(part.needs_tool for part in product.parts)),
        activity_F=activity,
    )
    return plan, timeline, traits


# ---------------------------------------------------------------------- the object
def _object_at(
    stage: Stage, yaw: float, tilt: float = 0.0, roll: float = 0.0, middle_3: Floats | None = None
) -> Floats:
    """The assembly's pose with its middle at a place in the air, or standing on the table at home."""
    turn = rotation(UP, yaw)
    if middle_3 is None:
        return pose(turn, stage.home_3 - (turn @ (stage.centre_3 * np.array([1.0, 1.0, 0.0]))))
    turn = rotation([1.0, 0.0, 0.0], tilt) @ rotation([0.0, 1.0, 0.0], roll) @ turn
    return pose(turn, middle_3 - turn @ stage.centre_3)


def _move_object(play: Play, rng: np.random.Generator) -> Floats:
    """The assembly's pose in every frame."""
    yaw = float(np.radians(play.traits.home_yaw_degrees))
    anchors = [Anchor(0, 1, _object_at(play.stage, yaw))]
    working: dict[int, Floats] = {}
    for segment in play.segments:
        draws = rng.random(8)
        goals = _object_goals(play, segment, yaw, working, draws)
        travel = round((0.5 if segment.clear else 0.8 + 0.5 * draws[7]) * play.plan.fps)
        for index, goal in enumerate(goals):
            anchors.append(Anchor(segment.start_frame + index * segment.length // len(goals), travel, goal))
    moved = _trembling(follow(anchors, play.plan.n_frames), play, rng)
    # lifted as far as it takes that no corner of the product is below the table
    lowest = apply(moved, play.stage.centre_3)[:, 2] - np.abs(moved[:, 2, :3]) @ play.stage.half_3
    moved[:, 2, 3] += np.maximum(-lowest, 0.0)
    return moved


def _object_goals(play: Play, segment: Segment, yaw: float, working: dict[int, Floats], draws: Floats) -> list[Floats]:
    """Where the object goes during one segment; none if it stays where it is."""
    stage = play.stage
    air = stage.home_3 + stage.size * np.array([0.16 * (draws[0] - 0.5), -0.08 * draws[1], 0.30 + 0.16 * draws[2]])
    if segment.clear:
        if not segment.held:
            return [_object_at(stage, yaw + 0.5 * (draws[3] - 0.5))]
        sweep = 0.6 * (draws[3] - 0.5)
        tilts = (0.35 + 0.35 * draws[4], 0.30 + 0.4 * draws[5])
        return [_object_at(stage, yaw + s * sweep, t, 0.0, air) for s, t in zip((1.0, -1.0), tilts, strict=True)]
    if segment.activity is Activity.OUT_OF_VIEW:
        lap = stage.home_3 + stage.size * np.array([0.5 * (draws[0] - 0.5), -1.25, 0.25])
        return [_object_at(stage, yaw, 0.2, 0.0, lap)]
    if segment.activity is Activity.HANDLE and draws[6] < 0.7:
        n = max(1, round(segment.length / play.plan.fps / 2.0))
        turns = np.interp(np.linspace(0, 1, n + 1), np.linspace(0, 1, 4), draws[2:6] - 0.5)
        return [_object_at(stage, yaw + 1.6 * t, 0.25 + 0.9 * draws[4] * t, 0.7 * t, air) for t in turns[:n]]
    if segment.action is None or segment.activity in (Activity.RELEASE, Activity.PUT_DOWN):
        return [] if segment.activity is not Activity.PAUSE else [_object_at(stage, yaw)]
    if segment.activity in (Activity.BRING, Activity.LOOSEN) or segment.action not in working:
        component = play.plan.actions[segment.action].components[0]
        point = play.product.parts[component].fit_point_3 - stage.centre_3
        facing = _face_the_person(yaw, point, stage) + 0.5 * (draws[3] - 0.5)
        lifted = draws[6] < play.traits.lifting
        middle = air - np.array([0.0, 0.0, 0.1 * stage.size]) if lifted else None
        goal = _object_at(stage, facing, 0.1 + 0.5 * draws[4], 0.3 * (draws[5] - 0.5), middle)
        working.setdefault(segment.action, goal)
    return [working[segment.action]]


def _face_the_person(yaw: float, point_3: Floats, stage: Stage) -> float:
    """The object is turned most of the way so that the spot to work on faces the person."""
    reach = float(np.hypot(point_3[0], point_3[1]))
    if reach < 0.15 * stage.size:
        return yaw
    wanted = -np.pi / 2 - np.arctan2(point_3[1], point_3[0])
    turn = (wanted - yaw + np.pi) % (2 * np.pi) - np.pi
    return float(yaw + np.clip(0.6 * turn, -1.2, 1.2))


def _trembling(object_pose: Floats, play: Play, rng: np.random.Generator) -> Floats:
    """Small movements while hands are on the object: more during work, none while it stands alone."""
    n, fps = play.plan.n_frames, play.plan.fps
    strength = np.zeros((n, 1))
    for segment in play.segments:
        alone = segment.clear and not segment.held
        busy = segment.activity in (Activity.FIT, Activity.FASTEN, Activity.LOOSEN, Activity.HANDLE)
        strength[segment.span] = 0.0 if alone else (1.0 if busy else 0.3)
    strength = lowpass(strength, 0.2 * fps)
    shift = slow_noise(rng, n, 0.7 * fps, 3) * 0.004 * strength
    angle = slow_noise(rng, n, 0.8 * fps, 2) * 0.05 * strength
    moved = object_pose.copy()
    moved[:, :3, 3] += shift
    moved[:, 2, 3] = np.maximum(moved[:, 2, 3], object_pose[:, 2, 3])
    wobble = rotation(UP, angle[:, 0]) @ rotation([1.0, 0.0, 0.0], 0.5 * angle[:, 1])
    moved[:, :3, :3] = wobble @ object_pose[:, :3, :3]
    return moved


# ---------------------------------------------------------------------- the head
def _move_head(play: Play, rng: np.random.Generator) -> Floats:
    """The camera's pose: it follows what the person looks at, with inertia, and sways."""
    stage, n, fps = play.stage, play.plan.n_frames, play.plan.fps
    attention = apply(play.object_pose, stage.centre_3)
    home = stage.home_3 + np.array([0.0, 0.0, stage.centre_3[2]])
    attention = home + 0.55 * (attention - home)
    lean = np.zeros((n, 1))
    for segment in play.segments:
        activity, span = segment.activity, segment.span
        draws = rng.random(4)
        side = 1.0 if draws[0] < 0.5 else -1.0
        aside = {
            Activity.LOOK_AWAY: [side * (1.0 + 1.6 * draws[1]), 0.6 * draws[2], 0.9 * draws[3]],
            Activity.OUT_OF_VIEW: [0.3 * side * draws[1], 0.35 + 0.3 * draws[2], 0.0],
            Activity.RUMMAGE: [0.35 * side, 0.35 * draws[1], 0.0],
        }.get(activity)
        if aside and not segment.clear:
            attention[span] = home + stage.size * np.array(aside)
        elif segment.action is not None and activity in (Activity.LOOK, Activity.REACH, Activity.GRASP):
            action = play.plan.actions[segment.action]
            if action.kind is not StepKind.REMOVE:
                towards = stage.spot_C44[action.components[0], :3, 3] - home
                shift = (0.12 if segment.clear else 0.3 + 0.25 * draws[1]) * towards
                attention[span] = home + shift * min(1.0, 0.8 * stage.size / max(float(np.linalg.norm(shift)), 1e-6))
        elif activity in (Activity.FIT, Activity.FASTEN):
            lean[span] = 0.04 + 0.08 * draws[1]
    sway = play.traits.sway
    gaze = lowpass(attention, 0.28 * fps)
    gaze += 0.035 * stage.size * sway * slow_noise(rng, n, 1.6 * fps, 3)
    eye = stage.eye_3 + lowpass(lean, 0.7 * fps) * (home - stage.eye_3)
    eye = eye + 0.03 * stage.size * sway * slow_noise(rng, n, 2.5 * fps, 3)
    eye += 0.10 * (gaze - home) * np.array([1.0, 0.5, 0.0])  # the head moves along when it turns
    return look_at(eye, gaze, 0.04 * sway * slow_noise(rng, n, 3.0 * fps, 1)[:, 0])


# ---------------------------------------------------------------------- the tool
def _move_tool(play: Play) -> Floats:
    """The tool lies on the table, and during fastening its tip turns in the head of the screw."""
    plan, at_rest = play.plan, play.stage.tool_44
    anchors = [Anchor(0, 1, at_rest)]
    outward = np.array([0.2 if play.traits.right_handed else -0.2, -0.15, 0.0])
    for segment in play.segments:
        if not play.fastening(segment) or segment.action is None:
            continue
        travel = max(round(0.7 * plan.fps), 1)
        start = segment.start_frame + segment.length // 4
        parts = [play.product.parts[k] for k in plan.actions[segment.action].components]
        part = next(part for part in parts if part.needs_tool)
        span = play.object_pose[start : segment.end_frame]
        away = np.einsum("lij,j->li", span[:, :3, :3], part.approach_3.astype(np.float64)) + outward
        spin = 0.5 * np.sin(2 * np.pi * 0.9 * np.arange(len(span)) / plan.fps)
        turn = frame_from_axes(-away, UP + 0.01) @ rotation([1.0, 0.0, 0.0], spin)
        goal = pose(turn, apply(span, part.tool_point_3.astype(np.float64)))
        anchors.append(Anchor(start, travel, goal, lift_metres=0.05))
        anchors.append(Anchor(segment.end_frame, travel, at_rest, lift_metres=0.04))
    return follow(anchors, plan.n_frames)
