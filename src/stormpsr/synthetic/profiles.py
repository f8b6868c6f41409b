"""What kind of recordings to make: pace, clear views and errors, calibrated on what real recordings look like.

The deciles of the real annotations that the figures come from stand in `stats.py`, beside the check that generated
sets come within 25 % of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType

import numpy as np

from stormpsr.errors import InputError


@dataclass(frozen=True)
class Profile:
    """How people work in one kind of recording. Seconds are drawn per recording from these distributions."""

    name: str
    fps: float
    completion_gap_quantiles: tuple[float, ...]  # seconds between completions: minimum, 9 deciles, maximum
    pace: float  # 1 for unhurried hands; reaching, fetching and bringing take this many times as long
    fit_share: tuple[float, float]  # which share of the time between completions goes into fitting the part
    moment_gap_seconds: float  # mean time between moments in which the object is left open to view
    views_per_moment: float  # mean number of clear views in such a moment (a hand passes in between)
    interruption_seconds: float  # median time between two views of one moment
    view_seconds: float  # median length of a clear view
    view_spread: float  # standard deviation of the logarithm of that length
    view_after_completion: float  # share of views cut off by work that come right after the completion instead
    together_rate: float  # how often two parts that belong together are completed in one go
    error_rate: float = 0.12  # share of parts installed one at a time that go wrong at first
    removal_rate: float = 0.07  # share of parts that are taken off and put on again
    omission_rate: float = 0.02  # share of expected installations that never happen
    uncorrected_share: float = 0.25  # share of wrong installations that stay wrong
    lead_in_seconds: float = 4.0  # before the first action begins
    lead_out_seconds: float = 8.0  # after the last completion

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.name.endswith(("_rate", "_share", "_after_completion")) and isinstance(value, (int, float)):
                if not 0.0 <= value <= 1.0:
                    raise InputError(f"{entry.name} is {value}", cure="rates lie between 0 and 1")
            elif isinstance(value, float) and not value > 0.0:
                raise InputError(f"{entry.name} is {value}, but it must be more than 0")
        if len(self.completion_gap_quantiles) != 11 or list(self.completion_gap_quantiles) != sorted(
            self.completion_gap_quantiles
        ):
            raise InputError("completion_gap_quantiles needs 11 ascending numbers: minimum, nine deciles, maximum")


PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            Profile(
                name="industreal",
                fps=10.0,
                completion_gap_quantiles=(7, 11, 17, 21, 28, 38, 42, 47, 53, 75, 115),
                pace=1.0,
                fit_share=(0.25, 0.55),
                moment_gap_seconds=28.2,
                views_per_moment=1.15,
                interruption_seconds=1.8,
                view_seconds=4.0,
                view_spread=0.75,
                view_after_completion=0.4,
                together_rate=0.45,
            ),
            Profile(
                name="meccano",
                fps=12.0,
                completion_gap_quantiles=(8, 13, 26, 37, 49, 59, 72, 91, 117, 167, 280),
                pace=1.15,
                fit_share=(0.3, 0.65),
                moment_gap_seconds=43.0,
                views_per_moment=2.0,
                interruption_seconds=1.6,
                view_seconds=1.35,
                view_spread=0.9,
                view_after_completion=0.2,
                together_rate=0.25,
                error_rate=0.13,
                removal_rate=0.13,
            ),
            Profile(
                name="quick",
                fps=10.0,
                completion_gap_quantiles=(9, 11.5, 12.5, 13.5, 14.5, 15.5, 16.5, 17.5, 19, 21, 24),
                pace=0.8,
                fit_share=(0.25, 0.45),
                moment_gap_seconds=11.0,
                views_per_moment=1.25,
                interruption_seconds=1.0,
                view_seconds=1.8,
                view_spread=0.6,
                view_after_completion=0.4,
                together_rate=0.15,
                lead_in_seconds=2.5,
                lead_out_seconds=6.0,
            ),
        )
    }
)


def profile_named(name: str) -> Profile:
    """A shipped profile."""
    if name not in PROFILES:
        raise InputError(f"there is no profile {name!r}", cure=f"choose one of: {', '.join(PROFILES)}")
    return PROFILES[name]


@dataclass(frozen=True)
class Traits:
    """One person's body and habits. What hands look like (skin, glove, sleeve) is drawn by the renderer."""

    right_handed: bool
    hand_scale: float  # 1 is a hand of 19 cm
    speed: float  # above 1: less time between completions
    tidiness: float  # how closely the listed order is followed
    showing: float  # how often the object is left open to view, 1 on average
    lifting: float  # how often the object is worked on in the air rather than on the table, 0..1
    uses_tool: bool  # or turns screws with the fingers
    eye_distance: float  # 1 on average: how far the eyes are from the work
    eye_pitch_degrees: float  # how steeply they look down
    sway: float  # how restless the head is, 1 on average
    home_yaw_degrees: float  # which side of the object faces them at rest

    def to_dict(self) -> dict[str, float | bool]:
        return asdict(self)


def draw_traits(rng: np.random.Generator) -> Traits:
    """A random person."""
    return Traits(
        right_handed=bool(rng.random() < 0.87),
        hand_scale=float(rng.uniform(0.82, 1.02)),
        speed=float(np.exp(0.10 * rng.standard_normal())),
        tidiness=float(rng.uniform(0.5, 2.0)),
        showing=float(np.exp(0.25 * rng.standard_normal() - 0.03)),
        lifting=float(rng.uniform(0.15, 0.75)),
        uses_tool=bool(rng.random() < 0.85),
        eye_distance=float(rng.uniform(0.92, 1.12)),
        eye_pitch_degrees=float(rng.uniform(46.0, 62.0)),
        sway=float(rng.uniform(0.6, 1.5)),
        home_yaw_degrees=float(rng.normal(0.0, 25.0) + (180.0 if rng.random() < 0.3 else 0.0)),
    )
