"""What embeddings know about the assembly: the nearest known frame's state, by how much of the object can be seen.

Known are key frames of the training recordings; asked is about every so many frames of another split. Rows: encoders
without training (random numbers, ImageNet weights), and any number of trained ones. An untrained encoder is judged
twice: by the features of its backbone, and after the layers that stand on top of them, which are random.

    python benchmarks/embeddings.py data/vehicle KFS=runs/vehicle/encoder/best --cache runs/cache

A state that no known frame shows can never be found: the row `best possible` says how often that is so. A component is
absent, correct or wrong; where a trained encoder looks at a crop of the image, the untrained ones are given its
crops, too. Prints Markdown; --out writes all figures as JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from script import add_override, errors_in_one_line, make_parser, print_table
from stormpsr.config import Config, EncoderConfig, load_config
from stormpsr.data.dataset import Dataset
from stormpsr.data.frame_cache import FrameCache
from stormpsr.data.recording import Recording
from stormpsr.data.sampling import KeyFrames
from stormpsr.data.visibility import VISIBILITY_FILE, read_visibility
from stormpsr.errors import InputError
from stormpsr.files import write_json
from stormpsr.models.checkpoint import load_checkpoint
from stormpsr.models.encoder import SpatialEncoder
from stormpsr.models.stream import build_encoder
from stormpsr.procedure.model import Procedure
from stormpsr.training.data import TrainingData, key_frames_of, load_training_data

EDGES = (0.0, 0.5, 0.9)
_IMAGES_AT_ONCE = 64
_FRAMES_AT_ONCE = 1024
Embed = Callable[[Tensor], Tensor]  # images (B, S, S, 3) -> embeddings (B, D)


@dataclass(frozen=True)
class Way:
    """One row of the table: a way to embed images of a certain size."""

    name: str
    image_size: int
    embed: Embed


@dataclass(frozen=True, eq=False)
class Frames:
    """Some frames of recordings, with what is true of them."""

    recordings: tuple[Recording, ...]
    chosen: tuple[NDArray[np.int64], ...]  # per recording, in order
    states_FC: NDArray[np.int8]
    visible_F: NDArray[np.float64]


# ---------------------------------------------------------------------- frames
def known_frames(data: TrainingData, config: Config, every: int) -> Frames:
    """Key frames of the training recordings, evenly thinned."""
    keys: KeyFrames = key_frames_of(data.train, config, data.procedure)
    chosen = tuple(np.sort(keys.frame_M[keys.recording_M == r])[::every] for r in range(len(data.train)))
    states = [recording.states_FC[frames] for recording, frames in zip(data.train, chosen, strict=True)]
    return Frames(data.train, chosen, np.concatenate(states), np.ones(sum(map(len, chosen))))


def asked_frames(root: Path, split: str, procedure: Procedure, every: int) -> Frames:
    """Every so many frames of a split, with the share of the object that can be seen in each."""
    recordings = tuple(Dataset.open(root, split, procedure))
    if not recordings:
        raise InputError(f"there is no split {split!r}", path=root)
    chosen = tuple(np.arange(0, recording.n_frames, every) for recording in recordings)
    visible = []
    for recording, frames in zip(recordings, chosen, strict=True):
        seen = read_visibility(recording.path / VISIBILITY_FILE, procedure.n_components)
        visible.append(seen.mean_visible_F()[frames])
    states = [recording.states_FC[frames] for recording, frames in zip(recordings, chosen, strict=True)]
    return Frames(recordings, chosen, np.concatenate(states), np.concatenate(visible))


def embeddings_of(frames: Frames, way: Way, cache_folder: Path) -> NDArray[np.float32]:
    """The embeddings of frames, one after the other; only these are encoded."""
    cache = FrameCache(cache_folder, way.image_size)
    found = []
    with torch.inference_mode():
        for recording, chosen in zip(frames.recordings, frames.chosen, strict=True):
            cache.fill(recording.source)
            image_FSS3 = cache.read(recording.source)
            for start in range(0, len(chosen), _IMAGES_AT_ONCE):
                picked = chosen[start : start + _IMAGES_AT_ONCE]
                found.append(way.embed(torch.from_numpy(image_FSS3[picked])).float().numpy())
    return np.concatenate(found)


# ---------------------------------------------------------------------- encoders
def untrained(
    name: str, settings: EncoderConfig, weights: str, locating: SpatialEncoder | None, seed: int
) -> list[Way]:
    """An encoder as it is before training, read in two places; it looks where a trained one looks, if there is one."""
    torch.manual_seed(seed)
    bare = settings.model_copy(
        update={"weights": weights, "n_queries": 0, "frozen_stride": 0, "crop_size": 0}
        | ({"image_size": locating.crop_size} if locating is not None else {})
    )
    encoder = build_encoder(bare).eval()
    image_size = settings.image_size if locating is None else locating.image_size

    def look(image_BSS3: Tensor) -> Tensor:
        return image_BSS3 if locating is None else locating.crop_assembly(image_BSS3)

    def features(image_BSS3: Tensor) -> Tensor:
        pixels = encoder.normalise(look(image_BSS3))
        backbone = encoder.backbone
        pooled: Tensor = backbone.forward_head(backbone.forward_features(pixels), pre_logits=True)
        return pooled

    about = f"{name} ({settings.backbone}{'' if locating is None else ', on crops'})"
    return [
        Way(f"{about}, features of the backbone", image_size, features),
        Way(f"{about}, after random layers", image_size, lambda image_BSS3: encoder.embed(look(image_BSS3))),
    ]


def ways_to_embed(options: argparse.Namespace, config: Config) -> Iterator[Way]:
    """All rows: without training, on whole images and on crops, then the trained ones."""
    trained = {name: load_checkpoint(folder).encoder() for name, folder in options.encoders}
    locating = next((encoder for encoder in trained.values() if getattr(encoder, "locator", None) is not None), None)
    imagenet = config.encoder.model_copy(update={"backbone": options.imagenet_backbone})
    for look in [None] if locating is None else [None, locating]:
        yield from untrained("random", config.encoder, "none", look, options.seed)
        yield from untrained("ImageNet", imagenet, options.imagenet_weights, look, options.seed)
    for name, encoder in trained.items():
        yield Way(name, encoder.image_size, encoder.eval().embed)


# ---------------------------------------------------------------------- scores
@dataclass(frozen=True)
class NeighbourScores:
    """Accuracy of the nearest neighbour in a group of frames. None where the group is empty."""

    least_visible: float  # of the group: at least this share of the object can be seen
    most_visible: float  # and less than this
    n_frames: int
    state_accuracy: float | None  # all components right
    component_accuracy: float | None  # over all frames and components
    accuracy_per_component: tuple[float, ...] | None


def nearest_states(embedding_FD: NDArray[Any], known_KD: NDArray[Any], known_states_KC: NDArray[Any]) -> NDArray[Any]:
    """For each frame, the state of the known frame whose embedding has the largest cosine with its own."""
    if not len(known_KD):
        raise InputError("there are no known frames to compare with")
    known = unit_length(known_KD)
    found = [
        (unit_length(embedding_FD[start : start + _FRAMES_AT_ONCE]) @ known.T).argmax(axis=1)
        for start in range(0, len(embedding_FD), _FRAMES_AT_ONCE)
    ]
    return np.asarray(known_states_KC[np.concatenate(found)])


def unit_length(embedding_FD: NDArray[Any]) -> NDArray[np.float32]:
    return np.asarray(embedding_FD / np.maximum(np.linalg.norm(embedding_FD, axis=1, keepdims=True), 1e-12))


def score_neighbours(
    guess_FC: NDArray[Any], states_FC: NDArray[Any], visible_F: NDArray[Any], edges: Sequence[float]
) -> list[NeighbourScores]:
    """Accuracy in groups of frames, by the share of the object that can be seen; the last group has no upper end."""
    groups = []
    for low, high in zip(edges, [*edges[1:], np.inf], strict=True):
        chosen_F = (visible_F >= low) & (visible_F < high)
        right_FC = (guess_FC == states_FC)[chosen_F]
        n = len(right_FC)
        groups.append(
            NeighbourScores(
                least_visible=float(low),
                most_visible=float(high),
                n_frames=n,
                state_accuracy=float(right_FC.all(axis=1).mean()) if n else None,
                component_accuracy=float(right_FC.mean()) if n else None,
                accuracy_per_component=tuple(right_FC.mean(axis=0).tolist()) if n else None,
            )
        )
    return groups


def scores_of(guess_FC: NDArray[Any], asked: Frames) -> list[NeighbourScores]:
    """All frames together, then by the share of the object that can be seen."""
    together = score_neighbours(guess_FC, asked.states_FC, asked.visible_F, edges=(EDGES[0],))
    return [*together, *score_neighbours(guess_FC, asked.states_FC, asked.visible_F, edges=EDGES)]


def commonest(known: Frames) -> NDArray[np.int8]:
    """The value that each component has most often, for whoever does not look."""
    values = np.array([-1, 0, 1], dtype=np.int8)
    counts_3C = np.stack([(known.states_FC == value).sum(axis=0) for value in values])
    return np.asarray(values[counts_3C.argmax(axis=0)])


def best_possible(known: Frames, asked: Frames) -> NDArray[np.int8]:
    """The true state where a known frame shows it, else the known one with the most components right."""
    known_NC = np.unique(known.states_FC, axis=0)
    right_FN = np.stack([(asked.states_FC == state).sum(axis=1) for state in known_NC], axis=1)
    return np.asarray(known_NC[right_FN.argmax(axis=1)])


# ---------------------------------------------------------------------- output
def cell(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def range_name(group: NeighbourScores) -> str:
    if group.most_visible == float("inf"):
        return "all" if group.least_visible == 0 else f"from {group.least_visible:g}"
    return (
        f"below {group.most_visible:g}"
        if group.least_visible == 0
        else f"{group.least_visible:g} to {group.most_visible:g}"
    )


def print_tables(rows: Sequence[tuple[str, list[NeighbourScores]]], procedure: Procedure) -> None:
    groups = rows[0][1]
    titles = [f"{what}, {range_name(group)}" for what in ("state", "component") for group in groups]
    cells = [["frames", *(str(group.n_frames) for _ in range(2) for group in groups)]]
    for name, found in rows:
        figures = [*(group.state_accuracy for group in found), *(group.component_accuracy for group in found)]
        cells.append([name, *map(cell, figures)])
    print_table(("visible share of the object", *titles), cells)
    print()
    names = [component.name for component in procedure.components]
    each = [(name, *map(cell, found[0].accuracy_per_component or ())) for name, found in rows]
    print_table(("each component, all frames", *names), each)


def as_json(found: list[NeighbourScores]) -> list[dict[str, Any]]:
    """Infinity is no JSON."""
    return [asdict(group) | {"most_visible": min(group.most_visible, 1e9)} for group in found]


def name_and_folder(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not equals or not name or not folder:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FOLDER")
    return name, Path(folder)


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("encoders", nargs="*", type=name_and_folder, metavar="NAME=FOLDER")
    parser.add_argument("--split", default="test", choices=["train", "val", "test"])
    parser.add_argument("--every", type=int, default=5, help="ask about every so many frames")
    parser.add_argument("--known-every", type=int, default=4, help="keep every so many key frames")
    parser.add_argument("--preset", default="synthetic", help="key frames and the untrained backbone")
    parser.add_argument("--imagenet-backbone", default="tf_efficientnet_lite0")
    parser.add_argument("--imagenet-weights", default="package", help="package, hub or a file")
    parser.add_argument(
        "--cache", type=Path, required=True, help="folder for decoded frames, to be shared with training"
    )
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    add_override(parser)
    options = parser.parse_args(words)
    torch.set_num_threads(options.threads)
    with errors_in_one_line():
        measure(options)


def measure(options: argparse.Namespace) -> None:
    config = load_config(options.preset, options.overrides)
    data = load_training_data(options.data, config)
    known = known_frames(data, config, options.known_every)
    asked = asked_frames(options.data, options.split, data.procedure, options.every)
    begin = time.perf_counter()
    nothing_seen = np.broadcast_to(commonest(known), asked.states_FC.shape)
    rows = [("the commonest value of each component", scores_of(nothing_seen, asked))]
    for way in ways_to_embed(options, config):
        print(f"{way.name} ...", file=sys.stderr, flush=True)
        known_KD, asked_FD = (embeddings_of(frames, way, options.cache) for frames in (known, asked))
        rows.append((way.name, scores_of(nearest_states(asked_FD, known_KD, known.states_FC), asked)))
    rows.append(("best possible", scores_of(best_possible(known, asked), asked)))
    minutes = (time.perf_counter() - begin) / 60
    n = len(np.unique(known.states_FC, axis=0))
    print(
        f"{len(known.states_FC)} known frames of {len(known.recordings)} recordings ({n} states); "
        f"{len(asked.states_FC)} frames of {len(asked.recordings)} recordings of split {options.split}; "
        f"in per cent; {minutes:.1f} minutes\n"
    )
    print_tables(rows, data.procedure)
    if options.out is not None:
        content = {
            "split": options.split,
            "every": options.every,
            "known_frames": len(known.states_FC),
            "known_states": n,
            "components": [component.name for component in data.procedure.components],
            "rows": [{"name": name, "groups": as_json(found)} for name, found in rows],
        }
        write_json(options.out, content)


if __name__ == "__main__":
    main()
