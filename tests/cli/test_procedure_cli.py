"""`stormpsr procedure` as a newcomer uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from stormpsr.cli.main import main
from stormpsr.procedure.model import Procedure


class Outcome(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `stormpsr procedure ...` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Outcome:
        code = main(["procedure", *arguments])
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return call


def refused(outcome: Outcome, *words: str) -> bool:
    """One line on the error stream, exit code 2, nothing on the output."""
    one_line = outcome.err.count("\n") == 1 and outcome.err.startswith("error: ")
    return outcome.code == 2 and not outcome.out and one_line and all(word in outcome.err for word in words)


# ---------------------------------------------------------------------- new
def test_new_writes_a_template_that_check_finds_fine(run: Run) -> None:
    made = run("new", "lamp", "--component", "foot", "--component", "pole", "--fps", "25")
    assert made.code == 0
    assert "wrote lamp.yaml" in made.out
    checked = run("check", "lamp.yaml")
    assert checked.code == 0
    assert checked.out == "lamp.yaml: fine (2 components, 2 assembly states, assy with 2 steps, 25 fps)\n"


def test_new_reads_component_names_from_a_file(run: Run) -> None:
    Path("names.txt").write_bytes(b"\xef\xbb\xbffoot\r\n\r\nlamp shade\r\n")
    assert run("new", "lamp", "--components-from", "names.txt").code == 0
    assert [component.name for component in Procedure.load("lamp.yaml").components] == ["foot", "lamp shade"]


def test_new_does_not_overwrite_without_force(run: Run) -> None:
    Path("lamp.yaml").write_text("mine", encoding="utf-8")
    assert refused(run("new", "lamp", "-c", "foot"), "lamp.yaml", "there already", "--force")
    assert Path("lamp.yaml").read_text(encoding="utf-8") == "mine"
    assert run("new", "lamp", "-c", "foot", "--force").code == 0
    assert Procedure.load("lamp.yaml").name == "lamp"


def test_new_prints_to_the_terminal_with_a_dash(run: Run) -> None:
    made = run("new", "lamp", "-c", "foot", "--out", "-")
    assert made.out.startswith("# A procedure for stormpsr.")
    assert not list(Path().iterdir())


def test_new_refuses_what_makes_no_sense(run: Run) -> None:
    assert refused(run("new", "lamp"), "needs components", "--component")
    assert refused(run("new", "lamp", "-c", "foot", "-c", "foot"), "'foot' is there twice")
    assert refused(run("new", "lamp", "-c", ""), "empty name")
    assert refused(run("new", "lamp", "-c", "foot", "--fps", "0"), "fps is 0")
    assert refused(run("new", "a/lamp", "-c", "foot"), "looks like a path", "--out")
    assert refused(run("new", "lamp", "--components-from", "none.txt"), "none.txt")
    Path("empty.txt").write_text("\n", encoding="utf-8")
    assert refused(run("new", "lamp", "--components-from", "empty.txt"), "empty.txt: the file is empty")
    Path("binary.txt").write_bytes(b"\xff\xfe\x00")
    assert refused(run("new", "lamp", "--components-from", "binary.txt"), "binary.txt:1: this is not text in UTF-8")
    Path("folder").mkdir()
    assert refused(run("new", "lamp", "-c", "foot", "--out", "folder"), "this is a folder")
    assert not Path("lamp.yaml").exists()


# ---------------------------------------------------------------------- check
def test_check_names_each_problem_with_file_line_and_cure(run: Run) -> None:
    run("new", "lamp", "-c", "foot", "-c", "pole")
    run("new", "good", "-c", "foot")
    text = (
        Path("lamp.yaml")
        .read_text(encoding="utf-8")
        .replace("fps: 10", "fps: x")
        .replace("install pole", "install pol")
    )
    Path("lamp.yaml").write_text(text, encoding="utf-8")
    lines = text.splitlines()
    checked = run("check", "lamp.yaml", "good.yaml")
    assert checked.code == 1
    first, second, third = checked.out.splitlines()
    assert first.startswith(f"lamp.yaml:{lines.index('fps: x') + 1}: fps is 'x'; ")
    place = lines.index("      - install pol") + 1
    assert second == f"lamp.yaml:{place}: 'pol' is not a component; did you mean 'pole'?"
    assert third.startswith("good.yaml: fine (1 component, ")


def test_check_passes_over_what_only_a_product_has(run: Run) -> None:
    run("new", "lamp", "-c", "foot", "-c", "pole")
    text = Path("lamp.yaml").read_text(encoding="utf-8")
    Path("product.yaml").write_text(f"{text}unit: mm\nmaterials: {{}}\nparts: {{}}\n", encoding="utf-8")
    assert run("check", "product.yaml").code == 0
    Path("stray.yaml").write_text(f"{text}unit: mm\n", encoding="utf-8")
    assert "there is no key 'unit'" in run("check", "stray.yaml").out


def test_check_answers_machines(run: Run) -> None:
    Path("empty.yaml").write_text("", encoding="utf-8")
    checked = run("check", "empty.yaml", "meccano", "--json")
    assert checked.code == 1
    bad, good = json.loads(checked.out)["files"]
    assert bad["path"] == "empty.yaml"
    assert bad["problems"][0]["line"] == 1
    assert good == {"path": "meccano", "ok": True, "problems": []}


def test_check_refuses_what_is_no_file(run: Run) -> None:
    assert refused(run("check", "none.yaml"), "none.yaml: there is no such file")
    assert refused(run("check", "."), "this is a folder")
    assert refused(run("check"), "FILE", "--help")


# ---------------------------------------------------------------------- show and list
def test_show_prints_components_states_variants_and_the_drawing(run: Run) -> None:
    shown = run("show", "industreal")
    assert shown.code == 0
    for words in ("front bracket screw", "#6b6f76", "11110111111", "error_state", "3 6 9 15 18 21 24 27 30"):
        assert words in shown.out
    assert "   4 10010110000 ->  8  (+front chassis, +front chassis pin)\n" in shown.out
    assert "main: starts at 11110111111 (class 13)\n" in shown.out


def test_show_draws_one_variant(run: Run) -> None:
    shown = run("show", "industreal", "--variant", "main")
    assert "main: starts at" in shown.out
    assert "assy: starts at" not in shown.out
    assert refused(run("show", "industreal", "--variant", "nix"), "no variant 'nix'", "assy, main")


def test_show_names_what_a_component_needs(run: Run) -> None:
    run("new", "lamp", "-c", "foot", "-c", "pole")
    with Path("lamp.yaml").open("a", encoding="utf-8") as file:
        file.write("order: {pole: [foot]}\n")
    assert "needs" in run("show", "lamp.yaml").out
    assert "needs" not in run("show", "meccano").out


def test_show_writes_drawings(run: Run) -> None:
    assert run("show", "meccano", "--format", "mermaid").out.startswith("graph TD\n")
    assert run("show", "meccano", "--format", "mermaid", "--out", "drawings/meccano.mmd").code == 0
    assert Path("drawings/meccano.mmd").read_text(encoding="utf-8").startswith("graph TD\n")
    assert refused(run("show", "meccano", "--format", "mermaid", "--out", "drawings/meccano.mmd"), "there already")
    assert run("show", "meccano", "--out", "meccano.txt").code == 0
    written = Path("meccano.txt").read_text(encoding="utf-8")
    assert "swingarm" in written
    assert "\x1b" not in written


def test_show_answers_machines(run: Run) -> None:
    data = json.loads(run("show", "meccano", "--json").out)
    assert data["components"][16]["steps"] == {"install": 48, "incorrectly_install": 49, "remove": 50}
    assert data["states"][0] == {"class": 0, "kind": "background", "name": "background", "bits": None}
    assert data["follows"]["assy"][0] == {
        "from": None,
        "to": 1,
        "added": ["left damping fork", "left frame", "headlamp"],
        "removed": [],
    }
    conflict = run("show", "meccano", "--json", "--format", "mermaid")
    assert conflict.code == 2
    assert "exclude each other" in json.loads(conflict.err)["error"]


def test_list_names_what_is_shipped(run: Run) -> None:
    assert "industreal" in run("list").out
    listed = json.loads(run("list", "--json").out)["procedures"]
    assert [entry["name"] for entry in listed] == ["impact", "industreal", "meccano"]


# ---------------------------------------------------------------------- import and export
def test_export_and_import_give_back_the_procedure(run: Run, industreal: Procedure) -> None:
    exported = run("export", "industreal", "--json")
    assert json.loads(exported.out) == {"path": "procedure_info.json", "steps": 33}
    states = ("--initial", "assy=10000000000", "--initial", "main=11110111111")
    back = run("import", "procedure_info.json", "--name", "car", "--fps", "10", *states)
    assert back.code == 0
    assert (
        back.err == "note: the states of the detector are not in the JSON: add them to 'states:' to decode detections\n"
    )
    assert Procedure.load("car.yaml").variants == industreal.variants


def test_import_says_what_it_assumed(run: Run) -> None:
    run("export", "industreal")
    back = run("import", "procedure_info.json", "--name", "car", "--fps", "10", "--out", "-")
    assert back.out.startswith("name: car\n")
    assert "no step touches them: base, short rear chassis" in back.err
    as_data = run("import", "procedure_info.json", "--name", "car", "--fps", "10", "--json")
    assert len(json.loads(as_data.out)["notes"]) == 3
    assert not as_data.err


def test_import_refuses_what_makes_no_sense(run: Run) -> None:
    run("export", "industreal")
    given = ("import", "procedure_info.json", "--name", "car", "--fps", "10")
    assert refused(run(*given, "--initial", "assy"), "has no '='", "assy=1000")
    assert refused(run(*given, "--initial", "assy=10000000000", "--initial", "assy=1"), "twice")
    assert refused(run(*given, "--initial", "nix=1"), "'nix'", "assy, main")
    assert refused(run(*given, "--initial", "assy=1"), "'1'", "11 components")
    assert refused(run("import", "procedure_info.json", "--name", "car"), "--fps")
    Path("bad.json").write_text('[{"id": 0,}]', encoding="utf-8")
    assert refused(run("import", "bad.json", "--name", "car", "--fps", "10"), "bad.json:1:", "column 11")
    assert not Path("car.yaml").exists()


def test_export_does_not_overwrite_without_force(run: Run) -> None:
    assert run("export", "meccano").out == "wrote procedure_info.json\n"
    assert refused(run("export", "meccano"), "there already")
    assert run("export", "meccano", "--force").code == 0
    assert json.loads(run("export", "meccano", "--out", "-").out)[50]["description"] == "Remove drive shaft"


# ---------------------------------------------------------------------- help
@pytest.mark.parametrize("command", ["new", "check", "list", "show", "import", "export"])
def test_each_commands_help_has_an_example(run: Run, command: str) -> None:
    helped = run(command, "--help")
    assert helped.code == 0
    assert f"stormpsr procedure {command}" in " ".join(helped.out.split("Example:")[1].split())
    assert "--json" in helped.out
