"""The annotator's pages as files: texts in every language, no inline code, and every key explained."""

from __future__ import annotations

import json
import re

import pytest

from stormpsr.annotate.api import PAGES
from stormpsr.web.app import PAGES as LOOK

SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in sorted((PAGES / "js").glob("*.js"))}
HTML = {path.name: path.read_text(encoding="utf-8") for path in sorted(PAGES.glob("*.html"))}
SHARED = "\n".join((LOOK / name).read_text(encoding="utf-8") for name in ("login.html", "js/shared.js"))
LANGUAGES = [entry["code"] for entry in json.loads((LOOK / "texts" / "languages.json").read_text(encoding="utf-8"))]


def texts(language: str) -> dict[str, str]:
    content: dict[str, str] = json.loads((PAGES / "texts" / f"{language}.json").read_text(encoding="utf-8"))
    return content


def there(address: str) -> bool:
    return any((folder / address).is_file() for folder in (PAGES, LOOK))


@pytest.mark.parametrize("language", [language for language in LANGUAGES if language != "en"])
def test_every_language_has_every_text_with_the_same_placeholders(language: str) -> None:
    def placeholders(own: dict[str, str]) -> dict[str, list[str]]:
        return {key: sorted(re.findall(r"\{(\w+)\}", text)) for key, text in own.items()}

    assert placeholders(texts(language)) == placeholders(texts("en"))


def test_every_text_that_a_page_names_exists_and_every_text_is_used() -> None:
    own = "\n".join([*SCRIPTS.values(), *HTML.values()])
    english = texts("en")
    families = {text.split(".")[0] for text in english}
    named = set(re.findall(r"""["`]((?:[a-z]+\.)+[a-z_0-9]+)["`]""", own))
    marked = set(re.findall(r'data-t(?:-\w+)?="([^"]+)"', own))
    assert {key for key in named | marked if key.split(".")[0] in families} <= set(english)
    prefixes = tuple(re.findall(r"`((?:[a-z]+\.)+[a-z_]*)\$\{", own + SHARED))
    used = named | marked | set(re.findall(r"""["`]((?:[a-z]+\.)+[a-z_0-9]+)["`]""", SHARED))
    assert [key for key in english if key not in used and not key.startswith(prefixes)] == []


def test_every_command_has_a_sentence_and_no_key_means_two_things() -> None:
    rows = re.findall(r'^    \["([^"]+)", "(\w+)", ', SCRIPTS["annotate.js"], flags=re.MULTILINE)
    keys = [key for key, _ in rows]
    assert len(keys) == len(set(keys)) > 25
    assert {f"do.{name}" for _, name in rows} <= set(texts("en"))
    letters = re.search(r'LETTERS = \[\.\.\."(\w+)"\]', SCRIPTS["annotate.js"])
    assert letters is not None
    assert not set(letters[1]) & set(keys)


@pytest.mark.parametrize("name", HTML)
def test_pages_hold_no_inline_code_and_load_nothing_from_elsewhere(name: str) -> None:
    page = HTML[name]
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", page))
    for address in re.findall(r'(?:src|href|action)="([^"]+)"', page):
        assert address == "/" or there(address.removeprefix("/static/")), address


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_import_only_files_that_exist_and_write_no_html(name: str) -> None:
    script = SCRIPTS[name]
    assert all(there(f"js/{target}") for target in re.findall(r'from "\./([^"]+)"', script))
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://", script
    )
