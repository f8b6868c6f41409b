"""One recording and a set of them: what decides their bytes, and drawing one into a folder in the layout of the field.

`python -m stormpsr.synthetic.recording FOLDER` draws one recording in a process of its own, its spec on stdin. Every
line on stdout is a JSON object: progress as `done` and `of`, or a `problem` that the user can cure.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stormpsr import __version__
from stormpsr.data.boxes import Box
from stormpsr.data.coco import COCO_FILE, Coco, CocoBox, CocoImage, state_categories
from stormpsr.data.dataset import PROCEDURE_FILE
from stormpsr.data.labels import (
    STATES_FILE,
    STEPS_FILE,
    STEPS_WITH_ERRORS_FILE,
    StateTimeline,
    frame_name,
    steps_from_states,
    write_states,
    write_steps,
)
from stormpsr.data.layouts import RECORDING_FILE, SPLITS
from stormpsr.data.places import N_POINTS, write_places
from stormpsr.data.visibility import VISIBILITY_FILE, Visibility, write_visibility
from stormpsr.errors import InputError, StormPSRError
from stormpsr.files import naming_full_disk, write_json
from stormpsr.procedure.model import Procedure, StepKind
from stormpsr.synthetic.actions import ErrorRates
from stormpsr.synthetic.choreography import simulate
from stormpsr.synthetic.look import Look, check_difficulty
from stormpsr.synthetic.plan import Activity
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import Traits, profile_named
from stormpsr.synthetic.stage import Timeline

if TYPE_CHECKING:
    from stormpsr.synthetic.render import RenderedFrame, Renderer

MIN_SIZE, MAX_SIZE = 16, 2048
VIDEO_FILE = "rgb.mp4"

# How people annotate, at a difficulty of 1
_MOST_SLACK = 0.45  # by which a part may show less than a readable frame asks for
_MOST_LEFT_OUT, _STRETCH_SECONDS = 0.3, 4.0  # share of the time in which nothing is annotated, in stretches of so long
_BOX_ERROR = 0.03  # of each side of a box, as a share of its width or height

OnFrame = Callable[[int, "RenderedFrame", "Renderer"], None]
OnProgress = Callable[[int, int], None]  # frames drawn, frames in all


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
    frame_step: int = 1  # only every so many frames are drawn
    difficulty: float = 0.0  # of images and boxes; what happens does not depend on it


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
    frame_step: int = 1
    difficulty: float = 0.0
    train_difficulty: float | None = None  # each training recording has its own, from 0 to this; None: `difficulty`

    def __post_init__(self) -> None:
        profile_named(self.profile)
        if not MIN_SIZE <= self.size <= MAX_SIZE or self.size % 2:
            cure = f"choose an even number from {MIN_SIZE} to {MAX_SIZE}"
            raise InputError(f"the image size is {self.size} pixels", cure=cure)
        if self.seed < 0:
            raise InputError(f"the seed is {self.seed}", cure="it must not be negative")
        if not 0.0 <= self.occlusion <= 1.0:
            raise InputError(f"occlusion is {self.occlusion}", cure="it lies between 0 (little is hidden) and 1")
        for difficulty in (self.difficulty, self.train_difficulty or 0.0):
            check_difficulty(difficulty)
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise InputError(f"the greatest length is {self.max_seconds} s", cure="it must be more than 0")
        if self.frame_step < 1:
            raise InputError(f"every {self.frame_step}th frame is to be drawn", cure="give 1 to draw all of them")
        if self.frame_step > 1 and self.video:
            cure = "leave --video out: a video's frames are counted without gaps"
            raise InputError("a video cannot leave frames out", cure=cure)
        for split, count in self.counts.items():
            if count < 0:
                raise InputError(f"{count} recordings for {split}", cure="a count must not be negative")
        if not any(self.counts.values()):
            raise InputError("no recordings are asked for", cure="give --train, --val or --test")
        for split, rates in self.rates.items():
            for name, rate in asdict(rates).items():
                if not isinstance(rate, bool) and not 0.0 <= rate <= 1.0:
                    raise InputError(f"{name} of {split} is {rate}", cure="rates lie between 0 and 1")

    def recordings(self, product: Product) -> list[RecordingSpec]:
        """All recordings of the set. Each depends on its split and number only, not on how many others there are."""
        unseen = any(rates.unseen_faults for rates in self.rates.values())
        if unseen and not any(part.wrong_choices(unseen=True) for part in product.parts):
            cure = "mark wrong poses of its parts with 'unseen: true'"
            raise InputError(f"product {product.procedure.name!r} keeps no faults from training", cure=cure)
        variants = list(product.procedure.variants)
        shared = ("product", "product_digest", "profile", "size", "occlusion", "video", "max_seconds")
        settings: dict[str, Any] = {name: getattr(self, name) for name in (*shared, "frame_step")}
        specs = []
        for code, split in enumerate(SPLITS):
            for index in range(self.counts.get(split, 0)):
                seed = np.random.SeedSequence([self.seed, code, index]).generate_state(1)[0]
                variant = variants[index % len(variants)]  # in turn, so that every split has all of them
                name, rates = f"{index + 1:02d}_{variant}_{code}_1", self.rates[split]
                settings["difficulty"] = self._difficulty(split, int(seed))
                specs.append(RecordingSpec(name, split, int(seed), variant=variant, rates=rates, **settings))
        return specs

    def _difficulty(self, split: str, seed: int) -> float:
        """Of a recording."""
        if split != "train" or self.train_difficulty is None:
            return self.difficulty
        return round(float(np.random.default_rng((seed, 17)).uniform(0.0, self.train_difficulty)), 3)


def product_digest(product: Product) -> str:
    """A fingerprint of everything about a product that can change a recording."""
    digest = hashlib.sha256()
    for part in product.parts:
        digest.update(part.name.encode())
        for piece in part.pieces:
            digest.update(piece.mesh.vertices_V3.tobytes() + piece.material.encode())
        for matrix in (part.pose_44, part.rest_44, part.approach_3, *(wrong.pose_44 for wrong in part.wrong_poses)):
            digest.update(np.ascontiguousarray(matrix, dtype=np.float32).tobytes())
        unseen = [wrong.unseen for wrong in part.wrong_poses]
        digest.update(repr((part.needs_tool, part.sits_on, part.replaces, unseen)).encode())
    procedure = product.procedure
    digest.update(repr((procedure.states, dict(procedure.variants), procedure.order, product.materials)).encode())
    return digest.hexdigest()[:16]


# ---------------------------------------------------------------------- drawing
def draw_recording(spec: RecordingSpec, folder: Path, on_progress: OnProgress) -> None:
    """Simulate, draw and write one recording. The folder is made if it is not there yet."""
    product = Product.load(spec.product)
    procedure = product.procedure
    plan, timeline, traits = simulate(
        product,
        procedure.variant(spec.variant),
        profile_named(spec.profile),
        seed=spec.seed,
        occlusion=spec.occlusion,
        rates=spec.rates,
        max_seconds=spec.max_seconds,
    )
    with naming_full_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        writer = _video(folder, spec.size, timeline.fps) if spec.video else _frame_files(folder)
        look = look_of(product, timeline, traits, spec.seed, spec.difficulty)
        places_FCP2 = np.full((timeline.n_frames, product.n_components, N_POINTS, 2), np.nan, dtype=np.float32)
        with writer as add_frame:

            def take(index: int, frame: RenderedFrame, renderer: Renderer) -> None:
                places_FCP2[index] = frame.places_CP2
                add_frame(index, frame, renderer)

            visibility, boxes = measure(
                product, timeline, look, spec.size, take, on_progress, frame_step=spec.frame_step
            )
        states = StateTimeline.from_dense(timeline.states_FC())
        write_states(folder / STATES_FILE, states, procedure)
        for name, with_errors in ((STEPS_FILE, False), (STEPS_WITH_ERRORS_FILE, True)):
            write_steps(folder / name, steps_from_states(states, procedure, with_errors=with_errors), procedure)
        coco, counts = _coco_boxes(timeline, visibility, boxes, procedure, spec)
        coco.write(folder / COCO_FILE)
        write_visibility(folder / VISIBILITY_FILE, visibility, procedure)
        write_places(folder, places_FCP2)
        procedure.save(folder / PROCEDURE_FILE)
        kinds = Counter(action.kind.name.lower() for action in plan.actions)
        activity_F = timeline.activity_F
        starts = [0, *(np.flatnonzero(np.diff(activity_F)) + 1).tolist()]
        description = {
            "id": spec.id,
            "version": __version__,
            "variant": spec.variant,
            "fps": timeline.fps,
            "n_frames": timeline.n_frames,
            "frame_step": spec.frame_step,
            "parameters": asdict(spec),
            "traits": asdict(traits),
            "counts": {**counts, **{f"{kind}_actions": n for kind, n in sorted(kinds.items())}},
            # how parts sit wrongly, as [frame, component, fault], and what the person does, as [first frame, activity]:
            # for looking at and for measuring, never for training
            "faults": [
                [frame, part.name, part.wrong_poses[action.wrong_choice].name]
                for action, frame in zip(plan.actions, plan.completion_frames, strict=True)
                if action.kind is StepKind.INCORRECT
                for part in (product.parts[k] for k in action.components)
            ],
            "activities": [[start, Activity(activity_F[start]).name.lower()] for start in starts],
        }
        write_json(folder / RECORDING_FILE, description, indent=1)


def look_of(product: Product, timeline: Timeline, traits: Traits, seed: int, difficulty: float = 0.0) -> Look:
    """The recording's appearance: the person's hands, and nothing in the way of the parts."""
    spots = timeline.part_pose_FC44[0, :, :2, 3]
    keep_clear = [(float(x), float(y), part.radius) for (x, y), part in zip(spots, product.parts, strict=True)]
    return replace(Look.draw(product, seed, keep_clear, difficulty), hand_scale=traits.hand_scale)


def measure(
    product: Product,
    timeline: Timeline,
    look: Look,
    size: int,
    on_frame: OnFrame = lambda *_: None,
    on_progress: OnProgress = lambda *_: None,
    *,
    frame_step: int = 1,
) -> tuple[Visibility, list[Box | None]]:
    """Draw every (so many) frame, hand it on, and keep what can be seen in it: until the next one, in what follows."""
    from stormpsr.synthetic.render import Renderer

    mounted_FC = timeline.states_FC() != 0
    n = timeline.n_frames
    visible, inside, place = (np.full(mounted_FC.shape, np.nan, dtype=np.float32) for _ in range(3))
    boxes: list[Box | None] = [None] * n
    with Renderer(product, look, size) as renderer:
        for drawn, index in enumerate(range(0, n, frame_step), start=1):
            frame, mounted = renderer.render(timeline, index), mounted_FC[index]
            until = slice(index, index + frame_step)
            visible[until, mounted] = frame.visible_share_C[mounted]
            inside[until, mounted] = frame.inside_share_C[mounted]
            place[until] = frame.place_visible_share_C
            boxes[index] = frame.box
            on_frame(index, frame, renderer)
            if drawn % 50 == 0 or index + frame_step >= n:
                on_progress(min(index + frame_step, n), n)
    return Visibility(visible, inside, place), boxes


@contextmanager
def _frame_files(folder: Path) -> Iterator[OnFrame]:
    """Single JPEG files, `rgb/000000.jpg` and on."""
    (folder / "rgb").mkdir()

    def add(index: int, frame: RenderedFrame, renderer: Renderer) -> None:
        (folder / "rgb" / frame_name(index)).write_bytes(renderer.encode(frame))

    yield add


@contextmanager
def _video(folder: Path, size: int, fps: float) -> Iterator[OnFrame]:
    """One MP4 file (H.264)."""
    from fractions import Fraction

    import av

    with av.open(str(folder / VIDEO_FILE), "w") as container:
        stream: Any = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
        stream.width = stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "20", "threads": "1", "g": "50"}
        yield lambda _, frame, __: container.mux(stream.encode(av.VideoFrame.from_ndarray(frame.image, format="rgb24")))
        container.mux(stream.encode())


def _coco_boxes(
    timeline: Timeline, visibility: Visibility, boxes: list[Box | None], procedure: Procedure, spec: RecordingSpec
) -> tuple[Coco, dict[str, int]]:
    """Boxes with the state's class on annotated frames, and how many frames there were of each sort.

    Annotated are all readable frames, or what people make of them in a harder world. A frame in a state that the
    detector has no class for gets no box.
    """
    drawn_F, states_FC = np.arange(len(boxes)) % spec.frame_step == 0, timeline.states_FC()
    readable_F = visibility.readable_F() & drawn_F
    annotated_F = drawn_F & annotated_by_people_F(visibility, spec.seed, timeline.fps, spec.difficulty)
    coco = Coco(categories=state_categories(procedure))
    without_class = 0
    for frame in np.flatnonzero(readable_F | annotated_F).tolist():
        box, state_class = boxes[frame], procedure.state_class(tuple(states_FC[frame]))
        if state_class is None or box is None:
            without_class += int(readable_F[frame])
        elif annotated_F[frame]:
            coco.images.append(CocoImage(frame, frame_name(frame), spec.size, spec.size))
            coco.boxes.append(CocoBox(coco.images[-1], state_class, _drawn_by_hand(box, frame, spec)))
    counts = {
        "frames": int(drawn_F.sum()),
        "readable_frames": int(readable_F.sum()),
        "boxes": len(coco.boxes),
        "readable_without_class": without_class,
    }
    return coco, counts


def annotated_by_people_F(visibility: Visibility, seed: int, fps: float, difficulty: float) -> NDArray[np.bool_]:
    """Which frames have a box: the readable ones; in a harder world also some that fingers cover, and not all."""
    annotated_F = visibility.readable_F(slack=_MOST_SLACK * difficulty)
    rng, frame = np.random.default_rng((seed, 15)), 0
    while frame < len(annotated_F):  # stretches of time, whatever can be seen in them
        until = frame + max(round(rng.exponential(_STRETCH_SECONDS) * fps), 1)
        if rng.random() < _MOST_LEFT_OUT * difficulty:
            annotated_F[frame:until] = False
        frame = until
    return annotated_F


def _drawn_by_hand(box: Box, frame: int, spec: RecordingSpec) -> Box:
    """The box with each side a little off, within the image."""
    if not spec.difficulty:
        return box
    off_22 = np.random.default_rng((spec.seed, 16, frame)).normal(0, _BOX_ERROR * spec.difficulty, (2, 2))
    low_high_22 = np.array([[box.x0, box.y0], [box.x1, box.y1]])
    moved_22 = np.clip(low_high_22 + off_22 * (low_high_22[1] - low_high_22[0]), 0, spec.size)
    return Box(*(float(value) for value in moved_22.ravel()))


# ---------------------------------------------------------------------- in a process of its own
def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Exit code 0: drawn; 2: a problem was reported; anything else: a crash, worth another attempt."""
    data = json.load(sys.stdin)
    spec = RecordingSpec(**{**data, "rates": ErrorRates(**data["rates"])})
    try:
        draw_recording(spec, Path(sys.argv[1]), lambda done, of: _say({"done": done, "of": of}))
    except InputError as error:
        _say({"problem": error.problem, "path": error.path, "cure": error.cure})
        return 2
    except StormPSRError as error:
        _say({"problem": str(error)})
        return 2
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # some graphics drivers crash while they unload; everything is written by now
