"""Fixtures for all tests: procedures small enough to work with by hand, golden files, and optional real annotations."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from stormpsr.procedure.model import AssemblyState, Component, Procedure, StateBits, StateKind, Variant

# Some virtual machines announce AMX and refuse it: half precision then ends in an illegal instruction, or torch puts
# oneDNN away for the rest of the process. Before torch is imported, here and in processes that tests start.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Examples are not timed: the machine may be busy. In automatic checks they are always the same.
settings.register_profile("stormpsr", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("stormpsr")

CHECKOUT = Path(__file__).resolve().parent.parent

# What the rooms of the package need besides the light core. Tests of what is not installed are left out, and named at
# the end: `make setup` installs all of it.
TORCH = ("torch", "timm", "lightning", "safetensors", "pydantic", "cv2", "av")
EXTRAS_OF: dict[str, tuple[str, ...]] = {
    "models": TORCH,
    "detectors": (*TORCH, "faster_coco_eval"),
    "training": TORCH,
    "recognizer": TORCH,
    "runtime": (*TORCH, "onnx", "onnxscript", "onnxruntime"),
    "annotate": ("starlette", "uvicorn", "httpx", "cv2", "av", "vtk", "trimesh", "simplejpeg"),
    "station": ("starlette", "uvicorn", "paho", "httpx", "cv2", "av"),
    "synthetic": ("vtk", "trimesh", "cv2", "simplejpeg", "PIL", "av"),
    "cli": (*TORCH, "vtk", "trimesh", "matplotlib"),
    "evaluation": ("matplotlib", "sklearn", "cv2"),
    "data": ("cv2", "av", "torch"),
    "test_benchmarks.py": (*TORCH, "vtk", "trimesh"),
    "test_config.py": ("pydantic",),
    "test_docs.py": (*TORCH, "vtk", "trimesh", "matplotlib"),
    "test_packaging.py": ("setuptools",),
}
left_out: dict[str, list[str]] = {}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests of what is not installed."""
    if not collection_path.is_relative_to(CHECKOUT / "tests") or collection_path == CHECKOUT / "tests":
        return None
    room = collection_path.relative_to(CHECKOUT / "tests").parts[0]
    missing = [package for package in EXTRAS_OF.get(room, ()) if find_spec(package) is None]
    if missing:
        left_out[room] = missing
    return True if missing else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no process is left alone with them in the end."""
    items.sort(key=lambda item: item.path.name != "test_docs.py")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for room, missing in sorted(left_out.items()):
        terminalreporter.write_line(f"left out: tests/{room} (not installed: {', '.join(missing)})")


if find_spec("torch"):
    from stormpsr.models.backbones import make_torchvision_importable

    make_torchvision_importable()  # before Lightning or timm import it
Cases = list[dict[str, Any]]


def read_cases(path: Path) -> Cases:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        cases: Cases = json.load(file)
    return cases


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Cases]:
    """Outputs of the published programs on invented labels, kept with the tests."""
    return lambda name: read_cases(CHECKOUT / "tests" / "golden" / f"{name}.json.gz")


@pytest.fixture(scope="session")
def shared() -> Path:
    """A folder with `golden/` and `data/`: outputs of the published programs on real labels, and those labels."""
    folder = Path(os.environ.get("STORMPSR_SHARED", CHECKOUT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"there are no real annotations at {folder}; STORMPSR_SHARED says where they are")
    return folder


@pytest.fixture(scope="session")
def shared_golden(shared: Path) -> Callable[[str], Cases]:
    """Outputs of the published programs on real labels."""

    def read(name: str) -> Cases:
        path = shared / "golden" / f"{name}.json.gz"
        if not path.is_file():
            pytest.skip(f"there is no golden file {path}")
        return read_cases(path)

    return read


@pytest.fixture(scope="session")
def meccano_psr(shared: Path) -> Path:
    """The published step labels of MECCANO: `<split>/<recording>/PSR_labels*.csv`."""
    folder = shared / "data" / "meccano_psr"
    if not folder.is_dir():
        pytest.skip(f"there are no MECCANO labels at {folder}")
    return folder


@pytest.fixture(scope="session")
def meccano() -> Procedure:
    return Procedure.load("meccano")


@pytest.fixture(scope="session")
def industreal() -> Procedure:
    return Procedure.load("industreal")


@pytest.fixture(scope="session")
def lamp() -> Procedure:
    """Three parts, put on one after the other.

    Steps: 0, 1, 2 foot on, wrong, off; 3, 4, 5 the same of the pole; 6, 7, 8 of the shade.
    State classes: 0 background, 1 nothing, 2 foot, 3 foot and pole, 4 all three, 5 error.
    """
    bits = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)]
    return Procedure(
        name="lamp",
        components=(Component("foot"), Component("pole"), Component("shade")),
        states=(
            AssemblyState(0, StateKind.BACKGROUND, "background"),
            *(AssemblyState(i, StateKind.ASSEMBLY, f"state {i}", state) for i, state in enumerate(bits, start=1)),
            AssemblyState(5, StateKind.ERROR, "error"),
        ),
        variants={
            "build": Variant("build", initial=(0, 0, 0), expected=(0, 3, 6)),
            "dismantle": Variant("dismantle", initial=(1, 1, 1), expected=(2, 5, 8)),
        },
        fps=10,
    )


# ---------------------------------------------------------------------- a world of coloured blocks
LAMP_COLOURS = ((200, 40, 40), (40, 180, 60), (50, 70, 210))  # foot, pole, shade


def draw_lamp(bits: StateBits, left: int, top: int, hidden: bool = False, seed: int = 0) -> Any:
    """A lamp of 24 by 30 pixels: three bars on top of each other; a wrong one is white, an absent one is missing."""
    rng = np.random.default_rng(seed)
    image = rng.integers(90, 120, (64, 64, 3)).astype(np.uint8)
    image[top : top + 30, left : left + 24] = (30, 30, 30)
    for k, bit in enumerate(bits):
        if bit:
            colour = LAMP_COLOURS[k] if bit > 0 else (250, 250, 250)
            image[top + 20 - 10 * k : top + 30 - 10 * k, left + 2 : left + 22] = colour
    if hidden:
        image[top : top + 30, left : left + 24] = (220, 170, 140)
    return image


def write_video(path: Path, images: list[Any], fps: int = 10) -> None:
    import av

    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=fps)
        stream.height, stream.width = images[0].shape[:2]
        stream.pix_fmt, stream.options = "yuv444p", {"crf": "0"}
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


@pytest.fixture
def write_lamp(tmp_path: Path, lamp: Procedure) -> Callable[..., Path]:
    """Writes a recording of the lamp: `states` one after the other, four frames each, the fourth hidden."""
    from stormpsr.data.images import write_image
    from stormpsr.data.labels import StateTimeline, steps_from_states, write_states, write_steps

    def write(
        split: str = "train",
        name: str = "01_build",
        states: list[StateBits] | None = None,
        root: Path | None = None,
        video: bool = False,
    ) -> Path:
        chosen = states or [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, -1), (1, 1, 1)]
        folder = (root or tmp_path / "data") / "recordings" / split / name
        (folder if video else folder / "rgb").mkdir(parents=True)
        drawn = []
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        rng = np.random.default_rng(len(name) + len(split))
        for frame in range(4 * len(chosen)):
            bits, hidden = chosen[frame // 4], frame % 4 == 3
            left, top = (int(v) for v in rng.integers(4, 30, 2))
            drawn.append(draw_lamp(bits, left, top, hidden, seed=frame))
            if not video:
                write_image(folder / "rgb" / f"{frame:06d}.png", drawn[-1])
            state_class = lamp.state_class(bits)
            if not hidden and state_class is not None:
                images.append({"id": frame, "file_name": f"{frame:06d}.png", "width": 64, "height": 64})
                entry = {"id": len(annotations) + 1, "image_id": frame, "category_id": state_class}
                annotations.append({**entry, "bbox": [left, top, 24, 30], "area": 720, "iscrowd": 0})
        if video:
            write_video(folder / "rgb.mp4", drawn)
        content = {"images": images, "annotations": annotations, "categories": []}
        (folder / "OD_labels.json").write_text(json.dumps(content))
        timeline = StateTimeline(tuple(4 * k for k in range(len(chosen))), tuple(chosen))
        write_states(folder / "PSR_labels_raw.csv", timeline, lamp, extension=".png")
        steps = steps_from_states(timeline, lamp, with_errors=False)
        write_steps(folder / "PSR_labels.csv", steps, lamp, extension=".png")
        lamp.save(folder / "procedure.yaml")
        return folder

    return write


@pytest.fixture
def lamp_data(write_lamp: Callable[..., Path], tmp_path: Path) -> Path:
    """A data set with one recording in each split."""
    for split in ("train", "val", "test"):
        write_lamp(split, f"01_build_{split}")
    return tmp_path / "data"
