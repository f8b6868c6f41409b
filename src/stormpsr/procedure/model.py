"""What there is to know about a procedure: components, steps, the states a detector may report, variants, order.

A component `k` has three steps, with the ids the field uses: `3k` install, `3k + 1` incorrectly install, `3k + 2`
remove. This is the only file that does that arithmetic.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cached_property
from pathlib import Path

from stormpsr.errors import InputError

StateBits = tuple[int, ...]  # per component: 1 correct, 0 absent, -1 present but wrong

ABSENT, CORRECT, WRONG = 0, 1, 2  # columns of what is read per component


class StepKind(IntEnum):
    """What happened to the component. The values are the offsets inside a component's three step ids."""

    INSTALL = 0
    INCORRECT = 1
    REMOVE = 2

    @property
    def verb(self) -> str:
        return ("Install", "Incorrectly installed", "Remove")[self.value]

    @property
    def words(self) -> str:
        """How a procedure file writes it."""
        return ("install", "incorrectly install", "remove")[self.value]


def parse_step_words(text: str) -> tuple[StepKind | None, str]:
    """`remove front wheel` as (REMOVE, "front wheel"); the kind is None if the text starts with no known word."""
    for kind in StepKind:
        if text.lower().startswith(kind.words + " "):
            return kind, text[len(kind.words) + 1 :].strip()
    return None, text


def step_id_of(component_index: int, kind: StepKind) -> int:
    """The id that the field gives to a step."""
    return 3 * component_index + kind


def bit_string(bits: StateBits) -> str:
    """(1, 0, 1) as "101"; a wrong part is written as "x"."""
    return "".join("x" if bit < 0 else str(bit) for bit in bits)


class StateKind(Enum):
    """What a detector's class stands for."""

    BACKGROUND = "background"
    ASSEMBLY = "assembly"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Component:
    """A part, or several parts that are always mounted together."""

    name: str
    colour: str | None = None  # "#rrggbb", for drawings

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise InputError("a component has an empty name", cure="give each component a name")
        if self.name != self.name.strip() or any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in self.name):
            cure = "leave out blanks around it, line breaks and control characters"
            raise InputError(f"a component is called {self.name!r}", cure=cure)
        if self.colour is not None and not re.fullmatch(r"#[0-9a-fA-F]{6}", self.colour):
            raise InputError(f"colour of component {self.name!r} is {self.colour!r}", cure="write it like '#3366cc'")


@dataclass(frozen=True, slots=True)
class Step:
    """Something that can be completed."""

    id: int
    component_index: int
    kind: StepKind
    description: str

    @property
    def installs(self) -> bool:
        """Whether the component is part of the assembly afterwards, correctly or not."""
        return self.kind is not StepKind.REMOVE


@dataclass(frozen=True, slots=True)
class AssemblyState:
    """A class of the detector. Background and error classes have no bits: they say nothing about the components."""

    state_class: int
    kind: StateKind
    name: str
    bits: StateBits | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to carry out the procedure, for example assembly and maintenance."""

    name: str
    initial: StateBits
    expected: tuple[int, ...]  # step ids that belong to it, ascending


@dataclass(frozen=True)
class Needs:
    """What every component needs, as indices: of each choice one suffices."""

    choices: tuple[tuple[tuple[int, ...], ...], ...]

    def met(self, component: int, present: Collection[int]) -> bool:
        return all(any(other in present for other in choice) for choice in self.choices[component])

    def carried_by(self, component: int, present: Collection[int]) -> list[int]:
        """The present components that cannot stay without this one."""
        return [
            other
            for other in sorted(present)
            if any(
                component in choice and not (set(choice) - {component}) & set(present) for choice in self.choices[other]
            )
        ]

    @cached_property
    def depth(self) -> tuple[int, ...]:
        """How many steps must come before each component's, along the shortest way."""
        found: dict[int, int] = {}

        def of(component: int) -> int:
            if component not in found:
                found[component] = 0  # whatever a procedure that was not checked may say
                needed = [min(of(other) for other in choice) for choice in self.choices[component] if choice]
                found[component] = 1 + max(needed) if needed else 0
            return found[component]

        return tuple(of(component) for component in range(len(self.choices)))


