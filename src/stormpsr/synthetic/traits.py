"""Who the person is: body and habits, drawn once per recording."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

__all__ = ["Traits", "draw_traits"]


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
