"""The documents run: every command and every Python example of a page, as printed, from the top of the page to its end.

A page runs in an empty folder of its own. HTML comments, which readers do not see, say what is special:

    <!-- needs: car, world -->       at the top of the page: what lies in the folder before it starts (see `Provider`)
    <!-- file: lamp.yaml -->         above a block: it is the content of a file, which is written when it is met
    <!-- not run: it takes a day --> above a block: it is left alone. There are few of these, each with its reason

What a `console` block shows after a command must be what the command prints, with `...` for what is left out; where it
shows nothing, anything may be printed. A command may fail only where an error is shown. Blocks that are only indented
are commands if they begin with `stormpsr` (or `PYTHONPATH=. stormpsr`). Commands of make, pip and git are for the
reader alone.
"""

from __future__ import annotations

import doctest
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import filelock
import pytest
import trimesh
import typer

import stormpsr
from stormpsr.cli.main import app, main

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGE = Path(stormpsr.__file__).parent
PAGES = {path.relative_to(CHECKOUT).as_posix(): path for path in (CHECKOUT / "README.md", *CHECKOUT.glob("docs/*.md"))}
MOST_NOT_RUN = 16
FOR_THE_READER = ("make", "pip", "git", ".", "source", "cd", "python3")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


# ---------------------------------------------------------------------- reading a page
@dataclass(frozen=True)
class Block:
    """A fenced or indented block, the line it starts at, and the comment directly above it."""

    language: str
    text: str
    line: int
    mark: str


def blocks_of(page: str) -> Iterator[Block]:
    lines = page.splitlines()
    at, mark = 0, ""
    while at < len(lines):
        line = lines[at]
        if found := re.fullmatch(r"<!-- (.*?) -->", line.strip()):
            mark = found[1]
        elif fence := re.match(r"(\s*)(```+)\s*([\w-]*)", line):
            end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == fence[2])
            text = "\n".join(inside.removeprefix(fence[1]) for inside in lines[at + 1 : end]) + "\n"
            yield Block(fence[3], text, at + 2, mark)
            at, mark = end, ""
        elif re.match(r"    (PYTHONPATH=\. )?stormpsr ", line) and (mark or not lines[at - 1].strip()):
            end = next((i for i in range(at, len(lines)) if not lines[i].startswith("    ")), len(lines))
            yield Block("commands", "\n".join(inside[4:] for inside in lines[at:end]) + "\n", at + 1, mark)
            at, mark = end - 1, ""
        elif line.strip():
            mark = ""
        at += 1


def commands_of(block: Block) -> list[tuple[str, str]]:
    """(command, what it is shown to print) of a block; nothing is shown for commands without `$`."""
    text = block.text.replace("\\\n", " ")
    if block.language == "commands":
        return [(line, "") for line in text.splitlines() if line.strip()]
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def is_console(block: Block) -> bool:
    return block.language in ("commands", "console") or (block.language in ("", "text") and block.text.startswith("$ "))


# ---------------------------------------------------------------------- what a page may ask for
Provider = Callable[[Path], None]


# A page that draws this set by the same command finds it drawn already: what is complete is left alone.
WORLD = "synth generate world --profile quick --train 2 --val 1 --test 1 --size 160 --max-seconds 30 --occlusion 0.2"
VIDEO = "synth generate video --profile quick --train 0 --val 0 --test 1 --size 160 --max-seconds 15 --video"


@pytest.fixture(scope="session")
def providers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Provider]:
    """What pages may ask for: each puts something into a page's folder. What is drawn is drawn once for all pages."""
    in_parallel = "PYTEST_XDIST_WORKER" in os.environ
    drawn = tmp_path_factory.getbasetemp().parent if in_parallel else tmp_path_factory.getbasetemp()

    def draw(command: str) -> Path:
        group, action, name, *options = command.split()
        with filelock.FileLock(drawn / f"{name}.lock"):
            assert main([group, action, str(drawn / name), *options]) == 0
        return drawn / name

    def world(folder: Path) -> None:
        shutil.copytree(draw(WORLD), folder / "world")

    def recording(folder: Path) -> None:
        (video,) = draw(VIDEO).rglob("*.mp4")
        shutil.copy(video, folder / "recording.mp4")

    def examples(folder: Path) -> None:
        """The shipped example, where a checkout has it."""
        shutil.copytree(str(resources.files("stormpsr") / "examples"), folder / "src" / "stormpsr" / "examples")

    def weights(folder: Path) -> None:
        """The shipped model, where a checkout has it."""
        shutil.copytree(str(resources.files("stormpsr") / "weights"), folder / "src" / "stormpsr" / "weights")

    def car(folder: Path) -> None:
        shutil.copytree(str(resources.files("stormpsr") / "examples" / "car"), folder / "car")

    def meshes(folder: Path) -> None:
        """Exports of a CAD program: plate.stl and bolt.obj in millimetres, nut.glb in metres."""
        trimesh.creation.box(extents=(160, 100, 10)).export(folder / "plate.stl")
        trimesh.creation.cylinder(radius=12, height=70, sections=24).export(folder / "bolt.obj")
        trimesh.creation.annulus(r_min=0.0125, r_max=0.03, height=0.02).export(folder / "nut.glb")

    given = (car, examples, meshes, weights, world)
    return {"recording.mp4": recording, **{provider.__name__: provider for provider in given}}


