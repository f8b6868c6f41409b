"""The appearance of one recording, all of it drawn from one seed: room, light, colours, hands, lens, sensor.

A `Look` is plain data. Two renderers with the same product, look and timeline draw the same frames. To change one
thing and keep the rest, use `dataclasses.replace`.
"""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError
from stormpsr.synthetic.meshes import pose_matrix
from stormpsr.synthetic.product import Product

Colour = tuple[float, float, float]  # red, green, blue from 0 to 1

TABLE_KINDS = ("wood", "mat", "fabric", "concrete", "laminate")
CLUTTER_KINDS = ("box", "cup", "paper", "tray", "roll", "tool")
_SKIN_LIGHT, _SKIN_DARK = np.array([0.87, 0.67, 0.55]), np.array([0.27, 0.16, 0.11])


@dataclass(frozen=True)
class Light:
    """A far light."""

    direction: tuple[float, float, float]  # unit vector towards the light
    colour: Colour
    strength: float


@dataclass(frozen=True, eq=False)
class Clutter:
    """A thing on the table that has nothing to do with the work."""

    kind: str  # one of CLUTTER_KINDS
    pose_44: NDArray[np.float32]
    scale: float
    colour: Colour


@dataclass(frozen=True, eq=False)
class Spare:
    """A copy of a part that lies on the table and is never used."""

    component_index: int
    pose_44: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Look:
    """Everything about a recording's appearance that does not move."""

    seed: int
    # room
    table_kind: str  # one of TABLE_KINDS
    table_colour: Colour
    table_accent: Colour
    table_turn_degrees: float
    room_colour: Colour
    lights: tuple[Light, ...]
    ambient: float  # share of light that comes from everywhere
    shadow: float  # 0 no shadows .. 1 black ones
    clutter: tuple[Clutter, ...]
    # parts
    material_colours: Mapping[str, Colour]
    part_shade: tuple[float, ...]  # per component: how much lighter or darker than its material
    spares: tuple[Spare, ...]
    tool_colour: Colour
    # person
    skin: Colour
    glove: Colour | None
    sleeve: Colour | None
    sleeve_share: float  # how much of the forearm the sleeve covers
    watch: Colour | None  # at the left wrist
    hand_scale: float  # 1 is a hand 19 cm long
    # camera
    field_of_view_degrees: float  # across the image, without distortion
    distortion: float  # 0 none; 0.2 a wide lens: straight lines bulge at the border
    exposure: float  # 1 as rendered
    white_balance: Colour
    gamma: float
    vignette: float  # how much darker the corners are
    noise: float  # standard deviation in grey levels of 255
    shutter_seconds: float
    jpeg_quality: int
    # only in a harder world
    shine: float = 1.0  # of parts, as a multiple of their material's
    table_gloss: float = 0.0  # 0 a dull table; 1: the key light's reflection is white
    defocus: float = 0.0  # greatest blur while the focus hunts, as a share of the image's width
    drift: float = 0.0  # of exposure and white balance during the recording, as a logarithm

    @classmethod
    def draw(
        cls,
        product: Product,
        seed: int,
        keep_clear: Sequence[tuple[float, float, float]] = (),
        difficulty: float = 0.0,
    ) -> Look:
        """A random look. `keep_clear` are circles (x, y, radius) on the table where no clutter or spare may lie.

        `difficulty` from 0 to 1 takes camera, light, materials and table away from what is easy to read.
        """
        check_difficulty(difficulty)
        rng = np.random.default_rng(seed)
        glove = _hsv(rng, (0, 1), (0.0, 0.6), (0.15, 0.85)) if rng.random() < 0.25 else None
        sleeve = _hsv(rng, (0, 1), (0.05, 0.6), (0.12, 0.8)) if rng.random() < 0.7 else None
        skin_depth = rng.random() ** 1.3
        skin = (1 - skin_depth) * _SKIN_LIGHT + skin_depth * _SKIN_DARK + rng.normal(0, 0.015, 3)
        kind = str(rng.choice(TABLE_KINDS))
        table, accent = _table_colours(rng, kind)
        occupied = [(0.0, 0.0, 0.19), (0.0, -0.25, 0.2), *keep_clear]
        warmth = rng.normal(0, 0.04)
        look = cls(
            seed=seed,
            table_kind=kind,
            table_colour=table,
            table_accent=accent,
            table_turn_degrees=float(rng.choice([0, 90]) + rng.normal(0, 8)),
            room_colour=_hsv(rng, (0, 1), (0.0, 0.25), (0.25, 0.8)),
            lights=_lights(rng),
            ambient=float(rng.uniform(0.3, 0.45)),
            shadow=float(rng.uniform(0.3, 0.65)),
            spares=_spares(rng, product, occupied),
            clutter=(*_instructions(np.random.default_rng((seed, 11)), occupied), *_clutter(rng, occupied)),
            material_colours={name: _hsv(rng, m.hue, m.saturation, m.value) for name, m in product.materials.items()},
            part_shade=tuple(float(x) for x in rng.uniform(0.92, 1.08, product.n_components)),
            tool_colour=_hsv(rng, (0, 1), (0.5, 0.95), (0.3, 0.85)),
            skin=_as_colour(skin),
            glove=glove,
            sleeve=sleeve,
            sleeve_share=float(rng.uniform(0.25, 0.9)),
            watch=_watch(np.random.default_rng((seed, 12))),
            hand_scale=float(np.clip(rng.normal(0.95, 0.07), 0.8, 1.1)),
            field_of_view_degrees=float(rng.uniform(58, 64)),
            distortion=float(rng.uniform(0.03, 0.16)),
            exposure=float(np.exp(rng.normal(0, 0.13))),
            white_balance=_as_colour(np.array([1 + warmth, 1.0 + rng.normal(0, 0.015), 1 - warmth]), high=2.0),
            gamma=float(rng.uniform(0.85, 1.15)),
            vignette=float(rng.uniform(0.05, 0.35)),
            noise=float(rng.uniform(1.0, 4.5)),
            shutter_seconds=float(rng.uniform(1 / 120, 1 / 40)),
            jpeg_quality=int(rng.integers(82, 94)),
        )
        return _harder(look, product, occupied, difficulty) if difficulty else look