Place = tuple[str | int, ...]  # the keys and list indices that lead to a value in a procedure's file
Complaint = tuple[Place, str, str]  # where, what is wrong, and the cure
_UNREACHABLE = "it cannot be reached: the order does not allow these components without others"


class ProcedureError(InputError):
    """A procedure that makes no sense. Its text is about the first of the problems."""

    def __init__(self, name: str, problems: Sequence[Complaint]) -> None:
        self.problems = problems
        super().__init__(f"procedure {name!r}: {problems[0][1]}", cure=problems[0][2])


@dataclass(frozen=True)
class Procedure:
    """A validated procedure. Build it from a file with `Procedure.load`."""

    name: str
    components: tuple[Component, ...]
    states: tuple[AssemblyState, ...]  # in the detector's class order, class 0 first
    variants: Mapping[str, Variant]
    fps: float
    # component -> what must be in place before it; each requirement is a tuple of alternatives, one of which suffices
    order: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    title: str = ""

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ProcedureError(self.name, problems)

    # ------------------------------------------------------------------ components and steps
    @property
    def n_components(self) -> int:
        return len(self.components)

    @cached_property
    def component_index(self) -> Mapping[str, int]:
        return {component.name: k for k, component in enumerate(self.components)}

    @cached_property
    def needs(self) -> Needs:
        """The order, by the components' indices."""
        index = self.component_index
        return Needs(
            tuple(
                tuple(tuple(index[name] for name in choice) for choice in self.order.get(component.name, ()))
                for component in self.components
            )
        )

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """All steps; `steps[i].id == i`."""
        return tuple(
            Step(step_id_of(k, kind), k, kind, f"{kind.verb} {component.name}")
            for k, component in enumerate(self.components)
            for kind in StepKind
        )

    def step(self, step_id: int) -> Step:
        if not 0 <= step_id < len(self.steps):
            raise InputError(
                f"step id {step_id} does not exist in procedure {self.name!r}",
                cure=f"its {self.n_components} components have the ids 0 to {len(self.steps) - 1}",
            )
        return self.steps[step_id]

    def step_id(self, component_index: int, kind: StepKind) -> int:
        if not 0 <= component_index < self.n_components:
            raise InputError(f"component {component_index} does not exist in procedure {self.name!r}")
        return step_id_of(component_index, kind)

    def steps_between(self, before: Sequence[int], after: Sequence[int], *, with_errors: bool = True) -> list[Step]:
        """The steps that turn one state into another, by the published rules.

        A wrong part that is taken off is no step (nothing correct was undone); a wrong part that becomes right is an
        install; a right part that becomes wrong is an incorrect install. Without errors, a wrong part counts as
        absent, so a right part that becomes wrong is a removal.
        """
        found: list[Step] = []
        for k, (old, new) in enumerate(zip(self.check_bits(before), self.check_bits(after), strict=True)):
            if not with_errors:
                old, new = max(old, 0), max(new, 0)
            if old == new or (old == -1 and new == 0):
                continue
            kind = {1: StepKind.INSTALL, -1: StepKind.INCORRECT, 0: StepKind.REMOVE}[new]
            found.append(self.steps[self.step_id(k, kind)])
        return found

    def apply(self, bits: Sequence[int], step_id: int) -> StateBits:
        """The state after a step."""
        step = self.step(step_id)
        after = list(self.check_bits(bits))
        after[step.component_index] = {StepKind.INSTALL: 1, StepKind.INCORRECT: -1, StepKind.REMOVE: 0}[step.kind]
        return tuple(after)

    # ------------------------------------------------------------------ states
    def check_bits(self, bits: Sequence[int]) -> StateBits:
        """The state as a tuple of ints, or an error if it does not fit the procedure."""
        state = tuple(int(bit) for bit in bits)
        if len(state) != self.n_components:
            raise InputError(
                f"a state of procedure {self.name!r} has {self.n_components} components, this one has {len(state)}"
            )
        if any(bit not in (-1, 0, 1) for bit in state):
            raise InputError(f"a component's state is -1, 0 or 1, not {next(b for b in state if b not in (-1, 0, 1))}")
        return state

    @cached_property
    def class_of_bits(self) -> Mapping[StateBits, int]:
        return {state.bits: state.state_class for state in self.states if state.bits is not None}

    @cached_property
    def error_class(self) -> int | None:
        """The first class that means "something is wrong", if the detector has one."""
        return next((state.state_class for state in self.states if state.kind is StateKind.ERROR), None)

    def state_class(self, bits: Sequence[int]) -> int | None:
        """The class a perfect detector would report: the error class if a part is wrong, None if there is none."""
        state = self.check_bits(bits)
        return self.error_class if -1 in state else self.class_of_bits.get(state)

    # ------------------------------------------------------------------ variants and order
    def variant(self, name: str | None = None) -> Variant:
        """A variant by name; without a name the first one."""
        if name is None:
            return next(iter(self.variants.values()))
        if name not in self.variants:
            raise InputError(
                f"procedure {self.name!r} has no variant {name!r}", cure=f"it has: {', '.join(self.variants)}"
            )
        return self.variants[name]

    def variant_of_recording(self, recording_name: str) -> Variant | None:
        """The variant a recording's name speaks of (`01_assy_0_1`), the only one there is, or None."""
        words = re.split(r"[^A-Za-z0-9]+", recording_name)
        named = [variant for variant in self.variants.values() if variant.name in words]
        if len(named) == 1:
            return named[0]
        return next(iter(self.variants.values())) if len(self.variants) == 1 else None

    def build_order(self, bits: Sequence[int]) -> list[int] | None:
        """An order in which a state's components can be put together, or None if the partial order forbids it."""
        wanted = [k for k, bit in enumerate(bits) if bit != 0]
        built = _in_order([component.name for component in self.components], self.order, wanted)
        return built if len(built) == len(wanted) else None

    def can_install(self, bits: Sequence[int], component_index: int) -> bool:
        """Whether all that must come before a component is in place."""
        installed = {self.components[k].name for k, bit in enumerate(bits) if bit != 0}
        requirements = self.order.get(self.components[component_index].name, ())
        return all(any(name in installed for name in choice) for choice in requirements)

    # ------------------------------------------------------------------ files
    @classmethod
    def load(cls, source: str | Path) -> Procedure:
        """A shipped procedure by name (`industreal`, `meccano`, `impact`), or one from a YAML file."""
        from stormpsr.procedure.reader import load_procedure

        return load_procedure(source)

    def save(self, path: str | Path) -> None:
        """Write the procedure as a YAML file that `load` reads back equal."""
        from stormpsr.procedure.writer import save_procedure

        save_procedure(self, path)

    # ------------------------------------------------------------------ validation
    def _problems(self) -> Iterator[Complaint]:
        """All that is wrong; what only makes sense once components, order and digits are right comes after those."""
        basic = [*self._component_problems(), *self._order_problems(), *self._digit_problems()]
        yield from basic
        if not basic:
            yield from self._state_problems()
            for variant in self.variants.values():
                for problem, cure in self._variant_problems(variant):
                    yield ("variants", variant.name), f"variant {variant.name!r}: {problem}", cure

    def _component_problems(self) -> Iterator[Complaint]:
        names = [component.name for component in self.components]
        if not names:
            yield ("components",), "there are no components", "list their names, one per line, each after '- '"
        for k, name in enumerate(names):
            if name in names[:k]:
                yield ("components", k), f"component {name!r} is there twice", "give each component a name of its own"
        if not 0 < self.fps < float("inf"):
            yield ("fps",), f"fps is {self.fps:g}", "give the frames per second of the videos, for example 10"
        if not self.variants:
            yield ("variants",), "there is no variant", "add one, with its initial state and expected steps"

    def _order_problems(self) -> Iterator[Complaint]:
        names = [component.name for component in self.components]
        for name, requirements in self.order.items():
            for other in (name, *(alternative for choice in requirements for alternative in choice)):
                if other not in names:
                    yield ("order", name), *unknown_component(other, names)
        for name in _cycle_members(names, self.order):
            others = ", ".join(repr(other) for choice in self.order[name] for other in choice)
            problem = f"the order has a cycle: {name!r} waits for {others}"
            yield ("order", name), problem, "remove one of the lines"

    def _digit_problems(self) -> Iterator[Complaint]:
        places: list[tuple[Place, StateBits]] = [
            (("states", number), state.bits) for number, state in enumerate(self.states) if state.bits is not None
        ]
        places += [(("variants", name, "initial"), variant.initial) for name, variant in self.variants.items()]
        for place, bits in places:
            if len(bits) != self.n_components:
                digits = f"{len(bits)} digit{'s' if len(bits) > 1 else ''}"
                problem = f"state {bit_string(bits)} has {digits}, but the number of components is {self.n_components}"
                yield place, problem, "write one digit per component, in their order"
            elif any(bit not in (0, 1) for bit in bits):
                yield place, f"state {bit_string(bits)}: its digits must be 0 or 1", "write 1 for present, 0 for absent"

    def _state_problems(self) -> Iterator[Complaint]:
        seen: dict[StateBits, int] = {}
        for number, state in enumerate(self.states):
            place = ("states", number)
            if state.state_class != number:
                yield place, f"state class {state.state_class} stands at place {number}", "number them from 0"
            if (state.bits is None) == (state.kind is StateKind.ASSEMBLY):
                problem = (
                    f"state class {number} is {state.kind.value} and has {'no ' if state.bits is None else ''}bits"
                )
                yield place, problem, "assembly states have bits, others have none"
            if state.bits is None:
                continue
            digits = bit_string(state.bits)
            if self.build_order(state.bits) is None:
                yield place, f"state {digits}: {_UNREACHABLE}", self._what_is_missing(state.bits)
            if state.bits in seen:
                yield place, f"state {digits} is class {seen[state.bits]} already", "remove one of them"
            seen.setdefault(state.bits, number)

    def _variant_problems(self, variant: Variant) -> Iterator[tuple[str, str]]:
        if self.build_order(variant.initial) is None:
            yield f"initial state: {_UNREACHABLE}", self._what_is_missing(variant.initial)
        for step_id in variant.expected:
            if not 0 <= step_id < len(self.steps):
                yield f"expects step {step_id}, which does not exist", f"ids go from 0 to {len(self.steps) - 1}"
                continue
            step = self.steps[step_id]
            opposite = self.step_id(step.component_index, StepKind.REMOVE if step.installs else StepKind.INSTALL)
            already = variant.initial[step.component_index] == (1 if step.installs else 0)
            if already and opposite not in variant.expected:
                where = "in place" if step.installs else "absent"
                problem = f"expects {step.description!r}, but its initial state has that component {where} already"
                yield problem, "change one of the two"

    def _what_is_missing(self, bits: StateBits) -> str:
        """A cure for a state that the order forbids: a component in it, and what that one needs."""
        present = {component.name for component, bit in zip(self.components, bits, strict=True) if bit}
        for name in (component.name for component in self.components if component.name in present):
            for choice in self.order.get(name, ()):
                if not present & set(choice):
                    return f"{name!r} needs {' or '.join(repr(other) for other in choice)}"
        return "its components wait for each other"


