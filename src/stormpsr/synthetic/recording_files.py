"""Draw one recording into a folder, in the layout of the field: frames, label files, boxes, and our own extras."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stormpsr import __version__
from stormpsr.data.boxes import Box
from stormpsr.data.coco import COCO_FILE, Coco, CocoBox, CocoImage, state_categories
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
from stormpsr.data.layouts import RECORDING_FILE
from stormpsr.data.visibility import VISIBILITY_FILE, Visibility, write_visibility
from stormpsr.files import naming_full_disk, write_json
from stormpsr.procedure.model import Procedure
from stormpsr.synthetic.look import Look
from stormpsr.synthetic.operator import simulate
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.profiles import Traits, profile_named
from stormpsr.synthetic.recording_spec import RecordingSpec
from stormpsr.synthetic.timeline import Timeline

if TYPE_CHECKING:
    from stormpsr.synthetic.render import RenderedFrame, Renderer


PROCEDURE_FILE = "procedure.yaml"
VIDEO_FILE = "rgb.mp4"


@dataclass(frozen=True, eq=False)
class Measured:
    """What the renderer says about every frame."""

    visibility: Visibility
    boxes: tuple[Box | None, ...]
    hand_share_F: NDArray[np.float32]


def look_of(product: Product, timeline: Timeline, traits: Traits, seed: int) -> Look:
    """The recording's appearance: the person's hands, and nothing in the way of the parts."""
    spots = timeline.part_pose_FC44[0, :, :2, 3]
    keep_clear = [(float(x), float(y), part.radius) for (x, y), part in zip(spots, product.parts, strict=True)]
    return replace(Look.draw(product, seed, keep_clear), hand_scale=traits.hand_scale)


def draw_recording(spec: RecordingSpec, folder: Path, on_progress: Callable[[int, int], None]) -> None:
    """Simulate, draw and write one recording. The folder is made if it is not there yet."""
    product = Product.load(spec.product)
    procedure = product.procedure()
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
        writer = _VideoWriter(folder, spec.size, timeline.fps) if spec.video else _FrameWriter(folder)
        measured = measure(product, timeline, traits, spec, writer, on_progress)
        writer.close()
        states = StateTimeline.from_dense(timeline.states_FC())
        _write_labels(folder, states, procedure)
        boxes, counts = coco_boxes(states, measured, procedure, spec.size)
        boxes.write(folder / COCO_FILE)
        write_visibility(folder / VISIBILITY_FILE, measured.visibility, procedure)
        procedure.save(folder / PROCEDURE_FILE)
        kinds = Counter(action.kind.name.lower() for action in plan.actions)
        description = {
            "id": spec.id,
            "version": __version__,
            "variant": spec.variant,
            "fps": timeline.fps,
            "n_frames": timeline.n_frames,
            "parameters": spec.to_dict(),
            "traits": traits.to_dict(),
            "counts": {**counts, **{f"{kind}_actions": n for kind, n in sorted(kinds.items())}},
            "activities": _runs_of_activity(timeline),
        }
        write_json(folder / RECORDING_FILE, description, indent=1)


def measure(
    product: Product,
    timeline: Timeline,
    traits: Traits,
    spec: RecordingSpec,
    writer: _FrameWriter | _VideoWriter | None = None,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> Measured:
    """Draw every frame, hand the images to the writer if there is one, and keep what can be seen in them."""
    from stormpsr.synthetic.render import Renderer

    n, c = timeline.part_place_FC.shape
    visible, inside, place = (np.full((n, c), np.nan, dtype=np.float32) for _ in range(3))
    hand_share = np.zeros(n, dtype=np.float32)
    boxes: list[Box | None] = []
    mounted_FC = timeline.states_FC() != 0
    with Renderer(product, look_of(product, timeline, traits, spec.seed), size=spec.size) as renderer:
        for index in range(n):
            frame = renderer.render(timeline, index)
            mounted = mounted_FC[index]
            visible[index, mounted] = frame.visible_share_C[mounted]
            inside[index, mounted] = frame.inside_share_C[mounted]
            place[index] = frame.place_visible_share_C
            hand_share[index] = frame.hand_share
            boxes.append(frame.box)
            if writer:
                writer.add(index, frame, renderer)
            if index % 50 == 49 or index == n - 1:
                on_progress(index + 1, n)
    return Measured(Visibility(visible, inside, place), tuple(boxes), hand_share)


# ---------------------------------------------------------------------- images
class _FrameWriter:
    """Single JPEG files, `rgb/000000.jpg` and on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "rgb"
        self._folder.mkdir()

    def add(self, index: int, frame: RenderedFrame, renderer: Renderer) -> None:
        (self._folder / frame_name(index)).write_bytes(renderer.encode(frame))

    def close(self) -> None:
        """Nothing is left to write."""


class _VideoWriter:
    """One MP4 file (H.264)."""

    def __init__(self, folder: Path, size: int, fps: float) -> None:
        from fractions import Fraction

        import av

        self._av = av
        self._container = av.open(str(folder / VIDEO_FILE), "w")
        self._stream: Any = self._container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
        self._stream.width = self._stream.height = size
        self._stream.pix_fmt = "yuv420p"
        self._stream.options = {"crf": "20", "threads": "1", "g": "50"}

    def add(self, index: int, frame: RenderedFrame, renderer: Renderer) -> None:
        for packet in self._stream.encode(self._av.VideoFrame.from_ndarray(frame.image, format="rgb24")):
            self._container.mux(packet)

    def close(self) -> None:
        for packet in self._stream.encode():
            self._container.mux(packet)
        self._container.close()


# ---------------------------------------------------------------------- labels
def _write_labels(folder: Path, states: StateTimeline, procedure: Procedure) -> None:
    write_states(folder / STATES_FILE, states, procedure)
    for name, with_errors in ((STEPS_FILE, False), (STEPS_WITH_ERRORS_FILE, True)):
        write_steps(folder / name, steps_from_states(states, procedure, with_errors=with_errors), procedure)


def coco_boxes(
    states: StateTimeline, measured: Measured, procedure: Procedure, size: int
) -> tuple[Coco, dict[str, int]]:
    """Boxes with the state's class on readable frames, and how many frames there were of each sort.

    A readable frame in a state that the detector has no class for gets no box.
    """
    readable_F = measured.visibility.readable_F()
    dense_FC = states.dense(len(readable_F))
    coco = Coco(categories=state_categories(procedure))
    for frame in np.flatnonzero(readable_F).tolist():
        box = measured.boxes[frame]
        state_class = procedure.state_class(tuple(dense_FC[frame]))
        if state_class is not None and box is not None:
            coco.images.append(CocoImage(frame, frame_name(frame), size, size))
            coco.boxes.append(CocoBox(coco.images[-1], state_class, box))
    n_readable = int(readable_F.sum())
    counts = {
        "frames": len(readable_F),
        "readable_frames": n_readable,
        "boxes": len(coco.boxes),
        "readable_without_class": n_readable - len(coco.boxes),
    }
    return coco, counts


def _runs_of_activity(timeline: Timeline) -> list[list[Any]]:
    """What the person does, as [first frame, activity]: for looking at, never for training."""
    activity = timeline.activity_F
    starts = [0, *(int(frame) for frame in np.flatnonzero(np.diff(activity)) + 1)]
    return [[start, timeline.activity_names[int(activity[start])]] for start in starts]
