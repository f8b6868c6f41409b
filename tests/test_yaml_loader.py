"""YAML becomes plain data that knows its lines; whatever is wrong is told with file, line and cure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from stormpsr.errors import InputError
from stormpsr.yaml_loader import STRICT_KEYS, Document, parse_yaml, read_yaml, validate


# ---------------------------------------------------------------------- reading
def test_a_document_knows_the_line_of_every_value() -> None:
    document = parse_yaml("a: 1\nb:\n  - x\n  - {c: 2}\n\nd:\n  long text\n")
    assert document.data == {"a": 1, "b": ["x", {"c": 2}], "d": "long text"}
    assert [document.line(place) for place in (("a",), ("b",), ("b", 1, "c"), ("d",))] == [1, 2, 4, 7]
    assert document.line(("b", 1, "missing")) == 4, "what stands closest above"
    assert document.line(()) is None


def test_numbers_are_numbers_and_dates_and_leading_zeros_can_stay_words() -> None:
    text = "[1, -2.5, 1e-3, yes, ~, 2001-01-01, '7', 00101]"
    assert parse_yaml(text).data == [1, -2.5, 0.001, True, None, "2001-01-01", "7", 0o101]
    assert parse_yaml(text, as_text=True).data == ["1", "-2.5", "1e-3", "yes", None, "2001-01-01", "7", "00101"]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: 1\nb: 2\na: 3", 3, "'a' is there twice"),
        ("x:\n  a: 1\n  a: 1", 3, "'a' is there twice"),
        ("a: 1\nb: !!int x", 2, "the tag '!!int' is not understood"),
        ("a: !foo b", 1, "the tag '!foo' is not understood"),
        ("a: !!timestamp 2001", 1, "the tag '!!timestamp' is not understood"),
        ("!!set {a, b}", 1, "the tag '!!set' is not understood"),
        ("a: 1\n? [b, c]\n: 2", 2, "a key must be a word"),
        ("a: 1\nb: \x07", 2, r"the character U\+0007 is not allowed"),
        ("[" * 5000, 1, "nested too deeply"),
        ("a: &b [*b]", 1, "nested too deeply"),
        ("a: " + "9" * 5000, 1, "is no number that can be read"),
        ("a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "\n".join(
            f"{k}: &{k} [{', '.join([f'*{j}'] * 10)}]" for j, k in zip("abcdef", "bcdefg", strict=True)
        ), None, "too large"),
        ("a:\n\t- b", 2, "a tab stands here"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_told_with_its_line_and_a_cure(text: str, line: int | None, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        parse_yaml(text, "my.yaml")
    assert caught.value.path == "my.yaml"
    assert line is None or caught.value.line == line
    assert caught.value.cure


def test_a_file_that_is_not_utf_8_is_refused_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"a: 1\nb: \xe4\n")
    with pytest.raises(InputError, match=r"a\.yaml:2: this is not text in UTF-8; save it as UTF-8"):
        read_yaml(tmp_path / "a.yaml")


@given(st.text(alphabet=st.sampled_from("ab:-[]{}'\"\n \t#&*!|>%@10.e,?é~"), max_size=60), st.booleans())
def test_no_text_makes_the_loader_fail_otherwise(text: str, as_text: bool) -> None:
    with suppress(InputError):
        parse_yaml(text, as_text=as_text)


# ---------------------------------------------------------------------- checking
@dataclass(frozen=True)
class Wheel:
    radius: float = 1.0
    spokes: int = 8

    __pydantic_config__ = STRICT_KEYS

    def __post_init__(self) -> None:
        if self.radius <= 0:
            raise InputError(f"radius is {self.radius}", cure="make it larger")


@dataclass(frozen=True)
class Car:
    name: str
    wheels: list[Wheel] = field(default_factory=list)

    __pydantic_config__ = STRICT_KEYS


def test_a_dataclass_is_made_of_a_document() -> None:
    made = validate(Car, parse_yaml("name: red\nwheels:\n  - radius: 2\n  - {spokes: 6}"), strict=True)
    assert made == Car("red", [Wheel(2.0), Wheel(spokes=6)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: red\nwheel: []", "my.yaml:2: there is no key 'wheel'; did you mean 'wheels'?"),
        ("name: red\nwheels:\n  - spokes: 6\n    radus: 1", "my.yaml:4: there is no key 'wheels #1.radus'; did you"),
        ("name: red\nwheels:\n  - xyz: 6", "my.yaml:3: there is no key 'wheels #1.xyz'; there are: radius, spokes"),
        ("wheels: []", "my.yaml: the key 'name' is missing; add a line that starts with 'name:'"),
        ("name: red\nwheels:\n  - spokes: many", "my.yaml:3: wheels #1.spokes is 'many': it should be a valid integer"),
        ("name: red\nwheels:\n  - spokes: true", "my.yaml:3: wheels #1.spokes is True"),
        ("name: red\nwheels:\n  - spokes: '8'", "my.yaml:3: wheels #1.spokes is '8'"),
        ("name: red\nwheels:\n  - 5", "my.yaml:3: wheels #1 must be a table; write 'key: value' lines"),
        ("name: red\nwheels: 5", "my.yaml:2: wheels must be a list; start each entry with '- '"),
        ("name: [red]", "my.yaml:1: name must be a word or a line of text"),
        ("- red", "my.yaml: this must be a table"),
        ("name: red\nwheels:\n  - radius: 2\n  - radius: -1", "my.yaml:4: radius is -1.0; make it larger"),
    ],
)
def test_what_does_not_fit_is_told_in_plain_words(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        validate(Car, parse_yaml(text, "my.yaml"), strict=True)
    assert str(caught.value).startswith(said)


class _Cat(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["cat"]
    lives: int = 9


class _Dog(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["dog"]
    tricks: tuple[str, str] = ("sit", "roll")


class _Home(BaseModel):
    pet: Annotated[_Cat | _Dog, Field(discriminator="kind")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pet:\n  kind: cow", "my.yaml:1: pet.kind is not known; choose: cat, dog"),
        ("pet:\n  kind: dog\n  lives: 9", "my.yaml:3: there is no key 'pet.lives'; there are: kind, tricks"),
        ("pet:\n  kind: dog\n  tricks: [sit]", "my.yaml:3: pet.tricks has only 1 entries"),
    ],
)
def test_a_choice_of_classes_does_not_show_in_what_is_told(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        validate(_Home, parse_yaml(text, "my.yaml"))
    assert str(caught.value).startswith(said)


def test_a_value_that_does_not_come_from_the_file_is_not_blamed_on_it() -> None:
    document = Document({"name": 5}, "my.yaml", {("name",): 0})
    with pytest.raises(InputError, match=r"^name must be a word"):
        validate(Car, document)


@pytest.mark.parametrize("number", [".nan", ".inf", "-.INF", "1e400", "1.0e+999"])
def test_numbers_that_nobody_can_compute_with_are_refused_with_their_line(number: str) -> None:
    with pytest.raises(InputError, match=r"^my\.yaml:2: .* is no number to compute with; write a finite one"):
        parse_yaml(f"name: a\nspeed: {number}", "my.yaml")
    assert parse_yaml(f"speed: '{number}'").data == {"speed": number}
