"""The whole page: complete, self-contained, escaped, and possible for every run there can be."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stormpsr.cli.main import main
from stormpsr.data.events import StepEvent
from stormpsr.decoding.methods import METHODS
from stormpsr.evaluation.report.page import render_report
from stormpsr.evaluation.run_folder import RecordingRun, read_run

MakeRun = Callable[..., Path]
VOID = {"meta", "img", "br"}


class Outline(HTMLParser):
    """Checks that elements close in order, and gathers what the tests ask for."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.headings: list[tuple[str, str]] = []
        self.text = ""
        self.captions = self.tables = 0
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.tables += tag == "table"
        self.captions += tag == "caption"
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append((tag, ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data
        if self.open and self.open[-1] in ("h1", "h2", "h3", "h4"):
            self.headings[-1] = (self.headings[-1][0], self.headings[-1][1] + data)

    def values(self, name: str) -> list[str]:
        return [value or "" for _, key, value in self.attributes if key == name]


def report(run: Path, **options: Any) -> tuple[str, Outline]:
    page = render_report(read_run(run), **options)
    return page, Outline(page)


# ---------------------------------------------------------------------- what is on it
def test_the_page_has_all_its_parts_in_order(make_run: MakeRun) -> None:
    _, outline = report(make_run(3))
    assert outline.headings[0] == ("h1", "A run of invented recordings")
    assert [text for tag, text in outline.headings if tag == "h2"] == [
        *("Result", "How soon steps are recognised", "Step by step", "What went wrong", "Recordings"),
        "Terms and settings",
    ]
    assert [text for tag, text in outline.headings if tag == "h3"][-5:] == [
        *("Timelines", "00_assy", "01_assy", "02_assy", "Settings"),
    ]
    assert outline.captions == outline.tables > 5
    assert outline.values("class").count("timeline") == 3


def test_the_main_table_shows_the_scores_of_the_run(make_run: MakeRun) -> None:
    run = make_run(4)
    summary = json.loads((run / "run.json").read_text())["summary"]["average"]
    page, _ = report(run)
    for group in ("all", "without_errors", "with_errors"):
        figures = summary[group]
        for name, digits in (("pos", 3), ("f1", 3), ("delay_seconds", 1)):
            interval = figures[f"{name.split('_')[0]}_interval"]
            value = f'<span class="value">{figures[name]:.{digits}f}</span>'
            assert (
                value + f'<span class="interval">{interval["low"]:.{digits}f}–{interval["high"]:.{digits}f}</span>'
                in page
            )


def test_alarms_have_a_table_where_a_method_gives_any(make_run: MakeRun) -> None:
    run = make_run(2)
    assert "Alarms: parts that sit wrongly" not in report(run)[0]
    content = json.loads((run / "run.json").read_text())
    told = {"wrong_found": 3, "wrong_placements": 4, "wrong_delay_seconds": 7.25, "wrong_false_per_hour": 1.5}
    told |= {"skipped_found": 0, "skipped_steps": 2, "skipped_false_per_hour": 0.0}
    content["summary"]["average"]["alarms"] = told
    (run / "run.json").write_text(json.dumps(content))
    page = report(run)[0]
    row = page.split("Alarms: parts that sit wrongly")[1].split("</table>")[0]
    cells = re.findall("<td>(.*?)</td>", row)
    assert cells == ["3 of 4", "7.2", "1.5", "0 of 2", "0.0"]


def test_the_table_of_the_curve_counts_steps(make_run: MakeRun) -> None:
    run = make_run(3)
    summary = json.loads((run / "run.json").read_text())["summary"]
    _, outline = report(run)
    text = outline.text.replace("\N{NO-BREAK SPACE}", " ")
    for name, title in (("detection", "Detection only"), ("average", "STORM-PSR")):
        within = {row["seconds"]: row["share"] for row in summary[name]["recognised_within_seconds"]}
        shares = "".join(f"{100 * within[time]:.0f} %" for time in (1.0, 5.0, 10.0))
        assert title + shares in text


def test_every_link_leads_somewhere_and_no_name_is_given_twice(make_run: MakeRun) -> None:
    _, outline = report(make_run(3))
    ids = outline.values("id")
    assert [name for name, n in Counter(ids).items() if n > 1] == []
    targets = {value.removeprefix("#") for value in outline.values("href")}
    assert len(targets) > 10
    assert targets <= set(ids)


def test_nothing_comes_from_elsewhere(make_run: MakeRun) -> None:
    page, outline = report(make_run(2))
    assert any(text.startswith("default-src 'none'; img-src data:;") for text in outline.values("content"))
    assert not re.search(r"https?://|@import|url\(", page)
    assert all(value.startswith("#") for value in outline.values("href"))
    assert outline.values("src") == []
    assert not [tag for tag, _, _ in outline.attributes if tag in ("link", "iframe", "object", "embed")]


def test_names_are_text_wherever_they_stand(make_run: MakeRun) -> None:
    nasty = "<script>alert('x')</script>&\"ö"

    def change(recording: RecordingRun) -> RecordingRun:
        return replace(recording, variant=nasty, frames_path=nasty)

    run = make_run(2, change=change, title=nasty, data=nasty)
    content = json.loads((run / "run.json").read_text(encoding="utf-8"))
    content["methods"][0] |= {"title": nasty, "settings": {nasty: nasty}}
    content |= {"model": nasty, "protocol": nasty}
    (run / "run.json").write_text(json.dumps(content), encoding="utf-8")
    page, outline = report(run)
    assert page.count("<script>") == 1  # our own
    assert outline.text.count(nasty) > 8
    assert "Install <b>bolt & nut</b>" in outline.text
    assert "<b>" not in page


def test_the_page_is_the_same_every_time(make_run: MakeRun) -> None:
    run = make_run(2)
    assert report(run)[0] == report(run)[0]


def test_twenty_recordings_stay_below_three_megabytes(make_run: MakeRun, tmp_path: Path) -> None:
    import cv2

    noise = np.random.default_rng(0).integers(0, 256, size=(160, 160, 3), dtype=np.uint8)  # nothing is larger as JPEG
    image = cv2.imencode(".jpg", noise)[1].tobytes()

    def change(recording: RecordingRun) -> RecordingRun:
        folder = tmp_path / "frames"
        if not folder.exists():
            folder.mkdir()
            for frame in range(recording.n_frames):
                (folder / f"{frame:06d}.jpg").write_bytes(image)
        readable = tuple((first, first + 2) for first in range(0, recording.n_frames - 3, 9))
        return replace(recording, frames_path=str(folder), readable=readable)

    page, outline = report(make_run(20, change=change))
    assert len(outline.values("src")) > 40
    assert 0.5e6 < len(page.encode()) < 3e6


# ---------------------------------------------------------------------- every run there can be
def without_summary(run: Path) -> None:
    content = json.loads((run / "run.json").read_text())
    content["summary"] = {}
    (run / "run.json").write_text(json.dumps(content))


def with_empty_scores(run: Path) -> None:
    content = json.loads((run / "run.json").read_text())
    for summary in content["summary"].values():
        summary["with_errors"] = None
        for group in ("all", "without_errors"):
            summary[group] = dict.fromkeys(summary[group] or {})
        summary["recordings"] = [
            {"name": row["name"]} | dict.fromkeys(("pos", "f1", "delay_seconds")) for row in summary["recordings"]
        ]
    (run / "run.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("options", "after", "words"),
    [
        ({"n": 1}, None, "One recording has no interval."),
        ({"methods": ["average"]}, None, "STORM-PSR recognised"),
        ({"methods": []}, None, "This run has no methods."),
        ({"change": lambda r: replace(r, events={})}, None, "not run here: Detection only, Temporal only, STORM-PSR"),
        ({"change": lambda r: replace(r, events=dict.fromkeys(r.events, ()))}, None, "0 % of the steps"),
        ({"change": lambda r: replace(r, labels=())}, None, "no labelled steps"),
        (
            {"change": lambda r: replace(r, labels=(), events=dict.fromkeys(r.events, ()))},
            None,
            "no steps and no events",
        ),
        ({"change": lambda r: replace(r, labels_with_errors=None)}, None, "step completed, with its number"),
        ({"change": lambda r: replace(r, has_errors=None)}, None, "All recordings"),
        ({"change": lambda r: replace(r, readable=None)}, None, "For these recordings nobody noted"),
        ({"change": lambda r: replace(r, readable=())}, None, "state hidden 100 % of the time"),
        ({"change": lambda r: replace(r, evidence={})}, None, "false alarm"),
        ({"change": lambda r: replace(r, variant=None, frames_path="")}, None, "the run does not say where the frames"),
        ({"change": lambda r: replace(r, fps=29.97, n_frames=100_000)}, None, "100000 frames at 29.97 fps"),
        ({}, without_summary, "STORM-PSR has no scores in this run."),
        ({}, with_empty_scores, "of the steps"),
    ],
)
def test_every_run_has_a_page(
    make_run: MakeRun, options: dict[str, Any], after: Callable[[Path], None] | None, words: str
) -> None:
    run = make_run(options.pop("n", 2), **options)
    if after:
        after(run)
    page, outline = report(run)
    assert words in outline.text.replace("\N{NO-BREAK SPACE}", " ")
    assert not re.search(r"\bnan\b|\binf\b|None", re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL))


def test_missing_images_are_a_note(make_run: MakeRun) -> None:
    _, outline = report(make_run(3))
    assert "There are no images" in outline.text
    assert "nowhere/00_assy/rgb: the frames are not there any more" in outline.text


def test_the_data_may_have_moved(make_run: MakeRun, tmp_path: Path) -> None:
    import cv2

    grey = cv2.imencode(".jpg", np.full((32, 32, 3), 99, np.uint8))[1].tobytes()
    run = make_run(1)
    folder = tmp_path / "moved" / "00_assy" / "rgb"
    folder.mkdir(parents=True)
    for frame in range(900):
        (folder / f"{frame:06d}.jpg").write_bytes(grey)
    seen: list[tuple[int, int]] = []
    _, outline = report(run, data=tmp_path / "moved", on_progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1, 1)]
    assert "images" not in outline.text
    images = [value for value in outline.values("src") if value.startswith("data:image/jpeg;base64,")]
    assert len(images) > 5
    assert len(outline.values("alt")) == len(images)
    assert all("00_assy, frame" in text for text in outline.values("alt"))


