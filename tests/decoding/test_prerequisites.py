"""What must have happened before a step, and what fusion makes of it.

A cart: an axle on the frame, a wheel on the axle; a short or a long frame will do.
"""

from __future__ import annotations

import pytest

from stormpsr.decoding.fusion import FusionSettings, NeededSteps, TemporalFusion
from stormpsr.errors import InputError
from stormpsr.procedure.model import AssemblyState, Component, Procedure, StateKind, Variant

LONG, SHORT, AXLE, WHEEL, FLAG = range(5)
PARTS = ("long frame", "short frame", "axle", "wheel", "flag")
INSTALL = {part: 3 * part for part in range(5)}
REMOVE = {part: 3 * part + 2 for part in range(5)}
ALL = (1, 0, 1, 1, 1)


@pytest.fixture
def cart() -> Procedure:
    expected = tuple(INSTALL[part] for part in (LONG, SHORT, AXLE, WHEEL, FLAG))
    return Procedure(
        name="cart",
        components=tuple(Component(name) for name in PARTS),
        states=(
            AssemblyState(0, StateKind.BACKGROUND, "background"),
            AssemblyState(1, StateKind.ASSEMBLY, "all", ALL),
        ),
        variants={
            "build": Variant("build", initial=(0, 0, 0, 0, 0), expected=expected),
            "strip": Variant("strip", initial=ALL, expected=tuple(REMOVE[part] for part in (LONG, AXLE, WHEEL, FLAG))),
        },
        order={"axle": (("long frame", "short frame"),), "wheel": (("axle",),)},
        fps=10,
    )


def before(
    procedure: Procedure, variant: str, state: tuple[int, ...], part: int, *, installs: bool = True
) -> list[int]:
    needed = NeededSteps(procedure, procedure.variant(variant).expected)
    evidence = {INSTALL[SHORT]: 0.7}
    return needed.before(state, part, installs=installs, evidence_of=lambda step: evidence.get(step, 0.0))


def test_what_a_part_stands_on_comes_first_and_of_alternatives_the_likelier(cart: Procedure) -> None:
    assert before(cart, "build", (0, 0, 0, 0, 0), WHEEL) == [INSTALL[SHORT], INSTALL[AXLE]]
    assert before(cart, "build", (1, 0, 0, 0, 0), WHEEL) == [INSTALL[AXLE]]
    assert before(cart, "build", (1, 0, 1, 0, 0), WHEEL) == []
    assert before(cart, "build", (0, 0, 0, 0, 0), FLAG) == []


def test_what_stands_on_a_part_goes_first(cart: Procedure) -> None:
    assert before(cart, "strip", ALL, LONG, installs=False) == [REMOVE[WHEEL], REMOVE[AXLE]]
    assert before(cart, "strip", ALL, WHEEL, installs=False) == []
    assert before(cart, "strip", (1, 1, 1, 1, 1), LONG, installs=False) == []  # the short frame holds the axle


def test_a_need_that_nobody_can_report_counts_as_met(cart: Procedure) -> None:
    assert before(cart, "strip", (0, 0, 0, 0, 0), WHEEL) == []


def watch(cart: Procedure, share: float | None, story: list[tuple[float, ...]]) -> list[tuple[int, int]]:
    settings = FusionSettings(threshold=1.5, implied_share=share, hold_frames=1)
    fusion = TemporalFusion(cart, "build", settings)
    events = [event for frame, change in enumerate(story) for event in fusion.update([], change, frame)]
    return [(event.frame, event.step_id) for event in events]


SEEN_WHEEL = (0.0, 0.0, 0.0, 0.9, 0.0)
SEEN_ALL = (0.8, 0.0, 0.8, 0.9, 0.0)


def test_without_the_order_each_step_is_for_itself(cart: Procedure) -> None:
    assert watch(cart, None, [SEEN_WHEEL] * 4) == [(1, INSTALL[WHEEL])]


def test_a_step_completes_those_that_it_needs_and_in_order(cart: Procedure) -> None:
    assert watch(cart, 0.0, [SEEN_WHEEL] * 4) == [(1, INSTALL[LONG]), (1, INSTALL[AXLE]), (1, INSTALL[WHEEL])]


def test_a_step_waits_until_there_is_some_evidence_of_what_it_needs(cart: Procedure) -> None:
    found = watch(cart, 0.5, [SEEN_WHEEL] * 4 + [SEEN_ALL] * 2)
    assert found == [(4, INSTALL[LONG]), (4, INSTALL[AXLE]), (4, INSTALL[WHEEL])]
    assert watch(cart, 0.5, [SEEN_WHEEL] * 9) == []


def test_a_step_that_was_completed_for_another_is_not_reported_again(cart: Procedure) -> None:
    assert [step for _, step in watch(cart, 0.0, [SEEN_ALL] * 30)] == [INSTALL[LONG], INSTALL[AXLE], INSTALL[WHEEL]]


def test_a_share_beyond_the_whole_is_refused() -> None:
    with pytest.raises(InputError, match=r"implied_share is 1\.5"):
        FusionSettings(implied_share=1.5)
