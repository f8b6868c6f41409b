"""Procedure files: what is read, what is written, and what is said about every mistake, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpsr.errors import InputError
from stormpsr.procedure.model import (
    Procedure,
    StateKind,
    Variant,
)
from stormpsr.procedure.reader import Problem, check_procedure_text, load_procedure, read_source, shipped_procedures

CAR = """\
name: car
fps: 10
components:
  - base
  - wheel
states:
  - background
  - '10'
  - '11'
variants:
  assy:
    initial: '10'
    expected:
      - install wheel
"""


def problems_of(text: str) -> list[str]:
    """`line: problem; cure` of all there is to complain about."""
    return [f"{problem.line}: {problem}" for problem in check_procedure_text(text)[1]]


# ---------------------------------------------------------------------- what is read
def read(text: str) -> Procedure:
    procedure, problems = check_procedure_text(text)
    assert not problems
    assert procedure is not None
    return procedure


def test_a_small_file_is_read() -> None:
    car = read(CAR)
    assert [component.name for component in car.components] == ["base", "wheel"]
    assert [state.kind for state in car.states] == [StateKind.BACKGROUND, StateKind.ASSEMBLY, StateKind.ASSEMBLY]
    assert car.states[2].bits == (1, 1)
    assert car.variant("assy") == Variant("assy", (1, 0), (3,))
    assert car.fps == 10


@pytest.mark.parametrize(
    "text",
    [
        CAR.replace("\n", "\r\n"),
        CAR.replace("'10'", "10").replace("'11'", "11"),
        CAR.replace("install wheel", "Install wheel"),
        CAR.replace("install wheel", "3"),
        CAR.replace("- wheel", "- {name: wheel}"),
        "# a comment\n\n" + CAR,
    ],
    ids=["windows line ends", "digits without quotes", "capital letter", "step id", "table", "comments"],
)
def test_the_same_may_be_written_differently(text: str) -> None:
    assert read(text) == read(CAR)


def test_a_state_with_leading_zeros_stays_a_text() -> None:
    assert read(CAR.replace("'11'", "01")).states[2].bits == (0, 1)


def test_components_have_colours_and_states_have_names() -> None:
    text = CAR.replace("- wheel", "- {name: wheel, colour: '#aa00ff'}").replace("- '11'", "- {state: '11', name: done}")
    car = read(text.replace("- background", "- {background: nothing there}") + "title: My car\n")
    assert car.components[1].colour == "#aa00ff"
    assert [state.name for state in car.states] == ["nothing there", "10", "done"]
    assert car.title == "My car"


def test_an_order_has_single_names_lists_and_alternatives() -> None:
    text = CAR.replace("  - wheel\n", "  - wheel\n  - axle\n").replace("'10'", "'100'").replace("'11'", "'101'")
    car = read(text + "order:\n  wheel: axle\n  axle: [base]\n  base: []\n")
    assert car.order == {"wheel": (("axle",),), "axle": (("base",),), "base": ()}
    assert read(text + "order:\n  wheel: [[base, axle]]\n").order == {"wheel": (("base", "axle"),)}


@pytest.mark.parametrize("name", ["industreal", "meccano"])
def test_what_is_shipped_loads(name: str) -> None:
    assert name in shipped_procedures()
    assert load_procedure(name).name == name


# ---------------------------------------------------------------------- mistakes in the YAML
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CAR.replace("  - wheel", "\t- wheel"), "5: a tab stands here; indent with spaces, YAML forbids tabs"),
        (CAR.replace("  - wheel", "  wheel"), "5: this line has no ':' and no '- '"),
        (CAR.replace("  - wheel", "  -wheel"), "5: this line has no ':' and no '- '"),
        (CAR.replace("  - wheel", "   - wheel"), "4: a text runs over several lines: 'base - wheel'"),
        (
            CAR.replace("    expected", "   expected"),
            "13: the indentation or a quote is wrong here or above; compare w",
        ),
        (CAR.replace("'11'", "'11"), "12: the indentation or a quote is wrong here or above; compare with line 7"),
        (CAR + "title: 'oops\n", "15: the quote that opens here is never closed; close it"),
        (CAR.replace("name: car", "name: car: red"), "1: a ':' too many, or a wrong indentation; put text that"),
        (CAR.replace("name: car", "name: @car"), "1: this is not YAML: found character '@'"),
        (CAR.replace("name: car", "name: *car"), "1: this is not YAML: found undefined alias 'car'"),
        (CAR + "---\n" + CAR, "15: a second document starts here; keep one per file"),
        (CAR + "title: \x07\n", "15: this is not YAML: the character U+0007 is not allowed; remove it"),
        ("[" * 5000, "1: this is not YAML: brackets are nested too deeply"),
        ("name: [car\n", "2: the indentation or a quote is wrong"),
        ("%TAG ! x\n", "2: this is not YAML: "),
    ],
)
def test_broken_yaml_is_explained_in_plain_words(text: str, said: str) -> None:
    (only,) = problems_of(text)
    assert only.startswith(said)
    assert ";" in only, "there is no cure"


@pytest.mark.parametrize("text", ["", "# only a comment\n", "- a\n- b\n", "hello\n"])
def test_a_file_without_a_table_holds_no_procedure(text: str) -> None:
    assert problems_of(text) == [
        "1: the file holds no procedure; run 'stormpsr procedure new' for a template to start from"
    ]


# ---------------------------------------------------------------------- mistakes in what it says
THREE_DIGITS = (
    "state 111 has 3 digits, but the number of components is 2; write one digit per component, in their order"
)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        # keys
        ("fps: 10\n", "", ["1: the key 'fps' is missing; add a line that starts with 'fps:'"]),
        ("fps:", "fbs:", ["1: the key 'fps' is missing", "2: there is no key 'fbs'; did you mean 'fps'?"]),
        ("fps: 10", "colour: red\nfps: 10", ["2: there is no key 'colour'; there are: components, fps, name"]),
        ("fps: 10", "fps: 10\nfps: 12", ["3: 'fps' is there twice; remove one of them"]),
        ("name: car", "name:", ["1: name must be a word or a line of text"]),
        ("fps: 10", "fps: ten", ["2: fps is 'ten'; write the frames per second of the videos, for example 10"]),
        ("fps: 10", "fps: -1", ["2: fps is '-1'"]),
        ("fps: 10", "fps: nan", ["2: fps is 'nan'"]),
        ("fps: 10", "fps: inf", ["2: fps is 'inf'"]),
        # components: what follows from a bad one is not complained about
        ("- wheel", "- base", ["5: component 'base' is there twice; give each component a name of its own"]),
        ("  - wheel", "  -", ["5: components #2 must be a word or a line of text"]),
        ("- wheel", "- {name: wheel, colour: red}", ["5: colour of component 'wheel' is 'red'; write it like"]),
        (
            "- wheel",
            "- {name: wheel, color: '#aabbcc'}",
            ["5: there is no key 'components #2.color'; did you mean 'colour'?"],
        ),
        (
            "- wheel",
            "- {colour: '#aabbcc'}",
            ["5: the key 'components #2.name' is missing; add a line that starts with 'name:'"],
        ),
        ("- wheel", "- wheel: big", ["5: a ':' makes a table of this name; put a name that contains ':' in quotes"]),
        ("- wheel", "- |\n    a\n    b", ["5: a text runs over several lines: 'a\\nb'"]),
        ("  - base\n  - wheel\n", "", ["3: there are no components; list their names"]),
        ("  - base\n  - wheel\n", "  base\n", ["4: components must be a list; start each entry with '- '"]),
        # states
        ("'11'", "'111'", [f"9: {THREE_DIGITS}"]),
        ("'11'", "'1'", ["9: state 1 has 1 digit, but"]),
        ("'11'", "'1x'", ["9: '1x' is not a state; write one digit per component, 1 present, 0 absent"]),
        ("'11'", "'10'", ["9: state 10 is class 1 already; remove one of them"]),
        ("'11'", "[1, 1]", ["9: states #3 must be a word or a line of text"]),
        ("'11'", "{name: done}", ["9: a state without digits; add 'state: ...'"]),
        ("'11'", "{state: '11', nam: done}", ["9: there is no key 'states #3.nam'; did you mean 'name'?"]),
        ("- background", "- {background: b, state: '01'}", ["7: a class is a state, background, or error, not two"]),
        ("- background", "- {background: b, name: c}", ["7: the background class is named twice; write only"]),
        ("- background", "- background:", ["7: states #1.background must be a word"]),
        # variants
        ("    initial: '10'\n", "", ["11: the key 'variants.assy.initial' is missing; add a line"]),
        ("initial: '10'", "initial: '111'", [f"12: {THREE_DIGITS}"]),
        ("    expected:\n      - install wheel\n", "", ["11: the key 'variants.assy.expected' is missing; add a line"]),
        (
            "    initial: '10'\n    expected:\n      - install wheel\n",
            "    fast\n",
            ["12: variants.assy must be a table"],
        ),
        (
            "    expected",
            "    tempo: 3\n    expected",
            ["13: there is no key 'variants.assy.tempo'; there are: expected, initial"],
        ),
        (
            "\n      - install wheel",
            " install wheel",
            ["13: variants.assy.expected must be a list; start each entry with '- '"],
        ),
        ("install wheel", "install weel", ["14: 'weel' is not a component; did you mean 'wheel'?"]),
        ("install wheel", "install engine", ["14: 'engine' is not a component; there are: base, wheel"]),
        ("install wheel", "mount wheel", ["14: 'mount wheel' is not a step; write 'install NAME', "]),
        ("install wheel", "wheel", ["14: 'wheel' is not a step; write 'install wheel', 'incorrectly install wheel'"]),
        ("install wheel", "99", ["14: step id 99 does not exist; ids go from 0 to 5"]),
        ("install wheel", "9" * 5000, ["14: step id 99999999999999999999 does not exist"]),
        ("install wheel", "²", ["14: '²' is not a step"]),
        ("install wheel", "install base", ["11: variant 'assy': expects 'Install base', but its initial state has"]),
        ("install wheel", "remove wheel", ["11: variant 'assy': expects 'Remove wheel', but its initial state has"]),
    ],
)
def test_a_mistake_is_named_with_its_line_and_cure(old: str, new: str, said: list[str]) -> None:
    assert old in CAR
    found = problems_of(CAR.replace(old, new, 1))
    assert len(found) == len(said), found
    for line, expected in zip(found, said, strict=True):
        assert line.startswith(expected)
        assert ";" in line, "there is no cure"


def test_a_variants_section_without_variants_is_named() -> None:
    text = CAR[: CAR.index("  assy")]
    assert problems_of(text) == ["10: there is no variant; add one, with its initial state and expected steps"]


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("  wheel: weel\n", ["16: 'weel' is not a component; did you mean 'wheel'?"]),
        ("  weel: base\n", ["16: 'weel' is not a component; did you mean 'wheel'?"]),
        ("  wheel: wheel\n", ["16: the order has a cycle: 'wheel' waits for 'wheel'; remove one of the lines"]),
        ("  - wheel\n", ["15: order must be a table; write 'key: value' lines, indented by two spaces"]),
        ("  wheel: {base: 1}\n", ["16: order.wheel must be a list"]),
        ("  wheel: [[[base]]]\n", ["16: order.wheel #1 #1 must be a word"]),
        (
            "  wheel: base\n  base: wheel\n",
            [
                "16: the order has a cycle: 'wheel' waits for 'base'",
                "17: the order has a cycle: 'base' waits for 'wheel'",
            ],
        ),
    ],
)
def test_a_mistake_in_the_order_is_named_with_its_line(order: str, said: list[str]) -> None:
    found = problems_of(f"{CAR}order:\n{order}")
    assert len(found) == len(said), found
    assert all(line.startswith(expected) for line, expected in zip(found, said, strict=True))


def test_a_state_that_the_order_forbids_names_what_is_missing() -> None:
    text = CAR.replace("'11'", "'01'") + "order:\n  wheel: base\n"
    (only,) = problems_of(text)
    assert only.startswith("9: state 01: it cannot be reached")
    assert only.endswith("; 'wheel' needs 'base'")


def test_an_initial_state_that_the_order_forbids_is_named() -> None:
    text = CAR + "order:\n  base: wheel\n"
    found = problems_of(text)
    assert [line.split(":")[0] for line in found] == ["8", "11"]
    assert all(line.endswith("; 'base' needs 'wheel'") for line in found)


def test_components_that_wait_for_each_other_in_one_state_are_named() -> None:
    text = CAR.replace("  - wheel\n", "  - wheel\n  - axle\n").replace("'10'", "'001'").replace("'11'", "'110'")
    (only,) = problems_of(text + "order:\n  base: [[wheel, axle]]\n  wheel: [[base, axle]]\n")
    assert only.startswith("10: state 110: it cannot be reached")
    assert only.endswith("; its components wait for each other")


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_lines() -> None:
    text = CAR.replace("fps: 10", "fps: x").replace("'11'", "'111'").replace("install wheel", "instal wheel")
    assert [line.split(":")[0] for line in problems_of(text)] == ["2", "9", "14"]


@given(st.text(alphabet=st.sampled_from("car:-[]{}'\"\n \t#&*!|>%@10,?éx"), max_size=60))
def test_no_text_makes_the_checker_fail(text: str) -> None:
    procedure, problems = check_procedure_text(text)
    assert (procedure is None) == bool(problems)


@given(st.integers(0, len(CAR) - 1), st.sampled_from(["", "\t", " ", ":", "-", "'", "\n", "[", "0", "x", "#"]))
def test_no_typing_mistake_makes_the_checker_fail(place: int, typed: str) -> None:
    procedure, problems = check_procedure_text(CAR[:place] + typed + CAR[place + 1 :])
    assert (procedure is None) == bool(problems)
    assert all(1 <= problem.line <= CAR.count("\n") + 2 for problem in problems)


# ---------------------------------------------------------------------- files
def test_a_file_is_read_with_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "car.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + CAR.replace("\n", "\r\n").encode())
    assert load_procedure(path) == read(CAR)


def test_the_first_mistake_of_a_file_is_raised_and_the_others_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "car.yaml"
    path.write_text(CAR.replace("fps: 10", "fps: x").replace("'11'", "'111'"), encoding="utf-8")
    with pytest.raises(InputError) as raised:
        Procedure.load(path)
    assert raised.value.line == 2
    assert str(raised.value).startswith(f"{path}:2: fps is 'x'; ")
    assert str(raised.value).endswith("(1 more problem: run 'stormpsr procedure check')")


def test_a_problem_without_a_cure_still_tells_of_the_others() -> None:
    with pytest.raises(InputError, match=r"car.yaml:3: odd; 2 more problems: run 'stormpsr procedure check'"):
        Problem(3, "odd").raise_error("car.yaml", more=2)


def test_a_procedure_that_does_not_exist_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"no procedure 'meccanno'; did you mean 'meccano'\?"):
        load_procedure("meccanno")
    with pytest.raises(
        InputError, match="no procedure 'xyz'; give the path of a YAML file or one of: impact, industreal, mec"
    ):
        load_procedure("xyz")


def test_a_path_that_is_no_readable_text_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this is a folder"):
        read_source(tmp_path)
    with pytest.raises(InputError, match="there is no such file; give the path"):
        read_source(str(tmp_path / "none.yaml"))
    (tmp_path / "utf16.yaml").write_text(CAR, encoding="utf-16")
    with pytest.raises(InputError, match="not text in UTF-8; save it as UTF-8"):
        read_source(tmp_path / "utf16.yaml")


def test_a_file_named_like_a_shipped_procedure_is_read_if_it_is_given_as_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("meccano").write_text(CAR, encoding="utf-8")
    assert load_procedure(Path("meccano")).name == "car"
    assert load_procedure("meccano").name == "meccano"