# ---------------------------------------------------------------------- the scores in sentences
LABELS = (StepEvent(0, 100), StepEvent(3, 400))


def later(frames: int, *more: StepEvent) -> tuple[StepEvent, ...]:
    return (*(StepEvent(label.step_id, label.frame + frames) for label in LABELS), *more)


def words(make_run: MakeRun, n: int = 2, **events: tuple[StepEvent, ...]) -> str:
    def change(recording: RecordingRun) -> RecordingRun:
        return replace(recording, labels=LABELS, events=events)

    return lead(make_run(n, change=change, methods=list(events)))


def lead(run: Path) -> str:
    """The first paragraph as it reads."""
    found = re.search(r'<p class="lead">(.*?)</p>', report(run)[0], flags=re.DOTALL)
    assert found
    return re.sub("<[^>]+>", "", found.group(1)).replace("\N{NO-BREAK SPACE}", " ")


def test_sooner_and_as_exact(make_run: MakeRun) -> None:
    assert words(make_run, detection=later(100), average=later(20)) == (
        "In 2 recordings with 4 completed steps, STORM-PSR recognised 100 % of the steps, on average 2.0 s after they "
        "were completed, and raised no false alarm. That is 8.0 s (80 %) sooner than Detection only, and sooner in 2 "
        "of 2 recordings. Both are equally exact (F1 1.000 against 1.000)."
    )


