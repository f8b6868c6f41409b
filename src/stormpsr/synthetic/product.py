# mypy: disallow-subclassing-any=False, disallow-untyped-decorators=False
"""A product: what is assembled, as data. The procedure it follows, the shape of every part, where it goes.

`Product.load("vehicle")` reads a shipped product, `Product.load("my/product.yaml")` a file of your own. The file is
a procedure file (components, states, variants, order) with three more keys: `unit`, `materials` and `parts`;
`docs/products.md` describes them. Reading it needs no renderer.

Frames: a part's shape is given in the part's own frame, its `pose_44` takes it to the assembly's frame, in which the
finished product stands on z = 0 around the origin. Lengths are metres.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateKind
from stormpsr.procedure.reader import PRODUCT_KEYS, check_procedure
from stormpsr.synthetic.meshes import PRIMITIVES, Mesh, load_mesh, merge, pose_matrix
from stormpsr.yaml_loader import ComplaintError, Document, guess, read_yaml, validate

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
    unseen: bool = False  # kept from training, to measure what a recogniser makes of faults that it has never seen


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

    def wrong_choices(self, unseen: bool = False) -> list[int]:
        """Numbers of the wrong poses that are drawn: those for training, or those that are kept from it."""
        return [number for number, wrong in enumerate(self.wrong_poses) if wrong.unseen == unseen]

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
    def marks_33(self) -> Floats:
        """Three points of the part that tell its pose: its middle, and the middles of two sides, the farthest ones."""
        middle, half_3 = self.bounds_23.mean(axis=0), (self.bounds_23[1] - self.bounds_23[0]) / 2
        sides = [middle + half_3 * (np.arange(3) == axis) for axis in np.argsort(-half_3, kind="stable")[:2]]
        return np.asarray([middle, *sides], dtype=np.float32)

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
    procedure: Procedure  # what is known without the shape: components, states, variants, order

    @classmethod
    def load(cls, source: str | Path) -> Product:
        """A shipped product by name, or one from a YAML file; an `InputError` names the line of what is wrong."""
        path = product_path(source)
        document = read_yaml(path, as_text=True)
        if not isinstance(document.data, dict):
            raise InputError("the file holds no product", path=path, line=1, cure="see the documentation on products")
        own = {key: value for key, value in document.data.items() if key in PRODUCT_KEYS}
        file = validate(_File, Document(own, path, document.lines))
        procedure, problems = check_procedure(document)
        if problems or procedure is None:
            problems[0].raise_error(path)
        return _Reader(path, document, procedure, file).product()

    @property
    def n_components(self) -> int:
        return len(self.parts)

    def summary(self) -> str:
        """A product in half a line."""
        length, width, height = (round(1000 * float(side)) for side in self.bounds_23[1] - self.bounds_23[0])
        n_wrong = sum(len(part.wrong_poses) for part in self.parts)
        n_states = sum(state.bits is not None for state in self.procedure.states)
        return f"{len(self.parts)} parts, {n_states} states, {n_wrong} wrong poses, {length} x {width} x {height} mm"

    def part(self, name: str) -> Part:
        return self.parts[self.procedure.component_index[name]]

    @cached_property
    def bounds_23(self) -> Floats:
        """Lowest and highest corner of the finished product in the assembly's frame."""
        seated = np.concatenate([part.mesh.moved(part.pose_44).vertices_V3 for part in self.parts])
        return np.stack([seated.min(axis=0), seated.max(axis=0)])

    def pose_of(self, component_index: int, bit: int, wrong_choice: int = 0) -> Floats:
        """Where a seated (1) or wrongly seated (-1) component is, in the assembly's frame."""
        part = self.parts[component_index]
        return part.wrong_poses[wrong_choice].pose_44 if bit == -1 else part.pose_44

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
        index = self.procedure.component_index
        return not any(self._share(other, support) and bits[index[other.name]] != 0 for other in others)

    @staticmethod
    def _share(one: Part, other: Part) -> bool:
        """Whether two parts go to the same place."""
        return one.replaces == other.name or other.replaces == one.name


# ---------------------------------------------------------------------- what a file looks like
_UNITS = {"m": 1.0, "cm": 0.01, "mm": 0.001}
Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e6, le=1e6)]  # of millimetres or degrees
Size = Annotated[float, Field(allow_inf_nan=False, gt=0, le=1e6)]
Pair = tuple[Number, Number]
Triple = tuple[Number, Number, Number]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Placed(_Table):
    """Something that is shifted and turned."""

    at: Triple = (0.0, 0.0, 0.0)
    turn: Triple = (0.0, 0.0, 0.0)

    def pose_44(self, unit: float) -> Floats:
        x, y, z = self.at
        return pose_matrix((x * unit, y * unit, z * unit), self.turn)


