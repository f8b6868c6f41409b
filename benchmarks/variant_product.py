"""The shipped vehicle as another maker would build it: shorter and taller, larger wheels, other colours, same steps.

    python benchmarks/variant_product.py variant.yaml

A model of the vehicle knows its steps and has never seen its parts: what `stormpsr learn` is for.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from script import errors_in_one_line, make_parser
from stormpsr.files import write_text
from stormpsr.synthetic import product as products

LONGER, TALLER, LARGER_WHEELS = 0.86, 1.25, 1.2
MATERIALS = {
    "dark plastic": {"hue": [0.02, 0.1], "saturation": [0.5, 0.8], "value": [0.45, 0.7], "shine": 0.3},
    "grey metal": {"hue": [0.28, 0.42], "saturation": [0.3, 0.6], "value": [0.3, 0.5], "shine": 0.3},
    "steel": {"hue": [0.08, 0.16], "saturation": [0.4, 0.7], "value": [0.6, 0.85], "shine": 0.8},
    "rubber": {"hue": [0.0, 1.0], "saturation": [0.0, 0.2], "value": [0.6, 0.85], "shine": 0.1},
    "paint": {"hue": [0.6, 0.72], "saturation": [0.5, 0.9], "value": [0.4, 0.8], "shine": 0.5},
}


def variant_of(vehicle: dict[str, Any]) -> dict[str, Any]:
    """The product file of the vehicle with other sizes and colours; procedure and wrong poses stay."""
    parts = {}
    for name, part in vehicle["parts"].items():
        shape = [_stretched(piece) for piece in part["shape"]]
        parts[name] = {**part, "shape": shape, **({"at": _moved(part["at"])} if "at" in part else {})}
    return {**vehicle, "title": "Construction-set vehicle of another maker", "materials": MATERIALS, "parts": parts}


def _moved(at: Sequence[float]) -> list[float]:
    return [round(at[0] * LONGER, 2), at[1], round(at[2] * TALLER, 2)]


def _stretched(piece: dict[str, Any]) -> dict[str, Any]:
    found = dict(piece)
    for kind in ("box", "plate"):
        if kind in piece:
            found[kind] = {**piece[kind], "size": _moved(piece[kind]["size"])}
            if "holes" in piece[kind]:
                found[kind]["holes"] = [[round(x * LONGER, 2), y] for x, y in piece[kind]["holes"]]
    if "wheel" in piece:
        found["wheel"] = {**piece["wheel"], "radius": round(piece["wheel"]["radius"] * LARGER_WHEELS, 2)}
    return {**found, **({"at": _moved(piece["at"])} if "at" in piece else {})}


def main(words: Sequence[str]) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("out", type=Path, help="product file to write")
    arguments = parser.parse_args(words)
    source = Path(products.__file__).with_name("products") / "vehicle.yaml"
    with errors_in_one_line():
        text = yaml.safe_dump(variant_of(yaml.safe_load(source.read_text(encoding="utf-8"))), sort_keys=False)
        write_text(arguments.out, text)
        products.Product.load(arguments.out)


if __name__ == "__main__":
    main(sys.argv[1:])
