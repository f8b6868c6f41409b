"""What happens when: every action of a recording laid out in time, and the moments that leave the object open to view.

A completion is the first frame in which the part is seated *and* the fingers (or the tool) let go of it; a removal is
the first frame in which the part is off its seat. That is the end of the working phase of an action, for everyone.

Which steps come at which frames depends on the seed alone. The occlusion dial only thins out and shortens the clear
views and moves the holding hands, so that two recordings that differ in the dial share their labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError
from stormpsr.procedure.model import StepKind, Variant
from stormpsr.synthetic.actions import Action, ErrorRates, draw_actions
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import Profile, Traits


class Activity(IntEnum):
    """What the person is doing; the values are those of `Timeline.activity_F`."""

    HANDLE = 0  # both hands on the object, turning it
    PAUSE = 1  # one hand rests on the object
    LOOK_AWAY = 2  # the head turns to something else
    OUT_OF_VIEW = 3  # the object is drawn close to the body, out of the image
    HAND_TO_HEAD = 4  # scratches, pushes glasses up
    RUMMAGE = 5  # a hand searches among the parts
    LOOK = 6  # the head turns towards the part
    REACH = 7
    GRASP = 8
    BRING = 9
    FIT = 10  # the hands are around the spot
    FASTEN = 11  # with the tool
    RELEASE = 12  # after a completion the hands draw back
    LOOSEN = 13  # a hand is on a part that is about to come off
    PUT_DOWN = 14  # a part that came off goes to the table
    PRESENT = 15  # the object is held up, open to view
    LAY_OPEN = 16  # the object lies on the table and the hands are elsewhere


FILLERS = (
    (Activity.HANDLE, 0.46),
    (Activity.PAUSE, 0.16),
    (Activity.LOOK_AWAY, 0.10),
    (Activity.OUT_OF_VIEW, 0.07),
    (Activity.HAND_TO_HEAD, 0.06),
    (Activity.RUMMAGE, 0.15),
)
Spans = list[tuple[Activity, float]]  # activities and their seconds
CLOSED = frozenset({Activity.BRING, Activity.FIT, Activity.FASTEN, Activity.LOOSEN, Activity.PUT_DOWN})


@dataclass(frozen=True)
class Phase:
    """One activity from `start_frame` up to but not including `end_frame`."""

    activity: Activity
    start_frame: int
    end_frame: int
    action: int | None = None  # index into `Plan.actions`

    @property
    def span(self) -> slice:
        return slice(self.start_frame, self.end_frame)

    @property
    def length(self) -> int:
        return self.end_frame - self.start_frame


@dataclass(frozen=True)
class ClearMoment:
    """A stretch in which the hands are off the object and the whole state can be read."""

    start_frame: int
    end_frame: int
    held: bool  # held up from below, or lying on the table


@dataclass(frozen=True)
class Plan:
    """One recording before anything moves."""

    fps: float
    n_frames: int
    variant: str
    actions: tuple[Action, ...]
    completion_frames: tuple[int, ...]  # one per action, strictly ascending
    phases: tuple[Phase, ...]  # cover all frames without gaps
    moments: tuple[ClearMoment, ...]  # ascending, apart from each other

    def states_FC(self, initial: Sequence[int]) -> NDArray[np.int8]:
        """The labels that follow from the plan."""
        states = np.tile(np.asarray(initial, dtype=np.int8), (self.n_frames, 1))
        for action, frame in zip(self.actions, self.completion_frames, strict=True):
            states[frame:, list(action.components)] = action.bit
        return states


def random_stream(seed: int, purpose: str) -> np.random.Generator:
    """An independent random stream per purpose, so that a change in one leaves the others as they were."""
    return np.random.default_rng([seed, *purpose.encode()])


def draw_plan(
    product: Product,
    variant: Variant,
    profile: Profile,
    traits: Traits,
    *,
    seed: int,
    occlusion: float,
    rates: ErrorRates,
    max_seconds: float | None = None,
) -> Plan:
    """Draw one recording of a person."""
    if not 0.0 <= occlusion <= 1.0:
        raise InputError(f"occlusion is {occlusion}", cure="it lies between 0 (nothing is hidden) and 1")
    rng = random_stream(seed, "actions")
    actions = draw_actions(
        product, variant, rates, together_rate=profile.together_rate, tidiness=traits.tidiness, rng=rng
    )
    needs_tool_C = [part.needs_tool for part in product.parts]
    phases, completions = _lay_out(actions, profile, needs_tool_C, traits.speed, random_stream(seed, "timing"))
    n_frames = phases[-1].end_frame
    plan = Plan(profile.fps, n_frames, variant.name, tuple(actions), tuple(completions), tuple(phases), moments=())
    if max_seconds is not None:
        plan = _cut(plan, round(max_seconds * profile.fps))
    return replace(plan, moments=_clear_moments(plan, profile, occlusion, traits.showing, random_stream(seed, "views")))


def _cut(plan: Plan, n_frames: int) -> Plan:
    """The first frames of a plan."""
    if n_frames < 1:
        raise InputError("a recording needs at least one frame", cure="ask for more seconds")
    n_frames = min(n_frames, plan.n_frames)
    kept = sum(frame < n_frames for frame in plan.completion_frames)
    phases = [replace(p, end_frame=min(p.end_frame, n_frames)) for p in plan.phases if p.start_frame < n_frames]
    # An action that is cut off before its completion stays listed with a completion after the end: it is under way.
    under_way = min(kept + 1, len(plan.actions))
    return replace(
        plan,
        n_frames=n_frames,
        phases=tuple(phases),
        actions=plan.actions[:under_way],
        completion_frames=plan.completion_frames[:under_way],
    )


# ---------------------------------------------------------------------- layout in time
def _lay_out(
    actions: Sequence[Action],
    profile: Profile,
    needs_tool_C: Sequence[bool],
    speed: float,
    rng: np.random.Generator,
) -> tuple[list[Phase], list[int]]:
    """Phases that fill the time from the first frame to the last, and the completion frames."""
    phases: list[Phase] = []
    completions: list[int] = []
    now = 0.0

    def append(spans: Spans, action: int | None) -> None:
        """Spans of seconds become phases of at least one frame."""
        nonlocal now
        for activity, seconds in spans:
            start = phases[-1].end_frame if phases else 0
            now += seconds
            phases.append(Phase(activity, start, max(round(now * profile.fps), start + 1), action))

    for index, action in enumerate(actions):
        gap = float(np.interp(rng.random(), np.linspace(0, 1, 11), profile.completion_gap_quantiles)) / speed
        before = actions[index - 1] if index else None
        work = _work_durations(action, gap, profile, needs_tool_C, rng)
        after = _after_durations(before, profile, rng)
        rest = gap - sum(d for _, d in work) - sum(d for _, d in after)
        rest = max(rest, profile.lead_in_seconds if before is None else 0.0)
        append(after, index - 1)
        append(_fillers(rest, profile, rng), None)
        append(work, index)
        completions.append(phases[-1].end_frame)
        now = max(now, phases[-1].end_frame / profile.fps)
    append(_after_durations(actions[-1] if actions else None, profile, rng), len(actions) - 1)
    append(_fillers(profile.lead_out_seconds * rng.uniform(0.8, 1.4), profile, rng), None)
    return phases, completions


def _work_durations(
    action: Action, gap: float, profile: Profile, needs_tool_C: Sequence[bool], rng: np.random.Generator
) -> Spans:
    """The phases of an action up to its completion."""
    look, reach, grasp, bring, share = rng.uniform((0.5, 0.7, 0.25, 0.8, 0), (1.1, 1.2, 0.45, 1.3, 1))
    hurry = min(1.0, gap / 9.0) * profile.pace  # there must be room for all of it in a short gap
    fit = max((profile.fit_share[0] + share * (profile.fit_share[1] - profile.fit_share[0])) * gap, 1.2)
    fast = [(Activity.LOOK, look * hurry), (Activity.REACH, reach * hurry)]
    if action.kind is StepKind.REMOVE:
        return [*fast, (Activity.LOOSEN, 0.7 * fit)]
    fast += [(Activity.GRASP, grasp * hurry), (Activity.BRING, bring * hurry)]
    if any(needs_tool_C[k] for k in action.components):
        return [*fast, (Activity.FIT, 0.35 * fit), (Activity.FASTEN, 0.65 * fit)]
    return [*fast, (Activity.FIT, fit)]


def _after_durations(action: Action | None, profile: Profile, rng: np.random.Generator) -> Spans:
    """What follows a completion before anything else can happen."""
    draw = rng.random()
    if action is None:
        return []
    if action.kind is StepKind.REMOVE:
        return [(Activity.PUT_DOWN, (1.0 + 0.5 * draw) * profile.pace)]
    return [(Activity.RELEASE, (0.35 + 0.3 * draw) * profile.pace)]


def _fillers(seconds: float, profile: Profile, rng: np.random.Generator) -> Spans:
    """Idle and preparing activities of a few seconds each that fill a stretch of time."""
    spans: Spans = []
    weights = np.array([weight for _, weight in FILLERS])
    while seconds > 0.0:
        length = min(float(rng.uniform(2.0, 7.0)) * profile.pace, seconds)
        if seconds - length < 1.0:
            length = seconds
        activity = FILLERS[int(rng.choice(len(FILLERS), p=weights / weights.sum()))][0]
        spans.append((activity if length > 1.2 else Activity.HANDLE, length))
        seconds -= length
    return spans


# ---------------------------------------------------------------------- clear views
def _clear_moments(
    plan: Plan, profile: Profile, occlusion: float, showing: float, rng: np.random.Generator
) -> tuple[ClearMoment, ...]:
    """When the object is open to view.

    Moments arrive at random at the rate of the dial's low end; the dial keeps a share of them, so the moments at a
    higher dial are a subset of those at a lower one. Those that fall into work move behind its completion or vanish.
    """
    # how often and how long the object is shown, relative to the middle of the dial
    densest, frequency, stretch = (float(np.exp(x)) for x in (1.1, -2.2 * (occlusion - 0.5), -1.0 * (occlusion - 0.5)))
    closed = np.zeros(plan.n_frames, dtype=bool)  # the hands are at work on the object, or come and go
    for phase in plan.phases:
        leave = round(0.5 * plan.fps) if phase.activity is Activity.RELEASE else 0
        if phase.activity in CLOSED or phase.activity is Activity.RELEASE:
            closed[phase.start_frame : phase.end_frame + leave] = True
    found: list[ClearMoment] = []
    now = 0.0
    while True:
        now += float(rng.exponential(profile.moment_gap_seconds / (densest * showing)))
        if now * plan.fps >= plan.n_frames:
            break
        kept = rng.random() < frequency / densest
        views = _moment(plan, profile, int(now * plan.fps), closed, stretch, rng)
        found += views if kept else []
    merged: list[ClearMoment] = []  # where they meet
    for moment in sorted(found, key=lambda m: m.start_frame):
        if merged and moment.start_frame <= merged[-1].end_frame + 2:
            merged[-1] = replace(merged[-1], end_frame=max(merged[-1].end_frame, moment.end_frame))
        else:
            merged.append(moment)
    return tuple(merged)


def _moment(
    plan: Plan, profile: Profile, frame: int, closed: NDArray[np.bool_], stretch: float, rng: np.random.Generator
) -> list[ClearMoment]:
    """The views of one moment."""
    n_views = min(int(rng.geometric(1.0 / profile.views_per_moment)), 8)
    lengths = profile.view_seconds * stretch * np.exp(profile.view_spread * rng.standard_normal(n_views))
    breaks = profile.interruption_seconds * np.exp(0.6 * rng.standard_normal(n_views))
    held = bool(rng.random() < 0.6)
    moves = rng.random() < profile.view_after_completion
    if closed[frame]:
        opening = np.flatnonzero(~closed[frame:])
        if not moves or not len(opening):
            return []
        frame += int(opening[0])
    views: list[ClearMoment] = []
    for length, pause in zip(lengths, breaks, strict=True):
        end = frame + max(round(float(length) * plan.fps), 1)
        shut = np.flatnonzero(closed[frame:end])
        end = min(frame + int(shut[0]) if len(shut) else end, plan.n_frames)
        if end > frame:
            views.append(ClearMoment(frame, end, held))
        frame = end + max(round(float(pause) * plan.fps), 2)
        if frame >= plan.n_frames or closed[frame]:
            break
    return views
