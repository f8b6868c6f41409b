"""Procedures as values: steps, states, variants, partial orders, and what is refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpsr.errors import InputError
from stormpsr.procedure.model import (
    AssemblyState,
    Component,
    Procedure,
    StateKind,
    StepKind,
    Variant,
    bit_string,
    parse_step_words,
    step_id_of,
)

Order = dict[str, tuple[tuple[str, ...], ...]]
states_of_four = st.tuples(*[st.sampled_from([-1, 0, 1])] * 4)


def table(names: str = "abcd", order: Order | None = None, **changes: object) -> Procedure:
    """A procedure with one-letter components, each of which is installed once."""
    n = len(names)
    variant = Variant("assy", (0,) * n, tuple(step_id_of(k, StepKind.INSTALL) for k in range(n)))
    facts: dict[str, object] = {
        "name": "table",
        "components": tuple(Component(name) for name in names),
        "states": (),
        "variants": {"assy": variant},
        "fps": 10.0,
        "order": order or {},
    }
    return Procedure(**{**facts, **changes})  # type: ignore[arg-type]


# ---------------------------------------------------------------------- steps
def test_a_component_has_three_steps_with_consecutive_ids() -> None:
    steps = table("ab").steps
    assert [step.id for step in steps] == [0, 1, 2, 3, 4, 5]
    assert [step.component_index for step in steps] == [0, 0, 0, 1, 1, 1]
    assert [step.description for step in steps[3:]] == ["Install b", "Incorrectly installed b", "Remove b"]
    assert [step.installs for step in steps[:3]] == [True, True, False]


@pytest.mark.parametrize("kind", list(StepKind))
def test_the_words_for_a_kind_of_step_read_back_as_that_kind(kind: StepKind) -> None:
    assert parse_step_words(f"{kind.words} front wheel") == (kind, "front wheel")


def test_a_step_without_a_known_verb_has_no_kind() -> None:
    assert parse_step_words("mount front wheel") == (None, "mount front wheel")


def test_a_step_id_that_does_not_exist_is_refused_with_the_ids_there_are() -> None:
    with pytest.raises(InputError, match=r"step id 12 does not exist.*ids 0 to 11"):
        table().step(12)
    with pytest.raises(InputError, match="step id -1 does not exist"):
        table().step(-1)
    with pytest.raises(InputError, match="component 4 does not exist"):
        table().step_id(4, StepKind.INSTALL)


@pytest.mark.parametrize(
    ("before", "after", "with_errors", "without_errors"),
    [
        (0, 1, ["Install a"], ["Install a"]),
        (1, 0, ["Remove a"], ["Remove a"]),
        (0, -1, ["Incorrectly installed a"], []),
        (1, -1, ["Incorrectly installed a"], ["Remove a"]),
        (-1, 1, ["Install a"], ["Install a"]),
        (-1, 0, [], []),  # undoing a wrong part undoes nothing that was right
        (1, 1, [], []),
    ],
)
def test_the_change_of_one_component_is_the_published_step(
    before: int, after: int, with_errors: list[str], without_errors: list[str]
) -> None:
    procedure = table("a")
    found = procedure.steps_between((before,), (after,))
    assert [step.description for step in found] == with_errors
    found = procedure.steps_between((before,), (after,), with_errors=False)
    assert [step.description for step in found] == without_errors


@given(states_of_four, states_of_four)
def test_applying_the_steps_between_two_states_leads_from_one_to_the_other(
    before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    procedure = table()
    state = before
    for step in procedure.steps_between(before, after):
        state = procedure.apply(state, step.id)
    undone = [k for k in range(4) if before[k] == -1 and after[k] == 0]  # taking off a wrong part is no step
    assert all(state[k] == after[k] for k in range(4) if k not in undone)
    assert all(state[k] == -1 for k in undone)


@given(states_of_four)
def test_nothing_happens_between_a_state_and_itself(state: tuple[int, ...]) -> None:
    assert table().steps_between(state, state) == []


@given(states_of_four, states_of_four)
def test_without_errors_a_wrong_part_counts_as_absent(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    procedure = table()
    cleaned = [tuple(max(bit, 0) for bit in state) for state in (before, after)]
    assert procedure.steps_between(before, after, with_errors=False) == procedure.steps_between(*cleaned)


# ---------------------------------------------------------------------- states
def test_a_state_is_written_as_digits_with_x_for_a_wrong_part() -> None:
    assert bit_string((1, 0, -1)) == "10x"


def test_a_state_of_the_wrong_length_or_with_other_digits_is_refused() -> None:
    with pytest.raises(InputError, match="has 4 components, this one has 3"):
        table().check_bits((1, 0, 1))
    with pytest.raises(InputError, match="-1, 0 or 1, not 2"):
        table().check_bits((1, 0, 1, 2))


def test_a_perfect_detector_reports_the_class_of_the_state_and_the_error_class_for_a_wrong_part(
    lamp: Procedure,
) -> None:
    assert lamp.state_class((1, 1, 0)) == 3
    assert lamp.state_class((1, -1, 0)) == 5
    assert lamp.state_class((0, 1, 1)) is None


def test_a_procedure_without_an_error_class_reports_none_for_a_wrong_part() -> None:
    assert table("a").error_class is None
    assert table("a").state_class((-1,)) is None


# ---------------------------------------------------------------------- variants
def test_the_first_variant_is_the_default(lamp: Procedure) -> None:
    assert lamp.variant().name == "build"
    assert lamp.variant("dismantle").name == "dismantle"
    with pytest.raises(InputError, match=r"has no variant 'assy'; it has: build, dismantle"):
        lamp.variant("assy")


def test_a_recordings_name_says_which_variant_it_is(industreal: Procedure, meccano: Procedure) -> None:
    named = industreal.variant_of_recording("03_main_0_1")
    assert named is not None
    assert named.name == "main"
    assert industreal.variant_of_recording("0003") is None
    assert industreal.variant_of_recording("domain") is None
    only = meccano.variant_of_recording("0003")
    assert only is not None
    assert only.name == "assy"


# ---------------------------------------------------------------------- order
def test_components_are_put_together_after_what_they_need() -> None:
    procedure = table(order={"a": (("b",),), "b": (("c", "d"),)})
    assert procedure.build_order((1, 1, 1, 0)) == [2, 1, 0]
    assert procedure.build_order((1, 1, 0, 1)) == [3, 1, 0]
    assert procedure.build_order((1, 1, 0, 0)) is None
    assert procedure.build_order((0, 0, 0, 0)) == []


def test_a_component_can_be_installed_once_one_of_each_alternatives_is_there() -> None:
    procedure = table(order={"a": (("b", "c"), ("d",))})
    assert procedure.can_install((0, 0, 1, 1), 0)
    assert not procedure.can_install((0, 1, 1, 0), 0)
    assert procedure.can_install((0, 0, 0, 0), 1)


chains = st.permutations("abcd").flatmap(
    lambda names: st.dictionaries(st.sampled_from(names[1:]), st.just(()), max_size=3).map(
        lambda chosen: dict.fromkeys(chosen, ((names[0],),))
    )
)


@given(chains, st.tuples(*[st.booleans()] * 4))
def test_a_build_order_never_installs_a_component_before_it_can_be(order: Order, wanted: tuple[bool, ...]) -> None:
    procedure = table(order=order)
    built = procedure.build_order([int(bit) for bit in wanted])
    if built is None:
        return
    assert sorted(built) == [k for k in range(4) if wanted[k]]
    state = [0, 0, 0, 0]
    for k in built:
        assert procedure.can_install(state, k)
        state[k] = 1


def test_an_order_with_a_cycle_is_refused_and_only_its_members_are_named() -> None:
    with pytest.raises(InputError, match="cycle: 'a' waits for 'b'"):
        table(order={"a": (("b",),), "b": (("a",),), "c": (("a",),)})


def test_alternatives_break_a_cycle() -> None:
    assert table(order={"a": (("b", "c"),), "b": (("a",),)}).build_order((1, 1, 1, 0)) == [2, 0, 1]


def test_an_order_that_names_an_unknown_component_is_refused() -> None:
    with pytest.raises(InputError, match="'z' is not a component"):
        table(order={"a": (("z",),)})


def test_a_state_that_the_order_forbids_is_refused() -> None:
    state = AssemblyState(0, StateKind.ASSEMBLY, "1000", (1, 0, 0, 0))
    with pytest.raises(InputError, match="state 1000: it cannot be reached"):
        table(order={"a": (("b",),)}, states=(state,))


# ---------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"components": ()}, "no components"),
        ({"components": (Component("a"), Component("a"))}, "component 'a' is there twice"),
        ({"fps": 0.0}, "fps is 0"),
        ({"fps": float("nan")}, "fps is nan"),
        ({"fps": float("inf")}, "fps is inf"),
        ({"variants": {}}, "no variant"),
        ({"variants": {"v": Variant("v", (0, 0), ())}}, "state 00 has 2 digits"),
        ({"variants": {"v": Variant("v", (0, 0, 0, 0), (99,))}}, "expects step 99, which does not exist"),
        ({"variants": {"v": Variant("v", (1, 0, 0, 0), (0,))}}, "'Install a', .* in place already"),
        ({"variants": {"v": Variant("v", (0, 0, 0, 0), (2,))}}, "'Remove a', .* absent already"),
        ({"states": (AssemblyState(1, StateKind.ERROR, "error"),)}, "state class 1 stands at place 0"),
        ({"states": (AssemblyState(0, StateKind.ASSEMBLY, "?"),)}, "is assembly and has no bits"),
        ({"states": (AssemblyState(0, StateKind.ERROR, "e", (0, 0, 0, 0)),)}, "is error and has bits"),
        ({"states": (AssemblyState(0, StateKind.ASSEMBLY, "x", (0, 0, 0, -1)),)}, "digits must be 0 or 1"),
    ],
)
def test_a_procedure_that_makes_no_sense_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        table(**changes)


def test_a_state_that_is_there_twice_is_refused() -> None:
    states = tuple(AssemblyState(i, StateKind.ASSEMBLY, "1000", (1, 0, 0, 0)) for i in range(2))
    with pytest.raises(InputError, match="state 1000 is class 0 already"):
        table(states=states)


def test_a_part_that_is_taken_off_and_put_back_may_start_in_place() -> None:
    variants = {"v": Variant("v", (1, 0, 0, 0), (0, 2))}
    assert table(variants=variants).variant().expected == (0, 2)


@pytest.mark.parametrize("colour", ["red", "#12345", "#gggggg", "123456", ""])
def test_a_colour_that_is_not_six_hexadecimal_digits_is_refused(colour: str) -> None:
    with pytest.raises(InputError, match="write it like '#3366cc'"):
        Component("wheel", colour)


def test_an_empty_component_name_is_refused() -> None:
    with pytest.raises(InputError, match="empty name"):
        Component("  ")


@pytest.mark.parametrize("name", [" wheel", "wheel ", "front\nwheel", "front\twheel", "front\u2028wheel"])
def test_a_component_name_that_a_file_could_not_keep_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="leave out blanks around it"):
        Component(name)


# ---------------------------------------------------------------------- shipped
def test_industreal_is_as_published(industreal: Procedure) -> None:
    assert industreal.n_components == 11
    assert len(industreal.states) == 24
    assert industreal.fps == 10
    assert industreal.variant("assy").expected == (3, 6, 9, 15, 18, 21, 24, 27, 30)
    assert industreal.variant("main").expected == (11, 12, 15, 17, 18, 20, 30, 32)
    assert bit_string(industreal.variant("main").initial) == "11110111111"
    assert industreal.error_class == 23


def test_meccano_is_as_published(meccano: Procedure) -> None:
    assert meccano.n_components == 17
    assert len(meccano.states) == 13
    assert meccano.fps == 12
    assert meccano.variant("assy").expected == tuple(range(0, 51, 3))
    assert meccano.error_class == 12


@pytest.mark.parametrize("name", ["industreal", "meccano"])
def test_the_states_of_the_shipped_procedures_differ(name: str) -> None:
    bits = [state.bits for state in Procedure.load(name).states if state.bits is not None]
    assert all(a != b for a, b in itertools.combinations(bits, 2))
