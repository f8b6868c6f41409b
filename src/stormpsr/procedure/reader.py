"""Procedures read from YAML files, with line numbers for everything that is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import yaml

from stormpsr.errors import InputError
from stormpsr.procedure.model import (
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
from stormpsr.yaml_loader import NodeReader, Problem, compose, guess

_KEYS = ("name", "title", "fps", "components", "states", "variants", "order")
_NEEDED_KEYS = ("name", "fps", "components", "variants")


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
    if path.is_dir():
        raise InputError("this is a folder", path=path, cure="give the path of a procedure's YAML file")
    if not path.is_file():
        known = shipped_procedures()
        cure = f"give the path of a YAML file or one of: {', '.join(known)}"
        if path.suffix or len(path.parts) > 1:
            raise InputError("there is no such file", path=path, cure=cure)
        raise InputError(f"no procedure {name!r}", cure=guess(name, known, cure))
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
    root = compose(text)
    if isinstance(root, Problem):
        return None, [root]
    reader = _Reader()
    procedure = reader.procedure(root)
    problems = sorted(reader.problems, key=lambda problem: problem.line)
    return (None if problems else procedure), problems


class _Reader(NodeReader):
    """Walks the tree of a procedure file."""

    def __init__(self) -> None:
        super().__init__()
        self.components_are_sure = False  # else complaints that follow from a bad component would drown it

    def procedure(self, root: yaml.Node | None) -> Procedure | None:
        if not isinstance(root, yaml.MappingNode):
            cure = "run 'stormpsr procedure new' for a template to start from"
            self.problems.append(Problem(1, "the file holds no procedure", cure))
            return None
        nodes: dict[str, yaml.Node] = {}
        for key, key_node, value in self.pairs(root, "the procedure"):
            if key not in _KEYS:
                self.unknown_key(key, key_node, "a procedure", _KEYS)
            nodes[key] = value
        for key in _NEEDED_KEYS:
            if key not in nodes:
                self.complain(root, f"the key {key!r} is missing", f"add a line that starts with '{key}:'")

        components = self.components(nodes["components"]) if "components" in nodes else []
        names = [component.name for component in components]
        order = self.order(nodes.get("order"), names)
        states = self.states(nodes.get("states"), len(names))
        variants = self.variants(nodes["variants"], names) if "variants" in nodes else []
        name = self.text(nodes["name"], "name") if "name" in nodes else ""
        fps = self.fps(nodes["fps"]) if "fps" in nodes else 1.0
        title = self.text(nodes["title"], "title") if "title" in nodes else ""
        if self.problems:
            return None
        # validated piece by piece, so that every complaint has its line; the bare one cannot complain
        bare = Procedure(name, tuple(components), (), {"-": Variant("-", (0,) * len(names), ())}, fps, order, title)
        self.check_states(bare, states)
        self.check_variants(bare, variants)
        if self.problems:
            return None
        table = {variant.name: variant for variant, _ in variants}
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
        n_problems = len(self.problems)
        items = self.items(node, "components")
        for item in items:
            name, colour = self.component_words(item)
            if name and any(name == component.name for component in components):
                self.complain(item, f"component {name!r} is there twice", "give each component a name of its own")
            try:
                components.append(Component(name or "?", colour))
            except InputError as error:
                self.complain(item, error.problem, error.cure)
        if not items and len(self.problems) == n_problems:
            self.complain(node, "there are no components", "list their names, one per line, each after '- '")
        self.components_are_sure = len(self.problems) == n_problems
        return components

    def component_words(self, item: yaml.Node) -> tuple[str, str | None]:
        """(name, colour) of an entry in the list of components."""
        if not isinstance(item, yaml.MappingNode):
            return self.text(item, "a component"), None
        name, colour = "", None
        pairs = list(self.pairs(item, "a component"))
        if len(pairs) == 1 and pairs[0][0] not in ("name", "colour"):
            self.complain(item, "a ':' makes a table of this name", "put a name that contains ':' in quotes")
            return "", None
        for key, key_node, value in pairs:
            if key == "name":
                name = self.text(value, "the name")
            elif key == "colour":
                colour = self.text(value, "the colour") or None
            else:
                self.unknown_key(key, key_node, "a component", ("name", "colour"))
        if not any(key == "name" for key, _, _ in pairs):
            self.complain(item, "a component without a name", "add 'name: ...'")
        return name, colour

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
        if name and name not in names and self.components_are_sure:
            self.complain(node, f"{name!r} is not a component", guess(name, names, f"there are: {', '.join(names)}"))

    # ------------------------------------------------------------------ states
    def bits(self, node: yaml.Node, text: str, n_components: int) -> StateBits | None:
        if set(text) - {"0", "1"}:
            self.complain(node, f"{text!r} is not a state", "write one digit per component, 1 present, 0 absent")
            return None
        if text and len(text) != n_components and self.components_are_sure:
            digits = f"{len(text)} digit{'s' if len(text) > 1 else ''}"
            problem = f"state {text} has {digits}, but the number of components is {n_components}"
            self.complain(node, problem, "write one digit per component, in their order")
        return tuple(int(digit) for digit in text) or None

    def states(self, node: yaml.Node | None, n_components: int) -> list[tuple[AssemblyState, yaml.Node]]:
        states: list[tuple[AssemblyState, yaml.Node]] = []
        for item in self.items(node, "states"):
            if isinstance(item, yaml.MappingNode):
                kind, name, bits = self.state_table(item, n_components)
            else:
                name = self.text(item, "a state")
                kind = StateKind(name) if name in ("background", "error") else StateKind.ASSEMBLY
                bits = self.bits(item, name, n_components) if kind is StateKind.ASSEMBLY else None
            states.append((AssemblyState(len(states), kind, name or bit_string(bits or ()), bits), item))
        return states

    def state_table(self, item: yaml.Node, n_components: int) -> tuple[StateKind, str, StateBits | None]:
        """A state written as a table: `{state: '110', name: half}`, `{error: something is wrong}`."""
        kind, name, bits = StateKind.ASSEMBLY, "", None
        keys = []
        for key, key_node, value in self.pairs(item, "a state"):
            keys.append(key)
            if key in ("background", "error"):
                kind, name = StateKind(key), self.text(value, f"the name of the {key} class")
            elif key == "state":
                bits = self.bits(value, self.text(value, "a state"), n_components)
            elif key == "name":
                name = self.text(value, "the name")
            else:
                self.unknown_key(key, key_node, "a state", ("state", "name", "background", "error"))
        if len({"state", "background", "error"} & set(keys)) > 1:
            self.complain(item, "a class is a state, background, or error, not two of them", "make it two entries")
        elif not {"state", "background", "error"} & set(keys):
            self.complain(item, "a state without digits", "add 'state: ...'")
        elif "name" in keys and "state" not in keys:
            self.complain(item, f"the {kind.value} class is named twice", f"write only '{kind.value}: NAME'")
        return kind, name, bits

    def check_states(self, bare: Procedure, states: list[tuple[AssemblyState, yaml.Node]]) -> None:
        seen: dict[StateBits, int] = {}
        for state, node in states:
            if state.bits is None:
                continue
            for problem in bare.bits_problems(state.bits):
                self.complain(node, f"state {bit_string(state.bits)}: {problem}", _what_is_missing(bare, state.bits))
            if state.bits in seen:
                cure = "remove one of them"
                self.complain(node, f"state {bit_string(state.bits)} is class {seen[state.bits]} already", cure)
            seen.setdefault(state.bits, state.state_class)

    # ------------------------------------------------------------------ variants
    def variants(self, node: yaml.Node, names: Sequence[str]) -> list[tuple[Variant, yaml.Node]]:
        n_problems = len(self.problems)
        variants = [
            (self.variant(name, key_node, value, names), key_node)
            for name, key_node, value in self.pairs(node, "variants")
        ]
        if not variants and len(self.problems) == n_problems:
            self.complain(node, "there is no variant", "add one, with its initial state and expected steps")
        return variants

    def variant(self, name: str, key_node: yaml.Node, node: yaml.Node, names: Sequence[str]) -> Variant:
        initial: StateBits | None = None
        expected: list[int] = []
        keys = []
        if not isinstance(node, yaml.MappingNode) and not self.is_absent(node):
            self.complain(node, f"variant {name!r} must be a table", "indent 'initial:' and 'expected:' below its name")
            return Variant(name, (), ())
        for key, inner, content in self.pairs(node, f"variant {name!r}"):
            keys.append(key)
            if key == "initial":
                initial = self.bits(content, self.text(content, "the initial state"), len(names))
            elif key == "expected":
                expected = [self.step(item, names) for item in self.items(content, "expected")]
            else:
                self.unknown_key(key, inner, "a variant", ("initial", "expected"))
        if "initial" not in keys:
            self.complain(key_node, f"variant {name!r} has no initial state", "add 'initial: ...' below it")
        if "expected" not in keys:
            cure = "add 'expected:' with a list of steps below it"
            self.complain(key_node, f"variant {name!r} expects no steps", cure)
        return Variant(name, initial or (), tuple(sorted(set(expected))))

    def step(self, node: yaml.Node, names: Sequence[str]) -> int:
        """A step by id, or in words: `install front wheel`, `remove front wheel`."""
        text = self.text(node, "a step")
        if text.isascii() and text.isdigit():
            last = step_id_of(len(names) - 1, StepKind.REMOVE)
            if len(text) < 10 and int(text) <= last:
                return int(text)
            if self.components_are_sure:
                self.complain(node, f"step id {text[:20]} does not exist", f"ids go from 0 to {last}")
            return 0
        kind, name = parse_step_words(text)
        if kind is None:
            part = text if text in names else "NAME"
            if text:
                cure = f"write 'install {part}', 'incorrectly install {part}' or 'remove {part}'"
                self.complain(node, f"{text!r} is not a step", cure)
            return 0
        self.known(name, node, names)
        return step_id_of(names.index(name), kind) if name in names else 0

    def check_variants(self, bare: Procedure, variants: list[tuple[Variant, yaml.Node]]) -> None:
        for variant, node in variants:
            for problem in bare.variant_problems(variant):
                unbuildable = bare.build_order(variant.initial) is None
                cure = _what_is_missing(bare, variant.initial) if unbuildable else "change one of the two"
                self.complain(node, f"variant {variant.name!r}: {problem}", cure)


def _what_is_missing(procedure: Procedure, bits: StateBits) -> str:
    """A cure for a state that the order forbids: a component in it, and what that one needs."""
    for k, component in enumerate(procedure.components):
        if bits[k] and not procedure.can_install(bits, k):
            present = {procedure.components[j].name for j, bit in enumerate(bits) if bit}
            needs = next(choice for choice in procedure.order[component.name] if not present & set(choice))
            return f"{component.name!r} needs {' or '.join(repr(name) for name in needs)}"
    return "its components wait for each other"
