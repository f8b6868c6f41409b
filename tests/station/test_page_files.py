"""The station's pages as files: texts in every language, no inline code, readable colours."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "stormpsr"
PAGES, SHARED = SOURCE / "station" / "pages", SOURCE / "web" / "pages"
LANGUAGES = [entry["code"] for entry in json.loads((SHARED / "texts" / "languages.json").read_text(encoding="utf-8"))]
SCRIPTS = {path.name: path.read_text(encoding="utf-8") for f in (PAGES, SHARED) for path in sorted(f.glob("js/*.js"))}
HTML = {path.name: path.read_text(encoding="utf-8") for f in (PAGES, SHARED) for path in sorted(f.glob("*.html"))}


def texts(language: str) -> dict[str, str]:
    content: dict[str, str] = json.loads((PAGES / "texts" / f"{language}.json").read_text(encoding="utf-8"))
    return content


def there(address: str) -> bool:
    return any((folder / address).is_file() for folder in (PAGES, SHARED))


def placeholders(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text))


@pytest.mark.parametrize("language", [language for language in LANGUAGES if language != "en"])
def test_every_language_has_every_text_with_the_same_placeholders(language: str) -> None:
    english = {key: placeholders(text) for key, text in texts("en").items()}
    assert {key: placeholders(text) for key, text in texts(language).items()} == english


def test_every_text_that_a_page_names_exists_and_every_text_is_used() -> None:
    sources = "\n".join([*SCRIPTS.values(), *HTML.values()])
    named = set(re.findall(r"""["`]((?:[a-z]+\.)+[a-z_0-9]+)["`]""", sources))
    families = set(re.findall(r"`((?:[a-z]+\.)+[a-z_]*)\$\{", sources))  # t(`status.${name}`)
    english = texts("en")
    marked = set(re.findall(r'data-t(?:-\w+)?="([^"]+)"', sources))
    assert marked <= set(english)
    assert {key for key in named if key.split(".")[0] in {text.split(".")[0] for text in english}} <= set(english)
    assert [key for key in english if key not in named | marked and not key.startswith(tuple(families))] == []


@pytest.mark.parametrize("status", ["open", "probable", "done", "wrong", "skipped", "removed"])
def test_every_status_has_a_word_of_its_own(status: str) -> None:
    for language in LANGUAGES:
        words = {key: text for key, text in texts(language).items() if key.startswith("status.")}
        same = [key for key, text in words.items() if text == words[f"status.{status}"]]
        assert same == [f"status.{status}"]


@pytest.mark.parametrize("name", HTML)
def test_pages_hold_no_inline_code_and_load_nothing_from_elsewhere(name: str) -> None:
    page = HTML[name]
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", page))
    addresses = re.findall(r'(?:src|href|action)="([^"]+)"', page)
    assert [address for address in addresses if not address.startswith("/") or address.startswith("//")] == []
    for address in addresses:
        if address.startswith("/static/"):
            assert there(address.removeprefix("/static/")), address


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_import_only_files_that_exist_and_write_no_html(name: str) -> None:
    script = SCRIPTS[name]
    assert all(there(f"js/{target}") for target in re.findall(r'from "\./([^"]+)"', script))
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://(?!www\.w3\.org)",
        script,
    )


# ---- colours

STYLE = (SHARED / "css" / "base.css").read_text(encoding="utf-8")


def colours(theme: str) -> dict[str, str]:
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in re.findall(r"\{([^}]*)\}", STYLE)[:2]
    )
    return light if theme == "light" else light | dark


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


TEXT_PAIRS = [
    *(
        (ink, ground)
        for ink in ("ink", "quiet")
        for ground in ("paper", "card", "sunk", "accent-bed", "wrong-bed", "skipped-bed")
    ),
    *((ink, "card") for ink in ("accent", "done", "wrong", "skipped", "removed")),
    *((ink, f"{ink}-bed") for ink in ("accent", "done", "wrong", "skipped")),
    ("skipped", "accent-bed"),
    *(("on-solid", ground) for ground in ("accent", "done", "wrong")),
    ("on-alarm", "alarm"),
    ("on-warn", "warn"),
]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), TEXT_PAIRS)
def test_text_can_be_read_on_its_ground(theme: str, ink: str, ground: str) -> None:
    named = colours(theme)
    assert contrast(named[ink], named[ground]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_borders_of_controls_stand_out(theme: str) -> None:
    named = colours(theme)
    assert contrast(named["edge"], named["card"]) >= 3
