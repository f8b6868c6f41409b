"""Single images of every state a detector knows, for key-frame sampling and detectors.

    OUT/images/<class>_<number>.jpg      random pose, light, background and partly hands
    OUT/annotations.json                 COCO: one box per image, its category is the state's class
    OUT/visibility.csv                   how much of each part shows, a row per image
    OUT/procedure.yaml, OUT/states.json  what the classes mean, and what the images were made from

Class 0, the background, gets no images of its own. Of the error class every image shows another assembly state in
which one or two mounted parts are in one of their wrong poses.

People pass through many more states than a detector has classes for. `walks` adds images of such states, each drawn
from an invented run of the procedure in which much goes wrong. A state without a class has the category `unlisted`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr import __version__
from stormpsr.data.coco import ANNOTATIONS_FILE, UNLISTED, Coco, CocoBox, CocoImage, state_categories
from stormpsr.data.places import N_POINTS, write_places
from stormpsr.data.visibility import VISIBILITY_FILE, Visibility, write_visibility
from stormpsr.errors import InputError
from stormpsr.files import replacing, replacing_folder, write_json
from stormpsr.procedure.model import Procedure, StateBits, StateKind, Step, bit_string
from stormpsr.synthetic import motion
from stormpsr.synthetic.actions import ErrorRates, draw_actions
from stormpsr.synthetic.look import Look, check_difficulty
from stormpsr.synthetic.meshes import pose_matrix
from stormpsr.synthetic.plan import random_stream
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.recording import product_digest
from stormpsr.synthetic.render import RenderedFrame, Renderer
from stormpsr.synthetic.stage import PartPlace, Timeline

Floats = NDArray[np.float32]


class StateRenderer:
    """Draws states of one product, each image with a look, a view and hands of its own, in one window."""

    def __init__(self, product: Product, size: int | tuple[int, int] = 128, difficulty: float = 0.0) -> None:
        self.product, self.difficulty = product, difficulty
        self._renderer = Renderer(product, Look.draw(product, 0), size)
        self._look: int | None = None

    def __enter__(self) -> StateRenderer:
        return self

    def __exit__(self, *_: object) -> None:
        self._renderer.close()

    def render(self, bits: Sequence[int], seed: int, hands: float = 0.5, look: int | None = None) -> RenderedFrame:
        """An image of the state (per component 1 seated, 0 absent, -1 wrong).

        `hands` from 0 to 1 is the probability of each hand, and how far it reaches over the object. Components that
        are absent lie somewhere on the table, or not. Images with the same `look` (by default the seed) share
        colours, light and background; a new look takes longer than an image.
        """
        look = seed if look is None else look
        if look != self._look:
            self._renderer.set_look(Look.draw(self.product, look, difficulty=self.difficulty))
            self._look = look
        return self._renderer.render(state_timeline(self.product, bits, seed, hands), 0)

    def encode(self, frame: RenderedFrame) -> bytes:
        return self._renderer.encode(frame)


def state_timeline(product: Product, bits: Sequence[int], seed: int, hands: float = 0.5) -> Timeline:
    """A timeline of one frame that shows a state from a random viewpoint."""
    state = product.procedure.check_bits(bits)
    for k, bit in enumerate(state):
        if bit == -1 and not product.parts[k].wrong_choices():
            raise InputError(f"component {product.parts[k].name!r} has no wrong pose", cure="add one under 'wrong'")
    if not 0 <= hands <= 1:
        raise InputError(f"hands is {hands}, but it must be from 0 to 1")
    rng = np.random.default_rng((seed, 1))
    object_44 = _random_object(rng)
    middle = (object_44 @ np.append(product.bounds_23.mean(axis=0), 1.0))[:3]
    camera_44 = _random_camera(rng, middle)
    places, poses, choices = _random_parts(rng, product, state)
    hand_poses, elbows, curls, visible = _random_hands(rng, middle, hands)
    tool_44 = pose_matrix(tuple(middle + rng.normal(0, 0.05, 3)), tuple(rng.uniform((0, 20, 0), (0, 90, 360))))
    return Timeline(
        fps=product.procedure.fps,
        camera_pose_F44=camera_44[None],
        object_pose_F44=object_44[None],
        part_place_FC=places[None],
        part_pose_FC44=poses[None],
        wrong_choice_FC=choices[None],
        hand_pose_FH44=hand_poses[None],
        hand_curl_FH=curls[None],
        hand_visible_FH=visible[None],
        elbow_FH3=elbows[None],
        tool_pose_F44=tool_44[None],
        tool_visible_F=np.array([bool(visible.any() and rng.random() < 0.15)]),
        activity_F=np.zeros(1, dtype=np.uint8),
    )


def sheet_timeline(product: Product, bits: Sequence[int], wrong_choice: int = 0) -> Timeline:
    """A timeline of one frame that shows a state from the person's side, nothing else on the table, no hands."""
    n = product.n_components
    places = [{0: PartPlace.AWAY, 1: PartPlace.SEATED, -1: PartPlace.WRONG}[bit] for bit in bits]
    middle_3 = product.bounds_23.mean(axis=0)
    radius = float(np.linalg.norm(product.bounds_23[1] - product.bounds_23[0]) / 2)
    elevation, azimuth = np.deg2rad(38.0), np.deg2rad(-60.0)
    away = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
    eye_44, nothing_44 = np.eye(4, dtype=np.float32), np.tile(np.eye(4, dtype=np.float32), (2, 1, 1))
    return Timeline(
        fps=product.procedure.fps,
        camera_pose_F44=look_at(middle_3 + max(1.9 * radius, 0.1) * away, middle_3)[None],
        object_pose_F44=eye_44[None],
        part_place_FC=np.array([places], dtype=np.uint8),
        part_pose_FC44=np.tile(eye_44, (1, n, 1, 1)),
        wrong_choice_FC=np.full((1, n), wrong_choice, dtype=np.uint8),
        hand_pose_FH44=nothing_44[None],
        hand_curl_FH=np.zeros((1, 2), dtype=np.float32),
        hand_visible_FH=np.zeros((1, 2), dtype=np.bool_),
        elbow_FH3=np.zeros((1, 2, 3), dtype=np.float32),
        tool_pose_F44=eye_44[None],
        tool_visible_F=np.zeros(1, dtype=np.bool_),
        activity_F=np.zeros(1, dtype=np.uint8),
    )


