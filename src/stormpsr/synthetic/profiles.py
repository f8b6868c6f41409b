"""What kind of recordings to make, and who the person is: pace, clear views and errors, body and habits.

The profiles in `profiles.yaml` are calibrated on what real recordings look like. The deciles of the real annotations
that their figures come from stand in `overview.py`, beside the check that generated sets come within 25 % of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from stormpsr.errors import InputError
from stormpsr.synthetic.actions import ErrorRates
from stormpsr.yaml_loader import STRICT_KEYS, read_yaml, validate

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Quantiles = Annotated[tuple[float, ...], Field(min_length=11, max_length=11)]  # minimum, 9 deciles, maximum


@dataclass(frozen=True)
class Profile:
    """How people work in one kind of recording. Seconds are drawn per recording from these distributions."""

    __pydantic_config__ = STRICT_KEYS

    fps: Positive
    completion_gap_quantiles: Quantiles  # seconds between completions
    pace: Positive  # 1 for unhurried hands; reaching, fetching and bringing take this many times as long
    fit_share: tuple[Share, Share]  # which share of the time between completions goes into fitting the part
    moment_gap_seconds: Positive  # mean time between moments in which the object is left open to view
    views_per_moment: Positive  # mean number of clear views in such a moment (a hand passes in between)
    interruption_seconds: Positive  # median time between two views of one moment
    view_seconds: Positive  # median length of a clear view
    view_spread: Positive  # standard deviation of the logarithm of that length
    view_after_completion: Share  # of views cut off by work that come right after the completion instead
    together_rate: Share  # how often two parts that belong together are completed in one go
    error_rate: Share = 0.12  # of parts installed one at a time that go wrong at first
    removal_rate: Share = 0.07  # of parts that are taken off and put on again
    omission_rate: Share = 0.02  # of expected installations that never happen
    uncorrected_share: Share = 0.25  # of wrong installations that stay wrong
    lead_in_seconds: Positive = 4.0  # before the first action begins
    lead_out_seconds: Positive = 8.0  # after the last completion

    @property
    def rates(self) -> ErrorRates:
        return ErrorRates(self.error_rate, self.removal_rate, self.omission_rate, self.uncorrected_share)


PROFILES: Mapping[str, Profile] = validate(dict[str, Profile], read_yaml(Path(__file__).with_name("profiles.yaml")))


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
