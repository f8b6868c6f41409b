"""The page in a real browser: it fits, says nothing on the console, and is readable in dark and light."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from html import escape, unescape
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from stormpsr.evaluation.report.page import render_report
from stormpsr.evaluation.run_folder import RecordingRun, read_run

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--enable-logging=stderr"),
]
WIDTHS = (360, 390, 1280)  # frames in a page, because a window of the browser cannot be as narrow as a phone

# What each frame looks like from inside: how far it reaches, what is outside, and which numbers lie on each other.
PROBE = """
addEventListener('load', () => {
  const found = [...document.querySelectorAll('iframe')].map((frame) => {
    const page = frame.contentDocument, width = page.documentElement.clientWidth;
    const outside = [...page.body.querySelectorAll('*')].filter((part) =>
      !part.closest('.scroll, svg.symbols') && part.getBoundingClientRect().right > width + 0.5);
    const shown = [...page.querySelectorAll('.timeline')].map((drawing) =>
      [...drawing.querySelectorAll('text.id:not(.nearly)')].map((text) => text.getBoundingClientRect()));
    const touching = shown.flatMap((boxes) => boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) =>
      Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1.5 &&
      Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)));
    return {
      width, paper: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
      reach: page.documentElement.scrollWidth, text: page.body.innerText.length,
      outside: outside.map((part) => part.outerHTML.slice(0, 120)), touching: touching.length,
      numbers: shown.flat().length, filter: !page.querySelector('.filter').hidden,
      loaded: [...page.images].filter((image) => image.naturalWidth > 0).length, images: page.images.length,
    };
  });
  console.log('probe ran');
  const answer = document.createElement('pre');
  answer.id = 'answer'; answer.textContent = JSON.stringify(found); document.body.append(answer);
});
"""


@pytest.fixture(scope="module")
def browser() -> str:
    found = os.environ.get("STORMPSR_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("there is no Chromium; STORMPSR_CHROMIUM says where it is")
    return found


@pytest.fixture
def chromium(browser: str, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(page: Path, *flags: str) -> subprocess.CompletedProcess[str]:
        command = [browser, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *flags, page.as_uri()]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)

    return run


@pytest.fixture
def page(make_run: Callable[..., Path], tmp_path: Path) -> Path:
    """A report with images, a recording with very many steps, and one without events."""
    one = tmp_path / "grey.jpg"
    one.write_bytes(cv2.imencode(".jpg", np.full((48, 64, 3), 120, np.uint8))[1].tobytes())

    def change(recording: RecordingRun) -> RecordingRun:
        folder = tmp_path / "data" / recording.name / "rgb"
        folder.mkdir(parents=True)
        for frame in range(recording.n_frames):
            os.link(one, folder / f"{frame:06d}.jpg")
        if recording.name.startswith("01"):
            return replace(recording, events=dict.fromkeys(recording.events, ()))
        if recording.name.startswith("02"):
            repeated = tuple(
                replace(label, frame=min(label.frame + 7 * i, recording.n_frames - 1))
                for i in range(4)
                for label in recording.labels
            )
            return replace(recording, labels=repeated)
        return recording

    run = make_run(4, change=change, data=str(tmp_path / "data"))
    path = tmp_path / "report.html"
    path.write_text(render_report(read_run(run)), encoding="utf-8")
    return path


def test_the_page_fits_on_a_phone_and_says_nothing_on_the_console(
    chromium: Callable[..., subprocess.CompletedProcess[str]],
    page: Path,
    schemes: dict[str, dict[str, str]],
    tmp_path: Path,
) -> None:
    report = escape(page.read_text(encoding="utf-8"))
    frames = "".join(f'<iframe style="width:{w}px;height:700px;border:0" srcdoc="{report}"></iframe>' for w in WIDTHS)
    outer = tmp_path / "outer.html"
    outer.write_text(f"<!doctype html><meta charset=utf-8>{frames}<script>{PROBE}</script>", encoding="utf-8")
    done = chromium(outer, "--dump-dom", "--virtual-time-budget=5000", "--window-size=1400,900")
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert len(said) == 1, said
    assert "probe ran" in said[0]
    answer = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert answer, done.stdout[-500:]
    found: list[dict[str, Any]] = json.loads(unescape(answer.group(1)))
    assert [inside["width"] for inside in found] == list(WIDTHS)
    for inside in found:
        assert inside["paper"] == "rgb({}, {}, {})".format(*_rgb(schemes["light"]["paper"]))
        assert inside["reach"] <= inside["width"], inside
        assert inside["outside"] == []
        assert inside["numbers"] > 50
        assert inside["touching"] == 0, inside
        assert inside["text"] > 2000
        assert inside["loaded"] == inside["images"] > 0
        assert inside["filter"]  # the script has run


def test_a_dark_screenshot_shows_light_writing_and_the_colours_of_the_methods(
    chromium: Callable[..., subprocess.CompletedProcess[str]],
    page: Path,
    schemes: dict[str, dict[str, str]],
    tmp_path: Path,
) -> None:
    shot = tmp_path / "dark.png"
    chromium(page, f"--screenshot={shot}", "--window-size=1280,1600", "--blink-settings=preferredColorScheme=0")
    image = cv2.cvtColor(cv2.imread(str(shot)), cv2.COLOR_BGR2RGB)
    assert image.shape == (1600, 1280, 3)

    def share(name: str) -> float:
        return float((np.abs(image.astype(int) - _rgb(schemes["dark"][name])).max(axis=2) <= 6).mean())

    assert share("paper") > 0.7  # not black, not the other scheme's
    assert share("ink") > 0.005  # not blank
    for method in ("detection", "temporal", "average"):
        assert share(method) > 0.0001, method  # some 200 pixels


def _rgb(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
