"""The station's page in a real browser, against the real station with a scripted recogniser.

Every wait is for a condition; how long a slow machine takes for it does not matter.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("needs chromium (apt-get install chromium)", allow_module_level=True)

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
TABLET = {"viewport": {"width": 820, "height": 1180}, "has_touch": True}
SCREEN = {"viewport": {"width": 1366, "height": 768}}

expect = sync_api.expect
expect.set_options(timeout=30_000)
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def scripted(scripted: Any) -> Any:
    """The station with a unit in work and a camera that runs."""
    scripted.station.start_unit("A-1", None)
    scripted.see()
    return scripted


@pytest.fixture
def open_page(browser: Any, scripted: Any) -> Iterator[Open]:
    """Opens a page of the station in a browser window of its own; an error in a script fails the test."""
    contexts: list[Any] = []
    errors: list[str] = []

    def open_(path: str = "/", **options: Any) -> Any:
        context = browser.new_context(**{"locale": "en-GB", "reduced_motion": "reduce", **SCREEN, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: "Content Security" in message.text and errors.append(message.text))
        go(page, scripted.url + path)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert errors == []


def go(page: Any, url: str) -> None:
    page.goto(url, wait_until="commit")
    page.locator("body:not(.loading) main:not([aria-busy=true])").wait_for()


def row(page: Any, number: int) -> Any:
    return page.locator(".step").nth(number - 1)


def status(page: Any, number: int) -> Any:
    return row(page, number).locator(".word")


def act(page: Any, number: int, label: str) -> None:
    """Touches the button of a step: "Mark as done", "Mark as not done" or "Mark as wrong"."""
    row(page, number).get_by_role("button", name=f"{label}: ").click()


def type_as_a_scanner(page: Any, text: str) -> None:
    """All keys at once: a driver that sends key by key may be slower than any scanner."""
    page.evaluate(
        """(keys) => keys.forEach((key) => document.activeElement.dispatchEvent(
               new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true})))""",
        [*text, "Enter"],
    )


def scrolls_sideways(page: Any) -> bool:
    return bool(page.evaluate("() => document.documentElement.scrollWidth > innerWidth"))


# ---- what the camera sees


def test_steps_appear_as_the_camera_sees_them(scripted: Any, open_page: Open) -> None:
    page = open_page()
    expect(page.locator(".step")).to_have_count(9)
    expect(row(page, 1)).to_have_attribute("aria-current", "step")
    headline = page.locator("#now-text").inner_text()
    scripted.see(share={3: 0.62})
    expect(status(page, 1)).to_have_text(re.compile("^Probably done 62"))
    scripted.see(done=[3])
    expect(status(page, 1)).to_have_text("Done")
    expect(row(page, 1).locator(".detail")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d"))
    expect(page.locator("#unit-count")).to_have_text("1 of 9")
    expect(row(page, 2)).to_have_attribute("aria-current", "step")
    expect(page.locator("#now-text")).not_to_have_text(headline)
    expect(page.locator("#news")).to_have_text(re.compile("Done: install front chassis", re.IGNORECASE))


def test_the_box_lies_on_the_picture(scripted: Any, open_page: Open) -> None:
    page = open_page()
    scripted.see(box=(40, 50, 140, 250))
    box = page.locator("#overlay .box")
    for name, value in {"x": "40", "y": "50", "width": "100", "height": "200"}.items():
        expect(box).to_have_attribute(name, re.compile(rf"^{value}(\.0)?$"))
    expect(page.locator("#overlay")).to_have_attribute("viewBox", re.compile(r"^0 0 \d+ \d+$"))
    expect(page.locator("#video")).to_have_js_property("width", 320)  # of the frames; 300 before there is one


def test_a_lost_camera_is_said_and_its_last_picture_is_veiled(scripted: Any, open_page: Open) -> None:
    page = open_page()
    scripted.camera("lost")
    expect(page.locator("#camera-pill")).to_have_text("Camera lost")
    expect(page.locator("#veil")).to_have_text(re.compile(r"^Camera lost since \d\d:\d\d:\d\d$"))
    scripted.camera("ok")
    expect(page.locator("#veil")).to_be_hidden()


# ---- what the operator says


def test_a_touch_confirms_a_step_and_another_takes_it_back(scripted: Any, open_page: Open) -> None:
    page = open_page()
    act(page, 2, "Mark as done")
    expect(status(page, 2)).to_have_text("Done")
    expect(row(page, 2)).to_contain_text("by hand")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(status(page, 2)).not_to_have_text("Done")
    act(page, 1, "Mark as done")
    act(page, 1, "Mark as not done")
    expect(status(page, 1)).to_have_text("Next")


def test_the_large_button_confirms_the_next_step(scripted: Any, open_page: Open) -> None:
    page = open_page()
    scripted.see(done=[3])
    expect(row(page, 2)).to_have_attribute("aria-current", "step")
    page.locator("#now-buttons").get_by_role("button", name="Done").click()
    expect(status(page, 2)).to_have_text("Done")
    expect(row(page, 3)).to_have_attribute("aria-current", "step")


def test_a_new_unit_starts_with_its_serial_number_and_says_what_becomes_of_the_old_one(
    scripted: Any, open_page: Open
) -> None:
    page = open_page()
    act(page, 1, "Mark as done")
    page.locator("#actions").get_by_role("button", name="New unit").click()
    dialog = page.locator("#unit-dialog")
    expect(dialog).to_contain_text("Incomplete")
    dialog.get_by_label("Serial number").fill("B-7")
    dialog.get_by_role("button", name="Start").click()
    expect(page.locator("#unit-serial")).to_have_text("B-7")
    expect(page.locator("#unit-count")).to_have_text("0 of 9")
    expect(status(page, 1)).to_have_text("Next")


def test_a_scanner_starts_a_unit_whatever_has_the_focus(scripted: Any, open_page: Open) -> None:
    page = open_page()
    type_as_a_scanner(page, "AWN-0018")  # letters that are keys of the page too
    expect(page.locator("#unit-serial")).to_have_text("AWN-0018")
    expect(page.locator("dialog[open]")).to_have_count(0)
    page.keyboard.press("?")
    expect(page.locator("#help-dialog")).to_be_visible()
    type_as_a_scanner(page, "FU-19")
    expect(page.locator("#unit-serial")).to_have_text("FU-19")
    expect(page.locator("dialog[open]")).to_have_count(0)


def test_finishing_with_open_steps_asks_first(scripted: Any, open_page: Open) -> None:
    page = open_page()
    page.locator("#actions").get_by_role("button", name="Finish unit").click()
    dialog = page.locator("#finish-dialog")
    expect(dialog).to_contain_text("9 steps are not done")
    dialog.get_by_role("button", name="Keep working").click()
    expect(dialog).to_be_hidden()
    expect(page.locator("#unit-serial")).not_to_have_text("waiting")
    page.locator("#actions").get_by_role("button", name="Finish unit").click()
    dialog.get_by_role("button", name="Finish").click()
    expect(page.locator("#unit-serial")).to_have_text("waiting")
    expect(page.locator("#now")).to_contain_text("Incomplete")


def test_everything_can_be_done_by_keyboard(scripted: Any, open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("ArrowDown")  # to the next step, which is the first
    expect(row(page, 1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(status(page, 1)).to_have_text("Done")
    expect(row(page, 2)).to_be_focused()  # and on to the next
    page.keyboard.press("ArrowDown")
    expect(row(page, 3)).to_be_focused()
    page.keyboard.press("w")
    expect(status(page, 3)).to_have_text("Wrong")
    page.keyboard.press("o")
    expect(status(page, 3)).not_to_have_text("Wrong")
    page.keyboard.press("u")
    expect(status(page, 3)).to_have_text("Wrong")
    page.keyboard.press("u")
    expect(status(page, 3)).not_to_have_text("Wrong")
    page.keyboard.press("?")
    expect(page.locator("#help-dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    expect(page.get_by_label("Serial number")).to_be_focused()
    page.keyboard.type("K-1")
    page.keyboard.press("Enter")
    expect(page.locator("#unit-serial")).to_have_text("K-1")
    page.keyboard.press("f")
    expect(page.locator("#finish-dialog")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("#unit-serial")).to_have_text("waiting")


# ---- alarms


def test_an_alarm_is_shown_announced_and_acknowledged(scripted: Any, open_page: Open) -> None:
    page, wall = open_page(), open_page()
    scripted.see(wrong=[3])
    for screen in (page, wall):
        expect(screen.locator(".alarm")).to_contain_text(re.compile("Wrong: install front chassis", re.IGNORECASE))
        expect(status(screen, 1)).to_have_text("Wrong")
    expect(page.locator("#shout")).to_have_text(re.compile("Wrong: install front chassis", re.IGNORECASE))
    expect(page.locator("#now-kicker")).to_have_text("Put right · step 1")
    page.keyboard.press("a")
    for screen in (page, wall):
        expect(screen.locator(".alarm.seen")).to_have_count(1)
        expect(screen.get_by_role("button", name="Acknowledge")).to_have_count(0)


# ---- reload, two screens, no connection


def test_a_reload_in_the_middle_loses_nothing_and_two_screens_agree(scripted: Any, open_page: Open) -> None:
    page, wall = open_page(), open_page(**PHONE)
    scripted.see(done=[3])
    act(page, 2, "Mark as done")
    for screen in (page, wall):
        expect(page.locator("#unit-count")).to_have_text("2 of 9")
        expect(status(screen, 2)).to_have_text("Done")
    page.reload(wait_until="commit")
    for screen in (page, wall):
        expect(screen.locator("#unit-count")).to_have_text("2 of 9")
        expect(status(screen, 1)).to_have_text("Done")
        expect(row(screen, 3)).to_have_attribute("aria-current", "step")
    assert page.locator("#unit-serial").inner_text() == wall.locator("#unit-serial").inner_text()
    act(wall, 3, "Mark as done")
    expect(status(page, 3)).to_have_text("Done")


def test_a_lost_connection_is_shown_and_mends_itself(scripted: Any, open_page: Open) -> None:
    page = open_page()
    act(page, 1, "Mark as done")
    expect(status(page, 1)).to_have_text("Done")
    scripted.stop()
    expect(page.locator("#lost")).to_contain_text(re.compile(r"No connection to the station since \d\d:\d\d:\d\d"))
    expect(page.locator("body")).to_have_class(re.compile("stale"))
    expect(page.locator("#link-pill")).to_have_text("No connection")
    expect(page.locator("#now-buttons button").first).to_be_disabled()
    expect(status(page, 1)).to_have_text("Done")  # what was known stays readable
    scripted.start()
    expect(page.locator("#lost")).to_be_hidden()
    expect(page.locator("#link-pill")).to_have_text("Connected")
    expect(status(page, 1)).to_have_text("Done")
    act(page, 2, "Mark as done")
    expect(status(page, 2)).to_have_text("Done")


# ---- languages, sizes, settings


def test_german_is_chosen_by_browser_or_by_touch_and_kept(scripted: Any, open_page: Open) -> None:
    page = open_page(locale="de-DE")
    expect(page.locator("html")).to_have_attribute("lang", "de")
    expect(status(page, 1)).to_have_text("Als Nächstes")
    expect(page.locator("#actions")).to_contain_text("Neue Einheit")
    page.get_by_role("button", name="English").click()
    expect(page.locator("#actions")).to_contain_text("New unit")
    page.reload(wait_until="commit")
    expect(page.locator("#actions")).to_contain_text("New unit")


@pytest.mark.parametrize("device", [PHONE, TABLET], ids=["phone", "tablet"])
def test_small_screens_scroll_in_one_direction_and_have_large_targets(
    scripted: Any, open_page: Open, device: dict[str, Any]
) -> None:
    scripted.see(done=[3], wrong=[6])
    page = open_page(**device)
    expect(status(page, 2)).to_have_text("Wrong")
    assert not scrolls_sideways(page)
    sizes = page.locator("main button:visible, footer button:visible, .alarm button:visible").evaluate_all(
        "(nodes) => nodes.map((node) => node.getBoundingClientRect()).map((box) => Math.min(box.width, box.height))"
    )
    assert len(sizes) > 18
    assert min(sizes) >= 48
    for path in ("/figures", "/stations", f"/units/{unit_id(page)}"):
        go(page, scripted.url + path)
        assert not scrolls_sideways(page), path


def unit_id(page: Any) -> int:
    return int(page.evaluate("async () => (await (await fetch('/api/state')).json()).unit.id"))


def test_colours_and_sound_are_remembered(scripted: Any, open_page: Open) -> None:
    page = open_page(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Light colours").click()
    page.get_by_role("button", name=re.compile("sound", re.IGNORECASE)).click()
    page.reload(wait_until="commit")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    expect(page.get_by_role("button", name="Sound is off")).to_be_visible()


# ---- reports


def test_the_report_and_the_figures_tell_of_the_unit(scripted: Any, open_page: Open) -> None:
    page = open_page()
    number = unit_id(page)
    act(page, 1, "Mark as done")
    expect(status(page, 1)).to_have_text("Done")
    go(page, f"{scripted.url}/units/{number}")
    expect(page.locator("h1")).to_have_text(re.compile("^Unit "))
    expect(page.locator("section", has_text="Corrections by hand")).to_contain_text("Done")
    go(page, f"{scripted.url}/figures")
    expect(page.locator("#units a").first).to_have_attribute("href", f"/units/{number}")
    expect(page.locator("#tiles .tile")).to_have_count(5)
    go(page, f"{scripted.url}/units/999999")
    expect(page.locator("h1")).to_have_text("There is no such unit.")


# ---- tokens


def test_a_token_opens_the_station_and_a_viewers_token_leaves_the_controls_away(
    scripted: Any, browser: Any, open_page: Open
) -> None:
    from stormpsr.web.security import Access

    scripted.stop()
    scripted.access = Access("operator-token-1", "viewer-token-12")
    scripted.start()
    page = browser.new_context(locale="en-GB").new_page()
    for token in ("not-the-token", "operator-token-1"):
        page.goto(scripted.url, wait_until="commit")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Open the station").click()
        page.wait_for_load_state()
    expect(page.locator("#actions")).to_be_visible()
    expect(page.locator("#read-only")).to_be_hidden()
    page.context.close()
    wall = open_page("/login?token=viewer-token-12")
    expect(wall.locator("#read-only")).to_have_text("View only")
    expect(wall.locator("#steps .text").first).to_be_visible()
    expect(wall.locator(".controls:visible")).to_have_count(0)
