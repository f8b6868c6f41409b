# mypy: disallow-subclassing-any=False, disallow-untyped-decorators=False
"""Procedures read from YAML files, with line numbers for everything that is wrong.

What a file looks like is checked first, by classes, and what it means afterwards.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from stormpsr.errors import InputError
from stormpsr.files import read_text
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
from stormpsr.yaml_loader import ComplaintError, Document, Place, Problem, complaints, guess, parse_yaml

PRODUCT_KEYS = ("unit", "materials", "parts")  # what a product's file has on top of a procedure's


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
    return read_text(path), str(path)


def load_procedure(source: str | Path) -> Procedure:
    text, origin = read_source(source)
    procedure, problems = check_procedure_text(text)
    if problems or procedure is None:
        problems[0].raise_error(origin, more=len(problems) - 1)
    return procedure


def check_procedure_text(text: str) -> tuple[Procedure | None, list[Problem]]:
    """The procedure that a YAML text describes, or all that is wrong with it, in the order of the lines."""
    try:
        return check_procedure(parse_yaml(text, as_text=True))
    except InputError as error:
        return None, [Problem(error.line or 1, error.problem, error.cure)]


def check_procedure(document: Document) -> tuple[Procedure | None, list[Problem]]:
    """The same of a document that was read as text. Keys that only a product has are passed over."""
    data = document.data
    if not isinstance(data, dict):
        return None, [
            Problem(1, "the file holds no procedure", "run 'stormpsr procedure new' for a template to start from")
        ]
    if "parts" in data:
        data = {key: value for key, value in data.items() if key not in PRODUCT_KEYS}
    checker = _Checker(document)
    procedure = None
    try:
        procedure = checker.procedure(_File.model_validate(data))
    except ValidationError as error:
        for place, problem, cure in complaints(error, _File, data):
            checker.complain(place, problem, cure or "compare with what 'stormpsr procedure new' writes")
    problems = sorted(checker.problems, key=lambda problem: problem.line)
    return (None if problems else procedure), problems


# ---------------------------------------------------------------------- what a file looks like
Word = Annotated[str, Field(min_length=1)]


def _or_empty(empty: Any) -> BeforeValidator:
    """A key without anything behind it is the same as an empty list or table."""
    return BeforeValidator(lambda value: empty if value is None else value)


def _choices(value: Any) -> Any:
    """What a component requires: a name, names, or lists of alternatives."""
    value = [value] if isinstance(value, str) else value
    return [item if isinstance(item, list) else [item] for item in value] if isinstance(value, list) else value


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Component(_Table):
    name: Word
    colour: Word | None = None

    @model_validator(mode="before")
    @classmethod
    def _may_be_a_word(cls, entry: Any) -> Any:
        if isinstance(entry, dict) and len(entry) == 1 and not entry.keys() & {"name", "colour"}:
            raise ComplaintError("a ':' makes a table of this name", "put a name that contains ':' in quotes")
        return entry if isinstance(entry, dict) else {"name": entry}


class _State(_Table):
    """A class: `{state: '110', name: half}`, `{error: something is wrong}`, or one word."""

    state: Word = ""
    background: Word = ""
    error: Word = ""
    name: Word = ""

    @model_validator(mode="before")
    @classmethod
    def _is_one_of_three(cls, entry: Any) -> Any:
        if not isinstance(entry, dict):
            return {entry if entry in ("background", "error") else "state": entry}
        kinds = [kind for kind in ("state", "background", "error") if kind in entry]
        if len(kinds) > 1:
            raise ComplaintError("a class is a state, background, or error, not two of them", "make it two entries")
        if "name" in entry and kinds in (["background"], ["error"]):
            raise ComplaintError(f"the {kinds[0]} class is named twice", f"write only '{kinds[0]}: NAME'")
        if not kinds and not entry.keys() - {"name"}:
            raise ComplaintError("a state without digits", "add 'state: ...'")
        return entry


class _Variant(_Table):
    initial: Word
    expected: Annotated[list[Word], _or_empty([])]


class _File(_Table):
    name: Word
    title: Word = ""
    fps: Word
    components: Annotated[list[_Component], _or_empty([])]
    states: Annotated[list[_State], _or_empty([])] = []
    variants: Annotated[dict[str, _Variant], _or_empty({})]
    order: Annotated[
        dict[str, Annotated[list[list[Word]], BeforeValidator(_choices), _or_empty([])]], _or_empty({})
    ] = {}


# ---------------------------------------------------------------------- what it means
class _Checker:
    """Collects problems instead of stopping at the first."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self.names: list[str] = []
        self.components_are_sure = False  # else complaints that follow from a bad component would drown it

    def complain(self, place: Place, problem: str, cure: str | None = None) -> None:
        self.problems.append(Problem(self.document.line(place) or 1, problem, cure))

    def procedure(self, file: _File) -> Procedure | None:
        components = self.components(file.components)
        fps = self.fps(file.fps)
        order = self.order(file.order)
        states = [self.state(number, state) for number, state in enumerate(file.states)]
        variants = {name: self.variant(name, variant) for name, variant in file.variants.items()}
        if not variants:
            self.complain(("variants",), "there is no variant", "add one, with its initial state and expected steps")
        if self.problems:
            return None
        # validated piece by piece, so that every complaint has its line; the bare one cannot complain
        nothing = {"-": Variant("-", (0,) * len(components), ())}
        bare = Procedure(file.name, tuple(components), (), nothing, fps, order, file.title)
        self.check_states(bare, states)
        self.check_variants(bare, variants)
        if self.problems:
            return None
        return Procedure(file.name, tuple(components), tuple(states), variants, fps, order, file.title)

    def fps(self, text: str) -> float:
        try:
            fps = float(text)
        except ValueError:
            fps = 0.0
        if not 0 < fps < float("inf"):
            self.complain(("fps",), f"fps is {text!r}", "write the frames per second of the videos, for example 10")
        return fps

    def components(self, entries: list[_Component]) -> list[Component]:
        components: list[Component] = []
        for number, entry in enumerate(entries):
            if entry.name in self.names:
                problem = f"component {entry.name!r} is there twice"
                self.complain(("components", number), problem, "give each component a name of its own")
            try:
                components.append(Component(entry.name, entry.colour))
            except InputError as error:
                self.complain(("components", number), error.problem, error.cure)
            self.names.append(entry.name)
        if not entries:
            self.complain(("components",), "there are no components", "list their names, one per line, each after '- '")
        self.components_are_sure = not self.problems
        return components

    def order(self, entries: dict[str, list[list[str]]]) -> dict[str, tuple[tuple[str, ...], ...]]:
        order = {name: tuple(tuple(choice) for choice in choices if choice) for name, choices in entries.items()}
        for name, choices in order.items():
            for other in (name, *(other for choice in choices for other in choice)):
                self.known(other, ("order", name))
        for name in cycle_members(self.names, order):
            others = ", ".join(repr(a) for choice in order[name] for a in choice)
            problem = f"the order has a cycle: {name!r} waits for {others}"
            self.complain(("order", name), problem, "remove one of the lines")
        return order

    def known(self, name: str, place: Place) -> None:
        if name not in self.names and self.components_are_sure:
            cure = guess(name, self.names, f"there are: {', '.join(self.names)}")
            self.complain(place, f"{name!r} is not a component", cure)

    # ------------------------------------------------------------------ states
    def bits(self, text: str, place: Place) -> StateBits:
        if set(text) - {"0", "1"}:
            self.complain(place, f"{text!r} is not a state", "write one digit per component, 1 present, 0 absent")
            return ()
        if len(text) != len(self.names) and self.components_are_sure:
            digits = f"{len(text)} digit{'s' if len(text) > 1 else ''}"
            problem = f"state {text} has {digits}, but the number of components is {len(self.names)}"
            self.complain(place, problem, "write one digit per component, in their order")
        return tuple(int(digit) for digit in text)

    def state(self, number: int, entry: _State) -> AssemblyState:
        if entry.state:
            bits = self.bits(entry.state, ("states", number))
            return AssemblyState(number, StateKind.ASSEMBLY, entry.name or entry.state, bits or None)
        kind = StateKind.BACKGROUND if entry.background else StateKind.ERROR
        return AssemblyState(number, kind, entry.background or entry.error, None)

    def check_states(self, bare: Procedure, states: list[AssemblyState]) -> None:
        seen: dict[StateBits, int] = {}
        for state in states:
            if state.bits is None:
                continue
            place, digits = ("states", state.state_class), bit_string(state.bits)
            for problem in bare.bits_problems(state.bits):
                self.complain(place, f"state {digits}: {problem}", _what_is_missing(bare, state.bits))
            if state.bits in seen:
                self.complain(place, f"state {digits} is class {seen[state.bits]} already", "remove one of them")
            seen.setdefault(state.bits, state.state_class)

    # ------------------------------------------------------------------ variants
    def variant(self, name: str, entry: _Variant) -> Variant:
        place = ("variants", name)
        initial = self.bits(entry.initial, (*place, "initial"))
        steps = {self.step(text, (*place, "expected", number)) for number, text in enumerate(entry.expected)}
        return Variant(name, initial, tuple(sorted(steps)))

    def step(self, text: str, place: Place) -> int:
        """A step by id, or in words: `install front wheel`, `remove front wheel`."""
        if text.isascii() and text.isdigit():
            last = step_id_of(len(self.names) - 1, StepKind.REMOVE)
            if len(text) < 10 and int(text) <= last:
                return int(text)
            if self.components_are_sure:
                self.complain(place, f"step id {text[:20]} does not exist", f"ids go from 0 to {last}")
            return 0
        kind, name = parse_step_words(text)
        if kind is None:
            part = text if text in self.names else "NAME"
            cure = f"write 'install {part}', 'incorrectly install {part}' or 'remove {part}'"
            self.complain(place, f"{text!r} is not a step", cure)
            return 0
        self.known(name, place)
        return step_id_of(self.names.index(name), kind) if name in self.names else 0

    def check_variants(self, bare: Procedure, variants: dict[str, Variant]) -> None:
        for name, variant in variants.items():
            for problem in bare.variant_problems(variant):
                unbuildable = bare.build_order(variant.initial) is None
                cure = _what_is_missing(bare, variant.initial) if unbuildable else "change one of the two"
                self.complain(("variants", name), f"variant {name!r}: {problem}", cure)


def _what_is_missing(procedure: Procedure, bits: StateBits) -> str:
    """A cure for a state that the order forbids: a component in it, and what that one needs."""
    for k, component in enumerate(procedure.components):
        if bits[k] and not procedure.can_install(bits, k):
            present = {procedure.components[j].name for j, bit in enumerate(bits) if bit}
            needs = next(choice for choice in procedure.order[component.name] if not present & set(choice))
            return f"{component.name!r} needs {' or '.join(repr(name) for name in needs)}"
    return "its components wait for each other"
