"""Which frames are read when, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from stormpsr.data.sampling import clip_windows, window_offsets
from stormpsr.recognizer.networks import EmbeddingRing, Schedule, tick_of


@pytest.mark.parametrize("fps", [5.0, 10.0, 12.5, 30.0, 29.97])
def test_a_frame_at_its_own_rate_has_its_own_number(fps: float) -> None:
    assert [tick_of(index / fps, fps) for index in range(20_000)] == list(range(20_000))


def test_frames_of_twice_the_rate_share_ticks_evenly() -> None:
    ticks = [tick_of(index / 20, 10) for index in range(200)]
    assert [ticks.count(tick) for tick in range(1, 99)] == [2] * 98


def test_networks_run_in_the_first_frame_of_each_stride() -> None:
    schedule = Schedule(10, detector_stride=2, temporal_stride=4, offsets_N=window_offsets(16, 4))
    due = [schedule.next(tick / 10) for tick in (0, 1, 2, 5, 6, 7, 8, 12)]  # 3 and 4 were dropped
    assert all(one is not None for one in due)
    assert [one.detect for one in due if one] == [True, False, True, True, True, False, True, True]
    assert [one.predict for one in due if one] == [True, False, False, True, False, False, True, True]
    assert [one.slot for one in due if one and one.encode] == [0, 1, 2, 3]


def test_without_a_network_it_is_never_due() -> None:
    due = Schedule(10, detector_stride=None, temporal_stride=None).next(0.0)
    assert due is not None
    assert (due.detect, due.encode, due.predict) == (False, False, False)


@pytest.mark.parametrize(("window", "n_window", "stride"), [(16, 4, 4), (16, 4, 1), (10, 3, 2), (256, 64, 4)])
def test_windows_over_even_frames_are_those_of_training(window: int, n_window: int, stride: int) -> None:
    offsets = window_offsets(window, n_window)
    schedule = Schedule(10, detector_stride=None, temporal_stride=stride, offsets_N=offsets)
    ring = EmbeddingRing(offsets, schedule.encoder_stride, dim=1)
    n_compared = 0
    for frame in range(3 * window):
        due = schedule.next(frame / 10)
        assert due is not None
        if due.encode:
            ring.put(due.slot, np.array([frame], np.float32))
        if due.predict:
            frames, mask = clip_windows(np.array([frame]), offsets)
            found, known = ring.window(due.slot)
            np.testing.assert_array_equal(known, mask[0])
            np.testing.assert_array_equal(found[known, 0], frames[0][mask[0]])
            assert not found[~known].any()
            n_compared += 1
    assert n_compared == -(-3 * window // stride)


def test_a_missing_frame_is_replaced_by_the_one_before_and_a_long_gap_is_masked() -> None:
    ring = EmbeddingRing(window_offsets(24, 6), 4, dim=1)  # slots -5 .. 0
    for slot in (1, 2, 5, 6):  # 3 and 4 never came
        ring.put(slot, np.array([slot], np.float32))
    found, known = ring.window(6)
    assert known.tolist() == [True, True, True, False, True, True]
    assert found[:, 0].tolist() == [1, 2, 2, 0, 5, 6]
    ring.reset()
    assert not ring.window(6)[1].any()
