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
    Complaint,
    Component,
    Place,
    Procedure,
    ProcedureError,
    StateBits,
    StateKind,
    StepKind,
    Variant,
    parse_step_words,
    step_id_of,
    unknown_component,
)
from stormpsr.yaml_loader import ComplaintError, Document, Problem, complaints, guess, parse_yaml

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
    try:
        checker = _Checker(_File.model_validate(data))
        procedure, found = checker.procedure(), checker.problems
    except ValidationError as error:
        usual = "compare with what 'stormpsr procedure new' writes"
        procedure = None
        found = [(place, problem, cure or usual) for place, problem, cure in complaints(error, _File, data)]
    problems = [Problem(document.line(place) or 1, problem, cure) for place, problem, cure in found]
    return procedure, sorted(problems, key=lambda problem: problem.line)


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
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


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
    """Makes a procedure of the texts in a file. Collects problems instead of stopping at the first."""

    def __init__(self, file: _File) -> None:
        self.file = file
        self.names = [entry.name for entry in file.components]
        self.problems: list[Complaint] = []

    def procedure(self) -> Procedure | None:
        file = self.file
        fps = self.fps(file.fps)
        components = [self.component(number, entry) for number, entry in enumerate(file.components)]
        states = [self.state(number, entry) for number, entry in enumerate(file.states)]
        variants = {name: self.variant(name, entry) for name, entry in file.variants.items()}
        order = {name: tuple(tuple(choice) for choice in choices if choice) for name, choices in file.order.items()}
        try:
            found = Procedure(file.name, tuple(components), tuple(states), variants, fps, order, file.title)
        except ProcedureError as error:
            self.problems += error.problems
        if any(place[0] == "components" for place, *_ in self.problems):
            # what follows from a bad component would drown it
            self.problems = [problem for problem in self.problems if problem[0][0] in ("components", "fps")]
        return None if self.problems else found

    def fps(self, text: str) -> float:
        try:
            fps = float(text)
        except ValueError:
            fps = 0.0
        if 0 < fps < float("inf"):
            return fps
        cure = "write the frames per second of the videos, for example 10"
        self.problems.append((("fps",), f"fps is {text!r}", cure))
        return 1.0

    def component(self, number: int, entry: _Component) -> Component:
        try:
            return Component(entry.name, entry.colour)
        except InputError as error:
            self.problems.append((("components", number), error.problem, error.cure or "give it another name"))
            return Component(f"component {number}")

    def bits(self, text: str, place: Place) -> StateBits | None:
        if set(text) - {"0", "1"}:
            cure = "write one digit per component, 1 present, 0 absent"
            self.problems.append((place, f"{text!r} is not a state", cure))
            return None
        return tuple(int(digit) for digit in text)

    def state(self, number: int, entry: _State) -> AssemblyState:
        bits = self.bits(entry.state, ("states", number)) if entry.state else None
        if bits is not None:
            return AssemblyState(number, StateKind.ASSEMBLY, entry.name or entry.state, bits)
        kind = StateKind.BACKGROUND if entry.background else StateKind.ERROR
        return AssemblyState(number, kind, entry.background or entry.error)

    def variant(self, name: str, entry: _Variant) -> Variant:
        place = ("variants", name)
        initial = self.bits(entry.initial, (*place, "initial"))
        steps = [self.step(text, (*place, "expected", number)) for number, text in enumerate(entry.expected)]
        known = {step_id for step_id in steps if step_id is not None}
        if initial is None or None in steps:  # nothing more can be said about it
            return Variant(name, initial or (0,) * len(self.names), ())
        return Variant(name, initial, tuple(sorted(known)))

    def step(self, text: str, place: Place) -> int | None:
        """A step by id, or in words: `install front wheel`, `remove front wheel`."""
        kind, name = parse_step_words(text)
        if text.isascii() and text.isdigit():
            last = step_id_of(len(self.names) - 1, StepKind.REMOVE)
            if len(text) < 10 and int(text) <= last:
                return int(text)
            problem, cure = f"step id {text[:20]} does not exist", f"ids go from 0 to {last}"
        elif kind is None:
            part = text if text in self.names else "NAME"
            cure = f"write 'install {part}', 'incorrectly install {part}' or 'remove {part}'"
            problem = f"{text!r} is not a step"
        elif name not in self.names:
            problem, cure = unknown_component(name, self.names)
        else:
            return step_id_of(self.names.index(name), kind)
        self.problems.append((place, problem, cure))
        return None
