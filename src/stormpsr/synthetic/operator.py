"""Who the person is: body and habits, drawn once per recording.

The person: who they are, and how a plan becomes movement.

`simulate` is the way in: a product, a variant and a seed give a `Timeline` that the renderer draws, and the `Plan` it
follows. Everything is numpy and deterministic.
"""

from __future__ import annotations

from stormpsr.procedure.model import Variant
from stormpsr.synthetic.actions import ErrorRates
from stormpsr.synthetic.choreography import perform
from stormpsr.synthetic.plan import Plan, draw_plan, random_stream
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import Profile, Traits, draw_traits
from stormpsr.synthetic.timeline import Timeline


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
        seed=seed,
        occlusion=occlusion,
        rates=rates or default_rates(profile),
        speed=traits.speed,
        tidiness=traits.tidiness,
        showing=traits.showing,
        max_seconds=max_seconds,
    )
    return plan, perform(plan, product, variant.initial, traits, seed=seed, occlusion=occlusion), traits


def default_rates(profile: Profile) -> ErrorRates:
    """The profile's own rates."""
    return ErrorRates(profile.error_rate, profile.removal_rate, profile.omission_rate, profile.uncorrected_share)
