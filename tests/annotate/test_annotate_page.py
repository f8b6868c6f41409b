"""The annotator's page in a real browser, against the real server.

Every wait is for a condition; how long a slow machine takes for it does not matter.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from served_annotator import BOXES, LABELS, ScriptedProposer, Served, free_port, unlabelled_copy

from stormpsr.annotate.proposals import Proposals, StepProposal
from stormpsr.data.labels import StateTimeline, read_states
from stormpsr.data.recording import Recording
from stormpsr.procedure.model import Procedure
from stormpsr.web.security import Access

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("needs chromium (apt-get install chromium)", allow_module_level=True)

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
TABLET = {"viewport": {"width": 820, "height": 1180}, "has_touch": True}
SCREEN = {"viewport": {"width": 1366, "height": 768}}
PATIENCE_MS = 60_000

expect = sync_api.expect
expect.set_options(timeout=PATIENCE_MS)
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Opens a page in a window of its own; an error in a script fails the test."""
    contexts: list[Any] = []
    errors: list[str] = []

    def open_(url: str, **options: Any) -> Any:
        context = browser.new_context(**{"locale": "en-GB", "reduced_motion": "reduce", **SCREEN, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: "Content Security" in message.text and errors.append(message.text))
        page.goto(url, wait_until="commit")
        ready(page)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert errors == []


def ready(page: Any) -> None:
    page.locator("body:not(.loading) main:not([aria-busy=true])").wait_for()


def page_of(served: Any, recording: Path) -> str:
    return f"{served.url}/recordings/recordings/train/{recording.name}"


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def at_frame(page: Any, frame: int) -> None:
    """Wait until the image of a frame is on the screen."""
    expect(page.locator("body")).to_have_attribute("data-frame", str(frame))


def at_revision(page: Any, revision: int) -> None:
    """Wait until the server has saved so many changes."""
    expect(page.locator("body")).to_have_attribute("data-revision", str(revision))
    expect(page.locator("#saved")).to_have_text("Saved")


def walk(page: Any, frm: int, to: int) -> None:
    """From one frame to another by arrow keys: tens, then ones."""
    tens, ones = divmod(abs(to - frm), 10)
    arrow = "ArrowRight" if to > frm else "ArrowLeft"
    press(page, *[f"Shift+{arrow}"] * tens, *[arrow] * ones)
    at_frame(page, to)


def key_of(component: int) -> str:
    return str(component + 1) if component < 9 else "adejlopqrstvw"[component - 9]


def timeline_of(rendered: Path) -> tuple[StateTimeline, Procedure]:
    procedure = Procedure.load(rendered / "procedure.yaml")
    return read_states(rendered / LABELS[0], procedure), procedure


def presses(timeline: StateTimeline) -> list[tuple[int, list[str]]]:
    """(frame, keys) that make a timeline: a key goes on from absent to correct to wrong."""
    found = []
    for before, frame, after in zip(timeline.states, timeline.frames[1:], timeline.states[1:], strict=False):
        order = (0, 1, -1)
        keys = [
            key_of(k)
            for k, (old, new) in enumerate(zip(before, after, strict=True))
            for _ in range((order.index(new) - order.index(old)) % 3)
        ]
        found.append((frame, keys))
    return found


def assert_same_labels(recording: Path, rendered: Path) -> None:
    for name in LABELS:
        assert (recording / name).read_bytes() == (rendered / name).read_bytes(), name


# ---- a person at the keyboard


def test_a_recording_is_labelled_by_keyboard_alone_and_its_files_are_those_of_the_renderer(
    served: Any, recording: Path, rendered: Path, open_page: Open
) -> None:
    timeline, _ = timeline_of(rendered)
    page = open_page(served.url)
    expect(page.locator("#rows a")).to_be_focused()
    press(page, "Enter")
    expect(page.locator("body")).to_have_class(re.compile("annotate"))
    ready(page)
    at, revision = 0, 0
    for turn, (frame, keys) in enumerate(presses(timeline)):
        walk(page, at, frame)
        at = frame
        for key in keys:
            press(page, key)
            revision += 1
            at_revision(page, revision)
        if turn == 0:
            # a slip, undone and done again and undone; then the page is loaded anew, which knows where it was
            press(page, "3")
            at_revision(page, revision + 1)
            for number, key in enumerate(("z", "y", "z"), start=2):
                press(page, key)
                at_revision(page, revision + number)
            revision += 4
            page.reload(wait_until="commit")
            ready(page)
            at_frame(page, frame)
            at_revision(page, revision)
            press(page, "Control+y", "Control+z")  # the ways back and forth are still there
            revision += 2
            at_revision(page, revision)
    assert_same_labels(recording, rendered)
    press(page, "f")
    expect(page.locator("#finish-dialog")).to_contain_text("the labels are in order")
    press(page, "Escape")
    press(page, "Escape")
    expect(page.locator("#rows .status.pass")).to_have_text("Finished")
    assert_same_labels(recording, rendered)
    assert json.loads((recording / "annotation.json").read_text())["finished"]["errors"] == 0


def test_wrong_parts_and_all_boxes_are_labelled_by_keyboard_alone_and_the_files_are_those_of_the_renderer(
    rendered_with_errors: Path, tmp_path: Path, open_page: Open
) -> None:
    rendered = rendered_with_errors
    recording = unlabelled_copy(rendered, tmp_path / "data")
    timeline, _ = timeline_of(rendered)
    changes = dict(presses(timeline))
    boxes = {entry["image_id"]: entry["bbox"] for entry in json.loads((rendered / BOXES).read_text())["annotations"]}
    assert any(-1 in state for state in timeline.states)
    assert len(boxes) > 50
    served = Served(tmp_path / "data")
    try:
        page = open_page(page_of(served, recording))
        at, revision, last = 0, 0, None
        for frame in sorted({*changes, *boxes}):
            walk(page, at, frame)
            at = frame
            for key in changes.get(frame, ()):
                press(page, key)
                revision += 1
            if frame in boxes and boxes[frame] == last:
                press(page, "c")  # the same as before
                revision += 1
            elif frame in boxes:
                press(page, "Shift+D")
                page.keyboard.type(" ".join(str(side) for side in boxes[frame]))
                press(page, "Enter")
                revision += 1
                last = boxes[frame]
        at_revision(page, revision)
        press(page, "f")
        expect(page.locator("#finish-dialog")).to_contain_text("the labels are in order")
    finally:
        served.stop()
    assert_same_labels(recording, rendered)
    assert (recording / BOXES).read_bytes() == (rendered / BOXES).read_bytes()


def test_a_key_after_a_dialog_is_not_lost_to_its_field(served: Any, recording: Path, open_page: Open) -> None:
    page = open_page(page_of(served, recording))
    press(page, "g")
    page.keyboard.type("30")
    # in one go: the screen is not drawn, and the field keeps the focus
    page.evaluate(
        """() => {
          const key = new KeyboardEvent("keydown", {key: "2", bubbles: true, cancelable: true});
          document.querySelector("#goto-form").requestSubmit();
          document.activeElement.dispatchEvent(key);
        }"""
    )
    at_revision(page, 1)
    assert (recording / LABELS[0]).read_text().splitlines()[1].startswith("000030.jpg")


def test_a_box_that_is_no_box_is_refused_in_words(served: Any, recording: Path, open_page: Open) -> None:
    page = open_page(page_of(served, recording))
    press(page, "Shift+D")
    page.keyboard.type("10 20 30")
    press(page, "Enter")
    expect(page.locator(".toast")).to_have_text("A box has four numbers.")
    press(page, "Shift+D")
    page.keyboard.type("10, 20, 30, 25.5")
    press(page, "Enter")
    at_revision(page, 1)
    press(page, "Shift+D")
    expect(page.locator("#box-sides")).to_have_value("10 20 30 25.5")  # to be put right


def test_a_frame_whose_image_did_not_come_is_asked_for_again(served: Any, recording: Path, open_page: Open) -> None:
    page = open_page(page_of(served, recording))
    asked: list[str] = []

    def refuse_twice(route: Any) -> None:
        asked.append(route.request.url)
        if len(asked) <= 2:
            route.abort()
        else:
            route.continue_()

    page.route("**/frames/150?*", refuse_twice)
    press(page, "g")
    page.keyboard.type("150")
    press(page, "Enter")
    expect(page.locator("body")).to_have_class(re.compile("stale"))
    expect(page.locator("#frame")).to_have_text("0")  # what is said is of the image that is shown
    at_frame(page, 150)
    expect(page.locator("#frame")).to_have_text("150")
    assert len(asked) == 3


def test_undo_and_redo_have_no_end(served: Any, recording: Path, open_page: Open) -> None:
    page = open_page(page_of(served, recording))
    walk(page, 0, 5)
    for revision in range(1, 10):
        press(page, "2")
        at_revision(page, revision)
    after = (recording / LABELS[0]).read_text()
    for _ in range(9):
        press(page, "z")
    at_revision(page, 18)
    expect(page.locator("#actions [name=undo]")).to_be_disabled()
    assert (recording / LABELS[0]).read_text().count("\n") == 1
    for _ in range(9):
        press(page, "y")
    at_revision(page, 27)
    expect(page.locator("#actions [name=redo]")).to_be_disabled()
    assert (recording / LABELS[0]).read_text() == after


def test_frames_are_moved_to_by_ones_tens_seconds_changes_and_numbers(
    served: Any, recording: Path, open_page: Open
) -> None:
    page = open_page(page_of(served, recording))
    for key, frame in (
        ("ArrowRight", 1),
        ("Shift+ArrowRight", 11),
        ("Alt+ArrowRight", 21),
        ("ArrowLeft", 20),
        ("Alt+ArrowLeft", 10),
        ("End", 199),
        ("Home", 0),
    ):
        press(page, key)
        at_frame(page, frame)
    for frame, revision in ((30, 1), (60, 2)):
        press(page, "g")
        page.keyboard.type(str(frame))
        press(page, "Enter")
        at_frame(page, frame)
        press(page, "2")
        at_revision(page, revision)
    press(page, "Home", "ArrowDown")
    at_frame(page, 30)
    press(page, "ArrowDown")
    at_frame(page, 60)
    press(page, "ArrowUp")
    at_frame(page, 30)
    press(page, "u")  # labelled up to the last change
    at_frame(page, 61)
    press(page, "Home", "Space")
    expect(page.locator("body")).to_have_attribute("data-frame", re.compile(r"^([4-9]|\d\d+)$"))
    press(page, "Space")
    expect(page.locator("#play")).to_have_attribute("aria-pressed", "false")


def test_the_timeline_is_zoomed_and_follows(served: Any, recording: Path, open_page: Open) -> None:
    page = open_page(page_of(served, recording))
    press(page, "g")
    page.keyboard.type("150")
    press(page, "Enter")
    at_frame(page, 150)
    press(page, "Shift+ArrowUp", "Shift+ArrowUp")
    expect(page.locator("#rows")).to_have_attribute("data-span", "50")  # frames 113 to 162: 150 stays where it is
    layer = page.locator("#rows .layer").bounding_box()
    page.mouse.click(layer["x"] + 1, layer["y"] + 30)
    at_frame(page, 113)
    for key, frame in (("End", 199), ("Home", 0)):
        press(page, key)
        at_frame(page, frame)
        head = page.locator("#rows .playhead").bounding_box()
        assert layer["x"] - 7 <= head["x"] <= layer["x"] + layer["width"]
    press(page, "Shift+ArrowDown", "Shift+ArrowDown", "Shift+ArrowDown")
    expect(page.locator("#rows")).to_have_attribute("data-span", "200")


def test_more_components_than_keys_are_reached_by_turning_the_keys(
    recording: Path, tmp_path: Path, open_page: Open
) -> None:
    from stormpsr.cli.main import main

    names = [word for k in range(25) for word in ("--component", f"part {k}")]
    for place in (tmp_path / "data" / "procedure.yaml", recording / "procedure.yaml"):
        place.unlink()
        assert main(["procedure", "new", "rack", *names, "--out", str(place)]) == 0
    served = Served(tmp_path / "data")
    try:
        page = open_page(page_of(served, recording))
        press(page, "ArrowRight")
        at_frame(page, 1)
        press(page, "PageDown", "3")  # the first three keys are those of parts 22 to 24
        at_revision(page, 1)
        (row,) = [
            row for row in served.annotator.session(f"recordings/train/{recording.name}").to_json()["states"] if row[0]
        ]
        assert [k for k, bit in enumerate(row[1:]) if bit] == [24]
        press(page, "PageDown")
        expect(page.locator(".toasts")).to_contain_text("no components beyond these")
    finally:
        served.stop()


def test_an_impossible_transition_is_shown_and_can_be_kept_on_purpose(
    served: Any, recording: Path, open_page: Open
) -> None:
    page = open_page(page_of(served, recording))
    walk(page, 0, 12)
    press(page, "9")
    expect(page.locator("#here .odd")).to_contain_text("front bracket screw needs front bracket")
    expect(page.locator("#problems .odd")).to_have_count(1)
    press(page, "k")
    expect(page.locator("#here .kept")).to_contain_text("kept on purpose")
    expect(page.locator("#problems .odd")).to_have_count(0)
    page.reload(wait_until="commit")
    ready(page)
    expect(page.locator("#problems .kept")).to_have_count(1)


# ---- crashes and other windows


@pytest.fixture
def started(tmp_path: Path, recording: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Serves the data set in a process of its own, always at the same port."""
    port, processes = free_port(), []
    here = Path(__file__).with_name("served_annotator.py")

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, str(here), str(tmp_path / "data"), str(port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        process.url = f"http://127.0.0.1:{port}"  # type: ignore[attr-defined]
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_killed_server_loses_nothing_not_even_what_is_typed_while_it_is_away(
    started: Callable[[], Any], recording: Path, rendered: Path, open_page: Open
) -> None:
    timeline, _ = timeline_of(rendered)
    (first, first_keys), (second, second_keys) = presses(timeline)
    process = started()
    page = open_page(f"{page_of(process, recording)}#{first}")
    press(page, *first_keys)
    at_revision(page, len(first_keys))
    walk(page, first, second)
    process.kill()
    process.wait()
    press(page, *second_keys)
    expect(page.locator("#saved")).to_have_text(re.compile("not saved yet"))
    started()
    at_revision(page, len(first_keys) + len(second_keys))
    assert_same_labels(recording, rendered)


def test_a_second_window_follows_and_a_late_one_is_told(served: Any, recording: Path, open_page: Open) -> None:
    one, other = open_page(page_of(served, recording)), open_page(page_of(served, recording))
    press(one, "2")
    at_revision(one, 1)
    at_revision(other, 1)  # told by the server
    other.route("**/api/stream", lambda route: route.abort())
    other.evaluate("() => (window.stop(), null)")  # it hears nothing any more
    press(one, "3")
    at_revision(one, 2)
    press(other, "4")
    expect(other.locator(".toast")).to_contain_text("changed in another window")
    at_revision(other, 2)
    raw = (recording / LABELS[0]).read_text().splitlines()
    assert raw == ["000000.jpg,1,1,1,0,0,0,0,0,0,0,0"]  # the late change was not made


# ---- boxes


def test_boxes_are_drawn_moved_resized_copied_and_filled_with_the_mouse_and_keys(
    served: Any, recording: Path, open_page: Open
) -> None:
    page = open_page(page_of(served, recording))
    place = page.locator("#image").bounding_box()
    scale = min(place["width"] / 64, place["height"] / 64)
    left, top = place["x"] + (place["width"] - 64 * scale) / 2, place["y"] + (place["height"] - 64 * scale) / 2

    def drag(from_: tuple[float, float], to: tuple[float, float]) -> None:
        page.mouse.move(left + from_[0] * scale, top + from_[1] * scale)
        page.mouse.down()
        page.mouse.move(left + to[0] * scale, top + to[1] * scale, steps=3)
        page.mouse.up()

    def boxes() -> dict[int, list[float]]:
        content = json.loads((recording / BOXES).read_text())
        return {entry["image_id"]: entry["bbox"] for entry in content["annotations"]}

    drag((10, 10), (30, 40))
    at_revision(page, 1)
    assert boxes()[0] == pytest.approx([10, 10, 20, 30], abs=0.3)
    drag((20, 20), (25, 22))  # inside: it moves
    at_revision(page, 2)
    assert boxes()[0] == pytest.approx([15, 12, 20, 30], abs=0.5)
    drag((35, 42), (45, 52))  # by its corner
    at_revision(page, 3)
    assert boxes()[0] == pytest.approx([15, 12, 30, 40], abs=0.8)
    press(page, "Shift+ArrowRight")
    at_frame(page, 10)
    press(page, "c")
    at_revision(page, 4)
    assert boxes()[10] == boxes()[0]
    drag((20, 20), (30, 20))
    at_revision(page, 5)
    press(page, "i")
    at_revision(page, 6)
    assert sorted(boxes()) == list(range(11))
    middle = [(a + b) / 2 for a, b in zip(boxes()[0], boxes()[10], strict=True)]
    assert boxes()[5] == pytest.approx(middle, abs=0.02)
    press(page, "Delete")
    at_revision(page, 7)
    assert sorted(boxes()) == list(range(10))
    press(page, "z")
    at_revision(page, 8)
    assert sorted(boxes()) == list(range(11))


# ---- proposals


def test_proposals_are_accepted_in_the_frame_that_is_looked_at_and_rejected_by_one_key(
    recording: Path, rendered: Path, tmp_path: Path, open_page: Open
) -> None:
    timeline, procedure = timeline_of(rendered)
    late = 7  # frames: recognition sees a step some time after it
    true = [
        StepProposal(frame + late, k, new, 0.8)
        for before, frame, after in zip(timeline.states, timeline.frames[1:], timeline.states[1:], strict=False)
        for k, (old, new) in enumerate(zip(before, after, strict=True))
        if old != new
    ]
    false = StepProposal(40, procedure.n_components - 1, 1, 0.3)
    box = (10.0, 12.0, 30.0, 20.0, 0.9, 1)
    proposer = ScriptedProposer(Proposals((false, *true), {3: box, 5: box}, ((0, 99, 0.2), (100, 199, 0.6))))
    served = Served(tmp_path / "data", proposer)
    try:
        page = open_page(page_of(served, recording))
        expect(page.locator("#proposals-words")).to_contain_text("has not seen")
        proposer.allow.set()
        expect(page.locator("body")).to_have_attribute("data-proposals", str(len(true) + 1))
        expect(page.locator("#proposals li")).to_have_count(len(true) + 1)
        expect(page.locator("#unsure li").first).to_contain_text("60")
        press(page, "n")
        at_frame(page, 40)
        expect(page.locator("#here .proposed")).to_contain_text("rear wheel assy")
        press(page, "Backspace")
        expect(page.locator("#proposals li")).to_have_count(len(true))
        for number, step in enumerate(true, start=1):
            press(page, "n")
            at_frame(page, step.frame)
            walk(page, step.frame, step.frame - late)
            press(page, "Enter")
            expect(page.locator("#proposals li")).to_have_count(len(true) - number)
        assert_same_labels(recording, rendered)
        press(page, "Home", *["ArrowRight"] * 3)
        at_frame(page, 3)
        expect(page.locator("#overlay .proposed:not(.none)")).to_have_count(1)
        press(page, "b")
        expect(page.locator("#overlay .own:not(.none)")).to_have_count(1)
        press(page, "ArrowRight", "ArrowRight", "x")
        at_frame(page, 5)
        expect(page.locator("#overlay .proposed:not(.none)")).to_have_count(0)
        (entry,) = json.loads((recording / BOXES).read_text())["annotations"]
        assert (entry["image_id"], entry["bbox"]) == (3, [10.0, 12.0, 30.0, 20.0])
    finally:
        proposer.allow.set()
        served.stop()


def test_the_recording_that_is_opened_is_looked_at_next_and_the_least_sure_come_first(
    recording: Path, tmp_path: Path, open_page: Open
) -> None:
    for name in ("05_assy", "09_assy"):
        shutil.copytree(recording, recording.with_name(name))

    class BySize(ScriptedProposer):
        def propose(self, recording: Recording, on_progress: Callable[[int, int], None]) -> Proposals:
            super().propose(recording, on_progress)
            return Proposals(unsure=((0, 99, {"05_assy": 0.7, "09_assy": 0.2}.get(recording.name, 0.4)),))

    proposer = BySize(Proposals())
    served = Served(tmp_path / "data", proposer)
    try:
        page = open_page(f"{served.url}/recordings/recordings/train/09_assy")
        proposer.allow.set()
        expect(page.locator("body")).to_have_attribute("data-proposals", "0")
        assert proposer.asked[:2] == [recording.name, "09_assy"]
        page.goto(served.url)
        expect(page.locator("#model")).to_have_text("Model: 3 of 3 recordings")
        expect(page.locator("#rows a").first).to_have_text("05_assy")
        expect(page.locator("#rows a").last).to_have_text("09_assy")
    finally:
        proposer.allow.set()
        served.stop()


# ---- languages, sizes, tokens


def test_german_dark_and_a_tablet(served: Any, recording: Path, open_page: Open) -> None:
    page = open_page(page_of(served, recording), locale="de-DE", color_scheme="dark", **TABLET)
    expect(page.locator("html")).to_have_attribute("lang", "de")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("#actions [name=undo]")).to_contain_text("Rückgängig")
    assert not page.evaluate("() => document.documentElement.scrollWidth > innerWidth")
    page.locator("#rows .component .head").nth(1).tap()
    expect(page.locator("#rows .component .head").nth(1)).to_have_attribute("aria-label", "front chassis: richtig")
    sizes = page.locator("#actions button").evaluate_all(
        "(nodes) => nodes.map((node) => node.getBoundingClientRect()).map((box) => Math.min(box.width, box.height))"
    )
    assert min(sizes) >= 48


def test_the_help_names_every_key(served: Any, recording: Path, open_page: Open) -> None:
    page = open_page(page_of(served, recording))
    press(page, "?")
    expect(page.locator("#help-dialog")).to_be_visible()
    expect(page.locator("#help-dialog")).to_contain_text("front bracket screw")
    assert page.locator("#help-dialog dt").count() == page.locator("#help-dialog dd").count()
    assert not re.search(r"\b(do|key|group)\.[a-z]", page.locator("#help-dialog").inner_text())
    press(page, "Escape")
    expect(page.locator("#help-dialog")).to_be_hidden()


def test_a_viewers_token_may_look_but_not_change(recording: Path, tmp_path: Path, open_page: Open) -> None:
    served = Served(tmp_path / "data", access=Access("operator-token-1", "viewer-token-12"))
    try:
        page = open_page(f"{served.url}/login?token=viewer-token-12")
        page.locator("#rows a").click()
        ready(page)
        expect(page.locator("#read-only")).to_have_text("View only")
        expect(page.locator("#actions")).to_be_hidden()
        press(page, "2")
        expect(page.locator(".toast")).to_have_text("View only")
        assert not (recording / LABELS[0]).exists()
    finally:
        served.stop()
