"""How far two people agree who labelled the same recordings: when steps were completed, and what state parts were in.

Completions are matched step by step: those of one step in one recording, in their order, so that the frames between
them are fewest. States are compared frame by frame with Cohen's kappa: 1 is full agreement, 0 what chance would give
two people who use each state as often as these two do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from stormpsr.data.labels import STATES_FILE, STEPS_FILE, StateTimeline, read_states, read_steps, steps_from_states
from stormpsr.data.layouts import RecordingFolder, find_recordings, read_about
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure


@dataclass(frozen=True, slots=True)
class Matched:
    """A completion that both have labelled."""

    recording: str
    step_id: int
    first: int  # frame
    second: int

    @property
    def distance(self) -> int:
        """Frames from the first person's to the second's, whichever is earlier."""
        return abs(self.second - self.first)


@dataclass(frozen=True, slots=True)
class Alone:
    """A completion that only one of them has labelled."""

    recording: str
    step_id: int
    frame: int


@dataclass(frozen=True)
class Agreement:
    """What two folders of labels have in common."""

    recordings: tuple[str, ...]  # in both
    only_first: tuple[str, ...]  # recordings
    only_second: tuple[str, ...]
    matched: tuple[Matched, ...]
    missing: tuple[Alone, ...]  # in the second
    extra: tuple[Alone, ...]  # in the second
    fps: float
    kappa: float | None  # of whole states; None where both know a single state only, or have labelled none
    component_kappa: Mapping[str, float | None]
    n_frames: int  # that were compared

    @property
    def distances(self) -> list[int]:
        return sorted(one.distance for one in self.matched)

    @property
    def f1(self) -> float | None:
        """Share of completions that both have, of those that either has."""
        n = 2 * len(self.matched) + len(self.missing) + len(self.extra)
        return 2 * len(self.matched) / n if n else None

    def quantile(self, share: float) -> float | None:
        """A distance that so large a share of the completions keeps within."""
        found = self.distances
        return float(found[min(int(share * len(found)), len(found) - 1)]) if found else None

    def to_dict(self) -> dict[str, Any]:
        distances = self.distances
        return {
            "recordings": list(self.recordings),
            "only_first": list(self.only_first),
            "only_second": list(self.only_second),
            "completions": {
                "matched": len(self.matched),
                "missing": [asdict(one) for one in self.missing],
                "extra": [asdict(one) for one in self.extra],
                "f1": self.f1,
                "median_frames": median(distances) if distances else None,
                "mean_frames": fmean(distances) if distances else None,
                "p90_frames": self.quantile(0.9),
                "max_frames": distances[-1] if distances else None,
                "fps": self.fps,
                "pairs": [{**asdict(one), "distance": one.distance} for one in self.matched],
            },
            "states": {"frames": self.n_frames, "kappa": self.kappa, "components": dict(self.component_kappa)},
        }


def compare_labels(first: Path, second: Path, procedure: Procedure) -> Agreement:
    """Compare two folders with labels of the same recordings, paired by name."""
    sides = [_by_name(folder) for folder in (first, second)]
    both = sorted(sides[0].keys() & sides[1].keys())
    if not both:
        theirs = ", ".join(sorted(sides[1])[:3])
        cure = f"recordings are paired by name; there are {', '.join(sorted(sides[0])[:3])} and {theirs}"
        raise InputError("no recording is labelled in both folders", path=second, cure=cure)
    matched: list[Matched] = []
    missing: list[Alone] = []
    extra: list[Alone] = []
    tables: list[Counter[tuple[Hashable, Hashable]]] = [Counter() for _ in procedure.components]
    whole: Counter[tuple[Hashable, Hashable]] = Counter()
    for name in both:
        folders = [side[name] for side in sides]
        steps = [_completions(folder, procedure) for folder in folders]
        for step_id in sorted({*steps[0], *steps[1]}):
            pairs, alone_first, alone_second = match_frames(steps[0].get(step_id, []), steps[1].get(step_id, []))
            matched += [Matched(name, step_id, a, b) for a, b in pairs]
            missing += [Alone(name, step_id, frame) for frame in alone_first]
            extra += [Alone(name, step_id, frame) for frame in alone_second]
        if all((folder.path / STATES_FILE).is_file() for folder in folders):
            timelines = [read_states(folder.path / STATES_FILE, procedure) for folder in folders]
            for n, (one, other) in _stretches(timelines[0], timelines[1], folders):
                whole[one, other] += n
                for table, a, b in zip(tables, one, other, strict=True):
                    table[a, b] += n
    fps = read_about(sides[0][both[0]].path).fps or procedure.fps
    names = [component.name for component in procedure.components]
    return Agreement(
        tuple(both),
        tuple(sorted(sides[0].keys() - sides[1].keys())),
        tuple(sorted(sides[1].keys() - sides[0].keys())),
        tuple(matched),
        tuple(missing),
        tuple(extra),
        fps,
        cohens_kappa(whole),
        {name: cohens_kappa(table) for name, table in zip(names, tables, strict=True)},
        sum(whole.values()),
    )


def _by_name(folder: Path) -> dict[str, RecordingFolder]:
    found: dict[str, RecordingFolder] = {}
    for recording in find_recordings(folder):
        if recording.has_labels and found.setdefault(recording.name, recording) is not recording:
            raise InputError(f"recording {recording.name!r} is there twice", path=folder, cure="compare one split")
    return found


def _completions(folder: RecordingFolder, procedure: Procedure) -> dict[int, list[int]]:
    """Frames of the correct completions by step: as labelled, or as they follow from the states."""
    path = folder.path / STEPS_FILE
    if path.is_file():
        events = read_steps(path, procedure)
    else:
        timeline = read_states(folder.path / STATES_FILE, procedure)
        events = steps_from_states(timeline, procedure, with_errors=False)
    found: dict[int, list[int]] = {}
    for event in events:
        found.setdefault(event.step_id, []).append(event.frame)
    return {step_id: sorted(frames) for step_id, frames in found.items()}


def match_frames(first: Sequence[int], second: Sequence[int]) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """Pairs in order, as many as the shorter list has, with the fewest frames between them; and those left alone."""
    if len(first) > len(second):
        pairs, left, right = match_frames(second, first)
        return [(b, a) for a, b in pairs], right, left
    n, m = len(first), len(second)
    # cost[i][j]: the first i frames matched among the first j of the other list
    cost = [[0.0] * (m + 1)] + [[float("inf")] * (m + 1) for _ in range(n)]
    for i in range(1, n + 1):
        for j in range(i, m + 1):
            cost[i][j] = min(cost[i][j - 1], cost[i - 1][j - 1] + abs(first[i - 1] - second[j - 1]))
    pairs, alone = [], []
    i = n
    for j in range(m, 0, -1):
        if i and cost[i][j] < cost[i][j - 1]:
            pairs.append((first[i - 1], second[j - 1]))
            i -= 1
        else:
            alone.append(second[j - 1])
    return pairs[::-1], [], alone[::-1]


def _stretches(
    first: StateTimeline, second: StateTimeline, folders: Sequence[RecordingFolder]
) -> list[tuple[int, tuple[tuple[int, ...], tuple[int, ...]]]]:
    """(number of frames, both states) from one change of either to the next."""
    known = [n for folder in folders if (n := folder.n_frames()) is not None]
    changes = sorted({0, *first.frames, *second.frames})
    end = max(known[0] if known else 0, changes[-1] + 1)
    return [
        (after - frame, (first.at(frame), second.at(frame)))
        for frame, after in zip(changes, [*changes[1:], end], strict=True)
    ]


def cohens_kappa(table: Mapping[tuple[Hashable, Hashable], int]) -> float | None:
    """From how often one said a while the other said b; None where chance alone would agree always."""
    total = sum(table.values())
    if not total:
        return None
    ones: Counter[Hashable] = Counter()
    others: Counter[Hashable] = Counter()
    for (one, other), n in table.items():
        ones[one] += n
        others[other] += n
    observed = sum(n for (one, other), n in table.items() if one == other) / total
    chance = sum(n * others[value] for value, n in ones.items()) / total**2
    return None if chance == 1 else (observed - chance) / (1 - chance)
