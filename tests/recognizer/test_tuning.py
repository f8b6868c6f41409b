"""Choosing settings: the grid is scored as the recogniser would decode, and the choice follows the objective."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stormpsr.data.layouts import find_recordings
from stormpsr.data.recording import open_recording
from stormpsr.decoding.fusion import FusionSettings
from stormpsr.decoding.methods import METHODS, resolve_method
from stormpsr.decoding.predictions import PredictionTable
from stormpsr.errors import InputError
from stormpsr.evaluation.alarms import Alarms
from stormpsr.procedure.model import Procedure
from stormpsr.recognizer import tuning
from stormpsr.recognizer.model_folder import RecognizerModel
from stormpsr.recognizer.offline import (
    LabelledPredictions,
    check_variant,
    decode_table,
    predict_recording,
    read_views_of,
)
from stormpsr.recognizer.tuning import Scored, choose, pareto_front, score_settings

Seeing = Callable[..., RecognizerModel]


def labelled_of(model: RecognizerModel, world: Path) -> list[LabelledPredictions]:
    found = []
    for folder in find_recordings(world, "val"):
        recording = open_recording(folder, model.procedure)
        table = PredictionTable.of(predict_recording(model.networks, recording.frames()), model.procedure.n_components)
        found.append(LabelledPredictions.of(recording, table, model.procedure))
    return found


@pytest.mark.parametrize("method", ["detection", "temporal", "average"])
def test_settings_score_as_the_recogniser_with_those_settings_does(seeing: Seeing, world: Path, method: str) -> None:
    from dataclasses import replace

    model = seeing()
    labelled = labelled_of(model, world)
    chosen = [FusionSettings(threshold=t, removal_factor=r) for t in (0.4, 2.0, 6.0, 500.0) for r in (1.0, 2.0)]
    for own, found in zip(chosen, score_settings([(model, labelled)], method, chosen), strict=True):
        changed = replace(model, settings=model.settings.with_method(method, own))
        results = [
            one.result(decode_table(changed.decoder(method, one.variant), one.predictions), model.procedure)
            for one in labelled
        ]
        assert found.settings == own
        assert found.f1 == pytest.approx(sum(r.scores.f1 for r in results) / 2)
        assert found.pos == pytest.approx(sum(r.scores.pos for r in results) / 2)
        delays = [r.scores.delay_seconds for r in results if r.scores.delay_seconds is not None]
        assert found.delay_seconds == (pytest.approx(sum(delays) / len(delays)) if delays else None)
    assert found.delay_seconds is None  # the last threshold is out of reach


def test_each_stream_is_tuned_as_thoroughly_as_the_other() -> None:
    grids = {name: METHODS[name].settings_grid() for name in ("detection", "temporal", "average")}
    sizes = {name: len(grid) for name, grid in grids.items()}
    orders = len(METHODS["temporal"].grid["implied_share"])  # detected states obey the order: nothing to choose
    assert orders * sizes["detection"] == sizes["temporal"] > 2000
    assert len(set(grids["detection"])) == sizes["detection"]
    narrowed = METHODS["average"].settings_grid({"threshold": (1.0,), "decay": (0.75,)})
    assert len(narrowed) == sizes["average"] // 18 > 50
    with pytest.raises(InputError, match="'released' cannot be tuned; choose one of: naive"):
        resolve_method("released").settings_grid()


def entry(f1: float, pos: float, delay: float | None) -> Scored:
    return Scored(FusionSettings(), f1, pos, delay)


EARLY, GOOD, BEST, LATE = entry(0.5, 0.9, 1.0), entry(0.897, 0.7, 3.0), entry(0.9, 0.6, 5.0), entry(0.6, 0.95, 9.0)
NOTHING = entry(0.0, 0.0, None)
ALL = [LATE, NOTHING, BEST, EARLY, GOOD]


@pytest.mark.parametrize(
    ("objective", "max_delay", "slack", "wanted"),
    [
        ("f1", None, 0.0, BEST),
        ("f1", None, 0.005, GOOD),
        ("pos", None, 0.0, LATE),
        ("pos", None, 0.1, EARLY),
        ("f1+pos", None, 0.0, GOOD),
        ("tau", None, 0.005, GOOD),
        ("f1-within-delay", 2.0, 0.0, EARLY),
        ("f1-within-delay", 4.0, 0.0, GOOD),
    ],
)
def test_the_objective_decides(objective: str, max_delay: float | None, slack: float, wanted: Scored) -> None:
    assert choose(ALL, objective, max_delay=max_delay, slack=slack) == wanted  # type: ignore[arg-type]


def test_the_most_typical_of_the_best_settings_is_not_the_lucky_one() -> None:
    def scored(threshold: float, decay: float, f1: float) -> Scored:
        return Scored(FusionSettings(threshold=threshold, decay=decay), f1, 0.5, 3.0)

    lucky = scored(1.0, 0.5, 0.95)
    plateau = [scored(8.0, 0.75, 0.90), scored(8.0, 0.9, 0.89), scored(12.0, 0.75, 0.88), scored(8.0, 0.95, 0.2)]
    assert choose([*plateau, lucky]) == lucky
    assert choose([*plateau, lucky], among=4) == plateau[0]
    assert choose([lucky, *plateau], among=1) == lucky
    with pytest.raises(InputError, match="tau is about delay"):
        choose(plateau, "tau", among=4)


def test_a_choice_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(InputError, match=r"within 0\.5 s; allow a longer delay"):
        choose(ALL, "f1-within-delay", max_delay=0.5)
    with pytest.raises(InputError, match="give both or neither"):
        choose(ALL, "f1", max_delay=3.0)
    with pytest.raises(InputError, match="give both or neither"):
        choose(ALL, "f1-within-delay")
    assert choose([NOTHING], "f1") == NOTHING


def test_the_front_has_what_nothing_beats() -> None:
    assert pareto_front(ALL) == [EARLY, GOOD, BEST]


# ---------------------------------------------------------------------- what else is known of a recording
def test_boxes_tell_when_the_state_could_be_read(world: Path, lamp: Procedure) -> None:
    seen = read_views_of(world / "val" / "00_build_val", 60, lamp)
    assert seen.readable == ((5, 7), (50, 50))
    assert seen.visible_share is None
    assert read_views_of(world, 60, lamp).readable is None


def test_visibility_tells_more(tmp_path: Path, lamp: Procedure) -> None:
    import numpy as np

    from stormpsr.data.visibility import Visibility, write_visibility

    shown = np.full((25, 3), 0.2, np.float32)
    shown[10:20] = 1.0
    ones = np.ones((25, 3), np.float32)
    write_visibility(tmp_path / "visibility.csv", Visibility(shown, ones, ones), lamp)
    seen = read_views_of(tmp_path, 25, lamp)
    assert seen.readable == ((10, 19),)
    assert seen.visible_share == pytest.approx((0.2, 1.0, 0.2))


def test_the_variant_is_given_named_or_guessed(lamp: Procedure) -> None:
    assert check_variant(lamp, "03_dismantle_1", None) == ("dismantle", False)
    assert check_variant(lamp, "03_dismantle_1", "build") == ("build", False)
    assert check_variant(lamp, "camera", None) == ("build", True)
    with pytest.raises(InputError, match="no variant"):
        check_variant(lamp, "camera", "repair")


# ---------------------------------------------------------------------- alarms
class Alarming:
    """An hour of video with five wrong parts. Its events are thresholds, of which all is known."""

    states = object()

    def __init__(self, found: dict[float, int], false: dict[float, int]) -> None:
        self._found, self._false = found, false

    def result(self, events: list[float], procedure: object, *, alarming: bool) -> SimpleNamespace:
        (threshold,) = events
        found, false = self._found[threshold], self._false[threshold]
        return SimpleNamespace(alarms=Alarms(3600.0, 5, found, (1.0,) * found, false, 0, 0, 0))


@pytest.mark.parametrize(
    ("most", "threshold"),
    [(9.0, 0.3), (4.0, 0.6), (2.5, 0.9), (0.0, 0.99)],  # the last one: all are too loud, so the quietest
)
def test_the_threshold_of_alarms_finds_most_within_what_false_alarms_allow(
    monkeypatch: pytest.MonkeyPatch, most: float, threshold: float
) -> None:
    values = METHODS["filter"].decoder_class.alarm_grid["wrong_threshold"]
    loud = {value: 8 if value < 0.6 else 4 if value < 0.9 else 2 if value < 0.99 else 1 for value in values}
    found = {value: 5 if value < 0.6 else 4 if value < 0.9 else 2 if value < 0.99 else 1 for value in values}
    monkeypatch.setattr(
        tuning, "_events_of", lambda model, method, one, tried: [[own.wrong_threshold] for own in tried]
    )
    parts: Any = [(SimpleNamespace(procedure=None), [Alarming(found, loud)])]
    settings, alarms = tuning.choose_alarms(parts, "filter", METHODS["filter"].settings(), most)
    assert settings.wrong_threshold == threshold
    assert alarms is not None
    assert alarms.wrong_false == loud[threshold]


def test_a_method_without_alarms_keeps_its_settings() -> None:
    own = METHODS["average"].settings()
    assert tuning.choose_alarms([], "average", own, 4.0) == (own, None)
