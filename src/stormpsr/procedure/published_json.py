"""The field's `procedure_info.json`: a list with an object per step, as the published programs read it.

The JSON holds less than a procedure file: no states, no frames per second, no initial states, no order. Reading it
therefore takes those as arguments, and says in its notes what it had to assume.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stormpsr.errors import InputError
from stormpsr.files import read_json
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
        if not isinstance(entry, dict):
            cure = 'write {"id": ..., "description": ..., "install": ..., "state_idx": ...}'
            raise InputError(f"entry {place}: it is not an object", path=path, cure=cure)
        kinds = {**_TYPE_OF_KEY, **{key: bool for key in entry if key.startswith(_EXPECTED)}}
        for key, kind in kinds.items():
            if key not in entry:
                cure = f"add it, with {_TYPE_NAMES[kind]}"
                raise InputError(f"entry {place}: the key {key!r} is missing", path=path, cure=cure)
            if type(entry[key]) is not kind:
                problem = f"entry {place}: {key!r} is {json.dumps(entry[key])[:60]}"
                raise InputError(problem, path=path, cure=f"write {_TYPE_NAMES[kind]}")
    return data


def _component_names(entries: Sequence[Entry]) -> list[str]:
    """The components, after checking that every entry says what its place demands."""
    for place, entry in enumerate(entries):
        if entry["id"] != place:
            cure = f"write {place}: ids go up from 0 without a gap"
            raise InputError(f"entry {place + 1}: 'id' is {entry['id']}", cure=cure)
    if len(entries) % len(StepKind):
        raise InputError(
            f"entry {len(entries)} is the last one, in the middle of a component",
            cure="each component has three: Install, Incorrectly installed, Remove",
        )
    names: list[str] = []
    for k in range(len(entries) // len(StepKind)):
        first = step_id_of(k, StepKind.INSTALL)
        verb, _, name = entries[first]["description"].partition(f"{StepKind.INSTALL.verb} ")
        if verb or not name.strip():
            problem = f"entry {first + 1}: 'description' is {json.dumps(entries[first]['description'])}"
            raise InputError(problem, cure=f"write '{StepKind.INSTALL.verb} NAME'")
        names.append(name)
        for kind in StepKind:
            step_id = step_id_of(k, kind)
            right = {"description": f"{kind.verb} {name}", "install": kind is not StepKind.REMOVE, "state_idx": k}
            for key, value in right.items():
                if entries[step_id][key] != value:
                    problem = f"entry {step_id + 1}: {key!r} is {json.dumps(entries[step_id][key])}"
                    raise InputError(problem, cure=f"write {json.dumps(value)}, as in the other steps of {name!r}")
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
