"""How clips are drawn for training: uniform, Gaussian and key-clip aware sampling at equal steps, over several seeds.

Trains the temporal model on one encoder's embeddings for each distribution and seed, and scores it on the validation
and test recordings: clips that end at every stride, as in live use, and the events after decoding.

A model that saw more changes in training than there are says "changed" more often, so a fixed probability would compare
how often the models speak, not what they know. Therefore each one gets the cut (and, for events, the threshold) that is
best for it on the validation recordings; average precision needs none. The columns `at 0.5` have the fixed cut.

    python benchmarks/clip_sampling.py data/vehicle runs/vehicle/encoder/best --out runs/clip_sampling

Settings are those of the encoder's checkpoint, changed by -o key=value. What is finished is not trained again, and what
was interrupted goes on: the same command may be repeated. Prints Markdown; OUT/results.json has all figures.

A change of a component that is absent in the clip's first frame is an installation, of one that is in place a removal,
for true changes as for false alarms. `clips with a change` and `distance from uniform` (total variation, 0 to 1) say
how much the distributions differ at all: where both hardly move, the world's time scale hides what sampling could do.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from named_run import NamedRun
from script import add_override, errors_in_one_line, make_parser, print_table
from stormpsr.config import Config, dump_config, parse_config
from stormpsr.data.dataset import Dataset
from stormpsr.data.embedding_store import read_clips
from stormpsr.data.recording import Recording, variant_name_of
from stormpsr.data.sampling import change_frames, clip_labels, clip_windows, end_frame_probabilities, window_offsets
from stormpsr.decoding.fusion import FusionSettings, TemporalFusion
from stormpsr.decoding.fusion_batch import FusionGrid
from stormpsr.evaluation.metrics import f1_score, score
from stormpsr.files import write_json
from stormpsr.models.checkpoint import load_checkpoint
from stormpsr.models.temporal import TemporalModel
from stormpsr.training.data import TrainingData, load_training_data
from stormpsr.training.fit import FitOptions
from stormpsr.training.stage_folder import digest_of
from stormpsr.training.stages import clip_recordings, clip_sampler, embed, train_temporal
from stormpsr.training.tasks.temporal import THRESHOLDS, ValidationClips

DISTRIBUTIONS = ("uniform", "gaussian", "kcas")
CUTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
COLUMNS = (
    *("average precision", "clip F1", "installations", "removals", "event F1", "POS", "tau (s)"),
    *("clip F1 at 0.5", "event F1 at 0.5"),
)
_CLIPS_AT_ONCE = 256
Probabilities = list[NDArray[np.floating]]  # one array (E, C) per recording


# ---------------------------------------------------------------------- training
def candidates(options: argparse.Namespace) -> Iterator[NamedRun]:
    """One run per distribution and seed, all with the same settings but these two."""
    text = dump_config(load_checkpoint(options.encoder).config)
    data: TrainingData | None = None
    for seed in options.seeds:
        for distribution in options.distributions:
            changes = [*options.overrides, f"clips.distribution={distribution}", f"seed={seed}"]
            config = parse_config(text, where=str(options.encoder / "config.yaml"), overrides=changes)
            data = data or load_training_data(options.data, config)
            fit_options = FitOptions(resume=True, device="cpu", workers=0)
            name = f"{distribution}-{seed}"
            yield NamedRun(
                config, data, options.out, options=fit_options, cache_folder=options.cache or options.out, name=name
            )


def train(run: NamedRun, encoder_folder: Path) -> Path:
    """The folder of the best checkpoint, trained first if it is not there."""
    from stormpsr.cli.output import Bar
    from stormpsr.cli.train_progress import StageBar  # after stormpsr.training, which prepares what it imports

    folder = run.stage("temporal")
    with Bar(logged=True) as bar:
        callbacks = (StageBar(run.name, "clips", bar),)
        staged = replace(run, options=replace(run.options, callbacks=callbacks), on_progress=bar.named)
        if not folder.is_finished:
            train_temporal(staged, encoder_folder)
        else:
            folder.check(run.config, resume=True)  # complains if settings or encoder have changed since
            folder.check_began_from(digest_of(load_checkpoint(encoder_folder).tensors), "encoder")
    return folder.best


# ---------------------------------------------------------------------- scores
def probabilities_of(
    temporal: TemporalModel, stores: Sequence[NDArray[Any]], clips: ValidationClips, frame_step: int
) -> Probabilities:
    """The model's word on the clips of every recording."""
    found = []
    with torch.inference_mode():
        for number, store_FD in enumerate(stores):
            frame_EN, mask_EN = clips.windows(number)
            parts = []
            for start in range(0, len(frame_EN), _CLIPS_AT_ONCE):
                frame_BN, mask_BN = (part[start : start + _CLIPS_AT_ONCE] for part in (frame_EN, mask_EN))
                nought_B = np.zeros(len(frame_BN), dtype=np.int64)
                clip_BND = read_clips([store_FD], nought_B, frame_BN, mask_BN, frame_step)
                logits_BC = temporal(torch.from_numpy(clip_BND), torch.from_numpy(mask_BN))
                parts.append(torch.sigmoid(logits_BC).numpy())
            found.append(np.concatenate(parts))
    return found


