"""Procedures read from YAML files, with line numbers for everything that is wrong.

The file is read as a tree of nodes, not as plain values, for two reasons: every complaint can name its line, and a
state such as 00101 stays the text it is (YAML would make a number of it).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import NoReturn

import yaml

from stormpsr.errors import InputError
from stormpsr.procedure import (
    AssemblyState,
    Component,
    Procedure,
    StateBits,
    StateKind,
    StepKind,
    Variant,
    bit_string,
    cycle_members,
    parse_step_words,
    step_id_of,
)

__all__ = [
    "Problem",
    "check_procedure_text",
    "load_procedure",
    "shipped_procedures",
]

_KEYS = ("name", "title", "fps", "components", "states", "variants", "order")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a file, and what to do about it."""

    line: int
    problem: str
    cure: str | None = None

    def raise_error(self, path: str | Path | None, more: int = 0) -> NoReturn:
        cure = self.cure
        if more:
            note = f"{more} more problem{'s' if more > 1 else ''}: run 'stormpsr procedure check'"
            cure = note if cure is None else f"{cure} ({note})"
        raise InputError(self.problem, path=path, line=self.line, cure=cure)


def shipped_procedures() -> list[str]:
    """Names of the procedures that come with the package."""
    folder = resources.files("stormpsr") / "procedures"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def read_source(source: str | Path) -> tuple[str, str]:
    """(text, where it came from) of a shipped procedure or of a file."""
    name = str(source)
    if isinstance(source, str) and name in shipped_procedures():
        return (resources.files("stormpsr") / "procedures" / f"{name}.yaml").read_text(encoding="utf-8"), name
    path = Path(source)
    if not path.is_file():
        known = shipped_procedures()
        close = difflib.get_close_matches(name, known, n=1)
        guess = f"did you mean '{close[0]}'? " if close else ""
        raise InputError(
            f"no procedure {name!r}", cure=f"{guess}give the path of a YAML file or one of: {', '.join(known)}"
        )
    try:
        return path.read_text(encoding="utf-8-sig"), str(path)
    except UnicodeDecodeError as error:
        raise InputError("this is not a text file in UTF-8", path=path, cure="save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"it cannot be read ({error.strerror})", path=path) from error


def load_procedure(source: str | Path) -> Procedure:
    text, origin = read_source(source)
    procedure, problems = check_procedure_text(text)
    if problems or procedure is None:
        problems[0].raise_error(origin, more=len(problems) - 1)
    return procedure


def check_procedure_text(text: str) -> tuple[Procedure | None, list[Problem]]:
    """The procedure that a YAML text describes, or all that is wrong with it, in the order of the lines."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return None, [Problem(mark.line + 1 if mark else 1, f"this is not YAML: {error.problem}")]
    except yaml.YAMLError as error:
        return None, [Problem(1, f"this is not YAML: {error}")]
    reader = _Reader()
    procedure = reader.procedure(root)
    problems = sorted(reader.problems, key=lambda problem: problem.line)
    return (None if problems else procedure), problems


class _Reader:
    """Walks the tree and collects problems instead of stopping at the first."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    # ------------------------------------------------------------------ small pieces
    def complain(self, node: yaml.Node, problem: str, cure: str | None = None) -> None:
        self.problems.append(Problem(node.start_mark.line + 1, problem, cure))

    def text(self, node: yaml.Node, what: str) -> str:
        if isinstance(node, yaml.ScalarNode) and node.value.strip():
            return str(node.value).strip()
        self.complain(node, f"{what} must be a word or a line of text")
        return ""

    def items(self, node: yaml.Node | None, what: str) -> list[yaml.Node]:
        if node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")):
            return []
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        self.complain(node, f"{what} must be a list", "start each entry with '- '")
        return []

    def pairs(self, node: yaml.Node | None, what: str) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        if node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")):
            return
        if not isinstance(node, yaml.MappingNode):
            self.complain(node, f"{what} must be a table of 'key: value' lines")
            return
        seen: set[str] = set()
        for key_node, value in node.value:
            key = self.text(key_node, f"a key in {what}")
            if key in seen:
                self.complain(key_node, f"{key!r} is there twice in {what}", "remove one of them")
            seen.add(key)
            yield key, key_node, value

    # ------------------------------------------------------------------ the whole
    def procedure(self, root: yaml.Node | None) -> Procedure | None:
        if not isinstance(root, yaml.MappingNode):
            self.problems.append(
                Problem(1, "the file holds no procedure", "run 'stormpsr procedure new' for a template to start from")
            )
            return None
        nodes: dict[str, yaml.Node] = {}
        for key, key_node, value in self.pairs(root, "the procedure"):
            if key not in _KEYS:
                close = difflib.get_close_matches(key, _KEYS, n=1)
                cure = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(_KEYS)}"
                self.complain(key_node, f"unknown key {key!r}", cure)
            nodes[key] = value
        missing = [key for key in ("name", "fps", "components", "variants") if key not in nodes]
        for key in missing:
            self.complain(root, f"the key {key!r} is missing", f"add a line that starts with '{key}:'")
        if missing:
            return None

        components = self.components(nodes["components"])
        names = [component.name for component in components]
        order = self.order(nodes.get("order"), names)
        states = self.states(nodes.get("states"), len(names))
        variants = self.variants(nodes["variants"], names)
        name, fps = self.text(nodes["name"], "name"), self.fps(nodes["fps"])
        title = self.text(nodes["title"], "title") if "title" in nodes else ""
        if self.problems:
            return None
        table = {variant.name: variant for variant, _ in variants}
        try:
            # validated piece by piece below, so that every complaint has its line; the bare one cannot complain
            bare = Procedure(name, tuple(components), (), {"-": Variant("-", (0,) * len(names), ())}, fps, order, title)
        except InputError as error:
            self.complain(root, error.problem)
            return None
        self.check_states(bare, states)
        self.check_variants(bare, variants)
        if self.problems:
            return None
        return Procedure(name, tuple(components), tuple(state for state, _ in states), table, fps, order, title)

    def fps(self, node: yaml.Node) -> float:
        text = self.text(node, "fps")
        try:
            fps = float(text)
        except ValueError:
            fps = 0.0
        if not 0 < fps < float("inf"):
            self.complain(node, f"fps is {text!r}", "write the frames per second of the videos, for example 10")
            return 1.0
        return fps

    def components(self, node: yaml.Node) -> list[Component]:
        components: list[Component] = []
        for item in self.items(node, "components"):
            name, colour = "", None
            if isinstance(item, yaml.MappingNode):
                for key, key_node, value in self.pairs(item, "a component"):
                    if key == "name":
                        name = self.text(value, "name")
                    elif key == "colour":
                        colour = self.text(value, "colour")
                    else:
                        self.complain(key_node, f"a component has no {key!r}", "it has a name and a colour")
                if not name:
                    self.complain(item, "a component without a name", "add 'name: ...'")
                    continue
            else:
                name = self.text(item, "a component")
            if not name:
                continue
            if any(name == component.name for component in components):
                self.complain(item, f"component {name!r} is there twice", "names must differ")
            try:
                components.append(Component(name, colour))
            except InputError as error:
                self.complain(item, error.problem, error.cure)
        if not components and not self.problems:
            self.complain(node, "there are no components", "list their names, one per line, each after '- '")
        return components

    def order(self, node: yaml.Node | None, names: Sequence[str]) -> dict[str, tuple[tuple[str, ...], ...]]:
        order: dict[str, tuple[tuple[str, ...], ...]] = {}
        lines: dict[str, yaml.Node] = {}
        for name, key_node, value in self.pairs(node, "order"):
            self.known(name, key_node, names)
            choices: list[tuple[str, ...]] = []
            single = isinstance(value, yaml.ScalarNode)
            for item in [value] if single else self.items(value, f"what {name!r} requires"):
                alternatives = self.items(item, "alternatives") if isinstance(item, yaml.SequenceNode) else [item]
                choice = tuple(self.text(alternative, "a component") for alternative in alternatives)
                for alternative, other in zip(alternatives, choice, strict=True):
                    self.known(other, alternative, names)
                if choice:
                    choices.append(choice)
            order[name], lines[name] = tuple(choices), key_node
        for name in cycle_members(list(names), order):
            others = ", ".join(repr(a) for choice in order[name] for a in choice)
            self.complain(lines[name], f"the order has a cycle: {name!r} waits for {others}", "remove one of the lines")
        return order

    def known(self, name: str, node: yaml.Node, names: Sequence[str]) -> None:
        if name and name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            self.complain(
                node,
                f"{name!r} is not a component",
                f"did you mean {close[0]!r}?" if close else f"components: {', '.join(names)}",
            )

    # ------------------------------------------------------------------ states
    def bits(self, node: yaml.Node, text: str, n_components: int) -> StateBits | None:
        if not text or set(text) - {"0", "1"}:
            self.complain(node, f"{text!r} is not a state", "write one digit per component, 1 present, 0 absent")
            return None
        if len(text) != n_components:
            problem = f"state {text} has {len(text)} digits, but there are {n_components} components"
            self.complain(node, problem, "write one digit per component, in their order")
            return None
        return tuple(int(digit) for digit in text)

    def states(self, node: yaml.Node | None, n_components: int) -> list[tuple[AssemblyState, yaml.Node]]:
        states: list[tuple[AssemblyState, yaml.Node]] = []
        for item in self.items(node, "states"):
            kind, name, bits = StateKind.ASSEMBLY, "", None
            if isinstance(item, yaml.MappingNode):
                for key, key_node, value in self.pairs(item, "a state"):
                    if key in ("background", "error"):
                        kind, name = StateKind(key), self.text(value, f"the name of the {key} class")
                    elif key == "state":
                        bits = self.bits(value, self.text(value, "state"), n_components)
                    elif key == "name":
                        name = self.text(value, "name")
                    else:
                        self.complain(key_node, f"a state has no {key!r}", "it has: state, name, background or error")
                if kind is StateKind.ASSEMBLY and bits is None:
                    self.complain(item, "a state without 'state: ...'")
                    continue
            else:
                word = self.text(item, "a state")
                if word in ("background", "error"):
                    kind, name = StateKind(word), word
                else:
                    bits = self.bits(item, word, n_components)
                    if bits is None:
                        continue
            states.append((AssemblyState(len(states), kind, name or bit_string(bits or ()), bits), item))
        return states

    def check_states(self, bare: Procedure, states: list[tuple[AssemblyState, yaml.Node]]) -> None:
        seen: dict[StateBits, int] = {}
        for state, node in states:
            if state.bits is None:
                continue
            for problem in bare.bits_problems(state.bits):
                self.complain(node, f"state {bit_string(state.bits)}: {problem}")
            if state.bits in seen:
                self.complain(node, f"state {bit_string(state.bits)} is class {seen[state.bits]} already")
            seen.setdefault(state.bits, state.state_class)

    # ------------------------------------------------------------------ variants
    def variants(self, node: yaml.Node, names: Sequence[str]) -> list[tuple[Variant, yaml.Node]]:
        variants: list[tuple[Variant, yaml.Node]] = []
        for name, key_node, value in self.pairs(node, "variants"):
            initial: StateBits | None = None
            expected: list[int] = []
            has_expected = False
            for key, inner, content in self.pairs(value, f"variant {name!r}"):
                if key == "initial":
                    initial = self.bits(content, self.text(content, "initial"), len(names))
                elif key == "expected":
                    has_expected = True
                    expected = [self.step(item, names) for item in self.items(content, "expected")]
                else:
                    self.complain(inner, f"a variant has no {key!r}", "it has: initial, expected")
            if initial is None and not any(p.line > key_node.start_mark.line for p in self.problems):
                self.complain(key_node, f"variant {name!r} has no initial state", "add 'initial: ...'")
            if not has_expected:
                self.complain(key_node, f"variant {name!r} expects no steps", "add 'expected:' with a list of steps")
            variants.append((Variant(name, initial or (), tuple(sorted(set(expected)))), key_node))
        if not variants and not self.problems:
            self.complain(node, "there is no variant", "add one, with its initial state and expected steps")
        return variants

    def step(self, node: yaml.Node, names: Sequence[str]) -> int:
        """A step by id, or in words: `install front wheel`, `remove front wheel`."""
        text = self.text(node, "a step")
        if text.isdigit():
            last = step_id_of(len(names) - 1, StepKind.REMOVE)
            if int(text) <= last:
                return int(text)
            self.complain(node, f"step id {text} does not exist", f"ids go from 0 to {last}")
            return 0
        kind, name = parse_step_words(text)
        if kind is None:
            cure = "write 'install NAME', 'incorrectly install NAME' or 'remove NAME'"
            self.complain(node, f"{text!r} is not a step", cure)
            return 0
        self.known(name, node, names)
        return step_id_of(names.index(name), kind) if name in names else 0

    def check_variants(self, bare: Procedure, variants: list[tuple[Variant, yaml.Node]]) -> None:
        for variant, node in variants:
            for problem in bare.variant_problems(variant):
                self.complain(node, f"variant {variant.name!r}: {problem}")
