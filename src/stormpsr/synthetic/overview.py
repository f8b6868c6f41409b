"""What a set of recordings looks like: in numbers beside those of real recordings, and as random frames.

The real metrics were measured on the published labels of IndustReal (84 recordings) and MECCANO (20 recordings). Of
some distributions only the deciles are known; `mean_from_deciles` says what mean they imply.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.data.labels import STATES_FILE, StateTimeline, frame_name, read_states, steps_from_states
from stormpsr.data.layouts import RECORDING_FILE, read_about
from stormpsr.data.visibility import VISIBILITY_FILE, Visibility, read_visibility, runs_of, wait_for_clear_view
from stormpsr.errors import InputError
from stormpsr.files import replacing, write_text
from stormpsr.procedure.model import Procedure, StateBits, StepKind
from stormpsr.yaml_loader import read_yaml

if TYPE_CHECKING:
    from PIL.Image import Image

TOLERANCE = 0.25  # how far a calibrated profile may be from the real figure


def mean_from_deciles(deciles: Sequence[float]) -> float:
    """The mean of a distribution of positive numbers of which the nine deciles are known.

    Each tenth between two deciles counts with its middle, the lowest from 0. The highest tenth falls off exponentially,
    as steeply as from the eighth to the ninth decile. On the two real gap distributions whose mean is known as well,
    27 and 37 s, this gives 27.7 and 33.8 s.
    """
    d = [0.0, *deciles]
    tail = d[9] + (d[9] - d[8]) / np.log(2.0)
    return float((sum((a + b) / 2 for a, b in pairwise(d)) + tail) / 10)


@dataclass(frozen=True)
class Deciles:
    """A distribution: its nine deciles and its mean."""

    values: tuple[float, ...]
    mean: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Deciles | None:
        if not samples:
            return None
        values = np.percentile(samples, np.arange(10, 100, 10))
        return cls(tuple(float(x) for x in values), float(np.mean(samples)))

    @classmethod
    def known(cls, values: Sequence[float], mean: float | None = None) -> Deciles:
        return cls(tuple(values), mean_from_deciles(values) if mean is None else mean)


@dataclass(frozen=True, kw_only=True)
class SetStatistics:
    """The table of metrics. Seconds throughout; `None` where nothing was measured."""

    recordings: int
    mean_length: float
    fps: float
    steps_per_recording: float
    completion_gaps: Deciles | None  # between distinct moments of completion
    clear_share: float  # of frames in which the whole state can be read
    view_lengths: Deciles | None
    view_gaps: Deciles | None
    waits: Deciles | None = None  # from a completion to the next clear view
    errors_per_recording: float  # incorrect installations
    removals_per_recording: float | None = None
    visible_shares: Deciles | None = None  # per frame: mean visible share of the mounted components


def _real(figures: dict[str, Any]) -> SetStatistics:
    for name, value in figures.items():
        figures[name] = Deciles.known(**value) if isinstance(value, dict) else value
    return SetStatistics(errors_per_recording=figures.pop("errors") / figures["recordings"], **figures)


_REAL_FILE = Path(__file__).with_name("real_recordings.yaml")
REAL: Mapping[str, SetStatistics] = {name: _real(figures) for name, figures in read_yaml(_REAL_FILE).data.items()}


@dataclass(frozen=True, eq=False)
class RecordingMetrics:
    """What one recording contributes."""

    fps: float
    n_frames: int
    step_frames: tuple[int, ...]  # of correct steps, one entry per step
    n_errors: int
    n_removals: int
    readable_F: NDArray[np.bool_]
    mean_visible_F: NDArray[np.float64]


def recording_folders(root: Path) -> list[Path]:
    """The complete recordings of a set, of one split of it, or the one recording that the folder is."""
    found = sorted(path.parent for path in root.rglob("recording.json") if not path.parent.name.startswith("."))
    if not found:
        cure = "give the folder of a set made by 'stormpsr synth generate'"
        raise InputError("there are no generated recordings here", path=root, cure=cure)
    return found


def metrics_of(folder: Path) -> RecordingMetrics:
    """Read a generated recording."""
    procedure = Procedure.load(folder / "procedure.yaml")
    fps = read_about(folder).fps
    if fps is None:
        raise InputError("'fps' is missing", path=folder / RECORDING_FILE, cure="generate it again")
    states = read_states(folder / STATES_FILE, procedure)
    visibility = read_visibility(folder / VISIBILITY_FILE, procedure.n_components)
    return metrics(procedure, states, visibility, fps)


def metrics(procedure: Procedure, states: StateTimeline, visibility: Visibility, fps: float) -> RecordingMetrics:
    """What a recording with these states and this visibility contributes."""
    correct = steps_from_states(states, procedure, with_errors=False)
    everything = steps_from_states(states, procedure, with_errors=True)
    kinds = [procedure.step(event.step_id).kind for event in everything]
    return RecordingMetrics(
        fps=fps,
        n_frames=len(visibility.visible_FC),
        step_frames=tuple(event.frame for event in correct),
        n_errors=sum(kind is StepKind.INCORRECT for kind in kinds),
        n_removals=sum(kind is StepKind.REMOVE for kind in kinds),
        readable_F=visibility.readable_F(),
        mean_visible_F=visibility.mean_visible_F(),
    )


def summarise_set(recordings: Iterable[RecordingMetrics]) -> SetStatistics:
    """The metrics of a set."""
    each = list(recordings)
    views = [(one.fps, runs_of(one.readable_F)) for one in each]
    frames = sum(one.n_frames for one in each)
    return SetStatistics(
        recordings=len(each),
        mean_length=float(np.mean([one.n_frames / one.fps for one in each])),
        fps=each[0].fps,
        steps_per_recording=float(np.mean([len(one.step_frames) for one in each])),
        completion_gaps=Deciles.of(
            [(b - a) / one.fps for one in each for a, b in pairwise(sorted(set(one.step_frames)))]
        ),
        clear_share=sum(int(one.readable_F.sum()) for one in each) / max(frames, 1),
        view_lengths=Deciles.of([(end - start) / fps for fps, runs in views for start, end in runs]),
        view_gaps=Deciles.of([(b[0] - a[1]) / fps for fps, runs in views for a, b in pairwise(runs)]),
        waits=Deciles.of([wait for one in each for wait in waits_of(one)]),
        errors_per_recording=float(np.mean([one.n_errors for one in each])),
        removals_per_recording=float(np.mean([one.n_removals for one in each])),
        visible_shares=Deciles.of(np.concatenate([one.mean_visible_F for one in each]).tolist()),
    )


def waits_of(one: RecordingMetrics) -> list[float]:
    """Seconds from every completion to the next frame in which the state can be read, where there is one."""
    waits = wait_for_clear_view(sorted(set(one.step_frames)), np.flatnonzero(one.readable_F).tolist())
    return [wait / one.fps for wait in waits if wait is not None]


@dataclass(frozen=True)
class Comparison:
    """One figure of a set beside the real one."""

    name: str
    measured: float | None
    real: float | None
    calibrated: bool  # whether a profile must come within the tolerance

    @property
    def ratio(self) -> float | None:
        return None if self.measured is None or not self.real else self.measured / self.real

    @property
    def within(self) -> bool | None:
        """Whether the figure is within the tolerance; None where there is nothing to compare."""
        return None if self.ratio is None else abs(self.ratio - 1.0) <= TOLERANCE


def compare(measured: SetStatistics, real: SetStatistics | None) -> list[Comparison]:
    """The metrics of a set, beside the real ones if there are any."""

    def mean(deciles: Deciles | None) -> float | None:
        return None if deciles is None else deciles.mean

    rows = (
        ("recordings", lambda s: float(s.recordings), False),
        ("mean length of a recording (s)", lambda s: s.mean_length, False),
        ("steps per recording", lambda s: s.steps_per_recording, True),
        ("mean time between completions (s)", lambda s: mean(s.completion_gaps), True),
        ("share of clear frames", lambda s: s.clear_share, True),
        ("mean length of a clear view (s)", lambda s: mean(s.view_lengths), True),
        ("mean gap between clear views (s)", lambda s: mean(s.view_gaps), True),
        ("mean wait from completion to clear view (s)", lambda s: mean(s.waits), False),
        ("incorrect completions per recording", lambda s: s.errors_per_recording, False),
        ("removals per recording", lambda s: s.removals_per_recording, False),
        ("mean visible share of mounted components", lambda s: mean(s.visible_shares), False),
    )
    return [Comparison(name, get(measured), get(real) if real else None, must) for name, get, must in rows]


# ---------------------------------------------------------------------- random frames
@dataclass(frozen=True)
class Sample:
    """One frame to look at."""

    folder: Path
    frame: int
    bits: StateBits
    state: str  # in words
    view: str  # in words: how well it can be seen
    image: Image


def _draw_samples(root: Path, count: int, seed: int) -> list[Sample]:
    """Random frames, in equal numbers from randomly ordered recordings, readable ones and others."""
    if count < 1:
        raise InputError(f"{count} frames", cure="at least one is needed")
    folders = [folder for folder in recording_folders(root) if (folder / "rgb").is_dir()]
    if not folders:
        raise InputError("the recordings have no single frames", path=root, cure="generate them without --video")
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(folders))
    return [_sample(folders[int(order[number % len(folders)])], rng) for number in range(count)]


def _sample(folder: Path, rng: np.random.Generator) -> Sample:
    from PIL import Image

    procedure = Procedure.load(folder / "procedure.yaml")
    visibility = read_visibility(folder / VISIBILITY_FILE, procedure.n_components)
    # `rgb` need not have every frame: see `synth generate --every`
    frame = int(rng.choice(sorted(int(path.stem) for path in (folder / "rgb").glob("*.jpg")) or [0]))
    bits = read_states(folder / STATES_FILE, procedure).at(frame)
    names: dict[int, list[str]] = {0: [], 1: [], -1: []}
    for component, bit in zip(procedure.components, bits, strict=True):
        names[bit].append(component.name)
    state = f"{len(bits) - len(names[0])}/{len(bits)}"
    state += f", without {', '.join(names[0])}" if names[0] else ""
    state += f"; WRONG {', '.join(names[-1])}" if names[-1] else ""
    visible = visibility.mean_visible_F()[frame]
    view = "clear view" if visibility.readable_F()[frame] else f"{visible:.0%} visible"
    path = folder / "rgb" / frame_name(frame)
    try:
        with Image.open(path) as image:
            shown = image.convert("RGB")
    except OSError as error:
        raise InputError("the frame cannot be read", path=path, cure="generate the recording again") from error
    return Sample(folder, frame, bits, state, view, shown)


def write_preview(root: Path, out: Path, *, count: int = 40, seed: int = 0) -> list[Path]:
    """Write montages without and with the state (`hidden.png`, `shown.png`) and a page: can a person do the task?"""
    samples = _draw_samples(root, count, seed)
    paths = [out / "hidden.png", out / "shown.png", out / "preview.html"]
    for path, shown in zip(paths, (False, True), strict=False):
        with replacing(path) as draft:
            _montage(samples, shown).save(draft, optimize=True)
    write_text(paths[-1], _page(root, samples))
    return paths


def _montage(samples: list[Sample], shown: bool) -> Image:
    """A grid of the frames; with the state drawn as one square per component below each of them."""
    from PIL import Image, ImageDraw

    columns, strip, size = 8, 22, max(samples[0].image.width, 96)
    rows = -(-len(samples) // columns)
    sheet = Image.new("RGB", (columns * size, rows * (size + strip)), (24, 24, 24))
    draw = ImageDraw.Draw(sheet)
    colours = {1: (60, 170, 90), 0: (70, 70, 70), -1: (220, 60, 50)}
    for number, sample in enumerate(samples):
        x, y = (number % columns) * size, (number // columns) * (size + strip)
        sheet.paste(sample.image.resize((size, size)), (x, y))
        draw.text((x + 3, y + size + 1), f"{number + 1}", fill=(230, 230, 230))
        if not shown:
            continue
        width = (size - 26) / len(sample.bits)
        for k, bit in enumerate(sample.bits):
            left = x + 22 + k * width
            draw.rectangle((left, y + size + 4, left + width - 2, y + size + 12), fill=colours[bit])
        draw.text((x + 22, y + size + 11), sample.view.removesuffix(" view"), fill=(200, 200, 120))
    return sheet


def _page(root: Path, samples: list[Sample]) -> str:
    """A page of its own: the state of a frame appears when its image is clicked."""
    cells = []
    for number, sample in enumerate(samples, start=1):
        buffer = io.BytesIO()
        sample.image.save(buffer, "JPEG", quality=88)
        data = base64.b64encode(buffer.getvalue()).decode()
        caption = html.escape(f"{sample.state} ({sample.view}; {sample.folder.name}, frame {sample.frame})")
        cells.append(
            f'<details><summary><img src="data:image/jpeg;base64,{data}" alt="frame {number}">'
            f"<b>{number}</b></summary><p>{caption}</p></details>"
        )
    return _PAGE.format(title=html.escape(f"Which state is this? {root.name}"), cells="\n".join(cells))


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2rem; background: #1b1b1d; color: #ddd }}
main {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); gap: 14px }}
img {{ width: 100%; display: block; border-radius: 4px }}
summary {{ list-style: none; cursor: pointer }}
details p {{ margin: .3rem 0; color: #e6d98a }}
</style></head><body>
<h1>{title}</h1><p>Look at a frame, say which parts are mounted, then click it.</p>
<main>
{cells}
</main></body></html>
"""