def test_later_and_less_exact_is_said_as_plainly(make_run: MakeRun) -> None:
    found = words(make_run, detection=later(10), average=later(30, StepEvent(6, 5)))
    assert "and raised 2 false alarms." in found
    assert "That is 2.0 s (200 %) later than Detection only, and later in 2 of 2 recordings." in found
    assert "It is less exact (F1 0.800 against 1.000), in 2 of 2 recordings." in found


def test_the_third_method_gets_a_sentence(make_run: MakeRun) -> None:
    found = words(make_run, detection=later(10), temporal=later(5, StepEvent(6, 5)), average=later(10))
    assert found.endswith("Temporal only took 0.5 s, found 100 % of the steps and raised 2 false alarms.")
    assert "That is as late as Detection only." in found


def test_one_recording_is_not_counted_in_recordings(make_run: MakeRun) -> None:
    found = words(make_run, 1, detection=later(100), average=later(20))
    assert found.startswith("In 1 recording with 2 completed steps")
    assert "sooner than Detection only." in found


def test_a_method_that_found_nothing_has_no_delay(make_run: MakeRun) -> None:
    found = words(make_run, detection=later(10), average=())
    assert "STORM-PSR recognised 0 % of the steps, and raised no false alarm." in found
    assert "sooner" not in found
    assert "later than" not in found