def look_at(eye_3: NDArray[np.floating], target_3: NDArray[np.floating], roll_degrees: float = 0.0) -> Floats:
    """A camera pose at `eye_3` that looks at `target_3`, with the world's z up in the image."""
    return motion.look_at(eye_3, target_3).astype(np.float32) @ pose_matrix((0, 0, 0), (0, 0, roll_degrees))


def _random_object(rng: np.random.Generator) -> Floats:
    """On the table, or now and then lifted and tilted, turned anyhow."""
    lifted = rng.random() < 0.35
    height = rng.uniform(0.03, 0.14) if lifted else 0.0
    tilt_x, tilt_y = rng.normal(0, 16, 2) if lifted else (0.0, 0.0)
    at = (float(rng.normal(0, 0.03)), float(rng.normal(0, 0.03)), float(height))
    return pose_matrix(at, (float(tilt_x), float(tilt_y), float(rng.uniform(0, 360))))


def _random_camera(rng: np.random.Generator, middle_3: Floats) -> Floats:
    distance, elevation = rng.uniform(0.32, 0.46), np.deg2rad(rng.uniform(35, 68))
    azimuth = np.deg2rad(-90 + rng.normal(0, 18))
    away = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
    target = middle_3 + np.append(rng.normal(0, 0.035, 2), 0.0)
    return look_at(middle_3 + distance * away, target, float(rng.normal(0, 5)))


