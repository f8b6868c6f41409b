"""The shape of the house: what importing needs, who may import whom, and who may speak to the user."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stormpsr

PACKAGE = Path(stormpsr.__file__).parent
MODULES = {
    ".".join(["stormpsr", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

# The layers of the house, from the ground up: a module may import from its own layer and from those below, never from
# above. Imports inside functions and for type checkers count as well. A module belongs to the longest name it fits.
LAYERS = [
    *("errors", "files", "yaml_loader", "cluster", "procedure", "data", "decoding"),
    *("evaluation.edit_distance", "evaluation.metrics", "evaluation.alarms", "evaluation.summary"),
    *("config", "models", "detectors", "runtime", "training", "evaluation", "recognizer", "web", "station", "annotate"),
]
SAME_LAYER = {"evaluation.released": "evaluation.metrics"}  # two halves of `score`, kept apart for clarity
# The rendered world stands beside the house: it knows what a procedure and a recording are, and nobody inside knows it.
BESIDE = {"synthetic": ("errors", "files", "yaml_loader", "cluster", "procedure", "data")}
EDGES = ("cli", "app")  # may import everything, print, and read the clock; nobody imports them
EXCEPTIONS = {"stormpsr.data.sources": {"time"}}  # the frames of a webcam carry no times of their own
CLOCK_READERS = ("web", "station", "annotate")  # what happens there happens at a time of day
ROOT = ("", "__main__")  # the package itself, which only hands names on

# What a light installation must be able to do, with numpy and the standard library alone.
LIGHT = """
import sys

class NumpyOnly:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in ("numpy", "stormpsr"):
            raise ModuleNotFoundError(f"{name} is not part of a light import")

sys.meta_path.insert(0, NumpyOnly())
"""


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


# ---------------------------------------------------------------------- a light core
def test_every_public_name_can_be_imported_with_numpy_alone() -> None:
    done = run_python(LIGHT + "import stormpsr\nfor name in stormpsr.__all__: getattr(stormpsr, name)\n")
    assert done.returncode == 0, done.stderr


def test_scoring_and_decoding_work_with_numpy_alone() -> None:
    use = """
from stormpsr import AssemblyState, Component, Procedure, StateDetection, StepEvent, Variant, decode, score
from stormpsr.procedure.model import StateKind
states = (AssemblyState(0, StateKind.ASSEMBLY, "none", (0,)), AssemblyState(1, StateKind.ASSEMBLY, "one", (1,)))
procedure = Procedure("plug", (Component("plug"),), states, {"in": Variant("in", (0,), (0,))}, fps=10)
events = decode([StateDetection(frame, 1, 0.9) for frame in range(20)], procedure, "in", threshold=4)
for protocol in ("paper", "industreal", "storm"):
    print(score([StepEvent(0, 0)], events, procedure=procedure, protocol=protocol).delay_frames)
"""
    done = run_python(LIGHT + use)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["4.0", "4.0", "4.0"]


def test_settings_are_read_and_written_without_torch() -> None:
    use = """
import sys
sys.modules |= dict.fromkeys(("torch", "timm", "lightning"))  # as if they were not installed
from stormpsr.config import dump_config, load_config, parse_config, shipped_presets
for preset in shipped_presets():
    config = load_config(preset)
    assert parse_config(dump_config(config), where=preset) == config
for kind in ("transformer", "lstm", "tcn", "mlp", "states", "package.module:Class"):
    more = ["train_temporal.frame_state_weight=0", "train_joint.frame_state_weight=0"]
    print(load_config("trial", [f"temporal.kind={kind}", *more]).temporal.kind)