def test_one_method_is_compared_with_nothing(make_run: MakeRun) -> None:
    assert words(make_run, average=later(10)).endswith("and raised no false alarm.")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"methods": []}, "This run has no method, so there is nothing to sum up."),
        ({"change": lambda r: replace(r, labels=())}, "This run has no labelled steps, so there is nothing to sum up."),
    ],
)
def test_nothing_to_say_is_said(make_run: MakeRun, options: dict[str, Any], text: str) -> None:
    assert lead(make_run(1, **options)) == text


# ---------------------------------------------------------------------- colours
def luminance(colour: str) -> float:
    def linear(part: int) -> float:
        value = part / 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_marks_stand_out_from_what_they_are_drawn_on(schemes: dict[str, dict[str, str]], scheme: str) -> None:
    colours = schemes[scheme]
    for name in ("ink", "quiet", "link", "alert", *METHODS):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
        for shade in ("bed", "hidden", "unseen"):
            assert contrast(colours[name], colours[shade]) >= 3, (name, shade)
    for shade in ("hidden", "unseen"):
        assert contrast(colours["bed"], colours[shade]) >= 1.1, shade


# ---------------------------------------------------------------------- on the command line
def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a refused command prints."""
    assert main(["report", *map(str, arguments)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    return printed.err


def test_the_report_goes_into_the_run(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(2)
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert capsys.readouterr().out == f"written: {run / 'report.html'} ({len(page.encode()) / 1e6:.1f} MB)\n"


def test_the_report_goes_where_it_is_asked_to(
    make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = make_run(2), tmp_path / "new" / "page.html"
    assert main(["report", str(run), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "report": str(out),
        "bytes": out.stat().st_size,
        "recordings": 2,
    }
    assert not (run / "report.html").exists()


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "this is no run folder" in refusal(capsys, tmp_path)
    assert "this is no run folder" in refusal(capsys, tmp_path / "missing")


def test_another_version_of_the_format_is_refused(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(1)
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**content, "format": "stormpsr run 2"}))
    assert "the format is 'stormpsr run 2', not 'stormpsr run 1'" in refusal(capsys, run)


@pytest.mark.parametrize("name", ["00_assy.json", "00_assy.npz"])
def test_a_damaged_recording_is_refused_and_no_page_is_left(
    make_run: MakeRun, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    run = make_run(1)
    path = run / "recordings" / name
    path.write_bytes(path.read_bytes()[:50])
    assert str(path) in refusal(capsys, run)
    assert not (run / "report.html").exists()


def test_a_folder_is_no_page_and_a_file_no_data(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(1)
    assert "this is a folder" in refusal(capsys, run, "--out", run)
    assert "there is no such folder" in refusal(capsys, run, "--data", run / "run.json")
