"""Single renders of every state a detector knows: the synthetic images that key-frame sampling and detectors take.

    OUT/images/<class>_<number>.jpg      random pose, light, background and partly hands
    OUT/annotations.json                 COCO: one box per picture, its category is the state's class
    OUT/procedure.yaml, OUT/states.json  what the classes mean, and what the pictures were made from

Class 0, the background, gets no pictures of its own. Of the error class every picture shows another assembly state in
which one or two mounted parts are in one of their wrong poses.

People pass through many more states than a detector has classes for. `walks` adds pictures of such states, each drawn
from an invented run of the procedure in which much goes wrong. A state without a class has the category `unlisted`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stormpsr import __version__
from stormpsr.errors import InputError
from stormpsr.procedure import AssemblyState, StateBits, StateKind, StepKind
from stormpsr.synthetic.actions import ErrorRates, draw_actions
from stormpsr.synthetic.plan import random_stream
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.recording_files import coco_annotation
from stormpsr.synthetic.recording_spec import product_digest

__all__ = ["ANNOTATIONS_FILE", "UNLISTED", "draw_states", "wrong_variant"]

ANNOTATIONS_FILE = "annotations.json"
STATES_FILE = "states.json"
UNLISTED = "unlisted"  # name of the category of states that no detector knows
_PICTURES_PER_LOOK = 5
_WALK_RATES = ErrorRates(error_rate=0.25, removal_rate=0.25, omission_rate=0.1, uncorrected_share=0.5)


def wrong_variant(product: Product, known: Sequence[StateBits], rng: np.random.Generator) -> StateBits:
    """A known state with one part in a wrong pose, sometimes two."""
    candidates = [bits for bits in known if _can_be_wrong(product, bits)]
    if not candidates:
        raise InputError(f"no part of {product.name!r} has a wrong pose", cure="add one under 'wrong' to the product")
    bits = list(candidates[int(rng.integers(len(candidates)))])
    loose = _can_be_wrong(product, bits)
    for k in rng.permutation(loose)[: 2 if rng.random() < 0.2 else 1]:
        bits[int(k)] = -1
    return tuple(bits)


def _can_be_wrong(product: Product, bits: Sequence[int]) -> list[int]:
    return [k for k, bit in enumerate(bits) if bit == 1 and product.parts[k].wrong_poses]


def draw_states(
    out: Path,
    source: str,
    *,
    per_state: int,
    size: int,
    seed: int,
    hands: float = 0.5,
    walks: int = 0,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """Draw `per_state` pictures of every class, and `walks` of states that people pass through.

    The folder is there when all of them are, and not before.
    """
    from stormpsr.synthetic.single_states import StateRenderer

    if per_state < 0 or walks < 0 or per_state + walks < 1:
        raise InputError(f"{per_state} pictures per state and {walks} of walks", cure="at least one is needed")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("the output is there already", path=out, cure="choose another output folder, or delete it")
    product = Product.load(source)
    jobs = [*_jobs(product, per_state, seed), *_walk_jobs(product, walks, seed)]
    draft = out.with_name(f".{out.name}.part{os.getpid()}")
    try:
        (draft / "images").mkdir(parents=True)
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        with StateRenderer(product, size) as renderer:
            for number, (name, state_class, bits, picture_seed) in enumerate(jobs):
                look = jobs[number - number % _PICTURES_PER_LOOK][3]
                frame = renderer.render(bits, picture_seed, hands, look)
                (draft / "images" / name).write_bytes(renderer.encode(frame))
                images.append({"id": number, "file_name": f"images/{name}", "width": size, "height": size})
                if frame.box is not None:
                    annotations.append(coco_annotation(len(annotations) + 1, number, state_class, frame.box))
                    annotations[-1]["state"] = list(bits)
                if number % 20 == 19 or number == len(jobs) - 1:
                    on_progress(number + 1, len(jobs))
        categories = [{"id": s.state_class, "name": s.name} for s in _drawn(product)]
        if walks:
            categories.append({"id": len(product.procedure().states), "name": UNLISTED})
        description = {
            "version": __version__,
            "product": source,
            "product_digest": product_digest(product),
            "per_state": per_state,
            "walks": walks,
            "size": size,
            "seed": seed,
            "hands": hands,
            "pictures": len(images),
            "without_box": len(images) - len(annotations),
        }
        coco = {"images": images, "annotations": annotations, "categories": categories}
        (draft / ANNOTATIONS_FILE).write_text(json.dumps(coco) + "\n", encoding="utf-8")
        (draft / STATES_FILE).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        product.procedure().save(draft / "procedure.yaml")
        if out.exists():
            out.rmdir()
        draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return description


def _drawn(product: Product) -> list[AssemblyState]:
    """The classes that get pictures."""
    return [state for state in product.procedure().states if state.kind is not StateKind.BACKGROUND]


def _jobs(product: Product, per_state: int, seed: int) -> list[tuple[str, int, StateBits, int]]:
    """File name, class, state and seed of every picture."""
    known = [state.bits for state in product.procedure().states if state.bits is not None]
    jobs = []
    for state in _drawn(product):
        rng = random_stream(seed, f"state {state.state_class}")
        for number in range(per_state):
            bits = state.bits if state.bits is not None else wrong_variant(product, known, rng)
            name = f"{state.state_class:02d}_{number:05d}.jpg"
            jobs.append((name, state.state_class, bits, int(rng.integers(2**31))))
    return jobs


def _walk_jobs(product: Product, walks: int, seed: int) -> list[tuple[str, int, StateBits, int]]:
    """The same for states in the middle of invented runs of the procedure."""
    procedure = product.procedure()
    rng = random_stream(seed, "walks")
    variants = list(procedure.variants.values())
    jobs = []
    for number in range(walks):
        variant = variants[int(rng.integers(len(variants)))]
        tidiness, together = float(rng.uniform(0.2, 1.0)), float(rng.uniform(0.0, 0.5))
        actions = draw_actions(product, variant, _WALK_RATES, together_rate=together, tidiness=tidiness, rng=rng)
        bits = list(variant.initial)
        for action in actions[: int(rng.integers(len(actions) + 1))]:
            for k in action.components:
                bits[k] = {StepKind.INSTALL: 1, StepKind.INCORRECT: -1, StepKind.REMOVE: 0}[action.kind]
        known = procedure.state_class(bits)
        state_class = len(procedure.states) if known is None else known
        jobs.append((f"walk_{number:05d}.jpg", state_class, tuple(bits), int(rng.integers(2**31))))
    return jobs
