"""YAML files as plain data that knows its lines, checked against classes; complaints say where, what, and the cure.

`read_yaml` gives a `Document`; `validate` makes a pydantic model or a dataclass of it. A dataclass that refuses unknown
keys, and texts such as NaN for a number, says so with `__pydantic_config__ = STRICT_KEYS`, which needs no import of
pydantic.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import yaml
from yaml.constructor import SafeConstructor
from yaml.reader import ReaderError
from yaml.resolver import Resolver

from stormpsr.errors import InputError
from stormpsr.files import read_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")
Place = tuple[str | int, ...]  # the keys and list indices that lead to a value
STRICT_KEYS = {"extra": "forbid", "allow_inf_nan": False}
_MOST_VALUES = 200_000  # aliases of aliases can make a small file endless
_TAG = "tag:yaml.org,2002:"
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")  # YAML takes 1e-3 for text, because it has no point


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


class ComplaintError(ValueError):
    """What a validator raises: pydantic knows the place."""

    def __init__(self, problem: str, cure: str | None = None) -> None:
        super().__init__(problem)
        self.cure = cure


@dataclass(frozen=True)
class Document:
    """Plain data and where it stands. A line of 0 means that the value does not come from the file."""

    data: Any
    path: str | Path | None = None
    lines: dict[Place, int] = field(default_factory=dict)

    def at(self, place: Sequence[str | int]) -> Any:
        found = self.data
        for part in place:
            found = found[part]
        return found

    def line(self, place: Sequence[str | int]) -> int | None:
        """The line of a value, or of what stands closest above it; None for the whole."""
        places = (tuple(place[:n]) for n in range(len(place), 0, -1))
        return next((self.lines[above] for above in places if above in self.lines), None)

    def error(self, problem: str, place: Sequence[str | int] = (), cure: str | None = None) -> InputError:
        line = self.line(place)
        return InputError(problem, path=None if line == 0 else self.path, line=line or None, cure=cure)

    def located(self, error: InputError) -> InputError:
        """An error of a class that knows nothing of files, with the place of the key and value that it speaks of."""
        words = re.findall(r"\w+", error.problem)
        spoken_of = [place for place in self.lines if str(place[-1]) in words]
        fits = [(str(self.at(place)) in error.problem, -words.index(str(place[-1]))) for place in spoken_of]
        place = spoken_of[fits.index(max(fits))] if fits else ()
        return self.error(error.problem, place, error.cure)


# ---------------------------------------------------------------------- reading
def read_yaml(path: str | Path, *, as_text: bool = False) -> Document:
    """Read a file; see `parse_yaml`."""
    return parse_yaml(read_text(path), path, as_text=as_text)


def parse_yaml(text: str, path: str | Path | None = None, *, as_text: bool = False) -> Document:
    """Plain data of a YAML text. With `as_text` every value stays the word it is: 00101 is a state, not a number."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        builder = _Builder(path, as_text)
        return Document(None if root is None else builder.build(root, ()), path, builder.lines)
    except yaml.MarkedYAMLError as error:
        _in_plain_words(error).raise_error(path)
    except ReaderError as error:
        line = text[: error.position].count("\n") + 1
        problem = f"this is not YAML: the character U+{error.character:04X} is not allowed"
        raise InputError(problem, path=path, line=line, cure="remove it") from error
    except RecursionError as error:
        problem = "this is not YAML: brackets are nested too deeply"
        raise InputError(problem, path=path, line=1, cure="close the brackets that are open") from error


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
    return Problem(here, f"this is not YAML: {words}", "compare with an example in the documentation")


