"""A product: what is assembled, as data. The procedure it follows, the shape of every part, where it goes.

`Product.load("vehicle")` reads a shipped product, `Product.load("my/product.yaml")` a file of your own. The file is
a procedure file (components, states, variants, order) with three more keys: `unit`, `materials` and `parts`;
`docs/products.md` describes them. Reading it needs no renderer.

Frames: a part's shape is given in the part's own frame, its `pose_44` takes it to the assembly's frame, in which the
finished product stands on z = 0 around the origin. Lengths are metres.

Products as YAML files: a procedure file with `unit`, `materials` and `parts`, read with line numbers.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import yaml
from numpy.typing import NDArray

from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.procedure.reader import check_procedure_text
from stormpsr.synthetic.meshes import PRIMITIVES, Mesh, load_mesh, merge, pose_matrix

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Material:
    """A range of colours, in hue, saturation and value from 0 to 1, of which every recording draws one."""

    name: str
    hue: tuple[float, float]
    saturation: tuple[float, float]
    value: tuple[float, float]
    shine: float = 0.3  # 0 dull as rubber .. 1 polished metal

    def __post_init__(self) -> None:
        for what, (low, high) in (("saturation", self.saturation), ("value", self.value)):
            if not 0 <= low <= high <= 1:
                raise InputError(f"material {self.name!r}: {what} {low} to {high} is not a range within 0 to 1")
        if not 0 <= self.hue[1] - self.hue[0] <= 1:  # hues may go beyond 1 to pass through red
            raise InputError(f"material {self.name!r}: hue {self.hue[0]} to {self.hue[1]} is not a range")
        if not 0 <= self.shine <= 1:
            raise InputError(f"material {self.name!r}: shine is {self.shine}, but it must be 0 to 1")


@dataclass(frozen=True, eq=False)
class Piece:
    """One primitive or mesh file, in its part's frame, of one material."""

    mesh: Mesh
    material: str


@dataclass(frozen=True, eq=False)
class WrongPose:
    """A way to seat the part that looks plausible and is wrong."""

    name: str
    pose_44: Floats  # to the assembly's frame


@dataclass(frozen=True, eq=False)
class Part:
    """The body of one component of the procedure."""

    name: str
    pieces: tuple[Piece, ...]
    pose_44: Floats  # assembled: to the assembly's frame
    wrong_poses: tuple[WrongPose, ...]
    rest_44: Floats  # lying on the table at the origin: to a frame whose z = 0 is the table
    approach_3: Floats  # unit vector in the assembly's frame: the side the part comes from (and the tool)
    needs_tool: bool
    sits_on: tuple[str, ...]  # the parts it is fixed to; while it is seated they cannot be taken off
    replaces: str | None  # the part whose place it takes; never both

    @cached_property
    def mesh(self) -> Mesh:
        """All pieces as one mesh, in the part's frame."""
        return merge([piece.mesh for piece in self.pieces])

    @cached_property
    def bounds_23(self) -> Floats:
        """Lowest and highest corner in the part's frame."""
        return np.asarray(np.stack([self.mesh.vertices_V3.min(axis=0), self.mesh.vertices_V3.max(axis=0)]))

    @cached_property
    def radius(self) -> float:
        """Half of the diagonal of the part's bounding box: how much room it needs on the table."""
        return float(np.linalg.norm(self.bounds_23[1] - self.bounds_23[0]) / 2)

    @cached_property
    def fit_point_3(self) -> Floats:
        """The middle of the seated part in the assembly's frame: where the hands work."""
        centre = self.bounds_23.mean(axis=0)
        return np.asarray((self.pose_44[:3, :3] @ centre + self.pose_44[:3, 3]), dtype=np.float32)

    @cached_property
    def tool_point_3(self) -> Floats:
        """Where the tip of the tool touches the seated part: its outermost point towards `approach_3`."""
        seated = self.mesh.moved(self.pose_44).vertices_V3
        reach = float(np.max(seated @ self.approach_3))
        return (self.fit_point_3 + (reach - float(self.fit_point_3 @ self.approach_3)) * self.approach_3).astype(
            np.float32
        )


