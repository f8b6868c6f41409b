"""Which assembly state follows which, as a graph, as text for the terminal, and as Mermaid. `procedure_svg` draws it.

Per variant, a state follows another if one is part of the other, the components in which they differ are ones that
the variant expects to be installed (or removed), no state that the detector knows lies in between, and it leads away
from the variant's start. That last rule leaves out undoing what was just done, which would double every line.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from stormpsr.procedure import Procedure, StateBits, StepKind, Variant, bit_string, step_id_of

__all__ = ["Change", "StateGraph", "StateNode", "mermaid_drawing", "state_graph", "text_drawing"]


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
    """The states of a variant. The first node is its start; the changes lead away from it."""

    variant: Variant
    nodes: tuple[StateNode, ...]
    changes: tuple[Change, ...]
    left_out: tuple[StateNode, ...]  # states that the variant's expected steps do not lead to

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """Per node, the number of states that may come before it (the longest way from the start)."""
        layers = [0] * len(self.nodes)
        for _ in self.nodes:
            for change in self.changes:
                layers[change.after] = max(layers[change.after], layers[change.before] + 1)
        return tuple(layers)


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

    place_of = {old: new for new, old in enumerate(sorted(efforts, key=lambda place: (efforts[place], place)))}
    kept = [
        Change(place_of[c.before], place_of[c.after], c.added, c.removed)
        for c in changes
        if c.before in efforts and efforts[c.before] < efforts[c.after]
    ]
    return StateGraph(
        variant,
        tuple(nodes[place] for place in place_of),
        tuple(sorted(kept, key=lambda c: (c.before, c.after))),
        tuple(node for place, node in enumerate(nodes) if place not in place_of),
    )


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


def _efforts(changes: Sequence[Change]) -> dict[int, int]:
    """Node -> the fewest steps that lead to it from the first one; nodes that none lead to are not in it."""
    onward: dict[int, list[Change]] = {}
    for change in changes:
        onward.setdefault(change.before, []).append(change)
    efforts: dict[int, int] = {}
    queue = [(0, 0)]
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
    ends = [node.label for place, node in enumerate(graph.nodes) if all(c.before != place for c in graph.changes)]
    lines.append(f"  ends at {' or '.join(ends)}")
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