def _random_parts(
    rng: np.random.Generator, product: Product, state: tuple[int, ...]
) -> tuple[NDArray[np.uint8], Floats, NDArray[np.uint8]]:
    places = np.zeros(product.n_components, dtype=np.uint8)
    poses = np.tile(np.eye(4, dtype=np.float32), (product.n_components, 1, 1))
    choices = np.zeros(product.n_components, dtype=np.uint8)
    for k, (part, bit) in enumerate(zip(product.parts, state, strict=True)):
        if bit == 0:
            places[k] = PartPlace.TABLE if rng.random() < 0.6 else PartPlace.AWAY
            around, reach = rng.uniform(0, 2 * np.pi), rng.uniform(0.19, 0.36)
            at = (float(reach * np.cos(around)), float(reach * np.sin(around)), 0.0)
            poses[k] = pose_matrix(at, (0.0, 0.0, float(rng.uniform(0, 360)))) @ part.rest_44
        else:
            places[k] = PartPlace.SEATED if bit == 1 else PartPlace.WRONG
            choices[k] = rng.choice(part.wrong_choices()) if bit == -1 else 0
    return places, poses, choices


def _random_hands(
    rng: np.random.Generator, middle_3: Floats, hands: float
) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """Hands that come from the person's side and end somewhere between beside and on top of the object."""
    poses = np.tile(np.eye(4, dtype=np.float32), (2, 1, 1))
    elbows = np.zeros((2, 3), dtype=np.float32)
    for side, sign in ((0, -1.0), (1, 1.0)):
        elbows[side] = (sign * rng.uniform(0.16, 0.3), -0.42, rng.uniform(0.03, 0.12))
        beside = np.array([sign * 0.12, -0.05, 0.01])
        tip = middle_3 + beside * rng.uniform(1.1 - 0.8 * hands, 1.7) + rng.normal(0, 0.02, 3)
        tip[2] = max(tip[2], 0.03)
        forward = tip - elbows[side]
        forward[2] = -rng.uniform(0.0, 0.35) * np.linalg.norm(forward)
        forward /= np.linalg.norm(forward)
        back = np.array([sign * rng.normal(0.35, 0.35), 0.0, 1.0])
        back -= forward * (back @ forward)
        back /= np.linalg.norm(back)
        poses[side, :3, :3] = np.stack([forward, np.cross(back, forward), back], axis=1)
        poses[side, :3, 3] = tip - forward * 0.15
    curls = rng.uniform(0.15, 0.75, 2).astype(np.float32)
    return poses, elbows, curls, rng.random(2) < hands