class _PieceBase(_Placed):
    """A mesh file, or one of the primitives, which are fields of their own."""

    material: str
    file: str | None = None
    scale: Size | None = None
    max_triangles: Annotated[int, Field(ge=1)] = 1200

    @model_validator(mode="after")
    def _has_one_shape(self) -> _PieceBase:
        if sum(getattr(self, kind) is not None for kind in ("file", *PRIMITIVES)) != 1:
            raise ComplaintError("a piece needs one shape", f"use one of: file, {', '.join(PRIMITIVES)}")
        return self


def _sizes_of(kind: str) -> Any:
    """The class of a primitive's sizes: the parameters of the function that makes it."""
    types = {"size": tuple[Size, Size, Size], "holes": list[Pair]}
    sizes: dict[str, Any] = {
        name: (types.get(name, Size), ... if size.default is size.empty else None)
        for name, size in signature(PRIMITIVES[kind]).parameters.items()
    }
    return create_model(kind, __base__=_Table, **sizes)


if TYPE_CHECKING:
    _Piece = _PieceBase
else:
    _Piece = create_model("_Piece", __base__=_PieceBase, **{kind: (_sizes_of(kind), None) for kind in PRIMITIVES})


class _Wrong(_Table):
    name: str
    shift: Triple = (0.0, 0.0, 0.0)
    turn: Triple = (0.0, 0.0, 0.0)
    unseen: bool = False


class _Part(_Placed):
    shape: Annotated[list[_Piece], Field(min_length=1)]
    wrong: list[_Wrong] = []
    rest: Triple = (0.0, 0.0, 0.0)
    approach: Triple = (0.0, 0.0, 1.0)
    tool: bool = False
    on: list[str] = []
    replaces: str | None = None


class _Material(_Table):
    hue: Pair
    saturation: Pair
    value: Pair
    shine: Number = 0.3


class _File(_Table):
    """What a product's file has on top of a procedure's."""

    unit: Literal["m", "cm", "mm"] = "m"
    materials: dict[str, _Material]
    parts: dict[str, _Part]


# ---------------------------------------------------------------------- reading
def shipped_products() -> list[str]:
    """Names of the products that come with the package."""
    return sorted(path.stem for path in Path(__file__).with_name("products").glob("*.yaml"))


def product_path(source: str | Path) -> Path:
    """The file of a shipped product by name, or the one that is given."""
    path = Path(source)
    if str(source) in shipped_products():
        path = Path(__file__).with_name("products") / f"{source}.yaml"
    if not path.is_file():
        known = ", ".join(shipped_products())
        raise InputError(f"no product {str(source)!r}", cure=f"give the path of a YAML file or one of: {known}")
    return path


def product_warnings(product: Product) -> list[str]:
    """What is allowed in a product, but hardly meant: mostly a wrong unit, or a pose that was forgotten."""
    found = []
    low, high = product.bounds_23
    length = float(np.max(high - low))
    if not 0.03 <= length <= 0.6:
        found.append(
            f"the finished product is {1000 * length:.0f} mm long: the camera is made for 30 to 600 mm; see 'unit'"
        )
    if abs(float(low[2])) > 0.005:
        found.append(f"the finished product stands {1000 * float(low[2]):+.0f} mm above the table, not on z = 0")
    middle = (low + high)[:2] / 2
    if float(np.abs(middle).max()) > max(0.25 * length, 0.01):
        x, y = (1000 * float(value) for value in middle)
        found.append(f"the middle of the finished product is at ({x:.0f}, {y:.0f}) mm, not around the origin")
    found += [
        f"{part.name!r} is {2000 * part.radius:.1f} mm large: nobody will see it; see 'unit' or 'scale'"
        for part in product.parts
        if 2 * part.radius < 0.004
    ]
    can_be_wrong = any(part.wrong_poses for part in product.parts)
    has_error_class = any(state.kind is StateKind.ERROR for state in product.procedure.states)
    if has_error_class and not can_be_wrong:
        found.append("there is an error class, but no part has a wrong pose: add some under 'wrong'")
    if can_be_wrong and not has_error_class:
        found.append("parts have wrong poses, but the procedure has no error class: add 'error' to 'states'")
    return found


