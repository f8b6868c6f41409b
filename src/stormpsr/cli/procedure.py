"""What `stormpsr procedure show` prints: all there is to know about a procedure, for people and for machines.

`stormpsr procedure`: describe a procedure, check the description, look at it, exchange it with other programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

from stormpsr.cli.options import ForceFlag, ProcedureArgument, lines_of
from stormpsr.cli.output import JsonFlag, answer, console, counted, print_json, print_notes, print_table
from stormpsr.errors import InputError
from stormpsr.files import write_text
from stormpsr.procedure.graph import StateGraph, component_colours, text_drawing
from stormpsr.procedure.model import Procedure, StateKind, StepKind, bit_string


def summary(procedure: Procedure) -> str:
    """A procedure in half a line."""
    n_states = sum(state.kind is StateKind.ASSEMBLY for state in procedure.states)
    variants = [f"{name} with {counted(len(v.expected), 'step')}" for name, v in procedure.variants.items()]
    parts = [counted(procedure.n_components, "component"), counted(n_states, "assembly state"), *variants]
    return ", ".join([*parts, f"{procedure.fps:g} fps"])


def print_report(to: Console, procedure: Procedure, graphs: Sequence[StateGraph]) -> None:
    """Tables of components, states and variants, then the drawing."""
    to.print(Text(f"{procedure.title or procedure.name} ({summary(procedure)})", style="bold"), soft_wrap=True)
    components: list[list[object]] = []
    for k, (component, colour) in enumerate(zip(procedure.components, component_colours(procedure), strict=True)):
        needs = ", ".join(" or ".join(choice) for choice in procedure.order.get(component.name, ()))
        ids = [procedure.step_id(k, kind) for kind in StepKind]
        swatch = Text.assemble(("■ ", colour), colour)
        components.append([k, component.name, swatch, *ids, *([needs] if procedure.order else [])])
    columns = ["", "component", "colour", "install", "incorrect", "remove", *(["needs"] if procedure.order else [])]
    print_table("", columns, components, to=to)
    if procedure.states:
        states: list[list[object]] = []
        for state in procedure.states:
            shown = state.kind.value if state.bits is None else bit_string(state.bits)
            states.append([state.state_class, shown, "" if state.name == shown else state.name])
        print_table("", ["class", "state", "name"], states, to=to)
    variants = [[v.name, bit_string(v.initial), " ".join(map(str, v.expected))] for v in (g.variant for g in graphs)]
    print_table("", ["variant", "starts at", "expected steps"], variants, to=to)
    for graph in graphs:
        to.print(Text(text_drawing(procedure, graph)), soft_wrap=True)


def report_text(procedure: Procedure, graphs: Sequence[StateGraph]) -> str:
    """The same for a file."""
    buffer = StringIO()
    print_report(Console(file=buffer, width=120, color_system=None, highlight=False), procedure, graphs)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


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


app = typer.Typer(help="Describe procedures, check and show them.", no_args_is_help=True)

NewFileOption = Annotated[
    Path | None, typer.Option("--out", "-o", help="File to write; '-' prints it.", show_default="NAME.yaml")
]


def _write(text: str, out: Path, *, force: bool, as_json: bool, **facts: Any) -> None:
    """Write a result to a file, or to the standard output for `-`, and say so."""
    if str(out) == "-":
        answer(as_json, {"path": None, "text": text, **facts}, text.removesuffix("\n"))
        return
    if out.is_file() and not force:
        raise InputError("the file is there already", path=out, cure="choose another --out, or add --force")
    write_text(out, text)
    answer(as_json, {"path": str(out), **facts}, f"wrote {out}")


def _default_path(name: str) -> Path:
    if Path(name).name != name or "\\" in name:
        raise InputError(f"the name {name!r} looks like a path", cure="give a plain name, and the path with --out")
    return Path(f"{name}.yaml")


# ---------------------------------------------------------------------- new, check, list
@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Name of the procedure.")],
    component: Annotated[
        list[str] | None, typer.Option("--component", "-c", help="A component; repeat it in the order of assembly.")
    ] = None,
    components_from: Annotated[Path | None, typer.Option(help="Text file with one component per line.")] = None,
    fps: Annotated[float, typer.Option(help="Frames per second of the videos.")] = 10.0,
    out: NewFileOption = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a commented template to edit.

    Example: stormpsr procedure new lamp --component foot --component pole --component "lamp shade"
    """
    from stormpsr.procedure.writer import new_procedure_text

    names = list(component or [])
    if components_from is not None:
        names += lines_of(components_from, "write the names of the components, one per line")
    text = new_procedure_text(name, names, fps)
    _write(text, out or _default_path(name), force=force, as_json=as_json, name=name, components=names)
    if out is None and not as_json:
        typer.echo(f"change it as you like, then run: stormpsr procedure check {name}.yaml")