# ---------------------------------------------------------------------- running it
@dataclass
class Page:
    """A page while it runs."""

    name: str
    folder: Path
    capture: pytest.CaptureFixture[str]
    names: dict[str, Any]

    def run(self, block: Block) -> None:
        where = f"{self.name}:{block.line}"
        if block.mark.startswith("not run: "):
            return
        if block.mark.startswith("file: "):
            (self.folder / block.mark.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
        elif block.language == "python" and ">>> " in block.text:
            self.run_session(block, where)
        elif block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.text, str(PAGES[self.name]), "exec"), self.names)
        elif is_console(block):
            for command, shown in commands_of(block):
                self.run_command(command.strip(), shown, where)

    def run_session(self, block: Block, where: str) -> None:
        test = doctest.DocTestParser().get_doctest(block.text, self.names, where, where, block.line)
        said: list[str] = []
        doctest.DocTestRunner(optionflags=OPTIONS, verbose=False).run(test, out=said.append, clear_globs=False)
        assert not said, "".join(said)
        self.names.update(test.globs)

    def run_command(self, command: str, shown: str, where: str) -> None:
        words = shlex.split(command, comments=True)
        if words[0] in FOR_THE_READER:
            return
        if words[0] == "stormpsr" and not re.search(r"[|<>;&$*]", command):
            self.capture.readouterr()
            code = main(words[1:])
            captured = self.capture.readouterr()
            printed = captured.out + captured.err
        else:
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
            done = subprocess.run(
                ["bash", "-c", command], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
            )
            code, printed = done.returncode, done.stdout + done.stderr
        may_fail = "error: " in shown
        assert code == 0 or may_fail, f"{where}: {command} ended with {code} and printed:\n{printed}"
        same = not shown or doctest.OutputChecker().check_output(shown, printed, OPTIONS)
        assert same, f"{where}: {command} is shown with\n{shown}\nbut printed\n{printed}"


@pytest.mark.timeout(1200)  # a page may train, and the machine may be busy
@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_does_what_it_says(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    providers: dict[str, Provider],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGES[name].read_text(encoding="utf-8")
    for need in re.findall(r"^<!-- needs: (.*) -->$", text, flags=re.MULTILINE):
        for thing in need.split(", "):
            providers[thing](tmp_path)
    page = Page(name, tmp_path, capsys, {"__name__": "__main__"})
    for block in blocks_of(text):
        page.run(block)


def test_few_examples_are_not_run() -> None:
    marks = [block.mark for path in PAGES.values() for block in blocks_of(path.read_text(encoding="utf-8"))]
    assert sum(mark.startswith("not run: ") for mark in marks) <= MOST_NOT_RUN


def test_a_page_is_read_block_by_block() -> None:
    page = """
<!-- not run: too long -->
    stormpsr train \\
        --out runs  # for a week

text

```console
$ stormpsr score a b
F1 ...
$ ls
```
"""
    indented, console = blocks_of(page)
    assert indented.mark == "not run: too long"
    assert [shlex.split(command, comments=True) for command, _ in commands_of(indented)] == [
        ["stormpsr", "train", "--out", "runs"]
    ]
    assert commands_of(console) == [("stormpsr score a b", "F1 ...\n"), ("ls", "")]


def test_the_page_of_commands_names_every_command() -> None:
    page = PAGES["docs/command-line.md"].read_text(encoding="utf-8")
    tree: Any = typer.main.get_command(app)
    groups = {name: getattr(command, "commands", {}) for name, command in tree.commands.items()}
    words = {*groups, *(word for group in groups.values() for word, command in group.items() if not command.hidden)}
    missing = [word for word in sorted(words) if not re.search(rf"[`# ]{word}[`:, ]", page)]
    assert not missing


def test_the_map_names_every_module() -> None:
    room, text = "", {}
    for line in PAGES["README.md"].read_text(encoding="utf-8").partition("    src/stormpsr/ ")[2].splitlines():
        if found := re.match(r" {6}(\w+)/ ", line):
            room = found[1]
        text[room] = text.get(room, "") + line
    modules = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if not path.stem.startswith("__")}
    listed = [path for path in modules if len(path.parts) > 1 and path.parts[:2] != ("evaluation", "report")]
    shown = [path for path in listed if path.parts[0] not in ("cli", "synthetic")]  # as a whole
    missing = [str(path) for path in shown if not re.search(rf"\b{path.stem}\b", text.get(path.parts[0], ""))]
    assert not missing


def test_the_page_of_settings_says_what_the_config_classes_say() -> None:
    tool = runpy.run_path(str(CHECKOUT / "tools" / "settings_page.py"))
    page = PAGES["docs/settings.md"].read_text(encoding="utf-8")
    assert page == "\n".join(tool["sections"]()), "make the page anew with: python tools/settings_page.py"