class _Reader:
    """Makes a product of what the file says."""

    def __init__(self, path: Path, document: Document, procedure: Procedure, file: _File) -> None:
        self.path, self.document, self.procedure, self.file = path, document, procedure, file
        self.names = [component.name for component in procedure.components]
        self.unit = _UNITS[file.unit]

    def component(self, name: str, *place: str | int) -> str:
        if name not in self.names:
            cure = guess(name, self.names, f"components: {', '.join(self.names)}")
            raise self.document.error(f"{name!r} is not a component", place, cure)
        return name

    def product(self) -> Product:
        materials = {name: self.material(name, own) for name, own in self.file.materials.items()}
        for name in self.file.parts:
            self.component(name, "parts", name)
        for name in self.names:
            if name not in self.file.parts:
                cure = f"add '{name}:' with its shape"
                raise self.document.error(f"component {name!r} has no part", ("parts",), cure)
        parts = tuple(self.part(name, self.file.parts[name]) for name in self.names)
        self.check_replacements(parts)
        return Product(parts, materials, self.procedure)

    def material(self, name: str, own: _Material) -> Material:
        try:
            return Material(name, **dict(own))
        except InputError as error:
            raise self.document.error(error.problem, ("materials", name)) from error

    def part(self, name: str, own: _Part) -> Part:
        pieces = tuple(self.piece(piece, "parts", name, "shape", n) for n, piece in enumerate(own.shape))
        pose_44 = own.pose_44(self.unit)
        length = np.linalg.norm(own.approach)
        if length == 0:
            problem = "approach is [0, 0, 0], but it must be a direction"
            raise self.document.error(problem, ("parts", name, "approach"))
        supports = tuple(self.component(other, "parts", name, "on", n) for n, other in enumerate(own.on))
        required = tuple(other for choice in self.procedure.order.get(name, ()) for other in choice)
        if own.replaces is not None:
            self.component(own.replaces, "parts", name, "replaces")
        wrong = (self.wrong_pose(entry, pose_44, "parts", name, "wrong", n) for n, entry in enumerate(own.wrong))
        return Part(
            name=name,
            pieces=pieces,
            pose_44=pose_44,
            wrong_poses=tuple(wrong),
            rest_44=_rest(merge([piece.mesh for piece in pieces]), own.rest),
            approach_3=(np.array(own.approach) / length).astype(np.float32),
            needs_tool=own.tool,
            sits_on=supports or required,
            replaces=own.replaces,
        )

    def wrong_pose(self, own: _Wrong, right_44: Floats, *place: str | int) -> WrongPose:
        """A wrong pose is told relative to the right one: turned about the part's own axes, shifted in the assembly."""
        pose_44 = right_44 @ pose_matrix((0.0, 0.0, 0.0), own.turn)
        pose_44[:3, 3] += np.array(own.shift, dtype=np.float32) * self.unit
        if np.allclose(pose_44, right_44, atol=1e-6):
            problem = f"the wrong pose {own.name!r} is the right one"
            raise self.document.error(problem, place, "give a shift or a turn")
        return WrongPose(own.name, pose_44.astype(np.float32), own.unseen)

    def check_replacements(self, parts: Sequence[Part]) -> None:
        index = self.procedure.component_index
        for part in (part for part in parts if part.replaces is not None):
            for bits, state in ((state.bits, state) for state in self.procedure.states if state.bits is not None):
                if bits[index[part.name]] and bits[index[str(part.replaces)]]:
                    problem = f"state {state.name} has both {part.name!r} and {part.replaces!r}, which it replaces"
                    place = ("parts", part.name, "replaces")
                    raise self.document.error(problem, place, "remove the state or 'replaces'")

    def piece(self, own: _Piece, *place: str | int) -> Piece:
        if own.material not in self.file.materials:
            cure = f"known: {', '.join(self.file.materials)}"
            raise self.document.error(f"unknown material {own.material!r}", (*place, "material"), cure)
        mesh = self.primitive(own, *place) if own.file is None else self.mesh_file(own, own.file, *place)
        return Piece(mesh.moved(own.pose_44(self.unit)), own.material)

    def primitive(self, own: _Piece, *place: str | int) -> Mesh:
        ((kind, given),) = own.model_dump(include=set(PRIMITIVES), exclude_unset=True, exclude_none=True).items()
        sizes = {key: _scaled(value, self.unit) for key, value in given.items()}
        for inner in ("inner_radius", "hub_radius"):
            if inner in sizes and sizes[inner] >= sizes["radius"]:
                raise self.document.error(f"{inner} must be less than radius", (*place, kind, inner))
        return PRIMITIVES[kind](**sizes)

    def mesh_file(self, own: _Piece, file: str, *place: str | int) -> Mesh:
        path = self.path.parent / file
        if not path.is_file():
            cure = "give a path relative to the product file"
            raise self.document.error(f"mesh file {path} not found", (*place, "file"), cure)
        return load_mesh(path, own.scale or self.unit, own.max_triangles)


def _rest(mesh: Mesh, turn: tuple[float, float, float]) -> Floats:
    """The part turned by `rest` degrees, its middle over the origin, its lowest point on the table."""
    pose_44 = pose_matrix((0.0, 0.0, 0.0), turn)
    vertices = mesh.moved(pose_44).vertices_V3
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    pose_44[:3, 3] = [-(low[0] + high[0]) / 2, -(low[1] + high[1]) / 2, -low[2]]
    return pose_44


def _scaled(value: Any, unit: float) -> Any:
    """A size, or sizes in tuples and lists, in metres."""
    return value * unit if isinstance(value, float) else type(value)(_scaled(item, unit) for item in value)
