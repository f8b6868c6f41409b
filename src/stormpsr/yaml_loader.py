"""YAML files read as trees of nodes: every complaint can name its line, and says in plain words what to do.

A file is read as nodes, not as plain values, for two reasons: nodes know their lines, and a state such as 00101 stays
the text it is (YAML would make a number of it).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import yaml
from yaml.reader import ReaderError

from stormpsr.errors import InputError


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a file, and what to do about it."""

    line: int
    problem: str
    cure: str | None = None

    def __str__(self) -> str:
        return f"{self.problem}; {self.cure}" if self.cure else self.problem

    def raise_error(self, path: str | Path | None, more: int = 0) -> NoReturn:
        cure = self.cure
        if more:
            note = f"{more} more problem{'s' if more > 1 else ''}: run 'stormpsr procedure check'"
            cure = note if cure is None else f"{cure} ({note})"
        raise InputError(self.problem, path=path, line=self.line, cure=cure)


def compose(text: str) -> yaml.Node | Problem | None:
    """The root of a YAML text, None if it is empty, or why it is not YAML."""
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        return root
    except yaml.MarkedYAMLError as error:
        return _in_plain_words(error)
    except ReaderError as error:
        line = text[: error.position].count("\n") + 1
        return Problem(line, f"this is not YAML: the character U+{error.character:04X} is not allowed", "remove it")
    except RecursionError:
        return Problem(1, "this is not YAML: brackets are nested too deeply", "close the brackets that are open")


def _in_plain_words(error: yaml.MarkedYAMLError) -> Problem:
    """PyYAML speaks of tokens and blocks; the usual mistakes are tabs, indentation, colons and quotes."""
    words = error.problem or ""
    here = (error.problem_mark.line if error.problem_mark else 0) + 1
    start = (error.context_mark.line if error.context_mark else here - 1) + 1
    if r"'\t'" in words:
        return Problem(here, "a tab stands here", "indent with spaces, YAML forbids tabs")
    if "cannot start any token" in words:
        return Problem(here, f"this is not YAML: {words}", "put the text in quotes")
    if "could not find expected ':'" in words:
        return Problem(start, "this line has no ':' and no '- '", "write 'key: value', or '- ' before an entry")
    if "mapping values are not allowed" in words:
        return Problem(here, "a ':' too many, or a wrong indentation", "put text that contains ': ' in quotes")
    if "expected <block end>" in words or "expected ',' or" in words:
        cure = f"compare with line {start}: entries of one list or table start in the same column, quotes are closed"
        return Problem(here, "the indentation or a quote is wrong here or above", cure)
    if "unexpected end of stream" in words:
        return Problem(start, "the quote that opens here is never closed", "close it")
    if "another document" in words:
        return Problem(here, "a second document starts here", "keep one per file, without '---' in between")
    if "undefined alias" in words:
        return Problem(here, f"this is not YAML: {words}", "put text that starts with '*' in quotes")
    return Problem(here, f"this is not YAML: {words}", "compare with what 'stormpsr procedure new' writes")


class NodeReader:
    """Collects problems instead of stopping at the first. Readers of a kind of file derive from it."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def complain(self, node: yaml.Node, problem: str, cure: str | None = None) -> None:
        self.problems.append(Problem(node.start_mark.line + 1, problem, cure))

    def text(self, node: yaml.Node, what: str) -> str:
        """The node's text, or a complaint and ""."""
        if not isinstance(node, yaml.ScalarNode) or not node.value.strip():
            self.complain(node, f"{what} must be a word or a line of text", "write it on this line")
        elif node.end_mark.line > node.start_mark.line or "\n" in node.value.strip():
            cure = "give each entry its own line, all starting in the same column"
            self.complain(node, f"{what} runs over several lines: {node.value.strip()!r}", cure)
        else:
            return str(node.value).strip()
        return ""

    def is_absent(self, node: yaml.Node | None) -> bool:
        return node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null"))

    def items(self, node: yaml.Node | None, what: str) -> list[yaml.Node]:
        if node is None or self.is_absent(node):
            return []
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        self.complain(node, f"{what} must be a list", "start each entry with '- '")
        return []

    def pairs(self, node: yaml.Node | None, what: str) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """(key, its node, the value's node); keys that are there twice are complained about."""
        if node is None or self.is_absent(node):
            return
        if not isinstance(node, yaml.MappingNode):
            self.complain(node, f"{what} must be a table", "write 'key: value' lines, indented by two spaces")
            return
        seen: set[str] = set()
        for key_node, value in node.value:
            key = self.text(key_node, f"a key in {what}")
            if key in seen:
                self.complain(key_node, f"{key!r} is there twice in {what}", "remove one of them")
            seen.add(key)
            yield key, key_node, value

    def unknown_key(self, key: str, node: yaml.Node, what: str, known: Sequence[str]) -> None:
        if key:
            self.complain(node, f"{what} has no {key!r}", guess(key, known, f"it has: {', '.join(known)}"))


def guess(word: str, known: Sequence[str], otherwise: str) -> str:
    """A cure for a misspelt word: the nearest known one, or the other text if none is near."""
    nearby = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {nearby[0]!r}?" if nearby else otherwise
