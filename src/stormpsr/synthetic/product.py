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
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError
from stormpsr.procedure import Procedure
from stormpsr.synthetic.meshes import Mesh, merge

__all__ = ["Material", "Part", "Piece", "Product", "WrongPose"]

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
        from stormpsr.synthetic.product_file import load_product

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
