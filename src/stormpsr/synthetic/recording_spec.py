"""What a recording and a set of recordings are made from: everything that decides their bytes, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stormpsr.errors import InputError
from stormpsr.synthetic.actions import ErrorRates
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import profile_named

SPLITS = ("train", "val", "test")
MIN_SIZE, MAX_SIZE = 16, 2048


@dataclass(frozen=True)
class RecordingSpec:
    """One recording. Two specs that are equal give the same bytes on the same machine."""

    id: str
    split: str
    seed: int
    product: str  # name of a shipped product, or the path of a file
    product_digest: str  # so that a changed product is not mistaken for the same
    variant: str
    profile: str
    size: int  # width and height of the image in pixels
    occlusion: float
    rates: ErrorRates
    video: bool  # one MP4 file instead of single frames
    max_seconds: float | None = None  # cut the recording here

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RecordingSpec:
        return cls(**{**data, "rates": ErrorRates(**data["rates"])})


@dataclass(frozen=True)
class DatasetSpec:
    """A set of recordings."""

    product: str
    product_digest: str
    profile: str
    size: int
    seed: int
    counts: Mapping[str, int]  # recordings per split
    occlusion: float
    rates: Mapping[str, ErrorRates]  # per split
    video: bool = False
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        profile_named(self.profile)
        if not MIN_SIZE <= self.size <= MAX_SIZE or self.size % 2:
            cure = f"choose an even number from {MIN_SIZE} to {MAX_SIZE}"
            raise InputError(f"the image size is {self.size} pixels", cure=cure)
        if self.seed < 0:
            raise InputError(f"the seed is {self.seed}", cure="it must not be negative")
        if not 0.0 <= self.occlusion <= 1.0:
            raise InputError(f"occlusion is {self.occlusion}", cure="it lies between 0 (little is hidden) and 1")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise InputError(f"the greatest length is {self.max_seconds} s", cure="it must be more than 0")
        for split, count in self.counts.items():
            if count < 0:
                raise InputError(f"{count} recordings for {split}", cure="a count must not be negative")
        if not any(self.counts.values()):
            raise InputError("no recordings are asked for", cure="give --train, --val or --test")
        for split, rates in self.rates.items():
            for name, rate in asdict(rates).items():
                if not 0.0 <= rate <= 1.0:
                    raise InputError(f"{name} of {split} is {rate}", cure="rates lie between 0 and 1")

    def recordings(self, product: Product) -> list[RecordingSpec]:
        """All recordings of the set. Each depends on its split and number only, not on how many others there are."""
        variants = list(product.procedure().variants)
        specs = []
        for code, split in enumerate(SPLITS):
            for index in range(self.counts.get(split, 0)):
                seed = np.random.SeedSequence([self.seed, code, index]).generate_state(1)[0]
                variant = variants[index % len(variants)]  # in turn, so that every split has all of them
                specs.append(
                    RecordingSpec(
                        id=f"{index + 1:02d}_{variant}_{code}_1",
                        split=split,
                        seed=int(seed),
                        product=self.product,
                        product_digest=self.product_digest,
                        variant=variant,
                        profile=self.profile,
                        size=self.size,
                        occlusion=self.occlusion,
                        rates=self.rates[split],
                        video=self.video,
                        max_seconds=self.max_seconds,
                    )
                )
        return specs

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def product_digest(product: Product) -> str:
    """A fingerprint of everything about a product that can change a recording."""
    digest = hashlib.sha256()
    for part in product.parts:
        digest.update(part.name.encode())
        for piece in part.pieces:
            digest.update(piece.mesh.vertices_V3.tobytes() + piece.material.encode())
        for matrix in (part.pose_44, part.rest_44, part.approach_3, *(wrong.pose_44 for wrong in part.wrong_poses)):
            digest.update(np.ascontiguousarray(matrix, dtype=np.float32).tobytes())
        digest.update(repr((part.needs_tool, part.sits_on, part.replaces)).encode())
    procedure = product.procedure()
    digest.update(repr((procedure.states, dict(procedure.variants), procedure.order, product.materials)).encode())
    return digest.hexdigest()[:16]