@dataclass(frozen=True, eq=False)
class Product:
    """A procedure and the bodies of its components, `parts[k]` for component k."""

    parts: tuple[Part, ...]
    materials: Mapping[str, Material]
    procedure_: Procedure

    def __post_init__(self) -> None:
        names = tuple(component.name for component in self.procedure_.components)
        if names != tuple(part.name for part in self.parts):
            raise InputError(f"product {self.name!r}: parts and components differ", cure="one part per component")

    @classmethod
    def load(cls, source: str | Path) -> Product:
        """A shipped product by name (`vehicle`, `lamp`), or one from a YAML file."""

        return load_product(source)

    @property
    def name(self) -> str:
        return self.procedure_.name

    @property
    def n_components(self) -> int:
        return len(self.parts)

    def procedure(self) -> Procedure:
        """What is known about the product without its shape: components, states, variants, order."""
        return self.procedure_

    def part(self, name: str) -> Part:
        return self.parts[self.procedure_.component_index[name]]

    @cached_property
    def bounds_23(self) -> Floats:
        """Lowest and highest corner of the finished product in the assembly's frame."""
        seated = np.concatenate([part.mesh.moved(part.pose_44).vertices_V3 for part in self.parts])
        return np.stack([seated.min(axis=0), seated.max(axis=0)])

    def pose_of(self, component_index: int, bit: int, wrong_choice: int = 0) -> Floats:
        """Where a seated (1) or wrongly seated (-1) component is, in the assembly's frame."""
        part = self.parts[component_index]
        return part.pose_44 if bit == 1 else part.wrong_poses[wrong_choice].pose_44

    def blocked_by(self, bits: Sequence[int], component_index: int) -> list[int]:
        """The seated components that keep this one from being taken off, or its place from being filled."""
        part = self.parts[component_index]
        return [
            k
            for k, other in enumerate(self.parts)
            if bits[k] != 0 and k != component_index and (self._holds(bits, part, other) or self._share(part, other))
        ]

    def _holds(self, bits: Sequence[int], support: Part, part: Part) -> bool:
        """Whether a part sits on this one, and on nothing else that is seated in this one's place."""
        if support.name not in part.sits_on:
            return False
        others = [self.part(name) for name in part.sits_on if name != support.name]
        index = self.procedure_.component_index
        return not any(self._share(other, support) and bits[index[other.name]] != 0 for other in others)

    @staticmethod
    def _share(one: Part, other: Part) -> bool:
        """Whether two parts go to the same place."""
        return one.replaces == other.name or other.replaces == one.name


_OWN_KEYS = ("unit", "materials", "parts")
_UNITS = {"m": 1.0, "cm": 0.01, "mm": 0.001}
_PART_KEYS = ("shape", "at", "turn", "wrong", "rest", "approach", "tool", "on", "replaces")
_PIECE_KEYS = ("material", "at", "turn", "file", "scale", "max_triangles")
_DEFAULT_MAX_TRIANGLES = 1200


def shipped_products() -> list[str]:
    """Names of the products that come with the package."""
    folder = resources.files("stormpsr.synthetic") / "products"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_product(source: str | Path) -> Product:
    """A shipped product by name, or one from a file; everything wrong with it is an `InputError` with its line."""
    if isinstance(source, str) and source in shipped_products():
        path = Path(str(resources.files("stormpsr.synthetic") / "products" / f"{source}.yaml"))
    else:
        path = Path(source)
    if not path.is_file():
        known = ", ".join(shipped_products())
        raise InputError(f"no product {str(source)!r}", cure=f"give the path of a YAML file or one of: {known}")
    try:
        text = path.read_text(encoding="utf-8-sig")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"this is not YAML: {error.problem}", path=path, line=line) from error
    except UnicodeDecodeError as error:
        raise InputError("this is not a text file in UTF-8", path=path, cure="save it as UTF-8") from error
    if not isinstance(root, yaml.MappingNode):
        raise InputError("the file holds no product", path=path, line=1, cure="see the documentation on products")
    procedure, problems = check_procedure_text(_without_keys(text, root, _OWN_KEYS))
    if problems or procedure is None:
        problems[0].raise_error(path)
    return _Reader(path, procedure).product(root)