@app.command("check")
def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Procedure files (YAML).")],
    as_json: JsonFlag = False,
) -> None:
    """Find errors in procedure files, line by line.

    The exit code is 1 if there are any.

    Example: stormpsr procedure check lamp.yaml
    """
    from stormpsr.procedure.reader import check_procedure_text, read_source

    sources = [read_source(file) for file in files]  # all of them first: a file that is not there is another matter
    results: list[dict[str, Any]] = []
    for text, origin in sources:
        procedure, problems = check_procedure_text(text)
        found = [{"line": p.line, "problem": p.problem, "cure": p.cure} for p in problems]
        results.append({"path": origin, "ok": not problems, "problems": found})
        if as_json:
            continue
        for problem in problems:
            typer.echo(f"{origin}:{problem.line}: {problem}")
        if procedure is not None:
            typer.echo(f"{origin}: fine ({summary(procedure)})")
    if as_json:
        print_json({"files": results})
    if not all(result["ok"] for result in results):
        raise typer.Exit(1)


@app.command("list")
def list_procedures(as_json: JsonFlag = False) -> None:
    """List the procedures that are shipped.

    Example: stormpsr procedure list
    """
    from stormpsr.procedure.reader import shipped_procedures

    procedures = [Procedure.load(name) for name in shipped_procedures()]
    if as_json:
        rows = [{"name": p.name, "title": p.title, "fps": p.fps, "variants": list(p.variants)} for p in procedures]
        print_json({"procedures": rows})
    else:
        print_table("", ["name", "title", "contents"], [[p.name, p.title, summary(p)] for p in procedures])


# ---------------------------------------------------------------------- show
@app.command("show")
def show(
    source: ProcedureArgument,
    drawing: Annotated[
        Literal["text", "mermaid"] | None,
        typer.Option("--format", "-f", help="text: everything; mermaid: the graph only.", show_default="text"),
    ] = None,
    variant: Annotated[str | None, typer.Option(help="Draw only this variant.", show_default="all")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write.", show_default="print it")] = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show components, states, variants and their graph.

    Example: stormpsr procedure show industreal --format mermaid --out industreal.mmd
    """
    from stormpsr.procedure.graph import mermaid_drawing, state_graph

    if as_json and drawing is not None:
        raise InputError("--json and --format exclude each other", cure="leave one of them out")
    procedure = Procedure.load(source)
    graphs = [state_graph(procedure, name) for name in ([variant] if variant else procedure.variants)]
    if as_json:
        import json

        text = json.dumps(as_data(procedure, graphs), indent=2, ensure_ascii=False) + "\n"
    elif drawing == "mermaid":
        text = mermaid_drawing(procedure, graphs)
    elif out is None:
        print_report(console(), procedure, graphs)
        return
    else:
        text = report_text(procedure, graphs)
    if out is None:
        typer.echo(text, nl=False)
    else:
        _write(text, out, force=force, as_json=as_json)


# ---------------------------------------------------------------------- import, export
@app.command("import")
def import_info(
    info: Annotated[Path, typer.Argument(metavar="INFO.json", help="procedure_info.json of the published programs.")],
    name: Annotated[str, typer.Option(help="Name of the procedure.")],
    fps: Annotated[float, typer.Option(help="Frames per second of the videos.")],
    initial: Annotated[
        list[str] | None,
        typer.Option(
            help="Initial state of a variant, VARIANT=DIGITS; may be repeated.", show_default="derived from its steps"
        ),
    ] = None,
    out: NewFileOption = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Convert a procedure_info.json to a procedure.

    The states of the detector are not in it: add them afterwards.

    Example: stormpsr procedure import procedure_info.json --name car --fps 10 --initial main=11110111111
    """
    from stormpsr.procedure.published_json import import_procedure_info
    from stormpsr.procedure.writer import procedure_text

    given: dict[str, str] = {}
    for words in initial or []:
        variant, equals, digits = words.partition("=")
        if not equals or variant in given:
            reason = "has no '='" if not equals else "is there twice for this variant"
            raise InputError(f"--initial {words} {reason}", cure="write it like assy=1000, once per variant")
        given[variant] = digits
    procedure, notes = import_procedure_info(info, name=name, fps=fps, initial=given)
    notes.append("the states of the detector are not in the JSON: add them to 'states:' to decode detections")
    _write(procedure_text(procedure), out or _default_path(name), force=force, as_json=as_json, notes=notes)
    if not as_json:
        print_notes(notes)


@app.command("export")
def export_info(
    source: ProcedureArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write; '-' prints it.")] = Path(
        "procedure_info.json"
    ),
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a procedure_info.json for the published programs.

    Example: stormpsr procedure export industreal --out procedure_info.json
    """
    from stormpsr.procedure.published_json import procedure_info_text

    procedure = Procedure.load(source)
    _write(procedure_info_text(procedure), out, force=force, as_json=as_json, steps=len(procedure.steps))