class _Builder(SafeConstructor):
    """Makes plain data of nodes, and notes their lines."""

    def __init__(self, path: str | Path | None, as_text: bool) -> None:
        super().__init__()
        self.path, self.as_text = path, as_text
        self.lines: dict[Place, int] = {}
        self._resolver = Resolver()

    def build(self, node: yaml.Node, place: Place) -> Any:
        self._refuse_tag(node)
        if len(self.lines) > _MOST_VALUES:
            self._fail(node, "the file is too large, or refers to itself", "remove what starts with '&' or '*'")
        if isinstance(node, yaml.SequenceNode):
            return [self._entry(item, item, (*place, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        found: dict[str, Any] = {}
        for key_node, value in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or not key_node.value.strip():
                self._fail(key_node, "a key must be a word", "write it before the ':'")
            self._refuse_tag(key_node)
            key = str(key_node.value).strip()
            if key in found:
                self._fail(key_node, f"{key!r} is there twice", "remove one of them")
            found[key] = self._entry(key_node, value, (*place, key))
        return found

    def _entry(self, start: yaml.Node, node: yaml.Node, place: Place) -> Any:
        """A scalar stands on its own line, a table or list where its key is."""
        self.lines[place] = (node if isinstance(node, yaml.ScalarNode) else start).start_mark.line + 1
        return self.build(node, place)

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        kind = node.tag.removeprefix(_TAG)
        text = str(node.value)
        if kind == "null":
            return None
        if self.as_text:
            if node.end_mark.line > node.start_mark.line or "\n" in text.strip():
                cure = "give each entry its own line, all starting in the same column"
                self._fail(node, f"a text runs over several lines: {text.strip()!r}", cure)
            return text.strip()
        is_number = kind == "str" and node.style is None and _NUMBER.fullmatch(text)
        if not is_number and kind not in ("bool", "int", "float"):
            return text
        try:
            found = float(text) if is_number else self.construct_object(node)
        except ValueError:  # 09, or thousands of digits
            self._fail(node, f"{text[:20]} is no number that can be read", "put text in quotes")
        if isinstance(found, float) and not math.isfinite(found):
            self._fail(node, f"{text[:20]} is no number to compute with", "write a finite one, or put text in quotes")
        return found

    def _refuse_tag(self, node: yaml.Node) -> None:
        """A tag such as !!int or !mine: what it asks for is not needed, and may not be possible."""
        plain = isinstance(node, yaml.ScalarNode) and node.style is None
        wanted = self._resolver.resolve(type(node), node.value, (plain, not plain))  # type: ignore[no-untyped-call]
        if node.tag != wanted:
            shown = node.tag.replace(_TAG, "!!")
            self._fail(node, f"the tag {shown!r} is not understood", "remove it; quotes make a text of a number")

    def _fail(self, node: yaml.Node, problem: str, cure: str) -> NoReturn:
        raise InputError(problem, path=self.path, line=node.start_mark.line + 1, cure=cure)


# ---------------------------------------------------------------------- checking
def validate(kind: type[T], document: Document, *, at: Place = (), strict: bool = False) -> T:
    """An instance of a pydantic model or dataclass from a document; the first thing that is wrong is an `InputError`.

    strict: a number must be a number, and not a text or a truth value that could be read as one.
    """
    from pydantic import ValidationError

    data = document.at(at)
    adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]
    try:
        if strict:  # as JSON, in which tables become objects and lists tuples even in strict mode
            return adapter.validate_json(json.dumps(data), strict=True)
        return adapter.validate_python(data)
    except ValidationError as error:
        place, problem, cure = next(complaints(error, kind, data))
        raise document.error(problem, (*at, *place), cure) from None
    except InputError as error:
        raise document.located(error) if error.path is None else error from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def complaints(error: ValidationError, kind: Any, data: Any) -> Iterator[tuple[Place, str, str | None]]:
    """(place, problem, cure) of everything that pydantic complains of, in plain words."""
    for entry in error.errors():
        is_missing = entry["type"] in ("missing", "missing_argument")
        place = _place_in(data, entry["loc"][:-1]) + entry["loc"][-1:] if is_missing else _place_in(data, entry["loc"])
        name, given, context = _name(place), entry["input"], entry.get("ctx", {})
        message = re.sub("^(Value error,|Input|Tuple|List) ", "", str(entry["msg"]))
        cure = getattr(context.get("error"), "cure", None)
        if entry["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            known = _known_keys(kind, entry["loc"][:-1])
            yield place, f"there is no key {name!r}", guess(str(place[-1]), known, f"there are: {', '.join(known)}")
        elif is_missing and isinstance(place[-1], int):
            yield place, f"{_name(place[:-1])} has only {place[-1]} entries", "add what is missing"
        elif is_missing:
            yield place, f"the key {name!r} is missing", f"add a line that starts with '{place[-1]}:'"
        elif entry["type"].startswith("union_tag"):
            tags = ", ".join(sorted(re.findall(r"\w+", context.get("expected_tags", ""))))
            yield place, f"{name}.{context['discriminator']} is not known".replace("'", ""), f"choose: {tags}"
        elif isinstance(given, Mapping | list) and entry["type"] == "value_error":
            yield place, message if cure or not name else f"{name}: {message}", cure
        elif entry["type"].startswith(("model_", "dataclass_", "dict_")):
            yield place, f"{name or 'this'} must be a table", cure or "write 'key: value' lines, indented by two spaces"
        elif entry["type"] in ("string_type", "string_too_short"):
            yield place, f"{name} must be a word or a line of text", cure or "write it on this line"
        elif entry["type"].startswith("bool"):
            yield place, f"{name} is {_shown(given)}", "write true or false"
        elif entry["type"].startswith(("list_type", "tuple_type")):
            yield place, f"{name} must be a list", cure or "start each entry with '- '"
        else:
            yield place, f"{name} is {_shown(given)}: it {message}", cure


def _name(place: Place) -> str:
    """`clips.window_frames`, `components #2`: people count from 1."""
    return "".join(f" #{part + 1}" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _place_in(data: Any, location: Sequence[str | int]) -> Place:
    """Where a complaint belongs in the data: pydantic also names the members of unions on the way."""
    place: list[str | int] = []
    for part in location:
        if part in data if isinstance(data, Mapping) else isinstance(data, list) and isinstance(part, int):
            data = data[part]
            place.append(part)
    return tuple(place)


def _known_keys(kind: Any, location: Sequence[str | int]) -> list[str]:
    """The keys that a table may have at a place, from the schema of the class."""
    schema = _adapter(kind).json_schema()

    def members(node: Any) -> Iterator[dict[str, Any]]:
        if isinstance(node, dict):
            yield node
            for member in [node.get("$ref"), *node.get("anyOf", ()), *node.get("oneOf", ())]:
                yield from members(schema["$defs"][member.rsplit("/")[-1]] if isinstance(member, str) else member)

    nodes = list(members(schema))
    for part in location:
        tagged = [node["discriminator"]["mapping"].get(part) for node in nodes if "discriminator" in node]
        inner = [child for node in nodes for child in (node.get("items"), node.get("additionalProperties"))]
        inner = [node["properties"][part] for node in nodes if part in node.get("properties", {})] or inner
        inner = [{"$ref": reference} for reference in tagged if reference] or inner
        nodes = [node for child in inner for node in members(child)]
    return sorted({name for node in nodes for name in node.get("properties", {})})


def guess(word: str, known: Sequence[str], otherwise: str) -> str:
    """A cure for a misspelt word: the nearest known one, or the other text if none is near."""
    nearby = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {nearby[0]!r}?" if nearby else otherwise