def draw_sheet(product: Product, out: Path, *, size: int = 200, seed: int = 0) -> int:
    """Write an image of all states, then of every part in each wrong pose with all that it needs; how many they are."""
    from PIL import Image, ImageDraw

    procedure = product.procedure
    shown: list[tuple[str, Sequence[int], int]] = [
        (state.name if state.name != bit_string(state.bits) else f"{state.state_class}: {state.name}", state.bits, 0)
        for state in procedure.states
        if state.bits is not None
    ]
    for k, part in enumerate(product.parts):
        with_it = [state.bits for state in procedure.states if state.bits is not None and state.bits[k] == 1]
        if with_it:
            fewest = min(with_it, key=sum)
            bits = tuple(-1 if place == k else bit for place, bit in enumerate(fewest))
            shown += [(f"{part.name}: {wrong.name}", bits, n) for n, wrong in enumerate(part.wrong_poses)]
    if not shown:
        raise InputError(f"{procedure.name!r} has no states to draw", cure="list them under 'states'")
    columns, strip = min(6, len(shown)), 18
    sheet = Image.new("RGB", (columns * size, -(-len(shown) // columns) * (size + strip)), (24, 24, 24))
    draw = ImageDraw.Draw(sheet)
    renderer = Renderer(product, Look.draw(product, seed), size)
    try:
        for number, (name, own, choice) in enumerate(shown):
            x, y = (number % columns) * size, (number // columns) * (size + strip)
            frame = renderer.render(sheet_timeline(product, own, choice), 0)
            sheet.paste(Image.fromarray(frame.image), (x, y))
            text = name
            while draw.textlength(text) > size - 6:
                text = f"{text.removesuffix('...')[:-1]}..."
            draw.text((x + 3, y + size + 3), text, fill=(240, 120, 110) if -1 in own else (230, 230, 230))
    finally:
        renderer.close()
    with replacing(out) as draft:
        sheet.save(draft, "PNG", optimize=True)
    return len(shown)


def draw_step_pictures(product: Product, out: Path, *, size: int = 240, seed: int = 0) -> int:
    """Write an image of every expected step into a folder: what it leads to, with what it changes marked; how many."""
    from PIL import Image, ImageDraw

    with replacing_folder(out) as draft:
        draft.mkdir(exist_ok=True)
        renderer = Renderer(product, Look.draw(product, seed), size)
        try:
            changes = _steps_and_states(product.procedure)
            for step_id, (before, after) in changes.items():
                images = [renderer.render(sheet_timeline(product, bits), 0).image for bits in (before, after)]
                shown = Image.fromarray(images[1])
                changed = np.abs(images[0].astype(int) - images[1]).max(axis=2) > _CHANGED_LEVELS
                if changed.any():
                    rows, columns = (np.flatnonzero(changed.any(axis=axis)) for axis in (1, 0))
                    corners = [columns[0] - 6, rows[0] - 6, columns[-1] + 6, rows[-1] + 6]
                    ImageDraw.Draw(shown).rounded_rectangle(corners, radius=10, outline=(255, 149, 0), width=3)
                step = product.procedure.step(step_id)
                name = product.procedure.components[step.component_index].name
                shown.save(draft / f"{step.kind.words} {name}.jpg", quality=88)
        finally:
            renderer.close()
    return len(changes)


def _steps_and_states(procedure: Procedure) -> dict[int, tuple[StateBits, StateBits]]:
    """Each expected step, and the states before and after it: removals come first, and nothing loses what it needs."""
    found: dict[int, tuple[StateBits, StateBits]] = {}
    for variant in procedure.variants.values():
        bits, left = variant.initial, sorted(map(procedure.step, variant.expected), key=lambda step: step.installs)
        while left:
            can = [s for s in left if procedure.apply(bits, s.id) != bits and _holds(procedure, bits, s)]
            step = (can or left)[0]
            left.remove(step)
            after = procedure.apply(bits, step.id)
            found.setdefault(step.id, (bits, after))
            bits = after
    return found


def _holds(procedure: Procedure, bits: StateBits, step: Step) -> bool:
    """Whether everything still has what it needs after a step."""
    after = procedure.apply(bits, step.id)
    needs = [choices for bit, choices in zip(after, procedure.needs.choices, strict=True) if bit]
    return all(any(after[other] for other in choice) for choices in needs for choice in choices)


STATES_FILE = "states.json"
_CHANGED_LEVELS = 24  # by which a pixel differs from one image to the next: more than noise
_IMAGES_PER_LOOK = 5
_WALK_RATES = ErrorRates(error_rate=0.25, removal_rate=0.25, omission_rate=0.1, uncorrected_share=0.5)


def wrong_variant(product: Product, known: Sequence[StateBits], rng: np.random.Generator) -> StateBits:
    """A known state with one part in a wrong pose, sometimes two."""
    candidates = [bits for bits in known if _can_be_wrong(product, bits)]
    if not candidates:
        raise InputError(
            f"no part of {product.procedure.name!r} has a wrong pose", cure="add one under 'wrong' to the product"
        )
    bits = list(candidates[int(rng.integers(len(candidates)))])
    loose = _can_be_wrong(product, bits)
    for k in rng.permutation(loose)[: 2 if rng.random() < 0.2 else 1]:
        bits[int(k)] = -1
    return tuple(bits)


def _can_be_wrong(product: Product, bits: Sequence[int]) -> list[int]:
    return [k for k, bit in enumerate(bits) if bit == 1 and product.parts[k].wrong_choices()]


def draw_states(
    out: Path,
    source: str,
    *,
    per_state: int,
    size: int,
    seed: int,
    hands: float = 0.5,
    walks: int = 0,
    difficulty: float = 0.0,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """Draw `per_state` images of every class, and `walks` of states that people pass through.

    The folder is there when all of them are, and not before.
    """
    if per_state < 0 or walks < 0 or per_state + walks < 1:
        raise InputError(f"{per_state} images per state and {walks} of walks", cure="at least one is needed")
    check_difficulty(difficulty)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("the output is there already", path=out, cure="choose another output folder, or delete it")
    product = Product.load(source)
    jobs = [*_jobs(product, per_state, seed), *_walk_jobs(product, walks, seed)]
    with replacing_folder(out) as draft:
        (draft / "images").mkdir()
        categories = state_categories(product.procedure)
        coco = Coco(categories=categories | ({len(product.procedure.states): UNLISTED} if walks else {}))
        visible_FC, inside_FC, place_FC = (np.full((len(jobs), product.n_components), np.nan) for _ in range(3))
        places_FCP2 = np.full((len(jobs), product.n_components, N_POINTS, 2), np.nan, dtype=np.float32)
        with StateRenderer(product, size, difficulty) as renderer:
            for number, (name, state_class, bits, image_seed) in enumerate(jobs):
                look = jobs[number - number % _IMAGES_PER_LOOK][3]
                frame = renderer.render(bits, image_seed, hands, look)
                (draft / "images" / name).write_bytes(renderer.encode(frame))
                coco.images.append(CocoImage(number, f"images/{name}", size, size))
                mounted_C = np.array(bits) != 0
                visible_FC[number, mounted_C] = frame.visible_share_C[mounted_C]
                inside_FC[number, mounted_C] = frame.inside_share_C[mounted_C]
                place_FC[number] = frame.place_visible_share_C
                places_FCP2[number] = frame.places_CP2
                if frame.box is not None:
                    coco.boxes.append(CocoBox(coco.images[-1], state_class, frame.box, bits))
                if number % 20 == 19 or number == len(jobs) - 1:
                    on_progress(number + 1, len(jobs))
        description = {
            "version": __version__,
            "product": source,
            "product_digest": product_digest(product),
            "per_state": per_state,
            "walks": walks,
            "size": size,
            "seed": seed,
            "hands": hands,
            "difficulty": difficulty,
            "images": len(coco.images),
            "without_box": len(coco.images) - len(coco.boxes),
        }
        coco.write(draft / ANNOTATIONS_FILE)
        visibility = Visibility(*(table_FC.astype(np.float32) for table_FC in (visible_FC, inside_FC, place_FC)))
        write_visibility(draft / VISIBILITY_FILE, visibility, product.procedure)
        write_places(draft, places_FCP2)
        write_json(draft / STATES_FILE, description)
        product.procedure.save(draft / "procedure.yaml")
    return description


def _jobs(product: Product, per_state: int, seed: int) -> list[tuple[str, int, StateBits, int]]:
    """File name, class, state and seed of every image."""
    known = [state.bits for state in product.procedure.states if state.bits is not None]
    jobs = []
    for state in product.procedure.states:
        if state.kind is StateKind.BACKGROUND:
            continue
        rng = random_stream(seed, f"state {state.state_class}")
        for number in range(per_state):
            bits = state.bits if state.bits is not None else wrong_variant(product, known, rng)
            name = f"{state.state_class:02d}_{number:05d}.jpg"
            jobs.append((name, state.state_class, bits, int(rng.integers(2**31))))
    return jobs


def _walk_jobs(product: Product, walks: int, seed: int) -> list[tuple[str, int, StateBits, int]]:
    """The same for states in the middle of invented runs of the procedure."""
    procedure = product.procedure
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
                bits[k] = action.bit
        known = procedure.state_class(bits)
        state_class = len(procedure.states) if known is None else known
        jobs.append((f"walk_{number:05d}.jpg", state_class, tuple(bits), int(rng.integers(2**31))))
    return jobs
