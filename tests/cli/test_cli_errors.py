"""What all commands share: help, JSON, one-line errors, exit codes, and a quick start."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import stormpsr
from stormpsr.cli.main import app
from stormpsr.procedure.model import Procedure

Call = Callable[..., Any]  # the fixtures `cli` and `write`


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        if not child.hidden:  # what a group does where no command is named is told in its own help
            yield from leaves(child, (*path, name))


COMMANDS = dict(leaves(typer.main.get_command(app)))
EVERY_COMMAND = pytest.mark.parametrize("words", COMMANDS, ids=" ".join)


def takes_files(command: Any) -> bool:
    """Whether a command has an argument: all arguments are files or folders, or names of files to come."""
    return any(parameter.param_type_name == "argument" for parameter in command.params)


# ---------------------------------------------------------------------- files are whole, or as they were
STEPS = "000010.jpg,0,Install foot\n"
OLD = "what was there before\n"
WRITING = {
    "new.yaml": "procedure new new --component foot --force --out new.yaml",
    "scores.json": "score labels predictions -p lamp.yaml --out scores.json",
    "scores.csv": "score labels predictions -p lamp.yaml --out scores.csv",
    "labels/1_build/PSR_labels.csv": "labels convert labels -p lamp.yaml --force",
    "steps/1_build.csv": "decode detections.csv -p lamp.yaml --method naive --out steps",
}


@pytest.mark.parametrize("there", [True, False], ids=["replaced", "new"])
@pytest.mark.parametrize("name", WRITING)
def test_a_full_disk_leaves_no_half_file_and_the_old_one_as_it_was(
    cli: Call, write: Call, lamp: Procedure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, there: bool
) -> None:
    lamp.save(tmp_path / "lamp.yaml")
    write("labels/1_build/PSR_labels_raw.csv", "000000.jpg,0,0,0\n000010.jpg,1,0,0\n")
    write("labels/1_build/PSR_labels.csv", STEPS)
    write("predictions/1_build.csv", STEPS)
    write("detections.csv", "".join(f"1_build,{frame},{1 + frame // 10},0.9\n" for frame in range(30)))
    (tmp_path / name).unlink(missing_ok=True)
    words = WRITING[name].split()
    assert cli(*words).code == 0
    assert (tmp_path / name).stat().st_size > 0
    if there:
        write(name, OLD if words[0] != "labels" else STEPS)
    else:
        (tmp_path / name).unlink()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("stormpsr.files.os.fsync", full)
    outcome = cli(*words)
    assert outcome.code == 2
    assert "the disk is full" in outcome.err.splitlines()[-1]
    assert Path(name).name in outcome.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


# ---------------------------------------------------------------------- every command in the tree
def test_the_tree_has_the_commands_that_the_documentation_names() -> None:
    expected = {("labels", "check"), ("labels", "convert"), ("score",), ("decode",), ("oracle",), ("demo",)}
    assert expected <= set(COMMANDS)


@EVERY_COMMAND
def test_a_command_speaks_json(words: tuple[str, ...]) -> None:
    flags = [option for parameter in COMMANDS[words].params for option in parameter.opts]
    assert "--json" in flags


@EVERY_COMMAND
def test_a_command_says_what_it_does_and_shows_how(words: tuple[str, ...]) -> None:
    text = COMMANDS[words].help or ""
    assert len(text.split("\n\n")[0]) > 20
    assert takes_files(COMMANDS[words]) <= (f"Example: stormpsr {' '.join(words)}" in text)


@EVERY_COMMAND
def test_what_a_command_needs_is_explained(words: tuple[str, ...]) -> None:
    for parameter in COMMANDS[words].params:
        if parameter.required:
            assert getattr(parameter, "help", None), f"{parameter.name} has no help"


@EVERY_COMMAND
def test_help_of_a_command_is_printed(cli: Call, words: tuple[str, ...]) -> None:
    outcome = cli(*words, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"Usage: stormpsr {' '.join(words)}" in outcome.out


@EVERY_COMMAND
def test_an_unknown_option_is_refused_by_every_command(cli: Call, words: tuple[str, ...]) -> None:
    assert cli(*words, "--no-such-option").is_refusal(f"see 'stormpsr {' '.join(words)} --help'")


# ---------------------------------------------------------------------- the words themselves
def test_without_arguments_the_help_is_shown(cli: Call) -> None:
    outcome = cli()
    assert (outcome.code, outcome.err) == (0, "")
    assert "Usage: stormpsr" in outcome.out
    assert "Usage: stormpsr labels" in cli("labels").out


def test_a_misspelt_command_is_refused_with_a_guess(cli: Call) -> None:
    assert cli("scoer").is_refusal("No such command 'scoer'", "Did you mean 'score'? see 'stormpsr --help'")


def test_a_missing_argument_is_named(cli: Call) -> None:
    assert cli("score", "labels", "-p", "meccano").is_refusal("Missing argument", "events", "stormpsr score --help")


def test_a_missing_option_is_named(cli: Call) -> None:
    assert cli("decode", ".").is_refusal("Missing option '--procedure'", "stormpsr decode --help")


def test_arguments_too_many_are_refused(cli: Call) -> None:
    assert cli("decode", "a", "b", "-p", "meccano").is_refusal("unexpected extra argument", "b")


def test_a_misspelt_procedure_is_refused_with_a_guess(cli: Call) -> None:
    assert cli("decode", ".", "-p", "mecano").is_refusal("no procedure 'mecano'; did you mean 'meccano'?")


def test_a_procedure_file_that_is_not_there_is_named(cli: Call) -> None:
    assert cli("decode", ".", "-p", "mine.yaml").is_refusal("mine.yaml")


def test_options_may_stand_before_and_after_the_arguments(cli: Call, write: Call, lamp_file: str) -> None:
    write("d.csv", "1_build,5,1,0.9\n")
    before = cli("decode", "--json", "-p", lamp_file, "d.csv")
    after = cli("decode", "d.csv", "-p", lamp_file, "--json")
    assert before.code == 0
    assert before == after


# ---------------------------------------------------------------------- errors
def test_an_error_is_one_line_with_file_line_and_cure(cli: Call, write: Call, lamp_file: str) -> None:
    write("d.csv", "1_build,5,1,0.9\n1_build,-5,1,0.9\n")
    outcome = cli("decode", "d.csv", "-p", lamp_file)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "error: d.csv:2: frame '-5' is negative; frames count from 0\n"


@pytest.mark.parametrize("place", [0, 1, 4])
def test_debug_shows_the_traceback_wherever_it_stands(cli: Call, place: int) -> None:
    arguments = ["decode", "nowhere", "-p", "meccano"]
    assert "Traceback" not in cli(*arguments).err
    outcome = cli(*arguments[:place], "--debug", *arguments[place:])
    assert outcome.code == 2
    assert "Traceback (most recent call last)" in outcome.err
    assert outcome.err.splitlines()[-1] == "error: nowhere: there is no such file or folder"


def test_with_json_an_error_is_json_too(cli: Call, write: Call, lamp_file: str) -> None:
    write("d.csv", "1_build,-5,1,0.9\n")
    outcome = cli("decode", "d.csv", "-p", lamp_file, "--json")
    assert (outcome.code, outcome.out) == (2, "")
    error = json.loads(outcome.err)
    assert (error["path"], error["line"]) == ("d.csv", 1)
    assert error["error"].startswith("d.csv:1: frame '-5' is negative")


def test_a_folder_in_place_of_a_procedure_is_one_line_too(cli: Call) -> None:
    assert cli("decode", ".", "-p", ".").is_refusal()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs a user who may be refused access")
def test_a_folder_that_may_not_be_written_to_is_one_line_too(
    cli: Call, tmp_path: Path, write: Call, lamp_file: str
) -> None:
    write("d.csv", "1_build,5,1,0.9\n")
    (tmp_path / "closed").mkdir(mode=0o500)
    assert cli("decode", "d.csv", "-p", lamp_file, "--out", "closed/new").is_refusal("permission denied")


def test_a_file_in_the_way_of_a_folder_is_one_line_too(cli: Call, write: Call, lamp_file: str) -> None:
    write("d.csv", "1_build,5,1,0.9\n")
    assert cli("decode", "d.csv", "-p", lamp_file, "--out", "d.csv/new").is_refusal("d.csv")


# ---------------------------------------------------------------------- as its own process
def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stormpsr", *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, **options)


def test_python_m_stormpsr_is_the_command_line() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"stormpsr {stormpsr.__version__}\n", "")
    assert run("no-such-command").returncode == 2


def test_a_terminal_that_cannot_show_a_character_does_not_stop_the_work(tmp_path: Path) -> None:
    labels, events = tmp_path / "labels.csv", tmp_path / "events.csv"
    labels.write_text("10.jpg,0,\n")
    events.write_text("")  # nothing recognised: the table has a dash in place of the delay
    done = run("score", str(labels), str(events), "-p", "meccano", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert any("tau (s)" in line and "?" in line for line in done.stdout.splitlines())


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    command = f'"{sys.executable}" -m stormpsr --help | head -c 1'
    if os.name != "posix":
        pytest.skip("needs a shell with head")
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from stormpsr.cli.main import main; main(['--help']); "
        "heavy = {'numpy', 'yaml', 'matplotlib', 'PIL', 'vtk', 'torch', 'lightning', 'av', 'cv2'} & set(sys.modules); "
        "print(sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True)
    assert done.stderr == "[]\n"


def test_a_package_that_is_missing_is_named_with_what_installs_it(cli: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stormpsr.errors.find_spec", lambda name: None if name == "cv2" else name)
    for command in (("synth", "generate", "s"), ("synth", "states", "s"), ("boxes", "export", "a", "b"), ("run", "0")):
        assert cli(*command).is_refusal("needs cv2, which is not installed; run: pip install 'stormpsr[")


def test_a_package_that_is_missing_somewhere_inside_is_one_line_too(
    cli: Call, monkeypatch: pytest.MonkeyPatch, lamp_file: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'cv2'", name="cv2")

    monkeypatch.setattr("stormpsr.data.audit.audit_labels", fail)
    refused = "this command needs cv2, which is not installed; run: pip install 'stormpsr[synth]'"
    assert cli("labels", "check", ".", "-p", lamp_file).is_refusal(refused)
