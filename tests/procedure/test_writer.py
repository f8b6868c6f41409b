"""Procedures written as YAML, and the template for a new one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpsr.errors import InputError
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
from stormpsr.procedure.reader import check_procedure_text, load_procedure
from stormpsr.procedure.writer import new_procedure_text, procedure_text, save_procedure


def read(text: str) -> Procedure:
    procedure, problems = check_procedure_text(text)
    assert not problems
    assert procedure is not None
    return procedure


# ---------------------------------------------------------------------- writing
words = st.text(
    alphabet=st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Co", "Cn", "Zl", "Zp")),
    min_size=1,
    max_size=12,
).filter(lambda text: text == text.strip() and text.strip() != "")
tricky_words = st.one_of(
    words, st.sampled_from(["a, b", "x: y", "- z", "[q]", "yes", "null", "0101", "1e3", "#c", "'", '"'])
)


@st.composite
def procedures(draw: st.DrawFn) -> Procedure:
    names = draw(st.lists(tricky_words, min_size=1, max_size=5, unique=True))
    n = len(names)
    colours = st.one_of(st.none(), st.from_regex(r"#[0-9a-f]{6}", fullmatch=True))
    components = tuple(Component(name, draw(colours)) for name in names)
    order = {}  # each component may need earlier ones only, so there is no cycle
    for k in range(1, n):
        choices = draw(st.lists(st.lists(st.sampled_from(names[:k]), min_size=1, max_size=2).map(tuple), max_size=2))
        if choices:
            order[names[k]] = tuple(choices)
    built = [tuple(int(k < done) for k in range(n)) for done in range(n + 1)]
    chosen = draw(st.lists(st.sampled_from(built), unique=True, max_size=n + 1))
    states = [AssemblyState(0, StateKind.BACKGROUND, draw(tricky_words))]
    for bits in chosen:
        states.append(
            AssemblyState(len(states), StateKind.ASSEMBLY, draw(st.just(bit_string(bits)) | tricky_words), bits)
        )
    states.append(AssemblyState(len(states), StateKind.ERROR, draw(tricky_words)))
    variants = {}
    for name in draw(st.lists(tricky_words, min_size=1, max_size=3, unique=True)):
        initial = draw(st.sampled_from(built))
        # what is absent may be installed, what is present may be removed
        possible = [step_id_of(k, StepKind.REMOVE if initial[k] else StepKind.INSTALL) for k in range(n)]
        expected = draw(st.lists(st.sampled_from(possible), unique=True))
        variants[name] = Variant(name, initial, tuple(sorted(expected)))
    fps = draw(st.floats(0.01, 1000) | st.sampled_from([10, 12.0, 29.97]))
    return Procedure(
        draw(tricky_words), components, tuple(states), variants, fps, order, draw(st.just("") | tricky_words)
    )


@given(procedures())
def test_what_is_written_reads_back_equal(procedure: Procedure) -> None:
    assert check_procedure_text(procedure_text(procedure)) == (procedure, [])


@pytest.mark.parametrize("name", ["industreal", "meccano"])
def test_a_shipped_procedure_survives_saving_and_loading(name: str, tmp_path: Path) -> None:
    procedure = load_procedure(name)
    procedure.save(tmp_path / "copy.yaml")
    assert load_procedure(tmp_path / "copy.yaml") == procedure


def test_a_file_is_written_with_plain_line_ends_whatever_the_system(tmp_path: Path, lamp: Procedure) -> None:
    save_procedure(lamp, tmp_path / "lamp.yaml")
    assert b"\r" not in (tmp_path / "lamp.yaml").read_bytes()


def test_frames_per_second_out_of_an_array_are_written_as_a_number(lamp: Procedure) -> None:
    fps = np.float64(29.97)
    procedure = Procedure(lamp.name, lamp.components, lamp.states, lamp.variants, fps)
    assert "fps: 29.97\n" in procedure_text(procedure)


# ---------------------------------------------------------------------- the template
@given(st.lists(tricky_words, min_size=1, max_size=5, unique_by=lambda name: " ".join(name.split())))
def test_the_template_is_a_valid_procedure_with_the_given_components(names: list[str]) -> None:
    procedure = read(new_procedure_text("thing", names, fps=25))
    assert [component.name for component in procedure.components] == [" ".join(name.split()) for name in names]
    assert procedure.fps == 25
    assert procedure.variant().expected == tuple(step_id_of(k, StepKind.INSTALL) for k in range(len(names)))
    assert len(procedure.states) == len(names) + 2


def test_the_templates_optional_order_can_be_switched_on_by_removing_the_hashes() -> None:
    text = new_procedure_text("lamp", ["foot", "pole", "shade"])
    switched_on = text.replace("# order:", "order:").replace("#   shade", "  shade")
    assert read(switched_on).order == {"shade": (("foot",),)}


@pytest.mark.parametrize(
    ("name", "components", "fps", "said"),
    [
        ("lamp", [], 10, "a procedure needs components; name at least one"),
        ("lamp", ["foot", " "], 10, "a component has an empty name; give each"),
        ("lamp", ["foot", "foot "], 10, "component 'foot' is there twice; give each component a name of its own"),
        (" ", ["foot"], 10, "the procedure has an empty name"),
        ("lamp", ["foot"], 0, "fps is 0; give the frames per second"),
        ("lamp", ["foot"], float("nan"), "fps is nan"),
    ],
)
def test_a_template_of_nothing_sensible_is_refused(name: str, components: list[str], fps: float, said: str) -> None:
    with pytest.raises(InputError, match=said):
        new_procedure_text(name, components, fps)
