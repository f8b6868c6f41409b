"""Thresholds from validation recordings: every method gets the best of its own grid of settings."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from inspect import getfile
from itertools import product
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

import numpy as np

from stormpsr.data.events import StepEvent, completions
from stormpsr.decoding.methods import resolve_method, title_of
from stormpsr.decoding.predictions import Decoder
from stormpsr.errors import InputError, need_packages
from stormpsr.evaluation.alarms import Alarms, put_together
from stormpsr.evaluation.metrics import Scores, score
from stormpsr.evaluation.summary import GroupSummary, summarise
from stormpsr.files import digest, read_json_object, replacing, write_text
from stormpsr.recognizer.model_folder import (
    SETTINGS_FILE,
    RecognizerModel,
    add_metrics,
    load_settings,
    read_method,
    save_settings,
)
from stormpsr.recognizer.offline import LabelledPredictions
from stormpsr.yaml_loader import Document

Objective = Literal["f1", "pos", "f1+pos", "tau", "f1-within-delay"]
_SETTINGS_AT_ONCE = 512
_FOLDS = 4
_FINISHED = "finished.json"  # in a fold's folder: the settings that go with what was learned


@dataclass(frozen=True)
class Scored:
    """Settings and their scores on the tuning recordings: means over recordings, as published."""

    settings: Any
    f1: float
    pos: float
    delay_seconds: float | None  # None where nothing was recognised


# ---------------------------------------------------------------------- learning
Part = tuple[RecognizerModel, Sequence[LabelledPredictions]]  # recordings, and a model that has not learned from them


@contextmanager
def cross_fitted(
    model: RecognizerModel,
    method: str,
    recordings: Sequence[LabelledPredictions],
    on_note: Callable[[str], None],
    *,
    scratch: Path | None = None,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Iterator[tuple[list[Part], list[Any]]]:
    """Recordings to choose a method's settings by, and the settings to try; until the block ends.

    A method that learns is fitted several times, each time without some recordings, which it is then tried on: what is
    chosen on recordings that it has learned from is chosen by memory. Folds have the variants mixed.

    scratch: a folder that keeps what was learned until the block ends well, so that fitting goes on where it was broken
    off. on_progress: what is being learned, steps done, steps in all.
    """
    entry = resolve_method(method)
    start = model.settings_of(method, start=entry.settings())  # what was tuned before has no say
    if not recordings:
        raise InputError("there are no recordings to tune on")
    fewest = entry.decoder_class.fewest_to_learn_from
    if len(recordings) < fewest:
        on_note(f"{method} learns from {fewest} recordings or more, these are {len(recordings)}: it stays as it is")
    if not learns_from(method, recordings):
        yield [(model, recordings)], entry.settings_grid(start=start) if entry.grid else [start]
        return
    with TemporaryDirectory() as temporary:
        key = _digest(model, method, recordings)
        folder = Path(temporary) if scratch is None else scratch / f"{method.replace(':', '.')}-{key}"
        parts: list[Part] = []
        folds = _folds(recordings)
        for number, held_out in enumerate(folds):
            changed = replace(model, path=folder / str(number))
            changed.path.mkdir(parents=True, exist_ok=True)
            finished, name = changed.path / _FINISHED, f"{method} learns, part {number + 1} of {len(folds)}"
            if finished.is_file():
                learned = Document(read_json_object(finished, cure="delete it"), finished)
                start = model.settings_of(method, start=read_method(method, learned))
            else:
                on_note(f"{name}; it may take minutes")
                others = [recording for recording in recordings if recording not in held_out]
                report = None if on_progress is None else partial(on_progress, name)
                start = entry.decoder_class.fit(others, model.procedure, start, changed.path, report)
                write_text(finished, json.dumps(entry.stored(start)))
            parts.append((changed, held_out))
        yield parts, entry.settings_grid(start=start) if entry.grid else [start]
        if scratch is not None:
            rmtree(folder, ignore_errors=True)


def _digest(model: RecognizerModel, method: str, recordings: Sequence[LabelledPredictions]) -> str:
    """What fitting depends on, in short."""
    written = [*Path(getfile(Decoder)).parent.glob("*.py"), Path(getfile(resolve_method(method).decoder_class))]
    found = hashlib.sha256(repr((digest(*sorted(set(written))), method, model.procedure)).encode())
    for own in sorted(recordings, key=lambda labelled: labelled.name):
        found.update(repr((own.name, own.variant, own.labels, own.states)).encode())
        for name in own.predictions.__dataclass_fields__:
            found.update(np.ascontiguousarray(getattr(own.predictions, name)).tobytes())
    return found.hexdigest()[:16]


def learns_from(method: str, recordings: Sequence[LabelledPredictions]) -> bool:
    """Whether a method has something to learn, and recordings enough to do so."""
    return 0 < resolve_method(method).decoder_class.fewest_to_learn_from <= len(recordings)


def _folds(recordings: Sequence[LabelledPredictions]) -> list[list[LabelledPredictions]]:
    by_variant = sorted(recordings, key=lambda labelled: (labelled.variant, labelled.name))
    n = min(_FOLDS, len(recordings))
    return [by_variant[number::n] for number in range(n)]


# ---------------------------------------------------------------------- trying
def score_settings(
    parts: Sequence[Part],
    method: str,
    settings: Sequence[Any],
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Scored]:
    """The scores of settings on recordings."""
    pairs = [(model, labelled) for model, recordings in parts for labelled in recordings]
    done, total = 0, len(settings) * len(pairs)
    found: list[Scored] = []
    for start in range(0, len(settings), _SETTINGS_AT_ONCE):
        part = settings[start : start + _SETTINGS_AT_ONCE]
        columns: list[list[Scores]] = []
        for model, labelled in pairs:
            columns.append(_score_part(model, method, labelled, part))
            done += len(part)
            if on_progress:
                on_progress(done, total)
        found += [_mean(own, scores) for own, *scores in zip(part, *columns, strict=True)]
    return found


def summary_of(parts: Sequence[Part], method: str, settings: Any) -> GroupSummary:
    """The scores of one choice of settings, with bootstrap intervals over the recordings."""
    pairs = [(model, labelled) for model, recordings in parts for labelled in recordings]
    return summarise([_score_part(model, method, labelled, [settings])[0] for model, labelled in pairs]).all


def _events_of(
    model: RecognizerModel, method: str, labelled: LabelledPredictions, part: Sequence[Any]
) -> list[list[StepEvent]]:
    """The events of each of several settings."""
    settings = [model.settings_of(method, start=own) for own in part]
    batch = resolve_method(method).decoder_class.batch(model.procedure, labelled.variant, settings)
    gaps, decoder_class = model.gap_filler(), resolve_method(method).decoder_class
    for prediction in labelled.predictions:
        for tick in gaps.fill(prediction) if decoder_class.needs_every_tick else (prediction,):
            batch.observe(tick)
    return list(batch.events)


def _score_part(
    model: RecognizerModel, method: str, labelled: LabelledPredictions, part: Sequence[Any]
) -> list[Scores]:
    found = _events_of(model, method, labelled, part)
    known: dict[tuple[tuple[int, int], ...], Scores] = {}  # many settings give the same events
    keys = [tuple((event.frame, event.step_id) for event in completions(events)) for events in found]
    for key, events in zip(keys, found, strict=True):
        if key not in known:
            known[key] = score(labelled.labels, completions(events), fps=labelled.recording.fps)
    return [known[key] for key in keys]


def _mean(own: Any, scores: Sequence[Scores]) -> Scored:
    delays = [s.delay_seconds for s in scores if s.delay_seconds is not None]
    return Scored(
        own,
        f1=float(np.mean([s.f1 for s in scores])),
        pos=float(np.mean([s.pos for s in scores])),
        delay_seconds=float(np.mean(delays)) if delays else None,
    )


# ---------------------------------------------------------------------- choosing
def check_objective(objective: str, max_delay: float | None, among: int) -> None:
    """Refuse what does not go together; a command asks before any work is done."""
    if objective not in get_args(Objective):
        raise InputError(f"unknown objective {objective!r}", cure=f"choose one of: {', '.join(get_args(Objective))}")
    if (objective == "f1-within-delay") != (max_delay is not None):
        raise InputError("--max-delay belongs to --objective f1-within-delay", cure="give both or neither")
    if objective == "tau" and among > 1:
        raise InputError("--objective tau is about delay, --among is not", cure="leave one of them out")


def choose(
    scored: Sequence[Scored],
    objective: Objective = "f1",
    *,
    max_delay: float | None = None,
    slack: float = 0.005,
    among: int = 1,
) -> Scored:
    """The best settings.

    `f1`, `pos`, `f1+pos` (their mean): the highest score; of those within `slack` of it, the least delay.
    `f1-within-delay`: the same among settings whose delay is at most `max_delay` seconds. `tau`: the least delay among
    settings whose F1 is within ten times `slack` of the best (without that, recognising one easy step and nothing else
    would win).

    With few recordings the very best settings are best by chance. `among` other than 1: of so many best settings, that
    which has most in common with the others, whatever their delay.
    """
    check_objective(objective, max_delay, among)
    pool = [one for one in scored if one.delay_seconds is not None]
    if max_delay is not None:
        pool = [one for one in pool if _delay(one) <= max_delay]
        if not pool:
            raise InputError(f"no settings recognise anything within {max_delay:g} s", cure="allow a longer delay")
    if not pool:
        return max(scored, key=lambda one: one.pos)
    margin = 10 * slack if objective == "tau" else slack

    def value(one: Scored) -> float:
        return _value(one, objective)

    if among > 1:
        return _most_typical(sorted(pool, key=value, reverse=True)[:among])
    best = max(map(value, pool))
    close = [one for one in pool if value(one) >= best - margin]
    return min(close, key=lambda one: (_delay(one), -one.f1, -one.pos))


def _most_typical(best: Sequence[Scored]) -> Scored:
    """The settings that differ from the others in the fewest places; of equals, the better ones."""
    values = [asdict(one.settings) for one in best]
    shares = {name: Counter(own[name] for own in values) for name in values[0]}
    agreeing = [sum(shares[name][value] for name, value in own.items()) for own in values]
    return best[agreeing.index(max(agreeing))]


def choose_alarms(
    parts: Sequence[Part], method: str, settings: Any, most_false_per_hour: float
) -> tuple[Any, Alarms | None]:
    """The settings with those values of the method's `alarm_grid` that find the most wrong parts, and what they do.

    More than so many false alarms per hour are not allowed; where all values give more, the quietest ones are taken.
    None where a method gives no alarms, or no recording has labelled states.
    """
    entry = resolve_method(method)
    pairs = [(m, labelled) for m, recordings in parts for labelled in recordings if labelled.states is not None]
    if not entry.decoder_class.gives_alarms or not pairs:
        return settings, None
    axes = entry.decoder_class.alarm_grid
    tried = [replace(settings, **dict(zip(axes, values, strict=True))) for values in product(*axes.values())]
    rows = [
        [
            labelled.result(events, model.procedure, alarming=True).alarms
            for events in _events_of(model, method, labelled, tried)
        ]
        for model, labelled in pairs
    ]
    told = [put_together([one for one in column if one is not None]) for column in zip(*rows, strict=True)]

    def rank(place: int) -> tuple[bool, float, float]:
        alarms = told[place]
        quiet = alarms.wrong_false_per_hour <= most_false_per_hour
        return quiet, alarms.wrong_found if quiet else 0, -alarms.wrong_false

    best = max(range(len(tried)), key=rank)
    return tried[best], told[best]


def pareto_front(scored: Sequence[Scored]) -> list[Scored]:
    """The settings that no other beats in F1 without being later, from the earliest to the surest."""
    found: list[Scored] = []
    for one in sorted((s for s in scored if s.delay_seconds is not None), key=lambda s: (_delay(s), -s.f1)):
        if not found or one.f1 > found[-1].f1:
            found.append(one)
    return found


def best_method(chosen: Mapping[str, Scored], objective: Objective) -> str:
    """The method whose settings are best by the objective; with delays, by F1 among those that keep it."""
    return max(chosen, key=lambda name: _value(chosen[name], objective))


def _value(one: Scored, objective: Objective) -> float:
    weight = {"pos": 1.0, "f1+pos": 0.5}.get(objective, 0.0)  # of POS
    return weight * one.pos + (1 - weight) * one.f1


def _delay(one: Scored) -> float:
    return np.inf if one.delay_seconds is None else one.delay_seconds


# ---------------------------------------------------------------------- all of it
FEW_RECORDINGS = 10  # what is chosen or compared on fewer may hold for these alone


@dataclass(frozen=True)
class Tuned:
    """A method with the best of its settings."""

    scored: Sequence[Scored]  # everything that was tried
    chosen: Scored
    summary: GroupSummary  # of what was chosen, with intervals over the recordings
    alarms: Alarms | None


def tune_methods(
    model: RecognizerModel,
    recordings: Sequence[LabelledPredictions],
    methods: Sequence[str],
    *,
    objective: Objective = "f1",
    max_delay: float | None = None,
    slack: float = 0.005,
    among: int = 1,
    most_false_alarms: float = 4.0,
    scratch: Path | None = None,
    learn: bool = True,
    on_note: Callable[[str], None] = lambda note: None,
    on_progress: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> dict[str, Tuned]:
    """The best settings of methods. `learn`: a method that learns also keeps what it learns, in the model's folder."""
    found: dict[str, Tuned] = {}
    for name in dict.fromkeys(map(model.method_or_fallback, methods)):
        fitting = cross_fitted(model, name, recordings, on_note, scratch=scratch, on_progress=on_progress)
        with fitting as (parts, tried):
            scored = score_settings(parts, name, tried, on_progress=partial(on_progress, f"tuning {name}"))
            best = choose(scored, objective, max_delay=max_delay, slack=slack, among=among)
            settings, alarms = choose_alarms(parts, name, best.settings, most_false_alarms)
            best = replace(best, settings=settings)
            found[name] = Tuned(scored, best, summary_of(parts, name, settings), alarms)
            if learns_from(name, recordings) and learn:
                # what was chosen without a recording is used with all of them
                told = partial(on_progress, f"{name} learns from all recordings")
                decoder_class = resolve_method(name).decoder_class
                decoder_class.fit(recordings, model.procedure, best.settings, model.path, told)
    return found


