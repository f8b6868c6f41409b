"""Whether an image looks like those that a detector learned from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stormpsr.detectors.known_views import KNOWN_VIEWS_FILE, Familiarity, KnownViews
from stormpsr.errors import InputError
from stormpsr.files import write_arrays

Q, D = 5, 8


def found(n: int, *, shift: float = 0.0, seed: int = 0) -> list[np.ndarray]:
    """What queries find in images: dimensions of very different size, two of which go together."""
    scale_D = np.logspace(-2, 2, D)
    rows = np.random.default_rng(seed).normal(size=(n, Q, D)) + shift
    rows[..., 1] += 5 * rows[..., 0]
    return list((rows * scale_D).astype(np.float32))


@pytest.fixture
def known() -> KnownViews:
    views = KnownViews.fit(found(2000))
    assert views is not None
    return views


def test_what_was_learned_from_is_known_and_what_is_far_away_is_not(known: KnownViews) -> None:
    assert np.mean([known.strangeness(own) < 1 for own in found(1000, seed=1)]) > 0.98
    assert all(known.strangeness(own) > 1 for own in found(100, shift=4.0, seed=1))


def test_too_few_images_say_nothing() -> None:
    assert KnownViews.fit([]) is None
    assert KnownViews.fit(found(2 * D)) is None


def test_they_are_kept_in_a_file(known: KnownViews, tmp_path: Path) -> None:
    assert KnownViews.load(tmp_path) is None
    known.save(tmp_path)
    again = KnownViews.load(tmp_path)
    assert again is not None
    own = found(1, seed=3)[0]
    assert again.strangeness(own) == known.strangeness(own)


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"mean": np.zeros(3), "whiten": np.eye(2), "limit": np.array(1.0)},
        {"mean": np.full(2, np.nan), "whiten": np.eye(2), "limit": np.array(1.0)},
        {"mean": np.zeros(2), "whiten": np.eye(2), "limit": np.array(-1.0)},
        {"mean": np.array(["a", "b"]), "whiten": np.eye(2), "limit": np.array(1.0)},
        {"mean": np.zeros(2), "whiten": np.eye(2), "limit": np.ones(2)},
        {"mean": np.array(1.0), "whiten": np.eye(1), "limit": np.array(1.0)},
    ],
)
def test_other_arrays_are_refused_with_the_file(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    write_arrays(tmp_path / KNOWN_VIEWS_FILE, **arrays)
    with pytest.raises(InputError, match=KNOWN_VIEWS_FILE):
        KnownViews.load(tmp_path)


def test_those_of_another_detector_are_refused(known: KnownViews) -> None:
    with pytest.raises(InputError, match="8 dimensions, but queries have 7"):
        known.strangeness(np.zeros((Q, 7), dtype=np.float32))


def test_many_odd_images_in_a_row_are_foreign_and_one_is_not() -> None:
    familiarity = Familiarity()
    assert not familiarity.is_foreign  # nothing seen yet
    for _ in range(50):
        familiarity.take(0.5)
    familiarity.take(3.0)
    assert not familiarity.is_foreign
    for _ in range(30):
        familiarity.take(None)  # of images that nobody can tell
        familiarity.take(2.0)
    assert familiarity.is_foreign
    for _ in range(60):
        familiarity.take(0.5)
    assert not familiarity.is_foreign
    familiarity.take(100.0)
    familiarity.reset()
    assert not familiarity.is_foreign