def check_difficulty(difficulty: float) -> None:
    if not 0.0 <= difficulty <= 1.0:
        raise InputError(f"difficulty is {difficulty}", cure="it lies between 0 (the plain world) and 1")


def _harder(look: Look, product: Product, occupied: list[tuple[float, float, float]], difficulty: float) -> Look:
    """The look with everything pushed away from where it is easy; how far grows with the difficulty."""
    rng = np.random.default_rng((look.seed, 13))  # a stream of its own: the look itself stays as it is

    def up_to(most: float) -> float:
        return difficulty * most * float(rng.uniform(0.3, 1.0))

    colours = {}
    for name, colour in look.material_colours.items():
        hue, saturation, value = colorsys.rgb_to_hsv(*colour)
        by_hue, by_saturation, by_value = difficulty * rng.normal(0, (0.04, 0.12, 0.12))
        paler, darker = np.clip((saturation + by_saturation, value * np.exp(by_value)), 0.0, 1.0)
        colours[name] = colorsys.hsv_to_rgb((hue + float(by_hue)) % 1.0, float(paler), float(darker))
    key, *others = look.lights
    hard = up_to(0.5)  # light from the key lamp instead of from everywhere
    lights = (
        replace(key, strength=key.strength * (1 + hard)),
        *(replace(o, strength=o.strength * (1 - hard)) for o in others),
    )
    return replace(
        look,
        material_colours=colours,
        lights=lights,
        ambient=look.ambient * (1 - 0.6 * hard),
        shadow=look.shadow + (0.85 - look.shadow) * up_to(1.0),
        field_of_view_degrees=look.field_of_view_degrees + up_to(10.0),
        noise=look.noise + up_to(6.0),
        shutter_seconds=look.shutter_seconds + up_to(1 / 16),
        jpeg_quality=round(look.jpeg_quality - up_to(40.0)),
        shine=1 + up_to(1.5),
        table_gloss=up_to(0.7),
        defocus=up_to(0.012),
        drift=up_to(0.3),
        spares=(  # last: how often these draw depends on the difficulty
            *look.spares,
            *_second_unit(rng, product, occupied, difficulty),
            *_heap(rng, product, occupied, difficulty),
        ),
    )