def default_of(model: RecognizerModel, tuned: Mapping[str, Tuned], objective: Objective) -> str | None:
    """The method that is to decide. Only a comparison of all says so; one that has not learned is none to compare."""
    ready = {name: own.chosen for name, own in tuned.items() if getattr(own.chosen.settings, "fitted", True)}
    return best_method(ready, objective) if set(tuned) >= set(model.methods) else None


# ---------------------------------------------------------------------- keeping
def store_tuned(
    model: RecognizerModel, chosen: Mapping[str, Scored], about: Mapping[str, Any], default: str | None = None
) -> None:
    """Write the best settings into the model's folder, and what they reached beside them.

    default: the method that decides from now on unless somebody chooses another.
    """
    path = model.path / SETTINGS_FILE
    settings = load_settings(path)
    for method, best in chosen.items():
        settings = settings.with_method(method, best.settings)
    if default is not None:
        settings = replace(settings, method=default)
    save_settings(path, settings)
    reached = {
        method: {"f1": best.f1, "pos": best.pos, "delay_seconds": best.delay_seconds} for method, best in chosen.items()
    }
    add_metrics(model.path, "tuning", {**about, **reached})


def plot_pareto_fronts(
    path: Path, scored: Mapping[str, Sequence[Scored]], chosen: Mapping[str, Scored], title: str
) -> None:
    """Every setting as a dot, each method's Pareto front as a line, the chosen settings marked."""
    need_packages("drawing the Pareto front", "plot", "matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes: Any = figure.subplots()
    for method, tried in scored.items():
        colour, label = resolve_method(method).colour, title_of(method)
        dots = [one for one in tried if one.delay_seconds is not None]
        axes.scatter([s.delay_seconds for s in dots], [s.f1 for s in dots], s=3, alpha=0.15, color=colour, linewidths=0)
        edge = pareto_front(tried)
        axes.plot([s.delay_seconds for s in edge], [s.f1 for s in edge], color=colour, label=label, linewidth=1.8)
        best = chosen[method]
        if best.delay_seconds is not None:
            axes.plot(best.delay_seconds, best.f1, marker="o", markersize=9, color=colour, markeredgecolor="black")
    edges = [s for tried in scored.values() for s in pareto_front(tried)]
    if edges:  # settings that recognise next to nothing are of no interest
        low = min(s.f1 for s in edges)
        axes.set_ylim(max(0.0, min(low, 0.5) - 0.05), 1.0)
        axes.set_xlim(0, 1.6 * max(s.delay_seconds or 0.0 for s in edges) + 1)
        axes.legend(loc="lower right")
    axes.set_xlabel("mean delay tau (s)")
    axes.set_ylabel("F1")
    axes.set_title(title, fontsize=11)
    axes.grid(alpha=0.25)
    with replacing(path) as draft:
        figure.savefig(draft, dpi=130)