"""
    done = run_python(use)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["transformer", "lstm", "tcn", "mlp", "states", "package.module:Class"]


def test_the_guard_against_heavy_imports_would_notice_one() -> None:
    done = run_python(LIGHT + "import yaml\n")
    assert "yaml is not part of a light import" in done.stderr


def test_importing_the_package_loads_none_of_its_modules_yet() -> None:
    done = run_python("import sys, stormpsr\nprint(*[name for name in sys.modules if name.startswith('stormpsr.')])\n")
    assert done.stdout.split() == [], done.stderr


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'scores'"):
        stormpsr.scores  # noqa: B018


def test_the_public_names_are_listed_where_a_shell_looks_for_them() -> None:
    assert dir(stormpsr) == sorted(stormpsr.__all__)
    assert {"Recognizer", "Results", "Procedure", "decode", "score"} <= set(dir(stormpsr))


def test_what_needs_more_says_in_one_line_what_to_install() -> None:
    use = """
import sys
sys.modules |= dict.fromkeys(("torch", "pandas", "matplotlib"))  # as if they were not installed
from stormpsr import MissingExtraError, Procedure, Recognizer, Results, StepEvent, score, summarise
from stormpsr import AssemblyState, Component, Variant
from stormpsr.procedure.model import StateKind
states = (AssemblyState(0, StateKind.ASSEMBLY, "none", (0,)), AssemblyState(1, StateKind.ASSEMBLY, "one", (1,)))
procedure = Procedure("plug", (Component("plug"),), states, {"in": Variant("in", (0,), (0,))}, fps=10)
results = Results([StepEvent(0, 5)], procedure, "in", "average", 10.0, 20)
summary = summarise([results.score([StepEvent(0, 3)])], procedure)
print(summary.all.f1)
for call in (Recognizer.load, results.to_dataframe, results.plot, summary.to_dataframe):
    try:
        call()
    except ImportError as error:
        assert isinstance(error, MissingExtraError)
        print(error)
"""
    done = run_python(use)
    assert done.returncode == 0, done.stderr
    f1, *lines = done.stdout.splitlines()
    assert f1 == "1.0"
    assert [line.partition("pip install ")[2] for line in lines] == [
        "'stormpsr[train]'",
        "'stormpsr[pandas]'",
        "'stormpsr[plot]'",
        "'stormpsr[pandas]'",
    ]


# ---------------------------------------------------------------------- one direction
def layer_of(module: str) -> str | None:
    inner = module.removeprefix("stormpsr").removeprefix(".")
    if inner in ROOT or inner.split(".")[0] in EDGES:
        return inner.split(".")[0]
    inner = SAME_LAYER.get(inner, inner)
    fitting = [layer for layer in (*LAYERS, *BESIDE) if inner == layer or inner.startswith(f"{layer}.")]
    return max(fitting, key=len, default=None)


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import in a file, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield node.lineno, full if full in MODULES or node.module == "stormpsr" else str(node.module)


LIBRARY = [name for name in MODULES if layer_of(name) not in (*EDGES, *ROOT)]


@pytest.mark.parametrize("module", LIBRARY)
def test_a_module_imports_only_from_the_layers_below_it(module: str) -> None:
    layer = layer_of(module)
    assert layer, f"{module} belongs to no layer yet: enter it into LAYERS"
    allowed = {layer, *(BESIDE.get(layer) or LAYERS[: LAYERS.index(layer)])}
    own = [(line, name) for line, name in imports_of(MODULES[module]) if name.split(".")[0] == "stormpsr"]
    # the version number is the one thing that a module may take from the package itself
    strays = [(line, name) for line, name in own if name != "stormpsr.__version__" and layer_of(name) not in allowed]
    assert strays == []


# ---------------------------------------------------------------------- thin edges
@pytest.mark.parametrize("module", LIBRARY)
def test_the_library_neither_prints_nor_reads_the_clock(module: str) -> None:
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert [n.lineno for n in calls if isinstance(n.func, ast.Name) and n.func.id in ("print", "input")] == []
    edge_only = {"typer", "click", "rich", "time", "datetime"} - EXCEPTIONS.get(module, set())
    edge_only -= {"time", "datetime"} if layer_of(module) in CLOCK_READERS else set()
    assert [name for _, name in imports_of(MODULES[module]) if name.split(".")[0] in edge_only] == []


def test_no_file_is_a_drawer_for_odds_and_ends() -> None:
    assert [name for name in MODULES if name.split(".")[-1] in ("utils", "common", "helpers", "misc")] == []
