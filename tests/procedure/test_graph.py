"""Which state follows which, and its three drawings."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpsr.errors import InputError
from stormpsr.layered_layout import Box, Line, layered_layout
from stormpsr.procedure.graph import StateGraph, mermaid_drawing, state_graph, text_drawing
from stormpsr.procedure.model import AssemblyState, Component, Procedure, StateKind, Variant, bit_string
from stormpsr.procedure_svg import component_colours, svg_drawing

SVG = "{http://www.w3.org/2000/svg}"


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
    assert [change.returns for change in graph.changes] == [False, True, False, True]
    assert graph.layers == (0, 1, 2)
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
    assert ElementTree.fromstring(svg_drawing(thing, [graph])).tag == f"{SVG}svg"


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
    assert graph.layers == tuple(range(12))


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
        assert graph.layers[change.before] < graph.layers[change.after]
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
    for change in graph.changes:
        assert change.returns == (graph.layers[change.before] > graph.layers[change.after])
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


# ---------------------------------------------------------------------- SVG
def cells(group: ElementTree.Element) -> list[bool]:
    """Per component whether its cell is filled."""
    return [rect.get("class") == "present" for rect in group.findall(f"{SVG}rect")[1:]]


@pytest.mark.parametrize("name", ["industreal", "meccano"])
def test_the_svg_shows_each_state_with_its_components_filled(name: str) -> None:
    procedure = Procedure.load(name)
    for variant in procedure.variants:
        graph = state_graph(procedure, variant)
        root = ElementTree.fromstring(svg_drawing(procedure, [graph]))
        boxes = {
            group.findtext(f"{SVG}title"): group
            for group in root.iter(f"{SVG}g")
            if group.find(f"{SVG}title") is not None
        }
        assert len(boxes) == len(graph.nodes)
        for node in graph.nodes:
            assert cells(boxes[f"{node.label} {bit_string(node.bits)}"]) == [bool(bit) for bit in node.bits]
        ways = [path for path in root.iter(f"{SVG}path") if path.get("class", "").startswith("way")]
        assert len(ways) == len(graph.changes)
        assert sum("removal" in path.get("class", "") for path in ways) == sum(bool(c.removed) for c in graph.changes)
        texts = [text.text or "" for text in root.iter(f"{SVG}text")]
        assert all(any(component.name in text for text in texts) for component in procedure.components)


def test_the_svg_draws_the_way_back_upwards() -> None:
    thing = build(["1", "0"], "1", [0, 2])
    root = ElementTree.fromstring(svg_drawing(thing, [state_graph(thing)]))
    ways = [path.get("d", "") for path in root.iter(f"{SVG}path") if path.get("class", "").startswith("way")]
    ends = [(float(re.split("[ C]", way)[1]), float(way.split(" ")[-1])) for way in ways]
    (down, up) = [end - start for start, end in ends]
    assert down > 0 > up


def test_the_svg_escapes_names() -> None:
    thing = build(["1"], "0", [0], names="<")
    root = ElementTree.fromstring(svg_drawing(thing, [state_graph(thing)]))
    assert "+<" in [text.text for text in root.iter(f"{SVG}text")]


def test_the_svg_has_colours_for_a_light_and_a_dark_page(lamp: Procedure) -> None:
    text = svg_drawing(lamp, [state_graph(lamp)])
    assert "prefers-color-scheme: dark" in text
    assert 'class="paper"' in text


def test_components_keep_their_colours_and_others_get_ones_that_differ(
    industreal: Procedure, meccano: Procedure
) -> None:
    assert component_colours(industreal) == [component.colour for component in industreal.components]
    invented = component_colours(meccano)
    assert len(set(invented)) == 17
    assert all(re.fullmatch(r"#[0-9a-f]{6}", colour) for colour in invented)


# ---------------------------------------------------------------------- layout
@st.composite
def layered_graphs(draw: st.DrawFn) -> tuple[list[Box], list[Line]]:
    n = draw(st.integers(1, 8))
    sizes = st.floats(10, 80)
    layers = [0] + [draw(st.integers(0, 3)) for _ in range(n - 1)]
    boxes = [Box(layer, draw(sizes), draw(sizes)) for layer in layers]
    pairs = [(a, b) for a in range(n) for b in range(n) if layers[a] < layers[b]]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=8)) if pairs else []
    return boxes, [Line(a, b, draw(sizes), draw(sizes)) for a, b in chosen]


@given(layered_graphs())
def test_boxes_and_labels_never_overlap_and_stay_inside(graph: tuple[list[Box], list[Line]]) -> None:
    boxes, lines = graph
    placed = layered_layout(boxes, lines)
    areas = [
        (x - box.width / 2, y - box.height / 2, x + box.width / 2, y + box.height / 2)
        for box, (x, y) in zip(boxes, placed.boxes, strict=True)
    ]
    areas += [
        (x, y - line.label_height / 2, x + line.label_width, y + line.label_height / 2)
        for line, (x, y) in zip(lines, placed.labels, strict=True)
    ]
    for a, b in itertools.combinations(areas, 2):
        apart = a[2] <= b[0] + 1e-6 or b[2] <= a[0] + 1e-6 or a[3] <= b[1] + 1e-6 or b[3] <= a[1] + 1e-6
        assert apart
    assert all(x0 >= -1e-6 and x1 <= placed.width + 1e-6 for x0, _, x1, _ in areas)
    assert all(y0 >= -1e-6 and y1 <= placed.height + 1e-6 for _, y0, _, y1 in areas)


@given(layered_graphs())
def test_lines_run_downwards_from_box_to_box(graph: tuple[list[Box], list[Line]]) -> None:
    boxes, lines = graph
    placed = layered_layout(boxes, lines)
    for line, way in zip(lines, placed.lines, strict=True):
        heights = [y for _, y in way]
        assert heights == sorted(heights)
        assert way[0][1] == pytest.approx(placed.boxes[line.start][1] + boxes[line.start].height / 2)
        assert way[-1][1] == pytest.approx(placed.boxes[line.end][1] - boxes[line.end].height / 2)
        for end, (x, _) in ((line.start, way[0]), (line.end, way[-1])):
            assert abs(x - placed.boxes[end][0]) <= boxes[end].width / 2


def test_boxes_in_a_row_keep_a_gap() -> None:
    placed = layered_layout([Box(0, 10, 10), Box(0, 30, 10)], [], gap_x=7)
    assert placed.boxes[1][0] - placed.boxes[0][0] == pytest.approx(5 + 7 + 15)
    assert placed.width == pytest.approx(10 + 7 + 30)


def test_lines_that_need_not_cross_do_not() -> None:
    boxes = [Box(0, 10, 10), Box(0, 10, 10), Box(1, 10, 10), Box(1, 10, 10)]
    placed = layered_layout(boxes, [Line(0, 3, 5, 5), Line(1, 2, 5, 5)])
    starts = [way[0][0] for way in placed.lines]
    ends = [way[-1][0] for way in placed.lines]
    assert (starts[0] < starts[1]) == (ends[0] < ends[1])