def clip_figures(probabilities: Probabilities, clips: ValidationClips, cut: float) -> dict[str, Any]:
    """F1 over all clips and components, per component, of installations and of removals; average precision."""
    from sklearn.metrics import average_precision_score  # takes long to import

    probability_XC, true_XC = np.concatenate(probabilities), clips.labels() > 0
    said_XC = probability_XC > cut
    ends = zip(clips.recordings, clips.ends, strict=True)
    after_XC = np.concatenate([recording.states_FC[end_E] == 1 for recording, end_E in ends])
    before_XC = after_XC ^ true_XC
    columns = zip(said_XC.T, true_XC.T, strict=True)
    return {
        "clip F1": f1_of(said_XC, true_XC),
        "installations": f1_of(said_XC & ~before_XC, true_XC & ~before_XC),
        "removals": f1_of(said_XC & before_XC, true_XC & before_XC),
        "average precision": float(average_precision_score(true_XC.ravel(), probability_XC.ravel()))
        if true_XC.any()
        else None,
        "per component": [f1_of(said_X, true_X) for said_X, true_X in columns],
        "clips": len(true_XC),
        "changes": int(true_XC.sum()),
        "removals in the labels": int((true_XC & before_XC).sum()),
    }


def f1_of(said: NDArray[np.bool_], true: NDArray[np.bool_]) -> float | None:
    """None where there is nothing to find."""
    counts = (said & true).sum(), (said & ~true).sum(), (~said & true).sum()
    return f1_score(*map(int, counts)) if true.any() else None


def decodings(clips: ValidationClips) -> list[FusionSettings]:
    """Every threshold with every cut."""
    return [
        FusionSettings(
            threshold=threshold,
            min_change_probability=cut,
            window_frames=clips.window_frames,
            hold_frames=clips.stride_frames,
            unexpected="report",
        )
        for cut in CUTS
        for threshold in THRESHOLDS
    ]


def event_figures(
    probabilities: Probabilities, clips: ValidationClips, settings: Sequence[FusionSettings]
) -> list[dict[str, float | None]]:
    """For each setting: pooled F1, mean POS of the recordings, mean delay of what was found."""
    counts_K3 = np.zeros((len(settings), 3), dtype=np.int64)
    order: list[list[float]] = [[] for _ in settings]
    delays: list[list[float]] = [[] for _ in settings]
    for probability_EC, end_E, recording in zip(probabilities, clips.ends, clips.recordings, strict=True):
        grid = FusionGrid(clips.procedure, variant_name_of(recording, clips.procedure), settings, TemporalFusion)
        said = {int(end): probability_C for end, probability_C in zip(end_E, probability_EC, strict=True)}
        for frame in range(recording.n_frames):
            grid.update((), said.get(frame), frame)
        for k, events in enumerate(grid.events):
            found = score(recording.steps or (), events, fps=recording.fps)
            counts_K3[k] += (found.true_positives, found.false_positives, found.false_negatives)
            order[k].append(found.pos)
            delays[k] += [match.delay_frames / recording.fps for match in found.matches]
    return [
        {
            "event F1": f1_score(*counts_K3[k].tolist()),
            "POS": float(np.mean(order[k])),
            "tau (s)": float(np.mean(delays[k])) if delays[k] else None,
        }
        for k in range(len(settings))
    ]


def evaluate(run: NamedRun, best: Path, test: Sequence[Recording]) -> dict[str, Any]:
    """Figures on both splits; cuts and threshold are chosen on the validation recordings."""
    checkpoint = load_checkpoint(best)
    stream = checkpoint.stream().eval()
    said, clips = {}, {}
    for split, recordings in (("val", run.data.val), ("test", test)):
        clips[split] = ValidationClips(recordings, run.data.procedure, run.config)
        stores = embed(run, stream.encoder, recordings)
        said[split] = probabilities_of(stream.temporal, stores, clips[split], run.config.clips.frame_step)
    cut = max(CUTS, key=lambda candidate: clip_figures(said["val"], clips["val"], candidate)["clip F1"] or 0.0)
    settings = decodings(clips["val"])
    scores = [found["event F1"] or 0.0 for found in event_figures(said["val"], clips["val"], settings)]
    tuned = settings[int(np.argmax(scores))]
    plain = max(range(len(settings)), key=lambda k: scores[k] if settings[k].min_change_probability == 0.5 else -1.0)
    figures: dict[str, Any] = {
        "epoch": checkpoint.metrics["epoch"] + 1,
        "cut for clips": cut,
        "cut for events": tuned.min_change_probability,
        "threshold": tuned.threshold,
    }
    for split in ("val", "test"):
        events, at_half = event_figures(said[split], clips[split], [tuned, settings[plain]])
        figures[split] = (
            clip_figures(said[split], clips[split], cut)
            | events
            | {
                "clip F1 at 0.5": clip_figures(said[split], clips[split], 0.5)["clip F1"],
                "event F1 at 0.5": at_half["event F1"],
            }
        )
    return figures


