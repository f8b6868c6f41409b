"""Which assembly state follows which, as a graph, as text for the terminal, and as Mermaid.

Per variant, a state follows another if one is part of the other, the components in which they differ are ones that
the variant expects to be installed (or removed), no state that the detector knows lies in between, and it leads away
from the variant's start. That last rule leaves out undoing what was just done, which would double every line; only
where nothing leads on, as after taking off what is to be put back, the way back to the variant's end is kept.
"""

from __future__ import annotations

import colorsys
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stormpsr.procedure.model import Procedure, StateBits, StepKind, Variant, bit_string, step_id_of

_GOLDEN_ANGLE = 0.618034  # in turns: hues of neighbours lie far apart


@dataclass(frozen=True, slots=True)
class StateNode:
    """A state the detector knows, or a variant's start that is no class of it."""

    bits: StateBits
    state_class: int | None
    name: str | None  # where the procedure names it otherwise than by its digits

    @property
    def label(self) -> str:
        return "start" if self.state_class is None else str(self.state_class)


@dataclass(frozen=True, slots=True)
class Change:
    """From one state to the next: places in the graph's nodes, and the components that make the difference."""

    before: int
    after: int
    added: tuple[int, ...]
    removed: tuple[int, ...]

    @property
    def n_steps(self) -> int:
        return len(self.added) + len(self.removed)

    def words(self, procedure: Procedure) -> list[str]:
        """`+front wheel`, `-rear wheel`, one per component."""
        names = [component.name for component in procedure.components]
        return [f"-{names[k]}" for k in self.removed] + [f"+{names[k]}" for k in self.added]


@dataclass(frozen=True)
class StateGraph:
    """The states of a variant. The first node is its start; changes lead away from it, but for ways back to the end."""

    variant: Variant
    nodes: tuple[StateNode, ...]
    changes: tuple[Change, ...]
    ends: tuple[int, ...]  # where all expected steps are done; if that is no state, where nothing leads on
    left_out: tuple[StateNode, ...]  # states that the variant's expected steps do not lead to


def state_graph(procedure: Procedure, variant_name: str | None = None) -> StateGraph:
    """The graph of a variant; without a name that of the first one."""
    variant = procedure.variant(variant_name)
    nodes = [
        StateNode(state.bits, state.state_class, None if state.name == bit_string(state.bits) else state.name)
        for state in procedure.states
        if state.bits is not None
    ]
    start = next((node for node in nodes if node.bits == variant.initial), StateNode(variant.initial, None, None))
    nodes = [start, *(node for node in nodes if node is not start)]
    changes = [c for c in _allowed_changes(nodes, variant) if not (c.added and c.removed) and _is_direct(nodes, c)]
    efforts = _efforts(changes)
    while swap := _shortest_swap(nodes, variant, efforts):
        changes.append(swap)
        efforts = _efforts(changes)

    onward = [c for c in changes if c.before in efforts and efforts[c.before] < efforts[c.after]]
    finish = _all_done(variant)
    goal = next((place for place in efforts if nodes[place].bits == finish), None)
    dead_ends = [place for place in efforts if all(change.before != place for change in onward)]
    if goal is not None:
        onward += _ways_back(changes, efforts, [place for place in dead_ends if place != goal], goal)

    place_of = {old: new for new, old in enumerate(sorted(efforts, key=lambda place: (efforts[place], place)))}
    moved = [replace(c, before=place_of[c.before], after=place_of[c.after]) for c in onward]
    return StateGraph(
        variant,
        nodes=tuple(nodes[place] for place in place_of),
        changes=tuple(sorted(moved, key=lambda c: (c.before, c.after))),
        ends=tuple(sorted(place_of[place] for place in (dead_ends if goal is None else [goal]))),
        left_out=tuple(node for place, node in enumerate(nodes) if place not in place_of),
    )


def _all_done(variant: Variant) -> StateBits:
    """The state after all expected steps; what is removed and installed is in place again."""
    return tuple(
        int(bit and step_id_of(k, StepKind.REMOVE) not in variant.expected)
        or int(step_id_of(k, StepKind.INSTALL) in variant.expected)
        for k, bit in enumerate(variant.initial)
    )


def _ways_back(changes: Sequence[Change], efforts: Mapping[int, int], starts: list[int], goal: int) -> list[Change]:
    """The changes on shortest ways to the goal from states that nothing leads on from."""
    mirrored = [replace(change, before=change.after, after=change.before) for change in changes]
    to_go = _efforts(mirrored, start=goal)
    found: list[Change] = []
    seen, waiting = set[int](), [place for place in starts if place in to_go]
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        for change in changes:
            if change.before == place and to_go.get(change.after, -1) + change.n_steps == to_go[place]:
                waiting.append(change.after)
                if efforts[change.before] >= efforts[change.after]:
                    found.append(change)
    return found