def _as_colour(rgb: NDArray[np.float64], high: float = 1.0) -> Colour:
    red, green, blue = (float(x) for x in np.clip(rgb, 0.0, high))
    return red, green, blue


def _hsv(
    rng: np.random.Generator, hue: tuple[float, float], saturation: tuple[float, float], value: tuple[float, float]
) -> Colour:
    return colorsys.hsv_to_rgb(
        float(rng.uniform(*hue)) % 1.0, float(rng.uniform(*saturation)), float(rng.uniform(*value))
    )


def _table_colours(rng: np.random.Generator, kind: str) -> tuple[Colour, Colour]:
    """The ground colour and the colour of its pattern."""
    natural = {  # hue, saturation, value, and how much darker the pattern is
        "wood": ((0.05, 0.11), (0.3, 0.6), (0.35, 0.8), (0.55, 0.8)),
        "concrete": ((0.08, 0.6), (0.0, 0.08), (0.45, 0.75), (0.7, 0.9)),
        "laminate": ((0.05, 0.65), (0.0, 0.15), (0.7, 0.92), (0.85, 0.95)),
    }
    if kind in natural:
        hue, saturation, value, contrast = natural[kind]
        base = np.array(_hsv(rng, hue, saturation, value))
    else:
        base = np.array(_hsv(rng, (0, 1), (0.05, 0.45), (0.25, 0.7)))
        contrast = (0.6, 0.85) if rng.random() < 0.5 else (1.15, 1.4)
    return _as_colour(base), _as_colour(base * rng.uniform(*contrast))


def _lights(rng: np.random.Generator) -> tuple[Light, ...]:
    """A key light from above, a fill light from another side, a faint one from low down."""
    lights = []
    turn = rng.uniform(0, 2 * np.pi)
    for strength, height, share in ((0.62, (0.9, 1.35), 1.0), (0.3, (0.5, 1.0), 0.6), (0.14, (-0.2, 0.4), 1.0)):
        elevation = rng.uniform(*height)
        direction = (np.cos(elevation) * np.cos(turn), np.cos(elevation) * np.sin(turn), np.sin(elevation))
        warmth = rng.normal(0, 0.035)
        colour = _as_colour(np.array([1 + warmth, 1.0, 1 - warmth]))
        lights.append(Light(direction, colour, float(strength * rng.uniform(0.85, 1.15) * share)))
        turn += rng.uniform(1.6, 3.2)
    return tuple(lights)


def _free_place(
    rng: np.random.Generator, occupied: list[tuple[float, float, float]], radius: float, reach: float
) -> tuple[float, float] | None:
    """A place on the table that touches nothing; it is added to `occupied`."""
    for _ in range(40):
        x, y = float(rng.uniform(-reach, reach)), float(rng.uniform(-0.2, 0.5))
        if all((x - ox) ** 2 + (y - oy) ** 2 > (radius + r) ** 2 for ox, oy, r in occupied):
            occupied.append((x, y, radius))
            return x, y
    return None


def _spares(
    rng: np.random.Generator, product: Product, occupied: list[tuple[float, float, float]]
) -> tuple[Spare, ...]:
    spares = []
    for _ in range(int(rng.integers(2, 7))):
        index = int(rng.integers(1, product.n_components)) if product.n_components > 1 else 0
        part = product.parts[index]
        place = _free_place(rng, occupied, part.radius, 0.42)
        if place is not None:
            around = pose_matrix((place[0], place[1], 0.0), (0.0, 0.0, float(rng.uniform(0, 360))))
            spares.append(Spare(index, around @ part.rest_44))
    return tuple(spares)


