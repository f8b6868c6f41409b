"""From a seed to a timeline: what happens when, and how everything moves."""

import numpy as np
import pytest

from stormpsr.data.labels import StateTimeline, steps_from_states
from stormpsr.errors import InputError
from stormpsr.procedure.model import StepKind
from stormpsr.synthetic.actions import ErrorRates
from stormpsr.synthetic.choreography import simulate
from stormpsr.synthetic.plan import CLOSED, Activity, Plan, draw_plan, random_stream
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import PROFILES, Traits, draw_traits, profile_named
from stormpsr.synthetic.reach import FINGERTIPS_3
from stormpsr.synthetic.stage import PartPlace, Timeline

QUICK = profile_named("quick")
CLUMSY = ErrorRates(error_rate=0.4, removal_rate=0.4, omission_rate=0.0, uncorrected_share=0.2)


@pytest.fixture(scope="module")
def vehicle() -> Product:
    return Product.load("vehicle")


def play(
    product: Product, seed: int = 1, occlusion: float = 0.5, rates: ErrorRates | None = None, profile: str = "quick"
) -> tuple[Plan, Timeline, Traits]:
    variant = product.procedure.variant()
    return simulate(product, variant, profile_named(profile), seed=seed, occlusion=occlusion, rates=rates)


def test_the_same_seed_gives_the_same_timeline_to_the_bit(vehicle: Product) -> None:
    (_, one, _), (_, other, _) = play(vehicle, 5), play(vehicle, 5)
    for name in ("camera_pose_F44", "object_pose_F44", "part_pose_FC44", "hand_pose_FH44", "tool_pose_F44"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
    assert play(vehicle, 6)[1].n_frames != one.n_frames


def test_the_labels_of_the_timeline_are_those_of_the_plan(vehicle: Product) -> None:
    plan, timeline, _ = play(vehicle, 2, rates=CLUMSY)
    assert np.array_equal(timeline.states_FC(), plan.states_FC(vehicle.procedure.variant().initial))


def test_a_part_seated_wrongly_is_labelled_minus_one(vehicle: Product) -> None:
    plan, timeline, _ = play(vehicle, 2, rates=CLUMSY)
    wrong = [(a, f) for a, f in zip(plan.actions, plan.completion_frames, strict=True) if a.kind is StepKind.INCORRECT]
    assert wrong
    for action, frame in wrong:
        component = action.components[0]
        assert timeline.states_FC()[frame - 1, component] == 0
        assert timeline.states_FC()[frame, component] == -1
        assert timeline.wrong_choice_FC[frame, component] == action.wrong_choice


def test_the_completion_is_the_first_frame_after_the_work_when_the_hand_lets_go(vehicle: Product) -> None:
    plan, timeline, _ = play(vehicle)
    for action, frame in zip(plan.actions, plan.completion_frames, strict=True):
        before = next(p for p in plan.phases if p.end_frame == frame)
        after = next(p for p in plan.phases if p.start_frame == frame)
        assert before.activity in (Activity.FIT, Activity.FASTEN, Activity.LOOSEN)
        assert after.activity in (Activity.RELEASE, Activity.PUT_DOWN)
        expected = 0 if action.kind is StepKind.REMOVE else 1
        assert (timeline.states_FC()[frame, list(action.components)] == expected).all()


@pytest.mark.parametrize("product_name", ["vehicle", "gearbox"])
def test_a_part_is_exactly_on_its_seat_when_it_is_completed(product_name: str) -> None:
    product = Product.load(product_name)
    plan, timeline, _ = play(product, 3)
    for action, frame in zip(plan.actions, plan.completion_frames, strict=True):
        if action.kind is not StepKind.INSTALL:
            continue
        for component in action.components:
            seat = timeline.object_pose_F44[frame - 1] @ product.pose_of(component, 1)
            held = timeline.part_pose_FC44[frame - 1, component]
            assert np.allclose(seat[:3, 3], held[:3, 3], atol=0.004)


def test_a_carried_part_is_at_the_fingertips(vehicle: Product) -> None:
    plan, timeline, traits = play(vehicle, 4)
    for index, action in enumerate(plan.actions):
        bring = [p for p in plan.phases if p.action == index and p.activity is Activity.BRING]
        if not bring:
            continue
        frame = (bring[0].start_frame + bring[0].end_frame) // 2
        component = action.components[0]
        middle = np.append(vehicle.parts[component].bounds_23.mean(axis=0), 1.0)
        part = (timeline.part_pose_FC44[frame, component] @ middle)[:3]
        tips = [
            (pose @ np.append(FINGERTIPS_3 * traits.hand_scale, 1.0))[:3] for pose in timeline.hand_pose_FH44[frame]
        ]
        assert min(np.linalg.norm(part - tip) for tip in tips) < 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_nothing_jumps(vehicle: Product, seed: int) -> None:
    _, timeline, _ = play(vehicle, seed, rates=CLUMSY)
    fastest_metres_per_second = {"camera_pose_F44": 1.5, "object_pose_F44": 2.0, "tool_pose_F44": 3.0}
    for name, limit in fastest_metres_per_second.items():
        steps = np.linalg.norm(np.diff(getattr(timeline, name)[:, :3, 3], axis=0), axis=1)
        assert steps.max() * timeline.fps < limit, name
    hands = np.linalg.norm(np.diff(timeline.hand_pose_FH44[:, :, :3, 3], axis=0), axis=2)
    assert hands.max() * timeline.fps < 3.5
    loose = (timeline.part_place_FC == PartPlace.TABLE)[1:] & (timeline.part_place_FC == PartPlace.TABLE)[:-1]
    parts = np.linalg.norm(np.diff(timeline.part_pose_FC44[:, :, :3, 3], axis=0), axis=2)
    assert parts[loose].max() * timeline.fps < 3.5


def test_the_object_stays_above_the_table(vehicle: Product) -> None:
    _, timeline, _ = play(vehicle, 7)
    corners = np.array(np.meshgrid(*vehicle.bounds_23.T)).reshape(3, -1)
    low = timeline.object_pose_F44[:, 2, :3] @ corners + timeline.object_pose_F44[:, 2, 3:4]
    assert low.min() > -0.02


def test_phases_cover_the_recording_and_moments_keep_out_of_the_work(vehicle: Product) -> None:
    plan, _, _ = play(vehicle, 8, occlusion=0.0)
    assert plan.phases[0].start_frame == 0
    assert plan.phases[-1].end_frame == plan.n_frames
    assert all(a.end_frame == b.start_frame for a, b in zip(plan.phases, plan.phases[1:], strict=False))
    assert plan.moments
    work = np.zeros(plan.n_frames, dtype=bool)
    for phase in plan.phases:
        work[phase.start_frame : phase.end_frame] |= phase.activity in CLOSED
    assert not any(work[m.start_frame : m.end_frame].any() for m in plan.moments)


@pytest.mark.parametrize("seed", range(3))
def test_the_occlusion_dial_changes_what_is_seen_and_not_what_happens(vehicle: Product, seed: int) -> None:
    plans = {dial: play(vehicle, seed, dial)[0] for dial in (0.0, 0.5, 1.0)}
    assert plans[0.0].completion_frames == plans[0.5].completion_frames == plans[1.0].completion_frames
    assert plans[0.0].actions == plans[1.0].actions
    clear = {dial: sum(m.end_frame - m.start_frame for m in plan.moments) for dial, plan in plans.items()}
    assert clear[0.0] > clear[0.5] > clear[1.0]


def test_a_hand_is_near_the_object_most_of_the_time_unless_it_is_shown(vehicle: Product) -> None:
    _, timeline, _ = play(vehicle, 9)
    shown = np.isin(timeline.activity_F, (Activity.PRESENT, Activity.LAY_OPEN))
    tips = np.einsum("fhij,j->fhi", timeline.hand_pose_FH44, np.append(FINGERTIPS_3, 1.0))[..., :3]
    middle = timeline.object_pose_F44 @ np.append(vehicle.bounds_23.mean(axis=0), 1.0).astype(np.float32)
    distance = np.linalg.norm(tips - middle[:, None, :3], axis=2).min(axis=1)
    assert (distance[~shown] < 0.16).mean() > 0.85


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles_keep_their_pace(vehicle: Product, profile: str) -> None:
    gaps = [gap for seed in range(12) for gap in np.diff(play(vehicle, seed, profile=profile)[0].completion_frames)]
    quantiles = PROFILES[profile].completion_gap_quantiles
    mean = np.mean(gaps) / PROFILES[profile].fps
    assert mean == pytest.approx(np.mean(quantiles), rel=0.25)


@pytest.mark.parametrize(
    ("profile", "spread", "first_decile"), [("industreal", 0.9, 12.0), ("industreal-varied", 2.1, 4.5)]
)
def test_people_differ_as_much_as_their_profile_says(
    vehicle: Product, profile: str, spread: float, first_decile: float
) -> None:
    """The number of completions, and how soon one follows another. IndustReal's labels: 2.2, and 5 s."""
    counts: list[int] = []
    gaps: list[float] = []
    variants = list(vehicle.procedure.variants.values())
    for seed in range(40):
        variant, traits = variants[seed % len(variants)], draw_traits(random_stream(seed, "traits"))
        chosen = profile_named(profile)
        plan = draw_plan(vehicle, variant, chosen, traits, seed=seed, occlusion=0.5, rates=chosen.rates)
        states = StateTimeline.from_dense(plan.states_FC(variant.initial))
        steps = steps_from_states(states, vehicle.procedure, with_errors=False)
        counts.append(len(steps))
        gaps.extend(np.diff(sorted({step.frame for step in steps})) / chosen.fps)
    assert np.std(counts, ddof=1) == pytest.approx(spread, abs=0.4)
    assert np.percentile(gaps, 10) == pytest.approx(first_decile, abs=1.5)


def test_every_seed_gives_a_plan(vehicle: Product) -> None:
    variant = vehicle.procedure.variant()
    for seed in range(150):
        traits, rates = draw_traits(np.random.default_rng(seed)), ErrorRates(0.1, 0.1, 0.05, 0.3)
        plan = draw_plan(vehicle, variant, QUICK, traits, seed=seed, occlusion=0.2 * (seed % 6), rates=rates)
        assert all(0 <= m.start_frame < m.end_frame <= plan.n_frames for m in plan.moments)
        assert list(plan.completion_frames) == sorted(set(plan.completion_frames))


def test_quick_recordings_last_two_to_three_minutes(vehicle: Product) -> None:
    seconds = [play(vehicle, seed)[0].n_frames / QUICK.fps for seed in range(12)]
    assert 110 < np.mean(seconds) < 190


def test_a_recording_can_be_cut_short(vehicle: Product) -> None:
    variant = vehicle.procedure.variant()
    plan, timeline, _ = simulate(vehicle, variant, QUICK, seed=1, max_seconds=3.0)
    whole, _, _ = simulate(vehicle, variant, QUICK, seed=1)
    assert timeline.n_frames == plan.n_frames == 30
    assert plan.phases[-1].end_frame == 30
    assert plan.completion_frames[0] == whole.completion_frames[0]


def test_bad_settings_are_refused(vehicle: Product) -> None:
    with pytest.raises(InputError, match=r"occlusion is 1\.5"):
        play(vehicle, occlusion=1.5)
    with pytest.raises(InputError, match="no profile 'slow'"):
        profile_named("slow")