def unknown_component(name: str, known: Sequence[str]) -> tuple[str, str]:
    """(problem, cure) of a name that no component has."""
    from stormpsr.yaml_loader import guess

    return f"{name!r} is not a component", guess(name, known, f"there are: {', '.join(known)}")


def _in_order(
    names: Sequence[str], order: Mapping[str, tuple[tuple[str, ...], ...]], wanted: Iterable[int]
) -> list[int]:
    """As many of `wanted` as can be put together, each as soon as what it requires is there."""
    built: list[int] = []
    left, built_names = sorted(wanted), set[str]()
    while True:
        ready = [k for k in left if all(any(n in built_names for n in choice) for choice in order.get(names[k], ()))]
        if not ready:
            return built
        built.extend(ready)
        built_names.update(names[k] for k in ready)
        left = [k for k in left if k not in ready]


def _cycle_members(names: Sequence[str], order: Mapping[str, tuple[tuple[str, ...], ...]]) -> list[str]:
    """The components that can never be installed because they wait for each other."""
    placed = {names[k] for k in _in_order(names, order, range(len(names)))}
    stuck = [name for name in names if name not in placed]
    while True:  # drop those that merely come after the cycle
        needed = {other for name in stuck for choice in order.get(name, ()) for other in choice}
        core = [name for name in stuck if name in needed]
        if len(core) == len(stuck):
            return core
        stuck = core
