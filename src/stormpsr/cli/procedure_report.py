"""What `stormpsr procedure show` prints: all there is to know about a procedure, for people and for machines."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stormpsr.procedure import Procedure, StateKind, StepKind, bit_string
from stormpsr.procedure_drawing import StateGraph, text_drawing
from stormpsr.procedure_svg import component_colours

__all__ = ["as_data", "print_report", "report_text", "summary"]


def summary(procedure: Procedure) -> str:
    """A procedure in half a line."""

    def counted(number: int, what: str) -> str:
        return f"{number} {what}{'' if number == 1 else 's'}"

    n_states = sum(state.kind is StateKind.ASSEMBLY for state in procedure.states)
    variants = [f"{name} with {counted(len(v.expected), 'step')}" for name, v in procedure.variants.items()]
    parts = [counted(procedure.n_components, "component"), counted(n_states, "assembly state"), *variants]
    return ", ".join([*parts, f"{procedure.fps:g} fps"])


def print_report(to: Console, procedure: Procedure, graphs: Sequence[StateGraph]) -> None:
    """Tables of components, states and variants, then the drawing."""
    to.print(Text(f"{procedure.title or procedure.name} ({summary(procedure)})", style="bold"), soft_wrap=True)
    to.print(_components(procedure))
    if procedure.states:
        to.print(_states(procedure))
    to.print(_variants(graphs))
    for graph in graphs:
        to.print(Text(text_drawing(procedure, graph)), soft_wrap=True)


def report_text(procedure: Procedure, graphs: Sequence[StateGraph]) -> str:
    """The same for a file."""
    buffer = StringIO()
    print_report(Console(file=buffer, width=120, color_system=None, highlight=False), procedure, graphs)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _components(procedure: Procedure) -> Table:
    table = Table("", "component", "colour", "install", "incorrect", "remove", box=SIMPLE_HEAD)
    if procedure.order:
        table.add_column("needs")
    for k, (component, colour) in enumerate(zip(procedure.components, component_colours(procedure), strict=True)):
        swatch = Text.assemble(("■ ", colour), colour)
        ids = [str(procedure.step_id(k, kind)) for kind in StepKind]
        needs = ", ".join(" or ".join(choice) for choice in procedure.order.get(component.name, ()))
        table.add_row(str(k), Text(component.name), swatch, *ids, *([Text(needs)] if procedure.order else []))
    return table


def _states(procedure: Procedure) -> Table:
    table = Table("class", "state", "name", box=SIMPLE_HEAD)
    for state in procedure.states:
        shown = state.kind.value if state.bits is None else bit_string(state.bits)
        table.add_row(str(state.state_class), shown, Text("" if state.name == shown else state.name))
    return table


def _variants(graphs: Sequence[StateGraph]) -> Table:
    table = Table("variant", "starts at", "expected steps", box=SIMPLE_HEAD)
    for graph in graphs:
        variant = graph.variant
        table.add_row(Text(variant.name), bit_string(variant.initial), " ".join(map(str, variant.expected)))
    return table


def as_data(procedure: Procedure, graphs: Sequence[StateGraph]) -> dict[str, Any]:
    """The same for machines. States are given by their class, or null where a start is no class."""
    names = [component.name for component in procedure.components]
    words = ("install", "incorrectly_install", "remove")
    colours = component_colours(procedure)
    return {
        "name": procedure.name,
        "title": procedure.title,
        "fps": procedure.fps,
        "components": [
            {
                "name": name,
                "colour": colours[k],
                "steps": {word: procedure.step_id(k, kind) for word, kind in zip(words, StepKind, strict=True)},
            }
            for k, name in enumerate(names)
        ],
        "states": [
            {"class": s.state_class, "kind": s.kind.value, "name": s.name, "bits": s.bits and bit_string(s.bits)}
            for s in procedure.states
        ],
        "variants": {
            variant.name: {"initial": bit_string(variant.initial), "expected": list(variant.expected)}
            for variant in procedure.variants.values()
        },
        "order": {name: [list(choice) for choice in choices] for name, choices in procedure.order.items()},
        "follows": {
            graph.variant.name: [
                {
                    "from": graph.nodes[change.before].state_class,
                    "to": graph.nodes[change.after].state_class,
                    "added": [names[k] for k in change.added],
                    "removed": [names[k] for k in change.removed],
                }
                for change in graph.changes
            ]
            for graph in graphs
        },
    }