def _without_keys(text: str, root: yaml.MappingNode, keys: Sequence[str]) -> str:
    """The text with some top-level keys blanked, so that the rest keeps its line numbers."""
    lines = text.splitlines()
    starts = [key.start_mark.line for key, _ in root.value] + [len(lines)]
    for index, (key, _) in enumerate(root.value):
        if key.value in keys:
            for line in range(starts[index], starts[index + 1]):
                lines[line] = ""
    return "\n".join(lines) + "\n"


class _Reader:
    """Reads the keys that a procedure file does not have."""

    def __init__(self, path: Path, procedure: Procedure) -> None:
        self.path = path
        self.procedure = procedure
        self.names = [component.name for component in procedure.components]
        self.materials: dict[str, Material] = {}
        self.unit = 1.0

    # ------------------------------------------------------------------ small pieces
    def fail(self, node: yaml.Node, problem: str, cure: str | None = None) -> NoReturn:
        raise InputError(problem, path=self.path, line=node.start_mark.line + 1, cure=cure)

    def table(self, node: yaml.Node | None, what: str, known: Sequence[str] | None = None) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            if node is None:
                raise InputError(f"the key {what!r} is missing", path=self.path, cure=f"add '{what}:'")
            self.fail(node, f"{what} must be a table of 'key: value' lines")
        entries: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = str(key_node.value)
            if known is not None and key not in known:
                self.fail(key_node, f"{what} has no {key!r}", f"it has: {', '.join(known)}")
            if key in entries:
                self.fail(key_node, f"{key!r} is there twice in {what}", "remove one of them")
            entries[key] = value
        return entries

    def items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode):
            self.fail(node, f"{what} must be a list", "start each entry with '- '")
        return list(node.value)

    def number(self, node: yaml.Node, what: str, *, positive: bool = False) -> float:
        try:
            value = float(node.value)
        except (TypeError, ValueError):
            self.fail(node, f"{what} must be a number")
        if not np.isfinite(value):
            self.fail(node, f"{what} is {node.value}, but it must be a finite number")
        if positive and value <= 0:
            self.fail(node, f"{what} is {node.value}, but a size must be more than 0")
        return value

    def numbers(self, node: yaml.Node, what: str, count: int, *, positive: bool = False) -> tuple[float, ...]:
        values = tuple(self.number(item, what, positive=positive) for item in self.items(node, what))
        if len(values) != count:
            self.fail(node, f"{what} has {len(values)} numbers, but it needs {count}")
        return values

    def yes(self, node: yaml.Node, what: str) -> bool:
        value = yaml.safe_load(yaml.serialize(node))
        if not isinstance(value, bool):
            self.fail(node, f"{what} must be true or false")
        return value

    def component(self, node: yaml.Node) -> str:
        if node.value not in self.names:
            close = difflib.get_close_matches(str(node.value), self.names, n=1)
            cure = f"did you mean {close[0]!r}?" if close else f"components: {', '.join(self.names)}"
            self.fail(node, f"{node.value!r} is not a component", cure)
        return str(node.value)

    # ------------------------------------------------------------------ the whole
    def product(self, root: yaml.MappingNode) -> Product:
        entries = {str(key.value): value for key, value in root.value}
        if "unit" in entries:
            unit = entries["unit"]
            if unit.value not in _UNITS:
                self.fail(unit, f"unit is {unit.value!r}", f"use one of: {', '.join(_UNITS)}")
            self.unit = _UNITS[unit.value]
        for name, node in self.table(entries.get("materials"), "materials").items():
            self.materials[name] = self.material(name, node)
        part_nodes = self.table(entries.get("parts"), "parts")
        for key, _ in entries["parts"].value:
            self.component(key)
        for name in self.names:
            if name not in part_nodes:
                self.fail(entries["parts"], f"component {name!r} has no part", f"add '{name}:' with its shape")
        parts = tuple(self.part(name, part_nodes[name]) for name in self.names)
        self.check_replacements(parts, part_nodes)
        return Product(parts, self.materials, self.procedure)

    def material(self, name: str, node: yaml.Node) -> Material:
        keys = ("hue", "saturation", "value", "shine")
        entries = self.table(node, f"material {name!r}", keys)
        for key in keys[:3]:
            if key not in entries:
                self.fail(node, f"material {name!r} has no {key!r}", f"add '{key}: [low, high]'")
        hue, saturation, value = (self.numbers(entries[key], f"{key} of {name!r}", 2) for key in keys[:3])
        shine = self.number(entries["shine"], "shine") if "shine" in entries else 0.3
        try:
            return Material(name, (hue[0], hue[1]), (saturation[0], saturation[1]), (value[0], value[1]), shine)
        except InputError as error:
            self.fail(node, error.problem)

    # ------------------------------------------------------------------ parts
    def part(self, name: str, node: yaml.Node) -> Part:
        entries = self.table(node, f"part {name!r}", _PART_KEYS)
        if "shape" not in entries or not self.items(entries["shape"], "shape"):
            self.fail(node, f"part {name!r} has no shape", "add 'shape:' with a list of primitives or mesh files")
        pieces = tuple(self.piece(item) for item in self.items(entries["shape"], "shape"))
        pose_44 = self.pose(entries)
        wrong = (
            tuple(self.wrong_pose(item, pose_44) for item in self.items(entries["wrong"], "wrong"))
            if ("wrong" in entries)
            else ()
        )
        approach = np.array(self.numbers(entries["approach"], "approach", 3) if "approach" in entries else (0, 0, 1.0))
        if np.linalg.norm(approach) == 0:
            self.fail(entries["approach"], "approach is [0, 0, 0], but it must be a direction")
        supports = tuple(self.component(item) for item in self.items(entries["on"], "on")) if "on" in entries else ()
        required = tuple(other for choice in self.procedure.order.get(name, ()) for other in choice)
        replaces = self.component(entries["replaces"]) if "replaces" in entries else None
        return Part(
            name=name,
            pieces=pieces,
            pose_44=pose_44,
            wrong_poses=wrong,
            rest_44=self.rest(merge([piece.mesh for piece in pieces]), entries.get("rest")),
            approach_3=(approach / np.linalg.norm(approach)).astype(np.float32),
            needs_tool=self.yes(entries["tool"], "tool") if "tool" in entries else False,
            sits_on=supports or required,
            replaces=replaces,
        )

    def pose(self, entries: dict[str, yaml.Node]) -> NDArray[np.float32]:
        x, y, z = self.numbers(entries["at"], "at", 3) if "at" in entries else (0.0, 0.0, 0.0)
        turn = self.numbers(entries["turn"], "turn", 3) if "turn" in entries else (0.0, 0.0, 0.0)
        return pose_matrix((x * self.unit, y * self.unit, z * self.unit), (turn[0], turn[1], turn[2]))

    def wrong_pose(self, node: yaml.Node, right_44: NDArray[np.float32]) -> WrongPose:
        """A wrong pose is told relative to the right one: turned about the part's own axes, shifted in the assembly."""
        entries = self.table(node, "a wrong pose", ("name", "shift", "turn"))
        if "name" not in entries or not ("shift" in entries or "turn" in entries):
            self.fail(node, "a wrong pose needs a name, and a shift or a turn")
        turn = self.numbers(entries["turn"], "turn", 3) if "turn" in entries else (0.0, 0.0, 0.0)
        pose_44 = right_44 @ pose_matrix((0.0, 0.0, 0.0), (turn[0], turn[1], turn[2]))
        if "shift" in entries:
            pose_44[:3, 3] += np.array(self.numbers(entries["shift"], "shift", 3), dtype=np.float32) * self.unit
        if np.allclose(pose_44, right_44, atol=1e-6):
            self.fail(node, f"the wrong pose {entries['name'].value!r} is the right one", "give a shift or a turn")
        return WrongPose(str(entries["name"].value), pose_44.astype(np.float32))

    def rest(self, mesh: Mesh, node: yaml.Node | None) -> NDArray[np.float32]:
        """The part turned by `rest` degrees, its middle over the origin, its lowest point on the table."""
        turn = self.numbers(node, "rest", 3) if node is not None else (0.0, 0.0, 0.0)
        pose_44 = pose_matrix((0.0, 0.0, 0.0), (turn[0], turn[1], turn[2]))
        vertices = mesh.moved(pose_44).vertices_V3
        low, high = vertices.min(axis=0), vertices.max(axis=0)
        pose_44[:3, 3] = [-(low[0] + high[0]) / 2, -(low[1] + high[1]) / 2, -low[2]]
        return pose_44

    def check_replacements(self, parts: Sequence[Part], nodes: dict[str, yaml.Node]) -> None:
        index = self.procedure.component_index
        for part in parts:
            if part.replaces is None:
                continue
            pair = index[part.name], index[part.replaces]
            for state in self.procedure.states:
                if state.bits is not None and state.bits[pair[0]] and state.bits[pair[1]]:
                    problem = f"state {state.name} has both {part.name!r} and {part.replaces!r}, which it replaces"
                    node = self.table(nodes[part.name], "part")["replaces"]
                    self.fail(node, problem, "remove the state or 'replaces'")

    # ------------------------------------------------------------------ pieces
    def piece(self, node: yaml.Node) -> Piece:
        kinds = [str(key.value) for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
        kind = next((key for key in kinds if key in PRIMITIVES or key == "file"), None)
        if kind is None:
            self.fail(node, "a piece has no shape", f"use one of: file, {', '.join(PRIMITIVES)}")
        entries = self.table(node, f"a piece ({kind})", (*_PIECE_KEYS, kind))
        if "material" not in entries:
            self.fail(node, "a piece has no material", "add 'material: NAME'")
        material = str(entries["material"].value)
        if material not in self.materials:
            self.fail(entries["material"], f"unknown material {material!r}", f"known: {', '.join(self.materials)}")
        mesh = self.file(entries) if kind == "file" else self.primitive(kind, entries[kind])
        return Piece(mesh.moved(self.pose(entries)), material)

    def primitive(self, kind: str, node: yaml.Node) -> Mesh:
        make, required, optional = PRIMITIVES[kind]
        entries = self.table(node, kind, sorted(required | optional))
        for key in required:
            if key not in entries:
                self.fail(node, f"a {kind} has no {key!r}", f"it has: {', '.join(sorted(required | optional))}")
        sizes: dict[str, Any] = {}
        for key, value in entries.items():
            if key == "size":
                sizes[key] = tuple(n * self.unit for n in self.numbers(value, "size", 3, positive=True))
            elif key == "holes":
                sizes[key] = [[n * self.unit for n in self.numbers(i, "a hole", 2)] for i in self.items(value, "holes")]
            else:
                sizes[key] = self.number(value, key, positive=True) * self.unit
        for inner, outer in (("inner_radius", "radius"), ("hub_radius", "radius")):
            if inner in sizes and sizes[inner] >= sizes[outer]:
                self.fail(entries[inner], f"{inner} must be less than {outer}")
        return make(**sizes)

    def file(self, entries: dict[str, yaml.Node]) -> Mesh:
        node = entries["file"]
        path = self.path.parent / str(node.value)
        scale = self.number(entries["scale"], "scale", positive=True) if "scale" in entries else self.unit
        limit = _DEFAULT_MAX_TRIANGLES
        if "max_triangles" in entries:
            limit = int(self.number(entries["max_triangles"], "max_triangles", positive=True))
        if not path.is_file():
            self.fail(node, f"mesh file {path} not found", "give a path relative to the product file")
        return load_mesh(path, scale, limit)
