"""Which frames and clips are drawn: small cases worked out by hand, and the laws that hold for all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from stormpsr.data.labels import StateTimeline
from stormpsr.data.sampling import (
    ClipSampler,
    KeyFrames,
    KeyFrameSampler,
    Shard,
    WrongStates,
    change_frames,
    clip_labels,
    clip_windows,
    end_frame_probabilities,
    key_frames,
    window_offsets,
)
from stormpsr.errors import InputError

# foot at 30, pole wrong at 45, pole right at 100, shade at 105
LAMP = StateTimeline((0, 30, 45, 100, 105), ((0, 0, 0), (1, 0, 0), (1, -1, 0), (1, 1, 0), (1, 1, 1)))


def lamp_frames(
    *, n_frames: int = 200, after_seconds: float = 2.0, wrong_states: WrongStates = "own_label", initial: bool = True
) -> KeyFrames:
    return key_frames(
        [LAMP], [n_frames], fps=10, after_seconds=after_seconds, wrong_states=wrong_states, initial_state=initial
    )


def frames_by_state(frames: KeyFrames) -> dict[tuple[int, ...], list[int]]:
    return {bits: frames.frame_M[frames.label_M == label].tolist() for label, bits in enumerate(frames.states)}


@st.composite
def timelines(draw: st.DrawFn) -> tuple[StateTimeline, int]:
    """A recording of three components that come, go wrong and go, and its number of frames."""
    n_frames = draw(st.integers(1, 120))
    changes = draw(st.lists(st.integers(1, max(n_frames - 1, 1)), max_size=8, unique=True)) if n_frames > 1 else []
    bits = st.tuples(*[st.sampled_from([-1, 0, 1])] * 3)
    frames = (0, *sorted(changes))
    return StateTimeline(frames, tuple(draw(bits) for _ in frames)), n_frames


# ---------------------------------------------------------------------- key frames
@given(
    recordings=st.lists(timelines(), min_size=1, max_size=4),
    after_seconds=st.floats(0, 3),
    wrong_states=st.sampled_from(["own_label", "leave_out"]),
)
def test_key_frames_are_exactly_the_frames_close_after_a_change_with_the_state_they_show(
    recordings: list[tuple[StateTimeline, int]], after_seconds: float, wrong_states: WrongStates
) -> None:
    expected = {}
    for r, (timeline, n_frames) in enumerate(recordings):
        for frame in range(n_frames):
            bits = timeline.at(frame)
            last_change = max(start for start in timeline.frames if start <= frame)
            near = frame - last_change < max(round(10 * after_seconds), 1)
            if near and not (wrong_states == "leave_out" and -1 in bits):
                expected[r, frame] = bits
    settings = {"fps": 10, "after_seconds": after_seconds, "wrong_states": wrong_states, "initial_state": True}
    of_timelines, of_frames = zip(*recordings, strict=True)
    if not expected:
        with pytest.raises(InputError, match="no key frames"):
            key_frames(of_timelines, of_frames, **settings)  # type: ignore[arg-type]
        return
    found = key_frames(of_timelines, of_frames, **settings)  # type: ignore[arg-type]
    rows = zip(found.recording_M.tolist(), found.frame_M.tolist(), found.label_M.tolist(), strict=True)
    assert {(r, frame): found.states[label] for r, frame, label in rows} == expected
    assert len(found) == len(expected)
    assert len(set(found.states)) == len(found.states) == len(set(found.label_M.tolist()))


def test_the_frames_of_the_next_two_seconds_carry_the_new_state_but_never_past_the_next_change() -> None:
    assert frames_by_state(lamp_frames()) == {
        (0, 0, 0): list(range(0, 20)),
        (1, 0, 0): list(range(30, 45)),  # the next change comes after 1.5 s
        (1, -1, 0): list(range(45, 65)),
        (1, 1, 0): list(range(100, 105)),
        (1, 1, 1): list(range(105, 125)),
    }


def test_key_frames_end_with_the_recording() -> None:
    assert frames_by_state(lamp_frames(n_frames=110))[1, 1, 1] == [105, 106, 107, 108, 109]


def test_zero_seconds_leave_the_frame_of_the_completion() -> None:
    assert lamp_frames(after_seconds=0).frame_M.tolist() == [0, 30, 45, 100, 105]


def test_wrong_states_can_be_left_out() -> None:
    assert (1, -1, 0) not in lamp_frames(wrong_states="leave_out").states


def test_the_initial_state_can_be_left_out_because_it_completes_nothing() -> None:
    assert (0, 0, 0) not in lamp_frames(initial=False).states


def test_labels_without_a_change_of_state_are_refused() -> None:
    still = StateTimeline((0,), ((0, 0),))
    with pytest.raises(InputError, match="no key frames"):
        key_frames([still], [50], fps=10, after_seconds=2, wrong_states="own_label", initial_state=False)


def many_recordings(n: int = 6) -> KeyFrames:
    """The same states in each of n recordings; the last state only in the first one, for three frames."""
    short = StateTimeline((0, 30), ((0, 0, 0), (1, 0, 0)))
    long = StateTimeline((0, 30, 60), ((0, 0, 0), (1, 0, 0), (1, 1, 0)))
    timelines = [long] + [short] * (n - 1)
    return key_frames(timelines, [63] * n, fps=10, after_seconds=1, wrong_states="own_label", initial_state=True)


def sampler_of(
    frames: KeyFrames,
    *,
    n_sample: int = 4,
    n_syn: int = 0,
    states_per_batch: int | None = None,
    seed: int = 0,
    renders: list[int] | None = None,
    shard: Shard | None = None,
) -> KeyFrameSampler:
    return KeyFrameSampler(
        frames,
        n_sample=n_sample,
        n_syn=n_syn,
        states_per_batch=states_per_batch,
        seed=seed,
        render_label_R=None if renders is None else np.array(renders),
        shard=shard,
    )


@given(seed=st.integers(0, 1000), n_sample=st.integers(2, 12), n_syn=st.integers(0, 5), epoch=st.integers(0, 3))
def test_a_batch_holds_every_state_equally_often_and_every_image_has_its_own_state(
    seed: int, n_sample: int, n_syn: int, epoch: int
) -> None:
    frames = many_recordings()
    batch = sampler_of(frames, n_sample=n_sample, n_syn=n_syn, seed=seed, renders=[0, 1, 2, 2, 1, 0]).batch(epoch, 0)
    assert_array_equal(np.bincount(batch.label_B), [n_sample + n_syn] * 3)
    truth = {
        (recording, frame): label
        for recording, frame, label in zip(frames.recording_M, frames.frame_M, frames.label_M, strict=True)
    }
    for recording, index, label in zip(batch.recording_B, batch.index_B, batch.label_B, strict=True):
        assert (truth[recording, index] if recording >= 0 else [0, 1, 2, 2, 1, 0][index]) == label
    assert (batch.recording_B < 0).sum() == 3 * n_syn


@given(seed=st.integers(0, 1000), n_sample=st.integers(2, 12))
def test_images_of_a_state_come_from_as_many_recordings_as_possible(seed: int, n_sample: int) -> None:
    batch = sampler_of(many_recordings(6), n_sample=n_sample, seed=seed).batch(0, 0)
    recordings = batch.recording_B[batch.label_B == 1]
    counts = np.bincount(recordings, minlength=6)
    assert len(set(recordings.tolist())) == min(n_sample, 6)
    assert counts.max() - counts.min() <= 1


def test_a_state_with_too_few_images_is_drawn_with_replacement_and_reported() -> None:
    sampler = sampler_of(many_recordings(), n_sample=8)
    batch = sampler.batch(0, 0)
    _, counts = np.unique(batch.index_B[batch.label_B == 2], return_counts=True)
    assert sorted(counts.tolist()) == [2, 3, 3]
    assert "1 of 3 states have fewer than 8 key frames" in sampler.notes[0]
    assert "110 has 3" in sampler.notes[0]


def test_a_state_that_a_single_recording_shows_is_reported() -> None:
    sampler = sampler_of(many_recordings(), n_sample=3)
    assert len(sampler.notes) == 1
    assert sampler.notes[0].startswith("1 of 3 states are seen in one recording only")
    assert "(110)" in sampler.notes[0]


def test_a_state_without_renders_gets_real_images_and_is_reported() -> None:
    sampler = sampler_of(many_recordings(), n_sample=2, n_syn=2, renders=[0, 0, 1])
    batch = sampler.batch(0, 0)
    assert_array_equal(batch.recording_B[batch.label_B == 2] >= 0, [True] * 4)
    assert "1 of 3 states have no renders" in sampler.notes[-1]


def test_plenty_of_images_need_no_note() -> None:
    timeline = StateTimeline((0, 30), ((0, 0), (1, 0)))
    frames = key_frames(
        [timeline, timeline], [60, 60], fps=10, after_seconds=1, wrong_states="own_label", initial_state=True
    )
    assert sampler_of(frames, n_sample=3).notes == ()


def test_a_batch_may_hold_some_of_the_states_and_in_time_all_of_them_come() -> None:
    sampler = sampler_of(many_recordings(), states_per_batch=2)
    batches = [set(sampler.batch(0, number).label_B.tolist()) for number in range(12)]
    assert {len(states) for states in batches} == {2}
    assert set().union(*batches) == {0, 1, 2}


def test_key_frame_batches_depend_on_seed_epoch_and_number_alone() -> None:
    sampler = sampler_of(many_recordings())
    first = sampler.batch(3, 5)
    sampler.batch(0, 0)
    assert_array_equal(sampler.batch(3, 5).index_B, first.index_B)
    assert_array_equal(sampler_of(many_recordings()).batch(3, 5).index_B, first.index_B)
    for other in (sampler.batch(3, 6), sampler.batch(4, 5), sampler_of(many_recordings(), seed=1).batch(3, 5)):
        assert not np.array_equal(other.index_B, first.index_B)


def test_two_processes_share_a_key_frame_batch_without_overlap_and_each_gets_every_state() -> None:
    whole = sampler_of(many_recordings()).batch(1, 2)
    parts = [sampler_of(many_recordings(), shard=Shard(rank, 2)).batch(1, 2) for rank in range(2)]
    assert_array_equal(np.stack([part.index_B for part in parts], axis=1).ravel(), whole.index_B)
    for part in parts:
        assert_array_equal(np.bincount(part.label_B), [2, 2, 2])


@pytest.mark.parametrize(("n_sample", "n_syn", "processes"), [(1, 0, 1), (0, 4, 1), (3, 0, 2)])
def test_batches_in_which_images_lack_a_partner_or_a_process_are_refused(
    n_sample: int, n_syn: int, processes: int
) -> None:
    with pytest.raises(InputError):
        sampler_of(many_recordings(), n_sample=n_sample, n_syn=n_syn, shard=Shard(0, processes))


def test_a_single_state_cannot_be_contrasted() -> None:
    with pytest.raises(InputError, match="same state"):
        sampler_of(lamp_frames(n_frames=20))


def test_a_rank_outside_the_group_is_refused() -> None:
    with pytest.raises(InputError, match="rank 2 of 2"):
        Shard(2, 2)


# ---------------------------------------------------------------------- clips
def test_completions_are_changes_of_what_is_correctly_in_place() -> None:
    assert change_frames(LAMP).tolist() == [30, 100, 105]  # the wrong pole at 45 changes nothing


def test_kcas_prefers_clips_that_end_before_and_after_a_completion_over_the_completion_itself() -> None:
    p = end_frame_probabilities("kcas", np.array([500]), 1000, delta_frames=80, sigma_frames=45)
    assert p[420] == pytest.approx(p[580])
    assert p[420] == p.max()
    assert p[420] > 2 * p[500] > 0
    assert p[420] / p[465] == pytest.approx(np.exp(0.5), rel=0.1)  # one sigma away; the other Gaussian adds a little


def test_the_gaussian_has_its_mode_at_the_completion() -> None:
    p = end_frame_probabilities("gaussian", np.array([500]), 1000, delta_frames=80, sigma_frames=45)
    assert p.argmax() == 500
    assert p[545] / p[500] == pytest.approx(np.exp(-0.5))


def test_completions_at_the_same_moment_count_once() -> None:
    once = end_frame_probabilities("kcas", np.array([100, 500]), 1000, delta_frames=80, sigma_frames=45)
    twice = end_frame_probabilities("kcas", np.array([100, 500, 500, 500]), 1000, delta_frames=80, sigma_frames=45)
    assert_array_equal(once, twice)


def test_a_recording_without_completions_is_drawn_uniformly() -> None:
    p = end_frame_probabilities("kcas", np.array([], dtype=np.int64), 4, delta_frames=80, sigma_frames=45)
    assert p.tolist() == [0.25] * 4


@given(
    kind=st.sampled_from(["kcas", "gaussian", "uniform"]),
    times=st.lists(st.integers(0, 20_000), max_size=6),
    n_frames=st.integers(1, 3000),
    sigma=st.floats(0.5, 100),
)
def test_end_frame_probabilities_are_a_distribution_even_far_from_every_completion(
    kind: str, times: list[int], n_frames: int, sigma: float
) -> None:
    p = end_frame_probabilities(
        kind,
        np.array(times, dtype=np.int64),
        n_frames,
        delta_frames=80,
        sigma_frames=sigma,  # type: ignore[arg-type]
    )
    assert p.shape == (n_frames,)
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1)


@given(
    times=st.lists(st.integers(0, 399), min_size=1, max_size=6),
    n_frames=st.integers(50, 400),
    delta=st.floats(0, 100),
    sigma=st.floats(20, 80),
)
def test_kcas_is_the_sum_of_two_gaussians_per_distinct_completion(
    times: list[int], n_frames: int, delta: float, sigma: float
) -> None:
    frames = np.arange(n_frames)
    expected = np.zeros(n_frames)
    for time in set(times):
        for mode in (time - delta, time + delta):
            expected += np.exp(-((frames - mode) ** 2) / (2 * sigma**2))
    p = end_frame_probabilities("kcas", np.array(times), n_frames, delta_frames=delta, sigma_frames=sigma)
    np.testing.assert_allclose(p, expected / expected.sum(), rtol=1e-6, atol=1e-15)


def clip_sampler(*, seed: int = 0, batch_size: int = 8, shard: Shard | None = None) -> ClipSampler:
    inside = np.zeros(100)
    inside[40:60] = 1 / 20
    return ClipSampler(
        [inside, np.full(300, 1 / 300)], batch_size=batch_size, batches_per_epoch=5, seed=seed, shard=shard
    )


@given(seed=st.integers(0, 1000), epoch=st.integers(0, 5))
def test_clips_follow_the_distribution_inside_a_recording_and_the_lengths_between_them(seed: int, epoch: int) -> None:
    recording, end = clip_sampler(seed=seed).epoch(epoch)
    assert_array_equal(np.bincount(recording), [10, 30])
    assert ((end[recording == 0] >= 40) & (end[recording == 0] < 60)).all()
    assert ((end >= 0) & (end < np.where(recording == 0, 100, 300))).all()


def test_clip_batches_depend_on_seed_epoch_and_number_alone() -> None:
    _, first = clip_sampler().batch(2, 4)
    assert_array_equal(clip_sampler().batch(2, 4)[1], first)
    for other in (clip_sampler().batch(2, 3), clip_sampler().batch(1, 4), clip_sampler(seed=1).batch(2, 4)):
        assert not np.array_equal(other[1], first)


def test_two_processes_share_a_batch_of_clips_without_overlap() -> None:
    _, whole = clip_sampler().batch(1, 2)
    parts = [clip_sampler(shard=Shard(rank, 2)).batch(1, 2)[1] for rank in range(2)]
    assert_array_equal(np.stack(parts, axis=1).ravel(), whole)


def test_a_batch_that_cannot_be_shared_equally_is_refused() -> None:
    with pytest.raises(InputError, match="shared equally"):
        clip_sampler(batch_size=9, shard=Shard(0, 2))


# ---------------------------------------------------------------------- windows
def test_64_of_256_frames_are_four_frames_apart_and_include_the_last() -> None:
    assert_array_equal(window_offsets(256, 64), np.arange(-252, 1, 4))


@given(window=st.integers(1, 300), data=st.data())
def test_offsets_are_equally_spaced_within_the_window_and_end_with_the_last_frame(
    window: int, data: st.DataObject
) -> None:
    n_window = data.draw(st.integers(1, window))
    offsets = window_offsets(window, n_window)
    assert len(offsets) == n_window
    assert offsets[-1] == 0
    assert offsets[0] > -window
    gaps = np.diff(offsets)
    assert n_window == 1 or (gaps.min() >= 1 and gaps.max() - gaps.min() <= 1)


def test_a_window_cannot_give_more_frames_than_it_has() -> None:
    with pytest.raises(InputError, match="17 frames out of a window of 16"):
        window_offsets(16, 17)


def test_a_clip_that_begins_before_the_recording_is_padded_on_the_left() -> None:
    frames, mask = clip_windows(np.array([5, 20]), window_offsets(16, 4))
    assert frames.tolist() == [[0, 0, 1, 5], [8, 12, 16, 20]]
    assert mask.tolist() == [[False, False, True, True], [True, True, True, True]]


def test_a_clips_label_is_what_differs_between_its_ends() -> None:
    states = LAMP.dense(200)

    def label(first: int, last: int) -> list[int]:
        return clip_labels(states, np.array([[first, last]]), np.array([[True, True]]))[0].tolist()

    assert label(0, 29) == [0, 0, 0]
    assert label(0, 30) == [1, 0, 0]
    assert label(30, 60) == [0, 0, 0]  # the pole was put on wrongly: counts as absent
    assert label(50, 100) == [0, 1, 0]  # wrong to right is a completion
    assert label(0, 199) == [1, 1, 1]
    assert label(110, 199) == [0, 0, 0]


@given(recording=timelines(), window=st.integers(1, 60), data=st.data())
def test_a_label_compares_the_first_and_the_last_frame_that_exist_and_takes_wrong_for_absent(
    recording: tuple[StateTimeline, int], window: int, data: st.DataObject
) -> None:
    timeline, n_frames = recording
    n_window = data.draw(st.integers(1, window))
    ends = np.arange(n_frames)
    frames, mask = clip_windows(ends, window_offsets(window, n_window))
    found = clip_labels(timeline.dense(n_frames), frames, mask)
    for end in ends.tolist():
        exist = [frame for frame in (end + window_offsets(window, n_window)).tolist() if frame >= 0]
        pairs = zip(timeline.at(exist[0]), timeline.at(end), strict=True)
        assert exist[-1] == end
        assert found[end].tolist() == [int((first == 1) != (last == 1)) for first, last in pairs]


def test_taking_off_and_putting_on_again_within_a_clip_is_no_change_but_each_alone_is() -> None:
    states = StateTimeline((0, 10, 20), ((1,), (0,), (1,))).dense(30)
    clips = np.array([[5, 25], [5, 15], [15, 25]])
    assert clip_labels(states, clips, np.ones((3, 2), dtype=bool)).tolist() == [[0], [1], [1]]


def test_the_label_of_a_padded_clip_begins_with_its_first_frame_that_exists() -> None:
    states = StateTimeline((0, 3), ((0,), (1,))).dense(30)
    frames, mask = clip_windows(np.array([5, 9]), window_offsets(8, 2))  # frames 1 and 5; 5 and 9
    assert clip_labels(states, frames, mask).tolist() == [[1], [0]]
    frames, mask = clip_windows(np.array([3]), window_offsets(8, 2))  # frame -1 does not exist
    assert clip_labels(states, frames, mask).tolist() == [[0]]
