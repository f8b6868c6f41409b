"""`procedure_info.json`, the form in which the published programs read a procedure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpsr.errors import InputError
from stormpsr.procedure.model import Component, Procedure, StepKind, Variant, step_id_of
from stormpsr.procedure.published_json import import_procedure_info, procedure_info, procedure_info_text

Entry = dict[str, Any]


@pytest.fixture
def entries() -> list[Entry]:
    """Two components; the foot is there from the start, the pole is installed."""
    lines = [
        (0, "Install foot", True, 0, False),
        (1, "Incorrectly installed foot", True, 0, False),
        (2, "Remove foot", False, 0, False),
        (3, "Install pole", True, 1, True),
        (4, "Incorrectly installed pole", True, 1, False),
        (5, "Remove pole", False, 1, False),
    ]
    keys = ("id", "description", "install", "state_idx", "expected_in_assy")
    return [{**dict(zip(keys, line, strict=True)), "expected_before_subgoal": False} for line in lines]


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., tuple[Procedure, list[str]]]:
    """Import a list of entries by way of a file."""

    def run(content: object, **more: Any) -> tuple[Procedure, list[str]]:
        path = tmp_path / "procedure_info.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return import_procedure_info(path, **{"name": "lamp", "fps": 10, **more})

    return run


Importer = Callable[..., tuple[Procedure, list[str]]]


# ---------------------------------------------------------------------- what is written
def test_an_exported_step_has_the_keys_of_the_published_file(industreal: Procedure) -> None:
    info = procedure_info(industreal)
    assert len(info) == 33
    assert info[3] == {
        "id": 3,
        "description": "Install front chassis",
        "install": True,
        "state_idx": 1,
        "expected_in_assy": True,
        "expected_in_main": False,
    }
    assert info[4]["description"] == "Incorrectly installed front chassis"
    assert info[4]["install"] is True
    assert info[11]["description"] == "Remove rear chassis"
    assert info[11]["install"] is False
    assert info[11]["expected_in_main"] is True


@pytest.mark.parametrize("name", ["industreal", "meccano"])
def test_a_shipped_procedure_survives_export_and_import(name: str, tmp_path: Path) -> None:
    procedure = Procedure.load(name)
    path = tmp_path / "procedure_info.json"
    path.write_text(procedure_info_text(procedure), encoding="utf-8")
    initial = {variant.name: variant.initial for variant in procedure.variants.values()}
    back, notes = import_procedure_info(path, name=name, fps=procedure.fps, initial=initial, states=procedure.states)
    assert [component.name for component in back.components] == [component.name for component in procedure.components]
    assert back.variants == procedure.variants
    assert back.states == procedure.states
    assert notes == []


names = st.text(min_size=1, max_size=10).filter(lambda text: text.strip() == text and text.isprintable())


@st.composite
def procedures(draw: st.DrawFn) -> Procedure:
    words = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    variants = {}
    for word in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
        initial = draw(st.tuples(*[st.sampled_from([0, 1])] * len(words)))
        # what is absent may be installed, what is present may be removed, and either may be put back
        first = [step_id_of(k, StepKind.REMOVE if bit else StepKind.INSTALL) for k, bit in enumerate(initial)]
        expected = draw(st.lists(st.sampled_from(first), min_size=1, unique=True))
        variants[word] = Variant(word, initial, tuple(sorted(expected)))
    return Procedure("thing", tuple(Component(word) for word in words), (), variants, 10.0)


@given(procedures())
def test_components_and_variants_survive_export_and_import(
    tmp_path_factory: pytest.TempPathFactory, procedure: Procedure
) -> None:
    path = tmp_path_factory.mktemp("info") / "procedure_info.json"
    path.write_text(procedure_info_text(procedure), encoding="utf-8")
    initial = {name: variant.initial for name, variant in procedure.variants.items()}
    assert import_procedure_info(path, name="thing", fps=10.0, initial=initial) == (procedure, [])
    derived, _ = import_procedure_info(path, name="thing", fps=10.0)
    for name, variant in procedure.variants.items():
        touched = {procedure.steps[step_id].component_index for step_id in variant.expected}
        assert derived.variants[name].expected == variant.expected
        assert all(derived.variants[name].initial[k] == variant.initial[k] for k in touched)


# ---------------------------------------------------------------------- what is assumed
def test_a_component_that_nothing_touches_is_taken_to_be_absent_and_that_is_said(
    entries: list[Entry], imported: Importer
) -> None:
    lamp, notes = imported(entries)
    assert lamp.variant("assy") == Variant("assy", (0, 0), (3,))
    assert notes == [
        "variant 'assy': its initial state was derived from the expected steps as 00; "
        "taken to be absent because no step touches them: foot"
    ]


def test_a_component_whose_removal_is_expected_starts_present(entries: list[Entry], imported: Importer) -> None:
    entries[5]["expected_in_assy"] = True  # the pole is taken off and put back
    lamp, _ = imported(entries)
    assert lamp.variant("assy").initial == (0, 1)


@pytest.mark.parametrize("given_state", ["10", (1, 0), [1, 0]])
def test_an_initial_state_that_is_given_is_taken(
    entries: list[Entry], imported: Importer, given_state: str | tuple[int, ...]
) -> None:
    lamp, notes = imported(entries, initial={"assy": given_state})
    assert lamp.variant("assy").initial == (1, 0)
    assert notes == []


def test_a_variant_that_expects_nothing_is_left_out_unless_its_start_is_given(
    entries: list[Entry], imported: Importer
) -> None:
    for entry in entries:
        entry["expected_in_main"] = False
    lamp, notes = imported(entries)
    assert list(lamp.variants) == ["assy"]
    assert notes[-1] == "variant 'main' expects no step and was left out"
    lamp, _ = imported(entries, initial={"main": "11"})
    assert lamp.variant("main") == Variant("main", (1, 1), ())


def test_a_byte_order_mark_is_accepted(entries: list[Entry], imported: Importer) -> None:
    lamp, _ = imported("\ufeff" + json.dumps(entries))
    assert lamp.n_components == 2


# ---------------------------------------------------------------------- what is refused
def change(place: int, **changes: Any) -> Callable[[list[Entry]], object]:
    return lambda entries: [{**entry, **(changes if i == place else {})} for i, entry in enumerate(entries)]


def drop(place: int, key: str) -> Callable[[list[Entry]], object]:
    return lambda entries: [
        {name: value for name, value in entry.items() if i != place or name != key} for i, entry in enumerate(entries)
    ]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda entries: {"steps": entries}, "it holds one object instead of a list of steps; write a list with"),
        (lambda entries: [], "it holds an empty list instead of a list"),
        (lambda entries: 3, "it holds a single value instead of a list"),
        (lambda entries: [*entries, 7], "entry 7: it is not an object"),
        (drop(1, "id"), "entry 2: the key 'id' is missing; add it, with a whole number"),
        (drop(1, "expected_in_assy"), "entry 2: the key 'expected_in_assy' is missing; all entries have it, or none"),
        (change(1, id="1"), "entry 2: 'id' is \"1\"; write a whole number"),
        (change(1, id=True), "entry 2: 'id' is true; write a whole number"),
        (change(1, install=1), "entry 2: 'install' is 1; write true or false"),
        (change(1, expected_in_assy="yes"), "entry 2: 'expected_in_assy' is \"yes\"; write true or false"),
        (change(1, description=None), "entry 2: 'description' is null; write text"),
        (change(4, id=3), "entry 5: 'id' is 3; write 4: ids go up from 0 without a gap"),
        (lambda entries: entries[:2] + entries[3:], "entry 3: 'id' is 3; write 2: ids go up from 0"),
        (lambda entries: entries[::-1], "entry 1: 'id' is 5; write 0: ids go up from 0"),
        (change(0, id=-1), "entry 1: 'id' is -1; write 0"),
        (
            lambda entries: entries[:5],
            "entry 5 is the last one, in the middle of a component; each component has three",
        ),
        (change(4, state_idx=0), "entry 5: 'state_idx' is 0; write 1, as in the other steps of 'pole'"),
        (change(5, install=True), "entry 6: 'install' is true; write false"),
        (change(3, description="Mount pole"), "entry 4: 'description' is \"Mount pole\"; write 'Install NAME'"),
        (change(3, description="Install "), "entry 4: 'description' is \"Install \"; write 'Install NAME'"),
        (change(5, description="Remove poll"), 'entry 6: \'description\' is "Remove poll"; write "Remove pole", as in'),
        (
            lambda entries: [{**e, "description": e["description"].replace("pole", "foot")} for e in entries],
            "procedure 'lamp': component 'foot' is there twice; give each component a name of its own",
        ),
        (
            lambda entries: [{key: e[key] for key in e if key != "expected_in_assy"} for e in entries],
            "no entry has a key 'expected_in_<variant>'; add for example 'expected_in_assy'",
        ),
        (change(3, expected_in_assy=False), "no step is expected in any variant"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_entry_and_cure(
    entries: list[Entry], imported: Importer, tmp_path: Path, spoil: Callable[[list[Entry]], object], said: str
) -> None:
    with pytest.raises(InputError) as raised:
        imported(spoil(entries))
    assert str(raised.value).startswith(f"{tmp_path / 'procedure_info.json'}: {said}")
    assert raised.value.cure


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('[\n  {"id": 0 "x"}\n]', 2, "this is not JSON: .*column 12"),
        ("", 1, "this is not JSON: expecting value .column 1"),
        ("name: lamp\n", 1, "this is not JSON"),
        ("[" * 100_000, 1, "this is not JSON: brackets are nested too deeply"),
    ],
)
def test_broken_json_is_refused_with_line_and_column(
    imported: Importer, text: str, line: int | None, said: str
) -> None:
    with pytest.raises(InputError, match=said) as raised:
        imported(text)
    assert raised.value.line == line


def test_paths_that_are_no_text_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this is a folder"):
        import_procedure_info(tmp_path, name="lamp", fps=10)
    with pytest.raises(InputError, match="there is no such file"):
        import_procedure_info(tmp_path / "none.json", name="lamp", fps=10)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="this is not text in UTF-8"):
        import_procedure_info(tmp_path / "binary.json", name="lamp", fps=10)


def test_a_wrong_initial_state_or_frame_rate_is_refused(entries: list[Entry], imported: Importer) -> None:
    with pytest.raises(InputError, match="given for 'main', which is no variant here; it has: assy"):
        imported(entries, initial={"main": "10"})
    with pytest.raises(InputError, match="initial state of 'assy' is given as '1'; give a digit for each of the 2"):
        imported(entries, initial={"assy": "1"})
    with pytest.raises(InputError, match="is given as '1x'"):
        imported(entries, initial={"assy": "1x"})
    with pytest.raises(InputError, match="expects 'Install pole', but its initial state has that component in place"):
        imported(entries, initial={"assy": "11"})
    with pytest.raises(InputError, match="fps is 0"):
        imported(entries, fps=0)