def _allowed_changes(nodes: Sequence[StateNode], variant: Variant) -> Iterator[Change]:
    """All pairs of states that differ only by expected steps."""
    for before, old in enumerate(nodes):
        for after, new in enumerate(nodes):
            pairs = list(enumerate(zip(old.bits, new.bits, strict=True)))
            added = tuple(k for k, (was, now) in pairs if now > was)
            removed = tuple(k for k, (was, now) in pairs if now < was)
            steps = [step_id_of(k, StepKind.INSTALL) for k in added] + [step_id_of(k, StepKind.REMOVE) for k in removed]
            if steps and all(step_id in variant.expected for step_id in steps):
                yield Change(before, after, added, removed)


def _is_direct(nodes: Sequence[StateNode], change: Change) -> bool:
    """Whether no state has some of the differences already and the others not yet."""
    pairs = list(zip(nodes[change.before].bits, nodes[change.after].bits, strict=True))
    return not any(
        place not in (change.before, change.after)
        and all(bit in pair for bit, pair in zip(node.bits, pairs, strict=True))
        for place, node in enumerate(nodes)
    )


def _efforts(changes: Sequence[Change], start: int = 0) -> dict[int, int]:
    """Node -> the fewest steps that lead to it from the start; nodes that none lead to are not in it."""
    onward: dict[int, list[Change]] = {}
    for change in changes:
        onward.setdefault(change.before, []).append(change)
    efforts: dict[int, int] = {}
    queue = [(0, start)]
    while queue:
        effort, place = heapq.heappop(queue)
        if place not in efforts:
            efforts[place] = effort
            for change in onward.get(place, ()):
                heapq.heappush(queue, (effort + change.n_steps, change.after))
    return efforts


def _shortest_swap(nodes: Sequence[StateNode], variant: Variant, efforts: Mapping[int, int]) -> Change | None:
    """For states that only an exchange of parts leads to: the smallest such change into one not reached yet."""
    swaps = [c for c in _allowed_changes(nodes, variant) if c.before in efforts and c.after not in efforts]
    return min(swaps, key=lambda change: (change.n_steps, change.before, change.after), default=None)


# ---------------------------------------------------------------------- text
def text_drawing(procedure: Procedure, graph: StateGraph) -> str:
    """A line per change: `3 10010100000 -> 4  (+rear rear chassis pin)`."""
    width = max(len(node.label) for node in graph.nodes)
    start = graph.nodes[0]
    known = f"class {start.state_class}" if start.state_class is not None else "no class of the detector"
    lines = [f"{graph.variant.name}: starts at {bit_string(start.bits)} ({known})"]
    previous = -1
    for change in graph.changes:
        node, after = graph.nodes[change.before], graph.nodes[change.after]
        left = f"{node.label:>{width}} {bit_string(node.bits)}"
        shown = left if change.before != previous else " " * len(left)
        lines.append(f"  {shown} -> {after.label:>{width}}  ({', '.join(change.words(procedure))})")
        previous = change.before
    lines.append(f"  ends at {' or '.join(graph.nodes[place].label for place in graph.ends)}")
    if graph.left_out:
        lines.append(f"  not in this variant: {', '.join(node.label for node in graph.left_out)}")
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------------- Mermaid
def _escaped(text: str) -> str:
    """Text that Mermaid shows as it is inside a quoted label."""
    return "".join(char if char.isalnum() or char in " +-.,_/()'" else f"#{ord(char)};" for char in text)


def mermaid_drawing(procedure: Procedure, graphs: Sequence[StateGraph]) -> str:
    """A Mermaid graph, with a box per variant if there are several. Removals are dashed."""
    lines = ["graph TD"]
    for index, graph in enumerate(graphs):
        indent = "  "
        if len(graphs) > 1:
            lines += [f'  subgraph v{index}["{_escaped(graph.variant.name)}"]', "    direction TB"]
            indent = "    "
        for place, node in enumerate(graph.nodes):
            words = [node.label, bit_string(node.bits)] + ([node.name] if node.name else [])
            shape = ('(["', '"])') if place == 0 else ('["', '"]')
            lines.append(f"{indent}v{index}n{place}{shape[0]}{'<br/>'.join(map(_escaped, words))}{shape[1]}")
        for change in graph.changes:
            arrow = "-.->" if change.removed else "-->"
            label = "<br/>".join(_escaped(words) for words in change.words(procedure))
            lines.append(f'{indent}v{index}n{change.before} {arrow}|"{label}"| v{index}n{change.after}')
        if len(graphs) > 1:
            lines.append("  end")
    return "\n".join(lines) + "\n"


def component_colours(procedure: Procedure) -> list[str]:
    """A colour per component: its own, or one that differs from its neighbours'."""
    colours = []
    for k, component in enumerate(procedure.components):
        red, green, blue = colorsys.hls_to_rgb((0.58 + k * _GOLDEN_ANGLE) % 1.0, 0.52 + 0.08 * (k % 3 - 1), 0.5)
        colours.append(component.colour or f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}")
    return colours
