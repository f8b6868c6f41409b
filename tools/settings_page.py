"""Writes docs/settings.md: every setting of `stormpsr train -o` and `stormpsr detect train --set`.

Names, types and defaults come from the config classes, meanings from the comments beside their fields, so that the page
cannot say anything else than the code. `--check` changes nothing and exits with 1 if the page is out of date.
"""

from __future__ import annotations

import ast
import inspect
import io
import json
import sys
import tokenize
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from stormpsr.config import Config
from stormpsr.detectors import registry
from stormpsr.models.temporal import TEMPORAL_MODELS, UsersConfig

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
HEAD = """# Settings

<!-- Made by `make docs` from the config classes: change the comments there, not this page. -->

A preset is a YAML file with what differs from the defaults below; `-o section.key=value` changes single settings on top
of it, for `stormpsr train`, `model show` and wherever else a preset is taken. What was in force is written beside every
trained model. `stormpsr model show PRESET` prints the networks and their number of parameters.
"""
DETECTORS = """## Detectors

Settings of the detectors behind `stormpsr detect train --detector KIND --set key=value`.
"""


def meanings(config_class: type) -> dict[str, str]:
    """The comment beside each field; those of a class come before those of its bases."""
    found: dict[str, str] = {}
    for cls in config_class.__mro__:
        if cls.__module__.partition(".")[0] != "stormpsr":
            continue
        source = inspect.cleandoc("\n" + inspect.getsource(cls))
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        comments = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
        for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                text = " ".join(comments[line] for line in lines if line in comments)
                if text:
                    found.setdefault(node.target.id, text)
    return found


def kind_of(schema: dict[str, Any]) -> str:
    """A JSON schema in words."""
    if "anyOf" in schema:
        return " or ".join(kind_of(option) for option in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(f"`{value}`" for value in values)
    name = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
    words = name.get(schema.get("type", ""), "nothing" if schema.get("type") == "null" else schema.get("type", "any"))
    limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {schema[key]:g}" for key, sign in limits.items() if key in schema]
    return ", ".join([words, *bounds])


def table(config_class: type, prefix: str = "") -> str:
    """The settings of one class that are not sections of their own."""
    properties: dict[str, Any] = TypeAdapter(config_class).json_schema()["properties"]
    said = meanings(config_class)
    rows = ["| setting | value | default | |", "|---|---|---|---|"]
    for name, schema in properties.items():
        if "$ref" in schema or "discriminator" in schema or (name == "kind" and "const" in schema):
            continue
        if not (meaning := schema.get("description") or said.get(name)):
            raise SystemExit(f"{config_class.__name__}.{name} has no comment that says what it means")
        default = schema.get("default")
        shown = default if isinstance(default, str) else json.dumps(default)
        cells = [f"`{prefix}{name}`", kind_of(schema), "" if default is None else f"`{shown}`", meaning]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def config_classes(annotation: Any) -> list[type[BaseModel]]:
    """The config classes in a field's type: one, several in a union, or none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in typing.get_args(annotation) for found in config_classes(part)]


def sections() -> Iterator[str]:
    yield HEAD
    yield f"## For all stages\n\n{table(Config)}\n"
    for name, field in Config.model_fields.items():
        classes = config_classes(field.annotation)
        if name == "temporal":
            classes = [*(cls for cls, _ in TEMPORAL_MODELS.values()), UsersConfig]
        for cls in classes:
            kind = "package.module:Class" if cls is UsersConfig else cls.model_fields.get("kind")
            title = name if len(classes) == 1 else f"{name}.kind={getattr(kind, 'default', kind)}"
            yield f"## `{title}`\n\n{inspect.getdoc(cls)}\n\n{table(cls, f'{name}.')}\n"
    yield DETECTORS
    for kind in registry.DETECTORS:
        detector = registry._class_of(kind)
        (cls,) = (c for c in typing.get_args(typing.get_type_hints(detector.__init__)["config"]) if c is not type(None))
        about = (inspect.getdoc(detector) or "").partition("\n\n")[0]
        yield f"### `{kind}`\n\n{about}\n\n{table(cls)}\n"


def main() -> int:
    page = "\n".join(sections())
    if "--check" in sys.argv:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page
        if not current:
            print("docs/settings.md is out of date; make it anew with: make docs", file=sys.stderr)
        return 0 if current else 1
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