# ---------------------------------------------------------------------- what the distributions do
def drawn_clips(run: NamedRun) -> dict[str, float]:
    """What the first epoch draws, and how far the distribution is from the uniform one."""
    clips, stage = run.config.clips, run.config.train_temporal
    recordings = clip_recordings(run, stage)
    recording_B, end_B = clip_sampler(run, stage, recordings).epoch(0)
    offsets_N = window_offsets(clips.window_frames, clips.n_window)
    changed = 0
    for number, recording in enumerate(recordings):
        windows = clip_windows(end_B[recording_B == number], offsets_N)
        changed += int(clip_labels(recording.states_FC, *windows).any(axis=1).sum())
    distances, lengths = [], [recording.n_frames for recording in recordings]
    for recording in recordings:
        if recording.states is not None:
            p_F = end_frame_probabilities(
                clips.distribution,
                change_frames(recording.states),
                recording.n_frames,
                delta_frames=clips.delta_frames,
                sigma_frames=clips.sigma_frames,
            )
            distances.append(float(np.abs(p_F - 1 / len(p_F)).sum() / 2))
    return {
        "clips with a change": changed / len(end_B),
        "distance from uniform": float(np.average(distances, weights=lengths)),
    }


def seconds_between_changes(data: TrainingData) -> float:
    """Median time from one change of what is correctly in place to the next."""
    gaps = [np.diff(change_frames(r.states)) / r.fps for r in data.train if r.states is not None]
    return float(np.median(np.concatenate(gaps)))


# ---------------------------------------------------------------------- output
def spread(values: Sequence[float | None], digits: int = 3) -> str:
    """Mean and, of several seeds, the standard deviation."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean = f"{np.mean(known):.{digits}f}"
    return f"{mean} ± {np.std(known, ddof=1):.{digits}f}" if len(known) > 1 else mean


def print_tables(results: Sequence[dict[str, Any]], components: Sequence[str]) -> None:
    by_distribution: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        by_distribution.setdefault(result["distribution"], []).append(result)

    def show(title: str, figures: Mapping[str, Sequence[Mapping[str, float | None]]], digits: int) -> None:
        """A row per distribution, a column per figure, over its seeds."""
        columns = list(next(iter(figures.values()))[0])
        print()
        rows = ((name, *(spread([one[c] for one in of], digits) for c in columns)) for name, of in figures.items())
        print_table((title, *columns), rows)

    show("training clips", {name: [one["drawn"] for one in of] for name, of in by_distribution.items()}, 2)
    for split in ("val", "test"):
        chosen = {name: [{c: one[split][c] for c in COLUMNS} for one in of] for name, of in by_distribution.items()}
        show(split, chosen, 3)
    parts = {
        name: [dict(zip(components, one["test"]["per component"], strict=True)) for one in of]
        for name, of in by_distribution.items()
    }
    show("clip F1 per component, test", parts, 2)


def measure(options: argparse.Namespace) -> None:
    results: dict[str, dict[str, Any]] = {}
    path = options.out / "results.json"
    test: list[Recording] = []
    config: Config | None = None
    for run in candidates(options):
        if config is None:
            config = run.config
            test = list(Dataset.open(options.data, "test", run.data.procedure))
            stage = config.train_temporal
            batches = clip_sampler(run, stage, clip_recordings(run, stage)).batches_per_epoch
            print(
                f"{stage.epochs * batches} steps of {stage.batch_size} clips each; {len(run.data.train)} recordings to "
                f"train on, {len(run.data.val)} for validation, {len(test)} for test; seeds "
                f"{', '.join(map(str, options.seeds))}; median {seconds_between_changes(run.data):.1f} s between "
                f"changes, delta {config.clips.delta_frames / run.data.train[0].fps:.1f} s, sigma "
                f"{config.clips.sigma_frames / run.data.train[0].fps:.1f} s"
            )
        begin = time.perf_counter()
        best = train(run, options.encoder)
        minutes = (time.perf_counter() - begin) / 60
        about = {"distribution": run.config.clips.distribution, "seed": run.config.seed, "minutes": minutes}
        results[run.name] = about | {"drawn": drawn_clips(run)} | evaluate(run, best, test)
        content = {"config": dump_config(run.config), "results": results}
        write_json(path, content)
        said = ", ".join(f"{s} {results[run.name][s]['event F1']:.3f}" for s in ("val", "test"))
        print(f"{run.name}: event F1: {said}", file=sys.stderr, flush=True)
    print_tables(list(results.values()), [c.name for c in run.data.procedure.components])


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("encoder", type=Path, help="folder of the encoder's checkpoint")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cache", type=Path, help="folder of decoded frames, shared with training; default: OUT")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--distributions", nargs="+", choices=DISTRIBUTIONS, default=list(DISTRIBUTIONS))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    add_override(parser)
    options = parser.parse_args(words)
    torch.set_num_threads(options.threads)
    try:
        with errors_in_one_line():
            measure(options)
    except KeyboardInterrupt:
        sys.exit("stopped: the same command goes on where it was")


if __name__ == "__main__":
    main()
