"""Procedures written as YAML, and the template for a new one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from stormpsr.errors import InputError
from stormpsr.files import write_text
from stormpsr.procedure.model import (
    AssemblyState,
    Component,
    Procedure,
    StateKind,
    StepKind,
    Variant,
    bit_string,
    step_id_of,
)


def _quote(text: str) -> str:
    """A YAML scalar that reads back as the same text, inside brackets too (where a comma would end it)."""
    listed: str = yaml.safe_dump([text], default_flow_style=True, width=10**6, allow_unicode=True)
    return listed.strip().removeprefix("[").removesuffix("]")


def procedure_text(procedure: Procedure) -> str:
    """The procedure as YAML."""
    lines = [f"name: {_quote(procedure.name)}"]
    if procedure.title:
        lines.append(f"title: {_quote(procedure.title)}")
    fps = int(procedure.fps) if float(procedure.fps).is_integer() else float(procedure.fps)
    lines += [f"fps: {fps!r}", ""]
    lines.append("# component k has the steps 3k (install), 3k+1 (incorrectly install), 3k+2 (remove)")
    lines.append("components:")
    for component in procedure.components:
        if component.colour:
            lines.append(f"  - {{name: {_quote(component.name)}, colour: '{component.colour}'}}")
        else:
            lines.append(f"  - {_quote(component.name)}")
    lines += ["", "# what the detector may report, in its class order, class 0 first; one digit per component"]
    lines.append("states:" if procedure.states else "states: []")
    for state in procedure.states:
        lines.append(f"  - {_state_entry(state)}")
    lines += ["", "variants:"]
    for variant in procedure.variants.values():
        lines += [f"  {_quote(variant.name)}:", f"    initial: '{bit_string(variant.initial)}'"]
        lines.append("    expected:" if variant.expected else "    expected: []")
        for step_id in variant.expected:
            step = procedure.steps[step_id]
            name = procedure.components[step.component_index].name
            lines.append(f"      - {_quote(f'{step.kind.words} {name}')}")
    if procedure.order:
        lines += ["", "# what must be in place before a component; [a, b] means either will do", "order:"]
        for name, choices in procedure.order.items():
            entries = [_quote(c[0]) if len(c) == 1 else "[" + ", ".join(_quote(n) for n in c) + "]" for c in choices]
            lines.append(f"  {_quote(name)}: [{', '.join(entries)}]")
    return "\n".join(lines) + "\n"


def _state_entry(state: AssemblyState) -> str:
    if state.bits is None:
        kind = state.kind.value
        return kind if state.name == kind else f"{{{kind}: {_quote(state.name)}}}"
    bits = bit_string(state.bits)
    return f"'{bits}'" if state.name == bits else f"{{state: '{bits}', name: {_quote(state.name)}}}"


def save_procedure(procedure: Procedure, path: str | Path) -> None:
    write_text(path, procedure_text(procedure))


_TEMPLATE_NOTES = (
    ("fps: ", "# Frames per second of the videos and of the labels' frame numbers.\n"),
    (
        "# what the detector may report,",
        "# Stages of the object that can be told from one clear image. Change, remove or add lines: the steps up to\n"
        "# a stage that you leave out are recognised together with those of the next one.\n",
    ),
    (
        "variants:",
        "# Ways to carry out the procedure: the state at the start, and the steps that belong to it (words or ids).\n",
    ),
)


def new_procedure_text(name: str, component_names: Sequence[str], fps: float = 10.0) -> str:
    """A commented template: each component is installed once, in the order given, and the detector knows each stage."""
    if not component_names:
        raise InputError("a procedure needs components", cure="name at least one, with --component on the command line")
    component_names = [" ".join(word.split()) for word in component_names]
    n = len(component_names)
    name = " ".join(name.split())
    if not name:
        raise InputError("the procedure has an empty name", cure="give it one")
    stages = [tuple(int(k < done) for k in range(n)) for done in range(1, n + 1)]
    states = [AssemblyState(0, StateKind.BACKGROUND, "background")]
    states += [AssemblyState(i, StateKind.ASSEMBLY, bit_string(bits), bits) for i, bits in enumerate(stages, start=1)]
    states.append(AssemblyState(n + 1, StateKind.ERROR, "error"))
    variant = Variant("assy", (0,) * n, tuple(step_id_of(k, StepKind.INSTALL) for k in range(n)))
    components = tuple(Component(word) for word in component_names)
    body = procedure_text(Procedure(name, components, tuple(states), {"assy": variant}, fps))
    for place, note in _TEMPLATE_NOTES:
        body = body.replace(f"\n{place}", f"\n{note}{place}", 1)
    text = "# A procedure for stormpsr. Check it with: stormpsr procedure check FILE\n" + body
    if n > 1:
        text += (
            "\n# Optional: what must be in place before a component; [a, b] means that either will do.\n"
            f"# order:\n#   {_quote(component_names[-1])}: [{_quote(component_names[0])}]\n"
        )
    return text