def _heap(
    rng: np.random.Generator, product: Product, occupied: list[tuple[float, float, float]], difficulty: float
) -> tuple[Spare, ...]:
    """More spare parts, close together at the far side of the table."""
    spares = []
    x, y = float(rng.uniform(-0.2, 0.2)), float(rng.uniform(0.2, 0.3))
    for _ in range(round(difficulty * float(rng.uniform(4, 14)))):
        index = int(rng.integers(1, product.n_components)) if product.n_components > 1 else 0
        part = product.parts[index]
        at = (x + float(rng.normal(0, 0.07)), y + float(rng.normal(0, 0.04)))
        turn = float(rng.uniform(0, 360))
        if all(np.hypot(at[0] - ox, at[1] - oy) > part.radius + r for ox, oy, r in occupied):
            occupied.append((*at, 0.7 * part.radius))
            spares.append(Spare(index, pose_matrix((*at, 0.0), (0.0, 0.0, turn)) @ part.rest_44))
    return tuple(spares)


def _second_unit(
    rng: np.random.Generator, product: Product, occupied: list[tuple[float, float, float]], difficulty: float
) -> tuple[Spare, ...]:
    """Another unit, partly assembled, at the edge of the table; on some tables."""
    known = [state.bits for state in product.procedure.states if state.bits is not None and any(state.bits)]
    there, turn = rng.random() < 0.6 * difficulty, float(rng.uniform(0, 360))
    bits = known[int(rng.integers(len(known)))] if known else ()
    half = float(np.linalg.norm(product.bounds_23[1, :2] - product.bounds_23[0, :2])) / 2
    place = _free_place(rng, occupied, half, 0.45) if there and any(bits) else None
    if place is None:
        return ()
    stands_44 = pose_matrix((*place, 0.0), (0.0, 0.0, turn))
    return tuple(Spare(k, stands_44 @ product.parts[k].pose_44) for k, bit in enumerate(bits) if bit)


def _watch(rng: np.random.Generator) -> Colour | None:
    return _hsv(rng, (0, 1), (0.0, 0.5), (0.08, 0.8)) if rng.random() < 0.3 else None


def _instructions(rng: np.random.Generator, occupied: list[tuple[float, float, float]]) -> tuple[Clutter, ...]:
    """A white sheet with dark images on it, beside the work, as in real recordings; on half of the tables."""
    if rng.random() < 0.5:
        return ()
    side = float(rng.choice([-1, 1]))
    x, y, turn = side * float(rng.uniform(0.27, 0.34)), float(rng.uniform(-0.1, 0.12)), float(rng.normal(0, 12))
    occupied.append((x, y, 0.12))
    sheet_44 = pose_matrix((x, y, 0.0), (0.0, 0.0, turn))
    grey = float(rng.uniform(0.85, 0.97))
    things = [Clutter("paper", sheet_44, 1.15, (grey, grey, grey))]
    for along in (-0.048, 0.048):
        colour = _hsv(rng, (0, 1), (0.0, 0.2), (0.1, 0.35))
        things.append(Clutter("image", sheet_44 @ pose_matrix((0.0, along, 0.0), (0.0, 0.0, 0.0)), 1.0, colour))
    return tuple(things)


def _clutter(rng: np.random.Generator, occupied: list[tuple[float, float, float]]) -> tuple[Clutter, ...]:
    things = []
    for _ in range(int(rng.integers(2, 9))):
        scale = float(rng.uniform(0.7, 1.4))
        place = _free_place(rng, occupied, 0.07 * scale, 0.6)
        if place is not None:
            pose = pose_matrix((place[0], place[1], 0.0), (0.0, 0.0, float(rng.uniform(0, 360))))
            colour = _hsv(rng, (0, 1), (0.0, 0.5), (0.15, 0.8))
            things.append(Clutter(str(rng.choice(CLUTTER_KINDS)), pose, scale, colour))
    return tuple(things)
