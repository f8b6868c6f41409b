"""Which state follows which, and its three drawings."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpsr.errors import InputError
from stormpsr.procedure.graph import StateGraph, component_colours, mermaid_drawing, state_graph, text_drawing
from stormpsr.procedure.model import AssemblyState, Component, Procedure, StateKind, Variant, bit_string


def build(states: list[str], initial: str, expected: list[int], names: str = "abcdefgh") -> Procedure:
    n = len(initial)
    classes = [AssemblyState(0, StateKind.BACKGROUND, "background")]
    classes += [
        AssemblyState(i, StateKind.ASSEMBLY, bits, tuple(int(bit) for bit in bits)) for i, bits in enumerate(states, 1)
    ]
    variant = Variant("v", tuple(int(bit) for bit in initial), tuple(sorted(expected)))
    return Procedure("thing", tuple(Component(names[k]) for k in range(n)), tuple(classes), {"v": variant}, 10.0)


def arrows(procedure: Procedure, graph: StateGraph) -> list[str]:
    """`10>11 +b`, one per change."""
    states = [bit_string(node.bits) for node in graph.nodes]
    return [f"{states[c.before]}>{states[c.after]} {' '.join(c.words(procedure))}" for c in graph.changes]


# ---------------------------------------------------------------------- which state follows which
def test_a_state_follows_the_largest_state_that_is_part_of_it() -> None:
    thing = build(["100", "110", "111"], "000", [0, 3, 6])
    assert arrows(thing, state_graph(thing)) == ["000>100 +a", "100>110 +b", "110>111 +c"]


def test_ways_branch_and_meet() -> None:
    thing = build(["10", "01", "11"], "00", [0, 3])
    assert arrows(thing, state_graph(thing)) == ["00>10 +a", "00>01 +b", "10>11 +b", "01>11 +a"]


def test_several_components_may_come_between_two_states() -> None:
    thing = build(["1111"], "1000", [3, 6, 9])
    assert arrows(thing, state_graph(thing)) == ["1000>1111 +b +c +d"]


def test_steps_that_the_variant_does_not_expect_lead_nowhere() -> None:
    thing = build(["10", "11"], "00", [0])
    graph = state_graph(thing)
    assert arrows(thing, graph) == ["00>10 +a"]
    assert [node.label for node in graph.left_out] == ["2"]


def test_removals_lead_down_and_are_not_undone_at_once() -> None:
    thing = build(["11", "10", "00"], "11", [2, 3, 5])  # b may be put back
    assert arrows(thing, state_graph(thing)) == ["11>10 -b", "10>00 -a"]


def test_what_is_taken_off_to_be_put_back_has_a_way_back_to_the_end() -> None:
    thing = build(["11", "10", "00"], "11", [0, 2, 3, 5])
    graph = state_graph(thing)
    assert arrows(thing, graph) == ["11>10 -b", "10>11 +b", "10>00 -a", "00>10 +a"]
    assert text_drawing(thing, graph).endswith("  ends at 1\n")


def test_where_the_end_is_no_state_the_last_states_are_the_ends() -> None:
    thing = build(["10", "01"], "00", [0, 3])
    assert text_drawing(thing, state_graph(thing)).endswith("  ends at 1 or 2\n")


def test_parts_that_are_exchanged_between_two_states_are_joined_by_one_arrow() -> None:
    thing = build(["10", "01"], "10", [2, 3])
    assert arrows(thing, state_graph(thing)) == ["10>01 -a +b"]


def test_an_initial_state_that_is_a_class_is_not_drawn_twice() -> None:
    thing = build(["00", "10", "11"], "00", [0, 3])
    assert [node.label for node in state_graph(thing).nodes] == ["1", "2", "3"]


def test_a_procedure_without_states_is_its_start_alone() -> None:
    thing = build([], "00", [0, 3])
    graph = state_graph(thing)
    assert [node.label for node in graph.nodes] == ["start"]
    assert graph.changes == ()
    assert "ends at start" in text_drawing(thing, graph)


def test_an_unknown_variant_is_refused(industreal: Procedure) -> None:
    with pytest.raises(InputError, match="has no variant 'nix'"):
        state_graph(industreal, "nix")


def test_the_maintenance_of_industreal_takes_off_and_puts_back(industreal: Procedure) -> None:
    graph = state_graph(industreal, "main")
    labels = [node.label for node in graph.nodes]
    pairs = {(labels[c.before], labels[c.after]): c.words(industreal) for c in graph.changes}
    assert pairs["13", "10"] == ["-rear wheel assy"]
    assert pairs["18", "19"] == ["+short rear chassis", "+front rear chassis pin"]
    assert ("10", "13") not in pairs
    assert labels[0] == "13"
    assert labels[-1] == "22"
    assert {node.label for node in graph.left_out} == {"1", "2", "3", "4", "5", "6", "7", "8", "9", "11", "12"}


def test_meccano_is_a_chain(meccano: Procedure) -> None:
    graph = state_graph(meccano)
    assert [(c.before, c.after) for c in graph.changes] == [(i, i + 1) for i in range(11)]


bit_strings = st.lists(st.text("01", min_size=4, max_size=4), unique=True, max_size=8)


@given(bit_strings, st.text("01", min_size=4, max_size=4))
def test_every_state_that_expected_steps_can_make_is_reached_and_nothing_else(states: list[str], initial: str) -> None:
    # a and b may be installed, c and d removed, where the start allows it
    expected = [3 * k for k in (0, 1) if initial[k] == "0"] + [3 * k + 2 for k in (2, 3) if initial[k] == "1"]
    thing = build(states, initial, expected)
    graph = state_graph(thing)
    possible = {
        "".join(bits) for bits in itertools.product(*(sorted({bit, "10"[k > 1]}) for k, bit in enumerate(initial)))
    }
    drawn = {bit_string(node.bits) for node in graph.nodes}
    assert drawn == ({*states} & possible) | {initial}
    assert {bit_string(node.bits) for node in graph.left_out} == {*states} - drawn
    entered = {change.after for change in graph.changes}
    assert entered == set(range(1, len(graph.nodes)))
    for change in graph.changes:
        assert change.before < change.after
        state = graph.nodes[change.before].bits
        for step_id in [3 * k for k in change.added] + [3 * k + 2 for k in change.removed]:
            assert step_id in expected
            state = thing.apply(state, step_id)
        assert state == graph.nodes[change.after].bits


@given(bit_strings, st.text("01", min_size=4, max_size=4))
def test_where_everything_may_be_undone_all_states_lead_to_the_end(states: list[str], initial: str) -> None:
    thing = build(states, initial, [0, 2, 3, 5, 6, 8, 9, 11])
    graph = state_graph(thing)
    assert len(graph.nodes) == len({*states, initial})
    if "1111" not in {*states, initial}:
        return
    arriving = {place for place, node in enumerate(graph.nodes) if bit_string(node.bits) == "1111"}
    assert set(graph.ends) == arriving
    for _ in graph.nodes:
        arriving |= {change.before for change in graph.changes if change.after in arriving}
    assert arriving == set(range(len(graph.nodes)))


# ---------------------------------------------------------------------- text and Mermaid
def test_the_text_names_start_changes_end_and_what_is_left_out() -> None:
    thing = build(["10", "01", "11", "00"], "10", [3])
    assert text_drawing(thing, state_graph(thing)) == (
        "v: starts at 10 (class 1)\n  1 10 -> 3  (+b)\n  ends at 3\n  not in this variant: 2, 4\n"
    )


def test_mermaid_has_dashed_arrows_for_removals(lamp: Procedure) -> None:
    text = mermaid_drawing(lamp, [state_graph(lamp, "build"), state_graph(lamp, "dismantle")])
    assert text.startswith("graph TD\n")
    assert '    v0n0(["1<br/>000<br/>state 1"])\n' in text
    assert '    v0n0 -->|"+foot"| v0n1\n' in text
    assert '    v1n0 -.->|"-shade"| v1n1\n' in text
    assert text.count("subgraph") == text.count("  end") == 2


def test_mermaid_shows_odd_names_as_they_are() -> None:
    state = AssemblyState(0, StateKind.ASSEMBLY, "1", (1,))
    variants = {"end": Variant("end", (0,), (0,))}
    thing = Procedure("thing", (Component('say "hi" | [x] #1;'),), (state,), variants, 10.0)
    label = re.findall(r'\|"(.*)"\|', mermaid_drawing(thing, [state_graph(thing)]))
    assert label == ["+say #34;hi#34; #124; #91;x#93; #35;1#59;"]


# ---------------------------------------------------------------------- colours
def test_components_keep_their_colours_and_others_get_ones_that_differ(
    industreal: Procedure, meccano: Procedure
) -> None:
    assert component_colours(industreal) == [component.colour for component in industreal.components]
    invented = component_colours(meccano)
    assert len(set(invented)) == 17
    assert all(re.fullmatch(r"#[0-9a-f]{6}", colour) for colour in invented)
