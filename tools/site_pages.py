"""Puts the pages of the site together in build/docs: docs/, README, CONTRIBUTING, CHANGELOG, SECURITY and the API
reference.

The four files stay where people look for them in a repository; the reference is made from what `stormpsr` exports, so
that no public name can be missing.
"""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
SITE = CHECKOUT / "build" / "docs"
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
NOT_PAGES = ("CITATION.cff", "LICENSE", "src/", "tests/", "benchmarks/", ".github/")  # are named, but not linked
# the first part of a module's name, and what its section of the reference is called
TITLES = {
    "procedure": "Procedures",
    "data": "Events, labels and recordings",
    "decoding": "Decoders",
    "evaluation": "Scores",
    "recognizer": "The recogniser",
    "errors": "Errors",
}


def _with_links_of_the_site(text: str) -> str:
    """Links that are right in the repository's root, as links from docs/."""
    for source, page in PAGES.items():
        text = re.sub(rf"\]\({re.escape(source)}(#[^)]*)?\)", rf"]({page}\1)", text)
    text = text.replace("](docs/results/)", "](results/end-to-end.md)").replace("](docs/", "](")
    text = text.replace('src="docs/', 'src="')
    not_pages = "|".join(re.escape(place) for place in NOT_PAGES)
    return re.sub(rf"\[([^\]]*)\]\((?:{not_pages})[^)]*\)", r"\1", text)


def public_names() -> dict[str, list[str]]:
    """What stormpsr exports, by the package it comes from: the imports for type checkers in stormpsr/__init__.py."""
    tree = ast.parse((CHECKOUT / "src/stormpsr/__init__.py").read_text(encoding="utf-8"))
    names: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("stormpsr."):
            names.setdefault(node.module.split(".")[1], []).extend(alias.name for alias in node.names)
    return names


def api_reference() -> str:
    names = public_names()
    parts = ["# Python", "", "What `from stormpsr import ...` gives; everything else may change without notice.", ""]
    for package in [*(p for p in TITLES if p in names), *(p for p in names if p not in TITLES)]:
        parts += [f"## {TITLES.get(package, package.capitalize())}", ""]
        parts += [f"::: stormpsr.{name}\n" for name in sorted(names[package], key=str.lower)]
    return "\n".join(parts)


def main() -> None:
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(CHECKOUT / "docs", SITE)
    for source, page in PAGES.items():
        text = _with_links_of_the_site((CHECKOUT / source).read_text(encoding="utf-8"))
        (SITE / page).write_text(text, encoding="utf-8")
    (SITE / "api.md").write_text(api_reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
