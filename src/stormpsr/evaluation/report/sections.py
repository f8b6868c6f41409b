"""The sections of the page: each is a function that prepares plain data, and a template of its name that shows it.

A new section is an entry of `SECTIONS` with its function here, and NAME.html beside this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from stormpsr.evaluation.report.cases import Case, CaseKind, worst_cases
from stormpsr.evaluation.report.content import Content, Figure, Method, RecordingView
from stormpsr.evaluation.report.drawing import DelayAxis, curve_path, share_within, strips, timeline
from stormpsr.evaluation.report.images import Album
from stormpsr.evaluation.wording import clock, counted, listed, number, percent, seconds

Data = dict[str, Any]


# ---------------------------------------------------------------------- result
_GROUPS = {"all": "All recordings", "without_errors": "Without errors", "with_errors": "With errors"}
_SAME = 0.005  # scores that differ by less are called equal


def result(content: Content) -> Data:
    """The scores in sentences, and the main table: groups of recordings below each other, a row per method."""
    groups = []
    ends = [1.0]  # the right ends of the small drawings of delays
    for name, title in _GROUPS.items():
        rows = [(method, content.group(method, name)) for method in content.methods]
        known = [group for _, group in rows if group is not None]
        if known or name == "all":
            n = max((group.n_recordings for group in known), default=0)
            groups.append({"title": title, "n_recordings": n, "rows": rows})
        ends += [_end(group.delay) for group in known]
    longest = max(ends[1:], default=1.0) or 1.0
    columns = {"pos": (3, 1.0), "f1": (3, 1.0), "delay": (1, longest)}  # digits, and the end of the drawing
    alarms = [(method, told) for method in content.methods if (told := content.alarms(method)) is not None]
    return {"lead": _lead(content), "groups": groups, "columns": columns, "alarms": alarms}


def _end(figure: Figure) -> float:
    return figure.interval[1] if figure.interval else figure.value or 0.0


def _lead(content: Content) -> Data | None:
    """A paragraph that somebody who has never heard of POS can read; None where there is nothing to sum up."""
    main = content.main
    if main is None or not content.n_labels:
        return None
    group = content.group(main, "all")
    return {
        "recall": share_within(content, main) or 0.0,
        "late_seconds": group.delay.value if group else None,
        "alarms": _alarms(content, main),
        "sentences": [*_compared(content, main, content.baseline), *_others(content, main)],
    }


def _alarms(content: Content, method: Method) -> str:
    n = content.n_false_alarms(method)
    return counted(n, "false alarm") if n else "no false alarm"


def _compared(content: Content, main: Method, other: Method | None) -> list[str]:
    ours, theirs = content.group(main, "all"), content.group(other, "all") if other else None
    if other is None or ours is None or theirs is None:
        return []
    sentences = []
    if ours.delay.value is not None and theirs.delay.value is not None:
        gain = theirs.delay.value - ours.delay.value
        if abs(gain) < 0.05:
            sentences.append(f"That is as late as {other.title}.")
        else:
            word = "sooner" if gain > 0 else "later"
            share = f" ({percent(abs(gain) / theirs.delay.value)})" if theirs.delay.value > 0 else ""
            text = f"That is {seconds(abs(gain))}{share} {word} than {other.title}"
            pairs = _pairs(content, main, other, "delay_seconds")
            if len(pairs) > 1:  # the same people, so the same recordings are compared
                n = sum(a < b if gain > 0 else a > b for a, b in pairs)
                text += f", and {word} in {n} of {len(pairs)} recordings"
            sentences.append(f"{text}.")
    if ours.f1.value is not None and theirs.f1.value is not None:
        sentences.append(_f1_sentence(content, main, other, ours.f1.value, theirs.f1.value))
    return sentences


def _f1_sentence(content: Content, main: Method, other: Method, ours: float, theirs: float) -> str:
    figures = f"(F1 {number(ours)} against {number(theirs)})"
    if abs(ours - theirs) < _SAME:
        return f"Both are equally exact {figures}."
    better = ours > theirs
    text = f"It is {'more' if better else 'less'} exact {figures}"
    pairs = _pairs(content, main, other, "f1")
    if len(pairs) > 1:
        n = sum(a > b if better else a < b for a, b in pairs)
        equal = sum(a == b for a, b in pairs)
        text += f", in {n} of {len(pairs)} recordings" + (f" and equally so in {equal}" if equal else "")
    return f"{text}."


def _pairs(content: Content, main: Method, other: Method, key: str) -> list[tuple[float, float]]:
    """A score of both methods in every recording that has both."""
    names = [view.name for view in content.recordings]
    both = ((content.recording_score(main, name, key), content.recording_score(other, name, key)) for name in names)
    return [(ours, theirs) for ours, theirs in both if ours is not None and theirs is not None]


def _others(content: Content, main: Method) -> list[str]:
    """A word on each other stream: its delay, and its false alarms."""
    sentences = []
    for method in content.methods:
        group = content.group(method, "all")
        if method in (main, content.baseline) or content.group(main, "all") is None or group is None:
            continue
        if group.delay.value is None or group.f1.value is None:
            continue
        recall = share_within(content, method)
        found = "none" if recall is None else percent(recall)
        text = f"{method.title} took {seconds(group.delay.value)}, found {found} of the steps"
        sentences.append(f"{text} and raised {_alarms(content, method)}.")
    return sentences


# ---------------------------------------------------------------------- delays
_TABLE_SECONDS = (1.0, 5.0, 10.0, 30.0)


def how_soon(content: Content) -> Data:
    """The curve of steps recognised within t seconds, and the same in a few numbers."""
    axis = DelayAxis.of(content)
    times = [time for time in _TABLE_SECONDS if time < axis.limit_seconds]
    within = [
        (method, [share_within(content, method, time) for time in (*times, math.inf)]) for method in content.methods
    ]
    lines = [(method, curve_path(content, method, axis)) for method in content.methods if content.n_labels_of(method)]
    heads = ["within", *(f"{time:g}\N{NO-BREAK SPACE}s" for time in times), "ever"]
    in_ten_seconds = [(method, share_within(content, method, 10.0)) for method in content.methods]
    return {"axis": axis, "heads": heads, "within": within, "lines": lines, "in_ten_seconds": in_ten_seconds}


def steps(content: Content) -> Data:
    """A row per step, a line of dots per method."""
    axis = DelayAxis.of(content)
    return {"axis": axis, "strips": strips(content, axis)}


# ---------------------------------------------------------------------- what went wrong
_CASES: dict[CaseKind, tuple[str, str]] = {
    "missed": ("Missed steps", "No step was missed."),
    "late": ("Latest recognitions", "No step was recognised more than 2 seconds late."),
    "false": ("False alarms", "There was no false alarm."),
}


def wrong(content: Content) -> Data:
    """The worst cases of the main method, with images where they can be had."""
    cases = worst_cases(content)
    albums = content.frames.albums((case.view.run, case.frames()) for found in cases.values() for case in found)
    places = {view.name: place for place, view in enumerate(content.recordings)}
    kinds = [
        (title, none, [_card(case, albums[case.view.name], places[case.view.name]) for case in cases[kind]])
        for kind, (title, none) in _CASES.items()
    ]
    return {"kinds": kinds, "problem": _image_problem(albums)}


def _card(case: Case, album: Album, place: int) -> Data:
    shots = [
        {"frame": frame, "image": image, "moment": case.moment(frame), "offset": case.view.time(frame - case.frame)}
        for frame in case.frames()
        if (image := album.images.get(frame)) is not None
    ]
    return {"case": case, "place": place, "shots": shots}


def _image_problem(albums: Mapping[str, Album]) -> str | None:
    """Say why images are missing; one reason stands for all of its kind."""
    lacking = {name: album.problem for name, album in albums.items() if album.problem}
    if not lacking:
        return None
    shown = listed(list(lacking)[:3])
    more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
    some = any(albums[name].images for name in lacking)
    what = "Some images are" if some or len(lacking) < len(albums) else "There are no images: they are"
    return f"{what} missing for {counted(len(lacking), 'recording')} ({shown}{more}): {next(iter(lacking.values()))}."


# ---------------------------------------------------------------------- recordings
def recordings(content: Content) -> Data:
    """A table of all, and a timeline of each, with the same in a table."""
    views = content.recordings
    keys = ("pos", "f1", "delay_seconds")
    return {
        "filter": {True, False} <= {view.run.has_errors for view in views},
        "shown": {
            "wrong": any(view.wrong_installs(content.procedure) for view in views),
            "evidence": any(view.run.evidence for view in views),
            "hidden": any(view.hidden for view in views),
            "unseen": any(view.run.visible_share for view in views),
        },
        "n_without_view": sum(view.run.readable is None for view in views),
        "recordings": [
            {
                "view": view,
                "scores": [[content.recording_score(m, view.name, key) for key in keys] for m in content.methods],
                "timeline": timeline(content, view),
                "methods": [method for method in content.methods if method.name in view.scores],
                "absent": [method.title for method in content.methods if method.name not in view.scores],
                "rows": _times(content, view),
            }
            for view in views
        ],
    }


def _times(content: Content, view: RecordingView) -> list[Data]:
    """When every step was completed and recognised, and the false alarms, in order of time."""
    methods = [method for method in content.methods if method.name in view.scores]
    rows = []
    for label in sorted(view.run.labels, key=lambda event: (event.frame, event.step_id)):
        matches = [view.match(method, label.step_id, label.frame) for method in methods]
        cells = [
            ("missed", "missed") if match is None else ("", f"+{seconds(view.time(match.delay_frames))}")
            for match in matches
        ]
        rows.append((label.frame, label.step_id, clock(view.time(label.frame)), cells))
    for method in methods:
        for event in view.scores[method.name].unmatched_events:
            alarm = ("false", f"false alarm at {clock(view.time(event.frame))}")
            rows.append((event.frame, event.step_id, "–", [alarm if m is method else ("", "") for m in methods]))
    return [
        {"step": f"{step_id} {content.step_name(step_id)}", "completed": completed, "cells": cells}
        for _, step_id, completed, cells in sorted(rows, key=lambda row: row[0])
    ]


# ---------------------------------------------------------------------- all of them
# name (of the template, and in links), heading, what prepares it
SECTIONS: tuple[tuple[str, str, Callable[[Content], Data]], ...] = (
    ("result", "Result", result),
    ("how-soon", "How soon steps are recognised", how_soon),
    ("steps", "Step by step", steps),
    ("wrong", "What went wrong", wrong),
    ("recordings", "Recordings", recordings),
    ("terms", "Terms and settings", lambda content: {}),  # its template needs no more than the methods
)
