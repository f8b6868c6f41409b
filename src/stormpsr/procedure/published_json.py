"""The field's `procedure_info.json`: a list with an object per step, as the published programs read it.

The JSON holds less than a procedure file: no states, no frames per second, no initial states, no order. Reading it
therefore takes those as arguments, and says in its notes what it had to assume.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stormpsr.errors import InputError
from stormpsr.files import read_json, write_text
from stormpsr.procedure.model import (
    AssemblyState,
    Component,
    Procedure,
    StateBits,
    StepKind,
    Variant,
    bit_string,
    step_id_of,
)

_EXPECTED = "expected_in_"
_TYPE_OF_KEY = {"id": int, "description": str, "install": bool, "state_idx": int}
_TYPE_NAMES = {int: "a whole number", str: "text", bool: "true or false"}

Entry = dict[str, Any]


# ---------------------------------------------------------------------- writing
def procedure_info(procedure: Procedure) -> list[Entry]:
    """The steps as the published programs read them. Variants that expect nothing become columns of false."""
    return [
        {
            "id": step.id,
            "description": step.description,
            "install": step.installs,
            "state_idx": step.component_index,
            **{f"{_EXPECTED}{variant.name}": step.id in variant.expected for variant in procedure.variants.values()},
        }
        for step in procedure.steps
    ]


def procedure_info_text(procedure: Procedure) -> str:
    return json.dumps(procedure_info(procedure), indent=2, ensure_ascii=False) + "\n"


def export_procedure_info(procedure: Procedure, path: str | Path) -> None:
    write_text(path, procedure_info_text(procedure))


# ---------------------------------------------------------------------- reading
def import_procedure_info(
    path: str | Path,
    *,
    name: str,
    fps: float,
    initial: Mapping[str, str | Sequence[int]] | None = None,
    states: Sequence[AssemblyState] = (),
) -> tuple[Procedure, list[str]]:
    """The procedure that a `procedure_info.json` describes, and notes on what was assumed.

    Where a variant's initial state is not given it is derived: a component whose removal is expected starts present,
    any other starts absent. A variant that expects no step at all is left out, unless its initial state is given.
    """
    path = Path(path)
    if not 0 < fps < float("inf"):
        raise InputError(f"fps is {fps:g}", cure="give the frames per second of the videos, for example 10")
    entries = _read_entries(path)
    try:
        names = _component_names(entries)
        expected = _expected_steps(entries)
        variants, notes = _variants(names, expected, dict(initial or {}))
        components = tuple(Component(word) for word in names)
        procedure = Procedure(name, components, tuple(states), {v.name: v for v in variants}, fps)
    except InputError as error:
        raise InputError(error.problem, path=path, line=error.line, cure=error.cure) from error
    return procedure, notes


def _read_entries(path: Path) -> list[Entry]:
    data = read_json(path)
    if not isinstance(data, list) or not data:
        found = "an empty list" if data == [] else "one object" if isinstance(data, dict) else "a single value"
        cure = "write a list with an object per step: [{...}, ...]"
        raise InputError(f"it holds {found} instead of a list of steps", path=path, cure=cure)
    for place, entry in enumerate(data, start=1):
        for problem, cure in _entry_problems(entry):
            raise InputError(f"entry {place}: {problem}", path=path, cure=cure)
    return data


def _entry_problems(entry: object) -> Iterator[tuple[str, str]]:
    """(problem, cure) of what is wrong with an entry taken alone."""
    if not isinstance(entry, dict):
        yield "it is not an object", 'write {"id": ..., "description": ..., "install": ..., "state_idx": ...}'
        return
    kinds = {**_TYPE_OF_KEY, **{key: bool for key in entry if key.startswith(_EXPECTED)}}
    for key, kind in kinds.items():
        if key not in entry:
            yield f"the key {key!r} is missing", f"add it, with {_TYPE_NAMES[kind]}"
        elif type(entry[key]) is not kind:
            yield f"{key!r} is {json.dumps(entry[key])[:60]}", f"write {_TYPE_NAMES[kind]}"


def _check_ids(entries: Sequence[Entry]) -> None:
    """The ids are 0, 1, 2, ... in this order, three per component."""
    place_of: dict[int, int] = {}
    for place, entry in enumerate(entries, start=1):
        step_id = entry["id"]
        if step_id in place_of:
            raise InputError(f"entry {place}: id {step_id} is that of entry {place_of[step_id]}", cure="remove one")
        place_of[step_id] = place
    for place, entry in enumerate(entries, start=1):
        if place - 1 not in place_of:
            problem = f"entry {place}: id {place - 1} is missing, here is id {entry['id']}"
            raise InputError(problem, cure="ids go up from 0 without a gap")
        if entry["id"] != place - 1:
            raise InputError(f"entry {place}: id {entry['id']} stands where {place - 1} belongs", cure="sort by id")
    if len(entries) % len(StepKind):
        raise InputError(
            f"entry {len(entries)} is the last one, in the middle of a component",
            cure="each component has three: Install, Incorrectly installed, Remove",
        )


def _component_names(entries: Sequence[Entry]) -> list[str]:
    """The components, after checking that the three steps of each agree."""
    _check_ids(entries)
    names: list[str] = []
    for k in range(len(entries) // len(StepKind)):
        name = ""
        for kind in StepKind:
            step_id = step_id_of(k, kind)
            entry, where = entries[step_id], f"entry {step_id + 1} (id {step_id})"
            if entry["state_idx"] != k:
                raise InputError(f"{where}: state_idx is {entry['state_idx']}", cure=f"steps of component {k} have {k}")
            if entry["install"] != (kind is not StepKind.REMOVE):
                wanted = json.dumps(kind is not StepKind.REMOVE)
                raise InputError(f"{where}: 'install' is {json.dumps(entry['install'])}", cure=f"write {wanted}")
            verb, _, part = entry["description"].partition(f"{kind.verb} ")
            if verb or not part.strip():
                cure = f"write '{kind.verb} NAME'"
                raise InputError(f"{where}: the description is {entry['description']!r}", cure=cure)
            if name and part != name:
                problem = (
                    f"{where}: the description names {part!r}, that of id {step_id_of(k, StepKind.INSTALL)} {name!r}"
                )
                raise InputError(problem, cure="the three steps of a component have one name")
            name = part
        if name in names:
            other = step_id_of(names.index(name), StepKind.INSTALL)
            problem = f"entry {step_id_of(k, StepKind.INSTALL) + 1}: {name!r} is the component of id {other} already"
            raise InputError(problem, cure="names of components must differ")
        names.append(name)
    return names


def _expected_steps(entries: Sequence[Entry]) -> dict[str, tuple[int, ...]]:
    """Variant -> expected step ids, from the keys `expected_in_<variant>`."""
    keys = list(dict.fromkeys(key for entry in entries for key in entry if key.startswith(_EXPECTED)))
    if not keys:
        raise InputError(f"no entry has a key '{_EXPECTED}<variant>'", cure=f"add for example '{_EXPECTED}assy'")
    for place, entry in enumerate(entries, start=1):
        for key in keys:
            if key not in entry:
                cure = "all entries have it, or none"
                raise InputError(f"entry {place}: the key {key!r} is missing", cure=cure)
    return {key.removeprefix(_EXPECTED): tuple(entry["id"] for entry in entries if entry[key]) for key in keys}


def _variants(
    names: Sequence[str], expected: Mapping[str, tuple[int, ...]], initial: Mapping[str, str | Sequence[int]]
) -> tuple[list[Variant], list[str]]:
    """The variants, and notes on derived initial states and on variants that were left out."""
    unknown = [word for word in initial if word not in expected]
    if unknown:
        cure = f"it has: {', '.join(expected)}"
        raise InputError(f"an initial state is given for {unknown[0]!r}, which is no variant here", cure=cure)
    variants, notes = [], []
    for word, step_ids in expected.items():
        if word in initial:
            variants.append(Variant(word, _given_bits(word, initial[word], len(names)), step_ids))
        elif step_ids:
            bits, note = _derived_bits(names, step_ids)
            variants.append(Variant(word, bits, step_ids))
            notes.append(f"variant {word!r}: {note}")
        else:
            notes.append(f"variant {word!r} expects no step and was left out")
    if not variants:
        raise InputError("no step is expected in any variant", cure="set 'expected_in_...' to true where one is")
    return variants, notes


def _given_bits(variant: str, given: str | Sequence[int], n_components: int) -> StateBits:
    bits = [str(bit) for bit in given]
    if len(bits) != n_components or set(bits) - {"0", "1"}:
        raise InputError(
            f"the initial state of {variant!r} is given as {''.join(bits)!r}",
            cure=f"give a digit for each of the {n_components} components, 1 present, 0 absent",
        )
    return tuple(int(bit) for bit in bits)


def _derived_bits(names: Sequence[str], step_ids: Sequence[int]) -> tuple[StateBits, str]:
    bits = tuple(int(step_id_of(k, StepKind.REMOVE) in step_ids) for k in range(len(names)))
    untouched = [name for k, name in enumerate(names) if not any(step_id_of(k, kind) in step_ids for kind in StepKind)]
    note = f"its initial state was derived from the expected steps as {bit_string(bits)}"
    if untouched:
        note += f"; taken to be absent because no step touches them: {', '.join(untouched)}"
    return bits, note
