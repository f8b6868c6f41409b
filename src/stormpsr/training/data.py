"""The recordings to train on and to choose by, checked before any time is spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.config import Config
from stormpsr.data.boxes import Box
from stormpsr.data.coco import ANNOTATIONS_FILE, COCO_FILE, read_coco_boxes, read_state_images
from stormpsr.data.dataset import Dataset
from stormpsr.data.images import Placement
from stormpsr.data.recording import Recording
from stormpsr.data.sampling import KeyFrames, key_frames
from stormpsr.data.sources import FrameSource, ImageFolder
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateBits


@dataclass(frozen=True, eq=False)
class Renders:
    """Single images of known states, for key-frame sampling."""

    sources: tuple[tuple[FrameSource, tuple[int, ...]], ...]  # folders, and the numbers of the images in them
    states: tuple[StateBits, ...]  # one per image
    corners_R4: NDArray[np.float32]  # left, top, right, bottom of the assembly, as shares of the square


@dataclass(frozen=True)
class TrainingData:
    """Labelled recordings of the two splits that training may look at; the test split stays closed."""

    procedure: Procedure
    train: tuple[Recording, ...]
    val: tuple[Recording, ...]

    def encoder_recordings(self, held_out_share: float) -> tuple[Recording, ...]:
        """Training recordings that the spatial encoder sees."""
        return self.train[: len(self.train) - self._n_held_out(held_out_share)]

    def held_out(self, held_out_share: float) -> tuple[Recording, ...]:
        """Training recordings kept from the spatial encoder, so that their embeddings are like those of new ones."""
        return self.train[len(self.train) - self._n_held_out(held_out_share) :]

    def _n_held_out(self, share: float) -> int:
        return min(round(share * len(self.train)), len(self.train) - 2)

    def notes(self, config: Config) -> list[str]:
        """What is odd but can be trained with."""
        found = []
        window = config.clips.window_frames
        short = [r.name for r in (*self.train, *self.val) if r.n_frames < window]
        if short:
            found.append(
                f"{len(short)} recordings are shorter than a window of {window} frames: {', '.join(short[:3])}"
            )
        unseen = {s for r in self.val if r.states for s in r.states.states} - {
            s for r in self.train if r.states for s in r.states.states
        }
        if unseen:
            found.append(f"{len(unseen)} states of the validation recordings never occur in training")
        return found


def load_training_data(root: str | Path, config: Config) -> TrainingData:
    """Open the recordings of the training and validation splits and check that they can be trained on."""
    dataset = Dataset.open(root, procedure=config.procedure)
    found: dict[str, tuple[Recording, ...]] = {}
    for name, needed in (("train", 2), ("val", 1)):
        part, place = dataset.of_split(name), dataset.root.name
        if len(part) < needed:
            cure = f"put at least {needed} into {place}/{name} or {place}/recordings/{name}"
            raise InputError(f"split {name!r} has {len(part)} recordings", path=root, cure=cure)
        found[name] = tuple(part)
    for recording in (*found["train"], *found["val"]):
        if recording.states is None:
            cure = "add PSR_labels_raw.csv or PSR_labels.csv, or move the recording elsewhere"
            raise InputError("the recording has no labels", path=recording.path, cure=cure)
    return TrainingData(dataset.procedure, found["train"], found["val"])


def load_renders(folders: Sequence[str | Path], procedure: Procedure) -> Renders:
    """Images of single states, in folders as `stormpsr synth states` writes them; those of unknown state are left."""
    sources: list[tuple[FrameSource, tuple[int, ...]]] = []
    states: list[StateBits] = []
    corners: list[tuple[float, float, float, float]] = []
    for folder in map(Path, folders):
        found = read_state_images(folder / ANNOTATIONS_FILE, procedure)
        known = [(render, render.bits) for render in found if render.bits is not None]
        if not known:
            raise InputError("no image says what state every component is in", path=folder)
        source = ImageFolder.of(folder, {render.number: render.file for render in found})
        sources.append((source, tuple(render.number for render, _ in known)))
        states += [bits for _, bits in known]
        corners += [_shares(render.box, render.width, render.height) for render, _ in known]
    return Renders(tuple(sources), tuple(states), np.array(corners, dtype=np.float32))


@dataclass(frozen=True, eq=False)
class BoxedFrames:
    """Frames in which somebody drew a box around the assembly."""

    recording_M: NDArray[np.int64]
    frame_M: NDArray[np.int64]
    corners_M4: NDArray[np.float32]  # as shares of the square that networks see

    def __len__(self) -> int:
        return len(self.frame_M)


def boxed_frames_of(recordings: Sequence[Recording], procedure: Procedure) -> BoxedFrames:
    """The frames of recordings that `OD_labels.json` has boxes for."""
    rows: list[tuple[int, int, float, float, float, float]] = []
    for number, recording in enumerate(recordings):
        path = recording.path / COCO_FILE
        if not path.is_file():
            continue
        height, width = next(recording.source.images()).shape[:2]
        rows += [(number, box.frame, *_shares(box.box, width, height)) for box in read_coco_boxes(path, procedure)]
    if not rows:
        cure = f"each recording needs {COCO_FILE}; or set encoder.crop_size=0, to look at whole images"
        raise InputError("no recording has boxes to learn from where the assembly is", cure=cure)
    table = np.array(rows)
    return BoxedFrames(table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2:].astype(np.float32))


def _shares(box: Box, width: int, height: int) -> tuple[float, float, float, float]:
    """A box, cut at the image's border, as corners in shares of the square."""
    return Placement.of(width, height, 1).into_square(box.inside(width, height)).corners


def key_frames_of(recordings: Sequence[Recording], config: Config) -> KeyFrames:
    """Key frames by the settings; recordings may differ in their frames per second."""
    fps = {recording.fps for recording in recordings}
    if len(fps) > 1:
        raise InputError(f"recordings have different frames per second: {sorted(fps)}", cure="bring them to one rate")
    return key_frames(
        [recording.states for recording in recordings if recording.states is not None],
        [recording.n_frames for recording in recordings],
        fps=fps.pop(),
        after_seconds=config.key_frames.after_seconds,
        wrong_states=config.key_frames.wrong_states,
        initial_state=config.key_frames.initial_state,
    )
