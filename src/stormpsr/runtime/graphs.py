"""Graphs: networks as ONNX files, and the engines that run them. Nothing here needs torch.

Every graph has one dynamic axis, the number of images or windows. `graphs.json` beside the files says by which engine
they are run, and what a caller has to know of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from stormpsr.errors import InputError, StormPSRError, need_packages
from stormpsr.files import write_json
from stormpsr.models.checkpoint import GRAPHS_FILE
from stormpsr.yaml_loader import STRICT_KEYS, read_yaml, validate

Engine = Literal["onnx", "openvino"]
Precision = Literal["float32", "int8"]
Run = Callable[..., list[NDArray[Any]]]  # arrays in, arrays out, in the order of the graph's inputs and outputs
OPSET = 18
_FORMAT = "stormpsr graphs 1"
_MOST_PIXELS = 8192


@dataclass(frozen=True)
class GraphsInfo:
    """What `graphs.json` says."""

    engine: Engine  # onnx: ONNX Runtime; the files are the same
    opset: int
    image_size: Annotated[int, Field(ge=1, le=_MOST_PIXELS)]  # pixels of a side of the square that the networks take
    precision: Precision = "float32"
    locator: str | None = None  # a fingerprint of the network that finds the assembly first, if there is one
    reader: str | None = None  # a fingerprint of all that finds and reads the assembly, where two networks can share it
    readout: str | None = None  # of a detector: how detections are made of its outputs, and which classes they name
    classes: tuple[int, ...] = ()
    format: str = _FORMAT

    __pydantic_config__ = STRICT_KEYS

    def save(self, folder: Path) -> None:
        write_json(folder / GRAPHS_FILE, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> GraphsInfo:
        document = read_yaml(folder / GRAPHS_FILE)  # JSON is YAML
        info = validate(cls, document)
        if info.format != _FORMAT:
            cure = "export the model again with this version"
            raise InputError(f"the format is {info.format!r}, not {_FORMAT!r}", path=folder / GRAPHS_FILE, cure=cure)
        return info


def open_graph(path: Path, engine: Engine, *, threads: int | None = None) -> Run:
    """A graph, ready to run on the processor. `threads`: None takes all cores."""
    if not path.is_file():
        raise InputError("there is no such file", path=path, cure="the exported model is incomplete: export it again")
    make = _open_onnxruntime if engine == "onnx" else _open_openvino
    with _speaking_of(path):
        opened = make(path, threads)

    def run(*arrays: NDArray[Any]) -> list[NDArray[Any]]:
        with _speaking_of(path):
            return opened(*arrays)

    return run


@contextmanager
def _speaking_of(path: Path) -> Iterator[None]:
    """Engines raise errors of classes of their own, derived from nothing better, for graphs that they cannot run."""
    try:
        yield
    except StormPSRError:
        raise
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"this graph cannot be run ({reason})", path=path, cure="export the model again") from error


def check_device(device: str) -> None:
    """Exported graphs run on the processor."""
    if device not in ("auto", "cpu"):
        cure = "choose cpu or auto, or run the model that it was exported from"
        raise InputError(f"an exported model cannot compute on {device!r}", cure=cure)


def _open_onnxruntime(path: Path, threads: int | None) -> Run:
    need_packages("running an exported model", "edge", "onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 3
    # graphs run one after the other: threads of one that wait by spinning would take the cores from the next
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]

    def run(*arrays: NDArray[Any]) -> list[NDArray[Any]]:
        found: list[NDArray[Any]] = session.run(None, dict(zip(names, arrays, strict=True)))
        return found

    return run


def _open_openvino(path: Path, threads: int | None) -> Run:
    need_packages("running a model that was exported for OpenVINO", "openvino", "openvino")
    import openvino

    core = openvino.Core()
    settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    if threads:
        settings["INFERENCE_NUM_THREADS"] = threads
    compiled: dict[bool, Any] = {}

    def graph_for(single: bool) -> Any:
        """Live use sees one image at a time: a graph of fixed shapes is quicker. Whoever sends more gets another."""
        if single not in compiled:
            model = core.read_model(str(path))
            if single:
                model.reshape({entry: [1, *list(entry.partial_shape)[1:]] for entry in model.inputs})
            compiled[single] = core.compile_model(model, "CPU", settings)
        return compiled[single]

    graph_for(True)

    def run(*arrays: NDArray[Any]) -> list[NDArray[Any]]:
        graph = graph_for(len(arrays[0]) == 1)
        found = graph(list(arrays))
        return [np.array(found[output]) for output in graph.outputs]  # the engine writes into its own arrays again

    return run
